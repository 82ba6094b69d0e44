package lake

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/keyindex"
)

// sequencer makes of the columns that order the changes of a key a text of bytes of one length that compares as they do:
// what the key index keeps with each entry. Types whose values have no bound on their length, as text, cannot be.
type sequencer struct {
	width  int
	widths []int
	types  []arrow.DataType
}

// newSequencer returns nil when there are no columns. Errors: a type that cannot order changes.
func newSequencer(types []arrow.DataType) (*sequencer, error) {
	if len(types) == 0 {
		return nil, nil
	}
	s := &sequencer{types: types}
	for _, t := range types {
		w := sequenceWidth(t)
		if w == 0 {
			return nil, fmt.Errorf("a column of type %s cannot order changes: wanted an integer, decimal, float, date, "+
				"timestamp or boolean", t)
		}
		s.widths = append(s.widths, w)
		s.width += w
	}
	if most := keyindex.MaxSequenceBytes - orderTail; s.width > most {
		return nil, fmt.Errorf("the columns that order changes take %d bytes, and there is room for %d", s.width, most)
	}
	return s, nil
}

func sequenceWidth(t arrow.DataType) int {
	switch t.ID() {
	case arrow.BOOL, arrow.INT8:
		return 1
	case arrow.INT16:
		return 2
	case arrow.INT32, arrow.DATE32, arrow.FLOAT32:
		return 4
	case arrow.INT64, arrow.TIMESTAMP, arrow.FLOAT64:
		return 8
	case arrow.DECIMAL128:
		return 16
	}
	return 0
}

// order is where a change stands among those of its key, as the key index keeps it: the sequence, and behind it which
// lane it came by (4 bytes) and where in it (8), so that of two changes of one lane with equal sequences the later one
// is known. An index that was made from the table alone has zeroes there.
type order []byte

const orderTail = 4 + 8

func newOrder(sequence []byte, lane freshet.Lane, seq int64) order {
	h := fnv.New32a()
	_, _ = h.Write([]byte(lane.Origin + "\x00" + lane.OriginID + "\x00" + lane.Name))
	o := binary.BigEndian.AppendUint32(append(order(nil), sequence...), h.Sum32()|1)
	return binary.BigEndian.AppendUint64(o, uint64(seq)^1<<63)
}

// sequence is the order without the lane.
func (o order) sequence() []byte { return o[:len(o)-orderTail] }

// relation is how two orders relate.
type relation int

const (
	before  relation = -1
	unknown relation = 0 // equal sequences of different lanes, or of an unknown one
	after   relation = 1 // or the very same change
)

func (o order) compare(other order) relation {
	tail := len(o) - orderTail
	switch c := bytes.Compare(o.sequence(), other.sequence()); {
	case c != 0:
		return relation(c)
	case !bytes.Equal(o[tail:tail+4], other[tail:tail+4]):
		return unknown
	case bytes.Compare(o[tail+4:], other[tail+4:]) < 0:
		return before
	}
	return after
}

// append appends the texts of n rows to dst, one after another. Nulls become zeroes, which callers rule out before.
func (s *sequencer) append(dst []byte, columns []arrow.Array, n int) []byte {
	first := len(dst)
	dst = append(dst, make([]byte, n*s.width)...)
	s.put(dst[first:], s.width, columns, n)
	return dst
}

// put writes the texts of n rows into dst, which is zeroes, one at every step bytes. Nulls stay zeroes.
func (s *sequencer) put(dst []byte, step int, columns []arrow.Array, n int) {
	at := 0
	for i, c := range columns {
		putColumn(dst[min(at, len(dst)):], step, c, n)
		at += s.widths[i]
	}
}

// putColumn writes the values of one column into dst, at every step bytes. Signed numbers compare as unsigned bytes do
// once their sign is flipped; floats, of which the bits of negative ones go backwards, once those are flipped whole.
func putColumn(dst []byte, step int, arr arrow.Array, n int) {
	switch a := arr.(type) {
	case *array.Boolean:
		each(a, n, func(i int) {
			if a.Value(i) {
				dst[i*step] = 1
			}
		})
	case *array.Int8:
		each(a, n, func(i int) { dst[i*step] = uint8(a.Value(i)) ^ 1<<7 })
	case *array.Int16:
		each(a, n, func(i int) { binary.BigEndian.PutUint16(dst[i*step:], uint16(a.Value(i))^1<<15) })
	case *array.Int32:
		each(a, n, func(i int) { binary.BigEndian.PutUint32(dst[i*step:], uint32(a.Value(i))^1<<31) })
	case *array.Date32:
		each(a, n, func(i int) { binary.BigEndian.PutUint32(dst[i*step:], uint32(a.Value(i))^1<<31) })
	case *array.Int64:
		each(a, n, func(i int) { binary.BigEndian.PutUint64(dst[i*step:], uint64(a.Value(i))^1<<63) })
	case *array.Timestamp:
		each(a, n, func(i int) { binary.BigEndian.PutUint64(dst[i*step:], uint64(a.Value(i))^1<<63) })
	case *array.Float32:
		each(a, n, func(i int) { binary.BigEndian.PutUint32(dst[i*step:], orderedFloat(a.Value(i))) })
	case *array.Float64:
		each(a, n, func(i int) { binary.BigEndian.PutUint64(dst[i*step:], orderedDouble(a.Value(i))) })
	case *array.Decimal128:
		each(a, n, func(i int) {
			v := a.Value(i)
			binary.BigEndian.PutUint64(dst[i*step:], uint64(v.HighBits())^1<<63)
			binary.BigEndian.PutUint64(dst[i*step+8:], v.LowBits())
		})
	}
}

// each calls put for the rows up to n that have a value.
func each(arr arrow.Array, n int, put func(row int)) {
	some := arr.NullN() > 0
	for i := range n {
		if !some || arr.IsValid(i) {
			put(i)
		}
	}
}

// ordered makes of the bits of a float a number whose order is that of floats as Spark has it: both zeroes are one, NaN is
// the greatest.
func ordered[B uint32 | uint64](bits B, isNaN, isZero bool) B {
	sign := ^(^B(0) >> 1)
	switch {
	case isNaN:
		return ^B(0)
	case isZero:
		return sign
	case bits&sign != 0:
		return ^bits
	}
	return bits | sign
}

func orderedFloat(v float32) uint32 { return ordered(math.Float32bits(v), v != v, v == 0) }

func orderedDouble(v float64) uint64 { return ordered(math.Float64bits(v), v != v, v == 0) }
