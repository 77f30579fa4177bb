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

// TestMCPTools runs graphs and an agent with tools of other people's MCP servers, one started by the executor
// and one elsewhere.
func TestMCPTools(t *testing.T) {
	t.Parallel()
	node, files := mcptest.Server(t, "filesystem")
	_, everything := mcptest.Server(t, "everything")
	web := mcptest.HTTP(t)
	bin, err := binary()
	require.NoError(t, err)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	notes := filepath.Join(dir, "notes")
	require.NoError(t, os.Mkdir(notes, 0o700))
	servers, err := json.Marshal(map[string]any{
		"files":      map[string]any{"command": node, "args": append(files, notes)},
		"web":        map[string]any{"url": web, "allow_private": []string{"127.0.0.0/8"}},
		"everything": map[string]any{"command": node, "args": everything},
		"gone":       map[string]any{"command": "/nowhere/server"},
	})
	require.NoError(t, err)
	env := append(environment(dir), "EPIGRAPH_EXECUTOR_DRAIN=1s", "EPIGRAPH_EXECUTOR_ACTORS_MCP_SERVERS="+string(servers))
	cmd := exec.Command(bin, "dev", "--data="+filepath.Join(dir, "data"), "--http=127.0.0.1:0", "--grpc=127.0.0.1:0")
	cmd.Env = env
	p := launch(t, cmd)
	t.Cleanup(p.kill)
	devReady(t, p)
	grpc := regexp.MustCompile(`gRPC\D+(127\.0\.0\.1:\d+)`).FindStringSubmatch(p.output())[1]
	shell := append(shellEnv(t, bin), "EPIGRAPH_ADDR="+grpc)
	run := func(t *testing.T, commands string) string {
		t.Helper()
		return script(t, dir, shell, commands)
	}
	graph := func(name string, nodes ...map[string]any) {
		edges := []any{}
		for i := 1; i < len(nodes); i++ {
			edges = append(edges, map[string]any{"from": nodes[i-1]["id"], "to": nodes[i]["id"]})
		}
		text, err := json.Marshal(map[string]any{"name": name, "nodes": nodes, "edges": edges})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".json"), text, 0o600))
	}

	t.Run("Actors/AreListed", func(t *testing.T) {
		out := run(t, `until epigraph actors | grep -q mcp/files/write_file && epigraph actors | grep -q mcp/web/get-sum; do sleep 0.2; done; epigraph actors`)
		require.Regexp(t, `mcp/files/write_file +idempotent`, out)
		require.Regexp(t, `mcp/web/get-sum +pure`, out)
		require.Regexp(t, `mcp/gone/\* .*unavailable: the MCP server "gone" is down: the command cannot be started`, out)
	})
	t.Run("Graph/CallsTools", func(t *testing.T) {
		path := filepath.Join(notes, "sum.txt")
		graph("sum",
			map[string]any{"id": "add", "actor": "mcp/web/get-sum", "named": map[string]any{"a": 2, "b": 40}, "result_pass_down_mode": map[string]any{"mode": "KEY", "key": "content"}},
			map[string]any{"id": "write", "actor": "mcp/files/write_file", "named": map[string]any{"path": path}},
			map[string]any{"id": "read", "actor": "mcp/files/read_text_file", "named": map[string]any{"path": path}, "result_pass_down_mode": map[string]any{"mode": "KEY", "key": "file"}},
			map[string]any{"id": "shout", "actor": "starlark", "named": map[string]any{"script": "def main(file):\n    return file['content'].upper()\n"}})
		require.Contains(t, run(t, "epigraph run sum.json"), "THE SUM OF 2 AND 40 IS 42.")
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "The sum of 2 and 40 is 42.", string(text))
	})
	t.Run("Graph/IsCheckedAgainstTheSchema", func(t *testing.T) {
		graph("faulty", map[string]any{"id": "add", "actor": "mcp/web/get-sum", "named": map[string]any{"a": "two", "b": 40}})
		out := run(t, "epigraph run faulty.json || true")
		require.Contains(t, out, "got string, want number")
	})
	t.Run("Agent/ActsThroughATool", func(t *testing.T) {
		path := filepath.Join(notes, "secret.txt")
		require.NoError(t, os.WriteFile(path, []byte("the word is sesame"), 0o600))
		// The reasoner is shown the schemas of the tools.
		decide := `!('path' in named.actions.read.schema.properties && 'message' in named.actions.repeat.schema.properties) ? dyn({'result': 'no schemas'}) : ` +
			`named.round == 1 ? dyn({'actions': [[{'action': 'read', 'arguments': {'path': '` + path + `'}}]]}) : ` +
			`named.round == 2 ? dyn({'actions': [[{'action': 'repeat', 'arguments': {'message': named.action_results[0].ok.content}}]]}) : ` +
			`dyn({'result': named.action_results[0].ok})`
		graph("agent", map[string]any{"id": "agent", "actor": "agent", "named": map[string]any{
			"user_input": "Find the word.", "reasoner": "cel", "reasoner_args": map[string]any{"expr": decide},
			"actions": map[string]any{"read": map[string]any{"actor": "mcp/files/read_text_file"}, "repeat": map[string]any{"actor": "mcp/web/echo"}},
		}})
		require.Contains(t, run(t, "epigraph run agent.json"), "Echo: the word is sesame")
	})
	t.Run("Agent/HasAllToolsOfAServer", func(t *testing.T) {
		path := filepath.Join(notes, "all.txt")
		require.NoError(t, os.WriteFile(path, []byte("the word is barley"), 0o600))
		decide := `named.round == 1 ? dyn({'actions': [[{'action': 'files_read_text_file', 'arguments': {'path': '` + path + `'}}]]}) : dyn({'result': named.action_results[0].ok})`
		graph("served", map[string]any{"id": "agent", "actor": "agent", "named": map[string]any{
			"user_input": "Find the word.", "reasoner": "cel", "reasoner_args": map[string]any{"expr": decide}, "actions": map[string]any{}, "mcp_servers": []string{"files"},
		}})
		require.Contains(t, run(t, "epigraph run served.json"), "the word is barley")
	})
	t.Run("Example/Runs", func(t *testing.T) {
		example, err := filepath.Abs("../../examples/agent/mcp.json")
		require.NoError(t, err)
		require.Contains(t, run(t, "epigraph run "+example), "Echo: The sum of 2 and 40 is 42.")
	})
	t.Run("Doctor/ReachesServers", func(t *testing.T) {
		doctor := exec.Command(bin, "doctor", "--data="+filepath.Join(dir, "data"))
		doctor.Env = env
		out, _ := doctor.CombinedOutput() // the exit code counts what was found
		require.Contains(t, string(out), "mcp-servers")
		require.Contains(t, string(out), "gone: ")
		require.NotContains(t, string(out), "files: ")
	})
	t.Run("Stop/EndsTheServers", func(t *testing.T) {
		children := func() (n int) {
			all, err := filepath.Glob("/proc/[0-9]*/cmdline")
			require.NoError(t, err)
			for _, name := range all {
				line, err := os.ReadFile(name)
				if err == nil && strings.Contains(string(line), "server-filesystem") && strings.Contains(string(line), notes) {
					n++
				}
			}
			return n
		}
		require.Equal(t, 1, children())
		p.stop(t)
		require.Zero(t, children())
	})
}
