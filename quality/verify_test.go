package quality_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/quality"
)

// world is a source and the table that follows it, in a model: a log of changes of single keys, of which the source shows all but the
// last few, and the table as many as it has applied. Both go on with every call.
type world struct {
	rng     *rand.Rand
	hot     int // keys that change
	log     []change
	ended   int // changes that the source shows
	applied int
	next    uint64 // mark
	source  map[int64][]row
	table   map[int64][]row
	stuck   bool // the table does not go on
}

type change struct {
	key   int64
	value string // "": a delete
}

type row struct {
	value string
	mark  uint64
}

var schema = arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "v", Type: arrow.BinaryTypes.String}},
	nil)

func newWorld(seed uint64, hot, cold int) *world {
	w := &world{rng: rand.New(rand.NewPCG(seed, 0)), hot: hot, source: map[int64][]row{}, table: map[int64][]row{}}
	for key := range hot + cold {
		w.log = append(w.log, change{int64(key), "first"})
	}
	w.end(len(w.log))
	w.apply(len(w.log))
	return w
}

func (w *world) put(into map[int64][]row, c change) {
	w.next++
	into[c.key] = []row{{c.value, w.next}}
	if c.value == "" {
		delete(into, c.key)
	}
}

func (w *world) end(upto int) {
	for ; w.ended < upto; w.ended++ {
		w.put(w.source, w.log[w.ended])
	}
}

// apply commits changes to the table: each key gets what it is at the end.
func (w *world) apply(upto int) {
	for ; w.applied < upto; w.applied++ {
		w.put(w.table, w.log[w.applied])
	}
}

// pass lets time pass: some changes are written to the log, the source shows some more, and the table gets some, of those that are in the
// log. Values come back, so that equal rows are of different moments. Now and then upkeep moves rows of the table.
func (w *world) pass() {
	for range w.rng.IntN(2 * w.hot) {
		w.log = append(w.log, change{w.rng.Int64N(int64(w.hot)), []string{"", "first", "second", "third"}[w.rng.IntN(4)]})
	}
	w.end(w.ended + w.rng.IntN(len(w.log)-w.ended+1))
	if w.stuck {
		return
	}
	w.apply(w.applied + w.rng.IntN(len(w.log)-w.applied+1))
	if w.rng.IntN(4) == 0 {
		for _, rows := range w.table {
			for i := range rows {
				w.next++
				rows[i].mark = w.next
			}
		}
	}
}

func (w *world) rows(of map[int64][]row, keep func(key int64) bool, each func(quality.Rows) error) error {
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	var marks []uint64
	for _, key := range slices.Sorted(maps.Keys(of)) {
		for _, r := range of[key] {
			if keep(key) {
				b.Field(0).(*array.Int64Builder).Append(key)
				b.Field(1).(*array.StringBuilder).Append(r.value)
				marks = append(marks, r.mark)
			}
		}
	}
	batch := b.NewRecordBatch()
	defer batch.Release()
	return each(quality.Rows{Batch: batch, Marks: marks})
}

func (w *world) Key() []string     { return []string{"id"} }
func (w *world) Columns() []string { return []string{"id", "v"} }

func (w *world) Scan(_ context.Context, _ float64, _ uint64, each func(quality.Rows) error) (quality.Coverage, error) {
	for part := range int64(5) {
		w.pass()
		if err := w.rows(w.source, func(key int64) bool { return key%5 == part }, each); err != nil {
			return quality.Coverage{}, err
		}
	}
	return quality.Coverage{}, nil
}

func (w *world) Look(_ context.Context, keys [][]string, each func(quality.Rows) error) (int64, bool, error) {
	w.pass()
	settled := w.rng.IntN(3) > 0
	if settled {
		w.end(max(w.ended, w.applied))
	}
	wanted := map[int64]bool{}
	for _, key := range keys {
		id, _ := strconv.ParseInt(key[0], 10, 64)
		wanted[id] = true
	}
	return int64(w.ended), settled, w.rows(w.source, func(key int64) bool { return wanted[key] }, each)
}

// copied is the table of the world.
type copied struct{ *world }

func (c copied) Read(ctx context.Context, least int64, wanted func(arrow.RecordBatch) ([]bool, error), each func(quality.Rows) error) (
	quality.View, error) {
	c.pass()
	if c.stuck && int64(c.applied) < least {
		<-ctx.Done()
		return quality.View{}, context.Cause(ctx)
	}
	c.apply(max(c.applied, int(least)))
	err := c.rows(c.table, func(int64) bool { return true }, func(all quality.Rows) error {
		if wanted == nil {
			return each(all)
		}
		are, err := wanted(all.Batch)
		if err != nil {
			return err
		}
		for i, is := range are {
			if !is {
				continue
			}
			one := all.Batch.NewSlice(int64(i), int64(i)+1)
			err := each(quality.Rows{Batch: one, Marks: all.Marks[i : i+1]})
			one.Release()
			if err != nil {
				return err
			}
		}
		return nil
	})
	return quality.View{Version: int64(c.applied), Position: int64(c.applied)}, err
}

func verify(t *testing.T, w *world, o *quality.Options) *quality.Result {
	t.Helper()
	r, err := quality.Verify(t.Context(), w, copied{w}, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestVerify_BothSidesGoOn_NoFalseAlarm(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	looked := int64(0)
	for n := range uint64(300) {
		w := newWorld(seed+n, 1+int(n%20), 30)
		r := verify(t, w, &quality.Options{Wait: 20 * time.Millisecond})
		if !r.Equal() {
			t.Fatalf("world %d: got %v: %v, wanted no difference", n, r.Counts, r.Differences)
		}
		looked += r.Rechecked
	}
	if looked < 1000 {
		t.Errorf("only %d keys were looked at again: the model does not do its work", looked)
	}
}

func TestVerify_TableIsWrong_EachFoundAndNamed(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for n := range uint64(100) {
		w := newWorld(seed+n, 10, 30)
		w.next += 4
		delete(w.table, 11)
		w.table[12] = []row{{"forged", w.next - 1}}
		w.table[13] = append(w.table[13], row{"first", w.next - 2})
		w.table[99] = []row{{"first", w.next - 3}}
		r := verify(t, w, &quality.Options{Wait: time.Minute})
		var got []string
		for _, d := range r.Differences {
			got = append(got, fmt.Sprintf("%s%v%v", d.Class, d.Key, d.Columns))
		}
		slices.Sort(got)
		want := []string{"different[12][v]", "duplicate[13][]", "extra[99][]", "missing[11][]"}
		if !slices.Equal(got, want) || r.Counts[quality.Extra] != 1 {
			t.Fatalf("world %d: got %v, wanted %v", n, got, want)
		}
	}
}

// A row that the source changes all the time, and the table never, is wrong.
func TestVerify_TableForgetsAKey_Found(t *testing.T) {
	w := newWorld(1, 3, 5)
	frozen := []row{{"of old", 1 << 40}}
	r, err := quality.Verify(t.Context(), w, forgetful{copied{w}, 1, frozen}, &quality.Options{Wait: time.Minute})
	if err != nil || len(r.Differences) != 1 || r.Differences[0].Key[0] != "1" {
		t.Errorf("got %+v, %v, wanted the key 1", r, err)
	}
}

// forgetful is a table in which one key stays as it is.
type forgetful struct {
	copied
	key  int64
	rows []row
}

func (f forgetful) Read(ctx context.Context, least int64, wanted func(arrow.RecordBatch) ([]bool, error),
	each func(quality.Rows) error) (quality.View, error) {
	f.apply(max(f.applied, int(least)))
	f.table[f.key] = f.rows
	before := f.stuck
	f.stuck = true // what passes comes to the source alone
	defer func() { f.stuck = before }()
	return f.copied.Read(ctx, 0, wanted, each)
}

func TestVerify_PipelineDoesNotGoOn_SaysSo(t *testing.T) {
	w := newWorld(1, 10, 5)
	w.stuck = true
	w.table[12] = nil
	_, err := quality.Verify(t.Context(), w, copied{w}, &quality.Options{Wait: time.Millisecond})
	var behind *quality.BehindError
	if !errors.As(err, &behind) || !strings.Contains(err.Error(), "did not come to where the source was read") {
		t.Errorf("got %v, wanted a BehindError", err)
	}
}

// Of tables that do not fit in memory nothing is left in the folder for temporary files, also while it is used.
func TestVerify_LargeTable_TemporaryFilesHaveNoNames(t *testing.T) {
	dir := t.TempDir()
	w := newWorld(1, 1, 220_000)
	delete(w.table, 200_000)
	names := func() []os.DirEntry {
		found, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	r := verify(t, w, &quality.Options{Dir: dir, Progress: func(int64) {
		if found := names(); len(found) > 0 {
			t.Errorf("found %v, wanted no names", found)
		}
	}})
	if found := names(); len(found) > 0 || len(r.Differences) != 1 || r.Differences[0].Key[0] != "200000" {
		t.Errorf("found %v in the folder, and %v, wanted nothing and the key 200000", found, r.Differences)
	}
}

// Where the source does not choose, as many keys are compared as were wanted.
func TestVerify_Sample_FindsAPart(t *testing.T) {
	w := newWorld(1, 1, 4000)
	for key := range int64(2000) {
		delete(w.table, key+1)
	}
	r := verify(t, w, &quality.Options{Share: 0.1, List: 2000})
	if n := len(r.Differences); n < 140 || n > 270 {
		t.Errorf("found %d of 2000 with a share of 0.1, wanted about 200", n)
	}
}

// What is wrong is mended by whoever sends it again, and looked at until it is right, while other keys change.
func TestVerify_Mend_EachBecomesEqual(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for n := range uint64(50) {
		w := newWorld(seed+n, 10, 30)
		w.next += 4
		delete(w.table, 11)
		w.table[12] = []row{{"forged", w.next - 1}}
		w.table[13] = append(w.table[13], row{"first", w.next - 2})
		w.table[99] = []row{{"first", w.next - 3}}
		asked := map[string]uint64{}
		r := verify(t, w, &quality.Options{Wait: time.Minute, List: 2, Mend: func(_ context.Context, wrong []quality.Difference) error {
			for _, d := range wrong {
				id, _ := strconv.ParseInt(d.Key[0], 10, 64)
				asked[d.Key[0]] = d.Mark
				delete(w.table, id)
				if is := w.source[id]; len(is) > 0 {
					w.table[id] = []row{{is[0].value, w.next + 1}}
				}
				w.next += 2
			}
			return nil
		}})
		if r.Found() != 4 || r.Mended != 4 || r.More || len(r.Differences) != 2 {
			t.Fatalf("world %d: got %v, %d mended, %d listed, wanted four, all mended, and two listed", n, r.Counts, r.Mended, len(r.Differences))
		}
		if asked["11"] == 0 || asked["99"] != 0 {
			t.Errorf("world %d: got the marks %v, wanted those of the rows that the source has", n, asked)
		}
		if r := verify(t, w, &quality.Options{Wait: time.Minute}); !r.Equal() {
			t.Fatalf("world %d: got %v afterwards, wanted no difference", n, r.Counts)
		}
	}
}
