package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/store"
)

func putIfAbsentTaken(t *testing.T, s store.Store) {
	if err := s.PutIfAbsent(t.Context(), "a/k", []byte("first")); err != nil {
		t.Fatal(err)
	}
	if err := s.PutIfAbsent(t.Context(), "a/k", []byte("second")); !errors.Is(err, store.ErrExists) {
		t.Errorf("got %v, want ErrExists", err)
	}
	wantObject(t, s, "a/k", "first")

	put(t, s, "a/by-put", "first")
	if err := s.PutIfAbsent(t.Context(), "a/by-put", []byte("second")); !errors.Is(err, store.ErrExists) {
		t.Errorf("a key taken by Put: got %v, want ErrExists", err)
	}
	wantObject(t, s, "a/by-put", "first")
}

func putIfAbsentAgain(t *testing.T, s store.Store) {
	for i := range 2 {
		text := fmt.Sprint("round ", i)
		if err := s.PutIfAbsent(t.Context(), "a/k", []byte(text)); err != nil {
			t.Fatal(err)
		}
		wantObject(t, s, "a/k", text)
		if err := s.Delete(t.Context(), "a/k"); err != nil {
			t.Fatal(err)
		}
	}
}

// putIfAbsentRace lets 32 writers race for each of 20 keys. A store may answer ErrAmbiguous or
// ErrUnavailable, but then those who were told that they won are still at most one, and its bytes are what
// stays.
func putIfAbsentRace(t *testing.T, s store.Store) {
	const writers, rounds = 32, 20
	for round := range rounds {
		key := fmt.Sprintf("_delta_log/%020d.json", round)
		var results [writers]error
		start := make(chan struct{})
		var group errgroup.Group
		for w := range writers {
			group.Go(func() error {
				<-start
				results[w] = s.PutIfAbsent(t.Context(), key, raceBytes(round, w))
				return nil
			})
		}
		close(start)
		_ = group.Wait()

		winner, unsure := -1, 0
		for w, err := range results {
			switch {
			case err == nil && winner >= 0:
				t.Errorf("round %d: writers %d and %d both won", round, winner, w)
			case err == nil:
				winner = w
			case store.Retryable(err):
				unsure++
			case !errors.Is(err, store.ErrExists):
				t.Errorf("round %d, writer %d: got %v, want ErrExists", round, w, err)
			}
		}
		if winner < 0 {
			if unsure == 0 {
				t.Errorf("round %d: nobody won", round)
			}
			continue
		}
		wantObject(t, s, key, string(raceBytes(round, winner)))
	}
}

// raceBytes differ in length, so that an overwritten object shows.
func raceBytes(round, writer int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "round %d writer %d\n", round, writer), 1+writer)
}

func uploadInvisible(t *testing.T, s store.Store) {
	up, err := s.Create(t.Context(), "a/k")
	if err != nil {
		t.Fatal(err)
	}
	defer up.Abort()
	for range 3 {
		if _, err := up.Write(random(1, 4<<20)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Stat(t.Context(), "a/k"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("Stat before Close: got %v, want ErrNotFound", err)
		}
		wantKeys(t, s, "", "")
	}
	if err := up.Close(); err != nil {
		t.Fatal(err)
	}
	wantKeys(t, s, "", "", "a/k")
}

func uploadReplaces(t *testing.T, s store.Store) {
	put(t, s, "k", "a longer text that comes first")
	up := begin(t, s, "k", []byte("sh"), []byte("ort"))
	wantObject(t, s, "k", "a longer text that comes first")
	if err := up.Close(); err != nil {
		t.Fatal(err)
	}
	wantObject(t, s, "k", "short")
}

func uploadEmpty(t *testing.T, s store.Store) {
	if err := begin(t, s, "a/empty").Close(); err != nil {
		t.Fatal(err)
	}
	wantObject(t, s, "a/empty", "")
	wantKeys(t, s, "", "", "a/empty")
}

// uploadLarge writes 20 MiB from one buffer that it fills anew each time.
func uploadLarge(t *testing.T, s store.Store) {
	want := random(2, 20<<20+12345)
	up := begin(t, s, "a/large")
	buf := make([]byte, 300_000)
	for rest := want; len(rest) > 0; {
		n := copy(buf, rest)
		if wrote, err := up.Write(buf[:n]); err != nil || wrote != n {
			t.Fatalf("Write: got %d, %v, want %d", wrote, err, n)
		}
		rest = rest[n:]
	}
	if err := up.Close(); err != nil {
		t.Fatal(err)
	}
	if got := get(t, s, "a/large"); !bytes.Equal(got, want) {
		t.Errorf("got %s, want %s", brief(got), brief(want))
	}
	tail, err := s.ReadRange(t.Context(), "a/large", -100_000, 0)
	if err != nil || !bytes.Equal(tail, want[len(want)-100_000:]) {
		t.Errorf("last 100,000 bytes differ, %v", err)
	}
}

// uploadSizes tries sizes around the parts in which S3 takes an upload.
func uploadSizes(t *testing.T, s store.Store) {
	const part = 5 << 20
	for _, size := range []int{1, part - 1, part, part + 1} {
		key, want := fmt.Sprint("a/", size), random(uint64(size), size)
		if err := begin(t, s, key, want).Close(); err != nil {
			t.Fatal(err)
		}
		if got := get(t, s, key); !bytes.Equal(got, want) {
			t.Errorf("%d bytes: got %s", size, brief(got))
		}
	}
}

func uploadAbort(t *testing.T, s store.Store) {
	for _, size := range []int{0, 10, 17 << 20} {
		up := begin(t, s, "a/k", random(3, size))
		for range 2 {
			if err := up.Abort(); err != nil {
				t.Fatal(err)
			}
		}
		wantKeys(t, s, "", "")
	}
}

func uploadAbortAfterClose(t *testing.T, s store.Store) {
	up := begin(t, s, "k", []byte("data"))
	if err := up.Close(); err != nil {
		t.Fatal(err)
	}
	if err := up.Abort(); err != nil {
		t.Errorf("Abort after Close: %v", err)
	}
	wantObject(t, s, "k", "data")
}

func uploadAfterEnd(t *testing.T, s store.Store) {
	closed := begin(t, s, "closed", []byte("data"))
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	aborted := begin(t, s, "aborted", []byte("data"))
	if err := aborted.Abort(); err != nil {
		t.Fatal(err)
	}
	for end, up := range map[string]store.Upload{"Close": closed, "Abort": aborted} {
		if _, err := up.Write([]byte("more")); err == nil {
			t.Errorf("Write after %s: got no error", end)
		}
		if err := up.Close(); err == nil {
			t.Errorf("Close after %s: got no error", end)
		}
	}
	wantObject(t, s, "closed", "data")
	wantKeys(t, s, "", "", "closed")
}

// begin creates an upload and writes to it.
func begin(t *testing.T, s store.Store, key string, writes ...[]byte) store.Upload {
	t.Helper()
	up, err := s.Create(t.Context(), key)
	if err != nil {
		t.Fatalf("Create %q: %v", key, err)
	}
	for _, data := range writes {
		if n, err := up.Write(data); err != nil || n != len(data) {
			t.Fatalf("Write to %q: got %d, %v, want %d", key, n, err, len(data))
		}
	}
	return up
}

// random returns the same bytes for the same seed.
func random(seed uint64, size int) []byte {
	var key [32]byte
	key[0], key[1], key[2], key[3] = byte(seed), byte(seed>>8), byte(seed>>16), byte(seed>>24)
	data := make([]byte, size)
	_, _ = rand.NewChaCha8(key).Read(data)
	return data
}
