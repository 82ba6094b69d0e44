package keyindex

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"golang.org/x/sync/errgroup"
)

// Lookup answers where each key lies: at[i] and, where seqs is not nil, the sequence at SequenceBytes*i are
// of keys[i]. A key that has no position gets the zero Position and a sequence of zeroes. All answers are of
// one version, the last that was committed before the call or during it. Larger batches cost less a key: they
// are put in order first. Errors: ErrCorrupt, ErrDone; then the answers say nothing. It is safe for
// concurrent use, and waits for no Change.
func (x *Index) Lookup(keys []Fingerprint, at []Position, seqs []byte) error {
	if len(at) != len(keys) || seqs != nil && len(seqs) != len(keys)*x.identity.SequenceBytes {
		return fmt.Errorf("look up %d keys: found room for %d positions and %d bytes of sequences of %d",
			len(keys), len(at), len(seqs), x.identity.SequenceBytes)
	}
	s, err := x.acquire()
	if err != nil {
		return err
	}
	defer x.release(s)
	clear(at)
	clear(seqs)
	seq := x.identity.SequenceBytes
	if seqs == nil {
		seq = 0
	}
	for len(keys) > 0 {
		n := min(len(keys), lookupPart)
		b := &batch{state: s, keys: keys[:n], at: at[:n], seqs: seqs[:n*seq], seq: seq}
		if err := x.lookup(b); err != nil {
			return fmt.Errorf("look up %d keys: %w", len(keys), err)
		}
		keys, at, seqs = keys[n:], at[n:], seqs[n*seq:]
	}
	return nil
}

const (
	lookupPart   = 1 << 17 // keys that are put in order at once
	lookupWorker = 1 << 15 // the fewest keys that are worth a goroutine
	lookupGroup  = 32      // keys whose memory is asked for before any of it is used
)

// batch is a part of a look-up. Its goroutines write to different elements of at and seqs.
type batch struct {
	state *state
	keys  []Fingerprint
	at    []Position
	seqs  []byte
	seq   int // bytes of a sequence; 0: not wanted
}

// scratch is the memory of a look-up, used again.
type scratch struct {
	orderer
	maybe []ref
}

func (x *Index) lookup(b *batch) error {
	sc, ok := x.scratch.Get().(*scratch)
	if !ok {
		sc = &scratch{}
	}
	defer x.scratch.Put(sc)
	n := len(b.keys)
	refs := sc.order(n, 0, 3, func(i int) uint64 { return b.keys[i].Hi })
	if cap(sc.maybe) < n {
		sc.maybe = make([]ref, n)
	}
	workers := max(1, min(runtime.GOMAXPROCS(0), n/lookupWorker))
	if workers == 1 {
		return guarded(func() error { return b.search(refs, sc.maybe[:n]) })
	}
	var g errgroup.Group
	for w := range workers {
		from, to := w*n/workers, (w+1)*n/workers
		g.Go(func() error {
			return guarded(func() error { return b.search(refs[from:to], sc.maybe[from:to]) })
		})
	}
	return g.Wait()
}

// search looks for the keys in one run after another, from the newest on, until all are found. It uses up
// refs.
func (b *batch) search(refs, spare []ref) error {
	for _, r := range b.state.runs {
		f, err := r.filter()
		if err != nil {
			return err
		}
		none, maybe := refs[:0], refs
		if f != nil {
			none, maybe = f.split(refs, spare)
		}
		if refs, err = b.probe(r, none, maybe); err != nil || len(refs) == 0 {
			return err
		}
	}
	return nil
}

// probe looks for keys in a run and adds to none those that it does not hold. It goes by groups, and in
// steps: what a step reads or writes of one key of the group does not depend on another, so that the
// processor waits for the memory of all of them at once.
func (b *batch) probe(r *run, none, maybe []ref) ([]ref, error) {
	var g probeGroup
	for len(maybe) > 0 {
		group := maybe[:min(lookupGroup, len(maybe))]
		maybe = maybe[len(group):]
		for j, k := range group {
			g.keys[j] = b.keys[k.i]
			g.spans[j] = r.span(r.bucketOf(k.hi))
		}
		r.touch(g.spans[:len(group)])
		for j := range group {
			records, err := r.check(r.bucketOf(g.keys[j].Hi), g.spans[j])
			if err != nil {
				return nil, err
			}
			g.found[j] = r.find(records, g.keys[j])
		}
		for j, k := range group {
			if g.found[j] == nil {
				none = append(none, k)
				continue
			}
			b.take(k.i, r, g.found[j])
		}
	}
	return none, nil
}

// probeGroup is what is known of the keys of a group.
type probeGroup struct {
	keys  [lookupGroup]Fingerprint
	spans [lookupGroup]span
	found [lookupGroup][]byte // the record; nil: none
}

// touch reads a byte of each cache line of the spans.
func (r *run) touch(spans []span) {
	var sum byte
	for _, s := range spans {
		if !r.inside(s) {
			continue
		}
		b := r.body[s.start:s.end]
		for i := 0; i < len(b); i += 64 {
			sum += b[i]
		}
		sum += b[len(b)-1]
	}
	runtime.KeepAlive(sum)
}

// take answers a key by its newest record, which may say that there is no row.
func (b *batch) take(i uint32, r *run, rec []byte) {
	at := r.position(rec)
	if !b.state.live.has(at.File) {
		return
	}
	b.at[i] = at
	if b.seq > 0 {
		copy(b.seqs[int(i)*b.seq:], r.sequence(rec))
	}
}

// guarded runs what reads mapped files. Where such a file was cut short behind our back, or the disk fails,
// the processor faults; that becomes an ErrCorrupt instead of the end of the process.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			err = fmt.Errorf("%w: a mapped file cannot be read at %#x", ErrCorrupt, fault.Addr())
		default:
			panic(fault)
		}
	}()
	return f()
}
