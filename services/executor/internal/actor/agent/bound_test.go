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
	for name, c := range map[string]struct {
		of                  string
		tokens, above, keep int64
	}{
		"Unknown":        {`{"reasoner_args": {"profile": "other"}, "history": {"summarize": {}}}`, 65536, 49152, 12288},
		"Known":          {`{"reasoner_args": {"profile": "small", "model": "m"}, "history": {"summarize": {}}}`, 7000, 5250, 1312},
		"AnswerIsGiven":  {`{"reasoner_args": {"profile": "small", "model": "m", "max_output_tokens": 3000}}`, 5000, 0, 0},
		"GivenIsLess":    {`{"reasoner_args": {"profile": "small", "model": "m"}, "history": {"tokens": 2000}}`, 2000, 0, 0},
		"GivenIsTooMuch": {`{"reasoner_args": {"profile": "small", "model": "m"}, "history": {"tokens": 20000, "summarize": {"above": 10000, "keep": 5000}}}`, 7000, 7000, 3500},
		"NoModel":        {`{"reasoner": "r", "reasoner_args": {"profile": "small", "model": "m"}}`, 65536, 0, 0},
		"AlmostNothing":  {`{"reasoner_args": {"profile": "small", "model": "m", "max_output_tokens": 8000}}`, minTokens, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var own map[string]json.RawMessage
			require.NoError(t, json.Unmarshal([]byte(c.of), &own))
			own["actions"] = json.RawMessage(`{"a": {}}`)
			d, err := ownDefinition(t.Context(), own)
			require.NoError(t, err)
			fixed := d.fixed()
			d.bound(limits)
			require.NoError(t, d.check(t.Context()), "a definition that is filled in is one")
			want := c.tokens
			if want < 8000 && want != 2000 && want != minTokens {
				want -= fixed
			}
			require.Equal(t, want, d.History.Tokens)
			if c.above == 0 {
				return
			}
			require.LessOrEqual(t, d.History.Summarize.Above, d.History.Tokens)
			require.InDelta(t, c.above, d.History.Summarize.Above, float64(fixed))
			require.InDelta(t, c.keep, d.History.Summarize.Keep, float64(fixed))
		})
	}
	t.Run("Tools/AreSentBesides", func(t *testing.T) {
		t.Parallel()
		d, err := ownDefinition(t.Context(), map[string]json.RawMessage{"form": json.RawMessage(`"tools"`), "actions": json.RawMessage(`{"a": {"description": "` + strings.Repeat("x", 4000) + `"}}`)})
		require.NoError(t, err)
		require.Greater(t, d.fixed(), int64(1000))
	})
}
