package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/freshet-io/freshet"
)

// Transaction is what a record of the transaction topic says.
type Transaction struct {
	Name   string           // as the stamps of its changes have it
	Ended  bool             // it has ended; else it begins
	Counts map[string]int64 // once it has: its changes by table, as the origin names it; topics end so
}

// TransactionOptions tell of the topic to which the origin's transactions are written. Topic and Parse are required.
type TransactionOptions struct {
	Topic string // of one partition
	// Parse reads one of its records. A record that is none is passed over.
	Parse func(value []byte) (Transaction, error)
	// Wait is how long is waited for what is missing of a transaction, once nothing comes of it any more. Default 1 minute.
	Wait time.Duration
}

// Transactional is a Source that delivers whole transactions of the origin: what several tables have of one is committed
// together (Batch.Partial, Batch.More), and tables have the transaction topic as one more lane, whose seq is the end of the
// last transaction of which they hold everything. It must read all partitions of its topics itself. Make one with
// NewTransactional, use it for one run.
//
// A transaction is whole when as many changes have come as its end says, or when later ones have come in all partitions, so
// that the rest has gone elsewhere. If neither comes to pass for Wait, although all partitions are read to their ends, it is
// let go as it is, which is logged. What is of no transaction, as an initial snapshot, is passed on at once.
type Transactional struct {
	*Source
	o    TransactionOptions
	down freshet.Downstream
	wake chan struct{} // has one element when the transaction topic has said something

	mu     sync.Mutex
	gate   *gate
	topic  topic
	span   span          // of the transaction topic, when it was asked last
	bound  int64         // bounded: where it ended when we were opened
	moved  chan struct{} // has one element when the topic may have to be read from elsewhere
	looked time.Time     // when it was looked last whether something is missing for good
	atEnd  bool
}

// NewTransactional has the source deliver whole transactions. Errors: all faults of the options, joined.
func NewTransactional(src *Source, o TransactionOptions) (*Transactional, error) {
	var faults []error
	if o.Topic == "" {
		faults = append(faults, errors.New("transaction topic: found none, wanted its name"))
	}
	if o.Parse == nil {
		faults = append(faults, errors.New("transaction topic: found nothing that reads its records, wanted that"))
	}
	if o.Wait < 0 {
		faults = append(faults, fmt.Errorf("transaction wait: found %s, wanted no negative time", o.Wait))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	setDefault(&o.Wait, time.Minute)
	t := &Transactional{Source: src, o: o, wake: make(chan struct{}, 1), moved: make(chan struct{}, 1),
		gate: newGate(src.o.FetchMemory, src.o.Bounded)}
	src.connected = t.find
	return t, nil
}

// Open is Source's; besides CodeNoTopic when there is no transaction topic, and CodeBadValue when it has several partitions.
func (t *Transactional) Open(ctx context.Context, down freshet.Downstream) error {
	t.down = down
	return t.Source.Open(ctx, &gated{down, t})
}

// find looks for the transaction topic, and where it ends: before it is asked where others do, so that of what has ended
// here all has come there.
func (t *Transactional) find(ctx context.Context) error {
	s := t.Source
	found, err := s.describe(ctx, []string{t.o.Topic})
	if err != nil {
		return err
	}
	topic, ok := found[t.o.Topic]
	if !ok {
		return s.noTopicError(t.o.Topic, nil)
	}
	if len(topic.leaders) != 1 {
		return &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: t.o.Topic,
			Msg: fmt.Sprintf("the transaction topic has %d partitions, wanted one: nothing else tells the order of transactions",
				len(topic.leaders)),
			Fix: "let the connector write it to a topic of one partition"}
	}
	p := partition{t.o.Topic, 0}
	spans, err := s.spans(ctx, []partition{p}, true)
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.topic, t.span, t.bound = topic, spans[p], spans[p].end
	t.gate.lane = laneOf(topic, 0)
	t.mu.Unlock()
	s.wg.Go(t.listen)
	return nil
}

// errAwake ends a wait for a batch, since there may be something else to deliver.
var errAwake = errors.New("the transaction topic has said something")

// lookAgain is how often it is looked whether something of a transaction is missing for good.
const lookAgain = 500 * time.Millisecond

// Next returns the next batch. See freshet.Source.
func (t *Transactional) Next(ctx context.Context) (*freshet.Batch, error) {
	for {
		if b := t.next(); b != nil {
			return b, nil
		}
		if err := t.look(ctx); err != nil {
			return nil, err
		}
		b, err := t.wait(ctx)
		switch {
		case err == nil:
			t.mu.Lock()
			t.atEnd = false
			t.gate.add(b, time.Now())
			t.mu.Unlock()
		case errors.Is(err, io.EOF):
			if over, err := t.end(ctx); over || err != nil {
				return nil, err
			}
		case !errors.Is(err, errAwake) || ctx.Err() != nil:
			return nil, err
		}
	}
}

// wait waits for a batch, or until there is something to be looked at.
func (t *Transactional) wait(ctx context.Context) (*freshet.Batch, error) {
	t.mu.Lock()
	blocked := t.gate.wait != nil
	t.mu.Unlock()
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done, ended := make(chan struct{}), make(chan struct{})
	defer func() {
		close(done)
		<-ended // lest it takes what the next wait is to hear
	}()
	var tick <-chan time.Time
	if blocked {
		timer := time.NewTimer(lookAgain)
		defer timer.Stop()
		tick = timer.C
	}
	go func() { // ends with the wait
		defer close(ended)
		select {
		case <-t.wake:
			stop(errAwake)
		case <-tick:
			stop(errAwake)
		case <-done:
		}
	}()
	return t.Source.Next(waiting)
}

// next is the next batch that may go out, nil when there is none.
func (t *Transactional) next() *freshet.Batch {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.gate
	if len(g.out) == 0 {
		g.advance(time.Now())
		pause, resume := g.hold()
		t.Source.holdBack(pause, true)
		t.Source.holdBack(resume, false)
		if !g.full() {
			signal(t.moved)
		}
	}
	if len(g.out) == 0 {
		return nil
	}
	b := g.out[0]
	g.out = g.out[1:]
	return b
}

// Rewind has the lanes of the table read again. See freshet.Source.
func (t *Transactional) Rewind(ctx context.Context, table string) error {
	t.mu.Lock()
	t.atEnd = false
	t.gate.leave(table)
	t.mu.Unlock()
	return t.Source.Rewind(ctx, table)
}

// Close stops reading. See freshet.Source.
func (t *Transactional) Close(ctx context.Context) error {
	err := t.Source.Close(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gate.close()
	return err
}

// gated is what the source has downstream of it: where it asks for a table's lanes, the transaction topic is asked for, too.
type gated struct {
	freshet.Downstream
	t *Transactional
}

// Resume asks for the transaction topic besides. Of a table that does not know it, although it knows other lanes, it begins
// where the source begins. When only some lanes of a table are asked for, the others must be read again, too.
func (d *gated) Resume(ctx context.Context, table string, lanes []freshet.Lane) (freshet.Progress, error) {
	t := d.t
	t.mu.Lock()
	tx, others := t.gate.lane, t.gate.ask(table, lanes)
	t.mu.Unlock()
	found, err := d.Downstream.Resume(ctx, table, append([]freshet.Lane{tx}, lanes...))
	if err != nil {
		return nil, err
	}
	place, known := found[tx]
	delete(found, tx)
	if !known && len(found) > 0 {
		start, err := t.start(ctx)
		if err != nil {
			return nil, err
		}
		if place, err = d.begin(ctx, table, start); err != nil {
			return nil, err
		}
	}
	if known || len(found) > 0 {
		if err := t.answer(ctx, table, found, place, known); err != nil {
			return nil, err
		}
	}
	if others {
		return found, t.Rewind(ctx, table)
	}
	return found, nil
}

// begin records where the transaction topic begins for the table.
func (d *gated) begin(ctx context.Context, table string, start int64) (int64, error) {
	tx := d.t.gate.lane
	won, err := d.Downstream.Start(ctx, table, freshet.Progress{tx: start})
	return won[tx], err
}

// Start records where the transaction topic begins, too.
func (d *gated) Start(ctx context.Context, table string, starts freshet.Progress) (freshet.Progress, error) {
	t := d.t
	start, err := t.start(ctx)
	if err != nil {
		return nil, err
	}
	tx := t.gate.lane
	all := freshet.Progress{tx: start}
	for l, seq := range starts {
		all[l] = seq
	}
	won, err := d.Downstream.Start(ctx, table, all)
	if err != nil {
		return nil, err
	}
	place := won[tx]
	delete(won, tx)
	return won, t.answer(ctx, table, won, place, start < 0 && place == start)
}

// Release gives lanes up, and with the last of a table the transaction topic.
func (d *gated) Release(ctx context.Context, table string, lanes []freshet.Lane) error {
	d.t.mu.Lock()
	last := d.t.gate.release(table, lanes)
	d.t.mu.Unlock()
	if last {
		lanes = append([]freshet.Lane{d.t.gate.lane}, lanes...)
	}
	return d.Downstream.Release(ctx, table, lanes)
}

// start is where the transaction topic begins for a table that does not know it: the seq before its first.
func (t *Transactional) start(ctx context.Context) (int64, error) {
	p := partition{t.o.Topic, 0}
	spans, err := t.Source.spans(ctx, []partition{p}, true)
	if err != nil {
		return 0, err
	}
	o := t.Source.o.Start
	switch {
	case o.Latest:
		return spans[p].end - 1, nil
	case !o.Time.IsZero():
		at, err := t.Source.list(ctx, []partition{p}, o.Time.UnixMilli(), true)
		if err != nil || at[p] >= 0 {
			return at[p] - 1, err
		}
		return spans[p].end - 1, nil
	}
	return spans[p].first - 1, nil
}

// answer has the gate go on from where the table stands. Errors: a gap in the transaction topic.
func (t *Transactional) answer(ctx context.Context, table string, lanes freshet.Progress, place int64, exact bool) error {
	schema, err := t.down.Schema(ctx, table)
	if err != nil {
		return err
	}
	empty := schema == nil
	if empty {
		var parts []partition
		for l := range lanes {
			parts = append(parts, partitionOf(l))
		}
		spans, err := t.Source.spans(ctx, parts, true)
		if err != nil {
			return err
		}
		for l, seq := range lanes {
			empty = empty && seq+1 >= spans[partitionOf(l)].end
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if place+1 < t.span.first {
		return gapError(table, t.gate.lane, place+1, t.span.first, t.span.end)
	}
	t.gate.answer(table, lanes, place, schema != nil, empty, !exact)
	signal(t.moved)
	return nil
}

var _ freshet.Source = (*Transactional)(nil)
