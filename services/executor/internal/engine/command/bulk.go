package command

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

const (
	// DefaultBulk is how many runs one bulk request covers by default.
	DefaultBulk = 1000
	// MaxBulk is how many runs one bulk request covers at most.
	MaxBulk = 10_000
	// maxBulkFailures bounds the failures in one response.
	maxBulkFailures = 100
	// MaxBulkSample is how many runs a dry run shows.
	MaxBulkSample = 20
	bulkPage      = 500
	// bulkTime bounds the work of one bulk request. The next request continues.
	bulkTime = 20 * time.Second
)

// ReasonFilterEmpty is the reason for a bulk request that selects every run.
const ReasonFilterEmpty = "FILTER_EMPTY"

// BulkRequest selects runs.
type BulkRequest struct {
	Namespace string
	Filter    journal.Filter
	// Limit bounds the number of runs; 0 means DefaultBulk.
	Limit int
	// DryRun only counts.
	DryRun bool
}

// BulkFailure is a run for which the operation failed.
type BulkFailure struct {
	RunID string
	Err   error
}

// BulkResult is the result of a bulk request.
type BulkResult struct {
	// Matched counts the runs found, up to the limit. Done counts those for which the operation succeeded.
	Matched, Done int
	// RunIDs are the new runs of retries, or the runs that were found and deleted, without their
	// descendants. They are valid even if the request fails later.
	RunIDs   []string
	Failures []BulkFailure
	// Sample are the first runs that a dry run found, at most MaxBulkSample.
	Sample []journal.Run
	// More reports that further runs may match.
	More bool
}

// BulkCancel cancels the open runs that match a filter.
func (h *Handler) BulkCancel(ctx context.Context, req BulkRequest, reason string) (BulkResult, error) {
	open := []journal.State{journal.StatePending, journal.StateRunning, journal.StateWaiting, journal.StatePaused, journal.StateQuarantined}
	if !req.narrow(open) {
		return BulkResult{}, nil
	}
	return h.bulk(ctx, req, func(r journal.Run) bool { return r.CancelTime.IsZero() }, func(ctx context.Context, r journal.Run, out *BulkResult) error {
		_, err := h.Cancel(ctx, CancelRequest{Namespace: r.Namespace, RunID: r.ID, Reason: reason})
		if err == nil {
			out.Done++
		}
		return err
	})
}

// BulkPause pauses the runs that match a filter and go on. It returns once each command is recorded.
func (h *Handler) BulkPause(ctx context.Context, req BulkRequest, reason string) (BulkResult, error) {
	if !req.narrow([]journal.State{journal.StateRunning, journal.StateWaiting}) {
		return BulkResult{}, nil
	}
	return h.bulk(ctx, req, nil, func(ctx context.Context, r journal.Run, out *BulkResult) error {
		err := h.Pause(ctx, PauseRequest{Namespace: r.Namespace, RunID: r.ID, Reason: reason, Recorded: true})
		if err == nil {
			out.Done++
		}
		return err
	})
}

// BulkResume resumes the paused runs that match a filter. It returns once each command is recorded. A
// quarantined run has brought its owners down, and is resumed only if the filter names that state.
func (h *Handler) BulkResume(ctx context.Context, req BulkRequest, reason string) (BulkResult, error) {
	if len(req.Filter.States) == 0 && !req.empty() {
		req.Filter.States = []journal.State{journal.StatePaused}
	}
	if !req.narrow([]journal.State{journal.StatePaused, journal.StateQuarantined}) {
		return BulkResult{}, nil
	}
	return h.bulk(ctx, req, nil, func(ctx context.Context, r journal.Run, out *BulkResult) error {
		err := h.Resume(ctx, ResumeRequest{Namespace: r.Namespace, RunID: r.ID, Reason: reason, Recorded: true})
		if err == nil {
			out.Done++
		}
		return err
	})
}

// BulkRetry retries the runs that match a filter. It retries each run once, however often it is called, for
// as long as request ids are kept.
func (h *Handler) BulkRetry(ctx context.Context, req BulkRequest, allowUnsafe, withoutTask bool) (BulkResult, error) {
	if len(req.Filter.States) == 0 {
		if req.empty() {
			return BulkResult{}, filterEmpty()
		}
		req.Filter.States = []journal.State{journal.StateFailed}
	}
	if !req.narrow([]journal.State{journal.StateFailed, journal.StateCanceled}) {
		return BulkResult{}, nil
	}
	// The request id is derived from the run, so that repeated calls retry a run once.
	request := func(r journal.Run) journal.Request {
		return journal.Request{Method: methodBulkRetry, ID: r.ID, BodyHash: r.ID}
	}
	// A retried run stays FAILED, so the filter finds it again. It must not count against the limit of a
	// later call.
	left := func(r journal.Run) bool {
		id, err := h.Answered(ctx, r.Namespace, request(r))
		return err != nil || id == "" // after a failed lookup the retry fails too, and is reported
	}
	return h.bulk(ctx, req, left, func(ctx context.Context, r journal.Run, out *BulkResult) error {
		id, err := h.Retry(ctx, RetryRequest{
			Namespace: r.Namespace, RunID: r.ID, AllowUnsafe: allowUnsafe, WithoutTask: withoutTask, Request: request(r),
		})
		if err == nil {
			out.Done++
			out.RunIDs = append(out.RunIDs, id)
		}
		return err
	})
}

// BulkDelete deletes the ended runs that match a filter, with their descendants.
func (h *Handler) BulkDelete(ctx context.Context, req BulkRequest) (BulkResult, error) {
	if !req.narrow([]journal.State{journal.StateCompleted, journal.StateFailed, journal.StateCanceled}) {
		return BulkResult{}, nil
	}
	res, err := h.bulk(ctx, req, nil, func(ctx context.Context, r journal.Run, out *BulkResult) error {
		n, err := h.journal.DeleteRun(ctx, r.Namespace, r.ID, 0, h.tellDeleted)
		out.Done += n
		if errs.ReasonOf(err) == journal.ReasonRunNotFound {
			return nil // deleted together with its ancestor
		}
		if err == nil {
			out.RunIDs = append(out.RunIDs, r.ID)
		}
		return err
	})
	purging, cancel := context.WithTimeout(context.WithoutCancel(ctx), purgeTime)
	defer cancel()
	if perr := h.Purge(purging); perr != nil && purging.Err() == nil {
		h.log.WarnContext(ctx, "rows of deleted runs not removed yet", "err", perr)
	}
	return res, err
}

func filterEmpty() error {
	return errs.New(errs.InvalidArgument, ReasonFilterEmpty, "the filter is empty: it would be about every run").
		Violate("filter", ReasonFilterEmpty, "nothing is set").Hint("set at least one field")
}

func (r *BulkRequest) empty() bool {
	f := &r.Filter
	return len(f.States) == 0 && f.TaskID == "" && f.UserID == "" && len(f.Labels) == 0 && f.CreatedAfter.IsZero() && f.CreatedBefore.IsZero() &&
		f.ScheduleID == "" && f.Reason == "" && f.EpicID == "" && f.Workflow == "" && f.WorkflowVersion == ""
}

// narrow reduces the states of the filter to those that the operation can apply to, and reports whether any
// is left. A filter without states gets all of them.
func (r *BulkRequest) narrow(can []journal.State) bool {
	if r.empty() {
		return true // refused below
	}
	if len(r.Filter.States) == 0 {
		r.Filter.States = can
		return true
	}
	var both []journal.State
	for _, s := range r.Filter.States {
		for _, c := range can {
			if s == c {
				both = append(both, s)
			}
		}
	}
	r.Filter.States = both
	return len(both) > 0
}

// bulk applies do to each run that matches. Runs may stop matching once do was applied, so bulk pages by a
// cursor.
func (h *Handler) bulk(ctx context.Context, req BulkRequest, is func(journal.Run) bool, do func(context.Context, journal.Run, *BulkResult) error) (BulkResult, error) {
	var out BulkResult
	if req.empty() {
		return out, filterEmpty()
	}
	limit := req.Limit
	if limit == 0 {
		limit = DefaultBulk
	}
	limit = min(limit, MaxBulk)
	until := time.Now().Add(bulkTime)
	for after := (page.Cursor{}); ; {
		rows, err := h.journal.List(inflight.Apart(ctx), req.Namespace, req.Filter, after, bulkPage)
		if err != nil {
			return out, err
		}
		for _, r := range rows {
			after = page.Cursor{CreateTime: r.CreateTime, ID: r.ID}
			if is != nil && !is(r) {
				continue
			}
			if out.Matched == limit || time.Now().After(until) {
				out.More = true
				return out, nil
			}
			out.Matched++
			if req.DryRun {
				if len(out.Sample) < MaxBulkSample {
					out.Sample = append(out.Sample, r)
				}
				continue
			}
			if err := do(ctx, r, &out); err != nil {
				if ctx.Err() != nil {
					return out, ctx.Err()
				}
				if len(out.Failures) < maxBulkFailures {
					out.Failures = append(out.Failures, BulkFailure{r.ID, err})
				}
			}
		}
		if len(rows) == 0 { // a page may have fewer rows than the limit
			return out, nil
		}
	}
}
