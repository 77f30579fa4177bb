package gateway_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

// TestTrace follows one request from the client's span to the service's.
func TestTrace(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	metrics := sdkmetric.NewManualReader()
	tel, services := obs.Noop(), obs.Noop()
	tel.TracerProvider, services.TracerProvider = provider, provider
	tel.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(metrics))
	r := start(t, options{tel: tel, service: services})
	r.executor.get = echoGet
	r.executor.watch = func(_ *watchRequest, s watchStream) error { return s.Send(ended(1, "1")) }

	const traceID, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	res := r.call(t, "GET", "/v1/runs/run_1", "", "Traceparent", "00-"+traceID+"-"+parent+"-01")
	require.Equal(t, traceID, res.header.Get("X-Trace-Id"))

	find := func(name string, kind trace.SpanKind) sdktrace.ReadOnlySpan {
		var found sdktrace.ReadOnlySpan
		testkit.Eventually(t, func() bool {
			for _, s := range spans.Ended() {
				if s.Name() == name && s.SpanKind() == kind {
					found = s
					return true
				}
			}
			return false
		}, name)
		return found
	}
	http := find("GET /v1/runs/{run_id}", trace.SpanKindServer)
	client := find("epigraph.executor.v1.ExecutorService/GetRun", trace.SpanKindClient)
	server := find("epigraph.executor.v1.ExecutorService/GetRun", trace.SpanKindServer)
	require.Equal(t, parent, http.Parent().SpanID().String())
	require.Equal(t, http.SpanContext().SpanID(), client.Parent().SpanID())
	require.Equal(t, client.SpanContext().SpanID(), server.Parent().SpanID())
	require.Equal(t, traceID, server.SpanContext().TraceID().String())
	require.Contains(t, http.Attributes(), attribute.String("http.route", "/v1/runs/{run_id}"))
	require.Contains(t, http.Attributes(), attribute.String("epigraph.namespace", "default"))

	t.Run("Trace/OfAnEventStream", func(t *testing.T) {
		newReader(r.events(t, "/v1/runs/run_1/events").Body).all()
		stream := find("GET /v1/runs/{run_id}/events", trace.SpanKindServer)
		watch := find("epigraph.executor.v1.ExecutorService/WatchRun", trace.SpanKindClient)
		require.Equal(t, stream.SpanContext().SpanID(), watch.Parent().SpanID())
	})
	t.Run("Trace/NotOfProbes", func(t *testing.T) {
		r.call(t, "GET", "/healthz", "")
		r.call(t, "GET", "/readyz", "")
		for _, s := range spans.Ended() {
			require.NotContains(t, s.Name(), "healthz")
			require.NotContains(t, s.Name(), "Health/Check")
		}
	})
	t.Run("Metrics/ByRoute", func(t *testing.T) {
		r.call(t, "GET", "/v1/nothing", "")
		var data metricdata.ResourceMetrics
		require.NoError(t, metrics.Collect(t.Context(), &data))
		routes := map[string]bool{}
		for _, scope := range data.ScopeMetrics {
			for _, m := range scope.Metrics {
				h, ok := m.Data.(metricdata.Histogram[float64])
				if !ok || m.Name != "http.server.request.duration" {
					continue
				}
				for _, p := range h.DataPoints {
					v, _ := p.Attributes.Value("http.route")
					routes[v.AsString()] = true
				}
			}
		}
		require.True(t, routes["/v1/runs/{run_id}"], "%v", routes)
		require.True(t, routes["/v1/runs/{run_id}/events"], "%v", routes)
		require.True(t, routes[""], "an unknown path has no route of its own: %v", routes)
		require.Len(t, routes, 3)
	})
}
