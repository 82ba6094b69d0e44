package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"

	"github.com/apache/arrow-go/v18/parquet/compress"
)

// Physical is how values are stored, by its number in parquet.thrift, Type.
type Physical uint8

// The physical types.
const (
	PhysicalBoolean Physical = iota
	PhysicalInt32
	PhysicalInt64
	PhysicalInt96
	PhysicalFloat
	PhysicalDouble
	PhysicalBytes
	PhysicalFixed
)

// Chunk is a column chunk without repetition: where it lies, and what the file's footer says of it.
type Chunk struct {
	Type     Physical
	Length   int // bytes of a value of PhysicalFixed
	MaxDef   int // definition level of values; less is null
	Codec    compress.Compression
	From, To int64 // in the file
	MaxPage  int   // the largest page that is believed, in bytes
	// View returns bytes of the file from at on: n, or more, or less if the chunk ends before. They stay as they are.
	View func(at int64, n int) ([]byte, error)
}

// Values are the next rows of a column.
type Values struct {
	Levels []uint8 // a definition level a row, valid until the next Read; nil when MaxDef is 0: all are values
	Nulls  int     // rows without a value
	// Fixed has a value of the type's width a row (a byte, 0 or 1, of booleans); where there is none it may hold anything.
	Fixed []byte
	// Offsets and Data are the values of PhysicalBytes, in place of Fixed: row i is Data[Offsets[i]:Offsets[i+1]].
	Offsets []int32
	Data    []byte
}

// ColumnReader reads a column chunk of the encodings PLAIN, dictionary and, for booleans, RLE, from pages of any version.
// Page checksums are verified where there are some. What is wrong with the bytes is an error; memory is bounded by MaxPage,
// twice, and by what Read returns. It is for one goroutine.
type ColumnReader struct {
	c     Chunk
	width int
	dec   *decoder
	at    int64  // of the next page
	win   []byte // bytes of the file from winAt on
	winAt int64

	page    []byte // decompressed
	left    int    // rows of the page that are not read
	defs    runs
	levels  []uint8 // of the page, where they are not runs
	plain   []byte  // values, when the page is PLAIN
	bit     int     // the next boolean of plain
	indices runs    // when it is not
	coded   bool
	rle     bool // indices are booleans

	dict      []byte // values of fixed width
	offsets   []int32
	entries   int
	longest   int
	levelsBuf []uint8
	indexBuf  []uint32
}

// ErrEncoding says that pages have an encoding that ColumnReader does not read.
var ErrEncoding = errors.New("an encoding that is not read here")

var errEnds = errors.New("the column ends before the last row of its row group")

// OpenColumn reads the dictionary, if there is one.
func OpenColumn(c Chunk) (*ColumnReader, error) {
	r := &ColumnReader{c: c, at: c.From}
	switch c.Type {
	case PhysicalBoolean:
		r.width = 1
	case PhysicalInt32, PhysicalFloat:
		r.width = 4
	case PhysicalInt64, PhysicalDouble:
		r.width = 8
	case PhysicalInt96:
		r.width = 12
	case PhysicalFixed:
		if r.width = c.Length; r.width <= 0 || r.width > 1<<20 {
			return nil, fmt.Errorf("values of %d bytes", c.Length)
		}
	}
	if c.MaxDef > 250 {
		return nil, fmt.Errorf("a definition level of %d", c.MaxDef)
	}
	var err error
	if r.dec, err = newDecoder(c.Codec); err != nil {
		return nil, err
	}
	h, body, err := r.header()
	if err != nil || h.kind != pageDict {
		return r, err
	}
	return r, r.readDict(&h, body)
}

// Longest is the length of the longest entry of the dictionary, 0 when there is none: what bounds the bytes of a row that
// the size of its pages does not.
func (r *ColumnReader) Longest() int { return r.longest }

// header reads the header of the next page, which stays the next one; body is where its bytes begin.
func (r *ColumnReader) header() (h pageHeader, body int64, err error) {
	for want := 1 << 10; ; want *= 8 {
		left := r.c.To - r.at
		if left <= 0 {
			return h, 0, errEnds
		}
		b, err := r.view(r.at, int(min(int64(want), left)))
		if err != nil {
			return h, 0, err
		}
		h, n, err := parsePageHeader(b)
		if errors.Is(err, errHeaderCut) && int64(want) < left && want < maxHeaderBytes {
			continue
		}
		if err != nil {
			return h, 0, err
		}
		if int64(h.compressed) > r.c.To-r.at-int64(n) {
			return h, 0, fmt.Errorf("a page of %d bytes reaches beyond its column", h.compressed)
		}
		if h.uncompressed > r.c.MaxPage || h.compressed > r.c.MaxPage {
			return h, 0, fmt.Errorf("a page of %d bytes, %d uncompressed, is larger than the %d that are read at once",
				h.compressed, h.uncompressed, r.c.MaxPage)
		}
		return h, r.at + int64(n), nil
	}
}

// view returns n bytes of the file.
func (r *ColumnReader) view(at int64, n int) ([]byte, error) {
	if at < r.winAt || at+int64(n) > r.winAt+int64(len(r.win)) {
		b, err := r.c.View(at, n)
		if err != nil {
			return nil, err
		}
		r.win, r.winAt = b, at
	}
	from := int(at - r.winAt)
	if len(r.win)-from < n {
		return nil, errEnds
	}
	return r.win[from : from+n], nil
}

// body returns a page's bytes, checked, and makes the page after it the next one.
func (r *ColumnReader) body(h *pageHeader, at int64) ([]byte, error) {
	b, err := r.view(at, h.compressed)
	if err != nil {
		return nil, err
	}
	if h.hasCRC && crc32.ChecksumIEEE(b) != h.crc {
		return nil, fmt.Errorf("the page at byte %d fails its checksum", at)
	}
	r.at = at + int64(h.compressed)
	return b, nil
}

func (r *ColumnReader) readDict(h *pageHeader, at int64) error {
	packed, err := r.body(h, at)
	if err != nil {
		return err
	}
	r.dict = make([]byte, h.uncompressed)
	if err := r.dec.decode(r.dict, packed); err != nil {
		return err
	}
	r.entries = h.values
	if r.c.Type != PhysicalBytes {
		if r.c.Type == PhysicalBoolean || h.values > len(r.dict)/r.width {
			return fmt.Errorf("a dictionary of %d bytes claims %d values", len(r.dict), h.values)
		}
		return nil
	}
	if h.values > len(r.dict)/4 {
		return fmt.Errorf("a dictionary of %d bytes claims %d values", len(r.dict), h.values)
	}
	r.offsets = make([]int32, 0, h.values+1)
	r.offsets = append(r.offsets, 0)
	rest, at32 := r.dict, 0
	for range h.values { // the lengths between the values are squeezed out
		v, tail, err := plainBytes(rest)
		if err != nil {
			return err
		}
		at32 += copy(r.dict[at32:], v)
		r.offsets = append(r.offsets, int32(at32))
		r.longest = max(r.longest, len(v))
		rest = tail
	}
	r.dict = append(r.dict[:at32], make([]byte, slack)...)
	return nil
}

// plainBytes takes a value off PLAIN byte arrays.
func plainBytes(b []byte) (v, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, errValues
	}
	n := binary.LittleEndian.Uint32(b)
	if uint64(n) > uint64(len(b)-4) {
		return nil, nil, errValues
	}
	return b[4 : 4+n], b[4+n:], nil
}

var errValues = errors.New("a page has fewer values than its header says")

// nextPage begins the next page with rows.
func (r *ColumnReader) nextPage() error {
	for {
		h, at, err := r.header()
		if err != nil {
			return err
		}
		if h.kind != pageData && h.kind != pageDataV2 {
			if h.kind == pageDict {
				return errors.New("a dictionary in the middle of its column")
			}
			r.at = at + int64(h.compressed)
			continue
		}
		packed, err := r.body(&h, at)
		if err != nil {
			return err
		}
		if h.values == 0 {
			continue
		}
		return r.openPage(&h, packed)
	}
}

func (r *ColumnReader) openPage(h *pageHeader, packed []byte) error {
	values, err := r.splitPage(h, packed)
	if err != nil {
		return err
	}
	r.left = h.values
	r.coded, r.rle = false, false
	switch {
	case h.encoding == encodingPlain:
		r.plain, r.bit = values, 0
		return nil
	case h.encoding == encodingDict || h.encoding == encodingPlainDict:
		r.coded = true
		if len(values) == 0 { // of nulls only
			r.indices = runs{}
			return nil
		}
		r.indices, err = newRuns(values[1:], int(values[0]))
		return err
	case h.encoding == encodingRLE && r.c.Type == PhysicalBoolean:
		r.rle = true
		if len(values) < 4 {
			r.indices = runs{}
			return nil
		}
		r.indices, err = newRuns(values[4:], 1)
		return err
	}
	return fmt.Errorf("%w: number %d", ErrEncoding, h.encoding)
}

// splitPage decompresses a page and begins its levels; values are what is behind them.
func (r *ColumnReader) splitPage(h *pageHeader, packed []byte) (values []byte, err error) {
	if cap(r.page) < h.uncompressed {
		r.page = make([]byte, h.uncompressed)
	}
	r.page = r.page[:h.uncompressed]
	width := bits.Len(uint(r.c.MaxDef))
	if h.kind == pageDataV2 {
		levels := h.defBytes + h.repBytes
		if levels > len(packed) || levels > len(r.page) {
			return nil, errRuns
		}
		r.levels = nil
		r.defs, err = newRuns(packed[h.repBytes:levels], width)
		if h.plain || err != nil {
			return packed[levels:], err
		}
		values = r.page[:h.uncompressed-levels]
		return values, r.dec.decode(values, packed[levels:])
	}
	values = r.page
	if r.c.Codec == compress.Codecs.Uncompressed && len(packed) == len(r.page) {
		values = packed
	} else if err := r.dec.decode(values, packed); err != nil {
		return nil, err
	}
	if r.c.MaxDef == 0 {
		return values, nil
	}
	if h.levels == encodingBits {
		return r.packedLevels(values, h.values, width)
	}
	if len(values) < 4 {
		return nil, errRuns
	}
	n := binary.LittleEndian.Uint32(values)
	if uint64(n) > uint64(len(values)-4) {
		return nil, errRuns
	}
	r.levels = nil
	r.defs, err = newRuns(values[4:4+n], width)
	return values[4+n:], err
}

// packedLevels reads levels of the early encoding BIT_PACKED, highest bits first.
func (r *ColumnReader) packedLevels(b []byte, n, width int) ([]byte, error) {
	size := (n*width + 7) / 8
	if size > len(b) {
		return nil, errRuns
	}
	r.levels = make([]uint8, n)
	for i := range r.levels {
		for bit := i * width; bit < (i+1)*width; bit++ {
			r.levels[i] = r.levels[i]<<1 | b[bit>>3]>>(7-bit&7)&1
		}
	}
	return b[size:], nil
}
