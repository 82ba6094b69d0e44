package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// A column that is added to a table has a value in the rows that are there: its default, which the server does not write into
// them, or what it wrote as it made the table anew. The log tells of neither. So the rows are read again, as those of a history
// are, in a lane of the column's own, which begins before the table downstream has the column:
//
//	the log      changes of all rows ──────────────────────────▶  none is left out: the rows are downstream already
//	the fill      chunk at its watermark, as updates ─ chunk ─▶   behind all that the stream returned, before what it does not show
//
// What of the log a chunk shows and comes behind it all the same, since it became visible out of order, is returned again in order
// up to what the chunk has.

// alike reports whether rows of the feed's table have no key, and are told apart by all of their columns.
func (s *Source) alike(f *feed) bool {
	key := s.Key(f.name)
	return s.o.Keyed && s.o.Alike && key != nil && len(key) == 0
}

// loads are all that is being read of the feed's table: its history, and columns that were added.
func (f *feed) loads() []*load {
	all := slices.Clone(f.fills)
	if f.load != nil {
		all = append(all, f.load)
	}
	return all
}

// reopen has what is read of the feed's table begin anew where the table downstream has it, also what was returned whole.
func (h *history) reopen(f *feed) {
	for _, l := range f.loads() {
		l.reset()
	}
	for _, l := range f.read {
		f.fills = append(f.fills, l)
		h.loads = append(h.loads, l)
	}
	f.read = nil
	if f.load == nil && !h.s.o.History.Skip {
		h.add(f, f.whose)
	}
}

// untouched reports whether nothing of the table was read yet: what is read has all columns then.
func (l *load) untouched() bool { return l != nil && l.done <= 0 && len(l.windows) == 0 }

// laneOf is the lane of the history of a table.
func (h *history) laneOf(f *feed, oid uint32) freshet.Lane {
	return freshet.Lane{Origin: f.lane.Origin, OriginID: f.lane.OriginID, Name: fmt.Sprint(oid)}
}

// fillNumber is what the lane of a column has behind the name of that of the history: so it is longer than that of any table.
func fillNumber(column int) string { return fmt.Sprintf("%06d", column) }

// addFill adds the reading of a column, which is the so manieth that the table ever had; nil: it is there already.
func (h *history) addFill(f *feed, oid uint32, number int) *load {
	lane := h.laneOf(f, oid)
	lane.Name += fillNumber(number)
	if slices.ContainsFunc(f.fills, func(l *load) bool { return l.lane == lane }) {
		return nil
	}
	l := &load{feed: f, oid: oid, lane: lane, fill: true, rows: min(firstRows, h.s.o.History.ChunkRows), hidden: map[uint32]pgoutput.LSN{}}
	f.fills = append(f.fills, l)
	h.loads = append(h.loads, l)
	return l
}

// addFills adds the reading of columns that may have begun in a process before.
func (h *history) addFills(f *feed, t *Table) {
	for _, c := range t.Columns {
		if c.Filled && len(h.s.Key(f.name)) > 0 && !h.s.o.History.NoFill {
			h.addFill(f, t.OID, c.Number)
		}
	}
}

// fill begins to read the rows again for columns that are about to be added to the table downstream, which has rows without them.
func (s *Source) fill(ctx context.Context, f *feed, added []string) error {
	if len(added) == 0 || s.o.History.Skip || s.o.History.NoFill || f.load.untouched() || len(s.Key(f.name)) == 0 {
		return nil
	}
	oid, number, err := s.filled(ctx, f, added)
	if err != nil || number == 0 {
		return err
	}
	l := s.history.addFill(f, oid, number)
	if l == nil {
		return nil
	}
	s.o.Log.Info("rows are read again for new columns", "table", f.sourceName(), "columns", strings.Join(added, ", "))
	return s.beginLoad(ctx, l, 0)
}

// filled is the last of these columns that has values in rows from before it was added, and the table that it is of; 0: there is
// none. One that is gone again needs none.
func (s *Source) filled(ctx context.Context, f *feed, columns []string) (oid uint32, number int, err error) {
	of, err := s.lookUp(ctx, f.sourceName())
	if of == nil || err != nil {
		return 0, 0, err
	}
	for _, c := range of.Columns {
		if c.Filled && slices.Contains(columns, columnName(c.Name)) {
			oid, number = of.OID, max(number, c.Number)
		}
	}
	return oid, number, nil
}

// precede returns what comes before the rows of the first window: of a fill, all that the stream has brought; of the history of a
// table that was made in the place of another, that the rows of that one are gone.
func (h *history) precede(w *window) error {
	l := w.load
	if !l.fill && l.done != clearSeq {
		return nil
	}
	h.s.level(l.feed)
	if l.fill {
		return nil
	}
	b, err := h.clear(w)
	switch {
	case err != nil:
		return err
	case l.again:
		w.begun, w.place = true, 1
	default:
		l.done = clearSeq + 1
	}
	h.s.ready = append(h.s.ready, b)
	return nil
}

// clear is the batch that says that the rows of a table are gone in whose place another was made.
func (h *history) clear(w *window) (*freshet.Batch, error) {
	const how = "dropped and made anew"
	l := w.load
	b := l.batch(clearSeq, clearSeq+1)
	behind, first := l.feed.state(1)
	b.Behind = behind
	policy := h.s.policies(l.feed).Truncate
	if l.again { // they come again with this chunk
		policy, b.Last, b.Unfinished = Apply, w.seq, true
	}
	switch policy {
	case Fail:
		return nil, l.feed.emptied(how, l.feed.lane.Position(l.feed.after))
	case Keep:
		why := l.feed.stay(how)
		change := freshet.Change{Kind: freshet.Truncate, Stamp: freshet.Stamp{Ordinal: first, Committed: w.at}, Behind: behind}
		b.Rejects = []freshet.Reject{{Seq: b.Last, Code: why.Code, Message: why.Error(), Step: "decode",
			Record: freshet.Record{Raw: []byte(l.feed.sourceName() + " was " + how), Headers: change.Headers(), TimeKind: -1}}}
		return b, nil
	}
	r, err := newRows(h.s.types, &l.table.Table, l.schema)
	if err != nil {
		return nil, err
	}
	for i := range l.table.Columns {
		r.unsent(i)
	}
	r.end()
	b.Rows, b.Unsent = r.take()
	b.Kinds, b.Seqs, b.Places = []freshet.Kind{freshet.Truncate}, []int64{b.Last}, []int32{0}
	b.Stamps = []freshet.Stamp{{Ordinal: first, Committed: w.at}}
	return b, nil
}
