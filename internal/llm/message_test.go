package llm_test

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	user := llm.Message{Role: llm.User, Content: "x"}
	call := func(ids ...string) llm.Message {
		m := llm.Message{Role: llm.Assistant}
		for _, id := range ids {
			m.ToolCalls = append(m.ToolCalls, llm.ToolCall{ID: id, Name: "t", Arguments: json.RawMessage("{}")})
		}
		return m
	}
	answer := func(id string) llm.Message { return llm.Message{Role: llm.ToolRole, ToolCallID: id} }
	named := llm.Message{Role: llm.Assistant}
	for i := range 1001 {
		named.ToolCalls = append(named.ToolCalls, llm.ToolCall{ID: strconv.Itoa(i), Name: strconv.Itoa(i), Arguments: json.RawMessage("{}")})
	}
	tools := []llm.Tool{{Name: "a"}, {Name: "b", Schema: json.RawMessage(` {"type":"object"}`)}}
	for name, tt := range map[string]struct {
		req  llm.Request
		want string
	}{
		"Whole":               {llm.Request{Messages: []llm.Message{user, call("1", "2"), answer("2"), answer("1"), user}, Tools: tools, ToolChoice: "b"}, ""},
		"NoMessages":          {llm.Request{}, "messages is empty"},
		"Role":                {llm.Request{Messages: []llm.Message{{Role: "robot"}}}, `messages[0].role is "robot"`},
		"AnswerToNothing":     {llm.Request{Messages: []llm.Message{user, answer("9")}}, `messages[1] answers tool call "9"`},
		"AnswerTooLate":       {llm.Request{Messages: []llm.Message{call("1"), user, answer("1")}}, `tool call "1" of messages[0] has no answer`},
		"AnswerTwice":         {llm.Request{Messages: []llm.Message{call("1"), answer("1"), answer("1")}}, `messages[2] answers`},
		"NoAnswer":            {llm.Request{Messages: []llm.Message{user, call("2", "1"), answer("2")}}, `tool call "1" of messages[1] has no answer`},
		"SameID":              {llm.Request{Messages: []llm.Message{call("1", "1")}}, "messages[0].tool_calls[1] has no name, or no id"},
		"ArgumentsAreNoJSON":  {llm.Request{Messages: []llm.Message{{Role: llm.Assistant, ToolCalls: []llm.ToolCall{{ID: "1", Name: "t", Arguments: json.RawMessage("{")}}}}}, "arguments is no JSON"},
		"CallsOfAUser":        {llm.Request{Messages: []llm.Message{{Role: llm.User, ToolCalls: []llm.ToolCall{{ID: "1", Name: "t"}}}}}, "its role is user"},
		"TwoToolsOfOneName":   {llm.Request{Messages: []llm.Message{user}, Tools: []llm.Tool{{Name: "a"}, {Name: "a"}}}, `tools[1].name "a"`},
		"ASchemaThatIsAList":  {llm.Request{Messages: []llm.Message{user}, Tools: []llm.Tool{{Name: "a", Schema: json.RawMessage("[]")}}}, "tools[0].schema"},
		"AnUnknownChoice":     {llm.Request{Messages: []llm.Message{user}, Tools: tools, ToolChoice: "c"}, `tool_choice "c"`},
		"AChoiceWithoutTools": {llm.Request{Messages: []llm.Message{user}, ToolChoice: "auto"}, "tools is empty"},
		"AFormatThatIsNone":   {llm.Request{Messages: []llm.Message{user}, Format: &llm.Format{Schema: json.RawMessage("{")}}, "format.schema"},
		"ExtraIsNoJSON":       {llm.Request{Messages: []llm.Message{user}, Extra: map[string]json.RawMessage{"a": json.RawMessage("x")}}, `extra field "a"`},
		"NegativeLimit":       {llm.Request{Messages: []llm.Message{user}, MaxOutputTokens: -1}, "max_output_tokens"},
		"TooManyNames":        {llm.Request{Messages: []llm.Message{named}}, "messages[0] calls a tool of yet another name"},
		"ALongName":           {llm.Request{Messages: []llm.Message{user}, ToolChoice: strings.Repeat("x", 1<<20), Tools: tools}, "tool_choice"},
		"TooMany":             {llm.Request{Messages: make([]llm.Message, 100_001)}, "messages has 100001 messages"},
		"TooLarge":            {llm.Request{Messages: []llm.Message{{Role: llm.User, Content: strings.Repeat("x", 64<<20)}}}, "the request has"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tt.req.Check()
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tt.want)
			require.Equal(t, llm.Permanent, fault(t, err).Class)
			require.Less(t, len(fault(t, err).Message), 4096, "messages are bounded")
		})
	}
}

func TestMessageJSON(t *testing.T) {
	t.Parallel()
	const text = `{"role":"assistant","content":"","tool_calls":[{"id":"1","name":"t","arguments":{"n":9007199254740993}}],"opaque":{"anthropic":[{"b": 1}]}}`
	var m llm.Message
	require.NoError(t, json.Unmarshal([]byte(text), &m))
	raw, err := json.Marshal(m)
	require.NoError(t, err)
	require.JSONEq(t, text, string(raw))
	require.Contains(t, string(raw), "9007199254740993")
}

func TestArguments(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "{}", " \n": "{}", `{"a":1}`: `{"a":1}`, "[1]": "[1]", "{oops": `"{oops"`, "\x00\xff": `"\u0000\ufffd"`} {
		require.Equal(t, want, string(llm.Arguments(text)), "%q", text)
	}
}

func TestEstimate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"": 0, "a": 1, "12345678": 2, "ünïcödé": 2, "日本語": 3, "日本語日": 3, "\xff\xfe": 2} {
		require.Equal(t, want, llm.EstimateText(text), "%q", text)
	}
	req := llm.Request{
		Messages: []llm.Message{{Role: llm.User, Content: "12345678"}, {Role: llm.Assistant, ToolCalls: []llm.ToolCall{{Name: "1234", Arguments: json.RawMessage("1234")}}}},
		Tools:    []llm.Tool{{Name: "1234", Description: "1234", Schema: json.RawMessage("1234")}}, Format: &llm.Format{Schema: json.RawMessage("1234")},
	}
	require.EqualValues(t, (4+2)+(4+8+2)+(8+3)+1, llm.Estimate(req))
}

func TestScript(t *testing.T) {
	t.Parallel()
	s, err := fakellm.Parse([]byte("rules:\n- match: a\n  times: 2\n  reply: {text: b, delay: 20ms, usage: {input: 5}, tool_calls: [{name: t, arguments: '{}'}]}\n- after: c\n  reply: {fault: rate_limit, retry_after: 1s}\nmodels: [m]\n"))
	require.NoError(t, err)
	require.EqualValues(t, 5, s.Rules[0].Reply.Usage.Input)
	require.Equal(t, "t", s.Rules[0].Reply.ToolCalls[0].Name)
	require.Equal(t, fakellm.RateLimit, s.Rules[1].Reply.Fault)
	_, err = fakellm.Parse([]byte("ruls: []\n"))
	require.Error(t, err)
}
