package sleep_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor/actortest"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/sleep"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestSleep(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		named string
		after time.Duration
	}{
		"Wait/Duration": {`{"duration": "1m30s"}`, 90 * time.Second},
		"Wait/Seconds":  {`{"seconds": 0.25}`, 250 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := actortest.Call(t, sleep.Spec(), tt.named)
			require.NoError(t, err)
			require.Equal(t, workgraph.Duration(tt.after), out.Wait.Timer.After)
		})
	}
	t.Run("Wait/UntilWithAValue", func(t *testing.T) {
		t.Parallel()
		at := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
		out, err := actortest.Call(t, sleep.Spec(), `{"until": "`+at.Format(time.RFC3339)+`", "value": {"a": 1}}`)
		require.NoError(t, err)
		require.True(t, at.Equal(out.Wait.Timer.Until))
		require.JSONEq(t, `{"a": 1}`, string(out.Values[0]))
	})
	t.Run("Wait/NoTimeIsNoTimer", func(t *testing.T) {
		t.Parallel()
		out, err := actortest.Call(t, sleep.Spec(), `{"duration": "0s"}`)
		require.NoError(t, err)
		require.Nil(t, out.Wait)
	})
	for name, named := range map[string]string{
		"Refuse/Nothing": `{}`, "Refuse/Two": `{"seconds": 1, "duration": "1s"}`, "Refuse/Negative": `{"duration": "-1s"}`,
		"Refuse/TooLong": `{"seconds": 1e12}`, "Refuse/NoDuration": `{"duration": "soon"}`, "Refuse/FarAway": `{"until": "2999-01-01T00:00:00Z"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, "ARGUMENTS_INVALID", actortest.Fails(t, sleep.Spec(), named).Reason)
		})
	}
}
