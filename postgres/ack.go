package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/freshet-io/freshet"
)

// A table of which nothing changes holds the log back on the server, since nothing is confirmed that not every table holds. So
// it gets batches without rows, once the log has gone on by this much, and not more often than that.
const (
	levelBytes = 16 << 20
	levelEvery = time.Minute
)

// Ack lets the server forget what all tables hold, which it is told at once.
func (s *Source) Ack(_ context.Context, table string, progress freshet.Progress) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for lane, seq := range progress {
		if lane.Name == logLane {
			s.durable[table] = max(s.durable[table], seq)
		}
	}
	least := s.durable[table]
	for _, seq := range s.durable {
		least = min(least, seq)
	}
	if uint64(least) > s.confirmed.Load() {
		s.confirmed.Store(uint64(least))
	}
	return nil
}

// Rewind has the table's rows read again from where the table stands. The present transaction is brought to its end for the
// other tables first; then the stream begins anew.
func (s *Source) Rewind(ctx context.Context, table string) error {
	for _, f := range s.order {
		if f.name != table {
			continue
		}
		s.forget(f)
		f.skip, s.again = true, true
		return s.locate(ctx, f, s.position, false)
	}
	return nil
}

// forget drops what was read of a table and not returned.
func (s *Source) forget(f *feed) {
	f.drop()
	s.history.reopen(f)
	s.ready = slices.DeleteFunc(s.ready, func(b *freshet.Batch) bool {
		if b.Table == f.name {
			b.Release()
		}
		return b.Table == f.name
	})
	if n := len(s.ready); n > 0 && s.moment == nil {
		s.ready[n-1].More = false
	}
}

// Close ends the stream; the server hears what is confirmed.
func (s *Source) Close(ctx context.Context) error {
	for _, b := range s.ready {
		b.Release()
	}
	s.ready = nil
	s.history.stop()
	for _, f := range s.order {
		f.drop()
	}
	if s.stream != nil {
		if s.moment != nil {
			s.stream.release(arrival{transaction: s.moment.transaction, size: s.size})
			s.moment = nil
		}
		s.hangUp()
	}
	if s.unwatch != nil {
		s.unwatch()
	}
	if s.catalog != nil {
		return s.catalog.Close(ctx)
	}
	return nil
}
