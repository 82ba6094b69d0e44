package keyindex_test

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/freshet-io/freshet/internal/keyindex"
)

func keysOf(from, to int) (keys []keyindex.Fingerprint) {
	for n := from; n < to; n++ {
		keys = append(keys, key(n))
	}
	return keys
}

// commit adds the keys as the rows of a file.
func commit(t testing.TB, x *keyindex.Index, path string, keys []keyindex.Fingerprint) keyindex.Committed {
	t.Helper()
	c, err := x.Begin(x.Version() + 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Add(path, keys, nil, nil); err != nil {
		t.Fatal(err)
	}
	done, err := c.Commit(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func look(t testing.TB, x *keyindex.Index, keys ...keyindex.Fingerprint) []keyindex.Position {
	t.Helper()
	found := make([]keyindex.Position, len(keys))
	if err := x.Lookup(keys, found, nil); err != nil {
		t.Fatal(err)
	}
	return found
}

func pathOf(x *keyindex.Index, p keyindex.Position) string {
	path, _ := x.Path(p.File)
	return path
}

// Batches of as many keys as are put in order at once, and of more; every third key is new, and others come twice.
func TestLookup_LargeBatch_AnswersAreThoseOfSmallOnes(t *testing.T) {
	x := create(t, t.TempDir(), identity(8))
	const n = 1 << 17
	known := keysOf(0, n)
	seqs := make([]byte, 8*n)
	for i := range n {
		binary.LittleEndian.PutUint64(seqs[8*i:], uint64(i)+1)
	}
	c, err := x.Begin(1)
	check(t, err)
	check(t, c.Add("a", known, nil, seqs))
	_, err = c.Commit(t.Context())
	check(t, err)
	for _, size := range []int{n, n + 1, 3*n + 5} {
		keys, want := make([]keyindex.Fingerprint, size), make([]int, size)
		for i := range keys {
			if want[i] = i * 7919 % n; i%3 == 0 {
				want[i] = -1
				keys[i] = keyindex.Fingerprint{Hi: uint64(i) * 0x9e3779b97f4a7c15, Lo: 1}
				continue
			}
			keys[i] = known[want[i]]
		}
		at, got := make([]keyindex.Position, size), make([]byte, 8*size)
		check(t, x.Lookup(keys, at, got))
		for i, p := range at {
			seq := int(binary.LittleEndian.Uint64(got[8*i:])) - 1
			if want[i] < 0 && (p != keyindex.Position{} || seq != -1) || want[i] >= 0 && (p.Row != int64(want[i]) || seq != want[i]) {
				t.Fatalf("key %d of %d: got %v and sequence %d, want row %d", i, size, p, seq, want[i])
			}
		}
	}
}

func TestOpen_WhatIsNotThere_IsNamed(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "none")} {
		_, err := keyindex.Open(path, identity(0))
		if !errors.Is(err, keyindex.ErrNone) || !errors.Is(err, keyindex.ErrRebuild) {
			t.Errorf("%s: got %v, want ErrNone", path, err)
		}
	}
}

func TestOpen_OfSomethingElse_IsForeign(t *testing.T) {
	dir := t.TempDir()
	check(t, create(t, dir, identity(8)).Close())
	table, columns, types, nulls := identity(8), identity(8), identity(8), identity(8)
	table.Table = "other"
	columns.Columns = append(slices.Clone(columns.Columns), keyindex.Column{Name: "b", Type: "long"})
	types.Columns = []keyindex.Column{{Name: "id", Type: "integer"}}
	nulls.NullKeys = true
	for _, id := range []keyindex.Identity{table, columns, types, nulls, identity(9)} {
		_, err := keyindex.Open(dir, id)
		if !errors.Is(err, keyindex.ErrForeign) || !errors.Is(err, keyindex.ErrRebuild) {
			t.Errorf("%+v: got %v, want ErrForeign", id, err)
		}
	}
	x, err := keyindex.Open(dir, identity(8))
	if err != nil || x.Version() != keyindex.None {
		t.Fatalf("got %v", err)
	}
	check(t, x.Close())
}

func TestOpen_Twice_IsLocked(t *testing.T) {
	dir := t.TempDir()
	x := create(t, dir, identity(0))
	if _, err := keyindex.Open(dir, identity(0)); !errors.Is(err, keyindex.ErrLocked) {
		t.Errorf("open: got %v, want ErrLocked", err)
	}
	if _, err := keyindex.Create(dir, identity(0)); !errors.Is(err, keyindex.ErrLocked) {
		t.Errorf("create: got %v, want ErrLocked", err)
	}
	check(t, x.Close())
	x, err := keyindex.Open(dir, identity(0))
	check(t, err)
	check(t, x.Close())
}

func TestCreate_OverAnIndex_NothingIsLeft(t *testing.T) {
	dir := t.TempDir()
	x := create(t, dir, identity(0))
	commit(t, x, "a", keysOf(0, 10))
	check(t, x.Close())
	x = create(t, dir, identity(0))
	for _, p := range look(t, x, keysOf(0, 10)...) {
		if p.File != 0 {
			t.Errorf("got %v", p)
		}
	}
	if got := runFiles(t, dir); len(got) != 0 {
		t.Errorf("got runs %q", got)
	}
}

func TestCreate_IdentityThatIsNotValid_AllFaultsAreTold(t *testing.T) {
	_, err := keyindex.Create(t.TempDir(), keyindex.Identity{SequenceBytes: 33})
	for _, want := range []string{"no id", "no columns", "33 bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want it to tell %q", err, want)
		}
	}
}

func runFiles(t testing.TB, dir string) []string {
	t.Helper()
	runs, err := filepath.Glob(filepath.Join(dir, "*.run"))
	if err != nil {
		t.Fatal(err)
	}
	return runs
}

func TestBegin_VersionBelow_IsRefused(t *testing.T) {
	x := create(t, t.TempDir(), identity(0))
	commit(t, x, "a", keysOf(0, 1)) // version 0
	for _, v := range []int64{keyindex.None, -2} {
		if _, err := x.Begin(v); err == nil {
			t.Errorf("version %d: got no error", v)
		}
	}
	c, err := x.Begin(0)
	check(t, err)
	if _, err := x.Begin(2); err == nil {
		t.Error("a second change: got no error")
	}
	check(t, c.Discard())
	if err := c.Add("b", nil, nil, nil); !errors.Is(err, keyindex.ErrDone) {
		t.Errorf("add: got %v, want ErrDone", err)
	}
	if _, err := c.Commit(context.Background()); !errors.Is(err, keyindex.ErrDone) {
		t.Errorf("commit: got %v, want ErrDone", err)
	}
}

func TestClose_ThenAnything_IsDone(t *testing.T) {
	x := create(t, t.TempDir(), identity(0))
	c, err := x.Begin(0)
	check(t, err)
	check(t, x.Close())
	check(t, x.Close())
	check(t, c.Discard())
	_, describeErr := x.Describe()
	_, beginErr := x.Begin(1)
	for _, err := range []error{x.Lookup(nil, nil, nil), c.Add("a", nil, nil, nil), describeErr, beginErr,
		x.Merge(context.Background())} {
		if !errors.Is(err, keyindex.ErrDone) {
			t.Errorf("got %v, want ErrDone", err)
		}
	}
}

func TestChange_ArgumentsThatDoNotFit_AreRefused(t *testing.T) {
	x := create(t, t.TempDir(), identity(8))
	c, err := x.Begin(0)
	check(t, err)
	two := keysOf(0, 2)
	for name, err := range map[string]error{
		"one row":      c.Add("a", two, []int64{1}, make([]byte, 16)),
		"row below 0":  c.Add("a", two, []int64{1, -1}, make([]byte, 16)),
		"row above":    c.Add("a", two, []int64{1, 1 << 40}, make([]byte, 16)),
		"no sequences": c.Add("a", two, nil, nil),
		"positions":    x.Lookup(two, make([]keyindex.Position, 1), nil),
		"sequences":    x.Lookup(two, make([]keyindex.Position, 2), make([]byte, 15)),
	} {
		if err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
	_, err = c.Commit(context.Background())
	check(t, err)
	if got := look(t, x, two...); got[0].File != 0 || got[1].File != 0 {
		t.Errorf("got %v, want nothing", got)
	}
}

func TestChange_FileRemovedAndAdded_OnlyNewEntriesCount(t *testing.T) {
	x := create(t, t.TempDir(), identity(0))
	commit(t, x, "a", keysOf(0, 2))
	c, err := x.Begin(1)
	check(t, err)
	c.Remove("a")
	check(t, c.Add("a", keysOf(1, 2), []int64{7}, nil))
	_, err = c.Commit(context.Background())
	check(t, err)
	got := look(t, x, keysOf(0, 2)...)
	if got[0] != (keyindex.Position{}) || pathOf(x, got[1]) != "a" || got[1].Row != 7 {
		t.Errorf("got %v", got)
	}
}

// An older position of a key never comes back when the file of the newer one goes.
func TestChange_FileOfTheNewerPositionRemoved_KeyIsGone(t *testing.T) {
	x := create(t, t.TempDir(), identity(0))
	commit(t, x, "a", keysOf(0, 100))
	commit(t, x, "b", keysOf(0, 1))
	c, err := x.Begin(2)
	check(t, err)
	c.Remove("b")
	_, err = c.Commit(context.Background())
	check(t, err)
	for _, merged := range []bool{false, true} {
		if got := look(t, x, key(0), key(1)); got[0].File != 0 || got[1].File == 0 {
			t.Errorf("merged %t: got %v", merged, got)
		}
		check(t, x.Merge(context.Background()))
	}
}

func TestChange_KeyTwice_LaterFileStaysAndIsCounted(t *testing.T) {
	x := create(t, t.TempDir(), identity(0))
	c, err := x.Begin(0)
	check(t, err)
	check(t, c.Add("a", []keyindex.Fingerprint{key(1), key(2), key(1)}, nil, nil))
	check(t, c.Add("b", []keyindex.Fingerprint{key(1)}, nil, nil))
	check(t, c.Delete(keysOf(1, 4)))
	done, err := c.Commit(context.Background())
	check(t, err)
	want := []string{"a row 0 and a row 2", "a row 2 and b row 0"}
	if done.Entries != 2 || done.Deleted != 1 || done.Duplicates != 2 || !slices.Equal(done.Some, want) {
		t.Errorf("got %+v, want 2 entries, 1 deleted, %q", done, want)
	}
	got := look(t, x, keysOf(1, 4)...)
	if pathOf(x, got[0]) != "b" || pathOf(x, got[1]) != "a" || got[2].File != 0 {
		t.Errorf("got %v", got)
	}
}

func TestCommit_ContextThatEnded_LeavesTheIndexAsItWas(t *testing.T) {
	dir := t.TempDir()
	x := create(t, dir, identity(0))
	commit(t, x, "a", keysOf(0, 10))
	c, err := x.Begin(1)
	check(t, err)
	check(t, c.Add("b", keysOf(0, 10), nil, nil))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.Commit(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want Canceled", err)
	}
	if got := look(t, x, key(3)); pathOf(x, got[0]) != "a" || x.Version() != 0 || len(runFiles(t, dir)) != 1 {
		t.Errorf("got %v at version %d, runs %q", got, x.Version(), runFiles(t, dir))
	}
	commit(t, x, "b", keysOf(0, 10))
}

// More entries than are sorted in memory, from several goroutines.
func TestChange_ManyEntries_AllAreFound(t *testing.T) {
	const files, rows = 8, 100_000
	dir := t.TempDir()
	x := create(t, dir, identity(0))
	c, err := x.Begin(0)
	check(t, err)
	var wg sync.WaitGroup
	errs := make([]error, files)
	for f := range files {
		wg.Go(func() { errs[f] = c.Add(string(rune('a'+f)), keysOf(f*rows, (f+1)*rows), nil, nil) })
	}
	wg.Wait()
	check(t, errors.Join(errs...))
	done, err := c.Commit(context.Background())
	if err != nil || done.Entries != files*rows || done.Duplicates != 0 {
		t.Fatalf("got %+v, %v", done, err)
	}
	for i, p := range look(t, x, keysOf(0, files*rows)...) {
		if want := string(rune('a' + i/rows)); pathOf(x, p) != want || p.Row != int64(i%rows) {
			t.Fatalf("key %d: got %s, %v, want %s row %d", i, pathOf(x, p), p, want, i%rows)
		}
	}
	report, err := x.Check(context.Background())
	if err != nil || report != (keyindex.Checked{Keys: files * rows}) {
		t.Errorf("got %+v, %v", report, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(left) > 0 {
		t.Errorf("got %q left over", left)
	}
}

// Look-ups go on while changes and merges come; each sees all of one version.
func TestLookup_WhileChangesCome_SeesOneVersion(t *testing.T) {
	x := create(t, t.TempDir(), identity(0))
	keys := keysOf(0, 3000)
	commit(t, x, "0", keys)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			found := make([]keyindex.Position, len(keys))
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := x.Lookup(keys, found, nil); err != nil {
					t.Error(err)
					return
				}
				for _, p := range found {
					if p.File == 0 || p.File != found[0].File {
						t.Errorf("got files %d and %d", found[0].File, p.File)
						return
					}
				}
			}
		})
	}
	for i := range 30 {
		c, err := x.Begin(x.Version() + 1)
		check(t, err)
		c.Remove(string(rune('0' + i)))
		check(t, c.Add(string(rune('0'+i+1)), keys, nil, nil))
		_, err = c.Commit(context.Background())
		check(t, err)
	}
	close(stop)
	wg.Wait()
}

func TestMerge_DueOnes_LeaveFewRuns(t *testing.T) {
	dir := t.TempDir()
	x := create(t, dir, identity(0))
	commit(t, x, "base", keysOf(0, 100_000))
	for i := range 40 {
		commit(t, x, "f", keysOf(i*10, i*10+10))
	}
	check(t, x.Close()) // ends the merge under way
	x, err := keyindex.Open(dir, identity(0))
	check(t, err)
	defer x.Close()
	check(t, x.Merge(context.Background()))
	info, err := x.Describe()
	runs := runFiles(t, dir)
	if err != nil || len(info.Runs) != 1 || info.Entries != 100_000 || len(runs) != 1 || info.Files != 2 {
		t.Errorf("got %+v, %q, %v", info, runs, err)
	}
	for _, name := range runs {
		if stat, err := os.Stat(name); err != nil || uint64(stat.Size()) != info.SizeBytes {
			t.Errorf("got %v, want %d bytes", err, info.SizeBytes)
		}
	}
}
