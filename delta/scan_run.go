package delta

import (
	"context"
	"fmt"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/expr"
)

// scanned is what the reader of a file hands over: rows, already filtered, or the error that ended it.
type scanned struct {
	FileRows
	err error
}

// run reads files ahead of the consumer: list starts one reader a file, in order, and this goroutine, the only one that
// calls yield, empties them in the same order.
func (p *scanPlan) run(ctx context.Context, wanted iter.Seq2[wantedFile, error], yield func(FileRows, error) bool) {
	ctx, cancel := context.WithCancel(ctx)
	files := make(chan chan scanned, p.opts.Concurrency)
	var g errgroup.Group
	g.Go(func() error {
		defer close(files)
		p.list(ctx, wanted, files)
		return nil
	})
	p.consume(files, yield)
	cancel()
	for f := range files { // what was read ahead and is not wanted any more
		for s := range f {
			if s.Batch != nil {
				s.Batch.Release()
			}
		}
	}
	_ = g.Wait() // it is nil: errors go through the channels
}

// list starts the readers of the files. Each has a channel of its own in files, whose capacity bounds how many there are
// at once.
func (p *scanPlan) list(ctx context.Context, wanted iter.Seq2[wantedFile, error], files chan<- chan scanned) {
	var readers errgroup.Group
	defer func() { _ = readers.Wait() }() // nil, too
	for add, err := range wanted {
		f := make(chan scanned, 1)
		select {
		case files <- f:
		case <-ctx.Done():
			return
		}
		if err != nil {
			f <- scanned{err: err}
			close(f)
			return
		}
		readers.Go(func() error {
			defer close(f)
			p.readInto(ctx, add, f)
			return nil
		})
	}
}

func (p *scanPlan) readInto(ctx context.Context, file wantedFile, f chan<- scanned) {
	send := func(s scanned) bool {
		select {
		case f <- s:
			return true
		case <-ctx.Done():
			if s.Batch != nil {
				s.Batch.Release()
			}
			return false
		}
	}
	err := p.readFile(ctx, file, func(batch arrow.RecordBatch, rows []int64) error {
		if !send(scanned{FileRows: FileRows{batch, file.index, rows}}) {
			return ctx.Err()
		}
		return nil
	})
	if err != nil {
		send(scanned{err: fmt.Errorf("read %s: %w", file.Path, err)})
	}
}

// consume passes the batches of the files on until they end, the limit is reached or the consumer has enough.
func (p *scanPlan) consume(files <-chan chan scanned, yield func(FileRows, error) bool) {
	left := p.opts.Limit
	for f := range files {
		for s := range f {
			if s.err != nil {
				yield(FileRows{}, fmt.Errorf("scan table: %w", s.err))
				return
			}
			rows := s.FileRows
			if p.opts.Limit > 0 && rows.Batch.NumRows() > left {
				rows = rows.first(left)
			}
			left -= rows.Batch.NumRows()
			if !yield(rows, nil) || p.opts.Limit > 0 && left == 0 {
				return
			}
		}
	}
}

// first cuts the batch down to its first n rows.
func (r FileRows) first(n int64) FileRows {
	defer r.Batch.Release()
	r.Batch = r.Batch.NewSlice(0, n)
	if r.Rows != nil {
		r.Rows = r.Rows[:n]
	}
	return r
}

// finish cuts a batch of read, which begins at row from of its file, down to the rows and columns asked for; nil when no
// row is left. live are the rows that no deletion vector names.
func (p *scanPlan) finish(ctx context.Context, batch arrow.RecordBatch, live []expr.Span, from int64) (
	arrow.RecordBatch, []int64, error) {
	batch = take(batch, live)
	defer func() { batch.Release() }()
	var positions []int64
	if p.positions {
		positions = spanRows(live, from)
	}
	if p.where != nil && batch.NumRows() > 0 {
		kept, err := p.where.Rows(ctx, batch)
		if err != nil {
			return nil, nil, err
		}
		if p.positions && expr.CountRows(kept) < len(positions) {
			positions = takeRows(positions, kept)
		}
		batch = take(batch, kept)
	}
	if batch.NumRows() == 0 {
		return nil, nil, nil
	}
	return array.NewRecordBatch(p.result, pick(batch.Columns(), p.out), batch.NumRows()), positions, nil
}

// take is expr.TakeBatch of a batch that is given up.
func take(batch arrow.RecordBatch, spans []expr.Span) arrow.RecordBatch {
	defer batch.Release()
	return expr.TakeBatch(batch, spans)
}

// spanRows are the numbers of the rows in spans, from on.
func spanRows(spans []expr.Span, from int64) []int64 {
	rows := make([]int64, 0, expr.CountRows(spans))
	for _, s := range spans {
		for i := s.From; i < s.To; i++ {
			rows = append(rows, from+int64(i))
		}
	}
	return rows
}

func takeRows(rows []int64, spans []expr.Span) []int64 {
	kept := make([]int64, 0, expr.CountRows(spans))
	for _, s := range spans {
		kept = append(kept, rows[s.From:s.To]...)
	}
	return kept
}
