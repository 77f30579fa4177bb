package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/host"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/gateway"
)

// TestErrors sends bad requests of every kind and reads one shape of answer.
func TestErrors(t *testing.T) {
	t.Parallel()
	r := start(t, options{
		config: func(c *gateway.Config) { c.MaxBodyBytes = 1 << 10 },
		deps:   func(d *gateway.Deps) { d.Registry = d.Planner }, // one that lacks the registry's methods
	})
	r.executor.start = echoRun
	r.executor.get = echoGet
	big := `{"args":["` + strings.Repeat("x", 2<<10) + `"]}`
	for _, tc := range []struct {
		name, method, path, body string
		headers                  []string
		code                     int
		status, reason           string
		hint                     string
		field                    string
		message                  string
	}{
		{name: "Path/Unknown", method: "GET", path: "/nowhere/at/all/here", code: 404, status: "NOT_FOUND", reason: "PATH_NOT_FOUND", hint: "/openapi.json"},
		{name: "Path/Misspelled", method: "GET", path: "/v1/rnus", code: 404, status: "NOT_FOUND", reason: "PATH_NOT_FOUND", hint: "/v1/runs"},
		{name: "Path/MisspelledVerb", method: "POST", path: "/v1/runs/run_1:cancle", code: 404, status: "NOT_FOUND", reason: "PATH_NOT_FOUND", hint: "/v1/runs/{run_id}:cancel"},
		{name: "Path/EmptyVariable", method: "GET", path: "/v1/runs/", code: 404, status: "NOT_FOUND", reason: "PATH_NOT_FOUND", hint: "/v1/runs"},
		{name: "Path/Root", method: "POST", path: "/", code: 404, status: "NOT_FOUND", reason: "PATH_NOT_FOUND"},
		{name: "Path/NotUTF8", method: "GET", path: "/v1/runs/%ff", code: 400, status: "INVALID_ARGUMENT", reason: "PATH_INVALID"},
		{name: "Method/Wrong", method: "PUT", path: "/v1/runs", code: 405, status: "UNIMPLEMENTED", reason: "METHOD_NOT_ALLOWED", hint: "GET or POST"},
		{name: "Method/Options", method: "OPTIONS", path: "/v1/runs", code: 405, status: "UNIMPLEMENTED", reason: "METHOD_NOT_ALLOWED"},
		{name: "Method/Override", method: "POST", path: "/v1/runs/run_1", headers: []string{"X-HTTP-Method-Override", "GET"}, code: 405, status: "UNIMPLEMENTED", reason: "METHOD_NOT_ALLOWED", hint: "GET"},
		{name: "Type/Form", method: "POST", path: "/v1/runs", body: "a=b", headers: []string{"Content-Type", "application/x-www-form-urlencoded"}, code: 415, status: "INVALID_ARGUMENT", reason: "UNSUPPORTED_MEDIA_TYPE", hint: "application/json"},
		{name: "Type/None", method: "POST", path: "/v1/runs", body: "{}", headers: []string{"Content-Type", ""}, code: 415, status: "INVALID_ARGUMENT", reason: "UNSUPPORTED_MEDIA_TYPE"},
		{name: "Type/Charset", method: "POST", path: "/v1/runs", body: "{}", headers: []string{"Content-Type", "application/json; charset=latin1"}, code: 415, status: "INVALID_ARGUMENT", reason: "UNSUPPORTED_MEDIA_TYPE"},
		{name: "Type/Compressed", method: "POST", path: "/v1/runs", body: "{}", headers: []string{"Content-Encoding", "gzip"}, code: 415, status: "INVALID_ARGUMENT", reason: "UNSUPPORTED_MEDIA_TYPE"},
		{name: "Body/TooLarge", method: "POST", path: "/v1/runs", body: big, code: 413, status: "RESOURCE_EXHAUSTED", reason: "BODY_TOO_LARGE", message: "1024"},
		{name: "Body/Malformed", method: "POST", path: "/v1/runs", body: "{\n \"args\": [1,]}", code: 400, status: "INVALID_ARGUMENT", reason: "INVALID_JSON", field: "2:13", message: "line 2, column 13"},
		{name: "Body/UnknownField", method: "POST", path: "/v1/runs", body: `{"grph":{}}`, code: 400, status: "INVALID_ARGUMENT", reason: "UNKNOWN_FIELD", field: "grph", hint: `"graph"`},
		{name: "Body/WrongType", method: "POST", path: "/v1/runs", body: `{"taskId":[]}`, code: 400, status: "INVALID_ARGUMENT", reason: "WRONG_TYPE", field: "taskId"},
		{name: "Path/VerbOfAGet", method: "GET", path: "/v1/runs/run_1:cancel", code: 405, status: "UNIMPLEMENTED", reason: "METHOD_NOT_ALLOWED", hint: "POST"},
		{name: "Body/FractionForInteger", method: "PATCH", path: "/v1/epics/ep_1", body: `{"budgetTokens":1.5}`, code: 400, status: "INVALID_ARGUMENT", reason: "WRONG_TYPE", field: "budgetTokens", message: "1.5 is no whole number"},
		{name: "Body/NoDuration", method: "POST", path: "/v1/runs", body: `{"graph":{"nodes":[{"id":"a","timeout":"abc"}]}}`, code: 400, status: "INVALID_ARGUMENT", reason: "WRONG_TYPE", field: "graph.nodes[0].timeout", message: "no duration"},
		{name: "Body/IntegerOutOfRange", method: "POST", path: "/v1/runs", body: `{"priority":3e9}`, code: 400, status: "INVALID_ARGUMENT", reason: "WRONG_TYPE", field: "priority", message: "too large for 32 bits"},
		{name: "Body/OnGet", method: "GET", path: "/v1/runs/run_1", body: `{}`, code: 400, status: "INVALID_ARGUMENT", reason: "BODY_NOT_EXPECTED"},
		{name: "Body/RefusedByTheService", method: "POST", path: "/v1/runs", body: `{"graph": {}, "priority": 9}`, code: 400, status: "INVALID_ARGUMENT", reason: "REQUEST_INVALID", field: "priority"},
		{name: "Query/Unknown", method: "GET", path: "/v1/runs?page_sise=3", code: 400, status: "INVALID_ARGUMENT", reason: "UNKNOWN_FIELD", field: "page_sise", hint: `"page_size"`},
		{name: "Query/NoneThere", method: "GET", path: "/v1/runs/run_1?x=3", code: 400, status: "INVALID_ARGUMENT", reason: "UNKNOWN_FIELD", field: "x"},
		{name: "Query/InsteadOfBody", method: "POST", path: "/v1/runs?task_id=3", body: "{}", code: 400, status: "INVALID_ARGUMENT", reason: "UNKNOWN_FIELD", field: "task_id", hint: "body"},
		{name: "Query/OfTheBodyField", method: "POST", path: "/v1/epics?epic.title=3", body: "{}", code: 400, status: "INVALID_ARGUMENT", reason: "UNKNOWN_FIELD", field: "epic.title"},
		{name: "Query/NoNumber", method: "GET", path: "/v1/runs?page_size=many", code: 400, status: "INVALID_ARGUMENT", reason: "WRONG_TYPE", field: "page_size"},
		{name: "Query/UnknownState", method: "GET", path: "/v1/runs?states=running", code: 400, status: "INVALID_ARGUMENT", reason: "UNKNOWN_ENUM_VALUE", field: "states", hint: "RUN_STATE_RUNNING"},
		{name: "Query/NoTime", method: "GET", path: "/v1/runs?created_after=noon", code: 400, status: "INVALID_ARGUMENT", reason: "WRONG_TYPE", field: "created_after"},
		{name: "Query/MapWithoutKey", method: "GET", path: "/v1/runs?labels=x", code: 400, status: "INVALID_ARGUMENT", reason: "WRONG_TYPE", field: "labels", hint: "labels[key]=value"},
		{name: "Query/Twice", method: "GET", path: "/v1/runs?page_size=1&page_size=2", code: 400, status: "INVALID_ARGUMENT", reason: "DUPLICATE_KEY", field: "page_size"},
		{name: "Query/NotUTF8", method: "GET", path: "/v1/runs?user_id=%ff", code: 400, status: "INVALID_ARGUMENT", reason: "WRONG_TYPE", field: "user_id"},
		{name: "Query/LabelNotUTF8", method: "GET", path: "/v1/runs?labels[%ff]=x", code: 400, status: "INVALID_ARGUMENT", reason: "WRONG_TYPE"},
		{name: "Query/TwoSpellings", method: "GET", path: "/v1/runs?page_size=1&pageSize=2", code: 400, status: "INVALID_ARGUMENT", reason: "DUPLICATE_KEY"},
		{name: "Query/Garbled", method: "GET", path: "/v1/runs?a=%zz", code: 400, status: "INVALID_ARGUMENT", reason: "INVALID_QUERY"},
		{name: "Query/Semicolon", method: "GET", path: "/v1/runs?page_size=1;x", code: 400, status: "INVALID_ARGUMENT", reason: "INVALID_QUERY"},
		{name: "Key/Unknown", method: "GET", path: "/v1/runs/run_1", headers: []string{"X-Api-Key", "nope"}, code: 401, status: "UNAUTHENTICATED", reason: "CREDENTIALS_INVALID"},
		{name: "Key/RebindingHost", method: "GET", path: "/v1/runs/run_1", headers: []string{"X-Test-Host", "evil.example"}, code: 403, status: "PERMISSION_DENIED", reason: "HOST_NOT_LOOPBACK"},
		{name: "Events/BadCursor", method: "GET", path: "/v1/runs/run_1/events?after_seq=-1", code: 400, status: "INVALID_ARGUMENT", reason: "WRONG_TYPE", field: "after_seq"},
		{name: "Events/BadLastEventID", method: "GET", path: "/v1/runs/run_1/events", headers: []string{"Last-Event-ID", "x"}, code: 400, status: "INVALID_ARGUMENT", reason: "LAST_EVENT_ID_INVALID"},
		{name: "Events/UnknownParameter", method: "GET", path: "/v1/runs/run_1/events?from=3", code: 400, status: "INVALID_ARGUMENT", reason: "UNKNOWN_FIELD", field: "from", hint: "after_seq"},
		{name: "Events/Post", method: "POST", path: "/v1/runs/run_1/events", code: 405, status: "UNIMPLEMENTED", reason: "METHOD_NOT_ALLOWED"},
		{name: "Service/MethodMissing", method: "GET", path: "/v1/prices", code: 501, status: "UNIMPLEMENTED", reason: "RPC_UNIMPLEMENTED", hint: "releases"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			req, err := http.NewRequestWithContext(t.Context(), tc.method, r.url+tc.path, strings.NewReader(tc.body))
			require.NoError(t, err)
			if tc.body != "" {
				req.Header.Set("Content-Type", "application/json")
			}
			for i := 0; i < len(tc.headers); i += 2 {
				switch {
				case tc.headers[i] == "X-Test-Host":
					req.Host = tc.headers[i+1]
				case tc.headers[i+1] == "":
					req.Header.Del(tc.headers[i])
				default:
					req.Header.Set(tc.headers[i], tc.headers[i+1])
				}
			}
			res, err := r.client.Do(req)
			require.NoError(t, err)
			defer res.Body.Close()
			b, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.Equal(t, tc.code, res.StatusCode, string(b))
			e := parseError(t, res.StatusCode, res.Header, string(b))
			require.Equal(t, tc.status, e.Status)
			require.Equal(t, tc.reason, e.Reason, string(b))
			require.Contains(t, e.Hint, tc.hint)
			require.Contains(t, e.Message, tc.message)
			if tc.field != "" {
				require.NotEmpty(t, e.Violations, string(b))
				require.Equal(t, tc.field, e.Violations[0].Field)
				require.NotEmpty(t, e.Violations[0].Description)
			}
			if tc.code == http.StatusUnauthorized {
				require.Contains(t, res.Header.Get("WWW-Authenticate"), "Bearer")
			}
			if tc.code == http.StatusMethodNotAllowed {
				require.NotEmpty(t, res.Header.Get("Allow"))
			}
		})
	}
}

func TestUpstreamErrors(t *testing.T) {
	t.Parallel()
	r := start(t, options{})
	var answer error
	r.executor.get = func(context.Context, *executorv1.GetRunRequest) (*executorv1.Run, error) { return nil, answer }
	for _, tc := range []struct {
		err    error
		code   int
		status string
		reason string
	}{
		{errs.New(errs.InvalidArgument, "A", "m"), 400, "INVALID_ARGUMENT", "A"},
		{errs.New(errs.NotFound, "RUN_NOT_FOUND", "m"), 404, "NOT_FOUND", "RUN_NOT_FOUND"},
		{errs.New(errs.AlreadyExists, "A", "m"), 409, "ALREADY_EXISTS", "A"},
		{errs.New(errs.Conflict, "A", "m"), 409, "ABORTED", "A"},
		{errs.New(errs.FailedPrecondition, "A", "m"), 400, "FAILED_PRECONDITION", "A"},
		{errs.New(errs.ResourceExhausted, "BUDGET", "m").Set("retry_after", "7"), 429, "RESOURCE_EXHAUSTED", "BUDGET"},
		{errs.New(errs.Unavailable, "A", "m"), 503, "UNAVAILABLE", "A"},
		{errs.New(errs.PermissionDenied, "A", "m"), 403, "PERMISSION_DENIED", "A"},
		{errs.New(errs.DeadlineExceeded, "A", "m"), 504, "DEADLINE_EXCEEDED", "A"},
		{errs.New(errs.Canceled, "A", "m"), 499, "CANCELLED", "A"}, //nolint:misspell // as google.rpc.Code
		{fmt.Errorf("password is hunter2"), 500, "INTERNAL", "INTERNAL"},
		{status.Error(codes.DataLoss, "password is hunter2"), 500, "INTERNAL", "INTERNAL"},
	} {
		t.Run(fmt.Sprintf("Kind/%s/%d", tc.status, tc.code), func(t *testing.T) {
			answer = tc.err
			res := r.call(t, "GET", "/v1/runs/run_1", "")
			e := res.error(t)
			require.Equal(t, tc.code, e.Code)
			require.Equal(t, tc.status, e.Status)
			require.Equal(t, tc.reason, e.Reason)
			require.NotContains(t, res.body, "hunter2")
			require.NotContains(t, e.Metadata, "request_id")
			switch tc.code {
			case 503:
				require.Equal(t, "1", res.header.Get("Retry-After"))
			case 429:
				require.Equal(t, "7", res.header.Get("Retry-After"))
			}
		})
	}
	t.Run("Violations/AllOfThem", func(t *testing.T) {
		answer = errs.New(errs.InvalidArgument, "GRAPH_INVALID", "two faults").Violate("graph.nodes[0]", "CYCLE", "a -> a").Violate("graph.edges[1]", "DANGLING", "no b").Hint("mend them")
		e := r.call(t, "GET", "/v1/runs/run_1", "").error(t)
		require.Equal(t, []violation{{"graph.nodes[0]", "CYCLE", "a -> a"}, {"graph.edges[1]", "DANGLING", "no b"}}, e.Violations)
		require.Equal(t, "mend them", e.Hint)
		require.NotContains(t, e.Metadata, "hint")
	})
	t.Run("Timeout/IsOurs", func(t *testing.T) {
		r := start(t, options{config: func(c *gateway.Config) { c.RequestTimeout = 50 * time.Millisecond }})
		r.executor.list = func(ctx context.Context, _ *executorv1.ListRunsRequest) (*executorv1.ListRunsResponse, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		e := r.call(t, "GET", "/v1/runs", "").error(t)
		require.Equal(t, http.StatusGatewayTimeout, e.Code)
	})
	t.Run("Service/Unreachable", func(t *testing.T) {
		r.servers["executor"].Stop()
		res := r.call(t, "GET", "/v1/runs/run_1", "")
		e := res.error(t)
		require.Equal(t, http.StatusServiceUnavailable, e.Code)
		require.Equal(t, "the executor cannot be reached", e.Message)
		require.NotEmpty(t, res.header.Get("Retry-After"))
		require.Equal(t, "executor", e.Metadata["service"])
		e = r.call(t, "GET", "/v1/runs/run_1/events", "").error(t)
		require.Equal(t, http.StatusServiceUnavailable, e.Code)
		res = r.call(t, "GET", "/readyz", "")
		require.Equal(t, http.StatusOK, res.status, "the gateway's readiness is its own: %s", res.body)
		require.Contains(t, res.body, `"status":"DEGRADED"`)
		require.Contains(t, res.body, `"executor":"AWAY"`)
		require.Contains(t, res.body, `"planner":"SERVING"`)
		require.Equal(t, http.StatusOK, r.call(t, "GET", "/healthz", "").status)
	})
}

func TestHealth(t *testing.T) {
	t.Parallel()
	ready := &host.Readiness{}
	r := start(t, options{
		config: func(c *gateway.Config) {
			c.Keys = []grpckit.APIKey{{Name: "ci", Namespace: "team-a", Secret: conf.NewSecret("key-of-team-a")}}
		},
		deps: func(d *gateway.Deps) { d.Ready = ready },
	})
	require.JSONEq(t, `{"status":"LIVE"}`, r.call(t, "GET", "/healthz", "").body)
	require.Contains(t, r.call(t, "GET", "/readyz", "").body, "READY")
	require.Equal(t, http.StatusOK, r.call(t, "GET", "/openapi.json", "").status)
	t.Run("Keys/AreAskedForEverythingElse", func(t *testing.T) {
		r.executor.get = echoGet
		e := r.call(t, "GET", "/v1/runs/run_1", "").error(t)
		require.Equal(t, http.StatusUnauthorized, e.Code)
		e = r.call(t, "GET", "/v1/runs/run_1/events", "").error(t)
		require.Equal(t, http.StatusUnauthorized, e.Code)
		res := r.call(t, "GET", "/v1/runs/run_1", "", "Authorization", "Bearer key-of-team-a")
		require.Contains(t, res.body, `"namespace":"team-a"`)
		require.Contains(t, res.body, `"userId":"service"`)
		e = r.call(t, "GET", "/v1/runs/run_1", "", "X-Api-Key", "key-of-team-a", "X-Epigraph-Namespace", "team-b").error(t)
		require.Equal(t, http.StatusForbidden, e.Code)
		require.NotContains(t, r.logs.String(), "key-of-team-a")
	})
	t.Run("Ready/NotWhileDraining", func(t *testing.T) {
		ready.Drain()
		require.Equal(t, "NOT_READY", r.call(t, "GET", "/readyz", "").error(t).Reason)
	})
}

func TestHealthNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	r := start(t, options{})
	r.servers["planner"].SetServing(false)
	r.servers["registry"].SetServing(false)
	r.servers["registry"].SetDatabase(false)
	r.servers["executor"].SetDatabase(true)
	type answer struct {
		Status   string
		Services map[string]string
		Away     []struct {
			Service, Reason, Message string
			Since                    time.Time
		}
	}
	look := func() (a answer) {
		res := r.call(t, "GET", "/readyz", "")
		require.Equal(t, http.StatusOK, res.status, res.body)
		require.NoError(t, json.Unmarshal([]byte(res.body), &a))
		return a
	}
	a := look()
	require.Equal(t, "DEGRADED", a.Status)
	require.Equal(t, map[string]string{"planner": "AWAY", "executor": "SERVING", "registry": "AWAY"}, a.Services)
	require.Len(t, a.Away, 2)
	require.Equal(t, "planner", a.Away[0].Service)
	require.Equal(t, "NOT_SERVING", a.Away[0].Reason)
	require.Equal(t, "DATABASE_UNREACHABLE", a.Away[1].Reason)
	require.Equal(t, "the database of the registry does not answer", a.Away[1].Message)
	require.WithinDuration(t, time.Now(), a.Away[0].Since, time.Minute)
	r.servers["planner"].SetServing(true)
	var b answer
	testkit.Eventually(t, func() bool { b = look(); return b.Services["planner"] == "SERVING" })
	require.Len(t, b.Away, 1)
	require.Equal(t, a.Away[1].Since, b.Away[0].Since, "since it was first found away")
}

func TestOpen(t *testing.T) {
	t.Parallel()
	conn, err := grpckit.Dial("nobody", grpckit.DialOptions{Buf: &grpckit.BufNet{}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	deps := gateway.Deps{Planner: conn, Executor: conn, Registry: conn}
	keys := []grpckit.APIKey{{Name: "a", Namespace: "default", Secret: conf.NewSecret("s")}}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	for _, tc := range []struct {
		name   string
		change func(*gateway.Config)
		deps   gateway.Deps
		reason string
		text   string
	}{
		{"Address/OpenToAllWithoutKeys", func(c *gateway.Config) { c.Addr = "0.0.0.0:0" }, deps, "ADDRESS_NOT_LOOPBACK", "without API keys"},
		{"Address/AnyInterfaceWithoutKeys", func(c *gateway.Config) { c.Addr = ":0" }, deps, "ADDRESS_NOT_LOOPBACK", "without API keys"},
		{"Address/OpenToAllWithAnonymous", func(c *gateway.Config) { c.Addr, c.Keys, c.Anonymous = "0.0.0.0:0", keys, true }, deps, "ADDRESS_NOT_LOOPBACK", "gateway.anonymous"},
		{"CORS/AnyOriginWithoutKeys", func(c *gateway.Config) { c.CORSOrigins = []string{"*"} }, deps, "CORS_OPEN", "every origin"},
		{"CORS/AnyOriginWithAnonymous", func(c *gateway.Config) {
			c.CORSOrigins, c.Keys, c.Anonymous = []string{"https://a.example", "*"}, keys, true
		}, deps, "CORS_OPEN", "every origin"},
		{"Address/Taken", func(c *gateway.Config) { c.Addr = taken.Addr().String() }, deps, "PORT_TAKEN", "already in use"},
		{"Address/Nonsense", func(c *gateway.Config) { c.Addr, c.Keys = "nonsense", keys }, deps, "ADDRESS_INVALID", "nonsense"},
		{"Keys/Namespace", func(c *gateway.Config) {
			c.Keys = []grpckit.APIKey{{Name: "a", Namespace: "No", Secret: conf.NewSecret("s")}}
		}, deps, "CONFIG_INVALID", "namespace"},
		{"Config/Limits", func(c *gateway.Config) { c.MaxBodyBytes, c.KeepAlive = 0, 0 }, deps, "CONFIG_INVALID", "keep_alive"},
		{"Config/Origins", func(c *gateway.Config) { c.CORSOrigins = []string{"example.com"} }, deps, "CONFIG_INVALID", "example.com"},
		{"Deps/Missing", func(*gateway.Config) {}, gateway.Deps{}, "DEPS_INCOMPLETE", "connections"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cfg := gateway.DefaultConfig()
			tc.change(&cfg)
			_, err := gateway.Open(t.Context(), cfg, tc.deps)
			require.Equal(t, tc.reason, errs.ReasonOf(err), "%v", err)
			require.Contains(t, err.Error(), tc.text)
		})
	}
	t.Run("Address/AllInterfacesWithKeys", func(t *testing.T) {
		t.Parallel()
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		cfg := gateway.DefaultConfig()
		// with keys every origin is allowed
		cfg.Keys, cfg.Addr, cfg.CORSOrigins = keys, "0.0.0.0:8080", []string{"*"}
		d := deps
		d.Listener = lis
		s, err := gateway.Open(t.Context(), cfg, d)
		require.NoError(t, err)
		require.NoError(t, s.Close())
	})
}

func TestCORS(t *testing.T) {
	t.Parallel()
	r := start(t, options{config: func(c *gateway.Config) { c.CORSOrigins = []string{"https://app.example"} }})
	r.executor.get = echoGet
	r.executor.stop = func(context.Context, *executorv1.CancelRunRequest) (*executorv1.Run, error) {
		return &executorv1.Run{}, nil
	}
	t.Run("Preflight/Allowed", func(t *testing.T) {
		res := r.call(t, "OPTIONS", "/v1/runs", "", "Origin", "https://app.example", "Access-Control-Request-Method", "POST")
		require.Equal(t, http.StatusNoContent, res.status)
		require.Equal(t, "https://app.example", res.header.Get("Access-Control-Allow-Origin"))
		require.Equal(t, "GET, POST", res.header.Get("Access-Control-Allow-Methods"))
	})
	t.Run("Preflight/OtherOrigin", func(t *testing.T) {
		res := r.call(t, "OPTIONS", "/v1/runs", "", "Origin", "https://evil.example", "Access-Control-Request-Method", "POST")
		require.Equal(t, http.StatusMethodNotAllowed, res.status)
		require.Empty(t, res.header.Get("Access-Control-Allow-Origin"))
	})
	t.Run("Write/FromAnAllowedOrigin", func(t *testing.T) {
		require.Equal(t, http.StatusOK, r.call(t, "POST", "/v1/runs/run_1:cancel", "{}", "Origin", "https://app.example", "Sec-Fetch-Site", "cross-site").status)
		require.Equal(t, http.StatusForbidden, r.call(t, "POST", "/v1/runs/run_1:cancel", "{}", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site").status)
	})
}

func TestPanic(t *testing.T) {
	t.Parallel()
	r := start(t, options{})
	r.executor.get = func(context.Context, *executorv1.GetRunRequest) (*executorv1.Run, error) { panic("secret") }
	res := r.call(t, "GET", "/v1/runs/run_1", "")
	require.Equal(t, http.StatusInternalServerError, res.error(t).Code)
	require.NotContains(t, res.body, "secret")
}

// TestSlowBody sends a body that never ends.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	r := start(t, options{config: func(c *gateway.Config) { c.BodyTimeout = 100 * time.Millisecond }})
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = fmt.Fprintf(conn, "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, "BODY_TIMEOUT", parseError(t, http.StatusRequestTimeout, res.Header, string(b)).Reason)
}

// TestChunkedBody sends a body without a Content-Length.
func TestChunkedBody(t *testing.T) {
	t.Parallel()
	r := start(t, options{config: func(c *gateway.Config) { c.MaxBodyBytes = 1 << 10 }})
	r.executor.start = echoRun
	for _, tc := range []struct {
		name string
		size int
		code int
	}{{"Fits", 500, 200}, {"TooLarge", 5000, 413}} {
		t.Run("Body/"+tc.name, func(t *testing.T) {
			body := io.MultiReader(strings.NewReader(`{"graph":{},"args":["`), strings.NewReader(strings.Repeat("x", tc.size)), strings.NewReader(`"]}`))
			req, err := http.NewRequestWithContext(t.Context(), "POST", r.url+"/v1/runs", body)
			require.NoError(t, err)
			req.Header.Set("Content-Type", "application/json")
			res, err := r.client.Do(req)
			require.NoError(t, err)
			defer res.Body.Close()
			require.Equal(t, tc.code, res.StatusCode)
		})
	}
}
