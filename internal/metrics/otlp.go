package metrics

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	freshet "github.com/freshet-io/freshet"
)

// tracer makes a span of each commit. The zero value makes none.
type tracer struct{ of trace.Tracer }

// commit records one commit: from the arrival of its oldest record until it was there.
func (t tracer) commit(p *pipeline, c freshet.Committed, now time.Time, took, latency time.Duration) {
	if t.of == nil {
		return
	}
	ctx, batch := t.of.Start(context.Background(), "freshet.batch", trace.WithTimestamp(now.Add(-latency)),
		trace.WithAttributes(attribute.String("freshet.namespace", p.namespace),
			attribute.String("freshet.pipeline", p.name),
			attribute.String("freshet.table", c.Table), attribute.Int64("freshet.version", c.Version),
			attribute.Int64("freshet.rows", c.Rows), attribute.Int64("freshet.rejects", c.Rejects),
			attribute.Int64("freshet.bytes", c.Bytes), attribute.Int("freshet.files", c.Files)))
	_, commit := t.of.Start(ctx, "freshet.commit", trace.WithTimestamp(now.Add(-took)),
		trace.WithAttributes(attribute.Int("freshet.retries", c.Retries)))
	commit.End(trace.WithTimestamp(now))
	batch.End(trace.WithTimestamp(now))
}

// StartOTLP sends metrics and traces where OpenTelemetry's own variables say (OTEL_EXPORTER_OTLP_ENDPOINT and
// its like), over HTTP, until stop is called; it does nothing when they say nothing. It is to be called
// before pipelines run. Errors: CodeUnavailable for a protocol that is not HTTP.
func (m *Metrics) StartOTLP(ctx context.Context, version string) (stop func(context.Context) error,
	err error) {
	nothing := func(context.Context) error { return nil }
	metrics, traces := wanted("METRICS"), wanted("TRACES")
	if !metrics && !traces || os.Getenv("OTEL_SDK_DISABLED") == "true" {
		return nothing, nil
	}
	if p := os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"); p != "" && p != "http/protobuf" {
		return nothing, &freshet.Error{Code: freshet.CodeUnavailable, Class: freshet.ClassInput,
			Msg: fmt.Sprintf("OTEL_EXPORTER_OTLP_PROTOCOL: found %q, wanted http/protobuf, which is the one that "+
				"this version has", p),
			Fix: "unset it and name the collector's HTTP port, which is mostly 4318"}
	}
	res, err := resource.Merge(resource.Default(), resource.NewSchemaless(
		attribute.String("service.name", serviceName()), attribute.String("service.version", version)))
	if err != nil {
		res = resource.Default()
	}
	var stops []func(context.Context) error
	if metrics {
		exporter, err := otlpmetrichttp.New(ctx)
		if err != nil {
			return nothing, fmt.Errorf("start OTLP metrics: %w", err)
		}
		reader := metric.NewPeriodicReader(exporter,
			metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(m.registry))))
		stops = append(stops, metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(res)).Shutdown)
	}
	if traces {
		exporter, err := otlptracehttp.New(ctx)
		if err != nil {
			return nothing, fmt.Errorf("start OTLP traces: %w", err)
		}
		provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(res))
		m.tracer = tracer{provider.Tracer("github.com/freshet-io/freshet")}
		stops = append(stops, provider.Shutdown)
	}
	return func(ctx context.Context) error {
		var errs []error
		for _, stop := range stops {
			errs = append(errs, stop(ctx))
		}
		return errors.Join(errs...)
	}, nil
}

func serviceName() string {
	if name := os.Getenv("OTEL_SERVICE_NAME"); name != "" {
		return name
	}
	return "freshet"
}

// wanted tells whether signals of this kind, METRICS or TRACES, are to be sent.
func wanted(kind string) bool {
	if strings.EqualFold(os.Getenv("OTEL_"+kind+"_EXPORTER"), "none") {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" ||
		os.Getenv("OTEL_EXPORTER_OTLP_"+kind+"_ENDPOINT") != ""
}
