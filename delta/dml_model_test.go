package delta_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/store"
)

// item is a row of the tables of these tests. u is unique and never changes; k is a key that may occur several times.
type item struct {
	u, k int64
	p    string // partition, "" is null
	v    *int64
	s    *string
}

func (r item) String() string {
	return fmt.Sprintf("u=%d k=%d p=%q v=%s s=%s", r.u, r.k, r.p, shown(r.v), shown(r.s))
}

func shown[T any](v *T) string {
	if v == nil {
		return "null"
	}
	return fmt.Sprint(*v)
}

func (r item) json() string {
	text := func(s string) string {
		if s == "" {
			return "null"
		}
		return strconv.Quote(s)
	}
	s := "null"
	if r.s != nil {
		s = strconv.Quote(*r.s)
	}
	return fmt.Sprintf(`{"u":%d,"k":%d,"p":%s,"v":%s,"s":%s}`, r.u, r.k, text(r.p), shown(r.v), s)
}

func itemSchema() *delta.Schema {
	return fields("u", delta.Long, "k", delta.Long, "p", delta.String, "v", delta.Long, "s", delta.String)
}

// condition is a predicate in SQL and what it means: 1 true, 0 false, -1 null.
type condition struct {
	text string
	is   func(item) int
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}

func randomCondition(r *rand.Rand) condition {
	n := int64(r.IntN(20))
	p := []string{"a", "b"}[r.IntN(2)]
	switch r.IntN(6) {
	case 0:
		return condition{fmt.Sprintf("k < %d", n), func(i item) int { return truth(i.k < n) }}
	case 1:
		return condition{fmt.Sprintf("v >= %d", n), func(i item) int {
			if i.v == nil {
				return -1
			}
			return truth(*i.v >= n)
		}}
	case 2:
		return condition{"s IS NULL", func(i item) int { return truth(i.s == nil) }}
	case 3:
		return condition{fmt.Sprintf("p = '%s'", p), func(i item) int {
			if i.p == "" {
				return -1
			}
			return truth(i.p == p)
		}}
	case 4:
		return condition{fmt.Sprintf("p = '%s' AND k %% 3 = %d", p, n%3), func(i item) int {
			switch {
			case i.k%3 != n%3:
				return 0
			case i.p == "":
				return -1
			}
			return truth(i.p == p)
		}}
	}
	return condition{fmt.Sprintf("u %% 7 = %d", n%7), func(i item) int { return truth(i.u%7 == n%7) }}
}

// lab is a table, the model of it, and what is known of its rows' ids.
type lab struct {
	t     *testing.T
	rng   *rand.Rand
	table *delta.Table
	rows  map[int64]item // by u
	nextU int64
	ids   map[int64]int64 // row id by u
	feed  bool
	last  string
}

func newLab(t *testing.T, seed uint64, st store.Store, properties map[string]string, parts ...string) *lab {
	t.Helper()
	table, err := delta.Create(context.Background(), st, &delta.CreateOptions{Schema: itemSchema(), PartitionBy: parts,
		Properties: properties})
	if err != nil {
		t.Fatal(err)
	}
	return &lab{t: t, rng: rand.New(rand.NewPCG(seed, 11)), table: table, rows: map[int64]item{}, ids: map[int64]int64{},
		feed: properties["delta.enableChangeDataFeed"] == "true"}
}

func (l *lab) fresh() item {
	r := item{u: l.nextU, k: int64(l.rng.IntN(25)), p: []string{"a", "b", "c", ""}[l.rng.IntN(4)]}
	l.nextU++
	if l.rng.IntN(4) > 0 {
		v := int64(l.rng.IntN(20))
		r.v = &v
	}
	if l.rng.IntN(3) > 0 {
		s := "s" + strconv.Itoa(l.rng.IntN(5))
		r.s = &s
	}
	return r
}

func (l *lab) someFresh(n int) (out []item) {
	for range n {
		out = append(out, l.fresh())
	}
	return out
}

func (l *lab) source(rows []item) delta.RowSource {
	schema := itemSchema()
	if len(rows) == 0 {
		return delta.SourceOf(schema.Arrow())
	}
	texts := make([]string, len(rows))
	for i, r := range rows {
		texts[i] = r.json()
	}
	half := len(texts) / 2
	first := batchOf(l.t, schema, "["+strings.Join(texts[:half], ",")+"]")
	second := batchOf(l.t, schema, "["+strings.Join(texts[half:], ",")+"]")
	return delta.SourceOf(schema.Arrow(), first, second)
}

// outcome is what an operation should have done.
type outcome struct{ inserted, updated, deleted int64 }

// step does one random operation on table and model; the table after it must be the model.
func (l *lab) step(opts *delta.DMLOptions) {
	l.t.Helper()
	before := map[int64]item{}
	for u, r := range l.rows {
		before[u] = r
	}
	var result *delta.DMLResult
	var err error
	var want outcome
	switch l.rng.IntN(8) {
	case 0, 1:
		result, want, err = l.write(opts)
	case 2, 3:
		c := randomCondition(l.rng)
		l.last = "delete " + c.text
		for u, r := range l.rows {
			if c.is(r) == 1 {
				delete(l.rows, u)
				want.deleted++
			}
		}
		result, err = l.table.Delete(context.Background(), parse(l.t, c.text), opts)
	case 4:
		result, want, err = l.update(opts)
	default:
		result, want, err = l.merge(opts)
	}
	if err != nil {
		l.t.Fatalf("%s: %v", l.last, err)
	}
	if got := (outcome{result.Inserted, result.Updated, result.Deleted}); got != want {
		l.t.Fatalf("%s: got %+v, want %+v", l.last, got, want)
	}
	l.check(result, before)
}

func parse(t testing.TB, text string) *expr.Expr {
	t.Helper()
	e, err := expr.Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return e
}

func (l *lab) write(opts *delta.DMLOptions) (*delta.DMLResult, outcome, error) {
	rows := l.someFresh(l.rng.IntN(30))
	o := &delta.WriteOptions{DMLOptions: *opts, Mode: delta.WriteAppend}
	gone := func(item) bool { return false }
	switch l.rng.IntN(6) {
	case 0:
		o.Mode, gone = delta.WriteOverwrite, func(item) bool { return true }
	case 1:
		o.Mode = delta.WriteDynamic
		hit := map[string]bool{}
		for _, r := range rows {
			hit[r.p] = true
		}
		gone = func(r item) bool { return hit[r.p] }
		if len(l.parts()) == 0 {
			gone = func(item) bool { return len(rows) > 0 }
		}
	case 2:
		c := randomCondition(l.rng)
		o.Mode, o.Where = delta.WriteReplaceWhere, parse(l.t, c.text)
		rows = slices.DeleteFunc(rows, func(r item) bool { return c.is(r) != 1 })
		gone = func(r item) bool { return c.is(r) == 1 }
	}
	l.last = fmt.Sprintf("write %s %v, %d rows", o.Mode, o.Where, len(rows))
	var want outcome
	for u, r := range l.rows {
		if gone(r) {
			delete(l.rows, u)
			want.deleted++
		}
	}
	for _, r := range rows {
		l.rows[r.u] = r
		want.inserted++
	}
	src := l.source(rows)
	r, err := l.table.Write(context.Background(), src.Rows(context.Background()), src.Schema, o)
	return r, want, err
}

func (l *lab) parts() []string {
	s, err := l.table.Snapshot(context.Background())
	if err != nil {
		l.t.Fatal(err)
	}
	return s.PartitionColumns()
}

func (l *lab) update(opts *delta.DMLOptions) (*delta.DMLResult, outcome, error) {
	c := randomCondition(l.rng)
	l.last = "update " + c.text
	var want outcome
	for u, r := range l.rows {
		if c.is(r) != 1 {
			continue
		}
		want.updated++
		old := r
		if old.v != nil {
			v := *old.v + old.k
			r.v = &v
		}
		r.k = old.k + 1
		if old.p == "a" {
			r.p = "b"
		}
		l.rows[u] = r
	}
	r, err := l.table.Update(context.Background(), []delta.Assignment{
		{Column: "V", Value: parse(l.t, "v + k")}, {Column: "k", Value: parse(l.t, "k + 1")},
		{Column: "p", Value: parse(l.t, "CASE WHEN p = 'a' THEN 'b' ELSE p END")},
	}, parse(l.t, c.text), opts)
	return r, want, err
}

// merge does a random merge whose source has each key once.
func (l *lab) merge(opts *delta.DMLOptions) (*delta.DMLResult, outcome, error) {
	var rows []item
	seen := map[int64]bool{}
	for _, r := range l.someFresh(l.rng.IntN(20)) {
		if !seen[r.k] {
			seen[r.k] = true
			rows = append(rows, r)
		}
	}
	m := &delta.Merge{On: parse(l.t, "t.k = s.k")}
	extra := l.rng.IntN(3) == 0
	if extra {
		m.On = parse(l.t, "s.k = t.k AND t.u % 2 = 0 AND (s.v IS NULL OR s.v < 15)")
	}
	if l.rng.IntN(6) == 0 && opts.MemoryBytes == 0 { // no equality
		m.On = parse(l.t, strings.Replace(m.On.String(), "t.k = s.k", "t.k + 0 <= s.k AND t.k >= s.k", 1))
		m.On = parse(l.t, strings.Replace(m.On.String(), "s.k = t.k", "t.k + 0 <= s.k AND t.k >= s.k", 1))
	}
	plan := l.clauses(m)
	l.last = fmt.Sprintf("merge on %s %+v, %d rows", m.On, plan, len(rows))
	want := l.mergeModel(rows, plan, func(t, s item) bool {
		return t.k == s.k && (!extra || t.u%2 == 0 && (s.v == nil || *s.v < 15))
	})
	r, err := l.table.Merge(context.Background(), l.source(rows), m, opts)
	return r, want, err
}

// mergeKinds says which clauses a random merge has.
type mergeKinds struct {
	updateIf, deleteMatched, updateRest, insertIf, insertStar, bySourceDelete, bySourceUpdate bool
}

func (l *lab) clauses(m *delta.Merge) (k mergeKinds) {
	coin := func() bool { return l.rng.IntN(2) == 0 }
	k = mergeKinds{coin(), l.rng.IntN(3) == 0, coin(), coin(), coin(), l.rng.IntN(4) == 0, l.rng.IntN(4) == 0}
	if k.updateIf {
		m.Matched = append(m.Matched, delta.MatchedClause{When: parse(l.t, "t.v < s.v"), Set: []delta.Assignment{
			{Column: "v", Value: parse(l.t, "s.v * 2 + t.k")}, {Column: "p", Value: parse(l.t, "s.p")}}})
	}
	if k.deleteMatched {
		m.Matched = append(m.Matched, delta.MatchedClause{When: parse(l.t, "s.s IS NULL"), Delete: true})
	}
	if k.updateRest {
		m.Matched = append(m.Matched, delta.MatchedClause{Set: []delta.Assignment{
			{Column: "s", Value: parse(l.t, "s.s")}}})
	}
	if k.insertIf {
		m.NotMatched = append(m.NotMatched, delta.InsertClause{When: parse(l.t, "s.v > 5"), Values: []delta.Assignment{
			{Column: "u", Value: parse(l.t, "s.u")}, {Column: "k", Value: parse(l.t, "s.k")}}})
	}
	if k.insertStar {
		m.NotMatched = append(m.NotMatched, delta.InsertClause{When: parse(l.t, "k < 20"), All: true})
		if !k.insertIf {
			m.NotMatched[0].When = nil
		}
	}
	if k.bySourceDelete {
		m.NotMatchedBySource = append(m.NotMatchedBySource, delta.MatchedClause{When: parse(l.t, "t.k = 3"), Delete: true})
	}
	if k.bySourceUpdate || len(m.Matched)+len(m.NotMatched)+len(m.NotMatchedBySource) == 0 {
		k.bySourceUpdate = true
		m.NotMatchedBySource = append(m.NotMatchedBySource, delta.MatchedClause{When: parse(l.t, "v IS NULL"),
			Set: []delta.Assignment{{Column: "s", Value: parse(l.t, "'lone'")}}})
		m.NotMatchedBySource[len(m.NotMatchedBySource)-1].When = parse(l.t, "t.v IS NULL")
	}
	return k
}

func (l *lab) mergeModel(rows []item, k mergeKinds, on func(t, s item) bool) (want outcome) {
	matchedSource := map[int64]bool{}
	for u, t := range l.rows {
		matched := false
		for _, s := range rows {
			if !on(t, s) {
				continue
			}
			matched, matchedSource[s.u] = true, true
			switch {
			case k.updateIf && t.v != nil && s.v != nil && *t.v < *s.v:
				v := *s.v*2 + t.k
				t.v, t.p = &v, s.p
				l.rows[u] = t
				want.updated++
			case k.deleteMatched && s.s == nil:
				delete(l.rows, u)
				want.deleted++
			case k.updateRest:
				t.s = s.s
				l.rows[u] = t
				want.updated++
			}
		}
		switch {
		case matched:
		case k.bySourceDelete && t.k == 3:
			delete(l.rows, u)
			want.deleted++
		case k.bySourceUpdate && t.v == nil:
			lone := "lone"
			t.s = &lone
			l.rows[u] = t
			want.updated++
		}
	}
	for _, s := range rows {
		switch {
		case matchedSource[s.u]:
		case k.insertIf && s.v != nil && *s.v > 5:
			l.rows[s.u] = item{u: s.u, k: s.k}
			want.inserted++
		case k.insertStar && (!k.insertIf || s.k < 20):
			l.rows[s.u] = s
			want.inserted++
		}
	}
	return want
}

// check compares the table with the model: its rows, the ids of rows, the change data of the commit.
func (l *lab) check(r *delta.DMLResult, before map[int64]item) {
	l.t.Helper()
	got := l.read(r.Snapshot)
	want := lines(l.rows)
	if !slices.Equal(got, want) {
		l.t.Fatalf("%s: version %d:\n got %s\nwant %s", l.last, r.Version, strings.Join(got, "\n     "),
			strings.Join(want, "\n     "))
	}
	if r.Committed && r.ChangeFiles > 0 {
		l.checkFeed(r, before)
	}
	if l.feed && r.Updated > 0 && r.ChangeFiles == 0 {
		l.t.Fatalf("%s: rows were updated without change data", l.last)
	}
}

func lines(rows map[int64]item) (out []string) {
	for _, r := range rows {
		out = append(out, r.String())
	}
	slices.Sort(out)
	return out
}

// read returns the rows of the table, and looks at their ids.
func (l *lab) read(snap *delta.Snapshot) (out []string) {
	l.t.Helper()
	var files []delta.Add
	for a, err := range snap.Matching(context.Background(), nil) {
		if err != nil {
			l.t.Fatal(err)
		}
		files = append(files, *a)
	}
	seen := map[int64]bool{}
	for r, err := range snap.ScanFiles(context.Background(), files, &delta.ScanOptions{RowIDs: true}) {
		if err != nil {
			l.t.Fatalf("%s: %v", l.last, err)
		}
		ids := r.Batch.Column(5).(*array.Int64)
		for i, it := range itemsOf(r.Batch.Columns(), int(r.Batch.NumRows())) {
			out = append(out, it.String())
			if snap.Property("delta.enableRowTracking") != "true" {
				continue
			}
			id := ids.Value(i)
			if old, ok := l.ids[it.u]; ids.IsNull(i) || seen[id] || ok && old != id {
				l.t.Fatalf("%s: row %v: id %s, before %d (%v), or twice (%v)", l.last, it, ids.ValueStr(i), old, ok, seen[id])
			}
			seen[id], l.ids[it.u] = true, id
		}
		r.Batch.Release()
	}
	slices.Sort(out)
	return out
}

// checkFeed applies the commit's change data to the rows before it.
func (l *lab) checkFeed(r *delta.DMLResult, before map[int64]item) {
	l.t.Helper()
	kinds := map[string]int64{}
	minus, plus := []string{}, []string{}
	opts := &delta.ScanOptions{ChangeType: true}
	for b, err := range r.Snapshot.ScanFiles(context.Background(), changeFiles(l.t, l.table, r.Version), opts) {
		if err != nil {
			l.t.Fatal(err)
		}
		types := b.Batch.Column(5).(*array.String)
		for i, it := range itemsOf(b.Batch.Columns(), int(b.Batch.NumRows())) {
			kinds[types.Value(i)]++
			switch types.Value(i) {
			case "delete", "update_preimage":
				minus = append(minus, it.String())
			default:
				plus = append(plus, it.String())
			}
		}
		b.Batch.Release()
	}
	want := map[string]int64{"insert": r.Inserted, "delete": r.Deleted, "update_preimage": r.Updated,
		"update_postimage": r.Updated}
	for kind, n := range want {
		if kinds[kind] != n {
			l.t.Fatalf("%s: change data has %v, want %v", l.last, kinds, want)
		}
	}
	rows := slices.Concat(lines(before), plus)
	for _, m := range minus {
		i := slices.Index(rows, m)
		if i < 0 {
			l.t.Fatalf("%s: change data takes out %s, which is not there", l.last, m)
		}
		rows = slices.Delete(rows, i, i+1)
	}
	slices.Sort(rows)
	if want := lines(l.rows); !slices.Equal(rows, want) {
		l.t.Fatalf("%s: after its change data the table were\n     %s\nwant %s", l.last, strings.Join(rows, "\n     "),
			strings.Join(want, "\n     "))
	}
}
