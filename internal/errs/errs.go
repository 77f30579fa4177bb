// Package errs owns the one error type that crosses package and service boundaries. It classifies
// a failure, names it with a stable reason and keeps what the caller may read apart from what only
// the log may see. It must not know gRPC, HTTP or any service.
package errs

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Kind says what sort of failure an error is. The zero value is Internal, so an error that nobody
// classified counts as our own bug.
type Kind uint8

// The kinds, each of which maps to exactly one gRPC code and one HTTP status.
const (
	// Internal is a fault of ours; its text never reaches a caller.
	Internal Kind = iota
	// InvalidArgument is a request that is wrong whatever the state of the system.
	InvalidArgument
	// NotFound is a named thing that does not exist or is not visible to the caller.
	NotFound
	// AlreadyExists is a name that is taken.
	AlreadyExists
	// Conflict is a lost race, such as a stale etag: read again and retry.
	Conflict
	// FailedPrecondition is a request that the present state refuses; retrying alone does not help.
	FailedPrecondition
	// ResourceExhausted is a quota, a budget or a size limit that was hit.
	ResourceExhausted
	// Unavailable is a passing fault: the same request may be sent again after a pause.
	Unavailable
	// Unauthenticated is a missing or wrong credential.
	Unauthenticated
	// PermissionDenied is a known caller who may not do this.
	PermissionDenied
	// DeadlineExceeded is the caller's own deadline that passed; the outcome may be unknown.
	DeadlineExceeded
	// Canceled is a call that its caller gave up.
	Canceled
)

var kindNames = [...]string{
	"internal", "invalid argument", "not found", "already exists", "conflict", "failed precondition",
	"resource exhausted", "unavailable", "unauthenticated", "permission denied", "deadline exceeded", "canceled",
}

// String returns the kind in lower-case words, for logs.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// MetaHint is the Meta key under which Hint keeps its advice.
const MetaHint = "hint"

// MetaRetryAfter is the Meta key under which RetryAfter keeps its pause, in whole seconds.
const MetaRetryAfter = "retry_after"

// MetaNothingDone is the Meta key of an Unavailable error that promises that nothing has happened, so that
// the same may be asked again.
const MetaNothingDone = "nothing_done"

// ReasonInternal is the reason of every error that carries none of its own.
const ReasonInternal = "INTERNAL"

// ReasonNotReady is what a replica answers that has not begun yet, or is about to end. It promises that
// nothing has happened, so that another replica, or the same one a moment later, may be asked the same.
const ReasonNotReady = "EXECUTOR_NOT_READY"

// ReasonDatabaseUnreachable is the reason of a service whose database does not answer, and of the gateway's
// readiness for such a service.
const ReasonDatabaseUnreachable = "DATABASE_UNREACHABLE"

// DatabaseUnreachable is the answer to callers while the database of a service does not answer. It does not
// say whether a change was made.
func DatabaseUnreachable(service string) *Error {
	return New(Unavailable, ReasonDatabaseUnreachable, "the database of the %s does not answer", service)
}

// ReasonDatabaseNotReady is what a service answers that waits at its start for a database which it may well
// reach: it hangs, or is not migrated yet.
const ReasonDatabaseNotReady = "DATABASE_NOT_READY"

// DatabaseNotReady is the answer to callers while a service waits for its database at its start.
func DatabaseNotReady(service string) *Error {
	return New(Unavailable, ReasonDatabaseNotReady, "the %s waits for its database, which is not ready", service)
}

// ReasonStopping is the reason with which a stopping server ends a stream that has no end of its own. The
// stream can be resumed at another server, or at the same one after its restart.
const ReasonStopping = "SERVER_STOPPING"

// ReasonMemoryFull is what an executor answers that has no memory for one more run. As ResourceExhausted it
// promises that nothing has happened, so that another one may be asked.
const ReasonMemoryFull = "EXECUTOR_MEMORY_FULL"

// Violation is one faulty field of a request, named by its path in the request ("graph.nodes[2].id").
type Violation struct {
	Field   string
	Message string
	// Reason is a stable upper-case code, or empty.
	Reason string
}

// Error is a classified failure. Reason, Message, Meta and Violations are public and reach callers;
// Err is the private cause, seen by errors.Is and logs only. Methods that add something return a
// copy, so a prepared Error may be shared.
type Error struct {
	Kind       Kind
	Reason     string
	Message    string
	Meta       map[string]string
	Violations []Violation
	Err        error
}

// New returns an error whose reason is a stable UPPER_SNAKE code and whose message may be shown to callers.
func New(kind Kind, reason, format string, args ...any) *Error {
	msg := format
	if len(args) > 0 {
		msg = fmt.Sprintf(format, args...)
	}
	return &Error{Kind: kind, Reason: reason, Message: msg}
}

// Error renders everything, the private cause included. It is for logs and never for callers.
func (e *Error) Error() string {
	s := e.Message
	if s == "" {
		s = e.Kind.String()
	}
	for i, v := range e.Violations {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		s += sep + v.Field + ": " + v.Message
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the private cause to errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.Err }

// With returns a copy that carries err as its private cause.
func (e *Error) With(err error) *Error {
	c := e.clone()
	c.Err = err
	return c
}

// Hint returns a copy that advises the caller.
func (e *Error) Hint(text string) *Error { return e.Set(MetaHint, text) }

// RetryAfter returns a copy that says when the same request may be sent again, rounded up to seconds.
func (e *Error) RetryAfter(pause time.Duration) *Error {
	return e.Set(MetaRetryAfter, strconv.FormatInt(int64((pause+time.Second-1)/time.Second), 10))
}

// Set returns a copy with one more public key. Keys are lower camel or snake case, as ErrorInfo asks.
func (e *Error) Set(key, value string) *Error {
	c := e.clone()
	if c.Meta == nil {
		c.Meta = make(map[string]string, 1)
	}
	c.Meta[key] = value
	return c
}

// Violate returns a copy that names one more faulty field.
func (e *Error) Violate(field, reason, message string) *Error {
	c := e.clone()
	c.Violations = append(c.Violations, Violation{Field: field, Reason: reason, Message: message})
	return c
}

// HintText returns the advice given with Hint, or the empty string.
func (e *Error) HintText() string { return e.Meta[MetaHint] }

func (e *Error) clone() *Error {
	c := *e
	c.Meta = maps.Clone(e.Meta)
	c.Violations = slices.Clone(e.Violations)
	return &c
}

// Is reports whether the outermost *Error in err's tree has this kind. It is false for nil, and an
// error without an *Error inside is Internal.
func Is(err error, kind Kind) bool { return err != nil && KindOf(err) == kind }

// KindOf returns the kind of the outermost *Error in err's tree, and Internal if there is none.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}

// ReasonOf returns the reason of the outermost *Error, ReasonInternal for any other error, and "" for nil.
func ReasonOf(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok && e.Reason != "" {
		return e.Reason
	}
	return ReasonInternal
}

// From returns the outermost *Error in err's tree, or an Internal one around err with a neutral message. It
// returns nil for nil.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Kind: Internal, Reason: ReasonInternal, Message: "internal error", Err: err}
}
