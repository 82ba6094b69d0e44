package format_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/format"
)

// BenchmarkDecode_Narrow decodes order events of 10 fields and about 250 bytes.
func BenchmarkDecode_Narrow(b *testing.B) { benchmarkDecode(b, narrowEvents(20_000)) }

// BenchmarkDecode_Wide decodes events of 60 fields and about 1.3 KB.
func BenchmarkDecode_Wide(b *testing.B) { benchmarkDecode(b, wideEvents(4_000)) }

// benchmarkDecode decodes all payloads, and flushes, once an iteration. MB/cpu-s is by the processor time of
// the whole process, collector included.
func benchmarkDecode(b *testing.B, payloads [][]byte) {
	f, err := format.NewJSON(nil)
	if err != nil {
		b.Fatal(err)
	}
	schema, err := f.Infer(asPayloads(payloads), nil)
	if err != nil {
		b.Fatal(err)
	}
	d, err := f.NewDecoder(schema)
	if err != nil {
		b.Fatal(err)
	}
	var size int64
	for _, p := range payloads {
		size += int64(len(p))
	}
	b.SetBytes(size)
	b.ReportAllocs()
	before := processorSeconds()
	for b.Loop() {
		for _, p := range payloads {
			if _, err := d.Append(freshet.Payload{Value: p}); err != nil {
				b.Fatal(err)
			}
		}
		d.Flush().Rows.Release()
	}
	b.ReportMetric(float64(size)*float64(b.N)/1e6/(processorSeconds()-before), "MB/cpu-s")
	b.ReportMetric(float64(len(payloads)), "rows/op")
}

func processorSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(u.Utime) + seconds(u.Stime)
}

var (
	words  = []string{"alpha", "beta", "gamma", "delta", "river", "stream", "flood", "spring", "water", "level"}
	cities = []string{"Berlin", "Paris", "Zürich", "London", "Kraków", "Oslo", "Roma", "Wien"}
)

// narrowEvents returns n events, the same at each call.
func narrowEvents(n int) [][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	out := make([][]byte, n)
	for i := range out {
		out[i] = fmt.Appendf(nil, `{"order_id":%d,"customer_id":"C%08d","sku":"SKU-%06d","status":"%s",`+
			`"quantity":%d,`+
			`"amount":%d.%02d,"created_at":"2026-01-01T%02d:%02d:%02d.%03dZ","is_gift":%t,"note":"%s %s %d",`+
			`"shipping":{"city":"%s","zip":"%05d","express":%t}}`,
			i, r.IntN(2_000_000), r.IntN(50_000), words[r.IntN(10)], 1+r.IntN(9), r.IntN(900), r.IntN(100),
			r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1000), r.IntN(2) == 0, words[r.IntN(10)], words[r.IntN(10)],
			r.IntN(1000), cities[r.IntN(8)], r.IntN(100_000), r.IntN(2) == 0)
	}
	return out
}

// wideEvents returns n events, the same at each call.
func wideEvents(n int) [][]byte {
	r := rand.New(rand.NewPCG(3, 4))
	out := make([][]byte, n)
	for i := range out {
		var b bytes.Buffer
		field := func(name string, k int, format string, args ...any) {
			fmt.Fprintf(&b, `,"%s_%02d":`, name, k)
			if r.IntN(128) < 15 {
				b.WriteString("null")
				return
			}
			fmt.Fprintf(&b, format, args...)
		}
		fmt.Fprintf(&b, `{"event_id":%d`, i)
		for k := range 14 {
			field("int", k, "%d", r.Int64N(1<<(20+k)))
		}
		for k := range 12 {
			field("dbl", k, "%d.%04d", r.IntN(4096), r.IntN(8192))
		}
		for k := range 8 {
			field("cat", k, `"%s"`, words[r.IntN(10)])
			field("str", k, `"%s-%08x"`, words[r.IntN(10)], r.Uint32())
		}
		for k := range 6 {
			field("flag", k, "%t", r.IntN(2) == 0)
		}
		for k := range 5 {
			field("ts", k, `"2026-01-01T%02d:%02d:%02d.%03dZ"`, r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1000))
		}
		fmt.Fprintf(&b, `,"uuid":"%08x-%04x-%04x-%04x-%012x"`, r.Uint32(), r.IntN(1<<16), r.IntN(1<<16),
			r.IntN(1<<16), r.Int64N(1<<48))
		field("text", 0, `"%s %s %s %s %s"`, words[r.IntN(10)], words[r.IntN(10)], words[r.IntN(10)],
			words[r.IntN(10)], words[r.IntN(10)])
		field("geo", 0, `{"lat":%d.%05d,"lon":%d.%05d,"acc":%d,"source":"%s"}`, r.IntN(64), r.IntN(1<<16),
			r.IntN(128), r.IntN(1<<16), r.IntN(64), words[r.IntN(4)])
		field("tags", 0, `["%s","%s"]`, words[r.IntN(10)], words[r.IntN(10)])
		field("scores", 0, `[%d.%03d,%d.%03d]`, r.IntN(128), r.IntN(512), r.IntN(128), r.IntN(512))
		b.WriteString("}")
		out[i] = b.Bytes()
	}
	return out
}

// BenchmarkInfer infers the columns of a full sample of wide records.
func BenchmarkInfer(b *testing.B) {
	f, err := format.NewJSON(nil)
	if err != nil {
		b.Fatal(err)
	}
	payloads := wideEvents(10_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.Infer(asPayloads(payloads), nil); err != nil {
			b.Fatal(err)
		}
	}
}
