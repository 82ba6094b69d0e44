package format

import (
	"encoding/binary"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/column"
)

// NewDecoder returns a decoder into these columns. Errors: a column of a type that Delta does not have, names
// that differ only in case, and for Rescue no column RescuedColumn, which Infer adds.
func (f *JSON) NewDecoder(schema *arrow.Schema) (freshet.Decoder, error) {
	return newDecoder(&f.opts, schema, nil)
}

// newDecoder returns a decoder of plain records. The columns named apart are not read from fields: who reads
// the records fills them.
func newDecoder(opts *Options, schema *arrow.Schema, apart map[string]column.Column) (*jsonDecoder, error) {
	d := &jsonDecoder{opts: *opts, schema: schema, columns: columnsIn(schema.Fields()),
		scanner: scanner{maxDepth: opts.MaxDepth}, apart: make([]column.Column, schema.NumFields())}
	d.read = d.plainRecord
	if opts.NewFields == Rescue {
		at := schema.FieldIndices(RescuedColumn)
		if len(at) != 1 || schema.Field(at[0]).Type.ID() != arrow.STRING || !schema.Field(at[0]).Nullable {
			return nil, errNoRescued
		}
		d.rescue.into = column.NewText(column.Validity{})
		d.apart[at[0]] = d.rescue.into
	}
	var read []arrow.Field
	for i, f := range schema.Fields() {
		if c := apart[f.Name]; c != nil {
			d.apart[i] = c
		}
		if d.apart[i] == nil {
			read = append(read, f)
			d.places = append(d.places, i)
		}
	}
	root, err := planStruct(read, "")
	if err != nil {
		return nil, err
	}
	d.root = root
	return d, nil
}

// jsonDecoder decodes records by descent along the schema. Each record's values go to the ends of the
// columns; when the record fails, the columns are cut back to where they were.
type jsonDecoder struct {
	scanner
	opts   Options
	schema *arrow.Schema
	root   *node
	zip    gunzipper

	appended int  // bytes of payloads since the last flush
	widens   bool // the record has fields that are to be added
	columns  int  // of the schema

	rescue rescuer // of NewFields Rescue

	// read appends the rows of a record and returns failed if it cannot be taken.
	read    func(key, value []byte) int
	apart   []column.Column // by position in the schema: columns that are not fields of the root; else nil
	places  []int           // the positions in the schema of the root's fields
	changes *changeLog
	slots   [slotCount][]byte // values of the record at hand that tell of it, as their JSON text

	plainBytes []byte // text in base64, decoded; the last one only
	document   []byte // a row that was JSON text within a record; the last one only
}

// keepBytes is how large the memory for single records may stay from one batch to the next.
const keepBytes = 1 << 20

func (d *jsonDecoder) Len() int { return d.root.store.Rows() }

func (d *jsonDecoder) Append(p freshet.Payload) (int, error) {
	payload := p.Value
	if d.opts.Gzip && gzipped(payload) {
		unpacked, err := d.zip.unpack(payload, d.opts.MaxBytes)
		if err != nil {
			return 0, err
		}
		payload = unpacked
	}
	if len(payload) > d.opts.MaxBytes {
		return 0, reject(freshet.CodeTooLarge, -1, "found a payload of %d bytes, wanted at most %d",
			len(payload), d.opts.MaxBytes)
	}
	rows := d.Len()
	if rows > 0 && d.appended+len(payload) > flushBytes {
		return 0, freshet.ErrFull
	}
	if rows == 0 {
		d.reserve()
	}
	d.widens = false
	if d.read(p.Key, payload) == failed {
		d.truncate(rows)
		return 0, d.take()
	}
	if d.widens {
		d.truncate(rows)
		return 0, freshet.ErrNewFields
	}
	d.changes.keep()
	d.appended += len(payload)
	return d.Len() - rows, nil
}

func (d *jsonDecoder) reserve() {
	d.root.store.Reserve()
	for _, c := range d.apart {
		if c != nil {
			c.Reserve()
		}
	}
}

func (d *jsonDecoder) truncate(rows int) {
	d.root.store.Truncate(rows)
	for _, c := range d.apart {
		if c != nil {
			c.Truncate(rows)
		}
	}
	d.changes.truncate(rows)
}

// plainRecord appends the row that is all of b.
func (d *jsonDecoder) plainRecord(_, b []byte) int {
	d.begin()
	i := skipSpace(b, 0)
	if i == len(b) {
		return d.fail(freshet.CodeEmptyPayload, -1, "found an empty payload, wanted a JSON object")
	}
	if b[i] != '{' {
		return d.notAnObject(b, i)
	}
	d.rescue.begin()
	end := d.object(d.root, b, i)
	if end == failed {
		return failed
	}
	if end = skipSpace(b, end); end != len(b) {
		return d.unexpected(b, end, "the end of the payload, which holds one record")
	}
	d.rescue.finish()
	return end
}

func (d *jsonDecoder) notAnObject(b []byte, i int) int {
	end := d.skip(b, i)
	if end == failed {
		return failed
	}
	if rest := skipSpace(b, end); rest != len(b) {
		return d.unexpected(b, rest, "the end of the payload, which holds one record")
	}
	return d.fail(freshet.CodeWrongType, i, "found %s, wanted an object", describe(b[i:end]))
}

// object appends the struct that is the object at i.
func (d *jsonDecoder) object(n *node, b []byte, i int) int {
	if !d.open(i) {
		return failed
	}
	t := n.fields
	t.object++
	i, missing := d.members(t, b, i)
	if i == failed || missing > 0 && !t.loose && !d.absent(t, i) {
		return failed
	}
	if t.other == t.object && !t.loose {
		d.changes.standIns = append(d.changes.standIns, n)
	}
	n.store.(*column.Structs).N++
	d.close()
	return i
}

// members appends the values of the object at i to their fields, but for the fields that were given before.
// It returns where the object ends, and how many fields it does not have.
func (d *jsonDecoder) members(t *fieldTable, b []byte, i int) (end, missing int) {
	unknown := d.keys.frame()
	missing = len(t.list)
	prediction := &t.start
	i = skipSpace(b, i+1)
	more := i >= len(b) || b[i] != '}'
	if !more {
		i++
	}
	if !t.loose {
		d.rescue.enter(false)
	}
	for more {
		var f *field
		begin := i
		if at := *prediction; at < len(t.list) && t.list[at].isAt(b, i) {
			f = &t.list[at]
			i += len(f.quoted)
			if i < len(b) && b[i] <= ' ' {
				i = skipSpace(b, i)
			}
		} else if f, i = d.find(t, prediction, b, i, &unknown); i == failed {
			return failed, 0
		}
		if f != nil {
			if f.object == t.object {
				return d.duplicate(begin, []byte(f.name)), 0
			}
			missing--
			prediction = &f.follow
			if i = d.member(t, f, b, i); i == failed {
				return d.inField(f.name), 0
			}
		}
		if i < len(b) && b[i] == ',' {
			i++
			if i < len(b) && b[i] <= ' ' {
				i = skipSpace(b, i)
			}
		} else if i, more = d.more(b, i, '}'); i == failed {
			return failed, 0
		}
	}
	if !t.loose {
		d.rescue.leave()
	}
	d.keys.end(&unknown)
	return i, missing
}

// member appends the value at i to the field, unless it was given before.
func (d *jsonDecoder) member(t *fieldTable, f *field, b []byte, i int) int {
	given := f.object == t.given
	f.object = t.object
	if given {
		return d.skip(b, i)
	}
	if !t.loose {
		d.rescue.member(f.name)
	}
	return d.value(f.node, b, i)
}

// isAt reports whether the field's name stands at i, as it does in text without spaces and escapes.
func (f *field) isAt(b []byte, i int) bool {
	n := len(f.quoted)
	if len(b)-i < n || n == 0 {
		return false
	}
	b = b[i : i+n]
	if n < 8 {
		return string(b) == f.quoted
	}
	// The first and the last word, which may overlap, say it all up to 16 bytes.
	return binary.LittleEndian.Uint64(b) == f.head && binary.LittleEndian.Uint64(b[n-8:]) == f.tail &&
		(n <= 16 || string(b[8:n-8]) == f.quoted[8:n-8])
}

// find scans the key at i, which is not the predicted one. If a field has the name, it returns it and where
// its value begins, and predicts it for the next time; else it deals with the value and returns nil and where
// that ends.
func (d *jsonDecoder) find(t *fieldTable, prediction *int, b []byte, i int, unknown *keyFrame) (*field, int) {
	key, value := d.key(b, i)
	if value == failed {
		return nil, failed
	}
	at, found := t.exact[string(key)]
	if !found {
		at, found = t.fold(key)
	}
	if found {
		*prediction = at
		return &t.list[at], value
	}
	if !d.keys.add(unknown, key) {
		return nil, d.duplicate(i, key)
	}
	last := len(d.keys.list) - 1
	var end int
	if t.loose || d.changes.isPlaceholderName(key) {
		t.other = t.object
		end = d.skip(b, value)
	} else {
		end = d.newField(last, b, value)
	}
	if end == failed {
		d.inField(string(d.keys.at(last)))
	}
	return nil, end
}

// absent appends nulls to the fields that the object, which ends at i, does not have.
func (d *jsonDecoder) absent(t *fieldTable, i int) bool {
	for k := range t.list {
		f := &t.list[k]
		if f.object == t.object || f.object == t.given {
			continue
		}
		if d.changes.leaves() && t == d.root.fields && k < len(d.places) {
			f.node.store.AppendNull()
			d.changes.mark(d.Len(), d.places[k])
			continue
		}
		if f.node.fallback != nil {
			if d.value(f.node, f.node.fallback, 0) == failed {
				d.inField(f.name)
				return false
			}
			continue
		}
		if !f.node.nullable {
			d.fail(freshet.CodeNull, i-1, "found no value, wanted %s: the column is not nullable", f.node.typeName)
			d.inField(f.name)
			return false
		}
		f.node.store.AppendNull()
	}
	return true
}

// list appends the list that is the array at i.
func (d *jsonDecoder) list(n *node, b []byte, i int) int {
	if !d.open(i) {
		return failed
	}
	more := true
	if i = skipSpace(b, i+1); i < len(b) && b[i] == ']' {
		i, more = i+1, false
	}
	d.rescue.enter(true)
	for k := 0; more; k++ {
		d.rescue.element(k)
		if i = d.value(n.first, b, i); i == failed {
			return d.inElement(k)
		}
		if i < len(b) && b[i] == ',' {
			i = skipSpace(b, i+1)
		} else if i, more = d.more(b, i, ']'); i == failed {
			return failed
		}
	}
	n.store.(*column.Lists).Finish()
	d.rescue.leave()
	d.close()
	return i
}

// dictionary appends the map that is the object at i.
func (d *jsonDecoder) dictionary(n *node, b []byte, i int) int {
	if !d.open(i) {
		return failed
	}
	keys := d.keys.frame()
	more := true
	if i = skipSpace(b, i+1); i < len(b) && b[i] == '}' {
		i, more = i+1, false
	}
	d.rescue.enter(false)
	for more {
		key, value := d.key(b, i)
		if value == failed {
			return failed
		}
		if !d.keys.add(&keys, key) {
			return d.duplicate(i, key)
		}
		at := len(d.keys.list) - 1
		if d.fromText(n.first, key, i) == failed {
			return d.inField(string(d.keys.at(at)))
		}
		if d.rescue.into != nil {
			d.rescue.member(string(d.keys.at(at)))
		}
		if i = d.value(n.second, b, value); i == failed {
			return d.inField(string(d.keys.at(at)))
		}
		if i, more = d.more(b, i, '}'); i == failed {
			return failed
		}
	}
	n.store.(*column.Lists).Finish()
	d.rescue.leave()
	d.keys.end(&keys)
	d.close()
	return i
}

// Flush returns the rows since the last Flush as a record of the schema.
func (d *jsonDecoder) Flush() freshet.Decoded {
	rows := d.Len()
	fields := d.root.store.(*column.Structs).Fields
	columns := make([]arrow.Array, 0, d.schema.NumFields())
	for i, f := range d.schema.Fields() {
		c := d.apart[i]
		if c == nil {
			c, fields = fields[0], fields[1:]
		}
		data := c.Take(f.Type)
		columns = append(columns, array.MakeFromData(data))
		data.Release()
	}
	batch := array.NewRecordBatch(d.schema, columns, int64(rows))
	for _, c := range columns {
		c.Release()
	}
	d.root.store.(*column.Structs).N = 0
	d.appended = 0
	if cap(d.zip.out) > keepBytes || cap(d.scratch) > keepBytes || cap(d.keys.arena) > keepBytes {
		d.zip, d.scratch, d.keys = gunzipper{}, nil, keySet{} // one large record has made them large
	}
	decoded := freshet.Decoded{Rows: batch}
	d.changes.take(&decoded)
	return decoded
}

// Release drops what was appended and gives up the memory.
func (d *jsonDecoder) Release() {
	d.Flush().Rows.Release()
	d.zip, d.keys, d.scratch = gunzipper{}, keySet{}, nil
}
