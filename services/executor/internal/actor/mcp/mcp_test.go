//go:build unix

package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/genai"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/mcptest"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/mcp"
	"github.com/epigraph-run/epigraph/workgraph"
)

// fake is the variable that makes this binary a server with a fault, which its value names.
const fake = "MCP_TEST_SERVER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(fake); mode != "" {
		serveFault(mode)
		return
	}
	testkit.Main(m)
}

// serveFault is a server over standard input and output.
func serveFault(mode string) {
	switch mode {
	case "exits":
		fmt.Fprintln(os.Stderr, "no license found")
		os.Exit(3)
	case "silent": // it never reads nor answers
		select {}
	case "clings": // it has a child, and neither heeds its end of input nor a request to terminate
		child := exec.Command("sleep", "600")
		child.Stdout = os.Stdout
		if err := child.Start(); err != nil {
			os.Exit(4)
		}
		if err := os.WriteFile(os.Getenv("PIDS"), []byte(fmt.Sprint(os.Getpid(), " ", child.Process.Pid)), 0o600); err != nil {
			os.Exit(5)
		}
		ignoreSIGTERM()
		answers(os.Stdin)
		select {}
	case "noisy":
		fmt.Println("Welcome to the noisy server!")
		answers(os.Stdin)
	case "floods", "dies":
		answers(os.Stdin)
	}
}

// answers speaks the protocol by hand, as simply as can be.
func answers(in *os.File) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Name string `json:"name"`
			} `json:"params"`
		}
		if json.Unmarshal(lines.Bytes(), &m) != nil || len(m.ID) == 0 {
			continue
		}
		reply := func(result string) { fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result) }
		switch m.Method {
		case "initialize":
			reply(`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"hand","version":"7"}}`)
		case "tools/list":
			reply(`{"tools":[{"name":"echo","inputSchema":{"type":"object"}},{"name":"flood","inputSchema":{"type":"object"}},{"name":"die","inputSchema":{"type":"object"}},{"name":"hang","inputSchema":{"type":"object"}}]}`)
		case "tools/call":
			switch m.Params.Name {
			case "flood":
				fmt.Print(`{"jsonrpc":"2.0","id":`, string(m.ID), `,"result":{"content":[{"type":"text","text":"`, strings.Repeat("a", 2<<20), "\"}]}}\n")
			case "die":
				fmt.Fprintln(os.Stderr, "segmentation fault, sort of")
				os.Exit(9)
			case "hang":
				select {}
			default:
				fmt.Println("something was called")
				reply(`{"content":[{"type":"text","text":"pid ` + strconv.Itoa(os.Getpid()) + `"}]}`)
			}
		default:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`+"\n", m.ID)
		}
	}
}

// faulty is the configuration of such a server.
func faulty(t *testing.T, mode string, env ...string) mcp.Server {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	out := mcp.Server{Command: self, Env: map[string]conf.Secret{fake: conf.NewSecret(mode)}, ConnectTimeout: 20 * time.Second}
	for i := 0; i < len(env); i += 2 {
		out.Env[env[i]] = conf.NewSecret(env[i+1])
	}
	return out
}

// memory keeps lists in this process.
type memory struct {
	lists  sync.Map
	writes atomic.Int64
}

func (m *memory) KeptTools(_ context.Context, server string) ([]byte, error) {
	list, _ := m.lists.Load(server)
	raw, _ := list.([]byte)
	return raw, nil
}

func (m *memory) KeepTools(_ context.Context, server string, list []byte) error {
	m.lists.Store(server, list)
	m.writes.Add(1)
	return nil
}

// open makes servers that Run keeps connected.
func open(t *testing.T, servers map[string]mcp.Server) *mcp.Servers {
	t.Helper()
	return openWith(t, servers, nil)
}

func openWith(t *testing.T, servers map[string]mcp.Server, m mcp.Memory) *mcp.Servers {
	t.Helper()
	return openTraced(t, servers, m, sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample())))
}

func openTraced(t *testing.T, servers map[string]mcp.Server, m mcp.Memory, tracers trace.TracerProvider) *mcp.Servers {
	t.Helper()
	cfg := mcp.Config{Servers: servers}
	require.NoError(t, cfg.Validate())
	s, err := mcp.New(cfg, mcp.Deps{Version: "test", Logger: slog.New(slog.DiscardHandler), TracerProvider: tracers, Propagator: propagation.TraceContext{}, Memory: m})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
		require.NoError(t, s.Close())
	})
	return s
}

// listed waits until the tool is listed.
func listed(t *testing.T, s *mcp.Servers, name string) actor.Spec {
	t.Helper()
	var found actor.Spec
	testkit.Within(t, time.Minute, 10*time.Millisecond, func() bool {
		for _, spec := range s.Specs() {
			if spec.Name == name && spec.Unavailable == "" {
				found = spec
				return true
			}
		}
		return false
	}, "%s is not listed", name)
	return found
}

type attempt struct {
	ctx    context.Context
	named  string
	own    string
	kind   workgraph.Kind
	effect workgraph.Effect
	beats  func(json.RawMessage)
}

// call calls a tool as an engine would.
func call(t *testing.T, s *mcp.Servers, name string, a attempt) (string, error) {
	t.Helper()
	act, ok := s.Actor(name)
	require.True(t, ok)
	info, ok := s.ActorInfo(name)
	require.True(t, ok)
	start := workgraph.Start{RunID: "run_1", Ref: workgraph.Ref{Node: "n", Visit: 1}, Attempt: 2, Generation: 1, Actor: name, Effect: info.Effect, Kind: a.kind}
	if a.effect != "" {
		start.Effect = a.effect
	}
	require.NoError(t, json.Unmarshal([]byte(a.named), &start.Named))
	start.Own = start.Named
	if a.own != "" {
		start.Own = nil
		require.NoError(t, json.Unmarshal([]byte(a.own), &start.Own))
	}
	if a.ctx == nil {
		a.ctx = t.Context()
	}
	out, err := act.Call(a.ctx, workgraph.NewCall(start, workgraph.CallOptions{Heartbeat: a.beats}))
	if err != nil {
		return "", err
	}
	require.Len(t, out.Values, 1)
	return string(out.Values[0]), nil
}

// value is the value of a call that succeeds, fails the error of one that does not.
func value(t *testing.T, s *mcp.Servers, name, named string) string {
	t.Helper()
	v, err := call(t, s, name, attempt{named: named})
	require.NoError(t, err)
	return v
}

func fails(t *testing.T, s *mcp.Servers, name string, a attempt) *workgraph.Error {
	t.Helper()
	_, err := call(t, s, name, a)
	var e *workgraph.Error
	require.ErrorAs(t, err, &e)
	return e
}

// TestServers calls servers of other people.
func TestServers(t *testing.T) {
	t.Parallel()
	command, args := mcptest.Server(t, "everything")
	files, fileArgs := mcptest.Server(t, "filesystem")
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	s := open(t, map[string]mcp.Server{
		"every": {Command: command, Args: args, Env: map[string]conf.Secret{"GREETING": conf.NewSecret("hello")}},
		"web":   {URL: mcptest.HTTP(t), AllowPrivate: []string{"127.0.0.0/8"}},
		"files": {Command: files, Args: append(fileArgs, dir), Tools: []string{"write_file", "read_text_file", "list_directory", "edit_file"}, Effects: map[string]workgraph.Effect{"edit_file": workgraph.Idempotent}},
	})
	for _, server := range []string{"every", "web"} {
		name := func(tool string) string { return "mcp/" + server + "/" + tool }
		t.Run(server+"/List", func(t *testing.T) {
			spec := listed(t, s, name("get-sum"))
			require.Equal(t, "Returns the sum of two numbers", spec.Description)
			require.Equal(t, workgraph.Pure, spec.Effect, "by readOnlyHint")
			info, ok := s.ActorInfo(name("get-sum"))
			require.True(t, ok)
			require.JSONEq(t, spec.Schema, string(info.Schema))
			require.Contains(t, spec.Schema, `"required":["a","b"]`)
			require.NotEmpty(t, info.Version)
			require.False(t, s.Absent(name("get-sum")))
			require.True(t, s.Absent(name("get-som")))
			info, _ = s.ActorInfo(name("gzip-file-as-resource"))
			require.Equal(t, workgraph.Idempotent, info.Effect, "by idempotentHint")
			info, _ = s.ActorInfo(name("toggle-simulated-logging"))
			require.Equal(t, workgraph.Unsafe, info.Effect)
		})
		t.Run(server+"/Results", func(t *testing.T) {
			require.JSONEq(t, `"The sum of 2 and 3 is 5."`, value(t, s, name("get-sum"), `{"a": 2, "b": 3}`))
			require.JSONEq(t, `{"temperature": 33, "conditions": "Cloudy", "humidity": 82}`, value(t, s, name("get-structured-content"), `{"location": "New York"}`))
			image := value(t, s, name("get-tiny-image"), `{}`)
			require.Contains(t, image, `"type":"image"`)
			require.Contains(t, image, `"mime_type":"image/png"`)
			require.Contains(t, value(t, s, name("get-resource-links"), `{"count": 1}`), `"uri":"demo://`)
		})
		t.Run(server+"/Propagated", func(t *testing.T) {
			got, err := call(t, s, name("echo"), attempt{named: `{"message": "passed on", "previous_agent_results": ["large"]}`, own: `{}`})
			require.NoError(t, err)
			require.JSONEq(t, `"Echo: passed on"`, got)
		})
		t.Run(server+"/Error", func(t *testing.T) {
			e := fails(t, s, name("get-sum"), attempt{named: `{"a": "two", "b": 3}`})
			require.Equal(t, mcp.ReasonTool, e.Reason)
			require.Equal(t, workgraph.Permanent, e.Type)
			require.Contains(t, e.Message, "expected number")
		})
		t.Run(server+"/Progress", func(t *testing.T) {
			var mu sync.Mutex
			var seen []string
			_, err := call(t, s, name("trigger-long-running-operation"), attempt{named: `{"duration": 0.6, "steps": 3}`, beats: func(at json.RawMessage) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, string(at))
			}})
			require.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			require.NotEmpty(t, seen)
			require.JSONEq(t, `{"progress": 1, "total": 3}`, seen[0])
		})
		t.Run(server+"/Cancel", func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			e := fails(t, s, name("trigger-long-running-operation"), attempt{ctx: ctx, named: `{"duration": 60, "steps": 60}`, beats: func(json.RawMessage) { cancel() }})
			require.Equal(t, workgraph.Unknown, e.Type)
			require.JSONEq(t, `"Echo: still there"`, value(t, s, name("echo"), `{"message": "still there"}`))
		})
		t.Run(server+"/Unknown", func(t *testing.T) {
			e := fails(t, s, name("get-som"), attempt{named: `{}`})
			require.Equal(t, mcp.ReasonNoTool, e.Reason)
			require.Contains(t, e.Message, `did you mean "`+name("get-sum")+`"?`)
		})
	}
	t.Run("Environment", func(t *testing.T) {
		var printed string
		require.NoError(t, json.Unmarshal([]byte(value(t, s, "mcp/every/get-env", `{}`)), &printed))
		var env map[string]string
		require.NoError(t, json.Unmarshal([]byte(printed), &env))
		require.Equal(t, "hello", env["GREETING"])
		for name := range env {
			require.Contains(t, []string{"PATH", "HOME", "LANG", "TMPDIR", "GREETING"}, name, "this process's own may be secret")
		}
	})
	t.Run("Files", func(t *testing.T) {
		listed(t, s, "mcp/files/write_file")
		path := filepath.Join(dir, "note.txt")
		named, err := json.Marshal(map[string]string{"path": path, "content": "written by a tool"})
		require.NoError(t, err)
		value(t, s, "mcp/files/write_file", string(named))
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "written by a tool", string(text))
		require.JSONEq(t, `{"content": "written by a tool"}`, value(t, s, "mcp/files/read_text_file", `{"path": "`+path+`"}`))
		e := fails(t, s, "mcp/files/read_text_file", attempt{named: `{"path": "/etc/passwd"}`})
		require.Equal(t, mcp.ReasonTool, e.Reason)
		require.Contains(t, e.Message, "Access denied")
		info, _ := s.ActorInfo("mcp/files/edit_file")
		require.Equal(t, workgraph.Idempotent, info.Effect, "by the configuration")
		require.True(t, s.Absent("mcp/files/move_file"), "only some are allowed")
		require.Equal(t, mcp.ReasonNoTool, fails(t, s, "mcp/files/move_file", attempt{named: `{}`}).Reason)
	})
}

// inProcess is a server of the SDK whose faults are at hand.
type inProcess struct {
	*sdk.Server
	url string
	mu  sync.Mutex
	// requests are the headers of what came in.
	requests []http.Header
	// handler is what serves now.
	handler http.Handler
	// close ends the server.
	close func()
}

func serve(t *testing.T) *inProcess {
	t.Helper()
	p := &inProcess{}
	p.restart()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.requests = append(p.requests, r.Header.Clone())
		h := p.handler
		p.mu.Unlock()
		h.ServeHTTP(w, r)
	}))
	p.close = sync.OnceFunc(func() {
		p.forget()
		srv.CloseClientConnections()
		srv.Close()
	})
	t.Cleanup(p.close)
	p.url = srv.URL
	return p
}

// forget ends all sessions, without a word to the clients.
func (p *inProcess) forget() {
	if p.Server != nil {
		for s := range p.Sessions() {
			_ = s.Close() // the client may have ended it
		}
	}
}

// restart forgets all sessions and tools.
func (p *inProcess) restart() {
	p.forget()
	s := sdk.NewServer(&sdk.Implementation{Name: "in-process", Version: "1"}, nil)
	h := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Server, p.handler = s, h
}

func (p *inProcess) config() mcp.Server {
	return mcp.Server{URL: p.url, AllowPrivate: []string{"127.0.0.0/8"}, Headers: map[string]conf.Secret{"Authorization": conf.NewSecret("Bearer s3cret")}}
}

// tool adds a tool; schema may be empty.
func (p *inProcess) tool(name, schema string, f sdk.ToolHandler) {
	if schema == "" {
		schema = `{"type": "object"}`
	}
	p.AddTool(&sdk.Tool{Name: name, InputSchema: json.RawMessage(schema)}, f)
}

func text(s string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: s}}}
}

func TestCall(t *testing.T) {
	t.Parallel()
	p := serve(t)
	var meta sdk.Meta
	var arguments string
	p.tool("meta", `{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"known": {}}}`, func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		meta, arguments = r.Params.Meta, string(r.Params.Arguments)
		return text("ok"), nil
	})
	p.tool("exact", "", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{StructuredContent: json.RawMessage(`{"z":9007199254740993,"a":1.0,"list":[18446744073709551615]}`)}, nil
	})
	p.tool("nothing", "", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{}, nil
	})
	p.tool("large", "", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return text(strings.Repeat("a", 5<<20)), nil
	})
	p.tool("fails", "", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		r := text(strings.Repeat("no! ", 4000))
		r.IsError = true
		return r, nil
	})
	p.tool("odd", `{"type": "object", "properties": {"x": {"$ref": "https://example.com/other.json"}}}`, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return text("ok"), nil })
	started, canceled := make(chan struct{}, 1), make(chan struct{}, 1)
	p.tool("hangs", "", func(ctx context.Context, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		started <- struct{}{}
		<-ctx.Done()
		canceled <- struct{}{}
		return nil, ctx.Err()
	})
	slow := p.config()
	slow.Timeout = 300 * time.Millisecond
	spans := tracetest.NewInMemoryExporter()
	s := openTraced(t, map[string]mcp.Server{"p": p.config(), "slow": slow}, nil, sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))
	listed(t, s, "mcp/p/meta")
	listed(t, s, "mcp/slow/hangs")

	t.Run("Meta/HasEffectKeyAndTrace", func(t *testing.T) {
		ctx, span := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample())).Tracer("").Start(t.Context(), "parent")
		defer span.End()
		_, err := call(t, s, "mcp/p/meta", attempt{ctx: ctx, named: `{"known": 9007199254740993, "own": true, "travels": 1}`, own: `{"own": true}`})
		require.NoError(t, err)
		require.Equal(t, "run_1/n/1/0/1", meta["epigraph.run/effect-key"])
		require.Contains(t, meta["traceparent"], span.SpanContext().TraceID().String())
		require.JSONEq(t, `{"known": 9007199254740993, "own": true}`, arguments)
		require.Contains(t, arguments, "9007199254740993")
	})
	t.Run("Span/IsTheExecutionUnlessOneAroundItIs", func(t *testing.T) {
		// Each is the span of one call: of a node, of an agent's tool, and of one that fails.
		for _, c := range []struct {
			ctx  context.Context
			tool string
			want map[attribute.Key]string
		}{
			{t.Context(), "meta", map[attribute.Key]string{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "meta", "mcp.method.name": "tools/call", "epigraph.mcp.server": "p"}},
			{genai.WithTool(t.Context()), "meta", map[attribute.Key]string{"gen_ai.tool.name": "meta", "mcp.method.name": "tools/call", "epigraph.mcp.server": "p"}},
			{genai.WithTool(t.Context()), "fails", map[attribute.Key]string{"gen_ai.tool.name": "fails", "mcp.method.name": "tools/call", "epigraph.mcp.server": "p", "error.type": "tool_error"}},
		} {
			spans.Reset()
			_, err := call(t, s, "mcp/p/"+c.tool, attempt{ctx: c.ctx, named: `{}`})
			require.Equal(t, c.want["error.type"] != "", err != nil)
			var got []tracetest.SpanStub
			for _, one := range spans.GetSpans() {
				if one.SpanKind == trace.SpanKindClient && one.Name == "tools/call "+c.tool {
					got = append(got, one)
				}
			}
			require.Len(t, got, 1)
			said := map[attribute.Key]string{}
			for _, kv := range got[0].Attributes {
				said[kv.Key] = kv.Value.String()
			}
			require.Equal(t, c.want, said)
			require.Equal(t, c.want["error.type"], got[0].Status.Description, "what a tool says is content")
		}
	})
	t.Run("Plan/OnlyTheArgumentsOfTheToolAreSent", func(t *testing.T) {
		given := attempt{named: `{"known": 1, "request": "do it", "references": [], "x": 2}`, kind: workgraph.ProblemKind}
		_, err := call(t, s, "mcp/p/meta", given)
		require.NoError(t, err)
		require.JSONEq(t, `{"known": 1, "x": 2}`, arguments)
		given.kind = workgraph.ActionKind
		_, err = call(t, s, "mcp/p/meta", given)
		require.NoError(t, err)
		require.JSONEq(t, given.named, arguments, "a node of another graph states what it means")
	})
	t.Run("Headers/AreSent", func(t *testing.T) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, h := range p.requests {
			require.Equal(t, "Bearer s3cret", h.Get("Authorization"))
		}
	})
	t.Run("Structured/KeepsDigitsAndOrder", func(t *testing.T) {
		require.Equal(t, `{"z":9007199254740993,"a":1.0,"list":[18446744073709551615]}`, value(t, s, "mcp/p/exact", `{}`))
	})
	t.Run("Nothing/IsNull", func(t *testing.T) {
		require.Equal(t, `null`, value(t, s, "mcp/p/nothing", `{}`))
	})
	t.Run("ToolError/IsTypedAndBounded", func(t *testing.T) {
		e := fails(t, s, "mcp/p/fails", attempt{named: `{}`})
		require.Equal(t, mcp.ReasonTool, e.Reason)
		require.Equal(t, workgraph.Permanent, e.Type)
		require.Less(t, len(e.Message), 3000)
	})
	t.Run("Schema/OfElsewhereIsLeftOut", func(t *testing.T) {
		require.Empty(t, listed(t, s, "mcp/p/odd").Schema)
		require.JSONEq(t, `"ok"`, value(t, s, "mcp/p/odd", `{}`))
	})
	t.Run("Cancel/ReachesTheServer", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-started
			cancel()
		}()
		_, err := call(t, s, "mcp/p/hangs", attempt{ctx: ctx, named: `{}`})
		require.Error(t, err)
		<-canceled
	})
	t.Run("Timeout/IsTypedByTheEffect", func(t *testing.T) {
		for effect, want := range map[workgraph.Effect]workgraph.ErrorType{workgraph.Pure: workgraph.Retryable, workgraph.Unsafe: workgraph.Unknown} {
			e := fails(t, s, "mcp/slow/hangs", attempt{named: `{}`, effect: effect})
			require.Equal(t, workgraph.ReasonTimeout, e.Reason)
			require.Equal(t, want, e.Type)
			<-started
			<-canceled
		}
	})
	t.Run("Request/IsBounded", func(t *testing.T) {
		e := fails(t, s, "mcp/p/meta", attempt{named: `{"known": "` + strings.Repeat("a", 2<<20) + `"}`})
		require.Equal(t, mcp.ReasonRequestSize, e.Reason)
	})
	t.Run("Response/IsBounded", func(t *testing.T) {
		e := fails(t, s, "mcp/p/large", attempt{named: `{}`, effect: workgraph.Unsafe})
		require.Equal(t, workgraph.Unknown, e.Type, "it was performed")
		require.Contains(t, e.Message, "more than 4194304 bytes")
		testkit.Within(t, time.Minute, 50*time.Millisecond, func() bool {
			got, err := call(t, s, "mcp/p/nothing", attempt{named: `{}`})
			return err == nil && got == `null`
		}, "it is not connected again")
	})
	t.Run("List/FollowsChanges", func(t *testing.T) {
		require.True(t, s.Absent("mcp/p/fresh"))
		p.tool("fresh", "", func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return text("new"), nil })
		listed(t, s, "mcp/p/fresh")
		require.JSONEq(t, `"new"`, value(t, s, "mcp/p/fresh", `{}`))
		p.RemoveTools("fresh")
		testkit.Within(t, time.Minute, 10*time.Millisecond, func() bool { return s.Absent("mcp/p/fresh") }, "it is still listed")
	})
}

func TestDown(t *testing.T) {
	t.Parallel()
	t.Run("Restarted/IsReachedAgain", func(t *testing.T) {
		t.Parallel()
		p := serve(t)
		hello := func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return text("hello"), nil }
		p.tool("hello", "", hello)
		s := open(t, map[string]mcp.Server{"p": p.config()})
		listed(t, s, "mcp/p/hello")
		p.restart()
		p.tool("hello", "", hello)
		testkit.Within(t, time.Minute, 50*time.Millisecond, func() bool {
			got, err := call(t, s, "mcp/p/hello", attempt{named: `{}`, effect: workgraph.Unsafe})
			if err != nil {
				var e *workgraph.Error
				require.ErrorAs(t, err, &e)
				require.Equal(t, mcp.ReasonDown, e.Reason)
				return false
			}
			return got == `"hello"`
		}, "it is not reached again")
	})
	t.Run("Never/IsTakenOnTrust", func(t *testing.T) {
		t.Parallel()
		down := mcp.Server{URL: "http://127.0.0.1:1/mcp", AllowPrivate: []string{"127.0.0.0/8"}, Effects: map[string]workgraph.Effect{"read": workgraph.Pure}}
		s := open(t, map[string]mcp.Server{"down": down})
		require.False(t, s.Absent("mcp/down/write"))
		info, ok := s.ActorInfo("mcp/down/write")
		require.True(t, ok)
		require.Equal(t, workgraph.Unsafe, info.Effect)
		info, _ = s.ActorInfo("mcp/down/read")
		require.Equal(t, workgraph.Pure, info.Effect)
		e := fails(t, s, "mcp/down/write", attempt{named: `{}`})
		require.Equal(t, mcp.ReasonDown, e.Reason)
		require.Equal(t, workgraph.NotPerformed, e.Type)
		require.Positive(t, e.RetryAfter)
		require.Contains(t, e.Message, `the MCP server "down" is down: the host refused the connection`)
		require.Equal(t, workgraph.Retryable, fails(t, s, "mcp/down/read", attempt{named: `{}`}).Type)
		specs := s.Specs()
		require.Len(t, specs, 1)
		require.Equal(t, "mcp/down/*", specs[0].Name)
		require.Contains(t, specs[0].Unavailable, "refused the connection")
	})
	t.Run("Never/ButByAnEarlierProcess", func(t *testing.T) {
		t.Parallel()
		p := serve(t)
		p.tool("hello", `{"type": "object", "properties": {"who": {"type": "string"}}}`, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return text("hello"), nil })
		m := &memory{}
		s := openWith(t, map[string]mcp.Server{"p": p.config()}, m)
		want := listed(t, s, "mcp/p/hello")
		testkit.Eventually(t, func() bool { return m.writes.Load() == 1 })
		gone := p.config()
		p.close()
		known := func(name string, of mcp.Server) (found actor.Spec) {
			s := openWith(t, map[string]mcp.Server{"p": of}, m)
			testkit.Eventually(t, func() bool {
				for _, found = range s.Specs() {
				}
				return found.Unavailable != ""
			})
			require.Equal(t, name, found.Name)
			return found
		}
		got := known("mcp/p/hello", gone)
		require.Equal(t, want.Schema, got.Schema)
		require.Equal(t, want.Description, got.Description)
		require.Equal(t, workgraph.Unsafe, got.Effect)
		corrected := gone
		corrected.Effects = map[string]workgraph.Effect{"hello": workgraph.Pure}
		require.Equal(t, workgraph.Pure, known("mcp/p/hello", corrected).Effect)
		hidden := gone
		hidden.Tools = []string{"other"}
		known("mcp/p/*", hidden)
		elsewhere := gone
		elsewhere.URL = "http://127.0.0.1:1/mcp"
		known("mcp/p/*", elsewhere)
		require.EqualValues(t, 1, m.writes.Load(), "the same list is kept once")
	})
	t.Run("Private/IsRefused", func(t *testing.T) {
		t.Parallel()
		p := serve(t)
		cfg := p.config()
		cfg.AllowPrivate = nil
		s := open(t, map[string]mcp.Server{"p": cfg})
		e := fails(t, s, "mcp/p/x", attempt{named: `{}`})
		require.Contains(t, e.Message, "not a public address")
		require.Empty(t, p.requests)
	})
	t.Run("NotConfigured/IsNoActor", func(t *testing.T) {
		t.Parallel()
		s := open(t, nil)
		require.True(t, s.Absent("mcp/other/x"))
		require.Equal(t, mcp.ReasonNoTool, fails(t, s, "mcp/other/x", attempt{named: `{}`}).Reason)
		require.False(t, s.Absent("http"))
		_, ok := s.ActorInfo("http")
		require.False(t, ok)
	})
	t.Run("Check/SaysWhichFail", func(t *testing.T) {
		t.Parallel()
		p := serve(t)
		got, err := mcp.Check(t.Context(), mcp.Config{Servers: map[string]mcp.Server{"good": p.config(), "bad": faulty(t, "exits")}},
			mcp.Deps{Logger: slog.New(slog.DiscardHandler), TracerProvider: sdktrace.NewTracerProvider(), Propagator: propagation.TraceContext{}})
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.Contains(t, got[0], `bad: the MCP server "bad" is down: the process ended: exit status 3, and said "no license found"`)
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	require.NoError(t, mcp.Config{Servers: map[string]mcp.Server{"a-1_b": {Command: "x"}, "b": {URL: "https://example.com/mcp"}}}.Validate())
	for name, c := range map[string]struct {
		name   string
		server mcp.Server
		says   string
	}{
		"Neither":  {"x", mcp.Server{}, "mcp.servers.x: give either command or url"},
		"Both":     {"x", mcp.Server{Command: "a", URL: "https://b"}, "give either command or url"},
		"Name":     {"X/y", mcp.Server{Command: "a"}, `got "X/y"`},
		"URL":      {"x", mcp.Server{URL: "ftp://b"}, "whole http or https address"},
		"Args":     {"x", mcp.Server{URL: "https://b", Args: []string{"a"}}, "belong to a command"},
		"Headers":  {"x", mcp.Server{Command: "a", Headers: map[string]conf.Secret{"a": conf.NewSecret("b")}}, "belong to a url"},
		"Effect":   {"x", mcp.Server{Command: "a", Effects: map[string]workgraph.Effect{"t": "HARMLESS"}}, `effects.t must be PURE, IDEMPOTENT or UNSAFE, got "HARMLESS"`},
		"Network":  {"x", mcp.Server{URL: "https://b", AllowPrivate: []string{"home"}}, `"home"`},
		"Negative": {"x", mcp.Server{Command: "a", Timeout: -1, Parallel: -1}, "timeout must not be negative"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.ErrorContains(t, mcp.Config{Servers: map[string]mcp.Server{c.name: c.server}}.Validate(), c.says)
		})
	}
}
