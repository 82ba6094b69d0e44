package canonical

import (
	"bufio"
	"bytes"
	"cmp"
	"container/heap"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
)

// Digest computes the digest of a table from its lines, which come in any order. It is used by one goroutine.
type Digest struct {
	// Dir is where lines are put aside when they are many; default: the system's folder for temporary files.
	Dir string
	// MemoryBytes is the size from which the lines in memory are sorted and put aside; default 64 MiB.
	MemoryBytes int

	data   []byte
	bounds []int // ends of the lines in data
	file   *os.File
	runs   []int64 // ends of the runs in file
	rows   int64
}

// Add takes a line without its line feed; the line is copied.
func (d *Digest) Add(line []byte) error {
	d.data = append(d.data, line...)
	d.bounds = append(d.bounds, len(d.data))
	d.rows++
	if len(d.data) >= cmp.Or(d.MemoryBytes, 64<<20) {
		return d.spill()
	}
	return nil
}

// lines returns the lines in memory in order.
func (d *Digest) lines() [][]byte {
	lines := make([][]byte, len(d.bounds))
	from := 0
	for i, to := range d.bounds {
		lines[i] = d.data[from:to]
		from = to
	}
	slices.SortFunc(lines, bytes.Compare)
	return lines
}

// spill writes the lines in memory as one sorted run. No line holds a line feed.
func (d *Digest) spill() error {
	if d.file == nil {
		f, err := os.CreateTemp(d.Dir, "freshet-digest-*")
		if err != nil {
			return fmt.Errorf("sort rows: %w", err)
		}
		d.file = f
	}
	w := bufio.NewWriterSize(d.file, 1<<20)
	size := int64(0)
	for _, line := range d.lines() {
		size += int64(len(line)) + 1
		_, _ = w.Write(line) // the error stays until Flush
		_ = w.WriteByte('\n')
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("sort rows: %w", err)
	}
	if n := len(d.runs); n > 0 {
		size += d.runs[n-1]
	}
	d.runs = append(d.runs, size)
	d.data, d.bounds = d.data[:0], d.bounds[:0]
	return nil
}

// Sum returns the digest in hex and the number of lines, and ends the Digest.
func (d *Digest) Sum() (sum string, rows int64, err error) {
	defer func() { err = errors.Join(err, d.Close()) }()
	h := sha256.New()
	if d.file == nil {
		for _, line := range d.lines() {
			h.Write(line)
			h.Write([]byte{'\n'})
		}
		return hex.EncodeToString(h.Sum(nil)), d.rows, nil
	}
	if err := d.spill(); err != nil {
		return "", 0, err
	}
	if err := d.merge(h); err != nil {
		return "", 0, fmt.Errorf("sort rows: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), d.rows, nil
}

// Close removes what was put aside. Sum does so, too.
func (d *Digest) Close() error {
	if d.file == nil {
		return nil
	}
	f := d.file
	d.file = nil
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// run is a sorted run that is being merged.
type run struct {
	r    *bufio.Reader
	line []byte // with its line feed
}

func (r *run) next() (err error) {
	r.line, err = r.r.ReadBytes('\n')
	return err
}

type runs []*run

func (r runs) Len() int           { return len(r) }
func (r runs) Less(i, j int) bool { return bytes.Compare(bare(r[i].line), bare(r[j].line)) < 0 }
func (r runs) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *runs) Push(x any)        { *r = append(*r, x.(*run)) }
func (r *runs) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

func bare(line []byte) []byte { return line[:len(line)-1] }

func (d *Digest) merge(h hash.Hash) error {
	var open runs
	from := int64(0)
	for _, to := range d.runs {
		r := &run{r: bufio.NewReaderSize(io.NewSectionReader(d.file, from, to-from), 256<<10)}
		from = to
		if err := r.next(); err == nil {
			open = append(open, r)
		} else if !errors.Is(err, io.EOF) {
			return err
		}
	}
	heap.Init(&open)
	for len(open) > 0 {
		h.Write(open[0].line)
		switch err := open[0].next(); {
		case err == nil:
			heap.Fix(&open, 0)
		case errors.Is(err, io.EOF):
			heap.Pop(&open)
		default:
			return err
		}
	}
	return nil
}
