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
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

func usageCases() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"Usage/RollsUpToTaskEpicAndNamespace": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v, w := f.task(t, e.ID), f.task(t, e.ID)
			tool := entry("run", 2, w.ID, 0, 0)
			tool.Kind, tool.Model = usage.Tool, "search"
			overhead := entry("run", 3, v.ID, 7, 0)
			overhead.Kind, overhead.Failed = usage.Overhead, true
			direct := entry("run", 4, "", 1, 1)
			direct.EpicID, direct.Model = e.ID, "mystery"
			nobody := entry("run", 5, "", 2, 0)
			in := []usage.Entry{nobody, entry("run", 0, v.ID, 10, 3), tool, overhead, direct}
			asked, err := f.PriceUsage(f.ctx, ns, in)
			require.NoError(t, err)
			before, err := f.NamespaceTotals(f.ctx, ns)
			require.NoError(t, err)
			require.Zero(t, before, "asking for prices books nothing")
			out, err := f.RecordUsage(f.ctx, ns, in)
			require.NoError(t, err)
			require.Len(t, out, len(in))
			for i := range in {
				require.Equal(t, out[i].CostNanoUSD, asked[i].CostNanoUSD)
			}
			for i := range in {
				in[i].Source = usage.Executor
				require.Equal(t, in[i].Key, out[i].Key, "in the order of the request")
			}
			require.Equal(t, e.ID, out[1].EpicID)
			require.Equal(t, ptr(int64(10*1000+3*4000)), out[1].CostNanoUSD)
			require.NotEmpty(t, out[1].PriceID)
			require.Nil(t, out[2].CostNanoUSD)
			require.Nil(t, out[4].CostNanoUSD)
			v, err = f.Task(f.ctx, ns, v.ID)
			require.NoError(t, err)
			require.Equal(t, usage.Totals{Tokens: 20, NanoUSD: 29_000, OverheadTokens: 7, OverheadNanoUSD: 7_000, ModelCalls: 2}, v.Actual)
			require.EqualValues(t, 1, v.Revision, "costs do not show in the etag")
			w, err = f.Task(f.ctx, ns, w.ID)
			require.NoError(t, err)
			require.Equal(t, usage.Totals{ToolCalls: 1}, w.Actual)
			e, err = f.Epic(f.ctx, ns, e.ID)
			require.NoError(t, err)
			require.Equal(t, usage.Totals{
				Tokens: 22, NanoUSD: 29_000, UnpricedCalls: 1, OverheadTokens: 7, OverheadNanoUSD: 7_000, ModelCalls: 3, ToolCalls: 1,
			}, e.Spent)
			total, err := f.NamespaceTotals(f.ctx, ns)
			require.NoError(t, err)
			require.Equal(t, usage.Totals{
				Tokens: 24, NanoUSD: 31_000, UnpricedCalls: 1, OverheadTokens: 7, OverheadNanoUSD: 7_000, ModelCalls: 4, ToolCalls: 1,
			}, total)
		},
		"Usage/RoundTrip": func(t *testing.T, f *fixture) {
			in := usage.Entry{
				Key:  usage.Key{RunID: "run", NodeID: "nöde#1/x", Visit: 3, Attempt: 2, Call: math.MaxInt32},
				Kind: usage.Overhead, TaskID: "tk_gone", EpicID: "ep_gone", Provider: "p", Model: "m", InputTokens: 5, CachedInputTokens: 4,
				OutputTokens: 3, ReasoningTokens: 2, Time: time.Date(2026, 1, 2, 3, 4, 5, 6_789, time.UTC), Failed: true, DurationMS: 1234,
			}
			out, err := f.RecordUsage(f.ctx, ns, []usage.Entry{in})
			require.NoError(t, err)
			in.Time, in.ID, in.Source = in.Time.Truncate(time.Microsecond), out[0].ID, usage.Executor
			require.Equal(t, in, out[0])
			rows, err := f.Entries(f.ctx, store.EntryQuery{Namespace: ns, Limit: 5})
			require.NoError(t, err)
			require.Equal(t, out, rows)
		},
		"Usage/AKeyIsBookedOnceAndTheFirstStays": func(t *testing.T, f *fixture) {
			v := f.task(t, f.epic(t, epic.Epic{}).ID)
			first, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run", 0, v.ID, 10, 0)})
			require.NoError(t, err)
			other := entry("run", 0, "", 999, 999)
			other.Model = "mystery"
			again, err := f.RecordUsage(f.ctx, ns, []usage.Entry{other, entry("run", 1, v.ID, 1, 0), entry("run", 1, v.ID, 2, 0)})
			require.NoError(t, err)
			require.Equal(t, first[0], again[0])
			require.Equal(t, again[1], again[2], "the first of one request stays too")
			require.EqualValues(t, 1, again[1].InputTokens)
			v, err = f.Task(f.ctx, ns, v.ID)
			require.NoError(t, err)
			require.EqualValues(t, 11, v.Actual.Tokens)
			require.EqualValues(t, 2, v.Actual.ModelCalls)
		},
		"Usage/AClientCannotTakeTheExecutorsPlace": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			client := access.With(f.ctx, access.Principal{Kind: access.Key, Name: "ci", Scopes: access.Scopes()})
			nothing, used := entry("run", 0, v.ID, 0, 0), entry("run", 0, v.ID, 10, 3)
			nothing.By = "me"
			for range 2 {
				out, err := f.RecordUsage(client, ns, []usage.Entry{nothing})
				require.NoError(t, err)
				require.Equal(t, []any{usage.Client, "me", "key:ci"}, []any{out[0].Source, out[0].By, out[0].Principal})
			}
			out, err := f.RecordUsage(f.ctx, ns, []usage.Entry{used})
			require.NoError(t, err)
			require.Equal(t, ptr(int64(10*1000+3*4000)), out[0].CostNanoUSD)
			require.Equal(t, []any{usage.Executor, ""}, []any{out[0].Source, out[0].Principal})
			late := entry("run", 1, v.ID, 5, 0)
			_, err = f.RecordUsage(f.ctx, ns, []usage.Entry{late})
			require.NoError(t, err)
			late.InputTokens = 0
			_, err = f.RecordUsage(client, ns, []usage.Entry{late})
			require.NoError(t, err, "it is another entry")
			v, err = f.Task(f.ctx, ns, v.ID)
			require.NoError(t, err)
			require.EqualValues(t, 18, v.Actual.Tokens)
			rows, err := f.Entries(f.ctx, store.EntryQuery{Namespace: ns, RunID: "run", Limit: 10})
			require.NoError(t, err)
			require.Len(t, rows, 4)
			f.recount(t, ns, e.ID)
		},
		"Usage/AClientsRepeatSaysTheSame": func(t *testing.T, f *fixture) {
			v := f.task(t, f.epic(t, epic.Epic{}).ID)
			client := access.With(f.ctx, access.Principal{Kind: access.Key, Name: "ci"})
			first := entry("run", 0, v.ID, 10, 3)
			want, err := f.RecordUsage(client, ns, []usage.Entry{first})
			require.NoError(t, err)
			untimed := first
			untimed.Time, untimed.Kind = time.Time{}, 0
			for _, same := range []usage.Entry{first, untimed} {
				got, err := f.RecordUsage(access.With(f.ctx, access.Principal{Kind: access.Key, Name: "other"}), ns, []usage.Entry{same, same})
				require.NoError(t, err)
				require.Equal(t, []usage.Entry{want[0], want[0]}, got)
			}
			for _, change := range []func(*usage.Entry){
				func(e *usage.Entry) { e.InputTokens++ }, func(e *usage.Entry) { e.Model = "mystery" }, func(e *usage.Entry) { e.TaskID = "" },
				func(e *usage.Entry) { e.Failed = true }, func(e *usage.Entry) { e.By = "you" }, func(e *usage.Entry) { e.Time = e.Time.Add(1000) },
				func(e *usage.Entry) { e.Kind = usage.Tool },
			} {
				other := first
				change(&other)
				_, err := f.RecordUsage(client, ns, []usage.Entry{entry("run", 1, v.ID, 1, 1), other})
				bad := requireError(t, err, errs.InvalidArgument, accounting.ReasonRequestIDReused)
				require.Equal(t, "entries[1]", bad.Violations[0].Field)
			}
			_, err = f.RecordUsage(client, ns, []usage.Entry{entry("run", 2, v.ID, 1, 1), entry("run", 2, v.ID, 2, 1)})
			requireError(t, err, errs.InvalidArgument, accounting.ReasonRequestIDReused)
			total, err := f.NamespaceTotals(f.ctx, ns)
			require.NoError(t, err)
			require.EqualValues(t, 13, total.Tokens, "what is refused books nothing")
		},
		"Usage/WhatACallSaysItCostCountsWhereNoPriceIsKnown": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			said := func(call int, model string, cost int64) usage.Entry {
				u := entry("run", call, v.ID, 10, 0)
				u.Model, u.CostNanoUSD = model, &cost
				return u
			}
			tool := said(2, "", 5)
			tool.Kind, tool.InputTokens = usage.Tool, 0
			in := []usage.Entry{said(0, "mystery", 77), said(1, "fake-model", 77), tool}
			asked, err := f.PriceUsage(f.ctx, ns, in)
			require.NoError(t, err)
			out, err := f.RecordUsage(f.ctx, ns, in)
			require.NoError(t, err)
			for i, want := range []int64{77, 10_000, 5} {
				require.Equal(t, want, *asked[i].CostNanoUSD)
				require.Equal(t, want, *out[i].CostNanoUSD)
				require.Equal(t, want == 10_000, out[i].PriceID != "")
			}
			v, err = f.Task(f.ctx, ns, v.ID)
			require.NoError(t, err)
			require.EqualValues(t, 10_082, v.Actual.NanoUSD)
			require.Zero(t, v.Actual.UnpricedCalls)
			f.recount(t, ns, e.ID)
			client := access.With(f.ctx, access.Principal{Kind: access.Key, Name: "ci"})
			for range 2 {
				_, err = f.RecordUsage(client, ns, in)
				require.NoError(t, err)
			}
			_, err = f.RecordUsage(client, ns, []usage.Entry{said(1, "fake-model", 78)})
			require.NoError(t, err, "the price book knows better")
			_, err = f.RecordUsage(client, ns, []usage.Entry{said(0, "mystery", 78)})
			requireError(t, err, errs.InvalidArgument, accounting.ReasonRequestIDReused)
		},
		"Usage/PricedByTheTimeOfTheCall": func(t *testing.T, f *fixture) {
			day := func(n int) time.Time { return time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC) }
			for n, rate := range map[int]int64{10: 2_000_000, 20: 3_000_000} {
				_, err := f.CreatePrice(f.ctx, ns, accounting.Once{}, usage.Price{Model: "fake-model", ValidFrom: day(n), Input: rate})
				require.NoError(t, err)
			}
			for i, tc := range []struct {
				at   time.Time
				want int64
			}{
				{day(9), 1000}, // the price that comes with the registry
				{day(10), 2},
				{day(20).Add(-time.Microsecond), 2},
				{day(20), 3},
				{day(25), 3},
			} {
				u := entry("run", i, "", 1, 0)
				u.Time = tc.at
				out, err := f.RecordUsage(f.ctx, ns, []usage.Entry{u})
				require.NoError(t, err)
				require.Equal(t, ptr(tc.want), out[0].CostNanoUSD, "%s", tc.at)
			}
			// A namespace without a price of its own does not see it.
			u := entry("run", 0, "", 1, 0)
			u.Time = day(25)
			out, err := f.RecordUsage(f.ctx, "other", []usage.Entry{u})
			require.NoError(t, err)
			require.Equal(t, ptr(int64(1000)), out[0].CostNanoUSD)
		},
		"Usage/OverlappingBatchesAreExact": func(t *testing.T, f *fixture) {
			e1, e2 := f.epic(t, epic.Epic{}), f.epic(t, epic.Epic{})
			tasks := []epic.Task{f.task(t, e1.ID), f.task(t, e1.ID), f.task(t, e2.ID)}
			const callers, size, keys = 12, 60, 200
			results := together(callers, func(c int) error {
				for round := range 3 {
					var batch []usage.Entry
					for i := range size {
						k := (c*37 + round*53 + i*7) % keys
						u := entry(fmt.Sprint("run", k%5), k, tasks[k%3].ID, int64(k), 1)
						if k%11 == 0 {
							u.Model = "mystery"
						}
						batch = append(batch, u)
					}
					if c%2 == 0 { // the other way round invites deadlocks
						for i, j := 0, len(batch)-1; i < j; i, j = i+1, j-1 {
							batch[i], batch[j] = batch[j], batch[i]
						}
					}
					if _, err := f.RecordUsage(f.ctx, ns, batch); err != nil {
						return err
					}
				}
				return nil
			})
			require.Equal(t, callers, count(results, succeeded), "%v", results)
			f.recount(t, ns, e1.ID)
			f.recount(t, ns, e2.ID)
			total, err := f.NamespaceTotals(f.ctx, ns)
			require.NoError(t, err)
			require.Equal(t, f.sum(t, store.EntryQuery{Namespace: ns}), total)
			require.EqualValues(t, keys, total.ModelCalls)
		},
		"Usage/CallersWithNoEpicInCommonAddUpInTheNamespace": func(t *testing.T, f *fixture) {
			results := together(16, func(c int) error {
				for i := range 10 {
					if _, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry(fmt.Sprint("run", c), i, "", 1, 0)}); err != nil {
						return err
					}
				}
				return nil
			})
			require.Equal(t, 16, count(results, succeeded), "%v", results)
			total, err := f.NamespaceTotals(f.ctx, ns)
			require.NoError(t, err)
			require.Equal(t, usage.Totals{Tokens: 160, NanoUSD: 160_000, ModelCalls: 160}, total)
		},
		"Usage/BatchOfAThousand": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			batch := make([]usage.Entry, 1000)
			for i := range batch {
				batch[i] = entry("run", i, v.ID, 1, 0)
			}
			_, err := f.RecordUsage(f.ctx, ns, batch[:500])
			require.NoError(t, err)
			out, err := f.RecordUsage(f.ctx, ns, batch)
			require.NoError(t, err)
			require.Len(t, out, 1000)
			f.recount(t, ns, e.ID)
		},
		"Usage/OverflowIsRefusedAndNothingBooked": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			big := entry("run", 0, v.ID, math.MaxInt64, 0)
			big.Model = "mystery"
			_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{big})
			require.NoError(t, err)
			one := entry("run", 1, v.ID, 1, 0)
			_, err = f.RecordUsage(f.ctx, ns, []usage.Entry{one})
			requireError(t, err, errs.InvalidArgument, usage.ReasonOutOfRange)
			f.recount(t, ns, e.ID)
			rows, err := f.Entries(f.ctx, store.EntryQuery{Namespace: ns, Limit: 10})
			require.NoError(t, err)
			require.Len(t, rows, 1)
		},
		"Usage/ACostThatDoesNotFitIsUnpriced": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			dear, said := entry("run", 0, v.ID, math.MaxInt64/4, 0), entry("run", 1, v.ID, math.MaxInt64/4, 0)
			said.CostNanoUSD = ptr(int64(77))
			in := []usage.Entry{dear, said, entry("run", 2, v.ID, 1, 0)}
			asked, err := f.PriceUsage(f.ctx, ns, in)
			require.NoError(t, err)
			out, err := f.RecordUsage(f.ctx, ns, in)
			require.NoError(t, err)
			for i, want := range []*int64{nil, ptr(int64(77)), ptr(int64(1000))} {
				require.Equal(t, want, asked[i].CostNanoUSD)
				require.Equal(t, want, out[i].CostNanoUSD)
				require.Equal(t, i == 2, out[i].PriceID != "")
			}
			v, err = f.Task(f.ctx, ns, v.ID)
			require.NoError(t, err)
			require.EqualValues(t, 1, v.Actual.UnpricedCalls)
			require.EqualValues(t, 1077, v.Actual.NanoUSD)
			f.recount(t, ns, e.ID)
		},
		"Usage/ACostThatNoSumCanHoldIsUnpriced": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			const most = 8_000_000_000_000_000 // at a thousand nano-USD each
			for i := range 2 {
				out, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run", i, v.ID, most, 0)})
				require.NoError(t, err)
				require.Equal(t, i == 0, out[0].CostNanoUSD != nil)
				require.Equal(t, i == 0, out[0].PriceID != "")
			}
			out, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run", 1, v.ID, most, 0), entry("run", 2, v.ID, 1, 0)})
			require.NoError(t, err)
			require.Nil(t, out[0].CostNanoUSD, "it stays as it was booked")
			require.NotNil(t, out[1].CostNanoUSD, "what fits is priced")
			total, err := f.NamespaceTotals(f.ctx, ns)
			require.NoError(t, err)
			require.EqualValues(t, 1, total.UnpricedCalls)
			require.EqualValues(t, most*1000+1000, total.NanoUSD)
			f.recount(t, ns, e.ID)
			client := access.With(f.ctx, access.Principal{Kind: access.Key, Name: "ci"})
			_, err = f.RecordUsage(client, ns, []usage.Entry{entry("mine", 0, v.ID, most, 0)})
			requireError(t, err, errs.InvalidArgument, usage.ReasonOutOfRange)
		},
		"Usage/AClientCannotFillTheBooks": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			client := access.With(f.ctx, access.Principal{Kind: access.Key, Name: "ci"})
			fill := entry("run", 0, v.ID, usage.ClientShare+1, 0)
			fill.Model = "mystery"
			_, err := f.RecordUsage(client, ns, []usage.Entry{fill})
			requireError(t, err, errs.InvalidArgument, usage.ReasonOutOfRange)
			fill.InputTokens = usage.ClientShare
			_, err = f.RecordUsage(client, ns, []usage.Entry{fill})
			require.NoError(t, err)
			_, err = f.RecordUsage(client, ns, []usage.Entry{entry("run", 1, v.ID, 1, 0)})
			requireError(t, err, errs.InvalidArgument, usage.ReasonOutOfRange)
			_, err = f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run", 1, v.ID, 1, 0)})
			require.NoError(t, err, "what a run has used is booked all the same")
			f.recount(t, ns, e.ID)
		},
		"List/EntriesNewestFirstAndFilters": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			var batch []usage.Entry
			for i := range 9 {
				u := entry(fmt.Sprint("run", i%2), i, "", 1, 0)
				if i%3 == 0 {
					u.TaskID = v.ID
				}
				u.Time = time.Unix(int64(i/2), 0).UTC() // two of each time
				batch = append(batch, u)
			}
			_, err := f.RecordUsage(f.ctx, ns, batch)
			require.NoError(t, err)
			var got []usage.Entry
			q := store.EntryQuery{Namespace: ns, Limit: 2}
			for {
				rows, err := f.Entries(f.ctx, q)
				require.NoError(t, err)
				got = append(got, rows...)
				if len(rows) < q.Limit {
					break
				}
				last := rows[len(rows)-1]
				q.After = page.Cursor{CreateTime: last.Time, ID: last.ID}
			}
			require.Len(t, got, 9)
			seen := map[usage.Key]bool{}
			for i, u := range got {
				require.False(t, seen[u.Key])
				seen[u.Key] = true
				require.True(t, i == 0 || !u.Time.After(got[i-1].Time))
			}
			for name, tc := range map[string]struct {
				q    store.EntryQuery
				want int
			}{
				"epic": {store.EntryQuery{EpicID: e.ID}, 3}, "task": {store.EntryQuery{TaskID: v.ID}, 3},
				"run": {store.EntryQuery{RunID: "run1"}, 4}, "both": {store.EntryQuery{RunID: "run1", TaskID: v.ID}, 1},
				"none": {store.EntryQuery{RunID: "run2"}, 0},
			} {
				tc.q.Namespace, tc.q.Limit = ns, 100
				rows, err := f.Entries(f.ctx, tc.q)
				require.NoError(t, err, name)
				require.Len(t, rows, tc.want, name)
			}
		},
	}
}

// BenchPrices books a thousand calls of as many models with the largest price book.
func BenchPrices(b *testing.B, open Open) {
	f := newFixture(b, open)
	require.NoError(b, f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
		for i := range accounting.DefaultBounds().Prices {
			p, err := usage.NewPrice(ns, usage.Price{Model: fmt.Sprintf("price-%d*", i), Input: 1})
			if err != nil {
				return err
			}
			if err := tx.InsertPrice(ctx, p); err != nil {
				return err
			}
		}
		return nil
	}))
	n := 0
	for b.Loop() {
		batch := make([]usage.Entry, 1000)
		for i := range batch {
			batch[i] = entry("run", n, "", 1, 1)
			batch[i].Model = fmt.Sprintf("model-%d", i)
			n++
		}
		_, err := f.RecordUsage(f.ctx, ns, batch)
		require.NoError(b, err)
	}
}
