package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/internal/cataloging"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/feed"
	"github.com/epigraph-run/epigraph/services/registry/internal/ledger"
	"github.com/epigraph-run/epigraph/services/registry/internal/request"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

// events reads the feed behind a cursor to its end, a few events at a time, and checks that its sequence has
// no gap.
func (f *fixture) events(t require.TestingT, after int64) (out []feed.Event) {
	seq := after
	for q := (feed.Query{Namespace: ns, After: after, Limit: 3}); ; {
		p, err := f.Events(f.ctx, q)
		require.NoError(t, err)
		for _, e := range p.Events {
			seq++
			require.Equal(t, seq, e.Seq, "the sequence has no gap")
			require.False(t, e.Time.IsZero())
		}
		out = append(out, p.Events...)
		require.Equal(t, seq, p.Cursor)
		if q.After = p.Cursor; p.End {
			return out
		}
	}
}

// told are the events since a cursor as kinds with what they are about.
func (f *fixture) told(t testing.TB, after int64) (out []string) {
	t.Helper()
	for _, e := range f.events(t, after) {
		about := e.Body.ID
		switch {
		case e.Body.Epic != nil:
			about = e.Body.Epic.ID
		case e.Body.Task != nil:
			about = e.Body.Task.ID
		case e.Body.Budget != nil:
			about = e.Body.Budget.Name
		case e.Body.Memory != nil:
			about = e.Body.Memory.Key
		}
		out = append(out, string(e.Kind)+" "+about)
	}
	return out
}

func (f *fixture) end(t testing.TB) int64 {
	t.Helper()
	end, err := f.FeedEnd(f.ctx, ns)
	require.NoError(t, err)
	return end
}

func feedCases() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"Feed/EpicsAndTasksAsTheyAreInTheEnd":     feedEpics,
		"Feed/TasksThatOthersChange":              feedDependents,
		"Feed/EveryTaskThatEndsWithItsEpic":       feedEnded,
		"Feed/UsageOncePerEpicAndTransaction":     feedUsage,
		"Feed/CapsWhenTheyAreReached":             feedCaps,
		"Feed/WorkflowsAndPrices":                 feedWorkflows,
		"Feed/NothingOfWhatIsRolledBack":          feedRolledBack,
		"Feed/ConcurrentWritersLeaveNoGap":        feedConcurrent,
		"Feed/Filters":                            feedFilters,
		"Feed/RemovedEventsAreMissed":             feedSwept,
		"Feed/WatchGoesOnWithWhatComes":           feedWatched,
		"Feed/WatchTellsHowFarItIsWhenItIsQuiet":  feedQuiet,
		"Feed/WatchStops":                         feedStopped,
		"Feed/LargeChangesAreWholeAndInOnePlace":  feedLarge,
		"Feed/NamespacesAreApart":                 feedNamespaces,
		"Feed/WhatComesAndGoesAtOnceIsNotTold":    feedBrief,
		"Feed/PagesEndAtTheBoundOfAnAnswer":       feedBytes,
		"Feed/RepeatedRequestsAreToldOnce":        feedRepeated,
		"Feed/FilteredCursorsPassWhatIsLeftOut":   feedCursors,
		"Feed/SweepLeavesAloneWhatIsWithinBounds": feedKept,
		"Feed/SweepKeepsToTheBytes":               feedLargeSwept,
		"Feed/SweepHasAllNamespacesInTurn":        feedSweptInTurn,
		"Feed/WatchesOfANamespaceAreBounded":      feedWatchesBounded,
		"Feed/WatchesAtTheEndShareWhatIsRead":     feedShared,
		"Feed/WatchHoldsWhatItHasRead":            feedHeld,
	}
}

func feedEpics(t *testing.T, f *fixture) {
	e := f.epic(t, epic.Epic{Title: "goal", Tags: []string{"one"}, Labels: map[string]string{"a": "b"}})
	v := f.task(t, e.ID)
	f.move(t, v.ID, epic.TaskRunning)
	f.move(t, v.ID, epic.TaskCompleted)
	require.NoError(t, f.DeleteTask(f.ctx, ns, v.ID, ""))
	require.NoError(t, f.DeleteEpic(f.ctx, ns, e.ID, ""))
	events := f.events(t, 0)
	require.Equal(t, e, *events[0].Body.Epic, "the event has the whole epic")
	require.Equal(t, v, *events[1].Body.Task, "the event has the whole task")
	var kinds []feed.Kind
	for _, ev := range events {
		require.Equal(t, e.ID, ev.EpicID)
		kinds = append(kinds, ev.Kind)
	}
	require.Equal(t, feed.EpicCreated, kinds[0])
	require.Equal(t, []feed.Kind{feed.TaskCreated, feed.EpicUpdated}, kinds[1:3], "a task counts in its epic")
	require.Equal(t, feed.EpicDeleted, kinds[len(kinds)-1])
	require.Contains(t, f.told(t, 0), "task_deleted "+v.ID)
	require.Contains(t, f.told(t, 0), "epic_deleted "+e.ID)
	var gone []feed.Gone
	for _, ev := range events {
		if ev.Body.Gone != nil {
			gone = append(gone, *ev.Body.Gone)
		}
	}
	require.Len(t, gone, 2)
	require.Equal(t, feed.Gone{Title: v.Title, State: int16(epic.TaskCompleted)}, gone[0])
	require.Equal(t, "goal", gone[1].Title)
	require.Positive(t, gone[1].State)
}

func feedDependents(t *testing.T, f *fixture) {
	e := f.epic(t, epic.Epic{})
	first := f.task(t, e.ID)
	second, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: e.ID, Title: "task", Description: "long", DependsOn: []string{first.ID}})
	require.NoError(t, err)
	end := f.end(t)
	f.move(t, first.ID, epic.TaskCompleted)
	told := f.told(t, end)
	require.Contains(t, told, "task_updated "+first.ID)
	require.Contains(t, told, "task_updated "+second.ID)
	for _, ev := range f.events(t, end) {
		if ev.Body.Task == nil {
			continue
		}
		require.Equal(t, ev.Body.Task.ID == second.ID, ev.Body.Brief)
		if ev.Body.Brief {
			want, err := f.Task(f.ctx, ns, second.ID)
			require.NoError(t, err)
			require.Equal(t, epic.TaskPending, want.State)
			want.Description = ""
			require.Equal(t, want, *ev.Body.Task, "all but the long texts is told")
		}
	}
	third := f.task(t, e.ID, second.ID)
	end = f.end(t)
	require.NoError(t, f.DeleteTask(f.ctx, ns, second.ID, ""))
	require.Contains(t, f.told(t, end), "task_updated "+third.ID, "it does not depend on the deleted task any more")
}

func feedEnded(t *testing.T, f *fixture) {
	e := f.epic(t, epic.Epic{})
	one, two := f.task(t, e.ID), f.task(t, e.ID)
	end := f.end(t)
	f.moveEpic(t, e.ID, epic.Canceled)
	require.ElementsMatch(t, []string{"epic_updated " + e.ID, "task_updated " + one.ID, "task_updated " + two.ID}, f.told(t, end))
}

func feedUsage(t *testing.T, f *fixture) {
	e := f.epic(t, epic.Epic{})
	v := f.task(t, e.ID)
	end := f.end(t)
	in := []usage.Entry{entry("run", 1, v.ID, 5, 6), entry("run", 2, v.ID, 7, 8), entry("run", 3, "", 9, 10)}
	booked, err := f.RecordUsage(f.ctx, ns, in)
	require.NoError(t, err)
	_, err = f.RecordUsage(f.ctx, ns, in)
	require.NoError(t, err)
	events := f.events(t, end)
	require.Len(t, events, 2, "one event for the epic, one for what belongs to none, and nothing for the repetition")
	of := map[string][]usage.Entry{}
	for _, ev := range events {
		require.Equal(t, feed.UsageBooked, ev.Kind)
		of[ev.EpicID] = ev.Body.Usage
	}
	require.Equal(t, map[string][]usage.Entry{e.ID: booked[:2], "": booked[2:]}, of)
}

func feedCaps(t *testing.T, f *fixture) {
	e := f.epic(t, epic.Epic{BudgetTokens: ptr(int64(10))})
	v := f.task(t, e.ID)
	_, err := f.SetCaps(f.ctx, ns, ledger.ID{Level: ledger.Task, Name: v.ID}, ledger.Caps{}, ledger.Caps{Tokens: ptr(int64(9))})
	require.NoError(t, err)
	end := f.end(t)
	reached := func() (out []feed.Event) {
		for _, ev := range f.events(t, end) {
			if ev.Kind == feed.BudgetReached {
				out = append(out, ev)
			}
		}
		return out
	}
	for call, tokens := range []int64{8, 1, 1, 1} {
		_, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry("run", call, v.ID, tokens, 0)})
		require.NoError(t, err)
		require.Len(t, reached(), []int{0, 1, 2, 2}[call], "after call %d", call)
	}
	require.Equal(t, feed.Budget{Level: "task", Name: v.ID, Tokens: ptr(int64(9))}, *reached()[0].Body.Budget)
	require.Equal(t, feed.Budget{Level: "epic", Name: e.ID, Hard: true, Tokens: ptr(int64(10))}, *reached()[1].Body.Budget)
	require.Equal(t, e.ID, reached()[0].EpicID)
	require.Equal(t, e.ID, reached()[1].EpicID)
	_, err = f.SetCaps(f.ctx, ns, ledger.ID{Level: ledger.Namespace}, ledger.Caps{Tokens: ptr(int64(3))}, ledger.Caps{})
	require.NoError(t, err)
	require.Equal(t, feed.Budget{Level: "namespace", Name: ns, Hard: true, Tokens: ptr(int64(3))}, *reached()[2].Body.Budget, "a cap below what was spent is reached at once")
}

func feedWorkflows(t *testing.T, f *fixture) {
	w := f.workflow(t, "Flow")
	_, v, err := f.catalog.AddVersion(f.ctx, ns, w.Slug, request.Change{}, draft("Flow", "goodbye"))
	require.NoError(t, err)
	_, _, err = f.catalog.AddVersion(f.ctx, ns, w.Slug, request.Change{}, draft("Flow", "goodbye"))
	require.NoError(t, err)
	aliased, err := f.catalog.SetAlias(f.ctx, ns, w.Slug, request.Change{}, "live", []catalog.Weight{{Version: v.Number, Weight: 1}})
	require.NoError(t, err)
	require.NoError(t, f.catalog.Delete(f.ctx, ns, w.Slug, ""))
	p, err := f.CreatePrice(f.ctx, ns, accounting.Once{}, usage.Price{Model: "m", ValidFrom: dbkit.Now(), Input: 5, Reasoning: ptr(int64(6))})
	require.NoError(t, err)
	events := f.events(t, 0)
	require.Len(t, events, 5, "a version that is there already is no change")
	for i, want := range []struct {
		change  feed.WorkflowChangeKind
		version int64
	}{{feed.WorkflowCreated, 1}, {feed.WorkflowVersioned, 2}, {feed.WorkflowChanged, 0}, {feed.WorkflowDeleted, 0}} {
		require.Equal(t, w.Slug, events[i].Slug)
		require.Equal(t, want.change, events[i].Body.Change)
		require.Equal(t, want.version, events[i].Body.Version)
	}
	require.Equal(t, w.Etag(), events[0].Body.Workflow.Etag())
	require.Equal(t, w.Tags, events[0].Body.Workflow.Tags)
	require.Equal(t, aliased.Etag(), events[2].Body.Workflow.Etag())
	require.Equal(t, aliased.Aliases, events[2].Body.Workflow.Aliases)
	require.Equal(t, p, *events[4].Body.Price)
}

func feedRolledBack(t *testing.T, f *fixture) {
	no := errors.New("no")
	e := epic.New(ns, epic.Epic{Title: "never"}, dbkit.Now())
	err := f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
		require.NoError(t, tx.InsertEpic(ctx, e))
		return no
	})
	require.ErrorIs(t, err, no)
	require.Zero(t, f.end(t))
	kept := f.epic(t, epic.Epic{})
	require.Equal(t, []string{"epic_created " + kept.ID}, f.told(t, 0), "its sequence was not used up")
}

func feedConcurrent(t *testing.T, f *fixture) {
	const writers, each = 8, 8
	var done atomic.Bool
	read := make(chan error, 1)
	seen := int64(0)
	go func() {
		read <- func() error {
			for {
				last := done.Load()
				p, err := f.Events(f.ctx, feed.Query{Namespace: ns, After: seen, Limit: 100})
				if err != nil {
					return err
				}
				for _, e := range p.Events {
					if seen++; e.Seq != seen {
						return fmt.Errorf("event %d follows %d", e.Seq, seen-1)
					}
				}
				if last && p.End {
					return nil
				}
			}
		}()
	}()
	results := together(writers, func(w int) error {
		for i := range each {
			e, err := f.CreateEpic(f.ctx, ns, accounting.Once{}, epic.Epic{Title: fmt.Sprint(w, i)})
			if err != nil {
				return err
			}
			if _, err := f.CreateTask(f.ctx, ns, accounting.Once{}, epic.Task{EpicID: e.ID, Title: "task"}); err != nil {
				return err
			}
			if _, err := f.RecordUsage(f.ctx, ns, []usage.Entry{entry(fmt.Sprint("run", w), i, "", 1, 1)}); err != nil {
				return err
			}
		}
		return nil
	})
	done.Store(true)
	for _, err := range results {
		require.NoError(t, err)
	}
	require.NoError(t, <-read)
	require.Equal(t, int64(writers*each*4), seen, "a reader at the same time has missed nothing: created, created, updated, booked")
	var before time.Time
	for _, e := range f.events(t, 0) {
		require.False(t, e.Time.Before(before), "events are told in the order of their times")
		before = e.Time
	}
}

func feedFilters(t *testing.T, f *fixture) {
	one, two := f.epic(t, epic.Epic{}), f.epic(t, epic.Epic{})
	v := f.task(t, two.ID)
	w := f.workflow(t, "Flow")
	within := access.WithRun(f.ctx, "run_1")
	_, err := f.CreateEpic(within, ns, request.Once{}, epic.Epic{Title: "made by a run"})
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		q    feed.Query
		want int
	}{
		"Epic":         {feed.Query{EpicID: one.ID}, 1},
		"OtherEpic":    {feed.Query{EpicID: two.ID}, 3},
		"Kinds":        {feed.Query{Kinds: []feed.Kind{feed.EpicCreated, feed.TaskCreated}}, 4},
		"EpicAndKinds": {feed.Query{EpicID: two.ID, Kinds: []feed.Kind{feed.TaskCreated}}, 1},
		"Workflow":     {feed.Query{Slug: w.Slug}, 1},
		"Run":          {feed.Query{RunID: "run_1"}, 1},
		"OtherRun":     {feed.Query{RunID: "run_2"}, 0},
		"RunAndEpic":   {feed.Query{RunID: "run_1", EpicID: one.ID}, 0},
		"None":         {feed.Query{Slug: w.Slug, EpicID: v.EpicID}, 0},
	} {
		tc.q.Namespace, tc.q.Limit = ns, 100
		p, err := f.Events(f.ctx, tc.q)
		require.NoError(t, err, name)
		require.Len(t, p.Events, tc.want, name)
		require.True(t, p.End, name)
		require.Equal(t, f.end(t), p.Cursor, name)
	}
}

func feedCursors(t *testing.T, f *fixture) {
	e := f.epic(t, epic.Epic{})
	for range 4 {
		f.epic(t, epic.Epic{})
	}
	f.task(t, e.ID)
	q := feed.Query{Namespace: ns, EpicID: e.ID, Limit: 1}
	var seqs, cursors []int64
	for {
		p, err := f.Events(f.ctx, q)
		require.NoError(t, err)
		for _, ev := range p.Events {
			seqs = append(seqs, ev.Seq)
		}
		cursors = append(cursors, p.Cursor)
		if q.After = p.Cursor; p.End {
			break
		}
	}
	require.Equal(t, []int64{1, 6, 7}, seqs)
	require.Equal(t, []int64{1, 6, 7}, cursors)
}

func feedSwept(t *testing.T, f *fixture) {
	for range 10 {
		f.epic(t, epic.Epic{})
	}
	n, err := f.SweepFeed(f.ctx, feed.Bounds{Rows: 4, Bytes: 1 << 30, Age: time.Hour})
	require.NoError(t, err)
	require.Equal(t, int64(6), n)
	_, err = f.Events(f.ctx, feed.Query{Namespace: ns, After: 5, Limit: 10})
	requireError(t, err, errs.FailedPrecondition, feed.ReasonCursorGone)
	require.Len(t, f.events(t, 6), 4, "the last one that was removed is a cursor of those that are kept")
	p, err := f.Events(f.ctx, feed.Query{Namespace: ns, Limit: 10})
	require.NoError(t, err)
	require.Equal(t, int64(7), p.Events[0].Seq, "0 begins with the oldest one")
	_, err = f.Events(f.ctx, feed.Query{Namespace: ns, After: 11, Limit: 10})
	requireError(t, err, errs.FailedPrecondition, feed.ReasonCursorAhead)
	n, err = f.store.SweepFeed(f.ctx, feed.Bounds{Rows: 100, Bytes: 1 << 30, Age: time.Hour}, dbkit.Now().Add(2*time.Hour))
	require.NoError(t, err)
	require.Equal(t, int64(4), n, "old events go, however few they are")
	require.Equal(t, int64(10), f.end(t))
	f.epic(t, epic.Epic{})
	require.Len(t, f.events(t, 10), 1, "the sequence goes on")
}

func feedKept(t *testing.T, f *fixture) {
	for range 3 {
		f.epic(t, epic.Epic{})
	}
	n, err := f.SweepFeed(f.ctx, feed.Bounds{Rows: 3, Bytes: 1 << 30, Age: time.Hour})
	require.NoError(t, err)
	require.Zero(t, n)
	require.Len(t, f.events(t, 0), 3)
}

func feedLargeSwept(t *testing.T, f *fixture) {
	for range 10 {
		f.epic(t, epic.Epic{Title: "large", Description: strings.Repeat("x", 1000)})
	}
	bounds := feed.Bounds{Rows: 100, Bytes: 5500, Age: time.Hour}
	n, err := f.SweepFeed(f.ctx, bounds)
	require.NoError(t, err)
	require.Len(t, f.events(t, n), int(10-n))
	require.GreaterOrEqual(t, n, int64(5), "ten events of more than 1,000 bytes were too many")
	require.LessOrEqual(t, n, int64(8), "and it removes no more than it must")
	again, err := f.SweepFeed(f.ctx, bounds)
	require.NoError(t, err)
	require.Zero(t, again, "what was removed does not count any more")
	f.epic(t, epic.Epic{Title: "large", Description: strings.Repeat("x", 6000)})
	n, err = f.SweepFeed(f.ctx, bounds)
	require.NoError(t, err)
	require.Positive(t, n)
	_, err = f.Events(f.ctx, feed.Query{Namespace: ns, After: 1, Limit: 10})
	requireError(t, err, errs.FailedPrecondition, feed.ReasonCursorGone)
}

func feedSweptInTurn(t *testing.T, f *fixture) {
	const namespaces = 250 // more than one sweep looks at
	for i := range namespaces {
		for range 2 {
			_, err := f.CreateEpic(f.ctx, fmt.Sprintf("ns-%03d", i), accounting.Once{}, epic.Epic{Title: "one"})
			require.NoError(t, err)
		}
	}
	// Of each sweep the first ones have a new event again.
	bounds := feed.Bounds{Rows: 1, Bytes: 1 << 30, Age: time.Hour}
	n, err := f.SweepFeed(f.ctx, bounds)
	require.NoError(t, err)
	require.Equal(t, int64(200), n)
	for i := range 200 {
		_, err := f.CreateEpic(f.ctx, fmt.Sprintf("ns-%03d", i), accounting.Once{}, epic.Epic{Title: "two"})
		require.NoError(t, err)
	}
	_, err = f.SweepFeed(f.ctx, bounds)
	require.NoError(t, err)
	for i := 200; i < namespaces; i++ {
		_, err := f.Events(f.ctx, feed.Query{Namespace: fmt.Sprintf("ns-%03d", i), Limit: 10, After: 1})
		require.NoError(t, err)
		p, err := f.Events(f.ctx, feed.Query{Namespace: fmt.Sprintf("ns-%03d", i), Limit: 10})
		require.NoError(t, err)
		require.Len(t, p.Events, 1, "namespace %d had its turn", i)
	}
}

func feedWatchesBounded(t *testing.T, f *fixture) {
	bounds := accounting.DefaultBounds()
	bounds.Watches = 2
	f.Accounts = f.Within(bounds)
	f.epic(t, epic.Epic{})
	one, stop := f.watch(t, accounting.Watch{})
	two, _ := f.watch(t, accounting.Watch{})
	require.Equal(t, []int64{1, 1}, []int64{<-one, <-two})
	full := accounting.Watch{Query: feed.Query{Namespace: ns}, KeepAlive: time.Hour}
	requireError(t, f.WatchEvents(f.ctx, full, nil), errs.ResourceExhausted, accounting.ReasonTooManyWatches)
	require.ErrorIs(t, stop(), context.Canceled)
	three, _ := f.watch(t, accounting.Watch{})
	require.Equal(t, int64(1), <-three)
}

// counted counts how often the feed is read.
type counted struct {
	store.Store
	reads atomic.Int64
}

func (c *counted) View(ctx context.Context, namespace string, fn func(context.Context, store.Reader) error) error {
	c.reads.Add(1)
	return c.Store.View(ctx, namespace, fn)
}

func feedShared(t *testing.T, f *fixture) {
	c := &counted{Store: f.store}
	f.Accounts = accounting.New(c)
	f.epic(t, epic.Epic{})
	const watches = 50
	var all []<-chan int64
	for i := range watches {
		q := feed.Query{}
		if i%2 == 1 {
			q.Kinds = []feed.Kind{feed.EpicCreated}
		}
		got, _ := f.watch(t, accounting.Watch{Query: q})
		all = append(all, got)
	}
	next := func(seq int64) {
		for _, got := range all {
			require.Equal(t, seq, <-got)
		}
	}
	next(1)
	f.epic(t, epic.Epic{})
	next(2) // from here on all of them are at the end
	before := c.reads.Load()
	f.epic(t, epic.Epic{})
	next(3)
	f.epic(t, epic.Epic{})
	next(4)
	require.Less(t, c.reads.Load()-before, int64(watches/2), "they do not read the same events one by one")
}

func feedHeld(t *testing.T, f *fixture) {
	const size = 8000
	for range 20 {
		f.epic(t, epic.Epic{Title: "large", Description: strings.Repeat("x", size)})
	}
	budget := inflight.New(0)
	answer := budget.Answer(ns)
	defer answer.Free()
	ctx, cancel := context.WithCancel(answer.Stream(f.ctx))
	defer cancel()
	sending, sent, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- f.WatchEvents(ctx, accounting.Watch{Query: feed.Query{Namespace: ns}, KeepAlive: time.Hour}, func([]feed.Event, int64) error {
			sending <- struct{}{}
			<-sent
			return nil
		})
	}()
	<-sending
	require.Greater(t, budget.Used(), int64(20*size), "a page that is not sent yet is held")
	close(sent)
	testkit.Eventually(t, func() bool { return budget.Used() == 0 }, "a watch that waits holds nothing")
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// watch follows the feed until the test ends, or stop is called.
func (f *fixture) watch(t testing.TB, w accounting.Watch) (got <-chan int64, stop func() error) {
	ctx, cancel := context.WithCancel(f.ctx)
	out, ended := make(chan int64, 1000), make(chan error, 1)
	w.Namespace = ns
	if w.KeepAlive == 0 {
		w.KeepAlive = time.Hour
	}
	go func() {
		ended <- f.WatchEvents(ctx, w, func(events []feed.Event, cursor int64) error {
			for _, e := range events {
				out <- e.Seq
			}
			if len(events) == 0 {
				out <- -cursor
			}
			return nil
		})
	}()
	stop = func() error { cancel(); return <-ended }
	t.Cleanup(cancel)
	return out, stop
}

func feedWatched(t *testing.T, f *fixture) {
	f.epic(t, epic.Epic{})
	got, stop := f.watch(t, accounting.Watch{})
	require.Equal(t, int64(1), <-got)
	begun := time.Now()
	f.epic(t, epic.Epic{})
	require.Equal(t, int64(2), <-got)
	require.Less(t, time.Since(begun), 4*time.Second, "it was woken and did not wait for its next look")
	require.ErrorIs(t, stop(), context.Canceled)
	f.epic(t, epic.Epic{})
	f.epic(t, epic.Epic{})
	got, _ = f.watch(t, accounting.Watch{Query: feed.Query{After: 2}})
	require.Equal(t, []int64{3, 4}, []int64{<-got, <-got}, "it goes on where it was cut off")
}

func feedQuiet(t *testing.T, f *fixture) {
	e := f.epic(t, epic.Epic{})
	f.epic(t, epic.Epic{})
	got, _ := f.watch(t, accounting.Watch{Query: feed.Query{EpicID: e.ID}, KeepAlive: 20 * time.Millisecond})
	require.Equal(t, int64(1), <-got)
	require.Equal(t, int64(-2), <-got, "it has come past the other epic")
}

func feedStopped(t *testing.T, f *fixture) {
	stopped := make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- f.WatchEvents(f.ctx, accounting.Watch{Query: feed.Query{Namespace: ns}, KeepAlive: time.Hour, Stop: stopped}, nil)
	}()
	close(stopped)
	require.NoError(t, <-ended)
}

func feedLarge(t *testing.T, f *fixture) {
	e := f.epic(t, epic.Epic{})
	const tasks = 250
	for range tasks {
		f.task(t, e.ID)
	}
	end := f.end(t)
	f.moveEpic(t, e.ID, epic.Canceled)
	events := f.events(t, end)
	require.Len(t, events, tasks+1)
	ids := map[string]bool{}
	for _, ev := range events {
		if ev.Body.Task != nil {
			require.Equal(t, epic.TaskCanceled, ev.Body.Task.State)
			ids[ev.Body.Task.ID] = true
		}
	}
	require.Len(t, ids, tasks)
}

func feedNamespaces(t *testing.T, f *fixture) {
	f.epic(t, epic.Epic{})
	_, err := f.CreateEpic(f.ctx, "other", accounting.Once{}, epic.Epic{Title: "theirs"})
	require.NoError(t, err)
	require.Len(t, f.events(t, 0), 1)
	p, err := f.Events(f.ctx, feed.Query{Namespace: "other", Limit: 10})
	require.NoError(t, err)
	require.Len(t, p.Events, 1)
	require.Equal(t, int64(1), p.Events[0].Seq)
	require.Equal(t, "theirs", p.Events[0].Body.Epic.Title)
}

func feedBrief(t *testing.T, f *fixture) {
	e := epic.New(ns, epic.Epic{Title: "brief"}, dbkit.Now())
	require.NoError(t, f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
		if err := tx.InsertEpic(ctx, e); err != nil {
			return err
		}
		return tx.DeleteEpic(ctx, ns, e.ID, e.Revision)
	}))
	require.Empty(t, f.events(t, 0))
}

func feedBytes(t *testing.T, f *fixture) {
	big := strings.Repeat("x", 1<<20)
	const epics = 10
	for range epics {
		e := epic.New(ns, epic.Epic{Title: "big", Description: big}, dbkit.Now())
		require.NoError(t, f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error { return tx.InsertEpic(ctx, e) }))
	}
	q := feed.Query{Namespace: ns, Limit: math.MaxInt32}
	p, err := f.Events(f.ctx, q)
	require.NoError(t, err)
	require.Less(t, len(p.Events), epics)
	require.False(t, p.End)
	require.Equal(t, p.Events[len(p.Events)-1].Seq, p.Cursor)
	q.After = p.Cursor
	rest, err := f.Events(f.ctx, q)
	require.NoError(t, err)
	require.Equal(t, p.Cursor+1, rest.Events[0].Seq)
}

func feedRepeated(t *testing.T, f *fixture) {
	for range 2 {
		_, err := f.CreateEpic(f.ctx, ns, accounting.Once{ID: "one"}, epic.Epic{Title: "goal"})
		require.NoError(t, err)
	}
	_, err := f.catalog.Create(f.ctx, ns, request.Once{ID: "two"}, draft("Flow", "hello"), "")
	require.NoError(t, err)
	_, err = f.catalog.Create(f.ctx, ns, request.Once{ID: "two"}, draft("Flow", "hello"), "")
	require.NoError(t, err)
	require.Len(t, f.events(t, 0), 2)
	_, err = f.catalog.Create(f.ctx, ns, request.Once{}, cataloging.Draft{Form: catalog.Definition, Source: "nothing"}, "")
	require.Error(t, err)
	require.Len(t, f.events(t, 0), 2, "what is refused is not told")
}
