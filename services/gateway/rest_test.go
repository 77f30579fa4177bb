package gateway_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/errs"
	epigraphproto "github.com/epigraph-run/epigraph/proto"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

func TestPayloads(t *testing.T) {
	t.Parallel()
	r := start(t, options{})
	var got *executorv1.StartRunRequest
	r.executor.start = func(ctx context.Context, req *executorv1.StartRunRequest) (*executorv1.Run, error) {
		got = req
		return echoRun(ctx, req)
	}
	t.Run("Payload/IsPlainJSONBothWays", func(t *testing.T) {
		res := r.call(t, "POST", "/v1/runs", `{
			"graph": {"nodes": [{"id": "a", "actor": "cel", "args": [{"n": 9007199254740991}]}]},
			"args": [9007199254740991, 1.50, "x", null, [1, 2]],
			"named": {"who": {"first": "Ada"}},
			"context": {"k": [true]}
		}`)
		require.Equal(t, http.StatusOK, res.status, res.body)
		require.Equal(t, "1.50", string(got.GetArgs()[1].GetJson()))
		require.JSONEq(t, `{"n":9007199254740991}`, string(got.GetGraph().GetNodes()[0].GetArgs()[0].GetJson()))
		require.Contains(t, res.body, `"args":[9007199254740991,1.50,"x",null,[1,2]]`)
		require.Contains(t, res.body, `"named":{"who":{"first":"Ada"}}`)
		require.Contains(t, res.body, `"context":{"k":[true]}`)
		require.Contains(t, res.body, `"outputs":{}`)
		require.NotContains(t, res.body, `"result"`)
	})
	t.Run("Integer/TooLargeComingIn", func(t *testing.T) {
		res := r.call(t, "POST", "/v1/runs", `{"graph":{}, "args":[{"id":9007199254740993}]}`)
		e := res.error(t)
		require.Equal(t, http.StatusBadRequest, e.Code)
		require.Equal(t, "INTEGER_TOO_LARGE_FOR_JSON", e.Reason)
		require.Equal(t, "args[0].id", e.Violations[0].Field)
		require.Contains(t, e.Violations[0].Description, "9007199254740993")
		require.Contains(t, e.Hint, "string")
		require.Contains(t, e.Hint, "gRPC")
	})
	t.Run("Integer/LargeGoesOutExactly", func(t *testing.T) {
		r.executor.get = func(context.Context, *executorv1.GetRunRequest) (*executorv1.Run, error) {
			return &executorv1.Run{Id: "run_1", Result: &graphv1.Payload{Json: []byte(`{"id":9007199254740993}`)}}, nil
		}
		res := r.call(t, "GET", "/v1/runs/run_1", "")
		require.Equal(t, http.StatusOK, res.status, res.body)
		require.Contains(t, res.body, `"result":{"id":9007199254740993}`)
	})
	t.Run("Payload/StoredGarbageIsOurFault", func(t *testing.T) {
		r.executor.get = func(context.Context, *executorv1.GetRunRequest) (*executorv1.Run, error) {
			return &executorv1.Run{Id: "run_1", Result: &graphv1.Payload{Json: []byte(`{`)}}, nil
		}
		e := r.call(t, "GET", "/v1/runs/run_1", "").error(t)
		require.Equal(t, http.StatusInternalServerError, e.Code)
		require.Equal(t, "PAYLOAD_INVALID", e.Reason)
	})
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	r := start(t, options{})
	r.executor.get = echoGet
	t.Run("Path/VariablesAndVerbs", func(t *testing.T) {
		r.executor.stop = func(_ context.Context, req *executorv1.CancelRunRequest) (*executorv1.Run, error) {
			return &executorv1.Run{Id: req.GetRunId(), StateReason: req.GetReason()}, nil
		}
		require.Contains(t, r.call(t, "POST", "/v1/runs/run_7:cancel", `{"reason":"enough"}`).body, `"stateReason":"enough"`)
		require.Contains(t, r.call(t, "POST", "/v1/runs/run_7:cancel", "").body, `"id":"run_7"`)
		require.Equal(t, http.StatusMethodNotAllowed, r.call(t, "GET", "/v1/runs/run_7:cancel", "").status)
	})
	t.Run("Query/EveryKind", func(t *testing.T) {
		var got *executorv1.ListRunsRequest
		r.executor.list = func(_ context.Context, req *executorv1.ListRunsRequest) (*executorv1.ListRunsResponse, error) {
			got = req
			return &executorv1.ListRunsResponse{}, nil
		}
		q := url.Values{
			"pageSize": {"7"}, "page_token": {"t"}, "states": {"RUN_STATE_RUNNING", "4"}, "labels[team]": {"a b"}, "labels[env]": {"x"},
			"created_after": {"2026-01-31T12:00:00Z"},
		}
		res := r.call(t, "GET", "/v1/runs?"+q.Encode(), "")
		require.Equal(t, http.StatusOK, res.status, res.body)
		require.JSONEq(t, `{"runs":[],"nextPageToken":""}`, res.body)
		want := &executorv1.ListRunsRequest{
			PageSize: 7, PageToken: "t", States: []executorv1.RunState{executorv1.RunState_RUN_STATE_RUNNING, executorv1.RunState_RUN_STATE_PAUSED},
			Labels: map[string]string{"team": "a b", "env": "x"}, CreatedAfter: &timestamppb.Timestamp{Seconds: 1769860800},
		}
		require.Empty(t, cmp.Diff(want, got, protocmp.Transform()))
	})
	t.Run("Body/OfAField", func(t *testing.T) {
		r.registry.createEpic = func(_ context.Context, req *registryv1.CreateEpicRequest) (*registryv1.Epic, error) {
			return &registryv1.Epic{Id: req.GetRequestId(), Title: req.GetEpic().GetTitle(), BudgetTokens: req.GetEpic().BudgetTokens}, nil
		}
		res := r.call(t, "POST", "/v1/epics?request_id=q1", `{"title":"T","budgetTokens":"0"}`)
		require.Equal(t, http.StatusOK, res.status, res.body)
		require.Contains(t, res.body, `"id":"q1"`)
		require.Contains(t, res.body, `"budgetTokens":"0"`)
		require.NotContains(t, res.body, `budgetNanoUsd`) // absent is not zero
	})
	t.Run("Delete/AnswersWithAnEmptyObject", func(t *testing.T) {
		r.registry.deleteEpic = func(context.Context, *registryv1.DeleteEpicRequest) (*emptypb.Empty, error) {
			return &emptypb.Empty{}, nil
		}
		res := r.call(t, "DELETE", "/v1/epics/ep_1?etag=%221%22", "")
		require.Equal(t, http.StatusOK, res.status)
		require.Equal(t, "{}", res.body)
	})
	t.Run("Planner/IsReached", func(t *testing.T) {
		r.planner.compile = func(_ context.Context, req *plannerv1.CompilePlanRequest) (*plannerv1.CompilePlanResponse, error) {
			return &plannerv1.CompilePlanResponse{GraphHash: string(req.GetNamed()["model"].GetJson())}, nil
		}
		require.Contains(t, r.call(t, "POST", "/v1/plans:compile", `{"text":"a","named":{"model":"m"}}`).body, `"graphHash":"\"m\""`)
	})
	t.Run("Head/IsGetWithoutABody", func(t *testing.T) {
		res := r.call(t, "HEAD", "/v1/runs/run_1", "")
		require.Equal(t, http.StatusOK, res.status)
		require.Empty(t, res.body)
	})
	t.Run("RequestID/GoesThrough", func(t *testing.T) {
		res := r.call(t, "GET", "/v1/runs/run_1", "", "X-Request-Id", "mine-1")
		require.Equal(t, "mine-1", res.header.Get("X-Request-Id"))
		require.Contains(t, res.body, `"chatId":"mine-1"`)
		require.Regexp(t, `^req_[0-9a-z]{26}$`, r.call(t, "GET", "/v1/runs/run_1", "", "X-Request-Id", "not valid").header.Get("X-Request-Id"))
	})
	t.Run("Headers/ClientsCannotSpeakForTheGateway", func(t *testing.T) {
		res := r.call(t, "GET", "/v1/runs/run_1", "", "Grpc-Metadata-X-Epigraph-Namespace", "other", "Grpc-Metadata-Authorization", "Bearer x", "Grpc-Timeout", "nonsense")
		require.Equal(t, http.StatusOK, res.status, res.body)
		require.Contains(t, res.body, `"namespace":"default"`)
		require.Contains(t, res.body, `"userId":"service"`)
	})
}

func TestNamesWithSlashes(t *testing.T) {
	t.Parallel()
	r := start(t, options{})
	for _, method := range []string{"PATCH", "DELETE"} {
		body := ""
		if method == "PATCH" {
			body = `{"maxConcurrent": 3}`
		}
		// The rig has no limits, so that the executor is the one to refuse.
		res := r.call(t, method, "/v1/limits/actor/http", body)
		require.Equal(t, http.StatusNotImplemented, res.status, res.body)
	}
	require.Equal(t, "PATH_NOT_FOUND", r.call(t, "GET", "/v1/workers/a/b", "").error(t).Reason)
}

// Every path that the description lists leads to its service.
func TestEveryPathIsServed(t *testing.T) {
	t.Parallel()
	r := start(t, options{})
	var doc struct {
		Paths map[string]map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(r.call(t, "GET", "/openapi.json", "").body), &doc))
	require.Contains(t, doc.Paths, "/v1/threads/{thread_id}")
	variable := regexp.MustCompile(`\{[^}]*\}`)
	for path, methods := range doc.Paths {
		for method := range methods {
			// A verb that no path has shows what is wrong with the path alone.
			res := r.call(t, "TRACE", variable.ReplaceAllString(path, "x"), "")
			require.Contains(t, res.header.Get("Allow"), strings.ToUpper(method), "%s %s: %s", method, path, res.body)
			if method != "get" || strings.Contains(path, "events") {
				continue // the former need a body, and the latter do not end
			}
			// A route without a handler refuses the method that it has named as allowed.
			res = r.call(t, "GET", variable.ReplaceAllString(path, "x"), "")
			require.NotEqual(t, http.StatusMethodNotAllowed, res.status, "%s: %s", path, res.body)
		}
	}
}

func TestPatch(t *testing.T) {
	t.Parallel()
	r := start(t, options{})
	var epic *registryv1.UpdateEpicRequest
	r.registry.updateEpic = func(_ context.Context, req *registryv1.UpdateEpicRequest) (*registryv1.Epic, error) {
		epic = req
		return req.GetEpic(), nil
	}
	var task *registryv1.UpdateTaskRequest
	r.registry.updateTask = func(_ context.Context, req *registryv1.UpdateTaskRequest) (*registryv1.Task, error) {
		task = req
		return req.GetTask(), nil
	}
	for _, tc := range []struct {
		name, query, body string
		mask              []string
	}{
		{"Absent/IsWhatTheBodyHas", "", `{"title":"T","budget_tokens":"5","labels":{"a":"b"},"etag":"\"3\"","id":"ignored"}`, []string{"title", "budget_tokens", "labels"}},
		{"Absent/EmptyAndNullClear", "", `{"description":"","labels":null,"tags":[],"budgetTokens":null}`, []string{"description", "labels", "tags", "budget_tokens"}},
		{"Explicit/Star", "?update_mask=*", `{"title":"T"}`, []string{"*"}},
		{"Explicit/ByEitherName", "?updateMask=budgetTokens,title", `{"title":"T"}`, []string{"budget_tokens", "title"}},
		{"Explicit/ClearsWhatTheBodyLeavesOut", "?update_mask=description", `{"title":"T"}`, []string{"description"}},
		{"Explicit/EmptyIsAbsent", "?update_mask=", `{"title":"T"}`, []string{"title"}},
	} {
		t.Run("Mask/"+tc.name, func(t *testing.T) {
			res := r.call(t, "PATCH", "/v1/epics/ep_1"+tc.query, tc.body)
			require.Equal(t, http.StatusOK, res.status, res.body)
			require.Equal(t, tc.mask, epic.GetUpdateMask().GetPaths())
			require.Equal(t, "ep_1", epic.GetEpic().GetId())
		})
	}
	t.Run("Mask/Etag", func(t *testing.T) {
		r.call(t, "PATCH", "/v1/epics/ep_1", `{"title":"T","etag":"\"3\""}`)
		require.Equal(t, `"3"`, epic.GetEpic().GetEtag())
	})
	t.Run("Mask/OfAPayload", func(t *testing.T) {
		res := r.call(t, "PATCH", "/v1/tasks/tk_1", `{"requirements":{"tools":["x"]},"title":"T"}`)
		require.Equal(t, http.StatusOK, res.status, res.body)
		require.Equal(t, []string{"requirements", "title"}, task.GetUpdateMask().GetPaths())
		require.JSONEq(t, `{"tools":["x"]}`, string(task.GetTask().GetRequirements().GetJson()))
	})
	t.Run("Mask/Unknown", func(t *testing.T) {
		e := r.call(t, "PATCH", "/v1/epics/ep_1?update_mask=titel", `{"title":"T"}`).error(t)
		require.Equal(t, "UNKNOWN_FIELD", e.Reason)
		require.Contains(t, e.Hint, `"title"`)
	})
	t.Run("Mask/ServiceMayRefuse", func(t *testing.T) {
		r.registry.updateEpic = func(context.Context, *registryv1.UpdateEpicRequest) (*registryv1.Epic, error) {
			return nil, errs.New(errs.Conflict, "ETAG_MISMATCH", "the epic has changed").Set("etag", `"4"`).Hint("read it again")
		}
		e := r.call(t, "PATCH", "/v1/epics/ep_1", `{"title":"T","etag":"\"3\""}`).error(t)
		require.Equal(t, http.StatusConflict, e.Code)
		require.Equal(t, "ABORTED", e.Status)
		require.Equal(t, "ETAG_MISMATCH", e.Reason)
		require.Equal(t, map[string]string{"etag": `"4"`}, e.Metadata)
	})
}

func TestOpenAPI(t *testing.T) {
	t.Parallel()
	r := start(t, options{})
	res := r.call(t, "GET", "/openapi.json", "")
	require.Equal(t, http.StatusOK, res.status)
	var doc struct {
		Servers    []any
		Security   []any
		Paths      map[string]map[string]any
		Components struct{ Schemas map[string]map[string]any }
	}
	require.NoError(t, json.Unmarshal([]byte(res.body), &doc))
	require.NotEmpty(t, doc.Servers)
	require.Len(t, doc.Security, 2)
	require.Equal(t, res.body, string(epigraphproto.OpenAPI()))
	require.Contains(t, doc.Paths["/v1/runs/{run_id}/events"], "get")
	require.Contains(t, doc.Paths["/v1/epics/{epic_id}"], "patch")
	for _, path := range []string{"/healthz", "/readyz", "/v1/schedules", "/v1/limits", "/v1/workers", "/v1/runs/{run_id}:fork", "/v1/interrupts/{interrupt_id}:answer"} {
		require.Contains(t, doc.Paths, path)
	}
	require.NotContains(t, doc.Components.Schemas["epigraph.graph.v1.Payload"], "properties")
	require.Contains(t, doc.Components.Schemas, "epigraph.executor.v1.TokenDelta")
	t.Run("Refs/AllLeadSomewhere", func(t *testing.T) {
		var whole any
		require.NoError(t, json.Unmarshal([]byte(res.body), &whole))
		refs(whole, func(ref string) {
			at := whole
			for _, step := range splitRef(ref) {
				m, ok := at.(map[string]any)
				require.True(t, ok, ref)
				at, ok = m[step]
				require.True(t, ok, ref)
			}
		})
	})
	t.Run("Etag/SavesTheBody", func(t *testing.T) {
		again := r.call(t, "GET", "/openapi.json", "", "If-None-Match", res.header.Get("ETag"))
		require.Equal(t, http.StatusNotModified, again.status)
		require.Empty(t, again.body)
	})
}

func refs(v any, see func(string)) {
	switch v := v.(type) {
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok {
			see(ref)
		}
		for _, c := range v {
			refs(c, see)
		}
	case []any:
		for _, c := range v {
			refs(c, see)
		}
	}
}

func splitRef(ref string) []string { return strings.Split(strings.TrimPrefix(ref, "#/"), "/") }

func TestSender(t *testing.T) {
	t.Parallel()
	r := start(t, options{})
	r.executor.send = func(_ context.Context, req *executorv1.SendMessageRequest) (*executorv1.Run, error) {
		if req.GetAttemptToken() != "t2.x.y" {
			return nil, errs.New(errs.PermissionDenied, "SENDER_RESERVED", "%q is the name of a node", req.GetFrom()).Hint("send in another name")
		}
		return &executorv1.Run{Id: req.GetRunId()}, nil
	}
	t.Run("AttemptToken/ReachesTheExecutor", func(t *testing.T) {
		res := r.call(t, "POST", "/v1/runs/run_1:send", `{"from": "ask", "message": 1, "attemptToken": "t2.x.y"}`)
		require.Equal(t, http.StatusOK, res.status, res.body)
	})
	t.Run("Reserved/IsForbidden", func(t *testing.T) {
		res := r.call(t, "POST", "/v1/runs/run_1:send", `{"from": "ask", "message": 1}`)
		require.Equal(t, http.StatusForbidden, res.status, res.body)
		require.Equal(t, "SENDER_RESERVED", res.error(t).Reason)
		require.NotEmpty(t, res.error(t).Hint)
	})
}
