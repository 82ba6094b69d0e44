package lake

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/internal/keyindex"
)

// buried reports whether a tombstone says that the key was deleted.
func (u *upsert) buried(i int) bool {
	return u.at[i].File == keyindex.Tombstone && u.t.tombstones != nil
}

// isFree reports whether the row is a delete that was sent without a sequence.
func (u *upsert) isFree(row int32) bool {
	_, is := u.free[row]
	return is
}

// orderOf is where the change of the key stands. A delete that was sent without a sequence stands behind what came before
// it and what is known.
func (u *upsert) orderOf(i int) order {
	mine := u.order(u.keys[i].last)
	if w := u.index.sequence.width; u.isFree(u.keys[i].last) && (u.there(i) || u.buried(i)) {
		if known := u.index.orderOf(u.known, i); bytes.Compare(known[:w], mine[:w]) > 0 {
			copy(mine[:w], known[:w])
		}
	}
	return mine
}

// sequenceRow is the row that says what stands in a column of the sequence once a soft delete has marked the key's row;
// there is none when that stays as it is, as all other columns do.
func (u *upsert) sequenceRow(i, column int) (row int32, ok bool) {
	is := func(name string) bool { return strings.EqualFold(name, u.rows.schema.Field(column).Name) }
	if u.index.sequence == nil || !slices.ContainsFunc(u.t.a.opts.Key.SequenceBy, is) {
		return noRow, false
	}
	row = u.keys[i].last
	from, free := u.free[row]
	if !free {
		return row, true
	}
	w := u.index.sequence.width
	known := u.index.orderOf(u.known, i)
	return from, from != noRow && bytes.Compare(u.seqs[int(from)*w:(int(from)+1)*w], known[:w]) > 0
}

// storedIsDeleted reports whether the row that is stored under the key was marked by a soft delete.
func (u *upsert) storedIsDeleted(i int) bool {
	if u.t.a.opts.Key.Deletes != SoftDeletes {
		return false
	}
	c := columnNamed(u.stored.rows.Schema(), DeletedAtColumn)
	return c >= 0 && u.stored.rows.Column(c).IsValid(int(u.stored.of[i]))
}

// end is the order that a tombstone of the key is to have; nil where none is needed, or one says it already, or there is no
// sequence at which the key could have been deleted.
func (u *upsert) end(i int) order {
	k := &u.keys[i]
	if u.t.tombstones == nil || !k.delete {
		return nil
	}
	if from, free := u.free[k.last]; free && from == noRow && !u.there(i) && !u.buried(i) {
		return nil
	}
	mine := u.orderOf(i)
	if u.buried(i) {
		if known := u.index.orderOf(u.known, i); mine.compare(known) == unknown || bytes.Equal(mine, known) {
			return nil
		}
	}
	return mine
}

// passedEnd is the order of a delete that the row which the key gets in the same commit came after: it is remembered too, so
// that it does not matter which changes a commit has together. nil: there is none that would have counted.
func (u *upsert) passedEnd(i int) order {
	row := u.keys[i].ended
	if u.t.tombstones == nil || row == noRow {
		return nil
	}
	if from, free := u.free[row]; free && from == noRow {
		return nil
	}
	mine := u.order(row)
	if (u.there(i) || u.buried(i)) && mine.compare(u.index.orderOf(u.known, i)) != after {
		return nil
	}
	return mine
}

// tombstone is a row of the tombstones table to be.
type tombstone struct {
	row int32 // of the changes, which says that the key was deleted
	end order
}

// tombstones are those of the keys that the upsert deletes. The index is told of those whose keys have no row then.
func (w *upsertWriter) tombstones() (all []tombstone) {
	for i, a := range w.acts {
		switch a {
		case actBury, actDelete:
			end := w.end(i)
			all = append(all, tombstone{w.keys[i].last, end})
			w.news.buried, w.news.ends = append(w.news.buried, w.keys[i].key), append(w.news.ends, end...)
		case actInsert, actUpdate:
			if end := w.passedEnd(i); end != nil {
				all = append(all, tombstone{w.keys[i].ended, end})
			}
		}
	}
	return all
}

// bury puts tombstones on the keys that the upsert deletes, before the table moves past them. Those of an attempt before
// are there already.
func (c *commit) bury(ctx context.Context, w *upsertWriter) error {
	if w.t.tombstones == nil {
		return nil
	}
	w.t.tombstones.saw(w.seqs, w.index.sequence.width)
	first := w.rows.first() // rows out of quarantine stand before those of the commit, and may be others the next time
	fresh := slices.DeleteFunc(w.tombstones(), func(t tombstone) bool { return c.ended[t.row-first] == string(t.end) })
	if len(fresh) == 0 {
		return nil
	}
	rows := w.tombstoneRows(fresh)
	defer rows.Release()
	before := markOf(w.index.tombs)
	snap, err := w.t.tombstones.commit(ctx, w.index, w.snap, rows)
	if err != nil {
		return explain(w.t.tombstones.name, err)
	}
	w.index.tombs = snap
	w.t.tombstones.due(w.index)
	w.t.a.tend.checkpoint(snap.Table(), snap)
	if now := markOf(snap); now.version == before.version+1 {
		w.news.note = now.String() // nobody else's are among them
	}
	if c.ended == nil {
		c.ended = map[int32]string{}
	}
	for _, t := range fresh {
		c.ended[t.row-first] = string(t.end)
	}
	return nil
}

// tombstoneRows are rows of the tombstones table.
func (u *upsert) tombstoneRows(all []tombstone) arrow.RecordBatch {
	rows := make([]int32, len(all))
	var sequences []byte
	for n, t := range all {
		rows[n] = t.row
		sequences = append(sequences, t.end[:u.index.sequence.width]...)
	}
	var columns []arrow.Array
	for _, c := range u.rows.named(u.t.a.opts.Key.Columns) {
		columns = append(columns, expr.Take(c, spansOf(rows)))
	}
	columns = append(columns, u.index.sequence.values(sequences)...)
	at := fill{DeletedAtColumn, arrow.FixedWidthTypes.Timestamp_us, fillDeletedAt}
	columns = append(columns, at.column(len(rows), func(n int) cause {
		c := u.cause(rows[n])
		c.kind = freshet.Delete
		return c
	}))
	var texts [3]*array.StringBuilder
	for i := range texts {
		texts[i] = array.NewStringBuilder(memory.DefaultAllocator)
		defer texts[i].Release()
	}
	seqs := array.NewInt64Builder(memory.DefaultAllocator)
	defer seqs.Release()
	for _, row := range rows {
		lane := u.rows.lane(row)
		texts[0].Append(lane.Origin)
		texts[1].Append(lane.OriginID)
		texts[2].Append(lane.Name)
		seqs.Append(u.rows.seq(row))
	}
	for _, t := range texts {
		columns = append(columns, t.NewArray())
	}
	columns = append(columns, seqs.NewArray())
	defer func() {
		for _, c := range columns {
			c.Release()
		}
	}()
	names := slices.Concat(u.index.columns, []string{DeletedAtColumn, tombstoneOrigin, tombstoneOriginID, tombstoneLane,
		tombstoneSeq})
	fields := make([]arrow.Field, len(columns))
	for i, c := range columns {
		fields[i] = arrow.Field{Name: names[i], Type: c.DataType(), Nullable: true}
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, int64(len(rows)))
}
