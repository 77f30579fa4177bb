package response

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/plan/plantest"
)

// spoke is what a text says when it comes in these pieces.
func spoke(pieces ...string) string {
	var s Speech
	var out strings.Builder
	for _, p := range pieces {
		out.WriteString(s.Write(p))
	}
	return out.String()
}

func TestSpeech(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"XML":               {`<StructuredResponse><InstantResponse> Grüße an <b>alle</b> </InstantResponse><TaskStatus>Completed</TaskStatus></StructuredResponse>`, "Grüße an <b>alle</b>"},
		"XML/AfterWords":    {"Let me [see] {here}.\n```xml\n<structuredresponse>\n<INSTANTRESPONSE>\n  hi\n\n there\n</InstantResponse>\n```", "hi\n\n there"},
		"XML/Last":          {`<ImmediateNextActions><Action><Type>a</Type><Args>{"x": "<InstantResponse>no</InstantResponse>"}</Args></Action></ImmediateNextActions><InstantResponse>yes</InstantResponse>`, "yes"},
		"XML/Quoted":        {`<TaskStatusDescription>an <InstantResponse>no</InstantResponse></TaskStatusDescription><InstantResponse>yes`, "yes"},
		"XML/References":    {`<InstantResponse>a &lt;b&gt; &amp;amp; &#228; &nope; AT&T, R&D &</InstantResponse>`, "a <b> &amp; ä &nope; AT&T, R&D &"},
		"XML/CDATA":         {`<InstantResponse>x <![CDATA[<TaskStatus> ]] ]]] &amp; <b>]]> y</InstantResponse>`, "x <TaskStatus> ]] ]]] &amp; <b> y"},
		"XML/CDATAUnclosed": {`<InstantResponse><![CDATA[Hello</InstantResponse><TaskStatus>Completed</TaskStatus>`, "Hello"},
		"XML/CDATAOutside":  {`<Args><![CDATA[</Args><InstantResponse>no</InstantResponse>]]></Args><InstantResponse>yes</InstantResponse>`, "yes"},
		"XML/QuotesATag":    {`<InstantResponse>I wrote <TaskStatus>Ongoing</TaskStatus> &amp; more.</InstantResponse>`, "I wrote <TaskStatus>Ongoing</TaskStatus> & more."},
		"XML/EndMissing":    {`<InstantResponse>Hello <TaskStatus>Completed</TaskStatus></StructuredResponse>`, "Hello"},
		"XML/Twice":         {`<InstantResponse>one </InstantResponse><InstantResponse></InstantResponse><InstantResponse/><InstantResponse>two</InstantResponse>`, "one\ntwo"},
		"XML/TwiceOpen":     {`<InstantResponse>one <TaskStatus>x<InstantResponse>two</InstantResponse>`, "one\ntwo"},
		"XML/LooseBrackets": {`<InstantResponse>1 < 2 <<3> </ b> <!DOCTYPE></InstantResponse >`, "1 < 2 <<3> </ b> <!DOCTYPE>"},
		"XML/Attributes":    {`<InstantResponse lang="a>b" x='1'>hi</InstantResponse><InstantResponse 0>no</InstantResponse>`, "hi"},
		"XML/NoTag":         {`<Instant><InstantResponses>x</InstantResponses>`, ""},
		"XML/NothingSaid":   {`<ImmediateNextActions><Action><Type>a</Type></Action></ImmediateNextActions>`, ""},
		"XML/Space":         {"<InstantResponse>\u00a0\u2003a\u2003b\u2003</InstantResponse>", "a\u2003b"},
		"JSON":              {`{"actions": [[{"action": "a", "arguments": {"result": "no", "instant_response": "no"}}]], "instant_response": "Up\u00e4 \"x\"\n\ud83d\ude00\ud83d!", "result": "no"}`, "Upä \"x\"\n😀\ufffd!"},
		"JSON/Result":       {"Here it is:\n```json\n{\"result\": \"done, [x] {y}\"}\n```", "done, [x] {y}"},
		"JSON/ResultObject": {`{"result": {"result": "no"}, "task_status": "Completed"}`, ""},
		"JSON/Python":       {`{'result': 'it\'s "fine"', 'x': None}`, `it's "fine"`},
		"JSON/Later":        {`{"thought": "no"} then {"result": "yes"}`, "yes"},
		"JSON/Empty":        {`{"instant_response": "", "result": "yes"}`, "yes"},
		"JSON/Actions":      {`[{"result": "no"}]`, ""},
		"Text":              {"All is well, see [1] and {x}.", ""},
		"Nothing":           {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, spoke(c.text))
			for i := range len(c.text) {
				if utf8.RuneStart(c.text[i]) {
					require.Equal(t, c.want, spoke(c.text[:i], c.text[i:]), "cut at %d", i)
				}
			}
			require.Equal(t, c.want, spoke(strings.Split(c.text, "")...), "letter by letter")
			if r, err := Read(quoted(c.text)); err == nil && c.want != "" && name != "JSON/Later" {
				require.Equal(t, c.want, r.InstantResponse, "as it is read when it is whole")
			}
		})
	}
	t.Run("Incremental/NothingIsHeldLongerThanNeeded", func(t *testing.T) {
		t.Parallel()
		var s Speech
		var got []string
		for _, p := range []string{"<Instant", "Response>", "He", "llo ", "you &am", "p; me", " <", "b", ">", "<Task", "Status", "> x", "</InstantResponse>"} {
			got = append(got, s.Write(p))
		}
		require.Equal(t, []string{"", "", "He", "llo", " you", " & me", "", "", " <b>", "", "", "", "<TaskStatus> x"}, got)
	})
	t.Run("Bounds", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, spoke("<InstantResponse>", strings.Repeat("a", MaxBytes)))
		require.Equal(t, "a", spoke("<InstantResponse>a<TaskStatus>", strings.Repeat("b", maxHeld+1), "</InstantResponse>"))
		require.Empty(t, spoke("<InstantResponse ", strings.Repeat("b", maxHeld+1), ">x</InstantResponse>"))
	})
	t.Run("HostileText/IsReadInLinearTime", func(t *testing.T) {
		t.Parallel()
		for name, shape := range plantest.HostileShapes() {
			for _, before := range []string{"<InstantResponse>", "<InstantResponse><TaskStatus>", "<InstantResponse><![CDATA[</TaskStatus>", `{"result": "`} {
				begin := time.Now()
				var s Speech
				s.Write(before)
				for rest := shape(4 << 10); rest != ""; {
					n := min(7, len(rest))
					s.Write(rest[:n])
					rest = rest[n:]
				}
				require.Less(t, time.Since(begin), 2*time.Second, name)
			}
		}
	})
}

// FuzzSpeech looks for a text that says something else when it comes in other pieces, or than it says when it
// is read as a whole.
func FuzzSpeech(f *testing.F) {
	for _, s := range []string{`<InstantResponse>a &amp; <b></InstantResponse>`, `{"result": "\u00e4"}`, `<InstantResponse><![CDATA[x]]></InstantResponse>`,
		`<TaskStatus>Ongoing<InstantResponse>a<NewTask>b</InstantResponse>`, `<InstantResponse>a<NewTask>b<InstantResponse>c`} {
		f.Add(s, uint8(3))
	}
	f.Fuzz(func(t *testing.T, text string, size uint8) {
		if !utf8.ValidString(text) {
			t.Skip()
		}
		whole := spoke(text)
		require.LessOrEqual(t, len(whole), 2*len(text))
		var pieces []string
		for rest := []rune(text); len(rest) > 0; {
			n := min(int(size%7)+1, len(rest))
			pieces = append(pieces, string(rest[:n]))
			rest = rest[n:]
		}
		require.Equal(t, whole, spoke(pieces...))
		if strings.ContainsAny(text, `{[="'`) || len(text) > maxHeld {
			return // JSON, CDATA and attributes that are not closed are read otherwise when they are whole
		}
		if raw, err := json.Marshal(text); err == nil {
			if r, err := Read(raw); err == nil && r.Result == nil {
				require.True(t, strings.HasPrefix(r.InstantResponse, whole), "%q said %q and %q", text, whole, r.InstantResponse)
			}
		}
	})
}
