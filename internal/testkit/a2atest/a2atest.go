// Package a2atest is a remote agent for tests, on the server of npm's @a2a-js/sdk, which
// scripts/ensure-mcp-servers installs. It must not know what is tested.
package a2atest

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
)

// Agent is an agent that runs until its test ends.
type Agent struct{ URL string }

// Message is one that the agent was sent.
type Message struct {
	MessageID string   `json:"messageId"`
	TaskID    string   `json:"taskId"`
	ContextID string   `json:"contextId"`
	Text      string   `json:"text"`
	Parts     []string `json:"parts"`
	Key       string   `json:"key"`
}

// Log is what the agent was asked for, how many of its tasks hold, and how many streams were asked for.
type Log struct {
	Messages []Message `json:"messages"`
	Canceled []string  `json:"canceled"`
	Held     int       `json:"held"`
	Streams  int       `json:"streams"`
}

// Start starts an agent with more environment: NO_STREAM, REST and TOKEN are those of agent.mjs. Where
// the SDK is not installed the test is skipped, or fails with TESTS_NO_SKIPS=1.
func Start(t testing.TB, env ...string) *Agent {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	modules := filepath.Join(filepath.Dir(here), "../../../bin/mcp/node_modules")
	node, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(filepath.Join(modules, "@a2a-js/sdk/package.json"))
	}
	if err != nil && os.Getenv("TESTS_NO_SKIPS") == "" {
		t.Skip("the npm package @a2a-js/sdk is not installed: run scripts/ensure-mcp-servers, which needs npm and its registry")
	}
	require.NoError(t, err, "run scripts/ensure-mcp-servers")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	require.NoError(t, l.Close())
	cmd := exec.Command(node, filepath.Join(filepath.Dir(here), "agent.mjs"))
	cmd.Env = append(append(os.Environ(), fmt.Sprint("PORT=", port), "MODULES="+modules), env...)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
	a := &Agent{URL: fmt.Sprintf("http://127.0.0.1:%d", port)}
	testkit.Eventually(t, func() bool {
		resp, err := http.Get(a.URL + "/log")
		if err == nil {
			_ = resp.Body.Close() // nothing of it is read
		}
		return err == nil
	}, "the agent does not listen")
	return a
}

// Log is what the agent was asked for so far.
func (a *Agent) Log(t testing.TB) (out Log) {
	t.Helper()
	resp, err := http.Get(a.URL + "/log")
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }() // it was read
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&out))
	return out
}

// Release lets the tasks that hold go on.
func (a *Agent) Release(t testing.TB) { a.post(t, "/release") }

// Rename changes the description in the card.
func (a *Agent) Rename(t testing.TB) { a.post(t, "/rename") }

func (a *Agent) post(t testing.TB, path string) {
	t.Helper()
	resp, err := http.Post(a.URL+path, "", nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
}
