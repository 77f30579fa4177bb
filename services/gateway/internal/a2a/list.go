package a2a

import (
	"context"
	"slices"

	spec "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

const (
	// defaultPage and maxPage bound a page of tasks, and maxRounds how many pages of runs are read for it.
	defaultPage, maxPage, maxRounds = 50, 100, 20
	// maxOpen bounds what is read of the open questions of a namespace for one page.
	maxOpen = 1000
)

// runStates are the states of runs that a state of tasks may stand for.
func runStates(s spec.TaskState) []executorv1.RunState {
	going := []executorv1.RunState{executorv1.RunState_RUN_STATE_RUNNING, executorv1.RunState_RUN_STATE_WAITING, executorv1.RunState_RUN_STATE_PAUSED, executorv1.RunState_RUN_STATE_QUARANTINED}
	switch s {
	case spec.TaskStateSubmitted:
		return []executorv1.RunState{executorv1.RunState_RUN_STATE_PENDING}
	case spec.TaskStateWorking:
		return going
	case spec.TaskStateInputRequired:
		return going
	case spec.TaskStateCompleted:
		return []executorv1.RunState{executorv1.RunState_RUN_STATE_COMPLETED}
	case spec.TaskStateFailed:
		return []executorv1.RunState{executorv1.RunState_RUN_STATE_FAILED}
	case spec.TaskStateCanceled:
		return []executorv1.RunState{executorv1.RunState_RUN_STATE_CANCELED}
	}
	return nil
}

// ListTasks implements tasks/list: the newest first.
func (h handler) ListTasks(ctx context.Context, req *spec.ListTasksRequest) (*spec.ListTasksResponse, error) {
	if err := h.known(ctx); err != nil {
		return nil, err
	}
	out, err := h.list(ctx, req)
	if err != nil {
		return nil, h.fail(err)
	}
	return out, nil
}

func (h handler) list(ctx context.Context, req *spec.ListTasksRequest) (*spec.ListTasksResponse, error) {
	out := &spec.ListTasksResponse{Tasks: []*spec.Task{}}
	ask := &executorv1.ListRunsRequest{PageSize: defaultPage, PageToken: req.PageToken}
	switch {
	case req.PageSize < 0 || req.PageSize > maxPage:
		return nil, invalid("pageSize", "PAGE_SIZE_INVALID", "pageSize is %d, and must be 1 to %d", req.PageSize, maxPage)
	case req.PageSize > 0:
		ask.PageSize = int32(req.PageSize) //nolint:gosec // bounded above
	}
	switch req.Status {
	case spec.TaskStateUnspecified:
	case spec.TaskStateRejected, spec.TaskStateAuthRequired:
		return out, nil // no task is ever in it
	default:
		if ask.States = runStates(req.Status); ask.States == nil {
			return nil, invalid("status", "STATUS_INVALID", "%.40q is no state of tasks", string(req.Status))
		}
	}
	if len(req.ContextID) > maxContext {
		return nil, invalid("contextId", "CONTEXT_INVALID", "contextId has more than %d bytes", maxContext)
	}
	threads := map[string]*executorv1.Thread{}
	if req.ContextID != "" {
		th, err := h.named(ctx, req.ContextID)
		if errs.Is(err, errs.NotFound) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		ask.ThreadId, threads[th.GetId()] = th.GetId(), th
	}
	length := req.HistoryLength
	if length == nil {
		length = new(int)
	}
	// Runs that are no tasks, and tasks that are not wanted, make no page short.
	want := int(ask.GetPageSize())
	for range maxRounds {
		page, err := h.Executor.ListRuns(ctx, ask)
		if err != nil {
			return nil, err
		}
		tasks, err := h.wanted(ctx, req, page.GetRuns(), threads)
		if err != nil {
			return nil, err
		}
		for _, t := range tasks {
			told, err := t.listed(ctx, req.IncludeArtifacts, length)
			if err != nil {
				return nil, err
			}
			out.Tasks = append(out.Tasks, told)
		}
		out.NextPageToken, ask.PageToken = page.GetNextPageToken(), page.GetNextPageToken()
		if len(out.Tasks) == want || ask.GetPageToken() == "" {
			break
		}
		ask.PageSize = int32(want - len(out.Tasks)) //nolint:gosec // bounded above
	}
	out.PageSize, out.TotalSize = len(out.Tasks), len(out.Tasks)
	return out, nil
}

// listed is a task of a list.
func (t *task) listed(ctx context.Context, artifacts bool, length *int) (*spec.Task, error) {
	if artifacts || *length > 0 { // lists of runs have no results and no inputs
		run, err := t.Executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: t.run.GetId()})
		if err != nil {
			return nil, err
		}
		t.run = run
	}
	told, err := t.task(ctx, length)
	if err == nil && !artifacts {
		told.Artifacts = nil
	}
	return told, err
}

// wanted are the runs that are tasks which a list asks for.
func (h handler) wanted(ctx context.Context, req *spec.ListTasksRequest, runs []*executorv1.Run, threads map[string]*executorv1.Thread) (out []*task, err error) {
	open, err := h.asking(ctx, runs)
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		th, err := h.of(ctx, r, threads)
		if err != nil {
			return nil, err
		}
		if th == nil || !speaks(th, requestOf(ctx).agent) {
			continue
		}
		t := &task{Server: h.Server, run: r, contextID: contextOf(th), open: open[r.GetId()]}
		s := t.status()
		if req.Status != spec.TaskStateUnspecified && s.State != req.Status || req.StatusTimestampAfter != nil && s.Timestamp.Before(*req.StatusTimestampAfter) {
			continue
		}
		out = append(out, t)
	}
	return out, nil
}

// named is the thread of a context.
func (h handler) named(ctx context.Context, contextID string) (*executorv1.Thread, error) {
	if len(contextID) > len(threadPrefix) && contextID[:len(threadPrefix)] == threadPrefix {
		return h.Threads.GetThread(ctx, &executorv1.GetThreadRequest{ThreadId: contextID})
	}
	return h.Threads.GetThread(ctx, &executorv1.GetThreadRequest{ThreadId: "-", Key: contextID})
}

// of is the thread of a run, or nil if the run is no task: nobody has started it by a message, or its thread
// is not kept any more.
func (h handler) of(ctx context.Context, r *executorv1.Run, known map[string]*executorv1.Thread) (*executorv1.Thread, error) {
	id := r.GetThreadId()
	if id == "" || r.GetParentRunId() != "" {
		return nil, nil //nolint:nilnil // it is no task
	}
	th, ok := known[id]
	if ok {
		return th, nil
	}
	th, err := h.Threads.GetThread(ctx, &executorv1.GetThreadRequest{ThreadId: id})
	if err != nil && !errs.Is(err, errs.NotFound) {
		return nil, err
	}
	known[id] = th
	return th, nil
}

// asking are the open questions by the run of their task, if any of the runs may have one.
func (h handler) asking(ctx context.Context, runs []*executorv1.Run) (map[string][]*executorv1.Interrupt, error) {
	out := map[string][]*executorv1.Interrupt{}
	if !slices.ContainsFunc(runs, func(r *executorv1.Run) bool { return !ended(r) }) {
		return out, nil
	}
	all, err := h.Executor.ListInterrupts(ctx, &executorv1.ListInterruptsRequest{PageSize: maxOpen})
	if err != nil {
		return nil, err
	}
	for _, q := range all.GetInterrupts() {
		out[q.GetRootRunId()] = append(out[q.GetRootRunId()], q)
	}
	return out, nil
}
