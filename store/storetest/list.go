package storetest

import (
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet/store"
)

// ordered are keys in the order of their bytes, in which folders and files mix: "/" sorts behind "-" and "."
// and before the digits.
var ordered = []string{
	"A", "B/x", "_delta_log/00000000000000000000.json", "_delta_log/00000000000000000001.json",
	"_delta_log/00000000000000000010.checkpoint.parquet", "_delta_log/_last_checkpoint",
	"a b/x", "a+b", "a-b", "a-b-c/x", "a.b/x", "a/!", "a/-/x", "a/b/c", "a/b0", "a/b=1/x", "a0", "aa", "b",
	"z/z/z", "~", "é", "日/本", "😀",
}

func putAll(t *testing.T, s store.Store, keys []string) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(8)
	for i := range keys {
		key := keys[(i*7919+13)%len(keys)] // not in order; every key once, as 7919 is a prime
		group.Go(func() error { return s.Put(t.Context(), key, []byte(key)) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

func listOrder(t *testing.T, s store.Store) {
	putAll(t, s, ordered)
	wantKeys(t, s, "", "", ordered...)
}

func listPrefix(t *testing.T, s store.Store) {
	putAll(t, s, ordered)
	for _, prefix := range []string{
		"a", "a/", "a/b", "a/b/", "a/b/c", "a-", "_delta_log/", "_delta_log/0000000000000000000",
		"_delta_log", "z/z", "A", "😀", "日/", "none", "a/none/", "a/b/c/", "zz",
	} {
		wantKeys(t, s, prefix, "", matching(prefix, "")...)
	}
}

func listAfter(t *testing.T, s store.Store) {
	putAll(t, s, ordered)
	afters := append(slices.Clone(ordered), "a/", "a/b", "a/b/", "a-", "a", "_delta_log", "_delta_log/",
		"_delta_log/00000000000000000001.json~", "_delta_log/~", "0", "~~", "\U0010ffff")
	for _, prefix := range []string{"", "_delta_log/", "a/", "a"} {
		for _, after := range afters {
			wantKeys(t, s, prefix, after, matching(prefix, after)...)
		}
	}
}

// listMany needs more than one page of an S3 listing.
func listMany(t *testing.T, s store.Store) {
	const n = 1203
	var keys []string
	for i := range n {
		keys = append(keys, fmt.Sprintf("_delta_log/%020d.json", i))
	}
	putAll(t, s, keys)
	wantKeys(t, s, "_delta_log/", "", keys...)
	wantKeys(t, s, "_delta_log/", keys[99], keys[100:]...)
	wantKeys(t, s, "_delta_log/", keys[n-2], keys[n-1])
	wantKeys(t, s, "_delta_log/", keys[n-1])
}

func listStops(t *testing.T, s store.Store) {
	putAll(t, s, ordered)
	for stop := 1; stop <= len(ordered); stop++ {
		seen := 0
		for _, err := range s.List(t.Context(), "", "") {
			if err != nil {
				t.Fatal(err)
			}
			seen++
			if seen == stop {
				break
			}
		}
		if seen != stop {
			t.Errorf("got %d objects, want %d", seen, stop)
		}
	}
	listing := s.List(t.Context(), "a/", "")
	for range 2 {
		got, err := collect(listing)
		if want := matching("a/", ""); err != nil || !slices.Equal(got, want) {
			t.Errorf("a listing ranged over again: got %q, %v, want %q", got, err, want)
		}
	}
}

func listFacts(t *testing.T, s store.Store) {
	put(t, s, "a/one", "1")
	put(t, s, "a/three", "123")
	sizes := map[string]int64{"a/one": 1, "a/three": 3}
	for o, err := range s.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		if o.Size != sizes[o.Key] {
			t.Errorf("%s: got size %d, want %d", o.Key, o.Size, sizes[o.Key])
		}
		stat, err := s.Stat(t.Context(), o.Key)
		// Some stores list times to the millisecond and answer for one object in whole seconds.
		if diff := stat.Modified.Sub(o.Modified); err != nil || diff <= -time.Second || diff >= time.Second {
			t.Errorf("%s: listed at %v, but Stat gives %v, %v", o.Key, o.Modified, stat.Modified, err)
		}
	}
}

// matching is what a listing of the ordered keys must yield.
func matching(prefix, after string) []string {
	var keys []string
	for _, key := range ordered {
		if len(key) >= len(prefix) && key[:len(prefix)] == prefix && key > after {
			keys = append(keys, key)
		}
	}
	return keys
}

func wantKeys(t *testing.T, s store.Store, prefix, after string, want ...string) {
	t.Helper()
	got, err := collect(s.List(t.Context(), prefix, after))
	if err != nil {
		t.Errorf("List(%q, %q): %v", prefix, after, err)
		return
	}
	if !slices.Equal(got, want) {
		t.Errorf("List(%q, %q): got %d keys, want %d:\n got %q\nwant %q",
			prefix, after, len(got), len(want), got, want)
	}
}

func collect(listing iter.Seq2[store.Object, error]) (keys []string, err error) {
	for o, err := range listing {
		if err != nil {
			return keys, err
		}
		keys = append(keys, o.Key)
	}
	return keys, nil
}
