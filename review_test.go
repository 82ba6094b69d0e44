package freshet_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/freshettest"
)

// askTwice is a source that asks for the progress of its lanes by two goroutines, as one does that takes lanes
// on while it reads a table again.
type askTwice struct {
	*freshettest.Source
	lanes []freshet.Lane
}

func (a *askTwice) Open(ctx context.Context, down freshet.Downstream) error {
	go func() { _, _ = down.Resume(ctx, "t", a.lanes) }()
	<-time.After(time.Second) // the other call is under way
	return a.Source.Open(ctx, down)
}

// slowTarget takes its time to tell the first progress that it was asked for.
type slowTarget struct {
	freshet.Target
	calls atomic.Int64
}

func (s *slowTarget) Resume(ctx context.Context, table string, lanes []freshet.Lane) (freshet.Progress, error) {
	p, err := s.Target.Resume(ctx, table, lanes)
	if s.calls.Add(1) == 1 {
		<-time.After(time.Minute)
	}
	return p, err
}

func TestRun_AnAnswerIsOvertaken_TheLaneIsNotSetBackUnderWhatCameAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(1, freshettest.SourceOptions{}, freshet.Options{Every: time.Second}, nil)
		r.origin.Append(lane0, 0, freshettest.GoodRecord)
		end := r.begin(t)
		<-time.After(3 * time.Second)
		must(t, end())
		again := &askTwice{Source: freshettest.NewSource(r.origin, freshettest.SourceOptions{}),
			lanes: []freshet.Lane{lane0}}
		r.Pipeline.Source = again
		r.Pipeline.Target = &slowTarget{Target: freshettest.NewTarget(r.tables, nil)}
		end = r.begin(t)
		for range 20 {
			r.origin.Append(lane0, 0, freshettest.GoodRecord)
			<-time.After(10 * time.Second)
		}
		must(t, end())
		r.checkAll(t)
	})
}
