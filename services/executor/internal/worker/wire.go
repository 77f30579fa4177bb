package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/admission"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/callpb"
	"github.com/epigraph-run/epigraph/workgraph"
)

// taskOf is the wire form of a call.
func taskOf(ctx context.Context, c *workgraph.Call) *executorv1.Attempt {
	m := &executorv1.Attempt{
		RunId: c.RunID, RootRunId: c.RootRunID, Visit: &executorv1.VisitRef{NodeId: c.Node, Visit: callpb.Count(c.Visit), Item: callpb.Count(c.Item)}, Attempt: callpb.Count(c.Attempt),
		Actor: c.Actor, Args: graphpb.Payloads(c.Args), Named: graphpb.PayloadMap(c.Named), EffectKey: c.EffectKey(), Effect: graphpb.Effect(c.Effect),
		Details: graphpb.Payload(c.Details), AttemptToken: c.AttemptToken, Thread: c.Thread,
	}
	for _, u := range c.Upstream {
		up := &executorv1.Upstream{NodeId: u.Node, Visit: callpb.Count(u.Visit), Outcome: string(u.Outcome), Values: graphpb.Payloads(u.Values)}
		if u.Error != nil {
			up.Error = errorMessage(u.Error)
		}
		m.Upstream = append(m.Upstream, up)
	}
	for _, msg := range c.Messages {
		m.Messages = append(m.Messages, &executorv1.InboxMessage{From: msg.From, Body: graphpb.Payload(msg.Body), Time: timestamppb.New(msg.At)})
	}
	if c.Timeout > 0 {
		m.Deadline = timestamppb.New(time.Now().Add(c.Timeout))
	}
	if c.IdleTimeout > 0 {
		m.IdleTimeout = durationpb.New(c.IdleTimeout)
	}
	carried := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carried)
	m.Traceparent, m.Tracestate = carried["traceparent"], carried["tracestate"]
	return m
}

func errorMessage(e *workgraph.Error) *executorv1.AttemptError {
	m := &executorv1.AttemptError{Type: callpb.ErrorType(e.Type), Reason: e.Reason, Message: e.Message}
	if e.RetryAfter > 0 {
		m.RetryAfter = durationpb.New(time.Duration(e.RetryAfter))
	}
	for _, u := range e.Usage {
		m.Usage = append(m.Usage, &executorv1.ModelUsage{Provider: u.Provider, Model: u.Model, InputTokens: u.InputTokens, OutputTokens: u.OutputTokens,
			CachedTokens: u.CachedTokens, ReasoningTokens: u.ReasoningTokens, CostNanoUsd: u.CostNanoUSD, Call: u.Call})
	}
	return m
}

// errorOf is the error that a worker reported. One with only a message becomes a plain error, which the
// starter of the attempt classifies by the reason of its end.
func errorOf(m *executorv1.AttemptError) error {
	e := &workgraph.Error{Reason: m.GetReason(), Message: m.GetMessage(), Usage: usageOf(m.GetUsage())}
	switch m.GetType() {
	case executorv1.ErrorType_ERROR_TYPE_RETRYABLE:
		e.Type = workgraph.Retryable
	case executorv1.ErrorType_ERROR_TYPE_PERMANENT:
		e.Type = workgraph.Permanent
	case executorv1.ErrorType_ERROR_TYPE_UNKNOWN:
		e.Type = workgraph.Unknown
	case executorv1.ErrorType_ERROR_TYPE_NOT_PERFORMED:
		e.Type = workgraph.NotPerformed
	default:
		if e.Reason == "" && len(e.Usage) == 0 {
			return errors.New(e.Message)
		}
	}
	if e.Reason == "" {
		e.Reason = workgraph.ReasonActorError
	}
	e.RetryAfter = workgraph.Duration(max(0, min(m.GetRetryAfter().AsDuration(), workgraph.MaxRetryAfter)))
	return e
}

func usageOf(ms []*executorv1.ModelUsage) []workgraph.Usage {
	out := make([]workgraph.Usage, 0, len(ms))
	for _, u := range ms {
		out = append(out, workgraph.Usage{Provider: u.GetProvider(), Model: u.GetModel(), InputTokens: u.GetInputTokens(), OutputTokens: u.GetOutputTokens(),
			CachedTokens: u.GetCachedTokens(), ReasoningTokens: u.GetReasoningTokens(), CostNanoUSD: u.CostNanoUsd, Call: u.GetCall()})
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// bad is the error of an answer that cannot be used. The effect has happened, if there is one, so it is not
// tried again.
func bad(format string, args ...any) *workgraph.Error {
	return workgraph.Errorf(workgraph.Permanent, workgraph.ReasonBadOutcome, format, args...)
}

// outcomeReader reads what workers answer, large graphs one after the other.
type outcomeReader struct{ admission *admission.Control }

// read is the outcome in the model. The error says what is wrong and where.
func (r outcomeReader) read(ctx context.Context, m *executorv1.Outcome) (workgraph.Outcome, *workgraph.Error) {
	var out workgraph.Outcome
	var faults workgraph.Faults
	collect := func(err error) {
		if list, ok := errors.AsType[workgraph.Faults](err); ok {
			faults = append(faults, list...)
		} else if err != nil {
			faults = append(faults, workgraph.Fault{Message: errs.From(err).Message})
		}
	}
	var err error
	out.Values, err = graphpb.RawList("values", m.GetValues())
	collect(err)
	out.State, err = graphpb.RawMap("state", m.GetState())
	collect(err)
	out.Usage = usageOf(m.GetUsage())
	switch m.GetStop() {
	case executorv1.Stop_STOP_UNSPECIFIED, executorv1.Stop_STOP_CONTINUE:
	case executorv1.Stop_STOP_TERMINATE:
		out.Stop = workgraph.Terminate
	case executorv1.Stop_STOP_ABSTAIN_RESULT:
		out.Stop = workgraph.AbstainResult
	default:
		faults = append(faults, workgraph.Fault{Field: "stop", Message: fmt.Sprintf("%d is not known", m.GetStop())})
	}
	if sel := m.GetSelect(); sel != nil {
		out.Select = &workgraph.Select{Self: sel.GetSelf(), Names: sel.GetNames()}
		switch sel.GetOthers() {
		case executorv1.Others_OTHERS_UNSPECIFIED, executorv1.Others_OTHERS_ALL:
			out.Select.Others = workgraph.SelectAll
		case executorv1.Others_OTHERS_NONE:
			out.Select.Others = workgraph.SelectNone
		case executorv1.Others_OTHERS_NAMES:
			out.Select.Others = workgraph.SelectNames
		default:
			faults = append(faults, workgraph.Fault{Field: "select.others", Message: fmt.Sprintf("%d is not known", sel.GetOthers())})
		}
	}
	if m.GetExpand() != nil {
		leave, err := r.admission.Enter(ctx, grpckit.Namespace(ctx), graphpb.Cost(m.GetExpand(), nil, m.GetExpand()))
		if err != nil {
			collect(err)
		} else {
			out.Expand, err = graphpb.FromProto(m.GetExpand())
			leave()
			collect(err)
		}
	}
	if m.GetWait() != nil {
		out.Wait, err = r.wait(ctx, m.GetWait())
		collect(err)
	}
	if len(faults) > 0 {
		var b strings.Builder
		for i, f := range faults[:min(len(faults), 5)] {
			if i > 0 {
				b.WriteString("; ")
			}
			if place := faultPlace(f); place != "" {
				b.WriteString(place + ": ")
			}
			b.WriteString(f.Message)
		}
		e := bad("the answer has %d faults: %s", len(faults), b.String())
		if len(faults) == 1 {
			e = bad("the answer has a fault: %s", b.String())
		}
		e.Usage = out.Usage
		return workgraph.Outcome{}, e
	}
	return out, nil
}

func faultPlace(f workgraph.Fault) string {
	if f.Node == "" && f.From == "" && f.To == "" {
		return f.Field
	}
	return graphpb.FaultPath(f)
}

func (r outcomeReader) wait(ctx context.Context, m *executorv1.Wait) (*workgraph.Wait, error) {
	var faults workgraph.Faults
	raw := func(field string, f func() (json.RawMessage, error)) json.RawMessage {
		v, err := f()
		if list, ok := errors.AsType[workgraph.Faults](err); ok {
			faults = append(faults, list...)
		} else if err != nil {
			faults = append(faults, workgraph.Fault{Field: field, Message: err.Error()})
		}
		return v
	}
	timeout := func(d *durationpb.Duration) workgraph.Duration {
		if d == nil {
			return 0
		}
		if err := d.CheckValid(); err != nil || d.AsDuration() <= 0 {
			faults = append(faults, workgraph.Fault{Field: "wait.timeout", Message: "a timeout must be above 0"})
		}
		return workgraph.Duration(d.AsDuration())
	}
	w := &workgraph.Wait{}
	switch m := m.GetWait().(type) {
	case *executorv1.Wait_Timer:
		w.Timer = &workgraph.Timer{}
		switch {
		case m.Timer.GetUntil() != nil:
			if err := m.Timer.GetUntil().CheckValid(); err != nil {
				faults = append(faults, workgraph.Fault{Field: "wait.timer.until", Message: "not a time"})
			}
			w.Timer.Until = m.Timer.GetUntil().AsTime()
		case m.Timer.GetAfter() != nil:
			if err := m.Timer.GetAfter().CheckValid(); err != nil || m.Timer.GetAfter().AsDuration() < 0 {
				faults = append(faults, workgraph.Fault{Field: "wait.timer.after", Message: "a timer must not be negative"})
			}
			w.Timer.After = workgraph.Duration(m.Timer.GetAfter().AsDuration())
		default:
			faults = append(faults, workgraph.Fault{Field: "wait.timer", Message: "a timer needs until or after"})
		}
	case *executorv1.Wait_Children:
		w.Children = &workgraph.Children{Timeout: timeout(m.Children.GetTimeout()), FailFast: m.Children.GetFailFast(), AsResult: m.Children.GetAsResult()}
		for i, c := range m.Children.GetChildren() {
			child, more := r.child(ctx, c)
			for _, f := range more {
				if f.Node == "" && f.From == "" && f.To == "" {
					f.Field = fmt.Sprintf("wait.children[%d].%s", i, f.Field)
				}
				faults = append(faults, f)
			}
			w.Children.Runs = append(w.Children.Runs, child)
		}
	case *executorv1.Wait_Interrupt:
		i := m.Interrupt
		w.Interrupt = &workgraph.Interrupt{Timeout: timeout(i.GetTimeout())}
		w.Interrupt.Prompt = raw("wait.prompt", func() (json.RawMessage, error) { return graphpb.Raw("wait.prompt", i.GetPrompt()) })
		w.Interrupt.Schema = raw("wait.schema", func() (json.RawMessage, error) { return graphpb.Raw("wait.schema", i.GetSchema()) })
		w.Interrupt.Default = raw("wait.default_answer", func() (json.RawMessage, error) { return graphpb.Raw("wait.default_answer", i.GetDefaultAnswer()) })
		w.Interrupt.Approve = raw("wait.approve", func() (json.RawMessage, error) { return graphpb.Raw("wait.approve", i.GetApprove()) })
	case *executorv1.Wait_Completion:
		w.Completion = &workgraph.CompletionWait{Timeout: timeout(m.Completion.GetTimeout())}
	case *executorv1.Wait_Signal:
		w.Signal = &workgraph.SignalWait{Name: m.Signal.GetName(), Timeout: timeout(m.Signal.GetTimeout())}
	default:
		faults = append(faults, workgraph.Fault{Field: "wait", Message: "it does not say what for"})
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return w, nil
}

func (r outcomeReader) child(ctx context.Context, m *executorv1.ChildRun) (workgraph.Child, workgraph.Faults) {
	c := workgraph.Child{TaskID: m.GetTaskId(), Labels: m.GetLabels(), Budget: callpb.FromBudget(m.GetBudget())}
	var faults workgraph.Faults
	collect := func(err error) {
		if list, ok := errors.AsType[workgraph.Faults](err); ok {
			faults = append(faults, list...)
		} else if err != nil {
			faults = append(faults, workgraph.Fault{Field: "graph", Message: errs.From(err).Message})
		}
	}
	switch t := m.GetTarget().(type) {
	case *executorv1.ChildRun_Graph:
		leave, err := r.admission.Enter(ctx, grpckit.Namespace(ctx), graphpb.Cost(t.Graph, nil, t.Graph))
		if err == nil {
			c.Graph, err = graphpb.FromProto(t.Graph)
			leave()
		}
		collect(err)
	case *executorv1.ChildRun_Ref:
		c.Ref = t.Ref
	}
	var err error
	c.Input.Args, err = graphpb.RawList("args", m.GetArgs())
	collect(err)
	c.Input.Named, err = graphpb.RawMap("named", m.GetNamed())
	collect(err)
	return c, faults
}
