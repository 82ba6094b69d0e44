package spec

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
)

// MaxLag is how much may be parked of a table; what is 0 has no bound.
type MaxLag struct {
	Rows int64
	Size int64 // bytes
	Age  time.Duration
}

// parkKeys are the keys of a Delta target that tell of tables that are held back.
func (t *Delta) parkKeys() []key {
	return []key{
		{name: "max_lag", doc: "How much is kept of a table that is held back while the others go on. Beyond, nothing more is: " +
			"it then goes on from what the source still has. Default: no bound.", is: t.MaxLag.shape()},
		{name: "on_table_error", doc: "What becomes of a table that cannot take its changes. stop: the pipeline ends. park: the " +
			"table is paused, its changes are parked, and the others go on. Default: stop.",
			is: word(&t.OnTableError, "stop", "park")},
		{name: "patience", doc: "How long the other tables wait for one whose store hangs or is slow. Then its changes are parked, " +
			"and it follows by itself. Default: 1m, or commit.every where that is longer.", is: duration(&t.Patience)},
		{name: "park_in", doc: "The folder, a path or URI, in which changes are parked: where the tables' own store is full, or does " +
			"not answer, it must be elsewhere. Default: beside each table, in TABLE_parked.", is: placed(&t.ParkIn)},
	}
}

// parkedOf names the parking table of a table.
func (p *Pipeline) parkedOf(table string) string {
	if folder := p.Target.Delta.ParkIn.Value; folder != "" {
		name := strings.ReplaceAll(url.PathEscape(table), "%", "=") // a part of a path, and of a URI, as it is
		return strings.TrimRight(folder, "/") + "/" + lake.ParkedName(name)
	}
	return lake.ParkedName(table)
}

// defaultPatience is how long tables wait for another, unless commits come more seldom.
const defaultPatience = time.Minute

func (m *MaxLag) shape() shape {
	return object{keys: []key{
		{name: "rows", doc: "Rows that may be parked.", is: whole(&m.Rows, 1)},
		{name: "size", doc: "Bytes that may be parked, before they are compressed.", is: size(&m.Size)},
		{name: "age", doc: "How old the oldest may be.", is: duration(&m.Age)},
	}}
}

// park are the target's options for tables that are held back.
func (b *Builder) park(p *Pipeline, obs freshet.Observer, how reading) *lake.ParkOptions {
	t := p.Target.Delta
	o := &lake.ParkOptions{Table: p.parkedOf, Held: how.parked, MaxRows: t.MaxLag.Rows, MaxBytes: t.MaxLag.Size,
		MaxAge: t.MaxLag.Age, Patience: t.Patience, Slow: how.slow}
	if o.Patience == 0 {
		o.Patience = max(defaultPatience, t.Commit.Every)
	}
	o.OnSlow = func(table, why string) { b.toldSlow(p, obs, table, why) }
	if b.opts.Bounded || p.Trigger == "once" {
		o.TailBytes = -1
	}
	if t.OnTableError == "park" {
		o.OnError = func(ctx context.Context, table string, err error) error { return b.parkFailed(ctx, p, table, err) }
	}
	return o
}

// onTableError is who pauses a table that fails.
const onTableError = "on_table_error"

// toldSlow tells people that a table is slow, or, without a why, that it is not any more.
func (b *Builder) toldSlow(p *Pipeline, obs freshet.Observer, table, why string) {
	if obs.Slow != nil {
		obs.Slow(table, why)
	}
	if why == "" {
		b.opts.Logger.Info("a table is not slow any more", "pipeline", p.FullName(), "table", table)
		return
	}
	b.opts.Logger.Warn("a table is slow: its changes are parked, and the others go on", "pipeline", p.FullName(), "table", table,
		"why", why)
}

// parkFailed pauses a table that cannot take its changes, or cannot be read, for all processes to see, and tells people what to do.
func (b *Builder) parkFailed(ctx context.Context, p *Pipeline, table string, failed error) error {
	st, err := p.OpenControl(ctx)
	if err != nil {
		return err
	}
	why := failed.Error()
	var e *freshet.Error
	if errors.As(failed, &e) && e.Fix != "" {
		why += "; " + e.Fix
	}
	resume := fmt.Sprintf("freshet pipeline resume %s --table %s", p.FullName(), table)
	b.opts.Logger.Error("a table is paused by itself, and the others go on: its changes are parked, if there is a table", "pipeline", p.FullName(),
		"table", table, "error", why, "then", resume)
	_, err = lake.ChangeControl(ctx, st, p.App, func(c *lake.Control) error {
		t := c.Tables[table]
		if t.Paused == nil {
			t.Paused = &lake.Pause{By: onTableError, Since: time.Now().UTC().Truncate(time.Second), Why: why}
		} else if t.Paused.By != onTableError && !strings.Contains(t.Paused.Why, why) {
			t.Paused.Why = strings.TrimPrefix(t.Paused.Why+"; and "+why, "; and ")
		}
		t.Paused.Park = true
		c.Tables[table] = t
		return nil
	})
	return err
}

// Resumed has a table go on that was paused, and its change log, if the same error paused that.
func (p *Pipeline) Resumed(said *lake.Control, table string) {
	t := said.Tables[table]
	was := t.Paused
	t.Paused = nil
	said.Tables[table] = t
	if was == nil || was.By != onTableError || !p.Target.Delta.hasLog() {
		return
	}
	name := p.changeLogOf(table)
	if log := said.Tables[name]; log.Paused != nil && log.Paused.By == onTableError && log.Paused.Why == was.Why {
		log.Paused = nil
		said.Tables[name] = log
	}
}

// KnownTable is the name under which the pipeline knows one of its tables, change logs among them. Errors: *freshet.Error for
// a table that is none of its.
func (p *Pipeline) KnownTable(table string) (string, error) {
	if log := p.Target.Delta.ChangeLog.Value; p.Target.Delta.hasLog() {
		if topic, ok, err := p.matchTable(log, table); ok && err == nil {
			return p.fill(log, topic), nil
		}
	}
	_, name, err := p.TopicOfTable(table)
	return name, err
}

// SharesLanes reports whether a topic, or the log of a database, feeds several tables, so that one alone is held back only by
// parking.
func (p *Pipeline) SharesLanes() bool { return p.Source.Postgres != nil || p.Target.Delta.hasLog() }

// Parked returns what waits for a table of the pipeline, or for one of its change logs.
func (p *Pipeline) Parked(ctx context.Context, table string) (*lake.Parked, error) {
	parked, err := p.Project.OpenTable(ctx, p.parkedOf(table))
	if err != nil {
		return nil, err
	}
	main, err := p.Project.OpenTable(ctx, table)
	if err != nil {
		return nil, err
	}
	return lake.ReadParked(ctx, parked, main, p.App, func(m lake.CutMarker) (store.Store, error) { return p.Project.OpenTable(ctx, m.Location) })
}

// Tables are the tables of the pipeline, change logs among them, as far as their names are known: of a pattern of topics, or of
// tables of a database, they are not.
func (p *Pipeline) Tables() []string {
	topics := texts(p.kafka().Topics)
	if p.Source.Postgres != nil {
		topics = p.namedTables()
	}
	if !strings.Contains(p.TargetTable(), p.hole()) {
		topics = []string{""}
	}
	var all []string
	for _, topic := range topics {
		for _, pattern := range []string{p.TargetTable(), p.Target.Delta.ChangeLog.Value} {
			if pattern != "" && pattern != feed {
				all = append(all, p.fill(pattern, topic))
			}
		}
	}
	return all
}
