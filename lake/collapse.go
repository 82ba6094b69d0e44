package lake

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/keyindex"
)

// keyChange is what happens to one key in one commit. All but key and changes is found out by a walk.
type keyChange struct {
	key     keyindex.Fingerprint
	changes []change // of the key, as they came

	last   int32 // the change that counts: its row is the key's, or it removes or marks that
	moved  int32 // a soft delete that moved the sequence of the row on; noRow: there is none
	delete bool  // the change that counts does
	based  bool  // what none of its rows knows is in the row that is stored
	order  order // where the key stands then, where something orders changes
	few    *keyRest
}

// keyRest is what few keys have beside: a commit has many keys, and what they take counts.
type keyRest struct {
	// older are the rows that know cells of the key's row which last does not, downwards.
	older []int32
	ended tombstone // the last delete that a tombstone is to tell of; its end is nil: there is none
	// waiting are rows that did not send all, and came when the key had no row: nothing knows the rest of them.
	waiting []int32
	// contenders are rows of one sequence that say different things: none of them is taken.
	contenders []contender
}

// rest is what the key has of that.
func (k *keyChange) rest() keyRest {
	if k.few == nil {
		return keyRest{}
	}
	return *k.few
}

// has is rest, to be added to.
func (k *keyChange) has() *keyRest {
	if k.few == nil {
		k.few = &keyRest{}
	}
	return k.few
}

// puts are the rows that make the row of the key, downwards.
func (k *keyChange) puts() []int32 {
	older := k.rest().older
	if k.delete {
		return older
	}
	return append([]int32{k.last}, older...)
}

// change is one row in the order in which the changes of a key follow each other.
type change struct {
	key keyindex.Fingerprint
	row int32
}

// collapser puts the changes of a key together.
type collapser struct {
	rows     *changeRows
	keys     []keyindex.Fingerprint // of each row
	sequence []byte                 // of each row; nil: there is none
	width    int
	behind   map[int32]bool // rows out of quarantine that stand behind those of this commit, where there is no sequence
}

// arrived are the changes by key, in the order of fingerprints, those of a key as they came. Rows in skip have no say.
func (c *collapser) arrived(skip []bool) [][]change {
	return c.sorted(skip, func(a, b int32) int { return cmp.Compare(a, b) })
}

// ordered is arrived, but the changes of a key are in the order of their sequence.
func (c *collapser) ordered(skip []bool) [][]change {
	return c.sorted(skip, func(a, b int32) int {
		return cmp.Or(bytes.Compare(c.sequenceOf(a), c.sequenceOf(b)), c.compareRows(a, b))
	})
}

func (c *collapser) sorted(skip []bool, compare func(a, b int32) int) (keys [][]change) {
	order := make([]change, 0, len(c.keys))
	for row := range int32(len(c.keys)) {
		if !skip[row] && !c.idle(row) {
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
		return compare(a.row, b.row)
	})
	distinct := 0
	for i := range order {
		if i == 0 || order[i].key != order[i-1].key {
			distinct++
		}
	}
	keys = make([][]change, 0, distinct)
	for len(order) > 0 {
		n := 1
		for n < len(order) && order[n].key == order[0].key {
			n++
		}
		keys = append(keys, order[:n:n])
		order = order[n:]
	}
	return keys
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

// moveKeys gives old images of updates that changed the key the sequence of the row that follows: the key was gone then.
func (c *collapser) moveKeys(skip []bool) {
	for row := range int32(len(c.keys)) {
		if c.rows.kinds[row] == freshet.UpdatePreimage && !skip[row] && !c.idle(row) && !skip[row+1] {
			copy(c.sequenceOf(row), c.sequenceOf(row+1))
		}
	}
}

// sequenceRow is the row whose columns have the sequence of this one.
func (c *collapser) sequenceRow(row int32) int32 {
	if c.rows.kinds[row] == freshet.UpdatePreimage && bytes.Equal(c.sequenceOf(row), c.sequenceOf(row+1)) {
		return row + 1
	}
	return row
}

func (c *collapser) sequenceOf(row int32) []byte {
	if c.sequence == nil {
		return nil
	}
	return c.sequence[int(row)*c.width : (int(row)+1)*c.width]
}

// finals are the last change of each lane, the last one first.
func (c *collapser) finals(all []change) (finals []int32) {
	for _, one := range slices.Backward(all) {
		seen := func(other int32) bool { return c.rows.lane(one.row) == c.rows.lane(other) }
		if !slices.ContainsFunc(finals, seen) {
			finals = append(finals, one.row)
		}
	}
	return finals
}

// settle settles what nothing but its content tells apart: a delete counts; of rows that differ none does, and ok is false.
func (c *collapser) settle(finals []int32) (row int32, ok bool) {
	if i := slices.IndexFunc(finals, c.rows.removes); i >= 0 {
		return finals[i], true
	}
	differs := func(row int32) bool { return !c.same(row, finals[0]) }
	return finals[0], !slices.ContainsFunc(finals, differs)
}

// same reports whether two rows say the same.
func (c *collapser) same(a, b int32) bool {
	for i := range c.rows.columns {
		left, x := c.rows.at(i, a)
		right, y := c.rows.at(i, b)
		if c.rows.unsent.Has(int(a), i) != c.rows.unsent.Has(int(b), i) || !array.SliceEqual(left, x, x+1, right, y, y+1) {
			return false
		}
	}
	return true
}
