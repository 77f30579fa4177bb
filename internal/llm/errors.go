package llm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// Class says what a failed call means for whoever thinks of calling again.
type Class int

// The classes. The zero value is the careful one.
const (
	// Unknown means that the model may have done and billed the work.
	Unknown Class = iota
	// Retryable means that the server refused for now; see Error.RetryAfter.
	Retryable
	// Permanent means that the same request will fail again.
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
	// Code is the provider's error code, or one of ours: TIMEOUT, CANCELED, CONNECTION, MALFORMED,
	// TRUNCATED, RESPONSE_TOO_LARGE, REQUEST.
	Code string
	// Message is bounded and may be shown to the owner of the run.
	Message string
	// RetryAfter is what the server asked for, 0 if nothing.
	RetryAfter time.Duration
	Err        error
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

const maxMessage = 2048

var errTooLarge = errors.New("response is larger than allowed")

// classify turns whatever a call ended in into an *Error. res may be nil.
func classify(ctx context.Context, err error, res *http.Response) *Error {
	if known, ok := errors.AsType[*Error](err); ok {
		return known
	}
	if errors.Is(err, errTooLarge) {
		return &Error{Class: Permanent, Code: "RESPONSE_TOO_LARGE", Message: errTooLarge.Error(), Err: err}
	}
	if res != nil && res.StatusCode >= 400 {
		return refused(err, res)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return &Error{Class: NotPerformed, Code: "CONNECTION", Message: "cannot connect to the model server", Err: err}
	}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		return &Error{Class: NotPerformed, Code: "CONNECTION", Message: "cannot find the model server", Err: err}
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return &Error{Class: Unknown, Code: "CANCELED", Message: "the call was canceled", Err: errors.Join(err, ctx.Err())}
	case errors.Is(err, context.DeadlineExceeded), ctx.Err() != nil:
		return &Error{Class: Unknown, Code: "TIMEOUT", Message: "the model did not answer in time", Err: err}
	case res == nil:
		return &Error{Class: Unknown, Code: "CONNECTION", Message: "the connection to the model server broke", Err: err}
	}
	return &Error{Class: Unknown, Status: res.StatusCode, Code: "MALFORMED", Message: "the model server sent something that is no answer", Err: err}
}

func refused(err error, res *http.Response) *Error {
	e := &Error{Class: Permanent, Status: res.StatusCode, Message: http.StatusText(res.StatusCode), RetryAfter: retryAfter(res.Header), Err: err}
	if said, ok := errors.AsType[*refusal](err); ok {
		e.Code = said.code
		if said.message != "" {
			e.Message = errs.Clip(said.message, maxMessage)
		}
	}
	switch {
	case res.StatusCode == http.StatusTooManyRequests && e.Code == "insufficient_quota":
	case res.StatusCode == http.StatusTooManyRequests, res.StatusCode == http.StatusRequestTimeout,
		res.StatusCode == http.StatusConflict, res.StatusCode >= 500 && res.StatusCode != http.StatusNotImplemented:
		e.Class = Retryable
	}
	return e
}

func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	v := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(v, 64); err == nil && s > 0 && s < 1e6 {
		return time.Duration(s * float64(time.Second))
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}
