package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/freshet-io/freshet/lake"
	"github.com/freshet-io/freshet/quality"
	"github.com/freshet-io/freshet/spec"
)

// comparedFields tell what the last comparisons of a pipeline's tables with their source have found; none where it makes none.
func comparedFields(ctx context.Context, p *spec.Pipeline) ([]field, error) {
	if p.ComparisonsTable() == "" {
		return nil, nil
	}
	all, err := p.Comparisons(ctx)
	if err != nil {
		return nil, err
	}
	values, lines := []any{}, []string{}
	for i := range all {
		c := &all[i]
		lines = append(lines, comparedText(c))
		values = append(values, map[string]any{"table": c.Table, "at": c.At.UTC(), "share": c.Share, "position": c.Position,
			"version": c.Version, "rows": c.Rows, "seconds": c.Took.Seconds(), "differences": c.Differences(), "mended": c.Mended,
			"undecided": c.Undecided, "keys": orEmpty(c.Keys), "fault": c.Fault})
	}
	return []field{{name: "verified", value: values, text: orDash(strings.Join(lines, "\n"))}}, nil
}

// comparedText is one comparison for people.
func comparedText(c *lake.Comparison) string {
	at := shownPath(c.Table) + " at " + c.At.UTC().Format(time.RFC3339)
	if c.Fault != "" {
		return at + " could not be compared: " + c.Fault
	}
	how := fmt.Sprintf("(%s, %.3g %% of the keys, %s)", plural(c.Rows, "row"), 100*c.Share, span(c.Took))
	if c.Differences() == 0 {
		return at + " equal to its source " + how
	}
	text := at + " DIFFERS: " + countsText(map[quality.Class]int64{quality.Missing: c.Missing, quality.Extra: c.Extra,
		quality.Stale: c.Stale, quality.Different: c.Different, quality.Duplicate: c.Duplicate})
	if c.Mended > 0 {
		text += ", " + number(c.Mended) + " mended"
	}
	return text + " " + how + ": " + strings.Join(c.Keys, "; ")
}
