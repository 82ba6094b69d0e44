package delta

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet/delta/internal/parquet"
	"github.com/freshet-io/freshet/expr"
)

// NullError says that a row has null where the schema says NOT NULL.
type NullError struct {
	Column string        // path of the column, its parts joined by dots
	Row    int           // of the batch, from 0
	Empty  bool          // the value is an empty text, and the column a partition column, where that is null
	Others []ColumnValue // of the row, its first dozen columns but for that one
}

func (e *NullError) Error() string {
	return fmt.Sprintf("column %q, row %d: found %s, wanted a value: the column is NOT NULL%s", e.Column, e.Row,
		e.Found(), rowText(e.Others))
}

// Found is what the row has in the column, as messages tell it.
func (e *NullError) Found() string {
	if e.Empty {
		return "an empty text, which is null in a partition column"
	}
	return "null"
}

// matcher finds a batch's columns for a schema. It remembers the last batch's schema, since most are alike.
type matcher struct {
	extras []string // columns that batches may have beside those of the schema
	coded  bool     // texts may be places in dictionaries
	fitter fitter
	last   *arrow.Schema
	places []int // of the schema's columns, then of extras, in the batch; -1: it has none
}

// match finds the batch's arrays, and makes those dense and of the table's type that files cannot be written from. Errors:
// *ValueError.
func (m *matcher) match(s *Schema, rec arrow.RecordBatch) (*completion, error) {
	if m.last == nil || m.last != rec.Schema() && !m.last.Equal(rec.Schema()) {
		places, err := m.find(s, rec.Schema())
		if err != nil {
			return nil, err
		}
		m.last, m.places = rec.Schema(), places
	}
	c := &completion{arrays: make([]arrow.Array, len(m.places)), n: int(rec.NumRows())}
	for i, at := range m.places {
		switch {
		case at < 0:
		case encodable(rec.Column(at).DataType(), m.coded):
			c.arrays[i] = rec.Column(at)
		default:
			arr, err := m.converted(s, i, rec.Column(at))
			if err != nil {
				c.release()
				return nil, err
			}
			c.set(i, arr)
		}
	}
	return c, nil
}

// converted makes the array of a column dense, and gives it the column's type. i counts the extras after the columns.
func (m *matcher) converted(s *Schema, i int, arr arrow.Array) (arrow.Array, error) {
	name := ""
	if i < len(s.Fields) {
		name = s.Fields[i].Name
	}
	dense, err := expr.Dense(arr)
	if err != nil {
		return nil, fmt.Errorf("column %q: %w", name, err)
	}
	if name == "" || !foreign(dense.DataType()) {
		return dense, nil
	}
	defer dense.Release()
	return m.fitter.fit(s.Fields[i].Type, dense, name, false)
}

// encodable reports whether files are written from arrays of the type as they are, large ones among them. coded says that
// texts may be places in dictionaries.
func encodable(t arrow.DataType, coded bool) bool {
	switch t := t.(type) {
	case *arrow.LargeStringType, *arrow.LargeBinaryType:
		return true
	case *arrow.DictionaryType:
		return coded && t.IndexType.ID() == arrow.INT32 && (t.ValueType.ID() == arrow.STRING || t.ValueType.ID() == arrow.BINARY)
	case *arrow.StructType:
		return !slices.ContainsFunc(t.Fields(), func(f arrow.Field) bool { return !encodable(f.Type, coded) })
	case *arrow.MapType:
		return encodable(t.KeyType(), coded) && encodable(t.ItemType(), coded)
	case *arrow.ListType:
		return encodable(t.Elem(), coded)
	case *arrow.LargeListType:
		return encodable(t.Elem(), coded)
	}
	return arrow.TypeEqual(t, expr.DenseType(t)) && !foreign(t)
}

// checkColumns checks that no row has null where the schema wants a value. Spec: "Partition Value Serialization", by which
// an empty text is null.
func (l *fileLayout) checkColumns(arrays []arrow.Array, n int) error {
	s := l.schema
	for i := range s.Fields {
		if err := checkNulls(&s.Fields[i], arrays[i], s.Fields[i].Name, n); err != nil {
			return err
		}
	}
	for _, i := range l.partitions {
		if s.Fields[i].Nullable {
			continue
		}
		if row := firstEmpty(arrays[i]); row >= 0 {
			return &NullError{Column: s.Fields[i].Name, Row: row, Empty: true}
		}
	}
	return nil
}

// firstEmpty is the first row that is an empty text or no bytes, -1: none is.
func firstEmpty(arr arrow.Array) int {
	texts, ok := arr.(array.BinaryLike)
	if !ok {
		return -1
	}
	for row := range texts.Len() {
		if texts.IsValid(row) && texts.ValueLen(row) == 0 {
			return row
		}
	}
	return -1
}

func (m *matcher) find(s *Schema, as *arrow.Schema) ([]int, error) {
	places := make([]int, len(s.Fields)+len(m.extras))
	for i := range places {
		places[i] = -1
	}
	for j, f := range as.Fields() {
		if i := slices.Index(m.extras, f.Name); i >= 0 {
			if wanted := extraType(f.Name); f.Type.ID() != wanted.ID() {
				return nil, &SchemaMismatchError{Column: f.Name, Found: f.Type.String(), Wanted: wanted.String()}
			}
			places[len(s.Fields)+i] = j
			continue
		}
		field, i := s.Lookup(f.Name)
		if field == nil {
			return nil, &SchemaMismatchError{Column: f.Name, Found: f.Type.String(), Wanted: "no such column"}
		}
		if places[i] >= 0 {
			return nil, fmt.Errorf("column %q: the batch has it twice", field.Name)
		}
		if err := checkType(field.Type, expr.DenseType(f.Type), field.Name); err != nil {
			return nil, err
		}
		places[i] = j
	}
	return places, nil
}

// extraType is the type of a column that is no column of the table.
func extraType(name string) arrow.DataType {
	if name == ChangeTypeColumn {
		return arrow.BinaryTypes.String
	}
	return arrow.PrimitiveTypes.Int64
}

// checkType checks that arrays of type a, a dense one, hold values of t. An array of type null holds nulls of any type.
func checkType(t Type, a arrow.DataType, path string) error {
	mismatch := &SchemaMismatchError{Column: path, Found: a.String(), Wanted: t.String()}
	if a.ID() == arrow.NULL {
		return nil
	}
	switch t := t.(type) {
	case *Struct:
		st, ok := a.(*arrow.StructType)
		if !ok {
			return mismatch
		}
		for _, f := range st.Fields() {
			field, _ := lookupField(t.Fields, f.Name)
			if field == nil {
				return &SchemaMismatchError{columnPath(path, f.Name), f.Type.String(), "no such field"}
			}
			if err := checkType(field.Type, f.Type, columnPath(path, field.Name)); err != nil {
				return err
			}
		}
		return nil
	case *Array:
		if l, ok := a.(*arrow.ListType); ok {
			return checkType(t.Element, l.Elem(), columnPath(path, "element"))
		}
		return mismatch
	case *Map:
		mt, ok := a.(*arrow.MapType)
		if !ok {
			return mismatch
		}
		if err := checkType(t.Key, mt.KeyType(), columnPath(path, "key")); err != nil {
			return err
		}
		return checkType(t.Value, mt.ItemType(), columnPath(path, "value"))
	}
	if fits(t, a) {
		return nil
	}
	if found, err := typeFromArrow(a, path); err != nil || found != t {
		return mismatch
	}
	return nil
}

// checkNulls checks that no row has null where the schema wants a value. n is the batch's number of rows, or -1 below
// a list or map.
func checkNulls(f *Field, arr arrow.Array, path string, n int) error {
	if !f.Nullable && n != 0 {
		if arr == nil || arr.DataType().ID() == arrow.NULL && arr.Len() > 0 {
			return &NullError{Column: path, Row: -1}
		}
	}
	if arr == nil || arr.Len() == 0 {
		return nil
	}
	if !f.Nullable && arr.NullN() > 0 {
		return firstNull(arr, path, n)
	}
	return checkNullsBelow(f.Type, arr, path, n)
}

func firstNull(arr arrow.Array, path string, n int) error {
	for i := range arr.Len() {
		if arr.IsNull(i) {
			if n < 0 {
				i = -1
			}
			return &NullError{Column: path, Row: i}
		}
	}
	return nil
}

func checkNullsBelow(t Type, arr arrow.Array, path string, n int) error {
	switch a := arr.(type) {
	case *array.Struct:
		for i := range t.(*Struct).Fields {
			f := &t.(*Struct).Fields[i]
			if err := checkField(f, a, columnPath(path, f.Name), n); err != nil {
				return err
			}
		}
	case *array.Map:
		m := t.(*Map)
		if err := checkElements(&Field{Type: m.Key}, a, a.Keys(), columnPath(path, "key")); err != nil {
			return err
		}
		value := &Field{Type: m.Value, Nullable: m.ValueContainsNull}
		return checkElements(value, a, a.Items(), columnPath(path, "value"))
	case array.ListLike:
		element := &Field{Type: t.(*Array).Element, Nullable: t.(*Array).ContainsNull}
		return checkElements(element, a, a.ListValues(), columnPath(path, "element"))
	}
	return nil
}

// checkField checks one field of a struct; where the struct itself is null the field may be, too.
func checkField(f *Field, s *array.Struct, path string, n int) error {
	child := childNamed(s, f.Name)
	if f.Nullable || s.NullN() == 0 {
		return checkNulls(f, child, path, n)
	}
	for i := range s.Len() {
		if s.IsValid(i) && (child == nil || child.IsNull(i)) {
			if n < 0 {
				i = -1
			}
			return &NullError{Column: path, Row: i}
		}
	}
	if child == nil {
		return nil
	}
	return checkNullsBelow(f.Type, child, path, n)
}

func childNamed(s *array.Struct, name string) arrow.Array {
	for i, f := range s.DataType().(*arrow.StructType).Fields() {
		if strings.EqualFold(f.Name, name) {
			return s.Field(i)
		}
	}
	return nil
}

// checkElements checks the elements that rows of the list refer to.
func checkElements(f *Field, list array.ListLike, elements arrow.Array, path string) error {
	from, _ := list.ValueOffsets(0)
	_, to := list.ValueOffsets(list.Len() - 1)
	used := array.NewSlice(elements, from, to)
	defer used.Release()
	return checkNulls(f, used, path, -1)
}

// parquetColumn returns how a field is laid out in data files.
func (m mapping) parquetColumn(f Field, path string) (parquet.Column, error) {
	c := parquet.Column{Name: m.physicalName(&f), Nullable: f.Nullable}
	if c.Name != f.Name {
		c.From = f.Name
	}
	if m != byName {
		c.FieldID = fieldID(f.Metadata)
	}
	var err error
	switch t := f.Type.(type) {
	case Decimal:
		c.Kind, c.Precision, c.Scale = parquet.Decimal, t.Precision, t.Scale
	case *Struct:
		c.Kind = parquet.Struct
		err = m.parquetChildren(&c, path, t.Fields...)
		if err == nil && len(c.Children) == 0 {
			err = fmt.Errorf("column %q: a struct without a field that files could hold cannot be written", path)
		}
	case *Array:
		c.Kind = parquet.List
		err = m.parquetChildren(&c, path, Field{Name: "element", Type: t.Element, Nullable: t.ContainsNull})
	case *Map:
		c.Kind = parquet.Map
		err = m.parquetChildren(&c, path, Field{Name: "key", Type: t.Key},
			Field{Name: "value", Type: t.Value, Nullable: t.ValueContainsNull})
	case Primitive:
		kind, ok := primitiveKinds[t]
		if !ok {
			return c, &UnsupportedError{Feature: fmt.Sprintf("the type %s of column %q", t, path), Write: true}
		}
		c.Kind = kind
	}
	return c, err
}

func (m mapping) parquetChildren(c *parquet.Column, path string, fields ...Field) error {
	for _, f := range fields {
		if f.Type == Void && c.Kind == parquet.Struct {
			continue // a void field is left out of files
		}
		child, err := m.parquetColumn(f, columnPath(path, f.Name))
		if err != nil {
			return err
		}
		c.Children = append(c.Children, child)
	}
	return nil
}

var primitiveKinds = map[Primitive]parquet.Kind{
	Byte: parquet.Int8, Short: parquet.Int16, Integer: parquet.Int32, Long: parquet.Int64, Float: parquet.Float,
	Double: parquet.Double, Boolean: parquet.Boolean, String: parquet.String, Binary: parquet.Binary,
	Date: parquet.Date, Timestamp: parquet.Timestamp, TimestampNTZ: parquet.TimestampNTZ,
}

// fieldID returns the id that column mapping gave the field, 0 if none.
func fieldID(metadata json.RawMessage) int32 {
	var m struct {
		ID int32 `json:"delta.columnMapping.id"`
	}
	if len(metadata) == 0 || json.Unmarshal(metadata, &m) != nil {
		return 0
	}
	return m.ID
}
