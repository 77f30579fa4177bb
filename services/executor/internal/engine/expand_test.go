package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// forgetful is a journal without snapshots.
type forgetful struct{ journal.Journal }

func (f forgetful) Load(ctx context.Context, runID string) (journal.Loaded, error) {
	l, err := f.Journal.Load(ctx, runID)
	if err != nil {
		return l, err
	}
	l.Snapshot, l.SnapshotSeq = nil, 0
	l.Events, err = f.Events(ctx, l.Run.Namespace, runID, 0, 10_000)
	return l, err
}

// steps is a chain of these actors.
func steps(actors ...string) *workgraph.Graph {
	g := chain(len(actors), "")
	for i, a := range actors {
		g.Nodes[i].Actor = a
	}
	return g
}

func TestExpansionsAreBounded(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		a := actors{"ok": &recorder{}, "signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}}),
			"grows": outcome(func(*workgraph.Call) workgraph.Outcome {
				return workgraph.Outcome{Expand: chain(4, "ok")}
			}),
			"widens": outcome(func(*workgraph.Call) workgraph.Outcome {
				return workgraph.Outcome{Expand: &workgraph.Graph{Nodes: chain(4, "ok").Nodes}}
			})}
		l := run(t, s, a, func(c *engine.Config, _ *engine.Deps) {
			c.MaxNodes, c.MaxEdges, c.EvictAfter = 6, 7, 10*time.Millisecond
		})
		refused := func(t *testing.T, row journal.Run, what string) {
			t.Helper()
			require.Contains(t, string(row.Error), workgraph.ReasonExpandRefused)
			require.Contains(t, string(row.Error), what)
		}
		t.Run("Nodes/CountAllThatThereAre", func(t *testing.T) {
			row := l.wait(t, l.start(t, steps("ok", "grows")), journal.StateCompleted)
			require.EqualValues(t, 6, row.Nodes.Total)
			refused(t, l.wait(t, l.start(t, steps("ok", "ok", "grows")), journal.StateFailed), "the run would have 7 nodes, the limit is 6")
		})
		t.Run("Edges/CountAllThatThereAre", func(t *testing.T) {
			refused(t, l.wait(t, l.start(t, steps("widens", "ok")), journal.StateFailed), "the run would have 8 edges, the limit is 7")
		})
		t.Run("Restored/HasTheLimitsStill", func(t *testing.T) {
			id := l.start(t, steps("ok", "signal", "grows"))
			l.evicted(t, id, journal.StateWaiting)
			l.commands(t, id, journal.CommandSignal, record.Payload{Name: "go"})
			refused(t, l.wait(t, id, journal.StateFailed), "the run would have 7 nodes")
		})
	})
}

func TestExpanded(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		c := &recorder{}
		a := actors{
			"ok": c, "signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}}),
			"grows": outcome(func(*workgraph.Call) workgraph.Outcome {
				return workgraph.Outcome{Expand: &workgraph.Graph{Nodes: []workgraph.Node{{ID: "x", Actor: "ok"}}}}
			}),
		}
		g := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "g", Actor: "grows"}, {ID: "s", Actor: "signal"}, {ID: "b", Actor: "ok"}},
			Edges: []workgraph.Edge{{From: "g", To: "s"}, {From: "s", To: "b"}}}
		amend := func(l *live, id string, revision int64, node, request string) error {
			_, err := l.Amend(t.Context(), command.AmendRequest{Namespace: ns, RunID: id, Revision: revision, By: "ada", Request: journal.Request{ID: request, BodyHash: node},
				Patch: workgraph.Patch{PutNodes: []workgraph.Node{{ID: node, Actor: "ok"}}, AddEdges: []workgraph.Edge{{From: "s", To: node}}}})
			return err
		}
		l := run(t, s, a)
		started, err := l.StartRun(t.Context(), command.StartRequest{Namespace: ns, Graph: g})
		require.NoError(t, err)
		id, first := started.ID, started.Run.GraphHash
		l.evicted(t, id, journal.StateWaiting)
		expanded := l.row(t, id)
		require.EqualValues(t, 1, expanded.GraphRevision)
		require.NoError(t, amend(l, id, 1, "c", "one"))
		t.Run("Events/NameTheGraphsBeforeAndAfter", func(t *testing.T) {
			row := l.row(t, id)
			var told []record.GraphChange
			for _, ev := range l.events(t, id) {
				if ev.Durable.GraphChange != nil {
					told = append(told, *ev.Durable.GraphChange)
				}
			}
			require.Equal(t, []record.GraphChange{{Was: first, Hash: expanded.GraphHash}, {Was: expanded.GraphHash, Hash: row.GraphHash, Added: []string{"c"}}}, told)
			hash, err := l.FirstGraph(t.Context(), row)
			require.NoError(t, err)
			require.Equal(t, first, hash)
		})
		t.Run("Amend/RefusalIsShownToLaterReaders", func(t *testing.T) {
			// As if its caller had gone before the owner applied it.
			body, err := g.Canonical()
			require.NoError(t, err)
			l.commands(t, id, journal.CommandAmend, record.Payload{By: "bob", RequestID: "r7", Graph: body, Revision: 2})
			var x *query.Explanation
			testkit.Eventually(t, func() bool {
				x, err = l.Explain(t.Context(), ns, id)
				require.NoError(t, err)
				return len(x.Blockers) > 0 && x.Blockers[len(x.Blockers)-1].Kind == query.BlockerAmendRefused
			})
			require.Contains(t, x.Blockers[len(x.Blockers)-1].Message, "an amendment by bob was refused: ")
			require.Equal(t, "r7", x.Blockers[len(x.Blockers)-1].Name)
			l.evicted(t, id, journal.StateWaiting)
			x, err = l.Explain(t.Context(), ns, id)
			require.NoError(t, err)
			require.Equal(t, query.BlockerAmendRefused, x.Blockers[len(x.Blockers)-1].Kind, "it outlives the memory")
			require.Equal(t, query.BlockerSignal, x.Blockers[0].Kind)
		})
		t.Run("Amend/RepeatedRequestGetsTheSameAnswer", func(t *testing.T) {
			require.NoError(t, amend(l, id, 1, "c", "one"))
			err := amend(l, id, 1, "d", "two")
			require.Equal(t, command.ReasonRevisionMismatch, errs.ReasonOf(err))
		})
		l.stop()
		t.Run("Journal/IsReadFromTheBeginning", func(t *testing.T) {
			again := run(t, store{s.name, func(t testing.TB) journal.Journal { return forgetful{s.open(t)} }}, a)
			visits, _, err := again.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id})
			require.NoError(t, err)
			require.Len(t, visits, 3)
			x, err := again.Explain(t.Context(), ns, id)
			require.NoError(t, err)
			require.Equal(t, query.BlockerSignal, x.Blockers[0].Kind)
			again.commands(t, id, journal.CommandSignal, record.Payload{Name: "go"})
			row := again.wait(t, id, journal.StateCompleted)
			require.Equal(t, journal.NodeCounts{Total: 5, Completed: 5}, row.Nodes)
			require.Equal(t, []int{1, 1, 1}, []int{c.of("g#1/x"), c.of("b"), c.of("c")})
			fork, err := again.Fork(t.Context(), command.ForkRequest{Namespace: ns, RunID: id, From: &workgraph.Ref{Node: "b", Visit: 1}})
			require.NoError(t, err)
			again.wait(t, fork, journal.StateCompleted)
			require.Equal(t, []int{1, 2, 1}, []int{c.of("g#1/x"), c.of("b"), c.of("c")})
			again.sound(t, id)
			again.sound(t, fork)
		})
	})
}
