package rest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/host"
	errorsv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/errors/v1"
	"github.com/epigraph-run/epigraph/services/gateway/internal/grpcproxy"
	"github.com/epigraph-run/epigraph/services/gateway/internal/jsonview"
)

const jsonType = "application/json"

// Reasons whose HTTP status differs from that of their kind.
const (
	reasonPathNotFound = "PATH_NOT_FOUND"
	reasonMethod       = "METHOD_NOT_ALLOWED"
	reasonMediaType    = "UNSUPPORTED_MEDIA_TYPE"
	reasonBodyTooLarge = "BODY_TOO_LARGE"
	reasonBodyTimeout  = "BODY_TIMEOUT"
	// grpckit gives this to errors that gRPC itself made.
	reasonNotOffered = grpcproxy.ReasonUnimplemented
)

// answer is how an error shows in HTTP: the status line, and the name of its gRPC code.
type answer struct {
	status int
	code   string
}

// byKind follows the mapping that google.rpc.Code documents, so that clients of either protocol see
// the same classes: ABORTED is 409, FAILED_PRECONDITION is 400.
var byKind = map[errs.Kind]answer{
	errs.Internal:           {http.StatusInternalServerError, "INTERNAL"},
	errs.InvalidArgument:    {http.StatusBadRequest, "INVALID_ARGUMENT"},
	errs.NotFound:           {http.StatusNotFound, "NOT_FOUND"},
	errs.AlreadyExists:      {http.StatusConflict, "ALREADY_EXISTS"},
	errs.Conflict:           {http.StatusConflict, "ABORTED"},
	errs.FailedPrecondition: {http.StatusBadRequest, "FAILED_PRECONDITION"},
	errs.ResourceExhausted:  {http.StatusTooManyRequests, "RESOURCE_EXHAUSTED"},
	errs.Unavailable:        {http.StatusServiceUnavailable, "UNAVAILABLE"},
	errs.Unauthenticated:    {http.StatusUnauthorized, "UNAUTHENTICATED"},
	errs.PermissionDenied:   {http.StatusForbidden, "PERMISSION_DENIED"},
	errs.DeadlineExceeded:   {http.StatusGatewayTimeout, "DEADLINE_EXCEEDED"},
	errs.Canceled:           {statusClientClosed, "CANCELLED"}, //nolint:misspell // as google.rpc.Code
}

// statusClientClosed is the status to which google.rpc.Code maps that code; no standard one fits.
const statusClientClosed = 499

// byReason has the faults of HTTP itself, which gRPC has no code for.
var byReason = map[string]answer{
	reasonMethod:       {http.StatusMethodNotAllowed, "UNIMPLEMENTED"},
	reasonMediaType:    {http.StatusUnsupportedMediaType, "INVALID_ARGUMENT"},
	reasonBodyTooLarge: {http.StatusRequestEntityTooLarge, "RESOURCE_EXHAUSTED"},
	reasonBodyTimeout:  {http.StatusRequestTimeout, "DEADLINE_EXCEEDED"},
	reasonNotOffered:   {http.StatusNotImplemented, "UNIMPLEMENTED"},
}

func answerOf(e *errs.Error) answer {
	if a, ok := byReason[e.Reason]; ok {
		return a
	}
	if a, ok := byKind[e.Kind]; ok {
		return a
	}
	return byKind[errs.Internal]
}

// Message renders an error as the API shows it. The private cause is not in it, and an internal
// error says nothing but that it is one.
func Message(err error, requestID string) *errorsv1.Error {
	e := errs.From(err)
	a := answerOf(e)
	out := &errorsv1.Error{
		Code:      int32(a.status),
		Status:    a.code,
		Reason:    e.Reason,
		Message:   e.Message,
		Hint:      e.HintText(),
		RequestId: requestID,
		Metadata:  maps.Clone(e.Meta),
	}
	delete(out.Metadata, errs.MetaHint)
	delete(out.Metadata, grpckit.MetaRequestID)
	if out.Reason == "" {
		out.Reason = a.code
	}
	if out.Message == "" {
		out.Message = e.Kind.String()
	}
	for _, v := range e.Violations {
		out.Violations = append(out.Violations, &errorsv1.Violation{Field: v.Field, Reason: v.Reason, Description: v.Message})
	}
	clean(out)
	return out
}

// callName is what may be the name of a gRPC call in a hint.
var callName = regexp.MustCompile(`\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b`)

// message is Message for clients of REST: hints, which the services write for callers of gRPC, name methods
// and paths in place of calls.
func (s *Server) message(err error, requestID string) *errorsv1.Error {
	m := Message(err, requestID)
	m.Hint = callName.ReplaceAllStringFunc(m.GetHint(), func(name string) string {
		if at, ok := s.places[name]; ok {
			return at
		}
		return name
	})
	return m
}

// clean makes every text valid UTF-8, without which the error could not be encoded.
func clean(m *errorsv1.Error) {
	fix := func(s *string) { *s = strings.ToValidUTF8(*s, "\uFFFD") }
	for _, s := range []*string{&m.Reason, &m.Message, &m.Hint, &m.RequestId} {
		fix(s)
	}
	for _, v := range m.GetViolations() {
		fix(&v.Field)
		fix(&v.Reason)
		fix(&v.Description)
	}
	for _, k := range slices.Collect(maps.Keys(m.GetMetadata())) {
		v := m.Metadata[k]
		delete(m.Metadata, k)
		fix(&k)
		fix(&v)
		m.Metadata[k] = v
	}
}

// writeError answers with an error, unless the answer has begun.
func (s *Server) writeError(w http.ResponseWriter, r *http.Request, err error) {
	ctx := r.Context()
	e := errs.From(err)
	if ctx.Err() != nil && e.Kind == errs.Internal {
		e = contextError(ctx)
	}
	x := exchangeOf(ctx)
	switch {
	case e.Reason == grpckit.ReasonServiceAway && x.route != nil:
		e = grpckit.ServiceAway(x.route.service()).With(e)
	case e.Reason == reasonNotOffered && !x.grpc:
		e = errs.New(e.Kind, e.Reason, "this installation does not offer %s", r.Pattern).
			Hint("the services may be of different releases").With(e)
	}
	a := answerOf(e)
	if a.status >= http.StatusInternalServerError {
		level, left := slog.LevelWarn, 0
		switch {
		case e.Kind == errs.Internal:
			level = slog.LevelError
		case e.Kind == errs.Unavailable && stopping(ctx):
			level = slog.LevelDebug // nothing is down: this server is stopping
		case e.Kind == errs.Unavailable: // every request has its line of the access log besides
			kind := e.Reason
			if x.route != nil {
				kind += " of the " + x.route.service()
			}
			level, left = s.away.Level(kind, level)
		}
		s.log.LogAttrs(ctx, level, "request failed", slog.String("request_id", x.id), slog.String("route", r.Pattern),
			slog.String("reason", e.Reason), slog.Any("err", err), slog.Int("lines_left_out", left))
	}
	x.reason = e.Reason
	if x.grpc {
		grpcproxy.Fail(w, r, e)
		return
	}
	h := w.Header()
	for _, name := range []string{"Trailer", "Transfer-Encoding", "Content-Length", "Content-Encoding", "ETag"} {
		h.Del(name)
	}
	h.Set("Content-Type", jsonType)
	h.Set("Cache-Control", "no-store")
	switch e.Kind {
	case errs.Unauthenticated:
		h.Set("WWW-Authenticate", `Bearer realm="epigraph"`)
	case errs.Unavailable:
		h.Set("Retry-After", retryAfter(e))
	case errs.ResourceExhausted:
		if e.Meta[errs.MetaRetryAfter] != "" {
			h.Set("Retry-After", retryAfter(e))
		}
	}
	discard := s.discardBody(w, r)
	if e.Reason == reasonMethod {
		h.Set("Allow", strings.Join(x.allowed, ", "))
	}
	var body []byte
	var merr error
	if x.route != nil && x.route.render != nil {
		body = x.route.render(s.message(e, x.id))
	} else {
		body, merr = jsonview.Encode(s.message(e, x.id))
	}
	if merr != nil {
		s.log.ErrorContext(ctx, "an error could not be rendered", "err", merr)
		body = []byte(`{"code":500,"status":"INTERNAL","reason":"INTERNAL","message":"internal error"}`)
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(body) // the client is gone if this fails
	discard()
}

// stopping reports whether the server of a request is stopping.
func stopping(ctx context.Context) bool {
	select {
	case <-host.Draining(ctx):
		return true
	default:
		return false
	}
}

// A client that sends all before it reads must be able to read the answer. The rest of its body is discarded:
// a little of an unauthenticated caller, a whole body of others.
const (
	strangerDrain = 500 * time.Millisecond
	strangerBytes = 256 << 10
	callerDrain   = 5 * time.Second
)

// discardBody lets an answer be sent before the body has arrived, and returns the function to call
// afterwards. By itself an HTTP/1 server first reads the rest of a small body, however long that takes, and
// cuts off the sender of a large one.
func (s *Server) discardBody(w http.ResponseWriter, r *http.Request) (after func()) {
	if r.ProtoMajor != 1 || r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody || exchangeOf(r.Context()).bodyRead {
		return func() {}
	}
	w.Header().Set("Connection", "close")
	return func() {
		rc, pause, most := http.NewResponseController(w), strangerDrain, int64(strangerBytes)
		if exchangeOf(r.Context()).known {
			pause, most = callerDrain, s.MaxBodyBytes
		}
		// Where a writer cannot do this, nothing is left to be done.
		if rc.Flush() == nil && rc.SetReadDeadline(time.Now().Add(pause)) == nil {
			_, _ = io.CopyN(io.Discard, r.Body, most)
		}
	}
}

func retryAfter(e *errs.Error) string {
	if v := e.Meta[errs.MetaRetryAfter]; v != "" && strings.Trim(v, "0123456789") == "" {
		return v
	}
	return "1"
}

// contextError says why a request ended before its answer.
func contextError(ctx context.Context) *errs.Error {
	if errors.Is(context.Cause(ctx), errRequestTimeout) || errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errs.New(errs.DeadlineExceeded, "REQUEST_TIMEOUT", "the request took longer than this server allows").
			Hint("its outcome is unknown: repeat it with the same request_id")
	}
	return errs.New(errs.Canceled, "CLIENT_CLOSED", "the client closed the connection")
}
