package cli

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
)

func TestReadText(t *testing.T) {
	for name, c := range map[string]struct{ in, reason string }{
		"Text":   {"A -> B, \u00e9", ""},
		"Binary": {"A -> \xc3(", "INPUT_NOT_UTF8"},
	} {
		t.Run("ReadText/"+name, func(t *testing.T) {
			e := &env{ctx: t.Context(), io: IO{In: strings.NewReader(c.in)}}
			text, err := e.readText("-")
			if c.reason != "" {
				require.Equal(t, c.reason, errs.ReasonOf(err))
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.in, text)
		})
	}
}

func TestMessageText(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"role": "user", "content": "hi"}`: "user: hi",
		`{"role": "assistant", "content": "on it", "tool_calls": [{"name": "sum", "arguments": {"a": 1}}, {"name": "now"}]}`: `agent: on it → sum {"a": 1} → now `,
		`{"role": "tool", "tool_call_id": "c", "content": "3"}`:                                                              "result: 3",
		`{"role": "tool", "content": "no", "is_error": true}`:                                                                "error: no",
		`{"text": "no message"}`: `{"text": "no message"}`, `7`: "7",
	} {
		require.Equal(t, want, messageText([]byte(in)))
	}
}
