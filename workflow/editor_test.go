package workflow_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// editor is the language server for YAML of editors, as a process that is spoken to over its standard
// input and output.
type editor struct {
	in       io.WriteCloser
	messages chan message
	asked    int
}

// message is one of the protocol of language servers: a request, an answer or a notification.
type message struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
}

// openEditor starts the server, which scripts/ensure-editor installs. Where it is not installed the
// test is skipped, or fails with TESTS_NO_SKIPS=1.
func openEditor(t *testing.T) *editor {
	t.Helper()
	main, err := filepath.Abs("../bin/editor/node_modules/yaml-language-server/bin/yaml-language-server")
	require.NoError(t, err)
	node, err := exec.LookPath("node")
	if err == nil {
		_, err = os.Stat(main)
	}
	if err != nil && os.Getenv("TESTS_NO_SKIPS") == "" {
		t.Skip("the language server for YAML is not installed: run scripts/ensure-editor, which needs npm and its registry")
	}
	require.NoError(t, err, "run scripts/ensure-editor")
	cmd := exec.Command(node, main, "--stdio")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	e := &editor{in: in, messages: make(chan message, 100)}
	go e.read(out)
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		for range e.messages { // until its output is read
		}
		_ = cmd.Wait()
	})
	e.ask(t, "initialize", map[string]any{"processId": os.Getpid(), "rootUri": nil, "capabilities": map[string]any{"workspace": map[string]any{"configuration": true},
		"textDocument": map[string]any{"completion": map[string]any{"completionItem": map[string]any{"snippetSupport": true}}}}})
	e.send(t, message{Method: "initialized", Params: encoded(t, map[string]any{})})
	return e
}

func encoded(t *testing.T, v any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(v)
	require.NoError(t, err)
	return raw
}

// read hands on what the server says, until it ends.
func (e *editor) read(out io.Reader) {
	defer close(e.messages)
	r := bufio.NewReader(out)
	for {
		size := 0
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			if line = strings.TrimSpace(line); line == "" {
				break
			}
			if n, ok := strings.CutPrefix(line, "Content-Length: "); ok {
				size, _ = strconv.Atoi(n) // a wrong one is no message
			}
		}
		body := make([]byte, size)
		if _, err := io.ReadFull(r, body); err != nil {
			return
		}
		var m message
		if json.Unmarshal(body, &m) == nil {
			e.messages <- m
		}
	}
}

func (e *editor) send(t *testing.T, m message) {
	t.Helper()
	raw := encoded(t, struct {
		Version string `json:"jsonrpc"`
		message
	}{"2.0", m})
	_, err := fmt.Fprintf(e.in, "Content-Length: %d\r\n\r\n%s", len(raw), raw)
	require.NoError(t, err)
}

// hear waits for a message that is wanted, and answers what the server asks meanwhile.
func (e *editor) hear(t *testing.T, wanted func(m *message) bool) message {
	t.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case m, ok := <-e.messages:
			require.True(t, ok, "the language server has ended")
			switch {
			case wanted(&m):
				return m
			case m.Method == "workspace/configuration":
				var p struct{ Items []any }
				require.NoError(t, json.Unmarshal(m.Params, &p))
				e.send(t, message{ID: m.ID, Result: encoded(t, make([]any, len(p.Items)))})
			case m.Method != "" && m.ID != nil:
				e.send(t, message{ID: m.ID, Result: json.RawMessage("null")})
			}
		case <-late:
			require.Fail(t, "the language server does not answer")
		}
	}
}

// ask makes a request and returns the answer.
func (e *editor) ask(t *testing.T, method string, params any) json.RawMessage {
	t.Helper()
	e.asked++
	id := json.RawMessage(strconv.Itoa(e.asked))
	e.send(t, message{ID: id, Method: method, Params: encoded(t, params)})
	return e.hear(t, func(m *message) bool { return m.Method == "" && string(m.ID) == string(id) }).Result
}

// open opens a text in the folder, and returns its address and what is marked in it.
func (e *editor) open(t *testing.T, file, text string) (address string, out []marked) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	address = (&url.URL{Scheme: "file", Path: filepath.ToSlash(file)}).String()
	e.send(t, message{Method: "textDocument/didOpen", Params: encoded(t, map[string]any{"textDocument": map[string]any{"uri": address, "languageId": "yaml", "version": 1, "text": text}})})
	var p struct {
		URI         string
		Diagnostics []struct {
			Message string
			Range   struct{ Start struct{ Line, Character int } }
		}
	}
	e.hear(t, func(m *message) bool {
		return m.Method == "textDocument/publishDiagnostics" && json.Unmarshal(m.Params, &p) == nil && p.URI == address
	})
	for _, d := range p.Diagnostics {
		out = append(out, marked{d.Range.Start.Line + 1, d.Message})
	}
	return address, out
}

// marked is a line with what is said of it.
type marked struct {
	line    int
	message string
}

// at is a place in a text, from 0 on, as the protocol has it.
func at(address string, line, column int) map[string]any {
	return map[string]any{"textDocument": map[string]any{"uri": address}, "position": map[string]any{"line": line, "character": column}}
}

// TestEditor writes workflows in the server behind the YAML of editors, with the published schema.
func TestEditor(t *testing.T) {
	t.Parallel()
	e := openEditor(t)
	schema, err := filepath.Abs("../docs/workflow.schema.json")
	require.NoError(t, err)
	dir := t.TempDir()
	written := func(t *testing.T, name, text string) (string, []marked) {
		t.Helper()
		return e.open(t, filepath.Join(dir, name), "# yaml-language-server: $schema="+schema+"\n"+text)
	}
	t.Run("Examples/HaveNoMark", func(t *testing.T) {
		files, err := filepath.Glob("../examples/workflow/*.yaml")
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, ".test.yaml") {
				continue
			}
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			_, got := written(t, filepath.Base(file), string(text))
			require.Empty(t, got, file)
		}
	})
	t.Run("WrongKey/IsMarked", func(t *testing.T) {
		_, got := written(t, "wrong.yaml", "name: Tea\nstepz: []\nsteps:\n  - {id: a, type: transform, template: x}\n  - {id: b, type: transphorm}\n")
		require.Len(t, got, 2)
		slices.SortFunc(got, func(a, b marked) int { return a.line - b.line })
		require.Equal(t, marked{3, "Property stepz is not allowed."}, got[0])
		require.Equal(t, 6, got[1].line)
		require.Contains(t, got[1].message, `"transform"`, "the types are told")
	})
	t.Run("Completion/KnowsTheKeys", func(t *testing.T) {
		address, _ := written(t, "complete.yaml", "name: Tea\n\nsteps:\n  - id: a\n    type: \n")
		labels := func(line, column int) (out []string) {
			var got struct{ Items []struct{ Label string } }
			require.NoError(t, json.Unmarshal(e.ask(t, "textDocument/completion", at(address, line, column)), &got))
			for _, item := range got.Items {
				out = append(out, item.Label)
			}
			return out
		}
		require.Subset(t, labels(2, 0), []string{"agents", "graph", "triggers", "budget"})
		require.Subset(t, labels(5, 10), []string{"agent", "switch", "loop", "best_of"})
	})
	t.Run("Hover/SaysWhatAKeyMeans", func(t *testing.T) {
		address, _ := written(t, "hover.yaml", "name: Tea\nbudget: {usd: 1}\nsteps:\n  - {id: a, type: transform, template: x}\n")
		var got struct{ Contents struct{ Value string } }
		require.NoError(t, json.Unmarshal(e.ask(t, "textDocument/hover", at(address, 2, 2)), &got))
		require.NotEmpty(t, got.Contents.Value)
	})
}
