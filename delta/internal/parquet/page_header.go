package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Encodings, by their numbers in parquet.thrift.
const (
	encodingPlainDict = 2 // what version 1 called encodingDict
	encodingBits      = 4 // BIT_PACKED, of levels
)

// pageDataV2 is the type of data pages of version 2, by its number in parquet.thrift.
const pageDataV2 = 3

// pageHeader is what stands before a page. Spec: parquet.thrift, PageHeader.
type pageHeader struct {
	kind         int
	uncompressed int
	compressed   int
	crc          uint32
	hasCRC       bool
	values       int // and nulls and lists without elements; entries of a dictionary
	encoding     int
	defLevels    int // the encoding of definition levels, version 1
	repLevels    int // and of repetition levels
	defBytes     int // of version 2, as is what follows
	repBytes     int
	plain        bool // the values are not compressed
}

func (h *pageHeader) isData() bool { return h.kind == pageData || h.kind == pageDataV2 }

var (
	errHeaderCut = errors.New("the header of a page is cut off")
	errHeader    = errors.New("the header of a page is malformed")
)

// maxHeaderBytes bounds the headers that are believed; their statistics can hold long values.
const maxHeaderBytes = 16 << 20

// parsePageHeader reads the header at the beginning of b, of n bytes. errHeaderCut says that more bytes may help.
func parsePageHeader(b []byte) (h pageHeader, n int, err error) {
	r := &thriftReader{b: b}
	h.kind, h.compressed, h.uncompressed = -1, -1, -1
	err = r.fields(func(id int16, kind byte) error {
		switch {
		case kind == typeI32 && id == 1:
			h.kind = r.int32()
		case kind == typeI32 && id == 2:
			h.uncompressed = r.int32()
		case kind == typeI32 && id == 3:
			h.compressed = r.int32()
		case kind == typeI32 && id == 4:
			h.crc, h.hasCRC = uint32(r.int32()), true
		case kind == typeStruct && (id == 5 || id == 7):
			return h.dataV1(r)
		case kind == typeStruct && id == 8:
			return h.dataV2(r)
		default:
			return r.skip(kind)
		}
		return r.err
	})
	if err == nil && (h.kind < 0 || h.compressed < 0 || h.uncompressed < 0 || h.values < 0 || h.defBytes < 0 ||
		h.repBytes < 0) {
		err = fmt.Errorf("%w: type %d, %d bytes of %d, %d values", errHeader, h.kind, h.compressed, h.uncompressed, h.values)
	}
	return h, r.pos, err
}

// dataV1 reads DataPageHeader, and DictionaryPageHeader, which has its first two fields and one of another type.
func (h *pageHeader) dataV1(r *thriftReader) error {
	return r.fields(func(id int16, kind byte) error {
		switch {
		case kind == typeI32 && id == 1:
			h.values = r.int32()
		case kind == typeI32 && id == 2:
			h.encoding = r.int32()
		case kind == typeI32 && id == 3:
			h.defLevels = r.int32()
		case kind == typeI32 && id == 4:
			h.repLevels = r.int32()
		default:
			return r.skip(kind)
		}
		return r.err
	})
}

func (h *pageHeader) dataV2(r *thriftReader) error {
	return r.fields(func(id int16, kind byte) error {
		switch {
		case kind == typeI32 && id == 1:
			h.values = r.int32()
		case kind == typeI32 && id == 4:
			h.encoding = r.int32()
		case kind == typeI32 && id == 5:
			h.defBytes = r.int32()
		case kind == typeI32 && id == 6:
			h.repBytes = r.int32()
		case id == 7 && (kind == typeTrue || kind == typeFalse):
			h.plain = kind == typeFalse
		default:
			return r.skip(kind)
		}
		return r.err
	})
}

// thriftReader reads the compact protocol of Apache Thrift. An error stays; what is read after it is 0.
type thriftReader struct {
	b     []byte
	pos   int
	depth int
	err   error
}

const maxThriftDepth = 16

// fields calls field with each field of a struct; field must consume its value.
func (r *thriftReader) fields(field func(id int16, kind byte) error) error {
	if r.depth++; r.depth > maxThriftDepth {
		return errHeader
	}
	defer func() { r.depth-- }()
	id := int16(0)
	for {
		head := r.byte()
		kind := head & 15
		if r.err != nil || kind == 0 {
			return r.err
		}
		if d := head >> 4; d != 0 {
			id += int16(d)
		} else {
			id = int16(r.varint())
		}
		if err := field(id, kind); err != nil {
			return err
		}
	}
}

func (r *thriftReader) byte() byte {
	if r.pos >= len(r.b) {
		r.err = errors.Join(r.err, errHeaderCut)
		return 0
	}
	r.pos++
	return r.b[r.pos-1]
}

func (r *thriftReader) uvarint() uint64 {
	if r.pos > len(r.b) {
		return 0
	}
	v, n := binary.Uvarint(r.b[r.pos:])
	if n <= 0 {
		r.err = errors.Join(r.err, errHeaderCut)
		if n < 0 {
			r.err = errHeader
		}
		return 0
	}
	r.pos += n
	return v
}

func (r *thriftReader) varint() int64 {
	v := r.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (r *thriftReader) int32() int { return int(int32(r.varint())) }

// skip consumes a value of the kind.
func (r *thriftReader) skip(kind byte) error {
	switch kind {
	case typeTrue, typeFalse:
	case typeByte:
		r.byte()
	case typeI16, typeI32, typeI64:
		r.uvarint()
	case typeDouble:
		r.advance(8)
	case typeBinary:
		r.advance(r.uvarint())
	case typeList, typeSet:
		return r.skipList()
	case typeStruct:
		return r.fields(func(_ int16, kind byte) error { return r.skip(kind) })
	default:
		return errHeader
	}
	return r.err
}

// skipList consumes a list, whose booleans take a byte each.
func (r *thriftReader) skipList() error {
	head := r.byte()
	n, kind := uint64(head>>4), head&15
	if n == 15 {
		n = r.uvarint()
	}
	if n > uint64(len(r.b)) { // each element takes a byte or more
		r.err = errors.Join(r.err, errHeaderCut)
	}
	if r.depth++; r.depth > maxThriftDepth {
		return errHeader
	}
	defer func() { r.depth-- }()
	for ; n > 0 && r.err == nil; n-- {
		if kind == typeTrue || kind == typeFalse {
			r.byte()
		} else if err := r.skip(kind); err != nil {
			return err
		}
	}
	return r.err
}

// bytes returns the next n bytes, which are there unless err is set.
func (r *thriftReader) bytes(n int) []byte {
	from := r.pos
	r.advance(uint64(n))
	return r.b[from:r.pos]
}

func (r *thriftReader) advance(n uint64) {
	if n > uint64(len(r.b)-r.pos) {
		r.err = errors.Join(r.err, errHeaderCut)
		return
	}
	r.pos += int(n)
}
