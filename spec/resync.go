package spec

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
)

// ResyncOptions tune Builder.Resync. The zero value of each field means its default.
type ResyncOptions struct {
	By  string // who wants it
	Why string // noted in the table's history
	// FromKept takes topics that no longer have their beginning from where they begin now, and databases, which have rows as they
	// are now alone, for tables that hold more. Default: that is an error.
	FromKept bool
}

// Resynced tells of a table that was loaded again.
type Resynced struct {
	Table   string
	Version int64 // of the table
	Rounds  int   // how often the copy had to catch up
}

// maxRounds is how often a copy may catch up with a table that goes on.
const maxRounds = 20

// Resync loads a table of the pipeline again, from the beginning of its topics or from the rows that its database has, while
// readers have it as it is: a copy grows in a folder of its own, and takes its place in one commit. Processes that run the
// pipeline hold the table back meanwhile. Killed and begun again it goes on where it was. Errors: *freshet.Error; CodeGap for a
// topic that no longer has its beginning, and for a table that tells more than the rows that a database has now.
func (b *Builder) Resync(ctx context.Context, p *Pipeline, table string, o *ResyncOptions) (*Resynced, error) {
	topic, name, err := p.TopicOfTable(table)
	if err != nil {
		return nil, err
	}
	if err := p.loadable(name, o.FromKept); err != nil {
		return nil, err
	}
	main, err := p.Project.OpenTable(ctx, name)
	if err != nil {
		return nil, err
	}
	control, err := p.OpenControl(ctx)
	if err != nil {
		return nil, err
	}
	said, err := lake.ChangeControl(ctx, control, p.App, func(c *lake.Control) error {
		t := c.Tables[name]
		if t.Resync == nil {
			plan := lake.ResyncPlan{By: o.By, Since: time.Now().UTC().Truncate(time.Second), Why: o.Why}
			if t.Resync, err = lake.NewResyncPlan(ctx, main, p.App, plan); err != nil {
				return err
			}
		}
		c.Tables[name] = t
		return nil
	})
	if err != nil {
		return nil, err
	}
	r, err := p.resync(ctx, topic, name, *said.Tables[name].Resync)
	if err != nil {
		return nil, err
	}
	r.EngineInfo = b.opts.EngineInfo
	done, err := b.load(ctx, p, r, o)
	var gap *freshet.Error
	if errors.As(err, &gap) && gap.Code == freshet.CodeGap {
		// A copy with a hole can never take the table's place: the table goes on as it is.
		return nil, errors.Join(err, p.endResync(ctx, r))
	}
	if err != nil {
		return nil, err
	}
	if err := b.settleResync(ctx, p, r, said); err != nil {
		return nil, err
	}
	return done, p.endResync(ctx, r)
}

// settleResync brings to a copy that was swapped in what stands beside the table: its change log, unless people hold that back,
// and its quarantine.
func (b *Builder) settleResync(ctx context.Context, p *Pipeline, r *resyncing, said *lake.Control) error {
	if r.LogName != "" {
		opts := b.targetOptions(p, freshet.Observer{})
		opts.Key.Of = r.keyOf(p)
		opts.Upkeep, opts.Cuts = nil, nil
		opts.Park = &lake.ParkOptions{Table: p.parkedOf, Held: map[string]bool{r.LogName: said.Tables[r.LogName].Paused != nil}}
		open := func(table string) (store.Store, error) { return p.Project.OpenTable(ctx, table) }
		g := p.group(open, opts)
		err := g.SettleResync(ctx, r.Name)
		if err := errors.Join(err, g.Close(context.WithoutCancel(ctx))); err != nil {
			return err
		}
	}
	return r.Settle(ctx)
}

// CancelResync gives up loading a table again: what was read for it is deleted, unless it is the table's already.
func (b *Builder) CancelResync(ctx context.Context, p *Pipeline, table string) error {
	topic, name, err := p.TopicOfTable(table)
	if err != nil {
		return err
	}
	control, err := p.OpenControl(ctx)
	if err != nil {
		return err
	}
	said, err := lake.ReadControl(ctx, control, p.App, nil)
	if err != nil {
		return err
	}
	plan := said.Tables[name].Resync
	if plan == nil {
		return &freshet.Error{Code: freshet.CodeUsage, Class: freshet.ClassInput, Place: name,
			Msg: "the table is not being loaded again"}
	}
	r, err := p.resync(ctx, topic, name, *plan)
	if err != nil {
		return err
	}
	r.EngineInfo = b.opts.EngineInfo
	swapped, err := r.Swapped(ctx)
	if err == nil && swapped {
		if err = r.learn(ctx, p); err == nil {
			err = b.settleResync(ctx, p, r, said)
		}
	}
	if err != nil {
		return err
	}
	return p.endResync(ctx, r)
}

// endResync deletes what is left of the copy, and lets the table go on.
func (p *Pipeline) endResync(ctx context.Context, r *resyncing) error {
	if err := r.Drop(ctx, p.Project.Path(p.Target.Delta.IndexDir.Value)); err != nil {
		return err
	}
	if err := r.dropSlot(ctx); err != nil {
		return err
	}
	control, err := p.OpenControl(ctx)
	if err != nil {
		return err
	}
	_, err = lake.ChangeControl(ctx, control, p.App, func(c *lake.Control) error {
		t := c.Tables[r.Name]
		t.Resync = nil
		c.Tables[r.Name] = t
		return nil
	})
	return err
}

// resyncing is a table that is loaded again, and the pipeline that writes the copy.
type resyncing struct {
	*lake.Resync
	copied *Pipeline
	key    []string // of the table in its database, once learn has asked
}

// resync is what loads a table again.
func (p *Pipeline) resync(ctx context.Context, topic, name string, plan lake.ResyncPlan) (*resyncing, error) {
	base, err := p.Project.TableURL(name)
	if err != nil {
		return nil, err
	}
	url := strings.TrimRight(base, "/") + "/" + plan.Folder
	copied, t := *p, *p.Target.Delta
	t.Table, t.Path, t.ChangeLog, t.Cuts = Text{}, Text{Value: url}, Text{}, Text{Value: "false"}
	copied.Target.Delta, copied.Quarantine.Table = &t, Text{}
	copied.Trigger, copied.Days = "once", Days{}
	r := &resyncing{Resync: &lake.Resync{App: p.App, Plan: plan, Name: name, CopyName: url}, copied: &copied}
	if p.Source.Postgres != nil {
		copied.Source.Postgres, r.Whole = p.copyDatabase(plan.Number), true
	} else {
		copied.Source.Kafka = p.copyTopic(topic, plan.Folder)
	}
	if p.Target.Delta.hasLog() {
		r.LogName = p.changeLogOf(name)
		if r.Log, err = p.Project.OpenTable(ctx, r.LogName); err != nil {
			return nil, err
		}
	}
	for table, into := range map[string]*store.Store{name: &r.Main, url: &r.Copy, p.quarantineOf(name): &r.Quarantine,
		lake.QuarantineName(url): &r.CopyQuarantine} {
		if *into, err = p.Project.OpenTable(ctx, table); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// copyTopic is how a copy reads its topic, or all of them.
func (p *Pipeline) copyTopic(topic, folder string) *Kafka {
	k := *p.Source.Kafka
	k.Group, k.InstanceID, k.ForgetGroup = p.App+"-"+folder, "", true
	if k.SessionTimeout == 0 {
		k.SessionTimeout = copySession
	}
	if k.Start.At == "latest" {
		k.Start.At = ""
	}
	if topic != "" {
		k.Topics, k.Pattern = []Text{{Value: topic}}, Text{}
	}
	return &k
}

// copySession is how long a copy's group waits for a member that was killed: only who runs the command anew waits for that.
const copySession = 10 * time.Second

// loadedElsewhere says of a copy that another process has open what that means.
func loadedElsewhere(table string, err error) error {
	var held *freshet.Error
	if !errors.As(err, &held) || held.Code != freshet.CodeConflict || held.Class != freshet.ClassEnvironment {
		return err
	}
	return &freshet.Error{Code: held.Code, Class: held.Class, Place: table, Err: err,
		Msg: "another process on this machine is loading the table again", Fix: "wait until it is done, or end it: this one then goes on"}
}

// load has the copy catch up and swaps it in.
func (b *Builder) load(ctx context.Context, p *Pipeline, r *resyncing, o *ResyncOptions) (*Resynced, error) {
	if err := r.learn(ctx, p); err != nil {
		return nil, err
	}
	r.Masks = p.masksOf(p.sourcesOf(r.Name))
	if err := r.Prepare(ctx); err != nil {
		return nil, err
	}
	obs := b.observer(p)
	done := &Resynced{Table: r.Name}
	swapped, err := r.Swapped(ctx)
	if err != nil {
		return nil, err
	}
	for !swapped && done.Rounds < 2 || err != nil && errors.Is(err, lake.ErrBehind) {
		if done.Rounds++; done.Rounds > maxRounds {
			return nil, &freshet.Error{Code: freshet.CodeConflict, Class: freshet.ClassFailure, Place: r.Name, Err: err,
				Msg: fmt.Sprintf("the copy did not catch up in %d rounds", maxRounds),
				Fix: "stop what still writes to the table as app " + p.App + ", and run this again: it goes on where it was"}
		}
		pipe, e := b.build(ctx, r.copied, obs, reading{whole: !o.FromKept})
		if e != nil {
			return nil, e
		}
		pipe.Target = b.copyTarget(ctx, p, r, obs)
		if err := pipe.Run(ctx); err != nil {
			return nil, loadedElsewhere(r.Name, err)
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if done.Rounds < 2 {
			continue // what came while it was read, most of it, is read before the swap
		}
		done.Version, err = r.Swap(ctx)
	}
	if swapped {
		done.Version, err = r.Swap(ctx)
	}
	return done, err
}

// copyTarget is the target of the copy of a table. Tombstones are facts about the source: the copy knows those of the table,
// and adds to them.
func (b *Builder) copyTarget(ctx context.Context, p *Pipeline, r *resyncing, obs freshet.Observer) freshet.Target {
	opts := b.targetOptions(r.copied, obs)
	tombstones := opts.Key.Tombstones.Table
	if tombstones == nil {
		tombstones = lake.TombstonesName
	}
	opts.Key.Tombstones.Table = func(string) string { return tombstones(r.Name) }
	opts.Key.Of = r.keyOf(p)
	opts.ManyOrigins, opts.Upkeep, opts.PartitionBy = p.manyOrigins(), nil, nil
	if opts.Of != nil {
		opts.Of = func(_ string, o *lake.TargetOptions) { // the copy is partitioned as the table is
			p.override(r.Name, o)
			o.PartitionBy = nil
		}
	}
	open := func(table string) (store.Store, error) { return p.Project.OpenTable(ctx, table) }
	return lake.NewTarget(open, p.App, opts)
}
