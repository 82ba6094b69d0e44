package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/postgres/internal/pgoutput"
)

// clearSeq is where the history of a table begins that was made in the place of another.
const clearSeq = -1

// wholeHistory is the seq of a table's history behind its last chunk: nothing of it is left to be read.
const wholeHistory = 1 << 62

// load is the history of one table: the rows that were in it before the log tells of them. Its lane bears the number of the
// table, and its seqs are the chunks that are done. Each change that the log tells of is on one side of the chunk that has, or
// is to have, its row:
//
//	key order ───────▶
//	 chunks done      │ windows: being read       │ still to be read
//	 the change is    │ the watermark sees it:    │ it is left out, and a later
//	 returned         │ left out; else returned   │ watermark must see it
//	                  │ behind the chunk's rows   │
//
// An update that moves a row from one side to the other is a delete, or an insert. Used by the goroutine that calls Next.
//
// The history of a table that was made in the place of another begins at clearSeq: the first that comes of it is that the rows
// of the other one are gone.
type load struct {
	feed    *feed
	lane    freshet.Lane
	oid     uint32
	table   *catalogTable // as the catalog has it; nil: not looked at yet
	shape   string        // of all its columns
	schema  *arrow.Schema // what the rows that are read become
	key     []keyColumn   // nil: the table is read at once
	done    int64         // chunks
	upto    bound         // of the last of these
	ended   bool          // that was the last of all
	fill    bool          // rows are read again, for a column that was added; else they are the table's history
	again   bool          // the table was loaded before, and the rows that came of that go; see again.go
	windows []*window     // by seq
	spare   []*rows       // of windows that are closed
	plan    *plan         // of the chunk behind the windows; nil: none is made
	rows    int64         // wanted of the next chunk
	read    int64         // rows up to upto
	began   time.Time
	retry   time.Time // not before then
	waits   bool      // its table is set aside, and its rows cannot be read as they are
	strikes int       // failures in a row

	late    bool // the log may not tell of all that transactions do which have begun
	resumed bool // what the log told was left out by a process before
	// ahead are the chunks behind done that a process before has planned: of several tables that the rows go to, some may hold
	// them. Changes that they show are returned for those, as Batch.Covered says.
	ahead   []chunk
	hidden  map[uint32]pgoutput.LSN // transactions with changes that were left out, not yet seen by a watermark, and their ends
	settled uint64                  // transactions that began before must have ended
	indices []int                   // of the key's columns in the rows of the log
	of      *Table                  // that indices are of
	values  [2][][]byte             // of a change: the key before, and after
	ranks   ranks                   // of keys that only the server can put in order
}

// batch is one without rows. It depends on the stream: what another process has brought since is newer than rows that were read
// before it.
func (l *load) batch(after, last int64) *freshet.Batch {
	return &freshet.Batch{Table: l.feed.name, Lane: l.lane, After: after, Last: last, ReadAt: time.Now(),
		Beside: []freshet.Place{{Lane: l.feed.lane, Seq: l.feed.after}}}
}

// mark is the name of a chunk's bookmark.
func (l *load) mark(seq int64) string { return fmt.Sprintf("%s%012d", l.marks(), seq) }

// marks is what the names of all bookmarks of the table begin with.
func (l *load) marks() string { return "history/" + l.lane.Name + "/" }

// keyNames are the names of the key's columns.
func (l *load) keyNames() []string {
	names := make([]string, len(l.key))
	for i, k := range l.key {
		names[i] = k.name
	}
	return names
}

// resume goes on behind the chunks that are done.
func (l *load) resume(ctx context.Context, s *Source, done int64) error {
	l.reset()
	l.done, l.upto, l.ended, l.read = done, nil, false, 0
	if err := l.foresee(ctx, s); err != nil || done <= 0 {
		return err
	}
	kept, err := s.down.Bookmark(ctx, l.feed.name, l.mark(done), nil)
	if err != nil {
		return err
	}
	var mark *chunkMark
	if kept == nil {
		err = fmt.Errorf("found no bookmark %s", l.mark(done))
	} else {
		mark, err = s.parseMark(l.feed, kept)
	}
	if err == nil {
		if err := s.history.lookAgain(ctx, l); err != nil {
			return err
		}
		if l.table != nil && mark.Upto != nil && !slices.Equal(mark.Key, l.keyNames()) {
			err = fmt.Errorf("it is in the order of %s, and the key of the table is %s", strings.Join(mark.Key, ", "),
				strings.Join(l.keyNames(), ", "))
		}
	}
	if err != nil {
		return &freshet.Error{Code: freshet.CodeGap, Class: freshet.ClassInput, Place: l.feed.name, Err: err,
			Msg: fmt.Sprintf("where the loading of the table goes on behind chunk %d is not known", done),
			Fix: "write to another table, which is then loaded from the beginning"}
	}
	l.upto, l.ended, l.read = mark.Upto, mark.Upto == nil, mark.Rows
	return nil
}

// foresee learns which chunks were planned behind those that are done.
func (l *load) foresee(ctx context.Context, s *Source) error {
	l.ahead = nil
	for seq := max(0, l.done) + 1; ; seq++ {
		kept, err := s.down.Bookmark(ctx, l.feed.name, l.mark(seq), nil)
		if err != nil {
			return err
		}
		if kept == nil {
			break
		}
		mark, err := s.parseMark(l.feed, kept)
		if err != nil {
			return err
		}
		l.ahead = append(l.ahead, chunk{seq: seq, upto: mark.Upto})
	}
	if len(l.ahead) == 0 {
		return nil
	}
	return s.history.lookAgain(ctx, l)
}

// reset forgets what is being read.
func (l *load) reset() {
	for _, w := range l.windows {
		w.drop()
	}
	l.windows = nil
	if l.plan != nil {
		l.plan.drop()
		l.plan = nil
	}
}

// collector is what collects the rows of a window: that of one before, which has memory of about the size that is needed, or
// a new one.
func (l *load) collector(t *typeMap) (*rows, error) {
	for len(l.spare) > 0 {
		r := l.spare[len(l.spare)-1]
		l.spare = l.spare[:len(l.spare)-1]
		if r.table == &l.table.Table && r.schema == l.schema {
			return r, nil
		}
	}
	return newRows(t, &l.table.Table, l.schema)
}

// next is the chunk behind those that are being read; ok is false when there is none.
func (l *load) next() (c chunk, ok bool) {
	c = chunk{seq: max(0, l.done) + 1, after: l.upto, rows: l.read}
	if l.ended {
		return c, false
	}
	if n := len(l.windows); n > 0 {
		last := l.windows[n-1]
		if last.upto == nil {
			return c, false
		}
		c = chunk{seq: last.seq + 1, after: last.upto, rows: last.rows}
	}
	return c, true
}

// left is what becomes of a row of a change: it is left out, or returned for tables alone that hold a chunk already.
type left struct {
	out     bool
	covered int64 // by that chunk; 0: it is for all
}

// sides says what becomes of the rows of a change: of the one before, and of the one after.
func (l *load) sides(m *pgoutput.Message, t *transaction) (before, after left) {
	old, key := l.keysOf(m)
	if m.New != nil {
		after = l.side(key, t)
		before = after
	}
	if m.Old != nil {
		before = l.side(old, t)
	}
	return before, after
}

// keysOf are the keys of the row before a change, and of the one after; nil: the log does not say it, or there is none. They last until
// the next call.
func (l *load) keysOf(m *pgoutput.Message) (before, after [][]byte) {
	if l.of != l.feed.table {
		l.find(l.feed.table)
	}
	row := func(at int, sent, known pgoutput.Tuple) [][]byte {
		l.values[at] = l.values[at][:0]
		for _, i := range l.indices {
			var v []byte
			switch {
			case i >= 0 && i < len(sent) && sent[i].Kind == pgoutput.Text:
				v = sent[i].Data
			case i >= 0 && i < len(known):
				v = known[i].Data
			}
			l.values[at] = append(l.values[at], v)
		}
		return l.values[at]
	}
	if m.New != nil {
		after = row(1, m.New, m.Old)
	}
	if m.Old != nil {
		before = row(0, m.Old, nil)
	}
	return before, after
}

// find notes where the key's columns are in the rows of the log.
func (l *load) find(t *Table) {
	l.of, l.indices = t, l.indices[:0]
	for _, k := range l.key {
		l.indices = append(l.indices, slices.IndexFunc(t.Columns, func(c Column) bool { return c.Name == k.name }))
	}
}

// side says what becomes of a change to the row of this key. If it is left out that is noted.
func (l *load) side(values [][]byte, t *transaction) left {
	if l.ended || l.upto != nil && l.within(l.done, l.upto, values) {
		return left{}
	}
	for _, w := range l.windows {
		if w.upto != nil && !l.within(w.seq, w.upto, values) {
			continue
		}
		if w.seen.sight(t) == unseen {
			return left{}
		}
		break
	}
	l.hidden[t.xid] = t.end
	for _, c := range l.ahead {
		if c.upto == nil || l.within(c.seq, c.upto, values) {
			return left{covered: c.seq}
		}
	}
	return left{out: true}
}

// settle fails with errUnsettled when a watermark does not see what it must, and forgets the transactions that it sees.
func (l *load) settle(v *visibility) error {
	for xid, end := range l.hidden {
		if v.sight(&transaction{xid: xid, end: end}) == seen {
			delete(l.hidden, xid)
		}
	}
	if v.xmin < l.settled || len(l.hidden) > 0 {
		return errUnsettled
	}
	return nil
}

// holds reports whether a change of the transaction may have to come behind rows that are still being read.
func (l *load) holds(t *transaction) bool {
	return slices.ContainsFunc(l.windows, func(w *window) bool { return !w.returned && w.seen.sight(t) == unseen })
}

// doubts reports whether nobody knows on which side of rows that are being read the transaction is, and it changed the table.
func (l *load) doubts(t *transaction) bool {
	_, touched := t.touched[l.oid]
	return touched && slices.ContainsFunc(l.windows, func(w *window) bool { return !w.returned && w.seen.sight(t) == unknown })
}

// from is the table as its own rows, or those of its partitions, are selected.
func (t *catalogTable) from() string {
	if t.Kind == 'p' {
		return t.quoted()
	}
	return "only " + t.quoted()
}

// shapeOf is the names and types of the table's columns.
func shapeOf(t *Table) string {
	columns := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		columns[i] = c.Name + " " + strconv.FormatUint(uint64(c.Type), 10) + " " + strconv.Itoa(int(c.Modifier))
	}
	return strings.Join(columns, ",")
}
