package keyindex

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

const (
	mergeFanout   = 4       // runs of one size that become one of the next
	mergeSmallest = 1 << 12 // entries; smaller runs count as this large
	mergeGarbage  = 3       // all becomes one when the newer runs have 1/3 of the entries of the oldest
	mergeMost     = 24      // runs
)

// dueMerge tells how many of the runs, from the newest on, should become one: 0 when none should. Sizes are
// in entries, from the newest to the oldest. Runs of about one size are merged by fours, so that an entry is
// written again once for each fourfold growth, and a batch looks into some three runs of each size. The
// oldest run, which holds nearly all, is written again only when much of it must have been superseded.
func dueMerge(sizes []uint64) int {
	n := len(sizes)
	if n < 2 {
		return 0
	}
	var newer uint64
	for _, s := range sizes[:n-1] {
		newer += s
	}
	if newer >= sizes[n-1]/mergeGarbage {
		return n
	}
	due := 0
	largest, alike := -1, 0
	for i, s := range sizes[:n-1] {
		switch c := sizeClass(s); {
		case c > largest:
			largest, alike = c, 1
		case c == largest:
			alike++
		}
		if alike >= mergeFanout {
			due = i + 1
		}
	}
	if n > mergeMost {
		return n - 1
	}
	return due
}

// sizeClass counts in powers of the fanout.
func sizeClass(entries uint64) int { return bits.Len64(max(entries, mergeSmallest)) / 2 }

func (x *Index) wakeMerger() {
	select {
	case x.wake <- struct{}{}:
	default: // it has been told
	}
}

// mergeInBackground merges what is due, until the context ends. A merge that fails is tried again after the
// next change.
func (x *Index) mergeInBackground(ctx context.Context) {
	defer close(x.done)
	for {
		select {
		case <-ctx.Done():
			return
		case <-x.wake:
		}
		for more := true; more; {
			var err error
			more, err = x.mergeDue(ctx)
			x.mu.Lock()
			x.mergeErr = err
			x.mu.Unlock()
		}
	}
}

// mergeDue does one merge that is due; more is false when there was none, or it failed.
func (x *Index) mergeDue(ctx context.Context) (more bool, err error) {
	x.merges.Lock()
	defer x.merges.Unlock()
	s, err := x.acquire()
	if err != nil {
		return false, nil
	}
	defer x.release(s)
	var sizes []uint64
	for _, r := range s.runs {
		sizes = append(sizes, r.entries)
	}
	n := dueMerge(sizes)
	if n == 0 {
		return false, nil
	}
	err = x.merge(ctx, s, n)
	return err == nil, err
}

// Merge makes all runs one, without the entries that no look-up answers with, and returns when it is done. It
// is never needed; it costs the reading and writing of the whole index. Errors: ErrCorrupt, ErrDone; of the
// disk; of the context.
func (x *Index) Merge(ctx context.Context) error {
	x.merges.Lock()
	defer x.merges.Unlock()
	s, err := x.acquire()
	if err != nil {
		return err
	}
	defer x.release(s)
	if len(s.runs) == 0 {
		return nil
	}
	return x.merge(ctx, s, len(s.runs))
}

// merge makes one run of the newest n of the state. The caller holds merges, so that only newer runs can come
// meanwhile.
func (x *Index) merge(ctx context.Context, s *state, n int) error {
	info, err := x.writeMerged(ctx, s, n)
	if err != nil {
		return fmt.Errorf("merge %d runs of the key index %s: %w", n, x.dir, err)
	}
	x.commit.Lock()
	defer x.commit.Unlock()
	x.mu.Lock()
	now := x.state
	x.mu.Unlock()
	next := *now.manifest
	from := len(now.runs) - len(s.runs)
	runs := slices.Delete(slices.Clone(now.runs), from, from+n)
	next.runs = slices.Delete(slices.Clone(now.manifest.runs), from, from+n)
	if info.entries > 0 {
		r, err := openRun(x.dir, next.index, info)
		if err != nil {
			return err
		}
		runs, next.runs = slices.Insert(runs, from, r), slices.Insert(next.runs, from, info)
	}
	return x.install(&next, runs)
}

// writeMerged writes the run that the newest n become; one of no entries when none is left. What has no
// position is kept, as long as an older run may hold a position of the same key.
func (x *Index) writeMerged(ctx context.Context, s *state, n int) (runInfo, error) {
	var most uint64
	var p place
	for _, r := range s.runs[:n] {
		most, p = most+r.entries, p.with(r.place)
	}
	w, err := newRunWriter(x.dir, s.index, x.takeRunID(), most, p, s.identity.SequenceBytes)
	if err != nil {
		return runInfo{}, err
	}
	oldest := n == len(s.runs)
	err = guarded(func() error {
		u, err := newUnion(s.runs[:n])
		if err != nil {
			return err
		}
		return u.each(ctx, func(fp Fingerprint, at Position, seq []byte) error {
			if !s.live.has(at.File) {
				if oldest {
					return nil
				}
				at = Position{}
			}
			return w.add(fp, at, seq)
		})
	})
	if err != nil {
		return runInfo{}, errors.Join(err, w.discard())
	}
	if w.foot.entries == 0 {
		return runInfo{}, w.discard()
	}
	return w.finish()
}
