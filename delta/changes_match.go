package delta

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"unsafe"
)

// side tells the rows that a commit took from those that it brought.
type side uint8

const (
	deleted side = iota
	inserted
)

// matchRow is a row that is to be compared with others.
type matchRow struct {
	key     fingerprint // rows of one key may be versions of one row
	content uint64      // rows of one key and content are alike
	place   uint64      // side, piece and row
}

const (
	placeRowBits   = 40 // of a place, the lowest: rows of a file
	placePieceBits = 23
	matchRowBytes  = int64(unsafe.Sizeof(matchRow{}))
	matchBuckets   = 1 << 10
)

func placeOf(s side, piece int, row int64) uint64 {
	return uint64(s)<<63 | uint64(piece)<<placeRowBits | uint64(row)
}

func placeParts(place uint64) (s side, piece int, row int64) {
	return side(place >> 63), int(place >> placeRowBits & (1<<placePieceBits - 1)), int64(place & (1<<placeRowBits - 1))
}

// rowMatcher finds which of the rows of two sides are alike, and pairs the others by key. Rows are kept in buckets by
// key; when there are too many in memory, all are put aside in one file, bucket by bucket. It is used by one goroutine
// and has to be closed.
//
//	buckets[b]  rows in memory
//	runs[b]     where the file has rows of bucket b: (offset, count), (offset, count) …
type rowMatcher struct {
	buckets [matchBuckets][]matchRow
	runs    [matchBuckets][]matchRun
	rows    int64 // in memory
	limit   int64
	dir     string
	file    *os.File
	end     int64 // of the file
}

type matchRun struct{ offset, rows int64 }

func newRowMatcher(memoryBytes int64, dir string) *rowMatcher {
	return &rowMatcher{limit: max(cmp.Or(memoryBytes, 256<<20)/matchRowBytes, matchBuckets), dir: dir}
}

func (m *rowMatcher) add(row matchRow) error {
	b := row.key.hi % matchBuckets
	m.buckets[b] = append(m.buckets[b], row)
	if m.rows++; m.rows < m.limit {
		return nil
	}
	if err := m.spill(); err != nil {
		return fmt.Errorf("put rows aside: %w", err)
	}
	return nil
}

// rowBytes is the memory of rows: the file is read by the process that wrote it.
func rowBytes(rows []matchRow) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(rows))), int64(len(rows))*matchRowBytes)
}

func (m *rowMatcher) spill() error {
	if m.file == nil {
		f, err := os.CreateTemp(m.dir, "freshet-changes-*")
		if err != nil {
			return err
		}
		m.file = f
		_ = os.Remove(f.Name()) // where this is refused, close tries again
	}
	for b, rows := range m.buckets {
		if len(rows) == 0 {
			continue
		}
		if _, err := m.file.Write(rowBytes(rows)); err != nil {
			return err
		}
		m.runs[b] = append(m.runs[b], matchRun{m.end, int64(len(rows))})
		m.end += int64(len(rows)) * matchRowBytes
		m.buckets[b] = rows[:0]
	}
	m.rows = 0
	return nil
}

func (m *rowMatcher) close() {
	if m.file == nil {
		return
	}
	name := m.file.Name()
	_ = m.file.Close()
	_ = os.Remove(name)
}

// matched is told of each row that is not carried over: paired with one of the other side, or alone.
type matched func(place uint64, paired bool)

// finish tells of all rows, in no order. Rows of one key that are alike on both sides cancel each other; of the rest,
// as many as there are on both sides are paired. The matcher is empty afterwards.
func (m *rowMatcher) finish(tell matched) error {
	var rows []matchRow
	for b := range m.buckets {
		rows = append(rows[:0], m.buckets[b]...)
		m.buckets[b] = nil
		for _, run := range m.runs[b] {
			at := len(rows)
			rows = slices.Grow(rows, int(run.rows))[:at+int(run.rows)]
			if _, err := m.file.ReadAt(rowBytes(rows[at:]), run.offset); err != nil {
				return fmt.Errorf("read rows that were put aside: %w", err)
			}
		}
		slices.SortFunc(rows, compareRows)
		for from := 0; from < len(rows); {
			to := from + 1
			for to < len(rows) && rows[to].key == rows[from].key {
				to++
			}
			matchGroup(rows[from:to], tell)
			from = to
		}
	}
	return nil
}

// compareRows orders rows by key, content and place.
func compareRows(a, b matchRow) int {
	switch {
	case a.key.hi != b.key.hi:
		return cmp.Compare(a.key.hi, b.key.hi)
	case a.key.lo != b.key.lo:
		return cmp.Compare(a.key.lo, b.key.lo)
	case a.content != b.content:
		return cmp.Compare(a.content, b.content)
	}
	return cmp.Compare(a.place, b.place)
}

// matchGroup tells of the rows of one key.
func matchGroup(rows []matchRow, tell matched) {
	if len(rows) == 1 {
		tell(rows[0].place, false)
		return
	}
	rest := cancel(rows)
	if len(rest) == 0 {
		return
	}
	var count [2]int
	for _, row := range rest {
		count[row.place>>63]++
	}
	pairs := [2]int{min(count[0], count[1]), min(count[0], count[1])}
	for _, row := range rest {
		s := row.place >> 63
		tell(row.place, pairs[s] > 0)
		pairs[s]--
	}
}

// cancel returns the rows, which are ordered by content, without those that are alike on both sides. It reuses the
// memory of rows.
func cancel(rows []matchRow) []matchRow {
	rest := rows[:0]
	for from := 0; from < len(rows); {
		to, split := from, from // of one content: [from, split) deleted, [split, to) inserted
		for to < len(rows) && rows[to].content == rows[from].content {
			if side(rows[to].place>>63) == deleted {
				split = to + 1
			}
			to++
		}
		alike := min(split-from, to-split)
		rest = append(rest, rows[from+alike:split]...)
		rest = append(rest, rows[split+alike:to]...)
		from = to
	}
	return rest
}
