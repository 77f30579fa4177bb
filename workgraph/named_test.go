package workgraph

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWorkflowsAmong(t *testing.T) {
	t.Parallel()
	text := func(v string) string { return string(js(v)) }
	for name, c := range map[string]struct {
		arg  string
		want []string
	}{
		"None":           {`{"ref": "https://example.com/workflow", "self": "me"}`, nil},
		"Ref":            {`{"ref": "workflow/x@1"}`, []string{"workflow/x@1"}},
		"Self":           {`{"ref": "self"}`, []string{"self"}},
		"SelfElsewhere":  {`{"name": "self", "list": ["self"]}`, nil},
		"List":           {`[{"ref": "workflow/x@1"}, {"a": 1, "ref": "self"}, {"ref": "workflow/x@1"}]`, []string{"self", "workflow/x@1"}},
		"Escaped":        {`{"r\u0065f": "w\u006frkflow\/x@1", "a": [{"ref": "s\u0065lf"}]}`, []string{"self", "workflow/x@1"}},
		"Graph":          {`{"graph": {"nodes": [{"id": "a", "named": {"runs": [{"ref": "workflow/y@2"}]}}]}}`, []string{"workflow/y@2"}},
		"Text":           {text(`{"nodes": [{"named": {"ref": "workflow/y@2"}}]}`), []string{"workflow/y@2"}},
		"TextInText":     {text(`{"graph": ` + text(`{"ref": "workflow/y@2"}`) + `}`), []string{"workflow/y@2"}},
		"Plain":          {text("workflow/x@1"), []string{"workflow/x@1"}},
		"KeyIsNoName":    {`{"workflow/x@1": 1, "b": {"ref": {"self": "self"}}}`, nil},
		"BrokenText":     {text(`{"ref": "workflow/x@1`), nil},
		"NestedTooDeep":  {nestedText(`{"ref": "workflow/x@1"}`, maxNested+2), nil},
		"AfterNestedEnd": {`{"a": {"b": []}, "ref": "self"}`, []string{"self"}},
	} {
		require.Equal(t, c.want, WorkflowsAmong(Input{Args: one(c.arg)}), name)
		require.Equal(t, c.want, WorkflowsIn(&Graph{Nodes: []Node{{ID: "a", Named: map[string]json.RawMessage{"x": json.RawMessage(c.arg)}}}}), name)
	}
	require.Equal(t, []string{"self"}, WorkflowsAmong(Input{Named: map[string]json.RawMessage{"ref": js("self")}}))
}

func nestedText(v string, times int) string {
	for range times {
		v = string(js(v))
		if len(v) > 1<<20 {
			break
		}
	}
	return v
}

func TestApprovalOfWorkflows(t *testing.T) {
	t.Parallel()
	spawns := func(hash string) Outcome {
		return Outcome{Wait: &Wait{Children: &Children{Runs: []Child{{ID: "c" + hash, Graph: &Graph{Nodes: []Node{{ID: "a", Actor: "x"}}}, Workflow: "workflow/x@1", WorkflowHash: hash}}}}}
	}
	asks := func(id, hash string) Outcome {
		return ask(id, func(q *Interrupt) { q.Approve, q.Workflows = js(1), map[string]string{"workflow/x@1": hash} })
	}
	var first string
	begin := func(t *testing.T) *machine {
		m := newMachine(t, compile(t, pays(nil)))
		m.begin()
		m.end("ask", asks("q1", "one"))
		first = shown(m)
		m.decide("q1", Approved)
		m.crash()
		return m
	}
	t.Run("Same/IsSpawned", func(t *testing.T) {
		m := begin(t)
		m.end("pay", spawns("one"))
		require.Len(t, m.fx.Spawns, 1)
		m.replays()
	})
	t.Run("Other/AsksAgain", func(t *testing.T) {
		m := begin(t)
		m.end("pay", spawns("two"))
		require.Empty(t, m.fx.Spawns)
		m.replays()
		m.end("ask", asks("q2", "two"))
		require.NotEqual(t, first, shown(m))
		m.decide("q2", Approved)
		m.end("pay", spawns("two"))
		require.Len(t, m.fx.Spawns, 1)
	})
	t.Run("Other/FailsOnceSomeOfItHasRun", func(t *testing.T) {
		m := begin(t)
		m.end("pay", Outcome{})
		m.end("send", spawns("two"))
		require.Equal(t, ReasonApprovalVoid, m.failure("send"))
		require.Contains(t, m.s.End().Error.Message, "the graph of workflow/x@1 is another one")
	})
	t.Run("Named/AreThoseOfWhatFollows", func(t *testing.T) {
		g := pays(func(g *Graph) {
			g.Nodes[0].Named = map[string]json.RawMessage{"ref": js("workflow/asker@1")}
			g.Nodes[1].Named = map[string]json.RawMessage{"ref": js("workflow/pay@1")}
			g.Nodes[2].Named = map[string]json.RawMessage{"ref": js("self")}
		})
		p := compile(t, g)
		for node, want := range map[string][]string{"ask": {"self", "workflow/pay@1"}, "pay": {"self"}, "send": nil, "nobody": nil} {
			got, err := p.Workflows(t.Context(), node)
			require.NoError(t, err)
			require.Equal(t, want, got, node)
		}
	})
	t.Run("ApprovedAt/IsWhatFollows", func(t *testing.T) {
		m := begin(t)
		at, workflows, ok := m.s.ApprovedAt(Ref{Node: "send", Visit: 1})
		require.True(t, ok)
		require.Equal(t, Ref{Node: "ask", Visit: 1}, at)
		require.Equal(t, map[string]string{"workflow/x@1": "one"}, workflows)
		_, _, ok = m.s.ApprovedAt(Ref{Node: "ask", Visit: 1})
		require.False(t, ok)
	})
}

// The workflows in arguments are found once for a graph, in steps that a context can end.
func TestAttackWorkflows(t *testing.T) {
	t.Parallel()
	g := chain(2_000)
	var names strings.Builder
	for i := range 1_000 {
		fmt.Fprintf(&names, `{"ref": "workflow/w%d@1"},`, i)
	}
	for i := range g.Nodes {
		g.Nodes[i].Named = map[string]json.RawMessage{"ref": js("self")}
	}
	g.Nodes[1].Named["runs"] = json.RawMessage("[" + strings.TrimSuffix(names.String(), ",") + "]")
	p, err := Compile(t.Context(), g, nil)
	require.NoError(t, err)
	ctx := newCountdown(100)
	_, err = p.Workflows(ctx, "n0")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, ctx.late.Load(), int64(100))
	ctx = newCountdown(1 << 40)
	for range 10 {
		got, err := p.Workflows(ctx, "n0")
		require.NoError(t, err)
		require.Len(t, got, 1_001)
	}
	require.Less(t, 1<<40-ctx.left.Load(), int64(20*len(g.Nodes)), "ten questions")
}
