package keyindex

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"
)

// A run is a file of
//
//	directory   2^bits times: entries up to the end of the bucket 4
//	buckets     2^bits times: CRC-32C of the records 4 | records by ascending fingerprint, of one width
//	filter      words of 8 bytes, or nothing
//	footer      64 bytes
//
// and a record is
//
//	fingerprint without its first drop bytes, big-endian | file 1-4 | row 1-5 | sequence
//
// A bucket holds the records whose fingerprints start with the same bits; it is what a look-up reads and
// checks, and its number makes the bytes that are left out. Its checksum starts from the run's salt and that
// number, so that no bucket passes for another one, and no zeroed block for an empty bucket. Where a bucket
// lies follows from the directory, which needs no checksum of its own: one that lies leads to bytes that do
// not have theirs. File and row take as many bytes as the run's largest ones need; a file of nothing but ones is
// Tombstone. Numbers are little-endian but for fingerprints.
type layout struct {
	bits  uint // of a fingerprint that tell the bucket
	drop  uint // leading bytes of it that are not stored
	place      // of a position
	seq   int  // bytes of a sequence
	width int  // bytes of a record
}

// place is how many bytes a file and a row take.
type place struct{ file, row int }

// newPlace is the smallest that holds files, but for Tombstone, and rows up to these.
func newPlace(file FileID, row int64) place {
	return place{(bits.Len64(uint64(file)+1) + 7) / 8, max((bits.Len64(uint64(row))+7)/8, 1)}
}

// with is the smallest that holds what either does.
func (p place) with(o place) place { return place{max(p.file, o.file), max(p.row, o.row)} }

const (
	dirEntry     = 4
	bucketHead   = 4
	footerSize   = 64
	runMagic     = "FRKRUN02"
	maxEntries   = math.MaxUint32
	maxBits      = 32
	maxFileBytes = 4
	maxRowBytes  = 5
)

// bucketEntries is the most entries that a bucket has on average: more take longer to read and to check.
const bucketEntries = 16

// newLayout is the smallest layout of a run of so many entries. More bits make smaller buckets and a larger
// directory, and each eighth spares a byte of every record.
func newLayout(entries uint64, p place, seq int) layout {
	var best layout
	for bits := uint(0); bits <= maxBits; bits++ {
		l := layoutOf(bits, p, seq)
		if entries > l.buckets()*bucketEntries {
			continue
		}
		if best.width == 0 || l.dataSize(entries) < best.dataSize(entries) {
			best = l
		}
	}
	return best
}

func layoutOf(bits uint, p place, seq int) layout {
	drop := bits / 8
	return layout{bits: bits, drop: drop, place: p, seq: seq, width: 16 - int(drop) + p.file + p.row + seq}
}

func (l *layout) dataSize(entries uint64) uint64 {
	return l.buckets()*(dirEntry+bucketHead) + entries*uint64(l.width)
}

func (l *layout) buckets() uint64           { return 1 << l.bits }
func (l *layout) bucketOf(hi uint64) uint64 { return hi >> (64 - l.bits) }
func (l *layout) dirSize() uint64           { return l.buckets() * dirEntry }

func (l *layout) fileSize(f *footer) uint64 { return l.dataSize(f.entries) + f.filter + footerSize }

// prefix is the bytes of a fingerprint that its bucket tells, stored the rest of its upper half.
func (l *layout) prefix(b uint64) uint64 {
	return b << (64 - l.bits) &^ (math.MaxUint64 >> (8 * l.drop))
}
func (l *layout) stored(hi uint64) uint64 { return hi << (8 * l.drop) >> (8 * l.drop) }

func (l *layout) recordHi(rec []byte) uint64 { return binary.BigEndian.Uint64(rec) >> (8 * l.drop) }
func (l *layout) recordLo(rec []byte) uint64 { return binary.BigEndian.Uint64(rec[8-l.drop:]) }

// position is what a record says of where the row lies. Its numbers are read together with bytes before them.
func (l *layout) position(rec []byte) Position {
	at := 8 - int(l.drop) + l.file // the fingerprint leaves more than 8 bytes
	file := FileID(binary.LittleEndian.Uint64(rec[at:]) >> (64 - 8*l.file))
	if file == Tombstone>>(8*(maxFileBytes-l.file)) {
		file = Tombstone
	}
	return Position{file, int64(binary.LittleEndian.Uint64(rec[at+l.row:]) >> (64 - 8*l.row))}
}

func (l *layout) sequence(rec []byte) []byte { return rec[l.width-l.seq : l.width] }

// append appends the record of an entry.
func (l *layout) append(dst []byte, fp Fingerprint, at Position, seq []byte) []byte {
	var rec [16 + maxFileBytes + 8]byte
	binary.BigEndian.PutUint64(rec[:], fp.Hi)
	binary.BigEndian.PutUint64(rec[8:], fp.Lo)
	binary.LittleEndian.PutUint32(rec[16:], uint32(at.File))
	binary.LittleEndian.PutUint64(rec[16+l.file:], uint64(at.Row))
	return append(append(dst, rec[l.drop:16+l.file+l.row]...), seq...)
}

// salt is what the checksums of a run's buckets start from.
func salt(index, run uint64) uint32 {
	b := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, index), run)
	return crc32.Checksum(b, castagnoli)
}

func bucketSum(salt uint32, bucket uint64, records []byte) uint32 {
	return crc32.Update(salt+uint32(bucket)*0x9e3779b1, castagnoli, records)
}

// footer ends a run:
//
//	magic 8 | index 8 | run 8 | entries 8 | bytes of the filter 8 | CRC-32C of the filter 4 | bits 1 |
//	bytes of a sequence 1, a file 1, a row 1 | zero 12 | CRC-32C of the footer so far 4
type footer struct {
	index, run      uint64
	entries, filter uint64
	filterSum       uint32
	bits, seq       byte
	file, row       byte
}

func (f *footer) encode() []byte {
	b := make([]byte, 0, footerSize)
	b = append(b, runMagic...)
	for _, v := range []uint64{f.index, f.run, f.entries, f.filter} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	b = append(binary.LittleEndian.AppendUint32(b, f.filterSum), f.bits, f.seq, f.file, f.row)
	b = b[:footerSize-4]
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// sum is the checksum that encode ends with.
func (f *footer) sum() uint32 { return binary.LittleEndian.Uint32(f.encode()[footerSize-4:]) }

// decodeFooter reads the last bytes of a run and the layout they tell.
func decodeFooter(b []byte) (*footer, layout, error) {
	switch {
	case len(b) != footerSize:
		return nil, layout{}, fmt.Errorf("it is shorter than a footer")
	case string(b[:8]) != runMagic:
		return nil, layout{}, fmt.Errorf("its footer starts with %q, wanted %q", b[:8], runMagic)
	case crc32.Checksum(b[:footerSize-4], castagnoli) != binary.LittleEndian.Uint32(b[footerSize-4:]):
		return nil, layout{}, fmt.Errorf("its footer does not have its checksum")
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8+8*i:]) }
	f := &footer{index: word(0), run: word(1), entries: word(2), filter: word(3),
		filterSum: binary.LittleEndian.Uint32(b[40:]), bits: b[44], seq: b[45], file: b[46], row: b[47]}
	if f.entries > maxEntries || f.filter > filterMax || f.filter%8 > 0 || f.bits > maxBits ||
		f.seq > MaxSequenceBytes || f.file < 1 || f.file > maxFileBytes || f.row < 1 || f.row > maxRowBytes {
		return nil, layout{}, fmt.Errorf("its footer tells of %d entries, a filter of %d, %d bits, sequences of %d, "+
			"files of %d, rows of %d", f.entries, f.filter, f.bits, f.seq, f.file, f.row)
	}
	return f, layoutOf(uint(f.bits), place{int(f.file), int(f.row)}, int(f.seq)), nil
}
