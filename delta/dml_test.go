package delta_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// itemsOf reads the columns of itemSchema.
func itemsOf(columns []arrow.Array, n int) (out []item) {
	u, k := columns[0].(*array.Int64), columns[1].(*array.Int64)
	p, v, s := columns[2].(*array.String), columns[3].(*array.Int64), columns[4].(*array.String)
	for i := range n {
		r := item{u: u.Value(i), k: k.Value(i)}
		if p.IsValid(i) {
			r.p = p.Value(i)
		}
		if v.IsValid(i) {
			n := v.Value(i)
			r.v = &n
		}
		if s.IsValid(i) {
			text := string([]byte(s.Value(i)))
			r.s = &text
		}
		out = append(out, r)
	}
	return out
}

// changeFiles are the change data files of a version, as data files that can be scanned.
func changeFiles(t testing.TB, table *delta.Table, version int64) (files []delta.Add) {
	t.Helper()
	data, err := table.Store().Get(context.Background(), fmt.Sprintf("_delta_log/%020d.json", version))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var a struct {
			CDC *struct {
				Path            string
				PartitionValues map[string]*string
				Size            int64
				DataChange      bool
			}
		}
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatal(err)
		}
		if a.CDC != nil {
			if a.CDC.DataChange {
				t.Errorf("version %d: change data says dataChange", version)
			}
			files = append(files, delta.Add{Path: a.CDC.Path, PartitionValues: a.CDC.PartitionValues, Size: a.CDC.Size})
		}
	}
	return files
}

func TestDML_RandomOperations_EqualTheSequentialModel(t *testing.T) {
	yes := true
	for seed := range uint64(48) {
		properties := map[string]string{}
		opts := &delta.DMLOptions{}
		if seed&1 != 0 {
			properties["delta.enableDeletionVectors"] = "true"
			if seed&16 != 0 {
				opts.CopyOnWrite = &yes
			}
		} else if seed&16 != 0 {
			opts.CopyOnWrite = &yes
		}
		if seed&2 != 0 {
			properties["delta.enableChangeDataFeed"] = "true"
		}
		var parts []string
		if seed&4 != 0 {
			parts = []string{"p"}
		}
		if seed&8 != 0 {
			properties["delta.enableRowTracking"] = "true"
		}
		if seed&32 != 0 {
			opts.MemoryBytes = 600 // several passes over the table
		}
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Logf("seed %d: %v, partitioned by %v", seed, properties, parts)
			l := newLab(t, seed, store.NewMem(), properties, parts...)
			for range 25 {
				l.step(opts)
			}
		})
	}
}
