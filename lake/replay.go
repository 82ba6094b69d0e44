package lake

import (
	"context"
	"errors"
	"fmt"
	"maps"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
	"github.com/freshet-io/freshet/store"
)

// Settling entries is a sequence of commits to the quarantine table, numbered by one txn, each a
// compare-and-set on it:
//
//	txn appId                        version
//	freshet#settled                  number of the last such commit
//	freshet#replaying-<app>-<table>  number of the replay that is under way; 0: none
//
// and in the main table
//
//	<app>#replay                     number of the last replay that landed, or that was made impossible
//
// A replay says first what it is about to take (rows "replaying", with its number), then commits the rows to
// the main table together with its number, then says that they are taken. If it dies on the way, the number
// in the main table tells the next one whether the rows landed. If they did not, the next one takes the
// number away before it goes on, so that a process that only slept cannot land them after all.
const settledTxn = "freshet#settled"

func replayingTxn(app, table string) string { return "freshet#replaying-" + app + "-" + table }

func (f form) replayTxn() string { return f.app + "#replay" }

// settlement is one commit of the sequence.
type settlement struct {
	snap   *delta.Snapshot
	number int64
	rows   *quarantineRows
}

func newSettlement(snap *delta.Snapshot, app, table string) *settlement {
	n, _ := snap.Txn(settledTxn)
	return &settlement{snap: snap, number: n + 1, rows: newQuarantineRows(app, table)}
}

// settlement is newSettlement with a number above what the main table knows of too: a quarantine table that was made
// anew begins its own count again.
func (t *table) settlement(main, snap *delta.Snapshot) *settlement {
	s := newSettlement(snap, t.a.app, t.name)
	landed, _ := main.Txn(t.a.form().replayTxn())
	s.number = max(s.number, landed+1)
	return s
}

func (s *settlement) release() { s.rows.release() }

// add adds a row about the entry.
func (s *settlement) add(event string, e *Entry) {
	s.rows.app, s.rows.table = e.App, e.Table
	s.rows.add(event, e.Lane, &freshet.Reject{Seq: e.Seq, Row: e.Row})
}

// commit writes the rows and sets the txns beside its own. Errors: delta.ErrConflict when another settlement
// came first; then nothing was written.
func (s *settlement) commit(ctx context.Context, st store.Store, set txns) error {
	w, err := newCompanionWriter(st, quarantineSchema, quarantineStats)
	if err != nil {
		return err
	}
	rec := s.rows.batch()
	defer rec.Release()
	if err := w.Write(ctx, rec); err != nil {
		return errors.Join(err, w.Abort(context.WithoutCancel(ctx)))
	}
	adds, err := w.Close(ctx)
	if err != nil {
		return errors.Join(err, w.Abort(context.WithoutCancel(ctx)))
	}
	all := txns{settledTxn: s.number}
	for id, v := range set {
		all[id] = v
	}
	tx := s.snap.Table().Begin(s.snap, nil)
	all.addTo(tx, s.snap)
	if err := widenQuarantine(tx, s.snap); err != nil {
		return errors.Join(err, w.Abort(context.WithoutCancel(ctx)))
	}
	tx.Add(adds...)
	tx.Operation("WRITE", map[string]string{"mode": "Append"}, map[string]string{
		"numFiles": fmt.Sprint(len(adds)), "numOutputRows": fmt.Sprint(w.Rows())})
	tx.BlindAppend(false)
	_, err = tx.Commit(ctx)
	if errors.Is(err, delta.ErrConflict) {
		return errors.Join(err, w.Abort(context.WithoutCancel(ctx)))
	}
	return err
}

// Retake makes rows of the entries' raw payloads, as the pipeline does now. Seqs of the batch, and of its
// rejects, are indices into entries; an entry that has neither was dropped by a step.
type Retake func(ctx context.Context, entries []*Entry) (*freshet.Batch, error)

// Present finds out, of what came of entries, which the source has still, where nothing in the table tells: it is asked about each version
// of the table anew, and what it returns is what the table gets, with all that is rejected. An entry of which nothing is left there, but
// something was in the batch, is one that newer changes of the source have passed. The table lands it only as long as nothing
// more of the source comes to it.
type Present func(ctx context.Context, entries []*Entry, b *freshet.Batch) (*freshet.Batch, error)

// Replayed tells what a replay did.
type Replayed struct {
	Entries int      // that are taken now
	Passed  int      // of these, that the table got nothing of, since newer changes have passed them
	Rows    int64    // that the table got
	Still   []*Entry // that cannot be taken still, with the new reason and without payload, key and headers; they stay open
	Version int64    // of the table; -1 when nothing was taken
}

// Add adds what another replay did.
func (r *Replayed) Add(o *Replayed) {
	r.Entries, r.Passed, r.Rows = r.Entries+o.Entries, r.Passed+o.Passed, r.Rows+o.Rows
	r.Still, r.Version = append(r.Still, o.Still...), max(r.Version, o.Version)
}

// One commit of a replay takes so many entries, or as many as have so many bytes, whichever comes first.
const (
	maxReplay      = 10_000
	maxReplayBytes = 32 << 20
)

// Replay takes the open entries of the table that the filter chooses through retake again and appends what
// comes of it, each entry exactly once, whatever crashes. Of many entries it makes several commits. Of a Group's first
// target, the tables beside the table get what they lack of it, too. The target must not be part of a running pipeline;
// pipelines of other processes may go on.
func (a *Target) Replay(ctx context.Context, table string, filter *Filter, retake Retake) (*Replayed, error) {
	return a.ReplayPresent(ctx, table, filter, retake, nil)
}

// ReplayPresent is Replay into a keyed table whose changes nothing but their place in the source orders.
func (a *Target) ReplayPresent(ctx context.Context, table string, filter *Filter, retake Retake, present Present) (*Replayed, error) {
	t, err := a.table(table)
	if err != nil {
		return nil, err
	}
	total := &Replayed{Version: -1}
	tried := map[entryPlace]bool{}
	for races := 0; ; {
		done, more, err := t.replay(ctx, filter, tried, retake, present)
		total.Still = append(total.Still, done.Still...)
		if errors.Is(err, errTornEntry) {
			continue
		}
		if errors.Is(err, delta.ErrConflict) && races < maxRaces {
			races++
			continue
		}
		if err != nil {
			return total, explain(table, err)
		}
		total.Entries += done.Entries
		total.Rows += done.Rows
		total.Passed += done.Passed
		total.Version = max(total.Version, done.Version)
		if !more {
			return total, nil
		}
	}
}

// replay makes one commit. It reports whether there may be more to take.
func (t *table) replay(ctx context.Context, filter *Filter, tried map[entryPlace]bool, retake Retake, present Present) (
	*Replayed, bool, error) {
	main, snap, err := t.recover(ctx)
	done := &Replayed{Version: -1}
	if err != nil || snap == nil {
		return done, false, err
	}
	entries, more, err := t.chosen(ctx, snap, filter, tried)
	if err != nil {
		return done, false, err
	}
	if entries, err = t.past(ctx, main, entries, tried, done); err != nil || len(entries) == 0 {
		return done, more, err
	}
	b, err := retake(ctx, entries)
	if err != nil {
		return done, false, err
	}
	defer b.Release()
	defer t.discard()
	ownRows(entries, b)
	if err := t.replayBeside(ctx, entries, b); err != nil {
		return done, false, err
	}
	if t.opts.Mode.keyed() {
		err := t.replayKeyed(ctx, main, snap, entries, b, present, done)
		done.note(tried)
		return done, more, err
	}
	if err := t.replayWrite(ctx, entries, b, tried, done); err != nil {
		return done, false, err
	}
	taken := t.divide(entries, b, done)
	done.note(tried)
	if len(taken) == 0 {
		return done, more, nil
	}
	return done, more, t.take(ctx, main, snap, taken, done, txns{})
}

// past leaves, of entries, those that all tables of the group are past. The others are tried.
func (t *table) past(ctx context.Context, main *delta.Snapshot, entries []*Entry, tried map[entryPlace]bool, done *Replayed) (
	[]*Entry, error) {
	unread, err := t.unreadBeside(ctx, entries)
	if err != nil {
		return nil, err
	}
	maps.Copy(unread, t.a.unread(main, entries))
	entries = done.setAside(entries, unread)
	done.note(tried)
	return entries, nil
}

// note takes note of entries that are not to be tried again.
func (r *Replayed) note(tried map[entryPlace]bool) {
	for _, e := range r.Still {
		tried[e.place()] = true
	}
}

// replayWrite writes rows of a table that has no keys.
func (t *table) replayWrite(ctx context.Context, entries []*Entry, b *freshet.Batch, tried map[entryPlace]bool,
	done *Replayed) error {
	if b.NumRows() == 0 {
		return nil
	}
	if t.opts.gathers() {
		return t.gatherRows(ctx, b)
	}
	before := len(b.Rejects)
	if err := t.writeRows(ctx, entryCauses(b, entries)); err != nil {
		return err
	}
	return torn(entries, b, before, tried, done)
}

// chosen returns the next entries to replay.
func (t *table) chosen(ctx context.Context, snap *delta.Snapshot, filter *Filter, tried map[entryPlace]bool) (
	entries []*Entry, more bool, err error) {
	f := Filter{}
	if filter != nil {
		f = *filter
	}
	f.App, f.Table, f.Closed = t.a.app, t.name, false
	bytes := 0
	err = scanEntries(ctx, snap, &f, func(e *Entry, _ error) bool {
		if tried[e.place()] {
			return true
		}
		if more = len(entries) == maxReplay || bytes >= maxReplayBytes; more {
			return false
		}
		bytes += len(e.Raw)
		entries = append(entries, e)
		return true
	})
	return entries, more && f.Limit <= 0, err
}

// divide tells entries that are taken from those that are not, which go to done.Still.
func (t *table) divide(entries []*Entry, b *freshet.Batch, done *Replayed) (taken []*Entry) {
	still := map[int64]*freshet.Reject{}
	for i := range b.Rejects {
		still[b.Rejects[i].Seq] = &b.Rejects[i]
	}
	for i, e := range entries {
		if r := still[int64(i)]; r != nil {
			done.stays(e, r)
			continue
		}
		taken = append(taken, e)
	}
	return taken
}

// take commits the rows that are written, and the entries that they come from as replayed.
func (t *table) take(ctx context.Context, main, snap *delta.Snapshot, taken []*Entry, done *Replayed, set txns) error {
	intent := t.settlement(main, snap)
	defer intent.release()
	intent.rows.replay = intent.number
	for _, e := range taken {
		intent.add(eventReplaying, e)
	}
	err := intent.commit(ctx, t.quarantine.st, txns{replayingTxn(t.a.app, t.name): intent.number})
	if err != nil {
		return err
	}
	c, err := t.seal(ctx)
	if err != nil {
		return err
	}
	landed, err := c.replay(ctx, main, intent.number, set)
	if err != nil {
		return err
	}
	done.Entries, done.Rows, done.Version = len(taken), c.rows, landed
	_, _, err = t.recover(ctx)
	return err
}

// replay commits the rows under the replay's number.
func (c *commit) replay(ctx context.Context, main *delta.Snapshot, number int64, set txns) (int64, error) {
	set[c.t.a.form().replayTxn()] = number
	if c.keyed != nil {
		done, err := c.apply(ctx, main, set)
		if err != nil {
			return 0, err
		}
		c.t.saw(done.Snapshot)
		return done.Version, nil
	}
	landed, err := c.add(ctx, main, set, nil)
	if errors.Is(err, delta.ErrConflict) {
		c.Abort()
	}
	return landed, err
}

// add commits rows that are no lane's, with these txns, on the snapshot.
func (c *commit) add(ctx context.Context, snap *delta.Snapshot, set txns, params map[string]string) (int64, error) {
	if err := c.t.checkPolicies(snap); err != nil {
		return 0, err
	}
	tx := snap.Table().Begin(snap, nil)
	set.addTo(tx, snap)
	if len(c.adds) > 0 {
		meta, err := c.fit(snap)
		if err != nil {
			return 0, err
		}
		if meta != nil {
			tx.SetMetadata(meta)
		}
		tx.Add(c.adds...)
	}
	all := map[string]string{"mode": "Append"}
	maps.Copy(all, params)
	tx.Operation("WRITE", all, map[string]string{"numFiles": fmt.Sprint(len(c.adds)), "numOutputRows": fmt.Sprint(c.rows),
		"numOutputBytes": fmt.Sprint(c.bytes)})
	tx.BlindAppend(true)
	result, err := tx.Commit(ctx)
	if err != nil {
		return 0, err
	}
	c.t.saw(result.Snapshot)
	return result.Version, nil
}

// recover settles the replay that is under way, if there is one, and returns both tables as they are then; a
// nil snapshot when there is no quarantine.
func (t *table) recover(ctx context.Context) (main, snap *delta.Snapshot, err error) {
	for range maxRaces {
		if main, err = t.look(ctx); err != nil {
			return nil, nil, err
		}
		if main == nil {
			return nil, nil, delta.ErrNoTable
		}
		snap, err = t.quarantine.look(ctx)
		if err != nil || snap == nil {
			return main, nil, err
		}
		number, _ := snap.Txn(replayingTxn(t.a.app, t.name))
		if number == 0 {
			return main, snap, nil
		}
		if err := t.settleReplay(ctx, main, snap, number); err != nil && !errors.Is(err, delta.ErrConflict) {
			return nil, nil, err
		}
	}
	return nil, nil, delta.ErrConflict
}

// settleReplay says of the replay of this number that it landed, or makes sure that it never will.
func (t *table) settleReplay(ctx context.Context, main, snap *delta.Snapshot, number int64) error {
	s := t.settlement(main, snap)
	defer s.release()
	id := t.a.form().replayTxn()
	if have, _ := main.Txn(id); have == number {
		if err := t.replayed(ctx, snap, number, s); err != nil {
			return err
		}
	} else if have < number {
		tx := main.Table().Begin(main, nil)
		txns{id: s.number}.addTo(tx, main)
		tx.Operation("WRITE", map[string]string{"mode": "Append"}, nil)
		tx.BlindAppend(true)
		if _, err := tx.Commit(ctx); err != nil {
			return err
		}
	}
	return s.commit(ctx, t.quarantine.st, txns{replayingTxn(t.a.app, t.name): 0})
}

// replayed adds to s that the entries of the replay are taken.
func (t *table) replayed(ctx context.Context, snap *delta.Snapshot, number int64, s *settlement) error {
	where, err := parseCondition([]string{"event = 'replaying'", fmt.Sprintf("replay = %d", number)})
	if err != nil {
		return err
	}
	for rec, err := range snap.Scan(ctx, &delta.ScanOptions{Where: where}) {
		if err != nil {
			return err
		}
		eachEntry(rec, func(e *Entry) bool {
			s.add(eventReplayed, e)
			return true
		})
		rec.Release()
	}
	return nil
}
