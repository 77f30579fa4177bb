package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/workgraph"
)

// ReasonInputInvalid refuses a start whose inputs are not those that its workflow declares.
const ReasonInputInvalid = "INPUT_INVALID"

// maxDeclared is how many declared inputs a hint names.
const maxDeclared = 20

// CheckInputs compares the inputs of a run with those that the workflow of its graph declares, which its
// first node would do. The error has a violation for each place that is wrong. A graph that no workflow was
// compiled to declares none.
func (s *Set) CheckInputs(ctx context.Context, namespace string, p *Program, g *workgraph.Graph, in *workgraph.Input) error {
	if len(g.Nodes) == 0 || g.Nodes[0].Actor != "cel" || string(g.Nodes[0].Named["expr"]) != `"input.named"` {
		return nil
	}
	declared := p.Machine.ResultSchema(g.Nodes[0].ID)
	if declared == nil {
		return nil
	}
	named := in.Named
	if named == nil {
		named = map[string]json.RawMessage{}
	}
	given, err := json.Marshal(named)
	if err != nil {
		return fmt.Errorf("encode inputs: %w", err)
	}
	leave, err := s.computing.Enter(ctx, namespace)
	if err != nil {
		return err
	}
	defer leave()
	err = declared.Check(ctx, given)
	faults, ok := errors.AsType[workgraph.SchemaFaults](err)
	if !ok {
		if err != nil && ctx.Err() == nil {
			return nil // the node itself tells what cannot be checked
		}
		return err
	}
	bad := errs.New(errs.InvalidArgument, ReasonInputInvalid, "the inputs do not fit the workflow")
	for _, f := range faults {
		bad = bad.Violate("named"+strings.ReplaceAll(f.Place, "/", "."), ReasonInputInvalid, f.Message)
	}
	return bad.Hint(declaredInputs(g.Nodes[0].Check))
}

// declaredInputs says which inputs there are.
func declaredInputs(c *workgraph.Check) string {
	var schema struct {
		Properties map[string]json.RawMessage
		Required   []string
	}
	if c == nil || json.Unmarshal(c.Schema, &schema) != nil || len(schema.Properties) == 0 {
		return "give what the schema of the workflow's inputs asks for"
	}
	var names []string
	for name, raw := range schema.Properties {
		var of struct{ Type string }
		text := name
		if json.Unmarshal(raw, &of) == nil && of.Type != "" {
			text += " (" + of.Type
			if !slices.Contains(schema.Required, name) {
				text += ", optional"
			}
			text += ")"
		}
		names = append(names, text)
	}
	slices.Sort(names)
	more := ""
	if n := len(names) - maxDeclared; n > 0 {
		names, more = names[:maxDeclared], fmt.Sprintf(" and %d more", n)
	}
	return "it declares " + strings.Join(names, ", ") + more
}
