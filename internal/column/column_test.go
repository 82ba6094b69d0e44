package column_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet/internal/column"
)

// take returns the column as text.
func take(t *testing.T, c column.Column, dt arrow.DataType) string {
	t.Helper()
	data := c.Take(dt)
	defer data.Release()
	a := array.MakeFromData(data)
	defer a.Release()
	return a.String()
}

func TestText_TruncatedInTheMiddleOfARow_KeepsTheRowsBefore(t *testing.T) {
	c := column.NewText(column.Validity{})
	c.Append([]byte("a"))
	c.AppendNull()
	c.Append([]byte("bc"))
	c.Data = append(c.Data, "half"...)
	c.Truncate(2)
	c.Append([]byte("d"))
	if got, want := take(t, c, arrow.BinaryTypes.String), `["a" (null) "d"]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if c.Rows() != 0 {
		t.Errorf("after Take: got %d rows, want 0", c.Rows())
	}
}

func TestBools_NineRows_PackIntoBits(t *testing.T) {
	c := &column.Bools{}
	for i := range 9 {
		if i == 4 {
			c.AppendNull()
			continue
		}
		c.Append(i%2 == 0)
	}
	want := "[true false true false (null) false true false true]"
	if got := take(t, c, arrow.FixedWidthTypes.Boolean); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestLists_OfStructs_Truncated_DropTheirElements(t *testing.T) {
	numbers := &column.Fixed[int32]{}
	element := &column.Structs{Fields: []column.Column{numbers}}
	c := column.NewLists(column.Validity{}, element)
	add := func(v int32) {
		numbers.Append(v)
		element.N++
	}
	add(1)
	element.AppendNull()
	c.Finish()
	c.AppendNull()
	add(2)
	c.Finish()
	c.Truncate(2)
	add(3)
	c.Finish()
	dt := arrow.ListOf(arrow.StructOf(arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int32, Nullable: true}))
	if got, want := take(t, c, dt), `[{[1 (null)]} (null) {[3]}]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
