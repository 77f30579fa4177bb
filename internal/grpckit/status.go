// Package grpckit owns how services talk gRPC: the one place where domain errors become statuses and
// come back, the interceptor chain in its fixed order, authentication and namespaces, servers,
// client connections, and in-memory connections for services of one process. It must not know any
// service or message of the suite.
package grpckit

import (
	"context"
	"errors"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/errs"
)

// Domain is the domain of every ErrorInfo.
const Domain = "epigraph.run"

// ReasonServiceAway is the reason when gRPC itself says that nobody answers.
const ReasonServiceAway = "SERVICE_UNAVAILABLE"

// MetaService is the ErrorInfo key by which a gateway names the unreachable service behind it.
const MetaService = "service"

// ServiceAway is the answer of a gateway while a service behind it is unreachable.
func ServiceAway(name string) *errs.Error {
	return errs.New(errs.Unavailable, ReasonServiceAway, "the %s cannot be reached", name).Set(MetaService, name).
		Hint("try again in a moment; /readyz says what is missing")
}

// MetaRequestID is the ErrorInfo key that names the request in the server's log.
const MetaRequestID = "request_id"

// MetaViolations is the ErrorInfo key that says how many fields are at fault when not all of them are listed.
const MetaViolations = "violations"

// maxViolations bounds the trailers of a call, which clients and proxies refuse when they are large.
const maxViolations = 100

var codeOf = [...]codes.Code{
	errs.Internal:           codes.Internal,
	errs.InvalidArgument:    codes.InvalidArgument,
	errs.NotFound:           codes.NotFound,
	errs.AlreadyExists:      codes.AlreadyExists,
	errs.Conflict:           codes.Aborted,
	errs.FailedPrecondition: codes.FailedPrecondition,
	errs.ResourceExhausted:  codes.ResourceExhausted,
	errs.Unavailable:        codes.Unavailable,
	errs.Unauthenticated:    codes.Unauthenticated,
	errs.PermissionDenied:   codes.PermissionDenied,
	errs.DeadlineExceeded:   codes.DeadlineExceeded,
	errs.Canceled:           codes.Canceled,
}

// Code returns the gRPC code of a kind.
func Code(k errs.Kind) codes.Code {
	if int(k) < len(codeOf) {
		return codeOf[k]
	}
	return codes.Internal
}

// ToStatus turns an error into what the caller may see. Internal errors are masked; an error that is
// only the caller's own context having ended keeps that meaning. It returns nil for nil. ctx is the
// context of the call as the caller bounded it, without timeouts of our own.
func ToStatus(ctx context.Context, err error) *status.Status {
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*errs.Error](err)
	switch {
	case ok && e.Kind != errs.Internal:
	case ctx.Err() != nil:
		e = contextError(ctx.Err())
	default:
		e = errs.New(errs.Internal, errs.ReasonInternal, "internal error")
	}
	info := &errdetails.ErrorInfo{Reason: e.Reason, Domain: Domain, Metadata: map[string]string{}}
	for k, v := range e.Meta {
		info.Metadata[k] = v
	}
	if id := RequestID(ctx); id != "" {
		info.Metadata[MetaRequestID] = id
	}
	details := []protoadapt.MessageV1{info}
	if len(e.Violations) > 0 {
		bad := &errdetails.BadRequest{}
		if n := len(e.Violations); n > maxViolations {
			info.Metadata[MetaViolations] = strconv.Itoa(n)
		}
		for _, v := range e.Violations[:min(len(e.Violations), maxViolations)] {
			bad.FieldViolations = append(bad.FieldViolations,
				&errdetails.BadRequest_FieldViolation{Field: v.Field, Description: v.Message, Reason: v.Reason})
		}
		details = append(details, bad)
	}
	if seconds, err := strconv.ParseInt(e.Meta[errs.MetaRetryAfter], 10, 32); err == nil {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Duration(seconds) * time.Second)})
	}
	st := status.New(Code(e.Kind), e.Message)
	full, derr := st.WithDetails(details...)
	if derr != nil {
		return st
	}
	return full
}

// FromStatus turns what a call returned back into an *errs.Error that carries the original as its
// private cause. Errors that are no statuses come back as they are; nil stays nil.
func FromStatus(err error) error {
	if err == nil {
		return nil
	}
	st, ok := original(err)
	if !ok {
		return err
	}
	e := &errs.Error{Kind: kindOf(st.Code()), Message: st.Message(), Err: err}
	typed := false
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() == Domain {
				typed = true
				e.Reason = d.GetReason()
				e.Meta = d.GetMetadata()
			}
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				e.Violations = append(e.Violations, errs.Violation{Field: v.GetField(), Reason: v.GetReason(), Message: v.GetDescription()})
			}
		}
	}
	if typed {
		return e
	}
	// The status was made by gRPC itself; its text may name addresses, so it stays private.
	switch e.Kind {
	case errs.Unavailable:
		e.Reason, e.Message = ReasonServiceAway, "the service cannot be reached"
	case errs.DeadlineExceeded:
		e.Reason, e.Message = "DEADLINE_EXCEEDED", "the deadline passed before the call ended"
	case errs.Canceled:
		e.Reason, e.Message = "CANCELED", "the call was canceled"
	case errs.ResourceExhausted:
		e.Reason = "MESSAGE_TOO_LARGE"
	case errs.Internal:
		e.Reason, e.Message = errs.ReasonInternal, "internal error"
	default:
		e.Reason = "RPC_" + reasonText(st.Code().String())
	}
	return e
}

// original is the status in an error without what gRPC wrapped it in, such as how often it tried.
func original(err error) (*status.Status, bool) {
	if s, ok := errors.AsType[interface {
		error
		GRPCStatus() *status.Status
	}](err); ok {
		return s.GRPCStatus(), true
	}
	return status.FromError(err)
}

func kindOf(c codes.Code) errs.Kind {
	for k, code := range codeOf {
		if code == c {
			return errs.Kind(k)
		}
	}
	switch c {
	case codes.OutOfRange:
		return errs.InvalidArgument
	case codes.Unimplemented:
		return errs.FailedPrecondition
	}
	return errs.Internal
}

func contextError(err error) *errs.Error {
	if errors.Is(err, context.DeadlineExceeded) {
		return errs.New(errs.DeadlineExceeded, "DEADLINE_EXCEEDED", "the deadline passed before the call ended")
	}
	return errs.New(errs.Canceled, "CANCELED", "the call was canceled")
}

// reasonText turns a name like string.min_len or NotFound into UPPER_SNAKE.
func reasonText(s string) string {
	out := make([]byte, 0, len(s)+4)
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z':
			out = append(out, c-'a'+'A')
		case c >= 'A' && c <= 'Z':
			if i > 0 && s[i-1] >= 'a' && s[i-1] <= 'z' {
				out = append(out, '_')
			}
			out = append(out, c)
		case c >= '0' && c <= '9':
			out = append(out, c)
		default:
			out = append(out, '_')
		}
	}
	return string(out)
}
