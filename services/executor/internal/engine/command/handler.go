// Package command carries out what clients ask of runs: it checks a request against where its run stands, and
// writes a durable command that the owner of the run applies. It owns no run.
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

// Handler carries out what clients ask of runs: it checks a request against where its run stands and writes a
// durable command, which the owner of the run applies. It is safe for concurrent use.
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
}

// Live are the runs in the memory of this process, as far as requests about runs need them. Implementations
// are safe for concurrent use.
type Live interface {
	// Look returns a function that gives the machine of a live run to f, for reading only and only while f
	// runs. ok is false when no run of the namespace is live here by that id.
	Look(namespace, runID string) (look func(f func(*workgraph.State)), ok bool)
	// Refused returns the last amendment that a live run has refused, nil for none.
	Refused(namespace, runID string) (refusal *record.AmendRefused, live bool)
	// Room returns an error if a live run has no room for a command of n bytes.
	Room(namespace, runID string, n int64) error
	// Claimant is who owns a run from then on that nobody owns when a command is written for it; the zero
	// value is nobody.
	Claimant() journal.Owner
	// ApplySoon has a command applied at once that was written here.
	ApplySoon(p journal.Enqueued)
	// Start records a run: see Engine.Start.
	Start(ctx context.Context, req StartRequest) (id string, created bool, err error)
}

// Deps are a Handler's collaborators; all but Prices must be set.
type Deps struct {
	Journal   journal.Journal
	Live      Live
	Positions replay.Source
	Programs  *program.Set
	Computing *turns.Turns
	// Prices is nil when nobody knows prices.
	Prices *price.Book
	Feed   *feed.Feed
	Tokens attempttoken.Keys
	Logger *slog.Logger
}

// New returns a Handler that takes values of up to maxPayload bytes.
func New(d Deps, maxPayload int) *Handler {
	return &Handler{journal: d.Journal, live: d.Live, positions: d.Positions, programs: d.Programs, computing: d.Computing, prices: d.Prices, feed: d.Feed,
		tokens: d.Tokens, maxPayload: maxPayload, log: d.Logger}
}

// Standing is where a run stands, with its row as it was read, without its values: look gives the machine's
// state to f, for reading only and only while f runs. A run that is not in memory here is read from the
// journal, wherever it is.
func (h *Handler) Standing(ctx context.Context, namespace, runID string) (look func(f func(*workgraph.State)), row journal.Run, err error) {
	row, err = h.journal.Head(ctx, namespace, runID)
	if err != nil {
		return nil, row, err
	}
	if look, ok := h.live.Look(namespace, runID); ok {
		return look, row, nil
	}
	loaded, err := h.journal.Standing(ctx, namespace, runID)
	if err != nil {
		return nil, row, err
	}
	at, err := h.positions.Load(ctx, loaded)
	if err != nil {
		return nil, row, err
	}
	return func(f func(*workgraph.State)) { f(at.State) }, loaded.Run, nil
}

// LastRefusal is the last amendment of a run if it was refused when its owner applied it, else nil.
func (h *Handler) LastRefusal(ctx context.Context, namespace, runID string) (*record.AmendRefused, error) {
	if refusal, live := h.live.Refused(namespace, runID); live {
		return refusal, nil
	}
	loaded, err := h.journal.Standing(ctx, namespace, runID)
	if err != nil || len(loaded.Snapshot) == 0 {
		return nil, err
	}
	_, head, _, err := record.DecodePosition(loaded.Snapshot, 0)
	if err != nil {
		return nil, nil // a position of no use tells nothing
	}
	return head.Refusal, nil
}
