package delta

import (
	"context"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// originBytes is the memory of one run of rows that is remembered.
const originBytes = 24

// write reads the rows of the job's files and writes them in the order of the curve, as the files of one cube. Where
// the rows come from is remembered within the memory that the options allow, so that others may delete rows meanwhile.
func (l *layout) write(ctx context.Context, r *optimizer, j *job, w *Writer) (done *rewritten, err error) {
	all, err := r.snap.drawRanks(ctx, j.files, l.paths, l.bits())
	if err != nil {
		return nil, err
	}
	s := &sorter{memory: r.opts.MemoryBytes, dir: r.opts.SpillDir, chunk: j.chunk(r.opts.TargetFileBytes)}
	defer s.close()
	if err := l.fill(ctx, r, j, s, all); err != nil {
		return nil, err
	}
	from := &tracer{most: int(r.opts.MemoryBytes / 4 / originBytes)}
	err = s.drain(ctx, func(rec arrow.RecordBatch) error {
		n := int(rec.NumCols()) - len(sortColumns)
		from.add(rec.Column(n+1).(*array.Int32), rec.Column(n+2).(*array.Int64))
		plain := array.NewRecordBatch(arrow.NewSchema(rec.Schema().Fields()[:n], nil), rec.Columns()[:n], rec.NumRows())
		defer plain.Release()
		return w.Write(ctx, plain)
	})
	if err != nil {
		return nil, err
	}
	adds, err := w.Close(ctx)
	if err != nil {
		return nil, err
	}
	l.mark(adds)
	done = &rewritten{job: j, adds: adds, rows: w.Rows()}
	if from.runs != nil {
		done.origins, err = from.runs.split(adds)
	}
	return done, err
}

// chunk is how many rows of the job a writer should get at once, so that it can end a file close to its target.
func (j *job) chunk(targetBytes int64) int {
	if j.rows <= 0 {
		return sortedRows
	}
	return int(min(max(targetBytes/16*j.rows/max(j.live, 1), 64), sortedRows))
}

// fill reads all rows into the sorter, each with its place on the curve.
func (l *layout) fill(ctx context.Context, r *optimizer, j *job, s *sorter, all []*ranks) error {
	var bytesBefore []int64 // of the files before
	var sum int64
	for i := range j.files {
		bytesBefore = append(bytesBefore, sum)
		sum += j.files[i].Size
	}
	columns := make([][]uint32, len(all))
	point := make([]uint32, len(all))
	for rows, err := range r.snap.ScanFiles(ctx, j.files, r.snap.rewriteScan()) {
		if err != nil {
			return err
		}
		n := int(rows.Batch.NumRows())
		for c := range all {
			columns[c] = slices.Grow(columns[c][:0], n)[:n]
			if err := all[c].of(rows.Batch, columns[c]); err != nil {
				return err
			}
		}
		places := make([]uint64, n)
		for i := range places {
			for c := range columns {
				point[c] = columns[c][i]
			}
			places[i] = l.place(point)
		}
		rec := extend(rows, places)
		rows.Batch.Release()
		read := bytesBefore[rows.File] + j.files[rows.File].Size
		if err := s.add(rec, float64(read)/float64(max(sum, 1))); err != nil {
			return err
		}
	}
	return nil
}

// tracer remembers where rows come from, until that is too much.
type tracer struct {
	runs origins
	most int
	full bool
}

func (t *tracer) add(files *array.Int32, rows *array.Int64) {
	if t.full {
		return
	}
	for i := range files.Len() {
		t.runs.run(int(files.Value(i)), rows.Value(i), 1)
	}
	if len(t.runs) > t.most {
		t.runs, t.full = nil, true
	}
}
