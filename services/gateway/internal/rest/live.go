package rest

import (
	"context"
	"net/http"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/internal/conns"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/host"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/gateway/internal/auth"
	"github.com/epigraph-run/epigraph/services/gateway/internal/cells"
	"github.com/epigraph-run/epigraph/services/gateway/internal/jsonview"
	"github.com/epigraph-run/epigraph/services/gateway/internal/socket"
)

// identify authenticates a request, counts its connection, and checks the right to its route.
func (s *Server) identify(ctx context.Context, r *http.Request, x *exchange) (who auth.Identity, err error) {
	if x.route.socket && socket.Wanted(r) {
		who, err = s.Keyring.AuthenticateSocket(r, slices.Contains(s.CORSOrigins, "*"))
	} else {
		who, err = s.Keyring.Authenticate(r)
	}
	if err != nil {
		return who, err
	}
	x.known = true
	if err := conns.Know(ctx, who.Namespace); err != nil {
		return who, err
	}
	if x.route.behind {
		return who, nil
	}
	return who, s.authorize(ctx, who.Principal, who.Namespace, x.route.procedure())
}

// refuse answers a request that may not come in. To a WebSocket that is a connection which is
// closed at once.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(r.Context())
	if !x.route.socket || !socket.Wanted(r) {
		s.writeError(w, r, err)
		return
	}
	x.reason = errs.ReasonOf(err)
	socket.Refuse(w, r, err)
}

// liveRoute serves WebSockets. All that they show needs the right to read the feed, which is that
// to read runs.
func (s *Server) liveRoute() *route {
	s.live = socket.New(socket.Options{
		Executor:     executorv1.NewExecutorServiceClient(s.Cells.Conn(cells.Executor)),
		Registry:     registryv1.NewRegistryServiceClient(s.Cells.Conn(cells.Registry)),
		Budget:       s.Budget,
		Encode:       jsonview.Encode,
		Describe:     func(err error) proto.Message { return s.message(err, "") },
		FromStatus:   fromCall,
		Log:          s.log,
		WriteTimeout: s.WriteTimeout,
		Idle:         socket.Idle,
		Pong:         socket.Pong,
		Stopping:     host.Draining,
	})
	rt := newRoute(http.MethodGet, "/v1/live")
	rt.rpc = registryv1.File_epigraph_registry_v1_registry_proto.Services().ByName("RegistryService").Methods().ByName("WatchEvents")
	rt.stream, rt.socket = true, true
	rt.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !socket.Wanted(r) {
			s.writeError(w, r, errs.New(errs.InvalidArgument, "UPGRADE_REQUIRED", "this address speaks WebSocket only").
				Hint("connect with a WebSocket client over HTTP/1.1; "+feedTemplate+" has the same as server-sent events"))
			return
		}
		// The connection outlives its request, and counts as one that is under way until it ends.
		ctx := context.WithoutCancel(r.Context())
		leave, ok := s.underWay.Try(grpckit.Namespace(ctx))
		if !ok {
			s.refuse(w, r, grpckit.TooManyCalls(grpckit.DefaultMaxCalls))
			return
		}
		end := conns.Begin(ctx)
		s.streams.Add(ctx, 1)
		streams, log, id := s.streams, s.log, exchangeOf(ctx).id
		s.live.Serve(w, r, func() {
			end()
			leave()
			// The request's context would keep all of the request.
			later := context.Background()
			streams.Add(later, -1)
			log.DebugContext(later, "live connection ended", "request_id", id)
		})
	})
	return rt
}

// Wait waits until no WebSocket is left, after the server was told to stop, or until ctx ends.
func (s *Server) Wait(ctx context.Context) { s.live.Wait(ctx) }
