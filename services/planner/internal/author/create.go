package author

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/near"
	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/compile"
	"github.com/epigraph-run/epigraph/workgraph"
)

// ArgumentInvalid is the code of arguments that the schema of their tool does not accept.
const ArgumentInvalid plan.Code = "ARGUMENT_INVALID"

// Order says what is to be achieved, and with what.
type Order struct {
	Namespace, Profile string
	Goal, Context      string
	Tools              []Tool
	// Compile are the options of the graph. Known is set by the author.
	Compile compile.Options
	Limits  Limits
	// Check returns the faults of a plan beside those that the author finds itself; nil finds none. Listeners
	// of Stream have a check of their own.
	Check func(ctx context.Context, g *workgraph.Graph) ([]workgraph.Fault, error)
}

// size is the length of what the order holds, and given that of the texts for its prompt.
func (o *Order) size() (size, given int) {
	given = len(o.Goal) + len(o.Context)
	for _, t := range o.Tools {
		given += len(t.Name) + len(t.Description) + len(t.Schema)
	}
	size = given
	for name, value := range o.Compile.Named {
		size += len(name) + len(value)
	}
	return size, given
}

// Made is the last answer as it was read.
type Made struct {
	Text string
	// Read is what the reader said, with all findings of the answer.
	Read plan.Result
	// Graph is nil unless the plan can run.
	Graph *workgraph.Graph
}

// Create has a model write a plan. An authoring that ends without a plan is no error: the report says why.
func (a *Author) Create(ctx context.Context, o Order) (Made, Report, error) {
	return a.create(ctx, o, nil)
}

// create has a model write a plan, and tells l of it unless that is nil.
func (a *Author) create(ctx context.Context, o Order, l Listener) (Made, Report, error) {
	var kit *kit
	size, given := o.size()
	prompt, err := a.prepare(ctx, given, size, len(o.Tools), func() (string, error) {
		return fill(cmp.Or(a.cfg.Prompt, createPrompt), map[string]string{"goal": o.Goal, "context": o.Context, "tools": toolText(o.Tools)}), nil
	}, func() (err error) {
		kit, err = newKit(ctx, o.Tools)
		return err
	})
	if err != nil {
		return Made{}, Report{}, err
	}
	o.Compile.Known = kit.has
	var made Made
	var d *draft
	if l != nil {
		d = &draft{a: a, kit: kit, how: o.Compile, to: l, told: map[string]*told{}}
		o.Check = l.Check
	}
	report, err := a.write(ctx, job{
		namespace: o.Namespace, profile: o.Profile, prompt: prompt, limits: o.Limits, draft: d,
		check: func(ctx context.Context, text string, whole bool) ([]plan.Diagnostic, error) {
			made = Made{Text: text, Read: a.parse(ctx, text, whole)}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			made.Read.Diagnostics = withNoPlan(made.Read)
			if made.Read.HasErrors() {
				return made.Read.Diagnostics, nil
			}
			found, err := kit.check(ctx, made.Read.Graph)
			if err != nil {
				return nil, err
			}
			if made.Read.Diagnostics = append(made.Read.Diagnostics, found...); made.Read.HasErrors() {
				return made.Read.Diagnostics, nil
			}
			g, found, err := compiled(ctx, made.Read.Graph, o.Compile)
			if err == nil && d != nil && len(found) == 0 {
				found = d.changed(g, made.Read.Graph)
			}
			made.Read.Diagnostics = append(made.Read.Diagnostics, found...)
			if !made.Read.HasErrors() {
				made.Graph = g
			}
			return made.Read.Diagnostics, err
		},
		confirm: func(ctx context.Context) ([]plan.Diagnostic, error) {
			if o.Check == nil || made.Graph == nil {
				return nil, nil
			}
			faults, err := o.Check(ctx, made.Graph)
			found := ofGraph(faults)
			if made.Read.Diagnostics = append(made.Read.Diagnostics, found...); len(found) > 0 {
				made.Graph = nil
			}
			return found, err
		},
	})
	if n := len(report.Rounds); report.End == Busy {
		made = Made{Text: report.Rounds[n-1].Text}
	}
	if report.End != Complete {
		made.Graph = nil
	}
	return made, report, err
}

func (a *Author) parse(ctx context.Context, text string, whole bool) plan.Result {
	opts := []plan.Option{plan.WithLimits(a.limits), plan.WithContext(ctx)}
	if whole {
		opts = append(opts, plan.WithComplete())
	}
	return plan.Parse(text, opts...)
}

// withNoPlan are the findings of a reading, with one that says that there is no plan.
func withNoPlan(r plan.Result) []plan.Diagnostic {
	if r.NoPlan == nil {
		return r.Diagnostics
	}
	return append([]plan.Diagnostic{{
		Code: "NO_PLAN", Severity: plan.Error, Element: string(r.NoPlan.Reason),
		Message: "the answer holds no plan: " + r.NoPlan.Message, Hint: "answer with the list of tasks alone",
	}}, r.Diagnostics...)
}

// compiled is the graph of a plan, or the findings for which it cannot run.
func compiled(ctx context.Context, g plan.Graph, o compile.Options) (*workgraph.Graph, []plan.Diagnostic, error) {
	made, err := compile.Graph(ctx, g, o)
	if ce, ok := errors.AsType[*compile.Error](err); ok {
		return nil, ce.Diagnostics, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("compile plan: %w", err)
	}
	faults, err := workgraph.Validate(ctx, made, nil)
	return made, ofGraph(faults), err
}

// ofGraph are the faults of a graph as findings of its plan.
func ofGraph(faults []workgraph.Fault) []plan.Diagnostic {
	var out []plan.Diagnostic
	for _, f := range faults {
		out = append(out, plan.Diagnostic{Code: plan.Code(f.Code), Severity: plan.Error, Element: graphpb.FaultPath(f), Message: f.Message, Hint: f.Hint})
	}
	return out
}

// kit are the tools that a plan may use.
type kit struct {
	tools map[string]*Tool
	names []string
	// schemas are those of tools that have one.
	schemas map[string]*workgraph.Schema
	needs   map[string]needed
}

// needed is the part of a schema that holds for names alone.
type needed struct {
	Properties map[string]json.RawMessage `json:"properties"`
	Required   []string                   `json:"required"`
	Additional any                        `json:"additionalProperties"`
}

// newKit refuses tools whose names are not unique, and schemas that cannot be used.
func newKit(ctx context.Context, tools []Tool) (*kit, error) {
	k := &kit{tools: map[string]*Tool{}, schemas: map[string]*workgraph.Schema{}, needs: map[string]needed{}}
	bad := errs.New(errs.InvalidArgument, "TOOLS_INVALID", "the tools cannot be used")
	for i := range tools {
		t := &tools[i]
		if k.tools[t.Name] != nil {
			bad = bad.Violate(fmt.Sprintf("tools[%d].name", i), "DUPLICATE_NAME", "another tool has this name")
			continue
		}
		k.tools[t.Name] = t
		k.names = append(k.names, t.Name)
		if len(t.Schema) == 0 {
			continue
		}
		schema, err := workgraph.CompileSchema(ctx, t.Schema)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var n needed
		if err == nil {
			err = json.Unmarshal(t.Schema, &n)
		}
		if err != nil {
			bad = bad.Violate(fmt.Sprintf("tools[%d].schema", i), "SCHEMA_INVALID", errs.Clip(err.Error(), 500))
			continue
		}
		k.schemas[t.Name], k.needs[t.Name] = schema, n
	}
	if len(bad.Violations) > 0 {
		return nil, bad
	}
	return k, nil
}

func (k *kit) has(name string) bool { return k.tools[name] != nil }

// check reports the problems that use a tool that is not there, or one in a way that its schema does not
// accept.
func (k *kit) check(ctx context.Context, g plan.Graph) ([]plan.Diagnostic, error) {
	var out []plan.Diagnostic
	for i := range g.Problems {
		p := &g.Problems[i]
		if p.Tool == "" {
			continue
		}
		found := plan.Diagnostic{Severity: plan.Error, Line: p.Line, Column: p.Column, Element: p.ID}
		if !k.has(p.Tool) {
			found.Code, found.Message = plan.UnknownTool, fmt.Sprintf("there is no tool %q", errs.Clip(p.Tool, 100))
			found.Hint = k.hint(p.Tool)
			out = append(out, found)
			continue
		}
		why, err := k.misused(ctx, p)
		if err != nil {
			return nil, err
		}
		if why != "" {
			found.Code, found.Message = ArgumentInvalid, fmt.Sprintf("the arguments of tool %q do not fit: %s", p.Tool, why)
			found.Hint = "write args by the schema of the tool"
			out = append(out, found)
		}
	}
	return out, nil
}

// maxListed bounds the names of tools in a hint.
const maxListed = 20

func (k *kit) hint(name string) string {
	if len(k.names) == 0 {
		return "no tools are given: leave \"tool\" and \"args\" out"
	}
	for _, n := range k.names {
		if _, ok := near.Within(name, n, len(name)/3+1); ok {
			return fmt.Sprintf("did you mean %q?", n)
		}
	}
	names := k.names[:min(len(k.names), maxListed)]
	return "use one of " + strings.Join(names, ", ") + ", or no tool"
}

// misused says why the arguments of a problem do not fit the schema of its tool, or "". A value that uses the
// result of another problem is not known yet, so that only its name counts.
func (k *kit) misused(ctx context.Context, p *plan.Problem) (string, error) {
	schema := k.schemas[p.Tool]
	if schema == nil {
		return "", nil
	}
	given := map[string]json.RawMessage{}
	known := true
	for _, arg := range p.Args {
		switch {
		case arg.Name == "":
			return "an argument has no name", nil
		case compile.EdgeArg(arg.Name):
			continue // what the text says of an edge
		}
		given[arg.Name] = arg.JSON()
		known = known && arg.Kind == plan.Literal
	}
	if known {
		raw, err := json.Marshal(given)
		if err != nil {
			return "", fmt.Errorf("encode arguments: %w", err)
		}
		err = schema.Check(ctx, raw)
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if err != nil {
			return errs.Clip(err.Error(), maxFaultText), nil
		}
		return "", nil
	}
	n := k.needs[p.Tool]
	for _, name := range n.Required {
		if _, ok := given[name]; !ok {
			return fmt.Sprintf("%q is missing", name), nil
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if _, ok := n.Properties[name]; !ok && n.Additional == false {
			return fmt.Sprintf("there is no argument %q", errs.Clip(name, 100)), nil
		}
	}
	return "", nil
}
