package command

import (
	"context"
	"encoding/json"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Reasons of refused commands.
const (
	// ReasonSignalInvalid is the reason for a signal that no run accepts.
	ReasonSignalInvalid = "SIGNAL_INVALID"
	// ReasonNoBusinessKey is the reason when SignalWithStart has no business key.
	ReasonNoBusinessKey = "BUSINESS_KEY_MISSING"
)

// CancelRequest asks for the end of a run.
type CancelRequest struct {
	Namespace, RunID string
	Reason           string
	// Instead is what the user wants in place of what goes on; see leave. Then there is no Reason.
	Instead string
	// Revision, if not 0, must equal the run's revision.
	Revision int64
	Request  journal.Request
}

// Cancel asks for the end of a run. It returns the run once the command is durable. An ended run stays as
// it is.
func (h *Handler) Cancel(ctx context.Context, req CancelRequest) (journal.Run, error) {
	if req.Instead != "" {
		return h.leave(ctx, req)
	}
	if err := checkReason(req.Reason); err != nil {
		return journal.Run{}, err
	}
	req.Request.Method = MethodCancel
	p, err := h.enqueue(ctx, journal.EnqueueRequest{Revision: req.Revision, Request: req.Request, Reason: req.Reason,
		Command: journal.Command{Namespace: req.Namespace, RunID: req.RunID, Kind: journal.CommandCancel}}, &record.Payload{Reason: req.Reason, RequestID: req.Request.ID})
	return p.Run, err
}

func (h *Handler) checkSignal(s *Signal) error {
	if s.Name == "" || len(s.Name) > 256 {
		return errs.New(errs.InvalidArgument, ReasonSignalInvalid, "a signal's name has 1 to 256 bytes")
	}
	return h.checkPayload("payload", s.Payload)
}

func (h *Handler) checkPayload(field string, raw json.RawMessage) error {
	switch {
	case len(raw) > h.maxPayload:
		return errs.New(errs.InvalidArgument, journal.ReasonPayloadTooLarge, "%s has %d bytes, the limit is %d", field, len(raw), h.maxPayload).
			Hint("keep large values outside and pass a reference")
	case len(raw) > 0 && workgraph.ValueFault(raw) != "":
		return errs.New(errs.InvalidArgument, "PAYLOAD_INVALID", "%s %s", field, workgraph.ValueFault(raw))
	}
	return nil
}

// SignalWithStart sends a signal to the open run with the business key, or starts that run with the signal.
// Either happens in one transaction. created reports that a run was started.
func (h *Handler) SignalWithStart(ctx context.Context, req StartRequest, sig Signal) (id string, created bool, err error) {
	if req.BusinessKey == "" {
		return "", false, errs.New(errs.InvalidArgument, ReasonNoBusinessKey, "the run to signal or start must have a business_key")
	}
	if err := h.checkSignal(&sig); err != nil {
		return "", false, err
	}
	once := req.Request
	once.Method, req.Request.Method = MethodSignalWithStart, methodSignalStart
	req.Conflict, req.Signal = journal.ConflictReturnExisting, &sig
	// The first half of an interrupted request may have been carried out: its run is known then.
	known, whole, err := h.AnsweredSignal(ctx, req.Namespace, once)
	if err != nil || whole {
		return known, false, err
	}
	for {
		id := known
		if id == "" {
			started, created, err := h.live.Start(ctx, req)
			if err != nil || created {
				return started, created, err
			}
			id = started
		}
		err = h.signalExisting(ctx, req.Namespace, id, once, &sig)
		if errs.ReasonOf(err) == journal.ReasonRunEnded && once.ID == "" {
			continue // the run ended in between, so its key is free
		}
		return id, false, err
	}
}

// signalExisting sends a signal to a run that is there, unless the request started it.
func (h *Handler) signalExisting(ctx context.Context, namespace, id string, once journal.Request, sig *Signal) error {
	row, err := h.journal.Head(ctx, namespace, id)
	if err != nil {
		return err
	}
	if m, err := record.DecodeMetadata(row.Metadata); err != nil || m.StartedBy(once) {
		return err // a concurrent request with the same id was faster
	}
	if err := h.acceptsSignal(namespace, id, sig); err != nil {
		return err
	}
	_, err = h.enqueue(ctx, journal.EnqueueRequest{Request: once,
		Command: journal.Command{Namespace: namespace, RunID: id, Kind: journal.CommandSignal, Key: ids.New("req")}},
		&record.Payload{Name: sig.Name, Payload: sig.Payload, RequestID: once.ID})
	return err
}

// SignalOpen is SignalWithStart where nothing can be started. id is empty if no open run has the business
// key.
func (h *Handler) SignalOpen(ctx context.Context, namespace, key string, once journal.Request, sig Signal) (id string, err error) {
	if err := h.checkSignal(&sig); err != nil {
		return "", err
	}
	if id, err = h.Holder(ctx, namespace, key); err != nil || id == "" {
		return "", err
	}
	once.Method = MethodSignalWithStart
	return id, h.signalExisting(ctx, namespace, id, once, &sig)
}

// holdersRead is how many open runs with a business key are looked at for the one that holds it: the others
// are being canceled, since another run took the key.
const holdersRead = 100

// Holder is the open run that holds a business key; empty if there is none.
func (h *Handler) Holder(ctx context.Context, namespace, key string) (string, error) {
	if key == "" {
		return "", nil
	}
	open := []journal.State{journal.StatePending, journal.StateRunning, journal.StateWaiting, journal.StatePaused, journal.StateQuarantined}
	rows, err := h.journal.List(ctx, namespace, journal.Filter{BusinessKey: key, States: open}, page.Cursor{}, holdersRead)
	if err != nil {
		return "", err
	}
	for i := range rows {
		if rows[i].CancelReason != journal.ReasonBusinessKeyTaken {
			return rows[i].ID, nil
		}
	}
	return "", nil
}

// acceptsSignal refuses a signal that a live run of this process would drop. For other runs the owner
// decides when it applies the command.
func (h *Handler) acceptsSignal(namespace, runID string, sig *Signal) error {
	look, ok := h.live.Look(namespace, runID)
	if !ok {
		return nil
	}
	room := false
	look(func(s *workgraph.State) { room = s.RoomForSignal(sig.Name, len(sig.Payload)) })
	if room {
		return nil
	}
	return errs.New(errs.ResourceExhausted, journal.ReasonInboxFull, "run %q keeps as many signals that it has not waited for as it may: %d, and %d bytes", runID,
		workgraph.MaxSignals, workgraph.MaxSignalBytes).Hint("send again when it has waited for some")
}

// enqueue writes a command and notifies the owner of the run.
func (h *Handler) enqueue(ctx context.Context, p journal.EnqueueRequest, l *record.Payload) (journal.Enqueued, error) {
	if l != nil {
		l.Trace, l.Principal = tracing.Of(ctx), access.Of(ctx).String()
		body, err := l.Encode()
		if err != nil {
			return journal.Enqueued{}, errs.New(errs.InvalidArgument, "PAYLOAD_INVALID", "a value is not JSON").With(err)
		}
		p.Command.Body = body
	}
	if err := h.live.Room(p.Command.Namespace, p.Command.RunID, int64(len(p.Command.Body))); err != nil {
		return journal.Enqueued{}, err
	}
	p.Command.Time = dbkit.Now()
	p.Claimant = h.live.Claimant()
	enqueued, err := h.journal.Enqueue(ctx, p)
	if err == nil {
		tracing.LinkRequest(ctx, enqueued.Run)
	}
	// A durable command is applied even if the values of its run cannot be read at the moment.
	h.live.ApplySoon(enqueued)
	return enqueued, err
}

// Unapplied names the kinds of commands that the owner of a run has not applied yet. Ends of children are
// left out.
func Unapplied(unread []journal.CommandKind) []string {
	var out []string
	for _, k := range unread {
		if k != journal.CommandChildEnded { // not the client's
			out = append(out, string(k))
		}
	}
	return out
}
