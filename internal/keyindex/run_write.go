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
	out    *os.File
	foot   footer
	salt   uint32
	filter filter

	dir, body section
	bucket    uint64 // the one that is being filled
	start     int    // where it starts in the buffer of the body
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

// newRunWriter starts a run of at most so many entries, whose positions p holds.
func newRunWriter(dir string, index, id, most uint64, p place, seq int) (*runWriter, error) {
	if most > maxEntries {
		return nil, fmt.Errorf("%d entries are more than a run can hold, which is %d", most, uint64(maxEntries))
	}
	f, err := os.Create(filepath.Join(dir, runName(id)))
	if err != nil {
		return nil, err
	}
	w := &runWriter{layout: newLayout(most, p, seq), out: f, salt: salt(index, id), filter: make(filter, filterSize(most))}
	w.foot = footer{index: index, run: id, filter: uint64(len(w.filter)), bits: byte(w.bits), seq: byte(seq),
		file: byte(p.file), row: byte(p.row)}
	w.body.at = int64(w.dirSize())
	w.body.buf = make([]byte, bucketHead, sectionBuffer*5/4)
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
	w.body.buf = w.append(w.body.buf, fp, at, seq)
	if len(w.filter) > 0 {
		w.filter.add(fp.Hi)
	}
	return nil
}

// closeBuckets ends the bucket under way and all that are empty up to next, which it starts.
func (w *runWriter) closeBuckets(next uint64) error {
	for ; w.bucket < next; w.bucket++ {
		b := w.body.buf[w.start:]
		binary.LittleEndian.PutUint32(b, bucketSum(w.salt, w.bucket, b[bucketHead:]))
		w.dir.buf = binary.LittleEndian.AppendUint32(w.dir.buf, uint32(w.foot.entries))
		if len(w.dir.buf) >= sectionBuffer {
			if err := w.dir.flush(w.out); err != nil {
				return err
			}
		}
		if len(w.body.buf) >= sectionBuffer {
			if err := w.body.flush(w.out); err != nil {
				return err
			}
		}
		w.start = len(w.body.buf)
		w.body.buf = append(w.body.buf, make([]byte, bucketHead)...)
	}
	return nil
}

// finish makes the run durable but for its name.
func (w *runWriter) finish() (runInfo, error) {
	if err := w.closeBuckets(w.buckets()); err != nil {
		return runInfo{}, errors.Join(err, w.discard())
	}
	w.foot.filterSum = crc32.Checksum(w.filter, castagnoli)
	w.body.buf = append(append(w.body.buf[:w.start], w.filter...), w.foot.encode()...)
	err := errors.Join(w.dir.flush(w.out), w.body.flush(w.out), w.out.Sync())
	if err != nil {
		return runInfo{}, errors.Join(err, w.discard())
	}
	info := runInfo{id: w.foot.run, entries: w.foot.entries, size: uint64(w.body.at), footer: w.foot.sum()}
	return info, w.out.Close()
}

// discard removes what was written.
func (w *runWriter) discard() error {
	return errors.Join(w.out.Close(), os.Remove(w.out.Name()))
}
