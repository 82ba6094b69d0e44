package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The bounds of a job.
const (
	jobBytes   = 4 << 20
	jobRecords = 16 << 10
)

// idle is how long a bounded source waits for records before it looks itself whether there are any.
const idle = 100 * time.Millisecond

// read is the reader goroutine: the only one that polls, moves lanes on, and holds records that wait for
// columns.
func (s *Source) read() {
	r := &reader{Source: s, sampling: map[*table]bool{}, sentEnd: -1}
	for s.life.Err() == nil {
		if !r.waitForRoom() {
			return
		}
		polling, stop := s.pollContext(r.patience())
		fetches := s.client.PollFetches(polling)
		quiet := errors.Is(polling.Err(), context.DeadlineExceeded)
		stop()
		jobs := r.cut(fetches, time.Now())
		r.applySeeks(len(fetches) > 0)
		s.client.AllowRebalance()
		for _, j := range jobs {
			r.pass(j)
		}
		s.budget.adjust(s.client, s.o.FetchMemory, r.count)
		r.judge(fetches)
		r.takeInferred()
		r.sample(false)
		if s.o.Bounded {
			r.finish(quiet && len(jobs) == 0)
		}
	}
}

// reader is what only the reader goroutine knows.
type reader struct {
	*Source
	sampling map[*table]bool // tables that hold records until their columns are known
	count    int             // our lanes, at the last look
	sentEnd  int64           // the epoch for which the end was passed on; -1: none
	probed   time.Time       // bounded: when we last looked whether something comes at all
	patient  time.Duration   // bounded: how long until we look again
	asked    time.Time       // bounded: when others, asked whether they are through, last were not
}

// pollContext returns the context for a poll: it ends when something else is to be looked at, or after
// patience, if that is not 0.
func (s *Source) pollContext(patience time.Duration) (context.Context, context.CancelFunc) {
	ctx, stop := context.WithCancel(s.life)
	if patience > 0 {
		stop()
		ctx, stop = context.WithTimeout(s.life, patience)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopPoll = stop
	if s.awake {
		s.awake = false
		stop()
	}
	return ctx, stop
}

// wake ends the poll that is under way, or else the next one at once.
func (s *Source) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakeLocked()
}

func (s *Source) wakeLocked() {
	s.awake = true
	if s.stopPoll != nil {
		s.stopPoll()
	}
	signal(s.room)
}

// patience is how long a poll may last; 0: until something comes.
func (r *reader) patience() time.Duration {
	if r.o.Bounded {
		return idle
	}
	least := time.Duration(0)
	for t := range r.sampling {
		if t.inferring || t.records == t.tried {
			continue
		}
		left := max(time.Until(t.since.Add(r.o.SampleWait)), time.Millisecond)
		if least == 0 || left < least {
			least = left
		}
	}
	return least
}

// waitForRoom waits until little enough is under way that more may be polled. Records that are held until
// columns are known count: when they take all the room, what there is of them must do. It returns false when
// the source ends.
func (r *reader) waitForRoom() bool {
	for r.inflight.Load() >= r.o.FetchMemory/2 {
		r.takeInferred()
		r.sample(true)
		if r.inflight.Load() < r.o.FetchMemory/2 {
			break
		}
		select {
		case <-r.room:
		case <-r.life.Done():
			return false
		}
	}
	return true
}

// cut gives what was polled to the lanes it belongs to, as jobs. It runs before a rebalance may go on: the
// lanes that are ours now are those that were polled for.
func (r *reader) cut(fetches kgo.Fetches, now time.Time) []*job {
	var jobs []*job
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		r.mu.Lock()
		l := r.lanes[partition{p.Topic, p.Partition}]
		r.count = len(r.lanes)
		r.mu.Unlock()
		if l == nil || l.gone.Load() || l.done() {
			recycle(p.Records)
			if l != nil && l.done() {
				r.pauseDone(l)
			}
			return
		}
		if p.Err == nil {
			l.log.Store(max(l.log.Load(), p.HighWatermark))
		}
		if len(p.Records) > 0 {
			l.strikes, l.empty = 0, 0
			if l.ailing {
				l.ailing = false
				r.recovered(l.reading())
			}
			r.patient = 0
			jobs = append(jobs, r.cutLane(l, p.Records, now)...)
			if l.done() {
				r.pauseDone(l)
			}
			r.lag(l)
		}
	})
	return jobs
}

// cutLane cuts the records into jobs, which adjoin, and moves the lane on. Records before the lane's position
// and behind its end are dropped.
func (r *reader) cutLane(l *lane, records []*kgo.Record, now time.Time) []*job {
	var jobs []*job
	from, size := 0, int64(0)
	cut := func(to int, last int64) {
		jobs = append(jobs, &job{lane: l, records: records[from:to], after: l.next - 1, last: last, bytes: size,
			read: now, done: make(chan struct{})})
		r.inflight.Add(size)
		l.next = last + 1
		from, size = to, 0
	}
	for i, rec := range records {
		switch {
		case rec.Offset < l.next && i == from:
			from = i + 1
			continue
		case l.end >= 0 && rec.Offset >= l.end:
			cut(i, l.end-1)
			recycle(records[i:])
			return jobs
		}
		size += int64(len(rec.Key) + len(rec.Value))
		if size >= jobBytes || i+1-from >= jobRecords || i == len(records)-1 {
			cut(i+1, rec.Offset)
		}
	}
	return jobs
}

// lag tells how far the lane is behind its log.
func (s *Source) lag(l *lane) {
	if s.o.Observer.Lag != nil {
		s.o.Observer.Lag(l.Lane, max(l.log.Load()-l.next, 0))
	}
}

// forgetLag tells that the lane is no longer ours.
func (s *Source) forgetLag(l *lane) {
	if s.o.Observer.Lag != nil {
		s.o.Observer.Lag(l.Lane, -1)
	}
}

// pass passes the job on, or holds it until the columns of its table are known. A job with nothing to decode
// needs none.
func (r *reader) pass(j *job) {
	t := j.lane.table
	if len(t.held) == 0 && (t.columns.Load() != nil || t.there.Load() && r.payloads(j) == 0) {
		r.send(j)
		return
	}
	r.hold(t, j)
}

func (r *reader) send(j *job) {
	for _, c := range []chan *job{r.queue, r.work} {
		select {
		case c <- j:
		case <-r.life.Done():
			return
		}
	}
}

// seek has the lane, or what took its place without its being given up, read from next on. It may be called by
// any goroutine.
func (s *Source) seek(old *lane, next int64) { s.addSeek(seek{old: old, next: next}) }

func (s *Source) addSeek(k seek) {
	k.old.gone.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seeks = append(s.seeks, k)
	s.wakeLocked()
}

// applySeeks carries out what seek was asked for, while no rebalance can take a lane away in between: not
// when the poll returned with nothing, since then rebalances are not held up.
func (r *reader) applySeeks(held bool) {
	lanes, offsets := r.seekTo(held)
	if len(lanes) == 0 {
		return
	}
	r.client.SetOffsets(offsets)
	for _, l := range lanes {
		r.pauseDone(l)
	}
}

func (r *reader) seekTo(held bool) (lanes []*lane, offsets map[string]map[int32]kgo.EpochOffset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.seeks) > 0 && !held && len(r.o.Partitions) == 0 {
		r.wakeLocked()
		return nil, nil
	}
	offsets = map[string]map[int32]kgo.EpochOffset{}
	for _, k := range r.seeks {
		now := r.lanes[k.old.partition]
		if now == nil || now.taken != k.old.taken || k.same && now != k.old {
			continue
		}
		l := &lane{Lane: k.old.Lane, partition: k.old.partition, table: k.old.table, taken: k.old.taken,
			start: k.next, next: k.next, end: k.old.end}
		l.log.Store(k.old.log.Load())
		r.ownLocked(l)
		if offsets[l.topic] == nil {
			offsets[l.topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[l.topic][l.n] = kgo.EpochOffset{Epoch: -1, Offset: k.next}
		lanes = append(lanes, l)
	}
	r.seeks = nil
	return lanes, offsets
}

// judge decides what the errors of a poll mean.
func (r *reader) judge(fetches kgo.Fetches) {
	fetches.EachError(func(topic string, n int32, err error) {
		if r.life.Err() != nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, kgo.ErrClientClosed) {
			return
		}
		r.mu.Lock()
		l := r.lanes[partition{topic, n}]
		r.mu.Unlock()
		var session *kgo.ErrGroupSession
		var lost *kgo.ErrDataLoss
		switch {
		case refused(err):
			r.fail(r.refusedError("let us read", err))
		case errors.As(err, &session):
			r.retry(r.session(), err)
			if !r.outage.any() {
				r.log.Warn("the group ended the session, joining again", "group", r.o.Group, "error", err)
			}
		case errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.UnknownTopicOrPartition),
			errors.Is(err, kerr.InconsistentTopicID):
			signal(r.recheck)
		case l == nil || l.gone.Load():
		case errors.As(err, &lost):
			r.fail(gapError(l.table.name, l.Lane, lost.ConsumedTo, lost.ResetTo, lost.ResetTo))
		case errors.Is(err, kerr.OffsetOutOfRange):
			r.outOfRange(l)
		default:
			r.strike(l, err)
		}
	})
}

// session is what retries of the group are told under.
func (s *Source) session() string { return "stay in the group " + s.o.Group }

// outOfRange is for a lane whose next offset the broker does not have.
func (r *reader) outOfRange(l *lane) {
	spans, err := r.spans(r.life, []partition{l.partition}, false)
	if err != nil {
		if r.life.Err() == nil {
			r.fail(err)
		}
		return
	}
	if log := spans[l.partition]; l.next < log.first || l.next > log.end {
		r.fail(gapError(l.table.name, l.Lane, l.next, log.first, log.end))
		return
	}
	r.strike(l, kerr.OffsetOutOfRange)
	r.addSeek(seek{old: l, next: l.next, same: true})
}

// maxStrikes is how often a partition may fail, with nothing read in between, until we give up.
const maxStrikes = 10

// reading is what retries of the lane are told under.
func (l *lane) reading() string { return "read " + l.Lane.String() }

func (r *reader) strike(l *lane, err error) {
	l.ailing = true
	r.retry(l.reading(), err)
	if kerr.IsRetriable(err) && !errors.Is(err, kerr.CorruptMessage) {
		return
	}
	l.strikes++
	if l.strikes >= maxStrikes {
		r.fail(brokenError(l.table.name, l.Lane, l.next, err))
	}
}
