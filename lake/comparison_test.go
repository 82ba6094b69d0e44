package lake_test

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
)

func TestComparisons_Recorded_NewestOfEachTableIsRead(t *testing.T) {
	st := store.NewMem()
	at := time.UnixMicro(1_700_000_000_000_000).UTC()
	if all, err := lake.ReadComparisons(t.Context(), "c", st, at); err != nil || len(all) > 0 {
		t.Errorf("got %v, %v before anything was recorded, wanted nothing", all, err)
	}
	whole := lake.Comparison{At: at.Add(time.Hour), Took: 1500 * time.Millisecond, Table: "bronze.a", Source: "public.a", Share: 0.05,
		Version: 7, Position: "shop[0]@9", Ranges: 3, Rows: 100, Bytes: 4000, Rechecked: 9, Undecided: 1, Rejected: 2, Missing: 1, Extra: 2,
		Stale: 3, Different: 4, Duplicate: 5, Mended: 6, Keys: []string{"missing 1", "extra 2, b"}}
	failed := lake.Comparison{At: at, Table: "bronze.b", Source: "public.b", Share: 1, Fault: "it is still being loaded", Keys: nil}
	for _, all := range [][]lake.Comparison{{{At: at, Table: "bronze.a"}, failed}, {whole}, {{At: at.Add(-time.Hour), Table: "bronze.old"}}} {
		must(t, lake.RecordComparisons(t.Context(), "c", st, "test", all))
	}
	got, err := lake.ReadComparisons(t.Context(), "c", st, at)
	if err != nil || len(got) != 2 || !reflect.DeepEqual(got[0], whole) || got[1].Fault != failed.Fault {
		t.Errorf("got %+v, %v\nwanted %+v and the fault of another", got, err, whole)
	}
	if n := whole.Differences(); n != 15 {
		t.Errorf("got %d differences, wanted 15", n)
	}
}

// Several record at once, and often: nothing is lost, and the log is not read from its beginning for ever.
func TestComparisons_SeveralAtOnce_NoneIsLost(t *testing.T) {
	st := store.NewMem()
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for n := range 10 {
				c := lake.Comparison{At: time.UnixMicro(int64(1 + n)), Table: fmt.Sprintf("t%d_%d", w, n)}
				if err := lake.RecordComparisons(t.Context(), "c", st, "", []lake.Comparison{c}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	all, err := lake.ReadComparisons(t.Context(), "c", st, time.UnixMicro(1))
	if err != nil || len(all) != 30 {
		t.Errorf("got %d, %v, wanted all 30", len(all), err)
	}
	d, err := delta.Open(t.Context(), st, nil)
	must(t, err)
	snap, err := d.Snapshot(t.Context())
	must(t, err)
	if snap.CheckpointVersion() < 10 {
		t.Errorf("got the newest checkpoint at version %d of %d, wanted one now and then", snap.CheckpointVersion(), snap.Version())
	}
}

func TestComparisons_AnotherTable_IsRefused(t *testing.T) {
	st := store.NewMem()
	must(t, lake.RecordComparisons(t.Context(), "c", st, "", []lake.Comparison{{At: time.UnixMicro(1), Table: "t"}}))
	other := store.NewMem()
	schema, err := delta.SchemaFromArrow(itemSchema)
	must(t, err)
	_, err = delta.Create(t.Context(), other, &delta.CreateOptions{Schema: schema})
	must(t, err)
	var e *freshet.Error
	if err := lake.RecordComparisons(t.Context(), "c", other, "", []lake.Comparison{{}}); !errors.As(err, &e) ||
		e.Code != freshet.CodeSchemaMismatch {
		t.Errorf("got %v, wanted FRE-4002", err)
	}
}
