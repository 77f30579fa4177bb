package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	planv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/plan/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/workflow"
)

// workflowFile is a definition that was read from a file, with its graph.
type workflowFile struct {
	name, text string
	definition *workflow.Definition
	graph      *graphv1.Graph
	// isGraph says that the text is a graph, so that the definition has a name alone.
	isGraph bool
	// warnings are those of the definition and of the server.
	warnings []string
}

// workflowFrom reads and compiles a definition. Faults are shown with their places.
func (e *env) workflowFrom(file string) (*workflowFile, error) {
	text, err := e.readText(file)
	if err != nil {
		return nil, err
	}
	return e.compiled(&workflowFile{name: sourceName(file), text: text})
}

// workflowOf is workflowFrom of a file, or of a workflow of the catalog: NAME, NAME@VERSION or NAME@ALIAS.
func (e *env) workflowOf(ref string) (f *workflowFile, err error) {
	if !inCatalog(ref) {
		return e.workflowFrom(ref)
	}
	err = e.with(func(ctx context.Context, s *services) error {
		v, err := e.versionOf(ctx, s, ref)
		if err != nil {
			return err
		}
		f = &workflowFile{name: fmt.Sprintf("%s@%d", v.GetWorkflow(), v.GetVersion()), text: v.GetSource()}
		if v.GetForm() == registryv1.WorkflowForm_WORKFLOW_FORM_GRAPH {
			f.graph, err = graphpb.Read([]byte(f.text))
			f.isGraph, f.definition = true, &workflow.Definition{Name: v.GetWorkflow()}
		}
		return err
	})
	if err != nil || f.graph != nil {
		return f, err
	}
	return e.compiled(f)
}

// versionOf is a version of the catalog. That it is deprecated is told.
func (e *env) versionOf(ctx context.Context, s *services, ref string) (*registryv1.WorkflowVersion, error) {
	r, err := s.workflows.ResolveWorkflow(ctx, &registryv1.ResolveWorkflowRequest{Ref: ref})
	if err != nil {
		return nil, err
	}
	e.deprecated(r.GetRef(), r.GetDeprecation())
	name, _, _ := strings.Cut(r.GetRef(), "@")
	return s.workflows.GetWorkflowVersion(ctx, &registryv1.GetWorkflowVersionRequest{Workflow: name, Version: r.GetVersion()})
}

// caution tells what is to be known of a workflow of the catalog before it is run. What cannot be found out
// is left to the start to tell.
func (e *env) caution(ctx context.Context, s *services, ref string) {
	v, err := e.versionOf(ctx, s, ref)
	if err != nil || v.GetForm() == registryv1.WorkflowForm_WORKFLOW_FORM_GRAPH {
		return
	}
	if d, faults := workflow.Read([]byte(v.GetSource())); len(faults) == 0 {
		f := &workflowFile{name: fmt.Sprintf("%s@%d", v.GetWorkflow(), v.GetVersion()), text: v.GetSource()}
		f.warn(e, workflow.Warnings(d))
	}
}

// deprecated tells that a workflow is, and why; nothing if why is empty.
func (e *env) deprecated(ref, why string) {
	if why != "" {
		e.note("warning: %s is deprecated: %s", ref, view.OneLine(why, 300))
	}
}

// compiled compiles the text of a definition.
func (e *env) compiled(f *workflowFile) (*workflowFile, error) {
	d, faults := workflow.Read([]byte(f.text))
	if len(faults) > 0 {
		if err := wrongKind(f.name, f.text, kindWorkflow); err != nil {
			return nil, err
		}
		return nil, f.refused(e, faults)
	}
	g, faults := workflow.Compile(d)
	if len(faults) > 0 {
		return nil, f.refused(e, faults)
	}
	f.definition = d
	f.warn(e, workflow.Warnings(d))
	var err error
	f.graph, err = graphpb.ToProto(g)
	return f, err
}

// warn shows warnings.
func (f *workflowFile) warn(e *env, ws workflow.Faults) {
	ds := make([]*planv1.Diagnostic, len(ws))
	for i, w := range ws {
		f.warnings = append(f.warnings, fmt.Sprintf("%d:%d %s: %s", w.Line, w.Column, w.Code, w.Message))
		ds[i] = &planv1.Diagnostic{Code: w.Code, Severity: planv1.Severity_SEVERITY_WARNING, Line: int32(w.Line), Column: int32(w.Column), Message: w.Message, Hint: w.Hint}
	}
	if len(ws) > 0 && !e.json {
		fmt.Fprint(e.io.Err, view.Diagnostics(e.io.errStyle(), f.name, f.text, ds))
	}
}

// refused shows the faults of a definition and returns the error that sums them up.
func (f *workflowFile) refused(e *env, faults workflow.Faults) error {
	x := errs.New(errs.InvalidArgument, "WORKFLOW_INVALID", "%s has %s", f.name, view.Plural(len(faults), "fault"))
	ds := make([]*planv1.Diagnostic, len(faults))
	for i, fault := range faults {
		ds[i] = &planv1.Diagnostic{Code: fault.Code, Severity: planv1.Severity_SEVERITY_ERROR, Line: int32(fault.Line), Column: int32(fault.Column), Message: fault.Message, Hint: fault.Hint}
		x.Violations = append(x.Violations, errs.Violation{Field: fmt.Sprintf("%d:%d %s", fault.Line, fault.Column, fault.Path), Reason: fault.Code, Message: fault.Message})
	}
	if e.json {
		return x
	}
	fmt.Fprint(e.io.Err, view.Diagnostics(e.io.errStyle(), f.name, f.text, ds))
	x.Violations = nil
	return x
}

// asked has a server look at the graph: whether its actors are there, and take what they are given. It
// returns the faults and shows the warnings, at the places of their steps.
func (f *workflowFile) asked(ctx context.Context, e *env, s *services, in *executorv1.RunInput) (workflow.Faults, error) {
	r, err := s.executor.ValidateGraph(ctx, &executorv1.ValidateGraphRequest{Graph: f.graph, Input: in})
	if err != nil {
		return nil, err
	}
	f.warn(e, f.placed(r.GetWarnings()))
	return f.placed(r.GetFaults()), nil
}

// placed are faults of the graph at the places of the steps that they concern.
func (f *workflowFile) placed(list []*graphv1.Fault) workflow.Faults {
	var out workflow.Faults
	for _, g := range list {
		at := g.GetNodeId()
		if _, to, ok := strings.Cut(g.GetEdge(), " -> "); ok {
			at = to
		}
		fault := workflow.Fault{Code: g.GetCode(), Path: g.GetField(), Message: g.GetMessage(), Hint: g.GetHint()}
		if place, ok := f.definition.Place(at); ok {
			fault.Place = place
		}
		if at != "" {
			fault.Message = at + ": " + fault.Message
		}
		out = append(out, fault)
	}
	slices.SortStableFunc(out, func(a, b workflow.Fault) int { return a.Line - b.Line })
	return out
}

type workflowsValidateCmd struct {
	File    string `arg:"" help:"The definition, YAML or JSON; - is standard input. Or a workflow of the catalog: NAME, NAME@VERSION or NAME@ALIAS." default:"-"`
	Offline bool   `help:"Ask no server about the actors."`
}

// Help says what is checked.
func (workflowsValidateCmd) Help() string {
	return `All faults are shown at once, with line, column and a hint. A server is asked whether it has the actors, and whether they take what they are given. The exit code is 0 if the workflow can run, and 1 if not.

    epigraph workflows validate digest.yaml
    epigraph workflows validate digest.yaml --offline`
}

// Run checks a definition.
func (c *workflowsValidateCmd) Run(e *env) error {
	f, err := e.workflowOf(c.File)
	if err != nil {
		return err
	}
	if !c.Offline {
		err = e.with(func(ctx context.Context, s *services) error {
			faults, err := f.asked(ctx, e, s, nil)
			if err == nil && len(faults) > 0 {
				err = f.refused(e, faults)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	d := f.definition
	if e.json {
		return json.NewEncoder(e.io.Out).Encode(map[string]any{"valid": true, "name": d.Name, "version": d.Version, "description": d.Description, "tags": d.Tags, "steps": d.Size(), "nodes": len(f.graph.GetNodes()), "edges": len(f.graph.GetEdges()), "warnings": f.warnings})
	}
	name := view.OneLine(strings.TrimSpace(d.Name+" "+d.Version), 100)
	return e.say(fmt.Sprintf("%s can run: %s\n", name, view.Plural(d.Size(), "step")))
}

type workflowsGraphCmd struct {
	File    string `arg:"" help:"The definition, YAML or JSON; - is standard input. Or a workflow of the catalog: NAME, NAME@VERSION or NAME@ALIAS." default:"-"`
	Mermaid bool   `help:"Print a Mermaid flowchart (the default)." xor:"form"`
	Dot     bool   `help:"Print for Graphviz." xor:"form"`
}

// Help says what --json is good for.
func (workflowsGraphCmd) Help() string {
	return `With --json it prints the graph in the form of the REST API. "epigraph run" accepts it.`
}

// Run shows the graph that a definition becomes.
func (c *workflowsGraphCmd) Run(e *env) error {
	f, err := e.workflowOf(c.File)
	if err != nil {
		return err
	}
	return e.drawGraph(f.graph, c.Dot)
}

type workflowsRunCmd struct {
	File string `arg:"" help:"The definition, YAML or JSON; - is standard input. Or a workflow of the catalog: NAME, NAME@VERSION or NAME@ALIAS." default:"-"`
	runStart
	Thread string `help:"Thread that the run works on: its agents and teams go on where they were. \"new\" makes one." placeholder:"ID"`
	Detach bool   `help:"Start the run and do not watch it." short:"d"`
}

// Help gives examples.
func (workflowsRunCmd) Help() string {
	return `The exit codes are those of "epigraph run". The workflow's budget holds unless flags give another.

    epigraph workflows run digest.yaml --input topic=news
    epigraph workflows run digest@prod --input topic=news
    epigraph workflows run digest.yaml --epic "Launch" --detach
    epigraph workflows run desk.yaml --input task=Hello --thread new`
}

// Run starts a run of a definition and watches it.
func (c *workflowsRunCmd) Run(e *env) error {
	req, err := c.request()
	if err != nil {
		return err
	}
	if req.ThreadId = c.Thread; c.Thread == "new" {
		req.ThreadId, req.Thread = "", &executorv1.Thread{}
	}
	var f *workflowFile
	if !inCatalog(c.File) {
		if f, err = e.workflowFrom(c.File); err != nil {
			return err
		}
	}
	s, err := e.connect()
	if err != nil {
		return err
	}
	defer s.close()
	if f == nil {
		return c.named(e, s, req)
	}
	r, err := c.start(e, s, f, req)
	if err != nil {
		return err
	}
	return c.show(e, s, r, f.graph, c.Detach)
}

// inCatalog reports whether an argument names a workflow of the catalog: a file that is there is meant
// as one, and so is what looks like one.
func inCatalog(arg string) bool {
	if arg == "-" || strings.ContainsAny(arg, `/\`) || slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(arg)) {
		return false
	}
	_, err := os.Stat(arg)
	return err != nil
}

// named starts a workflow of the catalog and watches it.
func (c *workflowsRunCmd) named(e *env, s *services, req *executorv1.StartRunRequest) error {
	ctx, cancel := context.WithTimeout(e.ctx, e.client.Timeout)
	defer cancel()
	req.Workflow = c.File
	if err := c.attach(e, req); err != nil {
		return err
	}
	e.caution(ctx, s, c.File)
	undo, err := c.book(ctx, s, req, c.File)
	if err != nil {
		return err
	}
	r, err := s.executor.StartRun(ctx, req)
	if err != nil {
		undo(ctx, err)
		return err
	}
	if c.Detach {
		return c.show(e, s, r, nil, true)
	}
	g, err := s.executor.GetRunGraph(ctx, &executorv1.GetRunGraphRequest{RunId: r.GetId()})
	if err != nil {
		return err
	}
	return c.show(e, s, r, g.GetGraph(), false)
}

func (c *workflowsRunCmd) start(e *env, s *services, f *workflowFile, req *executorv1.StartRunRequest) (*executorv1.Run, error) {
	ctx, cancel := context.WithTimeout(e.ctx, e.client.Timeout)
	defer cancel()
	req.Graph = f.graph
	if b := f.definition.Budget; req.Budget == nil && (b.USD != nil || b.Tokens != nil) {
		req.Budget = &executorv1.RunBudget{Tokens: b.Tokens, NanoUsd: b.NanoUSD()}
	}
	faults, err := f.asked(ctx, e, s, inputOf(req))
	if err == nil && len(faults) > 0 {
		err = f.refused(e, faults)
	}
	if err != nil {
		return nil, err
	}
	if err := c.attach(e, req); err != nil {
		return nil, err
	}
	undo, err := c.book(ctx, s, req, f.definition.Name)
	if err != nil {
		return nil, err
	}
	r, err := s.executor.StartRun(ctx, req)
	if err != nil {
		undo(ctx, err)
	}
	return r, err
}
