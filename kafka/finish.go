package kafka

import (
	"context"
	"time"

	"github.com/freshet-io/freshet"
)

// askOthers is how often a bounded source that is through looks whether other processes are.
const askOthers = 500 * time.Millisecond

// finish passes the end on when everything is read up to where the logs ended at Open: by us, and as far as
// the partitions are others', by them. A process that is through while another, which was to read the rest,
// goes away gets that rest.
func (r *reader) finish(quiet bool) {
	epoch := r.epoch.Load()
	if r.sentEnd == epoch || !r.settled() {
		return
	}
	if left := r.unread(); len(left) > 0 {
		if quiet {
			r.passHoles(left)
		}
		return
	}
	if len(r.sampling) > 0 {
		for t := range r.sampling {
			if t.records > 0 {
				return
			}
		}
	}
	if time.Since(r.asked) < askOthers {
		return
	}
	through, err := r.othersThrough(r.life)
	if err != nil {
		if r.life.Err() == nil {
			r.fail(err)
		}
		return
	}
	r.asked = time.Now()
	if through {
		r.asked = time.Time{}
		r.sentEnd = epoch
		done := make(chan struct{})
		close(done)
		select {
		case r.queue <- &job{epoch: epoch, done: done}:
		case <-r.life.Done():
		}
	}
}

// settled reports whether we know which lanes are ours.
func (r *reader) settled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.joined && !r.taking && len(r.seeks) == 0 && len(r.rewinds) == 0
}

// unread returns our lanes that are not at their end, among them those that are about to be read again.
func (r *reader) unread() []*lane {
	r.mu.Lock()
	defer r.mu.Unlock()
	var left []*lane
	for _, l := range r.lanes {
		if l.gone.Load() || !l.done() {
			left = append(left, l)
		}
	}
	return left
}

// othersThrough reports whether the tables hold everything of the partitions that are not ours.
func (r *reader) othersThrough(ctx context.Context) (bool, error) {
	others := map[string]map[freshet.Lane]span{}
	r.mu.Lock()
	for p, log := range r.ends {
		if r.lanes[p] == nil && r.wanted(p) {
			table := r.route(p.topic)
			if others[table] == nil {
				others[table] = map[freshet.Lane]span{}
			}
			others[table][laneOf(r.known[p.topic], p.n)] = log
		}
	}
	r.mu.Unlock()
	for table, lanes := range others {
		var asked []freshet.Lane
		for l := range lanes {
			asked = append(asked, l)
		}
		found, err := r.down.Resume(ctx, table, asked)
		if err != nil {
			return false, err
		}
		for l, log := range lanes {
			seq, ok := found[l]
			if log.end > log.first && (!ok || seq+1 < log.end) {
				return false, nil
			}
		}
	}
	return true, nil
}

// wanted reports whether the partition is to be read at all: all are, unless they were chosen by hand.
func (r *reader) wanted(p partition) bool {
	if len(r.o.Partitions) == 0 {
		return true
	}
	for _, n := range r.o.Partitions[p.topic] {
		if n == p.n {
			return true
		}
	}
	return false
}
