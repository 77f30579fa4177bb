package workgraph

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMapUntil(t *testing.T) {
	t.Parallel()
	mapped := func(until string, effect Effect) *Graph {
		g := nodes(PassDown{}, "M").Graph()
		g.Nodes[0].Map, g.Nodes[0].Effect = &Map{Over: "[10, 20, 30, 40]", MaxParallel: 3, OnItemError: ContinueItems, Until: until}, effect
		g.Nodes[0].Retry.MaxAttempts = 1
		return g
	}
	item := func(n int) Ref { return Ref{Node: "M", Visit: 1, Item: n} }
	gives := func(v string) *Outcome { return &Outcome{Values: one(v)} }
	// replayed compares the state with the one that its journal makes, and with its snapshot.
	replayed := func(t *testing.T, m *machine) {
		t.Helper()
		want, err := m.s.Snapshot()
		require.NoError(t, err)
		again, err := Replay(t.Context(), m.p, "run", m.events)
		require.NoError(t, err)
		got, err := again.Snapshot()
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
	}
	t.Run("TheFirstThatSatisfies/CancelsTheOthers", func(t *testing.T) {
		m := newMachine(t, compile(t, mapped("result.score >= 2.5 && item < 30", Idempotent)))
		m.begin()
		m.endRef(item(1), gives(`{"score": 1}`), nil)
		require.Contains(t, m.open, item(4), "one that is not enough lets the next begin")
		m.endRef(item(2), gives(`{"score": 3}`), nil)
		require.ElementsMatch(t, []Ref{item(3), item(4)}, m.cancels)
		require.Equal(t, VisitCompleted, m.status("M"))
		require.Nil(t, m.s.End(), "calls that were asked to stop are waited for")
		replayed(t, m)
		m.endRef(item(3), gives(`{"score": 9}`), nil)
		m.endRef(item(4), nil, Errorf(NotPerformed, ReasonCanceled, ""))
		require.Equal(t, StatusCompleted, m.s.End().Status)
		require.JSONEq(t, `[{"ok":{"score":1}},{"ok":{"score":3}},{"error":{"type":"NOT_PERFORMED","reason":"CANCELED"}},{"error":{"type":"NOT_PERFORMED","reason":"CANCELED"}}]`, string(m.s.End().Result))
		replayed(t, m)
	})
	t.Run("AnyItem/MayBeTheLast", func(t *testing.T) {
		m := newMachine(t, compile(t, mapped("result > 2", Idempotent)))
		m.begin()
		for n := 1; n <= 4; n++ {
			m.endRef(item(n), gives("1"), nil)
		}
		require.Equal(t, StatusCompleted, m.s.End().Status)
		require.Empty(t, m.cancels)
	})
	t.Run("Children/OfTheOthersAreCanceled", func(t *testing.T) {
		m := newMachine(t, compile(t, mapped("result == 7", Idempotent)))
		m.begin()
		for n, id := range []string{"one", "two", "three"} {
			m.endRef(item(n+1), &Outcome{Wait: &Wait{Children: &Children{AsResult: true, Runs: []Child{{ID: id, Ref: RefSelf}}}}}, nil)
		}
		m.do(ChildEnded{Ref: item(2), Slot: ChildSlot{RunID: "two", Status: StatusCompleted, Result: js(7)}, Now: m.now})
		require.ElementsMatch(t, []string{"one", "three"}, m.fx.CancelChildren)
		require.Equal(t, StatusCompleted, m.s.End().Status)
		replayed(t, m)
	})
	t.Run("AFailedItem/IsNotAsked", func(t *testing.T) {
		m := newMachine(t, compile(t, mapped("true", Idempotent)))
		m.begin()
		m.endRef(item(1), nil, Errorf(Permanent, "ODD", ""))
		require.Nil(t, m.s.End())
		m.endRef(item(2), gives("1"), nil)
		require.Equal(t, VisitCompleted, m.status("M"))
	})
	t.Run("AnUnsafeCall/RunsToItsEnd", func(t *testing.T) {
		m := newMachine(t, compile(t, mapped("true", Unsafe)))
		m.begin()
		for n := 1; n <= 3; n++ {
			m.do(Attempt{Ref: item(n), Attempt: 1, Now: m.now})
		}
		m.endRef(item(2), gives("1"), nil)
		require.Empty(t, m.cancels)
		require.Nil(t, m.s.End())
		m.endRef(item(1), gives("1"), nil)
		m.endRef(item(3), gives("1"), nil)
		require.Equal(t, StatusCompleted, m.s.End().Status)
		replayed(t, m)
	})
	t.Run("AMissingField/IsNotEnough", func(t *testing.T) {
		m := newMachine(t, compile(t, mapped("result.score > 1", Idempotent)))
		m.begin()
		m.endRef(item(1), gives("{}"), nil)
		require.Equal(t, VisitRunning, m.status("M"))
	})
	t.Run("AFaultyCondition/FailsTheVisit", func(t *testing.T) {
		m := newMachine(t, compile(t, mapped("result.score > 1", Idempotent)))
		m.begin()
		m.endRef(item(1), gives(`{"score": "high"}`), nil)
		require.Equal(t, VisitFailed, m.status("M"))
		require.Len(t, m.cancels, 2)
	})
	t.Run("AConditionThatIsNone/IsRefused", func(t *testing.T) {
		for _, until := range []string{"1 + 1", "result >", "nodes.x.result"} {
			_, err := Compile(t.Context(), nodesOf("x", mapped(until, Idempotent)), nil)
			require.ErrorContains(t, err, "map.until")
		}
	})
}
