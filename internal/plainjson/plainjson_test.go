package plainjson_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/plainjson"
)

func TestMarshal(t *testing.T) {
	t.Parallel()
	t.Run("Markup/StaysAsItIs", func(t *testing.T) {
		b, err := plainjson.Marshal(map[string]string{"a": "<b> & \"c\"\n"})
		require.NoError(t, err)
		require.Equal(t, `{"a":"<b> & \"c\"\n"}`, string(b))
	})
	t.Run("Error/OfWhatHasNoForm", func(t *testing.T) {
		_, err := plainjson.Marshal(func() {})
		require.Error(t, err)
	})
}
