package store

import (
	"context"
	"time"
)

// Suspicion names something that must not be so in the books, or that wants looking after.
type Suspicion string

// The suspicions.
const (
	// SuspectTaskTotals: what is booked on a task is not the sum of its entries.
	SuspectTaskTotals Suspicion = "task-totals"
	// SuspectEpicTotals: what is booked on an epic is not the sum of its entries.
	SuspectEpicTotals Suspicion = "epic-totals"
	// SuspectNamespaceTotals: what is booked on a namespace is not the sum of its entries. It reads every entry, so only a whole look finds it.
	SuspectNamespaceTotals Suspicion = "namespace-totals"
	// SuspectTaskCounts: an epic counts its tasks wrongly.
	SuspectTaskCounts Suspicion = "task-counts"
	// SuspectClaim: a claim has run out long ago, and nobody has settled it.
	SuspectClaim Suspicion = "claim-old"
	// SuspectCancellation: a run is to be canceled since long ago, and no executor has done so.
	SuspectCancellation Suspicion = "cancellation-old"
	// SuspectRunning: a task is running, and no run claims it.
	SuspectRunning Suspicion = "task-unclaimed"
)

// Inspector answers suspicions. It reads only.
type Inspector interface {
	// Suspects returns one line for each thing found, at most limit of them. At most sample rows are looked at; 0 means all.
	Suspects(ctx context.Context, s Suspicion, sample, limit int) ([]string, error)
	// Now is the database's clock.
	Now(ctx context.Context) (time.Time, error)
}
