package delta

import (
	"context"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	parquetschema "github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/freshet-io/freshet/delta/internal/parquet"
	"github.com/freshet-io/freshet/store"
)

// read takes rows and statistics from the file's footer, and returns its schema.
func (f *parquetInput) read(ctx context.Context, st store.Store, stats bool) (schema *Schema, err error) {
	file, err := openParquet(ctx, st, f.object.Key, f.object.Size, nil)
	if err != nil {
		return nil, err
	}
	var arrows []arrow.Field
	err = guardScan(f.object.Key, func() error {
		m := file.MetaData()
		fields, err := manifestOf(m.Schema, m.KeyValueMetadata())
		if err != nil {
			return err
		}
		arrows = arrowFieldsOf(fields.Fields)
		f.rows = rowsOfGroups(m) // some writers leave the file's own count at zero
		return nil
	})
	if err != nil {
		return nil, err
	}
	if schema, err = SchemaFromArrow(tableArrow(arrows)); err != nil || !stats {
		return schema, err // a file that a table cannot have is not damaged
	}
	err = guardScan(f.object.Key, func() error {
		f.stats, err = footerStats(file.MetaData(), schema)
		return err
	})
	return schema, err
}

// rowsOfGroups adds up the rows of the row groups.
func rowsOfGroups(m *metadata.FileMetaData) (rows int64) {
	for i := range m.NumRowGroups() {
		rows += m.RowGroup(i).NumRows()
	}
	return rows
}

// tableArrow is the schema with types that a table can have: times in µs, which scans make of the others, dictionaries
// as their values, and all columns nullable.
func tableArrow(fields []arrow.Field) *arrow.Schema { return arrow.NewSchema(tableFields(fields), nil) }

func tableFields(in []arrow.Field) []arrow.Field {
	out := make([]arrow.Field, len(in))
	for i, f := range in {
		out[i] = arrow.Field{Name: f.Name, Type: tableType(f.Type), Nullable: true}
	}
	return out
}

func tableType(t arrow.DataType) arrow.DataType {
	switch t := t.(type) {
	case *arrow.TimestampType:
		return &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: t.TimeZone}
	case *arrow.DictionaryType:
		return tableType(t.ValueType)
	case *arrow.StructType:
		return arrow.StructOf(tableFields(t.Fields())...)
	case *arrow.ListType:
		return arrow.ListOf(tableType(t.Elem()))
	case *arrow.MapType:
		return arrow.MapOf(tableType(t.KeyType()), tableType(t.ItemType()))
	}
	return t
}

// footerStats are the statistics of an add action, as far as the file's footer tells them. What it tells by halves is
// left out. Bounds of floating-point columns are left out, since those of Parquet pass NaN over, which Delta's readers
// take for the greatest number.
func footerStats(m *metadata.FileMetaData, schema *Schema) (string, error) {
	proto := lowestProtocol(nil)
	l, err := newFileLayout(&Metadata{SchemaString: schema.String()}, proto, &WriterOptions{})
	if err != nil {
		return "", nil // a schema that cannot be written can be read all the same
	}
	leaves := map[string]int{}
	for i := range m.Schema.NumColumns() {
		leaves[m.Schema.Column(i).Path()] = i
	}
	w := &footerWalk{meta: m, rules: &l.rules, leaves: leaves}
	for i := range l.columns {
		if err := w.visit([]*parquet.Column{&l.columns[i]}); err != nil {
			return "", err
		}
	}
	return `{"numRecords":` + strconv.FormatInt(rowsOfGroups(m), 10) + `,"minValues":` + string(w.lo.close()) +
		`,"maxValues":` + string(w.hi.close()) + `,"nullCount":` + string(w.nulls.close()) + `}`, nil
}

// footerWalk goes through the columns that have statistics.
type footerWalk struct {
	meta          *metadata.FileMetaData
	rules         *statsRules
	leaves        map[string]int // column chunks by path
	count         int
	lo, hi, nulls nestedJSON
}

func (w *footerWalk) visit(path []*parquet.Column) error {
	c := path[len(path)-1]
	switch c.Kind {
	case parquet.Struct:
		for i := range c.Children {
			if err := w.visit(append(path[:len(path):len(path)], &c.Children[i])); err != nil {
				return err
			}
		}
		return nil
	case parquet.List, parquet.Map:
		w.count++
		return nil
	}
	w.count++
	if !w.rules.wants(w.count-1, path) {
		return nil
	}
	var names []string
	for _, p := range path {
		names = append(names, p.Name)
	}
	leaf, ok := w.leaves[strings.Join(names, ".")]
	if !ok {
		return nil
	}
	s, counted, err := w.chunks(c, leaf)
	if err != nil || !counted {
		return err
	}
	if v, ok := w.rules.bound(c, s, false); ok {
		w.lo.set(path, v)
	}
	if v, ok := w.rules.bound(c, s, true); ok {
		w.hi.set(path, v)
	}
	w.nulls.set(path, strconv.FormatInt(s.Nulls, 10))
	return nil
}

// chunks adds up the statistics of a column's chunks; counted is false when one does not count its nulls.
func (w *footerWalk) chunks(c *parquet.Column, leaf int) (all *parquet.Stats, counted bool, err error) {
	all = &parquet.Stats{}
	bounded, first := true, true
	for i := range w.meta.NumRowGroups() {
		group := w.meta.RowGroup(i)
		if group.NumRows() == 0 {
			continue
		}
		chunk, err := group.ColumnChunk(leaf)
		if err != nil {
			return nil, false, err
		}
		set, err := chunk.StatsSet()
		if err != nil || !set {
			return nil, false, err
		}
		s, err := chunk.Statistics()
		if err != nil || s == nil || !s.HasNullCount() {
			return nil, false, err
		}
		all.Nulls += s.NullCount()
		if s.NullCount() == group.NumRows() {
			continue
		}
		bounded = bounded && s.HasMinMax() && widenBounds(all, c, s, first)
		first = false
	}
	all.HasBounds = bounded && !first
	return all, true, nil
}

// widenBounds takes the bounds of a chunk; it reports whether they can be told. Those of unsigned integers are not: they
// are stored, and ordered, as others are.
func widenBounds(all *parquet.Stats, c *parquet.Column, s metadata.TypedStatistics, first bool) bool {
	if t, ok := s.Descr().LogicalType().(parquetschema.IntLogicalType); ok && !t.IsSigned() {
		return false
	}
	switch s := s.(type) {
	case *metadata.Int32Statistics:
		return widenInts(all, c, int64(s.Min()), int64(s.Max()), first)
	case *metadata.Int64Statistics:
		factor, ok := perMicro(s.Descr().LogicalType().String(), c.Kind)
		if !ok {
			return false
		}
		lo, hi := s.Min(), s.Max()
		if factor > 1 && (lo < -1<<62/factor || hi > 1<<62/factor) {
			return false
		}
		return widenInts(all, c, lo*factor, hi*factor, first)
	case *metadata.ByteArrayStatistics:
		if c.Kind != parquet.String {
			return false
		}
		if lo := s.Min(); first || string(lo) < string(all.MinBytes) {
			all.MinBytes = []byte(string(lo))
		}
		if hi := s.Max(); first || string(hi) > string(all.MaxBytes) {
			all.MaxBytes = []byte(string(hi))
		}
		return true
	}
	return false
}

func widenInts(all *parquet.Stats, c *parquet.Column, lo, hi int64, first bool) bool {
	switch c.Kind {
	case parquet.Int8, parquet.Int16, parquet.Int32, parquet.Int64, parquet.Date, parquet.Timestamp, parquet.TimestampNTZ:
	case parquet.Decimal:
		if c.Precision > 18 {
			return false
		}
	default:
		return false
	}
	if first {
		all.MinInt, all.MaxInt = lo, hi
	}
	all.MinInt, all.MaxInt = min(all.MinInt, lo), max(all.MaxInt, hi)
	return true
}

// perMicro is what makes microseconds of a time, 1 for what is no time. Nanoseconds are left out: cut off they would
// bound too tightly.
func perMicro(logical string, kind parquet.Kind) (factor int64, ok bool) {
	if kind != parquet.Timestamp && kind != parquet.TimestampNTZ {
		return 1, true
	}
	switch {
	case strings.Contains(logical, "microseconds"):
		return 1, true
	case strings.Contains(logical, "milliseconds"):
		return 1000, true
	}
	return 0, false
}
