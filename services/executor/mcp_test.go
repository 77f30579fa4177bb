package executor_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/mcp"
)

// toolServer serves a tool "greet" at an address until the test ends. Empty takes any address.
func toolServer(t *testing.T, address string) (url string) {
	t.Helper()
	s := sdk.NewServer(&sdk.Implementation{Name: "greeter", Version: "1"}, nil)
	s.AddTool(&sdk.Tool{Name: "greet", Description: "Greets.", InputSchema: json.RawMessage(`{"type": "object", "required": ["who"], "properties": {"who": {"type": "string"}}}`)},
		func(_ context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
			var a struct {
				Who string `json:"who"`
			}
			if err := json.Unmarshal(r.Params.Arguments, &a); err != nil {
				return nil, err
			}
			return &sdk.CallToolResult{StructuredContent: map[string]any{"said": "hello " + a.Who, "key": r.Params.Meta["epigraph.run/effect-key"]}}, nil
		})
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	srv := &http.Server{Handler: sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s }, nil), ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() {
		for session := range s.Sessions() {
			_ = session.Close() // the client may have ended it
		}
		_ = srv.Close() // there is nothing to lose
		<-done
	})
	return "http://" + l.Addr().String()
}

// withTools configures one MCP server.
func withTools(url string) func(*executor.Config) {
	return func(c *executor.Config) {
		c.Actors.MCP.Servers = map[string]mcp.Server{"hi": {URL: url, AllowPrivate: []string{"127.0.0.0/8"}}}
	}
}

func greet(named ...string) *graphv1.Node {
	n := &graphv1.Node{Id: "greet", Actor: "mcp/hi/greet", Named: map[string]*graphv1.Payload{}}
	for i := 0; i < len(named); i += 2 {
		n.Named[named[i]] = value(named[i+1])
	}
	return n
}

func TestMCP(t *testing.T) {
	f := serve(t, nil, withTools(toolServer(t, "127.0.0.1:0")))
	var tool *executorv1.ActorInfo
	testkit.Eventually(t, func() bool {
		r, err := f.ListActors(t.Context(), &executorv1.ListActorsRequest{})
		require.NoError(t, err)
		for _, a := range r.GetActors() {
			if a.GetName() == "mcp/hi/greet" {
				tool = a
			}
		}
		return tool != nil
	})
	t.Run("List/HasSchemaAndEffect", func(t *testing.T) {
		require.Equal(t, "Greets.", tool.GetDescription())
		require.Equal(t, graphv1.Effect_EFFECT_UNSAFE, tool.GetEffect())
		require.Empty(t, tool.GetUnavailable())
		require.Contains(t, string(tool.GetArgsSchema().GetJson()), `"required":["who"]`)
	})
	for name, c := range map[string]struct {
		node *graphv1.Node
		says string
	}{
		"Validate/UnknownTool":     {&graphv1.Node{Id: "x", Actor: "mcp/hi/greed"}, "did you mean mcp/hi/greet?"},
		"Validate/UnknownServer":   {&graphv1.Node{Id: "x", Actor: "mcp/ho/greet"}, "did you mean mcp/hi/greet?"},
		"Validate/Argument":        {greet("who", `7`), "got number, want string"},
		"Validate/MissingArgument": {greet(), "who"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := f.ValidateGraph(t.Context(), &executorv1.ValidateGraphRequest{Graph: nodes(c.node), Input: &executorv1.RunInput{}})
			require.NoError(t, err)
			require.NotEmpty(t, r.GetFaults())
			require.Contains(t, r.GetFaults()[0].String(), c.says)
		})
	}
	t.Run("Run/GetsTheResult", func(t *testing.T) {
		run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(greet("who", `"ada"`))})
		require.NoError(t, err)
		run = f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
		require.JSONEq(t, `{"said": "hello ada", "key": "`+run.GetId()+`/greet/1/0/1"}`, string(run.GetResult().GetJson()))
	})
}

// TestMCP_Agent has agents with all tools of a server.
func TestMCP_Agent(t *testing.T) {
	f := serve(t, nil, withTools(toolServer(t, "127.0.0.1:0")))
	start := func(t *testing.T, server, actions string) string {
		t.Helper()
		n := &graphv1.Node{Id: "ask", Actor: "agent", Retry: &graphv1.Retry{MaxAttempts: 1}, Named: map[string]*graphv1.Payload{
			"user_input": value(`"hi"`), "form": value(`"tools"`), "reasoner": value(`"cel"`), "reasoner_args": value(`{"expr": "{'result': named.tools}"}`),
			"task_tools": value(`[]`), "actions": value(actions), "mcp_servers": value(`["` + server + `"]`),
		}}
		run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(n)})
		require.NoError(t, err)
		return run.GetId()
	}
	t.Run("HasAllTools", func(t *testing.T) {
		run := f.wait(t, start(t, "hi", `{}`), executorv1.RunState_RUN_STATE_COMPLETED)
		got := string(run.GetResult().GetJson())
		require.Contains(t, got, `"name":"hi_greet"`)
		require.Contains(t, got, `Greets.`)
	})
	t.Run("AnActionStaysAsItIsNamed", func(t *testing.T) {
		run := f.wait(t, start(t, "hi", `{"say": {"actor": "mcp/hi/greet"}}`), executorv1.RunState_RUN_STATE_COMPLETED)
		require.Contains(t, string(run.GetResult().GetJson()), `"name":"say"`)
		require.NotContains(t, string(run.GetResult().GetJson()), `hi_greet`)
	})
	t.Run("NoSuchServer", func(t *testing.T) {
		run := f.wait(t, start(t, "ho", `{}`), executorv1.RunState_RUN_STATE_FAILED)
		require.Contains(t, run.GetError().GetMessage()+run.String(), `there is no MCP server \"ho\" with tools`)
	})
}

// TestMCP_FirstList has an agent tell of a tool whose server has not listed it yet.
func TestMCP_FirstList(t *testing.T) {
	at, err := url.Parse(toolServer(t, "127.0.0.1:0"))
	require.NoError(t, err)
	opened := make(chan struct{})
	proxy := httputil.NewSingleHostReverseProxy(at)
	late := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-opened:
			proxy.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(late.Close)
	f := serve(t, nil, withTools(late.URL))
	var run *executorv1.Run
	start := &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "ask", Actor: "agent", Named: map[string]*graphv1.Payload{
		"user_input": value(`"hi"`), "form": value(`"tools"`), "reasoner": value(`"cel"`), "reasoner_args": value(`{"expr": "{'result': named.tools[0]}"}`),
		"task_tools": value(`[]`), "actions": value(`{"greet": {"actor": "mcp/hi/greet"}}`),
	}})}
	testkit.Eventually(t, func() bool { // the executor may not be ready yet
		run, err = f.StartRun(t.Context(), start)
		return err == nil
	})
	f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_RUNNING)
	close(opened)
	run = f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
	require.Contains(t, string(run.GetResult().GetJson()), `"required":["who"]`)
	require.Contains(t, string(run.GetResult().GetJson()), `Greets.`)
}

// TestMCP_Down starts a run whose tool's server is not there yet.
func TestMCP_Down(t *testing.T) {
	address := testkit.FreeAddress(t)
	f := serve(t, nil, withTools("http://"+address))
	node := greet("who", `"ada"`)
	node.Retry = &graphv1.Retry{MaxAttempts: 100, InitialInterval: durationpb.New(100 * time.Millisecond)}
	run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(node)})
	require.NoError(t, err, "a server that is down makes no graph faulty")
	testkit.Eventually(t, func() bool {
		r, err := f.ExplainRun(t.Context(), &executorv1.ExplainRunRequest{RunId: run.GetId()})
		require.NoError(t, err)
		for _, b := range r.GetBlockers() {
			if text := b.String(); strings.Contains(text, "MCP_SERVER_DOWN") && strings.Contains(text, "the host refused the connection") {
				return true
			}
		}
		return false
	}, "the reason is not explained")
	r, err := f.ListActors(t.Context(), &executorv1.ListActorsRequest{})
	require.NoError(t, err)
	var why string
	for _, a := range r.GetActors() {
		if a.GetName() == "mcp/hi/*" {
			why = a.GetUnavailable()
		}
	}
	require.Contains(t, why, "refused the connection")
	toolServer(t, address)
	run = f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
	require.Contains(t, string(run.GetResult().GetJson()), "hello ada")
}
