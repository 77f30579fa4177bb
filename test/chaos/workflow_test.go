package chaos_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/failpoint"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/workflow"
)

const loopText = `
name: Loop
inputs: {task: {type: string}}
state: {count: {type: integer, reducer: add, initial: 0}}
agents: {writer: {instructions: Write one line.}}
steps:
  - {id: items, type: transform, template: [tea, milk, bread]}
  - id: lines
    type: loop
    over: items
    body:
      - {id: line, type: agent, agent: writer, prompt: "{{ lines.index }}: about {{ item }}", set: {count: 1}}
outputs: {lines: "{{ lines }}", count: "{{ state.count }}"}
`

const routedText = `
name: Routed
agents:
  a: {instructions: You are Ann.}
  b: {instructions: You are Bob.}
  c: {instructions: You are Cid.}
router:
  - {from: [input], to: a}
  - {from: [a], to: b}
  - {from: [a, b], to: c, batch_size: 2}
`

// bureau is the model of agents. It writes down the calls by their keys, and kills the executor in the middle
// of one.
type bureau struct {
	url string

	mu   sync.Mutex
	keys map[string]int
	left int
	kill func()
}

func newBureau(t *testing.T) *bureau {
	t.Helper()
	b := &bureau{keys: map[string]int{}}
	model := fakellm.New(fakellm.Script{Answer: b.answer})
	var err error
	b.url, err = model.Listen("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = model.Close() })
	return b
}

func (b *bureau) answer(r fakellm.Request) (fakellm.Reply, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keys[r.Header.Get("Idempotency-Key")]++
	if b.left--; b.left == 0 {
		b.kill()
		return fakellm.Reply{Fault: fakellm.Hang}, true
	}
	asked := ""
	for _, m := range r.Messages {
		asked += m.Content + "\n"
	}
	return reply(asked), true
}

// reply is what agents say, by what they are asked.
func reply(asked string) fakellm.Reply {
	for _, says := range []struct{ part, text string }{
		{"0: about tea", "Tea is hot."}, {"1: about milk", "Milk is white."}, {"2: about bread", "Bread is fresh."},
		{"You are Ann", "Ann begins."}, {"You are Bob", "Bob agrees."}, {"You are Cid", "Cid ends."},
		{"Plan this task in few steps", `{"steps": [{"id": "a", "do": "account", "needs": []}, {"id": "b", "do": "welcome", "needs": ["a"]}]}`},
		{"Your step: account", "account 7"}, {"Your step: welcome", "sent"},
	} {
		if strings.Contains(asked, says.part) {
			return fakellm.Reply{Text: says.text}
		}
	}
	switch {
	case strings.Contains(asked, "You help with customers"):
		return fakellm.Reply{ToolCalls: []fakellm.ToolCall{{ID: "1", Name: "task_agent", Arguments: `{"task": "Onboard Acme"}`}}}
	case strings.Contains(asked, `"sent"`):
		return fakellm.Reply{Text: `{"steps": [], "response": "Acme is on board."}`}
	}
	return fakellm.Reply{Text: `{"steps": [{"id": "b", "do": "welcome", "needs": ["a"]}], "response": ""}`}
}

// arm forgets all calls, and sets in which one from now on the executor is killed; 0 for none.
func (b *bureau) arm(left int, kill func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keys, b.left, b.kill = map[string]int{}, left, kill
}

// made are the calls since arm: how many there were, and how many of them were made again.
func (b *bureau) made() (calls, again int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.keys {
		calls++
		again += n - 1
	}
	return calls, again
}

// settings of an executor whose models live in the bureau.
func (b *bureau) settings() []string {
	// Maps of texts always marshal.
	profiles, _ := json.Marshal(map[string]any{"default": map[string]any{"base_url": b.url, "api_key": "x"}})
	return []string{"models.profiles=" + string(profiles), "executor.max_takeovers=5"}
}

// ending is what a run of a workflow leaves: its result, and what was said in the thread of the team.
type ending struct {
	result string
	said   []string
}

// TestWorkflow kills the executor of a loop, of agents that are called by messages, and of the orchestrator:
// in the middle of a call of a model, and right after a commit. The process is started again, and each step
// is done and each message said once.
func TestWorkflow(t *testing.T) {
	t.Parallel()
	orchestrator, err := os.ReadFile("../../examples/workflow/orchestrator.yaml")
	require.NoError(t, err)
	b := newBureau(t)
	c := newCluster(t, clusterOptions{store: "sqlite", replicas: 1, settings: b.settings()})
	for _, w := range []struct {
		name, text string
		want       ending
		// calls are those of models; in the middle of the inCall-th, and after the commits, the executor
		// dies.
		calls, inCall int
		commits       []int
	}{
		{"loop", loopText, ending{`{"count":3,"lines":["Tea is hot.","Milk is white.","Bread is fresh."]}`, nil}, 3, 2, []int{9}},
		{"routed", routedText, ending{`"Cid ends."`, []string{"Go", "Ann begins.", "Bob agrees.", "Cid ends."}}, 3, 3, []int{12}},
		{"orchestrator", string(orchestrator), ending{`"Acme is on board."`, []string{"Go", "Routing task to plan-execute workflow: Onboard Acme", "Acme is on board."}}, 6, 5, []int{8, 24}},
	} {
		t.Run(w.name, func(t *testing.T) {
			got, died := c.workflow(t, b, w.name, w.text, 0, nil)
			require.False(t, died)
			require.Equal(t, w.want, got)
			calls, again := b.made()
			require.Equal(t, [2]int{w.calls, 0}, [2]int{calls, again})
			dies := func(name string, inCall int, points map[failpoint.Point]int, mostAgain int) {
				t.Run(name, func(t *testing.T) {
					got, died := c.workflow(t, b, w.name, w.text, inCall, points)
					require.True(t, died, "there are fewer moments than that")
					require.Equal(t, w.want, got)
					calls, again := b.made()
					require.Equal(t, w.calls, calls, "each call has a key of its own")
					require.LessOrEqual(t, again, mostAgain, "a call that had ended is not made again")
				})
			}
			dies("InACallOfTheModel", w.inCall, nil, 1)
			for _, n := range w.commits {
				dies("AfterACommit", 0, map[failpoint.Point]int{failpoint.CommitAfter: n}, 0)
			}
		})
	}
	testkit.Within(t, timeout, 50*time.Millisecond, func() bool { return len(c.rows(t.Context(), `SELECT run_id FROM outbox`)) == 0 }, "the registry does not hear of all usage")
	for _, i := range invariants() {
		if i.what != "too many children" { // a team has as many as it has turns
			require.Empty(t, c.rows(t.Context(), i.sql), i.want)
		}
	}
	require.Empty(t, c.examined(t.Context()))
}

// workflow runs a workflow on a new process, which dies in a call of the model or at a point, and then on
// another one.
func (c *cluster) workflow(t *testing.T, b *bureau, name, text string, inCall int, points map[failpoint.Point]int) (out ending, died bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	d, faults := workflow.Read([]byte(text))
	require.Empty(t, faults)
	g, faults := workflow.Compile(d)
	require.Empty(t, faults)
	wire, err := graphpb.ToProto(g)
	require.NoError(t, err)
	r := c.replicas[0]
	r.end()
	b.arm(inCall, func() { r.signal(syscall.SIGKILL) })
	require.NoError(t, r.start(points))
	dead := r.over()
	done := make(chan *executorv1.Run, 1)
	failed := make(chan error, 1)
	go func() {
		run, err := c.finished(ctx, &executorv1.StartRunRequest{Graph: wire, RequestId: t.Name(), Named: map[string]*graphv1.Payload{"task": {Json: []byte(`"Go"`)}}})
		failed <- err
		done <- run
	}()
	select {
	case err = <-failed:
	case <-dead:
		died = true
		c.kills.Add(1)
		totals.kill("executor of a workflow: " + name)
		require.NoError(t, r.start(nil))
		err = <-failed
	}
	require.NoError(t, err)
	run := <-done
	require.Equal(t, executorv1.RunState_RUN_STATE_COMPLETED, run.GetState(), "%s", run.GetError())
	return c.left(ctx, t, run), died
}

// finished starts a run and waits for its end.
func (c *cluster) finished(ctx context.Context, req *executorv1.StartRunRequest) (*executorv1.Run, error) {
	run, err := persist(ctx, func(ctx context.Context) (*executorv1.Run, error) { return c.replicas[0].exec.StartRun(ctx, req) })
	for err == nil && run.GetEndTime() == nil {
		still(20 * time.Millisecond)
		run, err = persist(ctx, func(ctx context.Context) (*executorv1.Run, error) {
			return c.replicas[0].exec.GetRun(ctx, &executorv1.GetRunRequest{RunId: run.GetId()})
		})
	}
	return run, err
}

// left is what a run has left.
func (c *cluster) left(ctx context.Context, t *testing.T, run *executorv1.Run) (out ending) {
	t.Helper()
	var team struct {
		Text   json.RawMessage
		Thread string `json:"thread_id"`
	}
	require.NoError(t, json.Unmarshal(run.GetResult().GetJson(), &team))
	if team.Thread == "" {
		var v any
		require.NoError(t, json.Unmarshal(run.GetResult().GetJson(), &v))
		raw, err := json.Marshal(v) // with the keys in order
		require.NoError(t, err)
		return ending{result: string(raw)}
	}
	conn, err := grpckit.Dial(c.addr(c.replicas[0].name), grpckit.DialOptions{Namespace: namespace})
	require.NoError(t, err)
	defer conn.Close()
	messages, err := executorv1.NewThreadServiceClient(conn).ListMessages(ctx, &executorv1.ListMessagesRequest{ThreadId: team.Thread, PageSize: 1000})
	require.NoError(t, err)
	out.result = string(team.Text)
	for i := len(messages.GetMessages()) - 1; i >= 0; i-- {
		var m struct{ Content string }
		require.NoError(t, json.Unmarshal(messages.GetMessages()[i].GetBody().GetJson(), &m))
		out.said = append(out.said, m.Content)
	}
	return out
}
