// Package socket owns the live door: WebSocket connections whose clients subscribe to channels of
// epics, workflows and runs, and get their events from a cursor on. It owns the protocol, what
// waits for a slow client, and the one watch that all subscribers of a namespace's feed, or of a
// run, share on this gateway. It must not know routes, credentials or how JSON is written.
package socket

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/turns"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// Protocol is the subprotocol that is spoken.
const Protocol = "epigraph.live.v1"

const (
	// Idle is after how long a silent client is pinged.
	Idle = 30 * time.Second
	// Pong is how long it has to answer.
	Pong = 10 * time.Second
	// maxReplays is how many subscriptions of a namespace read at once what they have missed.
	maxReplays = 4
	// maxRuns bounds the runs of a namespace that are followed at once. Each takes a stream and a
	// goroutine, which no budget counts.
	maxRuns = 1000
)

// Options say how connections behave; all are required.
type Options struct {
	Executor executorv1.ExecutorServiceClient
	Registry registryv1.RegistryServiceClient
	Budget   *inflight.Budget
	// Encode renders a message as REST JSON on one line.
	Encode func(proto.Message) ([]byte, error)
	// Describe renders an error.
	Describe func(error) proto.Message
	// FromStatus classifies an error of the gRPC client.
	FromStatus func(error) error
	Log        *slog.Logger
	// WriteTimeout is how long a client may leave a message unread before it is cut off.
	WriteTimeout time.Duration
	Idle, Pong   time.Duration
	// Stopping returns a channel that is closed when the server drains.
	Stopping func(context.Context) <-chan struct{}
}

// Server has the connections of a gateway. It is safe for concurrent use.
type Server struct {
	Options
	replays *turns.Turns // by namespace
	// work are the connections, and the goroutines beside them.
	work     tasks
	watching sync.Once

	mu   sync.Mutex
	hubs map[hubKey]*hub
	// runs counts the hubs of runs by namespace.
	runs     map[string]int
	clients  map[*client]struct{}
	stopping bool
}

// hubKey names a hub: that of the feed of a namespace, or of one of its runs.
type hubKey struct{ namespace, run string }

// New returns a server without connections.
func New(o Options) *Server {
	s := &Server{Options: o, replays: turns.New(maxReplays), hubs: map[hubKey]*hub{}, runs: map[string]int{}, clients: map[*client]struct{}{}}
	s.work.caught = func(v any) {
		o.Log.Error("panic at the live door", "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	}
	return s
}

// Wanted reports whether a request asks for a WebSocket.
func Wanted(r *http.Request) bool {
	return r.ProtoMajor == 1 && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}

func accept(w http.ResponseWriter, r *http.Request, pinged func(context.Context, []byte) bool) (*websocket.Conn, error) {
	// The origin was checked with the credentials.
	return websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{Protocol}, InsecureSkipVerify: true, OnPingReceived: pinged})
}

// Refuse answers a handshake with an error. A browser shows its page nothing of a handshake that
// fails, so the connection is made and closed: with 1008, or with 1013 where trying again may help.
func Refuse(w http.ResponseWriter, r *http.Request, err error) {
	conn, aerr := accept(w, r, nil)
	if aerr != nil {
		return // it was answered
	}
	e := errs.From(err)
	code := websocket.StatusPolicyViolation
	switch e.Kind {
	case errs.ResourceExhausted, errs.Unavailable:
		code = websocket.StatusTryAgainLater
	case errs.Internal:
		code = websocket.StatusInternalError
	}
	_ = conn.Close(code, errs.Clip(e.Reason+": "+e.Message, 100)) // the client may have gone
}

// Serve answers a handshake and serves the connection in a goroutine of its own, so that a client
// that is silent for hours costs neither the stack of the request's handlers nor what they keep.
// ended is called once, when nothing is left of the connection. The request's context has the
// namespace and the principal, whose right to read the feed and runs was checked.
func (s *Server) Serve(w http.ResponseWriter, r *http.Request, ended func()) {
	c := &client{Server: s, namespace: grpckit.Namespace(r.Context()), subs: map[string]*subscription{}, heard: time.Now(), rated: time.Now()}
	ctx := grpckit.WithPrincipal(grpckit.WithNamespace(context.Background(), c.namespace), grpckit.PrincipalOf(r.Context()))
	c.ctx, c.cancel = context.WithCancel(grpckit.WithRequestID(ctx, grpckit.RequestID(r.Context())))
	conn, err := accept(w, r, c.pinged)
	if err != nil { // it was answered
		c.cancel()
		ended()
		return
	}
	conn.SetReadLimit(maxMessage)
	c.conn = conn
	c.mu.Lock()
	c.ping = time.AfterFunc(s.Idle, c.probe)
	c.mu.Unlock()
	s.watching.Do(func() {
		stop := s.Stopping(r.Context())
		s.work.Go(func() {
			<-stop
			s.closeAll()
		})
	})
	s.mu.Lock()
	s.clients[c] = struct{}{}
	stopping := s.stopping
	s.mu.Unlock()
	if stopping {
		c.close(websocket.StatusGoingAway, errs.ReasonStopping)
	}
	s.work.Go(func() {
		defer ended()
		defer s.remove(c)
		c.serve()
	})
}

// remove forgets a connection that has ended.
func (s *Server) remove(c *client) {
	c.end()
	_ = c.conn.CloseNow() // it may be closed already
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.clients, c)
}

// closeAll tells all clients to connect again, elsewhere.
func (s *Server) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
	for c := range s.clients {
		c.close(websocket.StatusGoingAway, errs.ReasonStopping)
	}
}

// Wait waits until nothing of the connections is left, after the server was told to stop, or until
// ctx ends.
func (s *Server) Wait(ctx context.Context) { s.work.wait(ctx) }

// enter returns the hub of a key for one more subscription. A run is followed from where its first
// subscriber goes on. One run too many is refused.
func (s *Server) enter(key hubKey, from position) (*hub, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.hubs[key]
	if h == nil {
		var src source = feedSource{s}
		if key.run != "" {
			if s.runs[key.namespace] >= maxRuns {
				return nil, errs.New(errs.ResourceExhausted, "TOO_MANY_CHANNELS", "%d runs of the namespace are followed at this gateway, which is the limit", maxRuns).
					Hint(fewerRuns)
			}
			s.runs[key.namespace]++
			src = runSource{s: s, run: key.run, first: from[key.run]}
		}
		h = newHub(s, key, src)
		var ctx context.Context
		// It reads for all subscribers, each of whom may read this.
		ctx, h.stop = context.WithCancel(grpckit.AsService(grpckit.WithNamespace(context.Background(), key.namespace)))
		s.hubs[key] = h
		s.work.Go(func() { h.follow(ctx) })
	}
	h.uses++
	return h, nil
}

// leave ends one subscription's use of a hub.
func (s *Server) leave(h *hub) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.uses--; h.uses == 0 {
		h.stop()
		s.unlist(h)
		h.clear()
	}
}

// forget leaves a hub to those who have it.
func (s *Server) forget(h *hub) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlist(h)
}

// unlist makes room for another hub. It is idempotent. The lock is held.
func (s *Server) unlist(h *hub) {
	if s.hubs[h.key] != h {
		return
	}
	delete(s.hubs, h.key)
	if h.key.run == "" {
		return
	}
	if s.runs[h.key.namespace]--; s.runs[h.key.namespace] == 0 {
		delete(s.runs, h.key.namespace)
	}
}

func (s *Server) describe(err error) []byte {
	data, err := s.Encode(s.Describe(err))
	if err != nil {
		return []byte("{}")
	}
	return data
}

// unshown tells of an event that has no JSON form.
func (s *Server) unshown(err error) []byte { return s.describe(errs.From(err).Set("fatal", "false")) }
