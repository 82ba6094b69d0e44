package lake

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/keyindex"
)

// keyChange is what happens to one key in one commit: its last change, with what earlier ones of the commit know that
// the last one did not send.
type keyChange struct {
	key    keyindex.Fingerprint
	last   int32 // the row of the last change
	delete bool
	// older are the rows below last that may know cells which those above did not send, downwards.
	older []int32
	// waiting are rows that did not send all and came after the key was deleted: nothing knows the rest of them.
	waiting []int32
	// ended is the last delete below last, where changes have a sequence; noRow: there is none.
	ended int32
	// contenders are rows of the greatest sequence that say different things: none of them is taken.
	contenders []int32
}

// lowest is the row below which nothing is known of the key.
func (k *keyChange) lowest() int32 {
	if n := len(k.older); n > 0 {
		return k.older[n-1]
	}
	return k.last
}

// change is one row in the order in which the changes of a key follow each other.
type change struct {
	key keyindex.Fingerprint
	row int32
}

// collapser makes one change a key.
type collapser struct {
	rows     *changeRows
	keys     []keyindex.Fingerprint // of each row
	all      [][]change             // those of each key, where keep says so
	keep     bool
	sequence []byte // of each row; nil: there is none
	width    int
	behind   map[int32]bool // rows out of quarantine that stand behind those of this commit, where there is no sequence
	crossed  int            // keys that came by two lanes although nothing orders these
}

// collapse returns one change a key, in the order of fingerprints. Rows in skip have no say.
func (c *collapser) collapse(skip func(row int32) bool) []keyChange {
	order := c.ordered(skip)
	out := make([]keyChange, 0, len(order))
	for len(order) > 0 {
		n := 1
		for n < len(order) && order[n].key == order[0].key {
			n++
		}
		out = append(out, c.last(order[:n]))
		if c.keep {
			c.all = append(c.all, order[:n:n])
		}
		order = order[n:]
	}
	return out
}

// ordered are the changes by key, those of a key in the order in which they follow each other.
func (c *collapser) ordered(skip func(row int32) bool) []change {
	order := make([]change, 0, len(c.keys))
	for row := range int32(len(c.keys)) {
		if !skip(row) && !c.idle(row) {
			order = append(order, change{c.keys[row], row})
		}
	}
	slices.SortFunc(order, func(a, b change) int {
		if a.key != b.key {
			if a.key.Hi < b.key.Hi || a.key.Hi == b.key.Hi && a.key.Lo < b.key.Lo {
				return -1
			}
			return 1
		}
		return cmp.Or(bytes.Compare(c.sequenceOf(a.row), c.sequenceOf(b.row)), c.compareRows(a.row, b.row))
	})
	return order
}

func (c *collapser) compareRows(a, b int32) int {
	switch x, y := c.behind[a], c.behind[b]; {
	case x && !y:
		return 1
	case y && !x:
		return -1
	}
	return cmp.Compare(a, b)
}

// idle reports whether the row is the old image of an update that left the key as it was: it says nothing.
func (c *collapser) idle(row int32) bool {
	return c.rows.kinds[row] == freshet.UpdatePreimage &&
		(int(row)+1 >= len(c.keys) || c.keys[row+1] == c.keys[row] || c.rows.from[row+1] != c.rows.from[row])
}

func (c *collapser) sequenceOf(row int32) []byte {
	if c.sequence == nil {
		return nil
	}
	return c.sequence[int(row)*c.width : (int(row)+1)*c.width]
}

// last makes one change of all changes of a key.
func (c *collapser) last(all []change) keyChange {
	row := all[len(all)-1].row
	k := keyChange{key: all[0].key, last: row, delete: c.rows.removes(row), ended: noRow}
	if len(all) == 1 {
		return k
	}
	for i := len(all) - 2; c.sequence != nil && !k.delete && k.ended == noRow && i >= 0; i-- {
		if c.rows.removes(all[i].row) {
			k.ended = all[i].row
		}
	}
	if finals := c.finals(all); len(finals) > 1 && c.sequence == nil {
		c.crossed++
	} else if len(finals) > 1 {
		if c.contend(&k, finals) {
			return k
		}
	}
	if k.delete || !c.rows.unsent.Any(int(row)) {
		return k
	}
	for i := len(all) - 2; i >= 0; i-- {
		older := all[i].row
		if c.rows.removes(older) {
			if !c.rows.partial(k.lowest()) {
				break // it is whole but for columns that its source has not
			}
			k.waiting = append([]int32{k.last}, k.older...)
			k.last, k.delete, k.older = older, true, nil
			break
		}
		k.older = append(k.older, older)
		if !c.rows.unsent.Any(int(older)) {
			break
		}
	}
	return k
}

// finals are the changes of the greatest sequence when they came by different lanes, the last of each lane.
func (c *collapser) finals(all []change) (finals []int32) {
	greatest := c.sequenceOf(all[len(all)-1].row)
	first := len(all) - 1
	for first > 0 && bytes.Equal(c.sequenceOf(all[first-1].row), greatest) {
		first--
	}
	for i := len(all) - 1; i >= first; i-- {
		row := all[i].row
		seen := func(other int32) bool { return c.rows.lane(row) == c.rows.lane(other) }
		if !slices.ContainsFunc(finals, seen) {
			finals = append(finals, row)
		}
	}
	return finals
}

// contend settles what nothing but its content tells apart: a delete counts; of rows that differ, none. It reports whether
// that is all there is to the key.
func (c *collapser) contend(k *keyChange, finals []int32) bool {
	if i := slices.IndexFunc(finals, c.rows.removes); i >= 0 {
		k.last, k.delete = finals[i], true
		return true
	}
	if slices.ContainsFunc(finals, func(row int32) bool { return !c.same(row, k.last) }) {
		k.contenders = finals
		return true
	}
	return false
}

// same reports whether two changes say the same.
func (c *collapser) same(a, b int32) bool {
	if c.rows.removes(a) || c.rows.removes(b) {
		return c.rows.removes(a) && c.rows.removes(b)
	}
	for i, col := range c.rows.columns {
		if c.rows.unsent.Has(int(a), i) != c.rows.unsent.Has(int(b), i) ||
			!array.SliceEqual(col, int64(a), int64(a)+1, col, int64(b), int64(b)+1) {
			return false
		}
	}
	return true
}
