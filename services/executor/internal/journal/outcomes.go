package journal

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/epigraph-run/epigraph/internal/dbkit"
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

// KeptOutcome is what a call gave, for equal calls until a time. Outcome has up to MaxOutcomeBytes.
type KeptOutcome struct {
	Key, Outcome []byte
	Until        time.Time
}

// KeepOf is an outcome to keep, with the event of its run with which it becomes durable.
type KeepOf struct {
	Namespace, RunID string
	Seq              int64
	KeptOutcome
}

// Keeps are the outcomes that batches keep, the last one of each key, sorted so that all commits lock them in
// one order.
func Keeps(units []*RunBatch) []KeepOf {
	last := map[Key]KeepOf{}
	for _, u := range units {
		for _, k := range u.Kept {
			k.Until = dbkit.Micros(k.Until)
			last[Key{u.Namespace, string(k.Key)}] = KeepOf{u.Namespace, u.RunID, u.LastSeq(), k}
		}
	}
	return slices.SortedFunc(maps.Values(last), func(a, b KeepOf) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), bytes.Compare(a.Key, b.Key))
	})
}

// OutcomeCache keeps the outcomes of calls of nodes with a cache, for equal calls on any executor. It is a
// cache: any of it may be gone at any time. Append.Kept keeps them; a later one replaces an earlier one.
type OutcomeCache interface {
	// KeptOutcome returns what the namespace keeps under a key and until when it may be used; nil if
	// nothing may be used now.
	KeptOutcome(ctx context.Context, namespace string, key []byte, now time.Time) (outcome []byte, until time.Time, err error)
	// SweepOutcomes removes what has expired, and from a namespace that keeps more than most what expires
	// first. It returns how many went.
	SweepOutcomes(ctx context.Context, now time.Time, most int) (int, error)
}
