package lake

import (
	"fmt"
	"testing"
	"time"

	"github.com/freshet-io/freshet/delta"
)

// files are candidates of these sizes, one a minute.
func files(sizes ...int64) []candidate {
	out := make([]candidate, len(sizes))
	for i, size := range sizes {
		out[i] = candidate{add: delta.Add{Path: fmt.Sprint(i), Size: size, ModificationTime: int64(i) * 60_000}, live: size}
	}
	return out
}

func plannerAt(now time.Duration) *planner {
	return &planner{opts: (&UpkeepOptions{SmallFiles: 4}).withDefaults(false), target: 1000, now: time.Unix(0, 0).Add(now)}
}

func wantNeed(t *testing.T, got []Need, kind UpkeepKind, paths ...string) {
	t.Helper()
	if len(got) != 1 || got[0].Kind != kind {
		t.Fatalf("got %+v, want one need to %s", got, kind)
	}
	var found []string
	for _, group := range got[0].groups {
		for i := range group {
			found = append(found, group[i].Path)
		}
	}
	if fmt.Sprint(found) != fmt.Sprint(paths) {
		t.Errorf("got files %v, want %v", found, paths)
	}
}

func TestPlan_OpenPartition_OnlyCrowdedClassIsPacked(t *testing.T) {
	p := plannerAt(10 * time.Minute)
	d := &partition{newest: time.Unix(0, 0), candidates: files(300, 20, 300, 21, 22)}
	if got := p.needs(d); len(got) != 0 {
		t.Errorf("three small files of one class: got %+v, want nothing", got)
	}
	d.candidates = files(300, 20, 300, 21, 22, 23)
	wantNeed(t, p.needs(d), Compact, "1", "3", "4", "5")
}

func TestPlan_ClosedPartition_AllFilesThatAreNotFullArePacked(t *testing.T) {
	p := plannerAt(2 * time.Hour)
	wantNeed(t, p.needs(&partition{newest: time.Unix(0, 0), candidates: files(300, 950, 20)}), Compact, "0", "2")
}

func TestPlan_PartitionOfYesterday_ClosesSoon(t *testing.T) {
	yesterday := overBy(map[string]*string{"day": ptrTo("2026-01-30")}, "2026-01-31")
	today := overBy(map[string]*string{"day": ptrTo("2026-01-31"), "shop": ptrTo("2026")}, "2026-01-31")
	if !yesterday || today {
		t.Fatalf("over: got %v and %v, want true and false", yesterday, today)
	}
	p := plannerAt(6 * time.Minute)
	d := &partition{newest: time.Unix(0, 0), over: true, candidates: files(20, 20)}
	wantNeed(t, p.needs(d), Compact, "0", "1")
	d.over = false
	if got := p.needs(d); len(got) != 0 {
		t.Errorf("a partition of today: got %+v, want nothing", got)
	}
}

func TestPlan_ClosedPartitionThatCannotHaveFewerFiles_IsLeftAlone(t *testing.T) {
	p := plannerAt(2 * time.Hour)
	d := &partition{newest: time.Unix(0, 0), candidates: files(800, 800, 20)}
	wantNeed(t, p.needs(d), Compact, "0", "1", "2")
	d.candidates = files(800, 800)
	if got := p.needs(d); len(got) != 0 {
		t.Errorf("two files of 1.6 of the target: got %+v, want nothing", got)
	}
	d.candidates = files(400, 400, 400) // what a writer that ends files too early made of it
	for i := range d.candidates {
		d.candidates[i].job = 7
	}
	if got := p.needs(d); len(got) != 0 {
		t.Errorf("files of one rewrite: got %+v, want nothing", got)
	}
}

func TestPlan_DeletedRows_MostWornFilesAreFolded(t *testing.T) {
	p := plannerAt(time.Minute)
	d := &partition{newest: time.Unix(0, 0), rows: 1000, deleted: 50, candidates: files(900, 900, 900)}
	for i, share := range []float64{0.01, 0.3, 0.04} {
		d.candidates[i].deleted, d.candidates[i].live = share, 300
	}
	if got := p.needs(d); len(got) != 0 {
		t.Errorf("a twentieth deleted: got %+v, want nothing", got)
	}
	d.deleted = 51
	wantNeed(t, p.needs(d), Fold, "1", "2")
}

func TestPlan_VectorsThatCostMoreThanTheFile_FileIsFolded(t *testing.T) {
	p := plannerAt(time.Minute)
	d := &partition{newest: time.Unix(0, 0), rows: 1000, deleted: 10, candidates: files(300, 300, 300)}
	d.candidates[0].rent, d.candidates[1].rent, d.candidates[2].rent = 150, 300, 151
	if got := p.needs(d); len(got) != 0 {
		t.Errorf("none has cost more than itself: got %+v, want nothing", got)
	}
	d.candidates[1].rent = 301
	wantNeed(t, p.needs(d), Fold, "1", "2")
}

func TestPlan_OpenPartitionOfKeyedTable_YoungestFilesStay(t *testing.T) {
	p := plannerAt(10 * time.Minute)
	p.keyed = true
	d := &partition{newest: time.Unix(0, 0), candidates: files(200, 200, 200)}
	if got := p.needs(d); len(got) != 0 {
		t.Errorf("three small files: got %+v, want nothing", got)
	}
	d.candidates = files(200, 200, 200, 200)
	wantNeed(t, p.needs(d), Compact, "0", "1")
	p.opts.SmallFiles = 2 // no fewer than two are packed
	wantNeed(t, p.needs(d), Compact, "0", "1", "2", "3")
}

func TestPlan_KeyedTable_MovesAsManyRowsAsTheIndexTakesAtOnce(t *testing.T) {
	p := plannerAt(2 * time.Hour)
	p.keyed, p.target = true, 1<<40
	d := &partition{newest: time.Unix(0, 0), rows: 4 * keyedRows, bytes: 4000, candidates: files(600, 300, 300, 600)}
	wantNeed(t, p.of(d).needs(d), Compact, "0", "1")
}

func TestLease_OfAnother_HoldsAsLongAsItSays(t *testing.T) {
	now := time.Now()
	l := lease{Holder: "other", Until: now.Add(time.Minute)}
	for _, c := range []struct {
		by   string
		at   time.Time
		want bool
	}{{"me", now, true}, {"other", now, false}, {"me", now.Add(time.Minute), false}, {"me", now.Add(-time.Hour), false}} {
		if got := l.taken(c.by, c.at); got != c.want {
			t.Errorf("asked by %s at %v: got %v, want %v", c.by, c.at.Sub(now), got, c.want)
		}
	}
}

func ptrTo(s string) *string { return &s }
