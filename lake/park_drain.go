package lake

import (
	"context"
	"errors"
	"fmt"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// drainer takes up what is parked of some lanes of a table, through a target of its own.
type drainer struct {
	p      *park
	lanes  []freshet.Lane
	bound  bool             // lanes are all that are bound to each other
	upto   freshet.Progress // it takes up no more than this; nil: all
	target *Target

	commits int           // that it made
	limit   time.Duration // for how long one is tried; 0: as long as it takes

	cancel context.CancelFunc
	ended  chan struct{}
}

const (
	// drainStep is how much is taken up in one commit, in bytes.
	drainStep = 32 << 20
	// drainPatience is how much longer a drainer, for which nobody waits, tries than those try for which others do: at first,
	// and at most.
	drainPatience, drainLongest = 10, 60
)

func (p *park) newDrainer(lanes []freshet.Lane) *drainer {
	opts := p.t.opts
	opts.Park, opts.Cuts, opts.Upkeep = nil, nil, nil
	d := &drainer{p: p, lanes: lanes, limit: drainPatience * p.o.Patience, target: NewTarget(p.t.a.open, p.t.a.app, &opts)}
	if d.target.lead = p.t.a; p.t.a.lead != nil {
		d.target.lead = p.t.a.lead
	}
	return d
}

// startDrain begins to take up beside the stream. Nothing does so now.
func (p *park) startDrain(lanes []freshet.Lane) {
	d := p.newDrainer(lanes)
	ctx, cancel := context.WithCancel(context.Background())
	d.cancel, d.ended = cancel, make(chan struct{})
	p.mu.Lock()
	p.drain = d
	p.mu.Unlock()
	go func() {
		defer close(d.ended)
		defer d.close(ctx)
		if err := p.t.closeIndex(ctx); err != nil {
			d.end(ctx, err)
			return
		}
		d.run(ctx)
	}()
}

// stopDrain ends what takes up beside the stream, and waits for it.
func (p *park) stopDrain() {
	if p == nil {
		return
	}
	p.mu.Lock()
	d := p.drain
	p.drain = nil
	p.mu.Unlock()
	if d != nil {
		d.cancel()
		<-d.ended
	}
}

// run takes up what is parked, and what comes, until it is stopped: what is parked after the lanes are to be asked for anew may
// be the last of them for long. A table is slow until a commit of some of it is quick again.
func (d *drainer) run(ctx context.Context) {
	_, slow := d.p.isSlow()
	for {
		began, before := time.Now(), d.commits
		left, err := d.step(ctx)
		if err != nil {
			d.end(ctx, err)
			return
		}
		if slow && d.commits > before && time.Since(began) < d.p.o.Patience/2 {
			slow = false
			d.p.recovered()
		}
		d.p.mu.Lock()
		d.p.join, d.p.lag = !slow && left.bytes <= d.p.o.tail()/2, left
		d.p.mu.Unlock()
		if left.rows > 0 {
			continue
		}
		select {
		case <-d.p.more:
		case <-ctx.Done():
			return
		}
	}
}

// end notes that it ended with an error: the table is held back then, or the run ends.
func (d *drainer) end(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	err = d.p.t.failed(ctx, err)
	d.p.mu.Lock()
	defer d.p.mu.Unlock()
	if d.p.join = true; !errors.Is(err, freshet.ErrStale) {
		d.p.fault = err
	}
}

// close ends the drainer. Checkpoints of a store that does not answer are waited for no longer than the others wait.
func (d *drainer) close(ctx context.Context) {
	if d.p.o.Patience > 0 && ctx.Err() == nil {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.p.o.Patience)
		defer cancel()
		ctx = closing
	}
	if err := d.target.Close(ctx); err != nil {
		d.p.t.opts.Retry("close "+d.p.t.name, err)
		d.p.t.opts.Recovered("close " + d.p.t.name)
	}
}

// all takes up everything that is parked.
func (d *drainer) all(ctx context.Context) error {
	for {
		if left, err := d.step(ctx); err != nil || left.rows == 0 {
			return err
		}
	}
}

// step takes up some of what is parked in one commit, and returns what is left then. Losing a race against another copy costs
// another look.
func (d *drainer) step(ctx context.Context) (left parkLag, err error) {
	name := d.p.t.name
	err = d.p.t.patient(ctx, "take up what was parked of "+name, func() error {
		for range maxRaces {
			if left, err = d.attempt(ctx); err != nil {
				d.target.Discard(name)
			}
			if !errors.Is(err, freshet.ErrStale) {
				return err
			}
		}
		return d.p.t.tooManyRaces()
	})
	return left, err
}

// attempt is try, which is given up after a while: a call of the store that nobody answers any more must not keep a table
// from following when others are answered. Each time it is given longer.
func (d *drainer) attempt(ctx context.Context) (left parkLag, err error) {
	if d.limit == 0 {
		return d.try(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, d.limit)
	defer cancel()
	left, err = d.try(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: there is no end to it after %s: %w", store.ErrUnavailable, d.limit, err)
		d.limit = min(2*d.limit, drainLongest*d.p.o.Patience)
	}
	return left, err
}

// bind adds the lanes without which the drainer's may not be taken up.
func (d *drainer) bind(ctx context.Context) error {
	snap, err := d.p.log.look(ctx)
	if snap != nil && err == nil && !d.bound {
		d.lanes, err = d.p.log.bound(ctx, snap, d.lanes)
		d.bound = err == nil
	}
	return explain(d.p.log.name, err)
}

func (d *drainer) try(ctx context.Context) (left parkLag, err error) {
	if err := d.bind(ctx); err != nil {
		return left, err
	}
	at, err := d.target.Resume(ctx, d.p.t.name, d.lanes)
	if err != nil {
		return left, err
	}
	if err := d.tell(ctx); err != nil {
		return left, err
	}
	snap, err := d.p.log.look(ctx)
	if err != nil || snap == nil {
		return left, explain(d.p.log.name, err)
	}
	all, err := d.p.log.beyond(ctx, snap, at)
	if err != nil {
		return left, explain(d.p.log.name, err)
	}
	all, _ = adjoining(all, at)
	if all = d.within(all); len(all) == 0 {
		return left, nil
	}
	n := portion(all, drainStep)
	if err := checkBeside(d.p.t.name, all[:n], at); err != nil {
		return left, err
	}
	if err := d.take(ctx, snap, all[:n], at); err != nil {
		return left, err
	}
	d.commits++
	if err := d.tell(ctx); err != nil {
		return left, err
	}
	left = lagOf(all[n:])
	if n < len(all) {
		left.rows = max(left.rows, 1) // those without rows count, too
	}
	return left, nil
}

// tell has the table, and a cut, know what the drainer has seen of it.
func (d *drainer) tell(ctx context.Context) error {
	t, err := d.target.table(d.p.t.name)
	if err != nil {
		return err
	}
	snap, err := t.known(ctx, false)
	if err != nil || snap == nil {
		return err
	}
	d.p.t.saw(snap)
	return nil
}

// take commits these parked batches to the table, which stands at.
func (d *drainer) take(ctx context.Context, snap *delta.Snapshot, some []parked, at freshet.Progress) error {
	var spans []parked
	for _, b := range some {
		if n := len(spans) - 1; n >= 0 && spans[n].lane == b.lane {
			spans[n].last = b.last
		} else {
			spans = append(spans, parked{lane: b.lane, after: at[b.lane], last: b.last})
		}
	}
	to := map[freshet.Lane]int64{}
	for _, s := range spans {
		to[s.lane] = s.last
	}
	batches, err := d.p.log.batches(ctx, snap, d.p.t.name, spans)
	if err != nil {
		return explain(d.p.log.name, err)
	}
	before := map[freshet.Lane]parked{}
	for i, b := range batches {
		pos := at[b.Lane]
		if end := to[b.Lane]; d.upto != nil && pos < end && end < b.Last && b.part == 0 && b.follows(before[b.Lane], pos) {
			head := b.Split(end)
			b.Release()
			b.Batch, b.last = head, end
		}
		if b.Last > to[b.Lane] || !b.follows(before[b.Lane], pos) {
			b.Release() // of another time, or for the next step
			continue
		}
		if b.part == 0 && b.After < pos {
			b.Cut(pos)
		}
		at[b.Lane], before[b.Lane] = b.Last, b.parked
		if err := d.write(ctx, b.Batch); err != nil {
			releaseAll(batches[i+1:])
			return err
		}
	}
	commits, err := d.target.Seal(ctx)
	for _, c := range commits {
		if err == nil {
			_, err = c.Run(ctx)
		}
		if err != nil {
			c.Abort()
		}
	}
	return err
}

// write puts the batch into the table. Rows of columns that the table cannot have go to quarantine: they cannot be decoded
// anew, as those of a stream are.
func (d *drainer) write(ctx context.Context, b *freshet.Batch) error {
	t, err := d.target.table(b.Table)
	if err != nil {
		b.Release()
		return err
	}
	var misfit *freshet.Error
	if b.Rows != nil {
		if err := t.accept(ctx, b.Rows.Schema()); errors.As(err, &misfit) && misfit.Code == freshet.CodeSchemaMismatch {
			t.schema, t.last, t.misfits = nil, nil, 0
			for row := range b.NumRows() {
				b.Rejects = append(b.Rejects, rowReject(b, row, misfit.Code, misfit.Error()))
			}
			b.Rows.Release()
			b.Rows, b.Seqs, b.Kinds, b.Stamps, b.Records, b.Unsent = nil, nil, nil, nil, nil, nil
		}
	}
	_, err = d.target.Write(ctx, b)
	return err
}
