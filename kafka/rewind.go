package kafka

import (
	"context"
	"time"

	"github.com/freshet-io/freshet"
)

// rewindAll is the goroutine that finds out where the tables that are to be read again stand.
func (s *Source) rewindAll() {
	for {
		select {
		case <-s.life.Done():
			return
		case <-s.rewound:
		}
		s.mu.Lock()
		tables := s.rewinds
		s.rewinds = map[string]bool{}
		s.mu.Unlock()
		for name := range tables {
			if err := s.rewind(s.life, s.table(name)); err != nil && s.life.Err() == nil {
				s.fail(err)
				return
			}
		}
	}
}

func (s *Source) rewind(ctx context.Context, t *table) error {
	defer s.wake()
	done, err := s.alone(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := t.refresh(ctx, s); err != nil {
		return err
	}
	owned := s.owned(t)
	lanes := make([]freshet.Lane, len(owned))
	for i, l := range owned {
		lanes[i] = l.Lane
	}
	if len(lanes) == 0 {
		return nil
	}
	found, err := s.down.Resume(ctx, t.name, lanes)
	if err != nil {
		return err
	}
	for _, l := range owned {
		seq, ok := found[l.Lane]
		if !ok {
			return unknownError(t.name, l.Lane)
		}
		s.seek(l, seq+1)
	}
	return nil
}

// watch is the goroutine that looks whether topics are still those they were.
func (s *Source) watch() {
	tick := time.NewTicker(s.o.MetadataAge)
	defer tick.Stop()
	misses := map[string]int{}
	for {
		select {
		case <-s.life.Done():
			return
		case <-tick.C:
		case <-s.recheck:
		}
		if err := s.checkTopics(s.life, misses); err != nil && s.life.Err() == nil {
			s.fail(err)
			return
		}
		// Errors of fetches come as fast as the broker answers.
		if pause(s.life, min(time.Second, s.o.MetadataAge)) != nil {
			return
		}
	}
}

// maxMisses is how often in a row a broker may not know a topic, until the topic counts as deleted: a broker
// that has just started may know less than it will.
const maxMisses = 5

// checkTopics returns an error when a topic that we read has another id than it had, or is gone. It counts in
// misses how often a topic was not there.
func (s *Source) checkTopics(ctx context.Context, misses map[string]int) error {
	ids := map[string]string{}
	s.mu.Lock()
	for p, l := range s.lanes {
		ids[p.topic] = l.OriginID
	}
	s.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	var names []string
	for name := range ids {
		names = append(names, name)
	}
	found, err := s.describe(ctx, names)
	if err != nil {
		s.putOff("describe topics", err)
		return nil
	}
	for name, was := range ids {
		t, ok := found[name]
		switch {
		case ok && t.id() == was:
			delete(misses, name)
			s.mu.Lock()
			s.known[name] = t
			s.mu.Unlock()
		case ok:
			return remadeError(name, was, t.id())
		case s.topics.Pattern == "":
			if misses[name]++; misses[name] >= maxMisses {
				return remadeError(name, was, "")
			}
		}
	}
	return nil
}
