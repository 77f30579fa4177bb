package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/view"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry/workflowfiles"
	"github.com/epigraph-run/epigraph/workflow"
)

type workflowsCreateCmd struct {
	File      string `arg:"" help:"The definition, YAML or JSON; - is standard input." default:"-"`
	Slug      string `help:"The slug, if not that of its name." placeholder:"SLUG"`
	As        string `help:"Add a version to this workflow, in place of a new one." placeholder:"NAME"`
	Graph     bool   `help:"The file is a graph, as \"workflows graph --json\" prints it."`
	Activate  bool   `help:"Turn its triggers on, and have them follow the newest version."`
	RequestID string `help:"Make the command repeatable." placeholder:"ID"`
}

// Help gives examples.
func (workflowsCreateCmd) Help() string {
	return `The definition is compiled, and refused with all of its faults. A version never changes: the same text is the same version.

    epigraph workflows create digest.yaml
    epigraph workflows create digest.yaml --as digest
    epigraph workflows create digest.yaml --activate`
}

// Run keeps a definition.
func (c *workflowsCreateCmd) Run(e *env) error {
	if c.As != "" && c.Slug != "" {
		return usage(errs.New(errs.InvalidArgument, "FLAGS_CONTRADICT", "--slug is for a new workflow, and --as names one that is there"))
	}
	text, form := "", registryv1.WorkflowForm_WORKFLOW_FORM_GRAPH
	var err error
	if c.Graph {
		text, err = e.readText(c.File)
	} else {
		var f *workflowFile
		if f, err = e.workflowFrom(c.File); err == nil { // its faults are shown in the text
			text, form = f.text, registryv1.WorkflowForm_WORKFLOW_FORM_DEFINITION
		}
	}
	if err != nil {
		return err
	}
	return e.with(func(ctx context.Context, s *services) error {
		if c.As != "" {
			v, err := s.workflows.CreateWorkflowVersion(ctx, &registryv1.CreateWorkflowVersionRequest{Workflow: c.As, Source: text, Form: form, RequestId: c.RequestID})
			if err != nil {
				return err
			}
			e.missing(ctx, s, v.GetWorkflow(), text, form)
			return e.kept(ctx, s, c.Activate, v, v.GetWorkflow(), v.GetVersion())
		}
		w, err := s.workflows.CreateWorkflow(ctx, &registryv1.CreateWorkflowRequest{Source: text, Form: form, Slug: c.Slug, RequestId: c.RequestID})
		if err != nil {
			return err
		}
		e.missing(ctx, s, w.GetSlug(), text, form)
		return e.kept(ctx, s, c.Activate, w, w.GetSlug(), w.GetLatestVersion())
	})
}

// kept is created, and turns the triggers on if that is asked for.
func (e *env) kept(ctx context.Context, s *services, activate bool, m proto.Message, slug string, version int64) error {
	if !activate || !e.json {
		if err := e.created(m, slug, version); err != nil || !activate {
			return err
		}
		return e.activate(ctx, s, slug)
	}
	a, err := s.triggers.ActivateTriggers(ctx, &executorv1.ActivateTriggersRequest{Workflow: slug})
	if err != nil {
		return errors.Join(e.created(m, slug, version), err)
	}
	var both [2]bytes.Buffer
	if err := errors.Join(printJSON(&both[0], m), printJSON(&both[1], a)); err != nil {
		return err
	}
	return printValue(e.io.Out, map[string]json.RawMessage{"created": both[0].Bytes(), "activation": both[1].Bytes()})
}

// created prints the version and says what can be done with it.
func (e *env) created(m proto.Message, slug string, version int64) error {
	at := fmt.Sprintf("%s@%d", slug, version)
	if err := e.print(m, func() string { return at + "\n" }); err != nil || e.json {
		return err
	}
	e.note("help: `epigraph workflows run %s` runs it, `epigraph workflows alias %s prod %d` gives it a name", at, slug, version)
	return nil
}

type workflowsLsCmd struct {
	page
	State []string `help:"Workflows in any of these states: active, deprecated." placeholder:"STATE"`
	Tags  []string `help:"Workflows with any of these tags." name:"tag" placeholder:"TAG"`

	Exposed bool `help:"Only workflows that are exposed."`
}

// Run lists.
func (c *workflowsLsCmd) Run(e *env) error {
	states, err := enums[registryv1.WorkflowState]("--state", "WORKFLOW_STATE_", registryv1.WorkflowState_value, c.State)
	if err != nil {
		return err
	}
	return e.with(func(ctx context.Context, s *services) error {
		req := &registryv1.ListWorkflowsRequest{PageSize: c.Limit, PageToken: c.Token, States: states, Tags: c.Tags, Exposed: c.Exposed}
		r, err := s.workflows.ListWorkflows(ctx, req)
		for err == nil && len(r.GetWorkflows()) == 0 && r.GetNextPageToken() != "" { // as in epicsLsCmd
			req.PageToken = r.GetNextPageToken()
			r, err = s.workflows.ListWorkflows(ctx, req)
		}
		if err != nil {
			return err
		}
		defer e.more(r.GetNextPageToken())
		return e.print(r, func() string {
			if len(r.GetWorkflows()) == 0 {
				return "no workflows\n"
			}
			var rows [][]string
			for _, w := range r.GetWorkflows() {
				rows = append(rows, []string{
					w.GetSlug(), strconv.FormatInt(w.GetLatestVersion(), 10), view.Word(w.GetState().String(), "WORKFLOW_STATE_"), view.OneLine(w.GetName(), 40),
					aliasesText(w.GetAliases()), successText(w.GetHistory()), view.When(w.GetUpdateTime()), strings.Join(w.GetTags(), ","),
				})
			}
			return view.Table(e.io.style(), []string{"WORKFLOW", "VERSION", "STATE", "NAME", "ALIASES", "SUCCESS", "CHANGED", "TAGS"}, rows)
		})
	})
}

func aliasesText(list []*registryv1.WorkflowAlias) string {
	var out []string
	for _, a := range list {
		var to []string
		for _, v := range a.GetVersions() {
			share := ""
			if len(a.GetVersions()) > 1 {
				share = fmt.Sprintf("=%d", v.GetWeight())
			}
			to = append(to, strconv.FormatInt(v.GetVersion(), 10)+share)
		}
		out = append(out, a.GetName()+":"+strings.Join(to, "/"))
	}
	return strings.Join(out, " ")
}

func successText(h *registryv1.WorkflowHistory) string {
	if h == nil || h.SuccessRate == nil || h.GetCompleted()+h.GetFailed() == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f%% of %d", 100*h.GetSuccessRate(), h.GetCompleted()+h.GetFailed())
}

// successOf is the share of the runs of a match that completed; the rate of one that never ran is assumed.
func successOf(m *registryv1.WorkflowMatch) string {
	if m.GetExecutionCount() == 0 {
		return "not run yet"
	}
	return fmt.Sprintf("%.0f%% of %d", 100*m.GetSuccessRate(), m.GetExecutionCount())
}

type workflowsShowCmd struct {
	Ref string `arg:"" help:"The workflow: NAME, NAME@VERSION or NAME@ALIAS."`
}

// Run shows a workflow, or the text of a version.
func (c *workflowsShowCmd) Run(e *env) error {
	name, version, at := strings.Cut(c.Ref, "@")
	return e.with(func(ctx context.Context, s *services) error {
		if at {
			n, err := strconv.ParseInt(version, 10, 64)
			if err != nil {
				r, err := s.workflows.ResolveWorkflow(ctx, &registryv1.ResolveWorkflowRequest{Ref: c.Ref})
				if err != nil {
					return err
				}
				n = r.GetVersion()
			}
			v, err := s.workflows.GetWorkflowVersion(ctx, &registryv1.GetWorkflowVersionRequest{Workflow: name, Version: n})
			if err != nil {
				return err
			}
			return e.print(v, func() string { return strings.TrimRight(v.GetSource(), "\n") + "\n" })
		}
		w, err := s.workflows.GetWorkflow(ctx, &registryv1.GetWorkflowRequest{Workflow: name})
		if err != nil {
			return err
		}
		if err := e.print(w, func() string { return workflowText(e, w) }); err != nil || e.json {
			return err
		}
		if v, err := s.workflows.GetWorkflowVersion(ctx, &registryv1.GetWorkflowVersionRequest{Workflow: name, Version: w.GetLatestVersion()}); err == nil {
			e.missing(ctx, s, w.GetSlug(), v.GetSource(), v.GetForm())
		}
		e.note("help: `epigraph workflows show %s@%d` prints its text, `epigraph workflows versions %[1]s` lists its versions", w.GetSlug(), w.GetLatestVersion())
		return nil
	})
}

func workflowText(e *env, w *registryv1.Workflow) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s  %s  %s\n", e.io.style().Bold(w.GetSlug()), e.io.style().State(view.Word(w.GetState().String(), "WORKFLOW_STATE_")), view.OneLine(w.GetName(), 0))
	if w.GetDescription() != "" {
		b.WriteString(indent(w.GetDescription()) + "\n")
	}
	line := func(what, text string) {
		if text != "" {
			fmt.Fprintf(&b, "%s: %s\n", what, view.OneLine(text, 200))
		}
	}
	line("deprecated", w.GetDeprecation())
	line("newest version", fmt.Sprintf("%d, %s, %s", w.GetLatestVersion(), view.Plural(int(w.GetSize().GetNodes()), "node"), view.Plural(int(w.GetSize().GetEdges()), "edge")))
	line("exposed", w.GetExposed())
	line("aliases", aliasesText(w.GetAliases()))
	line("tags", strings.Join(w.GetTags(), ", "))
	line("fork of", w.GetForkedFrom())
	h := w.GetHistory()
	line("runs", fmt.Sprintf("%d completed, %d failed, %d canceled; %s tokens, %s", h.GetCompleted(), h.GetFailed(), h.GetCanceled(), view.Count(h.GetTokens()), view.Money(h.GetNanoUsd())))
	line("principal", w.GetPrincipal())
	return b.String()
}

type workflowsVersionsCmd struct {
	page
	Workflow string `arg:"" help:"The workflow."`
}

// Run lists the versions of a workflow.
func (c *workflowsVersionsCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.workflows.ListWorkflowVersions(ctx, &registryv1.ListWorkflowVersionsRequest{Workflow: c.Workflow, PageSize: c.Limit, PageToken: c.Token})
		if err != nil {
			return err
		}
		defer e.more(r.GetNextPageToken())
		return e.print(r, func() string {
			var rows [][]string
			for _, v := range r.GetVersions() {
				rows = append(rows, []string{
					strconv.FormatInt(v.GetVersion(), 10), v.GetHash()[:min(12, len(v.GetHash()))], view.OneLine(v.GetLabel(), 20), strconv.Itoa(int(v.GetSize().GetNodes())),
					successText(v.GetHistory()), view.Money(v.GetHistory().GetNanoUsd()), view.When(v.GetCreateTime()), view.OneLine(v.GetPrincipal(), 30),
				})
			}
			return view.Table(e.io.style(), []string{"VERSION", "HASH", "LABEL", "NODES", "SUCCESS", "COST", "ADDED", "PRINCIPAL"}, rows)
		})
	})
}

type workflowsAliasCmd struct {
	Workflow string   `arg:"" help:"The workflow."`
	Alias    string   `arg:"" help:"The alias."`
	Versions []string `arg:"" optional:"" help:"Versions that it stands for, with shares: 3, or 3=90 4=10."`
	Remove   bool     `help:"Remove the alias."`
}

// Help gives examples.
func (workflowsAliasCmd) Help() string {
	return `    epigraph workflows alias digest prod 3
    epigraph workflows alias digest prod 3=90 4=10
    epigraph workflows alias digest prod --remove`
}

// Run sets or removes an alias.
func (c *workflowsAliasCmd) Run(e *env) error {
	if c.Remove != (len(c.Versions) == 0) {
		return usage(errs.New(errs.InvalidArgument, "FLAGS_CONTRADICT", "give the versions that the alias stands for, or --remove"))
	}
	req := &registryv1.SetWorkflowAliasRequest{Workflow: c.Workflow, Alias: c.Alias}
	for _, text := range c.Versions {
		version, weight, weighed := strings.Cut(text, "=")
		n, err := strconv.ParseInt(version, 10, 64)
		w := int64(1)
		if err == nil && weighed {
			w, err = strconv.ParseInt(weight, 10, 32)
		}
		if err != nil {
			return usage(errs.New(errs.InvalidArgument, "VERSION_INVALID", "%q is no version: write 3, or 3=90 with a share", text))
		}
		req.Versions = append(req.Versions, &registryv1.WorkflowWeight{Version: n, Weight: int32(w)})
	}
	return e.with(func(ctx context.Context, s *services) error {
		var w *registryv1.Workflow
		var err error
		if c.Remove {
			w, err = s.workflows.DeleteWorkflowAlias(ctx, &registryv1.DeleteWorkflowAliasRequest{Workflow: c.Workflow, Alias: c.Alias})
		} else {
			w, err = s.workflows.SetWorkflowAlias(ctx, req)
		}
		if err != nil {
			return err
		}
		return e.print(w, func() string { return cmp.Or(aliasesText(w.GetAliases()), "no aliases") + "\n" })
	})
}

type workflowsForkCmd struct {
	File      string `arg:"" help:"The document: based_on, name, patches; - is standard input." default:"-"`
	Slug      string `help:"The slug, if not that of its name." placeholder:"SLUG"`
	RequestID string `help:"Make the command repeatable." placeholder:"ID"`
}

// Run makes a fork.
func (c *workflowsForkCmd) Run(e *env) error {
	text, err := e.readText(c.File)
	if err != nil {
		return err
	}
	return e.with(func(ctx context.Context, s *services) error {
		w, err := s.workflows.ForkWorkflow(ctx, &registryv1.ForkWorkflowRequest{Source: text, Slug: c.Slug, RequestId: c.RequestID})
		if err != nil {
			return err
		}
		return e.created(w, w.GetSlug(), w.GetLatestVersion())
	})
}

type workflowsDiffCmd struct {
	From string `arg:"" help:"The one: NAME, NAME@VERSION or NAME@ALIAS, or a file."`
	To   string `arg:"" help:"The other."`
}

// Help gives examples.
func (workflowsDiffCmd) Help() string {
	return `    epigraph workflows diff digest@1 digest@2
    epigraph workflows diff digest@prod digest.yaml`
}

// local tells what differs where one of both is a file.
func (c *workflowsDiffCmd) local(e *env) error {
	var both [2]*workflowFile
	for i, ref := range []string{c.From, c.To} {
		f, err := e.workflowOf(ref)
		switch {
		case err != nil:
			return err
		case f.isGraph:
			return errs.New(errs.InvalidArgument, "WORKFLOW_IS_GRAPH", "%s is a graph, which has no definition to compare", f.name)
		}
		both[i] = f
	}
	changes := workflow.Diff(both[0].definition, both[1].definition)
	if e.json {
		return printValue(e.io.Out, map[string]any{"from": both[0].name, "to": both[1].name, "changes": append(workflow.Changes{}, changes...)})
	}
	if len(changes) == 0 {
		return e.say(fmt.Sprintf("%s and %s say the same\n", both[0].name, both[1].name))
	}
	return e.say(strings.TrimRight(changes.String(), "\n") + "\n")
}

// Run tells what differs.
func (c *workflowsDiffCmd) Run(e *env) error {
	if !inCatalog(c.From) || !inCatalog(c.To) {
		return c.local(e)
	}
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.workflows.DiffWorkflowVersions(ctx, &registryv1.DiffWorkflowVersionsRequest{From: c.From, To: c.To})
		if err != nil {
			return err
		}
		return e.print(r, func() string {
			if len(r.GetChanges()) == 0 {
				return fmt.Sprintf("%s and %s say the same\n", r.GetFrom(), r.GetTo())
			}
			return strings.TrimRight(r.GetText(), "\n") + "\n"
		})
	})
}

type workflowsDeprecateCmd struct {
	Workflow string `arg:"" help:"The workflow."`
	Message  string `help:"Why, and what to use instead." short:"m" placeholder:"TEXT"`
	Undo     bool   `help:"Take the deprecation back."`
}

// Run deprecates.
func (c *workflowsDeprecateCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		w, err := s.workflows.DeprecateWorkflow(ctx, &registryv1.DeprecateWorkflowRequest{Workflow: c.Workflow, Message: c.Message, Undo: c.Undo})
		if err != nil {
			return err
		}
		return e.print(w, func() string { return view.Word(w.GetState().String(), "WORKFLOW_STATE_") + "\n" })
	})
}

type workflowsExposeCmd struct {
	Workflow string `arg:"" help:"The workflow: NAME, whose newest version clients run, NAME@ALIAS or NAME@VERSION."`
	Undo     bool   `help:"Take the exposure back."`
}

// Run exposes.
func (c *workflowsExposeCmd) Run(e *env) error {
	name, version, _ := strings.Cut(c.Workflow, "@")
	return e.with(func(ctx context.Context, s *services) error {
		w, err := s.workflows.ExposeWorkflow(ctx, &registryv1.ExposeWorkflowRequest{Workflow: name, Version: version, Undo: c.Undo})
		if err != nil {
			return err
		}
		return e.print(w, func() string {
			if w.GetExposed() == "" {
				return w.GetSlug() + " is not exposed\n"
			}
			return fmt.Sprintf("%s is exposed: %s\n", w.GetSlug(), w.GetExposed())
		})
	})
}

type workflowsDeleteCmd struct {
	Workflow string `arg:"" help:"The workflow."`
}

// Run deletes.
func (c *workflowsDeleteCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.workflows.DeleteWorkflow(ctx, &registryv1.DeleteWorkflowRequest{Workflow: c.Workflow})
		if err != nil {
			return err
		}
		return e.print(r, func() string { return "deleted " + c.Workflow + "\n" })
	})
}

type workflowsDiscoverCmd struct {
	Requirements string   `help:"What is needed, as JSON: triggers, node_types, tools, tags, description, model_capability." placeholder:"JSON"`
	Query        string   `help:"Words in name, description or tags." short:"q"`
	Limit        int32    `help:"Show this many." default:"5" short:"l"`
	Exclude      []string `help:"Workflow to leave out." placeholder:"NAME"`
}

// Help gives an example.
func (workflowsDiscoverCmd) Help() string {
	return `HAS, MISSING and EXTRA are what a workflow has of what is needed, what it lacks, and what it has besides; COST is that of all its runs. --json tells them by their kinds.

    epigraph workflows discover --requirements '{"tools": ["http"], "node_types": ["agent"]}'
    epigraph workflows discover --query 'refund letter'`
}

// Run finds workflows.
func (c *workflowsDiscoverCmd) Run(e *env) error {
	return e.with(func(ctx context.Context, s *services) error {
		r, err := s.workflows.DiscoverWorkflows(ctx, &registryv1.DiscoverWorkflowsRequest{RequirementsJson: c.Requirements, Query: c.Query, Limit: c.Limit, Exclude: c.Exclude})
		if err != nil {
			return err
		}
		return e.print(r, func() string {
			if len(r.GetMatches()) == 0 {
				return fmt.Sprintf("nothing found among %s\n", view.Plural(int(r.GetTotalSearched()), "workflow"))
			}
			var rows [][]string
			for _, m := range r.GetMatches() {
				rows = append(rows, []string{
					fmt.Sprintf("%s@%d", m.GetSlug(), m.GetVersion()), fmt.Sprintf("%.4f", m.GetMatchScore()), strings.ReplaceAll(m.GetRecommendation(), "_", " "),
					namesOf(m.GetHas()), namesOf(m.GetMissing()), namesOf(m.GetExtra()),
					successOf(m), view.Money(m.GetNanoUsd()), view.OneLine(m.GetName(), 40),
				})
			}
			return view.Table(e.io.style(), []string{"WORKFLOW", "SCORE", "ADVICE", "HAS", "MISSING", "EXTRA", "SUCCESS", "COST", "NAME"}, rows)
		})
	})
}

// namesOf are names of what a workflow has in a table, as many as are useful there. --json has all.
func namesOf(names []string) string { return view.OneLine(strings.Join(names, ","), 60) }

type workflowsImportDirCmd struct {
	Dir string `arg:"" help:"The folder, with workflows in files SLUG.yaml or SLUG@VERSION.yaml (or .json)." type:"existingdir"`
}

// Help says what becomes of the files.
func (workflowsImportDirCmd) Help() string {
	return `Each file SLUG@VERSION.yaml becomes that version of the workflow, SLUG.yaml the next one if its text is new. JSON files may hold graphs. Those of another namespace lie in a folder of its name. What is there already is left as it is, so that you may import again. Files that cannot be a workflow are told and left out, and the command fails at its end.

    epigraph workflows import-dir workflows/

A registry takes a folder by itself at its start: EPIGRAPH_REGISTRY_WORKFLOWS=workflows/`
}

// Run imports workflows in files.
func (c *workflowsImportDirCmd) Run(e *env) (err error) {
	dir, err := workflowfiles.Open(c.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	files, faults, err := dir.Files()
	if err != nil {
		return err
	}
	for _, fault := range faults {
		e.note("warning: %v", fault)
	}
	refused := len(faults) > 0
	err = e.with(func(ctx context.Context, s *services) error {
		for _, f := range files {
			n, err := keepFile(ctx, s, dir, f)
			switch {
			case err == nil:
				err = e.say(fmt.Sprintf("%s@%d\n", f.Slug, n))
			case errs.Is(err, errs.Unavailable), ctx.Err() != nil:
			default:
				e.note("warning: %s is left out: %v", f.Path, err)
				refused, err = true, nil
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && refused {
		return exit(exitFailed)
	}
	return err
}

// keepFile puts a file into the catalog, and returns the number of its version.
func keepFile(ctx context.Context, s *services, dir *workflowfiles.Folder, f workflowfiles.File) (int64, error) {
	text, err := dir.Read(f)
	if err != nil {
		return 0, err
	}
	if f.Namespace != "" {
		ctx = grpckit.WithNamespace(ctx, f.Namespace)
	}
	return workflowfiles.Keep(ctx, workflowfiles.Client{WorkflowServiceClient: s.workflows}, f, text)
}
