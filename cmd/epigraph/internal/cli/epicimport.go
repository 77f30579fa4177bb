package cli

import (
	"context"
	"fmt"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

type epicsImportCmd struct {
	File      string `arg:"" help:"The task tree, JSON; - is standard input." default:"-"`
	RequestID string `help:"Make the command repeatable under this id; default: a hash of the file." placeholder:"ID"`
}

// Run imports, and tells what was not carried over.
func (c *epicsImportCmd) Run(e *env) error {
	document, err := e.readText(c.File)
	if err != nil {
		return err
	}
	if err := wrongKind(sourceName(c.File), document, kindTree); err != nil {
		return err
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.registry.ImportEpic(ctx, &registryv1.ImportEpicRequest{Document: document, RequestId: c.RequestID})
		if err != nil {
			return err
		}
		if !e.json {
			for _, n := range r.GetLeftOut() {
				fmt.Fprintf(e.io.Err, "line %d: %s: %s\n", n.GetLine(), view.OneLine(n.GetPath(), 60), view.OneLine(n.GetMessage(), 200))
			}
		}
		return e.print(r, func() string { return r.GetId() + "\n" })
	})
}
