package spec

import (
	"regexp"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/delta"
)

// txnRetention is the table property by which a table forgets the progress of applications.
const txnRetention = "delta.setTransactionRetentionDuration"

var placeholder = regexp.MustCompile(`\{[^}]*\}?`)

// checkTarget finds what is wrong with the table that rows go to, and with its quarantine.
func (p *Pipeline) checkTarget(r *reader) {
	t := p.Target.Delta
	table := t.Table
	if table.Value == "" {
		table = t.Path
	}
	if table.Value == "" || table.at == nil {
		return
	}
	for _, hole := range placeholder.FindAllString(table.Value, -1) {
		if !p.fits(hole) {
			r.add(table.at.where, freshet.CodeBadValue, p.holes()+" is the one there is",
				"table: found %q, wanted no such placeholder", hole)
			return
		}
	}
	concrete := p.fill(table.Value, "topic")
	if t.Path.Value != "" && !isPath(concrete) {
		concrete = "./" + concrete
		t.Path.Value = "./" + t.Path.Value
	}
	if t.Table.Value != "" && isPath(concrete) {
		r.add(table.at.where, freshet.CodeBadValue, "write path: "+t.Table.Value,
			"table: found %s, wanted namespace.table", r.found(table.at))
		return
	}
	r.takeFault(table.at.where, second(p.Project.TableURL(concrete)))
	checkTwice(r, "partition column", t.PartitionBy)
	p.checkKey(r)
	p.checkBeside(r)
	t.checkHistory(r)
	p.checkLog(r)
	t.checkProperties(r)
	p.checkQuarantine(r)
}

// checkTwice finds columns that are named more than once.
func checkTwice(r *reader, what string, columns []Text) {
	seen := map[string]bool{}
	for _, c := range columns {
		low := strings.ToLower(c.Value)
		if c.Value != "" && seen[low] {
			r.add(c.at.where, freshet.CodeBadValue, "", "%s %q: found it twice, wanted it once", what, c.Value)
		}
		seen[low] = true
	}
}

// checkProperties finds table properties that a new table would be refused for.
func (t *Delta) checkProperties(r *reader) {
	for _, p := range t.Properties {
		if strings.EqualFold(p.Name, txnRetention) {
			r.add(p.at.where, freshet.CodeTxnRetention, "leave it out",
				"%s: %q makes the table forget our progress", p.Name, p.Value)
		} else if err := delta.CheckProperty(p.Name, p.Value); err != nil && p.Value != "" {
			r.add(p.at.where, freshet.CodeBadValue, "", "%v", err)
		}
	}
}

func second(_ string, err error) error { return err }

func (p *Pipeline) checkQuarantine(r *reader) {
	q := p.Quarantine.Table
	if q.Value == "" || q.at == nil {
		return
	}
	for _, hole := range placeholder.FindAllString(q.Value, -1) {
		if !p.fits(hole) && hole != "{ns}" && hole != "{pipeline}" {
			r.add(q.at.where, freshet.CodeBadValue, "", "quarantine table: found %q, wanted {ns}, {pipeline} or "+
				p.holes(), hole)
			return
		}
	}
	r.takeFault(q.at.where, second(p.Project.TableURL(p.quarantineName("topic"))))
	topics := []Text{{Value: "topic"}} // any
	if p.Source.Kafka != nil && len(p.Source.Kafka.Topics) > 0 {
		topics = p.Source.Kafka.Topics
	}
	for _, t := range topics {
		quarantine, err := p.Project.TableURL(p.quarantineName(t.Value))
		table, err2 := p.Project.TableURL(p.fill(p.TargetTable(), t.Value))
		if err == nil && err2 == nil && table == quarantine {
			r.add(q.at.where, freshet.CodeBadValue, "leave it out, for one beside the table",
				"quarantine table: found the target itself, wanted another table")
			return
		}
	}
}

// checkKeyColumns finds columns of the key, and of the sequence, that are not there.
func (p *Pipeline) checkKeyColumns(w *walk) {
	if p.Target.Delta == nil || w.schema == nil {
		return
	}
	var names []string
	for _, f := range w.schema.Fields() {
		names = append(names, f.Name)
	}
	for _, c := range slices.Concat(p.Target.Delta.keyColumns(), p.Target.Delta.SequenceBy, p.Target.Delta.Dedupe.columns(),
		p.Target.Delta.Track, p.Target.Delta.Ignore) {
		same := func(n string) bool { return strings.EqualFold(n, c.Value) }
		if c.at != nil && c.Value != "" && !slices.ContainsFunc(names, same) && !slices.ContainsFunc(w.broken, same) {
			w.r.add(c.at.where, freshet.CodeUnknownColumn, suggest(c.Value, names), "%q is not among the columns", c.Value)
		}
	}
}

// checkPartitions finds partition columns that are not there, or whose type cannot be one.
func (p *Pipeline) checkPartitions(w *walk) {
	if p.Target.Delta == nil || w.schema == nil {
		return
	}
	var names []string
	for _, f := range w.schema.Fields() {
		names = append(names, f.Name)
	}
	same := func(c Text) func(string) bool {
		return func(n string) bool { return strings.EqualFold(n, c.Value) }
	}
	distinct := map[string]bool{}
	for _, c := range p.Target.Delta.PartitionBy {
		i := slices.IndexFunc(names, same(c))
		distinct[strings.ToLower(c.Value)] = true
		switch {
		case c.at == nil || c.Value == "" || slices.ContainsFunc(w.broken, same(c)):
		case i < 0:
			w.r.add(c.at.where, freshet.CodeUnknownColumn, suggest(c.Value, names),
				"partition column %q is not among the columns", c.Value)
		case arrow.IsNested(w.schema.Field(i).Type.ID()):
			w.r.add(c.at.where, freshet.CodeBadValue, "derive a column of a plain type and partition by that",
				"partition column %q: found a nested type, wanted a plain one", c.Value)
		}
	}
	if n := len(distinct); n > 0 && n == len(names) && len(w.broken) == 0 {
		w.r.add(p.Target.Delta.PartitionBy[0].at.where, freshet.CodeBadValue, "",
			"partition_by names all columns, wanted at least one besides")
	}
}
