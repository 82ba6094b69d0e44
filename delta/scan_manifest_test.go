package delta_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// mapFile is a Parquet file of a struct of a map whose keys are optional. Each key is one of a map's, of the row that levels
// tell: of repetition, and of definition of keys.
func mapFile(t *testing.T, keys []string, reps, defs []int16) []byte {
	t.Helper()
	node := func(n schema.Node, err error) schema.Node {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	group := func(name string, of parquet.Repetition, is schema.ConvertedType, fields ...schema.Node) *schema.GroupNode {
		g, err := schema.NewGroupNodeConverted(name, of, fields, is, -1)
		return node(g, err).(*schema.GroupNode)
	}
	text := func(name string) schema.Node {
		n, err := schema.NewPrimitiveNodeLogical(name, parquet.Repetitions.Optional, schema.StringLogicalType{},
			parquet.Types.ByteArray, -1, -1)
		return node(n, err)
	}
	o, none := parquet.Repetitions.Optional, schema.ConvertedTypes.None
	root := group("schema", parquet.Repetitions.Required, none, group("s", o, none, group("m", o, schema.ConvertedTypes.Map,
		group("key_value", parquet.Repetitions.Repeated, schema.ConvertedTypes.MapKeyValue, text("key"), text("value")))))
	var out bytes.Buffer
	w := file.NewParquetWriter(&out, root)
	rows, err := w.AppendRowGroupChecked()
	if err != nil {
		t.Fatal(err)
	}
	var values []parquet.ByteArray
	for _, k := range keys {
		values = append(values, parquet.ByteArray(k))
	}
	for range 2 { // values are the keys once more
		column, err := rows.NextColumn()
		if err == nil {
			_, err = column.(*file.ByteArrayColumnChunkWriter).WriteBatch(values, defs, reps)
		}
		if err == nil {
			err = column.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(rows.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Presto has written such files. Levels of definition: 0 the struct is null, 1 the map, 2 it is empty, 3 the key is null.
func TestScan_MapWhoseKeysAreOptional_IsReadUnlessAKeyIsNull(t *testing.T) {
	st := store.NewMem()
	data := mapFile(t, []string{"a", "b", "c"}, []int16{0, 1, 0, 0, 0, 0}, []int16{4, 4, 0, 1, 2, 4})
	if err := st.Put(t.Context(), "x.parquet", data); err != nil {
		t.Fatal(err)
	}
	c := convert(t, st, nil)
	want := []string{`{"s":{"m":[]}}`, `{"s":{"m":[{"key":"a","value":"a"},{"key":"b","value":"b"}]}}`,
		`{"s":{"m":[{"key":"c","value":"c"}]}}`, `{"s":{"m":null}}`, `{"s":null}`}
	got := scanLines(t, snapshot(t, c.Table), nil)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	broken := store.NewMem()
	data = mapFile(t, []string{"a"}, []int16{0, 1}, []int16{4, 3})
	if err := broken.Put(t.Context(), "x.parquet", data); err != nil {
		t.Fatal(err)
	}
	convert(t, broken, nil)
	if _, err := newestDigest(broken); !errors.Is(err, delta.ErrCorrupt) || !strings.Contains(err.Error(), "no nulls") {
		t.Errorf("got %v, want the null key as ErrCorrupt", err)
	}
}
