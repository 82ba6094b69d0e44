package delta_test

import (
	"context"
	"slices"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/internal/canonical"
)

// appendJSON commits rows to the table as it is.
func appendJSON(t testing.TB, table *delta.Table, rows string) []delta.Add {
	t.Helper()
	snap := snapshot(t, table)
	adds := writeUnderProtocol(t, table, snap, rows)
	tx := table.Begin(snap, nil)
	tx.Add(adds...)
	if _, err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
	return adds
}

func writeUnderProtocol(t testing.TB, table *delta.Table, snap *delta.Snapshot, rows string) []delta.Add {
	t.Helper()
	ctx := context.Background()
	w, err := delta.NewWriter(table.Store(), snap.Metadata(), snap.Protocol(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(ctx, batchOf(t, snap.Schema(), rows)); err != nil {
		t.Fatal(err)
	}
	adds, err := w.Close(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return adds
}

// checkRows makes sure that the table holds exactly these rows, in any order.
func checkRows(t *testing.T, table *delta.Table, s *delta.Schema, rows string) {
	t.Helper()
	rec := batchOf(t, s, rows)
	defer rec.Release()
	var want []string
	enc := canonical.NewEncoder(rec.Schema())
	for i := range int(rec.NumRows()) {
		line, err := enc.AppendRow(nil, rec, i)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, string(line))
	}
	got := scanLines(t, snapshot(t, table), nil)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got rows\n%q\nwant\n%q", got, want)
	}
}
