package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"

	"github.com/apache/arrow-go/v18/parquet/compress"
)

// ErrEncoding says that pages have an encoding that ColumnReader does not read.
var ErrEncoding = errors.New("an encoding that is not read here")

// header reads the header of the next page, which stays the next one; body is where its bytes begin.
func (r *ColumnReader) header() (h pageHeader, body int64, err error) {
	for want := 1 << 10; ; want *= 8 {
		if r.at >= r.c.To {
			return h, 0, errEnds
		}
		left := r.c.Reach - r.at
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
		if int64(h.compressed) > left-int64(n) {
			return h, 0, fmt.Errorf("a page of %d bytes reaches beyond its column", h.compressed)
		}
		if int64(h.uncompressed) > r.c.Room.left() {
			return h, 0, fmt.Errorf("a page of %d bytes: %w", h.uncompressed, ErrRoom)
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

// passPage passes over the next page undecoded if that does not take more than k rows. rows are those that it has.
func (r *ColumnReader) passPage(k int) (rows int, err error) {
	h, body, err := r.header()
	if err != nil || r.passed > 0 || !h.isData() || h.values > k {
		return 0, err
	}
	r.at, r.beyond = body+int64(h.compressed), r.beyond-int64(h.values)
	return h.values, nil
}

// nextPage opens the next page with entries.
func (r *ColumnReader) nextPage() error {
	for {
		h, at, err := r.header()
		if err != nil {
			return err
		}
		if !h.isData() {
			if h.kind == pageDict && at != r.dictAt {
				return errors.New("a dictionary in the middle of its column")
			}
			r.at = at + int64(h.compressed)
			continue
		}
		if int64(h.values) > r.beyond {
			return fmt.Errorf("a page with %d entries, of which its column has %d more", h.values, r.beyond)
		}
		r.openAt = r.at
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
	r.entries, r.left = h.values, h.values
	r.beyond -= int64(h.values)
	if err := r.openValues(h, values); err != nil {
		return err
	}
	passed := r.passed
	if r.passed = 0; passed == 0 {
		return nil
	}
	return r.take(nil, passed)
}

func (r *ColumnReader) openValues(h *pageHeader, values []byte) (err error) {
	r.coded, r.rle = false, false
	switch {
	case h.encoding == encodingPlain:
		r.plain, r.bit = values, 0
		return nil
	case h.encoding == encodingDict || h.encoding == encodingPlainDict:
		r.coded = true
		if !r.hasDict {
			return errors.New("a page of indices in a column without a dictionary")
		}
		if r.dict.values == nil {
			if err := r.readDict(); err != nil {
				return err
			}
		}
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
	r.bit = 0
	r.plain, err = r.recode(h.encoding, values, h.values)
	r.own = true
	return err
}

// splitPage decompresses a page and begins its levels; values are what is behind them.
func (r *ColumnReader) splitPage(h *pageHeader, packed []byte) (values []byte, err error) {
	r.own, r.lent = false, 0
	r.opened++
	if h.kind == pageDataV2 {
		return r.splitV2(h, packed)
	}
	values = packed
	if r.c.Codec != compress.Codecs.Uncompressed || len(packed) != h.uncompressed {
		values = r.pageOf(h.uncompressed)
		if err := r.dec.decode(values, packed); err != nil {
			return nil, err
		}
	}
	reps, values, err := levelsV1(values, h.values, r.c.MaxRep, h.repLevels == encodingBits)
	if err != nil {
		return nil, err
	}
	if r.defs, values, err = levelsV1(values, h.values, r.c.MaxDef, h.defLevels == encodingBits); err != nil {
		return nil, err
	}
	return values, r.openLists(h.values, reps)
}

// pageOf returns memory for a decompressed page.
func (r *ColumnReader) pageOf(n int) []byte {
	if cap(r.page) < n {
		r.page = Uncleared(n)
	}
	r.page, r.own = r.page[:n], true
	return r.page
}

func (r *ColumnReader) splitV2(h *pageHeader, packed []byte) (values []byte, err error) {
	size := h.defBytes + h.repBytes
	if size > len(packed) || size > h.uncompressed {
		return nil, errRuns
	}
	reps, err := newPageLevels(packed[:h.repBytes], r.c.MaxRep)
	if err != nil {
		return nil, err
	}
	if r.defs, err = newPageLevels(packed[h.repBytes:size], r.c.MaxDef); err != nil {
		return nil, err
	}
	values = packed[size:]
	if !h.plain {
		values = r.pageOf(h.uncompressed - size)
		if err := r.dec.decode(values, packed[size:]); err != nil {
			return nil, err
		}
	}
	return values, r.openLists(h.values, reps)
}

// openLists decodes the levels of a page of a column in lists at once, since they tell how far a row reaches.
func (r *ColumnReader) openLists(n int, reps pageLevels) error {
	if r.c.MaxRep == 0 {
		return nil
	}
	if int64(n) > r.c.Room.left()/2 {
		return fmt.Errorf("a page with %d entries: %w", n, ErrRoom)
	}
	if cap(r.pageReps) < n {
		r.pageReps, r.pageDefs = make([]uint8, n), make([]uint8, n)
	}
	r.reps = r.pageReps[:n]
	if err := reps.read(r.reps); err != nil {
		return err
	}
	defs := r.pageDefs[:n]
	if err := r.defs.read(defs); err != nil {
		return err
	}
	r.defs = pageLevels{all: defs, decoded: true}
	for _, l := range r.reps {
		if int(l) > r.c.MaxRep {
			return errLevel
		}
	}
	return nil
}

// pageLevels are definition or repetition levels of a page.
type pageLevels struct {
	runs    runs
	all     []uint8 // in place of runs
	decoded bool
}

func newPageLevels(b []byte, most int) (pageLevels, error) {
	r, err := newRuns(b, bits.Len(uint(most)))
	return pageLevels{runs: r}, err
}

// levelsV1 takes the n levels of a page of version 1 off its front. packed says that they have the early encoding
// BIT_PACKED.
func levelsV1(b []byte, n, most int, packed bool) (l pageLevels, rest []byte, err error) {
	if most == 0 {
		return l, b, nil
	}
	if packed {
		return packedLevels(b, n, bits.Len(uint(most)))
	}
	if len(b) < 4 {
		return l, nil, errRuns
	}
	size := binary.LittleEndian.Uint32(b)
	if uint64(size) > uint64(len(b)-4) {
		return l, nil, errRuns
	}
	l, err = newPageLevels(b[4:4+size], most)
	return l, b[4+size:], err
}

// packedLevels decodes BIT_PACKED, which has the highest bits first.
func packedLevels(b []byte, n, width int) (l pageLevels, rest []byte, err error) {
	size := (n*width + 7) / 8
	if size > len(b) {
		return l, nil, errRuns
	}
	l = pageLevels{all: make([]uint8, n), decoded: true}
	for i := range l.all {
		for bit := i * width; bit < (i+1)*width; bit++ {
			l.all[i] = l.all[i]<<1 | b[bit>>3]>>(7-bit&7)&1
		}
	}
	return l, b[size:], nil
}

// read decodes the next levels.
func (l *pageLevels) read(dst []uint8) error {
	if l.decoded {
		l.all = l.all[copy(dst, l.all):]
		return nil
	}
	return l.runs.levels(dst)
}

// count passes over k levels and counts those that equal most.
func (l *pageLevels) count(k int, most uint8) (n int, err error) {
	if !l.decoded {
		return l.runs.count(k, most)
	}
	for _, v := range l.all[:k] {
		if v == most {
			n++
		}
	}
	l.all = l.all[k:]
	return n, nil
}
