package delta_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

// itemsOf reads the columns of itemSchema.
func itemsOf(columns []arrow.Array, n int) (out []item) {
	u, k := columns[0].(*array.Int64), columns[1].(*array.Int64)
	p, v, s := columns[2].(*array.String), columns[3].(*array.Int64), columns[4].(*array.String)
	for i := range n {
		r := item{u: u.Value(i), k: k.Value(i)}
		if p.IsValid(i) {
			r.p = p.Value(i)
		}
		if v.IsValid(i) {
			n := v.Value(i)
			r.v = &n
		}
		if s.IsValid(i) {
			text := string([]byte(s.Value(i)))
			r.s = &text
		}
		out = append(out, r)
	}
	return out
}

// changeFiles are the change data files of a version, as data files that can be scanned.
func changeFiles(t testing.TB, table *delta.Table, version int64) (files []delta.Add) {
	t.Helper()
	data, err := table.Store().Get(context.Background(), fmt.Sprintf("_delta_log/%020d.json", version))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var a struct {
			CDC *struct {
				Path            string
				PartitionValues map[string]*string
				Size            int64
				DataChange      bool
			}
		}
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatal(err)
		}
		if a.CDC != nil {
			if a.CDC.DataChange {
				t.Errorf("version %d: change data says dataChange", version)
			}
			files = append(files, delta.Add{Path: a.CDC.Path, PartitionValues: a.CDC.PartitionValues, Size: a.CDC.Size})
		}
	}
	return files
}

func TestDML_RandomOperations_EqualTheSequentialModel(t *testing.T) {
	yes := true
	for seed := range uint64(48) {
		properties := map[string]string{}
		opts := &delta.DMLOptions{}
		if seed&1 != 0 {
			properties["delta.enableDeletionVectors"] = "true"
			if seed&16 != 0 {
				opts.CopyOnWrite = &yes
			}
		} else if seed&16 != 0 {
			opts.CopyOnWrite = &yes
		}
		if seed&2 != 0 {
			properties["delta.enableChangeDataFeed"] = "true"
		}
		var parts []string
		if seed&4 != 0 {
			parts = []string{"p"}
		}
		if seed&8 != 0 {
			properties["delta.enableRowTracking"] = "true"
		}
		if seed&32 != 0 {
			opts.MemoryBytes = 600 // several passes over the table
		}
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Logf("seed %d: %v, partitioned by %v", seed, properties, parts)
			l := newLab(t, seed, store.NewMem(), properties, parts...)
			for range 25 {
				l.step(opts)
			}
		})
	}
}

// TestDML_CrashAtEveryStoreCall_OldOrNew stops each operation before and after each of its calls: the table is as it
// was or as it becomes, and can be changed again.
func TestDML_CrashAtEveryStoreCall_OldOrNew(t *testing.T) {
	ctx := context.Background()
	for name, op := range map[string]func(*delta.Table, *delta.DMLOptions) (*delta.DMLResult, error){
		"delete": func(table *delta.Table, o *delta.DMLOptions) (*delta.DMLResult, error) {
			return table.Delete(ctx, parse(t, "n % 2 = 0"), o)
		},
		"update": func(table *delta.Table, o *delta.DMLOptions) (*delta.DMLResult, error) {
			return table.Update(ctx, set(t, "n", "n + 10"), parse(t, "id > 2"), o)
		},
		"merge": func(table *delta.Table, o *delta.DMLOptions) (*delta.DMLResult, error) {
			return table.Merge(ctx, sourceWith(t, keyed(), `[{"id":2,"n":7},{"id":9,"n":9}]`), upsert(t), o)
		},
		"replace": func(table *delta.Table, o *delta.DMLOptions) (*delta.DMLResult, error) {
			src := sourceWith(t, keyed(), `[{"id":2,"n":7}]`)
			return table.Write(ctx, src.Rows(ctx), src.Schema, &delta.WriteOptions{DMLOptions: *o,
				Mode: delta.WriteReplaceWhere, Where: parse(t, "id <= 2")})
		},
	} {
		for _, vectors := range []string{"true", "false"} {
			t.Run(name+" vectors "+vectors, func(t *testing.T) { crashEverywhere(t, vectors, op) })
		}
	}
}

func crashEverywhere(t *testing.T, vectors string, op func(*delta.Table, *delta.DMLOptions) (*delta.DMLResult, error)) {
	properties := map[string]string{"delta.enableDeletionVectors": vectors, "delta.enableChangeDataFeed": "true"}
	rows := `[{"id":1,"n":1},{"id":2,"n":2},{"id":3,"n":3},{"id":4,"n":4}]`
	clean := tableWith(t, store.NewMem(), keyed(), rows, properties)
	old := scanSorted(t, clean)
	if _, err := op(clean, &delta.DMLOptions{}); err != nil {
		t.Fatal(err)
	}
	fresh := scanSorted(t, clean)
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			inner := store.NewMem()
			tableWith(t, inner, keyed(), rows, properties)
			faulty := storetest.NewFaulty(inner, storetest.CrashAt(n, after))
			table, err := delta.Open(context.Background(), faulty, nil)
			if err == nil {
				_, err = op(table, &delta.DMLOptions{Deadline: time.Nanosecond})
			}
			if !faulty.Crashed() {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			got := scanSorted(t, open(t, inner))
			if !slices.Equal(got, old) && !slices.Equal(got, fresh) {
				t.Fatalf("call %d, after %v: got %v, want %v or %v", n, after, got, old, fresh)
			}
			if _, err := open(t, inner).Delete(context.Background(), parse(t, "id = 4"), nil); err != nil {
				t.Fatalf("call %d, after %v: then: %v", n, after, err)
			}
		}
	}
}

func scanSorted(t testing.TB, table *delta.Table) []string {
	t.Helper()
	rows := scanLines(t, snapshot(t, table), nil)
	slices.Sort(rows)
	return rows
}

func TestDelete_WholeFiles_NoDataFileRead(t *testing.T) {
	st := &readCounter{store.NewMem(), make(chan string, 100)}
	s := itemSchema()
	table, err := delta.Create(context.Background(), st, &delta.CreateOptions{Schema: s, PartitionBy: []string{"p"}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, table, s, `[{"u":1,"k":1,"p":"a","v":1},{"u":2,"k":9,"p":"b","v":null},{"u":3,"k":5,"p":null,"v":3}]`, nil)
	for _, c := range []struct {
		where string
		want  int64
	}{{"p = 'b'", 1}, {"k > 2 AND k < 9", 1}, {"k IS NULL", 0}, {"", 1}} {
		var cond *expr.Expr
		if c.where != "" {
			cond = parse(t, c.where)
		}
		r, err := table.Delete(context.Background(), cond, nil)
		if err != nil || r.Deleted != c.want || r.Committed != (c.want > 0) {
			t.Errorf("%q: got %+v, %v, want %d rows deleted", c.where, r, err, c.want)
		}
	}
	if n := len(st.reads); n > 0 {
		t.Errorf("%d reads of data files", n)
	}
	wantRows(t, table)
}

func TestDelete_NullCondition_RowStays(t *testing.T) {
	table := tableWith(t, store.NewMem(), keyed(), `[{"id":1,"n":null},{"id":2,"n":2},{"id":3,"n":3}]`, nil)
	if _, err := table.Delete(context.Background(), parse(t, "n <> 3"), nil); err != nil {
		t.Fatal(err)
	}
	wantRows(t, table, `{"id":1,"n":null}`, `{"id":3,"n":3}`)
}

func TestDelete_ConditionFailsOnARow_NothingDeleted(t *testing.T) {
	table := tableWith(t, store.NewMem(), keyed(), `[{"id":1,"n":0},{"id":2,"n":2}]`, nil)
	_, err := table.Delete(context.Background(), parse(t, "id % n = 0"), nil)
	var rows *expr.RowErrors
	if !errors.As(err, &rows) {
		t.Errorf("got %v, want the row that failed", err)
	}
	wantRows(t, table, `{"id":1,"n":0}`, `{"id":2,"n":2}`)
}

func TestUpdate_FieldOfStruct_OthersStay(t *testing.T) {
	o := &delta.Struct{Fields: fields("x", delta.Long, "y", delta.String).Fields}
	table := tableWith(t, store.NewMem(), fields("id", delta.Long, "o", o),
		`[{"id":1,"o":{"x":1,"y":"a"}},{"id":2,"o":null}]`, nil)
	if _, err := table.Update(context.Background(), set(t, "o.X", "id * 10"), nil, nil); err != nil {
		t.Fatal(err)
	}
	wantRows(t, table, `{"id":1,"o":{"x":10,"y":"a"}}`, `{"id":2,"o":{"x":20,"y":null}}`)
}

func TestUpdate_ValueOutOfRange_RowNamed(t *testing.T) {
	table := tableWith(t, store.NewMem(), fields("id", delta.Long, "b", delta.Byte), `[{"id":1,"b":1},{"id":300,"b":2}]`,
		nil)
	_, err := table.Update(context.Background(), set(t, "b", "id"), nil, nil)
	if err == nil || !strings.Contains(err.Error(), "300") {
		t.Errorf("got %v, want one that names 300", err)
	}
	wantRows(t, table, `{"b":1,"id":1}`, `{"b":2,"id":300}`)
}

func TestDML_TxnsThereAlready_NothingDone(t *testing.T) {
	table := tableWith(t, store.NewMem(), keyed(), `[{"id":1,"n":0}]`, nil)
	opts := &delta.DMLOptions{Txns: []delta.Txn{{AppID: "a", Version: 7}}, UserMetadata: "once"}
	for i, want := range []bool{true, false} {
		r, err := table.Update(context.Background(), set(t, "n", "n + 1"), nil, opts)
		if err != nil || r.Committed != want {
			t.Errorf("run %d: got %+v, %v, want committed %v", i, r, err, want)
		}
	}
	wantRows(t, table, `{"id":1,"n":1}`)
	if v, ok := snapshot(t, table).Txn("a"); !ok || v != 7 {
		t.Errorf("got progress %d, %v, want 7", v, ok)
	}
}

func TestWrite_ReplaceWhere_RowOutsideRefused(t *testing.T) {
	table := tableWith(t, store.NewMem(), keyed(), `[{"id":1,"n":0}]`, nil)
	src := sourceWith(t, keyed(), `[{"id":1,"n":1},{"id":2,"n":null}]`)
	_, err := table.Write(context.Background(), src.Rows(context.Background()), src.Schema,
		&delta.WriteOptions{Mode: delta.WriteReplaceWhere, Where: parse(t, "n > 0")})
	var outside *delta.ReplaceWhereError
	if !errors.As(err, &outside) || outside.Row != 1 {
		t.Errorf("got %v, want row 1 refused", err)
	}
	if n := objects(t, table.Store()); n != 3 {
		t.Errorf("%d objects are there, want 3", n)
	}
}

func TestWrite_Schema_EvolvedAndReplaced(t *testing.T) {
	table := tableWith(t, store.NewMem(), keyed(), `[{"id":1,"n":0}]`, nil)
	wide := fields("id", delta.Long, "n", delta.Long, "p", delta.String)
	src := sourceWith(t, wide, `[{"id":2,"n":1,"p":"x"}]`)
	ctx := context.Background()
	if _, err := table.Write(ctx, src.Rows(ctx), src.Schema, nil); err == nil {
		t.Error("a column that the table lacks must be refused")
	}
	write(t, table, wide, `[{"id":2,"n":1,"p":"x"}]`, &delta.WriteOptions{EvolveSchema: true})
	wantRows(t, table, `{"id":1,"n":0,"p":null}`, `{"id":2,"n":1,"p":"x"}`)
	write(t, table, fields("q", delta.String, "z", delta.Long), `[{"q":"a","z":1}]`, &delta.WriteOptions{
		Mode: delta.WriteOverwrite, ReplaceSchema: true, PartitionBy: []string{"q"}})
	wantRows(t, table, `{"q":"a","z":1}`)
	if got := snapshot(t, table).PartitionColumns(); !slices.Equal(got, []string{"q"}) {
		t.Errorf("partitioned by %v, want q", got)
	}
}

func TestWrite_Refused_AllFaultsNamed(t *testing.T) {
	table := tableWith(t, store.NewMem(), keyed(), `[{"id":1,"n":0}]`, nil)
	src := sourceWith(t, keyed(), `[]`)
	_, err := table.Write(context.Background(), src.Rows(context.Background()), src.Schema, &delta.WriteOptions{
		Mode: "upsert", Where: parse(t, "id = 1"), ReplaceSchema: true})
	for _, want := range []string{`found "upsert"`, "a condition belongs to", "mode overwrite only"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want one with %q", err, want)
		}
	}
}
