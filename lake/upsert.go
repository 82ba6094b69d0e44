package lake

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/internal/keyindex"
)

// writeRows is how many rows are written at once, at most; enoughRows are enough for that.
const (
	writeRows  = 32 << 10
	enoughRows = 4 << 10
)

// upsert is what one commit does to a keyed table, found on one snapshot of it:
//
//	gathered ─ union ─▶ changeRows ─ collapse ─▶ one keyChange a key
//	   ─ look up ─▶ where the key lies ─▶ stored rows, where one is needed ─ walk ─▶ insert, update, delete, or nothing
//	   ─ assemble ─▶ rows to write, places to mark: delta.Edit
type upsert struct {
	t      *table
	snap   *delta.Snapshot
	schema *delta.Schema // of the table to come
	index  *rowIndex
	feed   bool // the table records change data
	rows   *changeRows
	causes []*causes              // by batch of rows; nil where none was asked for
	hashes []keyindex.Fingerprint // of each row of rows
	keys   []keyChange
	seqs   []byte         // of each row of rows
	free   map[int32]bool // deletes that were sent without a sequence: they stand behind whatever is known
	lanes  int            // by which the rows came

	together *collapser // of rows

	alike  map[keyindex.Fingerprint]int64 // of a table without a key: the number of the next row of each content; nil: it has a key
	at     []keyindex.Position            // of each key
	files  map[keyindex.FileID]delta.Add  // those in which a key lies whose row may change
	known  []byte                         // the order that the index has of each key
	acts   []act                          // of each key
	logged []deletion                     // deletes that found a row, where they are logged
	stored *storedRows                    // nil: none was needed
	past   *storedPeriods                 // of a history, in the place of stored

	decided int64 // the version of the tombstones that it is found on
	buried  int64 // that of its own; 0: it has none

	counts  upsertCounts
	rejects []keyReject
	stays   []keyReject // of rows that came out of quarantine and stay there
}

// keyReject is a reject and the row that it is of.
type keyReject struct {
	freshet.Reject
	row   int32
	waits *waitingRow // nil: it does not wait
}

// upsertCounts are how many keys fared how.
type upsertCounts struct {
	late       int64 // below the sequence that is stored
	same       int64 // as it is stored
	missing    int64 // deletes of keys that were not there
	duplicates int64 // rows that the table has
	crossed    int64 // keys that came by several lanes although nothing orders these
	inserts    int64 // updates of keys that were not there, with all columns: they were inserted
}

// add adds what was counted elsewhere.
func (c *upsertCounts) add(o upsertCounts) {
	c.late, c.same, c.missing = c.late+o.late, c.same+o.same, c.missing+o.missing
	c.duplicates, c.crossed, c.inserts = c.duplicates+o.duplicates, c.crossed+o.crossed, c.inserts+o.inserts
}

// act is what becomes of a key.
type act uint8

const (
	actNone act = iota
	actInsert
	actUpdate
	actDelete
	actBury // there is no row, and that the key was deleted is news
)

// findOut finds out what the gathered rows do to the table as the snapshot has it. Rows that it cannot take are in
// the rejects of their batches.
func (u *upsert) findOut(ctx context.Context) error {
	if u.t.opts.multiset(u.t.name) {
		return u.findAlike(ctx)
	}
	if err := u.collapse(); err != nil {
		return err
	}
	if err := u.lookUp(); err != nil {
		return err
	}
	if err := u.findFiles(ctx); err != nil {
		return err
	}
	return u.decide(ctx)
}

// undecided is an upsert of which nothing is found out yet.
func undecided(t *table, snap *delta.Snapshot, meta *delta.Metadata, rows *changeRows) (*upsert, error) {
	u := &upsert{t: t, snap: snap, index: t.index, rows: rows, causes: make([]*causes, len(rows.batches)),
		feed: strings.EqualFold(snap.Property(changeFeed), "true")}
	schema, err := meta.Schema()
	if err != nil {
		return nil, err
	}
	u.schema = schema
	return u, nil
}

// collapse puts the changes of each key together.
func (u *upsert) collapse() error {
	o := &u.t.opts.Key
	key := u.rows.named(u.t.key())
	null := func(columns []arrow.Array, row int) bool {
		return slices.ContainsFunc(columns, func(c arrow.Array) bool { return c.IsNull(row) })
	}
	skip := make([]bool, len(u.rows.kinds))
	for row, kind := range u.rows.kinds {
		skip[row] = null(key, row) || u.ignores(kind)
	}
	keys, err := u.hash(key, skip)
	if err != nil {
		return err
	}
	sequence := u.rows.named(o.SequenceBy)
	u.free = map[int32]bool{}
	for row, kind := range u.rows.kinds {
		switch {
		case skip[row], !null(sequence, row):
		case kind == freshet.Delete:
			u.free[int32(row)] = true
		default:
			skip[row] = true
		}
	}
	u.hashes = keys
	u.together = &collapser{rows: u.rows, keys: keys}
	if s := u.index.sequence; s != nil {
		u.seqs = s.append(nil, sequence, len(keys))
		u.together.sequence, u.together.width = u.seqs, s.width
		u.together.moveKeys(skip)
	}
	lanes := map[freshet.Lane]bool{}
	for _, b := range u.rows.batches {
		lanes[b.Lane] = true
	}
	u.lanes = len(lanes)
	arrived := u.together.arrived(skip)
	u.keys = make([]keyChange, len(arrived))
	for i, all := range arrived {
		u.keys[i] = keyChange{key: all[0].key, changes: all}
	}
	return nil
}

// ignores reports whether a row of this kind says nothing: it is a delete, and these are ignored.
func (u *upsert) ignores(kind freshet.Kind) bool {
	return u.t.opts.Key.Deletes == IgnoreDeletes && kind == freshet.Delete && !u.rows.divided
}

// noRow is no row of the changes.
const noRow int32 = -1

// hash makes the fingerprint of each row; rows to skip have the zero one.
func (u *upsert) hash(key []arrow.Array, skip []bool) ([]keyindex.Fingerprint, error) {
	if !slices.Contains(skip, true) {
		return u.index.x.Hasher().Append(nil, key)
	}
	var rows []int32
	for row, is := range skip {
		if !is {
			rows = append(rows, int32(row))
		}
	}
	spans := expr.SpansOf(rows)
	some := make([]arrow.Array, len(key))
	for i, c := range key {
		some[i] = expr.Take(c, spans)
		defer some[i].Release()
	}
	hashed, err := u.index.x.Hasher().Append(nil, some)
	if err != nil {
		return nil, err
	}
	out := make([]keyindex.Fingerprint, len(skip))
	for i, row := range rows {
		out[row] = hashed[i]
	}
	return out, nil
}

func (u *upsert) lookUp() error {
	keys := make([]keyindex.Fingerprint, len(u.keys))
	for i := range u.keys {
		keys[i] = u.keys[i].key
	}
	u.at = make([]keyindex.Position, len(keys))
	u.known = make([]byte, len(keys)*u.index.identity.SequenceBytes)
	if u.rows.empties {
		return nil // no key has a row
	}
	return u.index.x.Lookup(keys, u.at, u.known)
}

// findFiles finds the files in which rows lie that are to be read or to go.
func (u *upsert) findFiles(ctx context.Context) (err error) {
	wanted := map[keyindex.FileID]bool{}
	for i := range u.keys {
		if u.touches(i) {
			wanted[u.at[i].File] = true
		}
	}
	u.files, err = u.index.find(ctx, u.snap, wanted)
	return err
}

// touches reports whether the key has a row that the changes may change: not all of them are late.
func (u *upsert) touches(i int) bool {
	if !u.there(i) {
		return false
	}
	if u.index.sequence == nil {
		return true
	}
	known := u.index.orderOf(u.known, i).sequence()
	return slices.ContainsFunc(u.keys[i].changes, func(c change) bool {
		return u.free[c.row] || bytes.Compare(u.together.sequenceOf(c.row), known) >= 0
	})
}

// there reports whether the key has a row.
func (u *upsert) there(i int) bool { return u.at[i].File != 0 && u.at[i].File != keyindex.Tombstone }

// order is where the row stands among the changes of its key.
func (u *upsert) order(row int32) order {
	w := u.index.sequence.width
	return newOrder(u.seqs[int(row)*w:(int(row)+1)*w], u.rows.lane(row), u.rows.seq(row))
}

// decide reads the stored rows that are needed and settles what becomes of each key.
func (u *upsert) decide(ctx context.Context) error {
	moves := u.findMoves()
	if err := u.readNeeded(ctx, moves); err != nil {
		return err
	}
	if err := u.follow(moves); err != nil {
		return err
	}
	u.acts = make([]act, len(u.keys))
	for i := range u.keys {
		u.acts[i] = u.walk(i)
	}
	return nil
}

// updates reports whether the row was sent as an update.
func (u *upsert) updates(row int32) bool {
	return u.rows.batches[u.rows.from[row]].Kinds != nil && u.rows.kinds[row] == freshet.UpdatePostimage
}

// stale reports whether the index must have been wrong, so that it is to be made anew.
func staleIndex(err error) bool {
	return errors.Is(err, keyindex.ErrCorrupt) || errors.Is(err, delta.ErrRowGone)
}

const partialText = "some columns were not sent, and the table has no row of this key that knows them"

// rejectKeys makes rejects of all rows that cannot be taken.
func (u *upsert) rejectKeys() {
	for i := range u.keys {
		rest := u.keys[i].rest()
		for _, row := range rest.waiting {
			u.reject(row, freshet.CodePartialRow, partialText)
		}
		for _, c := range rest.contenders {
			u.rejectTie(c)
		}
	}
}

func (u *upsert) reject(row int32, code freshet.Code, why string) {
	if u.rows.returned(row) {
		u.stays = append(u.stays, keyReject{Reject: freshet.Reject{Code: code, Step: "write", Message: why}, row: row})
		return
	}
	b := u.rows.batches[u.rows.from[row]]
	r := keyReject{Reject: rowReject(b, int(u.rows.row[row]), code, why), row: row}
	if code == freshet.CodePartialRow && !u.index.numbers() {
		r.waits = u.waitingRow(&r)
	}
	u.rejects = append(u.rejects, r)
}
