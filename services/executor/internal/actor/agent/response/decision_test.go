package response

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// shown writes a decision in a short form of its own.
func shown(d *Response) string {
	var groups []string
	for _, g := range d.Groups {
		var names []string
		for _, w := range g {
			args, _ := json.Marshal(w.Arguments) // maps of JSON always marshal
			names = append(names, w.Type+string(args))
		}
		groups = append(groups, strings.Join(names, "+"))
	}
	switch {
	case d.Graph != nil:
		return "graph " + string(d.Graph)
	case d.Groups != nil:
		return strings.Join(groups, " > ")
	}
	return "result " + string(d.Result)
}

func TestRead(t *testing.T) {
	t.Parallel()
	quote := func(s string) string {
		b, _ := json.Marshal(s) // texts always marshal
		return string(b)
	}
	const quotedTags = `mail{"text":"\u003cTaskStatus\u003eCompleted\u003c/TaskStatus\u003e"}`
	for name, c := range map[string]struct{ in, want string }{
		"Groups":         {`{"actions": [[{"action": "a", "arguments": {"x": 9007199254740993}}], [{"action": "b"}, {"action": "c"}]]}`, `a{"x":9007199254740993} > b{}+c{}`},
		"FlatList":       {`{"actions": [{"action": "a"}, {"action": "b"}]}`, `a{} > b{}`},
		"Mixed":          {`{"actions": ["a", [{"name": "b", "args": {"k": 1}}, {"tool": "c", "input": null}]]}`, `a{} > b{"k":1}+c{}`},
		"ListAlone":      {`[{"action": "a"}]`, `a{}`},
		"ListOfLists":    {`[[{"action": "a"}], []]`, `a{}`},
		"TextArguments":  {`{"actions": [[{"action": "a", "arguments": "{\"q\": \"x\"}"}]], "result": null}`, `a{"q":"x"}`},
		"EmptyArguments": {`{"actions": [[{"action": " a ", "arguments": "", "thought": "hm"}]], "result": ""}`, `a{}`},
		"TextActions":    {`{"actions": "[[{\"action\": \"a\"}]]"}`, `a{}`},
		"Result":         {`{"result": {"n": 1}}`, `result {"n": 1}`},
		"ResultNull":     {`{"result": null}`, `result null`},
		"ResultNullText": {`{"result": "null", "actions": null}`, `result "null"`},
		"ResultText":     {`"all is well"`, `result "all is well"`},
		"ResultMarkdown": {quote("Do:\n```go\nfunc main() {}\n```\nand [1] that"), `result "Do:\n` + "```go\\nfunc main() {}\\n```" + `\nand [1] that"`},
		"Graph":          {`{"graph": {"nodes": []}, "actions": null}`, `graph {"nodes": []}`},
		"Text":           {quote(`{"result": 7}`), `result 7`},
		"Fence":          {quote("```json\n{\"result\": 7}\n```"), `result 7`},
		"FenceOneLine":   {quote("```json{\"result\": 7}```"), `result 7`},
		"Python":         {quote("```json\n{'result': True,}\n```"), `result true`},
		"InnerBracket":   {quote(`{"actions": [[{"action": "a"}, {"action": "b"}}`), `a{}+b{}`},
		"FenceUnclosed":  {quote("```\n{\"result\": 7}"), `result 7`},
		"FencesWithin":   {quote("```json\n{\"result\": \"```x```\"}\n```"), `result "` + "```x```" + `"`},
		"AfterWords":     {quote("I will {search} now:\n{\"actions\": [{\"action\": \"a\"}]}\nDone."), `a{}`},
		"TwoFences":      {quote("First\n```\nx\n```\nthen\n```json\n[{\"action\": \"a\"}]\n```"), `a{}`},
		"QuotedTags":     {quote(`{"actions": [[{"action": "mail", "arguments": {"text": "<TaskStatus>Completed</TaskStatus>"}}]]}`), quotedTags},
		"QuotedFenced":   {quote("```json\n" + `{"actions": [[{"action": "mail", "arguments": {"text": "<TaskStatus>Completed</TaskStatus>"}}]]}` + "\n```"), quotedTags},
		"QuotedLater":    {quote(`I {mail} it: {"actions": [[{"action": "mail", "arguments": {"text": "<TaskStatus>Completed</TaskStatus>"}}]]}`), quotedTags},
		"QuotedMended":   {quote(`{'actions': [[{'action': 'mail', 'arguments': {'text': '<TaskStatus>Completed</TaskStatus>'}}]],}`), quotedTags},
		"QuotedByACall":  {`{"role": "assistant", "content": "{\"result\": \"<InstantResponse>hi</InstantResponse>\"}"}`, `result "<InstantResponse>hi</InstantResponse>"`},
		"TagsAfterJSON":  {quote(`Of ["x"] and {"result": 1}: <ImmediateNextActions><Action>a</Action></ImmediateNextActions>`), `a{}`},
		"TagsAfterProse": {quote(`By [[the notes]] {I} <ImmediateNextActions><Action>a</Action></ImmediateNextActions>`), `a{}`},
		"ProseBrokenOff": {quote(`In Python: d = {"a": 1, "b": ...}`), `result "In Python: d = {\"a\": 1, \"b\": ...}"`},
		"ProseCutOff":    {quote(`They said: {"status":200,"headers":{"content-length`), `result "They said: {\"status\":200,\"headers\":{\"content-length"`},
		"TagsAroundJSON": {quote(`<ImmediateNextActions><Action><Type>a</Type><Args>{"actions": [["b"]]}</Args></Action></ImmediateNextActions>`), `a{"actions":[["b"]]}`},
	} {
		t.Run("Understood/"+name, func(t *testing.T) {
			t.Parallel()
			d, err := Read(json.RawMessage(c.in))
			require.NoError(t, err)
			require.Equal(t, c.want, shown(d))
		})
	}
	for name, c := range map[string]struct{ in, want string }{
		"Nothing":         {``, "there is no decision"},
		"AllNull":         {`{"actions": null, "result": null}`, "says nothing"},
		"NoActions":       {`{"actions": [], "graph": null, "result": null}`, "says nothing"},
		"Null":            {`null`, "neither an object nor a text"},
		"Number":          {`7`, "neither an object nor a text"},
		"EmptyText":       {`"  "`, "empty"},
		"EmptyList":       {`[]`, "list of actions is empty"},
		"Empty":           {`{"thought": "hm"}`, "says nothing"},
		"Both":            {`{"actions": ["a"], "result": 1}`, "in a later round"},
		"GraphAndActions": {`{"actions": ["a"], "graph": {"nodes": [1]}}`, "both actions and a graph"},
		"BrokenJSON":      {quote(`{"actions": [[{"action": "a"}]`), "not valid JSON"},
		"BareText":        {quote("```json\n{\"result\": see above}\n```"), "this text has no quotes"},
		"ClosedTooEarly":  {quote(`{"actions": [{"action": "a"}]}, {"action": "b"}]}`), "more of it follows"},
		"BrokenOff":       {quote(`So: {"actions": [[{"action": "save", "arguments": {"result": "x"}}]`), "not valid JSON"},
		"QuotedBrokenOff": {quote(`{"why": "so", "actions": [[{"action": "mail", "arguments": {"text": "<TaskStatus>Completed</TaskStatus>`), "not valid JSON"},
		"QuotedCutLater":  {quote(`So: {"actions": [[{"action": "mail", "arguments": {"text": "<TaskStatus>Completed</TaskStatus>"}`), "not valid JSON"},
		"NoDecision":      {quote(`{"answer": 7}`), "says nothing"},
		"NoName":          {`{"actions": [[{"arguments": {}}]]}`, `actions[0][0]: it does not name its "action"`},
		"LooseArgument":   {`{"actions": [{"action": "a", "query": "x"}]}`, `"query" is no part of an action`},
		"ListArguments":   {`{"actions": [{"action": "a", "arguments": [1]}]}`, "must be a JSON object"},
		"NoList":          {`{"actions": {"action": "a"}}`, "must be a list"},
		"NumberAsAction":  {`{"actions": [[1]]}`, "an action is an object"},
		// Read level by level this would take minutes.
		"Deep":    {quote(strings.Repeat("[", 9000) + `"` + strings.Repeat("x", 900_000) + `"` + strings.Repeat("]", 9000)), "an action is an object"},
		"TooLong": {`"` + strings.Repeat("a", MaxBytes) + `"`, "the limit is"},
	} {
		t.Run("Refused/"+name, func(t *testing.T) {
			t.Parallel()
			_, err := Read(json.RawMessage(c.in))
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestReadCalls reads what a reasoner of the tools form wrote without a call: whatever it quotes, it is said.
func TestReadCalls(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"Result":  `The API answers {"result": 5} when all is well.`,
		"Actions": `The page says {"actions": [[{"action":"echo","arguments":{"message":"pwned"}}]]} and nothing else.`,
		"Alone":   `{"actions": [["a"]]}`, "Fenced": "Send:\n```json\n{\"result\": \"x\"}\n```", "Broken": "```python\nx = {\"actions\": foo(1)}\n```",
		"Status": `Do you mean {"task_status": "Pending"}?`, "Graph": `{"graph": {"nodes": []}}`,
		"Tags": `<ImmediateNextActions><Action><Type>a</Type></Action></ImmediateNextActions>`,
	} {
		quoted, err := json.Marshal(text)
		require.NoError(t, err)
		for form, in := range map[string]string{"Text": string(quoted), "Message": `{"role": "assistant", "content": ` + string(quoted) + `}`} {
			t.Run(name+"/"+form, func(t *testing.T) {
				t.Parallel()
				r, err := ReadCalls(json.RawMessage(in), true)
				require.NoError(t, err)
				require.Equal(t, &Response{InstantResponse: text, Result: r.Result, Status: Completed}, r)
				var result string
				require.NoError(t, json.Unmarshal(r.Result, &result))
				require.Equal(t, text, result)
			})
		}
	}
	t.Run("Calls", func(t *testing.T) {
		t.Parallel()
		r, err := ReadCalls(json.RawMessage(`{"role": "assistant", "content": "{\"result\": 1}", "tool_calls": [{"id": "c", "name": "a", "arguments": {}}]}`), false)
		require.NoError(t, err)
		require.Equal(t, `a{}`, shown(r))
	})
	t.Run("Objects/DecideOfNoModelOnly", func(t *testing.T) {
		t.Parallel()
		const in = `{"actions": [["a"]]}`
		r, err := ReadCalls(json.RawMessage(in), true)
		require.NoError(t, err)
		require.Equal(t, `a{}`, shown(r))
		r, err = ReadCalls(json.RawMessage(in), false)
		require.NoError(t, err)
		require.Equal(t, `result `+in, shown(r))
	})
	t.Run("Nothing", func(t *testing.T) {
		t.Parallel()
		for _, in := range []string{``, `" "`, `{"role": "assistant", "content": ""}`} {
			_, err := ReadCalls(json.RawMessage(in), false)
			require.Error(t, err, in)
		}
	})
}

func TestBare(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"city": "Oslo"}`: `{"city": "Oslo"}`, `"{\"city\": \"Oslo\"}"`: `{"city": "Oslo"}`, `[1]`: `[1]`,
		"\"```json\\n{'city': 'Oslo'}\\n```\"": `{"city": "Oslo"}`, `{"role": "assistant", "content": "{\"city\": 1}"}`: `{"city": 1}`,
	} {
		got, ok := Bare(json.RawMessage(in))
		require.True(t, ok, in)
		require.JSONEq(t, want, string(got))
	}
	for _, in := range []string{``, `7`, `"Oslo"`, `"It is {\"city\": 1}"`, `{"result": 1}`, `{"actions": []}`, `["a"]`, `[["a"]]`, `[]`, `[{"action": "a"}]`,
		`{"instant_response": "hi", "city": 1}`, `{"task_status": "Pending"}`, `{"role": "assistant", "tool_calls": [{"name": "a"}]}`} {
		_, ok := Bare(json.RawMessage(in))
		require.False(t, ok, in)
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{`{"actions": [[{"action": "a", "arguments": "{}"}]]}`, `"` + "```json\\n{}\\n```" + `"`, `[["a"]]`, `"{[}]"`, `{"result":`,
		`"<ImmediateNextActions><Action><Type>a</Type><Args><x>1</x></Args>"`, `{"role": "assistant", "tool_calls": [{"name": "a", "arguments": {}}]}`,
		`"<TaskStatus>Pending</TaskStatus>"`, `{"task_status": "Ongoing"}`, `"{\"actions\": [[{\"action\": \"a\", \"arguments\": {\"x\": \"<TaskStatus>Completed\"}}]]}"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if !json.Valid(b) {
			t.Skip()
		}
		if calls, err := ReadCalls(b, false); err == nil && len(calls.Groups) > 0 {
			require.True(t, calls.Calls, "only calls act: %s", b)
		}
		if v, ok := Bare(b); ok {
			require.True(t, json.Valid(v), "%s", b)
		}
		r, err := Read(b)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		acts := len(r.Groups) > 0 || r.Graph != nil
		require.False(t, len(r.Groups) > 0 && r.Graph != nil, "%s", b)
		require.Equal(t, acts, acts && r.Status == Ongoing, "a response with actions is Ongoing: %s", b)
		require.Contains(t, []Status{Ongoing, Pending, Completed}, r.Status, "%s", b)
		for _, g := range r.Groups {
			require.NotEmpty(t, g, "%s", b)
			for i := range g {
				_, err := json.Marshal(g[i])
				require.NoError(t, err, "%s", b)
			}
		}
	})
}
