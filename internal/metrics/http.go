package metrics

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler answers /metrics, /livez and /readyz. Alive is a process that answers; ready is one whose pipelines
// all run, have come to their end, or were told to stop. The body of /readyz says what each does.
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		ready, reasons := m.Ready()
		if !ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, strings.Join(reasons, "\n"))
	})
	return mux
}

// Ready tells whether all pipelines do their work, and what each of them does, one line each.
func (m *Metrics) Ready() (ready bool, reasons []string) {
	ready = true
	for _, t := range m.Totals() {
		line := fmt.Sprintf("%s.%s: %s", t.Namespace, t.Pipeline, t.State)
		if t.Paused != "" {
			line += ", " + t.Paused
		}
		switch {
		case t.State == "starting" || t.State == "failed":
			ready = false
		case t.Trouble != "":
			ready = false
			line += ", trying again: " + t.Trouble
		case t.State == "waiting":
			ready = false
		}
		reasons = append(reasons, line)
	}
	if len(reasons) == 0 {
		return false, []string{"no pipeline yet"}
	}
	return ready, reasons
}
