package rest

import (
	"net/http"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/host"
	errorsv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/errors/v1"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/gateway/internal/a2a"
	"github.com/epigraph-run/epigraph/services/gateway/internal/cells"
	"github.com/epigraph-run/epigraph/services/gateway/internal/exposed"
	"github.com/epigraph-run/epigraph/services/gateway/internal/oidc"
)

// agentRoutes serve clients of the Agent2Agent protocol. Each method of it needs the rights of the calls
// that it makes. Cards are shown to everybody, and what the namespace has only to those with a key.
func (s *Server) agentRoutes() (out []*route) {
	executor := authorized{s.Cells.Conn(cells.Executor), s}
	server := a2a.New(a2a.Options{
		Executor: executorv1.NewExecutorServiceClient(executor), Threads: executorv1.NewThreadServiceClient(executor),
		Workflows: exposed.New(registryv1.NewWorkflowServiceClient(authorized{s.Cells.Conn(cells.Registry), s})),
		Log:       s.log, Describe: func(err error) *errorsv1.Error { return s.message(fromCall(err), "") },
		URL: s.PublicURL, Version: s.Info.Version, KeepAlive: s.KeepAlive, WriteTimeout: s.WriteTimeout, Stopping: host.Draining,
	})
	limit := min(s.MaxBodyBytes, a2a.MaxBody)
	talk := s.countStreams(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		share := s.Budget.Share(grpckit.Namespace(r.Context()))
		defer share.Free()
		out := s.Budget.Answer(grpckit.Namespace(r.Context()))
		defer out.Free()
		err := checkEncoding(r)
		var body []byte
		if err == nil {
			body, err = readBody(w, r, limit, &share)
		}
		if err == nil {
			err = server.Serve(w, r, body, share.Free, out)
		}
		if err != nil {
			s.writeError(w, r, fromCall(err))
		}
	}))
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		rt := newRoute(method, a2a.Root+"/{address=**}")
		rt.stream, rt.behind, rt.handler = true, true, talk
		out = append(out, rt)
	}
	all := newRoute(http.MethodPost, a2a.Root)
	all.stream, all.behind, all.handler = true, true, talk
	out = append(out, all)
	for _, path := range []string{"", a2a.Root + "/{agent}", a2a.Root + "/{kind}/{agent}"} {
		rt := fileRoute(http.MethodGet, path+a2a.CardPath)
		rt.open, rt.behind = true, true
		rt.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.agentCard(server, w, r) })
		out = append(out, rt)
	}
	return out
}

// agentCard shows a card.
func (s *Server) agentCard(server *a2a.Server, w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	who, err := s.identify(ctx, r, exchangeOf(ctx))
	if who.Cookie != nil {
		http.SetCookie(w, who.Cookie)
	}
	reason := errs.ReasonOf(err)
	stranger := reason == "CREDENTIALS_MISSING" || reason == oidc.ReasonEnded
	if err != nil && !stranger {
		s.writeError(w, r, err)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	if !stranger {
		leave, ok := s.underWay.Try(who.Namespace)
		if !ok {
			s.writeError(w, r, grpckit.TooManyCalls(grpckit.DefaultMaxCalls))
			return
		}
		defer leave()
		r = r.WithContext(grpckit.WithPrincipal(grpckit.WithNamespace(ctx, who.Namespace), who.Principal))
	}
	if err := server.Card(w, r, stranger); err != nil {
		s.writeError(w, r, fromCall(err))
	}
}
