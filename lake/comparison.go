package lake

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/store"
)

// Comparison is what one comparison of a table with its source has found: a row of a pipeline's table of comparisons.
type Comparison struct {
	At       time.Time     // when it ended
	Took     time.Duration // what it cost: time, and
	Table    string
	Source   string  // schema.table
	Share    float64 // of the keys that was to be compared
	Version  int64   // of the table, when it was read
	Position string  // up to where it held everything then
	Ranges   int64   // stretches of the key's order that were read
	Rows     int64   // of the source, that were compared
	Bytes    int64   // of their values
	// Rechecked are the keys that differed at first; Undecided those of them that changed all the time; Rejected rows that are in
	// quarantine.
	Rechecked, Undecided, Rejected int64
	// What differed, by class, and how much of it was mended.
	Missing, Extra, Stale, Different, Duplicate, Mended int64
	// Keys are some of those that differed, each with its class before it.
	Keys []string
	// Fault is why it could not be compared; "": it was.
	Fault string
}

// Differences is how many rows differed.
func (c *Comparison) Differences() int64 {
	return c.Missing + c.Extra + c.Stale + c.Different + c.Duplicate
}

// comparisonSchema is that of a table of comparisons.
var comparisonSchema = arrow.NewSchema([]arrow.Field{
	optional("at", arrow.FixedWidthTypes.Timestamp_us),
	optional("table", arrow.BinaryTypes.String),
	optional("source", arrow.BinaryTypes.String),
	optional("share", arrow.PrimitiveTypes.Float64),
	optional("version", arrow.PrimitiveTypes.Int64),
	optional("position", arrow.BinaryTypes.String),
	optional("ranges", arrow.PrimitiveTypes.Int64),
	optional("rows", arrow.PrimitiveTypes.Int64),
	optional("bytes", arrow.PrimitiveTypes.Int64),
	optional("seconds", arrow.PrimitiveTypes.Float64),
	optional("rechecked", arrow.PrimitiveTypes.Int64),
	optional("undecided", arrow.PrimitiveTypes.Int64),
	optional("rejected", arrow.PrimitiveTypes.Int64),
	optional("missing", arrow.PrimitiveTypes.Int64),
	optional("extra", arrow.PrimitiveTypes.Int64),
	optional("stale", arrow.PrimitiveTypes.Int64),
	optional("different", arrow.PrimitiveTypes.Int64),
	optional("duplicate", arrow.PrimitiveTypes.Int64),
	optional("mended", arrow.PrimitiveTypes.Int64),
	{Name: "keys", Nullable: true, Type: arrow.ListOfField(arrow.Field{Name: "element", Nullable: true,
		Type: arrow.BinaryTypes.String})},
	optional("fault", arrow.BinaryTypes.String),
}, nil)

// newComparisonLog is a table of comparisons. It need not exist.
func newComparisonLog(name string, st store.Store, engine string) *fixedTable {
	return &fixedTable{companion: companion{name: name, st: st, engine: engine}, columns: comparisonSchema, stats: "at,table",
		description: "comparisons of tables with their source", what: "comparisons", fix: "name another table in verify.table"}
}

// RecordComparisons adds comparisons to the table at the root of st, which is made if there is none. Errors: *freshet.Error with
// CodeSchemaMismatch for another table.
func RecordComparisons(ctx context.Context, name string, st store.Store, engine string, all []Comparison) error {
	snap, err := newComparisonLog(name, st, engine).need(ctx)
	if err != nil {
		return explain(name, err)
	}
	rows := comparisonRows(all)
	defer rows.Release()
	var once iter.Seq2[arrow.RecordBatch, error] = func(yield func(arrow.RecordBatch, error) bool) { yield(rows, nil) }
	done, err := snap.Table().Write(ctx, once, comparisonSchema, &delta.WriteOptions{Repeatable: true})
	if err != nil {
		return explain(name, err)
	}
	_, err = snap.Table().MaybeCheckpoint(ctx, done.Snapshot, nil)
	return explain(name, err)
}

func comparisonRows(all []Comparison) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, comparisonSchema)
	defer b.Release()
	for i := range all {
		c := &all[i]
		for col, v := range c.values() {
			switch f := b.Field(col).(type) {
			case *array.TimestampBuilder:
				f.Append(arrow.Timestamp(v.(time.Time).UnixMicro()))
			case *array.StringBuilder:
				f.Append(v.(string))
			case *array.Float64Builder:
				f.Append(v.(float64))
			case *array.Int64Builder:
				f.Append(v.(int64))
			case *array.ListBuilder:
				f.Append(true)
				f.ValueBuilder().(*array.StringBuilder).AppendValues(v.([]string), nil)
			}
		}
	}
	return b.NewRecordBatch()
}

// values are those of the columns of comparisonSchema.
func (c *Comparison) values() []any {
	return []any{c.At, c.Table, c.Source, c.Share, c.Version, c.Position, c.Ranges, c.Rows, c.Bytes, c.Took.Seconds(), c.Rechecked,
		c.Undecided, c.Rejected, c.Missing, c.Extra, c.Stale, c.Different, c.Duplicate, c.Mended, c.Keys, c.Fault}
}

// ReadComparisons returns the newest comparison of each table since then, by the names of the tables; none where there is no such
// table. Errors: as RecordComparisons.
func ReadComparisons(ctx context.Context, name string, st store.Store, since time.Time) ([]Comparison, error) {
	snap, err := newComparisonLog(name, st, "").look(ctx)
	if snap == nil || err != nil {
		return nil, explain(name, err)
	}
	where, err := expr.Parse(fmt.Sprintf("at >= TIMESTAMP '%s'", since.UTC().Format("2006-01-02 15:04:05.999999Z07:00")))
	if err != nil {
		return nil, err
	}
	newest := map[string]Comparison{}
	columns := make([]string, comparisonSchema.NumFields())
	for i, f := range comparisonSchema.Fields() {
		columns[i] = f.Name
	}
	for rec, err := range snap.Scan(ctx, &delta.ScanOptions{Columns: columns, Where: where}) {
		if err != nil {
			return nil, explain(name, err)
		}
		for i := range int(rec.NumRows()) {
			c, fault := comparisonAt(rec, i)
			if err = errors.Join(err, fault); c.At.After(newest[c.Table].At) {
				newest[c.Table] = c
			}
		}
		rec.Release()
		if err != nil {
			return nil, explain(name, err)
		}
	}
	var all []Comparison
	for _, c := range newest {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Comparison) int { return strings.Compare(a.Table, b.Table) })
	return all, nil
}

// comparisonAt is a row as a comparison.
func comparisonAt(rec arrow.RecordBatch, row int) (c Comparison, err error) {
	seconds := 0.0
	into := []any{&c.At, &c.Table, &c.Source, &c.Share, &c.Version, &c.Position, &c.Ranges, &c.Rows, &c.Bytes, &seconds, &c.Rechecked,
		&c.Undecided, &c.Rejected, &c.Missing, &c.Extra, &c.Stale, &c.Different, &c.Duplicate, &c.Mended, &c.Keys, &c.Fault}
	for i, f := range comparisonSchema.Fields() {
		column := rec.Column(i)
		if !arrow.TypeEqual(column.DataType(), f.Type) {
			return c, &freshet.Error{Code: freshet.CodeSchemaMismatch, Class: freshet.ClassInput,
				Msg: fmt.Sprintf("column %s: found the type %s, wanted %s", f.Name, column.DataType(), f.Type)}
		}
		if column.IsNull(row) {
			continue
		}
		switch v := column.(type) {
		case *array.Timestamp:
			*into[i].(*time.Time) = v.Value(row).ToTime(arrow.Microsecond)
		case *array.String:
			*into[i].(*string) = strings.Clone(v.Value(row))
		case *array.Float64:
			*into[i].(*float64) = v.Value(row)
		case *array.Int64:
			*into[i].(*int64) = v.Value(row)
		case *array.List:
			from, to := v.ValueOffsets(row)
			for k := from; k < to; k++ {
				c.Keys = append(c.Keys, strings.Clone(v.ListValues().(*array.String).Value(int(k))))
			}
		}
	}
	c.Took = time.Duration(seconds * float64(time.Second))
	return c, nil
}
