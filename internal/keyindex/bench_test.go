package keyindex_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/internal/keyindex"
)

// benchKeys is the number of keys of the benchmarks: 1 M, or what FRESHET_INDEX_KEYS says.
func benchKeys(b *testing.B) int {
	if s := os.Getenv("FRESHET_INDEX_KEYS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			b.Fatal(err)
		}
		return n
	}
	return 1_000_000
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// anonymous is the memory of the process without mapped files, in MB; 0 where the system does not tell.
func anonymous() float64 {
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(status), "RssAnon:")
	kb, _ := strconv.Atoi(strings.TrimSpace(strings.SplitN(rest, "kB", 2)[0]))
	return float64(kb) / 1e3
}

// longs is an array of the values, which it does not copy.
func longs(values []int64) arrow.Array {
	buffers := []*memory.Buffer{nil, memory.NewBufferBytes(arrow.Int64Traits.CastToBytes(values))}
	return array.NewInt64Data(array.NewData(arrow.PrimitiveTypes.Int64, len(values), buffers, nil, 0, 0))
}

// load commits the keys from to to-1, from as many goroutines as there are cores.
func load(b *testing.B, x *keyindex.Index, from, to int) {
	c, err := x.Begin(x.Version() + 1)
	if err != nil {
		b.Fatal(err)
	}
	const rows = 250_000 // of a file
	work := make(chan int)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			var values []int64
			var keys []keyindex.Fingerprint
			for first := range work {
				values = values[:0]
				for v := first; v < min(first+rows, to); v++ {
					values = append(values, int64(v))
				}
				if keys, err = x.Hasher().Append(keys[:0], []arrow.Array{longs(values)}); err != nil {
					b.Error(err)
				}
				if err := c.Add(fmt.Sprintf("v%d/part-%d.parquet", x.Version(), first/rows), keys, nil, nil); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for first := from; first < to; first += rows {
		work <- first
	}
	close(work)
	wg.Wait()
	if _, err := c.Commit(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkIndex loads an index at once, changes parts of it, so that it has several runs, and looks up
// batches of random keys: of the index, and half of them new.
func BenchmarkIndex(b *testing.B) {
	n := benchKeys(b)
	dir := os.Getenv("FRESHET_INDEX_DIR") // where one is, it is not loaded again
	if dir == "" {
		dir = b.TempDir()
	}
	if x, err := keyindex.Open(dir, identity(0)); errors.Is(err, keyindex.ErrNone) {
		build(b, dir, n)
	} else if err == nil {
		x.Close()
	}
	cold := time.Now()
	x, err := keyindex.Open(dir, identity(0))
	if err != nil {
		b.Fatal(err)
	}
	defer x.Close()
	info, _ := x.Describe()
	b.Logf("opened in %v; %d runs, %.1f bytes a key", time.Since(cold), len(info.Runs),
		float64(info.SizeBytes)/float64(n))
	for _, r := range info.Runs {
		b.Logf("run of %d entries, %.2f bytes each, filter %t",
			r.Entries, float64(r.SizeBytes)/float64(r.Entries), r.Filtered)
	}
	debug.FreeOSMemory() // what building it held
	most := min(n/10, 1_000_000)
	l := &looker{x: x, keys: make([]keyindex.Fingerprint, 0, most), found: make([]keyindex.Position, most)}
	for range 3 { // the pages of the files come into the page table
		l.looking = 0
		l.look(b, n, most/10)
		b.Logf("first look-ups: %.2f M keys per CPU-second", float64(most/10)/1e6/l.looking.Seconds())
	}
	for range 30 {
		l.look(b, n, most/10)
	}
	for _, size := range []int{10_000, 100_000, 1_000_000} {
		if size <= n/10 {
			b.Run(fmt.Sprintf("lookup/%d", size), func(b *testing.B) { l.bench(b, n, size) })
			b.Run(fmt.Sprintf("lookup-half-new/%d", size), func(b *testing.B) { l.bench(b, 2*n, size) })
		}
	}
}

func build(b *testing.B, dir string, n int) {
	x := create(b, dir, identity(0))
	cpu := cpuTime()
	load(b, x, 0, n*9/10)
	rate := float64(n*9/10) / 1e6 / (cpuTime() - cpu).Seconds()
	b.Logf("load: %.2f M keys per CPU-second, %.0f MB", rate, anonymous())
	for _, part := range []int{20, 40, 200, 400, 1000, 4000} {
		from := rand.IntN(n * 8 / 10)
		load(b, x, from, from+n/part)
	}
	load(b, x, n*9/10, n)
	if err := x.Close(); err != nil {
		b.Fatal(err)
	}
}

// looker looks batches up and counts the CPU time of it.
type looker struct {
	x                *keyindex.Index
	keys             []keyindex.Fingerprint
	found            []keyindex.Position
	hashing, looking time.Duration
}

func (l *looker) look(b *testing.B, space, size int) {
	values := make([]int64, min(size, 10_000))
	l.keys = l.keys[:0]
	for len(l.keys) < size {
		for i := range values {
			values[i] = rand.Int64N(int64(space))
		}
		columns := []arrow.Array{longs(values)}
		cpu := cpuTime()
		l.keys, _ = l.x.Hasher().Append(l.keys, columns)
		l.hashing += cpuTime() - cpu
	}
	cpu := cpuTime()
	if err := l.x.Lookup(l.keys, l.found[:size], nil); err != nil {
		b.Fatal(err)
	}
	l.looking += cpuTime() - cpu
}

func (l *looker) bench(b *testing.B, space, size int) {
	l.looking, l.hashing = 0, 0
	for range b.N {
		l.look(b, space, size)
	}
	total := float64(b.N) * float64(size)
	b.ReportMetric(total/1e6/l.looking.Seconds(), "Mkeys/cpu-s")
	b.ReportMetric(total/1e6/(l.looking+l.hashing).Seconds(), "Mkeys/cpu-s-with-hashing")
	b.ReportMetric(anonymous(), "MB-anon")
}

// BenchmarkCommit commits batches of 100,000 random keys: CPU time of all that is needed, merges behind it
// included.
func BenchmarkCommit(b *testing.B) {
	n := benchKeys(b)
	x := create(b, b.TempDir(), identity(0))
	load(b, x, 0, n)
	const size = 100_000
	values := make([]int64, size)
	cpu := cpuTime()
	for i := range b.N {
		for k := range values {
			values[k] = rand.Int64N(int64(n))
		}
		keys, err := x.Hasher().Append(nil, []arrow.Array{longs(values)})
		if err != nil {
			b.Fatal(err)
		}
		commit(b, x, fmt.Sprint("part-", i), keys)
	}
	b.ReportMetric((cpuTime()-cpu).Seconds()*1e3/float64(b.N), "cpu-ms/commit")
	info, _ := x.Describe()
	b.ReportMetric(float64(len(info.Runs)), "runs")
}

// BenchmarkHasher hashes one column of integers, and one of texts of 36 bytes.
func BenchmarkHasher(b *testing.B) {
	h := create(b, b.TempDir(), identity(0)).Hasher()
	ints := make([]int64, 10_000)
	texts := array.NewStringBuilder(memory.DefaultAllocator)
	for i := range ints {
		ints[i] = rand.Int64()
		texts.Append(fmt.Sprintf("%036d", ints[i]))
	}
	var keys []keyindex.Fingerprint
	for name, column := range map[string]arrow.Array{"long": longs(ints), "text": texts.NewArray()} {
		b.Run(name, func(b *testing.B) {
			cpu := cpuTime()
			for range b.N {
				keys, _ = h.Append(keys[:0], []arrow.Array{column})
			}
			b.ReportMetric(float64((cpuTime()-cpu).Nanoseconds())/float64(b.N*len(ints)), "cpu-ns/key")
		})
	}
}
