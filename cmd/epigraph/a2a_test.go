package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
)

// remote is an agent as a client of the protocol sees it.
type remote struct {
	*a2aclient.Client
	card *a2a.AgentCard
}

// talksTo is a client of the agent whose card is below an address.
func talksTo(t *testing.T, base string, opts ...a2aclient.FactoryOption) remote {
	t.Helper()
	card, err := agentcard.NewResolver(http.DefaultClient).Resolve(t.Context(), base)
	require.NoError(t, err)
	c, err := a2aclient.NewFromCard(t.Context(), card, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Destroy()) })
	return remote{c, card}
}

// says is a message of a user. It changes what edit changes.
func says(text string, edit ...func(*a2a.Message)) *a2a.SendMessageRequest {
	m := a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart(text))
	for _, e := range edit {
		e(m)
	}
	return &a2a.SendMessageRequest{Message: m}
}

// within is a context of a client's choice, and to a message to a task.
func within(contextID string) func(*a2a.Message) {
	return func(m *a2a.Message) { m.ContextID = contextID }
}

func to(task *a2a.Task) func(*a2a.Message) {
	return func(m *a2a.Message) { m.TaskID, m.ContextID = task.ID, task.ContextID }
}

func (r remote) ask(t *testing.T, req *a2a.SendMessageRequest) *a2a.Task {
	t.Helper()
	got, err := r.SendMessage(t.Context(), req)
	require.NoError(t, err)
	task, ok := got.(*a2a.Task)
	require.True(t, ok, "%T", got)
	return task
}

// told is what a stream told: the states, the first one that of the task, and what its artifact came to.
type told struct {
	first  *a2a.Task
	states []a2a.TaskState
	text   string
	data   any
	pieces int
}

func hear(t *testing.T, events func(func(a2a.Event, error) bool)) (out told) {
	t.Helper()
	for ev, err := range events {
		require.NoError(t, err)
		switch ev := ev.(type) {
		case *a2a.Task:
			require.Nil(t, out.first, "one task")
			out.first, out.states = ev, []a2a.TaskState{ev.Status.State}
			for _, a := range ev.Artifacts { // it has ended already
				out.pieces++
				out.text, out.data = a.Parts[0].Text(), a.Parts[0].Data()
			}
		case *a2a.TaskStatusUpdateEvent:
			out.states = append(out.states, ev.Status.State)
		case *a2a.TaskArtifactUpdateEvent:
			out.pieces++
			if !ev.Append {
				out.text = ""
			}
			for _, p := range ev.Artifact.Parts {
				out.text += p.Text()
				out.data = p.Data()
			}
		}
	}
	return out
}

// resultOf is the text of the result of a task, which has completed.
func resultOf(t *testing.T, task *a2a.Task) string {
	t.Helper()
	require.Equal(t, a2a.TaskStateCompleted, task.Status.State, "%+v", task.Status.Message)
	require.Len(t, task.Artifacts, 1)
	return task.Artifacts[0].Parts[0].Text()
}

// refusedAs checks an error, and its reason in the data.
func refusedAs(t *testing.T, kind error, reason string, err error) {
	t.Helper()
	require.ErrorIs(t, err, kind)
	var e *a2a.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, reason, metaOf(e)["reason"], "%v", err)
}

func metaOf(e *a2a.Error) map[string]string {
	raw, _ := json.Marshal(e.ErrorInfo().Value["metadata"]) // it came as JSON
	var out map[string]string
	_ = json.Unmarshal(raw, &out) // an empty one has no reason
	return out
}

// TestA2A speaks to agents and workflows with the client of the protocol's Go SDK.
func TestA2A(t *testing.T) {
	d := serveAgents(t, talkers, fakellm.Script{Answer: func(r fakellm.Request) (fakellm.Reply, bool) {
		return talker(r.Messages[len(r.Messages)-1].Content, len(r.Tools) > 0), true
	}})
	base := "http://" + d.HTTPAddr()
	all, prompted, tooled, payer := talksTo(t, base), talksTo(t, base+"/a2a/prompted"), talksTo(t, base+"/a2a/agent/tooled"), talksTo(t, base+"/a2a/payer")
	c, err := epigraph.Dial(d.GRPCAddr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	ctx := t.Context()

	t.Run("TheCardListsAgents", func(t *testing.T) {
		var ids []string
		for _, s := range all.card.Skills {
			ids = append(ids, s.ID)
		}
		require.Equal(t, []string{"agent/payer", "agent/prompted", "agent/silent", "agent/tooled"}, ids)
		require.True(t, all.card.Capabilities.Streaming)
		require.False(t, all.card.Capabilities.PushNotifications)
		require.NotEmpty(t, all.card.SecuritySchemes)
	})
	t.Run("AnAgentHasACardOfItsOwn", func(t *testing.T) {
		require.Equal(t, "prompted", prompted.card.Name)
		require.Len(t, prompted.card.Skills, 1)
		require.Equal(t, base+"/a2a/agent/prompted", prompted.card.SupportedInterfaces[0].URL)
		extended, err := prompted.GetExtendedAgentCard(ctx, &a2a.GetExtendedAgentCardRequest{})
		require.NoError(t, err)
		require.Equal(t, prompted.card.Name, extended.Name)
	})
	t.Run("AnAnswer", func(t *testing.T) {
		got := prompted.ask(t, says("weather"))
		require.Equal(t, "Sun <in the north>, and nothing else.", resultOf(t, got))
		require.True(t, strings.HasPrefix(string(got.ID), "run_"))
		require.True(t, strings.HasPrefix(got.ContextID, "thr_"))
		require.Len(t, got.History, 1)
		require.Equal(t, "weather", got.History[0].Parts[0].Text())
		again, err := prompted.GetTask(ctx, &a2a.GetTaskRequest{ID: got.ID})
		require.NoError(t, err)
		require.Equal(t, got, again)
	})
	t.Run("AStream", func(t *testing.T) {
		got := hear(t, tooled.SendStreamingMessage(ctx, says("weather")))
		require.True(t, strings.HasSuffix(got.text, "It is sunny in the north."), got.text)
		require.Equal(t, a2a.TaskStateCompleted, got.states[len(got.states)-1])
		silent := hear(t, talksTo(t, base+"/a2a/silent").SendStreamingMessage(ctx, says("weather")))
		require.Equal(t, "Sun <in the north>, and nothing else.", silent.text, "what is not streamed comes at the end")
		require.Equal(t, 1, silent.pieces)
	})
	t.Run("AQuestionAndItsAnswer", func(t *testing.T) {
		asked := prompted.ask(t, says("where"))
		require.Equal(t, a2a.TaskStateInputRequired, asked.Status.State)
		require.Equal(t, "Which city?", asked.Status.Message.Parts[0].Text())
		listed, err := prompted.ListTasks(ctx, &a2a.ListTasksRequest{ContextID: asked.ContextID, Status: a2a.TaskStateInputRequired})
		require.NoError(t, err)
		require.Len(t, listed.Tasks, 1)
		require.Equal(t, asked.ID, listed.Tasks[0].ID)
		answer := says("Oslo", to(asked))
		got := prompted.ask(t, answer)
		require.Equal(t, asked.ID, got.ID, "the same task")
		require.Equal(t, a2a.TaskStateCompleted, got.Status.State)
		require.Equal(t, map[string]any{"city": "Oslo"}, got.Artifacts[0].Parts[0].Data())
		require.Len(t, got.History, 3)
		require.Equal(t, "Oslo", got.History[2].Parts[0].Text())
		require.Equal(t, got, prompted.ask(t, answer), "the answer once more")
		_, err = prompted.SendMessage(ctx, says("Bergen", to(asked)))
		refusedAs(t, a2a.ErrUnsupportedOperation, "RUN_ENDED", err)
	})
	t.Run("AStreamEndsWithAQuestion", func(t *testing.T) {
		asked := hear(t, prompted.SendStreamingMessage(ctx, says("where")))
		require.Equal(t, a2a.TaskStateInputRequired, asked.states[len(asked.states)-1])
		got := hear(t, prompted.SendStreamingMessage(ctx, says("Oslo", to(asked.first))))
		require.Equal(t, a2a.TaskStateCompleted, got.states[len(got.states)-1])
		require.Equal(t, map[string]any{"city": "Oslo"}, got.data)
	})
	for name, c := range map[string]struct {
		approve bool
		want    string
	}{"Approved": {true, "It is paid."}, "Rejected": {false, "It is not paid."}} {
		t.Run("AnApproval/"+name, func(t *testing.T) {
			asked := payer.ask(t, says("pay"))
			require.Equal(t, a2a.TaskStateInputRequired, asked.Status.State)
			require.Equal(t, "May I pay?", asked.Status.Message.Parts[0].Text())
			about := asked.Status.Message.Parts[1].Data().(map[string]any)
			require.Equal(t, "approval", about["kind"])
			require.Equal(t, map[string]any{"cents": 7.0}, about["approve"])
			_, err := payer.SendMessage(ctx, says("yes", to(asked)))
			refusedAs(t, a2a.ErrInvalidParams, "DECISION_MISSING", err)
			decision := about["answerWith"].(map[string]any)
			decision["approve"] = c.approve
			wrong := map[string]any{"approve": true, "approveHash": strings.Repeat("0", 64)}
			_, err = payer.SendMessage(ctx, says("", to(asked), func(m *a2a.Message) { m.Parts = a2a.ContentParts{a2a.NewDataPart(wrong)} }))
			require.Error(t, err, "what was approved is another thing")
			answer := says("", to(asked), func(m *a2a.Message) { m.Parts = a2a.ContentParts{a2a.NewDataPart(decision)} })
			got := payer.ask(t, answer)
			require.Equal(t, asked.ID, got.ID)
			require.Equal(t, c.want, resultOf(t, got))
			require.Equal(t, map[string]any{"approve": c.approve}, got.History[len(got.History)-1].Parts[0].Data())
			require.Equal(t, got, payer.ask(t, answer), "the decision once more")
		})
	}
	t.Run("AContextOfAClientsChoice", func(t *testing.T) {
		one := prompted.ask(t, says("plain", within("ann:desk:a2a")))
		two := prompted.ask(t, says("plain", within("ann:desk:a2a")))
		require.Equal(t, "ann:desk:a2a", one.ContextID)
		require.Equal(t, one.ContextID, two.ContextID)
		require.NotEqual(t, one.ID, two.ID)
		page, err := prompted.ListTasks(ctx, &a2a.ListTasksRequest{ContextID: "ann:desk:a2a", PageSize: 1, IncludeArtifacts: true})
		require.NoError(t, err)
		require.Len(t, page.Tasks, 1)
		require.Equal(t, two.ID, page.Tasks[0].ID)
		require.Equal(t, two.Artifacts, page.Tasks[0].Artifacts)
		page, err = prompted.ListTasks(ctx, &a2a.ListTasksRequest{ContextID: "ann:desk:a2a", PageSize: 1, PageToken: page.NextPageToken})
		require.NoError(t, err)
		require.Equal(t, one.ID, page.Tasks[0].ID)
		require.Empty(t, page.Tasks[0].Artifacts)
		_, err = tooled.SendMessage(ctx, says("weather", within("ann:desk:a2a")))
		refusedAs(t, a2a.ErrInvalidParams, "CONTEXT_OF_ANOTHER", err)
	})
	t.Run("AMessageIsTakenOnce", func(t *testing.T) {
		req := says("weather")
		one, two := tooled.ask(t, req), tooled.ask(t, req)
		require.Equal(t, one.ID, two.ID)
		require.Equal(t, one.ContextID, two.ContextID)
	})
	t.Run("CanceledAtOnce", func(t *testing.T) {
		asked := prompted.ask(t, says("where"))
		got, err := prompted.CancelTask(ctx, &a2a.CancelTaskRequest{ID: asked.ID})
		require.NoError(t, err)
		require.Equal(t, a2a.TaskStateCanceled, got.Status.State)
		_, err = prompted.CancelTask(ctx, &a2a.CancelTaskRequest{ID: asked.ID})
		refusedAs(t, a2a.ErrTaskNotCancelable, "RUN_ENDED", err)
		for _, err := range prompted.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: asked.ID}) {
			refusedAs(t, a2a.ErrUnsupportedOperation, "RUN_ENDED", err)
		}
	})
	t.Run("AnAnswerToComeLater", func(t *testing.T) {
		req := says("where")
		req.Config = &a2a.SendMessageConfig{ReturnImmediately: true}
		first := prompted.ask(t, req)
		testkit.Eventually(t, func() bool {
			got, err := prompted.GetTask(ctx, &a2a.GetTaskRequest{ID: first.ID})
			return err == nil && got.Status.State == a2a.TaskStateInputRequired
		}, "nobody is asked")
		got := hear(t, prompted.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: first.ID}))
		require.Equal(t, a2a.TaskStateInputRequired, got.first.Status.State)
		require.Len(t, got.states, 1, "nothing has changed since")
	})
	t.Run("APausedTask", func(t *testing.T) {
		asked := prompted.ask(t, says("where", within("ann:paused:a2a")))
		_, err := c.Executor.PauseRun(ctx, &executorv1.PauseRunRequest{RunId: string(asked.ID)})
		require.NoError(t, err)
		got := prompted.ask(t, says("Oslo", to(asked)))
		require.Equal(t, a2a.TaskStateWorking, got.Status.State, "it stands still with the answer")
		require.Contains(t, got.Status.Message.Parts[0].Text(), "resumes")
	})
	t.Run("AWorkflow", func(t *testing.T) {
		_, err := c.Workflows.CreateWorkflow(ctx, &registryv1.CreateWorkflowRequest{Slug: "greeter", Source: greeter})
		require.NoError(t, err)
		_, err = c.Workflows.ExposeWorkflow(ctx, &registryv1.ExposeWorkflowRequest{Workflow: "greeter"})
		require.NoError(t, err)
		exposesSilent(t, c)
		var ids []string
		for _, s := range talksTo(t, base).card.Skills {
			ids = append(ids, s.ID)
		}
		require.Equal(t, []string{"agent/payer", "agent/prompted", "agent/silent", "agent/tooled", "workflow/greeter"}, ids, "only what can be spoken to")
		_, err = agentcard.NewResolver(http.DefaultClient).Resolve(ctx, base+"/a2a/mute")
		require.Error(t, err)
		flow := talksTo(t, base+"/a2a/greeter")
		require.Equal(t, "Greeter", flow.card.Name)
		got := flow.ask(t, says("plain"))
		require.Equal(t, "No form at all.", resultOf(t, got))
		require.Equal(t, "plain", got.History[0].Parts[0].Text())
	})
	t.Run("ToWhomMetadataName", func(t *testing.T) {
		got := all.ask(t, says("sun in the north", func(m *a2a.Message) { m.SetMeta("agent", "tooled") }))
		require.Equal(t, "It is sunny in the north.", resultOf(t, got))
		_, err := all.SendMessage(ctx, says("sun in the north"))
		refusedAs(t, a2a.ErrInvalidParams, "AGENT_MISSING", err)
		_, err = prompted.GetTask(ctx, &a2a.GetTaskRequest{ID: got.ID})
		refusedAs(t, a2a.ErrTaskNotFound, "TASK_NOT_FOUND", err)
		_, err = all.GetTask(ctx, &a2a.GetTaskRequest{ID: got.ID})
		require.NoError(t, err)
	})
	t.Run("TheBindingToHTTP", func(t *testing.T) {
		client, err := a2aclient.NewFromEndpoints(ctx, []*a2a.AgentInterface{a2a.NewAgentInterface(base+"/a2a/agent/prompted", a2a.TransportProtocolHTTPJSON)}, a2aclient.WithRESTTransport(http.DefaultClient))
		require.NoError(t, err)
		rest := remote{Client: client}
		asked := rest.ask(t, says("where"))
		require.Equal(t, a2a.TaskStateInputRequired, asked.Status.State)
		got := hear(t, rest.SendStreamingMessage(ctx, says("Oslo", to(asked))))
		require.Equal(t, a2a.TaskStateCompleted, got.states[len(got.states)-1])
		_, err = rest.GetTask(ctx, &a2a.GetTaskRequest{ID: "run_none"})
		require.ErrorIs(t, err, a2a.ErrTaskNotFound)
	})
	t.Run("TheEarlierVersion", func(t *testing.T) {
		client, err := a2aclient.NewFromEndpoints(ctx, []*a2a.AgentInterface{{URL: base + "/a2a/agent/prompted", ProtocolBinding: a2a.TransportProtocolJSONRPC, ProtocolVersion: a2av0.Version}},
			a2aclient.WithCompatTransport(a2av0.Version, a2a.TransportProtocolJSONRPC, a2av0.NewJSONRPCTransportFactory(a2av0.JSONRPCTransportConfig{URL: base + "/a2a/agent/prompted"})))
		require.NoError(t, err)
		old := remote{Client: client}
		asked := old.ask(t, says("where"))
		require.Equal(t, a2a.TaskStateInputRequired, asked.Status.State)
		got := hear(t, old.SendStreamingMessage(ctx, says("Oslo", to(asked))))
		require.Equal(t, a2a.TaskStateCompleted, got.states[len(got.states)-1])
	})
	for name, c := range map[string]struct {
		edit   func(*a2a.SendMessageRequest)
		kind   error
		reason string
	}{
		"NoID":    {func(r *a2a.SendMessageRequest) { r.Message.ID = "" }, a2a.ErrInvalidParams, "MESSAGE_ID_INVALID"},
		"ALongID": {func(r *a2a.SendMessageRequest) { r.Message.ID = strings.Repeat("x", 300) }, a2a.ErrInvalidParams, "MESSAGE_ID_INVALID"},
		"AnAgent": {func(r *a2a.SendMessageRequest) { r.Message.Role = a2a.MessageRoleAgent }, a2a.ErrInvalidParams, "ROLE_INVALID"},
		"NoParts": {func(r *a2a.SendMessageRequest) { r.Message.Parts = a2a.ContentParts{} }, a2a.ErrInvalidParams, "PARTS_INVALID"},
		"AFile":   {func(r *a2a.SendMessageRequest) { r.Message.Parts = a2a.ContentParts{a2a.NewRawPart([]byte("x"))} }, a2a.ErrUnsupportedContentType, "PART_UNSUPPORTED"},
		"Pictures": {func(r *a2a.SendMessageRequest) {
			r.Config = &a2a.SendMessageConfig{AcceptedOutputModes: []string{"image/png"}}
		}, a2a.ErrUnsupportedContentType, "OUTPUT_MODE_UNSUPPORTED"},
		"References": {func(r *a2a.SendMessageRequest) { r.Message.ReferenceTasks = []a2a.TaskID{"run_1"} }, a2a.ErrInvalidParams, "REFERENCES_UNSUPPORTED"},
		"PushIsNotThere": {func(r *a2a.SendMessageRequest) {
			r.Config = &a2a.SendMessageConfig{PushConfig: &a2a.PushConfig{URL: "http://127.0.0.1:9/"}}
		}, a2a.ErrPushNotificationNotSupported, "PUSH_UNSUPPORTED"},
		"NoSuchTask":    {func(r *a2a.SendMessageRequest) { r.Message.TaskID = "run_none" }, a2a.ErrTaskNotFound, "TASK_NOT_FOUND"},
		"NoSuchContext": {func(r *a2a.SendMessageRequest) { r.Message.ContextID = "thr_none" }, a2a.ErrInvalidParams, "THREAD_NOT_FOUND"},
		"Complex":       {func(r *a2a.SendMessageRequest) { r.Message.SetMeta("x", make([]int, 30_000)) }, nil, ""},
	} {
		t.Run("Refuses/"+name, func(t *testing.T) {
			req := says("weather")
			c.edit(req)
			_, err := prompted.SendMessage(ctx, req)
			if c.kind == nil {
				require.Error(t, err)
				return
			}
			refusedAs(t, c.kind, c.reason, err)
		})
	}
	t.Run("Refuses/NobodyAnswers", func(t *testing.T) {
		_, err := agentcard.NewResolver(http.DefaultClient).Resolve(ctx, base+"/a2a/nobody")
		require.Error(t, err)
		status, raw := restCall(t, d.HTTPAddr(), http.MethodPost, "/a2a/nobody", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}}`)
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, string(raw), `"AGENT_NOT_FOUND"`)
	})
	t.Run("Refuses/AnotherVersion", func(t *testing.T) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/a2a/prompted", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{}}`))
		require.NoError(t, err)
		req.Header.Set("A2A-Version", "2.0")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer func() { _ = resp.Body.Close() }()
		var out struct{ Error struct{ Code int } }
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&out))
		require.Equal(t, -32009, out.Error.Code)
	})
}
