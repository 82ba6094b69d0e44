package delta

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/memory"
	arrowparquet "github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/freshet-io/freshet/delta/internal/parquet"
	"github.com/freshet-io/freshet/store"
)

const (
	// wholeFileBytes is the size up to which a checkpoint file is fetched in one request.
	wholeFileBytes = 2 << 20
	// spanBytes bounds what is fetched of a row group at once; columns that need more are streamed.
	spanBytes = 32 << 20
	// spanGap is the number of unwanted bytes that are fetched to save a request.
	spanGap = 512 << 10
	// footerBytes is fetched from the end of a file in the hope that it holds the whole footer.
	footerBytes = 128 << 10
	// maxFooterBytes bounds the footer that is believed.
	maxFooterBytes = 64 << 20
	// viewBytes is fetched at least of a column that is streamed.
	viewBytes = 1 << 20
	// maxPageBytes bounds the pages that are believed.
	maxPageBytes = 256 << 20
)

// remoteFile is an object that is read in few requests: the footer first, then one span a row group.
type remoteFile struct {
	ctx  context.Context // of the read that owns this file; it ends with it
	st   store.Store
	key  string
	size int64
	meta int64 // where the footer begins, once it is held
	pos  int64
	held []span
	// spares take what was held of a row group once another one is, or the file is closed; nil where somebody may still
	// look at it.
	spares *spares
}

// span is a part of a file.
type span struct {
	from, to int64
	data     []byte
}

// newRemoteFile fetches the end of an object of a known size, or all of it when it is small.
func newRemoteFile(ctx context.Context, st store.Store, key string, size int64, s *spares) (*remoteFile, error) {
	f := &remoteFile{ctx: ctx, st: st, key: key, size: size, spares: s}
	if size < 12 {
		return nil, corrupt("%s has %d bytes, too few for a Parquet file", key, size)
	}
	n := min(size, footerBytes)
	if size <= wholeFileBytes {
		n = size
	}
	return f, f.fetch(size-n, size)
}

// fetch holds a part of the file in memory.
func (f *remoteFile) fetch(from, to int64) error {
	buffer := f.spares.take(int(to - from))
	if buffer == nil && store.Near(f.st) { // which reads into it, without clearing it before
		buffer = parquet.Uncleared(int(to - from))
	}
	data, err := store.ReadRangeInto(f.ctx, f.st, f.key, from, to-from, buffer)
	if errors.Is(err, io.EOF) || err == nil && int64(len(data)) != to-from {
		return corrupt("%s ends before byte %d, although it was listed with %d bytes", f.key, to, f.size)
	}
	if err != nil {
		return err
	}
	f.held = append(f.held, span{from, to, data})
	return nil
}

// ReadAt serves from what is held and else from the store.
func (f *remoteFile) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= f.size {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), f.size-off)]
	for _, s := range f.held {
		if s.from <= off && off+int64(len(want)) <= s.to {
			n := copy(want, s.data[off-s.from:])
			return n, endOf(n, p)
		}
	}
	data, err := f.st.ReadRange(f.ctx, f.key, off, int64(len(want)))
	if err != nil {
		return 0, err
	}
	n := copy(want, data)
	return n, endOf(n, p)
}

func endOf(n int, p []byte) error {
	if n < len(p) {
		return io.EOF
	}
	return nil
}

// Read and Seek complete what the Parquet reader asks of a file.
func (f *remoteFile) Read(p []byte) (int, error) {
	n, err := f.ReadAt(p, f.pos)
	f.pos += int64(n)
	return n, err
}

// Seek sets where Read goes on.
func (f *remoteFile) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.pos
	case io.SeekEnd:
		offset += f.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the beginning")
	}
	f.pos = offset
	return offset, nil
}

// hold fetches the given parts, joined where little lies between, and lets go of what was held. Parts that
// are too large together are left to ReadAt.
func (f *remoteFile) hold(parts []span) error {
	f.held = slices.DeleteFunc(f.held, func(s span) bool {
		gone := s.to-s.from != f.size
		if gone {
			f.spares.give(s.data)
		}
		return gone
	})
	if len(f.held) > 0 {
		return nil
	}
	slices.SortFunc(parts, func(a, b span) int { return int(min(max(a.from-b.from, -1), 1)) })
	var joined []span
	total := int64(0)
	for _, p := range parts {
		if n := len(joined); n > 0 && p.from-joined[n-1].to <= spanGap {
			joined[n-1].to = max(joined[n-1].to, p.to)
			continue
		}
		joined = append(joined, p)
	}
	for _, p := range joined {
		total += p.to - p.from
	}
	if total > spanBytes {
		return nil
	}
	for _, p := range joined {
		if err := f.fetch(p.from, p.to); err != nil {
			return err
		}
	}
	return nil
}

// close lets go of what is held.
func (f *remoteFile) close() {
	for _, s := range f.held {
		f.spares.give(s.data)
	}
	f.held = nil
}

// view returns bytes of the file that are held, or fetches n of them, or more if more are likely to be wanted before end.
func (f *remoteFile) view(at int64, n int, end int64) ([]byte, error) {
	for _, s := range f.held {
		if s.from <= at && at+int64(n) <= s.to {
			return s.data[at-s.from:], nil
		}
	}
	want := min(max(int64(n), viewBytes), end-at)
	data, err := f.st.ReadRange(f.ctx, f.key, at, want)
	if errors.Is(err, io.EOF) || err == nil && int64(len(data)) < int64(n) {
		return nil, corrupt("%s ends before byte %d, although it was listed with %d bytes", f.key, at+int64(n), f.size)
	}
	return data, err
}

// parquetFile is an open Parquet file whose bytes are not trusted.
type parquetFile struct {
	*file.Reader
	src *remoteFile
}

// openParquet reads the footer. The spares, if there are any, have the memory of the file's bytes when it is closed, or another
// row group held. Errors: ErrCorrupt; *UnsupportedError for encryption, and for a logical type that is newer than this
// package, of which the library says no more than that it is invalid.
func openParquet(ctx context.Context, st store.Store, key string, size int64, s *spares) (*parquetFile, error) {
	src, err := newRemoteFile(ctx, st, key, size, s)
	if err != nil {
		return nil, err
	}
	if err := src.holdFooter(); err != nil {
		return nil, err
	}
	props := arrowparquet.NewReaderProperties(memory.NewGoAllocator())
	props.BufferedStreamEnabled = true
	props.BufferSize = 1 << 20
	props.MaxUncompressedPageSize = maxPageBytes
	var r *file.Reader
	err = guard(key, func() error {
		r, err = file.NewParquetReader(src, file.WithReadProps(props))
		return err
	})
	if errors.Is(err, ErrCorrupt) {
		return nil, cmp.Or(src.newerType(), err)
	}
	if err != nil {
		return nil, err
	}
	return &parquetFile{Reader: r, src: src}, nil
}

// newerType is the error of a footer that has a logical type which is not known here; nil when it has none.
func (f *remoteFile) newerType() error {
	meta := make([]byte, f.size-8-f.meta)
	if _, err := f.ReadAt(meta, f.meta); err != nil {
		return err
	}
	column, number, ok := parquet.NewerType(meta)
	if !ok {
		return nil
	}
	return &UnsupportedError{Feature: fmt.Sprintf("Parquet's logical type number %d, or its unit, which is newer than this "+
		"program, in the column %q of %s; have it written without", number, column, f.key)}
}

// holdFooter makes sure that the footer can be read without further requests, and that its size is sane.
func (f *remoteFile) holdFooter() error {
	last := f.held[0]
	tail := last.data[len(last.data)-8:]
	if bytes.Equal(tail[4:], []byte("PARE")) {
		return encrypted(f.key, "an encrypted footer")
	}
	if !bytes.Equal(tail[4:], []byte("PAR1")) {
		return corrupt("%s is no Parquet file: it ends with %q, wanted \"PAR1\"; it was cut short or overwritten",
			f.key, tail[4:])
	}
	n := int64(tail[0]) | int64(tail[1])<<8 | int64(tail[2])<<16 | int64(tail[3])<<24
	from := f.size - 8 - n
	f.meta = from
	if from < 4 || n > maxFooterBytes {
		return corrupt("%s has a footer of %d bytes in a file of %d", f.key, n, f.size)
	}
	if from < last.from {
		return f.fetch(from, f.size)
	}
	return nil
}

func encrypted(key, part string) error {
	return &UnsupportedError{Feature: "Parquet encryption (" + key + " has " + part +
		"; have it written anew without encryption)"}
}

// guard runs code that decodes bytes we do not trust: what goes wrong, a panic included, is ErrCorrupt,
// unless it was the store that failed.
func guard(key string, decode func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = corrupt("%s cannot be decoded: %v", key, p)
		}
	}()
	err = decode()
	if err == nil || errors.Is(err, ErrCorrupt) || fromStore(err) {
		return err
	}
	if errors.Is(err, parquet.ErrRoom) { // which fewer looks for
		return fmt.Errorf("%w: %s cannot be decoded: %w", ErrCorrupt, key, err)
	}
	return corrupt("%s cannot be decoded: %v", key, err)
}

// fromStore reports whether an error says something of the store or the caller, not of the bytes.
func fromStore(err error) bool {
	for _, is := range []error{
		store.ErrNotFound, store.ErrPermission, store.ErrUnavailable, store.ErrAmbiguous, store.ErrFull,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}
