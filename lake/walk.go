package lake

import (
	"bytes"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// walk is a key as it fares when its changes are applied one after another as they came, each as if it were a commit of its
// own. So it does not matter which changes a commit has together. Rows that wait in quarantine were there before.
type walk struct {
	u       *upsert
	i       int
	k       *keyChange
	known   order // where the key stands; nil: nothing tells
	there   bool  // it has a row
	marked  bool  // which a soft delete has marked
	changed bool
	based   bool    // cells that nothing below tells are those of the row that is stored
	row     int32   // that made the row what it is; noRow: it is as it is stored
	below   []int32 // rows that know what row does not, upwards
	mark    int32   // the delete that marked the row, or took it out
	moved   int32   // see keyChange
	pending []int32 // see keyRest.waiting
}

// walk finds out what becomes of the key.
func (u *upsert) walk(i int) act {
	k := &u.keys[i]
	*k = keyChange{key: k.key, changes: k.changes}
	there := u.there(i)
	if len(k.changes) == 1 && u.settles(k.changes[0].row) {
		return u.settled(k, k.changes[0].row, there)
	}
	w := walk{u: u, i: i, k: k, there: there, based: there, marked: there && u.storedIsDeleted(i), row: noRow, mark: noRow,
		moved: noRow}
	if u.index.sequence != nil && (there || u.isBuried(i)) {
		w.known = u.index.orderOf(u.known, i)
	}
	tied := u.contend(i)
	waits := func(row int32) bool { return u.rows.returned(row) && u.rows.partial(row) && !u.rows.removes(row) }
	for _, c := range k.changes {
		if !waits(c.row) {
			break
		}
		w.pending = append(w.pending, c.row)
	}
	news := k.changes[len(w.pending):]
	if w.live() {
		w.catchUp(noRow)
	}
	for _, c := range news {
		if tied == nil || !bytes.Equal(u.together.sequenceOf(c.row), tied) {
			w.take(c.row)
		}
	}
	return w.end()
}

// settles reports whether a change that is the only one of its key makes the key's row whatever was there, so that no walk
// is needed: it is a whole row, and nothing but its place orders it.
func (u *upsert) settles(row int32) bool {
	return u.index.sequence == nil && !u.rows.removes(row) && !u.rows.partial(row)
}

// settled is what becomes of a key by such a change.
func (u *upsert) settled(k *keyChange, row int32, there bool) act {
	k.last, k.based, k.moved = row, there, noRow
	if there {
		return actUpdate
	}
	if u.updates(row) {
		u.counts.inserts++
	}
	return actInsert
}

// contend finds rows of the greatest sequence of a key that came by several lanes and say different things: none of them
// is taken. It returns their sequence, nil when there are none.
func (u *upsert) contend(i int) []byte {
	k := &u.keys[i]
	if u.lanes == 1 || len(k.changes) == 1 {
		return nil
	}
	if u.index.sequence == nil {
		if len(u.together.finals(k.changes)) > 1 {
			u.counts.crossed++
		}
		return nil
	}
	var greatest []byte
	var all []change
	for _, c := range k.changes {
		at := u.together.sequenceOf(c.row)
		switch order := bytes.Compare(at, greatest); {
		case u.free[c.row]:
			return nil
		case order > 0:
			greatest, all = at, append(all[:0], c)
		case order == 0:
			all = append(all, c)
		}
	}
	if (u.there(i) || u.isBuried(i)) && bytes.Compare(greatest, u.index.orderOf(u.known, i).sequence()) < 0 {
		return nil // all are late
	}
	finals := u.together.finals(all)
	if _, ok := u.together.settle(finals); ok {
		return nil
	}
	k.has().contenders = u.together.contenders(finals)
	return greatest
}

// live reports whether the key has a row that no delete has marked.
func (w *walk) live() bool { return w.there && !w.marked }

// take applies a change.
func (w *walk) take(row int32) {
	u := w.u
	at, relation := w.place(row)
	switch {
	case relation == before:
		u.counts.late++
	case u.rows.removes(row):
		w.remove(row, at, relation)
	case relation == unknown && !w.live():
		u.counts.late++
	case relation == unknown && w.says(row):
		u.counts.same++
	case relation == unknown:
		w.k.has().contenders = append(w.k.has().contenders, contender{row, w.row})
	case !w.live() && u.rows.partial(row):
		w.pending = append(w.pending, row)
	default:
		w.put(row, at)
	}
}

// place is where a change stands, and how that relates to what is known. A delete that was sent without a sequence stands
// behind all that is; where nothing is, it has no place.
func (w *walk) place(row int32) (order, relation) {
	u := w.u
	if u.index.sequence == nil {
		return nil, after
	}
	mine := u.order(row)
	if u.free[row] {
		last := w.known
		for _, p := range w.pending {
			if o := u.order(p); last == nil || bytes.Compare(o.sequence(), last.sequence()) > 0 {
				last = o
			}
		}
		if last == nil {
			return nil, after
		}
		copy(mine, last.sequence())
	}
	if w.known == nil {
		return mine, after
	}
	return mine, mine.compare(w.known)
}

// put makes the row of the key one that a change says, and applies what waited for it.
func (w *walk) put(row int32, at order) {
	u := w.u
	if !w.there && u.updates(row) {
		u.counts.inserts++
	}
	switch {
	case !w.there || !u.rows.unsent.Any(int(row)):
		w.below = nil
	case w.row != noRow:
		w.below = append(w.below, w.row)
	}
	waited := !w.live()
	w.row, w.moved, w.known, w.there, w.marked, w.changed = row, noRow, at, true, false, true
	if waited {
		w.catchUp(row)
	}
}

// catchUp applies the changes that waited for the key's row, which this change brought, as far as they stand behind it.
func (w *walk) catchUp(row int32) {
	all := w.pending
	w.pending = nil
	if w.u.index.sequence != nil {
		slices.SortStableFunc(all, func(a, b int32) int { return bytes.Compare(w.u.order(a), w.u.order(b)) })
	}
	for _, p := range all {
		if row == noRow || !w.passes(row, p) {
			w.take(p)
		}
	}
}

// passes reports whether a change stands behind one that waits where nothing orders them: later in the same lane.
func (w *walk) passes(row, waits int32) bool {
	u := w.u
	return u.index.sequence == nil && u.rows.lane(row) == u.rows.lane(waits) && u.rows.seq(waits) <= u.rows.seq(row)
}

// remove applies a delete.
func (w *walk) remove(row int32, at order, relation relation) {
	u := w.u
	if !w.there {
		u.counts.missing++
	}
	if u.index.sequence != nil && at == nil {
		return // nothing tells when it was
	}
	w.pending = slices.DeleteFunc(w.pending, func(p int32) bool {
		return w.passes(row, p) || at != nil && u.order(p).compare(at) != after
	})
	switch {
	case w.there && u.t.opts.Key.Deletes == SoftDeletes:
		w.marked = true
		if !u.free[row] {
			w.moved = u.together.sequenceRow(row)
		}
	case w.there:
		if u.t.deleted != nil {
			u.logged = append(u.logged, u.deletion(w.i, row, w.puts(), w.based))
		}
		w.there, w.based, w.row, w.below = false, false, noRow, nil
		if at != nil {
			w.k.has().ended = tombstone{row, at}
		}
	case u.t.tombstones == nil:
		return
	case w.known != nil && (relation == unknown || bytes.Equal(at, w.known)):
		return // that is known
	default:
		w.k.has().ended = tombstone{row, at}
	}
	w.mark, w.known, w.changed = row, at, true
	if u.t.tombstones == nil && !w.there {
		w.known = nil // nothing remembers it
	}
}

// puts are the rows that made the row, downwards.
func (w *walk) puts() []int32 {
	if w.row == noRow {
		return nil
	}
	all := append(slices.Clone(w.below), w.row)
	slices.Reverse(all)
	return all
}

// end is what has become of the key.
func (w *walk) end() act {
	u, k := w.u, w.k
	k.order, k.based, k.moved = w.known, w.based, w.moved
	k.last, k.delete = w.mark, !w.live()
	if len(w.pending) > 0 {
		k.has().waiting = w.pending
	}
	switch {
	case k.delete && w.row != noRow:
		k.has().older = w.puts()
	case !k.delete && w.row != noRow:
		k.last = w.row
		if len(w.below) > 0 {
			k.has().older = w.puts()[1:]
		}
	}
	switch {
	case !w.changed:
		return actNone
	case w.there && u.there(w.i):
		return actUpdate
	case w.there:
		return actInsert
	case u.there(w.i):
		return actDelete
	case k.rest().ended.end != nil:
		return actBury
	}
	return actNone
}

// says reports whether the row of the key is as a change says.
func (w *walk) says(row int32) bool {
	u := w.u
	puts := w.puts()
	for c, f := range u.rows.schema.Fields() {
		if u.rows.unsent.Has(int(row), c) {
			continue
		}
		mine, own := u.rows.at(c, row)
		there, at := arrow.Array(nil), int64(0)
		told := slices.IndexFunc(puts, func(p int32) bool { return !u.rows.unsent.Has(int(p), c) })
		if told >= 0 {
			there, at = u.rows.at(c, puts[told])
		} else if w.based {
			there, at = u.stored.column(f.Name), int64(u.stored.of[w.i])
		}
		same := there == nil && mine.IsNull(int(own)) ||
			there != nil && array.SliceEqual(mine, own, own+1, there, at, at+1)
		if !same {
			return false
		}
	}
	return true
}
