// Package mcptest finds the servers and clients of other people that tests call: of MCP, A2A and
// OpenAI's API. scripts/ensure-mcp-servers installs them. It must not know what is tested.
package mcptest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// ofMCP begins the names of the packages of MCP.
const ofMCP = "@modelcontextprotocol/"

// Server is the command of the npm package @modelcontextprotocol/server-NAME. Where it is not
// installed the test is skipped, or fails with TESTS_NO_SKIPS=1.
func Server(t testing.TB, name string) (command string, args []string) {
	t.Helper()
	node, modules := installed(t, ofMCP+"server-"+name)
	return node, []string{filepath.Join(modules, ofMCP, "server-"+name, "dist/index.js")}
}

// Client is the command of Node.js and the folder of npm packages, in which the clients of the
// TypeScript SDK and the inspector's command line are. Where they are not installed the test is
// skipped, or fails with TESTS_NO_SKIPS=1.
func Client(t testing.TB) (node, modules string) {
	t.Helper()
	for _, name := range []string{"sdk", "client"} {
		installed(t, ofMCP+name)
	}
	return installed(t, ofMCP+"inspector")
}

// A2A is the command of Node.js and the folder of npm packages, in which the client of the JavaScript SDK of
// A2A is. Where it is not installed the test is skipped, or fails with TESTS_NO_SKIPS=1.
func A2A(t testing.TB) (node, modules string) {
	t.Helper()
	return installed(t, "@a2a-js/sdk")
}

// OpenAI is the command of Node.js and the folder of npm packages, in which OpenAI's client is. Where it is
// not installed the test is skipped, or fails with TESTS_NO_SKIPS=1.
func OpenAI(t testing.TB) (node, modules string) {
	t.Helper()
	return installed(t, "openai")
}

func installed(t testing.TB, name string) (node, modules string) {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	modules = filepath.Join(filepath.Dir(here), "../../../bin/mcp/node_modules")
	node, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(filepath.Join(modules, name, "package.json"))
	}
	if err != nil && os.Getenv("TESTS_NO_SKIPS") == "" {
		t.Skipf("the npm package %s is not installed: run scripts/ensure-mcp-servers, which needs npm and its registry", name)
	}
	require.NoError(t, err, "run scripts/ensure-mcp-servers")
	return node, modules
}

// HTTP starts the server "everything" at an address of its own and returns its URL. It may not
// serve yet.
func HTTP(t testing.TB) string {
	t.Helper()
	node, args := Server(t, "everything")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	cmd := exec.Command(node, append(args, "streamableHttp")...)
	cmd.Env = append(os.Environ(), fmt.Sprint("PORT=", port))
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	return fmt.Sprintf("http://127.0.0.1:%d/mcp", port)
}
