package stack_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// TestAudit changes something at every door and finds it in the audit log, with what was refused.
func TestAudit(t *testing.T) {
	t.Parallel()
	cfg := quiet()
	cfg.Gateway.TrustedProxies = []string{"127.0.0.0/8", "::1"}
	key := func(name string, role access.Role) grpckit.APIKey {
		return grpckit.APIKey{Name: name, Namespace: "team-a", Secret: conf.NewSecret("key-of-" + name), Role: role}
	}
	cfg.Auth.Keys = []grpckit.APIKey{key("boss", access.Administrator), key("screen", access.Viewer)}
	dir := t.TempDir()
	d := openDev(t, stack.DevOptions{DataDir: dir, Config: cfg})
	run(t, d)
	require.NoError(t, d.Ready(testkit.Context(t, 20*time.Second)))
	dial := func(addr, name string) registryv1.RegistryServiceClient {
		conn, err := grpckit.Dial(addr, grpckit.DialOptions{Token: conf.NewSecret("key-of-" + name)})
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return registryv1.NewRegistryServiceClient(conn)
	}
	post := func(t *testing.T, name, path, body string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+d.HTTPAddr()+path, strings.NewReader(body))
		require.NoError(t, err)
		for k, v := range map[string]string{"Authorization": "Bearer key-of-" + name, "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
			"X-Forwarded-For": "198.51.100.1, 203.0.113.9", "User-Agent": "shell/1.0", "X-Request-Id": "req-" + t.Name()} {
			req.Header.Set(k, v)
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.StatusCode
	}
	epic := func(t *testing.T, c registryv1.RegistryServiceClient) string {
		t.Helper()
		e, err := c.CreateEpic(t.Context(), &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: t.Name()}})
		require.NoError(t, err)
		return e.GetId()
	}
	conn, err := grpckit.Dial(d.HTTPAddr(), grpckit.DialOptions{Token: conf.NewSecret("key-of-boss")})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	book := registryv1.NewAuditServiceClient(conn)
	// find returns the newest entry that the filter and the function let through, as soon as there is one.
	find := func(t *testing.T, q *registryv1.ListAuditRequest, is func(*registryv1.AuditEntry) bool) (found *registryv1.AuditEntry) {
		t.Helper()
		testkit.Eventually(t, func() bool {
			r, err := book.ListAudit(context.WithoutCancel(t.Context()), q)
			for _, e := range r.GetEntries() {
				if is(e) {
					found = e
					return true
				}
			}
			return err != nil
		})
		require.NotNil(t, found)
		return found
	}
	t.Run("REST/SaysWhoFromWhereAndWhat", func(t *testing.T) {
		require.Equal(t, http.StatusOK, post(t, "boss", "/v1/epics", `{"title": "goal"}`))
		e := find(t, &registryv1.ListAuditRequest{Method: "CreateEpic"}, func(e *registryv1.AuditEntry) bool { return e.GetUserAgent() == "shell/1.0" })
		require.Equal(t, []string{"key:boss", "203.0.113.9", "OK", "req-" + t.Name()}, []string{e.GetPrincipal(), e.GetRemote(), e.GetCode(), e.GetRequestId()})
		require.NotEmpty(t, e.GetResource())
	})
	for name, addr := range map[string]string{"GatewayGRPC": d.HTTPAddr(), "GRPC": d.GRPCAddr()} {
		t.Run(name+"/SaysWhoFromWhereAndWhat", func(t *testing.T) {
			id := epic(t, dial(addr, "boss"))
			e := find(t, &registryv1.ListAuditRequest{Resource: id}, func(*registryv1.AuditEntry) bool { return true })
			require.Equal(t, []string{"key:boss", "127.0.0.1", "OK"}, []string{e.GetPrincipal(), e.GetRemote(), e.GetCode()})
			require.Contains(t, e.GetUserAgent(), "grpc-go")
		})
	}
	t.Run("MCP/SaysWhoFromWhereAndWhat", func(t *testing.T) {
		body := `{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "cancel_run", "arguments": {"run_id": "run_of_mcp"}}}`
		require.Equal(t, http.StatusOK, post(t, "boss", "/mcp", body))
		e := find(t, &registryv1.ListAuditRequest{Method: "CancelRun"}, func(e *registryv1.AuditEntry) bool { return e.GetResource() == "run_of_mcp" })
		require.Equal(t, []string{"key:boss", "203.0.113.9", "NotFound"}, []string{e.GetPrincipal(), e.GetRemote(), e.GetCode()})
	})
	t.Run("Refused/AtTheGateway", func(t *testing.T) {
		require.Equal(t, http.StatusForbidden, post(t, "screen", "/v1/runs/run_7:cancel", `{}`))
		e := find(t, &registryv1.ListAuditRequest{Principal: "key:screen"}, func(e *registryv1.AuditEntry) bool { return e.GetUserAgent() == "shell/1.0" })
		require.Equal(t, []string{"epigraph.executor.v1.ExecutorService/CancelRun", "PermissionDenied", "SCOPE_MISSING", "203.0.113.9"},
			[]string{e.GetMethod(), e.GetCode(), e.GetReason(), e.GetRemote()})
	})
	t.Run("Refused/AtAService", func(t *testing.T) {
		_, err := dial(d.GRPCAddr(), "screen").CreateEpic(t.Context(), &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "goal"}})
		require.Error(t, err)
		e := find(t, &registryv1.ListAuditRequest{Principal: "key:screen", Method: "CreateEpic"}, func(*registryv1.AuditEntry) bool { return true })
		require.Equal(t, "PermissionDenied", e.GetCode())
	})
	t.Run("Read/HasNoEntry", func(t *testing.T) {
		code, _ := get(t, "http://"+d.HTTPAddr()+"/v1/epics", "Authorization", "Bearer key-of-screen")
		require.Equal(t, http.StatusOK, code)
		marker := epic(t, dial(d.HTTPAddr(), "boss"))
		find(t, &registryv1.ListAuditRequest{Resource: marker}, func(*registryv1.AuditEntry) bool { return true })
		r, err := book.ListAudit(t.Context(), &registryv1.ListAuditRequest{PageSize: 1000})
		require.NoError(t, err)
		for _, e := range r.GetEntries() {
			require.True(t, access.Changes(e.GetMethod()), e.GetMethod())
		}
	})
}
