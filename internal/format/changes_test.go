package format_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/format"
)

// payload is a record of the text; "-" stands for no key, or no value.
func payload(key, value string) freshet.Payload {
	var p freshet.Payload
	if key != "-" {
		p.Key = []byte(key)
	}
	if value != "-" {
		p.Value = []byte(value)
	}
	return p
}

// changesOf decodes the payloads, with the columns inferred from them, and tells each row in a line: its kind, and its
// columns as text, ~ for what was not sent. A reject is a line with its code.
func changesOf(t *testing.T, f freshet.Format, schema *arrow.Schema, payloads ...freshet.Payload) (lines []string) {
	t.Helper()
	var err error
	if schema == nil {
		if schema, err = f.Infer(payloads, nil); err != nil {
			t.Fatal(err)
		}
	}
	d, err := f.NewDecoder(schema)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Release()
	for _, p := range payloads {
		rows, err := d.Append(p)
		var reject *freshet.RejectError
		switch {
		case errors.As(err, &reject):
			lines = append(lines, string(reject.Code)+" "+reject.Path)
		case err != nil:
			t.Fatal(err)
		default:
			decoded := d.Flush()
			lines = append(lines, rowsOf(decoded)...)
			if n := int(decoded.Rows.NumRows()); n != rows || n != len(decoded.Kinds) {
				t.Fatalf("rows: Append said %d, got %d with %d kinds", rows, n, len(decoded.Kinds))
			}
			decoded.Rows.Release()
		}
	}
	return lines
}

func rowsOf(d freshet.Decoded) (lines []string) {
	for row := range int(d.Rows.NumRows()) {
		var b strings.Builder
		fmt.Fprintf(&b, "%s", d.Kinds[row])
		for c, f := range d.Rows.Schema().Fields() {
			v := d.Rows.Column(c).ValueStr(row)
			if d.Unsent.Has(row, c) {
				v = "~"
			}
			fmt.Fprintf(&b, " %s=%s", f.Name, v)
		}
		lines = append(lines, b.String())
	}
	return lines
}

func TestChanges_Records_AreTheRightChanges(t *testing.T) {
	object := payload
	cases := []struct {
		name    string
		options format.ChangeOptions
		in      []freshet.Payload
		want    []string
	}{
		{"compacted topic", format.ChangeOptions{},
			[]freshet.Payload{object(`{"id":1}`, `{"a":"x"}`), object(`{"id":2}`, "-"), object(`{"id":1}`, `{"id":9,"a":null}`)},
			[]string{"update_postimage id=1 a=x", "delete id=2 a=~", "update_postimage id=1 a=(null)"}},
		{"no key", format.ChangeOptions{},
			[]freshet.Payload{object("-", `{"a":1}`), object(`{"id":null}`, `{"a":1}`), object(`{"id":5}`, `{"a":1}`),
				object("7", `{"a":1}`), object("-", "-")},
			[]string{"FRE-3015 ", "FRE-3015 id", "update_postimage a=1 id=5", "FRE-3015 ", "FRE-3015 "}},
		{"bare keys", format.ChangeOptions{Key: []string{"id"}},
			[]freshet.Payload{object("abc", `{"a":1}`), object(`"q"`, "-"), object("x y", `{"id":"own","a":2}`),
				object("-", `{"id":null,"a":1}`)},
			[]string{"update_postimage id=abc a=1", "delete id=q a=~", "update_postimage id=own a=2", "FRE-3015 id"}},
		{"bare numbers and text", format.ChangeOptions{Key: []string{"id"}},
			[]freshet.Payload{object("42", `{"a":1}`), object("no", "-")},
			[]string{"update_postimage id=42 a=1", "delete id=no a=~"}},
		{"operations", format.ChangeOptions{Op: "op", Key: []string{"id"}},
			[]freshet.Payload{object("-", `{"op":"c","id":1,"a":1}`), object("-", `{"id":1,"a":2,"op":"UPDATE"}`),
				object("-", `{"id":1,"op":"D"}`), object("-", `{"id":1,"op":"?"}`), object("-", `{"id":1}`),
				object("-", `{"op":"D","a":1}`)},
			[]string{"insert id=1 a=1", "update_postimage id=1 a=2", "delete id=1 a=~", "FRE-3015 ", "FRE-3015 ",
				"FRE-3015 id"}},
		{"operation within", format.ChangeOptions{Op: "m.op", Key: []string{"id"}, Insert: []string{"1"}, Delete: []string{"2"}},
			[]freshet.Payload{object("-", `{"id":1,"m":{"op":1,"by":"me"}}`), object("-", `{"m":{"op":2},"id":1}`)},
			[]string{`insert id=1 m={"by":"me"}`, `delete id=1 m={"by":null}`}},
		{"patches", format.ChangeOptions{Op: "op", KeepAbsent: true},
			[]freshet.Payload{object(`{"id":1}`, `{"op":"u","a":1}`), object(`{"id":1}`, `{"op":"u","b":null}`),
				object(`{"id":2}`, `{"op":"c","b":"x"}`)},
			[]string{"update_postimage id=1 a=1 b=~", "update_postimage id=1 a=~ b=(null)", "insert id=2 a=(null) b=x"}},
		{"tombstones skipped", format.ChangeOptions{SkipTombstones: true},
			[]freshet.Payload{object(`{"id":1}`, `{"a":1}`), object(`{"id":1}`, "-")},
			[]string{"update_postimage id=1 a=1"}},
		{"key of two columns", format.ChangeOptions{},
			[]freshet.Payload{object(`{"x":1,"y":"b"}`, `{"a":1}`), object(`{"x":1,"x":2}`, "-"), object(`{"x":1,"y":"b"} `, "-")},
			[]string{"update_postimage x=1 y=b a=1", "FRE-3007 x", "delete x=1 y=b a=~"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f, err := format.NewChanges(nil, &c.options)
			if err != nil {
				t.Fatal(err)
			}
			got := changesOf(t, f, nil, c.in...)
			sortColumns(got)
			sortColumns(c.want)
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// sortColumns puts the columns of lines into one order, which Infer is free in.
func sortColumns(lines []string) {
	for i, l := range lines {
		if !strings.HasPrefix(l, "FRE") {
			words := strings.Split(l, " ")
			slices.Sort(words[1:])
			lines[i] = strings.Join(words, " ")
		}
	}
}

func TestChanges_FaultInTheKey_NamesTheKey(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "a", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
	f, err := format.NewChanges(nil, &format.ChangeOptions{Key: []string{"id"}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.NewDecoder(schema)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		in   freshet.Payload
		want string
	}{
		{payload(`{bad`, `{"a":1}`), `at byte 1 of the record's key: found 'b'`},
		{payload(`{"id":"x"}`, `{"a":1}`), `id at byte 6 of the record's key: found the text "x"`},
		{payload(`{"id":1}`, `{"a":"x"}`), `a at byte 5: found the text "x"`},
		{payload("\xff", `{"a":1}`), `id in the record's key: found a key that is no UTF-8`},
	} {
		_, err := d.Append(c.in)
		var why *freshet.RejectError
		if !errors.As(err, &why) || !strings.HasPrefix(why.Error(), c.want) {
			t.Errorf("key %s, value %s: got error %v, want %s…", c.in.Key, c.in.Value, err, c.want)
		}
	}
}
