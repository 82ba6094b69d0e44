package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	freshet "github.com/freshet-io/freshet"
)

// comparing keeps what comparisons of tables with their source have found.
type comparing struct {
	rows, seconds, mended *prometheus.CounterVec
	differing, ended      *prometheus.GaugeVec
}

func newComparing(counter func(name, help string, more ...string) *prometheus.CounterVec, gauge func(name, help string,
	more ...string) *prometheus.GaugeVec) comparing {
	return comparing{
		rows:      counter("freshet_verify_rows_total", "Rows of the source that a table was compared with.", "table"),
		seconds:   counter("freshet_verify_seconds_total", "Time that comparing took.", "table"),
		mended:    counter("freshet_verify_mended_total", "Rows that differed from the source, and were mended.", "table"),
		differing: gauge("freshet_verify_differences", "Rows that differed from the source when it was last compared.", "table", "class"),
		ended:     gauge("freshet_verify_time_seconds", "When the table was last compared, in seconds since 1970.", "table"),
	}
}

// compared takes note of a comparison.
func (p *pipeline) compared(c freshet.Compared) {
	left := -c.Mended
	for _, n := range c.Classes {
		left += n
	}
	p.mu.Lock()
	p.differing[c.Table] = left
	table := p.label(c.Table)
	p.mu.Unlock()
	m := &p.m.comparing
	m.rows.WithLabelValues(p.namespace, p.name, table).Add(float64(c.Rows))
	m.seconds.WithLabelValues(p.namespace, p.name, table).Add(c.Took.Seconds())
	m.mended.WithLabelValues(p.namespace, p.name, table).Add(float64(c.Mended))
	for class, n := range c.Classes {
		m.differing.WithLabelValues(p.namespace, p.name, table, class).Set(float64(n))
	}
	m.ended.WithLabelValues(p.namespace, p.name, table).Set(float64(time.Now().Unix()))
}

// differ is how many rows differ from their source, by the last comparison of each table.
func (p *pipeline) differ() (n int64) {
	for _, left := range p.differing {
		n += left
	}
	return n
}
