package keyindex

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// run is an immutable set of entries, one a key, mapped from its file. It is safe for concurrent use.
type run struct {
	runInfo
	layout
	path string
	salt uint32
	data []byte // the mapped file
	dir  []byte // of data
	body []byte // of data
	uses atomic.Int32

	filterSize uint64 // 0: there is none
	filterSum  uint32
	filterOnce sync.Once
	filterMem  filter // see filter
	filterErr  error
}

const runSuffix = ".run"

func runName(id uint64) string { return fmt.Sprintf("%08d"+runSuffix, id) }

// openRun maps the run that the manifest names. Errors: ErrCorrupt.
func openRun(dir string, index uint64, info runInfo) (*run, error) {
	r := &run{runInfo: info, path: filepath.Join(dir, runName(info.id)), salt: salt(index, info.id)}
	f, err := os.Open(r.path)
	if err != nil {
		return nil, r.corrupt("%v", err)
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		return nil, r.corrupt("%v", err)
	}
	if got := uint64(stat.Size()); got != info.size {
		return nil, r.corrupt("it has %d bytes, wanted %d", got, info.size)
	}
	end := make([]byte, min(footerSize, info.size))
	if _, err := f.ReadAt(end, stat.Size()-int64(len(end))); err != nil {
		return nil, r.corrupt("%v", err)
	}
	foot, l, err := decodeFooter(end)
	if err != nil {
		return nil, r.corrupt("%v", err)
	}
	if foot.index != index || foot.run != info.id || foot.sum() != info.footer || foot.entries != info.entries ||
		l.fileSize(foot) != info.size {
		return nil, r.corrupt("it is another run than the one that the manifest names")
	}
	r.layout, r.filterSize, r.filterSum = l, foot.filter, foot.filterSum
	if r.data, err = mapFile(f, int(info.size)); err != nil {
		return nil, errors.Join(fmt.Errorf("map %s: %w", r.path, err), r.unmap())
	}
	r.dir, r.body = r.data[:l.dirSize()], r.data[l.dirSize():l.dataSize(info.entries)]
	return r, nil
}

// filter is the run's filter, nil when it has none. It is read when it is asked for first, so that an index opens at once, and
// into memory, where it stays: what was checked once is not read from the disk again. It lies beside the heap, so that the
// collector does not let the heap grow by as much again. It reads the mapped file: see guarded. Errors: ErrCorrupt.
func (r *run) filter() (filter, error) {
	if r.filterSize == 0 {
		return nil, nil
	}
	r.filterOnce.Do(func() {
		r.filterErr = r.corrupt("its filter could not be read") // unless it can be, without a fault
		r.filterErr = r.readFilter()
	})
	return r.filterMem, r.filterErr
}

func (r *run) readFilter() error {
	mem, err := mapMemory(int(r.filterSize))
	if err != nil {
		return fmt.Errorf("read the filter of %s: %w", r.path, err)
	}
	r.filterMem = mem // before it is filled, which may fault
	end := r.size - footerSize
	copy(mem, r.data[end-r.filterSize:end])
	forgetMapped(r.data, int(end-r.filterSize), int(end))
	if got := crc32.Checksum(mem, castagnoli); got != r.filterSum {
		return r.corrupt("its filter has the checksum %08x, wanted %08x", got, r.filterSum)
	}
	return nil
}

func (r *run) corrupt(format string, args ...any) error {
	return fmt.Errorf("%s: %w: %s", r.path, ErrCorrupt, fmt.Sprintf(format, args...))
}

// unmap gives the memory back; nobody may look into the run any more.
func (r *run) unmap() error { return errors.Join(unmap(r.data), unmap(r.filterMem)) }

// span is where a bucket lies, in bytes from the first one.
type span struct{ start, end uint64 }

// span looks a bucket up in the directory. Whether it tells the truth only the checksum shows.
func (r *run) span(bucket uint64) span {
	s := span{bucket * bucketHead, (bucket + 1) * bucketHead}
	d := r.dir[bucket*dirEntry:]
	s.end += uint64(binary.LittleEndian.Uint32(d)) * uint64(r.width)
	if bucket > 0 {
		s.start += uint64(binary.LittleEndian.Uint32(r.dir[(bucket-1)*dirEntry:])) * uint64(r.width)
	}
	return s
}

// inside tells whether the span can be one of a bucket.
func (r *run) inside(s span) bool {
	return s.start+bucketHead <= s.end && s.end <= uint64(len(r.body))
}

// check returns the records of a bucket, once they have proved to be what was written. Errors: ErrCorrupt.
func (r *run) check(bucket uint64, s span) ([]byte, error) {
	if !r.inside(s) {
		return nil, r.corrupt("bucket %d lies at %d to %d of %d bytes", bucket, s.start, s.end, len(r.body))
	}
	b := r.body[s.start:s.end]
	records, want := b[bucketHead:], binary.LittleEndian.Uint32(b)
	if got := bucketSum(r.salt, bucket, records); got != want {
		return nil, r.corrupt("bucket %d has the checksum %08x, wanted %08x", bucket, got, want)
	}
	return records, nil
}

// find returns the record of a fingerprint in its bucket; nil when it is not there. Fingerprints are spread
// evenly, so the search starts where it would be if they were spread exactly so.
func (r *run) find(records []byte, fp Fingerprint) []byte {
	n := len(records) / r.width
	if n == 0 {
		return nil
	}
	want := r.stored(fp.Hi)
	i := int((fp.Hi << r.bits >> 32) * uint64(n) >> 32)
	for i > 0 && r.recordHi(records[i*r.width:]) >= want {
		i--
	}
	for ; i < n; i++ {
		rec := records[i*r.width : (i+1)*r.width]
		switch hi := r.recordHi(rec); {
		case hi > want:
			return nil
		case hi == want && r.recordLo(rec) == fp.Lo:
			return rec
		}
	}
	return nil
}
