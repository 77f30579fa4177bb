package spawn_test

import (
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/actortest"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/spawn"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestSpawn(t *testing.T) {
	t.Parallel()
	t.Run("Runs/Many", func(t *testing.T) {
		t.Parallel()
		out, err := actortest.Call(t, spawn.Spec(nil), `{"runs": [
			{"graph": {"nodes": [{"id": "a", "actor": "cel"}]}, "input": {"args": [1], "named": {"k": 2}}, "labels": {"x": "y"}},
			{"ref": "self", "task_id": "tk_1"}], "timeout": "1h", "fail_fast": true}`)
		require.NoError(t, err)
		c := out.Wait.Children
		require.Len(t, c.Runs, 2)
		require.Equal(t, "a", c.Runs[0].Graph.Nodes[0].ID)
		require.Equal(t, `1`, string(c.Runs[0].Input.Args[0]))
		require.Equal(t, `2`, string(c.Runs[0].Input.Named["k"]))
		require.Equal(t, map[string]string{"x": "y"}, c.Runs[0].Labels)
		require.Equal(t, workgraph.Child{Ref: "self", TaskID: "tk_1"}, c.Runs[1])
		require.Equal(t, workgraph.Duration(time.Hour), c.Timeout)
		require.True(t, c.FailFast)
	})
	t.Run("Graph/AsTheRESTAPIWritesIt", func(t *testing.T) {
		t.Parallel()
		out, err := actortest.Call(t, spawn.Spec(nil), `{"graph": {"nodes": [{"id": "a", "actor": "cel", "onError": {"kind": "ON_ERROR_KIND_CONTINUE"}}]}}`)
		require.NoError(t, err)
		require.Equal(t, workgraph.Continue, out.Wait.Children.Runs[0].Graph.Nodes[0].OnError.Action)
	})
	t.Run("Graph/FaultsHavePlaces", func(t *testing.T) {
		t.Parallel()
		require.Contains(t, actortest.Fails(t, spawn.Spec(nil), `{"graph": {"nodes": [{"id": "a", "aktor": "cel"}]}}`).Message, `graph.nodes[0].aktor: Node has no field "aktor"`)
	})
	t.Run("Runs/One", func(t *testing.T) {
		t.Parallel()
		out, err := actortest.Call(t, spawn.Spec(nil), `{"ref": "workflow/triage@3", "input": {"args": ["x"]}}`)
		require.NoError(t, err)
		require.Equal(t, "workflow/triage@3", out.Wait.Children.Runs[0].Ref)
	})
	t.Run("AsResult/IsOfOneRun", func(t *testing.T) {
		t.Parallel()
		out, err := actortest.Call(t, spawn.Spec(nil), `{"ref": "self", "as_result": true}`)
		require.NoError(t, err)
		require.True(t, out.Wait.Children.AsResult)
		require.Contains(t, actortest.Fails(t, spawn.Spec(nil), `{"runs": [{"ref": "self"}, {"ref": "self"}], "as_result": true}`).Message, "there are 2")
	})
	for name, named := range map[string]string{
		"Arguments/Nothing":      `{}`,
		"Arguments/Empty":        `{"runs": []}`,
		"Arguments/Both":         `{"ref": "self", "graph": {"nodes": []}}`,
		"Arguments/RunsAndRef":   `{"ref": "self", "runs": [{"ref": "self"}]}`,
		"Arguments/NoGraph":      `{"graph": {"nodez": []}}`,
		"Arguments/WrongTimeout": `{"ref": "self", "timeout": "later"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, actor.ReasonArguments, actortest.Fails(t, spawn.Spec(nil), named).Reason)
		})
	}
}

func TestSchema(t *testing.T) {
	t.Parallel()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(spawn.Spec(nil).Schema))
	require.NoError(t, err)
	c := jsonschema.NewCompiler()
	require.NoError(t, c.AddResource("spawn.json", doc))
	schema, err := c.Compile("spawn.json")
	require.NoError(t, err)
	for name, ok := range map[string]bool{
		`{"ref": "self", "budget": {"tokens": 1, "nano_usd": 2}}`: true,
		`{"ref": "self", "budget": {"usd": 1}}`:                   false,
		`{"runs": [{"ref": "self", "budget": {"nanoUsd": "1"}}]}`: false,
	} {
		t.Run("Schema/"+name, func(t *testing.T) {
			t.Parallel()
			v, err := jsonschema.UnmarshalJSON(strings.NewReader(name))
			require.NoError(t, err)
			require.Equal(t, ok, schema.Validate(v) == nil)
		})
	}
}

func TestExpand(t *testing.T) {
	t.Parallel()
	for name, named := range map[string]string{
		"Graph/Object": `{"graph": {"nodes": [{"id": "a", "actor": "cel"}]}, "value": 7}`,
		"Graph/Text":   `{"graph": "{\"nodes\": [{\"id\": \"a\", \"actor\": \"cel\"}]}", "value": 7}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := actortest.Call(t, spawn.Expand(), named)
			require.NoError(t, err)
			require.Equal(t, "a", out.Expand.Nodes[0].ID)
			require.Equal(t, `7`, string(out.Values[0]))
		})
	}
	require.Equal(t, actor.ReasonArguments, actortest.Fails(t, spawn.Expand(), `{}`).Reason)
	require.Equal(t, actor.ReasonArguments, actortest.Fails(t, spawn.Expand(), `{"graph": "no"}`).Reason)
}
