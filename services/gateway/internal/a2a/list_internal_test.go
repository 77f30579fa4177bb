package a2a

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	spec "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/inflight"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// runs lists runs, newest first, as the executor does: without what is large.
type runs struct {
	executorv1.ExecutorServiceClient

	all       []*executorv1.Run
	questions map[string][]*executorv1.Interrupt
	// of are the runs whose questions were read.
	of []string
}

func (f *runs) ListRuns(_ context.Context, r *executorv1.ListRunsRequest, _ ...grpc.CallOption) (*executorv1.ListRunsResponse, error) {
	out := &executorv1.ListRunsResponse{}
	for _, run := range f.all {
		if r.GetPageToken() != "" && run.GetId() >= r.GetPageToken() || len(r.GetStates()) > 0 && !slices.Contains(r.GetStates(), run.GetState()) {
			continue
		}
		if len(out.GetRuns()) == int(r.GetPageSize()) {
			out.NextPageToken = out.GetRuns()[len(out.GetRuns())-1].GetId()
			return out, nil
		}
		out.Runs = append(out.Runs, &executorv1.Run{Id: run.GetId(), ThreadId: run.GetThreadId(), State: run.GetState(), CreateTime: run.GetCreateTime(), EndTime: run.GetEndTime()})
	}
	return out, nil
}

func (f *runs) GetRun(_ context.Context, r *executorv1.GetRunRequest, _ ...grpc.CallOption) (*executorv1.Run, error) {
	for _, run := range f.all {
		if run.GetId() == r.GetRunId() {
			return run, nil
		}
	}
	return nil, errs.New(errs.NotFound, "RUN_NOT_FOUND", "there is no run %q", r.GetRunId())
}

func (f *runs) ListInterrupts(_ context.Context, r *executorv1.ListInterruptsRequest, _ ...grpc.CallOption) (*executorv1.ListInterruptsResponse, error) {
	if f.of = append(f.of, r.GetRunId()); r.GetRunId() == "" {
		return nil, errs.New(errs.Internal, "TEST", "the questions of a whole namespace are not to be read")
	}
	all := f.questions[r.GetRunId()]
	return &executorv1.ListInterruptsResponse{Interrupts: all[:min(len(all), int(r.GetPageSize()))]}, nil
}

// filler is a JSON text of a number of bytes.
func filler(n int) *graphv1.Payload {
	return &graphv1.Payload{Json: []byte(`"` + strings.Repeat("x", n-2) + `"`)}
}

// newRuns are n runs of one thread that have completed with results of a size, and whose messages have
// it, too.
func newRuns(n, size int) *runs {
	f := &runs{questions: map[string][]*executorv1.Interrupt{}}
	for i := range n {
		f.all = append(f.all, &executorv1.Run{
			Id: fmt.Sprintf("run_%03d", n-i), ThreadId: "thr_a", State: executorv1.RunState_RUN_STATE_COMPLETED,
			// Two began at once.
			CreateTime: &timestamppb.Timestamp{Seconds: int64(n-i) / 2}, EndTime: &timestamppb.Timestamp{Seconds: 1000},
			Result: filler(size), Named: map[string]*graphv1.Payload{"user_input": filler(size)},
		})
	}
	return f
}

// lister lists the tasks of an agent. What the answer holds is told by the budget.
func lister(t *testing.T, f *runs, total int64) (handler, context.Context, *inflight.Budget) {
	t.Helper()
	th := newThreads()
	th.made["r"] = &executorv1.Thread{Id: "thr_a", Agent: "agent/desk"}
	budget := inflight.New(total)
	out := budget.Answer("acme")
	t.Cleanup(out.Free)
	return served(f, th), context.WithValue(t.Context(), requestKey{}, request{agent: "desk", held: func() {}, memory: &memory{out: out, begin: func() {}}}), budget
}

// walked are the tasks of all pages, which are read by change with the number of the page before.
func walked(t *testing.T, f *runs, req spec.ListTasksRequest, change func(page int)) (ids []string, pages []int) {
	t.Helper()
	for {
		h, ctx, _ := lister(t, f, 1<<30)
		got, err := h.ListTasks(ctx, &req)
		require.NoError(t, err)
		for _, task := range got.Tasks {
			ids = append(ids, string(task.ID))
		}
		pages = append(pages, len(got.Tasks))
		change(len(pages))
		if req.PageToken = got.NextPageToken; req.PageToken == "" {
			return ids, pages
		}
		require.Less(t, len(pages), 100, "the walk does not end")
	}
}

func TestHistoryIsOldestFirst(t *testing.T) {
	t.Parallel()
	f := newRuns(1, 10)
	f.questions["run_001"] = []*executorv1.Interrupt{{Id: "int_2"}, {Id: "int_1"}} // the executor's order
	h, ctx, _ := lister(t, f, 1<<30)
	got, err := h.GetTask(ctx, &spec.GetTaskRequest{ID: "run_001"})
	require.NoError(t, err)
	var ids []string
	for _, m := range got.History {
		ids = append(ids, m.ID)
	}
	require.Equal(t, []string{"run_001/message", "run_001/int_1", "run_001/int_2"}, ids)
}

func TestListTasks(t *testing.T) {
	t.Parallel()
	all := []string{"run_007", "run_006", "run_005", "run_004", "run_003", "run_002", "run_001"}
	one := 1
	for name, c := range map[string]struct {
		req   spec.ListTasksRequest
		pages []int
	}{
		"Results":          {spec.ListTasksRequest{IncludeArtifacts: true}, []int{2, 2, 2, 1}},
		"Messages":         {spec.ListTasksRequest{HistoryLength: &one}, []int{2, 2, 2, 1}},
		"Both":             {spec.ListTasksRequest{IncludeArtifacts: true, HistoryLength: &one}, []int{1, 1, 1, 1, 1, 1, 1}},
		"SmallerPages":     {spec.ListTasksRequest{IncludeArtifacts: true, PageSize: 3}, []int{2, 2, 2, 1}},
		"WithoutWhatIsBig": {spec.ListTasksRequest{}, []int{7}},
	} {
		t.Run("APageEndsAtItsBytes/"+name, func(t *testing.T) {
			t.Parallel()
			ids, pages := walked(t, newRuns(7, 3<<20), c.req, func(int) {})
			require.Equal(t, c.pages, pages)
			require.Equal(t, all, ids, "none is left out, and none is told twice")
		})
	}
	t.Run("RunsThatLeaveAPageTakeNoOthersAlong", func(t *testing.T) {
		t.Parallel()
		f := newRuns(7, 3<<20)
		ids, _ := walked(t, f, spec.ListTasksRequest{IncludeArtifacts: true, Status: spec.TaskStateCompleted}, func(page int) {
			if page == 1 {
				f.all[1].State = executorv1.RunState_RUN_STATE_FAILED
			}
		})
		require.Equal(t, all, ids)
	})
	t.Run("AnAnswerIsHeld", func(t *testing.T) {
		t.Parallel()
		h, ctx, budget := lister(t, newRuns(7, 3<<20), 1<<30)
		_, err := h.ListTasks(ctx, &spec.ListTasksRequest{IncludeArtifacts: true})
		require.NoError(t, err)
		require.GreaterOrEqual(t, budget.Used(), int64(answerMemory*2*3<<20), "two tasks")
		require.Less(t, budget.Used(), int64(answerMemory*3*3<<20), "what was only read is given back")
	})
	t.Run("AnAnswerWithoutRoomIsRefused", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { // an answer waits for seconds
			h, ctx, budget := lister(t, newRuns(7, 3<<20), 64<<20)
			budget.Add("acme", 24<<20)
			_, err := h.ListTasks(ctx, &spec.ListTasksRequest{IncludeArtifacts: true})
			require.Equal(t, inflight.ReasonBusy, reasonIn(t, err))
			_, err = h.GetTask(ctx, &spec.GetTaskRequest{ID: "run_001"})
			require.Equal(t, inflight.ReasonBusy, reasonIn(t, err))
		})
	})
	t.Run("TheQuestionsOfEveryRunAreRead", func(t *testing.T) {
		t.Parallel()
		f := newRuns(4, 10)
		for _, r := range f.all[1:] {
			r.State, r.EndTime = executorv1.RunState_RUN_STATE_WAITING, nil
		}
		f.questions["run_002"] = []*executorv1.Interrupt{{Id: "int_1", Prompt: filler(10)}, {Id: "int_2", Prompt: filler(10)}}
		h, ctx, _ := lister(t, f, 1<<30)
		got, err := h.ListTasks(ctx, &spec.ListTasksRequest{})
		require.NoError(t, err)
		var states []spec.TaskState
		for _, task := range got.Tasks {
			states = append(states, task.Status.State)
		}
		require.Equal(t, []spec.TaskState{spec.TaskStateCompleted, spec.TaskStateWorking, spec.TaskStateInputRequired, spec.TaskStateWorking}, states)
		require.Equal(t, []string{"run_003", "run_002", "run_001"}, f.of, "each once")
	})
	for _, token := range []string{"run_004.x.run_003", "run_004.1", "run_004.1.", ".1." + strings.Repeat("x", 65)} {
		t.Run("ATokenOfNobody/"+token[:min(len(token), 20)], func(t *testing.T) {
			t.Parallel()
			h, ctx, _ := lister(t, newRuns(7, 10), 1<<30)
			_, err := h.ListTasks(ctx, &spec.ListTasksRequest{PageToken: token})
			require.Equal(t, "PAGE_TOKEN_INVALID", reasonIn(t, err))
		})
	}
}
