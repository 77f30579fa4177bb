// Package outbox owns the items that leave the executor for the registry: their kinds, their stored
// form, and the deliverer that delivers them at least once, in the order of each run, however long it takes.
// It must not know how runs go on, nor how the registry is reached.
package outbox

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// The kinds of items.
const (
	KindConfirm = "CONFIRM"
	KindUsage   = "USAGE"
	KindSettle  = "SETTLE"
	KindLearned = "LEARNED"
	KindRun     = "RUN"
	KindThread  = "THREAD"
)

// Kinds that executors of earlier versions wrote of runs of workflows. Their items are delivered as those of
// KindRun are.
const (
	kindEnded  = "ENDED"
	kindPaused = "PAUSED"
)

// Outcome is how the run of a task ended, in the words of the outbox.
type Outcome string

// The outcomes.
const (
	Completed Outcome = "COMPLETED"
	Failed    Outcome = "FAILED"
	Canceled  Outcome = "CANCELED"
)

// Trace is the trace context that an item continues, in W3C form.
type Trace struct {
	Parent string `json:"traceparent,omitempty"`
	State  string `json:"tracestate,omitempty"`
}

// Confirm makes the claim of a task last.
type Confirm struct {
	TaskID string    `json:"task_id"`
	RunID  string    `json:"run_id"`
	Start  time.Time `json:"start"`
	// Workflow is the version of the catalog that the run runs, as SLUG@VERSION; empty for another graph.
	Workflow string `json:"workflow,omitempty"`
	Trace    Trace  `json:"trace,omitzero"`
}

// Entry is one booked call. Its key is run, node, visit, item, attempt and call.
type Entry struct {
	RunID   string `json:"run_id"`
	Node    string `json:"node"`
	Visit   int    `json:"visit"`
	Item    int    `json:"item,omitempty"`
	Attempt int    `json:"attempt"`
	Call    int    `json:"call"`
	// TaskID is the task that pays. EpicID is the epic that does if there is none.
	TaskID          string    `json:"task_id,omitempty"`
	EpicID          string    `json:"epic_id,omitempty"`
	Actor           string    `json:"actor,omitempty"`
	Provider        string    `json:"provider,omitempty"`
	Model           string    `json:"model,omitempty"`
	InputTokens     int64     `json:"input_tokens,omitempty"`
	CachedTokens    int64     `json:"cached_tokens,omitempty"`
	OutputTokens    int64     `json:"output_tokens,omitempty"`
	ReasoningTokens int64     `json:"reasoning_tokens,omitempty"`
	Time            time.Time `json:"time"`
	Failed          bool      `json:"failed,omitempty"`
	// DurationMS is how long the attempt took, on its first call alone; 0 if that is not known.
	DurationMS int64 `json:"duration_ms,omitempty"`
	// Tool says that a tool was called, not a model; Overhead that a model was for an agent's own reasoning.
	Tool     bool `json:"tool,omitempty"`
	Overhead bool `json:"overhead,omitempty"`
	// Embedding says that a model was called for vectors of the memory.
	Embedding bool `json:"embedding,omitempty"`
	// CostNanoUSD is what the call says itself that it cost; nil if it says nothing.
	CostNanoUSD *int64 `json:"cost_nano_usd,omitempty"`
	// Incarnation is that of the owner of the run that reserves for the call, or gives back what was
	// reserved. Usage has none: it is booked whoever tells it.
	Incarnation int64 `json:"-"`
}

// Usage carries the calls of one attempt.
type Usage struct {
	Entries []Entry `json:"entries"`
	Trace   Trace   `json:"trace,omitzero"`
}

// Settle ends the claim of a task with the outcome of its run.
type Settle struct {
	TaskID   string        `json:"task_id"`
	RunID    string        `json:"run_id"`
	Outcome  Outcome       `json:"outcome"`
	Summary  string        `json:"summary,omitempty"`
	Error    string        `json:"error,omitempty"`
	Duration time.Duration `json:"duration"`
	// Workflow is that of the confirm, which may be lost.
	Workflow string    `json:"workflow,omitempty"`
	End      time.Time `json:"end"`
	Trace    Trace     `json:"trace,omitzero"`
}

// Learning is something that an agent has learned.
type Learning struct {
	// ID follows from the agent, the user and the name.
	ID      string    `json:"id"`
	Agent   string    `json:"agent"`
	User    string    `json:"user,omitempty"`
	Name    string    `json:"name"`
	Content string    `json:"content,omitempty"`
	Time    time.Time `json:"time"`
}

// Bounds of a learning, in bytes: what is longer is cut. A text is as long as the memory takes one.
const maxLearningName, maxLearningText = 256, 8 << 10

// NewLearning is what is told of a learning. One without a name is named by its text.
func NewLearning(l workgraph.Learning, at time.Time) Learning {
	out := Learning{Agent: clean(l.Agent, maxLearningName), User: clean(l.User, thread.MaxUser), Name: clean(l.Name, maxLearningName), Content: clean(l.Content, maxLearningText), Time: at}
	if out.Name == "" {
		out.Name = digest(out.Content)[:16]
	}
	out.ID = digest(out.Agent, out.User, out.Name)[:32]
	return out
}

// clean is a text that the memory takes.
func clean(s string, most int) string {
	if s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "�"); len(s) > most {
		return errs.Clip(s, most-len("…"))
	}
	return s
}

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}

// Learned tells the memory what agents of a run have learned in one decision.
type Learned struct {
	RunID string `json:"run_id"`
	// Workflow is the slug of the workflow of the run, or of the nearest one above, if there is one.
	Workflow string `json:"workflow,omitempty"`
	// Learnings are stored under the name that executors of the version before read and write.
	Learnings []Learning `json:"facts"`
	Trace     Trace      `json:"trace,omitzero"`
}

// Out is the stored form of what was learned.
func (l Learned) Out() (journal.Out, error) { return encode(KindLearned, l) }

// Out is the stored form of a confirm.
func (c Confirm) Out() (journal.Out, error) { return encode(KindConfirm, c) }

// Out is the stored form of a usage item.
func (u Usage) Out() (journal.Out, error) { return encode(KindUsage, u) }

// Out is the stored form of a settle.
func (s Settle) Out() (journal.Out, error) { return encode(KindSettle, s) }

func encode(kind string, v any) (journal.Out, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return journal.Out{}, fmt.Errorf("encode %s item: %w", kind, err)
	}
	return journal.Out{Kind: kind, Body: b}, nil
}

func decode[T any](it journal.OutboxItem) (T, error) {
	var v T
	if err := json.Unmarshal(it.Body, &v); err != nil {
		return v, fmt.Errorf("decode %s item %d: %w", it.Kind, it.ID, err)
	}
	return v, nil
}
