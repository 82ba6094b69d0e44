package delta

import (
	"context"
	"fmt"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"
	"golang.org/x/sync/errgroup"
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
