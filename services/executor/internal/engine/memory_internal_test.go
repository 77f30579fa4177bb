package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TestProgramBytes measures what compiled graphs take. Nothing runs beside it, as it is not parallel.
func TestProgramBytes(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	graph := func(nodes int, change func(i int, n *workgraph.Node)) *workgraph.Graph {
		g := &workgraph.Graph{Nodes: make([]workgraph.Node, nodes)}
		for i := range g.Nodes {
			n := &g.Nodes[i]
			n.ID, n.Actor = fmt.Sprintf("n%d", i), "a"
			change(i, n)
		}
		return g
	}
	check := func(schema string) func(i int, n *workgraph.Node) {
		return func(i int, n *workgraph.Node) {
			n.Check = &workgraph.Check{Schema: json.RawMessage(fmt.Sprintf(schema, i))}
		}
	}
	dense := graph(250, func(int, *workgraph.Node) {})
	for i := range dense.Nodes {
		for j := range i {
			if len(dense.Edges) < workgraph.MaxEdges {
				dense.Edges = append(dense.Edges, workgraph.Edge{From: dense.Nodes[j].ID, To: dense.Nodes[i].ID})
			}
		}
	}
	for name, g := range map[string]*workgraph.Graph{
		"Nodes": graph(5000, func(int, *workgraph.Node) {}),
		"Edges": dense,
		"Expressions": graph(1000, func(i int, n *workgraph.Node) {
			n.When = fmt.Sprintf("[1, 2, 3].all(x, x > 0 && visit + %d > 3 || attempt > x)", i)
		}),
		"Short":       graph(1000, func(i int, n *workgraph.Node) { n.When = fmt.Sprintf("visit > %d", i) }),
		"Schemas":     graph(500, check(`{"type": "object", "properties": {"a%d": {"type": "string"}, "b": {"type": "array", "items": {"type": "integer"}}}}`)),
		"Patterns":    graph(20, check(`{"type": "string", "pattern": "^[a-x]{1,900}%d$"}`)),
		"Alternation": graph(200, check(`{"type": "string", "pattern": "^(a|b){1,50}[c-z]{3,40}%d$"}`)),
	} {
		t.Run(name, func(t *testing.T) {
			s := newPrograms(fixed{}, workgraph.Limits{}, 1)
			before := heap()
			p, err := s.compile(t.Context(), "ns", g, nil, func() error { return nil })
			require.NoError(t, err)
			took := heap() - before
			t.Logf("%d bytes, counted as %d", took, p.bytes())
			require.LessOrEqual(t, took, p.bytes()*3/2)
			require.GreaterOrEqual(t, took, p.bytes()/5)
		})
	}
}

func TestMemory(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	t.Run("Line/WhatIsGrantedIsKeptUntilItIsClaimed", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			m := newMemory(80 * mib)
			require.True(t, m.Try("a", 30*mib))
			in := make(chan error, 1)
			go func() { in <- m.wait(t.Context(), "run_large", &noRoomError{namespace: "a", size: 100 * mib}) }()
			synctest.Wait()
			require.Empty(t, in)
			m.Add("a", -30*mib)
			require.NoError(t, <-in)
			require.EqualValues(t, 100*mib, m.Used())
			require.Equal(t, grant{size: 100 * mib}, m.claim("run_large"))
			require.Zero(t, m.claim("run_large"))
		})
	})
	t.Run("Canceled/TakesWhatIsKeptBeyondTheBudget", func(t *testing.T) {
		t.Parallel()
		m := newMemory(80 * mib)
		m.Add("a", 80*mib)
		_, ok := m.take("run_1", "a", mib, false)
		require.False(t, ok)
		beyond, ok := m.take("run_1", "a", mib, true)
		require.True(t, ok)
		require.EqualValues(t, mib, beyond)
		require.EqualValues(t, 81*mib, m.Used(), "it counts as every live run does")
		_, ok = m.take("run_2", "a", 4*mib, true)
		require.False(t, ok, "others end first")
		beyond, ok = m.take("run_3", "b", 4*mib, true)
		require.True(t, ok)
		require.Zero(t, beyond, "it has room like any other")
		require.NoError(t, m.wait(t.Context(), "run_4", &noRoomError{"b", mib, true}))
		m.forfeit("run_4", "b")
		require.NoError(t, m.wait(t.Context(), "run_5", &noRoomError{"b", mib, true}))
		beyond, ok = m.take("run_5", "b", 2*mib, true)
		require.True(t, ok)
		require.EqualValues(t, mib, beyond, "as much as is to be given back")
		require.EqualValues(t, 2*mib, m.canceled.Used())
	})
	t.Run("Read/AsManyAtOnceAsWouldFit", func(t *testing.T) {
		t.Parallel()
		m := newMemory(80 * mib)
		require.True(t, m.Try("a", 30*mib))
		require.True(t, m.read(20*mib))
		require.True(t, m.read(20*mib))
		require.False(t, m.read(20*mib))
		m.wasRead()
		m.wasRead()
		require.True(t, m.Try("b", 30*mib))
		require.True(t, m.read(200*mib), "one always")
		require.False(t, m.read(20*mib))
	})
	t.Run("Programs/AreForgottenByBytes", func(t *testing.T) {
		t.Parallel()
		s := newPrograms(fixed{}, workgraph.Limits{}, 10*mib)
		var last *program
		for i := range 20 {
			g := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "n", Actor: "a", Args: []json.RawMessage{json.RawMessage(fmt.Sprintf(`"%d%s"`, i, strings.Repeat("x", mib)))}}}}
			var err error
			last, err = s.compile(t.Context(), "ns", g, nil, func() error { return nil })
			require.NoError(t, err)
			require.LessOrEqual(t, s.byKey.Weight(), int64(10*mib))
		}
		require.Same(t, last, s.find("pinned/"+last.hash), "the newest is remembered")
		require.Less(t, s.byKey.Len(), 12)
	})
	t.Run("Watch/ASlowWatcherHoldsNoMoreThanABound", func(t *testing.T) {
		t.Parallel()
		s := &subscription{wake: make(chan struct{}, 1)}
		big := Event{Durable: &record.Durable{Event: workgraph.Event{Seq: 1, Outcome: &workgraph.Outcome{Values: []json.RawMessage{make([]byte, mib)}}}}}
		for range 100 {
			s.put(big)
		}
		require.Len(t, s.events, 1)
		require.True(t, s.missed, "the rest is read from the journal")
		require.Len(t, s.take(), 1)
		s.put(big)
		require.Len(t, s.events, 1)
	})
}

type fixed struct{ Actors }

func (fixed) Find(_ context.Context, _ string, names []string) (map[string]ActorInfo, error) {
	out := map[string]ActorInfo{}
	for _, n := range names {
		out[n] = ActorInfo{ActorInfo: workgraph.ActorInfo{Effect: workgraph.Pure}}
	}
	return out, nil
}

// registered counts how often it is asked who lives.
type registered struct {
	journal.Journal
	asked atomic.Int32
	all   []journal.Executor
}

func (j *registered) Executors(context.Context) ([]journal.Executor, error) {
	j.asked.Add(1)
	return j.all, nil
}

func TestHasPeers(t *testing.T) {
	t.Parallel()
	t.Run("RunsThatWaitShareOneAnswer", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			j := &registered{}
			tm := &session{e: &Engine{journal: j, cfg: Config{Lease: time.Minute}}, owner: journal.Owner{ID: "me"}, background: t.Context()}
			all := func(want bool) {
				var wg sync.WaitGroup
				for range 100 {
					wg.Go(func() { require.Equal(t, want, tm.hasPeers()) })
				}
				wg.Wait()
			}
			all(false)
			require.EqualValues(t, 1, j.asked.Load())
			j.all = []journal.Executor{{Owner: journal.Owner{ID: "other"}}}
			all(false)
			require.EqualValues(t, 1, j.asked.Load(), "the answer holds for a while")
			time.Sleep(peersKnown) //nolint:forbidigo // fake time
			all(true)
			require.EqualValues(t, 2, j.asked.Load())
		})
	})
}

// TestWaitsForRoom says of a run that waits for memory that it does so, to its namespace alone.
func TestWaitsForRoom(t *testing.T) {
	t.Parallel()
	e := &Engine{ready: make(chan struct{})}
	since := time.Now()
	e.set(&session{runs: map[string]*run{}, lines: roomLines{by: map[string]*inLine{"run_1": {lacks: &noRoomError{namespace: "acme"}, since: since}}}})
	for _, id := range []string{"other/run_1", "acme/run_2"} {
		namespace, run, _ := strings.Cut(id, "/")
		_, waits := e.WaitsForRoom(namespace, run)
		require.False(t, waits, id)
	}
	at, waits := e.WaitsForRoom("acme", "run_1")
	require.True(t, waits)
	require.Equal(t, since, at)
}

// TestDefaultLive sets the memory limit of the process, so that nothing may run beside it.
func TestDefaultLive(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	require.EqualValues(t, 1<<30, DefaultLive(), "without a limit")
	for limit, want := range map[int64]int64{1 << 30: 128 << 20, 64 << 20: 32 << 20, 64 << 30: 8 << 30} {
		debug.SetMemoryLimit(limit)
		require.Equal(t, want, DefaultLive(), "with a limit of %d", limit)
		require.Equal(t, want, DefaultConfig().MaxLiveBytes, "with a limit of %d", limit)
	}
}
