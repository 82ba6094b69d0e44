package format_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/format"
)

// BenchmarkDebezium_Plain decodes events without schemas, of the rows of BenchmarkDecode_Narrow.
func BenchmarkDebezium_Plain(b *testing.B) { benchmarkDebezium(b, "") }

// BenchmarkDebezium_Schema decodes events with a schema of about 2 KB each.
func BenchmarkDebezium_Schema(b *testing.B) {
	fields := new(bytes.Buffer)
	for i := range 30 {
		fmt.Fprintf(fields, `{"type":"string","optional":true,"field":"unused_%d"},`, i)
	}
	benchmarkDebezium(b, `{"type":"struct","fields":[{"type":"struct","fields":[`+fields.String()+
		`{"type":"string","optional":true,"field":"last"}],"optional":true,"field":"source2"}]}`)
}

func benchmarkDebezium(b *testing.B, schema string) {
	rows := narrowEvents(20_000)
	payloads := make([]freshet.Payload, len(rows))
	var size int64
	for i, row := range rows {
		value := fmt.Sprintf(`{"before":null,"after":%s,"source":{"version":"3.6.1.Final","connector":"postgresql",`+
			`"name":"shop","ts_ms":1767225600000,"snapshot":"false","db":"shop","sequence":"[\"%d\",\"%d\"]",`+
			`"ts_us":1767225600000000,"ts_ns":1767225600000000000,"schema":"public","table":"orders","txId":%d,"lsn":%d,`+
			`"xmin":null},"transaction":null,"op":"c","ts_ms":1767225600005,"ts_us":1767225600005011,`+
			`"ts_ns":1767225600005011000}`, row, 1000+i, 2000+i, i/10, 2000+i)
		if schema != "" {
			value = `{"schema":` + schema + `,"payload":` + value + `}`
		}
		payloads[i].Value = []byte(value)
		size += int64(len(value))
	}
	f, err := format.NewDebezium(nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	plain, err := format.NewJSON(nil)
	if err != nil {
		b.Fatal(err)
	}
	columns, err := plain.Infer(asPayloads(rows), nil)
	if err != nil {
		b.Fatal(err)
	}
	d, err := f.NewDecoder(columns)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	b.ReportAllocs()
	before := processorSeconds()
	for b.Loop() {
		for _, p := range payloads {
			if _, err := d.Append(p); err != nil {
				b.Fatal(err)
			}
		}
		d.Flush().Rows.Release()
	}
	b.ReportMetric(float64(size)*float64(b.N)/1e6/(processorSeconds()-before), "MB/cpu-s")
	b.ReportMetric(float64(len(payloads)), "rows/op")
}
