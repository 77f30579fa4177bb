package a2a

import (
	"cmp"
	"context"
	"strconv"
	"strings"

	spec "github.com/a2aproject/a2a-go/v2/a2a"
	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/page"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

const (
	// defaultPage and maxPage bound a page of tasks, and maxRounds how many pages of runs are read for it.
	defaultPage, maxPage, maxRounds = 50, 100, 20
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
	ask := &executorv1.ListRunsRequest{PageSize: defaultPage}
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
	from, err := placeOf(req.PageToken)
	if err != nil {
		return nil, err
	}
	ask.PageToken = from.token
	// Runs that are no tasks, and tasks that are not wanted, make no page short.
	want := int(ask.GetPageSize())
	for range maxRounds {
		runs, err := h.Executor.ListRuns(ctx, ask)
		if err != nil {
			return nil, err
		}
		full, err := h.pageOf(ctx, req, runs, threads, &from, out)
		if err != nil {
			return nil, err
		}
		if full {
			out.NextPageToken = from.String()
			break
		}
		from = place{token: runs.GetNextPageToken()}
		out.NextPageToken, ask.PageToken = from.token, from.token
		if len(out.Tasks) == want || ask.GetPageToken() == "" {
			break
		}
		ask.PageSize = int32(want - len(out.Tasks)) //nolint:gosec // bounded above
	}
	out.PageSize, out.TotalSize = len(out.Tasks), len(out.Tasks)
	return out, nil
}

// pageOf adds the tasks among a page of runs to a list. It reports whether the list is full, and from is then
// where the next one begins.
func (h handler) pageOf(ctx context.Context, req *spec.ListTasksRequest, runs *executorv1.ListRunsResponse, threads map[string]*executorv1.Thread, from *place, out *spec.ListTasksResponse) (full bool, err error) {
	held := requestOf(ctx).memory
	if err := held.read(ctx, proto.Size(runs)); err != nil {
		return false, err
	}
	for _, r := range runs.GetRuns() {
		if from.told(r) {
			continue
		}
		t, err := h.wanted(ctx, req, r, threads)
		if err != nil {
			return false, err
		}
		if t != nil {
			told, err := t.listed(ctx, req)
			if errs.Is(err, errs.NotFound) {
				continue // it was deleted meanwhile
			}
			if err != nil {
				return false, err
			}
			size := sizeOf(told)
			if len(out.Tasks) > 0 && held.told+int64(size) > page.MaxBytes {
				return true, nil
			}
			if err := held.tell(ctx, size); err != nil {
				return false, err
			}
			held.drop()
			out.Tasks = append(out.Tasks, told)
		}
		from.at, from.id = r.GetCreateTime().AsTime().UnixMicro(), r.GetId()
	}
	return false, nil
}

// place is where a page of tasks begins: in a page of runs, behind one of them if there is an id.
type place struct {
	token string
	at    int64
	id    string
}

// String is the token of a place.
func (p place) String() string {
	if p.id == "" {
		return p.token
	}
	return p.token + "." + strconv.FormatInt(p.at, 10) + "." + p.id
}

// placeOf reads a token. The part that is the executor's is checked there.
func placeOf(token string) (p place, err error) {
	all := strings.SplitN(token, ".", 3)
	if p.token = all[0]; len(all) == 1 {
		return p, nil
	}
	if len(all) == 3 {
		p.id = all[2]
		p.at, err = strconv.ParseInt(all[1], 10, 64)
	}
	if err != nil || p.id == "" || len(p.id) > maxID {
		return p, invalid("pageToken", "PAGE_TOKEN_INVALID", "pageToken is none of a page of tasks").
			Hint("pass nextPageToken of the page before unchanged, or leave it out to begin anew")
	}
	return p, nil
}

// told reports whether a run is before a place: runs are newest first.
func (p place) told(r *executorv1.Run) bool {
	if p.id == "" {
		return false
	}
	return cmp.Or(cmp.Compare(r.GetCreateTime().AsTime().UnixMicro(), p.at), cmp.Compare(r.GetId(), p.id)) >= 0
}

// listed is a task of a list.
func (t *task) listed(ctx context.Context, req *spec.ListTasksRequest) (*spec.Task, error) {
	length := req.HistoryLength
	if length == nil {
		length = new(int)
	}
	if req.IncludeArtifacts || *length > 0 { // lists of runs have no results and no inputs
		run, err := t.Executor.GetRun(ctx, &executorv1.GetRunRequest{RunId: t.run.GetId()})
		if err != nil {
			return nil, err
		}
		t.run = run
	}
	told, err := t.made(ctx, length)
	if err == nil && !req.IncludeArtifacts {
		told.Artifacts = nil
	}
	return told, err
}

// wanted is the task of a run, or nil if the run is none or the list does not ask for it.
func (h handler) wanted(ctx context.Context, req *spec.ListTasksRequest, r *executorv1.Run, threads map[string]*executorv1.Thread) (*task, error) {
	th, err := h.of(ctx, r, threads)
	if err != nil || th == nil || !speaks(th, requestOf(ctx).agent) {
		return nil, err
	}
	t := &task{Server: h.Server, run: r, contextID: contextOf(th)}
	if err := t.asked(ctx); err != nil {
		return nil, err
	}
	s := t.status()
	if req.Status != spec.TaskStateUnspecified && s.State != req.Status || req.StatusTimestampAfter != nil && s.Timestamp.Before(*req.StatusTimestampAfter) {
		return nil, nil //nolint:nilnil // it is not asked for
	}
	return t, nil
}

// asked reads the newest open question of a run of a list, which does not say whether there are any. The
// status tells no other one.
func (t *task) asked(ctx context.Context) error {
	if ended(t.run) || t.run.GetState() == executorv1.RunState_RUN_STATE_PENDING {
		return nil
	}
	r, err := t.Executor.ListInterrupts(ctx, &executorv1.ListInterruptsRequest{RunId: t.run.GetId(), PageSize: 1})
	if errs.Is(err, errs.NotFound) {
		return nil // it was deleted meanwhile
	}
	t.open = r.GetInterrupts()
	return err
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
