package lake

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/internal/keyindex"
)

// A replay into a group brings what it decodes to the tables beside the table first, and then to the table:
//
//	change log                                the table
//	has the row? else add it, replay n+1  ─▶  replaying #n, the rows, replayed (replay.go)
//
// What a change log has is told by the change columns of its rows, so whoever crashes in between, and whatever of a row was
// logged when it was rejected, each is there once. The number keeps two replays from adding one row both.
//
// Rows that were read, and are no changes of a log (Batch.Behind), have other change columns when they are read again, as they are for the log
// alone when a process died between the commits of the two. Of such a row it counts that the log has one of its key and kind that was read then or later.

// unreadBeside is unread of the tables beside this one.
func (t *table) unreadBeside(ctx context.Context, entries []*Entry) (map[*Entry]bool, error) {
	all := map[*Entry]bool{}
	for _, beside := range t.a.beside {
		_, snap, err := beside.of(ctx, t)
		if err != nil {
			return nil, err
		}
		if snap == nil {
			continue // it begins where the table stands
		}
		for e := range beside.Target.unread(snap, entries) {
			all[e] = true
		}
	}
	return all, nil
}

// of is the table beside another, with its newest snapshot; nil when it is not there.
func (b *Beside) of(ctx context.Context, t *table) (*table, *delta.Snapshot, error) {
	mine, err := b.Target.table(b.Name(t.name))
	if err != nil {
		return nil, nil, err
	}
	snap, err := mine.look(ctx)
	return mine, snap, err
}

// replayBeside adds what came of the entries to the tables beside this one, as far as they do not have it. Errors:
// delta.ErrConflict when another replay was there first.
func (t *table) replayBeside(ctx context.Context, entries []*Entry, b *freshet.Batch) error {
	if b.NumRows() == 0 {
		return nil
	}
	for _, beside := range t.a.beside {
		mine, snap, err := beside.of(ctx, t)
		if err != nil {
			return err
		}
		if snap == nil {
			continue
		}
		if err := mine.logReplayed(ctx, snap, t.key(), entries, copyOf(b, mine.name)); err != nil {
			return fmt.Errorf("%s: %w", mine.name, err)
		}
	}
	return nil
}

// logReplayed adds to a change log the rows of the batch that it has not, and releases the batch. key are the columns by which rows of
// the table are told apart.
func (t *table) logReplayed(ctx context.Context, snap *delta.Snapshot, key []string, entries []*Entry, b *freshet.Batch) error {
	defer b.Release()
	defer t.discard()
	has, err := loggedChanges(ctx, snap, entryCauses(b, entries))
	if err == nil {
		err = loggedReadings(ctx, snap, key, entries, b, has)
	}
	if err != nil {
		return err
	}
	var missing []int32
	for row := range b.NumRows() {
		if !has[row] {
			missing = append(missing, int32(row))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	b.Seqs, b.Kinds, b.Stamps = slices.Clone(b.Seqs), slices.Clone(b.Kinds), slices.Clone(b.Stamps)
	b.Places, b.Records = slices.Clone(b.Places), slices.Clone(b.Records) // which the table itself needs whole
	leaveRows(b, missing)
	if err := t.writeRows(ctx, entryCauses(b, entries)); err != nil {
		return err
	}
	c, err := t.seal(ctx)
	if err != nil {
		return err
	}
	last, _ := snap.Txn(t.a.form().replayTxn())
	_, err = c.replay(ctx, snap, last+1, txns{})
	return err
}

// loggedChange tells a change in a log from others.
type loggedChange struct {
	position string
	ordinal  int64
	old      bool // it is the row before an update, which has the place of the row after it
}

// loggedChanges tells which rows a change log has.
func loggedChanges(ctx context.Context, snap *delta.Snapshot, c *causes) (map[int]bool, error) {
	wanted := map[loggedChange][]int{}
	low, high := int64(math.MaxInt64), int64(math.MinInt64)
	for row := range c.NumRows() {
		lane, seq := c.place(row)
		change := c.at(row)
		at := loggedChange{lane.Position(seq), change.ordinal(), change.kind == freshet.UpdatePreimage}
		wanted[at] = append(wanted[at], row)
		low, high = min(low, seq), max(high, seq)
	}
	where, err := parseCondition([]string{fmt.Sprintf("%s BETWEEN %d AND %d", CommitVersionColumn, low, high)})
	if err != nil {
		return nil, err
	}
	has := map[int]bool{}
	opts := &delta.ScanOptions{Columns: []string{PositionColumn, ChangeTypeColumn, OrdinalColumn, CommittedAtColumn}, Where: where}
	for rec, err := range snap.Scan(ctx, opts) {
		if err != nil {
			return nil, err
		}
		at, kind := rec.Column(0).(*array.String), rec.Column(1).(*array.String)
		nth, when := rec.Column(2).(*array.Int64), rec.Column(3).(*array.Timestamp)
		for i := range at.Len() {
			if at.IsNull(i) || nth.IsNull(i) {
				continue
			}
			old := kind.Value(i) == delta.ChangePreimage
			for _, row := range wanted[loggedChange{at.Value(i), nth.Value(i), old}] {
				// Of an origin that was made again the same position is another record's, of another time.
				mine := c.at(row).committed()
				has[row] = has[row] || when.IsNull(i) || mine == 0 || int64(when.Value(i)) == mine
			}
		}
		rec.Release()
	}
	return has, nil
}

// loggedReading tells a row that was read from others of a log.
type loggedReading struct {
	key  keyindex.Fingerprint
	kind freshet.Kind
}

// loggedReadings adds to what a change log has the rows that it has from another reading.
func loggedReadings(ctx context.Context, snap *delta.Snapshot, key []string, entries []*Entry, b *freshet.Batch, has map[int]bool) error {
	var open []int
	for row, seq := range b.Seqs {
		if entries[seq].behind() != nil && !has[row] {
			open = append(open, row)
		}
	}
	if len(open) == 0 || len(key) == 0 {
		return nil
	}
	hasher, changes := keyindex.NewHasher(len(key)), entryCauses(b, entries)
	keys, err := fingerprintsOf(hasher, key, b.Rows)
	if err != nil {
		return err
	}
	wanted, low := map[loggedReading][]int{}, int64(math.MaxInt64)
	for _, row := range open {
		of := loggedReading{keys[row], changes.at(row).kind}
		wanted[of] = append(wanted[of], row)
		_, seq := changes.place(row)
		low = min(low, seq)
	}
	where, err := parseCondition([]string{fmt.Sprintf("%s >= %d", CommitVersionColumn, low),
		fmt.Sprintf("%[1]s >= %[2]d AND %[1]s < %[3]d", OrdinalColumn, freshet.ReadOrdinals, resyncOrdinals)})
	if err != nil {
		return err
	}
	opts := &delta.ScanOptions{Columns: slices.Concat(key, []string{CommitVersionColumn, ChangeTypeColumn}), Where: where}
	for rec, err := range snap.Scan(ctx, opts) {
		if err != nil {
			return err
		}
		found, err := fingerprintsOf(hasher, key, rec)
		seqs, kinds := rec.Column(len(key)).(*array.Int64), rec.Column(len(key)+1).(*array.String)
		for i, k := range found {
			for _, row := range wanted[loggedReading{k, kindOf(kinds.Value(i))}] {
				_, seq := changes.place(row)
				has[row] = has[row] || seqs.Value(i) >= seq
			}
		}
		rec.Release()
		if err != nil {
			return err
		}
	}
	return nil
}
