package parquet

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// decoder decompresses pages. It is for one goroutine.
type decoder struct {
	codec compress.Compression
	other compress.Codec
	zstd  *zstd.Decoder
}

// Readable reports whether pages of the codec can be decompressed.
func Readable(c compress.Compression) bool {
	_, err := newDecoder(c)
	return err == nil
}

func newDecoder(c compress.Compression) (*decoder, error) {
	d := &decoder{codec: c}
	var err error
	switch c {
	case compress.Codecs.Uncompressed, compress.Codecs.Snappy, compress.Codecs.Zstd:
	case compress.Codecs.Lz4:
		d.other, err = compress.GetCodec(compress.Codecs.Lz4Raw)
	default:
		d.other, err = compress.GetCodec(c)
	}
	if err != nil {
		return nil, fmt.Errorf("pages are compressed by %s, which cannot be read", c)
	}
	return d, nil
}

// decode fills dst, whose length is what the page's header says, with what src holds; it never takes more memory than
// that, whatever src claims.
func (d *decoder) decode(dst, src []byte) error {
	if len(dst) == 0 { // a page of nulls only, which some writers leave empty
		return nil
	}
	var out []byte
	var err error
	switch d.codec {
	case compress.Codecs.Uncompressed:
		out = dst[:copy(dst, src)]
	case compress.Codecs.Snappy:
		var n int
		if n, err = snappy.DecodedLen(src); err == nil && n != len(dst) {
			return fmt.Errorf("a page of %d bytes decompresses to %d, wanted %d", len(src), n, len(dst))
		}
		if err == nil {
			out, err = snappy.Decode(dst, src)
		}
	case compress.Codecs.Zstd:
		if d.zstd == nil {
			d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
			if err != nil {
				return err
			}
		}
		out, err = d.zstd.DecodeAll(src, dst[:0:len(dst)])
	case compress.Codecs.Lz4:
		out, err = d.lz4(dst, src)
	default:
		out, err = compress.Decode(d.other, dst, src)
	}
	if err != nil {
		return fmt.Errorf("decompress a page by %s: %w", d.codec, err)
	}
	if len(out) != len(dst) {
		return fmt.Errorf("a page of %d bytes decompresses to %d, wanted %d", len(src), len(out), len(dst))
	}
	return nil
}

// lz4 reads the framing of Hadoop (blocks behind their sizes, big endian), which the codec LZ4 stands for, or a bare block,
// which some writers left instead. Spec: Parquet, "LZ4" (deprecated).
func (d *decoder) lz4(dst, src []byte) ([]byte, error) {
	at, rest := 0, src
	for len(rest) >= 8 {
		whole, packed := int64(binary.BigEndian.Uint32(rest)), int64(binary.BigEndian.Uint32(rest[4:]))
		if whole > int64(len(dst)-at) || packed > int64(len(rest)-8) {
			break
		}
		out, err := compress.Decode(d.other, dst[at:at+int(whole)], rest[8:8+packed])
		if err != nil || int64(len(out)) != whole {
			break
		}
		at, rest = at+int(whole), rest[8+packed:]
	}
	if len(rest) == 0 && at == len(dst) {
		return dst, nil
	}
	return compress.Decode(d.other, dst, src)
}
