package delta_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// TestChanges_RandomHistories_LeadFromVersionToVersion runs random operations and checks, for each method that can read
// the table, that the rows of a version are those of the one before without the deletes and with the inserts, and that
// all methods agree by key.
func TestChanges_RandomHistories_LeadFromVersionToVersion(t *testing.T) {
	for seed := range uint64(16) {
		properties := map[string]string{}
		methods := []delta.ChangeMethod{delta.MethodAuto, delta.MethodVectors, delta.MethodDiff}
		if seed&1 != 0 {
			properties["delta.enableDeletionVectors"] = "true"
		}
		if seed&2 != 0 {
			properties["delta.enableChangeDataFeed"] = "true"
			methods = append(methods, delta.MethodFeed)
		}
		if seed&4 != 0 {
			properties["delta.enableRowTracking"] = "true"
			methods = append(methods, delta.MethodRowTracking)
		}
		var parts []string
		if seed&8 != 0 {
			parts = []string{"p"}
		}
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Logf("seed %d: %v, partitioned by %v", seed, properties, parts)
			l := newLab(t, seed+100, store.NewMem(), properties, parts...)
			for i := range 12 {
				l.step(&delta.DMLOptions{})
				if i%5 == 4 {
					if _, err := l.table.Optimize(context.Background(), nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			checkLeads(t, l.table, methods)
		})
	}
}

func checkLeads(t *testing.T, table *delta.Table, methods []delta.ChangeMethod) {
	t.Helper()
	versions := rowsByVersion(t, table)
	var keyed []string
	for _, method := range methods {
		count := map[string]int{}
		net := map[int64][]change{}
		for _, c := range mustChanges(t, table, 0, -1, &delta.ChangesOptions{Method: method, BatchRows: 7}) {
			net[c.version] = append(net[c.version], c)
		}
		for v, want := range versions {
			for _, c := range net[int64(v)] {
				if c.kind == delta.ChangeInsert || c.kind == delta.ChangePostimage {
					count[c.row]++
				} else {
					count[c.row]--
				}
			}
			if d := diffLines(counted(count), counted(want)); d != "" {
				t.Fatalf("%q: the changes lead to other rows at version %d:\n%s", method, v, d)
			}
		}
		got := sorted(mustChanges(t, table, 0, -1, &delta.ChangesOptions{Method: method, Key: []string{"u"}}))
		if keyed == nil {
			keyed = got
		}
		if d := diffLines(got, keyed); d != "" {
			t.Errorf("%q against %q, by key:\n%s", method, methods[0], d)
		}
	}
}

// rowsByVersion counts the rows of each version.
func rowsByVersion(t *testing.T, table *delta.Table) (versions []map[string]int) {
	t.Helper()
	for v := range snapshot(t, table).Version() + 1 {
		snap, err := table.SnapshotAt(context.Background(), v)
		if err != nil {
			t.Fatal(err)
		}
		rows := map[string]int{}
		for _, line := range scanLines(t, snap, nil) {
			rows[line]++
		}
		versions = append(versions, rows)
	}
	return versions
}

func counted(rows map[string]int) (out []string) {
	for row, n := range rows {
		if n != 0 {
			out = append(out, fmt.Sprintf("%s × %d", row, n))
		}
	}
	slices.Sort(out)
	return out
}

// FuzzChanges reads the changes of a table with a commit that anybody may have written. Whatever it holds, reading ends,
// with changes or with an error, without a panic.
func FuzzChanges(f *testing.F) {
	ctx, st := context.Background(), store.NewMem()
	s := fields("id", delta.Long, "p", delta.String)
	snap := tableOf(f, st, s, []string{"p"}, batchOf(f, s, `[{"id":1,"p":"a"},{"id":2,"p":"a"},{"id":3,"p":null}]`))
	var data strings.Builder
	for a, err := range snap.Files(ctx, nil) {
		if err != nil {
			f.Fatal(err)
		}
		values := `{"p":"a"}`
		if a.PartitionValues["p"] == nil {
			values = `{"p":null}`
		}
		file := fmt.Sprintf(`"path":%q,"partitionValues":%s,"size":%d`, a.Path, values, a.Size)
		f.Add([]byte(fmt.Sprintf(`{"remove":{%s,"dataChange":true}}`, file)), uint8(0))
		f.Add([]byte(fmt.Sprintf(`{"cdc":{%s,"dataChange":false}}`, file)), uint8(1))
		fmt.Fprintf(&data, `{"remove":{%s,"dataChange":true}}`, file)
		fmt.Fprintf(&data, `{"add":{%s,"dataChange":true,"modificationTime":0,"deletionVector":{"storageType":"i",`+
			`"pathOrInlineDv":"^Bg9^0rr910000000000iXQKl0rr91000005c8Xg##093","sizeInBytes":34,"cardinality":1}}}`, file)
	}
	for method := range uint8(5) {
		f.Add([]byte(data.String()), method)
	}
	f.Add([]byte(`{"metaData":{"schemaString":"{\"type\":\"struct\",\"fields\":[]}"}}{"remove":{"path":"x","dataChange":true}}`),
		uint8(4))
	methods := []delta.ChangeMethod{delta.MethodAuto, delta.MethodFeed, delta.MethodVectors, delta.MethodRowTracking,
		delta.MethodDiff}
	f.Fuzz(func(t *testing.T, commit []byte, method uint8) {
		copied := store.NewMem()
		for o, err := range st.List(ctx, "", "") {
			if err != nil {
				t.Fatal(err)
			}
			body, err := st.Get(ctx, o.Key)
			if err != nil {
				t.Fatal(err)
			}
			if err := copied.Put(ctx, o.Key, body); err != nil {
				t.Fatal(err)
			}
		}
		if err := copied.Put(ctx, fmt.Sprintf("_delta_log/%020d.json", 2), commit); err != nil {
			t.Fatal(err)
		}
		table, err := delta.Open(ctx, copied, nil)
		if err != nil {
			return
		}
		opts := &delta.ChangesOptions{Method: methods[int(method)%len(methods)]}
		if method >= 128 {
			opts.Key = []string{"id"}
		}
		rows := 0
		for c, err := range table.Changes(ctx, 0, -1, opts) {
			if err != nil {
				break
			}
			rows += int(c.Batch.NumRows())
			c.Batch.Release()
		}
		if rows > 1_000_000 {
			t.Errorf("%d changes came of %d bytes", rows, len(commit))
		}
	})
}
