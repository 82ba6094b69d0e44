package freshet

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Change is what is known of a row beside its values, of a source that keeps no records. Quarantine keeps it as headers.
type Change struct {
	Kind   Kind
	Stamp  Stamp
	Unsent []string // columns that the source did not send
	Behind *Place   // as that of the batch; of its lane, the name and the seq count
}

// The keys of headers that keep a change.
const (
	kindHeader      = "_change_type"
	txHeader        = "_source_tx"
	ordinalHeader   = "_ordinal"
	committedHeader = "_committed"
	unsentHeader    = "_unsent"
	behindHeader    = "_behind"
)

// Headers are what is kept of the change.
func (c *Change) Headers() []Header {
	all := []Header{{kindHeader, []byte(c.Kind.String())}}
	add := func(key, value string) { all = append(all, Header{key, []byte(value)}) }
	if c.Stamp.Tx != "" {
		add(txHeader, c.Stamp.Tx)
	}
	if c.Stamp.Ordinal >= 0 {
		add(ordinalHeader, strconv.FormatInt(c.Stamp.Ordinal, 10))
	}
	if c.Stamp.Committed != 0 {
		add(committedHeader, strconv.FormatInt(c.Stamp.Committed, 10))
	}
	for _, name := range c.Unsent {
		add(unsentHeader, name)
	}
	if at := c.Behind; at != nil {
		add(behindHeader, at.Lane.Name+"@"+strconv.FormatInt(at.Seq, 10))
	}
	return all
}

// ChangeOf is the change that headers keep; ok is false where they keep none.
func ChangeOf(headers []Header) (c Change, ok bool) {
	c.Stamp.Ordinal = -1
	for _, h := range headers {
		value := string(h.Value)
		switch h.Key {
		case kindHeader:
			if c.Kind, ok = kindNamed(value); !ok {
				return c, false
			}
		case txHeader:
			c.Stamp.Tx = value
		case ordinalHeader:
			c.Stamp.Ordinal = numberOr(value, -1)
		case committedHeader:
			c.Stamp.Committed = numberOr(value, 0)
		case unsentHeader:
			c.Unsent = append(c.Unsent, value)
		case behindHeader:
			name, seq, _ := strings.Cut(value, "@")
			c.Behind = &Place{Lane: Lane{Name: name}, Seq: numberOr(seq, 0)}
		}
	}
	return c, ok
}

func numberOr(text string, other int64) int64 {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	return other
}

// kindNamed is the kind of this name.
func kindNamed(name string) (Kind, bool) {
	for k := Insert; k <= Truncate; k++ {
		if k.String() == name {
			return k, true
		}
	}
	return 0, false
}

// change is what is known of a row beside its values; ok is false where that is nothing.
func (b *Batch) change(row int) (c Change, ok bool) {
	c.Stamp.Ordinal = -1
	if b.Kinds != nil {
		c.Kind = b.Kinds[row]
	}
	if b.Stamps != nil {
		c.Stamp = b.Stamps[row]
	}
	if b.Unsent.Any(row) {
		for i, f := range b.Rows.Schema().Fields() {
			if b.Unsent.Has(row, i) {
				c.Unsent = append(c.Unsent, f.Name)
			}
		}
	}
	c.Behind = b.Behind
	return c, b.Kinds != nil || b.Stamps != nil
}

// RowJSON is a row as JSON: an object of its columns; nil where there is no JSON for a value.
func RowJSON(rows arrow.RecordBatch, row int) []byte {
	one := rows.NewSlice(int64(row), int64(row)+1)
	defer one.Release()
	text, err := one.MarshalJSON()
	if err != nil || len(text) <= 2 {
		return nil
	}
	return text[1 : len(text)-1] // an array of one row
}

// RowsOfJSON makes rows of these columns of what RowJSON has made of some. A column that is not there is null, and one too many is left
// out. What is none is in faults, by its index; which of them each row is, of tells. Rows are nil where there are none.
func RowsOfJSON(schema *arrow.Schema, texts [][]byte) (rows arrow.RecordBatch, of []int, faults map[int]error) {
	faults = map[int]error{}
	parse := func(good [][]byte) (arrow.RecordBatch, error) {
		text := slices.Concat([]byte{'['}, bytes.Join(good, []byte{','}), []byte{']'})
		rows, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, bytes.NewReader(text))
		return rows, err
	}
	var good [][]byte
	for i, text := range texts {
		err := errors.New("found no object of JSON")
		if json.Valid(text) && bytes.HasPrefix(bytes.TrimSpace(text), []byte{'{'}) {
			var one arrow.RecordBatch
			if one, err = parse([][]byte{text}); err == nil {
				one.Release()
			}
		}
		if err != nil {
			faults[i] = err
			continue
		}
		good, of = append(good, text), append(of, i)
	}
	if len(of) == 0 {
		return nil, nil, faults
	}
	rows, err := parse(good)
	if err != nil {
		for _, i := range of {
			faults[i] = err
		}
		return nil, nil, faults
	}
	return rows, of, faults
}

// cameAs are the rows of a batch as they came into the steps, for the records of those that a step refuses: the source keeps none.
type cameAs struct {
	rows   arrow.RecordBatch
	seqs   []int64
	places []int32
	unsent *Mask
}

// beforeSteps keeps the rows of the batch; nil where that is not needed.
func beforeSteps(b *Batch) *cameAs {
	if b.Records != nil || b.Rows == nil {
		return nil
	}
	b.Rows.Retain()
	return &cameAs{b.Rows, slices.Clone(b.Seqs), slices.Clone(b.Places), b.Unsent}
}

// tell gives the batch's rejects that steps made the rows that they were, and releases these.
func (c *cameAs) tell(b *Batch) {
	if c == nil {
		return
	}
	defer c.rows.Release()
	for i := range b.Rejects {
		r := &b.Rejects[i]
		if r.Raw != nil {
			continue
		}
		row, ok := c.find(r.Seq, r.Row)
		if !ok {
			continue
		}
		r.Raw = RowJSON(c.rows, row)
		if change, ok := ChangeOf(r.Headers); ok {
			was := Batch{Rows: c.rows, Unsent: c.unsent}
			before, _ := was.change(row)
			change.Unsent = before.Unsent
			r.Headers = change.Headers()
		}
	}
}

// find is the row at a place of a seq.
func (c *cameAs) find(seq int64, place int32) (row int, ok bool) {
	first, _ := slices.BinarySearch(c.seqs, seq)
	for row = first; row < len(c.seqs) && c.seqs[row] == seq; row++ {
		if c.places == nil && int32(row-first) == place || c.places != nil && c.places[row] == place {
			return row, true
		}
	}
	return 0, false
}
