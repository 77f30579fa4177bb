package sqlstore

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func TestStoredResult(t *testing.T) {
	t.Parallel()
	t.Run("OnlyOutputIsKeptOnce", func(t *testing.T) {
		t.Parallel()
		for _, result := range []string{`1`, `"a}b"`, `{"a":{}}`, `[]`, `"\":"`, `null`} {
			stored := StoredResult(&journal.Outcome{Result: []byte(result), Outputs: []byte(`{"n1":` + result + `}`)})
			require.NotNil(t, stored)
			require.Empty(t, stored, result)
		}
		require.Nil(t, StoredResult(&journal.Outcome{Outputs: []byte(`{}`)}))
		require.Equal(t, `[1,2]`, string(StoredResult(&journal.Outcome{Result: []byte(`[1,2]`), Outputs: []byte(`{"a":1,"b":2}`)})))
	})
	t.Run("WhateverWasKeptIsRead", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			part := rapid.StringOfN(rapid.SampledFrom([]rune(`{}":,1a\`)), 0, 6, -1)
			o := journal.Outcome{Result: []byte(part.Draw(t, "result")), Outputs: []byte(part.Draw(t, "before") + part.Draw(t, "middle") + part.Draw(t, "after"))}
			if rapid.Bool().Draw(t, "only") {
				o.Outputs = []byte(`{"n":` + string(o.Result) + `}`)
			}
			got := readResult(StoredResult(&o), o.Outputs)
			require.Equal(t, string(o.Result), string(got))
			require.Equal(t, len(o.Result) == 0, got == nil)
		})
	})
}
