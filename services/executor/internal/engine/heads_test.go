package engine_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TestSteersReadNoValues sends requests that do not need the run's values, which may be large, and checks
// that these are not read. What the response needs is read once, with the commands.
func TestSteersReadNoValues(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		j := &watchedReads{}
		a := payments(&recorder{})
		a["big"] = outcome(func(*workgraph.Call) workgraph.Outcome { return text(strings.Repeat("x", 20_000)) })
		l := run(t, s, a, func(_ *engine.Config, d *engine.Deps) { j.Journal, d.Journal = d.Journal, j })
		box := does("box", "does")
		box.On = &workgraph.Trigger{Inbox: &workgraph.Inbox{From: []string{"me"}}}
		g := flow(does("first", "big"), does("ask", "asks"), does("last", "does"))
		g.Nodes = append(g.Nodes, box)
		id := l.start(t, g)
		l.question(t, id)
		l.wait(t, id, journal.StateWaiting)
		once := func(name string) journal.Request { return journal.Request{ID: name, BodyHash: name} }
		for _, step := range []struct {
			name string
			do   func() error
			want string
		}{
			{"Visits", func() error {
				_, _, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id})
				return err
			}, ""},
			{"Explain", func() error { _, err := l.Explain(t.Context(), ns, id); return err }, ""},
			{"Send", func() error {
				_, err := l.Send(t.Context(), command.MessageRequest{Namespace: ns, RunID: id, From: "me", Message: json.RawMessage("1")})
				return err
			}, ""},
			{"Signal", func() error {
				_, err := l.Signal(t.Context(), command.SignalRequest{Namespace: ns, RunID: id, Signal: command.Signal{Name: "go"}})
				return err
			}, ""},
			{"Amend", func() error {
				_, err := l.Amend(t.Context(), command.AmendRequest{Namespace: ns, RunID: id, DryRun: true, Patch: workgraph.Patch{PutNodes: []workgraph.Node{does("last", "does", "n", "1")}}})
				return err
			}, ""},
			{"Pause", func() error {
				return l.Pause(t.Context(), command.PauseRequest{Namespace: ns, RunID: id, Request: once("pause")})
			}, ""},
			{"Pause/Repeated", func() error {
				return l.Pause(t.Context(), command.PauseRequest{Namespace: ns, RunID: id, Request: once("pause")})
			}, ""},
			{"Reconcile", func() error {
				return l.Reconcile(t.Context(), command.ReconcileRequest{Namespace: ns, RunID: id, Ref: workgraph.Ref{Node: "first", Visit: 1}, Outcome: &workgraph.Outcome{}})
			}, command.ReasonNotInReconciliation},
			{"Resume", func() error { return l.Resume(t.Context(), command.ResumeRequest{Namespace: ns, RunID: id}) }, ""},
			{"Retry", func() error {
				_, err := l.Retry(t.Context(), command.RetryRequest{Namespace: ns, RunID: id})
				return err
			}, journal.ReasonRunNotEnded},
			{"Cancel", func() error {
				_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id})
				return err
			}, ""},
		} {
			whole := j.whole.Load()
			require.Equal(t, step.want, errs.ReasonOf(step.do()), step.name)
			require.Equal(t, whole, j.whole.Load(), step.name)
		}
		l.wait(t, id, journal.StateCanceled)
	})
}
