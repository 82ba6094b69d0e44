package format

import (
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/column"
)

// changeLog is what a decoder of changes knows of its rows beside their columns. Nil is that of a decoder of
// plain records.
type changeLog struct {
	columns int
	kinds   []freshet.Kind
	stamps  []freshet.Stamp // one a row, or none at all
	unsent  *freshet.Mask   // nil: nothing is marked
	marks   []cell          // of the record at hand, which may yet fail

	leavesAbsent bool         // fields that the row at hand does not have were not sent
	inKey        bool         // the record's key is being read
	standIns     []*node      // columns whose value in the row at hand is text that stands for one not sent
	placeholder  *placeholder // what stands for values that were not sent; nil: nothing does
}

// cell is one value of a row.
type cell struct{ row, column int }

// leaves reports whether fields that the row at hand does not have were not sent, rather than null.
func (c *changeLog) leaves() bool { return c != nil && c.leavesAbsent }

func (c *changeLog) readsKey() bool { return c != nil && c.inKey }

// isPlaceholder reports whether a JSON value is text that stands for one that was not sent.
func (c *changeLog) isPlaceholder(found []byte) bool {
	return c != nil && c.placeholder != nil && string(found) == c.placeholder.quoted
}

// placeholderAt returns the size of the text at i that stands for a value that was not sent; 0 if it does not.
func (c *changeLog) placeholderAt(b []byte, i int) int {
	if c == nil || c.placeholder == nil || b[i] != '"' {
		return 0
	}
	size := len(c.placeholder.quoted)
	if len(b)-i < size || string(b[i:i+size]) != c.placeholder.quoted {
		return 0
	}
	return size
}

// isPlaceholderName reports whether a key stands, as its value does, for a map that was not sent.
func (c *changeLog) isPlaceholderName(key []byte) bool {
	return c != nil && c.placeholder != nil && string(key) == string(c.placeholder.bytes)
}

// mark notes that a value was not sent.
func (c *changeLog) mark(row, column int) { c.marks = append(c.marks, cell{row, column}) }

// keep ends a record that was taken.
func (c *changeLog) keep() {
	if c == nil || len(c.marks) == 0 {
		return
	}
	if c.unsent == nil {
		c.unsent = freshet.NewMask(c.columns)
	}
	for _, m := range c.marks {
		c.unsent.Mark(m.row, m.column)
	}
	c.marks = c.marks[:0]
}

// truncate forgets what the record at hand has left, whose first row would have been this.
func (c *changeLog) truncate(rows int) {
	if c == nil {
		return
	}
	c.marks = c.marks[:0]
	c.kinds = c.kinds[:min(rows, len(c.kinds))]
	c.stamps = c.stamps[:min(rows, len(c.stamps))]
}

// take moves what is known of the rows to decoded.
func (c *changeLog) take(decoded *freshet.Decoded) {
	if c == nil {
		return
	}
	decoded.Kinds, decoded.Unsent = c.kinds, c.unsent
	if len(c.stamps) > 0 {
		decoded.Stamps = c.stamps
	}
	c.kinds, c.stamps = make([]freshet.Kind, 0, cap(c.kinds)), make([]freshet.Stamp, 0, cap(c.stamps))
	c.unsent, c.marks = nil, c.marks[:0]
}

// capture keeps the value at i in the node's slot, and appends it to its column, if it has one.
func (d *jsonDecoder) capture(n *node, b []byte, i int) int {
	end := d.skip(b, i)
	if end == failed {
		return failed
	}
	d.slots[n.slot] = b[i:end]
	if n.first != nil {
		return d.value(n.first, b, i)
	}
	return end
}

// word returns the content of a captured value: of text without its quotes; nil where there is none, or null.
func (d *jsonDecoder) word(s slot) []byte {
	raw := d.slots[s]
	switch {
	case raw == nil || raw[0] == 'n':
		return nil
	case raw[0] != '"':
		return raw
	}
	content, _ := d.text(raw, 1)
	return content
}

// captureIn has a field's value kept in a slot while it is read. The path leads to it from the table; structs
// that it lacks are added, as far as records are concerned.
func captureIn(t *fieldTable, path []string, s slot) {
	f := t.find([]byte(path[0]))
	switch {
	case len(path) > 1 && f == nil:
		within := newRecordPart()
		within.fields.loose = false // what else it has is of interest
		t.add(path[0], within)
		captureIn(within.fields, path[1:], s)
	case len(path) > 1 && f.node.fields != nil:
		captureIn(f.node.fields, path[1:], s)
	case len(path) > 1: // a column of JSON text: the path leads into no struct
	case f == nil:
		t.add(path[0], &node{kind: kindCapture, plain: kindCapture, nullable: true, store: nowhere{}, slot: s})
	default:
		f.node = &node{kind: kindCapture, plain: kindCapture, nullable: f.node.nullable, store: f.node.store,
			slot: s, first: f.node, typeName: f.node.typeName}
	}
}

// newRecordPart returns an object of records that is no column. Fields are to be added to it.
func newRecordPart() *node {
	n, _ := planStruct(nil, "")
	n.nullable, n.fields.loose = true, true
	n.store = &column.Structs{Validity: column.Validity{Required: true}}
	return n
}

// nowhere is a column that keeps nothing.
type nowhere struct{}

func (nowhere) Rows() int                           { return 0 }
func (nowhere) AppendNull()                         {}
func (nowhere) Truncate(int)                        {}
func (nowhere) NullAt(int) bool                     { return false }
func (nowhere) Reserve()                            {}
func (nowhere) Take(arrow.DataType) arrow.ArrayData { return nil }

// keyFields gives the row at hand, which was begun, those values of the record's key that it lacks. The key is a
// JSON object, or for one column the value itself: as JSON, or as text that JSON has no quotes for.
func (d *jsonDecoder) keyFields(key []byte, single *field) int {
	d.changes.inKey = true
	end := d.keyObject(key, single)
	d.changes.inKey = false
	if end == failed {
		d.reason.InKey = true
	}
	return end
}

// keyObject is keyFields, while it is known that the key is read.
func (d *jsonDecoder) keyObject(key []byte, single *field) int {
	i := skipSpace(key, 0)
	if i < len(key) && key[i] == '{' {
		if !d.open(i) {
			return failed
		}
		end, _ := d.members(d.root.fields, key, i)
		if end == failed {
			return failed
		}
		d.close()
		if end = skipSpace(key, end); end != len(key) {
			return d.unexpected(key, end, "the end of the key")
		}
		return end
	}
	if single == nil {
		return d.fail(freshet.CodeBadChange, -1, "found the key %q, wanted a JSON object with the columns of the key; "+
			"for a bare value, say which column it is: key: [COLUMN]", clip(string(key)))
	}
	t := d.root.fields
	if single.object == t.given {
		return len(key)
	}
	single.object = t.object
	if d.keyValue(single.node, key, i) == failed {
		return d.inField(single.name)
	}
	return len(key)
}

// keyValue appends a key that is one value.
func (d *jsonDecoder) keyValue(n *node, key []byte, i int) int {
	if n.kind == kindBinary {
		n.store.(*column.Text).Append(key)
		return len(key)
	}
	if !utf8.Valid(key) {
		return d.fail(freshet.CodeBadUTF8, -1, "found a key that is no UTF-8, wanted %s", n.typeName)
	}
	if i < len(key) && key[i] == '"' {
		if end := d.skip(key, i); end != failed && skipSpace(key, end) == len(key) {
			return d.value(n, key, i)
		}
	}
	return d.fromText(n, key, 0)
}
