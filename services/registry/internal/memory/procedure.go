package memory

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// Bounds of a procedure, so that it is always one entry.
const (
	maxGoal, maxSummary, maxTasks, maxTaskTitle = 512, 2000, 20, 100
	maxWorkflows, maxWorkflow                   = 20, 128
)

// Outcome is a finished epic as its procedure tells it.
type Outcome struct {
	EpicID, UserID, Goal, Summary  string
	Tags, Workflows, Tasks         []string
	Total, Completed, Failed       int32
	Tokens, NanoUSD, UnpricedCalls int64
}

// SuccessRate is which part of the tasks was completed. An epic that was completed without a task has
// reached its goal by the work of its agent alone: its rate is 1.
func (o *Outcome) SuccessRate() float64 {
	if o.Total == 0 {
		return 1
	}
	return float64(o.Completed) / float64(o.Total)
}

// procedure is the value of an entry, as programs and models read it.
type procedure struct {
	EpicID         string   `json:"epic_id"`
	Goal           string   `json:"goal"`
	Tags           []string `json:"tags"`
	WorkflowIDs    []string `json:"workflow_ids"`
	SuccessRate    float64  `json:"success_rate"`
	CostUSD        float64  `json:"cost_usd"`
	CostTokens     int64    `json:"cost_tokens"`
	UnpricedCalls  int64    `json:"unpriced_calls,omitempty"`
	TotalTasks     int32    `json:"total_tasks"`
	CompletedTasks int32    `json:"completed_tasks"`
	FailedTasks    int32    `json:"failed_tasks"`
	Tasks          []string `json:"tasks"`
}

// ProcedureKey is the key of the procedure of an epic.
func ProcedureKey(epicID string) string { return procedureKeys + epicID }

const procedureKeys = "procedure:"

// scope is that of the user of the epic, since goals and results may tell of the user. Only what no user
// began is for everybody.
func (o *Outcome) scope() Scope {
	if o.UserID == "" {
		return Scope{Level: OfNamespace}
	}
	return Scope{Level: OfUser, Subject: o.UserID}
}

// ProcedureOf is the entry of a finished epic. Its confidence is the success rate.
func ProcedureOf(o Outcome) (Entry, error) {
	goal := errs.Clip(plain(o.Goal), maxGoal-len("…"))
	v := procedure{
		EpicID: o.EpicID, Goal: goal, Tags: clipped(o.Tags, MaxTags, MaxTag), WorkflowIDs: clipped(whole(o.Workflows), maxWorkflows, maxWorkflow),
		SuccessRate: o.SuccessRate(), CostUSD: float64(o.NanoUSD) / 1e9, CostTokens: o.Tokens, UnpricedCalls: o.UnpricedCalls,
		TotalTasks: o.Total, CompletedTasks: o.Completed, FailedTasks: o.Failed, Tasks: clipped(o.Tasks, maxTasks, maxTaskTitle),
	}
	var raw bytes.Buffer
	e := json.NewEncoder(&raw)
	e.SetEscapeHTML(false) // which would make six bytes of one
	if err := e.Encode(v); err != nil {
		return Entry{}, err
	}
	text := goal
	if o.Summary != "" {
		text += "\n" + errs.Clip(strings.ToValidUTF8(o.Summary, "�"), maxSummary)
	}
	return Entry{
		Scope: o.scope(), Key: ProcedureKey(o.EpicID), Kind: Procedure, Text: text, Value: bytes.TrimSpace(raw.Bytes()), Tags: v.Tags,
		Origin: ByEpic, Source: o.EpicID, UserID: o.UserID, Confidence: v.SuccessRate,
	}, nil
}

// whole leaves out names that would be cut: they would name something else.
func whole(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(s string) bool { return len(s) > maxWorkflow-len("…") })
}

// clipped are the first texts of a list, each within its bound.
func clipped(list []string, most, each int) []string {
	out := []string{}
	for _, s := range list {
		if s = errs.Clip(strings.TrimSpace(plain(s)), each-len("…")); s != "" && len(out) < most {
			out = append(out, s)
		}
	}
	return out
}

// plain is a text with blanks for control characters.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}
