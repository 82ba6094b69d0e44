package keyindex

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sync/errgroup"
)

// sorter puts the entries of a change in order. A few lie in memory; when they become more, all go to a file,
// parted by the first bits of their fingerprints, and each part is sorted in memory when it is asked for. Its
// records are
//
//	fingerprint's upper half 8 | lower half 8 | file 4 | row 5 | sequence
//
// It is used by one goroutine.
type sorter struct {
	path  string // of the file
	width int    // of a record
	count uint64
	file  FileID // the last, Tombstone aside
	row   int64  // the last

	mem     []byte // until there is a file
	spilled *os.File
	end     int64 // of the file
	parts   []part
}

// part is what has the same first bits: blocks of the file, and what does not fill one yet.
type part struct {
	blocks []int64 // where each starts
	tail   []byte
}

const (
	sorterMemory = 4 << 20 // bytes of records before there is a file
	partBits     = 10
	positionLen  = maxFileBytes + maxRowBytes
	blockBytes   = 16 << 10 // of one part, written at once
)

func newSorter(path string, seq int) *sorter {
	return &sorter{path: path, width: 16 + positionLen + seq}
}

// add takes the entries of a file: rows[i] is of keys[i], or i when rows is nil.
func (s *sorter) add(id FileID, keys []Fingerprint, rows []int64, seqs []byte) error {
	if id != Tombstone {
		s.file = max(s.file, id)
	}
	if s.spilled == nil {
		s.grow(len(keys))
	}
	seq := s.width - 16 - positionLen
	for i, k := range keys {
		row := int64(i)
		if rows != nil {
			row = rows[i]
		}
		dst := &s.mem
		if s.spilled != nil {
			p := &s.parts[k.Hi>>(64-partBits)]
			if err := s.makeRoom(p); err != nil {
				return err
			}
			dst = &p.tail
		}
		*dst = appendRecord(*dst, k, Position{id, row}, seqs[i*seq:i*seq+seq])
		s.count, s.row = s.count+1, max(s.row, row)
		if s.spilled == nil && len(s.mem) >= sorterMemory {
			if err := s.spill(); err != nil {
				return err
			}
		}
	}
	return nil
}

// grow makes room in memory for so many records more, as far as they may lie there.
func (s *sorter) grow(records int) {
	need := min(records*s.width, sorterMemory+s.width-len(s.mem))
	if len(s.mem)+need > cap(s.mem) {
		s.mem = slices.Grow(s.mem, max(need, len(s.mem)))
	}
}

func appendRecord(dst []byte, fp Fingerprint, at Position, seq []byte) []byte {
	var rec [16 + maxFileBytes + 8]byte
	binary.LittleEndian.PutUint64(rec[:], fp.Hi)
	binary.LittleEndian.PutUint64(rec[8:], fp.Lo)
	binary.LittleEndian.PutUint32(rec[16:], uint32(at.File))
	binary.LittleEndian.PutUint64(rec[16+maxFileBytes:], uint64(at.Row))
	return append(append(dst, rec[:16+positionLen]...), seq...)
}

// blockRecords is the bytes of the records that a block holds.
func (s *sorter) blockRecords() int { return blockBytes / s.width * s.width }

// makeRoom writes the tail of a part when it is full.
func (s *sorter) makeRoom(p *part) error {
	full := s.blockRecords()
	if p.tail == nil {
		p.tail = make([]byte, 0, full)
	}
	if len(p.tail) < full {
		return nil
	}
	if _, err := s.spilled.WriteAt(p.tail, s.end); err != nil {
		return err
	}
	p.blocks = append(p.blocks, s.end)
	s.end += blockBytes // whole pages of the file
	p.tail = p.tail[:0]
	return nil
}

// spill moves what lies in memory to the parts of a new file.
func (s *sorter) spill() (err error) {
	if s.spilled, err = os.Create(s.path); err != nil {
		return err
	}
	s.parts = make([]part, 1<<partBits)
	for rec := range slices.Chunk(s.mem, s.width) {
		p := &s.parts[recordKey(rec).Hi>>(64-partBits)]
		if err := s.makeRoom(p); err != nil {
			return err
		}
		p.tail = append(p.tail, rec...)
	}
	s.mem = nil
	return nil
}

// close forgets everything.
func (s *sorter) close() error {
	s.mem, s.parts = nil, nil
	if s.spilled == nil {
		return nil
	}
	return errors.Join(s.spilled.Close(), os.Remove(s.path))
}

func recordKey(rec []byte) Fingerprint {
	return Fingerprint{binary.LittleEndian.Uint64(rec), binary.LittleEndian.Uint64(rec[8:])}
}

func recordPosition(rec []byte) Position {
	return Position{FileID(binary.LittleEndian.Uint32(rec[16:])),
		int64(binary.LittleEndian.Uint32(rec[20:])) | int64(rec[24])<<32}
}

// sorted is a part in order.
type sorted struct {
	records []byte
	order   []ref
}

// each passes on the entries by ascending fingerprint, those of one fingerprint with the one that counts
// last, as FileID.rank has it; then the later row, and of tombstones that of the greater sequence.
func (s *sorter) each(ctx context.Context, take func(fp Fingerprint, at Position, seq []byte) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	slots := make(chan chan sorted, max(1, min(runtime.GOMAXPROCS(0), 4)-1)) // the parts that are sorted ahead
	g.Go(func() error {
		defer close(slots)
		return s.sortParts(ctx, g, slots)
	})
	err := s.drain(ctx, slots, take)
	cancel()
	if werr := g.Wait(); werr != nil && (err == nil || errors.Is(err, context.Canceled)) {
		err = werr
	}
	return err
}

// sortParts puts, for each part in its order, a slot in which the sorted part will come.
func (s *sorter) sortParts(ctx context.Context, g *errgroup.Group, slots chan<- chan sorted) error {
	for i := range max(1, len(s.parts)) {
		slot := make(chan sorted, 1)
		select {
		case slots <- slot:
		case <-ctx.Done():
			return ctx.Err()
		}
		g.Go(func() error {
			records, skip, err := s.load(i)
			if err != nil {
				return err
			}
			slot <- sorted{records, sortRecords(records, s.width, skip)}
			return nil
		})
	}
	return nil
}

// load reads a part into memory. The fingerprints of a part agree in their first skip bits.
func (s *sorter) load(i int) (records []byte, skip uint, err error) {
	if s.spilled == nil {
		return s.mem, 0, nil
	}
	p := &s.parts[i]
	size := s.blockRecords()
	records = make([]byte, len(p.blocks)*size, len(p.blocks)*size+len(p.tail))
	for k, at := range p.blocks {
		if _, err := s.spilled.ReadAt(records[k*size:(k+1)*size], at); err != nil {
			return nil, 0, err
		}
	}
	return append(records, p.tail...), partBits, nil
}

func sortRecords(records []byte, width int, skip uint) []ref {
	var o orderer
	order := o.order(len(records)/width, skip, 2, func(i int) uint64 {
		return binary.LittleEndian.Uint64(records[i*width:])
	})
	compare := func(a, b ref) int {
		if c := cmp.Compare(a.hi, b.hi); c != 0 {
			return c
		}
		x, y := records[int(a.i)*width:], records[int(b.i)*width:]
		px, py := recordPosition(x), recordPosition(y)
		c := cmp.Or(recordKey(x).compare(recordKey(y)), cmp.Compare(px.File.rank(), py.File.rank()),
			cmp.Compare(px.Row, py.Row))
		if c == 0 && px.File == Tombstone {
			c = bytes.Compare(x[16+positionLen:width], y[16+positionLen:width])
		}
		return cmp.Or(c, cmp.Compare(a.i, b.i))
	}
	from := 0
	for i := 1; i <= len(order); i++ {
		if i == len(order) || o.leading(order[i].hi, skip) != o.leading(order[from].hi, skip) {
			sortFew(order[from:i], compare)
			from = i
		}
	}
	return order
}

// sortFew sorts what are few but for those that are alike.
func sortFew(refs []ref, compare func(a, b ref) int) {
	if len(refs) > 16 {
		slices.SortFunc(refs, compare)
		return
	}
	for i := 1; i < len(refs); i++ {
		for k := i; k > 0; k-- {
			a, b := refs[k-1], refs[k]
			if a.hi < b.hi || a.hi == b.hi && compare(a, b) <= 0 {
				break
			}
			refs[k-1], refs[k] = b, a
		}
	}
}

// drain passes on the parts as they come, in their order.
func (s *sorter) drain(ctx context.Context, slots <-chan chan sorted,
	take func(fp Fingerprint, at Position, seq []byte) error) error {
	for slot := range slots {
		var part sorted
		select {
		case part = <-slot:
		case <-ctx.Done():
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, r := range part.order {
			rec := part.records[int(r.i)*s.width : (int(r.i)+1)*s.width]
			if err := take(recordKey(rec), recordPosition(rec), rec[16+positionLen:]); err != nil {
				return err
			}
		}
	}
	return nil
}
