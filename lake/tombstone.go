package lake

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// TombstoneOptions say how deleted keys are remembered where changes may come late: in mode Upsert with SequenceBy.
type TombstoneOptions struct {
	// Table names the table that remembers the deleted keys of a table. Default TombstonesName.
	Table func(table string) string
	// Keep is how long they are remembered in source time: until a change comes whose first column of SequenceBy, a
	// timestamp or a date, is as much later than that of the delete. Default 7 days.
	Keep time.Duration
	// KeepCount is how many are remembered where that column is no time: those with the greatest sequences. Default 10
	// million.
	KeepCount int64
}

const (
	defaultKeep      = 7 * 24 * time.Hour
	defaultKeepCount = 10_000_000
)

// check finds what does not suit a sequence that begins with this type.
func (o *TombstoneOptions) check(first arrow.DataType) error {
	time := first.ID() == arrow.TIMESTAMP || first.ID() == arrow.DATE32
	switch {
	case time && o.KeepCount > 0:
		return fmt.Errorf("keep: found a number of tombstones, and the sequence begins with a time, wanted how long: 7d")
	case !time && o.Keep > 0:
		return fmt.Errorf("keep: found how long, and the sequence begins with a column of type %s, which is no time; wanted "+
			"a number of tombstones", first)
	}
	return nil
}

// TombstonesName is where a table's deleted keys are remembered unless it is said otherwise: beside it, with "_tombstones"
// behind its name.
func TombstonesName(table string) string { return strings.TrimRight(table, "/") + "_tombstones" }

// remembersDeletes reports whether deleted keys need tombstones: changes may come late, and a delete leaves no row that
// would tell, or none yet.
func (o *TargetOptions) remembersDeletes() bool {
	return o.Mode == Upsert && len(o.Key.SequenceBy) > 0 && o.Key.Deletes != IgnoreDeletes
}

// A tombstone says that a key was deleted, and at which sequence. It is a row of the tombstones table,
//
//	columns of the key | columns of the sequence | when, by which lane, and where in it
//
// which is append-only: a fact stays true when the key comes back, whose row then has a greater sequence. It is committed
// before the commit of the table that deletes the row, so that it is never missing; seeing it again, as a replay does,
// changes nothing. The key index holds it where it would hold the row, so that one look-up answers both.
const (
	tombstoneOrigin   = "_deleted_origin"
	tombstoneOriginID = "_deleted_origin_id"
	tombstoneLane     = "_deleted_lane"
	tombstoneSeq      = "_deleted_seq"
)

// tombstones is the tombstones table of one table. It need not exist.
type tombstones struct {
	companion
	opts TombstoneOptions
	pruner
}

// tombstoneTxn is, in the table, the version of the tombstones table that its commits knew. A commit that has others to
// tell of moves it, and each depends on it: so no row lands that would not be written if its tombstone had been seen.
const tombstoneTxn = "freshet#tombstones"

// fence makes the transaction on the snapshot depend on which tombstones were known, of which this version is the newest. Of
// others that came since, it asks unconcerned whether they are of other keys: then they are no matter.
func (s *tombstones) fence(tx *delta.Transaction, snap, known *delta.Snapshot, unconcerned func(now int64) bool) {
	if s == nil {
		return
	}
	seen, had := snap.Txn(tombstoneTxn)
	tx.ExpectTxnOr(tombstoneTxn, seen, had, func(now int64, has bool) bool {
		if !has || !unconcerned(now) {
			return false
		}
		if known == nil || now > known.Version() { // it never goes back: another one may have seen this
			tx.AddTxn(tombstoneTxn, now)
		}
		return true
	})
	if id := besideTxn(s.name); known != nil {
		if v, ok := snap.Txn(id); !ok {
			tx.ExpectTxnOr(id, v, ok, func(int64, bool) bool { return true }) // others say the same
			tx.AddTxn(id, 1)
		}
	}
	if was, ok := snap.Txn(tombstoneTxn); known != nil && (!ok || was != known.Version()) {
		tx.AddTxn(tombstoneTxn, known.Version())
	}
}

// schema is that of the tombstones of a table. columns are its key and sequence columns.
func (r *rowIndex) tombstoneSchema(table *delta.Schema) (*delta.Schema, error) {
	var fields []arrow.Field
	for _, name := range r.columns {
		f, _ := table.Lookup(name)
		fields = append(fields, arrow.Field{Name: f.Name, Type: delta.ArrowType(f.Type), Nullable: true})
	}
	fields = append(fields,
		arrow.Field{Name: DeletedAtColumn, Type: arrow.FixedWidthTypes.Timestamp_us, Nullable: true},
		arrow.Field{Name: tombstoneOrigin, Type: arrow.BinaryTypes.String, Nullable: true},
		arrow.Field{Name: tombstoneOriginID, Type: arrow.BinaryTypes.String, Nullable: true},
		arrow.Field{Name: tombstoneLane, Type: arrow.BinaryTypes.String, Nullable: true},
		arrow.Field{Name: tombstoneSeq, Type: arrow.PrimitiveTypes.Int64, Nullable: true})
	return delta.SchemaFromArrow(arrow.NewSchema(fields, nil))
}

// tombstoneWriter adds tombstones to their table.
type tombstoneWriter struct {
	to   *tombstones
	snap *delta.Snapshot
	w    *delta.Writer
}

// begin begins a commit to the tombstones table, which is made like table if need be.
func (s *tombstones) begin(ctx context.Context, r *rowIndex, table *delta.Snapshot) (*tombstoneWriter, error) {
	schema, err := r.tombstoneSchema(table.Schema())
	if err != nil {
		return nil, err
	}
	properties := map[string]string{}
	if mode := table.Property("delta.columnMapping.mode"); mode != "" {
		properties["delta.columnMapping.mode"] = mode
	}
	snap, err := s.need(ctx, delta.CreateOptions{Schema: schema, Properties: properties,
		Description: "deleted keys of " + r.t.name})
	if err != nil {
		return nil, err
	}
	w, err := delta.NewWriter(s.st, snap.Metadata(), snap.Protocol(), &delta.WriterOptions{MemoryBytes: 16 << 20,
		RowGroupBytes: 8 << 20})
	return &tombstoneWriter{s, snap, w}, err
}

// abort deletes what was written and not committed.
func (o *tombstoneWriter) abort(t *table) {
	if o != nil && o.w != nil {
		t.a.tend.abort([]*delta.Writer{o.w})
	}
}

// commit commits what was written, and returns the table as it is then.
func (o *tombstoneWriter) commit(ctx context.Context, t *table) (*delta.Snapshot, error) {
	adds, err := o.w.Close(ctx)
	if err != nil {
		return nil, err
	}
	for range maxRaces {
		tx := o.snap.Table().Begin(o.snap, nil)
		tx.Add(adds...)
		tx.Operation("STREAMING UPDATE", t.streaming("Append"), map[string]string{
			"numAddedFiles": fmt.Sprint(len(adds)), "numOutputRows": fmt.Sprint(o.w.Rows()), "numRemovedFiles": "0"})
		tx.BlindAppend(true)
		done, err := tx.Commit(ctx)
		if err == nil {
			o.w = nil
			return done.Snapshot, nil
		}
		if !errors.Is(err, delta.ErrConflict) {
			o.w = nil // it may have landed: its files stay
			return nil, err
		}
		if o.snap, err = o.to.look(ctx); err != nil {
			return nil, err
		}
	}
	return nil, &freshet.Error{Code: freshet.CodeConflict, Class: freshet.ClassFailure, Place: o.to.name,
		Msg: fmt.Sprintf("lost %d races in a row", maxRaces)}
}

// tombstoneMark says which tombstones an index holds: those of this version of this table. It is the index's note.
type tombstoneMark struct {
	table   string // its id; "": none
	version int64
}

func markOf(snap *delta.Snapshot) tombstoneMark {
	if snap == nil {
		return tombstoneMark{}
	}
	return tombstoneMark{snap.Metadata().ID, snap.Version()}
}

func (m tombstoneMark) String() string {
	if m.table == "" {
		return ""
	}
	return fmt.Sprintf("%s@%d", m.table, m.version)
}

func parseMark(note string) tombstoneMark {
	i := strings.LastIndexByte(note, '@')
	if i < 0 {
		return tombstoneMark{}
	}
	v, err := strconv.ParseInt(note[i+1:], 10, 64)
	if err != nil {
		return tombstoneMark{}
	}
	return tombstoneMark{note[:i], v}
}

// leadsTo reports whether an index that holds the tombstones of m can be brought to those of the other.
func (m tombstoneMark) leadsTo(other tombstoneMark) error {
	if m.table != "" && (m.table != other.table || m.version > other.version) {
		return fmt.Errorf("bring the tombstones %s of the key index to %s: %w", m, other, store.ErrNotFound)
	}
	return nil
}

// openTombstones returns the tombstones of a table, nil where it needs none.
func (t *table) openTombstones() (*tombstones, error) {
	if !t.opts.remembersDeletes() {
		return nil, nil
	}
	name := t.opts.Key.Tombstones.Table(t.name)
	st, err := t.a.open(name)
	if err != nil {
		return nil, err
	}
	return &tombstones{companion: companion{name: name, st: st, engine: t.opts.EngineInfo}, opts: t.opts.Key.Tombstones}, nil
}

// lookAtTombstones finds the tombstones of now, for the index to show. Errors: *freshet.Error with CodeSchemaMismatch when
// they are of another key or sequence, with CodeBesideGone when the table, of which this is a snapshot, has seen others.
func (t *table) lookAtTombstones(ctx context.Context, main *delta.Snapshot) error {
	if t.tombstones == nil {
		return nil
	}
	tombs, err := t.tombstones.look(ctx)
	if err != nil {
		return explain(t.tombstones.name, err)
	}
	if _, had := main.Txn(besideTxn(t.tombstones.name)); had {
		if seen, _ := main.Txn(tombstoneTxn); tombs == nil || tombs.Version() < seen {
			return besideGone(t.name, t.tombstones.name, "what is remembered of deleted keys", "so that a change which comes late "+
				"could bring back any of them", "tombstones: {table: …}")
		}
	}
	if tombs != nil {
		for _, name := range t.index.columns {
			if f, _ := tombs.Schema().Lookup(name); f == nil {
				return &freshet.Error{Code: freshet.CodeSchemaMismatch, Class: freshet.ClassInput, Place: t.tombstones.name,
					Msg: fmt.Sprintf("column %q: the key or the sequence has it, and what is remembered of deleted keys has the "+
						"columns %s", name, columnNames(tombs.Schema())),
					Fix: "leave key and sequence_by as they were; or name a new table for it, which begins with no deletes: " +
						"tombstones: {table: …}"}
			}
		}
	}
	t.index.tombs = tombs
	return nil
}
