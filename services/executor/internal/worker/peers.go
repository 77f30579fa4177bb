package worker

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/workgraph"
)

// headerWorker names the principal of the worker that got the visit.
const headerWorker = "epigraph-worker-principal"

const (
	// hopWait is how long a visit from elsewhere stands in line with our own.
	hopWait = time.Second
	// fullPause is how long an executor that had no room is not asked again.
	fullPause = 100 * time.Millisecond
	// hopGrace is how long a hop's answer is waited for after its end was asked for.
	hopGrace = 30 * time.Second
	// connectLimit bounds the wait for a connection to another executor.
	connectLimit = 3 * time.Second
	// idleConn is after how long without use a connection is closed.
	idleConn = 10 * time.Minute
)

// peers are the connections to other executors.
type peers struct {
	dial func(addr string) (*grpc.ClientConn, error)

	mu    sync.Mutex
	conns map[string]*peerConn
}

type peerConn struct {
	conn *grpc.ClientConn
	uses int
	last time.Time
}

func newPeers(dial func(string) (*grpc.ClientConn, error)) *peers {
	return &peers{dial: dial, conns: map[string]*peerConn{}}
}

// use is a connection to an executor; give it back.
func (p *peers) use(addr string) (*grpc.ClientConn, func(), error) {
	if p.dial == nil || addr == "" {
		return nil, nil, errors.New("no way to other executors")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.conns[addr]
	if c == nil {
		conn, err := p.dial(addr)
		if err != nil {
			return nil, nil, err
		}
		c = &peerConn{conn: conn}
		p.conns[addr] = c
	}
	c.uses++
	return c.conn, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		c.uses--
		c.last = time.Now()
	}, nil
}

// sweep closes connections that were not used for long: executors come and go.
func (p *peers) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for addr, c := range p.conns {
		if c.uses == 0 && time.Since(c.last) > idleConn {
			_ = c.conn.Close() // says only that it was closed before
			delete(p.conns, addr)
		}
	}
}

func (p *peers) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var faults []error
	for addr, c := range p.conns {
		faults = append(faults, c.conn.Close())
		delete(p.conns, addr)
	}
	return errors.Join(faults...)
}

// connected waits for an established connection, so that a call which cannot reach the other side is known
// not to have been made.
func connected(ctx context.Context, conn *grpc.ClientConn) bool {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return true
		case connectivity.Shutdown, connectivity.TransientFailure:
			return false
		case connectivity.Idle:
			conn.Connect()
		}
		if !conn.WaitForStateChange(ctx, state) {
			return false
		}
	}
}

// hop performs a visit on a worker of another executor.
func (s *Server) hop(ctx context.Context, pl *slot, namespace string, task *executorv1.Attempt, beat func(json.RawMessage), text func(string)) answer {
	if !pl.take() {
		pl.release()
		return answer{lost: lostUnsent}
	}
	defer pl.end()
	conn, done, err := s.peers.use(pl.far.addr)
	if err != nil {
		pl.exhausted(time.Second)
		return answer{lost: lostUnsent}
	}
	defer done()
	if !connected(ctx, conn) {
		pl.exhausted(time.Second)
		return answer{lost: lostUnsent}
	}
	// The call is canceled and its answer awaited: a worker may report that it did nothing.
	inner, stop := context.WithCancel(grpckit.WithNamespace(context.WithoutCancel(ctx), namespace))
	defer stop()
	stream, err := executorv1.NewPeerServiceClient(conn).Invoke(inner)
	if err != nil {
		pl.exhausted(time.Second)
		return answer{lost: lostUnsent}
	}
	if err := stream.Send(&executorv1.InvokeRequest{Namespace: namespace, Attempt: task}); err != nil && !errors.Is(err, io.EOF) {
		return answer{lost: lostSent}
	}
	var sending sync.Mutex
	undo := context.AfterFunc(ctx, func() {
		sending.Lock()
		defer sending.Unlock()
		why := s.reason(ctx)
		_ = stream.Send(&executorv1.InvokeRequest{CancelReason: why}) // if this fails, so does the answer
		if letGo(why) {
			stop()
			return
		}
		time.AfterFunc(hopGrace, stop)
	})
	defer undo()
	by := func() string {
		md, _ := stream.Header() // it is there: a message came
		said := md.Get(headerWorker)
		if len(said) == 0 {
			return ""
		}
		return said[len(said)-1]
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			if errs.ReasonOf(err) == ReasonNoWorker {
				pl.exhausted(fullPause)
				return answer{lost: lostUnsent}
			}
			return answer{lost: lostSent}
		}
		switch m := m.GetMessage().(type) {
		case *executorv1.InvokeResponse_Outcome:
			return answer{out: m.Outcome, by: by()}
		case *executorv1.InvokeResponse_Error:
			return answer{fail: m.Error, by: by()}
		case *executorv1.InvokeResponse_Lost:
			return answer{lost: lostSent}
		case *executorv1.InvokeResponse_Details:
			beat(m.Details.GetJson())
		case *executorv1.InvokeResponse_Tokens:
			text(m.Tokens)
		}
	}
}

var errNoWorker = errs.New(errs.ResourceExhausted, ReasonNoWorker, "no worker of this executor has room")

// Invoke is the method of the peer service.
func (s *Server) Invoke(stream grpc.BidiStreamingServer[executorv1.InvokeRequest, executorv1.InvokeResponse]) error {
	ctx := stream.Context()
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	task, ns := first.GetAttempt(), first.GetNamespace()
	if task == nil || task.GetVisit() == nil || !grpckit.ValidNamespace(ns) {
		return errs.New(errs.InvalidArgument, "REQUEST_INVALID", "the first request must carry a namespace and a visit")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				if !errors.Is(err, io.EOF) {
					cancel(err)
				}
				return
			}
			if r := m.GetCancelReason(); r != "" {
				cancel(cancelReason(r))
			}
		}
	}()
	reason := func(ctx context.Context) string {
		if r, ok := errors.AsType[cancelReason](context.Cause(ctx)); ok {
			return string(r)
		}
		return workgraph.ReasonLost
	}
	var mu sync.Mutex
	send := func(m *executorv1.InvokeResponse) error {
		mu.Lock()
		defer mu.Unlock()
		return stream.Send(m)
	}
	for {
		wait, give := context.WithTimeout(ctx, hopWait)
		pl := s.pool.wait(wait, name{ns, task.GetActor()}, true)
		give()
		if pl == nil {
			if ctx.Err() != nil {
				return send(&executorv1.InvokeResponse{Message: &executorv1.InvokeResponse_Error{Error: errorMessage(
					workgraph.Errorf(workgraph.NotPerformed, workgraph.ReasonCanceled, "ended before a worker had room"))}})
			}
			return errNoWorker
		}
		sess := pl.s
		// The last one holds: nothing was sent of a session that lost the visit before.
		if err := stream.SetHeader(metadata.Pairs(headerWorker, sess.principal)); err != nil {
			pl.release()
			return err
		}
		a, v := sess.perform(ctx, pl, task, reason,
			func(d json.RawMessage) {
				_ = send(&executorv1.InvokeResponse{Message: &executorv1.InvokeResponse_Details{Details: graphpb.Payload(d)}})
			},
			func(piece string) {
				_ = send(&executorv1.InvokeResponse{Message: &executorv1.InvokeResponse_Tokens{Tokens: piece}})
			})
		if a.lost == lostUnsent && ctx.Err() == nil {
			continue
		}
		if a.lost == lostSent {
			return send(&executorv1.InvokeResponse{Message: &executorv1.InvokeResponse_Lost{Lost: &executorv1.AttemptLost{}}})
		}
		if _, err := s.conclude(ctx, a, func(e *workgraph.Error) { sess.refuse(v, e) }); err != nil && a.fail == nil {
			a.fail = errorMessage(typed(err))
		}
		if a.fail != nil {
			return send(&executorv1.InvokeResponse{Message: &executorv1.InvokeResponse_Error{Error: a.fail}})
		}
		return send(&executorv1.InvokeResponse{Message: &executorv1.InvokeResponse_Outcome{Outcome: a.out}})
	}
}

// cancelReason is the cause with which a hop's call ends.
type cancelReason string

func (r cancelReason) Error() string { return string(r) }

func typed(err error) *workgraph.Error {
	if e, ok := errors.AsType[*workgraph.Error](err); ok {
		return e
	}
	return &workgraph.Error{Message: err.Error()}
}
