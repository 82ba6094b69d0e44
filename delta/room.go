package delta

import (
	"errors"

	"github.com/freshet-io/freshet/delta/internal/parquet"
)

// room is how many bytes a row may take with the page that it is in, and heldRoom how many the pages and dictionaries
// may that stay in memory between batches. With the file itself they are within ten times its size and 64 MiB: what needs
// more is taken for a bomb.
func (f *remoteFile) room() *parquet.Room { return &parquet.Room{Most: 44<<20 + 7*f.size} }

func (f *remoteFile) heldRoom() int { return int(12<<20 + f.size) }

// readAtOnce is what a batch of more than one row may take.
const readAtOnce = 32 << 20

// readPlace is a column reader and where it stood.
type readPlace struct {
	reader *parquet.ColumnReader
	mark   parquet.Mark
}

// fewer reads n rows, or as many fewer as there is room for, and returns how many; readers are those of all columns. A read
// that fails for want of room is tried again with those that fit, or half the rows.
func fewer(n int, room *parquet.Room, readers []*parquet.ColumnReader, read func(n int) error) (int, error) {
	places := make([]readPlace, len(readers))
	for i, r := range readers {
		places[i] = readPlace{r, r.Mark()}
	}
	for first := true; ; first = false {
		if room.Begin(readAtOnce); n <= 1 {
			room.Alone()
		}
		err := read(n)
		if n <= 1 || !errors.Is(err, parquet.ErrRoom) {
			return n, err
		}
		var some *parquet.RoomError
		switch {
		case first && errors.As(err, &some) && some.Fit < n:
			n = max(some.Fit, 1)
		default:
			n /= 2
		}
		for _, p := range places {
			p.reader.Return(p.mark)
		}
	}
}
