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

// TestRising_Integers_AnotherDecoderReadsThem has integers rise and fall by steps of all sizes, some far more often than
// others.
func TestRising_Integers_AnotherDecoderReadsThem(t *testing.T) {
	decoder, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	kinds := map[int]int{} // how many bytes changed in the blocks, as bits
	for range 2000 {
		var odds [longestLow + 1]int
		for i := range odds {
			odds[i] = r.IntN(2) * r.IntN(1<<r.IntN(12))
		}
		odds[r.IntN(len(odds))]++
		sum, seen := 0, 0
		for _, o := range odds {
			sum += o
		}
		v := r.Uint64()
		var b []byte
		for range groupRecords + r.IntN(1<<r.IntN(16)) {
			at := r.IntN(sum)
			low := 0
			for at >= odds[low] {
				at -= odds[low]
				low++
			}
			if low > 0 {
				v ^= (1 + r.Uint64N(255)) << (8 * (low - 1))
			}
			seen |= 1 << low
			b = binary.LittleEndian.AppendUint64(b, v)
		}
		kinds[seen]++
		var s strider
		if _, ok := s.rising.measure(b); !ok {
			t.Fatalf("of %v: not taken", odds)
		}
		packed := s.frame.end(s.rising.write(&s.frame, s.frame.begin(nil, len(b)), b))
		if got, err := decoder.DecodeAll(packed, nil); err != nil || !bytes.Equal(got, b) {
			t.Fatalf("of %v, %d integers: %v", odds, len(b)/8, err)
		}
	}
	if len(kinds) < 32 {
		t.Errorf("only %d mixtures of lengths, want at least 32", len(kinds))
	}
}

func TestStrider_Ascending_IsAFewBytesEach(t *testing.T) {
	for name, c := range map[string]struct {
		next func(r *rand.Rand, i uint64) uint64
		most float64 // bytes
	}{
		"numbers one after another": {func(_ *rand.Rand, i uint64) uint64 { return 1<<40 + i }, 1.03},
		"with gaps":                 {func(_ *rand.Rand, i uint64) uint64 { return 1<<40 + 7*i }, 1.1},
		"times":                     {func(r *rand.Rand, i uint64) uint64 { return 1<<50 + 7000*i + r.Uint64N(4000) }, 2.3},
	} {
		var b []byte
		r := rand.New(rand.NewPCG(1, 2))
		for i := range uint64(65536) {
			b = binary.LittleEndian.AppendUint64(b, c.next(r, i))
		}
		var s strider
		packed, ok := s.append(nil, b, 0, 8)
		if each := float64(len(packed)) / 65536; !ok || each > c.most {
			t.Errorf("%s: got %.3f bytes, %v, want at most %.3f a record", name, each, ok, c.most)
		}
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
