package delta

import (
	"errors"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// How much of a row an error shows.
const (
	shownColumns = 12
	shownValue   = 200 // characters, of what is wrong
	shownOther   = 40  // characters, of the rest
)

// showRow completes an error about one row of the batch with the row.
func (w *Writer) showRow(c *completion, err error) error {
	var broken *ConstraintError
	var null *NullError
	switch {
	case errors.As(err, &broken):
		broken.Others = othersOf(w.layout.schema, c.arrays, broken.Row, broken.tells)
	case errors.As(err, &null):
		if null.Row < 0 {
			null.Row = w.firstNull(c)
		}
		top := splitPath(null.Column)[0]
		null.Others = othersOf(w.layout.schema, c.arrays, null.Row, func(name string) bool { return name == top })
	}
	return err
}

// othersOf are the values of the row but for those that the error has told already.
func othersOf(s *Schema, columns []arrow.Array, row int, told func(name string) bool) (values []ColumnValue) {
	for i := range s.Fields {
		name, arr := s.Fields[i].Name, columns[i]
		if told(name) || arr == nil || row < 0 || row >= arr.Len() {
			continue
		}
		if len(values) == shownColumns {
			return append(values, ColumnValue{Column: "…", Value: "…"})
		}
		values = append(values, valueOf(name, arr, row, shownOther))
	}
	return values
}

// firstNull is the first row that has null where there may be none, also deep inside: it is found by halves.
func (w *Writer) firstNull(c *completion) int {
	from, to := 0, c.n
	for to-from > 1 {
		middle := (from + to) / 2
		if w.hasNull(c, from, middle) {
			to = middle
		} else {
			from = middle
		}
	}
	return from
}

func (w *Writer) hasNull(c *completion, from, to int) bool {
	part := make([]arrow.Array, len(c.arrays))
	for i, arr := range c.arrays {
		if arr != nil {
			part[i] = array.NewSlice(arr, int64(from), int64(to))
			defer part[i].Release()
		}
	}
	return w.layout.checkColumns(part, to-from) != nil
}

// valueOf is a value for people, of at most so many characters.
func valueOf(column string, arr arrow.Array, row, most int) ColumnValue {
	text := "null"
	if arr.IsValid(row) {
		text = strings.Clone(arr.ValueStr(row))
	}
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return ColumnValue{Column: column, Value: text}
}

// valueList is values as an error tells them.
func valueList(values []ColumnValue) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = fmt.Sprintf("%s = %s", v.Column, v.Value)
	}
	return strings.Join(texts, ", ")
}

// rowText is the rest of a row as an error tells it.
func rowText(others []ColumnValue) string {
	if len(others) == 0 {
		return ""
	}
	return "; the row has " + valueList(others)
}
