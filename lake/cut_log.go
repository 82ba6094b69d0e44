package lake

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/store"
)

// cutSchema is that of a cuts table: one row a cut.
var cutSchema = arrow.NewSchema([]arrow.Field{
	optional("cut", arrow.PrimitiveTypes.Int64),
	optional("recorded_at", arrow.FixedWidthTypes.Timestamp_us),
	optional("source_time", arrow.FixedWidthTypes.Timestamp_us),
	optional("day", arrow.FixedWidthTypes.Date32),       // the last that it holds all of
	optional("opens_day", arrow.FixedWidthTypes.Date32), // the one that began with it
	optional("plan", arrow.BinaryTypes.String),
	{Name: "lanes", Type: listOf(
		optional("origin", arrow.BinaryTypes.String),
		optional("origin_id", arrow.BinaryTypes.String),
		optional("lane", arrow.BinaryTypes.String),
		optional("seq", arrow.PrimitiveTypes.Int64)), Nullable: true},
	{Name: "tables", Type: listOf(
		optional("name", arrow.BinaryTypes.String),
		optional("location", arrow.BinaryTypes.String),
		optional("id", arrow.BinaryTypes.String),
		optional("version", arrow.PrimitiveTypes.Int64)), Nullable: true},
	{Name: "left_out", Type: arrow.ListOfField(arrow.Field{Name: "element", Nullable: true,
		Type: arrow.BinaryTypes.String}), Nullable: true},
	{Name: "shown", Type: listOf( // those of left_out that an earlier cut shows, and the newest that does
		optional("name", arrow.BinaryTypes.String),
		optional("location", arrow.BinaryTypes.String),
		optional("id", arrow.BinaryTypes.String),
		optional("cut", arrow.PrimitiveTypes.Int64)), Nullable: true},
}, nil)

// cutsOnce is how many of the columns a cuts table has always had.
const cutsOnce = 9

func listOf(fields ...arrow.Field) arrow.DataType {
	return arrow.ListOfField(arrow.Field{Name: "element", Nullable: true, Type: arrow.StructOf(fields...)})
}

// cutStats are the columns by which files are left out.
const cutStats = "cut,recorded_at,day,opens_day"

// cutLog is a cuts table. It need not exist.
type cutLog struct {
	fixedTable
	app string

	knows sync.Mutex
	head  *Cut // the newest that was read; nil: none was
}

func newCutLog(app, name string, st store.Store, engine string) *cutLog {
	return &cutLog{app: app, fixedTable: fixedTable{companion: companion{name: name, st: st, engine: engine},
		columns: cutSchema, always: cutsOnce, stats: cutStats, what: "cuts", fix: "name another table in `cuts`",
		description: "versions of tables that together show the source at one moment"}}
}

// newest is the newest cut, nil when there is none.
func (l *cutLog) newest(ctx context.Context, snap *delta.Snapshot) (*Cut, error) {
	n, ok := snap.Txn(cutTxn(l.app))
	if !ok {
		return nil, l.foreign(ctx, snap)
	}
	l.knows.Lock()
	defer l.knows.Unlock()
	if l.head != nil && l.head.Number == n {
		return l.head, nil
	}
	cuts, err := readCuts(ctx, snap, fmt.Sprintf("cut = %d", n))
	if err != nil || len(cuts) > 0 {
		l.head = first(cuts)
		return l.head, err
	}
	return nil, &freshet.Error{Code: freshet.CodeCorrupt, Class: freshet.ClassFailure, Place: l.name,
		Msg: fmt.Sprintf("there is no row of cut %d, which is the newest", n),
		Fix: "restore the table to a version that has it, or name another table in `cuts`"}
}

// shows is the newest cut that shows a table; nil: none does.
func (l *cutLog) shows(ctx context.Context, table *delta.Snapshot) (*Cut, error) {
	cuts, err := l.look(ctx)
	if cuts == nil || err != nil {
		return nil, err
	}
	head, err := l.newest(ctx, cuts)
	if head == nil || err != nil {
		return nil, err
	}
	id := table.Metadata().ID
	if slices.ContainsFunc(head.Tables, func(t CutTable) bool { return t.ID == id }) {
		return head, nil
	}
	i := slices.IndexFunc(head.Shown, func(t CutShown) bool { return t.ID == id })
	if i < 0 {
		return nil, nil
	}
	shown, err := readCuts(ctx, cuts, fmt.Sprintf("cut = %d", head.Shown[i].Cut))
	return first(shown), err
}

// foreign is an error when the table holds cuts, none of which are ours.
func (l *cutLog) foreign(ctx context.Context, snap *delta.Snapshot) error {
	for add, err := range snap.Files(ctx, nil) {
		if err != nil {
			return err
		}
		return &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: l.name,
			Msg: fmt.Sprintf("it holds the cuts of another pipeline (%s), and none of %s", add.Path, l.app),
			Fix: "give each pipeline a cuts table of its own"}
	}
	return nil
}

func first(cuts []*Cut) *Cut {
	if len(cuts) == 0 {
		return nil
	}
	return cuts[0]
}

func (l *cutLog) openDay(ctx context.Context) (freshet.Day, error) {
	snap, err := l.look(ctx)
	if snap == nil || err != nil {
		return 0, err
	}
	return openedDay(snap, l.app), nil
}

// cutRow is the cut as a row.
func cutRow(c *Cut) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, cutSchema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).Append(c.Number)
	appendTime(b.Field(1).(*array.TimestampBuilder), c.RecordedAt)
	appendTime(b.Field(2).(*array.TimestampBuilder), c.SourceTime)
	appendDay(b.Field(3).(*array.Date32Builder), c.Day())
	appendDay(b.Field(4).(*array.Date32Builder), c.Opens)
	b.Field(5).(*array.StringBuilder).Append(c.Plan)
	list := b.Field(6).(*array.ListBuilder)
	list.Append(true)
	for _, l := range c.Lanes {
		appendElement(list, l.Lane.Origin, l.Lane.OriginID, l.Lane.Name, l.Seq)
	}
	list = b.Field(7).(*array.ListBuilder)
	list.Append(true)
	for _, t := range c.Tables {
		appendElement(list, t.Name, t.Location, t.ID, t.Version)
	}
	list = b.Field(8).(*array.ListBuilder)
	list.Append(true)
	for _, name := range c.LeftOut {
		list.ValueBuilder().(*array.StringBuilder).Append(name)
	}
	list = b.Field(9).(*array.ListBuilder)
	list.Append(true)
	for _, t := range c.Shown {
		appendElement(list, t.Name, t.Location, t.ID, t.Cut)
	}
	return b.NewRecordBatch()
}

func appendTime(b *array.TimestampBuilder, t time.Time) {
	if t.IsZero() {
		b.AppendNull()
		return
	}
	b.Append(arrow.Timestamp(t.UnixMicro()))
}

func appendDay(b *array.Date32Builder, d freshet.Day) {
	if d == 0 {
		b.AppendNull()
		return
	}
	b.Append(arrow.Date32(d))
}

// appendElement adds an element of three texts and a number to the list.
func appendElement(list *array.ListBuilder, a, b, c string, n int64) {
	e := list.ValueBuilder().(*array.StructBuilder)
	e.Append(true)
	for i, s := range []string{a, b, c} {
		e.FieldBuilder(i).(*array.StringBuilder).Append(s)
	}
	e.FieldBuilder(3).(*array.Int64Builder).Append(n)
}

// readCuts reads the cuts for which the condition is true, by number.
func readCuts(ctx context.Context, snap *delta.Snapshot, where string) ([]*Cut, error) {
	condition, err := expr.Parse(where)
	if err != nil {
		return nil, err
	}
	var columns []string
	for i, f := range cutSchema.Fields() {
		if have, _ := snap.Schema().Lookup(f.Name); i < cutsOnce || have != nil {
			columns = append(columns, f.Name)
		}
	}
	var all []*Cut
	for rec, err := range snap.Scan(ctx, &delta.ScanOptions{Columns: columns, Where: condition}) {
		if err != nil {
			return nil, err
		}
		for i := range int(rec.NumRows()) {
			all = append(all, cutAt(rec, i))
		}
		rec.Release()
	}
	slices.SortFunc(all, func(a, b *Cut) int { return int(a.Number - b.Number) })
	return all, nil
}

// cutAt is a row as a cut.
func cutAt(rec arrow.RecordBatch, i int) *Cut {
	c := &Cut{Number: rec.Column(0).(*array.Int64).Value(i), RecordedAt: timeAt(rec.Column(1), i),
		SourceTime: timeAt(rec.Column(2), i), Plan: strings.Clone(rec.Column(5).(*array.String).Value(i))}
	if opens := rec.Column(4).(*array.Date32); !opens.IsNull(i) {
		c.Opens, c.First = freshet.Day(opens.Value(i)), rec.Column(3).IsNull(i)
	}
	eachElement(rec.Column(6), i, func(a, b, name string, seq int64) {
		c.Lanes = append(c.Lanes, CutLane{freshet.Lane{Origin: a, OriginID: b, Name: name}, seq})
	})
	eachElement(rec.Column(7), i, func(name, location, id string, version int64) {
		c.Tables = append(c.Tables, CutTable{name, location, id, version})
	})
	list := rec.Column(8).(*array.List)
	from, to := list.ValueOffsets(i)
	for k := from; k < to; k++ {
		c.LeftOut = append(c.LeftOut, strings.Clone(list.ListValues().(*array.String).Value(int(k))))
	}
	if rec.NumCols() > cutsOnce && !rec.Column(cutsOnce).IsNull(i) {
		eachElement(rec.Column(cutsOnce), i, func(name, location, id string, cut int64) {
			c.Shown = append(c.Shown, CutShown{name, location, id, cut})
		})
	}
	return c
}

func timeAt(column arrow.Array, i int) time.Time {
	if column.IsNull(i) {
		return time.Time{}
	}
	return time.UnixMicro(int64(column.(*array.Timestamp).Value(i))).UTC()
}

// eachElement yields the elements of a row's list of three texts and a number.
func eachElement(column arrow.Array, i int, yield func(a, b, c string, n int64)) {
	list := column.(*array.List)
	e := list.ListValues().(*array.Struct)
	text := func(c, k int) string { return strings.Clone(e.Field(c).(*array.String).Value(k)) }
	from, to := list.ValueOffsets(i)
	for k := int(from); k < int(to); k++ {
		yield(text(0, k), text(1, k), text(2, k), e.Field(3).(*array.Int64).Value(k))
	}
}
