package lake

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
)

// spilled are changes that were gathered and are too many for memory, as a transaction of ten million rows has: in a file on the
// local disk. They are divided by their keys as they come, so that each is written once and read once:
//
//	batch ─ divide, by a hash of the key ─▶ parts, a share each, behind what is in the file
//	share ◀─ its parts, in the order in which they came: all changes of its keys
//
// The more there is, the more shares there are: a part from before then has rows of several. A part is as a parked batch is
// (park_rows.go). The file has no name any more, so nothing of it is left behind, however the process ends. Used by one goroutine
// at a time.
type spilled struct {
	file   *os.File
	end    int64
	parts  []spilledPart
	memory int64 // that all of it takes in memory
	by     *divider
	bits   int                    // of the hash, by which what comes is divided
	whole  bool                   // what comes is not divided: changes of one key depend on those of another
	lanes  map[freshet.Lane]int64 // by which rows came, and the last seq of each
	out    bytes.Buffer           // memory of what is written
	in     []byte                 // and of what is read
}

// spilledPart is what is not in the file of some rows of a batch, and where they are.
type spilledPart struct {
	of       *spilledBatch
	share    uint32 // of as many as bits of the hash tell apart
	bits     int    // 0: all rows of the batch
	at, size int64
	memory   int64 // that the rows take
}

// spilledBatch is what the parts of a batch have in common.
type spilledBatch struct {
	lane   freshet.Lane
	readAt time.Time
}

// leastBits tell the first shares apart, mostBits as many as there may be.
const (
	leastBits = 5
	mostBits  = 12
)

// newSpilled makes the file in the folder, which is made if it is not there.
func newSpilled(dir string, by *divider) (*spilled, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, spillError(err)
	}
	f, err := os.CreateTemp(dir, "freshet-spill-*")
	if err != nil {
		return nil, spillError(err)
	}
	_ = os.Remove(f.Name()) // it lives as long as it is open
	return &spilled{file: f, by: by, bits: leastBits, lanes: map[freshet.Lane]int64{}}, nil
}

// add moves a batch into the file, and releases it. A share is to take no more than so much memory.
func (s *spilled) add(b *freshet.Batch, most int64) error {
	defer b.Release()
	n := b.NumRows()
	if n == 0 {
		return nil
	}
	if b.Places == nil {
		b.SetPlaces() // a part of the batch does not tell them
	}
	s.lanes[b.Lane] = b.Seqs[n-1]
	of, memory := &spilledBatch{b.Lane, b.ReadAt}, b.MemoryBytes()+int64(n)*besideBytes
	for s.bits < mostBits && (s.memory+memory)>>s.bits > most {
		s.bits++
	}
	if !s.whole {
		d, err := s.by.divide(b, s.bits)
		if err == nil {
			return s.addDivided(of, b, d, memory/int64(n))
		}
		if !errors.Is(err, errUndivided) {
			return err
		}
		s.whole = true
	}
	if rows := s.by.heard(b); len(rows) < n {
		b = rowsOfBatch(b, b.Rows, b.Kinds, rows)
		defer b.Release()
	}
	if b.NumRows() == 0 {
		return nil
	}
	return s.write(b, spilledPart{of: of, memory: memory})
}

// addDivided adds the parts of a batch.
func (s *spilled) addDivided(of *spilledBatch, b *freshet.Batch, d *division, rowMemory int64) error {
	defer d.rows.Release()
	for share, rows := range d.shares {
		if len(rows) == 0 {
			continue
		}
		some := rowsOfBatch(b, d.rows, d.kinds, rows)
		err := s.write(some, spilledPart{of: of, share: uint32(share), bits: s.bits, memory: rowMemory * int64(len(rows))})
		some.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *spilled) write(b *freshet.Batch, p spilledPart) error {
	if err := writeTold(&s.out, b); err != nil {
		return err
	}
	if _, err := s.file.WriteAt(s.out.Bytes(), s.end); err != nil {
		return spillError(err)
	}
	p.at, p.size = s.end, int64(s.out.Len())
	s.parts = append(s.parts, p)
	s.end += p.size
	s.memory += p.memory
	return nil
}

// share is a range of shares, from inclusive, to exclusive.
type share struct{ from, to uint32 }

// in are the shares, of as many as bits tell apart, that the part has rows of.
func (p *spilledPart) in(bits int) share {
	return share{p.share << (bits - p.bits), (p.share + 1) << (bits - p.bits)}
}

// shares are ranges of shares that take about so much memory each, and together are all that there are.
func (s *spilled) shares(most int64) (all []share) {
	weights := make([]int64, 1<<s.bits)
	for i := range s.parts {
		p := &s.parts[i]
		for at, in := p.in(s.bits).from, p.in(s.bits); at < in.to; at++ {
			weights[at] += p.memory / int64(in.to-in.from)
		}
	}
	var now share
	var sum int64
	for at, w := range weights {
		if sum > 0 && sum+w > most {
			all, now, sum = append(all, now), share{from: uint32(at)}, 0
		}
		now.to, sum = uint32(at)+1, sum+w
	}
	return append(all, now)
}

// load reads the rows of a range of shares back, for the caller to release.
func (s *spilled) load(of share) (batches []*freshet.Batch, err error) {
	for i := range s.parts {
		p := &s.parts[i]
		in := p.in(s.bits)
		if in.to <= of.from || in.from >= of.to {
			continue
		}
		b, err := s.read(p)
		if err == nil && (in.from < of.from || in.to > of.to) {
			b, err = s.by.within(b, s.bits, of)
		}
		if err != nil {
			releaseBatches(batches)
			return nil, err
		}
		if b != nil {
			batches = append(batches, b)
		}
	}
	return batches, nil
}

// all reads everything back, in the order in which it came; the caller releases it.
func (s *spilled) all() (batches []*freshet.Batch, err error) {
	for i := range s.parts {
		b, err := s.read(&s.parts[i])
		if err != nil {
			releaseBatches(batches)
			return nil, err
		}
		batches = append(batches, b)
	}
	return batches, nil
}

// read reads a part back.
func (s *spilled) read(p *spilledPart) (*freshet.Batch, error) {
	s.in = slices.Grow(s.in[:0], int(p.size))[:p.size]
	if _, err := io.ReadFull(io.NewSectionReader(s.file, p.at, p.size), s.in); err != nil {
		return nil, spillError(err)
	}
	b := &freshet.Batch{Lane: p.of.lane, ReadAt: p.of.readAt}
	err := readStream(s.in, slices.Concat(recordFields, changeFields), func(rec arrow.RecordBatch, first int) error {
		takeRows(rec, first, b)
		return nil
	})
	if err != nil {
		return nil, spillError(fmt.Errorf("read back what was spilled: %w", err))
	}
	return b, nil
}

// close gives up the file. A nil *spilled has none.
func (s *spilled) close() {
	if s != nil {
		_ = s.file.Close() // what is in it is given up
	}
}

func releaseBatches(batches []*freshet.Batch) {
	for _, b := range batches {
		b.Release()
	}
}

// spillError says what is wrong with the folder for rows that do not fit into memory.
func spillError(err error) error {
	e := &freshet.Error{Code: freshet.CodeStoreUnavailable, Class: freshet.ClassEnvironment, Err: err,
		Msg: "the rows of a large transaction cannot be kept on disk until they are committed",
		Fix: "make room in the folder of the key indexes, or name another one: index_dir"}
	if errors.Is(err, fs.ErrPermission) {
		e.Code = freshet.CodeStoreRefused
	}
	return e
}
