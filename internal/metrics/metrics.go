// Package metrics turns what pipelines tell their Observer into Prometheus metrics, probes and, where it is
// configured, OTLP metrics and traces.
//
//	m := metrics.New("1.0.0")
//	pipeline.Options.Observer = m.Observer("bronze", "orders", "kafka")
//	http.Handle("/", m.Handler())
//
// Guarantees: the names of metrics and labels do not change their meaning; labels are bounded (after 200
// tables of a pipeline, further ones count as "other").
//
// Non-goals: it keeps no history and writes no log.
package metrics

import (
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	freshet "github.com/freshet-io/freshet"
)

// States are the states of a pipeline.
var states = []string{"starting", "running", "waiting", "paused", "stopping", "stopped", "failed"}

const maxTables = 200

// Metrics are the metrics of one process. Its methods are safe for concurrent use.
type Metrics struct {
	registry *prometheus.Registry
	tracer   tracer

	records, bytes, rows, rejects     *prometheus.CounterVec
	commits, conflicts, retries       *prometheus.CounterVec
	upkeeps, upkeepTime, lossy        *prometheus.CounterVec
	loaded, expected, slow            *prometheus.GaugeVec
	stages, commitTime, latency       *prometheus.HistogramVec
	state, backlog, lag, tableAgeDesc *prometheus.Desc
	kept, growth, safe, left          *prometheus.Desc
	comparing                         comparing

	mu        sync.Mutex
	pipelines []*pipeline
}

// pipeline is what is known of one pipeline.
type pipeline struct {
	m               *Metrics
	namespace, name string

	mu     sync.Mutex
	state  string
	paused string
	slow   map[string]string // why tables are slow, by name
	// differing is how many rows differ of each table that was compared, by its name.
	differing map[string]int64
	held      *freshet.Held        // nil: nobody said
	trouble   map[string]time.Time // what is being tried again, and when it last was
	backlog   map[freshet.Lane]int64
	tables    map[string]time.Time // the newest committed origin time
	newest    time.Time            // among all records that were committed
	totals    Totals
	loading   loading
}

// Totals are sums over a pipeline's run so far.
type Totals struct {
	Namespace, Pipeline string
	State               string
	Trouble             string // what is being tried again; "" when nothing is
	Paused              string // what is held back: by people, who, since when and why; for being slow, why; "": nothing
	Records, Bytes      int64  // read
	Rows, Rejects       int64  // committed
	StoredBytes, Files  int64
	Commits, Stale      int64
	Backlog             int64 // records that the origin has and we have not read; -1 when it is not known
	Newest              time.Time
	LastVersion         int64
	LastTable           string
	Differing           int64 // rows that differ from the source, by the last comparison of each table
	Loading             Loading
	Held                *freshet.Held // what the origin keeps for us; nil: it does not say
}

// New returns metrics of a process of this version.
func New(version string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	labels := []string{"namespace", "pipeline"}
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append(labels[:2:2], more...))
		m.registry.MustRegister(c)
		return c
	}
	histogram := func(name, help string, more ...string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help,
			Buckets:                     prometheus.ExponentialBuckets(0.001, 4, 10),
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100}, append(labels[:2:2], more...))
		m.registry.MustRegister(h)
		return h
	}
	gauge := func(name, help string, more ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, append(labels[:2:2], more...))
		m.registry.MustRegister(g)
		return g
	}
	m.loaded = gauge("freshet_history_rows_done", "Rows read of a table that is loaded.", "table")
	m.expected = gauge("freshet_history_rows_expected", "Rows that the origin estimates that table to have.", "table")
	m.slow = gauge("freshet_table_slow", "1 while the table is so slow that its changes are parked.", "table")
	m.comparing = newComparing(counter, gauge)
	m.records = counter("freshet_source_records_total", "Records read.", "source_type")
	m.bytes = counter("freshet_source_bytes_total", "Payload bytes read.", "source_type")
	m.rows = counter("freshet_rows_written_total", "Rows committed.", "table", "op")
	m.rejects = counter("freshet_quarantine_records_total", "Records committed to quarantine.")
	m.commits = counter("freshet_commits_total", "Commits by result: ok, or stale when the table had moved on.",
		"table", "result")
	m.conflicts = counter("freshet_commit_conflicts_total", "How often another writer's commit came first.")
	m.lossy = counter("freshet_lossy_values_total",
		"Values that became null, or were changed otherwise, since their column cannot hold them.", "table")
	m.retries = counter("freshet_retries_total", "Failures that are tried again.")
	m.upkeeps = counter("freshet_upkeep_total", "Pieces of work done beside the stream: compact, fold or vacuum.", "table",
		"kind")
	m.upkeepTime = counter("freshet_upkeep_seconds_total", "Time that they took.", "table", "kind")
	m.stages = histogram("freshet_batch_stage_duration_seconds", "Time of one stage for one batch.", "stage")
	m.commitTime = histogram("freshet_commit_duration_seconds", "Time of one commit.", "result")
	m.latency = histogram("freshet_end_to_end_latency_seconds",
		"From a record's time at the origin to its commit.")
	desc := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append(labels[:2:2], more...), nil)
	}
	m.state = desc("freshet_pipeline_state", "1 for the state that the pipeline is in.", "state")
	m.backlog = desc("freshet_source_backlog_records", "Records that the origin has and we have not read.")
	m.lag = desc("freshet_source_lag_seconds", "Age of the newest committed record while there is a backlog, "+
		"else 0.")
	m.tableAgeDesc = desc("freshet_table_freshness_seconds", "Age of the newest committed record of a table.",
		"table")
	m.kept = desc("freshet_source_kept_bytes", "What the origin keeps for the pipeline, and would drop otherwise.")
	m.growth = desc("freshet_source_kept_bytes_per_second", "By how much that grows.")
	m.safe = desc("freshet_source_safe_bytes", "What may come at the origin until it drops what the pipeline needs, or its disk is full.")
	m.left = desc("freshet_source_seconds_left", "The time until then, at the present rate.")
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "freshet_build_info",
		Help: "1, labelled by the build."},
		[]string{"version", "goversion"})
	info.WithLabelValues(version, runtime.Version()).Set(1)
	m.registry.MustRegister(m, info, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Describe tells Prometheus of the metrics that Collect makes.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.state, m.backlog, m.lag, m.tableAgeDesc, m.kept, m.growth, m.safe, m.left} {
		ch <- d
	}
}

// Collect makes the metrics that depend on the time at which they are asked for.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	for _, p := range m.all() {
		p.collect(now, ch)
	}
}

func (p *pipeline) collect(now time.Time, ch chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gauge := func(d *prometheus.Desc, v float64, more ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v,
			append([]string{p.namespace, p.name}, more...)...)
	}
	for _, s := range states {
		v := 0.0
		if s == p.state {
			v = 1
		}
		gauge(p.m.state, v, s)
	}
	if n := p.behind(); n >= 0 {
		gauge(p.m.backlog, float64(n))
		if !p.newest.IsZero() {
			late := 0.0
			if n > 0 {
				late = max(0, now.Sub(p.newest).Seconds())
			}
			gauge(p.m.lag, late)
		}
	}
	if p.held != nil {
		gauge(p.m.kept, float64(p.held.Retained))
		gauge(p.m.growth, float64(p.held.PerSecond))
		if p.held.Safe >= 0 {
			gauge(p.m.safe, float64(p.held.Safe))
		}
		if p.held.Left > 0 {
			gauge(p.m.left, p.held.Left.Seconds())
		}
	}
	for table, newest := range p.tables {
		if !newest.IsZero() {
			gauge(p.m.tableAgeDesc, max(0, now.Sub(newest).Seconds()), table)
		}
	}
}

// behind is the backlog over all lanes, -1 when it is not known.
func (p *pipeline) behind() int64 {
	if len(p.backlog) == 0 {
		return -1
	}
	var sum int64
	for _, n := range p.backlog {
		sum += n
	}
	return sum
}

// troubleAge is after which time something that is not tried again counts as over: not all has an end that
// somebody sees, such as the trouble with a partition that nothing comes from.
const troubleAge = time.Minute

// outstanding is what was tried again last and has not ended, "" when there is nothing.
func (p *pipeline) outstanding(now time.Time) string {
	found := ""
	for what, at := range p.trouble {
		switch {
		case now.Sub(at) >= troubleAge:
			delete(p.trouble, what)
		case found == "" || at.After(p.trouble[found]):
			found = what
		}
	}
	return found
}

func (m *Metrics) all() []*pipeline {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pipelines[:len(m.pipelines):len(m.pipelines)]
}

// heldBack is what is held back, by people or for being slow; the lock is held.
func (p *pipeline) heldBack() string {
	var all []string
	if p.paused != "" {
		all = append(all, p.paused)
	}
	for _, table := range slices.Sorted(maps.Keys(p.slow)) {
		all = append(all, table+" is slow, and its changes are parked: "+p.slow[table])
	}
	return strings.Join(all, "; ")
}

// Totals returns the sums of all pipelines, in the order in which they were added.
func (m *Metrics) Totals() []Totals {
	var all []Totals
	now := time.Now()
	for _, p := range m.all() {
		p.mu.Lock()
		t := p.totals
		t.Namespace, t.Pipeline, t.State, t.Newest = p.namespace, p.name, p.state, p.newest
		t.Trouble, t.Paused = p.outstanding(now), p.heldBack()
		t.Backlog, t.Loading, t.Held = p.behind(), p.loading.sum(now), p.held
		t.Differing = p.differ()
		p.mu.Unlock()
		all = append(all, t)
	}
	return all
}
