package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/freshet-io/freshet"
)

// A table of which nothing changes holds the log back on the server, since nothing is confirmed that not every table holds. Where cuts
// are recorded they say that it holds as much as the others (Batch.Level). Else, and where none of the tables changes, it gets batches
// without rows, once the log has gone on by this much, and not more often than that.
const (
	levelBytes = 16 << 20
	levelEvery = time.Minute
)

// late reports whether a feed of which nothing waits is to be brought to the position: the table does not hold so many bytes of the log
// before that. It is not done more often than every levelEvery, but where every bit of the log counts.
func (s *Source) late(f *feed, behind int64) bool {
	least := int64(s.position) - behind
	if f.after >= least || behind > 0 && time.Since(f.level) < levelEvery {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.durable[f.name] < least
}

// Ack lets the server forget what all tables hold, which it is told at once.
func (s *Source) Ack(_ context.Context, table string, progress freshet.Progress) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, known := s.durable[table]
	if !known { // it was asked for, and is not read
		return nil
	}
	for lane, seq := range progress {
		if lane.Name == logLane {
			s.durable[table] = max(s.durable[table], seq)
		}
	}
	confirmed := s.confirmed.Load()
	if s.holding > 0 && (uint64(was) > confirmed || s.durable[table] == was) {
		return nil
	}
	if s.holding--; s.holding > 0 { // others are where it was
		return nil
	}
	least := s.durable[table]
	for _, seq := range s.durable {
		least = min(least, seq)
	}
	confirmed = max(confirmed, uint64(least))
	s.confirmed.Store(confirmed)
	s.holding = 0
	for _, seq := range s.durable {
		if uint64(seq) <= confirmed {
			s.holding++
		}
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
		return s.reread(ctx, f)
	}
	return nil
}

// reread begins to read the feed's rows again, from where its table stands.
func (s *Source) reread(ctx context.Context, f *feed) error {
	s.forget(f)
	f.skip, s.again = true, true
	return s.locate(ctx, f, s.position, false)
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
	for _, b := range s.ready {
		b.Level = false
	}
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
