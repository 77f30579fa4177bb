package journaltest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func outcomeCases(t *testing.T, d Driver) {
	t.Run("Tools/TheLastListIsKept", func(t *testing.T) {
		w := open(t, d)
		got, err := w.j.KeptTools(t.Context(), "files")
		require.NoError(t, err)
		require.Nil(t, got)
		for _, list := range []string{`{"tools":[]}`, `{"tools":[{}]}`} {
			require.NoError(t, w.j.KeepTools(t.Context(), "files", []byte(list)))
			got, err = w.another().KeptTools(t.Context(), "files")
			require.NoError(t, err)
			require.Equal(t, list, string(got))
		}
		got, err = w.j.KeptTools(t.Context(), "other")
		require.NoError(t, err)
		require.Nil(t, got)
	})
	t.Run("Outcomes/AreKeptUntilTheirTime", func(t *testing.T) {
		w := open(t, d)
		key, end := []byte{0, 1, 255}, base.Add(time.Minute)
		none := func(ns string, key []byte, now time.Time) {
			t.Helper()
			got, _, err := w.j.KeptOutcome(t.Context(), ns, key, now)
			require.NoError(t, err)
			require.Nil(t, got)
		}
		none(ns, key, base)
		require.NoError(t, w.j.KeepOutcome(t.Context(), ns, key, []byte(`{"values":[1]}`), end))
		got, until, err := w.another().KeptOutcome(t.Context(), ns, key, base)
		require.NoError(t, err)
		require.Equal(t, `{"values":[1]}`, string(got))
		require.Equal(t, end, until)
		none(ns, key, end)
		none("other", key, base)
		none(ns, []byte{0, 1}, base)
		require.NoError(t, w.j.KeepOutcome(t.Context(), ns, key, []byte(`{"values":[2]}`), end.Add(time.Hour)))
		got, until, err = w.j.KeptOutcome(t.Context(), ns, key, end)
		require.NoError(t, err)
		require.Equal(t, `{"values":[2]}`, string(got))
		require.Equal(t, end.Add(time.Hour), until)
	})
	t.Run("Outcomes/AreSwept", func(t *testing.T) {
		w := open(t, d)
		for i := range 5 {
			for _, ns := range []string{ns, "other"} {
				require.NoError(t, w.j.KeepOutcome(t.Context(), ns, fmt.Append(nil, i), []byte("x"), base.Add(time.Duration(i)*time.Minute)))
			}
		}
		require.NoError(t, w.j.KeepOutcome(t.Context(), "third", []byte("k"), []byte("x"), base.Add(time.Hour)))
		n, err := w.j.SweepOutcomes(t.Context(), base, 2)
		require.NoError(t, err)
		require.Equal(t, 6, n, "the one of each that has expired, and two that are too many")
		for i := range 5 {
			got, _, err := w.j.KeptOutcome(t.Context(), ns, fmt.Append(nil, i), base.Add(-time.Hour))
			require.NoError(t, err)
			require.Equal(t, i >= 3, got != nil, "those stay that last longest: %d", i)
		}
		got, _, err := w.j.KeptOutcome(t.Context(), "third", []byte("k"), base)
		require.NoError(t, err)
		require.NotNil(t, got)
		n, err = w.j.SweepOutcomes(t.Context(), base, 2)
		require.NoError(t, err)
		require.Zero(t, n)
	})
}
