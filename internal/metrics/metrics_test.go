package metrics_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	freshet "github.com/freshet-io/freshet"
	"github.com/freshet-io/freshet/internal/metrics"
)

func get(t *testing.T, m *metrics.Metrics, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(body)
}

// TestMetrics_Names_AreKept lists what dashboards and alerts are built on.
func TestMetrics_Names_AreKept(t *testing.T) {
	m := metrics.New("1.2.3")
	o := m.Observer("bronze", "orders", "kafka")
	lane := freshet.Lane{Origin: "orders", Name: "0"}
	o.State("running")
	o.Read("bronze.orders", 9, 1, 1000, time.Millisecond)
	o.Stage("read", time.Millisecond)
	o.Lag(lane, 5)
	o.Lag(freshet.Lane{Origin: "orders", Name: "1"}, 2)
	o.Retry("commit", io.EOF)
	o.Committed(freshet.Committed{Table: "bronze.orders", Version: 3, Rows: 9, Rejects: 1, Bytes: 500, Files: 1, Retries: 2},
		time.Millisecond, time.Second, time.Now().Add(-time.Minute))
	o.Stale("bronze.orders")
	o.Lossy("bronze.orders", "total", 3)
	o.Held(freshet.Held{Retained: 4096, Safe: 1024, PerSecond: 512, Left: 2 * time.Second})
	o.Loading(freshet.Loading{Table: "bronze.orders", Rows: 10, Of: 40})
	o.Slow("bronze.orders", "it hung")
	o.Slow("bronze.lines", "it hung")
	o.Slow("bronze.lines", "")
	o.Compared(freshet.Compared{Table: "bronze.orders", Rows: 70, Classes: map[string]int64{"missing": 3, "extra": 0}, Mended: 1,
		Took: 2 * time.Second})
	code, body := get(t, m, "/metrics")
	if code != http.StatusOK {
		t.Fatalf("/metrics: status %d", code)
	}
	const labels = `namespace="bronze",pipeline="orders"`
	for _, want := range []string{
		`freshet_source_records_total{` + labels + `,source_type="kafka"} 10`,
		`freshet_verify_rows_total{` + labels + `,table="bronze.orders"} 70`,
		`freshet_verify_seconds_total{` + labels + `,table="bronze.orders"} 2`,
		`freshet_verify_mended_total{` + labels + `,table="bronze.orders"} 1`,
		`freshet_verify_differences{class="missing",` + labels + `,table="bronze.orders"} 3`,
		`freshet_verify_differences{class="extra",` + labels + `,table="bronze.orders"} 0`,
		`freshet_verify_time_seconds{` + labels + `,table="bronze.orders"} `,
		`freshet_source_bytes_total{` + labels + `,source_type="kafka"} 1000`,
		`freshet_source_backlog_records{` + labels + `} 7`,
		`freshet_source_lag_seconds{` + labels + `} `,
		`freshet_table_freshness_seconds{` + labels + `,table="bronze.orders"} `,
		`freshet_end_to_end_latency_seconds_count{` + labels + `} 1`,
		`freshet_rows_written_total{namespace="bronze",op="insert",pipeline="orders",table="bronze.orders"} 9`,
		`freshet_quarantine_records_total{` + labels + `} 1`,
		`freshet_commits_total{` + labels + `,result="ok",table="bronze.orders"} 1`,
		`freshet_commits_total{` + labels + `,result="stale",table="bronze.orders"} 1`,
		`freshet_commit_conflicts_total{` + labels + `} 3`,
		`freshet_commit_duration_seconds_count{` + labels + `,result="ok"} 1`,
		`freshet_batch_stage_duration_seconds_count{` + labels + `,stage="read"} 1`,
		`freshet_source_kept_bytes{` + labels + `} 4096`, `freshet_source_kept_bytes_per_second{` + labels + `} 512`,
		`freshet_source_safe_bytes{` + labels + `} 1024`,
		`freshet_source_seconds_left{` + labels + `} 2`,
		`freshet_lossy_values_total{` + labels + `,table="bronze.orders"} 3`,
		`freshet_history_rows_done{` + labels + `,table="bronze.orders"} 10`,
		`freshet_history_rows_expected{` + labels + `,table="bronze.orders"} 40`,
		`freshet_table_slow{` + labels + `,table="bronze.orders"} 1`,
		`freshet_table_slow{` + labels + `,table="bronze.lines"} 0`,
		`freshet_retries_total{` + labels + `} 1`,
		`freshet_pipeline_state{` + labels + `,state="running"} 1`,
		`freshet_pipeline_state{` + labels + `,state="failed"} 0`,
		`freshet_build_info{goversion="`, `version="1.2.3"} 1`, "go_goroutines ", "process_resident_memory_bytes ",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("/metrics: no %s", want)
		}
	}
}

func TestReady_States_SaidWithTheirReasons(t *testing.T) {
	m := metrics.New("1")
	if ready, _ := m.Ready(); ready {
		t.Error("ready without a pipeline")
	}
	o := m.Observer("bronze", "orders", "kafka")
	for _, step := range []struct {
		do    func()
		code  int
		reads string
	}{
		{func() {}, http.StatusServiceUnavailable, "bronze.orders: starting"},
		{func() { o.State("running") }, http.StatusOK, "bronze.orders: running"},
		{func() { o.Retry("commit", io.EOF) }, http.StatusServiceUnavailable, "trying again: commit"},
		{func() { o.Retry("create", io.EOF) }, http.StatusServiceUnavailable, "trying again: "},
		{func() { o.Recovered("create") }, http.StatusServiceUnavailable, "trying again: commit"},
		{func() { o.Recovered("commit") }, http.StatusOK, "running"},
		{func() { o.Slow("bronze.lines", "it hung") }, http.StatusOK,
			"bronze.lines is slow, and its changes are parked: it hung"},
		{func() { o.Slow("bronze.lines", "") }, http.StatusOK, "bronze.orders: running\n"},
		{func() { o.State("failed") }, http.StatusServiceUnavailable, "failed"},
	} {
		step.do()
		code, body := get(t, m, "/readyz")
		if code != step.code || !strings.Contains(body, step.reads) {
			t.Errorf("/readyz: got %d %q, want %d %q", code, body, step.code, step.reads)
		}
	}
	if code, _ := get(t, m, "/livez"); code != http.StatusOK {
		t.Errorf("/livez: status %d", code)
	}
}

func TestReady_TroubleThatIsNotTriedAgain_IsOverAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New("1")
		o := m.Observer("bronze", "orders", "kafka")
		o.State("running")
		o.Retry("read orders[0]", io.EOF)
		<-time.After(59 * time.Second)
		if ready, reasons := m.Ready(); ready {
			t.Errorf("ready within a minute: %v", reasons)
		}
		<-time.After(time.Second)
		if ready, reasons := m.Ready(); !ready {
			t.Errorf("not ready after a minute: %v", reasons)
		}
	})
}

func TestBacklog_LaneIsLost_NotCounted(t *testing.T) {
	m := metrics.New("1")
	o := m.Observer("bronze", "orders", "kafka")
	one, two := freshet.Lane{Origin: "orders", Name: "0"}, freshet.Lane{Origin: "orders", Name: "1"}
	const gauge = `freshet_source_backlog_records{namespace="bronze",pipeline="orders"}`
	for _, step := range []struct {
		lane freshet.Lane
		n    int64
		want string
	}{{one, 5, gauge + " 5"}, {two, 2, gauge + " 7"}, {one, -1, gauge + " 2"}, {two, -1, ""}} {
		o.Lag(step.lane, step.n)
		_, body := get(t, m, "/metrics")
		if step.want == "" && strings.Contains(body, gauge) || !strings.Contains(body, step.want) {
			t.Errorf("after %s is at %d: want %q", step.lane, step.n, step.want)
		}
	}
}

func TestObserver_ManyTables_LabelsAreBounded(t *testing.T) {
	m := metrics.New("1")
	o := m.Observer("raw", "all", "kafka")
	for i := range 500 {
		o.Committed(freshet.Committed{Table: "raw.t" + strings.Repeat("x", i), Rows: 1}, 0, 0, time.Now())
	}
	_, body := get(t, m, "/metrics")
	if n := strings.Count(body, "freshet_rows_written_total{"); n != 201 {
		t.Errorf("%d tables, want 200 and other", n)
	}
	if !strings.Contains(body, `table="other"`) {
		t.Error(`no table="other"`)
	}
}

func TestStartOTLP_Endpoint_GetsMetricsAndTraces(t *testing.T) {
	seen := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.URL.Path }))
	defer server.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.URL)
	m := metrics.New("1")
	stop, err := m.StartOTLP(t.Context(), "1")
	if err != nil {
		t.Fatal(err)
	}
	o := m.Observer("bronze", "orders", "kafka")
	o.Committed(freshet.Committed{Table: "bronze.orders", Rows: 1}, time.Millisecond, time.Second, time.Now())
	if err := stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	close(seen)
	got := map[string]bool{}
	for path := range seen {
		got[path] = true
	}
	if !got["/v1/metrics"] || !got["/v1/traces"] {
		t.Errorf("got %v, want /v1/metrics and /v1/traces", got)
	}
}

func TestStartOTLP_GRPC_IsUnavailable(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	if _, err := metrics.New("1").StartOTLP(t.Context(), "1"); err == nil || !strings.Contains(err.Error(), "FRE-1401") {
		t.Errorf("got %v, want FRE-1401", err)
	}
}

func TestTotals_Loading_RowsAndTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New("1.2.3")
		o := m.Observer("bronze", "shop", "postgres")
		o.Loading(freshet.Loading{Table: "a", Rows: 100, Of: 1100}) // 100 by a process before
		o.Loading(freshet.Loading{Table: "b", Rows: 0, Of: 5})
		<-time.After(10 * time.Second)
		o.Loading(freshet.Loading{Table: "a", Rows: 600, Of: 1100})
		o.Loading(freshet.Loading{Table: "b", Rows: 7, Of: 5, Done: true})
		got, want := m.Totals()[0].Loading, metrics.Loading{Tables: 1, Rows: 600, Of: 1100, Left: 10 * time.Second}
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// What differs counts until the table is compared again.
func TestTotals_Differing_OfTheLastComparisons(t *testing.T) {
	m := metrics.New("")
	o := m.Observer("bronze", "orders", "postgres")
	o.Compared(freshet.Compared{Table: "a", Classes: map[string]int64{"missing": 3, "extra": 2}, Mended: 1})
	o.Compared(freshet.Compared{Table: "b", Classes: map[string]int64{"missing": 5}})
	if got := m.Totals()[0].Differing; got != 9 {
		t.Errorf("got %d rows that differ, wanted 9", got)
	}
	o.Compared(freshet.Compared{Table: "b", Classes: map[string]int64{"missing": 0}})
	if got := m.Totals()[0].Differing; got != 4 {
		t.Errorf("got %d rows that differ, wanted 4", got)
	}
}
