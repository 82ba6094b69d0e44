package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
)

// Days is what a pipeline says of the ends of days.
type Days struct {
	Keep int64         // for how many days; 0: days are not told apart
	Late string        // what becomes of records that come after their day was over
	Wait time.Duration // for how long a lane is waited for that gives nothing
	Zone string        // where days begin at midnight; "": UTC
}

// cutKeys are the keys of a pipeline that tell of cuts and days.
func (p *Pipeline) cutKeys() []key {
	return []key{
		{name: "cut_retention", doc: "For how long vacuum and log cleanup keep the versions that a cut names. Default: " +
			"7d.", is: duration(&p.CutRetention)},
		{name: "keep_daily", doc: "For how many days the cut at the end of each day (by the source's time, in day_zone) is kept. " +
			"Default: days are not told apart.", is: whole(&p.Days.Keep, 1)},
		{name: "late", doc: "What becomes of a record that comes after its day was over. next: it counts to the day that " +
			"is open. reopen: the end of its day moves to the cut that has it. Default: next.",
			is: word(&p.Days.Late, "next", "reopen")},
		{name: "day_wait", doc: "For how long, at the end of a day, a partition is waited for that gives nothing; and how " +
			"far clocks may be apart. Default: 1m.", is: duration(&p.Days.Wait)},
		{name: "day_zone", doc: "The time zone in which days begin at midnight, such as Europe/Berlin. Default: UTC.",
			is: zone(&p.Days.Zone)},
	}
}

// zone is the name of a time zone.
func zone(into *string) shape {
	return one{json: map[string]any{"type": "string", "examples": []string{"UTC", "Europe/Berlin"}},
		parse: func(s string) (string, bool) {
			*into = s
			_, err := time.LoadLocation(s)
			return "a time zone such as Europe/Berlin, which this machine knows", err == nil && s != "" && s != "Local"
		}}
}

// checkCuts finds settings of cuts that exclude each other, and a cuts table that is another one.
func (p *Pipeline) checkCuts(r *reader) {
	t := p.Target.Delta
	for name, is := range map[string]bool{"late": p.Days.Late != "", "day_wait": p.Days.Wait != 0,
		"day_zone": p.Days.Zone != ""} {
		if at, ok := p.at[name]; ok && is && p.Days.Keep == 0 {
			r.add(at, freshet.CodeBadValue, "write keep_daily: 90, or leave it out",
				"%s: days are not told apart without keep_daily", name)
		}
	}
	if t == nil || t.Cuts.at == nil {
		return
	}
	switch at := t.Cuts.at.where; {
	case t.Cuts.Value == "false" && p.Days.Keep > 0:
		r.add(at, freshet.CodeBadValue, "leave cuts out, or keep_daily",
			"cuts: found false, and keep_daily keeps the cuts at the ends of days")
	case t.Cuts.Value == "true", t.Cuts.Value == "false", t.Cuts.Value == "":
	case strings.Contains(t.Cuts.Value, "{"):
		r.add(at, freshet.CodeBadValue, "", "cuts: found %q, wanted one table for the pipeline, without placeholders",
			t.Cuts.Value)
	default:
		cuts, err := p.Project.TableURL(t.Cuts.Value)
		r.takeFault(at, err)
		table, err2 := p.Project.TableURL(p.fill(p.TargetTable(), "topic"))
		if err == nil && err2 == nil && cuts == table {
			r.add(at, freshet.CodeBadValue, "leave it out, for one beside the table",
				"cuts: found the target itself, wanted another table")
		}
	}
}

// CutsTable is the pipeline's cuts table; "" when it records none.
func (p *Pipeline) CutsTable() string {
	t := p.Target.Delta
	switch t.Cuts.Value {
	case "", "true":
	case "false":
		return ""
	default:
		return t.Cuts.Value
	}
	return p.besideTables("_cuts")
}

// besideTables names a table of the pipeline's own beside its tables.
func (p *Pipeline) besideTables(suffix string) string {
	if table := p.TargetTable(); isPath(table) {
		return strings.TrimRight(p.fill(table, p.Name.Value), "/") + suffix
	}
	ns, _, _ := strings.Cut(p.TargetTable(), ".")
	if strings.Contains(ns, "{") {
		ns = p.Namespace
	}
	return ns + "." + p.Name.Value + suffix
}

// cuts are the target's options for cuts; nil when it records none.
func (p *Pipeline) cuts() *lake.CutOptions {
	table := p.CutsTable()
	if table == "" {
		return nil
	}
	asked := p.Target.Delta.Cuts.Value != ""
	return &lake.CutOptions{Table: table, Always: asked || p.Days.Keep > 0, Plan: p.plan(),
		Retention: p.CutRetention, KeepDays: int(p.Days.Keep),
		Of:    func(table string) bool { _, err := p.KnownTable(table); return err == nil },
		Reads: func(l freshet.Lane) bool { return p.reads(l.Origin) || l.OriginID == "" }}
}

// plan is a hash of what decides which tables the pipeline has and how changes get into them.
func (p *Pipeline) plan() string {
	t := p.Target.Delta
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q %q %q %q %q %d", p.TargetTable(), t.Mode, texts(t.Key), texts(t.SequenceBy), t.Deletes,
		texts(t.PartitionBy), p.names(), p.Days.Keep)
	for _, of := range t.Keys {
		fmt.Fprintf(h, " key of %q %q", of.Name, texts(of.Value))
	}
	if t.hasLog() {
		fmt.Fprintf(h, " %q", t.ChangeLog.Value)
	}
	for i := range p.Target.Overrides {
		o := &p.Target.Overrides[i]
		fmt.Fprintf(h, " of %q %q %q %q", o.Match.Value, texts(o.SequenceBy), o.Deletes, texts(o.PartitionBy))
	}
	if p.Days.Zone != "" {
		fmt.Fprintf(h, " zone %q", p.Days.Zone)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// names are what is read.
func (p *Pipeline) names() []string {
	if s := p.Source.Postgres; s != nil {
		return append(texts(s.Tables), s.Publication, p.slot())
	}
	return p.Source.Kafka.names()
}

// names are the topics, or the pattern of their names.
func (k *Kafka) names() []string {
	if k == nil {
		return nil
	}
	return append(texts(k.Topics), k.Pattern.Value)
}

// days are the pipe's options for days; nil when they are not told apart.
func (p *Pipeline) days() *freshet.Days {
	if p.Days.Keep == 0 {
		return nil
	}
	in, _ := time.LoadLocation(p.Days.Zone) // which is there: the file was found good
	return &freshet.Days{Wait: p.Days.Wait, Zone: in, Reopen: p.Days.Late == "reopen"}
}
