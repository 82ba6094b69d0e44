package lake

import (
	"cmp"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/keyindex"
)

// move is an update that changed the key and did not send all: what it left out is as the row of the old key had it. That
// row is told of by changes of this commit, or else it is stored:
//
//	key 1   put (all columns) ─▶ old image, which removes ─┐ what the new image does not say
//	key 2                                                  └▶ new image ─▶ …
type move struct {
	row int32 // the new image; the old one is the row before
	key int   // the old key
}

// findMoves finds them. Where a sequence orders changes, the row before may not be the one that the key had: there are none.
func (u *upsert) findMoves() []move {
	if u.rows.unsent == nil || u.index.sequence != nil {
		return nil
	}
	var all []move
	for row := u.rows.first() + 1; row < int32(len(u.hashes)); row++ {
		old := row - 1
		if u.rows.kinds[old] != freshet.UpdatePreimage || u.rows.from[old] != u.rows.from[row] ||
			u.hashes[old] == u.hashes[row] || !u.rows.partial(row) {
			continue
		}
		if key, ok := u.keyAt(u.hashes[old]); ok {
			all = append(all, move{row, key})
		}
	}
	return all
}

// keyAt is the place of a key among those that change.
func (u *upsert) keyAt(key keyindex.Fingerprint) (i int, ok bool) {
	return slices.BinarySearchFunc(u.keys, key, func(k keyChange, key keyindex.Fingerprint) int {
		return cmp.Or(cmp.Compare(k.key.Hi, key.Hi), cmp.Compare(k.key.Lo, key.Lo))
	})
}

// follow makes moves whole, as far as the row of the old key is known. The stored rows of all old keys have been read.
func (u *upsert) follow(moves []move) error {
	found := map[int32][]cell{} // of each row that is whole now, its cells by column
	for _, m := range moves {
		if cells, ok := u.movedCells(m, found); ok {
			found[m.row] = cells
		}
	}
	if len(found) == 0 {
		return nil
	}
	for c, f := range u.rows.schema.Fields() {
		cells := make([]cell, len(u.hashes))
		moved := false
		for row := range cells {
			cells[row] = cell{fromRows, int32(row)}
			if of := found[int32(row)]; of != nil && u.rows.unsent.Has(row, c) {
				cells[row], moved = of[c], true
			}
		}
		if !moved {
			continue
		}
		field, _ := u.schema.Lookup(f.Name)
		column, err := u.rows.column(c)
		if err == nil {
			column, err = takeCells(field, column, u.stored.column(f.Name), cells)
		}
		if err != nil {
			return err
		}
		u.rows.columns[c].replace(column)
	}
	u.rows.whole = map[int32]bool{}
	for row := range found {
		u.rows.whole[row] = true
		u.rows.unsent.Clear(int(row))
	}
	return nil
}

// movedCells are the cells of a move's row that it did not send; ok is false where one of them is not known.
func (u *upsert) movedCells(m move, found map[int32][]cell) (cells []cell, ok bool) {
	b := u.rows.batches[u.rows.from[m.row]]
	cells = make([]cell, u.rows.schema.NumFields())
	for c, f := range u.rows.schema.Fields() {
		if !u.rows.unsent.Has(int(m.row), c) {
			continue
		}
		if cells[c], ok = u.cellBefore(m, c, u.stored.column(f.Name), found); ok {
			continue
		}
		if columnNamed(b.Rows.Schema(), f.Name) >= 0 {
			return nil, false
		}
		cells[c] = cell{from: fromNowhere} // the source had no such column then
	}
	return cells, true
}

// cellBefore is the cell of a column that the row of the old key had before the move; ok is false where nothing tells.
func (u *upsert) cellBefore(m move, c int, stored arrow.Array, found map[int32][]cell) (_ cell, ok bool) {
	for _, one := range slices.Backward(u.keys[m.key].changes) {
		switch {
		case one.row >= m.row-1:
		case u.rows.removes(one.row):
			return cell{}, false
		case !u.rows.unsent.Has(int(one.row), c):
			return cell{fromRows, one.row}, true
		case found[one.row] != nil:
			return found[one.row][c], true
		}
	}
	if !u.there(m.key) || u.storedIsDeleted(m.key) {
		return cell{}, false
	}
	if stored == nil {
		return cell{from: fromNowhere}, true
	}
	return cell{fromStored, u.stored.of[m.key]}, true
}
