// Package epigraphtest runs graphs in tests: with fake actors, a clock that the test moves, and no service.
// Time stands still unless the test lets it pass, calls happen one after the other in a fixed order, and
// crashes happen where the test says. It uses the same state machine as the services. It must not need a
// network, a database or a goroutine.
package epigraphtest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/epigraph-run/epigraph/workgraph"
)

// Kit is the world of one test: its actors, its clock and its runs. It is for one goroutine.
type Kit struct {
	t         testing.TB
	actors    workgraph.Actors
	workflows map[string]*workgraph.Graph
	now       time.Time
	calls     []Call
	runs      []*Run
	crash     map[string]CrashPoint
}

// Call is a call that an actor got.
type Call struct {
	Actor, Node string
	workgraph.Start
}

// CrashPoint says when in an attempt the process dies.
type CrashPoint uint8

const (
	// BeforeCall is after an UNSAFE attempt's intent was recorded and before the actor is called.
	BeforeCall CrashPoint = iota + 1
	// AfterCall is after the actor has done its work and before what it gave is recorded.
	AfterCall
)

// New makes a world without actors. Its clock shows the first second of 2026.
func New(t testing.TB) *Kit {
	return &Kit{t: t, actors: workgraph.Actors{}, workflows: map[string]*workgraph.Graph{}, crash: map[string]CrashPoint{},
		now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// Now is what the clock shows.
func (k *Kit) Now() time.Time { return k.now }

type described struct {
	workgraph.Actor
	info workgraph.ActorInfo
}

func (d described) Info() workgraph.ActorInfo { return d.info }

// Actor adds an actor, or takes the place of one. Without an effect it counts as IDEMPOTENT.
func (k *Kit) Actor(name string, f workgraph.ActorFunc, effect ...workgraph.Effect) *Kit {
	info := workgraph.ActorInfo{Effect: workgraph.Idempotent}
	if len(effect) > 0 {
		info.Effect = effect[0]
	}
	k.actors[name] = described{f, info}
	return k
}

// Returns adds an actor whose calls return these values one after the other; the last one is repeated. A
// value of type error fails the call.
func (k *Kit) Returns(name string, values ...any) *Kit {
	n := 0
	return k.Actor(name, func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
		if len(values) == 0 {
			return workgraph.Outcome{}, nil
		}
		v := values[min(n, len(values)-1)]
		n++
		switch v := v.(type) {
		case error:
			return workgraph.Outcome{}, v
		case workgraph.Outcome:
			return v, nil
		}
		return workgraph.Outcome{Values: []json.RawMessage{k.json(v)}}, nil
	})
}

// Func adds an actor made of a function of the named arguments.
func Func[In, Out any](k *Kit, name string, f func(ctx context.Context, in In) (Out, error), effect ...workgraph.Effect) {
	k.Actor(name, func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
		var in In
		if err := json.Unmarshal(k.json(c.Named), &in); err != nil {
			return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, "ARGUMENTS_INVALID", "%v", err)
		}
		out, err := f(ctx, in)
		if err != nil {
			return workgraph.Outcome{}, err
		}
		return workgraph.Outcome{Values: []json.RawMessage{k.json(out)}}, nil
	}, effect...)
}

// Workflow is what a child names by this ref.
func (k *Kit) Workflow(ref string, g *workgraph.Graph) *Kit {
	k.workflows[ref] = g
	return k
}

// CrashAt makes the process die at the next attempt of a node. It restarts at once, with what was recorded.
func (k *Kit) CrashAt(node string, at CrashPoint) *Kit {
	k.crash[node] = at
	return k
}

// Calls lists the calls of an actor, or of all if the name is empty, oldest first.
func (k *Kit) Calls(actor string) []Call {
	return slices.DeleteFunc(slices.Clone(k.calls), func(c Call) bool { return actor != "" && c.Actor != actor })
}

func (k *Kit) json(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		k.t.Helper()
		k.t.Fatalf("value is no JSON: %v", err)
	}
	return raw
}

// Start starts a run of the graph with positional arguments, and advances it as far as it goes without time
// passing.
func (k *Kit) Start(g *workgraph.Graph, args ...any) *Run {
	k.t.Helper()
	in := workgraph.Input{}
	for _, a := range args {
		in.Args = append(in.Args, k.json(a))
	}
	return k.StartInput(g, in)
}

// StartInput is Start with any input.
func (k *Kit) StartInput(g *workgraph.Graph, in workgraph.Input) *Run {
	k.t.Helper()
	r, err := k.begin(fmt.Sprintf("run%d", len(k.runs)+1), g, in)
	if err != nil {
		k.t.Fatalf("the graph cannot run: %v", err)
	}
	k.runIdle()
	return r
}

func (k *Kit) begin(id string, g *workgraph.Graph, in workgraph.Input) (*Run, error) {
	p, err := workgraph.Compile(k.t.Context(), g, k.actors)
	if err != nil {
		return nil, err
	}
	r := &Run{ID: id, k: k, program: p, state: workgraph.New(p, id), graph: g, details: map[workgraph.Ref]json.RawMessage{}}
	r.state.UseActors(k.actors)
	k.runs = append(k.runs, r)
	r.advance(workgraph.Begin{Input: in, Now: k.now})
	return r, nil
}

// runIdle lets all runs go as far as they can without time passing.
func (k *Kit) runIdle() {
	k.t.Helper()
	for steps := 0; ; steps++ {
		if steps > 100_000 {
			k.t.Fatalf("the runs do not come to rest: a loop without an end?")
		}
		moved := false
		for _, r := range slices.Clone(k.runs) {
			moved = r.step() || moved
		}
		if !moved {
			return
		}
	}
}

// Pass lets time pass. Timers, back-offs and deadlines that are due meanwhile happen in their order.
func (k *Kit) Pass(d time.Duration) {
	k.t.Helper()
	until := k.now.Add(d)
	for {
		at, ok := k.next()
		if !ok || at.After(until) {
			break
		}
		k.at(at)
	}
	k.now = until
}

// Finish lets time pass until the runs wait for something else than time.
func (k *Kit) Finish() {
	k.t.Helper()
	for steps := 0; ; steps++ {
		at, ok := k.next()
		if !ok {
			return
		}
		if steps > 100_000 {
			k.t.Fatalf("the runs do not end by themselves")
		}
		k.at(at)
	}
}

func (k *Kit) next() (first time.Time, ok bool) {
	for _, r := range k.runs {
		if at, has := r.state.NextTimer(); has && r.state.End() == nil && (!ok || at.Before(first)) {
			first, ok = at, true
		}
	}
	return first, ok
}

func (k *Kit) at(t time.Time) {
	k.t.Helper()
	if t.After(k.now) {
		k.now = t
	}
	for _, r := range slices.Clone(k.runs) {
		if at, ok := r.state.NextTimer(); ok && r.state.End() == nil && !at.After(k.now) {
			r.advance(workgraph.TimerDue{Now: k.now})
		}
	}
	k.runIdle()
}
