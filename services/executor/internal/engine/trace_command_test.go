package engine_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/attempttoken"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// TestTraceOfCommands sends a run every kind of command. The traces of the request and of the run link to
// each other.
func TestTraceOfCommands(t *testing.T) {
	t.Parallel()
	node := func(actor string) *workgraph.Graph {
		return &workgraph.Graph{Nodes: []workgraph.Node{{ID: "n0", Actor: actor}}}
	}
	inbox := node("signal")
	inbox.Nodes = append(inbox.Nodes, workgraph.Node{ID: "box", Actor: "ok", On: &workgraph.Trigger{Inbox: &workgraph.Inbox{From: []string{"user"}}}})
	goesOn := chain(2, "ok")
	goesOn.Nodes[0].Actor = "unsafe"
	for kind, c := range map[journal.CommandKind]struct {
		graph *workgraph.Graph
		in    journal.State // in which the run gets the command
		do    func(ctx context.Context, l *live, id string) error
	}{
		journal.CommandSignal: {node("signal"), journal.StateWaiting, func(ctx context.Context, l *live, id string) error {
			_, err := l.Signal(ctx, command.SignalRequest{Namespace: ns, RunID: id, Signal: command.Signal{Name: "go"}})
			return err
		}},
		journal.CommandMessage: {inbox, journal.StateWaiting, func(ctx context.Context, l *live, id string) error {
			_, err := l.Send(ctx, command.MessageRequest{Namespace: ns, RunID: id, From: "user", Message: json.RawMessage(`"hey"`)})
			return err
		}},
		journal.CommandCompletion: {node("task"), journal.StateWaiting, func(ctx context.Context, l *live, id string) error {
			token := l.Tokens().Sign(attempttoken.Token{Namespace: ns, RunID: id, Node: "n0", Visit: 1, Attempt: 1})
			_, err := l.CompleteAttempt(ctx, command.CompleteRequest{Namespace: ns, Token: token, Outcome: &workgraph.Outcome{}})
			return err
		}},
		journal.CommandPause: {node("signal"), journal.StateWaiting, func(ctx context.Context, l *live, id string) error {
			return l.Pause(ctx, command.PauseRequest{Namespace: ns, RunID: id})
		}},
		journal.CommandResume: {goesOn, journal.StatePaused, func(ctx context.Context, l *live, id string) error {
			ref := workgraph.Ref{Node: "n0", Visit: 1}
			if err := l.Reconcile(t.Context(), command.ReconcileRequest{Namespace: ns, RunID: id, Ref: ref, Outcome: &workgraph.Outcome{}}); err != nil {
				return err
			}
			return l.Resume(ctx, command.ResumeRequest{Namespace: ns, RunID: id})
		}},
		journal.CommandReconcile: {node("unsafe"), journal.StatePaused, func(ctx context.Context, l *live, id string) error {
			return l.Reconcile(ctx, command.ReconcileRequest{Namespace: ns, RunID: id, Ref: workgraph.Ref{Node: "n0", Visit: 1}, Outcome: &workgraph.Outcome{}})
		}},
		journal.CommandAmend: {node("signal"), journal.StateWaiting, func(ctx context.Context, l *live, id string) error {
			_, err := l.Amend(ctx, command.AmendRequest{Namespace: ns, RunID: id, Patch: workgraph.Patch{PutNodes: []workgraph.Node{{ID: "n1", Actor: "ok"}}}})
			return err
		}},
		journal.CommandCancel: {node("signal"), journal.StateWaiting, func(ctx context.Context, l *live, id string) error {
			_, err := l.Cancel(ctx, command.CancelRequest{Namespace: ns, RunID: id})
			return err
		}},
	} {
		for where, evictAfter := range map[string]time.Duration{"": time.Minute, "AfterEviction": time.Millisecond} {
			t.Run(string(kind)+"/IsLinkedWithWhoSendsIt"+where, func(t *testing.T) {
				t.Parallel()
				tr := newTracer()
				l := run(t, sqliteStore(t), actors{"ok": &recorder{}, "unsafe": &unclear{}, "task": waits(workgraph.Wait{Completion: &workgraph.CompletionWait{}}),
					"signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}})}, tr.option,
					func(cfg *engine.Config, _ *engine.Deps) { cfg.EvictAfter = evictAfter })
				l.jobs(t)
				id := l.start(t, c.graph)
				if where == "" {
					l.wait(t, id, c.in)
				} else {
					l.evicted(t, id, c.in)
				}
				ctx, span := tr.request(t)
				require.NoError(t, c.do(ctx, l, id))
				span.End()
				told := func() (found tracetest.SpanStubs) {
					for _, s := range tr.of(id, "run.command") {
						if slices.Contains(s.Attributes, attribute.String("epigraph.command", string(kind))) {
							found = append(found, s)
						}
					}
					return found
				}
				testkit.Eventually(t, func() bool { return len(told()) > 0 })
				request := tr.one(t, id, "request")
				requireLink(t, told()[0], request)
				requireLink(t, request, tr.one(t, id, "run.start"))
			})
		}
	}

	// A request that makes another run is a start: the new run is below its request, and links to the run
	// that it is made of.
	for name, do := range map[string]func(ctx context.Context, l *live, id string) (string, error){
		"FORK": func(ctx context.Context, l *live, id string) (string, error) {
			return l.Fork(ctx, command.ForkRequest{Namespace: ns, RunID: id, From: &workgraph.Ref{Node: "n0", Visit: 1}})
		},
		"RETRY": func(ctx context.Context, l *live, id string) (string, error) {
			return l.Retry(ctx, command.RetryRequest{Namespace: ns, RunID: id})
		},
	} {
		t.Run(name+"/HangsBelowItsRequestAndIsLinkedWithTheOldRun", func(t *testing.T) {
			t.Parallel()
			tr := newTracer()
			fails := workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
				return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, "DISK_FULL", "no space left")
			})
			l := run(t, sqliteStore(t), actors{"fails": fails}, tr.option)
			id := l.start(t, node("fails"))
			l.wait(t, id, journal.StateFailed)
			ctx, span := tr.request(t)
			other, err := do(ctx, l, id)
			require.NoError(t, err)
			span.End()
			start, old := tr.one(t, other, "run.start"), tr.one(t, id, "run.start")
			require.Equal(t, span.SpanContext().TraceID(), start.SpanContext.TraceID())
			require.Equal(t, span.SpanContext().SpanID(), start.Parent.SpanID())
			requireLink(t, start, old)
			requireLink(t, tr.one(t, id, "request"), old)
		})
	}
}
