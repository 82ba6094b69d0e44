package lake_test

import (
	"context"
	"math/rand/v2"
	"os"
	"path"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
)

var clickSchema = arrow.NewSchema([]arrow.Field{
	{Name: "hour", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "user", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "page", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "took", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
}, nil)

// clicks is a batch of rows of the present hour.
func clicks(r *rand.Rand, after, rows int64) *freshet.Batch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, clickSchema)
	defer b.Release()
	hour := time.Now().UTC().Format("2006-01-02-15")
	batch := &freshet.Batch{Table: "t", Lane: keyedLane, After: after, Last: after + rows}
	for i := range rows {
		b.Field(0).(*array.StringBuilder).Append(hour)
		b.Field(1).(*array.Int64Builder).Append(r.Int64N(100_000))
		b.Field(2).(*array.StringBuilder).Append("/page/" + strconv.Itoa(r.IntN(1000)))
		b.Field(3).(*array.Float64Builder).Append(r.Float64())
		batch.Seqs = append(batch.Seqs, after+i+1)
	}
	batch.Rows = b.NewRecordBatch()
	return batch
}

// day is a stream of commits over 24 hours of partitions by the hour.
type day struct {
	commits, rows int64
	every         time.Duration
	target        int64 // bytes of a file
}

// run appends the day, on a clock that costs nothing, and lets upkeep finish. It returns the processor time of all that, in
// seconds. Checkpoints, which follow commits with and without upkeep, are spaced out, as they would take most of it.
func (d day) run(t *testing.T, w *world, upkeep *lake.UpkeepOptions) float64 {
	before := cpuSeconds(t)
	target := lake.NewTarget(w.open, app, &lake.TargetOptions{PartitionBy: []string{"hour"}, TargetFileBytes: d.target,
		Properties: map[string]string{"delta.checkpointInterval": "1000"}, Upkeep: upkeep})
	must(t, target.Open(t.Context()))
	must(t, target.Ensure(t.Context(), "t", clickSchema))
	_, err := target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
	must(t, err)
	r := rand.New(rand.NewPCG(1, 2))
	last := int64(-1)
	for range d.commits {
		b := clicks(r, last, d.rows)
		last = b.Last
		_, err := target.Write(t.Context(), b)
		must(t, err)
		commitAll(t, target)
		pass(d.every)
	}
	pass(2 * time.Hour)
	must(t, target.Close(context.Background()))
	return cpuSeconds(t) - before
}

// pass lets the clock of the test's bubble move on, and waits for what goes on then.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// partitions are the number of files and their bytes, by partition.
func (w *world) partitions(t *testing.T, table string) (files, bytes map[string]int64) {
	files, bytes = map[string]int64{}, map[string]int64{}
	for add, err := range w.snapshot(t, table).Files(t.Context(), nil) {
		must(t, err)
		name := path.Dir(add.Path)
		files[name]++
		bytes[name] += add.Size
	}
	return files, bytes
}

func number(name string, standard int64) int64 {
	if n, err := strconv.ParseInt(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return standard
}

// FRESHET_UPKEEP_COMMITS=86400 is the whole day at one commit a second. The day is run without upkeep first, so that what
// upkeep takes is told beside what the stream does.
func TestUpkeep_DayOfCommits_ClosedPartitionsHaveAsManyFilesAsTheirSizeAsksFor(t *testing.T) {
	commits := number("FRESHET_UPKEEP_COMMITS", 480)
	d := day{commits: commits, rows: number("FRESHET_UPKEEP_ROWS", 60), every: 24 * time.Hour / time.Duration(commits),
		target: number("FRESHET_UPKEEP_TARGET", 8<<10)}
	var alone float64
	synctest.Test(t, func(t *testing.T) {
		midnight()
		alone = d.run(t, newWorld(), nil)
	})
	synctest.Test(t, func(t *testing.T) {
		midnight()
		w, works := newWorld(), 0
		both := d.run(t, w, &lake.UpkeepOptions{Done: func(freshet.Upkeep) { works++ }})
		files, bytes := w.partitions(t, "t")
		if len(files) != 24 {
			t.Fatalf("got %d partitions, want 24", len(files))
		}
		total := int64(0)
		for name, n := range files {
			total += bytes[name]
			if most := bytes[name]/d.target + 1; n > most {
				t.Errorf("%s: got %d files of %d bytes, want at most %d", name, n, bytes[name], most)
			}
		}
		upkeep := max(both-alone, 0)
		t.Logf("%d commits, %d pieces of upkeep, %d bytes in %d partitions; the stream took %.2f CPU-seconds, upkeep %.2f: %.2f "+
			"of that, and %.3f %% of a processor's day", commits, works, total, len(files), alone, upkeep, upkeep/alone,
			100*upkeep/(24*time.Hour).Seconds())
		if share := upkeep / (24 * time.Hour).Seconds(); share > 0.1 {
			t.Errorf("upkeep took %.2f of a processor's day, want at most 0.1", share)
		}
	})
}

// midnight lets a day begin on the clock of the test's bubble.
func midnight() { pass(time.Until(time.Now().Truncate(24 * time.Hour).Add(24 * time.Hour))) }

func TestUpkeep_AllFilesOfAnOpenPartitionWerePacked_ItStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var works atomic.Int64
		target := lake.NewTarget(w.open, app, &lake.TargetOptions{Upkeep: &lake.UpkeepOptions{SmallFiles: 4,
			ClosedAfter: time.Hour, Done: func(freshet.Upkeep) { works.Add(1) }}})
		must(t, target.Open(t.Context()))
		must(t, target.Ensure(t.Context(), "t", clickSchema))
		_, err := target.Start(t.Context(), "t", freshet.Progress{keyedLane: -1})
		must(t, err)
		r, last := rand.New(rand.NewPCG(1, 2)), int64(-1)
		for _, rows := range []int64{3000, 3000, 3000, 3000, 5, 5, 5, 5} { // two classes of size
			b := clicks(r, last, rows)
			last = b.Last
			_, err := target.Write(t.Context(), b)
			must(t, err)
			commitAll(t, target)
			pass(time.Minute)
		}
		files, _ := w.partitions(t, "t")
		if works.Load() != 2 || files["."] != 2 {
			t.Errorf("got %d files after %d works, want 2 after twice 4 of one size became one", files["."], works.Load())
		}
		pass(2 * time.Hour)
		if files, _ := w.partitions(t, "t"); works.Load() != 3 || files["."] != 1 {
			t.Errorf("got %d files of a closed partition after %d works, want 1 after 3", files["."], works.Load())
		}
		must(t, target.Close(context.Background()))
	})
}
