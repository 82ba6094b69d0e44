// Ours is our side of tables.py: operations of the delta package on tables on disk, one a process, each of which prints its
// steps as lines of JSON as measure.step does for the programs beside us.
//
//	ours append TABLE SOURCE.arrow        batches already in memory -> one append to a new table
//	ours small TABLE SOURCE.arrow N       N appends of 10 rows of the source to a new table, with the checkpoints that fall due
//	ours open TABLE PREDICATE             open, all files with their statistics, a plan
//	ours scan TABLE [COLUMN...]           rows as Arrow batches
//	ours changes TABLE FROM METHOD        change rows: auto, feed, vectors, …
//	ours optimize TABLE
//	ours merge TABLE SOURCE.arrow         upsert by order_id
//	ours update TABLE                     adds 1 to the amount of every second row
//	ours upsert TABLE SOURCE.arrow INDEX MODE KEYS   commits of a pipeline: see upsert
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/store"
)

// targetFileBytes is the size of data files that all programs of the comparison are asked for.
const targetFileBytes = 128 << 20

var commands = map[string]func(context.Context, *store.Disk, []string) error{
	"append": appendRows, "small": small, "open": open, "scan": scan, "changes": changes,
	"optimize": optimize, "merge": merge, "update": update, "upsert": upsert,
}

func main() {
	if len(os.Args) < 3 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: ours append|small|open|scan|changes|optimize|merge|update|upsert TABLE …")
		os.Exit(2)
	}
	disk, err := store.NewDisk(os.Args[2])
	if err == nil {
		err = commands[os.Args[1]](context.Background(), disk, os.Args[3:])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ours:", err)
		os.Exit(1)
	}
}

// step runs do and prints what it took; do returns more numbers for the line.
func step(name string, do func() (map[string]any, error)) error {
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) // the peak of memory begins anew
	cpu, begin := cpuSeconds(), time.Now()
	own := watchMemory()
	more, err := do()
	ownMiB := own()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	line := map[string]any{"step": name, "wall_s": time.Since(begin).Seconds(), "cpu_s": cpuSeconds() - cpu, "rss_mib": peakMiB(),
		"own_mib": ownMiB}
	for key, value := range more {
		line[key] = value
	}
	return json.NewEncoder(os.Stdout).Encode(line)
}

func cpuSeconds() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}

// watchMemory looks, fifty times a second, at the memory that is the process' own, mapped files left out; what it returns ends
// that and tells the most that was seen, in MiB.
func watchMemory() (stop func() float64) {
	quit, most := make(chan struct{}), make(chan float64)
	go func() {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		seen := 0.0
		for {
			seen = max(seen, statusMiB(ownMemory))
			select {
			case <-ticker.C:
			case <-quit:
				most <- max(seen, statusMiB(ownMemory))
				return
			}
		}
	}()
	return func() float64 {
		close(quit)
		return <-most
	}
}

func peakMiB() float64 { return statusMiB(peakMemory) }

var (
	peakMemory = regexp.MustCompile(`VmHWM:\s+(\d+)`)
	ownMemory  = regexp.MustCompile(`RssAnon:\s+(\d+)`)
)

// statusMiB is a line of the kernel's account of this process.
func statusMiB(line *regexp.Regexp) float64 {
	status, _ := os.ReadFile("/proc/self/status")
	held := line.FindSubmatch(status)
	if held == nil {
		return 0
	}
	kib, _ := strconv.ParseFloat(string(held[1]), 64)
	return kib / 1024
}

// source is all batches of an Arrow file.
func source(path string) ([]arrow.RecordBatch, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	r, err := ipc.NewFileReader(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	defer r.Close()
	var batches []arrow.RecordBatch
	for i := range r.NumRecords() {
		rec, err := r.RecordBatchAt(i)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		batches = append(batches, rec)
	}
	return batches, nil
}

// create makes an empty table for rows of the source.
func create(ctx context.Context, disk *store.Disk, rows *arrow.Schema) (*delta.Snapshot, error) {
	schema, err := delta.SchemaFromArrow(rows)
	if err != nil {
		return nil, err
	}
	table, err := delta.Create(ctx, disk, &delta.CreateOptions{Schema: schema})
	if err != nil {
		return nil, err
	}
	return table.Snapshot(ctx)
}

// commit appends the batches.
func commit(ctx context.Context, snap *delta.Snapshot, opts *delta.WriterOptions, batches ...arrow.RecordBatch) (
	*delta.Snapshot, error) {
	table := snap.Table()
	w, err := delta.NewWriter(table.Store(), snap.Metadata(), snap.Protocol(), opts)
	if err != nil {
		return nil, err
	}
	for _, rec := range batches {
		if err := w.Write(ctx, rec); err != nil {
			return nil, err
		}
	}
	files, err := w.Close(ctx)
	if err != nil {
		return nil, err
	}
	tx := table.Begin(snap, nil)
	tx.Add(files...)
	tx.BlindAppend(true)
	done, err := tx.Commit(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := table.MaybeCheckpoint(ctx, done.Snapshot, nil); err != nil {
		return nil, err
	}
	return table.Snapshot(ctx)
}

func appendRows(ctx context.Context, disk *store.Disk, args []string) error {
	batches, err := source(args[0])
	if err != nil {
		return err
	}
	snap, err := create(ctx, disk, batches[0].Schema())
	if err != nil {
		return err
	}
	return step("append", func() (map[string]any, error) {
		rows := int64(0)
		for _, rec := range batches {
			rows += rec.NumRows()
		}
		_, err := commit(ctx, snap, &delta.WriterOptions{TargetFileBytes: targetFileBytes}, batches...)
		return map[string]any{"rows": rows}, err
	})
}

func small(ctx context.Context, disk *store.Disk, args []string) error {
	batches, err := source(args[0])
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	snap, err := create(ctx, disk, batches[0].Schema())
	if err != nil {
		return err
	}
	const perCommit = 10
	var buffers delta.Buffers
	var taken []float64
	return step("small", func() (map[string]any, error) {
		for i := range n {
			at := int64(i*perCommit) % (batches[0].NumRows() - perCommit)
			begin := time.Now()
			snap, err = commit(ctx, snap, &delta.WriterOptions{Buffers: &buffers}, batches[0].NewSlice(at, at+perCommit))
			if err != nil {
				return nil, err
			}
			taken = append(taken, time.Since(begin).Seconds()*1000)
		}
		part := min(100, n)
		return map[string]any{"first_ms": median(taken[:part]), "last_ms": median(taken[n-part:])}, nil
	})
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func snapshot(ctx context.Context, disk *store.Disk) (*delta.Snapshot, error) {
	table, err := delta.Open(ctx, disk, nil)
	if err != nil {
		return nil, err
	}
	return table.Snapshot(ctx)
}

func open(ctx context.Context, disk *store.Disk, args []string) error {
	where, err := expr.Parse(args[0])
	if err != nil {
		return err
	}
	var snap *delta.Snapshot
	err = step("open", func() (map[string]any, error) {
		snap, err = snapshot(ctx, disk)
		return nil, err
	})
	if err != nil {
		return err
	}
	count := func(matching *expr.Expr) func() (map[string]any, error) {
		return func() (map[string]any, error) {
			files := 0
			for _, err := range snap.Matching(ctx, matching) {
				if err != nil {
					return nil, err
				}
				files++
			}
			return map[string]any{"files": files}, nil
		}
	}
	if err := step("files", count(nil)); err != nil {
		return err
	}
	return step("plan", count(where))
}

func scan(ctx context.Context, disk *store.Disk, columns []string) error {
	if len(columns) == 0 {
		columns = nil // all; an empty list would be none
	}
	return step("scan", func() (map[string]any, error) {
		snap, err := snapshot(ctx, disk)
		if err != nil {
			return nil, err
		}
		rows := int64(0)
		for rec, err := range snap.Scan(ctx, &delta.ScanOptions{Columns: columns}) {
			if err != nil {
				return nil, err
			}
			rows += rec.NumRows()
			rec.Release()
		}
		return map[string]any{"rows": rows}, nil
	})
}

func changes(ctx context.Context, disk *store.Disk, args []string) error {
	from, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil {
		return err
	}
	return step("changes", func() (map[string]any, error) {
		table, err := delta.Open(ctx, disk, nil)
		if err != nil {
			return nil, err
		}
		rows := int64(0)
		for c, err := range table.Changes(ctx, from, -1, &delta.ChangesOptions{Method: delta.ChangeMethod(args[1])}) {
			if err != nil {
				return nil, err
			}
			rows += c.Batch.NumRows()
			c.Batch.Release()
		}
		return map[string]any{"rows": rows}, nil
	})
}

func optimize(ctx context.Context, disk *store.Disk, _ []string) error {
	return step("optimize", func() (map[string]any, error) {
		table, err := delta.Open(ctx, disk, nil)
		if err != nil {
			return nil, err
		}
		_, err = table.Optimize(ctx, &delta.OptimizeOptions{TargetFileBytes: targetFileBytes})
		return nil, err
	})
}

func merge(ctx context.Context, disk *store.Disk, args []string) error {
	batches, err := source(args[0])
	if err != nil {
		return err
	}
	on, err := expr.Parse("t.order_id = s.order_id")
	if err != nil {
		return err
	}
	m := &delta.Merge{On: on, Matched: []delta.MatchedClause{{All: true}},
		NotMatched: []delta.InsertClause{{All: true}}}
	return step("merge", func() (map[string]any, error) {
		table, err := delta.Open(ctx, disk, nil)
		if err != nil {
			return nil, err
		}
		_, err = table.Merge(ctx, delta.SourceOf(batches[0].Schema(), batches...), m, nil)
		return nil, err
	})
}

func update(ctx context.Context, disk *store.Disk, _ []string) error {
	where, err := expr.Parse("order_id % 2 = 0")
	if err != nil {
		return err
	}
	more, err := expr.Parse("amount + 1")
	if err != nil {
		return err
	}
	return step("update", func() (map[string]any, error) {
		table, err := delta.Open(ctx, disk, nil)
		if err != nil {
			return nil, err
		}
		_, err = table.Update(ctx, []delta.Assignment{{Column: "amount", Value: more}}, where, nil)
		return nil, err
	})
}
