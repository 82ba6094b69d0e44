package spec

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/postgres"
)

// loadable is an error for a table that tells of more than the rows that a database has now, unless that may go.
func (p *Pipeline) loadable(table string, lossy bool) error {
	t, what := p.Target.Delta, ""
	switch {
	case p.Source.Postgres == nil || lossy:
	case !t.keyed():
		what = "the changes that it holds, of rows that have changed since"
	case t.Mode == string(lake.SCD2):
		what = "what its rows were before"
	case t.Deletes == string(lake.SoftDeletes), t.Deletes == string(lake.IgnoreDeletes):
		what = "rows that are deleted in the source"
	}
	if what == "" {
		return nil
	}
	return &freshet.Error{Code: freshet.CodeGap, Class: freshet.ClassInput, Place: table,
		Msg: "a database has rows as they are now alone: of the table would be lost " + what,
		Fix: "write to another table; or say --from-earliest-kept, that it needs no more than the rows of now"}
}

// copyDatabase is how a copy reads its table: by a slot of its own, the table's rows first.
func (p *Pipeline) copyDatabase(number int64) *Postgres {
	s := *p.Source.Postgres
	own := fmt.Sprintf("_resync_%d", number)
	s.Publication, s.Slot = cmp.Or(s.Publication, p.slot()), Text{Value: p.slot()[:min(len(p.slot()), 63-len(own))] + own}
	s.History.Load = ""
	return &s
}

// learn asks the database which of its tables the copy is of. Of topics there is nothing to ask.
func (r *resyncing) learn(ctx context.Context, p *Pipeline) error {
	s := r.copied.Source.Postgres
	if s == nil || r.key != nil {
		return nil
	}
	found, err := postgres.FindTable(ctx, s.URL.Reveal(), p.postgresOptions(), r.Name)
	if err != nil {
		return err
	}
	s.Tables, r.key = []Text{{Value: found.Schema + "." + found.Name}}, found.Key
	p.origins.note(r.Name, found.Schema+"."+found.Name)
	return nil
}

// keyOf is the key of the table and of its copy; nil: the file says one for all.
func (r *resyncing) keyOf(p *Pipeline) func(string) []string {
	if p.Source.Postgres != nil && len(p.Target.Delta.Key) == 0 {
		return func(string) []string { return r.key }
	}
	of := p.keyOf()
	if of == nil {
		return nil
	}
	return func(string) []string { return of(r.Name) }
}

// dropSlot drops the slot that the copy was read by.
func (r *resyncing) dropSlot(ctx context.Context) error {
	s := r.copied.Source.Postgres
	if s == nil {
		return nil
	}
	return postgres.DropSlot(ctx, s.URL.Reveal(), s.Slot.Value)
}

// notLoading is an error while a table of the pipeline is being loaded again: its copy has a slot of its own.
func (p *Pipeline) notLoading(ctx context.Context) error {
	control, err := p.OpenControl(ctx)
	if err != nil {
		return err
	}
	said, err := lake.ReadControl(ctx, control, p.App, nil)
	if err != nil {
		return err
	}
	var faults []error
	for table, t := range said.Tables {
		if t.Resync != nil {
			faults = append(faults, &freshet.Error{Code: freshet.CodeUsage, Class: freshet.ClassInput, Place: table,
				Msg: "the table is being loaded again, by a slot of its own",
				Fix: fmt.Sprintf("let that end, or give it up: freshet pipeline resync %s --table %s --cancel", p.FullName(), table)})
		}
	}
	return errors.Join(faults...)
}
