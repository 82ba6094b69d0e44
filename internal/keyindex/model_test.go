package keyindex_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/freshet-io/freshet/internal/keyindex"
)

// identity is of a table with one key column and sequences of so many bytes.
func identity(seq int) keyindex.Identity {
	id := []keyindex.Column{{Name: "id", Type: "long"}}
	return keyindex.Identity{Table: "orders", Columns: id, SequenceBytes: seq}
}

// at is where the model says that a key lies.
type at struct {
	path string
	row  int64
	seq  string
}

// model is the index as a map.
type model struct {
	version int64
	note    string
	keys    map[keyindex.Fingerprint]at
	files   []string
	nth     int
}

// key is a fingerprint as good as any hash's.
func key(n int) keyindex.Fingerprint {
	r := rand.New(rand.NewPCG(uint64(n), 17))
	return keyindex.Fingerprint{Hi: r.Uint64(), Lo: r.Uint64()}
}

// change makes a random change to both.
func (m *model) change(t *testing.T, r *rand.Rand, x *keyindex.Index, space, seq int) {
	t.Helper()
	c, err := x.Begin(max(0, m.version+r.Int64N(3)))
	if err != nil {
		t.Fatal(err)
	}
	if r.IntN(10) == 0 { // one that does not happen
		check(t, c.Add("never", []keyindex.Fingerprint{key(1)}, nil, make([]byte, seq)))
		check(t, c.Discard())
		return
	}
	gone := map[string]bool{}
	for range r.IntN(3) {
		if len(m.files) > 0 && r.IntN(3) == 0 {
			gone[m.files[r.IntN(len(m.files))]] = true
		}
	}
	for path := range gone {
		c.Remove(path)
	}
	c.Remove("unknown")
	next := maps.Clone(m.keys)
	maps.DeleteFunc(next, func(_ keyindex.Fingerprint, a at) bool { return gone[a.path] })
	m.files = slices.DeleteFunc(m.files, func(p string) bool { return gone[p] })

	perm := r.Perm(space)[:r.IntN(1+min(space, 1<<r.IntN(13)))]
	add := perm[:len(perm)*r.IntN(5)/4]
	for _, part := range split(r, add) {
		path := fmt.Sprintf("part-%d", m.nth)
		m.nth++
		if len(m.files) > 0 && r.IntN(8) == 0 {
			path = m.files[r.IntN(len(m.files))] // rows of a file that came back
		} else {
			m.files = append(m.files, path)
		}
		keys, rows, seqs := entries(r, part, seq)
		check(t, c.Add(path, keys, rows, seqs))
		for i, k := range keys {
			next[k] = at{path, rows[i], string(seqs[i*seq : i*seq+seq])}
		}
	}
	var deleted []keyindex.Fingerprint
	for _, n := range perm[len(add):] {
		deleted = append(deleted, key(n))
		delete(next, key(n))
	}
	m.bury(t, r, c, next, perm[len(add):], add, seq)
	for _, n := range add[:len(add)/8] { // a key that moves: the position counts
		deleted = append(deleted, key(n))
	}
	check(t, c.Delete(deleted))
	done, err := c.Commit(context.Background())
	check(t, err)
	if want := uint64(len(add)); done.Entries != want || done.Duplicates != 0 {
		t.Fatalf("got %+v, want %d entries", done, want)
	}
	m.version, m.keys = x.Version(), next
}

// bury puts tombstones on some of the keys that go, and on some that came, which have their position all the same.
func (m *model) bury(t *testing.T, r *rand.Rand, c *keyindex.Change, next map[keyindex.Fingerprint]at, gone, came []int,
	seq int) {
	t.Helper()
	buried := gone[:len(gone)*r.IntN(3)/2]
	keys, _, seqs := entries(r, buried, seq)
	check(t, c.Bury(keys, seqs))
	for i, k := range keys {
		next[k] = at{tombstone, 0, string(seqs[i*seq : i*seq+seq])}
	}
	keys, _, seqs = entries(r, came[:len(came)/8], seq)
	check(t, c.Bury(keys, seqs))
	check(t, c.Bury(keys, bytes.Repeat([]byte{0}, len(seqs))))
	note := fmt.Sprint("note ", m.nth)
	c.Note(note)
	m.note = note
}

// tombstone stands for the file of a tombstone.
const tombstone = "(tombstone)"

func split(r *rand.Rand, keys []int) (parts [][]int) {
	for len(keys) > 0 {
		n := 1 + r.IntN(len(keys))
		parts, keys = append(parts, keys[:n]), keys[n:]
	}
	return parts
}

func entries(r *rand.Rand, part []int, seq int) (keys []keyindex.Fingerprint, rows []int64, seqs []byte) {
	for _, n := range part {
		keys, rows = append(keys, key(n)), append(rows, r.Int64N(1<<40))
		s := binary.LittleEndian.AppendUint64(bytes.Repeat([]byte{byte(n)}, 24), uint64(n))
		seqs = append(seqs, s[32-seq:]...)
	}
	return keys, rows, seqs
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// compare looks all keys up.
func (m *model) compare(t *testing.T, x *keyindex.Index, space, seq int) {
	t.Helper()
	if v, note := x.Version(), x.Note(); v != m.version || note != m.note {
		t.Fatalf("got version %d, note %q, want %d, %q", v, note, m.version, m.note)
	}
	var keys []keyindex.Fingerprint
	for n := range space + 100 {
		keys = append(keys, key(n))
	}
	found := make([]keyindex.Position, len(keys))
	seqs := bytes.Repeat([]byte{9}, len(keys)*seq)
	check(t, x.Lookup(keys, found, seqs))
	for i, k := range keys {
		want, ok := m.keys[k]
		path, _ := x.Path(found[i].File)
		if found[i].File == keyindex.Tombstone {
			path = tombstone
		}
		got := at{path, found[i].Row, string(seqs[i*seq : i*seq+seq])}
		if !ok {
			want.seq = string(make([]byte, seq))
		}
		if got != want || (found[i] != keyindex.Position{}) != ok {
			t.Fatalf("key %d: got %+v, %v, want %+v, %t", i, got, found[i], want, ok)
		}
	}
	var files []string
	for _, p := range x.Files() {
		files = append(files, p)
	}
	slices.Sort(files)
	slices.Sort(m.files)
	if !slices.Equal(files, m.files) {
		t.Fatalf("got files %q, want %q", files, m.files)
	}
	report, err := x.Check(context.Background())
	check(t, err)
	if report.Keys+report.Buried != uint64(len(m.keys)) {
		t.Fatalf("got %+v, want %d keys with the buried ones", report, len(m.keys))
	}
}

// newRand is seeded by FRESHET_SEED, or by the clock; the seed is printed when the test fails.
func newRand(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("FRESHET_SEED"), 10, 64); err == nil {
		seed = s
	}
	t.Logf("FRESHET_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// Random changes, with merges whenever they are due or asked for, and the index closed and opened: it always
// equals a map.
func TestIndex_RandomChanges_EqualsAMap(t *testing.T) {
	for _, seq := range []int{0, 8, 32} {
		for _, space := range []int{10, 20_000} {
			t.Run(fmt.Sprintf("%d keys, sequences of %d", space, seq), func(t *testing.T) {
				r := newRand(t)
				dir := t.TempDir()
				x := create(t, dir, identity(seq))
				m := &model{version: keyindex.None, keys: map[keyindex.Fingerprint]at{}}
				for i := range 60 {
					m.change(t, r, x, space, seq)
					if r.IntN(15) == 0 {
						check(t, x.Merge(context.Background()))
					}
					if r.IntN(10) == 0 {
						check(t, x.Close())
						var err error
						x, err = keyindex.Open(dir, identity(seq))
						check(t, err)
					}
					if i%10 == 9 {
						m.compare(t, x, space, seq)
					}
				}
				info, err := x.Describe()
				if err != nil || info.MergeErr != nil {
					t.Errorf("got %v, %v", err, info.MergeErr)
				}
				check(t, x.Close())
			})
		}
	}
}
