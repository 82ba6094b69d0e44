package lake

import (
	"context"
	"errors"
	"maps"
	"sync"

	"golang.org/x/sync/errgroup"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// maxSeals is how many tables' files are closed at once.
const maxSeals = 8

// Pending is what is written and not sealed.
func (a *Target) Pending() (rows, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range a.tables {
		rows += t.rows
		if t.rejects != nil {
			rows += t.rejects.w.Rows()
			bytes += t.rejects.w.Bytes()
		}
		for _, w := range t.writers() {
			bytes += w.Bytes()
		}
		if t.keyed != nil {
			bytes += gatheredWeight * t.keyed.size()
		}
		parkedRows, parkedBytes := t.park.pending()
		rows, bytes = rows+parkedRows, bytes+parkedBytes
	}
	return rows, bytes
}

func (t *table) writers() []*delta.Writer {
	all := t.full[:len(t.full):len(t.full)]
	if t.writer != nil {
		all = append(all, t.writer)
	}
	return all
}

// Seal closes the files of every table that has something to commit.
func (a *Target) Seal(ctx context.Context) ([]freshet.Commit, error) {
	var mu sync.Mutex
	var commits []freshet.Commit
	var faults []error
	var closing errgroup.Group
	closing.SetLimit(maxSeals)
	for _, t := range a.known() {
		if !t.written() {
			continue
		}
		closing.Go(func() error {
			c, err := t.sealAll(ctx)
			if err != nil {
				t.discard()
				err = explain(t.name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				faults = append(faults, err)
			} else if c != nil {
				commits = append(commits, c)
			}
			return nil
		})
	}
	_ = closing.Wait() // faults tell
	if a.cuts != nil {
		tellGroup(commits)
	}
	return commits, errors.Join(faults...)
}

// written reports whether there is something to seal.
func (t *table) written() bool { return len(t.lanes) > 0 || t.park != nil && len(t.park.lanes) > 0 }

// sealAll is seal of what was written to the table and of what was parked of it: both, where only some of its lanes have come
// to be parked meanwhile; nil where there is nothing of either.
func (t *table) sealAll(ctx context.Context) (freshet.Commit, error) {
	var own *commit
	if len(t.lanes) > 0 {
		var err error
		files, calm := t.hurry(ctx)
		own, err = t.seal(files)
		if err = t.failed(ctx, explain(t.name, calm(err))); err != nil {
			return nil, err
		}
	}
	parks, err := t.park.seal(ctx)
	switch {
	case err != nil && own != nil:
		own.Abort()
		return nil, err
	case err != nil:
		return nil, err
	case own != nil && parks != nil:
		return &groupCommit{table: t.name, commits: []groupMember{{parks, false}, {own, false}}}, nil
	case parks != nil:
		return parks, nil
	case own != nil:
		return own, nil
	}
	return nil, nil
}

func (t *table) seal(ctx context.Context) (*commit, error) {
	c := &commit{t: t, schema: t.schema, from: t.from, lanes: t.lanes, rows: t.rows, writers: t.writers(), keyed: t.keyed,
		late: t.late, steady: t.steady}
	for _, w := range c.writers {
		adds, err := w.Close(ctx)
		if err != nil {
			return nil, err
		}
		c.adds = append(c.adds, adds...)
	}
	if t.writer != nil {
		var err error
		if t.meta, err = t.meta.WithHighWater(t.writer.IdentityHighWater()); err != nil {
			return nil, err
		}
	}
	c.meta = t.meta
	if t.rejects != nil {
		if err := t.sealRejects(ctx, c); err != nil {
			return nil, err
		}
	}
	for _, add := range c.adds {
		c.bytes += add.Size
	}
	t.forget()
	return c, nil
}

// forget begins anew after what was written has gone elsewhere.
func (t *table) forget() {
	if t.files != nil {
		t.endFiles(nil)
		t.files = nil
	}
	t.writer, t.full, t.keyed, t.lanes, t.steady, t.rejects, t.rows, t.late = nil, nil, nil, nil, nil, nil, 0, 0
}

// Discard drops what was written of the table and not sealed.
func (a *Target) Discard(table string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if t, ok := a.tables[table]; ok {
		t.discard()
	}
}

// discard drops what is written, and what was known of the table's schema with it.
func (t *table) discard() {
	writers := t.writers()
	if t.rejects != nil {
		writers = append(writers, t.rejects.w)
	}
	t.a.tend.abort(writers)
	if t.keyed != nil {
		t.keyed.release()
	}
	t.park.discard()
	t.forget()
	t.schema, t.last = nil, nil
}

// progress is where the lanes end.
func ends(lanes map[freshet.Lane]*stretch) freshet.Progress {
	p := make(freshet.Progress, len(lanes))
	for l, s := range lanes {
		p[l] = s.last
	}
	return maps.Clone(p)
}
