package delta_test

import (
	"context"
	"maps"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet/delta"
)

// check replays the commits in their order and compares every version with the rowModel.
func (h *scene) check() {
	ops := map[int64]*delta.CommitInfo{}
	for e, err := range h.table.History(context.Background(), 0) {
		if err != nil {
			h.t.Fatal(err)
		}
		ops[e.Version] = &e.Info
	}
	m := rowModel{}
	table := open(h.t, h.st)
	changes := map[int64]map[row]int{} // by version: how often a row came, negative when it went
	for v := int64(1); v < int64(len(ops)); v++ {
		before := maps.Clone(m)
		h.means[ops[v].UserMetadata](m)
		h.kinds[ops[v].Operation]++
		snap, err := table.SnapshotAt(context.Background(), v)
		if err != nil {
			h.t.Fatal(err)
		}
		var got []row
		for _, r := range h.read(snap, h.files(snap)...) {
			got = append(got, r.row)
		}
		slices.SortFunc(got, func(a, b row) int { return int(a.id - b.id) })
		if want := m.rows(); !slices.Equal(got, want) {
			h.t.Fatalf("version %d, %s:\n got %v\nwant %v", v, ops[v].Operation, got, want)
		}
		h.checkRowIDs(snap)
		if changed := m.since(before); len(changed) > 0 {
			changes[v] = changed
		}
	}
	h.checkChanges(changes)
}

// since is how often each row came; negative when it went.
func (m rowModel) since(before rowModel) map[row]int {
	changed := map[row]int{}
	for _, r := range m.rows() {
		if v, ok := before[r.id]; !ok || v != r.v {
			changed[r]++
		}
	}
	for _, r := range before.rows() {
		if v, ok := m[r.id]; !ok || v != r.v {
			changed[r]--
		}
	}
	return changed
}

// checkChanges reads the change feed by each method that finds changes here, and compares what is left once rows that
// came and went alike are left out.
func (h *scene) checkChanges(want map[int64]map[row]int) {
	methods := []delta.ChangeMethod{delta.MethodAuto, delta.MethodVectors, delta.MethodDiff}
	if snapshot(h.t, h.table).Property("delta.enableChangeDataFeed") == "true" {
		methods = append(methods, delta.MethodFeed)
	}
	for _, method := range methods {
		got := map[int64]map[row]int{}
		for c, err := range h.table.Changes(context.Background(), 1, -1, &delta.ChangesOptions{Method: method}) {
			if err != nil {
				h.t.Fatalf("changes by %q: %v", method, err)
			}
			ids, vs := c.Batch.Column(0).(*array.Int64), c.Batch.Column(1).(*array.Int64)
			kinds := c.Batch.Column(2)
			for i := range ids.Len() {
				n := 1
				if kind := kinds.ValueStr(i); kind == delta.ChangeDelete || kind == delta.ChangePreimage {
					n = -1
				}
				tally(got, c.Version, row{ids.Value(i), vs.Value(i)}, n)
			}
			c.Batch.Release()
		}
		if !maps.EqualFunc(got, want, maps.Equal[map[row]int, map[row]int]) {
			h.t.Fatalf("changes by %q:\n got %v\nwant %v", method, got, want)
		}
	}
}

// tally adds to the count of a row; what is nought is left out.
func tally(counts map[int64]map[row]int, version int64, r row, n int) {
	if counts[version] == nil {
		counts[version] = map[row]int{}
	}
	counts[version][r] += n
	if counts[version][r] == 0 {
		delete(counts[version], r)
	}
	if len(counts[version]) == 0 {
		delete(counts, version)
	}
}

// checkRowIDs makes sure that no two rows have one id.
func (h *scene) checkRowIDs(snap *delta.Snapshot) {
	if snap.Property("delta.enableRowTracking") != "true" {
		return
	}
	seen := map[int64]bool{}
	opts := &delta.ScanOptions{Columns: []string{"id"}, RowIDs: true}
	for r, err := range snap.ScanFiles(context.Background(), h.files(snap), opts) {
		if err != nil {
			h.t.Fatal(err)
		}
		ids := r.Batch.Column(1).(*array.Int64)
		for i := range ids.Len() {
			if ids.IsNull(i) || seen[ids.Value(i)] {
				h.t.Fatalf("version %d: row id %s is there twice, or missing", snap.Version(), ids.ValueStr(i))
			}
			seen[ids.Value(i)] = true
		}
		r.Batch.Release()
	}
}
