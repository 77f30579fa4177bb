package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestNamed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"reasoner": "r", "actions": {"search": {"actor": "tool"}}}`), 0o600))
	named := func(t *testing.T, own workgraph.Actors, c agent.Config) *env {
		t.Helper()
		specs, err := c.Specs(nil)
		require.NoError(t, err)
		r, err := actor.NewRegistry(specs...)
		require.NoError(t, err)
		e := newEnv(t, own)
		for _, s := range specs {
			info, _ := r.ActorInfo(s.Name)
			e.all[s.Name] = described{t, s.Actor, info, e}
		}
		return e
	}
	as := func(name string) func(*workgraph.Graph) {
		return func(g *workgraph.Graph) { g.Nodes[0].Actor = name }
	}
	t.Run("Call/ByItsName", func(t *testing.T) {
		t.Parallel()
		r, a := &reasoner{script: []string{oneCall, over}}, &tool{}
		e := named(t, workgraph.Actors{"r": r, "tool": a}, agent.Config{"finder": {File: file}})
		done(t, e.run(t, `{"user_input": "find", "budget": {"tokens": 1000}}`, as("agent/finder")), `"done"`)
		require.Len(t, a.calls, 1)
		require.Equal(t, "agent/finder", e.threads.rows[e.threads.root(t)].Agent)
	})
	t.Run("Definition/IsNotTheCallers", func(t *testing.T) {
		t.Parallel()
		r, a := &reasoner{script: []string{`["evil"]`, over}}, &tool{}
		e := named(t, workgraph.Actors{"r": r, "tool": a, "evil": a}, agent.Config{"finder": {File: file}})
		e.input = workgraph.Input{Named: map[string]json.RawMessage{"actions": json.RawMessage(`{"evil": {}}`), "reasoner": json.RawMessage(`"evil"`)}}
		done(t, e.run(t, `{"user_input": "find"}`, as("agent/finder")), `"done"`)
		require.Empty(t, a.calls)
	})
	t.Run("Tool/OfAnotherAgent", func(t *testing.T) {
		t.Parallel()
		r, s := &reasoner{script: []string{`[{"action": "finder", "arguments": {"user_input": "look"}}]`, over}}, &reasoner{script: []string{`{"result": "seen"}`}}
		e := named(t, workgraph.Actors{"r": r, "s": s, "tool": &tool{}}, agent.Config{"finder": {Description: "Finds.", Definition: `{"reasoner": "s", "actions": {"search": {"actor": "tool"}}}`}})
		done(t, e.run(t, `{"user_input": "find", "reasoner": "r", "actions": {"finder": {"actor": "agent/finder"}}}`), `"done"`)
		require.Contains(t, r.prompt(t, 1), `- finder: Finds. Arguments: {"type":"object","required":["user_input"]`)
		require.Contains(t, r.prompt(t, 2), "<ActionResult>seen</ActionResult>")
	})
	t.Run("Branches/AreOfTheAgent", func(t *testing.T) {
		t.Parallel()
		r := &reasoner{script: []string{acts("", "search+search"), `{"result": 1}`, `{"result": 2}`, over}}
		e := named(t, workgraph.Actors{"r": r, "tool": says(`1`)}, agent.Config{"finder": {File: file}})
		done(t, e.run(t, `{"user_input": "find"}`, as("agent/finder")), `"done"`)
		require.Len(t, e.threads.rows, 3)
		for _, row := range e.threads.rows {
			require.Equal(t, "agent/finder", row.Agent)
		}
	})
	t.Run("Limits/AreTheLowerOnes", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct{ stated, given, budget, timeout string }{
			{``, ``, `null`, `0s`},
			{`, "budget": {"nano_usd": 500}, "timeout": "1h"`, ``, `{"nano_usd": 500}`, `1h0m0s`},
			{`, "budget": {"nano_usd": 500}, "timeout": "1h"`, `, "budget": null, "timeout": null`, `{"nano_usd": 500}`, `1h0m0s`},
			{`, "budget": {"nano_usd": 500}, "timeout": "1h"`, `, "budget": {"nano_usd": 400, "tokens": 9}, "timeout": "2h"`, `{"nano_usd": 400, "tokens": 9}`, `1h0m0s`},
			{`, "budget": {"nano_usd": 500, "tokens": 5}`, `, "budget": {"nano_usd": 501, "tokens": 6}, "timeout": "2h"`, `{"nano_usd": 500, "tokens": 5}`, `2h0m0s`},
			{`, "timeout": "1h"`, `, "budget": {"tokens": 0}, "timeout": "30m"`, `{"tokens": 0}`, `30m0s`},
		} {
			e := named(t, workgraph.Actors{"r": &tool{}, "tool": &tool{}}, agent.Config{"finder": {Definition: `{"reasoner": "r", "actions": {"search": {"actor": "tool"}}` + c.stated + `}`}})
			call := &workgraph.Call{}
			require.NoError(t, json.Unmarshal([]byte(`{"user_input": "find"`+c.given+`}`), &call.Own))
			call.Named = call.Own
			out, err := e.all["agent/finder"].Call(t.Context(), call)
			require.NoError(t, err)
			require.JSONEq(t, c.budget, encoded(t, out.Wait.Children.Runs[0].Budget), "%+v", c)
			require.Equal(t, c.timeout, time.Duration(out.Wait.Children.Timeout).String(), "%+v", c)
		}
	})
	for name, c := range map[string]struct {
		of   agent.Named
		want string
	}{
		"Budget":       {agent.Named{Definition: `{"actions": {"a": {}}, "budget": {"nano_usd": -1}}`}, "budget: nano_usd is below 0"},
		"BudgetField":  {agent.Named{Definition: `{"actions": {"a": {}}, "budget": {"usd": 1}}`}, `budget: unknown field "usd"`},
		"Timeout":      {agent.Named{Definition: `{"actions": {"a": {}}, "timeout": "-1h"}`}, "timeout must be above 0"},
		"Nothing":      {agent.Named{}, "exactly one of definition and file"},
		"Both":         {agent.Named{Definition: "{}", File: file}, "exactly one of definition and file"},
		"NoJSON":       {agent.Named{Definition: "actions"}, "must be a JSON object"},
		"UnknownField": {agent.Named{Definition: `{"goal": "x", "actions": {"a": {}}}`}, `"goal" is no part of a definition`},
		"NoActions":    {agent.Named{Definition: `{}`}, "name 1 to 64 actions"},
		"Template":     {agent.Named{Definition: `{"template": "{x}", "actions": {"a": {}}}`}, "there is no placeholder {x}"},
		"NoFile":       {agent.Named{File: file + "x"}, "no such file"},
	} {
		t.Run("Refused/"+name, func(t *testing.T) {
			t.Parallel()
			_, err := agent.Config{"bad": c.of}.Specs(nil)
			require.ErrorContains(t, err, "agents.bad: ")
			require.ErrorContains(t, err, c.want)
		})
	}
	t.Run("Refused/Name", func(t *testing.T) {
		t.Parallel()
		_, err := agent.Config{"Not A Name": {File: file}}.Specs(nil)
		require.ErrorContains(t, err, "small letters")
	})
}
