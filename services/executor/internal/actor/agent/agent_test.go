package agent_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/cel"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/fail"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/spawn"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/wait"
	"github.com/epigraph-run/epigraph/workgraph"
)

// reasoner decides what its script says, and keeps what it was asked. With a script by prompt the first entry
// whose key is in the prompt is taken, and used up.
type reasoner struct {
	mu     sync.Mutex
	script []string
	when   []reply
	asked  []map[string]json.RawMessage
}

type reply struct{ has, say string }

func (r *reasoner) Call(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, c.Named)
	say := ""
	for i, w := range r.when {
		var request string
		_ = json.Unmarshal(c.Named["request"], &request) // there may be messages instead
		if strings.Contains(request+string(c.Named["messages"]), w.has) {
			say = w.say
			r.when = slices.Delete(slices.Clone(r.when), i, i+1)
			break
		}
	}
	if say == "" {
		if len(r.script) == 0 {
			return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, "SCRIPT_ENDED", "nothing to say to %s", c.Named["request"])
		}
		say, r.script = r.script[0], r.script[1:]
	}
	raw := json.RawMessage(say)
	if !json.Valid(raw) { // an answer in words
		raw, _ = json.Marshal(say) // texts always marshal
	}
	return workgraph.Outcome{Values: []json.RawMessage{raw}, Usage: []workgraph.Usage{{Model: "m", InputTokens: 10}}}, nil
}

// prompt is the prompt of the n-th call, from 1.
func (r *reasoner) prompt(t *testing.T, n int) string {
	t.Helper()
	require.GreaterOrEqual(t, len(r.asked), n)
	var s string
	require.NoError(t, json.Unmarshal(r.asked[n-1]["request"], &s))
	return s
}

// tool keeps its calls.
type tool struct {
	mu    sync.Mutex
	calls []string
	upon  func(named map[string]json.RawMessage) (workgraph.Outcome, error)
}

func (a *tool) Call(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	a.mu.Lock()
	b, err := json.Marshal(c.Named)
	a.calls = append(a.calls, string(b))
	a.mu.Unlock()
	if err != nil || a.upon == nil {
		return workgraph.Outcome{Values: []json.RawMessage{b}}, err
	}
	return a.upon(c.Named)
}

// says is an actor that gives one value.
func says(v string) *tool {
	return &tool{upon: func(map[string]json.RawMessage) (workgraph.Outcome, error) {
		return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(v)}}, nil
	}}
}

// described is an actor with its info, in a run that keeps threads.
type described struct {
	t     *testing.T
	inner workgraph.Actor
	info  workgraph.ActorInfo
	env   *env
}

func (d described) Info() workgraph.ActorInfo { return d.info }

func (d described) Call(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	if s := d.env.start; s != nil {
		c.RootRunID, c.UserID, c.ChatID, c.GraphName = s.RootRunID, s.UserID, s.ChatID, s.GraphName
	}
	out, err := d.inner.Call(actor.WithDirectory(actor.WithNamespace(ctx, d.env.threads.namespace), d.env), c)
	if err == nil && len(out.Threads) > 0 {
		d.env.threads.append(d.t, c, out.Threads)
		out.Threads = nil
	}
	return out, err
}

// env is a run in memory with its actors and threads.
type env struct {
	threads *threads
	all     workgraph.Actors
	options []workgraph.Option
	input   workgraph.Input
	// start is what the caller of the run sets of its attempts, if not nil.
	start *workgraph.Start
}

func (e *env) Find(_ context.Context, names []string) (map[string]workgraph.ActorInfo, error) {
	out := map[string]workgraph.ActorInfo{}
	for _, n := range names {
		if info, ok := e.all.ActorInfo(n); ok {
			out[n] = info
		}
	}
	return out, nil
}

func (e *env) Below(_ context.Context, prefix string) ([]string, error) {
	var out []string
	for name := range e.all {
		if strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, nil
}

func newEnv(t *testing.T, own workgraph.Actors) *env {
	t.Helper()
	e := &env{threads: newThreads(t), all: workgraph.Actors{}}
	specs, err := actor.NewRegistry(append(agent.Specs(e.threads, nil), cel.Spec(), fail.Spec(), spawn.Spec(nil), spawn.Expand(), wait.Human())...)
	require.NoError(t, err)
	for _, s := range specs.Specs() {
		info, _ := specs.ActorInfo(s.Name)
		e.all[s.Name] = described{t, s.Actor, info, e}
	}
	for name, a := range own {
		e.all[name] = a
	}
	return e
}

// run runs one agent with these arguments of its own.
func (e *env) run(t *testing.T, named string, change ...func(*workgraph.Graph)) workgraph.Result {
	t.Helper()
	res, err := e.try(t, named, change...)
	require.NoError(t, err)
	return res
}

// try is run with the faults for which the graph is refused.
func (e *env) try(t *testing.T, named string, change ...func(*workgraph.Graph)) (workgraph.Result, error) {
	t.Helper()
	n := workgraph.Node{ID: "agent", Actor: "agent"}
	require.NoError(t, json.Unmarshal([]byte(named), &n.Named))
	g := &workgraph.Graph{Nodes: []workgraph.Node{n}}
	for _, f := range change {
		f(g)
	}
	return workgraph.Run(t.Context(), g, e.all, e.input, e.options...)
}

// work runs one agent in an environment of its own.
func work(t *testing.T, own workgraph.Actors, named string, change ...func(*workgraph.Graph)) workgraph.Result {
	t.Helper()
	return newEnv(t, own).run(t, named, change...)
}

func done(t *testing.T, res workgraph.Result, want string) {
	t.Helper()
	require.Equal(t, workgraph.StatusCompleted, res.Status, "%s: %v", res.Reason, res.Error)
	require.JSONEq(t, want, string(res.Result))
}
