package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

func TestFaulty_NoRule_ConformanceHolds(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return storetest.NewFaulty(store.NewMem(), nil) }, nil)
}

// calls makes each call once on a store that holds "old" and gives their errors in this order.
func calls(ctx context.Context, s store.Store) (errs map[storetest.Op]error) {
	errs = map[storetest.Op]error{}
	_, errs[storetest.OpGet] = s.Get(ctx, "old")
	_, errs[storetest.OpReadRange] = s.ReadRange(ctx, "old", 0, 2)
	_, errs[storetest.OpStat] = s.Stat(ctx, "old")
	errs[storetest.OpPut] = s.Put(ctx, "put", nil)
	errs[storetest.OpPutIfAbsent] = s.PutIfAbsent(ctx, "absent", nil)
	errs[storetest.OpList] = list(ctx, s).err
	errs[storetest.OpDelete] = s.Delete(ctx, "gone")
	up, err := s.Create(ctx, "upload")
	errs[storetest.OpCreate], errs[storetest.OpClose] = err, err
	if err == nil {
		errs[storetest.OpClose] = up.Close()
	}
	return errs
}

type listed struct {
	keys []string
	err  error
}

func list(ctx context.Context, s store.Store) (l listed) {
	for o, err := range s.List(ctx, "", "") {
		if err != nil {
			l.err = err
			return l
		}
		l.keys = append(l.keys, o.Key)
	}
	return l
}

func newInner(t *testing.T) *store.Mem {
	t.Helper()
	m := store.NewMem()
	for _, key := range []string{"gone", "old"} {
		if err := m.Put(t.Context(), key, []byte("0123456789")); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func always(fault storetest.Fault) storetest.Rule {
	return func(storetest.Op, string, int) storetest.Fault { return fault }
}

func TestFaulty_ErrorBefore_NothingLands(t *testing.T) {
	inner := newInner(t)
	f := storetest.NewFaulty(inner, always(storetest.Fault{Kind: storetest.ErrorBefore}))
	for op, err := range calls(t.Context(), f) {
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: got %v, want ErrUnavailable", op, err)
		}
	}
	if got, want := list(t.Context(), inner).keys, []string{"gone", "old"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFaulty_ErrorAfter_Lands(t *testing.T) {
	inner := newInner(t)
	f := storetest.NewFaulty(inner, func(op storetest.Op, _ string, _ int) storetest.Fault {
		if op == storetest.OpCreate {
			return storetest.Fault{}
		}
		return storetest.Fault{Kind: storetest.ErrorAfter}
	})
	for op, err := range calls(t.Context(), f) {
		want := store.ErrUnavailable
		if op.Writes() {
			want = store.ErrAmbiguous
		}
		if op == storetest.OpCreate {
			want = nil
		}
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", op, err, want)
		}
	}
	got, want := list(t.Context(), inner).keys, []string{"absent", "old", "put", "upload"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFaulty_ErrGiven_Returned(t *testing.T) {
	f := storetest.NewFaulty(newInner(t), always(storetest.Fault{
		Kind: storetest.ErrorBefore, Err: store.ErrFull,
	}))
	for op, err := range calls(t.Context(), f) {
		if !errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s: got %v, want ErrFull", op, err)
		}
	}
}

func TestFaulty_Slow_WaitsForReleaseOrContext(t *testing.T) {
	release := make(chan struct{})
	f := storetest.NewFaulty(newInner(t), always(storetest.Fault{Kind: storetest.Slow, Release: release}))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Put(ctx, "new", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	result := make(chan error)
	go func() { result <- f.Put(t.Context(), "new", nil) }()
	select {
	case err := <-result:
		t.Fatalf("got %v before the release", err)
	case release <- struct{}{}:
	}
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestFaulty_Torn_HalfAndError(t *testing.T) {
	f := storetest.NewFaulty(newInner(t), always(storetest.Fault{Kind: storetest.Torn}))
	data, err := f.Get(t.Context(), "old")
	if string(data) != "01234" || !errors.Is(err, io.ErrUnexpectedEOF) || !store.Retryable(err) {
		t.Errorf("Get: got %q, %v, want half of it and a retryable io.ErrUnexpectedEOF", data, err)
	}
	l := list(t.Context(), f)
	if !slices.Equal(l.keys, []string{"gone"}) || !errors.Is(l.err, io.ErrUnexpectedEOF) {
		t.Errorf("List: got %q, %v, want gone and io.ErrUnexpectedEOF", l.keys, l.err)
	}
}

func TestFaulty_Lag_HidesNewest(t *testing.T) {
	inner := newInner(t)
	for _, key := range []string{"z", "a"} {
		if err := inner.Put(t.Context(), key, nil); err != nil {
			t.Fatal(err)
		}
	}
	for hidden, want := range map[int][]string{
		0: {"a", "gone", "old", "z"}, 1: {"gone", "old", "z"}, 2: {"gone", "old"}, 9: nil,
	} {
		f := storetest.NewFaulty(inner, always(storetest.Fault{Kind: storetest.Lag, Objects: hidden}))
		if l := list(t.Context(), f); l.err != nil || !slices.Equal(l.keys, want) {
			t.Errorf("%d hidden: got %q, %v, want %q", hidden, l.keys, l.err, want)
		}
	}
}

// TestFaulty_CrashAtEachCall_LandsUpToThere walks the death of the process through all calls.
func TestFaulty_CrashAtEachCall_LandsUpToThere(t *testing.T) {
	for _, after := range []bool{false, true} {
		lastLanded := -1
		for n := 1; ; n++ {
			inner := newInner(t)
			f := storetest.NewFaulty(inner, storetest.CrashAt(n, after))
			failed := 0
			for _, err := range calls(t.Context(), f) {
				if errors.Is(err, storetest.ErrCrashed) {
					failed++
				} else if err != nil {
					t.Fatal(err)
				}
			}
			if !f.Crashed() {
				if failed != 0 || n != f.Calls()+1 {
					t.Errorf("without a crash: %d of %d calls failed at n = %d", failed, f.Calls(), n)
				}
				break
			}
			if f.Calls() != n || failed == 0 {
				t.Errorf("crash at %d: %d calls counted, %d failed", n, f.Calls(), failed)
			}
			landed := len(list(t.Context(), inner).keys)
			if _, err := inner.Stat(t.Context(), "gone"); err != nil {
				landed += 2 // the deletion counts like a write
			}
			if landed < lastLanded {
				t.Errorf("crash at %d lands less than one before it: %d, %d", n, landed, lastLanded)
			}
			lastLanded = landed
		}
	}
}

func TestFaulty_Count_ByKind(t *testing.T) {
	f := storetest.NewFaulty(newInner(t), nil)
	calls(t.Context(), f)
	if got := f.Count(storetest.OpPut); got != 1 {
		t.Errorf("got %d puts, want 1", got)
	}
	if got := f.Calls(); got != 9 {
		t.Errorf("got %d calls, want 9", got)
	}
}

func TestSeeded_SameSeed_SameFaults(t *testing.T) {
	faults := func(seed uint64) (kinds []storetest.Kind) {
		rule := storetest.Seeded(seed, 0.3)
		for i := range 1000 {
			key := fmt.Sprint("k", i%7)
			kinds = append(kinds, rule(storetest.OpPutIfAbsent, key, i).Kind)
			kinds = append(kinds, rule(storetest.OpGet, key, i).Kind)
		}
		return kinds
	}
	one, again, other := faults(1), faults(1), faults(2)
	if !slices.Equal(one, again) {
		t.Error("the same seed gave other faults")
	}
	if slices.Equal(one, other) {
		t.Error("another seed gave the same faults")
	}
	count := map[storetest.Kind]int{}
	for _, kind := range one {
		count[kind]++
	}
	if none := count[storetest.None]; none < 1300 || none > 1500 {
		t.Errorf("%d of 2000 calls have no fault, want about 1400", none)
	}
	for _, kind := range []storetest.Kind{storetest.ErrorBefore, storetest.ErrorAfter, storetest.Torn} {
		if count[kind] == 0 {
			t.Errorf("no fault of kind %d", kind)
		}
	}
}
