package postgres

import (
	"errors"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

var (
	stampType   = &arrow.TimestampType{Unit: arrow.Microsecond}
	instantType = &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
)

// schema gives the columns that a table of the source becomes, less those that are Out: names that Delta takes, in the order of the table,
// types as columnType gives them, all nullable, since the log leaves values out. Errors: names that are one and the same in
// Delta.
func (t *typeMap) schema(table *Table) (*arrow.Schema, error) {
	fields := make([]arrow.Field, 0, len(table.Columns))
	taken := map[string]string{}
	var faults []error
	for i := range table.Columns {
		c := &table.Columns[i]
		if c.Out {
			continue
		}
		name := columnName(c.Name)
		if t.hiding(table, c).LeftOut {
			if c.Unique {
				faults = append(faults, fmt.Errorf("table %s: found the column %q left out, wanted it: it is of the key, by which rows are "+
					"told apart; it may be masked", table, c.Name))
			}
			continue
		}
		if other, twice := taken[strings.ToLower(name)]; twice {
			faults = append(faults, fmt.Errorf("table %s: found the columns %q and %q, wanted names that differ in more "+
				"than case: leave one out of the publication", table, other, c.Name))
			continue
		}
		taken[strings.ToLower(name)] = c.Name
		fields = append(fields, arrow.Field{Name: name, Type: t.columnType(table, c), Nullable: true})
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return arrow.NewSchema(fields, nil), nil
}

// fit is schema with the types of known, the columns that the target has, for those that are in it: a table keeps its
// types. known may be nil.
func (t *typeMap) fit(table *Table, known *arrow.Schema) (*arrow.Schema, error) {
	schema, err := t.schema(table)
	if err != nil || known == nil {
		return schema, err
	}
	byName := map[string]arrow.Field{}
	for _, f := range known.Fields() {
		byName[strings.ToLower(f.Name)] = f
	}
	fields := schema.Fields()
	for i, f := range fields {
		if k, ok := byName[strings.ToLower(f.Name)]; ok {
			fields[i] = k
		}
	}
	return arrow.NewSchema(fields, nil), nil
}

// columnName is the name of a column in Delta: characters that a table without column mapping cannot have are
// underscores. Spec: "Column Mapping".
func columnName(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(" ,;{}()\n\t=", r) {
			return '_'
		}
		return r
	}, name)
}

// columnType is the type of a column: that of its type's values, or text where people chose so, where it is masked, or declared
// with several dimensions, which a Delta array does not have, or where numbers of a key would be rounded, or a key would be of parts.
func (t *typeMap) columnType(table *Table, c *Column) arrow.DataType {
	if t.choices.Columns[table.String()+"."+c.Name] == AsText || c.Dimensions > 1 || t.hiding(table, c).Key != nil {
		return arrow.BinaryTypes.String
	}
	to := t.arrowType(c.Type, c.Modifier, 0)
	if p, _ := t.resolve(c.Type, c.Modifier); c.Unique && (p.kind == kindNumeric && to.ID() == arrow.FLOAT64 || arrow.IsNested(to.ID())) {
		return arrow.BinaryTypes.String
	}
	return to
}

// arrowType is the type of the values of a type that lies in so many others.
func (t *typeMap) arrowType(oid uint32, modifier int32, depth int) arrow.DataType {
	p, modifier := t.resolve(oid, modifier)
	if depth > maxNested {
		return arrow.BinaryTypes.String
	}
	switch p.kind {
	case kindBool:
		return arrow.FixedWidthTypes.Boolean
	case kindInt:
		return map[int]arrow.DataType{16: arrow.PrimitiveTypes.Int16, 32: arrow.PrimitiveTypes.Int32,
			33: arrow.PrimitiveTypes.Int64, 64: arrow.PrimitiveTypes.Int64}[p.bits]
	case kindXID8:
		return &arrow.Decimal128Type{Precision: 20}
	case kindFloat:
		if p.bits == 32 {
			return arrow.PrimitiveTypes.Float32
		}
		return arrow.PrimitiveTypes.Float64
	case kindNumeric:
		return t.numericType(modifier)
	case kindMoney:
		return &arrow.Decimal128Type{Precision: 19, Scale: 2}
	case kindBytes, kindHex:
		return arrow.BinaryTypes.Binary
	case kindDate:
		return arrow.FixedWidthTypes.Date32
	case kindStamp:
		return stampType
	case kindInstant:
		return instantType
	case kindArray:
		return listOf(t.arrowType(p.of, modifier, depth+1))
	case kindVector:
		return listOf(arrow.PrimitiveTypes.Float32)
	case kindMap:
		m := arrow.MapOf(arrow.BinaryTypes.String, arrow.BinaryTypes.String)
		m.SetItemNullable(true)
		return m
	case kindStruct:
		return t.structType(p, depth)
	}
	return arrow.BinaryTypes.String
}

func listOf(element arrow.DataType) arrow.DataType {
	return arrow.ListOfField(arrow.Field{Name: "element", Type: element, Nullable: true})
}

// numericType is a decimal where the modifier says so and Delta has one that holds it, else what Types.Numeric says,
// and text where that says nothing.
func (t *typeMap) numericType(modifier int32) arrow.DataType {
	if p, s, ok := precision(modifier); ok {
		switch {
		case s < 0 && p-s <= 38:
			return &arrow.Decimal128Type{Precision: int32(p - s)}
		case s >= 0 && max(p, s) <= 38:
			return &arrow.Decimal128Type{Precision: int32(max(p, s)), Scale: int32(s)}
		}
		return arrow.BinaryTypes.String
	}
	var p, s int32
	switch n, _ := fmt.Sscanf(t.choices.Numeric, "decimal(%d,%d)", &p, &s); {
	case n == 2:
		return &arrow.Decimal128Type{Precision: p, Scale: s}
	case t.choices.Numeric == NumericDouble:
		return arrow.PrimitiveTypes.Float64
	}
	return arrow.BinaryTypes.String
}

// structType is a struct of a composite type's attributes, or text where one has a name that Delta does not take.
func (t *typeMap) structType(p pgType, depth int) arrow.DataType {
	fields := make([]arrow.Field, 0, len(p.fields))
	taken := map[string]bool{}
	for _, a := range p.fields {
		name := strings.ToLower(a.Name)
		if columnName(a.Name) != a.Name || taken[name] {
			return arrow.BinaryTypes.String
		}
		taken[name] = true
		fields = append(fields, arrow.Field{Name: a.Name, Type: t.arrowType(a.Type, a.Modifier, depth+1), Nullable: true})
	}
	if len(fields) == 0 {
		return arrow.BinaryTypes.String
	}
	return arrow.StructOf(fields...)
}

// Validate reports everything in it that cannot be.
func (o *Types) Validate() error {
	var faults []error
	switch o.Numeric {
	case "", NumericText, NumericDouble:
	default:
		var p, s int
		n, err := fmt.Sscanf(o.Numeric, "decimal(%d,%d)", &p, &s)
		if n != 2 || err != nil || o.Numeric != fmt.Sprintf("decimal(%d,%d)", p, s) || p < 1 || p > 38 || s < 0 || s > p {
			faults = append(faults, fmt.Errorf("numeric: found %q, wanted text, double, or decimal(P,S) with P up to 38 "+
				"and S up to P", o.Numeric))
		}
	}
	if o.Beyond != "" && o.Beyond != BeyondNull && o.Beyond != BeyondReject {
		faults = append(faults, fmt.Errorf("beyond: found %q, wanted null or reject", o.Beyond))
	}
	for name, as := range o.Columns {
		if as != AsText || strings.Count(name, ".") < 2 {
			faults = append(faults, fmt.Errorf("columns: found %s: %q, wanted SCHEMA.TABLE.COLUMN: text", name, as))
		}
	}
	return errors.Join(faults...)
}
