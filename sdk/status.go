package epigraph

import (
	"crypto/rand"
	"regexp"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// domain marks errors that the suite made.
const domain = "epigraph.run"

// randomID is an id that nobody else has.
func randomID() string { return strings.ToLower(rand.Text()) }

// noConnection is what gRPC says when it reaches nobody.
var noConnection = regexp.MustCompile(`connection error: desc = "(?:transport: )?(Error while dialing: )?(.*)"$`)

// unreached says at which address nobody was reached, and why, where gRPC itself says only why.
func unreached(target, message string) string {
	m := noConnection.FindStringSubmatch(message)
	switch {
	case m == nil:
		return message
	case m[1] != "":
		return "nothing answers at " + target + ": " + m[2]
	}
	return "no connection to " + target + ": " + m[2]
}

func errorOf(st *status.Status, target string, cause error) *Error {
	e := &Error{Reason: reasonOf(st.Code()), Message: st.Message(), cause: cause}
	if st.Code() == codes.Unavailable {
		e.Message = unreached(target, e.Message)
	}
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() == domain {
				e.Reason, e.Metadata, e.Hint = d.GetReason(), d.GetMetadata(), d.GetMetadata()["hint"]
			}
		case *errdetails.BadRequest:
			for _, v := range d.GetFieldViolations() {
				e.Violations = append(e.Violations, Violation{Field: v.GetField(), Reason: v.GetReason(), Message: v.GetDescription()})
			}
		}
	}
	return e
}

// reasonOf is the reason of an error that gRPC made itself.
func reasonOf(c codes.Code) string {
	switch c {
	case codes.Unavailable:
		return "SERVICE_UNAVAILABLE"
	case codes.DeadlineExceeded:
		return "DEADLINE_EXCEEDED"
	case codes.Canceled:
		return "CANCELED"
	case codes.Unimplemented:
		return "NOT_IMPLEMENTED"
	case codes.ResourceExhausted:
		return "MESSAGE_TOO_LARGE"
	}
	return "RPC_FAILED"
}
