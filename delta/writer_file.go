package delta

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/google/uuid"

	"github.com/freshet-io/freshet/delta/internal/parquet"
	"github.com/freshet-io/freshet/store"
)

// dataFile is an open file of one partition.
type dataFile struct {
	part     string // "a=1/b=x"; "" in a table without partitions
	values   map[string]*string
	sink     *sink
	pages    *parquet.Writer
	rows     int64 // that were appended, counted apart from pages
	buffered int64 // bytes that wait to be written
	held     int64 // bytes of memory
	number   int   // for the placer
}

// sink is the upload of one file. It begins with the first byte, so that a small file is one put.
type sink struct {
	ctx    context.Context // of the call of Writer that is under way
	st     store.Store
	key    string
	upload store.Upload
	size   int64
}

func (s *sink) Write(b []byte) (int, error) {
	if s.upload == nil {
		u, err := store.CreateAhead(s.ctx, s.st, s.key)
		if err != nil {
			return 0, err
		}
		s.upload = u
	}
	n, err := s.upload.Write(b)
	s.size += int64(n)
	return n, err
}

// held is what the upload has gathered in memory.
func (s *sink) held() int64 {
	if u, ok := s.upload.(interface{ Held() int64 }); ok {
		return u.Held()
	}
	return 0
}

func (s *sink) abort() error {
	if s.upload == nil {
		return nil
	}
	return s.upload.Abort()
}

// append adds the rows of one partition to its open file, and keeps files and memory within their bounds.
func (w *Writer) append(ctx context.Context, p part, data []arrow.Array) error {
	f, err := w.file(ctx, p.values)
	if err != nil {
		return err
	}
	f.sink.ctx = ctx
	for rows := p.rows; len(rows) > 0; {
		n := min(len(rows), int(w.opts.RowGroupRows-f.pages.GroupRows()))
		if err := f.pages.Append(data, rows[:n]); err != nil {
			return fmt.Errorf("%s: %w", f.sink.key, err)
		}
		w.placer.put(w.first, rows[:n], f.number, f.rows)
		f.rows += int64(n)
		f.measure()
		rows = rows[n:]
		if f.pages.GroupRows() >= w.opts.RowGroupRows || f.buffered >= w.opts.RowGroupBytes {
			if err := f.flush(ctx); err != nil {
				return err
			}
		}
	}
	if f.pages.Estimate() >= w.opts.TargetFileBytes {
		return w.closeFile(ctx, f)
	}
	return w.shrink(ctx)
}

// shrink brings memory back within its bounds. Where most of the fullest file's is what its upload has gathered, only
// the end of the file lets it go.
func (w *Writer) shrink(ctx context.Context) error {
	for w.held() > w.opts.MemoryBytes {
		f := w.largest((*dataFile).memory)
		if f.sink.held() > f.held {
			if err := w.closeFile(ctx, f); err != nil {
				return err
			}
			continue
		}
		if err := f.flush(ctx); err != nil {
			return err
		}
		f.pages.Shrink()
		f.measure()
	}
	return nil
}

func (w *Writer) held() int64 {
	var n int64
	for _, f := range w.open {
		n += f.memory()
	}
	return n
}

func (f *dataFile) memory() int64 { return f.held + f.sink.held() }

func (f *dataFile) measure() { f.buffered, f.held = f.pages.Buffered(), f.pages.Held() }

func (f *dataFile) size() int64 { return f.pages.Estimate() }

func (f *dataFile) flush(ctx context.Context) error {
	f.sink.ctx = ctx
	if err := f.pages.FlushRowGroup(); err != nil {
		return fmt.Errorf("%s: %w", f.sink.key, err)
	}
	f.measure()
	return nil
}

// largest returns the open file with the most of something; there is at least one open file.
func (w *Writer) largest(of func(*dataFile) int64) *dataFile {
	var best *dataFile
	var most int64 = -1
	for _, folder := range sortedKeys(w.open) {
		if n := of(w.open[folder]); n > most {
			best, most = w.open[folder], n
		}
	}
	return best
}

// file returns the open file of the partition. When there are too many, the largest is closed: whatever is closed
// early then has at least its share of all that is open, and stragglers of old partitions do not make crumbs.
func (w *Writer) file(ctx context.Context, values []*string) (*dataFile, error) {
	l := w.layout
	part := ""
	if len(values) > 0 {
		part = partitionFolder(l.names, values)
	}
	if f, ok := w.open[part]; ok {
		return f, nil
	}
	if len(w.open) >= w.opts.MaxOpenFiles {
		if err := w.closeFile(ctx, w.largest((*dataFile).size)); err != nil {
			return nil, err
		}
	}
	f := &dataFile{part: part, values: make(map[string]*string), sink: &sink{st: w.st, key: w.newKey(part)}}
	for i, v := range values {
		f.values[l.names[i]] = v
	}
	f.pages = w.kit.open(f.sink)
	if w.placer != nil {
		f.number = w.placer.begin()
	}
	w.open[part] = f
	return f, nil
}

// newKey returns a name that no file ever had.
func (w *Writer) newKey(part string) string {
	l := w.layout
	kind, suffix := "part", "."+l.codec.String()+".parquet"
	switch l.codec {
	case parquet.Gzip:
		suffix = ".gz.parquet"
	case parquet.Uncompressed:
		suffix = ".parquet"
	}
	if w.opts.ChangeData {
		kind = "cdc"
	}
	if l.prefix > 0 {
		part = randomName(l.prefix)
	}
	name := fmt.Sprintf("%s-%05d-%s.c000%s", kind, w.files, uuid.NewString(), suffix)
	w.files++
	return path.Join(l.folder, part, name)
}

// randomName returns n letters and digits.
func randomName(n int) string {
	const alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[rand.IntN(len(alphabet))]
	}
	return string(b)
}

// closeFile finishes the file, verifies it and notes its Add.
func (w *Writer) closeFile(ctx context.Context, f *dataFile) error {
	f.sink.ctx = ctx
	if err := f.pages.Close(); err != nil {
		return fmt.Errorf("%s: %w", f.sink.key, err)
	}
	if err := f.verify(len(w.layout.columns)); err != nil {
		return fmt.Errorf("%s: %w", f.sink.key, err)
	}
	if err := f.sink.upload.Close(); err != nil {
		return fmt.Errorf("%s: %w", f.sink.key, err)
	}
	delete(w.open, f.part)
	w.keys = append(w.keys, f.sink.key)
	w.closed += f.sink.size
	w.note(f)
	w.kit.keep(f.pages)
	return nil
}

// note notes what the log will say of a finished file.
func (w *Writer) note(f *dataFile) {
	encoded := encodePath(f.sink.key)
	if w.opts.ChangeData {
		w.changes = append(w.changes, CDC{Path: encoded, PartitionValues: f.values, Size: f.sink.size})
		return
	}
	if w.placer != nil {
		w.placer.adds[f.number] = len(w.adds)
	}
	w.adds = append(w.adds, Add{
		Path:             encoded,
		PartitionValues:  f.values,
		Size:             f.sink.size,
		ModificationTime: time.Now().UnixMilli(),
		DataChange:       true,
		Stats:            w.layout.stats(f.pages),
	})
}

// verify has another implementation parse the footer and counts the rows, before the file becomes visible.
func (f *dataFile) verify(columns int) error {
	m, err := metadata.NewFileMetaData(f.pages.Footer(), nil)
	if err != nil {
		return fmt.Errorf("the footer does not parse: %w", err)
	}
	var rows int64
	for i := range m.NumRowGroups() {
		rows += m.RowGroup(i).NumRows()
	}
	if m.NumRows != f.rows || rows != f.rows {
		return fmt.Errorf("the footer tells %d rows, its row groups %d; %d were written", m.NumRows, rows, f.rows)
	}
	if n := m.Schema.Root().NumFields(); n != columns {
		return fmt.Errorf("the footer has %d columns, wanted %d", n, columns)
	}
	if f.sink.size != f.pages.Written() {
		return fmt.Errorf("%d bytes were uploaded of %d", f.sink.size, f.pages.Written())
	}
	return nil
}
