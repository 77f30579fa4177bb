package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
	"github.com/epigraph-run/epigraph/sdk/worker"
)

// TestChat talks with agents that a worker serves: one that streams its answer, and one that asks back.
func TestChat(t *testing.T) {
	d := serve(t, fakellm.Script{})
	c, err := epigraph.Dial(d.GRPCAddr())
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	w := worker.New(c, worker.Options{})
	type message struct {
		Text   string `json:"user_input"`
		Thread string `json:"thread_id"`
	}
	worker.Register(w, "agent/loud", func(ctx context.Context, m message) (string, error) {
		answer := strings.ToUpper(m.Text)
		return answer, worker.Call(ctx).Text(answer)
	}, worker.Effect(worker.Idempotent))
	worker.Register(w, "agent/asks", func(_ context.Context, m message) (worker.Result, error) {
		return worker.Ask("What about "+m.Text+"?", json.RawMessage(`{"type":"string"}`), 0), nil
	}, worker.Effect(worker.Idempotent))
	worker.Register(w, "agent/fails", func(_ context.Context, m message) (string, error) {
		if m.Text == "fail" {
			return "", worker.Permanent("BROKEN", errors.New("it is out of order"))
		}
		if m.Text == "broken" {
			return "", worker.Permanent("MODEL_CALL_FAILED", errors.New("cannot connect to the model server (CONNECTION)"))
		}
		return m.Text, nil
	}, worker.Effect(worker.Idempotent))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		cancel()
		require.NoError(t, <-ended)
	}()
	require.NoError(t, w.Ready(testkit.Context(t, time.Minute)))
	ends := func(t *testing.T, want int, in string, args ...string) (out, notes string) {
		t.Helper()
		var o, e bytes.Buffer
		code := cli.Main(t.Context(), build, append([]string{"--addr", d.GRPCAddr()}, args...), cli.IO{In: strings.NewReader(in), Out: &o, Err: &e})
		require.Equal(t, want, code, "%s%s", o.String(), e.String())
		return o.String(), e.String()
	}
	command := func(t *testing.T, in string, args ...string) (out, notes string) {
		t.Helper()
		return ends(t, 0, in, args...)
	}
	thread := func(notes string) string { return regexp.MustCompile(`thr_\w+`).FindString(notes) }

	t.Run("Lines/AreAnswered", func(t *testing.T) {
		out, notes := command(t, "hello\n\nagain\n", "chat", "agent/loud")
		require.Equal(t, "HELLO\nAGAIN\n", out)
		id := thread(notes)
		out, _ = command(t, "once more", "chat", "--thread", id)
		require.Equal(t, "ONCE MORE\n", out)
		out, _ = command(t, "", "threads", "turns", id)
		require.Regexp(t, `3 +STARTED +run_\w+`, out)
		out, _ = command(t, "", "threads", "ls", "--agent", "agent/loud")
		require.Contains(t, out, id)
		out, _ = command(t, "", "threads", "fork", id, "--title", "What if")
		fork := thread(out)
		require.NotEqual(t, id, fork)
		out, _ = command(t, "", "threads", "show", fork)
		require.Contains(t, out, "fork of: "+id+" after item 0")
		command(t, "", "threads", "rm", fork)
	})
	t.Run("Question/IsAnsweredByTheNextLine", func(t *testing.T) {
		out, notes := command(t, "lunch\nsoup\n", "chat", "agent/asks")
		require.Equal(t, "What about lunch?\nsoup\n", out)
		require.Regexp(t, "if your key may answer interrupts; so does `epigraph interrupts answer int_\\w+ VALUE`", strings.Join(strings.Fields(notes), " "), "it is a worker that asks")
	})
	t.Run("JSON/OneObjectALine", func(t *testing.T) {
		out, _ := command(t, "lunch\nsoup\n", "chat", "agent/asks", "--json")
		var got []map[string]any
		for dec := json.NewDecoder(strings.NewReader(out)); dec.More(); {
			var m map[string]any
			require.NoError(t, dec.Decode(&m))
			got = append(got, m)
		}
		require.Len(t, got, 2)
		require.Equal(t, "What about lunch?", got[0]["question"])
		require.Equal(t, "soup", got[1]["answer"])
		require.Equal(t, got[0]["runId"], got[1]["runId"])
	})
	t.Run("Agent/ThatIsNotThereIsRefused", func(t *testing.T) {
		for name, want := range map[string]string{"agent/nobody": "`epigraph actors` lists them", "loud": "did you mean agent/loud?", "agent/luod": "did you mean agent/loud?"} {
			_, notes := ends(t, 2, "hello\n", "chat", name)
			require.Contains(t, notes, `there is no actor "`+name+`"`)
			require.Contains(t, notes, want)
			out, _ := command(t, "", "threads", "ls", "--agent", name)
			require.Equal(t, "no threads\n", out)
		}
	})
	t.Run("Failure/IsTheExitCodeOfAScript", func(t *testing.T) {
		out, notes := ends(t, 1, "fail\nhello\n", "chat", "agent/fails")
		require.Equal(t, "hello\n", out, "the lines behind are sent as well")
		require.Contains(t, notes, "out of order")
		_, notes = ends(t, 1, "fail\n", "chat", "agent/fails", "--json")
		require.Empty(t, notes)
	})
	t.Run("Model/ThatCannotBeReachedIsExplained", func(t *testing.T) {
		_, notes := ends(t, 1, "broken\n", "chat", "agent/fails")
		require.Contains(t, notes, "help: the server asks the model at OPENAI_BASE_URL")
	})
	t.Run("SDK/TalksAsWell", func(t *testing.T) {
		th, err := c.CreateThread(t.Context(), "agent/loud", epigraph.ThreadKey("u:c:w"), epigraph.ThreadTitle("Hi"))
		require.NoError(t, err)
		turn, err := th.Send(t.Context(), "hello", "once")
		require.NoError(t, err)
		require.Equal(t, executorv1.TurnState_TURN_STATE_STARTED, turn.GetState())
		answer, err := epigraph.Result[string](t.Context(), c.Run(turn.GetRunId()))
		require.NoError(t, err)
		require.Equal(t, "HELLO", answer)
		found, err := c.ThreadByKey(t.Context(), "u:c:w")
		require.NoError(t, err)
		require.Equal(t, th.ID, found.ID)
		again, err := th.Turn(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, turn.GetRunId(), again.GetRunId())
		require.Len(t, listed(t, th.Turns(t.Context())), 1)
		require.Empty(t, listed(t, th.Messages(t.Context())), "this agent keeps none")
		require.Empty(t, listed(t, th.States(t.Context())))
		require.Empty(t, listed(t, th.Learnings(t.Context())))
		require.Empty(t, listed(t, th.Summaries(t.Context())))
		fork, err := th.Fork(t.Context(), 0, epigraph.EphemeralThread())
		require.NoError(t, err)
		require.Len(t, listed(t, c.Threads(t.Context(), &executorv1.ListThreadsRequest{ParentId: th.ID})), 1)
		m, err := fork.Get(t.Context())
		require.NoError(t, err)
		require.Equal(t, executorv1.ThreadLifetime_THREAD_LIFETIME_EPHEMERAL, m.GetLifetime())
		require.NoError(t, fork.Delete(t.Context()))
	})
	t.Run("SDK/AsksAndIsAsked", func(t *testing.T) {
		ctx := testkit.Context(t, time.Minute)
		talk := func(agent string) *epigraph.Thread {
			th, err := c.CreateThread(ctx, agent)
			require.NoError(t, err)
			return th
		}
		loud, err := talk("agent/loud").Ask(ctx, "hello", "")
		require.NoError(t, err)
		require.Equal(t, "HELLO", loud.Text())
		require.JSONEq(t, `"HELLO"`, string(loud.Answer))
		curious := talk("agent/asks")
		asked, err := curious.Ask(ctx, "tea", "")
		require.NoError(t, err)
		require.NotNil(t, asked.Question)
		require.Equal(t, "What about tea?", asked.Text())
		answered, err := curious.Ask(ctx, "with milk", "")
		require.NoError(t, err)
		require.Nil(t, answered.Question, "the message answered it")
		require.Equal(t, "with milk", answered.Text())
		require.Equal(t, asked.Run.ID, answered.Run.ID)
		_, err = talk("agent/fails").Ask(ctx, "fail", "")
		var failed *epigraph.RunError
		require.ErrorAs(t, err, &failed)
		require.Equal(t, "BROKEN", failed.Reason)
	})
}
