package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Reasons of refused ways on.
const (
	// ReasonNotPaused is the reason when a run is in another state; Meta "state" names it.
	ReasonNotPaused = "RUN_NOT_PAUSED"
	// ReasonReconciliationNeeded is the reason when somebody must say first what became of calls; Meta "visits" names them.
	ReasonReconciliationNeeded = "RECONCILIATION_NEEDED"
	// ReasonNotInReconciliation is the reason when a visit has no call of which nobody knows what became of it.
	ReasonNotInReconciliation = "VISIT_NOT_IN_RECONCILIATION"
	// ReasonOwnedElsewhere is the reason when another live executor owns the run.
	ReasonOwnedElsewhere = "RUN_OWNED_ELSEWHERE"
	// ReasonOutcomeInvalid is the reason when what is said of a call is nothing that it could have returned.
	ReasonOutcomeInvalid = "OUTCOME_INVALID"
)

// ResumeRequest asks that a paused run goes on.
type ResumeRequest struct {
	Namespace, RunID string
	Reason           string
	// Revision, if not 0, must be the run's present one.
	Revision int64
	// RequestID, if not empty, makes a second request do nothing.
	RequestID string
}

// ReconcileRequest says what became of the call of a visit: exactly one of Outcome and Err is set, and Err is PERMANENT or
// NOT_PERFORMED.
type ReconcileRequest struct {
	Namespace, RunID string
	Ref              workgraph.Ref
	Outcome          *workgraph.Outcome
	Err              *workgraph.Error
	By               string
	// RequestID, if not empty, makes a second request do nothing.
	RequestID string
}

// Resume lets a paused run go on and returns once that is durable. A run that goes on already is left alone.
func (e *Engine) Resume(ctx context.Context, req ResumeRequest) error {
	t := e.current()
	if t == nil {
		return notReady()
	}
	row, err := e.journal.Get(ctx, req.Namespace, req.RunID)
	if err != nil {
		return err
	}
	done, err := e.seen(ctx, row, workgraph.RunResumed, req.RequestID)
	if err != nil || done || goesOn(row.State) {
		return err
	}
	if req.Revision != 0 && req.Revision != row.Revision {
		return journal.EtagMismatch(row.ID)
	}
	if row.State != journal.StatePaused {
		return notPaused(row)
	}
	err = t.tell(ctx, row, func(r *run, after func(error)) error {
		if st, _ := r.state.Status(); st == workgraph.StatusRunning || st == workgraph.StatusDraining {
			after(nil)
			return nil
		}
		if req.Revision != 0 && r.seq != row.LastSeq {
			return journal.EtagMismatch(row.ID)
		}
		err := r.advance(workgraph.Resume{Reason: req.Reason, Now: time.Now().UTC()}, extra{requestID: req.RequestID, progress: true, after: after})
		if errors.Is(err, workgraph.ErrReconcile) {
			visits := r.inReconciliation()
			return errs.New(errs.FailedPrecondition, ReasonReconciliationNeeded, "nobody knows what became of the calls of %s", visits).
				Set("visits", visits).Hint("say it of each one with ReconcileVisit, then resume the run")
		}
		return err
	})
	if !errors.Is(err, errMoved) {
		return err
	}
	if row, err = e.journal.Get(ctx, req.Namespace, req.RunID); err != nil || goesOn(row.State) {
		return err
	}
	return notPaused(row)
}

// errMoved says that a run is no longer as its row was read.
var errMoved = errors.New("engine: the run is no longer paused")

// goesOn reports whether nobody needs to resume a run in this state.
func goesOn(s journal.State) bool {
	return s == journal.StatePending || s == journal.StateRunning || s == journal.StateWaiting
}

// Reconcile records what became of the call of a visit and returns once that is durable. The run stays paused unless it ends by
// it. Saying again what was said last of a visit does nothing.
func (e *Engine) Reconcile(ctx context.Context, req ReconcileRequest) error {
	t := e.current()
	if t == nil {
		return notReady()
	}
	if req.Outcome != nil && e.oversize(req.Outcome.Values, nil) > 0 {
		return errs.New(errs.InvalidArgument, ReasonPayloadTooLarge, "a value is over the limit of %d bytes", e.cfg.MaxPayload).
			Hint("keep large values outside and pass a reference")
	}
	row, err := e.journal.Get(ctx, req.Namespace, req.RunID)
	if err != nil {
		return err
	}
	done, err := e.seen(ctx, row, workgraph.Reconciled, req.RequestID)
	if err != nil || done {
		return err
	}
	if row.State == journal.StatePaused {
		err = t.tell(ctx, row, func(r *run, after func(error)) error {
			if st, _ := r.state.Status(); st != workgraph.StatusPaused {
				return errMoved
			}
			return r.reconcile(req, after)
		})
	} else {
		err = errMoved
	}
	if errors.Is(err, errMoved) {
		if row, err = e.journal.Get(ctx, req.Namespace, req.RunID); err != nil {
			return err
		}
		err = notPaused(row)
	}
	switch errs.ReasonOf(err) {
	case ReasonNotPaused, ReasonNotInReconciliation:
		if said, rerr := e.saidLast(ctx, row, req); rerr != nil || said {
			return rerr
		}
	}
	return err
}

// reconcile gives the machine what somebody found out. The caller holds r.mu.
func (r *run) reconcile(req ReconcileRequest, after func(error)) error {
	err := r.advance(workgraph.Reconcile{Ref: req.Ref, Outcome: req.Outcome, Err: req.Err, By: req.By, Now: time.Now().UTC()},
		extra{requestID: req.RequestID, progress: true, after: after})
	switch {
	case errors.Is(err, workgraph.ErrStale):
		refusal := errs.New(errs.FailedPrecondition, ReasonNotInReconciliation, "%s does not need reconciliation", req.Ref)
		if visits := r.inReconciliation(); visits != "" {
			return refusal.Set("visits", visits).Hint("these do: " + visits)
		}
		return refusal.Hint("no visit of the run does")
	case errors.Is(err, workgraph.ErrState):
		return errs.New(errs.InvalidArgument, ReasonOutcomeInvalid, "%v", err)
	case isTooLarge(err):
		r.t.reread(r, nil)
		return errs.New(errs.InvalidArgument, ReasonPayloadTooLarge, "what follows from it cannot be written: %s", errs.From(err).Message)
	}
	return err
}

// inReconciliation names the visits that need it, the first twenty. The caller holds r.mu.
func (r *run) inReconciliation() string {
	var out []string
	more := 0
	r.state.Visits(func(v workgraph.VisitInfo) bool {
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

// tell has f say something to a run, with its lock held, and waits until what follows is durable. f hands after on to advance,
// or calls it itself, unless it returns an error. A run that is not in memory is read, and claimed first if nobody owns it.
func (t *term) tell(ctx context.Context, row journal.Run, f func(r *run, after func(error)) error) error {
	durable := make(chan error, 1)
	try := func(r *run) error {
		if r.gone.Load() {
			return errDropped
		}
		return f(r, func(err error) { durable <- err })
	}
	for {
		err := t.reach(ctx, row, try)
		switch {
		case err == nil:
			select {
			case err := <-durable:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		case errors.Is(err, workgraph.ErrEnded):
			return errMoved
		case !errors.Is(err, errDropped):
			return err
		}
		// It is just being parked, or read by somebody else.
		pause := time.NewTimer(time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		}
		if t.e.current() != t {
			return notReady()
		}
	}
}

// reach calls f with the run, once, and returns its error, or errDropped if that did not come about.
func (t *term) reach(ctx context.Context, row journal.Run, f func(*run) error) error {
	if r := t.get(row.ID); r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		return f(r)
	}
	owner, err := t.e.journal.ClaimRun(ctx, t.owner, row.Namespace, row.ID)
	switch {
	case err != nil:
		return err
	case owner.IsZero():
		return errMoved
	case owner != t.owner:
		return errs.New(errs.Unavailable, ReasonOwnedElsewhere, "run %q is owned by executor %s", row.ID, owner.ID).Set("executor", owner.ID).
			Hint("ask that executor; a call through the gateway reaches it when it is repeated")
	}
	told := errDropped
	r, err := t.load(ctx, row.ID, &remedy{then: func(r *run) { told = f(r) }})
	if err != nil {
		return err
	}
	if r == nil && errors.Is(told, errDropped) && t.e.current() == t {
		return errMoved
	}
	return told
}

// stateNames are the API's words.
var stateNames = map[journal.State]string{
	journal.StatePending: "PENDING", journal.StateRunning: "RUNNING", journal.StateWaiting: "WAITING", journal.StatePaused: "PAUSED",
	journal.StateQuarantined: "QUARANTINED", journal.StateCompleted: "COMPLETED", journal.StateFailed: "FAILED", journal.StateCanceled: "CANCELLED",
}

func notPaused(row journal.Run) error {
	state := stateNames[row.State]
	e := errs.New(errs.FailedPrecondition, ReasonNotPaused, "run %q is %s, not PAUSED", row.ID, state).Set("state", state)
	if row.State == journal.StateQuarantined {
		return e.Hint("it brought its executors down each time; cancel it")
	}
	return e
}

// seen reports whether a request of this id is in a run's history.
func (e *Engine) seen(ctx context.Context, row journal.Run, kind workgraph.EventKind, requestID string) (bool, error) {
	if requestID == "" {
		return false, nil
	}
	return e.happened(ctx, row, func(d *Durable) bool { return d.Kind == kind && d.RequestID == requestID })
}

// happened reports whether a run's history has an event for which is holds.
func (e *Engine) happened(ctx context.Context, row journal.Run, is func(*Durable) bool) (bool, error) {
	for after := int64(0); ; {
		evs, err := e.Events(ctx, row, after, 500)
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
func (e *Engine) saidLast(ctx context.Context, row journal.Run, req ReconcileRequest) (same bool, err error) {
	_, err = e.happened(ctx, row, func(d *Durable) bool {
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
