package delta_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

// counter is the model of a table of ids and numbers.
type counter map[int64]int64

// deed is a random operation and what it means.
type deed struct {
	run   func(*delta.Table, *delta.DMLOptions) (*delta.DMLResult, error)
	means func(counter)
}

func randomDeed(t *testing.T, r *rand.Rand) deed {
	ctx := context.Background()
	a, b, c := int64(2+r.IntN(4)), int64(r.IntN(4)), int64(1+r.IntN(9))
	switch r.IntN(4) {
	case 0:
		return deed{func(table *delta.Table, o *delta.DMLOptions) (*delta.DMLResult, error) {
			return table.Delete(ctx, parse(t, fmt.Sprintf("n %% %d = %d AND id > 3", 5+c, b)), o)
		}, func(m counter) {
			maps.DeleteFunc(m, func(id, n int64) bool { return n%(5+c) == b && id > 3 })
		}}
	case 1:
		return deed{func(table *delta.Table, o *delta.DMLOptions) (*delta.DMLResult, error) {
			return table.Update(ctx, set(t, "n", fmt.Sprintf("n * 2 + %d", c)), parse(t, fmt.Sprintf("id %% %d = %d", a, b)), o)
		}, func(m counter) {
			for id, n := range m {
				if id%a == b {
					m[id] = (n*2 + c)
				}
			}
		}}
	}
	return deed{func(table *delta.Table, o *delta.DMLOptions) (*delta.DMLResult, error) {
		rows := fmt.Sprintf(`[{"id":%d,"n":%d},{"id":%d,"n":%d}]`, a, c, 10+b, c)
		return table.Merge(ctx, sourceWith(t, keyed(), rows), &delta.Merge{On: parse(t, "t.id = s.id"),
			Matched:    []delta.MatchedClause{{Set: set(t, "n", "t.n + s.n")}},
			NotMatched: []delta.InsertClause{{All: true}}}, o)
	}, func(m counter) {
		m[a] += c
		m[10+b] += c
	}}
}

// TestDML_WritersAtOnceOverFaults_EqualTheirCommitsInOrder lets writers change one table at once over a store that fails
// now and then. Whatever was committed, done one after another in the order of versions, makes the same rows.
func TestDML_WritersAtOnceOverFaults_EqualTheirCommitsInOrder(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			st := store.NewMem()
			table := tableWith(t, st, keyed(), `[{"id":1,"n":1},{"id":2,"n":2},{"id":3,"n":3},{"id":4,"n":4},{"id":5,"n":5}]`,
				map[string]string{"delta.enableDeletionVectors": strconv.FormatBool(seed%2 == 0),
					"delta.enableChangeDataFeed": strconv.FormatBool(seed%3 == 0)})
			means := map[string]func(counter){}
			var mu sync.Mutex
			var wg sync.WaitGroup
			for w := range uint64(2 + seed%3) {
				r := rand.New(rand.NewPCG(seed, w))
				own := storetest.NewFaulty(st, storetest.Seeded(seed*10+w, 0.01))
				wg.Go(func() {
					for i := range 6 {
						d, name := randomDeed(t, r), fmt.Sprintf("%d/%d", w, i)
						mu.Lock()
						means[name] = d.means
						mu.Unlock()
						o := &delta.DMLOptions{UserMetadata: name}
						if mine, err := delta.Open(context.Background(), own, nil); err == nil {
							_, _ = d.run(mine, o) // what failed has no commit, or one that counts
						}
					}
				})
			}
			wg.Wait()
			replay(t, table, means, counter{1: 1, 2: 2, 3: 3, 4: 4, 5: 5})
		})
	}
}

func replay(t *testing.T, table *delta.Table, means map[string]func(counter), m counter) {
	t.Helper()
	commits := map[int64]string{}
	for e, err := range table.History(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Info.UserMetadata != "" {
			commits[e.Version] = e.Info.UserMetadata
		}
	}
	for _, v := range slices.Sorted(maps.Keys(commits)) {
		means[commits[v]](m)
	}
	t.Logf("%d of %d operations have a commit", len(commits), len(means))
	var want []string
	for id, n := range m {
		want = append(want, fmt.Sprintf(`{"id":%d,"n":%d}`, id, n))
	}
	slices.Sort(want)
	wantRows(t, open(t, table.Store()), want...)
}
