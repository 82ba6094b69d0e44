package spec

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/quality"
)

// Verification is how a pipeline compares its tables with their source while it runs.
type Verification struct {
	Every         time.Duration // 0: it does not
	Sample        float64       // the share of the keys
	RowsPerSecond int64         // of the source
	Cost          float64       // the share of the time
	Repair        bool
	Table         Text // that keeps what was found
}

// The defaults of Verification.
const (
	verifySample = 0.05
	verifyRows   = 20_000
	verifyCost   = 0.1
)

func (v *Verification) shape() shape {
	return object{keys: []key{
		{name: "every", doc: "How long after one comparison has begun the next one begins.", is: duration(&v.Every), need: true},
		{name: "sample", doc: "The share of the keys that is compared, chosen anew each time. Default: 5%.", is: percentage(&v.Sample)},
		{name: "rows_per_second", doc: "How many rows of the source are read in a second while tables are compared. Default: 20000.",
			is: whole(&v.RowsPerSecond, 1)},
		{name: "cost", doc: "The share of the time in which tables may be compared: where comparisons take longer, they come more " +
			"seldom. Default: 10%.", is: percentage(&v.Cost)},
		{name: "repair", doc: "Whether rows that differ are read again, to take the place of those in the table. Default: false.",
			is: flag(&v.Repair)},
		{name: "table", doc: "The table that keeps what was found. Default: namespace.pipeline_verified.", is: placed(&v.Table)},
	}}
}

// checkVerification finds settings of comparisons that mean nothing.
func (p *Pipeline) checkVerification(r *reader) {
	v := &p.Verification
	at, given := p.at["verify"]
	if !given || p.Target.Delta == nil {
		return
	}
	if err := p.verifiable(); err != nil {
		var e *freshet.Error
		errors.As(err, &e)
		r.add(at, freshet.CodeUnavailable, "leave verify out", "verify: %s", e.Msg)
	}
	if v.Table.Value != "" {
		table, err := p.Project.TableURL(v.Table.Value)
		r.takeFault(v.Table.at.where, err)
		main, err2 := p.Project.TableURL(p.fill(p.TargetTable(), "topic"))
		if err == nil && err2 == nil && (table == main || strings.Contains(v.Table.Value, "{")) {
			r.add(v.Table.at.where, freshet.CodeBadValue, "write another name", "verify.table: found %q, wanted one table beside the target",
				v.Table.Value)
		}
	}
	fallback(&v.Sample, verifySample)
	fallback(&v.RowsPerSecond, verifyRows)
	fallback(&v.Cost, verifyCost)
}

// ComparisonsTable is the table that keeps what comparisons have found; "" when nothing is kept.
func (p *Pipeline) ComparisonsTable() string {
	switch {
	case p.Verification.Every == 0:
		return ""
	case p.Verification.Table.Value != "":
		return p.Verification.Table.Value
	}
	return p.besideTables("_verified")
}

// Comparisons are the newest ones of each table, of the last 30 days.
func (p *Pipeline) Comparisons(ctx context.Context) ([]lake.Comparison, error) {
	name := p.ComparisonsTable()
	if name == "" {
		return nil, nil
	}
	st, err := p.Project.OpenTable(ctx, name)
	if err != nil {
		return nil, err
	}
	return lake.ReadComparisons(ctx, name, st, time.Now().AddDate(0, 0, -30))
}

// comparisons collects what one run over the tables finds.
type comparisons struct {
	p     *Pipeline
	share float64
	all   []lake.Comparison
}

// keptKeys is how many keys that differed are kept of a table.
const keptKeys = 20

// found takes what was found of a table.
func (c *comparisons) found(v *Verified) lake.Comparison {
	r := v.Result
	is := lake.Comparison{At: time.Now(), Took: r.Took, Table: v.Table, Source: v.Source, Share: c.share, Version: r.View.Version,
		Position: v.At, Ranges: r.Ranges, Rows: r.SourceRows, Bytes: r.SourceBytes, Rechecked: r.Rechecked, Undecided: r.Undecided,
		Rejected: r.Rejected, Missing: r.Counts[quality.Missing], Extra: r.Counts[quality.Extra], Stale: r.Counts[quality.Stale],
		Different: r.Counts[quality.Different], Duplicate: r.Counts[quality.Duplicate], Mended: r.Mended}
	for _, d := range r.Differences[:min(len(r.Differences), keptKeys)] {
		is.Keys = append(is.Keys, string(d.Class)+" "+strings.Join(d.Key, ", "))
	}
	c.all = append(c.all, is)
	return is
}

// failed takes why a table could not be compared.
func (c *comparisons) failed(table, source string, err error) {
	c.all = append(c.all, lake.Comparison{At: time.Now(), Table: table, Source: source, Share: c.share, Fault: err.Error()})
}

// keep keeps what was found, if the pipeline keeps it.
func (c *comparisons) keep(ctx context.Context, engine string) error {
	name := c.p.ComparisonsTable()
	if name == "" || len(c.all) == 0 {
		return nil
	}
	st, err := c.p.Project.OpenTable(ctx, name)
	if err != nil {
		return err
	}
	return lake.RecordComparisons(ctx, name, st, engine, c.all)
}

// compares reports whether the pipeline compares its tables while it runs: as its file says, or since there is a hole.
func (s *Supervised) compares(hole *lake.Hole) bool {
	return (s.p.Verification.Every > 0 || hole != nil) && !s.bounded()
}

// compare compares the tables again and again until ctx ends: all of them, to repair a hole, or as the file says. Nothing that it
// finds, or fails at, ends the pipeline.
func (s *Supervised) compare(ctx context.Context, hole *lake.Hole) {
	v := s.p.Verification
	if hole != nil {
		v = Verification{Every: time.Minute, Sample: 1, RowsPerSecond: s.p.Source.Postgres.History.RowsPerSecond, Cost: 1, Repair: true}
	}
	next := min(v.Every, time.Minute)
	if hole != nil {
		next = 0
	} else if all, err := s.p.Comparisons(ctx); err == nil && len(all) > 0 {
		newest := slices.MaxFunc(all, func(a, b lake.Comparison) int { return a.At.Compare(b.At) }).At
		next = max(next, time.Until(newest.Add(v.Every)))
	}
	for {
		t := time.NewTimer(next)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		began := time.Now()
		if err := s.compareOnce(ctx, &v); err != nil && ctx.Err() == nil {
			s.b.opts.Logger.Warn("tables could not be compared with their source", "pipeline", s.p.FullName(), "error", err)
		}
		next = v.pause(time.Since(began))
	}
}

// pause is how long it is to the next comparison behind one that took so long.
func (v *Verification) pause(took time.Duration) time.Duration {
	rest := time.Duration(float64(took)/v.Cost) - took
	return max(v.Every-took, rest)
}

// compareOnce compares all tables, says what differs, and keeps what was found.
func (s *Supervised) compareOnce(ctx context.Context, v *Verification) error {
	c := &comparisons{p: s.p, share: v.Sample}
	o := &VerifyOptions{Options: quality.Options{Share: v.Sample}, Repair: v.Repair, RowsPerSecond: v.RowsPerSecond,
		Failed: func(table, source string, err error) error {
			c.failed(table, source, err)
			var known *freshet.Error
			if !errors.As(err, &known) || known.Code != freshet.CodeUnavailable {
				s.b.opts.Logger.Warn("a table could not be compared with its source", "table", table, "error", err)
			}
			return ctx.Err()
		}}
	err := s.p.Verify(ctx, o, func(v *Verified) error {
		s.compared(c.found(v), s.p.Remedy(v))
		return nil
	})
	if ctx.Err() != nil {
		return err
	}
	return errors.Join(err, c.keep(ctx, s.b.opts.EngineInfo))
}

// compared tells of a comparison, and what makes the table equal its source.
func (s *Supervised) compared(c lake.Comparison, remedy string) {
	classes := map[string]int64{}
	for class, n := range map[quality.Class]int64{quality.Missing: c.Missing, quality.Extra: c.Extra, quality.Stale: c.Stale,
		quality.Different: c.Different, quality.Duplicate: c.Duplicate} {
		classes[string(class)] = n
	}
	if s.obs.Compared != nil {
		s.obs.Compared(freshet.Compared{Table: c.Table, Rows: c.Rows, Classes: classes, Mended: c.Mended, Undecided: c.Undecided,
			Took: c.Took})
	}
	n := c.Differences()
	switch {
	case n == 0:
		s.b.opts.Logger.Debug("a table equals its source", "table", c.Table, "rows", c.Rows, "took", c.Took)
	case n == c.Mended:
		s.b.opts.Logger.Warn("a table differed from its source, and was mended", "table", c.Table, "rows", n, "keys", c.Keys)
	default:
		s.b.opts.Logger.Error("a table differs from its source", "table", c.Table, "rows", n, "mended", c.Mended, "keys", c.Keys,
			"fix", remedy)
	}
}
