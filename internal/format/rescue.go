package format

import (
	"fmt"
	"unicode/utf8"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/column"
)

// newField deals with a value that has no column: it begins at i, and its key is the one at that place of the
// key set.
func (d *jsonDecoder) newField(key int, b []byte, i int) int {
	end := d.skip(b, i)
	if end == failed || b[i] == 'n' {
		return end
	}
	name := d.keys.at(key)
	switch d.opts.NewFields {
	case Rescue:
		if !d.changes.readsKey() {
			d.rescue.put(name, b[i:end])
		}
	case Fail:
		return d.fail(freshet.CodeNewField, i, "found a field without a column, wanted none: new_fields is fail")
	case Add:
		if !tells(b[i:end]) {
			return end
		}
		if !nameable(name) {
			return d.fail(freshet.CodeNewField, i, "found a new field, wanted a name that a column can have: "+
				"not empty, with none of the characters \" ,;{}()\\n\\t=\"; set new_fields to rescue, or declare the "+
				"object around it as a map")
		}
		if d.columns >= d.opts.MaxColumns {
			return d.fail(freshet.CodeNewField, i, "found a new field, and there are %d columns: max_columns "+
				"allows no more than %d; where the names of fields are data, declare the object around them as a "+
				"map, or set new_fields to rescue", d.columns, d.opts.MaxColumns)
		}
		d.widens = true
	}
	return end
}

// rescuer writes what a record has beyond the columns as a JSON object, while the record is read: the objects
// and arrays around a value are opened when there is first something in them, and closed when they are left.
type rescuer struct {
	into   *column.Text // nil: nothing is to be rescued
	wrote  bool         // of this record
	levels []rescueLevel
}

// rescueLevel is an object or array of the record that is being read.
type rescueLevel struct {
	array  bool
	opened bool   // it is in the output
	key    string // where we are in it, if it is an object
	index  int    // or an array
	count  int    // members in the output
}

func (r *rescuer) begin() { r.wrote, r.levels = false, r.levels[:0] }

// finish makes a row of what was put since begin.
func (r *rescuer) finish() {
	switch {
	case r.into == nil:
	case r.wrote:
		r.into.Finish()
	default:
		r.into.AppendNull()
	}
}

func (r *rescuer) enter(array bool) {
	if r.into != nil {
		r.levels = append(r.levels, rescueLevel{array: array})
	}
}

func (r *rescuer) member(key string) {
	if r.into != nil {
		r.levels[len(r.levels)-1].key = key
	}
}

func (r *rescuer) element(index int) {
	if r.into != nil {
		r.levels[len(r.levels)-1].index = index
	}
}

func (r *rescuer) leave() {
	if r.into == nil {
		return
	}
	top := &r.levels[len(r.levels)-1]
	if top.opened {
		r.into.Data = append(r.into.Data, bracket(top.array)+2) // ASCII: } is { + 2, ] is [ + 2
	}
	r.levels = r.levels[:len(r.levels)-1]
}

func bracket(array bool) byte {
	if array {
		return '['
	}
	return '{'
}

// put writes a member of the object that was entered last.
func (r *rescuer) put(key, value []byte) {
	r.wrote = true
	for i := range r.levels {
		level := &r.levels[i]
		if level.opened {
			continue
		}
		if i > 0 {
			r.place(&r.levels[i-1])
		}
		r.into.Data = append(r.into.Data, bracket(level.array))
		level.opened = true
	}
	top := &r.levels[len(r.levels)-1]
	top.key = string(key)
	r.place(top)
	r.into.Data = append(r.into.Data, value...)
}

// place writes all that comes before the value where we are in the level.
func (r *rescuer) place(l *rescueLevel) {
	for l.array && l.count < l.index {
		r.comma(l)
		r.into.Data = append(r.into.Data, "null"...)
	}
	r.comma(l)
	if !l.array {
		r.into.Data = append(appendQuoted(r.into.Data, l.key), ':')
	}
}

// comma counts a member, and writes what parts it from the one before.
func (r *rescuer) comma(l *rescueLevel) {
	if l.count > 0 {
		r.into.Data = append(r.into.Data, ',')
	}
	l.count++
}

// appendQuoted appends valid UTF-8 as a JSON string.
func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', byte(c))
		case c < ' ':
			dst = fmt.Appendf(dst, `\u%04x`, c)
		default:
			dst = utf8.AppendRune(dst, c)
		}
	}
	return append(dst, '"')
}
