package delta_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/freshet-io/freshet/delta"
)

// pagedFile is a file of a few row groups, of many pages with an index, written by the Arrow library. The column id is the
// number of the row.
func pagedFile(t *testing.T, s *delta.Schema, rows []string) []byte {
	t.Helper()
	props := parquet.NewWriterProperties(parquet.WithPageIndexEnabled(true), parquet.WithDataPageSize(300),
		parquet.WithBatchSize(20), parquet.WithDictionaryDefault(false), parquet.WithCompression(compress.Codecs.Snappy))
	var out bytes.Buffer
	w, err := pqarrow.NewFileWriter(s.Arrow(), &out, props, pqarrow.DefaultWriterProps())
	if err != nil {
		t.Fatal(err)
	}
	for group := range 4 {
		part := rows[group*len(rows)/4 : (group+1)*len(rows)/4]
		if err := w.Write(batchOf(t, s, "["+strings.Join(part, ",")+"]")); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func tableOverBytes(t *testing.T, data []byte, s *delta.Schema) *delta.Snapshot {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f.parquet")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return tableOver(t, path, s)
}

// TestScan_PagesOfAnIndex_SkippedRowsKeepPositions has conditions rule out pages, of which deletion vectors name some rows.
func TestScan_PagesOfAnIndex_SkippedRowsKeepPositions(t *testing.T) {
	const seed = 3
	r := rand.New(rand.NewPCG(seed, seed))
	s := fields("id", delta.Long, "a", delta.Integer, "t", delta.Timestamp, "s", delta.String)
	orNull := func(v string) string {
		if r.IntN(5) == 0 {
			return "null"
		}
		return v
	}
	var rows []string
	for i := range 1000 {
		low := i / 50
		rows = append(rows, fmt.Sprintf(`{"id":%d,"a":%s,"t":%s,"s":%s}`, i, orNull(fmt.Sprint(low+r.IntN(3))),
			orNull(fmt.Sprintf(`"2024-01-%02dT00:00:00.000001Z"`, 1+low)), orNull(fmt.Sprintf(`"%02d-%d"`, low, r.IntN(5)))))
	}
	snap := tableOverBytes(t, pagedFile(t, s, rows), s)
	all := scanLines(t, snap, nil)
	for i := range 60 {
		if i == 30 {
			snap = deleteSome(t, snap, r, len(rows))
			all = scanLines(t, snap, nil)
		}
		low := r.IntN(22)
		text := []string{fmt.Sprintf("a = %d", low), fmt.Sprintf("a > %d OR s < '%02d'", low, r.IntN(20)),
			fmt.Sprintf("s >= '%02d-2' AND a <= %d", low, low+r.IntN(4)), fmt.Sprintf("id BETWEEN %d AND %d", low*40, low*50),
			fmt.Sprintf("t = TIMESTAMP '2024-01-%02dT00:00:00.000001Z'", 1+low), "s IS NULL AND a IS NOT NULL",
			fmt.Sprintf("NOT (a < %d)", low)}[r.IntN(7)]
		got := 0
		for batch, err := range snap.ScanFiles(context.Background(), filesOf(t, snap), &delta.ScanOptions{
			Columns: []string{"s", "id"}, Where: where(t, text), BatchRows: 1 + r.IntN(400)}) {
			if err != nil {
				t.Fatal(err)
			}
			ids := batch.Batch.Column(1).(*array.Int64)
			for k, row := range batch.Rows {
				if ids.Value(k) != row {
					t.Fatalf("seed %d: %s: row %d is said to be at %d", seed, text, ids.Value(k), row)
				}
			}
			got += len(batch.Rows)
			batch.Batch.Release()
		}
		if want := filterAll(t, snap, text); got != want {
			t.Errorf("seed %d: %s: got %d rows, want %d of %d", seed, text, got, want, len(all))
		}
	}
}

func filesOf(t *testing.T, snap *delta.Snapshot) (files []delta.Add) {
	t.Helper()
	for a, err := range snap.Files(context.Background(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, *a)
	}
	return files
}

// deleteSome deletes every tenth row of the one file and a longer run.
func deleteSome(t *testing.T, snap *delta.Snapshot, r *rand.Rand, rows int) *delta.Snapshot {
	t.Helper()
	ctx := context.Background()
	if _, err := snap.Table().SetProperties(ctx, map[string]string{"delta.enableDeletionVectors": "true"},
		&delta.AlterOptions{Upgrade: true}); err != nil {
		t.Fatal(err)
	}
	snap, err := snap.Table().Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	gone := roaring64.New()
	gone.AddRange(300, 420)
	for i := r.IntN(10); i < rows; i += 10 {
		gone.Add(uint64(i))
	}
	tx := snap.Table().Begin(snap, nil)
	tx.DeleteRows(filesOf(t, snap)[0], gone)
	result, err := tx.Commit(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return result.Snapshot
}

// damage overwrites the page of a column that has row 0 of a row group.
func damage(t *testing.T, data []byte, group int, column string) []byte {
	t.Helper()
	r, err := file.NewParquetReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	chunk, err := r.MetaData().RowGroup(group).ColumnChunk(r.MetaData().Schema.ColumnIndexByName(column))
	if err != nil {
		t.Fatal(err)
	}
	broken := bytes.Clone(data)
	for i := range 40 {
		broken[chunk.DataPageOffset()+40+int64(i)] = 0xff
	}
	return broken
}

// TestScan_PagesThatAreNotWanted_AreNotDecoded damages what a scan has no need of, and then what it has.
func TestScan_PagesThatAreNotWanted_AreNotDecoded(t *testing.T) {
	point := &delta.Struct{Fields: []delta.Field{{Name: "x", Type: delta.Long, Nullable: true},
		{Name: "Deep", Nullable: true, Type: &delta.Array{ContainsNull: true, Element: &delta.Struct{Fields: []delta.Field{
			{Name: "y", Type: delta.String, Nullable: true}, {Name: "z", Type: delta.String, Nullable: true}}}}}}}
	s := fields("id", delta.Long, "s", delta.String, "p", point)
	var rows []string
	for i := range 400 {
		rows = append(rows, fmt.Sprintf(`{"id":%d,"s":"%d","p":{"x":%d,"Deep":[{"y":"%d","z":"%d"},null,{"y":null,"z":"z"}]}}`,
			i, i, i, i, i))
	}
	data := pagedFile(t, s, rows)
	for _, c := range []struct {
		damaged string // in the first row group
		columns []string
		where   string
		fails   bool
		rows    int
		first   string
	}{
		{"s", []string{"id"}, "", false, 400, `{"id":0}`},
		{"s", []string{"s"}, "id >= 90", false, 310, `{"s":"90"}`},
		{"s", []string{"s"}, "id >= 100", false, 300, `{"s":"100"}`},
		{"s", []string{"s"}, "id = 3", true, 0, ""},
		{"p.Deep.list.element.z", []string{"p.deep.element.y"}, "", false, 400,
			`{"p":{"Deep":[{"y":"0"},null,{"y":null}]}}`},
		{"p.Deep.list.element.z", []string{"p.deep.element.z"}, "", true, 0, ""},
		{"p.Deep.list.element.z", []string{"p.deep.element.y", "id", "P.X"}, "", false, 400,
			`{"id":0,"p":{"Deep":[{"y":"0"},null,{"y":null}],"x":0}}`},
		{"p.Deep.list.element.z", []string{"p.x"}, "p.x = 7", true, 0, ""}, // the condition's column is read whole
		{"p.x", []string{"p.x"}, "id > 150", false, 249, `{"p":{"x":151}}`},
	} {
		snap := tableOverBytes(t, damage(t, data, 0, c.damaged), s)
		opts := &delta.ScanOptions{Columns: c.columns, BatchRows: 50}
		if c.where != "" {
			opts.Where = where(t, c.where)
		}
		if c.fails {
			if _, _, err := digestOf(snap, opts); !errors.Is(err, delta.ErrCorrupt) {
				t.Errorf("%s damaged, %v where %q: got %v, want ErrCorrupt", c.damaged, c.columns, c.where, err)
			}
			continue
		}
		lines := scanLines(t, snap, opts)
		if len(lines) != c.rows || lines[0] != c.first {
			t.Errorf("%s damaged, %v where %q: got %d rows, first %s; want %d, %s", c.damaged, c.columns, c.where,
				len(lines), lines[0], c.rows, c.first)
		}
	}
}

func TestScan_ColumnPathThatIsNotThere_NamesWhatIs(t *testing.T) {
	s := fields("id", delta.Long, "p", &delta.Struct{Fields: []delta.Field{{Name: "x", Type: delta.Long, Nullable: true}}})
	snap := tableOverBytes(t, pagedFile(t, s, []string{`{"id":1}`, `{"id":2}`, `{"id":3}`, `{"id":4}`}), s)
	for path, want := range map[string]string{
		"q.x":    `the table has no such column; its columns are id, p`,
		"p.y":    `has no field "y"; its fields are x`,
		"id.low": `has no field "low"; it has no fields`,
	} {
		var err error
		for _, err = range snap.Scan(context.Background(), &delta.ScanOptions{Columns: []string{path}}) {
			break
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error that says %q", path, err, want)
		}
	}
}
