package freshet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// Pipeline moves what a source reads through the steps into a target, and commits it with its progress.
//
//	read goroutine        queue            write goroutine            commit goroutine
//	Source.Next  ──▶ bounded in batches ─▶ position check, Steps, ─▶ Commit.Run, tables side by
//	Source.Rewind    and in bytes          Target.Write, Seal        side, then Source.Ack
//
// The three overlap. A queue that is full holds the one before it back, down to the source.
type Pipeline struct {
	Name   string // in logs: "bronze.orders"
	Source Source
	Steps  []Step // may be empty
	// StepsOf gives the steps of each table, where they differ; it is asked once a table. nil: all have Steps.
	StepsOf func(table string) ([]Step, error)
	Target  Target
	Options Options
}

// Options tune a Pipeline. The zero value of each field means its default.
type Options struct {
	// Every is the longest that a record waits for its commit, from its arrival on. Default 10 s. The first
	// commit of a run does not wait for it, so that whoever starts a pipeline soon sees that it works.
	Every time.Duration
	// MaxRows is the number of rows and rejects, over all tables, from which a commit is made at once. Default
	// 0: no limit.
	MaxRows int64
	// MaxBytes is the size from which a commit is made at once, by Target.Pending: as stored, or, where the target gathers rows, as those of
	// tables with a key, in memory, with those of the two commits that may be under way. Default 256 MiB.
	MaxBytes int64
	// QueueBatches bounds the batches that were read and wait for the steps. Default 64.
	QueueBatches int
	// QueueBytes bounds what they take in memory; a batch that is larger than all of it passes alone. Default 32 MiB.
	QueueBytes int64
	// ShutdownTimeout is how long what was read may still be committed once ctx has ended. Default 30 s.
	ShutdownTimeout time.Duration
	// StopAbove ends the run when too many records go to quarantine. nil: never.
	StopAbove *StopAbove
	// Days has the stream cut at the end of each day. nil: days are not told apart.
	Days *Days
	// Observer is told what happens.
	Observer Observer
	// Logger takes what a person should see. Default: nothing is logged.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Every <= 0 {
		o.Every = 10 * time.Second
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 256 << 20
	}
	if o.QueueBatches <= 0 {
		o.QueueBatches = 64
	}
	if o.QueueBytes <= 0 {
		o.QueueBytes = 32 << 20
	}
	if o.ShutdownTimeout <= 0 {
		o.ShutdownTimeout = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// errShutdown says that the time for a shutdown was not enough.
var errShutdown = errors.New("the time for the shutdown is over")

// Run moves changes until ctx ends, the source has no more (a bounded one), or something fails. When ctx ends
// it stops reading, commits what was read within ShutdownTimeout, and returns nil; what could not be
// committed will be read again, and the error says so. Outages of the target are waited out. A failure of the
// source first lets what was read be committed. Errors for people are *Error. A Pipeline runs once at a time.
func (p *Pipeline) Run(ctx context.Context) error {
	opts := p.Options.withDefaults()
	r := &run{
		source: p.Source, steps: p.Steps, stepsOf: p.StepsOf, tableSteps: map[string][]Step{}, target: p.Target, opts: opts, obs: opts.Observer,
		log:     opts.Logger.With("pipeline", p.Name),
		queue:   make(chan item, opts.QueueBatches),
		room:    semaphore.NewWeighted(opts.QueueBytes),
		asks:    make(chan ask),
		sealed:  make(chan group, 1),
		results: make(chan result, 16),
		done:    make(chan struct{}),
		began:   time.Now(),

		resuming: make(chan struct{}, 1),
	}
	r.state("starting")
	err := r.all(ctx)
	if err != nil {
		r.state("failed")
		return err
	}
	r.state("stopped")
	r.log.Info("stopped")
	return nil
}

// run is one Run of a pipeline: what its three goroutines share.
type run struct {
	source Source
	target Target
	opts   Options
	obs    Observer
	log    *slog.Logger

	stepping   sync.Mutex // the steps are used by the write goroutine and by Downstream
	steps      []Step
	stepsOf    func(table string) ([]Step, error)
	tableSteps map[string][]Step // that stepsOf gave

	queue   chan item           // read → write
	room    *semaphore.Weighted // bytes that the queue may still take
	asks    chan ask            // Downstream → write
	sealed  chan group          // write → commit
	results chan result         // commit → write
	done    chan struct{}       // closed when the write goroutine no longer answers
	rewinds rewinds             // write → read
	queued  atomic.Int64        // items that were put into the queue

	began    time.Time
	answered atomic.Bool // the target has answered what it was asked, whatever it said
	opened   atomic.Bool // the source is: it has asked where all lanes stand that are there

	resuming chan struct{} // holds an element while Downstream asks where lanes stand
}

// item is a batch on its way to the write goroutine, or the mark that the source has come to its end.
type item struct {
	batch  *Batch // nil for the mark
	size   int64  // what it holds of room
	rewind int    // how many rewinds the source had carried out before
}

// all opens both ends, lets the goroutines work, and closes both ends. The caller's goroutine is the read
// goroutine.
func (r *run) all(ctx context.Context) error {
	if err := r.target.Open(ctx); err != nil {
		return errors.Join(err, r.target.Close(context.WithoutCancel(ctx)))
	}
	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	working, stopWorking := linger(reading, r.opts.ShutdownTimeout)
	defer stopWorking()

	var written error
	var wg sync.WaitGroup
	wg.Go(func() { written = newWriter(r).loop(working, stopReading) })
	wg.Go(func() { r.commitAll(working) })
	read := r.read(reading)
	wg.Wait()
	for it := range r.queue {
		it.batch.drop()
	}
	if f, ok := r.target.(Finisher); ok && read == nil && written == nil && ctx.Err() == nil {
		f.Finish(ctx)
	}
	closed := r.close(ctx)
	if errors.Is(written, errShutdown) {
		written = fmt.Errorf("%w after %s: what was read and not committed will be read again",
			errShutdown, r.opts.ShutdownTimeout)
	}
	switch {
	case read != nil && written != nil:
		return errors.Join(read, written)
	case read != nil:
		return read
	case written != nil:
		return written
	}
	return closed
}

// close ends both ends, the source first: it may still call down.
func (r *run) close(ctx context.Context) error {
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.opts.ShutdownTimeout)
	defer cancel()
	r.rewinds.end()
	return errors.Join(r.source.Close(closing), r.target.Close(closing))
}

// linger returns a context that ends d after ctx has ended.
func linger(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			cancel(errShutdown)
		case <-longer.Done():
		}
	})
	return longer, func() {
		unhook()
		cancel(nil)
	}
}

// stepsFor are the steps of a table. The caller holds stepping.
func (r *run) stepsFor(table string) ([]Step, error) {
	if r.stepsOf == nil {
		return r.steps, nil
	}
	steps, known := r.tableSteps[table]
	if known {
		return steps, nil
	}
	steps, err := r.stepsOf(table)
	if err == nil {
		r.tableSteps[table] = steps
	}
	return steps, err
}

func (r *run) state(s string) {
	if r.obs.State != nil {
		r.obs.State(s)
	}
}

func (r *run) stage(s string, since time.Time) {
	if r.obs.Stage != nil {
		r.obs.Stage(s, time.Since(since))
	}
}

func (r *run) retry(what string, err error) {
	if r.obs.Retry != nil {
		r.obs.Retry(what, err)
	}
	r.log.Warn("trying again", "what", what, "error", err)
}

func (r *run) recovered(what string) {
	if r.obs.Recovered != nil {
		r.obs.Recovered(what)
	}
}
