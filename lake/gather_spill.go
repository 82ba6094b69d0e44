package lake

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	freshet "github.com/freshet-io/freshet"
)

// spilled are batches that were gathered and are too many for memory, as a transaction of ten million rows has: in a file on the
// local disk, each as a parked one is (park_batch.go), in the order in which they came. The file has no name any more, so
// nothing of it is left behind, however the process ends.
type spilled struct {
	file    *os.File
	end     int64
	batches []spilledBatch
	memory  int64 // that they take in memory
}

// spilledBatch is what is not in the file of a batch, and where its rows are.
type spilledBatch struct {
	lane     freshet.Lane
	readAt   time.Time
	at, size int64
}

// newSpilled makes the file in the folder, which is made if it is not there.
func newSpilled(dir string) (*spilled, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, spillError(err)
	}
	f, err := os.CreateTemp(dir, "freshet-spill-*")
	if err != nil {
		return nil, spillError(err)
	}
	_ = os.Remove(f.Name()) // it lives as long as it is open
	return &spilled{file: f}, nil
}

// add moves a batch into the file, and releases it.
func (s *spilled) add(b *freshet.Batch) error {
	defer b.Release()
	if b.Places == nil {
		b.SetPlaces() // a part of the batch does not tell them
	}
	data, err := encodeRows(b)
	if err != nil || data == nil {
		return err
	}
	if _, err := s.file.WriteAt(data, s.end); err != nil {
		return spillError(err)
	}
	s.batches = append(s.batches, spilledBatch{lane: b.Lane, readAt: b.ReadAt, at: s.end, size: int64(len(data))})
	s.end += int64(len(data))
	s.memory += rowBytes(b)
	return nil
}

// load reads a batch back; the caller releases it.
func (s *spilled) load(i int) (*freshet.Batch, error) {
	of := &s.batches[i]
	data := make([]byte, of.size)
	if _, err := io.ReadFull(io.NewSectionReader(s.file, of.at, of.size), data); err != nil {
		return nil, spillError(err)
	}
	b := &freshet.Batch{Lane: of.lane, ReadAt: of.readAt}
	if err := decodeRows(data, b); err != nil {
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

// rowBytes is what the rows of a batch take in memory.
func rowBytes(b *freshet.Batch) (n int64) {
	for _, c := range b.Rows.Columns() {
		n += int64(c.Data().SizeInBytes())
	}
	return n
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
