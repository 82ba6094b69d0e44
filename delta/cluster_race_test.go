package delta_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

// TestOptimize_ClusteredBesideWritersOverFaults_EqualTheirCommitsInOrder lays a clustered table out by Hilbert curve from two
// processes at once, while others append, delete, update and merge, by deletion vectors or by copy-on-write, over a store
// that fails now and then. Layout changes no rows: whatever else was committed, done in the order of versions, makes them.
func TestOptimize_ClusteredBesideWritersOverFaults_EqualTheirCommitsInOrder(t *testing.T) {
	var laidOut int64
	for seed := range uint64(8) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			st := store.NewMem()
			table, err := delta.Create(t.Context(), st, &delta.CreateOptions{Schema: keyed(), ClusterBy: []string{"id", "n"},
				Properties: map[string]string{"delta.enableDeletionVectors": strconv.FormatBool(seed%2 == 0),
					"delta.enableRowTracking": strconv.FormatBool(seed%4 > 1)}})
			if err != nil {
				t.Fatal(err)
			}
			write(t, table, keyed(), `[{"id":1,"n":1},{"id":2,"n":2},{"id":3,"n":3},{"id":4,"n":4},{"id":5,"n":5}]`, nil)
			race := clusterRace{t: t, st: st, seed: seed, means: map[string]func(counter){}}
			var wg sync.WaitGroup
			for w := range uint64(3) {
				wg.Go(func() { race.write(w) })
			}
			for w := range uint64(2) {
				wg.Go(func() { race.layOut(3 + w) })
			}
			wg.Wait()
			replay(t, table, race.means, counter{1: 1, 2: 2, 3: 3, 4: 4, 5: 5})
			laidOut += race.commits
		})
	}
	if laidOut == 0 {
		t.Error("no layout was committed")
	}
}

// clusterRace is a table that several processes change at once.
type clusterRace struct {
	t       *testing.T
	st      store.Store
	seed    uint64
	mu      sync.Mutex
	means   map[string]func(counter) // of commits, by their user metadata
	commits int64                    // of layouts
}

// open is the table by a process of its own, whose calls of the store fail now and then.
func (c *clusterRace) open(w uint64, share float64) *delta.Table {
	for try := uint64(0); ; try++ {
		st := storetest.NewFaulty(c.st, storetest.Seeded(c.seed*100+w*10+try, share))
		if table, err := delta.Open(context.Background(), st, nil); err == nil {
			return table
		}
	}
}

func (c *clusterRace) write(w uint64) {
	r := rand.New(rand.NewPCG(c.seed, w))
	for i := range 8 {
		d := c.deed(r, int64(1000+w*100)+int64(i))
		name := fmt.Sprintf("%d/%d", w, i)
		c.mu.Lock()
		c.means[name] = d.means
		c.mu.Unlock()
		_, _ = d.run(c.open(w, 0.01), &delta.DMLOptions{UserMetadata: name}) // what failed has no commit, or one that counts
	}
}

// deed appends a row of the id, or is any other deed.
func (c *clusterRace) deed(r *rand.Rand, id int64) deed {
	if r.IntN(2) == 0 {
		return randomDeed(c.t, r)
	}
	n := r.Int64N(100)
	return deed{func(table *delta.Table, o *delta.DMLOptions) (*delta.DMLResult, error) {
		src := sourceWith(c.t, keyed(), fmt.Sprintf(`[{"id":%d,"n":%d}]`, id, n))
		return table.Write(context.Background(), src.Rows(context.Background()), src.Schema,
			&delta.WriteOptions{DMLOptions: *o})
	}, func(m counter) { m[id] = n }}
}

func (c *clusterRace) layOut(w uint64) {
	r := rand.New(rand.NewPCG(c.seed, w))
	for range 8 {
		done, err := c.open(w, 0.01).Optimize(context.Background(), &delta.OptimizeOptions{Full: r.IntN(2) == 0,
			TargetFileBytes: 1 << 10, SpillDir: c.t.TempDir()})
		if err == nil {
			c.mu.Lock()
			c.commits += done.Commits
			c.mu.Unlock()
		}
	}
}
