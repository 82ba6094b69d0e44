package keyindex

import "math/bits"

// ref stands for a fingerprint where many are put in order: its upper half, and its place in the batch.
type ref struct {
	hi uint64
	i  uint32
}

// orderer puts fingerprints in order by their leading bits. Its memory is used again.
type orderer struct {
	refs  []ref
	ends  []uint32
	width uint // bits that order
}

// order returns n fingerprints by their first bits from skip on (which are all alike before): those that
// agree in about log2(n) - spare of them stay in no order. It is valid until the next call.
func (o *orderer) order(n int, skip, spare uint, hi func(i int) uint64) []ref {
	o.width = 1
	if l := uint(bits.Len(uint(n))); l > spare+1 {
		o.width = l - spare
	}
	if cap(o.refs) < n {
		o.refs = make([]ref, n)
	}
	if cap(o.ends) < 1<<o.width+1 {
		o.ends = make([]uint32, 1<<o.width+1)
	}
	refs, ends := o.refs[:n], o.ends[:1<<o.width+1]
	clear(ends)
	for i := range n {
		ends[o.leading(hi(i), skip)+1]++
	}
	for i := 1; i < len(ends); i++ {
		ends[i] += ends[i-1]
	}
	for i := range n {
		h := hi(i)
		at := &ends[o.leading(h, skip)]
		refs[*at] = ref{h, uint32(i)}
		*at++
	}
	return refs
}

// leading is the bits that order a fingerprint.
func (o *orderer) leading(hi uint64, skip uint) uint64 { return hi << skip >> (64 - o.width) }
