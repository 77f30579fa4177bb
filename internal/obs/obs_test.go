package obs_test

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/otlptest"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func setup(t *testing.T, change func(*obs.Config)) *obs.Telemetry {
	t.Helper()
	cfg := obs.DefaultConfig()
	cfg.ServiceName, cfg.ServiceVersion, cfg.LogWriter = "executor", "v0", io.Discard
	if change != nil {
		change(&cfg)
	}
	tel, err := obs.Setup(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tel.Shutdown(testkit.Context(t, time.Second)) })
	return tel
}

func TestExport(t *testing.T) {
	rcv := otlptest.New(t)
	a := setup(t, func(c *obs.Config) { c.ServiceName, c.OTLPEndpoint, c.Insecure = "gateway", rcv.Endpoint(), true })
	b := setup(t, func(c *obs.Config) { c.OTLPEndpoint = "http://" + rcv.Endpoint() })

	ctx, parent := a.Tracer("test").Start(t.Context(), "GET /v1/runs")
	cctx, child := b.Tracer("test").Start(ctx, "run.start")
	b.Logger.InfoContext(cctx, "run started", "run", "run_1")
	b.Logger.DebugContext(cctx, "below the level")
	counter, err := b.Meter("test").Int64Counter("epigraph.runs")
	require.NoError(t, err)
	counter.Add(cctx, 1)
	child.End()
	parent.End()
	flush := testkit.Context(t, 10*time.Second)
	require.NoError(t, a.Shutdown(flush))
	require.NoError(t, b.Shutdown(flush))
	require.NoError(t, b.Shutdown(flush), "a second time does nothing")

	p := rcv.WaitFor(t, 5*time.Second, "gateway", "GET /v1/runs")
	c := rcv.WaitFor(t, 5*time.Second, "executor", "run.start")
	rcv.RequireChild(t, p, c)
	require.Len(t, rcv.RequirePath(t, p.TraceID, "gateway/GET /v1/runs", "executor/run.start"), 2)
	require.Positive(t, rcv.Metrics()["epigraph.runs"])
	require.Len(t, rcv.Logs(), 1)
	require.Equal(t, "run started", rcv.Logs()[0].Body)
	require.Equal(t, c.TraceID, rcv.Logs()[0].TraceID)
	require.Equal(t, "run_1", rcv.Logs()[0].Attrs["run"])
}

func TestLog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	tel := setup(t, func(c *obs.Config) { c.LogWriter, c.LogLevel = &out, "warn" })
	ctx, span := tel.Tracer("test").Start(t.Context(), "x")
	defer span.End()
	tel.Logger.InfoContext(ctx, "dropped")
	tel.Logger.With("a", 1).WarnContext(ctx, "kept")
	var line map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &line), out.String())
	require.Equal(t, "kept", line[slog.MessageKey])
	require.Equal(t, "executor", line["service"])
	require.Equal(t, span.SpanContext().TraceID().String(), line["trace_id"])
	require.Equal(t, span.SpanContext().SpanID().String(), line["span_id"])
}

func TestMetricsPage(t *testing.T) {
	t.Parallel()
	a := setup(t, func(c *obs.Config) { c.ServiceName = "planner" })
	b := setup(t, nil)
	for _, tel := range []*obs.Telemetry{a, b} {
		n, err := tel.Meter("test").Int64Counter("epigraph.calls")
		require.NoError(t, err)
		n.Add(t.Context(), 3)
	}
	rec := httptest.NewRecorder()
	obs.MetricsHandler(a, b, obs.Noop()).ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, rec.Code)
	page := rec.Body.String()
	require.Contains(t, page, `epigraph_calls_total{service_name="planner"} 3`)
	require.Contains(t, page, `epigraph_calls_total{service_name="executor"} 3`)
	require.Contains(t, page, `go_goroutines{service_name="planner"}`)
}

func TestRing(t *testing.T) {
	t.Parallel()
	ring := obs.NewRing(3)
	tel := setup(t, func(c *obs.Config) { c.Ring = ring })
	other := setup(t, func(c *obs.Config) { c.Ring, c.ServiceName = ring, "registry" })
	for range 5 {
		_, s := tel.Tracer("t").Start(t.Context(), "old")
		s.End()
	}
	ctx, root := tel.Tracer("t").Start(t.Context(), "root")
	_, leaf := other.Tracer("t").Start(ctx, "leaf")
	leaf.End()
	root.End()
	spans := tel.Recent(root.SpanContext().TraceID().String())
	require.Len(t, spans, 2)
	require.Equal(t, "root", spans[0].Name)
	require.Empty(t, spans[0].ParentID)
	require.Equal(t, spans[0].SpanID, spans[1].ParentID)
	require.Equal(t, "registry", spans[1].Service)
	require.Nil(t, obs.Noop().Recent("x"))
}

func TestSampling(t *testing.T) {
	t.Parallel()
	tracer := setup(t, func(c *obs.Config) { c.Ring, c.SampleRatio = obs.NewRing(3), 0 }).Tracer("t")
	sampled := func(flags trace.TraceFlags, o ...trace.SpanStartOption) bool {
		sc := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: flags})
		_, s := tracer.Start(t.Context(), "root", append(o, trace.WithLinks(trace.Link{SpanContext: sc}))...)
		s.End()
		return s.SpanContext().IsSampled()
	}
	require.True(t, sampled(trace.FlagsSampled), "a trace that goes on with one that is kept")
	require.False(t, sampled(0), "a trace that goes on with one that is not kept")
	_, s := tracer.Start(t.Context(), "root")
	s.End()
	require.False(t, s.SpanContext().IsSampled(), "a trace of its own")
}

func TestConfig(t *testing.T) {
	t.Parallel()
	cfg := obs.DefaultConfig()
	require.NoError(t, cfg.Validate())
	cfg.SampleRatio, cfg.LogLevel, cfg.LogFormat = 2, "loud", "xml"
	_, err := obs.Setup(t.Context(), cfg)
	require.True(t, errs.Is(err, errs.InvalidArgument))
	for _, word := range []string{"sample_ratio", "log_level", "log_format"} {
		require.ErrorContains(t, err, word)
	}
}
