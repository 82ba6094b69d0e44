package spec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/postgres"
)

var matchText = regexp.MustCompile(`^[^\s{}]+$`)

// checkOverrides finds what is wrong with what is said of some tables.
func (p *Pipeline) checkOverrides(r *reader) {
	if p.Target.Delta == nil {
		return
	}
	for i := range p.Target.Overrides {
		o := &p.Target.Overrides[i]
		p.checkMatch(r, o)
		p.checkRules(r, o)
		checkTwice(r, "partition column", o.PartitionBy)
		(&Delta{Properties: o.Properties}).checkProperties(r)
		one := *p.Target.Delta // as it is for these tables
		one.at, one.DeletesBefore = o.at, o.DeletesBefore
		if o.SequenceBy != nil {
			one.SequenceBy = o.SequenceBy
			one.checkSequence(r)
		}
		if o.Deletes != "" {
			one.Deletes = o.Deletes
			one.checkDeletes(r)
		} else if at, given := o.at["deletes_before"]; given {
			r.add(at, freshet.CodeMissing, "write deletes beside it", "deletes_before: found no deletes that it was before")
		}
		if o.PartitionBy == nil {
			one.PartitionBy = p.Target.Delta.PartitionBy
		} else {
			one.PartitionBy = o.PartitionBy
		}
		one.checkHidden(r, o)
	}
}

// checkMatch finds overrides that no table has.
func (p *Pipeline) checkMatch(r *reader, o *Override) {
	n := o.Match.at
	if n == nil || n.open || o.Match.Value == "" {
		return
	}
	add := func(fix, format string, args ...any) { r.add(n.where, freshet.CodeBadValue, fix, format, args...) }
	if !matchText.MatchString(o.Match.Value) {
		add("", "match: found %s, wanted a name in which * stands for any characters", r.found(n))
		return
	}
	all := strings.Trim(o.Match.Value, "*.") == ""
	if !all && !strings.Contains(p.TargetTable(), p.hole()) && !p.readsOne() {
		add(`write match: "*", or `+p.holes()+" in the table's name", "match: all rows go to one table, for which one thing can be said")
		return
	}
	names, whole := p.sourceNames()
	if whole && !all && len(names) > 0 && !slices.ContainsFunc(names, o.pattern().MatchString) {
		add(suggest(o.Match.Value, names), "match: %s is none of the tables that the pipeline reads: %s", r.found(n), join(names))
	}
}

// readsOne reports whether one table, or topic, is read.
func (p *Pipeline) readsOne() bool {
	names, whole := p.sourceNames()
	return whole && len(names) < 2
}

// sourceNames are the tables or topics that the file names; whole is false where it names some by patterns.
func (p *Pipeline) sourceNames() (names []string, whole bool) {
	if s := p.Source.Postgres; s != nil {
		names = texts(s.Tables)
		return names, len(names) > 0 && !slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, "*") })
	}
	return texts(p.kafka().Topics), p.kafka().Pattern.Value == ""
}

// checkRules finds masks without a key, or with one that can be guessed.
func (p *Pipeline) checkRules(r *reader, o *Override) {
	short := func(s Secret, at place) {
		if n := len(s.Reveal()); n > 0 && n < leastSalt {
			r.add(at, freshet.CodeBadValue, "make one: openssl rand -hex 32", "salt: found %d characters, wanted at least %d: a short one "+
				"can be guessed, and with it the values", n, leastSalt)
		}
	}
	short(o.Salt, o.at["salt"])
	_, salted := o.at["salt"]
	for i := range o.Columns {
		c := &o.Columns[i]
		short(c.Value.Salt, c.Value.at["salt"])
		_, own := c.Value.at["salt"]
		const fix = `write salt: "${secret:env:NAME}" beside columns`
		switch {
		case c.Value.Drop && own:
			r.add(c.Value.at["salt"], freshet.CodeBadValue, "leave it out", "salt: the column %q is left out, and is not hashed", c.Name)
		case own || salted:
		case c.Value.Mask != "":
			r.add(c.at.where, freshet.CodeMissing, fix, "column %q: mask needs a salt, the secret key of the hash", c.Name)
		case c.Value.Drop && p.Source.Kafka != nil:
			r.add(c.at.where, freshet.CodeMissing, fix, "column %q: records that go to quarantine have it, and need a salt to be sealed under",
				c.Name)
		}
	}
}

// checkSequence finds an order where the mode has none.
func (t *Delta) checkSequence(r *reader) {
	checkTwice(r, "sequence column", t.SequenceBy)
	switch {
	case t.Mode == "mirror":
		r.add(t.SequenceBy[0].at.where, freshet.CodeBadValue, "write mode: upsert for an order by columns",
			"sequence_by: mode mirror takes changes in the order of the source")
	case !t.keyed():
		r.add(t.SequenceBy[0].at.where, freshet.CodeBadValue, "write mode: upsert, or leave it out",
			"sequence_by: mode append adds every record, in any order")
	}
}

// checkHidden finds hidden columns of which a table needs what is hidden: those that are left out by name, and the values of those that
// order changes.
func (t *Delta) checkHidden(r *reader, o *Override) {
	for _, h := range o.Columns {
		is := func(c Text) bool { return strings.EqualFold(h.Name, c.Value) }
		switch {
		case h.Value.Drop && slices.ContainsFunc(slices.Concat(t.keyColumns(), t.SequenceBy, t.PartitionBy, t.Dedupe.columns()), is):
			r.add(h.at.where, freshet.CodeBadValue, "mask it, or name another there",
				"column %q: it cannot be left out, as the table's key, order or partitions are by it", h.Name)
		case h.Value.Mask != "" && slices.ContainsFunc(t.SequenceBy, is):
			r.add(h.at.where, freshet.CodeBadValue, "let it be as it is, or order changes by another",
				"column %q: it cannot be masked, as sequence_by orders changes by it: hashes are in no order", h.Name)
		}
	}
}

// hideColumns takes the hidden columns out of those that come into the steps, or makes text of them, and finds those that are not there.
// Where topics differ in what they hide, what comes is not known.
func (p *Pipeline) hideColumns(w *walk) {
	if w.schema == nil || !p.hides() {
		return
	}
	var names []string
	for _, f := range w.schema.Fields() {
		names = append(names, f.Name)
	}
	for i := range p.Target.Overrides {
		for _, c := range p.Target.Overrides[i].Columns {
			same := func(n string) bool { return strings.EqualFold(n, c.Name) }
			if !slices.ContainsFunc(names, same) && !slices.ContainsFunc(w.broken, same) {
				w.r.add(c.at.where, freshet.CodeUnknownColumn, suggest(c.Name, names), "%q is not among the columns", c.Name)
			}
		}
	}
	topics := texts(p.kafka().Topics)
	var out *arrow.Schema
	for _, topic := range topics {
		schema := w.schema
		if mask := p.maskStep([]string{topic}); mask != nil {
			var err error
			if schema, err = mask.Plan(w.schema); err != nil {
				w.r.takeFault(p.Target.Overrides[0].Match.at.where, err)
				w.schema = nil
				return
			}
		}
		if out != nil && !out.Equal(schema) {
			w.schema = nil
			return
		}
		out = schema
	}
	w.schema = out
}

// checkOverridesOn finds overrides, and columns of them, that the database does not have.
func (p *Pipeline) checkOverridesOn(tables []postgres.Surveyed) (found []postgres.Finding) {
	for i := range p.Target.Overrides {
		o := &p.Target.Overrides[i]
		is, any := o.pattern(), false
		missing := map[string]bool{}
		for _, c := range o.Columns {
			missing[c.Name] = true
		}
		for _, t := range tables {
			if !is.MatchString(t.Schema + "." + t.Name) {
				continue
			}
			any = true
			for name := range missing {
				if slices.ContainsFunc(t.Columns, func(c string) bool { return strings.EqualFold(c, name) }) {
					delete(missing, name)
				}
			}
		}
		if !any {
			found = append(found, postgres.Finding{Severity: postgres.Warns, Object: "override " + o.Match.Value,
				Message: "found no table of this name among those that are read: what it says is said of none"})
			continue
		}
		for _, c := range o.Columns {
			if missing[c.Name] {
				found = append(found, postgres.Finding{Severity: postgres.Warns, Object: fmt.Sprintf("override %s, column %s", o.Match.Value, c.Name),
					Message: "found no such column in any table that it matches: nothing is masked or left out by it"})
			}
		}
	}
	return found
}
