package rest

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/host"
	errorsv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/errors/v1"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/gateway/internal/cells"
	"github.com/epigraph-run/epigraph/services/gateway/internal/completions"
	"github.com/epigraph-run/epigraph/services/gateway/internal/exposed"
)

// completionRoutes serve clients of OpenAI's API. They need what a message to a thread needs.
func (s *Server) completionRoutes() []*route {
	conn := s.Cells.Conn(cells.Executor)
	handler := completions.New(completions.Options{
		Executor: executorv1.NewExecutorServiceClient(conn), Threads: executorv1.NewThreadServiceClient(conn),
		Workflows: exposed.New(registryv1.NewWorkflowServiceClient(s.Cells.Conn(cells.Registry))),
		Body: func(w http.ResponseWriter, r *http.Request) (body []byte, free func(), err error) {
			share := s.Budget.Share(grpckit.Namespace(r.Context()))
			if err = checkEncoding(r); err == nil {
				body, err = readBody(w, r, s.MaxBodyBytes, &share)
			}
			return body, share.Free, err
		},
		Fail:  func(w http.ResponseWriter, r *http.Request, err error) { s.writeError(w, r, fromCall(err)) },
		Error: func(err error) []byte { return completionError(s.message(fromCall(err), "")) },
		// A silence on a stream costs what it costs on others.
		KeepAlive: s.KeepAlive, WriteTimeout: s.WriteTimeout, Stopping: host.Draining,
	})
	threads := executorv1.File_epigraph_executor_v1_thread_proto.Services().ByName("ThreadService").Methods()
	ask := newRoute(http.MethodPost, "/v1/chat/completions")
	ask.rpc, ask.stream, ask.render = threads.ByName("AppendMessage"), true, completionError
	ask.handler = s.countStreams(handler)
	models := newRoute(http.MethodGet, "/v1/models")
	models.rpc, models.render = threads.ByName("ListThreads"), completionError
	models.handler = http.HandlerFunc(handler.Models)
	return []*route{ask, models}
}

// completionError is an error as clients of OpenAI read it. What they do not know is beside it.
func completionError(m *errorsv1.Error) []byte {
	text := m.GetMessage()
	if m.GetHint() != "" {
		text += "; " + m.GetHint()
	}
	type fault struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
		Request string  `json:"request_id,omitempty"`
	}
	f := fault{Message: text, Type: strings.ToLower(m.GetStatus()), Code: m.GetReason(), Request: m.GetRequestId()}
	if len(m.GetViolations()) > 0 {
		f.Param = &m.GetViolations()[0].Field
	}
	b, err := json.Marshal(map[string]fault{"error": f})
	if err != nil { // texts always encode
		return nil
	}
	return b
}
