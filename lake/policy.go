package lake

import (
	"context"
	"errors"
	"fmt"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// deletesProperty is the table property that says what becomes of deleted rows in a keyed table. It is a property, and not
// domain metadata, which would be a feature of the table that old writers lack; and everybody can see it. Whoever applies
// changes to the table must have the same policy: with another one, half of its deletes would have left no trace.
const deletesProperty = "freshet.deletes"

// checkDeletes says whether the table's policy for deletes is ours. Errors: *freshet.Error with CodeDeletesChanged.
func (t *table) checkDeletes(snap *delta.Snapshot) error {
	ours, theirs := t.a.opts.Key.Deletes, Deletes(snap.Property(deletesProperty))
	if !t.a.opts.Mode.keyed() || theirs == "" || theirs == ours {
		return nil
	}
	fix := fmt.Sprintf("set deletes to %s; or confirm that it changes with deletes_before: %s (--deletes-before %s)", theirs,
		theirs, theirs)
	if before := t.a.opts.Key.DeletesBefore; before != "" {
		fix = fmt.Sprintf("deletes_before says %s: write %s if that is to become %s", before, theirs, ours)
	}
	return &freshet.Error{Code: freshet.CodeDeletesChanged, Class: freshet.ClassInput, Place: t.name,
		Msg: fmt.Sprintf("deletes: found %s, and the table's have been %s so far", ours, theirs), Fix: fix}
}

// settleDeletes records the policy for deletes in a table that has none, or changes it where that is confirmed. It returns
// the table's snapshot then. Errors: as checkDeletes.
func (t *table) settleDeletes(ctx context.Context, snap *delta.Snapshot) (*delta.Snapshot, error) {
	k := &t.a.opts.Key
	for range maxRaces {
		theirs := Deletes(snap.Property(deletesProperty))
		if !t.a.opts.Mode.keyed() || theirs == k.Deletes {
			return snap, nil
		}
		if theirs != "" && theirs != k.DeletesBefore {
			return nil, t.checkDeletes(snap)
		}
		done, err := t.recordDeletes(ctx, snap, theirs)
		if err == nil {
			t.saw(done.Snapshot)
			return done.Snapshot, nil
		}
		if !errors.Is(err, delta.ErrConflict) {
			return nil, explain(t.name, err)
		}
		if snap, err = t.look(ctx); err != nil {
			return nil, err
		}
	}
	return nil, t.tooManyRaces()
}

// recordDeletes commits the policy, and what it was before, for the table's history.
func (t *table) recordDeletes(ctx context.Context, snap *delta.Snapshot, before Deletes) (delta.CommitResult, error) {
	meta := snap.Metadata().Clone()
	meta.Configuration[deletesProperty] = string(t.a.opts.Key.Deletes)
	tx := snap.Table().Begin(snap, nil)
	tx.SetMetadata(meta)
	params := map[string]string{"properties": fmt.Sprintf(`{"%s":"%s"}`, deletesProperty, t.a.opts.Key.Deletes),
		"freshet.app": t.a.app}
	if before != "" {
		params["freshet.deletesBefore"] = string(before)
	}
	tx.Operation("SET TBLPROPERTIES", params, nil)
	return tx.Commit(ctx)
}
