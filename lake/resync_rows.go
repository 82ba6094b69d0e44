package lake

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/internal/keyindex"
)

// Rows that tell a change log of a resync are not of the source. Of the change columns they have
//
//	_position, _commit_version   where the swap stands in the lane of the key: behind what led there, before what comes
//	_ordinal                     n·2^40 + i of resync n: behind all that the source says of the same place
//	_source_tx                   "resync-<n>"
//	_committed_at                null
//
// A log of several lanes tells in which one a key is; one that it does not know has nothing to stand behind, and is put where
// the least has been read.
const resyncOrdinals = 2 * freshet.ReadOrdinals

// What is looked up at once, in rows and in bytes of them.
const (
	retoldRows  = 1 << 20
	retoldBytes = 64 << 20
)

// retelling writes what a swap did to rows into a change log. Rows of which more must be known wait, and are looked up
// together: a look-up reads the key columns of a whole table.
type retelling struct {
	swap
	log   *table          // that is written, and nothing else to it
	past  *delta.Snapshot // of the log
	lanes []LaneProgress  // of the table with the swap, in which changes come

	columns []string   // that are told
	ignored []string   // that are the target's own
	key     []string   // of the table; none in mode append
	paired  bool       // a row that is there and another that was of one key are an update
	alive   *expr.Expr // which rows of the table are there; nil: all

	hasher  *keyindex.Hasher
	ordinal int64
	waiting []retold
	rows    int
	bytes   int64
}

// retold are rows that wait.
type retold struct {
	rec   arrow.RecordBatch // the columns that are told
	kinds []freshet.Kind
	keys  []keyindex.Fingerprint // none in mode append
	first int64                  // their first ordinal
}

func newRetelling(t *table, log *table, past *delta.Snapshot, s swap) (*retelling, error) {
	o := &t.opts
	r := &retelling{swap: s, log: log, past: past, ordinal: s.number * resyncOrdinals,
		lanes: appProgress(s.after, t.a.app, map[string]bool{}).Lanes}
	r.lanes = slices.DeleteFunc(r.lanes, func(l LaneProgress) bool { return l.Seq >= loadedWhole }) // of histories
	column, alive := o.alive()
	told := withoutFills(log.fills, withoutFills(t.fills, s.after.Schema().Arrow()))
	for _, f := range s.after.Schema().Fields {
		switch {
		case told.HasField(f.Name):
			r.columns = append(r.columns, f.Name)
		case !strings.EqualFold(f.Name, column):
			r.ignored = append(r.ignored, f.Name)
		}
	}
	if !o.Mode.keyed() || o.multiset(t.name) {
		return r, nil
	}
	r.key, r.paired = t.key(), column == ""
	r.hasher = keyindex.NewHasher(len(r.key))
	if r.paired {
		return r, nil
	}
	var err error
	r.alive, err = expr.Parse(alive)
	return r, err
}

// alive is the column that tells which rows of a table are there, and the condition that they are; "": all are.
func (o *TargetOptions) alive() (column, condition string) {
	switch {
	case o.Mode == SCD2: // of a history, what is now
		return o.Periods.Current, quotedName(o.Periods.Current)
	case o.Mode.keyed() && o.Key.Deletes == SoftDeletes:
		return DeletedAtColumn, quotedName(DeletedAtColumn) + " IS NULL"
	}
	return "", ""
}

func quotedName(column string) string { return `"` + strings.ReplaceAll(column, `"`, `""`) + `"` }

// run writes all. Memory: retoldBytes, and what Changes and a writer need.
func (r *retelling) run(ctx context.Context) error {
	defer r.release()
	opts := &delta.ChangesOptions{Columns: r.columns, Ignore: r.ignored, Where: r.alive, Method: delta.MethodDiff,
		MemoryBytes: retoldBytes}
	if r.paired {
		opts.Key = r.key
	}
	v := r.after.Version()
	for c, err := range r.after.Table().Changes(ctx, v, v, opts) {
		if err != nil {
			return err
		}
		err := r.take(c.Batch)
		c.Batch.Release()
		if err == nil && (r.rows >= retoldRows || r.bytes >= retoldBytes) {
			err = r.flush(ctx)
		}
		if err != nil {
			return err
		}
	}
	return r.flush(ctx)
}

// take has the rows of a batch of changes wait.
func (r *retelling) take(b arrow.RecordBatch) error {
	n := len(r.columns)
	fields := b.Schema().Fields()[:n]
	w := retold{rec: array.NewRecordBatch(arrow.NewSchema(fields, nil), b.Columns()[:n], b.NumRows()), first: r.ordinal}
	words := b.Column(n).(*array.String)
	for i := range words.Len() {
		w.kinds = append(w.kinds, kindOf(words.Value(i)))
	}
	r.ordinal += b.NumRows()
	r.rows += len(w.kinds)
	for _, c := range w.rec.Columns() {
		r.bytes += int64(c.Data().SizeInBytes())
	}
	r.waiting = append(r.waiting, w)
	if r.hasher == nil {
		return nil
	}
	var err error
	r.waiting[len(r.waiting)-1].keys, err = fingerprintsOf(r.hasher, r.key, w.rec)
	return err
}

func kindOf(word string) freshet.Kind {
	for _, k := range []freshet.Kind{freshet.UpdatePreimage, freshet.UpdatePostimage, freshet.Delete} {
		if k.String() == word {
			return k
		}
	}
	return freshet.Insert
}

// fingerprintsOf are those of the keys in a batch that has the key's columns.
func fingerprintsOf(hasher *keyindex.Hasher, key []string, rec arrow.RecordBatch) ([]keyindex.Fingerprint, error) {
	columns := make([]arrow.Array, len(key))
	for i, name := range key {
		at := columnNamed(rec.Schema(), name)
		if at < 0 {
			return nil, fmt.Errorf("the table has no key column %q", name)
		}
		columns[i] = rec.Column(at)
	}
	return hasher.Append(nil, columns)
}

// known is what is looked up of a key.
type known struct {
	there bool // the table has a row of it
	lane  int  // in r.lanes; -1: the log has none
}

// flush writes what waits.
func (r *retelling) flush(ctx context.Context) error {
	keys := map[keyindex.Fingerprint]known{}
	gone := false
	for _, w := range r.waiting {
		for i, key := range w.keys {
			keys[key] = known{lane: -1}
			gone = gone || w.kinds[i] == freshet.Delete
		}
	}
	if gone { // of rows that had one key, all but one may have gone
		err := r.scan(ctx, r.after, r.alive, nil, keys, func(k *known, _ arrow.RecordBatch, _ int) { k.there = true })
		if err != nil {
			return err
		}
	}
	if len(keys) > 0 && len(r.lanes) > 1 {
		if err := r.findLanes(ctx, keys); err != nil {
			return err
		}
	}
	for _, w := range r.waiting {
		if err := r.write(ctx, w, keys); err != nil {
			return err
		}
	}
	r.release()
	return nil
}

func (r *retelling) release() {
	for _, w := range r.waiting {
		w.rec.Release()
	}
	r.waiting, r.rows, r.bytes = nil, 0, 0
}

// scan visits the rows of a table that have one of the keys.
func (r *retelling) scan(ctx context.Context, snap *delta.Snapshot, where *expr.Expr, more []string,
	keys map[keyindex.Fingerprint]known, visit func(k *known, rec arrow.RecordBatch, row int)) error {
	opts := &delta.ScanOptions{Columns: slices.Concat(r.key, more), Where: where}
	for rec, err := range snap.Scan(ctx, opts) {
		if err != nil {
			return err
		}
		found, err := fingerprintsOf(r.hasher, r.key, rec)
		for row, key := range found {
			if k, ok := keys[key]; ok {
				visit(&k, rec, row)
				keys[key] = k
			}
		}
		rec.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// findLanes finds out in which lane each key is: of those in which the log has it, the one that was read furthest.
func (r *retelling) findLanes(ctx context.Context, keys map[keyindex.Fingerprint]known) error {
	lanes := map[string]int{}
	for i, l := range r.lanes {
		lanes[l.Lane.String()] = i
	}
	return r.scan(ctx, r.past, nil, []string{PositionColumn}, keys, func(k *known, rec arrow.RecordBatch, row int) {
		at := rec.Column(int(rec.NumCols()) - 1).(*array.String)
		if at.IsNull(row) {
			return
		}
		name := at.Value(row)
		lane, ok := lanes[name[:max(0, strings.LastIndexByte(name, '@'))]]
		if ok && (k.lane < 0 || r.lanes[lane].Seq > r.lanes[k.lane].Seq) {
			k.lane = lane
		}
	})
}

// laneOf is where a key is; with others, where the least has been read.
func (r *retelling) laneOf(k known) LaneProgress {
	if k.lane >= 0 {
		return r.lanes[k.lane]
	}
	return slices.MinFunc(r.lanes, func(a, b LaneProgress) int { return int(min(1, max(-1, a.Seq-b.Seq))) })
}

// write writes rows to the log, but for those that went while the table has another one of their key.
func (r *retelling) write(ctx context.Context, w retold, keys map[keyindex.Fingerprint]known) error {
	w.rec.Retain()
	b := &freshet.Batch{Table: r.log.name, Rows: w.rec, Kinds: w.kinds}
	defer b.Release()
	at := make([]LaneProgress, len(w.kinds))
	var kept []int32
	for i, kind := range w.kinds {
		k := known{lane: -1}
		if w.keys != nil {
			k = keys[w.keys[i]]
		}
		if kind != freshet.Delete || !k.there {
			kept = append(kept, int32(i))
		}
		at[i] = r.laneOf(k)
		b.Seqs = append(b.Seqs, at[i].Seq)
		b.Stamps = append(b.Stamps, freshet.Stamp{Tx: fmt.Sprintf("resync-%d", r.number), Ordinal: w.first + int64(i)})
	}
	leaveRows(b, kept)
	if len(kept) == 0 {
		return nil
	}
	c := newCauses(b)
	c.place = func(row int) (freshet.Lane, int64) { l := at[kept[row]]; return l.Lane, l.Seq }
	if err := r.log.writeRows(ctx, c); err != nil {
		return err
	}
	if len(b.Rejects) > 0 {
		return fmt.Errorf("the change log does not take a row: %s", b.Rejects[0].Message)
	}
	return nil
}
