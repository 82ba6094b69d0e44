package spec

import (
	"slices"
	"strings"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
)

// historyKey is the key of a Delta target that names the columns of a history.
func (t *Delta) historyKey() key {
	p := &t.Periods
	doc := "What mode scd2 keeps the history of, and the names of the columns that it adds."
	return key{name: "history", doc: doc, is: object{keys: []key{
		{name: "track", doc: "The columns whose changes begin a row; what changes others alone changes the row. Default: all.",
			is: loneOrList(&t.Track, placed)},
		{name: "ignore", doc: "In the place of track, the columns whose changes begin no row. Default: none.",
			is: loneOrList(&t.Ignore, placed)},
		{name: "repeats", doc: "How many repeats a row keeps the sequences of, for what comes late. Default: 100.",
			is: whole(&t.Repeats, 1)},
		{name: "valid_from", doc: "When the row began to be so. Default: valid_from.", is: text(&p.From)},
		{name: "valid_to", doc: "When it ended; null: it has not. Default: valid_to.", is: text(&p.To)},
		{name: "is_current", doc: "Whether it has not ended. Default: is_current.", is: text(&p.Current)},
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
	checkTwice(r, "column", t.Track)
	checkTwice(r, "column", t.Ignore)
	if len(t.Track) > 0 && len(t.Ignore) > 0 {
		r.add(t.Ignore[0].at.where, freshet.CodeBadValue, "keep one of them", "history: found both track and ignore")
	}
	for _, c := range slices.Concat(t.Track, t.Ignore) {
		mine := func(k Text) bool { return c.Value != "" && strings.EqualFold(k.Value, c.Value) }
		if slices.ContainsFunc(slices.Concat(t.keyColumns(), t.SequenceBy), mine) {
			r.add(c.at.where, freshet.CodeBadValue, "leave it out",
				"history: %q is of the key or the sequence, which are not tracked", c.Value)
		}
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
