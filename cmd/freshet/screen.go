package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/freshet-io/freshet/internal/metrics"
)

// screen is a stream whose last lines are drawn again and again: what is written to it comes above them.
type screen struct {
	mu    sync.Mutex
	w     io.Writer
	drawn int // lines that stand there now
}

func newScreen(w io.Writer) *screen { return &screen{w: w} }

// Write puts text above the drawn lines, which come back with the next drawing.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	return s.w.Write(p)
}

func (s *screen) erase() {
	if s.drawn > 0 {
		fmt.Fprintf(s.w, "\x1b[%dA\x1b[J", s.drawn)
		s.drawn = 0
	}
}

// draw replaces the drawn lines.
func (s *screen) draw(lines []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	for _, l := range lines {
		fmt.Fprintln(s.w, l)
	}
	s.drawn = len(lines)
}

// show shows how the pipelines get on, until stop is called.
func (r *runner) show() (stop func()) {
	mode := r.flags.progress
	if mode == "auto" {
		mode = "plain"
		if isTerminal(r.c.err) {
			mode = "bar"
		}
	}
	if mode == "off" || r.c.quiet {
		return func() {}
	}
	every := 10 * time.Second
	if mode == "bar" {
		every = 250 * time.Millisecond
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		meter := newMeter()
		meter.add(r.started, r.metrics.Totals())
		for {
			select {
			case <-ticker.C:
				r.tick(mode, meter)
			case <-quit:
				if mode == "bar" {
					r.screen.draw(nil)
				}
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

func (r *runner) tick(mode string, m *meter) {
	s := r.c.style(r.c.err)
	all := r.metrics.Totals()
	m.add(time.Now(), all)
	var lines []string
	for _, t := range all {
		if mode == "json" {
			lines = append(lines, jsonLine(t, m))
			continue
		}
		lines = append(lines, s.text(progressLine(t, m.rate(t))))
	}
	if mode == "bar" {
		r.screen.draw(lines)
		return
	}
	for _, l := range lines {
		fmt.Fprintln(r.screen, l)
	}
}

// progressLine is one pipeline's line: `bronze.orders running 1 234 567 rows 52.1 k rows/s backlog 12 k v42`.
func progressLine(t metrics.Totals, rate float64) string {
	parts := []string{t.Namespace + "." + t.Pipeline, t.State, number(t.Rows) + " rows", short(rate) + " rows/s"}
	if l := t.Loading; l.Tables > 0 {
		parts = append(parts, loadingText(l))
	}
	if t.Backlog >= 0 {
		parts = append(parts, "backlog "+short(float64(t.Backlog)))
	}
	if t.Held != nil {
		parts = append(parts, t.Held.Place+" "+heldText(*t.Held))
	}
	if t.Rejects > 0 {
		parts = append(parts, number(t.Rejects)+" in quarantine")
	}
	if t.Differing > 0 {
		parts = append(parts, plural(t.Differing, "row")+" DIFFER from the source")
	}
	if t.Commits > 0 {
		parts = append(parts, fmt.Sprintf("v%d", t.LastVersion))
	}
	if t.Paused != "" {
		parts = append(parts, t.Paused)
	}
	if t.Trouble != "" {
		parts = append(parts, "trying again: "+t.Trouble)
	}
	return strings.Join(parts, "  ")
}

// loadingText is how far the loading of tables is: `loading 2 tables ≈ 61 % ETA 6m10s`.
func loadingText(l metrics.Loading) string {
	text := "loading " + plural(int64(l.Tables), "table")
	if l.Of > 0 {
		text += fmt.Sprintf(" ≈ %d %%", 100*l.Rows/l.Of)
	}
	if l.Left > 0 {
		text += " ETA " + l.Left.String()
	}
	return text
}

func jsonLine(t metrics.Totals, m *meter) string {
	r := record{
		{name: "time", value: time.Now().UTC()}, {name: "pipeline", value: t.Namespace + "." + t.Pipeline},
		{name: "state", value: t.State}, {name: "records_read", value: t.Records},
		{name: "bytes_read", value: t.Bytes},
		{name: "rows", value: t.Rows}, {name: "rejects", value: t.Rejects}, {name: "commits", value: t.Commits},
		{name: "rows_per_second", value: int64(m.rate(t))}, {name: "backlog_records", value: t.Backlog},
		{name: "loading_tables", value: t.Loading.Tables}, {name: "loading_rows", value: t.Loading.Rows},
		{name: "loading_rows_expected", value: t.Loading.Of},
		{name: "loading_seconds_left", value: int64(t.Loading.Left.Seconds())},
		{name: "rows_differing", value: t.Differing}, {name: "trouble", value: t.Trouble}, {name: "paused", value: t.Paused},
	}
	line, err := r.json()
	if err != nil { // it holds nothing that cannot be written
		return err.Error()
	}
	return string(line)
}

// meter knows how fast rows are committed, over the last ten seconds or so.
type meter struct {
	seen map[string][]sample
}

type sample struct {
	at   time.Time
	rows int64
}

func newMeter() *meter { return &meter{seen: map[string][]sample{}} }

func (m *meter) add(now time.Time, all []metrics.Totals) {
	for _, t := range all {
		key := t.Namespace + "." + t.Pipeline
		s := append(m.seen[key], sample{now, t.Rows})
		for len(s) > 2 && now.Sub(s[1].at) >= 10*time.Second {
			s = s[1:]
		}
		m.seen[key] = s
	}
}

func (m *meter) rate(t metrics.Totals) float64 {
	s := m.seen[t.Namespace+"."+t.Pipeline]
	if len(s) < 2 {
		return 0
	}
	first, last := s[0], s[len(s)-1]
	return float64(last.rows-first.rows) / last.at.Sub(first.at).Seconds()
}

// summarise says what a run has done, one line a pipeline.
func (r *runner) summarise() {
	took := time.Since(r.started)
	s := r.c.style(r.c.err)
	for _, t := range r.metrics.Totals() {
		if t.State == "starting" || t.State == "failed" && t.Commits == 0 {
			continue // it never ran, or did nothing: the error says it all
		}
		rate := float64(t.Rows) / max(took.Seconds(), 0.001)
		line := fmt.Sprintf("%s.%s  %s in %s (%s rows/s), %s stored, %s", t.Namespace, t.Pipeline,
			plural(t.Rows, "row"), span(took), short(rate), bytesText(t.StoredBytes), plural(t.Commits, "commit"))
		if t.Commits > 0 {
			line += fmt.Sprintf(", %s is at version %d", shownPath(t.LastTable), t.LastVersion)
		}
		mark := s.paint(green, "✓")
		if t.Rejects > 0 {
			mark = s.paint(yellow, "⚠")
			line += "; " + plural(t.Rejects, "record") + " in quarantine"
		}
		if t.State == "failed" {
			mark = s.paint(red, "✗")
		}
		r.c.say("%s %s", mark, line)
	}
}
