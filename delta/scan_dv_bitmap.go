package delta

import (
	"bytes"
	"encoding/binary"
	"math/bits"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
)

// parseVector decodes magic and bitmap.
//
//	magic   int32 LE
//	buckets int64 LE
//	bucket  int32 LE, the upper half of its rows; a roaring bitmap of the lower halves
//
// The library believes what it reads, and panics later on bitmaps that are none; so they are looked through before.
// Spec: "Deletion Vector Format".
func parseVector(data []byte) (*roaring64.Bitmap, error) {
	w := &bitmapWalk{left: data}
	if magic := w.uint32(); magic != dvMagic {
		return nil, corrupt("it begins with %d, wanted %d", magic, dvMagic)
	}
	buckets := w.uint64()
	body := binary.LittleEndian.AppendUint64(nil, 0) // with no empty buckets
	filled, last := uint64(0), int64(-1)
	for range buckets {
		start := w.left
		if key := int64(w.uint32()); key <= last {
			w.broken = true
		} else {
			last = key
		}
		empty := w.bitmap() == 0
		if w.broken {
			return nil, corrupt("its %d bytes are no bitmap of %d buckets", len(data), buckets)
		}
		if !empty {
			filled++
			body = append(body, start[:len(start)-len(w.left)]...)
		}
	}
	if w.broken {
		return nil, corrupt("it has %d bytes, too few for a bitmap", len(data))
	}
	binary.LittleEndian.PutUint64(body, filled)
	rows := roaring64.New()
	err := guard("the bitmap", func() error {
		_, err := rows.ReadFrom(bytes.NewReader(body))
		return err
	})
	return rows, err
}

// bitmapWalk goes through serialized roaring bitmaps of 32 bits. Source: RoaringFormatSpec.
type bitmapWalk struct {
	left   []byte
	broken bool
}

// take returns the next n bytes; where there are fewer, the walk is broken and they are none.
func (w *bitmapWalk) take(n int) []byte {
	if w.broken || n > len(w.left) {
		w.broken = true
		return nil
	}
	data := w.left[:n]
	w.left = w.left[n:]
	return data
}

func (w *bitmapWalk) uint32() uint32 {
	if data := w.take(4); data != nil {
		return binary.LittleEndian.Uint32(data)
	}
	return 0
}

func (w *bitmapWalk) uint64() uint64 {
	if data := w.take(8); data != nil {
		return binary.LittleEndian.Uint64(data)
	}
	return 0
}

// bitmap goes through one and returns its number of containers, of which none is empty.
func (w *bitmapWalk) bitmap() int {
	const plain, withRuns, offsetsFrom = 12346, 12347, 4
	cookie := w.uint32()
	size, runs := 0, []byte(nil)
	switch {
	case cookie == plain:
		size = int(w.uint32())
	case cookie&0xffff == withRuns:
		size = int(cookie>>16) + 1
		runs = w.take((size + 7) / 8)
	default:
		w.broken = true
	}
	if size > 1<<16 {
		w.broken = true
	}
	if w.broken {
		return 0
	}
	heads := w.take(4 * size) // of each container: key, cardinality less one
	if runs == nil || size >= offsetsFrom {
		w.take(4 * size)
	}
	for i := 0; i < size && !w.broken; i++ {
		if i > 0 && half(heads, 2*i) <= half(heads, 2*i-2) {
			w.broken = true
		}
		rows := 1 + half(heads, 2*i+1)
		switch {
		case runs != nil && runs[i/8]>>(i%8)&1 != 0:
			w.runs()
		case rows > 4096:
			w.words(rows)
		default:
			w.values(rows)
		}
	}
	return size
}

// half is the i-th uint16.
func half(data []byte, i int) int { return int(binary.LittleEndian.Uint16(data[2*i:])) }

// values goes through a container that lists its rows.
func (w *bitmapWalk) values(rows int) {
	data := w.take(2 * rows)
	for i := 1; i < len(data)/2; i++ {
		if half(data, i) <= half(data, i-1) {
			w.broken = true
		}
	}
}

// words goes through a container that has a bit for every row.
func (w *bitmapWalk) words(rows int) {
	data := w.take(8192)
	for ; len(data) > 0; data = data[8:] {
		rows -= bits.OnesCount64(binary.LittleEndian.Uint64(data))
	}
	if rows != 0 {
		w.broken = true
	}
}

// runs goes through a container of first rows and how many follow them.
func (w *bitmapWalk) runs() {
	count := w.take(2)
	if count == nil {
		return
	}
	n, next := half(count, 0), 0
	data := w.take(4 * n)
	if n == 0 {
		w.broken = true
	}
	for ; len(data) > 0; data = data[4:] {
		first, last := half(data, 0), half(data, 0)+half(data, 1)
		if first < next || last >= 1<<16 {
			w.broken = true
		}
		next = last + 1
	}
}
