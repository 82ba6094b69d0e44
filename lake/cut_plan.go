package lake

import (
	"context"
	"errors"
	"fmt"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/store"
)

// checkPlan refuses a pipeline that has become another one while its tables were not level: what the former one left half
// would be finished in another way than it was begun, and no cut would show either. It is asked before a lane goes on.
func (a *Target) checkPlan(ctx context.Context) error {
	a.mu.Lock()
	known := a.planned
	a.mu.Unlock()
	if a.cuts == nil || known || a.cuts.opts.Plan == "" || a.cuts.opts.TakePlan {
		return nil
	}
	r, err := newRecorder(a, &a.cuts.opts)
	if err != nil {
		return err
	}
	level, err := r.levelUnless(ctx, a.cuts.opts.Plan)
	if err != nil {
		return explain(r.log.name, err)
	}
	if !level {
		return &freshet.Error{Code: freshet.CodePlanChanged, Class: freshet.ClassInput, Place: r.log.name,
			Msg: fmt.Sprintf("the pipeline is another one than that of cut %d (plan %s, then %s), and its tables are not level: the "+
				"former one has ended in the middle", r.head.Number, a.cuts.opts.Plan, r.head.Plan),
			Fix: "run the pipeline as it was until it has recorded a cut: `freshet run --until-caught-up`; or, with " +
				"--take-plan, let it go on as it is"}
	}
	a.mu.Lock()
	a.planned = true
	a.mu.Unlock()
	return nil
}

// levelUnless reports whether the newest cut is of this plan, or the tables that it shows are level now.
func (r *recorder) levelUnless(ctx context.Context, plan string) (bool, error) {
	snap, err := r.log.look(ctx)
	if snap == nil || err != nil {
		return true, err
	}
	if _, ours := snap.Txn(cutTxn(r.a.app)); !ours {
		return true, nil
	}
	if r.head, err = r.log.newest(ctx, snap); err != nil || r.head.Plan == "" || r.head.Plan == plan {
		return true, err
	}
	var tables []*table
	for _, h := range r.head.Tables {
		if !r.keeps(h.Name) {
			continue
		}
		t, err := r.a.ownerOf(h.Name, r.head.Tables).table(h.Name)
		if err != nil {
			return false, err
		}
		if behind, err := t.park.behind(ctx); err != nil || behind == parkBehind {
			if err != nil {
				return false, err
			}
			continue
		}
		if err := t.recollect(ctx); err != nil {
			return false, err
		}
		tables = append(tables, t)
	}
	_, level, err := r.join(ctx, tables, nil, true)
	if errors.Is(err, freshet.ErrStale) {
		err = fmt.Errorf("%w: whether the tables are level cannot be told: %v", store.ErrUnavailable, err)
	}
	return level, err
}

// keeps reports whether a table that a cut shows is the pipeline's still.
func (r *recorder) keeps(table string) bool { return r.opts.Of == nil || r.opts.Of(table) }

// reads reports whether the pipeline reads the lane still: a table remembers those of topics that it read once.
func (r *recorder) reads(l freshet.Lane) bool { return r.opts.Reads == nil || r.opts.Reads(l) }
