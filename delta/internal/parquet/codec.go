package parquet

import (
	"bytes"
	"fmt"

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
	raw    []byte // the page before compression
	out    []byte // and after
}

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

// compress returns b compressed. The result is valid until the next call.
func (z *compressor) compress(b []byte, v level) ([]byte, error) {
	switch z.codec {
	case Zstd:
		e := z.fast
		if v == better {
			e = z.better
		}
		z.out = e.EncodeAll(b, z.out[:0])
		return z.out, nil
	case Snappy:
		z.out = snappy.Encode(z.out[:cap(z.out)], b)
		return z.out, nil
	case Gzip:
		out := bytes.NewBuffer(z.out[:0])
		g := gzip.NewWriter(out)
		if _, err := g.Write(b); err != nil {
			return nil, err
		}
		if err := g.Close(); err != nil {
			return nil, err
		}
		z.out = out.Bytes()
		return z.out, nil
	}
	return b, nil
}
