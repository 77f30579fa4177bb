package journal

import (
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/idkind"
)

// Reasons of errors, stable and public.
const (
	// ReasonFenced is the reason when an executor was taken over: it must stop all its runs at once.
	ReasonFenced = "FENCED"
	// ReasonNotOwner is the reason when a run belongs to another executor.
	ReasonNotOwner = "NOT_OWNER"
	// ReasonSeqConflict is the reason when a journal goes on otherwise than the writer believed.
	ReasonSeqConflict = "SEQUENCE_CONFLICT"
	// ReasonRunNotFound is the reason when there is no such run in the namespace.
	ReasonRunNotFound = "RUN_NOT_FOUND"
	// ReasonGraphNotFound is the reason when no run of the namespace was ever pinned to such a graph.
	ReasonGraphNotFound = "GRAPH_NOT_FOUND"
	// ReasonRunExists is the reason when a Start uses the id of another run.
	ReasonRunExists = "RUN_ALREADY_EXISTS"
	// ReasonRequestIDReused is the reason when a request id comes with another body.
	ReasonRequestIDReused = "REQUEST_ID_REUSED"
	// ReasonBusinessKeyTaken is why a run is canceled whose business key ConflictCancelExisting gave to
	// another.
	ReasonBusinessKeyTaken = "BUSINESS_KEY_TAKEN"
	// ReasonBusinessKeyInUse is the reason when an open run holds the business key; Meta "run_id" names it.
	ReasonBusinessKeyInUse = "BUSINESS_KEY_IN_USE"
	// ReasonNoHolder refuses a start that only wants the open run with its business key, if there is none.
	ReasonNoHolder = "BUSINESS_KEY_FREE"
	// ReasonRunEnded is the reason when a run is over and takes no more commands.
	ReasonRunEnded = "RUN_ENDED"
	// ReasonStateRefuses is the reason when a run is in no state for this command; Meta "state" names the
	// state.
	ReasonStateRefuses = "RUN_STATE_REFUSES"
	// ReasonInterruptNotFound is the reason when there is no such interrupt in the namespace.
	ReasonInterruptNotFound = "INTERRUPT_NOT_FOUND"
	// ReasonInterruptClosed is the reason when an interrupt was closed in another way.
	ReasonInterruptClosed = "INTERRUPT_CLOSED"
	// ReasonEtagMismatch is the reason when a run has changed since it was read.
	ReasonEtagMismatch = "ETAG_MISMATCH"
	// ReasonPayloadTooLarge is the reason when a value is over the hard limit. It never succeeds.
	ReasonPayloadTooLarge = "PAYLOAD_TOO_LARGE"
	// ReasonRowRefused is the reason when the database refuses a write for good.
	ReasonRowRefused = "ROW_REFUSED"
	// ReasonWriteInvalid is the reason when a write breaks the contract of Write.
	ReasonWriteInvalid = "WRITE_INVALID"
	// ReasonBacklogFull is the reason when too much waits to be written to take new runs.
	ReasonBacklogFull = "BACKLOG_FULL"
	// ReasonWriterStopped is the reason when the writer ended before the write was durable; its fate is
	// unknown if it was under way.
	ReasonWriterStopped = "WRITER_STOPPED"
	// ReasonInboxFull is the reason when too many signals and messages wait for a run.
	ReasonInboxFull = "RUN_INBOX_FULL"
	// ReasonQuarantined is the state reason of a run that brought its owners down.
	ReasonQuarantined = "KILLED_OWNERS"
)

const (
	// DefaultMaxTakeovers is how many take-overs without progress quarantine a run.
	DefaultMaxTakeovers = 3
	// RequestIDLife is how long a request id is remembered.
	RequestIDLife = 72 * time.Hour
)

// IsFenced reports whether err says that the executor was taken over.
func IsFenced(err error) bool { return err != nil && errs.ReasonOf(err) == ReasonFenced }

// Fenced returns the error of an owner that was taken over.
func Fenced(o Owner) error {
	return errs.New(errs.Unavailable, ReasonFenced, "executor %s was taken over", o.ID).
		Hint("the run goes on at another executor; read again")
}

// RunNotFound returns the error of a run that is not there.
func RunNotFound(id string) error {
	return errs.New(errs.NotFound, ReasonRunNotFound, "run %q not found", id).Hint(idkind.Hint(id, "run", "ListRuns lists the existing ones"))
}

// GraphNotFound returns the error of a graph that is not there.
func GraphNotFound(hash string) error {
	return errs.New(errs.NotFound, ReasonGraphNotFound, "graph %q not found", hash)
}

var errCommitTimeout = errs.New(errs.Unavailable, "COMMIT_TIMEOUT", "the database did not answer a commit in time")

// EtagMismatch returns the error of a run that has changed since it was read.
func EtagMismatch(id string) error {
	return errs.New(errs.Conflict, ReasonEtagMismatch, "run %q has changed", id).Hint("read it again and retry with its new etag")
}

// RunEnded returns the error of a run that takes no more commands.
func RunEnded(id string) error {
	return errs.New(errs.FailedPrecondition, ReasonRunEnded, "run %q has ended", id)
}

// InboxFull returns the error of a run that has not applied the commands sent to it before.
func InboxFull(id string, n, size int64) error {
	return errs.New(errs.ResourceExhausted, ReasonInboxFull, "%d signals and messages of %d bytes wait for run %q; %d and %d bytes at most may", n, size, id, MaxWaiting, MaxWaitingBytes).
		Hint("send again when the run has taken some up; send references in place of large payloads")
}

// StateRefuses returns the error of a run that takes no such commands in its state.
func StateRefuses(id string, kind CommandKind, s State) error {
	return errs.New(errs.FailedPrecondition, ReasonStateRefuses, "run %q takes no %s in its state", id, kind).Set("state", s.String())
}

// InterruptNotFound returns the error of an interrupt that is not there.
func InterruptNotFound(id string) error {
	return errs.New(errs.NotFound, ReasonInterruptNotFound, "interrupt %q not found", id).Hint(idkind.Hint(id, "int", "ListInterrupts lists the existing ones"))
}

// InterruptClosed returns the error of an interrupt that was closed in another way.
func InterruptClosed(id string) error {
	return errs.New(errs.FailedPrecondition, ReasonInterruptClosed, "interrupt %q was closed already", id).Hint("GetInterrupt tells how")
}

// NotOwner is the error for a run that belongs to another executor by now.
func NotOwner(runID string) error {
	return errs.New(errs.Conflict, ReasonNotOwner, "run %s belongs to another executor", runID)
}
