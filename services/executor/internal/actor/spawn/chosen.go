package spawn

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/catalog"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/epics"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/wait"
	"github.com/epigraph-run/epigraph/workgraph"
)

// ChosenName is the actor that runs workflows which a model chooses.
const ChosenName = "spawn_and_await"

// Bounds of one call.
const (
	// maxAsked is how many runs one call may ask for, and maxAllowed how many entries the list of those
	// allowed may have.
	maxAsked, maxAllowed = 50, 100
	// maxName bounds the name of a workflow in bytes, and maxTaskID the id of a task.
	maxName, maxTaskID = 256, 64
	// maxTasks bounds a list that is given as a text, in bytes.
	maxTasks = 1 << 20
	// maxDelegated is how many runs that were chosen so may stand below each other.
	maxDelegated = 3
	// defaultTimeout is how long a call waits that says nothing else.
	defaultTimeout = workgraph.Duration(10 * time.Minute)
)

// Workflows finds workflows of a namespace by reference.
type Workflows interface {
	// Workflow is the version that a reference stands for, as workflow/SLUG@VERSION, and its graph.
	Workflow(ctx context.Context, namespace, ref, key string) (string, *workgraph.Graph, error)
}

const askedProperties = `
    "workflow_slug": {"type": "string", "maxLength": 256, "description": "The workflow to run, or \"self\" for the one within which the call is made."},
    "input_data": {"type": ["object", "string"], "description": "Its inputs by name, as an object or its JSON as a text."},
    "input_text": {"type": "string", "description": "Its input, if it is one text: its only input, or the one that is called input_text."},
    "task_id": {"type": "string", "maxLength": 64, "description": "The task, tk_…, that the run works on: it starts the task, and its end ends it."}`

const chosenSchema = `{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "workflows": {"type": "array", "minItems": 1, "maxItems": 100, "items": {"type": "string", "maxLength": 256}, "description": "The workflows that may be run: slugs, SLUG@VERSION, or beginnings with a * behind them."},
    "tasks": {"type": ["array", "string"], "maxItems": 50, "description": "Several runs at once, in the order of the results: a list, or its JSON as a text.",
      "items": {"type": "object", "additionalProperties": false, "required": ["workflow_slug"], "properties": {` + askedProperties + `}}},` + askedProperties + `,
    "timeout": {"type": "string", "description": "How long to wait at most, like 1h; 10m when absent. Runs that still go on then are canceled."}
  }
}`

// Chosen describes the actor that runs workflows which the caller chooses from a list of those allowed, and
// waits for them. Without workflows, which is nil, its calls fail. tasks says whose a task is.
func Chosen(workflows Workflows, tasks epics.Owners) actor.Spec {
	unavailable := ""
	if workflows == nil {
		unavailable = "no registry is configured: upstream.registry"
	}
	return actor.Spec{
		Name: ChosenName, Version: "1", Effect: workgraph.Idempotent, SeesPlace: true, NamedOnly: true, Schema: chosenSchema, WaitsFor: []string{"timeout"}, Unavailable: unavailable,
		Uncached:    func(*workgraph.Node) string { return "each call makes runs" },
		Description: "Runs a workflow, or several at once as tasks, and waits. One run answers its result; several answer the list of their results in the order asked, in which a run that failed has an _error.",
		Actor: workgraph.ActorFunc(func(ctx context.Context, call *workgraph.Call) (workgraph.Outcome, error) {
			return chosen(ctx, workflows, tasks, call)
		}),
	}
}

func chosen(ctx context.Context, workflows Workflows, tasks epics.Owners, call *workgraph.Call) (workgraph.Outcome, error) {
	if workflows == nil {
		return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, "NO_CATALOG", "this executor reaches no registry, so it knows no workflows by name")
	}
	var a struct {
		Allowed []string        `json:"workflows"`
		Tasks   json.RawMessage `json:"tasks"`
		Slug    string          `json:"workflow_slug"`
		Data    json.RawMessage `json:"input_data"`
		Text    *string         `json:"input_text"`
		TaskID  string          `json:"task_id"`
		Timeout string          `json:"timeout"`
	}
	if err := actor.Decode(call.Named, &a); err != nil {
		return workgraph.Outcome{}, err
	}
	// What may be run stands in the node itself: whatever travels with the run may come from a model.
	a.Allowed = nil
	if err := json.Unmarshal(orNull(call.Own["workflows"]), &a.Allowed); err != nil || len(a.Allowed) == 0 || len(a.Allowed) > maxAllowed {
		return workgraph.Outcome{}, actor.BadArguments("workflows is missing: list the slugs of those that may be run, such as [\"digest\", \"mail-*\"]")
	}
	timeout, err := wait.Timeout(a.Timeout)
	if err != nil {
		return catalog.Refuse("%v", err)
	}
	if timeout == 0 {
		timeout = defaultTimeout
	}
	if actor.DelegatedOf(ctx) >= maxDelegated {
		return catalog.Refuse("Spawn depth limit reached (%d). Cannot spawn further child workflows: do the work here.", maxDelegated)
	}
	one := asked{a.Slug, a.Data, a.Text, a.TaskID}
	list, single, why := one.orList(a.Tasks)
	if why != "" {
		return catalog.Refuse("%s", why)
	}
	children := &workgraph.Children{Timeout: timeout, AsResult: single, Bare: !single}
	seen := map[string]bool{}
	var payer *workgraph.Payer
	for i := range list {
		child, why, err := list[i].child(ctx, workflows, a.Allowed)
		if err != nil {
			return catalog.Answer(ctx, err, "")
		}
		if why == "" && child.TaskID != "" && seen[child.TaskID] {
			why = fmt.Sprintf("task %s is asked for twice: one run works on a task", child.TaskID)
		}
		if why != "" {
			if !single {
				why = fmt.Sprintf("Task %d: %s", i, why)
			}
			return catalog.Refuse("%s", why)
		}
		if err := mine(ctx, tasks, call, child.TaskID); err != nil {
			return catalog.Answer(ctx, err, "")
		}
		if payer == nil {
			if payer, err = steered(ctx, tasks, call, child.TaskID); err != nil {
				return catalog.Answer(ctx, err, "")
			}
		}
		seen[child.TaskID] = true
		children.Runs = append(children.Runs, child)
	}
	return workgraph.Outcome{Wait: &workgraph.Wait{Children: children}, Payer: payer}, nil
}

// steered is the epic of a task that a run without a task has others work on, if the epic pays for the run
// and the task waits for a run. The start of the run tells of a task that is not found or cannot be taken.
func steered(ctx context.Context, tasks epics.Owners, call *workgraph.Call, id string) (*workgraph.Payer, error) {
	if id == "" || tasks == nil || call.TaskID != "" {
		return nil, nil
	}
	t, err := tasks.Task(ctx, actor.NamespaceOf(ctx), id)
	if errs.Is(err, errs.NotFound) || err == nil && t.Status != "pending" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return epics.Payer(ctx, tasks, call, workgraph.Payer{EpicID: t.EpicID})
}

// mine refuses a task of another user: a run that works on it reads and writes the memory of its epic.
func mine(ctx context.Context, tasks epics.Owners, call *workgraph.Call, id string) error {
	if id == "" || tasks == nil {
		return nil
	}
	return epics.CheckTask(ctx, tasks, actor.NamespaceOf(ctx), call.UserID, id)
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

// child is the run, or why there is none. An error is one of the registry.
func (a *asked) child(ctx context.Context, workflows Workflows, allowed []string) (c workgraph.Child, why string, err error) {
	slug := strings.TrimPrefix(strings.TrimSpace(a.Slug), "workflow/")
	switch {
	case slug == "":
		return c, "missing required field 'workflow_slug'", nil
	case len(slug) > maxName:
		return c, fmt.Sprintf("workflow_slug has %d bytes, the limit is %d", len(slug), maxName), nil
	case a.TaskID != "" && (len(a.TaskID) > maxTaskID || !strings.HasPrefix(a.TaskID, "tk_")):
		return c, fmt.Sprintf("task_id %q is no id of a task: it begins with tk_", errs.Clip(a.TaskID, maxTaskID)), nil
	case slug == workgraph.RefSelf:
		if slug = actor.WorkflowOf(ctx); slug == "" {
			return c, "this is not done within a workflow of the catalog, so there is no \"self\": name a workflow", nil
		}
		if slices.Contains(allowed, workgraph.RefSelf) {
			allowed = []string{slug}
		}
	}
	name, ok := allows(allowed, slug)
	if !ok {
		return c, fmt.Sprintf("workflow %q may not be run here; those that may: %s", errs.Clip(slug, 100), errs.Clip(strings.Join(allowed, ", "), 1000)), nil
	}
	ref, graph, err := workflows.Workflow(ctx, actor.NamespaceOf(ctx), "workflow/"+name, "")
	if err != nil {
		return c, "", err
	}
	data, why := a.inputs()
	if why != "" {
		return c, why, nil
	}
	c = workgraph.Child{Ref: ref, TaskID: a.TaskID, Input: workgraph.Input{Named: data}, Delegated: true}
	if a.Text != nil {
		if c.Input, why = texted(c.Input, graph, *a.Text); why != "" {
			return c, why, nil
		}
	}
	return c, "", nil
}

// texted is the input with a text: as the only input of the workflow, or else as the input input_text.
func texted(in workgraph.Input, graph *workgraph.Graph, text string) (workgraph.Input, string) {
	raw, err := json.Marshal(text)
	if err != nil {
		return in, "input_text is no text"
	}
	names := inputsOf(graph)
	name := "input_text"
	switch {
	case len(names) == 1:
		name = names[0]
	case len(names) > 1 && !slices.Contains(names, name):
		return in, "give input_data: the workflow has the inputs " + errs.Clip(strings.Join(names, ", "), 500)
	}
	if _, twice := in.Named[name]; twice {
		return in, "input " + name + " is given twice: by input_data and by input_text"
	}
	named := map[string]json.RawMessage{name: raw}
	for k, v := range in.Named {
		named[k] = v
	}
	in.Named = named
	return in, ""
}

// inputsOf are the names of the inputs that a workflow of the catalog declares: those that its first node
// checks.
func inputsOf(g *workgraph.Graph) []string {
	for i := range g.Nodes {
		if n := &g.Nodes[i]; n.ID == "inputs" && n.Check != nil {
			var schema struct {
				Properties map[string]json.RawMessage `json:"properties"`
			}
			if json.Unmarshal(n.Check.Schema, &schema) != nil {
				return nil
			}
			return slices.Sorted(maps.Keys(schema.Properties))
		}
	}
	return nil
}

// allows reports whether the list has the slug, and what is to be run: an entry with a version fixes it.
func allows(list []string, slug string) (name string, ok bool) {
	base, version, _ := strings.Cut(slug, "@")
	for _, entry := range list {
		entry = strings.TrimPrefix(strings.TrimSpace(entry), "workflow/")
		if start, is := strings.CutSuffix(entry, "*"); is {
			if strings.HasPrefix(base, start) {
				return slug, true
			}
			continue
		}
		fixed, at, has := strings.Cut(entry, "@")
		if fixed == base && (!has || version == "" || version == at) {
			if has {
				return entry, true
			}
			return slug, true
		}
	}
	return "", false
}
