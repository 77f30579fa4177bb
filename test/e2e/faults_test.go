package e2e_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// oneNode is the body of a StartRun with one node; more holds further fields of the request.
func oneNode(actor, named, more string) string {
	return fmt.Sprintf(`{%s"graph":{"name":"g","nodes":[{"id":"n","actor":%q,"named":%s}]}}`, more, actor, named)
}

// faults sends what users get wrong, and compares the whole answer but for the request's id.
func faults(t *testing.T, s *suite) {
	var epic, task struct{ ID string }
	s.ask(t, request{path: "/v1/epics", body: map[string]any{"title": "x"}}, &epic)
	s.ask(t, request{path: "/v1/tasks", body: map[string]any{"epicId": epic.ID, "title": "x"}}, &task)
	s.ask(t, request{path: "/v1/tasks/" + task.ID + ":transition", body: map[string]any{"state": "TASK_STATE_COMPLETED"}}, nil)
	s.ask(t, request{path: "/v1/epics", body: map[string]any{"title": "y"}}, nil)
	s.ask(t, request{path: "/v1/runs", body: oneNode("template", `{"text":"x"}`, `"requestId":"used",`)}, nil)
	var page struct{ NextPageToken string }
	s.ask(t, request{path: "/v1/epics?page_size=1"}, &page)
	require.NotEmpty(t, page.NextPageToken)
	// Changes since the creation of the epic raised its revision.
	var now struct{ Etag string }
	s.ask(t, request{path: "/v1/epics/" + epic.ID}, &now)
	compile := func(text string) request {
		return request{path: "/v1/plans:compile", body: map[string]any{"text": text}}
	}

	for _, tc := range []struct {
		name   string
		r      request
		status int
		body   string
	}{
		{"Plan/Malformed", compile("collect -> sort\nsort -> ,report ->"), http.StatusBadRequest, `{
			"code": 400, "status": "INVALID_ARGUMENT", "reason": "PLAN_INVALID", "message": "the plan has a fault",
			"hint": "mend every violation and send the plan again", "metadata": {},
			"violations": [{"field": "2:1", "reason": "EMPTY_ID",
				"description": "\"report\": an arrow at report has nothing on one side: sort -> ,report ->; name a problem on both sides of the arrow"}]}`},
		{"Plan/Cycle", compile("collect -> sort\nsort -> report\nreport -> collect"), http.StatusBadRequest, `{
			"code": 400, "status": "INVALID_ARGUMENT", "reason": "PLAN_INVALID", "message": "the plan has a fault",
			"hint": "mend every violation and send the plan again", "metadata": {},
			"violations": [{"field": "3:1", "reason": "CYCLE",
				"description": "\"collect\": these problems wait for each other: collect -> sort -> report -> collect; take one of these edges out"}]}`},
		{"Actor/Unknown", request{path: "/v1/runs", body: oneNode("telepathy", `{}`, "")}, http.StatusBadRequest, `{
			"code": 400, "status": "INVALID_ARGUMENT", "reason": "GRAPH_INVALID", "message": "the graph has a fault: no actor is called \"telepathy\"",
			"hint": "actors here: agent, cel, completion, epic_create, epic_search, epic_status, epic_update, expand, fail, http, human, llm, memory_read, memory_share, memory_write, signal, sleep, spawn, spawn_and_await, starlark and 8 more; those of a worker are known once it has connected", "metadata": {},
			"violations": [{"field": "graph.nodes[n].actor", "reason": "UNKNOWN_ACTOR",
				"description": "no actor is called \"telepathy\"; actors here: agent, cel, completion, epic_create, epic_search, epic_status, epic_update, expand, fail, http, human, llm, memory_read, memory_share, memory_write, signal, sleep, spawn, spawn_and_await, starlark and 8 more; those of a worker are known once it has connected"}]}`},
		{"Payload/OverTheLimitOfValues", request{path: "/v1/runs", body: oneNode("template", `{"text":"`+strings.Repeat("x", 100<<10)+`"}`, "")},
			http.StatusBadRequest, `{
			"code": 400, "status": "INVALID_ARGUMENT", "reason": "PAYLOAD_TOO_LARGE", "message": "a value of the request is over the limit of 65536 bytes",
			"hint": "keep large values outside and pass a reference", "metadata": {},
			"violations": [{"field": "graph.nodes[n].named.text", "reason": "PAYLOAD_TOO_LARGE", "description": "102402 bytes, the limit is 65536"}]}`},
		{"Payload/OverTheLimitOfBodies", request{path: "/v1/runs", body: oneNode("template", `{"text":"`+strings.Repeat("x", 300<<10)+`"}`, "")},
			http.StatusRequestEntityTooLarge, `{
			"code": 413, "status": "RESOURCE_EXHAUSTED", "reason": "BODY_TOO_LARGE", "message": "the body is larger than 262144 bytes",
			"hint": "send large documents by reference, or use the gRPC API", "violations": [], "metadata": {"limit_bytes": "262144"}}`},
		{"Etag/Wrong", request{method: http.MethodPatch, path: "/v1/epics/" + epic.ID, body: map[string]any{"title": "z", "etag": `"99"`}},
			http.StatusConflict, `{
			"code": 409, "status": "ABORTED", "reason": "ETAG_MISMATCH", "message": "epic <epic> has changed: its etag is <etag>, not \"99\"",
			"hint": "read it again and repeat the change with the present etag", "violations": [], "metadata": {"etag": "<etag>"}}`},
		{"RequestID/UsedWithAnotherBody", request{path: "/v1/runs", body: oneNode("template", `{"text":"y"}`, `"requestId":"used",`)},
			http.StatusBadRequest, `{
			"code": 400, "status": "INVALID_ARGUMENT", "reason": "REQUEST_ID_REUSED", "message": "request_id \"used\" was used with another body",
			"hint": "use a new request_id for a new request", "metadata": {},
			"violations": [{"field": "request_id", "reason": "REQUEST_ID_REUSED", "description": "used with another body"}]}`},
		{"PageToken/Garbled", request{path: "/v1/runs?page_token=abc"}, http.StatusBadRequest, `{
			"code": 400, "status": "INVALID_ARGUMENT", "reason": "PAGE_TOKEN_INVALID", "message": "page_token is not valid",
			"hint": "pass next_page_token of the previous response unchanged, or leave it out to start again", "metadata": {},
			"violations": [{"field": "page_token", "reason": "PAGE_TOKEN_INVALID", "description": "not a token of this service"}]}`},
		{"PageToken/OfAnotherFilter", request{path: "/v1/epics?query=trip&page_token=" + page.NextPageToken}, http.StatusBadRequest, `{
			"code": 400, "status": "INVALID_ARGUMENT", "reason": "PAGE_TOKEN_MISMATCH", "message": "page_token belongs to another query",
			"hint": "keep parent, filter and order_by as they were on the first page", "metadata": {},
			"violations": [{"field": "page_token", "reason": "PAGE_TOKEN_MISMATCH",
				"description": "parent, filter or order_by changed since the first page"}]}`},
		{"Transition/Invalid", request{path: "/v1/tasks/" + task.ID + ":transition", body: map[string]any{"state": "TASK_STATE_PENDING"}},
			http.StatusBadRequest, `{
			"code": 400, "status": "FAILED_PRECONDITION", "reason": "INVALID_TRANSITION",
			"message": "task <task> cannot go from COMPLETED to PENDING; COMPLETED is an end: nothing is allowed from here",
			"hint": "COMPLETED is an end: nothing is allowed from here", "violations": [],
			"metadata": {"allowed": "", "from": "COMPLETED", "to": "PENDING"}}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, header, body := s.exchange(t, tc.r)
			require.Equal(t, tc.status, status, string(body))
			require.Equal(t, "application/json", header.Get("Content-Type"))
			var got map[string]any
			require.NoError(t, json.Unmarshal(body, &got))
			require.Equal(t, header.Get("X-Request-Id"), got["requestId"])
			require.NotEmpty(t, got["requestId"])
			delete(got, "requestId")
			rest, err := json.Marshal(got)
			require.NoError(t, err)
			want := strings.NewReplacer("<epic>", epic.ID, "<task>", task.ID, "<etag>", strings.ReplaceAll(now.Etag, `"`, `\"`)).Replace(tc.body)
			require.JSONEq(t, want, string(rest))
		})
	}
}

// TestCommandFaults checks the errors of wrong command lines of services.
func TestCommandFaults(t *testing.T) {
	t.Parallel()
	bin, err := binary()
	require.NoError(t, err)
	dir := t.TempDir()
	s := &suite{bin: bin, config: filepath.Join(dir, "epigraph.yaml"), env: []string{"HOME=" + dir}}
	t.Run("Config/UnknownKeyAndVariable", func(t *testing.T) {
		require.NoError(t, os.WriteFile(s.config, []byte("admin: {addr: \"\"}\nexecutor:\n  leas: 4s\n"), 0o600))
		cmd := s.command("serve", "planner")
		cmd.Env = append(cmd.Env, "EPIGRAPH_GATEWAY_ADRR=127.0.0.1:1")
		p := launch(t, cmd)
		t.Cleanup(p.kill)
		require.Equal(t, 1, p.exitCode(t))
		require.Equal(t, "epigraph: the configuration is not valid [CONFIG_INVALID]\n"+
			"  executor.leas [CONFIG_KEY_UNKNOWN]: "+s.config+":3: unknown key, did you mean lease?\n"+
			"  EPIGRAPH_GATEWAY_ADRR [CONFIG_KEY_UNKNOWN]: unknown environment variable, did you mean EPIGRAPH_GATEWAY_ADDR?\n", p.output())
	})
	t.Run("Port/Taken", func(t *testing.T) {
		lis, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer lis.Close()
		addr := lis.Addr().String()
		require.NoError(t, os.WriteFile(s.config, []byte("admin: {addr: \"\"}\ngrpc: {planner_addr: \""+addr+"\"}\n"), 0o600))
		p := launch(t, s.command("serve", "planner"))
		t.Cleanup(p.kill)
		require.Equal(t, 1, p.exitCode(t))
		require.Equal(t, "epigraph: address "+addr+" is already in use [PORT_TAKEN]\n"+
			"help: stop the process that listens there, or set grpc.planner_addr (EPIGRAPH_GRPC_PLANNER_ADDR) to another address\n", p.output())
	})
}
