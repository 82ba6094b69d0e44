package parquet

import (
	"encoding/binary"
	"hash/crc32"
	"math"
)

const (
	magic = "PAR1"
	// createdBy has the form that readers parse to decide whether statistics can be trusted.
	createdBy = "freshet version 1.0.0 (build 1)"
	// maxBound is the length from which a bound is left out of the footer.
	maxBound = 1024
)

// Encodings and page types of parquet.thrift.
const (
	encodingPlain = 0
	encodingRLE   = 3
	encodingDict  = 8
	pageData      = 0
	pageDict      = 2
)

// physicalOf returns the physical type of a leaf and the bytes of a value, 0 where they vary.
func physicalOf(c *Column) (Physical, int) {
	switch c.Kind {
	case Boolean:
		return PhysicalBoolean, 0
	case Int8, Int16, Int32, Date:
		return PhysicalInt32, 4
	case Int64, Timestamp, TimestampNTZ:
		return PhysicalInt64, 8
	case Float:
		return PhysicalFloat, 4
	case Double:
		return PhysicalDouble, 8
	case Decimal:
		switch {
		case c.Precision <= 9:
			return PhysicalInt32, 4
		case c.Precision <= 18:
			return PhysicalInt64, 8
		}
		return PhysicalFixed, decimalBytes(c.Precision)
	}
	return PhysicalBytes, 0
}

// decimalBytes is the least number of bytes that hold every number of so many digits in two's complement.
func decimalBytes(precision int) int {
	return int(math.Ceil((float64(precision)*math.Log2(10) + 1) / 8))
}

type rowGroup struct {
	rows, offset, raw, compressed int64
	chunks                        []columnChunk
}

type columnChunk struct {
	offset, dataOffset    int64 // of the first page, and of the first data page
	raw, compressed       int64
	entries               int64
	plainPages, dictPages int
	stats                 func(*thrift)
}

func dataPageHeader(t *thrift, raw int, packed []byte, entries, encoding int) {
	t.element(func() {
		pageSizes(t, pageData, raw, packed)
		t.group(5, func() {
			t.i32(1, int64(entries))
			t.i32(2, int64(encoding))
			t.i32(3, encodingRLE)
			t.i32(4, encodingRLE)
		})
	})
}

func dictPageHeader(t *thrift, raw int, packed []byte, entries int) {
	t.element(func() {
		pageSizes(t, pageDict, raw, packed)
		t.group(7, func() {
			t.i32(1, int64(entries))
			t.i32(2, encodingPlain)
		})
	})
}

// pageSizes writes what the headers of all pages begin with, the checksum of the page included.
func pageSizes(t *thrift, kind int64, raw int, packed []byte) {
	t.i32(1, kind)
	t.i32(2, int64(raw))
	t.i32(3, int64(len(packed)))
	t.i32(4, int64(int32(crc32.ChecksumIEEE(packed))))
}

// appendFooter appends FileMetaData.
func (w *Writer) appendFooter(b []byte) []byte {
	t := &thrift{b: b}
	t.element(func() {
		t.i32(1, 1) // version of the format, which is 1 for pages of version 1
		t.list(2, typeStruct, 1+countElements(w.roots))
		t.element(func() {
			t.string(4, "schema")
			t.i32(5, int64(len(w.roots)))
		})
		for _, n := range w.roots {
			n.element(t)
		}
		t.last = 2
		t.i64(3, w.rows)
		t.list(4, typeStruct, len(w.groups))
		for i := range w.groups {
			w.group(t, i)
		}
		t.last = 4
		t.string(6, createdBy)
		t.list(7, typeStruct, len(w.leaves)) // the order of the type for each leaf
		for range w.leaves {
			t.element(func() { t.group(1, func() {}) })
		}
	})
	return t.b
}

func appendTail(footer []byte) []byte {
	tail := append([]byte(nil), footer...)
	tail = binary.LittleEndian.AppendUint32(tail, uint32(len(footer)))
	return append(tail, magic...)
}

func (w *Writer) group(t *thrift, i int) {
	g := &w.groups[i]
	t.element(func() {
		t.list(1, typeStruct, len(g.chunks))
		for j := range g.chunks {
			w.chunk(t, w.leaves[j], &g.chunks[j])
		}
		t.last = 1
		t.i64(2, g.raw)
		t.i64(3, g.rows)
		t.i64(5, g.offset)
		t.i64(6, g.compressed)
		t.int(7, int64(i), 4) // i16
	})
}

func (w *Writer) chunk(t *thrift, l *leaf, c *columnChunk) {
	t.element(func() {
		t.i64(2, 0)
		t.group(3, func() {
			t.i32(1, int64(l.physical))
			encodings := []int64{encodingPlain, encodingRLE}
			if c.dictPages > 0 {
				encodings = append(encodings, encodingDict)
			}
			t.list(2, typeI32, len(encodings))
			for _, e := range encodings {
				t.b = binary.AppendVarint(t.b, e)
			}
			t.list(3, typeBinary, len(l.path))
			for _, p := range l.path {
				t.b = binary.AppendUvarint(t.b, uint64(len(p)))
				t.b = append(t.b, p...)
			}
			t.i32(4, w.opts.Codec.thrift())
			t.i64(5, c.entries)
			t.i64(6, c.raw)
			t.i64(7, c.compressed)
			t.i64(9, c.dataOffset)
			if c.dictPages > 0 {
				t.i64(11, c.offset)
			}
			t.group(12, func() { c.stats(t) })
			c.encodingStats(t)
		})
	})
}

// encodingStats lists how many pages have which encoding: readers skip by dictionary only when they see it.
func (c *columnChunk) encodingStats(t *thrift) {
	type count struct{ page, encoding, n int }
	var counts []count
	if c.dictPages > 0 {
		counts = append(counts, count{pageDict, encodingPlain, 1}, count{pageData, encodingDict, c.dictPages})
	}
	if c.plainPages > 0 {
		counts = append(counts, count{pageData, encodingPlain, c.plainPages})
	}
	t.list(13, typeStruct, len(counts))
	for _, n := range counts {
		t.element(func() {
			t.i32(1, int64(n.page))
			t.i32(2, int64(n.encoding))
			t.i32(3, int64(n.n))
		})
	}
	t.last = 13
}

// boundsThrift returns what writes the chunk's Statistics.
func (l *leaf) boundsThrift() func(*thrift) {
	nulls := l.chunk.Nulls
	lo, hi, ok := l.bounds()
	return func(t *thrift) {
		t.i64(3, nulls)
		if ok {
			t.bytes(5, hi)
			t.bytes(6, lo)
		}
	}
}

// bounds returns the least and the greatest value as PLAIN bytes; ok is false when readers must not prune by them.
func (l *leaf) bounds() (lo, hi []byte, ok bool) {
	s := &l.chunk
	if !s.HasBounds || s.HasNaN {
		return nil, nil, false
	}
	switch {
	case l.physical == PhysicalInt32 || l.physical == PhysicalInt64:
		return appendFixed(nil, []int64{s.MinInt}, l.width), appendFixed(nil, []int64{s.MaxInt}, l.width), true
	case l.physical == PhysicalFloat || l.physical == PhysicalDouble:
		s.signZeros()
		return l.floatBytes(s.MinFloat), l.floatBytes(s.MaxFloat), true
	case l.wide:
		return l.decimalBytes(s.MinDecimal.HighBits(), s.MinDecimal.LowBits()),
			l.decimalBytes(s.MaxDecimal.HighBits(), s.MaxDecimal.LowBits()), true
	}
	if len(s.MinBytes) > maxBound || len(s.MaxBytes) > maxBound {
		return nil, nil, false
	}
	return append([]byte(nil), s.MinBytes...), append([]byte(nil), s.MaxBytes...), true
}

func (l *leaf) floatBytes(v float64) []byte {
	if l.physical == PhysicalFloat {
		return binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(v)))
	}
	return binary.LittleEndian.AppendUint64(nil, math.Float64bits(v))
}

func (l *leaf) decimalBytes(high int64, low uint64) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(high))
	b = binary.BigEndian.AppendUint64(b, low)
	return b[16-l.width:]
}
