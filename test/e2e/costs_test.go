package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	epigraph "github.com/epigraph-run/epigraph/sdk"
)

// costRuns is how many runs are checked, since a premature message is rare.
const costRuns = 12

// costAtTheEnd looks once, when a run is said to have ended, at what it, its task and its epic cost: all of
// it, unless the end says how much is not booked.
func costAtTheEnd(t *testing.T, s *suite) {
	begin := func(t *testing.T) (r run, task, epic string) {
		t.Helper()
		epic, task = s.account(t)
		s.ask(t, request{path: "/v1/runs", body: map[string]any{"taskId": task, "graph": map[string]any{
			"nodes": []any{llmNode("one"), llmNode("two")}, "edges": []any{map[string]any{"from": "one", "to": "two"}}}}}, &r)
		return r, task, epic
	}
	whole := func(t *testing.T, runID, taskID, epicID string) {
		t.Helper()
		var r run
		var task struct{ ActualNanoUsd, LlmCalls int64String }
		var epic struct{ SpentNanoUsd int64String }
		s.ask(t, request{path: "/v1/runs/" + runID}, &r)
		s.ask(t, request{path: "/v1/tasks/" + taskID}, &task)
		s.ask(t, request{path: "/v1/epics/" + epicID}, &epic)
		require.Equal(t, usage{InputTokens: 2 * callInput, OutputTokens: 2 * callOutput, Calls: 2, CostNanoUsd: 2 * callCost}, r.Usage)
		require.EqualValues(t, 2*callCost, task.ActualNanoUsd)
		require.EqualValues(t, 2, task.LlmCalls)
		require.EqualValues(t, 2*callCost, epic.SpentNanoUsd)
	}
	// early reports whether r ended before all was booked, as the registry may be slow, and waits until all
	// is. After a message that all is booked, it expects the same cost.
	early := func(t *testing.T, r *run, unbooked bool) bool {
		t.Helper()
		if unbooked {
			testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
				s.ask(t, request{path: "/v1/runs/" + r.ID}, r)
				return r.Usage.UnbookedAttempts == 0
			})
		}
		return unbooked
	}
	t.Run("Event/ComesWithTheWholeCost", func(t *testing.T) {
		n := 0
		for range costRuns {
			r, task, epic := begin(t)
			events := s.events(t, r.ID, "?durable_only=true", "", 1000)
			last := events[len(events)-2] // before the end of the stream
			require.Equal(t, "run_ended", last.name)
			if early(t, &r, last.data["runEnded"].(map[string]any)["unbookedAttempts"] != "0") {
				n++
			}
			whole(t, r.ID, task, epic)
		}
		require.Less(t, n, costRuns)
	})
	t.Run("GetRun/ThatFirstTellsOfTheEndTellsTheWholeCost", func(t *testing.T) {
		n := 0
		for range costRuns {
			r, task, epic := begin(t)
			for begun := time.Now(); !r.ended() && time.Since(begun) < timeout; {
				s.ask(t, request{path: "/v1/runs/" + r.ID}, &r)
			}
			require.Equal(t, "RUN_STATE_COMPLETED", r.State)
			if early(t, &r, r.Usage.UnbookedAttempts > 0) {
				n++
			}
			require.Equal(t, usage{InputTokens: 2 * callInput, OutputTokens: 2 * callOutput, Calls: 2, CostNanoUsd: 2 * callCost}, r.Usage)
			whole(t, r.ID, task, epic)
		}
		require.Less(t, n, costRuns)
	})
}

// printedRun is in what the command line prints of a run.
var printedRun = regexp.MustCompile(`run_\w+`)

// address is the gateway's, for calls of gRPC.
func (s *suite) address() string { return strings.TrimPrefix(s.url, "http://") }

// cli runs a command that must succeed as a client of the first namespace.
func (s *suite) cli(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(within(t), s.bin, args...)
	cmd.Env = append(slices.Clone(s.env), "EPIGRAPH_ADDR="+s.address(), "EPIGRAPH_API_KEY="+keyA)
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Run(), "%v\n%s%s", args, &out, &errs)
	return out.String(), errs.String()
}

func llmNode(id string) map[string]any {
	return map[string]any{"id": id, "actor": "llm", "named": map[string]any{"request": "Say " + id + "."}}
}

// costsUntold ends runs while the registry is down: every message about the end says that the cost is
// incomplete.
func costsUntold(t *testing.T, s *suite) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	type post struct {
		body string
		m    *epigraph.WebhookMessage
	}
	posts := make(chan post, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m, err := epigraph.VerifyWebhook(secret, r.Header, body)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		posts <- post{string(body), m}
	}))
	t.Cleanup(receiver.Close)
	graph := filepath.Join(t.TempDir(), "graph.json")
	text, err := json.Marshal(map[string]any{"name": "untold", "nodes": []any{llmNode("one")}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(graph, text, 0o600))
	s.procs["registry"].stop(t)

	var id string
	t.Run("CommandLine/Run", func(t *testing.T) {
		out, stderr := s.cli(t, "run", graph, "--webhook="+receiver.URL, "--webhook-secret="+secret)
		id = printedRun.FindString(out)
		require.Contains(t, out, "in 1 call, 1 attempt not booked yet\n")
		require.Contains(t, stderr, "the registry has not booked 1 attempt yet")
		require.Contains(t, stderr, "epigraph runs show "+id)
	})
	require.NotEmpty(t, id)
	t.Run("CommandLine/RunAsJSON", func(t *testing.T) {
		out, _ := s.cli(t, "run", graph, "--json")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		require.Contains(t, lines[len(lines)-1], `"unbookedAttempts":"1"`)
		require.Contains(t, lines[len(lines)-2], `"unbookedAttempts":"1"`, "the event of the end")
	})
	t.Run("CommandLine/Show", func(t *testing.T) {
		out, stderr := s.cli(t, "runs", "show", id)
		require.Contains(t, out, "in 1 call, 1 attempt not booked yet\n")
		require.Contains(t, stderr, "the registry has not booked 1 attempt yet")
		out, _ = s.cli(t, "runs", "show", id, "--json")
		require.Contains(t, out, `"unbookedAttempts":"1"`)
	})
	t.Run("REST/GetRun", func(t *testing.T) {
		var r struct {
			Usage struct{ UnbookedAttempts int64String }
		}
		s.ask(t, request{path: "/v1/runs/" + id}, &r)
		require.EqualValues(t, 1, r.Usage.UnbookedAttempts)
	})
	t.Run("REST/Event", func(t *testing.T) {
		events := s.events(t, id, "?durable_only=true", "", 1000)
		require.Equal(t, "1", events[len(events)-2].data["runEnded"].(map[string]any)["unbookedAttempts"])
	})
	t.Run("Webhook/Body", func(t *testing.T) {
		select {
		case p := <-posts:
			require.Contains(t, p.body, `"unbooked_attempts":1`)
			require.EqualValues(t, 1, p.m.UnbookedAttempts)
		case <-time.After(timeout):
			require.FailNow(t, "nothing is shown")
		}
	})
	c, err := epigraph.Dial(s.address(), epigraph.WithKey(keyA))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	t.Run("SDK/Wait", func(t *testing.T) {
		r, err := c.Run(id).Wait(within(t))
		require.NoError(t, err)
		require.EqualValues(t, 1, r.GetUsage().GetUnbookedAttempts())
	})

	s.restart(t, "registry")
	testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
		r, err := c.Run(id).Get(within(t))
		require.NoError(t, err)
		return r.GetUsage().GetUnbookedAttempts() == 0 && r.GetUsage().GetCostNanoUsd() == callCost
	})
	t.Run("CommandLine/ShowsTheWholeLater", func(t *testing.T) {
		out, stderr := s.cli(t, "runs", "show", id)
		require.NotContains(t, out+stderr, "booked")
		require.Contains(t, out, "in 1 call, $0."+strings.TrimRight(fmt.Sprintf("%09d", callCost), "0")+"\n")
	})
}
