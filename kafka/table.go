package kafka

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
)

// table is one of the tables that topics are routed to. Its columns are known from the start (they are given,
// or the format has always the same), or inferred from the first records, which are held until then.
type table struct {
	name    string
	columns atomic.Pointer[columns] // nil until they are known
	there   atomic.Bool             // downstream has the table
	widen   sync.Mutex              // held while columns that are known are replaced

	setup  sync.Mutex // held while downstream is asked about the table; guards what follows
	asked  bool
	exists bool
	fixed  bool             // its columns do not come from records
	starts freshet.Progress // where lanes begin, to be recorded as soon as the table exists

	// The reader's.
	held      []*job    // records that wait for the columns
	records   int       // how many of them have a payload
	bytes     int64     // what they hold of inflight
	since     time.Time // when the first of them came
	inferring bool
	tried     int // records at the last inference, which found nothing
}

// columns are those of a table's rows.
type columns struct {
	decoded *arrow.Schema // those that the format decodes
	full    *arrow.Schema // and those that tell where a row came from
}

// ready asks downstream about the table, the first time. Errors: those of Downstream, a column that does not
// fit.
func (t *table) ready(ctx context.Context, s *Source) error {
	t.setup.Lock()
	defer t.setup.Unlock()
	if t.asked {
		return nil
	}
	known, err := t.ask(ctx, s)
	if err != nil {
		return err
	}
	decoded := s.o.Schema
	if decoded == nil {
		if decoded, err = s.format.Infer(nil, nil); err != nil {
			return err
		}
		if decoded != nil && known != nil {
			if decoded, err = s.format.Infer(nil, known); err != nil {
				return err
			}
		}
	}
	if decoded != nil {
		t.fixed = true
		if known == nil {
			if err := t.startWith(ctx, s); err != nil {
				return err
			}
		}
		if err := t.make(ctx, s, decoded); err != nil {
			return err
		}
	}
	t.asked = true
	return nil
}

// startWith has the starts of the topics that are there be part of the commit that makes the table. setup is
// held.
func (t *table) startWith(ctx context.Context, s *Source) error {
	starts, err := s.findStarts(ctx, t, nil)
	if err != nil || len(starts) == 0 {
		return err
	}
	_, err = s.down.Start(ctx, t.name, starts)
	return err
}

// ask returns the columns that the table fixes, less ours; nil when there is no table. setup is held.
func (t *table) ask(ctx context.Context, s *Source) (*arrow.Schema, error) {
	known, err := s.down.Schema(ctx, t.name)
	if err != nil {
		return nil, err
	}
	t.exists = known != nil
	t.there.Store(t.exists)
	return s.o.Columns.without(known)
}

// make has the table made for these columns and adopts those that it then has. setup is held.
func (t *table) make(ctx context.Context, s *Source, decoded *arrow.Schema) error {
	if err := s.o.Columns.collision(decoded); err != nil {
		return err
	}
	if err := s.down.Ensure(ctx, t.name, s.o.Columns.with(decoded)); err != nil {
		return err
	}
	known, err := t.ask(ctx, s)
	if err != nil {
		return err
	}
	t.exists = true
	t.there.Store(true)
	decoded = adopt(decoded, known)
	t.columns.Store(&columns{decoded, s.o.Columns.with(decoded)})
	return nil
}

// infer finds the table's columns from payloads, makes the table and records where its lanes start. It
// returns false when the payloads tell nothing. Lanes that another process has started elsewhere are sought
// there.
func (t *table) infer(ctx context.Context, s *Source, payloads []freshet.Payload) (bool, error) {
	done, err := s.alone(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	t.setup.Lock()
	defer t.setup.Unlock()
	known, err := t.ask(ctx, s)
	if err != nil {
		return false, err
	}
	decoded, err := s.format.Infer(payloads, known)
	if err != nil {
		return false, err
	}
	switch {
	case decoded == nil && known == nil:
		return false, nil
	case decoded == nil:
		decoded = known
	case known != nil:
		decoded = s.o.Columns.notOurs(decoded)
	}
	if err := t.make(ctx, s, decoded); err != nil {
		return false, err
	}
	if len(t.starts) > 0 {
		recorded, err := s.down.Start(ctx, t.name, t.starts)
		if err != nil {
			return false, err
		}
		t.starts = nil
		for _, l := range s.owned(t) {
			if seq, ok := recorded[l.Lane]; ok && seq+1 != l.start {
				s.seek(l, seq+1)
			}
		}
	}
	return true, nil
}

// refresh adopts the columns that the table has now. Errors: those of Downstream.
func (t *table) refresh(ctx context.Context, s *Source) error {
	t.setup.Lock()
	defer t.setup.Unlock()
	known, err := t.ask(ctx, s)
	if err != nil {
		return err
	}
	t.widen.Lock()
	defer t.widen.Unlock()
	if now := t.columns.Load(); now != nil && known != nil {
		decoded := adopt(now.decoded, known)
		if !t.fixed {
			decoded = and(decoded, known)
		}
		t.columns.Store(&columns{decoded, s.o.Columns.with(decoded)})
	}
	return nil
}

// and appends the columns of known that decoded lacks: another process has added them.
func and(decoded, known *arrow.Schema) *arrow.Schema {
	fields := decoded.Fields()
	for _, k := range known.Fields() {
		there := slices.ContainsFunc(fields, func(f arrow.Field) bool { return strings.EqualFold(f.Name, k.Name) })
		if !there {
			fields = append(fields, k)
		}
	}
	meta := decoded.Metadata()
	return arrow.NewSchema(fields, &meta)
}

// widened returns columns that also hold the new fields of those payloads that are no rejects: those that another worker has
// found meanwhile, or else new ones. It returns was when there is nothing to add.
func (t *table) widened(s *Source, was *columns, payloads []freshet.Payload) (*columns, error) {
	t.widen.Lock()
	defer t.widen.Unlock()
	if now := t.columns.Load(); now != was {
		return now, nil
	}
	decoded, err := freshet.Widen(s.format, was.decoded, payloads)
	if err != nil {
		return was, err
	}
	decoded = s.o.Columns.notOurs(decoded)
	if decoded.Equal(was.decoded) {
		return was, nil
	}
	now := &columns{decoded, s.o.Columns.with(decoded)}
	t.columns.Store(now)
	return now, nil
}

// adopt gives the columns the types that the table has fixed.
func adopt(decoded, known *arrow.Schema) *arrow.Schema {
	if known == nil {
		return decoded
	}
	fields := slices.Clone(decoded.Fields())
	for i, f := range fields {
		for _, k := range known.Fields() {
			if strings.EqualFold(k.Name, f.Name) && !arrow.TypeEqual(k.Type, f.Type) {
				fields[i].Type = k.Type
			}
		}
	}
	meta := decoded.Metadata()
	return arrow.NewSchema(fields, &meta)
}
