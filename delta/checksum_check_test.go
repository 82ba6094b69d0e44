package delta_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// goldenCopy is a table that Spark wrote, whose checksums list all files.
func goldenCopy(t *testing.T, name string) *store.Mem {
	t.Helper()
	st := store.NewMem()
	dir := filepath.Join(filepath.Dir(filepath.Dir(parquetTesting(t))), "delta", name, "delta")
	if !loadSmall(t, st, dir) {
		t.Fatalf("%s is not small", dir)
	}
	return st
}

// replaceIn puts a text in the place of another in an object.
func replaceIn(t *testing.T, st store.Store, key, from, to string) {
	t.Helper()
	data, err := st.Get(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(data, []byte(from)) {
		t.Fatalf("%s has no %s", key, from)
	}
	if err := st.Put(context.Background(), key, bytes.Replace(data, []byte(from), []byte(to), 1)); err != nil {
		t.Fatal(err)
	}
}

// TestScan_LogThatItsChecksumKnowsOtherwise_Error breaks a log in ways that leave it valid, and would give other rows.
func TestScan_LogThatItsChecksumKnowsOtherwise_Error(t *testing.T) {
	const table = "delta-io__delta-rs/data/table_with_column_mapping"
	for _, c := range []struct{ what, from, to, want string }{
		{"a file is lost", `{"add":`, `{"adf":`, "it counts 2 files"},
		{"another partition value", `"partitionValues":{"col`, `"partitionValues":{"cnl`, "list of all files"},
		{"another name of a column", `\"name\":\"`, `\"name\":\"x`, "metadata"},
		{"another progress", `{"commitInfo"`, `{"txn":{"appId":"a","version":1}}` + "\n" + `{"commitInfo"`, "applications"},
	} {
		st := goldenCopy(t, table)
		version := snapshot(t, open(t, st)).Version()
		if _, err := newestDigest(st); err != nil {
			t.Fatalf("%s: %v", table, err)
		}
		replaceIn(t, st, logKey("%020d.json", version), c.from, c.to)
		_, err := newestDigest(st)
		var sum *delta.ChecksumError
		if !errors.As(err, &sum) || !errors.Is(err, delta.ErrCorrupt) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want a ChecksumError about %s", c.what, err, c.want)
		}
	}
}

// bare takes out of a .crc what others do not write.
func bare(t *testing.T, st store.Store, version int64) {
	t.Helper()
	key := logKey("%020d.crc", version)
	data, err := st.Get(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(data, []byte(`,"freshet`))
	if err := st.Put(context.Background(), key, append(data[:at], '}')); err != nil {
		t.Fatal(err)
	}
}

// TestScan_VectorThatTheLogLost_Error has a checksum that counts deletion vectors.
func TestScan_VectorThatTheLogLost_Error(t *testing.T) {
	ctx, st := context.Background(), store.NewMem()
	s := fields("id", delta.Long)
	table, err := delta.Create(ctx, st, &delta.CreateOptions{Schema: s,
		Properties: map[string]string{"delta.enableDeletionVectors": "true"}})
	if err != nil {
		t.Fatal(err)
	}
	tx := table.Begin(snapshot(t, table), nil)
	tx.Add(writeAll(t, st, s, nil, nil, batchOf(t, s, `[{"id":1},{"id":2},{"id":3}]`))...)
	if _, err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Delete(ctx, where(t, "id = 2"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := newestDigest(st); err != nil {
		t.Fatal(err)
	}
	bare(t, st, 2)
	replaceIn(t, st, logKey("%020d.json", 2), `"deletionVector"`, `"deletionWector"`)
	if _, err := newestDigest(st); err == nil || !strings.Contains(err.Error(), "it counts 1 deletion vectors of 1 rows") {
		t.Errorf("got %v, want the vector that is missing", err)
	}
	r := check(t, open(t, st), &delta.CheckOptions{Fix: true})
	if len(r.Findings) != 1 || r.Findings[0].Kind != delta.FindingChecksum || r.Errors != 1 || r.Fixed != 0 {
		t.Errorf("got %+v, want one error, which is not fixed", r)
	}
}

// TestScan_ChecksumOfAnotherState_IsPassedOver has one that knows several things otherwise, and one that is no JSON.
func TestScan_ChecksumOfAnotherState_IsPassedOver(t *testing.T) {
	const table = "delta-io__delta-rs/data/table_with_column_mapping"
	want, err := newestDigest(goldenCopy(t, table))
	if err != nil {
		t.Fatal(err)
	}
	several, broken := goldenCopy(t, table), goldenCopy(t, table)
	replaceIn(t, several, logKey("%020d.crc", 0), `"domainMetadata":[]`, `"domainMetadata":[{"domain":"d","configuration":"","removed":false}]`)
	replaceIn(t, several, logKey("%020d.crc", 0), `"setTransactions":[]`, `"setTransactions":[{"appId":"a","version":1}]`)
	replaceIn(t, broken, logKey("%020d.crc", 0), `{`, `[`)
	for what, st := range map[string]store.Store{"several": several, "broken": broken} {
		if got, err := newestDigest(st); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", what, got, err, want)
		}
	}
}

// A crash may leave of a commit nothing but its name, or zeroes. Its checksum knows that there was more.
func TestScan_NewestCommitEmptied_Error(t *testing.T) {
	for what, left := range map[string]func([]byte) []byte{
		"emptied": func([]byte) []byte { return nil },
		"blank":   func([]byte) []byte { return []byte("\n\n") },
		"zeroes":  func(d []byte) []byte { return make([]byte, len(d)) },
		"zeroes at its end": func(d []byte) []byte {
			return append(d[:bytes.IndexByte(d, '\n')+1], make([]byte, 100)...)
		},
	} {
		table := made(t, fields("id", delta.Long), nil)
		st := table.Store()
		appendJSON(t, table, `[{"id":1}]`)
		appendJSON(t, table, `[{"id":2}]`)
		edit(t, st, logKey("%020d.json", 2), left)
		if got, err := newestDigest(st); !errors.Is(err, delta.ErrCorrupt) {
			t.Errorf("%s: got %s, %v, want ErrCorrupt", what, got, err)
		}
		r, err := delta.Check(t.Context(), st, nil, nil)
		if err != nil || !slices.Contains(kindsOf(r), delta.FindingCommit) || r.Unfixed != 1 {
			t.Errorf("%s: got %+v, %v, want one broken commit", what, r, err)
		}
	}
}

func TestCheck_NewestCommitGone_ItsChecksumTells(t *testing.T) {
	table := made(t, fields("id", delta.Long), nil)
	st := table.Store()
	appendJSON(t, table, `[{"id":1}]`)
	if err := st.Delete(t.Context(), logKey("%020d.json", 1)); err != nil {
		t.Fatal(err)
	}
	r, err := delta.Check(t.Context(), st, nil, nil)
	if err != nil || r.Version != 0 || len(r.Findings) != 1 || r.Findings[0].Kind != delta.FindingGap ||
		r.Findings[0].Version != 1 {
		t.Errorf("got %+v, %v, want version 1 missing", r, err)
	}
}
