// Package freshettest holds what tests of a pipe need: an in-memory source and target, a way to let a process
// die at any call, and the suites RunSource and RunTarget, which every Source and Target must pass.
//
//	func TestAppend(t *testing.T) {
//		freshettest.RunTarget(t, func(t *testing.T) freshettest.TargetHarness { … })
//	}
//
// All that is random comes from a seed that is printed. Non-goals: speed, and faults of a store (package
// storetest).
package freshettest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
)

// Schema is the columns of the rows that Source delivers: the lane, as text, and the seq.
func Schema() *arrow.Schema {
	return arrow.NewSchema([]arrow.Field{
		{Name: "lane", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "seq", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	}, nil)
}

// RecordKind says what comes of a record.
type RecordKind int

// The kinds of records.
const (
	GoodRecord  RecordKind = iota // a row
	BadRecord                     // a reject
	EmptyRecord                   // nothing: a tombstone
)

// Origin is what a Source reads: lanes of records that stay. Several sources may read it, as processes do. It
// is safe for concurrent use.
type Origin struct {
	mu      sync.Mutex
	lanes   []freshet.Lane
	records map[freshet.Lane][]record
	grown   chan struct{} // closed when records come
}

type record struct {
	seq  int64
	kind RecordKind
	at   time.Time // when the origin committed it; zero: it does not say
}

// NewOrigin returns an origin whose lanes "o[0]", "o[1]" … are empty.
func NewOrigin(lanes int) *Origin {
	o := &Origin{records: map[freshet.Lane][]record{}, grown: make(chan struct{})}
	for i := range lanes {
		l := Lane(i)
		o.lanes = append(o.lanes, l)
		o.records[l] = nil
	}
	return o
}

// Lane is the lane of this number, as NewOrigin makes it.
func Lane(i int) freshet.Lane {
	return freshet.Lane{Origin: "o", OriginID: "id-1", Name: fmt.Sprint(i)}
}

// Lanes are the origin's lanes.
func (o *Origin) Lanes() []freshet.Lane {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.lanes)
}

// Append adds a record behind the last of the lane, skip seqs later than the next one.
func (o *Origin) Append(l freshet.Lane, skip int64, kind RecordKind) {
	o.AppendAt(l, skip, kind, time.Time{})
}

// AppendAt is Append of a record that says when the origin committed it.
func (o *Origin) AppendAt(l freshet.Lane, skip int64, kind RecordKind, at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	seq := skip
	if rs := o.records[l]; len(rs) > 0 {
		seq += rs[len(rs)-1].seq + 1
	}
	o.records[l] = append(o.records[l], record{seq, kind, at})
	close(o.grown)
	o.grown = make(chan struct{})
}

// Fill adds n good records to each lane.
func (o *Origin) Fill(n int) {
	for _, l := range o.Lanes() {
		for range n {
			o.Append(l, 0, GoodRecord)
		}
	}
}

// Want is what a table that takes all lanes must hold at the end: the seqs of each lane's rows and rejects,
// in order.
func (o *Origin) Want() (rows, rejects map[string][]int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	rows, rejects = map[string][]int64{}, map[string][]int64{}
	for l, rs := range o.records {
		for _, r := range rs {
			switch r.kind {
			case GoodRecord:
				rows[l.String()] = append(rows[l.String()], r.seq)
			case BadRecord:
				rejects[l.String()] = append(rejects[l.String()], r.seq)
			}
		}
	}
	return rows, rejects
}

// after returns up to n records of the lane past seq, and a channel that is closed when there are more.
func (o *Origin) after(l freshet.Lane, seq int64, n int) ([]record, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	rs := o.records[l]
	i, _ := slices.BinarySearchFunc(rs, seq+1, func(r record, s int64) int { return int(r.seq - s) })
	return slices.Clone(rs[i:min(i+n, len(rs))]), o.grown
}

func (o *Origin) last(l freshet.Lane) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if rs := o.records[l]; len(rs) > 0 {
		return rs[len(rs)-1].seq
	}
	return -1
}
