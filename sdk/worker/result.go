package worker

import (
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Result is an outcome that is more than one value. Make one with Values, Terminate, Abstain, Sleep, Ask,
// Approve, AwaitCompletion, AwaitSignal, Spawn or Expand, and add to it with its methods.
type Result struct {
	m   *executorv1.Outcome
	err error
}

func (r Result) outcome() (*executorv1.Outcome, error) {
	if r.err != nil {
		return nil, Permanent("BAD_OUTCOME", r.err)
	}
	if r.m == nil {
		return &executorv1.Outcome{}, nil
	}
	return r.m, nil
}

func (r *Result) payload(v any) *graphv1.Payload {
	raw, err := json.Marshal(v)
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("the result cannot be written as JSON: %w", err)
	}
	return &graphv1.Payload{Json: raw}
}

// Values is none, one, or the elements of a tuple.
func Values(vs ...any) Result {
	r := Result{m: &executorv1.Outcome{}}
	for _, v := range vs {
		r.m.Values = append(r.m.Values, r.payload(v))
	}
	return r
}

// Terminate ends the run as COMPLETED with these values, once the visits under way have ended.
func Terminate(vs ...any) Result {
	r := Values(vs...)
	r.m.Stop = executorv1.Stop_STOP_TERMINATE
	return r
}

// Abstain leaves the visit's value out and makes its edges dead.
func Abstain() Result {
	return Result{m: &executorv1.Outcome{Stop: executorv1.Stop_STOP_ABSTAIN_RESULT}}
}

func waits(w *executorv1.Wait) Result { return Result{m: &executorv1.Outcome{Wait: w}} }

// Sleep ends the visit after d with these values; nothing is held meanwhile.
func Sleep(d time.Duration, vs ...any) Result {
	r := Values(vs...)
	r.m.Wait = &executorv1.Wait{Wait: &executorv1.Wait_Timer{Timer: &executorv1.TimerWait{After: durationpb.New(d)}}}
	return r
}

// SleepUntil ends the visit at a time with these values.
func SleepUntil(t time.Time, vs ...any) Result {
	r := Values(vs...)
	r.m.Wait = &executorv1.Wait{Wait: &executorv1.Wait_Timer{Timer: &executorv1.TimerWait{Until: timestamppb.New(t)}}}
	return r
}

// Ask opens an interrupt, whose answer becomes the visit's value. Schema, if not nil, is the JSON Schema of
// the answer. After a timeout above 0 the visit fails, or takes the value of Default.
func Ask(prompt any, schema json.RawMessage, timeout time.Duration) Result {
	i := &executorv1.InterruptWait{}
	r := waits(&executorv1.Wait{Wait: &executorv1.Wait_Interrupt{Interrupt: i}})
	i.Prompt = r.payload(prompt)
	if schema != nil {
		i.Schema = &graphv1.Payload{Json: schema}
	}
	if timeout > 0 {
		i.Timeout = durationpb.New(timeout)
	}
	return r
}

// Approve asks for the approval of exactly what; the visit's value is the decision.
func Approve(prompt, what any, timeout time.Duration) Result {
	r := Ask(prompt, nil, timeout)
	r.m.GetWait().GetInterrupt().Approve = r.payload(what)
	return r
}

// Default is the answer to an interrupt after its timeout.
func (r Result) Default(answer any) Result {
	if i := r.m.GetWait().GetInterrupt(); i != nil {
		i.DefaultAnswer = r.payload(answer)
	}
	return r
}

// AwaitCompletion leaves the visit open until somebody completes it with the visit's AttemptToken. After a
// timeout above 0 the visit fails.
func AwaitCompletion(timeout time.Duration) Result {
	t := &executorv1.CompletionWait{}
	if timeout > 0 {
		t.Timeout = durationpb.New(timeout)
	}
	return waits(&executorv1.Wait{Wait: &executorv1.Wait_Completion{Completion: t}})
}

// AwaitSignal leaves the visit open until a signal of that name comes; its value is the signal's payload.
func AwaitSignal(name string, timeout time.Duration) Result {
	s := &executorv1.SignalWait{Name: name}
	if timeout > 0 {
		s.Timeout = durationpb.New(timeout)
	}
	return waits(&executorv1.Wait{Wait: &executorv1.Wait_Signal{Signal: s}})
}

// Child is a run to spawn.
type Child struct {
	// Graph or Ref ("self", "workflow/SLUG@version") says what runs.
	Graph  *workgraph.Graph
	Ref    string
	Args   []any
	Named  map[string]any
	TaskID string
	Labels map[string]string
	// Budget is what it may use; it gets at most what the run that spawns it has left. Nil leaves it at that.
	Budget *workgraph.Budget
}

// Spawn starts runs and leaves the visit open until all have ended. Its value is the list of their slots in
// this order.
func Spawn(children ...Child) Result {
	c := &executorv1.ChildrenWait{}
	r := waits(&executorv1.Wait{Wait: &executorv1.Wait_Children{Children: c}})
	for _, child := range children {
		m := &executorv1.ChildRun{TaskId: child.TaskID, Labels: child.Labels}
		if b := child.Budget; b != nil {
			m.Budget = &executorv1.RunBudget{NanoUsd: b.NanoUSD, Tokens: b.Tokens}
		}
		if child.Graph != nil {
			g, err := epigraph.Graph(child.Graph)
			if err != nil {
				r.err = err
			}
			m.Target = &executorv1.ChildRun_Graph{Graph: g}
		} else {
			m.Target = &executorv1.ChildRun_Ref{Ref: child.Ref}
		}
		for _, a := range child.Args {
			m.Args = append(m.Args, r.payload(a))
		}
		for k, v := range child.Named {
			if m.Named == nil {
				m.Named = map[string]*graphv1.Payload{}
			}
			m.Named[k] = r.payload(v)
		}
		c.Children = append(c.Children, m)
	}
	return r
}

// FailFast fails the visit at the first child that does not complete.
func (r Result) FailFast() Result {
	if c := r.m.GetWait().GetChildren(); c != nil {
		c.FailFast = true
	}
	return r
}

// AsResult lets the one child stand for the visit: its result is the visit's value in place of the list, its
// failure the visit's.
func (r Result) AsResult() Result {
	if c := r.m.GetWait().GetChildren(); c != nil {
		c.AsResult = true
	}
	return r
}

// Expand inserts a graph after the node; it runs on these values before the node's successors.
func Expand(g *workgraph.Graph, vs ...any) Result {
	r := Values(vs...)
	m, err := epigraph.Graph(g)
	if err != nil {
		r.err = err
	}
	r.m.Expand = m
	return r
}

// To selects the nodes whose edges fire; without names none does.
func (r Result) To(nodes ...string) Result {
	sel := &executorv1.Select{Others: executorv1.Others_OTHERS_NONE, Self: r.m.GetSelect().GetSelf()}
	if len(nodes) > 0 {
		sel.Others, sel.Names = executorv1.Others_OTHERS_NAMES, nodes
	}
	r.m.Select = sel
	return r
}

// Again fires the node's own BACK edge.
func (r Result) Again() Result {
	if r.m.GetSelect() == nil {
		r.m.Select = &executorv1.Select{Others: executorv1.Others_OTHERS_ALL}
	}
	r.m.Select.Self = true
	return r
}

// Set updates a key of the run's state.
func (r Result) Set(key string, v any) Result {
	if r.m.State == nil {
		r.m.State = map[string]*graphv1.Payload{}
	}
	r.m.State[key] = r.payload(v)
	return r
}

// Used records what a model used.
func (r Result) Used(usage ...*executorv1.ModelUsage) Result {
	r.m.Usage = append(r.m.Usage, usage...)
	return r
}
