package epic

import (
	"math"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

const (
	// TaskPrefix starts the id of every task.
	TaskPrefix = "tk"

	// ReasonNotesFull refuses more notes than a task keeps.
	ReasonNotesFull = "NOTES_FULL"
	// ReasonSourceMismatch refuses a source that does not fit the workflow that a task names or brings.
	ReasonSourceMismatch = "WORKFLOW_SOURCE_MISMATCH"

	defaultRetries = 2
	// MaxBlockedBy bounds how many tasks are named that keep another one waiting.
	MaxBlockedBy = 20
	// MaxEstimate bounds the estimate of a task in tokens, so that no sum of them leaves 64 bits.
	MaxEstimate = 1_000_000_000_000

	maxNotes     = 1000
	maxNoteBytes = 1 << 20
)

// Source says where a task's workflow comes from. Its numbers are those of the API and of the stores.
type Source int16

// The sources. The zero value is none of them: what the task names or brings says which it is.
const (
	// Inline: the task names no workflow of the catalog. It may bring a definition.
	Inline Source = iota + 1
	// Existing: it names one that was there.
	Existing
	// Created: it names one that was made for it, and is kept.
	Created
	// Template: it brings a definition, made of the one that it names.
	Template
)

// Note is a remark on a task.
type Note struct {
	Time time.Time
	// Author is who made it as they say themselves, Principal who did by the API key that was shown.
	Author, Principal string
	Text              string
}

// Task is a unit of work of an epic. Empty lists and maps are nil.
type Task struct {
	Namespace, ID, EpicID string
	Title, Description    string
	Tags                  []string
	State                 TaskState
	Priority              Priority
	// DependsOn holds ids of tasks of the same epic, none twice.
	DependsOn []string
	// DependencyPolicy is zero for that of the epic.
	DependencyPolicy DependencyPolicy
	// EndedBy is the task whose end ended this one by the policy; empty if nothing did.
	EndedBy string
	// BlockedBy are failed and canceled tasks that a blocked one waits for, through others too. It is no part
	// of what is stored: it is worked out for one task at a time, and holds at most MaxBlockedBy.
	BlockedBy []string
	// Requirements is one JSON value as its author wrote it, or nil.
	Requirements []byte
	// Input is a JSON object as its author wrote it, or nil: the inputs of the task's workflow.
	Input        []byte
	WorkflowSlug string
	Source       Source
	// Definition is the text of a workflow of the task's own, or empty.
	Definition string
	// RunID is the run whose claim was confirmed last.
	RunID string
	// RunWorkflow is the version of the catalog that RunID runs, as SLUG@VERSION, whoever chose it; empty for
	// another graph.
	RunWorkflow string
	// EstimatedTokens is at most MaxEstimate.
	EstimatedTokens int64
	Actual          usage.Totals
	// Duration is how long all its runs took together.
	Duration   time.Duration
	RetryCount int32
	// MaxRetries is -1 or more; -1 and 0 both allow none, since 0 is replaced by the default on entry.
	MaxRetries                  int32
	ResultSummary, ErrorMessage string
	Notes                       []Note
	CreatedByNode               string
	Labels                      map[string]string
	CreateTime, UpdateTime      time.Time
	// Principal is who made it or changed it last, from the API key that was shown.
	Principal string
	// StartTime and EndTime are zero before work began and while it goes on.
	StartTime, EndTime time.Time
	// Revision counts changes from 1; roll-ups of costs leave it alone.
	Revision int64
}

// NewTask returns a fresh pending task that takes what a caller may set from in.
func NewTask(namespace string, in Task, now time.Time) (Task, error) {
	t := Task{
		Namespace: namespace, ID: ids.New(TaskPrefix), EpicID: in.EpicID, State: TaskPending,
		CreateTime: now, UpdateTime: now, Revision: 1,
	}
	for _, f := range TaskFields() {
		if _, err := t.Take(f, in, now); err != nil {
			return Task{}, err
		}
	}
	if err := t.SettleSource(TaskFields()); err != nil {
		return Task{}, err
	}
	return t, nil
}

// SettleSource makes the source fit after these fields were taken. A workflow and a definition take each
// other's place. A source that was not given is worked out; one that does not fit is refused.
func (t *Task) SettleSource(fields []string) error {
	named, brought := slices.Contains(fields, "workflow_slug"), slices.Contains(fields, "definition")
	given := slices.Contains(fields, "workflow_source") && t.Source != 0
	switch {
	case !named && !brought && !slices.Contains(fields, "workflow_source"):
		return nil
	case named && !brought:
		t.Definition = ""
	case brought && !named:
		t.WorkflowSlug = ""
	}
	if !given {
		switch {
		case t.Definition != "" && t.WorkflowSlug != "":
			t.Source = Template
		case t.WorkflowSlug != "":
			t.Source = Existing
		default:
			t.Source = Inline
		}
		return nil
	}
	bad := func(what, hint string) error {
		return errs.New(errs.InvalidArgument, ReasonSourceMismatch, "%s", what).Violate("task.workflow_source", ReasonSourceMismatch, what).Hint(hint)
	}
	switch t.Source {
	case Inline:
		if t.WorkflowSlug != "" {
			return bad("an inline task names no workflow of the catalog, and this one names "+t.WorkflowSlug, "leave workflow_slug out, or say existing or created")
		}
	case Existing, Created:
		if t.WorkflowSlug == "" || t.Definition != "" {
			return bad("an existing or created workflow is one of the catalog", "name it by workflow_slug, without a definition")
		}
	case Template:
		if t.WorkflowSlug == "" || t.Definition == "" {
			return bad("a template is a workflow of the catalog with changes", "give a definition with based_on and patches")
		}
	}
	return nil
}

// Etag is the quoted revision.
func (t *Task) Etag() string { return Etag(t.Revision) }

// CheckEtag returns a Conflict unless want is empty, "*" or the present etag.
func (t *Task) CheckEtag(want string) error { return CheckEtag("task "+t.ID, t.Revision, want) }

// Touch records a change that callers see in the etag, and who made it unless that is empty.
func (t *Task) Touch(now time.Time, principal string) {
	if principal != "" {
		t.Principal = principal
	}
	t.Revision++
	t.UpdateTime = now
}

// AddNote appends a remark made now unless it has a time of its own.
func (t *Task) AddNote(n Note, now time.Time) error {
	if n.Time.IsZero() {
		n.Time = now
	}
	size := len(n.Text)
	for _, o := range t.Notes {
		size += len(o.Text)
	}
	if len(t.Notes) >= maxNotes || size > maxNoteBytes {
		return errs.New(errs.FailedPrecondition, ReasonNotesFull, "task %s has %d notes; it keeps at most %d of at most %d bytes together",
			t.ID, len(t.Notes), maxNotes, maxNoteBytes)
	}
	t.Notes = append(slices.Clone(t.Notes), n)
	return nil
}

// AddDuration adds the time of one run; a negative one counts as none, and the sum stops at its limit.
func (t *Task) AddDuration(d time.Duration) {
	d = max(d, 0).Truncate(time.Microsecond)
	if t.Duration > math.MaxInt64-d {
		t.Duration = time.Duration(math.MaxInt64).Truncate(time.Microsecond)
		return
	}
	t.Duration += d
}

// TaskFields names what a caller may change, as the API spells it.
func TaskFields() []string {
	return []string{
		"title", "description", "tags", "priority", "depends_on", "requirements", "workflow_slug", "workflow_source",
		"estimated_tokens", "max_retries", "result_summary", "error_message", "notes", "created_by_node_id", "labels",
		"dependency_policy", "input", "definition",
	}
}

// Take copies one of TaskFields from another task, and reports whether there is such a field. Notes
// are appended, everything else replaced.
func (t *Task) Take(field string, from Task, now time.Time) (bool, error) {
	switch field {
	case "title":
		t.Title = from.Title
	case "description":
		t.Description = from.Description
	case "tags":
		t.Tags = normalTags(from.Tags)
	case "priority":
		t.Priority = from.Priority.Normalize()
	case "depends_on":
		t.DependsOn = normalTags(from.DependsOn)
	case "requirements":
		t.Requirements = from.Requirements
		if len(t.Requirements) == 0 {
			t.Requirements = nil
		}
	case "input":
		t.Input = from.Input
		if len(t.Input) == 0 {
			t.Input = nil
		}
	case "workflow_slug":
		t.WorkflowSlug = from.WorkflowSlug
	case "workflow_source":
		t.Source = from.Source
	case "definition":
		t.Definition = from.Definition
	case "estimated_tokens":
		t.EstimatedTokens = from.EstimatedTokens
	case "max_retries":
		t.MaxRetries = from.MaxRetries
		if t.MaxRetries == 0 {
			t.MaxRetries = defaultRetries
		}
	case "result_summary":
		t.ResultSummary = from.ResultSummary
	case "error_message":
		t.ErrorMessage = from.ErrorMessage
	case "notes":
		for _, n := range from.Notes {
			if err := t.AddNote(n, now); err != nil {
				return true, err
			}
		}
	case "created_by_node_id":
		t.CreatedByNode = from.CreatedByNode
	case "labels":
		t.Labels = normalLabels(from.Labels)
	case "dependency_policy":
		t.DependencyPolicy = from.DependencyPolicy
	default:
		return false, nil
	}
	return true, nil
}
