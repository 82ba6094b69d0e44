package delta

import (
	"encoding/json"
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

// mayMatch reports whether the file may have a row that the condition keeps.
func (p *scanPlan) mayMatch(add *Add) bool {
	return p.where == nil || p.where.MayMatch(&fileStats{plan: p, add: add})
}

// fileStats is what an add action tells of its file's rows. What the action leaves out, or what cannot be parsed, is
// unknown, and prunes nothing. Spec: "Per-file Statistics".
type fileStats struct {
	plan   *scanPlan
	add    *Add
	parsed bool
	stats  struct {
		NumRecords *int64         `json:"numRecords"`
		MinValues  map[string]any `json:"minValues"`
		MaxValues  map[string]any `json:"maxValues"`
		NullCount  map[string]any `json:"nullCount"`
	}
}

func (s *fileStats) parse() {
	if s.parsed {
		return
	}
	s.parsed = true
	d := json.NewDecoder(strings.NewReader(s.add.Stats))
	d.UseNumber() // so that no digit is lost
	if s.add.Stats == "" || d.Decode(&s.stats) != nil {
		s.stats.NumRecords, s.stats.MinValues, s.stats.MaxValues, s.stats.NullCount = nil, nil, nil, nil
	}
}

// RowCount is the number of rows in the file, deleted ones included, as in all statistics.
func (s *fileStats) RowCount() (int64, bool) {
	s.parse()
	if s.stats.NumRecords == nil || *s.stats.NumRecords < 0 {
		return 0, false
	}
	return *s.stats.NumRecords, true
}

// NullCount counts nulls among all rows of the file. Where deleted rows are among them the count is only told when it
// says that none or all are null.
func (s *fileStats) NullCount(column []string) (int64, bool) {
	path, t, partition := s.resolve(column)
	rows, known := s.RowCount()
	if partition {
		if v := s.value(path); v == nil {
			return rows, known
		}
		return 0, true
	}
	if t == nil {
		return 0, false
	}
	n, ok := within(s.stats.NullCount, path).(json.Number)
	if !ok {
		return 0, false
	}
	count, err := strconv.ParseInt(n.String(), 10, 64)
	if err != nil || s.add.DeletionVector != nil && count != 0 && (!known || count != rows) {
		return 0, false
	}
	return count, true
}

// Min is a lower bound of the column's values.
func (s *fileStats) Min(column []string) (expr.Value, bool) { return s.bound(column, false) }

// Max is an upper bound of the column's values.
func (s *fileStats) Max(column []string) (expr.Value, bool) { return s.bound(column, true) }

func (s *fileStats) bound(column []string, upper bool) (expr.Value, bool) {
	path, t, partition := s.resolve(column)
	if partition {
		v := s.value(path)
		if v == nil {
			return expr.Value{}, false
		}
		return partitionBound(*v, t)
	}
	if t == nil {
		return expr.Value{}, false
	}
	s.parse()
	values := s.stats.MinValues
	if upper {
		values = s.stats.MaxValues
	}
	switch v := within(values, path).(type) {
	case json.Number:
		return numberBound(v.String(), t)
	case string:
		return textBound(v, t, upper)
	}
	return expr.Value{}, false
}

// resolve turns the path of a column into the physical one and finds its type, nil when there is no such column.
func (s *fileStats) resolve(column []string) (path []string, t Type, partition bool) {
	fields := s.plan.snap.Schema().Fields
	for i, name := range column {
		f, _ := lookupField(fields, name)
		if f == nil {
			return nil, nil, false
		}
		path, t = append(path, s.plan.mapping.physicalName(f)), f.Type
		if i == 0 && s.plan.parts[strings.ToLower(f.Name)] {
			return path, t, true
		}
		fields = nil
		if st, ok := t.(*Struct); ok {
			fields = st.Fields
		}
	}
	return path, t, false
}

// value is the file's value of a partition column; nil is null.
func (s *fileStats) value(path []string) *string {
	if v := s.add.PartitionValues[path[0]]; v != nil && *v != "" {
		return v
	}
	return nil
}

func within(values map[string]any, path []string) any {
	var v any = values
	for _, name := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
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
