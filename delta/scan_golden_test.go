package delta_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/internal/canonical"
	"github.com/freshet-io/freshet/store"
)

// digestOf reads all rows of a snapshot, and looks at them when all are read: what a file's bytes lay in has been used again
// by then, which the batches must not notice.
func digestOf(snap *delta.Snapshot, opts *delta.ScanOptions) (sum string, rows int64, err error) {
	var d canonical.Digest
	var line []byte
	var all []arrow.RecordBatch
	for rec, err := range snap.Scan(context.Background(), opts) {
		if err != nil {
			return "", 0, err
		}
		all = append(all, rec)
	}
	for _, rec := range all {
		enc := canonical.NewEncoder(rec.Schema())
		for i := range int(rec.NumRows()) {
			if line, err = enc.AppendRow(line[:0], rec, i); err != nil {
				return "", 0, err
			}
			if err := d.Add(line); err != nil {
				return "", 0, err
			}
		}
		rec.Release()
	}
	return d.Sum()
}

// TestScan_TablesOfOthers_RowsAsTheirEnginesRead reads the newest version of each table that some engine can read.
func TestScan_TablesOfOthers_RowsAsTheirEnginesRead(t *testing.T) {
	root := os.Getenv("FRESHET_TESTDATA")
	if root == "" {
		t.Skip("FRESHET_TESTDATA is not set: it names the folder of data that others wrote")
	}
	root = filepath.Join(root, "delta")
	text, err := os.ReadFile(filepath.Join(root, "EXPECTED.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n")[1:] {
		cells := append(strings.Split(line, "\t"), "")
		t.Run(cells[0], func(t *testing.T) {
			t.Parallel()
			compareGolden(t, goldenStore(t, filepath.Join(root, cells[0], "delta")), cells)
		})
	}
}

// testPrefix begins the names of some files of deletion vectors. Delta's own tests add it when they write and when they
// read; no table in the world has it.
const testPrefix = "test%dv%prefix-"

// goldenStore is the table's folder, or a copy without the prefix if the table has it.
func goldenStore(t *testing.T, dir string) store.Store {
	if found, _ := filepath.Glob(filepath.Join(dir, testPrefix+"*")); len(found) > 0 {
		plain := t.TempDir()
		if err := os.CopyFS(plain, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			name := filepath.Base(path)
			if err := os.Rename(filepath.Join(plain, name), filepath.Join(plain, name[len(testPrefix):])); err != nil {
				t.Fatal(err)
			}
		}
		dir = plain
	}
	st, err := store.NewDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// unreadable are the tables that no engine can read, by their last name, with what our error says of the reason.
var unreadable = map[string]string{
	"canonicalized-paths-normal-a":                   "the metadata in force at version 1 names no columns",
	"checkpoint":                                     "has 1 bytes, too few for a Parquet file",
	"checkpoint_with_partitions":                     "the file is not there",
	"checkpoints":                                    "the file is not there",
	"checkpoints_vacuumed":                           "the file is not there",
	"delete-re-add-same-file-different-transactions": "has 1 bytes, too few for a Parquet file",
	"deltalog-commit-info":                           "the metadata in force at version 0 names no columns",
	"deltalog-invalid-protocol-version":              "it uses reader version 99",
	"deltalog-state-reconstruction-from-checkpoint-missing-metadata": "the metadata in force at version 10 names no columns",
	"deltalog-state-reconstruction-without-metadata":                 "has no metadata",
	"deltalog-state-reconstruction-without-protocol":                 "has no protocol",
	"hive":                                    "no Delta table at",
	"latest_not_checkpointed":                 "the file is not there",
	"no-delta-log-folder":                     "no Delta table at",
	"simple_table_features":                   "it uses reader version 5",
	"spark-variant-stable-feature-checkpoint": "the file is not there",
	"table-with-domain-metadata":              "the file is not there",
	"table-with-geo":                          "it uses the table feature geospatial",
	"update-deleted-directory":                "the metadata in force at version 0 names no columns",
	"with_checkpoint_no_last_checkpoint":      "the file is not there",
}

// compareGolden compares the newest version with a line of EXPECTED.tsv.
func compareGolden(t *testing.T, st store.Store, cells []string) {
	version, rows, sum := cells[1], cells[2], cells[3]
	table, err := delta.Open(context.Background(), st, nil)
	var gotSum string
	var gotRows int64
	if err == nil {
		var snap *delta.Snapshot
		if snap, err = table.Snapshot(context.Background()); err == nil {
			if version != "-" && strconv.FormatInt(snap.Version(), 10) != version {
				t.Fatalf("got version %d, want %s", snap.Version(), version)
			}
			gotSum, gotRows, err = digestOf(snap, nil)
		}
	}
	switch {
	case sum == "-": // no engine can read it
		reason, known := unreadable[path.Base(cells[0])]
		if err == nil || !known || !strings.Contains(err.Error(), reason) {
			t.Errorf("got %d rows, error %v; want an error that says %q", gotRows, err, reason)
		}
	case err != nil:
		t.Error(err)
	case gotSum != sum || strconv.FormatInt(gotRows, 10) != rows:
		t.Errorf("got %d rows, %s; want %s rows, %s", gotRows, gotSum, rows, sum)
	}
}

// tableOver makes a table whose one data file is the given Parquet file.
func tableOver(t *testing.T, file string, s *delta.Schema) *delta.Snapshot {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	st := store.NewMem()
	if err := st.Put(context.Background(), "f.parquet", data); err != nil {
		t.Fatal(err)
	}
	snap := tableOf(t, st, s, nil)
	tx := snap.Table().Begin(snap, nil)
	tx.Add(delta.Add{Path: "f.parquet", PartitionValues: map[string]*string{}, Size: int64(len(data)), DataChange: true})
	r, err := tx.Commit(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return r.Snapshot
}

// parquetTesting is the folder of files of the project parquet-testing.
func parquetTesting(t *testing.T) string {
	root := os.Getenv("FRESHET_TESTDATA")
	if root == "" {
		t.Skip("FRESHET_TESTDATA is not set: it names the folder of data that others wrote")
	}
	return filepath.Join(root, "parquet", "data")
}

func TestScan_Int96BeyondNanoseconds_ExactMicroseconds(t *testing.T) {
	snap := tableOver(t, filepath.Join(parquetTesting(t), "int96_from_spark.parquet"), fields("a", delta.Timestamp))
	var got []string
	for rec, err := range snap.Scan(context.Background(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		a := rec.Column(0).(*array.Timestamp)
		for i := range a.Len() {
			if a.IsNull(i) {
				got = append(got, "null")
			} else {
				got = append(got, strconv.FormatInt(int64(a.Value(i)), 10))
			}
		}
	}
	want := "1704141296123456 1704070800000000 253402225200000000 1735599600000000 null 9089380393200000000"
	if strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

// TestScan_FilesOfAllKinds_RowsOrTheReason reads files with every encoding, page kind and legacy layout, encrypted and
// broken ones. testdata/parquet_files.tsv has what each holds, as testdata/parquet_digests.py has Arrow C++ and DuckDB read
// it (the third column names those that agree), or, where we cannot read it, what the error says.
func TestScan_FilesOfAllKinds_RowsOrTheReason(t *testing.T) {
	root := parquetTesting(t)
	text, err := os.ReadFile("testdata/parquet_files.tsv")
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[string]string)
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n")[1:] {
		cells := strings.Split(line, "\t")
		want[cells[0]] = cells[1]
	}
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && (strings.HasSuffix(name, ".parquet") || strings.HasSuffix(name, ".encrypted")) {
			t.Run(name, func(t *testing.T) { t.Parallel(); comparePinned(t, filepath.Join(root, name), want[name]) })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func comparePinned(t *testing.T, path, want string) {
	s := schemaOfFile(path)
	if len(s.Fields) == 0 {
		if want != "no column of a type that Delta has" {
			t.Errorf("got no column of a type that Delta has, want %s", want)
		}
		return
	}
	sum, rows, err := digestOf(tableOver(t, path, s), nil)
	if err != nil && !errors.Is(err, delta.ErrCorrupt) && !errors.Is(err, delta.ErrUnsupportedFeature) {
		t.Errorf("got %v, want rows, ErrCorrupt or ErrUnsupportedFeature", err)
	}
	got := strconv.FormatInt(rows, 10) + " " + sum
	switch {
	case err == nil && got != want:
		t.Errorf("got %s, want %s", got, want)
	case err != nil && (want == "" || !strings.Contains(err.Error(), want)):
		t.Errorf("got error %v, want %s", err, want)
	}
}

// schemaOfFile is the schema that a file would have in Delta, without the columns of which Delta has no form, or some schema
// where its footer cannot be read.
func schemaOfFile(path string) (s *delta.Schema) {
	s = fields("a", delta.Long)
	switch filepath.Base(path) {
	case "old_list_structure.parquet": // which the library takes for a list of structs
		return fields("a", &delta.Array{Element: &delta.Array{Element: delta.Integer}})
	case "incorrect_map_schema.parquet": // which it refuses
		return fields("my_map", &delta.Map{Key: delta.String, Value: delta.String, ValueContainsNull: true})
	}
	defer func() { _ = recover() }() // the library panics on footers that it does not know
	f, err := file.OpenParquetFile(path, false)
	if err != nil {
		return s
	}
	defer f.Close()
	as, err := pqarrow.FromParquet(f.MetaData().Schema, nil, nil)
	if err != nil {
		return s
	}
	known := &delta.Schema{}
	for _, column := range as.Fields() {
		column.Type = deltaType(column.Type)
		if one, err := delta.SchemaFromArrow(arrow.NewSchema([]arrow.Field{column}, nil)); err == nil {
			known.Fields = append(known.Fields, one.Fields...)
		}
	}
	return known
}

// deltaType is the type that a column of Delta would have that is read from one of t.
func deltaType(t arrow.DataType) arrow.DataType {
	switch t := t.(type) {
	case *arrow.Uint8Type:
		return arrow.PrimitiveTypes.Int16
	case *arrow.Uint16Type:
		return arrow.PrimitiveTypes.Int32
	case *arrow.Uint32Type, *arrow.Uint64Type:
		return arrow.PrimitiveTypes.Int64
	case *arrow.FixedSizeBinaryType:
		return arrow.BinaryTypes.Binary
	case *arrow.TimestampType:
		return &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: t.TimeZone}
	case *arrow.StructType:
		fields := t.Fields()
		for i := range fields {
			fields[i].Type = deltaType(fields[i].Type)
		}
		return arrow.StructOf(fields...)
	}
	return t
}
