package lake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// ParkOptions have a target keep the changes of a table that is held back, so that it holds back neither its source nor the
// tables beside it. They wait in an append-only Delta table, the parking table, and go to the table itself in their order
// once it is not held back any more. The zero value of each field means its default.
type ParkOptions struct {
	// Table names the parking table of a table. Default ParkedName.
	Table func(table string) string
	// Held are the tables that are held back.
	Held map[string]bool
	// MaxRows, MaxBytes and MaxAge bound what is parked of a table: rows, bytes before they are compressed, and
	// the age of the oldest. Beyond, nothing more is kept: the table then goes on where what was kept ends, which its origin
	// must still have. Default: no bound.
	MaxRows, MaxBytes int64
	MaxAge            time.Duration
	// TailBytes is how much may be parked of a table that goes on for its lanes to wait until it is taken up. More is taken up
	// beside the stream, and what comes meanwhile is parked behind it. Default 8 MiB; negative: the lanes wait for all.
	TailBytes int64
	// Patience is how long the other tables wait for what is done with one; for a commit a second more for each 10,000 of its
	// rows. Then the table is slow: its changes are parked, and taken up beside the stream until it commits a part of them in
	// half of that. Default 0: as long as it takes. A table that has no others beside it is waited for as long as it takes.
	Patience time.Duration
	// Slow are the tables that are slow, shared with targets before and after this one. nil: its own.
	Slow *SlowTables
	// OnSlow is told why a table is slow when it has become so, and "" when it is not any more. May be nil.
	OnSlow func(table, why string)
	// OnError is told of a table that fails for a reason of its own, and holds it back from then on; an error of it ends the
	// run, as the table's would. nil: the table's error ends the run.
	OnError func(ctx context.Context, table string, err error) error
}

// tail is TailBytes with its default.
func (o *ParkOptions) tail() int64 {
	switch {
	case o.TailBytes == 0:
		return 8 << 20
	case o.TailBytes < 0:
		return math.MaxInt64
	}
	return o.TailBytes
}

// park is where the changes of one table wait while it is held back.
//
//	live      batches ──▶ table
//	parked    batches ──▶ parking table
//	draining  batches ──▶ parking table ──▶ table      until little is left: then its lanes are asked for anew, and
//	live      the rest ──▶ table, then batches ──▶ table
//
// A table that is slow is drained from the first.
//
// Lanes go on from the progress of the parking table while it is used, else from the table's.
type park struct {
	t    *table
	log  *parkLog
	o    *ParkOptions
	slow *SlowTables
	more chan struct{} // holds an element when something was parked since the drainer looked

	mu      sync.Mutex
	held    bool                  // people hold the table back, or it failed
	active  bool                  // its batches are parked
	there   bool                  // there is a parking table
	join    bool                  // little is left to be taken up: the lanes are to be asked for anew
	lag     parkLag               // what is parked and not taken up, as far as this process knows
	over    int64                 // since when nothing more is kept; 0: it is
	drain   *drainer              // what takes it up beside the stream; nil: nothing does
	fault   error                 // why that ended, if it ends the run
	newest  time.Time             // when the newest batch was parked, as far as this process knows
	resumed map[freshet.Lane]bool // lanes that were resumed since it is parked

	parking
}

// parkLag is how much is parked.
type parkLag struct {
	rows, bytes    int64
	oldest, newest time.Time
}

// parking is what is written to the parking table and not sealed. Only the goroutine that writes touches it.
type parking struct {
	w     *delta.Writer                   // nil: only lanes have moved
	lanes map[freshet.Lane]*stretch       // up to where they were written
	empty map[freshet.Lane]*freshet.Batch // what has neither rows nor rejects, and is not written yet
	parts map[freshet.Lane]int64          // of a seq that is unfinished, how many parts it has so far
	began time.Time
	nth   int64 // of the next batch that is written
	rows  int64
}

// openPark makes ready for parking changes of the table, if that is wanted.
func (t *table) openPark() error {
	o := t.opts.Park
	if o == nil {
		return nil
	}
	name := ParkedName(t.name)
	if o.Table != nil {
		name = o.Table(t.name)
	}
	st, err := t.a.open(name)
	if err != nil {
		return err
	}
	t.park = &park{t: t, o: o, slow: o.Slow, more: make(chan struct{}, 1), held: o.Held[t.name],
		log: newParkLog(t.a.app, name, st, t.opts.EngineInfo)}
	return nil
}

// takes reports whether batches of the table are parked now. Errors: ErrStale when its lanes are to be asked for anew.
func (p *park) takes() (bool, error) {
	if p == nil {
		return false, nil
	}
	_, slow := p.isSlow()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.fault != nil:
		return false, p.fault
	case slow && !p.active:
		return false, fmt.Errorf("%w: it is slow", freshet.ErrStale)
	case p.held && !p.active:
		return false, fmt.Errorf("%w: it is held back", freshet.ErrStale)
	case p.active && p.join:
		return false, fmt.Errorf("%w: what was parked is taken up", freshet.ErrStale)
	}
	return p.active, nil
}

// hold has the table be held back from now on.
func (p *park) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = true
}

// holds reports whether the table is held back, by people or for being slow.
func (p *park) holds() bool {
	if p == nil {
		return false
	}
	if _, slow := p.isSlow(); slow {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held
}

// failed is an error of the table itself, after which it is held back if that is wanted: then it is ErrStale. That its store
// refuses us is one; that it does not answer is not.
func (t *table) failed(ctx context.Context, err error) error {
	var e *freshet.Error
	if t.park == nil || t.park.o.OnError == nil || err == nil || errors.Is(err, freshet.ErrStale) || ctx.Err() != nil ||
		store.Retryable(err) ||
		errors.As(err, &e) && e.Class == freshet.ClassEnvironment && e.Code != freshet.CodeStoreRefused {
		return err
	}
	if told := t.park.o.OnError(ctx, t.name, err); told != nil {
		return errors.Join(err, told)
	}
	t.park.hold()
	return fmt.Errorf("%w: %w", freshet.ErrStale, err)
}

// write parks the batch, which it takes.
func (p *park) write(ctx context.Context, b *freshet.Batch) error {
	defer b.Release()
	if p.lanes == nil {
		p.lanes, p.empty = map[freshet.Lane]*stretch{}, map[freshet.Lane]*freshet.Batch{}
		p.parts, p.began = map[freshet.Lane]int64{}, p.moment()
	}
	if s, ok := p.lanes[b.Lane]; ok {
		s.last = b.Last
	} else {
		p.lanes[b.Lane] = &stretch{b.After, b.Last}
	}
	if !p.keeps(b) {
		return nil
	}
	before := p.empty[b.Lane]
	part := p.parts[b.Lane]
	if delete(p.parts, b.Lane); b.Unfinished {
		p.parts[b.Lane] = part + 1
	}
	if b.NumRows() == 0 && len(b.Rejects) == 0 && part == 0 && !b.Unfinished && len(b.Beside) == 0 {
		if before == nil {
			before = &freshet.Batch{Lane: b.Lane, After: b.After}
			p.empty[b.Lane] = before
		}
		before.Last = b.Last
		return nil
	}
	if before != nil {
		b.After = before.After
		delete(p.empty, b.Lane)
	}
	return p.put(ctx, b, part)
}

// moment is a time for what is parked from now on, behind that of all that is parked already, whatever the clocks say.
func (p *park) moment() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now().Truncate(time.Microsecond); now.After(p.newest) {
		p.newest = now
	} else {
		p.newest = p.newest.Add(time.Microsecond)
	}
	return p.newest
}

// keeps reports whether the batch is kept, and begins to keep nothing when there is too much.
func (p *park) keeps(b *freshet.Batch) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over != 0 {
		return false
	}
	o, now := p.o, time.Now()
	if o.MaxRows > 0 && p.lag.rows+int64(b.NumRows()) > o.MaxRows || o.MaxBytes > 0 && p.lag.bytes > o.MaxBytes ||
		o.MaxAge > 0 && !p.lag.oldest.IsZero() && now.Sub(p.lag.oldest) > o.MaxAge {
		p.over = now.Unix()
		return false
	}
	return true
}

// put writes a row of the parking table.
func (p *park) put(ctx context.Context, b *freshet.Batch, part int64) error {
	rows, err := encodeRows(b)
	if err != nil {
		return err
	}
	rejects, err := encodeRejects(b)
	if err != nil {
		return err
	}
	if p.w == nil {
		if p.w, err = p.log.writer(); err != nil {
			return err
		}
	}
	row, err := parkedRow(p.log.app, b, parked{part: part, at: p.began, nth: p.nth}, rows, rejects)
	if err != nil {
		return err
	}
	defer row.Release()
	p.nth++
	n := int64(b.NumRows() + len(b.Rejects))
	p.rows += n
	p.mu.Lock()
	p.lag.rows, p.lag.bytes = p.lag.rows+n, p.lag.bytes+int64(len(rows)+len(rejects))
	if p.lag.oldest.IsZero() {
		p.lag.oldest = time.Now()
	}
	p.mu.Unlock()
	return explain(p.log.name, p.w.Write(ctx, row))
}

// pending is what is written and not sealed.
func (p *park) pending() (rows, bytes int64) {
	if p == nil {
		return 0, 0
	}
	if p.w != nil {
		bytes = p.w.Bytes()
	}
	return p.rows, bytes
}

// seal closes what was written into a commit of the parking table; nil when nothing was.
func (p *park) seal(ctx context.Context) (*parkCommit, error) {
	if p == nil || len(p.lanes) == 0 {
		return nil, nil
	}
	for _, l := range slices.Collect(maps.Keys(p.empty)) {
		if err := p.put(ctx, p.empty[l], 0); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	c := &parkCommit{p: p, lanes: p.lanes, w: p.w, rows: p.rows, over: p.over}
	p.mu.Unlock()
	if p.w != nil {
		adds, err := p.w.Close(ctx)
		if err != nil {
			return nil, explain(p.log.name, err)
		}
		c.adds = adds
	}
	p.parking = parking{}
	return c, nil
}

// discard drops what is written and not sealed.
func (p *park) discard() {
	if p == nil {
		return
	}
	if p.w != nil {
		p.t.a.tend.abort([]*delta.Writer{p.w})
	}
	p.parking = parking{}
}

// parkCommit is a sealed part of what is parked of a table.
type parkCommit struct {
	p         *park
	lanes     map[freshet.Lane]*stretch
	w         *delta.Writer // nil: only lanes move
	adds      []delta.Add
	rows      int64
	over      int64
	uncertain bool // an attempt may have landed: the files must stay
}

// Table is the table that is held back.
func (c *parkCommit) Table() string { return c.p.t.name }

// Run commits it to the parking table, on exactly the progress there that it started from.
func (c *parkCommit) Run(ctx context.Context) (freshet.Committed, error) {
	var done delta.CommitResult
	err := c.p.t.patient(ctx, "commit to "+c.p.log.name, func() (err error) {
		done, err = c.commit(ctx)
		return err
	})
	if err != nil {
		return freshet.Committed{}, explain(c.p.log.name, err)
	}
	c.p.t.a.tend.checkpoint(done.Snapshot.Table(), done.Snapshot)
	select {
	case c.p.more <- struct{}{}:
	default:
	}
	out := freshet.Committed{Table: c.p.t.name, Parked: true, Version: done.Version, Progress: ends(c.lanes), Rows: c.rows,
		Files: len(c.adds), Retries: done.Retries}
	for _, add := range c.adds {
		out.Bytes += add.Size
	}
	return out, nil
}

func (c *parkCommit) commit(ctx context.Context) (delta.CommitResult, error) {
	l, f := c.p.log, form{c.p.t.a.app, true}
	for range maxRaces {
		snap, err := l.need(ctx)
		if err != nil {
			return delta.CommitResult{}, err
		}
		set := txns{}
		for lane, s := range c.lanes {
			if v, ok := snap.Txn(f.lane(lane)); !ok || v != s.after {
				return delta.CommitResult{}, fmt.Errorf("%w: what is parked of %s is at %s, wanted %d", freshet.ErrStale, lane,
					found(v, ok), s.after)
			}
			f.record(set, lane, s.last)
		}
		if was, _ := snap.Txn(overTxn(l.app)); was == 0 && c.over != 0 {
			set[overTxn(l.app)] = c.over
		}
		tx := snap.Table().Begin(snap, nil)
		set.addTo(tx, snap)
		tx.Add(c.adds...)
		tx.Operation("STREAMING UPDATE", map[string]string{"outputMode": "Append", "queryId": l.app, "freshet.parks": c.p.t.name},
			map[string]string{"numAddedFiles": fmt.Sprint(len(c.adds)), "numRemovedFiles": "0"})
		tx.BlindAppend(true)
		done, err := tx.Commit(ctx)
		if err == nil {
			return done, nil
		}
		if !errors.Is(err, delta.ErrConflict) {
			c.uncertain = true
			return delta.CommitResult{}, err
		}
	}
	return delta.CommitResult{}, c.p.t.tooManyRaces()
}

// Abort drops the files, unless an attempt may have landed.
func (c *parkCommit) Abort() {
	if c.w != nil && !c.uncertain {
		c.p.t.a.tend.abort([]*delta.Writer{c.w})
	}
}

// How a table stands to its parking table.
const (
	parkUnused = iota // there is none
	parkLevel         // the table holds all that is there
	parkBehind        // the table is held back, or has not taken up everything
)

// behind tells whether cuts leave the table out.
func (p *park) behind(ctx context.Context) (int, error) {
	if p == nil {
		return parkUnused, nil
	}
	_, slow := p.isSlow()
	p.mu.Lock()
	held, there, active := p.held, p.there, p.active
	p.mu.Unlock()
	switch {
	case held, slow && !active:
		return parkBehind, nil
	case !there:
		return parkUnused, nil
	}
	snap, err := p.log.look(ctx)
	if err != nil || snap == nil {
		return parkUnused, explain(p.log.name, err)
	}
	main, err := p.t.look(ctx)
	if err != nil || main == nil {
		return parkUnused, err
	}
	f := form{p.log.app, true}
	for _, l := range appProgress(main, p.log.app, map[string]bool{}).Lanes {
		lane := l.Lane
		has := p.t.folds(lane, l.Seq)
		for _, origin := range parkedOrigins(f, snap, lane) {
			if v, ok := snap.Txn(f.lane(freshet.Lane{Origin: origin, Name: lane.Name})); ok && v > has {
				return parkBehind, nil
			}
		}
	}
	return parkLevel, nil
}

// parkedOrigins is the lane's origin; where its table does not say, those that the parking table knows.
func parkedOrigins(f form, snap *delta.Snapshot, l freshet.Lane) []string {
	if l.Origin != "" {
		return []string{l.Origin}
	}
	return f.origins(snap)
}
