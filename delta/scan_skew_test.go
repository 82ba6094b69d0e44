package delta_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	arrowparquet "github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// textsOf is a batch of ids and texts of the given lengths, which begin with their row's number.
func textsOf(s *delta.Schema, lengths []int) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	defer b.Release()
	for i, n := range lengths {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		b.Field(1).(*array.StringBuilder).Append(skewText(i, n))
	}
	return b.NewRecordBatch()
}

// skewText begins with the row's number; a third of it cannot be compressed.
func skewText(row, n int) string {
	text := fmt.Appendf(make([]byte, 0, n+64), "%d-", row)
	state := uint64(row)
	for len(text) < n {
		state = state*6364136223846793005 + 1442695040888963407
		text = append(binary.LittleEndian.AppendUint64(text, state&0x7f7f7f7f7f7f7f7f), "aaaaaaaaaaaaaaaa"...)
	}
	return string(text[:n])
}

// checkTexts reads the table and compares each text; no batch of several rows is larger than most bytes.
func checkTexts(t *testing.T, snap *delta.Snapshot, lengths []int, opts *delta.ScanOptions) {
	t.Helper()
	const most = 40 << 20
	next := 0
	for rec, err := range snap.Scan(context.Background(), opts) {
		if err != nil {
			t.Fatal(err)
		}
		ids, texts := rec.Column(0).(*array.Int64), rec.Column(1).(*array.String)
		size := 0
		for i := range int(rec.NumRows()) {
			if got := int(ids.Value(i)); got != next {
				t.Fatalf("got row %d, want %d", got, next)
			}
			if got, want := texts.Value(i), skewText(next, lengths[next]); got != want {
				t.Fatalf("row %d: got %d bytes, %.40q, want %d, %.40q", next, len(got), got, len(want), want)
			}
			size += len(texts.Value(i))
			next++
		}
		if rec.NumRows() > 1 && size > most {
			t.Fatalf("a batch of %d rows has %d bytes, want %d at most", rec.NumRows(), size, most)
		}
		rec.Release()
	}
	if next != len(lengths) {
		t.Fatalf("got %d rows, want %d", next, len(lengths))
	}
}

// skewed are lengths of texts that differ widely in one file.
func skewed() map[string][]int {
	shapes := map[string][]int{}
	one := make([]int, 100_000)
	for i := range one {
		one[i] = 20
	}
	one[70_000] = 40 << 20
	shapes["one very long among short ones"] = one
	block := make([]int, 60_000)
	for i := range block {
		block[i] = 20
		if i >= 40_000 && i < 40_250 {
			block[i] = 200 << 10
		}
	}
	shapes["many long ones in one place"] = block
	few := make([]int, 30_000)
	for i := range few {
		few[i] = 20
		if i%7_000 == 6_999 {
			few[i] = 18 << 20
		}
	}
	shapes["some long ones"] = few
	return shapes
}

func TestScan_TextsOfSkewedLengths_ComeBackInBoundedBatches(t *testing.T) {
	for name, lengths := range skewed() {
		t.Run(name, func(t *testing.T) {
			s := fields("id", delta.Long, "v", delta.String)
			rec := textsOf(s, lengths)
			defer rec.Release()
			snap := tableOf(t, store.NewMem(), s, nil, rec)
			checkTexts(t, snap, lengths, &delta.ScanOptions{Where: where(t, "length(v) > 0")})
		})
	}
}

// foreignTable is a folder with one file by another writer, made a table.
func foreignTable(t *testing.T, rec arrow.RecordBatch, props ...arrowparquet.WriterProperty) (*delta.Snapshot, int) {
	t.Helper()
	var file bytes.Buffer
	w, err := pqarrow.NewFileWriter(rec.Schema(), &file, arrowparquet.NewWriterProperties(props...),
		pqarrow.DefaultWriterProps())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(rec), w.Close()); err != nil {
		t.Fatal(err)
	}
	st := store.NewMem()
	if err := st.Put(context.Background(), "f.parquet", file.Bytes()); err != nil {
		t.Fatal(err)
	}
	snap, err := convert(t, st, nil).Table.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return snap, file.Len()
}

func TestScan_SkewedTextsOfAnotherWriter_ComeBackInBoundedBatches(t *testing.T) {
	for name, lengths := range skewed() {
		for _, dict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, dictionary %t", name, dict), func(t *testing.T) {
				s := fields("id", delta.Long, "v", delta.String)
				rec := textsOf(s, lengths)
				defer rec.Release()
				snap, _ := foreignTable(t, rec, arrowparquet.WithCompression(compress.Codecs.Snappy),
					arrowparquet.WithDictionaryDefault(dict))
				checkTexts(t, snap, lengths, nil)
			})
		}
	}
}

func TestScan_TextThatDecompressesToFarMoreThanItsFile_IsRefusedWithinTheBound(t *testing.T) {
	s := fields("id", delta.Long, "v", delta.String)
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	defer b.Release()
	b.Field(0).(*array.Int64Builder).Append(1)
	b.Field(1).(*array.StringBuilder).Append(strings.Repeat("a", 120<<20))
	rec := b.NewRecordBatch()
	snap, size := foreignTable(t, rec, arrowparquet.WithCompression(compress.Codecs.Zstd),
		arrowparquet.WithDictionaryDefault(false))
	rec.Release()
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var failed error
	for rec, err := range snap.Scan(context.Background(), nil) {
		if failed = err; err == nil {
			rec.Release()
		}
	}
	runtime.ReadMemStats(&after)
	if !errors.Is(failed, delta.ErrCorrupt) || !strings.Contains(fmt.Sprint(failed), "less compression") {
		t.Errorf("got %v, want ErrCorrupt with the remedy", failed)
	}
	if took, most := after.TotalAlloc-before.TotalAlloc, uint64(64<<20+10*size); took > most {
		t.Errorf("a file of %d bytes took %d of memory, want %d at most", size, took, most)
	}
}
