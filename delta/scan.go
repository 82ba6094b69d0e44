package delta

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/expr"
)

// ScanOptions say what a scan reads. The zero value of each field means its default.
type ScanOptions struct {
	// Columns are the columns to return, in this order, their case ignored. Default: all.
	Columns []string
	// Where keeps the rows for which it is true. Files are left out by their partition values and statistics. Default:
	// all rows.
	Where *expr.Expr
	// Limit is how many rows to return at most. Default 0: no limit.
	Limit int64
	// Concurrency is how many files are read at once. Default: the number of processors.
	Concurrency int
	// BatchRows bounds the rows of a batch. Default 32,768.
	BatchRows int
}

// Scan yields the rows of the snapshot as record batches of the columns that were asked for, with the types of
// Schema.Arrow. Rows of one file come in its order; files come in the order of Files, which is none. Batches are not
// empty, and belong to the caller, who releases them. The scan ends with the first error. Memory: about a row group and
// two batches a file that is read at once. Errors: ErrCorrupt, *UnsupportedError, *expr.Error, *expr.RowErrors of the
// condition, errors of the store.
func (s *Snapshot) Scan(ctx context.Context, opts *ScanOptions) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		if s.Metadata().SchemaString == "" {
			yield(nil, corrupt("the metadata in force at version %d names no columns", s.Version()))
			return
		}
		p, err := newScanPlan(s, opts)
		if err != nil {
			yield(nil, fmt.Errorf("scan table: %w", err))
			return
		}
		p.run(ctx, yield)
	}
}

// scanPlan is a scan that has been checked against the table.
type scanPlan struct {
	snap    *Snapshot
	opts    ScanOptions
	mapping mapping
	read    []Field       // what files give: the columns asked for and those of the condition
	schema  *arrow.Schema // of read
	out     []int         // the places in read of the columns asked for
	result  *arrow.Schema
	where   *expr.Bound // bound to schema; nil: none
	parts   map[string]bool
}

func newScanPlan(s *Snapshot, opts *ScanOptions) (*scanPlan, error) {
	p := &scanPlan{snap: s, mapping: mappingOf(s.Metadata().Configuration), parts: make(map[string]bool)}
	if opts != nil {
		p.opts = *opts
	}
	if p.opts.Concurrency <= 0 {
		p.opts.Concurrency = runtime.GOMAXPROCS(0)
	}
	if p.opts.BatchRows <= 0 {
		p.opts.BatchRows = 32 << 10
	}
	for _, name := range s.PartitionColumns() {
		p.parts[strings.ToLower(name)] = true
	}
	if err := p.choose(); err != nil {
		return nil, err
	}
	return p, p.bind()
}

// choose fills read and out with the columns that were asked for.
func (p *scanPlan) choose() error {
	schema := p.snap.Schema()
	if p.opts.Columns == nil {
		p.read = append(p.read, schema.Fields...)
	}
	for _, name := range p.opts.Columns {
		f, _ := schema.Lookup(name)
		if f == nil {
			return fmt.Errorf("column %q: the table has no such column; its columns are %s", name, columnList(schema))
		}
		p.read = append(p.read, *f)
	}
	p.result = arrow.NewSchema(arrowFields(p.read), nil)
	for i := range p.read {
		p.out = append(p.out, i)
	}
	return nil
}

func columnList(s *Schema) string {
	names := make([]string, len(s.Fields))
	for i, f := range s.Fields {
		names[i] = f.Name
	}
	return strings.Join(names, ", ")
}

// bind checks the condition and adds its columns to those that are read.
func (p *scanPlan) bind() error {
	p.schema = p.result
	if p.opts.Where == nil {
		return nil
	}
	whole, err := p.opts.Where.BindCondition(p.snap.Schema().Arrow())
	if err != nil {
		return err
	}
	for _, name := range whole.Columns() {
		if f, _ := lookupField(p.read, name); f == nil {
			f, _ := p.snap.Schema().Lookup(name)
			p.read = append(p.read, *f)
		}
	}
	p.schema = arrow.NewSchema(arrowFields(p.read), nil)
	p.where, err = p.opts.Where.BindCondition(p.schema)
	return err
}

// scanned is what the reader of a file hands over: a batch of rows, already filtered, or the error that ended it.
type scanned struct {
	batch arrow.RecordBatch
	err   error
}

// run reads files ahead of the consumer: list starts one reader a file, in order, and this goroutine, the only one that
// calls yield, empties them in the same order.
func (p *scanPlan) run(ctx context.Context, yield func(arrow.RecordBatch, error) bool) {
	ctx, cancel := context.WithCancel(ctx)
	files := make(chan chan scanned, p.opts.Concurrency)
	var g errgroup.Group
	g.Go(func() error {
		defer close(files)
		p.list(ctx, files)
		return nil
	})
	p.consume(files, yield)
	cancel()
	for f := range files { // what was read ahead and is not wanted any more
		for s := range f {
			if s.batch != nil {
				s.batch.Release()
			}
		}
	}
	_ = g.Wait() // it is nil: errors go through the channels
}

// list starts the readers of the files that may have rows of interest. Each has a channel of its own in files, whose
// capacity bounds how many there are at once.
func (p *scanPlan) list(ctx context.Context, files chan<- chan scanned) {
	var readers errgroup.Group
	defer func() { _ = readers.Wait() }() // nil, too
	stats := p.where != nil && p.needsStats()
	for add, err := range p.snap.Files(ctx, &FilesOptions{Stats: stats}) {
		if err == nil && !p.mayMatch(add) {
			continue
		}
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

func (p *scanPlan) readInto(ctx context.Context, add *Add, f chan<- scanned) {
	send := func(s scanned) bool {
		select {
		case f <- s:
			return true
		case <-ctx.Done():
			if s.batch != nil {
				s.batch.Release()
			}
			return false
		}
	}
	err := p.readFile(ctx, add, func(b arrow.RecordBatch) error {
		if !send(scanned{batch: b}) {
			return ctx.Err()
		}
		return nil
	})
	if err != nil {
		send(scanned{err: fmt.Errorf("read %s: %w", add.Path, err)})
	}
}

// consume passes the batches of the files on until they end, the limit is reached or the consumer has enough.
func (p *scanPlan) consume(files <-chan chan scanned, yield func(arrow.RecordBatch, error) bool) {
	left := p.opts.Limit
	for f := range files {
		for s := range f {
			if s.err != nil {
				yield(nil, fmt.Errorf("scan table: %w", s.err))
				return
			}
			batch := s.batch
			if p.opts.Limit > 0 && batch.NumRows() > left {
				batch = s.batch.NewSlice(0, left)
				s.batch.Release()
			}
			left -= batch.NumRows()
			if !yield(batch, nil) || p.opts.Limit > 0 && left == 0 {
				return
			}
		}
	}
}

// finish filters a batch of read and cuts it down to the columns asked for; nil when no row is left.
func (p *scanPlan) finish(ctx context.Context, batch arrow.RecordBatch) (arrow.RecordBatch, error) {
	defer batch.Release()
	if p.where != nil {
		filtered, err := p.where.Filter(ctx, batch)
		if err != nil {
			if filtered != nil {
				filtered.Release()
			}
			return nil, err
		}
		defer filtered.Release()
		batch = filtered
	}
	if batch.NumRows() == 0 {
		return nil, nil
	}
	return array.NewRecordBatch(p.result, pick(batch.Columns(), p.out), batch.NumRows()), nil
}
