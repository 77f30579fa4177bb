package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/internal/cataloging"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/feed"
	"github.com/epigraph-run/epigraph/services/registry/internal/request"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
	"github.com/epigraph-run/epigraph/workflow/discover"
)

// draft is a definition of one step that says a text.
func draft(name, says string) cataloging.Draft {
	return cataloging.Draft{Form: catalog.Definition, Source: fmt.Sprintf("name: %q\ntags: [one, two]\ndescription: says %s\nbudget: {tokens: 5}\nsteps:\n  - {id: say, type: reply_chat, message: %q}\n", name, says, says)}
}

func (f *fixture) workflow(t testing.TB, name string) catalog.Workflow {
	t.Helper()
	w, err := f.catalog.Create(f.ctx, ns, request.Once{}, draft(name, "hello"), "")
	require.NoError(t, err)
	return w
}

func workflowCases() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"Workflow/CreateAndRead":              workflowCreated,
		"Workflow/SlugsAreNumbered":           workflowSlugs,
		"Workflow/SameTextIsTheSameVersion":   workflowSame,
		"Workflow/VersionsNeverChange":        workflowVersions,
		"Workflow/AliasesShareByWeight":       workflowAliases,
		"Workflow/RequestsAreRepeatable":      workflowRepeated,
		"Workflow/EtagsGuardChanges":          workflowEtags,
		"Workflow/DeletedIsGoneAndKeepsSlug":  workflowDeleted,
		"Workflow/Exposed":                    workflowExposed,
		"Workflow/DeprecatedRunsOn":           workflowDeprecated,
		"Workflow/ListByPageStateAndTag":      workflowList,
		"Workflow/NamespacesAreApart":         workflowNamespaces,
		"Workflow/RunsCountOnce":              workflowRuns,
		"Workflow/SamplesAreTheNewestRuns":    workflowSamples,
		"Workflow/ForecastByBookedCalls":      graphByCalls,
		"Workflow/ForecastOfRunsAndOfGraphs":  workflowForecast,
		"Workflow/ChangesAreInOrderOfCommits": workflowChanges,
		"Workflow/BoundsHold":                 workflowBounds,
		"Workflow/GraphsAreVersionsToo":       workflowGraph,
		"Workflow/DiscoverSeesEveryChange":    workflowDiscovered,
	}
}

func workflowCreated(t *testing.T, f *fixture) {
	w := f.workflow(t, "Hello World!")
	require.Equal(t, "hello-world", w.Slug)
	require.Equal(t, []string{"one", "two"}, w.Tags)
	for _, name := range []string{w.Slug, w.ID} {
		got, err := f.catalog.Get(f.ctx, ns, name)
		require.NoError(t, err)
		require.Equal(t, w, got)
	}
	got, v, err := f.catalog.Resolve(f.ctx, ns, catalog.Ref{Name: w.Slug}, "")
	require.NoError(t, err)
	require.Equal(t, w, got)
	require.Equal(t, draft("Hello World!", "hello").Source, v.Source)
	require.Equal(t, int64(1), v.Number)
	require.Equal(t, ptr(int64(5)), v.BudgetTokens)
	g, err := v.Unpack()
	require.NoError(t, err)
	hash, err := g.Hash()
	require.NoError(t, err)
	require.Equal(t, v.GraphHash, hash)
	require.Equal(t, catalog.Extent{Nodes: int32(len(g.Nodes)), Edges: int32(len(g.Edges))}, v.Extent)

	_, err = f.catalog.Create(f.ctx, ns, request.Once{}, cataloging.Draft{Form: catalog.Definition, Source: "name: x\nsteps:\n  - {id: a, type: nope}\n  - {id: a, type: wait}\nmore: 1\n"}, "")
	bad := requireError(t, err, errs.InvalidArgument, catalog.ReasonInvalid)
	require.GreaterOrEqual(t, len(bad.Violations), 3, "every fault at once: %v", bad)
	_, err = f.catalog.Get(f.ctx, ns, "nothing")
	requireError(t, err, errs.NotFound, store.ReasonWorkflowNotFound)
	_, _, err = f.catalog.Resolve(f.ctx, ns, catalog.Ref{Name: w.Slug, Version: 7}, "")
	requireError(t, err, errs.NotFound, store.ReasonVersionNotFound)
}

func workflowSlugs(t *testing.T, f *fixture) {
	require.Equal(t, "report", f.workflow(t, "Report").Slug)
	require.Equal(t, "report-2", f.workflow(t, "report").Slug)
	require.Equal(t, "report-3", f.workflow(t, "Report!").Slug)
	require.Equal(t, "report-4", f.workflow(t, "Report 4").Slug, "a name may end in a number")
	require.Equal(t, "report-5", f.workflow(t, "Report").Slug)
	require.Equal(t, "workflow", f.workflow(t, "???").Slug)
	_, err := f.catalog.Create(f.ctx, ns, request.Once{}, draft("x", "x"), "report")
	requireError(t, err, errs.AlreadyExists, catalog.ReasonSlugTaken)
	_, err = f.catalog.Create(f.ctx, ns, request.Once{}, draft("x", "x"), "wf_x")
	requireError(t, err, errs.InvalidArgument, catalog.ReasonSlugInvalid)
	for _, err := range together(8, func(int) error {
		_, err := f.catalog.Create(f.ctx, ns, request.Once{}, draft("Same", "x"), "")
		return err
	}) {
		require.NoError(t, err)
	}
	_, err = f.catalog.Get(f.ctx, ns, "same-8")
	require.NoError(t, err, "eight at once have eight slugs")
}

func (f *fixture) version(t testing.TB, w catalog.Workflow, says string) int64 {
	t.Helper()
	_, v, err := f.catalog.AddVersion(f.ctx, ns, w.Slug, request.Change{}, draft(w.Name, says))
	require.NoError(t, err)
	return v.Number
}

func workflowSame(t *testing.T, f *fixture) {
	w := f.workflow(t, "w")
	require.Equal(t, int64(2), f.version(t, w, "two"))
	require.Equal(t, int64(1), f.version(t, w, "hello"), "the text of version 1")
	require.Equal(t, int64(2), f.version(t, w, "two"))
	got, err := f.catalog.Get(f.ctx, ns, w.Slug)
	require.NoError(t, err)
	require.Equal(t, []int64{2, 2, 2}, []int64{got.Latest, int64(got.Versions), got.Revision}, "the same text changes nothing")
	require.Equal(t, "says two", got.Description)
}

func workflowVersions(t *testing.T, f *fixture) {
	w := f.workflow(t, "w")
	for i := range 4 {
		f.version(t, w, fmt.Sprint(i))
	}
	add := func(n int64, says string) error {
		d := draft("w", says)
		d.Number = n
		_, _, err := f.catalog.AddVersion(f.ctx, ns, w.Slug, request.Change{}, d)
		return err
	}
	requireError(t, add(5, "five"), errs.AlreadyExists, catalog.ReasonVersionTaken)
	require.NoError(t, add(9, "nine"))
	numbers := []int64(nil)
	for before := int64(0); ; {
		_, rows, err := f.catalog.Versions(f.ctx, ns, w.Slug, before, 4)
		require.NoError(t, err)
		if len(rows) == 0 {
			break
		}
		for _, v := range rows {
			numbers = append(numbers, v.Number)
			require.Empty(t, v.Source)
			before = v.Number
		}
	}
	require.Equal(t, []int64{9, 5, 4, 3, 2, 1}, numbers)
	_, v, err := f.catalog.Resolve(f.ctx, ns, catalog.Ref{Name: w.ID, Version: 1}, "")
	require.NoError(t, err)
	require.Equal(t, draft("w", "hello").Source, v.Source)
}

func workflowAliases(t *testing.T, f *fixture) {
	w := f.workflow(t, "w")
	f.version(t, w, "two")
	set := func(alias string, to ...catalog.Weight) (catalog.Workflow, error) {
		return f.catalog.SetAlias(f.ctx, ns, w.Slug, request.Change{}, alias, to)
	}
	_, err := set("prod", catalog.Weight{Version: 3})
	requireError(t, err, errs.NotFound, store.ReasonVersionNotFound)
	_, err = set("prod", catalog.Weight{Version: 1}, catalog.Weight{Version: 1})
	requireError(t, err, errs.InvalidArgument, catalog.ReasonAliasInvalid)
	got, err := set("prod", catalog.Weight{Version: 1, Weight: 90}, catalog.Weight{Version: 2, Weight: 10})
	require.NoError(t, err)
	_, err = set("beta", catalog.Weight{Version: 2})
	require.NoError(t, err)
	require.Equal(t, w.Latest+1, got.Latest)

	ref, err := catalog.ParseRef("w@prod")
	require.NoError(t, err)
	counts := map[int64]int{}
	for i := range 200 {
		key := fmt.Sprint("user ", i)
		_, a, err := f.catalog.Resolve(f.ctx, ns, ref, key)
		require.NoError(t, err)
		_, b, err := f.catalog.Resolve(f.ctx, ns, ref, key)
		require.NoError(t, err)
		require.Equal(t, a.Number, b.Number, "a key sticks")
		counts[a.Number]++
	}
	// 20 of 200 by the weights; the ids of workflows differ from run to run, and one in a million is
	// beyond these.
	require.Greater(t, counts[2], 2)
	require.Less(t, counts[2], 50)

	_, err = f.catalog.DeleteAlias(f.ctx, ns, w.Slug, "", "nope")
	requireError(t, err, errs.NotFound, catalog.ReasonAliasNotFound)
	got, err = f.catalog.DeleteAlias(f.ctx, ns, w.Slug, "", "prod")
	require.NoError(t, err)
	require.Equal(t, []catalog.Alias{{Name: "beta", Versions: []catalog.Weight{{Version: 2, Weight: 1}}}}, got.Aliases)
	_, _, err = f.catalog.Resolve(f.ctx, ns, ref, "")
	requireError(t, err, errs.NotFound, catalog.ReasonAliasNotFound)
}

func workflowRepeated(t *testing.T, f *fixture) {
	o := request.Once{ID: "r", BodyHash: [32]byte{1}}
	a, err := f.catalog.Create(f.ctx, ns, o, draft("w", "hello"), "")
	require.NoError(t, err)
	b, err := f.catalog.Create(f.ctx, ns, o, draft("w", "hello"), "")
	require.NoError(t, err)
	require.Equal(t, a, b)
	_, err = f.catalog.Create(f.ctx, ns, request.Once{ID: "r", BodyHash: [32]byte{2}}, draft("w", "other"), "")
	requireError(t, err, errs.InvalidArgument, request.ReasonReused)
	for range 2 {
		got, err := f.catalog.Deprecate(f.ctx, ns, "w", request.Change{Once: o, Etag: a.Etag()}, "old", false)
		require.NoError(t, err)
		require.Equal(t, int64(2), got.Revision)
	}
}

func workflowEtags(t *testing.T, f *fixture) {
	w := f.workflow(t, "w")
	_, err := f.catalog.Deprecate(f.ctx, ns, "w", request.Change{Etag: w.Etag()}, "", false)
	require.NoError(t, err)
	_, err = f.catalog.Deprecate(f.ctx, ns, "w", request.Change{Etag: w.Etag()}, "", true)
	requireError(t, err, errs.Conflict, epic.ReasonEtagMismatch)
	requireError(t, f.catalog.Delete(f.ctx, ns, "w", w.Etag()), errs.Conflict, epic.ReasonEtagMismatch)
	_, _, err = f.catalog.AddVersion(f.ctx, ns, "w", request.Change{Etag: w.Etag()}, draft("w", "two"))
	requireError(t, err, errs.Conflict, epic.ReasonEtagMismatch)
	wins := count(together(8, func(i int) error {
		_, _, err := f.catalog.AddVersion(f.ctx, ns, "w", request.Change{Etag: `"2"`}, draft("w", fmt.Sprint("v", i)))
		return err
	}), succeeded)
	require.Equal(t, 1, wins)
}

func workflowDeleted(t *testing.T, f *fixture) {
	w := f.workflow(t, "w")
	require.NoError(t, f.catalog.Delete(f.ctx, ns, "w", ""))
	for _, name := range []string{w.Slug, w.ID} {
		_, err := f.catalog.Get(f.ctx, ns, name)
		requireError(t, err, errs.NotFound, store.ReasonWorkflowNotFound)
	}
	found, err := f.catalog.List(f.ctx, store.WorkflowQuery{Namespace: ns, Limit: 10})
	require.NoError(t, err)
	require.Empty(t, found.Rows)
	require.Equal(t, "w-2", f.workflow(t, "w").Slug, "w@1 stays what it was")
	_, err = f.catalog.Create(f.ctx, ns, request.Once{}, draft("w", "x"), "w")
	requireError(t, err, errs.AlreadyExists, catalog.ReasonSlugTaken)

	n, _, err := f.store.SweepWorkflows(f.ctx, dbkit.Now().Add(-time.Hour), dbkit.Now())
	require.NoError(t, err)
	require.Zero(t, n)
	n, _, err = f.store.SweepWorkflows(f.ctx, dbkit.Now().Add(time.Hour), dbkit.Now())
	require.NoError(t, err)
	require.Equal(t, int64(1), n, "w-2 is not deleted")
	_, err = f.catalog.Create(f.ctx, ns, request.Once{}, draft("w", "x"), "w")
	require.NoError(t, err)
}

func workflowDeprecated(t *testing.T, f *fixture) {
	f.workflow(t, "w")
	got, err := f.catalog.Deprecate(f.ctx, ns, "w", request.Change{}, "use v", false)
	require.NoError(t, err)
	require.Equal(t, catalog.Deprecated, got.State)
	w, _, err := f.catalog.Resolve(f.ctx, ns, catalog.Ref{Name: "w"}, "")
	require.NoError(t, err)
	require.Equal(t, "use v", w.Deprecation)
	got, err = f.catalog.Deprecate(f.ctx, ns, "w", request.Change{}, "", true)
	require.NoError(t, err)
	require.Equal(t, catalog.Active, got.State)
	require.Empty(t, got.Deprecation)
}

func workflowExposed(t *testing.T, f *fixture) {
	f.workflow(t, "w")
	f.workflow(t, "v")
	expose := func(version string, undo bool) (catalog.Workflow, error) {
		return f.catalog.Expose(f.ctx, ns, "w", request.Change{}, version, undo)
	}
	exposed := func() (out []string) {
		found, err := f.catalog.List(f.ctx, store.WorkflowQuery{Namespace: ns, Exposed: true, Limit: 10})
		require.NoError(t, err)
		for _, w := range found.Rows {
			out = append(out, w.Slug+"@"+w.Exposed)
		}
		return out
	}
	require.Empty(t, exposed())
	_, err := expose("", false)
	require.NoError(t, err)
	require.Equal(t, []string{"w@latest"}, exposed())
	_, err = expose("2", false)
	require.Equal(t, store.ReasonVersionNotFound, errs.ReasonOf(err))
	_, err = expose("prod", false)
	require.Equal(t, catalog.ReasonAliasNotFound, errs.ReasonOf(err))
	require.Equal(t, []string{"w@latest"}, exposed(), "what was refused changes nothing")
	_, err = f.catalog.SetAlias(f.ctx, ns, "w", request.Change{}, catalog.Latest, []catalog.Weight{{Version: 1}})
	require.Equal(t, catalog.ReasonAliasInvalid, errs.ReasonOf(err))
	_, err = f.catalog.SetAlias(f.ctx, ns, "w", request.Change{}, "prod", []catalog.Weight{{Version: 1}})
	require.NoError(t, err)
	_, err = expose("prod", false)
	require.NoError(t, err)
	_, err = f.catalog.DeleteAlias(f.ctx, ns, "w", "", "prod")
	require.Equal(t, catalog.ReasonAliasExposed, errs.ReasonOf(err))
	_, err = expose("01", false)
	require.NoError(t, err)
	require.Equal(t, []string{"w@1"}, exposed())
	got, err := expose("", true)
	require.NoError(t, err)
	require.Empty(t, got.Exposed)
	require.Empty(t, exposed())
	for i := range catalog.MaxExposed {
		slug := fmt.Sprint("x", i)
		f.workflow(t, slug)
		_, err := f.catalog.Expose(f.ctx, ns, slug, request.Change{}, "", false)
		require.NoError(t, err)
	}
	_, err = expose("", false)
	require.Equal(t, catalog.ReasonTooManyExposed, errs.ReasonOf(err))
}

func workflowList(t *testing.T, f *fixture) {
	var want []string
	for i := range 5 {
		d := draft(fmt.Sprint("w", i), "x")
		if i == 3 {
			d.Source = strings.Replace(d.Source, "one, two", "three", 1)
		}
		_, err := f.catalog.Create(f.ctx, ns, request.Once{}, d, "")
		require.NoError(t, err)
		want = append([]string{fmt.Sprint("w", i)}, want...)
	}
	list := func(q store.WorkflowQuery) (out []string) {
		q.Namespace, q.Limit = ns, 2
		for {
			found, err := f.catalog.List(f.ctx, q)
			require.NoError(t, err)
			for _, w := range found.Rows {
				out = append(out, w.Slug)
			}
			if len(found.Rows) == 0 {
				return out
			}
			last := found.Rows[len(found.Rows)-1]
			q.After = page.Cursor{CreateTime: last.CreateTime, ID: last.ID}
		}
	}
	require.Equal(t, want, list(store.WorkflowQuery{}))
	require.Equal(t, []string{"w3"}, list(store.WorkflowQuery{AnyTag: []string{"three", "four"}}))
	_, err := f.catalog.Deprecate(f.ctx, ns, "w1", request.Change{}, "", false)
	require.NoError(t, err)
	require.Equal(t, []string{"w1"}, list(store.WorkflowQuery{States: []catalog.State{catalog.Deprecated}}))
}

func workflowNamespaces(t *testing.T, f *fixture) {
	w := f.workflow(t, "w")
	const other = "other"
	for _, name := range []string{w.Slug, w.ID} {
		_, err := f.catalog.Get(f.ctx, other, name)
		requireError(t, err, errs.NotFound, store.ReasonWorkflowNotFound)
		_, _, err = f.catalog.Resolve(f.ctx, other, catalog.Ref{Name: name, Version: 1}, "")
		requireError(t, err, errs.NotFound, store.ReasonWorkflowNotFound)
		_, _, err = f.catalog.AddVersion(f.ctx, other, name, request.Change{}, draft("w", "mine"))
		requireError(t, err, errs.NotFound, store.ReasonWorkflowNotFound)
		requireError(t, f.catalog.Delete(f.ctx, other, name, ""), errs.NotFound, store.ReasonWorkflowNotFound)
	}
	require.NoError(t, f.store.View(f.ctx, other, func(ctx context.Context, r store.Reader) error {
		_, err := r.WorkflowVersion(ctx, other, w.ID, w.Slug, 1)
		requireError(t, err, errs.NotFound, store.ReasonVersionNotFound)
		rows, err := r.ChangedWorkflows(ctx, other, 0, 10)
		require.Empty(t, rows)
		return err
	}))
	mine, err := f.catalog.Create(f.ctx, other, request.Once{}, draft("w", "mine"), "")
	require.NoError(t, err)
	require.Equal(t, "w", mine.Slug)
	n, err := f.catalog.RecordChanges(f.ctx, other, []cataloging.RunChange{{RunID: "run_1", Kind: feed.RunEnded, Seq: 2, Ref: catalog.Ref{Name: "w", Version: 1}, History: catalog.History{Completed: 1}}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	got, err := f.catalog.Get(f.ctx, ns, "w")
	require.NoError(t, err)
	require.Equal(t, w, got)
}

func workflowRuns(t *testing.T, f *fixture) {
	w := f.workflow(t, "w")
	f.version(t, w, "two")
	run := func(id string, version int64, h catalog.History) cataloging.RunChange {
		return cataloging.RunChange{RunID: id, Kind: feed.RunEnded, Seq: 2, Ref: catalog.Ref{Name: "w", Version: version}, History: h}
	}
	runs := []cataloging.RunChange{
		run("r1", 1, catalog.History{Completed: 1}), run("r2", 2, catalog.History{Failed: 1}),
		run("r3", 2, catalog.History{Canceled: 1}), run("r1", 1, catalog.History{Completed: 1}),
		run("r4", 8, catalog.History{Completed: 1}), {RunID: "r5", Kind: feed.RunEnded, Seq: 2, Ref: catalog.Ref{Name: "gone", Version: 1}, History: catalog.History{Completed: 1}},
	}
	booked, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry("r1", 1, "", 100, 10), entry("r1", 2, "", 1, 1), entry("other", 1, "", 5, 5)})
	require.NoError(t, err)
	cost := int64(0)
	for _, e := range booked[:2] {
		if e.CostNanoUSD != nil {
			cost += *e.CostNanoUSD
		}
	}
	for i, want := range []int{5, 0} {
		n, err := f.catalog.RecordChanges(f.ctx, ns, runs)
		require.NoError(t, err)
		require.Equal(t, want, n, "time %d", i)
	}
	got, err := f.catalog.Get(f.ctx, ns, "w")
	require.NoError(t, err)
	require.Equal(t, catalog.History{Completed: 1, Failed: 1, Canceled: 1, NanoUSD: cost, Tokens: 112}, got.History)
	require.Equal(t, int64(2), got.Revision, "an etag stays good while the workflow runs")
	_, rows, err := f.catalog.Versions(f.ctx, ns, "w", 0, 10)
	require.NoError(t, err)
	require.Equal(t, []catalog.History{{Failed: 1, Canceled: 1}, {Completed: 1, NanoUSD: cost, Tokens: 112}}, []catalog.History{rows[0].History, rows[1].History})

	errors := together(8, func(i int) error {
		_, err := f.catalog.RecordChanges(f.ctx, ns, []cataloging.RunChange{run("again", 1, catalog.History{Failed: 1}), run(fmt.Sprint("n", i), 2, catalog.History{Failed: 1})})
		return err
	})
	require.Equal(t, 8, count(errors, succeeded), "%v", errors)
	got, err = f.catalog.Get(f.ctx, ns, "w")
	require.NoError(t, err)
	require.Equal(t, int64(1+1+8), got.History.Failed)
	_, n, err := f.store.SweepWorkflows(f.ctx, dbkit.Now(), dbkit.Now().Add(time.Hour))
	require.NoError(t, err)
	require.Equal(t, int64(3+1+8+5+1+8+1), n, "counted runs, places of runs, and the lock of the places")
}

func workflowChanges(t *testing.T, f *fixture) {
	changed := func(after int64) (out []string, last int64) {
		require.NoError(t, f.store.View(f.ctx, ns, func(ctx context.Context, r store.Reader) error {
			rows, err := r.ChangedWorkflows(ctx, ns, after, 100)
			for _, w := range rows {
				out, last = append(out, w.Slug), w.Change
			}
			return err
		}))
		return out, last
	}
	for _, name := range []string{"a", "b", "c"} {
		f.workflow(t, name)
	}
	got, last := changed(0)
	require.Equal(t, []string{"a", "b", "c"}, got)
	_, err := f.catalog.RecordChanges(f.ctx, ns, []cataloging.RunChange{{RunID: "r", Kind: feed.RunEnded, Seq: 2, Ref: catalog.Ref{Name: "b", Version: 1}, History: catalog.History{Completed: 1}}})
	require.NoError(t, err)
	require.NoError(t, f.catalog.Delete(f.ctx, ns, "a", ""))
	got, last = changed(last)
	require.Equal(t, []string{"b", "a"}, got, "runs and deletions are changes")
	got, _ = changed(last)
	require.Empty(t, got)
	n, err := f.catalog.RecordChanges(f.ctx, ns, []cataloging.RunChange{
		{RunID: "r2", Kind: feed.RunEnded, Seq: 2, Ref: catalog.Ref{Name: "b", Version: 1}, History: catalog.History{Completed: 1}},
		{RunID: "r3", Kind: feed.RunEnded, Seq: 2, Ref: catalog.Ref{Name: "c", Version: 1}, History: catalog.History{Completed: 1}},
	})
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.NoError(t, f.store.View(f.ctx, ns, func(ctx context.Context, r store.Reader) error {
		rows, err := r.ChangedWorkflows(ctx, ns, last, 1) // a page may end between both
		require.NoError(t, err)
		more, err := r.ChangedWorkflows(ctx, ns, rows[0].Change, 1)
		require.Len(t, more, 1, "each has a change of its own")
		return err
	}))
}

func workflowBounds(t *testing.T, f *fixture) {
	c := f.catalog.Within(cataloging.Bounds{Workflows: 2, Versions: 2})
	for range 2 {
		_, err := c.Create(f.ctx, ns, request.Once{}, draft("w", "x"), "")
		require.NoError(t, err)
	}
	_, err := c.Create(f.ctx, ns, request.Once{}, draft("w", "x"), "")
	requireError(t, err, errs.ResourceExhausted, cataloging.ReasonTooManyWorkflows)
	_, _, err = c.AddVersion(f.ctx, ns, "w", request.Change{}, draft("w", "y"))
	require.NoError(t, err)
	_, _, err = c.AddVersion(f.ctx, ns, "w", request.Change{}, draft("w", "z"))
	requireError(t, err, errs.ResourceExhausted, cataloging.ReasonTooManyVersions)
	_, err = c.Create(f.ctx, ns, request.Once{}, cataloging.Draft{Form: catalog.Definition, Source: strings.Repeat("#", catalog.MaxSource+1)}, "")
	requireError(t, err, errs.InvalidArgument, catalog.ReasonInvalid)
}

func workflowGraph(t *testing.T, f *fixture) {
	d := cataloging.Draft{Form: catalog.Graph, Number: 3, Source: `{"nodes":[{"id":"a","actor":"cel","named":{"expr":"1"}}]}`}
	w, err := f.catalog.Create(f.ctx, ns, request.Once{}, d, "my_graph")
	require.NoError(t, err)
	require.Equal(t, []any{"my_graph", "my_graph", int64(3)}, []any{w.Slug, w.Name, w.Latest})
	_, v, err := f.catalog.Resolve(f.ctx, ns, catalog.Ref{Name: "my_graph", Version: 3}, "")
	require.NoError(t, err)
	g, err := v.Unpack()
	require.NoError(t, err)
	require.Equal(t, "a", g.Nodes[0].ID)
	for _, bad := range []string{``, `{`, `[]`, `{"nodes":[]}`, `{"nodes":[{"id":1}]}`} {
		_, err = f.catalog.Create(f.ctx, ns, request.Once{}, cataloging.Draft{Form: catalog.Graph, Source: bad}, "x")
		requireError(t, err, errs.InvalidArgument, catalog.ReasonInvalid)
	}
}

func workflowDiscovered(t *testing.T, f *fixture) {
	replica := cataloging.New(f.store)
	find := func(c *cataloging.Catalog, q discover.Query) (out []string) {
		found, total, err := c.Discover(f.ctx, ns, q)
		require.NoError(t, err)
		require.LessOrEqual(t, len(found), total)
		for _, m := range found {
			out = append(out, fmt.Sprintf("%s %.4f %s", m.Workflow.Slug, m.Score, m.Tier))
		}
		return out
	}
	say := discover.Query{Requirements: discover.Requirements{NodeTypes: []string{"reply_chat"}}}
	both := func(want ...string) {
		t.Helper()
		require.Equal(t, want, find(f.catalog, say))
		require.Equal(t, want, find(replica, say), "another replica")
	}
	both([]string(nil)...)
	f.workflow(t, "a")
	f.workflow(t, "b")
	both("a 0.9500 reuse", "b 0.9500 reuse")
	run := func(id, name string, h catalog.History) {
		_, err := f.catalog.RecordChanges(f.ctx, ns, []cataloging.RunChange{{RunID: id, Kind: feed.RunEnded, Seq: 2, Ref: catalog.Ref{Name: name, Version: 1}, History: h}})
		require.NoError(t, err)
	}
	run("1", "b", catalog.History{Completed: 1})
	run("2", "a", catalog.History{Failed: 1})
	both("b 1.0000 reuse", "a 0.9000 fork_and_patch")
	require.Equal(t, []string{"a 0.9000 fork_and_patch"}, find(replica, discover.Query{Requirements: say.Requirements, Exclude: []string{"b", "nobody"}}))
	_, _, err := f.catalog.AddVersion(f.ctx, ns, "b", request.Change{}, cataloging.Draft{Form: catalog.Definition, Source: "name: b\nsteps: [{type: wait, delay: 1s}]\n"})
	require.NoError(t, err)
	both("a 0.9000 fork_and_patch", "b 0.2000 create_new")
	_, err = f.catalog.Deprecate(f.ctx, ns, "a", request.Change{}, "", false)
	require.NoError(t, err)
	both("b 0.2000 create_new")
	require.NoError(t, f.catalog.Delete(f.ctx, ns, "b", ""))
	_, err = f.catalog.Deprecate(f.ctx, ns, "a", request.Change{}, "", true)
	require.NoError(t, err)
	both("a 0.9000 fork_and_patch")
	require.Equal(t, []string{"a 0.9000 fork_and_patch"}, find(f.catalog, discover.Query{Text: "HELLO nothing", Requirements: say.Requirements}))
	found, total, err := f.catalog.Discover(f.ctx, "other", say)
	require.NoError(t, err)
	require.Empty(t, found)
	require.Zero(t, total)
}
