package lake

import (
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
)

// unread tells, of entries, those that some table is not past yet: its pipeline will read their records again, and a replay
// would bring them twice.
func (a *Target) unread(snap *delta.Snapshot, entries []*Entry) map[*Entry]bool {
	out := map[*Entry]bool{}
	for _, e := range entries {
		f := a.form()
		if number, ok := f.found(snap); ok {
			f.many = number == formMany
		}
		known := f.identityIn(snap, e.Lane.Origin)
		if known != "" && e.Lane.OriginID != "" && known != e.Lane.OriginID {
			continue // of an origin that is gone
		}
		if seq, ok := snap.Txn(f.lane(e.Lane)); ok && seq < e.Seq {
			out[e] = true
		}
	}
	return out
}

// stays says why an entry is not taken: it keeps its reason.
func (r *Replayed) stays(e *Entry, why *freshet.Reject) {
	again := *e
	if why != nil {
		again.Code, again.Message, again.Step = why.Code, why.Message, why.Step
	}
	again.Raw, again.Key, again.Headers = nil, nil, nil
	r.Still = append(r.Still, &again)
}

// setAside takes out of entries those that a table of the group is not past yet.
func (r *Replayed) setAside(entries []*Entry, unread map[*Entry]bool) []*Entry {
	return slices.DeleteFunc(entries, func(e *Entry) bool {
		if unread[e] {
			r.stays(e, &freshet.Reject{Code: e.Code, Step: e.Step,
				Message: "the pipeline is not past this record yet, and will read it again: run it, then replay"})
		}
		return unread[e]
	})
}

// ownRows leaves, of what came of entries, what is theirs: of a record that was rejected whole, all; of a row of a record that
// became several, that row. An entry of which something is rejected again takes nothing.
func ownRows(entries []*Entry, b *freshet.Batch) {
	whole := func(i int64) bool { return entries[i].Step == decodeStep || entries[i].Step == "" }
	b.Rejects = slices.DeleteFunc(b.Rejects, func(r freshet.Reject) bool {
		return r.Step != decodeStep && !whole(r.Seq) && r.Row != entries[r.Seq].Row
	})
	again := map[int64]bool{}
	for i := range b.Rejects {
		again[b.Rejects[i].Seq] = true
	}
	var mine []int32
	for row, i := range b.Seqs {
		at := int32(0)
		if b.Places != nil {
			at = b.Places[row]
		}
		if !again[i] && (whole(i) || at == entries[i].Row) {
			mine = append(mine, int32(row))
		}
	}
	leaveRows(b, mine)
}

// leaveRows leaves these rows of the batch, in their order.
func leaveRows(b *freshet.Batch, rows []int32) {
	if len(rows) == b.NumRows() {
		return
	}
	var some arrow.RecordBatch
	spans := expr.SpansOf(rows)
	if len(rows) > 0 {
		some = expr.TakeBatch(b.Rows, spans)
	}
	b.Thin(some, expr.Bounds(spans))
}

// errTornEntry says that an entry that became several rows cannot be taken whole: it is left out, and the others are tried again.
var errTornEntry = errors.New("a record that became several rows cannot be taken whole")

// torn finds entries of which the table takes some rows and refuses others, which were added to the batch's rejects from the
// one on that is given.
func torn(entries []*Entry, b *freshet.Batch, from int, tried map[entryPlace]bool, done *Replayed) error {
	rows := map[int64]int{}
	for _, i := range b.Seqs {
		rows[i]++
	}
	found := 0
	for i := range b.Rejects[from:] {
		r := &b.Rejects[from+i]
		if e := entries[r.Seq]; rows[r.Seq] > 1 && !tried[e.place()] {
			found++
			tried[e.place()] = true
			done.stays(e, r)
		}
	}
	if found > 0 {
		return fmt.Errorf("%w: %d", errTornEntry, found)
	}
	return nil
}
