package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/sdk/internal/calling"
)

// Causes with which a call's context ends.
var (
	// ErrLeaseLost says that the executor may have given the visit to another worker. Nothing more may be
	// done for it.
	ErrLeaseLost = errors.New("the executor was not heard of for too long")
	// ErrStopping says that the worker stops and the drain time is over.
	ErrStopping = errors.New("the worker is stopping")
)

// Canceled is the cause when the executor asked for the end of a visit.
type Canceled struct{ Reason string }

// Error returns the reason of the cancellation.
func (c Canceled) Error() string { return "the visit was canceled: " + c.Reason }

const (
	minPause = 50 * time.Millisecond
	maxPause = 5 * time.Second
)

// Run serves until ctx ends and reconnects whenever the connection is lost. When ctx ends it takes no new
// visits, gives the visits under way the drain time, and returns nil. It returns an error only when
// reconnecting cannot help: a faulty registration or an unknown key. It may be called again once it has
// returned.
func (w *Worker) Run(ctx context.Context) error {
	w.begins()
	err := w.run(ctx)
	w.ends(err)
	return err
}

func (w *Worker) run(ctx context.Context) error {
	hello, err := w.hello()
	if err != nil {
		return err
	}
	var open sync.WaitGroup
	defer open.Wait()
	pause := minPause
	for ctx.Err() == nil {
		s, err := w.connect(ctx, hello)
		w.answered(err)
		if err == nil {
			pause = minPause
			open.Go(func() { s.serve(ctx) })
			select {
			case <-s.over:
			case <-s.leaving: // the next stream is opened while this one ends its visits
				continue
			}
			err = s.err
		}
		if ctx.Err() != nil {
			return nil
		}
		if fatal(err) {
			return err
		}
		if err != nil {
			w.log.WarnContext(ctx, "not connected", "err", err, "again_in", pause)
		}
		timer := time.NewTimer(pause/2 + rand.N(pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, maxPause)
	}
	return nil
}

func fatal(err error) bool {
	switch code := status.Code(cause(err)); code {
	case codes.InvalidArgument, codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented:
		return true
	}
	return false
}

// cause is the status inside an error of the client.
func cause(err error) error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if _, ok := e.(interface{ GRPCStatus() *status.Status }); ok {
			return e
		}
	}
	return err
}

// stream is one connection to an executor, from welcome to its end.
type stream struct {
	w      *Worker
	grpc   grpc.BidiStreamingClient[executorv1.WorkRequest, executorv1.WorkResponse]
	cancel context.CancelFunc
	limit  int64
	every  time.Duration
	lease  time.Duration
	// leaving is closed when the executor leaves, over when the stream has ended; err is set then.
	leaving, over chan struct{}
	err           error
	leave         sync.Once

	send sync.Mutex

	mu     sync.Mutex
	calls  map[string]*call
	beats  map[int64]time.Time
	beat   int64
	until  time.Time // the lease, by the monotonic clock
	idle   chan struct{}
	drains bool
}

type call struct {
	cancel context.CancelCauseFunc
}

func (w *Worker) connect(ctx context.Context, hello *executorv1.WorkerHello) (*stream, error) {
	// The stream outlives ctx, because visits under way must still be answered.
	sctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	g, err := executorv1.NewWorkerServiceClient(w.conn.Conn()).Work(sctx)
	if err != nil {
		cancel()
		return nil, err
	}
	began := time.Now()
	err = g.Send(&executorv1.WorkRequest{Message: &executorv1.WorkRequest_Hello{Hello: hello}})
	var first *executorv1.WorkResponse
	if err == nil || errors.Is(err, io.EOF) {
		first, err = g.Recv()
	}
	if err == nil && first.GetWelcome() == nil {
		err = errors.New("the executor did not say welcome")
	}
	if err == nil && !stop() {
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	m := first.GetWelcome()
	s := &stream{w: w, grpc: g, cancel: cancel, limit: m.GetMaxPayloadBytes(), every: m.GetHeartbeatInterval().AsDuration(), lease: m.GetHeartbeatTimeout().AsDuration(),
		leaving: make(chan struct{}), over: make(chan struct{}), calls: map[string]*call{}, beats: map[int64]time.Time{}, idle: make(chan struct{})}
	if s.every <= 0 || s.lease <= 0 {
		s.every, s.lease = 5*time.Second, 15*time.Second
	}
	s.until = began.Add(s.lease)
	w.log.InfoContext(ctx, "connected", "worker", m.GetWorkerId(), "executor", m.GetExecutorId())
	return s, nil
}

// serve takes visits until the stream ends or ctx does and all visits are answered.
func (s *stream) serve(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.err = s.receive(context.WithoutCancel(ctx))
	}()
	go s.keepAlive(done)
	select {
	case <-done:
	case <-ctx.Done():
		s.drain(done)
	}
	<-done
	s.stopCalls(ErrLeaseLost)
	s.cancel()
	close(s.over)
}

// drain takes no new visits and lets those under way end.
func (s *stream) drain(done chan struct{}) {
	// a broken stream ends anyway
	_ = s.say(&executorv1.WorkRequest{Message: &executorv1.WorkRequest_Drain{Drain: &executorv1.WorkerDrain{}}})
	s.mu.Lock()
	s.drains = true
	if len(s.calls) == 0 {
		close(s.idle)
	}
	s.mu.Unlock()
	timer := time.NewTimer(s.w.opts.DrainTimeout)
	defer timer.Stop()
	select {
	case <-done: // the executor ends the stream after the last answer
		return
	case <-timer.C:
	}
	s.stopCalls(ErrStopping)
	// Functions that obey their context answer now.
	grace := time.NewTimer(2 * time.Second)
	defer grace.Stop()
	select {
	case <-done:
	case <-s.idle:
		s.halfClose()
		select {
		case <-done:
		case <-grace.C:
			s.cancel()
		}
	case <-grace.C:
		s.cancel()
	}
}

func (s *stream) halfClose() {
	s.send.Lock()
	defer s.send.Unlock()
	_ = s.grpc.CloseSend()
}

func (s *stream) say(m *executorv1.WorkRequest) error {
	s.send.Lock()
	defer s.send.Unlock()
	return s.grpc.Send(m)
}

// keepAlive sends heartbeats, and gives everything up when none was answered for too long.
func (s *stream) keepAlive(done chan struct{}) {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	lease := time.NewTimer(s.lease)
	defer lease.Stop()
	beat := make(chan struct{}, 1)
	go func() { // a full connection must not keep the lease from being looked at
		for range beat {
			s.mu.Lock()
			s.beat++
			n := s.beat
			s.beats[n] = time.Now()
			s.mu.Unlock()
			if s.say(&executorv1.WorkRequest{Message: &executorv1.WorkRequest_Heartbeat{Heartbeat: &executorv1.WorkerHeartbeat{Number: n}}}) != nil {
				return
			}
		}
	}()
	defer close(beat)
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			select {
			case beat <- struct{}{}:
			default:
			}
		case <-lease.C:
			s.mu.Lock()
			left := time.Until(s.until)
			s.mu.Unlock()
			if left <= 0 {
				s.stopCalls(ErrLeaseLost)
				s.cancel()
				return
			}
			lease.Reset(left)
		}
	}
}

// heard prolongs the lease. The executor has received the heartbeat, so its timeout began after the heartbeat
// was sent.
func (s *stream) heard(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent, ok := s.beats[n]
	if !ok {
		return
	}
	for k := range s.beats {
		if k <= n {
			delete(s.beats, k)
		}
	}
	if u := sent.Add(s.lease); u.After(s.until) {
		s.until = u
	}
}

func (s *stream) stopCalls(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		c.cancel(cause)
	}
}

func (s *stream) receive(ctx context.Context) error {
	for {
		m, err := s.grpc.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch m := m.GetMessage().(type) {
		case *executorv1.WorkResponse_Attempt:
			s.begin(ctx, m.Attempt)
		case *executorv1.WorkResponse_Cancel:
			s.mu.Lock()
			if c := s.calls[m.Cancel.GetToken()]; c != nil {
				c.cancel(Canceled{m.Cancel.GetReason()})
			}
			s.mu.Unlock()
		case *executorv1.WorkResponse_Heartbeat:
			s.heard(m.Heartbeat.GetNumber())
		case *executorv1.WorkResponse_Drain:
			s.leave.Do(func() { close(s.leaving) })
		case *executorv1.WorkResponse_Refused:
			s.w.log.ErrorContext(ctx, "an answer was refused", "reason", m.Refused.GetReason(), "err", m.Refused.GetMessage())
		case *executorv1.WorkResponse_Stale:
			s.w.log.DebugContext(ctx, "an answer came too late")
		}
	}
}

// begin calls the function on a goroutine of its own.
func (s *stream) begin(ctx context.Context, t *executorv1.Attempt) {
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": t.GetTraceparent(), "tracestate": t.GetTracestate()})
	ctx, cancel := context.WithCancelCause(ctx)
	giveUp := func() {}
	if t.GetDeadline() != nil {
		ctx, giveUp = context.WithDeadline(ctx, t.GetDeadline().AsTime())
	}
	v := newVisit(t)
	v.tell = s.say
	ctx = calling.With(context.WithValue(ctx, visitKey{}, v), calling.Call{RunID: v.RunID, NodeID: v.NodeID, AttemptToken: v.AttemptToken})
	s.mu.Lock()
	s.calls[t.GetToken()] = &call{cancel}
	alive := time.Now().Before(s.until)
	s.mu.Unlock()
	go func() {
		defer cancel(nil)
		defer giveUp()
		var answer *executorv1.WorkRequest
		if alive {
			answer = s.answer(ctx, v)
		} else {
			answer = &executorv1.WorkRequest{Message: &executorv1.WorkRequest_Declined{Declined: &executorv1.AttemptDeclined{Token: t.GetToken()}}}
		}
		if answer == nil {
			s.w.log.WarnContext(ctx, "a visit was cut off by the end of the worker", "run_id", v.RunID, "node", v.NodeID)
		} else if err := s.say(answer); err != nil {
			s.w.log.WarnContext(ctx, "an answer could not be sent", "err", err, "run_id", v.RunID, "node", v.NodeID)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.calls, t.GetToken())
		if s.drains && len(s.calls) == 0 {
			select {
			case <-s.idle:
			default:
				close(s.idle)
			}
		}
	}()
}

func failed(t *executorv1.Attempt, e *executorv1.AttemptError) *executorv1.WorkRequest {
	return &executorv1.WorkRequest{Message: &executorv1.WorkRequest_Error{Error: &executorv1.AttemptFailure{Token: t.GetToken(), Error: e}}}
}

// answer calls the function. It returns nil if the call was cut off because the worker stops: the executor
// counts it as lost with the stream, which uses up no attempt.
func (s *stream) answer(ctx context.Context, v *Visit) *executorv1.WorkRequest {
	out, err := s.perform(ctx, v)
	if _, said := errors.AsType[*Error](err); err != nil && !said && errors.Is(context.Cause(ctx), ErrStopping) {
		return nil
	}
	if err == nil {
		if n := payloadBytes(out); s.limit > 0 && n > s.limit {
			err = Permanent("PAYLOAD_TOO_LARGE", fmt.Errorf("the result has %d bytes, the limit is %d", n, s.limit))
		}
	}
	if err != nil {
		return failed(v.Message, callError(ctx, err))
	}
	return &executorv1.WorkRequest{Message: &executorv1.WorkRequest_Outcome{Outcome: &executorv1.AttemptOutcome{Token: v.Message.GetToken(), Outcome: out}}}
}

func (s *stream) perform(ctx context.Context, v *Visit) (out *executorv1.Outcome, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.w.log.ErrorContext(ctx, "actor panicked", "actor", v.Actor, "panic", fmt.Sprint(p), "run_id", v.RunID, "node", v.NodeID, "stack", string(debug.Stack()))
			t := PermanentError
			if v.Effect == Unsafe {
				t = UnknownError
			}
			err = &Error{Type: t, Reason: "PANIC", Message: fmt.Sprintf("the actor panicked: %v", p)}
		}
	}()
	a := s.w.actor(v.Actor)
	if a == nil {
		return nil, NotPerformed("ACTOR_UNKNOWN", fmt.Errorf("this worker does not serve %q", v.Actor))
	}
	return a.call(ctx, v)
}

func payloadBytes(o *executorv1.Outcome) int64 {
	var n int64
	for _, v := range o.GetValues() {
		n += int64(len(v.GetJson()))
	}
	for k, v := range o.GetState() {
		n += int64(len(k) + len(v.GetJson()))
	}
	return n
}
