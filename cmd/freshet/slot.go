package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/spec"
)

// slotFields tell what the server keeps for a pipeline; none where it reads no PostgreSQL. A server that does not answer is no error:
// the rest is known without it.
func slotFields(ctx context.Context, p *spec.Pipeline) []field {
	s, err := p.Slot(ctx, time.Second)
	switch {
	case err != nil:
		return []field{{name: "slot", value: nil, text: "not known: " + err.Error()}}
	case s == nil:
		return nil
	case !s.There:
		return []field{{name: "slot", value: nil, text: s.Place + " is not there"}}
	}
	status := s.Status
	if status == "" {
		status = "there"
	}
	return []field{{name: "slot", text: s.Place + ", " + status + ": " + heldText(s.Held), value: map[string]any{
		"place": s.Place, "status": s.Status, "kept_bytes": s.Retained, "behind_bytes": s.Behind, "bytes_per_second": s.PerSecond,
		"safe_bytes": optionalBytes(s.Safe), "seconds_left": optionalSeconds(s.Left)}}}
}

func optionalBytes(n int64) any {
	if n < 0 {
		return nil
	}
	return n
}

func optionalSeconds(d time.Duration) any {
	if d == 0 {
		return nil
	}
	return int64(d.Seconds())
}

// heldText is what an origin keeps: `keeps 31 MB, 2 MB of them not confirmed, + 1.2 MB/s, 20 GB until it gives up, in 4h38m0s`.
func heldText(h freshet.Held) string {
	parts := []string{"keeps " + bytesText(h.Retained), bytesText(h.Behind) + " of them not confirmed"}
	if h.PerSecond > 0 {
		parts = append(parts, "+ "+bytesText(h.PerSecond)+"/s")
	}
	switch {
	case h.Safe < 0:
		parts = append(parts, "without a limit: until the server's disk is full")
	case h.Left > 0:
		parts = append(parts, fmt.Sprintf("%s until it gives up, in %s", bytesText(h.Safe), h.Left.Round(time.Second)))
	default:
		parts = append(parts, bytesText(h.Safe)+" until it gives up")
	}
	return strings.Join(parts, ", ")
}
