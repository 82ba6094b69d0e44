package keyindex

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
)

// runWriter writes a run in one pass, from entries by ascending fingerprint, one a key. It is used by one
// goroutine.
type runWriter struct {
	layout
	file   *os.File
	foot   footer
	salt   uint32
	filter filter

	dir, records section
	bucket       uint64 // the one that is being filled
	start        int    // where it starts in the buffer of records
}

// section is a part of the file that is written in order.
type section struct {
	at  int64
	buf []byte
}

const sectionBuffer = 256 << 10

func (s *section) flush(f *os.File) error {
	_, err := f.WriteAt(s.buf, s.at)
	s.at += int64(len(s.buf))
	s.buf = s.buf[:0]
	return err
}

// newRunWriter starts a run of at most so many entries.
func newRunWriter(dir string, index, id, most uint64, seq int) (*runWriter, error) {
	if most > maxEntries {
		return nil, fmt.Errorf("%d entries are more than a run can hold, which is %d", most, uint64(maxEntries))
	}
	f, err := os.Create(filepath.Join(dir, runName(id)))
	if err != nil {
		return nil, err
	}
	w := &runWriter{layout: newLayout(most, seq), file: f, salt: salt(index, id), filter: newFilter(most)}
	w.foot = footer{index: index, run: id, words: uint64(len(w.filter)), bits: byte(w.bits), seq: byte(seq)}
	w.records.at = int64(w.dirSize())
	return w, nil
}

// add takes the next entry.
func (w *runWriter) add(fp Fingerprint, at Position, seq []byte) error {
	if b := w.bucketOf(fp.Hi); b != w.bucket {
		if err := w.closeBuckets(b); err != nil {
			return err
		}
	}
	w.foot.entries++
	w.records.buf = w.append(w.records.buf, fp, at, seq)
	if w.filter != nil {
		w.filter.add(fp.Hi)
	}
	return nil
}

// closeBuckets ends the bucket under way and all that are empty up to next.
func (w *runWriter) closeBuckets(next uint64) error {
	for ; w.bucket < next; w.bucket++ {
		sum := bucketSum(w.salt, w.bucket, w.records.buf[w.start:])
		w.start = len(w.records.buf)
		w.dir.buf = binary.LittleEndian.AppendUint32(w.dir.buf, uint32(w.foot.entries))
		w.dir.buf = binary.LittleEndian.AppendUint32(w.dir.buf, sum)
		if len(w.dir.buf) >= sectionBuffer {
			if err := w.dir.flush(w.file); err != nil {
				return err
			}
		}
	}
	if len(w.records.buf) < sectionBuffer {
		return nil
	}
	w.start = 0
	return w.records.flush(w.file)
}

// finish makes the run durable but for its name.
func (w *runWriter) finish() (runInfo, error) {
	if err := w.closeBuckets(w.buckets()); err != nil {
		return runInfo{}, errors.Join(err, w.discard())
	}
	bloom := w.filter.encode(nil)
	w.foot.filterSum = crc32.Checksum(bloom, castagnoli)
	w.records.buf = append(append(w.records.buf, bloom...), w.foot.encode()...)
	err := errors.Join(w.dir.flush(w.file), w.records.flush(w.file), w.file.Sync())
	if err != nil {
		return runInfo{}, errors.Join(err, w.discard())
	}
	info := runInfo{id: w.foot.run, entries: w.foot.entries, size: uint64(w.records.at), footer: w.foot.sum()}
	return info, w.file.Close()
}

// discard removes what was written.
func (w *runWriter) discard() error {
	return errors.Join(w.file.Close(), os.Remove(w.file.Name()))
}
