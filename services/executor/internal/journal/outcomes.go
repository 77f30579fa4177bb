package journal

import (
	"context"
	"time"
)

// ToolLists keeps what MCP servers listed last, as the actor mcp writes it.
type ToolLists interface {
	// KeptTools returns the last list of a server, nil if there is none.
	KeptTools(ctx context.Context, server string) ([]byte, error)
	// KeepTools keeps a list in place of the last one.
	KeepTools(ctx context.Context, server string, list []byte) error
}

const (
	// MaxOutcomeBytes bounds one outcome that is kept for equal calls.
	MaxOutcomeBytes = 64 << 10
	// MaxOutcomes is how many of them a namespace keeps in the long run.
	MaxOutcomes = 20_000
)

// OutcomeCache keeps the outcomes of calls of nodes with a cache, for equal calls on any executor. It is a
// cache: any of it may be gone at any time.
type OutcomeCache interface {
	// KeptOutcome returns what the namespace keeps under a key and until when it may be used; nil if
	// nothing may be used now.
	KeptOutcome(ctx context.Context, namespace string, key []byte, now time.Time) (outcome []byte, until time.Time, err error)
	// KeepOutcome keeps an outcome of up to MaxOutcomeBytes; a later one replaces an earlier one.
	KeepOutcome(ctx context.Context, namespace string, key, outcome []byte, until time.Time) error
	// SweepOutcomes removes what has expired, and from a namespace that keeps more than most what expires
	// first. It returns how many went.
	SweepOutcomes(ctx context.Context, now time.Time, most int) (int, error)
}
