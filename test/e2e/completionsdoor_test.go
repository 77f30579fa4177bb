package e2e_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit/mcptest"
)

// echo is a workflow that a message starts, and that says it again.
const echo = `
name: Echo
description: Says what it is told.
triggers: [chat]
steps:
  - {id: say, type: transform, template: "You said: {{ inputs.message }}"}
`

// TestCompletionsDoor speaks to a server with OpenAI's client for JavaScript. The transcript is a
// golden file.
func TestCompletionsDoor(t *testing.T) {
	t.Parallel()
	node, modules := mcptest.OpenAI(t)
	bin, err := binary()
	require.NoError(t, err)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	cmd := exec.Command(bin, "dev", "--data="+filepath.Join(dir, "data"), "--http=127.0.0.1:0", "--grpc=127.0.0.1:0")
	cmd.Env = environment(dir)
	p := launch(t, cmd)
	t.Cleanup(p.kill)
	s := devReady(t, p)
	key := devKey.FindString(p.output())
	for _, call := range []request{
		{path: "/v1/workflows", key: key, body: map[string]any{"source": echo}},
		{path: "/v1/workflows/echo:expose", key: key, body: map[string]any{}},
	} {
		var nothing struct{}
		s.ask(t, call, &nothing)
	}
	transcribed(t, "completions", transcript(t, exec.Command(node, "testdata/completions.mjs", modules, s.url, key)))
}
