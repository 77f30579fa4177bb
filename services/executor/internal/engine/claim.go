package engine

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/failpoint"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// claimAfter is how old the claim of an unrecorded run must be before another start may use it.
const claimAfter = 2 * time.Second

// claim reserves the task for the run. For a repeated request, earlier is the run that the request started.
// Else own is the id under which the task is claimed: id, or that of a start that was cut off between its
// claim and its record.
func (e *Engine) claim(ctx context.Context, req *command.StartRequest, id string) (earlier, own string, err error) {
	if e.claims == nil {
		return "", "", errs.New(errs.FailedPrecondition, ReasonNoRegistry, "this executor has no registry, so a run cannot work on a task").
			Hint("leave task_id out, or configure the registry")
	}
	// A repeated request must find its run instead of failing on that run's claim.
	if earlier, err = e.Answered(ctx, req.Namespace, req.Request); err != nil || earlier != "" {
		return earlier, "", err
	}
	failpoint.Hit(failpoint.StartBeforeClaim)
	req.EpicID, err = e.claims.Claim(ctx, req.Namespace, req.TaskID, id, e.cfg.ClaimLease)
	failpoint.Hit(failpoint.StartAfterClaim)
	switch {
	case err == nil:
		return "", id, nil
	case errs.Is(err, errs.Unavailable) || errs.Is(err, errs.DeadlineExceeded) && ctx.Err() == nil:
		return "", "", errs.New(errs.Unavailable, ReasonRegistryUnavailable, "the task cannot be claimed, the registry does not answer").
			Hint("try again in a moment, or start the run without task_id").With(err)
	case errs.Is(err, errs.FailedPrecondition):
		// The task is taken, perhaps by the first try of this request, which may be recorded at any moment.
		// So the request's run is looked for after the holder's run.
		holder := e.unrecordedHolder(ctx, *req, err)
		if earlier, rerr := e.Answered(ctx, req.Namespace, req.Request); rerr != nil || earlier != "" {
			return earlier, "", rerr
		}
		if holder != "" {
			if epic, err := e.claims.Claim(ctx, req.Namespace, req.TaskID, holder, e.cfg.ClaimLease); err == nil {
				req.EpicID = epic
				return "", holder, nil
			}
		}
	}
	return "", "", err
}

// unrecordedHolder is the run that holds the task by a leased claim and was never recorded, because its
// executor died in between; "" if there is none. A start may record it under that id. An id can be recorded
// only once, so a lost race is noticed.
func (e *Engine) unrecordedHolder(ctx context.Context, req command.StartRequest, refusal error) string {
	m := errs.From(refusal).Meta
	holder := m["run_id"]
	made, ok := ids.Time(command.IDPrefix, holder)
	if !ok || m["lease_expire_time"] == "" || time.Since(made) < claimAfter {
		return ""
	}
	if _, err := e.journal.Head(ctx, req.Namespace, holder); errs.ReasonOf(err) != journal.ReasonRunNotFound {
		return ""
	}
	return holder
}

// releaseClaim gives the task back after a failed start. If that fails too, the claim ends with its lease.
func (e *Engine) releaseClaim(ctx context.Context, req command.StartRequest, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := e.claims.Release(ctx, req.Namespace, req.TaskID, id); err != nil {
		e.log.WarnContext(ctx, "claim not released, its lease will end it", "err", err, "task_id", req.TaskID)
	}
}

// Reasons of refused starts.
const (
	// ReasonRegistryUnavailable is the reason when a task cannot be claimed because the registry does not
	// answer.
	ReasonRegistryUnavailable = "REGISTRY_UNAVAILABLE"
	// ReasonNoRegistry is the reason when a task is named and no registry is configured.
	ReasonNoRegistry = "REGISTRY_NOT_CONFIGURED"
)
