package workflow_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow"
)

func TestShares(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		line int // 0 for none
	}{
		"Write":       {"name: x\nsteps:\n  - {id: a, type: agent, prompt: p, tools: [memory_write]}\n", 0},
		"ForEpic":     {"name: x\nsteps:\n  - {id: a, type: agent, prompt: p, tools: [{type: memory_write, scope: epic}]}\n", 0},
		"Reads":       {"name: x\nsteps:\n  - {id: a, type: agent, prompt: p, tools: [{type: memory_read, scope: workflow}]}\n", 0},
		"OtherScope":  {"name: x\nsteps:\n  - {id: a, type: set, values: {scope: workflow}}\n", 0},
		"ForWorkflow": {"name: x\nsteps:\n  - {id: a, type: agent, prompt: p, tools: [{type: memory_write, scope: workflow}]}\n", 3},
		"ForAll":      {"name: x\nsteps:\n  - id: a\n    type: agent\n    tools:\n      - type: memory_write\n        scope: namespace\n", 7},
		"Actor":       {"name: x\nsteps:\n  - {id: a, type: actor, actor: memory_share}\n", 3},
		"Escaped":     {"name: x\nsteps:\n  - {id: a, type: actor, actor: \"memory\\x5fshare\"}\n", 3},
		"InAGraph":    {"{\"name\": \"x\", \"steps\": [{\"id\": \"a\", \"type\": \"actor\", \"actor\": \"expand\", \"with\": {\"graph\": \"{\\\"actor\\\": \\\"memory_share\\\"}\"}}]}", 1},
		"Fork":        {"based_on: x\npatches:\n  - {action: update, step: a, with: {scope: workflow}}\n", 3},
		"Unreadable":  {"name: [", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, shares := workflow.Shares([]byte(c.text))
			require.Equal(t, c.line > 0, shares)
			require.Equal(t, c.line, at.Line)
		})
	}
}
