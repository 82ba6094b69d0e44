package lake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// resume is where the lanes go on that the table has at main: there, or where their changes were parked last. What is parked
// of a table that is no longer held back is taken up first, or, where it is much, beside the stream: of these lanes, and of those
// that were resumed before.
func (p *park) resume(ctx context.Context, main freshet.Progress) (freshet.Progress, error) {
	if p == nil {
		return main, nil
	}
	p.stopDrain() // it has the key index
	if len(main) == 0 {
		p.goOn()
		return main, nil
	}
	snap, err := p.log.look(ctx)
	if err != nil {
		return nil, explain(p.log.name, err)
	}
	p.mu.Lock()
	held := p.held
	p.there = p.there || snap != nil
	p.mu.Unlock()
	_, slow := p.isSlow()
	if snap == nil && !held && !slow {
		return main, nil
	}
	if held || slow {
		return p.begin(ctx, main, !held)
	}
	all, err := p.withOthers(ctx, main)
	if err != nil {
		return nil, err
	}
	left, err := p.left(ctx, snap, all)
	if err != nil {
		return nil, err
	}
	if left.bytes > p.o.tail() {
		return p.begin(ctx, main, true)
	}
	var at freshet.Progress
	err = p.t.within(ctx, left.rows, "take up what was parked", func(ctx context.Context) (err error) {
		at, err = p.finish(ctx, lanesOf(all))
		return err
	})
	maps.DeleteFunc(at, func(l freshet.Lane, _ int64) bool { _, asked := main[l]; return !asked })
	if err = p.t.failed(ctx, err); errors.Is(err, freshet.ErrStale) {
		_, slow := p.isSlow()
		return p.begin(ctx, main, slow)
	}
	return at, err
}

// goOn has the lanes that were resumed before be taken up beside the stream, if they are parked.
func (p *park) goOn() {
	p.mu.Lock()
	drain, lanes := p.active && !p.held, slices.Collect(maps.Keys(p.resumed))
	p.mu.Unlock()
	if drain {
		p.startDrain(lanes)
	}
}

// withOthers is the progress of the lanes, and of those that were resumed before and are parked.
func (p *park) withOthers(ctx context.Context, main freshet.Progress) (freshet.Progress, error) {
	p.mu.Lock()
	others := maps.Clone(p.resumed)
	p.mu.Unlock()
	maps.DeleteFunc(others, func(l freshet.Lane, _ bool) bool { _, asked := main[l]; return asked })
	if len(others) == 0 {
		return main, nil
	}
	snap, err := p.t.look(ctx)
	if err != nil || snap == nil {
		return main, err
	}
	all, err := p.t.stood(snap, slices.Collect(maps.Keys(others)))
	maps.Copy(all, main)
	return all, err
}

// left is how much is parked behind where the table stands.
func (p *park) left(ctx context.Context, snap *delta.Snapshot, main freshet.Progress) (parkLag, error) {
	f := form{p.log.app, true}
	ahead := maps.Clone(main)
	maps.DeleteFunc(ahead, func(l freshet.Lane, seq int64) bool { v, ok := snap.Txn(f.lane(l)); return !ok || v <= seq })
	all, err := p.log.beyond(ctx, snap, ahead)
	if err != nil {
		return parkLag{}, explain(p.log.name, err)
	}
	all, _ = adjoining(all, ahead)
	return lagOf(all), nil
}

func lagOf(all []parked) (l parkLag) {
	for _, b := range all {
		l.rows, l.bytes = l.rows+b.rows, l.bytes+b.bytes
		if l.oldest.IsZero() || b.at.Before(l.oldest) {
			l.oldest = b.at
		}
		if b.at.After(l.newest) {
			l.newest = b.at
		}
	}
	return l
}

// begin has batches of the lanes be parked from now on, behind what is parked already, and returns up to where that is. drain
// says that it is taken up meanwhile.
func (p *park) begin(ctx context.Context, main freshet.Progress, drain bool) (freshet.Progress, error) {
	f := form{p.log.app, true}
	for range maxRaces {
		snap, err := p.log.need(ctx)
		if err != nil {
			return nil, explain(p.log.name, err)
		}
		all, err := p.log.beyond(ctx, snap, main)
		if err != nil {
			return nil, explain(p.log.name, err)
		}
		newest := lagOf(all).newest
		all, at := adjoining(all, main)
		over, _ := snap.Txn(overTxn(p.log.app))
		set := txns{}
		for l, seq := range at {
			if have, ok := snap.Txn(f.lane(l)); ok && over != 0 && have > seq {
				at[l] = have // what lies between is not kept, and need not be read again for that
				continue
			}
			f.record(set, l, seq)
		}
		if !set.in(snap) {
			tx := snap.Table().Begin(snap, nil)
			set.addTo(tx, snap)
			tx.Operation("STREAMING UPDATE", map[string]string{"freshet.change": "start of parking", "queryId": p.log.app}, nil)
			tx.BlindAppend(true)
			if _, err := tx.Commit(ctx); errors.Is(err, delta.ErrConflict) {
				continue
			} else if err != nil {
				return nil, explain(p.log.name, err)
			}
		}
		p.mu.Lock()
		p.active, p.there, p.join, p.lag, p.over = true, true, false, lagOf(all), over
		if newest.After(p.newest) {
			p.newest = newest
		}
		if p.resumed == nil {
			p.resumed = map[freshet.Lane]bool{}
		}
		for l := range main {
			p.resumed[l] = true
		}
		lanes := slices.Collect(maps.Keys(p.resumed))
		p.mu.Unlock()
		if drain {
			p.startDrain(lanes)
			return at, nil
		}
		return at, p.t.closeIndex(ctx)
	}
	return nil, p.t.tooManyRaces()
}

// closeIndex gives up the key index, which another one opens.
func (t *table) closeIndex(ctx context.Context) error {
	if err := t.takeTurn(ctx); err != nil {
		return err
	}
	defer t.endTurn()
	if t.index == nil {
		return nil
	}
	err := t.index.close()
	t.index = nil
	return err
}

// finish takes up what is parked of the lanes, and lets them go on from where the table then stands. What the parking table
// does not have of them comes from the origin.
func (p *park) finish(ctx context.Context, lanes []freshet.Lane) (freshet.Progress, error) {
	if err := p.t.takeTurn(ctx); err != nil {
		return nil, err
	}
	defer p.t.endTurn()
	if p.t.index != nil {
		if err := p.t.index.close(); err != nil {
			return nil, err
		}
		p.t.index = nil
	}
	d := p.newDrainer(lanes)
	defer d.close(ctx)
	if err := d.all(ctx); err != nil {
		return nil, err
	}
	at, err := d.target.Resume(ctx, p.t.name, d.lanes)
	if err != nil {
		return nil, err
	}
	if _, err := p.t.look(ctx); err != nil {
		return nil, err
	}
	if err := p.t.hold(ctx, at); err != nil {
		return nil, err
	}
	p.mu.Lock()
	p.active, p.join, p.lag, p.over, p.resumed = false, false, parkLag{}, 0, nil
	p.mu.Unlock()
	p.t.waitsStale.Store(true)
	return at, p.clean(ctx, at)
}

// reach takes up what is parked of the lanes up to where this snapshot of another table of the app stands in them, and no more.
func (p *park) reach(ctx context.Context, other *delta.Snapshot) error {
	if p == nil {
		return nil
	}
	snap, err := p.log.look(ctx)
	if err != nil || snap == nil {
		return explain(p.log.name, err)
	}
	p.stopDrain()
	to := p.log.standing(snap, appProgress(other, p.log.app, map[string]bool{}).Lanes)
	d := p.newDrainer(lanesOf(to))
	d.upto = to
	defer d.close(ctx)
	return d.all(ctx)
}

// clean forgets what the table holds by now: in the background, but for the mark that there was too much.
func (p *park) clean(ctx context.Context, at freshet.Progress) error {
	for range maxRaces {
		snap, err := p.log.look(ctx)
		if err != nil {
			return explain(p.log.name, err)
		}
		if over, _ := snap.Txn(overTxn(p.log.app)); over != 0 {
			tx := snap.Table().Begin(snap, nil)
			txns{overTxn(p.log.app): 0}.addTo(tx, snap)
			tx.Operation("STREAMING UPDATE", map[string]string{"freshet.change": "end of parking", "queryId": p.log.app}, nil)
			tx.BlindAppend(true)
			if _, err := tx.Commit(ctx); errors.Is(err, delta.ErrConflict) {
				continue
			} else if err != nil {
				return explain(p.log.name, err)
			}
		}
		var any []string
		for l, seq := range at {
			any = append(any, fmt.Sprintf("origin = %s AND origin_id = %s AND lane = %s AND last <= %d", quote(l.Origin),
				quote(l.OriginID), quote(l.Name), seq))
		}
		for _, err := range snap.Files(ctx, nil) {
			if err != nil {
				return explain(p.log.name, err)
			}
			p.t.a.tend.expire(snap.Table(), fmt.Sprintf("app = %s AND (%s)", quote(p.log.app), strings.Join(any, " OR ")))
			break
		}
		return nil
	}
	return p.t.tooManyRaces()
}
