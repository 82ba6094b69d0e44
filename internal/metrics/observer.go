package metrics

import (
	"time"

	freshet "github.com/freshet-io/freshet"
)

// Observer returns what a pipeline is to tell its doings to. The source is of the type, such as "kafka".
func (m *Metrics) Observer(namespace, name, sourceType string) freshet.Observer {
	p := &pipeline{m: m, namespace: namespace, name: name, state: "starting", backlog: map[freshet.Lane]int64{},
		trouble: map[string]time.Time{}, tables: map[string]time.Time{},
		slow: map[string]string{}, differing: map[string]int64{}}
	m.mu.Lock()
	m.pipelines = append(m.pipelines, p)
	m.mu.Unlock()
	records, bytes := m.records.WithLabelValues(namespace, name, sourceType),
		m.bytes.WithLabelValues(namespace, name, sourceType)
	retries, stages := m.retries.WithLabelValues(namespace, name), m.stages.MustCurryWith(p.labels())
	rejected := m.rejects.WithLabelValues(namespace, name)
	return freshet.Observer{
		Read: func(_ string, rows, rejects int, size int64, _ time.Duration) {
			records.Add(float64(rows + rejects))
			bytes.Add(float64(size))
			p.read(int64(rows+rejects), size)
		},
		Stage: func(stage string, took time.Duration) { stages.WithLabelValues(stage).Observe(took.Seconds()) },
		Committed: func(c freshet.Committed, took, latency time.Duration, newest time.Time) {
			rejected.Add(float64(c.Rejects))
			p.committed(c, took, latency, newest)
		},
		Stale: p.stale,
		Retry: func(what string, _ error) {
			retries.Inc()
			p.mu.Lock()
			p.trouble[what] = time.Now()
			p.mu.Unlock()
		},
		Recovered: func(what string) {
			p.mu.Lock()
			delete(p.trouble, what)
			p.mu.Unlock()
		},
		Upkeep: func(u freshet.Upkeep) {
			m.upkeeps.WithLabelValues(namespace, name, u.Table, u.Kind).Inc()
			m.upkeepTime.WithLabelValues(namespace, name, u.Table, u.Kind).Add(u.Took.Seconds())
		},
		Compared: p.compared,
		Lossy: func(table, _ string, values int64) {
			p.mu.Lock()
			table = p.label(table)
			p.mu.Unlock()
			m.lossy.WithLabelValues(namespace, name, table).Add(float64(values))
		},
		Held: func(h freshet.Held) {
			p.mu.Lock()
			p.held = &h
			p.mu.Unlock()
		},
		Loading: func(l freshet.Loading) {
			p.mu.Lock()
			p.loading.told(time.Now(), l)
			table := p.label(l.Table)
			p.mu.Unlock()
			m.loaded.WithLabelValues(namespace, name, table).Set(float64(l.Rows))
			m.expected.WithLabelValues(namespace, name, table).Set(float64(max(l.Of, l.Rows)))
		},
		State: func(state string) {
			p.mu.Lock()
			p.state = state
			p.mu.Unlock()
		},
		Paused: func(why string) {
			p.mu.Lock()
			p.paused = why
			p.mu.Unlock()
		},
		Slow: func(table, why string) {
			p.mu.Lock()
			if why == "" {
				delete(p.slow, table)
			} else {
				p.slow[table] = why
			}
			table = p.label(table)
			p.mu.Unlock()
			is := 0.0
			if why != "" {
				is = 1
			}
			m.slow.WithLabelValues(namespace, name, table).Set(is)
		},
		Lag: func(lane freshet.Lane, n int64) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if n < 0 {
				delete(p.backlog, lane)
				return
			}
			p.backlog[lane] = n
		},
	}
}

func (p *pipeline) labels() map[string]string {
	return map[string]string{"namespace": p.namespace, "pipeline": p.name}
}

func (p *pipeline) read(records, size int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.totals.Records += records
	p.totals.Bytes += size
}

// label is the value of the label table: "other" once there are too many.
func (p *pipeline) label(table string) string {
	if _, ok := p.tables[table]; !ok {
		if len(p.tables) >= maxTables {
			table = "other"
		}
		p.tables[table] = time.Time{}
	}
	return table
}

func (p *pipeline) committed(c freshet.Committed, took, latency time.Duration, newest time.Time) {
	p.mu.Lock()
	t := &p.totals
	t.Rows, t.Rejects = t.Rows+c.Rows, t.Rejects+c.Rejects
	t.StoredBytes, t.Files, t.Commits = t.StoredBytes+c.Bytes, t.Files+int64(c.Files), t.Commits+1
	t.LastTable, t.LastVersion = c.Table, c.Version
	table := p.label(c.Table)
	if newest.After(p.tables[table]) {
		p.tables[table] = newest
	}
	if newest.After(p.newest) {
		p.newest = newest
	}
	p.mu.Unlock()

	m := p.m
	m.rows.WithLabelValues(p.namespace, p.name, table, "insert").Add(float64(c.Rows))
	m.commits.WithLabelValues(p.namespace, p.name, table, "ok").Inc()
	m.conflicts.WithLabelValues(p.namespace, p.name).Add(float64(c.Retries))
	m.commitTime.WithLabelValues(p.namespace, p.name, "ok").Observe(took.Seconds())
	now := time.Now()
	if !newest.IsZero() {
		m.latency.WithLabelValues(p.namespace, p.name).Observe(max(0, now.Sub(newest).Seconds()))
	}
	m.tracer.commit(p, c, now, took, latency)
}

func (p *pipeline) stale(table string) {
	p.mu.Lock()
	p.totals.Stale++
	table = p.label(table)
	p.mu.Unlock()
	p.m.commits.WithLabelValues(p.namespace, p.name, table, "stale").Inc()
	p.m.conflicts.WithLabelValues(p.namespace, p.name).Inc()
}
