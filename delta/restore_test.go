package delta_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// recordProgress commits progress of an application.
func recordProgress(t testing.TB, table *delta.Table, app string, version int64) {
	t.Helper()
	snap := snapshot(t, table)
	tx := table.Begin(snap, nil)
	was, ok := snap.Txn(app)
	tx.ExpectTxn(app, was, ok)
	tx.AddTxn(app, version)
	if _, err := tx.Commit(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestRestore_AnyVersion_HasItsRowsAgain(t *testing.T) {
	rng := rand.New(rand.NewPCG(seedOf(t), 0))
	ctx := context.Background()
	table := pointsTable(t, store.NewMem(), rng, 6, delta.CreateOptions{PartitionBy: []string{"p"}})
	optimize(t, table, nil)
	appendPoints(t, table, rng, 50_000, 30)
	deletePoints(t, table, rng, 1)
	last := snapshot(t, table).Version()
	for version := last; version >= 0; version-- {
		snap, err := table.SnapshotAt(ctx, version)
		if err != nil {
			t.Fatal(err)
		}
		want := scanLines(t, snap, nil)
		slices.Sort(want)
		r, err := table.Restore(ctx, version, nil)
		if err != nil {
			t.Fatal(err)
		}
		sameRows(t, table, want)
		files, _ := countFiles(t, table)
		if int64(files) != r.Files {
			t.Errorf("version %d: %d files, %+v", version, files, r)
		}
	}
	before := snapshot(t, table).Version()
	if r, err := table.Restore(ctx, before, nil); err != nil || r.Version != before {
		t.Errorf("nothing to do: %+v, %v", r, err)
	}
}

func TestRestore_SchemaAndProperties_ComeBackAndFeaturesStay(t *testing.T) {
	ctx := context.Background()
	table := create(t, store.NewMem(), map[string]string{"owner": "first"})
	tx := table.Begin(snapshot(t, table), nil)
	meta := snapshot(t, table).Metadata().Clone()
	meta.Configuration["owner"], meta.Configuration["delta.enableDeletionVectors"] = "second", "true"
	tx.SetMetadata(meta)
	tx.SetProtocol(&delta.Protocol{MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{"deletionVectors"},
		WriterFeatures: []string{"appendOnly", "invariants", "deletionVectors", "domainMetadata"}})
	tx.SetDomainMetadata(delta.DomainMetadata{Domain: "mine", Configuration: "{}"})
	if _, err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Restore(ctx, 0, nil); err != nil {
		t.Fatal(err)
	}
	snap := snapshot(t, table)
	if snap.Property("owner") != "first" || snap.Property("delta.enableDeletionVectors") != "" {
		t.Errorf("properties: %v", snap.Metadata().Configuration)
	}
	if !snap.Protocol().Supports("deletionVectors") || len(snap.DomainMetadata()) != 0 {
		t.Errorf("protocol %+v, domains %v", snap.Protocol(), snap.DomainMetadata())
	}
	if _, err := table.Restore(ctx, 1, nil); err != nil {
		t.Fatal(err)
	}
	if snap := snapshot(t, table); snap.Property("owner") != "second" || len(snap.DomainMetadata()) != 1 {
		t.Errorf("forth again: %v, %v", snap.Metadata().Configuration, snap.DomainMetadata())
	}
}

func TestRestore_ProgressThatMovedOn_AsksWhatBecomesOfIt(t *testing.T) {
	ctx := context.Background()
	table := create(t, store.NewMem(), nil)
	recordProgress(t, table, "early", 10)
	recordProgress(t, table, "early", 20)
	recordProgress(t, table, "late", -1)
	recordProgress(t, table, "late", 7)
	_, err := table.Restore(ctx, 1, nil)
	if !errors.Is(err, delta.ErrProgress) || !strings.Contains(err.Error(), "early, late") {
		t.Fatalf("got %v", err)
	}
	if _, err := table.Restore(ctx, 1, &delta.RestoreOptions{Progress: "both"}); err == nil {
		t.Error("a choice that is none was taken")
	}
	progressIs := func(early, late int64) {
		t.Helper()
		snap := snapshot(t, table)
		e, _ := snap.Txn("early")
		l, _ := snap.Txn("late")
		if e != early || l != late {
			t.Errorf("progress %d and %d, want %d and %d", e, l, early, late)
		}
	}
	if _, err := table.Restore(ctx, 1, &delta.RestoreOptions{Progress: delta.ProgressKeep}); err != nil {
		t.Fatal(err)
	}
	progressIs(20, 7)
	r, err := table.Restore(ctx, 1, &delta.RestoreOptions{Progress: delta.ProgressRewind})
	if err != nil {
		t.Fatal(err)
	}
	progressIs(10, -1)
	if len(r.Rewound) != 2 {
		t.Errorf("%+v", r)
	}
}

func TestRestore_FilesThatAVacuumTook_AreAnErrorUnlessIgnored(t *testing.T) {
	ctx := context.Background()
	st := store.NewMem()
	table := create(t, st, nil)
	appendFiles(t, table, "a", "b")
	tx := table.Begin(snapshot(t, table), nil)
	tx.Remove(delta.Remove{Path: "day=2026-01-31/a", DataChange: true}, delta.Remove{Path: "day=2026-01-31/b", DataChange: true})
	if _, err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := st.Put(ctx, "day=2026-01-31/b", []byte("there")); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Restore(ctx, 1, nil); !errors.Is(err, delta.ErrMissingFiles) {
		t.Fatalf("got %v", err)
	}
	r, err := table.Restore(ctx, 1, &delta.RestoreOptions{IgnoreMissing: true})
	if err != nil || r.MissingFiles != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	expectNames(t, snapshot(t, table), "b")
}
