package lake_test

import (
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
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
	m := newMirrorBench(b)
	ids := make([]int64, 10*step)
	for first := int64(0); first < total; first += int64(len(ids)) {
		for i := range ids {
			ids[i] = first + int64(i)
		}
		m.commit(narrowRows(m.random, ids))
	}
	ids = ids[:step]
	var stored int64
	var cpu float64
	for b.Loop() {
		for i := range ids {
			ids[i] = m.random.Int64N(total)
		}
		rows := narrowRows(m.random, ids)
		before := cpuSeconds(b)
		stored += m.commit(rows)
		cpu += cpuSeconds(b) - before
	}
	b.ReportMetric(cpu*1000/float64(b.N), "cpu-ms/commit")
	b.ReportMetric(float64(stored)/float64(b.N), "B-stored/commit")
	m.check(m.target.Close(b.Context()))
}

// mirrorBench is a target that mirrors a table on disk, and its only lane.
type mirrorBench struct {
	b      *testing.B
	open   lake.Opener
	target *lake.Target
	random *rand.Rand
	last   int64
}

func newMirrorBench(b *testing.B) *mirrorBench {
	return newKeyedBench(b, &lake.TargetOptions{Mode: lake.Mirror})
}

// newKeyedBench is such a target with a mode, and with a sequence where the options have one.
func newKeyedBench(b *testing.B, opts *lake.TargetOptions) *mirrorBench {
	b.Helper()
	dir := b.TempDir()
	m := &mirrorBench{b: b, random: rand.New(rand.NewPCG(1, 2)), last: -1,
		open: func(table string) (store.Store, error) { return store.NewDisk(dir + "/" + table) }}
	opts.Key.Columns, opts.Key.IndexDir = []string{"id"}, b.TempDir()
	m.target = lake.NewTarget(m.open, app, opts)
	m.check(m.target.Open(b.Context()))
	m.check(m.target.Ensure(b.Context(), "t", narrowRows(m.random, []int64{0}).Schema()))
	_, err := m.target.Start(b.Context(), "t", freshet.Progress{keyedLane: -1})
	m.check(err)
	return m
}

func (m *mirrorBench) check(err error) {
	m.b.Helper()
	if err != nil {
		m.b.Fatal(err)
	}
}

// commit commits the rows and returns the bytes of what was stored.
func (m *mirrorBench) commit(rows arrow.RecordBatch) (stored int64) {
	m.b.Helper()
	seqs := make([]int64, rows.NumRows())
	for i := range seqs {
		seqs[i] = m.last + int64(i) + 1
	}
	batch := &freshet.Batch{Table: "t", Lane: keyedLane, After: m.last, Last: m.last + rows.NumRows(), Rows: rows, Seqs: seqs}
	m.last = batch.Last
	_, err := m.target.Write(m.b.Context(), batch)
	m.check(err)
	commits, err := m.target.Seal(m.b.Context())
	m.check(err)
	for _, c := range commits {
		done, err := c.Run(m.b.Context())
		m.check(err)
		stored += done.Bytes
	}
	return stored
}

// BenchmarkMirror_ManyFiles changes 1,000 random keys of a table of FRESHET_UPSERT_FILES files (default 1,000) of ten rows,
// which another writer has made: CPU time of a commit, and what of the heap stays between commits.
func BenchmarkMirror_ManyFiles(b *testing.B) {
	files := int64(1000)
	if n, err := strconv.ParseInt(os.Getenv("FRESHET_UPSERT_FILES"), 10, 64); err == nil {
		files = n
	}
	m := newMirrorBench(b)
	m.commit(narrowRows(m.random, []int64{0}))
	m.appendFiles(files, 1, 10)
	m.commit(narrowRows(m.random, []int64{1})) // reads the keys of all
	ids := make([]int64, 1000)
	var cpu float64
	for b.Loop() {
		for i := range ids {
			ids[i] = 1 + m.random.Int64N(10*files)
		}
		before := cpuSeconds(b)
		m.commit(narrowRows(m.random, ids))
		cpu += cpuSeconds(b) - before
	}
	runtime.GC()
	var held runtime.MemStats
	runtime.ReadMemStats(&held)
	b.ReportMetric(cpu*1000/float64(b.N), "cpu-ms/commit")
	b.ReportMetric(float64(held.HeapAlloc)/1e6, "MB-heap")
	m.check(m.target.Close(b.Context()))
}

// BenchmarkKeyed_ForeignFile commits ten rows after another writer has appended a file of a million, whose keys are new: CPU
// time of the commit, which brings the index forward.
func BenchmarkKeyed_ForeignFile(b *testing.B) {
	for name, opts := range map[string]*lake.TargetOptions{
		"mirror":   {Mode: lake.Mirror},
		"sequence": {Mode: lake.Upsert, Key: lake.KeyOptions{SequenceBy: []string{"created"}}},
	} {
		b.Run(name, func(b *testing.B) {
			const rows = 1_000_000
			m, next, cpu := newKeyedBench(b, opts), int64(rows), 0.0
			ids := make([]int64, 10)
			for i := range ids {
				ids[i] = int64(i)
			}
			m.commit(narrowRows(m.random, ids))
			for b.Loop() {
				m.appendFiles(1, next, rows)
				next += rows
				few := narrowRows(m.random, ids)
				before := cpuSeconds(b)
				m.commit(few)
				cpu += cpuSeconds(b) - before
			}
			b.ReportMetric(cpu*1000/float64(b.N), "cpu-ms/commit")
			m.check(m.target.Close(b.Context()))
		})
	}
}

// appendFiles appends so many files of so many rows, whose keys go on from first, as another writer.
func (m *mirrorBench) appendFiles(n, first, rows int64) {
	m.b.Helper()
	ctx := m.b.Context()
	st, err := m.open("t")
	m.check(err)
	d, err := delta.Open(ctx, st, nil)
	m.check(err)
	snap, err := d.Snapshot(ctx)
	m.check(err)
	var adds []delta.Add
	ids := make([]int64, rows)
	for i := range n {
		w, err := delta.NewWriter(st, snap.Metadata(), snap.Protocol(), nil)
		m.check(err)
		for k := range ids {
			ids[k] = first + rows*i + int64(k)
		}
		m.check(w.Write(ctx, narrowRows(m.random, ids)))
		added, err := w.Close(ctx)
		m.check(err)
		adds = append(adds, added...)
	}
	tx := d.Begin(snap, nil)
	tx.Add(adds...)
	tx.BlindAppend(true)
	done, err := tx.Commit(ctx)
	m.check(err)
	m.check(d.Checkpoint(ctx, done.Snapshot))
}

// cpuSeconds is the processor time of this process so far.
func cpuSeconds(t testing.TB) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}
