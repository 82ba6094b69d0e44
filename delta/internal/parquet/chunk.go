package parquet

import (
	"encoding/binary"
	"fmt"
	"math"
)

// sampleValues is after how many values a dictionary is first judged.
const sampleValues = 4096

// skipChunks is how many chunks a column goes without trying a dictionary again after one did not pay.
const skipChunks = 15

// afterChunk judges the dictionary and closes the page if it is full.
func (l *leaf) afterChunk(w *Writer) error {
	if l.mode == trying && len(l.idx) >= sampleValues {
		if l.sampleFails(w) {
			l.dropDictionary(w.Shared)
		} else {
			l.mode = encoded
		}
	}
	if l.mode != plain && (l.dictBytes() > w.opts.DictBytes || l.dictLen() > l.maxEntries()) {
		if l.dictPages == 0 {
			l.dropDictionary(w.Shared)
		} else {
			if err := l.flushPage(w); err != nil {
				return err
			}
			l.mode = plain
		}
	}
	if l.pageBytes() >= w.opts.PageBytes {
		return l.closePage(w)
	}
	return nil
}

// maxEntries is from how many values on a dictionary costs more time in cache misses than its smaller pages are worth:
// later for doubles, which take longest to compress.
func (l *leaf) maxEntries() int {
	if l.physical == PhysicalDouble {
		return 1 << 17
	}
	return 1 << 16
}

// sampleFails guesses from the repeats among the first values how many distinct ones there are (of d values, n
// draws repeat about n²/2d times) and says whether their dictionary would outgrow its limits, or is not worth its look-ups.
func (l *leaf) sampleFails(w *Writer) bool {
	n, distinct := float64(len(l.idx)), float64(l.dictLen())
	guess := distinct
	if repeats := max(n-distinct, 0.5); repeats < n/2 {
		guess = n * n / (2 * repeats)
	}
	width := float64(l.dictBytes()) / distinct
	return guess > float64(l.maxEntries()) || guess*width > 1.5*float64(w.opts.DictBytes) || l.smallAnyway(w, guess)
}

// fewEntries is up to how many values a dictionary stays near the processor, so that looking them up costs next to nothing.
const fewEntries = 1 << 12

// smallAnyway reports whether pages are about as small without a dictionary of so many values, by their shape.
func (l *leaf) smallAnyway(w *Writer, entries float64) bool {
	if entries < fewEntries || w.opts.Codec != Zstd {
		return false
	}
	w.codec.raw = l.appendPlain(w.codec.raw[:0])
	packed, ok := w.codec.shaped(w.codec.raw, shape{stride: l.even(w.codec.raw)})
	return ok && float64(8*len(packed)) < 1.15*float64(len(l.idx)*bitWidth(int(entries)))
}

func (l *leaf) closePage(w *Writer) error {
	if l.mode != plain && l.dictPages == 0 && !l.dictionaryPays(true) {
		l.dropDictionary(w.Shared)
		if l.pageBytes() < w.opts.PageBytes {
			return nil
		}
	}
	return l.flushPage(w)
}

// dictionaryPays compares the first page with what it would be without a dictionary. more says that other pages follow,
// whose values will often be in it already.
func (l *leaf) dictionaryPays(more bool) bool {
	if len(l.idx) == 0 {
		return true
	}
	raw, indices := len(l.idx)*l.width, len(l.idx)*l.indexWidth()/8
	switch {
	case l.physical == PhysicalBytes:
		raw = 0
		for _, i := range l.idx {
			raw += 4 + len(l.texts.value(i))
		}
	case l.physical == PhysicalDouble:
		indices += indices * 5 / 4 // doubles are made less than half by compression, indices are not
		if more {
			raw += raw / 4
		}
	}
	return l.dictBytes()+indices < raw
}

// appendPlain appends the values of a page with a dictionary as PLAIN has them.
func (l *leaf) appendPlain(b []byte) []byte {
	if l.physical == PhysicalBytes {
		for _, i := range l.idx {
			at := l.texts.start[i]
			b = append(b, l.texts.data[at:][:4+len(l.texts.value(i))]...)
		}
		return b
	}
	for _, i := range l.idx {
		b = appendFixed(b, l.numbers.values[i:i+1], l.width)
	}
	return b
}

// dropDictionary turns the open page, the first of its chunk, into one without a dictionary.
func (l *leaf) dropDictionary(learned *Shared) {
	l.vals = l.appendPlain(l.vals)
	l.idx = l.idx[:0]
	l.numbers.reset()
	l.texts.reset()
	l.translation.reset()
	l.mode = plain
	learned.skip[l.ordinal] = skipChunks
}

// indexWidth is the bits of an index; at least 1, since some readers stumble over 0.
func (l *leaf) indexWidth() int { return max(bitWidth(l.dictLen()-1), 1) }

func (l *leaf) dictLen() int {
	if l.physical == PhysicalBytes {
		return len(l.texts.start)
	}
	return len(l.numbers.values)
}

func (l *leaf) dictBytes() int {
	if l.physical == PhysicalBytes {
		return len(l.texts.data)
	}
	return len(l.numbers.values) * l.width
}

// shrink gives up the memory of a chunk that has no values.
func (l *leaf) shrink() {
	if l.entries == 0 && l.total == 0 {
		l.defs, l.reps, l.vals, l.bools, l.idx = nil, nil, nil, nil, nil
		l.numbers, l.texts, l.translation = numbers{}, texts{}, translation{}
	}
}

func (l *leaf) pageBytes() int {
	return len(l.vals) + len(l.bools) + 4*len(l.idx) + len(l.defs) + len(l.reps)
}

// buffered is the size of what waits to be written.
func (l *leaf) buffered() int64 { return int64(l.pages.size + l.pageBytes() + l.dictBytes()) }

// held is the memory that is set aside for the leaf, used or not.
func (l *leaf) held() int64 {
	n := cap(l.vals) + cap(l.bools) + 4*cap(l.idx) + cap(l.defs) + cap(l.reps) + len(l.pages.parts)*blockBytes
	n += cap(l.texts.data) + 4*cap(l.texts.start) + 16*cap(l.texts.keys) + 4*len(l.texts.places.table)
	return int64(n + 8*cap(l.numbers.values) + 4*len(l.numbers.places.table))
}

// estimate is about what the chunk would add to the file now: closed pages as they are, open ones by experience.
func (l *leaf) estimate() int64 {
	if l.mode == plain {
		return int64(l.pages.size + (len(l.vals)+len(l.bools)/8)/2)
	}
	return int64(l.pages.size + l.dictBytes()/2 + len(l.idx)*bitWidth(l.dictLen())/8)
}

// flushPage compresses the open page and opens another.
func (l *leaf) flushPage(w *Writer) error {
	if l.entries == 0 {
		return nil
	}
	body := w.codec.raw[:0]
	if l.maxRep > 0 {
		body = appendLevels(body, l.reps, l.entries, l.maxRep)
	}
	defs := l.defs
	if !l.hasDefs {
		defs = nil
	}
	body = appendLevels(body, defs, l.entries, l.maxDef)
	encoding, form := encodingPlain, shape{from: len(body), way: &w.ways[2*l.ordinal]}
	switch {
	case l.physical == PhysicalBoolean:
		body = appendBits(body, l.bools)
		form.packed = true
	case l.mode == plain || len(l.idx) == 0:
		body = append(body, l.vals...)
		form.stride = l.even(l.vals)
	default:
		encoding = encodingDict
		width := l.indexWidth()
		body = append(body, byte(width))
		body = appendHybrid(body, l.idx, width)
		form.packed = true
	}
	w.codec.raw = body
	if encoding == encodingDict {
		l.dictPages++
	} else {
		l.plainPages++
	}
	l.total += int64(l.entries)
	header := func(t *thrift, raw int, packed []byte) { dataPageHeader(t, raw, packed, l.entries, encoding) }
	if err := l.appendPage(w, l.level(encoding == encodingPlain), body, form, header); err != nil {
		return err
	}
	l.resetPage()
	return nil
}

// level is the better one for doubles alone: decimal fractions repeat in their low bytes over distances that the fast
// level does not see, which makes a third of their size. Other columns gain a tenth at most, at twice the time.
func (l *leaf) level(values bool) level {
	if values && l.physical == PhysicalDouble {
		return better
	}
	return fast
}

// appendBits appends booleans, lowest bits first.
func appendBits(dst []byte, v []uint8) []byte {
	for ; len(v) >= 8; v = v[8:] {
		dst = append(dst, byte(binary.LittleEndian.Uint64(v)*0x0102040810204080>>56))
	}
	if len(v) > 0 {
		var last [8]uint8
		copy(last[:], v)
		dst = append(dst, byte(binary.LittleEndian.Uint64(last[:])*0x0102040810204080>>56))
	}
	return dst
}

// even is the bytes of each value of PLAIN ones, 0 when they differ.
func (l *leaf) even(plain []byte) int {
	if l.physical != PhysicalBytes {
		return l.width
	}
	if len(plain) < 4 {
		return 0
	}
	length := binary.LittleEndian.Uint32(plain)
	width := int(length) + 4
	if width > maxStride || len(plain)%width != 0 {
		return 0
	}
	for at := width; at < len(plain); at += width {
		if binary.LittleEndian.Uint32(plain[at:]) != length {
			return 0
		}
	}
	return width
}

func (l *leaf) appendPage(w *Writer, v level, body []byte, s shape, header func(*thrift, int, []byte)) error {
	packed, err := w.codec.compress(body, v, s)
	if err != nil {
		return err
	}
	if len(body) > math.MaxInt32 || len(packed) > math.MaxInt32 {
		return fmt.Errorf("a page of %d bytes, wanted at most %d: write fewer or smaller rows at once",
			len(body), math.MaxInt32)
	}
	t := thrift{b: w.header[:0]}
	header(&t, len(body), packed)
	w.header = t.b
	l.raw += int64(len(t.b) + len(body))
	l.pages.append(&w.blocks, t.b)
	l.pages.append(&w.blocks, packed)
	return nil
}

// finish writes the chunk and begins another.
func (l *leaf) finish(w *Writer) (columnChunk, error) {
	if l.entries > 0 {
		if l.mode != plain && l.dictPages == 0 && !l.dictionaryPays(false) {
			l.dropDictionary(w.Shared)
		}
		if err := l.flushPage(w); err != nil {
			return columnChunk{}, err
		}
	}
	c := columnChunk{offset: w.offset, dataOffset: w.offset, entries: l.total,
		plainPages: l.plainPages, dictPages: l.dictPages}
	if l.dictPages > 0 {
		data := l.pages
		l.pages = chain{}
		if err := l.appendDictionary(w); err != nil {
			return columnChunk{}, err
		}
		if err := w.writePages(&l.pages); err != nil {
			return columnChunk{}, err
		}
		c.dataOffset = w.offset
		l.pages = data
	}
	if err := w.writePages(&l.pages); err != nil {
		return columnChunk{}, err
	}
	c.compressed, c.raw = w.offset-c.offset, l.raw
	c.stats = l.boundsThrift()
	if l.file != nil {
		l.file.merge(&l.chunk, l.col.Kind, l.wide)
	}
	l.resetChunk()
	return c, nil
}

func (l *leaf) appendDictionary(w *Writer) error {
	body := l.texts.data
	if l.physical != PhysicalBytes {
		body = appendFixed(w.codec.raw[:0], l.numbers.values, l.width)
		w.codec.raw = body
	}
	n, s := l.dictLen(), shape{stride: l.even(body), way: &w.ways[2*l.ordinal+1]}
	return l.appendPage(w, l.level(true), body, s,
		func(t *thrift, raw int, packed []byte) { dictPageHeader(t, raw, packed, n) })
}
