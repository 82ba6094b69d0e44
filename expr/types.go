package expr

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// kind is how the values of a type are held while an expression runs.
type kind uint8

const (
	kindNull     kind = iota // a bare NULL
	kindBool                 // bits
	kindInt                  // int64, whatever the width of the type
	kindFloat                // float64, also for float
	kindDecimal              // decimal128
	kindString               // bytes, UTF-8
	kindBinary               // bytes
	kindDate                 // int64, days since 1970-01-01
	kindTime                 // int64, microseconds since 1970-01-01 00:00 UTC
	kindInterval             // a literal only: see interval
	kindNested               // struct, list, map, and types that are only passed on
)

var (
	typeNull      = arrow.Null
	typeBool      = arrow.FixedWidthTypes.Boolean
	typeInt8      = arrow.PrimitiveTypes.Int8
	typeInt16     = arrow.PrimitiveTypes.Int16
	typeInt32     = arrow.PrimitiveTypes.Int32
	typeInt64     = arrow.PrimitiveTypes.Int64
	typeFloat32   = arrow.PrimitiveTypes.Float32
	typeFloat64   = arrow.PrimitiveTypes.Float64
	typeString    = arrow.BinaryTypes.String
	typeBinary    = arrow.BinaryTypes.Binary
	typeDate      = arrow.FixedWidthTypes.Date32
	typeTimestamp = &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	typeNTZ       = &arrow.TimestampType{Unit: arrow.Microsecond}
	typeInterval  = arrow.FixedWidthTypes.MonthDayNanoInterval
)

// maxDigits is the precision of the widest decimal.
const maxDigits = 38

func decimalType(precision, scale int32) *arrow.Decimal128Type {
	return &arrow.Decimal128Type{Precision: precision, Scale: scale}
}

func kindOf(t arrow.DataType) kind {
	switch t.ID() {
	case arrow.NULL:
		return kindNull
	case arrow.BOOL:
		return kindBool
	case arrow.INT8, arrow.INT16, arrow.INT32, arrow.INT64:
		return kindInt
	case arrow.FLOAT32, arrow.FLOAT64:
		return kindFloat
	case arrow.DECIMAL128:
		return kindDecimal
	case arrow.STRING:
		return kindString
	case arrow.BINARY:
		return kindBinary
	case arrow.DATE32:
		return kindDate
	case arrow.TIMESTAMP:
		if t.(*arrow.TimestampType).Unit == arrow.Microsecond {
			return kindTime
		}
	case arrow.INTERVAL_MONTH_DAY_NANO:
		return kindInterval
	}
	return kindNested
}

// isNumber tells whether arithmetic is defined on the type.
func isNumber(t arrow.DataType) bool {
	k := kindOf(t)
	return k == kindInt || k == kindFloat || k == kindDecimal
}

// typeName is the type as people write it in a CAST.
func typeName(t arrow.DataType) string {
	switch t.ID() {
	case arrow.NULL:
		return "null"
	case arrow.BOOL:
		return "boolean"
	case arrow.INT8:
		return "tinyint"
	case arrow.INT16:
		return "smallint"
	case arrow.INT32:
		return "int"
	case arrow.INT64:
		return "bigint"
	case arrow.FLOAT32:
		return "float"
	case arrow.FLOAT64:
		return "double"
	case arrow.DECIMAL128:
		d := t.(*arrow.Decimal128Type)
		return fmt.Sprintf("decimal(%d, %d)", d.Precision, d.Scale)
	case arrow.STRING:
		return "string"
	case arrow.BINARY:
		return "binary"
	case arrow.DATE32:
		return "date"
	case arrow.INTERVAL_MONTH_DAY_NANO:
		return "interval"
	}
	return nestedTypeName(t)
}

func nestedTypeName(t arrow.DataType) string {
	switch t := t.(type) {
	case *arrow.TimestampType:
		switch {
		case t.Unit != arrow.Microsecond:
			return t.String()
		case t.TimeZone == "":
			return "timestamp_ntz"
		}
		return "timestamp"
	case *arrow.MapType:
		return fmt.Sprintf("map<%s, %s>", typeName(t.KeyType()), typeName(t.ItemType()))
	case arrow.ListLikeType:
		return fmt.Sprintf("array<%s>", typeName(t.Elem()))
	case *arrow.StructType:
		fields := make([]string, t.NumFields())
		for i, f := range t.Fields() {
			fields[i] = f.Name + ": " + typeName(f.Type)
		}
		return "struct<" + strings.Join(fields, ", ") + ">"
	}
	return t.String()
}

// namedType returns the type that CAST calls by this name; nil when there is none. Precision and scale of a
// decimal are set by the caller.
func namedType(name string) arrow.DataType {
	switch strings.ToLower(name) {
	case "boolean", "bool":
		return typeBool
	case "tinyint", "byte":
		return typeInt8
	case "smallint", "short":
		return typeInt16
	case "int", "integer":
		return typeInt32
	case "bigint", "long":
		return typeInt64
	case "float", "real":
		return typeFloat32
	case "double":
		return typeFloat64
	case "decimal", "numeric":
		return decimalType(10, 0)
	case "string", "varchar", "text":
		return typeString
	case "binary":
		return typeBinary
	case "date":
		return typeDate
	case "timestamp":
		return typeTimestamp
	case "timestamp_ntz":
		return typeNTZ
	}
	return nil
}

// typeWords are the names that a mistyped one may have meant.
const typeWords = "boolean tinyint byte smallint short int integer bigint long float real double decimal " +
	"string varchar text binary date timestamp timestamp_ntz"

const typeNames = "boolean, tinyint, smallint, int, bigint, float, double, decimal(p, s), string, binary, " +
	"date, timestamp or timestamp_ntz"

func intWidth(t arrow.DataType) int { return t.(arrow.FixedWidthDataType).BitWidth() }

// intDigits is how many decimal digits the integer type needs.
func intDigits(t arrow.DataType) int32 {
	switch intWidth(t) {
	case 8:
		return 3
	case 16:
		return 5
	case 32:
		return 10
	}
	return 19
}

// asDecimal is the decimal type that holds all values of an integer or decimal type.
func asDecimal(t arrow.DataType) *arrow.Decimal128Type {
	if d, ok := t.(*arrow.Decimal128Type); ok {
		return d
	}
	return decimalType(intDigits(t), 0)
}

// commonType is the least type that holds the values of both without loss; ok is false when there is none. A
// decimal wider than 38 digits gives up fraction before whole digits only in comparison, never here.
func commonType(a, b arrow.DataType) (t arrow.DataType, ok bool) {
	ka, kb := kindOf(a), kindOf(b)
	switch {
	case arrow.TypeEqual(a, b):
		return a, true
	case ka == kindNull:
		return b, true
	case kb == kindNull:
		return a, true
	case ka == kindInt && kb == kindInt:
		if intWidth(a) >= intWidth(b) {
			return a, true
		}
		return b, true
	case isNumber(a) && isNumber(b):
		if ka == kindFloat || kb == kindFloat {
			return typeFloat64, true
		}
		return commonDecimal(asDecimal(a), asDecimal(b))
	case ka == kindDate && kb == kindTime:
		return b, true
	case ka == kindTime && kb == kindDate:
		return a, true
	case ka == kindTime && kb == kindTime:
		return typeTimestamp, true
	}
	return nil, false
}

func commonDecimal(a, b *arrow.Decimal128Type) (arrow.DataType, bool) {
	scale := max(a.Scale, b.Scale)
	whole := max(a.Precision-a.Scale, b.Precision-b.Scale)
	if whole+scale > maxDigits {
		return nil, false
	}
	return decimalType(whole+scale, scale), true
}
