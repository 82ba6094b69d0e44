package keyindex

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
)

// manifest is what the index is made of. The file holds
//
//	magic 8 | the fields in order, numbers as uvarints, texts with their length | CRC-32C of all before, 4
type manifest struct {
	identity Identity
	index    uint64 // random, so that a run of another index is told from one of this
	secret   secret
	version  int64
	note     string // the owner's
	nextFile FileID
	nextRun  uint64
	files    []file    // the live ones, by ascending id
	runs     []runInfo // from the newest to the oldest
}

type file struct {
	id   FileID
	path string
}

// runInfo is what the manifest knows of a run.
type runInfo struct {
	id      uint64
	entries uint64
	size    uint64 // bytes of the file
	footer  uint32 // its checksum
}

const (
	manifestName  = "MANIFEST"
	manifestMagic = "FRKIDX02"
	tmpSuffix     = ".tmp"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (m *manifest) encode() []byte {
	b := []byte(manifestMagic)
	id := &m.identity
	b = appendText(b, id.Table)
	b = binary.AppendUvarint(b, uint64(len(id.Columns)))
	for _, c := range id.Columns {
		b = appendText(appendText(b, c.Name), c.Type)
	}
	b = binary.AppendUvarint(b, uint64(id.SequenceBytes))
	nulls := byte(0)
	if id.NullKeys {
		nulls = 1
	}
	b = append(b, nulls)
	for _, v := range []uint64{m.index, m.secret.k0, m.secret.k1} {
		b = binary.AppendUvarint(b, v)
	}
	for _, v := range []uint64{uint64(m.version + 1), uint64(m.nextFile), m.nextRun} {
		b = binary.AppendUvarint(b, v)
	}
	b = appendText(b, m.note)
	b = binary.AppendUvarint(b, uint64(len(m.files)))
	for _, f := range m.files {
		b = appendText(binary.AppendUvarint(b, uint64(f.id)), f.path)
	}
	b = binary.AppendUvarint(b, uint64(len(m.runs)))
	for _, r := range m.runs {
		for _, v := range []uint64{r.id, r.entries, r.size, uint64(r.footer)} {
			b = binary.AppendUvarint(b, v)
		}
	}
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decodeManifest reads what encode wrote. The error says what is wrong with the bytes.
func decodeManifest(b []byte) (*manifest, error) {
	switch {
	case len(b) < len(manifestMagic)+4:
		return nil, fmt.Errorf("it has %d bytes", len(b))
	case string(b[:len(manifestMagic)]) != manifestMagic:
		return nil, fmt.Errorf("it starts with %q, wanted %q", b[:len(manifestMagic)], manifestMagic)
	}
	body, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if got := crc32.Checksum(body, castagnoli); got != sum {
		return nil, fmt.Errorf("its checksum is %08x, wanted %08x", got, sum)
	}
	d := &decoder{rest: body[len(manifestMagic):]}
	m := &manifest{identity: d.identity(), index: d.number(math.MaxUint64)}
	m.secret = secret{d.number(math.MaxUint64), d.number(math.MaxUint64)}
	m.version = int64(d.number(math.MaxInt64)) - 1
	m.nextFile = FileID(d.number(math.MaxUint32))
	m.nextRun = d.number(math.MaxUint64)
	m.note = d.text()
	m.files = d.files(m.nextFile)
	for range d.count(4) {
		m.runs = append(m.runs, runInfo{d.number(math.MaxUint64), d.number(math.MaxUint32), d.number(math.MaxInt64),
			uint32(d.number(math.MaxUint32))})
	}
	if d.err == nil && len(d.rest) > 0 {
		d.err = fmt.Errorf("%d bytes are left over", len(d.rest))
	}
	return m, d.err
}

// decoder takes fields off the front of rest until one fails; from then on all are zero.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err, d.rest = err, nil
	}
}

// number is one of at most limit.
func (d *decoder) number(limit uint64) uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || v > limit {
		d.fail(fmt.Errorf("found no number of at most %d", limit))
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// count is a number of things of at least size bytes each that are yet to come.
func (d *decoder) count(size int) uint64 {
	n := d.number(math.MaxUint64)
	if most := uint64(len(d.rest) / size); n > most {
		d.fail(fmt.Errorf("found %d things where there is room for %d", n, most))
		return 0
	}
	return n
}

func (d *decoder) text() string {
	n := d.count(1)
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}

func (d *decoder) identity() Identity {
	id := Identity{Table: d.text()}
	for range d.count(2) {
		id.Columns = append(id.Columns, Column{d.text(), d.text()})
	}
	id.SequenceBytes = int(d.number(MaxSequenceBytes))
	id.NullKeys = d.number(1) == 1
	return id
}

func (d *decoder) files(next FileID) []file {
	var files []file
	last := FileID(0)
	for range d.count(2) {
		f := file{FileID(d.number(math.MaxUint32)), d.text()}
		if d.err == nil && (f.id <= last || f.id >= next) {
			d.fail(fmt.Errorf("file %d stands between %d and %d", f.id, last, next))
		}
		last = f.id
		files = append(files, f)
	}
	return files
}

// readManifest reads the manifest of a folder. Errors: ErrNone, ErrCorrupt.
func readManifest(dir string) (*manifest, error) {
	path := filepath.Join(dir, manifestName)
	b, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%s: %w", path, ErrNone)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	m, err := decodeManifest(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %v", path, ErrCorrupt, err)
	}
	return m, nil
}

// writeManifest puts the manifest in the place of the one before; what it names must be durable.
func writeManifest(dir string, m *manifest) error {
	path := filepath.Join(dir, manifestName)
	f, err := os.Create(path + tmpSuffix)
	if err != nil {
		return err
	}
	_, err = f.Write(m.encode())
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path+tmpSuffix))
	}
	if err := os.Rename(path+tmpSuffix, path); err != nil {
		return err
	}
	return syncDir(dir)
}

// syncDir makes the names in the folder durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
