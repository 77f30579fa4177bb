package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/sleep"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

const (
	// defaultWait is how long an answer waits for a run, and maxWait how long at most. Clients give
	// up after a minute unless they hear of progress.
	defaultWait, maxWait = 30 * time.Second, 10 * time.Minute
	// watchPause is the pause before a stream of events that broke is opened again.
	watchPause = 500 * time.Millisecond
	// lookPause is the first pause between two looks at a run that cannot be watched, and maxLookPause the
	// longest.
	lookPause, maxLookPause = time.Second, 10 * time.Second
	// progressPause is the shortest time between two notifications of progress.
	progressPause = 100 * time.Millisecond
	// maxQuestions is how many questions one call asks.
	maxQuestions = 20
)

func waitOf(seconds *float64, absent time.Duration) (time.Duration, error) {
	if seconds == nil {
		return absent, nil
	}
	if !(*seconds >= 0 && *seconds <= maxWait.Seconds()) {
		return 0, badArguments("wait_seconds must be from 0 to %d", int(maxWait.Seconds()))
	}
	return time.Duration(*seconds * float64(time.Second)), nil
}

// stopping reports whether the server drains.
func (s *Server) stopping(ctx context.Context) bool {
	select {
	case <-s.Stopping(ctx):
		return true
	default:
		return false
	}
}

// canceled reports whether the client has canceled the call. A client of an earlier version that is
// gone has not, and neither has one whose server stops.
func (s *Server) canceled(ctx context.Context) bool {
	return ctx.Err() != nil && !errors.Is(context.Cause(ctx), errGone) && !s.stopping(ctx)
}

// await waits for a run, asks the client what the run asks, and tells how the run stands then.
func (c *call) await(ctx context.Context, id string, most time.Duration) (any, error) {
	questions := 0
	for until := time.Now().Add(most); ; until = time.Now().Add(most) {
		r, err := c.wait(ctx, id, time.Until(until))
		if err != nil {
			return nil, err
		}
		if most <= 0 || r.GetEndTime() != nil || r.GetOpenInterrupts() == 0 || c.declined || questions == maxQuestions {
			return c.standing(ctx, r, 0)
		}
		questions++
		res, answered, err := c.ask(ctx, id)
		if err != nil || res != nil {
			return res, err
		}
		if !answered {
			return c.standing(ctx, r, 0)
		}
	}
}

// stands reports whether a run goes on only after somebody did something. A pause that ends by
// itself within moments is none.
func stands(r *executorv1.Run) bool {
	switch r.GetState() {
	case executorv1.RunState_RUN_STATE_PAUSED:
		return r.GetStateReason() != "BUDGET_UNSETTLED"
	case executorv1.RunState_RUN_STATE_QUARANTINED:
		return true
	}
	return r.GetEndTime() != nil || r.GetOpenInterrupts() > 0
}

// wait waits until a run stands or the time is over.
func (c *call) wait(ctx context.Context, id string, most time.Duration) (*executorv1.Run, error) {
	get := func() (*executorv1.Run, error) {
		return asked(ctx, c.Server, c.Executor.GetRun, &executorv1.GetRunRequest{RunId: id})
	}
	r, err := get()
	if err != nil || stands(r) || most <= 0 {
		return r, err
	}
	within, stop := context.WithTimeout(ctx, most)
	defer stop()
	seen, pause := r.GetLastSeq(), lookPause
	var changed <-chan struct{}
	for {
		over, err := c.follow(within, id, &seen, get)
		if over != nil || err != nil && errs.Is(err, errs.NotFound) {
			return over, err
		}
		if within.Err() == nil && !c.stopping(ctx) {
			if errs.Is(err, errs.PermissionDenied) || errs.Is(err, errs.InvalidArgument) {
				return nil, err
			}
			if !errs.Is(err, errs.ResourceExhausted) {
				sleep.For(within, watchPause) // the executor may have moved
				continue
			}
			// There are as many watches as may be: the run is looked at, more and more seldom, and when the
			// feed tells of it. The feed does not tell of questions.
			if changed == nil {
				changed = c.changes(within, id)
			}
			select {
			case <-changed:
			case <-time.After(pause):
			case <-within.Done():
			}
			pause = min(2*pause, maxLookPause)
			if r, err := get(); err == nil && stands(r) {
				return r, nil
			}
			continue
		}
		if ctx.Err() != nil {
			return nil, errs.New(errs.Canceled, "CLIENT_CLOSED", "the call was canceled; run %s was not waited for", id)
		}
		return get()
	}
}

// changes has a value when the feed has told that a run has ended or was paused, until ctx ends. A
// client that may not watch the feed gets none.
func (c *call) changes(ctx context.Context, id string) <-chan struct{} {
	out := make(chan struct{}, 1)
	go func() {
		stream, err := c.Registry.WatchEvents(ctx, &registryv1.WatchEventsRequest{RunId: id, Kinds: []string{"run_ended", "run_paused"}})
		for err == nil {
			if _, err = stream.Recv(); err == nil {
				select {
				case out <- struct{}{}:
				default: // the run is looked at anyway
				}
			}
		}
	}()
	return out
}

// follow reads events until the run stands. It returns nil if the stream ended before.
func (c *call) follow(ctx context.Context, id string, seen *int64, get func() (*executorv1.Run, error)) (*executorv1.Run, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	stream, err := c.Executor.WatchRun(ctx, &executorv1.WatchRunRequest{RunId: id, AfterSeq: *seen, IncludeDescendants: true, DurableOnly: c.token() == nil})
	if err != nil {
		return nil, err
	}
	// What happened between the look at the run and the stream is seen now.
	if r, err := get(); err != nil || stands(r) {
		return r, err
	}
	events, failed := grpckit.Events(ctx, stream)
	for {
		select {
		case ev, more := <-events:
			if !more {
				if err := <-failed; !errors.Is(err, io.EOF) {
					return nil, err
				}
				if r, err := get(); err != nil || stands(r) {
					return r, err
				}
				return nil, nil //nolint:nilnil // the stream ended before the run
			}
			if ev.GetRunId() == id && ev.GetSeq() > 0 {
				*seen = ev.GetSeq()
			}
			c.progress(ctx, ev)
			if ev.GetInterruptOpened() == nil && ev.GetRunPaused() == nil {
				continue
			}
			if r, err := get(); err != nil || stands(r) {
				return r, err
			}
		case <-c.Stopping(ctx):
			return nil, nil //nolint:nilnil // the run goes on without this server
		case <-ctx.Done():
			return nil, nil //nolint:nilnil // the time is over
		}
	}
}

// token is the token of the client for progress, or nil.
func (c *call) token() any { return c.req.Params.GetProgressToken() }

// progress is how much a call has told its client, for all runs that it waits for. It is safe for concurrent
// use.
type progress struct {
	mu    sync.Mutex
	steps float64
	last  time.Time
}

// next counts a step, and tells it if that is due. It tells under its lock, so that the numbers rise.
func (p *progress) next(tell func(steps float64)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps++
	if now := time.Now(); now.Sub(p.last) >= progressPause {
		p.last = now
		tell(p.steps)
	}
}

// progress tells the client what an event says.
func (c *call) progress(ctx context.Context, ev *executorv1.RunEvent) {
	token, text := c.token(), progressText(ev)
	if token == nil || text == "" {
		return
	}
	c.steps.next(func(steps float64) {
		// The client may be gone.
		_ = c.req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: token, Progress: steps, Message: text})
	})
}

func progressText(ev *executorv1.RunEvent) string {
	node := func(v *executorv1.VisitRef) string { return errs.Clip(v.GetNodeId(), 200) }
	switch e := ev.GetEvent().(type) {
	case *executorv1.RunEvent_AttemptStarted:
		return node(e.AttemptStarted.GetVisit()) + " starts"
	case *executorv1.RunEvent_AttemptEnded:
		if why := e.AttemptEnded.GetError(); why != nil {
			return node(e.AttemptEnded.GetVisit()) + " failed: " + errs.Clip(why.GetMessage(), maxTold)
		}
		return node(e.AttemptEnded.GetVisit()) + " ended"
	case *executorv1.RunEvent_ChildrenSpawned:
		return "runs below it start"
	case *executorv1.RunEvent_InterruptOpened:
		return node(e.InterruptOpened.GetVisit()) + " asks something"
	case *executorv1.RunEvent_RunPaused:
		return fmt.Sprintf("paused: %s", e.RunPaused.GetReason())
	case *executorv1.RunEvent_KeepAlive:
		return "at work"
	}
	return ""
}
