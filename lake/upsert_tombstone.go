package lake

import (
	"context"
	"maps"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/internal/keyindex"
)

// isBuried reports whether a tombstone says that the key was deleted.
func (u *upsert) isBuried(i int) bool {
	return u.at[i].File == keyindex.Tombstone && u.t.tombstones != nil
}

// orders reports whether the column is one of those that order changes.
func (u *upsert) orders(column int) bool {
	return u.index.sequence != nil && containsFold(u.t.opts.Key.SequenceBy, u.rows.schema.Field(column).Name)
}

// storedIsDeleted reports whether the row that is stored under the key, if it was read, was marked by a soft delete.
func (u *upsert) storedIsDeleted(i int) bool {
	if u.t.opts.Key.Deletes != SoftDeletes {
		return false
	}
	marks := u.stored.column(DeletedAtColumn)
	if marks == nil {
		return false
	}
	row, read := u.stored.of[i]
	return read && marks.IsValid(int(row))
}

// tombstone is a row of the tombstones table to be.
type tombstone struct {
	row int32 // of the changes, which says that the key was deleted
	end order
}

// tombstones are those of the keys that the upsert deletes, also of those that come back in it: so that it does not matter
// which changes a commit has together. The index is told of those whose keys have no row then.
func (w *upsertWriter) tombstones() (all []tombstone) {
	for i, a := range w.acts {
		k := &w.keys[i]
		ended := k.rest().ended
		if ended.end == nil {
			continue
		}
		all = append(all, ended)
		if a == actBury || a == actDelete {
			w.news.bury(k.key, ended.end)
		}
	}
	return all
}

// writeTombstones writes tombstones of the keys that the upsert deletes into files of their table. Those of an attempt before
// are there already; where the upsert is one of several, which they were is not remembered, and they come again.
func (c *commit) writeTombstones(ctx context.Context, w *upsertWriter) error {
	if w.t.tombstones == nil {
		return nil
	}
	w.t.tombstones.saw(w.seqs, w.index.sequence.width)
	first := w.rows.first() // rows out of quarantine stand before those of the commit, and may be others the next time
	fresh := w.tombstones()
	if !w.shared {
		fresh = slices.DeleteFunc(fresh, func(t tombstone) bool { return c.ended[t.row-first] == string(t.end) })
	}
	if len(fresh) == 0 {
		return nil
	}
	if w.tombs == nil {
		var err error
		if w.tombs, err = w.t.tombstones.begin(ctx, w.index, w.snap); err != nil {
			return explain(w.t.tombstones.name, err)
		}
	}
	rows := w.tombstoneRows(fresh)
	defer rows.Release()
	if err := w.tombs.w.Write(ctx, rows); err != nil {
		return explain(w.t.tombstones.name, err)
	}
	if w.shared {
		return nil
	}
	w.ended = map[int32]string{}
	for _, t := range fresh {
		w.ended[t.row-first] = string(t.end)
	}
	return nil
}

// bury puts the tombstones that were written on their keys, before the table moves past them.
func (c *commit) bury(ctx context.Context, w *upsertWriter) error {
	if w.tombs == nil {
		return nil
	}
	before := markOf(w.index.tombs)
	snap, err := w.tombs.commit(ctx, w.t)
	if err != nil {
		return explain(w.t.tombstones.name, err)
	}
	w.index.tombs, w.upsert.buried = snap, snap.Version()
	w.t.tombstones.due(w.index)
	w.t.a.tend.checkpoint(snap.Table(), snap)
	if now := markOf(snap); now.version == before.version+1 {
		w.news.note = now.String() // nobody else's are among them
	}
	if c.ended == nil {
		c.ended = map[int32]string{}
	}
	maps.Copy(c.ended, w.ended)
	return nil
}

// unconcerned reports whether the tombstones that came since the upsert was found, up to this version, are of other keys than
// its own. What cannot be read is none of our keys' for sure.
func (u *upsert) unconcerned(ctx context.Context, now int64) bool {
	tombs, err := u.t.tombstones.look(ctx)
	if err != nil || tombs == nil || tombs.Version() < now {
		return false
	}
	if now <= u.decided {
		return true
	}
	if u.rows.divided { // its own keys are not all at hand: nobody else's may have come
		return now == u.buried && now == u.decided+1
	}
	ours := map[keyindex.Fingerprint]bool{}
	for i := range u.keys {
		ours[u.keys[i].key] = true
	}
	other := true
	for lc, err := range tombs.Table().Commits(ctx, u.decided+1, now) {
		if err != nil {
			return false
		}
		var files []delta.Add
		for _, a := range lc.Actions {
			if a.Add != nil && lc.Version != u.buried {
				files = append(files, *a.Add)
			}
		}
		err := u.index.eachTombstone(ctx, tombs, files, func(keys []keyindex.Fingerprint, _ []byte) error {
			other = other && !slices.ContainsFunc(keys, func(key keyindex.Fingerprint) bool { return ours[key] })
			return nil
		})
		if err != nil || !other {
			return false
		}
	}
	return true
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
	for _, c := range u.rows.named(u.t.key()) {
		columns = append(columns, expr.Take(c, expr.SpansOf(rows)))
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
