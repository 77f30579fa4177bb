package epic

import (
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
)

const (
	// ReasonNotClaimable refuses a claim; the key "state" has the task's state.
	ReasonNotClaimable = "TASK_NOT_CLAIMABLE"
	// ReasonTaskClaimed refuses to move a task that a run works on, or is about to start on.
	ReasonTaskClaimed = "TASK_CLAIMED"
	// ReasonClaimLost means that the task belongs to another run or has ended; the run is canceled with it.
	ReasonClaimLost = "CLAIM_LOST"
	// ReasonEstimateWaits refuses a claim whose task is estimated to use more than is left under a cap.
	ReasonEstimateWaits = "ESTIMATE_TOO_LARGE"
	// ReasonClaimNotFound means that the run has never claimed the task.
	ReasonClaimNotFound = "CLAIM_NOT_FOUND"

	// DefaultLease is how long a claim holds unless it is confirmed.
	DefaultLease = time.Minute
	maxLease     = 24 * time.Hour
)

// ClaimState is where a claim stands. Its numbers are those of the stores.
type ClaimState int16

// The states of a claim. Of one task at most one claim is Claimed or Confirmed.
const (
	// Claimed holds until its lease ends.
	Claimed ClaimState = iota + 1
	// Confirmed holds until it is settled.
	Confirmed
	// Settled is over: its run reported the outcome.
	Settled
	// Lost is a lease that ended unconfirmed. The run may take the task up again if nobody else has.
	Lost
	// Released is a claim whose task was canceled, and its run with it.
	Released
)

// Claim is what one run has to do with one task.
type Claim struct {
	Namespace, TaskID, RunID string
	// Database is the one that the run is recorded in.
	Database string
	State    ClaimState
	// LeaseUntil is by the database's clock.
	LeaseUntil time.Time
	// EstimatedTokens is the estimate of the task when it was claimed, TokensBefore what had been
	// booked of it by then. The claim holds what is left of the estimate.
	EstimatedTokens, TokensBefore int64
}

// Holds reports whether the claim keeps other runs from the task at this time of the database.
func (c Claim) Holds(now time.Time) bool {
	return c.State == Confirmed || c.State == Claimed && c.LeaseUntil.After(now)
}

// CheckLease returns the lease to use, or InvalidArgument.
func CheckLease(lease time.Duration) (time.Duration, error) {
	if lease == 0 {
		return DefaultLease, nil
	}
	if lease < time.Millisecond || lease > maxLease {
		return 0, errs.New(errs.InvalidArgument, "LEASE_INVALID", "lease must be between 1ms and 24h, not %s", lease).
			Violate("lease", "LEASE_INVALID", "must be between 1ms and 24h")
	}
	return lease, nil
}

// Claimable returns FailedPrecondition unless work on the task may start now. others is the claim
// that is not over, if there is one, of another run.
func Claimable(e Epic, t Task, others *Claim, now time.Time) error {
	refuse := errs.New(errs.FailedPrecondition, ReasonNotClaimable, "task %s is %s", t.ID, t.State).
		Set("state", t.State.String()).Set("task_id", t.ID)
	switch {
	case t.State == TaskBlocked:
		return refuse.Hint("wait until what it depends on is completed; a task that failed or was canceled is not: change depends_on then")
	case t.State == TaskFailed:
		return refuse.Hint("move it to PENDING with TransitionTask to try it again")
	case t.State == TaskRunning:
		return refuse.Set("run_id", t.RunID).Hint("wait for, or cancel, the run that works on it")
	case t.State != TaskPending:
		return refuse.Hint("create another task")
	case e.State != Active:
		return NotActive(e)
	}
	if err := e.CheckBudget(); err != nil {
		return err
	}
	if others != nil && others.Holds(now) {
		return errs.New(errs.FailedPrecondition, ReasonNotClaimable, "task %s is claimed by run %s", t.ID, others.RunID).
			Set("state", t.State.String()).Set("task_id", t.ID).Set("run_id", others.RunID).
			Set("lease_expire_time", others.LeaseUntil.Format(time.RFC3339Nano)).
			Hint("wait until that claim is settled or its lease ends")
	}
	return nil
}

// NotActive is the refusal to start work in an epic in its present state.
func NotActive(e Epic) error {
	reason, hint := ReasonEpicNotActive, "move the epic to ACTIVE first"
	if e.State.Ended() {
		reason, hint = ReasonEpicEnded, "create another epic"
	}
	return errs.New(errs.FailedPrecondition, reason, "epic %s is %s", e.ID, e.State).
		Set("epic_id", e.ID).Set("epic_state", e.State.String()).Hint(hint)
}

// LostClaim is the answer to a run whose task is no longer its own.
func LostClaim(t Task, run string, holder *Claim) error {
	e := errs.New(errs.FailedPrecondition, ReasonClaimLost, "run %s no longer has task %s, which is %s", run, t.ID, t.State).
		Set("state", t.State.String()).Hint("the run is canceled")
	if holder != nil {
		e = e.Set("run_id", holder.RunID)
	}
	return e
}
