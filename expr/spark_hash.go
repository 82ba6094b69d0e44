package expr

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// hasher is one of Spark's hash functions of rows. Each value is hashed with the hash of those before it as the seed;
// nulls are passed over.
type hasher struct {
	t     arrow.DataType
	short func(v uint32, seed uint64) uint64
	long  func(v, seed uint64) uint64
	bytes func(v []byte, seed uint64) uint64
}

var (
	murmur = hasher{typeInt32, murmurShort, murmurLong, murmurBytes}
	xxHash = hasher{typeInt64, xxShort, xxLong, xxBytes}
)

// hashSeed is the seed of the first value.
const hashSeed = 42

type hashNode struct {
	hasher
	args []node
}

func newSparkHash(c *callSite, h hasher) (node, error) {
	for _, a := range c.args {
		if k := kindOf(a.typ()); k == kindNested || k == kindInterval {
			return nil, c.typeFault("%s of %s is not known here", c.name, typeName(a.typ()))
		}
	}
	return &hashNode{h, c.args}, nil
}

func (n *hashNode) typ() arrow.DataType { return n.t }
func (n *hashNode) nullable() bool      { return false }

func (n *hashNode) eval(r *run, active bitset) *vector {
	out := &vector{t: n.t, rows: r.rows, mask: -1, owned: true, ints: make([]int64, r.rows)}
	for i := range out.ints {
		out.ints[i] = hashSeed
	}
	for _, a := range n.args {
		v := a.eval(r, active)
		for i := range out.ints {
			if v.valid.has(i) && kindOf(v.t) != kindNull {
				out.ints[i] = int64(n.hash(v, i, uint64(out.ints[i])))
			}
		}
	}
	return out
}

func (h hasher) hash(v *vector, i int, seed uint64) uint64 {
	switch kindOf(v.t) {
	case kindBool:
		if v.bools.has(i) {
			return h.short(1, seed)
		}
		return h.short(0, seed)
	case kindTime:
		return h.long(uint64(v.int(i)), seed)
	case kindInt, kindDate:
		if v.t.ID() == arrow.INT64 {
			return h.long(uint64(v.int(i)), seed)
		}
		return h.short(uint32(v.int(i)), seed)
	case kindFloat:
		f := v.float(i) + 0 // -0.0 becomes 0.0
		if f != f {
			f = math.NaN()
		}
		if v.t.ID() == arrow.FLOAT32 {
			if f != f {
				return h.short(0x7fc00000, seed)
			}
			return h.short(math.Float32bits(float32(f)), seed)
		}
		if f != f {
			return h.long(0x7ff8000000000000, seed)
		}
		return h.long(math.Float64bits(f), seed)
	case kindDecimal:
		d := v.dec(i)
		if v.t.(*arrow.Decimal128Type).Precision <= 18 {
			return h.long(d.LowBits(), seed)
		}
		return h.bytes(twosComplement(d), seed)
	}
	return h.bytes(v.bytes(i), seed)
}

// twosComplement is the shortest big-endian form of the number, as Java's BigInteger has it.
func twosComplement(d decimal128.Num) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(d.HighBits()))
	b = binary.BigEndian.AppendUint64(b, d.LowBits())
	for len(b) > 1 && (b[0] == 0 && b[1] < 0x80 || b[0] == 0xff && b[1] >= 0x80) {
		b = b[1:]
	}
	return b
}

func murmurMix(h, k uint32) uint32 {
	k = bits.RotateLeft32(k*0xcc9e2d51, 15) * 0x1b873593
	return bits.RotateLeft32(h^k, 13)*5 + 0xe6546b64
}

func murmurEnd(h, length uint32) uint64 {
	h ^= length
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return uint64(int64(int32(h ^ h>>16)))
}

func murmurShort(v uint32, seed uint64) uint64 { return murmurEnd(murmurMix(uint32(seed), v), 4) }

func murmurLong(v, seed uint64) uint64 {
	return murmurEnd(murmurMix(murmurMix(uint32(seed), uint32(v)), uint32(v>>32)), 8)
}

// murmurBytes takes what is left of the last four bytes one by one, as signed numbers: Spark's own way.
func murmurBytes(v []byte, seed uint64) uint64 {
	h, rest := uint32(seed), v
	for ; len(rest) >= 4; rest = rest[4:] {
		h = murmurMix(h, binary.LittleEndian.Uint32(rest))
	}
	for _, b := range rest {
		h = murmurMix(h, uint32(int32(int8(b))))
	}
	return murmurEnd(h, uint32(len(v)))
}

const (
	xxPrime1 uint64 = 0x9E3779B185EBCA87
	xxPrime2 uint64 = 0xC2B2AE3D27D4EB4F
	xxPrime3 uint64 = 0x165667B19E3779F9
	xxPrime4 uint64 = 0x85EBCA77C2B2AE63
	xxPrime5 uint64 = 0x27D4EB2F165667C5
)

func xxEnd(h uint64) uint64 {
	h = (h ^ h>>33) * xxPrime2
	h = (h ^ h>>29) * xxPrime3
	return h ^ h>>32
}

func xxShort(v uint32, seed uint64) uint64 { return xxEnd(xxMix4(seed+xxPrime5+4, v)) }

func xxLong(v, seed uint64) uint64 { return xxEnd(xxMix8(seed+xxPrime5+8, v)) }

func xxMix4(h uint64, v uint32) uint64 {
	return bits.RotateLeft64(h^uint64(v)*xxPrime1, 23)*xxPrime2 + xxPrime3
}

func xxMix8(h, v uint64) uint64 {
	return bits.RotateLeft64(h^xxRound(0, v), 27)*xxPrime1 + xxPrime4
}

func xxRound(acc, v uint64) uint64 { return bits.RotateLeft64(acc+v*xxPrime2, 31) * xxPrime1 }

func xxBytes(v []byte, seed uint64) uint64 {
	h, rest := seed+xxPrime5, v
	if len(v) >= 32 {
		acc := [4]uint64{seed + xxPrime1 + xxPrime2, seed + xxPrime2, seed, seed - xxPrime1}
		for ; len(rest) >= 32; rest = rest[32:] {
			for i := range acc {
				acc[i] = xxRound(acc[i], binary.LittleEndian.Uint64(rest[8*i:]))
			}
		}
		h = bits.RotateLeft64(acc[0], 1) + bits.RotateLeft64(acc[1], 7) + bits.RotateLeft64(acc[2], 12) +
			bits.RotateLeft64(acc[3], 18)
		for _, a := range acc {
			h = (h^xxRound(0, a))*xxPrime1 + xxPrime4
		}
	}
	h += uint64(len(v))
	for ; len(rest) >= 8; rest = rest[8:] {
		h = xxMix8(h, binary.LittleEndian.Uint64(rest))
	}
	if len(rest) >= 4 {
		h = xxMix4(h, binary.LittleEndian.Uint32(rest))
		rest = rest[4:]
	}
	for _, b := range rest {
		h = bits.RotateLeft64(h^uint64(b)*xxPrime5, 11) * xxPrime1
	}
	return xxEnd(h)
}
