package a2a

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	spec "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/sleep"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

const (
	// nodeReason is the node of an agent's run in which it decides. Its other nodes are actions.
	nodeReason = "reason"
	// watchTries is how often in a row a watch is begun again, and watchPause how long after the last one.
	watchTries, watchPause = 20, 500 * time.Millisecond
)

// errStopping ends a wait or a stream because the server drains. The task goes on.
var errStopping = errs.New(errs.Unavailable, errs.ReasonStopping, "this server is stopping, and the task goes on").
	Hint("tasks/resubscribe goes on at another replica, or here in a moment")

// watcher tells what becomes of a task.
type watcher struct {
	*task
	// begun says that the client knows the task, and told is the status that it knows.
	begun bool
	told  spec.TaskStatus
	// tell gives an event to the client, and reports whether it still listens.
	tell func(spec.Event) bool
	// own says of runs whether their text is the agent's own, and not that of its branches or tools.
	own map[string]bool
	// speaker is the attempt that said something last, and heard how much of each attempt was told.
	speaker string
	heard   map[string]int64
	// written is what was told of the artifact so far.
	written strings.Builder
}

// follow tells what becomes of the task until it has ended, needs input or stands still. A watch that an
// executor ends is begun again.
func (w *watcher) follow(ctx context.Context) error {
	for tries := 0; ; tries++ {
		before := w.run.GetLastSeq()
		done, err := w.watch(ctx)
		if done || ctx.Err() != nil {
			return err
		}
		if w.run.GetLastSeq() > before {
			tries = 0
		}
		if err != nil && (!errs.Is(err, errs.Unavailable) || errors.Is(err, errStopping) || tries >= watchTries) {
			return err
		}
		if !sleep.For(ctx, watchPause) {
			return ctx.Err()
		}
	}
}

// watch is one watch of the run. It reports whether there is nothing more to tell.
func (w *watcher) watch(ctx context.Context) (done bool, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	stream, err := w.Executor.WatchRun(ctx, &executorv1.WatchRunRequest{RunId: w.run.GetId(), AfterSeq: w.run.GetLastSeq(), IncludeDescendants: true})
	if err != nil {
		return false, err
	}
	// What happened before the watch began is not among its events.
	if done, err = w.now(ctx); done || err != nil {
		return done, err
	}
	events, failed := grpckit.Events(ctx, stream)
	for {
		select {
		case ev, more := <-events:
			if !more {
				if err := <-failed; !errors.Is(err, io.EOF) {
					return false, err
				}
				return w.now(ctx)
			}
			if !w.text(ctx, ev) {
				return true, nil
			}
			if !matters(ev) {
				continue
			}
			if done, err := w.now(ctx); done || err != nil {
				return done, err
			}
		case <-w.Stopping(ctx):
			return false, errStopping
		}
	}
}

// matters reports whether the status of the task may be another one after an event.
func matters(ev *executorv1.RunEvent) bool {
	switch ev.GetEvent().(type) {
	case *executorv1.RunEvent_InterruptOpened, *executorv1.RunEvent_InterruptClosed, *executorv1.RunEvent_RunPaused, *executorv1.RunEvent_RunResumed,
		*executorv1.RunEvent_RunEnded, *executorv1.RunEvent_KeepAlive:
		return true
	case *executorv1.RunEvent_RunStarted:
		return ev.GetRunId() == ev.GetRootRunId()
	}
	return false
}

// now tells the task first, and later its status if that has changed, and its result at its end.
func (w *watcher) now(ctx context.Context) (done bool, err error) {
	if err := w.look(ctx); err != nil {
		return false, err
	}
	s := w.status()
	over := s.State.Terminal() || s.State == spec.TaskStateInputRequired || stands(w.run)
	if !w.begun {
		first, err := w.made(ctx, new(int))
		if err != nil {
			return false, err
		}
		w.begun, w.told = true, s
		return !w.tell(first) || over, nil
	}
	if s.State == spec.TaskStateCompleted && !w.result() {
		return true, nil
	}
	if same := s.State == w.told.State && messageID(s) == messageID(w.told); !same {
		w.told = s
		if !w.tell(&spec.TaskStatusUpdateEvent{TaskID: spec.TaskID(w.run.GetId()), ContextID: w.contextID, Status: s}) {
			return true, nil
		}
	}
	return over, nil
}

func messageID(s spec.TaskStatus) string {
	if s.Message == nil {
		return ""
	}
	return s.Message.ID
}

// result tells what of the result was not told as it was written.
func (w *watcher) result() bool {
	all := w.artifacts() // one at most
	if len(all) == 0 {
		return true
	}
	a := all[0]
	rest, told := strings.CutPrefix(a.Parts[0].Text(), w.written.String())
	if _, text := a.Parts[0].Content.(spec.Text); told && text && w.written.Len() > 0 {
		return w.chunk(rest, true)
	}
	return w.tell(&spec.TaskArtifactUpdateEvent{TaskID: spec.TaskID(w.run.GetId()), ContextID: w.contextID, Artifact: a, LastChunk: true})
}

// chunk tells a piece of the text. The first one begins the artifact.
func (w *watcher) chunk(text string, last bool) bool {
	more := w.written.Len() > 0
	w.written.WriteString(text)
	return w.tell(&spec.TaskArtifactUpdateEvent{
		TaskID: spec.TaskID(w.run.GetId()), ContextID: w.contextID, Append: more, LastChunk: last,
		Artifact: &spec.Artifact{ID: resultID, Name: resultID, Parts: spec.ContentParts{spec.NewTextPart(text)}},
	})
}

// text tells what the agent says while it writes.
func (w *watcher) text(ctx context.Context, ev *executorv1.RunEvent) bool {
	d := ev.GetTokenDelta()
	if d.GetText() == "" || d.GetKind() == executorv1.TextKind_TEXT_KIND_RAW || !w.isOwn(ctx, ev) {
		return true
	}
	from := fmt.Sprint(ev.GetRunId(), d.GetVisit(), d.GetAttempt())
	if w.heard == nil {
		w.heard = map[string]int64{}
	}
	text := d.GetText()
	end := d.GetOffset() + int64(len(text))
	known := w.heard[from]
	if end <= known {
		return true // a watch that was begun again tells it once more
	}
	if d.GetOffset() < known {
		text = text[known-d.GetOffset():]
	}
	w.heard[from] = end
	if w.speaker != "" && w.speaker != from {
		text = "\n\n" + text
	}
	w.speaker = from
	return w.chunk(text, false)
}

// isOwn reports whether the text of an event is what the agent says to the user. The agent is the run of the
// task, or the run that this one waits for.
func (w *watcher) isOwn(ctx context.Context, ev *executorv1.RunEvent) bool {
	id := ev.GetRunId()
	if id == w.run.GetId() {
		return true
	}
	own, known := w.own[id]
	if !known {
		r, err := w.Executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: id})
		if own = err == nil && r.GetParentRunId() == w.run.GetId(); w.own == nil {
			w.own = map[string]bool{}
		}
		w.own[id] = own
	}
	return own && ev.GetTokenDelta().GetVisit().GetNodeId() == nodeReason
}
