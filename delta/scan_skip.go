package delta

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/freshet-io/freshet/delta/internal/parquet"
	"github.com/freshet-io/freshet/expr"
)

// mayMatch returns the rows of a row group that may meet the condition, by what the file's footer says of the row group
// and its page index of pages.
func (r *fileReader) mayMatch(group int) (spans []expr.Span, err error) {
	meta := r.file.MetaData().RowGroup(group)
	rows := meta.NumRows()
	all := []expr.Span{{From: 0, To: int(rows)}}
	if !r.plan.byStats || rows <= 0 {
		return all, nil
	}
	err = guardScan(r.key, func() error {
		s := &rowStats{file: r, meta: meta, rows: rows}
		if !r.plan.where.MayMatch(s) {
			return nil
		}
		spans = all
		bounds, err := s.openPages(group)
		if err != nil || len(bounds) < 2 {
			return err
		}
		spans = nil
		for i, from := range bounds {
			to := rows
			if i+1 < len(bounds) {
				to = bounds[i+1]
			}
			if s.from, s.rows = from, to-from; !r.plan.where.MayMatch(s) {
				continue
			}
			if n := len(spans); n > 0 && int64(spans[n-1].To) == from {
				spans[n-1].To = int(to)
			} else {
				spans = append(spans, expr.Span{From: int(from), To: int(to)})
			}
		}
		return nil
	})
	return spans, err
}

// rowStats is what a file tells of some rows of a row group, all in one page of each column whose pages are known.
type rowStats struct {
	file  *fileReader
	meta  *metadata.RowGroupMetaData
	pages map[int]*pageIndex // by leaf
	from  int64
	rows  int64
}

// pageIndex is what a file tells of a column chunk's pages. Spec: Parquet, "Page Index".
type pageIndex struct {
	metadata.ColumnIndex
	first []int64 // row of each page
}

// skipColumn is where in a file the statistics of a column of the condition are found.
type skipColumn struct {
	typ       Type    // nil: nowhere
	partition *string // the value of a partition column, if it is one that is not null
	leaf      *pqarrow.SchemaField
	null      bool // all rows are
}

// column finds a column of the condition.
func (s *rowStats) column(path []string) skipColumn {
	p := s.file.plan
	fields, in := p.snap.Schema().Fields, s.file.schema.Fields
	for i, name := range path {
		f, _ := lookupField(fields, name)
		if f == nil {
			return skipColumn{}
		}
		if i == 0 && p.parts[lowerName(f)] {
			v := s.file.add.PartitionValues[p.mapping.physicalName(f)]
			if v == nil || *v == "" {
				return skipColumn{typ: f.Type, null: true}
			}
			return skipColumn{typ: f.Type, partition: v}
		}
		at := p.mapping.find(arrowFieldsOf(in), f)
		if at < 0 {
			return skipColumn{typ: f.Type, null: true}
		}
		if i == len(path)-1 && in[at].IsLeaf() && in[at].LevelInfo.RepLevel == 0 {
			return skipColumn{typ: f.Type, leaf: &in[at]}
		}
		st, ok := f.Type.(*Struct)
		if !ok || storageOf(in[at].Field.Type).ID() != arrow.STRUCT {
			return skipColumn{}
		}
		fields, in = st.Fields, in[at].Children
	}
	return skipColumn{}
}

// openPages reads the page indices of the columns of the condition and returns the first rows of their pages, all
// together, in ascending order.
func (s *rowStats) openPages(group int) (bounds []int64, err error) {
	s.pages = make(map[int]*pageIndex)
	reader, err := s.file.file.GetPageIndexReader().RowGroup(group)
	if err != nil || reader == nil {
		return nil, err
	}
	for leaf := range s.file.conditionLeaves() {
		offsets, err := reader.GetOffsetIndex(leaf)
		if err != nil || offsets == nil {
			return nil, err
		}
		index, err := reader.GetColumnIndex(leaf)
		if err != nil {
			return nil, err
		}
		if index == nil {
			continue
		}
		page := &pageIndex{ColumnIndex: index}
		for _, at := range offsets.GetPageLocations() {
			page.first = append(page.first, at.FirstRowIndex)
		}
		if page.fits(s.rows) {
			s.pages[leaf] = page
			bounds = append(bounds, page.first...)
		}
	}
	slices.Sort(bounds)
	return slices.Compact(bounds), nil
}

// conditionLeaves are the leaves in no list of the columns of the condition.
func (r *fileReader) conditionLeaves() map[int]bool {
	leaves := make(map[int]bool)
	for _, i := range r.plan.sees {
		for leaf := range r.columns[i].leaves {
			if r.file.MetaData().Schema.Column(leaf).MaxRepetitionLevel() == 0 {
				leaves[leaf] = true
			}
		}
	}
	return leaves
}

// fits reports whether the index can be one of a column of so many rows.
func (p *pageIndex) fits(rows int64) bool {
	n := len(p.first)
	return n > 0 && p.first[0] == 0 && p.first[n-1] < rows && slices.IsSorted(p.first) &&
		len(p.GetNullPages()) == n && len(p.GetMinValues()) == n && len(p.GetMaxValues()) == n &&
		(!p.IsSetNullCounts() || len(p.GetNullCounts()) == n)
}

// page returns the page index of a leaf and which of its pages the rows are in.
func (s *rowStats) page(leaf int) (p *pageIndex, at int) {
	if p = s.pages[leaf]; p == nil {
		return nil, 0
	}
	at, found := slices.BinarySearch(p.first, s.from)
	if !found {
		return p, at - 1
	}
	for at+1 < len(p.first) && p.first[at+1] == s.from { // an empty page
		at++
	}
	return p, at
}

// RowCount is the number of rows, deleted ones included.
func (s *rowStats) RowCount() (int64, bool) { return s.rows, true }

// NullCount is told when no row or every one is null: what is counted are a page's or a row group's rows, of which some
// may be deleted, and some not among these.
func (s *rowStats) NullCount(path []string) (int64, bool) {
	c := s.column(path)
	switch {
	case c.null:
		return s.rows, true
	case c.partition != nil:
		return 0, true
	case c.leaf == nil:
		return 0, false
	}
	if p, at := s.page(c.leaf.ColIndex); p != nil {
		if p.GetNullPages()[at] {
			return s.rows, true
		}
		return 0, p.IsSetNullCounts() && p.GetNullCounts()[at] == 0
	}
	stats := s.chunk(c.leaf)
	switch {
	case stats == nil || !stats.HasNullCount():
		return 0, false
	case stats.NullCount() == s.meta.NumRows():
		return s.rows, true
	}
	return 0, stats.NullCount() == 0
}

func (s *rowStats) chunk(leaf *pqarrow.SchemaField) metadata.TypedStatistics {
	chunk, err := s.meta.ColumnChunk(leaf.ColIndex)
	if err != nil {
		return nil
	}
	stats, err := chunk.Statistics()
	if err != nil {
		return nil
	}
	return stats
}

// Min is a lower bound of the column's values.
func (s *rowStats) Min(path []string) (expr.Value, bool) { return s.bound(path, false) }

// Max is an upper bound of the column's values.
func (s *rowStats) Max(path []string) (expr.Value, bool) { return s.bound(path, true) }

func (s *rowStats) bound(path []string, upper bool) (expr.Value, bool) {
	c := s.column(path)
	if c.partition != nil {
		return partitionBound(*c.partition, c.typ)
	}
	if c.leaf == nil {
		return expr.Value{}, false
	}
	stored := parquet.Physical(s.file.file.MetaData().Schema.Column(c.leaf.ColIndex).PhysicalType())
	if p, at := s.page(c.leaf.ColIndex); p != nil {
		if p.GetNullPages()[at] {
			return expr.Value{}, false
		}
		if upper {
			return storedBound(p.GetMaxValues()[at], stored, c.leaf.Field.Type, c.typ)
		}
		return storedBound(p.GetMinValues()[at], stored, c.leaf.Field.Type, c.typ)
	}
	stats := s.chunk(c.leaf)
	if stats == nil || !stats.HasMinMax() {
		return expr.Value{}, false
	}
	if upper {
		return storedBound(stats.EncodeMax(), stored, c.leaf.Field.Type, c.typ)
	}
	return storedBound(stats.EncodeMin(), stored, c.leaf.Field.Type, c.typ)
}

// storedBound is a bound of values that a file stores as have, of a column of type want. Bounds of INT96, which writers
// order in several ways, and of unsigned integers are not told.
func storedBound(b []byte, stored parquet.Physical, have arrow.DataType, want Type) (expr.Value, bool) {
	if width := stored.Width(len(b)); width != 0 && width != len(b) || stored == parquet.PhysicalInt96 {
		return expr.Value{}, false
	}
	switch have := storageOf(have).(type) {
	case *arrow.StringType, *arrow.BinaryType:
		if want == Binary {
			return expr.BinaryValue(b), true
		}
		return expr.StringValue(string(b)), want == String
	case *arrow.BooleanType:
		return expr.BoolValue(len(b) > 0 && b[0] != 0), want == Boolean
	case *arrow.Float32Type:
		v := float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
		return expr.FloatValue(v), (want == Float || want == Double) && !math.IsNaN(v)
	case *arrow.Float64Type:
		v := math.Float64frombits(binary.LittleEndian.Uint64(b))
		return expr.FloatValue(v), want == Double && !math.IsNaN(v)
	case *arrow.Decimal128Type:
		v, ok := signedDecimal(b)
		if stored != parquet.PhysicalBytes && stored != parquet.PhysicalFixed {
			v = decimal128.FromI64(storedInt(b))
		}
		_, decimal := want.(Decimal)
		return expr.DecimalValue(v, have.Scale), ok && decimal
	case *arrow.Int8Type, *arrow.Int16Type, *arrow.Int32Type, *arrow.Int64Type:
		return integerBound(storedInt(b), stored, want)
	case *arrow.Date32Type:
		return expr.DateValue(int32(storedInt(b))), want == Date
	case *arrow.TimestampType:
		return momentOf(storedInt(b), have.Unit, want)
	}
	return expr.Value{}, false
}

// storedInt reads the bytes of an INT32 or INT64.
func storedInt(b []byte) int64 {
	if len(b) == 4 {
		return int64(int32(binary.LittleEndian.Uint32(b)))
	}
	return int64(binary.LittleEndian.Uint64(b))
}

// integerBound is a bound of integers, in a column of integers, or one that was of integers once.
func integerBound(v int64, stored parquet.Physical, want Type) (expr.Value, bool) {
	switch want {
	case Byte, Short, Integer, Long:
		return expr.IntValue(v), true
	case Double:
		return expr.FloatValue(float64(v)), stored == parquet.PhysicalInt32
	}
	_, decimal := want.(Decimal)
	return expr.DecimalValue(decimal128.FromI64(v), 0), decimal
}

// momentOf is the bound that a scan makes of a moment, which it gives in µs, fractions floored.
func momentOf(v int64, unit arrow.TimeUnit, want Type) (expr.Value, bool) {
	ok := want == Timestamp || want == TimestampNTZ
	switch unit {
	case arrow.Nanosecond:
		v = floorDiv(v, 1000)
	case arrow.Millisecond:
		ok = ok && v < math.MaxInt64/1000 && v > math.MinInt64/1000
		v *= 1000
	case arrow.Second:
		ok = false // no writer of Parquet has it
	}
	return expr.TimestampValue(v), ok
}

// overlap returns what two lists of spans have in common, both ascending. It may be one of them.
func overlap(a, b []expr.Span) (out []expr.Span) {
	if len(a) > 0 && len(b) == 1 && b[0].From <= a[0].From && a[len(a)-1].To <= b[0].To {
		return a
	}
	for len(a) > 0 && len(b) > 0 {
		if from, to := max(a[0].From, b[0].From), min(a[0].To, b[0].To); from < to {
			out = append(out, expr.Span{From: from, To: to})
		}
		if a[0].To < b[0].To {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return out
}

// clip returns the spans from up to and without to, counted from from. It may be spans themselves.
func clip(spans []expr.Span, from, to int) (out []expr.Span) {
	spans = overlap(spans, []expr.Span{{From: from, To: to}})
	if from == 0 {
		return spans
	}
	for _, s := range spans {
		out = append(out, expr.Span{From: s.From - from, To: s.To - from})
	}
	return out
}
