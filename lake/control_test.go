package lake_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/store"
)

func TestControl_ManyChangeAtOnce_NothingIsLost(t *testing.T) {
	st := store.NewMem()
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			_, err := lake.ChangeControl(t.Context(), st, app, func(c *lake.Control) error {
				c.Tables[fmt.Sprint("t", i)] = lake.TableControl{Paused: &lake.Pause{By: "me", Since: time.Unix(1, 0).UTC()}}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	c, err := lake.ReadControl(t.Context(), st, app, nil)
	must(t, err)
	if len(c.Tables) != 8 {
		t.Errorf("got %v, want 8 tables", c.Tables)
	}
	again, err := lake.ReadControl(t.Context(), st, app, c)
	must(t, err)
	if again != c {
		t.Error("nothing has changed: got another, want the same")
	}
	other, err := lake.ReadControl(t.Context(), st, "other", nil)
	must(t, err)
	if !other.Empty() {
		t.Errorf("of another app: got %+v, want nothing", other)
	}
}

func TestControl_ChangedSince_SeenByWhoReadBefore(t *testing.T) {
	st := store.NewMem()
	before, err := lake.ReadControl(t.Context(), st, app, nil)
	must(t, err)
	for _, why := range []string{"a", "b"} {
		_, err := lake.ChangeControl(t.Context(), st, app, func(c *lake.Control) error {
			c.Paused = &lake.Pause{By: "me", Why: why}
			return nil
		})
		must(t, err)
		now, err := lake.ReadControl(t.Context(), st, app, before)
		must(t, err)
		if now.Paused == nil || now.Paused.Why != why {
			t.Errorf("got %+v, want %q", now.Paused, why)
		}
		before = now
	}
}
