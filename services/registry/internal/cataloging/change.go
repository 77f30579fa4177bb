package cataloging

import (
	"context"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/internal/request"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
)

// change runs one change of a workflow, with request id and etag. The catalog of the namespace is
// locked, so that what fn reads of the workflow stays true.
func (c *Catalog) change(ctx context.Context, namespace, method, name string, how request.Change,
	fn func(ctx context.Context, tx store.Tx, w *catalog.Workflow, now time.Time) error,
) (out catalog.Workflow, err error) {
	now := dbkit.Now()
	err = c.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		change, err := tx.NextChange(ctx, namespace)
		if err != nil {
			return err
		}
		w, err := tx.Workflow(ctx, namespace, name)
		if err != nil {
			return err
		}
		earlier, err := how.Earlier(ctx, tx, namespace, method, w.ID, now)
		if err != nil {
			return err
		}
		if earlier != "" {
			out, err = tx.Workflow(ctx, namespace, earlier)
			return err
		}
		if err := w.CheckEtag(how.Etag); err != nil {
			return err
		}
		over := w.Revision
		if err := fn(ctx, tx, &w, now); err != nil {
			return err
		}
		w.Change = change
		w.Touch(now, request.Caller(ctx))
		out = w
		return tx.PutWorkflow(ctx, w, over)
	})
	return out, err
}

// AddVersion adds a version. If the workflow has the same text already, it is that version and nothing
// changes.
func (c *Catalog) AddVersion(ctx context.Context, namespace, name string, how request.Change, d Draft) (w catalog.Workflow, v catalog.Version, err error) {
	in, err := c.content(ctx, namespace, d, name)
	if err != nil {
		return w, v, err
	}
	same := errs.New(errs.AlreadyExists, catalog.ReasonVersionTaken, "the workflow has this version")
	var number int64
	w, err = c.change(ctx, namespace, "CreateWorkflowVersion", name, how, func(ctx context.Context, tx store.Tx, w *catalog.Workflow, now time.Time) error {
		if number, err = tx.VersionOf(ctx, namespace, w.ID, in.Hash); err != nil {
			return err
		}
		if number > 0 && d.Number > 0 && d.Number != number {
			wanted := number
			number = 0
			return errs.New(errs.AlreadyExists, catalog.ReasonVersionTaken, "workflow %q has this text already, as version %d, so that it cannot be version %d", w.Slug, wanted, d.Number).
				Hint("leave the number out to get the version that has it")
		}
		if number > 0 {
			return same
		}
		if int(w.Versions) >= c.bounds.Versions {
			return errs.New(errs.ResourceExhausted, ReasonTooManyVersions, "a workflow may have %d versions", c.bounds.Versions).
				Hint("go on in a new workflow")
		}
		fresh, err := w.Add(in, d.Number, now, request.Caller(ctx))
		if err != nil {
			return err
		}
		return tx.InsertVersion(ctx, fresh)
	})
	if err != nil && number == 0 {
		return w, v, err
	}
	return c.same(ctx, namespace, name, in.Hash)
}

// same reads the version of a workflow with this content.
func (c *Catalog) same(ctx context.Context, namespace, name, hash string) (w catalog.Workflow, v catalog.Version, err error) {
	err = c.store.View(ctx, namespace, func(ctx context.Context, r store.Reader) error {
		if w, err = r.Workflow(ctx, namespace, name); err != nil {
			return err
		}
		n, err := r.VersionOf(ctx, namespace, w.ID, hash)
		if err != nil {
			return err
		}
		v, err = r.WorkflowVersion(ctx, namespace, w.ID, w.Slug, n)
		return err
	})
	return w, v, err
}

// SetAlias lets a name stand for versions of a workflow.
func (c *Catalog) SetAlias(ctx context.Context, namespace, name string, how request.Change, alias string, to []catalog.Weight) (catalog.Workflow, error) {
	return c.change(ctx, namespace, "SetWorkflowAlias", name, how, func(ctx context.Context, tx store.Tx, w *catalog.Workflow, _ time.Time) error {
		numbers := make([]int64, len(to))
		for i, v := range to {
			numbers[i] = v.Version
		}
		have, err := tx.VersionsAmong(ctx, namespace, w.ID, numbers)
		if err != nil {
			return err
		}
		for _, n := range numbers {
			if !slices.Contains(have, n) {
				return store.VersionNotFound(w.Slug, n)
			}
		}
		return w.SetAlias(alias, to)
	})
}

// DeleteAlias removes an alias of a workflow.
func (c *Catalog) DeleteAlias(ctx context.Context, namespace, name, etag, alias string) (catalog.Workflow, error) {
	return c.change(ctx, namespace, "DeleteWorkflowAlias", name, request.Change{Etag: etag}, func(_ context.Context, _ store.Tx, w *catalog.Workflow, _ time.Time) error {
		return w.DeleteAlias(alias)
	})
}

// Deprecate takes a workflow out of discovery, or puts it back.
func (c *Catalog) Deprecate(ctx context.Context, namespace, name string, how request.Change, message string, undo bool) (catalog.Workflow, error) {
	return c.change(ctx, namespace, "DeprecateWorkflow", name, how, func(_ context.Context, _ store.Tx, w *catalog.Workflow, _ time.Time) error {
		w.State, w.Deprecation = catalog.Deprecated, message
		if undo {
			w.State, w.Deprecation = catalog.Active, ""
		}
		return nil
	})
}

// Expose lets clients of other protocols run a workflow, or no longer.
func (c *Catalog) Expose(ctx context.Context, namespace, name string, how request.Change, version string, undo bool) (catalog.Workflow, error) {
	return c.change(ctx, namespace, "ExposeWorkflow", name, how, func(ctx context.Context, tx store.Tx, w *catalog.Workflow, _ time.Time) error {
		if undo {
			w.Exposed = ""
			return nil
		}
		if w.Exposed == "" {
			n, err := tx.CountExposed(ctx, namespace, catalog.MaxExposed)
			if err != nil {
				return err
			}
			if n >= catalog.MaxExposed {
				return errs.New(errs.ResourceExhausted, catalog.ReasonTooManyExposed, "a namespace may expose %d workflows", catalog.MaxExposed).
					Hint("`epigraph workflows ls --exposed` lists them; take the exposure of some back")
			}
		}
		number, err := w.Expose(version)
		if err != nil || number == 0 {
			return err
		}
		have, err := tx.VersionsAmong(ctx, namespace, w.ID, []int64{number})
		if err == nil && len(have) == 0 {
			err = store.VersionNotFound(w.Slug, number)
		}
		return err
	})
}

// Delete deletes a workflow. It keeps its slug until it is swept.
func (c *Catalog) Delete(ctx context.Context, namespace, name, etag string) error {
	_, err := c.change(ctx, namespace, "DeleteWorkflow", name, request.Change{Etag: etag}, func(_ context.Context, _ store.Tx, w *catalog.Workflow, now time.Time) error {
		w.State, w.DeleteTime = catalog.Deleted, now
		return nil
	})
	return err
}
