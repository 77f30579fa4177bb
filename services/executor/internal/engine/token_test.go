package engine_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestTaskToken(t *testing.T) {
	t.Parallel()
	good := engine.TaskToken{Namespace: ns, RunID: "run_1", Node: "review#2/ask", Visit: 3, Item: 4, Attempt: 2}
	t.Run("Token/RoundTrip", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			want := engine.TaskToken{Namespace: ns, RunID: rapid.StringN(1, 40, 60).Draw(t, "run"), Node: rapid.StringN(1, 60, 100).Draw(t, "node"),
				Visit: rapid.IntRange(1, 1<<31-1).Draw(t, "visit"), Item: rapid.IntRange(0, 10_000).Draw(t, "item"), Attempt: rapid.IntRange(1, 100).Draw(t, "attempt")}
			got, err := engine.ParseTaskToken(ns, want.String())
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.Equal(t, workgraph.Ref{Node: want.Node, Visit: want.Visit, Item: want.Item}, got.Ref())
		})
	})
	for name, s := range map[string]string{
		"Empty": "", "NoVersion": strings.TrimPrefix(good.String(), "t1."), "OtherVersion": "t2." + strings.TrimPrefix(good.String(), "t1."),
		"Cut": good.String()[:20], "Padded": good.String() + "=", "NotBase64": "t1.***", "NotJSON": "t1.eHg", "TooLong": "t1." + strings.Repeat("A", 2000),
		"NoNode":      engine.TaskToken{Namespace: ns, RunID: "r", Visit: 1, Attempt: 1}.String(),
		"NoAttempt":   engine.TaskToken{Namespace: ns, RunID: "r", Node: "n", Visit: 1}.String(),
		"OtherTenant": engine.TaskToken{Namespace: "other", RunID: "r", Node: "n", Visit: 1, Attempt: 1}.String(),
	} {
		t.Run("Token/Refused"+name, func(t *testing.T) {
			t.Parallel()
			_, err := engine.ParseTaskToken(ns, s)
			require.Equal(t, engine.ReasonTaskToken, errs.ReasonOf(err), "%q", s)
			require.True(t, errs.Is(err, errs.InvalidArgument))
		})
	}
}

func FuzzTaskToken(f *testing.F) {
	f.Add(engine.TaskToken{Namespace: ns, RunID: "run_1", Node: "n", Visit: 1, Attempt: 1}.String())
	f.Add("t1.")
	f.Add("t1.e30")
	f.Fuzz(func(t *testing.T, s string) {
		tok, err := engine.ParseTaskToken(ns, s)
		if err != nil {
			require.Equal(t, engine.ReasonTaskToken, errs.ReasonOf(err))
			return
		}
		require.Equal(t, s, tok.String())
		require.Equal(t, ns, tok.Namespace)
	})
}
