package format_test

import (
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/format"
)

func debezium(t *testing.T, o *format.Options, z *format.DebeziumOptions) *format.Debezium {
	t.Helper()
	f, err := format.NewDebezium(o, z)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestDebezium_Events_AreTheRightChanges(t *testing.T) {
	const source = `"source":{"connector":"mysql","db":"inv","table":"t","gtid":"g:7","file":"bin.000042","pos":9,"row":1,"ts_us":5}`
	mongo := func(rest string) string { return `{` + rest + `,"source":{"connector":"mongodb","collection":"c"}}` }
	cases := []struct {
		name    string
		options format.DebeziumOptions
		in      []freshet.Payload
		want    []string
	}{
		{"rows before that are whole", format.DebeziumOptions{TrustBefore: true},
			[]freshet.Payload{payload("-", `{"before":{"id":1,"a":1},"after":{"id":1,"a":2},"op":"u"}`),
				payload("-", `{"before":{"id":1,"a":2},"after":null,"op":"d"}`)},
			[]string{"update_preimage id=1 a=1", "update_postimage id=1 a=2", "delete id=1 a=2"}},
		{"rows before that are made up", format.DebeziumOptions{},
			[]freshet.Payload{payload(`{"id":1}`, `{"before":{"id":1,"a":0},"after":{"id":1,"a":2},"op":"u"}`),
				payload(`{"id":1}`, `{"before":{"id":1,"a":0},"after":null,"op":"d"}`),
				payload("-", `{"before":{"id":1,"a":0},"after":null,"op":"d"}`),
				payload(`{"id":null}`, `{"before":{"id":1,"a":0},"after":null,"op":"d"}`)},
			[]string{"update_postimage id=1 a=2", "delete id=1 a=~", "FRE-3015 ", "FRE-3015 id"}},
		{"a key that is named", format.DebeziumOptions{Key: []string{"id"}},
			[]freshet.Payload{payload("-", `{"before":null,"after":{"a":2,"id":1},"op":"c"}`),
				payload("-", `{"before":{"id":1,"a":0},"after":null,"op":"d"}`),
				payload("7", `{"before":{"id":1,"a":0},"after":null,"op":"d"}`)},
			[]string{"insert a=2 id=1", "delete a=~ id=1", "delete a=~ id=7"}},
		{"keys with a schema, values without", format.DebeziumOptions{},
			[]freshet.Payload{payload(`{"schema":{"type":"struct","fields":[]},"payload":{"id":1}}`, `{"after":{"id":1},"op":"r"}`),
				payload(`{"schema":{"type":"struct","fields":[]},"payload":{"id":1}}`, `{"after":null,"op":"d"}`)},
			[]string{"insert id=1", "delete id=1"}},
		{"columns of the source", format.DebeziumOptions{Source: []string{"op", "table", "tx", "file_number", "pos", "row", "ts", "lsn"}},
			[]freshet.Payload{payload(`{"id":1}`, `{"after":{"id":1},`+source+`,"op":"c"}`), payload(`{"id":1}`, `{"after":null,`+source+`,"op":"d"}`)},
			[]string{"insert id=1 _op=c _table=t _tx=g:7 _file_number=42 _pos=9 _row=1 _ts=1970-01-01T00:00:00.000005Z _lsn=(null)",
				"delete id=1 _op=d _table=t _tx=g:7 _file_number=42 _pos=9 _row=1 _ts=1970-01-01T00:00:00.000005Z _lsn=(null)"}},
		{"SQL Server", format.DebeziumOptions{Source: []string{"commit_lsn", "change_lsn", "event_serial_no", "tx", "db"}},
			[]freshet.Payload{payload(`{"id":1}`, `{"before":{"id":1,"a":1},"after":{"id":1,"a":2},"source":{"version":"3.6.1.Final",
				"connector":"sqlserver","name":"s","ts_ms":1,"snapshot":"false","db":"shop","schema":"dbo","table":"t",
				"change_lsn":"00000027:00000758:0003","commit_lsn":"00000027:00000758:0005","event_serial_no":2},"op":"u"}`),
				payload(`{"id":1}`, `{"before":{"id":1,"a":2},"after":null,"source":{"connector":"sqlserver","db":"shop","schema":"dbo",
				"table":"t","change_lsn":"00000027:00000ac0:0002","commit_lsn":"00000027:00000ac0:0003","event_serial_no":1},"op":"d"}`),
				payload(`{"id":1}`, "-")},
			[]string{"update_postimage id=1 a=2 _commit_lsn=00000027:00000758:0005 _change_lsn=00000027:00000758:0003 " +
				"_event_serial_no=2 _tx=00000027:00000758:0005 _db=shop",
				"delete id=1 a=~ _commit_lsn=00000027:00000ac0:0003 _change_lsn=00000027:00000ac0:0002 _event_serial_no=1 " +
					"_tx=00000027:00000ac0:0003 _db=shop"}},
		{"Oracle", format.DebeziumOptions{Source: []string{"scn", "commit_scn", "tx", "schema"}},
			[]freshet.Payload{payload(`{"ID":1}`, `{"before":null,"after":{"ID":1,"A":"x"},"source":{"connector":"oracle","name":"s",
				"ts_ms":1,"snapshot":"false","db":"ORCL","schema":"SHOP","table":"T","txId":"02000a0037030000","scn":"2868546",
				"commit_scn":"2868547","lcr_position":null,"rs_id":"0x01.2","ssn":0,"redo_thread":1,"user_name":"SHOP"},"op":"c"}`),
				payload(`{"ID":1}`, `{"before":{"ID":1,"A":"x"},"after":null,"source":{"connector":"oracle","schema":"SHOP",
				"txId":"02000a0037030001","scn":"2868600","commit_scn":"2868601"},"op":"d"}`)},
			[]string{"insert ID=1 A=x _scn=2868546 _commit_scn=2868547 _tx=02000a0037030000 _schema=SHOP",
				"delete ID=1 A=~ _scn=2868600 _commit_scn=2868601 _tx=02000a0037030001 _schema=SHOP"}},
		{"documents", format.DebeziumOptions{},
			[]freshet.Payload{payload(`{"id":"{\"$oid\":\"5f\"}"}`, mongo(`"after":"{\"_id\":{\"$oid\":\"5f\"},\"n\":1}","op":"c"`)),
				payload(`{"id":"{\"$oid\":\"5f\"}"}`, mongo(`"after":null,"op":"d"`)), payload(`{"id":"{\"$oid\":\"5f\"}"}`, "-"),
				payload(`{"id":"1"}`, mongo(`"after":null,"updateDescription":{"updatedFields":"{}"},"op":"u"`))},
			[]string{`insert _id={"$oid":"5f"} n=1`, `delete _id={"$oid":"5f"} n=~`, "FRE-3004 "}},
		{"documents whose _id is a number", format.DebeziumOptions{},
			[]freshet.Payload{payload(`{"id":"7"}`, mongo(`"after":"{\"_id\":7,\"n\":1}","op":"r"`)),
				payload(`{"id":"7"}`, mongo(`"after":null,"op":"d"`))},
			[]string{`insert _id=7 n=1`, `delete _id=7 n=~`}},
		{"numbers that JSON lacks", format.DebeziumOptions{},
			[]freshet.Payload{payload("-", `{"after":{"a":NaN,"b":1.5},"op":"c"}`), payload("-", `{"after":{"a":-Infinity,"b":Infinity},"op":"c"}`)},
			[]string{"insert a=NaN b=1.5", "insert a=-Inf b=+Inf"}},
		{"large numbers", format.DebeziumOptions{},
			[]freshet.Payload{payload("-", `{"after":{"a":9007199254740993,"b":18446744073709551615},"op":"c"}`)},
			[]string{"insert a=9007199254740993 b=18446744073709551615"}},
		{"what is no row", format.DebeziumOptions{SignalTable: "inv.signals", IgnoreTruncates: true},
			[]freshet.Payload{payload("-", `{"after":{"id":1},"op":"c"}`), payload("-", `{"ts_ms":1}`), payload("-", `{"status":"END","id":"1","ts_ms":1}`),
				payload("-", `{"source":{},"ts_ms":1,"databaseName":"d","ddl":"x","tableChanges":[]}`),
				payload("-", `{"op":"m","message":{"prefix":"p"}}`), payload("-", `{"op":"t"}`), payload(`{"id":1}`, "-"),
				payload(`{"id":1}`, `{"schema":null,"payload":null}`),
				payload("-", `{"after":{"id":"w","type":"snapshot-window-open"},"op":"c","source":{"db":"inv","table":"signals"}}`)},
			[]string{"insert id=1 type=(null)"}},
		{"what is no event", format.DebeziumOptions{},
			[]freshet.Payload{payload("-", `{"after":{"id":1},"op":"c"}`), payload("-", `{"op":"t"}`), payload("-", `{"id":1}`),
				payload("-", `{"op":"x","after":{"id":1}}`), payload("-", `{"op":"c","after":null}`), payload("-", `[]`),
				payload("-", ` `), payload("-", `{"op":"c","after":{"id":1}}}`), payload("-", `{"schema":{},"payload":{"op":"c","after":{"id":1}}`),
				payload("-", `{"op":"d","after":{"id":1}}`), payload("-", `{"after":{"id":1}}`)},
			[]string{"insert id=1", "FRE-3016 ", "FRE-3015 ", "FRE-3015 ", "FRE-3004 ", "FRE-3004 ", "FRE-3001 ", "FRE-3002 ",
				"FRE-3002 ", "FRE-3004 ", "FRE-3015 "}},
		{"flattened", format.DebeziumOptions{Flattened: true, Source: []string{"lsn"}},
			[]freshet.Payload{payload(`{"id":1}`, `{"id":1,"a":"x","__op":"c","__lsn":5}`), payload(`{"id":1}`, `{"id":1,"a":"y"}`),
				payload(`{"id":1}`, `{"id":1,"a":"","__deleted":"true"}`), payload(`{"id":2}`, "-")},
			[]string{"insert id=1 a=x _lsn=5", "update_postimage id=1 a=y _lsn=(null)", "delete id=1 a=~ _lsn=(null)",
				"delete id=2 a=~ _lsn=(null)"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := changesOf(t, debezium(t, nil, &c.options), nil, c.in...)
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestDebezium_Placeholders_AreNotSent(t *testing.T) {
	list := func(of arrow.DataType) arrow.DataType {
		return arrow.ListOfField(arrow.Field{Name: "element", Type: of, Nullable: true})
	}
	bytes := `[120,121]`
	for _, c := range []struct {
		name  string
		t     arrow.DataType
		value string
	}{
		{"text", arrow.BinaryTypes.String, `"xy"`},
		{"base64 in text", arrow.BinaryTypes.String, `"eHk="`},
		{"hexadecimal in text", arrow.BinaryTypes.String, `"7879"`},
		{"binary", arrow.BinaryTypes.Binary, `"eHk="`},
		{"decimal", &arrow.Decimal128Type{Precision: 5}, `"xy"`},
		{"long", arrow.PrimitiveTypes.Int64, `"xy"`},
		{"timestamp", arrow.FixedWidthTypes.Timestamp_us, `"xy"`},
		{"date", arrow.FixedWidthTypes.Date32, `"xy"`},
		{"array of text", list(arrow.BinaryTypes.String), `["xy"]`},
		{"array of binary", list(arrow.BinaryTypes.Binary), `["eHk="]`},
		{"array of UUIDs", list(arrow.BinaryTypes.String), `["3e441071-70a5-3058-aade-522fa73c1d15"]`},
		{"array of int", list(arrow.PrimitiveTypes.Int32), bytes},
		{"array of bigint", list(arrow.PrimitiveTypes.Int64), bytes},
		{"map", arrow.MapOf(arrow.BinaryTypes.String, arrow.BinaryTypes.String), `{"xy":"xy"}`},
		{"struct", arrow.StructOf(arrow.Field{Name: "k", Type: arrow.BinaryTypes.String, Nullable: true}), `{"xy":"xy"}`},
		{"array in text", arrow.BinaryTypes.String, `["xy"]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			schema := arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
				{Name: "v", Type: c.t, Nullable: true}}, nil)
			for _, setting := range []string{"xy", "hex:7879"} {
				f := debezium(t, nil, &format.DebeziumOptions{Placeholder: setting})
				got := changesOf(t, f, schema, payload("-", `{"after":{"id":1,"v":`+c.value+`},"op":"u"}`))
				if len(got) != 1 || got[0] != "update_postimage id=1 v=~" {
					t.Errorf("%s: got %q, want v not sent", setting, got)
				}
			}
		})
	}
}

// TestDebezium_PartOfAPlaceholder_IsAValue has values that only resemble one.
func TestDebezium_PartOfAPlaceholder_IsAValue(t *testing.T) {
	f := debezium(t, nil, &format.DebeziumOptions{Placeholder: "xy"})
	got := changesOf(t, f, nil, payload("-", `{"after":{"a":"xyz","b":["xy","xy"],"c":["x"],"d":""},"op":"u"}`))
	if want := `update_postimage a=xyz b=["xy","xy"] c=["x"] d=`; len(got) != 1 || got[0] != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDebezium_SchemaChanges_WidenAndAreTaken(t *testing.T) {
	event := func(fields, row string) string {
		row1 := `{"type":"struct","field":"after","fields":[` + fields + `]}`
		return `{"schema":{"type":"struct","fields":[` + row1 + `]},"payload":{"after":` + row + `,"op":"c"}}`
	}
	id := `{"type":"int32","field":"id"}`
	old := payload("-", event(id, `{"id":1}`))
	added := payload("-", event(id+`,{"type":"int64","field":"at","name":"io.debezium.time.MicroTimestamp"},`+
		`{"type":"string","field":"d","default":"x"}`, `{"id":2,"at":1000000}`))
	f := debezium(t, nil, nil)
	schema, err := f.Infer([]freshet.Payload{old}, nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.NewDecoder(schema)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Append(added); err != freshet.ErrNewFields {
		t.Fatalf("got %v, want ErrNewFields", err)
	}
	wider, err := f.Infer([]freshet.Payload{added}, schema)
	if err != nil {
		t.Fatal(err)
	}
	got := changesOf(t, f, wider, old, added, old)
	want := []string{"insert id=1 at=(null) d=(null)", "insert id=2 at=1970-01-01T00:00:01 d=x",
		"insert id=1 at=(null) d=(null)"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestParseTransaction_Records_AreRead(t *testing.T) {
	got, err := format.ParseTransaction([]byte(`{"schema":{},"payload":{"status":"END","id":"5:9","ts_ms":7,"event_count":3,` +
		`"data_collections":[{"data_collection":"public.a","event_count":3}]}}`))
	if err != nil || got.ID != "5:9" || !got.Ended || got.Events != 3 || got.Committed != 7000 || len(got.Tables) != 1 ||
		got.Tables[0] != (format.TransactionTable{Name: "public.a", Events: 3}) {
		t.Errorf("end: got %+v, %v", got, err)
	}
	got, err = format.ParseTransaction([]byte(`{"status":"BEGIN","id":"5:1","ts_ms":7,"event_count":null,"data_collections":null}`))
	if err != nil || got.ID != "5:1" || got.Ended || got.Events != -1 || got.Tables != nil {
		t.Errorf("beginning: got %+v, %v", got, err)
	}
	for _, bad := range []string{``, `{}`, `{"status":"END","id":"1"}`, `{"status":"MIDDLE","id":"1"}`} {
		if got, err := format.ParseTransaction([]byte(bad)); err == nil {
			t.Errorf("%s: got %+v, want an error", bad, got)
		}
	}
}
