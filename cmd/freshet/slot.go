package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/postgres"
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
	}
	return []field{{name: "slot", text: slotText(s), value: slotValue(s)}}
}

// slotText is a slot in a line: `slot freshet_shop, reserved: keeps 31 MB …`.
func slotText(s *postgres.SlotState) string {
	switch {
	case !s.There:
		return s.Place + " is not there"
	case s.Lost != "":
		return s.Place + " is lost: " + s.Lost
	}
	return s.Place + ", " + cmp.Or(s.Status, "there") + ": " + heldText(s.Held)
}

// slotValue is a slot for programs; nil: it is not there.
func slotValue(s *postgres.SlotState) any {
	if s == nil || !s.There {
		return nil
	}
	return map[string]any{"place": s.Place, "status": s.Status, "active": s.Active, "lost": optional(s.Lost), "kept_bytes": s.Retained,
		"behind_bytes": s.Behind, "bytes_per_second": s.PerSecond, "safe_bytes": optionalBytes(s.Safe),
		"seconds_left": optionalSeconds(s.Left)}
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
	until := "until it gives up"
	if h.Disk {
		until = "until its disk is full"
	}
	switch {
	case h.Safe < 0:
		parts = append(parts, "without a limit: until the server's disk is full")
	case h.Left > 0:
		parts = append(parts, fmt.Sprintf("%s %s, in %s", bytesText(h.Safe), until, h.Left.Round(time.Second)))
	default:
		parts = append(parts, bytesText(h.Safe)+" "+until)
	}
	return strings.Join(parts, ", ")
}
