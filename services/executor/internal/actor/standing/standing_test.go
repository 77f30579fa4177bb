package standing_test

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/standing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

const namespace = "ns"

func call(root, parent, run string) *workgraph.Call {
	return &workgraph.Call{Start: workgraph.Start{RunID: run, RootRunID: root, ParentRunID: parent}}
}

func TestPlace(t *testing.T) {
	t.Parallel()
	require.False(t, standing.Place{}.Of(""), "nobody stands on no thread")
	p := standing.Place{Thread: "thr_1", Runs: []string{"root", "loop"}}
	require.True(t, p.Of("loop"))
	require.False(t, p.Of("root"), "it holds the thread and stands elsewhere")
	require.True(t, p.LentTo(call("root", "loop", "round")), "a call of one of its rounds")
	require.True(t, p.LentTo(call("root", "root", "loop")), "a call of its own")
	require.False(t, p.LentTo(call("root", "another", "round")))
	require.False(t, p.LentTo(call("loop", "", "loop")), "a root has the thread from nobody")
	require.True(t, standing.Place{Runs: []string{"root"}}.LentTo(call("root", "", "root")))
	require.Equal(t, []string{"root"}, standing.Holders(call("root", "", "root")))
	require.Equal(t, []string{"root", "loop"}, standing.Holders(call("root", "mid", "loop")))
	require.Equal(t, []string{"alone"}, standing.Holders(call("", "", "alone")))
}

// place is a database with threads, without the runs that would hold them.
type place struct {
	*sqlite.Store

	t     *testing.T
	ctx   context.Context
	cache *thread.Cache
	owner journal.Owner
}

func open(t *testing.T) *place {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "j.db"), sqlite.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	_, err = s.Migrations().Up(t.Context())
	require.NoError(t, err)
	owner, err := s.Register(t.Context(), "x", "")
	require.NoError(t, err)
	return &place{s, t, actor.WithNamespace(t.Context(), namespace), thread.NewCache(s, 0), owner}
}

// commit writes what a call appends, as the run of the call.
func (p *place) commit(run string, a workgraph.ThreadAppend) error {
	as := []workgraph.ThreadAppend{a}
	require.NoError(p.t, thread.Check(as))
	now := dbkit.Now()
	w := journal.Write{Start: &journal.Start{Run: journal.Run{ID: run, Namespace: namespace, GraphHash: "h", CreateTime: now, Status: journal.Status{State: journal.StateCompleted}},
		Append: journal.Append{Graph: []byte("g"), Events: []journal.Event{{Kind: 1, Time: now}}, Threads: thread.Appends(as, run, "n", 1, now)}}}
	res, err := p.Commit(p.ctx, p.owner, []journal.Write{w})
	require.NoError(p.t, err)
	return res[0].Err
}

func message(text string) workgraph.ThreadItem {
	return workgraph.ThreadItem{Kind: workgraph.ThreadMessage, Body: json.RawMessage(`{"role":"user","content":"` + text + `"}`)}
}

func TestThreads(t *testing.T) {
	t.Parallel()
	p := open(t)
	loop := call("run_root", "", "run_loop")

	a, at, err := standing.Begin(p.ctx, p.cache, loop, "thr_1", &workgraph.ThreadCreate{Lifetime: workgraph.ThreadConversation, Key: "k"}, nil)
	require.NoError(t, err)
	require.Equal(t, standing.Place{Thread: "thr_1", Runs: []string{"run_loop"}}, at, "who makes a thread holds it alone")
	require.Empty(t, standing.Before(a).Thread, "there is nothing to read before it is made")
	a.Items = []workgraph.ThreadItem{message("one"), message("two")}
	at.Seq += 2
	require.NoError(t, p.commit("run_loop", a))

	id, err := standing.Find(p.ctx, p.cache, "k")
	require.NoError(t, err)
	require.Equal(t, "thr_1", id)
	id, err = standing.Find(p.ctx, p.cache, "other")
	require.NoError(t, err)
	require.Empty(t, id)

	a, next, err := standing.Append(p.ctx, p.cache, loop, at, []workgraph.ThreadItem{message("three")})
	require.NoError(t, err)
	require.Equal(t, standing.Place{Thread: "thr_1", Seq: 3, Runs: []string{"run_loop"}}, next)
	require.Equal(t, standing.Place{Thread: "thr_1", Seq: 2}, standing.Before(a))
	fork := call("run_fork", "", "run_fork")
	_, taken, err := standing.Append(p.ctx, p.cache, fork, at, nil)
	require.NoError(t, err)
	require.Equal(t, standing.Place{Thread: "thr_1", Seq: 2, Runs: []string{"run_fork"}}, taken, "nobody went on: the fork of the run does")
	require.NoError(t, p.commit("run_more", a))

	b, forked, err := standing.Append(p.ctx, p.cache, fork, at, []workgraph.ThreadItem{message("else")})
	require.NoError(t, err)
	require.NotEqual(t, "thr_1", forked.Thread, "somebody went on: it takes a fork of the thread")
	require.Equal(t, standing.Place{Thread: forked.Thread, Seq: 3, Runs: []string{"run_fork"}}, forked)
	require.Equal(t, standing.Place{Thread: "thr_1", Seq: 2}, standing.Before(b))
	require.NoError(t, p.commit("run_fork", b))
	items, err := p.cache.Items(p.ctx, namespace, forked.Thread, thread.Query{})
	require.NoError(t, err)
	require.Len(t, items, 3)
	require.JSONEq(t, string(message("else").Body), string(items[0].Body))

	a, at, err = standing.Begin(p.ctx, p.cache, call("run_root", "", "run_sub"), "thr_1", nil, []string{"run_root", "run_loop"})
	require.NoError(t, err)
	require.Equal(t, standing.Place{Thread: "thr_1", Seq: 3, Runs: []string{"run_root", "run_loop", "run_sub"}}, at, "it is lent")
	require.EqualValues(t, 3, a.After)
	_, at, err = standing.Begin(p.ctx, p.cache, loop, "thr_1", nil, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"run_root", "run_loop"}, at.Runs)
}

func TestErrors(t *testing.T) {
	t.Parallel()
	p := open(t)
	c := call("run_1", "", "run_1")
	_, _, first := standing.Begin(p.ctx, p.cache, c, "thr_none", nil, nil)
	_, _, later := standing.Append(p.ctx, p.cache, c, standing.Place{Thread: "thr_none"}, nil)
	for _, err := range []error{first, later} {
		e, ok := errors.AsType[*workgraph.Error](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, thread.ReasonNotFound, e.Reason)
		require.Equal(t, workgraph.Permanent, e.Type)
	}
	e, ok := errors.AsType[*workgraph.Error](standing.Error(errs.New(errs.Unavailable, "AWAY", "the database is away")))
	require.True(t, ok)
	require.Equal(t, workgraph.Retryable, e.Type, "that of a database is tried again")
}
