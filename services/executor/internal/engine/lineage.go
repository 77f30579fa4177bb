package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/webhook"
	"github.com/epigraph-run/epigraph/workgraph"
)

// lineage is where a run stands among others, and what its children inherit from it. It does not change.
type lineage struct {
	// Parent is the run that spawned it, at the visit Ref; both are empty for a top run.
	Parent string
	Ref    workgraph.Ref
	// Depth is 0 for a top run; see below.
	Depth int
	// Borrowed says that the task is an ancestor's: costs are booked on it, but it is neither claimed nor
	// ended with this run.
	Borrowed bool
	// approved says of which approval in a run above it the run follows, or the run of which it is a fork;
	// nil of none.
	approved *approved
	// hooks are told what becomes of the run; children do not inherit them.
	hooks []webhook.Hook
	// asks are the places of those hooks of its root that are told of questions, the root's own ones
	// included.
	asks []int

	user, chat, thread string
}

// below is the depth of a child. It counts how often work hands work on: a run that only holds a part of its
// parent's own work, such as a late round of an agent, stands as deep as its parent.
func (f *lineage) below(c *workgraph.Child) int {
	if c.SameDepth {
		return f.Depth
	}
	return f.Depth + 1
}

// reasonParent is why children are canceled.
const reasonParent = "PARENT_GAVE_UP"

// commands adds the commands that a decision causes for other runs: children that should end, and the parent
// that waits for this one.
func (f *lineage) commands(r *run, w *journal.Append, eff workgraph.Effects, now time.Time) error {
	for _, s := range eff.Spawns {
		if _, known := r.children[s.Child.ID]; !known {
			r.children[s.Child.ID] = false
		}
	}
	for _, id := range eff.CancelChildren {
		delete(r.children, id)
		body, err := (&record.Payload{Reason: reasonParent, Trace: tracing.OfSpan(r.trace)}).Encode()
		if err != nil {
			return fmt.Errorf("encode cancel of child: %w", err)
		}
		w.Command = append(w.Command, journal.Command{Namespace: r.namespace, RunID: id, Kind: journal.CommandCancel, Key: "parent", Body: body, Time: now})
	}
	if eff.Ended == nil || f.Parent == "" {
		return nil
	}
	body, err := r.childEnded(eff.Ended).Encode()
	if err != nil {
		return fmt.Errorf("encode end of child: %w", err)
	}
	w.Command = append(w.Command, journal.Command{Namespace: r.namespace, RunID: f.Parent, Kind: journal.CommandChildEnded, Key: r.id, Body: body, Time: now})
	// The executor that knows of the end goes on with the parent, if nobody else does.
	w.Claims = r.t.takes()
	return nil
}

// childEnded tells the parent how the run ended. What is too large for the parent to hold is left out, and
// said so.
func (r *run) childEnded(end *workgraph.RunEnd) *record.Payload {
	slot := &workgraph.ChildSlot{RunID: r.id, Status: end.Status, Reason: end.Reason}
	if e := runError(end); e != nil {
		slot.Error = &workgraph.Error{Type: e.Type, Reason: e.Reason, Message: clean(e.Message, maxMessage)}
		if slot.Error.Type == "" {
			slot.Error.Type = workgraph.Permanent
		}
	}
	size := len(end.Result)
	for k, v := range end.Outputs {
		size += len(k) + len(v)
	}
	switch limit := r.t.e.cfg.MaxPayload / 2; {
	case size <= limit:
		slot.Result, slot.Outputs = end.Result, end.Outputs
	default:
		slot.Error = workgraph.Errorf(workgraph.Permanent, ReasonPayloadTooLarge,
			"the child's results have %d bytes, a parent takes %d: they can be read from run %s", size, limit, r.id)
	}
	totals := r.usage
	l := &record.Payload{Ref: r.lineage.Ref, Slot: slot, Usage: r.state.Usage(), Totals: &totals, Unsettled: slices.Clone(r.state.Unsettled()),
		Trace: tracing.OfSpan(r.trace)}
	if r.state.Budget() != nil {
		used := r.state.Spent()
		l.Spent = &used
	}
	return l
}

// questions puts the rows of what is asked and answered into w.
func (r *run) questions(w *journal.Append, eff workgraph.Effects, now time.Time) {
	for _, o := range eff.Opened {
		q := &o.Interrupt
		w.Opened = append(w.Opened, journal.Interrupt{ID: q.ID, Namespace: r.namespace, RunID: r.id, RootID: r.root, NodeID: o.Node,
			Visit: int32(min(o.Visit, 1<<31-1)), Item: int32(min(o.Item, 1<<31-1)), State: journal.InterruptOpen, Prompt: q.Prompt, Schema: q.Schema,
			Approve: q.Approve, Binds: o.Binds, Default: q.Default, CreateTime: now, ExpireTime: o.Due})
	}
	for _, c := range eff.Closed {
		state := journal.InterruptAnswered
		switch c.How {
		case workgraph.InterruptExpired:
			state = journal.InterruptExpired
		case workgraph.InterruptCanceled:
			state = journal.InterruptCanceled
		}
		w.Closed = append(w.Closed, journal.Closing{ID: c.ID, State: state, Answer: c.Answer, Decision: c.Decision, By: c.By, Time: now})
	}
}

// changeGraph pins the run to the graph that it has come to have.
func (r *run) changeGraph(w *journal.Append, eff workgraph.Effects) error {
	if eff.Graph == nil {
		return nil
	}
	body, err := eff.Graph.Canonical()
	if err != nil {
		return fmt.Errorf("canonical form: %w", err)
	}
	w.GraphHash, w.Graph = record.GraphHash(body), body
	r.graph = w.GraphHash
	r.tally.Total(len(eff.Graph.Nodes))
	r.expanded = program.Weight(r.state.Program(), len(body))
	return nil
}

// roll adds what a child used to the run's own row.
func (r *run) roll(u journal.Usage) {
	r.usage.InputTokens += u.InputTokens
	r.usage.CachedInputTokens += u.CachedInputTokens
	r.usage.OutputTokens += u.OutputTokens
	r.usage.ReasoningTokens += u.ReasoningTokens
	r.usage.Calls += u.Calls
}

// meta is what the run's row keeps in its metadata column.
type meta struct {
	User      json.RawMessage `json:"user,omitempty"`
	RequestID string          `json:"request_id,omitempty"`
	// Principal is who started the run.
	Principal string `json:"principal,omitempty"`
	BodyHash  string `json:"body_hash,omitempty"`
	// Ref, Depth and Borrowed are those of the run's family.
	Ref      *workgraph.Ref `json:"parent_visit,omitempty"`
	Depth    int            `json:"depth,omitempty"`
	Borrowed bool           `json:"borrowed_task,omitempty"`
	// Budget is what the run may use by now.
	Budget *workgraph.Budget `json:"budget,omitempty"`
	// Webhooks are the run's own, Asks those of its root that are told of questions.
	Webhooks []webhook.Hook `json:"webhooks,omitempty"`
	Asks     []int          `json:"webhooks_of_root,omitempty"`
	// Approved is that of the run's family.
	Approved *approved `json:"approved,omitempty"`
}

func (m *meta) empty() bool {
	return m.User == nil && m.RequestID == "" && m.Principal == "" && m.Ref == nil && m.Depth == 0 && !m.Borrowed && m.Budget == nil && len(m.Webhooks) == 0 && len(m.Asks) == 0 && m.Approved == nil
}

// lineageOf reads the family of a run from its row.
func lineageOf(row journal.Run) (lineage, error) {
	f := lineage{Parent: row.ParentID, user: row.UserID, chat: row.ChatID, thread: row.ThreadID}
	m, err := decodeMeta(row.Metadata)
	if err != nil {
		return f, err
	}
	if m.Ref != nil {
		f.Ref = *m.Ref
	}
	f.Depth, f.Borrowed, f.hooks, f.asks, f.approved = m.Depth, m.Borrowed, m.Webhooks, m.Asks, m.Approved
	if f.Parent == "" {
		f.asks = webhook.Wanting(f.hooks, webhook.InterruptOpened)
	}
	return f, nil
}

func decodeMeta(b []byte) (meta, error) {
	var m meta
	if len(b) == 0 {
		return m, nil
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("decode metadata: %w", err)
	}
	return m, nil
}

// Given is what callers gave to be kept with a run.
type Given struct {
	// Metadata is that of the caller of Start.
	Metadata json.RawMessage
	// Budget is that of the caller of Start, or of Resume since; nil is no limit.
	Budget *workgraph.Budget
	// Principal is who started it, from the API key that was shown.
	Principal string
	// Webhooks are shown: without what is secret.
	Webhooks []webhook.Hook
}

// GivenOf reads what callers gave from the metadata of a run's row.
func GivenOf(row []byte) (Given, error) {
	m, err := decodeMeta(row)
	return Given{Metadata: m.User, Budget: m.Budget, Principal: m.Principal, Webhooks: webhook.Without(m.Webhooks)}, err
}

// Disclosed is the metadata of a run's row as it may leave the executor: without the secrets of webhooks.
func Disclosed(row []byte) ([]byte, error) {
	m, err := decodeMeta(row)
	if err != nil || len(m.Webhooks) == 0 {
		return row, err
	}
	m.Webhooks = webhook.Without(m.Webhooks)
	return json.Marshal(m)
}
