package delta

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/expr"
)

// mergePlan is a merge that has been checked against the table and the source. Its expressions are bound to three kinds
// of batches, whose columns are named after their side:
//
//	target   t.a, t.b …            rows of the table, as they are scanned
//	source   s.a, s.c …            rows of the source that are held
//	pair     t.a, t.b … s.a, s.c … one row a match
//
// Each has only the columns that some expression reads.
type mergePlan struct {
	merge  *Merge
	edit   *rowEdit
	source RowSource
	opts   *DMLOptions

	target *arrow.Schema // the table's columns that are read, under their names in pairs
	held   *arrow.Schema // the source's columns that are held, under their names in pairs
	pair   *arrow.Schema
	places []int // of the columns of held in the source

	keys     []mergeKey
	residual *expr.Bound // the rest of On, over pairs; nil: nothing is left
	prune    *expr.Expr  // what of On concerns the table alone, over its own columns; nil: nothing

	matched    []mergeAction
	notMatched []mergeAction
	bySource   []mergeAction
}

// mergeKey is an equality of On between the two sides.
type mergeKey struct {
	target, source *expr.Expr // over the names in pairs
	nulls          bool       // two nulls are equal
	boundTarget    *expr.Bound
	boundSource    *expr.Bound
	column         string // the table's column, when target is nothing else
}

// mergeAction is a clause.
type mergeAction struct {
	when   *expr.Expr
	cond   *expr.Bound // nil: always
	remove bool
	make   *assigner // nil when it removes
}

// mergeNames resolves names of a merge's expressions.
type mergeNames struct {
	target, source string // aliases
	table          *Schema
	rows           *arrow.Schema // of the source
}

const (
	sideTarget = 1 << iota
	sideSource
)

// targetName and sourceName are the columns' names in pairs.
func targetName(column string) string { return "t." + column }
func sourceName(column string) string { return "s." + column }

// on returns a function that resolves the names of an expression that may speak of these sides.
func (n *mergeNames) on(sides int) func(*expr.Expr) (*expr.Expr, error) {
	return func(e *expr.Expr) (*expr.Expr, error) {
		return e.Rename(func(parts []string) ([]string, error) { return n.resolve(parts, sides) })
	}
}

func (n *mergeNames) resolve(parts []string, sides int) ([]string, error) {
	if len(parts) > 1 {
		if name, ok := n.inTarget(parts[1]); ok && sides&sideTarget != 0 && strings.EqualFold(parts[0], n.target) {
			return append([]string{name}, parts[2:]...), nil
		}
		if name, ok := n.inSource(parts[1]); ok && sides&sideSource != 0 && strings.EqualFold(parts[0], n.source) {
			return append([]string{name}, parts[2:]...), nil
		}
	}
	target, inTarget := n.inTarget(parts[0])
	source, inSource := n.inSource(parts[0])
	inTarget, inSource = inTarget && sides&sideTarget != 0, inSource && sides&sideSource != 0
	switch {
	case inTarget && inSource:
		return nil, fmt.Errorf("the column %q is ambiguous: write %s.%s or %s.%s", parts[0], n.target, parts[0],
			n.source, parts[0])
	case inTarget:
		return append([]string{target}, parts[1:]...), nil
	case inSource:
		return append([]string{source}, parts[1:]...), nil
	}
	return nil, fmt.Errorf("unknown column %q: %s", strings.Join(parts, "."), n.choice(sides))
}

func (n *mergeNames) inTarget(column string) (string, bool) {
	f, _ := n.table.Lookup(column)
	if f == nil {
		return "", false
	}
	return targetName(f.Name), true
}

func (n *mergeNames) inSource(column string) (string, bool) {
	if i := fieldNamed(n.rows, column); i >= 0 {
		return sourceName(n.rows.Field(i).Name), true
	}
	return "", false
}

// choice lists what an expression may name.
func (n *mergeNames) choice(sides int) string {
	var parts []string
	if sides&sideTarget != 0 {
		parts = append(parts, fmt.Sprintf("the table (%s) has %s", n.target, columnList(n.table)))
	}
	if sides&sideSource != 0 {
		names := make([]string, n.rows.NumFields())
		for i, f := range n.rows.Fields() {
			names[i] = f.Name
		}
		parts = append(parts, fmt.Sprintf("the source (%s) has %s", n.source, strings.Join(names, ", ")))
	}
	return strings.Join(parts, ", ")
}

// fieldNamed is the place of a column, its case ignored; -1: there is none.
func fieldNamed(s *arrow.Schema, name string) int {
	found := -1
	for i, f := range s.Fields() {
		if f.Name == name {
			return i
		}
		if strings.EqualFold(f.Name, name) {
			found = i
		}
	}
	return found
}

// newMergePlan checks a merge. Errors: *expr.Error, *SchemaMismatchError, *UnsupportedError.
func newMergePlan(snap *Snapshot, source RowSource, m *Merge, opts *DMLOptions) (*mergePlan, error) {
	source, err := source.fitted(snap.Schema(), opts.TruncateTimes)
	if err != nil {
		return nil, err
	}
	meta, err := m.evolved(snap, source.Schema)
	if err != nil {
		return nil, err
	}
	p := &mergePlan{merge: m, source: source, opts: opts}
	if p.edit, err = newRowEdit(snap, opts, meta); err != nil {
		return nil, err
	}
	names := &mergeNames{target: cmp.Or(m.Target, "t"), source: cmp.Or(m.Source, "s"), table: snap.Schema(),
		rows: source.Schema}
	if strings.EqualFold(names.target, names.source) {
		return nil, fmt.Errorf("target and source have the same alias %q", names.target)
	}
	whole := names.whole()
	rest, err := p.split(names, whole)
	if err != nil {
		return nil, err
	}
	if err := p.clauses(names, whole); err != nil {
		return nil, err
	}
	return p, p.narrow(whole, rest, names)
}

// whole is the schema of pairs that have every column.
func (n *mergeNames) whole() *arrow.Schema {
	var fields []arrow.Field
	for _, f := range n.table.Arrow().Fields() {
		f.Name, f.Nullable = targetName(f.Name), true
		fields = append(fields, f)
	}
	for _, f := range n.rows.Fields() {
		f.Name, f.Nullable = sourceName(f.Name), true
		fields = append(fields, f)
	}
	return arrow.NewSchema(fields, nil)
}

// sidesOf tells which sides an expression over pairs speaks of.
func sidesOf(e *expr.Expr) (sides int) {
	for _, n := range e.Names() {
		switch {
		case strings.HasPrefix(n[0], "t."):
			sides |= sideTarget
		case strings.HasPrefix(n[0], "s."):
			sides |= sideSource
		}
	}
	return sides
}

// split takes On apart: equalities that can be looked up become keys, what concerns the table alone prunes files, and
// everything but the keys is left to be evaluated on pairs; nil when nothing is.
func (p *mergePlan) split(names *mergeNames, whole *arrow.Schema) (rest *expr.Expr, err error) {
	on, err := names.on(sideTarget | sideSource)(p.merge.On)
	if err != nil {
		return nil, fmt.Errorf("on: %w", err)
	}
	if _, err := on.BindCondition(whole); err != nil {
		return nil, fmt.Errorf("on: %w", err)
	}
	var left, alone []*expr.Expr
	for _, c := range on.Conjuncts() {
		if key, ok := keyOf(c, whole); ok {
			p.keys = append(p.keys, key)
			continue
		}
		left = append(left, c)
		if sidesOf(c) == sideTarget {
			alone = append(alone, c)
		}
	}
	p.prune = ofTable(expr.And(alone...))
	return expr.And(left...), nil
}

// ofTable renames an expression over pairs that speaks of the table alone to the table's own columns.
func ofTable(e *expr.Expr) *expr.Expr {
	if e == nil {
		return nil
	}
	out, err := e.Rename(func(parts []string) ([]string, error) {
		return append([]string{strings.TrimPrefix(parts[0], "t.")}, parts[1:]...), nil
	})
	if err != nil {
		return nil // the renaming above has none
	}
	return out
}

// keyOf makes a key of an equality whose sides are computed from one side of the merge each and have types whose
// values are equal where their encodings are.
func keyOf(c *expr.Expr, whole *arrow.Schema) (mergeKey, bool) {
	a, b, nulls, ok := c.Equality()
	if !ok {
		return mergeKey{}, false
	}
	if sidesOf(a) == sideSource {
		a, b = b, a
	}
	if sidesOf(a) != sideTarget || sidesOf(b) != sideSource {
		return mergeKey{}, false
	}
	ba, errA := a.Bind(whole)
	bb, errB := b.Bind(whole)
	if errA != nil || errB != nil || !sameKeys(ba.Type(), bb.Type()) {
		return mergeKey{}, false
	}
	key := mergeKey{target: a, source: b, nulls: nulls}
	if name, ok := a.Column(); ok {
		key.column = strings.TrimPrefix(name, "t.")
	}
	return key, true
}

// sameKeys reports whether values of two types are equal exactly where appendKey makes the same of them.
func sameKeys(a, b arrow.DataType) bool {
	integer := func(t arrow.DataType) bool { return arrow.IsSignedInteger(t.ID()) }
	float := func(t arrow.DataType) bool { return t.ID() == arrow.FLOAT32 || t.ID() == arrow.FLOAT64 }
	switch {
	case integer(a) && integer(b), float(a) && float(b):
		return true
	case a.ID() != b.ID():
		return false
	}
	switch a.ID() {
	case arrow.STRING, arrow.BINARY, arrow.BOOL, arrow.DATE32:
		return true
	case arrow.TIMESTAMP:
		return a.(*arrow.TimestampType).Unit == b.(*arrow.TimestampType).Unit
	case arrow.DECIMAL128:
		return a.(*arrow.Decimal128Type).Scale == b.(*arrow.Decimal128Type).Scale
	}
	return false
}

// clauses checks the clauses.
func (p *mergePlan) clauses(names *mergeNames, whole *arrow.Schema) error {
	both, target, source := names.on(sideTarget|sideSource), names.on(sideTarget), names.on(sideSource)
	for i, c := range p.merge.Matched {
		a, err := p.matchedAction(c, names, whole, both)
		if err != nil {
			return fmt.Errorf("matched clause %d: %w", i+1, err)
		}
		p.matched = append(p.matched, a)
	}
	for i, c := range p.merge.NotMatchedBySource {
		a, err := p.matchedAction(c, names, whole, target)
		if err != nil {
			return fmt.Errorf("not matched by source clause %d: %w", i+1, err)
		}
		p.bySource = append(p.bySource, a)
	}
	for i, c := range p.merge.NotMatched {
		a, err := p.insertAction(c, names, whole, source)
		if err != nil {
			return fmt.Errorf("not matched clause %d: %w", i+1, err)
		}
		p.notMatched = append(p.notMatched, a)
	}
	return nil
}

type resolver = func(*expr.Expr) (*expr.Expr, error)

// condition resolves and checks the condition of a clause.
func condition(when *expr.Expr, whole *arrow.Schema, own resolver) (*expr.Expr, error) {
	if when == nil {
		return nil, nil
	}
	e, err := own(when)
	if err != nil {
		return nil, err
	}
	_, err = e.BindCondition(whole)
	return e, err
}

func (p *mergePlan) matchedAction(c MatchedClause, names *mergeNames, whole *arrow.Schema, own resolver,
) (a mergeAction, err error) {
	a.remove = c.Delete
	if a.when, err = condition(c.When, whole, own); err != nil || c.Delete {
		return a, err
	}
	set := c.Set
	if c.All {
		if set, err = p.star(names, "UPDATE *"); err != nil {
			return a, err
		}
	}
	if err := p.edit.refuseIdentity(set); err != nil {
		return a, err
	}
	old := func(path ...string) *expr.Expr {
		if f, _ := names.table.Lookup(path[0]); f == nil || !hasField(f, path[1:]) {
			return nil // a column that the merge adds
		}
		return expr.Name(append([]string{targetName(path[0])}, path[1:]...)...)
	}
	a.make, err = newAssigner(set, &assignRules{schema: p.edit.schema, input: whole, old: old, own: own,
		absent: p.edit.keptColumn(old)})
	return a, err
}

// hasField reports whether the path below a column exists.
func hasField(f *Field, path []string) bool {
	for _, name := range path {
		s, ok := f.Type.(*Struct)
		if !ok {
			return false
		}
		if f, _ = lookupField(s.Fields, name); f == nil {
			return false
		}
	}
	return true
}

func (p *mergePlan) insertAction(c InsertClause, names *mergeNames, whole *arrow.Schema, own resolver,
) (a mergeAction, err error) {
	if a.when, err = condition(c.When, whole, own); err != nil {
		return a, err
	}
	set := c.Values
	if c.All {
		if set, err = p.star(names, "INSERT *"); err != nil {
			return a, err
		}
	}
	if err := p.edit.refuseGivenIdentity(set); err != nil {
		return a, err
	}
	a.make, err = newAssigner(set, &assignRules{schema: p.edit.schema, input: whole, own: own,
		old:    func(...string) *expr.Expr { return nil },
		absent: func(*Field) (*expr.Expr, bool) { return nil, false },
	})
	return a, err
}

// refuseGivenIdentity refuses to insert values of one's own where the table gives out all.
func (e *rowEdit) refuseGivenIdentity(set []Assignment) error {
	for _, a := range set {
		f, _ := e.schema.Lookup(splitPath(a.Column)[0])
		if f != nil && e.isIdentity(f) && string(f.metaValue(metaIdentityGiven)) != "true" {
			return fmt.Errorf("set %s: the table gives out the values of this identity column; leave it out", a.Column)
		}
	}
	return nil
}

// star assigns to each column of the table the source's column of its name. Columns that the source lacks are left to
// the clause when the schema may evolve, and where the table computes them; otherwise they are an error.
func (p *mergePlan) star(names *mergeNames, what string) ([]Assignment, error) {
	var set []Assignment
	for i := range p.edit.schema.Fields {
		f := &p.edit.schema.Fields[i]
		at := fieldNamed(names.rows, f.Name)
		if at >= 0 {
			set = append(set, Assignment{Column: quotePath(f.Name),
				Value: expr.Name(names.source, names.rows.Field(at).Name)})
			continue
		}
		if !p.merge.EvolveSchema && !p.edit.isComputed(f) {
			return nil, fmt.Errorf("%s: the source lacks the column %q; assign the columns one by one, or let the "+
				"schema evolve", what, f.Name)
		}
	}
	if len(set) == 0 {
		return nil, errors.New(what + ": the source has no column of the table")
	}
	return set, nil
}

// isComputed reports whether the table itself gives the column values.
func (e *rowEdit) isComputed(f *Field) bool {
	return e.isGenerated(f) || e.isIdentity(f) || e.proto.Supports("allowColumnDefaults") && hasKey(f.Metadata, metaDefault)
}

// quotePath is the path that is one name, whatever characters it has.
func quotePath(name string) string {
	if !strings.ContainsAny(name, ".,` ") {
		return name
	}
	return "`" + strings.ReplaceAll(name, "`", "``") + "`"
}

// narrow finds the columns that are read and held, and binds everything to batches of these.
func (p *mergePlan) narrow(whole *arrow.Schema, rest *expr.Expr, names *mergeNames) error {
	used := make(map[string]bool)
	var fault error
	use := func(e *expr.Expr) {
		if e == nil || fault != nil {
			return
		}
		b, err := e.Bind(whole)
		if err != nil {
			fault = err
			return
		}
		for _, name := range b.Columns() {
			used[name] = true
		}
	}
	use(rest)
	for _, k := range p.keys {
		use(k.target)
		use(k.source)
	}
	for _, list := range [][]mergeAction{p.matched, p.bySource, p.notMatched} {
		for _, a := range list {
			use(a.when)
			if a.make != nil {
				a.make.exprs(use)
			}
		}
	}
	if fault != nil {
		return fault
	}
	tells := p.edit.feed && len(p.matched)+len(p.bySource) > 0
	var target, held []arrow.Field
	for i, f := range whole.Fields() {
		switch at := i - len(names.table.Fields); {
		case at < 0 && (tells || used[f.Name]):
			target = append(target, f)
		case at >= 0 && used[f.Name]:
			held, p.places = append(held, f), append(p.places, at)
		}
	}
	p.target, p.held = arrow.NewSchema(target, nil), arrow.NewSchema(held, nil)
	p.pair = arrow.NewSchema(append(append([]arrow.Field(nil), target...), held...), nil)
	return p.bind(rest)
}

// bind binds every expression to the batches that it will see.
func (p *mergePlan) bind(rest *expr.Expr) (err error) {
	if rest != nil {
		if p.residual, err = rest.BindCondition(p.pair); err != nil {
			return err
		}
	}
	for i := range p.keys {
		k := &p.keys[i]
		if k.boundTarget, err = k.target.Bind(p.target); err != nil {
			return err
		}
		if k.boundSource, err = k.source.Bind(p.held); err != nil {
			return err
		}
	}
	for _, l := range []struct {
		actions []mergeAction
		rows    *arrow.Schema
	}{{p.matched, p.pair}, {p.bySource, p.target}, {p.notMatched, p.held}} {
		for i := range l.actions {
			a := &l.actions[i]
			if a.when != nil {
				if a.cond, err = a.when.BindCondition(l.rows); err != nil {
					return err
				}
			}
			if a.make != nil {
				if err := a.make.bind(l.rows); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
