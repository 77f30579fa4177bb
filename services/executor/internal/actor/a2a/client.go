package a2a

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/egress"
	"github.com/epigraph-run/epigraph/workgraph"
)

// maxWords bounds what an error takes over from an agent, in bytes.
const maxWords = 2000

// errEnded is the error of a cancel of a task that has ended.
var errEnded = errors.New("the task has ended")

// trip adds an agent's headers to requests, and bounds its answers.
type trip struct{ ag *agent }

// refusal is the error of an answer whose status says that the request was not accepted.
type refusal struct {
	status int
	after  time.Duration
}

// Error says what the status was.
func (r *refusal) Error() string { return fmt.Sprintf("the host answered with status %d", r.status) }

// RoundTrip implements http.RoundTripper.
func (t trip) RoundTrip(req *http.Request) (*http.Response, error) {
	cfg := &t.ag.cfg
	if !cfg.reaches(req.URL) {
		return nil, fmt.Errorf("requests do not go to %q", req.URL.Host)
	}
	if err := t.ag.guard.CheckHost(req.URL.Hostname()); err != nil {
		return nil, err
	}
	req = req.Clone(req.Context())
	for name, v := range cfg.Headers {
		req.Header.Set(name, v.Reveal())
	}
	if !cfg.Bearer.IsZero() {
		req.Header.Set("Authorization", "Bearer "+cfg.Bearer.Reveal())
	}
	resp, err := t.ag.transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		_ = resp.Body.Close() // nothing of it is read
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return nil, &refusal{resp.StatusCode, min(time.Duration(max(seconds, 0))*time.Second, time.Hour)}
	}
	// Whether events are read is up to the request: the client does not look at the type of the answer.
	events := req.Header.Get("Accept") == "text/event-stream" && resp.StatusCode == http.StatusOK
	resp.Body = &bounded{ReadCloser: resp.Body, most: int64(cfg.MaxResponseBytes), events: events, room: func() error { return reserve(req.Context(), cfg) }}
	return resp, nil
}

// words is an error of a request as whoever calls the agent may read it.
func words(err error) error {
	if r, ok := errors.AsType[*refusal](err); ok {
		return r
	}
	if b, ok := errors.AsType[*beyond](err); ok {
		return b
	}
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		return errors.New(errs.Clip(clean(e.Error()), maxWords))
	}
	return errors.New(clean(egress.Words(err)))
}

// told is the error of a request, in words that whoever calls the agent may read.
type told struct{ why error }

// Error says it.
func (t told) Error() string { return words(t.why).Error() }

// Unwrap is what happened.
func (t told) Unwrap() error { return t.why }

// fault types a request that failed. repeats says that the request may be repeated whatever became of
// it.
func (ag *agent) fault(ctx context.Context, err error, repeats bool) error {
	unknown, refused := workgraph.Unknown, workgraph.NotPerformed
	if repeats {
		unknown, refused = workgraph.Retryable, workgraph.Retryable
	}
	if ctx.Err() != nil {
		return actor.Interrupted(unknown)
	}
	typed := func(t workgraph.ErrorType, reason string) *workgraph.Error {
		return workgraph.Errorf(t, reason, "the remote agent %q: %v", ag.name, words(err))
	}
	r, refusing := errors.AsType[*refusal](err)
	if refusing && (r.status == http.StatusUnauthorized || r.status == http.StatusForbidden) {
		return ag.unauthorized(r.Error())
	}
	if u, ok := errors.AsType[*unreachable](err); ok { // nothing was sent
		e := workgraph.Errorf(refused, ReasonDown, "%v", u)
		e.RetryAfter = workgraph.Duration(u.after)
		return e
	}
	if refusing && (r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable) {
		e := typed(refused, ReasonDown)
		e.RetryAfter = workgraph.Duration(r.after)
		return e
	}
	if _, ok := errors.AsType[*egress.Refusal](err); ok {
		return typed(workgraph.Permanent, ReasonDown)
	}
	if _, ok := errors.AsType[*beyond](err); ok {
		if repeats {
			return typed(workgraph.Permanent, ReasonProtocol)
		}
		return typed(unknown, ReasonProtocol)
	}
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		switch {
		case errors.Is(e, sdk.ErrUnauthenticated), errors.Is(e, sdk.ErrUnauthorized):
			return ag.unauthorized(e.Error())
		case errors.Is(e, sdk.ErrTaskNotFound):
			return typed(workgraph.Permanent, ReasonLost)
		case errors.Is(e, sdk.ErrInternalError), errors.Is(e, sdk.ErrServerError):
			return typed(unknown, ReasonProtocol)
		}
		return typed(workgraph.Permanent, ReasonProtocol)
	}
	ag.refresh() // the agent may have moved
	if _, wire := errors.AsType[net.Error](err); !wire && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return typed(unknown, ReasonProtocol)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return typed(refused, ReasonDown)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return workgraph.Errorf(unknown, workgraph.ReasonTimeout, "the remote agent %q gave no answer within %s", ag.name, ag.cfg.Timeout)
	}
	return typed(unknown, ReasonDown)
}

// unauthorized is the error of an agent that wants other credentials.
func (ag *agent) unauthorized(said string) error {
	return workgraph.Errorf(workgraph.Permanent, ReasonAuth,
		"the remote agent %q does not accept the credentials: set bearer or headers at executor.actors.a2a.agents.%s (%s)", ag.name, ag.name, errs.Clip(clean(said), maxWords))
}

// task is a task as the agent has it now, without its history.
func (ag *agent) task(ctx context.Context, id string) (*sdk.Task, error) {
	c, err := ag.current(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, ag.cfg.Timeout)
	defer cancel()
	none := 0
	return c.client.GetTask(ctx, &sdk.GetTaskRequest{ID: sdk.TaskID(id), HistoryLength: &none})
}

// cancelInTurn cancels the task of a run once there is a turn for it.
func (ag *agent) cancelInTurn(ctx context.Context, p position) error {
	leave, err := ag.cancels.Enter(ctx, p.Namespace)
	if err != nil {
		return fmt.Errorf("wait for a turn: %w", err)
	}
	defer leave()
	return ag.cancel(ctx, p.Task)
}

// cancel asks the agent to cancel a task. The error is errEnded if the task has ended.
func (ag *agent) cancel(ctx context.Context, id string) error {
	c, err := ag.current(ctx)
	if err != nil {
		return err
	}
	_, err = c.client.CancelTask(ctx, &sdk.CancelTaskRequest{ID: sdk.TaskID(id)})
	switch {
	case errors.Is(err, sdk.ErrTaskNotCancelable), errors.Is(err, sdk.ErrTaskNotFound):
		return errEnded
	case err != nil:
		return words(err)
	}
	return nil
}
