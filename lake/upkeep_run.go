package lake

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

const (
	// lookEvery is how often a table is looked at to which few commits come, lookSeldom if it has no key: then only files that
	// come can make something to do, and when partitions close is known.
	lookEvery  = 30 * time.Second
	lookSeldom = 5 * time.Minute
	// lookShare is the part of the time that may go by with looks that find nothing to do: a look lists all files.
	lookShare = 100
	// together is how many bytes of several partitions are rewritten in one commit.
	together = 64 << 20
	// turnFor bounds how long a commit of upkeep may keep one of the stream waiting when the store does not answer.
	turnFor = 15 * time.Second
	// letGoFor bounds how long leases are given back at the end.
	letGoFor = 5 * time.Second
	// finishFor is how long pieces of work are begun at the end of a run that has caught up.
	finishFor = 15 * time.Second
)

// upkeep looks after the tables that a target writes: one goroutine, begun with the first commit and ended by close. It
// works on one table at a time, and rests after each piece of work, so that it stays within its share of the processors'
// time. What fails is tried again later; what it began when it is ended is dropped.
type upkeep struct {
	a    *Target
	opts UpkeepOptions
	id   string // of this process, in leases

	wake   chan struct{}
	cancel context.CancelFunc
	ended  chan struct{}

	mu     sync.Mutex
	closed bool
	wards  []*ward
	idle   chan struct{} // closed when nothing is due, or it is late; nil: nobody waits for that, and it rests
	late   time.Time
}

// ward is a table in care. Only the goroutine of upkeep uses it, but for what u.mu guards.
type ward struct {
	name  string
	st    store.Store
	table func() *delta.Table // nil as long as there is none
	of    *table              // whose turns and index commits to it respect; nil: of none

	jobs   map[string]int // of files that were rewritten here: which job did
	rents  map[string]int64
	came   map[string]time.Time
	last   int  // job
	held   bool // its lease was taken
	fails  int  // in a row
	looked time.Time
	quiet  time.Time // until when it is not looked at for commits alone; written under u.mu

	commits int       // since it was looked at; guarded by u.mu
	enough  int       // commits after which it is looked at soon; guarded by u.mu
	due     time.Time // zero: when commits come; guarded by u.mu
}

// keyed reports whether a key index must follow the table.
func (w *ward) keyed() bool { return w.of != nil && w.of.opts.Mode.keyed() }

// fileBytes is the size at which a data file of it is full.
func (w *ward) fileBytes(a *Target) int64 {
	if w.of == nil {
		return a.opts.TargetFileBytes
	}
	return w.of.opts.TargetFileBytes
}

// newUpkeep prepares for upkeep of the target's tables; nil opts mean none.
func newUpkeep(a *Target, opts *UpkeepOptions) *upkeep {
	if opts == nil {
		return nil
	}
	return &upkeep{a: a, opts: opts.withDefaults(a.opts.Mode.keyed()), id: uuid.NewString(), wake: make(chan struct{}, 1)}
}

// landed takes note of a commit to a table.
func (u *upkeep) landed(t *table) { u.came(&t.wards, func() []*ward { return u.take(t) }) }

// came takes note of a commit to what the wards are of, which are made with the first.
func (u *upkeep) came(wards *[]*ward, take func() []*ward) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return
	}
	if u.ended == nil {
		ctx, cancel := context.WithCancel(context.Background())
		u.cancel, u.ended = cancel, make(chan struct{})
		go func() {
			defer close(u.ended)
			u.run(ctx)
			u.letGo(context.WithoutCancel(ctx))
		}()
	}
	if *wards == nil {
		*wards = take()
		u.wards = append(u.wards, *wards...)
	}
	for _, w := range *wards {
		u.note(w)
	}
}

// take makes wards of a table and those beside it.
func (u *upkeep) take(t *table) []*ward {
	wards := []*ward{
		{name: t.name, st: t.st, of: t, jobs: map[string]int{}, table: func() *delta.Table {
			t.mu.Lock()
			defer t.mu.Unlock()
			return t.delta
		}},
		t.quarantine.ward(),
	}
	if t.tombstones != nil {
		wards = append(wards, t.tombstones.ward())
	}
	if t.deleted != nil {
		wards = append(wards, t.deleted.ward())
	}
	if t.park != nil {
		wards = append(wards, t.park.log.ward())
	}
	return wards
}

// ward is the companion in care.
func (c *companion) ward() *ward {
	return &ward{name: c.name, st: c.st, jobs: map[string]int{}, table: func() *delta.Table {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.delta
	}}
}

// note has a table looked at: soon when so many commits have come that there may be something to do, else after a while.
func (u *upkeep) note(w *ward) {
	w.commits++
	at := w.lookAt()
	if w.fails == 0 && (w.due.IsZero() || at.Before(w.due)) {
		w.due = at
		select {
		case u.wake <- struct{}{}:
		default:
		}
	}
}

// lookAt is when a table is looked at for the commits that have come. The lock of upkeep is held.
func (w *ward) lookAt() time.Time {
	at := time.Now()
	switch {
	case w.commits >= w.enough:
	case w.keyed():
		at = w.looked.Add(lookEvery)
	default:
		at = w.looked.Add(lookSeldom)
	}
	return later(at, w.quiet)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// close ends the goroutine, and drops what it is about to do.
func (u *upkeep) close() {
	if u == nil {
		return
	}
	u.mu.Lock()
	u.closed = true
	ended := u.ended
	u.mu.Unlock()
	if ended != nil {
		u.cancel()
		<-ended
	}
}

// next is the table that is due first, and when.
func (u *upkeep) next() (w *ward, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.wards {
		if !c.due.IsZero() && (w == nil || c.due.Before(w.due)) {
			w = c
		}
	}
	if w != nil {
		at = w.due
	}
	return w, at
}

func (u *upkeep) run(ctx context.Context) {
	var rested time.Time // until when it rests
	for ctx.Err() == nil {
		w, at := u.next()
		u.tellIdle(w == nil || at.After(time.Now()))
		var timer <-chan time.Time
		if w != nil {
			if u.finishing() {
				rested = time.Time{}
			}
			if wait := time.Until(later(at, rested)); wait > 0 {
				t := time.NewTimer(wait)
				timer = t.C
				defer t.Stop()
			} else {
				began := time.Now()
				u.attend(ctx, w)
				rested = time.Now().Add(u.rest(time.Since(began)))
				continue
			}
		}
		select {
		case <-ctx.Done():
		case <-u.wake:
		case <-timer:
		}
	}
}

// finish does what is due, without a rest.
func (u *upkeep) finish(ctx context.Context) {
	if u == nil {
		return
	}
	idle := make(chan struct{})
	u.mu.Lock()
	began := u.ended != nil
	u.idle, u.late = idle, time.Now().Add(finishFor)
	u.mu.Unlock()
	if !began {
		return
	}
	select {
	case u.wake <- struct{}{}:
	default:
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// finishing reports whether somebody waits until nothing is due.
func (u *upkeep) finishing() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.idle != nil
}

// tellIdle tells whoever waits that nothing is due any more, or that it is late.
func (u *upkeep) tellIdle(nothingDue bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.idle != nil && (nothingDue || time.Now().After(u.late)) {
		close(u.idle)
		u.idle = nil
	}
}

// rest is how long nothing is done after work that took so long.
func (u *upkeep) rest(took time.Duration) time.Duration {
	share := u.opts.Share * float64(runtime.GOMAXPROCS(0))
	if share >= 1 {
		return 0
	}
	return time.Duration(float64(took) * (1/share - 1))
}

// attend looks at a table, does the first of what is to be done, and sets when it is looked at next.
func (u *upkeep) attend(ctx context.Context, w *ward) {
	u.mu.Lock()
	commits := w.commits
	w.commits, w.looked, w.quiet = 0, time.Now(), time.Time{}
	u.mu.Unlock()
	again, err := u.work(ctx, w, int64(commits))
	what := "upkeep of " + w.name
	var busy *busyError
	switch {
	case ctx.Err() != nil:
		return
	case errors.As(err, &busy):
		again, err = busy.until.Add(rand.N(time.Minute)), nil
	case err != nil:
		again = time.Now().Add(min(time.Minute<<min(w.fails, 10), time.Hour))
		u.a.opts.Retry(what, err)
		u.a.opts.Recovered(what) // it is put off, and nobody waits for it
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	w.due = again
	if w.fails++; err == nil {
		w.fails = 0
	}
	if w.fails == 0 && w.due.IsZero() && w.commits > 0 {
		w.due = w.lookAt()
	}
}

// busyError says that another process has the table.
type busyError struct{ until time.Time }

func (e *busyError) Error() string { return fmt.Sprintf("another process has it until %v", e.until) }

// work does the first of what the table needs after so many commits. again is when it is to be looked at though no commit comes; zero: never.
func (u *upkeep) work(ctx context.Context, w *ward, commits int64) (again time.Time, err error) {
	d := w.table()
	if d == nil {
		return again, nil
	}
	snap, err := d.Snapshot(ctx)
	if err != nil {
		return again, err
	}
	if err := snap.CheckWrite(); err != nil {
		return again, err
	}
	s := &surveyor{snap: snap, jobs: w.jobs, rents: w.rents, came: w.came, commits: commits, planner: planner{opts: u.opts,
		now: time.Now(), target: w.fileBytes(u.a), keyed: w.keyed()}}
	c, err := s.look(ctx)
	if err != nil {
		return again, err
	}
	w.rents, w.came = s.paid, s.open()
	if len(c.Needs) == 0 {
		u.mu.Lock()
		w.quiet, w.enough = w.looked.Add(lookShare*time.Since(w.looked)), c.enough
		u.mu.Unlock()
		return u.vacuum(ctx, w, snap, c.again)
	}
	if _, err := u.hold(ctx, w); err != nil {
		return again, err
	}
	if err := u.repack(ctx, w, snap, c); err != nil && !errors.Is(err, delta.ErrConflict) {
		return again, err
	}
	return time.Now(), nil // there may be more to do; a conflict is planned anew
}

// hold takes the table's lease, or makes it last. Errors: *busyError.
func (u *upkeep) hold(ctx context.Context, w *ward) (lease, error) {
	l, err := readLease(ctx, w.st)
	if err != nil {
		return l, err
	}
	now := time.Now()
	switch {
	case l.taken(u.id, now):
		return l, &busyError{l.Until}
	case l.Holder == u.id && l.Until.Sub(now) > leaseFor/2:
		return l, nil
	}
	l.Holder, l.Until, w.held = u.id, now.Add(leaseFor).UTC(), true
	return l, l.write(ctx, w.st)
}

// letGo gives the leases back at the end, so that the next process, which may begin at once, need not wait for them. Those that a store
// keeps from it run out.
func (u *upkeep) letGo(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, letGoFor)
	defer cancel()
	var all errgroup.Group
	all.SetLimit(16)
	for _, w := range u.wards {
		if !w.held {
			continue
		}
		all.Go(func() error {
			l, err := readLease(ctx, w.st)
			if err != nil || l.Holder != u.id {
				return err
			}
			l.Holder, l.Until = "", time.Time{}
			return l.write(ctx, w.st)
		})
	}
	_ = all.Wait()
}

// repack does the first need, and further ones with it as far as they are small.
func (u *upkeep) repack(ctx context.Context, w *ward, snap *delta.Snapshot, c *Condition) error {
	first := c.Needs[0]
	groups, bytes, n := first.groups, first.Bytes, 1
	for rows := first.rows; n < len(c.Needs) && bytes+c.Needs[n].Bytes <= together; n++ {
		if rows += c.Needs[n].rows; w.keyed() && rows > keyedRows {
			break
		}
		groups = append(groups, c.Needs[n].groups...)
		bytes += c.Needs[n].Bytes
	}
	began := time.Now()
	result, err := snap.Repack(ctx, groups, &delta.RepackOptions{TargetFileBytes: c.TargetFileBytes,
		MemoryBytes: u.opts.MemoryBytes, Around: w.around})
	if err != nil {
		return err
	}
	w.last++
	for i := range result.Added {
		w.jobs[result.Added[i].Path] = w.last
	}
	for _, group := range groups {
		for i := range group {
			delete(w.jobs, group[i].Path)
		}
	}
	done := freshet.Upkeep{Table: w.name, Kind: string(first.Kind), Partition: first.Partition, Why: first.Why, Version: result.Version,
		FilesBefore: result.RemovedFiles, BytesBefore: result.RemovedBytes, FilesAfter: result.AddedFiles,
		BytesAfter: result.AddedBytes, Took: time.Since(began)}
	if n > 1 {
		done.Partition += fmt.Sprintf(" and %d more", n-1)
	}
	u.opts.Done(done)
	return nil
}

// around makes the commit of a rewrite while no commit of ours is under way, so that neither is lost to the other, and
// brings the key index over it.
func (w *ward) around(ctx context.Context, commit func(context.Context) (delta.CommitResult, error)) error {
	if w.of == nil {
		_, err := commit(ctx)
		return err
	}
	if err := w.of.takeTurn(ctx); err != nil {
		return err
	}
	defer w.of.endTurn()
	short, cancel := context.WithTimeout(ctx, turnFor)
	defer cancel()
	done, err := commit(short)
	if err != nil {
		return err
	}
	w.of.landed(done.Snapshot)
	if x := w.of.index; x != nil {
		if err := x.bring(ctx, done.Snapshot); err != nil {
			x.distrust(err)
		}
	}
	return nil
}
