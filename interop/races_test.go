package interop_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/internal/canonical"
	"github.com/freshet-io/freshet/store"
)

// overtaken is a store in which somebody else commits just before we do: before the next commit is put, once.
type overtaken struct {
	store.Store
	by func() // nil when nobody is to come
}

func (s *overtaken) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	if by := s.by; by != nil && strings.HasPrefix(key, "_delta_log/") && strings.HasSuffix(key, ".json") {
		s.by = nil
		by()
	}
	return s.Store.PutIfAbsent(ctx, key, data)
}

// shared is a table with columns id and s in which we and another engine change rows by turns that overlap. Each changes its own
// rows only, so that the model need not know in which order the two of a turn count.
type shared struct {
	*made
	gate   *overtaken
	other  *rival
	random *rand.Rand
	mine   map[int64]string
	next   int64
}

func newShared(t *testing.T, e *engine, o delta.CreateOptions, random *rand.Rand) *shared {
	t.Helper()
	m := makeTable(t, filepath.Join(t.TempDir(), "t"), idAndS, o)
	gate := &overtaken{Store: m.st}
	table, err := delta.Open(context.Background(), gate, nil)
	if err != nil {
		t.Fatal(err)
	}
	m.st, m.table = gate, table
	return &shared{made: m, gate: gate, other: newRival(t, e, m.path, m.path), random: random, mine: map[int64]string{}}
}

// ours does one thing to our rows, chosen at random; while it commits, the other comes first with what by does.
func (s *shared) ours(by func()) (op string) {
	s.t.Helper()
	ctx := context.Background()
	s.gate.by = by
	defer func() { s.gate.by = nil }()
	op = []string{"append", "append", "delete", "update", "merge", "replace", "optimize", "append"}[s.random.IntN(8)]
	if len(s.mine) < 20 {
		op = "append"
	}
	mod, rest := int64(3+s.random.IntN(4)), int64(s.random.IntN(3))
	hit := func(id int64) bool { return id%mod == rest }
	where := s.expr(fmt.Sprintf("id < %d AND id %% %d = %d", rivalFirstID, mod, rest))
	switch op {
	case "append":
		s.put(s.next, s.next+10)
	case "delete":
		_, err := s.table.Delete(ctx, where, nil)
		s.check(op, err)
		maps.DeleteFunc(s.mine, func(id int64, _ string) bool { return hit(id) })
	case "update":
		_, err := s.table.Update(ctx, []delta.Assignment{s.set("s", "concat(s, '-')")}, where, nil)
		s.check(op, err)
		for id := range s.mine {
			if hit(id) {
				s.mine[id] += "-"
			}
		}
	case "merge":
		s.merge()
	case "replace":
		from := s.random.Int64N(s.next)
		s.replace(from, from+15)
	case "optimize":
		_, err := s.table.Optimize(ctx, nil)
		s.check(op, err)
	}
	return op
}

func (s *shared) check(op string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%s: %v", op, err)
	}
}

// rows are new values of ids of ours, and takes them into the model.
func (s *shared) rows(from, to int64) delta.RowSource {
	s.t.Helper()
	var all []string
	for id := from; id < to; id++ {
		s.mine[id] = fmt.Sprintf("ours %d.%d", id, s.random.IntN(100))
		all = append(all, fmt.Sprintf(`{"id":%d,"s":%q}`, id, s.mine[id]))
	}
	s.next = max(s.next, to)
	return s.source(idAndS, strings.Join(all, ","))
}

func (s *shared) put(from, to int64) {
	s.t.Helper()
	s.write(s.rows(from, to), nil)
}

func (s *shared) merge() {
	s.t.Helper()
	from := s.random.Int64N(s.next)
	s.must(s.table.Merge(context.Background(), s.rows(from, from+20), &delta.Merge{On: s.expr("t.id = s.id"),
		Matched: []delta.MatchedClause{{All: true}}, NotMatched: []delta.InsertClause{{All: true}}}, nil))
}

func (s *shared) replace(from, to int64) {
	s.t.Helper()
	maps.DeleteFunc(s.mine, func(id int64, _ string) bool { return from <= id && id < to })
	s.write(s.rows(from, to), &delta.WriteOptions{Mode: delta.WriteReplaceWhere,
		Where: s.expr(fmt.Sprintf("id >= %d AND id < %d", from, to))})
}

// wantRows fails unless the table has the rows of both, by our reading and the others', and its changes lead to them.
func (s *shared) wantRows() {
	s.t.Helper()
	want := map[string]int{}
	for _, rows := range []map[int64]string{s.mine, s.other.mine} {
		for id, text := range rows {
			want[fmt.Sprintf("%d %s", id, text)]++
		}
	}
	got := map[string]int{}
	for rec, err := range s.snapshot().Scan(context.Background(), nil) {
		if err != nil {
			s.t.Fatal(err)
		}
		for i := range int(rec.NumRows()) {
			got[rec.Column(0).ValueStr(i)+" "+rec.Column(1).ValueStr(i)]++
		}
		rec.Release()
	}
	wantCounts(s.t, "rows", got, want)
	wantCounts(s.t, "rows by the change feed", s.fed(), want)
	if refused := compareEngines(s.t, []string{s.path}); len(refused) > 0 {
		s.t.Errorf("refused: %s", strings.Join(refused, "; "))
	}
}

// fed are the rows to which the changes since version 0 lead.
func (s *shared) fed() map[string]int {
	s.t.Helper()
	rows := map[string]int{}
	for c, err := range s.table.Changes(context.Background(), 0, -1, nil) {
		if err != nil {
			s.t.Fatal(err)
		}
		kinds := c.Batch.Column(c.Batch.Schema().FieldIndices(delta.ChangeTypeColumn)[0]).(*array.String)
		for i := range int(c.Batch.NumRows()) {
			row, step := c.Batch.Column(0).ValueStr(i)+" "+c.Batch.Column(1).ValueStr(i), 1
			if kind := kinds.Value(i); kind == "delete" || kind == "update_preimage" {
				step = -1
			}
			if rows[row] += step; rows[row] == 0 {
				delete(rows, row)
			}
		}
		c.Batch.Release()
	}
	return rows
}

// wantCounts compares multisets.
func wantCounts(t *testing.T, what string, got, want map[string]int) {
	t.Helper()
	if maps.Equal(got, want) {
		return
	}
	var differ []string
	for _, row := range slices.Sorted(maps.Keys(want)) {
		if got[row] != want[row] {
			differ = append(differ, fmt.Sprintf("%q %d times, want %d", row, got[row], want[row]))
		}
	}
	for _, row := range slices.Sorted(maps.Keys(got)) {
		if want[row] == 0 {
			differ = append(differ, fmt.Sprintf("%q %d times, want it gone", row, got[row]))
		}
	}
	t.Errorf("%s: %d differ: %s", what, len(differ), tail(strings.Join(differ[:min(len(differ), 20)], "\n"), 3000))
}

// TestForeignWriters_RandomHistory_RowsAndChangesAsTheModel has another engine commit in the middle of ours, and delta-rs also
// the other way round. It never has delta-rs compact or overwrite what it opened before a commit of ours: see README.md.
func TestForeignWriters_RandomHistory_RowsAndChangesAsTheModel(t *testing.T) {
	t.Parallel()
	for _, with := range []struct {
		name   string
		engine *engine
		create delta.CreateOptions
		turns  int
	}{
		{"delta-rs", deltaRs, delta.CreateOptions{}, 40},
		{"delta-rs, feed", deltaRs, property("enableChangeDataFeed", "true"), 40},
		{"spark, vectors, row tracking, feed", spark, property("enableDeletionVectors", "true", "enableRowTracking", "true",
			"enableInCommitTimestamps", "true", "checkpointPolicy", "v2", "enableChangeDataFeed", "true"), 10},
	} {
		t.Run(with.name, func(t *testing.T) {
			t.Parallel()
			needReaders(t)
			random := seeded(t)
			s := newShared(t, with.engine, with.create, random)
			s.put(0, 30)
			s.other.do("append")
			for range with.turns {
				theirs := []string{"append", "append", "update", "delete", "optimize"}[random.IntN(5)]
				if with.engine == deltaRs && theirs != "optimize" && random.IntN(2) == 0 {
					with.engine.must(t, request{Do: "open", Table: s.path})
					t.Logf("%s, then %s of theirs", s.ours(nil), theirs)
					s.other.do(theirs)
				} else {
					t.Logf("%s, but before it %s of theirs", s.ours(func() { s.other.do(theirs) }), theirs)
				}
			}
			t.Logf("theirs: %d commits, %d failures, %d rows; ours: %d rows; version %d", s.other.commits, s.other.failures,
				len(s.other.mine), len(s.mine), s.snapshot().Version())
			s.wantRows()
		})
	}
}

// TestForeignWriters_BesideOptimize_NoRowTwiceOrLost is two races that other engines lose among themselves: an optimize or an
// overwrite, and another optimize that began before. The other engine commits first.
func TestForeignWriters_BesideOptimize_NoRowTwiceOrLost(t *testing.T) {
	t.Parallel()
	for _, race := range []struct {
		engine       *engine
		ours, theirs string
	}{
		{deltaRs, "optimize", "optimize"}, {deltaRs, "overwrite", "optimize"}, {deltaRs, "optimize", "overwrite"},
		{deltaRs, "overwrite", "overwrite"}, {spark, "optimize", "optimize"}, {spark, "optimize", "overwrite"},
	} {
		t.Run(race.engine.name+", "+race.ours+" beside "+race.theirs, func(t *testing.T) {
			t.Parallel()
			needReaders(t)
			s := newShared(t, race.engine, delta.CreateOptions{}, seeded(t))
			for id := range int64(5) {
				s.put(id*10, id*10+10)
			}
			s.other.do("append")
			s.gate.by = func() {
				if !s.other.do(race.theirs) {
					t.Errorf("%s did not %s", race.engine.name, race.theirs)
				}
			}
			s.commitBeside(race.ours, race.theirs)
			s.wantRows()
		})
	}
}

// commitBeside makes our commit of such a race, and has the model tell what both must leave.
func (s *shared) commitBeside(ours, theirs string) {
	s.t.Helper()
	if ours == "optimize" {
		_, err := s.table.Optimize(context.Background(), nil)
		s.check(ours, err)
	} else {
		clear(s.mine)
		s.write(s.rows(100, 120), &delta.WriteOptions{Mode: delta.WriteOverwrite})
		clear(s.other.mine)
	}
	if theirs == "overwrite" && ours == "optimize" {
		clear(s.mine)
	}
	if s.gate.by != nil {
		s.t.Errorf("our %s did not commit", ours)
	}
}

// TestForeignWriters_DeltaRsAfterOurOptimize_BringsRowsBack holds what README.md warns of: delta-rs does not see that the files
// that it compacts or overwrites were compacted since it opened the table. Nobody but delta-rs can prevent it.
func TestForeignWriters_DeltaRsAfterOurOptimize_BringsRowsBack(t *testing.T) {
	t.Parallel()
	needReaders(t)
	for theirs, right := range map[string]int{"optimize": 50, "overwrite": 10} {
		s := newShared(t, deltaRs, delta.CreateOptions{}, seeded(t))
		for id := range int64(5) {
			s.put(id*10, id*10+10)
		}
		deltaRs.must(t, request{Do: "open", Table: s.path})
		_, err := s.table.Optimize(context.Background(), nil)
		s.check("optimize", err)
		if committed, rows := s.other.do(theirs), len(s.lines()); !committed || rows == right {
			t.Errorf("%s: committed is %v, and there are %d rows: delta-rs has become right, say so in README.md", theirs,
				committed, rows)
		}
	}
}

// TestForeignWriters_SparkThenUs_VectorsAddUp deletes rows of files that Spark has given vectors, and has all read it.
func TestForeignWriters_SparkThenUs_VectorsAddUp(t *testing.T) {
	t.Parallel()
	needReaders(t)
	m := makeTable(t, filepath.Join(t.TempDir(), "t"), idAndS, property("enableDeletionVectors", "true",
		"enableRowTracking", "true", "enableInCommitTimestamps", "true", "checkpointPolicy", "v2"))
	m.numbered(0, 50)
	m.delete("id % 10 = 0")
	other := newRival(t, spark, m.path, m.path)
	for _, op := range []string{"append", "append", "update", "append", "delete", "update"} {
		if !other.do(op) {
			t.Fatalf("Spark did not %s", op)
		}
	}
	m.delete("id % 4 = 1")
	m.checkpoint()
	want := 0
	for id := range other.mine {
		if id%4 != 1 {
			want++
		}
	}
	for id := range 50 {
		if id%10 != 0 && id%4 != 1 {
			want++
		}
	}
	if got := len(m.lines()); got != want {
		t.Errorf("got %d rows, want %d", got, want)
	}
	marked := 0
	for _, a := range m.files() {
		if a.DeletionVector != nil && a.DeletionVector.Cardinality > 1 {
			marked++
		}
	}
	if marked == 0 {
		t.Error("no file has a vector that both have added to")
	}
	if refused := compareEngines(t, []string{m.path}); len(refused) > 0 {
		t.Errorf("refused: %s", strings.Join(refused, "; "))
	}
}

// lines are the rows in canonical form.
func (m *made) lines() (lines []string) {
	m.t.Helper()
	for rec, err := range m.snapshot().Scan(context.Background(), nil) {
		if err != nil {
			m.t.Fatal(err)
		}
		e := canonical.NewEncoder(rec.Schema())
		for i := range int(rec.NumRows()) {
			line, err := e.AppendRow(nil, rec, i)
			if err != nil {
				m.t.Fatal(err)
			}
			lines = append(lines, string(line))
		}
		rec.Release()
	}
	return lines
}
