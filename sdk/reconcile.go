package epigraph

import (
	"context"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// AttemptOutcome is the outcome of a call that was unknown so far. Reconcile returns its errors.
type AttemptOutcome func(*executorv1.ReconcileVisitRequest) error

// Performed says that the call was made and gave values: none, one, or a tuple.
func Performed(values ...any) AttemptOutcome {
	return func(r *executorv1.ReconcileVisitRequest) error {
		done, err := performed(values)
		r.Outcome = &executorv1.ReconcileVisitRequest_Performed{Performed: done}
		return err
	}
}

// FailedAttempt says that the call was made and failed for good.
func FailedAttempt(reason, message string) AttemptOutcome {
	return func(r *executorv1.ReconcileVisitRequest) error {
		r.Outcome = &executorv1.ReconcileVisitRequest_Failed{Failed: &executorv1.AttemptFailed{Reason: reason, Message: message}}
		return nil
	}
}

// NotPerformed says that the call was not made: it is made once more, under the same effect key.
func NotPerformed() AttemptOutcome {
	return func(r *executorv1.ReconcileVisitRequest) error {
		r.Outcome = &executorv1.ReconcileVisitRequest_NotPerformed{NotPerformed: &executorv1.AttemptNotPerformed{}}
		return nil
	}
}

// Reconcile records the outcome of an UNSAFE call whose result is unknown; by names the person or program
// that knows it. Explain and Visits list the visits that need it. The run stays paused until Resume, unless
// the outcome ends it.
func (r *Run) Reconcile(ctx context.Context, visit *executorv1.VisitRef, outcome AttemptOutcome, by string) error {
	req := &executorv1.ReconcileVisitRequest{RunId: r.ID, Visit: visit, By: by}
	if err := outcome(req); err != nil {
		return err
	}
	_, err := r.c.Executor.ReconcileVisit(ctx, req)
	return err
}

func performed(values []any) (*executorv1.AttemptPerformed, error) {
	done := &executorv1.AttemptPerformed{}
	for _, v := range values {
		p, err := Payload(v)
		if err != nil {
			return nil, err
		}
		done.Values = append(done.Values, p)
	}
	return done, nil
}
