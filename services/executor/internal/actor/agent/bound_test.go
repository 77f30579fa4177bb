package agent

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/response"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/state"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

// What the model of the reasoner takes bounds what it is told.
func TestHistoryFollowsTheModel(t *testing.T) {
	t.Parallel()
	limits := func(profile, model string) (context, answer int64) {
		if profile == "small" && model == "m" {
			return 8000, 1000
		}
		return 0, 4096
	}
	// known is what the profile leaves of its context: without the answer, a tenth, and what is sent besides.
	const known, knownLess = -6300, -4500
	for name, c := range map[string]struct {
		of     string
		tokens int64
	}{
		"Unknown":        {`{"reasoner_args": {"profile": "other"}, "history": {"summarize": {}}}`, 65536},
		"Known":          {`{"reasoner_args": {"profile": "small", "model": "m"}, "history": {"summarize": {}}}`, known},
		"AnswerIsGiven":  {`{"reasoner_args": {"profile": "small", "model": "m", "max_output_tokens": 3000}}`, knownLess},
		"GivenIsLess":    {`{"reasoner_args": {"profile": "small", "model": "m"}, "history": {"tokens": 2000}}`, 2000},
		"GivenIsTooMuch": {`{"reasoner_args": {"profile": "small", "model": "m"}, "history": {"tokens": 20000, "summarize": {"above": 10000, "keep": 5000}}}`, known},
		"NoModel":        {`{"reasoner": "r", "reasoner_args": {"profile": "small", "model": "m"}}`, 65536},
		"AlmostNothing":  {`{"reasoner_args": {"profile": "small", "model": "m", "max_output_tokens": 8000}}`, minTokens},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var own map[string]json.RawMessage
			require.NoError(t, json.Unmarshal([]byte(c.of), &own))
			own["actions"] = json.RawMessage(`{"a": {}}`)
			d, err := ownDefinition(t.Context(), own)
			require.NoError(t, err)
			d.bound(limits)
			require.NoError(t, d.check(t.Context()), "a definition that is filled in is one")
			want := c.tokens
			if want < 0 {
				want = -want - d.fixed()
			}
			require.Equal(t, want, d.History.Tokens)
			if s := d.History.Summarize; s != nil && name == "GivenIsTooMuch" {
				require.Equal(t, []int64{want, want / 2}, []int64{s.Above, s.Keep})
			} else if s != nil {
				require.Equal(t, []int64{want / 4 * 3, want / 4 * 3 / 4}, []int64{s.Above, s.Keep})
			}
		})
	}
	t.Run("Tools/AreSentBesides", func(t *testing.T) {
		t.Parallel()
		d, err := ownDefinition(t.Context(), map[string]json.RawMessage{"form": json.RawMessage(`"tools"`), "actions": json.RawMessage(`{"a": {"description": "` + strings.Repeat("x", 4000) + `"}}`)})
		require.NoError(t, err)
		require.Greater(t, d.fixed(), int64(1000))
	})
}

// What a model, a person or a client says is kept, whatever it is: a round whose actions were done must not
// fail because it cannot be kept.
func FuzzItems(f *testing.F) {
	for _, unit := range []string{`"`, "\x01", "ä"} {
		f.Add(unit, uint16(40_000))
		f.Add(unit, uint16(3))
	}
	f.Fuzz(func(t *testing.T, unit string, times uint16) {
		text := strings.Repeat(unit, min(int(times), (1<<20)/max(1, len(unit))))
		quoted, err := actor.Encode(text)
		require.NoError(t, err)
		said := &response.Response{InstantResponse: text, Description: text, DescriptionExtended: text, Status: response.Ongoing}
		r := &round{d: &definition{policy: defaults(), Form: formTools, History: history{Tokens: defaultTokens}}, number: 1}
		item := &state.Item{Brief: stateOf(said, text), ReasonerInput: text, RawResponse: quoted, Answer: quoted, Refused: text,
			Response: state.Response{InstantResponse: text, Graph: quoted,
				NextActions:      slices.Repeat([][]response.Action{{{Type: text, Call: text, Memory: text, Arguments: map[string]json.RawMessage{"a": quoted}}}}, 3),
				InstantLearnings: slices.Repeat([]response.Learning{{ID: text, Content: text}}, 3)},
			ActionResults: slices.Repeat(state.Results{{Action: "a", OK: quoted}, {Group: state.Results{{Action: "b", OK: quoted}}}, {Action: "c", Error: &state.Failure{Reason: "NO", Message: "m"}}}, 4),
			Given:         state.Given(quoted)}
		for _, form := range []string{formTools, formPrompt} {
			r.d.Form = form
			items, err := r.items(item, said)
			require.NoError(t, err)
			all := 0
			for i := range items {
				require.NoError(t, thread.CheckItem(&items[i]))
				all += len(items[i].Body) + len(items[i].Brief)
			}
			require.LessOrEqual(t, all, maxAppend+thread.MaxBrief)
			var kept state.Item
			require.NoError(t, json.Unmarshal(items[len(items)-1].Body, &kept))
			require.Len(t, kept.ActionResults, 12, "no result is lost, and each says if it was cut")
		}
		begun, err := stateItem(&state.Item{Brief: item.Brief, Response: state.Response{InstantResponse: text}}, maxState)
		require.NoError(t, err)
		require.NoError(t, thread.CheckItem(&begun))
	})
}
