package engine_test

import (
	"cmp"
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// shelf holds workflows that tests change.
type shelf struct {
	mu     sync.Mutex
	graphs map[string]*workgraph.Graph
	// aliases are the versions that names stand for, and keys what chose them.
	aliases map[string]string
	keys    []string
}

func (s *shelf) Workflow(_ context.Context, _, ref, key string) (string, *workgraph.Graph, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = append(s.keys, key)
	version := cmp.Or(s.aliases[ref], ref)
	if g := s.graphs[version]; g != nil {
		return version, g.Clone(), nil
	}
	return "", nil, errs.New(errs.NotFound, "NO_WORKFLOW", "there is no %s", ref)
}

func (s *shelf) put(ref string, g *workgraph.Graph) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.graphs == nil {
		s.graphs = map[string]*workgraph.Graph{}
	}
	s.graphs[ref] = g
}

// flow is a chain of nodes.
func flow(nodes ...workgraph.Node) *workgraph.Graph {
	g := &workgraph.Graph{Nodes: nodes}
	for i := range nodes[1:] {
		g.Edges = append(g.Edges, workgraph.Edge{From: nodes[i].ID, To: nodes[i+1].ID})
	}
	return g
}

func does(id, actor string, named ...string) workgraph.Node {
	n := workgraph.Node{ID: id, Actor: actor, Named: map[string]json.RawMessage{}}
	for i := 0; i < len(named); i += 2 {
		n.Named[named[i]] = json.RawMessage(named[i+1])
	}
	return n
}

// inline is a graph as an argument.
func inline(t *testing.T, g *workgraph.Graph) string {
	t.Helper()
	raw, err := json.Marshal(g)
	require.NoError(t, err)
	return string(raw)
}

// payments are actors that ask, wait, spawn and do.
func payments(rec *recorder) actors {
	return actors{
		"does": rec,
		"asks": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
			return workgraph.Outcome{Wait: &workgraph.Wait{Interrupt: &workgraph.Interrupt{Approve: json.RawMessage(`{"pay":7}`)}}}, nil
		}),
		"hears": workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
			return workgraph.Outcome{Wait: &workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}}}, nil
		}),
		"spawns": workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
			child := workgraph.Child{}
			if raw := c.Named["graph"]; len(raw) > 0 {
				g, err := workgraph.Decode(raw)
				if err != nil {
					return workgraph.Outcome{}, err
				}
				child.Graph = g
			} else if err := json.Unmarshal(c.Named["ref"], &child.Ref); err != nil {
				return workgraph.Outcome{}, err
			}
			return workgraph.Outcome{Wait: &workgraph.Wait{Children: &workgraph.Children{Runs: []workgraph.Child{child}, AsResult: true}}}, nil
		}),
	}
}

func (l *live) question(t *testing.T, id string) journal.Interrupt {
	t.Helper()
	var q journal.Interrupt
	testkit.Eventually(t, func() bool {
		open, err := l.j.ListInterrupts(t.Context(), ns, journal.InterruptFilter{RunID: id, States: []journal.InterruptState{journal.InterruptOpen}}, page.Cursor{}, 10)
		require.NoError(t, err)
		if len(open) == 1 {
			q = open[0]
		}
		return len(open) == 1
	})
	return q
}

func (l *live) approve(t *testing.T, q journal.Interrupt) {
	t.Helper()
	_, err := l.Answer(t.Context(), command.AnswerRequest{Namespace: ns, InterruptID: q.ID, Decision: workgraph.Approved, ApproveHash: workgraph.ApproveHash(q.Approve, q.Binds)})
	require.NoError(t, err)
}

func (l *live) signal(t *testing.T, id string) {
	t.Helper()
	_, err := l.Signal(t.Context(), command.SignalRequest{Namespace: ns, RunID: id, Signal: command.Signal{Name: "go"}})
	require.NoError(t, err)
}

// waitingChild is the child of a run, once it waits.
func (l *live) waitingChild(t *testing.T, id string) string {
	t.Helper()
	var child string
	testkit.Eventually(t, func() bool {
		below, err := l.j.Descendants(t.Context(), ns, id)
		require.NoError(t, err)
		for _, d := range below {
			if d.ParentRunID == id && l.row(t, d.RunID).State == journal.StateWaiting {
				child = d.RunID
			}
		}
		return child != ""
	})
	return child
}

func TestApprovalBindsChildren(t *testing.T) {
	t.Parallel()
	change := func(l *live, id string, n workgraph.Node) error {
		_, err := l.Amend(t.Context(), command.AmendRequest{Namespace: ns, RunID: id, Patch: workgraph.Patch{PutNodes: []workgraph.Node{n}}})
		return err
	}
	refused := func(t *testing.T, err error, asker string) {
		t.Helper()
		require.Equal(t, command.ReasonAmendRefused, errs.ReasonOf(err), "%v", err)
		require.Equal(t, workgraph.CodeApproved, errs.From(err).Violations[0].Reason)
		require.Contains(t, errs.From(err).HintText(), asker)
	}
	completed, failed := journal.StateCompleted, journal.StateFailed
	t.Run("Amend/RunSpawnedByAnApprovalIsRefused", func(t *testing.T) {
		t.Parallel()
		eachStore(t, func(t *testing.T, s store) {
			rec := &recorder{}
			l := run(t, s, payments(rec))
			deep := flow(does("hear", "hears"), does("pay", "does", "amount", "7"))
			id := l.start(t, flow(does("ask", "asks"), does("spawn", "spawns", "graph", inline(t, flow(does("more", "spawns", "graph", inline(t, deep)), does("end", "does"))))))
			l.approve(t, l.question(t, id))
			child := l.waitingChild(t, id)
			grandchild := l.waitingChild(t, child)
			for range 2 {
				refused(t, change(l, child, does("end", "does", "amount", "7000")), "fork run "+id+" from ask")
				refused(t, change(l, grandchild, does("pay", "does", "amount", "7000")), "fork run "+id+" from ask")
				l.stop()
				l = run(t, s, payments(rec)) // the approval survives a restart
			}
			l.signal(t, grandchild)
			l.wait(t, id, completed)
			require.Equal(t, 1, rec.of("pay"))
		})
	})
	t.Run("Amend/RunWithoutApprovalIsAmended", func(t *testing.T) {
		t.Parallel()
		l := run(t, sqliteStore(t), payments(&recorder{}))
		g := flow(does("ask", "asks"), does("pay", "does"))
		g.Nodes = append(g.Nodes, does("aside", "spawns", "graph", inline(t, flow(does("hear", "hears"), does("end", "does")))))
		id := l.start(t, g)
		q := l.question(t, id)
		child := l.waitingChild(t, id)
		require.NoError(t, change(l, child, does("end", "does", "x", "1")))
		l.approve(t, q)
		l.signal(t, child)
		l.wait(t, id, completed)
	})
	t.Run("Workflow/WithOtherContentNeedsAnotherApproval", func(t *testing.T) {
		t.Parallel()
		w := &shelf{}
		l := run(t, sqliteStore(t), payments(&recorder{}), func(_ *engine.Config, d *engine.Deps) { d.Workflows = w })
		hash := func(args ...string) string {
			id := l.start(t, flow(does("ask", "asks"), does("spawn", "spawns", args...)))
			q := l.question(t, id)
			_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id})
			require.NoError(t, err)
			return workgraph.ApproveHash(q.Approve, q.Binds)
		}
		ref := []string{"ref", `"workflow/x@1"`}
		none := hash(ref...)
		w.put("workflow/x@1", flow(does("pay", "does", "amount", "7")))
		first := hash(ref...)
		require.NotEqual(t, none, first)
		require.Equal(t, first, hash(ref...))
		w.put("workflow/x@1", flow(does("pay", "does", "amount", "7000")))
		require.NotEqual(t, first, hash(ref...))
		w.put("workflow/x@1", flow(does("deep", "spawns", "ref", `"workflow\/y@1"`)))
		first = hash(ref...)
		w.put("workflow/y@1", flow(does("pay", "does")))
		require.NotEqual(t, first, hash(ref...), "what a workflow names counts, too")
	})
	t.Run("Workflow/ChangedBeforeItIsSpawnedAsksAgain", func(t *testing.T) {
		t.Parallel()
		w, rec := &shelf{}, &recorder{}
		s := sqliteStore(t)
		with := func(_ *engine.Config, d *engine.Deps) { d.Workflows = w }
		l := run(t, s, payments(rec), with)
		w.put("workflow/x@1", flow(does("pay", "does", "amount", "7")))
		g := flow(does("ask", "asks"), does("spawn", "spawns", "ref", `"workflow/x@1"`))
		g.Nodes = append(g.Nodes, does("hear", "hears"))
		g.Edges = append(g.Edges, workgraph.Edge{From: "hear", To: "spawn"})
		id := l.start(t, g)
		first := l.question(t, id)
		l.approve(t, first)
		w.put("workflow/x@1", flow(does("other", "does", "amount", "7000")))
		l.stop()
		l = run(t, s, payments(rec), with)
		l.signal(t, id)
		second := l.question(t, id)
		require.NotEqual(t, workgraph.ApproveHash(first.Approve, first.Binds), workgraph.ApproveHash(second.Approve, second.Binds))
		require.Zero(t, rec.of("other"))
		l.approve(t, second)
		l.wait(t, id, completed)
		require.Equal(t, 1, rec.of("other"))
		require.Zero(t, rec.of("pay"))
	})
	t.Run("Workflow/AliasThatMovesBeforeItIsSpawnedAsksAgain", func(t *testing.T) {
		t.Parallel()
		w, rec := &shelf{aliases: map[string]string{"workflow/x@prod": "workflow/x@1"}}, &recorder{}
		l := run(t, sqliteStore(t), payments(rec), func(_ *engine.Config, d *engine.Deps) { d.Workflows = w })
		w.put("workflow/x@1", flow(does("pay", "does", "amount", "7")))
		w.put("workflow/x@2", flow(does("other", "does", "amount", "7000")))
		g := flow(does("ask", "asks"), does("spawn", "spawns", "ref", `"workflow/x@prod"`))
		g.Nodes = append(g.Nodes, does("hear", "hears"))
		g.Edges = append(g.Edges, workgraph.Edge{From: "hear", To: "spawn"})
		id := l.start(t, g)
		l.approve(t, l.question(t, id))
		w.mu.Lock()
		w.aliases["workflow/x@prod"] = "workflow/x@2"
		w.mu.Unlock()
		l.signal(t, id)
		l.approve(t, l.question(t, id))
		l.wait(t, id, completed)
		require.Equal(t, 1, rec.of("other"))
		require.Zero(t, rec.of("pay"))
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, key := range w.keys {
			require.Equal(t, id, key, "the root chooses the version, whoever asks")
		}
	})
	t.Run("Workflow/ChangedBelowAChildIsRefused", func(t *testing.T) {
		t.Parallel()
		w, rec := &shelf{}, &recorder{}
		l := run(t, sqliteStore(t), payments(rec), func(_ *engine.Config, d *engine.Deps) { d.Workflows = w })
		w.put("workflow/x@1", flow(does("hear", "hears"), does("deep", "spawns", "ref", `"workflow/y@1"`)))
		w.put("workflow/y@1", flow(does("pay", "does", "amount", "7")))
		id := l.start(t, flow(does("ask", "asks"), does("spawn", "spawns", "ref", `"workflow/x@1"`)))
		l.approve(t, l.question(t, id))
		child := l.waitingChild(t, id)
		w.put("workflow/y@1", flow(does("pay", "does", "amount", "7000")))
		l.signal(t, child)
		row := l.wait(t, id, failed)
		require.Equal(t, workgraph.ReasonApprovalVoid, reasonOf(t, l.row(t, child)))
		require.Contains(t, string(row.Error), "fork that run from ask")
		require.Zero(t, rec.of("pay"))
	})
	t.Run("Self/IsTheGraphAsItWasApproved", func(t *testing.T) {
		t.Parallel()
		l := run(t, sqliteStore(t), payments(&recorder{}))
		g := flow(does("ask", "asks"), does("spawn", "spawns", "ref", `"self"`))
		g.Nodes = append(g.Nodes, does("hear", "hears"), does("wait", "hears"), does("aside", "does"))
		g.Edges = append(g.Edges, workgraph.Edge{From: "hear", To: "spawn"}, workgraph.Edge{From: "wait", To: "aside"})
		id := l.start(t, g)
		first := l.question(t, id)
		l.approve(t, first)
		require.NoError(t, change(l, id, does("aside", "does", "amount", "7000")), "it is not covered by itself")
		l.signal(t, id)
		l.signal(t, id)
		require.NotEqual(t, first.ID, l.question(t, id).ID)
		_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id})
		require.NoError(t, err)
		l.wait(t, id, journal.StateCanceled)
	})
}

func TestApprovalBindsForksOfChildren(t *testing.T) {
	t.Parallel()
	hear := &workgraph.Ref{Node: "hear", Visit: 1}
	// asked is a run with a child below an approval. The child waits at "hear" before it pays by a workflow.
	asked := func(t *testing.T, rec *recorder, w *shelf) (l *live, parent, child string) {
		l = run(t, sqliteStore(t), payments(rec), func(_ *engine.Config, d *engine.Deps) { d.Workflows = w })
		w.put("workflow/y@1", flow(does("pay", "does", "amount", "7")))
		parent = l.start(t, flow(does("ask", "asks"), does("spawn", "spawns", "graph", inline(t, flow(does("hear", "hears"), does("deep", "spawns", "ref", `"workflow/y@1"`), does("end", "does"))))))
		l.approve(t, l.question(t, parent))
		return l, parent, l.waitingChild(t, parent)
	}
	refused := func(t *testing.T, err error, asker string) {
		t.Helper()
		require.Equal(t, workgraph.CodeApproved, errs.From(err).Violations[0].Reason, "%v", err)
		require.Contains(t, errs.From(err).HintText(), "fork run "+asker+" from ask")
	}
	// forked is an unchanged fork of the child; it also waits at "hear".
	forked := func(t *testing.T, l *live, child string) string {
		id, err := l.Fork(t.Context(), command.ForkRequest{Namespace: ns, RunID: child, From: hear})
		require.NoError(t, err)
		testkit.Eventually(t, func() bool { return l.row(t, id).State == journal.StateWaiting })
		return id
	}
	t.Run("AnotherGraphIsRefused", func(t *testing.T) {
		t.Parallel()
		l, parent, child := asked(t, &recorder{}, &shelf{})
		_, err := l.Fork(t.Context(), command.ForkRequest{Namespace: ns, RunID: child, From: hear, Graph: flow(does("hear", "hears"), does("end", "does"))})
		require.Equal(t, "FORK_CHANGES_APPROVED", errs.ReasonOf(err), "%v", err)
		refused(t, err, parent)
	})
	t.Run("OtherArgumentsAreRefused", func(t *testing.T) {
		t.Parallel()
		l, parent, child := asked(t, &recorder{}, &shelf{})
		l.signal(t, child)
		l.wait(t, child, journal.StateCompleted)
		_, err := l.Fork(t.Context(), command.ForkRequest{Namespace: ns, RunID: child, From: &workgraph.Ref{Node: "end", Visit: 1}, Named: map[string]json.RawMessage{"amount": json.RawMessage("7000")}})
		refused(t, err, parent)
	})
	t.Run("TheForkIsNotAmended", func(t *testing.T) {
		t.Parallel()
		l, parent, child := asked(t, &recorder{}, &shelf{})
		id := forked(t, l, forked(t, l, child))
		_, err := l.Amend(t.Context(), command.AmendRequest{Namespace: ns, RunID: id, Patch: workgraph.Patch{PutNodes: []workgraph.Node{does("end", "does", "amount", "7000")}}})
		require.Equal(t, command.ReasonAmendRefused, errs.ReasonOf(err), "%v", err)
		refused(t, err, parent)
	})
	t.Run("WorkflowsBelowTheForkAreTheApprovedOnes", func(t *testing.T) {
		t.Parallel()
		w, rec := &shelf{}, &recorder{}
		l, _, child := asked(t, rec, w)
		id := forked(t, l, child)
		w.put("workflow/y@1", flow(does("pay", "does", "amount", "7000")))
		l.signal(t, id)
		require.Equal(t, workgraph.ReasonApprovalVoid, reasonOf(t, l.wait(t, id, journal.StateFailed)))
		require.Zero(t, rec.of("pay"))
		again, err := l.Retry(t.Context(), command.RetryRequest{Namespace: ns, RunID: id})
		require.NoError(t, err)
		require.Equal(t, workgraph.ReasonApprovalVoid, reasonOf(t, l.wait(t, again, journal.StateFailed)), "a retry is bound, too")
		require.Zero(t, rec.of("pay"))
	})
	t.Run("WhatWasApprovedRuns", func(t *testing.T) {
		t.Parallel()
		rec := &recorder{}
		l, _, child := asked(t, rec, &shelf{})
		id := forked(t, l, child)
		l.signal(t, id)
		l.wait(t, id, journal.StateCompleted)
		require.Equal(t, 1, rec.of("pay"))
	})
}

func reasonOf(t *testing.T, row journal.Run) string {
	t.Helper()
	var e record.RunError
	require.NoError(t, json.Unmarshal(row.Error, &e))
	return e.Reason
}
