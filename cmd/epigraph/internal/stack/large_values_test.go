package stack_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

// TestLargeValues sends values of 3 KB over REST in every field that may be as large, to all services, and
// reads them back.
func TestLargeValues(t *testing.T) {
	t.Parallel()
	d := openDev(t, stack.DevOptions{DataDir: t.TempDir()})
	run(t, d)
	require.NoError(t, d.Ready(testkit.Context(t, 20*time.Second)))
	testkit.Eventually(t, func() bool { code, _ := get(t, "http://"+d.HTTPAddr()+"/readyz"); return code == http.StatusOK })
	large := strings.TrimSpace(strings.Repeat("three kilobytes — ", 171))
	type values = map[string]any
	call := func(t *testing.T, method, path string, body values) (got values) {
		t.Helper()
		var in io.Reader
		if body != nil {
			b, err := json.Marshal(body)
			require.NoError(t, err)
			in = strings.NewReader(string(b))
		}
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+d.HTTPAddr()+path, in)
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		b, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, res.StatusCode, string(b))
		require.NoError(t, json.Unmarshal(b, &got))
		return got
	}
	// holds checks that got has all that want has.
	holds := func(t *testing.T, want, got values) {
		t.Helper()
		for name, v := range want {
			require.Equal(t, v, got[name], name)
		}
	}
	note := func(text string) []any { return []any{values{"text": text}} }
	t.Run("Registry/EpicAndTask", func(t *testing.T) {
		t.Parallel()
		want := values{"title": "goal", "description": large, "resultSummary": large}
		epic := call(t, "POST", "/v1/epics", want)
		holds(t, want, epic)
		holds(t, want, call(t, "GET", "/v1/epics/"+epic["id"].(string), nil))
		want = values{"epicId": epic["id"], "description": large, "resultSummary": large, "errorMessage": large,
			"requirements": values{"big": large, "list": []any{large}}}
		with := values{"notes": note(large)}
		for k, v := range want {
			with[k] = v
		}
		task := call(t, "POST", "/v1/tasks", with)
		path := "/v1/tasks/" + task["id"].(string)
		for _, got := range []values{task, call(t, "GET", path, nil),
			call(t, "GET", "/v1/tasks?epic_id="+epic["id"].(string), nil)["tasks"].([]any)[0].(values),
			call(t, "PATCH", path, values{"title": "other"}),
			call(t, "POST", path+":transition", values{"state": "TASK_STATE_CANCELED", "note": large})} {
			holds(t, want, got)
			for _, n := range got["notes"].([]any) {
				require.Equal(t, large, n.(values)["text"])
			}
		}
		holds(t, values{"resultSummary": large + "!"}, call(t, "POST", "/v1/epics/"+epic["id"].(string)+":transition",
			values{"state": "EPIC_STATE_CANCELED", "resultSummary": large + "!"}))
	})
	t.Run("Planner/ProblemsAndArguments", func(t *testing.T) {
		t.Parallel()
		text, err := json.Marshal(values{"task_nodes": []any{values{"task": large}, values{"task": "second"}},
			"task_links": []any{values{"source": large, "target": "second"}}})
		require.NoError(t, err)
		parsed := call(t, "POST", "/v1/plans:parse", values{"text": string(text)})
		problems := parsed["graph"].(values)["problems"].([]any)
		require.Len(t, problems, 2)
		require.Equal(t, large, problems[0].(values)["request"])
		for name, plan := range map[string]values{"text": {"text": string(text)}, "graph": {"graph": parsed["graph"]}} {
			plan["named"] = values{"big": values{"v": large}}
			made := call(t, "POST", "/v1/plans:compile", plan)
			nodes := made["graph"].(values)["nodes"].([]any)
			require.Len(t, nodes, 2, name)
			for _, n := range nodes {
				require.Equal(t, values{"v": large}, n.(values)["named"].(values)["big"], name)
			}
		}
	})
	t.Run("Executor/RunAndItsResult", func(t *testing.T) {
		t.Parallel()
		want := values{"args": []any{large, values{"k": large}}, "named": values{"big": large}, "context": values{"big": large}}
		with := values{"graph": values{"nodes": []any{values{"id": "say", "actor": "template", "named": values{"text": large}}}},
			"attachments": []any{values{"id": "doc", "description": large, "mediaType": "text/plain", "content": large}}}
		for k, v := range want {
			with[k] = v
		}
		got := call(t, "POST", "/v1/runs", with)
		path := "/v1/runs/" + got["id"].(string)
		check := func(got values) {
			t.Helper()
			holds(t, want, got)
			holds(t, with["attachments"].([]any)[0].(values), got["attachments"].([]any)[0].(values))
		}
		check(got)
		testkit.Eventually(t, func() bool {
			got = call(t, "GET", path, nil)
			return got["state"] == "RUN_STATE_COMPLETED"
		})
		check(got)
		require.Equal(t, large, got["result"])
		graph := call(t, "GET", path+"/graph", nil)["graph"].(values)
		require.Equal(t, values{"text": large}, graph["nodes"].([]any)[0].(values)["named"])
		visits := call(t, "GET", path+"/visits", nil)["visits"].([]any)
		require.Equal(t, []any{large}, visits[0].(values)["values"])
	})
}
