package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/actortest"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/cel"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/fail"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/spawn"
	"github.com/epigraph-run/epigraph/workgraph"
)

// reasoner decides what its script says, and keeps what it was asked.
type reasoner struct {
	mu     sync.Mutex
	script []string
	asked  []map[string]json.RawMessage
}

func (r *reasoner) Call(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, c.Named)
	if len(r.asked) > len(r.script) {
		return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, "SCRIPT_ENDED", "nothing to say in round %d", len(r.asked))
	}
	return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(r.script[len(r.asked)-1])},
		Usage: []workgraph.Usage{{Model: "m", InputTokens: 10}}}, nil
}

// history is the history that the reasoner received in a round, from 1.
func (r *reasoner) history(t *testing.T, n int) string {
	t.Helper()
	require.GreaterOrEqual(t, len(r.asked), n)
	return string(r.asked[n-1]["history"])
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

// described is a built-in actor and its spec.
type described struct {
	workgraph.Actor
	info workgraph.ActorInfo
}

func (d described) Info() workgraph.ActorInfo { return d.info }

// work runs one agent in memory with these arguments of its own.
func work(t *testing.T, own workgraph.Actors, named string, change ...func(*workgraph.Graph)) workgraph.Result {
	t.Helper()
	specs, err := actor.NewRegistry(append(agent.Specs(), cel.Spec(), fail.Spec(), spawn.Spec(), spawn.Expand())...)
	require.NoError(t, err)
	n := workgraph.Node{ID: "agent", Actor: "agent"}
	require.NoError(t, json.Unmarshal([]byte(named), &n.Named))
	g := &workgraph.Graph{Nodes: []workgraph.Node{n}}
	for _, f := range change {
		f(g)
	}
	all := workgraph.Actors{}
	for _, s := range specs.Specs() {
		info, _ := specs.ActorInfo(s.Name)
		all[s.Name] = described{s.Actor, info}
	}
	for name, a := range own {
		all[name] = a
	}
	res, err := workgraph.Run(t.Context(), g, all, workgraph.Input{})
	require.NoError(t, err)
	return res
}

func done(t *testing.T, res workgraph.Result, want string) {
	t.Helper()
	require.Equal(t, workgraph.StatusCompleted, res.Status, "%s: %v", res.Reason, res.Error)
	require.JSONEq(t, want, string(res.Result))
}

const (
	search  = `"goal": "find", "reasoner": "r", "actions": {"search": {"actor": "tool"}}`
	oneCall = `{"actions": [[{"action": "search", "arguments": {"q": 1}}]]}`
	over    = `{"result": "done"}`
)

func TestLoop(t *testing.T) {
	t.Parallel()
	t.Run("Rounds/UntilTheResult", func(t *testing.T) {
		t.Parallel()
		r, a := &reasoner{script: []string{oneCall, oneCall, `{"result": {"n": 9007199254740993}}`}}, &tool{}
		res := work(t, workgraph.Actors{"r": r, "tool": a}, `{`+search+`}`)
		done(t, res, `{"n": 9007199254740993}`)
		require.Contains(t, string(res.Result), "9007199254740993")
		require.Equal(t, []string{`{"q":1}`, `{"q":1}`}, a.calls, "what is told to the reasoner does not reach the actions")
		require.Equal(t, `[]`, r.history(t, 1))
		require.JSONEq(t, `[{"round": 1, "decision": `+oneCall+`, "results": [{"action": "search", "ok": {"q": 1}}]},
			{"round": 2, "decision": `+oneCall+`, "results": [{"action": "search", "ok": {"q": 1}}]}]`, r.history(t, 3))
		require.JSONEq(t, `"find"`, string(r.asked[0]["request"]))
		require.JSONEq(t, `{"search": {}}`, string(r.asked[2]["actions"]))
		require.Contains(t, string(r.asked[0]["system"]), "- search")
		require.EqualValues(t, 30, res.Usage[0].InputTokens, "it rolls up")
	})
	t.Run("Groups/InOrderAndResultsToo", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{`{"actions": [[{"action": "b", "arguments": {"n": 1}}], [{"action": "b", "arguments": {"n": 2}}, {"action": "a"}], [{"action": "b", "arguments": {"n": 3}}]]}`, over}}
		a, b := &tool{}, &tool{}
		done(t, work(t, workgraph.Actors{"r": r, "a": a, "b": b}, `{"goal": "x", "reasoner": "r", "actions": {"a": {}, "b": {}}}`), `"done"`)
		require.Equal(t, []string{`{"n":1}`, `{"n":2}`, `{"n":3}`}, b.calls)
		require.Contains(t, r.history(t, 2), `"results":[{"action":"b","ok":{"n":1}},{"action":"b","ok":{"n":2}},{"action":"a","ok":{}},{"action":"b","ok":{"n":3}}]`)
	})
	t.Run("Rounds/LateOnesAreRunsOfTheirOwn", func(t *testing.T) {
		t.Parallel()
		r, a := &reasoner{}, &tool{}
		for range 35 {
			r.script = append(r.script, `[{"action": "search", "arguments": {"q": 1}}, "bad"]`)
		}
		r.script = append(r.script, `["fails"]`, `[{"action": "sum", "arguments": {"expr": 7}}]`, `["nobody"]`, over)
		done(t, work(t, workgraph.Actors{"r": r, "tool": a}, `{"goal": "x", "reasoner": "r", "max_rounds": 100, "actions": {"search": {"actor": "tool"},
			"bad": {"actor": "fail", "named": {"reason": "NO"}}, "sum": {"actor": "cel"}}}`), `"done"`)
		require.Len(t, a.calls, 35)
		const became = `"results":[{"action":"search","ok":{"q":1}},{"action":"bad","error":{"type":"PERMANENT","reason":"NO","message":"failed on purpose"}}]}`
		require.Equal(t, 35, strings.Count(r.history(t, 36), became), r.history(t, 36))
		require.Contains(t, r.history(t, 39), `"refused":"actions[0][0]: there is no action \"fails\"`)
		require.Contains(t, r.history(t, 39), `BAD_ARGUMENT at node \"1-sum\"`)
	})
	t.Run("Failure/IsToldAndStopsWhatFollows", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{`{"actions": [["ok", "bad"], ["ok"], ["ok"]]}`, over}}
		a := &tool{}
		done(t, work(t, workgraph.Actors{"r": r, "tool": a}, `{"goal": "x", "reasoner": "r", "actions": {"ok": {"actor": "tool"}, "bad": {"actor": "fail", "named": {"reason": "NO_DISK", "message": "full"}}}}`), `"done"`)
		require.Len(t, a.calls, 1)
		require.Contains(t, r.history(t, 2), `"results":[{"action":"ok","ok":{}},{"action":"bad","error":{"type":"PERMANENT","reason":"NO_DISK","message":"full"}},`+
			`{"action":"ok","skipped":"an action before it did not succeed"},{"action":"ok","skipped":"an action before it did not succeed"}]`)
	})
	t.Run("Failure/OfAllIsTold", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{`["bad"]`, over}}
		done(t, work(t, workgraph.Actors{"r": r}, `{"goal": "x", "reasoner": "r", "actions": {"bad": {"actor": "fail"}}}`), `"done"`)
		require.Contains(t, r.history(t, 2), `"error"`)
	})
	t.Run("Abstention/IsTold", func(t *testing.T) {
		t.Parallel()
		r, shy := &reasoner{script: []string{`["shy", "ok"]`, `["shy"]`, over}}, &tool{upon: func(map[string]json.RawMessage) (workgraph.Outcome, error) {
			return workgraph.Outcome{Stop: workgraph.AbstainResult}, nil
		}}
		done(t, work(t, workgraph.Actors{"r": r, "shy": shy, "ok": &tool{}}, `{"goal": "x", "reasoner": "r", "actions": {"shy": {}, "ok": {}}}`), `"done"`)
		require.Contains(t, r.history(t, 3), `"refused":"no action gave a result"`)
	})
	t.Run("Growth/OfAnActionIsItsResult", func(t *testing.T) {
		t.Parallel()
		grows := &tool{upon: func(map[string]json.RawMessage) (workgraph.Outcome, error) {
			return workgraph.Outcome{Expand: &workgraph.Graph{Nodes: []workgraph.Node{{ID: "x", Actor: "cel", Named: map[string]json.RawMessage{"expr": json.RawMessage(`"6*7"`)}}}}}, nil
		}}
		r := &reasoner{script: []string{`["grows"]`, over}}
		done(t, work(t, workgraph.Actors{"r": r, "grows": grows}, `{"goal": "x", "reasoner": "r", "actions": {"grows": {}}}`), `"done"`)
		require.Contains(t, r.history(t, 2), `"results":[{"action":"grows","ok":42}]`)
	})
	t.Run("Limit/PausesTheAgentsRun", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{oneCall, oneCall, over}}
		res := work(t, workgraph.Actors{"r": r, "tool": &tool{}}, `{`+search+`, "max_rounds": 2}`)
		require.NotEqual(t, workgraph.StatusCompleted, res.Status)
		require.Len(t, r.asked, 2)
	})
	t.Run("Reasoner/ItsFailureIsTheNodes", func(t *testing.T) {
		t.Parallel()
		res := work(t, workgraph.Actors{"r": &reasoner{}, "tool": &tool{}}, `{`+search+`}`)
		require.Equal(t, workgraph.ReasonChildFailed, res.Error.Reason)
		require.Contains(t, res.Error.Message, "SCRIPT_ENDED")
		res = work(t, workgraph.Actors{"r": &reasoner{}, "tool": &tool{}}, `{`+search+`}`, func(g *workgraph.Graph) {
			g.Nodes[0].OnError = workgraph.OnError{Action: workgraph.Fallback, Value: json.RawMessage(`"sorry"`)}
		})
		done(t, res, `"sorry"`)
	})
	t.Run("Map/OneAgentPerItem", func(t *testing.T) {
		t.Parallel()
		res := work(t, workgraph.Actors{"tool": &tool{}}, `{"reasoner": "cel", "reasoner_args": {"expr": "{'result': named.request + '!'}"}, "actions": {"tool": {}}}`,
			func(g *workgraph.Graph) { g.Nodes[0].Map = &workgraph.Map{Over: "['a', 'b']", As: "goal"} })
		done(t, res, `[{"ok": "a!"}, {"ok": "b!"}]`)
	})
	t.Run("Agents/InAgents", func(t *testing.T) {
		t.Parallel()
		done(t, work(t, nil, `{"goal": "outer", "reasoner": "cel", "reasoner_args": {"expr":
			"size(named.history) == 0 ? {'actions': [{'action': 'ask', 'arguments': {'goal': 'inner'}}]} : {'result': named.history[0].results[0].ok}"},
			"actions": {"ask": {"actor": "agent", "named": {"reasoner": "cel", "reasoner_args": {"expr": "{'result': named.request + ' result'}"}, "actions": {"x": {"actor": "cel"}}}}}}`),
			`"inner result"`)
	})
	t.Run("Upstream/IsToldAsDocuments", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{over}}
		done(t, work(t, workgraph.Actors{"r": r, "tool": &tool{}}, `{`+search+`, "attachments": [{"id": "d"}], "tool": "web.search", "arguments": [{"value": 1}]}`, func(g *workgraph.Graph) {
			g.Nodes = append(g.Nodes, workgraph.Node{ID: "before", Actor: "cel", Named: map[string]json.RawMessage{"expr": json.RawMessage(`"1+1"`)}})
			g.Edges = []workgraph.Edge{{From: "before", To: "agent"}}
		}), `"done"`)
		require.JSONEq(t, `[{"id": "d"}, {"id": "before", "description": "result of an earlier step", "content": 2}]`, string(r.asked[0]["attachments"]))
		require.JSONEq(t, `"web.search"`, string(r.asked[0]["tool"]))
		require.JSONEq(t, `[{"value": 1}]`, string(r.asked[0]["arguments"]))
	})
}

func TestUntrusted(t *testing.T) {
	t.Parallel()
	// Each case is a first decision, none of whose actions may be made, and the fault that the reasoner must
	// receive.
	const actions = `"actions": {
		"fixed": {"actor": "tool", "named": {"url": "u", "limit": 5}, "schema": {"properties": {"limit": {"type": "integer", "maximum": 9}, "q": {"type": "string"}}, "additionalProperties": false}},
		"free": {"actor": "tool", "named": {"url": "u"}},
		"spawn": {}, "agent": {"named": {"reasoner": "cel", "actions": {"x": {"actor": "cel"}}}}}`
	for name, c := range map[string]struct{ decision, heard string }{
		"UnknownAction":     {`["free", "tool"]`, `there is no action \"tool\", use one of agent, fixed, free, spawn`},
		"MisspelledAction":  {`["fred"]`, `did you mean \"free\"?`},
		"FixedArgument":     {`[{"action": "free", "arguments": {"url": "evil"}}]`, `argument \"url\" of free is fixed`},
		"FixedDespiteOpen":  {`[{"action": "fixed", "arguments": {"url": "evil"}}]`, `argument \"url\" of fixed is fixed`},
		"WrongArgument":     {`["free", {"action": "fixed", "arguments": {"limit": 10}}]`, `the arguments of fixed are not what its schema asks for`},
		"UnknownArgument":   {`[{"action": "fixed", "arguments": {"x": 1}}]`, `additional`},
		"Graph":             {`{"graph": {"nodes": [{"id": "a", "actor": "tool"}]}}`, `graphs are not allowed here`},
		"SpawnedGraph":      {`[{"action": "spawn", "arguments": {"graph": {"nodes": [{"id": "a", "actor": "tool"}]}}}]`, `argument \"graph\" of spawn is not yours to give`},
		"AgentOfItsOwn":     {`[{"action": "agent", "arguments": {"actions": {"x": {"actor": "tool"}}}}]`, `argument \"actions\" of agent is not yours to give`},
		"TooMany":           {`["free", "free", "free", "free"]`, `there are 4 actions, at most 3 are done in one round`},
		"NotADecision":      {`{"go": "on"}`, `the decision says nothing`},
		"ResultOffTheModel": {`{"result": 7}`, `the result is not what its schema asks for`},
	} {
		t.Run("Refused/"+name, func(t *testing.T) {
			t.Parallel()
			r, a := &reasoner{script: []string{c.decision, over}}, &tool{}
			done(t, work(t, workgraph.Actors{"r": r, "tool": a}, `{"goal": "x", "reasoner": "r", "max_actions": 3, "result_schema": {"type": "string"}, `+actions+`}`), `"done"`)
			require.Empty(t, a.calls)
			require.Contains(t, r.history(t, 2), c.heard)
			require.Contains(t, r.history(t, 2), `"refused":`)
		})
	}
	for name, c := range map[string]struct{ graph, heard string }{
		"UnknownActor": {`{"nodes": [{"id": "a", "actor": "tool"}]}`, `there is no action`},
		"Fixed":        {`{"nodes": [{"id": "a", "actor": "free", "named": {"url": "evil"}}]}`, `is fixed`},
		"ByKey":        {`{"nodes": [{"id": "a", "actor": "free", "result_pass_down_mode": {"mode": "KEY", "key": "url"}}, {"id": "b", "actor": "free"}], "edges": [{"from": "a", "to": "b"}]}`, `cannot be passed down as`},
		"ByKeyOnEdge":  {`{"nodes": [{"id": "a", "actor": "free"}, {"id": "b", "actor": "fixed"}], "edges": [{"from": "a", "to": "b", "result_pass_down_mode": {"mode": "KEY", "key": "q"}}]}`, `which is an argument of fixed`},
		"ByMerge":      {`{"nodes": [{"id": "a", "actor": "free"}, {"id": "b", "actor": "free"}], "edges": [{"from": "a", "to": "b", "result_pass_down_mode": {"mode": "MERGE", "expr": "{'named': {'url': 'evil'}}"}}]}`, `by KEY only`},
		"ByMap":        {`{"nodes": [{"id": "a", "actor": "free", "map": {"over": "['evil']", "as": "url"}}]}`, `leave out the rest`},
		"Effect":       {`{"nodes": [{"id": "a", "actor": "free", "effect": "PURE"}]}`, `leave out the rest`},
		"Loop":         {`{"nodes": [{"id": "a", "actor": "free"}], "edges": [{"from": "a", "to": "a", "kind": "BACK", "when": "true"}]}`, `loops are not allowed`},
		"TooMany":      {`{"nodes": [{"id": "a", "actor": "free"}, {"id": "b", "actor": "free"}, {"id": "c", "actor": "free"}, {"id": "d", "actor": "free"}]}`, `the graph has 4 nodes`},
		"NoGraph":      {`{"nodez": []}`, `nodez`},
		"Cycle":        {`{"nodes": [{"id": "a", "actor": "free"}, {"id": "b", "actor": "free"}], "edges": [{"from": "a", "to": "b"}, {"from": "b", "to": "a"}]}`, `CYCLE`},
	} {
		t.Run("RefusedGraph/"+name, func(t *testing.T) {
			t.Parallel()
			r, a := &reasoner{script: []string{`{"graph": ` + c.graph + `}`, over}}, &tool{}
			done(t, work(t, workgraph.Actors{"r": r, "tool": a}, `{"goal": "x", "reasoner": "r", "max_actions": 3, "allow_graph": true, `+actions+`}`), `"done"`)
			require.Empty(t, a.calls)
			require.Contains(t, r.history(t, 2), c.heard)
		})
	}
	t.Run("ActorsOwnSchema/RefusesToo", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{`[{"action": "sum", "arguments": {"expr": 7}}]`, over}}
		done(t, work(t, workgraph.Actors{"r": r}, `{"goal": "x", "reasoner": "r", "actions": {"sum": {"actor": "cel"}}}`), `"done"`)
		require.Contains(t, r.history(t, 2), `"refused":"EXPAND_REFUSED: BAD_ARGUMENT at node \"1-sum\" field named.expr`)
	})
	t.Run("Defaults/OpenOnesMayBeGiven", func(t *testing.T) {
		t.Parallel()
		r, a := &reasoner{script: []string{`[{"action": "fixed", "arguments": {"limit": 9}}, "fixed"]`, over}}, &tool{}
		done(t, work(t, workgraph.Actors{"r": r, "tool": a}, `{"goal": "x", "reasoner": "r", `+actions+`}`), `"done"`)
		require.Equal(t, []string{`{"limit":9,"url":"u"}`, `{"limit":5,"url":"u"}`}, a.calls)
	})
	t.Run("Policy/DoesNotTravel", func(t *testing.T) {
		t.Parallel()
		e := actortest.Fails(t, agent.Specs()[0], `{"goal": "x", "actions": {"a": {}}}`, func(s *workgraph.Start) { s.Own = nil })
		require.Contains(t, e.Message, "in the node's own arguments")
	})
	t.Run("UnknownActor/IsNotTheReasonersFault", func(t *testing.T) {
		t.Parallel()
		res := work(t, workgraph.Actors{"r": &reasoner{script: []string{oneCall}}}, `{`+search+`}`)
		require.Contains(t, res.Error.Message, agent.ReasonActionsUnusable)
	})
}

func TestGraphs(t *testing.T) {
	t.Parallel()
	graph := func(nodes string) string {
		// texts always marshal
		b, _ := json.Marshal(`{"nodes": [` + nodes + `], "edges": [{"from": "a", "to": "b"}]}`)
		return `{"graph": ` + string(b) + `, "actions": null, "result": null}`
	}
	const named = `{"goal": "x", "reasoner": "r", "allow_graph": true, "actions": {"say": {"actor": "tool", "named": {"url": "u"}}, "bad": {"actor": "fail", "named": {"reason": "NO"}}}}`
	t.Run("Graph/IsRunAndItsResultTold", func(t *testing.T) {
		t.Parallel()
		r, a := &reasoner{script: []string{graph(`{"id": "a", "actor": "say"}, {"id": "b", "actor": "say", "named": {"k": 1}}`), over}}, &tool{}
		done(t, work(t, workgraph.Actors{"r": r, "tool": a}, named), `"done"`)
		require.Equal(t, []string{`{"url":"u"}`, `{"k":1,"url":"u"}`}, a.calls)
		require.Contains(t, r.history(t, 2), `"results":[{"action":"graph","ok":{"k":1,"url":"u"}}]`)
	})
	t.Run("Graph/ItsFailureIsTold", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{graph(`{"id": "a", "actor": "say"}, {"id": "b", "actor": "bad"}`), over}}
		done(t, work(t, workgraph.Actors{"r": r, "tool": &tool{}}, named), `"done"`)
		require.Contains(t, r.history(t, 2), `"reason":"CHILD_FAILED"`)
		require.Contains(t, r.history(t, 2), `FAILED: NO`)
	})
}

func TestBounds(t *testing.T) {
	t.Parallel()
	big := &tool{upon: func(map[string]json.RawMessage) (workgraph.Outcome, error) {
		b, err := json.Marshal(strings.Repeat("ä", 5000))
		return workgraph.Outcome{Values: []json.RawMessage{b}}, err
	}}
	t.Run("Result/IsCutWithAMarker", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{oneCall, over}}
		done(t, work(t, workgraph.Actors{"r": r, "tool": big}, `{`+search+`, "max_result_bytes": 301}`), `"done"`)
		require.Contains(t, r.history(t, 2), `"ok":"`+strings.Repeat("ä", 150)+`…","truncated":10002}`)
	})
	t.Run("History/ForgetsTheOldest", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{}
		for range 8 {
			r.script = append(r.script, oneCall)
		}
		r.script = append(r.script, over)
		done(t, work(t, workgraph.Actors{"r": r, "tool": big}, `{`+search+`, "max_history_bytes": 8192}`), `"done"`)
		last := r.history(t, 9)
		require.LessOrEqual(t, len(last), 8192)
		require.True(t, strings.HasPrefix(last, `[{"round":1,"omitted":true},{"round":2,"omitted":true}`), last)
		require.Contains(t, last, `{"round":8,"decision"`)
		require.Contains(t, last, `"truncated":10002`)
	})
	t.Run("Decision/IsCutInTheHistory", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{fmt.Sprintf(`[{"action": "search", "arguments": {"q": %q}}]`, strings.Repeat("q", 5000)), over}}
		done(t, work(t, workgraph.Actors{"r": r, "tool": &tool{}}, `{`+search+`, "max_result_bytes": 256}`), `"done"`)
		require.Less(t, len(r.history(t, 2)), 1000)
		require.Contains(t, r.history(t, 2), `"round":1,"decision":"[{`)
	})
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ named, want string }{
		"NoGoal":         {`{"actions": {"a": {}}}`, "goal is missing"},
		"NoActions":      {`{"goal": "x"}`, "name 1 to 64 actions"},
		"BadName":        {`{"goal": "x", "actions": {"a/b": {}}}`, "is no name"},
		"UnknownField":   {`{"goal": "x", "actions": {"a": {"aktor": "x"}}}`, "aktor"},
		"BadSchema":      {`{"goal": "x", "actions": {"a": {"schema": {"type": 7}}}}`, "actions.a: schema"},
		"Expand":         {`{"goal": "x", "actions": {"a": {"actor": "expand"}}}`, "expand cannot be an action"},
		"StepOfTheLoop":  {`{"goal": "x", "actions": {"a": {"actor": "agent/act"}}}`, "is a step of an agent"},
		"Rounds":         {`{"goal": "x", "actions": {"a": {}}, "max_rounds": 1001}`, "max_rounds"},
		"Bytes":          {`{"goal": "x", "actions": {"a": {}}, "max_result_bytes": 1}`, "max_result_bytes"},
		"Timeout":        {`{"goal": "x", "actions": {"a": {}}, "timeout": "soon"}`, "timeout"},
		"Effect":         {`{"goal": "x", "actions": {"a": {"effect": "NICE"}}}`, "effect"},
		"ResultOfSchema": {`{"goal": "x", "actions": {"a": {}}, "result_schema": {"type": 7}}`, "result_schema"},
	} {
		t.Run("Refused/"+name, func(t *testing.T) {
			t.Parallel()
			e := actortest.Fails(t, agent.Specs()[0], c.named)
			require.Equal(t, actor.ReasonArguments, e.Reason)
			require.Contains(t, e.Message, c.want)
		})
	}
	t.Run("Model/IsAskedByASchemaThatStrictServersTake", func(t *testing.T) {
		t.Parallel()
		out, err := actortest.Call(t, agent.Specs()[0], `{"user_input": "x", "system": "Be brief.", "allow_graph": true, "reasoner_args": {"model": "m"}, "actions": {"a": {"description": "does it", "schema": {"type": "object"}}}}`)
		require.NoError(t, err)
		child := out.Wait.Children.Runs[0]
		require.True(t, out.Wait.Children.AsResult)
		require.Equal(t, "llm", child.Graph.Nodes[0].Actor)
		require.Equal(t, `"m"`, string(child.Graph.Nodes[0].Named["model"]))
		require.Equal(t, 10, child.Graph.Nodes[0].MaxVisits)
		var told string
		require.NoError(t, json.Unmarshal(child.Input.Named["system"], &told))
		require.True(t, strings.HasPrefix(told, "Be brief.\n\n"), told)
		require.Contains(t, told, `- a: does it Arguments: {"type":"object"}`)
		schema, err := workgraph.CompileSchema(t.Context(), child.Input.Named["response_schema"])
		require.NoError(t, err)
		require.NoError(t, schema.Check(t.Context(), json.RawMessage(`{"actions": [[{"action": "a", "arguments": "{}"}]], "result": null, "graph": null}`)))
		require.Error(t, schema.Check(t.Context(), json.RawMessage(`{"actions": [[{"action": "b", "arguments": "{}"}]], "result": null, "graph": null}`)))
	})
	t.Run("ReasonerArgs/WinOverWhatIsTold", func(t *testing.T) {
		t.Parallel()
		out, err := actortest.Call(t, agent.Specs()[0], `{"goal": "x", "reasoner_args": {"system": "mine"}, "actions": {"a": {}}}`)
		require.NoError(t, err)
		require.NotContains(t, out.Wait.Children.Runs[0].Input.Named, "system")
	})
	t.Run("Steps/AreForTheLoopOnly", func(t *testing.T) {
		t.Parallel()
		for _, s := range agent.Specs()[1:] {
			require.Equal(t, actor.ReasonArguments, actortest.Fails(t, s, `{}`).Reason)
		}
	})
}

// Schemas and the values that are held against them take an agent's steps seconds: every one of them takes a
// turn of its namespace.
func TestStepsTakeTurns(t *testing.T) {
	t.Parallel()
	for _, s := range agent.Specs() {
		require.True(t, s.Computes, s.Name)
	}
}
