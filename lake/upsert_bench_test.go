package lake_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
)

// narrowRows are rows of the columns id, customer, status, quantity, amount and created; every one but the key is drawn.
func narrowRows(r *rand.Rand, ids []int64) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "customer", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "status", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "quantity", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "amount", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
		{Name: "created", Type: arrow.FixedWidthTypes.Timestamp_us, Nullable: true},
	}, nil))
	defer b.Release()
	status := []string{"created", "paid", "packed", "shipped", "delivered"}
	b.Reserve(len(ids))
	for _, id := range ids {
		b.Field(0).(*array.Int64Builder).Append(id)
		b.Field(1).(*array.StringBuilder).Append("C" + strconv.FormatInt(r.Int64N(2_000_000), 10))
		b.Field(2).(*array.StringBuilder).Append(status[r.IntN(len(status))])
		b.Field(3).(*array.Int64Builder).Append(1 + r.Int64N(9))
		b.Field(4).(*array.Float64Builder).Append(float64(r.Int64N(1_000_000)) / 100)
		b.Field(5).(*array.TimestampBuilder).Append(arrow.Timestamp(1_767_225_600_000_000 + r.Int64N(1e12)))
	}
	return b.NewRecordBatch()
}

// BenchmarkMirror_RandomKeys changes 100,000 random keys of a table of FRESHET_UPSERT_ROWS rows (default a million) on
// disk, one commit an iteration: CPU time and bytes written a commit, after the table was filled by the same way.
func BenchmarkMirror_RandomKeys(b *testing.B) {
	total, step := int64(1_000_000), int64(100_000)
	if n, err := strconv.ParseInt(os.Getenv("FRESHET_UPSERT_ROWS"), 10, 64); err == nil {
		total = n
	}
	dir := b.TempDir()
	open := func(table string) (store.Store, error) { return store.NewDisk(dir + "/" + table) }
	target := lake.NewTarget(open, app, &lake.TargetOptions{Mode: lake.Mirror, Key: lake.KeyOptions{
		Columns: []string{"id"}, IndexDir: b.TempDir()}})
	ctx := b.Context()
	check := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	check(target.Open(ctx))
	r := rand.New(rand.NewPCG(1, 2))
	sample := narrowRows(r, []int64{0})
	check(target.Ensure(ctx, "t", sample.Schema()))
	_, err := target.Start(ctx, "t", freshet.Progress{keyedLane: -1})
	check(err)
	last := int64(-1)
	commit := func(rows arrow.RecordBatch) (stored int64) {
		seqs := make([]int64, rows.NumRows())
		for i := range seqs {
			seqs[i] = last + int64(i) + 1
		}
		batch := &freshet.Batch{Table: "t", Lane: keyedLane, After: last, Last: last + rows.NumRows(), Rows: rows,
			Seqs: seqs}
		last = batch.Last
		_, err := target.Write(ctx, batch)
		check(err)
		commits, err := target.Seal(ctx)
		check(err)
		for _, c := range commits {
			done, err := c.Run(ctx)
			check(err)
			stored += done.Bytes
		}
		return stored
	}
	ids := make([]int64, 10*step)
	for first := int64(0); first < total; first += int64(len(ids)) {
		for i := range ids {
			ids[i] = first + int64(i)
		}
		commit(narrowRows(r, ids))
	}
	ids = ids[:step]
	var stored int64
	var cpu float64
	for b.Loop() {
		for i := range ids {
			ids[i] = r.Int64N(total)
		}
		rows := narrowRows(r, ids)
		before := cpuSeconds(b)
		stored += commit(rows)
		cpu += cpuSeconds(b) - before
	}
	b.ReportMetric(cpu*1000/float64(b.N), "cpu-ms/commit")
	b.ReportMetric(float64(stored)/float64(b.N), "B-stored/commit")
	check(target.Close(ctx))
}

// cpuSeconds is the processor time of this process so far.
func cpuSeconds(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}
