package delta

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
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
// are made from these. Memory: the file actions of a few commits, 128 bits of each of those since the last
// checkpoint, and one row group of the checkpoint. Errors: ErrCorrupt, ErrVersionNotFound when log cleanup
// has taken a part of the snapshot's log. Spec: "Action Reconciliation".
func (s *Snapshot) Files(ctx context.Context, opts *FilesOptions) iter.Seq2[*Add, error] {
	want := kindAdd
	if opts != nil && opts.Stats {
		want |= kindStats
	}
	return s.sieved(ctx, want, nil)
}

// sieved is Files without adds that a sieve leaves out.
func (s *Snapshot) sieved(ctx context.Context, want kinds, sieve *statsSieve) iter.Seq2[*Add, error] {
	return func(yield func(*Add, error) bool) {
		for a, err := range s.reconcile(ctx, want, sieve) {
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
// what the commits said before is looked up. A sieve may leave out adds.
func (s *Snapshot) reconcile(ctx context.Context, want kinds, sieve *statsSieve) iter.Seq2[Action, error] {
	return func(yield func(Action, error) bool) {
		var seen fileSet
		from := int64(0)
		if s.checkpoint != nil {
			from = s.checkpoint.version + 1
		}
		if from <= s.version {
			pieces := logPieces(from, s.version, s.compacted)
			slices.Reverse(pieces)
			seen.open(s.filesSinceCheckpoint())
			for c, err := range s.table.fetchPieces(ctx, pieces, true) {
				if err == nil {
					err = yieldNewest(c, want, &seen, yield)
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
		for a, err := range s.table.readCheckpoint(ctx, s.checkpoint, want, sieve) {
			if err != nil {
				yield(Action{}, s.gone(err))
				return
			}
			if (len(seen.keys) == 0 || !seen.has(a.fileKey())) && !yield(a, nil) {
				return
			}
		}
	}
}

// filesSinceCheckpoint guesses how many files the commits since the checkpoint name, by their bytes.
func (s *Snapshot) filesSinceCheckpoint() int {
	const bytesPerFile, most = 512, 1 << 20
	bytes := s.logBytes
	if s.checkpoint != nil {
		bytes -= s.checkpoint.logBytes
	}
	return int(min(max(bytes, 0)/bytesPerFile, most))
}

var errStop = errors.New("the caller wants no more")

// Actions of a commit are held until its last one is known, as long as they are few, or not much larger than their text.
const (
	heldActions = 1 << 14
	heldBytes   = 150 // of the log, for an action beyond heldActions
)

// yieldNewest yields the file actions of a piece of the log that no newer one speaks of; the last of a commit
// counts.
func yieldNewest(c logPiece, want kinds, seen *fileSet, yield func(Action, error) bool) error {
	var actions []Action
	for a, err := range parseLog(c.key, c.data, want|kindFiles) {
		if err != nil {
			return err
		}
		if len(actions) >= heldActions && len(actions) > len(c.data)/heldBytes {
			actions = nil
			return yieldLast(c, want, seen, yield)
		}
		actions = append(actions, a)
	}
	for _, a := range slices.Backward(actions) {
		if seen.add(a.fileKey()) && a.kinds()&want != 0 && !yield(a, nil) {
			return errStop
		}
	}
	return nil
}

// yieldLast is yieldNewest for pieces of very many tiny actions: it reads them twice, and holds where each file comes last.
func yieldLast(c logPiece, want kinds, seen *fileSet, yield func(Action, error) bool) error {
	last, n := make(map[[2]uint64]int), 0
	for a, err := range parseLog(c.key, c.data, kindFiles) {
		if err != nil {
			return err
		}
		last[seen.hash(a.fileKey())] = n
		n++
	}
	n = -1
	for a, err := range parseLog(c.key, c.data, want|kindFiles) {
		if err != nil {
			return err
		}
		if n++; last[seen.hash(a.fileKey())] != n {
			continue
		}
		if seen.add(a.fileKey()) && a.kinds()&want != 0 && !yield(a, nil) {
			return errStop
		}
	}
	return nil
}

// fileSet is a set of files. It holds 128 bits of each file's key, under seeds of its own: two files are not
// taken for one, not even by design of who names them. The zero value is empty; it takes files once it is
// open.
type fileSet struct {
	seeds [2]maphash.Seed
	keys  map[[2]uint64]struct{}
}

// open makes room for n files.
func (f *fileSet) open(n int) {
	f.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	f.keys = make(map[[2]uint64]struct{}, n)
}

func (f *fileSet) hash(key fileKey) (h [2]uint64) {
	for i, seed := range f.seeds {
		h[i] = maphash.Comparable(seed, key)
	}
	return h
}

func (f *fileSet) has(key fileKey) bool {
	_, ok := f.keys[f.hash(key)]
	return ok
}

// add reports whether the file was not there.
func (f *fileSet) add(key fileKey) bool {
	before := len(f.keys)
	f.keys[f.hash(key)] = struct{}{}
	return len(f.keys) > before
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
