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
	c := &committer{run: r, stale: map[string]int{}, cuts: newCutter(r.target)}
	for g := range r.sealed {
		c.cuts.begin(g)
		var idle []IdleCommit
		for _, one := range g.commits {
			if !c.failed && !c.lost(g, one) && c.cuts.idle(one) {
				idle = append(idle, one.(IdleCommit))
				continue
			}
			c.commit(ctx, g, one)
		}
		end := c.end(ctx, g, idle)
		if g.passed != nil {
			close(g.passed)
		}
		r.results <- end
	}
}

// committer is the commit goroutine's own state.
type committer struct {
	*run
	cuts   *cutter
	stale  map[string]int // by table: the generation that is lost
	failed bool
}

// lost reports whether the commit was sealed on top of one that was stale.
func (c *committer) lost(g group, one Commit) bool {
	gen, is := c.stale[one.Table()]
	return is && g.gens[one.Table()] <= gen
}

// commit runs a commit of the group, unless one before it came to nothing.
func (c *committer) commit(ctx context.Context, g group, one Commit) {
	table := one.Table()
	if c.failed || c.lost(g, one) {
		one.Abort()
		return
	}
	done, err := c.run.commit(ctx, one, g.spans[table])
	switch {
	case errors.Is(err, ErrStale):
		one.Abort()
		c.stale[table] = g.gens[table]
	case err != nil:
		c.failed = true
	default:
		c.cuts.landed(done, g.spans[table])
	}
	c.results <- result{table: table, gen: g.gens[table], err: err}
}

// end has a cut recorded behind the group. What is idle of it has landed with that; without a cut it runs.
func (c *committer) end(ctx context.Context, g group, idle []IdleCommit) (end result) {
	if !c.failed {
		end.cut, end.err = c.cuts.cut(ctx, g, idle)
		c.failed = end.err != nil
	}
	for _, one := range idle {
		if !end.cut {
			c.commit(ctx, g, one)
			continue
		}
		to, _ := one.Idle()
		one.Abort()
		c.ack(ctx, one.Table(), to)
		c.results <- result{table: one.Table(), gen: g.gens[one.Table()]}
	}
	return end
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
	r.ack(ctx, done.Table, done.Progress)
	return done, nil
}

// ack tells the origin what it may forget.
func (r *run) ack(ctx context.Context, table string, p Progress) {
	if err := r.source.Ack(ctx, table, p); err != nil {
		r.log.Warn("the origin did not take the acknowledgement", "table", table, "error", err)
	}
}
