package sleep_test

import (
	"encoding/json"
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

func TestExamine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ named, arg, says string }{
		"NoUnit":    {`{"duration": "5"}`, "duration", `"5" has no unit; write "5s" for seconds`},
		"NoTime":    {`{"duration": "soon"}`, "duration", `"soon" is no length of time`},
		"Negative":  {`{"duration": "-1s"}`, "duration", "between 0 and 366 days"},
		"TooLong":   {`{"seconds": 1e12}`, "seconds", "at most"},
		"Both":      {`{"duration": "1s", "seconds": 1}`, "seconds", "duration is given too"},
		"FromInput": {`{"value": 1}`, "", ""},
		"Good":      {`{"duration": "1m30s"}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := &workgraph.Node{ID: "n", Actor: "sleep"}
			require.NoError(t, json.Unmarshal([]byte(c.named), &n.Named))
			found := sleep.Spec().Examine(t.Context(), n)
			if c.says == "" {
				require.Empty(t, found)
				return
			}
			require.Len(t, found, 1)
			require.Equal(t, c.arg, found[0].Arg)
			require.Contains(t, found[0].Fault, c.says)
		})
	}
}
