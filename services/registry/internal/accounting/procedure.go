package accounting

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/epic"
	"github.com/epigraph-run/epigraph/services/registry/internal/memory"
	"github.com/epigraph-run/epigraph/services/registry/internal/remembering"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// procedureTasks is how many tasks a procedure names.
const procedureTasks = 20

// keepProcedure writes an epic that has just been completed into the memory, so that later searches find how
// the goal was reached. It belongs to the transaction that completed the epic, and comes after the epic and
// its tasks are saved.
func keepProcedure(ctx context.Context, tx store.Tx, before epic.State, e *epic.Epic, now time.Time) error {
	if before == e.State || e.State != epic.Completed {
		return nil
	}
	o := memory.Outcome{
		EpicID: e.ID, UserID: e.UserID, Goal: e.Title, Summary: e.ResultSummary, Tags: e.Tags,
		Total: e.TotalTasks, Completed: e.CompletedTasks, Failed: e.FailedTasks,
		Tokens: e.Spent.Tokens, NanoUSD: e.Spent.NanoUSD, UnpricedCalls: e.Spent.UnpricedCalls,
	}
	slugs, err := tx.SlugsOf(ctx, e.Namespace, []string{e.ID})
	if err != nil {
		return err
	}
	for _, slug := range withOwn(slugs[e.ID], e.WorkflowSlug) {
		if slug, err = versioned(ctx, tx, e.Namespace, slug); err != nil {
			return err
		}
		if !slices.Contains(o.Workflows, slug) { // a task names what another one ran
			o.Workflows = append(o.Workflows, slug)
		}
	}
	tasks, err := tx.Tasks(ctx, store.TaskQuery{Namespace: e.Namespace, EpicID: e.ID, Limit: procedureTasks})
	if err != nil {
		return err
	}
	for _, t := range tasks.Rows {
		o.Tasks = append(o.Tasks, t.Title)
	}
	entry, err := memory.ProcedureOf(o)
	if err != nil {
		return err
	}
	if entry.Scope.Check() != nil {
		return nil // no scope can name its user, and the procedure is not for others
	}
	entry.Namespace, entry.Principal = e.Namespace, e.Principal
	return remembering.Put(ctx, tx, entry, now)
}

// versioned is the reference of a task's workflow with a version: the one that it ran or names, or the newest
// one of the catalog. A workflow that the catalog does not have stays as it is.
func versioned(ctx context.Context, tx store.Tx, namespace, slug string) (string, error) {
	if strings.Contains(slug, "@") {
		return slug, nil
	}
	w, err := tx.Workflow(ctx, namespace, slug)
	switch {
	case errs.Is(err, errs.NotFound):
		return slug, nil
	case err != nil:
		return "", err
	}
	return w.Slug + "@" + strconv.FormatInt(w.Latest, 10), nil
}
