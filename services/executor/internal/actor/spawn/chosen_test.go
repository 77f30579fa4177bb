package spawn_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/actortest"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/epics"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/spawn"
	"github.com/epigraph-run/epigraph/workgraph"
)

// library has the newest version 3 of every workflow but those whose name begins with "no", with inputs by
// the letters behind a dash in their names.
type library struct{ err error }

func (l library) Workflow(_ context.Context, _, ref, _ string) (string, *workgraph.Graph, error) {
	slug := strings.TrimPrefix(ref, "workflow/")
	if l.err != nil {
		return "", nil, l.err
	}
	if strings.HasPrefix(slug, "no") {
		return "", nil, errs.New(errs.NotFound, "WORKFLOW_NOT_FOUND", "there is no workflow %q", slug)
	}
	n := workgraph.Node{ID: "inputs"}
	if _, names, has := strings.Cut(slug, "-"); has {
		properties := map[string]any{}
		for _, name := range strings.Split(names, "-") {
			properties[name] = map[string]any{}
		}
		raw, err := json.Marshal(map[string]any{"properties": properties})
		if err != nil {
			return "", nil, err
		}
		n.Check = &workgraph.Check{Schema: raw}
	}
	if !strings.Contains(slug, "@") {
		ref += "@3"
	}
	return ref, &workgraph.Graph{Nodes: []workgraph.Node{n}}, nil
}

// owners has tasks with the names of their users behind tk_.
type owners struct{}

func (owners) Task(_ context.Context, _, id string) (epics.Task, error) {
	return epics.Task{ID: id, EpicID: "ep_" + strings.TrimPrefix(id, "tk_")}, nil
}

func (owners) Epic(_ context.Context, _, id string) (epics.Epic, error) {
	user := strings.TrimPrefix(id, "ep_")
	if user == "nobody" {
		user = ""
	}
	return epics.Epic{ID: id, User: user}, nil
}

func TestTaskOfAnotherUser(t *testing.T) {
	t.Parallel()
	ada := func(s *workgraph.Start) { s.UserID = "ada" }
	args := func(task string) string {
		return `{"workflows": ["digest"], "workflow_slug": "digest", "task_id": "` + task + `"}`
	}
	chosen := spawn.Chosen(library{}, owners{})
	t.Run("IsRefusedByAnAnswer", func(t *testing.T) {
		t.Parallel()
		got := actortest.Value(t, chosen, args("tk_bob"), ada)
		require.Contains(t, got, `"reason":"EPIC_OF_ANOTHER_USER"`)
		require.Contains(t, got, "epic_create makes one")
	})
	t.Run("OwnAndThatOfNobodyAreTaken", func(t *testing.T) {
		t.Parallel()
		for _, task := range []string{"tk_ada", "tk_nobody"} {
			out, err := actortest.Call(t, chosen, args(task), ada)
			require.NoError(t, err)
			require.NotNil(t, out.Wait, "%s: %s", task, out.Values)
		}
	})
	t.Run("RunWithoutUserTakesAny", func(t *testing.T) {
		t.Parallel()
		out, err := actortest.Call(t, chosen, args("tk_bob"))
		require.NoError(t, err)
		require.NotNil(t, out.Wait, "%s", out.Values)
	})
	t.Run("SpawnFails", func(t *testing.T) {
		t.Parallel()
		require.Contains(t, actortest.Fails(t, spawn.Spec(owners{}), `{"ref": "self", "task_id": "tk_bob"}`, ada).Message, "not one of the user of this run")
	})
}

func TestPayer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		task  string
		epic  epics.Epic
		state string
		own   string
		want  *workgraph.Payer
	}{
		"TheEpicOfTheTaskPays":              {"tk_1", epics.Epic{ID: "ep_1", Root: "run_1", Status: "active"}, "pending", "", &workgraph.Payer{EpicID: "ep_1"}},
		"AForeignEpicDoesNot":               {"tk_1", epics.Epic{ID: "ep_1", Root: "run_0", Status: "active"}, "pending", "", nil},
		"AnEpicThatHasEndedDoesNot":         {"tk_1", epics.Epic{ID: "ep_1", Root: "run_1", Status: "completed"}, "pending", "", nil},
		"ATaskThatCannotBeTakenSaysNothing": {"tk_1", epics.Epic{ID: "ep_1", Root: "run_1", Status: "active"}, "running", "", nil},
		"ARunWithATaskKeepsToIt":            {"tk_1", epics.Epic{ID: "ep_1", Root: "run_1", Status: "active"}, "pending", "tk_own", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := spawn.Chosen(library{}, one{c.epic, epics.Task{ID: c.task, EpicID: c.epic.ID, Status: c.state}})
			out, err := actortest.Call(t, run, `{"workflows": ["digest"], "workflow_slug": "digest", "task_id": "tk_1"}`, func(s *workgraph.Start) { s.RootRunID, s.TaskID = "run_1", c.own })
			require.NoError(t, err)
			require.NotNil(t, out.Wait, "%s", out.Values)
			require.Equal(t, c.want, out.Payer)
		})
	}
}

// one has one epic and one task.
type one struct {
	epic epics.Epic
	task epics.Task
}

func (o one) Task(context.Context, string, string) (epics.Task, error) { return o.task, nil }
func (o one) Epic(context.Context, string, string) (epics.Epic, error) { return o.epic, nil }

func TestChosen(t *testing.T) {
	t.Parallel()
	run := spawn.Chosen(library{}, owners{})
	spawned := func(t *testing.T, args string) *workgraph.Children {
		t.Helper()
		out, err := actortest.Call(t, run, args)
		require.NoError(t, err)
		require.NotNil(t, out.Wait, "%s", out.Values)
		return out.Wait.Children
	}
	t.Run("Single/LinksTheTaskAndAnswersTheResult", func(t *testing.T) {
		t.Parallel()
		c := spawned(t, `{"workflows": ["digest"], "workflow_slug": "digest", "input_data": {"a": 1}, "task_id": "tk_1", "timeout": "1h"}`)
		require.True(t, c.AsResult)
		require.Equal(t, []any{"workflow/digest@3", "tk_1", "1"}, []any{c.Runs[0].Ref, c.Runs[0].TaskID, string(c.Runs[0].Input.Named["a"])})
	})
	t.Run("Bounds/AreThoseOfACallThatSaysNothing", func(t *testing.T) {
		t.Parallel()
		c := spawned(t, `{"workflows": ["digest"], "workflow_slug": "digest"}`)
		require.Equal(t, workgraph.Duration(10*time.Minute), c.Timeout)
		require.True(t, c.Runs[0].Delegated)
	})
	t.Run("Depth/IsThree", func(t *testing.T) {
		t.Parallel()
		named := map[string]json.RawMessage{"workflows": json.RawMessage(`["x"]`), "workflow_slug": json.RawMessage(`"x"`)}
		for above, refused := range map[int]bool{0: false, 2: false, 3: true, 4: true} {
			out, err := run.Actor.Call(actor.WithDelegated(t.Context(), above), workgraph.NewCall(workgraph.Start{Named: named, Own: named}, workgraph.CallOptions{}))
			require.NoError(t, err)
			require.Equal(t, refused, out.Wait == nil, "below %d", above)
			if refused {
				require.Contains(t, string(out.Values[0]), "Spawn depth limit reached (3). Cannot spawn further child workflows")
			}
		}
	})
	t.Run("Arguments/AreTakenAsTexts", func(t *testing.T) {
		t.Parallel()
		c := spawned(t, `{"workflows": ["digest"], "workflow_slug": "digest", "input_data": "{\"a\": 12345678901234567890}"}`)
		require.Equal(t, "12345678901234567890", string(c.Runs[0].Input.Named["a"]))
		c = spawned(t, `{"workflows": ["*"], "tasks": "[{\"workflow_slug\": \"x\", \"input_data\": {\"a\": 1}}, {\"workflow_slug\": \"y\"}]"}`)
		require.Equal(t, []any{"workflow/x@3", "1", "workflow/y@3"}, []any{c.Runs[0].Ref, string(c.Runs[0].Input.Named["a"]), c.Runs[1].Ref})
		c = spawned(t, `{"workflows": ["*"], "tasks": ["{\"workflow_slug\": \"x\"}"]}`)
		require.Equal(t, "workflow/x@3", c.Runs[0].Ref)
	})
	t.Run("List/KeepsTheOrder", func(t *testing.T) {
		t.Parallel()
		c := spawned(t, `{"workflows": ["mail-*", "digest@2"], "tasks": [{"workflow_slug": "mail-to"}, {"workflow_slug": "digest"}, {"workflow_slug": "mail-cc@1"}]}`)
		require.Equal(t, []bool{false, true}, []bool{c.AsResult, c.Bare})
		require.Equal(t, []string{"workflow/mail-to@3", "workflow/digest@2", "workflow/mail-cc@1"}, []string{c.Runs[0].Ref, c.Runs[1].Ref, c.Runs[2].Ref})
	})
	for name, c := range map[string]struct{ slug, want string }{"OnlyInput": {"x-body", "body"}, "ByItsName": {"x-input_text-other", "input_text"}, "Undeclared": {"x", "input_text"}} {
		t.Run("Text/"+name, func(t *testing.T) {
			t.Parallel()
			got := spawned(t, `{"workflows": ["x*"], "workflow_slug": "`+c.slug+`", "input_text": "hi"}`)
			require.JSONEq(t, `"hi"`, string(got.Runs[0].Input.Named[c.want]))
		})
	}
	t.Run("Self/IsTheWorkflowOfTheCall", func(t *testing.T) {
		t.Parallel()
		named := map[string]json.RawMessage{"workflows": json.RawMessage(`["self"]`), "workflow_slug": json.RawMessage(`"self"`)}
		out, err := run.Actor.Call(actor.WithWorkflow(t.Context(), "me@2"), workgraph.NewCall(workgraph.Start{Named: named, Own: named}, workgraph.CallOptions{}))
		require.NoError(t, err)
		require.Equal(t, "workflow/me@3", out.Wait.Children.Runs[0].Ref)
	})
	for name, c := range map[string]struct{ args, says string }{
		"NotAllowed":    {`{"workflows": ["digest", "mail-*"], "workflow_slug": "pay"}`, `workflow \"pay\" may not be run here; those that may: digest, mail-*`},
		"OtherVersion":  {`{"workflows": ["digest@2"], "workflow_slug": "digest@1"}`, "may not be run here"},
		"Nothing":       {`{"workflows": ["digest"]}`, "missing required field 'workflow_slug'"},
		"Empty":         {`{"workflows": ["digest"], "tasks": []}`, "tasks list cannot be empty"},
		"Both":          {`{"workflows": ["digest"], "workflow_slug": "digest", "tasks": [{"workflow_slug": "digest"}]}`, "give either tasks"},
		"NoList":        {`{"workflows": ["digest"], "tasks": "digest"}`, "tasks must be a list, or its JSON as a text, and is a text"},
		"NoObject":      {`{"workflows": ["digest"], "tasks": [{"workflow_slug": "digest"}, 7]}`, "Task 1 must be an object, got a number"},
		"UnknownField":  {`{"workflows": ["digest"], "tasks": [{"workflow_slug": "digest", "input": 7}]}`, `Task 0: json: unknown field \"input\"`},
		"WrongType":     {`{"workflows": ["digest"], "tasks": [{"workflow_slug": 7}]}`, "Task 0: workflow_slug must be a string, got number"},
		"Data":          {`{"workflows": ["digest"], "workflow_slug": "digest", "input_data": [1]}`, "input_data must be an object, or its JSON as a text, and is a list"},
		"InAList":       {`{"workflows": ["digest"], "tasks": [{"workflow_slug": "digest"}, {}]}`, "Task 1: missing required field"},
		"TaskTwice":     {`{"workflows": ["digest"], "tasks": [{"workflow_slug": "digest", "task_id": "tk_1"}, {"workflow_slug": "digest", "task_id": "tk_1"}]}`, "asked for twice"},
		"TaskID":        {`{"workflows": ["digest"], "workflow_slug": "digest", "task_id": "ep_1"}`, "no id of a task"},
		"Unknown":       {`{"workflows": ["*"], "workflow_slug": "nothing"}`, "there is no workflow"},
		"SelfOutside":   {`{"workflows": ["self"], "workflow_slug": "self"}`, "there is no \\\"self\\\""},
		"TextAmbiguous": {`{"workflows": ["x*"], "workflow_slug": "x-a-b", "input_text": "hi"}`, "the workflow has the inputs a, b"},
		"TextTwice":     {`{"workflows": ["x*"], "workflow_slug": "x-a", "input_text": "hi", "input_data": {"a": 1}}`, "given twice"},
		"TooMany":       {`{"workflows": ["x"], "tasks": [` + strings.Repeat(`{"workflow_slug": "x"},`, 50) + `{"workflow_slug": "x"}]}`, "the limit is 50"},
	} {
		t.Run("Refused/"+name, func(t *testing.T) {
			t.Parallel()
			got := actortest.Value(t, run, c.args)
			require.Contains(t, got, `"success":false`)
			require.Contains(t, got, c.says)
		})
	}
	t.Run("List/OfThoseAllowedIsTheNodesOwn", func(t *testing.T) {
		t.Parallel()
		got := actortest.Fails(t, run, `{"workflows": ["*"], "workflow_slug": "pay"}`, func(s *workgraph.Start) { s.Own = nil })
		require.Contains(t, got.Message, "list the slugs")
	})
	t.Run("Registry/AwayEndsTheAttempt", func(t *testing.T) {
		t.Parallel()
		away := spawn.Chosen(library{errs.New(errs.Unavailable, "DOWN", "down")}, nil)
		require.Equal(t, "CATALOG_UNREACHABLE", actortest.Fails(t, away, `{"workflows": ["x"], "workflow_slug": "x"}`).Reason)
		require.NotEmpty(t, spawn.Chosen(nil, nil).Unavailable)
	})
}

// TestCallsOfOtherSystems goes through what calls of other systems rely on.
func TestCallsOfOtherSystems(t *testing.T) {
	t.Parallel()
	run := spawn.Chosen(library{}, owners{})
	for name, c := range map[string]struct{ args, says string }{
		"EmptyList":    {`{"workflows": ["*"], "tasks": []}`, "tasks list cannot be empty"},
		"NoObject":     {`{"workflows": ["*"], "tasks": ["a"]}`, "Task 0 must be an object, got a text"},
		"NoSlug":       {`{"workflows": ["*"], "tasks": [{"input_text": "a"}]}`, "Task 0: missing required field 'workflow_slug'"},
		"NoneIsMade":   {`{"workflows": ["*"], "tasks": [{"workflow_slug": "x"}, {"workflow_slug": "nothing"}]}`, "there is no workflow"},
		"NotAllowed":   {`{"workflows": ["x"], "tasks": [{"workflow_slug": "x"}, {"workflow_slug": "y"}]}`, "may not be run here"},
		"TasksAndSlug": {`{"workflows": ["x"], "workflow_slug": "x", "tasks": [{"workflow_slug": "x"}]}`, "give either tasks"},
	} {
		t.Run("Refused/"+name, func(t *testing.T) {
			t.Parallel()
			var got struct {
				Success *bool
				Error   string
			}
			require.NoError(t, json.Unmarshal([]byte(actortest.Value(t, run, c.args)), &got))
			require.False(t, *got.Success)
			require.Contains(t, got.Error, c.says)
		})
	}
	t.Run("List/HasAllThatAChildTakes", func(t *testing.T) {
		t.Parallel()
		out, err := actortest.Call(t, run, `{"workflows": ["*"], "tasks": [{"workflow_slug": "b", "input_text": "hi", "task_id": "tk_1", "input_data": {"n": 1}}, {"workflow_slug": "a"}]}`)
		require.NoError(t, err)
		c := out.Wait.Children
		require.Equal(t, []any{"workflow/b@3", "tk_1", `"hi"`, "1", "workflow/a@3"},
			[]any{c.Runs[0].Ref, c.Runs[0].TaskID, string(c.Runs[0].Input.Named["input_text"]), string(c.Runs[0].Input.Named["n"]), c.Runs[1].Ref})
		require.Equal(t, []any{true, false, false, workgraph.Duration(10 * time.Minute)}, []any{c.Bare, c.AsResult, c.FailFast, c.Timeout})
	})
	t.Run("Single/FailureIsThatOfTheCall", func(t *testing.T) {
		t.Parallel()
		out, err := actortest.Call(t, run, `{"workflows": ["*"], "workflow_slug": "b"}`)
		require.NoError(t, err)
		require.True(t, out.Wait.Children.AsResult)
	})
}
