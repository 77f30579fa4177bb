// Package tracing converts trace contexts to their stored form and back, and links spans to the traces of
// runs.
package tracing

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
)

// attrRunID is set on the first span of every trace of a run, so that all of them are found by the run's
// id.
const attrRunID = "epigraph.run.id"

// RunAttribute is the attribute by which the traces of a run are found.
func RunAttribute(id string) attribute.KeyValue { return attribute.String(attrRunID, id) }

// Of is the stored form of the trace context in ctx.
func Of(ctx context.Context) outbox.Trace {
	m := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, m)
	return outbox.Trace{Parent: m["traceparent"], State: m["tracestate"]}
}

// OfSpan is the stored form of a span context.
func OfSpan(sc trace.SpanContext) outbox.Trace {
	return Of(trace.ContextWithSpanContext(context.Background(), sc))
}

// Span is the span context of a stored trace context. It is not valid if there is none.
func Span(t outbox.Trace) trace.SpanContext {
	if t.Parent == "" {
		return trace.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": t.Parent, "tracestate": t.State})
	return trace.SpanContextFromContext(ctx)
}

// OfRun is the context of the span that recorded a run.
func OfRun(run journal.Run) trace.SpanContext {
	return Span(outbox.Trace{Parent: run.TraceParent, State: run.TraceState})
}

// LinksTo returns a link to a span, if the span context is valid.
func LinksTo(sc trace.SpanContext) []trace.Link {
	if !sc.IsValid() {
		return nil
	}
	return []trace.Link{{SpanContext: sc}}
}

// FirstValid is sc, or other if sc is not valid.
func FirstValid(sc, other trace.SpanContext) trace.SpanContext {
	if sc.IsValid() {
		return sc
	}
	return other
}

// LinkRequest links the span of a request to the trace of its run.
func LinkRequest(ctx context.Context, row journal.Run) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(RunAttribute(row.ID))
	if origin := OfRun(row); origin.IsSampled() && origin.TraceID() != span.SpanContext().TraceID() {
		span.AddLink(trace.Link{SpanContext: origin})
	}
}
