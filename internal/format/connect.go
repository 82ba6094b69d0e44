package format

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// connectSchema is a schema as Kafka Connect's JSON converter writes it beside each value.
type connectSchema struct {
	Type       string            `json:"type"`
	Name       string            `json:"name"`
	Field      string            `json:"field"`
	Parameters map[string]string `json:"parameters"`
	Fields     []*connectSchema  `json:"fields"`
	Items      *connectSchema    `json:"items"`
	Keys       *connectSchema    `json:"keys"`
	Values     *connectSchema    `json:"values"`
	Default    json.RawMessage   `json:"default"`
}

// parseConnect returns the schema, nil if it is none.
func parseConnect(b []byte) *connectSchema {
	s := &connectSchema{}
	if json.Unmarshal(b, s) != nil {
		return nil
	}
	return s
}

// field returns the field of that name, nil if there is none.
func (s *connectSchema) field(name string) *connectSchema {
	if s == nil {
		return nil
	}
	for _, f := range s.Fields {
		if f != nil && f.Field == name {
			return f
		}
	}
	return nil
}

// row returns the struct of a table's columns: of an envelope that of its images, else the schema itself.
func (s *connectSchema) row(flattened bool) *connectSchema {
	if flattened {
		return s
	}
	if after := s.field("after"); after != nil {
		return after
	}
	return s.field("before")
}

// logical is what a name of a schema says that its values are.
type logical struct {
	wire wire
	t    arrow.DataType
}

var ntz = &arrow.TimestampType{Unit: arrow.Microsecond}

// logicals returns the types that have a name, but for those whose values are what their physical type says:
// durations, years, text of all sorts, geometries and vectors.
func logicals(name string) (logical, bool) {
	str := arrow.BinaryTypes.String
	connect, isConnect := strings.CutPrefix(name, "org.apache.kafka.connect.data.")
	debezium, _ := strings.CutPrefix(name, "io.debezium.")
	switch {
	case isConnect:
		l, ok := map[string]logical{
			"Date": {wire{form: asDays}, arrow.FixedWidthTypes.Date32}, "Time": {wire{form: asTime, scale: 3}, str},
			"Timestamp": {wire{form: asMoment, scale: 3}, ntz},
		}[connect]
		return l, ok
	case debezium == name:
		return logical{}, false
	}
	l, ok := map[string]logical{
		"data.VariableScaleDecimal": {wire{form: asNumber}, str},
		"data.Bits":                 {wire{form: asBits}, str},
		"time.Date":                 {wire{form: asDays}, arrow.FixedWidthTypes.Date32},
		"time.Time":                 {wire{form: asTime, scale: 3}, str},
		"time.MicroTime":            {wire{form: asTime, scale: 6}, str},
		"time.NanoTime":             {wire{form: asTime, scale: 9}, str},
		"time.Timestamp":            {wire{form: asMoment, scale: 3}, ntz},
		"time.MicroTimestamp":       {wire{form: asMoment, scale: 6}, ntz},
		"time.NanoTimestamp":        {wire{form: asMoment, scale: 9}, ntz},
		"time.ZonedTimestamp":       {wire{}, arrow.FixedWidthTypes.Timestamp_us},
		"time.IsoDate":              {wire{form: asIsoDate}, arrow.FixedWidthTypes.Date32},
		"time.IsoTimestamp":         {wire{}, ntz},
	}[debezium]
	return l, ok
}

const decimalName = "org.apache.kafka.connect.data.Decimal"

// parameter returns a whole number among the parameters; missing if there is none.
func (s *connectSchema) parameter(name string, missing int) int {
	v, err := strconv.Atoi(s.Parameters[name])
	if err != nil {
		return missing
	}
	return v
}

// wire returns the form of the values.
func (s *connectSchema) wire() wire {
	if s.Name == decimalName {
		return wire{form: asDecimal, scale: min(max(s.parameter("scale", 0), -mostScale), mostScale)}
	}
	if s.Type == "map" {
		return wire{form: asPairs}
	}
	l, _ := logicals(s.Name)
	if l.wire.form == asBits {
		l.wire.length = max(s.parameter("length", 0), 0)
	}
	return l.wire
}

// arrow returns the type of a column of such values; nil where there is none.
func (s *connectSchema) arrow() arrow.DataType {
	if s == nil {
		return nil
	}
	if s.Name == decimalName {
		scale, precision := s.parameter("scale", 0), s.parameter("connect.decimal.precision", 38)
		precision = max(precision, scale) - min(scale, 0)
		if precision < 1 || precision > 38 {
			return arrow.BinaryTypes.String
		}
		return &arrow.Decimal128Type{Precision: int32(precision), Scale: int32(max(scale, 0))}
	}
	if l, ok := logicals(s.Name); ok {
		return l.t
	}
	switch s.Type {
	case "array":
		element := s.Items.arrow()
		if element == nil {
			return nil
		}
		return arrow.ListOfField(arrow.Field{Name: "element", Type: element, Nullable: true})
	case "map":
		key, value := s.Keys.arrow(), s.Values.arrow()
		if key == nil || value == nil || arrow.IsNested(key.ID()) {
			return nil
		}
		return arrow.MapOf(key, value)
	case "struct":
		return s.arrowStruct()
	}
	return map[string]arrow.DataType{
		"int8": arrow.PrimitiveTypes.Int8, "int16": arrow.PrimitiveTypes.Int16, "int32": arrow.PrimitiveTypes.Int32,
		"int64": arrow.PrimitiveTypes.Int64, "float": arrow.PrimitiveTypes.Float32,
		"float32": arrow.PrimitiveTypes.Float32, "double": arrow.PrimitiveTypes.Float64,
		"float64": arrow.PrimitiveTypes.Float64, "boolean": arrow.FixedWidthTypes.Boolean,
		"string": arrow.BinaryTypes.String, "bytes": arrow.BinaryTypes.Binary,
	}[s.Type]
}

func (s *connectSchema) arrowStruct() arrow.DataType {
	var fields []arrow.Field
	seen := map[string]bool{}
	for _, f := range s.Fields {
		t := f.arrow()
		if t == nil || seen[strings.ToLower(f.Field)] || !nameable([]byte(f.Field)) {
			continue
		}
		seen[strings.ToLower(f.Field)] = true
		fields = append(fields, arrow.Field{Name: f.Field, Type: t, Nullable: true})
	}
	if len(fields) == 0 {
		return nil
	}
	return arrow.StructOf(fields...)
}

// observeDeclared adds the fields of a struct, with their types, as if values of them had been seen.
func (s *shape) observeDeclared(of *connectSchema) {
	for place, f := range of.Fields {
		if f == nil {
			continue
		}
		if t := f.arrow(); t != nil {
			column := s.field([]byte(f.Field))
			column.sawAt(place, []byte(f.Field), 1)
			column.declare(t)
		}
	}
}

// wires are the forms of a node and of those within.
func (n *node) setWires(s *connectSchema) {
	if n.plain == kindCapture {
		if n.first != nil {
			n.first.setWires(s)
		}
		return
	}
	n.setWire(s.wire())
	switch {
	case s.Name != "" && n.wire.form != asPlain: // its structure is the form's
	case n.plain == kindList && s.Items != nil:
		n.first.setWires(s.Items)
	case n.plain == kindMap && s.Keys != nil && s.Values != nil:
		n.first.setWires(s.Keys)
		n.second.setWires(s.Values)
	case n.plain == kindStruct:
		for _, f := range s.Fields {
			if f == nil {
				continue
			}
			if to := n.fields.find([]byte(f.Field)); to != nil {
				to.node.setWires(f)
			}
		}
	}
}

// clearWires gives the nodes in the struct back the forms that values have without a schema: dates are days,
// too.
func (n *node) clearWires() {
	w := wire{}
	if n.plain == kindDate {
		w.form = asDays
	}
	n.setWire(w)
	n.fallback = nil
	for _, within := range []*node{n.first, n.second} {
		if within != nil {
			within.clearWires()
		}
	}
	if n.fields != nil {
		for k := range n.fields.list {
			n.fields.list[k].node.clearWires()
		}
	}
}
