package interop_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// everyType are columns of every Delta primitive type, and nested ones. timestamp_ntz raises the protocol; it has a table of
// its own.
const everyType = `{b: boolean, i8: tinyint, i16: smallint, i32: int, i64: bigint, f: float, d: double,
      d9: "decimal(9,2)", d18: "decimal(18,4)", d38: "decimal(38,10)", s: string not null, bin: binary, dt: date,
      ts: timestamp, st: "struct<a: int, b: string, c: struct<x: double>>", arr: array<int>,
      arrs: "array<struct<k: string, v: bigint>>", m: "map<string,int>"%s}`

// rowsOfEveryType are JSON records: limits, nulls, special characters, an empty record.
func rowsOfEveryType() []string {
	return []string{
		`{"b":true,"i8":-128,"i16":-32768,"i32":-2147483648,"i64":-9223372036854775808,"f":1.5,"d":2.2250738585072014e-308,` +
			`"d9":-1234567.89,"d18":"0.0001","d38":"1234567890123456789012345678.0123456789","s":"a","bin":"AAEC/w==",` +
			`"dt":"0001-01-01","ts":"1677-09-21T00:12:43.000001Z","st":{"a":1,"b":"x","c":{"x":-0.0}},"arr":[1,null,3],` +
			`"arrs":[{"k":"a","v":9007199254740993},{"k":null,"v":null}],"m":{"one":1,"null":null},"n":"2024-02-29T12:34:56.789012"}`,
		`{"b":false,"i8":127,"i16":32767,"i32":2147483647,"i64":9223372036854775807,"f":"NaN","d":"Infinity","d9":0,` +
			`"d18":99999999999999.9999,"d38":-1,"s":"Zürich \"quoted\" \\ \u2028 \ud83c\udf0a","bin":"","dt":"9999-12-31",` +
			`"ts":"2024-02-29T12:34:56.789012+02:00","st":{"a":null,"b":null,"c":null},"arr":[],"arrs":[],"m":{},"n":"1970-01-01T00:00:00"}`,
		`{"s":"only"}`,
		`{"s":"nulls","b":null,"i8":null,"st":null,"arr":null,"m":null}`,
		`{"s":"minus zero","f":-0.0,"d":-0.0,"st":{"a":5}}`,
		`{"s":"` + strings.Repeat("長い文字列", 20) + `","d":"-Infinity","f":3.4028235e38}`,
	}
}

// specialValues are partition values that need one encoding or the other, or both.
func specialValues() []string {
	return []string{"plain", "a b", "a:b", "a%20b", "a/b", `a\\b`, `q\"q`, "x=y", "é ü", "#?", "{}[]^", "100%", "*", "'", ".", "..", "~", "长", "+&", ""}
}

// TestReaders_TablesWeWrote_EqualDigests has Spark, delta-rs, delta-kernel and DuckDB read tables that freshet wrote.
func TestReaders_TablesWeWrote_EqualDigests(t *testing.T) {
	t.Parallel()
	b := needBroker(t)
	needReaders(t)
	home := t.TempDir()
	tables := []string{
		writeTyped(t, b, filepath.Join(home, "types"), fmt.Sprintf(everyType, ""), "", rowsOfEveryType()),
		writeTyped(t, b, filepath.Join(home, "ntz"), fmt.Sprintf(everyType, ", n: timestamp_ntz"), "", rowsOfEveryType()),
		writeTyped(t, b, filepath.Join(home, "special"), "{p: string, n: bigint}", "p", specialRows()),
		writeTyped(t, b, filepath.Join(home, "dates"), "{dt: date, i: int, b: boolean, d: \"decimal(9,2)\", ts: timestamp, v: string}",
			"dt, i, b, d, ts", partitionedRows()),
		writeEvolving(t, b, filepath.Join(home, "evolving")),
	}
	if refused := compareEngines(t, tables); len(refused) > 0 {
		t.Errorf("refused: %s", strings.Join(refused, "; "))
	}
}

// writeTyped sends the records through a topic into a table of these columns.
func writeTyped(t *testing.T, b *broker, table, columns, partitionBy string, records []string) string {
	t.Helper()
	topic := b.topic(2, nil)
	for i, r := range records {
		b.produce(&kgo.Record{Topic: topic, Partition: int32(i % 2), Value: []byte(r)})
	}
	file := filepath.Join(t.TempDir(), "typed.yaml")
	text := fmt.Sprintf(`pipeline: typed
namespace: bronze
source:
  kafka: {brokers: ["%s"], topics: [%s], start: earliest, format: json}
  schema:
    columns: %s
    new_fields: ignore
target:
  delta: {path: "%s", mode: append, partition_by: [%s]}
`, b.servers, topic, columns, table, partitionBy)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	start(t, nil, "run", file, "--until-caught-up", "--progress", "off").mustEnd(patience)
	if _, err := os.Stat(table + "_quarantine"); err == nil {
		t.Errorf("%s: some records went to quarantine", table)
	}
	return table
}

func specialRows() []string {
	rows := []string{`{"p":null,"n":-1}`, `{"n":-2}`}
	for i, v := range specialValues() {
		rows = append(rows, fmt.Sprintf(`{"p":"%s","n":%d}`, v, i))
	}
	return rows
}

func partitionedRows() []string {
	return []string{
		`{"dt":"2024-02-29","i":-5,"b":true,"d":1.5,"ts":"2024-02-29T12:34:56.789012Z","v":"one"}`,
		`{"dt":"1969-12-31","i":0,"b":false,"d":-0.05,"ts":"1969-12-31T23:59:59Z","v":"two"}`,
		`{"v":"nulls"}`,
	}
}

// writeEvolving infers a schema and has it grow while many small commits make checkpoints.
func writeEvolving(t *testing.T, b *broker, table string) string {
	t.Helper()
	topic := b.topic(1, nil)
	for round := range 15 {
		b.produce(&kgo.Record{Topic: topic, Value: fmt.Appendf(nil, `{"id":%d,"at":"2024-01-%02dT00:00:00Z","f%d":{"x":%d.5}}`,
			round, round+1, round/3, round)})
		out, err := exec.Command(binary(t), "ingest", "kafka://"+b.servers+"/"+topic, table, "--until-caught-up",
			"--app", "evolving", "--progress", "off").CombinedOutput()
		if err != nil {
			t.Fatalf("ingest: %v\n%s", err, out)
		}
	}
	if found, _ := filepath.Glob(filepath.Join(table, "_delta_log", "*.checkpoint.parquet")); len(found) == 0 {
		t.Errorf("%s: no checkpoint after 15 commits", table)
	}
	return table
}
