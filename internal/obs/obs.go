// Package obs owns telemetry: it builds, per service, a tracer provider, a meter provider and a
// logger that carry that service's name, exports them over OTLP when an endpoint is configured, and
// serves metrics to Prometheus. Nothing global is set, so that several services in one process stay
// apart. It must not know what the services do.
package obs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	promexporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// Config says who reports and where to. DefaultConfig gives the defaults.
type Config struct {
	ServiceName    string `conf:"-"`
	ServiceVersion string `conf:"-"`
	// InstanceID identifies the replica; empty means host name and process id.
	InstanceID string `help:"name of this replica in telemetry; default the host name and process id"`
	// OTLPEndpoint is host:port or a http(s) URL. Empty falls back to the OTEL_EXPORTER_OTLP_*
	// variables, and without those nothing is exported.
	OTLPEndpoint string `conf:"otlp_endpoint" help:"OTLP/gRPC receiver, host:port; default from the OTEL_EXPORTER_OTLP_* variables"`
	// Insecure exports without TLS; a http:// URL implies it.
	Insecure bool `help:"export telemetry without TLS"`
	// SampleRatio is the share of new traces that are kept; the caller's decision is always honored. Without
	// an exporter no traces are kept.
	SampleRatio float64 `help:"share of new traces that are sampled, 0 to 1; none without an exporter"`
	LogLevel    string  `help:"log level: debug, info, warn or error"`
	LogFormat   string  `help:"log format: json or text"`
	// MetricInterval is the pause between two metric exports over OTLP.
	MetricInterval time.Duration `help:"pause between two metric exports"`

	// LogWriter takes the local log lines; nil means standard error.
	LogWriter io.Writer `conf:"-"`
	// Ring, if set, keeps ended spans for Recent. Several services may share one.
	Ring *Ring `conf:"-"`
}

// DefaultConfig keeps every trace and logs JSON from level info on.
func DefaultConfig() Config {
	return Config{SampleRatio: 1, LogLevel: "info", LogFormat: "json", MetricInterval: 15 * time.Second}
}

// Validate reports every field that cannot be used.
func (c Config) Validate() error {
	var faults []error
	if c.SampleRatio < 0 || c.SampleRatio > 1 {
		faults = append(faults, fmt.Errorf("sample_ratio must be from 0 to 1, got %v", c.SampleRatio))
	}
	if err := new(slog.LevelVar).UnmarshalText([]byte(c.LogLevel)); err != nil {
		faults = append(faults, fmt.Errorf("log_level must be debug, info, warn or error, got %q", c.LogLevel))
	}
	if c.LogFormat != "json" && c.LogFormat != "text" {
		faults = append(faults, fmt.Errorf("log_format must be json or text, got %q", c.LogFormat))
	}
	return errors.Join(faults...)
}

// Telemetry is what one service reports with. The providers and Logger are never nil when made by
// Setup or Noop. It is safe for concurrent use.
type Telemetry struct {
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
	Logger         *slog.Logger
	Propagator     propagation.TextMapPropagator
	// Gatherer has the service's metrics for Prometheus; nil means none.
	Gatherer prometheus.Gatherer

	ring     *Ring
	shutdown []func(context.Context) error
}

// Noop returns telemetry that reports nothing but still carries trace context on.
func Noop() *Telemetry {
	return &Telemetry{
		TracerProvider: tracenoop.NewTracerProvider(),
		MeterProvider:  metricnoop.NewMeterProvider(),
		Logger:         slog.New(slog.DiscardHandler),
		Propagator:     propagator(),
	}
}

// Setup builds the telemetry of one service. Exporters connect lazily, so an unreachable receiver is
// no error. Call Shutdown at the end, else the last spans are lost.
func Setup(ctx context.Context, cfg Config) (_ *Telemetry, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, errs.New(errs.InvalidArgument, "TELEMETRY_CONFIG_INVALID", "telemetry: %v", err)
	}
	t := &Telemetry{Propagator: propagator(), ring: cfg.Ring}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.Shutdown(ctx))
		}
	}()
	res, err := describe(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("describe the service: %w", err)
	}
	if err := t.traces(ctx, cfg, res); err != nil {
		return nil, fmt.Errorf("set up traces: %w", err)
	}
	if err := t.metrics(ctx, cfg, res); err != nil {
		return nil, fmt.Errorf("set up metrics: %w", err)
	}
	if err := t.logs(ctx, cfg, res); err != nil {
		return nil, fmt.Errorf("set up logs: %w", err)
	}
	return t, nil
}

// WithLogger is this telemetry with another logger. Its Shutdown does nothing.
func (t *Telemetry) WithLogger(log *slog.Logger) *Telemetry {
	out := *t
	out.Logger, out.shutdown = log, nil
	return &out
}

// Tracer returns the tracer of a package, named by its import path.
func (t *Telemetry) Tracer(name string) trace.Tracer { return t.TracerProvider.Tracer(name) }

// Meter returns the meter of a package, named by its import path.
func (t *Telemetry) Meter(name string) metric.Meter { return t.MeterProvider.Meter(name) }

// Recent returns the ended spans of a trace that the ring still holds, oldest first; nil without a ring.
func (t *Telemetry) Recent(traceID string) []Span {
	if t.ring == nil {
		return nil
	}
	return t.ring.Trace(traceID)
}

// Shutdown flushes and stops everything within ctx. Telemetry used afterwards is dropped.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	var faults []error
	for i := len(t.shutdown) - 1; i >= 0; i-- {
		faults = append(faults, t.shutdown[i](ctx))
	}
	t.shutdown = nil
	return errors.Join(faults...)
}

// MetricsHandler serves the metrics of all given services in one page.
func MetricsHandler(ts ...*Telemetry) http.Handler {
	var all prometheus.Gatherers
	for _, t := range ts {
		if t.Gatherer != nil {
			all = append(all, t.Gatherer)
		}
	}
	return promhttp.HandlerFor(all, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

func propagator() propagation.TextMapPropagator {
	return propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
}

func describe(ctx context.Context, cfg Config) (*resource.Resource, error) {
	if cfg.InstanceID == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		cfg.InstanceID = fmt.Sprintf("%s/%d/%s", host, os.Getpid(), cfg.ServiceName)
	}
	return resource.New(ctx, resource.WithTelemetrySDK(), resource.WithFromEnv(), resource.WithAttributes(
		semconv.ServiceName(cfg.ServiceName), semconv.ServiceVersion(cfg.ServiceVersion), semconv.ServiceInstanceID(cfg.InstanceID)))
}

// linked samples a new trace that continues earlier ones as those were sampled, so that a kept chain is kept
// to its end. The inner sampler decides about traces without links.
type linked struct{ sdktrace.Sampler }

func (l linked) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	for _, to := range p.Links {
		if to.SpanContext.IsSampled() {
			return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample, Tracestate: trace.SpanContextFromContext(p.ParentContext).TraceState()}
		}
	}
	return l.Sampler.ShouldSample(p)
}

func (t *Telemetry) traces(ctx context.Context, cfg Config, res *resource.Resource) error {
	var root sdktrace.Sampler = linked{sdktrace.TraceIDRatioBased(cfg.SampleRatio)}
	if cfg.Ring == nil && !cfg.exports("TRACES") {
		root = sdktrace.NeverSample() // nobody would ever see what it costs to record
	}
	opts := []sdktrace.TracerProviderOption{sdktrace.WithResource(res), sdktrace.WithSampler(sdktrace.ParentBased(root))}
	if cfg.Ring != nil {
		opts = append(opts, sdktrace.WithSpanProcessor(cfg.Ring))
	}
	if cfg.exports("TRACES") {
		var o []otlptracegrpc.Option
		if addr, insecure := cfg.endpoint(); addr != "" {
			o = append(o, otlptracegrpc.WithEndpoint(addr))
			if insecure {
				o = append(o, otlptracegrpc.WithInsecure())
			}
		}
		exp, err := otlptracegrpc.New(ctx, o...)
		if err != nil {
			return err
		}
		opts = append(opts, sdktrace.WithBatcher(exp))
	}
	tp := sdktrace.NewTracerProvider(opts...)
	t.TracerProvider = tp
	t.shutdown = append(t.shutdown, tp.Shutdown)
	return nil
}

func (t *Telemetry) metrics(ctx context.Context, cfg Config, res *resource.Resource) error {
	reg := prometheus.NewRegistry()
	// The name is a label of every series, since several services may share one page.
	own := prometheus.WrapRegistererWith(prometheus.Labels{"service_name": cfg.ServiceName}, reg)
	own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reader, err := promexporter.New(promexporter.WithRegisterer(reg), promexporter.WithoutScopeInfo(), promexporter.WithoutTargetInfo(),
		promexporter.WithResourceAsConstantLabels(attribute.NewAllowKeysFilter(semconv.ServiceNameKey)))
	if err != nil {
		return err
	}
	opts := []sdkmetric.Option{sdkmetric.WithResource(res), sdkmetric.WithReader(reader)}
	if cfg.exports("METRICS") {
		var o []otlpmetricgrpc.Option
		if addr, insecure := cfg.endpoint(); addr != "" {
			o = append(o, otlpmetricgrpc.WithEndpoint(addr))
			if insecure {
				o = append(o, otlpmetricgrpc.WithInsecure())
			}
		}
		exp, err := otlpmetricgrpc.New(ctx, o...)
		if err != nil {
			return err
		}
		opts = append(opts, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exp, sdkmetric.WithInterval(cfg.MetricInterval))))
	}
	mp := sdkmetric.NewMeterProvider(opts...)
	t.MeterProvider, t.Gatherer = mp, reg
	t.shutdown = append(t.shutdown, mp.Shutdown)
	return nil
}

func (t *Telemetry) logs(ctx context.Context, cfg Config, res *resource.Resource) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.LogLevel)); err != nil {
		return err
	}
	local := localHandler(cfg, level)
	if !cfg.exports("LOGS") {
		t.Logger = slog.New(local)
		return nil
	}
	var o []otlploggrpc.Option
	if addr, insecure := cfg.endpoint(); addr != "" {
		o = append(o, otlploggrpc.WithEndpoint(addr))
		if insecure {
			o = append(o, otlploggrpc.WithInsecure())
		}
	}
	exp, err := otlploggrpc.New(ctx, o...)
	if err != nil {
		return err
	}
	lp := sdklog.NewLoggerProvider(sdklog.WithResource(res), sdklog.WithProcessor(sdklog.NewBatchProcessor(exp)))
	t.shutdown = append(t.shutdown, lp.Shutdown)
	remote := levelHandler{Handler: otelslog.NewHandler(cfg.ServiceName, otelslog.WithLoggerProvider(lp)), level: level}
	t.Logger = slog.New(slog.NewMultiHandler(local, remote))
	return nil
}

// exports reports whether a signal (TRACES, METRICS, LOGS) has somewhere to go.
func (c Config) exports(signal string) bool {
	return c.OTLPEndpoint != "" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
}

// endpoint splits the configured address; an empty one leaves everything to the exporter's variables.
func (c Config) endpoint() (addr string, insecure bool) {
	if rest, ok := strings.CutPrefix(c.OTLPEndpoint, "http://"); ok {
		return strings.TrimSuffix(rest, "/"), true
	}
	return strings.TrimSuffix(strings.TrimPrefix(c.OTLPEndpoint, "https://"), "/"), c.Insecure
}
