package postgres

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// Policy says what follows a change of a table in the source.
type Policy string

// The policies.
const (
	Apply Policy = "apply" // the table in Delta changes, too
	Keep  Policy = "keep"  // it stays as it is
	Fail  Policy = "fail"  // the run ends, before anything of what comes behind the change is delivered
)

// DDL says what follows each kind of change of a table. The log does not tell of these by themselves: it describes a table anew
// before the first row that is of the new form, and so they are in order with the rows.
type DDL struct {
	// Add: a new column. Keep leaves it out. Default Apply.
	Add Policy
	// Widen: the type of a column became one that Delta can widen the present one to. Keep: values that the column cannot hold
	// go to quarantine. Default Apply.
	Widen Policy
	// Drop: a column is gone. Keep: it stays, with the values that it has. Default Keep; there is no Apply.
	Drop Policy
	// Rename: a column, or the table, has another name. Keep: what has the new name is new. Default Keep; there is no Apply.
	Rename Policy
	// Narrow: the type of a column became one of which it cannot hold all values. Keep: those that it cannot hold go to
	// quarantine. Default Keep; there is no Apply.
	Narrow Policy
	// Truncate: all rows of a table were deleted by TRUNCATE, or it was dropped and made anew. Apply: all rows go, in tables
	// that have one row a key; a Truncate is delivered. Keep: they stay, and quarantine tells. Default Apply.
	Truncate Policy
}

// over is d with the defaults of base.
func (d DDL) over(base DDL) DDL {
	return DDL{cmp.Or(d.Add, base.Add), cmp.Or(d.Widen, base.Widen), cmp.Or(d.Drop, base.Drop),
		cmp.Or(d.Rename, base.Rename), cmp.Or(d.Narrow, base.Narrow), cmp.Or(d.Truncate, base.Truncate)}
}

var defaultDDL = DDL{Add: Apply, Widen: Apply, Drop: Keep, Rename: Keep, Narrow: Keep, Truncate: Apply}

// validate tells of each fault.
func (d DDL) validate(where string, fault func(format string, args ...any)) {
	for _, one := range []struct {
		name   string
		policy Policy
		words  []Policy
	}{{"add", d.Add, []Policy{Apply, Keep, Fail}}, {"widen", d.Widen, []Policy{Apply, Keep, Fail}},
		{"drop", d.Drop, []Policy{Keep, Fail}}, {"rename", d.Rename, []Policy{Keep, Fail}},
		{"narrow", d.Narrow, []Policy{Keep, Fail}}, {"truncate", d.Truncate, []Policy{Apply, Keep, Fail}}} {
		if one.policy != "" && !slices.Contains(one.words, one.policy) {
			fault("%s: %s: found %q, wanted one of %v", where, one.name, one.policy, one.words)
		}
	}
}

// ddlOf is what holds for a table.
func (o *Options) ddlOf(table string) DDL { return o.TableDDL[table].over(o.DDL).over(defaultDDL) }

// reshaping is a change of a table, as it shows in how the log describes it.
type reshaping struct {
	policy Policy
	what   string       // for people
	column *arrow.Field // the new form of a column that is to be made, or widened; nil: none
	added  bool
}

// reshapings are how the table differs from what its Delta table has, whose columns known are, and from what the log said of it
// before; nil: nothing was said in this run. wanted are its columns in their order, of the types that they would have.
func (d DDL) reshapings(now, before *Table, wanted, known *arrow.Schema) []reshaping {
	var all []reshaping
	var added []int
	for i := range now.Columns {
		if c := &now.Columns[i]; !c.Out && indexOf(known, columnName(c.Name)) < 0 {
			added = append(added, i)
		}
	}
	for _, gone := range d.gone(now, before, known) {
		one := reshaping{d.Drop, "the column " + gone.Name + ", which is gone", nil, false}
		if i := renamed(gone, now, before, added); i >= 0 {
			one = reshaping{d.Rename, fmt.Sprintf("the column %s, which is called %s now, or was dropped as that was added",
				gone.Name, now.Columns[i].Name), nil, false}
		}
		all = append(all, one)
	}
	for _, field := range wanted.Fields() {
		at := indexOf(known, field.Name)
		if at < 0 {
			all = append(all, reshaping{d.Add, "the new column " + field.Name, &field, true})
			continue
		}
		have := known.Field(at).Type
		field.Name = known.Field(at).Name
		switch {
		case arrow.TypeEqual(have, field.Type) || have.ID() == arrow.STRING || canBecome(field.Type, have):
		case canBecome(have, field.Type):
			all = append(all, reshaping{d.Widen, fmt.Sprintf("the column %s, whose %s became %s", field.Name, have, field.Type),
				&field, false})
		default:
			all = append(all, reshaping{d.Narrow, fmt.Sprintf("the column %s, whose type %s does not hold %s", field.Name, have,
				field.Type), nil, false})
		}
	}
	return all
}

// gone are the columns that the table had. Where nothing was said of it in this run those of its Delta table tell, which may have
// more for other reasons: they matter only to those who want the run to end.
func (d DDL) gone(now, before *Table, known *arrow.Schema) (all []Column) {
	has := func(name string) bool {
		return slices.ContainsFunc(now.Columns, func(c Column) bool { return strings.EqualFold(columnName(c.Name), name) })
	}
	if before != nil {
		for _, c := range before.Columns {
			if !has(columnName(c.Name)) {
				all = append(all, c)
			}
		}
		return all
	}
	if d.Drop != Fail && d.Rename != Fail {
		return nil
	}
	for _, f := range known.Fields() {
		if !has(f.Name) {
			all = append(all, Column{Name: f.Name})
		}
	}
	return all
}

// renamed is the new column that may be the one that is gone: at its place and of its type, or any where the place is not known;
// -1: there is none.
func renamed(gone Column, now, before *Table, added []int) int {
	for _, i := range added {
		if before == nil {
			return i
		}
		c := now.Columns[i]
		if i < len(before.Columns) && before.Columns[i].Name == gone.Name && c.Type == gone.Type && c.Modifier == gone.Modifier {
			return i
		}
	}
	return -1
}

// canBecome reports whether Delta can widen a column of one type to another, or has all values of the one in a column of the other.
func canBecome(from, to arrow.DataType) bool {
	bits := map[arrow.Type]int{arrow.INT8: 8, arrow.INT16: 16, arrow.INT32: 32, arrow.INT64: 64}
	low, high := bits[from.ID()], bits[to.ID()]
	switch d := to.(type) {
	case *arrow.Int16Type, *arrow.Int32Type, *arrow.Int64Type:
		return low > 0 && low < high
	case *arrow.Float64Type:
		return from.ID() == arrow.FLOAT32 || low > 0 && low < 64
	case *arrow.TimestampType:
		return d.TimeZone == "" && from.ID() == arrow.DATE32
	case *arrow.Decimal128Type:
		digits := d.Precision - d.Scale
		if was, is := from.(*arrow.Decimal128Type); is {
			return d.Scale >= was.Scale && digits >= was.Precision-was.Scale
		}
		return low > 0 && low < 64 && digits >= 10 || low == 64 && digits >= 20
	}
	return false
}

// reshape obeys the policies of a table whose form differs from that of its Delta table, and returns the columns that are left
// out of it. heard is false of what the catalog has, which may be ahead of the log: what is to be applied may be so early, but
// nothing ends the run. Errors: CodeTableChanged; those of Downstream.
func (s *Source) reshape(ctx context.Context, f *feed, t *Table, heard bool) (map[string]bool, error) {
	have, err := s.down.Schema(ctx, f.name)
	if err != nil || have == nil {
		return nil, err
	}
	known := f.withGiven(have)
	wanted, err := s.types.schema(t)
	if err != nil {
		return nil, unfit(t, err)
	}
	if heard {
		s.tellHidden(f, t, known)
	}
	left := map[string]bool{}
	var wider []arrow.Field
	early := false
	var added []string
	all := s.policies(f).reshapings(s.types.shown(t), s.types.shown(f.table), wanted, s.types.shownOf(t, known))
	for _, one := range all {
		switch {
		case one.policy == Fail && heard:
			return nil, changed(t, one.what, s.here())
		case one.added && one.policy != Apply:
			left[one.column.Name] = true
		case one.added:
			added = append(added, one.column.Name)
		case one.policy == Apply && !one.added:
			wider = append(wider, *one.column)
			early = early || indexOf(have, one.column.Name) < 0
			f.give(*one.column)
		}
		if !heard {
			continue
		}
		s.o.Log.Warn("the table was changed", "table", t.String(), "what", one.what, "policy", string(one.policy))
	}
	if s.alike(f) {
		err = s.reload(ctx, f, t, known, all)
	} else {
		err = s.fill(ctx, f, added)
	}
	if err != nil {
		return nil, err
	}
	f.early = f.early || early
	if len(wider) > 0 {
		if err := s.down.Widen(ctx, f.name, arrow.NewSchema(wider, nil)); err != nil {
			return nil, err
		}
	}
	return left, nil
}

// here is the place in the log at which the source is, for people.
func (s *Source) here() string { return s.server.lane().Position(int64(s.current.end)) }

func changed(t *Table, what, at string) error {
	return &freshet.Error{Code: freshet.CodeTableChanged, Class: freshet.ClassInput, Place: t.String(),
		Msg: fmt.Sprintf("the table was changed before %s, and its policy is to stop: %s", at, what),
		Fix: "look at what it means for the table in Delta, then let ddl be keep or apply for it"}
}

// became takes the identity of a table that the log describes: one that was dropped and made anew under the same name, or has
// another name.
func (s *Source) became(ctx context.Context, f *feed, rel *pgoutput.Rel) error {
	for _, other := range slices.Clone(s.order) {
		if other != f && other.oid == rel.OID {
			if s.policies(other).Rename == Fail {
				err := changed(other.table, "its name is "+rel.Schema+"."+rel.Name+" now", s.here())
				if err := s.setAside(ctx, other, err); err != nil {
					return err
				}
			}
			other.oid = 0
			s.o.Log.Warn("the table has another name; what comes goes to a table of that name", "table", other.sourceName(),
				"now", rel.Schema+"."+rel.Name)
		}
	}
	was := f.oid
	f.oid = rel.OID
	if was == 0 || was == rel.OID || f.table == nil {
		return nil
	}
	s.o.Log.Warn("the table was dropped and made anew", "table", f.sourceName())
	if !s.wants(f) {
		return nil
	}
	s.waiting++
	return f.truncated(s.policies(f).Truncate, "dropped and made anew", &s.current)
}
