package parquet_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"

	"github.com/freshet-io/freshet/delta/internal/parquet"
	"github.com/freshet-io/freshet/expr"
)

// seedChunks adds the chunks of a file, of a few kilobytes at most, with what its footer says of them.
func seedChunks(f *testing.F, data []byte) {
	defer func() { _ = recover() }() // the library panics on footers that it does not know
	r, err := file.NewParquetReader(bytes.NewReader(data))
	if err != nil {
		return
	}
	for g := range r.NumRowGroups() {
		for i := range r.MetaData().Schema.NumColumns() {
			column := r.MetaData().Schema.Column(i)
			chunk, err := r.MetaData().RowGroup(g).ColumnChunk(i)
			if err != nil || chunk.CryptoMetadata() != nil {
				continue
			}
			from, to := chunkBounds(chunk)
			if from < 0 || to > int64(len(data)) || from > to || to-from > 4<<10 {
				continue
			}
			f.Add(data[from:to], uint8(column.PhysicalType()), uint16(max(column.TypeLength(), 0)),
				uint8(column.MaxDefinitionLevel()), uint8(column.MaxRepetitionLevel()), uint8(chunk.Compression()),
				uint16(r.MetaData().RowGroup(g).NumRows()), chunk.NumValues(), uint64(i))
		}
	}
}

func chunkBounds(c *metadata.ColumnChunkMetaData) (from, to int64) {
	from = c.DataPageOffset()
	if at := c.DictionaryPageOffset(); c.HasDictionaryPage() && at > 0 && at < from {
		from = at
	}
	return from, from + c.TotalCompressedSize()
}

// FuzzColumnReader reads some rows of damaged column chunks. What comes back has the shape that was asked for, and memory
// is bounded by the chunk's size.
func FuzzColumnReader(f *testing.F) {
	if root := os.Getenv("FRESHET_TESTDATA"); root != "" {
		for _, pattern := range []string{"parquet/data/*.parquet", "delta/*/*/delta/*.parquet"} {
			paths, err := filepath.Glob(filepath.Join(root, pattern))
			if err != nil {
				f.Fatal(err)
			}
			for _, path := range paths {
				data, err := os.ReadFile(path)
				if err != nil {
					f.Fatal(err)
				}
				seedChunks(f, data)
			}
		}
	}
	for seed := range uint64(4) {
		columns := everyKind()
		seedChunks(f, writeBatch(f, columns, rand.New(rand.NewPCG(seed, 1)), 50))
	}
	f.Fuzz(func(t *testing.T, data []byte, kind uint8, length uint16, maxDef, maxRep, codec uint8, rows uint16,
		entries int64, seed uint64) {
		room := &parquet.Room{Most: int64(44<<20 + 7*len(data))}
		room.Alone()
		reader, err := parquet.OpenColumn(parquet.Chunk{
			Type: parquet.Physical(kind), Length: int(length), MaxDef: int(maxDef), MaxRep: int(maxRep),
			Slot: int(min(maxRep, maxDef)), Codec: compress.Compression(codec % 8), Entries: entries, To: int64(len(data)), Reach: int64(len(data)),
			Room: room, View: func(at int64, _ int) ([]byte, error) { return data[at:], nil },
		})
		if err != nil {
			return
		}
		r := rand.New(rand.NewPCG(seed, 2))
		for left := int(rows); left > 0; {
			n := 1 + r.IntN(left)
			var ranges []expr.Span
			total := 0
			for at := r.IntN(n); at < n; at += 1 + r.IntN(n) {
				to := at + 1 + r.IntN(n-at)
				ranges, total, at = append(ranges, expr.Span{From: at, To: to}), total+to-at, to
			}
			room.Alone()
			v, err := reader.Read(n, ranges)
			if held := reader.Held() + cap(v.Fixed) + cap(v.Data) + 4*cap(v.Offsets); held > 64<<20+10*len(data) {
				t.Fatalf("%d bytes take %d of memory", len(data), held)
			}
			if err != nil {
				return
			}
			checkShape(t, &v, total, int(maxRep), parquet.Physical(kind).Width(int(length)))
			if r.IntN(3) == 0 {
				reader.Release()
			}
			left -= n
		}
	})
}

func checkShape(t *testing.T, v *parquet.Values, rows, maxRep, width int) {
	t.Helper()
	if maxRep == 0 && v.Len != rows || v.Nulls < 0 || v.Nulls > v.Len {
		t.Fatalf("%d places, %d of them null, for %d rows", v.Len, v.Nulls, rows)
	}
	if width > 0 {
		if len(v.Fixed) != v.Len*width {
			t.Fatalf("%d bytes for %d values of %d", len(v.Fixed), v.Len, width)
		}
		return
	}
	if len(v.Offsets) != v.Len+1 || v.Offsets[0] != 0 || int(v.Offsets[v.Len]) != len(v.Data) {
		t.Fatalf("%d offsets up to %d for %d values in %d bytes", len(v.Offsets), v.Offsets[len(v.Offsets)-1], v.Len,
			len(v.Data))
	}
	for i := range v.Len {
		if v.Offsets[i] > v.Offsets[i+1] {
			t.Fatalf("offsets descend from %d to %d", v.Offsets[i], v.Offsets[i+1])
		}
	}
}

// writeBatch is a file of so many random rows.
func writeBatch(tb testing.TB, columns []parquet.Column, r *rand.Rand, rows int) []byte {
	tb.Helper()
	var out bytes.Buffer
	w := parquet.NewWriter(&out, columns, &parquet.Options{Codec: parquet.Codec(r.IntN(4))})
	rec := randomBatch(r, schemaOf(columns), rows, 1+r.IntN(rows))
	if err := w.Append(rec.Columns(), parquet.AllRows(rows)); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}
