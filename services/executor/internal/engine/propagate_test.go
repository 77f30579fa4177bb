package engine_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestTerminate(t *testing.T) {
	t.Parallel()
	t.Run("QueuedAttemptsDoNotBegin", func(t *testing.T) {
		t.Parallel()
		var rec recorder
		ender := workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
			out := text("enough")
			out.Stop = workgraph.Terminate
			return out, nil
		})
		g := &workgraph.Graph{Name: "end", Nodes: []workgraph.Node{{ID: "end", Actor: "end"}}}
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			g.Nodes = append(g.Nodes, workgraph.Node{ID: id, Actor: "rec"})
		}
		l := run(t, sqliteStore(t), actors{"end": ender, "rec": &rec}, func(c *engine.Config, _ *engine.Deps) { c.Parallel = 1 })
		row := l.wait(t, l.start(t, g), journal.StateCompleted)
		require.Equal(t, workgraph.ReasonTerminated, row.Reason)
		began := 0
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			began += rec.of(id)
		}
		require.LessOrEqual(t, began, 1, "only what began before the end may have run")
	})
}

func TestAttachments(t *testing.T) {
	t.Parallel()
	const docs = `[{"id":"d1","content":"text"}]`
	named := func(t *testing.T, own map[string]json.RawMessage) string {
		t.Helper()
		var got json.RawMessage
		spy := workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
			got = c.Named["attachments"]
			return text("seen"), nil
		})
		l := run(t, sqliteStore(t), actors{"spy": spy})
		id := l.start(t, chain(1, "spy"), func(r *command.StartRequest) {
			r.Attachments, r.Input.Named = []byte(docs), own
		})
		l.wait(t, id, journal.StateCompleted)
		return string(got)
	}
	t.Run("ArePropagatedToTheNodes", func(t *testing.T) {
		t.Parallel()
		require.JSONEq(t, docs, named(t, nil))
	})
	t.Run("GiveWayToTheCallersOwnArgument", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, `"mine"`, named(t, map[string]json.RawMessage{"attachments": json.RawMessage(`"mine"`)}))
	})
}
