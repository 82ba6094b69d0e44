package lake

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
)

// pruneEvery is after how many commits of tombstones it is looked whether some are older than they need to be. They then go
// when an eighth of what is kept is too old, so that a tombstone is seldom written again.
const (
	pruneEvery = 64
	pruneSlack = 8
	// pruneSample is how many sequences tell, where a number of tombstones is kept, which is the least of these.
	pruneSample = 100_000
)

// pruner forgets tombstones beyond their horizon.
type pruner struct {
	commits int    // of tombstones; of the goroutine that commits, as the next
	newest  []byte // the greatest sequence that a change had
}

// saw takes note of sequences of changes, one after another.
func (p *pruner) saw(sequences []byte, width int) {
	for one := range slices.Chunk(sequences, width) {
		if bytes.Compare(one, p.newest) > 0 {
			p.newest = bytes.Clone(one)
		}
	}
}

// due has the tombstones pruned from time to time, off the path of commits.
func (p *pruner) due(r *rowIndex) {
	if p.commits++; p.commits%pruneEvery != 0 {
		return
	}
	s, t := r.t.tombstones, r.t.a.tend
	newest := r.sequence.values(p.newest)
	column := newest[0]
	for _, c := range newest[1:] {
		c.Release()
	}
	name := r.columns[r.keys]
	t.mu.Lock()
	defer t.mu.Unlock()
	t.add(func(ctx context.Context) {
		defer column.Release()
		if err := s.prune(ctx, name, column); err != nil && ctx.Err() == nil {
			t.retry("prune "+s.name, err)
		}
	})
}

// prune forgets tombstones beyond the horizon. newest is the greatest value that the column, the first of the sequence, had
// in a change.
func (s *tombstones) prune(ctx context.Context, column string, newest arrow.Array) error {
	snap, err := s.look(ctx)
	if err != nil || snap == nil {
		return err
	}
	horizon, slack := s.horizon(newest)
	if horizon == nil {
		if horizon, err = s.horizonOfCount(ctx, snap, column); horizon == nil {
			return err
		}
		slack = horizon
		slack.Retain()
	}
	defer horizon.Release()
	defer slack.Release()
	below := func(at arrow.Array) *expr.Expr {
		if v, ok := expr.Literal(at, 0); ok {
			return expr.Compare("<", expr.Name(column), v)
		}
		return nil
	}
	old, older := below(horizon), below(slack)
	if old == nil || older == nil {
		return nil
	}
	for _, err := range snap.Matching(ctx, older) {
		if err == nil {
			_, err = snap.Table().Delete(ctx, old, nil)
		}
		return err
	}
	return nil
}

// horizon is the time below which tombstones are forgotten, and that below which one must be for it to be done; nil when the
// sequence does not begin with a time.
func (s *tombstones) horizon(newest arrow.Array) (horizon, slack arrow.Array) {
	keep := cmp.Or(s.opts.Keep, defaultKeep)
	more := keep / pruneSlack
	switch a := newest.(type) {
	case *array.Timestamp:
		one := func(back time.Duration) arrow.Array {
			b := array.NewTimestampBuilder(memory.DefaultAllocator, a.DataType().(*arrow.TimestampType))
			defer b.Release()
			b.Append(a.Value(0) - arrow.Timestamp(back.Microseconds()))
			return b.NewArray()
		}
		return one(keep), one(keep + more)
	case *array.Date32:
		one := func(back time.Duration) arrow.Array {
			b := array.NewDate32Builder(memory.DefaultAllocator)
			defer b.Release()
			b.Append(a.Value(0) - arrow.Date32((back+24*time.Hour-1)/(24*time.Hour)))
			return b.NewArray()
		}
		return one(keep), one(keep + more)
	}
	return nil, nil
}

// horizonOfCount is the value from which on as many tombstones lie as are kept, of a table that has clearly more.
func (s *tombstones) horizonOfCount(ctx context.Context, snap *delta.Snapshot, column string) (arrow.Array, error) {
	var rows int64
	for add, err := range snap.Files(ctx, &delta.FilesOptions{Stats: true}) {
		if err != nil {
			return nil, err
		}
		n, _ := add.PhysicalRows()
		rows += n
	}
	kept := cmp.Or(s.opts.KeepCount, defaultKeepCount)
	if rows <= kept+kept/pruneSlack {
		return nil, nil
	}
	f, _ := snap.Schema().Lookup(column)
	one, err := newSequencer([]arrow.DataType{delta.ArrowType(f.Type)})
	if err != nil {
		return nil, err
	}
	step, row := max(1, rows/pruneSample), int64(0)
	var sample []byte
	for rec, err := range snap.Scan(ctx, &delta.ScanOptions{Columns: []string{column}}) {
		if err != nil {
			return nil, err
		}
		texts := one.append(nil, rec.Columns(), int(rec.NumRows()))
		rec.Release()
		for text := range slices.Chunk(texts, one.width) {
			if row++; row%step == 0 {
				sample = append(sample, text...)
			}
		}
	}
	all := slices.Collect(slices.Chunk(sample, one.width))
	slices.SortFunc(all, bytes.Compare)
	if n := int64(len(all)) - (kept+step-1)/step; n > 0 {
		return one.values(all[n])[0], nil
	}
	return nil, nil
}
