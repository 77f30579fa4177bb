package delegation

import (
	"encoding/json"
	"math"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// Arguments are those of all tools over epics and tasks; each takes those of its schema.
type Arguments struct {
	EpicID       string          `json:"epic_id"`
	TaskID       string          `json:"task_id"`
	Title        *string         `json:"title"`
	Description  *string         `json:"description"`
	Query        string          `json:"query"`
	Status       string          `json:"status"`
	Tags         json.RawMessage `json:"tags"`
	DependsOn    json.RawMessage `json:"depends_on"`
	Requirements json.RawMessage `json:"requirements"`
	Priority     *int            `json:"priority"`
	Tokens       *int64          `json:"budget_tokens"`
	USD          *float64        `json:"budget_usd"`
	Result       *string         `json:"result_summary"`
	Error        *string         `json:"error_message"`
	Notes        string          `json:"notes"`
	Reason       string          `json:"reason"`
	Workflow     *string         `json:"workflow_slug"`
	Source       *string         `json:"workflow_source"`
	Input        json.RawMessage `json:"input"`
	Policy       *string         `json:"dependency_policy"`
	Estimated    *int64          `json:"estimated_tokens"`
	Retries      *int32          `json:"max_retries"`
	Limit        *int            `json:"limit"`
	Page         string          `json:"page_token"`
}

// Change says what of an epic or a task is changed.
type Change struct {
	// Fields are the names of those that are taken from it.
	Fields []string
	// Moves says that its status is changed.
	Moves bool
}

// Apply changes fields first, since a raised budget may be what a move needs, and then moves. If only the
// move is refused, the error says that the fields are changed.
func Apply[T any](c Change, set, move func() (T, error)) (out T, err error) {
	if len(c.Fields) > 0 {
		if out, err = set(); err != nil {
			return out, err
		}
	}
	if !c.Moves {
		return out, nil
	}
	if out, err = move(); err != nil && len(c.Fields) > 0 {
		e := *errs.From(err)
		e.Message += "; changed are: " + strings.Join(c.Fields, ", ")
		err = &e
	}
	return out, err
}

type field struct {
	name  string
	given bool
}

func fieldsOf(all ...field) (out []string) {
	for _, f := range all {
		if f.given {
			out = append(out, f.name)
		}
	}
	return out
}

// epic is the epic that the arguments say, to be made or changed: what only a change takes is not read.
func (a *Arguments) epic(f *Faults) Epic {
	e := Epic{
		Title: strings.TrimSpace(f.Text("title", a.Title, MaxTitle)), Description: f.Text("description", a.Description, MaxText),
		Tags: f.List("tags", a.Tags, MaxTags, MaxTag), Priority: a.priority(f), BudgetTokens: a.Tokens,
	}
	if a.Tokens != nil && *a.Tokens < 0 {
		f.Add("budget_tokens must not be negative")
	}
	switch {
	case a.USD == nil:
	case !(*a.USD >= 0 && *a.USD <= maxBudget):
		f.Add("budget_usd must be from 0 to %d", int64(maxBudget))
	default:
		n := int64(math.Round(*a.USD * 1e9))
		e.BudgetNanoUSD = &n
	}
	return e
}

// NewEpic is the epic that is to be made.
func (a *Arguments) NewEpic() (e Epic, f Faults) {
	if e = a.epic(&f); e.Title == "" && len(f) == 0 {
		f.Add("title is missing")
	}
	return e, f
}

// EpicOf is the id of the epic that is meant.
func (a *Arguments) EpicOf() (id string, f Faults) {
	id = f.ID("epic_id", a.EpicID, "ep_")
	return id, f
}

// ChangedEpic is an epic with what is to be changed. The result goes with a move, so that a completed epic is
// never seen without.
func (a *Arguments) ChangedEpic() (e Epic, c Change, f Faults) {
	e = a.epic(&f)
	e.ID, e.Status, e.Result = f.ID("epic_id", a.EpicID, "ep_"), f.Word("status", a.Status, EpicStates()), f.Text("result_summary", a.Result, MaxText)
	c.Moves = e.Status != ""
	c.Fields = fieldsOf(field{"title", a.Title != nil}, field{"description", a.Description != nil}, field{"tags", Given(a.Tags)}, field{"priority", a.Priority != nil},
		field{"budget_tokens", e.BudgetTokens != nil}, field{"budget_nano_usd", e.BudgetNanoUSD != nil}, field{"result_summary", a.Result != nil && (!c.Moves || e.Result == "")})
	if len(f) == 0 && len(c.Fields) == 0 && !c.Moves {
		f.Add("there is nothing to change: give status, title, description, tags, priority, budget_tokens, budget_usd or result_summary")
	}
	return e, c, f
}

// Search says which epics are looked for.
func (a *Arguments) Search() (s Search, f Faults) {
	s = Search{Text: strings.TrimSpace(f.Text("query", &a.Query, 1024)), Tags: f.List("tags", a.Tags, MaxTags, MaxTag), Status: f.Word("status", a.Status, EpicStates()), Limit: Limit(a.Limit, 10)}
	return s, f
}

// task is the task that the arguments say, to be made or changed: what only a change takes is not read.
func (a *Arguments) task(f *Faults) Task {
	t := Task{
		Title: strings.TrimSpace(f.Text("title", a.Title, MaxTitle)), Description: f.Text("description", a.Description, MaxText), Tags: f.List("tags", a.Tags, MaxTags, MaxTag),
		DependsOn: f.List("depends_on", a.DependsOn, MaxDepends, MaxID), Priority: a.priority(f), Requirements: f.Object("requirements", a.Requirements, MaxRequirements),
		Input: f.Object("input", a.Input, MaxInput), Workflow: f.Text("workflow_slug", a.Workflow, MaxSlug), Source: a.source(f), EstimatedTokens: a.estimate(f), MaxRetries: a.retries(f),
	}
	if a.Policy != nil {
		t.Policy = f.Word("dependency_policy", *a.Policy, Policies())
	}
	return t
}

// NewTask is the task that is to be made.
func (a *Arguments) NewTask() (t Task, f Faults) {
	t = a.task(&f)
	if t.EpicID = f.ID("epic_id", a.EpicID, "ep_"); t.Title == "" && len(f) == 0 {
		f.Add("title is missing")
	}
	return t, f
}

// ChangedTask is a task with what is to be changed. Its result, error and note go with a move.
func (a *Arguments) ChangedTask() (t Task, c Change, f Faults) {
	t = a.task(&f)
	t.ID, t.Status = f.ID("task_id", a.TaskID, "tk_"), f.Word("status", a.Status, TaskStates())
	t.Result, t.Error = f.Text("result_summary", a.Result, MaxText), f.Text("error_message", a.Error, MaxText)
	t.Note = strings.TrimSpace(f.Text("notes", &a.Notes, MaxText))
	c.Moves = t.Status != ""
	c.Fields = fieldsOf(field{"title", a.Title != nil}, field{"description", a.Description != nil}, field{"priority", a.Priority != nil}, field{"workflow_slug", a.Workflow != nil},
		field{"input", Given(a.Input)}, field{"depends_on", Given(a.DependsOn)}, field{"dependency_policy", t.Policy != ""}, field{"tags", Given(a.Tags)},
		field{"requirements", Given(a.Requirements)}, field{"estimated_tokens", a.Estimated != nil}, field{"max_retries", a.Retries != nil},
		field{"workflow_source", t.Source != ""}, field{"result_summary", a.Result != nil && (!c.Moves || t.Result == "")}, field{"error_message", a.Error != nil && (!c.Moves || t.Error == "")},
		field{"notes", t.Note != "" && !c.Moves})
	if len(f) == 0 && len(c.Fields) == 0 && !c.Moves {
		f.Add("there is nothing to change: give status, title, description, tags, priority, workflow_slug, workflow_source, requirements, input, depends_on, dependency_policy, estimated_tokens, max_retries, result_summary, error_message or notes")
	}
	return t, c, f
}

// CanceledTask is the task that is to be canceled, with its reason as a note.
func (a *Arguments) CanceledTask() (t Task, f Faults) {
	t = Task{ID: f.ID("task_id", a.TaskID, "tk_"), Status: Canceled}
	if reason := strings.TrimSpace(f.Text("reason", &a.Reason, MaxText)); reason != "" {
		t.Note = "Cancelled: " + reason
	}
	return t, f
}

// Filter says which tasks are listed.
func (a *Arguments) Filter() (q Filter, f Faults) {
	q = Filter{Status: f.Word("status", a.Status, TaskStates()), Tags: f.List("tags", a.Tags, MaxTags, MaxTag), Limit: Limit(a.Limit, 20), Page: f.Text("page_token", &a.Page, 2048)}
	if a.EpicID != "" {
		q.EpicID = f.ID("epic_id", a.EpicID, "ep_")
	}
	return q, f
}

func (a *Arguments) priority(f *Faults) int {
	if a.Priority == nil {
		return 0
	}
	if *a.Priority < 1 || *a.Priority > 4 {
		f.Add("Priority must be between 1 and 4")
	}
	return *a.Priority
}

// source is where the workflow of a task comes from: existing if one is named and nothing is said.
func (a *Arguments) source(f *Faults) string {
	switch {
	case a.Source != nil:
		return f.Word("workflow_source", *a.Source, Sources())
	case a.Workflow != nil && *a.Workflow != "":
		return FromKnown
	}
	return ""
}

// estimate is an estimate of tokens, 0 if it is absent.
func (a *Arguments) estimate(f *Faults) int64 {
	switch {
	case a.Estimated == nil:
		return 0
	case *a.Estimated < 0:
		f.Add("estimated_tokens must not be negative")
	case *a.Estimated > MaxEstimate:
		f.Add("estimated_tokens must be at most %d", int64(MaxEstimate))
	}
	return *a.Estimated
}

// retries is how often a task may be tried again, as the registry says it: 0 is its default, and -1 never.
func (a *Arguments) retries(f *Faults) int32 {
	switch {
	case a.Retries == nil:
		return 0
	case *a.Retries < 0 || *a.Retries > MaxRetries:
		f.Add("max_retries must be from 0 to %d", MaxRetries)
	case *a.Retries == 0:
		return -1
	}
	return *a.Retries
}
