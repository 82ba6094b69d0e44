package parquet

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// Codec is how pages are compressed.
type Codec uint8

// The codecs that can be written.
const (
	Zstd Codec = iota // level 1: the cost of snappy, a third smaller
	Snappy
	Gzip
	Uncompressed
)

// String is the codec's name in file names and in delta.parquet.compression.codec.
func (c Codec) String() string {
	return [...]string{"zstd", "snappy", "gzip", "uncompressed"}[c]
}

// thrift is the codec's number in parquet.thrift, CompressionCodec.
func (c Codec) thrift() int64 {
	return [...]int64{6, 1, 2, 0}[c]
}

// level is how hard the zstd encoder tries.
type level uint8

const (
	fast   level = iota // level 1
	better              // level 3
)

// compressor compresses pages.
type compressor struct {
	codec  Codec
	fast   *zstd.Encoder
	better *zstd.Encoder
	even   strider
	raw    []byte // the page before compression
	out    []byte // and after
	other  []byte // the same, compressed by its shape
}

// shape is what is known of a page that helps to compress it.
type shape struct {
	from, stride int  // from some byte on it is records of so many bytes; stride 0: it is not
	packed       bool // values of less than a byte's bits, or more, in which the search for matches finds little
	way          *way // of pages like it
}

// way is how pages of a column are compressed best, as the last one that both ways were tried on has shown.
type way struct {
	bySearch bool
	left     uint8 // pages until it is asked again
}

// trust is how many pages a way is taken before it is asked again.
const trust = 63

func newCompressor(c Codec) *compressor {
	z := &compressor{codec: c}
	if c == Zstd {
		z.fast, z.better = newZstd(zstd.SpeedFastest), newZstd(zstd.SpeedDefault)
	}
	return z
}

func newZstd(v zstd.EncoderLevel) *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(v), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderCRC(false), zstd.WithAllLitEntropyCompression(true), zstd.WithWindowSize(1<<20))
	if err != nil {
		panic(fmt.Sprintf("parquet: zstd refuses its own options: %v", err)) //nolint:forbidigo // they are constants
	}
	return e
}

// bulky and spare are from how many bytes on a page must not be how many times smaller than what it holds: readers, ours
// among them, take it for a bomb.
const bulky, spare = 16 << 20, 6

// compress returns b compressed. The result is valid until the next call.
func (z *compressor) compress(b []byte, v level, s shape) ([]byte, error) {
	out, err := z.squeeze(b, v, s)
	if err == nil && len(b) > bulky && len(out) < len(b)/spare {
		return z.stored(b)
	}
	return out, err
}

// stored has b as it is, in the form of the codec.
func (z *compressor) stored(b []byte) ([]byte, error) {
	z.out = z.out[:0]
	switch z.codec {
	case Zstd:
		frame := &z.even.frame
		z.out = frame.begin(z.out, len(b))
		for part := range slices.Chunk(b, zstdBlock) {
			z.out = append(frame.open(z.out, blockRaw, len(part)), part...)
		}
		z.out = frame.end(z.out)
	case Snappy:
		z.out = binary.AppendUvarint(z.out, uint64(len(b)))
		for part := range slices.Chunk(b, 1<<16) {
			z.out = append(z.out, 61<<2) // a literal whose length is given in two bytes
			z.out = append(binary.LittleEndian.AppendUint16(z.out, uint16(len(part)-1)), part...)
		}
	case Gzip:
		return z.gzip(b, gzip.NoCompression)
	}
	return z.out, nil
}

func (z *compressor) gzip(b []byte, level int) ([]byte, error) {
	out := bytes.NewBuffer(z.out[:0])
	g, err := gzip.NewWriterLevel(out, level)
	if err != nil {
		return nil, err
	}
	if _, err := g.Write(b); err != nil {
		return nil, err
	}
	if err := g.Close(); err != nil {
		return nil, err
	}
	z.out = out.Bytes()
	return z.out, nil
}

func (z *compressor) squeeze(b []byte, v level, s shape) ([]byte, error) {
	switch z.codec {
	case Zstd:
		return z.zstd(b, v, s), nil
	case Snappy:
		z.out = snappy.Encode(z.out[:cap(z.out)], b)
		return z.out, nil
	case Gzip:
		return z.gzip(b, gzip.DefaultCompression)
	}
	return b, nil
}

// zstd compresses by the shape of the page, or by a search for matches where that has been seen to be better.
func (z *compressor) zstd(b []byte, v level, s shape) []byte {
	if s.way.left > 0 {
		s.way.left--
		if s.way.bySearch {
			return z.search(b, v)
		}
	}
	shaped, ok := z.shaped(b, s)
	if s.way.left == 0 {
		*s.way = way{bySearch: !ok || z.searchWins(b, v, len(shaped)), left: trust}
		ok = ok && !s.way.bySearch
	}
	if ok {
		return shaped
	}
	return z.search(b, v)
}

// searchWins asks whether a search makes less than so many bytes of b, by a block of it.
func (z *compressor) searchWins(b []byte, v level, size int) bool {
	part := b[:min(len(b), zstdBlock)]
	searched := float64(len(z.search(part, v))) / float64(len(part))
	return float64(size) > searched*float64(len(b))*65/64
}

// shaped compresses by the shape alone, if it can.
func (z *compressor) shaped(b []byte, s shape) (packed []byte, ok bool) {
	switch {
	case s.stride > 0:
		z.other, ok = z.even.append(z.other[:0], b, s.from, s.stride)
	case s.packed && len(b) <= math.MaxInt32:
		frame := &z.even.frame
		z.other, ok = frame.end(frame.addLiterals(frame.begin(z.other[:0], len(b)), b)), true
	}
	return z.other, ok
}

func (z *compressor) search(b []byte, v level) []byte {
	e := z.fast
	if v == better {
		e = z.better
	}
	z.out = e.EncodeAll(b, z.out[:0])
	return z.out
}
