package storetest

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// reportKeys are all keys of reports.
func reportKeys() []usage.ReportKey {
	return []usage.ReportKey{usage.ByEpic, usage.ByTask, usage.ByRun, usage.ByNode, usage.ByActor, usage.ByModel, usage.ByDay}
}

func reportCases() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"Report/EveryGroupingEqualsTheSumOfItsEntries": func(t *testing.T, f *fixture) {
			entries := f.booked(t, 400)
			for _, filter := range filters(entries) {
				for _, a := range reportKeys() {
					for _, b := range append(reportKeys(), 0) {
						if q := filter; a != b {
							q.By = slices.DeleteFunc([]usage.ReportKey{a, b}, func(k usage.ReportKey) bool { return k == 0 })
							f.reports(t, q, entries)
						}
					}
				}
			}
		},
		"Report/PagesHoldEachGroupOnce": func(t *testing.T, f *fixture) {
			entries := f.booked(t, 120)
			q := store.ReportQuery{Namespace: ns, By: []usage.ReportKey{usage.ByRun, usage.ByModel}, Limit: 1000}
			whole, err := f.Report(f.ctx, q)
			require.NoError(t, err)
			require.Len(t, reference(q, entries), len(whole.Rows))
			var got []usage.Report
			q.Limit = 1
			for i := range whole.Rows {
				// Some groups cost the same: the place says how many of those to skip.
				part, err := f.Report(f.ctx, q)
				require.NoError(t, err)
				require.Equal(t, whole.All, part.All, "page %d", i)
				got = append(got, part.Rows...)
				place := store.ReportPlace{NanoUSD: part.Rows[0].NanoUSD, Skip: 1}
				if q.After != nil && q.After.NanoUSD == place.NanoUSD {
					place.Skip = q.After.Skip + 1
				}
				q.After = &place
			}
			require.Equal(t, whole.Rows, got)
			last, err := f.Report(f.ctx, q)
			require.NoError(t, err)
			require.Empty(t, last.Rows)
		},
		"Report/OfNothingIsEmpty": func(t *testing.T, f *fixture) {
			for _, k := range reportKeys() {
				got, err := f.Report(f.ctx, store.ReportQuery{Namespace: ns, By: []usage.ReportKey{k}, Limit: 10})
				require.NoError(t, err)
				require.Empty(t, got.Rows)
				require.Zero(t, got.All)
			}
		},
		"Report/ReadsNoMoreEntriesThanItMay": func(t *testing.T, f *fixture) {
			for i := range 3 {
				_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run", i, "", 1, 1)})
				require.NoError(t, err)
			}
			q := store.ReportQuery{Namespace: ns, By: []usage.ReportKey{usage.ByRun}, Limit: 10, Most: 2}
			_, err := f.Report(f.ctx, q)
			requireError(t, err, errs.FailedPrecondition, usage.ReasonReportTooLarge)
			q.Most = 3
			_, err = f.Report(f.ctx, q)
			require.NoError(t, err)
			q.By, q.Most = []usage.ReportKey{usage.ByModel, usage.ByDay}, 1
			_, err = f.Report(f.ctx, q)
			require.NoError(t, err, "sums of days have no such bound")
		},
		"Report/CallsThatWereNotBookedDoNotCount": func(t *testing.T, f *fixture) {
			for range 2 {
				_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run", 0, "", 5, 1), entry("run", 0, "", 7, 1)})
				require.NoError(t, err)
			}
			for _, by := range []usage.ReportKey{usage.ByModel, usage.ByRun} {
				got, err := f.Report(f.ctx, store.ReportQuery{Namespace: ns, By: []usage.ReportKey{by}, Limit: 10})
				require.NoError(t, err)
				require.EqualValues(t, 1, got.All.Calls)
				require.EqualValues(t, 5, got.All.InputTokens)
			}
		},
		"Report/OfAnEpicByTaskReadsSumsOfRuns": func(t *testing.T, f *fixture) {
			v := f.task(t, f.epic(t, epic.Epic{}).ID)
			for call := range 5 {
				_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry("a", call, v.ID, 10, 1), entry("b", call, v.ID, 10, 1)})
				require.NoError(t, err)
			}
			q := store.ReportQuery{Namespace: ns, EpicID: v.EpicID, By: []usage.ReportKey{usage.ByTask, usage.ByRun}, Limit: 10, Most: 2}
			got, err := f.Report(f.ctx, q)
			require.NoError(t, err, "ten entries are two sums")
			require.Equal(t, []int64{5, 5, 10}, []int64{got.Rows[0].Calls, got.Rows[1].Calls, got.All.Calls})
			q.Most = 1
			_, err = f.Report(f.ctx, q)
			requireError(t, err, errs.FailedPrecondition, usage.ReasonReportTooLarge)
			q.Most, q.By = 9, []usage.ReportKey{usage.ByTask, usage.ByDay}
			_, err = f.Report(f.ctx, q)
			requireError(t, err, errs.FailedPrecondition, usage.ReasonReportTooLarge)
		},
		"Report/ByNodeReadsSumsOfNodes": func(t *testing.T, f *fixture) {
			v := f.task(t, f.epic(t, epic.Epic{}).ID)
			for call := range 5 {
				other := entry("b", call, v.ID, 10, 1)
				other.NodeID = "other"
				_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry("a", call, v.ID, 10, 1), other})
				require.NoError(t, err)
			}
			for _, of := range []string{"", v.EpicID} {
				q := store.ReportQuery{Namespace: ns, EpicID: of, By: []usage.ReportKey{usage.ByNode, usage.ByDay}, Limit: 10, Most: 2}
				got, err := f.Report(f.ctx, q)
				require.NoError(t, err, "ten entries are two sums")
				require.Equal(t, []int64{5, 5, 10}, []int64{got.Rows[0].Calls, got.Rows[1].Calls, got.All.Calls})
				q.Most = 1
				_, err = f.Report(f.ctx, q)
				requireError(t, err, errs.FailedPrecondition, usage.ReasonReportTooLarge)
				q.Most, q.By = 9, []usage.ReportKey{usage.ByNode, usage.ByModel}
				_, err = f.Report(f.ctx, q)
				requireError(t, err, errs.FailedPrecondition, usage.ReasonReportTooLarge)
			}
		},
		"Report/OfAnotherNamespaceIsNotSeen": func(t *testing.T, f *fixture) {
			f.booked(t, 20)
			for _, by := range reportKeys() {
				got, err := f.Report(f.ctx, store.ReportQuery{Namespace: "other", By: []usage.ReportKey{by}, Limit: 10})
				require.NoError(t, err)
				require.Empty(t, got.Rows)
			}
		},
		"Prices/AnImportIsWholeOrNothingAndRepeatsWell": func(t *testing.T, f *fixture) {
			a := usage.Price{Provider: "p", Model: "a", ValidFrom: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Input: 1, CachedInput: ptr(int64(0)), Output: 2}
			b := a
			b.Model = "b"
			for _, want := range []int{2, 0} {
				added, err := f.ImportPrices(f.ctx, ns, []usage.Price{b, a})
				require.NoError(t, err)
				require.Equal(t, want, added)
			}
			require.Len(t, f.told(t, 0), 2, "each new price is an event")
			fresh, other := a, a
			fresh.Model, other.CachedInput = "c", nil
			_, err := f.ImportPrices(f.ctx, ns, []usage.Price{b, fresh, other})
			refused := requireError(t, err, errs.AlreadyExists, store.ReasonPriceExists)
			require.Len(t, refused.Violations, 1)
			require.Equal(t, "prices[2]", refused.Violations[0].Field)
			fresh.Input = usage.MaxRate + 1
			_, err = f.ImportPrices(f.ctx, ns, []usage.Price{b, fresh})
			requireError(t, err, errs.InvalidArgument, usage.ReasonOutOfRange)
			rows, err := f.Prices(f.ctx, store.PriceQuery{Namespace: ns, Provider: "p", Limit: 10})
			require.NoError(t, err)
			require.Len(t, rows, 2, "nothing of a refused import is left")
		},
		"Prices/AnImportKeepsTheBound": func(t *testing.T, f *fixture) {
			few := f.Within(accounting.Bounds{Prices: 2})
			p := func(model string) usage.Price {
				return usage.Price{Provider: "p", Model: model, ValidFrom: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
			}
			_, err := few.ImportPrices(f.ctx, ns, []usage.Price{p("a"), p("b"), p("c")})
			requireError(t, err, errs.ResourceExhausted, accounting.ReasonTooManyPrices)
			for range 2 {
				_, err = few.ImportPrices(f.ctx, ns, []usage.Price{p("a"), p("b")})
				require.NoError(t, err)
			}
		},
		"Report/ReversalsTakeEstimatesBack": func(t *testing.T, f *fixture) {
			e := entry("run", 0, "", 10, 0)
			e.Source, e.ID, e.CostNanoUSD = usage.Estimate, "us_1", ptr(int64(9))
			sums, err := usage.DaySums([]usage.Entry{e, e.Reversed()})
			require.NoError(t, err)
			require.Len(t, sums, 2)
			for _, s := range sums {
				require.Zero(t, s.Sum)
			}
		},
	}
}

// booked books random entries of some epics, tasks, runs, nodes, actors, models, kinds and days.
func (f *fixture) booked(t *testing.T, n int) (out []usage.Entry) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	tasks := []string{""}
	for range 2 {
		e := f.epic(t, epic.Epic{})
		tasks = append(tasks, f.task(t, e.ID).ID, f.task(t, e.ID).ID)
	}
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	for at := 0; at < n; at += 50 {
		var batch []usage.Entry
		for i := range min(50, n-at) {
			e := entry("run_"+pick("a", "b", "ä", "C"), at+i, pick(tasks...), r.Int64N(1000), r.Int64N(1000))
			e.CachedInputTokens, e.ReasoningTokens = r.Int64N(1200), r.Int64N(1200)
			e.NodeID, e.Actor, e.Model = pick("n", "m#2"), pick("", "llm", "agent"), pick("fake-model", "mystery", "gpt-4o")
			e.Kind, e.Failed = usage.Kind(1+r.IntN(3)), r.IntN(4) == 0
			e.Time = time.Date(2026, 1, 1, 23, 59, 59, 999_999_000, time.UTC).Add(time.Duration(r.IntN(5)) * 12 * time.Hour)
			if r.IntN(20) == 0 {
				e.Time = time.Date(1969, 12, 31, 23, 0, 0, 0, time.UTC)
			}
			if e.Kind == usage.Tool {
				e.Model, e.InputTokens, e.OutputTokens = "search", r.Int64N(2), 0
			}
			batch = append(batch, e)
		}
		booked, err := f.RecordUsage(f.ctx, ns, batch)
		require.NoError(t, err)
		out = append(out, booked...)
	}
	return out
}

// filters are no filter, one of each kind, and some together.
func filters(entries []usage.Entry) []store.ReportQuery {
	paid := entries[slices.IndexFunc(entries, func(e usage.Entry) bool { return e.TaskID != "" })]
	day := func(y int, m time.Month, d int) *usage.Day {
		v, _ := usage.ParseDay("", time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Format(time.DateOnly))
		return &v
	}
	return []store.ReportQuery{
		{},
		{EpicID: paid.EpicID},
		{TaskID: paid.TaskID},
		{RunID: paid.RunID},
		{Kind: usage.Overhead},
		{From: day(2026, 1, 2)},
		{To: day(1969, 12, 31)},
		{From: day(2026, 1, 2), To: day(2026, 1, 3), Kind: usage.Model},
		{EpicID: paid.EpicID, RunID: paid.RunID, From: day(2026, 1, 1), To: day(2026, 1, 2)},
		{TaskID: paid.TaskID, EpicID: paid.EpicID, Kind: usage.Tool},
		{EpicID: "ep_none"},
	}
}

// reports compares a report with one that is made of all entries.
func (f *fixture) reports(t *testing.T, q store.ReportQuery, entries []usage.Entry) {
	t.Helper()
	q.Namespace, q.Limit = ns, 1000
	got, err := f.Report(f.ctx, q)
	require.NoError(t, err, "%+v", q)
	want := reference(q, entries)
	require.Equal(t, want, got.Rows, "%+v", q)
	require.EqualValues(t, len(want), got.Groups)
	var all usage.Sum
	for _, r := range want {
		all = added(all, r.Sum)
	}
	require.Equal(t, all, got.All, "%+v", q)
}

func reference(q store.ReportQuery, entries []usage.Entry) []usage.Report {
	groups := map[string]usage.Sum{}
	for _, e := range entries {
		day := int64(e.Time.Sub(time.Unix(0, 0)) / (24 * time.Hour))
		if e.Time.Before(time.Unix(0, 0)) {
			day--
		}
		if q.EpicID != "" && e.EpicID != q.EpicID || q.TaskID != "" && e.TaskID != q.TaskID || q.RunID != "" && e.RunID != q.RunID ||
			q.Kind != 0 && e.Kind != q.Kind || q.From != nil && day < int64(*q.From) || q.To != nil && day > int64(*q.To) {
			continue
		}
		var keys []string
		for _, k := range q.By {
			keys = append(keys, map[usage.ReportKey]string{usage.ByEpic: e.EpicID, usage.ByTask: e.TaskID, usage.ByRun: e.RunID, usage.ByNode: e.NodeID,
				usage.ByActor: e.Actor, usage.ByModel: e.Model, usage.ByDay: strconv.FormatInt(day, 10)}[k])
		}
		one := usage.Sum{
			Calls: 1, InputTokens: e.InputTokens, CachedInputTokens: min(e.CachedInputTokens, e.InputTokens), OutputTokens: e.OutputTokens,
			ReasoningTokens: min(e.ReasoningTokens, e.OutputTokens),
		}
		if e.Failed {
			one.FailedCalls = 1
		}
		if e.CostNanoUSD != nil {
			one.NanoUSD = *e.CostNanoUSD
		} else if e.Kind != usage.Tool || e.InputTokens+e.OutputTokens > 0 {
			one.UnpricedCalls = 1
		}
		name := strings.Join(keys, "\x00")
		groups[name] = added(groups[name], one)
	}
	var out []usage.Report
	for name, sum := range groups {
		out = append(out, usage.Report{Keys: strings.Split(name, "\x00"), Sum: sum})
	}
	slices.SortFunc(out, func(a, b usage.Report) int {
		return cmp.Or(cmp.Compare(b.NanoUSD, a.NanoUSD), slices.Compare(a.Keys, b.Keys))
	})
	return out
}

func added(a, b usage.Sum) usage.Sum {
	return usage.Sum{
		Calls: a.Calls + b.Calls, FailedCalls: a.FailedCalls + b.FailedCalls, UnpricedCalls: a.UnpricedCalls + b.UnpricedCalls,
		InputTokens: a.InputTokens + b.InputTokens, CachedInputTokens: a.CachedInputTokens + b.CachedInputTokens,
		OutputTokens: a.OutputTokens + b.OutputTokens, ReasoningTokens: a.ReasoningTokens + b.ReasoningTokens, NanoUSD: a.NanoUSD + b.NanoUSD,
	}
}
