package lake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// maxRaces bounds how often a commit is built anew because another writer changed what it depends on without
// touching what it expects.
const maxRaces = 50

// Resume returns the progress of the lanes as the table's newest version has it; when there is no table, where they are
// to start in it.
func (a *Target) Resume(ctx context.Context, table string, lanes []freshet.Lane) (freshet.Progress, error) {
	t, err := a.table(table)
	if err != nil {
		return nil, err
	}
	t.park.stopDrain() // it has the key index
	made := false
	p, err := t.standing(ctx, lanes, func(ctx context.Context) (freshet.Progress, error) {
		snap, err := t.look(ctx)
		if err != nil {
			return nil, err
		}
		if made = snap != nil; !made {
			return t.remembered(ctx, lanes)
		}
		return t.resume(ctx, snap, lanes)
	})
	if _, slow := t.park.isSlow(); err != nil || !made && !slow {
		return p, err
	}
	return t.park.resume(ctx, p)
}

// resume is where the table stands in these lanes, once it is as it is to be.
func (t *table) resume(ctx context.Context, snap *delta.Snapshot, lanes []freshet.Lane) (p freshet.Progress, err error) {
	if err := t.a.checkPlan(ctx); err != nil {
		return nil, err
	}
	f := t.a.form()
	for _, l := range lanes {
		if err := f.checkIdentity(t.name, snap, l); err != nil {
			return nil, err
		}
	}
	if snap, err = t.settlePolicies(ctx, snap); err != nil {
		return nil, err
	}
	if snap, err = t.bringForm(ctx, snap); err != nil {
		return nil, err
	}
	if snap, err = t.bringFeed(ctx, snap); err != nil {
		return nil, err
	}
	if err := t.claim(snap); err != nil {
		return nil, err
	}
	if p, err = t.unfold(ctx, snap, f.progress(snap, lanes)); err != nil {
		return nil, err
	}
	return p, t.hold(ctx, p)
}

// remembered is where lanes are to start in a table that is still to be made.
func (t *table) remembered(ctx context.Context, lanes []freshet.Lane) (freshet.Progress, error) {
	k, err := t.kept(ctx)
	if err != nil {
		return nil, err
	}
	p := freshet.Progress{}
	for _, l := range lanes {
		if seq, ok := k.progress[l]; ok {
			p[l] = seq
		}
	}
	t.remember(p)
	return p, nil
}

// bringForm brings the table's progress to the form that is configured, if it has the other one.
func (t *table) bringForm(ctx context.Context, snap *delta.Snapshot) (*delta.Snapshot, error) {
	f := t.a.form()
	for range maxRaces {
		set, err := f.change(t.name, snap)
		if err != nil || set == nil {
			return snap, err
		}
		tx := snap.Table().Begin(snap, nil)
		set.addTo(tx, snap)
		other := form{f.app, !f.many}
		for id := range set {
			if l, ok := laneOf(f, id, f.origins(snap)); ok {
				expect(tx, snap, other.lane(l))
			}
		}
		t.describe(tx, map[string]string{"freshet.change": "form of progress"}, nil)
		done, err := tx.Commit(ctx)
		switch {
		case err == nil:
			t.saw(done.Snapshot)
			return done.Snapshot, nil
		case !errors.Is(err, delta.ErrConflict):
			return nil, explain(t.name, err)
		}
		if snap, err = t.look(ctx); err != nil {
			return nil, err
		}
	}
	return nil, t.tooManyRaces()
}

// expect makes the commit depend on a txn that it does not change.
func expect(tx *delta.Transaction, snap *delta.Snapshot, appID string) {
	v, ok := snap.Txn(appID)
	tx.ExpectTxn(appID, v, ok)
}

// laneOf is the lane that an appId of the form names, if it is one of the only origin.
func laneOf(f form, appID string, origins []string) (freshet.Lane, bool) {
	if len(origins) != 1 {
		return freshet.Lane{}, false
	}
	prefix := f.lane(freshet.Lane{Origin: origins[0]})
	if len(appID) <= len(prefix) || appID[:len(prefix)] != prefix || !isNumber(appID[len(prefix):]) {
		return freshet.Lane{}, false
	}
	return freshet.Lane{Origin: origins[0], Name: appID[len(prefix):]}, true
}

// Start commits where lanes begin that the table does not know. Where there is no table yet, the starts are kept in its
// folder, and become part of the commit that makes it.
func (a *Target) Start(ctx context.Context, table string, starts freshet.Progress) (freshet.Progress, error) {
	t, err := a.table(table)
	if err != nil {
		return nil, err
	}
	made := false
	p, err := t.standing(ctx, lanesOf(starts), func(ctx context.Context) (p freshet.Progress, err error) {
		p, made, err = t.begin(ctx, starts)
		return p, err
	})
	if _, slow := t.park.isSlow(); err != nil || !made && !slow {
		return p, err
	}
	return t.park.resume(ctx, p)
}

// begin commits, or keeps, where lanes begin that the table does not know, and tells which: whether the table is made.
func (t *table) begin(ctx context.Context, starts freshet.Progress) (p freshet.Progress, made bool, err error) {
	for range maxRaces {
		snap, err := t.look(ctx)
		if err != nil {
			return nil, false, err
		}
		if snap == nil {
			p, err := t.keep(ctx, starts)
			t.remember(p)
			return p, false, err
		}
		p, err := t.start(ctx, snap, starts)
		if err == nil {
			return p, true, t.hold(ctx, p)
		}
		if !errors.Is(err, delta.ErrConflict) {
			return nil, false, explain(t.name, err)
		}
	}
	return nil, false, t.tooManyRaces()
}

// Since returns when the form of the app's progress was recorded, with its first start; where there is no table yet, when
// the first start was kept.
func (a *Target) Since(ctx context.Context, table string) (at time.Time, known bool, err error) {
	t, err := a.table(table)
	if err != nil {
		return time.Time{}, false, err
	}
	snap, err := t.look(ctx)
	if err != nil {
		return time.Time{}, false, err
	}
	if snap == nil {
		k, err := t.kept(ctx)
		if err != nil {
			return time.Time{}, false, err
		}
		return k.since, len(k.progress) > 0, nil
	}
	f := a.form()
	if _, known = f.found(snap); !known {
		return time.Time{}, false, nil
	}
	if marker, ok := snap.Txns()[f.marker()]; ok && marker.LastUpdated != nil {
		at = time.UnixMilli(*marker.LastUpdated)
	}
	return at, true, nil
}

func (t *table) remember(starts freshet.Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.starts == nil {
		t.starts = freshet.Progress{}
	}
	maps.Copy(t.starts, starts)
}

// start makes one attempt on the snapshot.
func (t *table) start(ctx context.Context, snap *delta.Snapshot, starts freshet.Progress) (
	freshet.Progress, error) {
	f := t.a.form()
	have := freshet.Progress{}
	set := txns{}
	for l, seq := range starts {
		if err := f.checkIdentity(t.name, snap, l); err != nil {
			return nil, err
		}
		if v, ok := snap.Txn(f.lane(l)); ok {
			have[l] = v
			continue
		}
		have[l] = seq
		f.record(set, l, seq)
	}
	if len(set) == 0 {
		return have, nil
	}
	tx := snap.Table().Begin(snap, nil)
	set.addTo(tx, snap)
	t.describe(tx, map[string]string{"freshet.change": "start of lanes"}, nil)
	done, err := tx.Commit(ctx)
	if err == nil {
		t.saw(done.Snapshot)
	}
	return have, err
}

// describe says in the table's history what the commit does, in Spark's words for a streaming query.
func (t *table) describe(tx *delta.Transaction, params, metrics map[string]string) {
	all := t.streaming("Append")
	maps.Copy(all, params)
	if metrics == nil {
		metrics = map[string]string{"numAddedFiles": "0", "numOutputRows": "0", "numOutputBytes": "0"}
	}
	metrics["numRemovedFiles"] = "0"
	tx.Operation("STREAMING UPDATE", all, metrics)
	tx.BlindAppend(true)
}

func (t *table) tooManyRaces() error {
	return &freshet.Error{Code: freshet.CodeConflict, Class: freshet.ClassFailure, Place: t.name,
		Msg: fmt.Sprintf("lost %d races in a row against other writers of the table's progress", maxRaces),
		Fix: "look in the table's history for who else commits under the app " + t.a.app}
}
