package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/genai"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/workgraph"
)

// maxSpanText bounds what a span says in the words of a model or of an actor, in bytes.
const maxSpanText = 200

// spanOf begins the span of a call of a run that is traced. Otherwise the span is the parent's.
//
// It is not inlined, as what begins and ends a call is not elsewhere: the stack of a call that waits for an
// answer is memory, and calls wait by the thousand.
//
//go:noinline
func (t *session) spanOf(ctx context.Context, a *attempt) (context.Context, trace.Span) {
	r := a.run
	if !r.sampled() {
		return ctx, trace.SpanFromContext(ctx)
	}
	name, attributes := "invoke "+a.start.Actor, []attribute.KeyValue{
		tracing.RunAttribute(r.id), attribute.String("epigraph.node.id", a.start.Node),
		attribute.Int("epigraph.visit", a.start.Visit), attribute.Int("epigraph.item", a.start.Item),
		attribute.Int("epigraph.attempt", a.start.Attempt), attribute.String("epigraph.actor", a.start.Actor),
	}
	if r.lineage.Agent != nil {
		ctx = genai.WithAgent(ctx, r.agent())
		attributes = append(attributes, r.agent().Attributes()...)
	}
	if a.isTool() {
		ctx = genai.WithTool(ctx)
		name = genai.ExecuteTool + " " + a.toolName()
		attributes = append(attributes, genai.OperationName.String(genai.ExecuteTool), genai.ToolName.String(a.toolName()), genai.ToolType.String(genai.Function))
		if id := r.toolCall(a.start.Node); id != "" {
			attributes = append(attributes, genai.ToolCall.String(errs.Clip(id, maxSpanText)))
		}
	}
	return t.e.tracer.Start(ctx, name, trace.WithAttributes(attributes...))
}

// endSpan ends the span of a call, and counts the call if it was that of a tool.
//
//go:noinline
func (t *session) endSpan(span trace.Span, a *attempt, out *workgraph.Outcome, err *workgraph.Error) {
	if err != nil {
		class := errs.Clip(err.Reason, maxSpanText)
		words := err.Error()
		if a.isTool() { // the words of a tool are a part of its result
			words = class
		}
		span.SetStatus(codes.Error, words)
		span.SetAttributes(genai.ErrorType.String(class))
	}
	span.End()
	// A call that ends in a wait, as those of agents and people do, says nothing of how long the tool takes.
	// One that only the end of this session has interrupted is made again.
	if a.isTool() && (out == nil || out.Wait == nil) && (err == nil || !a.left()) {
		t.e.meters.tool(a, time.Since(a.startTime()), err)
	}
}

// isTool reports whether the call carries out what the reasoner of an agent asked for. Only the server makes
// the runs of agents, so that the kind of a node alone says nothing.
func (a *attempt) isTool() bool {
	return a.run.lineage.Agent != nil && a.start.Kind == workgraph.ToolKind
}

// toolName is the name by which the reasoner knows the tool. It is part of the agent's definition.
func (a *attempt) toolName() string { return cmp.Or(a.start.Name, a.start.Actor) }

// agent is the agent whose own work the run does.
func (r *run) agent() genai.Agent {
	return genai.Agent{Name: r.lineage.Agent.Name, Thread: r.lineage.Agent.Thread}
}

// toolCall is the id by which a model asked for the call of a node, or "".
func (r *run) toolCall(node string) string {
	r.lock()
	raw := r.State.StateValue(workgraph.StateToolCalls)
	r.mu.Unlock()
	var ids map[string]string
	if json.Unmarshal(raw, &ids) != nil {
		return ""
	}
	return ids[node]
}

// agentEnded counts the end of an agent's loop, and writes the span of the invocation. No span can be open as
// long as an agent works, which may be days and at several executors: it is written at the end, with the time
// at which the run was recorded. It is a child of the span that recorded the run.
func (t *session) agentEnded(r *run, end *workgraph.RunEnd) {
	if r.lineage.Agent == nil || r.lineage.Agent.Round {
		return
	}
	now := time.Now()
	ctx := trace.ContextWithRemoteSpanContext(context.Background(), tracing.FirstValid(r.origin, r.trace))
	t.e.meters.agent(ctx, r.lineage.Agent.Name, now.Sub(r.created), end.Status)
	if !r.sampled() {
		return
	}
	agent := r.agent()
	options := []trace.SpanStartOption{trace.WithTimestamp(r.created), trace.WithAttributes(append(agent.Attributes(),
		genai.OperationName.String(genai.InvokeAgent), tracing.RunAttribute(r.id))...)}
	if r.origin.IsValid() && r.trace.TraceID() != r.origin.TraceID() {
		options = append(options, trace.WithLinks(tracing.LinksTo(r.trace)...))
	}
	_, span := t.e.tracer.Start(ctx, genai.InvokeAgent+" "+agent.Name, options...)
	if end.Status != workgraph.StatusCompleted {
		class := string(end.Status)
		if end.Status == workgraph.StatusFailed { // the reason of a cancel is the caller's own words
			class = errs.Clip(cmp.Or(end.Reason, class), maxSpanText)
		}
		span.SetStatus(codes.Error, class)
		span.SetAttributes(genai.ErrorType.String(class))
	}
	span.End(trace.WithTimestamp(now))
}

// agentMeters are the metrics of agents and tools. Names of tools are labels only where the configuration
// defines the agent. Else the actors that carry them out are.
type agentMeters struct {
	invoked, executed metric.Float64Histogram
}

func newAgentMeters(m metric.Meter) (out agentMeters, err error) {
	out.invoked, err = m.Float64Histogram("gen_ai.invoke_agent.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the start of an agent's run to its end, waits included."),
		metric.WithExplicitBucketBoundaries(.1, .2, .4, .8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6))
	if err != nil {
		return out, err
	}
	out.executed, err = m.Float64Histogram("gen_ai.execute_tool.duration", metric.WithUnit("s"),
		metric.WithDescription("Time of a call of an agent's tool that did not end in a wait."),
		metric.WithExplicitBucketBoundaries(.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92))
	return out, err
}

// agent counts the end of an agent's run.
func (m *agentMeters) agent(ctx context.Context, name string, took time.Duration, status workgraph.Status) {
	labels := []attribute.KeyValue{genai.OperationName.String(genai.InvokeAgent), genai.AgentName.String(name)}
	if status != workgraph.StatusCompleted {
		labels = append(labels, genai.ErrorType.String(string(status)))
	}
	m.invoked.Record(ctx, took.Seconds(), metric.WithAttributes(labels...))
}

// tool counts a call of a tool.
func (m *agentMeters) tool(a *attempt, took time.Duration, fail *workgraph.Error) {
	of, name := a.run.lineage.Agent, a.start.Actor
	if of.Configured {
		name = a.toolName()
	}
	labels := []attribute.KeyValue{genai.ToolName.String(name), genai.ToolType.String(genai.Function), genai.AgentName.String(of.Name)}
	if fail != nil {
		labels = append(labels, genai.ErrorType.String(string(fail.Type)))
	}
	m.executed.Record(context.Background(), took.Seconds(), metric.WithAttributes(labels...))
}
