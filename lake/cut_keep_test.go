package lake_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/freshettest"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
)

// keyedDays is a table of one row a key that changes every day, so that a day's files are gone from the next one's.
func keyedDays(t *testing.T, w *world, first freshet.Day, days int) *delta.Table {
	t.Helper()
	o := freshettest.NewOrigin(1)
	for d := range days {
		o.AppendAt(freshettest.Lane(0), 0, freshettest.GoodRecord, (first + freshet.Day(d)).Start())
	}
	opts := *withDays
	opts.Mode = lake.Mirror
	opts.Key = lake.KeyOptions{Columns: []string{"lane"}, CopyOnWrite: true, IndexDir: t.TempDir()}
	must(t, byDay(o, 1, w.target(&opts), 1).Run(t.Context()))
	d, err := delta.Open(t.Context(), w.store("t0"), nil)
	must(t, err)
	return d
}

// checkEnds makes sure that the table holds, at the end of each day, the seq of that day alone.
func (w *world) checkEnds(t *testing.T, when string, first freshet.Day, days int) {
	t.Helper()
	log, err := lake.OpenCuts(t.Context(), w.store("cuts"))
	must(t, err)
	for d := range days {
		c, err := log.AsOfDay(t.Context(), first+freshet.Day(d))
		must(t, err)
		rows := w.rowsAt(t, "t0", c.Tables[0].Version)
		if len(rows) != 1 || rows[0].Seq != int64(d) {
			t.Fatalf("%s: at the end of day %d there is %v, want seq %d", when, d, rows, d)
		}
	}
}

// cutsIn opens the cuts tables of a world.
func (w *world) cutsIn(m lake.CutMarker) (store.Store, error) { return w.store(m.Cuts), nil }

func vacuumAt(t *testing.T, w *world, d *delta.Table, now time.Time) {
	t.Helper()
	p, err := lake.CutProtection(t.Context(), d, w.cutsIn, now)
	must(t, err)
	o := &delta.VacuumOptions{Retention: -1, Force: true, Now: now}
	must(t, p.Vacuum(t.Context(), d, o))
	_, err = d.Vacuum(t.Context(), o)
	must(t, err)
}

func TestCutProtection_Vacuum_KeepsWhatCutsName(t *testing.T) {
	const days = 4
	w := newWorld()
	d := keyedDays(t, w, firstDay, days)
	w.checkEnds(t, "before", firstDay, days-1)

	// Within the retention all cuts are whole.
	vacuumAt(t, w, d, time.Now().Add(24*time.Hour))
	log, err := lake.OpenCuts(t.Context(), w.store("cuts"))
	must(t, err)
	byName := func(string) (store.Store, error) { return w.store("t0"), nil }
	for _, c := range w.cuts(t) {
		must(t, log.CheckWhole(t.Context(), c, byName))
	}

	// A cut whose files are gone says which are whole still.
	_, err = d.Vacuum(t.Context(), &delta.VacuumOptions{Retention: -1, Force: true, Now: time.Now().Add(24 * time.Hour)})
	must(t, err)
	all := w.cuts(t)
	early := all[1]
	err = log.CheckWhole(t.Context(), early, byName)
	var gone *freshet.Error
	if !errors.As(err, &gone) || gone.Code != freshet.CodeNoVersion || !strings.Contains(gone.Fix, "are whole still") {
		t.Errorf("a cut whose files are gone: got %v, want an error that names what is whole", err)
	}
	must(t, log.CheckWhole(t.Context(), all[len(all)-1], byName))
}

// The ends of days are kept by the day of the source, so that these are of this week.
func TestCutProtection_OldCuts_OnlyEndsOfDaysStay(t *testing.T) {
	const days = 4
	w := newWorld()
	first := freshet.DayOf(time.Now()) - days - 1
	d := keyedDays(t, w, first, days)
	later := time.Now().Add(30 * 24 * time.Hour)
	vacuumAt(t, w, d, later)
	w.checkEnds(t, "after a vacuum", first, days-1)

	must(t, d.Checkpoint(t.Context(), w.snapshot(t, "t0")))
	p, err := lake.CutProtection(t.Context(), d, w.cutsIn, later)
	must(t, err)
	clean := &delta.CleanOptions{Now: later.Add(60 * 24 * time.Hour)}
	p.Clean(clean)
	if n, err := d.CleanLog(context.Background(), clean); err != nil || n == 0 {
		t.Fatalf("cleaned %d files of the log, %v, want some", n, err)
	}
	w.checkEnds(t, "after the log was cleaned", first, days-1)

	longAfter := time.Now().Add(120 * 24 * time.Hour)
	p, err = lake.CutProtection(t.Context(), d, w.cutsIn, longAfter)
	must(t, err)
	if p.From != nil || len(p.Versions) > 0 {
		t.Errorf("after keep_daily %v and %v are kept, want nothing", p.From, p.Versions)
	}
}

func TestCutProtection_CutsTableGone_IsAnError(t *testing.T) {
	w := newWorld()
	d := keyedDays(t, w, firstDay, 2)
	_, err := lake.CutProtection(t.Context(), d, func(lake.CutMarker) (store.Store, error) { return store.NewMem(), nil },
		time.Now())
	var e *freshet.Error
	if !errors.As(err, &e) || !strings.Contains(e.Fix, "_freshet/cuts/") {
		t.Errorf("got %v, want an error that names the marker", err)
	}
}

func TestCutMarkers_Broken_AreAnError(t *testing.T) {
	st := store.NewMem()
	must(t, st.Put(t.Context(), "_freshet/cuts/x.json", []byte(`{"app":`)))
	if _, err := lake.CutMarkers(t.Context(), st); err == nil {
		t.Error("got no error of a marker that cannot be read")
	}
}
