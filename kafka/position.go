package kafka

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/freshet-io/freshet"
)

// take finds out where partitions go on, and makes their lanes. Errors: a gap, a topic that was made again, a
// lane that only the group knows.
func (s *Source) take(ctx context.Context, parts []partition) ([]*lane, error) {
	if err := s.learn(ctx, slices.Sorted(maps.Keys(byTopic(parts)))); err != nil {
		return nil, err
	}
	byTable := map[*table][]partition{}
	for _, p := range parts {
		t := s.table(s.route(p.topic))
		byTable[t] = append(byTable[t], p)
	}
	var spans map[partition]span
	found := make(map[*table]freshet.Progress, len(byTable))
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		spans, err = s.spans(gctx, parts, false)
		return err
	})
	group.Go(func() error {
		for t, ps := range byTable {
			if err := t.ready(gctx, s); err != nil {
				return err
			}
			p, err := s.down.Resume(gctx, t.name, s.lanesOf(ps))
			if err != nil {
				return err
			}
			found[t] = p
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var lanes []*lane
	for t, ps := range byTable {
		more, err := s.takeFor(ctx, t, ps, found[t], spans)
		if err != nil {
			return nil, err
		}
		lanes = append(lanes, more...)
	}
	return lanes, nil
}

// learn asks the broker anew about the topics.
func (s *Source) learn(ctx context.Context, names []string) error {
	var found map[string]topic
	misses := 0
	err := s.waitOut(ctx, "describe topics", func() (err error) {
		found, err = s.describe(ctx, names)
		if err == nil && len(found) < len(names) && misses < maxMisses {
			misses++
			return errors.New("a topic is missing")
		}
		return err
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		t, ok := found[name]
		if !ok {
			return s.noTopicError(name, nil)
		}
		s.known[name] = t
	}
	return nil
}

func (s *Source) lanesOf(parts []partition) []freshet.Lane {
	lanes := make([]freshet.Lane, len(parts))
	for i, p := range parts {
		lanes[i] = laneOf(s.topic(p.topic), p.n)
	}
	return lanes
}

// takeFor makes the lanes of one table, which found goes on for as the table says, while the others start.
func (s *Source) takeFor(ctx context.Context, t *table, parts []partition, found freshet.Progress,
	spans map[partition]span) ([]*lane, error) {
	lanes := make([]*lane, 0, len(parts))
	var unknown []partition
	for i, l := range s.lanesOf(parts) {
		p := parts[i]
		seq, ok := found[l]
		if !ok {
			unknown = append(unknown, p)
			continue
		}
		if err := s.checkGap(ctx, t, l, p, seq+1, spans[p]); err != nil {
			return nil, err
		}
		lanes = append(lanes, s.newLane(t, l, p, seq+1, spans[p].end))
	}
	if len(unknown) == 0 {
		return lanes, nil
	}
	starts, err := s.begin(ctx, t, unknown)
	if err != nil {
		return nil, err
	}
	for i, l := range s.lanesOf(unknown) {
		lanes = append(lanes, s.newLane(t, l, unknown[i], starts[l]+1, spans[unknown[i]].end))
	}
	return lanes, nil
}

func (s *Source) newLane(t *table, l freshet.Lane, p partition, next, logEnd int64) *lane {
	end := int64(-1)
	if s.o.Bounded {
		end = s.ends[p].end
	}
	made := &lane{Lane: l, partition: p, table: t, start: next, next: next, end: end}
	made.log.Store(logEnd)
	made.taken = made
	return made
}

// alone waits until nobody else asks where lanes go on. Between the answer and the lane that goes on there
// nobody else may ask: the pipeline takes what follows the last answer, and nothing else.
func (s *Source) alone(ctx context.Context) (done func(), err error) {
	select {
	case s.settling <- struct{}{}:
		return func() { <-s.settling }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// checkGap returns an error when next is not in the log. What the log held may be older than what the table
// told: then another process has read on in between, and the log is asked again.
func (s *Source) checkGap(ctx context.Context, t *table, l freshet.Lane, p partition, next int64,
	log span) error {
	if next > log.end {
		again, err := s.spans(ctx, []partition{p}, false)
		if err != nil {
			return err
		}
		log = again[p]
	}
	if next < log.first || next > log.end {
		return gapError(t.name, l, next, log.first, log.end)
	}
	return nil
}

// begin decides where partitions start that the table does not know, and records it.
func (s *Source) begin(ctx context.Context, t *table, unknown []partition) (freshet.Progress, error) {
	t.setup.Lock()
	defer t.setup.Unlock()
	starts, err := s.findStarts(ctx, t, unknown)
	if err != nil {
		return nil, err
	}
	if starts, err = s.down.Start(ctx, t.name, starts); err != nil || t.exists {
		return starts, err
	}
	if t.starts == nil {
		t.starts = freshet.Progress{}
	}
	maps.Copy(t.starts, starts)
	return maps.Clone(t.starts), nil
}

// findStarts decides where partitions start that the table does not know. A topic that the table does not know
// at all starts as a whole, also partitions that are not ours, and so do all topics that are there when the
// table hears of this pipeline for the first time: whoever takes those on then finds the table to know them,
// and would take them for ones that were added later. t.setup is held.
func (s *Source) findStarts(ctx context.Context, t *table, unknown []partition) (freshet.Progress, error) {
	known, err := s.knows(ctx, t)
	if err != nil {
		return nil, err
	}
	at, err := s.startTime(ctx, t, known)
	if err != nil {
		return nil, err
	}
	topics := byTopic(unknown)
	if !known {
		others, err := s.openedWith(ctx, t)
		if err != nil {
			return nil, err
		}
		for _, name := range others {
			if _, ours := topics[name]; !ours {
				topics[name] = nil
			}
		}
	}
	starts := freshet.Progress{}
	for name, ns := range topics {
		parts := make([]partition, len(ns))
		for i, n := range ns {
			parts[i] = partition{name, n}
		}
		later, err := s.appearedLater(ctx, t, name, parts, known)
		if err != nil {
			return nil, err
		}
		if !later {
			parts = s.topic(name).partitions()
		}
		if err := s.startsOf(ctx, t, parts, at, later, starts); err != nil {
			return nil, err
		}
	}
	return starts, nil
}

// knows reports whether the table, or what is to be recorded in it, has progress of this pipeline.
func (s *Source) knows(ctx context.Context, t *table) (bool, error) {
	if len(t.starts) > 0 {
		return true, nil
	}
	_, known, err := s.down.Since(ctx, t.name)
	return known, err
}

// openedWith returns the topics of the table that were there when we opened, and still are.
func (s *Source) openedWith(ctx context.Context, t *table) ([]string, error) {
	var names []string
	for name := range s.atOpen {
		if s.route(name) == t.name {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	var found map[string]topic
	err := s.waitOut(ctx, "describe topics", func() (err error) {
		found, err = s.describe(ctx, names)
		return err
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.known, found)
	return slices.Collect(maps.Keys(found)), nil
}

// startTime returns the time at which topics begin that have not appeared later; the zero time: none. Latest
// means the end as it was when the pipeline first started. For a table that does not know it yet that is now,
// unless topics have tables of their own: a topic that was made, or had its first record, while we were
// stopped has none yet, but the others tell when we first started.
func (s *Source) startTime(ctx context.Context, t *table, known bool) (time.Time, error) {
	if known || !s.o.Start.Latest || s.topics.Pattern == "" {
		return s.o.Start.Time, nil
	}
	if s.since == nil {
		first, seen := time.Time{}, map[string]bool{t.name: true}
		for name := range s.atOpen {
			table := s.route(name)
			if seen[table] {
				continue
			}
			seen[table] = true
			at, _, err := s.down.Since(ctx, table)
			if err != nil {
				return time.Time{}, err
			}
			if !at.IsZero() && (first.IsZero() || at.Before(first)) {
				first = at
			}
		}
		s.since = &first
	}
	return *s.since, nil
}

// appearedLater reports whether the topic was there before these partitions were: whether the table, or what
// is to be recorded in it, knows other partitions of the topic, or the topic itself was made while we ran, or
// while we were stopped: the table knows us, and the topic was not named but matches.
func (s *Source) appearedLater(ctx context.Context, t *table, name string, parts []partition, known bool) (
	bool, error) {
	if known && s.topics.Pattern != "" {
		return true, nil
	}
	tp := s.topic(name)
	for l := range t.starts {
		if l.Origin == name {
			return true, nil
		}
	}
	s.mu.Lock()
	later := s.atOpen != nil && !s.atOpen[name]
	var others []freshet.Lane
	for _, p := range tp.partitions() {
		switch l := s.lanes[p]; {
		case l != nil && l.table == t:
			later = true
		case !slices.Contains(parts, p):
			others = append(others, laneOf(tp, p.n))
		}
	}
	s.mu.Unlock()
	if later || !known || len(others) == 0 {
		return later, nil
	}
	found, err := s.down.Resume(ctx, t.name, others)
	return len(found) > 0, err
}

// startsOf adds to starts the seq before the first of each partition: of those that have not appeared later
// the first at the time, if that is set.
func (s *Source) startsOf(ctx context.Context, t *table, parts []partition, at time.Time, later bool,
	starts freshet.Progress) error {
	if err := s.checkForgotten(ctx, t, parts); err != nil {
		return err
	}
	log, err := s.spans(ctx, parts, false)
	if err != nil {
		return err
	}
	var timed map[partition]int64
	if !at.IsZero() && !later {
		if timed, err = s.list(ctx, parts, at.UnixMilli(), false); err != nil {
			return err
		}
	}
	for i, l := range s.lanesOf(parts) {
		p := parts[i]
		first := log[p].first
		explicit, ok := s.explicit(p)
		at, isTimed := timed[p]
		switch {
		case ok && (explicit < log[p].first || explicit > log[p].end):
			return outsideError(l, explicit, log[p].first, log[p].end)
		case ok:
			first = explicit
		case later:
		case isTimed && at >= 0:
			first = at
		case isTimed, s.o.Start.Latest:
			first = log[p].end
		}
		if s.o.Whole && !ok && first > 0 && first == log[p].first {
			return beginningError(t.name, l, first)
		}
		starts[l] = first - 1
	}
	return nil
}

func (s *Source) explicit(p partition) (int64, bool) {
	offset, ok := s.o.Start.Offsets[p.topic][p.n]
	return offset, ok
}

// checkForgotten returns an error when the group has read of a partition that the table does not know. What
// was committed by others than us counts too: whether it was us cannot be told. But the table is asked again:
// another process of ours may have started the partition and read of it since it was asked first.
func (s *Source) checkForgotten(ctx context.Context, t *table, parts []partition) error {
	if s.o.ForgetGroup {
		return nil
	}
	committed, err := s.committed(ctx, parts)
	if err != nil {
		return err
	}
	suspects := map[freshet.Lane]int64{}
	for i, l := range s.lanesOf(parts) {
		_, ok := s.explicit(parts[i])
		if next := committed[parts[i]]; next > 0 && !ok {
			suspects[l] = next
		}
	}
	if len(suspects) == 0 {
		return nil
	}
	known, err := s.down.Resume(ctx, t.name, slices.Collect(maps.Keys(suspects)))
	if err != nil {
		return err
	}
	for l, next := range suspects {
		if _, ok := known[l]; !ok {
			return s.forgottenError(t.name, l, next)
		}
	}
	return nil
}
