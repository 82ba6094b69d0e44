package lake

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// replayIndex is behind the app's name in that of the index of a replay: the pipeline, which may run, holds its own.
const replayIndex = "#replay"

// replayKeyed makes one commit of a replay into a keyed table: what the entries say goes through the same decisions as in
// the stream, as rows that wait do. Entries of which nothing came are taken too.
func (t *table) replayKeyed(ctx context.Context, main, snap *delta.Snapshot, entries []*Entry, b *freshet.Batch, present Present,
	done *Replayed) error {
	set := txns{}
	if present != nil {
		now, err := present(ctx, entries, b)
		if err != nil {
			return err
		}
		defer now.Release()
		defer func(came map[int64]bool) { done.passed(entries, came, now) }(seqsOf(b))
		b, set = now, t.a.form().standing(main)
	}
	c, err := t.replayCommit(ctx, main, entries, b, done)
	if err != nil {
		return err
	}
	defer c.replays.release()
	if c.replays.empty() {
		var gone []*Entry
		for r := range c.gone {
			gone = append(gone, r.entry())
		}
		if len(gone) == 0 {
			return nil
		}
		return t.take(ctx, main, snap, gone, done, set)
	}
	for rebuilt := false; ; rebuilt = true {
		landed, err := c.apply(ctx, main, maps.Clone(set))
		if staleIndex(err) && !rebuilt {
			if err := t.index.rebuild(ctx, main); err != nil {
				return err
			}
			continue
		}
		if errors.Is(err, errNothingReturned) {
			break
		}
		if err != nil {
			return err
		}
		t.saw(landed.Snapshot)
		done.Version = landed.Version
		break
	}
	t.tellReplayed(c, entries, done)
	return nil
}

// replayCommit is the commit of what came of the entries. Those that were rejected again are in done.Still.
func (t *table) replayCommit(ctx context.Context, main *delta.Snapshot, entries []*Entry, b *freshet.Batch, done *Replayed) (
	*commit, error) {
	c := &commit{t: t, keyed: &gathered{}, replays: &waiting{}, gone: map[*waitingRow]bool{}}
	if b.NumRows() > 0 {
		if err := t.accept(ctx, b.Rows.Schema()); err != nil {
			return nil, err
		}
		c.schema, c.meta, c.from = t.schema, t.meta, t.meta.HighWater()
	}
	if t.index == nil {
		index, err := newRowIndex(t, main)
		if err != nil {
			return nil, err
		}
		index.dir = filepath.Join(filepath.Dir(index.dir), safeName(t.a.app+replayIndex))
		t.index = index
	}
	came := map[int64]bool{}
	bad := t.badReplays(b)
	for row, n := range b.Seqs {
		came[n] = true
		if why := bad[n]; why == "" && !t.idleImage(b, row) {
			c.replays.add(replayedRow(entries[n], b, row))
		}
	}
	for n, why := range bad {
		b.Rejects = append(b.Rejects, freshet.Reject{Seq: n, Code: freshet.CodeNull, Step: "write", Message: why})
	}
	for _, e := range t.divide(entries, b, done) {
		if !came[indexOf(entries, e)] {
			c.gone[&waitingRow{app: e.App, table: e.Table, lane: e.Lane, at: place{e.Seq, e.Row}}] = true
		}
	}
	return c, nil
}

// seqsOf are the seqs of the batch's rows.
func seqsOf(b *freshet.Batch) map[int64]bool {
	out := map[int64]bool{}
	for _, seq := range b.Seqs {
		out[seq] = true
	}
	return out
}

// passed counts the entries that came and of which nothing is left now, and that are taken.
func (r *Replayed) passed(entries []*Entry, came map[int64]bool, now *freshet.Batch) {
	if r.Entries == 0 {
		return
	}
	still := map[entryPlace]bool{}
	for _, e := range r.Still {
		still[e.place()] = true
	}
	left := seqsOf(now)
	for seq := range came {
		if !left[seq] && !still[entries[seq].place()] {
			r.Passed++
		}
	}
}

// standing is all progress that the snapshot has of the app, to be found again.
func (f form) standing(snap *delta.Snapshot) txns {
	set := txns{}
	for id, txn := range snap.Txns() {
		if strings.HasPrefix(id, f.app+"-") {
			set[id] = txn.Version
		}
	}
	return set
}

func indexOf(entries []*Entry, e *Entry) int64 {
	for i := range entries {
		if entries[i] == e {
			return int64(i)
		}
	}
	return -1
}

// badReplays are the entries whose key or sequence is null, by index, with what is wrong.
func (t *table) badReplays(b *freshet.Batch) map[int64]string {
	out := map[int64]string{}
	if b.NumRows() == 0 {
		return out
	}
	for _, r := range t.required(t.key(), t.opts.Key.SequenceBy) {
		rows := map[int]string{}
		if c := columnNamed(b.Rows.Schema(), r.name); c >= 0 {
			r.lacking(b, c, rows)
		}
		for row, why := range rows {
			out[b.Seqs[row]] = why
		}
	}
	return out
}

// idleImage reports whether the row is the old image of an update that left the key as it was: it says nothing.
func (t *table) idleImage(b *freshet.Batch, row int) bool {
	if b.Kinds == nil || b.Kinds[row] != freshet.UpdatePreimage || row+1 == b.NumRows() {
		return false
	}
	for _, name := range t.key() {
		c := b.Rows.Column(columnNamed(b.Rows.Schema(), name))
		if !array.SliceEqual(c, int64(row), int64(row)+1, c, int64(row)+1, int64(row)+2) {
			return false
		}
	}
	return true
}

// replayedRow is a row that came of an entry.
func replayedRow(e *Entry, b *freshet.Batch, row int) *waitingRow {
	r := &waitingRow{app: e.App, table: e.Table, lane: e.Lane, at: place{e.Seq, e.Row}, kind: freshet.UpdatePostimage,
		stamp: freshet.Stamp{Ordinal: -1}, record: freshet.Record{Time: e.Time, TimeKind: e.TimeKind}}
	if b.Kinds != nil {
		r.kind = b.Kinds[row]
	}
	if b.Stamps != nil {
		r.stamp = b.Stamps[row]
	}
	var fields []arrow.Field
	var columns []arrow.Array
	for i, f := range b.Rows.Schema().Fields() {
		if !b.Unsent.Has(row, i) {
			fields, columns = append(fields, f), append(columns, b.Rows.Column(i))
		}
	}
	whole := array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, b.Rows.NumRows())
	defer whole.Release()
	r.sent, r.whole = whole.NewSlice(int64(row), int64(row)+1), !b.Unsent.Any(row)
	return r
}

// tellReplayed says which entries were taken, and why the others were not.
func (t *table) tellReplayed(c *commit, entries []*Entry, done *Replayed) {
	taken := map[entryPlace]bool{}
	if c.intent != nil {
		for r := range c.intent.rows {
			taken[r.entry().place()] = true
			if r.sent != nil {
				done.Rows++
			}
		}
	}
	done.Entries = len(taken)
	still := map[entryPlace]bool{}
	for _, e := range done.Still {
		still[e.place()] = true
	}
	for _, e := range entries {
		at := e.place()
		if taken[at] || still[at] {
			continue
		}
		why := c.stays[at]
		if why == nil {
			why = &freshet.Reject{Code: freshet.CodePartialRow, Message: partialText, Step: "write"}
		}
		done.stays(e, why)
	}
}

// errNothingReturned says that a replay changes nothing: all that it brought must wait still.
var errNothingReturned = errors.New("no row can be taken out of quarantine")
