package rpc

import (
	"context"
	"errors"
	"time"

	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/workgraph"
)

const (
	// defaultWait is how long RunAndWait waits if the request does not say.
	defaultWait = time.Minute
	// answerTime is what is left of the caller's time for the answer itself, at most.
	answerTime = 3 * time.Second
)

// RunAndWait implements the service.
func (s *Server) RunAndWait(ctx context.Context, req *executorv1.RunAndWaitRequest) (*executorv1.Run, error) {
	wait := defaultWait
	if w := req.GetStart().GetWait(); w != nil {
		wait = w.AsDuration()
	}
	return s.startAndWait(ctx, req.GetStart(), wait)
}

// startAndWait never fails once the run is there: a caller without a request_id would not know its id.
func (s *Server) startAndWait(ctx context.Context, req *executorv1.StartRunRequest, wait time.Duration) (*executorv1.Run, error) {
	r, err := s.startRun(ctx, req)
	if err != nil {
		return nil, err
	}
	ended, err := s.await(ctx, r, wait)
	if err != nil {
		return r, nil //nolint:nilerr // see above
	}
	return ended, nil
}

// errEnough ends a watch for which nobody waits any more.
var errEnough = errors.New("the run has ended or asks something")

// await returns the run when it has ended or asks something, or as it stands when the time is over or
// this replica stops.
func (s *Server) await(ctx context.Context, r *executorv1.Run, wait time.Duration) (*executorv1.Run, error) {
	if end, ok := ctx.Deadline(); ok {
		left := time.Until(end)
		wait = min(wait, left-min(answerTime, left/2))
	}
	if wait <= 0 || r.GetEndTime() != nil || r.GetOpenInterrupts() > 0 {
		return r, nil
	}
	inner, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err := s.engine.Feed().Watch(inner, feed.WatchRequest{
		Namespace: grpckit.Namespace(ctx), RunID: r.GetId(), After: r.GetLastSeq(), Descendants: true, DurableOnly: true, Stop: grpckit.Draining(ctx),
	}, &waiter{runID: r.GetId(), run: func() (*executorv1.Run, error) { return s.run(inner, r.GetId()) }})
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err == nil, errors.Is(err, feed.ErrWatchStopped), errors.Is(err, errEnough), inner.Err() != nil:
		return s.run(ctx, r.GetId())
	}
	return nil, err
}

// waiter ends the watch of a run as soon as it ends or asks something.
type waiter struct {
	runID string
	// run reads the run as it stands.
	run func() (*executorv1.Run, error)
}

// Event implements feed.Watcher.
func (w *waiter) Event(ev feed.Event) error {
	d := ev.Durable
	switch {
	case d == nil:
		return nil
	case ev.RunID == w.runID && d.Kind == workgraph.RunEnded:
		return errEnough
	case d.Outcome == nil || d.Outcome.Wait == nil || d.Outcome.Wait.Interrupt == nil:
		return nil
	}
	// Interrupts of the past are answered already.
	r, err := w.run()
	if err == nil && r.GetOpenInterrupts() > 0 {
		err = errEnough
	}
	return err
}

// KeepAlive implements feed.Watcher.
func (w *waiter) KeepAlive(int64) error { return nil }
