package rpc

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Followed answers the part of epigraph.executor.v1.PeerService that is about events.
type Followed struct{ feed *feed.Feed }

// Followed gives other executors the events of the server's engine.
func (s *Server) Followed() Followed { return Followed{s.engine.Feed()} }

// Follow implements the service.
func (f Followed) Follow(stream grpc.BidiStreamingServer[executorv1.FollowRequest, executorv1.FollowResponse]) error {
	o := f.feed.Outlet()
	defer o.Close()
	ctx, cancel := context.WithCancelCause(stream.Context())
	defer cancel(nil)
	go func() { cancel(f.listen(stream, o)) }()
	go func() {
		select {
		case <-grpckit.Draining(stream.Context()):
			cancel(errStopping)
		case <-ctx.Done():
		}
	}()
	for {
		evs, err := o.Take(ctx)
		if err != nil {
			return context.Cause(ctx)
		}
		m := &executorv1.FollowResponse{}
		for i := range evs {
			ev := &executorv1.RunEvent{RunId: evs[i].RunID, RootRunId: evs[i].RootID, Time: stamp(evs[i].Ephemeral.At)}
			if m.Namespace = evs[i].Namespace; ephemeral(ev, evs[i].Ephemeral) {
				m.Events = append(m.Events, ev)
			}
		}
		if err := stream.Send(m); err != nil {
			return err
		}
	}
}

// listen takes changes of what is followed until the stream ends.
func (f Followed) listen(stream grpc.BidiStreamingServer[executorv1.FollowRequest, executorv1.FollowResponse], o *feed.Outlet) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, r := range m.GetEnd() {
			o.End(interest(r))
		}
		for _, r := range m.GetBegin() {
			if !grpckit.ValidNamespace(r.GetNamespace()) {
				return errs.New(errs.InvalidArgument, "REQUEST_INVALID", "a run is followed in a namespace")
			}
			if err := o.Begin(interest(r)); err != nil {
				return err
			}
		}
	}
}

func interest(r *executorv1.Followed) feed.Interest {
	return feed.Interest{Namespace: r.GetNamespace(), RunID: r.GetRunId(), Tree: r.GetTree()}
}

const (
	// lookPause is how often the other executors are looked up while something is watched.
	lookPause = 2 * time.Second
	// maxChanges bounds the changes in one request.
	maxChanges = 500
)

// Follower brings the ephemeral events of other executors' runs to the watchers here. While something is
// watched that is not owned here it holds one stream to each executor, so that it does not matter which one
// owns a run, or comes to own it. It implements feed.Elsewhere.
type Follower struct {
	feed    *feed.Feed
	journal journal.Members
	dial    func(addr string) (*grpc.ClientConn, error)
	self    func() journal.Owner
	lease   time.Duration
	log     *slog.Logger
	wake    chan struct{}

	mu     sync.Mutex
	wanted map[feed.Interest]int
	links  map[journal.Owner]*link
}

// link is the stream to one executor.
type link struct {
	wake   chan struct{}
	cancel context.CancelFunc
	// changes are not told yet; true begins.
	changes map[feed.Interest]bool
}

// Follower follows the runs of other executors for the server's engine.
func (s *Server) Follower(dial func(addr string) (*grpc.ClientConn, error), log *slog.Logger) *Follower {
	return &Follower{feed: s.engine.Feed(), journal: s.engine.RunJournal(), dial: dial, self: s.engine.Owner, lease: s.engine.Lease(), log: log,
		wake: make(chan struct{}, 1), wanted: map[feed.Interest]int{}, links: map[journal.Owner]*link{}}
}

// Want implements feed.Elsewhere.
func (f *Follower) Want(i feed.Interest) (leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wanted[i]++
	f.change(i, true) // each watcher wants what was written before
	if len(f.links) == 0 {
		wake(f.wake)
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.wanted[i]--; f.wanted[i] == 0 {
			delete(f.wanted, i)
			f.change(i, false)
		}
	}
}

// change tells all executors of a change. The caller holds f.mu.
func (f *Follower) change(i feed.Interest, begins bool) {
	for _, l := range f.links {
		l.changes[i] = begins
		wake(l.wake)
	}
}

func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run holds the streams until ctx ends.
func (f *Follower) Run(ctx context.Context) error {
	var links sync.WaitGroup
	defer links.Wait()
	tick := time.NewTicker(lookPause)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		case <-tick.C:
		}
		if err := f.look(ctx, &links); err != nil && ctx.Err() == nil {
			f.log.DebugContext(ctx, "other executors not looked up", "err", err)
		}
	}
}

// look begins the streams that are missing, and ends those that nobody needs.
func (f *Follower) look(ctx context.Context, links *sync.WaitGroup) error {
	f.mu.Lock()
	idle := len(f.wanted) == 0
	for owner, l := range f.links {
		if idle {
			l.cancel()
			delete(f.links, owner)
		}
	}
	f.mu.Unlock()
	if idle {
		return nil
	}
	all, err := f.journal.Executors(ctx)
	if err != nil {
		return err
	}
	self := f.self()
	f.mu.Lock()
	defer f.mu.Unlock()
	alive := map[journal.Owner]bool{}
	for _, x := range all {
		if x.Owner == self || x.Addr == "" || x.SinceHeartbeat > f.lease {
			continue
		}
		alive[x.Owner] = true
		if f.links[x.Owner] != nil {
			continue
		}
		l := &link{wake: make(chan struct{}, 1), changes: make(map[feed.Interest]bool, len(f.wanted))}
		for i := range f.wanted {
			l.changes[i] = true
		}
		wake(l.wake)
		inner, cancel := context.WithCancel(ctx)
		l.cancel, f.links[x.Owner] = cancel, l
		links.Go(func() {
			err := f.follow(inner, l, x.Addr)
			cancel()
			f.mu.Lock()
			if f.links[x.Owner] == l {
				delete(f.links, x.Owner)
			}
			f.mu.Unlock()
			if ctx.Err() == nil {
				f.log.DebugContext(ctx, "another executor is not followed any longer", "executor", x.ID, "err", err)
			}
		})
	}
	for owner, l := range f.links {
		if !alive[owner] {
			l.cancel()
			delete(f.links, owner)
		}
	}
	return nil
}

// follow holds the stream to an executor until it breaks or ctx ends.
func (f *Follower) follow(ctx context.Context, l *link, addr string) error {
	conn, err := f.dial(addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is left to lose on it
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := executorv1.NewPeerServiceClient(conn).Follow(ctx)
	if err != nil {
		return err
	}
	var heard sync.WaitGroup
	defer heard.Wait()
	defer cancel(nil)
	heard.Go(func() { cancel(f.hear(stream)) })
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.wake:
		}
		for m := f.changes(l); m != nil; m = f.changes(l) {
			if err := stream.Send(m); err != nil {
				heard.Wait() // the error of a stream that ended comes with Recv
				return errors.Join(err, context.Cause(ctx))
			}
		}
	}
}

// changes are the next ones to tell, or nil.
func (f *Follower) changes(l *link) *executorv1.FollowRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(l.changes) == 0 {
		return nil
	}
	m := &executorv1.FollowRequest{}
	for i, begins := range l.changes {
		if len(m.GetBegin())+len(m.GetEnd()) == maxChanges {
			break
		}
		delete(l.changes, i)
		r := &executorv1.Followed{Namespace: i.Namespace, RunId: i.RunID, Tree: i.Tree}
		if begins {
			m.Begin = append(m.Begin, r)
		} else {
			m.End = append(m.End, r)
		}
	}
	return m
}

// hear passes on what an executor tells.
func (f *Follower) hear(stream grpc.BidiStreamingClient[executorv1.FollowRequest, executorv1.FollowResponse]) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, ev := range m.GetEvents() {
			if e := ephemeralOf(ev); e != nil {
				f.feed.Deliver(feed.Event{Namespace: m.GetNamespace(), RunID: ev.GetRunId(), RootID: ev.GetRootRunId(), Ephemeral: e})
			}
		}
	}
}

// ephemeralOf is the event that ephemeral makes a message of; nil if it is none of an attempt.
func ephemeralOf(m *executorv1.RunEvent) *feed.Ephemeral {
	out := &feed.Ephemeral{At: instant(m.GetTime())}
	at := func(r *executorv1.VisitRef, attempt int32) {
		out.Ref, out.Attempt = workgraph.Ref{Node: r.GetNodeId(), Visit: int(r.GetVisit()), Item: int(r.GetItem())}, int(attempt)
	}
	switch e := m.GetEvent().(type) {
	case *executorv1.RunEvent_AttemptStarted:
		at(e.AttemptStarted.GetVisit(), e.AttemptStarted.GetAttempt())
		out.Started, out.Actor = true, e.AttemptStarted.GetActor()
	case *executorv1.RunEvent_TokenDelta:
		at(e.TokenDelta.GetVisit(), e.TokenDelta.GetAttempt())
		out.Text, out.Offset, out.Raw = e.TokenDelta.GetText(), e.TokenDelta.GetOffset(), e.TokenDelta.GetKind() == executorv1.TextKind_TEXT_KIND_RAW
	case *executorv1.RunEvent_AttemptProgress:
		at(e.AttemptProgress.GetVisit(), e.AttemptProgress.GetAttempt())
		out.Progress = e.AttemptProgress.GetProgress().GetJson()
	default:
		return nil
	}
	return out
}
