package e2e_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit/mcptest"
)

// asker is a workflow that asks its user something.
const asker = `
name: Asker
description: Asks where somebody lives, and greets.
inputs: {name: {type: string, description: Who is asked.}}
steps:
  - {id: ask, type: human, message: "Where do you live, {{ inputs.name }}?", schema: {type: string, minLength: 1}}
  - {id: greet, type: transform, template: "{{ inputs.name }} lives in {{ ask }}."}
`

// TestMCPDoor speaks to a server with the clients of the TypeScript SDK and with the inspector's
// command line, over HTTP and over a process. The transcripts are golden files.
func TestMCPDoor(t *testing.T) {
	t.Parallel()
	node, modules := mcptest.Client(t)
	bin, err := binary()
	require.NoError(t, err)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	cmd := exec.Command(bin, "dev", "--data="+filepath.Join(dir, "data"), "--http=127.0.0.1:0", "--grpc=127.0.0.1:0")
	cmd.Env = environment(dir)
	p := launch(t, cmd)
	t.Cleanup(p.kill)
	s := devReady(t, p)
	grpc := regexp.MustCompile(`gRPC\D+(127\.0\.0\.1:\d+)`).FindStringSubmatch(p.output())[1]
	shell := append(shellEnv(t, bin), "EPIGRAPH_ADDR="+grpc)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "asker.yaml"), []byte(asker), 0o600))
	script(t, dir, shell, "epigraph workflows create asker.yaml && epigraph workflows expose asker")
	key := devKey.FindString(p.output())

	for name, c := range map[string]struct{ client, way string }{
		"Version1/HTTP":     {"1", s.url + "/mcp"},
		"Version1/Process":  {"1", bin},
		"Version2/HTTP":     {"2", s.url + "/mcp"},
		"Version2/Process":  {"2", bin},
		"Version2/Sessions": {"2-legacy", s.url + "/mcp"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			session := exec.Command(node, "testdata/mcp.mjs", modules, c.client, c.way, key)
			session.Env = shell
			transcribed(t, "mcp-"+strings.ToLower(strings.ReplaceAll(name, "/", "-")), transcript(t, session))
		})
	}

	inspect := func(t *testing.T, args ...string) map[string]any {
		t.Helper()
		inspector := exec.Command(node, append([]string{filepath.Join(modules, "@modelcontextprotocol/inspector/cli/build/cli.js"), "--cli"}, args...)...)
		inspector.Env = shell
		out, err := inspector.CombinedOutput()
		require.NoError(t, err, "%s", out)
		text := string(out)
		var got map[string]any
		require.NoError(t, json.Unmarshal([]byte(text[strings.IndexByte(text, '{'):]), &got), "%s", text)
		return got
	}
	for name, way := range map[string][]string{
		"HTTP":    {s.url + "/mcp", "--transport", "http", "--header", "Authorization: Bearer " + key},
		"Process": {bin, "mcp"},
	} {
		t.Run("Inspector/"+name, func(t *testing.T) {
			t.Parallel()
			tools, err := json.Marshal(inspect(t, append(way, "--method", "tools/list")...))
			require.NoError(t, err)
			require.Contains(t, string(tools), `"workflow_asker"`)
			got, err := json.Marshal(inspect(t, append(way, "--method", "tools/call", "--tool-name", "compile_plan", "--tool-arg", "plan=1. Boil water")...))
			require.NoError(t, err)
			require.Contains(t, string(got), `graph_hash`)
			templates, err := json.Marshal(inspect(t, append(way, "--method", "resources/templates/list")...))
			require.NoError(t, err)
			require.Contains(t, string(templates), "epigraph://runs/{run_id}")
		})
	}
}
