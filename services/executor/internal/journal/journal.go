// Package journal owns the executor's durable store: the contract that both drivers keep, what is
// checked before anything is written, the group-commit writer and the lease of an owner. It must
// not know what an event means: to it a run is a row, a gap-free list of opaque events and a
// snapshot that may be thrown away.
package journal

import (
	"context"
	"time"

	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

// Journal is the executor's store. Implementations are safe for concurrent use. Times that a caller
// gives are cut to microseconds and read back in UTC; leases and retry times are kept by the
// database's own clock. A failure of the database itself is returned as it is (see dbkit); every
// other error is an *errs.Error with one of this package's reasons.
type Journal interface {
	Members
	Commands
	Interrupts
	Jobs
	Log
	Reader
	Outbox
	Deletion
	Blobs
	Retention
	Workers
	OutcomeCache
	ToolLists
	thread.Store
	// Close ends every connection. It may be called more than once.
	Close() error
}

// Members tells executors apart and lets them take over from each other.
type Members interface {
	// Register makes id an executor with a new incarnation, higher than every one given before. From
	// then on earlier incarnations of id are fenced, and their runs are for TakeOver to claim.
	Register(ctx context.Context, id, addr string) (Owner, error)
	// TokenKey returns the key of attempt tokens that is kept with the runs. The first call makes it fresh;
	// from then on it stays.
	TokenKey(ctx context.Context, fresh []byte) ([]byte, error)
	// Heartbeat renews the lease of owner. It returns ReasonFenced if owner was taken over.
	Heartbeat(ctx context.Context, owner Owner) error
	// Executors lists the registered executors by id, so that a replica can find a run's owner.
	Executors(ctx context.Context) ([]Executor, error)
	// TakeOver fences every other executor whose heartbeat is older than o.Lease, or whose process is known
	// to have ended if the store can know that. It claims for self, oldest first, up to o.Limit open runs
	// of executors that are gone, and running ones that were released, and returns them. A released run
	// counts no take-over. A run that would be taken over for the o.MaxTakeovers-th time since it last made
	// progress, and was at work (see Mark) when its owner went down, is set StateQuarantined instead and
	// returned in Quarantined; it stays without an owner. See TakeOverPolicy. Of runs that are suspects it
	// claims one at most, which comes first; it counts as reading from then on. Paused runs of executors
	// that are gone are not claimed: they lose their owner, with a wake-up job if commands wait for them.
	// Runs that wait without an owner are not looked at, however many there are. ReasonFenced if self was
	// itself taken over.
	TakeOver(ctx context.Context, self Owner, o TakeOverOptions) (TakeOverResult, error)
	// ClaimRun makes self the owner of an open run that no registered executor owns, and returns who owns
	// the run now: self, another executor, or nobody, when the run has ended or may not be claimed. A
	// quarantined run may be claimed only while a RESUME or CANCEL command waits for it. A run whose owner
	// is gone counts a take-over by the rule of TakeOver; one that would be quarantined is left to it.
	// ReasonRunNotFound, ReasonFenced.
	ClaimRun(ctx context.Context, self Owner, namespace, runID string, p TakeOverPolicy) (Owner, error)
	// Mark records what a run of owner keeps a processor busy with; empty says nothing. harmless is what
	// has just gone well: if it was held against the run, it is no longer. ReasonNotOwner.
	Mark(ctx context.Context, owner Owner, runID, doing, harmless string) error
	// SweepOwnerless inserts a wake-up job for pending runs and runs without an owner whose wake-up is
	// overdue by late, or for which commands have waited that long: their hint was lost. It looks at up to
	// limit of each kind and returns how many jobs it inserted. It is cheap when there is nothing to do.
	SweepOwnerless(ctx context.Context, late time.Duration, limit int) (int, error)
	// ReadyJobs makes jobs that are due within ahead, up to limit of each queue and priority, available to
	// workers, who leave them alone until their time. It returns how many they were. River's leader does
	// the same, but looks less far ahead, and there is none for a while after a leader died.
	ReadyJobs(ctx context.Context, ahead time.Duration, limit int) (int, error)
	// WorkJobsAs says under which name this executor's process works jobs of the queue.
	WorkJobsAs(ctx context.Context, owner Owner, worker string) error
	// RescueJobs makes up to limit jobs available again that began longer ago than after, and returns how
	// many they were. They are with a process that works jobs of ours, but not with worker, the caller, nor
	// with an executor that has been heard of since. The try that was cut off is not counted.
	RescueJobs(ctx context.Context, worker string, after time.Duration, limit int) (int, error)
	// LastUnsent returns the last sequence below another one of what was said in a thread and whose job
	// has not ended: it waits, is under way or comes again. 0 means that there is none.
	LastUnsent(ctx context.Context, namespace, thread string, before int64) (seq int64, err error)
	// WakeUnsent makes the waiting jobs of what was said in a thread after a sequence due, at whichever
	// executor. Those that come again after a failure keep their time.
	WakeUnsent(ctx context.Context, namespace, thread string, after int64) error
	// ExpediteUnpriced makes up to limit runs overdue for SweepOwnerless that are paused for the reason and
	// would go on by themselves later. It returns how many there were.
	ExpediteUnpriced(ctx context.Context, reason string, limit int) (int, error)
	// Release gives these runs of owner back, so that any executor may claim them at once; nil means all of
	// them. Running ones are for TakeOver; those that wait, or have commands, get a wake-up job. Runs that
	// are not owner's are left alone.
	Release(ctx context.Context, owner Owner, runIDs []string) error
	// Deregister releases all runs and removes the executor. A fenced owner is not an error.
	Deregister(ctx context.Context, owner Owner) error
}

// Log writes and loads journals on behalf of the engine, across namespaces.
type Log interface {
	// Commit makes all writes durable in one transaction that first locks owner's row, and gives one
	// Result per write, in order. Several writes of one run count as one: they stand or fall together
	// from the first that fails. A write that the database refuses for good is found by bisecting (its
	// Result has ReasonRowRefused), and the others are committed. A returned error says that nothing is
	// known: the identical call may be made again, and writes that had been committed then succeed
	// without being written twice. It returns ReasonFenced, with nothing written, if owner was taken over.
	//
	// Results of a Start: see Result. Results of an Append: ReasonSeqConflict if the journal does not
	// end at ExpectedLastSeq (and what stands there is not exactly these events), ReasonNotOwner if the
	// run is not owner's, ReasonRunNotFound. Results of both: thread.ReasonConflict if something cannot be
	// added to a thread.
	Commit(ctx context.Context, owner Owner, writes []Write) ([]Result, error)
	// Load reads all that is needed to go on with a run, in one consistent view. ReasonRunNotFound.
	Load(ctx context.Context, runID string) (Loaded, error)
	// SweepRequestIDs forgets request ids that were first seen before this time and returns how many.
	// Call it with now - RequestIDLife.
	SweepRequestIDs(ctx context.Context, before time.Time) (int, error)
}

// Reader answers the API. Every method sees one namespace only, and a run of another one is not found.
type Reader interface {
	// Get returns the whole run. ReasonRunNotFound.
	Get(ctx context.Context, namespace, runID string) (Run, error)
	// Head is Get without Args, Named, Context, Attachments, Result and Outputs, which can be large.
	// ReasonRunNotFound.
	Head(ctx context.Context, namespace, runID string) (Run, error)
	// Graph returns the body of the graph that the run is pinned to, and its hash. ReasonRunNotFound.
	Graph(ctx context.Context, namespace, runID string) (hash string, body []byte, err error)
	// GraphBody returns the body of a graph that a run of the namespace is or was pinned to.
	// ReasonGraphNotFound.
	GraphBody(ctx context.Context, namespace, hash string) ([]byte, error)
	// Requested returns the run that a request came to, and the hash of its body; empty ones if no such
	// request is known.
	Requested(ctx context.Context, namespace, method, requestID string) (runID, bodyHash string, err error)
	// LoadFor is Log.Load on behalf of a caller of the namespace. ReasonRunNotFound.
	LoadFor(ctx context.Context, namespace, runID string) (Loaded, error)
	// List returns up to limit runs after a cursor, newest first by (CreateTime, ID), without Args, Named,
	// Context, Attachments, Result and Outputs. Give it page.Limit+1 and the rows to page.Cut. It returns
	// fewer where page.MaxBytes are full.
	List(ctx context.Context, namespace string, f Filter, after page.Cursor, limit int) ([]Run, error)
	// Events returns up to limit events with a sequence above afterSeq, in order, and fewer where
	// page.MaxBytes are full. A run without such events, or without existence, gives none, and no other run
	// does: a reader of all events goes on until there are none, or until it has the last one of the row.
	Events(ctx context.Context, namespace, runID string, afterSeq int64, limit int) ([]Event, error)
	// Descendants lists the runs below this one, at any depth, oldest first.
	Descendants(ctx context.Context, namespace, runID string) ([]Descendant, error)
	// OpenBelow lists up to limit open runs below this one whose graph has the name, those below runs that
	// have ended left out: those nearest to it first, and of these the oldest.
	OpenBelow(ctx context.Context, namespace, runID, graphName string, limit int) ([]string, error)
	// CountBelow counts the runs below this one, at any depth, up to most, and those of them that are open.
	CountBelow(ctx context.Context, namespace, runID string, most int) (all, open int, err error)
	// Readers is how many reads are carried out at once.
	Readers() int
}

// Outbox hands out what has to leave the executor, at least once and in the order of each run.
type Outbox interface {
	// ClaimOutbox takes up to limit due items, from each namespace in turn, and hides them for ttl from every
	// other claim. Items of one run come in order, and none is given out while an earlier one of its run is
	// hidden or backing off. A deliverer that fails on one must not go on with later ones of that run.
	ClaimOutbox(ctx context.Context, limit int, ttl time.Duration) ([]OutboxItem, error)
	// AckOutbox removes delivered items and adds what they turned out to cost to their runs, and to all
	// runs above these, in one transaction. An item that is gone already adds nothing, so that a second ack
	// counts nothing twice.
	AckOutbox(ctx context.Context, acks []OutboxAck) error
	// RetryOutbox lets failed items be claimed again after a pause.
	RetryOutbox(ctx context.Context, retries []OutboxRetry) error
	// Accounting returns the costs of a run, and how many items of this kind of it, and of all below it,
	// are not acknowledged yet; both as they were at one instant. With an empty kind it counts no items,
	// and costs the same however many runs are below.
	Accounting(ctx context.Context, namespace, runID, kind string) (Accounting, error)
	// OutboxBacklog counts the items that are not acknowledged yet.
	OutboxBacklog(ctx context.Context) (int64, error)
}

// Owner is one ownership session of one executor.
type Owner struct {
	ID string
	// Incarnation is higher than that of every executor registered before.
	Incarnation int64
}

// IsZero reports whether nobody is meant.
func (o Owner) IsZero() bool { return o == Owner{} }

// Executor is a registered executor.
type Executor struct {
	Owner
	// Addr is where other replicas reach it.
	Addr string
	// SinceHeartbeat is the age of its last heartbeat by the database's clock.
	SinceHeartbeat time.Duration
}

// TakeOverOptions say how a take-over goes.
type TakeOverOptions struct {
	// Lease is how old a heartbeat may be.
	Lease time.Duration
	// Limit is how many runs are claimed or quarantined at most.
	Limit int
	// NoSuspects leaves suspects to a later take-over.
	NoSuspects bool
	// Except are namespaces whose runs are left to a later take-over, or to others: this executor has no room
	// for more of theirs.
	Except []string
	// Canceled claims other runs instead: open ones in any state that were canceled, that no live executor
	// owns and that have something to go on with, which is itself for a running one and commands for the
	// others. They come from each namespace in turn. Limit, NoSuspects and Except hold as for others.
	// Paused ones of executors that are gone lose their owner first, and are claimed by the next take-over.
	// The cost is bounded by the open runs that were canceled.
	Canceled bool
	TakeOverPolicy
	// QuarantineEvent makes the event that records a quarantine as the run's next one; nil records none.
	// It may be called more than once for a run and must have no effect.
	QuarantineEvent func(RunRef) Event
	// QuarantineJobs are the jobs that a quarantine causes, inserted with it; nil inserts none.
	// RunRef.LastSeq is that of the event. As with QuarantineEvent, it may be called more than once.
	QuarantineJobs func(RunRef) []Job
	// QuarantineOutbox are the outbox items that a quarantine causes; nil inserts none. RunRef.LastSeq is
	// that of the event. Of the run its parent, task, epic and metadata are set. As with QuarantineEvent, it
	// may be called more than once.
	QuarantineOutbox func(r RunRef, run *Run) []Out
}

// TakeOverPolicy is the rule by which take-overs are counted. Every death of an owner counts for a run that
// has made no progress since, until one more would quarantine it. Then the run is a suspect: what it does
// is recorded before it is done, and it is quarantined only if its owner went down while it did something.
// So a run whose calls are all made elsewhere is never quarantined.
type TakeOverPolicy struct {
	// MaxTakeovers defaults to DefaultMaxTakeovers. 1 is as 2, since nothing is recorded before the first
	// death.
	MaxTakeovers int
	// Outlived says that the caller's own process was this owner and only lost its lease: its runs did not
	// bring it down, so they count no take-over. Nil means that no owner was.
	Outlived func(Owner) bool
	// Explained says that another run is known to have been at work when this owner went down. Nil means
	// that of none.
	Explained func(Owner) bool
}

// TakeOverResult is what a take-over found.
type TakeOverResult struct {
	Claimed, Quarantined []RunRef
	// AtWork are owners that went down while one of these runs was at work.
	AtWork []Owner
	// More says that the limit was hit: call again.
	More bool
}

// RunRef names a run that changed hands.
type RunRef struct {
	Namespace, RunID string
	// State is the state in which it was found.
	State State
	// LastSeq is the sequence of its last event.
	LastSeq int64
	// Takeovers counts the take-overs since it last made progress, this one included.
	Takeovers int
	// From is its owner before; zero if it had been released.
	From Owner
	// Doing is what a suspect was at work with when From went down. Of a claimed one it is what it counts
	// as being at work with from now on.
	Doing string
	// DiedDoing is what it was at work with the last time that an owner went down while it was at work at
	// all.
	DiedDoing string
}

// Request identifies a request that may come twice. It is kept for RequestIDLife.
type Request struct {
	// Method keeps the ids of different calls apart.
	Method string
	// ID is the client's; empty means that the request is not repeatable.
	ID string
	// BodyHash is the same exactly for equal bodies.
	BodyHash string
}

// Descendant is a run below another.
type Descendant struct {
	RunID, ParentRunID string
	GraphName          string
	State              State
	LastSeq            int64
}

// Loaded is a run as the engine needs it.
type Loaded struct {
	Run   Run
	Graph []byte
	// Snapshot is nil if there is none.
	Snapshot    []byte
	SnapshotSeq int64
	// Events are those after the snapshot, in order, without gaps.
	Events []Event
	// Command are the unapplied commands of the run, oldest first, at most MaxLoadedCommandBytes of them.
	Command []Command
}

// MaxLoadedCommandBytes is how many commands are read with a run.
const MaxLoadedCommandBytes = 500

// Filter narrows a list; all set fields must hold.
type Filter struct {
	// States are alternatives; none means any.
	States []State
	// Reason is the state's reason.
	Reason                                                  string
	TaskID, UserID, ChatID, ThreadID, BusinessKey, ParentID string
	ScheduleID                                              string
	// EpicID is that of Run.EpicID. Workflow is the slug of a workflow, WorkflowVersion one of its versions,
	// as SLUG@VERSION.
	EpicID, Workflow, WorkflowVersion string
	Labels                            map[string]string
	// CreatedAfter is inclusive, CreatedBefore exclusive.
	CreatedAfter, CreatedBefore time.Time
}

// OutboxItem is something that has to leave the executor.
type OutboxItem struct {
	ID               int64
	Namespace, RunID string
	// Seq and Ordinal place it in its run: the event it was written with, and its number there.
	Seq     int64
	Ordinal int
	Kind    string
	Body    []byte
	// Attempts counts the claims, this one included.
	Attempts int
	// LastError is what RetryOutbox was told last.
	LastError string
}

// OutboxAck says that an item was delivered and what it cost.
type OutboxAck struct {
	ID            int64
	CostNanoUSD   int64
	UnpricedCalls int64
	// Calls are those of the item, with their tokens.
	Calls, InputTokens, OutputTokens int64
}

// Accounting is what the acknowledged items of a run, and of all below it, added up to, and how many are
// still to come.
type Accounting struct {
	CostNanoUSD, UnpricedCalls       int64
	Calls, InputTokens, OutputTokens int64
	Waiting                          int64
}

// OutboxRetry says that an item was not delivered.
type OutboxRetry struct {
	ID    int64
	After time.Duration
	Err   string
}
