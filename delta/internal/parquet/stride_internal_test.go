package parquet

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// recordsOf returns n records whose bytes at certain places change, each once in so many records.
func recordsOf(r *rand.Rand, n, stride int) []byte {
	every := make([]int, stride)
	for i := range every {
		if r.IntN(3) == 0 {
			every[i] = 1 + r.IntN(1<<r.IntN(12))
		}
	}
	record, out := make([]byte, stride), make([]byte, 0, n*stride)
	for i := range n {
		for at, e := range every {
			if e > 0 && i%e == 0 {
				record[at] = byte(r.IntN(1 + r.IntN(256)))
			}
		}
		out = append(out, record...)
	}
	return out
}

func TestStrider_Records_AnotherDecoderReadsThem(t *testing.T) {
	decoder, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var s strider
	written := 0
	for range 2000 {
		stride := 8 + r.IntN(maxStride-7)
		if r.IntN(4) == 0 {
			stride = 4
		}
		prefix := make([]byte, r.IntN(2)*r.IntN(1<<r.IntN(18)))
		b := append(prefix, recordsOf(r, r.IntN(1<<r.IntN(15)), stride)...)
		packed, ok := s.append([]byte("before"), b, len(prefix), stride)
		if !ok {
			continue
		}
		written++
		got, err := decoder.DecodeAll(packed[6:], nil)
		if err != nil || !bytes.Equal(got, b) {
			t.Fatalf("stride %d, %d bytes after %d: %v", stride, len(b), len(prefix), err)
		}
	}
	if written < 300 {
		t.Errorf("only %d of 2000 were written", written)
	}
}

func TestStrider_Ascending_IsAFewBytesEach(t *testing.T) {
	var b []byte
	for i := range 65536 {
		b = binary.LittleEndian.AppendUint64(b, uint64(1<<40+i*7))
	}
	var s strider
	packed, ok := s.append(nil, b, 0, 8)
	if !ok || len(packed) > 65536*5/2 {
		t.Errorf("got %d bytes, %v, want at most 2.5 a record", len(packed), ok)
	}
}

func BenchmarkStrider(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	var data []byte
	for i := range 65536 {
		data = binary.LittleEndian.AppendUint64(data, 1_767_225_600_000_000+uint64(i)*7000+r.Uint64N(4000))
	}
	b.Run("even", func(b *testing.B) {
		var s strider
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			out, _ := s.append(nil, data, 0, 8)
			b.ReportMetric(float64(len(out))/65536, "B/record")
		}
	})
	b.Run("zstd", func(b *testing.B) {
		e := newZstd(zstd.SpeedFastest)
		b.SetBytes(int64(len(data)))
		for b.Loop() {
			out := e.EncodeAll(data, nil)
			b.ReportMetric(float64(len(out))/65536, "B/record")
		}
	})
}

func FuzzStrider(f *testing.F) {
	r := rand.New(rand.NewPCG(7, 7))
	f.Add(recordsOf(r, 1000, 8), uint8(8), uint16(0))
	f.Add(recordsOf(r, 300, 13), uint8(13), uint16(26))
	f.Add(recordsOf(r, 3000, 4), uint8(4), uint16(8))
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte, stride uint8, from uint16) {
		var s strider
		at := min(int(from), len(b))
		packed, ok := s.append(nil, b, at, int(stride))
		if !ok {
			return
		}
		if got, err := decoder.DecodeAll(packed, nil); err != nil || !bytes.Equal(got, b) {
			t.Errorf("stride %d from %d: %v, got %d bytes, want %d", stride, from, err, len(got), len(b))
		}
	})
}
