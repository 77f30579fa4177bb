package journal

import (
	"context"
	"time"
)

// CommandKind says what a command asks of its run.
type CommandKind string

// The kinds of commands.
const (
	CommandCancel     CommandKind = "CANCEL"
	CommandPause      CommandKind = "PAUSE"
	CommandResume     CommandKind = "RESUME"
	CommandStop       CommandKind = "STOP"
	CommandReconcile  CommandKind = "RECONCILE"
	CommandAmend      CommandKind = "AMEND"
	CommandChildEnded CommandKind = "CHILD_ENDED"
	CommandAnswer     CommandKind = "ANSWER"
	CommandCompletion CommandKind = "COMPLETION"
	CommandSignal     CommandKind = "SIGNAL"
	CommandMessage    CommandKind = "MESSAGE"
	CommandLeave      CommandKind = "LEAVE"
)

// Command is something from outside that a run must take into account. It is written in one transaction with
// what caused it and removed in the transaction of the event that takes it into account.
type Command struct {
	// ID orders the commands of a run; set on reading.
	ID               int64
	Namespace, RunID string
	Kind             CommandKind
	// Key tells commands of one kind to one run apart: a second one with the same key is not written while
	// the first is unapplied. After that the machine or Request refuses repetitions.
	Key  string
	Body []byte
	Time time.Time
	// Left says that the body was left out: see CommandQuery.Small and FindCommand.
	Left bool
}

// CommandQuery says what a look at an owner's commands are for.
type CommandQuery struct {
	// Limit bounds how many commands are listed.
	Limit int
	// Small, if not 0, is the largest body that is read, but for a cancel's. A larger one is left out:
	// UnappliedCommands has it.
	Small int
	// Busy are runs of which only cancels are listed. Ending are those of which nothing is listed.
	Busy, Ending []string
	// Runs is about how many runs the owner has.
	Runs int
}

// EnqueueRequest is a command that the API writes.
type EnqueueRequest struct {
	Command Command
	// Revision, if not 0, must be the run's present one.
	Revision int64
	// Request makes the call repeatable; the zero value does not.
	Request Request
	// Idle means that the call asks for nothing: no command is written, and only its request is remembered.
	Idle bool
	// Claimant, if not zero, becomes the owner of a run that is WAITING or PAUSED without an owner, in the
	// same transaction. Otherwise a wake-up job is inserted. A claimant that is not registered any more
	// owns nothing.
	Claimant Owner
	// Answer closes an interrupt in the same transaction; nil leaves interrupts alone.
	Answer *Answer
	// Reason, of commands of kind CANCEL, becomes the run's CancelReason.
	Reason string
	// Open lists the states in which the run takes this command; empty means every state that is not ended.
	// A CANCEL to a run that has ended, or was canceled before, is not written and is no error.
	Open []State
	// Must refuses such a CANCEL with ReasonRunEnded, and does not keep its request.
	Must bool
}

// Answer closes an open interrupt. To close it again in the same way changes nothing; in another way it is
// ReasonInterruptClosed.
type Answer struct {
	InterruptID  string
	Answer       []byte
	Decision, By string
	// Principal is whose API key answers.
	Principal string
}

// Enqueued is the result of an Enqueue.
type Enqueued struct {
	Run Run
	// New says that the command was written by this call.
	New bool
	// Owner is the executor that will apply it; zero means that a job was inserted for whichever executor
	// claims the run.
	Owner Owner
	// Claimed says that Owner is the Claimant since this call. It has yet to load the run.
	Claimed bool
}

// CommandScanLeast is how many commands PendingCommands reads through at least. If there are more than
// Reads says, it asks run by run. Drivers only.
const CommandScanLeast = 500

// CommandScanMost is how many commands it reads through at most. Drivers only.
const CommandScanMost = 20_000

// Reads is how many commands are read through before runs are asked one by one: to ask a run costs about as
// much as to read four commands. Drivers only.
func (l CommandQuery) Reads() int { return min(max(CommandScanLeast, 4*l.Runs), CommandScanMost) }

// Outstanding is what an open run has before it.
type Outstanding struct {
	// Interrupts is how many interrupts of the run and its descendants are open.
	Interrupts int
	// Unread are the kinds of the run's unapplied commands, each once, in the order of the oldest of each
	// kind.
	Unread []CommandKind
}

// Commands delivers commands. Journal embeds it.
type Commands interface {
	// Enqueue writes a command to a run, and wakes its owner, or inserts a wake-up job when it has none, in
	// one transaction. ReasonRunNotFound, ReasonRunEnded, ReasonStateRefuses, ReasonEtagMismatch,
	// ReasonRequestIDReused, ReasonInterruptNotFound, ReasonInterruptClosed.
	Enqueue(ctx context.Context, p EnqueueRequest) (Enqueued, error)
	// PendingCommands lists unapplied commands of owner's open runs, oldest first. Its cost is bounded by
	// the runs that owner has: commands to other runs, however many, are not read through.
	PendingCommands(ctx context.Context, owner Owner, look CommandQuery) ([]Command, error)
	// UnappliedCommands lists unapplied commands of one run, oldest first.
	UnappliedCommands(ctx context.Context, namespace, runID string, limit int) ([]Command, error)
	// FindCommand returns the unapplied command of a run with this kind and key; false if there is none.
	// Its body is read only if whole is set; otherwise Left is.
	FindCommand(ctx context.Context, namespace, runID string, kind CommandKind, key string, whole bool) (Command, bool, error)
	// Outstanding tells what an open run has before it.
	Outstanding(ctx context.Context, namespace, runID string) (Outstanding, error)
	// CommandWakes returns a channel that gets a value after commands came for one of owner's runs, from
	// any replica. It is a hint: values may be lost or come for nothing, so poll PendingCommands too. The
	// channel is closed when ctx ends.
	CommandWakes(ctx context.Context, owner Owner) (<-chan struct{}, error)
}
