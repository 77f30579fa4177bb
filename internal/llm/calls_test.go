package llm_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/epigraph-run/epigraph/internal/llm"
)

func called(id, name string) llm.ToolCall {
	return llm.ToolCall{ID: id, Name: name, Arguments: json.RawMessage(`{}`)}
}

// calling answers with tool calls, in a stream piece by piece: the id and the name, and then the arguments.
func calling(calls ...llm.ToolCall) scripted {
	return func(_ context.Context, _ int, _ llm.Request, delta func(llm.Delta) error) (llm.Response, error) {
		for i, c := range calls {
			for _, piece := range []llm.CallDelta{{Index: i, ID: c.ID, Name: c.Name}, {Index: i, Arguments: string(c.Arguments)}} {
				if err := delta(llm.Delta{Call: &piece}); err != nil {
					return llm.Response{}, llm.GaveUp(err)
				}
			}
		}
		out := says("")
		out.Message.ToolCalls, out.Message.Opaque = calls, map[string]json.RawMessage{"p0": json.RawMessage(`"by id"`)}
		return out, nil
	}
}

// conversation is a request that goes on after an answer.
func conversation(m llm.Message) llm.Request {
	req := ask("x")
	req.Messages = append(req.Messages, m)
	for _, c := range m.ToolCalls {
		req.Messages = append(req.Messages, llm.Message{Role: llm.ToolRole, ToolCallID: c.ID, Content: "1"})
	}
	return req
}

// stream is the answer to a request, and the message that its pieces make.
func stream(t *testing.T, set *llm.Set, req llm.Request) (llm.Response, llm.Message, error) {
	t.Helper()
	var a llm.Assembly
	out, err := set.Stream(t.Context(), req, func(d llm.Delta) error {
		require.NoError(t, a.Add(d))
		return nil
	})
	return out, a.Message(), err
}

func TestCallsCanBeAnswered(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		calls []llm.ToolCall
		kept  []int // the places of ids that stay
	}{
		"IDsOfTheirOwn": {[]llm.ToolCall{called("a", "t"), called("b", "t")}, []int{0, 1}},
		"NoIDs":         {[]llm.ToolCall{called("", "t"), called("", "t")}, nil},
		"EqualIDs":      {[]llm.ToolCall{called("a", "t"), called("a", "t"), called("b", "t")}, []int{0, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check := func(out llm.Response) {
				require.Equal(t, llm.FinishToolCalls, out.FinishReason)
				req := conversation(out.Message)
				require.NoError(t, req.Check(), "the conversation can go on")
				for _, i := range tt.kept {
					require.Equal(t, tt.calls[i].ID, out.Message.ToolCalls[i].ID)
				}
				require.Equal(t, len(tt.kept) == len(tt.calls), out.Message.Opaque != nil, "what a provider wants back names the calls by the ids that they had")
			}
			set := chain(t, llm.Options{}, nil, calling(tt.calls...))
			out, err := set.Generate(t.Context(), ask("x"))
			require.NoError(t, err)
			check(out)
			out, told, err := stream(t, set, ask("x"))
			require.NoError(t, err)
			check(out)
			require.Equal(t, told.ToolCalls, out.Message.ToolCalls, "the pieces had the same ids")
		})
	}
	t.Run("AnIDThatComesLateIsNotTold", func(t *testing.T) {
		t.Parallel()
		set := chain(t, llm.Options{}, nil, func(_ context.Context, _ int, _ llm.Request, delta func(llm.Delta) error) (llm.Response, error) {
			for _, piece := range []llm.CallDelta{{Name: "t"}, {ID: "late", Arguments: "{}"}} {
				if err := delta(llm.Delta{Call: &piece}); err != nil {
					return llm.Response{}, llm.GaveUp(err)
				}
			}
			out := says("")
			out.Message.ToolCalls = []llm.ToolCall{called("late", "t")}
			return out, nil
		})
		out, told, err := stream(t, set, ask("x"))
		require.NoError(t, err)
		require.NotEmpty(t, out.Message.ToolCalls[0].ID)
		require.Equal(t, told.ToolCalls, out.Message.ToolCalls)
	})
}

func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	many := make([]llm.ToolCall, 1001)
	for i := range many {
		many[i] = called(fmt.Sprint("c", i), "t")
	}
	for name, tt := range map[string]struct {
		calls []llm.ToolCall
		want  string
	}{
		"CallWithoutAName": {[]llm.ToolCall{called("a", "t"), called("b", "")}, "tool call 2 of the answer has no name"},
		"TooManyCalls":     {many, "tool calls, 1000 at most"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := chain(t, llm.Options{}, nil, calling(tt.calls...))
			_, err := set.Generate(t.Context(), ask("x"))
			e := fault(t, err)
			require.Equal(t, "MALFORMED", e.Code)
			require.Contains(t, e.Message, tt.want)
			require.Equal(t, []llm.Spent{{Profile: "p0", Provider: "p0", Model: "m-2026", Usage: says("").Usage}}, e.Used, "it was paid")
			_, _, err = stream(t, set, ask("x"))
			require.Equal(t, "MALFORMED", fault(t, err).Code)
			require.Contains(t, fault(t, err).Message, tt.want)
		})
	}
	t.Run("AsManyCallsAsMayBe", func(t *testing.T) {
		t.Parallel()
		out, told, err := stream(t, chain(t, llm.Options{}, nil, calling(many[:1000]...)), ask("x"))
		require.NoError(t, err)
		require.Equal(t, told.ToolCalls, out.Message.ToolCalls)
	})
	t.Run("PieceOfACallThatDidNotBegin", func(t *testing.T) {
		t.Parallel()
		var a llm.Assembly
		require.ErrorContains(t, a.Add(llm.Delta{Call: &llm.CallDelta{Index: 1}}), "did not begin")
		for i := range 1000 {
			require.NoError(t, a.Add(llm.Delta{Call: &llm.CallDelta{Index: i}}))
		}
		require.ErrorContains(t, a.Add(llm.Delta{Call: &llm.CallDelta{Index: 1000}}), "more than 1000 tool calls")
	})
	t.Run("WordsOfAServerAreBounded", func(t *testing.T) {
		t.Parallel()
		out, err := chain(t, llm.Options{}, nil, func(context.Context, int, llm.Request, func(llm.Delta) error) (llm.Response, error) {
			long := strings.Repeat("x", 1<<20)
			return llm.Response{ID: long, Model: long, FinishReason: long, Message: llm.Message{Content: "a"}}, nil
		}).Generate(t.Context(), ask("x"))
		require.NoError(t, err)
		for _, word := range []string{out.ID, out.Model, out.FinishReason} {
			require.LessOrEqual(t, len(word), 256, "usage is booked by the model, whose name has no more")
		}
	})
}

// Whatever ids and names a server gives, an answer without error can be answered, and its pieces tell the
// same.
func TestCallsProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		id := rapid.SampledFrom([]string{"", "a", "b", "call_1"})
		calls := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) llm.ToolCall {
			return called(id.Draw(rt, "id"), rapid.SampledFrom([]string{"t", "a/b", ""}).Draw(rt, "name"))
		}), 1, 6).Draw(rt, "calls")
		out, told, err := stream(t, chain(t, llm.Options{}, nil, calling(calls...)), ask("x"))
		if err != nil {
			require.Equal(rt, "MALFORMED", fault(t, err).Code)
			return
		}
		require.Equal(rt, told.ToolCalls, out.Message.ToolCalls)
		req := conversation(out.Message)
		require.NoError(rt, req.Check())
	})
}
