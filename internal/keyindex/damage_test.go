package keyindex_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/freshet-io/freshet/internal/keyindex"
)

// damaged is an index of two runs, its keys and what they are found at.
func damaged(t *testing.T) (dir string, keys []keyindex.Fingerprint, want []keyindex.Position) {
	t.Helper()
	dir = t.TempDir()
	x := create(t, dir, identity(0))
	commit(t, x, "a", keysOf(0, 4000))
	commit(t, x, "b", keysOf(500, 1000))
	keys = keysOf(0, 4100)
	want = look(t, x, keys...)
	check(t, x.Close())
	return dir, keys, want
}

// try opens the index and looks all keys up. What it answers must be right, what it refuses must ask for a
// rebuild.
func try(t *testing.T, what, dir string, keys []keyindex.Fingerprint,
	want []keyindex.Position) (refused bool) {
	t.Helper()
	x, err := keyindex.Open(dir, identity(0))
	if err == nil {
		defer x.Close()
		found := make([]keyindex.Position, 1)
		for i := range keys { // one by one: a batch would stop at the first fault
			if err = x.Lookup(keys[i:i+1], found, nil); err != nil {
				break
			}
			if found[0] != want[i] {
				t.Fatalf("%s: key %d: got %v, want %v or an error", what, i, found[0], want[i])
			}
		}
	}
	if err != nil && !errors.Is(err, keyindex.ErrCorrupt) {
		t.Fatalf("%s: got %v, want ErrCorrupt", what, err)
	}
	return err != nil
}

func TestIndex_BitFlippedAnywhere_ErrorOrRightAnswer(t *testing.T) {
	r := newRand(t)
	dir, keys, want := damaged(t)
	if try(t, "whole", dir, keys, want) {
		t.Fatal("the whole index is refused")
	}
	for _, path := range append(runFiles(t, dir), filepath.Join(dir, "MANIFEST")) {
		whole, err := os.ReadFile(path)
		check(t, err)
		for range 150 {
			bit := r.IntN(8 * len(whole))
			broken := append([]byte(nil), whole...)
			broken[bit/8] ^= 1 << (bit % 8)
			check(t, os.WriteFile(path, broken, 0o666))
			if !try(t, path, dir, keys, want) {
				t.Errorf("%s: bit %d of %d is flipped and nobody notices", path, bit, 8*len(whole))
			}
		}
		check(t, os.WriteFile(path, whole, 0o666))
	}
}

// A crash of the machine can leave holes of zeroes.
func TestIndex_BlockZeroed_ErrorOrRightAnswer(t *testing.T) {
	dir, keys, want := damaged(t)
	for _, path := range runFiles(t, dir) {
		whole, err := os.ReadFile(path)
		check(t, err)
		for from := 0; from < len(whole); from += 512 {
			broken := append([]byte(nil), whole...)
			clear(broken[from:min(from+512, len(broken))])
			check(t, os.WriteFile(path, broken, 0o666))
			if !try(t, path, dir, keys, want) {
				t.Errorf("%s: 512 bytes at %d are zero and nobody notices", path, from)
			}
		}
		check(t, os.WriteFile(path, whole, 0o666))
	}
}

func TestIndex_FileCutOrLengthened_IsCorrupt(t *testing.T) {
	dir, keys, want := damaged(t)
	for _, path := range append(runFiles(t, dir), filepath.Join(dir, "MANIFEST")) {
		whole, err := os.ReadFile(path)
		check(t, err)
		for _, size := range []int{0, 1, 63, 64, len(whole) / 2, len(whole) - 1, len(whole) + 1} {
			check(t, os.WriteFile(path, append(append([]byte(nil), whole...), 0)[:size], 0o666))
			if !try(t, path, dir, keys, want) {
				t.Errorf("%s: %d of %d bytes are accepted", path, size, len(whole))
			}
		}
		check(t, os.WriteFile(path, whole, 0o666))
	}
}

func TestOpen_RunMissingOrChangedForAnother_IsCorrupt(t *testing.T) {
	dir, keys, want := damaged(t)
	runs := runFiles(t, dir)
	whole, err := os.ReadFile(runs[0])
	check(t, err)
	other, err := os.ReadFile(runs[1])
	check(t, err)
	check(t, os.Remove(runs[0]))
	if !try(t, "without a run", dir, keys, want) {
		t.Error("an index without one of its runs is opened")
	}
	check(t, os.WriteFile(runs[0], other, 0o666))
	if !try(t, "with a run twice", dir, keys, want) {
		t.Error("an index with a run in the place of another is opened")
	}
	check(t, os.WriteFile(runs[0], whole, 0o666))
	if try(t, "restored", dir, keys, want) {
		t.Error("the restored index is refused")
	}
}

// A manifest from before is either what the index was then, with its version, or it names runs that are no
// more.
func TestOpen_OlderManifest_OlderVersionOrCorrupt(t *testing.T) {
	dir, keys, _ := damaged(t)
	path := filepath.Join(dir, "MANIFEST")
	older, err := os.ReadFile(path)
	check(t, err)
	x, err := keyindex.Open(dir, identity(0))
	check(t, err)
	before := look(t, x, keys...)
	version := x.Version()
	commit(t, x, "c", keysOf(0, 100))
	check(t, x.Close())
	newer, err := os.ReadFile(path)
	check(t, err)

	check(t, os.WriteFile(path, older, 0o666))
	x, err = keyindex.Open(dir, identity(0))
	if err != nil || x.Version() != version {
		t.Fatalf("got %v, want version %d", err, version)
	}
	for i, p := range look(t, x, keys...) {
		if p != before[i] {
			t.Fatalf("key %d: got %v, want %v", i, p, before[i])
		}
	}
	check(t, x.Close())

	check(t, os.WriteFile(path, newer, 0o666)) // its run has been removed as an orphan
	if _, err := keyindex.Open(dir, identity(0)); !errors.Is(err, keyindex.ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
}

// Whoever cuts a mapped file makes the processor fault.
func TestLookup_FileCutWhileOpen_IsCorrupt(t *testing.T) {
	dir, keys, want := damaged(t)
	x, err := keyindex.Open(dir, identity(0))
	check(t, err)
	defer x.Close()
	for _, path := range runFiles(t, dir) {
		check(t, os.Truncate(path, 0))
	}
	found := make([]keyindex.Position, len(want))
	if err := x.Lookup(keys, found, nil); !errors.Is(err, keyindex.ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
}

// Two runs are merged only after each of their buckets was checked.
func TestMerge_DamagedRun_IsToldAndNothingChanges(t *testing.T) {
	dir, _, _ := damaged(t)
	path := runFiles(t, dir)[0]
	whole, err := os.ReadFile(path)
	check(t, err)
	whole[rand.IntN(len(whole)/2)+len(whole)/4] ^= 4
	check(t, os.WriteFile(path, whole, 0o666))
	x, err := keyindex.Open(dir, identity(0))
	check(t, err)
	defer x.Close()
	if err := x.Merge(t.Context()); !errors.Is(err, keyindex.ErrCorrupt) {
		t.Errorf("merge: got %v, want ErrCorrupt", err)
	}
	if _, err := x.Check(t.Context()); !errors.Is(err, keyindex.ErrCorrupt) {
		t.Errorf("check: got %v, want ErrCorrupt", err)
	}
	if got := runFiles(t, dir); len(got) != 2 {
		t.Errorf("got runs %q", got)
	}
}
