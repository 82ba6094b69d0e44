package delta_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// statsOf describes a file whose rows are all the number i in each of its columns.
func statsOf(i int) (stats string, values map[string]string) {
	at := time.UnixMicro(int64(i) * 86_400_123_456).UTC()
	ms := at.Format("2006-01-02T15:04:05.000")
	values = map[string]string{
		"l": fmt.Sprint(i), "s": fmt.Sprintf("'k%03d'", i+500), "d": at.Format("DATE '2006-01-02'"),
		"t": at.Format("TIMESTAMP '2006-01-02 15:04:05.000000'"), "n": at.Format("CAST('2006-01-02 15:04:05.000000' AS TIMESTAMP_NTZ)"),
		"st.l": fmt.Sprint(i), "f": fmt.Sprintf("%d.5", i),
	}
	bounds := fmt.Sprintf(`{"l":%d,"s":"k%03d","d":"%s","t":"%sZ","n":"%s","st":{"l":%d},"f":%d.5}`, i, i+500,
		at.Format("2006-01-02"), ms, ms, i, i)
	return fmt.Sprintf(`{"numRecords":3,"minValues":%s,"maxValues":%s,"nullCount":{"l":0}}`, bounds, bounds), values
}

// TestMatching_RandomConditions_NoFileTooFew checks that pruning, in commits and in checkpoints with statistics as JSON or
// as columns, keeps each file that has a matching row and leaves out those that have none.
func TestMatching_RandomConditions_NoFileTooFew(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	ctx := context.Background()
	schema := fields("l", delta.Long, "s", delta.String, "d", delta.Date, "t", delta.Timestamp, "n", delta.TimestampNTZ,
		"st", &delta.Struct{Fields: fields("l", delta.Long).Fields}, "f", delta.Double)
	for _, form := range []string{"commits", "json", "columns"} {
		properties := map[string]string{"delta.checkpoint.writeStatsAsJson": fmt.Sprint(form == "json"),
			"delta.checkpoint.writeStatsAsStruct": fmt.Sprint(form == "columns")}
		table, err := delta.Create(ctx, store.NewMem(), &delta.CreateOptions{Schema: schema, Properties: properties})
		if err != nil {
			t.Fatal(err)
		}
		snap := snapshot(t, table)
		tx := snap.Table().Begin(snap, nil)
		for i := -400; i < 400; i++ {
			stats, _ := statsOf(i)
			tx.Add(delta.Add{Path: fmt.Sprint("f", i), PartitionValues: map[string]*string{}, Size: int64(i + 1000), Stats: stats,
				DataChange: true})
		}
		tx.Add(delta.Add{Path: "unknown", PartitionValues: map[string]*string{}, Size: 1, DataChange: true})
		r, err := tx.Commit(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if snap = r.Snapshot; form != "commits" {
			if err := snap.Table().Checkpoint(ctx, snap); err != nil {
				t.Fatal(err)
			}
			snap = snapshot(t, open(t, snap.Table().Store()))
		}
		if want := int64(-1); (snap.CheckpointVersion() == want) != (form == "commits") {
			t.Fatalf("checkpoint version %d", snap.CheckpointVersion())
		}
		for range 70 {
			a, b := rng.IntN(800)-400, rng.IntN(800)-400
			column := []string{"l", "s", "d", "t", "n", "st.l", "f"}[rng.IntN(7)]
			op := []string{"=", "<", "<=", ">", ">="}[rng.IntN(5)]
			_, va := statsOf(a)
			_, vb := statsOf(b)
			text := column + " " + op + " " + va[column]
			var in []int
			if rng.IntN(3) == 0 {
				text = fmt.Sprintf("%s AND %s IN (%s, %s)", text, column, vb[column], va[column])
				in = []int{a, b}
			}
			checkMatching(t, snap, form+": "+text, text, func(i int) bool { return holds(i, op, a, in) })
		}
	}
}

// checkMatching compares the pruned files with those whose number has matching rows.
func checkMatching(t *testing.T, snap *delta.Snapshot, name, text string, want func(i int) bool) {
	t.Helper()
	got := map[int]bool{}
	for a, err := range snap.Matching(context.Background(), where(t, text)) {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got[int(a.Size)-1000] = true
	}
	if !got[1-1000] {
		t.Errorf("%s: the file without statistics is left out", name)
	}
	extra := 0
	for i := -400; i < 400; i++ {
		if want(i) && !got[i] {
			t.Errorf("%s: file %d is left out", name, i)
		} else if !want(i) && got[i] {
			extra++
		}
	}
	nan := strings.HasPrefix(text, "f >")                     // NaN is above all numbers, and statistics do not tell of it
	if extra > 2 && !strings.Contains(text, " IN ") && !nan { // neighbours that the cut moments cannot tell apart
		t.Errorf("%s: %d files too many", name, extra)
	}
}

// holds tells whether the file's number satisfies op and, if there is a list, is in it: all columns grow with the number.
func holds(i int, op string, a int, in []int) bool {
	if in != nil && !slices.Contains(in, i) {
		return false
	}
	switch op {
	case "=":
		return i == a
	case "<":
		return i < a
	case "<=":
		return i <= a
	case ">":
		return i > a
	}
	return i >= a
}

// A file may be added twice, for instance with other statistics: the newer add counts, also where a condition rules it out.
func TestMatching_NewerAddRuledOut_OlderOneStaysHidden(t *testing.T) {
	ctx, st := context.Background(), store.NewMem()
	if _, err := delta.Create(ctx, st, &delta.CreateOptions{Schema: fields("l", delta.Long)}); err != nil {
		t.Fatal(err)
	}
	for i, bounds := range []string{`{\"l\":1}`, `{\"l\":5}`} {
		commit := `{"add":{"path":"f","partitionValues":{},"size":1,"modificationTime":1,"dataChange":true,` +
			`"stats":"{\"numRecords\":1,\"minValues\":` + bounds + `,\"maxValues\":` + bounds + `}"}}` + "\n"
		if err := st.Put(ctx, fmt.Sprintf("_delta_log/%020d.json", i+1), []byte(commit)); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]int{"l = 1": 0, "l = 5": 1} {
		got := 0
		for _, err := range snapshot(t, open(t, st)).Matching(ctx, where(t, text)) {
			if err != nil {
				t.Fatal(err)
			}
			got++
		}
		if got != want {
			t.Errorf("%s: got %d files, want %d", text, got, want)
		}
	}
}
