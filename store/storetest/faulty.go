package storetest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"iter"
	"math/rand/v2"
	"sync"

	"github.com/freshet-io/freshet/store"
)

// ErrCrashed is what every call on a Faulty returns from its crash on.
var ErrCrashed = errors.New("the process has crashed")

// Op names a call of store.Store, or the Close of an upload.
type Op string

// The calls that a rule is asked about. List counts when its iteration begins; an upload's Write and Abort do
// not count.
const (
	OpGet         Op = "get"
	OpReadRange   Op = "read range"
	OpStat        Op = "stat"
	OpPut         Op = "put"
	OpPutIfAbsent Op = "put if absent"
	OpCreate      Op = "create"
	OpClose       Op = "close"
	OpList        Op = "list"
	OpDelete      Op = "delete"
)

// Writes reports whether the call changes what others see.
func (o Op) Writes() bool {
	return o == OpPut || o == OpPutIfAbsent || o == OpClose || o == OpDelete
}

// Kind is what goes wrong with a call.
type Kind int

// The kinds of fault.
const (
	None        Kind = iota
	ErrorBefore      // the call is not made and returns Err, or else ErrUnavailable
	ErrorAfter       // the call is made and returns Err, or else ErrAmbiguous (writes) or ErrUnavailable
	Slow             // the call waits for Release or the end of its context, and is made in the first case
	Torn             // Get, ReadRange and List give half of it, and ErrUnavailable with io.ErrUnexpectedEOF
	Lag              // List does not show the Objects objects that were written last
	CrashBefore      // the process dies before the call: it and all later ones fail with ErrCrashed
	CrashAfter       // the process dies once the call is made
)

// Fault says what goes wrong with one call; the zero value: nothing.
type Fault struct {
	Kind    Kind
	Err     error           // of ErrorBefore and ErrorAfter; nil for the usual one
	Release <-chan struct{} // of Slow; nil to wait for the context alone
	Objects int             // of Lag: how many objects are hidden
}

// Rule decides on the fault of a call. n counts the calls of the Faulty from 1. Calls of Rule do not overlap.
// The key of a List is its prefix.
type Rule func(op Op, key string, n int) Fault

// Faulty is a store.Store over another one that fails as its rule says. It is safe for concurrent use if the
// inner one is. What has landed in the inner store is there for a second Faulty: so a test lets one process
// die and another go on.
type Faulty struct {
	inner store.Store
	rule  Rule

	mu      sync.Mutex
	calls   int
	counts  map[Op]int
	crashed bool
}

// NewFaulty returns a store that fails as rule says; a nil rule never fails, and calls are still counted.
func NewFaulty(inner store.Store, rule Rule) *Faulty {
	if rule == nil {
		rule = func(Op, string, int) Fault { return Fault{} }
	}
	return &Faulty{inner: inner, rule: rule, counts: map[Op]int{}}
}

// Calls is the number of calls so far, those that failed included, those after a crash not.
func (f *Faulty) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// Count is the number of calls of one kind so far.
func (f *Faulty) Count(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[op]
}

// Crashed reports whether a crash has happened. A test that crashes at call 1, 2, 3 … is done when it has
// not.
func (f *Faulty) Crashed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.crashed
}

// CrashAt returns a rule by which the process dies at call n, before it is made or after.
func CrashAt(n int, after bool) Rule {
	kind := CrashBefore
	if after {
		kind = CrashAfter
	}
	return func(_ Op, _ string, call int) Fault {
		if call != n {
			return Fault{}
		}
		return Fault{Kind: kind}
	}
}

// Seeded returns a rule by which each call fails with the given probability, by errors that a real store may
// return: writes before or after they landed, reads before or torn. What happens to the i-th call of one kind
// on one key depends on the seed alone, not on the order in which goroutines run. A rule is for one Faulty.
func Seeded(seed uint64, probability float64) Rule {
	type call struct {
		op  Op
		key string
	}
	seen := map[call]int{}
	return func(op Op, key string, _ int) Fault {
		c := call{op, key}
		seen[c]++
		hash := fnv.New64a()
		fmt.Fprintf(hash, "%s\x00%s\x00%d", op, key, seen[c])
		draw := rand.New(rand.NewPCG(seed, hash.Sum64()))
		switch {
		case draw.Float64() >= probability:
			return Fault{}
		case draw.IntN(2) == 0:
			return Fault{Kind: ErrorBefore}
		case op.Writes() || op == OpStat || op == OpCreate:
			return Fault{Kind: ErrorAfter}
		}
		return Fault{Kind: Torn}
	}
}

// URL is that of the inner store.
func (f *Faulty) URL() string { return f.inner.URL() }

// Get is the inner Get, unless the rule says otherwise.
func (f *Faulty) Get(ctx context.Context, key string) ([]byte, error) {
	return f.read(ctx, OpGet, key, func() ([]byte, error) { return f.inner.Get(ctx, key) })
}

// ReadRange is the inner ReadRange, unless the rule says otherwise.
func (f *Faulty) ReadRange(ctx context.Context, key string, offset, length int64) ([]byte, error) {
	return f.read(ctx, OpReadRange, key, func() ([]byte, error) {
		return f.inner.ReadRange(ctx, key, offset, length)
	})
}

// Stat is the inner Stat, unless the rule says otherwise.
func (f *Faulty) Stat(ctx context.Context, key string) (store.Object, error) {
	fault, err := f.begin(ctx, OpStat, key)
	if err != nil {
		return store.Object{}, err
	}
	o, err := f.inner.Stat(ctx, key)
	if err = f.end(OpStat, key, fault, err); err != nil {
		return store.Object{}, err
	}
	return o, nil
}

// Put is the inner Put, unless the rule says otherwise.
func (f *Faulty) Put(ctx context.Context, key string, data []byte) error {
	return f.write(ctx, OpPut, key, func() error { return f.inner.Put(ctx, key, data) })
}

// PutIfAbsent is the inner PutIfAbsent, unless the rule says otherwise.
func (f *Faulty) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	return f.write(ctx, OpPutIfAbsent, key, func() error { return f.inner.PutIfAbsent(ctx, key, data) })
}

// Delete is the inner Delete, unless the rule says otherwise.
func (f *Faulty) Delete(ctx context.Context, key string) error {
	return f.write(ctx, OpDelete, key, func() error { return f.inner.Delete(ctx, key) })
}

// Create is the inner Create, unless the rule says otherwise. The upload's Close is a call of its own.
func (f *Faulty) Create(ctx context.Context, key string) (store.Upload, error) {
	fault, err := f.begin(ctx, OpCreate, key)
	if err != nil {
		return nil, err
	}
	up, err := f.inner.Create(ctx, key)
	if failed := f.end(OpCreate, key, fault, err); failed != nil {
		if err == nil {
			_ = up.Abort()
		}
		return nil, failed
	}
	return &faultyUpload{ctx: ctx, faulty: f, key: key, inner: up}, nil
}

// List is the inner List, unless the rule says otherwise.
func (f *Faulty) List(ctx context.Context, prefix, after string) iter.Seq2[store.Object, error] {
	return func(yield func(store.Object, error) bool) {
		fault, err := f.begin(ctx, OpList, prefix)
		if err != nil {
			yield(store.Object{}, err)
			return
		}
		listing := f.inner.List(ctx, prefix, after)
		switch fault.Kind {
		case Torn, Lag, ErrorAfter, CrashAfter:
			listing = f.spoil(listing, prefix, fault)
		}
		for o, err := range listing {
			if f.Crashed() && err == nil {
				o, err = store.Object{}, crashed(OpList, prefix)
			}
			if !yield(o, err) || err != nil {
				return
			}
		}
	}
}

// spoil reads a listing whole and gives what the fault leaves of it.
func (f *Faulty) spoil(
	listing iter.Seq2[store.Object, error], prefix string, fault Fault,
) iter.Seq2[store.Object, error] {
	return func(yield func(store.Object, error) bool) {
		var all []store.Object
		for o, err := range listing {
			if err != nil {
				yield(o, err)
				return
			}
			all = append(all, o)
		}
		err := f.end(OpList, prefix, fault, nil)
		switch fault.Kind {
		case Torn:
			all, err = all[:len(all)/2], torn(OpList, prefix)
		case Lag:
			all = withoutNewest(all, fault.Objects)
		}
		for _, o := range all {
			if !yield(o, nil) {
				return
			}
		}
		if err != nil {
			yield(store.Object{}, err)
		}
	}
}

// withoutNewest takes away the n objects written last, of equal times those with the greatest keys.
func withoutNewest(objects []store.Object, n int) []store.Object {
	for range min(n, len(objects)) {
		newest := 0
		for i, o := range objects {
			if !o.Modified.Before(objects[newest].Modified) {
				newest = i
			}
		}
		objects = append(objects[:newest], objects[newest+1:]...)
	}
	return objects
}

func (f *Faulty) read(ctx context.Context, op Op, key string, call func() ([]byte, error)) ([]byte, error) {
	fault, err := f.begin(ctx, op, key)
	if err != nil {
		return nil, err
	}
	data, err := call()
	if err = f.end(op, key, fault, err); err != nil {
		return nil, err
	}
	if fault.Kind == Torn {
		return data[:len(data)/2], torn(op, key)
	}
	return data, nil
}

func (f *Faulty) write(ctx context.Context, op Op, key string, call func() error) error {
	fault, err := f.begin(ctx, op, key)
	if err != nil {
		return err
	}
	return f.end(op, key, fault, call())
}

// begin counts a call and lets happen what happens before it.
func (f *Faulty) begin(ctx context.Context, op Op, key string) (Fault, error) {
	fault, err := f.decide(op, key)
	if err != nil {
		return fault, err
	}
	switch fault.Kind {
	case ErrorBefore:
		return fault, fail(op, key, fault.Err, store.ErrUnavailable)
	case Slow:
		select {
		case <-fault.Release:
		case <-ctx.Done():
			return fault, fmt.Errorf("%s %s: %w", op, key, ctx.Err())
		}
		if f.Crashed() {
			return fault, crashed(op, key)
		}
	}
	return fault, nil
}

// decide asks the rule. Of calls at the same time, those that ask after the crash are too late.
func (f *Faulty) decide(op Op, key string) (Fault, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.crashed {
		return Fault{}, crashed(op, key)
	}
	f.calls++
	f.counts[op]++
	fault := f.rule(op, key, f.calls)
	if fault.Kind == CrashBefore {
		f.crashed = true
		return fault, crashed(op, key)
	}
	return fault, nil
}

// end lets happen what happens after a call that returned err.
func (f *Faulty) end(op Op, key string, fault Fault, err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fault.Kind == CrashAfter {
		f.crashed = true
	}
	switch {
	case f.crashed:
		return crashed(op, key) // nobody is there to hear the answer
	case fault.Kind == ErrorAfter && op.Writes():
		return fail(op, key, fault.Err, store.ErrAmbiguous)
	case fault.Kind == ErrorAfter:
		return fail(op, key, fault.Err, store.ErrUnavailable)
	}
	return err
}

func fail(op Op, key string, given, usual error) error {
	if given == nil {
		given = usual
	}
	return fmt.Errorf("%s %s: injected: %w", op, key, given)
}

func torn(op Op, key string) error {
	return fmt.Errorf("%s %s: injected: %w: %w", op, key, store.ErrUnavailable, io.ErrUnexpectedEOF)
}

func crashed(op Op, key string) error {
	return fmt.Errorf("%s %s: %w", op, key, ErrCrashed)
}

type faultyUpload struct {
	ctx    context.Context
	faulty *Faulty
	key    string
	inner  store.Upload
	done   bool
}

func (u *faultyUpload) Write(p []byte) (int, error) {
	if u.faulty.Crashed() {
		return 0, crashed("write", u.key)
	}
	return u.inner.Write(p)
}

func (u *faultyUpload) Close() error {
	if u.done {
		return u.inner.Close()
	}
	u.done = true
	fault, err := u.faulty.begin(u.ctx, OpClose, u.key)
	if err != nil {
		return errors.Join(err, u.inner.Abort()) // what is not made leaves no file open
	}
	return u.faulty.end(OpClose, u.key, fault, u.inner.Close())
}

func (u *faultyUpload) Abort() error {
	u.done = true
	return u.inner.Abort()
}
