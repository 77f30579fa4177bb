// Package command carries out client requests about runs. It checks a request against the state of its run
// and writes a durable command, which the run's owner applies. It owns no run and writes no event.
package command

import (
	"context"
	"log/slog"

	"github.com/epigraph-run/epigraph/internal/turns"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/attempttoken"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/price"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/replay"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Handler carries out client requests about runs. It is safe for concurrent use.
type Handler struct {
	journal    journal.Journal
	live       Live
	positions  replay.Source
	programs   *program.Set
	computing  *turns.Turns
	prices     *price.Book
	feed       *feed.Feed
	tokens     attempttoken.Keys
	maxPayload int
	log        *slog.Logger
	// byAnother refuses decisions by those who started the run.
	byAnother bool
	// tellDeleted is nil when nobody is told of runs.
	tellDeleted journal.TellDeleted
}

// Live gives access to the runs in the memory of this process. Implementations are safe for concurrent use.
type Live interface {
	// Look returns a function that passes the machine of a live run to f. f must only read, and must not
	// keep the machine. ok is false if the run is not live here or belongs to another namespace.
	Look(namespace, runID string) (look func(f func(*workgraph.State)), ok bool)
	// Refused returns the last amendment that a live run refused, or nil.
	Refused(namespace, runID string) (refusal *record.AmendRefused, live bool)
	// Unheard returns the keys of the last LEAVEs that nobody in a live run heard.
	Unheard(namespace, runID string) (keys record.Unheard, live bool)
	// AwaitPause waits until the pause of a live run is durable, or ctx ends. It returns at once if the run
	// is not live here or not paused.
	AwaitPause(ctx context.Context, namespace, runID string)
	// Room returns an error if a live run has no room for a command of n bytes.
	Room(namespace, runID string, n int64) error
	// Claimant becomes the owner of a run that has none when a command is written for it. The zero value
	// leaves the run without an owner.
	Claimant() journal.Owner
	// ApplySoon schedules the application of a command that was written here.
	ApplySoon(p journal.Enqueued)
	// Start records a run; see Engine.Start.
	Start(ctx context.Context, req StartRequest) (id string, created bool, err error)
}

// Deps are the collaborators of a Handler. All but Prices must be set.
type Deps struct {
	Journal   journal.Journal
	Live      Live
	Positions replay.Source
	Programs  *program.Set
	Computing *turns.Turns
	// Prices is nil when no price book is configured.
	Prices *price.Book
	Feed   *feed.Feed
	Tokens attempttoken.Keys
	Logger *slog.Logger
	// ApprovedByAnother refuses the decision of an approval by whoever started its run, or the root
	// of that.
	ApprovedByAnother bool
	// TellDeleted are the outbox items that tell of a run that is deleted; nil when nobody is told of runs.
	TellDeleted journal.TellDeleted
}

// New returns a Handler that accepts values of up to maxPayload bytes.
func New(d Deps, maxPayload int) *Handler {
	return &Handler{journal: d.Journal, live: d.Live, positions: d.Positions, programs: d.Programs, computing: d.Computing, prices: d.Prices, feed: d.Feed,
		tokens: d.Tokens, maxPayload: maxPayload, log: d.Logger, byAnother: d.ApprovedByAnother, tellDeleted: d.TellDeleted}
}

// Inspect returns access to the state of a run, and its row. look passes the machine to f, which must only
// read and not keep it. The machine holds no payload values. A run that is not live here is read from the
// journal.
func (h *Handler) Inspect(ctx context.Context, namespace, runID string) (look func(f func(*workgraph.State)), row journal.Run, err error) {
	row, err = h.journal.Head(ctx, namespace, runID)
	if err != nil {
		return nil, row, err
	}
	if look, ok := h.live.Look(namespace, runID); ok {
		return look, row, nil
	}
	loaded, err := h.journal.LoadFor(ctx, namespace, runID)
	if err != nil {
		return nil, row, err
	}
	at, err := h.positions.Load(ctx, loaded)
	if err != nil {
		return nil, row, err
	}
	return func(f func(*workgraph.State)) { f(at.State) }, loaded.Run, nil
}

// LastRefusal is the last amendment of a run if its owner refused it, and nil otherwise.
func (h *Handler) LastRefusal(ctx context.Context, namespace, runID string) (*record.AmendRefused, error) {
	if refusal, live := h.live.Refused(namespace, runID); live {
		return refusal, nil
	}
	loaded, err := h.journal.LoadFor(ctx, namespace, runID)
	if err != nil || len(loaded.Snapshot) == 0 {
		return nil, err
	}
	_, head, _, err := record.DecodePosition(loaded.Snapshot, 0)
	if err != nil {
		return nil, nil // an unreadable position has no answer
	}
	return head.Refusal, nil
}
