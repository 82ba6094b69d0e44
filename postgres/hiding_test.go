package postgres

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/veil"
)

var hidingKey = veil.New("a secret of a test")

// hides masks email and pin, and leaves note out.
func hides(_, column string) Hiding {
	switch column {
	case "email", "pin":
		return Hiding{Key: hidingKey}
	case "note":
		return Hiding{LeftOut: true}
	}
	return Hiding{}
}

func hidingTable() *Table {
	return &Table{Schema: "public", Name: "people", Identity: IdentityKey, Columns: []Column{{Name: "id", Type: 23, Modifier: -1, Key: true, Unique: true},
		{Name: "note", Type: 25, Modifier: -1}, {Name: "email", Type: 25, Modifier: -1}, {Name: "pin", Type: 1042, Modifier: 12}}}
}

func hidingRows(t *testing.T) (*typeMap, *rows) {
	t.Helper()
	m, table := testTypes(Types{Hidden: hides}), hidingTable()
	schema, err := m.fit(table, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(schema.Fields()); got != 3 || !arrow.TypeEqual(schema.Field(2).Type, arrow.BinaryTypes.String) {
		t.Fatalf("got the columns %v, want id, email and pin", schema)
	}
	r, err := newRows(m, table, schema)
	if err != nil {
		t.Fatal(err)
	}
	return m, r
}

func TestHiding_Values_AreHashesOrNotThere(t *testing.T) {
	_, r := hidingRows(t)
	for _, row := range [][]string{{"1", "secret", "ann@x", "12  "}, {"2", "", "é", ""}} {
		for i, v := range row {
			if err := r.text(i, []byte(v)); err != nil {
				t.Fatal(err)
			}
		}
		r.end()
	}
	for i := range 4 {
		r.null(i)
	}
	r.end()
	batch, _ := r.take()
	defer batch.Release()
	email, pin := batch.Column(1).(*array.String), batch.Column(2).(*array.String)
	if email.Value(0) != hidingKey.Hash("ann@x") || email.Value(1) != hidingKey.Hash("é") || pin.Value(0) != hidingKey.Hash("12") ||
		!email.IsNull(2) || !pin.IsNull(2) {
		t.Errorf("got %v and %v, want hashes of the values, and null for null", email, pin)
	}
}

// What quarantine is told of a row makes the same row again.
func TestHiding_WhatQuarantineIsTold_MakesTheSameRow(t *testing.T) {
	m, r := hidingRows(t)
	told := map[string]any{}
	for i, v := range []string{"7", "secret", "ann@x", "12 "} {
		if what, ok := r.told(i, []byte(v)); ok {
			told[r.table.Columns[i].Name] = what
		}
	}
	text, err := json.Marshal(told)
	if err != nil {
		t.Fatal(err)
	}
	if s := string(text); strings.Contains(s, "secret") || strings.Contains(s, "ann") || strings.Contains(s, "12 ") {
		t.Fatalf("got %s, want no value of hidden columns", s)
	}
	original := &Original{of: &Originals{types: m}, table: &catalogTable{Table: *r.table}, schema: r.schema}
	for _, in := range []string{string(text), `{"id":"7","note":"secret","email":"ann@x","pin":"12"}`} {
		out, err := original.Retake([][]byte{[]byte(in)})
		if err != nil || len(out.Of) != 1 {
			t.Fatalf("%s: got %+v, %v", in, out, err)
		}
		if got := out.Rows.Column(1).(*array.String).Value(0); got != hidingKey.Hash("ann@x") {
			t.Errorf("%s: got %s, want the hash", in, got)
		}
		out.Rows.Release()
	}
	for _, in := range []string{`{"id":"7","email":{"hash":"short"}}`, `{"id":"7","email":[1]}`, `{"id":{"hash":"` + hidingKey.Hash("7") + `"}}`} {
		if out, err := original.Retake([][]byte{[]byte(in)}); err != nil || out.Refused[0] == nil {
			t.Errorf("%s: got %+v, %v, want a refusal", in, out, err)
		}
	}
}

func TestHiding_ColumnOfTheKey_IsNotLeftOut(t *testing.T) {
	m := testTypes(Types{Hidden: func(_, column string) Hiding { return Hiding{LeftOut: column == "id"} }})
	if _, err := m.schema(hidingTable()); err == nil || !strings.Contains(err.Error(), "it may be masked") {
		t.Errorf("got %v, want an error", err)
	}
}

// A column that is left out does not count as a change of the table, whether it comes, goes, or was there before.
func TestHiding_LeftOutColumn_IsNoReshaping(t *testing.T) {
	m, now := testTypes(Types{Hidden: hides}), hidingTable()
	before := *now
	before.Columns = append([]Column{{Name: "id", Type: 23, Modifier: -1, Key: true, Unique: true}}, now.Columns[2:]...)
	wanted, err := m.schema(now)
	if err != nil {
		t.Fatal(err)
	}
	known := arrow.NewSchema(append(wanted.Fields(), arrow.Field{Name: "note", Type: arrow.BinaryTypes.String}), nil)
	all := DDL{Add: Fail, Drop: Fail, Rename: Fail}
	for name, was := range map[string]*Table{"it came": &before, "nothing was said": nil} {
		if got := all.reshapings(m.shown(now), m.shown(was), wanted, m.shownOf(now, known)); len(got) != 0 {
			t.Errorf("%s: got %+v, want nothing", name, got)
		}
	}
	if got := all.reshapings(m.shown(&before), m.shown(now), wanted, m.shownOf(now, known)); len(got) != 0 {
		t.Errorf("it went: got %+v, want nothing", got)
	}
}

func TestHiding_SpilledTransaction_IsEncrypted(t *testing.T) {
	c := &changes{}
	defer c.drop()
	for range 3 {
		if err := c.add([]byte("ann@example.org")); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.spill(t.TempDir(), true); err != nil {
		t.Fatal(err)
	}
	if err := c.add([]byte("ann@example.org")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r, err := c.ahead()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for {
			m, err := r.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if n++; err != nil || string(m) != "ann@example.org" {
				t.Fatalf("got %q, %v, want the message", m, err)
			}
		}
		if n != 4 {
			t.Errorf("got %d messages, want 4", n)
		}
	}
	file, err := io.ReadAll(io.NewSectionReader(c.file, 0, 1<<20))
	if err != nil || len(file) != 4*19 || bytes.Contains(file, []byte("ann")) {
		t.Errorf("got the file %q, %v, want nothing to be read in it", file, err)
	}
}

// The bounds of chunks are values of the key.
func TestHiding_BookmarkOfAMaskedKey_IsSealed(t *testing.T) {
	s := &Source{o: Options{Types: Types{Hidden: hides}}, keys: map[string][]string{"people": {"email"}, "others": {"id"}}}
	f := &feed{name: "people", of: [2]string{"public", "people"}}
	key := s.sealer(f)
	if key == nil || s.sealer(&feed{name: "others"}) != nil {
		t.Fatal("a masked key has no key to be sealed under, or another has one")
	}
	plain := []byte(`{"key":["email"],"upto":["ann@x"],"rows":7}`)
	m, err := s.parseMark(f, key.Seal(plain))
	if err != nil || m.Rows != 7 || m.Upto[0] != "ann@x" {
		t.Errorf("got %+v, %v", m, err)
	}
	if m, err := s.parseMark(f, plain); err != nil || m.Rows != 7 {
		t.Errorf("one from before: got %+v, %v", m, err)
	}
	var none *freshet.Error
	if _, err := s.parseMark(f, veil.New("another").Seal(plain)); !errors.Is(err, veil.ErrKey) || errors.As(err, &none) {
		t.Errorf("of another key: got %v", err)
	}
}
