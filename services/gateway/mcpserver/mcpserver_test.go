package mcpserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/gateway/mcpserver"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// fake is the services with one run, which asks a question or has ended.
type fake struct {
	plannerv1.PlannerServiceClient
	executorv1.ExecutorServiceClient
	registryv1.RegistryServiceClient
	registryv1.WorkflowServiceClient

	mu       sync.Mutex
	run      *executorv1.Run
	question *executorv1.Interrupt
	answers  []*executorv1.AnswerInterruptRequest
	started  []*executorv1.StartRunRequest
	canceled []string
	// watching is closed when somebody watches the run.
	watching chan struct{}
	watched  sync.Once
	exposed  []*registryv1.Workflow
	source   string
	// feed has the events of the feed. Without it the feed is closed to the client.
	feed chan *registryv1.FeedEvent
	// ofRun has the events of a run in the feed, where there are as many watches of runs as may be.
	ofRun chan *registryv1.FeedEvent
}

func newFake() *fake {
	return &fake{watching: make(chan struct{}), run: &executorv1.Run{Id: "run_1", State: executorv1.RunState_RUN_STATE_RUNNING}}
}

// shown is the run as it is now.
func (f *fake) shown() *executorv1.Run { return proto.Clone(f.run).(*executorv1.Run) }

func (f *fake) ends(result string) {
	f.run.State, f.run.EndTime, f.run.OpenInterrupts = executorv1.RunState_RUN_STATE_COMPLETED, timestamppb.Now(), 0
	f.run.Result = &graphv1.Payload{Json: []byte(result)}
}

func (f *fake) asks(q *executorv1.Interrupt) {
	q.Id, q.RunId, q.RootRunId, q.State = "int_1", "run_1", "run_1", executorv1.InterruptState_INTERRUPT_STATE_OPEN
	f.question = q
	f.run.State, f.run.OpenInterrupts = executorv1.RunState_RUN_STATE_WAITING, 1
}

func (f *fake) CompilePlan(context.Context, *plannerv1.CompilePlanRequest, ...grpc.CallOption) (*plannerv1.CompilePlanResponse, error) {
	return &plannerv1.CompilePlanResponse{Graph: &graphv1.Graph{Name: "plan"}}, nil
}

func (f *fake) StartRun(_ context.Context, r *executorv1.StartRunRequest, _ ...grpc.CallOption) (*executorv1.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.started = append(f.started, r)
	return f.shown(), nil
}

func (f *fake) GetRun(_ context.Context, r *executorv1.GetRunRequest, _ ...grpc.CallOption) (*executorv1.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.GetRunId() != f.run.GetId() {
		return nil, errs.New(errs.NotFound, "RUN_NOT_FOUND", "there is no run %s", r.GetRunId()).Hint("ListRuns lists runs")
	}
	return f.shown(), nil
}

// stream is a stream without an event until its context ends.
type stream struct {
	grpc.ServerStreamingClient[executorv1.RunEvent]
	ctx   context.Context
	first chan *executorv1.RunEvent
}

func (s *stream) Recv() (*executorv1.RunEvent, error) {
	select {
	case ev := <-s.first:
		return ev, nil
	case <-s.ctx.Done():
		return nil, io.EOF
	}
}

func (f *fake) WatchRun(ctx context.Context, _ *executorv1.WatchRunRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[executorv1.RunEvent], error) {
	f.watched.Do(func() { close(f.watching) })
	if f.ofRun != nil {
		return nil, errs.New(errs.ResourceExhausted, "TOO_MANY_WATCHES", "there are as many watches as may be")
	}
	first := make(chan *executorv1.RunEvent, 1)
	first <- &executorv1.RunEvent{Event: &executorv1.RunEvent_AttemptStarted{AttemptStarted: &executorv1.AttemptStarted{Visit: &executorv1.VisitRef{NodeId: "write"}}}}
	return &stream{ctx: ctx, first: first}, nil
}

func (f *fake) CancelRun(_ context.Context, r *executorv1.CancelRunRequest, _ ...grpc.CallOption) (*executorv1.Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.canceled = append(f.canceled, r.GetRunId())
	return f.shown(), nil
}

func (f *fake) ListInterrupts(context.Context, *executorv1.ListInterruptsRequest, ...grpc.CallOption) (*executorv1.ListInterruptsResponse, error) {
	return &executorv1.ListInterruptsResponse{Interrupts: []*executorv1.Interrupt{f.question}}, nil
}

func (f *fake) GetInterrupt(context.Context, *executorv1.GetInterruptRequest, ...grpc.CallOption) (*executorv1.Interrupt, error) {
	return f.question, nil
}

func (f *fake) AnswerInterrupt(_ context.Context, r *executorv1.AnswerInterruptRequest, _ ...grpc.CallOption) (*executorv1.Interrupt, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers = append(f.answers, r)
	f.question.State = executorv1.InterruptState_INTERRUPT_STATE_ANSWERED
	f.ends(`"done"`)
	return f.question, nil
}

func (f *fake) ListWorkflows(context.Context, *registryv1.ListWorkflowsRequest, ...grpc.CallOption) (*registryv1.ListWorkflowsResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &registryv1.ListWorkflowsResponse{Workflows: f.exposed}, nil
}

func (f *fake) WatchEvents(ctx context.Context, r *registryv1.WatchEventsRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[registryv1.FeedEvent], error) {
	if r.GetRunId() != "" {
		return &feedStream{ctx: ctx, events: f.ofRun}, nil
	}
	if f.feed == nil {
		return nil, errs.New(errs.PermissionDenied, "SCOPE_MISSING", "the feed is not for this key")
	}
	return &feedStream{ctx: ctx, events: f.feed}, nil
}

// feedStream is the feed until its context ends.
type feedStream struct {
	grpc.ServerStreamingClient[registryv1.FeedEvent]
	ctx    context.Context
	events chan *registryv1.FeedEvent
}

func (s *feedStream) Recv() (*registryv1.FeedEvent, error) {
	select {
	case ev := <-s.events:
		return ev, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

func (f *fake) GetWorkflowVersion(context.Context, *registryv1.GetWorkflowVersionRequest, ...grpc.CallOption) (*registryv1.WorkflowVersion, error) {
	return &registryv1.WorkflowVersion{Source: f.source, Version: 1}, nil
}

// connect is a session of a client with a server before the services.
func connect(t *testing.T, f *fake, o *mcp.ClientOptions, version string) *mcp.ClientSession {
	t.Helper()
	s, _ := session(t, f, o, version)
	return s
}

// session is the same with what ends it, and waits for the calls of the server.
func session(t *testing.T, f *fake, o *mcp.ClientOptions, version string) (s *mcp.ClientSession, hangUp func()) {
	t.Helper()
	server, err := mcpserver.New(mcpserver.Options{Planner: f, Executor: f, Registry: f, Workflows: f, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- server.Run(t.Context(), in, out) }()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, o)
	s, err = client.Connect(t.Context(), &mcp.IOTransport{Reader: fromServer, Writer: toServer}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	require.NoError(t, err)
	var once sync.Once
	hangUp = func() {
		once.Do(func() {
			_ = s.Close() // the server may have closed it
			require.NoError(t, <-served)
		})
	}
	t.Cleanup(hangUp)
	return s, hangUp
}

func call(t *testing.T, s *mcp.ClientSession, name string, args map[string]any) (*mcp.CallToolResult, map[string]any) {
	t.Helper()
	res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
	require.NoError(t, err)
	return res, value(t, res)
}

func value(t *testing.T, res *mcp.CallToolResult) map[string]any {
	t.Helper()
	require.Len(t, res.Content, 1)
	var out map[string]any
	require.NoError(t, json.Unmarshal([]byte(res.Content[0].(*mcp.TextContent).Text), &out))
	return out
}

func payload(text string) *graphv1.Payload { return &graphv1.Payload{Json: []byte(text)} }

// versions are those with a session and those without.
func versions() map[string]string {
	return map[string]string{"WithASession": "2025-11-25", "WithoutASession": "2026-07-28"}
}

func TestQuestions(t *testing.T) {
	t.Parallel()
	for name, version := range versions() {
		for kind, c := range map[string]struct {
			asked   *executorv1.Interrupt
			content map[string]any
			schema  string
			want    *executorv1.AnswerInterruptRequest
		}{
			"AnObject": {
				&executorv1.Interrupt{Prompt: payload(`"Where?"`), Schema: payload(`{"type": "object", "required": ["city"], "properties": {"city": {"type": "string", "pattern": "^O"}}}`)},
				map[string]any{"city": "Oslo"}, `{"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}`,
				&executorv1.AnswerInterruptRequest{InterruptId: "int_1", Answer: payload(`{"city":"Oslo"}`)},
			},
			"AValue": {
				&executorv1.Interrupt{Prompt: payload(`"How many?"`), Schema: payload(`{"type": "integer", "minimum": 1}`)},
				map[string]any{"answer": 3}, `{"type": "object", "required": ["answer"], "properties": {"answer": {"type": "integer", "minimum": 1}}}`,
				&executorv1.AnswerInterruptRequest{InterruptId: "int_1", Answer: payload(`3`)},
			},
			"AnApproval": {
				&executorv1.Interrupt{Prompt: payload(`"Pay?"`), Approve: payload(`{"cents": 7}`), ApproveHash: "abc"},
				map[string]any{"decision": "approve"}, `{"type": "object", "required": ["decision"], "properties": {"decision": {"type": "string", "enum": ["approve", "reject"]}}}`,
				&executorv1.AnswerInterruptRequest{InterruptId: "int_1", Decision: executorv1.Decision_DECISION_APPROVED, ApproveHash: "abc"},
			},
		} {
			t.Run("Asked/"+name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				f := newFake()
				f.asks(c.asked)
				var form *mcp.ElicitParams
				s := connect(t, f, &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					form = r.Params
					return &mcp.ElicitResult{Action: "accept", Content: c.content}, nil
				}}, version)
				res, got := call(t, s, "run_plan", map[string]any{"plan": "1. Pay"})
				require.False(t, res.IsError, "%v", got)
				require.Equal(t, "completed", got["state"])
				require.Equal(t, "done", got["result"])
				require.Len(t, f.started, 1, "a call that goes on starts nothing")
				raw, err := json.Marshal(form.RequestedSchema)
				require.NoError(t, err)
				require.JSONEq(t, c.schema, string(raw))
				require.Len(t, f.answers, 1)
				require.Equal(t, c.want.String(), f.answers[0].String())
			})
		}
		t.Run("Declined/"+name, func(t *testing.T) {
			t.Parallel()
			f := newFake()
			f.asks(&executorv1.Interrupt{Prompt: payload(`"Where?"`)})
			s := connect(t, f, &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
				return &mcp.ElicitResult{Action: "decline"}, nil
			}}, version)
			_, got := call(t, s, "watch_run", map[string]any{"run_id": "run_1"})
			require.Equal(t, "int_1", got["questions"].([]any)[0].(map[string]any)["interrupt_id"])
			require.Empty(t, f.answers)
		})
	}
	t.Run("ToldToAClientThatCannotBeAsked", func(t *testing.T) {
		t.Parallel()
		f := newFake()
		f.asks(&executorv1.Interrupt{Prompt: payload(`"Where?"`)})
		_, got := call(t, connect(t, f, nil, ""), "run_plan", map[string]any{"plan": "1. Go"})
		require.Equal(t, "Where?", got["questions"].([]any)[0].(map[string]any)["prompt"])
		require.Contains(t, got["hint"], "answer_run")
	})
	t.Run("ToldIfNoFormCanAskIt", func(t *testing.T) {
		t.Parallel()
		f := newFake()
		f.asks(&executorv1.Interrupt{Schema: payload(`{"type": "object", "properties": {"who": {"type": "object"}}}`)})
		s := connect(t, f, &mcp.ClientOptions{ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return nil, fmt.Errorf("nobody asks this")
		}}, "")
		_, got := call(t, s, "watch_run", map[string]any{"run_id": "run_1"})
		require.Contains(t, fmt.Sprint(got["questions"]), "who")
	})
}

func TestCancel(t *testing.T) {
	t.Parallel()
	for name, version := range versions() {
		for on, want := range map[string][]string{"cancel": {"run_1"}, "keep": nil} {
			t.Run(name+"/"+on, func(t *testing.T) {
				t.Parallel()
				f := newFake()
				s, hangUp := session(t, f, nil, version)
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() {
					_, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "run_plan", Arguments: map[string]any{"plan": "1. Wait", "on_cancel": on, "wait_seconds": 600}})
					done <- err
				}()
				<-f.watching
				cancel()
				require.ErrorIs(t, <-done, context.Canceled)
				hangUp() // whatever the call does about its run is done then
				require.Equal(t, want, f.canceled)
			})
		}
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	f, heard := newFake(), make(chan string, 1)
	s := connect(t, f, &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
		heard <- r.Params.Message
	}}, "")
	p := &mcp.CallToolParams{Name: "watch_run", Arguments: map[string]any{"run_id": "run_1", "wait_seconds": 0.5}}
	p.SetProgressToken("p1")
	res, err := s.CallTool(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, "write starts", <-heard)
	require.Equal(t, "running", value(t, res)["state"], "the time is over")
}

func TestFaults(t *testing.T) {
	t.Parallel()
	s := connect(t, newFake(), nil, "")
	for name, c := range map[string]struct {
		tool string
		args map[string]any
		want string
	}{
		"AnArgumentThatIsNotThere": {"get_run", map[string]any{"run": "run_1"}, `get_run has no argument \"run\"`},
		"AWrongType":               {"get_run", map[string]any{"run_id": 7}, "cannot unmarshal number"},
		"AWaitThatIsTooLong":       {"watch_run", map[string]any{"run_id": "run_1", "wait_seconds": 601}, "from 0 to 600"},
		"ARunThatIsNotThere":       {"get_run", map[string]any{"run_id": "run_2"}, `"hint":"list_runs lists runs"`},
		"AnEmptyPlan":              {"run_plan", map[string]any{"plan": " "}, "plan is empty"},
		"AnUnknownPriority":        {"epic_create", map[string]any{"title": "x", "priority": 5}, "between 1 and 4"},
		"AnUnknownStatus":          {"task_list", map[string]any{"status": "done"}, "Must be one of"},
		"AScopeWithoutItsSubject":  {"memory_write", map[string]any{"value": "x", "scope": "user"}, "needs its subject"},
		"ADecisionThatIsNone":      {"answer_run", map[string]any{"interrupt_id": "int_1", "decision": "yes"}, "approve or reject"},
		"ATaskListThatIsEmpty":     {"spawn_and_await", map[string]any{"tasks": []any{}}, "cannot be empty"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res, got := call(t, s, c.tool, c.args)
			require.True(t, res.IsError)
			require.Equal(t, false, got["success"])
			require.NotEmpty(t, got["reason"])
			require.Contains(t, res.Content[0].(*mcp.TextContent).Text, c.want)
		})
	}
	t.Run("AToolThatIsNotThere", func(t *testing.T) {
		t.Parallel()
		_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "workflow_gone"})
		require.ErrorContains(t, err, "unknown tool")
	})
}

func TestResultInParts(t *testing.T) {
	t.Parallel()
	f := newFake()
	whole := `"` + strings.Repeat("ä", 50<<10) + `"`
	f.ends(whole)
	s := connect(t, f, nil, "")
	var got strings.Builder
	for from := 0; ; {
		_, part := call(t, s, "get_run", map[string]any{"run_id": "run_1", "result_offset": from})
		got.WriteString(part["result_part"].(string))
		next, more := part["next_offset"].(float64)
		if !more {
			break
		}
		from = int(next)
	}
	require.Equal(t, whole, got.String())
}

func TestExposedWorkflows(t *testing.T) {
	t.Parallel()
	f := newFake()
	f.ends(`1`)
	f.source = "name: Letter\ninputs: {to: {type: string}}\nsteps:\n  - {id: write, type: transform, template: \"Dear {{ inputs.to }}\"}\n"
	for _, slug := range []string{"letter", "create", "a.b", "a_b", strings.Repeat("x", 100)} {
		f.exposed = append(f.exposed, &registryv1.Workflow{Id: "wf_" + slug, Slug: slug, Name: "Letter", Exposed: "latest", LatestVersion: 1})
	}
	f.exposed[0].Exposed, f.exposed[0].Aliases = "prod", []*registryv1.WorkflowAlias{{Name: "prod", Versions: []*registryv1.WorkflowWeight{{Version: 1, Weight: 1}}}}
	s := connect(t, f, nil, "")
	list, err := s.ListTools(t.Context(), nil)
	require.NoError(t, err)
	names := map[string]*mcp.Tool{}
	for _, tool := range list.Tools {
		require.Regexp(t, `^[a-zA-Z0-9_-]{1,64}$`, tool.Name)
		require.Nil(t, names[tool.Name], "%s is there twice", tool.Name)
		names[tool.Name] = tool
	}
	t.Run("NamesAreUnique", func(t *testing.T) {
		require.Contains(t, names, "workflow_letter")
		require.Contains(t, names, "workflow_a_b")
		require.Contains(t, names["workflow_create"].Description, "Makes a workflow", "a slug does not take the name of a tool")
		require.NotContains(t, names, "workflow")
	})
	t.Run("InputsAreTheSchema", func(t *testing.T) {
		raw, err := json.Marshal(names["workflow_letter"].InputSchema)
		require.NoError(t, err)
		require.Contains(t, string(raw), `"to"`)
	})
	t.Run("RunsTheExposedVersion", func(t *testing.T) {
		p := &mcp.CallToolParams{Name: "workflow_letter", Arguments: map[string]any{"to": "Ann"}, Meta: mcp.Meta{"epigraph/request_id": "r1"}}
		res, err := s.CallTool(t.Context(), p)
		require.NoError(t, err)
		require.InDelta(t, 1, value(t, res)["result"], 0)
		last := f.started[len(f.started)-1]
		require.Equal(t, "letter@prod", last.GetWorkflow())
		require.Equal(t, "r1", last.GetRequestId())
		require.JSONEq(t, `"Ann"`, string(last.GetNamed()["to"].GetJson()))
	})
	t.Run("AnOptionThatIsNotThere", func(t *testing.T) {
		res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "workflow_letter", Meta: mcp.Meta{"epigraph/priority": 1}})
		require.NoError(t, err)
		require.True(t, res.IsError)
	})
}
