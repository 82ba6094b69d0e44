package spec

import (
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
)

// Dedupe is how mode append takes no record twice.
type Dedupe struct {
	Key    []Text
	Within time.Duration
	Time   Text
}

// dedupeKeys are the keys of a target that tell which records it takes once.
func (t *Delta) dedupeKeys() []key {
	return []key{{name: "dedupe", doc: "In mode append, which records are dropped: those of a key that the table has within so " +
		"much time. Default: none.", is: maybe(&t.Dedupe, (*Dedupe).shape)}}
}

func (d *Dedupe) shape() shape {
	return object{keys: []key{
		{name: "key", doc: "The columns that tell records apart.", is: loneOrList(&d.Key, placed), need: true},
		{name: "within", doc: "How far apart in time two records of one key are at least.", is: duration(&d.Within),
			need: true},
		{name: "time", doc: "The timestamp column that is a record's time.", is: placed(&d.Time), need: true},
	}}
}

// checkDedupe finds a window in a mode that has none, and columns that are named twice.
func (t *Delta) checkDedupe(r *reader) {
	if t.Dedupe == nil {
		return
	}
	checkTwice(r, "column", t.Dedupe.columns())
	if at, ok := t.at["dedupe"]; ok && t.keyed() {
		r.add(at, freshet.CodeBadValue, "leave it out, or write mode: append", "dedupe: mode %s has one row a key", t.Mode)
	}
}

// columns are those that it needs.
func (d *Dedupe) columns() []Text {
	if d == nil {
		return nil
	}
	return append(append([]Text(nil), d.Key...), d.Time)
}

func (d *Dedupe) options() *lake.DedupeOptions {
	if d == nil {
		return nil
	}
	return &lake.DedupeOptions{Key: texts(d.Key), Within: d.Within, Time: d.Time.Value}
}
