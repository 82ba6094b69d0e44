package delta

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"math/rand/v2"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// keyIndex finds rows by their key: open addressing over the distinct keys, and a chain through the rows that share
// one. A key of one integer column is kept as it is, any other as bytes. Most probes of a merge find nothing: a bit a
// hash answers these without a look into the table.
//
//	filter ──▶ slots: first row of a key ──▶ next: its other rows
type keyIndex struct {
	coder  keyCoder
	filter []uint64
	slots  []int32 // 0: free; else a row, plus one
	next   []int32 // of each row: the next one with its key, plus one; 0: none
	ints   []int64 // of each row
	arena  []byte  // keys, one after another
	ends   []int   // of each row: where its key ends in arena
}

// keyCoder turns the key columns of a batch into hashes, and into integers or bytes that are equal where the keys are.
// It is used by one goroutine.
type keyCoder struct {
	nulls []bool // of each column: two nulls are equal in it
	whole bool   // the key is one integer column, and null equals nothing
	salt  uint64
	seed  maphash.Seed

	scratch []byte
	ints    []int64
}

// newKeyCoder makes the coder of keys of these types.
func newKeyCoder(types []arrow.DataType, nulls []bool) keyCoder {
	c := keyCoder{nulls: nulls, salt: rand.Uint64(), seed: maphash.MakeSeed()}
	c.whole = len(types) == 1 && isIntKey(types[0]) && !nulls[0]
	return c
}

func isIntKey(t arrow.DataType) bool {
	switch t.ID() {
	case arrow.INT8, arrow.INT16, arrow.INT32, arrow.INT64, arrow.DATE32, arrow.TIMESTAMP:
		return true
	}
	return false
}

// hash of an integer key. The salt keeps those who choose keys from choosing hashes.
func (c *keyCoder) hash(v int64) uint64 {
	h := (uint64(v) ^ c.salt) * 0x9e3779b97f4a7c15
	h ^= h >> 32
	return h * 0xd6e8feb86659fd93
}

// intValues returns the integers of a column, as they lie in it where they have 64 bits.
func (c *keyCoder) intValues(arr arrow.Array) []int64 {
	switch a := arr.(type) {
	case *array.Int64:
		return a.Int64Values()
	case *array.Timestamp:
		return arrow.Int64Traits.CastFromBytes(arrow.TimestampTraits.CastToBytes(a.TimestampValues()))
	}
	if cap(c.ints) < arr.Len() {
		c.ints = make([]int64, arr.Len())
	}
	out := c.ints[:arr.Len()]
	switch a := arr.(type) {
	case *array.Int32:
		widen(out, a.Int32Values())
	case *array.Date32:
		widen(out, a.Date32Values())
	case *array.Int16:
		widen(out, a.Int16Values())
	case *array.Int8:
		widen(out, a.Int8Values())
	}
	return out
}

func widen[T ~int8 | ~int16 | ~int32](out []int64, in []T) {
	for i, v := range in {
		out[i] = int64(v)
	}
}

// bytes encodes the key of row i; ok is false when it holds a null that equals nothing. It is valid until the next
// call.
func (c *keyCoder) bytes(columns []arrow.Array, i int) (key []byte, ok bool) {
	b := c.scratch[:0]
	for n, arr := range columns {
		if arr.IsNull(i) {
			if !c.nulls[n] {
				return nil, false
			}
			b = append(b, 0)
			continue
		}
		b = appendKey(append(b, 1), arr, i)
	}
	c.scratch = b
	return b, true
}

// appendKey appends a value so that the bytes of two rows are equal only where all their values are.
func appendKey(b []byte, arr arrow.Array, i int) []byte {
	switch a := arr.(type) {
	case *array.Int64:
		return binary.LittleEndian.AppendUint64(b, uint64(a.Value(i)))
	case *array.Int32:
		return binary.LittleEndian.AppendUint64(b, uint64(int64(a.Value(i))))
	case *array.Int16:
		return binary.LittleEndian.AppendUint64(b, uint64(int64(a.Value(i))))
	case *array.Int8:
		return binary.LittleEndian.AppendUint64(b, uint64(int64(a.Value(i))))
	case *array.Date32:
		return binary.LittleEndian.AppendUint64(b, uint64(int64(a.Value(i))))
	case *array.Timestamp:
		return binary.LittleEndian.AppendUint64(b, uint64(a.Value(i)))
	case *array.String:
		v := a.Value(i)
		return append(binary.AppendUvarint(b, uint64(len(v))), v...)
	case *array.Binary:
		v := a.Value(i)
		return append(binary.AppendUvarint(b, uint64(len(v))), v...)
	case *array.Float64:
		return binary.LittleEndian.AppendUint64(b, floatKey(a.Value(i)))
	case *array.Float32:
		return binary.LittleEndian.AppendUint64(b, floatKey(float64(a.Value(i))))
	case *array.Decimal128:
		v := a.Value(i)
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, v.LowBits()), uint64(v.HighBits()))
	case *array.Boolean:
		if a.Value(i) {
			return append(b, 1)
		}
		return append(b, 0)
	}
	return b
}

// floatKey is one number for all NaNs, and one for both zeros, as comparisons have it.
func floatKey(v float64) uint64 {
	switch {
	case v != v:
		return math.Float64bits(math.NaN())
	case v == 0:
		return 0
	}
	return math.Float64bits(v)
}

// hashes passes the hash of each of n rows to emit; ok is false for keys that equal nothing.
func (c *keyCoder) hashes(columns []arrow.Array, n int, emit func(i int, h uint64, ok bool)) {
	if c.whole {
		arr := columns[0]
		nulls := arr.NullN() > 0
		for i, v := range c.intValues(arr) {
			if nulls && arr.IsNull(i) {
				emit(i, 0, false)
				continue
			}
			emit(i, c.hash(v), true)
		}
		return
	}
	for i := range n {
		key, ok := c.bytes(columns, i)
		if !ok {
			emit(i, 0, false)
			continue
		}
		emit(i, maphash.Bytes(c.seed, key), true)
	}
}

// newKeyIndex indexes n rows by their key columns. Rows whose key equals nothing are left out.
func newKeyIndex(coder keyCoder, columns []arrow.Array, n int) *keyIndex {
	size := 16
	for size < 2*n {
		size *= 2
	}
	x := &keyIndex{coder: coder, slots: make([]int32, size), next: make([]int32, n),
		filter: make([]uint64, size*8/64)}
	if coder.whole {
		x.ints = append([]int64(nil), x.coder.intValues(columns[0])...)
		x.coder.hashes(columns, n, func(i int, h uint64, ok bool) {
			if ok {
				x.insert(h, i, func(j int) bool { return x.ints[j] == x.ints[i] })
			}
		})
		return x
	}
	x.ends = make([]int, n+1)
	for i := range n {
		key, ok := x.coder.bytes(columns, i)
		x.arena = append(x.arena, key...)
		x.ends[i+1] = len(x.arena)
		if ok {
			x.insert(maphash.Bytes(coder.seed, key), i, func(j int) bool { return string(x.key(j)) == string(key) })
		}
	}
	return x
}

// key is the encoded key of a row.
func (x *keyIndex) key(row int) []byte { return x.arena[x.ends[row]:x.ends[row+1]] }

// insert puts a row before those with its key.
func (x *keyIndex) insert(h uint64, row int, same func(int) bool) {
	bit := h >> 32 & uint64(len(x.filter)*64-1)
	x.filter[bit>>6] |= 1 << (bit & 63)
	mask := uint64(len(x.slots) - 1)
	for at := h & mask; ; at = (at + 1) & mask {
		first := x.slots[at]
		if first == 0 {
			x.slots[at] = int32(row) + 1
			return
		}
		if same(int(first) - 1) {
			x.next[row] = first
			x.slots[at] = int32(row) + 1
			return
		}
	}
}

// mayHave reports whether a key of this hash can be there.
func (x *keyIndex) mayHave(h uint64) bool {
	bit := h >> 32 & uint64(len(x.filter)*64-1)
	return x.filter[bit>>6]>>(bit&63)&1 != 0
}

// pairs are matches between rows of the target and of the source: target ascends.
type pairs struct {
	target, source []int32
}

func (p *pairs) add(target int, source int32) {
	p.target = append(p.target, int32(target))
	p.source = append(p.source, source)
}

// probe appends the matches of n rows with these key columns to p.
func (x *keyIndex) probe(columns []arrow.Array, n int, p *pairs) {
	if x.coder.whole {
		x.probeInts(columns[0], p)
		return
	}
	for i := range n {
		key, ok := x.coder.bytes(columns, i)
		if !ok {
			continue
		}
		h := maphash.Bytes(x.coder.seed, key)
		if !x.mayHave(h) {
			continue
		}
		mask := uint64(len(x.slots) - 1)
		for at := h & mask; x.slots[at] != 0; at = (at + 1) & mask {
			if first := x.slots[at]; string(x.key(int(first)-1)) == string(key) {
				x.chain(i, first, p)
				break
			}
		}
	}
}

func (x *keyIndex) probeInts(arr arrow.Array, p *pairs) {
	nulls := arr.NullN() > 0
	values := x.coder.intValues(arr)
	mask := uint64(len(x.slots) - 1)
	for i, v := range values {
		h := x.coder.hash(v)
		if !x.mayHave(h) || nulls && arr.IsNull(i) {
			continue
		}
		for at := h & mask; x.slots[at] != 0; at = (at + 1) & mask {
			if first := x.slots[at]; x.ints[first-1] == v {
				x.chain(i, first, p)
				break
			}
		}
	}
}

// chain appends all rows of a key.
func (x *keyIndex) chain(target int, first int32, p *pairs) {
	for ; first != 0; first = x.next[first-1] {
		p.add(target, first-1)
	}
}

// indexBytes is about the memory that the index takes.
func indexBytes(rows int64) int64 { return rows * 48 }
