package journal

import "github.com/epigraph-run/epigraph/services/executor/internal/thread"

// Write is one part of a commit: exactly one of the two is set. The journal does not change writes, and the
// caller must not change them after they were handed over.
type Write struct {
	Start  *Start
	Append *Append
}

// ConflictPolicy says what happens when an open run holds the business key of a new one.
type ConflictPolicy uint8

// The policies. The zero value is ConflictFail.
const (
	// ConflictFail refuses the new run with ReasonBusinessKeyInUse, whose "run_id" names the holder.
	ConflictFail ConflictPolicy = iota
	// ConflictReturnExisting answers with the holder.
	ConflictReturnExisting
	// ConflictCancelExisting asks for the end of the holder, takes its key and starts the new run.
	ConflictCancelExisting
	// ConflictOnlyExisting answers with the holder, too, and starts nothing: without a holder it refuses with
	// ReasonNoHolder.
	ConflictOnlyExisting
)

// Start records a new run and what is appended to its journal at once. The run is owned by the committing
// executor, unless its state is StatePending: such a run has no owner and waits for somebody to claim it.
type Start struct {
	// Run carries ID, Namespace, CreateTime, inputs and the first Status and Outcome. An empty RootID means
	// the run itself.
	Run Run
	// Append is what hangs on the run. It names no run and no graph, since Run does, and changes nothing in
	// the row. Graph is the body of Run.GraphHash and is stored once per namespace and hash. At least one
	// event is needed, unless the run is pending and has no outbox items.
	Append
	Request  Request
	Conflict ConflictPolicy
	// Cancel is the body of the command by which ConflictCancelExisting asks for the end of the run that
	// has the key.
	Cancel []byte
}

// Append adds to the journal of a run.
type Append struct {
	Namespace, RunID string
	// ExpectedLastSeq is where the journal must end; the events become the sequences after it.
	ExpectedLastSeq int64
	// Events may be empty if only the row changes.
	Events []Event
	// Status replaces the row's; nil leaves it.
	Status *Status
	// Outcome replaces the row's; nil leaves it.
	Outcome *Outcome
	// Snapshot is the position after the last of Events (of ExpectedLastSeq if there are none), or nil.
	Snapshot []byte
	// Outbox items belong to the last of Events and need at least one.
	Outbox []Out
	// Progress says that an attempt ended: the run is not what brings owners down. It sets Takeovers to 0.
	// Leave it false for what recovery itself writes. A run whose calls are long may also be given
	// progress by an Append without events, after it has run for a while and done no harm.
	Progress bool
	// Command are commands to other runs of the same namespace. A command is dropped if its run has ended
	// or is not there, or has an unapplied command with the same kind and key. An owner is woken; a run
	// without one gets a wake-up job in the same transaction.
	Command []Command
	// Claims lets the committing executor own, from the same transaction on, the runs that Command goes to
	// and that are WAITING or PAUSED without an owner, instead of a wake-up job. With Release it is also
	// the run itself, if it has unapplied commands. Result.Claimed names them.
	Claims bool
	// Applied are the commands of this run that this write takes into account; they are removed with it.
	Applied []int64
	// Release makes this the owner's last write: with it the run has no owner, or is claimed anew: see
	// Claims. If commands wait for a run without an owner, or come later, a wake-up job is inserted in the
	// transaction that sees both, so that none is lost.
	Release bool
	// Jobs are inserted in the same transaction.
	Jobs []Job
	// GraphHash, if set, pins the run to another graph, whose body is Graph, and raises its graph revision by
	// one.
	GraphHash string
	Graph     []byte
	// Metadata takes the place of the run's; nil leaves it.
	Metadata []byte
	// Opened are new interrupts of this run; Closed are those that are closed.
	Opened []Interrupt
	Closed []Closing
	// Threads are added to threads of the namespace in the same transaction. The whole write is refused with
	// thread.ReasonConflict if one cannot be added as it is, and with thread.ReasonTooMany or
	// thread.ReasonTooLarge if the namespace has no room for it. What is there already, exactly so, is not
	// added again.
	Threads []thread.Append
	// Room is what the threads of the namespace may take. Commits of several executors at once may together
	// go beyond it by what they add.
	Room thread.Room
	// Holds says that the run may hold threads. A write that ends it then inserts a job if a message waits
	// for one of them.
	Holds bool
	// Kept are outcomes to keep for equal calls in the same transaction.
	Kept []KeptOutcome
	// Blobs are what its values refer to; a Packer sets them.
	Blobs []BlobRef
}

// Out is an outbox item to be.
type Out struct {
	Kind string
	Body []byte
}

// Result is what became of one Write.
type Result struct {
	// Err is nil if the write is durable, now or from an earlier try of the same commit.
	Err error
	// RunID is the run written to. For a Start that found its request id or business key taken it is
	// the other run, and Created is false.
	RunID string
	// Created says that this Start's run exists (this call or an earlier try made it).
	Created bool
	// Repeated says that a Start was answered from its request id.
	Repeated bool
	// CancelRequestedOf is the run whose end ConflictCancelExisting asked for.
	CancelRequestedOf string
	// LastSeq is where the journal ends after the write, Revision the row's if the write changed the row,
	// else 0. For a Start with Created false both are 0.
	LastSeq, Revision int64
	// Claimed are the runs that the executor owns because of Append.Claims and is to go on with. It is a
	// hint: a claim that became durable in an earlier try is not named, but its commands are among
	// PendingCommands.
	Claimed []string
}
