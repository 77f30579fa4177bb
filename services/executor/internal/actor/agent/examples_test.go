package agent_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/template"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestExamples(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"graph.json":    `"together they cost 31"`,
		"sequence.json": `["initial", "A1", ["B1", "B2"]]`,
		"branches.json": `"north asks 7; south asks 5"`,
		"plan.json":     `"compare them knows 2: NORTH, SOUTH"`,
		"memory.json": `"Ada pays in cash.\nMemory: Tea costs 7.\n\nResults:\n<ActionResults>\n  <Action>\n    <ActionType>look</ActionType>\n` +
			`    <ActionResult>{\"action_memory\":{\"memory\":\"Tea costs 7.\"},\"page\":\"long\"}</ActionResult>\n  </Action>\n</ActionResults>"`,
		"ask.json": `"User: Order a coffee.\nAgent: Which size?\nUser: large"`,
	}
	files, err := filepath.Glob("../../../../../examples/agent/*.json")
	require.NoError(t, err)
	require.Len(t, files, len(want))
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(file)
			require.NoError(t, err)
			g, err := workgraph.Decode(raw)
			require.NoError(t, err)
			e := newEnv(t, nil)
			reg, err := actor.NewRegistry(template.Spec())
			require.NoError(t, err)
			info, _ := reg.ActorInfo("template")
			e.all["template"] = described{t, template.Spec().Actor, info, e}
			res, err := workgraph.Run(t.Context(), g, e.all, workgraph.Input{}, workgraph.WithInterrupts(func(context.Context, workgraph.OpenedInterrupt) (workgraph.Answer, error) {
				return workgraph.Answer{Value: json.RawMessage(`"large"`)}, nil
			}))
			require.NoError(t, err)
			done(t, res, want[filepath.Base(file)])
		})
	}
}
