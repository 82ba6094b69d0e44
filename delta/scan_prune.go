package delta

import (
	"math"
	"strconv"
	"strings"

	"github.com/freshet-io/freshet/expr"
)

// needsStats reports whether the condition reads a column that is not a partition column.
func (p *scanPlan) needsStats() bool {
	for _, name := range p.where.Columns() {
		if !p.parts[strings.ToLower(name)] {
			return true
		}
	}
	return false
}

// mayMatch reports whether the file may have a row that the condition keeps. It is for one goroutine at a time.
func (p *scanPlan) mayMatch(add *Add) bool {
	switch {
	case p.where == nil:
		return true
	case p.sieve != nil && p.sieve.rejects([]byte(add.Stats)):
		return false
	case p.byStats:
		return p.where.MayMatch(&fileStats{plan: p, add: add})
	}
	key := p.partitionKey(add)
	may, known := p.partition[key]
	if !known { // of a file with one row, whatever this one has
		one := &Add{PartitionValues: add.PartitionValues, Stats: `{"numRecords":1}`}
		may = p.where.MayMatch(&fileStats{plan: p, add: one})
		if len(p.partition) < maxPartitions {
			p.partition[key] = may
		}
	}
	return may
}

// maxPartitions bounds how many partitions a plan remembers its verdict on.
const maxPartitions = 1 << 16

// partitionKey is what the condition sees of the file when it names partition columns only.
func (p *scanPlan) partitionKey(add *Add) string {
	var b []byte
	for _, name := range p.where.Columns() {
		if v := add.PartitionValues[p.column([]string{name}).path[0]]; v != nil {
			b = strconv.AppendInt(b, int64(len(*v)), 10)
			b = append(append(b, ':'), *v...)
		}
		b = append(b, ',')
	}
	return string(b)
}

// fileStats is what an add action tells of its file's rows. What the action leaves out, or what cannot be parsed, is
// unknown, and prunes nothing. Spec: "Per-file Statistics".
type fileStats struct {
	plan   *scanPlan
	add    *Add
	parsed bool
	parts  statsParts
}

func (s *fileStats) parse() {
	if s.parsed {
		return
	}
	s.parsed = true
	var err error
	if s.parts, err = splitStats([]byte(s.add.Stats)); err != nil {
		s.parts = statsParts{rows: -1}
	}
}

// RowCount is the number of rows in the file, deleted ones included, as in all statistics.
func (s *fileStats) RowCount() (int64, bool) {
	s.parse()
	return s.parts.rows, s.parts.rows >= 0
}

// NullCount counts nulls among all rows of the file. Where deleted rows are among them the count is only told when it
// says that none or all are null.
func (s *fileStats) NullCount(column []string) (int64, bool) {
	c := s.plan.column(column)
	rows, known := s.RowCount()
	if c.partition {
		if v := s.value(c.path); v == nil {
			return rows, known
		}
		return 0, true
	}
	if c.typ == nil {
		return 0, false
	}
	count, ok := plainInt(findJSON(s.parts.nulls, c.path))
	if !ok || s.add.DeletionVector != nil && count != 0 && (!known || count != rows) {
		return 0, false
	}
	return count, true
}

// Min is a lower bound of the column's values.
func (s *fileStats) Min(column []string) (expr.Value, bool) { return s.bound(column, false) }

// Max is an upper bound of the column's values.
func (s *fileStats) Max(column []string) (expr.Value, bool) { return s.bound(column, true) }

func (s *fileStats) bound(column []string, upper bool) (expr.Value, bool) {
	c := s.plan.column(column)
	if c.partition {
		v := s.value(c.path)
		if v == nil {
			return expr.Value{}, false
		}
		return partitionBound(*v, c.typ)
	}
	if c.typ == nil {
		return expr.Value{}, false
	}
	s.parse()
	values := s.parts.min
	if upper {
		values = s.parts.max
	}
	v := findJSON(values, c.path)
	switch {
	case len(v) == 0:
		return expr.Value{}, false
	case v[0] == '"':
		text, err := (&jsonReader{data: v}).text()
		if err != nil {
			return expr.Value{}, false
		}
		return textBound(string(text), c.typ, upper)
	}
	if c.typ == Double {
		return doubleBound(string(v), upper)
	}
	return numberBound(string(v), c.typ)
}

// columnStats is how a column of the condition is found in what add actions say.
type columnStats struct {
	path      []string // of physical names
	typ       Type     // nil: there is no such column
	partition bool
}

// column resolves a path of names; it remembers what it found, for one goroutine at a time.
func (p *scanPlan) column(names []string) columnStats {
	key := strings.Join(names, "\x00")
	c, ok := p.resolved[key]
	if !ok {
		c = p.resolve(names)
		p.resolved[key] = c
	}
	return c
}

func (p *scanPlan) resolve(names []string) (c columnStats) {
	fields := p.snap.Schema().Fields
	for i, name := range names {
		f, _ := lookupField(fields, name)
		if f == nil {
			return columnStats{}
		}
		c.path, c.typ = append(c.path, p.mapping.physicalName(f)), f.Type
		if i == 0 && p.parts[strings.ToLower(f.Name)] {
			c.partition = true
			return c
		}
		fields = nil
		if st, ok := c.typ.(*Struct); ok {
			fields = st.Fields
		}
	}
	return c
}

// value is the file's value of a partition column; nil is null.
func (s *fileStats) value(path []string) *string {
	if v := s.add.PartitionValues[path[0]]; v != nil && *v != "" {
		return v
	}
	return nil
}

// partitionBound is the value of a partition column as a bound.
func partitionBound(v string, t Type) (expr.Value, bool) {
	switch t {
	case Boolean:
		b, err := strconv.ParseBool(strings.ToLower(v))
		return expr.BoolValue(b), err == nil
	case Float, Double:
		f, err := strconv.ParseFloat(v, 64)
		return expr.FloatValue(f), err == nil && !math.IsNaN(f)
	case Binary:
		return expr.BinaryValue([]byte(v)), true
	case Timestamp, TimestampNTZ:
		us, err := parseMicros(v)
		return expr.TimestampValue(us), err == nil
	}
	if value, ok := numberBound(v, t); ok {
		return value, true
	}
	return textBound(v, t, false)
}

func numberBound(text string, t Type) (expr.Value, bool) {
	switch t := t.(type) {
	case Decimal:
		v, err := parseDecimalValue(text, t)
		return expr.DecimalValue(v, int32(t.Scale)), err == nil
	case Primitive:
		switch t {
		case Byte, Short, Integer, Long:
			v, err := strconv.ParseInt(text, 10, 64)
			return expr.IntValue(v), err == nil
		case Float:
			v, err := strconv.ParseFloat(text, 32)
			return expr.FloatValue(v), err == nil
		case Double:
			v, err := strconv.ParseFloat(text, 64)
			return expr.FloatValue(v), err == nil
		}
	}
	return expr.Value{}, false
}

// doubleBound leaves room for files from when the column was a float: their bounds are the shortest texts of floats, and
// the double that a text tells may lie inside of what the float stood for. Spec: "Type Widening".
func doubleBound(text string, upper bool) (expr.Value, bool) {
	v, err := strconv.ParseFloat(text, 64)
	if f := float64(float32(v)); err == nil && !math.IsInf(f, 0) && (f > v) == upper {
		v = f
	}
	return expr.FloatValue(v), err == nil
}

func textBound(text string, t Type, upper bool) (expr.Value, bool) {
	switch t {
	case String:
		return expr.StringValue(text), true
	case Date:
		days, err := parseDate(text)
		return expr.DateValue(int32(days)), err == nil && days == int64(int32(days))
	case Timestamp, TimestampNTZ:
		return momentBound(text, upper)
	}
	return expr.Value{}, false
}

// momentBound widens a bound by what writers cut off: fractions of a millisecond, and seconds of the zone's offset in
// versions of Spark that wrote another zone than Z.
func momentBound(text string, upper bool) (expr.Value, bool) {
	us, err := parseMicros(text)
	if err != nil {
		return expr.Value{}, false
	}
	slack := int64(0)
	if clock := strings.IndexAny(text, "T "); clock >= 0 && strings.ContainsAny(text[clock:], "+-") {
		slack = 59_000_000
	}
	if upper {
		return expr.TimestampValue(us + 999 + slack), true
	}
	return expr.TimestampValue(us - slack), true
}
