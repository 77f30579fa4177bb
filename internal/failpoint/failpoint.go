// Package failpoint lets a test kill a process at a named place in the code. Only binaries that are built
// with the tag "chaos" can do that; in all others Hit is empty and is compiled away. It must not know what
// the places mean.
package failpoint

// Point names a place at which a process may be killed.
type Point string

// The points, in the order in which a run meets them.
const (
	// StartBeforeClaim: a run with a task was accepted, and its task is not claimed yet.
	StartBeforeClaim Point = "start.before-claim"
	// StartAfterClaim: the task is claimed at the registry, and the run is not recorded yet.
	StartAfterClaim Point = "start.after-claim"
	// StartAfterRecord: the run is durable, and the caller has no answer yet.
	StartAfterRecord Point = "start.after-record"
	// IntentBefore: an UNSAFE call is about to be made, and its intent is not recorded.
	IntentBefore Point = "intent.before"
	// IntentAfter: the intent is durable, and the call is not made.
	IntentAfter Point = "intent.after"
	// EffectAfter: the call has returned, and nobody knows yet.
	EffectAfter Point = "effect.after"
	// CommitBefore: a batch is about to be written.
	CommitBefore Point = "commit.before"
	// CommitAfter: the batch is durable, and no effect has followed yet.
	CommitAfter Point = "commit.after"
	// BudgetAfter: a run is durably paused for its budget, and no effect has followed yet.
	BudgetAfter Point = "budget.after"
	// ClaimAfter: a run without an owner was claimed, and is not read yet.
	ClaimAfter Point = "claim.after"
	// TakeoverAfter: runs of a dead executor were claimed, and are not read yet.
	TakeoverAfter Point = "takeover.after"
	// OutboxBefore: an item of the outbox was claimed, and the registry does not know of it.
	OutboxBefore Point = "outbox.before"
	// OutboxAfter: the registry has the item, and the item is not acknowledged.
	OutboxAfter Point = "outbox.after"
	// HandoverBefore: a stopping executor has written everything, and still owns its runs.
	HandoverBefore Point = "handover.before"
	// HandoverAfter: it has given them back, and is still there.
	HandoverAfter Point = "handover.after"
)

// Points lists all of them.
func Points() []Point {
	return []Point{StartBeforeClaim, StartAfterClaim, StartAfterRecord, IntentBefore, IntentAfter, EffectAfter, CommitBefore, CommitAfter,
		BudgetAfter, ClaimAfter, TakeoverAfter, OutboxBefore, OutboxAfter, HandoverBefore, HandoverAfter}
}

// Env is the environment variable that arms points of a process: NAME=N kills it at the N-th pass; several
// are separated by commas. Only binaries with the tag "chaos" read it.
const Env = "CHAOS_FAILPOINTS"
