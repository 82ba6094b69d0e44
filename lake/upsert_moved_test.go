package lake_test

import (
	"context"
	"path"
	"strings"
	"testing"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
	"github.com/freshet-io/freshet/store/storetest"
)

// A foreign writer packs the files of the table between each upsert and its commit.
func TestUpsert_CompactionWinsTheRace_NothingIsWrittenInVain(t *testing.T) {
	w := newWorld()
	dropped, pack := 0, false // files that were written in vain; whether the next commit is to lose
	open := func(table string) (store.Store, error) {
		return storetest.NewFaulty(w.store(table), func(op storetest.Op, key string, _ int) storetest.Fault {
			switch {
			case table != "t":
			case op == storetest.OpDelete && path.Ext(key) == ".parquet":
				dropped++
			case op == storetest.OpPutIfAbsent && strings.HasPrefix(key, "_delta_log/") && pack:
				pack = false
				d, err := delta.Open(context.Background(), w.store("t"), nil)
				must(t, err)
				_, err = d.Optimize(context.Background(), &delta.OptimizeOptions{MaxDeleted: 0.01})
				must(t, err)
			}
			return storetest.Fault{}
		}), nil
	}
	k, err := newKeyedStream(t, open, 7, lake.TargetOptions{Mode: lake.Mirror})
	must(t, err)
	must(t, k.commit(k.batch(0)))
	must(t, k.commit(k.batch(0)))
	const commits = 20
	for range commits {
		pack = true
		must(t, k.commit(k.batch(0)))
		compareItems(t, w.items(t, "t"), k.model.items)
	}
	must(t, k.target.Close(context.Background()))
	d, err := delta.Open(t.Context(), w.store("t"), nil)
	must(t, err)
	lost := 0
	for e, err := range d.History(t.Context(), 0) {
		must(t, err)
		if e.Info.Operation == "STREAMING UPDATE" && e.Version == *e.Info.ReadVersion+2 {
			lost++
		}
	}
	if lost < commits/2 || dropped > 0 {
		t.Errorf("of %d commits %d lost a race, and %d files were written in vain; want half of them and none", commits, lost,
			dropped)
	}
}
