package freshet

import (
	"context"
	"errors"
	"time"
)

// group is what one Seal gave, with what the write goroutine knows of it.
type group struct {
	commits []Commit
	spans   map[string]span     // by table
	gens    map[string]int      // by table, see writer.gens
	reach   map[string]Progress // by table: where its lanes are once all commits have landed
	left    []laneKey           // lanes that are no longer ours
	torn    bool                // it ends within a moment of the origin: no cut is recorded
	look    bool                // there may be a cut to record though nothing is committed
	opens   Day                 // the day that begins behind the group; 0: it ends anywhere
	lanes   map[string][]Lane   // with opens: all that are ours, by table
	passed  chan struct{}       // closed when the group is done with; nil when nobody waits
}

// span is the time that a table's records were read in, and made.
type span struct {
	oldest time.Time // arrival of the oldest record
	newest time.Time // the origin's time of the newest one
}

// result is the outcome of one commit, or, with an empty table, the end of a group and the outcome of its cut.
type result struct {
	table string
	gen   int
	err   error // nil, ErrStale, or what ends the run
	cut   bool  // at the end of a group: its cut is recorded
}

// commitAll is the commit goroutine: it runs the sealed commits in order and acknowledges them, until there
// are no more. After a stale commit it drops all later ones of that table that were sealed on top of it;
// after a failure, all.
func (r *run) commitAll(ctx context.Context) {
	defer close(r.results)
	stale := map[string]int{} // the generation of the table that is lost
	failed := false
	cuts := newCutter(r.target)
	for g := range r.sealed {
		cuts.begin(g)
		for _, c := range g.commits {
			table := c.Table()
			gen := g.gens[table]
			if lost, ok := stale[table]; failed || ok && gen <= lost {
				c.Abort()
				continue
			}
			done, err := r.commit(ctx, c, g.spans[table])
			switch {
			case errors.Is(err, ErrStale):
				c.Abort()
				stale[table] = gen
			case err != nil:
				failed = true
			default:
				cuts.landed(done, g.spans[table])
			}
			r.results <- result{table: table, gen: gen, err: err}
		}
		end := result{}
		if !failed {
			end.cut, end.err = cuts.cut(ctx, g)
			failed = end.err != nil
		}
		if g.passed != nil {
			close(g.passed)
		}
		r.results <- end
	}
}

func (r *run) commit(ctx context.Context, c Commit, s span) (Committed, error) {
	start := time.Now()
	done, err := c.Run(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return done, context.Cause(ctx)
		}
		return done, err
	}
	r.stage("commit", start)
	if r.obs.Committed != nil {
		r.obs.Committed(done, time.Since(start), time.Since(s.oldest), s.newest)
	}
	if err := r.source.Ack(ctx, done.Table, done.Progress); err != nil {
		r.log.Warn("the origin did not take the acknowledgement", "table", done.Table, "error", err)
	}
	return done, nil
}
