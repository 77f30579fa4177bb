package cataloging

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/internal/request"
	"github.com/epigraph-run/epigraph/services/registry/internal/store"
	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workgraph"
)

// ReasonNoDefinition refuses to fork or compare a version whose text is a graph.
const ReasonNoDefinition = "WORKFLOW_IS_A_GRAPH"

// Fork makes a workflow of another one and of a document that says what changes. All patches are applied, or
// nothing is made.
func (c *Catalog) Fork(ctx context.Context, namespace string, o request.Once, document, slug string) (catalog.Workflow, error) {
	if out, done, err := c.repeated(ctx, namespace, "ForkWorkflow", o); done || err != nil {
		return out, err
	}
	doc, err := c.document(ctx, namespace, document)
	if err != nil {
		return catalog.Workflow{}, err
	}
	ref, err := catalog.ParseRef(doc.BasedOn)
	if err != nil {
		return catalog.Workflow{}, err
	}
	w, v, err := c.definition(ctx, namespace, ref, o.ID) // a repeated fork is one of the same version
	if err != nil {
		return catalog.Workflow{}, err
	}
	in, err := c.patched(ctx, namespace, doc, v.Source)
	if err != nil {
		return catalog.Workflow{}, err
	}
	return c.create(ctx, namespace, "ForkWorkflow", o, in, origin{slug: slug, forkedFrom: catalog.At(w.ID, v.Number)})
}

// Origins tells what workflows are forks of, by their ids: SLUG@VERSION, or ID@VERSION of what is not there
// any more.
func (c *Catalog) Origins(ctx context.Context, namespace string, ws ...catalog.Workflow) (map[string]string, error) {
	var ids []string
	for i := range ws {
		if id, _, ok := strings.Cut(ws[i].ForkedFrom, "@"); ok && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	slugs, err := view(ctx, c, namespace, func(ctx context.Context, r store.Reader) (map[string]string, error) {
		return r.Slugs(ctx, namespace, ids)
	})
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for i := range ws {
		id, version, ok := strings.Cut(ws[i].ForkedFrom, "@")
		if ok {
			out[ws[i].ID] = cmp.Or(slugs[id], id) + "@" + version
		}
	}
	return out, nil
}

// document reads the text of a fork, in a turn of the namespace.
func (c *Catalog) document(ctx context.Context, namespace, text string) (doc *workflow.ForkDocument, err error) {
	err = c.turn(ctx, namespace, len(text), func() error {
		var faults workflow.Faults
		if doc, faults = workflow.ReadFork([]byte(text)); len(faults) > 0 {
			return catalog.Refused(faults)
		}
		return nil
	})
	return doc, err
}

// turn does work on texts of a size in a turn of the namespace.
func (c *Catalog) turn(ctx context.Context, namespace string, size int, work func() error) error {
	leave, err := c.compiling.Enter(ctx, namespace, 1+size/bytesPerCost)
	if err != nil {
		return err
	}
	defer leave()
	return work()
}

// patched applies the document to a text and compiles what comes of it, in a turn of the namespace.
func (c *Catalog) patched(ctx context.Context, namespace string, doc *workflow.ForkDocument, base string) (catalog.Content, error) {
	var text []byte
	err := c.turn(ctx, namespace, len(base), func() (err error) {
		var faults workflow.Faults
		if text, faults = doc.Apply([]byte(base)); len(faults) > 0 {
			return catalog.Refused(faults)
		}
		return nil
	})
	if err != nil {
		return catalog.Content{}, err
	}
	return c.content(ctx, namespace, Draft{Form: catalog.Definition, Source: string(text)}, "")
}

// definition resolves a reference to a version whose text is a definition.
func (c *Catalog) definition(ctx context.Context, namespace string, ref catalog.Ref, key string) (w catalog.Workflow, v catalog.Version, err error) {
	w, v, err = c.Resolve(ctx, namespace, ref, key)
	if err == nil && v.Form != catalog.Definition {
		err = errs.New(errs.FailedPrecondition, ReasonNoDefinition, "the text of %s is a graph, not a definition of steps", catalog.At(w.Slug, v.Number)).
			Hint("patches and differences are about steps: write it as a definition first")
	}
	return w, v, err
}

// Diff tells what differs between two versions, and which they are.
func (c *Catalog) Diff(ctx context.Context, namespace string, from, to catalog.Ref) (changes workflow.Changes, refs [2]string, err error) {
	var sources [2]string
	for i, ref := range []catalog.Ref{from, to} {
		w, v, err := c.definition(ctx, namespace, ref, "")
		if err != nil {
			return nil, refs, err
		}
		refs[i], sources[i] = catalog.At(w.Slug, v.Number), v.Source
	}
	err = c.turn(ctx, namespace, len(sources[0])+len(sources[1]), func() error {
		var d [2]*workflow.Definition
		for i, source := range sources {
			var faults workflow.Faults
			// A later release may refuse what an earlier one took.
			if d[i], faults = workflow.Read([]byte(source)); len(faults) > 0 {
				return catalog.Refused(faults)
			}
		}
		changes = workflow.Diff(d[0], d[1])
		return nil
	})
	return changes, refs, err
}

// Unpack is the graph of a version, which is unpacked in a turn of the namespace.
func (c *Catalog) Unpack(ctx context.Context, namespace string, v *catalog.Version) (g *workgraph.Graph, err error) {
	err = c.turn(ctx, namespace, len(v.Packed), func() (err error) {
		g, err = v.Unpack()
		return err
	})
	return g, err
}
