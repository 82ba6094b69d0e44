package delta_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/delta"
)

const everyType = `{"type":"struct","fields":[` +
	`{"name":"b","type":"byte","nullable":true,"metadata":{}},` +
	`{"name":"s","type":"short","nullable":false,"metadata":{"comment":"a \"b\"","x":{"n":1.50}}},` +
	`{"name":"i","type":"integer","nullable":true,"metadata":{}},` +
	`{"name":"l","type":"long","nullable":true,"metadata":{}},` +
	`{"name":"f","type":"float","nullable":true,"metadata":{}},` +
	`{"name":"d","type":"double","nullable":true,"metadata":{}},` +
	`{"name":"dec","type":"decimal(38,10)","nullable":true,"metadata":{}},` +
	`{"name":"bool","type":"boolean","nullable":true,"metadata":{}},` +
	`{"name":"str","type":"string","nullable":true,"metadata":{"__CHAR_VARCHAR_TYPE_STRING":"varchar(3)"}},` +
	`{"name":"bin","type":"binary","nullable":true,"metadata":{}},` +
	`{"name":"date","type":"date","nullable":true,"metadata":{}},` +
	`{"name":"ts","type":"timestamp","nullable":true,"metadata":{}},` +
	`{"name":"ntz","type":"timestamp_ntz","nullable":true,"metadata":{}},` +
	`{"name":"void","type":"void","nullable":true,"metadata":{}},` +
	`{"name":"var","type":"variant","nullable":true,"metadata":{}},` +
	`{"name":"é \n","type":{"type":"struct","fields":[{"name":"x","type":"long","nullable":true,"metadata":{}}]},` +
	`"nullable":true,"metadata":{}},` +
	`{"name":"arr","type":{"type":"array","elementType":"integer","containsNull":false},"nullable":true,"metadata":{}},` +
	`{"name":"map","type":{"type":"map","keyType":"string","valueType":{"type":"array","elementType":"date",` +
	`"containsNull":true},"valueContainsNull":true},"nullable":true,"metadata":{}}]}`

func TestParseSchema_EveryType_PrintsTheSameText(t *testing.T) {
	s, err := delta.ParseSchema(everyType)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.String(); got != everyType {
		t.Errorf("got  %s\nwant %s", got, everyType)
	}
	if f, i := s.Lookup("BOOL"); i != 7 || f.Name != "bool" {
		t.Errorf("Lookup finds %d", i)
	}
}

func TestParseSchema_Arrow_GoesBackToTheSameTypes(t *testing.T) {
	s, err := delta.ParseSchema(everyType)
	if err != nil {
		t.Fatal(err)
	}
	s.Fields = append(s.Fields[:13:13], s.Fields[16:]...) // what is not written, and a name that is refused
	back, err := delta.SchemaFromArrow(s.Arrow())
	if err != nil {
		t.Fatal(err)
	}
	if !delta.Equal(&delta.Struct{Fields: s.Fields}, &delta.Struct{Fields: back.Fields}) {
		t.Errorf("got %s\nwant %s", back, s)
	}
}

func TestParseSchema_Broken_IsRefused(t *testing.T) {
	deep := strings.Repeat(`{"type":"array","elementType":`, 200) + `"long"` + strings.Repeat(`}`, 200)
	for _, text := range []string{
		``, `null`, `[]`, `"long"`, `{"type":"struct","fields":[{"type":"long"}]}`,
		`{"type":"struct","fields":[{"name":"a"}]}`,
		`{"type":"struct","fields":[{"name":"a","type":"decimal(39,1)"}]}`,
		`{"type":"struct","fields":[{"name":"a","type":"decimal(3,4)"}]}`,
		`{"type":"struct","fields":[{"name":"a","type":"geometry(OGC:CRS84)"}]}`,
		`{"type":"struct","fields":[{"name":"a","type":{"type":"udt"}}]}`,
		`{"type":"struct","fields":[{"name":"a","type":` + deep + `}]}`,
	} {
		if s, err := delta.ParseSchema(text); err == nil {
			t.Errorf("%.80s was taken as %.80s", text, s)
		}
	}
}

func TestParseSchema_TypeThatWeDoNotKnow_IsUnsupported(t *testing.T) {
	for _, name := range []string{`"geometry(OGC:CRS84)"`, `{"type":"udt"}`} {
		_, err := delta.ParseSchema(`{"type":"struct","fields":[{"name":"a","type":` + name + `}]}`)
		if !errors.Is(err, delta.ErrUnsupportedFeature) || !strings.Contains(err.Error(), `column "a"`) {
			t.Errorf("%s: got %v, want ErrUnsupportedFeature that names the column", name, err)
		}
	}
}

func TestSchemaFromArrow_TypesWithoutCounterpart_NamedInOneError(t *testing.T) {
	_, err := delta.SchemaFromArrow(arrow.NewSchema([]arrow.Field{
		{Name: "u", Type: arrow.FixedWidthTypes.Time32s},
		{Name: "n", Type: arrow.StructOf(arrow.Field{Name: "ns", Type: arrow.FixedWidthTypes.Duration_ns})},
		{Name: "ok", Type: arrow.PrimitiveTypes.Int8},
	}, nil))
	if err == nil || !strings.Contains(err.Error(), `"u"`) || !strings.Contains(err.Error(), `"n.ns"`) {
		t.Errorf("got %v, want an error that names u and n.ns", err)
	}
}

func TestValidate_NamesThatFilesCannotHave_AreRefused(t *testing.T) {
	nested := &delta.Struct{Fields: []delta.Field{{Name: "in ner", Type: delta.Long}}}
	for _, s := range []*delta.Schema{
		fields("a b", delta.Long), fields("a,b", delta.Long), fields("a=b", delta.Long), fields("a\tb", delta.Long),
		fields("", delta.Long), fields("a", delta.Long, "A", delta.Long), fields("n", nested),
		fields("n", &delta.Array{Element: nested}), fields("d", delta.Decimal{Precision: 0, Scale: 0}),
	} {
		if err := s.Validate(); err == nil {
			t.Errorf("%s was taken", s)
		}
	}
	if err := fields("a.b", delta.Long, "é", delta.Long, "`", delta.Long).Validate(); err != nil {
		t.Error(err)
	}
}

func TestMerge_NewColumnsAndFields_AppendedNullable(t *testing.T) {
	table := fields("id", delta.Long, "s", &delta.Struct{Fields: []delta.Field{{Name: "x", Type: delta.Long}}},
		"v", delta.Void)
	table.Fields[0].Nullable = false
	table.Fields[0].Metadata = []byte(`{"comment":"key"}`)
	newer := fields("ID", delta.Long, "new", delta.String, "v", delta.Date,
		"S", &delta.Struct{Fields: []delta.Field{{Name: "y", Type: delta.Date}, {Name: "X", Type: delta.Long, Nullable: true}}})
	newer.Fields[1].Nullable = false
	merged, changed, err := table.Merge(newer)
	if err != nil || !changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
	want := fields("id", delta.Long, "s", &delta.Struct{Fields: []delta.Field{{Name: "x", Type: delta.Long},
		{Name: "y", Type: delta.Date, Nullable: true}}}, "v", delta.Date, "new", delta.String)
	want.Fields[0].Nullable, want.Fields[0].Metadata = false, table.Fields[0].Metadata
	if merged.String() != want.String() {
		t.Errorf("got  %s\nwant %s", merged, want)
	}
	if again, changed, err := merged.Merge(newer); err != nil || changed || again.String() != want.String() {
		t.Errorf("merging again: changed %v, %v", changed, err)
	}
	relaxed, _, err := table.Relax(newer)
	if err != nil || !relaxed.Fields[0].Nullable || !relaxed.Fields[1].Type.(*delta.Struct).Fields[0].Nullable {
		t.Errorf("Relax keeps NOT NULL: %s, %v", relaxed, err)
	}
}

func TestMerge_OtherType_NamesColumnFoundAndWanted(t *testing.T) {
	table := fields("m", &delta.Map{Key: delta.String, Value: &delta.Array{Element: delta.Long}})
	newer := fields("m", &delta.Map{Key: delta.String, Value: &delta.Array{Element: delta.String}})
	_, _, err := table.Merge(newer)
	var mismatch *delta.SchemaMismatchError
	if !errors.As(err, &mismatch) || *mismatch != (delta.SchemaMismatchError{Column: "m.value.element", Found: "string", Wanted: "long"}) {
		t.Errorf("got %v", err)
	}
}

func FuzzParseSchema(f *testing.F) {
	f.Add(everyType)
	f.Add(`{"type":"struct","fields":[{"name":"a","type":"decimal( 3 , 1 )","metadata":null}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := delta.ParseSchema(text)
		if err != nil {
			return
		}
		printed := s.String()
		again, err := delta.ParseSchema(printed)
		if err != nil {
			t.Fatalf("%s does not parse: %v", printed, err)
		}
		if again.String() != printed {
			t.Errorf("got  %s\nwant %s", again, printed)
		}
	})
}
