package epics_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/actortest"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/epics"
	"github.com/epigraph-run/epigraph/workgraph"
)

// kept notes what it is asked, and answers always the same.
type kept struct {
	epics.Registry
	epic     epics.Epic
	task     epics.Task
	tasks    [][]epics.Task // pages
	found    []epics.Epic
	search   epics.Search
	filters  []epics.Filter
	fields   []string
	requests []string
	err      error
}

func (k *kept) CreateEpic(_ context.Context, _ string, e epics.Epic, request string) (epics.Epic, error) {
	k.epic, k.requests = e, append(k.requests, request)
	e.ID, e.Status = "ep_1", "planning"
	return e, k.err
}

func (k *kept) Epic(context.Context, string, string) (epics.Epic, error) { return k.epic, k.err }

func (k *kept) ChangeEpic(_ context.Context, _ string, e epics.Epic, fields []string, request string) (epics.Epic, error) {
	e.Root, e.User = k.epic.Root, k.epic.User
	k.epic, k.fields, k.requests = e, fields, append(k.requests, request)
	return e, nil
}

func (k *kept) MoveEpic(_ context.Context, _ string, e epics.Epic, request string) (epics.Epic, error) {
	e.Root, e.User = k.epic.Root, k.epic.User
	k.epic, k.requests = e, append(k.requests, request)
	return e, k.err
}

func (k *kept) SearchEpics(_ context.Context, _ string, s epics.Search) ([]epics.Epic, error) {
	k.search = s
	return k.found, k.err
}

func (k *kept) CreateTask(_ context.Context, _ string, t epics.Task, request string) (epics.Task, error) {
	k.task, k.requests = t, append(k.requests, request)
	t.ID, t.Status = "tk_1", "blocked"
	return t, k.err
}

func (k *kept) Task(context.Context, string, string) (epics.Task, error) { return k.task, k.err }

func (k *kept) ListTasks(_ context.Context, _ string, f epics.Filter) ([]epics.Task, string, error) {
	k.filters = append(k.filters, f)
	if len(k.tasks) == 0 {
		return nil, "", k.err
	}
	page := k.tasks[0]
	if k.tasks = k.tasks[1:]; len(k.tasks) > 0 {
		return page, "more", k.err
	}
	return page, "", k.err
}

func (k *kept) ChangeTask(_ context.Context, _ string, t epics.Task, fields []string, request string) (epics.Task, error) {
	t.EpicID = k.task.EpicID
	k.task, k.fields, k.requests = t, fields, append(k.requests, request)
	return t, nil
}

func (k *kept) MoveTask(_ context.Context, _ string, t epics.Task, request string) (epics.Task, error) {
	t.RunID, t.EpicID, k.requests = k.task.RunID, k.task.EpicID, append(k.requests, request)
	k.task = t
	return t, k.err
}

func spec(t *testing.T, r epics.Registry, name string) actor.Spec {
	t.Helper()
	for _, s := range epics.Specs(r) {
		if s.Name == name {
			return s
		}
	}
	require.Fail(t, "no actor", name)
	return actor.Spec{}
}

func TestCreate(t *testing.T) {
	t.Parallel()
	t.Run("Epic/TakesListsAsTextAndBudgets", func(t *testing.T) {
		t.Parallel()
		k := &kept{}
		got := actortest.Value(t, spec(t, k, "epic_create"), `{"title": " Join ", "description": "d", "tags": "fair, onboarding,,fair", "priority": 1, "budget_usd": 0.5, "budget_tokens": 0}`,
			func(s *workgraph.Start) { s.UserID = "ada" })
		require.JSONEq(t, `{"success": true, "epic_id": "ep_1", "title": "Join", "status": "planning"}`, got)
		require.Equal(t, []string{"fair", "onboarding"}, k.epic.Tags)
		require.Equal(t, []any{int64(500_000_000), int64(0), 1, "ada", "n"}, []any{*k.epic.BudgetNanoUSD, *k.epic.BudgetTokens, k.epic.Priority, k.epic.User, k.epic.Node})
	})
	t.Run("Epic/WithoutBudgetHasNone", func(t *testing.T) {
		t.Parallel()
		k := &kept{}
		actortest.Value(t, spec(t, k, "epic_create"), `{"title": "Join", "tags": ["a"]}`)
		require.Nil(t, k.epic.BudgetNanoUSD)
		require.Nil(t, k.epic.BudgetTokens)
	})
	t.Run("Task/TakesRequirementsInBothForms", func(t *testing.T) {
		t.Parallel()
		for _, form := range []string{`{"trigger": "webhook"}`, `"{\"trigger\": \"webhook\"}"`} {
			k := &kept{}
			got := actortest.Value(t, spec(t, k, "task_create"), `{"epic_id": "ep_1", "title": "Hook", "depends_on": "tk_a, tk_b", "requirements": `+form+`, "max_retries": 0, "workflow_slug": "x"}`)
			require.JSONEq(t, `{"success": true, "task_id": "tk_1", "epic_id": "ep_1", "title": "Hook", "status": "blocked", "depends_on": ["tk_a", "tk_b"]}`, got)
			require.JSONEq(t, `{"trigger":"webhook"}`, string(k.task.Requirements))
			require.Equal(t, []any{int32(-1), "existing"}, []any{k.task.MaxRetries, k.task.Source})
		}
	})
	t.Run("Task/TakesInputAndPolicy", func(t *testing.T) {
		t.Parallel()
		for _, form := range []string{`{"to": "all"}`, `"{\"to\": \"all\"}"`} {
			k := &kept{}
			actortest.Value(t, spec(t, k, "task_create"), `{"epic_id": "ep_1", "title": "Hook", "input": `+form+`, "dependency_policy": "Skip"}`)
			require.JSONEq(t, `{"to":"all"}`, string(k.task.Input))
			require.Equal(t, "skip", k.task.Policy)
		}
	})
	t.Run("Task/TakesItsSource", func(t *testing.T) {
		t.Parallel()
		for args, want := range map[string]string{`"workflow_slug": "x", "workflow_source": "created"`: "created", `"workflow_slug": "x"`: "existing", `"description": "by hand"`: ""} {
			k := &kept{}
			actortest.Value(t, spec(t, k, "task_create"), `{"epic_id": "ep_1", "title": "Hook", `+args+`}`)
			require.Equal(t, want, k.task.Source, args)
		}
	})
	t.Run("Key/IsThatOfTheEffect", func(t *testing.T) {
		t.Parallel()
		k := &kept{}
		for _, change := range []func(*workgraph.Start){func(*workgraph.Start) {}, func(s *workgraph.Start) { s.Attempt = 2 }, func(s *workgraph.Start) { s.Visit = 2 }} {
			actortest.Value(t, spec(t, k, "epic_create"), `{"title": "Join"}`, change)
		}
		require.Equal(t, k.requests[0], k.requests[1], "another attempt of the same call makes no second epic")
		require.NotEqual(t, k.requests[0], k.requests[2])
	})
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 20<<10)
	for name, c := range map[string]struct{ actor, args, says string }{
		"NoTitle":         {"epic_create", `{}`, "title is missing"},
		"LongTitle":       {"epic_create", `{"title": "` + long + `"}`, "the limit is 512"},
		"LongDescription": {"epic_create", `{"title": "x", "description": "` + long + `"}`, "description has 20480 bytes"},
		"Priority":        {"epic_create", `{"title": "x", "priority": 5}`, "Priority must be between 1 and 4"},
		"Budget":          {"epic_create", `{"title": "x", "budget_usd": -1}`, "budget_usd must be from 0"},
		"Tags":            {"epic_search", `{"tags": "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21"}`, "Too many tags specified. Maximum is 20."},
		"TagsType":        {"epic_search", `{"tags": {"a": 1}}`, "tags must be a list of texts"},
		"Status":          {"epic_update", `{"epic_id": "ep_1", "status": "done"}`, "Must be one of: active, cancelled, completed, failed, paused, planning"},
		"Nothing":         {"epic_update", `{"epic_id": "ep_1"}`, "there is nothing to change"},
		"NoID":            {"epic_status", `{}`, "epic_id is missing"},
		"OtherID":         {"epic_status", `{"epic_id": "tk_1"}`, "begins with ep_"},
		"Input":           {"task_create", `{"epic_id": "ep_1", "title": "x", "input": [1]}`, "input must be an object"},
		"InputTooLarge":   {"task_create", `{"epic_id": "ep_1", "title": "x", "input": {"a": "` + strings.Repeat("x", 70<<10) + `"}}`, "input: more than 65536 bytes"},
		"Policy":          {"task_create", `{"epic_id": "ep_1", "title": "x", "dependency_policy": "wait"}`, "Must be one of: block, fail, skip"},
		"Requirements":    {"task_create", `{"epic_id": "ep_1", "title": "x", "requirements": "[1]"}`, "requirements must be an object"},
		"TaskStatus":      {"task_update", `{"task_id": "tk_1", "status": "started"}`, "Must be one of: blocked, cancelled, completed, failed, pending, running"},
		"Retries":         {"task_create", `{"epic_id": "ep_1", "title": "x", "max_retries": 101}`, "max_retries"},
		"Estimate":        {"task_update", `{"task_id": "tk_1", "estimated_tokens": 1000000000001}`, "estimated_tokens must be at most 1000000000000"},
		"EstimateBelow0":  {"task_create", `{"epic_id": "ep_1", "title": "x", "estimated_tokens": -1}`, "estimated_tokens must not be negative"},
		"RetriesUpdate":   {"task_update", `{"task_id": "tk_1", "max_retries": -1}`, "max_retries must be from 0 to 100"},
		"TagsUpdate":      {"epic_update", `{"epic_id": "ep_1", "tags": "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21"}`, "Too many tags specified. Maximum is 20."},
		"CreateSource":    {"task_create", `{"epic_id": "ep_1", "title": "x", "workflow_source": "mine"}`, "Must be one of: created, existing, inline, template"},
		"Source":          {"task_update", `{"task_id": "tk_1", "workflow_source": "mine"}`, "Must be one of: created, existing, inline, template"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &kept{}
			var got struct {
				Success *bool
				Error   string
			}
			require.NoError(t, json.Unmarshal([]byte(actortest.Value(t, spec(t, k, c.actor), c.args)), &got))
			require.False(t, *got.Success)
			require.Contains(t, got.Error, c.says)
			require.Empty(t, k.requests)
		})
	}
	t.Run("Registry/RefusalIsAnAnswerWithItsHint", func(t *testing.T) {
		t.Parallel()
		k := &kept{err: errs.New(errs.FailedPrecondition, "DEPENDENCIES_UNMET", "task tk_1 waits for tk_0").Hint("complete these tasks")}
		require.JSONEq(t, `{"success": false, "error": "task tk_1 waits for tk_0", "reason": "DEPENDENCIES_UNMET", "hint": "complete these tasks"}`,
			actortest.Value(t, spec(t, k, "task_update"), `{"task_id": "tk_1", "status": "pending"}`))
	})
	t.Run("Registry/AwayKeepsTheKey", func(t *testing.T) {
		t.Parallel()
		k := &kept{err: errs.New(errs.Unavailable, "DOWN", "down")}
		require.Equal(t, workgraph.Unknown, actortest.Fails(t, spec(t, k, "epic_create"), `{"title": "x"}`).Type)
		none := spec(t, nil, "epic_create")
		require.Equal(t, "NO_CATALOG", actortest.Fails(t, none, `{"title": "x"}`).Reason)
		require.NotEmpty(t, none.Unavailable)
	})
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	t.Run("Task/CompletesWithItsResultInOneRequest", func(t *testing.T) {
		t.Parallel()
		k := &kept{}
		got := actortest.Value(t, spec(t, k, "task_update"), `{"task_id": "tk_1", "status": "completed", "result_summary": "Done.", "notes": "n"}`)
		require.Contains(t, got, `"success":true`)
		require.Equal(t, []any{"completed", "Done.", "n"}, []any{k.task.Status, k.task.Result, k.task.Note})
		require.Empty(t, k.fields)
		require.Len(t, k.requests, 1)
	})
	t.Run("Task/FieldsComeFirst", func(t *testing.T) {
		t.Parallel()
		k := &kept{}
		actortest.Value(t, spec(t, k, "task_update"), `{"task_id": "tk_1", "status": "completed", "workflow_slug": "verify", "workflow_source": "created"}`)
		require.Equal(t, []string{"workflow_slug", "workflow_source"}, k.fields)
		require.Len(t, k.requests, 2)
		require.NotEqual(t, k.requests[0], k.requests[1])
	})
	t.Run("Task/TakesInputDependenciesAndPolicy", func(t *testing.T) {
		t.Parallel()
		k := &kept{}
		actortest.Value(t, spec(t, k, "task_update"), `{"task_id": "tk_1", "input": {"to": "all"}, "depends_on": "tk_2,tk_3", "dependency_policy": "fail"}`)
		require.Equal(t, []string{"input", "depends_on", "dependency_policy"}, k.fields)
		require.Equal(t, []any{[]string{"tk_2", "tk_3"}, "fail", `{"to":"all"}`}, []any{k.task.DependsOn, k.task.Policy, string(k.task.Input)})
		actortest.Value(t, spec(t, k, "task_update"), `{"task_id": "tk_1", "depends_on": [], "input": null}`)
		require.Equal(t, []string{"depends_on"}, k.fields, "an empty list takes them away")
	})
	t.Run("Task/TakesTagsRequirementsEstimateAndRetries", func(t *testing.T) {
		t.Parallel()
		k := &kept{}
		actortest.Value(t, spec(t, k, "task_update"), `{"task_id": "tk_1", "tags": "a,b", "requirements": "{\"tools\": [\"code\"]}", "estimated_tokens": 900, "max_retries": 5}`)
		require.Equal(t, []string{"tags", "requirements", "estimated_tokens", "max_retries"}, k.fields)
		require.Equal(t, []any{[]string{"a", "b"}, `{"tools":["code"]}`, int64(900), int32(5)}, []any{k.task.Tags, string(k.task.Requirements), k.task.EstimatedTokens, k.task.MaxRetries})
		actortest.Value(t, spec(t, k, "task_update"), `{"task_id": "tk_1", "tags": [], "estimated_tokens": 0, "max_retries": 0}`)
		require.Equal(t, []string{"tags", "estimated_tokens", "max_retries"}, k.fields, "what is taken away is a change")
		require.Equal(t, int32(-1), k.task.MaxRetries, "0 is never again, not the default of the registry")
	})
	t.Run("Epic/TakesTags", func(t *testing.T) {
		t.Parallel()
		k := &kept{}
		actortest.Value(t, spec(t, k, "epic_update"), `{"epic_id": "ep_1", "tags": "fair, onboarding"}`)
		require.Equal(t, []any{[]string{"tags"}, []string{"fair", "onboarding"}}, []any{k.fields, k.epic.Tags})
	})
	t.Run("Epic/RefusedMoveTellsWhatIsChanged", func(t *testing.T) {
		t.Parallel()
		k := &kept{err: errs.New(errs.FailedPrecondition, "INVALID_TRANSITION", "epic ep_1 cannot go there")}
		require.Contains(t, actortest.Value(t, spec(t, k, "epic_update"), `{"epic_id": "ep_1", "status": "active", "budget_usd": 2}`), "cannot go there; changed are: budget_nano_usd")
		require.Equal(t, int64(2e9), *k.epic.BudgetNanoUSD)
	})
	t.Run("Cancel/SaysWhetherARunWent", func(t *testing.T) {
		t.Parallel()
		for status, want := range map[string]string{"running": "true", "pending": "false", "cancelled": "true"} {
			k := &kept{task: epics.Task{ID: "tk_1", Status: status, RunID: "run_7"}}
			require.JSONEq(t, `{"success": true, "task_id": "tk_1", "execution_cancelled": `+want+`}`, actortest.Value(t, spec(t, k, "task_cancel"), `{"task_id": "tk_1", "reason": "too late"}`))
			require.Equal(t, "Cancelled: too late", k.task.Note)
		}
	})
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	t.Run("Status/IsBounded", func(t *testing.T) {
		t.Parallel()
		many := make([]epics.Task, 100)
		for i := range many {
			many[i] = epics.Task{ID: "tk_1", Title: strings.Repeat("t", 512), Result: strings.Repeat("r", 60<<10)}
		}
		budget := int64(5e9)
		k := &kept{epic: epics.Epic{ID: "ep_1", Status: "active", Total: 2000, Completed: 3, SpentNanoUSD: 1_250_000_000, BudgetNanoUSD: &budget}, tasks: [][]epics.Task{many, many}}
		got := actortest.Value(t, spec(t, k, "epic_status"), `{"epic_id": "ep_1"}`)
		require.Less(t, len(got), 100<<10)
		for _, part := range []string{`"spent_usd":1.25`, `"budget_usd":5`, `"total_tasks":2000`, `"tasks_left_out":1900`} {
			require.Contains(t, got, part)
		}
	})
	t.Run("Search/HasRateAndCost", func(t *testing.T) {
		t.Parallel()
		rate := 0.75
		k := &kept{found: []epics.Epic{{ID: "ep_1", Completed: 3, Failed: 1, SpentNanoUSD: 4e9, SuccessRate: &rate, Workflows: []string{"verify"}}, {ID: "ep_2"}}}
		got := actortest.Value(t, spec(t, k, "epic_search"), `{"query": "webhook", "limit": 1000, "status": "Canceled"}`)
		for _, part := range []string{`"avg_cost":2`, `"success_rate":0.75`, `"workflow_slugs":["verify"]`, `"success_rate":null`} {
			require.Contains(t, got, part)
		}
		require.Equal(t, epics.Search{Text: "webhook", Status: "cancelled", Limit: 100}, k.search)
	})
	t.Run("List/ReadsPagesAndTellsTheTotal", func(t *testing.T) {
		t.Parallel()
		k := &kept{tasks: [][]epics.Task{{{ID: "tk_1"}}, {}, {{ID: "tk_2"}}}}
		got := actortest.Value(t, spec(t, k, "task_list"), `{"epic_id": "ep_1", "status": "completed"}`)
		require.Contains(t, got, `"total":2`)
		require.Equal(t, []int{20, 19, 19}, []int{k.filters[0].Limit, k.filters[1].Limit, k.filters[2].Limit})
	})
	t.Run("List/TellsTheWorkflowOfTheRunBesideTheOneThatIsNamed", func(t *testing.T) {
		t.Parallel()
		k := &kept{tasks: [][]epics.Task{{{ID: "tk_1", RunID: "run_1", RunWorkflow: "verify@3"}, {ID: "tk_2", Workflow: "letter"}}}}
		got := actortest.Value(t, spec(t, k, "task_list"), `{}`)
		require.Contains(t, got, `"execution_id":"run_1","id":"tk_1","priority":0,"run_workflow":"verify@3"`)
		require.Contains(t, got, `"workflow_slug":"letter"`)
		require.Equal(t, 1, strings.Count(got, "run_workflow"))
	})
	t.Run("List/TellsThatThereAreMore", func(t *testing.T) {
		t.Parallel()
		k := &kept{tasks: [][]epics.Task{{{ID: "tk_1"}, {ID: "tk_2"}}, {{ID: "tk_3"}}}}
		got := actortest.Value(t, spec(t, k, "task_list"), `{"limit": 2}`)
		require.Contains(t, got, `"next_page_token":"more"`)
		require.Contains(t, got, `"total":2,"total_is_minimum":true`)
		got = actortest.Value(t, spec(t, k, "task_list"), `{"limit": 2, "page_token": "more"}`)
		require.Contains(t, got, `"total":1,"total_is_minimum":true`, "the last page knows no more than its own")
	})
	for filter, want := range map[string]string{``: `"total":9`, `, "status": "completed"`: `"total":5`, `, "status": "failed", "page_token": "more"`: `"total":3`} {
		t.Run("List/TotalIsThatOfTheEpic"+filter, func(t *testing.T) {
			t.Parallel()
			k := &kept{epic: epics.Epic{ID: "ep_1", Total: 9, Completed: 5, Failed: 3}, tasks: [][]epics.Task{{{ID: "tk_1"}}, {{ID: "tk_2"}}}}
			got := actortest.Value(t, spec(t, k, "task_list"), `{"epic_id": "ep_1", "limit": 1`+filter+`}`)
			require.Contains(t, got, want)
			require.NotContains(t, got, "total_is_minimum")
		})
	}
}

func TestEpicOfAnotherUser(t *testing.T) {
	t.Parallel()
	ada := func(s *workgraph.Start) { s.UserID = "ada" }
	calls := map[string]string{
		"epic_status": `{"epic_id": "ep_1"}`, "epic_update": `{"epic_id": "ep_1", "status": "active"}`, "task_create": `{"epic_id": "ep_1", "title": "x"}`,
		"task_list": `{"epic_id": "ep_1"}`, "task_update": `{"task_id": "tk_1", "workflow_slug": "spy"}`, "task_cancel": `{"task_id": "tk_1"}`,
	}
	of := func(user string) *kept {
		return &kept{epic: epics.Epic{ID: "ep_1", Title: "Secret", User: user}, task: epics.Task{ID: "tk_1", EpicID: "ep_1"}}
	}
	for name, args := range calls {
		t.Run("Refused/"+name, func(t *testing.T) {
			t.Parallel()
			k := of("bob")
			require.JSONEq(t, `{"success": false, "error": "epic ep_1 is not one of the user of this run", "reason": "EPIC_OF_ANOTHER_USER",
				"hint": "epic_search finds the epics of the user, and epic_create makes one"}`, actortest.Value(t, spec(t, k, name), args, ada))
			require.Empty(t, k.requests)
		})
		t.Run("Taken/"+name, func(t *testing.T) {
			t.Parallel()
			for _, user := range []string{"ada", ""} {
				require.Contains(t, actortest.Value(t, spec(t, of(user), name), args, ada), `"success":true`, "%q", user)
			}
			require.Contains(t, actortest.Value(t, spec(t, of("bob"), name), args), `"success":true`, "a run without a user")
		})
	}
	t.Run("SearchLeavesItOut", func(t *testing.T) {
		t.Parallel()
		k := &kept{found: []epics.Epic{{ID: "ep_bob", User: "bob"}, {ID: "ep_ada", User: "ada"}, {ID: "ep_all"}}}
		got := actortest.Value(t, spec(t, k, "epic_search"), `{"limit": 3}`, ada)
		require.Equal(t, epics.Search{Limit: 3, User: "ada"}, k.search, "the registry leaves others out, so that they crowd none out")
		require.NotContains(t, got, "ep_bob")
		require.Contains(t, got, "ep_ada")
		require.Contains(t, got, "ep_all")
	})
	t.Run("ListLeavesItsTasksOut", func(t *testing.T) {
		t.Parallel()
		k := of("bob")
		k.tasks = [][]epics.Task{{{ID: "tk_1", EpicID: "ep_1"}}}
		require.JSONEq(t, `{"success": true, "tasks": [], "total": 0}`, actortest.Value(t, spec(t, k, "task_list"), `{}`, ada))
	})
}

func TestPayer(t *testing.T) {
	t.Parallel()
	const own, ofUser, foreign = "run_1", "ada", ""
	for name, c := range map[string]struct {
		actor, args, whose string
		want               *workgraph.Payer
	}{
		"ANewEpicPays":                   {"epic_create", `{"title": "Join"}`, foreign, &workgraph.Payer{EpicID: "ep_1"}},
		"AChangedEpicPays":               {"epic_update", `{"epic_id": "ep_1", "title": "Join"}`, own, &workgraph.Payer{EpicID: "ep_1"}},
		"AChangedEpicOfTheUserPays":      {"epic_update", `{"epic_id": "ep_1", "title": "Join"}`, ofUser, &workgraph.Payer{EpicID: "ep_1"}},
		"AForeignEpicDoesNotPay":         {"epic_update", `{"epic_id": "ep_1", "title": "Join"}`, foreign, nil},
		"ACompletedEpicPaysNoLonger":     {"epic_update", `{"epic_id": "ep_1", "status": "completed"}`, own, &workgraph.Payer{EpicID: "ep_1", Done: true}},
		"AForeignEpicIsLeftToo":          {"epic_update", `{"epic_id": "ep_1", "status": "failed"}`, foreign, &workgraph.Payer{EpicID: "ep_1", Done: true}},
		"TheEpicOfANewTaskPays":          {"task_create", `{"epic_id": "ep_1", "title": "Hook"}`, own, &workgraph.Payer{EpicID: "ep_1"}},
		"TheEpicOfAForeignTaskDoesNot":   {"task_create", `{"epic_id": "ep_1", "title": "Hook"}`, foreign, nil},
		"ABegunTaskPays":                 {"task_update", `{"task_id": "tk_1", "status": "running"}`, ofUser, &workgraph.Payer{EpicID: "ep_1", TaskID: "tk_1"}},
		"ACompletedTaskIsDone":           {"task_update", `{"task_id": "tk_1", "status": "completed"}`, own, &workgraph.Payer{EpicID: "ep_1", TaskID: "tk_1", Done: true}},
		"ACompletedForeignTaskIsNothing": {"task_update", `{"task_id": "tk_1", "status": "completed"}`, foreign, nil},
		"ACancelledTaskIsDone":           {"task_cancel", `{"task_id": "tk_1"}`, own, &workgraph.Payer{EpicID: "ep_1", TaskID: "tk_1", Done: true}},
		"AForeignCancelledTaskIsNothing": {"task_cancel", `{"task_id": "tk_1"}`, foreign, nil},
		"AChangedTaskDoesNotPay":         {"task_update", `{"task_id": "tk_1", "notes": "n"}`, own, &workgraph.Payer{EpicID: "ep_1"}},
		"WhoOnlyReadsPaysNothing":        {"epic_status", `{"epic_id": "ep_1"}`, own, nil},
		"ARefusalChangesNothing":         {"task_update", `{"task_id": "tk_1", "status": "started"}`, own, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := epics.Epic{ID: "ep_1", Root: "run_0"}
			switch c.whose {
			case own:
				e.Root = own
			case ofUser:
				e.User = ofUser
			}
			k := &kept{epic: e, task: epics.Task{ID: "tk_1", EpicID: "ep_1"}}
			out, err := actortest.Call(t, spec(t, k, c.actor), c.args, ofRoot(own), func(s *workgraph.Start) { s.UserID = ofUser })
			require.NoError(t, err)
			require.Equal(t, c.want, out.Payer, "%s", out.Values)
		})
	}
	t.Run("ARepeatedCancelSaysNothing", func(t *testing.T) {
		t.Parallel()
		k := &kept{epic: epics.Epic{ID: "ep_1", Root: own}, task: epics.Task{ID: "tk_1", EpicID: "ep_1", Status: "cancelled"}}
		out, err := actortest.Call(t, spec(t, k, "task_cancel"), `{"task_id": "tk_1"}`, ofRoot(own))
		require.NoError(t, err)
		require.Nil(t, out.Payer)
	})
	t.Run("ATaskOfAForeignEpicIsNotBegun", func(t *testing.T) {
		t.Parallel()
		k := &kept{epic: epics.Epic{ID: "ep_1", Root: "run_0"}, task: epics.Task{ID: "tk_1", EpicID: "ep_1"}}
		got := actortest.Value(t, spec(t, k, "task_update"), `{"task_id": "tk_1", "status": "running"}`, ofRoot(own))
		require.Contains(t, got, `"reason":"EPIC_DOES_NOT_PAY"`)
		require.Empty(t, k.requests)
	})
	t.Run("ARunWithATaskBeginsOthers", func(t *testing.T) {
		t.Parallel()
		k := &kept{epic: epics.Epic{ID: "ep_1", Root: "run_0"}, task: epics.Task{ID: "tk_1", EpicID: "ep_1"}}
		got := actortest.Value(t, spec(t, k, "task_update"), `{"task_id": "tk_1", "status": "running"}`, ofRoot(own), func(s *workgraph.Start) { s.TaskID = "tk_own" })
		require.Contains(t, got, `"success":true`)
	})
}

// TestMaker has a retry go on with the epic of the run before, and no other run.
func TestMaker(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		maker string
		want  *workgraph.Payer
	}{
		"OfARetry":  {"run_0", &workgraph.Payer{EpicID: "ep_1"}},
		"OfAnother": {"run_9", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := workgraph.NewCall(workgraph.Start{RunID: "run_1", RootRunID: "run_1"}, workgraph.CallOptions{})
			ctx := access.WithMaker(t.Context(), access.Maker{Root: c.maker})
			got, err := epics.Payer(ctx, &kept{epic: epics.Epic{ID: "ep_1", Root: "run_0"}}, call, workgraph.Payer{EpicID: "ep_1"})
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

// ofRoot has a call made in the tree of a run.
func ofRoot(root string) func(*workgraph.Start) {
	return func(s *workgraph.Start) { s.RootRunID = root }
}

// TestToolsOfOtherSystems calls each tool with all that those of other systems take, and looks for all that
// they answer.
func TestToolsOfOtherSystems(t *testing.T) {
	t.Parallel()
	k := func() *kept {
		return &kept{
			epic:  epics.Epic{ID: "ep_1", Title: "Join", Status: "active", Priority: 2, Total: 1},
			task:  epics.Task{ID: "tk_1", EpicID: "ep_1", Title: "Hook", Status: "running", RunID: "run_1"},
			tasks: [][]epics.Task{{{ID: "tk_1", EpicID: "ep_1", Title: "Hook", Status: "running", Priority: 2, DependsOn: []string{"tk_0"}, RunID: "run_1"}}},
			found: []epics.Epic{{ID: "ep_1", Title: "Join", Completed: 3, Failed: 1, SpentNanoUSD: 2e9}, {ID: "ep_2"}},
		}
	}
	for name, c := range map[string]struct {
		args    string
		answers map[string]any // nil stands for any value
		missing string         // the same without what is required
	}{
		"epic_create": {
			`{"title": "Join", "description": "d", "tags": "a,b", "priority": 2, "budget_tokens": 5, "budget_usd": 1}`,
			map[string]any{"epic_id": "ep_1", "title": "Join", "status": "planning"}, `{}`,
		},
		"epic_status": {
			`{"epic_id": "ep_1"}`,
			map[string]any{"epic_id": "ep_1", "title": "Join", "status": "active", "priority": 2.0, "total_tasks": 1.0, "completed_tasks": 0.0, "failed_tasks": 0.0, "spent_tokens": 0.0, "spent_usd": 0.0, "tasks": nil}, `{}`,
		},
		"epic_update": {
			`{"epic_id": "ep_1", "status": "completed", "title": "t", "description": "d", "priority": 1, "budget_tokens": 5, "budget_usd": 1, "result_summary": "r"}`,
			map[string]any{"epic_id": "ep_1", "status": "completed", "result_summary": "r"}, `{"epic_id": "ep_1"}`,
		},
		"epic_search": {
			`{"query": "join", "tags": "a,b", "status": "completed", "limit": 1000}`,
			map[string]any{"results": nil, "success_rate": 0.75, "avg_cost": 1.0}, `{"status": "done"}`,
		},
		"task_create": {
			`{"epic_id": "ep_1", "title": "Hook", "description": "d", "tags": "a", "depends_on": "tk_0,tk_2", "priority": 2, "estimated_tokens": 5, "max_retries": 2}`,
			map[string]any{"task_id": "tk_1", "epic_id": "ep_1", "title": "Hook", "status": "blocked", "depends_on": []any{"tk_0", "tk_2"}}, `{"epic_id": "ep_1"}`,
		},
		"task_list": {
			`{"epic_id": "ep_1", "status": "", "tags": "", "limit": 20}`,
			map[string]any{"total": 1.0, "tasks": []any{map[string]any{"id": "tk_1", "title": "Hook", "status": "running", "priority": 2.0, "depends_on": []any{"tk_0"}, "execution_id": "run_1", "epic_id": "ep_1"}}}, `{"epic_id": "tk_1"}`,
		},
		"task_update": {
			`{"task_id": "tk_1", "status": "completed", "title": "t", "description": "d", "priority": 1, "result_summary": "r", "error_message": "e", "notes": "n"}`,
			map[string]any{"task_id": "tk_1", "status": "completed"}, `{"task_id": "tk_1"}`,
		},
		"task_cancel": {`{"task_id": "tk_1", "reason": "late"}`, map[string]any{"task_id": "tk_1", "execution_cancelled": true}, `{}`},
	} {
		t.Run(name+"/Answers", func(t *testing.T) {
			t.Parallel()
			var got map[string]any
			require.NoError(t, json.Unmarshal([]byte(actortest.Value(t, spec(t, k(), name), c.args)), &got))
			require.Equal(t, true, got["success"], "%v", got)
			for key, want := range c.answers {
				require.Contains(t, got, key)
				if want != nil {
					require.Equal(t, want, got[key], key)
				}
			}
		})
		t.Run(name+"/SchemaHasTheArguments", func(t *testing.T) {
			t.Parallel()
			var schema struct{ Properties map[string]any }
			var args map[string]any
			require.NoError(t, json.Unmarshal([]byte(spec(t, k(), name).Schema), &schema))
			require.NoError(t, json.Unmarshal([]byte(c.args), &args))
			for arg := range args {
				require.Contains(t, schema.Properties, arg)
			}
		})
		t.Run(name+"/FailureIsAnAnswer", func(t *testing.T) {
			t.Parallel()
			var got map[string]any
			require.NoError(t, json.Unmarshal([]byte(actortest.Value(t, spec(t, k(), name), c.missing)), &got))
			require.Equal(t, false, got["success"])
			require.NotEmpty(t, got["error"])
		})
	}
	t.Run("epic_search/LimitIsClamped", func(t *testing.T) {
		t.Parallel()
		for asked, want := range map[string]int{"0": 1, "-3": 1, "1000": 100} {
			r := k()
			actortest.Value(t, spec(t, r, "epic_search"), `{"limit": `+asked+`}`)
			require.Equal(t, want, r.search.Limit)
		}
	})
}
