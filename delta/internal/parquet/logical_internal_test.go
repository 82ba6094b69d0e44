package parquet

import (
	"os"
	"path/filepath"
	"testing"
)

// footerOf writes FileMetaData of a group "g" with one column and of another column behind it; logical writes the field of
// the first one's logical type.
func footerOf(logical func(t *thrift)) []byte {
	t := &thrift{}
	element := func(name string, children int64, logical func(t *thrift)) {
		t.element(func() {
			t.string(4, name)
			if children > 0 {
				t.i32(5, children)
			}
			if logical != nil {
				t.group(10, func() { logical(t) })
			}
		})
	}
	t.element(func() {
		t.i32(1, 1)
		t.list(2, typeStruct, 4)
		element("schema", 2, nil)
		element("g", 1, nil)
		element("x", 0, logical)
		element("y", 0, func(t *thrift) { t.group(1, func() {}) })
		t.last = 2
		t.i64(3, 0)
	})
	return t.b
}

func TestNewerType_LogicalTypesAndUnits_OnlyWhatHasNoNumberYet(t *testing.T) {
	empty := func() {}
	unit := func(of, unit int16) func(*thrift) {
		return func(t *thrift) {
			t.group(of, func() {
				t.bool(1, true)
				t.group(2, func() { t.group(unit, empty) })
			})
		}
	}
	for name, c := range map[string]struct {
		logical func(*thrift)
		want    int16 // 0: it is known
	}{
		"string":           {func(t *thrift) { t.group(1, empty) }, 0},
		"geography":        {func(t *thrift) { t.group(18, empty) }, 0},
		"no number yet":    {func(t *thrift) { t.group(19, empty) }, 19},
		"out of use":       {func(t *thrift) { t.group(9, empty) }, 9},
		"nanoseconds":      {unit(8, 3), 0},
		"picoseconds":      {unit(8, 4), 8},
		"time in a 5th":    {unit(7, 5), 7},
		"time in millis":   {unit(7, 1), 0},
		"not a union even": {func(*thrift) {}, 0},
	} {
		meta := footerOf(c.logical)
		column, number, ok := NewerType(meta)
		if ok != (c.want != 0) || number != c.want || ok && column != "g.x" {
			t.Errorf("%s: got %q, %d, %v, want g.x and %d", name, column, number, ok, c.want)
		}
		for n := range meta {
			NewerType(meta[:n]) // cut off: no panic
		}
	}
}

// FuzzNewerType looks into broken footers: no panic, no hang, and what it tells lies within them.
func FuzzNewerType(f *testing.F) {
	f.Add(footerOf(func(t *thrift) { t.group(19, func() {}) }))
	if root := os.Getenv("FRESHET_TESTDATA"); root != "" {
		paths, err := filepath.Glob(filepath.Join(root, "parquet", "data", "*.parquet"))
		if err != nil {
			f.Fatal(err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			n := len(data) - 8
			size := int(data[n]) | int(data[n+1])<<8 | int(data[n+2])<<16 | int(data[n+3])<<24
			if size < n && size < 64<<10 {
				f.Add(data[n-size : n])
			}
		}
	}
	f.Fuzz(func(t *testing.T, meta []byte) {
		if column, number, ok := NewerType(meta); len(column) > len(meta) || !ok && number != 0 {
			t.Errorf("got %d bytes of %d, number %d, %v", len(column), len(meta), number, ok)
		}
	})
}
