package executor_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
	"github.com/epigraph-run/epigraph/services/executor"
	"github.com/epigraph-run/epigraph/workgraph"
)

const hookSecret = "a secret of this length"

// mailbox receives webhooks. The last part of the path identifies the test.
type mailbox struct {
	*httptest.Server
	t *testing.T
	// fail is how many requests with a path are refused first, and with which status.
	fail sync.Map

	mu  sync.Mutex
	got map[string][]*epigraph.WebhookMessage
	all map[string]int
}

func newMailbox(t *testing.T) *mailbox {
	t.Helper()
	b := &mailbox{t: t, got: map[string][]*epigraph.WebhookMessage{}, all: map[string]int{}}
	b.Server = httptest.NewServer(b)
	t.Cleanup(b.Close)
	return b
}

func (b *mailbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	m, verr := epigraph.VerifyWebhook(hookSecret, r.Header, body)
	if err != nil || verr != nil || r.Header.Get("authorization") != "Bearer hidden" || r.Header.Get("traceparent") == "" {
		b.t.Errorf("%s: %v %v %v", r.URL, err, verr, r.Header)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all[r.URL.Path]++
	if f, ok := b.fail.Load(r.URL.Path); ok && f.(*atomic.Int64).Add(-1) >= 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	b.got[r.URL.Path] = append(b.got[r.URL.Path], m)
}

func (b *mailbox) hook(path string, events ...executorv1.WebhookEvent) *executorv1.Webhook {
	return &executorv1.Webhook{Url: b.URL + path, Events: events, Headers: map[string]string{"authorization": "Bearer hidden"}, Secret: hookSecret}
}

func (b *mailbox) messages(path string) []*epigraph.WebhookMessage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*epigraph.WebhookMessage(nil), b.got[path]...)
}

// of waits until a path has so many messages.
func (b *mailbox) of(t *testing.T, path string, n int) []*epigraph.WebhookMessage {
	t.Helper()
	testkit.Eventually(t, func() bool { return len(b.messages(path)) >= n }, "%d messages at %s", n, path)
	got := b.messages(path)
	require.Len(t, got, n)
	return got
}

const (
	onEnd   = executorv1.WebhookEvent_WEBHOOK_EVENT_RUN_ENDED
	onPause = executorv1.WebhookEvent_WEBHOOK_EVENT_RUN_PAUSED
	onAsk   = executorv1.WebhookEvent_WEBHOOK_EVENT_INTERRUPT_OPENED
)

func TestWebhooks(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		box := newMailbox(t)
		fails := &atomic.Bool{}
		fails.Store(true)
		f := serve(t, workgraph.Actors{
			"large": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
				return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`"` + strings.Repeat("x", 70<<10) + `"`)}}, nil
			}),
			"refuses": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
				if !fails.Load() {
					return workgraph.Outcome{}, nil
				}
				return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, "NO", "it does not work")
			}),
		}, store, func(c *executor.Config) { c.Actors.HTTP.AllowPrivate = []string{"127.0.0.0/8"} })
		node := func(actor string, named ...string) *graphv1.Node {
			n := &graphv1.Node{Id: "n", Actor: actor, Named: map[string]*graphv1.Payload{}}
			for i := 0; i < len(named); i += 2 {
				n.Named[named[i]] = value(named[i+1])
			}
			return n
		}
		begin := func(t *testing.T, req *executorv1.StartRunRequest) *executorv1.Run {
			t.Helper()
			r, err := f.StartRun(t.Context(), req)
			require.NoError(t, err)
			return r
		}
		hooks := func(h ...*executorv1.Webhook) []*executorv1.Webhook { return h }

		t.Run("End/IsToldOnce", func(t *testing.T) {
			t.Parallel()
			r := begin(t, &executorv1.StartRunRequest{Graph: nodes(node("cel", "expr", `"41 + 1"`)), Webhooks: hooks(box.hook("/end"), box.hook("/pause", onPause), box.hook("/both", onEnd, onPause)),
				Labels: map[string]string{"team": "blue"}, Metadata: map[string]string{"order": "7"}, BusinessKey: "order-7"})
			done := f.wait(t, r.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
			m := box.of(t, "/end", 1)[0]
			require.Equal(t, "run.ended", m.Type)
			require.Equal(t, r.GetId(), m.RunID)
			require.Equal(t, r.GetId(), m.RootRunID)
			require.Equal(t, "acme", m.Namespace)
			require.Equal(t, "RUN_STATE_COMPLETED", m.State)
			require.Equal(t, done.GetLastSeq(), m.Sequence)
			require.True(t, done.GetEndTime().AsTime().Equal(m.Time))
			require.JSONEq(t, `42`, string(m.Result))
			require.Equal(t, map[string]string{"team": "blue"}, m.Labels)
			require.Equal(t, map[string]string{"order": "7"}, m.Metadata)
			require.Equal(t, "order-7", m.BusinessKey)
			require.Equal(t, "/v1/runs/"+r.GetId(), m.Link)
			require.Nil(t, m.Error)
			require.NotEqual(t, m.ID, box.of(t, "/both", 1)[0].ID)
			require.Empty(t, box.messages("/pause"))
		})
		t.Run("End/OfAFailure", func(t *testing.T) {
			t.Parallel()
			r := begin(t, &executorv1.StartRunRequest{Graph: nodes(node("fail", "type", `"PERMANENT"`, "message", `"it does not work"`)), Webhooks: hooks(box.hook("/failed"))})
			m := box.of(t, "/failed", 1)[0]
			require.Equal(t, r.GetId(), m.RunID)
			require.Equal(t, "RUN_STATE_FAILED", m.State)
			require.Equal(t, "ERROR_TYPE_PERMANENT", m.Error.Type)
			require.Equal(t, "n", m.Error.NodeID)
			require.Equal(t, "it does not work", m.Error.Message)
			require.Empty(t, m.Result)
		})
		t.Run("End/OfARunThatNeverBegan", func(t *testing.T) {
			t.Parallel()
			r := begin(t, &executorv1.StartRunRequest{Graph: nodes(node("cel", "expr", `"1"`)), StartTime: timestamppb.New(time.Now().Add(time.Hour)), Webhooks: hooks(box.hook("/pending"))})
			_, err := f.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: r.GetId()})
			require.NoError(t, err)
			require.Equal(t, "RUN_STATE_CANCELED", box.of(t, "/pending", 1)[0].State)
		})
		t.Run("End/LeavesLargeResultsOut", func(t *testing.T) {
			t.Parallel()
			begin(t, &executorv1.StartRunRequest{Graph: nodes(node("large")), Webhooks: hooks(box.hook("/large"))})
			m := box.of(t, "/large", 1)[0]
			require.True(t, m.ResultOmitted)
			require.Empty(t, m.Result)
		})
		t.Run("Delivery/ComesAgain", func(t *testing.T) {
			t.Parallel()
			n := &atomic.Int64{}
			n.Store(1)
			box.fail.Store("/again", n)
			begin(t, &executorv1.StartRunRequest{Graph: nodes(node("cel", "expr", `"1"`)), Webhooks: hooks(box.hook("/again"))})
			box.of(t, "/again", 1)
			box.mu.Lock()
			defer box.mu.Unlock()
			require.Equal(t, 2, box.all["/again"])
		})
		t.Run("Pause/IsTold", func(t *testing.T) {
			t.Parallel()
			r := begin(t, &executorv1.StartRunRequest{Graph: nodes(node("human", "prompt", `"may I?"`)), Webhooks: hooks(box.hook("/paused", onPause, onEnd))})
			_, err := f.PauseRun(t.Context(), &executorv1.PauseRunRequest{RunId: r.GetId(), Reason: "LUNCH"})
			require.NoError(t, err)
			m := box.of(t, "/paused", 1)[0]
			require.Equal(t, "run.paused", m.Type)
			require.Equal(t, "RUN_STATE_PAUSED", m.State)
			require.Equal(t, "LUNCH", m.Reason)
			_, err = f.CancelRun(t.Context(), &executorv1.CancelRunRequest{RunId: r.GetId()})
			require.NoError(t, err)
			last := box.of(t, "/paused", 2)[1]
			require.Equal(t, "RUN_STATE_CANCELED", last.State)
			require.Greater(t, last.Sequence, m.Sequence)
		})
		t.Run("Interrupt/OfTheRunItself", func(t *testing.T) {
			t.Parallel()
			r := begin(t, &executorv1.StartRunRequest{Graph: nodes(node("human", "prompt", `"which color?"`, "schema", `{"type":"string"}`)), Webhooks: hooks(box.hook("/asked", onAsk))})
			m := box.of(t, "/asked", 1)[0]
			require.Equal(t, "interrupt.opened", m.Type)
			require.Equal(t, r.GetId(), m.RunID)
			require.JSONEq(t, `"which color?"`, string(m.Interrupt.Prompt))
			require.JSONEq(t, `{"type":"string"}`, string(m.Interrupt.Schema))
			require.Equal(t, "/v1/interrupts/"+m.Interrupt.ID, m.Interrupt.Link)
			_, err := f.AnswerInterrupt(t.Context(), &executorv1.AnswerInterruptRequest{InterruptId: m.Interrupt.ID, Answer: value(`"red"`)})
			require.NoError(t, err)
			f.wait(t, r.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
		})
		t.Run("Interrupt/OfADescendantGoesToTheRoot", func(t *testing.T) {
			t.Parallel()
			below := `[{"graph": {"nodes": [{"id": "e", "actor": "spawn", "named": {"runs": [{"graph": {"nodes": [
				{"id": "q", "actor": "human", "named": {"prompt": "one?"}}, {"id": "r", "actor": "human", "named": {"prompt": "two?"}}]}}]}}]}}]`
			r := begin(t, &executorv1.StartRunRequest{Graph: nodes(node("spawn", "runs", below)), Webhooks: hooks(box.hook("/ends"), box.hook("/descendants", onAsk))})
			got := box.of(t, "/descendants", 2)
			seen := map[string]bool{}
			for _, m := range got {
				require.Equal(t, r.GetId(), m.RootRunID)
				require.NotEqual(t, r.GetId(), m.RunID)
				seen[string(m.Interrupt.Prompt)] = true
				_, err := f.AnswerInterrupt(t.Context(), &executorv1.AnswerInterruptRequest{InterruptId: m.Interrupt.ID, Answer: value(`"yes"`)})
				require.NoError(t, err)
			}
			require.Len(t, seen, 2)
			require.Equal(t, r.GetId(), box.of(t, "/ends", 1)[0].RunID, "the ends of children are their own affair")
			for _, m := range got {
				child, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: m.RunID})
				require.NoError(t, err)
				require.Empty(t, child.GetWebhooks())
			}
		})
		t.Run("Retry/TakesThemOver", func(t *testing.T) {
			t.Parallel()
			r := begin(t, &executorv1.StartRunRequest{Graph: nodes(node("refuses")), Webhooks: hooks(box.hook("/retry"))})
			require.Equal(t, "RUN_STATE_FAILED", box.of(t, "/retry", 1)[0].State)
			fails.Store(false)
			again, err := f.RetryRun(t.Context(), &executorv1.RetryRunRequest{RunId: r.GetId()})
			require.NoError(t, err)
			m := box.of(t, "/retry", 2)[1]
			require.Equal(t, again.GetId(), m.RunID)
			require.Equal(t, "RUN_STATE_COMPLETED", m.State)
		})
		t.Run("SignalWithStart/TakesThem", func(t *testing.T) {
			t.Parallel()
			r, err := f.SignalWithStart(t.Context(), &executorv1.SignalWithStartRequest{Name: "go", Start: &executorv1.StartRunRequest{
				Graph: nodes(node("signal", "name", `"go"`)), BusinessKey: "signaled", Webhooks: hooks(box.hook("/signaled"))}})
			require.NoError(t, err)
			require.Equal(t, r.GetId(), box.of(t, "/signaled", 1)[0].RunID)
		})
		t.Run("Secrets/AreShownNowhere", func(t *testing.T) {
			t.Parallel()
			started := begin(t, &executorv1.StartRunRequest{Graph: nodes(node("cel", "expr", `"1"`)), Webhooks: hooks(box.hook("/shown", onAsk, onEnd))})
			box.of(t, "/shown", 1)
			read, err := f.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: started.GetId()})
			require.NoError(t, err)
			list, err := f.ListRuns(t.Context(), &executorv1.ListRunsRequest{})
			require.NoError(t, err)
			for _, r := range append(list.GetRuns(), started, read) {
				text, err := protojson.Marshal(r)
				require.NoError(t, err)
				require.NotContains(t, string(text), "Bearer")
				require.NotContains(t, string(text), hookSecret)
			}
			require.Len(t, read.GetWebhooks(), 1)
			require.Equal(t, box.URL+"/shown", read.GetWebhooks()[0].GetUrl())
			require.Equal(t, []executorv1.WebhookEvent{onAsk, onEnd}, read.GetWebhooks()[0].GetEvents())
		})
		t.Run("Schedule/KeepsSecretsItDoesNotShow", func(t *testing.T) {
			t.Parallel()
			c := executorv1.NewScheduleServiceClient(f.conn)
			s, err := c.CreateSchedule(t.Context(), &executorv1.CreateScheduleRequest{Schedule: &executorv1.Schedule{Id: "hooked", Cron: "0 0 1 1 *",
				Start: &executorv1.StartRunRequest{Graph: nodes(node("cel", "expr", `"1"`)), Webhooks: hooks(box.hook("/hooked"))}}})
			require.NoError(t, err)
			require.Len(t, s.GetStart().GetWebhooks(), 1)
			require.Empty(t, s.GetStart().GetWebhooks()[0].GetHeaders())
			require.Empty(t, s.GetStart().GetWebhooks()[0].GetSecret())
			s.Note = "changed"
			s, err = c.UpdateSchedule(t.Context(), &executorv1.UpdateScheduleRequest{Schedule: s, UpdateMask: everything})
			require.NoError(t, err)
			require.Empty(t, s.GetStart().GetWebhooks()[0].GetSecret())
			_, err = c.TriggerSchedule(t.Context(), &executorv1.TriggerScheduleRequest{ScheduleId: "hooked"})
			require.NoError(t, err)
			box.of(t, "/hooked", 1) // signed, and with its header
		})
		t.Run("Refused/ByName", func(t *testing.T) {
			t.Parallel()
			for url, reason := range map[string]string{"http://10.0.0.1/": "WEBHOOK_ADDRESS_REFUSED", "ftp://x": "WEBHOOK_INVALID", "https://a:b@example.com": "WEBHOOK_INVALID"} {
				_, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(node("cel", "expr", `"1"`)), Webhooks: hooks(&executorv1.Webhook{Url: url})})
				require.True(t, errs.Is(err, errs.InvalidArgument), "%v", err)
				require.Equal(t, reason, errs.ReasonOf(err))
				require.Equal(t, "webhooks[0].url", errs.From(err).Violations[0].Field)
			}
		})
	})
}

// TestWebhooksThatHang has a namespace whose receivers never answer. It checks that they take no more than
// that namespace's share of the places, and that another namespace's webhooks are delivered meanwhile.
func TestWebhooksThatHang(t *testing.T) {
	t.Parallel()
	const share = 16 // places of one namespace, of 64
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		var hanging, most atomic.Int64
		release, told := make(chan struct{}), make(chan struct{})
		end := sync.OnceFunc(func() { close(release) })
		receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/told" {
				close(told)
				return
			}
			n := hanging.Add(1)
			defer hanging.Add(-1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			_, _ = io.Copy(io.Discard, r.Body) // only then is it seen that the caller gives up
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}))
		t.Cleanup(receiver.Close)
		defer end()
		f := serve(t, nil, store, func(c *executor.Config) { c.Actors.HTTP.AllowPrivate = []string{"127.0.0.0/8"} })
		begin := func(ctx context.Context, path string) {
			_, err := f.StartRun(ctx, &executorv1.StartRunRequest{Webhooks: []*executorv1.Webhook{{Url: receiver.URL + path}},
				Graph: nodes(&graphv1.Node{Id: "n", Actor: "cel", Named: map[string]*graphv1.Payload{"expr": value(`"1"`)}})})
			require.NoError(t, err)
		}
		for range 5 * share {
			begin(t.Context(), "/hangs")
		}
		testkit.Eventually(t, func() bool { return hanging.Load() == share })
		begin(grpckit.WithNamespace(t.Context(), "other"), "/told")
		select {
		case <-told:
		case <-time.After(time.Minute):
			require.Fail(t, "the other namespace was not told")
		}
		require.EqualValues(t, share, most.Load())
	})
}

// TestWebhooksAfterALoss checks that the webhook jobs of a dead executor are worked by the next one.
func TestWebhooksAfterALoss(t *testing.T) {
	t.Parallel()
	box := newMailbox(t)
	n := &atomic.Int64{}
	n.Store(1)
	box.fail.Store("/later", n)
	path := filepath.Join(t.TempDir(), "executor.db")
	same := func(c *executor.Config) {
		c.SQLitePath, c.Actors.HTTP.AllowPrivate = path, []string{"all"}
	}
	t.Run("First/Leaves", func(t *testing.T) {
		f := serve(t, nil, same)
		r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "n", Actor: "cel", Named: map[string]*graphv1.Payload{"expr": value(`"1"`)}}),
			Webhooks: []*executorv1.Webhook{box.hook("/later")}})
		require.NoError(t, err)
		f.wait(t, r.GetId(), executorv1.RunState_RUN_STATE_COMPLETED)
	})
	t.Run("Second/Tells", func(t *testing.T) {
		serve(t, nil, same)
		box.of(t, "/later", 1)
	})
}
