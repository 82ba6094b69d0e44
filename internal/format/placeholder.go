package format

import (
	"crypto/md5" //nolint:gosec // what name-based UUIDs are made of
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/freshet-io/freshet/internal/column"
)

// defaultPlaceholder is what Debezium writes for a value that the origin's log does not have.
const defaultPlaceholder = "__debezium_unavailable_value"

// placeholder is what stands for values that were not sent, in all its forms: text, the same as bytes, and
// arrays and maps of one element that is it, or whose numbers are its bytes.
type placeholder struct {
	bytes   []byte
	quoted  string   // as JSON text
	forms   []string // as the content of a text or binary column
	lengths uint64   // which lengths the forms have: bit n%64
}

// newPlaceholder returns that of Debezium's setting unavailable.value.placeholder; it may begin with hex:.
func newPlaceholder(setting string) (*placeholder, error) {
	p := &placeholder{bytes: []byte(setting)}
	if digits, ok := strings.CutPrefix(setting, "hex:"); ok {
		var err error
		if p.bytes, err = hex.DecodeString(digits); err != nil {
			return nil, fmt.Errorf("placeholder: found %q, wanted hexadecimal digits behind hex: (%w)", setting, err)
		}
	}
	word := string(p.bytes)
	p.quoted = string(appendQuoted(nil, strings.ToValidUTF8(word, "\uFFFD")))
	p.forms = []string{word, base64.StdEncoding.EncodeToString(p.bytes), base64.URLEncoding.EncodeToString(p.bytes),
		hex.EncodeToString(p.bytes), nameUUID(p.bytes), p.quoted, "[" + p.quoted + "]",
		"{" + p.quoted + ":" + p.quoted + "}"}
	for _, f := range p.forms {
		p.lengths |= 1 << (len(f) % 64)
	}
	return p, nil
}

// nameUUID returns the UUID that Java's UUID.nameUUIDFromBytes makes of a name.
func nameUUID(name []byte) string {
	sum := md5.Sum(name) //nolint:gosec // not for secrecy
	sum[6] = sum[6]&0x0f | 0x30
	sum[8] = sum[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:])
}

// isText reports whether a value is one of the forms as a whole.
func (p *placeholder) isText(v []byte) bool {
	if p.lengths>>(len(v)%64)&1 == 0 {
		return false
	}
	for _, f := range p.forms {
		if string(v) == f {
			return true
		}
	}
	return false
}

// isLast reports whether the last row of a column, which this is, stands for a value that was not sent.
func (p *placeholder) isLast(n *node, row int) bool {
	switch store := n.store.(type) {
	case *column.Text:
		return p.isText(store.Data[store.Begin(row):])
	case *column.Lists:
		first, end := store.Begin(row), store.Begin(row+1)
		if n.plain == kindMap {
			return end-first == 1 && p.isLast(n.first, first) && p.isLast(n.second, first)
		}
		return end-first == 1 && n.first.isText() && p.isLast(n.first, first) ||
			end-first == len(p.bytes) && p.isBytes(store.Elements[0], first)
	}
	return false
}

func (n *node) isText() bool {
	return n.plain == kindString || n.plain == kindJSON || n.plain == kindBinary
}

// isBytes reports whether the numbers of a column, from the first on, are the bytes of the placeholder.
func (p *placeholder) isBytes(c column.Column, first int) bool {
	switch c := c.(type) {
	case *column.Fixed[int8]:
		return sameNumbers(c.Values[first:], p.bytes)
	case *column.Fixed[int16]:
		return sameNumbers(c.Values[first:], p.bytes)
	case *column.Fixed[int32]:
		return sameNumbers(c.Values[first:], p.bytes)
	case *column.Fixed[int64]:
		return sameNumbers(c.Values[first:], p.bytes)
	}
	return false
}

func sameNumbers[T int8 | int16 | int32 | int64](values []T, bytes []byte) bool {
	for i, b := range bytes {
		if values[i] != T(int8(b)) && values[i] != T(b) {
			return false
		}
	}
	return len(bytes) > 0
}

// dropUnsent makes nulls of the values of the last row that only stand for ones that were not sent, and marks
// them.
func (d *jsonDecoder) dropUnsent() {
	p := d.changes.placeholder
	row := d.Len() - 1
	for k, place := range d.places {
		n := d.root.fields.list[k].node
		if !p.isLast(n, row) && !d.changes.standsIn(n) {
			continue
		}
		d.unsend(n, row, place)
	}
	d.changes.standIns = d.changes.standIns[:0]
}

// unsend makes a null of the last row of a column, which this is, and marks it.
func (d *jsonDecoder) unsend(n *node, row, place int) {
	n.store.Truncate(row)
	n.store.AppendNull()
	d.changes.mark(row, place)
}

// standsIn reports whether the column's value in the row at hand is text that stands for one not sent.
func (c *changeLog) standsIn(n *node) bool {
	for _, s := range c.standIns {
		if s == n {
			return true
		}
	}
	return false
}
