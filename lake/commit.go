package lake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// commit is a sealed part of one table.
type commit struct {
	t         *table
	schema    *delta.Schema    // that the files were written with; nil when there are none
	meta      *delta.Metadata  // that the files were written under, with the marks of identity columns after them
	from      map[string]int64 // the marks before
	adds      []delta.Add
	writers   []*delta.Writer // of adds, to delete them
	lanes     map[freshet.Lane]*stretch
	steady    map[freshet.Lane]bool // lanes that nobody else may have moved; whether something depends on what they show
	rows      int64
	bytes     int64
	rejects   *sealedRejects // nil: none
	uncertain bool           // an attempt may have landed: the files must stay
	group     string         // where the others end that were sealed with it; "": it does not say
	late      freshet.Day    // the first day that was over when rows of it came; 0: none

	// Of a keyed table, in the place of adds.
	keyed   *gathered
	told    map[freshet.Lane]map[place]*keyReject // that were found on the way and are in quarantine
	found   map[freshet.Lane]map[place]*keyReject // by the present attempt
	ended   map[int32]string                      // orders that tombstones have of deletes, by row of the commit
	intent  *intent                               // what it takes out of quarantine; nil: nothing
	replays *waiting                              // of a replay: all that it may take
	gone    map[*waitingRow]bool                  // of a replay: entries that a step drops
	stays   map[entryPlace]*freshet.Reject        // of a replay: why entries are not taken
	files   int
}

// Table is the table's name.
func (c *commit) Table() string { return c.t.name }

// Run commits rejects into quarantine, then rows and progress. One that moves nothing but progress, and not past what a cut says that the
// table holds, is needless: it would have the cut count no more.
func (c *commit) Run(ctx context.Context) (done freshet.Committed, err error) {
	if c.needless() {
		return freshet.Committed{Table: c.t.name, Version: -1, Progress: ends(c.lanes)}, nil
	}
	within := c.t.within
	if len(c.steady) > 0 {
		within = c.t.unhurried
	}
	err = within(ctx, c.rows, "commit", func(ctx context.Context) (err error) {
		done, err = c.run(ctx)
		return err
	})
	if r := c.t.a.cutsHere(); r != nil && err == nil {
		r.cameLate(c.late)
	}
	return done, c.t.failed(ctx, err)
}

func (c *commit) run(ctx context.Context) (freshet.Committed, error) {
	if c.rejects != nil {
		err := c.t.patient(ctx, "commit to "+c.t.quarantine.name, func() error { return c.rejects.commit(ctx) })
		if err != nil {
			return freshet.Committed{}, explain(c.t.quarantine.name, err)
		}
	}
	if c.keyed != nil {
		if err := c.t.takeTurn(ctx); err != nil {
			return freshet.Committed{}, err
		}
		defer c.t.endTurn()
	}
	var done delta.CommitResult
	err := c.t.patient(ctx, "commit to "+c.t.name, func() (err error) {
		if c.keyed != nil {
			done, err = c.commitKeyed(ctx)
		} else {
			done, err = c.commitRows(ctx)
		}
		return err
	})
	if err != nil {
		return freshet.Committed{}, explain(c.t.name, err)
	}
	c.t.stand(ends(c.lanes))
	c.t.landed(done.Snapshot)
	result := freshet.Committed{Table: c.t.name, Version: done.Version, Progress: ends(c.lanes), Rows: c.rows,
		Bytes: c.bytes, Files: len(c.adds) + c.files, Retries: done.Retries}
	if c.rejects != nil {
		result.Rejects = c.rejects.count
	}
	if c.keyed != nil {
		c.keyed.release()
		for _, told := range c.told {
			result.Rejects += int64(len(told))
			result.Rows -= int64(len(told))
		}
	}
	return result, nil
}

// landed takes note of the table's new version, and has the log looked after.
func (t *table) landed(snap *delta.Snapshot) {
	t.saw(snap)
	t.fails.Store(0)
	t.a.tend.checkpoint(snap.Table(), snap)
	t.a.care.landed(t)
}

// takeTurn waits until nobody else of this process changes rows of the keyed table: a commit of the stream and a rewrite
// of upkeep would only take each other's files away. Errors: what ends ctx.
func (t *table) takeTurn(ctx context.Context) error {
	select {
	case t.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *table) endTurn() { <-t.turn }

// saw remembers the snapshot if it is newer than what is known.
func (t *table) saw(snap *delta.Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.snap == nil || snap.Version() > t.snap.Version() {
		t.snap = snap
	}
	if t.park != nil {
		t.park.slow.saw(t.name, t.snap)
	}
}

// commitRows commits files that are written.
func (c *commit) commitRows(ctx context.Context) (delta.CommitResult, error) {
	return c.land(ctx, func(ctx context.Context, snap *delta.Snapshot) (delta.CommitResult, error) {
		tx, err := c.build(snap)
		if err != nil {
			return delta.CommitResult{}, err
		}
		done, err := tx.Commit(ctx)
		c.uncertain = c.uncertain || err != nil && !errors.Is(err, delta.ErrConflict)
		return done, err
	})
}

// errAgain says that the commit may land on the version that it was tried on, if it is tried again.
var errAgain = errors.New("to be tried again")

// land tries the commit on the version that is known, and then on the newest, until it lands, or until that version is not what the
// rows started from.
func (c *commit) land(ctx context.Context, try func(ctx context.Context, snap *delta.Snapshot) (delta.CommitResult, error)) (
	delta.CommitResult, error) {
	snap := c.knownSnapshot()
	fresh := false
	for range maxRaces {
		if snap == nil {
			var err error
			if snap, err = c.t.look(ctx); err != nil {
				return delta.CommitResult{}, err
			}
			if snap == nil {
				return delta.CommitResult{}, explain(c.t.name, delta.ErrNoTable)
			}
			fresh = true
		}
		done, err := try(ctx, snap)
		switch {
		case err == nil:
			return done, nil
		case errors.Is(err, errAgain):
		case errors.Is(err, freshet.ErrStale) && !fresh, errors.Is(err, delta.ErrConflict):
			snap = nil
		default:
			return delta.CommitResult{}, err
		}
	}
	return delta.CommitResult{}, c.t.tooManyRaces()
}

// knownSnapshot is the version that the first attempt builds on; nil: the newest must be asked for.
func (c *commit) knownSnapshot() *delta.Snapshot {
	if c.uncertain {
		return nil
	}
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	return c.t.snap
}

// stand takes note of where lanes stand.
func (t *table) stand(p freshet.Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stands == nil {
		t.stands = freshet.Progress{}
	}
	maps.Copy(t.stands, p)
}

// steadies has the commit depend on lanes beside its own. Errors: ErrStale when somebody else has moved them.
func (c *commit) steadies(set txns, snap *delta.Snapshot) error {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	for l := range c.steady {
		if c.lanes[l] != nil {
			continue // it moves them itself, from where it expects them
		}
		id := c.t.a.form().lane(l)
		v, ok := snap.Txn(id)
		if !ok {
			continue
		}
		if stood, known := c.t.stands[l]; known && v > stood {
			return fmt.Errorf("%w: %s beside it is at %d, wanted %d", freshet.ErrStale, l, v, stood)
		}
		set[id] = v
	}
	return nil
}

// expected is the progress that the commit records. Errors: ErrStale when the snapshot is not what the rows started from.
func (c *commit) expected(snap *delta.Snapshot) (txns, error) {
	f := c.t.a.form()
	set := txns{}
	for l, s := range c.lanes {
		id := f.lane(l)
		if v, ok := snap.Txn(id); !ok || !c.t.standsAt(l, v, s.after) {
			return nil, fmt.Errorf("%w: %s is at %s, wanted %d", freshet.ErrStale, l, found(v, ok), s.after)
		}
		if err := f.checkIdentity(c.t.name, snap, l); err != nil {
			return nil, fmt.Errorf("%w: %w", freshet.ErrStale, err)
		}
		f.record(set, l, s.last)
	}
	if err := c.steadies(set, snap); err != nil {
		return nil, err
	}
	for _, b := range c.t.a.beside {
		set[besideTxn(b.Name(c.t.name))] = 1
	}
	if number, ok := f.found(snap); ok && number != f.number() {
		return nil, fmt.Errorf("%w: its progress has another form", freshet.ErrStale)
	}
	return set, c.t.checkResync(snap)
}

// build makes the transaction on the snapshot. Errors: ErrStale when the snapshot is not what the rows
// started from, or no longer takes them.
func (c *commit) build(snap *delta.Snapshot) (*delta.Transaction, error) {
	if err := c.t.checkPolicies(snap); err != nil {
		return nil, err
	}
	set, err := c.expected(snap)
	if err != nil {
		return nil, err
	}
	tx := snap.Table().Begin(snap, nil)
	set.addTo(tx, snap)
	c.t.expectResync(tx, snap)
	if len(c.adds) > 0 {
		meta, err := c.fit(snap)
		if err != nil {
			return nil, err
		}
		if meta != nil {
			tx.SetMetadata(meta)
		}
		tx.Add(c.adds...)
	}
	c.t.describe(tx, c.withGroup(nil), map[string]string{"numAddedFiles": fmt.Sprint(len(c.adds)),
		"numOutputRows": fmt.Sprint(c.rows), "numOutputBytes": fmt.Sprint(c.bytes)})
	return tx, nil
}

func found(v int64, ok bool) string {
	if !ok {
		return "nothing"
	}
	return fmt.Sprint(v)
}

// fit checks that the rows, written for the table as it was, may belong to it as it is. It returns the metadata of a
// table that has their columns too, nil when it has them.
func (c *commit) fit(snap *delta.Snapshot) (*delta.Metadata, error) {
	stale := func(format string, args ...any) (*delta.Metadata, error) {
		return nil, fmt.Errorf("%w: "+format, append([]any{freshet.ErrStale}, args...)...)
	}
	if c.schema == nil {
		return nil, nil
	}
	if !sameNames(c.meta.PartitionColumns, snap.PartitionColumns()) {
		return stale("its partition columns have changed")
	}
	merged, wider, err := snap.Schema().Merge(c.schema)
	if err != nil {
		return stale("its schema has changed: %w", err)
	}
	if err := snap.Metadata().Takes(c.meta); err != nil {
		return stale("%w", err)
	}
	to := c.meta.HighWater()
	gave := !maps.Equal(c.from, to)
	if gave && !maps.Equal(c.from, snap.Metadata().HighWater()) {
		return stale("its identity columns have given out other values meanwhile")
	}
	if !wider && !gave {
		return nil, nil
	}
	if wider && c.t.opts.FixedSchema {
		return stale("columns of its schema are gone")
	}
	meta, err := snap.Metadata().WithSchema(merged)
	if err == nil && gave {
		meta, err = meta.WithHighWater(to)
	}
	if err != nil {
		return stale("its schema has changed: %w", err)
	}
	return meta, nil
}

func sameNames(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !strings.EqualFold(a[i], b[i]) {
			return false
		}
	}
	return true
}

// sameSet is sameNames in any order.
func sameSet(a, b []string) bool {
	folded := func(names []string) []string {
		low := make([]string, len(names))
		for i, n := range names {
			low[i] = strings.ToLower(n)
		}
		slices.Sort(low)
		return slices.Compact(low)
	}
	return slices.Equal(folded(a), folded(b))
}

// Abort drops the files, unless an attempt may have landed.
func (c *commit) Abort() {
	if !c.uncertain {
		c.t.a.tend.abort(c.writers)
	}
	if c.keyed != nil {
		c.keyed.release()
	}
	if c.rejects != nil && !c.rejects.uncertain {
		c.t.a.tend.abort([]*delta.Writer{c.rejects.w})
	}
}

// patient repeats try through outages of the store, as long as ctx lasts, with pauses that grow.
func (t *table) patient(ctx context.Context, what string, try func() error) error {
	return t.a.patient(ctx, what, try)
}

func (a *Target) patient(ctx context.Context, what string, try func() error) error {
	failed := false
	defer func() {
		if failed {
			a.opts.Recovered(what)
		}
	}()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 10*time.Second) {
		err := try()
		if !store.Retryable(err) || ctx.Err() != nil || errors.Is(err, freshet.ErrStale) {
			return err
		}
		failed = true
		a.opts.Retry(what, err)
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}
