package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/gateway"
)

// withKey adds an API key to requests.
type withKey struct {
	http.RoundTripper
	key string
}

func (k withKey) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+k.key)
	return k.RoundTripper.RoundTrip(r)
}

// mcpSession is a session of the Go SDK's client with the gateway.
func mcpSession(t *testing.T, r *rig, key string) (*mcp.ClientSession, error) {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	s, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: r.url + "/mcp", HTTPClient: &http.Client{Transport: withKey{r.client.Transport, key}}, MaxRetries: -1}, nil)
	if err == nil {
		t.Cleanup(func() { _ = s.Close() }) // the server keeps nothing of it
	}
	return s, err
}

func TestMCP(t *testing.T) {
	t.Parallel()
	scopes := []access.Scope{access.Run, access.Worker}
	r := start(t, options{config: func(c *gateway.Config) {
		c.MaxBodyBytes = 64 << 10
		for _, s := range scopes {
			c.Keys = append(c.Keys, grpckit.APIKey{Name: string(s), Namespace: "team-a", Secret: conf.NewSecret("key-with-scope-" + string(s)), Scopes: []access.Scope{s}})
		}
	}})
	r.executor.get = func(ctx context.Context, req *executorv1.GetRunRequest) (*executorv1.Run, error) {
		return &executorv1.Run{Id: req.GetRunId(), Namespace: grpckit.Namespace(ctx), GraphName: grpckit.Namespace(ctx), State: executorv1.RunState_RUN_STATE_RUNNING}, nil
	}
	run, err := mcpSession(t, r, "key-with-scope-run")
	require.NoError(t, err)
	get := &mcp.CallToolParams{Name: "get_run", Arguments: map[string]any{"run_id": "run_1"}}
	said := func(t *testing.T, s *mcp.ClientSession) (string, bool) {
		t.Helper()
		res, err := s.CallTool(t.Context(), get)
		require.NoError(t, err)
		return res.Content[0].(*mcp.TextContent).Text, res.IsError
	}
	t.Run("TheKeyNamesTheNamespace", func(t *testing.T) {
		t.Parallel()
		text, failed := said(t, run)
		require.False(t, failed, text)
		require.Contains(t, text, `"name":"team-a"`)
	})
	t.Run("AToolNeedsTheScopeOfItsCalls", func(t *testing.T) {
		t.Parallel()
		s, err := mcpSession(t, r, "key-with-scope-worker")
		require.NoError(t, err)
		text, failed := said(t, s)
		require.True(t, failed)
		require.Contains(t, text, "SCOPE_MISSING")
	})
	t.Run("WithoutAKey", func(t *testing.T) {
		t.Parallel()
		_, err := mcpSession(t, r, "key-of-nobody")
		require.Error(t, err)
		require.Equal(t, http.StatusUnauthorized, r.call(t, http.MethodPost, "/mcp", `{}`).status)
	})
	key := []string{"Authorization", "Bearer key-with-scope-run"}
	for name, c := range map[string]struct {
		method, body, header, value string
		status                      int
		reason                      string
	}{
		"ABatch":           {http.MethodPost, ` [{"jsonrpc":"2.0","id":1,"method":"ping"}]`, "Accept", "application/json, text/event-stream", http.StatusBadRequest, "BATCH_UNSUPPORTED"},
		"ABodyThatIsLarge": {http.MethodPost, strings.Repeat(" ", 65<<10), "Accept", "application/json, text/event-stream", http.StatusRequestEntityTooLarge, "BODY_TOO_LARGE"},
		"ALongSession":     {http.MethodPost, `{}`, "Mcp-Session-Id", strings.Repeat("x", 200), http.StatusBadRequest, "SESSION_INVALID"},
		"AStreamOfItsOwn":  {http.MethodGet, "", "Accept", "text/event-stream", http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := r.call(t, c.method, "/mcp", c.body, append(key, c.header, c.value)...)
			require.Equal(t, c.status, p.status, p.body)
			require.Equal(t, c.reason, p.error(t).Reason)
		})
	}
}

// TestMCPChanges tells a client over HTTP that the tools of its namespace have changed, and no other one.
func TestMCPChanges(t *testing.T) {
	t.Parallel()
	r := start(t, options{config: func(c *gateway.Config) {
		for _, n := range []string{"team-a", "team-b"} {
			c.Keys = append(c.Keys, grpckit.APIKey{Name: n, Namespace: n, Secret: conf.NewSecret("key-of-the-namespace-" + n), Scopes: []access.Scope{access.Read}})
		}
	}})
	feeds := map[string]chan *registryv1.FeedEvent{"team-a": make(chan *registryv1.FeedEvent), "team-b": make(chan *registryv1.FeedEvent)}
	r.registry.watchEvents = func(_ *registryv1.WatchEventsRequest, s grpc.ServerStreamingServer[registryv1.FeedEvent]) error {
		for {
			select {
			case ev := <-feeds[grpckit.Namespace(s.Context())]:
				if err := s.Send(ev); err != nil {
					return err
				}
			case <-s.Context().Done():
				return nil
			}
		}
	}
	heard := make(chan string, 10)
	for n := range feeds {
		client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
			ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) { heard <- n },
		})
		s, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: r.url + "/mcp", HTTPClient: &http.Client{Transport: withKey{r.client.Transport, "key-of-the-namespace-" + n}}, MaxRetries: -1}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() }) // the server keeps nothing of it
	}
	for _, n := range []string{"team-b", "team-a"} {
		feeds[n] <- &registryv1.FeedEvent{Event: &registryv1.FeedEvent_RunStarted{RunStarted: &registryv1.RunChanged{RunId: "run_1"}}}
		require.Equal(t, n, <-heard)
	}
	require.Empty(t, heard)
}

// TestMCPCancel cancels a call of a client with a session by a request of its own, and by leaving.
func TestMCPCancel(t *testing.T) {
	t.Parallel()
	waiting := func(t *testing.T) (r *rig, watching, canceled chan string) {
		t.Helper()
		r = start(t, options{})
		watching, canceled = make(chan string, 1), make(chan string, 1)
		r.planner.compile = func(context.Context, *plannerv1.CompilePlanRequest) (*plannerv1.CompilePlanResponse, error) {
			return &plannerv1.CompilePlanResponse{Graph: &graphv1.Graph{Name: "plan"}}, nil
		}
		var runs atomic.Int32
		run := func(id string) *executorv1.Run {
			return &executorv1.Run{Id: id, State: executorv1.RunState_RUN_STATE_RUNNING}
		}
		r.executor.start = func(context.Context, *executorv1.StartRunRequest) (*executorv1.Run, error) {
			return run(fmt.Sprintf("run_%d", runs.Add(1))), nil
		}
		r.executor.get = func(_ context.Context, req *executorv1.GetRunRequest) (*executorv1.Run, error) {
			return run(req.GetRunId()), nil
		}
		r.executor.watch = func(req *executorv1.WatchRunRequest, s grpc.ServerStreamingServer[executorv1.RunEvent]) error {
			watching <- req.GetRunId()
			<-s.Context().Done()
			return nil
		}
		r.executor.stop = func(_ context.Context, req *executorv1.CancelRunRequest) (*executorv1.Run, error) {
			canceled <- req.GetRunId()
			return run(req.GetRunId()), nil
		}
		return r, watching, canceled
	}
	post := func(ctx context.Context, t *testing.T, r *rig, session string, message map[string]any) (*http.Response, error) {
		t.Helper()
		message["jsonrpc"] = "2.0"
		body, err := json.Marshal(message)
		require.NoError(t, err)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url+"/mcp", strings.NewReader(string(body)))
		require.NoError(t, err)
		for k, v := range map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2025-11-25", "Mcp-Session-Id": session} {
			req.Header.Set(k, v)
		}
		return r.client.Do(req)
	}
	call := func() map[string]any {
		return map[string]any{"id": 7, "method": "tools/call", "params": map[string]any{"name": "run_plan", "arguments": map[string]any{"plan": "1. Rest", "wait_seconds": 600}}}
	}
	t.Run("ByARequest", func(t *testing.T) {
		t.Parallel()
		r, watching, canceled := waiting(t)
		answers := map[string]chan string{}
		for i, session := range []string{"s1", "s2"} { // both calls have the same id
			answered := make(chan string, 1)
			answers[session] = answered
			go func() {
				res, err := post(t.Context(), t, r, session, call())
				if err != nil {
					answered <- err.Error()
					return
				}
				defer res.Body.Close()
				var all strings.Builder
				for lines := bufio.NewScanner(res.Body); lines.Scan(); {
					all.WriteString(lines.Text())
				}
				answered <- all.String()
			}()
			require.Equal(t, fmt.Sprintf("run_%d", i+1), <-watching)
		}
		cancel := func(session string) {
			res, err := post(t.Context(), t, r, session, map[string]any{"method": "notifications/cancelled", "params": map[string]any{"requestId": 7}}) //nolint:misspell // as the protocol says it
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, http.StatusAccepted, res.StatusCode)
		}
		cancel("s3") // of a client without a call
		cancel("s2")
		require.Equal(t, "run_2", <-canceled, "what others cancel is not this call")
		require.Contains(t, <-answers["s2"], "CLIENT_CLOSED")
		cancel("s1")
		require.Equal(t, "run_1", <-canceled)
		require.Contains(t, <-answers["s1"], "CLIENT_CLOSED")
	})
	t.Run("AClientThatLeavesKeepsItsRun", func(t *testing.T) {
		t.Parallel()
		r, watching, canceled := waiting(t)
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() {
			_, err := post(ctx, t, r, "s1", call())
			left <- err
		}()
		<-watching
		leave()
		<-left
		testkit.Eventually(t, func() bool { return strings.Contains(r.logs.String(), `"route":"/mcp"`) }, "the request ends")
		require.Empty(t, canceled)
	})
}
