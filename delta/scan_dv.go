package delta

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/google/uuid"

	"github.com/freshet-io/freshet/expr"
)

// dvMagic opens the bytes of a deletion vector: a 64-bit roaring bitmap in the portable format.
const dvMagic = 1681511377

// maxVectorBytes bounds the deletion vectors that are believed.
const maxVectorBytes = 1 << 30

// fileRows tell which rows of a file are read: those that rows names, or all others; nil: all. Its methods are called
// for ascending ranges.
type fileRows struct {
	rows   roaring64.IntPeekable64
	wanted bool // rows names those that are read
	buffer []expr.Span
}

// any reports whether a row of a range may be read.
func (f *fileRows) any(from, to int64) bool {
	if f == nil || !f.wanted {
		return true
	}
	f.rows.AdvanceIfNeeded(uint64(from))
	return f.rows.HasNext() && int64(f.rows.PeekNext()) < to
}

// spans returns the rows from up to and without to that are read, counted from from. They are valid until the next call.
func (f *fileRows) spans(from, to int64) []expr.Span {
	switch {
	case f == nil:
		return []expr.Span{{From: 0, To: int(to - from)}}
	case f.wanted:
		f.buffer = f.named(from, to)
		return f.buffer
	}
	spans := f.buffer[:0]
	next := from
	f.rows.AdvanceIfNeeded(uint64(from))
	for f.rows.HasNext() && int64(f.rows.PeekNext()) < to {
		gone := int64(f.rows.Next())
		if gone > next {
			spans = append(spans, expr.Span{From: int(next - from), To: int(gone - from)})
		}
		next = gone + 1
	}
	if next < to {
		spans = append(spans, expr.Span{From: int(next - from), To: int(to - from)})
	}
	f.buffer = spans
	return spans
}

// named returns the rows of a range that rows names, counted from from.
func (f *fileRows) named(from, to int64) []expr.Span {
	spans := f.buffer[:0]
	f.rows.AdvanceIfNeeded(uint64(from))
	for f.rows.HasNext() && int64(f.rows.PeekNext()) < to {
		at := int(int64(f.rows.Next()) - from)
		if n := len(spans); n > 0 && spans[n-1].To == at {
			spans[n-1].To++
		} else {
			spans = append(spans, expr.Span{From: at, To: at + 1})
		}
	}
	return spans
}

// loadDeletionVector reads the vector that an add action names; nil when it names none. Spec: "Deletion Vectors".
func loadDeletionVector(ctx context.Context, s *Snapshot, v *DeletionVector) (*roaring64.Bitmap, error) {
	if v == nil {
		return nil, nil
	}
	data, err := vectorBytes(ctx, s, v)
	if err != nil {
		return nil, fmt.Errorf("deletion vector %s: %w", v.id(), err)
	}
	rows, err := parseVector(data)
	if err != nil {
		return nil, fmt.Errorf("deletion vector %s: %w", v.id(), err)
	}
	if n := rows.GetCardinality(); int64(n) != v.Cardinality {
		return nil, corrupt("deletion vector %s holds %d rows, its descriptor says %d", v.id(), n, v.Cardinality)
	}
	return rows, nil
}

// vectorBytes returns magic and bitmap.
func vectorBytes(ctx context.Context, s *Snapshot, v *DeletionVector) ([]byte, error) {
	if v.SizeInBytes < 4 || v.SizeInBytes > maxVectorBytes {
		return nil, corrupt("its size is %d bytes", v.SizeInBytes)
	}
	size := int64(v.SizeInBytes)
	if v.StorageType == "i" {
		data, err := decodeZ85(v.PathOrInlineDv)
		if err != nil || int64(len(data)) < size {
			return nil, corrupt("it does not decode to %d bytes: %v", size, err)
		}
		return data[:size], nil
	}
	name, err := vectorName(v)
	if err != nil {
		return nil, err
	}
	at, err := s.locate(ctx, name)
	if err != nil {
		return nil, err
	}
	key := at.key
	offset := int64(0)
	if v.Offset != nil {
		offset = int64(*v.Offset)
	}
	// size (int32, big endian), the data, CRC-32 of the data (big endian)
	frame, err := at.st.ReadRange(ctx, key, offset, size+8)
	if errors.Is(err, io.EOF) || err == nil && int64(len(frame)) != size+8 {
		return nil, corrupt("%s is shorter than %d bytes", key, offset+size+8)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, absent(err))
	}
	data := frame[4 : 4+size]
	if n := binary.BigEndian.Uint32(frame); int64(n) != size {
		return nil, corrupt("%s has %d bytes at %d, the descriptor says %d", key, n, offset, size)
	}
	if sum := binary.BigEndian.Uint32(frame[4+size:]); sum != crc32.ChecksumIEEE(data) {
		return nil, corrupt("%s fails its checksum at %d", key, offset)
	}
	return data, nil
}

// vectorName is the path of the file that holds the vector: named by an absolute one, or by an optional prefix and a UUID.
func vectorName(v *DeletionVector) (string, error) {
	switch v.StorageType {
	case "p":
		return v.PathOrInlineDv, nil
	case "u":
		n := len(v.PathOrInlineDv) - 20
		if n < 0 {
			return "", corrupt("its name %q is too short", v.PathOrInlineDv)
		}
		id, err := decodeZ85(v.PathOrInlineDv[n:])
		if err != nil {
			return "", err
		}
		if len(id) != len(uuid.UUID{}) { // a last group that is padded has fewer bytes
			return "", corrupt("its name %q holds %d bytes, wanted a UUID", v.PathOrInlineDv, len(id))
		}
		name := vectorFileName(uuid.UUID(id))
		if prefix := v.PathOrInlineDv[:n]; prefix != "" {
			name = prefix + "/" + name
		}
		return encodePath(name), nil
	}
	return "", &UnsupportedError{Feature: "deletion vectors of storage type " + v.StorageType}
}

const z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

// decodeZ85 decodes text in which five characters stand for four bytes. Z85 has no form for other lengths, which
// writers in Rust have lent it: in the last group, one to three # and then a number for the bytes that are left. No
// group of Z85 proper begins with #, since it would exceed 32 bits, so that nothing is read in two ways.
func decodeZ85(text string) ([]byte, error) {
	if len(text)%5 != 0 {
		return nil, corrupt("%d characters of z85, wanted a multiple of 5", len(text))
	}
	out := make([]byte, 0, len(text)/5*4)
	for ; text != ""; text = text[5:] {
		digits, size := text[:5], 4
		if len(text) == 5 {
			digits = strings.TrimLeft(digits, "#")
			size = len(digits) - 1
		}
		var v uint64
		for i := range len(digits) {
			digit := strings.IndexByte(z85, digits[i])
			if digit < 0 {
				return nil, corrupt("%q is no character of z85", digits[i])
			}
			v = v*85 + uint64(digit)
		}
		if size < 1 || v>>(8*size) != 0 {
			return nil, corrupt("%q is too large for z85", text[:5])
		}
		out = append(out, binary.BigEndian.AppendUint32(nil, uint32(v))[4-size:]...)
	}
	return out, nil
}
