package lake_test

import (
	"testing"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/lake"
)

func (w *world) txns(t *testing.T) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	for id, txn := range w.snapshot(t, "t").Txns() {
		all[id] = txn.Version
	}
	return all
}

func wantTxns(t *testing.T, got map[string]int64, want map[string]int64) {
	t.Helper()
	for id, v := range want {
		if have, ok := got[id]; !ok || have != v {
			t.Errorf("txn %s: got %d (there: %v), want %d", id, have, ok, v)
		}
	}
}

func TestProgress_OneOrigin_NamesOfKafkaDeltaIngest(t *testing.T) {
	w := newWorld()
	a := w.running(t, nil)
	start(t, a, freshet.Progress{lane0: -1, lane1: 7})
	commit(t, a, batch(lane0, -1, 4))
	wantTxns(t, w.txns(t), map[string]int64{
		"test.app-0": 4, "test.app-1": 7, "test.app-o#id-1": 1, "test.app#form": 1})
}

// The form changes while a process that knows the old one holds a sealed commit.
func TestProgress_FormChanges_ProgressKeptAndOldProcessFenced(t *testing.T) {
	w := newWorld()
	old := w.running(t, nil)
	start(t, old, freshet.Progress{lane0: -1, lane1: 7})
	commit(t, old, batch(lane0, -1, 4))
	late := sealed(t, old, batch(lane0, 4, 9))

	many := w.running(t, &lake.TargetOptions{ManyOrigins: true})
	p := start(t, many, freshet.Progress{lane0: -1, lane1: -1})
	if p[lane0] != 4 || p[lane1] != 7 {
		t.Errorf("got %v, want the progress 4 and 7 in the new form", p)
	}
	wantTxns(t, w.txns(t), map[string]int64{"test.app-o-0": 4, "test.app-o-1": 7, "test.app#form": 2})
	_, err := late.Run(t.Context())
	wantStale(t, err)
	commit(t, many, batch(lane0, 4, 6))

	back := w.running(t, nil)
	p = start(t, back, freshet.Progress{lane0: -1, lane1: -1})
	if p[lane0] != 6 || p[lane1] != 7 {
		t.Errorf("got %v, want the progress 6 and 7 in the old form again", p)
	}
	commit(t, back, batch(lane0, 6, 9))
	rows := w.rows(t, "t")
	freshettest.CheckOnce(t, "rows", rows, map[string][]int64{lane0.String(): {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}})
}

func TestProgress_TwoOriginsToFormOfOne_Refused(t *testing.T) {
	w := newWorld()
	other := freshet.Lane{Origin: "p", OriginID: "id-9", Name: "0"}
	start(t, w.running(t, &lake.TargetOptions{ManyOrigins: true}), freshet.Progress{lane0: -1, other: -1})
	_, err := w.running(t, nil).Resume(t.Context(), "t", []freshet.Lane{lane0})
	wantCode(t, err, freshet.CodeBadValue)
}

// A table of kafka-delta-ingest has txns of partitions and nothing else of ours.
func TestProgress_TableOfKafkaDeltaIngest_TakenOver(t *testing.T) {
	w := newWorld()
	start(t, w.running(t, nil), nil)
	w.foreign(t, func(tx *delta.Transaction, _ *delta.Snapshot) {
		tx.AddTxn("test.app-0", 41)
		tx.AddTxn("test.app-1", 7)
	})
	a := w.running(t, nil)
	p, err := a.Resume(t.Context(), "t", []freshet.Lane{lane0, lane1})
	must(t, err)
	if p[lane0] != 41 || p[lane1] != 7 {
		t.Errorf("got %v, want 41 and 7", p)
	}
	commit(t, a, batch(lane0, 41, 43))
	wantTxns(t, w.txns(t), map[string]int64{
		"test.app-0": 43, "test.app-1": 7, "test.app-o#id-1": 1, "test.app#form": 1})
}

func TestProgress_OriginMadeAgain_OnlyAfterSet(t *testing.T) {
	w := newWorld()
	a := w.running(t, nil)
	start(t, a, freshet.Progress{lane0: -1, lane1: -1})
	commit(t, a, batch(lane0, -1, 4))
	again := lane0
	again.OriginID = "id-2"
	_, err := a.Resume(t.Context(), "t", []freshet.Lane{again})
	wantCode(t, err, freshet.CodeOriginChanged)
	_, err = lake.SetProgress(t.Context(), w.store("t"), app, freshet.Progress{again: 1}, nil)
	wantCode(t, err, freshet.CodeOriginChanged)
	_, err = lake.SetProgress(t.Context(), w.store("t"), app, freshet.Progress{again: 1},
		&lake.SetOptions{NewOrigin: true})
	must(t, err)
	p, err := a.Resume(t.Context(), "t", []freshet.Lane{again})
	must(t, err)
	if p[again] != 1 {
		t.Errorf("got %v, want 1", p)
	}
	wantTxns(t, w.txns(t), map[string]int64{
		"test.app-0": 1, "test.app-1": -1, "test.app-o#id-1": 0, "test.app-o#id-2": 1})
	_, err = a.Resume(t.Context(), "t", []freshet.Lane{lane0})
	wantCode(t, err, freshet.CodeOriginChanged)
	commit(t, a, batch(again, 1, 3))
}

func TestSetProgress_WhilePipelineRuns_CommitIsStale(t *testing.T) {
	w := newWorld()
	a := w.running(t, nil)
	start(t, a, freshet.Progress{lane0: -1})
	c := sealed(t, a, batch(lane0, -1, 4))
	_, err := lake.SetProgress(t.Context(), w.store("t"), app, freshet.Progress{lane0: 100}, nil)
	must(t, err)
	_, err = c.Run(t.Context())
	wantStale(t, err)
}

func TestReadProgress_SeveralApps_Each(t *testing.T) {
	w := newWorld()
	a := w.running(t, nil)
	start(t, a, freshet.Progress{lane0: 3, freshettest.Lane(10): 4, freshettest.Lane(2): 5})
	w.foreign(t, func(tx *delta.Transaction, _ *delta.Snapshot) {
		tx.AddTxn("kdi-0", 41)
		tx.AddTxn("0b5e7d0e-1111-4222-8333-444455556666", 12)
	})
	all, err := lake.ReadProgress(t.Context(), w.store("t"))
	must(t, err)
	if len(all) != 3 || !all[0].Foreign || all[1].App != "kdi" || all[2].App != app {
		t.Fatalf("got %+v, want a foreign one, kdi and %s", all, app)
	}
	got := all[2].Lanes
	if len(got) != 3 || got[0].Seq != 3 || got[1].Lane.Name != "2" || got[2].Lane.String() != "o[10]" ||
		got[0].Lane.OriginID != "id-1" || got[0].Updated.IsZero() {
		t.Errorf("got %+v, want the lanes 0, 2 and 10 with their identity", got)
	}
}

// checkpoint writes the files of a Spark checkpoint whose query planned two batches.
func checkpoint(t *testing.T, w *world, committed bool) {
	t.Helper()
	files := map[string]string{
		"metadata":         `{"id":"query-1"}`,
		"offsets/0":        "v1\n{\"batchWatermarkMs\":0}\n{\"o\":{\"0\":3,\"1\":0}}",
		"offsets/1":        "v1\n{\"batchWatermarkMs\":0}\n{\"o\":{\"0\":8,\"1\":2}}\n",
		"offsets/.1.crc":   "crc",
		"commits/0":        "v1\n{\"nextBatchWatermarkMs\":0}",
		"sources/0/0":      "x",
		"offsets/.9.x.tmp": "x",
	}
	if committed {
		files["commits/1"] = "v1\n{}"
	}
	for key, text := range files {
		must(t, w.store("checkpoint").Put(t.Context(), key, []byte(text)))
	}
}

func TestImportSpark_LastBatch_SettledBySink(t *testing.T) {
	for name, c := range map[string]struct {
		committed bool
		landed    int64
		want      [2]int64
	}{
		"committed":                 {true, 1, [2]int64{7, 1}},
		"landed and not committed":  {false, 1, [2]int64{7, 1}},
		"not landed, not committed": {false, 0, [2]int64{2, -1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			checkpoint(t, w, c.committed)
			start(t, w.running(t, nil), nil)
			w.foreign(t, func(tx *delta.Transaction, _ *delta.Snapshot) { tx.AddTxn("query-1", c.landed) })
			_, _, err := lake.ImportSpark(t.Context(), w.store("checkpoint"), w.store("t"), app, nil)
			must(t, err)
			p := start(t, w.running(t, nil), freshet.Progress{lane0: 99, lane1: 99})
			if p[lane0] != c.want[0] || p[lane1] != c.want[1] {
				t.Errorf("got %v, want %v", p, c.want)
			}
		})
	}
}

func TestImportSpark_OneTopicForAPipelineOfSeveral_GoesOnThere(t *testing.T) {
	w := newWorld()
	checkpoint(t, w, true)
	many := &lake.TargetOptions{ManyOrigins: true}
	start(t, w.running(t, many), nil)
	w.foreign(t, func(tx *delta.Transaction, _ *delta.Snapshot) { tx.AddTxn("query-1", 1) })
	_, _, err := lake.ImportSpark(t.Context(), w.store("checkpoint"), w.store("t"), app,
		&lake.SetOptions{ManyOrigins: true})
	must(t, err)
	other := freshet.Lane{Origin: "other", OriginID: "id-of-other", Name: "0"}
	p := start(t, w.running(t, many), freshet.Progress{lane0: 99, lane1: 99, other: 5})
	if p[lane0] != 7 || p[lane1] != 1 || p[other] != 5 {
		t.Errorf("got %v, want the query's 7 and 1, and the other topic's own start", p)
	}
}

func TestImportSpark_Wrong_Refused(t *testing.T) {
	w := newWorld()
	start(t, w.running(t, nil), nil)
	ctx := t.Context()
	_, err := lake.ReadSpark(ctx, w.store("checkpoint"), w.store("t"))
	wantCode(t, err, freshet.CodeBadValue) // no checkpoint at all
	checkpoint(t, w, true)
	_, err = lake.ReadSpark(ctx, w.store("checkpoint"), w.store("t"))
	wantCode(t, err, freshet.CodeBadValue) // another sink
	w.foreign(t, func(tx *delta.Transaction, _ *delta.Snapshot) { tx.AddTxn("query-1", 5) })
	_, err = lake.ReadSpark(ctx, w.store("checkpoint"), w.store("t"))
	wantCode(t, err, freshet.CodeBadValue) // an old copy
	must(t, w.store("checkpoint").Put(ctx, "offsets/5", []byte("v1\n{}\n{\"reservoirVersion\":3}")))
	_, err = lake.ReadSpark(ctx, w.store("checkpoint"), w.store("t"))
	wantCode(t, err, freshet.CodeBadValue) // no Kafka source
}

func TestImportSpark_Again_NoCommit(t *testing.T) {
	w := newWorld()
	checkpoint(t, w, true)
	start(t, w.running(t, nil), nil)
	w.foreign(t, func(tx *delta.Transaction, _ *delta.Snapshot) { tx.AddTxn("query-1", 1) })
	var versions [2]int64
	for i := range versions {
		var err error
		_, versions[i], err = lake.ImportSpark(t.Context(), w.store("checkpoint"), w.store("t"), app, nil)
		must(t, err)
	}
	if versions[0] != versions[1] {
		t.Errorf("got versions %v, want the same", versions)
	}
}

func TestImportSpark_ProgressThereAlready_Refused(t *testing.T) {
	w := newWorld()
	checkpoint(t, w, true)
	start(t, w.running(t, nil), freshet.Progress{lane0: 2})
	w.foreign(t, func(tx *delta.Transaction, _ *delta.Snapshot) { tx.AddTxn("query-1", 1) })
	_, _, err := lake.ImportSpark(t.Context(), w.store("checkpoint"), w.store("t"), app, nil)
	wantCode(t, err, freshet.CodeBadValue)
}
