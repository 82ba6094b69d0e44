package lake

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/expr"
)

// keysCondition is true of the rows of a table that have one of the keys, whose values are text. Errors: CodeUnknownColumn, CodeExprType.
func keysCondition(schema *arrow.Schema, keys ...[]TracedValue) (*expr.Expr, error) {
	var all []string
	for _, key := range keys {
		var parts []string
		for _, k := range key {
			at := slices.IndexFunc(schema.Fields(), func(f arrow.Field) bool { return strings.EqualFold(f.Name, k.Column) })
			if at < 0 {
				return nil, &freshet.Error{Code: freshet.CodeUnknownColumn, Class: freshet.ClassInput, Place: k.Column,
					Msg: "the table has no such column"}
			}
			f := schema.Field(at)
			value := "'" + strings.ReplaceAll(*k.Value, "'", "''") + "'"
			if f.Type.ID() != arrow.STRING {
				value = "CAST(" + value + " AS " + sqlType(f.Type) + ")"
			}
			parts = append(parts, `"`+strings.ReplaceAll(f.Name, `"`, `""`)+`" = `+value)
		}
		all = append(all, "("+strings.Join(parts, " AND ")+")")
	}
	e, err := expr.Parse(strings.Join(all, " OR "))
	if err != nil {
		return nil, &freshet.Error{Code: freshet.CodeExprType, Class: freshet.ClassInput, Place: "key", Msg: err.Error()}
	}
	return e, nil
}

// sqlType is a type as expressions write it.
func sqlType(t arrow.DataType) string {
	switch t := t.(type) {
	case *arrow.Decimal128Type:
		return fmt.Sprintf("DECIMAL(%d, %d)", t.Precision, t.Scale)
	case *arrow.TimestampType:
		if t.TimeZone == "" {
			return "TIMESTAMP_NTZ"
		}
		return "TIMESTAMP"
	}
	return cmp.Or(map[arrow.Type]string{arrow.BOOL: "BOOLEAN", arrow.INT8: "TINYINT", arrow.INT16: "SMALLINT", arrow.INT32: "INT",
		arrow.INT64: "BIGINT", arrow.FLOAT32: "FLOAT", arrow.FLOAT64: "DOUBLE", arrow.DATE32: "DATE", arrow.BINARY: "BINARY"}[t.ID()], "STRING")
}
