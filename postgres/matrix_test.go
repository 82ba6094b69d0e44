package postgres

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
)

// The golden file has each column of the tables of types_basic.sql with its type in Delta and its values in the order of
// the rows. UPDATE_GOLDEN=1 writes it.
const matrixGolden = "testdata/matrix.golden"

func TestMatrix_EveryTypeOfTheServer_ArrivesByCopy(t *testing.T) {
	folder := os.Getenv("FRESHET_TESTDATA")
	if folder == "" {
		t.Skip("FRESHET_TESTDATA names no folder with cdc/pg/types")
	}
	script, err := os.ReadFile(filepath.Join(folder, "cdc/pg/types/types_basic.sql"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(matrixGolden)
	if err != nil && os.Getenv("UPDATE_GOLDEN") == "" {
		t.Fatal(err)
	}
	onServers(t, func(t *testing.T, address string) {
		do(t, connect(t, address), string(script))
		conn := connect(t, address)
		tables, err := readTables(t.Context(), conn, []string{"tb.*"})
		if err != nil {
			t.Fatal(err)
		}
		m := newTypeMap(Types{})
		if err := m.load(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		for _, c := range tables {
			batch, lost := copyAll(t, address, m, &c.Table)
			for i, f := range batch.Schema().Fields() {
				fmt.Fprintf(&got, "%s.%s %s -> %s", c.Name, f.Name, m.describe(c.Columns[i].Type, c.Columns[i].Modifier), f.Type)
				if lost[f.Name] > 0 {
					fmt.Fprintf(&got, " (%d became null)", lost[f.Name])
				}
				got.WriteString("\n")
				for row := range int(batch.NumRows()) {
					fmt.Fprintf(&got, "\t%s\n", shown(batch.Column(i), row))
				}
			}
			batch.Release()
		}
		if os.Getenv("UPDATE_GOLDEN") != "" {
			if err := os.WriteFile(matrixGolden, []byte(got.String()), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		if got.String() != string(want) {
			t.Errorf("%s: %s", matrixGolden, firstDifference(got.String(), string(want)))
		}
	})
}

func shown(a arrow.Array, row int) string {
	if a.IsNull(row) {
		return "null"
	}
	return fmt.Sprintf("%q", a.ValueStr(row))
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d: got %s, want %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("got %d lines, want %d", len(g), len(w))
}

// copyAll reads all rows of a table, ordered by the first column.
func copyAll(t *testing.T, address string, m *typeMap, table *Table) (batch arrow.RecordBatch, lost map[string]int64) {
	t.Helper()
	schema, err := m.schema(table)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRows(m, table, schema)
	if err != nil {
		t.Fatal(err)
	}
	lost = map[string]int64{}
	full := func() error {
		r.nulled(lost)
		batch, _ = r.take()
		return nil
	}
	reject := func(line []byte, why *freshet.RejectError) error { return fmt.Errorf("%s: %w", line, why) }
	query := selectOf(table, table.quoted(), "") + " order by 1"
	if err := copyRows(t.Context(), connect(t, address), query, r, maxRowsBytes, full, reject); err != nil {
		t.Fatalf("%s: %v", table, err)
	}
	return batch, lost
}
