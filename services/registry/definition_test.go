package registry_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

const (
	ownDefinition = "name: Own\nsteps:\n  - {id: say, type: transform, template: hello}\n"
	letterV1      = "name: Letter\nsteps:\n  - {id: write, type: agent, prompt: Write a letter.}\n"
	letterFork    = "based_on: letter\nname: Short letter\npatches:\n  - {action: update_prompt, step_id: write, prompt: Write two lines.}\n"
)

// sources has the clients of the tests of what a task's workflow comes from, and an epic.
type sources struct {
	registryv1.RegistryServiceClient
	workflows registryv1.WorkflowServiceClient
	epic      string
}

func (s sources) create(t *testing.T, task *registryv1.Task, id string) (*registryv1.Task, error) {
	task.EpicId, task.Title = s.epic, "work"
	return s.CreateTask(t.Context(), &registryv1.CreateTaskRequest{Task: task, RequestId: id})
}

func (s sources) made(t *testing.T, task *registryv1.Task) *registryv1.Task {
	t.Helper()
	out, err := s.create(t, task, "")
	require.NoError(t, err)
	return out
}

// TestTaskSources gives tasks workflows in all the ways there are.
func TestTaskSources(t *testing.T) {
	t.Parallel()
	for name, config := range onBothStores() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dial, _ := serveConn(t, config(t), grpckit.AuthConfig{}, nil)
			conn := dial("")
			s := sources{RegistryServiceClient: registryv1.NewRegistryServiceClient(conn), workflows: registryv1.NewWorkflowServiceClient(conn)}
			_, err := s.workflows.CreateWorkflow(t.Context(), &registryv1.CreateWorkflowRequest{Slug: "letter", Source: letterV1})
			require.NoError(t, err)
			e, err := s.CreateEpic(t.Context(), &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "goal"}})
			require.NoError(t, err)
			s.epic = e.GetId()
			t.Run("Unspecified/IsWorkedOut", func(t *testing.T) { sourcesWorkedOut(t, s) })
			t.Run("Refused/ByName", func(t *testing.T) { sourcesRefused(t, s) })
			t.Run("Template/IsApplied", func(t *testing.T) { sourceTemplate(t, s) })
			t.Run("Update/OneTakesThePlaceOfTheOther", func(t *testing.T) { sourcesUpdated(t, s) })
			t.Run("List/LeavesTheDefinitionOut", func(t *testing.T) {
				made := s.made(t, &registryv1.Task{Definition: ownDefinition})
				r, err := s.ListTasks(t.Context(), &registryv1.ListTasksRequest{EpicId: s.epic, PageSize: 1000})
				require.NoError(t, err)
				found := false
				for _, task := range r.GetTasks() {
					require.Empty(t, task.GetDefinition())
					found = found || task.GetId() == made.GetId()
				}
				require.True(t, found)
				got, err := s.GetTask(t.Context(), &registryv1.GetTaskRequest{TaskId: made.GetId()})
				require.NoError(t, err)
				require.Equal(t, ownDefinition, got.GetDefinition())
			})
		})
	}
}

func sourcesWorkedOut(t *testing.T, s sources) {
	for want, task := range map[registryv1.WorkflowSource]*registryv1.Task{
		registryv1.WorkflowSource_WORKFLOW_SOURCE_EXISTING: {WorkflowSlug: "letter"},
		registryv1.WorkflowSource_WORKFLOW_SOURCE_INLINE:   {Definition: ownDefinition},
		registryv1.WorkflowSource_WORKFLOW_SOURCE_TEMPLATE: {Definition: letterFork},
		registryv1.WorkflowSource_WORKFLOW_SOURCE_CREATED:  {WorkflowSlug: "letter", WorkflowSource: registryv1.WorkflowSource_WORKFLOW_SOURCE_CREATED},
	} {
		require.Equal(t, want, s.made(t, task).GetWorkflowSource())
	}
	require.Equal(t, registryv1.WorkflowSource_WORKFLOW_SOURCE_INLINE, s.made(t, &registryv1.Task{}).GetWorkflowSource())
	graph := s.made(t, &registryv1.Task{Definition: `{"nodes": [{"id": "a", "actor": "cel"}]}`})
	require.Equal(t, registryv1.WorkflowSource_WORKFLOW_SOURCE_INLINE, graph.GetWorkflowSource())
}

func sourcesRefused(t *testing.T, s sources) {
	const mismatch = "WORKFLOW_SOURCE_MISMATCH"
	for name, c := range map[string]struct {
		task   *registryv1.Task
		reason string
	}{
		"InlineThatNamesOne":     {&registryv1.Task{WorkflowSlug: "letter", WorkflowSource: registryv1.WorkflowSource_WORKFLOW_SOURCE_INLINE}, mismatch},
		"ExistingThatNamesNone":  {&registryv1.Task{WorkflowSource: registryv1.WorkflowSource_WORKFLOW_SOURCE_EXISTING}, mismatch},
		"CreatedWithADefinition": {&registryv1.Task{Definition: ownDefinition, WorkflowSource: registryv1.WorkflowSource_WORKFLOW_SOURCE_CREATED}, mismatch},
		"TemplateWithoutPatches": {&registryv1.Task{WorkflowSlug: "letter", WorkflowSource: registryv1.WorkflowSource_WORKFLOW_SOURCE_TEMPLATE}, mismatch},
		"TemplateOfItsOwn":       {&registryv1.Task{Definition: ownDefinition, WorkflowSource: registryv1.WorkflowSource_WORKFLOW_SOURCE_TEMPLATE}, mismatch},
		"InlineOfAnother":        {&registryv1.Task{Definition: letterFork, WorkflowSource: registryv1.WorkflowSource_WORKFLOW_SOURCE_INLINE}, mismatch},
		"Both":                   {&registryv1.Task{WorkflowSlug: "letter", Definition: ownDefinition}, mismatch},
		"Blank":                  {&registryv1.Task{Definition: " \n"}, "WORKFLOW_INVALID"},
		"Faulty":                 {&registryv1.Task{Definition: "name: x\nsteps:\n  - {id: a, type: transform, template: \"{{ gone }}\"}\n"}, "WORKFLOW_INVALID"},
		"GraphWithADanglingEdge": {&registryv1.Task{Definition: `{"nodes": [{"id": "a", "actor": "cel"}], "edges": [{"from": "a", "to": "b"}]}`}, "WORKFLOW_INVALID"},
		"PatchOfAStepThatIsNone": {&registryv1.Task{Definition: strings.Replace(letterFork, "step_id: write", "step_id: gone", 1)}, "WORKFLOW_INVALID"},
		"TooLarge":               {&registryv1.Task{Definition: ownDefinition + strings.Repeat("#", 64<<10)}, "REQUEST_INVALID"},
	} {
		_, err := s.create(t, c.task, "")
		requireError(t, err, errs.InvalidArgument, c.reason)
		require.NotEmpty(t, errs.From(err).Violations, name)
	}
	_, err := s.create(t, &registryv1.Task{Definition: strings.Replace(letterFork, "letter", "nowhere", 1)}, "")
	requireError(t, err, errs.NotFound, "WORKFLOW_NOT_FOUND")
}

// sourceTemplate has a task keep what came of the patches, whatever becomes of the workflow that they
// were for.
func sourceTemplate(t *testing.T, s sources) {
	made, err := s.create(t, &registryv1.Task{Definition: letterFork}, "once")
	require.NoError(t, err)
	require.Equal(t, "letter@1", made.GetWorkflowSlug())
	require.Contains(t, made.GetDefinition(), "Write two lines.")
	require.NotContains(t, made.GetDefinition(), "based_on")
	_, err = s.workflows.CreateWorkflowVersion(t.Context(), &registryv1.CreateWorkflowVersionRequest{Workflow: "letter", Source: strings.Replace(letterV1, "id: write", "id: other", 1)})
	require.NoError(t, err)
	again, err := s.create(t, &registryv1.Task{Definition: letterFork}, "once")
	require.NoError(t, err, "a repeated request is answered, although its patches fit no more")
	require.Equal(t, made.GetId(), again.GetId())
	_, err = s.create(t, &registryv1.Task{Definition: letterFork}, "twice")
	requireError(t, err, errs.InvalidArgument, "WORKFLOW_INVALID")
	pinned := s.made(t, &registryv1.Task{Definition: strings.Replace(letterFork, "based_on: letter", "based_on: letter@1", 1)})
	require.Equal(t, made.GetDefinition(), pinned.GetDefinition())
}

func sourcesUpdated(t *testing.T, s sources) {
	task := s.made(t, &registryv1.Task{WorkflowSlug: "letter@1"})
	update := func(in *registryv1.Task, paths ...string) *registryv1.Task {
		t.Helper()
		in.Id = task.GetId()
		out, err := s.UpdateTask(t.Context(), &registryv1.UpdateTaskRequest{Task: in, UpdateMask: mask(paths...)})
		require.NoError(t, err)
		return out
	}
	for _, c := range []struct {
		in         *registryv1.Task
		field      string
		slug, text string
		source     registryv1.WorkflowSource
	}{
		{&registryv1.Task{Definition: ownDefinition}, "definition", "", ownDefinition, registryv1.WorkflowSource_WORKFLOW_SOURCE_INLINE},
		{&registryv1.Task{WorkflowSlug: "letter"}, "workflow_slug", "letter", "", registryv1.WorkflowSource_WORKFLOW_SOURCE_EXISTING},
		{&registryv1.Task{WorkflowSlug: ""}, "workflow_slug", "", "", registryv1.WorkflowSource_WORKFLOW_SOURCE_INLINE},
		{&registryv1.Task{Definition: ownDefinition}, "definition", "", ownDefinition, registryv1.WorkflowSource_WORKFLOW_SOURCE_INLINE},
		{&registryv1.Task{Title: "else"}, "title", "", ownDefinition, registryv1.WorkflowSource_WORKFLOW_SOURCE_INLINE},
		{&registryv1.Task{Definition: ""}, "definition", "", "", registryv1.WorkflowSource_WORKFLOW_SOURCE_INLINE},
	} {
		got := update(c.in, c.field)
		require.Equal(t, []any{c.slug, c.text, c.source}, []any{got.GetWorkflowSlug(), got.GetDefinition(), got.GetWorkflowSource()}, c.field)
	}
	_, err := s.UpdateTask(t.Context(), &registryv1.UpdateTaskRequest{Task: &registryv1.Task{Id: task.GetId(), WorkflowSource: registryv1.WorkflowSource_WORKFLOW_SOURCE_CREATED}, UpdateMask: mask("workflow_source")})
	requireError(t, err, errs.InvalidArgument, "WORKFLOW_SOURCE_MISMATCH")
}
