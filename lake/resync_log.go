package lake

import (
	"context"
	"errors"
	"fmt"
	"slices"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// A resync changes rows without a change of the source. A change log beside the table is owed what the swap did to rows, and
// gets it in one commit of its own, before more of the source comes to either of them:
//
//	the table                                         its change log
//	                                                  what was parked of it, up to the swap's progress
//	the swap: resync n, which the log is owed   ─▶    the difference of the swap (resync_rows.go), resync n
//	changes behind the swap's progress                what else was parked, and changes from where the log stands
//
// Commits of the table are fenced by the number of the resync as they are by their progress: who did not hear of the swap
// has to resume its lanes, and that settles first what is owed. The log is never past the progress of the swap then, since the
// copy had to hold all that the log does, and since the table is committed before its log.

// resyncTxn is, in a table, the number of the resync that was swapped in last; in a change log, of that which it was told of.
func resyncTxn(app string) string { return app + "#resync" }

// owedTxn is, in a table, the number of the resync of which the change log of this name was to be told last.
func owedTxn(log string) string { return besideTxn(log) + "#resync" }

// resyncParam names, in the history of a table and of its change log, the app that loaded it again.
const resyncParam = "freshet.resync"

// owe has the swap note which change logs are to be told of it: the one that there is, and all that the table has had, since
// the file of the pipeline may name none just now.
func (r *Resync) owe(set txns, main, log *delta.Snapshot) {
	if log != nil {
		set[owedTxn(r.LogName)] = r.Plan.Number
	}
	for id := range main.Txns() {
		if name, ok := besideName(id); ok {
			set[owedTxn(name)] = r.Plan.Number
		}
	}
}

// checkResync refuses a commit when the table was loaded again since its lanes were resumed. Errors: ErrStale.
func (t *table) checkResync(snap *delta.Snapshot) error {
	t.mu.Lock()
	known := t.resynced
	t.mu.Unlock()
	if now, _ := snap.Txn(resyncTxn(t.a.app)); known != nil && now != *known {
		return fmt.Errorf("%w: it was loaded again", freshet.ErrStale)
	}
	return nil
}

// expectResync has the commit land only as long as the table is not loaded again.
func (t *table) expectResync(tx *delta.Transaction, snap *delta.Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.resynced != nil {
		expect(tx, snap, resyncTxn(t.a.app))
	}
}

// SettleResync tells the change logs of a table that was loaded again what that did to its rows, as far as they have not been
// told; but those that are held back, which are told when they go on. Resume does it, too. It may be called by several
// processes at once, and again after it was killed. Errors: *freshet.Error with CodeGap when the table's history does not
// tell any more.
func (g *Group) SettleResync(ctx context.Context, table string) error {
	g.settling.Lock()
	defer g.settling.Unlock()
	t, err := g.parts[0].table(table)
	if err != nil {
		return err
	}
	main, err := t.look(ctx)
	if err != nil || main == nil {
		return err
	}
	for _, p := range g.parts[1:] {
		if err := p.settleResync(ctx, t, main); err != nil {
			return err
		}
	}
	number, _ := main.Txn(resyncTxn(t.a.app))
	t.mu.Lock()
	t.resynced = &number
	t.mu.Unlock()
	return nil
}

// settleResync tells the part's table of all resyncs that it is owed.
func (p *groupPart) settleResync(ctx context.Context, t *table, main *delta.Snapshot) error {
	name := p.name(t.name)
	owed, ok := main.Txn(owedTxn(name))
	if !ok {
		return nil
	}
	log, err := p.Target.table(name)
	if err != nil {
		return err
	}
	snap, err := log.look(ctx)
	if err != nil || snap == nil || log.park.holds() {
		return err // one that is gone is Resume's
	}
	told, _ := snap.Txn(resyncTxn(t.a.app))
	if told >= owed {
		return nil
	}
	swaps, err := t.swaps(ctx, main, name, told, owed)
	if err != nil {
		return err
	}
	for _, s := range swaps {
		if err := log.park.reach(ctx, s.after); err != nil {
			return err
		}
		if err := p.tell(ctx, t, name, s); err != nil {
			return fmt.Errorf("tell %s what loading %s again has changed: %w", name, t.name, notTold(t.name, name, err))
		}
	}
	return nil
}

// notTold says what can be done when the rows from before the swap are gone.
func notTold(table, log string, err error) error {
	var gap *delta.GapError
	if !errors.As(err, &gap) && !errors.Is(err, delta.ErrVersionNotFound) {
		return err
	}
	return &freshet.Error{Code: freshet.CodeGap, Class: freshet.ClassInput, Place: log, Err: err,
		Msg: fmt.Sprintf("%s was loaded again, and what that changed cannot be told any more: a vacuum or a cleanup of its log came "+
			"in between", table),
		Fix: "name a new change log, which begins where the table stands: changelog: …"}
}

// swap is the commit of a resync.
type swap struct {
	number int64
	after  *delta.Snapshot // the table with it
}

// swaps finds the resyncs of the table of which the change log is to be told, those after one number up to another, in their
// order.
func (t *table) swaps(ctx context.Context, main *delta.Snapshot, log string, told, owed int64) ([]swap, error) {
	var found []swap
	for e, err := range main.Table().History(ctx, 0) {
		if err != nil {
			return nil, explain(t.name, err)
		}
		if e.Version > main.Version() || e.Info.OperationParameters[resyncParam] != t.a.app {
			continue
		}
		snap, err := main.Table().SnapshotAt(ctx, e.Version)
		if err != nil {
			return nil, explain(t.name, err)
		}
		number, _ := snap.Txn(resyncTxn(t.a.app))
		if number <= told {
			break
		}
		if to, _ := snap.Txn(owedTxn(log)); to == number {
			found = append(found, swap{number, snap})
		}
		if number == told+1 {
			break
		}
	}
	slices.Reverse(found)
	if len(found) == 0 || found[len(found)-1].number != owed {
		return nil, notTold(t.name, log, fmt.Errorf("resync %d: %w", owed, delta.ErrVersionNotFound))
	}
	return found, nil
}

// tell adds to the part's table of this name what the swap did to rows of the table. It is there once, whoever else does the same.
func (p *groupPart) tell(ctx context.Context, t *table, name string, s swap) (err error) {
	opts := p.opts
	opts.Upkeep, opts.Park, opts.Cuts = nil, nil, nil
	a := NewTarget(p.Target.open, p.app, &opts) // what the other one has open is the stream's
	defer func() { err = errors.Join(err, a.Close(context.WithoutCancel(ctx))) }()
	log, err := a.table(name)
	if err != nil {
		return err
	}
	before, err := log.look(ctx)
	if err != nil || before == nil {
		return err
	}
	r, err := newRetelling(t, log, before, s)
	if err == nil {
		err = r.run(ctx)
	}
	if err != nil {
		return err
	}
	c, err := log.seal(ctx)
	if err != nil {
		return err
	}
	return c.addOnce(ctx, txns{resyncTxn(p.app): s.number}, map[string]string{resyncParam: p.app})
}

// addOnce commits rows that are no lane's, unless the table has one of these numbers already, or a greater one.
func (c *commit) addOnce(ctx context.Context, set txns, params map[string]string) error {
	for range maxRaces {
		snap, err := c.t.look(ctx)
		if err != nil {
			return err
		}
		if snap == nil {
			return delta.ErrNoTable
		}
		for id, number := range set {
			if have, _ := snap.Txn(id); have >= number {
				c.Abort()
				return nil
			}
		}
		if _, err = c.add(ctx, snap, set, params); !errors.Is(err, delta.ErrConflict) {
			return err
		}
	}
	return c.t.tooManyRaces()
}
