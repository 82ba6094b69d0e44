package postgres

import (
	"bufio"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"

	"github.com/freshet-io/freshet"
)

// changes are messages of one transaction in their order, each behind its length (4 bytes): in memory, until they are spilled
// into a file that no other process sees.
type changes struct {
	blocks [][]byte // of whole messages
	held   int64    // bytes in blocks
	file   *os.File // nil: all is in memory
	out    *bufio.Writer
	block  cipher.Block // what is in the file is encrypted by it, under a key that nobody else has; nil: it is not
	size   int64        // of all
}

// Blocks begin small, as most transactions are, and grow, so that nothing need be moved.
const (
	leastBlock = 512
	mostBlock  = 1 << 20
)

// add appends a copy of a message. Errors: those of the file.
func (c *changes) add(payload []byte) error {
	size := len(payload) + 4
	c.size += int64(size)
	if c.file == nil {
		block := c.room(size)
		*block = append(binary.BigEndian.AppendUint32(*block, uint32(len(payload))), payload...)
		c.held += int64(size)
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

// room is the last block, which has room for so many bytes.
func (c *changes) room(size int) *[]byte {
	n := len(c.blocks)
	if n == 0 || cap(c.blocks[n-1])-len(c.blocks[n-1]) < size {
		most := max(min(c.held, mostBlock), leastBlock, int64(size))
		c.blocks = append(c.blocks, make([]byte, 0, most))
		n++
	}
	return &c.blocks[n-1]
}

// spill moves what is in memory into a file in the folder, and what comes later goes there, too. private: encrypted.
func (c *changes) spill(dir string, private bool) error {
	f, err := os.CreateTemp(dir, "freshet-spill-*")
	if err != nil {
		return spillError(err)
	}
	_ = os.Remove(f.Name()) // it lives as long as it is open
	var to io.Writer = f
	if private {
		key := make([]byte, 32)
		_, _ = rand.Read(key) // it ends the process where there is no randomness
		if c.block, err = aes.NewCipher(key); err != nil {
			return spillError(err)
		}
		to = cipher.StreamWriter{S: c.stream(), W: f}
	}
	c.file, c.out = f, bufio.NewWriterSize(to, 64<<10)
	for _, block := range c.blocks {
		if _, err := c.out.Write(block); err != nil {
			return spillError(err)
		}
	}
	c.blocks, c.held = nil, 0
	return nil
}

// stream encrypts the file, or decrypts it, from its beginning on. A key is for one file, so that it begins at zero.
func (c *changes) stream() cipher.Stream { return cipher.NewCTR(c.block, make([]byte, aes.BlockSize)) }

// drop gives up memory and file.
func (c *changes) drop() {
	c.blocks, c.held = nil, 0
	if c.file != nil {
		c.file.Close()
		c.file = nil
	}
}

// ahead returns what yields the messages for one who reads them before read's reader, which is asked for later.
func (c *changes) ahead() (*changesReader, error) {
	if c.file == nil {
		return &changesReader{blocks: slices.Clone(c.blocks)}, nil
	}
	return c.read()
}

// read returns what yields the messages from the first one on, once; nothing is added meanwhile.
func (c *changes) read() (*changesReader, error) {
	if c.file == nil {
		return &changesReader{blocks: c.blocks}, nil
	}
	if err := c.out.Flush(); err != nil {
		return nil, spillError(err)
	}
	var whole io.Reader = io.NewSectionReader(c.file, 0, math.MaxInt64) // several may read
	if c.block != nil {
		whole = cipher.StreamReader{S: c.stream(), R: whole}
	}
	return &changesReader{in: bufio.NewReaderSize(whole, 256<<10)}, nil
}

// changesReader yields messages.
type changesReader struct {
	blocks [][]byte      // still to be read: those that were are given up
	block  []byte        // what is left of the one before
	in     *bufio.Reader // nil: all is in memory
	buffer []byte
}

// next returns a message, which lasts until the next call. io.EOF: there is none.
func (r *changesReader) next() ([]byte, error) {
	if r.in == nil {
		if len(r.block) == 0 {
			if len(r.blocks) == 0 {
				return nil, io.EOF
			}
			r.block, r.blocks[0] = r.blocks[0], nil
			r.blocks = r.blocks[1:]
		}
		n := binary.BigEndian.Uint32(r.block)
		payload := r.block[4 : 4+n]
		r.block = r.block[4+n:]
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
