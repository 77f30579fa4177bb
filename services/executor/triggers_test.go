package executor_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor"
)

// stands lets a name stand for a version of a workflow with triggers, whose result are its inputs. A workflow
// whose name begins with "fails" fails.
func (c *fakeCatalog) stands(ref string, number int64, triggers ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name, _, _ := strings.Cut(ref, "@")
	v := &registryv1.ResolveWorkflowResponse{WorkflowId: "wf_" + name, Ref: fmt.Sprintf("%s@%d", name, number), Version: number, Triggers: triggers}
	switch {
	case strings.HasPrefix(name, "fails"):
		v.Graph = nodes(actorNode("say", "cel", `{"expr": "input.named.absent"}`))
	case name != "welcome":
		v.Graph = nodes(actorNode("say", "cel", `{"expr": "input.named"}`))
	}
	if c.triggered == nil {
		c.triggered = map[string]*registryv1.ResolveWorkflowResponse{}
	}
	c.triggered[ref] = v
}

// activate turns the triggers of a workflow on, and returns them by name.
func (f *fixture) activate(t *testing.T, ref string) map[string]*executorv1.Trigger {
	t.Helper()
	a, err := f.triggers.ActivateTriggers(t.Context(), &executorv1.ActivateTriggersRequest{Workflow: ref})
	require.NoError(t, err)
	out := map[string]*executorv1.Trigger{}
	for _, x := range a.GetTriggers() {
		out[x.GetName()] = x
	}
	return out
}

// call calls a webhook with a token.
func (f *fixture) call(t *testing.T, path, secret, id, body string) *executorv1.ReceiveWebhookResponse {
	t.Helper()
	r, err := executorv1.NewHookServiceClient(f.conn).ReceiveWebhook(t.Context(), &executorv1.ReceiveWebhookRequest{
		Path: path, Headers: map[string]string{"authorization": "Bearer " + secret, "idempotency-key": id}, Body: []byte(body),
	})
	require.NoError(t, err)
	return r
}

// delivered waits until the deliveries of a trigger have ended, and there are so many of them.
func (f *fixture) delivered(t *testing.T, x *executorv1.Trigger, n int) []*executorv1.TriggerDelivery {
	t.Helper()
	var out []*executorv1.TriggerDelivery
	testkit.Eventually(t, func() bool {
		r, err := f.triggers.ListTriggerDeliveries(t.Context(), &executorv1.ListTriggerDeliveriesRequest{TriggerId: x.GetId()})
		if err != nil || len(r.GetDeliveries()) < n {
			return false
		}
		for _, d := range r.GetDeliveries() {
			if d.GetState() == executorv1.TriggerDeliveryState_TRIGGER_DELIVERY_STATE_RECEIVED {
				return false
			}
		}
		out = r.GetDeliveries()
		return true
	})
	return out
}

const completed = executorv1.RunState_RUN_STATE_COMPLETED

func TestTriggers(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store func(*executor.Config)) {
		f := serve(t, nil, store)
		t.Run("Webhook", func(t *testing.T) { f.webhookTriggers(t) })
		t.Run("Clock", func(t *testing.T) { f.clockTriggers(t) })
		t.Run("Ends", func(t *testing.T) { f.endTriggers(t) })
		t.Run("Chat", func(t *testing.T) { f.chatTriggers(t) })
		t.Run("Chain", func(t *testing.T) { f.chainOfTriggers(t) })
		t.Run("Refused", func(t *testing.T) {
			_, err := f.triggers.ActivateTriggers(t.Context(), &executorv1.ActivateTriggersRequest{Workflow: "nobody"})
			require.True(t, errs.Is(err, errs.NotFound), "got %v", err)
			f.catalog.stands("badclock", 1, `{"id": "c", "type": "cron", "cron": "61 * * * *"}`)
			_, err = f.triggers.ActivateTriggers(t.Context(), &executorv1.ActivateTriggersRequest{Workflow: "badclock"})
			require.Equal(t, "TRIGGER_INVALID", errs.ReasonOf(err), "got %v", err)
			require.Equal(t, "triggers.c.cron", errs.From(err).Violations[0].Field)
		})
	})
}

func (f *fixture) webhookTriggers(t *testing.T) {
	hooks := executorv1.NewHookServiceClient(f.conn)
	f.catalog.stands("orders@live", 1, `{"id": "plain", "type": "webhook", "signature": "standard", "inputs": {"all": "{{ event.body.order }}", "kind": "{{ event.query.kind }}"}}`,
		`{"id": "git", "type": "webhook", "signature": "github", "path": "from/git"}`, `{"id": "token", "type": "webhook", "signature": "token"}`)
	on := f.activate(t, "orders@live")
	sign := func(id, at, body string) string {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(on["plain"].GetSecret(), "whsec_"))
		require.NoError(t, err)
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + at + "." + body))
		return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	call := func(path, query, body string, headers map[string]string) (*executorv1.ReceiveWebhookResponse, error) {
		return hooks.ReceiveWebhook(t.Context(), &executorv1.ReceiveWebhookRequest{Path: path, Query: query, Headers: headers, Body: []byte(body)})
	}
	now := fmt.Sprint(time.Now().Unix())
	body := `{"order": {"n": 7}}`
	headers := map[string]string{"webhook-id": "msg_1", "webhook-timestamp": now, "webhook-signature": sign("msg_1", now, body), "content-type": "application/json"}
	t.Run("StartsOneRun", func(t *testing.T) {
		first, err := call("orders/plain", "kind=new&x", body, headers)
		require.NoError(t, err)
		again, err := call("orders/plain", "kind=new&x", body, headers)
		require.NoError(t, err)
		require.True(t, again.GetRepeated())
		require.Equal(t, first.GetDeliveryId(), again.GetDeliveryId())
		d := f.delivered(t, on["plain"], 1)
		require.Len(t, d, 1)
		run := f.wait(t, d[0].GetRunId(), completed)
		require.Equal(t, "orders@1", run.GetWorkflow())
		require.Equal(t, "trigger:"+on["plain"].GetId(), run.GetPrincipal())
		require.JSONEq(t, `{"all": {"n": 7}, "kind": "new"}`, string(run.GetResult().GetJson()))
		whole, err := f.triggers.GetTriggerDelivery(t.Context(), &executorv1.GetTriggerDeliveryRequest{DeliveryId: first.GetDeliveryId()})
		require.NoError(t, err)
		require.EqualValues(t, 1, whole.GetRepeats())
		require.NotContains(t, string(whole.GetEvent().GetJson()), "webhook-signature", "what proves the caller is not kept")
		require.Contains(t, string(whole.GetEvent().GetJson()), `"content-type":"application/json"`)
	})
	t.Run("OfGitHub", func(t *testing.T) {
		mac := hmac.New(sha256.New, []byte(on["git"].GetSecret()))
		mac.Write([]byte(`{"action": "opened"}`))
		_, err := call("from/git", "", `{"action": "opened"}`, map[string]string{"x-hub-signature-256": "sha256=" + hex.EncodeToString(mac.Sum(nil)), "x-github-delivery": "g1"})
		require.NoError(t, err)
		d := f.delivered(t, on["git"], 1)
		require.Equal(t, "g1", d[0].GetEventId())
		require.JSONEq(t, `{"action": "opened"}`, string(f.wait(t, d[0].GetRunId(), completed).GetResult().GetJson()))
	})
	t.Run("AreAllNotFound", func(t *testing.T) {
		var texts []string
		for name, c := range map[string]struct {
			path    string
			headers map[string]string
		}{
			"unknown":  {"orders/nothing", headers},
			"unsigned": {"orders/plain", nil},
			"wrong":    {"orders/plain", map[string]string{"webhook-id": "msg_2", "webhook-timestamp": now, "webhook-signature": headers["webhook-signature"]}},
			"token":    {"orders/token", map[string]string{"authorization": "Bearer " + on["plain"].GetSecret()}},
		} {
			_, err := call(c.path, "", body, c.headers)
			require.Equal(t, "HOOK_NOT_FOUND", errs.ReasonOf(err), name)
			texts = append(texts, err.Error())
		}
		for _, text := range texts {
			require.Equal(t, texts[0], text)
		}
	})
	t.Run("WithoutANameIsNamedByItsBody", func(t *testing.T) {
		token := map[string]string{"authorization": "Bearer " + on["token"].GetSecret()}
		a, err := call("orders/token", "", "a text", token)
		require.NoError(t, err)
		b, err := call("orders/token", "", "another", token)
		require.NoError(t, err)
		require.NotEqual(t, a.GetDeliveryId(), b.GetDeliveryId())
		require.Len(t, f.delivered(t, on["token"], 2), 2)
	})
	t.Run("AfterAnotherSecret", func(t *testing.T) {
		x, err := f.triggers.RotateTriggerSecret(t.Context(), &executorv1.RotateTriggerSecretRequest{TriggerId: on["token"].GetId()})
		require.NoError(t, err)
		_, err = call("orders/token", "", "x", map[string]string{"authorization": "Bearer " + on["token"].GetSecret()})
		require.Equal(t, "HOOK_NOT_FOUND", errs.ReasonOf(err))
		f.call(t, "orders/token", x.GetSecret(), "new", `{}`)
		got, err := f.triggers.GetTrigger(t.Context(), &executorv1.GetTriggerRequest{TriggerId: on["token"].GetId()})
		require.NoError(t, err)
		require.Empty(t, got.GetSecret())
	})
	t.Run("FollowsANewVersion", func(t *testing.T) {
		f.catalog.stands("orders@live", 2, `{"id": "git", "type": "webhook", "signature": "github", "path": "from/git"}`, `{"id": "more", "type": "webhook", "signature": "token"}`)
		now := f.activate(t, "orders@live")
		require.Equal(t, executorv1.TriggerState_TRIGGER_STATE_ENDED, now["plain"].GetState())
		require.Equal(t, "version orders@live has no such trigger", now["plain"].GetReason())
		require.EqualValues(t, 2, now["git"].GetVersion())
		require.Empty(t, now["git"].GetSecret(), "it stays, and is not shown again")
		require.NotEmpty(t, now["more"].GetSecret())
	})
	t.Run("AfterTheyWereTurnedOff", func(t *testing.T) {
		a, err := f.triggers.DeactivateTriggers(t.Context(), &executorv1.DeactivateTriggersRequest{Workflow: "orders"})
		require.NoError(t, err)
		require.Equal(t, executorv1.TriggerState_TRIGGER_STATE_ENDED, a.GetState())
		_, err = call("from/git", "", body, nil)
		require.Equal(t, "HOOK_NOT_FOUND", errs.ReasonOf(err))
	})
}

func (f *fixture) clockTriggers(t *testing.T) {
	schedules := executorv1.NewScheduleServiceClient(f.conn)
	f.catalog.stands("ticks", 1, `{"id": "c", "type": "cron", "cron": "@every 1s", "overlap": "allow", "inputs": {"at": "{{ event.time }}"}}`)
	x := f.activate(t, "ticks")["c"]
	list := f.delivered(t, x, 2)
	times := map[string]bool{}
	for _, d := range list {
		require.False(t, times[d.GetEventId()])
		times[d.GetEventId()] = true
		run := f.wait(t, d.GetRunId(), completed)
		require.Equal(t, x.GetScheduleId(), run.GetScheduleId())
		require.JSONEq(t, `{"at": "`+d.GetEventId()+`"}`, string(run.GetResult().GetJson()))
	}
	t.Run("IsAScheduleThatDoesNotChangeByItself", func(t *testing.T) {
		s, err := schedules.GetSchedule(t.Context(), &executorv1.GetScheduleRequest{ScheduleId: x.GetScheduleId()})
		require.NoError(t, err)
		require.Equal(t, x.GetId(), s.GetTriggerId())
		s.Note = "mine"
		_, err = schedules.UpdateSchedule(t.Context(), &executorv1.UpdateScheduleRequest{Schedule: s})
		require.Equal(t, "SCHEDULE_OF_TRIGGER", errs.ReasonOf(err), "got %v", err)
		_, err = schedules.PauseSchedule(t.Context(), &executorv1.PauseScheduleRequest{ScheduleId: s.GetId()})
		require.Equal(t, "SCHEDULE_OF_TRIGGER", errs.ReasonOf(err))
		_, err = schedules.DeleteSchedule(t.Context(), &executorv1.DeleteScheduleRequest{ScheduleId: s.GetId()})
		require.Equal(t, "SCHEDULE_OF_TRIGGER", errs.ReasonOf(err))
	})
	_, err := f.triggers.DeactivateTriggers(t.Context(), &executorv1.DeactivateTriggersRequest{Workflow: "ticks"})
	require.NoError(t, err)
	_, err = schedules.GetSchedule(t.Context(), &executorv1.GetScheduleRequest{ScheduleId: x.GetScheduleId()})
	require.True(t, errs.Is(err, errs.NotFound), "it goes with its trigger: %v", err)
}

func (f *fixture) endTriggers(t *testing.T) {
	f.catalog.stands("source", 1)
	f.catalog.stands("fails-now", 1)
	start := func(t *testing.T, ref string) string {
		t.Helper()
		r, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Workflow: ref, Named: map[string]*graphv1.Payload{"x": value(`1`)}})
		require.NoError(t, err)
		return r.GetId()
	}
	f.catalog.stands("after", 1, `{"id": "w", "type": "workflow", "workflow": "source", "on": "completed", "inputs": {"of": "{{ event.run_id }}", "was": "{{ event.result.x }}"}}`)
	f.catalog.stands("failsafe", 1, `{"id": "e", "type": "error"}`)
	f.catalog.stands("watch", 1, `{"id": "e", "type": "error", "inputs": {"of": "{{ event.workflow }}", "why": "{{ event.error.reason }}"}}`)
	f.catalog.stands("named", 1, `{"id": "e", "type": "error", "workflows": ["failsafe"]}`)
	named := f.activate(t, "named")["e"]
	after, watch, failsafe := f.activate(t, "after")["w"], f.activate(t, "watch")["e"], f.activate(t, "failsafe")["e"]
	t.Run("OfAWorkflow", func(t *testing.T) {
		id := start(t, "source@1")
		d := f.delivered(t, after, 1)[0]
		require.Equal(t, id, d.GetEventId())
		require.EqualValues(t, 1, d.GetDepth())
		require.JSONEq(t, `{"of": "`+id+`", "was": 1}`, string(f.wait(t, d.GetRunId(), completed).GetResult().GetJson()))
	})
	t.Run("ErrorsOfOthers", func(t *testing.T) {
		id := start(t, "fails-now@1")
		// The run that failsafe starts fails, too. Of that hears who names it, and nobody else: two that hear
		// of all errors would start each other.
		mine := f.delivered(t, failsafe, 1)
		require.Len(t, mine, 1)
		require.Equal(t, id, mine[0].GetEventId())
		d := f.delivered(t, named, 1)
		require.Equal(t, mine[0].GetRunId(), d[0].GetEventId())
		d = f.delivered(t, watch, 1)
		require.Len(t, d, 1)
		require.Contains(t, string(f.wait(t, d[0].GetRunId(), completed).GetResult().GetJson()), `"of":"fails-now"`)
	})
	t.Run("Repeat", func(t *testing.T) {
		first := f.delivered(t, after, 1)[0]
		d, err := f.triggers.RepeatTriggerDelivery(t.Context(), &executorv1.RepeatTriggerDeliveryRequest{DeliveryId: first.GetId()})
		require.NoError(t, err)
		require.Equal(t, first.GetId(), d.GetRepeatOf())
		list := f.delivered(t, after, 2)
		require.NotEqual(t, list[0].GetRunId(), list[1].GetRunId())
		require.JSONEq(t, string(f.wait(t, list[1].GetRunId(), completed).GetResult().GetJson()), string(f.wait(t, list[0].GetRunId(), completed).GetResult().GetJson()))
	})
	for _, name := range []string{"after", "watch", "failsafe", "named"} {
		_, err := f.triggers.DeactivateTriggers(t.Context(), &executorv1.DeactivateTriggersRequest{Workflow: name})
		require.NoError(t, err)
	}
}

// chatTriggers talks with workflows: each message is a delivery, and the end of its run is told.
func (f *fixture) chatTriggers(t *testing.T) {
	threads := executorv1.NewThreadServiceClient(f.conn)
	f.catalog.stands("talk", 1, `{"id": "c", "type": "chat"}`)
	f.catalog.stands("talk@1", 1, `{"id": "c", "type": "chat"}`)
	f.catalog.stands("fails-talk", 1, `{"id": "c", "type": "chat"}`)
	f.catalog.stands("fails-talk@1", 1, `{"id": "c", "type": "chat"}`)
	f.catalog.stands("heard", 1, `{"id": "w", "type": "workflow", "workflow": "talk", "on": "completed", "inputs": {"was": "{{ event.result.message }}"}}`,
		`{"id": "e", "type": "error", "workflows": ["fails-talk"], "inputs": {"of": "{{ event.workflow }}"}}`)
	said, heard := f.activate(t, "talk")["c"], f.activate(t, "heard")
	thread := func(t *testing.T, agent string) string {
		t.Helper()
		th, err := threads.CreateThread(t.Context(), &executorv1.CreateThreadRequest{Thread: &executorv1.Thread{Agent: agent, UserId: "ada"}})
		require.NoError(t, err)
		return th.GetId()
	}
	say := func(t *testing.T, thread, text, request string) *executorv1.Turn {
		t.Helper()
		turn, err := threads.AppendMessage(t.Context(), &executorv1.AppendMessageRequest{ThreadId: thread, Content: value(`"` + text + `"`), RequestId: request})
		require.NoError(t, err)
		return turn
	}
	th := thread(t, "workflow/talk@1")
	t.Run("AMessageIsOneDelivery", func(t *testing.T) {
		first := say(t, th, "hi", "once")
		require.Equal(t, first.GetNumber(), say(t, th, "hi", "once").GetNumber())
		_, err := threads.AppendMessage(t.Context(), &executorv1.AppendMessageRequest{ThreadId: th, Content: value(`"other"`), RequestId: "once"})
		require.Equal(t, "REQUEST_ID_REUSED", errs.ReasonOf(err), "got %v", err)
		d := f.delivered(t, said, 1)
		require.Len(t, d, 1)
		require.Equal(t, first.GetRunId(), d[0].GetRunId())
		require.EqualValues(t, 2, d[0].GetRepeats())
		whole, err := f.triggers.GetTriggerDelivery(t.Context(), &executorv1.GetTriggerDeliveryRequest{DeliveryId: d[0].GetId()})
		require.NoError(t, err)
		require.JSONEq(t, `{"message": "hi", "thread_id": "`+th+`", "user_id": "ada", "chat_id": ""}`, string(whole.GetEvent().GetJson()))
		require.Contains(t, string(f.wait(t, first.GetRunId(), completed).GetResult().GetJson()), `"hi"`)
	})
	t.Run("ItsEndIsTold", func(t *testing.T) {
		d := f.delivered(t, heard["w"], 1)[0]
		require.JSONEq(t, `{"was": "hi"}`, string(f.wait(t, d.GetRunId(), completed).GetResult().GetJson()))
	})
	t.Run("RepeatIsAnotherTurn", func(t *testing.T) {
		first := f.delivered(t, said, 1)[0]
		for range 2 { // the same request
			d, err := f.triggers.RepeatTriggerDelivery(t.Context(), &executorv1.RepeatTriggerDeliveryRequest{DeliveryId: first.GetId(), RequestId: "again"})
			require.NoError(t, err)
			require.Equal(t, first.GetId(), d.GetRepeatOf())
		}
		list := f.delivered(t, said, 2)
		require.Len(t, list, 2)
		f.wait(t, list[0].GetRunId(), completed)
		turns, err := threads.ListTurns(t.Context(), &executorv1.ListTurnsRequest{ThreadId: th})
		require.NoError(t, err)
		require.Len(t, turns.GetTurns(), 2)
		require.Equal(t, list[0].GetRunId(), turns.GetTurns()[1].GetRunId())
		f.delivered(t, heard["w"], 2)
	})
	t.Run("ItsErrorIsTold", func(t *testing.T) {
		f.activate(t, "fails-talk")
		run := say(t, thread(t, "workflow/fails-talk@1"), "hi", "").GetRunId()
		d := f.delivered(t, heard["e"], 1)[0]
		require.Equal(t, run, d.GetEventId())
		require.JSONEq(t, `{"of": "fails-talk"}`, string(f.wait(t, d.GetRunId(), completed).GetResult().GetJson()))
	})
	t.Run("IsHeardWithoutADeliveryWhileItIsOff", func(t *testing.T) {
		_, err := f.triggers.DeactivateTriggers(t.Context(), &executorv1.DeactivateTriggersRequest{Workflow: "talk"})
		require.NoError(t, err)
		run := say(t, th, "bye", "off").GetRunId()
		require.Contains(t, string(f.wait(t, run, completed).GetResult().GetJson()), `"bye"`)
		require.Len(t, f.delivered(t, said, 2), 2)
		f.activate(t, "talk")
		require.Equal(t, run, say(t, th, "bye", "off").GetRunId(), "the same request, also after it was turned on")
	})
	for _, name := range []string{"talk", "fails-talk", "heard"} {
		_, err := f.triggers.DeactivateTriggers(t.Context(), &executorv1.DeactivateTriggersRequest{Workflow: name})
		require.NoError(t, err)
	}
}

// chainOfTriggers has two workflows start each other.
func (f *fixture) chainOfTriggers(t *testing.T) {
	f.catalog.stands("ping", 1, `{"id": "w", "type": "workflow", "workflow": "pong", "on": "ended"}`)
	f.catalog.stands("pong", 1, `{"id": "w", "type": "workflow", "workflow": "ping", "on": "ended"}`)
	ping, pong := f.activate(t, "ping")["w"], f.activate(t, "pong")["w"]
	_, err := f.StartRun(t.Context(), &executorv1.StartRunRequest{Workflow: "ping@1"})
	require.NoError(t, err)
	list := append(f.delivered(t, pong, 9), f.delivered(t, ping, 8)...)
	require.Len(t, list, 17)
	refused := 0
	for _, d := range list {
		if d.GetState() == executorv1.TriggerDeliveryState_TRIGGER_DELIVERY_STATE_REFUSED {
			refused++
			require.Equal(t, "TRIGGER_CHAIN_TOO_LONG", d.GetReason())
			require.EqualValues(t, 17, d.GetDepth())
		}
	}
	require.Equal(t, 1, refused)
}
