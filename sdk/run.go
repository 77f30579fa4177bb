package epigraph

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/sdk/internal/calling"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Run is a run by its id. It holds no connection of its own.
type Run struct {
	// ID is the run's id, "run_…".
	ID string
	c  *Client
}

// StartOption sets an option of a new run. StartRun returns its errors, such as a value that is no JSON.
type StartOption func(*executorv1.StartRunRequest) error

// Arg adds a positional argument of the start nodes, as workgraph.Arg does of a node.
func Arg(v any) StartOption {
	return func(r *executorv1.StartRunRequest) error {
		p, err := Payload(v)
		r.Args = append(r.Args, p)
		return err
	}
}

// Named binds a named argument of the start nodes, as workgraph.Named does of a node.
func Named(name string, v any) StartOption {
	return func(r *executorv1.StartRunRequest) error {
		p, err := Payload(v)
		if r.Named == nil {
			r.Named = map[string]*graphv1.Payload{}
		}
		r.Named[name] = p
		return err
	}
}

// Context gives facts to every node, which conditions see as "context".
func Context(v any) StartOption {
	return func(r *executorv1.StartRunRequest) (err error) {
		r.Context, err = Payload(v)
		return err
	}
}

// Task names the task that the run works on.
func Task(id string) StartOption {
	return func(r *executorv1.StartRunRequest) error { r.TaskId = id; return nil }
}

// BusinessKey makes the run the only open one of that key; policy decides what happens if there is one
// already.
func BusinessKey(key string, policy executorv1.ConflictPolicy) StartOption {
	return func(r *executorv1.StartRunRequest) error { r.BusinessKey, r.ConflictPolicy = key, policy; return nil }
}

// Label adds a short fact to filter by.
func Label(key, value string) StartOption {
	return func(r *executorv1.StartRunRequest) error {
		if r.Labels == nil {
			r.Labels = map[string]string{}
		}
		r.Labels[key] = value
		return nil
	}
}

// RequestID makes the start repeatable over restarts of this program. Without it an id is made for this call
// alone.
func RequestID(id string) StartOption {
	return func(r *executorv1.StartRunRequest) error { r.RequestId = id; return nil }
}

// Priority is how urgent the run is, from 1 (first) to 4.
func Priority(p int) StartOption {
	return func(r *executorv1.StartRunRequest) error { r.Priority = int32(p); return nil }
}

// StartAt lets the run wait for its time.
func StartAt(t time.Time) StartOption {
	return func(r *executorv1.StartRunRequest) error { r.StartTime = timestamppb.New(t); return nil }
}

// Timeout bounds the run's time from its start.
func Timeout(d time.Duration) StartOption {
	return func(r *executorv1.StartRunRequest) error { r.Timeout = durationpb.New(d); return nil }
}

// BudgetTokens pauses the run, with its work kept, once it has used so many tokens; 0 lets nothing start.
func BudgetTokens(n int64) StartOption {
	return func(r *executorv1.StartRunRequest) error { budget(r).Tokens = &n; return nil }
}

// BudgetNanoUSD pauses the run, with its work kept, once it has used so much money; 0 lets nothing start.
func BudgetNanoUSD(n int64) StartOption {
	return func(r *executorv1.StartRunRequest) error { budget(r).NanoUsd = &n; return nil }
}

func budget(r *executorv1.StartRunRequest) *executorv1.RunBudget {
	if r.Budget == nil {
		r.Budget = &executorv1.RunBudget{}
	}
	return r.Budget
}

// Request changes whatever no other option does.
func Request(change func(*executorv1.StartRunRequest)) StartOption {
	return func(r *executorv1.StartRunRequest) error { change(r); return nil }
}

// StartRun starts a graph. Once it returns, the run is recorded and goes on without this program.
// workgraph.Decode reads a graph in its JSON form.
func (c *Client) StartRun(ctx context.Context, g *workgraph.Graph, opts ...StartOption) (*Run, error) {
	m, err := Graph(g)
	if err != nil {
		return nil, err
	}
	return c.StartGraph(ctx, m, opts...)
}

// SignalWithStart signals the open run of a business key, or starts one and signals it.
func (c *Client) SignalWithStart(ctx context.Context, g *workgraph.Graph, signal string, payload any, opts ...StartOption) (*Run, error) {
	req, err := c.startRequest(g, opts)
	if err != nil {
		return nil, err
	}
	p, err := Payload(payload)
	if err != nil {
		return nil, err
	}
	m, err := c.Executor.SignalWithStart(ctx, &executorv1.SignalWithStartRequest{Start: req, Name: signal, Payload: p})
	if err != nil {
		return nil, err
	}
	return c.Run(m.GetId()), nil
}

func (c *Client) startRequest(g *workgraph.Graph, opts []StartOption) (*executorv1.StartRunRequest, error) {
	m, err := Graph(g)
	if err != nil {
		return nil, err
	}
	return startRequest(m, opts)
}

func startRequest(g *graphv1.Graph, opts []StartOption) (*executorv1.StartRunRequest, error) {
	req := &executorv1.StartRunRequest{Graph: g}
	for _, f := range opts {
		if err := f(req); err != nil {
			return nil, err
		}
	}
	return req, nil
}

// Run is the run of that id; nothing is asked.
func (c *Client) Run(id string) *Run { return &Run{ID: id, c: c} }

// Get reads the run.
func (r *Run) Get(ctx context.Context) (*executorv1.Run, error) {
	return r.c.Executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: r.ID})
}

// Events are what happens in the run from its beginning to its end, durable and ephemeral: see EventsAfter.
func (r *Run) Events(ctx context.Context) iter.Seq2[*executorv1.RunEvent, error] {
	return r.EventsAfter(ctx, &executorv1.WatchRunRequest{})
}

// EventsAfter returns the events of the run after a sequence. A broken connection is resumed where it broke,
// so that no durable event is lost or repeated. The iteration ends with the run, with ctx, or with an error,
// which is then the last pair.
func (r *Run) EventsAfter(ctx context.Context, req *executorv1.WatchRunRequest) iter.Seq2[*executorv1.RunEvent, error] {
	return func(yield func(*executorv1.RunEvent, error) bool) {
		req := &executorv1.WatchRunRequest{RunId: r.ID, AfterSeq: req.GetAfterSeq(), IncludeDescendants: req.GetIncludeDescendants(), DurableOnly: req.GetDurableOnly()}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		pause := 50 * time.Millisecond
		for {
			stream, err := r.c.Executor.WatchRun(ctx, req)
			for err == nil {
				var ev *executorv1.RunEvent
				if ev, err = stream.Recv(); err != nil {
					break
				}
				pause = 50 * time.Millisecond
				if ev.GetRunId() == r.ID && ev.GetSeq() > 0 {
					req.AfterSeq = ev.GetSeq()
				}
				if !yield(ev, nil) {
					return
				}
			}
			switch {
			case errors.Is(err, io.EOF):
				return
			case ctx.Err() != nil || !passing(err):
				yield(nil, err)
				return
			}
			if !sleep(ctx, pause) {
				yield(nil, ctx.Err())
				return
			}
			pause = min(2*pause, 5*time.Second)
		}
	}
}

// passing reports whether a watch is worth another try.
func passing(err error) bool {
	switch ReasonOf(err) {
	case "SERVICE_UNAVAILABLE", "SERVER_STOPPING", "EXECUTOR_NOT_READY", "DATABASE_UNREACHABLE", "DATABASE_NOT_READY", "FENCED":
		return true
	}
	return false
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Ended reports whether a state is final.
func Ended(s executorv1.RunState) bool {
	return s == executorv1.RunState_RUN_STATE_COMPLETED || s == executorv1.RunState_RUN_STATE_FAILED || s == executorv1.RunState_RUN_STATE_CANCELED
}

// Wait returns the run when it has ended, however it has.
func (r *Run) Wait(ctx context.Context) (*executorv1.Run, error) {
	for {
		m, err := r.Get(ctx)
		if err != nil || Ended(m.GetState()) {
			return m, err
		}
		for _, err := range r.EventsAfter(ctx, &executorv1.WatchRunRequest{AfterSeq: m.GetLastSeq(), DurableOnly: true}) {
			if err != nil {
				return nil, err
			}
		}
	}
}

// RunError is the end of a run that gave no result.
type RunError struct {
	RunID string
	State executorv1.RunState
	// Reason and Message are those of the failure, or of the run's end.
	Reason, Message string
	// NodeID is where it failed; may be empty.
	NodeID string
}

// Error names the run, the reason and the node.
func (e *RunError) Error() string {
	did := "failed"
	if e.State == executorv1.RunState_RUN_STATE_CANCELED {
		did = "was canceled"
	}
	text := "run " + e.RunID + " " + did
	if e.NodeID != "" {
		text += " at " + e.NodeID
	}
	for _, part := range []string{e.Reason, e.Message} {
		if part != "" {
			text += ": " + part
		}
	}
	return text
}

// Result waits for the end of a run and reads its result. A run that did not complete is a *RunError.
func Result[T any](ctx context.Context, r *Run) (T, error) {
	var out T
	m, err := r.Wait(ctx)
	if err != nil {
		return out, err
	}
	if m.GetState() != executorv1.RunState_RUN_STATE_COMPLETED {
		e := &RunError{RunID: r.ID, State: m.GetState(), Reason: m.GetStateReason()}
		if f := m.GetError(); f != nil {
			e.Reason, e.Message, e.NodeID = f.GetReason(), f.GetMessage(), f.GetNodeId()
		}
		return out, e
	}
	if raw := m.GetResult().GetJson(); len(raw) > 0 {
		if err := json.Unmarshal(raw, &out); err != nil {
			return out, fmt.Errorf("read the result of run %s: %w", r.ID, err)
		}
	}
	return out, nil
}

// Cancel asks for the end of the run.
func (r *Run) Cancel(ctx context.Context, reason string) error {
	_, err := r.c.Executor.CancelRun(ctx, &executorv1.CancelRunRequest{RunId: r.ID, Reason: reason})
	return err
}

// Pause lets nothing new begin.
func (r *Run) Pause(ctx context.Context, reason string) error {
	_, err := r.c.Executor.PauseRun(ctx, &executorv1.PauseRunRequest{RunId: r.ID, Reason: reason})
	return err
}

// ResumeWithBudget resumes a paused run with other caps; caps that b does not name stay. A run that is not
// paused takes them as well.
func (r *Run) ResumeWithBudget(ctx context.Context, reason string, b workgraph.Budget) error {
	_, err := r.c.Executor.ResumeRun(ctx, &executorv1.ResumeRunRequest{RunId: r.ID, Reason: reason,
		Budget: &executorv1.RunBudget{NanoUsd: b.NanoUSD, Tokens: b.Tokens}})
	return err
}

// Resume lets a paused run go on. Of a run that is not paused it resumes the paused runs below it, and is
// refused with RUN_NOT_PAUSED if there are none.
func (r *Run) Resume(ctx context.Context, reason string) error {
	_, err := r.c.Executor.ResumeRun(ctx, &executorv1.ResumeRunRequest{RunId: r.ID, Reason: reason})
	return err
}

// ResumeStep is Resume for one round of a loop, such as a round of an agent.
func (r *Run) ResumeStep(ctx context.Context, reason string) error {
	_, err := r.c.Executor.ResumeRun(ctx, &executorv1.ResumeRunRequest{RunId: r.ID, Reason: reason, Step: true})
	return err
}

// Stop asks the loops of the run, and of those below it, to end after the round under way. An agent then
// gives the results of its last actions.
func (r *Run) Stop(ctx context.Context, reason string) error {
	_, err := r.c.Executor.StopRun(ctx, &executorv1.StopRunRequest{RunId: r.ID, Reason: reason})
	return err
}

// Signal ends a wait of the run for a signal of that name, now or when one begins.
func (r *Run) Signal(ctx context.Context, name string, payload any) error {
	p, err := Payload(payload)
	if err != nil {
		return err
	}
	_, err = r.c.Executor.SignalRun(ctx, &executorv1.SignalRunRequest{RunId: r.ID, Name: name, Payload: p})
	return err
}

// Send puts a message into an inbox of the run; an empty node gives it to every inbox that takes messages of
// the sender. In the name of a node only the node's own calls send: a worker's function does so with the
// context that it was given.
func (r *Run) Send(ctx context.Context, from, node string, message any) error {
	token := ""
	if call := calling.Of(ctx); call.RunID == r.ID && call.NodeID == from {
		token = call.AttemptToken
	}
	return r.SendAs(ctx, token, from, node, message)
}

// SendAs is Send in the name of the node whose call has this attempt token, for work outside of the call's
// context.
func (r *Run) SendAs(ctx context.Context, token, from, node string, message any) error {
	p, err := Payload(message)
	if err != nil {
		return err
	}
	_, err = r.c.Executor.SendMessage(ctx, &executorv1.SendMessageRequest{RunId: r.ID, From: from, NodeId: node, Message: p, AttemptToken: token})
	return err
}

// Retry begins a new run that takes over what completed in this one.
func (r *Run) Retry(ctx context.Context, allowUnsafe bool) (*Run, error) {
	m, err := r.c.Executor.RetryRun(ctx, &executorv1.RetryRunRequest{RunId: r.ID, AllowUnsafe: allowUnsafe})
	if err != nil {
		return nil, err
	}
	return r.c.Run(m.GetId()), nil
}

// Fork begins a new run that goes another way from a visit on; RunId of the request is set here.
func (r *Run) Fork(ctx context.Context, req *executorv1.ForkRunRequest) (*Run, error) {
	req.RunId = r.ID
	m, err := r.c.Executor.ForkRun(ctx, req)
	if err != nil {
		return nil, err
	}
	return r.c.Run(m.GetId()), nil
}

// Explain says why the run is not moving.
func (r *Run) Explain(ctx context.Context) (*executorv1.ExplainRunResponse, error) {
	return r.c.Executor.ExplainRun(ctx, &executorv1.ExplainRunRequest{RunId: r.ID})
}

// CompareWith tells how the run differs from another one, base; an empty base is the run of which this one
// is a fork. The answer has the first visits that differ.
func (r *Run) CompareWith(ctx context.Context, base string) (*executorv1.CompareRunsResponse, error) {
	return r.c.Executor.CompareRuns(ctx, &executorv1.CompareRunsRequest{RunId: r.ID, BaseRunId: base})
}

// Interrupts lists the open interrupts of the run and its descendants.
func (r *Run) Interrupts(ctx context.Context) ([]*executorv1.Interrupt, error) {
	var out []*executorv1.Interrupt
	req := &executorv1.ListInterruptsRequest{RunId: r.ID, PageSize: 1000}
	for {
		m, err := r.c.Executor.ListInterrupts(ctx, req)
		if err != nil {
			return nil, err
		}
		out = append(out, m.GetInterrupts()...)
		if req.PageToken = m.GetNextPageToken(); req.PageToken == "" {
			return out, nil
		}
	}
}

// Answer answers an interrupt; by names who does.
func (c *Client) Answer(ctx context.Context, interruptID string, answer any, by string) error {
	p, err := Payload(answer)
	if err != nil {
		return err
	}
	_, err = c.Executor.AnswerInterrupt(ctx, &executorv1.AnswerInterruptRequest{InterruptId: interruptID, Answer: p, By: by})
	return err
}

// Decide answers an approval. hash is its approve_hash: the decision counts for exactly what was seen.
func (c *Client) Decide(ctx context.Context, interruptID string, approve bool, hash, by string) error {
	d := executorv1.Decision_DECISION_REJECTED
	if approve {
		d = executorv1.Decision_DECISION_APPROVED
	}
	_, err := c.Executor.AnswerInterrupt(ctx, &executorv1.AnswerInterruptRequest{InterruptId: interruptID, Decision: d, ApproveHash: hash, By: by})
	return err
}

// CompleteAttempt ends a visit's wait for work outside with values.
func (c *Client) CompleteAttempt(ctx context.Context, token string, values ...any) error {
	done, err := performed(values)
	if err != nil {
		return err
	}
	_, err = c.Executor.CompleteAttempt(ctx, &executorv1.CompleteAttemptRequest{AttemptToken: token, Result: &executorv1.CompleteAttemptRequest_Completed{Completed: done}})
	return err
}

// FailAttempt ends a visit's wait for work outside in a failure that is final.
func (c *Client) FailAttempt(ctx context.Context, token, reason, message string) error {
	_, err := c.Executor.CompleteAttempt(ctx, &executorv1.CompleteAttemptRequest{AttemptToken: token,
		Result: &executorv1.CompleteAttemptRequest_Failed{Failed: &executorv1.AttemptFailed{Reason: reason, Message: message}}})
	return err
}

// Payload encodes a value for the wire. A json.RawMessage is used as it is.
func Payload(v any) (*graphv1.Payload, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, &Error{Reason: "PAYLOAD_INVALID", Message: "the value cannot be written as JSON: " + err.Error(), cause: err}
	}
	return &graphv1.Payload{Json: raw}, nil
}
