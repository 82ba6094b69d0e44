package lake

import (
	"bytes"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// deletion is a delete that found a row.
type deletion struct {
	at   loggedAt
	row  int32   // of the changes, which says so
	key  int     // of the upsert's keys
	puts []int32 // the changes of the key before it, downwards, until one that sent all or was the first
	base bool    // what they did not send is in the row that is stored
}

// deletions are the deletes that find a row when the changes are applied one after another as they came: so that it does not
// matter which of them a commit has together.
func (u *upsert) deletions() (all []deletion) {
	for i := range u.keys {
		k := &u.keys[i]
		if k.contenders != nil || !slices.ContainsFunc(u.changes[i], func(c change) bool { return u.rows.removes(c.row) }) {
			continue
		}
		n := len(all)
		all = u.walk(i, all)
		if u.acts[i] == actDelete && len(all) == n {
			all = append(all, u.deletion(i, k.last, nil, true))
		}
	}
	return all
}

func (u *upsert) deletion(i int, row int32, puts []int32, base bool) deletion {
	c := u.cause(row)
	lane, seq := c.of.place(c.row)
	return deletion{at: loggedAt{lane, place{seq, int32(c.of.nth[c.row])}}, row: row, key: i, puts: puts, base: base}
}

// walk applies the changes of a key one after another and adds the deletes that find a row.
func (u *upsert) walk(i int, all []deletion) []deletion {
	var known order
	if u.index.sequence != nil && (u.there(i) || u.buried(i)) {
		known = u.index.orderOf(u.known, i)
	}
	there, base := u.there(i), u.there(i)
	var puts []int32
	came := slices.Clone(u.changes[i])
	slices.SortFunc(came, func(a, b change) int { return u.came(a.row, b.row) })
	for _, c := range came {
		row, removes := c.row, u.rows.removes(c.row)
		if u.index.sequence != nil {
			var late bool
			if known, late = u.follow(row, known, removes); late {
				continue
			}
		}
		switch {
		case removes && there:
			all = append(all, u.deletion(i, row, puts, base))
			there, base, puts = false, false, nil
		case removes, !there && u.rows.partial(row):
		case there && u.rows.unsent.Any(int(row)):
			puts = append([]int32{row}, puts...)
		default:
			there, base, puts = true, false, []int32{row}
		}
	}
	return all
}

// follow is where the key stands after a change, and whether the change is late.
func (u *upsert) follow(row int32, known order, removes bool) (now order, late bool) {
	mine := u.order(row)
	if known == nil {
		return mine, false
	}
	if u.isFree(row) {
		if w := u.index.sequence.width; bytes.Compare(mine[:w], known[:w]) < 0 {
			return known, false
		}
		return mine, false
	}
	if r := mine.compare(known); r == before || r == unknown && !removes {
		return known, true
	}
	return mine, false
}

// passedRows are the rows of keys before these deletions, all of which changes of the commit have made.
func (u *upsert) passedRows(all []deletion) (arrow.RecordBatch, error) {
	passed := *u
	passed.keys, passed.stored = make([]keyChange, len(all)), nil
	of := map[int]int32{}
	keys := make([]int, len(all))
	for n, d := range all {
		keys[n] = n
		passed.keys[n] = keyChange{key: u.keys[d.key].key, last: d.puts[0], older: d.puts[1:], ended: noRow}
		if row, ok := u.storedRow(d.key); ok && d.base {
			of[n] = row
		}
	}
	if u.stored != nil {
		passed.stored = &storedRows{rows: u.stored.rows, of: of}
	}
	return passed.assemble(keys)
}
