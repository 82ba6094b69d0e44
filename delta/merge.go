package delta

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freshet-io/freshet/expr"
)

// Merge says what a merge does with the rows of the table (the target) and those of a source. Of each list of clauses
// the first one whose condition is true of a row acts; a row that no clause takes stays as it is, or out.
//
// Expressions name columns as alias.column; a name without an alias is the column that only one side has.
type Merge struct {
	On     *expr.Expr // pairs of rows for which it is true match; over both sides
	Target string     // alias of the table; default "t"
	Source string     // alias of the source; default "s"

	Matched            []MatchedClause // of rows of the target that match one of the source; over both sides
	NotMatched         []InsertClause  // of rows of the source that match none of the target; over the source
	NotMatchedBySource []MatchedClause // of rows of the target that match none of the source; over the target

	// EvolveSchema adds columns, and fields of structs, that the source has and the table lacks: those that UPDATE * and
	// INSERT * bring and those that assignments name.
	EvolveSchema bool
}

// MatchedClause updates or deletes a row of the target. Exactly one of Delete, All and Set is given.
type MatchedClause struct {
	When   *expr.Expr // default nil: always
	Delete bool
	All    bool // UPDATE *: every column becomes the source's column of its name
	Set    []Assignment
}

// InsertClause inserts a row of the source. Exactly one of All and Values is given.
type InsertClause struct {
	When   *expr.Expr // default nil: always
	All    bool       // INSERT *: every column is the source's column of its name
	Values []Assignment
}

// AmbiguousMergeError says that several rows of the source want to change one row of the target, so that the outcome
// would depend on their order.
type AmbiguousMergeError struct {
	Row  string // the target's row, by the values that the condition compares
	File string // where it lies
}

func (e *AmbiguousMergeError) Error() string {
	return fmt.Sprintf("several rows of the source change the same row of the table (%s in %s): wanted one at most; "+
		"leave one source row for each key, or narrow the conditions", e.Row, e.File)
}

// Merge brings rows of the source into the table: it updates and deletes rows that match, inserts those that do not,
// and updates and deletes rows of the table that nothing in the source matches. Where two rows of the source would
// change one row of the table it fails with *AmbiguousMergeError, unless all that could happen to the row is to be
// deleted unconditionally.
//
// Equalities between the two sides in On are looked up by hash; only the columns that are needed of only the files that
// may match are read. What is left of On is tried on each pair that the equalities leave; without any, on all pairs, up
// to DMLOptions.MaxPairs. The source is read once if it fits in DMLOptions.MemoryBytes, else once a pass. Change data
// files, row ids and lost races are as for Update. Errors: *AmbiguousMergeError, *SchemaMismatchError; otherwise as
// Update.
func (t *Table) Merge(ctx context.Context, source RowSource, m *Merge, opts *DMLOptions) (*DMLResult, error) {
	o := opts.withDefaults()
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	source = source.dense()
	r, err := t.rerun(ctx, &o, func(ctx context.Context, snap *Snapshot, deadline time.Time) (*DMLResult, error) {
		p, err := newMergePlan(snap, source, m, &o)
		if err != nil {
			return nil, err
		}
		run := &mergeRun{plan: p, edit: p.edit}
		if err := run.run(ctx); err != nil {
			return nil, dropped(ctx, err, p.edit.data, p.edit.changes)
		}
		return p.edit.commit(ctx, deadline, editCommit{
			operation: "MERGE",
			params:    m.params(),
			metrics:   run.metrics,
			reads:     run.reads,
		})
	})
	if err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	return r, nil
}

// check finds what is wrong with a merge whatever it is applied to.
func (m *Merge) check() error {
	var faults []error
	if m.On == nil {
		faults = append(faults, errors.New("it has no condition: wanted one that tells which rows match"))
	}
	if len(m.Matched)+len(m.NotMatched)+len(m.NotMatchedBySource) == 0 {
		faults = append(faults, errors.New("it has no clause, so that it would do nothing"))
	}
	one := func(what string, i int, given ...bool) {
		n := 0
		for _, g := range given {
			if g {
				n++
			}
		}
		if n != 1 {
			faults = append(faults, fmt.Errorf("%s clause %d: found %d actions, wanted one", what, i+1, n))
		}
	}
	for i, c := range m.Matched {
		one("matched", i, c.Delete, c.All, len(c.Set) > 0)
	}
	for i, c := range m.NotMatched {
		one("not matched", i, c.All, len(c.Values) > 0)
	}
	for i, c := range m.NotMatchedBySource {
		one("not matched by source", i, c.Delete, c.All, len(c.Set) > 0)
		if c.All {
			faults = append(faults, fmt.Errorf("not matched by source clause %d: there is no source row to take all "+
				"columns from", i+1))
		}
	}
	return errors.Join(faults...)
}

// params are what commits tell of a merge, in Spark's words.
func (m *Merge) params() map[string]string {
	clause := func(kind string, when *expr.Expr) string {
		o := &objectWriter{}
		if when != nil {
			o.str("predicate", predicateText(when))
		}
		o.str("actionType", kind)
		return string(o.end())
	}
	kind := func(c MatchedClause) string {
		if c.Delete {
			return "delete"
		}
		return "update"
	}
	var matched, notMatched, bySource []string
	for _, c := range m.Matched {
		matched = append(matched, clause(kind(c), c.When))
	}
	for _, c := range m.NotMatched {
		notMatched = append(notMatched, clause("insert", c.When))
	}
	for _, c := range m.NotMatchedBySource {
		bySource = append(bySource, clause(kind(c), c.When))
	}
	return map[string]string{
		"predicate":                    jsonList([]string{predicateText(m.On)}),
		"matchedPredicates":            jsonArray(matched),
		"notMatchedPredicates":         jsonArray(notMatched),
		"notMatchedBySourcePredicates": jsonArray(bySource),
	}
}

// jsonArray is a list of JSON texts as JSON.
func jsonArray(list []string) string {
	b := []byte{'['}
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, s...)
	}
	return string(append(b, ']'))
}
