package e2e_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit/mcptest"
)

// chatAsker is a workflow that a message starts, and that asks its user something.
const chatAsker = `
name: Asker
description: Asks where somebody lives.
triggers: [chat]
steps:
  - {id: ask, type: human, message: "{{ inputs.message }}", schema: {type: string, minLength: 1}}
  - {id: greet, type: transform, template: "It is {{ ask }}."}
`

// TestA2ADoor speaks to a server with the client of the protocol's JavaScript SDK. The server is killed
// while a task asks. The transcript is a golden file.
func TestA2ADoor(t *testing.T) {
	t.Parallel()
	node, modules := mcptest.A2A(t)
	bin, err := binary()
	require.NoError(t, err)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	begin := func() (*process, *suite) {
		cmd := exec.Command(bin, "dev", "--data="+filepath.Join(dir, "data"), "--http=127.0.0.1:0", "--grpc=127.0.0.1:0")
		cmd.Env = environment(dir)
		p := launch(t, cmd)
		t.Cleanup(p.kill)
		return p, devReady(t, p)
	}
	p, s := begin()
	key := devKey.FindString(p.output())
	for _, call := range []request{
		{path: "/v1/workflows", key: key, body: map[string]any{"source": chatAsker}},
		{path: "/v1/workflows/asker:expose", key: key, body: map[string]any{}},
	} {
		var nothing struct{}
		s.ask(t, call, &nothing)
	}
	talk := func(part string) string {
		return transcript(t, exec.Command(node, "testdata/a2a.mjs", modules, s.url, key, part))
	}
	got := talk("ask")
	p.kill()
	_, s = begin()
	got += talk("answer")
	transcribed(t, "a2a", got)
}
