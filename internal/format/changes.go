package format

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/column"
)

// ChangeOptions say how records tell of changes to rows with a key. The zero value, or nil, is a compacted
// topic: each record is what the key's row is now, and one without a value says that the key is gone.
type ChangeOptions struct {
	// Op is the path of the field that says what happened, with dots between names: "op", "meta.op". Default:
	// none, all records with a value are upserts.
	Op string
	// The values of Op, compared as text, that mean each of the kinds. Default, when all four are empty:
	// DefaultOps.
	Insert, Update, Upsert, Delete []string
	// Key names the columns of the key, which come from the record's value, or where that lacks them from its
	// key. Default: the fields of the record's key, which is a JSON object.
	Key []string
	// SkipTombstones drops records without a value. Default: the row of their key is gone.
	SkipTombstones bool
	// KeepAbsent says that fields that an update does not have keep their values. Default: they are null.
	KeepAbsent bool
}

// DefaultOps are the values of ChangeOptions.Op where none are given.
func DefaultOps() (insert, update, upsert, remove []string) {
	return []string{"insert", "INSERT", "I", "i", "c", "r"}, []string{"update", "UPDATE", "U", "u"},
		[]string{"upsert", "UPSERT"}, []string{"delete", "DELETE", "D", "d"}
}

// Validate reports all faults of the options. Nil is valid.
func (o *ChangeOptions) Validate() error {
	if o == nil {
		return nil
	}
	var faults []error
	if o.Op != "" && slices.Contains(strings.Split(o.Op, "."), "") {
		faults = append(faults, fmt.Errorf("op: found %q, wanted the names of fields with dots between", o.Op))
	}
	if _, err := o.kinds(); err != nil {
		faults = append(faults, err)
	}
	if o.Op == "" && len(o.Insert)+len(o.Update)+len(o.Upsert)+len(o.Delete) > 0 {
		faults = append(faults, errors.New("op: found values of it, wanted the field that has them"))
	}
	for i, name := range o.Key {
		if name == "" || slices.Contains(o.Key[:i], name) {
			faults = append(faults, fmt.Errorf("key: found %q, wanted different columns", o.Key))
			break
		}
	}
	return errors.Join(faults...)
}

// kinds returns what each value of the field Op means.
func (o *ChangeOptions) kinds() (map[string]freshet.Kind, error) {
	insert, update, upsert, remove := o.Insert, o.Update, o.Upsert, o.Delete
	if len(insert)+len(update)+len(upsert)+len(remove) == 0 {
		insert, update, upsert, remove = DefaultOps()
	}
	kinds := map[string]freshet.Kind{}
	var faults []error
	for _, of := range []struct {
		values []string
		kind   freshet.Kind
	}{{insert, freshet.Insert}, {update, freshet.UpdatePostimage}, {upsert, freshet.UpdatePostimage},
		{remove, freshet.Delete}} {
		for _, v := range of.values {
			if _, twice := kinds[v]; twice {
				faults = append(faults, fmt.Errorf("op: found the value %q twice, wanted it once", v))
			}
			kinds[v] = of.kind
		}
	}
	return kinds, errors.Join(faults...)
}

// Changes is the format of records that are JSON objects and tell of changes. It implements freshet.Format.
//
// An insert has all columns: those it lacks are null. An update, which is all that is not another kind, says
// what the row is now. Of a deleted row only what the record has was sent. Records are rejected with
// freshet.CodeBadChange when nothing says what their operation means, or when a column of the key is missing or
// null.
type Changes struct {
	json  *JSON
	opts  ChangeOptions
	kinds map[string]freshet.Kind
}

// NewChanges returns the format. Both options may be nil. Errors: those of their Validate.
func NewChanges(o *Options, c *ChangeOptions) (*Changes, error) {
	j, err := jsonOf(o, c.Validate())
	if err != nil {
		return nil, err
	}
	f := &Changes{json: j}
	if c != nil {
		f.opts = *c
	}
	f.kinds, _ = f.opts.kinds()
	return f, nil
}

// jsonOf is the JSON in which records of another format are, unless that has faults of its own.
func jsonOf(o *Options, faults error) (*JSON, error) {
	j, err := NewJSON(o)
	if err := errors.Join(err, faults); err != nil {
		return nil, err
	}
	return j, nil
}

// Infer is that of JSON, of the fields of the records and of their keys, less the one that says what happened.
func (f *Changes) Infer(payloads []freshet.Payload, known *arrow.Schema) (*arrow.Schema, error) {
	var root shape
	var zip gunzipper
	s := scanner{maxDepth: f.json.opts.MaxDepth}
	for _, p := range payloads {
		if value := f.json.unpacked(&zip, p.Value); value != nil {
			if record := s.validRecord(value, f.json.opts.MaxBytes); record != nil {
				root.observe(record)
			}
		}
		if p.Key != nil {
			f.observeKey(&root, &s, p.Key)
		}
	}
	forget(&root, strings.Split(f.opts.Op, "."))
	return f.json.schemaOf(&root, known), nil
}

// observeKey adds the columns that a record's key has.
func (f *Changes) observeKey(root *shape, s *scanner, key []byte) {
	if record := s.validRecord(key, f.json.opts.MaxBytes); record != nil {
		root.observe(record)
		return
	}
	if len(f.opts.Key) != 1 {
		return
	}
	name := []byte(f.opts.Key[0])
	column := root.field(name)
	column.sawAt(0, name, 1)
	s.begin()
	if i := skipSpace(key, 0); i < len(key) {
		if end := s.skip(key, i); end != failed && skipSpace(key, end) == len(key) {
			column.observe(key[i:end])
			return
		}
	}
	column.seen |= aText
}

// forget drops the field at the end of the path.
func forget(s *shape, path []string) {
	lower := strings.ToLower(path[0])
	if len(path) == 1 {
		delete(s.fields, lower)
	} else if within := s.fields[lower]; within != nil {
		forget(&within.shape, path[1:])
	}
}

// NewDecoder returns a decoder into these columns. Errors: those of JSON.NewDecoder; a column of the key that
// is not there.
func (f *Changes) NewDecoder(schema *arrow.Schema) (freshet.Decoder, error) {
	d, err := newDecoder(&f.json.opts, schema, nil)
	if err != nil {
		return nil, err
	}
	d.changes = &changeLog{columns: schema.NumFields()}
	r := &changeReader{jsonDecoder: d, f: f}
	if r.key, err = keyPositions(d.root.fields, f.opts.Key); err != nil {
		return nil, err
	}
	if f.opts.Op != "" {
		captureIn(d.root.fields, strings.Split(f.opts.Op, "."), slotOp)
	}
	d.read = r.record
	return d, nil
}

// keyPositions returns the positions of the fields of the key.
func keyPositions(t *fieldTable, names []string) ([]int, error) {
	var at []int
	for _, name := range names {
		f := t.find([]byte(name))
		if f == nil {
			return nil, fmt.Errorf("key: found no column %q, wanted one; records do not have it, or the columns given "+
				"lack it", name)
		}
		at = append(at, t.exact[f.name])
	}
	return at, nil
}

// changeReader reads records of Changes.
type changeReader struct {
	*jsonDecoder
	f     *Changes
	key   []int // the fields of the root that are the key; none: those of the record's key
	found []int // which these are
}

// record appends the row of a record, if it tells of one.
func (r *changeReader) record(key, value []byte) int {
	r.begin()
	r.slots[slotOp] = nil
	if value == nil {
		if r.f.opts.SkipTombstones {
			return 0
		}
		return r.row(key, nil, 0)
	}
	i := skipSpace(value, 0)
	switch {
	case i == len(value):
		return r.fail(freshet.CodeEmptyPayload, -1, "found an empty payload, wanted a JSON object, or no value at all "+
			"for a key that is gone")
	case value[i] != '{':
		return r.notAnObject(value, i)
	}
	return r.row(key, value, i)
}

// row appends the row of the object at i, or without a value that of the key.
func (r *changeReader) row(key, value []byte, i int) int {
	t := r.root.fields
	r.rescue.begin()
	first, second := r.keyPart, r.valuePart
	if len(r.key) > 0 {
		first, second = second, first
	}
	t.object++
	if first(key, value, i) == failed {
		return failed
	}
	of := r.key
	if len(of) == 0 {
		r.found = t.haveNow(r.found[:0])
		of = r.found
	}
	t.given = t.object
	t.object++
	defer func() { t.given = nothingGiven }()
	if second(key, value, i) == failed {
		return failed
	}
	kind, ok := r.kind(value)
	if !ok {
		return failed
	}
	r.changes.leavesAbsent = kind == freshet.Delete || kind == freshet.UpdatePostimage && r.f.opts.KeepAbsent
	if r.nullKey(of) || !r.absent(t, len(value)) {
		return failed
	}
	r.root.store.(*column.Structs).N++
	r.rescue.finish()
	r.changes.kinds = append(r.changes.kinds, kind)
	return 0
}

// valuePart gives the row the fields of the record's value.
func (r *changeReader) valuePart(_, value []byte, i int) int {
	if value == nil {
		return 0
	}
	if !r.open(i) {
		return failed
	}
	end, _ := r.members(r.root.fields, value, i)
	if end == failed {
		return failed
	}
	r.close()
	if end = skipSpace(value, end); end != len(value) {
		return r.unexpected(value, end, "the end of the payload, which holds one record")
	}
	return end
}

// keyPart gives the row the fields of the record's key.
func (r *changeReader) keyPart(key, value []byte, _ int) int {
	var single *field
	if len(r.key) == 1 {
		single = &r.root.fields.list[r.key[0]]
	}
	switch {
	case len(key) > 0:
		return r.jsonDecoder.keyFields(key, single)
	case len(r.key) == 0:
		return r.fail(freshet.CodeBadChange, -1, "found no key, wanted a JSON object with the columns of the key; where they "+
			"are fields of the record, name them: key: [COLUMN]")
	case value == nil:
		return r.fail(freshet.CodeBadChange, -1, "found neither a value nor a key, wanted the key of the row that is gone")
	}
	return 0
}

// kind returns what the record says has happened.
func (r *changeReader) kind(value []byte) (freshet.Kind, bool) {
	switch {
	case value == nil:
		return freshet.Delete, true
	case r.f.opts.Op == "":
		return freshet.UpdatePostimage, true
	}
	op := r.word(slotOp)
	kind, ok := r.f.kinds[string(op)]
	switch {
	case op == nil:
		r.fail(freshet.CodeBadChange, -1, "found no operation in the field %s, wanted one", r.f.opts.Op)
		return 0, false
	case !ok:
		r.fail(freshet.CodeBadChange, -1, "found the operation %q in the field %s, which none of the lists insert, "+
			"update, upsert and delete names", clip(string(op)), r.f.opts.Op)
	}
	return kind, ok
}

// nullKey sets the fault that one of the fields has null, or nothing.
func (d *jsonDecoder) nullKey(of []int) bool {
	t := d.root.fields
	row := d.Len()
	for _, k := range of {
		f := &t.list[k]
		if f.object == t.object || f.object == t.given {
			if !f.node.store.NullAt(row) {
				continue
			}
		}
		d.fail(freshet.CodeBadChange, -1, "found no value in the key, or null, wanted %s", f.node.typeName)
		d.inField(f.name)
		return true
	}
	return false
}

// haveNow appends to dst the positions of the fields that the object at hand has so far.
func (t *fieldTable) haveNow(dst []int) []int {
	for k := range t.list {
		if t.list[k].object == t.object {
			dst = append(dst, k)
		}
	}
	return dst
}
