package delta

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/store"
)

// goldenSeeds adds files of the tables that other engines wrote to the corpus, where these tables are at
// hand.
func goldenSeeds(f *testing.F, pattern string) {
	goldenFiles(f, pattern, func(_ string, data []byte) { f.Add(data) })
}

// goldenFiles gives files of these tables, with their paths below the table, unless they are large.
func goldenFiles(f *testing.F, pattern string, add func(path string, data []byte)) {
	root := os.Getenv("FRESHET_TESTDATA")
	if root == "" {
		return
	}
	found, err := filepath.Glob(filepath.Join(root, "delta", "*", "*", "*", "delta", pattern))
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range found {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		_, below, _ := strings.Cut(filepath.ToSlash(path[len(root)+1:]), "/delta/")
		if len(data) < 32<<10 {
			add(below, data)
		}
	}
}

// goldenAdds gives the add actions in the logs of these tables.
func goldenAdds(f *testing.F, each func(*Add)) {
	goldenFiles(f, "_delta_log/*.json", func(path string, data []byte) {
		for a, err := range parseLog(path, data, kindAdd|kindStats) {
			if err != nil {
				break // there are damaged ones among them
			}
			if a.Add != nil {
				each(a.Add)
			}
		}
	})
}

// FuzzChecksum reads hostile .crc files. What was understood is written in a form that says the same.
func FuzzChecksum(f *testing.F) {
	goldenSeeds(f, "_delta_log/*.crc")
	f.Add([]byte(`{"txnId":"t","tableSizeBytes":904,"numFiles":2,"numMetadata":1,"numProtocol":1,"inCommitTimestampOpt":5,` +
		`"setTransactions":[{"appId":"a","version":3,"lastUpdated":4}],` +
		`"domainMetadata":[{"domain":"d","configuration":"{}","removed":false}],` +
		`"metadata":{"id":"m","format":{"provider":"parquet","options":{}},"schemaString":"{}","partitionColumns":["p"],` +
		`"configuration":{"k":"v"}},"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["x"],` +
		`"writerFeatures":["x"]}}`))
	f.Add(withOwnSum([]byte(`{"txnId":"t","tableSizeBytes":9,"numFiles":2,"freshetCommits":{"first":7,"crc32c":[1,4294967295]}}`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		var sum *versionChecksum
		var err error
		spend(t, len(data), func() { sum, err = parseChecksum(data) })
		if err != nil || sum.proto == nil || sum.meta == nil || sum.files == nil {
			return
		}
		snap := &Snapshot{files: sum.files, inCommit: sum.inCommit,
			state: tableState{proto: sum.proto, meta: sum.meta, txns: sum.txns, domains: sum.domains}}
		again, err := parseChecksum(snap.checksum(sum.txnID))
		if err != nil {
			t.Fatalf("written again it does not parse: %v", err)
		}
		if *again.files != *sum.files || again.txnID != sum.txnID ||
			len(sum.txns) <= maxChecksumEntries && !maps.EqualFunc(again.txns, sum.txns, sameTxn) {
			t.Errorf("got %+v, want %+v", again, sum)
		}
	})
}

func sameTxn(a, b Txn) bool {
	return a.AppID == b.AppID && a.Version == b.Version && deref(a.LastUpdated) == deref(b.LastUpdated)
}

// FuzzCompacted puts hostile files in the place of compacted ones: one that is damaged changes nothing.
func FuzzCompacted(f *testing.F) {
	ctx := context.Background()
	st := store.NewMem()
	table, err := Create(ctx, st, &CreateOptions{Schema: &Schema{Fields: []Field{nullable("id", Long)}}})
	if err != nil {
		f.Fatal(err)
	}
	for i := 1; i < 4; i++ {
		snap, err := table.Snapshot(ctx)
		if err != nil {
			f.Fatal(err)
		}
		tx := table.Begin(snap, nil)
		tx.Add(Add{Path: fmt.Sprint("f", i), Size: int64(i), DataChange: true})
		if _, err := tx.Commit(ctx); err != nil {
			f.Fatal(err)
		}
	}
	want := filesOf(f, st)
	goldenSeeds(f, "_delta_log/*.compacted.json")
	f.Add([]byte(`{"add":{"path":"f1","size":1}}` + "\n" + `{"add":{"path":"f2","size":2}}` + "\n"))
	f.Add([]byte(`{"add":{"path":"f1","size":1}}` + "\n" + `{"add":{"path":`))
	f.Add([]byte(`{"protocol":{"minReaderVersion":99}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		mine := store.NewMem()
		for v := range int64(4) {
			text, err := st.Get(ctx, commitKey(v))
			if err != nil {
				t.Fatal(err)
			}
			if err := mine.Put(ctx, commitKey(v), text); err != nil {
				t.Fatal(err)
			}
		}
		if err := mine.Put(ctx, versionPrefix(1)+"."+fmt.Sprintf("%020d", 2)+".compacted.json", data); err != nil {
			t.Fatal(err)
		}
		if wellFormed(data) { // then it is believed, whatever it says
			spend(t, len(data), func() { readAll(mine) })
			return
		}
		if got := filesOf(t, mine); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// filesOf is what files the table has, in the order of the log.
func filesOf(t testing.TB, st store.Store) string {
	ctx := context.Background()
	table, err := Open(ctx, st, nil)
	if err != nil {
		t.Fatal(err)
	}
	snap, err := table.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for a, err := range snap.Files(ctx, nil) {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&out, a.Path, a.Size)
	}
	return out.String()
}

// FuzzFooterStats makes statistics of hostile footers, as Convert does: an error, or JSON that counts no
// fewer rows than none.
func FuzzFooterStats(f *testing.F) {
	f.Add(smallCheckpoint(f, "uncompressed"))
	f.Add(smallCheckpoint(f, "zstd"))
	goldenSeeds(f, "*.parquet")
	goldenSeeds(f, "*=*/*.parquet")
	f.Fuzz(func(t *testing.T, data []byte) {
		st := store.NewMem()
		if err := st.Put(context.Background(), "f", data); err != nil {
			t.Fatal(err)
		}
		in := &parquetInput{object: store.Object{Key: "f", Size: int64(len(data))}}
		var err error
		spend(t, len(data), func() { _, err = in.read(context.Background(), st, true) })
		if err != nil || in.stats == "" {
			return
		}
		if rows, ok := recordCount(in.stats); !json.Valid([]byte(in.stats)) || !ok && in.rows >= 0 || rows != in.rows && ok {
			t.Errorf("%d rows have the statistics %s", in.rows, in.stats)
		}
	})
}
