package lake

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/internal/keyindex"
)

// intent says which rows that wait a commit is about to take: under this number they are in quarantine as "replaying".
type intent struct {
	number int64
	rows   map[*waitingRow]bool
}

// beside are the rows that wait, for the commit to look at. A replay brings its own.
func (c *commit) beside(ctx context.Context) (*waiting, error) {
	if c.replays != nil {
		return c.replays, c.replays.make()
	}
	t := c.t
	if !t.opts.Mode.keyed() || t.opts.multiset(t.name) {
		return nil, nil
	}
	if t.waitsStale.Swap(false) || t.waits == nil {
		if err := t.loadWaiting(ctx); err != nil {
			t.waitsStale.Store(true)
			return nil, err
		}
	}
	if t.waits.empty() {
		return nil, nil
	}
	return t.waits, t.waits.make()
}

// behind are rows out of quarantine that stand behind all of this commit, where no sequence tells: those of a key of which
// the commit has no row of their lane. The change they tell of was one of a row that was there.
func (u *upsert) behind() map[int32]bool {
	if u.rows.waits == nil {
		return nil
	}
	waits := map[keyindex.Fingerprint]bool{}
	n := int32(len(u.rows.waits.rows))
	for _, key := range u.hashes[:n] {
		waits[key] = true
	}
	type keyOfLane struct {
		key  keyindex.Fingerprint
		lane freshet.Lane
	}
	has := map[keyOfLane]bool{}
	for row := n; row < int32(len(u.hashes)); row++ {
		if key := u.hashes[row]; waits[key] {
			has[keyOfLane{key, u.rows.lane(row)}] = true
		}
	}
	behind := map[int32]bool{}
	for row := range n {
		if !has[keyOfLane{u.hashes[row], u.rows.lane(row)}] {
			behind[row] = true
		}
	}
	return behind
}

// released are the rows that wait no longer once the upsert has landed: their key's row is there, with what they say or
// with what stands behind them.
func (u *upsert) released() map[*waitingRow]bool {
	out := map[*waitingRow]bool{}
	if u.rows.waits == nil {
		return out
	}
	stay := map[entryPlace]bool{} // of a record that became several rows, all are taken or none
	for i := range u.stays {
		stay[u.rows.waits.rows[u.stays[i].row].entry().place()] = true
	}
	for row, r := range u.rows.waits.rows {
		if u.t.opts.Mode == SCD2 {
			out[r] = true
			continue
		}
		i, ok := u.keyAt(u.hashes[row])
		if ok && !slices.Contains(u.keys[i].rest().waiting, int32(row)) {
			out[r] = true
		} else {
			stay[r.entry().place()] = true
		}
	}
	maps.DeleteFunc(out, func(r *waitingRow, _ bool) bool { return stay[r.entry().place()] })
	return out
}

// waitingRow is the row of this commit that was rejected, so that it can wait.
func (u *upsert) waitingRow(r *keyReject) *waitingRow {
	b := u.rows.batches[u.rows.from[r.row]]
	w := &waitingRow{app: u.t.a.app, table: u.t.name, lane: b.Lane, at: place{r.Seq, r.Reject.Row}, kind: u.rows.kinds[r.row],
		stamp: freshet.Stamp{Ordinal: -1}, record: freshet.Record{Time: r.Time, TimeKind: r.TimeKind}}
	if b.Stamps != nil {
		w.stamp = b.Stamps[u.rows.row[r.row]]
	}
	var fields []arrow.Field
	var columns []arrow.Array
	for i, f := range u.rows.schema.Fields() {
		if !u.rows.unsent.Has(int(r.row), i) {
			of, at := u.rows.at(i, r.row)
			one := expr.Take(of, []expr.Span{{From: int(at), To: int(at) + 1}})
			fields, columns = append(fields, f), append(columns, one)
		}
	}
	w.sent = array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, 1)
	for _, column := range columns {
		column.Release()
	}
	return w
}

// change is the change for quarantine, nil for a row that does not wait.
func (r *keyReject) change() ([]byte, error) {
	if r.waits == nil {
		return nil, nil
	}
	return r.waits.encode()
}

// intend puts it into quarantine which rows the commit is about to take, unless an attempt before has done so, and adds to
// set what tells that they landed. Errors: delta.ErrConflict when one of them waits no longer.
func (c *commit) intend(ctx context.Context, main *delta.Snapshot, u *upsert, set txns) error {
	rows := u.released()
	maps.Copy(rows, c.gone)
	id := c.t.a.form().replayTxn()
	if c.replays != nil {
		c.stays = map[entryPlace]*freshet.Reject{}
		for i := range u.stays {
			c.stays[c.replays.rows[u.stays[i].row].entry().place()] = &u.stays[i].Reject
		}
	}
	switch {
	case len(rows) == 0 && c.replays != nil:
		return errNothingReturned
	case len(rows) == 0:
		return nil
	}
	if had, _ := main.Txn(id); c.intent == nil || !maps.Equal(c.intent.rows, rows) || had >= c.intent.number {
		number, err := c.t.intend(ctx, rows)
		if err != nil {
			c.t.waitsStale.Store(true)
			return err
		}
		c.intent = &intent{number, rows}
	}
	set[id] = c.intent.number
	return nil
}

// intend settles what is under way, and begins anew with these rows.
func (t *table) intend(ctx context.Context, rows map[*waitingRow]bool) (int64, error) {
	main, snap, err := t.recover(ctx)
	if err != nil {
		return 0, err
	}
	if snap == nil {
		return 0, fmt.Errorf("%w: the quarantine table is gone", delta.ErrConflict)
	}
	if err := t.stillOpen(ctx, snap, rows); err != nil {
		return 0, err
	}
	s := t.settlement(main, snap)
	defer s.release()
	s.rows.replay = s.number
	said := map[entryPlace]bool{}
	for r := range rows {
		if e := r.entry(); !said[e.place()] { // one record may have become several rows
			said[e.place()] = true
			s.add(eventReplaying, e)
		}
	}
	return s.number, s.commit(ctx, t.quarantine.st, txns{replayingTxn(t.a.app, t.name): s.number})
}

// manyIDs is from how many entries on all of them are looked at rather than these.
const manyIDs = 200

// stillOpen fails when an entry of one of the rows was replayed or given up meanwhile.
func (t *table) stillOpen(ctx context.Context, snap *delta.Snapshot, rows map[*waitingRow]bool) error {
	wanted := map[entryPlace]bool{}
	filter := &Filter{App: t.a.app, Table: t.name}
	for r := range rows {
		wanted[r.entry().place()] = true
		if len(rows) <= manyIDs {
			filter.IDs = append(filter.IDs, r.entry().ID())
		}
	}
	err := scanEntries(ctx, snap, filter, func(e *Entry, _ error) bool {
		delete(wanted, e.place())
		return len(wanted) > 0
	})
	if err == nil && len(wanted) > 0 {
		err = fmt.Errorf("%w: %d rows in quarantine wait no longer", delta.ErrConflict, len(wanted))
	}
	return err
}

// settleReturned says in quarantine which rows were taken, and has those of the commit wait that must. The commit has
// landed: what fails here is done by whoever commits next.
func (c *commit) settleReturned(ctx context.Context) {
	t := c.t
	if c.intent != nil && c.replays == nil {
		t.waits.drop(c.intent.rows)
	}
	if c.intent != nil {
		if _, _, err := t.recover(ctx); err != nil {
			t.waitsStale.Store(true)
		}
	}
	for _, rejects := range c.told {
		for _, r := range rejects {
			if r.waits != nil {
				t.waits.add(r.waits)
			}
		}
	}
}
