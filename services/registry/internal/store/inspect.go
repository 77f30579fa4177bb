package store

import (
	"context"
	"time"
)

// Suspicion names a state that must not exist in the registry's database, or that should be looked at.
type Suspicion string

// The suspicions.
const (
	// SuspectTaskTotals: the totals of a task are not the sum of its entries.
	SuspectTaskTotals Suspicion = "task-totals"
	// SuspectEpicTotals: the totals of an epic are not the sum of its entries.
	SuspectEpicTotals Suspicion = "epic-totals"
	// SuspectNamespaceTotals: the totals of a namespace are not the sum of its entries. It reads every entry,
	// so only a whole examination finds it.
	SuspectNamespaceTotals Suspicion = "namespace-totals"
	// SuspectDays: sums of days of an epic are not those of its entries.
	SuspectDays Suspicion = "usage-days"
	// SuspectNamespaceDays: sums of days of a namespace are not those of its entries. It reads every
	// entry, so only a whole examination finds it.
	SuspectNamespaceDays Suspicion = "namespace-days"
	// SuspectNodes: sums of nodes of an epic are not those of its entries.
	SuspectNodes Suspicion = "usage-nodes"
	// SuspectNamespaceNodes: sums of nodes of a namespace are not those of its entries. It reads every
	// entry, so only a whole examination finds it.
	SuspectNamespaceNodes Suspicion = "namespace-nodes"
	// SuspectRuns: sums of runs of an epic are not those of its entries.
	SuspectRuns Suspicion = "usage-runs"
	// SuspectEpicSums: the sums of an epic, as reports show them, are not those of its entries.
	SuspectEpicSums Suspicion = "usage-epics"
	// SuspectUsedEpics: a namespace counts its epics that have used something wrongly. It counts them
	// all, so only a whole examination finds it.
	SuspectUsedEpics Suspicion = "used-epics"
	// SuspectAccounts: an account of an epic, a task or a namespace has not spent what is booked of it.
	SuspectAccounts Suspicion = "ledger-spent"
	// SuspectRunAccounts: an account of a run has not spent what is booked of the run itself and what
	// it notes beyond that. The accounts that were used last are examined. One of which nothing beyond
	// is known is examined for having spent too little.
	SuspectRunAccounts Suspicion = "ledger-runs"
	// SuspectReserved: what is reserved of an account is not the sum of its reservations.
	SuspectReserved Suspicion = "ledger-reserved"
	// SuspectTaskCounts: an epic counts its tasks wrongly.
	SuspectTaskCounts Suspicion = "task-counts"
	// SuspectDependencyCount: an epic counts what its tasks depend on wrongly.
	SuspectDependencyCount Suspicion = "dependency-counts"
	// SuspectWaiting: a task waits for one that has failed or was canceled, against its policy.
	SuspectWaiting Suspicion = "task-waiting"
	// SuspectReady: a task can be worked on, or is, and one that it depends on is not completed.
	SuspectReady Suspicion = "task-early"
	// SuspectClaim: a claim has run out long ago, and nobody has settled it.
	SuspectClaim Suspicion = "claim-old"
	// SuspectOrder: something is wanted of a run since long ago, and no executor has done so.
	SuspectOrder Suspicion = "order-old"
	// SuspectStart: there is an order to start a task that is not pending, or whose epic does not run.
	SuspectStart Suspicion = "order-start"
	// SuspectIdle: an epic that runs by itself has a task that is ready and room for it, and does not
	// start it.
	SuspectIdle Suspicion = "epic-idle"
	// SuspectVectors: a model that makes vectors has refused an entry of the memory, and is not asked again.
	SuspectVectors Suspicion = "memory-vector"
	// SuspectRunning: a task is running, and no run claims it.
	SuspectRunning Suspicion = "task-unclaimed"
)

// Inspector answers suspicions. It reads only.
type Inspector interface {
	// Suspects returns one line for each finding, at most limit of them. It examines at most sample rows; 0
	// means all.
	Suspects(ctx context.Context, s Suspicion, sample, limit int) ([]string, error)
	// Now is the database's clock.
	Now(ctx context.Context) (time.Time, error)
}
