package format_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/format"
)

func recorded(t *testing.T) string {
	root := os.Getenv("FRESHET_TESTDATA")
	if root == "" {
		t.Skip("FRESHET_TESTDATA is not set: it names the folder of data that others wrote")
	}
	return filepath.Join(root, "cdc", "messages")
}

// expected is what a recorded message is.
type expected struct {
	Msg       int
	Op        string
	Key       map[string]any
	After     map[string]any
	Unchanged []string
	LSN       int64
	Order     int64 `json:"total_order"`
}

type message struct {
	Topic string
	Key   *string
	Value *string
}

func (m message) payload() (p freshet.Payload) {
	if m.Key != nil {
		p.Key = []byte(*m.Key)
	}
	if m.Value != nil {
		p.Value = []byte(*m.Value)
	}
	return p
}

// lines reads the JSON values of a file, whatever stands between them.
func lines[T any](t *testing.T, path string) (all []T) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range bytes.Split(data, []byte("\n")) {
		if !bytes.HasPrefix(line, []byte("{")) {
			continue
		}
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all = append(all, v)
	}
	return all
}

func TestDebezium_RecordedMessages_AreTheExpectedChanges(t *testing.T) {
	dir := filepath.Join(recorded(t), "own", "debezium")
	files, err := filepath.Glob(filepath.Join(dir, "*.messages.ndjson"))
	if err != nil || len(files) < 6 {
		t.Fatalf("found %d files, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".messages.ndjson")
		if name == "avro_confluent" { // of another converter
			continue
		}
		t.Run(name, func(t *testing.T) {
			f, err := format.NewDebezium(nil, &format.DebeziumOptions{Flattened: name == "unwrap_smt",
				IgnoreTruncates: true, Source: []string{"lsn"}})
			if err != nil {
				t.Fatal(err)
			}
			checkRecorded(t, f, lines[message](t, file),
				lines[expected](t, filepath.Join(dir, name+".expected.ndjson"))[1:])
		})
	}
}

// checkRecorded decodes the messages, those of each topic by a decoder of its own, and compares.
func checkRecorded(t *testing.T, f freshet.Format, messages []message, want []expected) {
	byTopic := map[string][]freshet.Payload{}
	for _, m := range messages {
		byTopic[m.Topic] = append(byTopic[m.Topic], m.payload())
	}
	decoders := map[string]freshet.Decoder{}
	for topic, payloads := range byTopic {
		schema, err := f.Infer(payloads, nil)
		if err != nil {
			t.Fatal(err)
		}
		if schema == nil {
			schema = arrow.NewSchema([]arrow.Field{{Name: "_lsn", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
		}
		schema = withHints(schema)
		if decoders[topic], err = f.NewDecoder(schema); err != nil {
			t.Fatal(err)
		}
	}
	for _, w := range want {
		m := messages[w.Msg]
		d := decoders[m.Topic]
		rows, err := d.Append(m.payload())
		if err != nil {
			t.Errorf("message %d: %v", w.Msg, err)
			continue
		}
		decoded := d.Flush()
		kind, isRow := map[string]freshet.Kind{"read": freshet.Insert, "insert": freshet.Insert,
			"update": freshet.UpdatePostimage, "delete": freshet.Delete, "delete_or_skip": freshet.Delete}[w.Op]
		switch {
		case !isRow && rows != 0:
			t.Errorf("message %d: got %d rows, want none of %s", w.Msg, rows, w.Op)
		case isRow && (rows != 1 || decoded.Kinds[0] != kind):
			t.Errorf("message %d: got %d rows, %v, want one %v", w.Msg, rows, decoded.Kinds, kind)
		case isRow:
			checkRow(t, decoded, w)
		}
		decoded.Rows.Release()
	}
}

// withHints gives the columns that one recording has without a schema the types that its table has.
func withHints(schema *arrow.Schema) *arrow.Schema {
	fields := schema.Fields()
	for i, f := range fields {
		switch {
		case f.Name == "bin":
			fields[i].Type = arrow.BinaryTypes.Binary
		case f.Name == "h":
			fields[i].Type = arrow.MapOf(arrow.BinaryTypes.String, arrow.BinaryTypes.String)
		}
	}
	return arrow.NewSchema(fields, nil)
}

func checkRow(t *testing.T, d freshet.Decoded, w expected) {
	want := w.After
	if want == nil {
		want = w.Key
	}
	got := map[string]any{}
	unsent := map[string]bool{}
	for c, f := range d.Rows.Schema().Fields() {
		switch {
		case f.Name == "_lsn":
			if v := d.Rows.Column(c).(*array.Int64).Value(0); w.LSN != 0 && v != w.LSN {
				t.Errorf("message %d: got lsn %d, want %d", w.Msg, v, w.LSN)
			}
		case d.Unsent.Has(0, c):
			unsent[f.Name] = true
			if !d.Rows.Column(c).IsNull(0) {
				t.Errorf("message %d: %s was not sent and is %s", w.Msg, f.Name, d.Rows.Column(c).ValueStr(0))
			}
		default:
			got[f.Name] = normal(d.Rows.Column(c), 0)
		}
	}
	for name, v := range want {
		if number, ok := v.(float64); ok {
			v = strconv.FormatFloat(number, 'f', -1, 64)
		}
		if fmt.Sprint(got[name]) != fmt.Sprint(v) {
			t.Errorf("message %d: %s: got %v, want %v", w.Msg, name, got[name], v)
		}
	}
	if w.After == nil {
		if len(got) != len(w.Key) {
			t.Errorf("message %d: got %v, want only the key %v", w.Msg, got, w.Key)
		}
		return
	}
	if len(unsent) != len(w.Unchanged) {
		t.Errorf("message %d: got %v not sent, want %v", w.Msg, unsent, w.Unchanged)
	}
	if w.Order > 0 && d.Stamps[0].Ordinal != w.Order-1 {
		t.Errorf("message %d: got ordinal %d, want %d", w.Msg, d.Stamps[0].Ordinal, w.Order-1)
	}
}

// normal is a value as the expected files write it.
func normal(a arrow.Array, row int) any {
	if a.IsNull(row) {
		return nil
	}
	switch a := a.(type) {
	case *array.Binary:
		return fmt.Sprintf("0x%x", a.Value(row))
	case *array.Timestamp:
		layout := "2006-01-02T15:04:05.999999"
		if a.DataType().(*arrow.TimestampType).TimeZone != "" {
			layout += "Z"
		}
		return a.Value(row).ToTime(arrow.Microsecond).Format(layout)
	case *array.Float64:
		return a.Value(row)
	case *array.Map:
		start, end := a.ValueOffsets(row)
		m := map[string]any{}
		for i := start; i < end; i++ {
			m[a.Keys().ValueStr(int(i))] = normal(a.Items(), int(i))
		}
		return m
	case *array.List:
		start, end := a.ValueOffsets(row)
		l := []any{}
		for i := start; i < end; i++ {
			l = append(l, normal(a.ListValues(), int(i)))
		}
		return l
	case *array.Struct:
		return pointText(a, row)
	}
	return a.ValueStr(row)
}

// pointText is a struct with a field wkb of a point as EWKT.
func pointText(a *array.Struct, row int) string {
	var text string
	for i, f := range a.DataType().(*arrow.StructType).Fields() {
		switch f.Name {
		case "wkb":
			wkb := a.Field(i).(*array.Binary).Value(row)
			float := func(at int) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(wkb[at:])) }
			text += fmt.Sprintf("POINT(%v %v)", float(5), float(13))
		case "srid":
			if !a.Field(i).IsNull(row) {
				text = fmt.Sprintf("SRID=%s;%s", a.Field(i).ValueStr(row), text)
			}
		}
	}
	return text
}

// TestDebezium_MessagesOfOthers_AreTaken decodes what other projects test with: every record is rows, or a tombstone.
func TestDebezium_MessagesOfOthers_AreTaken(t *testing.T) {
	root := recorded(t)
	var files []string
	for _, dir := range []string{filepath.Join("paimon", "debezium"), filepath.Join("flink-cdc", "mysqlToKafka")} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && strings.Contains(path, "debezium") {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), func(t *testing.T) {
			var payloads []freshet.Payload
			for _, raw := range lines[json.RawMessage](t, file) {
				payloads = append(payloads, freshet.Payload{Value: raw})
			}
			takeAll(t, payloads)
		})
	}
	// The other recording with a schema has an id of another type than that.
	for _, file := range []string{"debezium-data-schema-exclude.json",
		"debezium-data-schema-exclude-with-numeric-decimal.json"} {
		t.Run(file, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(root, "flink-cdc", file))
			if err != nil {
				t.Fatal(err)
			}
			var records map[string]json.RawMessage
			if err := json.Unmarshal(data, &records); err != nil {
				t.Fatal(err)
			}
			for _, raw := range records {
				takeAll(t, []freshet.Payload{{Value: raw}})
			}
		})
	}
}

// TestDebezium_DocumentsOfOthers_AreChangesOfATextKey decodes MongoDB's events, whose keys and values stand in turn.
func TestDebezium_DocumentsOfOthers_AreChangesOfATextKey(t *testing.T) {
	dir := filepath.Join(recorded(t), "paimon", "debezium-bson", "table", "event")
	var payloads []freshet.Payload
	for _, name := range []string{"insert", "update", "delete"} {
		all := lines[json.RawMessage](t, filepath.Join(dir, "event-"+name+".txt"))
		for i := 0; i+1 < len(all); i += 2 {
			payloads = append(payloads, freshet.Payload{Key: all[i], Value: all[i+1]})
		}
	}
	f, err := format.NewDebezium(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := f.Infer(payloads, nil)
	if err != nil {
		t.Fatal(err)
	}
	if id, ok := schema.FieldsByName("_id"); !ok || id[0].Type.ID() != arrow.STRING {
		t.Fatalf("_id: got %v, want a text, which can be a key", schema)
	}
	d, err := f.NewDecoder(schema)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Release()
	for i, p := range payloads {
		if rows, err := d.Append(p); err != nil || rows != 1 {
			t.Errorf("record %d: got %d rows, %v", i, rows, err)
		}
	}
	decoded := d.Flush()
	defer decoded.Rows.Release()
	const oid = `{"$oid": "67ab25755c0d5ac87eb8c632"}`
	want := []string{"insert " + oid, "update_postimage " + oid, "update_postimage " + oid, "delete " + oid,
		"delete 67ab25755c0d5ac87eb8c632", "delete " + oid}
	ids := decoded.Rows.Column(decoded.Rows.Schema().FieldIndices("_id")[0])
	for i, w := range want {
		if got := fmt.Sprint(decoded.Kinds[i], " ", ids.ValueStr(i)); got != w {
			t.Errorf("record %d: got %s, want %s", i, got, w)
		}
	}
}

// takeAll decodes records that have no keys: the rows before are trusted.
func takeAll(t *testing.T, payloads []freshet.Payload) {
	t.Helper()
	f, err := format.NewDebezium(nil, &format.DebeziumOptions{TrustBefore: true})
	if err != nil {
		t.Fatal(err)
	}
	schema, err := f.Infer(payloads, nil)
	if err != nil || schema == nil {
		t.Fatalf("infer: got %v, %v", schema, err)
	}
	d, err := f.NewDecoder(schema)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Release()
	for i, p := range payloads {
		rows, err := d.Append(p)
		var no *freshet.RejectError
		if errors.As(err, &no) {
			t.Errorf("record %d: %s %v", i, no.Code, err)
		} else if err != nil || rows == 0 {
			t.Errorf("record %d: got %d rows, %v", i, rows, err)
		}
	}
}
