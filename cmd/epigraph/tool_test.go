package main

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
)

// TestToolOfTheConfiguration lets an agent and a graph pay with a credential of the operator, and looks for
// the credential in everything that the API shows and that the server wrote down.
func TestToolOfTheConfiguration(t *testing.T) {
	const credential = "credential-of-the-operator"
	var paid atomic.Int32
	bank := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+credential {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		paid.Add(1)
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(bank.Close)
	dir := t.TempDir()
	d := serveFrom(t, `
executor:
  actors:
    http: {allow_private: ["127.0.0.0/8"]}
    tools:
      pay:
        description: Pays an amount.
        arguments: '{"url": "`+bank.URL+`", "method": "POST", "headers": {"Authorization": "Bearer `+credential+`"}}'
        schema: '{"type": "object", "required": ["json"], "properties": {"json": {"type": "object", "properties": {"cents": {"type": "integer", "maximum": 100}}}}}'
    agents:
      payer: {definition: '{"form": "tools", "actions": {"pay": {"actor": "tool/pay"}}}'}
`, fakellm.Script{Answer: func(r fakellm.Request) (fakellm.Reply, bool) {
		message := r.Messages[len(r.Messages)-1]
		last, asked := message.Content, message.Role == "user"
		switch {
		case asked && strings.Contains(last, "too much"):
			return fakellm.Reply{ToolCalls: []fakellm.ToolCall{{ID: "c1", Name: "pay", Arguments: `{"json": {"cents": 101}}`}}}, true
		case asked && strings.Contains(last, "pay"):
			return fakellm.Reply{ToolCalls: []fakellm.ToolCall{{ID: "c1", Name: "pay", Arguments: `{"json": {"cents": 7}}`}}}, true
		}
		return fakellm.Reply{Text: "It was done: " + last}, true
	}}, func(*stack.Config) {}, dir)
	var shown bytes.Buffer
	command := func(t *testing.T, in string, args ...string) (out string, code int) {
		t.Helper()
		var text bytes.Buffer
		code = cli.Main(t.Context(), build, append([]string{"--addr", d.GRPCAddr()}, args...), cli.IO{In: strings.NewReader(in), Out: &text, Err: &text})
		shown.Write(text.Bytes())
		return text.String(), code
	}
	t.Run("Graph/Pays", func(t *testing.T) {
		out, code := command(t, `{"nodes": [{"id": "pay", "actor": "tool/pay", "named": {"json": {"cents": 9}}}]}`, "run", "-")
		require.Zero(t, code, "%s", out)
		require.EqualValues(t, 1, paid.Load())
	})
	t.Run("Graph/MayNotStateWhatIsFixed", func(t *testing.T) {
		out, code := command(t, `{"nodes": [{"id": "pay", "actor": "tool/pay", "named": {"json": {"cents": 9}, "url": "http://elsewhere.example"}}]}`, "run", "-")
		require.NotZero(t, code)
		require.Contains(t, out, "url")
		require.EqualValues(t, 1, paid.Load())
	})
	t.Run("Agent/Pays", func(t *testing.T) {
		out, code := command(t, "pay\n", "chat", "agent/payer")
		require.Zero(t, code, "%s", out)
		require.Contains(t, out, "It was done")
		require.EqualValues(t, 2, paid.Load())
	})
	t.Run("Agent/IsHeldToTheSchema", func(t *testing.T) {
		out, code := command(t, "pay too much\n", "chat", "agent/payer")
		require.Zero(t, code, "%s", out)
		require.EqualValues(t, 2, paid.Load())
	})
	t.Run("Credential/IsShownNowhere", func(t *testing.T) {
		get := func(path string) []byte {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.HTTPAddr()+path, nil)
			require.NoError(t, err)
			resp, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, resp.StatusCode, "%s: %s", path, text)
			return text
		}
		shown.Write(get("/v1/actors"))
		var listed struct {
			Runs []struct{ ID string }
		}
		list := get("/v1/runs?page_size=100")
		require.NoError(t, json.Unmarshal(list, &listed))
		require.GreaterOrEqual(t, len(listed.Runs), 5, "%s", list)
		for _, r := range listed.Runs {
			for _, part := range []string{"", "/graph", "/visits", "/events"} {
				shown.Write(get("/v1/runs/" + r.ID + part))
			}
		}
		require.Contains(t, shown.String(), "tool/pay")
		require.NotContains(t, shown.String(), credential)
		require.NotContains(t, shown.String(), bank.URL)
		files := 0
		require.NoError(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			files++
			text, err := os.ReadFile(path)
			require.NotContains(t, string(text), credential, path)
			return err
		}))
		require.Positive(t, files)
	})
}
