package command

import (
	"context"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// The method names under which request ids are kept.
const (
	MethodStart           = "StartRun"
	MethodSignalWithStart = "SignalWithStart"
	MethodFork            = "ForkRun"
	MethodRetry           = "RetryRun"
	MethodCancel          = "CancelRun"
	MethodPause           = "PauseRun"
	MethodStop            = "StopRun"
	MethodResume          = "ResumeRun"
	MethodSignal          = "SignalRun"
	MethodSend            = "SendMessage"
	MethodReconcile       = "ReconcileVisit"
	MethodAmend           = "AmendRun"

	// methodSignalStart is for the half of a SignalWithStart that starts or finds its run. The request
	// counts as answered only when the signal is delivered, too.
	methodSignalStart = "SignalWithStart/start"
	methodBulkRetry   = "BulkRetryRuns"
)

// Answered is the run of an earlier request with the same id, or empty. It is looked up before any check,
// so that a repeated request gets the same answer whatever the state of the run is now. A repeat with
// another body is refused.
func (h *Handler) Answered(ctx context.Context, namespace string, req journal.Request) (runID string, err error) {
	if req.ID == "" {
		return "", nil
	}
	runID, body, err := h.journal.Requested(ctx, namespace, req.Method, req.ID)
	if err == nil && runID != "" && body != req.BodyHash {
		return "", journal.RequestIDReused(req.ID)
	}
	return runID, err
}

// AnsweredSignal is the run of an earlier SignalWithStart with the same id, or empty. whole reports that
// the signal was delivered, too.
func (h *Handler) AnsweredSignal(ctx context.Context, namespace string, req journal.Request) (runID string, whole bool, err error) {
	req.Method = MethodSignalWithStart
	if runID, err = h.Answered(ctx, namespace, req); err != nil || runID != "" {
		return runID, err == nil, err
	}
	req.Method = methodSignalStart
	if runID, err = h.Answered(ctx, namespace, req); err != nil || runID == "" {
		return "", false, err
	}
	row, err := h.journal.Head(ctx, namespace, runID)
	if err != nil {
		return "", false, err
	}
	m, err := record.DecodeMetadata(row.Metadata)
	return runID, err == nil && m.StartedBy(req), err
}

// isRepeat reports whether a request about a run was carried out before. The run still exists if so.
func (h *Handler) isRepeat(ctx context.Context, namespace, runID string, req journal.Request) (bool, error) {
	_, done, err := h.repeated(ctx, namespace, runID, req, h.journal.Head)
	return done, err
}

// repeatedRun is isRepeat for requests that are answered with the run.
func (h *Handler) repeatedRun(ctx context.Context, namespace, runID string, req journal.Request) (journal.Run, bool, error) {
	return h.repeated(ctx, namespace, runID, req, h.journal.Get)
}

func (h *Handler) repeated(ctx context.Context, namespace, runID string, req journal.Request,
	read func(ctx context.Context, namespace, runID string) (journal.Run, error),
) (journal.Run, bool, error) {
	id, err := h.Answered(ctx, namespace, req)
	if err != nil || id == "" {
		return journal.Run{}, false, err
	}
	if id != runID {
		return journal.Run{}, false, journal.RequestIDReused(req.ID)
	}
	row, err := read(ctx, namespace, runID)
	return row, err == nil, err
}

// remember keeps the id of a request that had nothing to do, so that its repeat gets the same answer.
func (h *Handler) remember(ctx context.Context, namespace, runID string, kind journal.CommandKind, req journal.Request) error {
	if req.ID == "" {
		return nil
	}
	_, err := h.journal.Enqueue(ctx, journal.EnqueueRequest{Idle: true, Request: req,
		Command: journal.Command{Namespace: namespace, RunID: runID, Kind: kind, Time: dbkit.Now()}})
	return err
}
