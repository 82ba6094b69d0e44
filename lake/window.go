package lake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
	"github.com/freshet-io/freshet/internal/keyindex"
)

// window is how the index of a table that takes no row twice (Dedupe) differs from that of a keyed one. A key may have many
// rows there, but any two of them are at least within apart, or the older one is beyond the window: time is cut into buckets
// of that length, and an entry is of (key, bucket), with the time as its sequence. So what a row may be the same as
// lies in three buckets at most, and the index needs to have no more of the table than the window.
type window struct {
	within int64 // microseconds
	newest int64 // the greatest time of a row; math.MinInt64: there is none
	oldest int64 // as newest was when the index was made
}

func newWindow(within time.Duration) *window {
	return &window{within: within.Microseconds(), newest: math.MinInt64, oldest: math.MinInt64}
}

// bucket is that of a time.
func (w *window) bucket(t int64) int64 {
	if b := t / w.within; t%w.within >= 0 {
		return b
	}
	return t/w.within - 1
}

// buckets are those of times, or of what is so many buckets later.
func (w *window) buckets(times *array.Timestamp, later int64) arrow.Array {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.Reserve(times.Len())
	for i := range times.Len() {
		if times.IsNull(i) {
			b.UnsafeAppendBoolToBitmap(false)
			continue
		}
		b.UnsafeAppend(w.bucket(int64(times.Value(i))) + later)
	}
	return b.NewArray()
}

// horizon is the time below which rows are not looked at.
func (w *window) horizon() int64 {
	if w.newest < math.MinInt64+w.within {
		return math.MinInt64
	}
	return w.newest - w.within
}

// saw takes note of times of rows.
func (w *window) saw(times *array.Timestamp) {
	for i := range times.Len() {
		if times.IsValid(i) {
			w.newest = max(w.newest, int64(times.Value(i)))
		}
	}
}

// began takes note that the index has been made anew, or has its first rows.
func (w *window) began() { w.oldest = w.newest }

// worn reports whether most of the index must be of rows beyond the window, so that it is better made anew.
func (w *window) worn() bool { return w.oldest != math.MinInt64 && w.newest-w.oldest > 2*w.within }

// note is what the index keeps of the window.
func (w *window) note() string { return fmt.Sprintf("%d %d", w.newest, w.oldest) }

// read takes what note wrote. Errors: keyindex.ErrCorrupt.
func (w *window) read(note string) error {
	newest, oldest, _ := strings.Cut(note, " ")
	var err1, err2 error
	w.newest, err1 = strconv.ParseInt(newest, 10, 64)
	w.oldest, err2 = strconv.ParseInt(oldest, 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("%w: its note is %q", keyindex.ErrCorrupt, note)
	}
	return nil
}

// windowOf is what the index of a window is of, as watch has named it; nil of an index of a keyed table.
func windowOf(identity keyindex.Identity) *DedupeOptions {
	n := len(identity.Columns) - 1
	if !identity.NullKeys || n < 0 {
		return nil
	}
	i := strings.LastIndex(identity.Columns[n].Name, windowWord)
	if i < 0 {
		return nil
	}
	d := &DedupeOptions{Time: identity.Columns[n].Name[:i]}
	for _, c := range identity.Columns[:n] {
		d.Key = append(d.Key, c.Name)
	}
	var err error
	if d.Within, err = time.ParseDuration(identity.Columns[n].Name[i+len(windowWord):]); err != nil {
		return nil
	}
	return d
}

// windowWord is between the column of the time and the length of the window, in the name of the column that has its buckets.
const windowWord = " in "

// hash makes the fingerprints of rows, given the columns of the index.
func (r *rowIndex) hash(columns []arrow.Array) ([]keyindex.Fingerprint, error) {
	if r.window == nil {
		return r.x.Hasher().Append(nil, columns[:r.keys])
	}
	return r.hashAt(columns, 0)
}

// hashAt is hash of rows that would be so many buckets later.
func (r *rowIndex) hashAt(columns []arrow.Array, later int64) ([]keyindex.Fingerprint, error) {
	buckets := r.window.buckets(columns[r.keys].(*array.Timestamp), later)
	defer buckets.Release()
	return r.x.Hasher().Append(nil, append(columns[:r.keys:r.keys], buckets))
}

// inWindow is the condition that rows within the window meet, and maybe some others; nil for all rows.
func (r *rowIndex) inWindow(ctx context.Context, snap *delta.Snapshot) (*expr.Expr, error) {
	if r.window == nil {
		return nil, nil
	}
	f := r.fields[r.keys]
	name := f.Name
	var mapped struct {
		Name string `json:"delta.columnMapping.physicalName"`
	}
	if json.Unmarshal(f.Metadata, &mapped) == nil && mapped.Name != "" {
		name = mapped.Name
	}
	var newest time.Time
	for add, err := range snap.Files(ctx, &delta.FilesOptions{Stats: true}) {
		if err != nil {
			return nil, err
		}
		var stats struct {
			MaxValues map[string]json.RawMessage `json:"maxValues"`
		}
		var text string
		if json.Unmarshal([]byte(add.Stats), &stats) != nil || json.Unmarshal(stats.MaxValues[name], &text) != nil {
			continue // it is read, since nothing rules it out
		}
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999"} {
			if at, err := time.Parse(layout, text); err == nil && at.After(newest) {
				newest = at
			}
		}
	}
	if newest.IsZero() {
		return nil, nil
	}
	b := array.NewTimestampBuilder(memory.DefaultAllocator, delta.ArrowType(f.Type).(*arrow.TimestampType))
	defer b.Release()
	b.Append(arrow.Timestamp(newest.UnixMicro() - r.window.within))
	least := b.NewArray()
	defer least.Release()
	if v, ok := expr.Literal(least, 0); ok {
		return expr.Compare(">=", expr.Name(f.Name), v), nil
	}
	return nil, nil
}
