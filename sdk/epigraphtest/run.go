package epigraphtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/epigraph-run/epigraph/workgraph"
)

// Run is a run of a Kit.
type Run struct {
	// ID is the id of the run and the first part of its effect keys.
	ID string

	k          *Kit
	program    *workgraph.Program
	state      *workgraph.State
	graph      *workgraph.Graph
	events     []workgraph.Event
	queue      []workgraph.Start
	canceled   []workgraph.Ref
	interrupts []workgraph.OpenedInterrupt
	details    map[workgraph.Ref]json.RawMessage
	parent     *Run
	of         workgraph.Ref
	ids        int
}

// advance gives the machine a command and carries out what it asks for.
func (r *Run) advance(cmd workgraph.Command) {
	r.k.t.Helper()
	if err := r.try(cmd); err != nil {
		r.k.t.Fatalf("run %s refuses %T: %v", r.ID, cmd, err)
	}
}

func (r *Run) try(cmd workgraph.Command) error {
	events, fx, err := r.state.Advance(cmd)
	if err != nil {
		return err
	}
	r.events = append(r.events, events...)
	r.queue = append(r.queue, fx.Starts...)
	r.canceled = append(r.canceled, fx.Cancels...)
	for _, q := range fx.Opened {
		if !slices.ContainsFunc(r.interrupts, func(o workgraph.OpenedInterrupt) bool { return o.Interrupt.ID == q.Interrupt.ID }) {
			r.interrupts = append(r.interrupts, q)
		}
	}
	for _, c := range fx.Closed {
		r.interrupts = slices.DeleteFunc(r.interrupts, func(o workgraph.OpenedInterrupt) bool { return o.Interrupt.ID == c.ID })
	}
	for _, s := range fx.Spawns {
		r.spawn(s)
	}
	for _, id := range fx.CancelChildren {
		if c := r.k.find(id); c != nil && c.state.End() == nil {
			c.advance(workgraph.Cancel{Reason: "the parent does not wait any more", Now: r.k.now})
		}
	}
	if fx.Ended != nil && r.parent != nil && r.parent.state.End() == nil {
		slot := workgraph.ChildSlot{RunID: r.ID, Status: fx.Ended.Status, Reason: fx.Ended.Reason, Result: fx.Ended.Result, Outputs: fx.Ended.Outputs, Error: fx.Ended.Error}
		if err := r.parent.try(workgraph.ChildEnded{Ref: r.of, Slot: slot, Now: r.k.now}); err != nil && !errors.Is(err, workgraph.ErrStale) {
			r.k.t.Fatalf("run %s refuses the end of its child: %v", r.parent.ID, err)
		}
	}
	return nil
}

func (k *Kit) find(id string) *Run {
	for _, r := range k.runs {
		if r.ID == id {
			return r
		}
	}
	return nil
}

func (r *Run) spawn(s workgraph.Spawn) {
	if r.k.find(s.Child.ID) != nil {
		return
	}
	g := s.Child.Graph
	switch {
	case s.Child.Ref == "self":
		g = r.graph
	case g == nil:
		g = r.k.workflows[s.Child.Ref]
	}
	fail := func(why string) {
		slot := workgraph.ChildSlot{RunID: s.Child.ID, Status: workgraph.StatusFailed, Reason: "GRAPH_INVALID", Error: workgraph.Errorf(workgraph.Permanent, "GRAPH_INVALID", "%s", why)}
		r.advance(workgraph.ChildEnded{Ref: s.Ref, Slot: slot, Now: r.k.now})
	}
	if g == nil {
		fail(fmt.Sprintf("there is no workflow %q: see Kit.Workflow", s.Child.Ref))
		return
	}
	c, err := r.k.begin(s.Child.ID, g, s.Child.Input)
	if err != nil {
		fail(err.Error())
		return
	}
	c.parent, c.of = r, s.Ref
	if end := c.state.End(); end != nil { // it ended before it knew its parent
		r.advance(workgraph.ChildEnded{Ref: s.Ref, Slot: workgraph.ChildSlot{RunID: c.ID, Status: end.Status, Reason: end.Reason, Result: end.Result, Outputs: end.Outputs, Error: end.Error}, Now: r.k.now})
	}
}

// step makes one call. It reports false if there is none to make.
func (r *Run) step() bool {
	r.k.t.Helper()
	if len(r.queue) == 0 {
		return false
	}
	start := r.queue[0]
	r.queue = r.queue[1:]
	gone := slices.Contains(r.canceled, start.Ref) || r.state.Draining()
	r.canceled = slices.DeleteFunc(r.canceled, func(ref workgraph.Ref) bool { return ref == start.Ref })
	if gone {
		r.end(start, nil, workgraph.Errorf(workgraph.NotPerformed, workgraph.ReasonCanceled, "canceled before it began"))
		return true
	}
	if start.NeedsIntent() {
		if err := r.try(workgraph.Attempt{Ref: start.Ref, Attempt: start.Attempt, Now: r.k.now}); err != nil {
			return true // not wanted any more
		}
	}
	if r.k.crash[start.Node] == BeforeCall {
		delete(r.k.crash, start.Node)
		r.k.Crash()
		return true
	}
	start.Details, start.AttemptToken = r.details[start.Ref], r.ID+"/"+start.Node
	r.k.calls = append(r.k.calls, Call{Actor: start.Actor, Node: start.Node, Start: start})
	call := workgraph.NewCall(start, workgraph.CallOptions{
		Heartbeat: func(d json.RawMessage) {
			if d != nil {
				r.details[start.Ref] = d
			}
		},
		Scope: r.state.ScopeOf(start.Ref),
	})
	out, fail := r.call(call)
	if r.k.crash[start.Node] == AfterCall {
		delete(r.k.crash, start.Node)
		r.k.Crash()
		return true
	}
	r.end(start, out, fail)
	return true
}

func (r *Run) call(c *workgraph.Call) (out *workgraph.Outcome, fail *workgraph.Error) {
	defer func() {
		if p := recover(); p != nil {
			kind := workgraph.Permanent
			if c.Effect == workgraph.Unsafe {
				kind = workgraph.Unknown
			}
			out, fail = nil, workgraph.Errorf(kind, workgraph.ReasonPanic, "the actor panicked: %v", p)
		}
	}()
	o, err := r.k.actors[c.Actor].Call(context.Background(), c)
	if err == nil {
		return r.named(&o), nil
	}
	if e, ok := errors.AsType[*workgraph.Error](err); ok {
		return nil, e
	}
	kind := workgraph.Retryable
	if c.Effect == workgraph.Unsafe {
		kind = workgraph.Unknown
	}
	return nil, workgraph.Errorf(kind, workgraph.ReasonActorError, "%v", err)
}

// named gives ids to what an outcome waits for.
func (r *Run) named(o *workgraph.Outcome) *workgraph.Outcome {
	if o.Wait == nil {
		return o
	}
	w := *o.Wait
	o.Wait = &w
	if w.Children != nil {
		c := *w.Children
		c.Runs = slices.Clone(c.Runs)
		for i := range c.Runs {
			r.ids++
			c.Runs[i].ID = fmt.Sprintf("%s.%d", r.ID, r.ids)
		}
		w.Children = &c
	}
	if w.Interrupt != nil {
		q := *w.Interrupt
		r.ids++
		q.ID = fmt.Sprintf("%s?%d", r.ID, r.ids)
		w.Interrupt = &q
	}
	return o
}

func (r *Run) end(s workgraph.Start, out *workgraph.Outcome, fail *workgraph.Error) {
	r.k.t.Helper()
	err := r.try(workgraph.Ended{Ref: s.Ref, Attempt: s.Attempt, Outcome: out, Err: fail, Now: r.k.now})
	if err != nil && !errors.Is(err, workgraph.ErrStale) && !errors.Is(err, workgraph.ErrEnded) {
		r.k.t.Fatalf("run %s refuses the end of %s: %v", r.ID, s.Node, err)
	}
}

// Crash makes the process die and restart: everything unrecorded is forgotten, and every run continues from
// its journal.
func (k *Kit) Crash() {
	k.t.Helper()
	for _, r := range k.runs {
		if r.state.End() != nil {
			continue
		}
		s, err := workgraph.Replay(k.t.Context(), r.program, r.ID, r.events)
		if err != nil {
			k.t.Fatalf("run %s cannot be replayed: %v", r.ID, err)
		}
		s.UseActors(k.actors)
		r.state, r.queue, r.canceled = s, nil, nil
		r.advance(workgraph.Recover{Now: k.now})
		r.queue = s.Outstanding()
	}
	k.runIdle()
}

// outside gives the machine a command from outside, and advances all runs.
func (r *Run) outside(cmd workgraph.Command) {
	r.k.t.Helper()
	r.advance(cmd)
	r.k.runIdle()
}

// Interrupts lists the open interrupts of the run, oldest first.
func (r *Run) Interrupts() []workgraph.OpenedInterrupt { return slices.Clone(r.interrupts) }

// Answer answers the oldest open interrupt of a node.
func (r *Run) Answer(node string, answer any) {
	r.k.t.Helper()
	r.decide(node, r.k.json(answer), "")
}

// Approve and Reject decide on the oldest open interrupt of a node that asks for an approval.
func (r *Run) Approve(node string) { r.k.t.Helper(); r.decide(node, nil, "APPROVED") }

// Reject is the other decision.
func (r *Run) Reject(node string) { r.k.t.Helper(); r.decide(node, nil, "REJECTED") }

func (r *Run) decide(node string, answer json.RawMessage, decision string) {
	r.k.t.Helper()
	for _, q := range r.interrupts {
		if q.Node == node {
			r.outside(workgraph.Answered{ID: q.Interrupt.ID, Answer: answer, Decision: decision, By: "test", Now: r.k.now})
			return
		}
	}
	r.k.t.Fatalf("node %s of run %s asks nothing", node, r.ID)
}

// Signal sends a signal to the run.
func (r *Run) Signal(name string, payload any) {
	r.k.t.Helper()
	r.outside(workgraph.Signaled{Name: name, Payload: r.k.json(payload), Now: r.k.now})
}

// Send sends a message to inboxes.
func (r *Run) Send(from, node string, message any) {
	r.k.t.Helper()
	r.outside(workgraph.Delivered{From: from, Node: node, Message: r.k.json(message), Now: r.k.now})
}

// CompleteAttempt ends the wait of a node's visit for work outside.
func (r *Run) CompleteAttempt(node string, values ...any) {
	r.k.t.Helper()
	out := &workgraph.Outcome{}
	for _, v := range values {
		out.Values = append(out.Values, r.k.json(v))
	}
	for w := range r.state.Waits {
		if w.Node == node {
			r.outside(workgraph.AttemptCompleted{Ref: w.Ref, Attempt: w.Attempt, Outcome: out, By: "test", Now: r.k.now})
			return
		}
	}
	r.k.t.Fatalf("node %s of run %s waits for nothing", node, r.ID)
}

// Cancel asks for the end of the run.
func (r *Run) Cancel() { r.k.t.Helper(); r.outside(workgraph.Cancel{Reason: "test", Now: r.k.now}) }

// Pause holds back new attempts.
func (r *Run) Pause() { r.k.t.Helper(); r.outside(workgraph.Pause{Reason: "test", Now: r.k.now}) }

// Resume ends a pause.
func (r *Run) Resume() { r.k.t.Helper(); r.outside(workgraph.Resume{Reason: "test", Now: r.k.now}) }

// Status is where the run stands, and why.
func (r *Run) Status() (workgraph.Status, string) { return r.state.Status() }

// Child is the n-th run that this one spawned, from 1.
func (r *Run) Child(n int) *Run {
	for _, c := range r.k.runs {
		if c.parent == r {
			if n--; n == 0 {
				return c
			}
		}
	}
	r.k.t.Helper()
	r.k.t.Fatalf("run %s has fewer children", r.ID)
	return nil
}

// Result requires that the run has completed, and reads its result into out unless that is nil.
func (r *Run) Result(out any) {
	r.k.t.Helper()
	end := r.state.End()
	if end == nil || end.Status != workgraph.StatusCompleted {
		status, reason := r.Status()
		message := ""
		if end != nil && end.Error != nil {
			reason, message = end.Error.Reason, end.Error.Message
		}
		r.k.t.Fatalf("run %s is %s (%s %s), not COMPLETED", r.ID, status, reason, message)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(end.Result, out); err != nil {
		r.k.t.Fatalf("the result of run %s does not fit: %v: %s", r.ID, err, end.Result)
	}
}

// Failed requires that the run has failed for this reason.
func (r *Run) Failed(reason string) {
	r.k.t.Helper()
	end := r.state.End()
	if end == nil || end.Status != workgraph.StatusFailed {
		status, why := r.Status()
		r.k.t.Fatalf("run %s is %s (%s), not FAILED", r.ID, status, why)
	}
	if end.Error == nil || end.Error.Reason != reason {
		r.k.t.Fatalf("run %s failed with %v, not %s", r.ID, end.Error, reason)
	}
}
