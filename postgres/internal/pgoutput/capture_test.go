package pgoutput_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// captures is the folder of messages that real servers sent, each scenario in several versions of the protocol, with two
// decodings by other programs.
func captures(t testing.TB) string {
	root := os.Getenv("FRESHET_TESTDATA")
	if root == "" {
		t.Skip("FRESHET_TESTDATA is not set: it names the folder of data that others wrote")
	}
	return filepath.Join(root, "cdc", "pg", "pgoutput")
}

// payloads are the messages of one variant of a capture.
func payloads(t testing.TB, file, variant string) [][]byte {
	t.Helper()
	var all [][]byte
	for _, line := range lines(t, file) {
		var m struct{ V, Hex string }
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		if m.Hex != "" && m.V == variant {
			raw, err := hex.DecodeString(m.Hex)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, raw)
		}
	}
	return all
}

func lines(t testing.TB, file string) []string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	s := bufio.NewScanner(bytes.NewReader(raw))
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		all = append(all, s.Text())
	}
	return all
}

// row tells a change in one form for us and for others: "INSERT public.a id='1' t=null", its columns by name. Values that
// are not known are left out.
func row(op, table string, columns map[string]string) string {
	names := make([]string, 0, len(columns))
	for name, v := range columns {
		names = append(names, name+"="+v)
	}
	slices.Sort(names)
	return op + " " + table + " " + strings.Join(names, " ")
}

// changesOf decodes a capture of protocol version 1 or 3 and tells its changes.
func changesOf(t *testing.T, all [][]byte) []string {
	t.Helper()
	var out []string
	d := pgoutput.Decoder{}
	tables := map[uint32]*pgoutput.Rel{}
	for i, raw := range all {
		m, err := d.Decode(raw)
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		switch m.Kind {
		case pgoutput.Relation:
			tables[m.Table] = m.Rel
		case pgoutput.Insert:
			out = append(out, ours("INSERT", tables[m.Table], m.New, false))
		case pgoutput.Update:
			out = append(out, ours("UPDATE", tables[m.Table], m.New, false))
		case pgoutput.Delete:
			out = append(out, ours("DELETE", tables[m.Table], m.Old, true))
		case pgoutput.Truncate:
			for _, table := range m.Tables {
				out = append(out, "TRUNCATE "+tables[table].Schema+"."+tables[table].Name)
			}
		}
	}
	return out
}

// ours tells a row of ours. Of a sparse one only what is not null: others leave the rest out.
func ours(op string, rel *pgoutput.Rel, tuple pgoutput.Tuple, sparse bool) string {
	columns := map[string]string{}
	for i, v := range tuple {
		switch name := rel.Columns[i].Name; v.Kind {
		case pgoutput.Null:
			if !sparse {
				columns[name] = "null"
			}
		case pgoutput.Text:
			columns[name] = "'" + string(v.Data) + "'"
		}
	}
	return row(op, rel.Schema+"."+rel.Name, columns)
}

// decodedByServer reads the text of the plugin test_decoding: `table public.a: INSERT: id[integer]:1 t[text]:'one'`.
func decodedByServer(t *testing.T, file string) []string {
	t.Helper()
	var out []string
	for _, line := range lines(t, file) {
		_, rest, _ := strings.Cut(line, "\ttable ")
		table, rest, ok := strings.Cut(rest, ": ")
		if !ok {
			continue
		}
		op, rest, _ := strings.Cut(rest, ":")
		if op == "TRUNCATE" {
			for _, name := range strings.Split(table, ", ") {
				out = append(out, "TRUNCATE "+name)
			}
			continue
		}
		if _, after, old := strings.Cut(rest, " new-tuple:"); old {
			rest = after
		}
		out = append(out, row(op, table, columnsOf(rest)))
	}
	return out
}

func columnsOf(text string) map[string]string {
	columns := map[string]string{}
	for text = strings.TrimLeft(text, " "); text != ""; text = strings.TrimLeft(text, " ") {
		name, rest, ok := strings.Cut(text, "[")
		_, rest, _ = strings.Cut(rest, "]:")
		if !ok {
			break
		}
		value := rest
		if strings.HasPrefix(rest, "'") {
			end := 1
			for ; end < len(rest); end++ {
				if rest[end] != '\'' {
					continue
				}
				if end+1 == len(rest) || rest[end+1] != '\'' {
					break
				}
				end++
			}
			value, text = strings.ReplaceAll(rest[1:end], "''", "'"), rest[end+1:]
			columns[name] = "'" + value + "'"
			continue
		}
		value, text, _ = strings.Cut(rest, " ")
		switch value {
		case "unchanged-toast-datum":
		case "null":
			columns[name] = "null"
		case "true", "false":
			columns[name] = "'" + value[:1] + "'"
		default:
			columns[name] = "'" + value + "'"
		}
	}
	return columns
}

// decodedByJSON reads the lines of the plugin wal2json, format 2.
func decodedByJSON(t *testing.T, file string) []string {
	t.Helper()
	ops := map[string]string{"I": "INSERT", "U": "UPDATE", "D": "DELETE"}
	var out []string
	for _, line := range lines(t, file) {
		var m struct {
			Action, Schema, Table string
			Columns, Identity     []struct {
				Name  string
				Value json.RawMessage
			}
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		op, is := ops[m.Action]
		if m.Action == "T" {
			out = append(out, "TRUNCATE "+m.Schema+"."+m.Table)
		}
		if !is {
			continue
		}
		values := m.Columns
		if op == "DELETE" {
			values = m.Identity
		}
		columns := map[string]string{}
		for _, v := range values {
			var text string
			switch raw := string(v.Value); {
			case json.Unmarshal(v.Value, &text) == nil && raw != "null":
				columns[v.Name] = "'" + text + "'"
			case raw == "null" && op == "DELETE":
			case raw == "true", raw == "false":
				columns[v.Name] = "'" + raw[:1] + "'"
			case raw == "null":
				columns[v.Name] = raw
			default:
				columns[v.Name] = "'" + raw + "'"
			}
		}
		out = append(out, row(op, m.Schema+"."+m.Table, columns))
	}
	return out
}

// seen are the changes of others to tables that are in the publication: those that ours has any of.
func seen(others, ours []string) []string {
	tables := map[string]bool{}
	for _, o := range ours {
		tables[strings.Fields(o)[1]] = true
	}
	return slices.DeleteFunc(others, func(o string) bool { return !tables[strings.Fields(o)[1]] })
}

func compare(t *testing.T, what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		g, w := "nothing", "nothing"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("%s: change %d:\n got %.300s\nwant %.300s", what, i, g, w)
			return
		}
	}
}

func TestDecode_RealServers_AsOtherPluginsSay(t *testing.T) {
	dir := captures(t)
	// Row filters, column lists and partitions published as their root show other rows than those plugins do.
	for _, name := range []string{"basic_dml", "replica_identity", "toast", "ddl", "streaming", "twophase",
		"messages_origin_types", "partitions_leaf", "truncate"} {
		for _, server := range []string{"pg15", "pg18"} {
			base := filepath.Join(dir, name+"."+server)
			if _, err := os.Stat(base + ".ndjson"); err != nil {
				continue
			}
			t.Run(name+"."+server, func(t *testing.T) {
				got := changesOf(t, payloads(t, base+".ndjson", "v1"))
				if len(got) == 0 {
					t.Fatal("got no changes")
				}
				compare(t, "test_decoding", got, seen(decodedByServer(t, base+".test_decoding.txt"), got))
				if _, err := os.Stat(base + ".wal2json.ndjson"); err == nil {
					compare(t, "wal2json", got, seen(decodedByJSON(t, base+".wal2json.ndjson"), got))
				}
			})
		}
	}
}

// outline tells what a message is, but for the bytes of its values, which differ as text and binary.
func outline(m *pgoutput.Message) string {
	kinds := func(t pgoutput.Tuple) string {
		var s strings.Builder
		for _, v := range t {
			k := v.Kind
			if k == pgoutput.Binary {
				k = pgoutput.Text
			}
			s.WriteByte(byte(k))
		}
		return s.String()
	}
	return fmt.Sprintf("%c %d %s %s %v %d %s %s %v", m.Kind, m.XID, m.LSN, m.End, m.Time, m.Table, kinds(m.Old), kinds(m.New),
		m.Tables)
}

func TestDecode_Binary_AsText(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(captures(t), "*.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		binary := payloads(t, file, "v1_binary")
		var outlines [2][]string
		for i, all := range [][][]byte{binary, payloads(t, file, "v1")} {
			var d pgoutput.Decoder
			for _, raw := range all {
				m, err := d.Decode(raw)
				if err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				if m.Kind != pgoutput.Emitted {
					outlines[i] = append(outlines[i], outline(m))
				}
			}
		}
		if len(binary) > 0 {
			compare(t, filepath.Base(file), withoutEmpty(outlines[0]), withoutEmpty(outlines[1]))
		}
	}
}

// withoutEmpty drops transactions without changes, which are sent only if they have messages.
func withoutEmpty(all []string) []string {
	return slices.DeleteFunc(all, func(s string) bool { return s[0] == 'B' || s[0] == 'C' })
}

func TestDecode_EveryVariant_ReadWhole(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(captures(t), "*.pg1?.ndjson"))
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	kinds := map[pgoutput.Kind]int{}
	for _, file := range files {
		for _, variant := range []string{"v1", "v1_binary", "v2_streaming", "v3_twophase", "v4_parallel"} {
			var d pgoutput.Decoder
			for i, raw := range payloads(t, file, variant) {
				m, err := d.Decode(raw)
				if err != nil {
					t.Fatalf("%s %s: message %d: %v", file, variant, i, err)
				}
				kinds[m.Kind]++
			}
			if d.Streaming() {
				t.Errorf("%s %s: a stream without an end", file, variant)
			}
		}
	}
	for _, k := range "BCRYIUDTMSEcAbPKr" {
		if kinds[pgoutput.Kind(k)] == 0 {
			t.Errorf("kind %c: got none, want some in the captures", k)
		}
	}
}

func TestSkim_EveryVariant_TellsWhatDecodeTells(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(captures(t), "*.pg1?.ndjson"))
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	rows := 0
	for _, file := range files {
		for _, variant := range []string{"v1", "v2_streaming", "v4_parallel"} {
			var whole, skimmed pgoutput.Decoder
			for i, raw := range payloads(t, file, variant) {
				want, err := whole.Decode(raw)
				if err != nil {
					t.Fatalf("%s %s: message %d: %v", file, variant, i, err)
				}
				got, err := skimmed.Skim(raw)
				if err != nil || got.Kind != want.Kind || got.XID != want.XID || got.Table != want.Table {
					t.Fatalf("%s %s: message %d: got %+v, %v, want %+v", file, variant, i, got, err, want)
				}
				if want.New != nil || want.Old != nil {
					rows++
				}
			}
		}
	}
	if rows == 0 {
		t.Error("got no rows in the captures, want some")
	}
}
