// Package epic owns the rules of epics and tasks: their fields, the one transition table, dependencies,
// budgets and claims. It must not know any database, protocol or clock: times are arguments, and every rule
// is a function of its arguments.
package epic

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/money"
	"github.com/epigraph-run/epigraph/services/registry/internal/usage"
)

const (
	// Prefix starts the id of every epic.
	Prefix = "ep"

	// ReasonEtagMismatch is the reason of a Conflict with another change; the key "etag" has the present one.
	ReasonEtagMismatch = "ETAG_MISMATCH"
	// ReasonEpicEnded refuses new work in an epic that is completed, failed or canceled.
	ReasonEpicEnded = "EPIC_ENDED"
	// ReasonEpicNotActive refuses to start work in an epic that is not active.
	ReasonEpicNotActive = "EPIC_NOT_ACTIVE"
	// ReasonBudgetExhausted refuses a claim in an epic that has spent what it may.
	ReasonBudgetExhausted = "BUDGET_EXHAUSTED"
	// ReasonNamespaceCap is why an epic stands still whose next call does not fit under a cap of its
	// namespace.
	ReasonNamespaceCap = "NAMESPACE_CAP_REACHED"
)

// Priority orders work; smaller is more urgent. Its numbers are those of the API and of the stores.
type Priority int16

// The priorities. The zero value is none of them; Normalize turns it into Medium.
const (
	Critical Priority = iota + 1
	High
	Medium
	Low
)

// Epic is a goal that takes several tasks. Empty tags and labels are nil.
type Epic struct {
	Namespace, ID      string
	Title, Description string
	Tags               []string
	State              State
	Priority           Priority
	// BudgetTokens is a cap: nil is none, 0 allows nothing.
	BudgetTokens *int64
	// BudgetNanoUSD is a cap: nil is none, 0 allows nothing.
	BudgetNanoUSD *int64
	// Spent is the sum of all entries booked on the epic, also of tasks that were deleted since.
	Spent                                   usage.Totals
	TotalTasks, CompletedTasks, FailedTasks int32
	// DependencyPolicy is that of tasks without one of their own.
	DependencyPolicy DependencyPolicy
	// Dependencies is how many its tasks have together.
	Dependencies                                       int32
	ResultSummary, WorkflowSlug, UserID, CreatedByNode string
	Labels                                             map[string]string
	CreateTime, UpdateTime                             time.Time
	// Principal is who made it or changed it last, from the API key that was shown.
	Principal string
	// Maker is who made it: for a run the root of the run, and the principal that started that; else
	// the principal that the API key names. It never changes.
	Maker access.Maker
	// EndTime is zero until the epic ends.
	EndTime time.Time
	// Parallel is how many tasks are worked on at once while it runs by itself; 0 if it does not.
	Parallel int32
	// PauseReason says why it is paused, if nobody asked for that.
	PauseReason string
	// Revision counts changes from 1. Roll-ups of costs and of task counts leave it alone, so that
	// an etag stays good while the epic works.
	Revision int64
}

// New returns a fresh epic that takes what a caller may set from in.
func New(namespace string, in Epic, now time.Time) Epic {
	e := Epic{
		Namespace: namespace, ID: ids.New(Prefix), State: Planning,
		CreateTime: now, UpdateTime: now, Revision: 1,
	}
	for _, f := range Fields() {
		e.Take(f, in)
	}
	return e
}

// Etag is the quoted revision.
func (e *Epic) Etag() string { return Etag(e.Revision) }

// CheckEtag returns a Conflict unless want is empty, "*" or the present etag.
func (e *Epic) CheckEtag(want string) error { return CheckEtag("epic "+e.ID, e.Revision, want) }

// Touch records a change that callers see in the etag, and who made it unless that is empty.
func (e *Epic) Touch(now time.Time, principal string) {
	if principal != "" {
		e.Principal = principal
	}
	e.Revision++
	e.UpdateTime = now
}

// Count keeps the counters up to date when a task goes from one state to another. The zero state
// stands for a task that does not exist.
func (e *Epic) Count(from, to TaskState) {
	for _, c := range []struct {
		state TaskState
		by    int32
	}{{from, -1}, {to, 1}} {
		if c.state == 0 {
			continue
		}
		e.TotalTasks += c.by
		switch c.state {
		case TaskCompleted:
			e.CompletedTasks += c.by
		case TaskFailed:
			e.FailedTasks += c.by
		}
	}
}

// CheckBudget refuses when a cap is set and nothing is left under it.
func (e *Epic) CheckBudget() error {
	over := func(spent, limit int64, said string) error {
		return errs.New(errs.FailedPrecondition, ReasonBudgetExhausted, "epic %s has spent %s", e.ID, said).
			Set("epic_id", e.ID).Set("spent", strconv.FormatInt(spent, 10)).Set("budget", strconv.FormatInt(limit, 10)).
			Hint("raise or clear the budget of the epic")
	}
	if e.BudgetTokens != nil && e.Spent.Tokens >= *e.BudgetTokens {
		return over(e.Spent.Tokens, *e.BudgetTokens, fmt.Sprintf("%d of %d tokens", e.Spent.Tokens, *e.BudgetTokens))
	}
	if e.BudgetNanoUSD != nil && e.Spent.NanoUSD >= *e.BudgetNanoUSD {
		return over(e.Spent.NanoUSD, *e.BudgetNanoUSD, money.Dollars(e.Spent.NanoUSD)+" of "+money.Dollars(*e.BudgetNanoUSD))
	}
	return nil
}

// BudgetNote says why the money cap cannot be trusted, and is empty when it can.
func (e *Epic) BudgetNote() string {
	if e.BudgetNanoUSD == nil || e.Spent.UnpricedCalls == 0 {
		return ""
	}
	return "The epic has a budget in USD, but " + strconv.FormatInt(e.Spent.UnpricedCalls, 10) +
		" of its calls have no known price and are not counted against it. Add a price for their model."
}

// Fields names what a caller may change, as the API spells it.
func Fields() []string {
	return []string{
		"title", "description", "tags", "priority", "budget_tokens", "budget_nano_usd", "result_summary",
		"workflow_slug", "user_id", "created_by_node_id", "labels", "dependency_policy",
	}
}

// Take copies one of Fields from another epic, and reports whether there is such a field.
func (e *Epic) Take(field string, from Epic) bool {
	switch field {
	case "title":
		e.Title = from.Title
	case "description":
		e.Description = from.Description
	case "tags":
		e.Tags = normalTags(from.Tags)
	case "priority":
		e.Priority = from.Priority.Normalize()
	case "budget_tokens":
		e.BudgetTokens = from.BudgetTokens
	case "budget_nano_usd":
		e.BudgetNanoUSD = from.BudgetNanoUSD
	case "result_summary":
		e.ResultSummary = from.ResultSummary
	case "workflow_slug":
		e.WorkflowSlug = from.WorkflowSlug
	case "user_id":
		e.UserID = from.UserID
	case "created_by_node_id":
		e.CreatedByNode = from.CreatedByNode
	case "labels":
		e.Labels = normalLabels(from.Labels)
	case "dependency_policy":
		e.DependencyPolicy = from.DependencyPolicy.In(Block)
	default:
		return false
	}
	return true
}

// SearchText is what a text query is looked up in: lower case, so that every store finds the same.
func (e *Epic) SearchText() string { return Fold(e.Title + "\n" + e.Description) }

// Fold returns text in the case that searches use.
func Fold(s string) string { return strings.ToLower(s) }

// Normalize turns an unset priority into Medium.
func (p Priority) Normalize() Priority {
	if p == 0 {
		return Medium
	}
	return p
}

// Etag is a quoted revision.
func Etag(revision int64) string { return strconv.Quote(strconv.FormatInt(revision, 10)) }

// CheckEtag returns a Conflict unless want is empty, "*" or the etag of the present revision.
func CheckEtag(what string, revision int64, want string) error {
	have := Etag(revision)
	if want == "" || want == "*" || want == have {
		return nil
	}
	return errs.New(errs.Conflict, ReasonEtagMismatch, "%s has changed: its etag is %s, not %s", what, have, want).
		Set("etag", have).Hint("read it again and repeat the change with the present etag")
}

// normalTags drops repeated tags and keeps the order of the rest.
func normalTags(tags []string) []string {
	var out []string
	for _, t := range tags {
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

func normalLabels(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return m
}

// rowSize is what an epic or a task takes beside its texts.
const rowSize = 512

// Size implements page.Row.
func (e Epic) Size() int {
	return rowSize + len(e.Title) + len(e.Description) + len(e.ResultSummary) + listed(e.Tags) + labeled(e.Labels)
}

// Size implements page.Row.
func (t Task) Size() int {
	n := rowSize + len(t.Title) + len(t.Description) + len(t.Requirements) + len(t.Input) + len(t.ResultSummary) + len(t.ErrorMessage) + listed(t.Tags) + listed(t.DependsOn) + labeled(t.Labels)
	for i := range t.Notes {
		n += 64 + len(t.Notes[i].Author) + len(t.Notes[i].Text)
	}
	return n
}

func listed(texts []string) (n int) {
	for _, s := range texts {
		n += 16 + len(s)
	}
	return n
}

func labeled(labels map[string]string) (n int) {
	for k, v := range labels {
		n += 32 + len(k) + len(v)
	}
	return n
}
