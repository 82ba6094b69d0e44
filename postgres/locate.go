package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// appear begins to read a table: where it stands downstream, or else at start, with its history. It is late when the log may
// not tell of all that transactions do which have begun. After an error it may be called again.
func (s *Source) appear(ctx context.Context, t *Table, start pgoutput.LSN, late bool) (*feed, error) {
	f := s.coming[t.String()]
	if f == nil || f.whose != t.OID {
		var err error
		if f, err = s.newFeed(t); err != nil {
			return nil, err
		}
	}
	if err := s.locate(ctx, f, start, late); err != nil {
		return nil, err
	}
	if err := s.stayed(ctx, f, t.OID); err != nil {
		return nil, err
	}
	delete(s.coming, t.String())
	s.feeds[t.String()] = f
	s.order = s.order[:0]
	for _, table := range slices.Sorted(maps.Keys(s.feeds)) {
		s.order = append(s.order, s.feeds[table])
	}
	return f, nil
}

// newFeed makes the feed of a table that is about to appear.
func (s *Source) newFeed(t *Table) (*feed, error) {
	f := &feed{name: s.o.Table(t.Schema, t.Name), of: [2]string{t.Schema, t.Name}, whose: t.OID, lane: s.server.lane(), level: time.Now()}
	for other, of := range s.feeds {
		if of.name == f.name {
			return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: t.String(),
				Msg: fmt.Sprintf("its rows go to the table %s, as those of %s do", f.name, other),
				Fix: "let {schema} and {table} stand in the name of the target's table"}
		}
	}
	if former := s.coming[t.String()]; former != nil {
		for _, l := range former.loads() {
			s.history.remove(l)
		}
	}
	s.coming[t.String()] = f
	if !s.o.History.Skip {
		s.history.add(f, t.OID)
		s.history.addFills(f, t)
	}
	return f, nil
}

// other takes that the log tells of a table of the feed's name that is not the one whose history is read: it was made in the
// place of that; or it is one from before, whose last changes are still to come.
func (s *Source) other(ctx context.Context, f *feed, oid uint32) error {
	if !s.o.History.Skip && !f.loading(oid) {
		lane := s.history.laneOf(f, oid)
		p, err := s.down.Resume(ctx, f.name, []freshet.Lane{lane})
		if err != nil {
			return err
		}
		if _, former := p[lane]; former {
			return nil
		}
	}
	return s.remade(ctx, f, oid, 0)
}

// loading reports whether the history of this table is being read.
func (f *feed) loading(oid uint32) bool { return f.load != nil && f.load.oid == oid }

// remade begins the history of a table that was made under the name of one that is gone: at clearSeq, or at 0 where the log tells
// that the rows of that one are gone. After an error it may be called again.
func (s *Source) remade(ctx context.Context, f *feed, oid uint32, from int64) error {
	if !f.loading(oid) {
		for _, l := range f.loads() {
			s.history.remove(l)
		}
		f.read = nil
		if !s.o.History.Skip {
			s.history.add(f, oid)
			f.load.late = true
		}
	}
	if f.load != nil {
		if err := s.beginLoad(ctx, f.load, from); err != nil {
			return err
		}
	}
	if err := s.stayed(ctx, f, oid); err != nil {
		return err
	}
	f.whose = oid
	return nil
}

// beginLoad has the load go on where the table downstream has it, or else begin there.
func (s *Source) beginLoad(ctx context.Context, l *load, from int64) (err error) {
	defer func() {
		if err != nil {
			s.history.withdraw(l) // whoever was told to end tries again, and would take it for one that has begun
		}
	}()
	p, err := s.down.Resume(ctx, l.feed.name, []freshet.Lane{l.feed.lane, l.lane}) // a change log beside it may lack the newer one alone
	if err != nil {
		return err
	}
	if _, known := p[l.lane]; !known {
		if p, err = s.down.Start(ctx, l.feed.name, freshet.Progress{l.lane: from}); err != nil {
			return err
		}
	}
	return s.unfold(ctx, l, p[l.lane])
}

// unfold has the load go on behind so many chunks.
func (s *Source) unfold(ctx context.Context, l *load, done int64) error {
	if done == wholeHistory {
		s.history.remove(l)
		return nil
	}
	return l.resume(ctx, s, done)
}

// locate asks where the feed goes on, and records its starts if it has none: in the log and in its history. A table that the log
// was followed of and that has another history was made in the place of one that is gone.
func (s *Source) locate(ctx context.Context, f *feed, start pgoutput.LSN, late bool) error {
	lanes := []freshet.Lane{f.lane}
	for _, l := range f.loads() {
		lanes = append(lanes, l.lane)
	}
	p, err := s.down.Resume(ctx, f.name, lanes)
	if err != nil {
		return err
	}
	starts := freshet.Progress{}
	if _, known := p[f.lane]; !known {
		starts[f.lane] = int64(start)
		if s.o.History.Skip { // it can be loaded later, and is no other table then
			starts[s.history.laneOf(f, f.whose)] = 0
		}
	}
	if l := f.load; l != nil {
		if _, known := p[l.lane]; !known {
			starts[l.lane] = 0
			if len(starts) == 1 {
				starts[l.lane], l.late = clearSeq, true
			}
		}
		l.resumed = l.resumed || len(starts) < 2
	}
	if _, begins := starts[f.lane]; begins {
		f.begun = true
		if err := s.noteTimeline(ctx, s.server, f.name); err != nil {
			return err
		}
	}
	if len(starts) > 0 {
		begun, err := s.down.Start(ctx, f.name, starts)
		if err != nil {
			return err
		}
		maps.Copy(p, begun)
	}
	f.after = p[f.lane]
	s.mu.Lock()
	s.durable[f.name], s.holding = f.after, 0
	s.mu.Unlock()
	if l := f.load; l != nil && p[l.lane] <= 0 {
		l.late = l.late || late
	}
	for _, l := range f.loads() {
		at, known := p[l.lane]
		if !known {
			at = wholeHistory // of a column that rows never lacked
		}
		if err := s.unfold(ctx, l, at); err != nil {
			return err
		}
	}
	return s.resumeAgain(ctx, f)
}

// relocate asks anew where all tables go on, of which another copy of the pipeline may have moved any. What was read of them and not
// returned is dropped. No transaction may be under way.
func (s *Source) relocate(ctx context.Context) error {
	s.waiting, s.bytes, s.parted = 0, 0, false
	for _, f := range s.order {
		s.forget(f)
		if err := s.locate(ctx, f, s.position, false); err != nil {
			return err
		}
	}
	s.position = s.least()
	s.confirmed.Store(max(s.confirmed.Load(), uint64(s.position)))
	return nil
}

// least is what all tables have.
func (s *Source) least() pgoutput.LSN {
	least := s.order[0].after
	for _, f := range s.order {
		least = min(least, f.after)
	}
	return pgoutput.LSN(least)
}
