// Package storetest is what every store.Store must pass, and a store that fails on demand.
//
//   - Run checks each promise of store.Store on a store of the caller's.
//   - RunFaults checks that a store over HTTP keeps them when requests and answers are lost, refused or late.
//   - Faulty wraps a store and injects faults by a rule: errors before and after a write landed, waits, torn
//     reads, listings that lag, and the death of the process at any call.
//
// Guarantees: what Run does is the same each time, but for the order in which goroutines run; what Faulty
// does depends on its rule alone.
//
// Non-goals: speed, and what a store does when the machine under it loses power.
//
//	func TestMem(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store { return store.NewMem() }, nil)
//	}
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/store"
)

// Options say what is special about a store; nil means nothing.
type Options struct {
	// Refuses reports whether the store cannot hold the key, although store.CheckKey allows it: what writes must then
	// say so, by an error that is none of the sentinels, and what reads must fail. Default: it holds all keys.
	Refuses func(key string) bool
}

// Run checks that the store keeps every promise of store.Store, in one subtest a promise. open returns an
// empty store for each; stores that it returns in one run may share a bucket, but not a root. Run writes
// about 50 MB.
func Run(t *testing.T, open func(t *testing.T) store.Store, opts *Options) {
	if opts == nil {
		opts = &Options{}
	}
	if opts.Refuses == nil {
		opts.Refuses = func(string) bool { return false }
	}
	for _, c := range []struct {
		name string
		test func(t *testing.T, s store.Store)
	}{
		{"Get_AfterPut_ReturnsBytes", getAfterPut},
		{"Put_TakenKey_Replaces", putReplaces},
		{"Put_CallerReusesBuffer_ObjectStands", putOwnsBytes},
		{"Put_Empty_IsObject", putEmpty},
		{"Key_Strange_RoundTripsOrRefused", opts.strangeKeys},
		{"Key_Bad_Refused", badKeys},
		{"Missing_EveryRead_ErrNotFound", missing},
		{"ReadRange_Spans_ReturnsPart", ranges},
		{"ReadRange_BeyondEnd_EOF", rangeBeyondEnd},
		{"Delete_MissingOrGone_NoError", deletes},
		{"List_Order_IsBytewise", listOrder},
		{"List_Prefix_OnlyMatching", listPrefix},
		{"List_After_OnlyGreater", listAfter},
		{"List_ManyKeys_AllInOrder", listMany},
		{"List_CallerStops_NoMore", listStops},
		{"List_Objects_HaveSizeAndTime", listFacts},
		{"PutIfAbsent_TakenKey_ErrExists", putIfAbsentTaken},
		{"PutIfAbsent_Deleted_KeyIsFree", putIfAbsentAgain},
		{"PutIfAbsent_Race_OneWins", putIfAbsentRace},
		{"Upload_BeforeClose_Invisible", uploadInvisible},
		{"Upload_Close_ReplacesWhole", uploadReplaces},
		{"Upload_Empty_IsObject", uploadEmpty},
		{"Upload_Large_ReturnsBytes", uploadLarge},
		{"Upload_SizesNearParts_ReturnBytes", uploadSizes},
		{"Upload_Abort_LeavesNothing", uploadAbort},
		{"Upload_AbortAfterClose_ObjectStands", uploadAbortAfterClose},
		{"Upload_AfterEnd_WriteFails", uploadAfterEnd},
		{"Context_Cancelled_NothingDone", cancelled},
		{"URL_Always_NamesRoot", url},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
}

// EmptyAfter deletes all objects of the store when the test ends, for stores on real servers.
func EmptyAfter(t *testing.T, s store.Store) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for o, err := range s.List(ctx, "", "") {
			if err == nil {
				err = s.Delete(ctx, o.Key)
			}
			if err != nil {
				t.Errorf("clean up: %v", err)
			}
		}
	})
}

func getAfterPut(t *testing.T, s store.Store) {
	put(t, s, "a/b/c.json", "hello")
	wantObject(t, s, "a/b/c.json", "hello")
	o, err := s.Stat(t.Context(), "a/b/c.json")
	if err != nil || o.Key != "a/b/c.json" || o.Size != 5 {
		t.Errorf("Stat: got %+v, %v, want key a/b/c.json and size 5", o, err)
	}
	if age := time.Since(o.Modified); age < -time.Minute || age > 10*time.Minute {
		t.Errorf("Stat: got a time %v ago, want now", age)
	}
}

func putReplaces(t *testing.T, s store.Store) {
	put(t, s, "k", "a longer text that comes first")
	put(t, s, "k", "short")
	wantObject(t, s, "k", "short")
}

func putOwnsBytes(t *testing.T, s store.Store) {
	buf := []byte("before")
	if err := s.Put(t.Context(), "k", buf); err != nil {
		t.Fatal(err)
	}
	copy(buf, "XXXXXX")
	got := get(t, s, "k")
	wantObject(t, s, "k", "before")
	copy(got, "YYYYYY")
	wantObject(t, s, "k", "before")
}

func putEmpty(t *testing.T, s store.Store) {
	put(t, s, "empty", "")
	wantObject(t, s, "empty", "")
	wantKeys(t, s, "", "", "empty")
	if err := s.PutIfAbsent(t.Context(), "empty", nil); !errors.Is(err, store.ErrExists) {
		t.Errorf("PutIfAbsent on an empty object: got %v, want ErrExists", err)
	}
	data, err := s.ReadRange(t.Context(), "empty", -8, 0)
	if err != nil || len(data) != 0 {
		t.Errorf("last 8 bytes of an empty object: got %q, %v, want none and no error", data, err)
	}
}

// strange are keys that go wrong where a key is encoded twice, once too little, or taken for a pattern.
var strange = []string{
	"with space/a b", "percent/100%", "percent/%20", "percent/%2F%252F", "hash#/a#b", "question?/a?b=c&d",
	"plus+/a+b", "colon:/10:00:00", "equals=/day=2024-01-01", "quote'\"/it's", "brackets[]{}()/*",
	"back\\slash/\\", "tilde~/~", "unicode-é/日本/😀", "amp&<>/x", "comma,;/@!$", "_hidden/.dot/..dots",
	"a..b/c.", "-dash/--", "|pipe/^`",
}

func (o *Options) strangeKeys(t *testing.T, s store.Store) {
	var held []string
	for _, key := range strange {
		if o.Refuses(key) {
			wantUnwritable(t, s, key)
			continue
		}
		held = append(held, key)
		put(t, s, key, "of "+key)
	}
	for _, key := range held {
		wantObject(t, s, key, "of "+key)
		wantKeys(t, s, key, "", key)
	}
	wantKeys(t, s, "", "", slices.Sorted(slices.Values(held))...)
	for _, key := range held {
		if err := s.Delete(t.Context(), key); err != nil {
			t.Errorf("Delete %q: %v", key, err)
		}
	}
	wantKeys(t, s, "", "")
}

func wantUnwritable(t *testing.T, s store.Store, key string) {
	t.Helper()
	_, createErr := s.Create(t.Context(), key)
	for call, err := range map[string]error{"Create": createErr, "Put": s.Put(t.Context(), key, nil),
		"PutIfAbsent": s.PutIfAbsent(t.Context(), key, nil)} {
		if err == nil || errors.Is(err, store.ErrNotFound) || store.Retryable(err) {
			t.Errorf("%s(%q): got %v, want an error about the key", call, key, err)
		}
	}
	if data, err := s.Get(t.Context(), key); err == nil {
		t.Errorf("Get(%q): got %q, want an error", key, data)
	}
}

func badKeys(t *testing.T, s store.Store) {
	bad := []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/..", "./a", "a/./b", "a\x00b", "a\xff",
		strings.Repeat("long/", 300) + "k",
	}
	for _, key := range bad {
		wantRefused(t, s, key)
	}
	for _, prefix := range []string{"../", "/", "a/../", "./", "..", "a//"} {
		wantKeys(t, s, prefix, "")
	}
}

// wantRefused wants every call on the key to fail because of the key.
func wantRefused(t *testing.T, s store.Store, key string) {
	t.Helper()
	ctx := t.Context()
	_, getErr := s.Get(ctx, key)
	_, readErr := s.ReadRange(ctx, key, 0, 1)
	_, statErr := s.Stat(ctx, key)
	_, createErr := s.Create(ctx, key)
	for call, err := range map[string]error{
		"Get": getErr, "ReadRange": readErr, "Stat": statErr, "Create": createErr,
		"Put": s.Put(ctx, key, nil), "PutIfAbsent": s.PutIfAbsent(ctx, key, nil),
		"Delete": s.Delete(ctx, key),
	} {
		if err == nil || errors.Is(err, store.ErrNotFound) || store.Retryable(err) {
			t.Errorf("%s(%q): got %v, want an error about the key", call, key, err)
		}
	}
}

func missing(t *testing.T, s store.Store) {
	put(t, s, "folder/k", "x")
	for _, key := range []string{"none", "folder", "folder/none", "folder/k/none", "none/none"} {
		_, getErr := s.Get(t.Context(), key)
		_, readErr := s.ReadRange(t.Context(), key, 0, 1)
		_, tailErr := s.ReadRange(t.Context(), key, -1, 0)
		_, statErr := s.Stat(t.Context(), key)
		for call, err := range map[string]error{
			"Get": getErr, "ReadRange": readErr, "ReadRange of the end": tailErr, "Stat": statErr,
		} {
			if !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%s(%q): got %v, want ErrNotFound", call, key, err)
			}
		}
	}
	wantKeys(t, s, "none/", "")
	wantKeys(t, s, "folder/k/", "")
}

func ranges(t *testing.T, s store.Store) {
	put(t, s, "k", "0123456789")
	for _, c := range []struct {
		offset, length int64
		want           string
	}{
		{0, 10, "0123456789"}, {0, 1, "0"}, {9, 1, "9"}, {3, 4, "3456"}, {3, 100, "3456789"},
		{0, 1 << 62, "0123456789"}, {5, 0, ""}, {-1, 0, "9"}, {-4, 0, "6789"}, {-4, 2, "6789"},
		{-10, 0, "0123456789"}, {-100, 0, "0123456789"},
	} {
		got, err := s.ReadRange(t.Context(), "k", c.offset, c.length)
		if err != nil || string(got) != c.want {
			t.Errorf("ReadRange(%d, %d): got %q, %v, want %q", c.offset, c.length, got, err, c.want)
		}
	}
	if _, err := s.ReadRange(t.Context(), "k", 0, -1); err == nil {
		t.Errorf("ReadRange with a negative length: got no error")
	}
}

func rangeBeyondEnd(t *testing.T, s store.Store) {
	put(t, s, "k", "0123456789")
	for _, offset := range []int64{10, 11, 1 << 40} {
		for _, length := range []int64{0, 1, 100} {
			if got, err := s.ReadRange(t.Context(), "k", offset, length); !errors.Is(err, io.EOF) {
				t.Errorf("ReadRange(%d, %d) of 10 bytes: got %q, %v, want io.EOF", offset, length, got, err)
			}
		}
	}
}

func deletes(t *testing.T, s store.Store) {
	put(t, s, "a/k", "x")
	put(t, s, "a/l", "y")
	for range 2 {
		if err := s.Delete(t.Context(), "a/k"); err != nil {
			t.Fatalf("Delete: %v", err)
		}
	}
	if _, err := s.Get(t.Context(), "a/k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("Get of a deleted object: got %v, want ErrNotFound", err)
	}
	for _, key := range []string{"none/none", "a", "a/l/none"} {
		if err := s.Delete(t.Context(), key); err != nil {
			t.Errorf("Delete(%q), which is no object: %v", key, err)
		}
	}
	wantKeys(t, s, "", "", "a/l")
}

func cancelled(t *testing.T, s store.Store) {
	put(t, s, "k", "before")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, getErr := s.Get(ctx, "k")
	_, readErr := s.ReadRange(ctx, "k", 0, 1)
	_, statErr := s.Stat(ctx, "k")
	_, listErr := collect(s.List(ctx, "", ""))
	for call, err := range map[string]error{
		"Get": getErr, "ReadRange": readErr, "Stat": statErr, "List": listErr, "Delete": s.Delete(ctx, "k"),
		"Put": s.Put(ctx, "k", []byte("after")), "PutIfAbsent": s.PutIfAbsent(ctx, "new", nil),
	} {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want context.Canceled", call, err)
		}
	}

	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	up, err := s.Create(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := up.Write([]byte("after")); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := up.Close(); !errors.Is(err, context.Canceled) {
		t.Errorf("Close: got %v, want context.Canceled", err)
	}
	if err := up.Abort(); err != nil {
		t.Errorf("Abort: %v", err)
	}
	wantObject(t, s, "k", "before")
	wantKeys(t, s, "", "", "k")
}

func url(t *testing.T, s store.Store) {
	if scheme, _, found := strings.Cut(s.URL(), ":"); !found || scheme == "" {
		t.Errorf("URL: got %q, want a scheme and a colon", s.URL())
	}
}

func put(t *testing.T, s store.Store, key, data string) {
	t.Helper()
	if err := s.Put(t.Context(), key, []byte(data)); err != nil {
		t.Fatalf("Put %q: %v", key, err)
	}
}

func get(t *testing.T, s store.Store, key string) []byte {
	t.Helper()
	data, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatalf("Get %q: %v", key, err)
	}
	return data
}

func wantObject(t *testing.T, s store.Store, key, want string) {
	t.Helper()
	if got := get(t, s, key); !bytes.Equal(got, []byte(want)) {
		t.Errorf("object %q: got %s, want %s", key, brief(got), brief([]byte(want)))
	}
}

func brief(data []byte) string {
	if len(data) <= 64 {
		return fmt.Sprintf("%q", data)
	}
	return fmt.Sprintf("%d bytes %q…", len(data), data[:64])
}
