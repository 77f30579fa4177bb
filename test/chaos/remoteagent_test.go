package chaos_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/a2atest"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
)

// remoteAgent configures a remote agent that recognizes a message that comes again.
func remoteAgent(cfg *executor.Config, url string) error {
	raw, err := json.Marshal(map[string]any{"tester": map[string]any{"URL": url, "AllowPrivate": []string{"127.0.0.0/8"}, "Effect": "IDEMPOTENT"}})
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, &cfg.Actors.A2A.Agents)
}

// TestRemoteAgent kills the executor of a run that has a task at a remote agent. The next one goes on
// with the task, and the agent is told once.
func TestRemoteAgent(t *testing.T) {
	for name, c := range map[string]struct {
		message string
		env     []string
		// sent says that the executor dies when the agent knows the task, else while the message is
		// sent.
		sent bool
	}{
		"WhileItFollows/Stream": {message: "hold", sent: true},
		"WhileItFollows/Poll":   {message: "hold", sent: true, env: []string{"NO_STREAM=1"}},
		"WhileItSends":          {message: "slow 1500 done"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			agent := a2atest.Start(t, c.env...)
			w := &world{t: t, dir: t.TempDir(), store: "sqlite", agent: agent.URL}
			w.launch()
			message, err := json.Marshal(c.message)
			require.NoError(t, err)
			run, err := call(ctx, w, func(ctx context.Context, s *server) (*executorv1.Run, error) {
				return s.exec.StartRun(ctx, &executorv1.StartRunRequest{RequestId: "tell", Graph: &graphv1.Graph{Name: "tell", Nodes: []*graphv1.Node{
					{Id: "tell", Actor: "a2a/tester", Named: map[string]*graphv1.Payload{"message": {Json: message}}}}}})
			})
			require.NoError(t, err)
			testkit.Within(t, timeout, time.Millisecond, func() bool {
				l := agent.Log(t)
				return len(l.Messages) == 1 && (!c.sent || l.Held == 1 && w.follows(ctx, run.GetId()))
			}, "the agent is not told: %s", w.current().logs)
			w.current().kill()
			w.launch()
			if c.sent {
				agent.Release(t)
			}
			testkit.Within(t, timeout, 10*time.Millisecond, func() bool {
				run, err = call(ctx, w, func(ctx context.Context, s *server) (*executorv1.Run, error) {
					return s.exec.GetRun(ctx, &executorv1.GetRunRequest{RunId: run.GetId()})
				})
				return err == nil && run.GetState() >= executorv1.RunState_RUN_STATE_COMPLETED
			}, "the run does not end: %s", w.current().logs)
			require.Equal(t, executorv1.RunState_RUN_STATE_COMPLETED, run.GetState(), "%s", run)
			require.Len(t, agent.Log(t).Messages, 1, "messages to the agent")
			require.Empty(t, agent.Log(t).Canceled)
		})
	}
}

// follows reports whether the id of the task is durable: the run below has sent the message.
func (w *world) follows(ctx context.Context, parent string) bool {
	r, err := w.current().exec.ListRuns(ctx, &executorv1.ListRunsRequest{ParentRunId: parent})
	return err == nil && len(r.GetRuns()) == 1 && r.GetRuns()[0].GetNodes().GetCompleted() > 0
}
