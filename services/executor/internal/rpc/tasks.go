package rpc

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/catalog"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workflow"
	"github.com/epigraph-run/epigraph/workflow/discover"
)

// Reasons of tasks that cannot be started.
const (
	// ReasonNoWorkflow is the reason when a task names neither a workflow nor requirements.
	ReasonNoWorkflow = "TASK_WITHOUT_WORKFLOW"
	// ReasonNoMatch is the reason when no workflow meets the requirements of a task.
	ReasonNoMatch = "NO_WORKFLOW_MATCHES"
	// ReasonDefinitionInvalid is the reason when the definition that a task brings cannot be run.
	ReasonDefinitionInvalid = "TASK_DEFINITION_INVALID"
)

// Tasks starts the tasks of epics that run by themselves. Server must be set before the engine runs.
type Tasks struct {
	Server  *Server
	client  registryv1.RegistryServiceClient
	catalog *Catalog
}

var _ engine.Tasks = (*Tasks)(nil)

// NewTasks returns a starter that reads tasks from client and finds workflows in a catalog.
func NewTasks(client registryv1.RegistryServiceClient, c *Catalog) *Tasks {
	return &Tasks{client: client, catalog: c}
}

// StartTask implements engine.Tasks.
func (s *Tasks) StartTask(ctx context.Context, o engine.Order) (lasting bool, err error) {
	ctx = grpckit.WithNamespace(ctx, o.Namespace)
	once := journal.Request{Method: "StartTask", ID: o.ID, BodyHash: o.TaskID}
	if id, err := s.Server.engine.Answered(ctx, o.Namespace, once); err != nil || id != "" {
		return false, err
	}
	t, err := s.client.GetTask(ctx, &registryv1.GetTaskRequest{TaskId: o.TaskID})
	if err != nil || t.GetState() != registryv1.TaskState_TASK_STATE_PENDING {
		return false, err // an order that is out of date goes by itself
	}
	e, err := s.client.GetEpic(ctx, &registryv1.GetEpicRequest{EpicId: t.GetEpicId()})
	if err != nil {
		return false, err
	}
	req := &executorv1.StartRunRequest{TaskId: t.GetId(), UserId: e.GetUserId(), RequestId: o.ID, Named: taskInput(t)}
	if t.GetDefinition() != "" {
		req.Graph, req.Budget, err = compiled(t)
	} else {
		req.Workflow, err = s.workflow(ctx, e, t)
	}
	if err != nil {
		return lasts(err), err
	}
	origin, err := s.origin(ctx, o.Namespace, e, t)
	if err != nil {
		return false, err
	}
	_, err = s.Server.startFrom(ctx, req, once, origin)
	return lasts(err), forTask(err, t.GetId())
}

// compiled is the graph of the definition that a task brings, with the caps of its author. The registry has
// compiled it when it was given; a later release may refuse it.
func compiled(t *registryv1.Task) (out *graphv1.Graph, b *executorv1.RunBudget, err error) {
	definition := t.GetDefinition()
	faulty := func(why string) error {
		return errs.New(errs.InvalidArgument, ReasonDefinitionInvalid, "the definition of the task cannot be run: %s", why).
			Hint("`epigraph tasks update " + t.GetId() + " --definition FILE` gives another one, which is checked at once")
	}
	if workflow.IsGraph([]byte(definition)) {
		g, err := graphpb.ReadModel([]byte(definition))
		if err != nil {
			return nil, nil, faulty(errs.From(err).Message)
		}
		out, err = graphpb.ToProto(g)
		return out, nil, err
	}
	d, faults := workflow.Read([]byte(definition))
	if len(faults) > 0 {
		return nil, nil, faulty(faults[0].String())
	}
	g, faults := workflow.Compile(d)
	if len(faults) > 0 {
		return nil, nil, faulty(faults[0].String())
	}
	if money, tokens := d.Budget.NanoUSD(), d.Budget.Tokens; money != nil || tokens != nil {
		b = &executorv1.RunBudget{NanoUsd: money, Tokens: tokens}
	}
	out, err = graphpb.ToProto(g)
	return out, b, err
}

// origin has the chain of triggers go on: the run of a task stands as deep as the run that made the task, or
// its epic. It is nil if no trigger stands before that.
func (s *Tasks) origin(ctx context.Context, namespace string, e *registryv1.Epic, t *registryv1.Task) (*record.Origin, error) {
	var o record.Origin
	for _, labels := range []map[string]string{t.GetLabels(), e.GetLabels()} {
		run := labels[createdByRun]
		if run == "" {
			continue
		}
		depth, err := Triggered{s.Server}.Depth(ctx, namespace, run)
		if err != nil {
			return nil, err
		}
		o.Depth = max(o.Depth, depth)
	}
	if o.Depth == 0 {
		return nil, nil
	}
	return &o, nil
}

// forTask adds what mends the inputs of a task that are not those of its workflow.
func forTask(err error, id string) error {
	if errs.ReasonOf(err) != program.ReasonInputInvalid {
		return err
	}
	e := errs.From(err)
	return e.Hint(e.HintText() + "; `epigraph tasks update " + id + " --input JSON` gives others, then `epigraph tasks transition " + id + " pending` tries it again")
}

// workflow chooses the workflow of a task: the one that it names, else the best that meets its
// requirements, else that of its epic.
func (s *Tasks) workflow(ctx context.Context, e *registryv1.Epic, t *registryv1.Task) (string, error) {
	needs := string(t.GetRequirements().GetJson())
	if t.GetWorkflowSlug() != "" {
		return t.GetWorkflowSlug(), nil
	}
	if needs == "" {
		if e.GetWorkflowSlug() != "" {
			return e.GetWorkflowSlug(), nil
		}
		return "", errs.New(errs.FailedPrecondition, ReasonNoWorkflow, "the task names neither a workflow nor requirements, and its epic no workflow").
			Hint("`epigraph tasks update " + t.GetId() + " --workflow NAME` names one, or `epigraph epics run " + e.GetId() + " --workflow NAME` for all such tasks; then move it to PENDING")
	}
	if s.catalog == nil {
		return "", errs.New(errs.Unavailable, reasonNoCatalog, "this executor reaches no catalog of workflows")
	}
	found, _, err := s.catalog.DiscoverWorkflows(ctx, grpckit.Namespace(ctx), catalog.Query{Requirements: needs, Limit: 1})
	if err != nil {
		return "", err
	}
	if len(found) > 0 && found[0].Score >= discover.ReuseScore {
		return fmt.Sprintf("%s@%d", found[0].Slug, found[0].Version), nil
	}
	best := "there is none in the catalog"
	if len(found) > 0 {
		lacks := strings.Join(found[0].Missing, ", ")
		if lacks == "" {
			lacks = fmt.Sprintf("nothing, but of its runs only %.0f%% have completed", 100*found[0].SuccessRate)
		}
		best = fmt.Sprintf("the best is %s with %.2f, which lacks %s", found[0].Slug, found[0].Score, lacks)
	}
	return "", errs.New(errs.FailedPrecondition, ReasonNoMatch, "no workflow meets the requirements of the task with a score of %.2f: %s", discover.ReuseScore, best).
		Hint("create or fork one, name it with `epigraph tasks update " + t.GetId() + " --workflow NAME`, and move the task to PENDING")
}

// taskInput is what the workflow of a task is told: what the task says, and the fields of its own
// input, which take their place.
func taskInput(t *registryv1.Task) map[string]*graphv1.Payload {
	text := func(s string) *graphv1.Payload {
		raw, err := json.Marshal(s)
		if err != nil {
			raw = []byte(`""`) // texts always marshal
		}
		return &graphv1.Payload{Json: raw}
	}
	in := map[string]*graphv1.Payload{
		"input": text(strings.TrimSpace(t.GetTitle() + "\n\n" + t.GetDescription())), "title": text(t.GetTitle()), "description": text(t.GetDescription()),
		"task_id": text(t.GetId()), "epic_id": text(t.GetEpicId()),
	}
	var own map[string]json.RawMessage
	if json.Unmarshal(t.GetInput().GetJson(), &own) == nil {
		for name, v := range own {
			in[name] = &graphv1.Payload{Json: v}
		}
	}
	return in
}

// lasts reports whether a start would be refused in the same way each time. What the registry says of a
// task or an epic that has changed since the order does not last, and the order goes with that change.
func lasts(err error) bool {
	if err == nil {
		return false
	}
	switch errs.ReasonOf(err) {
	case "EPIC_NOT_ACTIVE", "EPIC_ENDED", "TASK_NOT_CLAIMABLE", "TASK_NOT_FOUND", "EPIC_NOT_FOUND", engine.ReasonNoRegistry, reasonNoCatalog:
		return false
	}
	return errs.Is(err, errs.InvalidArgument) || errs.Is(err, errs.NotFound) || errs.Is(err, errs.FailedPrecondition) || errs.Is(err, errs.AlreadyExists)
}
