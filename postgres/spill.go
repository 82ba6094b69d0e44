package postgres

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/freshet-io/freshet"
)

// changes are messages of one transaction in their order, each behind its length (4 bytes): in memory, until they are spilled
// into a file that no other process sees.
type changes struct {
	memory []byte
	file   *os.File // nil: all is in memory
	out    *bufio.Writer
	size   int64 // of all
}

// add appends a copy of a message. Errors: those of the file.
func (c *changes) add(payload []byte) error {
	c.size += int64(len(payload)) + 4
	if c.file == nil {
		c.memory = binary.BigEndian.AppendUint32(c.memory, uint32(len(payload)))
		c.memory = append(c.memory, payload...)
		return nil
	}
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(payload)))
	_, err := c.out.Write(length[:])
	if err == nil {
		_, err = c.out.Write(payload)
	}
	return spillError(err)
}

// spill moves what is in memory into a file in the folder, and what comes later goes there, too.
func (c *changes) spill(dir string) error {
	f, err := os.CreateTemp(dir, "freshet-spill-*")
	if err != nil {
		return spillError(err)
	}
	_ = os.Remove(f.Name()) // it lives as long as it is open
	c.file, c.out = f, bufio.NewWriterSize(f, 64<<10)
	_, err = c.out.Write(c.memory)
	c.memory = nil
	return spillError(err)
}

// drop gives up memory and file.
func (c *changes) drop() {
	c.memory = nil
	if c.file != nil {
		c.file.Close()
		c.file = nil
	}
}

// read returns what yields the messages from the first one on; nothing is added meanwhile.
func (c *changes) read() (*changesReader, error) {
	if c.file == nil {
		return &changesReader{memory: c.memory}, nil
	}
	if err := c.out.Flush(); err != nil {
		return nil, spillError(err)
	}
	if _, err := c.file.Seek(0, io.SeekStart); err != nil {
		return nil, spillError(err)
	}
	return &changesReader{in: bufio.NewReaderSize(c.file, 256<<10)}, nil
}

// changesReader yields messages.
type changesReader struct {
	memory []byte
	in     *bufio.Reader // nil: memory
	buffer []byte
}

// next returns a message, which lasts until the next call. io.EOF: there is none.
func (r *changesReader) next() ([]byte, error) {
	if r.in == nil {
		if len(r.memory) == 0 {
			return nil, io.EOF
		}
		n := binary.BigEndian.Uint32(r.memory)
		payload := r.memory[4 : 4+n]
		r.memory = r.memory[4+n:]
		return payload, nil
	}
	var length [4]byte
	if _, err := io.ReadFull(r.in, length[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, spillError(err)
	}
	n := int(binary.BigEndian.Uint32(length[:]))
	if n > cap(r.buffer) {
		r.buffer = make([]byte, n)
	}
	r.buffer = r.buffer[:n]
	_, err := io.ReadFull(r.in, r.buffer)
	return r.buffer, spillError(err)
}

// spillError says what is wrong with the folder for large transactions.
func spillError(err error) error {
	if err == nil {
		return nil
	}
	e := &freshet.Error{Code: freshet.CodeStoreUnavailable, Class: freshet.ClassEnvironment, Err: err,
		Msg: "a large transaction cannot be kept on disk until it is committed",
		Fix: "make room in the folder for temporary files, or name another one: spill_dir"}
	if errors.Is(err, fs.ErrPermission) {
		e.Code = freshet.CodeStoreRefused
	}
	return e
}
