package lake

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
)

// Group is a freshet.Target that has several Delta tables for each table of the source: the table itself, and others
// beside it. One batch feeds them all, and they are sealed and committed together, in this order. Each has its own progress
// in its own commits, which lands only on exactly what it started from; a crash between two commits leaves them apart. So
// lanes go on from the smallest of their progress, and each table skips what it holds already. Rejects are the first
// table's alone. Its zero value is not usable: see NewGroup.
type Group struct {
	parts []*groupPart // first the table itself

	mu sync.Mutex // of where lanes are

	settling sync.Mutex // held by whoever tells what was loaded again

	pending map[string][]bool // by table: which parts have something to seal; only the goroutine that writes touches it
}

// groupPart is one of the tables of a group.
type groupPart struct {
	*Target
	name func(table string) string
	at   map[groupLane]int64 // up to where each lane has been written
	held map[groupLane]int64 // up to where it was held when it was resumed
	open map[groupLane]bool  // lanes that stand within a seq of which it takes all
}

// groupLane is a lane of a table of the source.
type groupLane struct {
	table string
	lane  freshet.Lane
}

// Beside is a target whose tables lie beside others, under other names.
type Beside struct {
	Target *Target
	Name   func(table string) string
}

var _ freshet.Cutter = (*Group)(nil)

// NewGroup returns the group of a target and those beside it. All are the group's, and have one app.
func NewGroup(main *Target, beside ...Beside) *Group {
	same := func(table string) string { return table }
	g := &Group{parts: []*groupPart{{main, same, map[groupLane]int64{}, map[groupLane]int64{}, map[groupLane]bool{}}}, pending: map[string][]bool{}}
	main.beside = beside
	for _, b := range beside {
		b.Target.lead = main
		g.parts = append(g.parts, &groupPart{b.Target, b.Name, map[groupLane]int64{}, map[groupLane]int64{}, map[groupLane]bool{}})
	}
	return g
}

// Cut records a cut of all tables of the group.
func (g *Group) Cut(ctx context.Context, m freshet.Moment) (*freshet.Recorded, error) {
	return g.parts[0].Cut(ctx, m)
}

// OpenDay is that of the table itself.
func (g *Group) OpenDay(ctx context.Context) (freshet.Day, error) { return g.parts[0].OpenDay(ctx) }

// known are the tables that the target knows, by name.
func (a *Target) known() map[string]*table {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.tables)
}

// together are the tables that the target knows, with those beside them, by name.
func (a *Target) together() map[string]*table {
	known := a.known()
	for _, b := range a.beside {
		maps.Copy(known, b.Target.together())
	}
	return known
}

// namesOf are the names of the table and of those beside it.
func (a *Target) namesOf(table string) []string {
	all := []string{table}
	for _, b := range a.beside {
		all = append(all, b.Target.namesOf(b.Name(table))...)
	}
	return all
}

// ownerOf is the target whose table has this name: one beside, if it lies there beside one of these tables.
func (a *Target) ownerOf(name string, tables []CutTable) *Target {
	for _, b := range a.beside {
		if slices.ContainsFunc(tables, func(t CutTable) bool { return t.Name != name && b.Name(t.Name) == name }) {
			return b.Target
		}
	}
	return a
}

// Open opens all.
func (g *Group) Open(ctx context.Context) error {
	var faults []error
	for _, p := range g.parts {
		faults = append(faults, p.Target.Open(ctx))
	}
	return errors.Join(faults...)
}

// Close closes all.
func (g *Group) Close(ctx context.Context) error {
	var faults []error
	for _, p := range g.parts {
		faults = append(faults, p.Target.Close(ctx))
	}
	return errors.Join(faults...)
}

// Schema is that of the table itself, without columns that those beside it fill: the table has them from another time, and
// no source does.
func (g *Group) Schema(ctx context.Context, table string) (*arrow.Schema, error) {
	schema, err := g.parts[0].Target.Schema(ctx, table)
	for _, p := range g.parts[1:] {
		if schema != nil {
			schema = withoutFills(p.opts.fills(), schema)
		}
	}
	return schema, err
}

// Since is that of the table itself.
func (g *Group) Since(ctx context.Context, table string) (at time.Time, known bool, err error) {
	return g.parts[0].Target.Since(ctx, table)
}

// Bookmark keeps it with the table itself.
func (g *Group) Bookmark(ctx context.Context, table, name string, mark []byte) ([]byte, error) {
	return g.parts[0].Target.Bookmark(ctx, table, name, mark)
}

// Unmark deletes those that are kept with the table itself.
func (g *Group) Unmark(ctx context.Context, table, prefix, last string) error {
	return g.parts[0].Target.Unmark(ctx, table, prefix, last)
}

// Ensure makes all tables, or checks them.
func (g *Group) Ensure(ctx context.Context, table string, schema *arrow.Schema) error {
	if err := g.parts[0].Target.Ensure(ctx, table, schema); err != nil {
		return err
	}
	for _, p := range g.parts[1:] {
		if err := p.ensure(ctx, p.name(table), nullable(schema)); err != nil {
			return err
		}
	}
	return nil
}

// nullable are the columns as a table beside has them: a delete there is a row that may have nothing but its key.
func nullable(schema *arrow.Schema) *arrow.Schema {
	fields := slices.Clone(schema.Fields())
	for i := range fields {
		fields[i].Nullable = true
	}
	meta := schema.Metadata()
	return arrow.NewSchema(fields, &meta)
}

// Resume is the smallest progress of all tables, of the lanes that the table itself knows. A table beside it that does not
// know such a lane, or is not there, begins where the table itself is.
func (g *Group) Resume(ctx context.Context, table string, lanes []freshet.Lane) (freshet.Progress, error) {
	p, err := g.parts[0].Target.Resume(ctx, table, lanes)
	if err != nil {
		return nil, err
	}
	if err := g.SettleResync(ctx, table); err != nil {
		return nil, err
	}
	all := []freshet.Progress{p}
	for _, beside := range g.parts[1:] {
		q, err := beside.resume(ctx, table, p)
		if err != nil {
			return nil, err
		}
		if err := g.whole(ctx, table, beside, p, q); err != nil {
			return nil, err
		}
		if q, err = beside.start(ctx, table, p, q); err != nil {
			return nil, err
		}
		all = append(all, q)
		if err := g.bring(ctx, beside, table); err != nil {
			return nil, err
		}
	}
	return g.begin(table, all), nil
}

// resume is the progress of the part in these lanes.
func (p *groupPart) resume(ctx context.Context, table string, main freshet.Progress) (freshet.Progress, error) {
	return p.Target.Resume(ctx, p.name(table), slices.Collect(maps.Keys(main)))
}

// whole fails when the table had the part beside it, and that knows nothing of its lanes: what it had is lost.
func (g *Group) whole(ctx context.Context, table string, p *groupPart, main, beside freshet.Progress) error {
	if len(beside) > 0 || len(main) == 0 {
		return nil
	}
	t, err := g.parts[0].table(table)
	if err != nil {
		return err
	}
	snap, err := t.look(ctx)
	if err != nil || snap == nil {
		return err
	}
	if _, had := snap.Txn(besideTxn(p.name(table))); !had {
		return nil
	}
	return besideGone(table, p.name(table), "the change log", "and what changed so far cannot be told again", "changelog: …")
}

// start has lanes that the part does not know begin where the table itself is. q is what it knows.
func (p *groupPart) start(ctx context.Context, table string, main, q freshet.Progress) (freshet.Progress, error) {
	fresh := maps.Clone(main)
	maps.DeleteFunc(fresh, func(l freshet.Lane, _ int64) bool { _, known := q[l]; return known })
	if len(fresh) == 0 {
		return q, nil
	}
	begun, err := p.Target.Start(ctx, p.name(table), fresh)
	maps.Copy(q, begun)
	return q, err
}

// bring makes the part's table where there is one of the source already.
func (g *Group) bring(ctx context.Context, p *groupPart, table string) error {
	schema, err := g.parts[0].Target.Schema(ctx, table)
	if err != nil || schema == nil {
		return err
	}
	if have, err := p.Target.Schema(ctx, p.name(table)); err != nil || have != nil {
		return err
	}
	return p.Target.Ensure(ctx, p.name(table), nullable(schema))
}

// Start starts the lanes in the table itself, and in those beside it where it then has them.
func (g *Group) Start(ctx context.Context, table string, starts freshet.Progress) (freshet.Progress, error) {
	p, err := g.parts[0].Target.Start(ctx, table, starts)
	if err != nil {
		return nil, err
	}
	all := []freshet.Progress{p}
	for _, beside := range g.parts[1:] {
		q, err := beside.Target.Start(ctx, beside.name(table), p)
		if err != nil {
			return nil, err
		}
		all = append(all, q)
	}
	return g.begin(table, all), nil
}

// begin lets each part go on from its own progress, and returns the smallest.
func (g *Group) begin(table string, all []freshet.Progress) freshet.Progress {
	g.mu.Lock()
	defer g.mu.Unlock()
	least := maps.Clone(all[0])
	for i, p := range all {
		for l, seq := range p {
			g.parts[i].at[groupLane{table, l}], g.parts[i].held[groupLane{table, l}] = seq, seq
			delete(g.parts[i].open, groupLane{table, l})
			least[l] = min(least[l], seq)
		}
	}
	return least
}

// Write gives the batch to each table, less what it holds already: to the table itself last, since it keeps it.
func (g *Group) Write(ctx context.Context, b *freshet.Batch) (rejected int64, err error) {
	for i := len(g.parts) - 1; i >= 0; i-- {
		table, mine := b.Table, b
		if i > 0 {
			mine = copyOf(b, g.parts[i].name(b.Table))
		}
		if !g.wants(i, table, mine) {
			mine.Release()
			continue
		}
		if g.pending[table] == nil {
			g.pending[table] = make([]bool, len(g.parts))
		}
		g.pending[table][i] = true
		uncover(mine, g.holds(i, table, mine))
		rejected, err = g.parts[i].Target.Write(ctx, mine)
		if err != nil && i > 0 {
			b.Release()
		}
		if err != nil {
			return 0, err
		}
		if i > 0 {
			rejected = 0 // and in the quarantine of the table beside
		}
	}
	return rejected, nil
}

// Replay is Target.Replay of the table itself and of those beside it.
func (g *Group) Replay(ctx context.Context, table string, filter *Filter, retake Retake) (*Replayed, error) {
	return g.parts[0].Target.Replay(ctx, table, filter, retake)
}

// ReplayPresent is Target.ReplayPresent, likewise.
func (g *Group) ReplayPresent(ctx context.Context, table string, filter *Filter, retake Retake, present Present) (*Replayed, error) {
	return g.parts[0].Target.ReplayPresent(ctx, table, filter, retake, present)
}

// holds is up to where the part held the lane that covers rows of the batch.
func (g *Group) holds(part int, table string, b *freshet.Batch) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.parts[part].held[groupLane{table, b.CoveredBy}]
}

// copyOf is the batch for a table beside: rows without rejects, on the same memory, to be released before the batch is.
func copyOf(b *freshet.Batch, table string) *freshet.Batch {
	c := &freshet.Batch{Table: table, Lane: b.Lane, After: b.After, Last: b.Last, Rows: b.Rows, Kinds: b.Kinds,
		Unsent: b.Unsent, Stamps: b.Stamps, Seqs: b.Seqs, Places: b.Places, Records: b.Records, Bytes: b.Bytes,
		Newest: b.Newest, ReadAt: b.ReadAt, Unfinished: b.Unfinished, Covered: b.Covered, CoveredBy: b.CoveredBy, Beside: b.Beside,
		Behind: b.Behind}
	if c.Rows != nil {
		c.Rows.Retain()
	}
	return c
}

// wants cuts from the batch what the part holds already, and reports whether anything is left.
func (g *Group) wants(part int, table string, b *freshet.Batch) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	at, open, l := g.parts[part].at, g.parts[part].open, groupLane{table, b.Lane}
	seq, known := at[l]
	switch {
	case !known || open[l]:
	case b.Last <= seq:
		return false
	case b.After < seq:
		b.Cut(seq)
	}
	at[l] = b.Last
	if delete(open, l); b.Unfinished {
		open[l] = true
	}
	return true
}

// Pending is the most rows that one of the parts has, and the bytes of all.
func (g *Group) Pending() (rows, bytes int64) {
	for _, p := range g.parts {
		r, n := p.Target.Pending()
		rows, bytes = max(rows, r), bytes+n
	}
	return rows, bytes
}

// Seal seals all. A table is sealed only if all parts are that have something of it.
func (g *Group) Seal(ctx context.Context) ([]freshet.Commit, error) {
	var faults []error
	var order []string // of the tables themselves, since the first may tell of the others
	sealed := make([]map[string]freshet.Commit, len(g.parts))
	for i, p := range g.parts {
		commits, err := p.Target.Seal(ctx)
		faults = append(faults, err)
		sealed[i] = map[string]freshet.Commit{}
		for _, c := range commits {
			sealed[i][c.Table()] = c
			if i == 0 {
				order = append(order, c.Table())
			}
		}
	}
	for table := range g.pending {
		if sealed[0][table] == nil {
			order = append(order, table)
		}
	}
	var out []freshet.Commit
	for _, table := range order {
		parts := g.pending[table]
		c := &groupCommit{table: table}
		whole := true
		for i, has := range parts {
			if !has {
				continue
			}
			one, ok := sealed[i][g.parts[i].name(table)]
			if whole = whole && ok; ok {
				c.commits = append(c.commits, groupMember{one, i > 0})
			}
		}
		if !whole {
			c.Abort()
			continue
		}
		out = append(out, c)
	}
	clear(g.pending)
	return out, errors.Join(faults...)
}

// Discard drops what was written and not sealed, in all.
func (g *Group) Discard(table string) {
	for _, p := range g.parts {
		p.Target.Discard(p.name(table))
	}
	delete(g.pending, table)
}

// groupCommit are the sealed parts of the tables of a group.
type groupCommit struct {
	table   string
	commits []groupMember
	done    int // that are committed
}

type groupMember struct {
	freshet.Commit
	beside bool
}

// Table is the table of the source.
func (c *groupCommit) Table() string { return c.table }

// Run commits one after another. After ErrStale of one that is not the first, those before it are committed: what they hold
// is skipped when it is read again.
func (c *groupCommit) Run(ctx context.Context) (freshet.Committed, error) {
	whole := freshet.Committed{Table: c.table, Version: -1, Progress: freshet.Progress{}}
	for _, m := range c.commits {
		done, err := m.Run(ctx)
		if err != nil {
			return freshet.Committed{}, err
		}
		c.done++
		maps.Copy(whole.Progress, done.Progress)
		if m.beside {
			whole.Beside = append(whole.Beside, done)
			continue
		}
		done.Progress, done.Beside = whole.Progress, whole.Beside
		whole = done
	}
	return whole, nil
}

// Abort drops what is not committed.
func (c *groupCommit) Abort() {
	for _, m := range c.commits[c.done:] {
		m.Abort()
	}
}
