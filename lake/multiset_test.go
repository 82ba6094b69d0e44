package lake_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/lake"
)

// looseRow is a row of a table without a key: a value, or nil, for each column that the source has or had.
type looseRow map[string]any

// text is the row as far as it has these columns, all values told apart that are not the same.
func (r looseRow) text(columns []string) string {
	var parts []string
	for _, name := range columns {
		switch v := r[name].(type) {
		case nil:
			parts = append(parts, "null")
		case float64:
			bits := math.Float64bits(v)
			if v != v {
				bits = 0
			}
			parts = append(parts, fmt.Sprintf("%v %x", v, bits))
		default:
			parts = append(parts, fmt.Sprintf("%#v", v))
		}
	}
	return strings.Join(parts, " | ")
}

var looseColumns = map[string]arrow.DataType{
	"a": arrow.PrimitiveTypes.Int64, "x": arrow.PrimitiveTypes.Float64, "text": arrow.BinaryTypes.String,
	"list": arrow.ListOf(arrow.PrimitiveTypes.Int64), "more": arrow.BinaryTypes.String, "part": arrow.BinaryTypes.String,
}

// looseChange is one row of a batch.
type looseChange struct {
	kind freshet.Kind
	row  looseRow
}

// looseBatch is a batch of rows with these columns, one a seq but for both sides of an update, which share one.
func looseBatch(columns []string, after int64, changes []looseChange) *freshet.Batch {
	var fields []arrow.Field
	for _, name := range columns {
		fields = append(fields, arrow.Field{Name: name, Type: looseColumns[name], Nullable: true})
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer b.Release()
	batch := &freshet.Batch{Table: "t", Lane: keyedLane, After: after, Last: after + int64(len(changes)),
		Unsent: freshet.NewMask(len(columns))}
	for n, c := range changes {
		for i, name := range columns {
			switch v := c.row[name].(type) {
			case int64:
				b.Field(i).(*array.Int64Builder).Append(v)
			case float64:
				b.Field(i).(*array.Float64Builder).Append(v)
			case string:
				b.Field(i).(*array.StringBuilder).Append(v)
			case []int64:
				l := b.Field(i).(*array.ListBuilder)
				l.Append(true)
				l.ValueBuilder().(*array.Int64Builder).AppendValues(v, nil)
			default:
				b.Field(i).AppendNull()
			}
			if c.kind == freshet.Truncate {
				batch.Unsent.Mark(n, i)
			}
		}
		batch.Kinds = append(batch.Kinds, c.kind)
		batch.Seqs = append(batch.Seqs, after+int64(n)+1)
	}
	batch.Rows = b.NewRecordBatch()
	return batch
}

// looseCommit is what one commit is told: rows with some columns, then maybe others with other columns.
type looseCommit struct{ batches []looseWrite }

type looseWrite struct {
	columns []string
	changes []looseChange
}

// source is a table without a key, as its server has it.
type looseSource struct {
	rng     *rand.Rand
	columns []string
	rows    []looseRow
}

func newLooseSource(rng *rand.Rand) *looseSource {
	return &looseSource{rng: rng, columns: []string{"a", "x", "text", "list", "part"}}
}

// row is a random one of few: many are alike.
func (s *looseSource) row() looseRow {
	r := looseRow{}
	for _, name := range s.columns {
		if s.rng.IntN(4) == 0 {
			continue
		}
		switch name {
		case "a":
			r[name] = s.rng.Int64N(4)
		case "x":
			r[name] = []float64{math.NaN(), math.Copysign(0, -1), 0, 1.5}[s.rng.IntN(4)]
		case "list":
			r[name] = [][]int64{{}, {1}, {1, 2}}[s.rng.IntN(3)]
		case "part":
			r[name] = "p"
		default:
			r[name] = []string{"", "x", "y"}[s.rng.IntN(3)]
		}
	}
	return r
}

// change changes the source, and returns how its log tells that.
func (s *looseSource) change() []looseChange {
	at := 0
	if len(s.rows) > 0 {
		at = s.rng.IntN(len(s.rows))
	}
	switch n := s.rng.IntN(200); {
	case n == 0:
		s.rows = nil
		return []looseChange{{freshet.Truncate, looseRow{}}}
	case n < 20 && len(s.rows) > 0: // as it was
		return []looseChange{{freshet.UpdatePreimage, s.rows[at]}, {freshet.UpdatePostimage, s.rows[at]}}
	case n < 70 && len(s.rows) > 0:
		old := s.rows[at]
		s.rows[at] = s.row()
		return []looseChange{{freshet.UpdatePreimage, old}, {freshet.UpdatePostimage, s.rows[at]}}
	case n < 120 && len(s.rows) > 0:
		old := s.rows[at]
		s.rows = slices.Delete(s.rows, at, at+1)
		return []looseChange{{freshet.Delete, old}}
	case n < 130: // many that are alike
		row := s.row()
		var all []looseChange
		for range s.rng.IntN(50) {
			s.rows = append(s.rows, row)
			all = append(all, looseChange{freshet.Insert, row})
		}
		return all
	}
	row := s.row()
	s.rows = append(s.rows, row)
	return []looseChange{{freshet.Insert, row}}
}

// reshape adds a column that is null in all rows, or drops one.
func (s *looseSource) reshape() {
	switch {
	case !slices.Contains(s.columns, "more"):
		s.columns = append(slices.Clone(s.columns), "more")
	case slices.Contains(s.columns, "text"):
		s.columns = slices.DeleteFunc(slices.Clone(s.columns), func(c string) bool { return c == "text" })
		for i, row := range s.rows {
			s.rows[i] = looseRow{}
			for _, name := range s.columns {
				s.rows[i][name] = row[name]
			}
		}
	}
}

// commit is what the next commit is told.
func (s *looseSource) commit(changes int) (c looseCommit) {
	for range 1 + s.rng.IntN(3) {
		if s.rng.IntN(8) == 0 {
			s.reshape()
		}
		w := looseWrite{columns: s.columns}
		for range 1 + s.rng.IntN(changes) {
			w.changes = append(w.changes, s.change()...)
		}
		c.batches = append(c.batches, w)
	}
	return c
}

// texts are the rows as the source has them, sorted.
func (s *looseSource) texts() []string {
	all := []string{}
	for _, r := range s.rows {
		all = append(all, r.text(s.columns))
	}
	slices.Sort(all)
	return all
}

// loose are the rows of the table with these columns, sorted.
func (w *world) loose(t *testing.T, columns []string) []string {
	t.Helper()
	all := []string{}
	snap := w.snapshot(t, "t")
	var there []string
	for _, name := range columns {
		if f, _ := snap.Schema().Lookup(name); f != nil {
			there = append(there, name)
		}
	}
	for rec, err := range snap.Scan(t.Context(), &delta.ScanOptions{Columns: there}) {
		must(t, err)
		for i := range int(rec.NumRows()) {
			row := looseRow{}
			for n, name := range there {
				switch c := rec.Column(n).(type) {
				case *array.Int64:
					row[name] = c.Value(i)
				case *array.Float64:
					row[name] = c.Value(i)
				case *array.String:
					row[name] = strings.Clone(c.Value(i))
				case *array.List:
					from, to := c.ValueOffsets(i)
					row[name] = append([]int64{}, c.ListValues().(*array.Int64).Int64Values()[from:to]...)
				}
				if rec.Column(n).IsNull(i) {
					delete(row, name)
				}
			}
			all = append(all, row.text(columns))
		}
		rec.Release()
	}
	slices.Sort(all)
	return all
}

func sameRows(t *testing.T, when string, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	t.Fatalf("%s: got %d rows, want %d:\ngot  %s\nwant %s", when, len(got), len(want), strings.Join(got, "\n     "), strings.Join(want, "\n     "))
}

// keyless are the options of a mirror of tables that have no key.
func keyless(dir string) *lake.TargetOptions {
	return &lake.TargetOptions{Mode: lake.Mirror, Key: lake.KeyOptions{Of: func(string) []string { return []string{} }, IndexDir: dir},
		Properties: map[string]string{}}
}

// tellLoose opens the target and tells it of the commits that its table does not hold yet.
func tellLoose(ctx context.Context, target *lake.Target, first []string, all []looseCommit) (err error) {
	defer func() { err = errors.Join(err, target.Close(context.WithoutCancel(ctx))) }()
	if err := target.Open(ctx); err != nil {
		return err
	}
	empty := looseBatch(first, 0, nil)
	defer empty.Release()
	if err := target.Ensure(ctx, "t", empty.Rows.Schema()); err != nil {
		return err
	}
	at, err := target.Start(ctx, "t", freshet.Progress{keyedLane: 0})
	if err != nil {
		return err
	}
	next := int64(0)
	for _, c := range all {
		held := true
		for _, w := range c.batches {
			after := next
			next += int64(len(w.changes))
			if at[keyedLane] >= next {
				continue
			}
			held = false
			if _, err := target.Write(ctx, looseBatch(w.columns, after, w.changes)); err != nil {
				return err
			}
		}
		if held {
			continue
		}
		commits, err := target.Seal(ctx)
		if err != nil {
			return err
		}
		for _, c := range commits {
			if _, err := c.Run(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// looseRun has a stream of changes, other writers, restarts and losses of the index happen to a table without a key.
type looseRun struct {
	keyedRun
	source *looseSource
	all    []looseCommit
}

func TestMultiset_RandomChanges_TableIsTheSource(t *testing.T) {
	first := rand.Uint64()
	t.Logf("seed %d", first)
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(first, seed))
			k := &looseRun{source: newLooseSource(rng)}
			k.t, k.r, k.w, k.dir = t, rng, newWorld(), t.TempDir()
			k.opts = *keyless(k.dir)
			k.opts.Key.CopyOnWrite = seed%4 == 1
			if seed%3 == 2 {
				k.opts.Properties["delta.enableChangeDataFeed"] = "true"
			}
			if seed%3 == 1 {
				k.opts.PartitionBy = []string{"part"}
			}
			if seed%2 == 1 {
				k.opts.MemoryBytes = 3000
			}
			k.run()
		})
	}
}

func (k *looseRun) run() {
	columns, damaged := k.source.columns, false
	for step := range 12 {
		n := 1 + k.r.IntN(3)
		for range n {
			k.all = append(k.all, k.source.commit(20))
		}
		must(k.t, tellLoose(k.t.Context(), k.w.target(&k.opts), columns, k.all))
		sameRows(k.t, fmt.Sprint("step ", step), k.w.loose(k.t, k.source.columns), k.source.texts())
		r, err := lake.CheckIndex(k.t.Context(), k.w.store("t"), "t", &lake.IndexOptions{Dir: k.dir, App: app})
		must(k.t, err)
		if damaged && len(r.Faults) == 1 && r.Faults[0].Kind == lake.IndexDamaged { // where nothing was looked up
			must(k.t, os.RemoveAll(k.dir))
			continue
		}
		if len(r.Faults) > 0 || r.Rows != int64(len(k.source.rows)) || r.Keys != r.Rows {
			k.t.Fatalf("step %d: got %v, %d rows and %d entries, want the index right with %d", step, r.Faults, r.Rows, r.Keys,
				len(k.source.rows))
		}
		switch k.r.IntN(8) {
		case 0:
			k.damageIndex()
			damaged = true
		case 1:
			k.foreignOptimize()
		case 2:
			k.foreignLoss()
		case 3:
			k.foreignReturn()
		}
	}
	if got := len(k.w.rejects(k.t, "t")); got > 0 {
		k.t.Errorf("got %d rejects, want none", got)
	}
}

// foreignLoss deletes rows behind the pipeline's back, also in the source, whose log does not say it.
func (k *looseRun) foreignLoss() {
	where, err := expr.Parse("a = 2")
	must(k.t, err)
	_, err = k.table().Delete(k.t.Context(), where, nil)
	must(k.t, err)
	k.source.rows = slices.DeleteFunc(k.source.rows, func(r looseRow) bool { return r["a"] == int64(2) })
}

// foreignReturn brings back what a delete has just taken.
func (k *looseRun) foreignReturn() {
	before := k.w.snapshot(k.t, "t").Version()
	where, err := expr.Parse("a = 1")
	must(k.t, err)
	_, err = k.table().Delete(k.t.Context(), where, nil)
	must(k.t, err)
	_, err = k.table().Restore(k.t.Context(), before, nil)
	must(k.t, err)
}

func TestMultiset_CrashAtEveryStoreCall_TableIsTheSource(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dir := t.TempDir()
	for at := range someCalls(t) {
		rng := rand.New(rand.NewPCG(seed, uint64(at)))
		source := newLooseSource(rng)
		columns := source.columns
		var all []looseCommit
		for range 4 {
			all = append(all, source.commit(8))
		}
		w := newWorld()
		opts := keyless(dir)
		if at%3 == 0 {
			opts.MemoryBytes = 3000
		}
		m := &mortal{w: w, at: at, after: at%2 == 0}
		err := tellLoose(t.Context(), lake.NewTarget(m.open, app, opts), columns, all)
		if !m.dead {
			must(t, err)
			t.Logf("%d calls", at-1)
			return
		}
		must(t, tellLoose(t.Context(), w.target(opts), columns, all))
		sameRows(t, fmt.Sprintf("crash at call %d", at), w.loose(t, source.columns), source.texts())
	}
}

// A great many rows that are alike are counted by few look-ups, and taken away one by one.
func TestMultiset_ManyAlike_EachCounts(t *testing.T) {
	w, dir := newWorld(), t.TempDir()
	row := looseRow{"a": int64(1)}
	columns := []string{"a"}
	many := func(kind freshet.Kind, n int) looseCommit {
		return looseCommit{[]looseWrite{{columns, slices.Repeat([]looseChange{{kind, row}}, n)}}}
	}
	all := []looseCommit{many(freshet.Insert, 100_000), many(freshet.Delete, 1), many(freshet.Delete, 29_999), many(freshet.Insert, 3)}
	must(t, tellLoose(t.Context(), w.target(keyless(dir)), columns, all))
	if got, want := len(w.loose(t, columns)), 70_003; got != want {
		t.Errorf("got %d rows, want %d", got, want)
	}
	all = append(all, many(freshet.Delete, 80_000), many(freshet.Insert, 2))
	must(t, tellLoose(t.Context(), w.target(keyless(t.TempDir())), columns, all))
	if got, want := len(w.loose(t, columns)), 2; got != want {
		t.Errorf("after more deletes than rows: got %d rows, want %d", got, want)
	}
}

func TestMultiset_PoliciesThatNeedAKey_AreRefused(t *testing.T) {
	for _, opts := range []lake.TargetOptions{
		{Mode: lake.Mirror, Key: lake.KeyOptions{Deletes: lake.SoftDeletes}},
		{Mode: lake.Mirror, Key: lake.KeyOptions{Deletes: lake.LogDeletes}},
		{Mode: lake.Mirror, Key: lake.KeyOptions{Deletes: lake.IgnoreDeletes}},
		{Mode: lake.Upsert},
	} {
		opts.Key.Of, opts.Key.IndexDir = func(string) []string { return []string{} }, t.TempDir()
		target := newWorld().running(t, &opts)
		err := target.Ensure(t.Context(), "t", itemSchema)
		var known *freshet.Error
		if !errors.As(err, &known) || known.Code != freshet.CodeBadValue || !strings.Contains(known.Fix, "deletes: hard") {
			t.Errorf("mode %s, deletes %s: got %v, want that mode mirror with deletes: hard takes such tables", opts.Mode, opts.Key.Deletes, err)
		}
	}
}
