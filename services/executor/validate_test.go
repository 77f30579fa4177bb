package executor_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestValidateGraph(t *testing.T) {
	t.Parallel()
	f := serve(t, nil)
	named := func(kv ...string) map[string]*graphv1.Payload {
		out := map[string]*graphv1.Payload{}
		for i := 0; i < len(kv); i += 2 {
			out[kv[i]] = value(kv[i+1])
		}
		return out
	}
	node := func(id, actor string, kv ...string) *graphv1.Node {
		return &graphv1.Node{Id: id, Actor: actor, Named: named(kv...)}
	}
	g := func(nodes ...*graphv1.Node) *graphv1.Graph { return &graphv1.Graph{Nodes: nodes} }
	edge := func(from, to string) *graphv1.Edge { return &graphv1.Edge{From: from, To: to} }
	for name, c := range map[string]struct {
		graph *graphv1.Graph
		want  []string
	}{
		"Sound":             {g(node("a", "cel", "expr", `"1 + 1"`)), nil},
		"UnknownActor":      {g(node("a", "celll")), []string{"UNKNOWN_ACTOR a actor"}},
		"CEL/Syntax":        {g(node("a", "cel", "expr", `"1 +"`)), []string{"BAD_EXPRESSION a named.expr"}},
		"CEL/Variable":      {g(node("a", "cel", "expr", `"inputs"`)), []string{"BAD_EXPRESSION a named.expr"}},
		"CEL/Function":      {g(node("a", "cel", "expr", `"shout('a')"`)), []string{"BAD_EXPRESSION a named.expr"}},
		"CEL/NotAncestor":   {g(node("a", "cel", "expr", `"nodes.b.result"`), node("b", "cel", "expr", `"1"`)), []string{"NODE_NOT_BEFORE a named.expr"}},
		"CEL/Missing":       {g(node("a", "cel")), []string{"MISSING_ARGUMENT a named.expr"}},
		"CEL/Misspelled":    {g(node("a", "cel", "exrp", `"1"`)), []string{"MISSING_ARGUMENT a named.expr"}},
		"CEL/Type":          {g(node("a", "cel", "expr", `1`)), []string{"BAD_ARGUMENT a named.expr"}},
		"Template/Unclosed": {g(node("a", "template", "text", `"{{ 1"`)), []string{"BAD_ARGUMENT a named.text"}},
		"Template/Hole":     {g(node("a", "template", "text", `"{{ 1 }} {{ nope }}"`)), []string{"BAD_EXPRESSION a named.text"}},
		"Template/Unknown":  {g(node("a", "template", "text", `"{{ nodes.nope.result }}"`)), []string{"UNKNOWN_NODE_REFERENCE a named.text"}},
		"Agent/Unknown":     {g(node("a", "agent", "goal", `"x"`, "theme", `"t"`, "actions", `{"cel": {}}`)), []string{"UNKNOWN_ARGUMENT a named.theme"}},
		"LLM/Unknown":       {g(node("a", "llm", "request", `"x"`, "modell", `"t"`)), []string{"UNKNOWN_ARGUMENT a named.modell"}},
		"HTTP/Unknown":      {g(node("a", "http", "url", `"https://x"`, "header", `{}`)), []string{"UNKNOWN_ARGUMENT a named.header"}},
		"HTTP/Missing":      {g(node("a", "http")), []string{"MISSING_ARGUMENT a named.url"}},
		"Human/Missing":     {g(node("a", "human", "default", `1`)), []string{"MISSING_ARGUMENT a named.prompt"}},
		"Sleep/Missing":     {g(node("a", "sleep", "value", `1`)), []string{"MISSING_ARGUMENT a named.duration"}},
		"Spawn/Unknown":     {g(node("a", "spawn", "ref", `"self"`, "inputs", `{}`)), []string{"UNKNOWN_ARGUMENT a named.inputs"}},
		"Agent/NoActions":   {g(node("a", "agent", "goal", `"x"`)), []string{"BAD_ARGUMENT a named.actions"}},
		"Agent/Timeout":     {g(node("a", "agent", "goal", `"x"`, "actions", `{"cel": {}}`, "timeout", `"5"`)), []string{"BAD_ARGUMENT a named.timeout"}},
		"Agent/Begin":       {g(node("a", "loop/begin", "nope", `1`)), []string{"UNKNOWN_ACTOR a actor"}},
		"Agent/Act":         {g(node("a", "loop/act", "nope", `1`)), []string{"UNKNOWN_ACTOR a actor"}},
		"Agent/Groups":      {g(node("a", "loop/groups", "nope", `1`)), []string{"UNKNOWN_ACTOR a actor"}},
		"Agent/Gather":      {g(node("a", "loop/gather", "nope", `1`)), []string{"UNKNOWN_ACTOR a actor"}},
		"Agent/Results":     {g(node("a", "loop/results", "nope", `1`)), []string{"UNKNOWN_ACTOR a actor"}},
		"Agent/Branch":      {g(node("a", "loop/branch", "nope", `1`)), []string{"UNKNOWN_ACTOR a actor"}},
		"Agent/Observe":     {g(node("a", "loop/observe", "nope", `1`)), []string{"UNKNOWN_ACTOR a actor"}},
		"HTTP/Address":      {g(node("a", "http", "url", `"example"`)), []string{"BAD_ARGUMENT a named.url"}},
		"HTTP/TwoBodies":    {g(node("a", "http", "url", `"https://x"`, "json", `1`, "body", `"x"`)), []string{"BAD_ARGUMENT a named.body"}},
		"Human/Default":     {g(node("a", "human", "approve", `1`, "default", `1`, "timeout", `"1h"`)), []string{"BAD_ARGUMENT a named.default"}},
		"Sleep/Until":       {g(node("a", "sleep", "until", `"yesterday"`)), []string{"BAD_ARGUMENT a named.until"}},
		"Spawn/Graph":       {g(node("a", "spawn", "graph", `{"nodez": []}`)), []string{"BAD_ARGUMENT a named.graph"}},
		"Spawn/Expression":  {g(node("a", "spawn", "graph", `{"nodes": [{"id": "x", "actor": "cel", "when": "1 +"}]}`)), []string{"BAD_ARGUMENT a named.graph"}},
		"Spawn/Ref":         {g(node("a", "spawn", "ref", `"nothing"`)), []string{"BAD_ARGUMENT a named.ref"}},
		"Spawn/Both":        {g(node("a", "spawn", "ref", `"self"`, "graph", `{"nodes": [{"id": "x", "actor": "cel"}]}`)), []string{"BAD_ARGUMENT a named.graph"}},
		"Spawn/Neither":     {g(node("a", "spawn", "runs", `[{"labels": {}}]`)), []string{"BAD_ARGUMENT a named.runs"}},
		"Spawn/AsResult":    {g(node("a", "spawn", "runs", `[{"ref": "self"}, {"ref": "self"}]`, "as_result", `true`)), []string{"BAD_ARGUMENT a named.as_result"}},
		"Spawn/Timeout":     {g(node("a", "spawn", "ref", `"self"`, "timeout", `"5"`)), []string{"BAD_ARGUMENT a named.timeout"}},
		"Expand/Text":       {g(node("a", "expand", "graph", `"{nodes"`)), []string{"BAD_ARGUMENT a named.graph"}},
		"Expand/Cycle":      {g(node("a", "expand", "graph", `{"nodes": [{"id": "x", "actor": "cel"}, {"id": "y", "actor": "cel"}], "edges": [{"from": "x", "to": "y"}, {"from": "y", "to": "x"}]}`)), []string{"BAD_ARGUMENT a named.graph"}},
		"Thread":            {g(&graphv1.Node{Id: "a", Actor: "cel", Named: named("expr", `"1"`), Thread: "t"}), []string{"FIELD_NOT_USED a thread"}},
		"All": {&graphv1.Graph{Nodes: []*graphv1.Node{node("a", "nobody"), node("b", "cel"), node("c", "template", "text", `"{{ 1 + }}"`)}, Edges: []*graphv1.Edge{edge("b", "nowhere")}},
			[]string{"UNKNOWN_ACTOR a actor", "BAD_EXPRESSION c named.text", "UNKNOWN_NODE  to", "MISSING_ARGUMENT b named.expr"}},
		"All/WithWhatIsMissing": {&graphv1.Graph{Nodes: []*graphv1.Node{node("a", "nobody"), node("b", "cel"), node("c", "template", "txt", `"x"`)}, Edges: []*graphv1.Edge{edge("c", "nowhere")}},
			[]string{"UNKNOWN_ACTOR a actor", "UNKNOWN_NODE  to", "MISSING_ARGUMENT b named.expr", "MISSING_ARGUMENT c named.text"}},
		"All/WithWhatCannotBeRead": {g(node("a", "cel", "expr", `1 2`), node("b", "sleep"), node("c", "cel", "expr", `"1 +"`)),
			[]string{"PAYLOAD_INVALID a named.expr", "BAD_EXPRESSION c named.expr", "MISSING_ARGUMENT b named.duration"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, err := f.ValidateGraph(t.Context(), &executorv1.ValidateGraphRequest{Graph: c.graph, Input: &executorv1.RunInput{}})
			require.NoError(t, err)
			var got []string
			for _, x := range v.GetFaults() {
				got = append(got, x.GetCode()+" "+x.GetNodeId()+" "+x.GetField())
			}
			require.Equal(t, c.want, got, "%v", v.GetFaults())
			// A start reports the same, in the same words.
			run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: c.graph})
			if c.want == nil {
				require.NoError(t, err)
				require.Equal(t, run.GetGraphHash(), v.GetGraphHash())
				return
			}
			require.Empty(t, v.GetGraphHash())
			refused := errs.From(err).Violations
			require.Len(t, refused, len(c.want), "%v", err)
			for i, x := range v.GetFaults() {
				require.Equal(t, x.GetCode(), refused[i].Reason)
			}
			_, err = executorv1.NewScheduleServiceClient(f.conn).CreateSchedule(t.Context(), &executorv1.CreateScheduleRequest{
				Schedule: &executorv1.Schedule{Id: "s", Cron: "0 0 1 1 *", Start: &executorv1.StartRunRequest{Graph: c.graph}}})
			require.Len(t, errs.From(err).Violations, len(c.want), "a schedule is judged as a start is: %v", err)
		})
	}
	t.Run("Input/WhatOnlyItCanBringIsAWarning", func(t *testing.T) {
		t.Parallel()
		v, err := f.ValidateGraph(t.Context(), &executorv1.ValidateGraphRequest{Graph: g(node("a", "cel"))})
		require.NoError(t, err)
		require.Empty(t, v.GetFaults())
		require.Len(t, v.GetWarnings(), 1)
		require.Equal(t, "MISSING_ARGUMENT", v.GetWarnings()[0].GetCode())
		v, err = f.ValidateGraph(t.Context(), &executorv1.ValidateGraphRequest{Graph: g(node("a", "cel")), Input: &executorv1.RunInput{Named: named("expr", `"1"`)}})
		require.NoError(t, err)
		require.Empty(t, append(v.GetFaults(), v.GetWarnings()...))
	})
	t.Run("Behaviors/AreThoseOfAllCalls", func(t *testing.T) {
		t.Parallel()
		list := g(node("get", "http", "url", `"https://x"`), node("post", "http", "url", `"https://x"`, "method", `"POST"`), node("llm", "llm", "request", `"x"`),
			node("agent", "agent", "goal", `"x"`, "actions", `{"cel": {}}`), node("posts", "agent", "goal", `"x"`, "actions", `{"http": {"named": {"method": "POST"}}}`),
			node("asks", "human", "prompt", `"x"`), node("approve", "human", "prompt", `"x"`, "approve", `1`),
			node("child", "spawn", "graph", `{"nodes": [{"id": "a", "actor": "http", "named": {"url": "https://x", "method": "POST"}}]}`))
		list.Nodes = append(list.Nodes, &graphv1.Node{Id: "stated", Actor: "cel", Named: named("expr", `"1"`), Effect: graphv1.Effect_EFFECT_UNSAFE})
		v, err := f.ValidateGraph(t.Context(), &executorv1.ValidateGraphRequest{Graph: list})
		require.NoError(t, err)
		var got []string
		for _, b := range v.GetBehaviors() {
			got = append(got, fmt.Sprintf("%s %s %t", b.GetNodeId(), strings.TrimPrefix(b.GetEffect().String(), "EFFECT_"), b.GetApproves()))
		}
		require.Equal(t, []string{"get PURE false", "post UNSAFE false", "llm IDEMPOTENT false", "agent IDEMPOTENT false", "posts UNSAFE false", "asks PURE false",
			"approve PURE true", "child UNSAFE false", "stated UNSAFE false"}, got, "%v", v)
		v, err = f.ValidateGraph(t.Context(), &executorv1.ValidateGraphRequest{Graph: g(node("a", "nobody"))})
		require.NoError(t, err)
		require.Empty(t, v.GetBehaviors())
	})
	t.Run("Input/WhatOnlyItCanBringIsAWarningBesideFaults", func(t *testing.T) {
		t.Parallel()
		v, err := f.ValidateGraph(t.Context(), &executorv1.ValidateGraphRequest{Graph: g(node("a", "nobody"), node("b", "cel"))})
		require.NoError(t, err)
		require.Len(t, v.GetFaults(), 1)
		require.Equal(t, "UNKNOWN_ACTOR", v.GetFaults()[0].GetCode())
		require.Len(t, v.GetWarnings(), 1)
		require.Equal(t, "MISSING_ARGUMENT b", v.GetWarnings()[0].GetCode()+" "+v.GetWarnings()[0].GetNodeId())
		require.Contains(t, v.GetWarnings()[0].GetHint(), "with an input that has it nothing is wrong")
	})
}

// An actor that is called by a node's own arguments is checked like a node, but only with warnings: a worker
// that serves the actor may come before the call.
func TestValidateGraph_Warnings(t *testing.T) {
	t.Parallel()
	f := serve(t, nil)
	node := func(actor string, kv ...string) *graphv1.Node {
		n := &graphv1.Node{Id: "a", Actor: actor, Named: map[string]*graphv1.Payload{}}
		for i := 0; i < len(kv); i += 2 {
			n.Named[kv[i]] = value(kv[i+1])
		}
		return n
	}
	slow := func(actor string, kv ...string) *graphv1.Node {
		n := node(actor, kv...)
		n.Timeout = durationpb.New(time.Second)
		return n
	}
	idle := node("signal", "name", `"go"`)
	idle.IdleTimeout = durationpb.New(time.Second)
	const one = `{"nodes": [{"id": "x", "actor": "cell", "named": {"expr": "1"}}]}`
	for name, c := range map[string]struct {
		node *graphv1.Node
		want []string
	}{
		"Spawn/Graph":         {node("spawn", "graph", one), []string{"UNKNOWN_ACTOR a named.graph.nodes[x].actor: did you mean cel?"}},
		"Spawn/Known":         {node("spawn", "graph", `{"nodes": [{"id": "x", "actor": "cel", "named": {"expr": "1"}}]}`), nil},
		"Spawn/Runs":          {node("spawn", "runs", `[{"ref": "self"}, {"graph": `+one+`}]`), []string{"UNKNOWN_ACTOR a named.runs[1].graph.nodes[x].actor: did you mean cel?"}},
		"Spawn/Below":         {node("spawn", "graph", `{"nodes": [{"id": "s", "actor": "spawn", "named": {"graph": `+one+`}}]}`), []string{"UNKNOWN_ACTOR a named.graph.nodes[s].named.graph.nodes[x].actor: did you mean cel?"}},
		"Expand/Graph":        {node("expand", "graph", one), []string{"UNKNOWN_ACTOR a named.graph.nodes[x].actor: did you mean cel?"}},
		"Expand/Text":         {node("expand", "graph", strconv.Quote(one)), []string{"UNKNOWN_ACTOR a named.graph.nodes[x].actor: did you mean cel?"}},
		"Agent/ActionName":    {node("agent", "goal", `"x"`, "actions", `{"cell": {}, "cel": {}}`), []string{"UNKNOWN_ACTOR a named.actions.cell: did you mean cel?"}},
		"Agent/Action":        {node("agent", "goal", `"x"`, "actions", `{"look": {"actor": "htp"}}`), []string{"UNKNOWN_ACTOR a named.actions.look.actor: did you mean http?"}},
		"Agent/Reasoner":      {node("agent", "goal", `"x"`, "reasoner", `"lm"`, "actions", `{"cel": {}}`), []string{"UNKNOWN_ACTOR a named.reasoner: did you mean llm?"}},
		"Agent/ActionsGraph":  {node("agent", "goal", `"x"`, "actions", `{"do": {"actor": "spawn", "named": {"graph": `+one+`}}}`), []string{"UNKNOWN_ACTOR a named.actions.do.named.graph.nodes[x].actor: did you mean cel?"}},
		"Timeout/Sleep":       {slow("sleep", "duration", `"1h"`), []string{"FIELD_NOT_USED a timeout: drop it, named.duration bounds the wait"}},
		"Timeout/Human":       {slow("human", "prompt", `"?"`), []string{"FIELD_NOT_USED a timeout: set named.timeout"}},
		"Timeout/Signal":      {slow("signal", "name", `"go"`), []string{"FIELD_NOT_USED a timeout: set named.timeout"}},
		"Timeout/Completion":  {slow("completion"), []string{"FIELD_NOT_USED a timeout: set named.timeout"}},
		"Timeout/Spawn":       {slow("spawn", "ref", `"self"`), []string{"FIELD_NOT_USED a timeout: set named.timeout"}},
		"Timeout/Agent":       {slow("agent", "goal", `"x"`, "actions", `{"cel": {}}`), []string{"FIELD_NOT_USED a timeout: set named.timeout"}},
		"Timeout/AgentAction": {node("agent", "goal", `"x"`, "actions", `{"ask": {"actor": "human", "timeout": "24h"}}`), []string{"FIELD_NOT_USED a named.actions.ask.timeout: set named.actions.ask.named.timeout"}},
		"Timeout/Below":       {node("spawn", "graph", `{"nodes": [{"id": "x", "actor": "completion", "timeout": "1s"}]}`), []string{"FIELD_NOT_USED a named.graph.nodes[x].timeout: set named.graph.nodes[x].named.timeout"}},
		"Timeout/Both":        {slow("completion", "timeout", `"1s"`), []string{"FIELD_NOT_USED a timeout: drop it, named.timeout bounds the wait"}},
		"Timeout/Idle":        {idle, []string{"FIELD_NOT_USED a idle_timeout: set named.timeout"}},
		"Timeout/Call":        {slow("cel", "expr", `"1"`), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, err := f.ValidateGraph(t.Context(), &executorv1.ValidateGraphRequest{Graph: &graphv1.Graph{Nodes: []*graphv1.Node{c.node}}, Input: &executorv1.RunInput{}})
			require.NoError(t, err)
			require.Empty(t, v.GetFaults(), "%v", v.GetFaults())
			require.NotEmpty(t, v.GetGraphHash())
			var got []string
			for _, x := range v.GetWarnings() {
				got = append(got, x.GetCode()+" "+x.GetNodeId()+" "+x.GetField()+": "+x.GetHint())
			}
			require.Equal(t, c.want, got)
		})
	}
	t.Run("Many/AreCounted", func(t *testing.T) {
		t.Parallel()
		var list []string
		for i := range 5000 {
			list = append(list, fmt.Sprintf(`{"id": "x%d", "actor": "nobody%d"}`, i, i))
		}
		v, err := f.ValidateGraph(t.Context(), &executorv1.ValidateGraphRequest{Graph: &graphv1.Graph{Nodes: []*graphv1.Node{
			node("expand", "graph", `{"nodes": [`+strings.Join(list, ",")+`]}`)}}, Input: &executorv1.RunInput{}})
		require.NoError(t, err)
		require.Len(t, v.GetWarnings(), workgraph.MaxFaults+1)
		require.Equal(t, "MORE_FAULTS", v.GetWarnings()[workgraph.MaxFaults].GetCode())
	})
}

// A graph that takes long to check is checked within its caller's time, gets a bounded number of faults, and
// delays nobody afterwards.
func TestValidateGraph_Attack(t *testing.T) {
	t.Parallel()
	f := serve(t, nil)
	g := &graphv1.Graph{}
	for i := range 20_000 {
		g.Nodes = append(g.Nodes, &graphv1.Node{Id: fmt.Sprintf("n%d", i), Actor: "cel", Named: map[string]*graphv1.Payload{"expr": value(`"1"`)}})
		g.Edges = append(g.Edges, &graphv1.Edge{From: fmt.Sprintf("u%d", i), To: fmt.Sprintf("v%d", i)}, &graphv1.Edge{From: fmt.Sprintf("w%d", i), To: fmt.Sprintf("n%d", i)})
	}
	hurry, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var crowd sync.WaitGroup
	for range 4 {
		crowd.Go(func() { _, _ = f.ValidateGraph(hurry, &executorv1.ValidateGraphRequest{Graph: g}) })
	}
	crowd.Wait()
	v, err := f.ValidateGraph(t.Context(), &executorv1.ValidateGraphRequest{Graph: g})
	require.NoError(t, err)
	require.Len(t, v.GetFaults(), workgraph.MaxFaults+1)
	require.Equal(t, workgraph.CodeUnknownNode, v.GetFaults()[0].GetCode())
	require.Equal(t, workgraph.CodeMoreFaults, v.GetFaults()[workgraph.MaxFaults].GetCode())
}
