package live

import (
	"context"
	"net/http"
	"strings"

	"google.golang.org/protobuf/proto"

	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
)

// Plan streams the events of a plan that is being written: as server-sent events if the client asks for them,
// else as lines of JSON. The plan ends with the client: a stream cannot be resumed.
func Plan(o Options, client plannerv1.PlannerServiceClient, w http.ResponseWriter, r *http.Request, req *plannerv1.StreamPlanRequest) {
	s := &planStream{connection: newConnection(o, w, r), lines: !strings.Contains(r.Header.Get("Accept"), "text/event-stream")}
	s.again = "ask again; a run that was begun is canceled"
	if s.lines {
		s.content, s.silence = lines, ""
	}
	err := serve(&s.connection, s, func(ctx context.Context) (interface {
		Recv() (*plannerv1.StreamPlanResponse, error)
	}, error,
	) {
		return client.StreamPlan(ctx, req)
	})
	if err != nil {
		o.Log.InfoContext(r.Context(), "plan stream cut off", "err", err)
	}
}

// planStream writes the events of a plan.
type planStream struct {
	connection

	lines bool
}

var _ writer[*plannerv1.StreamPlanResponse] = (*planStream)(nil)

func (s *planStream) take(event *plannerv1.StreamPlanResponse) (over bool, err error) {
	data, err := s.Encode(event)
	if err != nil {
		return true, s.fail(err)
	}
	s.write(kind(event), data)
	return false, nil
}

func (*planStream) end() error { return nil }

func (s *planStream) stop(cause error) error { return s.fail(cause) }

func (s *planStream) fail(cause error) error {
	data, err := s.Encode(s.Describe(s.r, cause))
	if err != nil {
		return err
	}
	if s.lines {
		data = errorLine(data)
	}
	s.write("error", data)
	return nil
}

func (s *planStream) write(name string, data []byte) {
	if !s.lines {
		s.event("", name, data)
		return
	}
	s.buf.Write(data)
	s.buf.WriteByte('\n')
}

// kind is the name of an event's kind in the proto, for example "part".
func kind(m proto.Message) string {
	r := m.ProtoReflect()
	if fd := r.WhichOneof(r.Descriptor().Oneofs().ByName("event")); fd != nil {
		return string(fd.Name())
	}
	return "unknown"
}
