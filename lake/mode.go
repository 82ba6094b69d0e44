package lake

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// Mode is how a target applies changes to a table.
type Mode string

// The modes.
const (
	Append Mode = "append" // every row is added; what kind of change it is is not looked at
	Upsert Mode = "upsert" // the table holds one row a key: the one whose sequence is greatest
	Mirror Mode = "mirror" // the table holds one row a key, as the source has it after its last change
)

// keyed reports whether the mode finds rows by their key.
func (m Mode) keyed() bool { return m == Upsert || m == Mirror || m == SCD2 }

// Deletes is what becomes of a row whose key is gone.
type Deletes string

// The policies for deletes.
const (
	HardDeletes   Deletes = "hard"   // the row is deleted
	SoftDeletes   Deletes = "soft"   // the row stays, with the time of the delete in DeletedAtColumn
	LogDeletes    Deletes = "log"    // the row is deleted, and added to the table that KeyOptions.Deleted names
	IgnoreDeletes Deletes = "ignore" // nothing: the row stays as it is
)

// empties reports whether a Truncate empties a table. Where deleted rows are kept, marked or logged, or something orders
// changes, that is not done.
func (o *TargetOptions) empties() bool { return o.Mode == Mirror && o.Key.Deletes == HardDeletes }

// KeyOptions say how rows are told apart, for Upsert, Mirror and SCD2.
type KeyOptions struct {
	// Columns are the columns of the key, of atomic types. None may be null.
	Columns []string
	// Of gives the key of each table, in the place of Columns: nil where it is not known, which is refused; no columns, and not nil, for
	// a table that has no key. Mirror with HardDeletes takes that: its rows are told apart by all columns that the source has, and
	// several may be alike. It is asked when the table is made or opened, and later, by any goroutine. Default: all have the key Columns.
	Of func(table string) []string
	// SequenceBy are the columns that order the changes of a key, first the one that weighs most; none may be null. A
	// change below the row that is there is dropped. Default: none, changes come in the order of their lane.
	SequenceBy []string
	// Deletes is the policy for deletes. It is recorded in the table, and must stay as it is. Default HardDeletes.
	Deletes Deletes
	// DeletesBefore is the policy that the table has had, to confirm that it is to be another one. Default: none.
	DeletesBefore Deletes
	// Deleted names the table to which LogDeletes adds the deleted rows of a table. Default DeletedName.
	Deleted func(table string) string
	// Tombstones say how deleted keys are remembered.
	Tombstones TombstoneOptions
	// CopyOnWrite rewrites files that lose rows, for readers that know no deletion vectors.
	CopyOnWrite bool
	// IndexDir is the folder below which key indexes lie, one a table. It may be lost at any time. Default: freshet/index
	// in the user's cache folder.
	IndexDir string
}

func (o *TargetOptions) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if o.Upkeep != nil {
		if err := o.Upkeep.Validate(); err != nil {
			fault("upkeep: %w", err)
		}
	}
	switch o.Mode {
	case Append, Upsert, Mirror, SCD2:
	default:
		fault("mode: found %q, wanted append, upsert, mirror or scd2", o.Mode)
	}
	o.checkChangeColumns(fault)
	o.checkHistory(fault)
	k := o.Key
	switch {
	case o.Dedupe != nil && o.Mode.keyed():
		fault("dedupe: mode %s has one row a key; wanted mode append for it", o.Mode)
	case o.Dedupe != nil:
		o.Dedupe.check(fault)
	}
	if !o.Mode.keyed() {
		if len(k.Columns)+len(k.SequenceBy) > 0 || k.Deletes != HardDeletes {
			fault("mode append has no key: found key, sequence_by or deletes; wanted mode upsert or mirror for them")
		}
		return errors.Join(faults...)
	}
	if len(k.Columns) == 0 && k.Of == nil {
		fault("key: found none, and mode %s tells rows apart by it; wanted at least one column", o.Mode)
	}
	if o.Mode == Mirror && len(k.SequenceBy) > 0 {
		fault("sequence_by: mode mirror takes changes in the order of the source; wanted mode upsert for an order by columns")
	}
	switch k.Deletes {
	case HardDeletes, SoftDeletes, LogDeletes, IgnoreDeletes:
	default:
		fault("deletes: found %q, wanted hard, soft, log or ignore", k.Deletes)
	}
	for _, list := range [][]string{k.Columns, k.SequenceBy} {
		seen := map[string]bool{}
		for _, c := range list {
			if low := strings.ToLower(c); seen[low] {
				fault("the column %q is named twice", c)
			} else {
				seen[low] = true
			}
		}
	}
	return errors.Join(faults...)
}

// checkKey finds columns of the key, and of the sequence, that a table would not have.
func (o *TargetOptions) checkKey(table string, rows *delta.Schema) error {
	key := o.keyOf(table)
	if o.Mode.keyed() && len(key) == 0 && !o.multiset(table) {
		return &freshet.Error{Code: freshet.CodeBadValue, Class: freshet.ClassInput, Place: table,
			Msg: fmt.Sprintf("no key of the table is known, and mode %s with deletes: %s tells rows apart by it", o.Mode, o.Key.Deletes),
			Fix: "give the table a primary key in its database, or name a topic's key under keys; leave the table out, or use mode append; " +
				"mode mirror with deletes: hard takes tables of databases that have no key"}
	}
	columns := slices.Concat(key, o.Key.SequenceBy, o.Periods.Track, o.Periods.Ignore)
	if o.Dedupe != nil {
		columns = o.Dedupe.columns()
	}
	for _, c := range columns {
		if f, _ := rows.Lookup(c); f == nil {
			return &freshet.Error{Code: freshet.CodeUnknownColumn, Class: freshet.ClassInput, Place: table,
				Msg: fmt.Sprintf("key, sequence or history column %q: found the columns %s", c, columnNames(rows)),
				Fix: "derive it in a step, or name a column that is there"}
		}
	}
	return nil
}

// properties are those of a table that is made.
func (o *TargetOptions) properties(table string) map[string]string {
	all := map[string]string{}
	if o.Mode.keyed() && !o.Key.CopyOnWrite {
		all["delta.enableDeletionVectors"] = "true"
	}
	if o.Mode.keyed() {
		all[deletesProperty], all[modeProperty] = string(o.Key.Deletes), o.modeText(table)
	}
	maps.Copy(all, o.Properties)
	maps.Copy(all, maskProperties(o.Masks))
	if o.ChangeFeed {
		all[changeFeed] = "true"
	}
	return all
}
