package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/telegram"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/telegramtest"
	"github.com/epigraph-run/epigraph/services/executor"
)

// doors is a server with what comes in from outside.
type doors struct {
	*stack.Dev

	t      *testing.T
	secret map[string]string // by workflow
}

func (d *doors) command(t *testing.T, in string, args ...string) string {
	t.Helper()
	var o, e bytes.Buffer
	code := cli.Main(t.Context(), build, append([]string{"--addr", d.GRPCAddr()}, args...), cli.IO{In: strings.NewReader(in), Out: &o, Err: &e})
	require.Equal(t, 0, code, "%s%s", o.String(), e.String())
	return o.String()
}

// call makes a request and returns the status and the fields of the answer.
func (d *doors) call(t *testing.T, method, path, body string, headers map[string]string) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+d.HTTPAddr()+path, strings.NewReader(body))
	require.NoError(t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range headers {
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	out := map[string]any{}
	if len(text) > 0 {
		require.NoError(t, json.Unmarshal(text, &out), "%s", text)
	}
	return resp.StatusCode, out
}

// on makes a workflow and turns its triggers on.
func (d *doors) on(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name+".yaml")
	require.NoError(t, os.WriteFile(file, []byte("name: "+name+"\n"+text), 0o600))
	d.command(t, "", "workflows", "create", file)
	status, got := d.call(t, http.MethodPost, "/v1/triggers:activate", `{"workflow": "`+name+`"}`, nil)
	require.Equal(t, http.StatusOK, status, "%v", got)
	for _, x := range got["triggers"].([]any) {
		if s, ok := x.(map[string]any)["secret"].(string); ok {
			d.secret[name] = s
		}
	}
}

// ended waits for the end of a run and returns its result.
func (d *doors) ended(t *testing.T, run string) any {
	t.Helper()
	var got map[string]any
	testkit.Eventually(t, func() bool {
		_, got = d.call(t, http.MethodGet, "/v1/runs/"+run, "", nil)
		require.NotEqual(t, "RUN_STATE_FAILED", got["state"], "%v", got)
		return got["state"] == "RUN_STATE_COMPLETED"
	})
	return got["result"]
}

// triggerOf is the trigger of a workflow that has one.
func (d *doors) triggerOf(t *testing.T, workflow string) string {
	t.Helper()
	_, list := d.call(t, http.MethodGet, "/v1/triggers?workflow="+workflow, "", nil)
	return list["triggers"].([]any)[0].(map[string]any)["id"].(string)
}

// deliveries are those of a workflow's triggers, newest first.
func (d *doors) deliveries(t *testing.T, workflow string) (out []map[string]any) {
	t.Helper()
	_, list := d.call(t, http.MethodGet, "/v1/triggers?workflow="+workflow, "", nil)
	for _, x := range list["triggers"].([]any) {
		_, got := d.call(t, http.MethodGet, "/v1/trigger_deliveries?triggerId="+x.(map[string]any)["id"].(string), "", nil)
		items, _ := got["deliveries"].([]any)
		for _, item := range items {
			out = append(out, item.(map[string]any))
		}
	}
	return out
}

func TestDoors(t *testing.T) {
	polled, pushed := telegramtest.New(t), telegramtest.New(t)
	d := &doors{t: t, secret: map[string]string{}}
	d.Dev = serveWith(t, fakellm.Script{Answer: func(r fakellm.Request) (fakellm.Reply, bool) {
		heard := 0
		for _, m := range r.Messages {
			if m.Role == "user" {
				heard++
			}
		}
		return fakellm.Reply{Text: fmt.Sprintf("heard %d", heard)}, true
	}}, func(c *stack.Config) {
		c.Executor.Telegram.Bots = map[string]executor.Bot{
			"helper": {Token: conf.NewSecret(telegramtest.Token), APIURL: polled.URL},
			"pushed": {Token: conf.NewSecret(telegramtest.Token + "2"), APIURL: pushed.URL, Mode: "webhook", PublicURL: "http://gateway.test"},
		}
	})
	t.Run("Webhooks", func(t *testing.T) { webhooksCome(t, d) })
	t.Run("Chat", func(t *testing.T) { chatsCome(t, d) })
	t.Run("Telegram", func(t *testing.T) { telegramComes(t, d, polled) })
	t.Run("TelegramPushes", func(t *testing.T) { telegramPushes(t, d, pushed) })
}

const echo = "inputs: {text: {type: string}}\nsteps:\n  - {id: say, type: reply_chat, message: \"Got {{ inputs.text }}\"}\n"

// stepped is a workflow with a team in it, and what it is told by an input.
func stepped(input string) string {
	return "inputs: {" + input + ": {type: string}}\nagents:\n  one: {instructions: Count.}\nsteps:\n" +
		"  - {id: pair, type: team, task: \"{{ inputs." + input + " }}\", graph: [one], stop: {max_turns: 1}}\n" +
		"  - {id: say, type: reply_chat, message: \"{{ inputs." + input + " }}: {{ pair.text }}\"}\n"
}

// guide is a workflow that says something before it asks, and after it.
func guide(input string) string {
	return "steps:\n  - {id: first, type: reply_chat, message: \"Heard {{ inputs." + input + " }}\"}\n" +
		"  - {id: which, type: human, message: \"Tea or milk?\", choices: [tea, milk]}\n" +
		"  - {id: last, type: reply_chat, message: \"Thanks for {{ which }}\"}\n"
}

func signed(secret, id, body string, at time.Time) map[string]string {
	key, _ := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	stamp := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + stamp + "." + body))
	return map[string]string{"webhook-id": id, "webhook-timestamp": stamp, "webhook-signature": "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))}
}

func webhooksCome(t *testing.T, d *doors) {
	d.on(t, "orders", "trigger: {type: webhook, path: orders/new}\n"+echo)
	const path, body = "/v1/hooks/default/orders/new", `{"text":"tea"}`
	t.Run("ASignedCallStartsARunOnce", func(t *testing.T) {
		status, first := d.call(t, http.MethodPost, path, body, signed(d.secret["orders"], "msg_1", body, time.Now()))
		require.Equal(t, http.StatusAccepted, status, "%v", first)
		status, again := d.call(t, http.MethodPost, path, body, signed(d.secret["orders"], "msg_1", body, time.Now()))
		require.Equal(t, http.StatusAccepted, status)
		require.Equal(t, first["deliveryId"], again["deliveryId"])
		require.Equal(t, true, again["repeated"])
		var run string
		testkit.Eventually(t, func() bool {
			_, got := d.call(t, http.MethodGet, "/v1/trigger_deliveries/"+first["deliveryId"].(string), "", nil)
			run, _ = got["runId"].(string)
			return got["state"] == "TRIGGER_DELIVERY_STATE_STARTED"
		})
		require.Equal(t, "Got tea", d.ended(t, run))
		require.Len(t, d.deliveries(t, "orders"), 1)
	})
	t.Run("WhatIsWrongIsToldAlike", func(t *testing.T) {
		good := signed(d.secret["orders"], "msg_2", body, time.Now())
		var told []map[string]any
		for _, c := range []struct {
			path, body string
			headers    map[string]string
		}{
			{path, body + " ", good}, {path, body, nil}, {"/v1/hooks/default/nothing/here", body, good}, {"/v1/hooks/elsewhere/orders/new", body, good},
			{"/v1/hooks/NOT-A-NAME/orders/new", body, good}, {path, body, signed(d.secret["orders"], "msg_3", body, time.Now().Add(-6*time.Minute))},
		} {
			status, got := d.call(t, http.MethodPost, c.path, c.body, c.headers)
			require.Equal(t, http.StatusNotFound, status, "%v", got)
			e, _ := got["error"].(map[string]any)
			if e == nil {
				e = got
			}
			delete(e, "requestId")
			told = append(told, e)
		}
		for _, e := range told {
			require.Equal(t, told[0], e)
		}
	})
	t.Run("ALargeBodyIsRefused", func(t *testing.T) {
		status, _ := d.call(t, http.MethodPost, path, strings.Repeat("x", 257<<10), nil)
		require.Equal(t, http.StatusRequestEntityTooLarge, status)
	})
	t.Run("GitHubNamesItsDelivery", func(t *testing.T) {
		d.on(t, "pushes", "trigger: {type: webhook, path: pushes, signature: github, inputs: {text: \"{{ event.headers.x-github-event }} {{ event.body.ref }}\"}}\n"+echo)
		const body = `{"ref":"refs/heads/main"}`
		mac := hmac.New(sha256.New, []byte(d.secret["pushes"]))
		mac.Write([]byte(body))
		h := map[string]string{"X-Hub-Signature-256": "sha256=" + hex.EncodeToString(mac.Sum(nil)), "X-GitHub-Event": "push", "X-GitHub-Delivery": "72d3162e"}
		for range 2 {
			status, got := d.call(t, http.MethodPost, "/v1/hooks/default/pushes", body, h)
			require.Equal(t, http.StatusAccepted, status, "%v", got)
		}
		var list []map[string]any
		testkit.Eventually(t, func() bool {
			list = d.deliveries(t, "pushes")
			return len(list) == 1 && list[0]["state"] == "TRIGGER_DELIVERY_STATE_STARTED"
		})
		require.Equal(t, "72d3162e", list[0]["eventId"])
		require.Equal(t, "Got push refs/heads/main", d.ended(t, list[0]["runId"].(string)))
	})
	t.Run("ATokenAndTheSameBody", func(t *testing.T) {
		d.on(t, "plain", "trigger: {type: webhook, path: plain, signature: token, inputs: {text: \"{{ event.body }}\"}}\n"+echo)
		h := map[string]string{"Authorization": "Bearer " + d.secret["plain"], "Content-Type": "text/plain", "Idempotency-Key": "one"}
		for range 2 {
			status, got := d.call(t, http.MethodPost, "/v1/hooks/default/plain?x=1", "no JSON", h)
			require.Equal(t, http.StatusAccepted, status, "%v", got)
		}
		var list []map[string]any
		testkit.Eventually(t, func() bool {
			list = d.deliveries(t, "plain")
			return len(list) == 1 && list[0]["state"] == "TRIGGER_DELIVERY_STATE_STARTED"
		})
		require.Equal(t, "Got no JSON", d.ended(t, list[0]["runId"].(string)))
	})
}

func chatsCome(t *testing.T, d *doors) {
	d.on(t, "greeter", "trigger: chat\ninputs: {message: {type: string}}\nsteps:\n  - {id: which, type: human, message: \"Tea or milk?\", choices: [tea, milk]}\n  - {id: say, type: reply_chat, message: \"{{ inputs.message }}: {{ which }}\"}\n")
	thread := func(t *testing.T, agent string) string {
		t.Helper()
		status, got := d.call(t, http.MethodPost, "/v1/threads", `{"thread":{"agent":"`+agent+`","userId":"ada"}}`, nil)
		require.Equal(t, http.StatusOK, status, "%v", got)
		return got["id"].(string)
	}
	say := func(t *testing.T, thread, text string) map[string]any {
		t.Helper()
		status, got := d.call(t, http.MethodPost, "/v1/threads/"+thread+"/messages", `{"content":"`+text+`"}`, nil)
		require.Equal(t, http.StatusOK, status, "%v", got)
		return got
	}
	said := func(t *testing.T, thread string) (out []string) {
		t.Helper()
		_, got := d.call(t, http.MethodGet, "/v1/threads/"+thread+"/messages", "", nil)
		list, _ := got["messages"].([]any)
		for _, m := range list {
			body := m.(map[string]any)["body"].(map[string]any)
			out = append([]string{body["role"].(string) + ": " + body["content"].(string)}, out...)
		}
		return out
	}
	t.Run("AQuestionIsAnsweredByItsNumber", func(t *testing.T) {
		th := thread(t, "workflow/greeter")
		run := say(t, th, "Hello")["runId"].(string)
		testkit.Eventually(t, func() bool {
			_, got := d.call(t, http.MethodGet, "/v1/interrupts?runId="+run+"&states=INTERRUPT_STATE_OPEN", "", nil)
			return got["interrupts"] != nil
		})
		say(t, th, "2")
		require.Equal(t, "Hello: milk", d.ended(t, run))
		require.Equal(t, []string{"user: Hello", "assistant: Hello: milk"}, said(t, th))
	})
	t.Run("AMessageIsADeliveryThatIsRepeated", func(t *testing.T) {
		d.on(t, "parrot", "trigger: chat\ninputs: {message: {type: string}}\nsteps:\n  - {id: say, type: reply_chat, message: \"{{ inputs.message }}!\"}\n")
		th := thread(t, "workflow/parrot")
		d.ended(t, say(t, th, "Hello")["runId"].(string))
		id := regexp.MustCompile(`tdl_\w+`).FindString(d.command(t, "", "triggers", "deliveries", d.triggerOf(t, "parrot")))
		d.command(t, "", "triggers", "repeat", id)
		testkit.Eventually(t, func() bool { return len(said(t, th)) == 4 })
		require.Equal(t, []string{"user: Hello", "assistant: Hello!", "user: Hello", "assistant: Hello!"}, said(t, th))
		require.Len(t, d.deliveries(t, "parrot"), 2)
	})
	t.Run("WhatAThreadTakesATriggerHears", func(t *testing.T) {
		th := thread(t, "workflow/parrot")
		before := len(d.deliveries(t, "parrot"))
		status, got := d.call(t, http.MethodPost, "/v1/threads/"+th+"/messages", `{"content":"Hi","requestId":"a\nb`+strings.Repeat("\u00e9", 120)+`"}`, nil)
		require.Equal(t, http.StatusOK, status, "%v", got)
		require.Equal(t, "Hi!", d.ended(t, got["runId"].(string)))
		require.Len(t, d.deliveries(t, "parrot"), before+1)
		status, got = d.call(t, http.MethodPost, "/v1/threads/"+th+"/messages", `{"content":"`+strings.Repeat("x", 400<<10)+`"}`, nil)
		require.Equal(t, http.StatusOK, status, "%v", got)
		require.Len(t, d.deliveries(t, "parrot"), before+1, "it is too large for an event")
	})
	t.Run("TheMessagesGoWithTheThread", func(t *testing.T) {
		th, other := thread(t, "workflow/parrot"), thread(t, "workflow/parrot")
		for _, id := range []string{th, other} {
			d.ended(t, say(t, id, "Secret "+id)["runId"].(string))
		}
		of := func(thread string) (n int) {
			for _, x := range d.deliveries(t, "parrot") {
				_, got := d.call(t, http.MethodGet, "/v1/trigger_deliveries/"+x["id"].(string), "", nil)
				n += strings.Count(fmt.Sprint(got["event"]), "Secret "+thread)
			}
			return n
		}
		first := d.deliveries(t, "parrot")[1]["id"].(string)
		d.command(t, "", "triggers", "repeat", first)
		testkit.Eventually(t, func() bool { return len(said(t, th)) == 4 })
		require.Equal(t, 2, of(th))
		testkit.Eventually(t, func() bool { // the run of the last message may still be ending
			status, _ := d.call(t, http.MethodDelete, "/v1/threads/"+th, "", nil)
			return status == http.StatusOK
		})
		require.Zero(t, of(th))
		require.Equal(t, 1, of(other))
	})
	t.Run("AWorkflowWithoutChatIsRefused", func(t *testing.T) {
		status, got := d.call(t, http.MethodPost, "/v1/threads", `{"thread":{"agent":"workflow/orders"}}`, nil)
		require.Equal(t, http.StatusBadRequest, status, "%v", got)
		require.Contains(t, fmt.Sprint(got), "WORKFLOW_WITHOUT_CHAT")
		status, got = d.call(t, http.MethodPost, "/v1/threads", `{"thread":{"agent":"workflow/nobody"}}`, nil)
		require.Equal(t, http.StatusNotFound, status, "%v", got)
	})
	t.Run("ATeamGoesOnWithItsConversation", func(t *testing.T) {
		d.on(t, "pair", "trigger: chat\nagents:\n  one: {instructions: Count.}\ngraph: [one]\nstop: {max_turns: 1}\n")
		th := thread(t, "workflow/pair")
		for _, text := range []string{"first", "second"} {
			d.ended(t, say(t, th, text)["runId"].(string))
		}
		require.Equal(t, []string{"user: first", "assistant: heard 1", "user: second", "assistant: heard 2"}, said(t, th))
	})
	t.Run("ATeamThatNamesInputsIsGivenThem", func(t *testing.T) {
		d.on(t, "named", "trigger: chat\ninputs: {message: {type: string}}\nagents:\n  one: {instructions: Count.}\ngraph: [one]\ntask: \"{{ inputs.message }}\"\nstop: {max_turns: 1}\n")
		th := thread(t, "workflow/named")
		for _, text := range []string{"first", "second"} {
			d.ended(t, say(t, th, text)["runId"].(string))
		}
		require.Equal(t, []string{"user: first", "assistant: heard 1", "user: second", "assistant: heard 2"}, said(t, th))
	})
	t.Run("ATeamThatIsAStepGoesOn", func(t *testing.T) {
		d.on(t, "stepped", "trigger: chat\n"+stepped("message"))
		th := thread(t, "workflow/stepped")
		for _, text := range []string{"first", "second"} {
			d.ended(t, say(t, th, text)["runId"].(string))
		}
		require.Equal(t, []string{"user: first", "assistant: first: heard 1", "user: second", "assistant: second: heard 2"}, said(t, th))
	})
	t.Run("RepliesAreSaidInOrderAndOnce", func(t *testing.T) {
		d.on(t, "guide", "trigger: chat\ninputs: {message: {type: string}}\n"+guide("message"))
		th := thread(t, "workflow/guide")
		run := say(t, th, "Hello")["runId"].(string)
		testkit.Eventually(t, func() bool { return len(said(t, th)) == 2 })
		require.Equal(t, []string{"user: Hello", "assistant: Heard Hello"}, said(t, th), "at once, while it asks")
		say(t, th, "2")
		require.Equal(t, "Thanks for milk", d.ended(t, run))
		require.Equal(t, []string{"user: Hello", "assistant: Heard Hello", "assistant: Thanks for milk"}, said(t, th))
	})
	t.Run("RepliesSideBySideAreAllSaid", func(t *testing.T) {
		const branches = 4
		steps := "  - parallel:\n"
		for i := range branches {
			steps += fmt.Sprintf("      - {id: r%d, type: reply_chat, message: \"%d\"}\n", i, i)
		}
		d.on(t, "choir", "trigger: chat\nsteps:\n"+steps+"  - {id: over, type: transform, expr: 'null'}\n")
		th := thread(t, "workflow/choir")
		d.ended(t, say(t, th, "sing")["runId"].(string))
		require.ElementsMatch(t, []string{"user: sing", "assistant: 0", "assistant: 1", "assistant: 2", "assistant: 3"}, said(t, th))
	})
	t.Run("AReplyOfAWorkflowBelowIsAValue", func(t *testing.T) {
		d.on(t, "outer", "trigger: chat\ninputs: {message: {type: string}}\nsteps:\n  - {id: below, type: workflow, workflow: parrot@1, payload: {message: \"{{ inputs.message }}\"}}\n  - {id: say, type: reply_chat, message: \"It says {{ below }}\"}\n")
		th := thread(t, "workflow/outer")
		d.ended(t, say(t, th, "Hi")["runId"].(string))
		require.Equal(t, []string{"user: Hi", "assistant: It says Hi!"}, said(t, th))
	})
	t.Run("TheCommandTalks", func(t *testing.T) {
		out := d.command(t, "Hi\n1\n", "chat", "--workflow", "greeter")
		require.Contains(t, out, "Hi: tea")
	})
}

func telegramComes(t *testing.T, d *doors, s *telegramtest.Server) {
	d.on(t, "desk", "trigger: {type: telegram, bot: helper, chats: [70, 71]}\ninputs: {text: {type: string}}\nsteps:\n  - {id: which, type: human, message: \"Which?\", choices: [red, green]}\n  - {id: say, type: reply_chat, message: \"{{ inputs.text }} in {{ which }}\"}\n")
	t.Run("AMessageIsAskedAboutAndAnswered", func(t *testing.T) {
		s.Says(7, 99, "from a chat that is not allowed")
		s.Says(7, 70, "A coat")
		require.Equal(t, telegramtest.Message{Chat: 70, Text: "Which?\n1. red\n2. green"}, s.Sent(1)[0])
		s.Says(7, 70, "blue")
		require.Equal(t, "That is no answer to the question.\nWhich?\n1. red\n2. green", s.Sent(2)[1].Text)
		s.Says(7, 70, "GREEN")
		require.Equal(t, telegramtest.Message{Chat: 70, Text: "A coat in green"}, s.Sent(3)[2])
		s.Confirmed()
		list := d.deliveries(t, "desk")
		require.Len(t, list, 3)
		_, run := d.call(t, http.MethodGet, "/v1/runs/"+list[2]["runId"].(string), "", nil)
		require.Equal(t, "telegram:7", run["userId"])
		require.Equal(t, "70", run["chatId"])
		require.Equal(t, list[2]["runId"], list[0]["runId"], "the answer went to the run that asked")
	})
	t.Run("ARefusedMessageIsSentAgain", func(t *testing.T) {
		s.Refuse("sendMessage", 1, http.StatusTooManyRequests, 1)
		s.Says(8, 71, "A hat")
		require.Equal(t, int64(71), s.Sent(4)[3].Chat)
		s.Says(8, 71, "1")
		require.Equal(t, "A hat in red", s.Sent(5)[4].Text)
	})
	t.Run("AMessageThatWaitedInVainIsToldInASentence", func(t *testing.T) {
		d.on(t, "late", "trigger: {type: telegram, bot: helper, chats: [72]}\nsteps:\n  - {id: nap, type: wait, delay: 1h}\n")
		s.Says(9, 72, "one")
		s.Says(9, 72, "two")
		s.Confirmed()
		list := d.deliveries(t, "late")
		require.Len(t, list, 2)
		d.command(t, "", "triggers", "off", "late")
		status, got := d.call(t, http.MethodPost, "/v1/runs/"+list[1]["runId"].(string)+":cancel", "{}", nil)
		require.Equal(t, http.StatusOK, status, "%v", got)
		require.ElementsMatch(t, []telegramtest.Message{{Chat: 72, Text: "This was stopped."}, {Chat: 72, Text: "Sorry, that did not work."}}, s.Sent(7)[5:])
	})
	t.Run("AFailureIsAPlainSentence", func(t *testing.T) {
		d.on(t, "broken", "trigger: {type: telegram, bot: helper, commands: [break]}\nsteps:\n  - {id: no, type: actor, actor: fail}\n")
		s.Says(9, 90, "not the command")
		s.Says(9, 90, "/break it")
		require.Equal(t, telegramtest.Message{Chat: 90, Text: "Sorry, that did not work."}, s.Sent(8)[7])
		require.Len(t, d.deliveries(t, "broken"), 1)
	})
	t.Run("ATeamThatIsAStepGoesOn", func(t *testing.T) {
		d.on(t, "steps", "trigger: {type: telegram, bot: helper, chats: [73]}\n"+stepped("text"))
		s.Says(9, 73, "first")
		require.Equal(t, telegramtest.Message{Chat: 73, Text: "first: heard 1"}, s.Sent(9)[8])
		s.Says(9, 73, "second")
		require.Equal(t, telegramtest.Message{Chat: 73, Text: "second: heard 2"}, s.Sent(10)[9])
	})
	t.Run("RepliesAreSentInOrderAndOnce", func(t *testing.T) {
		d.on(t, "guided", "trigger: {type: telegram, bot: helper, chats: [74]}\ninputs: {text: {type: string}}\n"+guide("text"))
		s.Says(9, 74, "Hello")
		s.Sent(12)
		s.Says(9, 74, "1")
		s.Sent(13)
		s.Says(9, 74, "Again") // what is said of it comes after all that is said of the first
		texts := []string{}
		for _, m := range s.Sent(15)[10:] {
			texts = append(texts, m.Text)
		}
		require.Equal(t, []string{"Heard Hello", "Tea or milk?\n1. tea\n2. milk", "Thanks for tea", "Heard Again", "Tea or milk?\n1. tea\n2. milk"}, texts)
	})
	t.Run("NoMessageOvertakesOneThatTakesLong", func(t *testing.T) {
		before := len(s.Sent(15))
		d.on(t, "echo", "trigger: {type: telegram, bot: helper, chats: [75]}\ninputs: {text: {type: string}}\nsteps:\n  - {id: say, type: reply_chat, message: \"{{ inputs.text }}\"}\n")
		s.Refuse("sendMessage", 1, http.StatusTooManyRequests, 1)
		for _, text := range []string{"one", "two", "three"} {
			s.Says(9, 75, text)
		}
		texts := []string{}
		for _, m := range s.Sent(before + 3)[before:] {
			texts = append(texts, m.Text)
		}
		require.Equal(t, []string{"one", "two", "three"}, texts)
	})
	require.Zero(t, s.Conflicts(), "one poller")
}

func telegramPushes(t *testing.T, d *doors, s *telegramtest.Server) {
	d.on(t, "news", "trigger: {type: telegram, bot: pushed}\n"+echo)
	address, secret := s.Webhook()
	path, ok := strings.CutPrefix(address, "http://gateway.test")
	require.True(t, ok)
	require.Equal(t, "/v1/hooks/default/telegram/pushed", path)
	const body = `{"update_id":5,"message":{"message_id":1,"text":"hi","chat":{"id":3},"from":{"id":4,"first_name":"Ada"}}}`
	status, _ := d.call(t, http.MethodPost, path, body, map[string]string{telegram.HeaderSecret: "guessed"})
	require.Equal(t, http.StatusNotFound, status)
	for range 2 { // the same update twice
		status, got := d.call(t, http.MethodPost, path, body, map[string]string{telegram.HeaderSecret: secret})
		require.Equal(t, http.StatusAccepted, status, "%v", got)
	}
	require.Equal(t, []telegramtest.Message{{Chat: 3, Text: "Got hi"}}, s.Sent(1))
	require.Len(t, d.deliveries(t, "news"), 1)
}
