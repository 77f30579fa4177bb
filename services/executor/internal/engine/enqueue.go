package engine

import (
	"context"
	"encoding/json"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/failpoint"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/tracing"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Reasons of refused commands.
const (
	// ReasonSignalInvalid is the reason of a signal that no run can take.
	ReasonSignalInvalid = "SIGNAL_INVALID"
	// ReasonNoBusinessKey is the reason when a run to signal or start is not named by a business key.
	ReasonNoBusinessKey = "BUSINESS_KEY_MISSING"
)

// CancelRequest asks for the end of a run.
type CancelRequest struct {
	Namespace, RunID string
	Reason           string
	// Revision, if not 0, must be the run's present one.
	Revision int64
	Request  journal.Request
}

// Cancel asks for the end of a run and returns the run once the wish is durable. A run that has ended stays
// as it is.
func (e *Engine) Cancel(ctx context.Context, req CancelRequest) (journal.Run, error) {
	req.Request.Method = MethodCancel
	p, err := e.enqueue(ctx, journal.EnqueueRequest{Revision: req.Revision, Request: req.Request, Reason: req.Reason,
		Command: journal.Command{Namespace: req.Namespace, RunID: req.RunID, Kind: journal.CommandCancel}}, &record.Payload{Reason: req.Reason, RequestID: req.Request.ID})
	return p.Run, err
}

func (e *Engine) signalFits(s *Signal) error {
	if s.Name == "" || len(s.Name) > 256 {
		return errs.New(errs.InvalidArgument, ReasonSignalInvalid, "a signal's name has 1 to 256 bytes")
	}
	return e.payloadFits("payload", s.Payload)
}

func (e *Engine) payloadFits(field string, raw json.RawMessage) error {
	switch {
	case len(raw) > e.cfg.MaxPayload:
		return errs.New(errs.InvalidArgument, ReasonPayloadTooLarge, "%s has %d bytes, the limit is %d", field, len(raw), e.cfg.MaxPayload).
			Hint("keep large values outside and pass a reference")
	case len(raw) > 0 && workgraph.ValueFault(raw) != "":
		return errs.New(errs.InvalidArgument, "PAYLOAD_INVALID", "%s %s", field, workgraph.ValueFault(raw))
	}
	return nil
}

// SignalWithStart gives a signal to the open run with the business key, or starts that run with the signal,
// whichever is possible: each in one transaction. created tells that a run was started.
func (e *Engine) SignalWithStart(ctx context.Context, req StartRequest, sig Signal) (id string, created bool, err error) {
	if req.BusinessKey == "" {
		return "", false, errs.New(errs.InvalidArgument, ReasonNoBusinessKey, "the run to signal or start must have a business_key")
	}
	if err := e.signalFits(&sig); err != nil {
		return "", false, err
	}
	once := req.Request
	once.Method, req.Request.Method = MethodSignalWithStart, methodSignalStart
	req.Conflict, req.Signal = journal.ConflictReturnExisting, &sig
	// Of a request that was cut off between its halves the run is known.
	known, whole, err := e.AnsweredSignal(ctx, req.Namespace, once)
	if err != nil || whole {
		return known, false, err
	}
	for {
		id := known
		if id == "" {
			started, created, err := e.Start(ctx, req)
			if err != nil || created {
				return started, created, err
			}
			id = started
		}
		row, err := e.journal.Head(ctx, req.Namespace, id)
		if err != nil {
			return "", false, err
		}
		if m, err := record.DecodeMetadata(row.Metadata); err != nil || m.StartedBy(once) {
			return id, false, err // another try of it was quicker
		}
		if err := e.acceptsSignal(req.Namespace, id, &sig); err != nil {
			return "", false, err
		}
		_, err = e.enqueue(ctx, journal.EnqueueRequest{Request: once,
			Command: journal.Command{Namespace: req.Namespace, RunID: id, Kind: journal.CommandSignal, Key: ids.New("req")}},
			&record.Payload{Name: sig.Name, Payload: sig.Payload, RequestID: once.ID})
		if errs.ReasonOf(err) == journal.ReasonRunEnded && once.ID == "" {
			continue // it ended in between, so its key is free
		}
		return id, false, err
	}
}

// acceptsSignal refuses a signal that the run would not keep, if it is in memory here. Elsewhere its owner
// finds out when it takes it up.
func (e *Engine) acceptsSignal(namespace, runID string, sig *Signal) error {
	t := e.current()
	if t == nil {
		return nil
	}
	r := t.get(runID)
	if r == nil || r.namespace != namespace || r.gone.Load() {
		return nil
	}
	r.lock()
	defer r.mu.Unlock()
	if r.State.RoomForSignal(sig.Name, len(sig.Payload)) {
		return nil
	}
	return errs.New(errs.ResourceExhausted, journal.ReasonInboxFull, "run %q keeps as many signals that it has not waited for as it may: %d, and %d bytes", runID,
		workgraph.MaxSignals, workgraph.MaxSignalBytes).Hint("send again when it has waited for some")
}

// fitsRun refuses large commands for a run that is in memory here, if there is no room for it. A run
// elsewhere takes it up where it is, and one that is in no memory is read when there is room for it and its
// commands.
func (e *Engine) fitsRun(namespace, runID string, n int64) error {
	t := e.current()
	if t == nil || n <= inflight.Small {
		return nil
	}
	if r := t.get(runID); r == nil || r.namespace != namespace || r.gone.Load() || t.memory.Room(namespace, n) {
		return nil
	}
	return t.errFull(errs.ResourceExhausted)
}

// enqueue writes commands and wakes who takes it up.
func (e *Engine) enqueue(ctx context.Context, p journal.EnqueueRequest, l *record.Payload) (journal.Enqueued, error) {
	if l != nil {
		l.Trace, l.Principal = tracing.Of(ctx), access.Of(ctx).String()
		body, err := l.Encode()
		if err != nil {
			return journal.Enqueued{}, errs.New(errs.InvalidArgument, "PAYLOAD_INVALID", "a value is not JSON").With(err)
		}
		p.Command.Body = body
	}
	if err := e.fitsRun(p.Command.Namespace, p.Command.RunID, int64(len(p.Command.Body))); err != nil {
		return journal.Enqueued{}, err
	}
	p.Command.Time = dbkit.Now()
	if t := e.current(); t != nil && t.takes() {
		p.Claimant = t.owner
	}
	posted, err := e.journal.Enqueue(ctx, p)
	if err == nil {
		tracing.LinkRequest(ctx, posted.Run)
	}
	// Commands that is durable is taken up even if the values of its run cannot be read just now.
	e.ApplySoon(posted)
	return posted, err
}

// ApplySoon sees to commands at once that was written here: for a run of this executor, by now or before, or
// one that nobody owns. Other owners are told by the journal; and for a run without one a job is on its way.
func (e *Engine) ApplySoon(p journal.Enqueued) {
	t := e.current()
	switch {
	case t == nil:
	case p.Claimed && p.Owner == t.owner:
		failpoint.Hit(failpoint.ClaimAfter)
		t.loadSoon(p.Run.Namespace, p.Run.ID)
	case !p.New:
	case p.Owner == t.owner:
		t.pollCommandsSoon()
	case p.Owner.IsZero():
		t.spawn(func() { t.wake(p.Run.Namespace, p.Run.ID) })
	}
}

// Unapplied lists the commands among commands that the owner of a run has not taken up yet.
func Unapplied(unread []journal.CommandKind) []string {
	var out []string
	for _, k := range unread {
		if k != journal.CommandChildEnded { // nobody asked for that
			out = append(out, string(k))
		}
	}
	return out
}

// Standing is where a run stands, with its row as it was read, without its values: look gives the machine's
// state to f, for reading only and only while f runs. A run that is not in memory here is read from the
// journal, wherever it is.
func (e *Engine) Standing(ctx context.Context, namespace, runID string) (look func(f func(*workgraph.State)), row journal.Run, err error) {
	row, err = e.journal.Head(ctx, namespace, runID)
	if err != nil {
		return nil, row, err
	}
	if t := e.current(); t != nil {
		if r := t.get(runID); r != nil && !r.gone.Load() {
			return func(f func(*workgraph.State)) {
				r.lock()
				defer r.mu.Unlock()
				f(r.State)
			}, row, nil
		}
	}
	loaded, err := e.journal.Standing(ctx, namespace, runID)
	if err != nil {
		return nil, row, err
	}
	at, err := e.source().Load(ctx, loaded)
	if err != nil {
		return nil, row, err
	}
	return func(f func(*workgraph.State)) { f(at.State) }, loaded.Run, nil
}
