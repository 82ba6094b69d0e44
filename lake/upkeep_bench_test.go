package lake_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
)

// meteredStore counts the bytes that are written, by what they are.
type meteredStore struct {
	*store.Disk
	data, vectors, log, checkpoints *atomic.Int64
}

func (m meteredStore) count(key string, n int) {
	switch {
	case strings.HasPrefix(key, "_delta_log/") && path.Ext(key) == ".parquet":
		m.checkpoints.Add(int64(n))
	case strings.HasPrefix(key, "_delta_log/"):
		m.log.Add(int64(n))
	case path.Ext(key) == ".bin":
		m.vectors.Add(int64(n))
	default:
		m.data.Add(int64(n))
	}
}

func (m meteredStore) Put(ctx context.Context, key string, data []byte) error {
	m.count(key, len(data))
	return m.Disk.Put(ctx, key, data)
}

func (m meteredStore) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	m.count(key, len(data))
	return m.Disk.PutIfAbsent(ctx, key, data)
}

func (m meteredStore) PutHint(ctx context.Context, key string, data []byte) error {
	m.count(key, len(data))
	return m.Disk.PutHint(ctx, key, data)
}

func (m meteredStore) Create(ctx context.Context, key string) (store.Upload, error) {
	up, err := m.Disk.Create(ctx, key)
	return meteredUpload{up, m, key}, err
}

func (m meteredStore) CreateAhead(ctx context.Context, key string) (store.Upload, error) {
	up, err := m.Disk.CreateAhead(ctx, key)
	return meteredUpload{up, m, key}, err
}

type meteredUpload struct {
	store.Upload
	m   meteredStore
	key string
}

func (u meteredUpload) Write(p []byte) (int, error) {
	u.m.count(u.key, len(p))
	return u.Upload.Write(p)
}

// churn is a stream of upserts over a large table.
type churn struct {
	b      *testing.B
	r      *rand.Rand
	zipf   *rand.Zipf
	target *lake.Target
	dir    string
	table  int64           // rows at the start
	next   int64           // id that is new
	last   int64           // seq
	base   *delta.Snapshot // of the table at the start

	written [4]atomic.Int64 // data, vectors, log, checkpoints
	mu      sync.Mutex
	works   map[string]int
	busy    time.Duration
	rewrote int64
}

func newChurn(b *testing.B, table int64, upkeep bool) *churn {
	c := &churn{b: b, r: rand.New(rand.NewPCG(1, 2)), dir: b.TempDir(), table: table, next: table, last: -1,
		works: map[string]int{}}
	c.zipf = rand.NewZipf(c.r, 1.1, 1, uint64(table-1))
	open := func(table string) (store.Store, error) {
		d, err := store.NewDisk(c.dir + "/" + table)
		return meteredStore{d, &c.written[0], &c.written[1], &c.written[2], &c.written[3]}, err
	}
	index := b.TempDir()
	opts := &lake.TargetOptions{Mode: lake.Mirror, Key: lake.KeyOptions{Columns: []string{"id"}, IndexDir: index},
		Retry: func(what string, err error) { b.Logf("again: %s: %v", what, err) }}
	if upkeep {
		opts.Upkeep = &lake.UpkeepOptions{Done: c.done, Share: float64(number("FRESHET_UPKEEP_SHARE", 10)) / 100}
	}
	c.target = lake.NewTarget(open, app, opts)
	c.must(c.target.Open(b.Context()))
	c.must(c.target.Ensure(b.Context(), "t", narrowRows(c.r, []int64{0}).Schema()))
	_, err := c.target.Start(b.Context(), "t", freshet.Progress{keyedLane: -1})
	c.must(err)
	for first := int64(0); first < table; first += 1_000_000 {
		ids := make([]int64, min(table-first, 1_000_000))
		for i := range ids {
			ids[i] = first + int64(i)
		}
		c.commit(ids, nil)
	}
	_, c.base = c.open()
	return c
}

func (c *churn) must(err error) {
	c.b.Helper()
	if err != nil {
		c.b.Fatal(err)
	}
}

func (c *churn) done(d freshet.Upkeep) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.works[d.Kind]++
	c.busy += d.Took
	c.rewrote += d.BytesAfter
	if os.Getenv("FRESHET_UPKEEP_TELL") != "" {
		fmt.Fprintf(os.Stderr, "%s %s: %d files (%d MB) -> %d (%d MB) in %v\n", d.Kind, d.Why, d.FilesBefore,
			d.BytesBefore>>20, d.FilesAfter, d.BytesAfter>>20, d.Took)
	}
}

// old is a key of the table at the start: few of them are drawn most of the time, and lie anywhere.
func (c *churn) old() int64 { return int64(c.zipf.Uint64()) * 7_368_787 % c.table }

// change commits so many changes: 40 % change a row, 10 % delete one, the others are new.
func (c *churn) change(n int64) {
	ids, kinds := make([]int64, n), make([]freshet.Kind, n)
	for i := range ids {
		switch p := c.r.IntN(10); {
		case p < 4:
			ids[i], kinds[i] = c.old(), freshet.UpdatePostimage
		case p < 5:
			ids[i], kinds[i] = c.old(), freshet.Delete
		default:
			ids[i], kinds[i] = c.next, freshet.Insert
			c.next++
		}
	}
	c.commit(ids, kinds)
}

func (c *churn) commit(ids []int64, kinds []freshet.Kind) {
	rows := narrowRows(c.r, ids)
	seqs := make([]int64, len(ids))
	for i := range seqs {
		seqs[i] = c.last + int64(i) + 1
	}
	batch := &freshet.Batch{Table: "t", Lane: keyedLane, After: c.last, Last: c.last + int64(len(ids)), Rows: rows, Seqs: seqs,
		Kinds: kinds}
	c.last = batch.Last
	_, err := c.target.Write(c.b.Context(), batch)
	c.must(err)
	commits, err := c.target.Seal(c.b.Context())
	c.must(err)
	for _, s := range commits {
		_, err := s.Run(c.b.Context())
		c.must(err)
	}
}

// open opens the table besides the target.
func (c *churn) open() (*delta.Table, *delta.Snapshot) {
	st, err := store.NewDisk(c.dir + "/t")
	c.must(err)
	d, err := delta.Open(c.b.Context(), st, nil)
	c.must(err)
	snap, err := d.Snapshot(c.b.Context())
	c.must(err)
	return d, snap
}

// readCost is the processor time of reading a row of the table beside that of reading one of the table at the start, read
// in turn, so that what else the machine does weighs on both. Readings while upkeep wrote do not count, as its time would
// be theirs, if others can be had; of four that count the least does.
func (c *churn) readCost(snap *delta.Snapshot) float64 {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64)) // it is another's reading
	now, base := math.Inf(1), math.Inf(1)
	for tries, alone := 0, 0; alone < 4; tries++ {
		written := c.written[0].Load()
		b, n := c.read(c.base), c.read(snap)
		if c.written[0].Load() == written || tries > 9 {
			alone++
			now, base = min(now, n), min(base, b)
		}
	}
	return now / base
}

// read is the processor time of reading a row, in seconds.
func (c *churn) read(snap *delta.Snapshot) float64 {
	before, rows := cpuSeconds(c.b), int64(0)
	for rec, err := range snap.Scan(c.b.Context(), nil) {
		c.must(err)
		rows += rec.NumRows()
		rec.Release()
	}
	return (cpuSeconds(c.b) - before) / float64(rows)
}

// BenchmarkUpkeep_StreamOfUpserts streams FRESHET_UPKEEP_COMMITS commits (default 60) of FRESHET_UPKEEP_CHANGES changes
// (default 5,000) into a table of FRESHET_UPKEEP_TABLE rows (default 200,000) on disk, 40 % of them updates and 10 % deletes
// of keys by Zipf's law (1.1), one commit right after the other. FRESHET_UPKEEP=off leaves out upkeep, and FRESHET_UPKEEP_SHARE is the
// percentage of the processors' time that it may take (default 10): more where commits of an hour follow within minutes. Processor time is that of the
// whole process, the making of the rows included. It tells changes per CPU-second, all bytes written to the table a byte of
// changed rows as the compacted table stores them, what a row costs to read beside the compacted table, at the worst of
// five moments, and the most memory that was held after a commit, pages of mapped files aside.
func BenchmarkUpkeep_StreamOfUpserts(b *testing.B) {
	commits, changes := number("FRESHET_UPKEEP_COMMITS", 60), number("FRESHET_UPKEEP_CHANGES", 5_000)
	for b.Loop() {
		b.StopTimer()
		c := newChurn(b, number("FRESHET_UPKEEP_TABLE", 200_000), os.Getenv("FRESHET_UPKEEP") != "off")
		for i := range c.written {
			c.written[i].Store(0)
		}
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(180 << 20)) // as the command has it
		debug.FreeOSMemory()
		b.StartTimer()
		var cpu, worst, held float64
		for i := range commits {
			before := cpuSeconds(b)
			c.change(changes)
			cpu += cpuSeconds(b) - before
			held = max(held, heldMiB())
			if (i+1)%max(commits/5, 1) == 0 {
				_, snap := c.open()
				stands, err := lake.Survey(b.Context(), snap, time.Now(), true, nil)
				c.must(err)
				cost := c.readCost(snap)
				worst = max(worst, cost)
				c.mu.Lock()
				b.Logf("commit %d: %d files, %d small, %.1f %% deleted, read for %.2f; upkeep %v, busy %v", i+1, stands.Files,
					stands.SmallFiles, 100*float64(stands.DeletedRows)/float64(stands.Rows), cost, c.works, c.busy)
				c.mu.Unlock()
				debug.FreeOSMemory() // what the readings held
			}
		}
		b.StopTimer()
		c.must(c.target.Close(context.Background()))
		c.report(cpu, worst, float64(commits*changes))
		b.ReportMetric(held, "MiB")
		b.StartTimer()
	}
}

// report tells what the stream cost, beside the table as a compaction leaves it.
func (c *churn) report(cpu, worst, changes float64) {
	var written [len(c.written)]float64
	all := 0.0
	for i := range written {
		written[i] = float64(c.written[i].Load())
		all += written[i]
	}
	d, _ := c.open()
	_, err := d.Optimize(c.b.Context(), &delta.OptimizeOptions{MaxDeleted: 1e-9, TargetFileBytes: 128 << 20})
	c.must(err)
	_, snap := c.open()
	stands, err := lake.Survey(c.b.Context(), snap, time.Now(), true, nil)
	c.must(err)
	best := c.readCost(snap)
	row := float64(stands.Bytes) / float64(stands.Rows)
	c.b.Logf("%.1f CPU-seconds; written: %.0f MB data, of which %.0f MB by upkeep, %.0f MB vectors, %.0f MB commits, %.0f MB "+
		"checkpoints; %.1f bytes a row; compacted, read for %.2f", cpu, written[0]/1e6, float64(c.rewrote)/1e6, written[1]/1e6,
		written[2]/1e6, written[3]/1e6, row, best)
	c.b.ReportMetric(changes/cpu, "changes/cpu-s")
	c.b.ReportMetric(all/(row*changes*0.9), "written/changed")
	c.b.ReportMetric(worst/best, "read/compacted")
}

// heldMiB is the memory that the process holds now, pages of mapped files aside.
func heldMiB() float64 {
	status, _ := os.ReadFile("/proc/self/status")
	held := regexp.MustCompile(`RssAnon:\s+(\d+)`).FindSubmatch(status)
	if held == nil {
		return 0
	}
	kib, _ := strconv.ParseFloat(string(held[1]), 64)
	return kib / 1024
}
