package lake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// The table properties that say how changes are applied to a keyed table, and what becomes of deleted rows in it. They are
// properties, and not domain metadata, which would be a feature of the table that old writers lack; and everybody can see
// them. Whoever applies changes to the table must say the same: with another policy for deletes half of them would have left
// no trace, with another key or order rows would come twice or go back. A table to which rows are only added has neither.
const (
	deletesProperty = "freshet.deletes"
	modeProperty    = "freshet.mode"
)

// modeText is the mode of a table with its key, its order and what it tracks, as modeProperty and ModeBefore have it.
func (o *TargetOptions) modeText(table string) string {
	if !o.Mode.keyed() {
		return string(o.Mode)
	}
	text := string(o.Mode) + " by " + strings.Join(o.keyOf(table), ", ")
	if o.multiset(table) {
		text = string(o.Mode) + " by whole rows"
	}
	if len(o.Key.SequenceBy) > 0 {
		text += ", ordered by " + strings.Join(o.Key.SequenceBy, ", ")
	}
	if o.Mode == SCD2 {
		text += o.Periods.text()
	}
	return text
}

// keyedText stands for the mode of a keyed table that does not record it.
const keyedText = "one row a key"

// foundMode is the mode that the table has had; "" where it does not say.
func foundMode(snap *delta.Snapshot) string {
	mode := snap.Property(modeProperty)
	if mode == "" && snap.Property(deletesProperty) != "" {
		return keyedText
	}
	return mode
}

// checkPolicies says whether the table's mode and policy for deletes are ours. Errors: *freshet.Error with CodeModeChanged
// or CodeDeletesChanged.
func (t *table) checkPolicies(snap *delta.Snapshot) error {
	_, err := t.policies(snap, false)
	return err
}

// policies are the properties that the table is to get so that it says how changes are applied, and what is masked. confirmed takes what the
// options confirm for said.
func (t *table) policies(snap *delta.Snapshot, confirmed bool) (map[string]string, error) {
	o := &t.opts
	set := map[string]string{}
	if err := t.maskPolicies(snap, set); err != nil {
		return nil, err
	}
	ours, theirs := o.modeText(t.name), foundMode(snap)
	adopted := theirs == "" || theirs == keyedText && o.Mode.keyed()
	switch {
	case strings.EqualFold(ours, theirs), adopted && !o.Mode.keyed():
	case adopted, confirmed && strings.EqualFold(theirs, o.ModeBefore):
		set[modeProperty] = ours
	default:
		return nil, t.modeChanged(ours, theirs)
	}
	if !o.Mode.keyed() {
		return set, nil
	}
	policy, before := string(o.Key.Deletes), snap.Property(deletesProperty)
	switch {
	case policy == before:
	case before == "", confirmed && before == string(o.Key.DeletesBefore):
		set[deletesProperty] = policy
	default:
		return nil, t.deletesChanged(before)
	}
	return set, nil
}

func (t *table) modeChanged(ours, theirs string) error {
	fix := fmt.Sprintf("write to another table, or set mode, key and sequence_by as they were; or confirm that they change with "+
		"mode_before: %q", theirs)
	if before := t.opts.ModeBefore; before != "" {
		fix = fmt.Sprintf("mode_before says %q: write %q if that is to become %s", before, theirs, ours)
	}
	return &freshet.Error{Code: freshet.CodeModeChanged, Class: freshet.ClassInput, Place: t.name,
		Msg: fmt.Sprintf("mode: found %s, and changes were applied to the table as %s so far", ours, theirs), Fix: fix}
}

func (t *table) deletesChanged(theirs string) error {
	ours := t.opts.Key.Deletes
	fix := fmt.Sprintf("set deletes to %s; or confirm that it changes with deletes_before: %s (--deletes-before %s)", theirs,
		theirs, theirs)
	if before := t.opts.Key.DeletesBefore; before != "" {
		fix = fmt.Sprintf("deletes_before says %s: write %s if that is to become %s", before, theirs, ours)
	}
	return &freshet.Error{Code: freshet.CodeDeletesChanged, Class: freshet.ClassInput, Place: t.name,
		Msg: fmt.Sprintf("deletes: found %s, and the table's have been %s so far", ours, theirs), Fix: fix}
}

// settlePolicies records in the table how changes are applied to it, where it does not say, or changes that where it is
// confirmed. It returns the table's snapshot then. Errors: as checkPolicies.
func (t *table) settlePolicies(ctx context.Context, snap *delta.Snapshot) (*delta.Snapshot, error) {
	for range maxRaces {
		set, err := t.policies(snap, true)
		if err != nil || len(set) == 0 {
			return snap, err
		}
		done, err := recordPolicies(ctx, snap, t.a.app, set)
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

// recordPolicies commits the properties, and what they were before, for the table's history.
func recordPolicies(ctx context.Context, snap *delta.Snapshot, app string, set map[string]string) (delta.CommitResult, error) {
	meta := snap.Metadata().Clone()
	params := map[string]string{"freshet.app": app}
	for name, value := range set {
		if before := meta.Configuration[name]; before != "" {
			params[name+"Before"] = before
		}
		meta.Configuration[name] = value
	}
	text, err := json.Marshal(set)
	if err != nil {
		return delta.CommitResult{}, err
	}
	params["properties"] = string(text)
	tx := snap.Table().Begin(snap, nil)
	tx.SetMetadata(meta)
	tx.Operation("SET TBLPROPERTIES", params, nil)
	return tx.Commit(ctx)
}
