package engine

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
)

// attrRunID is on the first span of every trace that a run has, so that all of them are found by the run's
// id.
const attrRunID = "epigraph.run.id"

func runID(id string) attribute.KeyValue { return attribute.String(attrRunID, id) }

// carry is the trace context of ctx in the form that is stored.
func carry(ctx context.Context) outbox.Trace {
	m := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, m)
	return outbox.Trace{Parent: m["traceparent"], State: m["tracestate"]}
}

func carryContext(sc trace.SpanContext) outbox.Trace {
	return carry(trace.ContextWithSpanContext(context.Background(), sc))
}

// carried is the span context of a stored trace context; it is not valid if there is none.
func carried(t outbox.Trace) trace.SpanContext {
	if t.Parent == "" {
		return trace.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": t.Parent, "tracestate": t.State})
	return trace.SpanContextFromContext(ctx)
}

// stored is the span context that a run was stored with: that of the span which recorded it.
func stored(run journal.Run) trace.SpanContext {
	return carried(outbox.Trace{Parent: run.TraceParent, State: run.TraceState})
}

// continued is what the spans of a run hang below that goes on here. A run that only now begins does so in
// the trace in which it was recorded. One that was parked, or whose owner is gone, gets a new trace, since
// the first one may be days old. Each of the two links to the other, so that the first trace leads to all
// later ones. A caller who wanted no trace gets none.
func (t *session) continued(row journal.Run) trace.SpanContext {
	origin, ctx := stored(row), context.Background()
	if origin.IsValid() && !origin.IsSampled() {
		return origin
	}
	below := trace.ContextWithRemoteSpanContext(ctx, origin)
	if row.LastSeq == 0 {
		_, span := t.e.tracer.Start(below, "run.begin", trace.WithAttributes(runID(row.ID)))
		defer span.End()
		return or(span.SpanContext(), origin)
	}
	_, span := t.e.tracer.Start(ctx, "run.resume", trace.WithNewRoot(), trace.WithLinks(linksTo(origin)...), trace.WithAttributes(runID(row.ID)))
	defer span.End()
	if origin.IsValid() && span.SpanContext().IsValid() {
		_, to := t.e.tracer.Start(below, "run.continued", trace.WithLinks(linksTo(span.SpanContext())...), trace.WithAttributes(runID(row.ID)))
		to.End()
	}
	return or(span.SpanContext(), origin)
}

// linksTo is a link to a span, if there is one.
func linksTo(sc trace.SpanContext) []trace.Link {
	if !sc.IsValid() {
		return nil
	}
	return []trace.Link{{SpanContext: sc}}
}

func or(sc, other trace.SpanContext) trace.SpanContext {
	if sc.IsValid() {
		return sc
	}
	return other
}

// linkRequest links the span of a request to the trace of the run that it is about.
func linkRequest(ctx context.Context, row journal.Run) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(runID(row.ID))
	if origin := stored(row); origin.IsSampled() && origin.TraceID() != span.SpanContext().TraceID() {
		span.AddLink(trace.Link{SpanContext: origin})
	}
}

// linkCommand notes in the run's trace which request, or which other run, commands come from. That of its own
// trace is no news.
func (r *run) linkCommand(kind journal.CommandKind, from outbox.Trace) {
	sc := carried(from)
	if !r.trace.IsSampled() || !sc.IsSampled() || sc.TraceID() == r.trace.TraceID() {
		return
	}
	_, span := r.t.e.tracer.Start(trace.ContextWithSpanContext(context.Background(), r.trace), "run.command", trace.WithLinks(linksTo(sc)...),
		trace.WithAttributes(runID(r.id), attribute.String("epigraph.command", string(kind))))
	span.End()
}
