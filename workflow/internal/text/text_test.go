package text_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/workflow/internal/text"
)

func TestClip(t *testing.T) {
	t.Parallel()
	require.Equal(t, "abc", text.Clip("abc", 3))
	require.Equal(t, "ab…", text.Clip("abc", 2))
	require.Equal(t, "a…", text.Clip("aü", 2), "no half of a letter is left")
}

func TestOf(t *testing.T) {
	t.Parallel()
	require.Equal(t, "abc", text.Of(json.RawMessage(`"abc"`)))
	require.Equal(t, `{"a":1}`, text.Of(json.RawMessage(`{"a":1}`)))
}
