package rpc

import (
	"fmt"
	"math"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/graphpb"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/services/executor/internal/callpb"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/attempttoken"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// eventMessages is the wire form of an event: a message for each entry of the journal, with the same
// sequence. Further messages of an entry, such as an interrupt, come right before it without a sequence, so
// that a client that resumes gets both. graphHash is needed for the first event only. An empty ephemeral
// event has none.
func eventMessages(ev feed.Event, namespace, graphHash string, tokens attempttoken.Keys) []*executorv1.RunEvent {
	m := eventMessage(ev, namespace, graphHash, tokens)
	if m == nil {
		return nil
	}
	return append(companions(ev, m), m)
}

// companions are the further messages of an entry of the journal.
func companions(ev feed.Event, main *executorv1.RunEvent) []*executorv1.RunEvent {
	d := ev.Durable
	if d == nil {
		return nil
	}
	var out []*executorv1.RunEvent
	if list := visitChanges(d); len(list) > 0 {
		out = append(out, &executorv1.RunEvent{Event: &executorv1.RunEvent_VisitsChanged{VisitsChanged: &executorv1.VisitsChanged{Visits: list}}})
	}
	if d.Outcome != nil && d.Kind == workgraph.AttemptEnded {
		if m := began(d, main.GetAttemptEnded()); m != nil {
			out = append(out, m)
		}
	}
	for _, m := range out {
		m.RunId, m.RootRunId, m.Time = ev.RunID, ev.RootID, main.GetTime()
	}
	return out
}

// began is the message about the things that an attempt's outcome began: children, an interrupt, or an
// expansion; nil if there are none.
func began(d *record.Durable, main *executorv1.AttemptEnded) *executorv1.RunEvent {
	w := main.GetWait()
	switch {
	case w.GetKind() == executorv1.WaitKind_WAIT_KIND_CHILDREN:
		return &executorv1.RunEvent{Event: &executorv1.RunEvent_ChildrenSpawned{ChildrenSpawned: &executorv1.ChildrenSpawned{Visit: refMessage(d.Ref), RunIds: w.GetChildRunIds()}}}
	case w.GetKind() == executorv1.WaitKind_WAIT_KIND_INTERRUPT:
		q := d.Outcome.Wait.Interrupt
		x := &executorv1.InterruptOpened{
			InterruptId: q.ID, Visit: refMessage(d.Ref), Prompt: graphpb.Payload(q.Prompt), Schema: graphpb.Payload(q.Schema), ExpireTime: w.GetDueTime(), Approve: graphpb.Payload(q.Approve), OfAgent: q.OfAgent}
		if len(q.Approve) > 0 {
			x.ApproveHash = workgraph.ApproveHash(q.Approve, binds(d))
		}
		return &executorv1.RunEvent{Event: &executorv1.RunEvent_InterruptOpened{InterruptOpened: x}}
	case d.Outcome.Expand != nil && main.GetState() == executorv1.VisitState_VISIT_STATE_COMPLETED:
		x := &executorv1.GraphExpanded{Visit: refMessage(d.Ref), GraphHash: d.GraphHash()}
		for i := range d.Outcome.Expand.Nodes {
			x.NodeIds = append(x.NodeIds, expandedID(d.Ref, d.Outcome.Expand.Nodes[i].ID))
		}
		return &executorv1.RunEvent{Event: &executorv1.RunEvent_GraphExpanded{GraphExpanded: x}}
	}
	return nil
}

// binds is what the interrupt of an attempt covers besides what it asks.
func binds(d *record.Durable) string {
	for i := range d.Steps {
		if s := &d.Steps[i]; s.Op == workgraph.OpWait && s.Node == d.Node && s.Visit == d.Visit && s.Item == d.Item && s.Detail != nil {
			return s.Detail.Binds
		}
	}
	return ""
}

// visitChanges are the visits whose state an event changes. The visit whose attempt ended or was reconciled
// is left out: the event itself is about that one.
func visitChanges(d *record.Durable) []*executorv1.VisitChange {
	var out []*executorv1.VisitChange
	at := map[workgraph.Ref]int{}
	own := d.Kind == workgraph.AttemptEnded || d.Kind == workgraph.Reconciled
	var skips workgraph.Skips
	for i := range d.Steps {
		s := &d.Steps[i]
		reason, message := skips.Step(s)
		r := workgraph.Ref{Node: s.Node, Visit: s.Visit, Item: s.Item}
		if own && r == d.Ref {
			continue
		}
		c, ok := visitChange(s, r)
		if !ok {
			continue
		}
		if s.Op == workgraph.OpSkip {
			c.Reason, c.Message = reason, message
		}
		if k, seen := at[r]; seen {
			out[k] = c // the last word counts
			continue
		}
		at[r] = len(out)
		out = append(out, c)
	}
	return out
}

// visitChange is where a step of an event leaves its visit; false if where it was.
func visitChange(s *workgraph.Step, r workgraph.Ref) (*executorv1.VisitChange, bool) {
	c := &executorv1.VisitChange{Visit: refMessage(r)}
	det := s.Detail
	if det == nil {
		det = &workgraph.Detail{}
	}
	switch s.Op {
	case workgraph.OpSkip:
		c.State = executorv1.VisitState_VISIT_STATE_SKIPPED
	case workgraph.OpComplete:
		c.State = executorv1.VisitState_VISIT_STATE_COMPLETED
		if det.Stop == workgraph.AbstainResult {
			c.State = executorv1.VisitState_VISIT_STATE_ABSTAINED
		}
	case workgraph.OpItem:
		c.State = executorv1.VisitState_VISIT_STATE_COMPLETED
		if det.Error != nil {
			c.State = executorv1.VisitState_VISIT_STATE_FAILED
		}
	case workgraph.OpFail:
		c.State = executorv1.VisitState_VISIT_STATE_FAILED
		if s.Note == workgraph.ReasonCanceled {
			c.State = executorv1.VisitState_VISIT_STATE_CANCELED
		}
	case workgraph.OpDrop:
		c.State = executorv1.VisitState_VISIT_STATE_CANCELED
	case workgraph.OpCancel:
		c.State = executorv1.VisitState_VISIT_STATE_CANCELING
	case workgraph.OpRetry:
		c.State = executorv1.VisitState_VISIT_STATE_BACKING_OFF
	case workgraph.OpReset, workgraph.OpReopen:
	default:
		return nil, false
	}
	if det.Error != nil && s.Op != workgraph.OpComplete {
		c.Error = errorMessage(det.Error, r)
	}
	return c, true
}

func eventMessage(ev feed.Event, namespace, graphHash string, tokens attempttoken.Keys) *executorv1.RunEvent {
	m := &executorv1.RunEvent{RunId: ev.RunID, RootRunId: ev.RootID}
	if e := ev.Ephemeral; e != nil {
		m.Time = stamp(e.At)
		if !ephemeral(m, e) {
			return nil
		}
		return m
	}
	d := ev.Durable
	m.Seq, m.Time, m.Principal = d.Seq, stamp(d.At), d.Principal
	switch d.Kind {
	case workgraph.RunStarted:
		m.Event = &executorv1.RunEvent_RunStarted{RunStarted: &executorv1.RunStarted{
			GraphHash: graphHash, MachineVersion: callpb.Count(d.Version), StartNodes: ready(d), Reused: reused(d), Budget: callpb.Budget(d.Budget)}}
	case workgraph.VisitsReused:
		// The history begins with more than one entry when much is taken over.
		m.Event = &executorv1.RunEvent_RunStarted{RunStarted: &executorv1.RunStarted{GraphHash: graphHash, MachineVersion: callpb.Count(d.Version), Reused: reused(d)}}
	case workgraph.MessageReceived:
		m.Event = &executorv1.RunEvent_MessageDelivered{MessageDelivered: &executorv1.MessageDelivered{
			NodeId: d.Node, From: d.Message.From, Message: graphpb.Payload(d.Message.Body)}}
	case workgraph.GraphAmended:
		x := &executorv1.GraphAmended{Revision: d.Revision, By: d.By, GraphHash: d.GraphHash()}
		if c := d.GraphChange; c != nil {
			x.AddedNodes, x.RemovedNodes, x.ChangedNodes = c.Added, c.Removed, c.Changed
		}
		m.Event = &executorv1.RunEvent_GraphAmended{GraphAmended: x}
	case workgraph.AttemptStarted:
		m.Event = &executorv1.RunEvent_AttemptIntended{AttemptIntended: &executorv1.AttemptIntended{
			Visit: refMessage(d.Ref), Attempt: callpb.Count(d.Attempt), EffectKey: workgraph.EffectKey(ev.RunID, d.Ref, d.Generation)}}
	case workgraph.AttemptEnded:
		a := attemptEnded(d)
		if a.GetState() == executorv1.VisitState_VISIT_STATE_WAITING {
			a.Wait = waitMessage(namespace, ev.RunID, d.WaitOf(), tokens)
		}
		m.Event = &executorv1.RunEvent_AttemptEnded{AttemptEnded: a}
	case workgraph.TimerFired:
		timerFired(m, d)
	case workgraph.RunPaused:
		m.Event = &executorv1.RunEvent_RunPaused{RunPaused: &executorv1.RunPaused{Reason: d.Reason, Message: pauseText(d.Reason)}}
	case workgraph.RunResumed:
		m.Event = &executorv1.RunEvent_RunResumed{RunResumed: &executorv1.RunResumed{Reason: d.Reason, Step: d.Step, Budget: callpb.Budget(d.Budget)}}
	case workgraph.StopRequested:
		m.Event = &executorv1.RunEvent_StopRequested{StopRequested: &executorv1.StopRequested{Reason: d.Reason}}
	case workgraph.BudgetChanged:
		m.Event = &executorv1.RunEvent_BudgetChanged{BudgetChanged: &executorv1.BudgetChanged{Reason: d.Reason, Budget: callpb.Budget(d.Budget)}}
	case workgraph.UsageSettled:
		m.Event = &executorv1.RunEvent_UsageSettled{UsageSettled: usageSettled(d.Costs)}
	case workgraph.CancelRequested:
		m.Event = &executorv1.RunEvent_CancelRequested{CancelRequested: &executorv1.CancelRequested{Reason: d.Reason}}
	case workgraph.Reconciled:
		m.Event = &executorv1.RunEvent_Reconciled{Reconciled: &executorv1.Reconciled{
			Visit: refMessage(d.Ref), Performed: d.Error == nil || d.Error.Type != workgraph.NotPerformed, By: d.By, State: reconciledState(d)}}
	case workgraph.ChildClosed:
		m.Event = &executorv1.RunEvent_ChildEnded{ChildEnded: childEnded(d)}
	case workgraph.InterruptClosed:
		m.Event = &executorv1.RunEvent_InterruptClosed{InterruptClosed: interruptClosed(d)}
	case workgraph.CompletionReceived:
		m.Event = &executorv1.RunEvent_CompletionReceived{CompletionReceived: &executorv1.CompletionReceived{Visit: refMessage(d.Ref), By: d.By}}
	case workgraph.SignalReceived:
		x := &executorv1.SignalReceived{Name: d.Signal, Payload: graphpb.Payload(d.Payload)}
		for i := range d.Steps {
			if s := &d.Steps[i]; s.Op == workgraph.OpWake && x.GetVisit() == nil {
				x.Visit = refMessage(workgraph.Ref{Node: s.Node, Visit: s.Visit, Item: s.Item})
			}
		}
		m.Event = &executorv1.RunEvent_SignalReceived{SignalReceived: x}
	case workgraph.DeadlineReached:
		m.Event = &executorv1.RunEvent_DeadlinePassed{DeadlinePassed: &executorv1.DeadlinePassed{}}
	case workgraph.RunEnded:
		m.Event = &executorv1.RunEvent_RunEnded{RunEnded: runEnded(d.End, ev.Unbooked, ev.Ended)}
	}
	return m
}

// timerFired says what it meant that a time was up.
func timerFired(m *executorv1.RunEvent, d *record.Durable) {
	switch {
	case d.Closed != nil:
		m.Event = &executorv1.RunEvent_InterruptClosed{InterruptClosed: interruptClosed(d)}
	case d.Reason == workgraph.ReasonCompletionExpired:
		m.Event = &executorv1.RunEvent_CompletionReceived{CompletionReceived: &executorv1.CompletionReceived{Visit: refMessage(d.Ref), Expired: true}}
	default:
		m.Event = &executorv1.RunEvent_TimerFired{TimerFired: &executorv1.TimerFired{Visit: refMessage(d.Ref)}}
	}
}

func interruptClosed(d *record.Durable) *executorv1.InterruptClosed {
	c := d.Closed
	return &executorv1.InterruptClosed{
		InterruptId: c.ID, Visit: refMessage(d.Ref), Expired: c.How == workgraph.InterruptExpired, Canceled: c.How == workgraph.InterruptCanceled,
		Answer: graphpb.Payload(c.Answer), By: c.By, Decision: c.Decision}
}

func childEnded(d *record.Durable) *executorv1.ChildEnded {
	m := &executorv1.ChildEnded{Visit: refMessage(d.Ref), RunId: d.Child.RunID, Reason: d.Child.Reason, State: executorv1.RunState_RUN_STATE_FAILED}
	switch d.Child.Status {
	case workgraph.StatusCompleted:
		m.State = executorv1.RunState_RUN_STATE_COMPLETED
	case workgraph.StatusCanceled:
		m.State = executorv1.RunState_RUN_STATE_CANCELED
	case workgraph.StatusTimedOut:
		m.State, m.TimedOut = executorv1.RunState_RUN_STATE_CANCELED, true
	}
	return m
}

// waitMessage is what a visit waits for; nil if for nothing that has a name.
func waitMessage(namespace, runID string, w *record.VisitWait, tokens attempttoken.Keys) *executorv1.WaitInfo {
	if w == nil {
		return nil
	}
	m := &executorv1.WaitInfo{DueTime: stamp(w.Due), ChildRunIds: w.Children, InterruptId: w.Interrupt, Signal: w.Signal}
	switch w.Kind {
	case workgraph.WaitTimer:
		m.Kind = executorv1.WaitKind_WAIT_KIND_TIMER
	case workgraph.WaitChildren:
		m.Kind = executorv1.WaitKind_WAIT_KIND_CHILDREN
	case workgraph.WaitInterrupt:
		m.Kind = executorv1.WaitKind_WAIT_KIND_INTERRUPT
	case workgraph.WaitCompletion:
		m.Kind = executorv1.WaitKind_WAIT_KIND_COMPLETION
		m.AttemptToken = tokens.Sign(attempttoken.Token{Namespace: namespace, RunID: runID, Node: w.Node, Visit: w.Visit, Item: w.Item, Attempt: w.Attempt})
	case workgraph.WaitSignal:
		m.Kind = executorv1.WaitKind_WAIT_KIND_SIGNAL
	}
	return m
}

func ephemeral(m *executorv1.RunEvent, e *feed.Ephemeral) bool {
	ref, attempt := refMessage(e.Ref), callpb.Count(e.Attempt)
	switch {
	case e.Queued != nil:
		m.Event = &executorv1.RunEvent_RunQueued{RunQueued: &executorv1.RunQueued{Reason: e.Queued.Reason, StartTime: stamp(e.Queued.StartTime)}}
	case e.Started:
		m.Event = &executorv1.RunEvent_AttemptStarted{AttemptStarted: &executorv1.AttemptStarted{Visit: ref, Attempt: attempt, Actor: e.Actor}}
	case e.Text != "":
		kind := executorv1.TextKind_TEXT_KIND_ANSWER
		if e.Raw {
			kind = executorv1.TextKind_TEXT_KIND_RAW
		}
		m.Event = &executorv1.RunEvent_TokenDelta{TokenDelta: &executorv1.TokenDelta{Visit: ref, Attempt: attempt, Text: e.Text, Kind: kind, Offset: e.Offset}}
	case len(e.Progress) > 0:
		m.Event = &executorv1.RunEvent_AttemptProgress{AttemptProgress: &executorv1.AttemptProgress{Visit: ref, Attempt: attempt, Progress: graphpb.Payload(e.Progress)}}
	default:
		return false
	}
	return true
}

func refMessage(r workgraph.Ref) *executorv1.VisitRef {
	return &executorv1.VisitRef{NodeId: r.Node, Visit: callpb.Count(r.Visit), Item: callpb.Count(r.Item)}
}

func refMessages(refs []workgraph.Ref) []*executorv1.VisitRef {
	out := make([]*executorv1.VisitRef, len(refs))
	for i, r := range refs {
		out[i] = refMessage(r)
	}
	return out
}

// reused are the visits that an event takes over.
func reused(d *record.Durable) []*executorv1.VisitRef {
	var out []*executorv1.VisitRef
	for i := range d.Steps {
		if s := &d.Steps[i]; s.Op == workgraph.OpReuse {
			out = append(out, &executorv1.VisitRef{NodeId: s.Node, Visit: callpb.Count(s.Visit)})
		}
	}
	return out
}

// ready lists the nodes that became ready by an event.
func ready(d *record.Durable) []string {
	var out []string
	for i := range d.Steps {
		if s := &d.Steps[i]; s.Op == workgraph.OpEnter {
			out = append(out, s.Node)
		}
	}
	return out
}

func attemptEnded(d *record.Durable) *executorv1.AttemptEnded {
	m := &executorv1.AttemptEnded{
		Visit: refMessage(d.Ref), Attempt: callpb.Count(d.Attempt), StartTime: stamp(d.StartTime), Actor: d.Actor, Cached: d.Cached, Error: errorMessage(d.Error, d.Ref),
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
		for _, r := range d.Outcome.Routed {
			m.Routes = append(m.Routes, &executorv1.RouteTaken{From: r.From, To: r.To, How: r.How, Why: r.Why})
		}
		if s := d.Outcome.Saved; s != nil {
			m.Saved = &executorv1.SavedUsage{InputTokens: s.InputTokens, OutputTokens: s.OutputTokens, NanoUsd: s.NanoUSD}
		}
	}
	if d.PutBack() {
		m.State = executorv1.VisitState_VISIT_STATE_HELD
	}
	m.ReadyNodes = ready(d)
	for i := range d.Steps {
		if s := &d.Steps[i]; s.Node == d.Node && s.Visit == d.Visit {
			decided(m, d, s)
		}
	}
	return m
}

// reconciledState is where the visit or item stands once it is known what its call did.
func reconciledState(d *record.Durable) executorv1.VisitState {
	for i := range d.Steps {
		if s := &d.Steps[i]; s.Op == workgraph.OpStart && s.Node == d.Node && s.Visit == d.Visit && s.Item == d.Item {
			return executorv1.VisitState_VISIT_STATE_HELD
		}
	}
	return attemptEnded(d).GetState()
}

// decided puts into m what a step says about the attempt's own visit or item.
func decided(m *executorv1.AttemptEnded, d *record.Durable, s *workgraph.Step) {
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
			m.State = executorv1.VisitState_VISIT_STATE_CANCELED
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

// activitySummary says what a run has done, by its row; nil without one.
func activitySummary(r *journal.Run) *executorv1.ActivitySummary {
	if r == nil {
		return nil
	}
	m := &executorv1.ActivitySummary{Nodes: nodesMessage(r.Nodes), Usage: usageOfRow(r)}
	if !r.StartTime.IsZero() {
		m.Duration = durationpb.New(max(r.EndTime.Sub(r.StartTime), 0))
	}
	return m
}

func runEnded(end *workgraph.RunEnd, unbooked int64, row *journal.Run) *executorv1.RunEnded {
	m := &executorv1.RunEnded{State: executorv1.RunState_RUN_STATE_FAILED, Reason: end.Reason, Result: graphpb.Payload(end.Result), Outputs: graphpb.PayloadMap(end.Outputs),
		UnbookedAttempts: unbooked, UnknownAttempts: refMessages(end.Unknown), ActivitySummary: activitySummary(row)}
	switch end.Status {
	case workgraph.StatusCompleted:
		m.State = executorv1.RunState_RUN_STATE_COMPLETED
	case workgraph.StatusCanceled:
		m.State = executorv1.RunState_RUN_STATE_CANCELED
	}
	if m.State == executorv1.RunState_RUN_STATE_FAILED {
		m.Error = &executorv1.RunError{Reason: end.Reason, Message: end.Message}
		if end.Error != nil {
			m.Error.Type, m.Error.Reason = callpb.ErrorType(end.Error.Type), end.Error.Reason
			if end.Error.Message != "" {
				m.Error.Message = end.Error.Message
			}
		}
		if end.Failed != nil {
			m.Error.NodeId, m.Error.Visit = end.Failed.Node, callpb.Count(end.Failed.Visit)
		}
	}
	return m
}

func usageSettled(costs []*int64) *executorv1.UsageSettled {
	m := &executorv1.UsageSettled{Calls: callpb.Count(len(costs))}
	for _, cost := range costs {
		switch {
		case cost == nil:
			m.UnpricedCalls++
		case *cost > 0 && m.NanoUsd > math.MaxInt64-*cost:
			m.NanoUsd = math.MaxInt64
		default:
			m.NanoUsd += *cost
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
	case workgraph.ReasonCallsLost:
		return "one visit's calls were lost again and again with the worker that had them; it may be what ends the workers"
	case workgraph.ReasonBudget:
		return "the run's budget is used up; the work so far is kept, and it goes on when it is resumed with more"
	case workgraph.ReasonCap:
		return "a cap of its namespace, epic or task leaves no room for its next call; it goes on by itself when there is room"
	case workgraph.ReasonUnsettled:
		return "the registry was not there to price the run's calls; it goes on by itself when they are priced"
	case workgraph.ReasonParentPaused:
		return "the run above it was paused; it goes on when that one is resumed"
	case workgraph.ReasonStep:
		return "it was resumed for one round; it goes on when it is resumed"
	case agent.ReasonNoProgress:
		return "the agent did the same with the same result again and again; it goes on when it is resumed"
	case agent.ReasonStep:
		return "the agent goes step by step; it goes on with the next round when it is resumed"
	case agent.ReasonBranchDepth:
		return "the agent wants to branch deeper than its max_branch_depth; it does so when it is resumed"
	case agent.ReasonBranches:
		return "the agent wants more branches than its max_branches; they begin when it is resumed"
	case "KILLED_OWNERS":
		return "the executors that ran it went down each time; it is not tried again by itself"
	}
	return ""
}

// expandedID is the id in the run's graph of a node that a visit inserted.
func expandedID(at workgraph.Ref, id string) string {
	return fmt.Sprintf("%s#%d/%s", at.Node, at.Visit, id)
}
