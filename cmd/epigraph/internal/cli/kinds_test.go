package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKindOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want fileKind
	}{
		"Workflow":         {"# about\nname: x\nsteps:\n  - {id: a, type: wait, delay: 1}\n", kindWorkflow},
		"WorkflowOfAgents": {"name: x\nagents:\n  a: {instructions: b}\n", kindWorkflow},
		"WorkflowAsJSON":   {`{"name": "x", "steps": []}`, kindWorkflow},
		"Tests":            {"workflow: x.yaml\ncases:\n  - {name: a}\n", kindTests},
		"Graph":            {`{"name": "x", "nodes": [{"id": "a", "actor": "llm"}]}`, kindGraph},
		"Tree":             {`{"title": "x", "tasks": []}`, kindTree},
		"Prices":           {"as_of: x\nprices: []\n", kindPrices},
		"Plan":             {"A -> B\nB: C\n", ""},
		"KeysWithin":       {"text:\n  workflow: x\n  cases: y\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, kindOf(c.text))
		})
	}
}
