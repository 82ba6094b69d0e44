package delta_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// parquetFolder writes rows as the files of a table and takes its log away.
func parquetFolder(t *testing.T, st store.Store, s *delta.Schema, parts []string, rows ...string) {
	t.Helper()
	for _, r := range rows {
		writeAll(t, st, s, parts, nil, batchOf(t, s, r))
	}
}

func convert(t *testing.T, st store.Store, opts *delta.ConvertOptions) *delta.Converted {
	t.Helper()
	c, err := delta.Convert(context.Background(), st, opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConvert_HiveFolders_PartitionsWithTypesAndRows(t *testing.T) {
	st := store.NewMem()
	s := fields("id", delta.Long, "name", delta.String, "at", delta.Timestamp, "n", delta.Long, "day", delta.Date,
		"code", delta.String)
	rows := []string{
		`[{"id":1,"name":"a","at":"2026-01-31T01:02:03.004005Z","n":-7,"day":"2026-01-31","code":"007"},
		  {"id":2,"name":null,"at":null,"n":null,"day":null,"code":null}]`,
		`[{"id":3,"name":"c","at":"1960-01-01T00:00:00Z","n":12,"day":"1969-12-31","code":"a/b = c%"}]`}
	parquetFolder(t, st, s, []string{"n", "day", "code"}, rows...)
	c := convert(t, st, nil)
	if c.Files != 3 || c.Rows != 3 || !slices.Equal(c.PartitionBy, []string{"n", "day", "code"}) {
		t.Errorf("%+v", c)
	}
	want := []string{}
	for _, r := range rows {
		want = append(want, scanLines(t, tableOf(t, store.NewMem(), s, nil, batchOf(t, s, r)), nil)...)
	}
	slices.Sort(want)
	sameRows(t, c.Table, want)
	if _, err := delta.Convert(context.Background(), st, nil); !errors.Is(err, delta.ErrTableExists) {
		t.Errorf("again: %v", err)
	}
}

func TestConvert_Footers_TellTheStatisticsThatAWriterHas(t *testing.T) {
	st := store.NewMem()
	s := fields("i", delta.Integer, "l", delta.Long, "d", delta.Date, "t", delta.Timestamp, "s", delta.String,
		"m", delta.Decimal{Precision: 9, Scale: 2}, "st", &delta.Struct{Fields: fields("x", delta.Short).Fields},
		"b", delta.Boolean)
	rows := `[{"i":-5,"l":9,"d":"2026-01-31","t":"2026-01-31T01:02:03.004005Z","s":"zebra","m":"-1.50","st":{"x":3},"b":true},
		{"i":7,"l":null,"d":"1969-01-31","t":"2020-01-31T01:02:03.999999Z","s":"` + strings.Repeat("long", 20) +
		`","m":"7.25","st":null,"b":null}]`
	adds := writeAll(t, st, s, nil, nil, batchOf(t, s, rows))
	c := convert(t, st, nil)
	for a, err := range snapshot(t, c.Table).Files(context.Background(), &delta.FilesOptions{Stats: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if !sameJSON(t, a.Stats, adds[0].Stats) {
			t.Errorf("got  %s\nwant %s", a.Stats, adds[0].Stats)
		}
	}
}

func TestConvert_FilesThatDiffer_AreMergedOrRefused(t *testing.T) {
	st := store.NewMem()
	parquetFolder(t, st, fields("id", delta.Long), nil, `[{"id":1}]`)
	parquetFolder(t, st, fields("id", delta.Long, "extra", delta.String), nil, `[{"id":2,"extra":"x"}]`)
	if err := st.Put(context.Background(), "_hidden/a.parquet", []byte("no Parquet")); err != nil {
		t.Fatal(err)
	}
	if err := st.Put(context.Background(), "README.md", []byte("no Parquet")); err != nil {
		t.Fatal(err)
	}
	dry := convert(t, st, &delta.ConvertOptions{DryRun: true})
	if dry.Table != nil || len(dry.Schema.Fields) != 2 || dry.Files != 2 {
		t.Errorf("%+v", dry)
	}
	parquetFolder(t, st, fields("id", delta.String), nil, `[{"id":"three"}]`)
	var mismatch *delta.SchemaMismatchError
	if _, err := delta.Convert(context.Background(), st, nil); !errors.As(err, &mismatch) || mismatch.Column != "id" {
		t.Errorf("got %v", err)
	}
}

func TestConvert_WhatIsNoTable_IsAnErrorThatNamesTheFile(t *testing.T) {
	ctx := context.Background()
	for name, files := range map[string][]string{"found no file": nil, "wanted the same": {"a=1/x.parquet", "b=1/x.parquet"},
		"x.parquet": {"x.parquet"}} {
		st := store.NewMem()
		for _, f := range files {
			if err := st.Put(ctx, f, []byte("this is no Parquet file at all")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := delta.Convert(ctx, st, nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	st := store.NewMem()
	parquetFolder(t, st, fields("id", delta.Long, "p", delta.String), []string{"p"}, `[{"id":1,"p":"x"}]`)
	_, err := delta.Convert(ctx, st, &delta.ConvertOptions{PartitionBy: []delta.Field{{Name: "p", Type: delta.Integer}}})
	if err == nil || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("got %v", err)
	}
}

// Files of other writers are converted one by one: each gives a table that can be read, or an error. Those that cannot be
// read then are broken in pages, which converting does not look at.
func TestConvert_ParquetOfOthers_ATableOrAnError(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(parquetTesting(t), "*.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	broken := []string{"datapage_v1-corrupt-checksum.parquet",
		"large_string_map.brotli.parquet", "rle-dict-uncompressed-corrupt-checksum.parquet"}
	made := 0
	for _, path := range files {
		data, err := disk(t, filepath.Dir(path)).Get(context.Background(), filepath.Base(path))
		if err != nil {
			t.Fatal(err)
		}
		st := store.NewMem()
		if err := st.Put(context.Background(), "x.parquet", data); err != nil {
			t.Fatal(err)
		}
		c, err := delta.Convert(context.Background(), st, nil)
		if err != nil {
			continue
		}
		made++
		rows := int64(0)
		for rec, err := range snapshot(t, c.Table).Scan(context.Background(), nil) {
			if err != nil {
				if !slices.Contains(broken, filepath.Base(path)) {
					t.Errorf("%s: %v", filepath.Base(path), err)
				}
				rows = -1
				break
			}
			rows += rec.NumRows()
			rec.Release()
		}
		if rows >= 0 && rows != c.Rows {
			t.Errorf("%s: %d rows, by the footer %d", filepath.Base(path), rows, c.Rows)
		}
	}
	t.Log(fmt.Sprint(made, " of ", len(files)))
}

// A reader of files of others sees unsigned integers as the wider type, whose bounds are not those of the footer.
func TestConvert_UnsignedIntegers_KeepTheirValues(t *testing.T) {
	as := arrow.NewSchema([]arrow.Field{column("u", arrow.PrimitiveTypes.Uint32), column("w", arrow.PrimitiveTypes.Uint64)}, nil)
	rec := arrowRows(t, as, `[{"u":1,"w":2},{"u":4294967295,"w":18446744073709551615},{"u":null,"w":null}]`)
	snap, _ := foreignTable(t, rec)
	for _, cond := range []string{"true", "u > 4000000000 OR u IS NULL OR u = 1"} {
		got := scanLines(t, snap, &delta.ScanOptions{Where: where(t, cond)})
		want := []string{`{"u":1,"w":"2"}`, `{"u":4294967295,"w":"18446744073709551615"}`, `{"u":null,"w":null}`}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", cond, got, want)
		}
	}
}

// A column of a type that Delta does not have is no damage of the file.
func TestConvert_TypeThatDeltaDoesNotHave_RefusedByName(t *testing.T) {
	st := store.NewMem()
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{
		{Name: "half", Type: arrow.FixedWidthTypes.Float16, Nullable: true}}, nil))
	defer b.Release()
	b.Field(0).AppendNull()
	rec := b.NewRecordBatch()
	defer rec.Release()
	var file bytes.Buffer
	w, err := pqarrow.NewFileWriter(rec.Schema(), &file, nil, pqarrow.DefaultWriterProps())
	if err == nil {
		err = errors.Join(w.Write(rec), w.Close())
	}
	if err == nil {
		err = st.Put(t.Context(), "half.parquet", file.Bytes())
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = delta.Convert(t.Context(), st, nil)
	var mismatch *delta.SchemaMismatchError
	if !errors.As(err, &mismatch) || mismatch.Column != "half" || errors.Is(err, delta.ErrCorrupt) ||
		!strings.Contains(err.Error(), "half.parquet") {
		t.Errorf("got %v, want half of half.parquet as a SchemaMismatchError, and no damage", err)
	}
}

// A logical type that came after this program is no damage either.
func TestConvert_LogicalTypeThatIsNewer_RefusedByNumber(t *testing.T) {
	data, err := disk(t, parquetTesting(t)).Get(t.Context(), "unknown-logical-type.parquet")
	if err != nil {
		t.Fatal(err)
	}
	st := store.NewMem()
	if err := st.Put(t.Context(), "new.parquet", data); err != nil {
		t.Fatal(err)
	}
	_, err = delta.Convert(t.Context(), st, nil)
	var unsupported *delta.UnsupportedError
	if !errors.As(err, &unsupported) || errors.Is(err, delta.ErrCorrupt) {
		t.Fatalf("got %v, want an UnsupportedError and no damage", err)
	}
	for _, want := range []string{"2555", "column with unknown type", "new.parquet"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}

// Some writers leave the count of rows in the footer at zero, where the row groups have theirs.
func TestConvert_FooterCountsNoRows_RowsAreDeletedAndGetIDs(t *testing.T) {
	data, err := disk(t, parquetTesting(t)).Get(t.Context(), "repeated_no_annotation.parquet")
	if err != nil {
		t.Fatal(err)
	}
	st := store.NewMem()
	for _, key := range []string{"a.parquet", "b.parquet"} {
		if err := st.Put(t.Context(), key, data); err != nil {
			t.Fatal(err)
		}
	}
	c := convert(t, st, &delta.ConvertOptions{NoStats: true})
	r, err := c.Table.SetProperties(t.Context(), map[string]string{"delta.enableDeletionVectors": "true",
		"delta.enableRowTracking": "true"}, upgrade)
	done(t, r, err)
	if _, err := c.Table.Delete(t.Context(), where(t, "id = 1"), nil); err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, line := range scanLines(t, snapshot(t, c.Table), &delta.ScanOptions{Columns: []string{}, RowIDs: true}) {
		ids[line] = true
	}
	if len(ids) != 10 {
		t.Errorf("got the ids %v, want 10 that differ", ids)
	}
	if r := check(t, c.Table, &delta.CheckOptions{Deep: true}); len(r.Findings) > 0 {
		t.Errorf("got %v", r.Findings)
	}
}
