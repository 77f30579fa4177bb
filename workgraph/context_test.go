package workgraph

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// within makes the machine decide its next commands under ctx.
func (m *machine) within(ctx context.Context) {
	m.s.OnEvaluation(func() (context.Context, context.CancelFunc) { return ctx, func() {} })
}

// why is the message of the error of a visit of the node.
func (m *machine) why(id string) string {
	text := ""
	m.s.Visits(func(v VisitInfo) bool {
		if v.Node == id && v.Error != nil {
			text = v.Error.Message
		}
		return true
	})
	return text
}

// Changes of a run's graph, and comparisons with an approval, end with the context of the command or of the
// caller.
func TestEndsWithItsContext(t *testing.T) {
	t.Parallel()
	t.Run("Expand/OfALargeRun", func(t *testing.T) {
		m := newMachine(t, compile(t, chain(2_000)))
		m.begin()
		ctx := newCountdown(100) // enough for the sub-graph by itself
		m.within(ctx)
		m.end("n0", Outcome{Expand: chain(1)})
		require.NotNil(t, m.s.End())
		require.Equal(t, ReasonExpandRefused, m.s.End().Error.Reason)
		require.Contains(t, m.s.End().Error.Message, "cannot be checked in time")
		require.Less(t, ctx.late.Load(), int64(100), "nothing goes on after the end")
		m.replays()
	})
	t.Run("Expand/Aborted", func(t *testing.T) {
		m := newMachine(t, compile(t, chain(2_000)))
		m.begin()
		ctx, abort := context.WithCancelCause(t.Context())
		abort(ErrAborted)
		m.within(ctx)
		_, _, err := m.s.Advance(Ended{Ref: Ref{Node: "n0", Visit: 1}, Attempt: 1, Outcome: &Outcome{Expand: chain(1)}, Now: m.now})
		require.ErrorIs(t, err, ErrAborted)
	})
	t.Run("PlanAmend/OfAnExpandedRun", func(t *testing.T) {
		m := newMachine(t, compile(t, chain(2_000)))
		m.begin()
		m.end("n0", Outcome{Expand: chain(1)})
		q := m.patched(Patch{PutNodes: []Node{put("n1999", func(n *Node) { n.Name = "last" })}})
		all := newCountdown(1 << 40)
		_, err := m.s.examineAmend(all, q)
		require.NoError(t, err)
		ctx := newCountdown(1<<40 - all.left.Load() + 100) // enough for the change alone
		_, err = m.s.PlanAmend(ctx, q, m.now)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, ErrState, "the copy of the run is interrupted, not the change of it")
		require.NotErrorIs(t, err, ErrCorrupt)
		require.Less(t, ctx.late.Load(), int64(100))
	})
	t.Run("Replay/OfAnExpandedRun", func(t *testing.T) {
		m := newMachine(t, compile(t, chain(2_000)))
		m.begin()
		m.end("n0", Outcome{Expand: chain(1)})
		snap, err := m.s.Snapshot()
		require.NoError(t, err)
		for name, replay := range map[string]func(context.Context) error{
			"Replay":  func(ctx context.Context) error { _, err := Replay(ctx, m.p, "run", m.events); return err },
			"Restore": func(ctx context.Context) error { _, err := Restore(ctx, m.p, snap); return err },
		} {
			for _, asked := range []int64{0, 100, 1_000} {
				ctx := newCountdown(asked)
				err := replay(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded, name)
				require.NotErrorIs(t, err, ErrCorrupt, "the journal is whole: the run must not be given up for it")
				require.Less(t, ctx.late.Load(), int64(100))
			}
		}
	})
	t.Run("Apply/StopsBetweenEvents", func(t *testing.T) {
		m := newMachine(t, compile(t, chain(3)))
		m.begin()
		_, err := Replay(newCountdown(0), m.p, "run", m.events)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	// An expansion makes the cover of an approval be computed again. If that takes too long, nothing that
	// follows from the approval runs, because it is not known whether it is what was approved.
	expanded := func(t *testing.T) *machine {
		m := asking(t, purse(nil))
		m.decide("q1", Approved)
		m.end("aside", Outcome{State: updates("x", 8).State, Expand: chain(1)})
		return m
	}
	t.Run("Approval/FailsWhatFollows", func(t *testing.T) {
		m := expanded(t)
		ctx := newCountdown(0)
		m.within(ctx)
		m.end("slow", Outcome{Values: one("1")})
		require.NotContains(t, m.open, Ref{Node: "pay", Visit: 1})
		require.Equal(t, ReasonApprovalVoid, m.failure("pay"))
		require.Contains(t, m.why("pay"), "in time")
		require.Less(t, ctx.late.Load(), int64(100))
		m.replays()
	})
	t.Run("Approval/OfALoopFailsItsHead", func(t *testing.T) {
		m := asking(t, purse(func(g *Graph) {
			g.Edges = append(g.Edges, Edge{From: "send", To: "pay", Kind: BackEdge, When: "visit < 2"})
		}))
		m.decide("q1", Approved)
		m.end("aside", Outcome{State: updates("x", 8).State, Expand: chain(1)})
		m.within(newCountdown(0))
		m.end("slow", Outcome{Values: one("1")})
		require.NotContains(t, m.open, Ref{Node: "pay", Visit: 1})
		require.Equal(t, ReasonApprovalVoid, m.failure("pay"))
		m.replays()
	})
	t.Run("Approval/IsNotAskedUnbound", func(t *testing.T) {
		m := asking(t, purse(nil))
		m.end("aside", Outcome{Expand: chain(1)})
		m.within(newCountdown(0))
		out := ask("q2", payment)
		m.end("slow", out)
		require.Empty(t, m.fx.Opened, "nobody is asked for what is not known")
		require.Equal(t, VisitBackoff, m.status("slow"))
		m.within(t.Context())
		m.later(time.Hour)
		m.end("slow", out)
		require.Len(t, m.fx.Opened, 1)
		require.NotEmpty(t, m.fx.Opened[0].Binds)
		m.replays()
	})
	t.Run("Approval/Aborted", func(t *testing.T) {
		m := expanded(t)
		ctx, abort := context.WithCancelCause(t.Context())
		abort(ErrAborted)
		m.within(ctx)
		_, _, err := m.s.Advance(Ended{Ref: Ref{Node: "slow", Visit: 1}, Attempt: 1, Outcome: &Outcome{Values: one("1")}, Now: m.now})
		require.ErrorIs(t, err, ErrAborted)
	})
}
