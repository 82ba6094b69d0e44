package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/freshet-io/freshet"
)

// A table that has become what its Delta table cannot be, or that its policies stop at, need not end the run: where Downstream holds it back
// it is set aside, and the others and the slot go on. It is read again from where it stands, and what comes is parked: with the columns
// that are new, and else as policies that would end the run would have it if they were Keep. Rows that cannot be ones of the Delta table go to
// quarantine, whole. A run after it was let go on meets the cause again, if that is not gone.
//
// A table of which there is none in Delta yet is not read; a run after it was let go on begins with it anew.

// setAside sets the feed's table aside for err. After an error it may be called again. Errors: err, unless it is the table's own and
// Downstream holds it back.
func (s *Source) setAside(ctx context.Context, f *feed, err error) error {
	if err == nil || !ownFault(err) || ctx.Err() != nil {
		return err
	}
	there, told := s.down.Hold(ctx, f.name, err)
	if told != nil {
		return told
	}
	if there {
		if f.aside {
			return nil
		}
		s.mends.lose(f)
		if err := s.Rewind(ctx, f.name); err != nil {
			return err
		}
		f.aside = true
		s.o.Log.Warn("a table is set aside: what comes of it is parked, and the others go on", "table", f.sourceName(), "error", err)
		return nil
	}
	s.leave(f)
	if s.outside[f.sourceName()] = err; s.opened && len(s.order) == 0 {
		return err
	}
	s.o.Log.Warn("a table is set aside: it is not read, and the others go on", "table", f.sourceName(), "error", err)
	return nil
}

// ownFault reports whether the error is one of a table, and neither of the server nor a gap.
func ownFault(err error) bool {
	var e *freshet.Error
	return errors.As(err, &e) && slices.Contains([]freshet.Code{freshet.CodeTableChanged, freshet.CodeTruncated, freshet.CodeSchemaMismatch,
		freshet.CodeUnknownColumn, freshet.CodeFilledColumn, freshet.CodeUnsupported, freshet.CodeStoreRefused, freshet.CodeCorrupt}, e.Code)
}

// leave has the feed be read no more, of which nothing is downstream.
func (s *Source) leave(f *feed) {
	s.forget(f)
	for _, l := range f.loads() {
		s.history.remove(l)
	}
	s.mends.lose(f)
	delete(s.feeds, f.sourceName())
	s.order = slices.DeleteFunc(s.order, func(other *feed) bool { return other == f })
	for oid, other := range maps.Clone(s.byOID) {
		if other == f {
			s.byOID[oid] = nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.durable, f.name)
	s.holding = 0
}

// read is nil where some table is read; else why one is not.
func (s *Source) read() error {
	if len(s.order) > 0 {
		return nil
	}
	for _, table := range slices.Sorted(maps.Keys(s.outside)) {
		return s.outside[table]
	}
	return s.none(nil)
}

// policies are those of the feed's table: of one that is set aside none ends the run. What is parked of it has new columns, lest they be lost.
func (s *Source) policies(f *feed) DDL {
	d := s.o.ddlOf(f.sourceName())
	if !f.aside {
		return d
	}
	if d.Add == Fail {
		d.Add = Apply
	}
	for _, p := range []*Policy{&d.Widen, &d.Drop, &d.Rename, &d.Narrow, &d.Truncate} {
		if *p == Fail {
			*p = Keep
		}
	}
	return d
}

// spare has the table leave out columns that cannot be in Delta beside those before them, and those whose values cannot be ones of the column
// that the Delta table has. Then no row can be one of it, and why says so.
func (s *Source) spare(ctx context.Context, f *feed, t *Table) (why *freshet.RejectError, err error) {
	known, err := s.known(ctx, f)
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for i := range t.Columns {
		c := &t.Columns[i]
		hiding := s.types.hiding(t, c)
		if hiding.LeftOut {
			continue
		}
		name := strings.ToLower(columnName(c.Name))
		misfit := fmt.Errorf("found two columns of a name that differs in no more than case")
		if c.Out, taken[name] = taken[name], true; !c.Out {
			if known == nil || indexOf(known, name) < 0 {
				continue
			}
			to := known.Field(indexOf(known, name)).Type
			_, misfit = s.types.columnCell(c, hiding, to)
			c.Out = misfit != nil && (hiding.Key != nil || strangeCell(to) == nil)
		}
		if c.Out {
			why = &freshet.RejectError{Code: freshet.CodeSchemaMismatch, Path: c.Name, Offset: -1, Message: misfit.Error()}
		}
	}
	return why, nil
}
