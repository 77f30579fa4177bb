package executor_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
)

// heard are the texts that a watcher gets.
type heard struct {
	t     *testing.T
	texts chan *executorv1.RunEvent
	// text is what was written so far, by run, attempt and kind.
	text map[string]string
}

// hears watches a run and those below it.
func hears(t *testing.T, c executorv1.ExecutorServiceClient, runID string) *heard {
	t.Helper()
	stream, err := c.WatchRun(t.Context(), &executorv1.WatchRunRequest{RunId: runID, IncludeDescendants: true})
	require.NoError(t, err)
	h := &heard{t: t, texts: make(chan *executorv1.RunEvent, 1000), text: map[string]string{}}
	go func() {
		for {
			ev, err := stream.Recv()
			if err != nil {
				return
			}
			if ev.GetTokenDelta() != nil {
				h.texts <- ev
			}
		}
	}()
	return h
}

// until waits for the text of one call, of which no byte may be missing, and returns the run that wrote it. A
// new owner makes the call again, whose text begins anew.
func (h *heard) until(want string) (runID string) {
	h.t.Helper()
	for {
		select {
		case ev := <-h.texts:
			d := ev.GetTokenDelta()
			key := fmt.Sprint(ev.GetRunId(), d.GetVisit(), d.GetAttempt(), d.GetKind())
			have := h.text[key]
			require.LessOrEqual(h.t, d.GetOffset(), int64(len(have)), "text is missing before %q", d.GetText())
			have = have[:d.GetOffset()] + d.GetText()
			h.text[key] = have
			if have == want {
				return ev.GetRunId()
			}
			require.True(h.t, strings.HasPrefix(want, have), "%q", have)
		case <-time.After(60 * time.Second):
			h.t.Fatalf("no %q came: %v", want, h.text)
		}
	}
}

// TestDeltasElsewhere watches runs at an executor that does not own them.
func TestDeltasElsewhere(t *testing.T) {
	const answer = "An answer in many words, piece by piece."
	url := pgtest.New(t)
	serverTLS, clientTLS := authority(t)
	// The model writes its first piece, and the rest when the test lets it.
	var gate atomic.Pointer[chan struct{}]
	closed := make(chan struct{})
	close(closed)
	gate.Store(&closed)
	fake := fakellm.New(fakellm.Script{Default: fakellm.Reply{Text: answer, Hold: func(ctx context.Context, sent string) bool {
		if sent == "" {
			return true
		}
		select {
		case <-*gate.Load():
			return true
		case <-ctx.Done():
			return false
		}
	}}})
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	t.Cleanup(func() { require.NoError(t, fake.Close()) })
	replica := func(id string) *replica {
		return openWith(t, id, serverTLS, clientTLS, func(c *executor.Config) {
			c.Store, c.PostgresURL, c.Lease = "postgres", conf.NewSecret(url), 2*time.Second
			c.Models.Change(c.Models.Default, func(p *llm.Profile) { p.BaseURL, p.Model = server.URL+"/v1", "fake-1" })
		})
	}
	a, b := replica("a"), replica("b")
	const first = "An answer in" // as much as the model writes at once
	asks := func() *graphv1.Node {
		return soonAgain(&graphv1.Node{Id: "ask", Actor: "llm", Named: map[string]*graphv1.Payload{"request": value(`"go"`), "stream": value("true")}})
	}
	t.Run("Model/WordByWord", func(t *testing.T) {
		hold := make(chan struct{})
		gate.Store(&hold)
		got := start(t, a.client(keyAcme), nodes(asks()))
		one, two := hears(t, b.client(keyAcme), got.GetId()), hears(t, b.client(keyAcme), got.GetId())
		one.until(first)
		two.until(first)
		close(hold)
		one.until(answer)
		two.until(answer)
		got.is(executorv1.RunState_RUN_STATE_COMPLETED)
	})
	t.Run("Model/OfAChild", func(t *testing.T) {
		hold := make(chan struct{})
		gate.Store(&hold)
		got := start(t, a.client(keyAcme), nodes(&graphv1.Node{Id: "below", Actor: "spawn", Named: map[string]*graphv1.Payload{
			"graph": value(`{"nodes": [{"id": "ask", "actor": "llm", "named": {"request": "go", "stream": true}}]}`)}}))
		w := hears(t, b.client(keyAcme), got.GetId())
		w.until(first)
		close(hold)
		child := w.until(answer)
		require.NotEqual(t, got.GetId(), child)
		got.is(executorv1.RunState_RUN_STATE_COMPLETED)
	})
	t.Run("Worker/OfAThirdExecutor", func(t *testing.T) {
		c := replica("c")
		w := c.worker(t, hello(1, pure("writes")))
		got := start(t, a.client(keyAcme), nodes(&graphv1.Node{Id: "x", Actor: "writes"}))
		near, far := hears(t, a.client(keyAcme), got.GetId()), hears(t, b.client(keyAcme), got.GetId())
		v := w.visit()
		for i, text := range []string{"Hel", "lo"} {
			w.say(&executorv1.WorkRequest{Message: &executorv1.WorkRequest_Tokens{Tokens: &executorv1.AttemptTokens{Token: v.GetToken(), Text: text}}})
			near.until("Hello"[:3+2*i])
			far.until("Hello"[:3+2*i])
		}
		w.answer(v.GetToken(), `1`)
		got.is(executorv1.RunState_RUN_STATE_COMPLETED)
	})
	t.Run("TakeOver/TheNextOwnerIsFollowed", func(t *testing.T) {
		hold := make(chan struct{})
		gate.Store(&hold)
		third := replica("d")
		got := start(t, third.client(keyAcme), nodes(asks()))
		w := hears(t, b.client(keyAcme), got.GetId())
		w.until(first)
		third.server.Stop()
		third.cancel()
		<-third.done
		close(hold)
		w.until(answer)
		got.c = b.client(keyAcme)
		got.is(executorv1.RunState_RUN_STATE_COMPLETED)
	})
}
