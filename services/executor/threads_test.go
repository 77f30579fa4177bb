package executor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	queued   = executorv1.TurnState_TURN_STATE_QUEUED
	started  = executorv1.TurnState_TURN_STATE_STARTED
	answered = executorv1.TurnState_TURN_STATE_ANSWERED
	refused  = executorv1.TurnState_TURN_STATE_FAILED
)

// talking is a server with threads and scripted agents: echo appends what it hears and ends, asks asks back
// first, slow waits at a door.
type talking struct {
	*fixture
	threads executorv1.ThreadServiceClient
	slow    *door
}

func onThreads(t *testing.T, test func(t *testing.T, f talking)) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		slow := newDoor()
		wait := slow.actor()
		named := func(c *workgraph.Call, name string) (s string) {
			_ = json.Unmarshal(c.Named[name], &s)
			return s
		}
		// Each thread of these tests has one agent, which counts its messages by itself.
		said := make(chan map[string]int64, 1)
		said <- map[string]int64{}
		append1 := func(c *workgraph.Call, text json.RawMessage) []workgraph.ThreadAppend {
			m := <-said
			defer func() { said <- m }()
			id := named(c, "thread_id")
			a := workgraph.ThreadAppend{Thread: id, After: m[id], Items: []workgraph.ThreadItem{
				{Kind: workgraph.ThreadMessage, Body: text}, {Kind: workgraph.ThreadState, Brief: json.RawMessage(`{"status":"Completed"}`), Body: json.RawMessage(`{"round":1}`)},
				{Kind: workgraph.ThreadLearning, Body: json.RawMessage(`{"id":"l"}`)}}}
			if a.After == 3 {
				a.Items[2] = workgraph.ThreadItem{Kind: workgraph.ThreadSummary, Body: json.RawMessage(`{"first":1,"last":3,"summary":"s"}`)}
			}
			m[id] += 3
			return []workgraph.ThreadAppend{a}
		}
		actors := workgraph.Actors{
			"agent/echo": workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
				return workgraph.Outcome{Values: []json.RawMessage{c.Named["user_input"]}, Threads: append1(c, c.Named["user_input"])}, nil
			}),
			"agent/asks": workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
				return workgraph.Outcome{Threads: append1(c, c.Named["user_input"]), Wait: &workgraph.Wait{Interrupt: &workgraph.Interrupt{
					Prompt: json.RawMessage(`"Which one?"`), Schema: json.RawMessage(`{"type":"string"}`), OfAgent: true}}}, nil
			}),
			"agent/slow": workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
				out, err := wait.Call(ctx, c)
				if err == nil {
					out.Threads = append1(c, c.Named["user_input"])
				}
				return out, err
			}),
			"makes": outcomes(workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`1`)}, Threads: []workgraph.ThreadAppend{
				{Thread: "thr_made", Create: &workgraph.ThreadCreate{Agent: "agent/ecko", Key: "made"}}}}),
			"place": workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
				b, err := json.Marshal(c.Thread)
				return workgraph.Outcome{Values: []json.RawMessage{b}}, err
			}),
		}
		f := serve(t, actors, store)
		test(t, talking{f, executorv1.NewThreadServiceClient(f.conn), slow})
	})
}

func (f talking) create(t *testing.T, agent string) string {
	t.Helper()
	th, err := f.threads.CreateThread(t.Context(), &executorv1.CreateThreadRequest{Thread: &executorv1.Thread{Agent: agent}})
	require.NoError(t, err)
	return th.GetId()
}

func (f talking) send(t *testing.T, id, json string) *executorv1.Turn {
	t.Helper()
	turn, err := f.threads.AppendMessage(t.Context(), &executorv1.AppendMessageRequest{ThreadId: id, Content: value(json)})
	require.NoError(t, err)
	return turn
}

// becomes waits until a turn has a state.
func (f talking) becomes(t *testing.T, turn *executorv1.Turn, want executorv1.TurnState) *executorv1.Turn {
	t.Helper()
	testkit.Within(t, time.Minute, 5*time.Millisecond, func() bool {
		var err error
		turn, err = f.threads.GetTurn(t.Context(), &executorv1.GetTurnRequest{ThreadId: turn.GetThreadId(), Number: turn.GetNumber()})
		require.NoError(t, err)
		return turn.GetState() == want
	}, "turn %d is %s", turn.GetNumber(), turn.GetState())
	return turn
}

func (f talking) ends(t *testing.T, run string) *executorv1.Run {
	t.Helper()
	var r *executorv1.Run
	testkit.Within(t, time.Minute, 5*time.Millisecond, func() bool {
		var err error
		r, err = f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: run})
		require.NoError(t, err)
		return r.GetState() >= executorv1.RunState_RUN_STATE_COMPLETED
	}, "run %s", run)
	return r
}

// messages are those of a thread, oldest first, read in pages of two.
func (f talking) messages(t *testing.T, id string) (out []string) {
	t.Helper()
	for token := ""; ; {
		page, err := f.threads.ListMessages(t.Context(), &executorv1.ListMessagesRequest{ThreadId: id, PageSize: 2, PageToken: token})
		require.NoError(t, err)
		for _, m := range page.GetMessages() {
			out = append([]string{string(m.GetBody().GetJson())}, out...)
		}
		if token = page.GetNextPageToken(); token == "" {
			return out
		}
	}
}

// goOn gives a run the signal that it waits for.
func (f talking) goOn(ctx context.Context, run string) error {
	_, err := f.SignalRun(ctx, &executorv1.SignalRunRequest{RunId: run, Name: "go"})
	return err
}

func TestTurns(t *testing.T) {
	onThreads(t, func(t *testing.T, f talking) {
		t.Run("Message/StartsTheAgent", func(t *testing.T) {
			id := f.create(t, "agent/echo")
			turn := f.send(t, id, `"hello"`)
			require.Equal(t, started, turn.GetState())
			run := f.ends(t, turn.GetRunId())
			require.Equal(t, id, run.GetThreadId())
			require.JSONEq(t, `"hello"`, string(run.GetResult().GetJson()))
			require.Equal(t, []string{`"hello"`}, f.messages(t, id))
		})
		t.Run("Message/IsToldToTheFeed", func(t *testing.T) {
			id := f.create(t, "agent/echo")
			run := f.send(t, id, `{"role":"user","content":"hello"}`).GetRunId()
			f.ends(t, run)
			_, err := f.threads.DeleteThread(t.Context(), &executorv1.DeleteThreadRequest{ThreadId: id})
			require.NoError(t, err)
			var told []string
			testkit.Eventually(t, func() bool {
				f.registry.mu.Lock()
				defer f.registry.mu.Unlock()
				told = nil
				for _, c := range f.registry.threads {
					if c.GetThreadId() == id {
						told = append(told, fmt.Sprintf("%s %s by %s", c.GetKind(), c.GetRole()+c.GetAgent(), c.GetRunId()))
					}
				}
				return len(told) > 2
			})
			require.Equal(t, []string{"THREAD_CHANGE_KIND_CREATED agent/echo by ", "THREAD_CHANGE_KIND_MESSAGE user by " + run,
				"THREAD_CHANGE_KIND_DELETED agent/echo by "}, told)
		})
		t.Run("Messages/AreTakenInOrderAndOneAtATime", func(t *testing.T) {
			id := f.create(t, "agent/slow")
			var turns []*executorv1.Turn
			for i := range 4 {
				turns = append(turns, f.send(t, id, fmt.Sprint(i)))
			}
			require.Equal(t, started, turns[0].GetState())
			for _, turn := range turns[1:] {
				require.Equal(t, queued, turn.GetState())
			}
			var before time.Time
			for _, turn := range turns {
				var run *executorv1.Run
				testkit.Within(t, time.Minute, 5*time.Millisecond, func() bool {
					f.slow.pass()
					turn, err := f.threads.GetTurn(t.Context(), &executorv1.GetTurnRequest{ThreadId: id, Number: turn.GetNumber()})
					require.NoError(t, err)
					if turn.GetState() != started {
						return false
					}
					run, err = f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: turn.GetRunId()})
					require.NoError(t, err)
					return run.GetState() == executorv1.RunState_RUN_STATE_COMPLETED
				}, "turn %d", turn.GetNumber())
				require.False(t, run.GetCreateTime().AsTime().Before(before), "one at a time")
				before = run.GetEndTime().AsTime()
			}
			require.Equal(t, []string{`0`, `1`, `2`, `3`}, f.messages(t, id))
			list, err := f.threads.ListTurns(t.Context(), &executorv1.ListTurnsRequest{ThreadId: id, PageSize: 3})
			require.NoError(t, err)
			require.Len(t, list.GetTurns(), 3)
			list, err = f.threads.ListTurns(t.Context(), &executorv1.ListTurnsRequest{ThreadId: id, PageSize: 3, PageToken: list.GetNextPageToken()})
			require.NoError(t, err)
			require.Len(t, list.GetTurns(), 1)
			require.Empty(t, list.GetNextPageToken())
		})
		t.Run("Question/IsAnsweredByTheNextMessage", func(t *testing.T) {
			id := f.create(t, "agent/asks")
			first := f.send(t, id, `"buy it"`)
			second := f.becomes(t, f.send(t, id, `"the red one"`), answered) // sent before or after it asks
			require.Equal(t, first.GetRunId(), second.GetRunId())
			question, err := f.GetInterrupt(t.Context(), &executorv1.GetInterruptRequest{InterruptId: second.GetInterruptId()})
			require.NoError(t, err)
			require.False(t, question.GetOfAgent(), "whatever an actor says")
			require.JSONEq(t, `"the red one"`, string(f.ends(t, first.GetRunId()).GetResult().GetJson()))
		})
		t.Run("Answer/ThatDoesNotFitFailsTheTurn", func(t *testing.T) {
			id := f.create(t, "agent/asks")
			first := f.send(t, id, `"buy it"`)
			failed := f.becomes(t, f.send(t, id, `17`), refused)
			require.NotEmpty(t, failed.GetError())
			f.becomes(t, f.send(t, id, `"the red one"`), answered)
			f.ends(t, first.GetRunId())
		})
		t.Run("Agent/ThatIsNotThereIsRefused", func(t *testing.T) {
			unknown := func(err error) {
				t.Helper()
				require.Equal(t, "THREAD_AGENT_UNKNOWN", errs.ReasonOf(err), "%v", err)
				require.Contains(t, err.Error(), "agent/ecko")
				require.Contains(t, errs.From(err).HintText(), "agent/echo")
			}
			nobody := &executorv1.Thread{Agent: "agent/ecko"}
			_, err := f.threads.CreateThread(t.Context(), &executorv1.CreateThreadRequest{Thread: nobody})
			unknown(err)
			_, err = f.threads.ForkThread(t.Context(), &executorv1.ForkThreadRequest{ThreadId: f.create(t, "agent/echo"), Thread: nobody})
			unknown(err)
			_, err = f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(actorNode("a", "place", `{}`)), Thread: nobody})
			unknown(err)
			// A run may make such a thread, and actors may go.
			made, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(actorNode("a", "makes", `{}`))})
			require.NoError(t, err)
			f.ends(t, made.GetId())
			th, err := f.threads.GetThread(t.Context(), &executorv1.GetThreadRequest{ThreadId: "-", Key: "made"})
			require.NoError(t, err)
			_, err = f.threads.AppendMessage(t.Context(), &executorv1.AppendMessageRequest{ThreadId: th.GetId(), Content: value(`"hello"`)})
			unknown(err)
			turns, err := f.threads.ListTurns(t.Context(), &executorv1.ListTurnsRequest{ThreadId: th.GetId()})
			require.NoError(t, err)
			require.Empty(t, turns.GetTurns(), "nothing is kept")
		})
		// beside is a run of an agent on a thread that its start does not name: the thread alone knows.
		beside := func(t *testing.T, id, decisions, action string, after ...*graphv1.Node) string {
			t.Helper()
			agent := actorNode("a", "agent", fmt.Sprintf(`{"user_input": "x", "thread_id": %q, "reasoner": "cel", "reasoner_args": {"expr": %q}, "actions": {"act": %s}}`, id, decisions, action))
			run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(append([]*graphv1.Node{agent}, after...)...)})
			require.NoError(t, err)
			return run.GetId()
		}
		// soon is long before anybody looks for turns whose job was lost.
		soon := func(t *testing.T, turn *executorv1.Turn, want executorv1.TurnState) {
			t.Helper()
			began := time.Now()
			f.becomes(t, turn, want)
			require.Less(t, time.Since(began), 8*time.Second)
		}
		waiting := actorNode("b", "signal", `{"name": "go"}`)
		for how, end := range map[string]struct {
			after []*graphv1.Node
			steer func(ctx context.Context, run string) error
		}{
			"Completes": {[]*graphv1.Node{waiting}, f.goOn},
			"Fails":     {[]*graphv1.Node{waiting, actorNode("c", "fail", `{}`)}, f.goOn},
			"IsCanceled": {[]*graphv1.Node{waiting}, func(ctx context.Context, run string) error {
				_, err := f.CancelRun(ctx, &executorv1.CancelRunRequest{RunId: run})
				return err
			}},
		} {
			t.Run("Holder/BringsTheNextMessageWhenIt"+how, func(t *testing.T) {
				id := f.create(t, "agent/echo")
				run := beside(t, id, `{'result': dyn(1)}`, `{"actor": "cel", "named": {"expr": "1"}}`, end.after...)
				f.wait(t, run, executorv1.RunState_RUN_STATE_WAITING)
				testkit.Within(t, time.Minute, 5*time.Millisecond, func() bool {
					visits, err := f.ListVisits(t.Context(), &executorv1.ListVisitsRequest{RunId: run, NodeId: "b"})
					require.NoError(t, err)
					return len(visits.GetVisits()) > 0
				}, "the agent is still at work")
				turn := f.send(t, id, `"hello"`)
				require.Equal(t, queued, turn.GetState())
				require.NoError(t, end.steer(t.Context(), run))
				soon(t, turn, started)
			})
		}
		t.Run("Holder/BringsTheNextMessageWhenItAsks", func(t *testing.T) {
			id := f.create(t, "agent/echo")
			beside(t, id, `named.round == 1 ? dyn({'actions': ['act']}) : named.round == 2 ? dyn({'task_status': 'Pending', 'instant_response': 'Where?'}) : dyn({'result': 1})`,
				`{"actor": "sleep", "named": {"duration": "500ms"}}`)
			testkit.Within(t, time.Minute, 5*time.Millisecond, func() bool {
				th, err := f.threads.GetThread(t.Context(), &executorv1.GetThreadRequest{ThreadId: id})
				require.NoError(t, err)
				return th.GetRunId() != ""
			}, "nobody holds the thread")
			soon(t, f.send(t, id, `"there"`), answered)
		})
		t.Run("Request/IsCarriedOutOnce", func(t *testing.T) {
			id := f.create(t, "agent/echo")
			req := &executorv1.AppendMessageRequest{ThreadId: id, Content: value(`"once"`), RequestId: "r1-" + id}
			first, err := f.threads.AppendMessage(t.Context(), req)
			require.NoError(t, err)
			again, err := f.threads.AppendMessage(t.Context(), req)
			require.NoError(t, err)
			require.Equal(t, first.GetNumber(), again.GetNumber())
			require.Equal(t, first.GetRunId(), again.GetRunId())
			f.ends(t, first.GetRunId())
			require.Equal(t, []string{`"once"`}, f.messages(t, id))
		})
		t.Run("Queue/IsBounded", func(t *testing.T) {
			id := f.create(t, "agent/slow")
			for range 101 {
				f.send(t, id, `"hello"`)
			}
			_, err := f.threads.AppendMessage(t.Context(), &executorv1.AppendMessageRequest{ThreadId: id, Content: value(`1`)})
			require.Equal(t, "THREAD_QUEUE_FULL", errs.ReasonOf(err))
		})
	})
}

func TestThreadService(t *testing.T) {
	onThreads(t, func(t *testing.T, f talking) {
		t.Run("Fork/GoesOnByItself", func(t *testing.T) {
			id := f.create(t, "agent/echo")
			for i := range 3 {
				f.ends(t, f.send(t, id, fmt.Sprint(i)).GetRunId())
			}
			fork, err := f.threads.ForkThread(t.Context(), &executorv1.ForkThreadRequest{ThreadId: id, Sequence: 4, Thread: &executorv1.Thread{Title: "What if"}})
			require.NoError(t, err)
			require.Equal(t, "agent/echo", fork.GetAgent(), "that of the thread")
			require.Equal(t, []string{`0`, `1`}, f.messages(t, fork.GetId()))
			require.Equal(t, []string{`0`, `1`, `2`}, f.messages(t, id))
			states, err := f.threads.ListStates(t.Context(), &executorv1.ListStatesRequest{ThreadId: id, PageSize: 1})
			require.NoError(t, err)
			require.JSONEq(t, `{"status":"Completed"}`, string(states.GetStates()[0].GetBrief().GetJson()))
			require.Nil(t, states.GetStates()[0].GetBody(), "bodies are large")
			require.NotEmpty(t, states.GetNextPageToken())
			states, err = f.threads.ListStates(t.Context(), &executorv1.ListStatesRequest{ThreadId: id, Full: true})
			require.NoError(t, err)
			require.Len(t, states.GetStates(), 3)
			require.JSONEq(t, `{"round":1}`, string(states.GetStates()[0].GetBody().GetJson()))
			learned, err := f.threads.ListLearnings(t.Context(), &executorv1.ListLearningsRequest{ThreadId: fork.GetId()})
			require.NoError(t, err)
			require.Len(t, learned.GetLearnings(), 1)
			sums, err := f.threads.ListSummaries(t.Context(), &executorv1.ListSummariesRequest{ThreadId: id})
			require.NoError(t, err)
			require.Len(t, sums.GetSummaries(), 1)
			require.JSONEq(t, `{"first":1,"last":3,"summary":"s"}`, string(sums.GetSummaries()[0].GetBody().GetJson()))
			require.EqualValues(t, 6, sums.GetSummaries()[0].GetSequence())
		})
		t.Run("Key/FindsTheThread", func(t *testing.T) {
			made, err := f.threads.CreateThread(t.Context(), &executorv1.CreateThreadRequest{Thread: &executorv1.Thread{Key: "u:c:w"}})
			require.NoError(t, err)
			got, err := f.threads.GetThread(t.Context(), &executorv1.GetThreadRequest{ThreadId: "-", Key: "u:c:w"})
			require.NoError(t, err)
			require.Equal(t, made.GetId(), got.GetId())
			_, err = f.threads.CreateThread(t.Context(), &executorv1.CreateThreadRequest{Thread: &executorv1.Thread{Key: "u:c:w"}})
			require.Equal(t, "THREAD_ALREADY_EXISTS", errs.ReasonOf(err))
			list, err := f.threads.ListThreads(t.Context(), &executorv1.ListThreadsRequest{KeyPrefix: "u:c:"})
			require.NoError(t, err)
			require.Len(t, list.GetThreads(), 1)
			_, err = f.threads.AppendMessage(t.Context(), &executorv1.AppendMessageRequest{ThreadId: made.GetId(), Content: value(`1`)})
			require.Equal(t, "THREAD_WITHOUT_AGENT", errs.ReasonOf(err))
		})
		t.Run("Namespace/SeesItsOwnOnly", func(t *testing.T) {
			id := f.create(t, "agent/echo")
			other := grpckit.WithNamespace(t.Context(), "other")
			_, err := f.threads.GetThread(other, &executorv1.GetThreadRequest{ThreadId: id})
			require.Equal(t, "THREAD_NOT_FOUND", errs.ReasonOf(err))
			_, err = f.threads.ListMessages(other, &executorv1.ListMessagesRequest{ThreadId: id})
			require.Equal(t, "THREAD_NOT_FOUND", errs.ReasonOf(err))
			_, err = f.threads.AppendMessage(other, &executorv1.AppendMessageRequest{ThreadId: id, Content: value(`1`)})
			require.Equal(t, "THREAD_NOT_FOUND", errs.ReasonOf(err))
			_, err = f.threads.ForkThread(other, &executorv1.ForkThreadRequest{ThreadId: id})
			require.Equal(t, "THREAD_NOT_FOUND", errs.ReasonOf(err))
			_, err = f.threads.DeleteThread(other, &executorv1.DeleteThreadRequest{ThreadId: id})
			require.Equal(t, "THREAD_NOT_FOUND", errs.ReasonOf(err))
		})
		t.Run("Delete/OnceNothingIsAtWork", func(t *testing.T) {
			id := f.create(t, "agent/echo")
			f.ends(t, f.send(t, id, `1`).GetRunId())
			_, err := f.threads.DeleteThread(t.Context(), &executorv1.DeleteThreadRequest{ThreadId: id})
			require.NoError(t, err)
			_, err = f.threads.GetThread(t.Context(), &executorv1.GetThreadRequest{ThreadId: id})
			require.Equal(t, "THREAD_NOT_FOUND", errs.ReasonOf(err))
		})
		t.Run("Run/IsStartedOnAThread", func(t *testing.T) {
			id := f.create(t, "")
			g := nodes(&graphv1.Node{Id: "a", Actor: "place"})
			run, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: g, ThreadId: id})
			require.NoError(t, err)
			require.JSONEq(t, fmt.Sprintf("%q", id), string(f.ends(t, run.GetId()).GetResult().GetJson()))
			list, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{ThreadId: id})
			require.NoError(t, err)
			require.Len(t, list.GetRuns(), 1)
			_, err = f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: g, ThreadId: "thr_none"})
			require.Equal(t, "THREAD_NOT_FOUND", errs.ReasonOf(err))
		})
		t.Run("Faults/AreNamed", func(t *testing.T) {
			for name, th := range map[string]*executorv1.Thread{
				"OfRun":          {Lifetime: executorv1.ThreadLifetime_THREAD_LIFETIME_RUN},
				"KeyOfEphemeral": {Lifetime: executorv1.ThreadLifetime_THREAD_LIFETIME_EPHEMERAL, Key: "k"},
			} {
				_, err := f.threads.CreateThread(t.Context(), &executorv1.CreateThreadRequest{Thread: th})
				require.Equal(t, "THREAD_INVALID", errs.ReasonOf(err), name)
			}
			_, err := f.threads.GetThread(t.Context(), &executorv1.GetThreadRequest{ThreadId: "thr_1", Key: "k"})
			require.Equal(t, "THREAD_INVALID", errs.ReasonOf(err))
			_, err = f.threads.ForkThread(t.Context(), &executorv1.ForkThreadRequest{ThreadId: f.create(t, ""), Sequence: 9})
			require.Equal(t, "THREAD_INVALID", errs.ReasonOf(err))
		})
	})
}
