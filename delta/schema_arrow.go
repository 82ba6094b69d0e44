package delta

import (
	"errors"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet/expr"
)

var (
	arrowTimestamp    = &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	arrowTimestampNTZ = &arrow.TimestampType{Unit: arrow.Microsecond}
	// arrowVariant is how a variant that is read appears: the bytes of Parquet's variant encoding.
	arrowVariant = arrow.StructOf(
		arrow.Field{Name: "metadata", Type: arrow.BinaryTypes.Binary, Nullable: true},
		arrow.Field{Name: "value", Type: arrow.BinaryTypes.Binary, Nullable: true})
)

// Arrow returns the schema of the record batches that hold the table's rows: timestamp as timestamp[µs, UTC],
// timestamp_ntz as timestamp[µs], decimals as decimal128, void as null, variant as struct<metadata, value>.
func (s *Schema) Arrow() *arrow.Schema {
	return arrow.NewSchema(arrowFields(s.Fields), nil)
}

func arrowFields(fields []Field) []arrow.Field {
	out := make([]arrow.Field, len(fields))
	for i, f := range fields {
		out[i] = arrow.Field{Name: f.Name, Type: ArrowType(f.Type), Nullable: f.Nullable}
	}
	return out
}

// ArrowType returns the Arrow type of the column that holds values of t.
func ArrowType(t Type) arrow.DataType {
	switch t := t.(type) {
	case Decimal:
		return &arrow.Decimal128Type{Precision: int32(t.Precision), Scale: int32(t.Scale)}
	case *Struct:
		return arrow.StructOf(arrowFields(t.Fields)...)
	case *Array:
		return arrow.ListOfField(arrow.Field{Name: "element", Type: ArrowType(t.Element), Nullable: t.ContainsNull})
	case *Map:
		return arrow.MapOfFields(
			arrow.Field{Name: "key", Type: ArrowType(t.Key)},
			arrow.Field{Name: "value", Type: ArrowType(t.Value), Nullable: t.ValueContainsNull})
	}
	switch t {
	case Byte:
		return arrow.PrimitiveTypes.Int8
	case Short:
		return arrow.PrimitiveTypes.Int16
	case Integer:
		return arrow.PrimitiveTypes.Int32
	case Long:
		return arrow.PrimitiveTypes.Int64
	case Float:
		return arrow.PrimitiveTypes.Float32
	case Double:
		return arrow.PrimitiveTypes.Float64
	case Boolean:
		return arrow.FixedWidthTypes.Boolean
	case String:
		return arrow.BinaryTypes.String
	case Binary:
		return arrow.BinaryTypes.Binary
	case Date:
		return arrow.FixedWidthTypes.Date32
	case Timestamp:
		return arrowTimestamp
	case TimestampNTZ:
		return arrowTimestampNTZ
	case Variant:
		return arrowVariant
	}
	return arrow.Null
}

// SchemaFromArrow returns the Delta schema of record batches, in whichever layout they have their values: dictionaries,
// runs, views, large and fixed-size strings and lists (expr.DenseType). Unsigned integers become the next wider type: short,
// integer, long, decimal(20,0); timestamps of any unit become those in µs. Errors: names that Validate refuses;
// *SchemaMismatchError for types without counterpart, such as times of day.
func SchemaFromArrow(as *arrow.Schema) (*Schema, error) {
	fields, faults := fieldsFromArrow(as.Fields(), "")
	s := &Schema{Fields: fields}
	if len(faults) == 0 {
		faults = validateFields(fields, "", byName)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return s, nil
}

func fieldsFromArrow(in []arrow.Field, path string) (out []Field, faults []error) {
	for _, f := range in {
		t, err := typeFromArrow(f.Type, columnPath(path, f.Name))
		if err != nil {
			faults = append(faults, err)
			continue
		}
		out = append(out, Field{Name: f.Name, Type: t, Nullable: f.Nullable})
	}
	return out, faults
}

func typeFromArrow(t arrow.DataType, path string) (Type, error) {
	if wider, ok := deltaTypeOf(expr.DenseType(t)); ok {
		return wider, nil
	}
	switch t := expr.DenseType(t).(type) {
	case *arrow.TimestampType:
		if t.TimeZone == "" {
			return TimestampNTZ, nil
		}
		return Timestamp, nil
	case *arrow.Decimal128Type:
		return Decimal{int(t.Precision), int(t.Scale)}, nil
	case *arrow.StructType:
		fields, faults := fieldsFromArrow(t.Fields(), path)
		if len(faults) > 0 {
			return nil, errors.Join(faults...)
		}
		return &Struct{Fields: fields}, nil
	case *arrow.ListType:
		return arrayFromArrow(t.ElemField(), path)
	case *arrow.MapType:
		return mapFromArrow(t, path)
	}
	if p, ok := primitiveFromArrow(expr.DenseType(t).ID()); ok {
		return p, nil
	}
	return nil, &SchemaMismatchError{Column: path, Found: t.String(), Wanted: "a type that Delta has"}
}

func primitiveFromArrow(id arrow.Type) (Primitive, bool) {
	switch id {
	case arrow.INT8:
		return Byte, true
	case arrow.INT16:
		return Short, true
	case arrow.INT32:
		return Integer, true
	case arrow.INT64:
		return Long, true
	case arrow.FLOAT32:
		return Float, true
	case arrow.FLOAT64:
		return Double, true
	case arrow.BOOL:
		return Boolean, true
	case arrow.STRING:
		return String, true
	case arrow.BINARY:
		return Binary, true
	case arrow.DATE32:
		return Date, true
	case arrow.NULL:
		return Void, true
	}
	return "", false
}

func arrayFromArrow(element arrow.Field, path string) (Type, error) {
	t, err := typeFromArrow(element.Type, columnPath(path, "element"))
	if err != nil {
		return nil, err
	}
	return &Array{Element: t, ContainsNull: element.Nullable}, nil
}

func mapFromArrow(t *arrow.MapType, path string) (Type, error) {
	key, err := typeFromArrow(t.KeyType(), columnPath(path, "key"))
	if err != nil {
		return nil, err
	}
	value, err := typeFromArrow(t.ItemType(), columnPath(path, "value"))
	if err != nil {
		return nil, err
	}
	return &Map{Key: key, Value: value, ValueContainsNull: t.ItemField().Nullable}, nil
}
