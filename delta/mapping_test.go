package delta_test

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// nestedColumns has structs in structs, arrays and maps, and names that only a mapping allows.
func nestedColumns() *delta.Schema {
	point := func() *delta.Struct {
		return &delta.Struct{Fields: []delta.Field{{Name: "x y", Type: delta.Long, Nullable: true},
			{Name: "z", Type: delta.String, Nullable: true}}}
	}
	return fields("a b", delta.Long, "p=q", delta.String, "s", point(),
		"l", &delta.Array{Element: point(), ContainsNull: true},
		"m", &delta.Map{Key: delta.String, Value: point(), ValueContainsNull: true})
}

const nestedRows = `[{"a b":1,"p=q":"one","s":{"x y":2,"z":"u"},"l":[{"x y":3,"z":"v"}],"m":[{"key":"k","value":{"x y":4,"z":"w"}}]},
	{"a b":5,"p=q":"two","s":null,"l":[],"m":[]}]`

func TestCreate_ColumnMapping_RowsComeBackUnderTheirNames(t *testing.T) {
	for _, mode := range []string{"name", "id"} {
		t.Run(mode, func(t *testing.T) {
			ctx := context.Background()
			st := store.NewMem()
			table, err := delta.Create(ctx, st, &delta.CreateOptions{Schema: nestedColumns(), PartitionBy: []string{"p=q"},
				Properties: map[string]string{"delta.columnMapping.mode": mode}})
			if err != nil {
				t.Fatal(err)
			}
			snap := snapshot(t, table)
			if p := snap.Protocol(); p.MinReaderVersion != 2 || p.MinWriterVersion != 5 {
				t.Errorf("got protocol (%d, %d), want (2, 5)", p.MinReaderVersion, p.MinWriterVersion)
			}
			if got := snap.Property("delta.columnMapping.maxColumnId"); got != "11" {
				t.Errorf("got maxColumnId %s, want 11", got)
			}
			adds := appendJSON(t, table, nestedRows)
			prefix := regexp.MustCompile(`^[0-9a-zA-Z]{2}/part-`)
			for _, a := range adds {
				if !prefix.MatchString(a.Path) {
					t.Errorf("got the path %s, want a random folder of two characters", a.Path)
				}
				for name := range a.PartitionValues {
					if !strings.HasPrefix(name, "col-") {
						t.Errorf("got the partition column %q, want a physical name", name)
					}
				}
				if strings.Contains(a.Stats, "x y") || !strings.Contains(a.Stats, `"minValues":{"col-`) {
					t.Errorf("got statistics %s, want physical names", a.Stats)
				}
				checkFieldIDs(t, st, a.Path)
			}
			checkRows(t, table, nestedColumns(), nestedRows)
		})
	}
}

// checkFieldIDs makes sure that each field of a struct has an id in the file.
func checkFieldIDs(t *testing.T, st store.Store, path string) {
	t.Helper()
	data, err := st.Get(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := file.NewParquetReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	root := r.MetaData().Schema.Root()
	for i := range root.NumFields() {
		if root.Field(i).FieldID() <= 0 || !strings.HasPrefix(root.Field(i).Name(), "col-") {
			t.Errorf("got the column %q with id %d, want a physical name and an id", root.Field(i).Name(),
				root.Field(i).FieldID())
		}
	}
}

func TestMetadataWithSchema_NewColumns_GetIDsThatWereNeverUsed(t *testing.T) {
	table, err := delta.Create(context.Background(), store.NewMem(), &delta.CreateOptions{
		Schema: fields("a", delta.Long), Properties: map[string]string{"delta.columnMapping.mode": "name"}})
	if err != nil {
		t.Fatal(err)
	}
	meta := snapshot(t, table).Metadata()
	have, err := meta.Schema()
	if err != nil {
		t.Fatal(err)
	}
	wide, _, err := have.Merge(fields("a", delta.Long, "s", &delta.Struct{Fields: fields("x", delta.Long).Fields}))
	if err != nil {
		t.Fatal(err)
	}
	next, err := meta.WithSchema(wide)
	if err != nil {
		t.Fatal(err)
	}
	if got := next.Configuration["delta.columnMapping.maxColumnId"]; got != "3" {
		t.Errorf("got maxColumnId %s, want 3", got)
	}
	if got, _ := next.Schema(); !bytes.Equal(got.Fields[0].Metadata, have.Fields[0].Metadata) {
		t.Errorf("got %s, want %s", got.Fields[0].Metadata, have.Fields[0].Metadata)
	}
	stolen := fields("b", delta.Long)
	stolen.Fields[0].Metadata = json.RawMessage(`{"delta.columnMapping.id":3,"delta.columnMapping.physicalName":"b"}`)
	stolen.Fields = append(stolen.Fields, wide.Fields[0])
	if _, err := next.WithSchema(stolen); err == nil {
		t.Error("got no error, want one for an id of another column")
	}
}
