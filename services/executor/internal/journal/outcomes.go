package journal

import (
	"context"
	"time"
)

const (
	// MaxOutcomeBytes bounds one outcome that is kept for equal calls.
	MaxOutcomeBytes = 64 << 10
	// MaxOutcomes is how many of them a namespace keeps in the long run.
	MaxOutcomes = 20_000
)

// OutcomeCache keeps what calls of nodes with a cache gave, for equal calls on whatever executor. It is a cache: what is kept may be gone at any time.
type OutcomeCache interface {
	// KeptOutcome returns what the namespace keeps under a key and until when it may be used; nil if nothing may be used now.
	KeptOutcome(ctx context.Context, namespace string, key []byte, now time.Time) (outcome []byte, until time.Time, err error)
	// KeepOutcome keeps an outcome of up to MaxOutcomeBytes; a later one replaces an earlier one.
	KeepOutcome(ctx context.Context, namespace string, key, outcome []byte, until time.Time) error
	// SweepOutcomes removes what has expired, and of what a namespace keeps beyond most what expires first. It returns how many went.
	SweepOutcomes(ctx context.Context, now time.Time, most int) (int, error)
}
