package lake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
)

// commitKeyed applies what was gathered. A winner that touched none of our keys costs nothing; any other one, another look-up.
func (c *commit) commitKeyed(ctx context.Context) (delta.CommitResult, error) {
	return c.land(ctx, func(ctx context.Context, snap *delta.Snapshot) (delta.CommitResult, error) {
		done, err := c.applyTo(ctx, snap)
		if staleIndex(err) {
			c.t.index.complain(err)
			err = errAgain
			if e := c.t.index.rebuild(ctx, snap); e != nil {
				err = e
			}
		}
		if err != nil {
			return delta.CommitResult{}, err
		}
		return delta.CommitResult{Version: done.Version, Retries: done.Retries, Snapshot: done.Snapshot}, nil
	})
}

// applyTo makes one attempt on the snapshot.
func (c *commit) applyTo(ctx context.Context, snap *delta.Snapshot) (*delta.EditResult, error) {
	set, err := c.expected(snap)
	if err != nil {
		return nil, err
	}
	return c.apply(ctx, snap, set)
}

// apply applies what was gathered to the snapshot, in a commit with this progress.
func (c *commit) apply(ctx context.Context, snap *delta.Snapshot, set txns) (*delta.EditResult, error) {
	if err := c.t.checkPolicies(snap); err != nil {
		return nil, err
	}
	meta, err := c.fit(snap)
	if err != nil {
		return nil, err
	}
	w, err := c.prepare(ctx, snap, meta)
	if err != nil {
		return nil, err
	}
	defer func() { w.close() }()
	if err := c.before(ctx, snap, w, set); err != nil {
		return nil, errors.Join(err, w.abort(ctx))
	}
	reads := w.reads()
	done, err := w.edit.Commit(ctx, delta.EditCommit{
		Operation: "STREAMING UPDATE", Params: c.withGroup(w.told()), Fill: func(tx *delta.Transaction) {
			set.addTo(tx, snap)
			c.t.expectResync(tx, snap)
			c.t.tombstones.fence(tx, snap, c.t.index.tombs, func(now int64) bool { return w.unconcerned(ctx, now) })
			tx.ReadWhere(reads)
		}})
	if err != nil {
		c.uncertain = c.uncertain || !errors.Is(err, delta.ErrConflict) && !errors.Is(err, delta.ErrRowGone)
		return nil, err
	}
	c.bytes, c.files = done.BytesAdded, done.FilesAdded
	if err := c.t.index.landed(ctx, done, &w.news); err != nil {
		c.t.index.distrust(err)
	}
	c.settleReturned(ctx)
	return done, nil
}

// before commits what must be there before the table moves past the rows: those that it does not take, those that wait no
// longer, rows that it deletes, keys that it deletes.
func (c *commit) before(ctx context.Context, snap *delta.Snapshot, w *upsertWriter, set txns) error {
	if err := c.quarantineKeys(ctx); err != nil {
		return err
	}
	if err := c.intend(ctx, snap, w.upsert, set); err != nil {
		return err
	}
	if err := w.log.commit(ctx, w.t); err != nil {
		return err
	}
	return c.bury(ctx, w) // last: what is buried is no news to an attempt that comes after a crash, and it would log nothing
}

// noteBeside takes note of what the changes that were put last tell tables beside: rows that are not taken, keys that are
// deleted, rows that are deleted.
func (c *commit) noteBeside(ctx context.Context, w *upsertWriter) error {
	c.noteRejects(w.upsert)
	if err := c.writeTombstones(ctx, w); err != nil {
		return err
	}
	return c.logDeletes(ctx, w)
}

// prepare finds out what the gathered rows do to the snapshot, and writes it.
func (c *commit) prepare(ctx context.Context, snap *delta.Snapshot, meta *delta.Metadata) (*upsertWriter, error) {
	if err := c.t.bringIndex(ctx, snap, c.keyed.columns); err != nil {
		return nil, err
	}
	to := meta
	if to == nil {
		to = snap.Metadata()
	}
	schema, err := to.Schema()
	if err != nil {
		return nil, err
	}
	waits, err := c.beside(ctx)
	if err != nil {
		return nil, err
	}
	c.found = map[freshet.Lane]map[place]*keyReject{}
	decided := markOf(c.t.index.tombs).version
	var w *upsertWriter
	err = errUndivided
	if c.keyed.spilled != nil {
		if err := c.keyed.spillAll(c.schema, c.t.opts.shareBytes()); err != nil {
			return nil, err
		}
		if waits == nil {
			w, err = c.prepareShares(ctx, snap, meta, to, schema)
		}
	}
	if errors.Is(err, errUndivided) {
		w, err = c.prepareAtOnce(ctx, snap, meta, to, schema, waits)
	}
	if err != nil {
		return nil, err
	}
	w.decided = decided
	return w, nil
}

// bringIndex brings the table's key index to the snapshot. given are the columns that the source has.
func (t *table) bringIndex(ctx context.Context, snap *delta.Snapshot, given []string) error {
	if t.index != nil && !t.index.suits(snap) {
		if err := t.index.close(); err != nil {
			return err
		}
		t.index = nil
	}
	if t.index == nil {
		index, err := newRowIndex(t, snap)
		if err != nil {
			return err
		}
		t.index = index
	}
	if err := t.lookAtTombstones(ctx, snap); err != nil {
		return err
	}
	if given != nil {
		t.index.given = given
	}
	return t.index.bring(ctx, snap)
}

// prepareAtOnce is prepare with all rows in memory.
func (c *commit) prepareAtOnce(ctx context.Context, snap *delta.Snapshot, meta, to *delta.Metadata, schema *delta.Schema,
	waits *waiting) (*upsertWriter, error) {
	var back []*freshet.Batch // what was spilled, the changes of each key in their order
	if c.keyed.spilled != nil {
		var err error
		if back, err = c.keyed.spilled.all(); err != nil {
			return nil, err
		}
	}
	all := gathered{batches: slices.Concat(back, c.keyed.batches), empties: c.keyed.empties}
	if waits != nil {
		all.batches = slices.Concat(waits.batches, all.batches)
	}
	rows, err := all.union(schema, to.PartitionColumns, c.t.looked())
	if err != nil {
		releaseBatches(back)
		return nil, err
	}
	rows.own, rows.waits, rows.divided = back, waits, c.keyed.spilled != nil
	w, err := c.t.writeFirst(ctx, snap, meta, to, rows, false)
	if err != nil {
		return nil, err
	}
	if err := c.noteBeside(ctx, w); err != nil {
		w.close()
		return nil, errors.Join(err, w.abort(ctx))
	}
	return w, nil
}

// writeFirst finds out what the rows do to the table and writes it, under the metadata to; meta is nil where these are as
// they were. It takes the rows over. shared: others follow in the same edit.
func (t *table) writeFirst(ctx context.Context, snap *delta.Snapshot, meta, to *delta.Metadata, rows *changeRows, shared bool) (
	*upsertWriter, error) {
	u, put, err := t.find(ctx, snap, to, rows)
	if err != nil {
		return nil, err
	}
	w, err := u.begin(ctx, meta, shared)
	if err != nil {
		u.close()
		return nil, err
	}
	if err := put(ctx, w); err != nil {
		w.close()
		return nil, errors.Join(err, w.abort(ctx))
	}
	return w, nil
}

// writeNext is writeFirst of other rows, of other keys, in the edit that is begun.
func (t *table) writeNext(ctx context.Context, snap *delta.Snapshot, to *delta.Metadata, rows *changeRows, w *upsertWriter) error {
	w.close()
	u, put, err := t.find(ctx, snap, to, rows)
	if err != nil {
		return err
	}
	u.counts.add(w.counts)
	u.feed = u.feed && !u.rows.empties
	w.upsert = u
	return put(ctx, w)
}

// find finds out what the rows do to the table, and returns what puts it into an edit. It takes the rows over.
func (t *table) find(ctx context.Context, snap *delta.Snapshot, to *delta.Metadata, rows *changeRows) (
	u *upsert, put func(context.Context, *upsertWriter) error, err error) {
	if u, err = undecided(t, snap, to, rows); err != nil {
		rows.release()
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			u.close()
		}
	}()
	put = func(ctx context.Context, w *upsertWriter) error { return w.putAll(ctx) }
	switch {
	case t.opts.Mode == SCD2:
		var h *history
		h, err = newHistory(ctx, u)
		put = func(ctx context.Context, w *upsertWriter) error { return h.put(ctx, w) }
	case t.opts.Dedupe != nil:
		err = u.dedupe()
	default:
		err = u.findOut(ctx)
	}
	return u, put, err
}

// close gives up the upsert's memory, once or more often.
func (u *upsert) close() {
	u.rows.release()
	u.stored.release()
	u.past.release()
	u.stored, u.past = nil, nil
}

// noteRejects takes note of the rows of an upsert, all of which is written, that turned out to be unacceptable.
func (c *commit) noteRejects(u *upsert) {
	u.rejectKeys()
	for i := range u.rejects {
		r := &u.rejects[i]
		lane := u.rows.lane(r.row)
		if c.found[lane] == nil {
			c.found[lane] = map[place]*keyReject{}
		}
		c.found[lane][place{r.Seq, r.Reject.Row}] = r
	}
}

// quarantineKeys puts rows that turned out to be unacceptable into quarantine, before the main table moves past them. What
// an attempt before put there and this one takes has landed.
func (c *commit) quarantineKeys(ctx context.Context) error {
	now := c.found
	rows := newQuarantineRows(c.t.a.app, c.t.name)
	defer rows.release()
	lanes := map[freshet.Lane]int64{}
	for lane, rejects := range now {
		for at, r := range rejects {
			if _, told := c.told[lane][at]; !told {
				change, err := r.change()
				if err != nil {
					return err
				}
				rows.addChange(eventRejected, lane, &r.Reject, change)
				lanes[lane] = c.lanes[lane].last
			}
		}
	}
	for lane, told := range c.told {
		for at := range told {
			if now[lane][at] == nil {
				rows.add(eventLanded, lane, &freshet.Reject{Seq: at.seq, Row: at.row})
				lanes[lane] = c.lanes[lane].last
			}
		}
	}
	if err := c.t.quarantineNow(ctx, rows, lanes); err != nil {
		return err
	}
	c.told = now
	return nil
}

// reads is the condition that the rows of the table meet on which the commit depends: those whose key lies between the
// least and the greatest of ours.
func (w *upsertWriter) reads() *expr.Expr {
	if w.rows.empties || w.shared || w.alike != nil {
		return nil // all of them
	}
	var all []*expr.Expr
	columns := w.rows.named(w.t.key())
	for i, name := range w.t.key() {
		c := columns[i]
		low, high, ok := bounds(c)
		if !ok {
			continue
		}
		lo, okLo := expr.Literal(c, low)
		hi, okHi := expr.Literal(c, high)
		if f, _ := w.schema.Lookup(name); okLo && okHi {
			column := expr.Name(f.Name)
			all = append(all, expr.Compare(">=", column, lo), expr.Compare("<=", column, hi))
		}
	}
	return expr.And(all...)
}

// bounds are the rows of the least and the greatest value of a column; ok is false where there is no order to use.
func bounds(arr arrow.Array) (low, high int, ok bool) {
	switch a := arr.(type) {
	case *array.Int64:
		return extremes(a.Len(), a.IsNull, a.Value)
	case *array.Int32:
		return extremes(a.Len(), a.IsNull, a.Value)
	case *array.Int16:
		return extremes(a.Len(), a.IsNull, a.Value)
	case *array.Int8:
		return extremes(a.Len(), a.IsNull, a.Value)
	case *array.Date32:
		return extremes(a.Len(), a.IsNull, a.Value)
	case *array.Timestamp:
		return extremes(a.Len(), a.IsNull, a.Value)
	case *array.String:
		return extremes(a.Len(), a.IsNull, a.Value)
	}
	return 0, 0, false
}

func extremes[T cmp.Ordered](n int, null func(int) bool, value func(int) T) (low, high int, ok bool) {
	low = -1
	for i := range n {
		switch {
		case null(i):
		case low < 0:
			low, high = i, i
		case value(i) < value(low):
			low = i
		case value(i) > value(high):
			high = i
		}
	}
	return low, high, low >= 0
}

// distrust has the index opened and brought forward anew before it is used next. What went wrong with it concerns nobody
// else: the commit has landed.
func (r *rowIndex) distrust(err error) {
	if !errors.Is(err, context.Canceled) { // the run ends
		r.t.opts.Retry("key index of "+r.t.name, err)
		r.t.opts.Recovered("key index of " + r.t.name)
	}
	_ = r.close()
	r.files.clear()
}

// told are the parameters of the commit: what its metrics do not say of keys that changed nothing, or that came by several
// lanes with nothing to order them, is told in the table's history.
func (u *upsert) told() map[string]string {
	params := u.t.streaming("Update")
	if !u.t.opts.Mode.keyed() {
		params["outputMode"] = "Append"
	}
	for name, n := range map[string]int64{"freshet.lateChanges": u.counts.late, "freshet.sameChanges": u.counts.same,
		"freshet.duplicates": u.counts.duplicates, "freshet.missingDeletes": u.counts.missing, "freshet.unorderedKeys": u.counts.crossed,
		"freshet.lateInserts": u.counts.inserts} {
		if n > 0 {
			params[name] = fmt.Sprint(n)
		}
	}
	return params
}

// streaming are the parameters of a commit of the stream, in Spark's words.
func (t *table) streaming(outputMode string) map[string]string {
	return map[string]string{"outputMode": outputMode, "queryId": t.a.app, "epochId": fmt.Sprint(t.epoch.Add(1) - 1)}
}
