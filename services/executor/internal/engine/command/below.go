package command

import (
	"context"
	"fmt"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/phrase"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// maxBelow is how many paused runs below a run one request resumes, the oldest first. The next request
// resumes others.
const maxBelow = 1000

// methodResumeBelow keeps the request id of a resume that has begun, and of each run that it resumes, so that
// a repetition of an interrupted request resumes none twice.
const methodResumeBelow = "ResumeRun/below"

// resumeBelow resumes the paused runs below a run that is not paused itself, whatever their reasons. It is
// refused if there are none, and if none can go on.
func (h *Handler) resumeBelow(ctx context.Context, row journal.Run, req ResumeRequest) error {
	below, err := h.journal.Descendants(ctx, req.Namespace, req.RunID)
	if err != nil {
		return err
	}
	quarantined := ""
	paused := below[:0]
	for _, d := range below {
		switch {
		case d.State == journal.StatePaused:
			paused = append(paused, d)
		case d.State == journal.StateQuarantined && quarantined == "":
			quarantined = d.RunID
		}
	}
	if len(paused) > 0 && req.Revision != 0 && req.Revision != row.Revision {
		return journal.EtagMismatch(row.ID)
	}
	once := req.Request
	once.Method = methodResumeBelow
	begun, err := h.Answered(ctx, req.Namespace, once)
	if err != nil {
		return err
	}
	if len(paused) > 0 {
		if err := h.remember(ctx, req.Namespace, req.RunID, journal.CommandResume, once); err != nil {
			return err
		}
	}
	resumed, refused, err := h.resumeEach(ctx, paused, req)
	switch {
	case err != nil:
		return err
	case len(resumed) > 0 || begun != "" && refused == nil:
		if err := h.appliedBelow(ctx, req.Namespace, resumed); err != nil {
			return err
		}
		return h.remember(ctx, req.Namespace, req.RunID, journal.CommandResume, req.Request)
	case refused != nil:
		return refused
	case quarantined != "":
		return notPaused(row).Hint(fmt.Sprintf("%s below it is QUARANTINED: %s tries it again", quarantined, phrase.Command("runs resume "+quarantined)))
	}
	return notPaused(row).Hint(h.insteadOfPaused(ctx, row))
}

// resumeEach writes the commands that resume these runs, and returns the runs that got one, and why the first
// of the others did not. A run that was paused together with one that goes on now goes on with it.
func (h *Handler) resumeEach(ctx context.Context, paused []journal.Descendant, req ResumeRequest) (resumed []string, refused, err error) {
	until := time.Now().Add(bulkTime)
	goOn := map[string]bool{}
	for _, d := range paused {
		if len(resumed) == maxBelow || time.Now().After(until) {
			break
		}
		row, err := h.journal.Head(ctx, req.Namespace, d.RunID)
		if err == nil && row.Reason == workgraph.ReasonParentPaused && goOn[d.ParentRunID] {
			goOn[d.RunID] = true
			continue
		}
		if err == nil {
			err = h.resumeOneBelow(ctx, row, req)
		}
		switch errs.ReasonOf(err) {
		case "":
			goOn[d.RunID] = true
			resumed = append(resumed, d.RunID)
		case journal.ReasonStateRefuses, journal.ReasonRunEnded, journal.ReasonRunNotFound:
			// It has gone on meanwhile.
		case ReasonReconciliationNeeded, workgraph.ReasonBudget, workgraph.ReasonUnsettled:
			if refused == nil {
				refused = refusedBelow(d.RunID, err)
			}
		default:
			return resumed, refused, err
		}
	}
	return resumed, refused, nil
}

// resumeOneBelow writes the command that resumes a run below, unless something stands in the way.
func (h *Handler) resumeOneBelow(ctx context.Context, row journal.Run, req ResumeRequest) error {
	if err := h.checkResume(ctx, row, nil); err != nil {
		return err
	}
	once := req.Request
	if once.ID != "" {
		once.Method, once.ID = methodResumeBelow, once.ID+"/"+row.ID
	}
	_, err := h.enqueue(ctx, journal.EnqueueRequest{Request: once, Open: []journal.State{journal.StatePaused},
		Command: journal.Command{Namespace: req.Namespace, RunID: row.ID, Kind: journal.CommandResume, Key: "resume"}},
		&record.Payload{Reason: req.Reason, Step: req.Step, RequestID: req.Request.ID})
	return err
}

// refusedBelow names the run below in its refusal.
func refusedBelow(id string, err error) error {
	e := errs.From(err)
	out := errs.New(e.Kind, e.Reason, "run %s below it cannot go on: %s", id, e.Message).Set("run_id", id)
	for k, v := range e.Meta {
		out = out.Set(k, v)
	}
	return out
}

// appliedBelow waits up to effectWait until all of the runs have applied their resume.
func (h *Handler) appliedBelow(ctx context.Context, namespace string, runs []string) error {
	waiting, cancel := context.WithTimeout(ctx, effectWait)
	defer cancel()
	for _, id := range runs {
		if _, err := h.applied(waiting, namespace, id, journal.CommandResume, "resume"); err != nil && waiting.Err() == nil {
			return err
		}
	}
	return ctx.Err()
}

// insteadOfPaused says what a run waits for that is not paused.
func (h *Handler) insteadOfPaused(ctx context.Context, row journal.Run) string {
	more := phrase.Command("runs explain "+row.ID) + " says more"
	switch row.State {
	case journal.StatePending:
		return "it has not started: " + more
	case journal.StateRunning:
		return "it goes on: " + more
	}
	look, _, err := h.Inspect(ctx, row.Namespace, row.ID)
	if err != nil {
		return more
	}
	what := ""
	look(func(s *workgraph.State) {
		s.Waits(func(w workgraph.WaitInfo) bool {
			switch {
			case w.Interrupt != nil:
				what = "the answer to " + w.Interrupt.ID + ", which " + phrase.Command("interrupts answer "+w.Interrupt.ID) + " gives"
			case w.Signal != "":
				what = fmt.Sprintf("the signal %q", w.Signal)
			case len(w.Children) > 0:
				what = fmt.Sprintf("%s, none of which is paused", phrase.Counted(len(w.Children), "child run"))
			case w.Kind == workgraph.WaitCompletion:
				what = "work outside"
			case w.Kind == workgraph.WaitTimer:
				what = "a timer that ends at " + w.Due.UTC().Format(time.RFC3339)
			}
			return what == ""
		})
	})
	if what == "" {
		return more
	}
	return "it waits for " + what + "; " + more
}
