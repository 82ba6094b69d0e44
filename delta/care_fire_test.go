package delta_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

// copyOf is a store with the same objects.
func copyOf(t testing.TB, st store.Store) store.Store {
	t.Helper()
	ctx, to := context.Background(), store.NewMem()
	for o, err := range st.List(ctx, "", "") {
		if err != nil {
			t.Fatal(err)
		}
		data, err := st.Get(ctx, o.Key)
		if err == nil {
			err = to.Put(ctx, o.Key, data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// operation is one that looks after a table.
type operation func(context.Context, *delta.Table) error

// operations are those that leave the rows of any table as they are.
func operations() map[string]operation {
	optimize := func(o delta.OptimizeOptions) operation {
		o.Concurrency, o.Deadline = 1, time.Nanosecond
		return func(ctx context.Context, t *delta.Table) error { _, err := t.Optimize(ctx, &o); return err }
	}
	return map[string]operation{
		"optimize": optimize(delta.OptimizeOptions{}),
		"batches":  optimize(delta.OptimizeOptions{BatchBytes: 1}),
		"z-order":  optimize(delta.OptimizeOptions{ZOrderBy: []string{"x", "y"}, TargetFileBytes: 4 << 10, MemoryBytes: 16 << 10}),
		"vacuum": func(ctx context.Context, t *delta.Table) error {
			_, err := t.Vacuum(ctx, &delta.VacuumOptions{Retention: -1, Force: true, LogCommits: true})
			return err
		},
		"check": func(ctx context.Context, t *delta.Table) error {
			_, err := t.Check(ctx, &delta.CheckOptions{Deep: true, Fix: true, Concurrency: 1})
			return err
		},
		"manifest": func(ctx context.Context, t *delta.Table) error {
			if _, err := t.GenerateManifest(ctx); !errors.Is(err, delta.ErrDeletionVectors) {
				return err
			}
			return nil
		},
	}
}

// TestCare_FaultyStore_RowsStay runs the operations on a store of which calls fail now and then.
func TestCare_FaultyStore_RowsStay(t *testing.T) {
	seed := seedOf(t)
	for name, run := range operations() {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 2))
			st := store.NewMem()
			table := pointsTable(t, st, rng, 6, delta.CreateOptions{PartitionBy: []string{"p"}})
			want := sortedRows(t, table)
			for round := range uint64(8) {
				if handle, err := delta.Open(context.Background(), storetest.NewFaulty(st, storetest.Seeded(seed+round, 0.05)),
					nil); err == nil {
					_ = run(context.Background(), handle) // it may fail, and must not harm
				}
				sameRows(t, open(t, st), want)
			}
		})
	}
}

// blocking holds back the first PutIfAbsent until others have been there.
type blocking struct {
	store.Store
	before func() // called once, before the first commit
	done   bool
}

func (b *blocking) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	if !b.done {
		b.done = true
		b.before()
	}
	return b.Store.PutIfAbsent(ctx, key, data)
}

// TestCare_AnotherWriterFirst_NoRowLostAndNoneTwice has another writer commit right before an optimize does.
func TestCare_AnotherWriterFirst_NoRowLostAndNoneTwice(t *testing.T) {
	ctx := context.Background()
	others := map[string]func(*testing.T, *delta.Table, *rand.Rand){
		"optimize": func(t *testing.T, table *delta.Table, _ *rand.Rand) { optimize(t, table, nil) },
		"append":   func(t *testing.T, table *delta.Table, rng *rand.Rand) { appendPoints(t, table, rng, 500_000, 30) },
		"delete":   func(t *testing.T, table *delta.Table, rng *rand.Rand) { deletePoints(t, table, rng, 0.7) },
		"overwrite": func(t *testing.T, table *delta.Table, rng *rand.Rand) {
			tx := table.Begin(snapshot(t, table), nil)
			for a, err := range snapshot(t, table).Files(ctx, nil) {
				if err != nil {
					t.Fatal(err)
				}
				tx.Remove(a.Remove())
			}
			tx.ReadTable()
			if _, err := tx.Commit(ctx); err != nil {
				t.Fatal(err)
			}
		},
		"restore": func(t *testing.T, table *delta.Table, _ *rand.Rand) {
			if _, err := table.Restore(ctx, 4, nil); err != nil {
				t.Fatal(err)
			}
		},
	}
	seed := seedOf(t)
	for _, name := range slices.Sorted(maps.Keys(others)) {
		for _, order := range [][]string{nil, {"x", "y"}} {
			t.Run(name, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 3))
				st := store.NewMem()
				pointsTable(t, st, rng, 10, delta.CreateOptions{PartitionBy: []string{"p"}})
				other := open(t, st)
				var want []string
				late := open(t, &blocking{Store: st, before: func() {
					others[name](t, other, rng)
					want = sortedRows(t, other)
				}})
				r := optimize(t, late, &delta.OptimizeOptions{ZOrderBy: order})
				fresh := open(t, st)
				sameRows(t, fresh, want)
				if found := check(t, fresh, &delta.CheckOptions{Deep: true}); found.Errors > 0 {
					t.Errorf("%+v", found.Findings)
				}
				if name == "delete" && r.Conflicts > 0 {
					t.Errorf("deletions by vector made the optimize give way: %+v", r)
				}
			})
		}
	}
}
