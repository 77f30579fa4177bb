package agent

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
