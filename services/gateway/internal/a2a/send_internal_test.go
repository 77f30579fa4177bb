package a2a

import (
	"context"
	"testing"

	spec "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	errorsv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/errors/v1"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// threads keeps threads and turns by the ids of their requests, as the executor does.
type threads struct {
	executorv1.ThreadServiceClient

	made   map[string]*executorv1.Thread
	turns  map[string]*executorv1.Turn
	gone   map[string]bool
	agents []string
}

func (f *threads) CreateThread(_ context.Context, r *executorv1.CreateThreadRequest, _ ...grpc.CallOption) (*executorv1.Thread, error) {
	if th := f.made[r.GetRequestId()]; th != nil {
		if f.gone[th.GetId()] {
			return nil, errs.New(errs.NotFound, "THREAD_NOT_FOUND", "there is no thread %q", th.GetId())
		}
		return th, nil
	}
	known := false
	for _, a := range f.agents {
		known = known || a == r.GetThread().GetAgent()
	}
	if !known {
		return nil, errs.New(errs.NotFound, "THREAD_AGENT_UNKNOWN", "there is no agent %q", r.GetThread().GetAgent())
	}
	th := &executorv1.Thread{Id: "thr_" + string(rune('a'+len(f.made))), Agent: r.GetThread().GetAgent(), Key: r.GetThread().GetKey()}
	f.made[r.GetRequestId()] = th
	return th, nil
}

func (f *threads) GetThread(_ context.Context, r *executorv1.GetThreadRequest, _ ...grpc.CallOption) (*executorv1.Thread, error) {
	for _, th := range f.made {
		if !f.gone[th.GetId()] && (th.GetId() == r.GetThreadId() || r.GetKey() != "" && th.GetKey() == r.GetKey()) {
			return th, nil
		}
	}
	return nil, errs.New(errs.NotFound, "THREAD_NOT_FOUND", "there is no such thread")
}

func (f *threads) AppendMessage(_ context.Context, r *executorv1.AppendMessageRequest, _ ...grpc.CallOption) (*executorv1.Turn, error) {
	if turn := f.turns[r.GetRequestId()]; turn != nil {
		return turn, nil
	}
	turn := &executorv1.Turn{State: executorv1.TurnState_TURN_STATE_STARTED, RunId: "run_" + string(rune('a'+len(f.turns)))}
	f.turns[r.GetRequestId()] = turn
	return turn, nil
}

func newThreads(agents ...string) *threads {
	return &threads{made: map[string]*executorv1.Thread{}, turns: map[string]*executorv1.Turn{}, gone: map[string]bool{}, agents: agents}
}

// ending has runs that have ended.
type ending struct {
	executorv1.ExecutorServiceClient
}

func (ending) GetRun(_ context.Context, r *executorv1.GetRunRequest, _ ...grpc.CallOption) (*executorv1.Run, error) {
	return &executorv1.Run{Id: r.GetRunId(), ThreadId: "thr_a", State: executorv1.RunState_RUN_STATE_COMPLETED, EndTime: &timestamppb.Timestamp{Seconds: 1}}, nil
}

func served(executor executorv1.ExecutorServiceClient, th executorv1.ThreadServiceClient) handler {
	return handler{&Server{Options: Options{
		Executor: executor, Threads: th,
		Describe: func(err error) *errorsv1.Error {
			return &errorsv1.Error{Reason: errs.ReasonOf(err), Message: err.Error()}
		},
		Stopping: func(context.Context) <-chan struct{} { return nil },
	}}}
}

// of is the context of a request of a key to an agent.
func of(t *testing.T, key, agent string) context.Context {
	t.Helper()
	ctx := grpckit.WithPrincipal(t.Context(), grpckit.Principal{Kind: access.Key, Name: key})
	return context.WithValue(ctx, requestKey{}, request{agent: agent, held: func() {}, memory: &memory{begin: func() {}}})
}

func sends(ctx context.Context, t *testing.T, h handler, contextID string) *spec.Task {
	t.Helper()
	got, err := h.SendMessage(ctx, firstMessage(contextID))
	require.NoError(t, err)
	task, ok := got.(*spec.Task)
	require.True(t, ok, "%T", got)
	return task
}

// firstMessage is a message with the id "1", as many clients begin.
func firstMessage(contextID string) *spec.SendMessageRequest {
	m := spec.NewMessage(spec.MessageRoleUser, spec.NewTextPart("hello"))
	m.ID, m.ContextID = "1", contextID
	none := 0
	return &spec.SendMessageRequest{Message: m, Config: &spec.SendMessageConfig{ReturnImmediately: true, HistoryLength: &none}}
}

func TestMessageIDs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key, agent, contextID string
		same                  bool
	}{
		"ARepeatedMessageHasItsTask": {key: "ann", agent: "desk", same: true},
		"AnotherCallersIsAnother":    {key: "bob", agent: "desk"},
		"AnotherAgentsIsAnother":     {key: "ann", agent: "shop"},
		"AnotherContextsIsAnother":   {key: "ann", agent: "desk", contextID: "ann:desk"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := served(ending{}, newThreads("agent/desk", "agent/shop"))
			first := sends(of(t, "ann", "desk"), t, h, "")
			got := sends(of(t, c.key, c.agent), t, h, c.contextID)
			if c.same {
				require.Equal(t, []string{string(first.ID), first.ContextID}, []string{string(got.ID), got.ContextID})
				return
			}
			require.NotEqual(t, first.ID, got.ID)
			require.NotEqual(t, first.ContextID, got.ContextID)
		})
	}
	t.Run("AnswersOfTwoCallersHaveTwoNames", func(t *testing.T) {
		t.Parallel()
		m := &message{Message: firstMessage("").Message}
		require.NotEqual(t, m.by(of(t, "ann", "desk")), m.by(of(t, "bob", "desk")))
	})
	for name, agent := range map[string]string{"OfAnAgent": "agent/desk", "OfAWorkflow": "workflow/desk"} {
		t.Run("AThreadThatIsGone/"+name, func(t *testing.T) {
			t.Parallel()
			th := newThreads(agent)
			h := served(ending{}, th)
			th.gone[sends(of(t, "ann", "desk"), t, h, "").ContextID] = true
			_, err := h.SendMessage(of(t, "ann", "desk"), firstMessage(""))
			require.Equal(t, "THREAD_NOT_FOUND", reasonIn(t, err), "the agent is there")
		})
	}
}

// reasonIn is the reason of an error of the protocol.
func reasonIn(t *testing.T, err error) string {
	t.Helper()
	var e *spec.Error
	require.ErrorAs(t, err, &e)
	meta, ok := e.ErrorInfo().Value["metadata"].(map[string]string)
	require.True(t, ok, "%v", e.ErrorInfo().Value)
	return meta["reason"]
}
