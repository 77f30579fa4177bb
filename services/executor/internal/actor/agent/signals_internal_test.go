package agent

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// FuzzReply fills arguments of a model into replies.
func FuzzReply(f *testing.F) {
	f.Add("Routing task to plan-execute workflow: {task}", `"onboard Acme"`)
	f.Add("{task}{task}", `{"a": [1, null]}`)
	f.Add("{{task}}", `"{task}"`)
	f.Add(strings.Repeat("{task}", 300), `"`+strings.Repeat("ä", 200)+`"`)
	f.Fuzz(func(t *testing.T, reply, argument string) {
		if !json.Valid([]byte(argument)) {
			t.Skip()
		}
		s := &signal{Reply: reply}
		got := s.reply(map[string]json.RawMessage{"task": json.RawMessage(argument)}, 4096)
		require.NotEmpty(t, got)
		require.LessOrEqual(t, len(got), 4096+len("…"))
		if utf8.ValidString(reply) && utf8.ValidString(argument) {
			require.True(t, utf8.ValidString(got), "%q", got)
		}
		if !replied.MatchString(reply) && strings.TrimSpace(reply) != "" && len(reply) <= 4096 {
			require.Equal(t, strings.TrimSpace(reply), got)
		}
	})
}
