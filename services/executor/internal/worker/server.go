// Package worker owns remote workers: the streams of the workers that are connected here, their room, their
// visits, and the way to the workers of other executors. It speaks their wire form, and reports the actors of
// a namespace to the engine. It must not know how attempts are scheduled or journaled.
package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/admission"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/inflight"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/callpb"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Reasons of errors for workers and peers.
const (
	// ReasonHelloMissing is the reason of a stream that does not begin with a hello, or that repeats it.
	ReasonHelloMissing = "HELLO_EXPECTED"
	// ReasonHelloInvalid is the reason of a hello that cannot be accepted; the violations name every fault.
	ReasonHelloInvalid = "HELLO_INVALID"
	// ReasonTooManyWorkers is the reason when a namespace has as many workers at this executor as it may.
	ReasonTooManyWorkers = "TOO_MANY_WORKERS"
	// ReasonSilent is the reason of the end of a stream that has been silent for too long.
	ReasonSilent = "WORKER_SILENT"
	// ReasonNoWorker is the reason when none of an executor's workers has room.
	ReasonNoWorker = "NO_WORKER"
)

var (
	errHelloTwice = errs.New(errs.InvalidArgument, ReasonHelloMissing, "a worker says hello once, as its first message")
	errHelloFirst = errs.New(errs.InvalidArgument, ReasonHelloMissing, "the first message of a worker must be a hello")
	errStopping   = errs.New(errs.Unavailable, errs.ReasonStopping, "this replica is stopping").Hint("connect again")
)

// maxServed bounds the actors of a namespace's workers at one executor, each counted for every worker that
// serves it: all are looked through, under the one lock of the pool, whenever a worker comes or goes.
const maxServed = 20_000

// Config bounds what workers may do. DefaultConfig fits most installations.
type Config struct {
	// HeartbeatInterval is how often a worker must be heard of at least, HeartbeatTimeout after how much
	// silence it counts as gone.
	HeartbeatInterval time.Duration `help:"interval of worker heartbeats"`
	HeartbeatTimeout  time.Duration `help:"silence after which the visits of a worker go to other workers"`
	// MaxStreams bounds the workers of one namespace at one executor, MaxActors the actors that all of them
	// ever served.
	MaxStreams int `help:"maximum number of workers of one namespace at one executor"`
	MaxActors  int `help:"maximum number of actors of the workers of one namespace"`
	// MaxSlots bounds the visits of one worker, even if it offers more.
	MaxSlots int `help:"maximum number of visits of one worker at once"`

	// MaxPayload is announced to workers.
	MaxPayload int `conf:"-"`
	// Lease is how old another executor's heartbeat may be for its workers to count.
	Lease time.Duration `conf:"-"`
	// MaxAge makes workers reconnect now and then, so that their connections can be drained; 0 means never.
	MaxAge time.Duration `conf:"-"`
}

// DefaultConfig gives a worker 15 seconds of silence.
func DefaultConfig() Config {
	return Config{HeartbeatInterval: 5 * time.Second, HeartbeatTimeout: 15 * time.Second, MaxStreams: 1000, MaxActors: 10_000, MaxSlots: 10_000,
		MaxPayload: 4 << 20, Lease: journal.DefaultLease}
}

// Validate reports every field that cannot be used.
func (c Config) Validate() error {
	var faults []error
	for field, d := range map[string]time.Duration{"heartbeat_interval": c.HeartbeatInterval, "heartbeat_timeout": c.HeartbeatTimeout} {
		if d <= 0 {
			faults = append(faults, fmt.Errorf("%s must be positive", field))
		}
	}
	if c.HeartbeatTimeout < 2*c.HeartbeatInterval {
		faults = append(faults, errors.New("heartbeat_timeout must be at least twice heartbeat_interval"))
	}
	for field, n := range map[string]int{"max_streams": c.MaxStreams, "max_actors": c.MaxActors, "max_slots": c.MaxSlots} {
		if n <= 0 {
			faults = append(faults, fmt.Errorf("%s must be positive", field))
		}
	}
	return errors.Join(faults...)
}

// Builtin are the actors that every namespace has.
type Builtin interface {
	ActorInfo(name string) (workgraph.ActorInfo, bool)
	Actor(name string) (workgraph.Actor, bool)
	Names() []string
	// Learn waits for a bounded time until as much is known of the actor as can be soon after a start.
	Learn(ctx context.Context, name string)
	// Absent reports whether a new graph must not call the actor, although runs that do may go on. Changes
	// reports whether its ActorInfo may change.
	Absent(name string) bool
	Changes(name string) bool
}

// Deps are what a Server works with.
type Deps struct {
	Journal journal.Workers
	Builtin Builtin
	// Dial connects to another executor; nil means that there are no others. The connection is closed by the
	// Server.
	Dial func(addr string) (*grpc.ClientConn, error)
	// Admission lets in outcomes that are costly to read.
	Admission *admission.Control
	// Reason is a stable word for why a call's context has ended.
	Reason func(context.Context) string
	Logger *slog.Logger
}

// Server is the workers of one executor. It is safe for concurrent use.
type Server struct {
	executorv1.UnimplementedWorkerServiceServer
	cfg     Config
	journal journal.Workers
	builtin Builtin
	reason  func(context.Context) string
	log     *slog.Logger
	pool    *pool
	reader  outcomeReader
	peers   *peers
	cache   *actorCache
	dirty   chan struct{}
	// owner is who the executor is at the moment; set before Run.
	owner func() journal.Owner
	held  func(namespace string) <-chan struct{} // see Own

	mu       sync.Mutex
	sessions map[string]map[string]*session // by namespace and id
}

// New returns a server without workers.
func New(cfg Config, d Deps) *Server {
	s := &Server{cfg: cfg, journal: d.Journal, builtin: d.Builtin, reason: d.Reason, log: d.Logger, pool: newPool(),
		reader: outcomeReader{d.Admission}, peers: newPeers(d.Dial), cache: newKnown(), dirty: make(chan struct{}, 1),
		owner: func() journal.Owner { return journal.Owner{} },
		held:  func(string) <-chan struct{} { return nil }, sessions: map[string]map[string]*session{}}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.reason == nil {
		s.reason = func(context.Context) string { return workgraph.ReasonCanceled }
	}
	return s
}

// Close closes the connections to other executors.
func (s *Server) Close() error { return s.peers.close() }

// Own says how to learn who the executor is at the moment, and whether a namespace's live runs hold so much
// memory that no more is to be taken in: held is nil if not, or closed when that may have changed. Call it
// before Run and before workers come.
func (s *Server) Own(owner func() journal.Owner, held func(namespace string) <-chan struct{}) {
	s.owner, s.held = owner, held
}

func (s *Server) touch() {
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

// Work implements the service.
func (s *Server) Work(stream grpc.BidiStreamingServer[executorv1.WorkRequest, executorv1.WorkResponse]) error {
	ctx := stream.Context()
	first := make(chan error, 1)
	var hello *executorv1.WorkRequest
	go func() {
		var err error
		hello, err = stream.Recv()
		first <- err
	}()
	timeout := time.NewTimer(s.cfg.HeartbeatTimeout)
	defer timeout.Stop()
	select {
	case err := <-first:
		if errors.Is(err, io.EOF) {
			return errHelloFirst
		}
		if err != nil {
			return err
		}
	case <-timeout.C:
		return errHelloFirst
	case <-grpckit.Draining(ctx):
		return errStopping
	}
	if hello.GetHello() == nil {
		return errHelloFirst
	}
	sess, err := s.accept(ctx, hello.GetHello())
	if err != nil {
		return err
	}
	defer s.depart(sess)
	s.log.InfoContext(ctx, "worker connected", "worker", sess.id, "namespace", sess.namespace, "actors", len(sess.actors), "slots", sess.slots, "user_agent", sess.userAgent)
	err = s.attend(ctx, sess, stream)
	if err != nil {
		s.log.InfoContext(ctx, "worker lost", "worker", sess.id, "namespace", sess.namespace, "err", err)
	} else {
		s.log.InfoContext(ctx, "worker left", "worker", sess.id, "namespace", sess.namespace)
	}
	return err
}

// attend serves a stream until it ends.
func (s *Server) attend(ctx context.Context, sess *session, stream grpc.BidiStreamingServer[executorv1.WorkRequest, executorv1.WorkResponse]) error {
	over := make(chan error, 2)
	go func() { over <- s.listen(sess, stream) }()
	go func() { over <- s.speak(ctx, sess, stream) }()
	check := time.NewTicker(max(s.cfg.HeartbeatInterval/2, 10*time.Millisecond))
	defer check.Stop()
	var age <-chan time.Time
	if s.cfg.MaxAge > 0 {
		t := time.NewTimer(s.cfg.MaxAge)
		defer t.Stop()
		age = t.C
	}
	leave := func() {
		sess.say(&executorv1.WorkResponse{Message: &executorv1.WorkResponse_Drain{Drain: &executorv1.ExecutorDrain{}}})
		sess.leave()
		s.touch()
	}
	draining := grpckit.Draining(ctx)
	for {
		select {
		case err := <-over:
			return err
		case now := <-check.C:
			if d := sess.silentFor(now); d > s.cfg.HeartbeatTimeout {
				return errs.New(errs.DeadlineExceeded, ReasonSilent, "the worker sent nothing for %s", d.Round(time.Millisecond)).
					Hint("send a heartbeat at least every " + s.cfg.HeartbeatInterval.String())
			}
		case <-draining:
			draining = nil
			leave()
		case <-age:
			leave()
		case <-sess.empty:
			return nil
		}
	}
}

// listen takes in what the worker says until the stream ends.
func (s *Server) listen(sess *session, stream grpc.BidiStreamingServer[executorv1.WorkRequest, executorv1.WorkResponse]) error {
	for {
		if err := sess.heardOut(stream.Context()); err != nil {
			return err
		}
		m := &executorv1.WorkRequest{}
		err := stream.RecvMsg(m)
		if errors.Is(err, io.EOF) {
			return nil
		}
		// A message that breaks a rule was read all the same: if it answers a visit, only that visit fails.
		if err != nil && (errs.KindOf(err) != errs.InvalidArgument || m.GetMessage() == nil) {
			return err
		}
		if err := sess.receive(m, err); err != nil {
			return err
		}
		if proto.Size(m) > inflight.Small {
			s.rest(stream.Context(), sess.namespace)
		}
	}
}

// rest pauses after a large message while the live runs of its namespace hold much more than they may: the
// workers could send results faster than room for them is made. The pause is shorter than a worker's timeout,
// because heartbeats queue behind large messages.
func (s *Server) rest(ctx context.Context, namespace string) {
	held := s.held(namespace)
	if held == nil {
		return
	}
	timeout := time.NewTimer(s.cfg.HeartbeatInterval)
	defer timeout.Stop()
	for ; held != nil; held = s.held(namespace) {
		select {
		case <-held:
		case <-timeout.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// speak sends the queue until the stream ends.
func (s *Server) speak(ctx context.Context, sess *session, stream grpc.BidiStreamingServer[executorv1.WorkRequest, executorv1.WorkResponse]) error {
	for {
		for _, i := range sess.next() {
			if err := stream.Send(i.m); err != nil {
				return err
			}
		}
		select {
		case <-sess.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// accept makes a session of a hello. The actors of the worker are recorded before it is welcomed.
func (s *Server) accept(ctx context.Context, h *executorv1.WorkerHello) (*session, error) {
	ns := grpckit.Namespace(ctx)
	actors, err := s.readHello(ctx, h)
	if err != nil {
		return nil, err
	}
	for _, a := range actors {
		if effect, ok := s.pool.serving(name{ns, a.Name}); ok && effect != a.Effect {
			return nil, journal.ActorConflict(a.Name, effect, a.Effect)
		}
	}
	sess := &session{pool: s.pool, namespace: ns, id: h.GetWorkerId(), userAgent: h.GetUserAgent(), principal: access.Of(ctx).String(), connected: time.Now(), life: newLife(),
		actors: map[string]int{}, effects: map[string]string{}, slots: min(int(h.GetSlots()), s.cfg.MaxSlots), wake: make(chan struct{}, 1), read: make(chan struct{}, 1),
		changed: s.touch, busy: map[string]int{}, heard: time.Now(), visits: map[uint64]*visit{}, empty: make(chan struct{})}
	for i, a := range actors {
		sess.names = append(sess.names, a.Name)
		sess.actors[a.Name], sess.effects[a.Name] = int(h.GetActors()[i].GetSlots()), a.Effect
	}
	slices.Sort(sess.names)
	if err := s.enlist(sess); err != nil {
		return nil, err
	}
	owner := s.owner()
	err = s.journal.PutActors(ctx, owner, ns, actors, s.cfg.Lease, s.cfg.MaxActors)
	if err != nil {
		s.depart(sess)
		return nil, err
	}
	s.cache.forget(ns)
	sess.say(sess.welcome(owner.ID, s.cfg))
	s.pool.add(sess)
	s.touch()
	return sess, nil
}

// enlist gives the session its place among the namespace's, and another name if its own is taken.
func (s *Server) enlist(sess *session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.sessions[sess.namespace]
	if len(all) >= s.cfg.MaxStreams {
		return errs.New(errs.ResourceExhausted, ReasonTooManyWorkers, "namespace %q has %d workers here, which is the limit", sess.namespace, len(all)).
			Hint("give each worker more slots, or raise executor.workers.max_streams")
	}
	served := len(sess.names)
	for _, other := range all {
		served += len(other.names)
	}
	if served > maxServed {
		return errs.New(errs.ResourceExhausted, ReasonTooManyWorkers, "the workers of namespace %q here would serve %d actors, each counted for every worker; the limit is %d",
			sess.namespace, served, maxServed).Hint("let each worker serve fewer actors, or give fewer workers more slots")
	}
	if all == nil {
		all = map[string]*session{}
		s.sessions[sess.namespace] = all
	}
	if sess.id == "" {
		sess.id = ids.New("wk")
	}
	if all[sess.id] != nil {
		id := strings.ToLower(ids.New("wk"))
		sess.id += "-" + id[len(id)-6:]
	}
	all[sess.id] = sess
	return nil
}

func (s *Server) depart(sess *session) {
	sess.end()
	s.mu.Lock()
	if all := s.sessions[sess.namespace]; all[sess.id] == sess {
		delete(all, sess.id)
		if len(all) == 0 {
			delete(s.sessions, sess.namespace)
		}
	}
	s.mu.Unlock()
	s.touch()
}

// ListWorkers implements the service. Facts about other executors' workers are as old as their last report.
func (s *Server) ListWorkers(ctx context.Context, _ *executorv1.ListWorkersRequest) (*executorv1.ListWorkersResponse, error) {
	ns := grpckit.Namespace(ctx)
	far, err := s.journal.Workers(ctx, ns, s.cfg.Lease)
	if err != nil {
		return nil, err
	}
	me := s.owner().ID
	out := &executorv1.ListWorkersResponse{}
	add := func(w journal.Worker) {
		out.Workers = append(out.Workers, &executorv1.WorkerInfo{WorkerId: w.ID, ExecutorId: w.ExecutorID, Actors: w.Actors, Slots: callpb.Count(w.Slots), Busy: callpb.Count(w.Busy),
			ConnectTime: timestamppb.New(w.ConnectTime), UserAgent: w.UserAgent, Draining: w.Draining})
	}
	for _, w := range s.here() {
		if w.Namespace == ns {
			w.ExecutorID = me
			add(w)
		}
	}
	for _, w := range far {
		if w.ExecutorID != me {
			add(w)
		}
	}
	sortWorkers(out.Workers)
	return out, nil
}
