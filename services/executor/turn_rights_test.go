package executor_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// TestRightsOfMessages sends messages to agents that wait for a person, with a key that may answer interrupts
// and with one that may not.
func TestRightsOfMessages(t *testing.T) {
	t.Parallel()
	serverTLS, clientTLS := authority(t)
	r := openWith(t, "rights", serverTLS, clientTLS, nil)
	runs, threads := r.client(keyAcme), executorv1.NewThreadServiceClient(r.dial(keyAcme))
	talks := executorv1.NewThreadServiceClient(r.dial(keyTalks))
	// asks starts an agent on a new thread, whose first decision asks, and waits for the question.
	asks := func(t *testing.T, decision string) (run, thread string, question *executorv1.Interrupt) {
		t.Helper()
		th, err := threads.CreateThread(t.Context(), &executorv1.CreateThreadRequest{Thread: &executorv1.Thread{Agent: "agent"}})
		require.NoError(t, err)
		agent := actorNode("a", "agent", fmt.Sprintf(`{"user_input": "x", "thread_id": %q, "reasoner": "cel", "reasoner_args": {"expr": %q},
			"actions": {"ask": {"actor": "human", "named": {"prompt": "Shall we ship?", "choices": ["ship", "wait"]}}}}`,
			th.GetId(), "named.round == 1 ? dyn("+decision+") : dyn({'result': 'done'})"))
		started, err := runs.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(agent)})
		require.NoError(t, err)
		testkit.Within(t, time.Minute, 5*time.Millisecond, func() bool {
			list, err := runs.ListInterrupts(t.Context(), &executorv1.ListInterruptsRequest{RunId: started.GetId()})
			require.NoError(t, err)
			if len(list.GetInterrupts()) > 0 {
				question = list.GetInterrupts()[0]
			}
			return question != nil
		}, "the agent asks nothing")
		return started.GetId(), th.GetId(), question
	}
	send := func(t *testing.T, by executorv1.ThreadServiceClient, thread string) *executorv1.Turn {
		t.Helper()
		turn, err := by.AppendMessage(t.Context(), &executorv1.AppendMessageRequest{ThreadId: thread, Content: value(`"ship"`)})
		require.NoError(t, err)
		return turn
	}
	ends := func(t *testing.T, run string) {
		t.Helper()
		testkit.Within(t, time.Minute, 5*time.Millisecond, func() bool {
			got, err := runs.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: run})
			require.NoError(t, err)
			return got.GetState() == executorv1.RunState_RUN_STATE_COMPLETED
		}, "run %s", run)
	}
	const ofAgent, ofHuman = `{'task_status': 'Pending', 'instant_response': 'Where to?'}`, `{'actions': ['ask']}`

	t.Run("Agent/IsAnsweredByAnybody", func(t *testing.T) {
		t.Parallel()
		run, thread, question := asks(t, ofAgent)
		require.True(t, question.GetOfAgent())
		turn := send(t, talks, thread)
		require.Equal(t, answered, turn.GetState())
		require.Equal(t, question.GetId(), turn.GetInterruptId())
		ends(t, run)
	})
	t.Run("Human/IsAnsweredByThoseWhoMay", func(t *testing.T) {
		t.Parallel()
		run, thread, question := asks(t, ofHuman)
		require.False(t, question.GetOfAgent())
		require.Equal(t, answered, send(t, threads, thread).GetState())
		ends(t, run)
	})
	t.Run("Human/LeavesOtherMessagesInTheQueue", func(t *testing.T) {
		t.Parallel()
		run, thread, question := asks(t, ofHuman)
		answer := &executorv1.AnswerInterruptRequest{InterruptId: question.GetId(), Answer: value(`"ship"`)}
		_, err := r.client(keyTalks).AnswerInterrupt(t.Context(), answer)
		require.Equal(t, "SCOPE_MISSING", errs.ReasonOf(err))
		require.Equal(t, queued, send(t, talks, thread).GetState())
		require.Equal(t, queued, send(t, threads, thread).GetState(), "messages are taken in order")
		got, err := runs.GetInterrupt(t.Context(), &executorv1.GetInterruptRequest{InterruptId: question.GetId()})
		require.NoError(t, err)
		require.Equal(t, executorv1.InterruptState_INTERRUPT_STATE_OPEN, got.GetState())
		_, err = runs.AnswerInterrupt(t.Context(), answer)
		require.NoError(t, err)
		ends(t, run)
	})
}
