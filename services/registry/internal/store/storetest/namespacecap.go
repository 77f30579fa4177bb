package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/ledger"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// resumed looks for epics that a cap of their namespace has stopped, of which so many go on.
func (f *fixture) resumed(t *testing.T, want int) {
	t.Helper()
	n, err := f.ResumeCapped(f.ctx)
	require.NoError(t, err)
	require.Equal(t, want, n)
}

// namespaceCapCases are about epics that a cap of their namespace stops.
func namespaceCapCases() map[string]func(*testing.T, *fixture) {
	id := ledger.ID{Level: ledger.Namespace}
	limit := func(t *testing.T, f *fixture, tokens int64) {
		t.Helper()
		_, err := f.SetBudget(f.ctx, ns, accounting.Change{}, id, ledger.Caps{Tokens: &tokens}, ledger.Caps{})
		require.NoError(t, err)
	}
	// stopped is an epic that runs by itself, of whose two tasks one runs, and whose next call does not fit
	// under the cap.
	stopped := func(t *testing.T, f *fixture) epic.Task {
		t.Helper()
		limit(t, f, 100)
		e := f.epic(t, epic.Epic{})
		v := f.task(t, e.ID)
		f.task(t, e.ID)
		f.runEpic(t, e.ID, 1)
		f.begun(t, v.ID, "ra")
		require.Equal(t, ledger.Namespace, f.reserve(t, reservation("ra", 0, v.ID, 101, 1)).Refusal.Account.Level)
		got := f.epicNow(t, e.ID)
		require.Equal(t, []any{epic.Paused, epic.ReasonNamespaceCap}, []any{got.State, got.PauseReason})
		return v
	}
	return map[string]func(*testing.T, *fixture){
		"NamespaceCap/StopsTheEpicAndARaiseGoesOn": func(t *testing.T, f *fixture) {
			v := stopped(t, f)
			byHand := f.epic(t, epic.Epic{})
			f.task(t, byHand.ID)
			f.runEpic(t, byHand.ID, 1)
			for _, to := range []epic.State{epic.Active, epic.Paused} {
				if f.epicNow(t, byHand.ID).State != to {
					_, err := f.MoveEpic(f.ctx, ns, byHand.ID, accounting.Change{}, to, "")
					require.NoError(t, err)
				}
			}
			require.NotContains(t, f.orders(t, time.Millisecond), "ra", "the run stops at its call, and asks by itself")
			_, err := f.SettleClaim(f.ctx, ns, v.ID, "ra", accounting.Settlement{State: epic.TaskCompleted})
			require.NoError(t, err)
			require.Empty(t, f.orders(t, time.Millisecond), "nothing starts")

			limit(t, f, 1000)
			f.resumed(t, 1)
			got := f.epicNow(t, v.EpicID)
			require.Equal(t, []any{epic.Active, ""}, []any{got.State, got.PauseReason})
			require.Equal(t, epic.Paused, f.epicNow(t, byHand.ID).State, "somebody has paused it")
			testkit.Eventually(t, func() bool { return len(starts(f.orders(t, time.Millisecond))) == 1 }, "the next task starts")
		},
		"NamespaceCap/ARunThatFindsRoomGoesOnWithItsEpic": func(t *testing.T, f *fixture) {
			v := stopped(t, f)
			call := usage.Entry{Key: usage.Key{RunID: "ra", NodeID: "n"}, Kind: usage.Model, TaskID: v.ID, Provider: "p", Model: "m", InputTokens: 101}
			ask := func() accounting.Reserved {
				out, err := f.ReserveCalls(f.ctx, ns, ledgerLease, []accounting.Call{{Entry: call}}, true)
				require.NoError(t, err)
				return out[0]
			}
			require.NotNil(t, ask().Refusal)
			require.Equal(t, epic.Paused, f.epicNow(t, v.EpicID).State)
			call.InputTokens = 99 // there is room for less
			require.Nil(t, ask().Refusal)
			require.Equal(t, epic.Active, f.epicNow(t, v.EpicID).State)
		},
		"NamespaceCap/ACallThatWaitsForOthersStopsNoEpic": func(t *testing.T, f *fixture) {
			limit(t, f, 100)
			v := f.task(t, f.epic(t, epic.Epic{}).ID)
			f.runEpic(t, v.EpicID, 1)
			f.begun(t, v.ID, "ra")
			require.Nil(t, f.reserve(t, reservation("ra", 0, v.ID, 60, 1)).Refusal)
			require.NotNil(t, f.reserve(t, reservation("ra", 1, v.ID, 60, 1)).Refusal)
			require.Equal(t, epic.Active, f.epicNow(t, v.EpicID).State)
		},
		"NamespaceCap/AnEpicWhoseRunIsGoneGoesOnByItself": func(t *testing.T, f *fixture) {
			v := stopped(t, f)
			_, err := accounting.New(f.store).ResumeCapped(f.ctx)
			require.NoError(t, err)
			require.Equal(t, epic.Paused, f.epicNow(t, v.EpicID).State, "its run asks for room")
			f.move(t, v.ID, epic.TaskCanceled)
			n, err := accounting.New(f.store).ResumeCapped(f.ctx)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			require.Equal(t, epic.Active, f.epicNow(t, v.EpicID).State)
			testkit.Eventually(t, func() bool { return len(starts(f.orders(t, time.Millisecond))) == 1 }, "the next task starts")
		},
		"NamespaceCap/NothingGoesOnWhileTheCapIsSpent": func(t *testing.T, f *fixture) {
			stopped(t, f)
			_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry("rb", 0, "", 100, 0)})
			require.NoError(t, err)
			limit(t, f, f.account(t, ledger.Namespace, "").Spent.Tokens)
			f.resumed(t, 0)
			limit(t, f, f.account(t, ledger.Namespace, "").Spent.Tokens+1)
			f.resumed(t, 1)
		},
		"NamespaceCap/ManyEpicsGoOnInTurns": func(t *testing.T, f *fixture) {
			v := stopped(t, f)
			const more = 45 // more than two turns have
			for range more {
				e := f.epic(t, epic.Epic{})
				f.task(t, e.ID)
				f.runEpic(t, e.ID, 1)
				require.NotNil(t, f.reserve(t, accounting.Reservation{Key: usage.Key{RunID: "r", NodeID: e.ID}, EpicID: e.ID, Want: ledger.Want{Tokens: 101}}).Refusal)
			}
			limit(t, f, 1000)
			f.resumed(t, more+1)
			require.Equal(t, epic.Active, f.epicNow(t, v.EpicID).State)
		},
		"NamespaceCap/AnEpicThatDoesNotRunByItselfIsLeft": func(t *testing.T, f *fixture) {
			limit(t, f, 100)
			v := f.task(t, f.epic(t, epic.Epic{}).ID)
			f.begun(t, v.ID, "ra")
			require.NotNil(t, f.reserve(t, reservation("ra", 0, v.ID, 101, 1)).Refusal)
			require.NotEqual(t, epic.Paused, f.epicNow(t, v.EpicID).State)
		},
	}
}
