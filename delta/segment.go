package delta

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/store"
)

// latest stands for the newest version.
const latest = math.MaxInt64

// commitsAtOnce is how many commits are fetched side by side.
const commitsAtOnce = 8

// checkpointFile is one checkpoint: a Parquet or JSON file, or all parts of a multi-part one.
type checkpointFile struct {
	version int64
	files   []store.Object
	json    bool
	bytes   int64
	// logBytes is the snapshot's logBytes at the checkpoint's version.
	logBytes int64
}

// segment is what a listing found of the log: the newest usable checkpoint, and the commits from its version
// on.
type segment struct {
	checkpoint *checkpointFile // nil when the commits have to do
	commits    []store.Object  // ascending, from the checkpoint's version or the listing's beginning on
	first      int64           // version of the first commit, -1 when there is none
	last       int64           // the newest version known, -1 when there is none
	modified   time.Time       // of the newest version's commit; zero when it was not listed
	compacted  []compactedFile // of versions after the checkpoint
	checksum   *store.Object   // the newest .crc; nil when there is none
	summed     int64           // the version of checksum
}

// list reads the log's listing over the versions [from, to] and passes over checkpoints in broken.
func (t *Table) list(ctx context.Context, from, to int64, broken map[string]bool) (*segment, error) {
	seg := &segment{first: -1, last: -1}
	after := logDir
	if from > 0 {
		after = versionPrefix(from)
	}
	var found candidates
	for o, err := range t.st.List(ctx, logDir, after) {
		if err != nil {
			return nil, fmt.Errorf("list the log: %w", err)
		}
		if o.Key[len(logDir)] > '9' { // behind all that begins with a version
			break
		}
		f := parseLogKey(o.Key)
		if f.kind == logOther {
			continue
		}
		if f.version > to {
			break
		}
		if f.version != found.version {
			seg.take(found.best(broken))
			found = candidates{version: f.version}
		}
		switch f.kind {
		case logCheckpoint:
			found.add(f, o)
		case logCompacted:
			if f.last <= to {
				seg.compacted = append(seg.compacted, compactedFile{f.version, f.last, o.Key})
			}
		case logChecksum:
			seg.checksum, seg.summed = &o, f.version
		case logCommit:
			seg.take(found.best(broken))
			seg.addCommit(f.version, o)
			found = candidates{version: f.version}
		}
	}
	seg.take(found.best(broken))
	return seg, nil
}

// take adopts a checkpoint, which is newer than all before; what lies before it is no longer needed.
func (s *segment) take(c *checkpointFile) {
	if c == nil {
		return
	}
	s.checkpoint, s.commits, s.first = c, nil, -1
	if c.version > s.last {
		s.last, s.modified = c.version, time.Time{}
	}
}

func (s *segment) addCommit(version int64, o store.Object) {
	if s.first < 0 {
		s.first = version
	}
	s.commits = append(s.commits, o)
	s.last, s.modified = version, o.Modified
}

// candidates are the checkpoint files of one version.
type candidates struct {
	version int64
	single  []*checkpointFile
	parts   map[int][]store.Object // of multi-part checkpoints, by how many there are to be
}

func (c *candidates) add(f logFile, o store.Object) {
	if f.parts > 0 {
		if c.parts == nil {
			c.parts = map[int][]store.Object{}
		}
		c.parts[f.parts] = append(c.parts[f.parts], o)
		return
	}
	c.single = append(c.single,
		&checkpointFile{version: f.version, files: []store.Object{o}, json: f.json, bytes: o.Size})
}

// best chooses among checkpoints of one version, always alike: the classic one, whose name comes last, then
// the others from the last name to the first, then complete multi-part ones, fewest parts first.
func (c *candidates) best(broken map[string]bool) *checkpointFile {
	for i := len(c.single) - 1; i >= 0; i-- {
		if !broken[c.single[i].files[0].Key] {
			return c.single[i]
		}
	}
	for _, n := range sortedInts(c.parts) {
		files := c.parts[n]
		if len(files) != n || broken[files[0].Key] {
			continue
		}
		f := &checkpointFile{version: c.version, files: files}
		for _, o := range files {
			f.bytes += o.Size
		}
		return f
	}
	return nil
}

// segmentFor finds the newest usable checkpoint not newer than version, and the commits after it. It lists
// only what it must: from the checkpoint that _last_checkpoint names, or in growing steps back from the
// version.
func (t *Table) segmentFor(ctx context.Context, version int64, broken map[string]bool) (*segment, error) {
	if version == latest {
		hint, ok, err := t.readLastCheckpoint(ctx)
		if err != nil {
			return nil, err
		}
		if ok && hint.Version > 0 {
			seg, err := t.list(ctx, hint.Version, latest, broken)
			if err != nil || seg.checkpoint != nil {
				return seg, err
			}
		}
		return t.list(ctx, 0, latest, broken)
	}
	for width := int64(100); ; width *= 10 {
		from := max(version-width, 0)
		seg, err := t.list(ctx, from, version, broken)
		if err != nil {
			return nil, err
		}
		if from == 0 || seg.checkpoint != nil {
			return seg, t.lookBeyond(ctx, seg, version)
		}
	}
}

// lookBeyond adds a wanted version that a listing which lags behind did not show.
func (t *Table) lookBeyond(ctx context.Context, seg *segment, version int64) error {
	if seg.last >= version || seg.last < 0 {
		return nil
	}
	o, err := t.st.Stat(ctx, commitKey(version))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for version %d of the log: %w", version, err)
	}
	seg.last, seg.modified = version, o.Modified
	return nil
}

// commitData is the text of one commit.
type commitData struct {
	version int64
	data    []byte
}

// fetchCommits yields the commits from one version to another, inclusive, upwards or downwards, fetching a
// few side by side. A missing one is store.ErrNotFound.
func (t *Table) fetchCommits(ctx context.Context, from, to int64) iter.Seq2[commitData, error] {
	step := int64(1)
	if to < from {
		step = -1
	}
	return func(yield func(commitData, error) bool) {
		for left := (to-from)*step + 1; left > 0; {
			n := min(left, commitsAtOnce)
			batch := make([]commitData, n)
			group, gctx := errgroup.WithContext(ctx)
			for i := range batch {
				v := from + int64(i)*step
				group.Go(func() error {
					data, err := t.getCommit(gctx, v)
					batch[i] = commitData{v, data}
					return err
				})
			}
			if err := group.Wait(); err != nil {
				yield(commitData{}, err)
				return
			}
			for _, c := range batch {
				if !yield(c, nil) {
					return
				}
			}
			from, left = from+n*step, left-n
		}
	}
}

func (t *Table) getCommit(ctx context.Context, version int64) ([]byte, error) {
	data, err := t.st.Get(ctx, commitKey(version))
	if err != nil {
		return nil, fmt.Errorf("read version %d of the log: %w", version, err)
	}
	return data, nil
}

// badCheckpointError says that a checkpoint cannot be used, so that an older one or the commits must do.
type badCheckpointError struct {
	file *checkpointFile
	err  error
}

func (e *badCheckpointError) Error() string {
	return fmt.Sprintf("checkpoint of version %d: %v", e.file.version, e.err)
}

func (e *badCheckpointError) Unwrap() error { return e.err }

// unusable reports whether an error of reading a checkpoint condemns the checkpoint, and not the store or the
// caller.
func unusable(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, store.ErrNotFound)
}
