package storetest

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/ledger"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

const ledgerLease = time.Hour

// reservation asks for tokens and money of a call of a task.
func reservation(run string, call int, taskID string, tokens, nano int64) accounting.Reservation {
	e := entry(run, call, taskID, 0, 0)
	return accounting.Reservation{Key: e.Key, TaskID: taskID, Provider: e.Provider, Model: e.Model, Want: ledger.Want{Tokens: tokens, NanoUSD: &nano}}
}

// reserve asks for one reservation.
func (f *fixture) reserve(t testing.TB, r accounting.Reservation) accounting.Reserved {
	t.Helper()
	out, err := f.Reserve(f.ctx, ns, ledgerLease, []accounting.Reservation{r})
	require.NoError(t, err)
	return out[0]
}

func (f *fixture) account(t testing.TB, level ledger.Level, name string) ledger.Account {
	t.Helper()
	a, err := f.Account(f.ctx, ns, ledger.ID{Level: level, Name: name})
	require.NoError(t, err)
	return a
}

// balanced checks that the ledger says what entries and reservations say.
func (f *fixture) balanced(t testing.TB) {
	t.Helper()
	in, ok := f.store.(store.Inspector)
	require.True(t, ok)
	for _, s := range []store.Suspicion{store.SuspectAccounts, store.SuspectRunAccounts, store.SuspectReserved, store.SuspectTaskTotals, store.SuspectEpicTotals, store.SuspectNamespaceTotals} {
		found, err := in.Suspects(f.ctx, s, 0, 10)
		require.NoError(t, err)
		require.Empty(t, found, s)
	}
}

func ledgerCases() map[string]func(*testing.T, *fixture) {
	out := map[string]func(*testing.T, *fixture){
		"Ledger/ExactlyAtTheCapIsGrantedAndOverItRefused": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{BudgetTokens: ptr(int64(100))})
			v := f.task(t, e.ID)
			require.Nil(t, f.reserve(t, reservation("run", 0, v.ID, 60, 1)).Refusal)
			no := f.reserve(t, reservation("run", 1, v.ID, 41, 1)).Refusal
			require.Equal(t, &ledger.Refusal{Account: ledger.ID{Level: ledger.Epic, Name: e.ID}, Cap: 100, Reserved: 60, Asks: 41}, no)
			require.ErrorContains(t, no.Err(), "a call of up to 41 tokens does not fit: epic "+e.ID+" has spent 0 and reserved 60 of 100")
			require.Nil(t, f.reserve(t, reservation("run", 1, v.ID, 40, 1)).Refusal)
			require.NotNil(t, f.reserve(t, reservation("run", 2, v.ID, 1, 1)).Refusal)
			require.Equal(t, ledger.Amount{Tokens: 100, NanoUSD: 2}, f.account(t, ledger.Epic, e.ID).Reserved)
			f.balanced(t)
		},
		"Ledger/StartsAndCallsAgreeAboutTheCap": func(t *testing.T, f *fixture) {
			const limit = 10
			for spent, tc := range map[int64]struct{ starts, oneMore, twoMore bool }{
				limit - 1: {starts: true, oneMore: true},
				limit:     {},
				limit + 1: {},
			} {
				e := f.epic(t, epic.Epic{BudgetTokens: ptr(int64(limit))})
				byRun, byHand := f.task(t, e.ID), f.task(t, e.ID)
				run := fmt.Sprintf("spent %d", spent)
				_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry(run, 0, byRun.ID, spent, 0)})
				require.NoError(t, err)
				_, _, byRunErr := f.ClaimTask(f.ctx, ns, byRun.ID, run, time.Hour)
				_, byHandErr := f.MoveTask(f.ctx, ns, byHand.ID, accounting.Change{}, epic.TaskRunning, accounting.Outcome{})
				for _, err := range []error{byRunErr, byHandErr} {
					if tc.starts {
						require.NoError(t, err, run)
					} else {
						requireError(t, err, errs.FailedPrecondition, epic.ReasonBudgetExhausted)
					}
				}
				require.Equal(t, tc.twoMore, f.reserve(t, reservation(run, 2, byRun.ID, 2, 0)).Refusal == nil, run)
				require.Equal(t, tc.oneMore, f.reserve(t, reservation(run, 1, byRun.ID, 1, 0)).Refusal == nil, run)
				f.balanced(t)
			}
		},
		"Ledger/NothingMayBeSpentUnderACapOfZero": func(t *testing.T, f *fixture) {
			v := f.task(t, f.epic(t, epic.Epic{BudgetNanoUSD: ptr(int64(0))}).ID)
			require.NotNil(t, f.reserve(t, reservation("run", 0, v.ID, 1, 1)).Refusal)
			require.Nil(t, f.reserve(t, reservation("run", 0, v.ID, 1, 0)).Refusal, "what costs nothing")
		},
		"Ledger/WithoutCapsNothingIsWritten": func(t *testing.T, f *fixture) {
			v := f.task(t, f.epic(t, epic.Epic{}).ID)
			r := reservation("run", 0, v.ID, 1<<40, 1<<40)
			require.Nil(t, f.reserve(t, r).Refusal)
			require.NoError(t, f.store.View(f.ctx, ns, func(ctx context.Context, tx store.Reader) error {
				r.Key.Source = usage.Executor
				held, err := tx.Reservations(ctx, ns, []usage.Key{r.Key})
				require.Empty(t, held)
				return err
			}))
		},
		"Ledger/AUnknownPriceIsRefusedWhereMoneyIsCapped": func(t *testing.T, f *fixture) {
			tokens, money := f.epic(t, epic.Epic{BudgetTokens: ptr(int64(100))}), f.epic(t, epic.Epic{BudgetNanoUSD: ptr(int64(100))})
			r := reservation("run", 0, f.task(t, tokens.ID).ID, 1, 0)
			r.NanoUSD = nil
			require.Nil(t, f.reserve(t, r).Refusal)
			r = reservation("run", 1, f.task(t, money.ID).ID, 1, 0)
			r.NanoUSD = nil
			no := f.reserve(t, r).Refusal
			require.True(t, no.Unpriced)
			require.ErrorContains(t, no.Err(), "the price of the call is not known")
		},
		"Ledger/UsageSettlesAndReleaseGivesBack": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{BudgetTokens: ptr(int64(100)), BudgetNanoUSD: ptr(int64(1 << 40))})
			v := f.task(t, e.ID)
			for i := range 3 {
				require.Nil(t, f.reserve(t, reservation("run", i, v.ID, 30, 1_000_000)).Refusal)
				require.Nil(t, f.reserve(t, reservation("run", i, v.ID, 30, 1_000_000)).Refusal, "it is asked for again")
			}
			_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run", 0, v.ID, 10, 3)})
			require.NoError(t, err)
			for range 2 {
				require.NoError(t, f.Release(f.ctx, ns, []usage.Key{entry("run", 1, "", 0, 0).Key, entry("run", 9, "", 0, 0).Key}))
			}
			a := f.account(t, ledger.Epic, e.ID)
			require.Equal(t, ledger.Amount{Tokens: 13, NanoUSD: 10*1000 + 3*4000}, a.Spent)
			require.Equal(t, ledger.Amount{Tokens: 30, NanoUSD: 1_000_000}, a.Reserved)
			f.balanced(t)
			require.NotNil(t, f.reserve(t, reservation("run", 4, v.ID, 58, 0)).Refusal)
			_, err = f.UpdateEpic(f.ctx, ns, e.ID, accounting.Change{}, epic.Epic{BudgetTokens: ptr(int64(101))}, []string{"budget_tokens"})
			require.NoError(t, err)
			require.Nil(t, f.reserve(t, reservation("run", 4, v.ID, 58, 0)).Refusal, "the budget is raised")
		},
		"Ledger/AllLevelsOrNone": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{BudgetTokens: ptr(int64(1000))})
			v := f.task(t, e.ID)
			_, err := f.SetCaps(f.ctx, ns, ledger.ID{Level: ledger.Namespace}, ledger.Caps{Tokens: ptr(int64(900))}, ledger.Caps{})
			require.NoError(t, err)
			_, err = f.SetCaps(f.ctx, ns, ledger.ID{Level: ledger.Task, Name: v.ID}, ledger.Caps{Tokens: ptr(int64(800))}, ledger.Caps{})
			require.NoError(t, err)
			for i, most := range map[int]int64{0: 700, 1: 600} { // the parent's cap, and the child's
				r := reservation(fmt.Sprint("run", i), 0, v.ID, most+1, 0)
				r.Runs = []accounting.RunCaps{{RunID: "run1", Hard: ledger.Caps{Tokens: ptr(int64(600))}}, {RunID: "run0", Hard: ledger.Caps{Tokens: ptr(int64(700))}}}[1-i:]
				no := f.reserve(t, r).Refusal
				require.Equal(t, ledger.Run, no.Account.Level)
				require.Equal(t, most, no.Cap)
			}
			r := reservation("run1", 1, v.ID, 600, 5)
			r.Runs = []accounting.RunCaps{{RunID: "run1", Hard: ledger.Caps{Tokens: ptr(int64(600))}}, {RunID: "run0", Hard: ledger.Caps{Tokens: ptr(int64(700))}}}
			require.Nil(t, f.reserve(t, r).Refusal)
			for level, name := range map[ledger.Level]string{ledger.Namespace: "", ledger.Epic: e.ID, ledger.Task: v.ID, ledger.Run: "run0"} {
				require.Equal(t, ledger.Amount{Tokens: 600, NanoUSD: 5}, f.account(t, level, name).Reserved, level)
			}
			_, err = f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run1", 1, v.ID, 500, 0)})
			require.NoError(t, err)
			for level, name := range map[ledger.Level]string{ledger.Namespace: "", ledger.Epic: e.ID, ledger.Task: v.ID, ledger.Run: "run0"} {
				a := f.account(t, level, name)
				require.Zero(t, a.Reserved, level)
				require.Equal(t, ledger.Amount{Tokens: 500, NanoUSD: 500_000}, a.Spent, level)
			}
			f.balanced(t)
		},
		"Ledger/ARunThatIsCappedInMoneyCountsTheTokensOfACallWithoutAPrice": func(t *testing.T, f *fixture) {
			r := reservation("run", 0, "", 60, 0)
			r.NanoUSD = nil
			r.Runs = []accounting.RunCaps{{RunID: "run", Hard: ledger.Caps{Tokens: ptr(int64(100)), NanoUSD: ptr(int64(5))}}}
			require.Nil(t, f.reserve(t, r).Refusal)
			require.Equal(t, ledger.Amount{Tokens: 60}, f.account(t, ledger.Run, "run").Reserved)
			r.Key.Call++
			no := f.reserve(t, r).Refusal
			require.Equal(t, &ledger.Refusal{Account: ledger.ID{Level: ledger.Run, Name: "run"}, Cap: 100, Reserved: 60, Asks: 60}, no, "its tokens count")
			_, err := f.SetCaps(f.ctx, ns, ledger.ID{Level: ledger.Namespace}, ledger.Caps{NanoUSD: ptr(int64(5))}, ledger.Caps{})
			require.NoError(t, err)
			r.Tokens = 1
			no = f.reserve(t, r).Refusal
			require.NotNil(t, no)
			require.True(t, no.Unpriced, "a cap of the namespace holds all the same")
			f.balanced(t)
		},
		"Ledger/ASoftCapTells": func(t *testing.T, f *fixture) {
			_, err := f.SetCaps(f.ctx, ns, ledger.ID{Level: ledger.Namespace}, ledger.Caps{}, ledger.Caps{NanoUSD: ptr(int64(10))})
			require.NoError(t, err)
			require.Empty(t, f.reserve(t, reservation("run", 0, "", 1, 10)).Soft)
			require.Equal(t, []ledger.ID{{Level: ledger.Namespace}}, f.reserve(t, reservation("run", 1, "", 1, 1)).Soft)
		},
		"Ledger/AnAccountThatIsOpenedLaterHasSpentWhatWasBooked": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run", 0, v.ID, 90, 0)})
			require.NoError(t, err)
			_, err = f.UpdateEpic(f.ctx, ns, e.ID, accounting.Change{}, epic.Epic{BudgetTokens: ptr(int64(100))}, []string{"budget_tokens"})
			require.NoError(t, err)
			for _, id := range []ledger.ID{{Level: ledger.Namespace}, {Level: ledger.Task, Name: v.ID}} {
				a, err := f.SetCaps(f.ctx, ns, id, ledger.Caps{Tokens: ptr(int64(100))}, ledger.Caps{})
				require.NoError(t, err)
				require.EqualValues(t, 90, a.Spent.Tokens)
			}
			require.NotNil(t, f.reserve(t, reservation("run", 1, v.ID, 11, 0)).Refusal)
			f.balanced(t)
		},
		"Ledger/AForgottenReservationIsBookedAtItsEstimateAndTheRealUsageSetsItRight": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{BudgetTokens: ptr(int64(100))})
			v := f.task(t, e.ID)
			r := reservation("run", 0, v.ID, 60, 7)
			_, err := f.Reserve(f.ctx, ns, -time.Second, []accounting.Reservation{r})
			require.NoError(t, err)
			n, err := f.SettleForgotten(f.ctx, 10)
			require.NoError(t, err)
			require.Equal(t, 1, n)
			n, err = f.SettleForgotten(f.ctx, 10)
			require.NoError(t, err)
			require.Zero(t, n)
			a := f.account(t, ledger.Epic, e.ID)
			require.Equal(t, ledger.Amount{Tokens: 60, NanoUSD: 7}, a.Spent)
			require.Zero(t, a.Reserved)
			f.balanced(t)
			require.Nil(t, f.reserve(t, r).Refusal, "it is in the ledger")
			for range 2 {
				_, err = f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run", 0, v.ID, 10, 2)})
				require.NoError(t, err)
				require.Equal(t, ledger.Amount{Tokens: 12, NanoUSD: 18_000}, f.account(t, ledger.Epic, e.ID).Spent)
				f.balanced(t)
			}
			v, err = f.Task(f.ctx, ns, v.ID)
			require.NoError(t, err)
			require.Equal(t, usage.Totals{Tokens: 12, NanoUSD: 18_000, ModelCalls: 1}, v.Actual)
			entries, err := f.Entries(f.ctx, store.EntryQuery{Namespace: ns, TaskID: v.ID, Limit: 10})
			require.NoError(t, err)
			require.Len(t, entries, 3, "the estimate, what takes it back, and what was used")
		},
		"Ledger/AReleaseTakesBackTheEstimateOfACallThatWasNotMade": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{BudgetTokens: ptr(int64(100))})
			r := reservation("run", 0, f.task(t, e.ID).ID, 60, 7)
			_, err := f.Reserve(f.ctx, ns, -time.Second, []accounting.Reservation{r})
			require.NoError(t, err)
			_, err = f.SettleForgotten(f.ctx, 10)
			require.NoError(t, err)
			for range 2 {
				require.NoError(t, f.Release(f.ctx, ns, []usage.Key{r.Key}))
				require.Zero(t, f.account(t, ledger.Epic, e.ID).Spent)
				require.Zero(t, f.account(t, ledger.Epic, e.ID).Reserved)
				f.balanced(t)
			}
		},
		"Ledger/WhatIsBookedIsNotReservedAgain": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{BudgetTokens: ptr(int64(100))})
			r := reservation("run", 0, f.task(t, e.ID).ID, 60, 7)
			require.Nil(t, f.reserve(t, r).Refusal)
			_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run", 0, r.TaskID, 10, 2)})
			require.NoError(t, err)
			require.Nil(t, f.reserve(t, r).Refusal, "a request that was on its way for long")
			require.Zero(t, f.account(t, ledger.Epic, e.ID).Reserved)
			f.balanced(t)
		},
		"Ledger/AReservationThatCameAfterItsUsageIsNotBookedAgain": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{BudgetTokens: ptr(int64(100))})
			r := reservation("run", 0, f.task(t, e.ID).ID, 60, 7)
			_, err := f.Reserve(f.ctx, ns, -time.Second, []accounting.Reservation{r})
			require.NoError(t, err)
			require.NoError(t, f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
				done := entry("run", 0, r.TaskID, 10, 2)
				done.Source, done.ID = usage.Executor, "us_1"
				_, _, err := tx.Book(ctx, ns, []usage.Entry{done})
				return err
			}))
			n, err := f.SettleForgotten(f.ctx, 10)
			require.NoError(t, err)
			require.Zero(t, n)
			a := f.account(t, ledger.Epic, e.ID)
			require.Zero(t, a.Reserved)
			require.Zero(t, a.Spent, "the usage was booked by itself")
		},
		"Ledger/OneThatCannotBeBookedKeepsNoOtherFromIt": func(t *testing.T, f *fixture) {
			full, e := f.epic(t, epic.Epic{BudgetTokens: ptr(int64(100))}), f.epic(t, epic.Epic{BudgetTokens: ptr(int64(100))})
			v, w := f.task(t, full.ID), f.task(t, e.ID)
			_, err := f.Reserve(f.ctx, ns, -time.Second, []accounting.Reservation{reservation("run", 0, v.ID, 60, 7), reservation("run", 1, w.ID, 60, 7)})
			require.NoError(t, err)
			_, err = f.RecordUsage(f.ctx, "other", []usage.Entry{entry("run", 5, "", 1, 0)})
			require.NoError(t, err)
			require.NoError(t, f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
				if _, err := tx.LockEpic(ctx, ns, full.ID); err != nil {
					return err
				}
				return tx.PutTotals(ctx, ns, map[string]usage.Totals{full.ID: {Tokens: math.MaxInt64 - 10}}, nil, time.Now())
			}))
			n, err := f.SettleForgotten(f.ctx, 10)
			require.Equal(t, usage.ReasonOutOfRange, errs.ReasonOf(err))
			require.Equal(t, 1, n)
			require.EqualValues(t, 60, f.account(t, ledger.Epic, e.ID).Spent.Tokens)
		},
		"Ledger/UsageOfADeletedTaskIsThatOfItsEpic": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{BudgetTokens: ptr(int64(100))})
			v := f.task(t, e.ID)
			require.Nil(t, f.reserve(t, reservation("run", 0, v.ID, 60, 7)).Refusal)
			require.NoError(t, f.DeleteTask(f.ctx, ns, v.ID, ""))
			_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run", 0, v.ID, 10, 2)})
			require.NoError(t, err)
			got, err := f.Epic(f.ctx, ns, e.ID)
			require.NoError(t, err)
			require.EqualValues(t, 12, got.Spent.Tokens)
			require.EqualValues(t, 12, f.account(t, ledger.Epic, e.ID).Spent.Tokens)
			f.balanced(t)
		},
		"Ledger/CapsOfAnEpicAreItsBudget": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			_, err := f.SetCaps(f.ctx, ns, ledger.ID{Level: ledger.Epic, Name: e.ID}, ledger.Caps{Tokens: ptr(int64(5))}, ledger.Caps{Tokens: ptr(int64(4))})
			require.NoError(t, err)
			got, err := f.Epic(f.ctx, ns, e.ID)
			require.NoError(t, err)
			require.Equal(t, ptr(int64(5)), got.BudgetTokens)
			require.Greater(t, got.Revision, e.Revision)
			_, err = f.SetCaps(f.ctx, ns, ledger.ID{Level: ledger.Run, Name: "run"}, ledger.Caps{}, ledger.Caps{})
			require.Equal(t, accounting.ReasonNoCapsOfRuns, errs.ReasonOf(err))
		},
		"Ledger/AClientsUsageIsNotThatOfARun": func(t *testing.T, f *fixture) {
			r := reservation("run", 0, "", 5, 5)
			r.Runs = []accounting.RunCaps{{RunID: "run", Hard: ledger.Caps{Tokens: ptr(int64(10))}}}
			require.Nil(t, f.reserve(t, r).Refusal)
			_, err := f.RecordUsage(access.With(f.ctx, access.Principal{Kind: access.Key, Name: "ci"}), ns, []usage.Entry{entry("run", 0, "", 10, 0)})
			require.NoError(t, err)
			require.Zero(t, f.account(t, ledger.Run, "run").Spent)
			require.EqualValues(t, 5, f.account(t, ledger.Run, "run").Reserved.Tokens)
		},
		"Ledger/TooMuchAtOnceIsRefused": func(t *testing.T, f *fixture) {
			for name, in := range map[string][]accounting.Reservation{
				"many":     make([]accounting.Reservation, accounting.MaxReservations+1),
				"runs":     {{Runs: make([]accounting.RunCaps, accounting.MaxRunCaps+1)}},
				"tokens":   {{Want: ledger.Want{Tokens: math.MaxInt64}}},
				"negative": {{Want: ledger.Want{Tokens: -1}}},
			} {
				_, err := f.Reserve(f.ctx, ns, ledgerLease, in)
				require.Error(t, err, name)
				require.Equal(t, errs.InvalidArgument, errs.From(err).Kind, name)
			}
			require.Error(t, f.Release(f.ctx, ns, make([]usage.Key, accounting.MaxReservations+1)))
		},
		"Ledger/OneKeyTwiceInARequestCountsOnce": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{BudgetTokens: ptr(int64(100))})
			v := f.task(t, e.ID)
			one, other := reservation("run", 0, v.ID, 60, 0), reservation("run", 1, v.ID, 30, 0)
			out, err := f.Reserve(f.ctx, ns, ledgerLease, []accounting.Reservation{one, one, other, reservation("run", 2, v.ID, 11, 0), reservation("run", 2, v.ID, 11, 0)})
			require.NoError(t, err)
			for i, refused := range []bool{false, false, false, true, true} {
				require.Equal(t, refused, out[i].Refusal != nil, i)
			}
			require.EqualValues(t, 90, f.account(t, ledger.Epic, e.ID).Reserved.Tokens)
			require.NoError(t, f.Release(f.ctx, ns, []usage.Key{one.Key, one.Key}))
			require.EqualValues(t, 30, f.account(t, ledger.Epic, e.ID).Reserved.Tokens)
			_, err = f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run", 1, v.ID, 10, 0)})
			require.NoError(t, err)
			f.balanced(t)
		},
		"Ledger/TheBudgetOfAnImportedEpicHolds": func(t *testing.T, f *fixture) {
			e, _, err := f.ImportEpic(f.ctx, ns, accounting.Once{}, `{"title": "t", "budget_tokens": 10, "tasks": [{"id": 1, "title": "a"}]}`)
			require.NoError(t, err)
			r := reservation("run", 0, "", 11, 0)
			r.EpicID = e.ID
			require.NotNil(t, f.reserve(t, r).Refusal)
		},
		"Ledger/AChangeOfTheTitleLeavesCapsAlone": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			_, err := f.SetCaps(f.ctx, ns, ledger.ID{Level: ledger.Epic, Name: e.ID}, ledger.Caps{Tokens: ptr(int64(5))}, ledger.Caps{})
			require.NoError(t, err)
			_, err = f.UpdateEpic(f.ctx, ns, e.ID, accounting.Change{}, epic.Epic{Title: "other"}, []string{"title"})
			require.NoError(t, err)
			require.Equal(t, ptr(int64(5)), f.account(t, ledger.Epic, e.ID).Hard.Tokens)
		},
		"Ledger/NothingIsLeftOfADeletedEpic": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{BudgetTokens: ptr(int64(100))})
			v := f.task(t, e.ID)
			_, err := f.SetCaps(f.ctx, ns, ledger.ID{Level: ledger.Task, Name: v.ID}, ledger.Caps{Tokens: ptr(int64(80))}, ledger.Caps{})
			require.NoError(t, err)
			require.Nil(t, f.reserve(t, reservation("run", 0, v.ID, 60, 7)).Refusal)
			require.NoError(t, f.DeleteEpic(f.ctx, ns, e.ID, ""))
			require.Nil(t, f.account(t, ledger.Epic, e.ID).Hard.Tokens)
			require.Nil(t, f.account(t, ledger.Task, v.ID).Hard.Tokens)
			_, err = f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run", 0, v.ID, 10, 2)})
			require.NoError(t, err)
			f.balanced(t)
		},
		"Ledger/ACallThatIsBookedElsewhereThanReservedIsSpentThereAlone": func(t *testing.T, f *fixture) {
			capped := func() epic.Task {
				v := f.task(t, f.epic(t, epic.Epic{BudgetTokens: ptr(int64(100))}).ID)
				_, err := f.SetCaps(f.ctx, ns, ledger.ID{Level: ledger.Task, Name: v.ID}, ledger.Caps{Tokens: ptr(int64(80))}, ledger.Caps{})
				require.NoError(t, err)
				return v
			}
			was, now := capped(), capped()
			require.Nil(t, f.reserve(t, reservation("run", 0, was.ID, 60, 7)).Refusal)
			_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run", 0, now.ID, 10, 2)})
			require.NoError(t, err)
			for _, id := range []ledger.ID{{Level: ledger.Epic, Name: was.EpicID}, {Level: ledger.Task, Name: was.ID}} {
				require.Equal(t, []ledger.Amount{{}, {}}, []ledger.Amount{f.account(t, id.Level, id.Name).Spent, f.account(t, id.Level, id.Name).Reserved}, "%v", id)
			}
			require.EqualValues(t, 12, f.account(t, ledger.Epic, now.EpicID).Spent.Tokens)
			require.EqualValues(t, 12, f.account(t, ledger.Task, now.ID).Spent.Tokens)
			f.balanced(t)
		},
		"Ledger/OverheadOfAnEpicIsBookedOnItWithoutATask": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{BudgetTokens: ptr(int64(100))})
			v := f.task(t, e.ID)
			own := reservation("agent", 0, "", 60, 7)
			own.EpicID, own.Kind = e.ID, usage.Overhead
			require.Nil(t, f.reserve(t, own).Refusal)
			require.EqualValues(t, 60, f.account(t, ledger.Epic, e.ID).Reserved.Tokens, "the cap of the epic bounds it")
			thought := entry("agent", 0, "", 20, 2)
			thought.EpicID, thought.Kind = e.ID, usage.Overhead
			_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{thought, entry("run", 0, v.ID, 10, 2)})
			require.NoError(t, err)
			got, err := f.Epic(f.ctx, ns, e.ID)
			require.NoError(t, err)
			require.Equal(t, []int64{34, 22}, []int64{got.Spent.Tokens, got.Spent.OverheadTokens})
			work, err := f.Task(f.ctx, ns, v.ID)
			require.NoError(t, err)
			require.Equal(t, []int64{12, 0}, []int64{work.Actual.Tokens, work.Actual.OverheadTokens})
			require.Equal(t, got.Spent.Tokens, work.Actual.Tokens+got.Spent.OverheadTokens, "work and overhead are all of it")
			f.balanced(t)
		},
		"Ledger/AccountsOfEndedRunsAreSwept": func(t *testing.T, f *fixture) {
			r := reservation("run", 0, "", 5, 5)
			r.Runs = []accounting.RunCaps{{RunID: "run", Hard: ledger.Caps{Tokens: ptr(int64(10))}}}
			require.Nil(t, f.reserve(t, r).Refusal)
			later := time.Now().Add(25 * time.Hour)
			accounts, _, err := f.store.SweepLedger(f.ctx, later, 10)
			require.NoError(t, err)
			require.Zero(t, accounts, "a call is under way")
			require.NoError(t, f.Release(f.ctx, ns, []usage.Key{r.Key}))
			accounts, _, err = f.store.SweepLedger(f.ctx, later, 10)
			require.NoError(t, err)
			require.EqualValues(t, 1, accounts)
		},
	}
	maps.Copy(out, callCases())
	maps.Copy(out, ownerCases())
	maps.Copy(out, postponedCases())
	maps.Copy(out, ceilingCases())
	out["Ledger/ManyCallersNeverGoOver"] = manyCallers
	return out
}

// manyCallers has 64 callers reserve, ask again, settle, release and vanish against one cap, 10,240
// tries in all, while what vanished is booked at its estimate and some of its usage comes late.
func manyCallers(t *testing.T, f *fixture) {
	const callers, rounds, batch, limit = 64, 10, 16, 400_000 * 1000
	e := f.epic(t, epic.Epic{BudgetNanoUSD: ptr(int64(limit))})
	tasks := []string{f.task(t, e.ID).ID, f.task(t, e.ID).ID}
	var granted, refused, late atomic.Int64
	check := func() {
		a, err := f.Account(f.ctx, ns, ledger.ID{Level: ledger.Epic, Name: e.ID})
		if noError(t, err) && a.Spent.NanoUSD+a.Reserved.NanoUSD > limit {
			t.Errorf("%d spent and %d reserved of %d", a.Spent.NanoUSD, a.Reserved.NanoUSD, limit)
		}
	}
	var wg, sweeper sync.WaitGroup
	ended := make(chan struct{})
	sweeper.Go(func() {
		for over := false; !over; {
			select {
			case <-ended:
				over = true
			default:
			}
			n, err := f.SettleForgotten(f.ctx, 100)
			noError(t, err)
			over = over && n == 0
			check()
		}
	})
	for c := range callers {
		wg.Go(func() {
			for i := range rounds {
				task, in, most := tasks[c%2], make([]accounting.Reservation, batch), make([]int64, batch)
				for j := range in {
					most[j] = int64(rand.IntN(200) + 1)
					in[j] = reservation("run", (c*rounds+i)*batch+j, task, most[j], most[j]*1000)
				}
				lease, vanishes := ledgerLease, rand.IntN(4) == 0
				if vanishes {
					lease = -time.Second
				}
				out, err := f.Reserve(f.ctx, ns, lease, in)
				if noError(t, err) && rand.IntN(4) == 0 {
					was := out
					out, err = f.Reserve(f.ctx, ns, lease, in)
					for j := range was {
						if err == nil && was[j].Refusal == nil && out[j].Refusal != nil {
							t.Error("what was granted is refused when it is asked for again")
						}
					}
				}
				if !noError(t, err) {
					return
				}
				var used []usage.Entry
				var unmade []usage.Key
				for j := range in {
					done := entry("run", (c*rounds+i)*batch+j, task, rand.Int64N(most[j]+1), 0)
					switch what := rand.IntN(4); {
					case out[j].Refusal != nil:
						refused.Add(1)
						continue
					case vanishes && what > 0:
					case vanishes:
						late.Add(1)
						used = append(used, done)
					case what == 0:
						unmade = append(unmade, in[j].Key)
					default:
						used = append(used, done)
					}
					granted.Add(1)
				}
				noError(t, f.Release(f.ctx, ns, unmade))
				if len(used) > 0 {
					_, err := f.RecordUsage(f.ctx, ns, used)
					noError(t, err)
				}
				check()
			}
		})
	}
	wg.Wait()
	close(ended)
	sweeper.Wait()
	f.balanced(t)
	a := f.account(t, ledger.Epic, e.ID)
	require.Zero(t, a.Reserved, "what vanished is booked")
	require.Equal(t, f.bookedOn(t, e.ID), a.Spent.NanoUSD, "nothing is lost")
	require.Positive(t, granted.Load())
	require.Positive(t, refused.Load(), "the cap is reached")
	require.Positive(t, late.Load())
	t.Logf("%d granted, %d refused, %d came late; %d of %d nano-USD are spent", granted.Load(), refused.Load(), late.Load(), a.Spent.NanoUSD, limit)
}

// bookedOn is the sum of the costs of an epic's entries.
func (f *fixture) bookedOn(t *testing.T, epicID string) (sum int64) {
	t.Helper()
	q := store.EntryQuery{Namespace: ns, EpicID: epicID, Limit: 1000}
	for {
		found, err := f.Entries(f.ctx, q)
		require.NoError(t, err)
		for i := range found {
			sum += *found[i].CostNanoUSD
		}
		if len(found) < q.Limit {
			return sum
		}
		q.After = page.Cursor{CreateTime: found[len(found)-1].Time, ID: found[len(found)-1].ID}
	}
}

func noError(t testing.TB, err error) bool {
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// BenchReserve reserves batches of calls under a cap of their epic, and without a cap.
func BenchReserve(b *testing.B, open Open) {
	for _, size := range []int{1, 64} {
		for name, limit := range map[string]*int64{"capped": ptr(int64(1 << 60)), "uncapped": nil} {
			b.Run(fmt.Sprintf("%s/batch=%d", name, size), func(b *testing.B) {
				f := newFixture(b, open)
				v := f.task(b, f.epic(b, epic.Epic{BudgetTokens: limit}).ID)
				n := 0
				for b.Loop() {
					batch := make([]accounting.Reservation, size)
					for i := range batch {
						batch[i] = reservation("run", n, v.ID, 100, 10)
						n++
					}
					_, err := f.Reserve(f.ctx, ns, ledgerLease, batch)
					require.NoError(b, err)
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n), "µs/reservation")
			})
		}
	}
}

// BenchSettle reserves and settles batches of calls under a cap of their epic, beside what one commit
// that does nothing else costs.
func BenchSettle(b *testing.B, open Open) {
	b.Run("bare", func(b *testing.B) {
		f := newFixture(b, open)
		_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run", 0, "", 10, 2)})
		require.NoError(b, err)
		for b.Loop() {
			require.NoError(b, f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
				all, err := tx.LockNamespaceTotals(ctx, ns)
				if err != nil {
					return err
				}
				all.Tokens++
				return tx.PutNamespaceTotals(ctx, ns, all)
			}))
		}
	})
	for _, size := range []int{1, 64} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			f := newFixture(b, open)
			v := f.task(b, f.epic(b, epic.Epic{BudgetTokens: ptr(int64(1 << 60))}).ID)
			n := 0
			for b.Loop() {
				batch, used := make([]accounting.Reservation, size), make([]usage.Entry, size)
				for i := range batch {
					batch[i], used[i] = reservation("run", n, v.ID, 100, 10), entry("run", n, v.ID, 10, 2)
					n++
				}
				_, err := f.Reserve(f.ctx, ns, ledgerLease, batch)
				require.NoError(b, err)
				_, err = f.RecordUsage(f.ctx, ns, used)
				require.NoError(b, err)
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n), "µs/call")
		})
	}
}
