package spec

import (
	"os"
	"testing"
	"time"

	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
)

// What a process that died told of slow tables is taken back by the next one on its host, and by no other.
func TestSupervised_TablesThatAreSlowNoMore_ToldNoMore(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	st, since := store.NewMem(), time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	_, err = lake.ChangeControl(t.Context(), st, "app", func(c *lake.Control) error {
		c.Tables["ours"] = lake.TableControl{Slow: &lake.Pause{By: host, Since: since, Why: "it hung"}}
		c.Tables["theirs"] = lake.TableControl{Slow: &lake.Pause{By: "another host", Since: since, Why: "it hung"}}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &Supervised{b: NewBuilder(nil), p: &Pipeline{App: "app"}, control: st, slow: &lake.SlowTables{}}
	if err := s.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.note(t.Context())
	said, err := lake.ReadControl(t.Context(), st, "app", nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(said.Tables) != 1 || said.Tables["theirs"].Slow == nil {
		t.Errorf("got %v, want only what another host tells", said.Tables)
	}
}

func TestParkedOf_Folder_OnePlaceForEachTable(t *testing.T) {
	p := &Pipeline{Target: Target{Delta: &Delta{ParkIn: Text{Value: "s3://spare/parked/"}}}}
	for table, want := range map[string]string{
		"bronze.orders":          "s3://spare/parked/bronze.orders_parked",
		"s3://lake/bronze/order": "s3://spare/parked/s3:=2F=2Flake=2Fbronze=2Forder_parked",
	} {
		if got := p.parkedOf(table); got != want {
			t.Errorf("%s: got %s, want %s", table, got, want)
		}
	}
}
