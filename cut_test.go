package freshet_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
)

// slowOpen is a source that takes its time between its lanes and the end of Open.
type slowOpen struct{ *freshettest.Source }

func (s slowOpen) Open(ctx context.Context, down freshet.Downstream) error {
	err := s.Source.Open(ctx, down)
	<-time.After(10 * time.Second)
	return err
}

// A cut before the source has come to all of its tables would not show those that it has not come to.
func TestCut_SourceIsOpening_NotBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, c := newCutting(2, freshettest.SourceOptions{}, freshet.Options{Every: time.Second}, nil, "t")
		r.Source = slowOpen{r.source}
		end := r.begin(t)
		<-time.After(9 * time.Second)
		if all, _ := c.recorded(); len(all) != 0 {
			t.Errorf("got %d cuts while the source opens, want none", len(all))
		}
		<-time.After(3 * time.Second)
		if all, _ := c.recorded(); len(all) != 1 {
			t.Errorf("got %d cuts behind, want 1: a process before may not have recorded its last one", len(all))
		}
		must(t, end())
	})
}
