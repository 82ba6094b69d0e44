package freshet

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// group is what one Seal gave, with what the write goroutine knows of it.
type group struct {
	commits []Commit
	spans   map[string]span     // by table
	gens    map[string]int      // by table, see writer.gens
	reach   map[string]Progress // by table: where its lanes are once all commits have landed
	left    []laneKey           // lanes that are no longer ours
	quiet   []Quiet             // where nothing came
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

// maxCommits is how many commits of a group run at once: each is of another table.
const maxCommits = 8

// commitAll is the commit goroutine: it runs the sealed commits, group after group, and acknowledges them, until there
// are no more. The first of a group runs before the others, since it may tell of them, and those run side by side, so that
// a slow table holds back no other. After a stale commit it drops all later ones of that table that were sealed on top of
// it; after a failure, all.
func (r *run) commitAll(ctx context.Context) {
	defer close(r.results)
	c := &committer{run: r, stale: map[string]int{}, cuts: newCutter(r.target)}
	for g := range r.sealed {
		c.cuts.begin(g)
		var idle []IdleCommit
		var rest []Commit
		for _, one := range g.commits {
			if !c.failed && !c.lost(g, one) && c.cuts.idle(one) {
				idle = append(idle, one.(IdleCommit))
				continue
			}
			rest = append(rest, one)
		}
		c.commitEach(ctx, g, rest)
		end := c.end(ctx, g, idle)
		if g.passed != nil {
			close(g.passed)
		}
		r.results <- end
	}
}

// committer is the commit goroutine's own state. While commits run side by side mu guards it.
type committer struct {
	*run
	mu     sync.Mutex
	cuts   *cutter
	stale  map[string]int // by table: the generation that is lost
	failed bool
}

// lost reports whether the commit was sealed on top of one that was stale.
func (c *committer) lost(g group, one Commit) bool {
	gen, is := c.stale[one.Table()]
	return is && g.gens[one.Table()] <= gen
}

// commitEach runs the first of the commits, and then the others side by side.
func (c *committer) commitEach(ctx context.Context, g group, all []Commit) {
	if len(all) == 0 {
		return
	}
	c.commit(ctx, g, all[0])
	var others errgroup.Group
	others.SetLimit(maxCommits)
	for _, one := range all[1:] {
		others.Go(func() error {
			c.commit(ctx, g, one)
			return nil
		})
	}
	_ = others.Wait() // each has told its own outcome
}

// commit runs a commit of the group, unless one before it came to nothing.
func (c *committer) commit(ctx context.Context, g group, one Commit) {
	table := one.Table()
	c.mu.Lock()
	drop := c.failed || c.lost(g, one)
	c.mu.Unlock()
	if drop {
		one.Abort()
		return
	}
	start := time.Now()
	done, err := one.Run(ctx)
	c.mu.Lock()
	switch {
	case errors.Is(err, ErrStale):
		one.Abort()
		c.stale[table] = g.gens[table]
	case err != nil:
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		c.failed = true
	default:
		c.landed(ctx, done, start, g.spans[table])
	}
	c.mu.Unlock()
	c.results <- result{table: table, gen: g.gens[table], err: err}
}

// landed tells of a commit that began at start, and acknowledges it.
func (c *committer) landed(ctx context.Context, done Committed, start time.Time, s span) {
	c.stage("commit", start)
	if c.obs.Committed != nil {
		c.obs.Committed(done, time.Since(start), time.Since(s.oldest), s.newest)
	}
	c.ack(ctx, done.Table, done.Progress)
	c.cuts.landed(done, s)
}

// end has a cut recorded behind the group. What is idle of it has landed with that; without a cut it runs. What is quiet counts with
// a cut alone.
func (c *committer) end(ctx context.Context, g group, idle []IdleCommit) (end result) {
	if !c.failed {
		var recorded *Recorded
		recorded, end.err = c.cuts.cut(ctx, g, idle)
		c.failed = end.err != nil
		if end.cut = recorded != nil; end.cut {
			for _, q := range recorded.Quiet {
				c.ack(ctx, q.Table, Progress{q.Lane: q.Last})
			}
		}
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

// ack tells the origin what it may forget.
func (r *run) ack(ctx context.Context, table string, p Progress) {
	if err := r.source.Ack(ctx, table, p); err != nil {
		r.log.Warn("the origin did not take the acknowledgement", "table", table, "error", err)
	}
}
