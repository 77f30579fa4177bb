package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
)

// greeter is a workflow that a chat starts.
const greeter = `
name: Greeter
triggers: [chat]
steps:
  - id: greet
    type: agent
    prompt: "{{ inputs.message }}"
`

// exposesSilent exposes a workflow that no chat starts.
func exposesSilent(t *testing.T, c *epigraph.Client) {
	t.Helper()
	_, err := c.Workflows.CreateWorkflow(t.Context(), &registryv1.CreateWorkflowRequest{Slug: "mute", Source: strings.Replace(greeter, "triggers: [chat]\n", "", 1)})
	require.NoError(t, err)
	_, err = c.Workflows.ExposeWorkflow(t.Context(), &registryv1.ExposeWorkflowRequest{Workflow: "mute"})
	require.NoError(t, err)
}

// TestCompletions speaks to agents and workflows with the client of OpenAI.
func TestCompletions(t *testing.T) {
	d := serveAgents(t, talkers, fakellm.Script{Answer: func(r fakellm.Request) (fakellm.Reply, bool) {
		last, tools := r.Messages[len(r.Messages)-1].Content, len(r.Tools) > 0
		if strings.Contains(last, "count") { // tells how much the model was told
			n := 0
			for _, m := range r.Messages {
				n += strings.Count(m.Content, "tea")
			}
			return fakellm.Reply{Text: "tea was said " + string(rune('0'+n)) + " times"}, true
		}
		return talker(last, tools), true
	}})
	client := openai.NewClient(option.WithBaseURL("http://"+d.HTTPAddr()+"/v1"), option.WithAPIKey(d.APIKey()), option.WithMaxRetries(0))
	ctx := t.Context()
	ask := func(model, text string, opts ...option.RequestOption) (*openai.ChatCompletion, error) {
		return client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)}}, opts...)
	}
	stream := func(t *testing.T, model, text string, opts ...option.RequestOption) openai.ChatCompletionAccumulator {
		t.Helper()
		s := client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(text)},
			StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}}, opts...)
		var all openai.ChatCompletionAccumulator
		for s.Next() {
			require.True(t, all.AddChunk(s.Current()), "a piece of the same answer")
		}
		require.NoError(t, s.Err())
		return all
	}

	refused := func(t *testing.T, status int, code string, err error) {
		t.Helper()
		e, ok := errors.AsType[*openai.Error](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, status, e.StatusCode)
		require.Equal(t, code, e.Code)
		require.NotEmpty(t, e.Message)
	}
	t.Run("AnAgent", func(t *testing.T) {
		var raw *http.Response
		got, err := ask("agent/prompted", "weather", option.WithResponseInto(&raw), option.WithJSONSet("temperature", 0.3))
		require.NoError(t, err)
		require.Equal(t, "Sun <in the north>, and nothing else.", got.Choices[0].Message.Content)
		require.Equal(t, "stop", got.Choices[0].FinishReason)
		require.Equal(t, "agent/prompted", got.Model)
		require.Positive(t, got.Usage.TotalTokens)
		require.Equal(t, "temperature", raw.Header.Get("Epigraph-Unused"))
		require.True(t, strings.HasPrefix(raw.Header.Get("Epigraph-Thread"), "thr_"))
	})
	t.Run("ABareName", func(t *testing.T) {
		got, err := ask("tooled", "sun in the north")
		require.NoError(t, err)
		require.Equal(t, "agent/tooled", got.Model)
	})
	t.Run("AStream", func(t *testing.T) {
		all := stream(t, "agent/tooled", "weather")
		require.Equal(t, "I look.\n\nIt is sunny in the north.", all.Choices[0].Message.Content)
		require.Positive(t, all.Usage.TotalTokens)
		require.Equal(t, "Sun <in the north>, and nothing else.", stream(t, "agent/silent", "weather").Choices[0].Message.Content, "what is not streamed comes at the end")
	})
	t.Run("AQuestionAndItsAnswer", func(t *testing.T) {
		on := option.WithHeader("Epigraph-Thread", "ann:desk")
		got, err := ask("agent/prompted", "where", on)
		require.NoError(t, err)
		require.Equal(t, "Which city?", got.Choices[0].Message.Content)
		got, err = ask("agent/prompted", "Oslo", on)
		require.NoError(t, err)
		require.JSONEq(t, `{"city": "Oslo"}`, got.Choices[0].Message.Content)
	})
	t.Run("AnApprovalIsNoMessage", func(t *testing.T) {
		got, err := ask("agent/payer", "pay")
		require.NoError(t, err)
		require.Contains(t, got.Choices[0].Message.Content, `"cents":7`)
		var more struct {
			Epigraph struct {
				Interrupt string `json:"interrupt_id"`
			} `json:"epigraph"`
		}
		require.NoError(t, json.Unmarshal([]byte(got.RawJSON()), &more))
		require.Contains(t, got.Choices[0].Message.Content, more.Epigraph.Interrupt)
		require.NotEmpty(t, more.Epigraph.Interrupt)
	})
	t.Run("TheHistoryOfTheRequest", func(t *testing.T) {
		got, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{Model: "tooled", Messages: []openai.ChatCompletionMessageParamUnion{
			openai.SystemMessage("Only tea is served."), openai.UserMessage("tea?"), openai.AssistantMessage("There is tea."), openai.UserMessage("count it"),
		}})
		require.NoError(t, err)
		require.Equal(t, "tea was said 3 times", got.Choices[0].Message.Content)
	})
	t.Run("OnceWithAKey", func(t *testing.T) {
		once := option.WithHeader("Idempotency-Key", "k1")
		one, err := ask("tooled", "weather", once)
		require.NoError(t, err)
		two, err := ask("tooled", "weather", once)
		require.NoError(t, err)
		require.Equal(t, one.ID, two.ID, "the same run")
	})
	t.Run("ARepeatedQuestion", func(t *testing.T) {
		on, once := option.WithHeader("Epigraph-Thread", "ann:again"), option.WithHeader("Idempotency-Key", strings.Repeat("k", 300))
		one, err := ask("agent/prompted", "where", on, once)
		require.NoError(t, err)
		two, err := ask("agent/prompted", "where", on, once)
		require.NoError(t, err)
		require.Equal(t, one.ID, two.ID)
		require.Equal(t, "Which city?", two.Choices[0].Message.Content)
	})
	t.Run("AMessageBehindAnApproval", func(t *testing.T) {
		on := option.WithHeader("Epigraph-Thread", "ann:till")
		_, err := ask("agent/payer", "pay", on)
		require.NoError(t, err)
		_, err = ask("agent/payer", "well?", on)
		refused(t, http.StatusBadRequest, "RUN_ASKS", err)
	})
	t.Run("AThreadOfAnotherUser", func(t *testing.T) {
		on := option.WithHeader("Epigraph-Thread", "ann:own")
		_, err := ask("agent/prompted", "plain", on, option.WithJSONSet("user", "ann"))
		require.NoError(t, err)
		_, err = ask("agent/prompted", "plain", on, option.WithJSONSet("user", "bob"))
		refused(t, http.StatusBadRequest, "THREAD_OF_ANOTHER", err)
	})
	t.Run("APausedRun", func(t *testing.T) {
		c, err := epigraph.Dial(d.GRPCAddr())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		got, err := ask("prompted", "where", option.WithHeader("Epigraph-Thread", "ann:paused"))
		require.NoError(t, err)
		run := strings.TrimPrefix(got.ID, "chatcmpl-")
		_, err = c.Executor.PauseRun(ctx, &executorv1.PauseRunRequest{RunId: run})
		require.NoError(t, err)
		_, err = ask("prompted", "Oslo", option.WithHeader("Epigraph-Thread", "ann:paused"))
		refused(t, http.StatusBadRequest, "RUN_PAUSED", err)
	})
	t.Run("AWorkflow", func(t *testing.T) {
		c, err := epigraph.Dial(d.GRPCAddr())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		exposesSilent(t, c)
		_, err = c.Workflows.CreateWorkflow(ctx, &registryv1.CreateWorkflowRequest{Slug: "greeter", Source: greeter})
		require.NoError(t, err)
		_, err = c.Workflows.ExposeWorkflow(ctx, &registryv1.ExposeWorkflowRequest{Workflow: "greeter"})
		require.NoError(t, err)
		got, err := ask("greeter", "plain")
		require.NoError(t, err)
		require.Equal(t, "No form at all.", got.Choices[0].Message.Content)
		require.Equal(t, "workflow/greeter", got.Model)
		models, err := client.Models.List(ctx)
		require.NoError(t, err)
		var names []string
		for _, m := range models.Data {
			names = append(names, m.ID)
		}
		require.Equal(t, []string{"agent/payer", "agent/prompted", "agent/silent", "agent/tooled", "workflow/greeter"}, names)
	})

	t.Run("NobodyAnswers", func(t *testing.T) {
		_, err := ask("gpt-nothing", "hello")
		refused(t, http.StatusNotFound, "model_not_found", err)
	})
	for name, c := range map[string]struct{ field, value, code string }{
		"Tools":    {"tools", `[{"type": "function", "function": {"name": "f"}}]`, "unsupported_parameter"},
		"Schema":   {"response_format", `{"type": "json_object"}`, "unsupported_parameter"},
		"Several":  {"n", "2", "unsupported_parameter"},
		"Unknown":  {"shade", `"red"`, "unsupported_parameter"},
		"NoUser":   {"messages", `[{"role": "assistant", "content": "hi"}]`, "invalid_request_error"},
		"Nothing":  {"messages", `[]`, "invalid_request_error"},
		"Pictures": {"messages", `[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]`, "unsupported_parameter"},
		"NoText":   {"model", "7", "invalid_request_error"},
	} {
		t.Run("Refuses/"+name, func(t *testing.T) {
			_, err := ask("tooled", "hello", option.WithJSONSet(c.field, json.RawMessage(c.value)))
			refused(t, http.StatusBadRequest, c.code, err)
		})
	}
}
