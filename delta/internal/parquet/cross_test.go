package parquet_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	arrowparquet "github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	pq "github.com/parquet-go/parquet-go"
)

// crossRead has two implementations read every entry of every column, levels and values, and compares them.
func crossRead(t *testing.T, data []byte, rows int64) {
	t.Helper()
	second, err := pq.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	first, err := file.NewParquetReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if second.NumRows() != rows || first.NumRows() != rows {
		t.Fatalf("got %d and %d rows, want %d", first.NumRows(), second.NumRows(), rows)
	}
	for g, group := range second.RowGroups() {
		for c, chunk := range group.ColumnChunks() {
			got := entriesOfSecond(t, chunk)
			r, err := first.RowGroup(g).Column(c)
			if err != nil {
				t.Fatal(err)
			}
			want := entriesOfFirst(t, r)
			if !slices.Equal(got, want) {
				t.Errorf("row group %d, column %d: the readers differ: %d and %d entries", g, c, len(got), len(want))
			}
		}
	}
}

// readAll reads all pages, which verifies their checksums.
func readAll(data []byte) error {
	f, err := pq.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return err
	}
	for _, group := range f.RowGroups() {
		for _, chunk := range group.ColumnChunks() {
			pages := chunk.Pages()
			for {
				page, err := pages.ReadPage()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					return errors.Join(err, pages.Close())
				}
				pq.Release(page)
			}
			if err := pages.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

func entriesOfSecond(t *testing.T, chunk pq.ColumnChunk) (out []string) {
	t.Helper()
	pages := chunk.Pages()
	defer pages.Close()
	buf := make([]pq.Value, 100)
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		for values := page.Values(); ; {
			n, err := values.ReadValues(buf)
			for _, v := range buf[:n] {
				out = append(out, fmt.Sprint(v.RepetitionLevel(), v.DefinitionLevel(), textOf(v)))
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

func textOf(v pq.Value) string {
	if v.IsNull() {
		return ""
	}
	switch v.Kind() {
	case pq.Boolean:
		return fmt.Sprint(v.Boolean())
	case pq.Int32:
		return fmt.Sprint(v.Int32())
	case pq.Int64:
		return fmt.Sprint(v.Int64())
	case pq.Float:
		return fmt.Sprint(v.Float())
	case pq.Double:
		return fmt.Sprint(v.Double())
	}
	return fmt.Sprintf("%x", v.ByteArray())
}

func entriesOfFirst(t *testing.T, r file.ColumnChunkReader) []string {
	t.Helper()
	switch r := r.(type) {
	case *file.BooleanColumnChunkReader:
		return drain(t, r, r.ReadBatch, func(v bool) string { return fmt.Sprint(v) })
	case *file.Int32ColumnChunkReader:
		return drain(t, r, r.ReadBatch, func(v int32) string { return fmt.Sprint(v) })
	case *file.Int64ColumnChunkReader:
		return drain(t, r, r.ReadBatch, func(v int64) string { return fmt.Sprint(v) })
	case *file.Float32ColumnChunkReader:
		return drain(t, r, r.ReadBatch, func(v float32) string { return fmt.Sprint(v) })
	case *file.Float64ColumnChunkReader:
		return drain(t, r, r.ReadBatch, func(v float64) string { return fmt.Sprint(v) })
	case *file.ByteArrayColumnChunkReader:
		return drain(t, r, r.ReadBatch, func(v arrowparquet.ByteArray) string { return fmt.Sprintf("%x", []byte(v)) })
	case *file.FixedLenByteArrayColumnChunkReader:
		return drain(t, r, r.ReadBatch, func(v arrowparquet.FixedLenByteArray) string { return fmt.Sprintf("%x", []byte(v)) })
	}
	t.Fatalf("unexpected reader %T", r)
	return nil
}

func drain[T any](t *testing.T, r file.ColumnChunkReader, read func(int64, []T, []int16, []int16) (int64, int, error),
	text func(T) string) (out []string) {
	t.Helper()
	values, defs, reps := make([]T, 100), make([]int16, 100), make([]int16, 100)
	maxDef, maxRep := r.Descriptor().MaxDefinitionLevel(), r.Descriptor().MaxRepetitionLevel()
	for r.HasNext() {
		n, _, err := read(100, values, defs, reps)
		if err != nil {
			t.Fatal(err)
		}
		at := 0
		for i := range n {
			d, rep, v := maxDef, int16(0), ""
			if maxDef > 0 {
				d = defs[i]
			}
			if maxRep > 0 {
				rep = reps[i]
			}
			if d == maxDef {
				v = text(values[at])
				at++
			}
			out = append(out, fmt.Sprint(rep, d, v))
		}
	}
	return out
}
