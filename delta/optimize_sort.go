package delta

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/expr"
)

const (
	// mostBuckets is how many files wait on disk at once.
	mostBuckets = 256
	// sortedRows is how many rows are handed to the writer at once, at most.
	sortedRows = 32 << 10
)

// sorter puts rows in the order of a curve. As long as they fit into memory they stay there; from then on they are
// dealt out to buckets on disk, which are stretches of the curve, and each bucket is sorted by itself.
//
//	batch ─▶ + place, file, row ─▶ held ──full──▶ buckets on disk ──one by one──▶ sort ─▶ writer
type sorter struct {
	memory  int64
	chunk   int    // rows that emit gets at once
	dir     string // of buckets
	total   int64  // about the bytes of all rows, to choose the number of buckets by
	held    []arrow.RecordBatch
	bytes   int64 // of held
	cuts    []uint64
	buckets []*bucket
}

// bucket is the rows of a stretch of the curve, on disk. Its file has no name, so that it ends with the process, however that
// does.
type bucket struct {
	file   *os.File
	writer *ipc.Writer
	rows   int64
}

// The columns that travel with the rows while they are sorted.
var sortColumns = []arrow.Field{
	{Name: "place", Type: arrow.PrimitiveTypes.Uint64},
	{Name: "file", Type: arrow.PrimitiveTypes.Int32},
	{Name: "row", Type: arrow.PrimitiveTypes.Int64},
}

// extend adds the columns that say where rows belong and where they come from.
func extend(rows FileRows, places []uint64) arrow.RecordBatch {
	n := len(places)
	files, at := array.NewInt32Builder(memory.DefaultAllocator), array.NewInt64Builder(memory.DefaultAllocator)
	place := array.NewUint64Builder(memory.DefaultAllocator)
	defer files.Release()
	defer at.Release()
	defer place.Release()
	place.AppendValues(places, nil)
	at.AppendValues(rows.Rows, nil)
	files.Reserve(n)
	for range n {
		files.UnsafeAppend(int32(rows.File))
	}
	fields := append(slices.Clone(rows.Batch.Schema().Fields()), sortColumns...)
	extra := []arrow.Array{place.NewArray(), files.NewArray(), at.NewArray()}
	columns := append(slices.Clone(rows.Batch.Columns()), extra...)
	rec := array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, int64(n))
	for _, a := range extra {
		a.Release()
	}
	return rec
}

// add takes a batch of extend. share is which part of all rows has come with it.
func (s *sorter) add(rec arrow.RecordBatch, share float64) error {
	if s.buckets != nil {
		defer rec.Release()
		return s.deal(rec)
	}
	s.held = append(s.held, rec)
	if s.bytes += recordBytes(rec); s.bytes <= s.memory {
		return nil
	}
	s.total = int64(float64(s.bytes) / max(share, 1e-6))
	return s.spill()
}

func recordBytes(rec arrow.RecordBatch) (n int64) {
	for _, c := range rec.Columns() {
		n += int64(c.Data().SizeInBytes())
	}
	return n
}

// spill opens the buckets, about four of which would fill the memory, and deals out what is held.
func (s *sorter) spill() (err error) {
	n := int(min(max(4*s.total/s.memory, 2), mostBuckets))
	s.cuts = cutPlaces(s.held, n)
	for range len(s.cuts) + 1 {
		f, err := os.CreateTemp(s.dir, "freshet-optimize-*")
		if err != nil {
			return fmt.Errorf("open a file for rows that do not fit into memory: %w", err)
		}
		_ = os.Remove(f.Name()) // where this is refused, close tries again
		s.buckets = append(s.buckets, &bucket{file: f, writer: ipc.NewWriter(f, ipc.WithSchema(s.held[0].Schema()))})
	}
	held := s.held
	s.held, s.bytes = nil, 0
	for i, rec := range held {
		if err == nil {
			err = s.deal(rec)
		}
		rec.Release()
		held[i] = nil
	}
	return err
}

// cutPlaces cuts the curve into n stretches with about as many of these rows each.
func cutPlaces(held []arrow.RecordBatch, n int) []uint64 {
	var places []uint64
	for _, rec := range held {
		places = append(places, placesOf(rec)...)
	}
	slices.Sort(places)
	var cuts []uint64
	for k := 1; k < n; k++ {
		if at := places[k*len(places)/n]; at > 0 && (len(cuts) == 0 || at != cuts[len(cuts)-1]) {
			cuts = append(cuts, at)
		}
	}
	return cuts
}

func placesOf(rec arrow.RecordBatch) []uint64 {
	return rec.Column(int(rec.NumCols()) - len(sortColumns)).(*array.Uint64).Uint64Values()
}

// deal writes each row into its bucket.
func (s *sorter) deal(rec arrow.RecordBatch) error {
	spans := make([][]expr.Span, len(s.buckets))
	for i, p := range placesOf(rec) {
		b := rankOf(s.cuts, p)
		if n := len(spans[b]); n > 0 && spans[b][n-1].To == i {
			spans[b][n-1].To++
		} else {
			spans[b] = append(spans[b], expr.Span{From: i, To: i + 1})
		}
	}
	for i, b := range s.buckets {
		if len(spans[i]) == 0 {
			continue
		}
		part := expr.TakeBatch(rec, spans[i])
		err := b.writer.Write(part)
		b.rows += part.NumRows()
		part.Release()
		if err != nil {
			return fmt.Errorf("write rows that do not fit into memory: %w", err)
		}
	}
	return nil
}

// drain hands the rows in their order to emit, which does not keep them.
func (s *sorter) drain(ctx context.Context, emit func(arrow.RecordBatch) error) error {
	if s.buckets == nil {
		held := s.held
		s.held = nil
		return s.sort(ctx, held, emit)
	}
	for _, b := range s.buckets {
		if err := s.drainBucket(ctx, b, emit); err != nil {
			return err
		}
	}
	return nil
}

// drainBucket reads a bucket back. One that turns out larger than the memory, because many rows have the same place, is
// sorted piece by piece.
func (s *sorter) drainBucket(ctx context.Context, b *bucket, emit func(arrow.RecordBatch) error) (err error) {
	if err := b.writer.Close(); err != nil {
		return fmt.Errorf("write rows that do not fit into memory: %w", err)
	}
	if _, err := b.file.Seek(0, 0); err != nil {
		return err
	}
	r, err := ipc.NewReader(b.file)
	if err != nil {
		return fmt.Errorf("read rows that did not fit into memory: %w", err)
	}
	defer r.Release()
	var held []arrow.RecordBatch
	var bytes, rows int64
	for r.Next() {
		rec := r.RecordBatch()
		rec.Retain()
		held = append(held, rec)
		rows += rec.NumRows()
		if bytes += recordBytes(rec); bytes > s.memory {
			if err := s.sort(ctx, held, emit); err != nil {
				return err
			}
			held, bytes = nil, 0
		}
	}
	if err := r.Err(); err != nil {
		return fmt.Errorf("read rows that did not fit into memory: %w", err)
	}
	if err := s.sort(ctx, held, emit); err != nil {
		return err
	}
	if rows != b.rows {
		return fmt.Errorf("%d rows went to disk, %d came back", b.rows, rows)
	}
	return b.close()
}

func (b *bucket) close() error {
	err := b.file.Close()
	_ = os.Remove(b.file.Name())
	return err
}

// close gives back memory and disk.
func (s *sorter) close() {
	for _, rec := range s.held {
		rec.Release()
	}
	for _, b := range s.buckets {
		_ = b.close() // those that were read are closed, the others are of no use
	}
}

// sort sorts the rows of some batches, whose release it sees to, and hands them to emit.
func (s *sorter) sort(ctx context.Context, held []arrow.RecordBatch, emit func(arrow.RecordBatch) error) error {
	if len(held) == 0 {
		return nil
	}
	rec, err := expr.ConcatBatches(held)
	for _, part := range held {
		part.Release()
	}
	if err != nil {
		return fmt.Errorf("sort rows: %w", err)
	}
	defer rec.Release()
	places := placesOf(rec)
	order := make([]int32, len(places))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		switch {
		case places[a] < places[b]:
			return -1
		case places[a] > places[b]:
			return 1
		}
		return int(a) - int(b)
	})
	for part := range slices.Chunk(order, s.chunk) {
		if err := ctx.Err(); err != nil {
			return err
		}
		sorted := expr.TakeBatch(rec, expr.SpansOf(part))
		err := emit(sorted)
		sorted.Release()
		if err != nil {
			return err
		}
	}
	return nil
}
