package transform

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/pgtext"
	"github.com/freshet-io/freshet/internal/veil"
)

// MaskedColumn is a column that Mask hides.
type MaskedColumn struct {
	Name string    // case is ignored
	Key  *veil.Key // values become their hashes under it; nil: the column is left out
}

// Mask hides columns from all that comes behind it: of a masked one come the hashes of its values, as text, of one that is left out
// nothing. Nulls stay null. The hash is that of the value's text as PostgreSQL writes it, so that one value has one hash
// whatever the type of its column. Records, which hold the values as they came, are sealed: those of rejects that were made before, and
// of rows that are rejected later. So nothing behind the step can write a value down.
//
//	in    email: ann@example.org │ note: tall │ id: 1        record {"email": …}
//	out   email: 3f1c…e2         │            │ id: 1        record sealed
type Mask struct {
	columns []MaskedColumn
	seal    *veil.Key
	plans   plans[*masking]
}

// masking is Mask for one input schema.
type masking struct {
	from  []int       // of each column that goes out, the one that it was
	keys  []*veil.Key // by which it is hashed; nil: it stays as it is
	out   *arrow.Schema
	reads [][]int
}

// NewMask makes the step. Records are sealed under seal.
func NewMask(columns []MaskedColumn, seal *veil.Key) *Mask {
	return &Mask{columns: columns, seal: seal}
}

// Name is "mask".
func (m *Mask) Name() string { return "mask" }

func (m *Mask) find(name string) *MaskedColumn {
	for i := range m.columns {
		if strings.EqualFold(m.columns[i].Name, name) {
			return &m.columns[i]
		}
	}
	return nil
}

// Plan returns the columns that are not left out; those that are masked are text. Errors: *freshet.Error for a masked column of several
// values a row, and where nothing is left.
func (m *Mask) Plan(in *arrow.Schema) (*arrow.Schema, error) {
	p, err := m.plans.of(in, m.masking)
	if err != nil {
		return nil, err
	}
	return p.out, nil
}

// Origin is the same column, unless it is masked or left out.
func (m *Mask) Origin(out string) (in string, ok bool) { return out, m.find(out) == nil }

func (m *Mask) masking(in *arrow.Schema) (*masking, error) {
	p := &masking{}
	var fields []arrow.Field
	for i, f := range in.Fields() {
		c := m.find(f.Name)
		var key *veil.Key
		switch {
		case c == nil:
		case c.Key == nil:
			continue
		case arrow.IsNested(f.Type.ID()):
			return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: f.Name,
				Msg: fmt.Sprintf("mask: found the column %s of the type %s, wanted one of single values", f.Name, f.Type),
				Fix: "leave the column out: drop: true"}
		default:
			key, f.Type = c.Key, arrow.BinaryTypes.String
		}
		p.from, p.keys = append(p.from, i), append(p.keys, key)
		p.reads, fields = append(p.reads, []int{i}), append(fields, f)
	}
	if len(fields) == 0 {
		return nil, &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: "mask",
			Msg: "all columns of the table are left out", Fix: "let it have one, or do not read it"}
	}
	meta := in.Metadata()
	p.out = arrow.NewSchema(fields, &meta)
	return p, nil
}

// Apply hides the columns, and seals records.
func (m *Mask) Apply(_ context.Context, b *freshet.Batch) error {
	for i := range b.Rejects {
		m.sealReject(&b.Rejects[i])
	}
	if b.Records != nil {
		kept := make([]sealedRecord, len(b.Records))
		refs := make([]freshet.RecordRef, len(b.Records))
		for i, r := range b.Records {
			kept[i] = sealedRecord{r, m.seal}
			refs[i] = &kept[i]
		}
		b.Records = refs
	}
	if b.Rows == nil {
		return nil
	}
	p, err := m.plans.of(b.Rows.Schema(), m.masking)
	if err != nil {
		return err
	}
	columns := make([]arrow.Array, 0, len(p.from))
	defer func() {
		for _, c := range columns {
			c.Release()
		}
	}()
	for i, from := range p.from {
		column := b.Rows.Column(from)
		if p.keys[i] == nil {
			column.Retain()
			columns = append(columns, column)
			continue
		}
		hashed, err := hashes(column, p.keys[i])
		if err != nil {
			return fmt.Errorf("mask column %s: %w", p.out.Field(i).Name, err)
		}
		columns = append(columns, hashed)
	}
	b.Unsent = unsentOut(b.Unsent, b.NumRows(), p.reads)
	out := array.NewRecordBatch(p.out, columns, b.Rows.NumRows())
	b.Rows.Release()
	b.Rows = out
	return nil
}

// hashes are those of the values of a column.
func hashes(column arrow.Array, key *veil.Key) (arrow.Array, error) {
	b := array.NewStringBuilder(memory.DefaultAllocator)
	defer b.Release()
	b.Reserve(column.Len())
	h := key.Hasher()
	var hash []byte
	for row := range column.Len() {
		if column.IsNull(row) {
			b.AppendNull()
			continue
		}
		text, err := pgtext.Of(column, row)
		if err != nil {
			return nil, err
		}
		hash = h.Append(hash[:0], []byte(text))
		b.BinaryBuilder.Append(hash)
	}
	return b.NewArray(), nil
}

// sealedRecord is a record that is sealed when it is asked for.
type sealedRecord struct {
	freshet.RecordRef
	key *veil.Key
}

// Record returns the record, sealed.
func (s *sealedRecord) Record() freshet.Record { return sealRecord(s.RecordRef.Record(), "", s.key) }

// secret is what is sealed of a record, as JSON.
type secret struct {
	Raw     []byte           `json:"raw"`
	Key     []byte           `json:"key"`
	Headers []freshet.Header `json:"headers,omitempty"`
	Found   string           `json:"found,omitempty"` // what the message said, where that may have shown a value
}

// sealRecord is a record of which only its time can be read.
func sealRecord(r freshet.Record, found string, key *veil.Key) freshet.Record {
	if veil.IsSealed(r.Raw) {
		return r
	}
	text, err := json.Marshal(secret{r.Raw, r.Key, r.Headers, found})
	if err != nil {
		panic(err) // bytes and text are JSON
	}
	return freshet.Record{Raw: key.Seal(text), Time: r.Time, TimeKind: r.TimeKind}
}

// sealReject seals what a reject says of its record.
func (m *Mask) sealReject(r *freshet.Reject) {
	if veil.IsSealed(r.Raw) {
		return
	}
	r.Record = sealRecord(r.Record, r.Message, m.seal)
	r.Message = "what was found is sealed with the record, which holds masked values"
}

// Unseal returns a record of quarantine as it came, and what its message said, if Mask has sealed it under one of the keys; others
// come back as they are. Errors: veil.ErrKey, veil.ErrBroken.
func Unseal(r freshet.Record, keys []*veil.Key) (_ freshet.Record, found string, err error) {
	if !veil.IsSealed(r.Raw) {
		return r, "", nil
	}
	text, err := veil.Open(r.Raw, keys)
	if err != nil {
		return r, "", err
	}
	var s secret
	if err := json.Unmarshal(text, &s); err != nil {
		return r, "", veil.ErrBroken
	}
	r.Raw, r.Key, r.Headers = s.Raw, s.Key, s.Headers
	return r, s.Found, nil
}
