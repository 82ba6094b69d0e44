package spec

import (
	"context"
	"errors"
	"fmt"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/postgres"
	"github.com/freshet-io/freshet/store"
)

// Renew makes the slot of a pipeline anew that has lost what its tables need next, and has them go on from where it begins. What happened
// in between is a hole (lake.Hole), of which people are told, until the pipeline has compared its tables with their source and
// repaired them. Killed and begun again it begins anew. Errors: those of postgres.Renew; CodeUnavailable for a pipeline whose
// tables cannot be compared with their source.
func (b *Builder) Renew(ctx context.Context, p *Pipeline, by string) (_ *postgres.Renewed, err error) {
	if err := p.verifiable(); err != nil {
		return nil, err
	}
	control, err := p.OpenControl(ctx)
	if err != nil {
		return nil, err
	}
	hole := lake.Hole{By: by, Since: time.Now().UTC().Truncate(time.Second)}
	mark := func() error {
		_, err := lake.ChangeControl(ctx, control, p.App, func(c *lake.Control) error {
			if c.Hole != nil && hole.From == "" { // one that is not repaired is still there
				hole = *c.Hole
			}
			c.Hole = &hole
			return nil
		})
		return err
	}
	open := func(table string) (store.Store, error) { return p.Project.OpenTable(ctx, table) }
	target := lake.NewTarget(open, p.App, &lake.TargetOptions{EngineInfo: b.opts.EngineInfo})
	defer func() { err = errors.Join(err, target.Close(context.WithoutCancel(ctx))) }()
	r, err := postgres.Renew(ctx, p.Source.Postgres.URL.Reveal(), p.postgresOptions(), &postgres.Kept{Begin: mark, Bookmark: target.Bookmark,
		Held: func(table string, log freshet.Lane) (int64, bool, error) { return p.heldOf(ctx, table, log) }})
	if err != nil {
		return nil, err
	}
	reason := fmt.Sprintf("the slot was made anew: the log from %s to %s is lost", r.Lane.Position(r.From), r.Lane.Position(r.To))
	for _, table := range r.Tables {
		if err := p.leap(ctx, table, r, reason, b.opts.EngineInfo); err != nil {
			return nil, err
		}
	}
	if hole.From == "" {
		hole.From = r.Lane.Position(r.From)
	}
	hole.To = r.Lane.Position(r.To)
	return r, mark()
}

// leap has a table, and its change log, count as holding all up to where the new slot begins.
func (p *Pipeline) leap(ctx context.Context, table string, r *postgres.Renewed, reason, engine string) error {
	tables := []string{table}
	if p.Target.Delta.hasLog() {
		tables = append(tables, p.changeLogOf(table))
	}
	for _, name := range tables {
		st, err := p.Project.OpenTable(ctx, name)
		if err != nil {
			return err
		}
		_, err = lake.SetProgress(ctx, st, p.App, freshet.Progress{r.Lane: r.To}, &lake.SetOptions{Reason: reason, EngineInfo: engine})
		var known *freshet.Error
		if err != nil && !(errors.Is(err, delta.ErrNoTable) || errors.As(err, &known) && known.Code == freshet.CodeNoTable) {
			return err
		}
	}
	return nil
}

// heldOf is up to where a table holds a lane, as it says itself or the newest cut; false where it holds nothing of it.
func (p *Pipeline) heldOf(ctx context.Context, table string, lane freshet.Lane) (int64, bool, error) {
	st, err := p.Project.OpenTable(ctx, table)
	if err != nil {
		return 0, false, err
	}
	apps, err := lake.ReadProgress(ctx, st)
	if errors.Is(err, delta.ErrNoTable) {
		return 0, false, nil
	}
	if err == nil {
		err = lake.AddCuts(ctx, st, apps, func(m lake.CutMarker) (store.Store, error) { return p.Project.OpenTable(ctx, m.Location) })
	}
	if err != nil {
		return 0, false, fmt.Errorf("%s: %w", table, err)
	}
	for _, a := range apps {
		for _, l := range a.Lanes {
			if a.App == p.App && l.Lane.OriginID == lane.OriginID && l.Lane.Name == lane.Name {
				return l.Seq, true, nil
			}
		}
	}
	return 0, false, nil
}

// unrepaired is the hole in the log that is not repaired yet; nil: there is none.
func (p *Pipeline) unrepaired(ctx context.Context) (*lake.Hole, error) {
	control, err := p.OpenControl(ctx)
	if err != nil {
		return nil, err
	}
	said, err := lake.ReadControl(ctx, control, p.App, nil)
	if err != nil {
		return nil, err
	}
	return said.Hole, nil
}

// mended notes that a hole is none any more: since it was known all tables were compared, and nothing differs.
func (p *Pipeline) mended(ctx context.Context, hole *lake.Hole) error {
	if hole == nil {
		return nil
	}
	control, err := p.OpenControl(ctx)
	if err != nil {
		return err
	}
	_, err = lake.ChangeControl(ctx, control, p.App, func(c *lake.Control) error {
		if c.Hole != nil && *c.Hole == *hole { // not another one
			c.Hole = nil
		}
		return nil
	})
	return err
}
