package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
)

// A row of a table without a key is found downstream by what is in it. Where a change of the table changes what is in rows, and the log does
// not tell that of each, nothing that the log tells later would find them: a column that is added with values, one that has another
// name, one whose type is another. So the table is loaded again, whole, as its history was, in a lane of its own: until its rows are
// read, all changes are left out, since they will show them; then all rows that are downstream go, and those that were read come, in one
// commit.

// againLanes is where the numbers behind the table's in the names of such lanes begin: behind those of columns.
const againLanes = 900_000

// againLane is the lane of the nth time.
func (h *history) againLane(f *feed, n int) freshet.Lane {
	lane := h.laneOf(f, f.whose)
	lane.Name += fmt.Sprint(againLanes + n)
	return lane
}

// addAgain has the table of the feed loaded again in this lane.
func (h *history) addAgain(f *feed, lane freshet.Lane) *load {
	h.add(f, f.whose)
	f.load.lane, f.load.again = lane, true
	return f.load
}

// lastAgain is the last lane in which the feed's table was loaded again, how far that is, and which the next would be.
func (s *Source) lastAgain(ctx context.Context, f *feed) (lane freshet.Lane, done int64, next freshet.Lane, err error) {
	done = wholeHistory
	for n := 1; ; n++ {
		next = s.history.againLane(f, n)
		p, err := s.down.Resume(ctx, f.name, []freshet.Lane{f.lane, next}) // a change log beside it may lack the newer one alone
		if err != nil {
			return lane, done, next, err
		}
		at, known := p[next]
		if !known {
			return lane, done, next, nil
		}
		lane, done = next, at
	}
}

// resumeAgain goes on with loading the feed's table again, if that is not done.
func (s *Source) resumeAgain(ctx context.Context, f *feed) error {
	if !s.alike(f) || s.o.History.Skip || f.load != nil {
		return nil
	}
	lane, done, _, err := s.lastAgain(ctx, f)
	if err != nil || done == wholeHistory {
		return err
	}
	return s.unfold(ctx, s.history.addAgain(f, lane), done)
}

// reload begins to load the feed's table again, which has no key, if it was reshaped so that rows have other values now.
func (s *Source) reload(ctx context.Context, f *feed, now *Table, known *arrow.Schema, all []reshaping) error {
	if s.o.History.Skip || f.load != nil && !f.load.ended {
		return nil // that reads it as it is now
	}
	why, err := s.rewritten(ctx, f, now, known, all)
	if err != nil || why == "" {
		return err
	}
	if l := f.load; l != nil {
		s.history.finish(l)
	}
	_, _, lane, err := s.lastAgain(ctx, f)
	if err != nil {
		return err
	}
	s.o.Log.Info("the table is loaded again: it has no key, and rows have other values now", "table", f.sourceName(), "why", why)
	return s.beginLoad(ctx, s.history.addAgain(f, lane), clearSeq)
}

// rewritten says what has changed the values that rows have, of which the log does not tell; "": nothing has.
func (s *Source) rewritten(ctx context.Context, f *feed, now *Table, known *arrow.Schema, all []reshaping) (string, error) {
	var added []string
	for _, one := range all {
		switch {
		case one.added:
			added = append(added, one.column.Name)
		case one.column != nil && f.table == nil:
			return one.what, nil
		}
	}
	var gone []string
	if f.table == nil {
		for _, field := range known.Fields() {
			if !strings.HasPrefix(field.Name, "_") { // as the columns that a target has for itself
				gone = append(gone, field.Name)
			}
		}
	} else {
		for _, c := range now.Columns {
			was := slices.ContainsFunc(f.table.Columns, func(b Column) bool { return b.Name == c.Name })
			if !was && indexOf(known, columnName(c.Name)) >= 0 {
				return "the new column " + c.Name + ", of which rows have values from before", nil
			}
		}
		for _, c := range f.table.Columns {
			gone = append(gone, columnName(c.Name))
			if i := slices.IndexFunc(now.Columns, func(n Column) bool { return n.Name == c.Name }); i >= 0 && rewrites(c, now.Columns[i]) {
				return "another type of the column " + c.Name, nil
			}
		}
	}
	if len(added) == 0 {
		return "", nil
	}
	gone = slices.DeleteFunc(gone, func(name string) bool {
		return slices.ContainsFunc(now.Columns, func(c Column) bool { return strings.EqualFold(columnName(c.Name), name) })
	})
	if len(gone) > 0 {
		return "the new column " + added[0] + ", which may be the former " + gone[0], nil
	}
	_, number, err := s.filled(ctx, f, added)
	if number == 0 {
		return "", err
	}
	return "values in the new column " + strings.Join(added, ", "), err
}

// The types of texts of any length, and of those that may be bounded.
const (
	oidText    = 25
	oidVarchar = 1043
)

// rewrites reports whether values may be others once a column has another type. A text is as it was where its bound is no lower.
func rewrites(before, now Column) bool {
	if before.Type == now.Type && before.Modifier == now.Modifier {
		return false
	}
	text := func(c Column) bool { return c.Type == oidText || c.Type == oidVarchar }
	return !text(before) || !text(now) || now.Modifier >= 0 && (before.Modifier < 0 || now.Modifier < before.Modifier)
}
