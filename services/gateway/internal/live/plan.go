package live

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/internal/errs"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
)

// Plan streams the events of a plan that is being written: as server-sent events if the client asks for them,
// else as lines of JSON. The plan ends with the client: a stream cannot be resumed.
func Plan(o Options, client plannerv1.PlannerServiceClient, w http.ResponseWriter, r *http.Request, req *plannerv1.StreamPlanRequest) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	upstream, err := client.StreamPlan(ctx, req)
	if err != nil {
		o.Fail(w, r, o.FromStatus(err))
		return
	}
	in := make(chan planned, ahead)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			ev, err := upstream.Recv()
			select {
			case in <- planned{ev, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	defer func() { cancel(); <-done }()
	s := &planStream{stream: stream{Options: o, w: w, rc: http.NewResponseController(w), r: r, stopping: o.Stopping(ctx)},
		lines: !strings.Contains(r.Header.Get("Accept"), "text/event-stream")}
	if err := s.serve(ctx, in); err != nil && ctx.Err() == nil {
		o.Log.InfoContext(ctx, "plan stream cut off", "err", err)
	}
}

type planned struct {
	event *plannerv1.StreamPlanResponse
	err   error
}

// planStream is one client's connection.
type planStream struct {
	stream

	lines bool
	begun bool
}

func (s *planStream) serve(ctx context.Context, in <-chan planned) error {
	// A request that fails at once is answered with an error, and not with a stream.
	silence := time.NewTimer(s.FirstEvent)
	defer silence.Stop()
	for {
		if s.begun && len(in) == 0 || s.buf.Len() > 64<<10 {
			if err := s.flush(); err != nil {
				return err
			}
		}
		select {
		case got := <-in:
			if over, err := s.take(got); over || err != nil {
				return err
			}
		case <-silence.C:
			s.begin()
			if !s.lines {
				s.buf.WriteString(": keep-alive\n\n")
			}
		case <-s.stopping:
			return s.fail(errs.New(errs.Unavailable, "STOPPING", "this server is stopping").Hint("ask again; a run that was begun is canceled"))
		case <-ctx.Done():
			return ctx.Err()
		}
		silence.Reset(s.KeepAlive)
	}
}

// begin sends the headers.
func (s *planStream) begin() {
	if s.begun {
		return
	}
	s.begun = true
	hd := s.w.Header()
	hd.Set("Content-Type", "text/event-stream; charset=utf-8")
	if s.lines {
		hd.Set("Content-Type", "application/x-ndjson")
	}
	hd.Set("Cache-Control", "no-cache, no-transform")
	hd.Set("X-Accel-Buffering", "no") // nginx would hold events back
	s.w.WriteHeader(http.StatusOK)
}

// take writes one event; over says that it was the last.
func (s *planStream) take(got planned) (over bool, err error) {
	switch {
	case errors.Is(got.err, io.EOF):
		s.begin()
		return true, s.flush()
	case got.err != nil:
		return true, s.fail(s.FromStatus(got.err))
	}
	s.begin()
	data, err := s.Encode(got.event)
	if err != nil {
		return true, s.fail(err)
	}
	s.write(kind(got.event), data)
	return false, nil
}

func (s *planStream) write(name string, data []byte) {
	if !s.lines {
		s.event("", name, data)
		return
	}
	s.buf.Write(data)
	s.buf.WriteByte('\n')
}

// fail answers with an error: as the answer if nothing was sent, else as the last event.
func (s *planStream) fail(cause error) error {
	if !s.begun {
		s.Fail(s.w, s.r, cause)
		return nil
	}
	data, err := s.Encode(s.Describe(s.r, cause))
	if err != nil {
		return err
	}
	if s.lines {
		data = append(append([]byte(`{"error":`), data...), '}')
	}
	s.write("error", data)
	return s.flush()
}

// kind is the name of an event's kind in the proto, for example "part".
func kind(m proto.Message) string {
	r := m.ProtoReflect()
	if fd := r.WhichOneof(r.Descriptor().Oneofs().ByName("event")); fd != nil {
		return string(fd.Name())
	}
	return "unknown"
}
