package workflow_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow"
)

const triggered = `
name: Orders
inputs: {order: {type: object}, text: {type: string}}
triggers:
  - manual
  - webhook
  - {type: webhook, id: shop, path: /orders/new, signature: github, inputs: {order: "{{ event.body.order }}", text: "Order {{ event.body.order.id }} of {{ event.body.who }}{{ event.nothing }}"}}
  - {type: cron, cron: "0 8 * * 1-5", timezone: Europe/Berlin, overlap: queue_one}
  - {type: cron, every: 90s}
  - chat
  - {type: telegram, bot: helper, chats: [12, "-100345"], commands: [/start, help]}
  - {type: workflow, workflow: digest, on: ended}
  - {type: error, workflows: [digest, mail]}
  - error
  - {type: event, kinds: [task_updated, epic_updated, task_updated], epic: ep_1, when: 'event.task.status == "failed"'}
  - {type: event, kinds: workflow_published, workflow: digest}
steps: [{type: reply_chat, message: "{{ inputs.text }}"}]
`

func triggersOf(t testing.TB, src string) []workflow.Trigger {
	t.Helper()
	d, faults := workflow.Read([]byte(src))
	require.Empty(t, faults)
	return d.Triggers()
}

func TestTriggers(t *testing.T) {
	t.Parallel()
	t.Run("EveryType", func(t *testing.T) {
		t.Parallel()
		got := triggersOf(t, triggered)
		for i := range got {
			require.Equal(t, []string{"order", "text"}, got[i].Accepts)
			got[i].Accepts, got[i].Inputs = nil, nil
		}
		require.Equal(t, []workflow.Trigger{
			{ID: "webhook_2", Type: "webhook", Signature: "standard"},
			{ID: "shop", Type: "webhook", Path: "orders/new", Signature: "github"},
			{ID: "cron_4", Type: "cron", Cron: "0 8 * * 1-5", Timezone: "Europe/Berlin", Overlap: "queue_one"},
			{ID: "cron_5", Type: "cron", Cron: "@every 1m30s", Overlap: "skip"},
			{ID: "chat_6", Type: "chat"},
			{ID: "telegram_7", Type: "telegram", Bot: "helper", Chats: []string{"12", "-100345"}, Commands: []string{"start", "help"}},
			{ID: "workflow_8", Type: "workflow", Workflow: "digest", On: "ended"},
			{ID: "error_9", Type: "error", Workflows: []string{"digest", "mail"}},
			{ID: "error_10", Type: "error"},
			{ID: "event_11", Type: "event", Kinds: []string{"task_updated", "epic_updated"}, Epic: "ep_1", When: `event.task.status == "failed"`},
			{ID: "event_12", Type: "event", Kinds: []string{"workflow_published"}, Workflow: "digest"},
		}, got)
	})
	t.Run("OneInPlaceOfAList", func(t *testing.T) {
		t.Parallel()
		got := triggersOf(t, "name: T\ntrigger: {type: cron, every: 1h}\nsteps: [{type: wait, delay: 1}]")
		require.Len(t, got, 1)
		require.Equal(t, "cron_1", got[0].ID)
		require.Empty(t, triggersOf(t, "name: T\ntrigger: manual\nsteps: [{type: wait, delay: 1}]"))
	})
	t.Run("FaultsAllAtOnce", func(t *testing.T) {
		t.Parallel()
		_, faults := workflow.Read([]byte(`
name: T
inputs: {text: {type: string}}
triggers:
  - {type: webhok}
  - {type: webhook, path: "Orders?", signature: md5}
  - cron
  - {type: cron, cron: "1 2 3", every: 1s}
  - {type: cron, every: 1500ms}
  - {type: telegram, chats: [x, 1.5]}
  - {type: workflow, workflow: digest@1, on: done}
  - {type: chat, id: chat_9, inputs: {text: "{{ inputs.a }}", txt: 1}}
  - chat
  - {type: manual, path: x}
  - {path: x}
  - 7
  - schedule
  - {type: event, kinds: [], epic: "ep 1"}
  - {type: event, kinds: [task_updated, usage_booked], when: "task.status"}
  - event
steps: [{type: wait, delay: 1}]
`))
		var got []string
		for _, f := range faults {
			require.NotZero(t, f.Line, "%s", f)
			got = append(got, f.Code+" "+f.Path)
		}
		require.Equal(t, []string{
			"UNKNOWN_WORD triggers[0].type", "BAD_PATH triggers[1].path", "UNKNOWN_WORD triggers[1].signature", "MISSING_KEY triggers[2]",
			"BAD_CRON triggers[3].cron", "SEVERAL_FORMS triggers[3].every", "OUT_OF_RANGE triggers[4].every", "MISSING_KEY triggers[5]",
			"WRONG_TYPE triggers[5].chats[1]", "BAD_NAME triggers[6].workflow", "UNKNOWN_WORD triggers[6].on",
			"UNKNOWN_STEP triggers[7].inputs", "UNKNOWN_INPUT triggers[7].inputs.txt", "DUPLICATE_ID triggers[8]", "UNKNOWN_KEY triggers[9].path",
			"MISSING_KEY triggers[10]", "WRONG_TYPE triggers[11]", "UNKNOWN_WORD triggers[12]",
			"MISSING_KEY triggers[13]", "BAD_NAME triggers[13].epic", "UNKNOWN_WORD triggers[14].kinds[1]", "BAD_EXPRESSION triggers[14].when", "MISSING_KEY triggers[15]",
		}, got)
	})
	t.Run("EventIsKnownNowhereElse", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "UNKNOWN_STEP", faultsOf("name: T\nsteps: [{type: reply_chat, message: \"{{ event.body }}\"}]")[0].Code)
	})
	t.Run("TooMany", func(t *testing.T) {
		t.Parallel()
		_, faults := workflow.Read([]byte("name: T\ntriggers: [" + strings.Repeat("chat, ", workflow.MaxTriggers+1) + "]\nsteps: [{type: wait, delay: 1}]"))
		require.Len(t, faults, 1)
		require.Equal(t, "TOO_LARGE", faults[0].Code)
	})
	t.Run("UsesAreTypes", func(t *testing.T) {
		t.Parallel()
		d, faults := workflow.Read([]byte(triggered))
		require.Empty(t, faults)
		require.Equal(t, []string{"chat", "cron", "error", "event", "manual", "telegram", "webhook", "workflow"}, d.Uses().Triggers)
	})
}

func TestFill(t *testing.T) {
	t.Parallel()
	all := triggersOf(t, triggered)
	fill := func(t *testing.T, x workflow.Trigger, event string) string {
		t.Helper()
		got, err := x.Fill(json.RawMessage(event))
		require.NoError(t, err)
		b, err := json.Marshal(got)
		require.NoError(t, err)
		return string(b)
	}
	t.Run("References", func(t *testing.T) {
		t.Parallel()
		event := `{"body": {"order": {"id": 12345678901234567890}, "who": "Ada"}}`
		require.Equal(t, `{"order":{"id":12345678901234567890},"text":"Order 12345678901234567890 of Ada"}`, fill(t, all[1], event))
	})
	t.Run("WhatIsNotThereIsLeftOut", func(t *testing.T) {
		t.Parallel()
		require.JSONEq(t, `{"text": "Order  of "}`, fill(t, all[1], `{"body": [1]}`))
	})
	t.Run("TheBodyOfAWebhook", func(t *testing.T) {
		t.Parallel()
		require.JSONEq(t, `{"text": "x"}`, fill(t, all[0], `{"body": {"text": "x", "more": 1}, "text": "y"}`))
		require.JSONEq(t, `{}`, fill(t, all[0], `{"body": "text"}`))
	})
	t.Run("TheEventItself", func(t *testing.T) {
		t.Parallel()
		require.JSONEq(t, `{"text": "y"}`, fill(t, all[4], `{"text": "y", "thread_id": "t"}`))
		open := all[4]
		open.Accepts = nil
		require.JSONEq(t, `{"text": "y", "thread_id": "t"}`, fill(t, open, `{"text": "y", "thread_id": "t"}`))
	})
	t.Run("Bounds", func(t *testing.T) {
		t.Parallel()
		big := json.RawMessage(`"` + strings.Repeat("x", workflow.MaxEvent-2) + `"`)
		x := workflow.Trigger{Type: "chat", Inputs: json.RawMessage(`{"a": ["{{ event }}", "{{ event }}", "{{ event }}", "{{ event }}", "{{ event }}"]}`)}
		_, err := x.Fill(big)
		require.ErrorContains(t, err, "too large")
		x.Inputs = json.RawMessage(`{"a": "` + strings.Repeat("{{ event }}", 5) + `"}`)
		_, err = x.Fill(big)
		require.ErrorContains(t, err, "too large")
		_, err = x.Fill(append(big, ' '))
		require.ErrorContains(t, err, "limit")
		_, err = x.Fill(json.RawMessage(`{`))
		require.ErrorContains(t, err, "not JSON")
	})
}

// FuzzFill makes inputs of events and triggers that nobody meant: they are bounded and JSON, or refused.
func FuzzFill(f *testing.F) {
	f.Add("name: T\ntrigger: {type: webhook, inputs: {a: \"{{ event.body[0].x }} {{ event }}\"}}\nsteps: [{type: wait, delay: 1}]", `{"body": [{"x": [1, null]}]}`)
	f.Add(triggered, `{"body": {"order": {"id": 1e400}, "who": {}}}`)
	f.Fuzz(func(t *testing.T, src, event string) {
		d, faults := workflow.Read([]byte(src))
		if len(faults) > 0 {
			return
		}
		for _, x := range d.Triggers() {
			got, err := x.Fill(json.RawMessage(event))
			if err != nil {
				continue
			}
			_, err = json.Marshal(got)
			require.NoError(t, err)
		}
	})
}
