package format_test

import (
	"errors"
	"testing"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/format"
)

// FuzzChanges decodes arbitrary keys and values by each format of changes: into the columns that are inferred from
// them, and into those of a good record.
func FuzzChanges(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"id":1}`, `{"op":"c","id":1,"m":{"op":"d"}}`},
		{`7`, ``},
		{`{"id":1}`, `{"before":{"id":1},"after":{"id":1,"a":NaN},"op":"u","source":{"txId":5,"ts_us":1}}`},
		{`{"schema":{"type":"struct"},"payload":{"id":1}}`, `{"schema":{"fields":[{"field":"after","type":"struct","fields":[` +
			`{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","field":"n","parameters":{"scale":"2"}},` +
			`{"type":"map","keys":{"type":"int32"},"values":{"type":"string"},"field":"m"},` +
			`{"type":"struct","name":"io.debezium.data.VariableScaleDecimal","field":"v"},` +
			`{"type":"bytes","name":"io.debezium.data.Bits","field":"b","parameters":{"length":"9"}},` +
			`{"type":"int64","name":"io.debezium.time.NanoTimestamp","field":"t"}]}]},"payload":{"op":"c","after":` +
			`{"n":"Aw==","m":[[1,"a"]],"v":{"scale":3,"value":"AQ=="},"b":"BQI=","t":-1}}}`},
		{`{"id":"{}"}`, `{"after":"{\"_id\":1}","op":"c","source":{"connector":"mongodb"}}`},
		{`{"id":1}`, `{"id":1,"__op":"d","__deleted":"true"}`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	rescue := &format.Options{NewFields: format.Rescue}
	var formats []freshet.Format
	for _, o := range []*format.Options{nil, rescue} {
		for _, c := range []*format.ChangeOptions{nil, {Op: "m.op", Key: []string{"id"}, KeepAbsent: true}} {
			made, err := format.NewChanges(o, c)
			if err != nil {
				f.Fatal(err)
			}
			formats = append(formats, made)
		}
		for _, z := range []*format.DebeziumOptions{nil, {TrustBefore: true, Source: format.SourceColumns()},
			{Flattened: true}, {Key: []string{"id"}}} {
			made, err := format.NewDebezium(o, z)
			if err != nil {
				f.Fatal(err)
			}
			formats = append(formats, made)
		}
	}
	good := freshet.Payload{Key: []byte(`{"id":1}`), Value: []byte(`{"id":1,"op":"c","m":{"op":"c"},"after":{"id":1,"_id":1,` +
		`"n":1.5,"b":"x"},"before":{"id":1}}`)}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		p := freshet.Payload{Key: key, Value: value}
		for _, made := range formats {
			decodeBoth(t, made, p, good)
		}
	})
}

// decodeBoth decodes a record, and then a good one, whose rows must be whole whatever became of the first.
func decodeBoth(t *testing.T, f freshet.Format, p, good freshet.Payload) {
	schema, err := f.Infer([]freshet.Payload{p, good}, nil)
	if err != nil || schema == nil {
		t.Fatalf("infer: got %v, %v", schema, err)
	}
	d, err := f.NewDecoder(schema)
	if err != nil {
		return // no column for the key
	}
	defer d.Release()
	want := 0
	for _, record := range []freshet.Payload{p, good, p} {
		n, err := d.Append(record)
		var reject *freshet.RejectError
		if err != nil && (n != 0 || !errors.As(err, &reject) && !errors.Is(err, freshet.ErrNewFields)) {
			t.Fatalf("got %d rows and %v", n, err)
		}
		want += n
	}
	if d.Len() != want {
		t.Fatalf("got %d rows, want %d", d.Len(), want)
	}
	decoded := d.Flush()
	defer decoded.Rows.Release()
	if int(decoded.Rows.NumRows()) != want || len(decoded.Kinds) != want {
		t.Fatalf("got %d rows and %d kinds, want %d", decoded.Rows.NumRows(), len(decoded.Kinds), want)
	}
	for c, column := range decoded.Rows.Columns() {
		if column.Len() != want {
			t.Fatalf("column %d: got %d rows, want %d", c, column.Len(), want)
		}
	}
}
