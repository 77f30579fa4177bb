package rpc

import (
	"github.com/epigraph-run/epigraph/internal/graphpb"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/workgraph"
)

// eventMessage is the wire form of an event: one message for each entry of the journal, with the same sequence. graphHash is
// needed for the first event only. It is nil for an ephemeral event that tells nothing.
func eventMessage(ev engine.Event, graphHash string) *executorv1.RunEvent {
	m := &executorv1.RunEvent{RunId: ev.RunID, RootRunId: ev.RootID}
	if e := ev.Ephemeral; e != nil {
		m.Time = stamp(e.At)
		if !ephemeral(m, e) {
			return nil
		}
		return m
	}
	d := ev.Durable
	m.Seq, m.Time = d.Seq, stamp(d.At)
	switch d.Kind {
	case workgraph.RunStarted:
		ready, _ := moved(d)
		m.Event = &executorv1.RunEvent_RunStarted{RunStarted: &executorv1.RunStarted{GraphHash: graphHash, MachineVersion: count(d.Version), StartNodes: ready}}
	case workgraph.AttemptStarted:
		// An UNSAFE attempt is given out again only if it was not performed, so its generation stays the first.
		start := workgraph.Start{RunID: ev.RunID, Ref: d.Ref}
		m.Event = &executorv1.RunEvent_AttemptIntended{AttemptIntended: &executorv1.AttemptIntended{
			Visit: refMessage(d.Ref), Attempt: count(d.Attempt), EffectKey: start.EffectKey()}}
	case workgraph.AttemptEnded:
		m.Event = &executorv1.RunEvent_AttemptEnded{AttemptEnded: attemptEnded(d)}
	case workgraph.TimerFired:
		m.Event = &executorv1.RunEvent_TimerFired{TimerFired: &executorv1.TimerFired{Visit: refMessage(d.Ref)}}
	case workgraph.RunPaused:
		m.Event = &executorv1.RunEvent_RunPaused{RunPaused: &executorv1.RunPaused{Reason: d.Reason, Message: pauseText(d.Reason)}}
	case workgraph.RunResumed:
		m.Event = &executorv1.RunEvent_RunResumed{RunResumed: &executorv1.RunResumed{Reason: d.Reason}}
	case workgraph.CancelRequested:
		m.Event = &executorv1.RunEvent_CancelRequested{CancelRequested: &executorv1.CancelRequested{Reason: d.Reason}}
	case workgraph.Reconciled:
		m.Event = &executorv1.RunEvent_Reconciled{Reconciled: &executorv1.Reconciled{
			Visit: refMessage(d.Ref), Performed: d.Error == nil || d.Error.Type != workgraph.NotPerformed, By: d.By, State: reconciledState(d)}}
	case workgraph.RunEnded:
		m.Event = &executorv1.RunEvent_RunEnded{RunEnded: runEnded(d.End)}
	}
	return m
}

func ephemeral(m *executorv1.RunEvent, e *engine.Ephemeral) bool {
	ref, attempt := refMessage(e.Ref), count(e.Attempt)
	switch {
	case e.Started:
		m.Event = &executorv1.RunEvent_AttemptStarted{AttemptStarted: &executorv1.AttemptStarted{Visit: ref, Attempt: attempt, Actor: e.Actor}}
	case e.Text != "":
		m.Event = &executorv1.RunEvent_TokenDelta{TokenDelta: &executorv1.TokenDelta{Visit: ref, Attempt: attempt, Text: e.Text}}
	case len(e.Progress) > 0:
		m.Event = &executorv1.RunEvent_AttemptProgress{AttemptProgress: &executorv1.AttemptProgress{Visit: ref, Attempt: attempt, Progress: graphpb.Payload(e.Progress)}}
	default:
		return false
	}
	return true
}

func refMessage(r workgraph.Ref) *executorv1.VisitRef {
	return &executorv1.VisitRef{NodeId: r.Node, Visit: count(r.Visit), Item: count(r.Item)}
}

// moved lists the nodes that became ready by an event, and those that will not run because of it.
func moved(d *engine.Durable) (ready, skipped []string) {
	for i := range d.Steps {
		switch s := &d.Steps[i]; s.Op {
		case workgraph.OpEnter:
			ready = append(ready, s.Node)
		case workgraph.OpSkip:
			skipped = append(skipped, s.Node)
		}
	}
	return ready, skipped
}

func attemptEnded(d *engine.Durable) *executorv1.AttemptEnded {
	m := &executorv1.AttemptEnded{
		Visit: refMessage(d.Ref), Attempt: count(d.Attempt), StartTime: stamp(d.StartTime), Actor: d.Actor, Error: errorMessage(d.Error, d.Ref),
		State: executorv1.VisitState_VISIT_STATE_COMPLETED,
	}
	if d.Error != nil {
		m.State = executorv1.VisitState_VISIT_STATE_FAILED
		m.Usage = usageMessage(d.Error.Usage)
	}
	if d.Outcome != nil {
		m.Values, m.Usage = graphpb.Payloads(d.Outcome.Values), usageMessage(d.Outcome.Usage)
		m.Terminated = d.Outcome.Stop == workgraph.Terminate
		m.Abstained = d.Outcome.Stop == workgraph.AbstainResult
	}
	m.ReadyNodes, m.SkippedNodes = moved(d)
	for i := range d.Steps {
		if s := &d.Steps[i]; s.Node == d.Node && s.Visit == d.Visit {
			decided(m, d, s)
		}
	}
	return m
}

// reconciledState is where the visit or item stands once it is known what its call did.
func reconciledState(d *engine.Durable) executorv1.VisitState {
	for i := range d.Steps {
		if s := &d.Steps[i]; s.Op == workgraph.OpStart && s.Node == d.Node && s.Visit == d.Visit && s.Item == d.Item {
			return executorv1.VisitState_VISIT_STATE_HELD
		}
	}
	return attemptEnded(d).GetState()
}

// decided puts into m what a step says about the attempt's own visit or item.
func decided(m *executorv1.AttemptEnded, d *engine.Durable, s *workgraph.Step) {
	det := s.Detail
	if det == nil {
		det = &workgraph.Detail{}
	}
	own := s.Item == d.Item
	switch s.Op {
	case workgraph.OpComplete:
		if d.Item > 0 {
			return // the last item: the visit's own values are the list of all
		}
		m.State, m.Values = executorv1.VisitState_VISIT_STATE_COMPLETED, graphpb.Payloads(d.ValuesOf(s))
		if det.Stop == workgraph.AbstainResult {
			m.State, m.Abstained = executorv1.VisitState_VISIT_STATE_ABSTAINED, true
		}
	case workgraph.OpFail:
		if d.Item > 0 {
			return
		}
		m.State = executorv1.VisitState_VISIT_STATE_FAILED
		if s.Note == workgraph.ReasonCanceled {
			m.State = executorv1.VisitState_VISIT_STATE_CANCELLED
		}
		if det.Error != nil {
			m.Error = errorMessage(det.Error, d.Ref)
		}
	case workgraph.OpItem:
		if own && det.Error != nil {
			m.State, m.Error = executorv1.VisitState_VISIT_STATE_FAILED, errorMessage(det.Error, d.Ref)
		}
	case workgraph.OpRetry:
		if own {
			m.State, m.RetryTime = executorv1.VisitState_VISIT_STATE_BACKING_OFF, stamp(det.Due)
			if det.Error != nil {
				m.Error = errorMessage(det.Error, d.Ref)
			}
		}
	case workgraph.OpWait:
		if own {
			m.State, m.Values = executorv1.VisitState_VISIT_STATE_WAITING, nil
		}
	case workgraph.OpReconcile:
		if own {
			m.State = executorv1.VisitState_VISIT_STATE_NEEDS_RECONCILIATION
		}
	}
}

func runEnded(end *workgraph.RunEnd) *executorv1.RunEnded {
	m := &executorv1.RunEnded{State: executorv1.RunState_RUN_STATE_FAILED, Reason: end.Reason, Result: graphpb.Payload(end.Result), Outputs: graphpb.PayloadMap(end.Outputs)}
	switch end.Status {
	case workgraph.StatusCompleted:
		m.State = executorv1.RunState_RUN_STATE_COMPLETED
	case workgraph.StatusCanceled:
		m.State = executorv1.RunState_RUN_STATE_CANCELLED
	}
	if m.State == executorv1.RunState_RUN_STATE_FAILED {
		m.Error = &executorv1.RunError{Reason: end.Reason, Message: end.Message}
		if end.Error != nil {
			m.Error.Type, m.Error.Reason = errorType(end.Error.Type), end.Error.Reason
			if end.Error.Message != "" {
				m.Error.Message = end.Error.Message
			}
		}
		if end.Failed != nil {
			m.Error.NodeId, m.Error.Visit = end.Failed.Node, count(end.Failed.Visit)
		}
	}
	return m
}

func pauseText(reason string) string {
	switch reason {
	case workgraph.ReasonMaxVisits:
		return "a loop has reached its max_visits; the work so far is kept"
	case workgraph.ReasonReconciliation:
		return "nobody knows whether an UNSAFE call was performed; somebody must say"
	case "KILLED_OWNERS":
		return "the executors that ran it went down each time; it is not tried again by itself"
	}
	return ""
}
