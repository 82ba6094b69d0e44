package delta

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/google/uuid"

	"github.com/freshet-io/freshet/store"
)

// vectorObjectBytes is the size from which a further object of deletion vectors is begun: offsets are int32.
const vectorObjectBytes = 1 << 30

// vectorWriter packs deletion vectors into objects, one as a rule. Spec: "Deletion Vector File Storage Format":
//
//	0x01 | size (int32, big endian) | magic, bitmap | CRC-32 of these (big endian) | size | …
type vectorWriter struct {
	st   store.Store
	id   uuid.UUID // of the object under way
	data []byte    // its bytes
	keys []string  // of the objects that are written
}

// add packs a vector and describes it. The bitmap is brought into its smallest form.
func (w *vectorWriter) add(ctx context.Context, rows *roaring64.Bitmap) (*DeletionVector, error) {
	if len(w.data) >= vectorObjectBytes {
		if err := w.flush(ctx); err != nil {
			return nil, err
		}
	}
	if len(w.data) == 0 {
		w.id, w.data = uuid.New(), []byte{1}
	}
	rows.RunOptimize()
	size := 4 + rows.GetSerializedSizeInBytes()
	if size > maxVectorBytes {
		return nil, fmt.Errorf("a deletion vector of %d bytes, at most %d are possible: rewrite the file", size,
			maxVectorBytes)
	}
	offset := int32(len(w.data))
	w.data = binary.BigEndian.AppendUint32(w.data, uint32(size))
	from := len(w.data)
	w.data = binary.LittleEndian.AppendUint32(w.data, dvMagic)
	bitmap, err := rows.ToBytes()
	if err != nil {
		return nil, fmt.Errorf("encode a deletion vector: %w", err)
	}
	w.data = append(w.data, bitmap...)
	w.data = binary.BigEndian.AppendUint32(w.data, crc32.ChecksumIEEE(w.data[from:]))
	return &DeletionVector{StorageType: "u", PathOrInlineDv: encodeZ85(w.id[:]), Offset: &offset,
		SizeInBytes: int32(size), Cardinality: int64(rows.GetCardinality())}, nil
}

// flush writes the object under way, if there is one.
func (w *vectorWriter) flush(ctx context.Context) error {
	if len(w.data) == 0 {
		return nil
	}
	key := vectorFileName(w.id)
	w.keys = append(w.keys, key) // also of one that is half written
	if err := w.st.Put(ctx, key, w.data); err != nil {
		return fmt.Errorf("write deletion vectors: %w", err)
	}
	w.data = nil
	return nil
}

// vectorFileName is the object that the vectors of this id lie in.
func vectorFileName(id uuid.UUID) string { return "deletion_vector_" + id.String() + ".bin" }

// encodeZ85 writes bytes, whose number is a multiple of four, as text: five characters for four bytes.
func encodeZ85(data []byte) string {
	text := make([]byte, 0, len(data)/4*5)
	for ; len(data) >= 4; data = data[4:] {
		v := binary.BigEndian.Uint32(data)
		var group [5]byte
		for i := range group {
			group[4-i] = z85[v%85]
			v /= 85
		}
		text = append(text, group[:]...)
	}
	return string(text)
}
