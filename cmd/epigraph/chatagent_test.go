package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	epigraph "github.com/epigraph-run/epigraph/sdk"
)

const greeting = "<StructuredResponse><InstantResponse>Hello &amp; welcome.</InstantResponse></StructuredResponse>"

// talker is a model that says what the test wants for the last thing that it is told.
func talker(last string, tools bool) fakellm.Reply {
	has := func(text string) bool { return strings.Contains(last, text) }
	act := func(actions string) fakellm.Reply {
		return fakellm.Reply{Text: "<StructuredResponse>\n<InstantResponse>I look &amp; see.</InstantResponse>\n<ImmediateNextActions>" + actions + "</ImmediateNextActions>\n</StructuredResponse>"}
	}
	const north, south = `<Action><Type>north</Type></Action>`, `<Action><Type>south</Type></Action>`
	switch {
	case tools && has("APPROVED"):
		return fakellm.Reply{Text: "It is paid."}
	case tools && has("REJECTED"):
		return fakellm.Reply{Text: "It is not paid."}
	case tools && has("pay"):
		return fakellm.Reply{ToolCalls: []fakellm.ToolCall{{ID: "c1", Name: "pay", Arguments: "{}"}}}
	case tools && has("sun in the north"):
		return fakellm.Reply{Text: "It is sunny in the north."}
	case tools && has("weather"):
		return fakellm.Reply{Text: "I look.", ToolCalls: []fakellm.ToolCall{{ID: "c1", Name: "north", Arguments: "{}"}}}
	case has("a branch has seen it"):
		return fakellm.Reply{Text: "<InstantResponse>Both were seen.</InstantResponse>"}
	case has("User: everywhere") && has("<ActionResult>"):
		return fakellm.Reply{Text: "<InstantResponse>a branch has seen it</InstantResponse>"}
	case has("User: everywhere"):
		return act("<AlternativeActions>" + north + south + "</AlternativeActions>")
	case has("<ActionResult>sun in the north"):
		return fakellm.Reply{Text: "<InstantResponse>Sun &lt;in the north&gt;, and nothing else.</InstantResponse><TaskStatus>Completed</TaskStatus>"}
	case has("User: Oslo"):
		return fakellm.Reply{Text: `{"result": {"city": "Oslo"}}`}
	case has("User: where"):
		return fakellm.Reply{Text: `{"task_status": "Pending", "instant_response": "Which city?"}`}
	case has("User: hello"):
		return fakellm.Reply{Text: greeting}
	case has("User: plain"):
		return fakellm.Reply{Text: "No form at all."}
	}
	return act(north)
}

// talkers are agents of both forms.
const talkers = `
executor:
  actors:
    agents:
      prompted: {definition: '{"actions": {"north": {"actor": "template", "named": {"text": "sun in the north"}}, "south": {"actor": "template", "named": {"text": "rain"}}}}'}
      tooled: {definition: '{"form": "tools", "actions": {"north": {"actor": "template", "named": {"text": "sun in the north"}}}}'}
      payer: {definition: '{"form": "tools", "actions": {"pay": {"actor": "human", "named": {"prompt": "May I pay?", "approve": {"cents": 7}}}}}'}
      silent: {definition: '{"reasoner_args": {"stream": false}, "actions": {"north": {"actor": "template", "named": {"text": "sun in the north"}}}}'}
`

// TestTextOfAgents follows what agents with a real client of models say, to the terminal and to server-sent
// events.
func TestTextOfAgents(t *testing.T) {
	var mu sync.Mutex
	var hold func(ctx context.Context, sent string) bool
	d := serveAgents(t, talkers, fakellm.Script{Answer: func(r fakellm.Request) (fakellm.Reply, bool) {
		reply := talker(r.Messages[len(r.Messages)-1].Content, len(r.Tools) > 0)
		mu.Lock()
		defer mu.Unlock()
		reply.Hold = hold
		return reply, true
	}})
	// holding lets the model write its first piece, and the rest once done is closed.
	holding := func() (done chan struct{}) {
		done = make(chan struct{})
		mu.Lock()
		defer mu.Unlock()
		hold = func(ctx context.Context, sent string) bool {
			if sent == "" {
				return true
			}
			select {
			case <-done:
				return true
			case <-ctx.Done():
				return false
			}
		}
		return done
	}
	free := func() {
		mu.Lock()
		defer mu.Unlock()
		hold = nil
	}
	chat := func(t *testing.T, in string, out interface{ String() string }, write func([]byte) (int, error), args ...string) string {
		t.Helper()
		var notes bytes.Buffer
		code := cli.Main(t.Context(), build, append([]string{"--addr", d.GRPCAddr(), "chat"}, args...), cli.IO{In: strings.NewReader(in), Out: writerFunc(write), Err: &notes})
		require.Equal(t, 0, code, "%s%s", out, &notes)
		require.NotContains(t, notes.String(), "approve", "the agent itself asks")
		return out.String()
	}
	for name, c := range map[string]struct{ agent, in, want string }{
		"Prompt/EachRound":            {"prompted", "weather", "I look & see.\nSun <in the north>, and nothing else.\n"},
		"Prompt/BranchesAreNotShown":  {"prompted", "everywhere", "I look & see.\nBoth were seen.\n"},
		"Prompt/QuestionAndObject":    {"prompted", "where\nOslo", "Which city?\n{\"city\":\"Oslo\"}\n"},
		"Prompt/TextWithoutAForm":     {"prompted", "plain", "No form at all.\n"},
		"Prompt/NotStreamed":          {"silent", "weather", "Sun <in the north>, and nothing else.\n"},
		"Tools/EachRound":             {"tooled", "weather", "I look.\nIt is sunny in the north.\n"},
		"Tools/TextWithoutACall":      {"tooled", "sun in the north", "It is sunny in the north.\n"},
		"Prompt/SeveralTurnsOfThread": {"prompted", "plain\nwhere\nOslo\n", "No form at all.\nWhich city?\n{\"city\":\"Oslo\"}\n"},
	} {
		t.Run("Chat/"+name, func(t *testing.T) {
			var out bytes.Buffer
			require.Equal(t, c.want, chat(t, c.in, &out, out.Write, "agent/"+c.agent))
		})
	}
	t.Run("Chat/DecidesAboutApprovals", func(t *testing.T) {
		talk := func(in string, flags ...string) (out, notes string) {
			var o, e bytes.Buffer
			code := cli.Main(t.Context(), build, append([]string{"--addr", d.GRPCAddr(), "chat", "agent/payer", "--key", "ann:till"}, flags...), cli.IO{In: strings.NewReader(in), Out: &o, Err: &e})
			require.Zero(t, code, "%s%s", &o, &e)
			return o.String(), e.String()
		}
		out, notes := talk("pay\nwell\nyes\npay\n")
		require.Regexp(t, `(?s)May I pay\?\n.*"cents": 7.*It is paid\.\n`, out)
		require.Contains(t, notes, "say yes or no")
		out, notes = talk("no\n")
		require.Regexp(t, `(?s)May I pay\?\n.*"cents": 7.*It is not paid\.\n`, out)
		require.Contains(t, notes, "the agent waits for an approval")
		out, _ = talk("pay\n", "--json")
		require.Contains(t, out, `"question":"May I pay?"`)
		out, _ = talk("yes\n", "--json")
		require.Contains(t, out, `"answer":"It is paid."`)
	})
	t.Run("Chat/QuestionOfAnEarlierTalk", func(t *testing.T) {
		talk := func(in string) (out, notes string) {
			var o, e bytes.Buffer
			code := cli.Main(t.Context(), build, []string{"--addr", d.GRPCAddr(), "chat", "agent/prompted", "--key", "ann:desk", "--user", "ann"}, cli.IO{In: strings.NewReader(in), Out: &o, Err: &e})
			require.Zero(t, code, "%s%s", &o, &e)
			return o.String(), e.String()
		}
		out, _ := talk("where\n")
		require.Equal(t, "Which city?\n", out)
		out, notes := talk("")
		require.Equal(t, "Which city?\n", out, "whoever comes back sees what is asked")
		require.Contains(t, notes, "the next line answers")
		out, _ = talk("Oslo\n")
		require.Equal(t, "Which city?\n{\"city\":\"Oslo\"}\n", out)
		out, notes = talk("")
		require.Empty(t, out)
		require.NotContains(t, notes, "answers")
	})
	t.Run("Chat/AsItIsWritten", func(t *testing.T) {
		done := holding()
		defer free()
		out := &seen{want: "It is sunny", then: sync.OnceFunc(func() { close(done) })}
		require.Equal(t, "It is sunny in the north.\n", chat(t, "sun in the north", out, out.Write, "agent/tooled"))
	})
	t.Run("Events/FromTheModelToTheClient", func(t *testing.T) {
		done := holding()
		defer free()
		c, err := epigraph.Dial(d.GRPCAddr())
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		thread, err := c.CreateThread(t.Context(), "agent/prompted")
		require.NoError(t, err)
		turn, err := thread.Send(t.Context(), "hello", "")
		require.NoError(t, err)
		require.NotEmpty(t, turn.GetRunId())
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+d.HTTPAddr()+"/v1/runs/"+turn.GetRunId()+"/events?include_descendants=true", nil)
		require.NoError(t, err)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer func() { require.NoError(t, res.Body.Close()) }()
		texts := map[string]string{}
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok || !strings.Contains(data, `"tokenDelta"`) {
				continue
			}
			var ev struct {
				TokenDelta struct {
					Text, Kind string
					Offset     int64 `json:",string"`
					Visit      struct{ NodeID string }
				}
			}
			require.NoError(t, json.Unmarshal([]byte(data), &ev))
			x := ev.TokenDelta
			require.EqualValues(t, len(texts[x.Kind]), x.Offset)
			require.Equal(t, "reason", x.Visit.NodeID)
			if texts[x.Kind] += x.Text; x.Kind == "TEXT_KIND_RAW" && texts[x.Kind] == greeting[:12] {
				close(done) // the rest is written now that the beginning is here
			}
		}
		require.Equal(t, map[string]string{"TEXT_KIND_RAW": greeting, "TEXT_KIND_ANSWER": "Hello & welcome."}, texts)
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
