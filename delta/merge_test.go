package delta_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

// tableWith makes a table of this schema with these rows, in one file.
func tableWith(t testing.TB, st store.Store, s *delta.Schema, rows string, properties map[string]string,
) *delta.Table {
	t.Helper()
	table, err := delta.Create(context.Background(), st, &delta.CreateOptions{Schema: s, Properties: properties})
	if err != nil {
		t.Fatal(err)
	}
	write(t, table, s, rows, nil)
	return table
}

func write(t testing.TB, table *delta.Table, s *delta.Schema, rows string, o *delta.WriteOptions) *delta.DMLResult {
	t.Helper()
	src := delta.SourceOf(s.Arrow(), batchOf(t, s, rows))
	r, err := table.Write(context.Background(), src.Rows(context.Background()), src.Schema, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sourceWith(t testing.TB, s *delta.Schema, rows string) delta.RowSource {
	t.Helper()
	return delta.SourceOf(s.Arrow(), batchOf(t, s, rows))
}

// wantRows compares the newest version with rows in the canonical form, sorted.
func wantRows(t testing.TB, table *delta.Table, want ...string) {
	t.Helper()
	got := scanLines(t, snapshot(t, table), nil)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func keyed() *delta.Schema { return fields("id", delta.Long, "n", delta.Long) }

func set(t testing.TB, pairs ...string) (out []delta.Assignment) {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, delta.Assignment{Column: pairs[i], Value: parse(t, pairs[i+1])})
	}
	return out
}

// upsert is the merge that everybody writes.
func upsert(t testing.TB) *delta.Merge {
	t.Helper()
	return &delta.Merge{On: parse(t, "t.id = s.id"), Matched: []delta.MatchedClause{{All: true}},
		NotMatched: []delta.InsertClause{{All: true}}}
}

func TestMerge_TwoSourceRowsChangeOneRow_ErrorNamesTheKey(t *testing.T) {
	table := tableWith(t, store.NewMem(), keyed(), `[{"id":1,"n":1},{"id":2,"n":2}]`, nil)
	source := sourceWith(t, keyed(), `[{"id":2,"n":5},{"id":2,"n":6},{"id":3,"n":7}]`)
	_, err := table.Merge(context.Background(), source, upsert(t), nil)
	var ambiguous *delta.AmbiguousMergeError
	if !errors.As(err, &ambiguous) || ambiguous.Row != "id = 2" {
		t.Errorf("got %v, want one that names id = 2", err)
	}
	wantRows(t, table, `{"id":1,"n":1}`, `{"id":2,"n":2}`)
	if n := objects(t, table.Store()); n != 3 { // two commits and one data file
		t.Errorf("%d objects are there, want 3: the merge has left some behind", n)
	}
}

// objects counts what is there but checksums, which come with every commit.
func objects(t testing.TB, st store.Store) (n int) {
	t.Helper()
	for o, err := range st.List(context.Background(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(o.Key, ".crc") {
			n++
		}
	}
	return n
}

func TestMerge_TwoSourceRowsOneActs_Accepted(t *testing.T) {
	table := tableWith(t, store.NewMem(), keyed(), `[{"id":1,"n":1},{"id":2,"n":2}]`, nil)
	source := sourceWith(t, keyed(), `[{"id":2,"n":5},{"id":2,"n":6}]`)
	m := &delta.Merge{On: parse(t, "t.id = s.id"),
		Matched: []delta.MatchedClause{{When: parse(t, "s.n = 6"), Set: set(t, "n", "s.n")}}}
	if _, err := table.Merge(context.Background(), source, m, nil); err != nil {
		t.Fatal(err)
	}
	wantRows(t, table, `{"id":1,"n":1}`, `{"id":2,"n":6}`)
}

func TestMerge_TwoSourceRowsOnlyDelete_DeletedOnce(t *testing.T) {
	table := tableWith(t, store.NewMem(), keyed(), `[{"id":1,"n":1},{"id":2,"n":2}]`,
		map[string]string{"delta.enableDeletionVectors": "true"})
	source := sourceWith(t, keyed(), `[{"id":2,"n":5},{"id":2,"n":6}]`)
	m := &delta.Merge{On: parse(t, "t.id = s.id"), Matched: []delta.MatchedClause{{Delete: true}}}
	r, err := table.Merge(context.Background(), source, m, nil)
	if err != nil || r.Deleted != 1 {
		t.Fatalf("got %+v, %v, want one row deleted", r, err)
	}
	wantRows(t, table, `{"id":1,"n":1}`)
}

func TestMerge_NullKeys_EqualOnlyWithNullSafeEquality(t *testing.T) {
	rows := `[{"id":null,"n":1},{"id":2,"n":2}]`
	for on, want := range map[string][]string{
		"t.id = s.id":   {`{"id":2,"n":9}`, `{"id":null,"n":1}`, `{"id":null,"n":8}`},
		"t.id <=> s.id": {`{"id":2,"n":9}`, `{"id":null,"n":8}`},
	} {
		table := tableWith(t, store.NewMem(), keyed(), rows, nil)
		m := upsert(t)
		m.On = parse(t, on)
		if _, err := table.Merge(context.Background(), sourceWith(t, keyed(), `[{"id":null,"n":8},{"id":2,"n":9}]`), m,
			nil); err != nil {
			t.Fatal(err)
		}
		wantRows(t, table, want...)
	}
}

// TestMerge_KeysOfEveryType_Match merges rows of all types with themselves, by each column that can be a key.
func TestMerge_KeysOfEveryType_Match(t *testing.T) {
	s := fields("b", delta.Boolean, "i8", delta.Byte, "i16", delta.Short, "i32", delta.Integer, "i64", delta.Long,
		"f", delta.Float, "d", delta.Double, "dec", delta.Decimal{Precision: 20, Scale: 2}, "s", delta.String,
		"day", delta.Date, "ts", delta.Timestamp, "n", delta.Long)
	row := `{"b":true,"i8":-1,"i16":2,"i32":3,"i64":4,"f":0.0,"d":-0.0,"dec":"1.50","s":"ü","day":"2024-02-29",` +
		`"ts":"2024-02-29T12:00:00Z","n":%d}`
	for _, f := range s.Fields[:11] {
		table := tableWith(t, store.NewMem(), s, fmt.Sprintf("["+row+"]", 1), nil)
		m := &delta.Merge{On: expr.Compare("=", expr.Name("t", f.Name), expr.Name("s", f.Name)),
			Matched:    []delta.MatchedClause{{Set: set(t, "n", "s.n + t.n")}},
			NotMatched: []delta.InsertClause{{All: true}}}
		r, err := table.Merge(context.Background(), sourceWith(t, s, fmt.Sprintf("["+row+"]", 2)), m, nil)
		if err != nil || r.Updated != 1 || r.Inserted != 0 {
			t.Errorf("by %s: got %+v, %v, want one row updated", f.Name, r, err)
		}
	}
}

func TestMerge_SeveralKeysAndWidths_Match(t *testing.T) {
	s := fields("a", delta.Integer, "b", delta.String, "n", delta.Long)
	wide := fields("a", delta.Long, "b", delta.String, "n", delta.Long)
	table := tableWith(t, store.NewMem(), s, `[{"a":1,"b":"x","n":0},{"a":1,"b":"y","n":0},{"a":2,"b":null,"n":0}]`, nil)
	m := &delta.Merge{On: parse(t, "dst.a = src.a AND src.b = dst.b"), Target: "dst", Source: "src",
		Matched: []delta.MatchedClause{{Set: set(t, "n", "src.n")}}}
	source := sourceWith(t, wide, `[{"a":1,"b":"y","n":7},{"a":2,"b":null,"n":8},{"a":3,"b":"x","n":9}]`)
	if _, err := table.Merge(context.Background(), source, m, nil); err != nil {
		t.Fatal(err)
	}
	wantRows(t, table, `{"a":1,"b":"x","n":0}`, `{"a":1,"b":"y","n":7}`, `{"a":2,"b":null,"n":0}`)
}

func TestMerge_Refused_ReasonNamed(t *testing.T) {
	table := tableWith(t, store.NewMem(), keyed(), `[{"id":1,"n":1}]`, nil)
	some := sourceWith(t, keyed(), `[{"id":1,"n":5},{"id":2,"n":6}]`)
	lacking := sourceWith(t, fields("id", delta.Long), `[{"id":1}]`)
	matched := []delta.MatchedClause{{Set: set(t, "n", "s.n")}}
	for _, c := range []struct {
		name   string
		m      delta.Merge
		source delta.RowSource
		opts   *delta.DMLOptions
		want   string
	}{
		{"no condition", delta.Merge{Matched: matched}, some, nil, "no condition"},
		{"no clause", delta.Merge{On: parse(t, "t.id = s.id")}, some, nil, "no clause"},
		{"two actions", delta.Merge{On: parse(t, "t.id = s.id"), Matched: []delta.MatchedClause{{Delete: true, All: true}}},
			some, nil, "found 2 actions, wanted one"},
		{"all of nothing", delta.Merge{On: parse(t, "t.id = s.id"),
			NotMatchedBySource: []delta.MatchedClause{{All: true}}}, some, nil, "no source row"},
		{"unknown column", delta.Merge{On: parse(t, "t.idd = s.id"), Matched: matched}, some, nil, `unknown column "t.idd"`},
		{"ambiguous", delta.Merge{On: parse(t, "id = s.id"), Matched: matched}, some, nil, "write t.id or s.id"},
		{"source in target clause", delta.Merge{On: parse(t, "t.id = s.id"), NotMatchedBySource: matched}, some, nil,
			`unknown column "s.n"`},
		{"target in insert", delta.Merge{On: parse(t, "t.id = s.id"),
			NotMatched: []delta.InsertClause{{Values: set(t, "id", "t.id")}}}, some, nil, `unknown column "t.id"`},
		{"no such column", delta.Merge{On: parse(t, "t.id = s.id"),
			Matched: []delta.MatchedClause{{Set: set(t, "m", "s.n")}}}, some, nil, `there is no "m"`},
		{"twice", delta.Merge{On: parse(t, "t.id = s.id"),
			Matched: []delta.MatchedClause{{Set: set(t, "n", "1", "N", "2")}}}, some, nil, "assigned twice"},
		{"star lacks", *upsert(t), lacking, nil, `lacks the column "n"`},
		{"wrong type", delta.Merge{On: parse(t, "t.id = s.id"),
			Matched: []delta.MatchedClause{{Set: set(t, "n", "CAST(s.n AS STRING)")}}}, some, nil, "wanted long"},
		{"too many pairs", delta.Merge{On: parse(t, "t.id < s.id"), Matched: matched}, some,
			&delta.DMLOptions{MaxPairs: 1}, "add an equality, or raise MaxPairs"},
		{"vectors", *upsert(t), some, &delta.DMLOptions{CopyOnWrite: new(bool)}, "set delta.enableDeletionVectors"},
	} {
		if _, err := table.Merge(context.Background(), c.source, &c.m, c.opts); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want one with %q", c.name, err, c.want)
		}
	}
	wantRows(t, table, `{"id":1,"n":1}`)
}

func TestMerge_SchemaEvolution_NewColumnsAndFields(t *testing.T) {
	inner := &delta.Struct{Fields: fields("x", delta.Long).Fields}
	grown := &delta.Struct{Fields: fields("x", delta.Long, "y", delta.String).Fields}
	table := tableWith(t, store.NewMem(), fields("id", delta.Long, "o", inner, "keep", delta.String),
		`[{"id":1,"o":{"x":1},"keep":"k1"},{"id":2,"o":{"x":2},"keep":"k2"}]`, nil)
	source := sourceWith(t, fields("id", delta.Long, "o", grown, "new", delta.Long),
		`[{"id":2,"o":{"x":20,"y":"b"},"new":5},{"id":3,"o":null,"new":6}]`)
	m := upsert(t)
	if _, err := table.Merge(context.Background(), source, m, nil); err == nil {
		t.Error("without evolution the source must have all columns")
	}
	m.EvolveSchema = true
	if _, err := table.Merge(context.Background(), source, m, nil); err != nil {
		t.Fatal(err)
	}
	wantRows(t, table, `{"id":1,"keep":"k1","new":null,"o":{"x":1,"y":null}}`,
		`{"id":2,"keep":"k2","new":5,"o":{"x":20,"y":"b"}}`, `{"id":3,"keep":null,"new":6,"o":null}`)
}

func TestMerge_Empty_NothingCommitted(t *testing.T) {
	table := tableWith(t, store.NewMem(), keyed(), `[{"id":1,"n":1}]`, nil)
	r, err := table.Merge(context.Background(), delta.SourceOf(keyed().Arrow()), upsert(t), nil)
	if err != nil || r.Committed || r.Version != 1 {
		t.Errorf("got %+v, %v, want nothing committed", r, err)
	}
}

func TestMerge_SourceIsASnapshot_RowsOfIt(t *testing.T) {
	table := tableWith(t, store.NewMem(), keyed(), `[{"id":1,"n":1}]`, nil)
	other := tableWith(t, store.NewMem(), keyed(), `[{"id":1,"n":9},{"id":4,"n":4}]`, nil)
	if _, err := table.Merge(context.Background(), snapshot(t, other).Source(nil), upsert(t), nil); err != nil {
		t.Fatal(err)
	}
	wantRows(t, table, `{"id":1,"n":9}`, `{"id":4,"n":4}`)
}

func TestMerge_Progress_EveryFile(t *testing.T) {
	table := tableWith(t, store.NewMem(), keyed(), `[{"id":1,"n":1},{"id":3,"n":2}]`, nil)
	write(t, table, keyed(), `[{"id":2,"n":1},{"id":4,"n":2}]`, nil)
	var steps []string
	opts := &delta.DMLOptions{Progress: func(p delta.DMLProgress) {
		steps = append(steps, fmt.Sprintf("%s %d/%d", p.Step, p.FilesDone, p.FilesTotal))
	}}
	if _, err := table.Delete(context.Background(), parse(t, "n % 2 = 1 AND id < 5"), opts); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(steps, ", "); !strings.Contains(got, "find 2/2") {
		t.Errorf("got %s", got)
	}
}

// TestMerge_ManyWritersCount_NoUpdateIsLost lets writers add one to overlapping keys at once, inserting what is not
// there: each must see what the others did.
func TestMerge_ManyWritersCount_NoUpdateIsLost(t *testing.T) {
	for _, vectors := range []string{"true", "false"} {
		st := store.NewMem()
		table := tableWith(t, st, keyed(), `[{"id":0,"n":0}]`, map[string]string{"delta.enableDeletionVectors": vectors})
		const writers, rounds = 4, 4
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				own := open(t, st)
				for i := range rounds {
					rows := fmt.Sprintf(`[{"id":0,"n":1},{"id":%d,"n":1},{"id":%d,"n":1}]`, w%2+1, i+10)
					m := &delta.Merge{On: parse(t, "t.id = s.id"),
						Matched:    []delta.MatchedClause{{Set: set(t, "n", "t.n + s.n")}},
						NotMatched: []delta.InsertClause{{All: true}}}
					if _, err := own.Merge(context.Background(), sourceWith(t, keyed(), rows), m, nil); err != nil {
						t.Errorf("writer %d: %v", w, err)
					}
				}
			})
		}
		wg.Wait()
		wantRows(t, table, `{"id":0,"n":16}`, `{"id":1,"n":8}`, `{"id":10,"n":4}`, `{"id":11,"n":4}`, `{"id":12,"n":4}`,
			`{"id":13,"n":4}`, `{"id":2,"n":8}`)
	}
}

func TestMerge_AlwaysLosing_ConflictAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := store.NewMem()
		plain := map[string]string{"delta.parquet.compression.codec": "none"}
		tableWith(t, inner, keyed(), `[{"id":1,"n":1}]`, plain)
		rival := open(t, inner)
		lost := 0
		rule := func(op storetest.Op, key string, _ int) storetest.Fault {
			if op == storetest.OpPutIfAbsent && strings.HasSuffix(key, ".json") {
				lost++
				write(t, rival, keyed(), `[{"id":1,"n":1}]`, nil)
			}
			return storetest.Fault{}
		}
		table := open(t, storetest.NewFaulty(inner, rule))
		_, err := table.Update(context.Background(), set(t, "n", "n + 1"), parse(t, "id = 1"),
			&delta.DMLOptions{Deadline: time.Minute})
		if !errors.Is(err, delta.ErrConflict) || lost < 3 {
			t.Errorf("got %v after %d tries, want a conflict after several", err, lost)
		}
	})
}
