package delta_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

func twoColumns() *delta.Schema {
	return &delta.Schema{Fields: []delta.Field{
		{Name: "id", Type: delta.Long, Nullable: true}, {Name: "day", Type: delta.Date, Nullable: true}}}
}

func create(t testing.TB, st store.Store, properties map[string]string) *delta.Table {
	t.Helper()
	table, err := delta.Create(context.Background(), st, &delta.CreateOptions{
		Schema: twoColumns(), PartitionBy: []string{"day"}, Properties: properties})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func open(t testing.TB, st store.Store) *delta.Table {
	t.Helper()
	table, err := delta.Open(context.Background(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func snapshot(t testing.TB, table *delta.Table) *delta.Snapshot {
	t.Helper()
	snap, err := table.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

// someFile is a data file that is only in the log.
func someFile(name string) delta.Add {
	day := "2026-01-31"
	return delta.Add{Path: "day=2026-01-31/" + name, PartitionValues: map[string]*string{"day": &day}, Size: 100,
		ModificationTime: 1, DataChange: true,
		Stats: `{"numRecords":3,"minValues":{"id":1},"maxValues":{"id":9},"nullCount":{"id":0}}`}
}

// appendFiles commits files of these names.
func appendFiles(t testing.TB, table *delta.Table, names ...string) delta.CommitResult {
	t.Helper()
	tx := table.Begin(snapshot(t, table), nil)
	for _, name := range names {
		tx.Add(someFile(name))
	}
	tx.BlindAppend(true)
	result, err := tx.Commit(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// names are the paths of the snapshot's files, in order.
func names(t testing.TB, snap *delta.Snapshot) []string {
	t.Helper()
	var list []string
	for a, err := range snap.Files(context.Background(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, strings.TrimPrefix(a.Path, "day=2026-01-31/"))
	}
	slices.Sort(list)
	return list
}

func expectNames(t testing.TB, snap *delta.Snapshot, want ...string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	if got := names(t, snap); !slices.Equal(got, want) {
		t.Errorf("files of version %d: got %v, want %v", snap.Version(), got, want)
	}
}

func TestCreate_PlainSchema_HasLowestProtocol(t *testing.T) {
	st := store.NewMem()
	create(t, st, map[string]string{"delta.appendOnly": "true"})
	snap := snapshot(t, open(t, st))
	p := snap.Protocol()
	if p.MinReaderVersion != 1 || p.MinWriterVersion != 2 || p.ReaderFeatures != nil || p.WriterFeatures != nil {
		t.Errorf("protocol: got %+v, want (1, 2)", *p)
	}
	if snap.Version() != 0 || snap.Property("delta.appendOnly") != "true" ||
		snap.PartitionColumns()[0] != "day" {
		t.Errorf("got version %d, metadata %+v", snap.Version(), snap.Metadata())
	}
	if got, want := snap.Schema().String(), twoColumns().String(); got != want {
		t.Errorf("schema: got %s, want %s", got, want)
	}
}

func TestCreate_Features_AreListedWhereNeeded(t *testing.T) {
	ntz := &delta.Schema{Fields: []delta.Field{{Name: "at", Type: &delta.Array{Element: delta.TimestampNTZ}}}}
	for _, c := range []struct {
		name       string
		schema     *delta.Schema
		properties map[string]string
		want       delta.Protocol
	}{
		{"change feed alone", twoColumns(), map[string]string{"delta.enableChangeDataFeed": "true"},
			delta.Protocol{MinReaderVersion: 1, MinWriterVersion: 4}},
		{"nested timestamp_ntz", ntz, nil, delta.Protocol{MinReaderVersion: 3, MinWriterVersion: 7,
			ReaderFeatures: []string{"timestampNtz"},
			WriterFeatures: []string{"appendOnly", "invariants", "timestampNtz"}}},
		{"in-commit timestamps", twoColumns(), map[string]string{"delta.enableInCommitTimestamps": "true"},
			delta.Protocol{MinReaderVersion: 1, MinWriterVersion: 7,
				WriterFeatures: []string{"appendOnly", "invariants", "inCommitTimestamp"}}},
		{"by name", twoColumns(), map[string]string{"delta.feature.vacuumProtocolCheck": "supported"},
			delta.Protocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{"vacuumProtocolCheck"},
				WriterFeatures: []string{"appendOnly", "invariants", "vacuumProtocolCheck"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			table, err := delta.Create(context.Background(), store.NewMem(),
				&delta.CreateOptions{Schema: c.schema, Properties: c.properties})
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("%+v", *snapshot(t, table).Protocol())
			if want := fmt.Sprintf("%+v", c.want); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			for key := range snapshot(t, table).Metadata().Configuration {
				if strings.HasPrefix(key, "delta.feature.") {
					t.Errorf("%s was kept as a property", key)
				}
			}
		})
	}
}

func TestCreate_TableIsThere_IsRefused(t *testing.T) {
	st := store.NewMem()
	create(t, st, nil)
	_, err := delta.Create(context.Background(), st, &delta.CreateOptions{Schema: twoColumns()})
	if !errors.Is(err, delta.ErrTableExists) {
		t.Errorf("got %v, want ErrTableExists", err)
	}
}

func TestOpen_NoTable_IsAnError(t *testing.T) {
	if _, err := delta.Open(context.Background(), store.NewMem(), nil); !errors.Is(err, delta.ErrNoTable) {
		t.Errorf("got %v, want ErrNoTable", err)
	}
}

func TestCommit_Append_IsWrittenInSparksWords(t *testing.T) {
	st := store.NewMem()
	table := create(t, st, nil)
	tx := table.Begin(snapshot(t, table), nil)
	tx.Add(someFile("a"))
	tx.AddTxn("app-0", 41)
	tx.Operation("STREAMING UPDATE", map[string]string{"outputMode": "Append", "epochId": "7"},
		map[string]string{"numAddedFiles": "1"})
	tx.BlindAppend(true)
	if _, err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	data, err := st.Get(context.Background(), "_delta_log/00000000000000000001.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"operation":"STREAMING UPDATE","operationParameters":{"epochId":"7","outputMode":"Append"},` +
			`"readVersion":0,"isolationLevel":"Serializable","isBlindAppend":true,` +
			`"operationMetrics":{"numAddedFiles":"1"},"engineInfo":"Freshet","txnId":"`,
		`{"txn":{"appId":"app-0","version":41,"lastUpdated":`,
		`{"add":{"path":"day=2026-01-31/a","partitionValues":{"day":"2026-01-31"},"size":100,` +
			`"modificationTime":1,"dataChange":true,"stats":"{\"numRecords\":3,`,
	} {
		if !strings.Contains(string(data), want) {
			t.Errorf("the commit lacks %s:\n%s", want, data)
		}
	}
	if !strings.HasPrefix(string(data), `{"commitInfo":`) {
		t.Errorf("the commit does not begin with its commitInfo:\n%s", data)
	}
}

func TestSnapshot_ManyVersions_EachIsAsItWas(t *testing.T) {
	st := store.NewMem()
	table := create(t, st, nil)
	var all []string
	for i := range 25 {
		all = append(all, fmt.Sprint("f", i))
		appendFiles(t, table, all[i])
		if i == 9 || i == 19 {
			if err := table.Checkpoint(context.Background(), snapshot(t, table)); err != nil {
				t.Fatal(err)
			}
		}
	}
	fresh := open(t, st)
	if got := snapshot(t, fresh).CheckpointVersion(); got != 20 {
		t.Errorf("checkpoint: got %d, want 20", got)
	}
	expectNames(t, snapshot(t, fresh), all...)
	expectNames(t, snapshot(t, table), all...)
	for v := range int64(26) {
		snap, err := fresh.SnapshotAt(context.Background(), v)
		if err != nil {
			t.Fatal(err)
		}
		expectNames(t, snap, all[:v]...)
	}
}

func TestSnapshot_NothingNew_CostsOneRequest(t *testing.T) {
	faulty := storetest.NewFaulty(store.NewMem(), nil)
	table := create(t, faulty, nil)
	snapshot(t, table)
	before := faulty.Calls()
	snapshot(t, table)
	if got := faulty.Calls() - before; got != 1 {
		t.Errorf("got %d requests, want 1", got)
	}
	appendFiles(t, open(t, faulty), "a")
	before = faulty.Count(storetest.OpList)
	expectNames(t, snapshot(t, table), "a")
	if got := faulty.Count(storetest.OpList) - before; got != 0 {
		t.Errorf("got %d listings for a new commit, want none", got)
	}
}

func TestSnapshot_FarBehind_CatchesUp(t *testing.T) {
	for _, n := range []int{1, 8, 9, 30, 250} {
		st := store.NewMem()
		reader, writer := create(t, st, nil), open(t, st)
		var all []string
		for i := range n {
			all = append(all, fmt.Sprint("f", i))
			appendFiles(t, writer, all[i])
		}
		if n > 200 {
			if err := writer.Checkpoint(context.Background(), snapshot(t, writer)); err != nil {
				t.Fatal(err)
			}
		}
		expectNames(t, snapshot(t, reader), all...)
	}
}

func TestSnapshotAt_NotThere_NamesTheVersionsThatAre(t *testing.T) {
	table := create(t, store.NewMem(), nil)
	appendFiles(t, table, "a")
	for _, v := range []int64{2, 1000, -1} {
		_, err := table.SnapshotAt(context.Background(), v)
		var wrong *delta.VersionError
		if !errors.As(err, &wrong) || wrong.First != 0 || wrong.Last != 1 {
			t.Errorf("version %d: got %v, want a VersionError that names 0 to 1", v, err)
		}
	}
}

func TestHistory_Limit_NewestFirst(t *testing.T) {
	table := create(t, store.NewMem(), nil)
	for i := range 20 {
		appendFiles(t, table, fmt.Sprint(i))
	}
	for limit, want := range map[int][]int64{3: {20, 19, 18}, 1: {20}} {
		var got []int64
		for e, err := range table.History(context.Background(), limit) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Timestamp.IsZero() || e.Info.Operation != "WRITE" {
				t.Errorf("entry: %+v", e)
			}
			got = append(got, e.Version)
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: got %v, want %v", limit, got, want)
		}
	}
	n := 0
	for _, err := range table.History(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 21 {
		t.Errorf("without limit: got %d entries, want 21", n)
	}
}

func TestCommit_UnsupportedFeature_IsRefusedByName(t *testing.T) {
	for feature, line := range map[string]string{
		"icebergCompatV1": `{"protocol":{"minReaderVersion":1,"minWriterVersion":7,` +
			`"writerFeatures":["icebergCompatV1"]}}`,
		"version 8": `{"protocol":{"minReaderVersion":1,"minWriterVersion":8}}`,
	} {
		st := store.NewMem()
		create(t, st, nil)
		if err := st.Put(context.Background(), "_delta_log/00000000000000000001.json", []byte(line)); err != nil {
			t.Fatal(err)
		}
		table := open(t, st)
		tx := table.Begin(snapshot(t, table), nil)
		tx.Add(someFile("a"))
		_, err := tx.Commit(context.Background())
		var refused *delta.UnsupportedError
		if !errors.As(err, &refused) || !refused.Write || !strings.Contains(err.Error(), feature) {
			t.Errorf("%s: got %v, want an UnsupportedError that names it", feature, err)
		}
	}
}

func TestCommit_InCommitTimestamps_Increase(t *testing.T) {
	st := store.NewMem()
	table := create(t, st, map[string]string{"delta.enableInCommitTimestamps": "true"})
	for i := range 20 {
		appendFiles(t, table, fmt.Sprint(i))
	}
	last := int64(0)
	times := map[int64]int64{}
	for e, err := range table.History(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		ts := e.Info.InCommitTimestamp
		if ts == nil || last != 0 && *ts >= last {
			t.Fatalf("version %d: in-commit timestamp %v, the next version has %d", e.Version, ts, last)
		}
		last = *ts
		times[e.Version] = *ts
	}
	for v, ms := range maps.All(times) {
		snap, err := table.SnapshotAsOf(context.Background(), timeOf(ms))
		if err != nil || snap.Version() != v {
			t.Errorf("as of %d: got %v, %v; want version %d", ms, snap, err, v)
		}
	}
	_, err := table.SnapshotAsOf(context.Background(), timeOf(times[0]-1))
	if !errors.Is(err, delta.ErrVersionNotFound) {
		t.Errorf("before the first: got %v, want ErrVersionNotFound", err)
	}
	_, err = table.SnapshotAsOf(context.Background(), timeOf(times[20]+1))
	if !errors.Is(err, delta.ErrVersionNotFound) {
		t.Errorf("after the last: got %v, want ErrVersionNotFound", err)
	}
}

func timeOf(ms int64) time.Time { return time.UnixMilli(ms) }
