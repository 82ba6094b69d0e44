package spec

import (
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
)

// feed is the changelog of a table that is its own change data feed.
const feed = "feed"

const changeFeed = "delta.enableChangeDataFeed"

// logKeys are the keys of a Delta target by which changes are told beside the rows that they make.
func (t *Delta) logKeys() []key {
	columns := slices.Concat([]string{"all"}, lake.ChangeColumns(), []string{lake.ChangeTypeColumn})
	return []key{
		{name: "change_columns", doc: "Columns that tell, in each row, of the change that made it. all: all of them. " +
			"_change_type is for mode append. Default: none.",
			is: loneOrList(&t.ChangeColumns, func(s *string) shape { return word(s, columns...) })},
		{name: "changelog", doc: "A table that gets every change as the source sent it, beside the table itself: " +
			"namespace.table, a folder or a URI; {topic} may stand in it. feed: the table's own change data feed, " +
			"which the table is made to record. Default: none.", is: placed(&t.ChangeLog)},
	}
}

// recordsFeed reports whether the table is to record its own changes.
func (t *Delta) recordsFeed() bool {
	return t.ChangeLog.Value == feed || slices.ContainsFunc(t.Properties, func(p Named[string]) bool {
		return strings.EqualFold(p.Name, changeFeed) && strings.EqualFold(p.Value, "true")
	})
}

// changeColumns are those that the file asks for; all leaves out what the table's own change data feed has.
func (t *Delta) changeColumns() []string {
	var out []string
	for _, c := range t.ChangeColumns {
		if c != "all" {
			out = append(out, c)
			continue
		}
		for _, c := range slices.Concat([]string{lake.ChangeTypeColumn}, lake.ChangeColumns()) {
			told := c == lake.ChangeTypeColumn && t.keyed() ||
				t.recordsFeed() && (c == lake.ChangeTypeColumn || c == lake.CommitVersionColumn)
			if !told {
				out = append(out, c)
			}
		}
	}
	return slices.DeleteFunc(out, isEmpty)
}

// tellsKind reports whether rows keep what kind of change made them.
func (t *Delta) tellsKind() bool { return slices.Contains(t.changeColumns(), lake.ChangeTypeColumn) }

// hasLog reports whether there is a table of changes beside each table.
func (t *Delta) hasLog() bool { return t.ChangeLog.Value != "" && t.ChangeLog.Value != feed }

// checkLog finds what is wrong with the change columns and with the change log.
func (p *Pipeline) checkLog(r *reader) {
	t := p.Target.Delta
	seen := map[string]bool{}
	for _, c := range t.changeColumns() {
		at := t.at["change_columns"]
		switch {
		case seen[c]:
			r.add(at, freshet.CodeBadValue, "", "change_columns: found %s twice, wanted it once", c)
		case c == lake.ChangeTypeColumn && t.keyed():
			r.add(at, freshet.CodeBadValue, "leave it out; `changelog:` keeps every change",
				"change_columns: %s is for tables of changes; in mode %s a row is what it is now", c, t.Mode)
		case t.recordsFeed() && (c == lake.ChangeTypeColumn || c == lake.CommitVersionColumn):
			r.add(at, freshet.CodeFilledColumn, "leave it out, or write a table: changelog: "+p.TargetTable()+"_log",
				"change_columns: the table's change data feed has a column %s of its own", c)
		}
		seen[c] = true
	}
	if t.hasLog() && t.ChangeLog.at != nil {
		p.checkLogTable(r)
	}
}

func (p *Pipeline) checkLogTable(r *reader) {
	t := p.Target.Delta
	at, name := t.ChangeLog.at.where, t.ChangeLog.Value
	for _, hole := range placeholder.FindAllString(name, -1) {
		if !p.fits(hole) {
			r.add(at, freshet.CodeBadValue, p.holes()+" is the one there is", "changelog: found %q, wanted no such placeholder", hole)
			return
		}
	}
	if many := strings.Contains(p.TargetTable(), p.hole()); many != strings.Contains(name, p.hole()) {
		r.add(at, freshet.CodeBadValue, "write "+p.hole()+" in both, or in neither",
			"changelog: found %s, wanted one for each table", name)
		return
	}
	log, err := p.Project.TableURL(p.fill(name, "topic"))
	r.takeFault(at, err)
	for what, other := range map[string]string{"the target itself": p.TargetTable(), "the quarantine table": p.quarantineName("topic")} {
		url, err := p.Project.TableURL(p.fill(other, "topic"))
		if err == nil && url == log {
			r.add(at, freshet.CodeBadValue, "write another name", "changelog: found %s, wanted another table", what)
		}
	}
}

// checkFilled finds columns of the source that the target is to fill.
func (p *Pipeline) checkFilled(w *walk) {
	t := p.Target.Delta
	if t == nil || w.schema == nil {
		return
	}
	for _, f := range lake.FilledColumns(t.modeOptions()) {
		if !slices.ContainsFunc(w.schema.Fields(), func(s arrow.Field) bool { return strings.EqualFold(s.Name, f.Name) }) {
			continue
		}
		what := "change_columns"
		switch {
		case f.Name == lake.DeletedAtColumn:
			what = "deletes"
		case slices.Contains(lake.ChangeColumns(), f.Name), f.Name == lake.ChangeTypeColumn:
		default:
			what = "mode" // of a history
		}
		w.r.add(t.at[what], freshet.CodeFilledColumn, "rename the source's in a select step, or have the target not fill it",
			"%q is among the columns, and the target is to fill it", f.Name)
	}
}

// changeLogOf is the change log of a target table.
func (p *Pipeline) changeLogOf(table string) string {
	return p.fill(p.Target.Delta.ChangeLog.Value, p.topicOf(table))
}

// ofChangeLog is the table whose change log has this name.
func (p *Pipeline) ofChangeLog(log string) string {
	before, after, many := strings.Cut(p.Target.Delta.ChangeLog.Value, p.hole())
	if !many {
		return p.TargetTable()
	}
	return p.fill(p.TargetTable(), strings.TrimSuffix(strings.TrimPrefix(log, before), after))
}

// Writes reports whether a table is one that the pipeline writes, as far as its file tells, and whether that is one of many.
func (p *Pipeline) Writes(table string) (is, many bool) {
	before, after, many := strings.Cut(p.TargetTable(), p.hole())
	if !many {
		return table == p.TargetTable(), false
	}
	filled, ok := strings.CutPrefix(table, before)
	if ok {
		filled, ok = strings.CutSuffix(filled, after)
	}
	return ok && filled != "" && (p.Source.Postgres == nil || p.mayRead(filled)), true
}

// topicOf is what stands for {topic} in the name of a target table; "" when nothing does.
func (p *Pipeline) topicOf(table string) string {
	if before, after, ok := strings.Cut(p.TargetTable(), p.hole()); ok {
		return strings.TrimSuffix(strings.TrimPrefix(table, before), after)
	}
	return ""
}
