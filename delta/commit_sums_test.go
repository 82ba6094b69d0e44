package delta_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// moveDay changes a digit of a partition value in a commit, so that it is one still: with rows of another day.
func moveDay(t *testing.T, st store.Store, version int64) {
	t.Helper()
	replaceIn(t, st, logKey("%020d.json", version), `"day":"2`, `"day":"3`)
}

// listError is how listing the files of the newest version, by a process that has seen nothing before, ends.
func listError(st store.Store) error {
	table, err := delta.Open(context.Background(), st, nil)
	if err != nil {
		return err
	}
	snap, err := table.Snapshot(context.Background())
	if err != nil {
		return err
	}
	for _, err := range snap.Files(context.Background(), nil) {
		if err != nil {
			return err
		}
	}
	return nil
}

// expectBroken wants an error that names the commit of a version.
func expectBroken(t *testing.T, what string, err error, version int64) {
	t.Helper()
	if !errors.Is(err, delta.ErrCorrupt) || !strings.Contains(err.Error(), logKey("%020d.json", version)) {
		t.Errorf("%s: got %v, want an error about the commit of version %d", what, err, version)
	}
}

// A writer that opens a broken table goes on from the sums of the one before, not from what it has read.
func TestFiles_CommitBrokenBeforeOthersWentOn_Error(t *testing.T) {
	st := store.NewMem()
	appendFiles(t, create(t, st, nil), "a")
	moveDay(t, st, 1)
	appendFiles(t, open(t, st), "b")
	expectBroken(t, "after another process", listError(st), 1)
	table := open(t, st)
	expectBroken(t, "checkpoint", table.Checkpoint(t.Context(), snapshot(t, table)), 1)
	_, err := table.Vacuum(t.Context(), nil)
	expectBroken(t, "vacuum", err, 1)
}

// foreignCommit is the commit of a writer that leaves no .crc.
func foreignCommit(t *testing.T, st store.Store, version int64, name string) {
	t.Helper()
	text := fmt.Sprintf(`{"commitInfo":{"timestamp":1,"operation":"WRITE"}}
{"add":{"path":"%s","partitionValues":{"day":"2026-01-01"},"size":1,"modificationTime":1,"dataChange":true}}
`, name)
	if err := st.PutIfAbsent(context.Background(), logKey("%020d.json", version), []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// The sums of others' commits are taken when they are read.
func TestFiles_CommitOfAnotherWriterBrokenLater_Error(t *testing.T) {
	for _, version := range []int64{1, 2, 3} {
		st := store.NewMem()
		table := create(t, st, nil)
		appendFiles(t, table, "a")
		foreignCommit(t, st, 2, "b")
		appendFiles(t, table, "c")
		if err := listError(st); err != nil {
			t.Fatal(err)
		}
		moveDay(t, st, version)
		expectBroken(t, "a file of version "+fmt.Sprint(version), listError(st), version)
	}
}

// What lies before the checkpoint is not read, and so nobody minds that it is broken.
func TestFiles_CommitBrokenBehindCheckpoint_IsNotRead(t *testing.T) {
	st := store.NewMem()
	table := create(t, st, nil)
	appendFiles(t, table, "a")
	checkpoint(t, table)
	appendFiles(t, table, "b")
	moveDay(t, st, 1)
	if err := listError(st); err != nil {
		t.Error(err)
	}
}

// A snapshot without a .crc knows what it has read.
func TestFiles_CommitBrokenSinceOpened_Error(t *testing.T) {
	st := store.NewMem()
	appendFiles(t, create(t, st, nil), "a")
	if err := st.Delete(context.Background(), logKey("%020d.crc", 1)); err != nil {
		t.Fatal(err)
	}
	snap := snapshot(t, open(t, st))
	moveDay(t, st, 1)
	var got error
	for _, err := range snap.Files(t.Context(), nil) {
		got = err
	}
	expectBroken(t, "opened before", got, 1)
}

// Of a .crc that is as it was written, all is believed; one that is not is of no use.
func TestFiles_ChecksumOfOurs_BelievedWholeOrNotAtAll(t *testing.T) {
	st := store.NewMem()
	appendFiles(t, create(t, st, nil), "a")
	replaceIn(t, st, logKey("%020d.json", 0), `\"nullable\":true`, `\"nullable\":false`)
	replaceIn(t, st, logKey("%020d.json", 1), `{"commitInfo"`, `{"txn":{"appId":"a","version":1}}`+"\n"+`{"commitInfo"`)
	err := listError(st)
	if !errors.Is(err, delta.ErrCorrupt) || !strings.Contains(err.Error(), "applications") {
		t.Errorf("got %v, want an error about metadata and applications", err)
	}
	st = store.NewMem()
	appendFiles(t, create(t, st, nil), "a")
	replaceIn(t, st, logKey("%020d.crc", 1), `"numFiles":1`, `"numFiles":3`)
	if err := listError(st); err != nil {
		t.Errorf("got %v, want the checksum passed over", err)
	}
}

func TestCheck_CommitBroken_IsFound(t *testing.T) {
	st := store.NewMem()
	result := appendFiles(t, create(t, st, nil), "a", "b")
	if err := st.Put(t.Context(), "xx", nil); err != nil {
		t.Fatal(err)
	}
	replaceIn(t, st, logKey("%020d.json", 1), `"isBlindAppend":true`, `"isBlindAppend":null`)
	report, err := open(t, st).Check(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(report.Findings, func(f delta.Finding) bool { return f.Kind == delta.FindingChecksum })
	if at < 0 || report.Findings[at].Path != logKey("%020d.json", result.Version) {
		t.Errorf("got %+v, want a finding of the commit", report.Findings)
	}
}

// TestCommit_ManyWithoutCheckpoint_NewestSumsAreKept has more commits than a .crc tells of.
func TestCommit_ManyWithoutCheckpoint_NewestSumsAreKept(t *testing.T) {
	st := store.NewMem()
	table := create(t, st, nil)
	const last = 300
	for v := range last {
		appendFiles(t, table, fmt.Sprint("f", v+1))
	}
	sum, _ := checksum(t, st, last)
	commits := sum["freshetCommits"].(map[string]any)
	if n := len(commits["crc32c"].([]any)); n != 256 || commits["first"] != float64(last-255) {
		t.Errorf("got %d sums from version %v on, want 256 up to version %d", n, commits["first"], last)
	}
	moveDay(t, st, last-255)
	expectBroken(t, "the oldest", listError(st), last-255)
}
