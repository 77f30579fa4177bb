// Package a2a serves the Agent2Agent protocol: agents and exposed workflows as agents with cards, runs as
// tasks, and threads as contexts. It owns how messages of the protocol become messages on threads and
// answers to questions, and how runs are told as tasks. It keeps nothing: every answer is read from the
// executor and the registry. It must not know routes, credentials or statuses of HTTP.
package a2a

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	spec "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	sdklog "github.com/a2aproject/a2a-go/v2/log"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/inflight"
	errorsv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/errors/v1"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/gateway/internal/exposed"
	"github.com/epigraph-run/epigraph/services/gateway/internal/paced"
)

// Options say how requests are answered. All but URL and Version are required.
type Options struct {
	Executor  executorv1.ExecutorServiceClient
	Threads   executorv1.ThreadServiceClient
	Workflows *exposed.Workflows
	Log       *slog.Logger
	// Describe says what clients are told of an error.
	Describe func(error) *errorsv1.Error
	// URL is where clients reach the server, without a path. Without one cards have the address at which
	// they were asked for.
	URL string
	// Version is that of the binary.
	Version string
	// KeepAlive is the longest silence of a stream, and WriteTimeout how long a client may leave a piece
	// unread.
	KeepAlive, WriteTimeout time.Duration
	// Stopping returns a channel that is closed when the server drains.
	Stopping func(context.Context) <-chan struct{}
}

const (
	// Root is the path of all agents. That of one agent is below it.
	Root = "/a2a"
	// CardPath is where the card of an agent is, below its path.
	CardPath = "/.well-known/agent-card.json"
	// MaxBody bounds a request, in bytes.
	MaxBody = 1 << 20
	// maxValues and maxDepth bound the JSON values of a request, and how deep they are nested.
	maxValues, maxDepth = 20_000, 64

	agentPrefix, workflowPrefix = "agent/", "workflow/"
	maxName                     = 256
)

// Server answers requests. It is safe for concurrent use.
type Server struct {
	Options
	current, earlier, rest http.Handler
}

// New returns a server.
func New(o Options) *Server {
	s := &Server{Options: o}
	h, quiet := handler{s}, a2asrv.WithTransportKeepAlive(o.KeepAlive)
	s.current, s.earlier, s.rest = a2asrv.NewJSONRPCHandler(h, quiet), a2av0.NewJSONRPCHandler(h, quiet), a2asrv.NewRESTHandler(h, quiet)
	return s
}

// request is what belongs to a request besides what the protocol says.
type request struct {
	// agent is who is spoken to by the path; empty at the path of all.
	agent string
	// base is the address of the server, and held what the request holds until its message is sent.
	base string
	held func()
	// memory is what the answer holds.
	memory *memory
}

type requestKey struct{}

func requestOf(ctx context.Context) request {
	if r, ok := ctx.Value(requestKey{}).(request); ok {
		return r
	}
	return request{held: func() {}, memory: &memory{begin: func() {}}}
}

// Serve answers a request below Root, whose whole body was read. The context says who calls. held is called
// once the body is not needed any more, and may be called again. out is what the answer holds.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, body []byte, held func(), out *inflight.Answer) error {
	if err := bounded(body); err != nil {
		return err
	}
	agent, below := address(r.URL.Path)
	if len(agent) > maxName {
		return errs.New(errs.InvalidArgument, "AGENT_INVALID", "the name of the agent has more than %d bytes", maxName)
	}
	ctx := context.WithValue(r.Context(), requestKey{}, request{agent: agent, base: s.base(r), held: held, memory: &memory{out: out, begin: held}})
	r = r.WithContext(sdklog.AttachLogger(ctx, s.Log))
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	answer := &writer{paced.New(w, s.WriteTimeout)}
	switch {
	case below != "":
		u := *r.URL
		u.Path, u.RawPath = below, ""
		r.URL = &u
		s.rest.ServeHTTP(answer, r)
	case r.Method != http.MethodPost:
		return errs.New(errs.NotFound, "PATH_NOT_FOUND", "there is nothing to get at %.200s", r.URL.Path).
			Hint("POST takes JSON-RPC here; the card is at " + CardPath + " below this path")
	case isEarlier(body):
		s.earlier.ServeHTTP(answer, r)
	default:
		s.current.ServeHTTP(answer, r)
	}
	return nil
}

// base is the address of the server as the client knows it.
func (s *Server) base(r *http.Request) string {
	if s.URL != "" {
		return strings.TrimSuffix(s.URL, "/")
	}
	scheme := "http://"
	if r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") {
		scheme = "https://"
	}
	return scheme + r.Host
}

// isEarlier reports whether a message is one of version 0.3 of the protocol, whose methods have slashes.
func isEarlier(body []byte) bool {
	var m struct {
		Method string `json:"method"`
	}
	return json.Unmarshal(body, &m) == nil && strings.Contains(m.Method, "/")
}

// address splits a path into the agent and the path of the protocol's binding to HTTP below it.
func address(path string) (agent, below string) {
	first, rest := cut(strings.TrimPrefix(strings.TrimPrefix(path, Root), "/"))
	switch {
	case first == "tasks" || first == "extendedAgentCard" || strings.HasPrefix(first, "message:"):
		return "", "/" + strings.TrimPrefix(strings.TrimPrefix(path, Root), "/")
	case first+"/" == agentPrefix || first+"/" == workflowPrefix:
		name, more := cut(rest)
		return first + "/" + name, more2path(more)
	}
	return first, more2path(rest)
}

func cut(path string) (first, rest string) {
	first, rest, _ = strings.Cut(path, "/")
	return first, rest
}

func more2path(rest string) string {
	if rest == "" {
		return ""
	}
	return "/" + rest
}

// bounded refuses a body whose values would take much more memory than its bytes.
func bounded(body []byte) error {
	values, depth, deepest, text := 1, 0, 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '[' || c == '{':
			depth++
			values++
			deepest = max(deepest, depth)
		case c == ']' || c == '}':
			depth--
		case c == ',':
			values++
		}
	}
	if values > maxValues || deepest > maxDepth {
		return errs.New(errs.InvalidArgument, "BODY_TOO_COMPLEX", "the body has %d values, nested %d deep; the limits are %d and %d", values, deepest, maxValues, maxDepth).
			Hint("send large data as a text, or by reference")
	}
	return nil
}

// writer is a writer that the library can flush.
type writer struct{ *paced.Writer }

// Flush implements http.Flusher. It fails if the client is gone, and then the next write does, too.
func (w *writer) Flush() { _ = http.NewResponseController(w.Writer).Flush() }

// fault is an error as the protocol has it. The reason of the suite is in its data.
func (s *Server) fault(err error) error {
	kind := spec.ErrInternalError
	switch errs.KindOf(err) {
	case errs.InvalidArgument, errs.NotFound, errs.AlreadyExists:
		kind = spec.ErrInvalidParams
	case errs.FailedPrecondition, errs.Conflict:
		kind = spec.ErrUnsupportedOperation
	case errs.ResourceExhausted, errs.Unavailable, errs.DeadlineExceeded, errs.Canceled:
		kind = spec.ErrServerError
	case errs.PermissionDenied:
		kind = spec.ErrUnauthorized
	case errs.Unauthenticated:
		kind = spec.ErrUnauthenticated
	}
	return s.faultAs(kind, err)
}

func (s *Server) faultAs(kind, err error) error {
	m := s.Describe(err)
	meta := map[string]string{"reason": m.GetReason()}
	if m.GetHint() != "" {
		meta["hint"] = m.GetHint()
	}
	e := spec.NewError(kind, m.GetMessage()).WithErrorInfoMeta(meta)
	if len(m.GetViolations()) > 0 {
		var all []any
		for _, v := range m.GetViolations() {
			all = append(all, map[string]any{"field": v.GetField(), "reason": v.GetReason(), "description": v.GetDescription()})
		}
		e = e.WithDetails(map[string]any{"violations": all})
	}
	return e
}

// invalid is an error of a part of a request.
func invalid(field, reason, format string, args ...any) *errs.Error {
	e := errs.New(errs.InvalidArgument, reason, format, args...)
	return e.Violate(field, reason, e.Message)
}
