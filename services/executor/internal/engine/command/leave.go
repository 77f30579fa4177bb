package command

import (
	"context"
	"time"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// Reasons of refused requests for something else.
const (
	// ReasonNobodyHears is the reason when nobody above the work that goes on hears what the user
	// wants.
	ReasonNobodyHears = "NOBODY_HEARS"
	// ReasonNobodySpeaks is the reason when no member of the team is at work in a run of its own.
	ReasonNobodySpeaks = "NOBODY_SPEAKS"
)

// methodInstead keeps the request id of a cancellation with another request. It is remembered with the
// first run that is canceled.
const methodInstead = "CancelRun/instead"

// maxLooked bounds the runs among which a team is looked for.
const maxLooked = 1000

// checkReason refuses a reason that says what only a request for something else may say.
func checkReason(reason string) error {
	if _, ok := actor.LeftFor(reason); !ok {
		return nil
	}
	const text = "a reason does not begin with " + actor.LeftPrefix
	return errs.New(errs.InvalidArgument, "REASON_INVALID", text).Violate("reason", "REASON_INVALID", text).Hint("give what the user wants as `instead`")
}

// leave cancels what the members of a team do, since the user wants something else: the outermost team
// at or below the run hears it, and else whoever has started the run. It returns the run of the request
// once the first cancellation is durable.
func (h *Handler) leave(ctx context.Context, req CancelRequest) (journal.Run, error) {
	if len(req.Instead) > maxInstead || !utf8.ValidString(req.Instead) || req.Reason != "" {
		const text = "what is wanted instead is a text of at most 4096 bytes, without a reason"
		return journal.Run{}, errs.New(errs.InvalidArgument, "REASON_INVALID", text).Violate("instead", "REASON_INVALID", text)
	}
	req.Request.Method, req.Reason = methodInstead, actor.LeftReason(req.Instead)
	first, err := h.Answered(ctx, req.Namespace, req.Request)
	if err != nil {
		return journal.Run{}, err
	}
	for until := time.Now().Add(effectWait); first == ""; {
		list, err := h.leaving(ctx, req)
		if err == nil {
			first, err = h.leaveEach(ctx, req, list)
		}
		again := err == nil || errs.ReasonOf(err) == ReasonNobodySpeaks // somebody may speak soon
		if first == "" && (!again || time.Now().After(until) || !sleep.For(ctx, 20*time.Millisecond)) {
			if err == nil {
				err = errs.New(errs.FailedPrecondition, ReasonNobodySpeaks, "those who speak are ending").Hint("send it again")
			}
			return journal.Run{}, err
		}
	}
	if err := h.left(ctx, req, first); err != nil {
		return journal.Run{}, err
	}
	return h.journal.Get(ctx, req.Namespace, req.RunID)
}

// left reports whether a run was canceled by this request, and not otherwise or not at all.
func (h *Handler) left(ctx context.Context, req CancelRequest, run string) error {
	row, err := h.journal.Head(ctx, req.Namespace, run)
	if err == nil && row.CancelReason != req.Reason {
		return errs.New(errs.FailedPrecondition, journal.ReasonRunEnded, "%s had ended before", run).Set("run_id", run).Hint("send it again, with another request_id")
	}
	return err
}

// leaveEach cancels the runs, and returns the first one that it has canceled; empty if all had ended.
func (h *Handler) leaveEach(ctx context.Context, req CancelRequest, list []string) (first string, err error) {
	for _, id := range list {
		p := journal.EnqueueRequest{Reason: req.Reason, Command: journal.Command{Namespace: req.Namespace, RunID: id, Kind: journal.CommandCancel}}
		if first == "" {
			p.Request = req.Request
		}
		done, err := h.enqueue(ctx, p, &record.Payload{Reason: req.Reason, RequestID: req.Request.ID})
		if err != nil {
			return first, err
		}
		if first == "" && (done.New || req.Request.ID != "") { // the request id is bound to it
			first = id
		}
		if first == id {
			if _, err := h.applied(ctx, req.Namespace, id, journal.CommandCancel, ""); err != nil {
				return first, err
			}
		}
	}
	return first, nil
}

// leaving are the runs that are canceled: those of the members of the outermost team at or below the
// run, or the run itself if there is no team and somebody has started it.
func (h *Handler) leaving(ctx context.Context, req CancelRequest) ([]string, error) {
	top, err := h.journal.Head(ctx, req.Namespace, req.RunID)
	switch {
	case err != nil:
		return nil, err
	case req.Revision != 0 && req.Revision != top.Revision:
		return nil, journal.EtagMismatch(top.ID)
	case top.State.Ended():
		return nil, errs.New(errs.FailedPrecondition, journal.ReasonRunEnded, "the run has ended").Set("run_id", top.ID)
	}
	below, err := h.openBelow(ctx, req.Namespace, top.ID)
	if err != nil {
		return nil, err
	}
	team, err := h.outermostTeam(ctx, top, below)
	switch {
	case err != nil:
		return nil, err
	case team != "" && len(below[team]) == 0:
		return nil, errs.New(errs.FailedPrecondition, ReasonNobodySpeaks, "no member of the team %s is at work in a run of its own", team).Set("run_id", team).
			Hint("answer the question that is open, or stop the run")
	case team != "":
		return below[team], nil
	case top.ParentID == "":
		return nil, errs.New(errs.FailedPrecondition, ReasonNobodyHears, "there is no team in the run that hears what is wanted").Set("run_id", top.ID).
			Hint("cancel the run, and start another one")
	}
	return []string{top.ID}, nil
}

// openBelow are the open runs below a run, by their parents.
func (h *Handler) openBelow(ctx context.Context, namespace, id string) (map[string][]string, error) {
	list, err := h.journal.Descendants(ctx, namespace, id)
	if err != nil {
		return nil, err
	}
	below := map[string][]string{}
	for _, d := range list {
		if !d.State.Ended() {
			below[d.ParentRunID] = append(below[d.ParentRunID], d.RunID)
		}
	}
	return below, nil
}

// isTeam reports whether a run is that of a team. Others may have a graph of the same name.
func isTeam(row *journal.Run) bool {
	if row.GraphName != actor.TeamGraph {
		return false
	}
	m, err := record.DecodeMetadata(row.Metadata)
	return err == nil && m.Agent != nil && m.Agent.Name == actor.TeamGraph
}

// outermostTeam is the run of the first team that is found from a run downwards; empty if there is
// none.
func (h *Handler) outermostTeam(ctx context.Context, top journal.Run, below map[string][]string) (string, error) {
	if top.ParentID != "" && isTeam(&top) {
		return top.ID, nil
	}
	level := below[top.ID]
	for looked := 0; len(level) > 0; {
		var next []string
		for _, id := range level {
			if looked++; looked > maxLooked {
				return "", nil
			}
			row, err := h.journal.Head(ctx, top.Namespace, id)
			if err != nil {
				return "", err
			}
			if isTeam(&row) {
				return id, nil
			}
			next = append(next, below[id]...)
		}
		level = next
	}
	return "", nil
}
