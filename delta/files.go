package delta

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/freshet-io/freshet/store"
)

// FilesOptions tune Files. The zero value of each field means its default.
type FilesOptions struct {
	Stats bool // read statistics too; without it Add.Stats is ""
}

// Files yields the live files of the snapshot in no order, one Add per (path, deletion vector id). Every Add
// is the caller's. Stats are "" when the writer left none; where a checkpoint has them as columns only, they
// are made from these. A checkpoint that turns out to be broken is passed over in favour of an older one or the commits.
// Memory: the file actions of a few commits, 128 bits of each of those since the last
// checkpoint, and one row group of the checkpoint. Errors: ErrCorrupt, ErrVersionNotFound when log cleanup
// has taken a part of the snapshot's log; *ChecksumError when the version's .crc knows it otherwise, at the end for what it
// tells of files. Spec: "Action Reconciliation".
func (s *Snapshot) Files(ctx context.Context, opts *FilesOptions) iter.Seq2[*Add, error] {
	want := kindAdd
	if opts != nil && opts.Stats {
		want |= kindStats
	}
	return s.sieved(ctx, want, nil)
}

// sieved is Files without adds that a sieve leaves out; then files are not compared with the .crc, since not all are seen.
func (s *Snapshot) sieved(ctx context.Context, want kinds, sieve *statsSieve) iter.Seq2[*Add, error] {
	return func(yield func(*Add, error) bool) {
		a, err := s.audit(ctx)
		if err != nil {
			yield(nil, s.gone(err))
			return
		}
		for add, err := range s.listed(ctx, want, sieve, a) {
			if err == nil {
				a.take(add)
			}
			if !yield(add, err) || err != nil {
				return
			}
		}
		if sieve != nil {
			return
		}
		if err := a.end(); err != nil {
			yield(nil, s.gone(err))
		}
	}
}

// listed is sieved that leaves it to the caller to compare files with the .crc; commits are compared by the audit.
func (s *Snapshot) listed(ctx context.Context, want kinds, sieve *statsSieve, audited *audit) iter.Seq2[*Add, error] {
	return func(yield func(*Add, error) bool) {
		for a, err := range s.reconcile(ctx, want, sieve, audited) {
			if err != nil {
				yield(nil, err)
				return
			}
			if a.Add != nil && !yield(a.Add, nil) {
				return
			}
		}
	}
}

// reconcile yields the newest action of each file: adds of live files, and removes where they are wanted. It
// goes from the newest commit to the oldest and then through the checkpoint, whose actions are not kept: only
// what the commits said before is looked up. A sieve may leave out adds. Each commit is compared by the audit, which may be
// nil, before any of it is yielded.
func (s *Snapshot) reconcile(ctx context.Context, want kinds, sieve *statsSieve, audited *audit) iter.Seq2[Action, error] {
	return func(yield func(Action, error) bool) {
		n := newest{want: want, sieve: sieve, audit: audited}
		from := int64(0)
		if s.checkpoint != nil {
			from = s.checkpoint.version + 1
		}
		if from <= s.version {
			pieces := logPieces(from, s.version, s.compacted)
			slices.Reverse(pieces)
			bytes := s.bytesSinceCheckpoint()
			n.seen.open(filesIn(bytes))
			for c, err := range s.table.fetchPieces(ctx, pieces, bytes, true) {
				if err == nil {
					err = audited.commit(&c)
				}
				if err == nil {
					err = n.yield(c, yield)
				}
				if errors.Is(err, errStop) {
					return
				}
				if err != nil {
					yield(Action{}, s.gone(err))
					return
				}
			}
		}
		if s.checkpoint == nil {
			return
		}
		read := 0
		for a, err := range s.table.readCheckpoint(ctx, s.checkpoint, want, sieve) {
			if err != nil {
				if !s.instead(ctx, &n, read, err, yield) {
					yield(Action{}, s.gone(err))
				}
				return
			}
			read++
			if !n.seen.has(a.fileKey()) && !yield(a, nil) {
				return
			}
		}
	}
}

// instead yields what a checkpoint did not tell that broke after so many actions: the same version comes from an older one, or
// from none, and the commits since. It reports false, and has yielded nothing, where that cannot be. Only sidecars, and pages
// of file actions, break so late: what is damaged otherwise is passed over when the table is opened.
func (s *Snapshot) instead(ctx context.Context, n *newest, read int, cause error, yield func(Action, error) bool) bool {
	if !unusable(cause) || ctx.Err() != nil {
		return false
	}
	older, err := s.table.loadWithout(ctx, s.checkpoint.version, s.checkpoint)
	if err != nil {
		return false
	}
	if n.seen.slots == nil {
		n.seen.open(read)
	}
	if read > 0 { // what was yielded is not known any more
		for a, err := range s.table.readCheckpoint(ctx, s.checkpoint, n.want, n.sieve) {
			if err != nil {
				return false
			}
			n.seen.add(n.seen.hash(a.fileKey()))
			if read--; read == 0 {
				break
			}
		}
	}
	for a, err := range older.reconcile(ctx, n.want, n.sieve, n.audit) {
		if err != nil {
			yield(Action{}, err)
			return true
		}
		if !n.seen.has(a.fileKey()) && !yield(a, nil) {
			return true
		}
	}
	return true
}

// bytesSinceCheckpoint is what the commits since the checkpoint weigh, as far as it is known.
func (s *Snapshot) bytesSinceCheckpoint() int64 {
	if s.checkpoint == nil {
		return s.logBytes
	}
	return max(s.logBytes-s.checkpoint.logBytes, 0)
}

// filesIn guesses how many files so many bytes of commits name.
func filesIn(bytes int64) int {
	const bytesPerFile, most = 512, 1 << 20
	return int(min(bytes/bytesPerFile, most))
}

var errStop = errors.New("the caller wants no more")

// Actions of a commit are held until its last one is known, as long as they are few, or not much larger than their text.
const (
	heldActions = 1 << 14
	heldBytes   = 150 // of the log, for an action beyond heldActions
)

// newest finds the newest action of each file in pieces of the log, which are given from the newest to the
// oldest.
type newest struct {
	want    kinds
	sieve   *statsSieve
	audit   *audit
	seen    fileSet
	actions []fileAction // of a piece
}

// fileAction is what a piece of the log says of a file. An action that nobody wants is left out.
type fileAction struct {
	file   fileHash
	add    *Add
	remove *Remove
}

// yield yields the file actions of a piece of the log that no newer one speaks of; the last of a commit counts.
func (n *newest) yield(c logPiece, yield func(Action, error) bool) error {
	r := newLogReader(c.data, n.want|kindFiles, n.sieve)
	n.actions = n.actions[:0]
	defer func() { clear(n.actions) }()
	for a, err := range r.actions(c.key) {
		if err != nil {
			return err
		}
		if len(n.actions) >= heldActions && len(n.actions) > len(c.data)/heldBytes {
			n.actions = nil
			return n.yieldLast(c, yield)
		}
		f := fileAction{file: n.seen.hash(a.fileKey())}
		if a.kinds()&n.want != 0 && (a.Add == nil || !r.ruledOut) { // else it only hides what came before
			f.add, f.remove = a.Add, a.Remove
		}
		n.actions = append(n.actions, f)
	}
	for i := len(n.actions) - 1; i >= 0; i-- { // in a loop of its own, look-ups wait for memory side by side
		if f := &n.actions[i]; !n.seen.add(f.file) {
			f.add, f.remove = nil, nil
		}
	}
	for i := len(n.actions) - 1; i >= 0; i-- {
		f := &n.actions[i]
		if (f.add != nil || f.remove != nil) && !yield(Action{Add: f.add, Remove: f.remove}, nil) {
			return errStop
		}
	}
	return nil
}

// yieldLast is yield for pieces of very many tiny actions: it reads them twice, and holds where each file comes last.
func (n *newest) yieldLast(c logPiece, yield func(Action, error) bool) error {
	last, at := make(map[fileHash]int), 0
	for a, err := range parseLog(c.key, c.data, kindFiles) {
		if err != nil {
			return err
		}
		last[n.seen.hash(a.fileKey())] = at
		at++
	}
	at = -1
	for a, err := range parseLog(c.key, c.data, n.want|kindFiles) {
		if err != nil {
			return err
		}
		file := n.seen.hash(a.fileKey())
		if at++; last[file] != at {
			continue
		}
		if n.seen.add(file) && a.kinds()&n.want != 0 && !yield(a, nil) {
			return errStop
		}
	}
	return nil
}

func (a *Action) fileKey() fileKey {
	if a.Add != nil {
		return a.Add.key()
	}
	return a.Remove.key()
}

// gone explains why a part of the snapshot's log is missing.
func (s *Snapshot) gone(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("version %d can no longer be read, log cleanup has taken part of its log; open the "+
			"table again: %w: %w", s.version, ErrVersionNotFound, err)
	}
	return fmt.Errorf("files of version %d: %w", s.version, err)
}
