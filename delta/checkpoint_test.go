package delta_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	parquetgo "github.com/parquet-go/parquet-go"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// checkpointRows reads the newest checkpoint with another implementation.
func checkpointRows(t *testing.T, st store.Store, version int64) []map[string]any {
	t.Helper()
	data, err := st.Get(context.Background(), fmt.Sprintf("_delta_log/%020d.checkpoint.parquet", version))
	if err != nil {
		t.Fatal(err)
	}
	file, err := parquetgo.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	r := parquetgo.NewGenericReader[map[string]any](file, file.Schema())
	rows := make([]map[string]any, file.NumRows())
	for i := range rows {
		rows[i] = map[string]any{}
	}
	if n, err := r.Read(rows); n != len(rows) {
		t.Fatalf("read %d of %d rows: %v", n, len(rows), err)
	}
	return rows
}

func checkpoint(t *testing.T, table *delta.Table) {
	t.Helper()
	if err := table.Checkpoint(context.Background(), snapshot(t, table)); err != nil {
		t.Fatal(err)
	}
}

func indexedTypes() *delta.Schema {
	f := func(name string, typ delta.Type) delta.Field {
		return delta.Field{Name: name, Type: typ, Nullable: true}
	}
	return &delta.Schema{Fields: []delta.Field{
		f("p", delta.Integer), f("b", delta.Byte), f("i", delta.Integer), f("l", delta.Long), f("f", delta.Float),
		f("d", delta.Double), f("t", delta.Boolean), f("s", delta.String), f("x", delta.Binary),
		f("day", delta.Date),
		f("at", delta.Timestamp), f("small", delta.Decimal{Precision: 9, Scale: 2}),
		f("wide", delta.Decimal{Precision: 38, Scale: 10}),
		f("n", &delta.Struct{Fields: []delta.Field{
			f("s", delta.String), f("list", &delta.Array{Element: delta.Long})}}),
		f("m", &delta.Map{Key: delta.String, Value: delta.Long}),
	}}
}

const allStats = `{"numRecords":5,` +
	`"minValues":{"b":-7,"i":-8,"l":-9007199254740993,"f":-1.5,"d":-2.25e10,"s":"ä\"\\","day":"1969-12-31",` +
	`"at":"2023-06-15T12:30:00.123Z","small":-12345.67,"wide":12345678901234567890.0123456789,"n":{"s":"a"}},` +
	`"maxValues":{"b":7,"i":8,"l":9007199254740993,"f":1.5,"d":2.25e10,"s":"ü","day":"2026-01-31",` +
	`"at":"2024-06-15T12:30:00.000Z","small":12345.67,"wide":99999999999999999999.0123456789,"n":{"s":"z"}},` +
	`"nullCount":{"b":0,"i":0,"l":0,"f":0,"d":0,"t":1,"s":2,"x":3,"day":0,"at":0,"small":0,"wide":0,` +
	`"n":{"s":0,"list":4},"m":5}}`

func TestCheckpoint_Statistics_SurviveAsJSONAndAsColumns(t *testing.T) {
	for _, asJSON := range []string{"true", "false"} {
		t.Run("writeStatsAsJson="+asJSON, func(t *testing.T) {
			st := store.NewMem()
			table, err := delta.Create(context.Background(), st, &delta.CreateOptions{Schema: indexedTypes(),
				PartitionBy: []string{"p"}, Properties: map[string]string{"delta.checkpoint.writeStatsAsJson": asJSON}})
			if err != nil {
				t.Fatal(err)
			}
			tx := table.Begin(snapshot(t, table), nil)
			p := "42"
			tx.Add(delta.Add{Path: "a", PartitionValues: map[string]*string{"p": &p}, Size: 1, Stats: allStats},
				delta.Add{Path: "b", PartitionValues: map[string]*string{"p": nil}, Size: 2})
			if _, err := tx.Commit(context.Background()); err != nil {
				t.Fatal(err)
			}
			checkpoint(t, table)
			found := map[string]*delta.Add{}
			fresh := snapshot(t, open(t, st))
			for a, err := range fresh.Files(context.Background(), &delta.FilesOptions{Stats: true}) {
				if err != nil {
					t.Fatal(err)
				}
				found[a.Path] = a
			}
			if a := found["a"]; *a.PartitionValues["p"] != "42" || !sameJSON(t, a.Stats, allStats) {
				t.Errorf("a: got partition %v and statistics\n%s, want\n%s", *a.PartitionValues["p"], a.Stats, allStats)
			}
			if b := found["b"]; b.PartitionValues["p"] != nil || b.Stats != "" {
				t.Errorf("b: got %+v", *b)
			}
			checkParsedStats(t, checkpointRows(t, st, 1), asJSON == "true")
		})
	}
}

func checkParsedStats(t *testing.T, rows []map[string]any, hasJSON bool) {
	t.Helper()
	n := 0
	for _, row := range rows {
		add, ok := row["add"].(map[string]any)
		if !ok || add["path"] == nil || string(asBytes(add["path"])) != "a" {
			continue
		}
		n++
		if got := add["partitionValues_parsed"].(map[string]any)["p"]; got != int32(42) {
			t.Errorf("partitionValues_parsed: got %v, want 42", got)
		}
		stats := add["stats_parsed"].(map[string]any)
		low := stats["minValues"].(map[string]any)
		for name, want := range map[string]any{"l": int64(-9007199254740993), "i": int32(-8), "f": float32(-1.5),
			"d": -2.25e10, "small": float32(-12345.67), "day": int32(-1)} {
			if got := low[name]; got != want {
				t.Errorf("minValues.%s: got %v (%T), want %v", name, got, got, want)
			}
		}
		if got := stats["numRecords"]; got != int64(5) {
			t.Errorf("numRecords: got %v, want 5", got)
		}
		if _, ok := add["stats"]; ok != hasJSON {
			t.Errorf("the column stats is there: %v, want %v", ok, hasJSON)
		}
	}
	if n != 1 {
		t.Errorf("file a is in %d rows, want 1", n)
	}
}

func asBytes(v any) []byte {
	switch v := v.(type) {
	case []byte:
		return v
	case string:
		return []byte(v)
	}
	return nil
}

// sameJSON compares JSON texts; numbers are compared as they are written, but for floats.
func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	parse := func(text string) (v any) {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		return plain(v)
	}
	return reflect.DeepEqual(parse(a), parse(b))
}

func plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = plain(v[k])
		}
	case string:
		if at, err := time.Parse("2006-01-02T15:04:05.999999Z", v); err == nil {
			return at.UTC().String()
		}
	case json.Number:
		if f, err := v.Float64(); err == nil && strings.ContainsAny(v.String(), "eE") {
			return f
		}
		if strings.HasSuffix(v.String(), "e+10") {
			return 0
		}
	}
	return v
}

func TestCheckpoint_RemovedFiles_StayForTheirRetention(t *testing.T) {
	st := store.NewMem()
	table := create(t, st, nil)
	appendFiles(t, table, "kept", "old", "new", "undated")
	long, recent := time.Now().Add(-8*24*time.Hour).UnixMilli(), time.Now().Add(-6*24*time.Hour).UnixMilli()
	never := int64(0)
	tx := table.Begin(snapshot(t, table), nil)
	for name, at := range map[string]*int64{"old": &long, "new": &recent, "undated": &never} {
		tx.Remove(delta.Remove{Path: "day=2026-01-31/" + name, DeletionTimestamp: at, DataChange: true})
	}
	if _, err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	checkpoint(t, table)
	expectNames(t, snapshot(t, open(t, st)), "kept")
	var removes []string
	for _, row := range checkpointRows(t, st, 2) {
		if r, ok := row["remove"].(map[string]any); ok && r["path"] != nil {
			removes = append(removes, string(asBytes(r["path"])))
		}
	}
	if fmt.Sprint(removes) != "[day=2026-01-31/new]" {
		t.Errorf("tombstones: got %v, want only new", removes)
	}
	appendFiles(t, table, "old") // a file may come back
	checkpoint(t, table)
	expectNames(t, snapshot(t, open(t, st)), "kept", "old")
}

func TestCheckpoint_Progress_IsKept(t *testing.T) {
	st := store.NewMem()
	table := create(t, st, nil)
	for i := range 50 {
		tx := table.Begin(snapshot(t, table), nil)
		tx.AddTxn(fmt.Sprint("app-", i%7), int64(i))
		tx.SetDomainMetadata(delta.DomainMetadata{Domain: fmt.Sprint("d", i%3), Configuration: fmt.Sprint(i),
			Removed: i == 48})
		if _, err := tx.Commit(context.Background()); err != nil {
			t.Fatal(err)
		}
		if i%9 == 8 {
			checkpoint(t, table)
		}
	}
	checkpoint(t, table)
	want := snapshot(t, table)
	got := snapshot(t, open(t, st))
	if got.CheckpointVersion() != 50 || len(got.Txns()) != 7 || len(got.DomainMetadata()) != 2 ||
		!reflect.DeepEqual(got.Txns(), want.Txns()) ||
		!reflect.DeepEqual(got.DomainMetadata(), want.DomainMetadata()) {
		t.Errorf("got checkpoint %d, %v, %v; want %v, %v", got.CheckpointVersion(),
			got.Txns(), got.DomainMetadata(), want.Txns(), want.DomainMetadata())
	}
}

// spoilFooter changes the first byte of a Parquet file's footer.
func spoilFooter(d []byte) []byte {
	d[len(d)-8-int(binary.LittleEndian.Uint32(d[len(d)-8:]))] ^= 0xff
	return d
}

func TestOpen_CheckpointBroken_OlderOneAndCommitsMakeUpForIt(t *testing.T) {
	for name, spoil := range map[string]func(data []byte) []byte{
		"cut short":      func(d []byte) []byte { return d[:len(d)*2/3] },
		"empty":          func([]byte) []byte { return nil },
		"footer flipped": spoilFooter,
		"pages flipped": func(d []byte) []byte {
			for i := 4; i < len(d)/2; i++ {
				d[i] ^= 0x55
			}
			return d
		},
		"another's format": func([]byte) []byte { return []byte("not a Parquet file at all") },
		"gone":             nil,
	} {
		t.Run(name, func(t *testing.T) {
			st := store.NewMem()
			table := create(t, st, nil)
			var all []string
			for i := range 12 {
				all = append(all, fmt.Sprint("f", i))
				appendFiles(t, table, all[i])
				if i == 3 || i == 8 {
					checkpoint(t, table)
				}
			}
			key := "_delta_log/00000000000000000009.checkpoint.parquet"
			if spoil == nil {
				if err := st.Delete(context.Background(), key); err != nil {
					t.Fatal(err)
				}
			} else {
				data, err := st.Get(context.Background(), key)
				if err != nil {
					t.Fatal(err)
				}
				if err := st.Put(context.Background(), key, spoil(data)); err != nil {
					t.Fatal(err)
				}
			}
			snap := snapshot(t, open(t, st))
			if snap.CheckpointVersion() != 4 {
				t.Errorf("checkpoint: got %d, want 4", snap.CheckpointVersion())
			}
			expectNames(t, snap, all...)
		})
	}
}

func TestOpen_CheckpointBrokenAndCommitsGone_NamesTheCheckpoint(t *testing.T) {
	st := store.NewMem()
	table := create(t, st, nil)
	appendFiles(t, table, "a")
	checkpoint(t, table)
	appendFiles(t, table, "b")
	for _, name := range []string{"00000000000000000000.json", "00000000000000000001.json"} {
		if err := st.Delete(context.Background(), "_delta_log/"+name); err != nil {
			t.Fatal(err)
		}
	}
	expectNames(t, snapshot(t, open(t, st)), "a", "b")
	key := "_delta_log/00000000000000000001.checkpoint.parquet"
	if err := st.Put(context.Background(), key, []byte("PAR1")); err != nil {
		t.Fatal(err)
	}
	_, err := delta.Open(context.Background(), st, nil)
	if !errors.Is(err, delta.ErrCorrupt) || !strings.Contains(err.Error(), key) {
		t.Errorf("got %v, want ErrCorrupt that names the checkpoint", err)
	}
}

func TestOpen_CommitMissing_IsAnError(t *testing.T) {
	st := store.NewMem()
	table := create(t, st, nil)
	appendFiles(t, table, "a")
	appendFiles(t, table, "b")
	if err := st.Delete(context.Background(), "_delta_log/00000000000000000001.json"); err != nil {
		t.Fatal(err)
	}
	_, err := delta.Open(context.Background(), st, nil)
	if !errors.Is(err, delta.ErrCorrupt) || !strings.Contains(err.Error(), "version 1") {
		t.Errorf("got %v, want ErrCorrupt that names version 1", err)
	}
}

func TestOpen_LastCheckpointWrong_IsOnlyAHint(t *testing.T) {
	for _, hint := range []string{"", "{", `{"version":77}`, `{"version":4}`, `{"version":-3}`,
		`{"version":"x"}`, `{"version":9,"checksum":"0123"}`, `{"version":9,"size":1,"parts":3}`} {
		st := store.NewMem()
		table := create(t, st, nil)
		var all []string
		for i := range 12 {
			all = append(all, fmt.Sprint("f", i))
			appendFiles(t, table, all[i])
			if i == 3 || i == 8 {
				checkpoint(t, table)
			}
		}
		if err := st.Put(context.Background(), "_delta_log/_last_checkpoint", []byte(hint)); err != nil {
			t.Fatal(err)
		}
		snap := snapshot(t, open(t, st))
		if snap.CheckpointVersion() != 9 {
			t.Errorf("hint %s: got checkpoint %d, want 9", hint, snap.CheckpointVersion())
		}
		expectNames(t, snap, all...)
	}
}

func TestCheckpointPolicy_LogSize_SpacesCheckpoints(t *testing.T) {
	st := store.NewMem()
	table := create(t, st, nil)
	tx := table.Begin(snapshot(t, table), nil)
	for i := range 4_000 {
		tx.Add(someFile(fmt.Sprintf("part-%05d-%x", i, i*7919*104729)))
	}
	result, err := tx.Commit(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	policy := &delta.CheckpointPolicy{BytesPerCommit: 8 << 10}
	var at []int64
	for snap := result.Snapshot; snap.Version() < 200; {
		snap = appendFiles(t, table, fmt.Sprint("f", snap.Version())).Snapshot
		if policy.Due(snap) {
			at = append(at, snap.Version())
			if err := table.Checkpoint(context.Background(), snap); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(at) < 2 || at[0] > 10 {
		t.Fatalf("checkpoints at %v", at)
	}
	for i := 1; i < len(at); i++ {
		if gap := at[i] - at[i-1]; gap < 10 || gap > 100 {
			t.Errorf("checkpoints at %v", at)
		}
	}
}

func TestCheckpointPolicy_IntervalSet_IsObeyed(t *testing.T) {
	table := create(t, store.NewMem(), map[string]string{"delta.checkpointInterval": "3"})
	var policy *delta.CheckpointPolicy
	for v := range int64(7) {
		snap := snapshot(t, table)
		if due := policy.Due(snap); due != (v >= 2) {
			t.Errorf("version %d, no checkpoint: due is %v", v, due)
		}
		appendFiles(t, table, fmt.Sprint(v))
	}
}

func TestCheckpoint_UnknownColumn_IsNotLost(t *testing.T) {
	type path struct {
		Path  string `parquet:"path,optional"`
		Extra string `parquet:"lease,optional"`
	}
	type protocol struct {
		Reader int32 `parquet:"minReaderVersion"`
		Writer int32 `parquet:"minWriterVersion"`
	}
	type metadata struct {
		ID     string `parquet:"id"`
		Schema string `parquet:"schemaString"`
	}
	type row struct {
		Add      *path     `parquet:"add,optional"`
		Protocol *protocol `parquet:"protocol,optional"`
		Metadata *metadata `parquet:"metaData,optional"`
	}
	var file bytes.Buffer
	w := parquetgo.NewGenericWriter[row](&file)
	_, err := w.Write([]row{{Protocol: &protocol{1, 2}}, {Metadata: &metadata{"id", twoColumns().String()}},
		{Add: &path{"a", "until tomorrow"}}})
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	st := store.NewMem()
	key := "_delta_log/00000000000000000005.checkpoint.parquet"
	if err := st.Put(context.Background(), key, file.Bytes()); err != nil {
		t.Fatal(err)
	}
	table := open(t, st)
	expectNames(t, snapshot(t, table), "a")
	appendFiles(t, table, "b")
	err = table.Checkpoint(context.Background(), snapshot(t, table))
	if err == nil || !strings.Contains(err.Error(), "add.lease") {
		t.Errorf("got %v, want an error that names add.lease", err)
	}
}
