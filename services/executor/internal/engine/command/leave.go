package command

import (
	"context"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/sleep"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Reasons of refused requests for something else.
const (
	// ReasonNobodyHears is the reason when nobody above the work that goes on hears what the user
	// wants.
	ReasonNobodyHears = "NOBODY_HEARS"
	// ReasonNobodySpeaks is the reason when no member of the team does anything that can be left.
	ReasonNobodySpeaks = "NOBODY_SPEAKS"
	// ReasonTooManyRuns is the reason when a team is looked for among too many runs.
	ReasonTooManyRuns = "TOO_MANY_RUNS"
)

// methodInstead keeps the request id of a cancellation with another request. It is remembered with the run
// that hears the request.
const methodInstead = "CancelRun/instead"

// maxLooked bounds the runs with the name of a team that are read to find one.
const maxLooked = 100

// checkReason refuses a reason that says what only a request for something else may say.
func checkReason(reason string) error {
	if _, ok := actor.LeftFor(reason); !ok {
		return nil
	}
	const text = "a reason does not begin with " + actor.LeftPrefix
	return errs.New(errs.InvalidArgument, "REASON_INVALID", text).Violate("reason", "REASON_INVALID", text).Hint("give what the user wants as `instead`")
}

// Speaking are those members of a team who do something that can be left.
type Speaking struct {
	// Children are the runs of members.
	Children []string
	// Calls are under way. None of them is UNSAFE: of such a call nobody would know what it did.
	Calls []workgraph.Start
}

// Nobody reports whether there is nothing to leave.
func (s *Speaking) Nobody() bool { return len(s.Children)+len(s.Calls) == 0 }

// WhoSpeaks are the members who speak in the run of a team.
func WhoSpeaks(s *workgraph.State) (who Speaking) {
	for _, c := range s.Spawns() {
		if actor.SpeaksInTeam(c.Ref.Node) {
			who.Children = append(who.Children, c.Child.ID)
		}
	}
	for _, c := range s.Outstanding() {
		if actor.SpeaksInTeam(c.Node) && c.Effect != workgraph.Unsafe && !c.Canceled {
			who.Calls = append(who.Calls, c)
		}
	}
	return who
}

// leave lets the outermost team at or below the run leave what its members do, since the user wants something
// else. Without a team the run itself is canceled, and whoever has started it hears the text. One durable
// command to one run says so, and the request id is kept with it: a repetition asks for nothing more.
func (h *Handler) leave(ctx context.Context, req CancelRequest) (journal.Run, error) {
	if len(req.Instead) > maxInstead || !utf8.ValidString(req.Instead) || req.Reason != "" {
		const text = "what is wanted instead is a text of at most 4096 bytes, without a reason"
		return journal.Run{}, errs.New(errs.InvalidArgument, "REASON_INVALID", text).Violate("instead", "REASON_INVALID", text)
	}
	req.Request.Method, req.Reason = methodInstead, actor.LeftReason(req.Instead)
	p := journal.EnqueueRequest{Request: req.Request, Reason: req.Reason, Command: journal.Command{Namespace: req.Namespace, Kind: journal.CommandLeave, Key: commandKey(req.Request)}}
	hears, err := h.Answered(ctx, req.Namespace, req.Request)
	if err == nil && hears == "" {
		hears, err = h.tell(ctx, req, p)
	}
	if err != nil {
		return journal.Run{}, err
	}
	if err := h.heard(ctx, req, hears, p.Command.Key); err != nil {
		return journal.Run{}, err
	}
	return h.journal.Get(ctx, req.Namespace, req.RunID)
}

// tell writes the command to the run that hears the request, and returns that run. It looks again while those
// who speak change.
func (h *Handler) tell(ctx context.Context, req CancelRequest, p journal.EnqueueRequest) (string, error) {
	until, team := time.Now().Add(effectWait), ""
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		hears, err := h.tellOnce(ctx, req, p, &team)
		switch errs.ReasonOf(err) {
		case journal.ReasonRequestIDReused:
			// The same request was faster, and found another team.
			if known, err := h.Answered(ctx, req.Namespace, req.Request); err != nil || known != "" {
				return known, err
			}
		case ReasonNobodySpeaks: // somebody may speak soon
		case journal.ReasonRunEnded:
			if hears == req.RunID {
				return "", err
			}
			team = ""
		default:
			return hears, err
		}
		if time.Now().After(until) || !sleep.For(ctx, pause) {
			return "", err
		}
	}
}

// tellOnce is one try of tell. team is the one that was found before, or is set to the one that it
// finds.
func (h *Handler) tellOnce(ctx context.Context, req CancelRequest, p journal.EnqueueRequest, team *string) (string, error) {
	top, err := h.journal.Head(ctx, req.Namespace, req.RunID)
	switch {
	case err != nil:
		return "", err
	case req.Revision != 0 && req.Revision != top.Revision:
		return "", journal.EtagMismatch(top.ID)
	case top.State.Ended():
		return top.ID, errs.New(errs.FailedPrecondition, journal.ReasonRunEnded, "the run has ended").Set("run_id", top.ID)
	}
	if *team == "" {
		if *team, err = h.outermostTeam(ctx, &top); err != nil {
			return "", err
		}
	}
	p.Command.RunID = *team
	switch {
	case p.Command.RunID != "":
		if err := h.speaks(ctx, req.Namespace, p.Command.RunID); err != nil {
			return p.Command.RunID, err
		}
	case top.ParentID == "":
		return "", errs.New(errs.FailedPrecondition, ReasonNobodyHears, "there is no team in the run that hears what is wanted").Set("run_id", top.ID).
			Hint("cancel the run, and start another one")
	default:
		p.Command.RunID, p.Command.Kind, p.Command.Key, p.Must = top.ID, journal.CommandCancel, "", true
	}
	_, err = h.enqueue(ctx, p, &record.Payload{Reason: req.Reason, RequestID: req.Request.ID})
	return p.Command.RunID, err
}

// speaks refuses to tell a team in which nobody does anything that can be left.
func (h *Handler) speaks(ctx context.Context, namespace, team string) error {
	look, row, err := h.Inspect(ctx, namespace, team)
	switch {
	case err != nil:
		return err
	case row.State.Ended():
		return errs.New(errs.FailedPrecondition, journal.ReasonRunEnded, "the run has ended").Set("run_id", team)
	}
	able := false
	look(func(s *workgraph.State) {
		who := WhoSpeaks(s)
		able = !who.Nobody()
		for _, c := range s.Outstanding() {
			able = able || !actor.SpeaksInTeam(c.Node) // between two turns
		}
	})
	if able {
		return nil
	}
	return nobodySpeaks(team)
}

func nobodySpeaks(team string) *errs.Error {
	return errs.New(errs.FailedPrecondition, ReasonNobodySpeaks, "no member of the team %s does anything that can be left", team).Set("run_id", team).
		Hint("answer the question that is open, wait for the call that cannot be canceled, or stop the run")
}

// heard waits until the run has applied the command, and reports it if nobody heard the request.
func (h *Handler) heard(ctx context.Context, req CancelRequest, run, key string) error {
	if _, err := h.applied(ctx, req.Namespace, run, journal.CommandLeave, key); err != nil {
		return err
	}
	if _, err := h.applied(ctx, req.Namespace, run, journal.CommandCancel, ""); err != nil {
		return err
	}
	row, err := h.journal.Head(ctx, req.Namespace, run)
	if err != nil || row.CancelReason == req.Reason {
		return err
	}
	if row.State.Ended() {
		return h.heardBefore(ctx, req, run)
	}
	unheard, err := h.unheard(ctx, req.Namespace, run)
	if err == nil && slices.Contains(unheard, key) {
		return nobodySpeaks(run).Hint("send it again, with another request_id")
	}
	return err
}

// unheard are the keys of the last requests that nobody in the team heard.
func (h *Handler) unheard(ctx context.Context, namespace, run string) (record.Unheard, error) {
	if keys, live := h.live.Unheard(namespace, run); live {
		return keys, nil
	}
	loaded, err := h.journal.LoadFor(ctx, namespace, run)
	if err != nil || len(loaded.Snapshot) == 0 {
		return nil, err
	}
	_, head, _, err := record.DecodePosition(loaded.Snapshot, 0)
	return head.Unheard, err
}

// eventsRead is how many events of a run are read at once, and maxEventsRead how many of the last ones.
const eventsRead, maxEventsRead = 500, 20_000

// heardBefore reports it if a team ended before it heard the request.
func (h *Handler) heardBefore(ctx context.Context, req CancelRequest, run string) error {
	row, err := h.journal.Head(ctx, req.Namespace, run)
	if err != nil {
		return err
	}
	for after := max(0, row.LastSeq-maxEventsRead); ; {
		list, err := h.journal.Events(ctx, req.Namespace, run, after, eventsRead)
		if err != nil {
			return err
		}
		for i := range list {
			d, err := record.DecodeEvent(list[i])
			if err != nil {
				return err
			}
			failed := d.Error
			if d.Child != nil {
				failed = d.Child.Error
			}
			if text, ok := actor.RequestOf(failed); ok && text == req.Instead {
				return nil
			}
		}
		if len(list) == 0 {
			break
		}
		after = list[len(list)-1].Seq
	}
	return errs.New(errs.FailedPrecondition, journal.ReasonRunEnded, "%s had ended before", run).Set("run_id", run).Hint("send it again, with another request_id")
}

// isTeam reports whether a run is that of a team. Others may have a graph of the same name.
func isTeam(row *journal.Run) bool {
	if row.GraphName != actor.TeamGraph {
		return false
	}
	m, err := record.DecodeMetadata(row.Metadata)
	return err == nil && m.Agent != nil && m.Agent.Name == actor.TeamGraph
}

// outermostTeam is the run of the first open team that is found from a run downwards; empty if there is none.
// Others may have a graph of the same name, so those with it are read one by one.
func (h *Handler) outermostTeam(ctx context.Context, top *journal.Run) (string, error) {
	if top.ParentID != "" && isTeam(top) {
		return top.ID, nil
	}
	list, err := h.journal.OpenBelow(ctx, top.Namespace, top.ID, actor.TeamGraph, maxLooked+1)
	if err != nil {
		return "", err
	}
	for i, id := range list {
		if i == maxLooked {
			return "", errs.New(errs.FailedPrecondition, ReasonTooManyRuns, "more than %d runs below have the name of a team", maxLooked).Set("run_id", top.ID).
				Hint("name the run of the team, or one nearer to it")
		}
		row, err := h.journal.Head(ctx, top.Namespace, id)
		if err != nil || isTeam(&row) {
			return id, err
		}
	}
	return "", nil
}
