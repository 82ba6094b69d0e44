package lake

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/store"
)

// TracedValue is a value of a row, as text; nil: null.
type TracedValue struct {
	Column string
	Value  *string
}

// TracedRow is a row that a table has, or had.
type TracedRow []TracedValue

// TracedChange is what one version of a table did to the rows of a key.
type TracedChange struct {
	Version   int64
	Time      time.Time
	Kind      string   // of delta.ChangeTypeColumn
	Operation string   // of the commit
	Positions []string // up to where the version holds the lanes of the app
	Row       TracedRow
}

// Trail is what a table knows of a key.
type Trail struct {
	Version int64 // the newest
	Rows    []TracedRow
	From    int64          // the first version whose changes were looked at
	Changes []TracedChange // by version
	Gone    string         // why versions before From cannot be looked at; "": they were not to be, or there are none
}

// TrailOptions say what is looked at.
type TrailOptions struct {
	App      string
	Key      []TracedValue // columns and values of the key; none is nil
	Versions int64         // how many versions back; 0: none
}

// Trace looks for a key in the table at the root of st: the rows that it has now, and what its versions did to them, by their files.
// Errors: *freshet.Error; CodeUnknownColumn, CodeExprType for a key that the table cannot have; CodeNoTable.
func Trace(ctx context.Context, name string, st store.Store, o *TrailOptions) (*Trail, error) {
	d, err := delta.Open(ctx, st, nil)
	if err != nil {
		return nil, explain(name, err)
	}
	snap, err := d.Snapshot(ctx)
	if err != nil {
		return nil, explain(name, err)
	}
	where, err := keysCondition(snap.Schema().Arrow(), o.Key)
	if err != nil {
		return nil, err
	}
	t := &Trail{Version: snap.Version(), From: snap.Version() + 1}
	for rec, err := range snap.Scan(ctx, &delta.ScanOptions{Where: where}) {
		if err != nil {
			return nil, explain(name, err)
		}
		for row := range int(rec.NumRows()) {
			t.Rows = append(t.Rows, TracedRowOf(rec, row))
		}
		rec.Release()
	}
	if o.Versions > 0 {
		err = t.changes(ctx, d, where, o)
	}
	return t, explain(name, err)
}

// changes looks for the changes of the last versions, of as many as are there still.
func (t *Trail) changes(ctx context.Context, d *delta.Table, where *expr.Expr, o *TrailOptions) error {
	from := max(0, t.Version-o.Versions+1)
	keys := make([]string, len(o.Key))
	for i, k := range o.Key {
		keys[i] = k.Column
	}
	for {
		t.From, t.Changes = from, nil
		err := t.read(ctx, d, &delta.ChangesOptions{Where: where, Key: keys})
		var gap *delta.GapError
		var schema *delta.SchemaChangeError
		switch {
		case errors.As(err, &gap) && gap.First > from:
			from, t.Gone = gap.First, gap.Error()
		case errors.As(err, &gap):
			t.From, t.Changes, t.Gone = t.Version+1, nil, gap.Error()
			return nil
		case errors.As(err, &schema) && schema.Version > from:
			from, t.Gone = schema.Version, schema.Error()
		case err != nil:
			return err
		default:
			return t.commits(ctx, d, o.App)
		}
	}
}

func (t *Trail) read(ctx context.Context, d *delta.Table, opts *delta.ChangesOptions) error {
	if t.From > t.Version {
		return nil
	}
	for c, err := range d.Changes(ctx, t.From, t.Version, opts) {
		if err != nil {
			return err
		}
		kinds := c.Batch.Column(c.Batch.Schema().FieldIndices(delta.ChangeTypeColumn)[0]).(*array.String)
		for row := range int(c.Batch.NumRows()) {
			t.Changes = append(t.Changes, TracedChange{Version: c.Version, Time: c.Time, Kind: strings.Clone(kinds.Value(row)),
				Row: TracedRowOf(c.Batch, row, delta.ChangeTypeColumn, delta.CommitVersionColumn, delta.CommitTimestampColumn)})
		}
		c.Batch.Release()
	}
	return nil
}

// commits adds to the changes what their commits say.
func (t *Trail) commits(ctx context.Context, d *delta.Table, app string) error {
	if len(t.Changes) == 0 {
		return nil
	}
	did := map[int64]string{}
	for h, err := range d.History(ctx, int(t.Version-t.Changes[0].Version)+1) {
		if err != nil {
			return err
		}
		did[h.Version] = h.Info.Operation
	}
	for i := range t.Changes {
		c := &t.Changes[i]
		c.Operation = did[c.Version]
		if i > 0 && t.Changes[i-1].Version == c.Version {
			c.Positions = t.Changes[i-1].Positions
			continue
		}
		snap, err := d.SnapshotAt(ctx, c.Version)
		if err != nil {
			return err
		}
		for _, l := range appProgress(snap, app, map[string]bool{}).Lanes {
			if l.Seq < loadedWhole {
				c.Positions = append(c.Positions, l.Lane.Position(l.Seq))
			}
		}
	}
	return nil
}

// loadedWhole is from where on seqs of the history of a table say that all of it is there, which is no place.
const loadedWhole = 1 << 62

// TracedRowOf is a row of a batch, less some columns.
func TracedRowOf(rec arrow.RecordBatch, row int, less ...string) TracedRow {
	var all TracedRow
	for i, f := range rec.Schema().Fields() {
		if slices.Contains(less, f.Name) {
			continue
		}
		v := TracedValue{Column: f.Name}
		if column := rec.Column(i); column.IsValid(row) {
			text := strings.Clone(column.ValueStr(row))
			v.Value = &text
		}
		all = append(all, v)
	}
	return all
}
