package engine_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TestResumeBelow resumes and stops runs that wait for paused ones.
func TestResumeBelow(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		u := &unclear{}
		unsafe := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "n0", Actor: "unsafe"}}}
		asks := waits(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: json.RawMessage(`"May I?"`)}})
		l := run(t, s, actors{"ok": &recorder{}, "unsafe": u, "ask": asks,
			"loop":   spawns(workgraph.Child{Graph: loop("5", "3")}),
			"mixed":  spawns(workgraph.Child{Graph: loop("5", "3")}, workgraph.Child{Graph: unsafe}),
			"unsure": spawns(workgraph.Child{Graph: unsafe}), "deep": spawns(workgraph.Child{Graph: chain(1, "loop")}),
			"many": spawns(workgraph.Child{Graph: loop("9", "3")}, workgraph.Child{Graph: loop("9", "3")}, workgraph.Child{Graph: chain(1, "ask")}),
		}, func(c *engine.Config, _ *engine.Deps) { c.EvictAfter = 10 * time.Millisecond })
		l.jobs(t)
		req := func(id string) command.ResumeRequest { return command.ResumeRequest{Namespace: ns, RunID: id} }
		// begin starts a run and waits until as many runs below it are paused, and evicted.
		begin := func(t *testing.T, actor, reason string, n int) (id string, below []journal.Run) {
			t.Helper()
			id = l.start(t, chain(1, actor))
			testkit.Eventually(t, func() bool {
				below = l.below(t, id, journal.StatePaused, reason)
				return len(below) == n
			})
			l.evicted(t, id, journal.StateWaiting)
			return id, below
		}
		t.Run("ReasonsOfTheirOwn/GoOn", func(t *testing.T) {
			for _, actor := range []string{"loop", "deep"} {
				id, _ := begin(t, actor, workgraph.ReasonMaxVisits, 1)
				require.NoError(t, l.Resume(t.Context(), req(id)))
				l.wait(t, id, journal.StateCompleted)
				l.sound(t, id)
			}
		})
		t.Run("Several/EachGetsOneCommand", func(t *testing.T) {
			id, below := begin(t, "many", workgraph.ReasonMaxVisits, 2)
			first := req(id)
			first.Reason, first.Request = "worth it", journal.Request{ID: "once", BodyHash: "a"}
			for range 2 { // the repetition finds them paused again
				require.NoError(t, l.Resume(t.Context(), first))
				for _, b := range below {
					testkit.Eventually(t, func() bool { return len(kinds(l.events(t, b.ID), workgraph.RunPaused)) == 2 })
					resumed := kinds(l.events(t, b.ID), workgraph.RunResumed)
					require.Len(t, resumed, 1)
					require.Equal(t, "worth it", resumed[0].Reason)
				}
			}
			stale := req(id)
			stale.Revision = l.row(t, id).Revision + 1
			require.Equal(t, journal.ReasonEtagMismatch, errs.ReasonOf(l.Resume(t.Context(), stale)))
			require.NoError(t, l.Resume(t.Context(), req(id)))
			testkit.Eventually(t, func() bool { return len(l.below(t, id, journal.StateCompleted, "")) == 2 })
			err := l.Resume(t.Context(), req(id))
			require.Equal(t, command.ReasonNotPaused, errs.ReasonOf(err))
			require.Contains(t, errs.From(err).HintText(), "none of which is paused; `epigraph runs explain "+id+"`")
			q := l.questions(t, id, 1)
			err = l.Resume(t.Context(), req(q[0].RunID))
			require.Contains(t, errs.From(err).HintText(), "it waits for the answer to "+q[0].ID)
			l.answer(t, q)
			l.wait(t, id, journal.StateCompleted)
		})
		t.Run("OneThatCannot/IsRefusedUnlessOthersCan", func(t *testing.T) {
			id, below := begin(t, "unsure", workgraph.ReasonReconciliation, 1)
			err := l.Resume(t.Context(), req(id))
			require.Equal(t, command.ReasonReconciliationNeeded, errs.ReasonOf(err))
			require.Equal(t, below[0].ID, errs.From(err).Meta["run_id"])
			require.Contains(t, errs.From(err).Message, below[0].ID)
			id, below = begin(t, "mixed", workgraph.ReasonReconciliation, 1)
			testkit.Eventually(t, func() bool { return len(l.below(t, id, journal.StatePaused, workgraph.ReasonMaxVisits)) == 1 })
			require.NoError(t, l.Resume(t.Context(), req(id)))
			testkit.Eventually(t, func() bool { return len(l.below(t, id, journal.StateCompleted, "")) == 1 })
			require.Equal(t, journal.StatePaused, l.row(t, below[0].ID).State)
		})
		t.Run("BudgetAlone/ResumesNothing", func(t *testing.T) {
			id, below := begin(t, "loop", workgraph.ReasonMaxVisits, 1)
			more := req(id)
			more.Budget = &workgraph.Budget{Tokens: cap64(1000)}
			require.NoError(t, l.Resume(t.Context(), more))
			require.Equal(t, journal.StatePaused, l.row(t, below[0].ID).State)
			more.Step = true
			require.Equal(t, command.ReasonNotPaused, errs.ReasonOf(l.Resume(t.Context(), more)))
		})
		t.Run("PausedItself/LeavesThoseWithReasonsOfTheirOwn", func(t *testing.T) {
			id, below := begin(t, "loop", workgraph.ReasonMaxVisits, 1)
			require.NoError(t, l.Pause(t.Context(), command.PauseRequest{Namespace: ns, RunID: id}))
			require.NoError(t, l.Resume(t.Context(), req(id)))
			l.evicted(t, id, journal.StateWaiting)
			require.Equal(t, journal.StatePaused, l.row(t, below[0].ID).State)
			require.NoError(t, l.Resume(t.Context(), req(id)))
			l.wait(t, id, journal.StateCompleted)
		})
		t.Run("Stop/EndsThem", func(t *testing.T) {
			for _, above := range []bool{true, false} {
				id, below := begin(t, "loop", workgraph.ReasonMaxVisits, 1)
				which := below[0].ID
				if above {
					which = id
				}
				require.NoError(t, l.Stop(t.Context(), command.StopRequest{Namespace: ns, RunID: which}))
				l.wait(t, below[0].ID, journal.StateCompleted)
				l.wait(t, id, journal.StateCompleted)
				require.Len(t, attemptsOf(l.events(t, below[0].ID)), 4, "the round that was decided before, and no more")
				l.sound(t, below[0].ID)
			}
		})
	})
}
