package cataloging

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/services/registry/internal/request"
	"github.com/epigraph-run/epigraph/workflow"
)

// ReasonNoDefinition refuses to fork or compare a version whose text is a graph.
const ReasonNoDefinition = "WORKFLOW_IS_A_GRAPH"

// Fork makes a workflow of another one and of a document that says what changes. All patches are applied, or
// nothing is made.
func (c *Catalog) Fork(ctx context.Context, namespace string, o request.Once, document, slug string) (catalog.Workflow, error) {
	doc, faults := workflow.ReadFork([]byte(document))
	if len(faults) > 0 {
		return catalog.Workflow{}, catalog.Refused(faults)
	}
	ref, err := catalog.ParseRef(doc.BasedOn)
	if err != nil {
		return catalog.Workflow{}, err
	}
	w, v, err := c.definition(ctx, namespace, ref)
	if err != nil {
		return catalog.Workflow{}, err
	}
	in, err := c.patched(ctx, namespace, doc, v.Source)
	if err != nil {
		return catalog.Workflow{}, err
	}
	return c.create(ctx, namespace, "ForkWorkflow", o, in, origin{slug: slug, forkedFrom: catalog.At(w.Slug, v.Number)})
}

// patched applies the document to a text and compiles what comes of it, in a turn of the namespace.
func (c *Catalog) patched(ctx context.Context, namespace string, doc *workflow.ForkDocument, base string) (catalog.Content, error) {
	leave, err := c.compiling.Enter(ctx, namespace, 1+len(base)/bytesPerCost)
	if err != nil {
		return catalog.Content{}, err
	}
	text, faults := doc.Apply([]byte(base))
	leave()
	if len(faults) > 0 {
		return catalog.Content{}, catalog.Refused(faults)
	}
	return c.content(ctx, namespace, Draft{Form: catalog.Definition, Source: string(text)}, "")
}

// definition resolves a reference to a version whose text is a definition.
func (c *Catalog) definition(ctx context.Context, namespace string, ref catalog.Ref) (w catalog.Workflow, v catalog.Version, err error) {
	w, v, err = c.Resolve(ctx, namespace, ref, "")
	if err == nil && v.Form != catalog.Definition {
		err = errs.New(errs.FailedPrecondition, ReasonNoDefinition, "the text of %s is a graph, not a definition of steps", catalog.At(w.Slug, v.Number)).
			Hint("patches and differences are about steps: write it as a definition first")
	}
	return w, v, err
}

// Diff tells what differs between two versions, and which they are.
func (c *Catalog) Diff(ctx context.Context, namespace string, from, to catalog.Ref) (changes workflow.Changes, refs [2]string, err error) {
	var d [2]*workflow.Definition
	for i, ref := range []catalog.Ref{from, to} {
		w, v, err := c.definition(ctx, namespace, ref)
		if err != nil {
			return nil, refs, err
		}
		refs[i] = catalog.At(w.Slug, v.Number)
		if d[i], err = c.parsed(ctx, namespace, v.Source); err != nil {
			return nil, refs, err
		}
	}
	return workflow.Diff(d[0], d[1]), refs, nil
}

func (c *Catalog) parsed(ctx context.Context, namespace, source string) (*workflow.Definition, error) {
	leave, err := c.compiling.Enter(ctx, namespace, 1+len(source)/bytesPerCost)
	if err != nil {
		return nil, err
	}
	defer leave()
	d, faults := workflow.Read([]byte(source))
	if len(faults) > 0 { // a later release may refuse what an earlier one took
		return nil, catalog.Refused(faults)
	}
	return d, nil
}
