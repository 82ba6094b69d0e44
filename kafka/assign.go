package kafka

import (
	"context"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/freshet-io/freshet"
)

// onAssigned hears that the group has decided, before onOffsets is asked for the partitions that are new.
func (s *Source) onAssigned(_ context.Context, _ *kgo.Client, added map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joined = true
	s.recovered(s.session())
	for _, ns := range added {
		s.taking = s.taking || len(ns) > 0
	}
	s.wakeLocked()
}

// onOffsets returns where the partitions that are new to us begin. What the group has committed is not looked
// at.
func (s *Source) onOffsets(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (
	map[string]map[int32]kgo.Offset, error) {
	select {
	case <-s.ready:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	var parts []partition
	for name, ns := range offsets {
		for n := range ns {
			parts = append(parts, partition{name, n})
		}
	}
	done, err := s.alone(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	lanes, err := s.take(ctx, parts)
	if err != nil {
		if ctx.Err() == nil && s.life.Err() == nil {
			s.fail(err)
			return nil, nil
		}
		return nil, err
	}
	return s.beginAt(lanes), nil
}

// takeByHand takes on Options.Partitions.
func (s *Source) takeByHand(ctx context.Context) error {
	var parts []partition
	for name, ns := range s.o.Partitions {
		t := s.topic(name)
		if t.name == "" {
			return s.noTopicError(name, s.topics.Names)
		}
		for _, n := range ns {
			if _, ok := t.leaders[n]; !ok {
				return s.noTopicError(name+"["+strconv.Itoa(int(n))+"]", nil)
			}
			parts = append(parts, partition{name, n})
		}
	}
	done, err := s.alone(ctx)
	if err != nil {
		return err
	}
	defer done()
	lanes, err := s.take(ctx, parts)
	if err != nil {
		return err
	}
	begin := s.beginAt(lanes)
	s.mu.Lock()
	s.joined = true
	s.mu.Unlock()
	s.client.AddConsumePartitions(begin)
	return nil
}

// beginAt makes the lanes ours, and returns where the client is to fetch from.
func (s *Source) beginAt(lanes []*lane) map[string]map[int32]kgo.Offset {
	begin := map[string]map[int32]kgo.Offset{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range lanes {
		s.ownLocked(l)
		s.pauseDone(l)
		if begin[l.topic] == nil {
			begin[l.topic] = map[int32]kgo.Offset{}
		}
		begin[l.topic][l.n] = kgo.NewOffset().At(l.next).WithEpoch(-1)
	}
	s.taking = false
	s.wakeLocked()
	return begin
}

// ownLocked makes the lane the one that its partition is read by. s.mu is held.
func (s *Source) ownLocked(l *lane) {
	if old := s.lanes[l.partition]; old != nil {
		old.gone.Store(true)
	}
	s.lanes[l.partition] = l
	s.lag(l)
}

// pauseDone has nothing fetched of a bounded lane that is at its end, and something of one that is not.
func (s *Source) pauseDone(l *lane) {
	if !s.o.Bounded {
		return
	}
	only := map[string][]int32{l.topic: {l.n}}
	if l.done() {
		s.client.PauseFetchPartitions(only)
	} else {
		s.client.ResumeFetchPartitions(only)
	}
}

// onRevoked has what was read of the lanes committed before another process reads on. It takes at most half
// of the time after which the group would take us for dead.
func (s *Source) onRevoked(ctx context.Context, _ *kgo.Client, lost map[string][]int32) {
	dropped := s.dropLanes(lost)
	if s.closing.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.SessionTimeout/2)
	defer cancel()
	stop := context.AfterFunc(s.life, cancel)
	defer stop()
	for table, lanes := range dropped {
		if err := s.down.Release(ctx, table, lanes); err != nil && s.life.Err() == nil {
			s.log.Warn("partitions were given up before what was read of them was committed",
				"table", table, "error", err)
		}
	}
}

// onLost forgets lanes that have another owner already.
func (s *Source) onLost(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
	if len(s.dropLanes(lost)) > 0 && !s.closing.Load() {
		s.log.Warn("the group took its partitions away, joining again", "group", s.o.Group)
	}
}

// dropLanes makes lanes no longer ours: from now on Next returns nothing of them. It returns them by table.
func (s *Source) dropLanes(lost map[string][]int32) map[string][]freshet.Lane {
	dropped := map[string][]freshet.Lane{}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, ns := range lost {
		for _, n := range ns {
			p := partition{name, n}
			if l := s.lanes[p]; l != nil {
				l.gone.Store(true)
				delete(s.lanes, p)
				delete(s.ackable, p)
				s.forgetLag(l)
				dropped[l.table.name] = append(dropped[l.table.name], l.Lane)
			}
		}
	}
	s.taking = false
	s.wakeLocked()
	return dropped
}
