package cataloging

import (
	"context"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/registry/internal/catalog"
	"github.com/epigraph-run/epigraph/workflow"
)

const (
	// ReasonDefinitionTooLarge refuses a definition that is longer than a task keeps.
	ReasonDefinitionTooLarge = "DEFINITION_TOO_LARGE"
	// MaxAttached bounds the definition of a task, in bytes.
	MaxAttached = 64 << 10
)

// Attached is a workflow that a task keeps for itself.
type Attached struct {
	// Definition is its text, without faults.
	Definition string
	// BasedOn is the version that it was made of, as SLUG@VERSION, if it was given as a fork.
	BasedOn string
}

// Attach compiles the text of a workflow that a task is to keep: a definition, a graph, or a fork, which is
// applied to the version that it names. Nothing is added to the catalog. Equal keys choose the same
// version of an alias.
func (c *Catalog) Attach(ctx context.Context, namespace, text, key string) (Attached, error) {
	if err := small(text, "the definition"); err != nil {
		return Attached{}, err
	}
	if strings.TrimSpace(text) == "" {
		return Attached{}, errs.New(errs.InvalidArgument, catalog.ReasonInvalid, "the definition is blank").Violate("task.definition", catalog.ReasonInvalid, "is blank").
			Hint("give the text of a workflow, or nothing at all")
	}
	if !workflow.IsFork([]byte(text)) {
		in, err := c.content(ctx, namespace, draftOf(text), "task")
		return Attached{Definition: in.Source}, err
	}
	doc, err := c.document(ctx, namespace, text)
	if err != nil {
		return Attached{}, err
	}
	ref, err := catalog.ParseRef(doc.BasedOn)
	if err != nil {
		return Attached{}, err
	}
	w, v, err := c.definition(ctx, namespace, ref, key)
	if err != nil {
		return Attached{}, err
	}
	in, err := c.patched(ctx, namespace, doc, v.Source)
	if err != nil {
		return Attached{}, err
	}
	return Attached{Definition: in.Source, BasedOn: catalog.At(w.Slug, v.Number)}, small(in.Source, "what comes of the patches")
}

func small(text, what string) error {
	if len(text) <= MaxAttached {
		return nil
	}
	return errs.New(errs.InvalidArgument, ReasonDefinitionTooLarge, "%s has %d bytes, a task keeps %d", what, len(text), MaxAttached).
		Violate("task.definition", ReasonDefinitionTooLarge, "is too large").Hint("keep it in the catalog, and name it by workflow_slug")
}
