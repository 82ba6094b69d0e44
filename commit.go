package freshet

import (
	"context"
	"errors"
	"time"
)

// group is what one Seal gave, with what the write goroutine knows of it.
type group struct {
	commits []Commit
	spans   map[string]span // by table
	gens    map[string]int  // by table, see writer.gens
	passed  chan struct{}   // closed when the group is done with; nil when nobody waits
}

// span is the time that a table's records were read in, and made.
type span struct {
	oldest time.Time // arrival of the oldest record
	newest time.Time // the origin's time of the newest one
}

// result is the outcome of one commit, or, with an empty table, the end of a group.
type result struct {
	table string
	gen   int
	err   error // nil, ErrStale, or what ends the run
}

// commitAll is the commit goroutine: it runs the sealed commits in order and acknowledges them, until there
// are no more. After a stale commit it drops all later ones of that table that were sealed on top of it;
// after a failure, all.
func (r *run) commitAll(ctx context.Context) {
	defer close(r.results)
	stale := map[string]int{} // the generation of the table that is lost
	failed := false
	for g := range r.sealed {
		for _, c := range g.commits {
			table := c.Table()
			gen := g.gens[table]
			if lost, ok := stale[table]; failed || ok && gen <= lost {
				c.Abort()
				continue
			}
			err := r.commit(ctx, c, g.spans[table])
			switch {
			case errors.Is(err, ErrStale):
				c.Abort()
				stale[table] = gen
			case err != nil:
				failed = true
			}
			r.results <- result{table, gen, err}
		}
		if g.passed != nil {
			close(g.passed)
		}
		r.results <- result{}
	}
}

func (r *run) commit(ctx context.Context, c Commit, s span) error {
	start := time.Now()
	done, err := c.Run(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	r.stage("commit", start)
	if r.obs.Committed != nil {
		r.obs.Committed(done, time.Since(start), time.Since(s.oldest), s.newest)
	}
	if err := r.source.Ack(ctx, done.Table, done.Progress); err != nil {
		r.log.Warn("the origin did not take the acknowledgement", "table", done.Table, "error", err)
	}
	return nil
}
