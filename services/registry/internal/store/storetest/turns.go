package storetest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/registry/internal/accounting"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// asClient is the context of a call with an API key.
func asClient(ctx context.Context) context.Context {
	return access.With(ctx, access.Principal{Kind: access.Key, Name: "k", Scopes: access.DefaultScopes()})
}

// call is one of a namespace's clients that lasts until it is let go.
type call func(ctx context.Context, namespace string, goOn <-chan struct{}) error

// attack has more clients of each namespace call than may have turns and wait for one. When it returns, all
// turns that they can have are taken, until the end of the test.
func attack(t *testing.T, c call, namespaces ...string) {
	const crowd = dbkit.MaxWaiting + 200
	var all sync.WaitGroup
	goOn := make(chan struct{})
	ctx, cancel := context.WithCancel(context.WithoutCancel(asClient(t.Context())))
	t.Cleanup(func() {
		cancel()
		close(goOn)
		all.Wait()
	})
	for _, namespace := range namespaces {
		refused := make(chan error, crowd)
		for range crowd {
			all.Go(func() {
				if err := c(ctx, namespace, goOn); err != nil {
					refused <- err
				}
			})
		}
		err := requireError(t, <-refused, errs.ResourceExhausted, dbkit.ReasonBusy)
		require.Equal(t, "1", err.Meta[errs.MetaRetryAfter])
	}
}

// read keeps a reader.
func (f *fixture) read(ctx context.Context, namespace string, goOn <-chan struct{}) error {
	return f.store.View(ctx, namespace, func(ctx context.Context, r store.Reader) error {
		// With the snapshot, and on PostgreSQL the transaction, that a search would have.
		_, err := r.NamespaceTotals(ctx, namespace)
		<-goOn
		return err
	})
}

// write keeps a writer.
func (f *fixture) write(ctx context.Context, namespace string, goOn <-chan struct{}) error {
	return f.store.Update(ctx, namespace, func(context.Context, store.Tx) error {
		<-goOn
		return nil
	})
}

func turnCases() map[string]func(*testing.T, *fixture) {
	return map[string]func(*testing.T, *fixture){
		"Turns/ReadersOfOneNamespaceLeaveOthersTheirs": func(t *testing.T, f *fixture) {
			attack(t, f.read, ns)
			_, err := f.NamespaceTotals(asClient(t.Context()), "other")
			require.NoError(t, err)
		},
		"Turns/ReadersOfManyNamespacesLeaveServicesTheirs": func(t *testing.T, f *fixture) {
			e := f.epic(t, epic.Epic{})
			v := f.task(t, e.ID)
			_, _, err := f.ClaimTask(f.ctx, ns, v.ID, "run", time.Minute)
			require.NoError(t, err)
			f.moveEpic(t, e.ID, epic.Canceled)
			attack(t, f.read, ns, "b", "c")
			leased, err := f.LeaseOrders(f.ctx, 10, time.Minute)
			require.NoError(t, err)
			require.Len(t, leased, 1, "cancellations go on")
			require.NoError(t, f.AcknowledgeOrders(f.ctx, leased))
			_, err = f.NamespaceTotals(f.ctx, ns)
			require.NoError(t, err, "what a service asks for the namespace does not wait for its clients")
			require.NoError(t, f.store.Ready(f.ctx))
			_, _, err = f.Sweep(f.ctx)
			require.NoError(t, err)
		},
		"Turns/WhoWaitsGoesWithItsContext": func(t *testing.T, f *fixture) {
			attack(t, f.read, "b")
			ended, end := context.WithCancel(asClient(t.Context()))
			end()
			_, err := f.NamespaceTotals(ended, "b")
			require.Error(t, err)
		},
		"Turns/WritersWaitInTheLineOfTheirNamespace": func(t *testing.T, f *fixture) {
			attack(t, f.write, ns)
			_, err := f.NamespaceTotals(asClient(t.Context()), "other")
			require.NoError(t, err, "nobody's reads wait for them")
		},
		// 300 searches at once, each of which compares nearly every letter of every epic with the whole text.
		// They go on until the neighbor and the services have their answers.
		"Turns/SearchesOfOneNamespace": func(t *testing.T, f *fixture) {
			const crowd = 300
			text := strings.Repeat("a", 65_000)
			require.NoError(t, f.store.Update(f.ctx, ns, func(ctx context.Context, tx store.Tx) error {
				for i := range 20 {
					if err := tx.InsertEpic(ctx, epic.New(ns, epic.Epic{Title: fmt.Sprint(i), Description: text}, dbkit.Now())); err != nil {
						return err
					}
				}
				return nil
			}))
			client, cancel := context.WithCancel(asClient(t.Context()))
			answers := make(chan error, crowd)
			for range crowd {
				go func() {
					_, err := f.Accounts.Epics(client, store.EpicQuery{Namespace: ns, Text: strings.Repeat("a", 250) + "b", Limit: 50})
					answers <- err
				}()
			}
			for range 20 {
				_, err := f.NamespaceTotals(asClient(t.Context()), "other")
				require.NoError(t, err)
				_, err = f.LeaseOrders(f.ctx, 10, time.Minute)
				require.NoError(t, err)
			}
			cancel()
			for range crowd {
				if err := <-answers; err != nil && errs.ReasonOf(err) != dbkit.ReasonBusy {
					require.ErrorIs(t, client.Err(), context.Canceled, "got %v", err)
				}
			}
		},
	}
}

func lookCases() map[string]func(*testing.T, *fixture) {
	// pages lists all pages of a list and returns the ids of each.
	pages := func(t *testing.T, list func(after page.Cursor) (ids []string, last, stopped page.Cursor)) (all [][]string) {
		var after page.Cursor
		for {
			ids, last, stopped := list(after)
			all = append(all, ids)
			switch {
			case !stopped.IsZero():
				require.NotEqual(t, after, stopped, "it goes on")
				after = stopped
			case len(ids) > 0:
				require.LessOrEqual(t, len(all), 100)
				after = last
			default:
				return all
			}
		}
	}
	return map[string]func(*testing.T, *fixture){
		"Look/EpicsStopAfterSoManyAndGoOn": func(t *testing.T, f *fixture) {
			var want []string
			for i := range 150 {
				in := epic.Epic{Title: "other"}
				if i%70 == 3 {
					in = epic.Epic{Title: "wanted", Tags: []string{"x"}, Labels: map[string]string{"k": "v"}}
				}
				if e := f.epic(t, in); i%70 == 3 {
					want = append([]string{e.ID}, want...)
				}
			}
			for name, q := range map[string]store.EpicQuery{
				"text": {Text: "want"}, "tag": {AnyTag: []string{"x"}}, "label": {Labels: map[string]string{"k": "v"}},
				"all": {Text: "want", AnyTag: []string{"x"}, Labels: map[string]string{"k": "v"}, States: []epic.State{epic.Planning}},
			} {
				q.Namespace, q.Limit, q.Look = ns, 10, 60
				all := pages(t, func(after page.Cursor) (ids []string, last, stopped page.Cursor) {
					q.After = after
					found, err := f.Accounts.Epics(f.ctx, q)
					require.NoError(t, err)
					for _, e := range found.Rows {
						ids, last = append(ids, e.ID), page.Cursor{CreateTime: e.CreateTime, ID: e.ID}
					}
					return ids, last, found.Stopped
				})
				require.Equal(t, [][]string{want[:1], want[1:2], want[2:]}, all[:3], name)
			}
		},
		"Look/TasksOfAnEpicStopAfterSoManyAndGoOn": func(t *testing.T, f *fixture) {
			e, other := f.epic(t, epic.Epic{}), f.epic(t, epic.Epic{})
			var want []string
			for i := range 30 {
				f.task(t, other.ID)
				in := epic.Task{EpicID: e.ID}
				if i == 12 || i == 25 {
					in.Tags = []string{"x"}
				}
				v, err := f.CreateTask(f.ctx, ns, accounting.Once{}, in)
				require.NoError(t, err)
				if in.Tags != nil {
					want = append(want, v.ID)
				}
			}
			q := store.TaskQuery{Namespace: ns, EpicID: e.ID, AnyTag: []string{"x"}, Limit: 10, Look: 10}
			all := pages(t, func(after page.Cursor) (ids []string, last, stopped page.Cursor) {
				q.After = after
				found, err := f.Accounts.Tasks(f.ctx, q)
				require.NoError(t, err)
				for _, v := range found.Rows {
					ids, last = append(ids, v.ID), page.Cursor{CreateTime: v.CreateTime, ID: v.ID}
				}
				return ids, last, found.Stopped
			})
			require.Equal(t, [][]string{nil, want[:1], want[1:], nil}, all, "only tasks of the epic are looked at")
		},
		"Look/FullPageEndsBeforeTheBound": func(t *testing.T, f *fixture) {
			for range 5 {
				f.epic(t, epic.Epic{Tags: []string{"x"}})
			}
			found, err := f.Accounts.Epics(f.ctx, store.EpicQuery{Namespace: ns, AnyTag: []string{"x"}, Limit: 3})
			require.NoError(t, err)
			require.Len(t, found.Rows, 3)
			last := found.Rows[2]
			require.Equal(t, page.Cursor{CreateTime: last.CreateTime, ID: last.ID}, found.Stopped)
		},
		"Look/WholeListHasNoEndToGoOnFrom": func(t *testing.T, f *fixture) {
			f.epic(t, epic.Epic{})
			for _, q := range []store.EpicQuery{{Text: "none"}, {}} {
				q.Namespace, q.Limit = ns, 3
				found, err := f.Accounts.Epics(f.ctx, q)
				require.NoError(t, err)
				require.True(t, found.Stopped.IsZero())
			}
		},
	}
}
