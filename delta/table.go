package delta

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/freshet-io/freshet/store"
)

// DefaultEngineInfo is what commits say of their writer unless OpenOptions say otherwise.
const DefaultEngineInfo = "Freshet"

const (
	// staleAfter is the age from which a snapshot is not trusted to be followed by the next version: log
	// cleanup may have emptied the slot.
	staleAfter = 10 * time.Minute
	// probes is how many new commits are fetched one after another before a listing tells how many there are.
	probes = 8
	// leapVersions is how far behind a snapshot must be for a newer checkpoint to be the shorter way.
	leapVersions = 100
)

// OpenOptions tune Open. The zero value of each field means its default.
type OpenOptions struct {
	// EngineInfo names the writer in commits: "Freshet/1.2". Default DefaultEngineInfo.
	EngineInfo string
	// Outside returns a store for a file outside of the table's folder, which the log names by an absolute path, or by
	// one that climbs up with "..": data files and deletion vectors of shallow clones. url is absolute and decoded:
	// "file:///lake/orders/part-0.parquet", "s3://bucket/key"; a bare path is taken to lie in the table's own file
	// system or bucket. The URL of the store that is returned must be a folder above. It is called for each such file,
	// from several goroutines at once, and decides how far a log that somebody else wrote may reach: name the folders
	// that are allowed. Default: such files are refused with an *UnsupportedError.
	Outside func(ctx context.Context, url string) (store.Store, error)
}

// Table is a Delta table at the root of a store. It remembers the newest snapshot it has seen, so that
// looking again costs the new commits only. It is safe for concurrent use.
type Table struct {
	st      store.Store
	engine  string
	outside func(ctx context.Context, url string) (store.Store, error)
	unread  bool // only the log is of interest: no table is refused for what readers must know

	mu     sync.Mutex
	newest *Snapshot
}

// Open finds the table at the root of st and reads its newest version. Errors: ErrNoTable, ErrCorrupt,
// ErrUnsupportedFeature.
func Open(ctx context.Context, st store.Store, opts *OpenOptions) (*Table, error) {
	t := newTable(st, opts)
	if _, err := t.Snapshot(ctx); err != nil {
		return nil, err
	}
	return t, nil
}

// OpenAt opens the table at st at a version, and looks at none after it: also where a later one is damaged. Errors: as
// Open; ErrVersionNotFound, with the versions that there are.
func OpenAt(ctx context.Context, st store.Store, version int64, opts *OpenOptions) (*Snapshot, error) {
	return newTable(st, opts).SnapshotAt(ctx, version)
}

func newTable(st store.Store, opts *OpenOptions) *Table {
	t := &Table{st: st, engine: DefaultEngineInfo}
	if opts != nil {
		t.engine, t.outside = cmp.Or(opts.EngineInfo, t.engine), opts.Outside
	}
	return t
}

// Store is where the table lies.
func (t *Table) Store() store.Store { return t.st }

// Snapshot returns the newest version. After the first time it asks the store for new commits only: one
// request when there are none. Errors: as Open.
func (t *Table) Snapshot(ctx context.Context) (*Snapshot, error) {
	snap := t.remembered()
	if snap == nil {
		loaded, err := t.load(ctx, latest)
		if err != nil {
			return nil, err
		}
		snap = loaded
	}
	snap, err := t.advance(ctx, snap)
	if err != nil {
		return nil, err
	}
	return t.remember(snap), nil
}

func (t *Table) remembered() *Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.newest
}

// remember keeps the snapshot if it is newer than the one that is kept, and returns the newer one. Whichever
// it is, it begins from the newest checkpoint that is known.
func (t *Table) remember(s *Snapshot) *Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	old := t.newest
	if old == nil {
		t.newest = s
		return s
	}
	if s.version > old.version || s.version == old.version && s.verified.After(old.verified) {
		s, old = old, s
	}
	t.newest = old.from(s.checkpoint)
	if t.newest.files == nil && s.files != nil && s.version == t.newest.version {
		counted := *t.newest
		counted.files = s.files
		t.newest = &counted
	}
	return t.newest
}

// from is the snapshot read from another checkpoint, if that is newer than its own.
func (s *Snapshot) from(c *checkpointFile) *Snapshot {
	if c == nil || c.version > s.version || c.version <= s.CheckpointVersion() {
		return s
	}
	fresh := *s
	fresh.checkpoint = c
	return &fresh
}

// advance returns the newest version, given one that is perhaps older.
func (t *Table) advance(ctx context.Context, snap *Snapshot) (*Snapshot, error) {
	b := snap.extend()
	var verified time.Time
	for hits := 0; ; hits++ {
		if hits == probes {
			return t.leap(ctx, snap, b)
		}
		verified = time.Now()
		data, err := t.getCommit(ctx, b.version+1)
		if errors.Is(err, store.ErrNotFound) {
			break
		}
		if err != nil {
			return nil, err
		}
		if err := b.commit(b.version+1, commitKey(b.version+1), data); err != nil {
			return nil, err
		}
	}
	if b.version == snap.version {
		if snap.stale() {
			return t.recheck(ctx, snap)
		}
		s := *snap
		s.verified = verified
		return &s, nil
	}
	return b.finish(snap, verified)
}

func (b *builder) finish(before *Snapshot, verified time.Time) (*Snapshot, error) {
	s, err := b.snapshot(before)
	if err != nil {
		return nil, err
	}
	s.verified = verified
	return s, nil
}

// leap catches up when there is more than a few commits to catch up with.
func (t *Table) leap(ctx context.Context, snap *Snapshot, b *builder) (*Snapshot, error) {
	verified := time.Now()
	seg, err := t.list(ctx, b.version+1, latest, nil)
	if err != nil {
		return nil, err
	}
	if c := seg.checkpoint; c != nil && c.version > b.version+leapVersions {
		s, err := t.load(ctx, latest)
		if err != nil {
			return nil, err
		}
		return t.advance(ctx, s)
	}
	if seg.last > b.version {
		for c, err := range t.fetchCommits(ctx, b.version+1, seg.last) {
			if errors.Is(err, store.ErrNotFound) {
				return t.load(ctx, latest)
			}
			if err != nil {
				return nil, err
			}
			if err := b.commit(c.version, commitKey(c.version), c.data); err != nil {
				return nil, err
			}
		}
	}
	s, err := b.finish(snap, verified)
	if err != nil {
		return nil, err
	}
	return t.advance(ctx, s)
}

// recheck makes sure by a listing that nothing follows an old snapshot: its successor may have come and have
// been cleaned away since, so that its absence says nothing.
func (t *Table) recheck(ctx context.Context, snap *Snapshot) (*Snapshot, error) {
	verified := time.Now()
	seg, err := t.list(ctx, snap.version+1, latest, nil)
	if err != nil {
		return nil, err
	}
	if seg.last > snap.version {
		return t.load(ctx, latest)
	}
	if _, err := t.st.Stat(ctx, commitKey(snap.version)); errors.Is(err, store.ErrNotFound) {
		return t.load(ctx, latest) // the table was deleted, or made anew
	} else if err != nil {
		return nil, err
	}
	s := *snap
	s.verified = verified
	return &s, nil
}

// stale reports whether too much time has passed since the snapshot was known to be the newest. Both clocks
// count: the monotonic one stands still while a machine sleeps, the other may be set back.
func (s *Snapshot) stale() bool {
	now := time.Now()
	return max(now.Sub(s.verified), now.Round(0).Sub(s.verified.Round(0))) > staleAfter
}

func sortedInts[V any](m map[int]V) []int { return slices.Sorted(maps.Keys(m)) }
