package parquet

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet/compress"

	"github.com/freshet-io/freshet/expr"
)

// Physical is how values are stored, by its number in parquet.thrift, Type.
type Physical uint8

// The physical types.
const (
	PhysicalBoolean Physical = iota
	PhysicalInt32
	PhysicalInt64
	PhysicalInt96
	PhysicalFloat
	PhysicalDouble
	PhysicalBytes
	PhysicalFixed
)

// Width is the bytes of a value, a byte of booleans, 0 where they vary. length is that of the values of PhysicalFixed.
func (p Physical) Width(length int) int {
	switch p {
	case PhysicalBoolean:
		return 1
	case PhysicalInt32, PhysicalFloat:
		return 4
	case PhysicalInt64, PhysicalDouble:
		return 8
	case PhysicalInt96:
		return 12
	case PhysicalFixed:
		return length
	}
	return 0
}

// Chunk is a column chunk: where it lies, and what the file's footer says of it.
type Chunk struct {
	Type     Physical
	Length   int // bytes of a value of PhysicalFixed
	MaxDef   int // definition level of values; less is null
	MaxRep   int // 0: the column is in no list
	Slot     int // definition level from which on an entry is an element of the innermost list; less is a lack of elements
	Codec    compress.Compression
	Entries  int64 // values and nulls, and lists without elements; what tells where the last row of a list ends
	From, To int64 // in the file
	Reach    int64 // how far the last page may, To or behind it
	Room     *Room // that all readers of a file share
	// View returns bytes of the file from at on: n, or more, or less if the chunk ends before. They stay as they are.
	View func(at int64, n int) ([]byte, error)
}

// Values are rows of a column. An entry is a value, a null, or a list's lack of elements; a slot is an entry that is a
// place in the array of the column's values. Outside of lists a row is an entry and a slot. The levels are valid until
// the reader's next Read.
type Values struct {
	Defs  []uint8 // a definition level an entry; nil when MaxDef is 0: all are values
	Reps  []uint8 // a repetition level an entry; nil when MaxRep is 0: each is a row
	Slots []uint8 // of Defs, those of slots
	Len   int     // slots
	Nulls int     // slots without a value
	// Fixed has a value of the type's width a slot (a byte, 0 or 1, of booleans); where there is none it may hold anything.
	Fixed []byte
	// Offsets and Data are the values of PhysicalBytes, in place of Fixed: slot i is Data[Offsets[i]:Offsets[i+1]].
	Offsets []int32
	Data    []byte
	// Places are, in place of these, where the values of the slots are in Texts; where there is none it may be anything.
	Places []int32
	Texts  *Texts
}

// Texts are the texts of a dictionary: text i is Data[Offsets[i]:Offsets[i+1]]. They stay as they are.
type Texts struct {
	Offsets []int32
	Data    []byte
}

// ColumnReader reads a column chunk, pages of both versions and of any encoding. Page checksums are verified where there
// are some. What is wrong with the bytes is an error. Memory: Held, which is a page and the dictionary, and what Read
// returns, Room in sum. It is for one goroutine.
type ColumnReader struct {
	c     Chunk
	width int // of a value, 0 of PhysicalBytes
	dec   *decoder
	win   []byte // bytes of the file from winAt on
	winAt int64
	cursor
	done   int         // rows that Read has passed
	due    int         // rows that it has yet to return
	picked []expr.Span // rows that it picks from those that it decodes, from the page's first one on; nil: it returns all
	fit    int         // values of those that it could not read that there was room for

	openAt   int64 // of the open page
	opened   int   // how often what is open has changed
	entries  int   // of the open page
	page     []byte
	recoded  []byte
	own      bool // plain is in page or recoded, or in what was these
	lent     int  // bytes of them that Values have, of which the open page is yet read
	coded    bool // indices are of the dictionary
	rle      bool // indices are booleans
	pageReps []uint8
	pageDefs []uint8

	dictAt  int64 // of its page
	hasDict bool
	places  bool // are what Read returns of texts
	dict    dictionary

	defsBuf, repsBuf, slotsBuf []uint8
}

// cursor is where a reader stands.
type cursor struct {
	behind  int   // rows that were passed over and not read past yet
	at      int64 // of the next page
	left    int   // entries of the open page that are not read
	passed  int   // entries to pass over when the page that comes next is opened
	beyond  int64 // entries of the pages that are not open yet
	defs    pageLevels
	reps    []uint8 // of the entries that are left
	plain   []byte  // values, when the page is PLAIN
	bit     int     // the next boolean of plain
	indices runs    // when it is not
}

var (
	errEnds  = errors.New("the column ends before the last row of its row group")
	errBegin = errors.New("the column begins in the middle of a list")
)

// OpenColumn reads the dictionary, if there is one.
func OpenColumn(c Chunk) (*ColumnReader, error) {
	r := &ColumnReader{c: c, width: c.Type.Width(c.Length), cursor: cursor{at: c.From, beyond: c.Entries}}
	if c.Type > PhysicalFixed || c.Type == PhysicalFixed && (c.Length <= 0 || c.Length > 1<<20) {
		return nil, fmt.Errorf("values of physical type %d, %d bytes each", c.Type, c.Length)
	}
	if c.MaxDef > 250 || c.MaxRep > 250 {
		return nil, fmt.Errorf("definition levels up to %d, repetition levels up to %d", c.MaxDef, c.MaxRep)
	}
	var err error
	if r.dec, err = newDecoder(c.Codec); err != nil {
		return nil, err
	}
	h, _, err := r.header()
	if err != nil || h.kind != pageDict {
		return r, err
	}
	r.dictAt, r.hasDict = r.at, true
	return r, r.readDict()
}

// Code makes Read return texts outside of lists as places in the chunk's dictionary, where they are stored so.
func (r *ColumnReader) Code() { r.places = true }

// SlotBytes is what a slot takes in what Read returns, but for texts that pages have in full: those of the dictionary
// count as if all were as frequent.
func (r *ColumnReader) SlotBytes() int {
	if r.c.Type == PhysicalBytes {
		return 4 + r.dict.average()
	}
	return r.width
}

// Read passes over the next n rows, which there must be, and returns those of them in rows, which ascend and are counted
// from the first of the n. Fixed, Offsets and Data are the caller's. Errors: *RoomError, after which the reader must
// Return to a mark.
func (r *ColumnReader) Read(n int, rows []expr.Span) (v Values, err error) {
	if r.done, r.fit = -r.behind, 0; r.c.MaxRep > 0 {
		return r.read(n, rows)
	}
	v, err = r.read(n, rows)
	if errors.Is(err, ErrRoom) {
		err = &RoomError{Fit: r.done + r.fit, err: err}
	}
	return v, err
}

// Pass passes over the next n rows, which there must be, when more is read; pages of which all is passed over stay undecoded.
func (r *ColumnReader) Pass(n int) { r.behind += n }

func (r *ColumnReader) read(n int, rows []expr.Span) (v Values, err error) {
	total := expr.CountRows(rows)
	if r.due, r.picked = total, nil; r.c.MaxRep == 0 && Scattered(rows, n) {
		r.picked, rows = rows, []expr.Span{{From: rows[0].From, To: rows[len(rows)-1].To}}
	}
	v = Values{Defs: r.defsBuf[:0], Reps: r.repsBuf[:0], Slots: r.slotsBuf[:0]}
	if err := r.c.Room.spend(total * max(r.width, 4)); err != nil {
		return v, err
	}
	switch {
	case r.c.Type != PhysicalBytes:
		v.Fixed = Uncleared(total * r.width)[:0]
	case r.places && r.hasDict && r.c.MaxRep == 0:
		v.Places = arrow.Int32Traits.CastFromBytes(Uncleared(4 * total))[:0]
	default:
		v.Offsets = arrow.Int32Traits.CastFromBytes(Uncleared(4*total + 4))[:1]
		v.Offsets[0] = 0
	}
	at := -r.behind
	r.behind = 0
	for _, s := range rows {
		if err := r.rows(nil, s.From-at); err != nil {
			return v, err
		}
		if err := r.rows(&v, s.To-s.From); err != nil {
			return v, err
		}
		at = s.To
	}
	if err := r.rows(nil, n-at); err != nil {
		return v, err
	}
	r.defsBuf, r.repsBuf, r.slotsBuf = v.Defs, v.Reps, v.Slots
	if r.c.MaxRep == 0 {
		v.Slots = v.Defs
	}
	if v.Places != nil {
		v.Texts = r.dict.texts()
	}
	return v, nil
}

// rows appends the next k rows to v; it passes over them when v is nil.
func (r *ColumnReader) rows(v *Values, k int) error {
	if r.c.MaxRep > 0 {
		return r.lists(v, k)
	}
	for k > 0 {
		if r.left == 0 {
			passed := 0
			var err error
			if v == nil {
				passed, err = r.passPage(k)
			}
			if err == nil && passed == 0 {
				err = r.nextPage()
			}
			if err != nil {
				return err
			}
			k, r.done = k-passed, r.done+passed
			continue
		}
		m := min(r.left, k)
		if err := r.take(v, m); err != nil {
			return err
		}
		k, r.done = k-m, r.done+m
	}
	return nil
}

// lists is rows of a column in lists: a row ends where the next one begins, or the column ends.
func (r *ColumnReader) lists(v *Values, k int) error {
	for begun := 0; k > 0; {
		if r.left == 0 {
			if r.beyond <= 0 && begun == k {
				return nil
			}
			if err := r.nextPage(); err != nil {
				return err
			}
		}
		if begun == 0 && r.reps[0] > 0 {
			return errBegin
		}
		m := 0
		for m < len(r.reps) && (r.reps[m] > 0 || begun < k) {
			if r.reps[m] == 0 {
				begun++
			}
			m++
		}
		if err := r.take(v, m); err != nil {
			return err
		}
		if r.left > 0 {
			return nil
		}
	}
	return nil
}

// take appends m entries of the open page to v, or passes over them.
func (r *ColumnReader) take(v *Values, m int) error {
	if m == 0 {
		return nil
	}
	defer func() { r.left -= m }()
	var rows []expr.Span
	if v != nil {
		rows = r.rowsOf(m)
	}
	if len(rows) == 0 {
		return r.pass(m)
	}
	e, err := r.readLevels(v, m, rows)
	if err != nil {
		return err
	}
	v.Nulls += e.slots - e.n
	v.Len += e.slots
	defer func() { r.due -= e.slots }()
	if v.Places != nil {
		if r.coded || e.n == 0 {
			return r.readPlaces(v, &e)
		}
		if err := r.resolve(v); err != nil {
			return err
		}
	}
	if r.c.Type == PhysicalBytes {
		first := len(v.Offsets) - 1
		if err := r.readBytes(v, &e); err != nil {
			return err
		}
		if e.n < e.slots {
			v.Offsets = slices.Grow(v.Offsets, e.slots-e.n)[:first+e.slots+1]
			spreadOffsets(v.Offsets[first:], e.defs, e.n, uint8(r.c.MaxDef))
		}
		return nil
	}
	at := len(v.Fixed)
	v.Fixed = slices.Grow(v.Fixed, e.slots*r.width)[:at+e.slots*r.width]
	dst := v.Fixed[at:]
	if err := r.readFixed(dst[:e.n*r.width], &e); err != nil {
		return err
	}
	if e.n < e.slots {
		clear(dst[e.n*r.width:])
		spread(dst, e.defs, r.width, e.n, uint8(r.c.MaxDef))
	}
	return nil
}

// pass moves over m entries of the open page; what it holds of no use any more when they are its last is left as it is.
func (r *ColumnReader) pass(m int) error {
	if m == r.left {
		return nil
	}
	if r.c.MaxRep > 0 {
		r.reps = r.reps[m:]
	}
	valid := m
	if r.c.MaxDef > 0 {
		var err error
		if valid, err = r.defs.count(m, uint8(r.c.MaxDef)); err != nil {
			return err
		}
	}
	return r.passValues(valid)
}

// readLevels appends the levels of those of the next m entries that are in rows.
func (r *ColumnReader) readLevels(v *Values, m int, rows []expr.Span) (e entries, err error) {
	if r.c.MaxRep > 0 {
		v.Reps = append(v.Reps, r.reps[:m]...)
		r.reps = r.reps[m:]
	}
	if r.c.MaxDef == 0 {
		n := expr.CountRows(rows)
		return entries{slots: n, of: m, values: rows, n: n}, nil
	}
	from := len(v.Defs)
	v.Defs = slices.Grow(v.Defs, m)[:from+m]
	defs := v.Defs[from:]
	if err := r.defs.read(defs); err != nil {
		return e, err
	}
	valid, err := countValues(defs, uint8(r.c.MaxDef))
	if err != nil {
		return e, err
	}
	if r.picked == nil {
		rows[0].To = valid
		e = entries{slots: m, defs: defs, of: valid, values: rows, n: valid}
		if r.c.MaxRep > 0 {
			err = r.readSlots(v, &e)
		}
		return e, err
	}
	e = r.pick(defs, valid, rows)
	v.Defs = v.Defs[:from+e.slots]
	return e, nil
}

// readSlots leaves those entries of a column in lists that are slots.
func (r *ColumnReader) readSlots(v *Values, e *entries) error {
	at := len(v.Slots)
	for _, d := range e.defs {
		if int(d) >= r.c.Slot {
			v.Slots = append(v.Slots, d)
		}
	}
	e.defs = v.Slots[at:]
	e.slots = len(e.defs)
	return r.c.Room.spend(e.slots * max(r.width, 4))
}

// countValues counts the levels that are the highest.
func countValues(defs []uint8, most uint8) (n int, err error) {
	if most == 1 {
		over := uint8(0)
		for _, l := range defs {
			n += int(l & 1)
			over |= l
		}
		if over > 1 {
			return 0, errLevel
		}
		return n, nil
	}
	for _, l := range defs {
		if l > most {
			return 0, errLevel
		}
		if l == most {
			n++
		}
	}
	return n, nil
}

// maxData bounds the texts of one batch by what offsets of 32 bits can tell.
const maxData = math.MaxInt32 - slack
