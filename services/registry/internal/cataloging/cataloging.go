// Package cataloging owns the use cases of the catalog of workflows: one method per request, each one
// transaction over the store, in which the rules of package catalog are applied. Texts are compiled
// before the transaction. It must not know any protocol or driver.
package cataloging

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/admission"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/internal/request"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/workflow"
)

// Reasons of things that are refused since there are as many as may be.
const (
	ReasonTooManyWorkflows = "TOO_MANY_WORKFLOWS"
	ReasonTooManyVersions  = "TOO_MANY_VERSIONS"
)

// Bounds are how many of everything there may be. Of several workflows that come at the same time a few
// more may get in.
type Bounds struct {
	// Workflows are those of a namespace, Versions those of a workflow.
	Workflows, Versions int
}

// DefaultBounds are those of a registry.
func DefaultBounds() Bounds { return Bounds{Workflows: 100_000, Versions: 1000} }

const (
	// deletedLife is how long a deleted workflow keeps its slug.
	deletedLife = 30 * 24 * time.Hour
	// countedLife is how long a run is known to be counted. An executor repeats what it tells within seconds.
	countedLife = 30 * 24 * time.Hour
	// slugTries is how many numbers are tried behind the greatest one.
	slugTries = 100
	// bytesPerCost is how many bytes of text cost as much as one thing that a piece of work goes over.
	bytesPerCost = 64
)

// Catalog applies the use cases to a store. It is safe for concurrent use.
type Catalog struct {
	store     store.Store
	bounds    Bounds
	compiling admission.Control
	indexes   indexes
}

// New returns the use cases over a store, which stays the caller's to close.
func New(s store.Store) *Catalog { return &Catalog{store: s, bounds: DefaultBounds()} }

// Within returns a catalog over the same store with these bounds.
func (c *Catalog) Within(b Bounds) *Catalog { return &Catalog{store: c.store, bounds: b} }

// Draft is the text of a version that is to be made.
type Draft struct {
	Form   catalog.Form
	Source string
	// Number is the version wanted; 0 is the next.
	Number int64
}

// Validate tells all faults of a text.
func (c *Catalog) Validate(ctx context.Context, namespace string, d Draft) (catalog.Content, workflow.Faults, error) {
	return c.read(ctx, namespace, d, "")
}

// read compiles a text in a turn of the namespace.
func (c *Catalog) read(ctx context.Context, namespace string, d Draft, name string) (catalog.Content, workflow.Faults, error) {
	leave, err := c.compiling.Enter(ctx, namespace, 1+len(d.Source)/bytesPerCost)
	if err != nil {
		return catalog.Content{}, nil, err
	}
	defer leave()
	return catalog.Read(d.Form, d.Source, name)
}

// content is read with the faults as an error.
func (c *Catalog) content(ctx context.Context, namespace string, d Draft, name string) (catalog.Content, error) {
	out, faults, err := c.read(ctx, namespace, d, name)
	if err == nil && len(faults) > 0 {
		err = catalog.Refused(faults)
	}
	return out, err
}

// Create makes a workflow of a text. Without a slug it gets that of its name.
func (c *Catalog) Create(ctx context.Context, namespace string, o request.Once, d Draft, slug string) (out catalog.Workflow, err error) {
	if out, done, err := c.repeated(ctx, namespace, "CreateWorkflow", o); done || err != nil {
		return out, err
	}
	in, err := c.content(ctx, namespace, d, slug)
	if err != nil {
		return catalog.Workflow{}, err
	}
	return c.create(ctx, namespace, "CreateWorkflow", o, in, origin{number: d.Number, slug: slug})
}

// repeated answers a request that was served before, without its work being done again.
func (c *Catalog) repeated(ctx context.Context, namespace, method string, o request.Once) (out catalog.Workflow, done bool, err error) {
	if o.ID == "" {
		return out, false, nil
	}
	err = c.store.View(ctx, namespace, func(ctx context.Context, r store.Reader) error {
		earlier, err := o.Before(ctx, r, namespace, method)
		if err != nil || earlier == "" {
			return err
		}
		done = true
		out, err = r.Workflow(ctx, namespace, earlier)
		return err
	})
	return out, done, err
}

// origin is where a new workflow comes from.
type origin struct {
	slug, forkedFrom string
	number           int64
}

func (c *Catalog) create(ctx context.Context, namespace, method string, o request.Once, in catalog.Content, from origin) (out catalog.Workflow, err error) {
	if err := catalog.CheckSlug(from.slug); err != nil {
		return catalog.Workflow{}, err
	}
	now, who := dbkit.Now(), request.Caller(ctx)
	fresh := catalog.New(namespace, now, who)
	fresh.ForkedFrom = from.forkedFrom
	err = c.store.Update(ctx, namespace, func(ctx context.Context, tx store.Tx) error {
		earlier, err := o.Earlier(ctx, tx, namespace, method, fresh.ID, now)
		if err != nil {
			return err
		}
		if earlier != "" {
			out, err = tx.Workflow(ctx, namespace, earlier)
			return err
		}
		w := fresh
		if w.Change, err = tx.NextChange(ctx, namespace); err != nil {
			return err
		}
		have, err := tx.CountWorkflows(ctx, namespace, c.bounds.Workflows)
		if err != nil {
			return err
		}
		if have >= c.bounds.Workflows {
			return errs.New(errs.ResourceExhausted, ReasonTooManyWorkflows, "a namespace may have %d workflows", c.bounds.Workflows).
				Hint("delete workflows that are not needed any more; each counts for 30 days after that")
		}
		if err := c.name(ctx, tx, &w, from.slug, in.Name); err != nil {
			return err
		}
		v, err := w.Add(in, from.number, now, who)
		if err != nil {
			return err
		}
		if err := tx.InsertWorkflow(ctx, w); err != nil {
			return err
		}
		out = w
		return tx.InsertVersion(ctx, v)
	})
	return out, err
}

// name gives a workflow its slug: the wanted one, or the next of its name.
func (c *Catalog) name(ctx context.Context, tx store.Tx, w *catalog.Workflow, slug, name string) error {
	if slug != "" {
		taken, err := tx.TakenSlugs(ctx, w.Namespace, []string{slug})
		if err == nil && len(taken) > 0 {
			err = catalog.SlugTaken(slug)
		}
		w.Slug, w.Base, w.Number = slug, slug, 1
		return err
	}
	base := catalog.Base(name)
	last, err := tx.LastSlug(ctx, w.Namespace, base)
	if err != nil {
		return err
	}
	// Another base may end in a number.
	tries := make([]string, slugTries)
	for i := range tries {
		tries[i] = catalog.Numbered(base, last+1+int64(i))
	}
	taken, err := tx.TakenSlugs(ctx, w.Namespace, tries)
	if err != nil {
		return err
	}
	is := make(map[string]bool, len(taken))
	for _, s := range taken {
		is[s] = true
	}
	for i, s := range tries {
		if !is[s] {
			w.Slug, w.Base, w.Number = s, base, last+1+int64(i)
			return nil
		}
	}
	return catalog.SlugTaken(base)
}

// Get reads a workflow by slug or id.
func (c *Catalog) Get(ctx context.Context, namespace, name string) (catalog.Workflow, error) {
	return view(ctx, c, namespace, func(ctx context.Context, r store.Reader) (catalog.Workflow, error) {
		return r.Workflow(ctx, namespace, name)
	})
}

// List lists workflows.
func (c *Catalog) List(ctx context.Context, q store.WorkflowQuery) (store.Found[catalog.Workflow], error) {
	return view(ctx, c, q.Namespace, func(ctx context.Context, r store.Reader) (store.Found[catalog.Workflow], error) {
		return r.Workflows(ctx, q)
	})
}

// Versions lists versions of a workflow, the newest first: those before a number, which 0 leaves out.
func (c *Catalog) Versions(ctx context.Context, namespace, name string, before int64, limit int) (w catalog.Workflow, out []catalog.Version, err error) {
	err = c.store.View(ctx, namespace, func(ctx context.Context, r store.Reader) error {
		if w, err = r.Workflow(ctx, namespace, name); err != nil {
			return err
		}
		out, err = r.WorkflowVersions(ctx, namespace, w.ID, before, limit)
		return err
	})
	return w, out, err
}

// Resolve finds the version that a reference stands for.
func (c *Catalog) Resolve(ctx context.Context, namespace string, ref catalog.Ref, key string) (w catalog.Workflow, v catalog.Version, err error) {
	err = c.store.View(ctx, namespace, func(ctx context.Context, r store.Reader) error {
		if w, err = r.Workflow(ctx, namespace, ref.Name); err != nil {
			return err
		}
		n, err := w.Pick(ref, key)
		if err != nil {
			return err
		}
		v, err = r.WorkflowVersion(ctx, namespace, w.ID, w.Slug, n)
		return err
	})
	return w, v, err
}

// Sweep removes what was deleted long ago, and forgets which runs were counted.
func (c *Catalog) Sweep(ctx context.Context) (workflows, runs int64, err error) {
	now := dbkit.Now()
	return c.store.SweepWorkflows(ctx, now.Add(-deletedLife), now.Add(-countedLife))
}

func view[T any](ctx context.Context, c *Catalog, namespace string, fn func(context.Context, store.Reader) (T, error)) (out T, err error) {
	err = c.store.View(ctx, namespace, func(ctx context.Context, r store.Reader) error {
		out, err = fn(ctx, r)
		return err
	})
	return out, err
}
