package lake_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"golang.org/x/sync/errgroup"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
)

// fellow is one of several pipelines that mirror keys of their own into one table.
type fellow struct {
	target *lake.Target
	lane   freshet.Lane
	last   int64
	model  keyedModel
	random *rand.Rand
	first  int64 // key; it has fellowKeys
}

const fellowKeys = 40

func (f *fellow) start(ctx context.Context) error {
	if err := f.target.Open(ctx); err != nil {
		return err
	}
	if err := f.target.Ensure(ctx, "t", itemSchema); err != nil {
		return err
	}
	_, err := f.target.Start(ctx, "t", freshet.Progress{f.lane: -1})
	return err
}

// commit commits changes of its keys, n of them.
func (f *fellow) commit(ctx context.Context, n int) error {
	var batch []itemChange
	for range n {
		c := randomChange(f.random, fellowKeys, f.last+1, false)
		c.id += f.first
		f.model.apply(c)
		batch = append(batch, c)
	}
	if _, err := f.target.Write(ctx, itemBatch("t", f.lane, f.last, batch)); err != nil {
		return err
	}
	f.last += int64(n)
	commits, err := f.target.Seal(ctx)
	if err != nil {
		return err
	}
	for _, c := range commits {
		if _, err := c.Run(ctx); err != nil {
			return err
		}
	}
	return nil
}

func TestMirror_TenPipelinesWithKeysOfTheirOwn_NoRowLostOrTwice(t *testing.T) {
	for name, properties := range map[string]map[string]string{
		"vectors": {}, "vectors and feed": {"delta.enableChangeDataFeed": "true"}, "copies": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, dir := newWorld(), t.TempDir()
			fellows := make([]*fellow, 10)
			for i := range fellows {
				opts := &lake.TargetOptions{Mode: lake.Mirror, Properties: properties, Key: lake.KeyOptions{
					Columns: []string{"id"}, IndexDir: dir, CopyOnWrite: properties == nil}}
				fellows[i] = &fellow{target: lake.NewTarget(w.open, fmt.Sprint(app, i), opts), last: -1,
					lane:   freshet.Lane{Origin: fmt.Sprint("orders", i), OriginID: "a", Name: "0"},
					model:  keyedModel{items: map[int64]item{}, ended: map[int64]int64{}, waiting: map[int64][]itemChange{}},
					random: rand.New(rand.NewPCG(uint64(i), 5)), first: int64(i) * fellowKeys}
				must(t, fellows[i].start(t.Context()))
			}
			g, ctx := errgroup.WithContext(t.Context())
			for _, f := range fellows {
				g.Go(func() error {
					for range 6 {
						if err := f.commit(ctx, 1+f.random.IntN(20)); err != nil {
							return fmt.Errorf("%v: %w", f.lane, err)
						}
					}
					return f.target.Close(ctx)
				})
			}
			must(t, g.Wait())
			want := map[int64]item{}
			for _, f := range fellows {
				for id, it := range f.model.items {
					want[id] = it
				}
			}
			compareItems(t, w.items(t, "t"), want)
			w.wantEachKeyOnce(t, "t")
		})
	}
}

// wantEachKeyOnce fails when a version of the table has a key twice.
func (w *world) wantEachKeyOnce(t *testing.T, table string) {
	t.Helper()
	d, err := delta.Open(t.Context(), w.store(table), nil)
	must(t, err)
	newest, err := d.Snapshot(t.Context())
	must(t, err)
	for v := range newest.Version() + 1 {
		snap, err := d.SnapshotAt(t.Context(), v)
		must(t, err)
		seen := map[int64]bool{}
		var twice []string
		for rec, err := range snap.Scan(t.Context(), &delta.ScanOptions{Columns: []string{"id"}}) {
			must(t, err)
			for _, id := range rec.Column(0).(*array.Int64).Int64Values() {
				if seen[id] {
					twice = append(twice, fmt.Sprint(id))
				}
				seen[id] = true
			}
			rec.Release()
		}
		if len(twice) > 0 {
			t.Fatalf("version %d has these keys twice: %s", v, strings.Join(twice, ", "))
		}
	}
}
