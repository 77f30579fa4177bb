// Package accounts keeps the planner's model calls within the limits of model accounts, by asking an
// executor, which knows what all services take of them. It must not know any provider.
package accounts

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/sleep"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

const (
	// away is how long a call waits for an executor while none answers. The pauses between two tries double
	// from firstPause to lastPause.
	away       = 10 * time.Second
	firstPause = 100 * time.Millisecond
	lastPause  = time.Second
	// told is how long an executor may take to note the end of a call.
	told = 5 * time.Second
)

// Governor asks executors. It is an llm.Governor, and safe for concurrent use.
type Governor struct{ executors executorv1.PeerServiceClient }

var _ llm.Governor = (*Governor)(nil)

// New returns a governor that asks the executors of a client, whose connection has the services' token.
func New(executors executorv1.PeerServiceClient) *Governor { return &Governor{executors} }

// Admit implements llm.Governor. While no executor answers no call begins: after ten seconds the error is
// that of a call that was not performed, so that a fallback without an account may be asked.
func (g *Governor) Admit(ctx context.Context, a llm.Account, namespace string, estimate llm.Usage) (llm.Permit, error) {
	var since time.Time
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		began := time.Now()
		p, err := g.ask(ctx, a.Name, namespace, estimate)
		if err == nil {
			return p, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if e, ok := errors.AsType[*llm.Error](err); ok {
			return nil, e
		}
		if !errs.Is(err, errs.Unavailable) {
			return nil, &llm.Error{Class: llm.Permanent, Code: "ACCOUNT", Message: errs.From(err).Message, Err: err}
		}
		if since.IsZero() || time.Since(began) > away { // it waited for room when the executor went away
			since = time.Now()
		}
		if time.Since(since) >= away || !sleep.For(ctx, pause) {
			return nil, &llm.Error{
				Class: llm.NotPerformed, Code: "ACCOUNT_LIMIT", RetryAfter: lastPause, Err: errors.Join(err, ctx.Err()),
				Message: "no executor answers, and one has to say whether the account " + a.Name + " has room",
			}
		}
	}
}

// ask has one call wait at an executor. The stream outlives ctx, so that the end of the call can be told.
func (g *Governor) ask(ctx context.Context, account, namespace string, estimate llm.Usage) (*permit, error) {
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	stream, err := g.executors.Govern(inner)
	var answer *executorv1.GovernResponse
	if err == nil {
		// The error of a stream that ended comes with Recv.
		_ = stream.Send(&executorv1.GovernRequest{Step: &executorv1.GovernRequest_Call{Call: &executorv1.ModelCall{
			Namespace: namespace, Account: account, Estimate: tokens(estimate)}}})
		answer, err = stream.Recv()
	}
	if err != nil {
		cancel()
		return nil, grpckit.FromStatus(err)
	}
	p := &permit{stream: stream, cancel: cancel}
	if r := answer.GetRefusal(); r != nil {
		cancel()
		return nil, &llm.Error{Class: llm.NotPerformed, Code: "ACCOUNT_LIMIT", Message: r.GetMessage(), RetryAfter: r.GetRetryAfter().AsDuration()}
	}
	if !stop() {
		return nil, ctx.Err() // the executor hears of it by the end of the stream
	}
	return p, nil
}

// permit is room that an executor gave to a call.
type permit struct {
	mu     sync.Mutex
	stream grpc.BidiStreamingClient[executorv1.GovernRequest, executorv1.GovernResponse]
	cancel context.CancelFunc
	ended  bool
}

// Sent implements llm.Permit. What cannot be told is lost: the executor then counts the call from when it
// gave the room, and by its estimate.
func (p *permit) Sent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		_ = p.stream.Send(&executorv1.GovernRequest{Step: &executorv1.GovernRequest_Sent{Sent: &executorv1.ModelCallSent{}}})
	}
}

// Done implements llm.Permit. It does not wait for the executor.
func (p *permit) Done(used llm.Usage, failed *llm.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	end := &executorv1.ModelCallEnd{}
	if used.Known {
		end.Used = tokens(used)
	}
	if failed != nil {
		end.Failure = &executorv1.ModelCallFailure{
			NotPerformed: failed.Class == llm.NotPerformed, Retryable: failed.Class == llm.Retryable, Unknown: failed.Class == llm.Unknown,
			Status: int32(failed.Status), Code: errs.Clip(failed.Code, 100), RetryAfter: durationpb.New(failed.RetryAfter), //nolint:gosec // an HTTP status
		}
	}
	_ = p.stream.Send(&executorv1.GovernRequest{Step: &executorv1.GovernRequest_End{End: end}})
	_ = p.stream.CloseSend()
	late := time.AfterFunc(told, p.cancel)
	go func() {
		defer p.cancel()
		defer late.Stop()
		_, _ = p.stream.Recv() // the end of the stream
	}()
}

func tokens(u llm.Usage) *executorv1.ModelTokens {
	return &executorv1.ModelTokens{Input: u.Input, CachedInput: u.CachedInput, Output: u.Output}
}
