package format

import (
	"bytes"
	"strings"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/column"
)

// debeziumReader reads records of Debezium.
type debeziumReader struct {
	*jsonDecoder
	f        *Debezium
	envelope *node
	key      []int // the fields of the root that DebeziumOptions.Key names
	source   []sourceStore
	found    []int // the fields of the root that the record's key has

	schema    []byte // that of the last value, as its JSON text; nil: it had none
	keySchema []byte // that of the last key
	lastTx    string
}

// record appends the rows of a record, if it tells of any.
func (r *debeziumReader) record(key, value []byte) int {
	r.begin()
	clear(r.slots[:])
	if value == nil {
		return r.tombstone(key)
	}
	i := skipSpace(value, 0)
	switch {
	case i == len(value):
		return r.fail(freshet.CodeEmptyPayload, -1, "found an empty payload, wanted a change event")
	case value[i] != '{' && value[i] != 'n':
		return r.notAnObject(value, i)
	}
	w, ok := r.unwrap(value, i, &r.schema)
	if !ok {
		return failed
	}
	if w.newSchema {
		r.adopt()
	}
	if value[w.payload] == 'n' {
		if r.done(value, r.skip(value, w.payload), w) == failed {
			return failed
		}
		return r.tombstone(key)
	}
	if value[w.payload] != '{' {
		return r.fail(freshet.CodeWrongType, w.payload, "found no object, wanted a change event")
	}
	if r.f.opts.Flattened {
		return r.flat(key, value, w)
	}
	if r.done(value, r.object(r.envelope, value, w.payload), w) == failed {
		return failed
	}
	return r.change(key)
}

// wrapped is where the parts of a value are that may come with its schema.
type wrapped struct {
	payload   int  // where it begins
	end       int  // where the wrapping goes on behind the payload, if the schema was there; else 0
	is        bool // there is a wrapping
	newSchema bool // another schema than that of the last value, or none where that had one
}

// unwrap finds the payload of the object at i, or of null: in it, beside a schema and nothing else, or the
// object itself. It keeps the schema's text in last.
func (r *debeziumReader) unwrap(b []byte, i int, last *[]byte) (w wrapped, ok bool) {
	plain := wrapped{payload: i, newSchema: *last != nil}
	schema, payload, end := failed, failed, 0
	if at := member(b, skipSpace(b, i+1), "schema"); at != failed {
		schema = at
		if n := len(*last); n > 0 && bytes.HasPrefix(b[at:], *last) {
			end = at + n
		} else if end = r.skip(b, at); end == failed {
			return w, false
		}
		if payload = member(b, afterComma(b, end), "payload"); payload != failed {
			w.payload = payload
		}
	} else if at := member(b, skipSpace(b, i+1), "payload"); at != failed {
		payload = at
		schemaEnd := r.skip(b, at)
		if schemaEnd == failed {
			return w, false
		}
		if schema = member(b, afterComma(b, schemaEnd), "schema"); schema != failed {
			if end = r.skip(b, schema); end == failed {
				return w, false
			}
			w.payload, w.end = payload, end
		}
	}
	if schema == failed || payload == failed || b[schema] != '{' && b[schema] != 'n' {
		*last = nil
		return plain, true
	}
	w.is = true
	if found := b[schema:end]; !bytes.Equal(found, *last) {
		*last = append((*last)[:0], found...)
		w.newSchema = true
	}
	return w, true
}

// member returns where the value begins of the member at i, if it has that name; else failed.
func member(b []byte, i int, name string) int {
	size := len(name) + 2
	if i < 0 || len(b)-i < size || b[i] != '"' || string(b[i+1:i+size-1]) != name || b[i+size-1] != '"' {
		return failed
	}
	if i = skipSpace(b, i+size); i == len(b) || b[i] != ':' {
		return failed
	}
	if i = skipSpace(b, i+1); i == len(b) {
		return failed
	}
	return i
}

// afterComma returns where the member behind the comma at i begins; failed if there is no comma.
func afterComma(b []byte, i int) int {
	i = skipSpace(b, i)
	if i == len(b) || b[i] != ',' {
		return failed
	}
	return skipSpace(b, i+1)
}

// done checks what follows the payload, which ends at i.
func (r *debeziumReader) done(b []byte, i int, w wrapped) int {
	if i == failed {
		return failed
	}
	if w.is {
		if w.end > 0 {
			i = w.end
		}
		if i = skipSpace(b, i); i == len(b) || b[i] != '}' {
			return r.unexpected(b, i, "the end of the object of schema and payload")
		}
		i++
	}
	if i = skipSpace(b, i); i != len(b) {
		return r.unexpected(b, i, "the end of the payload, which holds one record")
	}
	return i
}

// adopt has values read as the schema of the record at hand says.
func (r *debeziumReader) adopt() {
	r.root.clearWires()
	if r.schema == nil {
		return
	}
	schema := parseConnect(r.schema).row(r.f.opts.Flattened)
	if schema == nil {
		return
	}
	r.root.setWires(schema)
	for _, f := range schema.Fields {
		if f == nil || len(f.Default) == 0 || f.Default[0] == 'n' {
			continue
		}
		if to := r.root.fields.find([]byte(f.Field)); to != nil {
			to.node.fallback = f.Default
		}
	}
}

// tombstone deals with a record without a value, which of flattened rows is a delete.
func (r *debeziumReader) tombstone(key []byte) int {
	if !r.f.opts.Flattened {
		return 0
	}
	return r.deleted(key)
}

// flat appends the row that the payload is.
func (r *debeziumReader) flat(key, value []byte, w wrapped) int {
	if r.done(value, r.row(value, w.payload), w) == failed {
		return failed
	}
	op := r.word(slotOp)
	switch {
	case string(r.word(slotDeleted)) == "true" || string(op) == "d":
		r.drop()
		return r.deleted(key)
	case op == nil || string(op) == "u":
		r.log(freshet.UpdatePostimage)
	case string(op) == "c" || string(op) == "r":
		r.log(freshet.Insert)
	default:
		return r.unknownOp(op)
	}
	return 0
}

// drop takes back the rows of the record at hand.
func (r *debeziumReader) drop() {
	r.truncate(len(r.changes.kinds))
	r.widens = false
}

// images is the number of rows that the record at hand has left.
func (r *debeziumReader) images() int { return r.Len() - len(r.changes.kinds) }

// change appends what the change event at hand lacks to its rows.
func (r *debeziumReader) change(key []byte) int {
	if r.isSignal() {
		r.drop()
		return 0
	}
	op := r.word(slotOp)
	if len(op) != 1 {
		return r.control(op)
	}
	before := r.f.opts.TrustBefore && isObject(r.slots[slotBefore])
	after := r.images() == 2 || r.images() == 1 && !before
	switch op[0] {
	case 'c', 'r':
		if !after || before {
			return r.wrongImages(op, "a row after it and none before")
		}
		r.log(freshet.Insert)
	case 'u':
		if !after {
			return r.wrongImages(op, "a row after it; of MongoDB, set capture.mode to change_streams_update_full")
		}
		if before {
			r.log(freshet.UpdatePreimage)
		}
		r.log(freshet.UpdatePostimage)
	case 'd':
		if after {
			return r.wrongImages(op, "no row after it")
		}
		if before {
			r.log(freshet.Delete)
			return 0
		}
		return r.deleted(key)
	case 't':
		r.drop()
		if r.f.opts.IgnoreTruncates {
			return 0
		}
		return r.fail(freshet.CodeTruncated, -1, "the origin has truncated the table %s: no rows are deleted here; "+
			"to go on without, let truncates be ignored", clip(r.table()))
	case 'm':
		r.drop()
	default:
		return r.unknownOp(op)
	}
	return 0
}

func isObject(raw []byte) bool { return len(raw) > 0 && raw[0] == '{' }

func (r *debeziumReader) wrongImages(op []byte, wanted string) int {
	return r.fail(freshet.CodeWrongType, -1, "found a change %q without the right rows, wanted %s", op, wanted)
}

func (r *debeziumReader) unknownOp(op []byte) int {
	return r.fail(freshet.CodeBadChange, -1, "found the operation %q, wanted c, u, d, r, t or m", clip(string(op)))
}

// control deals with records that are no changes: heartbeats, ends of transactions and changes of schemas are
// dropped.
func (r *debeziumReader) control(op []byte) int {
	status := string(r.word(slotStatus))
	t := r.envelope.fields
	switch {
	case op != nil:
		return r.unknownOp(op)
	case r.images() > 0 || r.slots[slotBefore] != nil || r.slots[slotAfter] != nil:
	case status == "BEGIN" || status == "END" || r.slots[slotDDL] != nil:
		return 0
	case r.slots[slotSentAt] != nil && t.other != t.object:
		return 0
	}
	return r.fail(freshet.CodeBadChange, -1, "found no operation, wanted a change event; are the records flattened?")
}

// table returns the name of the change's table, with its schema or database.
func (r *debeziumReader) table() string {
	table := string(r.word(slotTable))
	for _, s := range []slot{slotSchema, slotDB} {
		if w := r.word(s); len(w) > 0 {
			return string(w) + "." + table
		}
	}
	return table
}

// isSignal reports whether the change is of the table by which the connector is told what to do.
func (r *debeziumReader) isSignal() bool {
	signals := r.f.opts.SignalTable
	if signals == "" || r.slots[slotTable] == nil {
		return false
	}
	table := r.table()
	return table == signals || strings.HasSuffix(signals, "."+table)
}

// log gives the next row its kind, its stamp and the columns of its source.
func (r *debeziumReader) log(kind freshet.Kind) {
	r.changes.kinds = append(r.changes.kinds, kind)
	r.changes.stamps = append(r.changes.stamps, r.stamp())
	for i := range r.source {
		r.source[i].append(r)
	}
}

// deleted appends the row of a key that is gone: the record's, or that within the row before.
func (r *debeziumReader) deleted(key []byte) int {
	i := skipSpace(key, 0)
	switch {
	case i < len(key) && key[i] != 'n':
	case len(r.key) > 0 && isObject(r.slots[slotBefore]):
		return r.deletedBefore()
	default:
		return r.fail(freshet.CodeBadChange, -1, "found a row that is gone and no key, wanted the key of the record; has "+
			"the table none, say that rows before are whole, or name the columns of its key")
	}
	t := r.root.fields
	t.object++
	r.rescue.begin()
	if r.keyOf(key, i) == failed {
		return failed
	}
	r.found = t.haveNow(r.found[:0])
	if r.nullKey(r.found) {
		return failed
	}
	r.changes.leavesAbsent = true
	r.absent(t, len(key))
	r.changes.leavesAbsent = false
	r.root.store.(*column.Structs).N++
	r.rescue.finish()
	r.log(freshet.Delete)
	return 0
}

// keyOf gives the row at hand the columns of the record's key.
func (r *debeziumReader) keyOf(key []byte, i int) int {
	var single *field
	if len(r.key) == 1 {
		single = &r.root.fields.list[r.key[0]]
	}
	if key[i] != '{' {
		return r.keyFields(key, single)
	}
	w, ok := r.unwrap(key, i, &r.keySchema)
	if !ok {
		return failed
	}
	end := r.skip(key, w.payload)
	if r.done(key, end, w) == failed {
		return failed
	}
	payload := key[w.payload:end]
	if string(r.word(slotConnector)) == "mongodb" {
		return r.documentKey(payload)
	}
	return r.keyFields(payload, single)
}

// documentKey gives the row at hand the column _id of MongoDB's key, whose field id has it as JSON text.
func (r *debeziumReader) documentKey(key []byte) int {
	at := member(key, skipSpace(key, 1), "id")
	f := r.root.fields.find([]byte("_id"))
	if at == failed || key[at] != '"' || f == nil {
		return r.keyFields(key, nil)
	}
	content, end := r.text(key, at+1)
	if end == failed {
		return failed
	}
	r.document = append(r.document[:0], content...)
	f.object = r.root.fields.object
	if end = r.value(f.node, r.document, 0); end == failed {
		return r.inField(f.name)
	}
	if end != len(r.document) {
		return r.unexpected(r.document, end, "the end of the key")
	}
	return end
}

// deletedBefore appends the row of the change's row before, less all but its key.
func (r *debeziumReader) deletedBefore() int {
	before := r.slots[slotBefore]
	if r.row(before, 0) == failed {
		return r.inField("before")
	}
	row := r.Len() - 1
	isKey := make([]bool, len(r.places))
	for _, k := range r.key {
		isKey[k] = true
		f := &r.root.fields.list[k]
		if f.node.store.NullAt(row) {
			r.fail(freshet.CodeBadChange, -1, "found no value in the key, or null, wanted %s", f.node.typeName)
			return r.inField(f.name)
		}
	}
	for k, place := range r.places {
		if !isKey[k] {
			r.unsend(r.root.fields.list[k].node, row, place)
		}
	}
	r.log(freshet.Delete)
	return 0
}

// row appends the row that is the object at i.
func (d *jsonDecoder) row(b []byte, i int) int {
	d.changes.standIns = d.changes.standIns[:0]
	d.rescue.begin()
	end := d.object(d.root, b, i)
	if end == failed {
		return failed
	}
	d.rescue.finish()
	d.dropUnsent()
	return end
}

// image appends the row at i, an object or its JSON text, and keeps its text in the node's slot.
func (d *jsonDecoder) image(n *node, b []byte, i int) int {
	var end int
	switch b[i] {
	case '{':
		end = d.row(b, i)
	case '"':
		var content []byte
		if content, end = d.text(b, i+1); end == failed {
			return failed
		}
		d.document = append(d.document[:0], content...)
		first := skipSpace(d.document, 0)
		if first == len(d.document) || d.document[first] != '{' {
			return d.wrongType(n, b[i:end], i)
		}
		last := d.row(d.document, first)
		if last == failed {
			return failed
		}
		if last = skipSpace(d.document, last); last != len(d.document) {
			return d.unexpected(d.document, last, "the end of the document")
		}
	default:
		if end = d.skip(b, i); end != failed {
			return d.wrongType(n, b[i:end], i)
		}
	}
	if end != failed {
		d.slots[n.slot] = b[i:end]
	}
	return end
}
