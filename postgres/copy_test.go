package postgres

import (
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
)

// copied gives the reader the text in parts that end at the places, and returns what became of it.
func copied(t testing.TB, table *Table, text string, ends ...int) (batch arrow.RecordBatch, rejects []string) {
	t.Helper()
	m := testTypes(Types{})
	schema, err := m.schema(table)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRows(m, table, schema)
	if err != nil {
		t.Fatal(err)
	}
	w := &copyReader{rows: r, bytes: 1 << 30, full: func() error { return nil },
		reject: func(line []byte, why *freshet.RejectError) error {
			rejects = append(rejects, string(line)+": "+why.Error())
			return nil
		}}
	from := 0
	for _, end := range append(ends, len(text)) {
		if n, err := w.Write([]byte(text[from:end])); err != nil || n != end-from {
			t.Fatalf("got %d, %v, want %d bytes taken", n, err, end-from)
		}
		from = end
	}
	if len(w.part) > 0 {
		t.Fatalf("got %q left, want nothing", w.part)
	}
	batch, _ = r.take()
	return batch, rejects
}

func copyTable() *Table {
	return &Table{Schema: "public", Name: "t", Columns: []Column{{Name: "id", Type: 23, Modifier: -1},
		{Name: "s", Type: 25, Modifier: -1}}}
}

func TestCopy_EscapesNullsAndRowsThatCannotBe_EachWayOfCutting(t *testing.T) {
	text := "1\ta\\tb\\\\c\\nd\\r\\b\\f\\v\n2\t\\N\nx\tbad\\\\N\n3\t\n4\t\\\\N\n"
	for end := range len(text) {
		batch, rejects := copied(t, copyTable(), text, end)
		got := batch.Column(0).String() + batch.Column(1).String()
		batch.Release()
		want := "[1 2 3 4]" + `["a\tb\\c\nd\r\b\f\v" (null) "" "\\N"]`
		if got != want {
			t.Fatalf("cut at %d: got %s, want %s", end, got, want)
		}
		if len(rejects) != 1 || !strings.HasPrefix(rejects[0], "x\tbad\\\\N: id: found \"x\"") {
			t.Fatalf("cut at %d: got the rejects %q", end, rejects)
		}
	}
}

func TestCopy_AnotherNumberOfColumns_IsAnError(t *testing.T) {
	m := testTypes(Types{})
	for _, text := range []string{"1\n", "1\ta\tb\n"} {
		schema, _ := m.schema(copyTable())
		r, err := newRows(m, copyTable(), schema)
		if err != nil {
			t.Fatal(err)
		}
		w := &copyReader{rows: r, bytes: 1 << 30}
		if _, err := w.Write([]byte(text)); err == nil {
			t.Errorf("%q: got no error", text)
		}
	}
}

// FuzzCopy gives the reader any bytes in two parts: it takes the same rows as in one.
func FuzzCopy(f *testing.F) {
	f.Add("1\ta\\tb\n2\t\\N\n", 5)
	f.Add("x\t\\\n\n", 3)
	f.Fuzz(func(t *testing.T, text string, cut int) {
		text += "\n" // a line that does not end is not looked at as a whole
		read := func(parts ...string) string {
			m := testTypes(Types{})
			schema, _ := m.schema(copyTable())
			r, err := newRows(m, copyTable(), schema)
			if err != nil {
				t.Fatal(err)
			}
			rejects := ""
			w := &copyReader{rows: r, bytes: 1 << 30, reject: func(line []byte, _ *freshet.RejectError) error {
				rejects += string(line) + "\n"
				return nil
			}}
			for _, p := range parts {
				if _, err := w.Write([]byte(p)); err != nil {
					return "error"
				}
			}
			batch, _ := r.take()
			defer batch.Release()
			return batch.Column(0).String() + batch.Column(1).String() + rejects + string(w.part)
		}
		if cut < 0 || cut > len(text) {
			return
		}
		if got, want := read(text[:cut], text[cut:]), read(text); got != want {
			t.Fatalf("in two parts: got %s, want %s", got, want)
		}
	})
}
