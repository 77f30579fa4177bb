// Package otlptest owns a real OTLP/gRPC receiver for tests: exported telemetry arrives over a socket, in the
// wire format, and can be queried by trace, parent and name. It must not know which spans any service makes.
package otlptest

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collog "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	colmetric "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Span is one received span with the name of the service that sent it.
type Span struct {
	Service  string
	Scope    string
	TraceID  string
	SpanID   string
	ParentID string
	Name     string
	Kind     string
	Start    time.Time
	End      time.Time
	// Failed is set for the status ERROR.
	Failed bool
	Attrs  map[string]string
	Links  []string
}

// Receiver collects everything sent to Endpoint. It is safe for concurrent use.
type Receiver struct {
	endpoint string
	server   *grpc.Server

	mu      sync.Mutex
	spans   []Span
	metrics map[string]int
	logs    []Log
}

// Log is one received log record.
type Log struct {
	Service string
	Body    string
	TraceID string
	Attrs   map[string]string
}

// New starts a receiver on a loopback port that stops with the test.
func New(t testing.TB) *Receiver {
	t.Helper()
	r, err := Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r
}

// Start starts a receiver on addr outside of a test.
func Start(addr string) (*Receiver, error) {
	lis, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	r := &Receiver{endpoint: lis.Addr().String(), server: grpc.NewServer(), metrics: map[string]int{}}
	coltrace.RegisterTraceServiceServer(r.server, traceSink{r: r})
	colmetric.RegisterMetricsServiceServer(r.server, metricSink{r: r})
	collog.RegisterLogsServiceServer(r.server, logSink{r: r})
	go func() { _ = r.server.Serve(lis) }()
	return r, nil
}

// Endpoint is the host:port to export to, without TLS.
func (r *Receiver) Endpoint() string { return r.endpoint }

// Stop refuses further exports; received telemetry stays readable.
func (r *Receiver) Stop() { r.server.Stop() }

// Spans returns all spans so far by start time.
func (r *Receiver) Spans() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Clone(r.spans)
	slices.SortStableFunc(out, func(a, b Span) int { return a.Start.Compare(b.Start) })
	return out
}

// Trace returns the spans of one trace by start time.
func (r *Receiver) Trace(traceID string) []Span {
	return slices.DeleteFunc(r.Spans(), func(s Span) bool { return s.TraceID != traceID })
}

// Find returns the spans of one service and name; an empty service or name matches all.
func (r *Receiver) Find(service, name string) []Span {
	return slices.DeleteFunc(r.Spans(), func(s Span) bool {
		return (service != "" && s.Service != service) || (name != "" && s.Name != name)
	})
}

// Metrics returns how many times each metric was received.
func (r *Receiver) Metrics() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]int, len(r.metrics))
	for k, v := range r.metrics {
		out[k] = v
	}
	return out
}

// Logs returns all log records so far, in order of arrival.
func (r *Receiver) Logs() []Log {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.logs)
}

// Wait returns when cond holds for the spans so far, or fails the test with all of them after d.
func (r *Receiver) Wait(t testing.TB, d time.Duration, what string, cond func([]Span) bool) []Span {
	t.Helper()
	deadline := time.Now().Add(d)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		spans := r.Spans()
		if cond(spans) {
			return spans
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %s after %s; got:\n%s", what, d, Tree(spans))
		}
		<-tick.C
	}
}

// WaitFor returns the first span of this service and name, or fails the test after d.
func (r *Receiver) WaitFor(t testing.TB, d time.Duration, service, name string) Span {
	t.Helper()
	r.Wait(t, d, fmt.Sprintf("span %q of %q", name, service), func([]Span) bool { return len(r.Find(service, name)) > 0 })
	return r.Find(service, name)[0]
}

// RequireChild fails the test unless child is in parent's trace and directly below it.
func (r *Receiver) RequireChild(t testing.TB, parent, child Span) {
	t.Helper()
	if child.TraceID != parent.TraceID || child.ParentID != parent.SpanID {
		t.Fatalf("%s/%s is not a child of %s/%s:\n%s", child.Service, child.Name, parent.Service, parent.Name, Tree(r.Spans()))
	}
}

// RequirePath fails the test unless the trace has a chain of direct parents and children with these
// steps, each "service/span name", and returns the spans of the chain from the top.
func (r *Receiver) RequirePath(t testing.TB, traceID string, steps ...string) []Span {
	t.Helper()
	spans := r.Trace(traceID)
	var walk func(parent *Span, rest []string) []Span
	walk = func(parent *Span, rest []string) []Span {
		if len(rest) == 0 {
			return []Span{}
		}
		for _, s := range spans {
			if s.Service+"/"+s.Name != rest[0] || (parent != nil && s.ParentID != parent.SpanID) {
				continue
			}
			if tail := walk(&s, rest[1:]); tail != nil {
				return append([]Span{s}, tail...)
			}
		}
		return nil
	}
	path := walk(nil, steps)
	if path == nil {
		t.Fatalf("trace %s has no path %s:\n%s", traceID, strings.Join(steps, " > "), Tree(spans))
	}
	return path
}

// Tree prints spans as an indented forest, with trace ids at the roots.
func Tree(spans []Span) string {
	var b strings.Builder
	known := map[string]bool{}
	for _, s := range spans {
		known[s.TraceID+s.SpanID] = true
	}
	var show func(parent Span, depth int)
	line := func(s Span, depth int) {
		fmt.Fprintf(&b, "%s%s/%s (%s, %s)\n", strings.Repeat("  ", depth), s.Service, s.Name, s.Kind, s.End.Sub(s.Start).Round(time.Microsecond))
		show(s, depth+1)
	}
	show = func(parent Span, depth int) {
		for _, s := range spans {
			if s.TraceID == parent.TraceID && s.ParentID == parent.SpanID {
				line(s, depth)
			}
		}
	}
	for _, s := range spans {
		if s.ParentID == "" || !known[s.TraceID+s.ParentID] {
			fmt.Fprintf(&b, "trace %s\n", s.TraceID)
			line(s, 1)
		}
	}
	return b.String()
}

type traceSink struct {
	coltrace.UnimplementedTraceServiceServer
	r *Receiver
}

func (k traceSink) Export(_ context.Context, req *coltrace.ExportTraceServiceRequest) (*coltrace.ExportTraceServiceResponse, error) {
	k.r.mu.Lock()
	defer k.r.mu.Unlock()
	for _, rs := range req.GetResourceSpans() {
		service := attrs(rs.GetResource().GetAttributes())["service.name"]
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				span := Span{
					Service: service, Scope: ss.GetScope().GetName(), Name: s.GetName(),
					TraceID: hex.EncodeToString(s.GetTraceId()), SpanID: hex.EncodeToString(s.GetSpanId()), ParentID: hex.EncodeToString(s.GetParentSpanId()),
					Kind:  strings.ToLower(strings.TrimPrefix(s.GetKind().String(), "SPAN_KIND_")),
					Start: time.Unix(0, int64(s.GetStartTimeUnixNano())), End: time.Unix(0, int64(s.GetEndTimeUnixNano())),
					Failed: s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR, Attrs: attrs(s.GetAttributes()),
				}
				for _, l := range s.GetLinks() {
					span.Links = append(span.Links, hex.EncodeToString(l.GetTraceId()))
				}
				k.r.spans = append(k.r.spans, span)
			}
		}
	}
	return &coltrace.ExportTraceServiceResponse{}, nil
}

type metricSink struct {
	colmetric.UnimplementedMetricsServiceServer
	r *Receiver
}

func (k metricSink) Export(_ context.Context, req *colmetric.ExportMetricsServiceRequest) (*colmetric.ExportMetricsServiceResponse, error) {
	k.r.mu.Lock()
	defer k.r.mu.Unlock()
	for _, rm := range req.GetResourceMetrics() {
		for _, sm := range rm.GetScopeMetrics() {
			for _, m := range sm.GetMetrics() {
				k.r.metrics[m.GetName()]++
			}
		}
	}
	return &colmetric.ExportMetricsServiceResponse{}, nil
}

type logSink struct {
	collog.UnimplementedLogsServiceServer
	r *Receiver
}

func (k logSink) Export(_ context.Context, req *collog.ExportLogsServiceRequest) (*collog.ExportLogsServiceResponse, error) {
	k.r.mu.Lock()
	defer k.r.mu.Unlock()
	for _, rl := range req.GetResourceLogs() {
		service := attrs(rl.GetResource().GetAttributes())["service.name"]
		for _, sl := range rl.GetScopeLogs() {
			for _, l := range sl.GetLogRecords() {
				k.r.logs = append(k.r.logs, Log{Service: service, Body: text(l.GetBody()), TraceID: hex.EncodeToString(l.GetTraceId()), Attrs: attrs(l.GetAttributes())})
			}
		}
	}
	return &collog.ExportLogsServiceResponse{}, nil
}

func attrs(kvs []*commonpb.KeyValue) map[string]string {
	out := make(map[string]string, len(kvs))
	for _, kv := range kvs {
		out[kv.GetKey()] = text(kv.GetValue())
	}
	return out
}

func text(v *commonpb.AnyValue) string {
	switch v.GetValue().(type) {
	case *commonpb.AnyValue_StringValue:
		return v.GetStringValue()
	case *commonpb.AnyValue_IntValue:
		return fmt.Sprint(v.GetIntValue())
	case *commonpb.AnyValue_BoolValue:
		return fmt.Sprint(v.GetBoolValue())
	case *commonpb.AnyValue_DoubleValue:
		return fmt.Sprint(v.GetDoubleValue())
	case nil:
		return ""
	}
	return v.String()
}
