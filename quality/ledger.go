package quality

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"os"
	"slices"
)

const (
	// ledgerParts is into how many parts the keys are divided, by their hashes: one is in memory at once.
	ledgerParts = 64
	// partBytes is what is kept of a part in memory until it is written out.
	partBytes = 64 << 10
)

// ledger notes of each row of both sides its key and a hash of its values. Sides are the same where the keys of a part have the
// same hashes:
//
//	hash of the key (8 bytes) | hash of the row (8) | length of the key (varint) | key
//
// Parts that are large are in files whose names are taken away at once.
type ledger struct {
	seed          maphash.Seed
	dir           string
	share         float64 // of the keys that is compared, by their hashes
	source, table ledgerSide
}

type ledgerSide [ledgerParts]ledgerPart

type ledgerPart struct {
	buffer []byte
	file   *os.File // nil: all is in buffer
}

func newLedger(dir string, share float64) *ledger {
	return &ledger{seed: maphash.MakeSeed(), dir: dir, share: share}
}

// chosen reports whether keys of this hash are compared.
func (l *ledger) chosen(hash uint64) bool {
	return l.share >= 1 || float64(hash) < l.share*math.MaxUint64
}

// add notes a row.
func (l *ledger) add(s *ledgerSide, key string, row uint64) error {
	hash := maphash.String(l.seed, key)
	p := &s[hash%ledgerParts]
	p.buffer = binary.LittleEndian.AppendUint64(p.buffer, hash)
	p.buffer = binary.LittleEndian.AppendUint64(p.buffer, row)
	p.buffer = binary.AppendUvarint(p.buffer, uint64(len(key)))
	p.buffer = append(p.buffer, key...)
	if len(p.buffer) < partBytes {
		return nil
	}
	return p.spill(l.dir)
}

func (p *ledgerPart) spill(dir string) error {
	if p.file == nil {
		f, err := os.CreateTemp(dir, "freshet-verify-*")
		if err != nil {
			return fmt.Errorf("make a temporary file: %w", err)
		}
		p.file = f
		if err := os.Remove(f.Name()); err != nil {
			return fmt.Errorf("take the name of a temporary file away: %w", err)
		}
	}
	_, err := p.file.Write(p.buffer)
	p.buffer = p.buffer[:0]
	return err
}

// entry is a row in a ledger.
type entry struct {
	hash, row uint64
	key       string
}

func compareEntries(a, b entry) int {
	return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.row, b.row))
}

// entries are those of the part, by their hashes.
func (p *ledgerPart) entries() ([]entry, error) {
	all := p.buffer
	if p.file != nil {
		if _, err := p.file.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		written, err := io.ReadAll(p.file)
		if err != nil {
			return nil, fmt.Errorf("read a temporary file: %w", err)
		}
		all = append(written, all...)
	}
	var entries []entry
	for len(all) > 0 {
		e := entry{hash: binary.LittleEndian.Uint64(all), row: binary.LittleEndian.Uint64(all[8:])}
		length, n := binary.Uvarint(all[16:])
		all = all[16+n:]
		e.key, all = string(all[:length]), all[length:]
		entries = append(entries, e)
	}
	slices.SortFunc(entries, compareEntries)
	return entries, nil
}

// differing yields the keys of a part whose rows are not the same on both sides, each once, and forgets the part.
func (l *ledger) differing(part int, yield func(key string) error) error {
	source, err := l.source[part].entries()
	if err != nil {
		return err
	}
	table, err := l.table[part].entries()
	if err != nil {
		return err
	}
	if err := errors.Join(l.source[part].close(), l.table[part].close()); err != nil {
		return err
	}
	for len(source)+len(table) > 0 {
		least := source
		if len(source) == 0 || len(table) > 0 && table[0].hash < source[0].hash {
			least = table
		}
		var a, b []entry
		hash := least[0].hash
		a, source = ofHash(source, hash)
		b, table = ofHash(table, hash)
		if !l.chosen(hash) || slices.EqualFunc(a, b, func(x, y entry) bool { return x.row == y.row }) {
			continue
		}
		told := map[string]bool{}
		for _, e := range slices.Concat(a, b) {
			if told[e.key] {
				continue
			}
			told[e.key] = true
			if err := yield(e.key); err != nil {
				return err
			}
		}
	}
	return nil
}

// ofHash are the first entries, as far as their keys have this hash, and the others.
func ofHash(all []entry, hash uint64) (these, rest []entry) {
	n := 0
	for n < len(all) && all[n].hash == hash {
		n++
	}
	return all[:n], all[n:]
}

func (p *ledgerPart) close() (err error) {
	if p.file != nil {
		err = p.file.Close()
	}
	*p = ledgerPart{}
	return err
}

func (l *ledger) close() {
	for part := range ledgerParts {
		_ = l.source[part].close()
		_ = l.table[part].close()
	}
}
