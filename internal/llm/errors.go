package llm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/retryafter"
)

// Class says what a failed call means for whoever thinks of calling again.
type Class int

// The classes. The zero value is the careful one.
const (
	// Unknown means that the model may have done and billed the work.
	Unknown Class = iota
	// Retryable means that the server refused for now; see Error.RetryAfter.
	Retryable
	// Permanent means that the same request will fail again. Error.Configured says whether any other
	// would, too.
	Permanent
	// NotPerformed means that the request never left, so that calling again is safe.
	NotPerformed
)

// String returns the class in snake case, as journals write it.
func (c Class) String() string {
	return [...]string{"unknown", "retryable", "permanent", "not_performed"}[c]
}

// Error is a failed call.
type Error struct {
	Class Class
	// Status is the HTTP status, 0 if there was no response.
	Status int
	// Code is the provider's error code, of 100 bytes at most, or one of ours: TIMEOUT, FIRST_TOKEN_TIMEOUT,
	// IDLE_TIMEOUT, CANCELED, CONNECTION, MALFORMED, TRUNCATED, RESPONSE_TOO_LARGE, REQUEST,
	// CONTEXT_EXCEEDED, PROFILE, API_KEY, ACCOUNT_LIMIT, CASSETTE, NOT_RECORDED, PANIC.
	Code string
	// Message is bounded and may be shown to the owner of the run.
	Message string
	// RetryAfter is what the server asked for, up to retryafter.Max; 0 if nothing.
	RetryAfter time.Duration
	// Used is what calls cost that gave no answer of use, to be booked: one for each call that a server
	// worked on.
	Used []Spent
	Err  error
}

// Configured reports whether the fault is not that of the request: every other one would fail alike,
// until the configuration or the cassette is another.
func (e *Error) Configured() bool {
	switch e.Code {
	case codeProfile, "API_KEY", codeNotRecorded, "CASSETTE":
		return true
	}
	switch e.Status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	}
	return e.Code == "insufficient_quota"
}

// Error is for logs.
func (e *Error) Error() string {
	s := "model call: " + e.Message
	if e.Status != 0 {
		s += fmt.Sprintf(" (HTTP %d %s)", e.Status, e.Code)
	}
	return s
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

const (
	maxMessage     = 2048
	codeTruncated  = "TRUNCATED"
	codeFirstToken = "FIRST_TOKEN_TIMEOUT"
	codeContext    = "CONTEXT_EXCEEDED"
	codeProfile    = "PROFILE"
	// codeNotRecorded is that of package cassette.
	codeNotRecorded = "NOT_RECORDED"
)

// The limits of time whose ends are told apart.
var (
	errFirstToken = errors.New("the model did not begin its answer in time")
	errIdle       = errors.New("the model stopped in the middle of its answer")
)

// classify turns whatever a call ended in into an *Error. ctx is that of the call, with our limits of time.
func classify(ctx context.Context, err error, w *wire) *Error {
	// A stream that broke before there was a successful response is judged by what the transport saw.
	if known, ok := errors.AsType[*Error](err); ok && w.status < http.StatusBadRequest && (known.Code != codeTruncated || ctx.Err() == nil && w.status != 0) {
		return known
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errFirstToken):
		return &Error{Class: Unknown, Code: codeFirstToken, Message: cause.Error(), Err: err}
	case errors.Is(cause, errIdle):
		return &Error{Class: Unknown, Code: "IDLE_TIMEOUT", Message: cause.Error(), Err: err}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return &Error{Class: Unknown, Code: "TIMEOUT", Message: "the model did not answer in time", Err: err}
	case cause != nil:
		return &Error{Class: Unknown, Code: "CANCELED", Message: "the call was canceled", Err: errors.Join(err, ctx.Err())}
	}
	if errors.Is(err, errTooLarge) {
		return &Error{Class: Permanent, Code: "RESPONSE_TOO_LARGE", Message: errTooLarge.Error(), Err: err}
	}
	if w.status >= http.StatusBadRequest {
		return refused(err, w)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return &Error{Class: NotPerformed, Code: "CONNECTION", Message: "cannot connect to the model server", Err: err}
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return &Error{Class: NotPerformed, Code: "CONNECTION", Message: "cannot find the model server", Err: err}
	}
	if w.status == 0 {
		return &Error{Class: Unknown, Code: "CONNECTION", Message: "the connection to the model server broke", Err: err}
	}
	return &Error{Class: Unknown, Status: w.status, Code: "MALFORMED", Message: "the model server sent something that is no answer", Err: err}
}

// refused is the error of a response of status 400 or more.
func refused(err error, w *wire) *Error {
	said := readRefusal(w.body)
	e := &Error{
		Class: Permanent, Status: w.status, Code: said.code, Message: errs.Clip(said.message, maxMessage),
		RetryAfter: max(retryafter.Of(w.header), said.retryAfter), Err: err,
	}
	if e.Message == "" {
		e.Message = http.StatusText(w.status)
	}
	if e.Message == "" {
		e.Message = "the server is overloaded" // 529 has no name
	}
	switch {
	case w.status == http.StatusTooManyRequests && e.Code == "insufficient_quota":
	case w.status == http.StatusTooManyRequests, w.status == http.StatusRequestTimeout,
		w.status == http.StatusConflict, w.status >= 500 && w.status != http.StatusNotImplemented:
		e.Class = Retryable
	}
	return e
}

// Broken is the error of a stream that broke, or in which the server reported an error. began says whether a
// piece of the answer came before. said is what the server reported, nil if nothing.
func Broken(err error, began bool, said []byte) error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	if errors.Is(err, errTooLarge) {
		return err
	}
	e := &Error{Class: Unknown, Code: codeTruncated, Message: "the stream broke", Err: err}
	r := readRefusal(said)
	if r.code == "" && r.message == "" {
		return e
	}
	e.Message = errs.Clip("the server reported an error in the stream: "+r.message, maxMessage)
	if !began && (strings.Contains(r.code, "overloaded") || strings.Contains(r.code, "rate_limit") || r.code == "RESOURCE_EXHAUSTED" || r.code == "UNAVAILABLE") {
		e.Class, e.Code, e.RetryAfter = Retryable, r.code, r.retryAfter
	}
	return e
}

// Ended is the error of a stream that ended before the answer did.
func Ended() error {
	return &Error{Class: Unknown, Code: codeTruncated, Message: "the stream ended before the answer did"}
}

// GaveUp is the error of a stream whose reader returned err. An *Error stays as it is.
func GaveUp(err error) error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	return &Error{Class: Unknown, Code: "CANCELED", Message: "the reader of the stream gave up", Err: err}
}

// Malformed is the error of an answer that is none.
func Malformed(why string) error {
	return &Error{Class: Unknown, Code: "MALFORMED", Message: why}
}
