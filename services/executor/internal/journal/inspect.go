package journal

import (
	"context"
	"time"
)

// Suspicion names something that must not be in a journal, or that somebody should look at. Drivers know
// how to look for it.
type Suspicion string

// The suspicions. Those of runs are looked for in a sample, unless everything is asked for; the others by
// an index.
const (
	// SuspectGap: events of a run are missing.
	SuspectGap Suspicion = "journal-gap"
	// SuspectEnd: a run and its journal disagree about whether it has ended, or it ended more than once.
	SuspectEnd Suspicion = "run-end"
	// SuspectGraph: the graph of a run is missing.
	SuspectGraph Suspicion = "graph-missing"
	// SuspectDetails: what belongs to the row of a run is missing.
	SuspectDetails Suspicion = "details-missing"
	// SuspectSnapshot: a snapshot is ahead of its journal.
	SuspectSnapshot Suspicion = "snapshot-ahead"
	// SuspectChild: the parent of an open run is gone or has ended for a while.
	SuspectChild Suspicion = "orphan-child"
	// SuspectKey: a run that has ended holds its business key.
	SuspectKey Suspicion = "key-held"
	// SuspectInterrupt: an interrupt is open though its run has ended or is gone.
	SuspectInterrupt Suspicion = "interrupt-open"
	// SuspectCommandLost: there are commands to a run that has ended or is gone.
	SuspectCommandLost Suspicion = "command-lost"
	// SuspectCommandOld: a command to an open run was not applied for a while.
	SuspectCommandOld Suspicion = "command-old"
	// SuspectOverdue: the time of an evicted run has passed and nobody has woken it.
	SuspectOverdue Suspicion = "evicted-overdue"
	// SuspectOwner: the owner of an open run is not registered.
	SuspectOwner Suspicion = "owner-gone"
	// SuspectReleased: a running run was given back and nobody has taken it.
	SuspectReleased Suspicion = "run-released"
	// SuspectPending: a run waits long for its start.
	SuspectPending Suspicion = "pending-old"
	// SuspectQuarantined: a run brought its owners down.
	SuspectQuarantined Suspicion = "run-quarantined"
	// SuspectReconcile: a run waits for somebody to say what became of a call.
	SuspectReconcile Suspicion = "needs-reconciliation"
	// SuspectOutbox: what the registry must know could not be delivered several times.
	SuspectOutbox Suspicion = "outbox-stuck"
	// SuspectJob: a job was given up, or has been under way for very long.
	SuspectJob Suspicion = "job-lost"
	// SuspectLimit: places of a limit are held by an executor that is gone.
	SuspectLimit Suspicion = "limit-held"
	// SuspectRequest: request ids are kept beyond their promised life.
	SuspectRequest Suspicion = "request-old"
	// SuspectPartition: events lie in no partition of their own, or the last partition is about to be full.
	SuspectPartition Suspicion = "partition"
	// SuspectSchedule: a schedule is due and nobody has looked after it.
	SuspectSchedule Suspicion = "schedule-overdue"
	// SuspectThread: items of a thread are missing.
	SuspectThread Suspicion = "thread-gap"
	// SuspectTurn: a message waits for an agent, and no run is at work on its thread.
	SuspectTurn Suspicion = "turn-overdue"
	// SuspectSetting: the database is set up so that it may lose what it acknowledged.
	SuspectSetting Suspicion = "database-setting"
)

// Sample bounds which runs are looked at: half of Size are the newest, half follow From in the order of
// ids. Size 0 means all.
type Sample struct {
	Size int
	From string
}

// BlobOfRun is a blob and a run that refers to it.
type BlobOfRun struct {
	BlobName
	RunID string
}

// Inspector answers suspicions. It reads only, and holds nobody up.
type Inspector interface {
	// Suspects returns one line for each thing found, at most limit of them. A suspicion that makes no
	// sense in this store finds nothing.
	Suspects(ctx context.Context, s Suspicion, in Sample, limit int) ([]string, error)
	// Runs lists the namespace and id of each run of a sample.
	Runs(ctx context.Context, in Sample) ([]RunRef, error)
	// BlobsOf lists the values outside of the database to which the runs of a sample refer, each with one
	// of those runs; at most limit of them.
	BlobsOf(ctx context.Context, in Sample, limit int) ([]BlobOfRun, error)
	// Now is the database's clock.
	Now(ctx context.Context) (time.Time, error)
	// LastRunID is the highest id of a run; empty when there is none.
	LastRunID(ctx context.Context) (first, last string, err error)
}
