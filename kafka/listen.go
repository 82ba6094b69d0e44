package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/freshet-io/freshet"
)

// listenWait is how long a poll of the transaction topic waits before it is looked where that ends.
const listenWait = time.Second

// listen is the goroutine that reads the transaction topic, from where the table stands that is furthest behind; anew when
// one is found to stand further behind.
func (t *Transactional) listen() {
	for t.life.Err() == nil {
		from, known := t.begins()
		if !known {
			select {
			case <-t.moved:
			case <-t.life.Done():
			}
			continue
		}
		if err := t.listenFrom(from); err != nil && t.life.Err() == nil {
			t.fail(err)
			return
		}
	}
}

// begins is where the topic is to be read from, once a table has said where it stands.
func (t *Transactional) begins() (from int64, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	g := t.gate
	if g.from == math.MaxInt64 {
		return 0, false
	}
	g.heard, g.over = g.from, g.bounded && g.from+1 >= t.bound
	return g.from + 1, true
}

// listenFrom reads the topic from an offset on, until it is to be read from an earlier one.
func (t *Transactional) listenFrom(from int64) error {
	secure, err := t.secureOpts()
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.WithContext(t.life), kgo.SeedBrokers(t.brokers...), kgo.ClientID(t.Source.o.ClientID),
		kgo.DialTimeout(min(5*time.Second, t.Source.o.ConnectTimeout)), kgo.DisableClientMetrics(),
		kgo.RetryBackoffFn(backoff), kgo.FetchMaxWait(250 * time.Millisecond), kgo.FetchMaxBytes(1 << 20),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.KeepControlRecords(), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.o.Topic: {0: kgo.NewOffset().At(from)}}),
	}, secure...)...)
	if err != nil {
		return err
	}
	defer client.Close()
	l := &listener{Transactional: t, client: client, from: from}
	for t.life.Err() == nil {
		again, err := l.poll()
		if err != nil || again {
			return err
		}
	}
	return nil
}

// listener reads the transaction topic from one offset on.
type listener struct {
	*Transactional
	client *kgo.Client
	from   int64
	quiet  int // polls in a row that brought nothing, although the topic goes on
	misses int // errors in a row
	ailing bool
}

// poll reads once. It reports whether the topic is to be read from elsewhere.
func (l *listener) poll() (again bool, err error) {
	l.mu.Lock()
	again, full := l.gate.from+1 < l.from, l.gate.full()
	l.mu.Unlock()
	switch {
	case again:
		return true, nil
	case full:
		select {
		case <-l.moved:
		case <-l.life.Done():
		}
		return false, nil
	}
	ctx, stop := context.WithTimeout(l.life, listenWait)
	fetches := l.client.PollFetches(ctx)
	stop()
	fetches.EachError(func(_ string, _ int32, e error) {
		if err == nil && !errors.Is(e, context.DeadlineExceeded) && !errors.Is(e, context.Canceled) {
			err = l.trouble(e)
		}
	})
	if err != nil {
		return false, err
	}
	records := fetches.Records()
	if len(records) == 0 {
		return false, l.atTail()
	}
	if l.quiet, l.misses = 0, 0; l.ailing {
		l.ailing = false
		l.recovered("read " + l.o.Topic)
	}
	l.take(records)
	return false, nil
}

// take passes on what the records say.
func (l *listener) take(records []*kgo.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gate.from+1 < l.from {
		return // it is to be read from elsewhere
	}
	now := time.Now()
	for _, r := range records {
		if l.gate.bounded && r.Offset >= l.bound {
			break
		}
		l.gate.heard = max(l.gate.heard, r.Offset)
		if r.Attrs.IsControl() || r.Value == nil {
			continue
		}
		said, err := l.o.Parse(r.Value)
		if err != nil {
			l.log.Warn("a record of the transaction topic is none", "position", l.gate.lane.Position(r.Offset), "error", err)
			continue
		}
		l.gate.hear(said, r.Offset, now)
	}
	l.gate.over = l.gate.bounded && l.gate.heard+1 >= l.bound
	signal(l.wake)
}

// kept is what the broker has of the topic.
func (l *listener) kept() (span, error) {
	p := partition{l.o.Topic, 0}
	spans, err := l.spans(l.life, []partition{p}, true)
	return spans[p], err
}

// atTail looks where the topic ends when nothing comes: what is before that and does not come is not there.
func (l *listener) atTail() error {
	now, err := l.kept()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Transactional.span = now
	if l.gate.from+1 < l.from {
		return nil
	}
	end := now.end
	if l.gate.bounded {
		end = min(end, l.bound)
	}
	if l.quiet++; l.gate.heard+1 < end && l.quiet < certain {
		return nil
	}
	l.gate.heard = max(l.gate.heard, end-1)
	l.gate.over = l.gate.bounded && l.gate.heard+1 >= l.bound
	signal(l.wake)
	return nil
}

// trouble decides what an error of reading means; nil: it is tried again.
func (l *listener) trouble(err error) error {
	var lost *kgo.ErrDataLoss
	switch {
	case refused(err):
		return l.refusedError("let us read", err)
	case errors.Is(err, kerr.OffsetOutOfRange), errors.As(err, &lost):
		now, err := l.kept()
		if err != nil {
			return err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if next := l.gate.heard + 1; next < now.first || next > now.end {
			return gapError(l.gate.some(), l.gate.lane, next, now.first, now.end)
		}
	case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.UnknownTopicOrPartition),
		errors.Is(err, kerr.InconsistentTopicID):
		if err := l.remade(); err != nil {
			return err
		}
	}
	l.ailing = true
	l.retry("read "+l.o.Topic, err)
	return pause(l.life, lookAgain)
}

// remade is an error when the topic is gone, or another one by now.
func (l *listener) remade() error {
	found, err := l.describe(l.life, []string{l.o.Topic})
	if err != nil {
		l.putOff("describe "+l.o.Topic, err)
		return nil
	}
	now, there := found[l.o.Topic]
	if l.misses++; there && now.id() != l.topic.id() || !there && l.misses >= maxMisses {
		return remadeError(l.o.Topic, l.topic.id(), now.id())
	}
	return nil
}

// end is what becomes of a bounded source that has come to its end: what has not ended by then is not let out, unless that is
// because something is missing for good.
func (t *Transactional) end(ctx context.Context) (over bool, err error) {
	t.mu.Lock()
	t.atEnd = true
	heard := t.gate.over
	t.mu.Unlock()
	if !heard {
		select {
		case <-t.wake:
			return false, nil
		case <-t.failed:
			return true, t.err
		case <-ctx.Done():
			return true, context.Cause(ctx)
		}
	}
	if b := t.next(); b != nil {
		t.mu.Lock()
		t.gate.out = append([]*freshet.Batch{b}, t.gate.out...)
		t.mu.Unlock()
		return false, nil
	}
	if let, err := t.lookNow(ctx); let || err != nil {
		return false, err
	}
	return true, io.EOF
}

// look lets go, now and then, a transaction of which nothing comes any more.
func (t *Transactional) look(ctx context.Context) error {
	t.mu.Lock()
	due := t.gate.wait != nil && time.Since(t.looked) >= lookAgain
	t.mu.Unlock()
	if !due {
		return nil
	}
	_, err := t.lookNow(ctx)
	return err
}

// lookNow lets go the transaction that holds up the others, if it has had its time and all is read that there is. It reports
// whether it did.
func (t *Transactional) lookNow(ctx context.Context) (let bool, err error) {
	t.mu.Lock()
	t.looked = time.Now()
	m := t.missing(t.looked)
	t.mu.Unlock()
	if m == nil {
		return false, nil
	}
	if m.alone != nil {
		return false, m.alone
	}
	spans, err := t.spans(ctx, m.parts, true)
	if err != nil {
		return false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for p, at := range m.at {
		if at+1 < spans[p].end {
			return false, nil
		}
	}
	if t.gate.wait != m.tx {
		return false, nil
	}
	t.gate.letGo(m.tx)
	if !m.known {
		t.log.Warn("a transaction is let go without what is missing of it: cuts may show a part of it",
			"transaction", m.tx.name, "missing", m.what, "waited", t.o.Wait)
	}
	return true, nil
}

// missing is what a transaction lacks.
type missing struct {
	tx    *transaction
	what  string
	known bool // its first records were there before the table began
	parts []partition
	at    map[partition]int64 // up to where they have been read
	alone error               // partitions of it are read by another process
}

// missing is what the transaction lacks that holds up the others; nil when it is to be waited for. t.mu is held.
func (t *Transactional) missing(now time.Time) *missing {
	g := t.gate
	tx := g.wait
	if tx == nil {
		return nil
	}
	waited := now.Sub(g.since) >= t.o.Wait || t.atEnd && !tx.newest.IsZero() && now.Sub(tx.newest) >= t.o.Wait
	m := &missing{tx: tx, at: map[partition]int64{}}
	if tx.end < 0 {
		if !waited {
			return nil
		}
		p := partition{t.o.Topic, 0}
		m.what, m.parts, m.at[p] = "its end in "+t.o.Topic, []partition{p}, g.heard
		return m
	}
	tables, _, _ := g.moving()
	for _, table := range tables {
		if table.whole(tx) {
			continue
		}
		if !waited && !table.new {
			return nil
		}
		m.known = m.known || table.new
		m.what = fmt.Sprintf("changes of %s", table.name)
		for l, have := range table.lanes {
			p := partitionOf(l)
			m.parts = append(m.parts, p)
			m.at[p] = have.at
			if n := len(t.Source.topic(l.Origin).leaders); len(table.of(l.Origin)) < n {
				m.alone = t.aloneError(l.Origin, n)
			}
		}
	}
	return m
}

func (t *Transactional) aloneError(topic string, n int) error {
	return &freshet.Error{Code: freshet.CodeConflict, Class: freshet.ClassFailure, Place: topic,
		Msg: fmt.Sprintf("another process reads some of the topic's %d partitions, and so nobody has whole transactions", n),
		Fix: "with debezium.transactions, let one process read all of a pipeline's topics"}
}
