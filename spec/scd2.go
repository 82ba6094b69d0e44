package spec

import (
	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
)

// historyKey is the key of a Delta target that names the columns of a history.
func (t *Delta) historyKey() key {
	return key{name: "history", doc: "The names of the columns that mode scd2 adds.", is: object{keys: []key{
		{name: "valid_from", doc: "When the row began to be so. Default: valid_from.", is: text(&t.Periods.From)},
		{name: "valid_to", doc: "When it ended; null: it has not. Default: valid_to.", is: text(&t.Periods.To)},
		{name: "is_current", doc: "Whether it has not ended. Default: is_current.", is: text(&t.Periods.Current)},
	}}}
}

// checkHistory finds what a history cannot be like.
func (t *Delta) checkHistory(r *reader) {
	if at, given := t.at["history"]; given && t.Mode != string(lake.SCD2) {
		r.add(at, freshet.CodeBadValue, "write mode: scd2, or leave it out", "history: the mode keeps none")
	}
	if t.Mode != string(lake.SCD2) {
		return
	}
	if len(t.SequenceBy) > 1 {
		r.add(t.SequenceBy[1].at.where, freshet.CodeBadValue, "write the one that says since when a row is so",
			"sequence_by: found %d columns, and mode scd2 takes one", len(t.SequenceBy))
	}
	if d := lake.Deletes(t.Deletes); d != "" && d != lake.HardDeletes && d != lake.IgnoreDeletes {
		r.add(t.at["deletes"], freshet.CodeBadValue, "leave it out: a delete ends the row's time",
			"deletes: found %s, wanted hard or ignore in mode scd2", d)
	}
}
