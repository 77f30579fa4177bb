// Package live owns the streams of events over HTTP: those of a run, those of a plan that is being
// written, and the feed of a namespace. It owns cursors, keep-alives, the end of a stream and its
// errors. It must not know routes, credentials or how JSON is written.
package live

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// Options say how streams behave. The functions and Executor are required.
type Options struct {
	Executor executorv1.ExecutorServiceClient
	// Encode renders a message as REST JSON on one line.
	Encode func(proto.Message) ([]byte, error)
	// Fail answers a request with an error, before the stream has begun.
	Fail func(http.ResponseWriter, *http.Request, error)
	// Describe renders an error for a stream that has begun.
	Describe func(*http.Request, error) proto.Message
	// FromStatus classifies an error of the gRPC client.
	FromStatus func(error) error
	Log        *slog.Logger

	// KeepAlive is the longest silence on a stream.
	KeepAlive time.Duration
	// FirstEvent is how long the beginning of a stream waits for its first event, so that a request
	// which fails is answered with an error and not with a stream.
	FirstEvent time.Duration
	// WriteTimeout is how long a client may leave an event unread before it is cut off.
	WriteTimeout time.Duration
	// Retry is how long clients wait before they connect again.
	Retry time.Duration
	// Stopping returns a channel that is closed when the server drains; streams end then and clients resume
	// elsewhere.
	Stopping func(context.Context) <-chan struct{}
}

// Handler serves GET /v1/runs/{run_id}/events. Each stream costs two goroutines, and holds at most
// ahead events beside what gRPC buffers: a client that does not read stops the upstream.
type Handler struct{ o Options }

// ahead is how many events are taken from the executor before one is written, so that a burst is
// flushed once.
const ahead = 16

// ended marks the id of the last event of a stream. A client that comes back with it has everything.
const ended = ":end"

// New returns a handler.
func New(o Options) *Handler { return &Handler{o: o} }

// ServeHTTP streams until the run has ended, the client has gone, or the server stops.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	req, complete, err := parse(r)
	if err != nil {
		h.o.Fail(w, r, err)
		return
	}
	if complete {
		// To an EventSource this is the one answer after which it does not connect again.
		w.WriteHeader(http.StatusNoContent)
		return
	}
	s := &runStream{connection: newConnection(h.o, w, r), run: req.GetRunId(), last: req.GetAfterSeq()}
	s.opening, s.again = "retry: "+strconv.FormatInt(s.Retry.Milliseconds(), 10)+"\n\n", "connect again"
	err = serve(&s.connection, s, func(ctx context.Context) (interface {
		Recv() (*executorv1.RunEvent, error)
	}, error,
	) {
		return h.o.Executor.WatchRun(ctx, req)
	})
	if err != nil {
		h.o.Log.InfoContext(r.Context(), "event stream cut off", "err", err)
	}
}

// runStream writes the events of a run.
type runStream struct {
	connection

	run  string
	last int64
}

var _ writer[*executorv1.RunEvent] = (*runStream)(nil)

func (s *runStream) take(ev *executorv1.RunEvent) (over bool, err error) {
	if ev.GetKeepAlive() != nil {
		s.buf.WriteString(s.silence)
		return false, nil
	}
	// Only the run's own sequence is a cursor; descendants have their own sequences.
	id := ""
	if ev.GetSeq() > 0 && (ev.GetRunId() == "" || ev.GetRunId() == s.run) {
		s.last = ev.GetSeq()
		id = strconv.FormatInt(s.last, 10)
	}
	data, err := s.Encode(ev)
	if err != nil {
		// The event cannot be shown. Stopping here would stop every later attempt here too, so the client is
		// informed and the stream continues after it.
		return false, s.unshown(id, ev, err)
	}
	s.event(id, Name(ev), data)
	return false, nil
}

func (s *runStream) end() error {
	data, err := s.Encode(&executorv1.KeepAlive{LastSeq: s.last})
	if err != nil {
		return err
	}
	s.event(strconv.FormatInt(s.last, 10)+ended, "end", data)
	return nil
}

func (s *runStream) unshown(id string, ev *executorv1.RunEvent, cause error) error {
	e := errs.From(cause).Set("fatal", "false").Set("event", Name(ev)).Set("seq", strconv.FormatInt(ev.GetSeq(), 10))
	data, err := s.Encode(s.Describe(s.r, e))
	if err != nil {
		return err
	}
	s.event(id, "error", data)
	return nil
}

func (s *runStream) fail(cause error) error {
	e := errs.From(cause).Set("fatal", "true")
	data, err := s.Encode(s.Describe(s.r, e))
	if err != nil {
		return err
	}
	s.event("", "error", data)
	return nil
}

func (s *runStream) stop(error) error {
	s.buf.WriteString(": stopping, connect again\n\n")
	return nil
}

// Name is the name of an event's kind in the proto, for example "attempt_ended".
func Name(ev *executorv1.RunEvent) string { return kind(ev) }

// parse reads the cursor and the switches. complete means that the client has all of an ended run.
func parse(r *http.Request) (req *executorv1.WatchRunRequest, complete bool, err error) {
	req = &executorv1.WatchRunRequest{RunId: r.PathValue("run_id")}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, false, errs.New(errs.InvalidArgument, "INVALID_QUERY", "the query cannot be read: %v", err)
	}
	var bad *errs.Error
	fault := func(name, reason, text string) {
		if bad == nil {
			bad = errs.New(errs.InvalidArgument, reason, "%s", "query parameter "+name+": "+text)
		}
		bad = bad.Violate(name, reason, text)
	}
	names := make([]string, 0, len(query))
	for name := range query {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		value := query.Get(name)
		var err error
		switch name {
		case "after_seq", "afterSeq":
			if req.AfterSeq, err = strconv.ParseInt(value, 10, 64); err != nil || req.AfterSeq < 0 {
				fault(name, "WRONG_TYPE", strconv.Quote(value)+" is no sequence number")
			}
		case "include_descendants", "includeDescendants":
			if req.IncludeDescendants, err = strconv.ParseBool(value); err != nil {
				fault(name, "WRONG_TYPE", "this must be true or false, not "+strconv.Quote(value))
			}
		case "durable_only", "durableOnly":
			if req.DurableOnly, err = strconv.ParseBool(value); err != nil {
				fault(name, "WRONG_TYPE", "this must be true or false, not "+strconv.Quote(value))
			}
		default:
			fault(name, "UNKNOWN_FIELD", "there is no such parameter")
		}
	}
	if bad != nil {
		return nil, false, bad.Hint("there are after_seq, include_descendants and durable_only")
	}
	// The header wins: an EventSource repeats its URL and moves its cursor in the header.
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		digits, done := strings.CutSuffix(last, ended)
		seq, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || seq < 0 {
			return nil, false, errs.New(errs.InvalidArgument, "LAST_EVENT_ID_INVALID", "Last-Event-ID %q is no id of an event", last).
				Hint("send the id of the last event received, or leave the header out to begin at the beginning")
		}
		req.AfterSeq, complete = seq, done
	}
	return req, complete, nil
}
