package limit

import (
	"testing"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"

	"github.com/stretchr/testify/require"
)

// TestQuotaPlaceIsUsedOnce releases the place of a run, whose start is durable, while a request to the store
// is under way.
func TestQuotaPlaceIsUsedOnce(t *testing.T) {
	t.Parallel()
	l := New(nil, nil)
	k := Key{Namespace: "n", Name: Namespace}
	admit := func() *sched.Pass {
		pass := &sched.Pass{}
		w := &waiter{seniority: time.Now(), ready: func(p sched.Pass) { *pass = p }, refuse: func() {}}
		l.admit(k, w)
		return pass
	}
	answer := func(g Grant) {
		for _, f := range l.places[k].granted(l, g, time.Now(), time.Now()) {
			f()
		}
	}
	ask := func() Ask {
		a, ok := l.places[k].ask(time.Now())
		require.True(t, ok)
		return a
	}
	first := admit()
	require.Equal(t, 1, ask().Want)
	answer(Grant{N: 1})
	require.NotNil(t, first.Release)

	l.places[k].due = time.Time{}
	require.Equal(t, 1, ask().Held)
	first.Release()
	second := admit()
	answer(Grant{})
	require.Nil(t, second.Release, "the second run was not asked for")

	a := ask()
	require.Zero(t, a.Held)
	require.Equal(t, 1, a.Want)
	answer(Grant{N: 1})
	require.NotNil(t, second.Release)
	second.Release()
	require.Zero(t, ask().Held, "the store hears of it")
}
