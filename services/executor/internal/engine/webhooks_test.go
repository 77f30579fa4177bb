package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/webhook"
	"github.com/epigraph-run/epigraph/workgraph"
)

// jobBook keeps the jobs that are written and inserted.
type jobBook struct {
	journal.Journal
	jobs chan journal.Job
}

func (b *jobBook) note(js []journal.Job) {
	for _, j := range js {
		if j.Kind == journal.JobWebhook {
			b.jobs <- j
		}
	}
}

func (b *jobBook) Commit(ctx context.Context, o journal.Owner, ws []journal.Write) ([]journal.Result, error) {
	// First, since a reader of the write may look for its jobs at once.
	for i := range ws {
		if s := ws[i].Start; s != nil {
			b.note(s.Jobs)
		} else {
			b.note(ws[i].Append.Jobs)
		}
	}
	return b.Journal.Commit(ctx, o, ws)
}

func (b *jobBook) InsertJobs(ctx context.Context, namespace string, js []journal.Job) error {
	b.note(js)
	return b.Journal.InsertJobs(ctx, namespace, js)
}

// args empties the book.
func (b *jobBook) args(t *testing.T) (out []webhook.Args) {
	t.Helper()
	for {
		select {
		case j := <-b.jobs:
			a, err := webhook.DecodeArgs(j.Args)
			require.NoError(t, err)
			out = append(out, a)
		default:
			return out
		}
	}
}

func TestWebhookJobs(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		book := &jobBook{jobs: make(chan journal.Job, 1000)}
		l := run(t, s, actors{"ok": &recorder{}}, func(_ *engine.Config, d *engine.Deps) {
			book.Journal = d.Journal
			d.Journal = book
		})
		hooks := []webhook.Hook{{URL: "https://example.com/a"}, {URL: "https://example.com/b", Events: []webhook.Event{webhook.RunPaused}, Secret: "a secret of this length"}}
		with := func(r *command.StartRequest) { r.Webhooks = hooks }

		t.Run("NoHooks/NoJobs", func(t *testing.T) {
			l.wait(t, l.start(t, chain(2, "ok")), journal.StateCompleted)
			require.Empty(t, book.args(t))
		})
		t.Run("End/OneJobForEachThatWantsIt", func(t *testing.T) {
			id := l.start(t, chain(2, "ok"), with)
			row := l.wait(t, id, journal.StateCompleted)
			as := book.args(t)
			require.Equal(t, []webhook.Args{{Namespace: ns, RunID: id, Event: webhook.RunEnded, Seq: row.LastSeq, Hook: 0}}, as)
			d, err := l.Deliveries().Of(t.Context(), as[0].Job().Args)
			require.NoError(t, err)
			require.Equal(t, hooks[0].URL, d.Hook.URL)
			require.Equal(t, row.EndTime, d.Message.Time)
			again, err := l.Deliveries().Of(t.Context(), as[0].Job().Args)
			require.NoError(t, err)
			require.Equal(t, d, again, "each try says the same")
		})
		t.Run("Job/HoldsNothingSecret", func(t *testing.T) {
			a := webhook.Args{Namespace: ns, RunID: "run_1", Event: webhook.RunPaused, Seq: 1, Hook: 1}
			require.NotContains(t, string(a.Job().Args), "secret")
			require.NotContains(t, string(a.Job().Args), "example.com")
		})
		t.Run("Pause/OfAQuarantine", func(t *testing.T) {
			id := l.start(t, chain(1, "ok"), with)
			l.wait(t, id, journal.StateCompleted)
			book.args(t)
			// A job of a take-over names no hook.
			d, err := l.Deliveries().Of(t.Context(), webhook.Args{Namespace: ns, RunID: id, Event: webhook.RunPaused, Seq: 2, Hook: webhook.AllHooks}.Job().Args)
			require.NoError(t, err)
			require.Nil(t, d)
			as := book.args(t)
			require.Equal(t, []webhook.Args{{Namespace: ns, RunID: id, Event: webhook.RunPaused, Seq: 2, Hook: 1}}, as)
		})
		t.Run("Gone/NothingToDo", func(t *testing.T) {
			id := l.start(t, chain(1, "ok"), with)
			row := l.wait(t, id, journal.StateCompleted)
			a := webhook.Args{Namespace: ns, RunID: id, Event: webhook.RunEnded, Seq: row.LastSeq}
			beyond := a
			beyond.Hook = 7
			d, err := l.Deliveries().Of(t.Context(), beyond.Job().Args)
			require.NoError(t, err)
			require.Nil(t, d)
			a.Namespace = "other"
			_, err = l.Deliveries().Of(t.Context(), a.Job().Args)
			require.Equal(t, journal.ReasonRunNotFound, errs.ReasonOf(err), "of another namespace")
			a.Namespace = ns
			_, err = l.j.DeleteRun(t.Context(), ns, id, 0, nil)
			require.NoError(t, err)
			_, err = l.Deliveries().Of(t.Context(), a.Job().Args)
			require.Equal(t, journal.ReasonRunNotFound, errs.ReasonOf(err))
			_, err = l.Deliveries().Of(t.Context(), []byte(`7`))
			require.True(t, errs.Is(err, errs.InvalidArgument))
		})
		t.Run("Repeat/InsertsNothingMore", func(t *testing.T) {
			book.args(t)
			req := command.StartRequest{Namespace: ns, Graph: chain(1, "ok"), Webhooks: hooks, Request: journal.Request{ID: ids.New("req"), BodyHash: "h"}}
			first, created, err := l.Start(t.Context(), req)
			require.NoError(t, err)
			require.True(t, created)
			l.wait(t, first, journal.StateCompleted)
			again, created, err := l.Start(t.Context(), req)
			require.NoError(t, err)
			require.False(t, created)
			require.Equal(t, first, again)
			for _, a := range book.args(t) {
				require.Equal(t, first, a.RunID)
			}
		})
		t.Run("Metadata/LeavesWithoutSecrets", func(t *testing.T) {
			id := l.start(t, chain(1, "ok"), with, func(r *command.StartRequest) { r.Metadata = json.RawMessage(`{"k":"v"}`) })
			row := l.wait(t, id, journal.StateCompleted)
			require.Contains(t, string(row.Metadata), "a secret")
			out, err := record.WithoutSecrets(row.Metadata)
			require.NoError(t, err)
			require.NotContains(t, string(out), "a secret")
			require.Contains(t, string(out), "example.com/b")
			given, err := record.CallerDataOf(row.Metadata)
			require.NoError(t, err)
			require.JSONEq(t, `{"k":"v"}`, string(given.Metadata))
			require.NotContains(t, fmt.Sprintf("%#v", given), "a secret")
		})
		t.Run("Fork/AddressIsNotCheckedAgain", func(t *testing.T) {
			id := l.start(t, chain(1, "ok"), with)
			l.wait(t, id, journal.StateCompleted)
			next, err := l.Fork(t.Context(), command.ForkRequest{Namespace: ns, RunID: id, From: &workgraph.Ref{Node: "n0", Visit: 1}})
			require.NoError(t, err)
			l.wait(t, next, journal.StateCompleted)
			found := false
			for _, a := range book.args(t) {
				found = found || a.RunID == next && a.Event == webhook.RunEnded
			}
			require.True(t, found)
		})
	})
}

func TestQuarantineMakesWebhookJobs(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		took := make(chan []journal.Job, 1)
		run(t, s, actors{}, func(_ *engine.Config, d *engine.Deps) {
			d.Journal = &takeovers{Journal: d.Journal, jobs: took}
		})
		jobs := <-took
		require.Len(t, jobs, 1)
		a, err := webhook.DecodeArgs(jobs[0].Args)
		require.NoError(t, err)
		require.Equal(t, webhook.Args{Namespace: "n", RunID: "run_x", Event: webhook.RunPaused, Seq: 5, Hook: webhook.AllHooks}, a)
	})
}

// takeovers asks every take-over what a quarantine would cause.
type takeovers struct {
	journal.Journal
	jobs chan []journal.Job
}

func (j *takeovers) TakeOver(ctx context.Context, self journal.Owner, o journal.TakeOverOptions) (journal.TakeOverResult, error) {
	select {
	case j.jobs <- o.QuarantineJobs(journal.RunRef{Namespace: "n", RunID: "run_x", LastSeq: 5}):
	default:
	}
	return j.Journal.TakeOver(ctx, self, o)
}
