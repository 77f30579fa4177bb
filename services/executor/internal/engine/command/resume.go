package command

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Reasons of refused resumptions and reconciliations.
const (
	// ReasonNotPaused is the reason when a run is not paused. Meta "state" has its state.
	ReasonNotPaused = "RUN_NOT_PAUSED"
	// ReasonReconciliationNeeded is the reason when calls have an unknown outcome. Meta "visits" names
	// them.
	ReasonReconciliationNeeded = "RECONCILIATION_NEEDED"
	// ReasonNotInReconciliation is the reason when a visit has no call with an unknown outcome.
	ReasonNotInReconciliation = "VISIT_NOT_IN_RECONCILIATION"
	// ReasonOutcomeInvalid is the reason when an outcome has values that no call can return.
	ReasonOutcomeInvalid = "OUTCOME_INVALID"
)

// ResumeRequest asks a paused run to continue.
type ResumeRequest struct {
	Namespace, RunID string
	Reason           string
	// Step pauses the run again after one round of a loop.
	Step bool
	// Budget has caps that replace those of the run; nil changes nothing.
	Budget *workgraph.Budget
	// Revision, if not 0, must equal the run's revision.
	Revision int64
	// Request makes repeats do nothing. A repeat with another body is refused.
	Request journal.Request
	// Recorded returns once the command is recorded, and does not wait until the owner has applied it.
	Recorded bool
}

// ReconcileRequest records the outcome of a visit's call whose outcome is unknown. Exactly one of Outcome
// and Err is set. Err is PERMANENT or NOT_PERFORMED.
type ReconcileRequest struct {
	Namespace, RunID string
	Ref              workgraph.Ref
	Outcome          *workgraph.Outcome
	Err              *workgraph.Error
	By               string
	// Request makes repeats do nothing. A repeat with another body is refused.
	Request journal.Request
}

// Resume continues a paused or quarantined run. It returns once the owner has applied the command, or after
// effectWait; Unapplied tells which. For a run that is not paused it only changes the budget, if the
// request has one, and else resumes the paused runs below.
func (h *Handler) Resume(ctx context.Context, req ResumeRequest) error {
	req.Request.Method = MethodResume
	given := !req.Budget.IsZero()
	key := "resume"
	if given { // each change of a budget counts, also while the run is not paused
		key += "/" + commandKey(req.Request)
	}
	if done, err := h.isRepeat(ctx, req.Namespace, req.RunID, req.Request); err != nil || done {
		if done {
			_, err = h.applied(ctx, req.Namespace, req.RunID, journal.CommandResume, key)
		}
		return err
	}
	if err := CheckBudget(req.Budget); err != nil {
		return err
	}
	row, err := h.pausedHead(ctx, req.Namespace, req.RunID)
	if err != nil {
		return err
	}
	if goesOn(row.State) && given && req.Step {
		return notPaused(row).Hint("change the budget first, without a step")
	}
	if goesOn(row.State) && !given {
		return h.resumeBelow(ctx, row, req)
	}
	if req.Revision != 0 && req.Revision != row.Revision {
		return journal.EtagMismatch(row.ID)
	}
	if row.State.Ended() {
		return notPaused(row)
	}
	if !goesOn(row.State) {
		if err := h.checkResume(ctx, row, req.Budget); err != nil {
			return err
		}
	}
	p := journal.EnqueueRequest{Revision: req.Revision, Request: req.Request, Open: []journal.State{journal.StatePaused, journal.StateQuarantined},
		Command: journal.Command{Namespace: req.Namespace, RunID: req.RunID, Kind: journal.CommandResume, Key: key}}
	if given {
		p.Open = openStates()
	}
	// Every command raises the revision, so a given Revision excludes any command in between.
	_, err = h.enqueue(ctx, p, &record.Payload{Reason: req.Reason, Step: req.Step, RequestID: req.Request.ID, Budget: req.Budget})
	switch errs.ReasonOf(err) {
	case "":
	case journal.ReasonStateRefuses, journal.ReasonRunEnded:
		// The state has changed since the row was read.
		if row, err = h.journal.Head(ctx, req.Namespace, req.RunID); err != nil {
			return err
		}
		if goesOn(row.State) && !given {
			return h.remember(ctx, req.Namespace, req.RunID, journal.CommandResume, req.Request)
		}
		if row.State == journal.StatePending {
			return errs.New(errs.FailedPrecondition, ReasonNotStarted, "the run waits for its start").Hint("its budget can be changed once it has started")
		}
		return notPaused(row)
	default:
		return err
	}
	if req.Recorded {
		return nil
	}
	_, err = h.applied(ctx, req.Namespace, req.RunID, journal.CommandResume, key)
	return err
}

// checkResume returns the obstacle to resuming a paused run with this budget, or nil.
func (h *Handler) checkResume(ctx context.Context, row journal.Run, budget *workgraph.Budget) error {
	look, _, err := h.Inspect(ctx, row.Namespace, row.ID)
	if err != nil {
		return err
	}
	var visits string
	var under *workgraph.Budget
	var used workgraph.Spent
	var prior []workgraph.Unsettled
	unsettled := false
	look(func(s *workgraph.State) {
		visits = unknownVisits(s)
		under, used = s.Under(budget)
		if h.prices != nil {
			prior = s.Prior(budget, dbkit.Now())
		}
		_, why := s.Status()
		unsettled = why == workgraph.ReasonUnsettled && len(s.Unsettled()) > 0
	})
	if len(prior) > 0 {
		used.NanoUSD = h.prices.SpentBefore(ctx, row, prior)
	}
	switch {
	case visits != "":
		return errs.New(errs.FailedPrecondition, ReasonReconciliationNeeded, "the calls of %s have unknown outcomes", visits).
			Set("visits", visits).Hint("record the outcome of each one with ReconcileVisit, then resume the run")
	case under.UsedUp(used):
		return budgetUsedUp(row.ID, under, used)
	case unsettled && budget.IsZero():
		return errs.New(errs.Unavailable, workgraph.ReasonUnsettled, "the cost of the run is not known yet: the registry was away when its calls ended").
			Hint("the run continues by itself when the registry answers; epigraph runs explain " + row.ID + " shows its waits")
	}
	return nil
}

// pausedHead is the row of a run that is to be paused. Explain reads the machine of a live run, which may
// have paused it before its row says so, so this waits up to effectWait until the row does.
func (h *Handler) pausedHead(ctx context.Context, namespace, runID string) (journal.Run, error) {
	waiting, cancel := context.WithTimeout(ctx, effectWait)
	defer cancel()
	h.live.AwaitPause(waiting, namespace, runID)
	return h.journal.Head(ctx, namespace, runID)
}

// goesOn reports whether a run in this state continues without being resumed.
func goesOn(s journal.State) bool {
	return s == journal.StatePending || s == journal.StateRunning || s == journal.StateWaiting
}

// Reconcile records the outcome of a visit's call. It returns once the owner has applied the command, or
// after effectWait; Unapplied tells which. The run stays paused unless the outcome ends it. Repeating the
// last reconciliation of a visit does nothing.
func (h *Handler) Reconcile(ctx context.Context, req ReconcileRequest) error {
	req.Request.Method = MethodReconcile
	if done, err := h.isRepeat(ctx, req.Namespace, req.RunID, req.Request); err != nil || done {
		if done {
			_, err = h.applied(ctx, req.Namespace, req.RunID, journal.CommandReconcile, commandKey(req.Request))
		}
		return err
	}
	if req.Outcome != nil && record.Oversize(h.maxPayload, req.Outcome.Values, nil) > 0 {
		return errs.New(errs.InvalidArgument, journal.ReasonPayloadTooLarge, "a value is over the limit of %d bytes", h.maxPayload).
			Hint("keep large values outside and pass a reference")
	}
	row, err := h.pausedHead(ctx, req.Namespace, req.RunID)
	if err != nil {
		return err
	}
	err = h.reconcile(ctx, row, req)
	switch errs.ReasonOf(err) {
	case ReasonNotPaused, ReasonNotInReconciliation:
		repeated, rerr := h.repeatsReconciliation(ctx, row, req)
		if rerr != nil {
			return rerr
		}
		if repeated {
			return h.remember(ctx, req.Namespace, req.RunID, journal.CommandReconcile, req.Request)
		}
	}
	return err
}

func (h *Handler) reconcile(ctx context.Context, row journal.Run, req ReconcileRequest) error {
	if row.State != journal.StatePaused && row.State != journal.StateQuarantined {
		return notPaused(row)
	}
	look, _, err := h.Inspect(ctx, req.Namespace, req.RunID)
	if err != nil {
		return err
	}
	needs, visits := false, ""
	look(func(s *workgraph.State) {
		visits = unknownVisits(s)
		v, ok := s.Visit(req.Ref)
		needs = ok && v.Status == workgraph.VisitReconciliation
	})
	if !needs {
		refusal := errs.New(errs.FailedPrecondition, ReasonNotInReconciliation, "%s does not need reconciliation", req.Ref)
		if visits != "" {
			return refusal.Set("visits", visits).Hint("these do: " + visits)
		}
		return refusal.Hint("no visit of the run does")
	}
	if req.Outcome != nil {
		for i, v := range req.Outcome.Values {
			if fault := workgraph.ValueFault(v); fault != "" {
				return errs.New(errs.InvalidArgument, ReasonOutcomeInvalid, "value %d %s", i, fault)
			}
		}
	}
	key := commandKey(req.Request)
	_, err = h.enqueue(ctx, journal.EnqueueRequest{Request: req.Request, Open: []journal.State{journal.StatePaused, journal.StateQuarantined},
		Command: journal.Command{Namespace: req.Namespace, RunID: req.RunID, Kind: journal.CommandReconcile, Key: key}},
		&record.Payload{RequestID: req.Request.ID, By: req.By, Ref: req.Ref, Outcome: req.Outcome, Err: req.Err})
	switch errs.ReasonOf(err) {
	case "":
	case journal.ReasonStateRefuses, journal.ReasonRunEnded:
		if row, err = h.journal.Head(ctx, req.Namespace, req.RunID); err != nil {
			return err
		}
		return notPaused(row)
	default:
		return err
	}
	_, err = h.applied(ctx, req.Namespace, req.RunID, journal.CommandReconcile, key)
	return err
}

// unknownVisits names the first twenty visits that need reconciliation.
func unknownVisits(s *workgraph.State) string {
	var out []string
	more := 0
	s.Visits(func(v workgraph.VisitInfo) bool {
		if v.Status == workgraph.VisitReconciliation {
			if len(out) < 20 {
				out = append(out, v.String())
			} else {
				more++
			}
		}
		return true
	})
	if more > 0 {
		out = append(out, strconv.Itoa(more)+" more")
	}
	return strings.Join(out, ", ")
}

func notPaused(row journal.Run) *errs.Error {
	state := row.State.String()
	return errs.New(errs.FailedPrecondition, ReasonNotPaused, "run %q is %s, not PAUSED", row.ID, state).Set("state", state)
}

// findEvent reports whether is holds for an event of the run's history. It stops at the first such event.
func (h *Handler) findEvent(ctx context.Context, row journal.Run, is func(*record.Durable) bool) (bool, error) {
	for after := int64(0); ; {
		evs, err := h.feed.Events(ctx, row, after, 500)
		if err != nil {
			return false, err
		}
		for _, ev := range evs {
			if is(ev.Durable) {
				return true, nil
			}
			after = ev.Durable.Seq
		}
		if len(evs) == 0 {
			return false, nil
		}
	}
}

// repeatsReconciliation reports whether the last reconciliation of the visit had the same outcome.
func (h *Handler) repeatsReconciliation(ctx context.Context, row journal.Run, req ReconcileRequest) (same bool, err error) {
	_, err = h.findEvent(ctx, row, func(d *record.Durable) bool {
		if d.Kind == workgraph.Reconciled && d.Ref == req.Ref {
			same = sameOutcome(d.Outcome, req.Outcome) && sameError(d.Error, req.Err)
		}
		return false
	})
	return same, err
}

func sameOutcome(a, b *workgraph.Outcome) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.EqualFunc(a.Values, b.Values, func(x, y json.RawMessage) bool { return bytes.Equal(compact(x), compact(y)) })
}

func sameError(a, b *workgraph.Error) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Type == b.Type && a.Reason == b.Reason && a.Message == b.Message
}

// compact removes white space, as the journal does.
func compact(v json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, v) != nil {
		return v
	}
	return b.Bytes()
}
