package cli

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/workflow/foreign"
)

type workflowsImportCmd struct {
	File string `arg:"" help:"The definition of the other system, JSON or YAML; - is standard input." default:"-"`
}

// Help says what is carried over.
func (workflowsImportCmd) Help() string {
	return `Make a workflow of a definition of n8n, Argo Workflows, GitHub Actions, Conductor or Pipelit. The platform is told by its keys. Steps, their order, joins, branches, waits, people and workflows that call others are carried over. What a step does becomes the call of an actor that is named after it, such as n8n/slack, which a worker or the configuration provides. What is not carried over is shown on standard error.

    epigraph workflows import letters.json > letters.yaml
    epigraph workflows validate letters.yaml`
}

// Run prints the workflow that a foreign definition becomes.
func (c *workflowsImportCmd) Run(e *env) error {
	src, err := e.readText(c.File)
	if err != nil {
		return err
	}
	got, err := foreign.Import([]byte(src))
	if err != nil {
		return errs.New(errs.InvalidArgument, "WORKFLOW_NOT_IMPORTED", "%s cannot be imported: %v", sourceName(c.File), err)
	}
	if e.json {
		return json.NewEncoder(e.io.Out).Encode(map[string]any{"platform": got.Platform, "definition": string(got.YAML), "report": got.Report, "steps": got.Steps})
	}
	if _, err := e.io.Out.Write(got.YAML); err != nil {
		return err
	}
	for _, item := range got.Report {
		fmt.Fprintf(e.io.Err, "%s: %s: %s\n", item.What, view.OneLine(item.Where, 60), view.OneLine(item.Why, 200))
	}
	if names := foreignActors(got.YAML); len(names) > 0 {
		e.note("warning: a worker or the configuration must offer %s before the workflow can run; `epigraph workflows validate FILE` asks the server whether they are there", some(names, 10))
	}
	if len(got.Report) > 0 {
		fmt.Fprintf(e.io.Err, "%s of %s not carried over as a whole.\n", view.Plural(len(got.Report), "part"), got.Platform)
	}
	return nil
}

// calledActor is an actor that a step of a definition calls.
var calledActor = regexp.MustCompile(`(?m)^[ -]*actor: "?([^\s"]{1,128})"?$`)

// foreignActors are the actors of an imported workflow that stand for what the other system does. They are
// named after it.
func foreignActors(definition []byte) (names []string) {
	for _, m := range calledActor.FindAllSubmatch(definition, -1) {
		if name := string(m[1]); strings.Contains(name, "/") { // those that are built in have none
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
