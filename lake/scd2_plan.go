package lake

import (
	"cmp"
	"context"
	"encoding/binary"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/keyindex"
)

// history is what one commit does to a table of mode SCD2, found on one snapshot of it. Where all that came of a key is
// above what is known of it, its newest row is all that is needed, and the index knows where that lies. What comes late
// needs all rows of its key, which are sought by the table's statistics.
type history struct {
	*upsert
	orders  *collapser
	ids     []keyindex.Fingerprint // of the keys that something came of, ascending
	said    [][]saying             // of each key
	cells   cells
	periods [][]period // of each key, as they are to be; nil: as they are
	had     [][]period // as they are stored, as far as they are needed
}

// newHistory finds out what the gathered rows do to the table.
func newHistory(ctx context.Context, u *upsert) (*history, error) {
	h := &history{upsert: u}
	if err := h.group(); err != nil {
		return nil, err
	}
	h.at = make([]keyindex.Position, len(h.ids))
	h.known = make([]byte, len(h.ids)*u.index.identity.SequenceBytes)
	if err := u.index.x.Lookup(h.ids, h.at, h.known); err != nil {
		return nil, err
	}
	late := map[keyindex.Fingerprint]int{}
	for i := range h.ids {
		h.number(i)
		if said := h.said[i]; len(said) > 0 && h.there(i) && said[0].at <= h.lastSaid(i) {
			late[h.ids[i]] = i
		}
	}
	var err error
	if h.past, err = h.readPeriods(ctx, late); err != nil {
		return nil, err
	}
	h.cells = newCells(u, h.past.rows)
	h.had, h.periods = make([][]period, len(h.ids)), make([][]period, len(h.ids))
	for i := range h.ids {
		h.plan(i)
	}
	return h, nil
}

// group gathers what came of each key, in the order of what orders it.
func (h *history) group() error {
	o := &h.t.opts.Key
	key, sequence := h.rows.named(h.t.key()), h.rows.named(o.SequenceBy)
	skip := make([]bool, len(h.rows.kinds))
	for row := range skip {
		null := func(c arrow.Array) bool { return c.IsNull(row) }
		skip[row] = slices.ContainsFunc(key, null) || h.ignores(h.rows.kinds[row])
	}
	keys, err := h.hash(key, skip)
	if err != nil {
		return err
	}
	for row := range skip {
		null := func(c arrow.Array) bool { return c.IsNull(row) }
		skip[row] = skip[row] || slices.ContainsFunc(sequence, null)
	}
	h.hashes = keys
	h.orders = &collapser{rows: h.rows, keys: keys}
	if len(sequence) == 0 {
		h.orders.behind = h.behind()
	} else {
		h.seqs = h.index.sequence.append(nil, sequence, len(keys))
		h.orders.sequence, h.orders.width = h.seqs, h.index.sequence.width
		h.orders.moveKeys(skip)
	}
	for _, all := range h.orders.ordered(skip) {
		h.ids, h.said = append(h.ids, all[0].key), append(h.said, h.sayings(all))
	}
	return nil
}

// sayings are what the rows of one key say, one a sequence: the last of one lane counts; of several lanes a delete, and
// none if they differ.
func (h *history) sayings(all []change) []saying {
	var out []saying
	if h.seqs == nil && len(h.orders.finals(all)) > 1 {
		h.counts.crossed++
	}
	for len(all) > 0 {
		n := 1
		for h.seqs != nil && n < len(all) &&
			string(h.orders.sequenceOf(all[n].row)) == string(h.orders.sequenceOf(all[0].row)) {
			n++
		}
		last, finals := all[n-1].row, []int32(nil)
		if h.seqs != nil {
			finals = h.orders.finals(all[:n])
			var ok bool
			if last, ok = h.orders.settle(finals); ok {
				finals = nil
			}
		}
		for _, c := range h.orders.contenders(finals) {
			h.rejectTie(c)
		}
		if finals == nil {
			out = append(out, saying{at: string(h.orders.sequenceOf(last)), gone: h.rows.removes(last), by: last,
				row: values{rows: []int32{last}, stored: noRow}})
		}
		all = all[n:]
	}
	return out
}

// lastSaid is the greatest sequence of what is known of the key; "" of one that the table has not.
func (h *history) lastSaid(i int) string {
	if !h.there(i) {
		return ""
	}
	return string(h.index.orderOf(h.known, i)[:h.index.sequence.width])
}

// number gives what came of a key its sequences where no column does: the time of the source's commit, and at least a
// microsecond above what came before.
func (h *history) number(i int) {
	if h.seqs != nil {
		return
	}
	last := h.lastSaid(i)
	for n := range h.said[i] {
		s := &h.said[i][n]
		c := h.cause(s.by)
		at := c.committed()
		if at == 0 {
			at = c.of.ReadAt.UnixMicro()
		}
		if last != "" {
			at = max(at, microsOf(last)+1)
		}
		s.at = microsText(at)
		last = s.at
	}
}

func microsText(at int64) string { return string(binary.BigEndian.AppendUint64(nil, uint64(at)^1<<63)) }

func microsOf(text string) int64 { return int64(binary.BigEndian.Uint64([]byte(text)) ^ 1<<63) }

// plan finds the periods of a key.
func (h *history) plan(i int) {
	h.had[i] = h.past.periods[h.ids[i]]
	said := h.merge(i, expand(h.had[i]), h.said[i])
	periods, waiting := fold(said, h.cells)
	for _, row := range waiting {
		h.reject(row, freshet.CodePartialRow, partialText)
	}
	h.periods[i] = periods
}

// merge puts what came into what is known.
func (h *history) merge(i int, known, fresh []saying) []saying {
	out := slices.Clone(known)
	for _, s := range fresh {
		n, equal := slices.BinarySearchFunc(out, s.at, func(s saying, at string) int { return cmp.Compare(s.at, at) })
		switch {
		case !equal:
			if n < len(out) && s.at < h.lastSaid(i) {
				h.counts.late++
			}
			out = slices.Insert(out, n, s)
		case h.saysSame(i, out[n], s):
			h.counts.same++
		case h.relation(i, s) == after, h.relation(i, s) == unknown && s.gone:
			out[n] = s
		case h.relation(i, s) == before, out[n].gone:
			h.counts.late++
		default:
			h.rejectTie(contender{s.by, out[n].by})
		}
	}
	return out
}

// relation is how something that came relates to what is known with its sequence, of which only the newest has its lane.
func (h *history) relation(i int, s saying) relation {
	if s.at != h.lastSaid(i) {
		return unknown
	}
	return newOrder([]byte(s.at), h.rows.lane(s.by), h.rows.seq(s.by)).compare(h.index.orderOf(h.known, i))
}

func (h *history) saysSame(i int, a, b saying) bool {
	if a.gone || b.gone {
		return a.gone && b.gone
	}
	whole, ok := h.cells.complete(b.row, &a.row)
	if a.at == h.lastSaid(i) && h.cells.shows() { // of what was said before, the row does not show columns that are not tracked
		return ok && h.cells.equal(a.row, whole, func(c cellColumn) bool { return c.said })
	}
	return ok && h.cells.same(a.row, whole)
}

// cells are the values of rows, of the commit and of the table.
type cells struct {
	u       *upsert
	stored  arrow.RecordBatch // may be nil
	columns []cellColumn      // of the table, those that a source has
	keeps   bool              // the table has columns that the source has not: they stay as they were
	last    bool              // there are columns that are not tracked
}

// cellColumn is a column of the table: where it is in the rows of the commit and in those that are stored, or -1.
type cellColumn struct {
	fresh, stored int
	said          bool // by the source, and neither of the key nor the sequence
	tracked       bool
}

func newCells(u *upsert, stored arrow.RecordBatch) cells {
	c := cells{u: u, stored: stored, keeps: len(u.keptColumns()) > 0}
	o := &u.t.opts.Key
	for i := range u.schema.Fields {
		f := &u.schema.Fields[i]
		col := cellColumn{fresh: columnNamed(u.rows.schema, f.Name), stored: -1}
		if stored != nil {
			col.stored = columnNamed(stored.Schema(), f.Name)
		}
		_, ours := fillNamed(u.t.fills, f.Name)
		col.said = !ours && !f.Generated() && !containsFold(u.t.key(), f.Name) && !containsFold(o.SequenceBy, f.Name)
		col.tracked = col.said && u.t.opts.Periods.tracks(f.Name)
		c.last = c.last || col.said && !col.tracked
		c.columns = append(c.columns, col)
	}
	return c
}

// cell is where the value of a column is: in the rows of the commit, in those that are stored, or nowhere.
func (c cells) cell(v values, column int) cell {
	at := c.columns[column]
	if at.fresh >= 0 {
		for _, row := range v.rows {
			if !c.u.rows.unsent.Has(int(row), at.fresh) {
				return cell{fromRows, row}
			}
		}
	}
	if v.stored != noRow && at.stored >= 0 {
		return cell{fromStored, v.stored}
	}
	return cell{from: fromNowhere}
}

// same reports whether two rows say the same in all columns that are tracked.
func (c cells) same(a, b values) bool {
	return c.equal(a, b, func(col cellColumn) bool { return col.tracked })
}

func (c cells) shows() bool { return c.last }

func (c cells) repeats() int { return c.u.t.opts.Periods.Repeats }

// equal reports whether two rows say the same in these columns.
func (c cells) equal(a, b values, in func(cellColumn) bool) bool {
	for i, col := range c.columns {
		if !in(col) {
			continue
		}
		x, at := c.array(i, c.cell(a, i))
		y, to := c.array(i, c.cell(b, i))
		switch {
		case x == nil || y == nil:
			if x != y && (x == nil || x.IsValid(int(at))) && (y == nil || y.IsValid(int(to))) {
				return false
			}
		case !array.SliceEqual(x, at, at+1, y, to, to+1):
			return false
		}
	}
	return true
}

func (c cells) array(column int, at cell) (arrow.Array, int64) {
	switch at.from {
	case fromRows:
		return c.u.rows.at(c.columns[column].fresh, at.row)
	case fromStored:
		return c.stored.Column(c.columns[column].stored), int64(at.row)
	}
	return nil, 0
}

// complete makes the values whole of a row that did not send all.
func (c cells) complete(v values, before *values) (values, bool) {
	if len(v.rows) == 0 {
		return v, true
	}
	row := v.rows[0]
	switch {
	case before == nil:
		return v, !c.u.rows.partial(row)
	case c.keeps, c.u.rows.unsent.Any(int(row)):
		return values{rows: append(slices.Clone(v.rows), before.rows...), stored: before.stored}, true
	}
	return v, true
}
