package query

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/attempttoken"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/phrase"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/sched"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// BlockerKind is the kind of a blocker. The numbers are those of the API.
type BlockerKind int32

// The kinds of blockers.
const (
	BlockerRunning          BlockerKind = 1
	BlockerDependency       BlockerKind = 2
	BlockerInterrupt        BlockerKind = 3
	BlockerBackoff          BlockerKind = 4
	BlockerTimer            BlockerKind = 5
	BlockerChildren         BlockerKind = 6
	BlockerCompletion       BlockerKind = 7
	BlockerSignal           BlockerKind = 8
	BlockerInbox            BlockerKind = 9
	BlockerNoWorker         BlockerKind = 10
	BlockerBudget           BlockerKind = 11
	BlockerPaused           BlockerKind = 12
	BlockerLostOwner        BlockerKind = 13
	BlockerConcurrencyKey   BlockerKind = 14
	BlockerConcurrencyLimit BlockerKind = 15
	BlockerRateLimit        BlockerKind = 16
	BlockerQuota            BlockerKind = 17
	BlockerExecutorFull     BlockerKind = 18
	BlockerReconciliation   BlockerKind = 19
	BlockerQuarantined      BlockerKind = 20
	BlockerStartTime        BlockerKind = 21
	BlockerDraining         BlockerKind = 22
	BlockerUnappliedCommand BlockerKind = 23
	BlockerEnded            BlockerKind = 24
	BlockerAmendRefused     BlockerKind = 25
	BlockerChildFailed      BlockerKind = 26
	BlockerSuspect          BlockerKind = 27
	BlockerModelAccount     BlockerKind = 28
)

// Blocker is one reason why a run does not go on.
type Blocker struct {
	Kind BlockerKind
	// Ref is the visit concerned; the zero value means the whole run.
	Ref           workgraph.Ref
	Message, Hint string
	// Since and Until may be zero.
	Since, Until              time.Time
	RunIDs, Nodes, Interrupts []string
	// Actor is the called actor. Name is the key, limit, signal or executor, depending on the kind.
	Actor, Name string
	// Error is the failure of the run, of a child, or of the visit's last attempt. Attempt is the present
	// or next attempt, or the last one of a failure. Of is the number of the last attempt allowed. Both are
	// 0 where there are no attempts.
	Error       *record.RunError
	Attempt, Of int
	// EffectKey is the key of a call whose outcome is unknown.
	EffectKey string
}

// maxErrorText bounds an error in a sentence. The whole error is in Blocker.Error.
const maxErrorText = 400

// errorText is an error as part of a sentence.
func errorText(e *record.RunError) string {
	text := e.Message
	for i, r := range text {
		if r == '\n' { // an excerpt of the text with a marker may follow
			text = text[:i]
			break
		}
	}
	if text = phrase.Cut(text, maxErrorText); text == "" {
		return e.Reason
	}
	return e.Reason + ": " + text
}

// attempt is "attempt 2 of 3".
func (h *Blocker) attempt() string {
	if h.Of > 0 {
		return fmt.Sprintf("attempt %d of %d", h.Attempt, h.Of)
	}
	return fmt.Sprintf("attempt %d", h.Attempt)
}

// lastError is a clause about the end of the last attempt, or empty.
func (h *Blocker) lastError() string {
	if h.Error == nil {
		return ""
	}
	return "; the last one ended with " + errorText(h.Error)
}

// Explanation says why a run does not go on.
type Explanation struct {
	Row     journal.Run
	Summary string
	// Blockers has the most useful ones first. More is how many were left out.
	Blockers []Blocker
	More     int
	// Unpriced counts calls without a known price. Their money is not counted.
	Unpriced int64
	// Owner is the owner of the run. Addr is where another executor that owns it can be asked for what only
	// its memory has.
	Owner, Addr string
}

const (
	// maxBlockers bounds an explanation.
	maxBlockers = 1000
	// maxApproval bounds, in characters, how much of the value to be approved a message shows.
	maxApproval = 200
	// commandAgeLimit is the age from which an unapplied command is reported as a blocker.
	commandAgeLimit = 2 * time.Second
	// shownChildren bounds the children that are examined.
	shownChildren = 20
)

// Explain explains from the journal why a run does not go on. Arrange adds what only the owner's memory
// has.
func (q *Query) Explain(ctx context.Context, namespace, runID string) (*Explanation, error) {
	look, row, err := q.engine.Inspect(ctx, namespace, runID)
	if err != nil {
		return nil, err
	}
	x := &Explanation{Row: row, Unpriced: row.UnpricedCalls}
	if row.State.Ended() {
		return x, q.explainEnded(ctx, x, look)
	}
	if err := q.ownerBlocker(ctx, x); err != nil {
		return nil, err
	}
	if err := q.commandBlockers(ctx, x); err != nil {
		return nil, err
	}
	begun := row.LastSeq > 0
	switch {
	case !begun:
		x.Blockers = append(x.Blockers, pending(row))
	case row.State == journal.StateQuarantined:
		during := ""
		look(func(s *workgraph.State) { during = underWay(s.Outstanding()) })
		x.Blockers = append(x.Blockers, Blocker{Kind: BlockerQuarantined, Since: row.UpdateTime,
			Message: "the run is quarantined, because its executors went down each time" + atDeath(row) + during,
			Hint:    phrase.Command("runs resume "+row.ID) + " tries again; " + phrase.Command("runs cancel "+row.ID) + " ends it"})
	}
	if q.engine.TakeOverPolicy().Suspect(row.Takeovers) && row.State != journal.StateQuarantined {
		x.Blockers = append(x.Blockers, Blocker{Kind: BlockerSuspect, Message: fmt.Sprintf("its executors went down %d times without progress; suspects run one at a time, "+
			"and their calls are recorded first", row.Takeovers) + atDeath(row), Hint: "if another executor goes down while it works, it is quarantined; otherwise it continues"})
	}
	if begun {
		nodes, err := q.engine.Positions().Nodes(ctx, row)
		if err != nil {
			return nil, err
		}
		look(func(s *workgraph.State) {
			x.stateBlockers(row, s, nodes, q.engine.Tokens())
			x.Unpriced = max(x.Unpriced, s.Spent().Unpriced)
		})
		if err := q.childBlockers(ctx, x); err != nil {
			return nil, err
		}
		if err := q.refusedAmendment(ctx, x); err != nil {
			return nil, err
		}
	}
	x.Arrange(q.BlockersHere(namespace, runID))
	return x, nil
}

// atDeath is a clause about the work of the run when its executor died.
func atDeath(row journal.Run) string {
	if row.DiedDoing == "" {
		return ""
	}
	return "; the last one while it was at work with: " + row.DiedDoing
}

// BlockersHere returns what only the owner's memory has: attempts that have not begun and their gates, and
// the start times of the others. It is empty if this executor does not own the run.
func (q *Query) BlockersHere(namespace, runID string) []Blocker {
	if since, ok := q.engine.WaitsForRoom(namespace, runID); ok {
		return []Blocker{{Kind: BlockerExecutorFull, Since: since,
			Message: "the run waits for memory: the live runs of its executor, or of its namespace there, have reached their bound",
			Hint:    "more executors, or a higher executor.max_live, allow more live runs"}}
	}
	flights := q.engine.InFlight(namespace, runID)
	if len(flights) == 0 {
		return nil
	}
	held := map[workgraph.Ref]bool{}
	var out []Blocker
	for _, h := range q.engine.HeldBack(namespace, runID) {
		held[h.Ref] = true
		out = append(out, gateBlocker(runID, h))
	}
	for _, f := range flights {
		if !held[f.Ref] && !f.Start.IsZero() {
			out = append(out, Blocker{Kind: BlockerRunning, Ref: f.Ref, Actor: f.Actor, Since: f.Start, Attempt: f.Attempt,
				Message: fmt.Sprintf("%s calls %s, attempt %d", f.Ref, f.Actor, f.Attempt)})
		}
	}
	return out
}

func gateBlocker(runID string, h engine.Held) Blocker {
	b := h.Wait
	out := Blocker{Ref: h.Ref, Actor: h.Actor, Name: b.Name, Since: b.Since, Until: b.Until, RunIDs: b.HolderRunIDs}
	switch b.Kind {
	case sched.GateKey:
		out.Kind, out.Message = BlockerConcurrencyKey, fmt.Sprintf("%s waits for the concurrency key %q", h.Ref, b.Name)
		switch {
		case slices.Contains(b.HolderRunIDs, runID):
			out.Message += ", which another call of this run holds"
		case len(b.HolderRunIDs) > 0:
			out.Message += ", which " + strings.Join(b.HolderRunIDs[:min(3, len(b.HolderRunIDs))], ", ") + " holds"
			out.Hint = phrase.Command("runs explain "+b.HolderRunIDs[0]) + " explains that run"
		}
	case sched.GateLimit:
		out.Kind, out.Message = BlockerConcurrencyLimit, fmt.Sprintf("%s waits, because %s allows no more calls at once", h.Ref, b.Name)
		out.Hint = phrase.Command("limits list") + " shows the limits"
	case sched.GateRate:
		out.Kind, out.Message = BlockerRateLimit, fmt.Sprintf("%s waits, because %s allows no more calls in this interval", h.Ref, b.Name)
		out.Hint = phrase.Command("limits list") + " shows the limits"
	case sched.GateAccount:
		out.Kind, out.Message = BlockerModelAccount, fmt.Sprintf("%s waits for room in the limits of the model account %s", h.Ref, b.Name)
		out.Hint = "models.accounts." + b.Name + " has the limits; a fallback of the profile with another account shares the load"
	case sched.GateWorker:
		out.Kind, out.Message = BlockerNoWorker, fmt.Sprintf("%s waits for a worker that serves %s", h.Ref, h.Actor)
		out.Hint = phrase.Command("workers list") + " lists the connected workers; start one that serves " + h.Actor
	default:
		out.Kind, out.Message = BlockerExecutorFull, fmt.Sprintf("%s waits for a free slot of the executor", h.Ref)
		out.Hint = "more executors, or a higher executor.parallel, allow more calls at once"
	}
	if b.Message != "" {
		out.Message += ": " + b.Message
	}
	return out
}

// underWay is a clause about the calls that were under way when an owner died.
func underWay(calls []workgraph.Start) string {
	if len(calls) == 0 {
		return ""
	}
	var names []string
	for _, c := range calls[:min(3, len(calls))] {
		names = append(names, fmt.Sprintf("%s called %s, attempt %d", c.Ref, c.Actor, c.Attempt))
	}
	if n := len(calls) - len(names); n > 0 {
		names = append(names, fmt.Sprintf("%d more", n))
	}
	return "; under way: " + strings.Join(names, ", ")
}

// shownFailures bounds the failed children in an explanation.
const shownFailures = 5

// failedChildren adds the failures of the children that the run's own failure names.
func (q *Query) failedChildren(ctx context.Context, x *Explanation) error {
	h := x.Blockers[0]
	if h.Error == nil || h.Error.Reason != workgraph.ReasonChildFailed {
		return nil
	}
	rows, err := q.journal.List(ctx, x.Row.Namespace, journal.Filter{ParentID: x.Row.ID, States: []journal.State{journal.StateFailed, journal.StateCanceled}},
		page.Cursor{}, 100)
	if err != nil {
		return err
	}
	var named, others []Blocker
	for _, row := range rows {
		full, err := q.journal.Head(ctx, x.Row.Namespace, row.ID)
		if err != nil {
			continue // it was deleted
		}
		c := childFailed(h.Ref, full)
		if strings.Contains(h.Error.Message, row.ID) {
			named = append(named, c)
		} else if len(others) < shownFailures {
			others = append(others, c)
		}
		if len(named) >= shownFailures {
			break
		}
	}
	if len(named) == 0 {
		named = others
	}
	x.Blockers = append(x.Blockers, named...)
	return nil
}

// childFailed is the failure of a child. by is the visit that waits or waited for it.
func childFailed(by workgraph.Ref, row journal.Run) Blocker {
	end := ended(row)
	h := Blocker{Kind: BlockerChildFailed, Ref: by, RunIDs: []string{row.ID}, Error: end.Error, Since: end.Since,
		Message: fmt.Sprintf("child run %s ended %s", row.ID, row.State), Hint: phrase.Command("runs explain "+row.ID) + " says more"}
	if e := end.Error; e != nil {
		if e.Node != "" {
			h.Message += " at " + workgraph.Ref{Node: e.Node, Visit: e.Visit}.String()
		}
		h.Message += ": " + errorText(e)
	}
	return h
}

// pending says why a run has not begun.
func pending(row journal.Run) Blocker {
	out := Blocker{Kind: BlockerQuota, Name: row.Reason, Since: row.CreateTime, Until: row.WakeTime, Message: "the run waits for its turn"}
	switch {
	case row.Reason == "START_TIME" || row.WakeTime.After(time.Now()):
		out.Kind, out.Message = BlockerStartTime, "the run is to start at "+row.WakeTime.Format(time.RFC3339)
	case row.Reason == "BACKLOG":
		out.Kind, out.Message = BlockerExecutorFull, "earlier runs, and runs of a higher priority, start first"
	case row.Reason != "":
		out.Message = "the namespace has reached its quota"
		out.Hint = phrase.Command("limits list") + " shows the limits"
	}
	return out
}

// ownerBlocker finds the owner of the run, and reports an owner that is no longer registered.
func (q *Query) ownerBlocker(ctx context.Context, x *Explanation) error {
	if x.Row.Owner.IsZero() {
		return nil
	}
	x.Owner = x.Row.Owner.ID
	if q.engine.Owns(x.Row.Owner) {
		return nil
	}
	all, err := q.journal.Executors(ctx)
	if err != nil {
		return err
	}
	at := slices.IndexFunc(all, func(o journal.Executor) bool { return o.Owner == x.Row.Owner })
	lost := Blocker{Kind: BlockerLostOwner, Name: x.Owner, Message: fmt.Sprintf("executor %s, which owned the run, is gone", x.Owner),
		Hint: "another executor takes it over in a moment; if none does, check that one is running"}
	switch {
	case at < 0:
	case all[at].SinceHeartbeat > q.engine.Lease():
		lost.Message = fmt.Sprintf("executor %s, which owns the run, sent its last heartbeat %s ago", x.Owner, all[at].SinceHeartbeat.Round(time.Second))
		lost.Since = time.Now().Add(-all[at].SinceHeartbeat)
	default:
		x.Addr = all[at].Addr
		return nil
	}
	x.Blockers = append(x.Blockers, lost)
	return nil
}

// commandBlockers reports commands that were not applied in time. Signals and messages of a run that has
// not begun are kept for it and block nothing.
func (q *Query) commandBlockers(ctx context.Context, x *Explanation) error {
	commands, err := q.journal.UnappliedCommands(ctx, x.Row.Namespace, x.Row.ID, 100)
	if x.Row.State == journal.StatePending {
		commands = slices.DeleteFunc(commands, func(m journal.Command) bool { return journal.Endless(m.Kind) })
	}
	if err != nil || len(commands) == 0 || time.Since(commands[0].Time) < commandAgeLimit {
		return err
	}
	kinds := map[journal.CommandKind]int{}
	var names []string
	for _, m := range commands {
		if kinds[m.Kind]++; kinds[m.Kind] == 1 {
			names = append(names, string(m.Kind))
		}
	}
	x.Blockers = append(x.Blockers, Blocker{Kind: BlockerUnappliedCommand, Since: commands[0].Time, Name: strings.Join(names, ", "),
		Message: fmt.Sprintf("%s not applied yet: %s", phrase.Counted(len(commands), "command"), strings.Join(names, ", ")),
		Hint:    "an executor applies them in a moment; if it does not, check that an executor is running"})
	return nil
}

// stateBlockers adds the blockers that the machine knows.
func (x *Explanation) stateBlockers(row journal.Run, s *workgraph.State, nodes map[string]workgraph.Node, tokens attempttoken.Keys) {
	unknown, held := 0, 0
	approvals := map[string]json.RawMessage{}
	s.Waits(func(w workgraph.WaitInfo) bool {
		if w.Interrupt != nil && len(w.Interrupt.Approve) > 0 {
			approvals[w.Interrupt.ID] = w.Interrupt.Approve
		}
		return true
	})
	agent := ofAgent(nodes)
	for _, r := range s.Why(maxBlockers + 1) {
		switch r.Cause {
		case workgraph.CauseDependency:
			if agent {
				continue // every step of a loop waits for another one
			}
		case workgraph.CauseReconciliation:
			unknown++
		case workgraph.CauseHeld:
			held++
			continue // the pause is reported once
		}
		x.Blockers = append(x.Blockers, reasonBlocker(row, r, nodes[r.Node], approvals, tokens))
	}
	switch st, reason := s.Status(); st {
	case workgraph.StatusPaused:
		if row.State != journal.StateQuarantined {
			x.Blockers = append(x.Blockers, paused(row, reason, s, unknown, held))
		}
	case workgraph.StatusDraining:
		x.Blockers = append(x.Blockers, Blocker{Kind: BlockerDraining, Name: reason,
			Message: fmt.Sprintf("the run is ending (%s) and waits for calls in flight", reason)})
	}
}

// ofAgent reports whether these are the nodes of the run that an agent works in. Nobody else's graph has
// steps of its loop.
func ofAgent(nodes map[string]workgraph.Node) bool {
	for _, n := range nodes {
		if strings.HasPrefix(n.Actor, "loop/") {
			return true
		}
	}
	return false
}

// epicPaused is the reason of a run that the registry has paused with the epic of its task.
const epicPaused = "EPIC_PAUSED"

func paused(row journal.Run, reason string, s *workgraph.State, unknown, held int) Blocker {
	h := Blocker{Kind: BlockerPaused, Name: reason, Since: row.UpdateTime, Message: "the run is paused", Hint: phrase.Command("runs resume "+row.ID) + " continues it"}
	b, used := s.Budget(), s.Spent()
	if open := s.Unsettled(); len(open) > 0 && reason == workgraph.ReasonUnsettled {
		h.Kind, h.Since, h.Until = BlockerBudget, open[0].At, row.WakeTime
		h.Message = fmt.Sprintf("the run waits for the price of %s, because the registry was away; all other usage is %s",
			phrase.Counted(len(open), "call"), phrase.Spent(b, used))
		h.Hint = "check that the registry is running: the run continues by itself when it answers"
	} else if no := s.Refused(); no != nil {
		h.Kind, h.Ref, h.Since, h.Until = BlockerBudget, no.Ref, no.At, row.WakeTime
		h.Message = "a cap above the run leaves no room for a call of " + no.Node + ": " + no.Message
		h.Hint = "the run continues by itself, within a minute, once there is room"
	} else if b.UsedUp(used) {
		h.Kind, h.Hint, h.Message = BlockerBudget, phrase.RaiseHint(row.ID, b, used), "the run has used up its budget: "+phrase.Spent(b, used)
		if reason != workgraph.ReasonBudget && reason != "" {
			h.Message += "; it was paused before: " + reason
		}
	} else if reason == epicPaused {
		h.Message = "the run is paused with the epic of its task: " + reason
		h.Hint = phrase.Command("epics resume EPIC") + " resumes both (" + phrase.Command("tasks show "+row.TaskID) + " names the epic), or a higher budget of the epic if that is spent; " + h.Hint + " alone"
	} else if reason != "" {
		h.Message += ": " + reason
	}
	if open := s.Unsettled(); len(open) > 0 && reason != workgraph.ReasonUnsettled {
		h.Message += "; " + phrase.Counted(len(open), "call") + " not priced yet"
	}
	if held > 0 {
		h.Message += fmt.Sprintf(", and holds %s back", phrase.Counted(held, "start"))
	}
	if s.Stopping() {
		h.Message += "; it was asked to stop, and ends once it is resumed"
	}
	if unknown > 0 {
		h.Hint = "first record the outcome of these calls, then " + phrase.Command("runs resume "+row.ID)
	}
	return h
}

// reasonBlocker describes one reason of the machine.
func reasonBlocker(row journal.Run, r workgraph.Reason, n workgraph.Node, approvals map[string]json.RawMessage, tokens attempttoken.Keys) Blocker {
	h := Blocker{Ref: r.Ref, Until: r.Due, Attempt: r.Attempt, Of: r.Of, Actor: n.Actor}
	if r.Error != nil {
		h.Error = &record.RunError{Type: r.Error.Type, Reason: r.Error.Reason, Message: r.Error.Message, Node: r.Node, Visit: r.Visit}
	}
	first := ""
	if len(r.On) > 0 {
		first = r.On[0]
	}
	some := strings.Join(r.On[:min(5, len(r.On))], ", ")
	if more := r.More + max(len(r.On)-5, 0); more > 0 {
		some += fmt.Sprintf(" and %d more", more)
	}
	switch r.Cause {
	case workgraph.CauseReconciliation:
		h.Kind, h.EffectKey = BlockerReconciliation, workgraph.EffectKey(row.ID, r.Ref, r.Generation)
		h.Message = fmt.Sprintf("the UNSAFE call of %s, %s, has an unknown outcome", r.Ref, h.attempt())
		if h.Error != nil {
			h.Message += "; it ended with " + errorText(h.Error)
		}
		which := fmt.Sprintf("--visit %d", r.Visit)
		if r.Item > 0 {
			which += fmt.Sprintf(" --item %d", r.Item)
		}
		h.Hint = phrase.Command(fmt.Sprintf("runs reconcile %s %s %s --performed VALUE | --failed REASON | --not-performed", row.ID, r.Node, which))
	case workgraph.CauseLimit:
		h.Kind, h.Name, h.Message = BlockerPaused, string(r.Cause), fmt.Sprintf("the loop of %s has reached its max_visits, %d", r.Node, r.Have)
		h.Hint = phrase.Command("runs resume "+row.ID) + " gives it as many visits again"
	case workgraph.CauseInterrupt:
		h.Kind, h.Interrupts, h.Message = BlockerInterrupt, r.On, fmt.Sprintf("%s waits for the answer to %s", r.Ref, first)
		h.Hint = phrase.Command("interrupts answer " + first + " VALUE")
		if what, ok := approvals[first]; ok {
			h.Message = fmt.Sprintf("%s waits for the approval of %s, %s", r.Ref, phrase.Cut(string(what), maxApproval), first)
			h.Hint = phrase.Command("interrupts answer " + first + " yes|no")
		}
	case workgraph.CauseCompletion:
		token := attempttoken.Token{Namespace: row.Namespace, RunID: row.ID, Node: r.Node, Visit: r.Visit, Item: r.Item, Attempt: r.Attempt}
		h.Kind, h.Message = BlockerCompletion, fmt.Sprintf("%s waits for work outside", r.Ref)
		h.Hint = phrase.Command("attempts complete " + tokens.Sign(token) + " --value VALUE")
	case workgraph.CauseSignal:
		h.Kind, h.Name, h.Message = BlockerSignal, first, fmt.Sprintf("%s waits for the signal %q", r.Ref, first)
		h.Hint = phrase.Command(fmt.Sprintf("runs signal %s %s VALUE", row.ID, first))
	case workgraph.CauseChildren:
		h.Kind, h.RunIDs, h.Message = BlockerChildren, r.On, fmt.Sprintf("%s waits for %s", r.Ref, phrase.Counted(len(r.On)+r.More, "child run"))
		h.Hint = phrase.Command("runs explain "+first) + " explains that run"
	case workgraph.CauseTimer:
		h.Kind, h.Message = BlockerTimer, fmt.Sprintf("%s sleeps until %s", r.Ref, r.Due.Format(time.RFC3339))
	case workgraph.CauseBackoff:
		h.Kind, h.Message = BlockerBackoff, fmt.Sprintf("%s failed and is tried again at %s, %s%s", r.Ref, r.Due.Format(time.RFC3339), h.attempt(), h.lastError())
	case workgraph.CauseCanceling:
		h.Kind, h.Message = BlockerRunning, fmt.Sprintf("%s was asked to stop and has not ended yet", r.Ref)
	case workgraph.CauseRunning:
		h.Kind, h.Message = BlockerRunning, fmt.Sprintf("%s calls %s, %s%s", r.Ref, h.Actor, h.attempt(), h.lastError())
	case workgraph.CauseInbox:
		h.Kind, h.Message = BlockerInbox, fmt.Sprintf("%s has %s and waits for %d", r.Ref, phrase.Counted(r.Have, "message"), r.Need)
		sender := "NAME"
		if n.On != nil && n.On.Inbox != nil && len(n.On.Inbox.From) > 0 {
			sender = n.On.Inbox.From[0]
		}
		h.Hint = phrase.Command(fmt.Sprintf("runs send %s MESSAGE --from %s", row.ID, sender))
	default:
		h.Kind, h.Nodes, h.Message = BlockerDependency, r.On, fmt.Sprintf("%s waits for %s", r.Ref, some)
	}
	return h
}

// childBlockers reports the awaited children that need help themselves.
func (q *Query) childBlockers(ctx context.Context, x *Explanation) error {
	var poor, failures []Blocker
	for i := range x.Blockers {
		h := &x.Blockers[i]
		if h.Kind != BlockerChildren {
			continue
		}
		var stuck, spent, unsettled []string
		for _, id := range h.RunIDs[:min(len(h.RunIDs), shownChildren)] {
			row, err := q.journal.Head(ctx, x.Row.Namespace, id)
			if err != nil {
				continue // it is being recorded, or was deleted
			}
			if row.State == journal.StatePaused && row.Reason == workgraph.ReasonBudget {
				spent = append(spent, id)
			}
			if row.State == journal.StatePaused && row.Reason == workgraph.ReasonUnsettled {
				unsettled = append(unsettled, id)
			}
			if row.State == journal.StateFailed && len(failures) < shownFailures {
				failures = append(failures, childFailed(h.Ref, row))
			}
			if row.State != journal.StateRunning {
				stuck = append(stuck, id+" is "+row.State.String())
				if len(stuck) == 1 {
					h.Hint = phrase.Command("runs explain "+id) + " explains that run"
				}
			}
		}
		if len(stuck) > 0 {
			h.Message += ": " + strings.Join(stuck[:min(5, len(stuck))], ", ")
		}
		if len(unsettled) > 0 {
			poor = append(poor, Blocker{Kind: BlockerBudget, Ref: h.Ref, RunIDs: unsettled, Name: workgraph.ReasonUnsettled,
				Message: fmt.Sprintf("%s of %s wait for the price of their calls: %s", phrase.Counted(len(unsettled), "child run"), h.Ref, strings.Join(unsettled[:min(5, len(unsettled))], ", ")),
				Hint:    "check that the registry is running: they continue by themselves when it answers"})
		}
		if len(spent) > 0 {
			poor = append(poor, Blocker{Kind: BlockerBudget, Ref: h.Ref, RunIDs: spent, Name: workgraph.ReasonBudget,
				Message: fmt.Sprintf("%s of %s used up their budget: %s", phrase.Counted(len(spent), "child run"), h.Ref, strings.Join(spent[:min(5, len(spent))], ", ")),
				Hint: fmt.Sprintf("`epigraph runs resume %s` with a higher --budget-usd or --budget-tokens gives its rest to the children; a child with a lower budget of its own must be resumed itself: `epigraph runs explain %s` shows its usage",
					x.Row.ID, spent[0])})
		}
	}
	x.Blockers = append(append(x.Blockers, poor...), failures...)
	return nil
}

// rank orders kinds: those that a person can act on come first.
func (k BlockerKind) rank() int {
	order := []BlockerKind{
		BlockerEnded, BlockerChildFailed, BlockerLostOwner, BlockerQuarantined, BlockerReconciliation, BlockerBudget, BlockerPaused, BlockerStartTime, BlockerQuota, BlockerInterrupt,
		BlockerCompletion, BlockerNoWorker, BlockerSignal, BlockerConcurrencyKey, BlockerConcurrencyLimit, BlockerRateLimit, BlockerModelAccount, BlockerExecutorFull, BlockerChildren,
		BlockerUnappliedCommand, BlockerBackoff, BlockerTimer, BlockerRunning, BlockerSuspect, BlockerDraining, BlockerInbox, BlockerDependency, BlockerAmendRefused,
	}
	return slices.Index(order, k)
}

// Arrange adds what only the owner's memory has, orders the blockers and writes the summary. It may be
// called again.
func (x *Explanation) Arrange(local []Blocker) {
	known := map[workgraph.Ref]int{}
	for i, h := range local {
		known[h.Ref] = i
	}
	full, waits := known[workgraph.Ref{}]
	waits = waits && local[full].Kind == BlockerExecutorFull
	all := slices.DeleteFunc(x.Blockers, func(h Blocker) bool {
		if waits && h.Kind == BlockerRunning {
			return true // nothing of it runs before it is loaded
		}
		i, ok := known[h.Ref]
		if !ok || h.Kind != BlockerRunning {
			return false
		}
		// Only the journal has the error of the last attempt.
		if l := &local[i]; l.Error == nil && h.Error != nil {
			l.Error = h.Error
			l.Message += h.lastError()
		}
		local[i].Attempt, local[i].Of = h.Attempt, h.Of
		return true
	})
	all = append(all, local...)
	slices.SortStableFunc(all, func(a, b Blocker) int {
		if c := cmp.Compare(a.Kind.rank(), b.Kind.rank()); c != 0 {
			return c
		}
		return a.Until.Compare(b.Until)
	})
	x.Blockers = all
	if n := len(all) - maxBlockers; n > 0 {
		x.Blockers, x.More = all[:maxBlockers], x.More+n
	}
	x.Summary = x.summary()
	if x.Unpriced > 0 && !strings.Contains(x.Summary, phrase.WithoutPrice) {
		x.Summary += "; " + phrase.NoPrice(x.Unpriced)
	}
}

// summary describes the first blocker in a sentence.
func (x *Explanation) summary() string {
	all := x.Blockers
	if len(all) == 0 {
		return "nothing holds it up: it moves, or has just stopped to"
	}
	if all[0].Kind == BlockerAmendRefused {
		return "nothing holds it up: it moves, or has just stopped to; " + all[0].Message
	}
	others := 0
	for _, h := range all[1:] {
		if h.Kind != BlockerDependency && h.Kind != BlockerInbox && h.Kind != BlockerAmendRefused {
			others++
		}
	}
	if others += x.More; others > 0 {
		return all[0].Message + fmt.Sprintf(" (and %d more)", others)
	}
	return all[0].Message
}

// refusedAmendment reports the last amendment if it was refused after its request had timed out.
func (q *Query) refusedAmendment(ctx context.Context, x *Explanation) error {
	f, err := q.engine.LastRefusal(ctx, x.Row.Namespace, x.Row.ID)
	if err != nil || f == nil {
		return err
	}
	h := Blocker{Kind: BlockerAmendRefused, Since: f.Time, Name: f.RequestID, Message: "an amendment was refused: " + f.Message,
		Hint: "epigraph runs graph " + x.Row.ID + " --json shows the present graph; change only nodes that have not run"}
	if f.By != "" {
		h.Message = "an amendment by " + f.By + " was refused: " + f.Message
	}
	x.Blockers = append(x.Blockers, h)
	return nil
}
