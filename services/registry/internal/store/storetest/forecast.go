package storetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/internal/cataloging"
	"github.com/epigraph-run/epigraph/services/registry/internal/feed"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// ended is the end of a run of w@1, with what it used.
func ended(n int64, h catalog.History) cataloging.RunChange {
	h.NanoUSD, h.Tokens = n, 10*n
	took := time.Duration(n) * time.Second
	return cataloging.RunChange{RunID: fmt.Sprint("run_", n), Kind: feed.RunEnded, Seq: 2, Ref: catalog.Ref{Name: "w", Version: 1}, History: h, Whole: true, Sampled: catalog.Sampled{Duration: &took}}
}

func (f *fixture) samples(t testing.TB, w catalog.Workflow) (out []catalog.Sample) {
	t.Helper()
	require.NoError(t, f.store.View(f.ctx, ns, func(ctx context.Context, r store.Reader) (err error) {
		out, err = r.Samples(ctx, ns, w.ID, 1)
		return err
	}))
	return out
}

func workflowSamples(t *testing.T, f *fixture) {
	w := f.workflow(t, "w")
	canceled := ended(1, catalog.History{Canceled: 1})
	unpriced := ended(2, catalog.History{Failed: 1})
	unpriced.Sampled.UnpricedCalls = 3
	unknown := ended(3, catalog.History{Completed: 1})
	unknown.Whole, unknown.Sampled.Duration = false, nil
	for range 2 { // told twice
		_, err := f.catalog.RecordChanges(f.ctx, ns, []cataloging.RunChange{canceled, unpriced, unknown})
		require.NoError(t, err)
	}
	got := f.samples(t, w)
	slices.SortFunc(got, func(a, b catalog.Sample) int { return cmp.Compare(fmt.Sprint(b.Failed), fmt.Sprint(a.Failed)) })
	require.Equal(t, []catalog.Sample{{Failed: true, Unpriced: true, Tokens: ptr(int64(20)), DurationMS: ptr(int64(2000))}, {}}, got)

	var many []cataloging.RunChange
	for i := range int64(catalog.MaxSamples + 50) {
		many = append(many, ended(100+i, catalog.History{Completed: 1}))
	}
	for _, some := range [][]cataloging.RunChange{many[:30], many[30:]} {
		_, err := f.catalog.RecordChanges(f.ctx, ns, some)
		require.NoError(t, err)
	}
	got = f.samples(t, w)
	require.Len(t, got, catalog.MaxSamples)
	slices.SortFunc(got, func(a, b catalog.Sample) int { return cmp.Compare(*a.NanoUSD, *b.NanoUSD) })
	require.Equal(t, []int64{150, 349}, []int64{*got[0].NanoUSD, *got[len(got)-1].NanoUSD}, "the oldest made room")
}

func workflowForecast(t *testing.T, f *fixture) {
	f.workflow(t, "w")
	ref := catalog.Ref{Name: "w"}
	none, at, err := f.catalog.Forecast(f.ctx, ns, ref, "")
	require.NoError(t, err)
	require.Equal(t, []any{"w@1", catalog.FromGraph, ptr(int64(5))}, []any{at, none.Basis, none.Tokens.Budget})
	require.Equal(t, []*int64{nil, nil, nil}, []*int64{none.Cost.P50, none.Tokens.P90, none.DurationMS.P50}, "unknown is not 0")
	runs := []cataloging.RunChange{}
	for i := range int64(10) {
		runs = append(runs, ended(i+1, catalog.History{Completed: 1}))
	}
	runs[9].History = catalog.History{Failed: 1, NanoUSD: 10, Tokens: 100}
	runs[0].Sampled.UnpricedCalls = 1
	_, err = f.catalog.RecordChanges(f.ctx, ns, runs)
	require.NoError(t, err)
	got, _, err := f.catalog.Forecast(f.ctx, ns, ref, "")
	require.NoError(t, err)
	require.Equal(t, []any{catalog.FromHistory, 10, 1, 1}, []any{got.Basis, got.Runs, got.Failed, got.Unpriced})
	for _, c := range []struct {
		what     string
		a        catalog.Amount
		p50, p90 int64
		runs     int
	}{{"cost", got.Cost, 6, 10, 9}, {"tokens", got.Tokens, 50, 90, 10}, {"time", got.DurationMS, 5000, 9000, 10}} {
		require.Equal(t, []any{c.p50, c.p90, c.runs}, []any{*c.a.P50, *c.a.P90, c.a.Runs}, c.what)
	}
	_, _, err = f.catalog.Forecast(f.ctx, "other", ref, "")
	requireError(t, err, errs.NotFound, store.ReasonWorkflowNotFound)
	_, _, err = f.catalog.Forecast(f.ctx, ns, catalog.Ref{Name: "w", Version: 9}, "")
	requireError(t, err, errs.NotFound, store.ReasonVersionNotFound)
}

// graphByCalls forecasts a text before and after calls of its model were booked.
func graphByCalls(t *testing.T, f *fixture) {
	draft := cataloging.Draft{Form: catalog.Graph, Source: `{"nodes": [{"id": "a", "actor": "llm", "named": {"model": "m"}}, {"id": "b", "actor": "cel", "named": {"expr": "1"}}], "edges": [{"from": "a", "to": "b"}]}`}
	got, err := f.catalog.ForecastText(f.ctx, ns, draft)
	require.NoError(t, err)
	require.Nil(t, got.Tokens.P50, "nothing tells: %v", got.Notes)
	require.Nil(t, got.DurationMS.P50)
	for i := range int64(10) {
		e := entry("run", int(i), "", 10*(i+1), 0)
		e.Actor, e.Model, e.DurationMS = "llm", "m", 100*(i+1)
		_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{e})
		require.NoError(t, err)
	}
	got, err = f.catalog.ForecastText(f.ctx, ns, draft)
	require.NoError(t, err)
	require.NotNil(t, got.Tokens.P50, "%v", got.Notes)
	require.Equal(t, []int64{50, 90, 500, 900}, []int64{*got.Tokens.P50, *got.Tokens.P90, *got.DurationMS.P50, *got.DurationMS.P90})
	other, err := f.catalog.ForecastText(f.ctx, "other", draft)
	require.NoError(t, err)
	require.Nil(t, other.Tokens.P50, "calls of another namespace tell nothing")
}
