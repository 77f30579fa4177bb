package a2a

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	spec "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

const (
	// maxWait bounds how long a request waits for its answer. The task is then told as it stands.
	maxWait = 10 * time.Minute
	// cancelWait is how long a cancel waits until the run has ended.
	cancelWait = 5 * time.Second

	reasonTaskNotFound = "TASK_NOT_FOUND"
)

// handler implements the methods of the protocol, whatever their form.
type handler struct{ *Server }

var _ a2asrv.RequestHandler = handler{}

// known refuses a version of the protocol that is not spoken here.
func (handler) known(ctx context.Context) error {
	c, ok := a2asrv.CallContextFrom(ctx)
	if !ok {
		return nil
	}
	versions, _ := c.ServiceParams().Get(spec.SvcParamVersion)
	for _, v := range versions {
		if v = strings.TrimSpace(v); v != "" && v != "1" && v != "1.0" && v != "0.3" && !strings.HasPrefix(v, "0.3.") {
			return spec.NewError(spec.ErrVersionNotSupported, "version "+errs.Clip(v, 40)+" of the protocol is not spoken here: it is 1.0 or 0.3").
				WithErrorInfoMeta(map[string]string{"reason": "VERSION_NOT_SUPPORTED"})
		}
	}
	return nil
}

// fail makes an error one of the protocol, if it is none yet.
func (h handler) fail(err error) error {
	if e, ok := errors.AsType[*spec.Error](err); ok {
		return e
	}
	return h.fault(err)
}

// GetTask implements tasks/get.
func (h handler) GetTask(ctx context.Context, req *spec.GetTaskRequest) (*spec.Task, error) {
	t, err := h.find(ctx, req.ID)
	if err != nil {
		return nil, err
	}
	out, err := t.task(ctx, req.HistoryLength)
	if err != nil {
		return nil, h.fail(err)
	}
	return out, nil
}

// CancelTask implements tasks/cancel. It waits for the end of the run for a moment.
func (h handler) CancelTask(ctx context.Context, req *spec.CancelTaskRequest) (*spec.Task, error) {
	t, err := h.find(ctx, req.ID)
	if err != nil {
		return nil, err
	}
	if ended(t.run) {
		return nil, h.faultAs(spec.ErrTaskNotCancelable, errs.New(errs.FailedPrecondition, "RUN_ENDED", "task %s has ended", t.run.GetId()))
	}
	if _, err := h.Executor.CancelRun(ctx, &executorv1.CancelRunRequest{RunId: t.run.GetId(), Reason: "canceled by a client of A2A"}); err != nil {
		if errs.ReasonOf(err) == "RUN_ENDED" {
			return nil, h.faultAs(spec.ErrTaskNotCancelable, err)
		}
		return nil, h.fail(err)
	}
	h.end(ctx, t.run.GetId())
	if err := t.look(ctx); err != nil {
		return nil, h.fail(err)
	}
	out, err := t.task(ctx, new(int))
	if err != nil {
		return nil, h.fail(err)
	}
	return out, nil
}

// end waits for the end of a run for a moment.
func (h handler) end(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, cancelWait)
	defer cancel()
	events, err := h.Executor.WatchRun(ctx, &executorv1.WatchRunRequest{RunId: id, DurableOnly: true})
	for err == nil {
		_, err = events.Recv()
	}
}

// SendMessage implements message/send. It answers once the task has ended or needs input, unless the client
// wants the answer at once.
func (h handler) SendMessage(ctx context.Context, req *spec.SendMessageRequest) (spec.SendMessageResult, error) {
	if err := h.known(ctx); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	t, err := h.sent(limited, req)
	if err != nil {
		return nil, h.fail(err)
	}
	if req.Config == nil || !req.Config.ReturnImmediately {
		w := &watcher{task: t, tell: func(spec.Event) bool {
			requestOf(ctx).memory.drop() // the wait may take minutes
			return true
		}}
		err := w.follow(limited)
		if err != nil && limited.Err() == nil && !errors.Is(err, errStopping) {
			return nil, h.fail(err)
		}
	}
	var length *int
	if req.Config != nil {
		length = req.Config.HistoryLength
	}
	if err := t.look(ctx); err != nil {
		return nil, h.fail(err)
	}
	out, err := t.task(ctx, length)
	if err != nil {
		return nil, h.fail(err)
	}
	return out, nil
}

// SendStreamingMessage implements message/stream.
func (h handler) SendStreamingMessage(ctx context.Context, req *spec.SendMessageRequest) iter.Seq2[spec.Event, error] {
	return func(yield func(spec.Event, error) bool) {
		if err := h.known(ctx); err != nil {
			yield(nil, err)
			return
		}
		limited, cancel := context.WithTimeout(ctx, maxWait)
		defer cancel()
		t, err := h.sent(limited, req)
		if err != nil {
			yield(nil, h.fail(err))
			return
		}
		h.stream(ctx, t, yield)
	}
}

// SubscribeToTask implements tasks/resubscribe.
func (h handler) SubscribeToTask(ctx context.Context, req *spec.SubscribeToTaskRequest) iter.Seq2[spec.Event, error] {
	return func(yield func(spec.Event, error) bool) {
		t, err := h.find(ctx, req.ID)
		if err != nil {
			yield(nil, err)
			return
		}
		if ended(t.run) {
			yield(nil, h.faultAs(spec.ErrUnsupportedOperation, errs.New(errs.FailedPrecondition, "RUN_ENDED", "task %s has ended", t.run.GetId()).
				Hint("tasks/get has its result")))
			return
		}
		h.stream(ctx, t, yield)
	}
}

// stream tells a task, and what becomes of it until it has ended or needs input.
func (h handler) stream(ctx context.Context, t *task, yield func(spec.Event, error) bool) {
	gone, held := false, requestOf(ctx).memory
	var full error
	w := &watcher{task: t, tell: func(ev spec.Event) bool {
		if full = held.await(ctx, sizeOf(ev)); full != nil {
			return false
		}
		gone = gone || !yield(ev, nil)
		held.drop()
		return !gone
	}}
	err := w.follow(ctx)
	if err = cmp.Or(err, full); err != nil && !gone && ctx.Err() == nil {
		yield(nil, h.fail(err))
	}
}

// GetExtendedAgentCard shows the card of whoever the path names, with its skills.
func (h handler) GetExtendedAgentCard(ctx context.Context, _ *spec.GetExtendedAgentCardRequest) (*spec.AgentCard, error) {
	card, err := h.card(ctx, requestOf(ctx))
	if err != nil {
		return nil, h.fail(err)
	}
	return card, nil
}

// noPush refuses push notifications: webhooks are set when a run starts, and a message starts it.
func (h handler) noPush() error {
	return h.faultAs(spec.ErrPushNotificationNotSupported, errs.New(errs.FailedPrecondition, "PUSH_UNSUPPORTED", "tasks have no push notifications here").
		Hint("stream with message/stream, and go on with tasks/resubscribe"))
}

// GetTaskPushConfig implements a2asrv.RequestHandler.
func (h handler) GetTaskPushConfig(context.Context, *spec.GetTaskPushConfigRequest) (*spec.PushConfig, error) {
	return nil, h.noPush()
}

// ListTaskPushConfigs implements a2asrv.RequestHandler.
func (h handler) ListTaskPushConfigs(context.Context, *spec.ListTaskPushConfigRequest) (*spec.ListTaskPushConfigResponse, error) {
	return nil, h.noPush()
}

// CreateTaskPushConfig implements a2asrv.RequestHandler.
func (h handler) CreateTaskPushConfig(context.Context, *spec.PushConfig) (*spec.PushConfig, error) {
	return nil, h.noPush()
}

// DeleteTaskPushConfig implements a2asrv.RequestHandler.
func (h handler) DeleteTaskPushConfig(context.Context, *spec.DeleteTaskPushConfigRequest) error {
	return h.noPush()
}
