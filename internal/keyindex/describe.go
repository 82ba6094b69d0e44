package keyindex

import (
	"context"
	"fmt"
	"slices"
)

// Info describes an index without reading its entries.
type Info struct {
	Identity
	Version     int64
	Files       int
	Runs        []Run  // from the newest to the oldest
	Entries     uint64 // of all runs, superseded ones and deleted keys too
	SizeBytes   uint64 // of all runs on disk
	MemoryBytes uint64 // of the filters
	MergeErr    error  // why the last merge in the background failed, from which look-ups do not suffer
}

// Run describes one run.
type Run struct {
	Name      string // of the file
	Entries   uint64
	SizeBytes uint64
	Filtered  bool
}

// Describe tells what the index is made of. Errors: ErrDone.
func (x *Index) Describe() (Info, error) {
	s, err := x.acquire()
	if err != nil {
		return Info{}, err
	}
	defer x.release(s)
	x.mu.Lock()
	info := Info{Identity: x.identity, Version: s.version, Files: len(s.files), MergeErr: x.mergeErr}
	x.mu.Unlock()
	info.Columns = slices.Clone(info.Columns)
	for _, r := range s.runs {
		info.Runs = append(info.Runs, Run{runName(r.id), r.entries, r.size, r.filterSize > 0})
		info.Entries += r.entries
		info.SizeBytes += r.size
		info.MemoryBytes += r.filterSize
	}
	return info, nil
}

// Inspect tells what the index of a folder is made of by its manifest alone, whether or not a process has it open. What
// filters it has, and the memory that they take, the manifest does not say. Errors: ErrNone, ErrCorrupt.
func Inspect(dir string) (Info, error) {
	m, err := readManifest(dir)
	if err != nil {
		return Info{}, fmt.Errorf("inspect key index: %w", err)
	}
	info := Info{Identity: m.identity, Version: m.version, Files: len(m.files)}
	for _, r := range m.runs {
		info.Runs = append(info.Runs, Run{Name: runName(r.id), Entries: r.entries, SizeBytes: r.size})
		info.Entries += r.entries
		info.SizeBytes += r.size
	}
	return info, nil
}

// Entries visits every key that has a position, in the order of fingerprints, until visit fails. The sequence is valid
// during the visit. Errors: ErrCorrupt, ErrDone; of the context; of visit.
func (x *Index) Entries(ctx context.Context, visit func(key Fingerprint, at Position, seq []byte) error) error {
	s, err := x.acquire()
	if err != nil {
		return err
	}
	defer x.release(s)
	return guarded(func() error {
		u, err := newUnion(s.runs)
		if err != nil {
			return err
		}
		return u.each(ctx, func(key Fingerprint, at Position, seq []byte) error {
			if at.File == Tombstone || !s.live.has(at.File) {
				return nil
			}
			return visit(key, at, seq)
		})
	})
}

// Checked is what Check has counted.
type Checked struct {
	Keys       uint64 // that have a position
	Buried     uint64 // that have a tombstone
	Gone       uint64 // whose newest entry is a deletion, or lies in a file that was removed
	Superseded uint64 // entries that have a newer one of their key
}

// Check reads every entry and proves that each run is as it was written and in order. That the index says of
// each key what the table says is for the caller to check, with Lookup; that Keys is the number of rows shows
// that it holds no others. Errors: ErrCorrupt, ErrDone; of the context.
func (x *Index) Check(ctx context.Context) (Checked, error) {
	s, err := x.acquire()
	if err != nil {
		return Checked{}, err
	}
	defer x.release(s)
	var c Checked
	for _, r := range s.runs {
		c.Superseded += r.entries
		if err := guarded(func() error { return r.checkAll(ctx, s.nextFile) }); err != nil {
			return Checked{}, fmt.Errorf("check key index: %w", err)
		}
	}
	err = guarded(func() error {
		u, err := newUnion(s.runs)
		if err != nil {
			return err
		}
		return u.each(ctx, func(_ Fingerprint, at Position, _ []byte) error {
			c.Superseded--
			switch {
			case at.File == Tombstone:
				c.Buried++
			case s.live.has(at.File):
				c.Keys++
			default:
				c.Gone++
			}
			return nil
		})
	})
	if err != nil {
		return Checked{}, fmt.Errorf("check key index: %w", err)
	}
	return c, nil
}

// checkAll proves that the run's records are in order, are found where look-ups search for them, and lie in
// files that have been.
func (r *run) checkAll(ctx context.Context, next FileID) error {
	filter, err := r.filter()
	if err != nil {
		return err
	}
	c := &cursor{run: r}
	var last Fingerprint
	for n := uint64(0); ; n++ {
		more, err := c.next()
		switch {
		case err != nil:
			return err
		case !more && n != r.entries:
			return r.corrupt("it has %d entries, wanted %d", n, r.entries)
		case !more:
			return nil
		case n%4096 == 0 && ctx.Err() != nil:
			return ctx.Err()
		case n > 0 && last.compare(c.fp) >= 0 || r.bucketOf(c.fp.Hi) != c.bucket-1:
			return r.corrupt("entry %d is out of order", n)
		case r.position(c.records).File >= next && r.position(c.records).File != Tombstone:
			return r.corrupt("entry %d lies in file %d, wanted one below %d", n, r.position(c.records).File, next)
		case filter != nil && !filter.has(c.fp.Hi):
			return r.corrupt("the filter does not know entry %d", n)
		}
		last = c.fp
	}
}
