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
