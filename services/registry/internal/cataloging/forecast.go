package cataloging

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Forecast tells what a run of the version that a reference stands for may need, and which version that
// is: from its runs or, if none were kept, from its graph.
func (c *Catalog) Forecast(ctx context.Context, namespace string, ref catalog.Ref, key string) (f catalog.Forecast, at string, err error) {
	var v catalog.Version
	var samples []catalog.Sample
	var earlier catalog.Earlier
	if err = c.store.View(ctx, namespace, func(ctx context.Context, r store.Reader) error {
		w, err := r.Workflow(ctx, namespace, ref.Name)
		if err != nil {
			return err
		}
		n, err := w.Pick(ref, key)
		if err != nil {
			return err
		}
		at = catalog.At(w.Slug, n)
		if samples, err = r.Samples(ctx, namespace, w.ID, n); err != nil {
			return err
		}
		if len(samples) == 0 {
			if earlier, err = earlierRuns(ctx, r, namespace, w.ID, n); err != nil {
				return err
			}
			v, err = r.WorkflowVersion(ctx, namespace, w.ID, w.Slug, n)
			return err
		}
		// The text and the graph may be large, and are not needed.
		versions, err := r.WorkflowVersions(ctx, namespace, w.ID, n+1, 1)
		if err != nil {
			return err
		}
		if len(versions) == 0 || versions[0].Number != n {
			return store.VersionNotFound(w.Slug, n)
		}
		v = versions[0]
		return nil
	}); err != nil {
		return f, "", err
	}
	if len(samples) > 0 {
		return catalog.ForecastHistory(&v, samples), at, nil
	}
	g, err := c.Unpack(ctx, namespace, &v)
	if err != nil {
		return f, "", err
	}
	f, err = c.fromGraph(ctx, namespace, &v, g, earlier)
	return f, at, err
}

// ForecastText is a forecast of a text that is not in the catalog: from its graph alone.
func (c *Catalog) ForecastText(ctx context.Context, namespace string, d Draft) (f catalog.Forecast, err error) {
	in, err := c.content(ctx, namespace, d, "graph")
	if err != nil {
		return f, err
	}
	v := catalog.Version{Content: in}
	g, err := c.Unpack(ctx, namespace, &v)
	if err != nil {
		return f, err
	}
	return c.fromGraph(ctx, namespace, &v, g, catalog.Earlier{})
}

// earlierVersions is how many versions before one are looked at for runs.
const earlierVersions = 10

// earlierRuns are the samples of the newest version before one that has some.
func earlierRuns(ctx context.Context, r store.Reader, namespace, id string, before int64) (out catalog.Earlier, err error) {
	versions, err := r.WorkflowVersions(ctx, namespace, id, before, earlierVersions)
	if err != nil {
		return out, err
	}
	for i := range versions {
		out.Version = versions[i].Number
		if out.Samples, err = r.Samples(ctx, namespace, id, out.Version); err != nil || len(out.Samples) > 0 {
			return out, err
		}
	}
	return catalog.Earlier{}, nil
}

func (c *Catalog) fromGraph(ctx context.Context, namespace string, v *catalog.Version, g *workgraph.Graph, earlier catalog.Earlier) (f catalog.Forecast, err error) {
	var prices usage.Book
	var booked []usage.Entry
	if err := c.store.View(ctx, namespace, func(ctx context.Context, r store.Reader) error {
		if models := catalog.Models(g); len(models) > 0 {
			if prices, err = r.PriceBook(ctx, namespace, models); err != nil {
				return err
			}
		}
		if catalog.AsksModels(g) {
			booked, err = r.Entries(ctx, store.EntryQuery{Namespace: namespace, Limit: catalog.MaxCalls})
		}
		return err
	}); err != nil {
		return f, err
	}
	return catalog.ForecastGraph(v, g, prices, catalog.NewCalls(booked), earlier, dbkit.Now()), nil
}
