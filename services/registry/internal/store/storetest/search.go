package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// search returns the titles of what is found, the best first.
func (f *fixture) search(t testing.TB, text string, q store.SearchQuery) (titles []string) {
	t.Helper()
	q.Namespace = ns
	found, err := f.SearchEpics(f.ctx, text, q, epic.Hit{}, 100)
	require.NoError(t, err)
	for _, m := range found {
		titles = append(titles, m.Epic.Title)
	}
	return titles
}

func searchCases() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"Search/FindsByTheWordsOfEpicsAndTheirTasks": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{Title: "Join the fair", Description: "Read conditions first", Tags: []string{"onboarding"}})
			v, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: e.ID, Title: "Set up webhook", Description: "for verification", Tags: []string{"http"}, WorkflowSlug: "fair-verify"})
			require.NoError(t, err)
			_, err = f.MoveTask(f.ctx, ns, v.ID, accounting.Change{}, epic.TaskCompleted, accounting.Outcome{Summary: "Endpoint live"})
			require.NoError(t, err)
			_, err = f.MoveEpic(f.ctx, ns, e.ID, accounting.Change{}, epic.Completed, "Registered at last")
			require.NoError(t, err)
			for _, word := range []string{"FAIR", "condition", "onboarding", "webhooks", "verification", "http", "endpoint", "registered"} {
				require.Equal(t, []string{e.Title}, f.search(t, word, store.SearchQuery{}), word)
			}
			require.Empty(t, f.search(t, "elsewhere", store.SearchQuery{}))
			found, err := f.SearchEpics(f.ctx, "webhook verification", store.SearchQuery{Namespace: ns}, epic.Hit{}, 1)
			require.NoError(t, err)
			require.Equal(t, []string{"fair-verify"}, found[0].Slugs)
			require.Len(t, found[0].Hit.Weights, 2)
			rate, known := found[0].Epic.SuccessRate()
			require.Equal(t, []any{1.0, true}, []any{rate, known})
			none, err := f.SearchEpics(f.ctx, "fair", store.SearchQuery{Namespace: "other"}, epic.Hit{}, 1)
			require.NoError(t, err)
			require.Empty(t, none, "of another namespace")
		},
		"Search/RanksByWordsThenWeightThenAge": func(t *testing.T, f *fixture) {
			for _, e := range []epic.Epic{
				{Title: "both at length", Description: "alpha beta"}, {Title: "alpha alone"}, {Title: "old", Description: "alpha"}, {Title: "new", Description: "alpha"}, {Title: "alpha beta"},
			} {
				f.epic(t, e)
			}
			require.Equal(t, []string{"alpha beta", "both at length", "alpha alone", "new", "old"}, f.search(t, "alpha beta", store.SearchQuery{}))
		},
		"Search/FollowsEveryChange": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{Title: "first"})
			_, err := f.UpdateEpic(f.ctx, ns, e.ID, accounting.Change{}, epic.Epic{Title: "second"}, []string{"title"})
			require.NoError(t, err)
			require.Empty(t, f.search(t, "first", store.SearchQuery{}))
			require.Len(t, f.search(t, "second", store.SearchQuery{}), 1)
			a, b := f.task(t, e.ID), f.task(t, e.ID)
			_, err = f.UpdateTask(f.ctx, ns, a.ID, accounting.Change{}, epic.Task{Title: "third", Description: "task"}, []string{"title", "description"})
			require.NoError(t, err)
			require.NoError(t, f.DeleteTask(f.ctx, ns, b.ID, ""))
			require.Len(t, f.search(t, "task", store.SearchQuery{}), 1, "the other one has it still")
			require.NoError(t, f.DeleteTask(f.ctx, ns, a.ID, ""))
			require.Empty(t, f.search(t, "task third", store.SearchQuery{}))
			require.NoError(t, f.DeleteEpic(f.ctx, ns, e.ID, ""))
			require.Empty(t, f.search(t, "second", store.SearchQuery{}))
			require.NoError(t, f.store.View(f.ctx, ns, func(ctx context.Context, r store.Reader) error {
				hits, err := r.FindEpics(ctx, store.SearchQuery{Namespace: ns, Words: []string{"second", "third", "task"}})
				require.Empty(t, hits, "and nothing is left of its words")
				return err
			}))
		},
		"Search/AllFiltersHold": func(t *testing.T, f *fixture) {
			one := f.epic(t, epic.Epic{Title: "goal one", Tags: []string{"a", "b"}, UserID: "ada"})
			f.epic(t, epic.Epic{Title: "goal two", Tags: []string{"b"}})
			f.moveEpic(t, one.ID, epic.Active)
			for name, q := range map[string]store.SearchQuery{
				"state": {States: []epic.State{epic.Active}}, "tag": {AnyTag: []string{"a", "z"}}, "user": {Owners: store.Owners{UserID: "ada"}},
				"all":  {States: []epic.State{epic.Active}, AnyTag: []string{"b"}, Owners: store.Owners{UserID: "ada"}, From: one.CreateTime, Until: dbkit.Now().Add(time.Hour)},
				"time": {Until: one.CreateTime.Add(time.Microsecond)},
			} {
				require.Equal(t, []string{"goal one"}, f.search(t, "goal", q), name)
			}
			require.Empty(t, f.search(t, "goal", store.SearchQuery{From: dbkit.Now().Add(time.Hour)}))
		},
		"Search/OfAUserHasThoseOfNobodyToo": func(t *testing.T, f *fixture) {
			for title, user := range map[string]string{"goal of ada": "ada", "goal of bob": "bob", "goal of all": ""} {
				f.epic(t, epic.Epic{Title: title, UserID: user})
			}
			require.ElementsMatch(t, []string{"goal of ada", "goal of all"}, f.search(t, "goal", store.SearchQuery{Owners: store.Owners{OpenTo: "ada"}}))
			require.ElementsMatch(t, []string{"goal of all"}, f.search(t, "goal", store.SearchQuery{Owners: store.Owners{OpenTo: "eve"}}))
		},
		"Search/WithoutWordsFindsTheNewestWithTheirWorkflows": func(t *testing.T, f *fixture) {
			old := f.epic(t, epic.Epic{Title: "old", UserID: "ada", WorkflowSlug: "own"})
			_, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: old.ID, Title: "x", WorkflowSlug: "of-a-task"})
			require.NoError(t, err)
			f.epic(t, epic.Epic{Title: "of bob", UserID: "bob"})
			f.epic(t, epic.Epic{Title: "new", Tags: []string{"a"}})
			for name, c := range map[string]struct {
				q    store.EpicQuery
				want []string
			}{
				"all":        {store.EpicQuery{}, []string{"new", "of bob", "old"}},
				"of a user":  {store.EpicQuery{Owners: store.Owners{UserID: "ada"}}, []string{"old"}},
				"for a user": {store.EpicQuery{Owners: store.Owners{OpenTo: "ada"}}, []string{"new", "old"}},
				"of a tag":   {store.EpicQuery{Owners: store.Owners{OpenTo: "ada"}, AnyTag: []string{"a"}}, []string{"new"}},
				"of a time":  {store.EpicQuery{From: old.CreateTime, Until: old.CreateTime.Add(time.Microsecond)}, []string{"old"}},
			} {
				c.q.Namespace, c.q.Limit = ns, 10
				found, err := f.NewestEpics(f.ctx, c.q)
				require.NoError(t, err, name)
				var titles []string
				for _, m := range found.Rows {
					titles = append(titles, m.Epic.Title)
					if m.Epic.Title == "old" {
						require.Equal(t, []string{"own", "of-a-task"}, m.Slugs)
					}
				}
				require.Equal(t, c.want, titles, name)
			}
		},
		"Search/PagesHoldEachOnce": func(t *testing.T, f *fixture) {
			var want, got []string
			for i := range 25 {
				e := f.epic(t, epic.Epic{Title: "goal", Description: strings.Repeat("more ", i%3)})
				want = append(want, e.ID)
			}
			var after epic.Hit
			for {
				found, err := f.SearchEpics(f.ctx, "goal more", store.SearchQuery{Namespace: ns}, after, 4)
				require.NoError(t, err)
				for _, m := range found {
					got = append(got, m.Epic.ID)
					after = m.Hit
				}
				if len(found) < 4 {
					break
				}
			}
			slices.Sort(got)
			require.Equal(t, want, got)
		},
		"Search/CommonWordsFindTheNewest": func(t *testing.T, f *fixture) {
			ids := f.goals(t, 1, 1300, 0, nil)
			rare := f.epic(t, epic.Epic{Title: "rare goal"})
			f.goals(t, 1, 1300, 0, nil)
			found, err := f.SearchEpics(f.ctx, "rare goal", store.SearchQuery{Namespace: ns}, epic.Hit{}, 1)
			require.NoError(t, err)
			require.Equal(t, rare.ID, found[0].Epic.ID, "which has both, though many newer ones have one of them")
			require.Len(t, found[0].Hit.Weights, 2)
			all, err := f.SearchEpics(f.ctx, "goal", store.SearchQuery{Namespace: ns}, epic.Hit{}, 2000)
			require.NoError(t, err)
			require.LessOrEqual(t, len(all), store.MaxFound)
			require.False(t, slices.ContainsFunc(all, func(m accounting.Match) bool { return m.Epic.ID == ids[0] }))
		},
		"Search/ManyCommonWordsFindTheOneWithARareOne": func(t *testing.T, f *fixture) {
			common := []string{"bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india"}
			all := f.epic(t, epic.Epic{Title: "rare " + strings.Join(common, " ")})
			for i := range 4 {
				f.goals(t, i, 180, 0, common[2*i:2*i+2])
			}
			query := "rare " + strings.Join(common, " ")
			found, err := f.SearchEpics(f.ctx, query, store.SearchQuery{Namespace: ns}, epic.Hit{}, 1)
			require.NoError(t, err)
			require.Equal(t, all.ID, found[0].Epic.ID, "though there are more candidates than are looked up")
			require.Len(t, found[0].Hit.Weights, 9)
		},
		"Search/NeedsAWord": func(t *testing.T, f *fixture) {
			_, err := f.SearchEpics(f.ctx, " --- ", store.SearchQuery{Namespace: ns}, epic.Hit{}, 1)
			require.NotEmpty(t, requireError(t, err, errs.InvalidArgument, accounting.ReasonQueryEmpty).HintText())
		},
	}
}

// goals adds epics with tasks past the use cases, with words of a vocabulary in which a few are common. The
// words of an epic and its tasks are "goal" and words of those.
func (f *fixture) goals(t testing.TB, batch, epics, tasks int, words []string) (ids []string) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, uint64(batch)))
	text := func(n int) string {
		out := []string{"goal"}
		for range n {
			if len(words) > 0 {
				// Squared twice, so that the first words are everywhere and the last ones rare.
				x := random.Float64()
				out = append(out, words[int(x*x*x*x*float64(len(words)))])
			}
		}
		return strings.Join(out, " ")
	}
	require.NoError(t, f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
		ids = nil
		for range epics {
			e := epic.New(ns, epic.Epic{Title: text(4), Description: text(12)}, dbkit.Now())
			e.TotalTasks = int32(tasks)
			if err := tx.InsertEpic(ctx, e); err != nil {
				return err
			}
			sum := e.Words()
			for range tasks {
				v, err := epic.NewTask(ns, epic.Task{EpicID: e.ID, Title: text(5), Description: text(10), WorkflowSlug: "flow-" + strconv.Itoa(random.IntN(50))}, dbkit.Now())
				if err != nil {
					return err
				}
				if err := tx.InsertTask(ctx, v); err != nil {
					return err
				}
				for w, n := range v.Words() {
					sum[w] += n
				}
			}
			if err := tx.AddWords(ctx, ns, e.ID, sum); err != nil {
				return err
			}
			ids = append(ids, e.ID)
		}
		return nil
	}))
	return ids
}

// BenchSearch searches among ten tasks for each epic; EPIGRAPH_BENCH_TASKS says among how many, 20,000 unless
// it is set. It reports the slowest of a hundred searches but one.
func BenchSearch(b *testing.B, open Open) {
	tasks := 20_000
	if said := os.Getenv("EPIGRAPH_BENCH_TASKS"); said != "" {
		var err error
		tasks, err = strconv.Atoi(said)
		require.NoError(b, err)
	}
	words := make([]string, 30_000)
	for i := range words {
		words[i] = "w" + strconv.FormatInt(int64(i), 36)
	}
	f := newFixture(b, open)
	for i := range tasks / 1000 {
		f.goals(b, i, 100, 10, words)
	}
	for name, query := range map[string]func(int) string{
		"common": func(int) string { return "goal w0 w1" },
		"mixed":  func(i int) string { return fmt.Sprintf("goal w1 %s %s", words[10+i%100], words[29_000-i%1000]) },
		"rare":   func(i int) string { return words[20_000+i%9000] + " " + words[25_000+i%4000] },
		"many": func(i int) string {
			return "goal " + strings.Join(words[i%50:i%50+15], " ")
		},
	} {
		b.Run(fmt.Sprintf("tasks=%d/%s", tasks, name), func(b *testing.B) {
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				at := time.Now()
				_, err := f.SearchEpics(f.ctx, query(i), store.SearchQuery{Namespace: ns}, epic.Hit{}, 51)
				require.NoError(b, err)
				took = append(took, time.Since(at))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}
