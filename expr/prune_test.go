package expr_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/freshet-io/freshet/expr"
)

// fileStats is statistics as tests write them: by column path joined with points.
type fileStats struct {
	rows     int64 // -1: not known
	nulls    map[string]int64
	min, max map[string]expr.Value
}

func (f fileStats) RowCount() (int64, bool) { return f.rows, f.rows >= 0 }

func (f fileStats) NullCount(column []string) (int64, bool) {
	n, ok := f.nulls[strings.Join(column, ".")]
	return n, ok
}

func (f fileStats) Min(column []string) (expr.Value, bool) {
	v, ok := f.min[strings.Join(column, ".")]
	return v, ok
}

func (f fileStats) Max(column []string) (expr.Value, bool) {
	v, ok := f.max[strings.Join(column, ".")]
	return v, ok
}

func mayMatch(t *testing.T, src string, schema *arrow.Schema, s expr.Stats) bool {
	t.Helper()
	e, err := expr.Parse(src)
	if err != nil {
		t.Fatal(src, err)
	}
	b, err := e.Bind(schema)
	if err != nil {
		t.Fatal(src, err)
	}
	return b.MayMatch(s)
}

// TestMayMatch_KnownFile tells what a file with these statistics is skipped for, and that it is read in
// doubt.
func TestMayMatch_KnownFile(t *testing.T) {
	rec := testBatch(t)
	defer rec.Release()
	day := int64(86_400_000_000)
	from := int64(19_844) * day // 2024-05-01
	s := fileStats{rows: 100, nulls: map[string]int64{"i64": 3, "st.x": 100, "num": 100},
		min: map[string]expr.Value{}, max: map[string]expr.Value{}}
	for column, bounds := range map[string][2]expr.Value{
		"i8":   {expr.IntValue(10), expr.IntValue(20)},
		"i64":  {expr.IntValue(1 << 60), expr.IntValue(1<<60 + 9)},
		"zero": {expr.IntValue(7), expr.IntValue(7)},
		"s":    {expr.StringValue("m"), expr.StringValue("p")},
		"ts":   {expr.TimestampValue(from + 5), expr.TimestampValue(from + 2*day - 1)},
		"d":    {expr.DateValue(19_844), expr.DateValue(19_844)},
		"f64":  {expr.FloatValue(1.5), expr.FloatValue(2.5)},
		"dec":  {expr.DecimalValue(decimal128.FromI64(150), 2), expr.DecimalValue(decimal128.FromI64(299), 2)},
		"b":    {expr.BoolValue(true), expr.BoolValue(true)},
	} {
		s.nulls[column] += 0
		s.min[column], s.max[column] = bounds[0], bounds[1]
	}
	text, err := os.ReadFile("testdata/prune.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n")[1:] {
		if got, want := mayMatch(t, line[2:], rec.Schema(), s), line[0] == '+'; got != want {
			t.Errorf("%s: got %v, want %v", line[2:], got, want)
		}
	}
	if mayMatch(t, "TRUE", rec.Schema(), fileStats{rows: 0}) {
		t.Error("an empty file may match")
	}
	wrong := fileStats{rows: -1, max: map[string]expr.Value{"s": expr.IntValue(1)},
		min: map[string]expr.Value{"i8": expr.StringValue("z"), "f64": expr.FloatValue(math.NaN())}}
	for _, src := range []string{"i8 = 1", "s = 'a'", "f64 = 1"} {
		if !mayMatch(t, src, rec.Schema(), wrong) {
			t.Errorf("%s: pruned by statistics of another kind", src)
		}
	}
}

// TestMayMatch_ConditionsOfCases_NeverPruneAMatch runs every boolean case against statistics of single rows
// and of all.
func TestMayMatch_ConditionsOfCases_NeverPruneAMatch(t *testing.T) {
	r := newRand(t)
	rec := testBatch(t)
	defer rec.Release()
	for _, src := range caseExpressions(t) {
		e, err := expr.Parse(src)
		if err != nil {
			continue
		}
		b, err := e.BindCondition(rec.Schema())
		if err != nil {
			continue
		}
		for range 20 {
			from := r.Int64N(3)
			checkNoMatchIsPruned(t, r, b, rec.NewSlice(from, from+r.Int64N(3-from)+1))
		}
	}
}

func TestMayMatch_RandomConditions_NeverPruneAMatch(t *testing.T) {
	r := newRand(t)
	pruned := 0
	for range 3000 {
		rec := randomFile(r)
		src := randomCondition(r, 3)
		e, err := expr.Parse(src)
		if err != nil {
			t.Fatal(src, err)
		}
		b, err := e.Bind(rec.Schema())
		if err != nil {
			t.Fatal(src, err)
		}
		if !checkNoMatchIsPruned(t, r, b, rec) {
			pruned++
		}
	}
	if pruned < 100 {
		t.Errorf("only %d of 3000 files were pruned: the test tests nothing", pruned)
	}
}

func checkNoMatchIsPruned(t *testing.T, r *rand.Rand, b *expr.Bound, rec arrow.RecordBatch) bool {
	t.Helper()
	defer rec.Release()
	may := b.MayMatch(statsOf(r, rec))
	rows, err := b.Rows(context.Background(), rec)
	if _, ok := err.(*expr.RowErrors); err != nil && !ok {
		t.Fatal(err)
	}
	if !may && len(rows) > 0 {
		t.Fatalf("%s: pruned, but rows %v match of\n%v", b, rows, rec)
	}
	return may
}

// statsOf takes the true statistics of a batch and leaves out or loosens some of them.
func statsOf(r *rand.Rand, rec arrow.RecordBatch) fileStats {
	s := fileStats{rows: rec.NumRows(), nulls: map[string]int64{},
		min: map[string]expr.Value{}, max: map[string]expr.Value{}}
	if r.IntN(8) == 0 {
		s.rows = -1
	}
	for c, f := range rec.Schema().Fields() {
		s.column(r, f.Name, rec.Column(c))
	}
	return s
}

func (f fileStats) column(r *rand.Rand, path string, arr arrow.Array) {
	if st, ok := arr.(*array.Struct); ok {
		for i, inner := range st.DataType().(*arrow.StructType).Fields() {
			f.column(r, path+"."+inner.Name, maskedField(st, i))
		}
		return
	}
	if r.IntN(8) > 0 {
		f.nulls[path] = int64(arr.NullN())
	}
	low, high, ok := bounds(r, arr)
	if !ok {
		return
	}
	if r.IntN(8) > 0 {
		f.min[path] = low
	}
	if r.IntN(8) > 0 {
		f.max[path] = high
	}
}

// maskedField is a struct's field, null where the struct is.
func maskedField(st *array.Struct, i int) arrow.Array {
	child := st.Field(i)
	var spans []expr.Span
	for row := range st.Len() {
		if st.IsValid(row) {
			spans = append(spans, expr.Span{From: row, To: row + 1})
		}
	}
	valid := expr.Take(child, spans)
	if len(spans) == st.Len() {
		return valid
	}
	b := array.NewBuilder(memory.DefaultAllocator, child.DataType())
	defer b.Release()
	b.AppendNulls(st.Len() - len(spans))
	all, err := array.Concatenate([]arrow.Array{valid, b.NewArray()}, memory.DefaultAllocator)
	if err != nil {
		panic(err)
	}
	return all
}

// bounds are the least and greatest values without nulls and NaN, sometimes looser than need be.
func bounds(r *rand.Rand, arr arrow.Array) (low, high expr.Value, ok bool) {
	slack := int64(r.IntN(3))
	var ints []int64
	var floats []float64
	var texts []string
	for i := range arr.Len() {
		if arr.IsNull(i) {
			continue
		}
		switch a := arr.(type) {
		case *array.Int8:
			ints = append(ints, int64(a.Value(i)))
		case *array.Int16:
			ints = append(ints, int64(a.Value(i)))
		case *array.Int32:
			ints = append(ints, int64(a.Value(i)))
		case *array.Date32:
			ints = append(ints, int64(a.Value(i)))
		case *array.Timestamp:
			ints = append(ints, int64(a.Value(i)))
		case *array.Decimal128:
			ints = append(ints, int64(a.Value(i).LowBits()))
		case *array.Boolean:
			ints = append(ints, map[bool]int64{true: 1}[a.Value(i)])
		case *array.Float64:
			if !math.IsNaN(a.Value(i)) {
				floats = append(floats, a.Value(i))
			}
		case *array.String:
			texts = append(texts, a.Value(i))
		}
	}
	switch {
	case len(texts) > 0:
		least, most := minmax(texts)
		if slack > 0 && len(least) > 1 {
			least, most = least[:1], most+"~"
		}
		return expr.StringValue(least), expr.StringValue(most), true
	case len(floats) > 0:
		least, most := minmax(floats)
		return expr.FloatValue(least - float64(slack)), expr.FloatValue(most + float64(slack)), true
	case len(ints) > 0:
		least, most := minmax(ints)
		return intBounds(arr.DataType(), least, most, slack)
	}
	return low, high, false
}

func minmax[T int64 | float64 | string](values []T) (least, most T) {
	least, most = values[0], values[0]
	for _, v := range values {
		least, most = min(least, v), max(most, v)
	}
	return least, most
}

func intBounds(t arrow.DataType, least, most, slack int64) (low, high expr.Value, ok bool) {
	switch t := t.(type) {
	case *arrow.BooleanType:
		return expr.BoolValue(least == 1), expr.BoolValue(most == 1), true
	case *arrow.Date32Type:
		return expr.DateValue(int32(least - slack)), expr.DateValue(int32(most + slack)), true
	case *arrow.TimestampType:
		return expr.TimestampValue(least - slack), expr.TimestampValue(most + slack), true
	case *arrow.Decimal128Type:
		return expr.DecimalValue(decimal128.FromI64(least-slack), t.Scale),
			expr.DecimalValue(decimal128.FromI64(most+slack), t.Scale), true
	}
	return expr.IntValue(least - slack), expr.IntValue(most + slack), true
}

// randomFile has few rows of values that lie close together, so that pruning has something to find.
func randomFile(r *rand.Rand) arrow.RecordBatch {
	opt := func(name string, t arrow.DataType) arrow.Field {
		return arrow.Field{Name: name, Type: t, Nullable: true}
	}
	schema := arrow.NewSchema([]arrow.Field{
		opt("i", arrow.PrimitiveTypes.Int32), opt("f", arrow.PrimitiveTypes.Float64),
		opt("s", arrow.BinaryTypes.String), opt("d", arrow.PrimitiveTypes.Date32),
		opt("ts", &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}),
		opt("dec", &arrow.Decimal128Type{Precision: 6, Scale: 2}), opt("b", arrow.FixedWidthTypes.Boolean),
		opt("st", arrow.StructOf(opt("x", arrow.PrimitiveTypes.Int16))),
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	base, nulls := r.IntN(10), 1+r.IntN(6)
	for range 1 + r.IntN(4) {
		n := int64(base + r.IntN(3))
		for c := range schema.NumFields() {
			if r.IntN(nulls) == 0 {
				b.Field(c).AppendNull()
				continue
			}
			appendNumber(r, b.Field(c), n)
		}
	}
	return b.NewRecordBatch()
}

func appendNumber(r *rand.Rand, b array.Builder, n int64) {
	switch b := b.(type) {
	case *array.Int32Builder:
		b.Append(int32(n))
	case *array.Float64Builder:
		if r.IntN(8) == 0 {
			b.Append(math.NaN())
			return
		}
		b.Append(float64(n) / 2)
	case *array.StringBuilder:
		b.Append(strings.Repeat(string(rune('a'+n)), 1+r.IntN(2)))
	case *array.Date32Builder:
		b.Append(arrow.Date32(19_800 + n))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp((19_800+n)*86_400_000_000 + r.Int64N(86_400_000_000)))
	case *array.Decimal128Builder:
		b.Append(decimal128.FromI64(n*100 + r.Int64N(100)))
	case *array.BooleanBuilder:
		b.Append(n%2 == 0)
	case *array.StructBuilder:
		b.Append(true)
		appendNumber(r, b.FieldBuilder(0), n)
	case *array.Int16Builder:
		b.Append(int16(n))
	}
}

func randomCondition(r *rand.Rand, depth int) string {
	if depth > 0 && r.IntN(2) == 0 {
		a, b := randomCondition(r, depth-1), randomCondition(r, depth-1)
		switch r.IntN(5) {
		case 0:
			return "NOT (" + a + ")"
		case 1:
			not := []string{"", "NOT "}[r.IntN(2)]
			return "(" + a + ") IS " + not + []string{"TRUE", "FALSE", "NULL"}[r.IntN(3)]
		case 2:
			return "(" + a + " OR " + b + ")"
		}
		return "(" + a + " AND " + b + ")"
	}
	n := r.IntN(14)
	operand, literal := randomOperand(r, n)
	op := []string{"=", "<>", "<", "<=", ">", ">=", "<=>"}[r.IntN(7)]
	_, other := randomOperand(r, r.IntN(14))
	switch r.IntN(8) {
	case 0:
		return operand + " IS " + []string{"", "NOT "}[r.IntN(2)] + "NULL"
	case 1:
		return operand + []string{" ", " NOT "}[r.IntN(2)] + "IN (" + literal + ", " + literal + ")"
	case 2:
		return operand + " BETWEEN " + literal + " AND " + literal
	case 3:
		return fmt.Sprintf("s LIKE '%c%s'", 'a'+n, []string{"%", "", "_", "%x"}[r.IntN(4)])
	case 4:
		return "b"
	case 5:
		return literal + " " + op + " " + operand
	case 6:
		other = strings.ReplaceAll(other, "'", "")
		return "coalesce(" + operand + " " + op + " " + literal + ", s = '" + other + "')"
	}
	return operand + " " + op + " " + literal
}

// randomOperand returns an operand and a literal of its type.
func randomOperand(r *rand.Rand, n int) (operand, literal string) {
	day := fmt.Sprintf("'2024-03-%02d'", 18+n)
	switch r.IntN(14) {
	case 0:
		return "i", fmt.Sprint(n)
	case 1:
		return "CAST(i AS bigint)", fmt.Sprintf("%d.5", n)
	case 2:
		return "f", fmt.Sprintf("%de0", n)
	case 3:
		return "floor(f)", fmt.Sprint(n)
	case 4:
		return "s", fmt.Sprintf("'%c'", 'a'+n)
	case 5:
		return "d", day
	case 6:
		return "ts", day
	case 7:
		return "CAST(ts AS date)", day
	case 8:
		return "date_trunc('week', ts)", day
	case 9:
		return "dec", fmt.Sprintf("%d.50", n)
	case 10:
		return "CAST(dec AS int)", fmt.Sprint(n)
	case 11:
		return "st.x", fmt.Sprint(n)
	case 12:
		return "CAST(s AS binary)", fmt.Sprintf("CAST('%c' AS binary)", 'a'+n)
	}
	return "i % 3", fmt.Sprint(n % 3)
}
