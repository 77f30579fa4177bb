package storetest

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/ledger"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// ownerCases are about owners of runs that follow each other, about accounts of runs that are opened
// while their calls are booked, and about calls without a limit.
func ownerCases() map[string]func(*testing.T, *fixture) {
	run := func(tokens, spent int64) []accounting.RunCaps {
		return []accounting.RunCaps{{RunID: "run", Hard: ledger.Caps{Tokens: &tokens}, Spent: ledger.Amount{Tokens: spent}}}
	}
	call := func(n int, output int64) accounting.Call {
		e := entry("run", n, "", 0, output)
		e.Source = usage.Executor
		return accounting.Call{Entry: e}
	}
	reserve := func(t *testing.T, f *fixture, c accounting.Call, lease time.Duration) accounting.Reserved {
		t.Helper()
		out, err := f.ReserveCalls(f.ctx, ns, lease, []accounting.Call{c}, false)
		require.NoError(t, err)
		return out[0]
	}
	owned := func(incarnation int64) accounting.Call {
		c := call(0, 60)
		c.Incarnation = incarnation
		c.Runs = run(100, 0)
		return c
	}
	return map[string]func(*testing.T, *fixture){
		"Ledger/WhatALaterOwnerHasReservedIsNotReleasedByAnEarlierOne": func(t *testing.T, f *fixture) {
			reserved := func() int64 { return f.account(t, ledger.Run, "run").Reserved.Tokens }
			require.Nil(t, reserve(t, f, owned(1), ledgerLease).Refusal)
			require.Nil(t, reserve(t, f, owned(2), ledgerLease).Refusal, "it is made again by the owner that has loaded the run")
			require.Nil(t, reserve(t, f, owned(1), ledgerLease).Refusal, "a request that was on its way for long")
			require.NoError(t, f.ReleaseCalls(f.ctx, ns, []accounting.Call{owned(1)}))
			require.EqualValues(t, 60, reserved())
			require.NoError(t, f.ReleaseCalls(f.ctx, ns, []accounting.Call{owned(2)}))
			require.Zero(t, reserved())
			f.balanced(t)
		},
		"Ledger/TheEstimateOfALaterOwnerIsNotTakenBackByAnEarlierOne": func(t *testing.T, f *fixture) {
			spent := func() int64 { return f.account(t, ledger.Run, "run").Spent.Tokens }
			require.Nil(t, reserve(t, f, owned(2), time.Millisecond).Refusal)
			testkit.Eventually(t, func() bool {
				n, err := f.SettleForgotten(f.ctx, 10)
				return err == nil && n == 1
			})
			require.NoError(t, f.ReleaseCalls(f.ctx, ns, []accounting.Call{owned(1)}))
			require.EqualValues(t, 60, spent())
			require.NoError(t, f.ReleaseCalls(f.ctx, ns, []accounting.Call{owned(3)}))
			require.Zero(t, spent())
			f.balanced(t)
		},
		"Ledger/TheAccountOfARunOpensWithWhatWasBookedOfItMeanwhile": func(t *testing.T, f *fixture) {
			_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{call(0, 50).Entry})
			require.NoError(t, err)
			c := call(1, 51)
			c.Runs = run(100, 0)
			no := reserve(t, f, c, ledgerLease).Refusal
			require.NotNil(t, no, "its row was read before the first call was booked")
			require.EqualValues(t, 50, no.Spent)
			c = call(1, 50)
			c.Runs = run(100, 0)
			require.Nil(t, reserve(t, f, c, ledgerLease).Refusal)
			_, err = f.RecordUsage(f.ctx, ns, []usage.Entry{call(2, 7).Entry})
			require.NoError(t, err)
			require.EqualValues(t, 57, f.account(t, ledger.Run, "run").Spent.Tokens, "later calls count as they are booked")
		},
		"Ledger/TheAccountOfARunOpensWithWhatItIsToldIfThatIsMore": func(t *testing.T, f *fixture) {
			c := call(1, 1)
			c.Runs = run(100, 30)
			require.Nil(t, reserve(t, f, c, ledgerLease).Refusal)
			require.EqualValues(t, 30, f.account(t, ledger.Run, "run").Spent.Tokens)
		},
		"Ledger/EveryCallThatIsBookedWhileAnAccountOpensIsOnIt": func(t *testing.T, f *fixture) {
			const runs, calls = 10, 8
			for r := range runs {
				id := fmt.Sprint("run", r)
				results := together(calls+1, func(i int) error {
					if i == calls/2 {
						c := accounting.Call{Entry: entry(id, calls, "", 0, 1), Runs: []accounting.RunCaps{{RunID: id, Hard: ledger.Caps{Tokens: ptr(int64(1000))}}}}
						_, err := f.ReserveCalls(f.ctx, ns, ledgerLease, []accounting.Call{c}, false)
						return err
					}
					_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry(id, i, "", 10, 0)})
					return err
				})
				require.Equal(t, calls+1, count(results, succeeded), "%v", results)
				require.EqualValues(t, 10*calls, f.account(t, ledger.Run, id).Spent.Tokens)
			}
		},
		"Ledger/ACallWithoutALimitReservesWhatNineOfTenCallsOfItsModelPutOut": func(t *testing.T, f *fixture) {
			c := call(0, 0)
			c.InputTokens, c.Unlimited, c.Runs = 5, true, run(1000, 0)
			_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{call(1, 70).Entry})
			require.NoError(t, err)
			require.Nil(t, reserve(t, f, c, ledgerLease).Refusal)
			require.EqualValues(t, 75, f.account(t, ledger.Run, "run").Reserved.Tokens)
		},
		"Ledger/ACallWithoutALimitAndHistoryReservesWhatItsRunMayUse": func(t *testing.T, f *fixture) {
			c := call(0, 0)
			c.InputTokens, c.Unlimited = 5, true
			c.Runs = append(run(1000, 0), accounting.RunCaps{RunID: "above", Hard: ledger.Caps{Tokens: ptr(int64(80))}, Spent: ledger.Amount{Tokens: 10}})
			require.Nil(t, reserve(t, f, c, ledgerLease).Refusal)
			require.EqualValues(t, 70, f.account(t, ledger.Run, "run").Reserved.Tokens)
			c.Key.Call++
			require.NotNil(t, reserve(t, f, c, ledgerLease).Refusal, "nothing is left")
		},
		"Ledger/ACallWithALimitOfItsProfileReservesThatUntilThereAreEnoughSamples": func(t *testing.T, f *fixture) {
			c := call(0, 0)
			c.InputTokens, c.OutputTokens, c.Unlimited, c.Runs = 5, 500, true, run(100_000, 0)
			_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{call(1, 70).Entry})
			require.NoError(t, err)
			require.Nil(t, reserve(t, f, c, ledgerLease).Refusal)
			require.EqualValues(t, 505, f.account(t, ledger.Run, "run").Reserved.Tokens, "one sample is not enough")
			// Samples take places by chance, so 20 of them are there after a few more calls.
			for i := range 60 {
				e := call(0, 70).Entry
				e.Key.Call = 100 + int32(i)
				_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{e})
				require.NoError(t, err)
			}
			before := f.account(t, ledger.Run, "run").Reserved.Tokens
			c.Key.Call = 200
			require.Nil(t, reserve(t, f, c, ledgerLease).Refusal)
			require.EqualValues(t, 75, f.account(t, ledger.Run, "run").Reserved.Tokens-before)
			before += 75
			c.Key.Call++
			c.OutputTokens = 30
			require.Nil(t, reserve(t, f, c, ledgerLease).Refusal)
			require.EqualValues(t, 35, f.account(t, ledger.Run, "run").Reserved.Tokens-before, "no answer is longer than its limit")
		},
		"Ledger/ACallWithoutALimitReservesTheMoneyThatItsRunHasLeft": func(t *testing.T, f *fixture) {
			dollars := func(id string, nano, spent int64) accounting.RunCaps {
				return accounting.RunCaps{RunID: id, Hard: ledger.Caps{NanoUSD: &nano}, Spent: ledger.Amount{NanoUSD: spent}}
			}
			c := call(0, 0)
			c.InputTokens, c.Unlimited = 5, true // which cost 5,000
			c.Runs = []accounting.RunCaps{dollars("run", 1_000_000, 0), dollars("above", 80_000, 10_000)}
			require.Nil(t, reserve(t, f, c, ledgerLease).Refusal)
			require.Equal(t, ledger.Amount{Tokens: 5, NanoUSD: 70_000}, f.account(t, ledger.Run, "run").Reserved)
			c.Key.Call++
			no := reserve(t, f, c, ledgerLease).Refusal
			require.NotNil(t, no, "nothing is left")
			requireError(t, no.Err(), errs.ResourceExhausted, ledger.ReasonBudgetExceeded)
			_, err := f.SetCaps(f.ctx, ns, ledger.ID{Level: ledger.Namespace}, ledger.Caps{Tokens: ptr(int64(1000))}, ledger.Caps{})
			require.NoError(t, err)
			c.Key.Call++
			c.Runs = []accounting.RunCaps{dollars("other", 1_000_000, 0)}
			no = reserve(t, f, c, ledgerLease).Refusal
			require.NotNil(t, no, "money tells no tokens")
			requireError(t, no.Err(), errs.ResourceExhausted, ledger.ReasonEstimateUnknown)
		},
		"Ledger/ACallWithoutALimitHistoryAndRunBudgetIsRefusedUnderAHardCap": func(t *testing.T, f *fixture) {
			c := call(0, 0)
			c.Unlimited = true
			require.Nil(t, reserve(t, f, c, ledgerLease).Refusal, "nothing bounds it")
			whole := ledger.ID{Level: ledger.Namespace}
			_, err := f.SetCaps(f.ctx, ns, whole, ledger.Caps{}, ledger.Caps{Tokens: ptr(int64(1000))})
			require.NoError(t, err)
			require.Nil(t, reserve(t, f, c, ledgerLease).Refusal, "a soft cap stops nothing")
			_, err = f.SetCaps(f.ctx, ns, whole, ledger.Caps{Tokens: ptr(int64(1000))}, ledger.Caps{})
			require.NoError(t, err)
			c.Key.Call++
			no := reserve(t, f, c, ledgerLease).Refusal
			require.NotNil(t, no)
			requireError(t, no.Err(), errs.ResourceExhausted, ledger.ReasonEstimateUnknown)
			f.balanced(t)
		},
	}
}

// callCases are about calls that are told as entries, and about caps of the API.
func callCases() map[string]func(*testing.T, *fixture) {
	call := func(v epic.Task, input, output int64) accounting.Call {
		e := entry("run", 0, v.ID, input, output)
		e.Source = usage.Executor
		return accounting.Call{Entry: e}
	}
	return map[string]func(*testing.T, *fixture){
		"Ledger/ACallIsReservedAtItsDearestMix": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{BudgetNanoUSD: ptr(int64(1 << 50))})
			c := call(f.task(t, e.ID), 10, 7)
			_, err := f.CreatePrice(f.ctx, ns, accounting.Once{}, usage.Price{Provider: c.Provider, Model: c.Model, ValidFrom: time.Now().Add(-time.Hour),
				Input: 1_000_000, CachedInput: ptr(int64(2_000_000)), Output: 3_000_000, Reasoning: ptr(int64(5_000_000))})
			require.NoError(t, err)
			out, err := f.ReserveCalls(f.ctx, ns, ledgerLease, []accounting.Call{c}, false)
			require.NoError(t, err)
			require.True(t, out[0].Capped)
			require.Equal(t, ledger.Amount{Tokens: 17, NanoUSD: 10*2 + 7*5}, f.account(t, ledger.Epic, e.ID).Reserved)
		},
		"Ledger/ACallWithoutAPriceIsRefusedUnlessItSaysWhatItCosts": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{BudgetNanoUSD: ptr(int64(100))})
			c := call(f.task(t, e.ID), 10, 7)
			c.Model = "nobody-knows"
			out, err := f.ReserveCalls(f.ctx, ns, ledgerLease, []accounting.Call{c}, false)
			require.NoError(t, err)
			require.True(t, out[0].Refusal.Unpriced)
			c.CostNanoUSD = ptr(int64(100))
			out, err = f.ReserveCalls(f.ctx, ns, ledgerLease, []accounting.Call{c}, false)
			require.NoError(t, err)
			require.Nil(t, out[0].Refusal)
		},
		"Ledger/WhoOnlyAsksGetsNothing": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{BudgetTokens: ptr(int64(17))})
			v := f.task(t, e.ID)
			for range 2 {
				out, err := f.ReserveCalls(f.ctx, ns, ledgerLease, []accounting.Call{call(v, 10, 7)}, true)
				require.NoError(t, err)
				require.Nil(t, out[0].Refusal)
			}
			require.Zero(t, f.account(t, ledger.Epic, e.ID).Reserved)
			out, err := f.ReserveCalls(f.ctx, ns, ledgerLease, []accounting.Call{call(v, 10, 8)}, true)
			require.NoError(t, err)
			require.NotNil(t, out[0].Refusal)
		},
		"Ledger/ACapThatWasTakenAwayBoundsNothing": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{BudgetTokens: ptr(int64(0))})
			v := f.task(t, e.ID)
			require.NotNil(t, f.reserve(t, reservation("run", 0, v.ID, 1, 1)).Refusal)
			_, err := f.SetCaps(f.ctx, ns, ledger.ID{Level: ledger.Epic, Name: e.ID}, ledger.Caps{}, ledger.Caps{})
			require.NoError(t, err)
			require.Equal(t, accounting.Reserved{}, f.reserve(t, reservation("run", 0, v.ID, 1, 1)))
		},
		"Ledger/CapsThatHaveChangedMeanwhileStay": func(t *testing.T, f *fixture) {
			id := ledger.ID{Level: ledger.Task, Name: f.task(t, f.epic(t, epic.Epic{}).ID).ID}
			seen, err := f.Budget(f.ctx, ns, id)
			require.NoError(t, err)
			_, err = f.SetBudget(f.ctx, ns, accounting.Change{Etag: seen.Etag()}, id, ledger.Caps{Tokens: ptr(int64(5))}, ledger.Caps{})
			require.NoError(t, err)
			_, err = f.SetBudget(f.ctx, ns, accounting.Change{Etag: seen.Etag()}, id, ledger.Caps{Tokens: ptr(int64(9))}, ledger.Caps{})
			require.Equal(t, ledger.ReasonEtagMismatch, errs.ReasonOf(err))
			require.Equal(t, ptr(int64(5)), f.account(t, ledger.Task, id.Name).Hard.Tokens)
		},
		"Ledger/TheBudgetOfATaskThatIsNotThereIsNotFound": func(t *testing.T, f *fixture) {
			_, err := f.Budget(f.ctx, ns, ledger.ID{Level: ledger.Task, Name: "tk_none"})
			require.True(t, errs.Is(err, errs.NotFound), "%v", err)
		},
	}
}

// ceilingCases are about caps that the budget of an epic must stay below.
func ceilingCases() map[string]func(*testing.T, *fixture) {
	// capped is an epic with a cap of 100 tokens that was set as such.
	capped := func(t *testing.T, f *fixture) epic.Epic {
		t.Helper()
		e := f.epic(t, epic.Epic{})
		root := access.With(f.ctx, access.Principal{Kind: access.Key, Name: "root", Scopes: []access.Scope{access.Admin}})
		_, err := f.SetBudget(root, ns, accounting.Change{}, ledger.ID{Level: ledger.Epic, Name: e.ID}, ledger.Caps{Tokens: ptr(int64(100))}, ledger.Caps{})
		require.NoError(t, err)
		return e
	}
	update := func(f *fixture, ctx context.Context, id string, in epic.Epic) error {
		_, err := f.UpdateEpic(ctx, ns, id, accounting.Change{}, in, []string{"budget_tokens", "budget_nano_usd"})
		return err
	}
	out := map[string]func(*testing.T, *fixture){
		"Ledger/ACapThatWasSetIsLoweredAndRaisedUpToItselfWithTheEpic": func(t *testing.T, f *fixture) {
			e := capped(t, f)
			for _, n := range []int64{40, 70, 100} {
				require.NoError(t, update(f, f.ctx, e.ID, epic.Epic{BudgetTokens: ptr(n), BudgetNanoUSD: ptr(int64(5))}))
				require.Equal(t, ptr(n), f.account(t, ledger.Epic, e.ID).Hard.Tokens)
			}
			require.Equal(t, "key:root", f.account(t, ledger.Epic, e.ID).CeilingBy)
		},
		"Ledger/ACapThatIsRaisedAsSuchIsTheNextTop": func(t *testing.T, f *fixture) {
			e := capped(t, f)
			id := ledger.ID{Level: ledger.Epic, Name: e.ID}
			_, err := f.SetBudget(f.ctx, ns, accounting.Change{}, id, ledger.Caps{Tokens: ptr(int64(200))}, ledger.Caps{})
			require.NoError(t, err)
			require.NoError(t, update(f, f.ctx, e.ID, epic.Epic{BudgetTokens: ptr(int64(200))}))
			_, err = f.SetBudget(f.ctx, ns, accounting.Change{}, id, ledger.Caps{}, ledger.Caps{})
			require.NoError(t, err)
			require.NoError(t, update(f, f.ctx, e.ID, epic.Epic{BudgetTokens: ptr(int64(1000))}), "nothing bounds it any more")
		},
	}
	for name, in := range map[string]epic.Epic{"Raised": {BudgetTokens: ptr(int64(101))}, "Removed": {}} {
		for by, who := range map[string]access.Principal{
			"AKey":     {Kind: access.Key, Name: "k", Scopes: access.DefaultScopes()},
			"AService": {Kind: access.Internal},
			"Anybody":  {Kind: access.Open},
		} {
			out["Ledger/ACapThatWasSetIsNot"+name+"WithTheEpicBy"+by] = func(t *testing.T, f *fixture) {
				e := capped(t, f)
				err := update(f, access.With(f.ctx, who), e.ID, in)
				requireError(t, err, errs.FailedPrecondition, ledger.ReasonAboveCap)
				require.ErrorContains(t, err, "budget_tokens of epic "+e.ID+" can be at most 100 tokens: key:root has set this cap")
				require.Equal(t, ptr(int64(100)), f.account(t, ledger.Epic, e.ID).Hard.Tokens)
				got, err := f.Epic(f.ctx, ns, e.ID)
				require.NoError(t, err)
				require.Equal(t, ptr(int64(100)), got.BudgetTokens)
			}
		}
	}
	return out
}

// postponedCases are about forgotten reservations that cannot be booked.
func postponedCases() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"Ledger/AnEstimateWhoseKeyIsTakenIsGivenBack": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{BudgetTokens: ptr(int64(100))})
			r := reservation("run", 0, f.task(t, e.ID).ID, 60, 7)
			forget := func() {
				_, err := f.Reserve(f.ctx, ns, -time.Second, []accounting.Reservation{r})
				require.NoError(t, err)
				_, err = f.SettleForgotten(f.ctx, 10)
				require.NoError(t, err)
			}
			forget()
			require.NoError(t, f.Release(f.ctx, ns, []usage.Key{r.Key}))
			forget()
			require.Zero(t, f.account(t, ledger.Epic, e.ID).Reserved, "it would be held for ever")
			require.Zero(t, f.account(t, ledger.Epic, e.ID).Spent)
			f.balanced(t)
			left, err := f.store.ForgottenReservations(f.ctx, 10)
			require.NoError(t, err)
			require.Empty(t, left, "it is not looked at again and again")
			_, err = f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run", 0, r.TaskID, 10, 2)})
			require.NoError(t, err)
			require.EqualValues(t, 12, f.account(t, ledger.Epic, e.ID).Spent.Tokens)
			f.balanced(t)
		},
		"Ledger/AReservationThatCannotBeBookedIsPostponed": func(t *testing.T, f *fixture) {
			r := reservation("run", 0, f.task(t, f.epic(t, epic.Epic{BudgetTokens: ptr(int64(100))}).ID).ID, 60, 7)
			_, err := f.Reserve(f.ctx, ns, -time.Second, []accounting.Reservation{r})
			require.NoError(t, err)
			require.NoError(t, f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
				if _, err := tx.LockNamespaceTotals(ctx, ns); err != nil {
					return err
				}
				return tx.PutNamespaceTotals(ctx, ns, usage.Totals{Tokens: math.MaxInt64})
			}))
			_, err = f.SettleForgotten(f.ctx, 10)
			require.Equal(t, usage.ReasonOutOfRange, errs.ReasonOf(err))
			left, err := f.store.ForgottenReservations(f.ctx, 10)
			require.NoError(t, err)
			require.Empty(t, left)
		},
	}
}
