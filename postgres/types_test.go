package postgres

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// The OIDs that tests give to types which have other ones in each database.
const (
	oidMood uint32 = 20_000 + iota
	oidMoodArray
	oidPosint
	oidPosintArray
	oidMoney2
	oidAddr
	oidAddrArray
	oidHstore
	oidGeometry
	oidVector
	oidPerson
	oidNumericsDomain
)

// testTypes are the types of the database of testdata, and some more.
func testTypes(choices Types) *typeMap {
	t := newTypeMap(choices)
	attribute := func(name string, oid uint32) Column { return Column{Name: name, Type: oid, Modifier: -1} }
	for oid, p := range map[uint32]pgType{
		oidMood:           {name: "tb.mood", kind: kindText, delimiter: ','},
		oidMoodArray:      {name: "tb.mood[]", kind: kindArray, of: oidMood},
		oidPosint:         {name: "tb.posint", kind: kindDomain, of: 23, modifier: -1},
		oidPosintArray:    {name: "tb.posint[]", kind: kindArray, of: oidPosint},
		oidMoney2:         {name: "tb.money2", kind: kindDomain, of: 1700, modifier: 12<<16 + 2 + 4},
		oidAddr:           {name: "tb.addr", kind: kindStruct, fields: []Column{attribute("street", 25), attribute("zip", 23)}},
		oidAddrArray:      {name: "tb.addr[]", kind: kindArray, of: oidAddr},
		oidHstore:         {name: "hstore", kind: kindMap},
		oidGeometry:       {name: "geometry", kind: kindHex},
		oidVector:         {name: "vector", kind: kindVector},
		oidNumericsDomain: {name: "tb.numerics", kind: kindDomain, of: 1231, modifier: 5<<16 + 1 + 4},
		oidPerson: {name: "tb.person", kind: kindStruct, fields: []Column{attribute("name", 25), attribute("home", oidAddr),
			attribute("tags", 1009)}},
	} {
		t.add(oid, p)
	}
	return t
}

// one decodes one value of a column of one type, and returns the type of its column in Delta and the value as Arrow
// prints it.
func one(m *typeMap, c Column, value string) (dt arrow.DataType, shown string, err error) {
	c.Name = "v"
	table := &Table{Schema: "public", Name: "t", Columns: []Column{c}}
	schema, err := m.fit(table, nil)
	if err != nil {
		return nil, "", err
	}
	r, err := newRows(m, table, schema)
	if err != nil {
		return nil, "", err
	}
	r.null(0)
	r.end()
	if err := r.text(0, []byte(value)); err != nil {
		r.undo()
		if r.cells[0].store.Rows() != 1 {
			return nil, "", fmt.Errorf("undo left %d rows: %w", r.cells[0].store.Rows(), err)
		}
		return schema.Field(0).Type, "", err
	}
	r.end()
	batch, _ := r.take()
	defer batch.Release()
	return schema.Field(0).Type, batch.Column(0).ValueStr(1), validate(batch)
}

// validate checks that each row reads back.
func validate(batch arrow.RecordBatch) error {
	for _, c := range batch.Columns() {
		if int64(c.Len()) != batch.NumRows() {
			return fmt.Errorf("got a column of %d rows, want %d", c.Len(), batch.NumRows())
		}
		_ = c.String()
	}
	return nil
}

func numeric(p, s int) int32 { return int32(p<<16 | s&0x7ff + 4) }

func TestTypes_ValuesOfEachType_ArriveAsColumns(t *testing.T) {
	none := int32(-1)
	for _, c := range []struct {
		oid      uint32
		modifier int32
		value    string
		dt       string
		want     string
	}{
		{16, none, "t", "bool", "true"},
		{21, none, "-32768", "int16", "-32768"},
		{23, none, "2147483647", "int32", "2147483647"},
		{20, none, "-9223372036854775808", "int64", "-9223372036854775808"},
		{26, none, "4294967295", "int64", "4294967295"},
		{5069, none, "18446744073709551615", "decimal(20, 0)", "18446744073709551615"},
		{700, none, "1e-45", "float32", "1e-45"},
		{701, none, "-Infinity", "float64", "-Inf"},
		{701, none, "-0", "float64", "-0"},
		{1700, none, "1.50", "utf8", "1.50"},
		{1700, none, "NaN", "utf8", "NaN"},
		{1700, numeric(10, 2), "-99999999.99", "decimal(10, 2)", "-99999999.99"},
		{1700, numeric(10, 2), "0.00", "decimal(10, 2)", "0"},
		{1700, numeric(10, 2), "NaN", "decimal(10, 2)", "(null)"},
		{1700, numeric(38, 10), "1234567890123456789012345678.0123456789", "decimal(38, 10)",
			"1234567890123456789012345678.0123456789"},
		{1700, numeric(38, 0), "-99999999999999999999999999999999999999", "decimal(38, 0)",
			"-99999999999999999999999999999999999999"},
		{1700, numeric(38, 37), "-0.0000000000000000000000000000000000001", "decimal(38, 37)", "-1e-37"},
		{1700, numeric(39, 2), "1.00", "utf8", "1.00"},
		{1700, numeric(5, -2), "1234500", "decimal(7, 0)", "1234500"},
		{1700, numeric(2, 5), "0.00012", "decimal(5, 5)", "0.00012"},
		{790, none, "-$1,234,567.05", "decimal(19, 2)", "-1234567.05"},
		{25, none, "a\tb\n🎉", "utf8", "a\tb\n🎉"},
		{25, none, "bad \xff\xc3 end", "utf8", "bad \uFFFD\uFFFD end"},
		{1042, 9, "ab   ", "utf8", "ab"},
		{17, none, `\x00ff10`, "binary", "AP8Q"},
		{1082, none, "2024-02-29", "date32", "2024-02-29"},
		{1082, none, "0001-01-01", "date32", "0001-01-01"},
		{1082, none, "9999-12-31", "date32", "9999-12-31"},
		{1082, none, "0044-03-15 BC", "date32", "(null)"},
		{1082, none, "10000-01-01", "date32", "(null)"},
		{1082, none, "5874897-12-31", "date32", "(null)"},
		{1082, none, "-infinity", "date32", "(null)"},
		{1114, none, "2024-02-29 23:59:59.999999", "timestamp[us]", "2024-02-29T23:59:59.999999"},
		{1114, none, "0001-01-01 00:00:00", "timestamp[us]", "0001-01-01T00:00:00"},
		{1114, none, "294276-12-31 23:59:59", "timestamp[us]", "(null)"},
		{1114, none, "9999999-12-31 23:59:59", "timestamp[us]", "(null)"},
		{1114, none, "4713-01-01 00:00:00 BC", "timestamp[us]", "(null)"},
		{1184, none, "1883-11-18 12:03:58.5-04:56:02", "timestamp[us, tz=UTC]", "1883-11-18T17:00:00.5Z"},
		{1184, none, "2024-01-01 00:00:00+05:30", "timestamp[us, tz=UTC]", "2023-12-31T18:30:00Z"},
		{1184, none, "infinity", "timestamp[us, tz=UTC]", "(null)"},
		{1083, none, "24:00:00", "utf8", "24:00:00"},
		{1186, none, "P1Y2M3DT4H5M6.789S", "utf8", "P1Y2M3DT4H5M6.789S"},
		{114, none, ` {"a" : 1.0} `, "utf8", ` {"a" : 1.0} `},
		{3908, none, `["2024-01-01 00:00:00",)`, "utf8", `["2024-01-01 00:00:00",)`},
		{oidMood, none, "happy", "utf8", "happy"},
		{oidPosint, none, "5", "int32", "5"},
		{oidMoney2, none, "9999999999.99", "decimal(12, 2)", "9999999999.99"},
		{99_999, none, "whatever", "utf8", "whatever"},
		{oidGeometry, none, "0101000020E6100000000000000000F03F0000000000000040", "binary", "AQEAACDmEAAAAAAAAAAA8D8AAAAAAAAAQA=="},
	} {
		dt, got, err := one(testTypes(Types{}), Column{Type: c.oid, Modifier: c.modifier}, c.value)
		if err != nil {
			t.Errorf("%d %s: %v", c.oid, c.value, err)
			continue
		}
		if dt.String() != c.dt || got != c.want {
			t.Errorf("%d(%d) %s: got %s %s, want %s %s", c.oid, c.modifier, c.value, dt, got, c.dt, c.want)
		}
	}
}

func TestTypes_NestedValues_ArriveAsListsStructsAndMaps(t *testing.T) {
	for _, c := range []struct {
		oid   uint32
		value string
		want  string
	}{
		{1007, "{}", "[]"},
		{1007, "{1,NULL,-3}", "[1,null,-3]"},
		{1009, `{NULL,"NULL","","\"q\"","back\\slash",plain}`, `[null,"NULL","","\"q\"","back\\slash","plain"]`},
		{1000, "{t,f}", "[true,false]"},
		{1020, "{(3,4),(1,2);(0,0),(0,0)}", `["(3,4),(1,2)","(0,0),(0,0)"]`},
		{1007, "{{1,2},{3,4}}", "(null)"},
		{1007, "[2:3]={1,2}", "(null)"},
		{1185, `{"2024-01-01 00:00:00+00",infinity}`, `["2024-01-01T00:00:00Z",null]`},
		{oidMoodArray, "{sad,happy}", `["sad","happy"]`},
		{oidPosintArray, "{1}", "[1]"},
		{oidNumericsDomain, "{1.5,NaN}", `["1.5",null]`},
		{oidAddr, `("Main St",12345)`, `{"street":"Main St","zip":12345}`},
		{oidAddr, "(,)", `{"street":null,"zip":null}`},
		{oidAddr, `("a ""b"" \\",7)`, `{"street":"a \"b\" \\","zip":7}`},
		{oidAddrArray, `{"(\"Main St\",12345)",NULL}`, `[{"street":"Main St","zip":12345},null]`},
		{oidPerson, `(Ann,"(""x, y"",1)","{a,""b c""}")`,
			`{"home":{"street":"x, y","zip":1},"name":"Ann","tags":["a","b c"]}`},
		{oidHstore, "", "[]"},
		{oidHstore, `"k"=>"v", "n"=>NULL, "q\"\\"=>"a b"`,
			`[{"key":"k","value":"v"},{"key":"n","value":null},{"key":"q\"\\","value":"a b"}]`},
		{oidVector, "[1,2.5,-3]", "[1,2.5,-3]"},
	} {
		_, got, err := one(testTypes(Types{}), Column{Type: c.oid, Modifier: -1}, c.value)
		if err != nil {
			t.Errorf("%d %s: %v", c.oid, c.value, err)
			continue
		}
		if got != c.want {
			t.Errorf("%d %s: got %s, want %s", c.oid, c.value, got, c.want)
		}
	}
}

func TestTypes_TextThatIsNoValue_RejectsTheRow(t *testing.T) {
	for oid, values := range map[uint32][]string{
		16:        {"", "true", "x"},
		23:        {"", "-", "1a", "99999999999999999999"},
		701:       {"", "1.2.3"},
		17:        {"", `\x0`, `\xzz`, "00"},
		1082:      {"", "2024-13-01", "2023-02-29", "2024-01-32", "2024-1-1", "2024-01-01 AD", "2024/01/01"},
		1114:      {"2024-01-01", "2024-01-01 24:00:00", "2024-01-01 00:00:00.", "2024-01-01 00:00:00+00"},
		1184:      {"2024-01-01 00:00:00", "2024-01-01 00:00:00+0", "2024-01-01 00:00:00+00:"},
		1007:      {"", "{", "}", "{1", "{1,}", "{,1}", "{1 2}", `{"1"2}`, `{1}x`, "{1}}"},
		1009:      {`{"a}`, `{"a\}`, `{a"b}`},
		oidAddr:   {"", "(", "(a)", "(a,1,2)", `("a,1)`, "(a,x)"},
		oidHstore: {"k", `"k"`, `"k"=>`, `"k"=>v`, `"k"=>"v",`, `"k"=>"v" "l"=>"w"`},
		oidVector: {"", "1,2", "[1,]", "[1"},
		790:       {"", "$", "$1.234"},
	} {
		for _, value := range values {
			if _, got, err := one(testTypes(Types{}), Column{Type: oid, Modifier: -1}, value); err == nil &&
				got != "(null)" {
				t.Errorf("%d %q: got %s, want an error", oid, value, got)
			}
		}
	}
	for _, value := range []string{"", "-", ".", "1.", ".5", "1e5", "1.2.3", "--1", "1234567890123456789.1.2", "1 "} {
		if _, got, err := one(testTypes(Types{}), Column{Type: 1700, Modifier: numeric(38, 4)}, value); err == nil {
			t.Errorf("numeric %q: got %s, want an error", value, got)
		}
	}
}

func TestTypes_Choices_SayWhatBecomesOfValues(t *testing.T) {
	numbers := Column{Type: 1700, Modifier: -1}
	dates := Column{Type: 1082, Modifier: -1}
	for _, c := range []struct {
		choices Types
		column  Column
		value   string
		dt      string
		want    string // "": it is rejected
	}{
		{Types{Numeric: "decimal(38,18)"}, numbers, "1.5", "decimal(38, 18)", "1.5"},
		{Types{Numeric: "decimal(38,18)"}, numbers, "1.1234567890123456789", "decimal(38, 18)", "(null)"},
		{Types{Numeric: "decimal(38,18)", Beyond: BeyondReject}, numbers, "1e", "decimal(38, 18)", ""},
		{Types{Numeric: NumericDouble}, numbers, "0.1", "float64", "0.1"},
		{Types{Beyond: BeyondReject}, dates, "infinity", "date32", ""},
		{Types{}, Column{Type: 1082, Modifier: -1, Key: true}, "infinity", "date32", ""},
		{Types{Columns: map[string]string{"public.t.v": AsText}}, dates, "infinity", "utf8", "infinity"},
		{Types{}, Column{Type: 1007, Modifier: -1, Dimensions: 2}, "{{1},{2}}", "utf8", "{{1},{2}}"},
	} {
		if err := c.choices.Validate(); err != nil {
			t.Errorf("%+v: %v", c.choices, err)
		}
		dt, got, err := one(testTypes(c.choices), c.column, c.value)
		if (err != nil) != (c.want == "") || dt.String() != c.dt || err == nil && got != c.want {
			t.Errorf("%+v %s: got %s %s %v, want %s %s", c.choices, c.value, dt, got, err, c.dt, c.want)
		}
	}
}

func TestTypes_WrongChoices_AreAllNamed(t *testing.T) {
	err := (&Types{Numeric: "decimal(39,2)", Beyond: "zero", Columns: map[string]string{"v": "int"}}).Validate()
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("got %v, want three faults", err)
	}
}

func TestRows_UnsentUndoneAndNulled_AreKnown(t *testing.T) {
	table := &Table{Schema: "public", Name: "t", Columns: []Column{{Name: "id", Type: 23, Modifier: -1, Key: true},
		{Name: "Big doc", Type: 25, Modifier: -1}, {Name: "d", Type: 1082, Modifier: -1}}}
	m := testTypes(Types{})
	schema, err := m.schema(table)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRows(m, table, schema)
	if err != nil {
		t.Fatal(err)
	}
	give := func(id string) error {
		if err := r.text(0, []byte(id)); err != nil {
			return err
		}
		r.unsent(1)
		return r.text(2, []byte("infinity"))
	}
	if err := give("1"); err != nil {
		t.Fatal(err)
	}
	r.end()
	r.unsent(1)
	if err := give("x"); err == nil || !strings.Contains(err.Error(), `id: found "x", wanted int32`) {
		t.Errorf("got %v, want a reject that names the column", err)
	}
	r.undo()
	counts := map[string]int64{}
	r.nulled(counts)
	if counts["d"] != 1 || len(counts) != 1 {
		t.Errorf("got %v, want one value of d nulled", counts)
	}
	batch, mask := r.take()
	defer batch.Release()
	if batch.NumRows() != 1 || !mask.Has(0, 1) || mask.Any(1) || schema.Field(1).Name != "Big_doc" {
		t.Errorf("got %v of %s, want one row whose second cell was not sent", batch, schema)
	}
	if batch.Column(0).(*array.Int32).Value(0) != 1 || r.len() != 0 || r.bytes() != 0 {
		t.Errorf("got %v, want the row 1, and nothing left", batch)
	}
}

func TestRows_ColumnOfAnotherType_TakesWhatReadsAsOne(t *testing.T) {
	table := &Table{Schema: "public", Name: "t", Columns: []Column{{Name: "a", Type: 25, Modifier: -1}}}
	m := testTypes(Types{})
	known := arrow.NewSchema([]arrow.Field{{Name: "A", Type: arrow.PrimitiveTypes.Int32, Nullable: true}}, nil)
	schema, err := m.fit(table, known)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRows(m, table, schema)
	if err != nil {
		t.Fatal(err)
	}
	for text, takes := range map[string]bool{"7": true, "-7": true, "seven": false, "5000000000": false, "": false} {
		if err := r.text(0, []byte(text)); (err == nil) != takes {
			t.Errorf("%q: got %v, want it taken: %v", text, err, takes)
		}
		r.undo()
	}
}

func TestRows_ColumnOfSeveralValues_OfAnotherTypeIsAnError(t *testing.T) {
	table := &Table{Schema: "public", Name: "t", Columns: []Column{{Name: "a", Type: 25, Modifier: -1}}}
	known := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32), Nullable: true}}, nil)
	if _, err := newRows(testTypes(Types{}), table, known); err == nil || !strings.Contains(err.Error(), "column a") {
		t.Errorf("got %v, want an error that names the column", err)
	}
}

// There may be many tables of which no row comes for long: none of them keeps room for as many as came last.
func TestRows_Taken_RoomOnlyOnceARowComes(t *testing.T) {
	m := testTypes(Types{})
	schema, err := m.schema(copyTable())
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRows(m, copyTable(), schema)
	if err != nil {
		t.Fatal(err)
	}
	const n = 1000
	for range n {
		r.begin()
		if err := r.text(0, []byte("1")); err != nil {
			t.Fatal(err)
		}
		if err := r.text(1, []byte("a text")); err != nil {
			t.Fatal(err)
		}
		r.end()
	}
	batch, _ := r.take()
	batch.Release()
	if room := cap(r.texts[1].Data); room > 0 {
		t.Errorf("got room for %d bytes after the rows were taken, want none", room)
	}
	r.begin()
	if room, want := cap(r.texts[1].Data), n*len("a text"); room < want {
		t.Errorf("got room for %d bytes once a row comes, want %d", room, want)
	}
}
