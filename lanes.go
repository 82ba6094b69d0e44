package freshet

import (
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// lanes knows, of each lane of each table, up to where its batches have been written. Only the write
// goroutine uses it.
type lanes map[laneKey]*laneState

type laneKey struct {
	table string
	lane  Lane
}

type laneState struct {
	pos   int64 // the last seq written, or resumed
	owned bool  // false: its batches are dropped until it is resumed
	fresh bool  // resumed, and no batch of it has fitted since: batches that were read before may leave a gap
	dirty bool  // something of it is written and not sealed
	open  bool  // pos is unfinished: the lane's next batch has more of it
	left  bool  // it is another process's
	since int64 // so many items of the queue were written when it was resumed
}

// level says that all tables which read a lane have all up to a seq, as the source said.
type level struct {
	seq int64
	at  int64 // with which item of the queue it said so
}

// own lets the lane go on from pos, once so many items of the queue are written.
func (l lanes) own(table string, lane Lane, pos, since int64) {
	l[laneKey{table, lane}] = &laneState{pos: pos, owned: true, fresh: true, since: since}
}

// quiet are the stretches in which nothing came of lanes that are level: of those that wait to be sealed, or of the others.
func (l lanes) quiet(levels map[Lane]level, dirty bool) (all []Quiet) {
	if len(levels) == 0 {
		return nil
	}
	for key, s := range l {
		to, is := levels[key.lane]
		if is && s.owned && !s.open && s.dirty == dirty && s.since < to.at && s.pos < to.seq {
			all = append(all, Quiet{Table: key.table, Lane: key.lane, After: s.pos, Last: to.seq})
		}
	}
	return all
}

// owned reports whether one of the lanes is ours.
func (l lanes) owned(table string, of []Lane) bool {
	return slices.ContainsFunc(of, func(lane Lane) bool {
		s := l[laneKey{table, lane}]
		return s != nil && s.owned
	})
}

// giveUp drops batches of the lanes from now on. It reports whether something of them waits to be sealed.
func (l lanes) giveUp(table string, of []Lane) (dirty bool) {
	for _, lane := range of {
		s := l[laneKey{table, lane}]
		if s == nil {
			s = &laneState{}
			l[laneKey{table, lane}] = s
		}
		dirty = dirty || s.dirty
		s.owned, s.open = false, false
	}
	return dirty
}

// giveUpTable is giveUp for all lanes of the table, of which nothing waits to be sealed any more. It returns them.
func (l lanes) giveUpTable(table string) (keys []laneKey) {
	for key, s := range l {
		if key.table == table {
			s.owned, s.dirty, s.open = false, false, false
			keys = append(keys, key)
		}
	}
	return keys
}

// ours are the lanes that no other process has taken, by table.
func (l lanes) ours() map[string][]Lane {
	all := map[string][]Lane{}
	for key, s := range l {
		if !s.left {
			all[key.table] = append(all[key.table], key.lane)
		}
	}
	return all
}

// fits reports whether the batch adjoins what is there of its lane, and has more.
func (l lanes) fits(b *Batch) bool {
	s := l[laneKey{b.Table, b.Lane}]
	return s != nil && s.owned && (s.goesOn(b) || b.After <= s.pos && b.Last > s.pos)
}

// goesOn reports whether the batch has more of the seq that is unfinished.
func (s *laneState) goesOn(b *Batch) bool { return s.open && b.After == s.pos && b.Last == s.pos }

// torn reports whether the lane stands within a seq of which the batch is not the rest: that is from before the lane was
// read again, and nothing brings it any more.
func (l lanes) torn(b *Batch) bool {
	s := l[laneKey{b.Table, b.Lane}]
	return s != nil && s.open && !s.goesOn(b)
}

// within reports whether one of the lanes stands within a seq.
func (l lanes) within(table string, of []Lane) bool {
	return slices.ContainsFunc(of, func(lane Lane) bool {
		s := l[laneKey{table, lane}]
		return s != nil && s.open
	})
}

// unfinished are the tables with a lane that stands within a seq.
func (l lanes) unfinished() map[string]bool {
	tables := map[string]bool{}
	for key, s := range l {
		if s.open {
			tables[key.table] = true
		}
	}
	return tables
}

// clean says that everything is sealed, and returns where the lanes are of which there was something, by table.
func (l lanes) clean() map[string]Progress {
	reach := map[string]Progress{}
	for key, s := range l {
		if s.dirty {
			if reach[key.table] == nil {
				reach[key.table] = Progress{}
			}
			reach[key.table][key.lane] = s.pos
		}
		s.dirty = false
	}
	return reach
}

// leave says that the lanes, which were given up, are another process's now.
func (l lanes) leave(table string, of []Lane) []laneKey {
	var keys []laneKey
	for _, lane := range of {
		key := laneKey{table, lane}
		l[key].left = true
		keys = append(keys, key)
	}
	return keys
}

// admit cuts from the batch what the lane is past already, and moves the lane on to its end. It returns false
// when nothing of the batch is wanted. Errors: a gap that no rewind explains, or a lane that was never
// resumed.
func (l lanes) admit(b *Batch) (bool, error) {
	s := l[laneKey{b.Table, b.Lane}]
	switch {
	case s == nil:
		return false, invariant("table %s: the source delivers %s, which it never resumed", b.Table, b.Lane)
	case s.owned && s.goesOn(b):
		s.open = b.Unfinished
		return true, nil
	case !s.owned || b.Last <= s.pos:
		return false, nil
	case b.After > s.pos && s.fresh:
		s.since = math.MaxInt64 // it lacks rows until it is resumed once more, whatever is said of all tables
		return false, nil
	case b.After > s.pos:
		return false, invariant("table %s: after %s the source delivers what follows %s: records are missing",
			b.Table, b.Lane.Position(s.pos), b.Lane.Position(b.After))
	}
	if b.After < s.pos {
		b.Cut(s.pos)
	}
	s.pos, s.fresh, s.dirty, s.open = b.Last, false, true, b.Unfinished
	return true, nil
}

// Cut drops everything up to and with seq, which is in (After, Last). The batch then begins behind it.
func (b *Batch) Cut(seq int64) {
	b.After = seq
	b.Rejects = slices.DeleteFunc(b.Rejects, func(r Reject) bool { return r.Seq <= seq })
	if b.Rows == nil {
		return
	}
	i, _ := slices.BinarySearch(b.Seqs, seq+1)
	b.Slice(i, len(b.Seqs))
}

// until drops everything past seq.
func (b *Batch) until(seq int64) {
	b.Last = seq
	b.Rejects = slices.DeleteFunc(b.Rejects, func(r Reject) bool { return r.Seq > seq })
	if b.Rows == nil {
		return
	}
	i, _ := slices.BinarySearch(b.Seqs, seq+1)
	b.Slice(0, i)
}

// Slice leaves the rows [from, to), and all rejects.
func (b *Batch) Slice(from, to int) {
	whole := b.Rows
	b.Rows = whole.NewSlice(int64(from), int64(to))
	whole.Release()
	b.Seqs = b.Seqs[from:to]
	b.Unsent = b.Unsent.Take(from, to)
	if b.Kinds != nil {
		b.Kinds = b.Kinds[from:to]
	}
	if b.Stamps != nil {
		b.Stamps = b.Stamps[from:to]
	}
	if b.Places != nil {
		b.Places = b.Places[from:to]
	}
	if b.Records != nil {
		b.Records = b.Records[from:to]
	}
	if b.Covered != nil {
		b.Covered = b.Covered[from:to]
	}
}

// Thin leaves some rows: some has their columns, or is nil when none is left, and spans yields where they are, [from, to), in
// order. It takes some over, and releases the rows that the batch had. Rejects stay.
func (b *Batch) Thin(some arrow.RecordBatch, spans iter.Seq2[int, int]) {
	b.Rows.Release()
	b.Rows = some
	b.Seqs = compact(b.Seqs, spans)
	b.Kinds = compact(b.Kinds, spans)
	b.Stamps = compact(b.Stamps, spans)
	b.Places = compact(b.Places, spans)
	b.Records = compact(b.Records, spans)
	b.Covered = compact(b.Covered, spans)
	b.Unsent = b.Unsent.in(spans)
}

// compact moves the rows of the spans, which ascend, to the front.
func compact[T any](rows []T, spans iter.Seq2[int, int]) []T {
	if rows == nil {
		return nil
	}
	n := 0
	for from, to := range spans {
		n += copy(rows[n:], rows[from:to])
	}
	clear(rows[n:])
	return rows[:n]
}

// drop releases the batch, which may be nil.
func (b *Batch) drop() {
	if b != nil {
		b.Release()
	}
}

func invariant(format string, args ...any) error {
	return &Error{Code: CodeInternal, Class: ClassFailure, Msg: fmt.Sprintf(format, args...),
		Fix: "this is a fault of ours: please report it; nothing wrong was committed"}
}
