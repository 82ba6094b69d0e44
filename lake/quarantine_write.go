package lake

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/apache/arrow-go/v18/arrow/array"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/expr"
)

// heldTxns are the progress of a lane in a companion table: the last seq that was committed with rows of it, and how many
// such commits there were. The count is what a commit compares and sets: the seq alone may stay the same.
func heldTxns(app string, l freshet.Lane) (last, count string) {
	id := app + "-" + l.Origin + "#" + l.OriginID + "-" + l.Name
	return id, id + "#commits"
}

// heldLane is what quarantine holds of a lane, counting what is sealed.
type heldLane struct {
	known bool
	last  int64 // the last seq that was committed with rejects
	count int64 // how many commits
	// open are the entries that the main table is not past yet: a crash came between the two commits. A reject
	// among them is not written again, and one that is a row now is taken out.
	open map[place]int
}

// place is where in its lane a reject is.
type place struct {
	seq int64
	row int32
}

// hold takes note of where the lanes stand in the main table, which is p, and finds out what quarantine has of them.
func (t *table) hold(ctx context.Context, p freshet.Progress) error {
	if len(p) == 0 {
		return nil
	}
	t.waitsStale.Store(true) // lanes come with what another process knew to wait
	snap, err := t.quarantine.look(ctx)
	if err != nil {
		return explain(t.quarantine.name, err)
	}
	if err := t.settleLeft(ctx, snap); err != nil {
		return explain(t.quarantine.name, err)
	}
	held := map[freshet.Lane]*heldLane{}
	for l, seq := range p {
		h := &heldLane{}
		held[l] = h
		if snap == nil {
			continue
		}
		last, count := heldTxns(t.a.app, l)
		h.last, _ = snap.Txn(last)
		h.count, h.known = snap.Txn(count)
		if h.known && h.last > seq {
			if h.open, err = t.openPlaces(ctx, snap, l, seq); err != nil {
				return explain(t.quarantine.name, err)
			}
		}
	}
	t.stand(p)
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.Copy(t.held, held)
	return nil
}

// settleLeft settles what a process left under way that took rows out of quarantine.
func (t *table) settleLeft(ctx context.Context, snap *delta.Snapshot) error {
	if snap == nil || !t.opts.Mode.keyed() {
		return nil
	}
	if number, _ := snap.Txn(replayingTxn(t.a.app, t.name)); number == 0 {
		return nil
	}
	_, _, err := t.recover(ctx)
	return err
}

// openPlaces reads the open entries of the lane past seq: those of this app and table, since others may have
// put the same records into the same quarantine.
func (t *table) openPlaces(ctx context.Context, snap *delta.Snapshot, l freshet.Lane, seq int64) (
	map[place]int, error) {
	where, err := expr.Parse(fmt.Sprintf(
		"app = %s AND table_name = %s AND origin = %s AND origin_id = %s AND lane = %s AND seq > %d",
		quote(t.a.app), quote(t.name), quote(l.Origin), quote(l.OriginID), quote(l.Name), seq))
	if err != nil {
		return nil, err
	}
	open := map[place]int{}
	columns := []string{"event", "seq", "row"}
	for rec, err := range snap.Scan(ctx, &delta.ScanOptions{Columns: columns, Where: where}) {
		if err != nil {
			return nil, err
		}
		events, seqs := rec.Column(0).(*array.String), rec.Column(1).(*array.Int64)
		rows := rec.Column(2).(*array.Int32)
		for i := range events.Len() {
			at := place{seqs.Value(i), rows.Value(i)}
			open[at] += eventWeight(events.Value(i))
			if open[at] == 0 {
				delete(open, at)
			}
		}
		rec.Release()
	}
	return open, nil
}

// rejectWriter writes the rejects of one table that are not sealed.
type rejectWriter struct {
	w     *delta.Writer
	lanes map[freshet.Lane]bool // with rows in w
	count int64                 // rejects that were written, landed ones not counted
}

// writeRejects writes the batch's rejects to quarantine files, but those that quarantine has already; and
// takes out what it has of the batch that is no reject any more. Of rows that were read, and are no changes of a log, it takes out all: what is
// at the same place now may be another row, or stand elsewhere.
func (t *table) writeRejects(ctx context.Context, b *freshet.Batch) error {
	t.mu.Lock()
	h := t.held[b.Lane]
	if h == nil {
		h = &heldLane{}
		t.held[b.Lane] = h
	}
	t.mu.Unlock()
	if len(b.Rejects) == 0 && len(h.open) == 0 {
		return nil
	}
	rows := newQuarantineRows(t.a.app, b.Table)
	defer rows.release()
	for i := range b.Rejects {
		r := &b.Rejects[i]
		at := place{r.Seq, r.Row}
		if h.open[at] > 0 && b.Behind == nil {
			delete(h.open, at)
			continue
		}
		rows.add(eventRejected, b.Lane, r)
	}
	rejected := rows.n
	for at, n := range h.open {
		if at.seq < b.Last || at.seq == b.Last && !b.Unfinished {
			delete(h.open, at)
			for range n {
				rows.add(eventLanded, b.Lane, &freshet.Reject{Seq: at.seq, Row: at.row})
			}
		}
	}
	return t.addRejects(ctx, b.Lane, rows, rejected)
}

func (t *table) addRejects(ctx context.Context, l freshet.Lane, rows *quarantineRows, rejected int) error {
	if rows.n == 0 {
		return nil
	}
	if t.rejects == nil {
		w, err := newCompanionWriter(t.quarantine.st, quarantineSchema, quarantineStats)
		if err != nil {
			return err
		}
		t.rejects = &rejectWriter{w: w, lanes: map[freshet.Lane]bool{}}
	}
	rec := rows.batch()
	defer rec.Release()
	t.rejects.lanes[l] = true
	t.rejects.count += int64(rejected)
	return t.rejects.w.Write(ctx, rec)
}

// sealedRejects are rejects on their way into quarantine.
type sealedRejects struct {
	t         *table
	w         *delta.Writer
	adds      []delta.Add
	lanes     map[freshet.Lane]int64    // up to which seq of each lane they are all that there is
	steps     map[freshet.Lane]heldStep // nil until the first attempt
	count     int64
	uncertain bool // an attempt may have landed, or has: the files must stay
}

// heldStep is how a commit changes the progress of a lane in quarantine.
type heldStep struct {
	known bool  // whether there was any before
	count int64 // of commits before
	last  int64 // the last seq, afterwards
}

// sealRejects closes the rejects' files as part of c.
func (t *table) sealRejects(ctx context.Context, c *commit) error {
	adds, err := t.rejects.w.Close(ctx)
	if err != nil {
		return err
	}
	s := &sealedRejects{t: t, w: t.rejects.w, adds: adds, count: t.rejects.count, lanes: map[freshet.Lane]int64{}}
	for l := range t.rejects.lanes {
		s.lanes[l] = t.lanes[l].last
	}
	c.rejects = s
	return nil
}

// begin finds out, before the first attempt, what quarantine is to have of the lanes.
func (s *sealedRejects) begin() {
	if s.steps != nil {
		return
	}
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	s.steps = map[freshet.Lane]heldStep{}
	for l, last := range s.lanes {
		h := s.t.held[l]
		if h == nil {
			h = &heldLane{}
		}
		if h.known {
			last = max(last, h.last)
		}
		s.steps[l] = heldStep{h.known, h.count, last}
	}
}

// landed takes note of what quarantine has of the lanes now.
func (s *sealedRejects) landed() {
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	for l, step := range s.steps {
		if h := s.t.held[l]; h != nil {
			h.known, h.count, h.last = true, step.count+1, step.last
		}
	}
}

// commit commits the rejects. Errors: ErrStale when another copy has committed rejects of one of the lanes.
func (s *sealedRejects) commit(ctx context.Context) error {
	s.begin()
	q, app := s.t.quarantine, s.t.a.app
	for range maxRaces {
		snap, err := q.need(ctx)
		if err != nil {
			return err
		}
		tx := snap.Table().Begin(snap, nil)
		for l, step := range s.steps {
			last, count := heldTxns(app, l)
			if n, ok := snap.Txn(count); ok != step.known || n != step.count {
				return fmt.Errorf("%w: another copy has put records of %s into quarantine", freshet.ErrStale, l)
			}
			tx.ExpectTxn(count, step.count, step.known)
			tx.AddTxn(count, step.count+1)
			tx.AddTxn(last, step.last)
		}
		if err := widenQuarantine(tx, snap); err != nil {
			return err
		}
		tx.Add(s.adds...)
		tx.Operation("STREAMING UPDATE",
			map[string]string{"outputMode": "Append", "queryId": app, "epochId": "0"},
			map[string]string{"numAddedFiles": fmt.Sprint(len(s.adds)), "numOutputRows": fmt.Sprint(s.w.Rows()),
				"numRemovedFiles": "0"})
		tx.BlindAppend(true)
		_, err = tx.Commit(ctx)
		if err == nil {
			s.uncertain = true
			s.landed()
			return nil
		}
		if !errors.Is(err, delta.ErrConflict) {
			s.uncertain = true
			return err
		}
	}
	return &freshet.Error{Code: freshet.CodeConflict, Class: freshet.ClassFailure, Place: q.name,
		Msg: fmt.Sprintf("lost %d races in a row", maxRaces)}
}

// quarantineNow commits rows about rejects that were found while a commit was under way, which are all that there are up
// to these seqs of their lanes.
func (t *table) quarantineNow(ctx context.Context, rows *quarantineRows, lanes map[freshet.Lane]int64) (err error) {
	if rows.n == 0 {
		return nil
	}
	s := &sealedRejects{t: t, lanes: lanes}
	if s.w, err = newCompanionWriter(t.quarantine.st, quarantineSchema, quarantineStats); err != nil {
		return err
	}
	defer func() {
		if err != nil && !s.uncertain {
			t.a.tend.abort([]*delta.Writer{s.w})
		}
	}()
	rec := rows.batch()
	defer rec.Release()
	if err := s.w.Write(ctx, rec); err != nil {
		return err
	}
	if s.adds, err = s.w.Close(ctx); err != nil {
		return err
	}
	return s.commit(ctx)
}
