package stack_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	epigraphproto "github.com/epigraph-run/epigraph/proto"
)

// accessTable reads the methods of docs/access.md: for each the roles that it is open to. worker is
// the scope.
func accessTable(t *testing.T) map[string]map[string]bool {
	t.Helper()
	b, err := os.ReadFile("../../../../docs/access.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(b), "<!-- table -->")
	require.True(t, ok)
	out := map[string]map[string]bool{}
	var service string
	var roles []string
	for line := range strings.Lines(rest) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.Trim(strings.TrimSpace(cells[i]), "`")
		}
		switch {
		case len(cells) < 3 || strings.HasPrefix(cells[0], "---"):
		case strings.HasSuffix(cells[0], "Service"):
			service, roles = cells[0], cells[1:]
		default:
			open := map[string]bool{}
			for i, role := range roles {
				open[role] = cells[i+1] == "yes"
			}
			out[service+"/"+cells[0]] = open
		}
	}
	return out
}

// fullMethods are all methods, like /epigraph.executor.v1.ExecutorService/GetRun, by the name that
// documents use.
func fullMethods() map[string]string {
	out := map[string]string{}
	for _, m := range access.Methods() {
		service, method, _ := strings.Cut(m, "/")
		out[service[strings.LastIndexByte(service, '.')+1:]+"/"+method] = "/" + m
	}
	return out
}

// TestAccess calls every method with a key of every role, by gRPC at the gateway and at the services,
// and by REST, and compares who is let in with docs/access.md.
func TestAccess(t *testing.T) {
	t.Parallel()
	table, full := accessTable(t), fullMethods()
	require.Len(t, table, len(full), "docs/access.md does not have every method once")
	roles := []string{"worker"}
	cfg := quiet()
	for _, r := range access.Roles() {
		roles = append(roles, string(r))
		cfg.Auth.Keys = append(cfg.Auth.Keys, grpckit.APIKey{Name: string(r), Namespace: "team-a", Secret: conf.NewSecret("key-of-" + string(r)), Role: r})
	}
	cfg.Auth.Keys = append(cfg.Auth.Keys, grpckit.APIKey{Name: "worker", Namespace: "team-a", Secret: conf.NewSecret("key-of-worker"), Scopes: []access.Scope{access.Worker}})
	d := openDev(t, stack.DevOptions{DataDir: t.TempDir(), Config: cfg})
	run(t, d)
	require.NoError(t, d.Ready(testkit.Context(t, 20*time.Second)))
	testkit.Eventually(t, func() bool { code, _ := get(t, "http://"+d.HTTPAddr()+"/readyz"); return code == http.StatusOK })
	for _, role := range roles {
		for where, addr := range map[string]string{"GatewayGRPC": d.HTTPAddr(), "GRPC": d.GRPCAddr()} {
			t.Run(role+"/"+where, func(t *testing.T) {
				conn, err := grpckit.Dial(addr, grpckit.DialOptions{Token: conf.NewSecret("key-of-" + role)})
				require.NoError(t, err)
				defer conn.Close()
				for name, open := range table {
					require.Contains(t, full, name)
					err := callEmpty(t, conn, full[name], open[role])
					// The gateway does not have the services' own methods.
					refused := errs.ReasonOf(err) == access.ReasonScope || where == "GatewayGRPC" && errs.ReasonOf(err) == "RPC_UNIMPLEMENTED"
					require.Equal(t, open[role], !refused, "%s calls %s: %v", role, name, err)
				}
			})
		}
		t.Run(role+"/REST", func(t *testing.T) {
			for _, op := range operations(t) {
				if !strings.Contains(op.name, "/") {
					continue // the gateway answers by itself
				}
				open, ok := table[op.name]
				require.True(t, ok, op.name)
				code, body := callREST(t, "http://"+d.HTTPAddr()+op.path, op.method, "key-of-"+role)
				refused := code == http.StatusForbidden && strings.Contains(body, access.ReasonScope)
				require.Equal(t, open[role], !refused, "%s calls %s %s (%s): %d %s", role, op.method, op.path, op.name, code, body)
			}
		})
	}
}

// callEmpty calls a method with an empty request and returns its error. A stream that is open after a
// second let the caller in.
func callEmpty(t *testing.T, conn *grpc.ClientConn, method string, open bool) error {
	t.Helper()
	timeout := 20 * time.Second
	if open {
		timeout = time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	if err := s.SendMsg(&emptypb.Empty{}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	_ = s.CloseSend()
	for {
		if err := s.RecvMsg(&emptypb.Empty{}); err != nil {
			return err
		}
	}
}

type operation struct{ name, method, path string }

var (
	variable = regexp.MustCompile(`\{[^}]*\}`)
	// another counts the further paths of a method.
	another = regexp.MustCompile(`_[0-9]+$`)
)

// operations are those of the OpenAPI document, with a name in place of every variable.
func operations(t *testing.T) (out []operation) {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
		} `json:"paths"`
	}
	require.NoError(t, json.Unmarshal(epigraphproto.OpenAPI(), &doc))
	for path, methods := range doc.Paths {
		for method, op := range methods {
			out = append(out, operation{strings.Replace(another.ReplaceAllString(op.OperationID, ""), "_", "/", 1), strings.ToUpper(method), variable.ReplaceAllString(path, "x")})
		}
	}
	require.NotEmpty(t, out)
	return out
}

func callREST(t *testing.T, url, method, key string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		return res.StatusCode, ""
	}
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(b)
}
