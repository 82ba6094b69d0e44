package parquet

import (
	"errors"

	"github.com/freshet-io/freshet/expr"
)

// Room is the memory that readers of one file may take for what they read at once. All of them share one, which one
// goroutine uses.
type Room struct {
	Most  int64 // bytes of a page and what it becomes, and of what is read of the other columns with it
	batch int64 // bytes of what Read returns, of all columns
	spent int64 // of batch

	// Memory that the readers use in turn.
	indices      []uint32
	rows, values []expr.Span
}

// Begin opens a new batch of about so many bytes of rows; what reads more is ErrRoom. A row alone may take all there is.
func (r *Room) Begin(bytes int64) { r.batch, r.spent = min(bytes, r.Most), 0 }

// Alone opens a new batch of one row.
func (r *Room) Alone() { r.Begin(r.Most) }

func (r *Room) spend(n int) error {
	if r.spent += int64(n); r.spent > r.batch {
		return ErrRoom
	}
	return nil
}

// fits reports whether n bytes can be spent beside so many that are held.
func (r *Room) fits(n, held int) bool {
	return r.spent+int64(n) <= r.batch && r.spent+int64(n)+int64(held) <= r.Most
}

// rest is how many bytes the batch may yet take.
func (r *Room) rest() int { return int(max(r.batch-r.spent, 0)) }

// left is what a page may take beside what has been read.
func (r *Room) left() int64 { return r.Most - r.spent }

// ErrRoom says that rows take more memory than there is room for. Fewer of them may not.
var ErrRoom = errors.New("it takes more memory than a file of this size is believed to; " +
	"if it is sound, have it written anew with less compression")

// RoomError is an ErrRoom that tells where room ended.
type RoomError struct {
	Fit int // rows from the first on that there was room for in this column, or fewer; 0 may mean that it is not known
	err error
}

func (e *RoomError) Error() string { return e.err.Error() }

// Unwrap makes errors.Is(err, ErrRoom) true.
func (e *RoomError) Unwrap() error { return e.err }

// Mark is where a reader stood.
type Mark struct {
	cursor
	opened int
	again  cursor // the same place, with no page open
}

// Mark is where the next Read begins.
func (r *ColumnReader) Mark() Mark {
	m := Mark{cursor: r.cursor, opened: r.opened, again: cursor{behind: r.behind, at: r.at, passed: r.passed, beyond: r.beyond}}
	if r.left > 0 {
		m.again = cursor{behind: r.behind, at: r.openAt, passed: r.entries - r.left, beyond: r.beyond + int64(r.entries)}
	}
	return m
}

// Return makes the next Read begin at a mark, also after a Read that failed.
func (r *ColumnReader) Return(m Mark) {
	if m.left > 0 && m.opened == r.opened {
		r.cursor = m.cursor
		return
	}
	r.cursor, r.lent = m.again, 0
	r.opened++
}

// Release gives the memory of the open page and of the dictionary back; when more is read they are decoded again.
func (r *ColumnReader) Release() {
	r.cursor, r.lent = r.Mark().again, 0
	r.opened++
	r.page, r.recoded, r.pageDefs, r.pageReps, r.dict.values, r.dict.offsets = nil, nil, nil, nil, nil, nil
	r.c.Room.indices = nil
}

// Held is the memory that the reader keeps between calls.
func (r *ColumnReader) Held() int {
	return r.lent + cap(r.page) + cap(r.recoded) + cap(r.pageDefs) + cap(r.pageReps) + cap(r.dict.values) +
		4*cap(r.dict.offsets) + 4*cap(r.c.Room.indices)
}
