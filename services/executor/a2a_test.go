package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/a2atest"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/a2a"
	"github.com/epigraph-run/epigraph/workgraph"
)

// withAgent configures one remote agent.
func withAgent(url string, change ...func(*a2a.Agent)) func(*executor.Config) {
	return func(c *executor.Config) {
		ag := a2a.Agent{URL: url, AllowPrivate: []string{"127.0.0.0/8"}}
		for _, f := range change {
			f(&ag)
		}
		c.Actors.A2A.Agents = map[string]a2a.Agent{"tester": ag}
	}
}

func tell(message string, more ...string) *graphv1.Node {
	raw, _ := json.Marshal(message)
	n := &graphv1.Node{Id: "tell", Actor: "a2a/tester", Named: map[string]*graphv1.Payload{"message": value(string(raw))}}
	for i := 0; i < len(more); i += 2 {
		n.Named[more[i]] = value(more[i+1])
	}
	return n
}

func (f *fixture) tell(t *testing.T, n *graphv1.Node, change ...func(*executorv1.StartRunRequest)) *executorv1.Run {
	t.Helper()
	req := &executorv1.StartRunRequest{Graph: nodes(n)}
	for _, c := range change {
		c(req)
	}
	run, err := f.StartRun(t.Context(), req)
	require.NoError(t, err)
	return run
}

func TestA2A(t *testing.T) {
	for name, env := range map[string][]string{"Streams": nil, "Polls": {"NO_STREAM=1"}, "REST": {"REST=1"}} {
		t.Run(name, func(t *testing.T) {
			agent := a2atest.Start(t, env...)
			f := serve(t, nil, withAgent(agent.URL))
			for name, c := range map[string]struct {
				node *graphv1.Node
				want string
			}{
				"Text":    {tell("echo hello there"), `"hello there"`},
				"Data":    {tell("data"), `{"n": 7}`},
				"Mixed":   {tell("mixed"), `{"text": "see \nthere", "data": [{"n": 7}]}`},
				"Message": {tell("direct"), `"at once"`},
			} {
				t.Run(name, func(t *testing.T) {
					run := f.wait(t, f.tell(t, c.node).GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
					require.JSONEq(t, c.want, string(run.GetResult().GetJson()))
				})
			}
			for name, c := range map[string]struct{ message, reason, says string }{
				"Failed":       {"fail", "A2A_TASK_FAILED", "the printer is on fire"},
				"Rejected":     {"reject", "A2A_TASK_REJECTED", "not my job"},
				"AuthRequired": {"auth", "A2A_AUTH_REQUIRED", "executor.actors.a2a.agents.tester"},
			} {
				t.Run(name, func(t *testing.T) {
					run := f.wait(t, f.tell(t, tell(c.message)).GetId(), executorv1.RunState_RUN_STATE_FAILED)
					require.Contains(t, run.String(), c.reason)
					require.Contains(t, run.String(), c.says)
				})
			}
			t.Run("Asks", func(t *testing.T) {
				run := f.tell(t, tell("ask"))
				q := f.question(t, run.GetId())
				require.JSONEq(t, `"Which city?"`, string(q.GetPrompt().GetJson()))
				_, err := f.AnswerInterrupt(t.Context(), &executorv1.AnswerInterruptRequest{InterruptId: q.GetId(), Answer: value(`"Oslo"`)})
				require.NoError(t, err)
				run = f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
				require.JSONEq(t, `"you said Oslo"`, string(run.GetResult().GetJson()))
				m := agent.Log(t).Messages
				asked, answered := m[len(m)-2], m[len(m)-1]
				require.Empty(t, asked.TaskID)
				require.NotEmpty(t, answered.TaskID)
				require.Equal(t, asked.ContextID, answered.ContextID)
			})
			t.Run("Cancel", func(t *testing.T) {
				run := f.tell(t, tell("hold"))
				testkit.Eventually(t, func() bool { return agent.Log(t).Held == 1 })
				_, err := f.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: run.GetId()})
				require.NoError(t, err)
				f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_CANCELED)
				testkit.Eventually(t, func() bool { return len(agent.Log(t).Canceled) == 1 }, "the agent is not told")
			})
			t.Run("CancelWhileItAsks", func(t *testing.T) {
				before := len(agent.Log(t).Canceled)
				run := f.tell(t, tell("ask"))
				f.question(t, run.GetId())
				_, err := f.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: run.GetId()})
				require.NoError(t, err)
				testkit.Eventually(t, func() bool { return len(agent.Log(t).Canceled) > before }, "the agent is not told")
			})
		})
	}
}

// question is the open question of a run or one below it.
func (f *fixture) question(t *testing.T, run string) (q *executorv1.Interrupt) {
	t.Helper()
	testkit.Eventually(t, func() bool {
		r, err := f.ListInterrupts(t.Context(), &executorv1.ListInterruptsRequest{})
		require.NoError(t, err)
		for _, one := range r.GetInterrupts() {
			if one.GetRunId() == run || one.GetRootRunId() == run {
				q = one
			}
		}
		return q != nil
	}, "nothing is asked")
	return q
}

func TestA2A_Message(t *testing.T) {
	agent := a2atest.Start(t)
	f := serve(t, nil, withAgent(agent.URL))
	sent := func(t *testing.T, n *graphv1.Node, change ...func(*executorv1.StartRunRequest)) (*executorv1.Run, a2atest.Message) {
		t.Helper()
		run := f.wait(t, f.tell(t, n, change...).GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
		m := agent.Log(t).Messages
		return run, m[len(m)-1]
	}
	t.Run("HasTheEffectKey", func(t *testing.T) {
		run, m := sent(t, tell("echo x"))
		require.Equal(t, run.GetId()+"/tell/1/0/1", m.Key)
	})
	t.Run("HasDataAsAPart", func(t *testing.T) {
		_, m := sent(t, tell("echo x", "data", `{"a": 1}`))
		require.Equal(t, []string{"text", "data"}, m.Parts)
	})
	t.Run("HasParts", func(t *testing.T) {
		_, m := sent(t, tell("", "message", `[{"text": "echo y"}, {"url": "https://example.com/a.png", "media_type": "image/png"}, {"raw": "aGk="}]`))
		require.Equal(t, []string{"text", "url", "raw"}, m.Parts)
	})
	t.Run("GoesOnWithAContext", func(t *testing.T) {
		_, a := sent(t, tell("echo x", "context", `"talk-7"`))
		_, b := sent(t, tell("echo x", "context", `"talk-7"`))
		require.NotEmpty(t, a.ContextID)
		require.NotEqual(t, "talk-7", a.ContextID)
		require.Equal(t, a.ContextID, b.ContextID)
	})
	t.Run("HasAContextOfItsOwn", func(t *testing.T) {
		_, a := sent(t, tell("echo x"))
		_, b := sent(t, tell("echo x"))
		require.NotEmpty(t, a.ContextID)
		require.NotEqual(t, a.ContextID, b.ContextID)
		require.NotEqual(t, a.MessageID, b.MessageID)
	})
	t.Run("TooLarge", func(t *testing.T) {
		run := f.wait(t, f.tell(t, tell(strings.Repeat("x", 2<<20))).GetId(), executorv1.RunState_RUN_STATE_FAILED)
		require.Contains(t, run.String(), "REQUEST_TOO_LARGE")
	})
	t.Run("PartOfTwoKinds", func(t *testing.T) {
		run := f.wait(t, f.tell(t, tell("", "message", `[{"text": "a", "url": "https://b"}]`)).GetId(), executorv1.RunState_RUN_STATE_FAILED)
		require.Contains(t, run.String(), "exactly one of text, data, url and raw")
	})
}

func TestA2A_Bounds(t *testing.T) {
	agent := a2atest.Start(t)
	f := serve(t, nil, withAgent(agent.URL, func(a *a2a.Agent) { a.MaxResponseBytes = conf.Bytes(64 << 10) }))
	t.Run("LargeResultIsRefused", func(t *testing.T) {
		run := f.wait(t, f.tell(t, tell("large 100000")).GetId(), executorv1.RunState_RUN_STATE_FAILED)
		require.Contains(t, run.String(), "more than 65536 bytes")
	})
	t.Run("ResultWithinTheBound", func(t *testing.T) {
		run := f.wait(t, f.tell(t, tell("large 30000")).GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
		require.Len(t, run.GetResult().GetJson(), 30002)
	})
}

func TestA2A_Card(t *testing.T) {
	agent := a2atest.Start(t, "TOKEN=secret")
	info := func(t *testing.T, f *fixture) *executorv1.ActorInfo {
		t.Helper()
		r, err := f.ListActors(t.Context(), &executorv1.ListActorsRequest{})
		require.NoError(t, err)
		for _, a := range r.GetActors() {
			if a.GetName() == "a2a/tester" {
				return a
			}
		}
		require.Fail(t, "the agent is not listed")
		return nil
	}
	bearer := func(a *a2a.Agent) { a.Bearer, a.Refresh = conf.NewSecret("secret"), 20*time.Millisecond }
	t.Run("IsRefreshed", func(t *testing.T) {
		f := serve(t, nil, withAgent(agent.URL, bearer))
		testkit.Eventually(t, func() bool {
			return strings.HasPrefix(info(t, f).GetDescription(), "Does as it is told.\n- echo: Says it again.")
		})
		was := info(t, f).GetVersion()
		require.Contains(t, string(info(t, f).GetArgsSchema().GetJson()), `"message"`)
		agent.Rename(t)
		testkit.Eventually(t, func() bool { return strings.HasPrefix(info(t, f).GetDescription(), "Does it differently.") })
		require.NotEqual(t, was, info(t, f).GetVersion())
	})
	t.Run("AtItsOwnAddress", func(t *testing.T) {
		f := serve(t, nil, withAgent(agent.URL+"/.well-known/agent-card.json", bearer))
		run := f.wait(t, f.tell(t, tell("echo x")).GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
		require.JSONEq(t, `"x"`, string(run.GetResult().GetJson()))
	})
	t.Run("WithoutCredentials", func(t *testing.T) {
		f := serve(t, nil, withAgent(agent.URL))
		testkit.Eventually(t, func() bool { return strings.Contains(info(t, f).GetUnavailable(), "status 401") })
		run := f.wait(t, f.tell(t, tell("echo x")).GetId(), executorv1.RunState_RUN_STATE_FAILED)
		require.Contains(t, run.String(), "A2A_AUTH_REQUIRED")
	})
	t.Run("OfAPrivateAddress", func(t *testing.T) {
		f := serve(t, nil, withAgent(agent.URL, bearer, func(a *a2a.Agent) { a.AllowPrivate = nil }))
		testkit.Eventually(t, func() bool { return info(t, f).GetUnavailable() != "" })
		require.Contains(t, info(t, f).GetUnavailable(), "127.0.0.1")
	})
	t.Run("IsKept", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "kept.db")
		at := func(c *executor.Config) { c.SQLitePath = path }
		// The agent, until it is closed.
		down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			resp, err := http.Get(agent.URL + "/log")
			if err == nil {
				err = resp.Body.Close()
			}
			if err != nil || r.URL.Path != "/.well-known/agent-card.json" {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			_, _ = io.WriteString(w, `{"name": "x", "description": "Kept.", "supportedInterfaces": [{"url": "http://`+r.Host+`/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}], "capabilities": {}, "skills": []}`)
		}))
		t.Cleanup(down.Close)
		t.Run("Up", func(t *testing.T) {
			f := serve(t, nil, withAgent(down.URL), at)
			testkit.Eventually(t, func() bool { return info(t, f).GetDescription() == "Kept." })
		})
		down.Close()
		t.Run("Down", func(t *testing.T) {
			f := serve(t, nil, withAgent(down.URL), at)
			testkit.Eventually(t, func() bool { return info(t, f).GetUnavailable() != "" })
			require.Equal(t, "Kept.", info(t, f).GetDescription())
		})
	})
}

func TestA2A_Unknown(t *testing.T) {
	f := serve(t, nil, withAgent("http://127.0.0.1:1"))
	r, err := f.ValidateGraph(t.Context(), &executorv1.ValidateGraphRequest{Graph: nodes(&graphv1.Node{Id: "x", Actor: "a2a/testr", Named: map[string]*graphv1.Payload{"message": value(`"hi"`)}}), Input: &executorv1.RunInput{}})
	require.NoError(t, err)
	require.NotEmpty(t, r.GetFaults())
	require.Contains(t, r.GetFaults()[0].String(), "did you mean a2a/tester?")
}

// TestA2A_Example runs examples/a2a/helper.json.
func TestA2A_Example(t *testing.T) {
	raw, err := os.ReadFile("../../examples/a2a/helper.json")
	require.NoError(t, err)
	g, err := workgraph.Decode(raw)
	require.NoError(t, err)
	wire, err := graphpb.ToProto(g)
	require.NoError(t, err)
	agent := a2atest.Start(t)
	f := serve(t, nil, func(c *executor.Config) {
		c.Actors.A2A.Agents = map[string]a2a.Agent{"helper": {URL: agent.URL, AllowPrivate: []string{"127.0.0.0/8"}}}
	})
	run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: wire})
	require.NoError(t, err)
	run = f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
	require.JSONEq(t, `"The Nile"`, string(run.GetResult().GetJson()))
}

// TestA2A_Stream watches a run whose remote agent writes its answer in pieces.
func TestA2A_Stream(t *testing.T) {
	agent := a2atest.Start(t)
	f := serve(t, nil, withAgent(agent.URL))
	run := f.tell(t, tell("chunks"))
	testkit.Eventually(t, func() bool { l := agent.Log(t); return l.Held == 1 && l.Streams == 1 })
	stream, err := f.WatchRun(t.Context(), &executorv1.WatchRunRequest{RunId: run.GetId(), IncludeDescendants: true})
	require.NoError(t, err)
	_, err = stream.Recv()
	require.NoError(t, err)
	agent.Release(t)
	text := ""
	for {
		ev, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if d := ev.GetTokenDelta(); d != nil {
			text = text[:d.GetOffset()] + d.GetText()
		}
	}
	require.Equal(t, "one two three", text)
	run = f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
	require.JSONEq(t, `"one two three"`, string(run.GetResult().GetJson()))
}

// TestA2A_Thread has two runs on one thread tell the same agent something.
func TestA2A_Thread(t *testing.T) {
	agent := a2atest.Start(t)
	f := serve(t, nil, withAgent(agent.URL))
	thread, err := executorv1.NewThreadServiceClient(f.conn).CreateThread(t.Context(), &executorv1.CreateThreadRequest{Thread: &executorv1.Thread{}})
	require.NoError(t, err)
	for range 2 {
		run := f.tell(t, tell("echo x"), func(r *executorv1.StartRunRequest) { r.ThreadId = thread.GetId() })
		f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
	}
	m := agent.Log(t).Messages
	require.Len(t, m, 2)
	require.Equal(t, m[0].ContextID, m[1].ContextID)
	require.NotEqual(t, m[0].MessageID, m[1].MessageID)
}

// TestA2A_Tool has an agent of ours call a remote one.
func TestA2A_Tool(t *testing.T) {
	agent := a2atest.Start(t)
	var told atomic.Value
	f := serve(t, workgraph.Actors{"reasoner": workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
		if c.Visit == 1 {
			return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`{"actions": [{"action": "tell", "arguments": {"message": "echo hi"}}]}`)}}, nil
		}
		raw, err := json.Marshal(c.Named)
		told.Store(string(raw))
		return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`{"result": "done"}`)}}, err
	})}, withAgent(agent.URL))
	run := f.tell(t, &graphv1.Node{Id: "ask", Actor: "agent", Named: map[string]*graphv1.Payload{
		"goal": value(`"tell it"`), "reasoner": value(`"reasoner"`), "actions": value(`{"tell": {"actor": "a2a/tester"}}`)}})
	run = f.wait(t, run.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
	require.JSONEq(t, `"done"`, string(run.GetResult().GetJson()))
	require.Len(t, agent.Log(t).Messages, 1)
	require.Contains(t, told.Load(), "hi", "what the reasoner is told of the result")
}
