package spec

import (
	"strconv"
	"strings"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
)

// Tombstones are how deleted keys are remembered.
type Tombstones struct {
	Table     Text
	Keep      time.Duration // of the source
	KeepCount int64         // in the place of Keep
}

// deleteKeys are the keys of a target that tell what becomes of deleted rows.
func (t *Delta) deleteKeys() []key {
	return []key{
		{name: "deletes", doc: "What becomes of a row whose key is gone. hard: it is deleted. soft: it stays, with the " +
			"time in _deleted_at. log: it is deleted, and added to deleted_table. ignore: it stays. Default: hard.",
			is: word(&t.Deletes, "hard", "soft", "log", "ignore")},
		{name: "deletes_before", doc: "What deletes was, to confirm that it is to be changed in a table that is there.",
			is: word(&t.DeletesBefore, "hard", "soft", "log", "ignore")},
		{name: "deleted_table", doc: "The table for deletes: log; {topic} may stand in it. Default: the table's name with " +
			"_deleted behind it.", is: placed(&t.Deleted)},
		{name: "tombstones", doc: "How deleted keys are remembered in mode upsert with sequence_by, so that no change that " +
			"comes late brings them back.", is: t.Tombstones.shape()},
	}
}

func (t *Tombstones) shape() shape {
	return object{keys: []key{
		{name: "table", doc: "The table that remembers them; {topic} may stand in it. Default: the table's name with " +
			"_tombstones behind it.", is: placed(&t.Table)},
		{name: "keep", doc: "For how long, where the first column of sequence_by is a time: until a change comes that is as " +
			"much later. Else how many. Default: 7d, or 10000000.", is: t.keepShape()},
	}}
}

func (t *Tombstones) keepShape() shape {
	return one{json: map[string]any{"anyOf": []any{map[string]any{"type": "integer", "minimum": 1},
		map[string]any{"type": "string", "pattern": `^([0-9.]+(ms|s|m|h|d))+$`, "examples": []string{"7d"}}}},
		parse: func(s string) (string, bool) {
			const wanted = "a time with a unit, such as 7d, or a whole number of at least 1"
			if n, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64); err == nil {
				t.KeepCount = n
				return wanted, n > 0
			}
			d, ok := parseDuration(s)
			t.Keep = d
			return wanted, ok && d > 0
		}}
}

// checkDeletes finds settings of deletes that mean nothing beside the others.
func (t *Delta) checkDeletes(r *reader) {
	fault := func(name, fix, why string) {
		if at, ok := t.at[name]; ok {
			r.add(at, freshet.CodeBadValue, fix, "%s: %s", name, why)
		}
	}
	switch {
	case !t.keyed():
		for _, name := range []string{"deletes", "deletes_before", "deleted_table", "tombstones"} {
			fault(name, "write mode: upsert or mirror, or leave it out", "mode append deletes nothing")
		}
		return
	case t.DeletesBefore != "" && (t.DeletesBefore == t.Deletes || t.Deletes == "" && t.DeletesBefore == "hard"):
		fault("deletes_before", "leave it out, or write what deletes was before", "it is what deletes says")
	}
	if t.Deletes != "log" {
		fault("deleted_table", "write deletes: log, or leave it out", "deleted rows go there with deletes: log alone")
	}
	if t.Mode == "mirror" || len(t.SequenceBy) == 0 || t.Deletes == "ignore" {
		fault("tombstones", "leave it out", "deleted keys are remembered in mode upsert with sequence_by alone: in the order of "+
			"the source nothing comes late")
	}
}

// deleteOptions are what the target says of deletes, of tables beside that of the pipeline.
func (p *Pipeline) deleteOptions(k *lake.KeyOptions) {
	t := p.Target.Delta
	beside := func(name Text) func(string) string {
		if name.Value == "" {
			return nil
		}
		return func(table string) string { return p.fill(name.Value, p.topicOf(table)) }
	}
	k.DeletesBefore, k.Deleted = lake.Deletes(t.DeletesBefore), beside(t.Deleted)
	k.Tombstones = lake.TombstoneOptions{Table: beside(t.Tombstones.Table), Keep: t.Tombstones.Keep,
		KeepCount: t.Tombstones.KeepCount}
}

// checkBeside finds tables beside the target that are the target, or no tables.
func (p *Pipeline) checkBeside(r *reader) {
	t := p.Target.Delta
	main, err := p.Project.TableURL(p.fill(p.TargetTable(), "topic"))
	for _, b := range []struct {
		what string
		name Text
	}{{"deleted_table", t.Deleted}, {"tombstones", t.Tombstones.Table}} {
		if b.name.Value == "" || b.name.at == nil {
			continue
		}
		url, fault := p.Project.TableURL(p.fill(b.name.Value, "topic"))
		r.takeFault(b.name.at.where, fault)
		if err == nil && fault == nil && url == main {
			r.add(b.name.at.where, freshet.CodeBadValue, "write another name", "%s: found the target itself, wanted another table",
				b.what)
		}
	}
}
