package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
)

const keyColumn, sequenceColumn = "order_id", "created_at"

// streamCommits is how many commits upsert measures together: more than it takes for the index to merge its runs.
const streamCommits = 8

var upsertModes = map[string]*lake.TargetOptions{
	"mirror":   {Mode: lake.Mirror},
	"sequence": {Mode: lake.Upsert, Key: lake.KeyOptions{SequenceBy: []string{sequenceColumn}}},
	"mask":     {Mode: lake.Mirror},
	"soft":     {Mode: lake.Mirror, Key: lake.KeyOptions{Deletes: lake.SoftDeletes}},
	"log":      {Mode: lake.Mirror},
	"scd2":     {Mode: lake.SCD2, Key: lake.KeyOptions{SequenceBy: []string{sequenceColumn}}},
}

// filledBy is how many rows a history is filled by at once.
const filledBy = 1_000_000

// upserter is a running pipeline's target and where its only lane stands.
type upserter struct {
	target  freshet.Target
	mode    string
	lane    freshet.Lane
	last    int64
	keys    int64    // of the table at first; those from there on are new
	folders []string // of the table, and of its change log
}

// upsert brings a source into a table of so many keys, through the target of a pipeline. Its steps are
//
//	fill     of a history, which nobody else has made: all keys
//	start    the first commit, of ten rows: the key index is made when INDEX has none, else opened
//	commit   the whole source
//	stream   eight commits of as many random keys, with what merges of the index fall due
//	forward  ten rows again, after somebody else has appended a file of ten times as many rows as the source
func upsert(ctx context.Context, disk *store.Disk, args []string) error {
	if len(args) != 4 || upsertModes[args[2]] == nil {
		return errors.New("wanted TABLE SOURCE.arrow INDEX mirror|sequence|mask|soft|log|scd2 KEYS")
	}
	batches, err := source(args[0])
	if err != nil {
		return err
	}
	keys, err := strconv.ParseInt(args[3], 10, 64)
	if err != nil {
		return err
	}
	u, err := newUpserter(ctx, disk, args[1], args[2], keys, batches[0].Schema())
	if err != nil {
		return err
	}
	defer u.target.Close(ctx)
	if u.mode == "scd2" && u.last < 0 {
		if err := u.fill(ctx, batches[0], keys); err != nil {
			return err
		}
	}
	if err := u.step(ctx, "start", 1, batches[0].NewSlice(0, 10)); err != nil {
		return err
	}
	if err := u.step(ctx, "commit", 1, batches...); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(1, 2))
	var others []arrow.RecordBatch
	for range streamCommits {
		for _, rec := range batches {
			others = append(others, elsewhere(rec, random, keys))
		}
	}
	if err := u.step(ctx, "stream", streamCommits, others...); err != nil {
		return err
	}
	if u.mode == "scd2" { // to which nobody else appends
		return nil
	}
	if err := appendTen(ctx, disk, batches, 2*keys); err != nil {
		return err
	}
	return u.step(ctx, "forward", 1, batches[0].NewSlice(0, 10))
}

// fill brings in all keys, under rows like these.
func (u *upserter) fill(ctx context.Context, rows arrow.RecordBatch, keys int64) error {
	for first := int64(0); first < keys; first += filledBy {
		for at := first; at < min(first+filledBy, keys); {
			n := min(rows.NumRows(), first+filledBy-at, keys-at)
			if err := u.write(ctx, underKeys(rows.NewSlice(0, n), func(i int64) int64 { return at + i })); err != nil {
				return err
			}
			at += n
		}
		if err := u.commit(ctx); err != nil {
			return err
		}
	}
	return nil
}

// appendTen appends the batches ten times, under new keys from first on, in one file.
func appendTen(ctx context.Context, disk *store.Disk, batches []arrow.RecordBatch, first int64) error {
	snap, err := snapshot(ctx, disk)
	if err != nil {
		return err
	}
	var all []arrow.RecordBatch
	for range 10 {
		for _, rec := range batches {
			all = append(all, underKeys(rec, func(i int64) int64 { return first + i }))
			first += rec.NumRows()
		}
	}
	_, err = commit(ctx, snap, &delta.WriterOptions{TargetFileBytes: targetFileBytes}, all...)
	return err
}

func newUpserter(ctx context.Context, disk *store.Disk, index, mode string, keys int64, rows *arrow.Schema) (
	*upserter, error) {
	opts := *upsertModes[mode]
	opts.TargetFileBytes = targetFileBytes
	opts.Key.Columns, opts.Key.IndexDir = []string{keyColumn}, index
	folder := strings.TrimPrefix(disk.URL(), "file://")
	open := func(table string) (store.Store, error) {
		return store.NewDisk(folder + strings.TrimPrefix(table, "t"))
	}
	main := lake.NewTarget(open, "bench.upsert", &opts)
	u := &upserter{target: main, folders: []string{folder}, mode: mode, keys: keys, last: -1,
		lane: freshet.Lane{Origin: "orders", OriginID: "1", Name: "0"}}
	if mode == "log" {
		log := lake.NewTarget(open, "bench.upsert", lake.ChangeLogOptions(&opts))
		u.folders = append(u.folders, folder+"_log")
		u.target = lake.NewGroup(main, lake.Beside{Target: log, Name: func(table string) string { return table + "_log" }})
	}
	if err := u.target.Open(ctx); err != nil {
		return nil, err
	}
	if err := u.target.Ensure(ctx, "t", rows); err != nil {
		return nil, err
	}
	known, err := u.target.Resume(ctx, "t", []freshet.Lane{u.lane})
	if err != nil {
		return nil, err
	}
	if last, ok := known[u.lane]; ok {
		u.last = last
		return u, nil
	}
	_, err = u.target.Start(ctx, "t", freshet.Progress{u.lane: u.last})
	return u, err
}

// step brings the batches in by so many commits and tells what that took.
func (u *upserter) step(ctx context.Context, name string, commits int, batches ...arrow.RecordBatch) error {
	before, err := u.written()
	if err != nil {
		return err
	}
	return step(name, func() (map[string]any, error) {
		for part := range slices.Chunk(batches, len(batches)/commits) {
			for _, rec := range part {
				if err := u.write(ctx, rec); err != nil {
					return nil, err
				}
			}
			if err := u.commit(ctx); err != nil {
				return nil, err
			}
		}
		after, err := u.written()
		return map[string]any{"commits": commits, "written_mb": float64(after-before) / 1e6}, err
	})
}

// written is the bytes of all files of the table, and of its change log, but for those of their logs.
func (u *upserter) written() (bytes int64, err error) {
	for _, folder := range u.folders {
		faults := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "_delta_log":
				return filepath.SkipDir
			case d.IsDir():
				return nil
			}
			info, err := d.Info()
			if err == nil {
				bytes += info.Size()
			}
			return err
		})
		err = errors.Join(err, faults)
	}
	return bytes, err
}

// write hands over rows as changes of the mode.
func (u *upserter) write(ctx context.Context, rows arrow.RecordBatch) error {
	n := rows.NumRows()
	rows.Retain() // the target releases what it is given
	b := &freshet.Batch{Table: "t", Lane: u.lane, After: u.last, Last: u.last + n, Rows: rows}
	for i := range n {
		b.Seqs = append(b.Seqs, u.last+i+1)
	}
	u.last = b.Last
	ids := rows.Column(rows.Schema().FieldIndices(keyColumn)[0]).(*array.Int64)
	switch u.mode {
	case "sequence", "scd2":
		b.Rows = later(rows, b.Last)
	case "soft": // every tenth is gone
		for i := range int(n) {
			b.Kinds = append(b.Kinds, freshet.UpdatePostimage)
			if i%10 == 0 {
				b.Kinds[i] = freshet.Delete
			}
		}
	case "mask": // of rows that are there, the columns behind the fourth were not sent
		b.Unsent = freshet.NewMask(int(rows.NumCols()))
		for i := range int(n) {
			for c := 4; ids.Value(i) < u.keys && c < int(rows.NumCols()); c++ {
				b.Unsent.Mark(i, c)
			}
		}
	}
	rejected, err := u.target.Write(ctx, b)
	if err == nil && rejected > 0 {
		err = fmt.Errorf("%d rows were refused", rejected)
	}
	return err
}

func (u *upserter) commit(ctx context.Context) error {
	commits, err := u.target.Seal(ctx)
	if err != nil {
		return err
	}
	for _, c := range commits {
		if _, err := c.Run(ctx); err != nil {
			return err
		}
	}
	return nil
}

// replaced is the rows with other values in a column.
func replaced(rows arrow.RecordBatch, name string, by arrow.Array) arrow.RecordBatch {
	at := rows.Schema().FieldIndices(name)[0]
	columns := append([]arrow.Array(nil), rows.Columns()...)
	columns[at] = by
	return array.NewRecordBatch(rows.Schema(), columns, rows.NumRows())
}

// elsewhere is the rows under random keys of the table.
func elsewhere(rows arrow.RecordBatch, random *rand.Rand, keys int64) arrow.RecordBatch {
	return underKeys(rows, func(int64) int64 { return random.Int64N(keys) })
}

func underKeys(rows arrow.RecordBatch, key func(row int64) int64) arrow.RecordBatch {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	for i := range rows.NumRows() {
		b.Append(key(i))
	}
	return replaced(rows, keyColumn, b.NewArray())
}

// later is the rows with a sequence behind all that came before.
func later(rows arrow.RecordBatch, by int64) arrow.RecordBatch {
	was := rows.Column(rows.Schema().FieldIndices(sequenceColumn)[0]).(*array.Timestamp)
	b := array.NewTimestampBuilder(memory.DefaultAllocator, was.DataType().(*arrow.TimestampType))
	for i := range was.Len() {
		b.Append(was.Value(i) + arrow.Timestamp(by+1)*arrow.Timestamp(time.Hour.Microseconds()))
	}
	return replaced(rows, sequenceColumn, b.NewArray())
}
