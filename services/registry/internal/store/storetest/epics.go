package storetest

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

func epicCases() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"Bounds/HoldHowManyThereAre": func(t *testing.T, f *fixture) {
			small := f.Within(accounting.Bounds{Epics: 2, Prices: 2, Tasks: 2})
			var last epic.Epic
			for i := range 3 {
				e, err := small.CreateEpic(f.ctx, ns, accounting.Once{ID: strconv.Itoa(i)}, epic.Epic{})
				if i == 2 {
					requireError(t, err, errs.ResourceExhausted, accounting.ReasonTooManyEpics)
					continue
				}
				require.NoError(t, err)
				last = e
			}
			_, err := small.CreateEpic(f.ctx, ns, accounting.Once{ID: "1"}, epic.Epic{})
			require.NoError(t, err, "a repeated request makes none")
			_, err = small.CreateEpic(f.ctx, "other", accounting.Once{}, epic.Epic{})
			require.NoError(t, err, "each namespace has its own")
			for i := range 3 {
				_, err := small.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: last.ID})
				_, perr := small.CreatePrice(f.ctx, ns, accounting.Once{}, usage.Price{Model: "m" + strconv.Itoa(i)})
				if i == 2 {
					bad := requireError(t, err, errs.ResourceExhausted, accounting.ReasonTooManyTasks)
					require.NotEmpty(t, bad.HintText())
					requireError(t, perr, errs.ResourceExhausted, accounting.ReasonTooManyPrices)
					continue
				}
				require.NoError(t, err)
				require.NoError(t, perr)
			}
			require.NoError(t, small.DeleteEpic(f.ctx, ns, last.ID, ""))
			_, err = small.CreateEpic(f.ctx, ns, accounting.Once{}, epic.Epic{})
			require.NoError(t, err)
		},
		"Epic/RoundTrip": func(t *testing.T, f *fixture) {
			in := epic.Epic{
				Title: "Größe — 目標", Description: "text\nmore", Tags: []string{"b", "a", "b"}, Priority: epic.High,
				BudgetTokens: ptr(int64(0)), BudgetNanoUSD: ptr(int64(1<<62 + 1)), ResultSummary: "r", WorkflowSlug: "w", UserID: "u",
				CreatedByNode: "n", Labels: map[string]string{"k": "v", `q"`: "'"},
			}
			made := f.epic(t, in)
			require.Equal(t, epic.Planning, made.State)
			require.Equal(t, []string{"b", "a"}, made.Tags)
			got, err := f.Epic(f.ctx, ns, made.ID)
			require.NoError(t, err)
			require.Equal(t, made, got)
			bare := f.epic(t, epic.Epic{})
			got, err = f.Epic(f.ctx, ns, bare.ID)
			require.NoError(t, err)
			require.Equal(t, bare, got)
			require.Nil(t, got.BudgetTokens)
			require.Equal(t, epic.Medium, got.Priority)
		},
		"Epic/NamespacesAreApart": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			_, err := f.Epic(f.ctx, "other", e.ID)
			requireError(t, err, errs.NotFound, store.ReasonEpicNotFound)
			_, err = f.Task(f.ctx, "other", v.ID)
			requireError(t, err, errs.NotFound, store.ReasonTaskNotFound)
			_, err = f.CreateTask(f.ctx, "other", accounting.Once{}, epic.Task{EpicID: e.ID})
			requireError(t, err, errs.NotFound, store.ReasonEpicNotFound)
			_, _, err = f.ClaimTask(f.ctx, "other", v.ID, "run", 0)
			requireError(t, err, errs.NotFound, store.ReasonTaskNotFound)
			require.Error(t, f.DeleteEpic(f.ctx, "other", e.ID, ""))
			_, err = f.RecordUsage(f.ctx, "other", []usage.Entry{entry("run", 0, v.ID, 5, 5)})
			require.NoError(t, err)
			v, err = f.Task(f.ctx, ns, v.ID)
			require.NoError(t, err)
			require.Zero(t, v.Actual)
			all, err := f.Epics(f.ctx, store.EpicQuery{Namespace: "other", Limit: 10})
			require.NoError(t, err)
			require.Empty(t, all)
		},
		"Epic/UpdateTakesOnlyTheNamedFields": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{Title: "a", Description: "b", BudgetTokens: ptr(int64(7)), Tags: []string{"x"}})
			got, err := f.UpdateEpic(f.ctx, ns, e.ID, accounting.Change{}, epic.Epic{Title: "new", Description: "ignored"}, []string{"title", "budget_tokens", "tags"})
			require.NoError(t, err)
			require.Equal(t, "new", got.Title)
			require.Equal(t, "b", got.Description)
			require.Nil(t, got.BudgetTokens, "a field that is named and not set is cleared")
			require.Nil(t, got.Tags)
			require.Equal(t, `"2"`, got.Etag())
			stored, err := f.Epic(f.ctx, ns, e.ID)
			require.NoError(t, err)
			require.Equal(t, got, stored)
		},
		"Epic/StaleEtagLosesAndTellsThePresentOne": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			change := func(int) error {
				_, err := f.UpdateEpic(f.ctx, ns, e.ID, accounting.Change{Etag: e.Etag()}, epic.Epic{Title: "x"}, []string{"title"})
				return err
			}
			results := together(8, change)
			require.Equal(t, 1, count(results, succeeded), "%v", results)
			err := requireError(t, change(0), errs.Conflict, epic.ReasonEtagMismatch)
			require.Equal(t, `"2"`, err.Meta["etag"])
			requireError(t, f.DeleteEpic(f.ctx, ns, e.ID, e.Etag()), errs.Conflict, epic.ReasonEtagMismatch)
			require.NoError(t, f.DeleteEpic(f.ctx, ns, e.ID, `"2"`))
		},
		"Store/PutOverAnotherRevisionIsAConflict": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			update := func(fn func(context.Context, store.Tx) error) error { return f.store.Update(f.ctx, ns, fn) }
			for name, fn := range map[string]func(context.Context, store.Tx) error{
				"put epic":    func(ctx context.Context, tx store.Tx) error { return tx.PutEpic(ctx, e, 99) },
				"put task":    func(ctx context.Context, tx store.Tx) error { return tx.PutTask(ctx, v, 99) },
				"delete epic": func(ctx context.Context, tx store.Tx) error { return tx.DeleteEpic(ctx, ns, e.ID, 99) },
				"delete task": func(ctx context.Context, tx store.Tx) error { return tx.DeleteTask(ctx, ns, v.ID, 99) },
			} {
				require.True(t, errs.Is(update(fn), errs.Conflict), name)
			}
		},
		"Store/AFailedUpdateLeavesNothing": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{Title: "before"})
			boom := errors.New("boom")
			require.ErrorIs(t, f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
				e.Title = "after"
				require.NoError(t, tx.PutEpic(ctx, e, e.Revision))
				return boom
			}), boom)
			got, err := f.Epic(f.ctx, ns, e.ID)
			require.NoError(t, err)
			require.Equal(t, "before", got.Title)
		},
		"Store/ClockAndReadiness": func(t *testing.T, f *fixture) {
			require.NoError(t, f.store.Ready(f.ctx))
			require.NoError(t, f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
				now, err := tx.Clock(ctx)
				require.NoError(t, err)
				require.WithinDuration(t, time.Now(), now, time.Minute)
				require.Equal(t, time.UTC, now.Location())
				return nil
			}))
		},
		"Request/RepetitionIsAnsweredFromTheFirst": func(t *testing.T, f *fixture) {
			once := accounting.Once{ID: "req", BodyHash: [32]byte{1}}
			ids := make([]string, 20)
			results := together(len(ids), func(i int) error {
				e, err := f.CreateEpic(f.ctx, ns, once, epic.Epic{Title: "one"})
				ids[i] = e.ID
				return err
			})
			require.Equal(t, len(ids), count(results, succeeded), "%v", results)
			for _, id := range ids {
				require.Equal(t, ids[0], id)
			}
			all, err := f.Epics(f.ctx, store.EpicQuery{Namespace: ns, Limit: 100})
			require.NoError(t, err)
			require.Len(t, all, 1)
			_, err = f.CreateEpic(f.ctx, ns, accounting.Once{ID: "req", BodyHash: [32]byte{2}}, epic.Epic{})
			requireError(t, err, errs.InvalidArgument, accounting.ReasonRequestIDReused)
			// The same id is another request in another namespace and for another method.
			other, err := f.CreateEpic(f.ctx, "other", accounting.Once{ID: "req", BodyHash: [32]byte{2}}, epic.Epic{})
			require.NoError(t, err)
			require.NotEqual(t, ids[0], other.ID)
			_, err = f.CreateTask(f.ctx, ns, accounting.Once{ID: "req", BodyHash: [32]byte{3}}, epic.Task{EpicID: ids[0]})
			require.NoError(t, err)
		},
		"Request/ChangesHappenOnce": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			c := accounting.Change{Once: accounting.Once{ID: "r"}, Etag: v.Etag()}
			for range 2 {
				got, err := f.UpdateTask(f.ctx, ns, v.ID, c, epic.Task{Notes: []epic.Note{{Text: "once"}}}, []string{"notes"})
				require.NoError(t, err, "a repetition succeeds although the etag has changed")
				require.Len(t, got.Notes, 1)
				got, err = f.MoveTask(f.ctx, ns, v.ID, accounting.Change{Once: c.Once}, epic.TaskRunning, accounting.Outcome{})
				require.NoError(t, err)
				require.Equal(t, epic.TaskRunning, got.State)
			}
			for range 2 {
				_, err := f.UpdateEpic(f.ctx, ns, e.ID, accounting.Change{Once: c.Once}, epic.Epic{Title: "t"}, []string{"title"})
				require.NoError(t, err)
				_, err = f.MoveEpic(f.ctx, ns, e.ID, accounting.Change{Once: c.Once}, epic.Paused, "")
				require.NoError(t, err)
				_, err = f.CreatePrice(f.ctx, ns, c.Once, usage.Price{Model: "m", ValidFrom: time.Unix(1, 0).UTC()})
				require.NoError(t, err)
			}
		},
		"Request/AFailedOneMayBeSentAgain": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			c := accounting.Change{Once: accounting.Once{ID: "r"}}
			_, err := f.MoveEpic(f.ctx, ns, e.ID, c, epic.Failed, "")
			requireError(t, err, errs.FailedPrecondition, epic.ReasonInvalidTransition)
			f.moveEpic(t, e.ID, epic.Active)
			_, err = f.MoveEpic(f.ctx, ns, e.ID, c, epic.Failed, "")
			require.NoError(t, err)
		},
		"Request/SweepForgetsOldOnes": func(t *testing.T, f *fixture) {
			once := accounting.Once{ID: "req", BodyHash: [32]byte{1}}
			_, err := f.CreateEpic(f.ctx, ns, once, epic.Epic{})
			require.NoError(t, err)
			_, n, err := f.store.Sweep(f.ctx, time.Now().Add(-time.Hour))
			require.NoError(t, err)
			require.Zero(t, n)
			_, n, err = f.store.Sweep(f.ctx, time.Now().Add(time.Hour))
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			_, err = f.CreateEpic(f.ctx, ns, accounting.Once{ID: "req", BodyHash: [32]byte{2}}, epic.Epic{})
			require.NoError(t, err)
		},
		"List/EpicsNewestFirstWithoutGapsOrRepeats": func(t *testing.T, f *fixture) {
			const n = 23
			var ids []string
			for range n {
				ids = append([]string{f.epic(t, epic.Epic{}).ID}, ids...)
			}
			var got []string
			q := store.EpicQuery{Namespace: ns, Limit: 5}
			for {
				rows, err := f.Epics(f.ctx, q)
				require.NoError(t, err)
				for _, e := range rows {
					got = append(got, e.ID)
					q.After = page.Cursor{CreateTime: e.CreateTime, ID: e.ID}
				}
				if len(rows) < q.Limit {
					break
				}
			}
			require.Equal(t, ids, got)
		},
		"List/EndsWhereThePageIsFull": func(t *testing.T, f *fixture) {
			large := strings.Repeat("x", 3<<20)
			var e epic.Epic
			for range 5 {
				e = f.epic(t, epic.Epic{Description: large})
			}
			for range 5 {
				_, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: e.ID, Description: large})
				require.NoError(t, err)
			}
			budget := inflight.New(0)
			answer := budget.Answer(ns)
			defer answer.Free()
			epics, err := f.Epics(answer.Context(f.ctx), store.EpicQuery{Namespace: ns, Limit: 100})
			require.NoError(t, err)
			require.Len(t, epics, 3, "nothing is read behind the first that has no room")
			tasks, err := f.Tasks(answer.Context(f.ctx), store.TaskQuery{Namespace: ns, Limit: 100})
			require.NoError(t, err)
			require.Len(t, tasks, 3)
			require.Greater(t, budget.Used(), int64(18<<20), "what is read counts for the answer")
		},
		"List/StatesAreOnePagedList": func(t *testing.T, f *fixture) {
			var want, tasks []string
			for i := range 9 {
				e := f.epic(t, epic.Epic{})
				v := f.task(t, e.ID)
				switch i % 3 { // the first task makes an epic active
				case 0:
					f.move(t, v.ID, epic.TaskCompleted)
					f.moveEpic(t, e.ID, epic.Canceled)
					tasks = append(tasks, v.ID)
					continue
				case 1:
					f.moveEpic(t, e.ID, epic.Paused)
				}
				want = append([]string{e.ID}, want...)
			}
			var got []string
			q := store.EpicQuery{Namespace: ns, Limit: 2, States: []epic.State{epic.Paused, epic.Active, epic.Failed, epic.Active}}
			for range 4 {
				rows, err := f.Epics(f.ctx, q)
				require.NoError(t, err)
				for _, e := range rows {
					got, q.After = append(got, e.ID), page.Cursor{CreateTime: e.CreateTime, ID: e.ID}
				}
			}
			require.Equal(t, want, got)
			rows, err := f.Tasks(f.ctx, store.TaskQuery{Namespace: ns, Limit: 10, States: []epic.TaskState{epic.TaskFailed, epic.TaskCompleted}})
			require.NoError(t, err)
			require.Equal(t, tasks, idsOf(rows))
		},
		"List/EpicFilters": func(t *testing.T, f *fixture) {
			a := f.epic(t, epic.Epic{Title: "ÄPFEL und 100%_", Tags: []string{"x", "y"}, Labels: map[string]string{"k": "1", "l": "2"}})
			b := f.epic(t, epic.Epic{Description: "birnen", Tags: []string{"z"}, Labels: map[string]string{"k": "1"}})
			c := f.epic(t, epic.Epic{Title: "citrus"})
			f.moveEpic(t, c.ID, epic.Active)
			for name, tc := range map[string]struct {
				q    store.EpicQuery
				want []string
			}{
				"all":          {store.EpicQuery{}, []string{c.ID, b.ID, a.ID}},
				"state":        {store.EpicQuery{States: []epic.State{epic.Active, epic.Failed}}, []string{c.ID}},
				"any tag":      {store.EpicQuery{AnyTag: []string{"y", "z", "none"}}, []string{b.ID, a.ID}},
				"folded text":  {store.EpicQuery{Text: "äpfel"}, []string{a.ID}},
				"upper text":   {store.EpicQuery{Text: "BIRNEN"}, []string{b.ID}},
				"no wildcards": {store.EpicQuery{Text: "%_"}, []string{a.ID}},
				"all labels":   {store.EpicQuery{Labels: map[string]string{"k": "1", "l": "2"}}, []string{a.ID}},
				"one label":    {store.EpicQuery{Labels: map[string]string{"k": "1"}}, []string{b.ID, a.ID}},
				"all hold":     {store.EpicQuery{Labels: map[string]string{"k": "1"}, AnyTag: []string{"z"}, Text: "apf"}, nil},
			} {
				tc.q.Namespace, tc.q.Limit = ns, 10
				rows, err := f.Epics(f.ctx, tc.q)
				require.NoError(t, err, name)
				var got []string
				for _, e := range rows {
					got = append(got, e.ID)
				}
				require.Equal(t, tc.want, got, name)
			}
		},
		"Epic/CancelingCancelsOpenTasks": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			done, failed, pending, running := f.task(t, e.ID), f.task(t, e.ID), f.task(t, e.ID), f.task(t, e.ID)
			blocked := f.task(t, e.ID, pending.ID)
			f.move(t, done.ID, epic.TaskCompleted)
			f.move(t, failed.ID, epic.TaskRunning)
			f.move(t, failed.ID, epic.TaskFailed)
			_, _, err := f.ClaimTask(f.ctx, ns, running.ID, "run", 0)
			require.NoError(t, err)
			_, err = f.ConfirmClaim(f.ctx, ns, running.ID, "run", time.Time{})
			require.NoError(t, err)
			e, err = f.MoveEpic(f.ctx, ns, e.ID, accounting.Change{}, epic.Canceled, "enough")
			require.NoError(t, err)
			require.Equal(t, "enough", e.ResultSummary)
			require.False(t, e.EndTime.IsZero())
			for _, id := range []string{pending.ID, running.ID, blocked.ID} {
				v, err := f.Task(f.ctx, ns, id)
				require.NoError(t, err)
				require.Equal(t, epic.TaskCanceled, v.State)
				require.False(t, v.EndTime.IsZero())
			}
			require.Equal(t, epic.TaskCompleted, f.state(t, done.ID))
			require.Equal(t, epic.TaskFailed, f.state(t, failed.ID))
			f.recount(t, ns, e.ID)
			// The run hears of it when it settles, which changes nothing but the time it took.
			v, err := f.SettleClaim(f.ctx, ns, running.ID, "run", accounting.Settlement{State: epic.TaskCompleted, Summary: "late", Duration: time.Second})
			require.NoError(t, err)
			require.Equal(t, epic.TaskCanceled, v.State)
			require.Empty(t, v.ResultSummary)
			require.Equal(t, time.Second, v.Duration)
		},
		"Epic/EndedOnesTakeNoNewTasks": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			f.move(t, v.ID, epic.TaskRunning)
			f.move(t, v.ID, epic.TaskFailed)
			f.moveEpic(t, e.ID, epic.Failed)
			_, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: e.ID})
			requireError(t, err, errs.FailedPrecondition, epic.ReasonEpicEnded)
			_, err = f.MoveTask(f.ctx, ns, v.ID, accounting.Change{}, epic.TaskPending, accounting.Outcome{})
			requireError(t, err, errs.FailedPrecondition, epic.ReasonEpicEnded)
		},
		"Epic/DeleteTakesItsTasksAndKeepsItsEntries": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			w := f.task(t, e.ID, v.ID)
			_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run", 0, v.ID, 10, 1)})
			require.NoError(t, err)
			f.move(t, v.ID, epic.TaskRunning)
			requireError(t, f.DeleteEpic(f.ctx, ns, e.ID, ""), errs.FailedPrecondition, "EPIC_RUNNING")
			f.move(t, v.ID, epic.TaskCompleted)
			require.NoError(t, f.DeleteEpic(f.ctx, ns, e.ID, ""))
			requireError(t, f.DeleteEpic(f.ctx, ns, e.ID, ""), errs.NotFound, store.ReasonEpicNotFound)
			for _, id := range []string{v.ID, w.ID} {
				_, err = f.Task(f.ctx, ns, id)
				requireError(t, err, errs.NotFound, store.ReasonTaskNotFound)
			}
			entries, err := f.Entries(f.ctx, store.EntryQuery{Namespace: ns, EpicID: e.ID, Limit: 10})
			require.NoError(t, err)
			require.Len(t, entries, 1)
			total, err := f.NamespaceTotals(f.ctx, ns)
			require.NoError(t, err)
			require.EqualValues(t, 11, total.Tokens)
		},
		"Price/OrderPagesAndDerivedEnds": func(t *testing.T, f *fixture) {
			day := func(n int) time.Time { return time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC) }
			for _, p := range []usage.Price{
				{Provider: "b", Model: "m", ValidFrom: day(1), Input: 1},
				{Provider: "b", Model: "m", ValidFrom: day(9), Input: 3, CachedInput: ptr(int64(0)), Reasoning: ptr(int64(4))},
				{Provider: "a", Model: "m", ValidFrom: day(2), Input: 9},
				{Provider: "b", Model: "m", ValidFrom: day(5), Input: 2},
			} {
				_, err := f.CreatePrice(f.ctx, ns, accounting.Once{}, p)
				require.NoError(t, err)
			}
			_, err := f.CreatePrice(f.ctx, ns, accounting.Once{}, usage.Price{Provider: "b", Model: "m", ValidFrom: day(5)})
			requireError(t, err, errs.AlreadyExists, store.ReasonPriceExists)
			rows, err := f.Prices(f.ctx, store.PriceQuery{Namespace: ns, Provider: "b", Limit: 10})
			require.NoError(t, err)
			require.Len(t, rows, 3)
			require.Equal(t, []time.Time{day(5), day(9), {}}, []time.Time{rows[0].ValidUntil, rows[1].ValidUntil, rows[2].ValidUntil})
			require.Equal(t, ptr(int64(0)), rows[2].CachedInput)
			require.Nil(t, rows[0].CachedInput)
			all, err := f.Prices(f.ctx, store.PriceQuery{Namespace: ns, Limit: 1000})
			require.NoError(t, err)
			defaults, err := usage.Defaults()
			require.NoError(t, err)
			require.Len(t, all, len(defaults)+4)
			var paged []usage.Price
			q := store.PriceQuery{Namespace: ns, Limit: 7}
			for {
				rows, err := f.Prices(f.ctx, q)
				require.NoError(t, err)
				paged = append(paged, rows...)
				if len(rows) < q.Limit {
					break
				}
				q.After.ID = rows[len(rows)-1].ID
			}
			require.Equal(t, all, paged)
			none, err := f.Prices(f.ctx, store.PriceQuery{Namespace: "other", Provider: "b", Limit: 10})
			require.NoError(t, err)
			require.Empty(t, none)
			require.NoError(t, f.store.SeedPrices(f.ctx, defaults), "seeding again changes nothing")
			again, err := f.Prices(f.ctx, store.PriceQuery{Namespace: ns, Limit: 1000})
			require.NoError(t, err)
			require.Equal(t, all, again)
		},
		"Price/BookHoldsWhatMayCoverTheModels": func(t *testing.T, f *fixture) {
			for i, m := range []string{"mö*", "mö", "mör", "m*", "*", "x_*", "m%"} {
				_, err := f.CreatePrice(f.ctx, ns, accounting.Once{}, usage.Price{Model: m, ValidFrom: time.Unix(int64(i+1), 0).UTC()})
				require.NoError(t, err)
			}
			require.NoError(t, f.store.View(f.ctx, ns, func(ctx context.Context, r store.Reader) error {
				book, err := r.PriceBook(ctx, ns, []string{"mö", "xyz"})
				require.NoError(t, err)
				var got []string
				for _, p := range book {
					got = append(got, p.Model)
				}
				require.ElementsMatch(t, []string{"mö*", "mö", "m*", "*"}, got)
				return nil
			}))
		},
		"Epic/CountersUnderConcurrency": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			results := together(16, func(i int) error {
				v, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: e.ID, Title: strconv.Itoa(i)})
				if err != nil {
					return err
				}
				_, err = f.MoveTask(f.ctx, ns, v.ID, accounting.Change{}, epic.TaskRunning, accounting.Outcome{})
				if err == nil && i%2 == 0 {
					_, err = f.MoveTask(f.ctx, ns, v.ID, accounting.Change{}, epic.TaskFailed, accounting.Outcome{})
				} else if err == nil {
					_, err = f.MoveTask(f.ctx, ns, v.ID, accounting.Change{}, epic.TaskCompleted, accounting.Outcome{})
				}
				return err
			})
			require.Equal(t, 16, count(results, succeeded), "%v", results)
			f.recount(t, ns, e.ID)
			got, err := f.Epic(f.ctx, ns, e.ID)
			require.NoError(t, err)
			require.Equal(t, epic.Active, got.State)
			require.Equal(t, `"2"`, got.Etag(), "only becoming active shows in the etag")
		},
	}
}

func idsOf(tasks []epic.Task) (out []string) {
	for _, v := range tasks {
		out = append(out, v.ID)
	}
	return out
}
