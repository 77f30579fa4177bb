package journaltest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
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
		id := w.started(1)
		keep := func(last int, value string, until time.Time) journal.Write {
			return appendTo(id, last, 1, func(a *journal.Append) {
				a.Kept = []journal.KeptOutcome{{Key: key, Outcome: []byte(value), Until: until}}
			})
		}
		require.NoError(t, w.commit(keep(1, `{"values":[1]}`, end))[0].Err)
		got, until, err := w.another().KeptOutcome(t.Context(), ns, key, base)
		require.NoError(t, err)
		require.Equal(t, `{"values":[1]}`, string(got))
		require.Equal(t, end, until)
		none(ns, key, end)
		none("other", key, base)
		none(ns, []byte{0, 1}, base)
		// Two of one commit: the later one counts. One whose write is refused keeps nothing.
		res := w.commit(keep(2, `{"values":[3]}`, end.Add(time.Hour)), keep(3, `{"values":[2]}`, end.Add(time.Hour)))
		require.NoError(t, errors.Join(res[0].Err, res[1].Err))
		require.Error(t, w.commit(keep(7, `{"values":[9]}`, end.Add(time.Hour)))[0].Err)
		got, until, err = w.j.KeptOutcome(t.Context(), ns, key, end)
		require.NoError(t, err)
		require.Equal(t, `{"values":[2]}`, string(got))
		require.Equal(t, end.Add(time.Hour), until)
	})
	t.Run("Outcomes/AreSwept", func(t *testing.T) {
		w := open(t, d)
		keep := func(namespace string, kept ...journal.KeptOutcome) {
			id := w.started(1, func(s *journal.Start) { s.Run.Namespace = namespace })
			require.NoError(t, w.commit(appendTo(id, 1, 1, func(a *journal.Append) { a.Namespace, a.Kept = namespace, kept }))[0].Err)
		}
		for _, ns := range []string{ns, "other"} {
			var kept []journal.KeptOutcome
			for i := range 5 {
				kept = append(kept, journal.KeptOutcome{Key: fmt.Append(nil, i), Outcome: []byte("x"), Until: base.Add(time.Duration(i) * time.Minute)})
			}
			keep(ns, kept...)
		}
		keep("third", journal.KeptOutcome{Key: []byte("k"), Outcome: []byte("x"), Until: base.Add(time.Hour)})
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
