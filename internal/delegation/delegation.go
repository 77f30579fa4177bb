// Package delegation has what the tools of delegation are told and tell: epics, tasks and memories as a
// model reads and writes them. It owns the words, the schemas, the reading of arguments and the answers,
// which are the same for agents and for clients of MCP. It must not know how the registry is reached, nor who
// may do what.
package delegation

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"

	"github.com/epigraph-run/epigraph/plan/lenient"
)

// Bounds of one call.
const (
	// MaxTitle, MaxText, MaxTag and MaxSlug bound texts, in bytes; MaxTags and MaxDepends bound lists.
	MaxTitle   = 512
	MaxText    = 16 << 10
	MaxTag     = 128
	MaxSlug    = 256
	MaxTags    = 20
	MaxDepends = 100
	// MaxRequirements and MaxInput bound the requirements and the input of a task in bytes, and MaxID an id.
	MaxRequirements = 16 << 10
	MaxInput        = 64 << 10
	MaxID           = 64
	// MaxEstimate bounds the estimate of a task in tokens, and MaxRetries how often it is tried again.
	MaxEstimate = 1_000_000_000_000
	MaxRetries  = 100
	// MaxFound is how many epics or tasks are told at most. MaxTold and MaxTitleTold bound their texts.
	MaxFound     = 100
	MaxTold      = 300
	MaxTitleTold = 200
	// MaxPages is how many pages are read for one answer.
	MaxPages = 5
	// maxMemoryText and maxMemoryValue bound what is remembered, in bytes.
	maxMemoryText  = 8 << 10
	maxMemoryValue = 16 << 10
	// maxBudget is the largest budget in dollars.
	maxBudget = 1e9
)

// Epic is an epic as a tool makes, changes and tells it.
type Epic struct {
	ID, Title, Description, Status, Result, Workflow, User, Node string
	Tags                                                         []string
	Priority                                                     int
	BudgetTokens, BudgetNanoUSD                                  *int64
	SpentTokens, SpentNanoUSD, OverheadTokens, OverheadNanoUSD   int64
	UnpricedCalls                                                int64
	Total, Completed, Failed                                     int32
	// Root is the maker of the epic, as the registry has it of the executor: see access.Maker. It is
	// empty if no run made it.
	Root string
	// Workflows and SuccessRate are known of epics that were searched for.
	Workflows   []string
	SuccessRate *float64
}

// Task is a task as a tool makes, changes and tells it.
type Task struct {
	ID, EpicID, Title, Description, Status, Result, Error, Note, Workflow, Source, RunID, Node, Policy string
	Tags, DependsOn, BlockedBy                                                                         []string
	Priority                                                                                           int
	// Requirements is a JSON object, or empty.
	Requirements json.RawMessage
	// Input is a JSON object, or empty.
	Input                       json.RawMessage
	EstimatedTokens             int64
	MaxRetries, RetryCount      int32
	ActualTokens, ActualNanoUSD int64
	// RunWorkflow is the version of the catalog that RunID runs, as SLUG@VERSION; empty for another graph.
	RunWorkflow string
}

// Search says which epics are looked for.
type Search struct {
	Text   string
	Tags   []string
	Status string
	Limit  int
	// User leaves out epics of other users; all are found if it is empty.
	User string
}

// Filter says which tasks are listed.
type Filter struct {
	EpicID, Status, Page string
	Tags                 []string
	Limit                int
}

// The words that code asks for.
const (
	// Canceled is the word of the tools for what the API calls canceled.
	Canceled  = "cancelled"
	Running   = "running"
	Completed = "completed"
	Failed    = "failed"
	FromKnown = "existing"
)

// EpicStates are the words for the states of an epic, in the order of the numbers that the registry has for
// them, from 1.
func EpicStates() []string {
	return []string{"planning", "active", "paused", Completed, Failed, Canceled}
}

// TaskStates are the words for the states of a task, in the order of their numbers.
func TaskStates() []string {
	return []string{"pending", "blocked", Running, Completed, Failed, Canceled}
}

// Sources are the words for where the workflow of a task came from, in the order of their numbers.
func Sources() []string { return []string{"inline", FromKnown, "created", "template"} }

// Policies are the words for what becomes of a task that waits in vain, in the order of their numbers.
func Policies() []string { return []string{"block", "skip", "fail"} }

// Dollars are so many nano-dollars.
func Dollars(nano int64) float64 { return math.Round(float64(nano)) / 1e9 }

// OrNone is a list that is [] in JSON where there is none.
func OrNone(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// Given reports whether an argument was there, and not null.
func Given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// Text is the text of a definition: a text, without the fence that models put around it, or JSON.
func Text(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		if bytes.Equal(bytes.TrimSpace(raw), []byte("null")) {
			return ""
		}
		return string(raw)
	}
	if strings.HasPrefix(strings.TrimSpace(text), "```") {
		return lenient.Unfence(text)
	}
	return text
}
