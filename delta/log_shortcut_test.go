package delta_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

// longLog makes a table of 20 versions: each adds a file, every third removes one, all tell progress.
func longLog(t *testing.T) *store.Mem {
	t.Helper()
	st := store.NewMem()
	table, err := delta.Create(context.Background(), st, &delta.CreateOptions{Schema: fields("id", delta.Long)})
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 20; i++ {
		tx := table.Begin(snapshot(t, table), nil)
		tx.Add(delta.Add{Path: fmt.Sprint("f", i), PartitionValues: map[string]*string{}, Size: int64(i), DataChange: true})
		if i%3 == 0 {
			tx.Remove(delta.Remove{Path: fmt.Sprint("f", i-1), DataChange: true})
		}
		tx.AddTxn("app", int64(i))
		if _, err := tx.Commit(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	return st
}

// stateText is all that a snapshot says.
func stateText(t *testing.T, snap *delta.Snapshot) string {
	t.Helper()
	files := map[string]int64{}
	for a, err := range snap.Files(context.Background(), nil) {
		if err != nil {
			t.Fatal(err)
		}
		files[a.Path] = a.Size
	}
	txns := map[string]int64{}
	for app, x := range snap.Txns() {
		txns[app] = x.Version
	}
	return fmt.Sprint(snap.Version(), files, txns, len(snap.DomainMetadata()), snap.Metadata().SchemaString)
}

func logKey(format string, v ...any) string { return fmt.Sprintf("_delta_log/"+format, v...) }

// compact writes a compacted file of versions as the protocol has it: of each file, application and so on the last action.
func compact(t *testing.T, st store.Store, first, last int) string {
	t.Helper()
	latest, order := map[string]string{}, []string{}
	for v := first; v <= last; v++ {
		data, err := st.Get(context.Background(), logKey("%020d.json", v))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
			var a map[string]struct{ Path, AppID string }
			if err := json.Unmarshal([]byte(line), &a); err != nil {
				t.Fatal(err)
			}
			for kind, x := range a {
				if kind == "commitInfo" {
					continue
				}
				key := "file " + x.Path
				if x.Path == "" {
					key = kind + x.AppID
				}
				if _, ok := latest[key]; !ok {
					order = append(order, key)
				}
				latest[key] = line
			}
		}
	}
	var text strings.Builder
	for _, key := range order {
		text.WriteString(latest[key] + "\n")
	}
	name := logKey("%020d.%020d.compacted.json", first, last)
	if err := st.Put(context.Background(), name, []byte(text.String())); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestOpen_CompactedFiles_StandForTheirCommits(t *testing.T) {
	st := longLog(t)
	want := stateText(t, snapshot(t, open(t, st)))
	wantAt := map[int64]string{}
	for v := range int64(20) {
		snap, err := open(t, st).SnapshotAt(context.Background(), v)
		if err != nil {
			t.Fatal(err)
		}
		wantAt[v] = stateText(t, snap)
	}
	compact(t, st, 2, 4)
	compact(t, st, 2, 9)
	compact(t, st, 10, 13)
	compact(t, st, 12, 17)
	for v, want := range wantAt {
		snap, err := open(t, st).SnapshotAt(context.Background(), v)
		if err != nil {
			t.Fatal(err)
		}
		if got := stateText(t, snap); got != want {
			t.Errorf("version %d: got %s, want %s", v, got, want)
		}
	}
	for _, v := range []int{3, 5, 8, 9, 11, 12} { // the compacted files are what is read
		if err := st.Delete(context.Background(), logKey("%020d.json", v)); err != nil {
			t.Fatal(err)
		}
	}
	if got := stateText(t, snapshot(t, open(t, st))); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestOpen_DamagedCompactedFile_GivesWayToCommits(t *testing.T) {
	for _, damage := range []string{"", "{", "{\"add\":{\"path\":\"x\"}}\n{\"add\":{\"size\":3}}", "no JSON"} {
		st := longLog(t)
		want := stateText(t, snapshot(t, open(t, st)))
		if err := st.Put(context.Background(), compact(t, st, 2, 9), []byte(damage)); err != nil {
			t.Fatal(err)
		}
		if got := stateText(t, snapshot(t, open(t, st))); got != want {
			t.Errorf("%q: got %s, want %s", damage, got, want)
		}
	}
}

// putChecksum writes the .crc of version 19 after changing it.
func putChecksum(t *testing.T, st store.Store, change func(sum map[string]any)) {
	t.Helper()
	snap := snapshot(t, open(t, st))
	data, err := st.Get(context.Background(), logKey("%020d.json", 19))
	if err != nil {
		t.Fatal(err)
	}
	var first struct{ CommitInfo struct{ TxnID string } }
	line, _, _ := strings.Cut(string(data), "\n")
	if err := json.Unmarshal([]byte(line), &first); err != nil {
		t.Fatal(err)
	}
	m, p := snap.Metadata(), snap.Protocol()
	sum := map[string]any{"txnId": first.CommitInfo.TxnID, "numFiles": 13, "tableSizeBytes": 133,
		"protocol": map[string]any{"minReaderVersion": p.MinReaderVersion, "minWriterVersion": p.MinWriterVersion},
		"metadata": map[string]any{"id": m.ID, "format": map[string]any{"provider": "parquet"}, "schemaString": m.SchemaString,
			"partitionColumns": []string{}, "configuration": map[string]string{}},
		"setTransactions": []any{map[string]any{"appId": "app", "version": 19}}, "domainMetadata": []any{}}
	change(sum)
	text, err := json.Marshal(sum)
	if err == nil {
		err = st.Put(context.Background(), logKey("%020d.crc", 19), text)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestOpen_Checksum_SavesReadingCommits(t *testing.T) {
	st := longLog(t)
	want := stateText(t, snapshot(t, open(t, st)))
	putChecksum(t, st, func(map[string]any) {})
	counted := storetest.NewFaulty(st, nil)
	snap := snapshot(t, open(t, counted))
	if got := counted.Count(storetest.OpGet); got > 5 {
		t.Errorf("got %d reads, want a hint, a checksum, its commit and a look for the next", got)
	}
	if got := stateText(t, snap); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestOpen_ChecksumThatIsNoneOfTheVersion_GivesWayToCommits(t *testing.T) {
	for name, change := range map[string]func(map[string]any){
		"txnId":    func(s map[string]any) { s["txnId"] = "another" },
		"no txnId": func(s map[string]any) { delete(s, "txnId") },
		"no txns":  func(s map[string]any) { delete(s, "setTransactions") },
		"metadata": func(s map[string]any) { s["metadata"] = nil },
		"protocol": func(s map[string]any) { s["protocol"] = "x" },
	} {
		st := longLog(t)
		want := stateText(t, snapshot(t, open(t, st)))
		putChecksum(t, st, change)
		if got := stateText(t, snapshot(t, open(t, st))); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
