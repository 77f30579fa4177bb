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

// Reasons of refused ways on.
const (
	// ReasonNotPaused is the reason when a run is in another state; Meta "state" names it.
	ReasonNotPaused = "RUN_NOT_PAUSED"
	// ReasonReconciliationNeeded is the reason when somebody must say first what became of calls; Meta
	// "visits" names them.
	ReasonReconciliationNeeded = "RECONCILIATION_NEEDED"
	// ReasonNotInReconciliation is the reason when a visit has no call of which nobody knows what became of
	// it.
	ReasonNotInReconciliation = "VISIT_NOT_IN_RECONCILIATION"
	// ReasonOutcomeInvalid is the reason when what is said of a call is nothing that it could have returned.
	ReasonOutcomeInvalid = "OUTCOME_INVALID"
)

// ResumeRequest asks that a paused run goes on.
type ResumeRequest struct {
	Namespace, RunID string
	Reason           string
	// Budget has caps that take the place of the run's; nil changes nothing.
	Budget *workgraph.Budget
	// Revision, if not 0, must be the run's present one.
	Revision int64
	// Request makes a second request do nothing; one with another body is refused.
	Request journal.Request
}

// ReconcileRequest says what became of the call of a visit: exactly one of Outcome and Err is set, and Err is
// PERMANENT or NOT_PERFORMED.
type ReconcileRequest struct {
	Namespace, RunID string
	Ref              workgraph.Ref
	Outcome          *workgraph.Outcome
	Err              *workgraph.Error
	By               string
	// Request makes a second request do nothing; one with another body is refused.
	Request journal.Request
}

// Resume lets a paused or quarantined run go on. It returns once the owner has done so, or after effectWait:
// Unapplied tells which. A run that goes on already is left alone, but for its budget if the request has one.
func (h *Handler) Resume(ctx context.Context, req ResumeRequest) error {
	req.Request.Method = MethodResume
	given := !req.Budget.IsZero()
	key := "resume"
	if given { // each of several counts, also while the run goes on
		key += "/" + once(req.Request)
	}
	if done, err := h.done(ctx, req.Namespace, req.RunID, req.Request); err != nil || done {
		if done {
			_, err = h.applied(ctx, req.Namespace, req.RunID, journal.CommandResume, key)
		}
		return err
	}
	if err := BudgetFits(req.Budget); err != nil {
		return err
	}
	row, err := h.journal.Head(ctx, req.Namespace, req.RunID)
	if err != nil {
		return err
	}
	if goesOn(row.State) && !given {
		return h.remember(ctx, req.Namespace, req.RunID, journal.CommandResume, req.Request)
	}
	if req.Revision != 0 && req.Revision != row.Revision {
		return journal.EtagMismatch(row.ID)
	}
	if row.State.Ended() {
		return notPaused(row)
	}
	if !goesOn(row.State) {
		if err := h.mayResume(ctx, row, req.Budget); err != nil {
			return err
		}
	}
	p := journal.EnqueueRequest{Revision: req.Revision, Request: req.Request, Open: []journal.State{journal.StatePaused, journal.StateQuarantined},
		Command: journal.Command{Namespace: req.Namespace, RunID: req.RunID, Kind: journal.CommandResume, Key: key}}
	if given {
		p.Open = started()
	}
	// Revision rises by every command: with it, nothing may have come in between.
	_, err = h.enqueue(ctx, p, &record.Payload{Reason: req.Reason, RequestID: req.Request.ID, Budget: req.Budget})
	switch errs.ReasonOf(err) {
	case "":
	case journal.ReasonStateRefuses, journal.ReasonRunEnded:
		// It has moved in between.
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
	_, err = h.applied(ctx, req.Namespace, req.RunID, journal.CommandResume, key)
	return err
}

// mayResume says what stands against a run that is paused going on with a budget.
func (h *Handler) mayResume(ctx context.Context, row journal.Run, budget *workgraph.Budget) error {
	look, _, err := h.Standing(ctx, row.Namespace, row.ID)
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
		return errs.New(errs.FailedPrecondition, ReasonReconciliationNeeded, "nobody knows what became of the calls of %s", visits).
			Set("visits", visits).Hint("say it of each one with ReconcileVisit, then resume the run")
	case under.UsedUp(used):
		return usedUp(row.ID, under, used)
	case unsettled && budget.IsZero():
		return errs.New(errs.Unavailable, workgraph.ReasonUnsettled, "nobody knows yet what the run has spent: the registry was not there to price its calls").
			Hint("the run goes on by itself when the registry answers; epigraph runs explain " + row.ID + " says what it waits for")
	}
	return nil
}

// goesOn reports whether nobody needs to resume a run in this state.
func goesOn(s journal.State) bool {
	return s == journal.StatePending || s == journal.StateRunning || s == journal.StateWaiting
}

// Reconcile records what became of the call of a visit. It returns once the owner has taken it into account,
// or after effectWait: Unapplied tells which. The run stays paused unless it ends by it. Saying again what
// was said last of a visit does nothing.
func (h *Handler) Reconcile(ctx context.Context, req ReconcileRequest) error {
	req.Request.Method = MethodReconcile
	if done, err := h.done(ctx, req.Namespace, req.RunID, req.Request); err != nil || done {
		if done {
			_, err = h.applied(ctx, req.Namespace, req.RunID, journal.CommandReconcile, once(req.Request))
		}
		return err
	}
	if req.Outcome != nil && record.Oversize(h.maxPayload, req.Outcome.Values, nil) > 0 {
		return errs.New(errs.InvalidArgument, journal.ReasonPayloadTooLarge, "a value is over the limit of %d bytes", h.maxPayload).
			Hint("keep large values outside and pass a reference")
	}
	row, err := h.journal.Head(ctx, req.Namespace, req.RunID)
	if err != nil {
		return err
	}
	err = h.reconcile(ctx, row, req)
	switch errs.ReasonOf(err) {
	case ReasonNotPaused, ReasonNotInReconciliation:
		said, rerr := h.saidLast(ctx, row, req)
		if rerr != nil {
			return rerr
		}
		if said {
			return h.remember(ctx, req.Namespace, req.RunID, journal.CommandReconcile, req.Request)
		}
	}
	return err
}

func (h *Handler) reconcile(ctx context.Context, row journal.Run, req ReconcileRequest) error {
	if row.State != journal.StatePaused && row.State != journal.StateQuarantined {
		return notPaused(row)
	}
	look, _, err := h.Standing(ctx, req.Namespace, req.RunID)
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
	key := once(req.Request)
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

// unknownVisits names the visits that need reconciliation, the first twenty.
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

func notPaused(row journal.Run) error {
	state := row.State.String()
	return errs.New(errs.FailedPrecondition, ReasonNotPaused, "run %q is %s, not PAUSED", row.ID, state).Set("state", state)
}

// happened reports whether a run's history has an event for which is holds.
func (h *Handler) happened(ctx context.Context, row journal.Run, is func(*record.Durable) bool) (bool, error) {
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
		if len(evs) < 500 {
			return false, nil
		}
	}
}

// saidLast reports whether the last thing that was said of the visit is what is said again.
func (h *Handler) saidLast(ctx context.Context, row journal.Run, req ReconcileRequest) (same bool, err error) {
	_, err = h.happened(ctx, row, func(d *record.Durable) bool {
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

// compact is v without white space, as the journal keeps it.
func compact(v json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, v) != nil {
		return v
	}
	return b.Bytes()
}
