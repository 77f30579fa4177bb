package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// scope is what a step sees of its run.
type scope map[string]string

func (s scope) Var(name string) (json.RawMessage, bool) {
	v, ok := s[name]
	return json.RawMessage(v), ok
}
func (scope) Ancestor(string) (workgraph.NodeResult, bool) { return workgraph.NodeResult{}, false }
func (scope) Ancestors() []string                          { return nil }
func (scope) Rounds(string) []json.RawMessage              { return nil }

// served are agents of one, x, that answers every call by a function.
func served(t *testing.T, answer http.HandlerFunc) *Agents {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			fmt.Fprintf(w, `{"name": "x", "description": "d", "supportedInterfaces": [{"url": "http://%s/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}], "capabilities": {}, "skills": []}`, r.Host)
			return
		}
		answer(w, r)
	}))
	t.Cleanup(srv.Close)
	return of(t, Agent{URL: srv.URL, Timeout: 300 * time.Millisecond, MaxResponseBytes: conf.Bytes(4 << 10)})
}

func of(t *testing.T, a Agent) *Agents {
	t.Helper()
	tel := obs.Noop()
	a.AllowPrivate = []string{"127.0.0.0/8"}
	s, err := New(Config{Agents: map[string]Agent{"x": a}}, Deps{Logger: tel.Logger, TracerProvider: tel.TracerProvider, Propagator: tel.Propagator})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func step(effect workgraph.Effect, polls int) *workgraph.Call {
	return workgraph.NewCall(workgraph.Start{Ref: workgraph.Ref{Node: "n", Visit: 1}, RunID: "run_1", Attempt: 1, Generation: 1, Effect: effect}, workgraph.CallOptions{Scope: scope{
		"input": `{"named": {"request": {"agent": "x", "parts": [{"text": "hi"}], "message_id": "m", "effect_key": "k"}}}`,
		"state": fmt.Sprintf(`{"task": {"agent": "x", "task": "t1", "polls": %d}}`, polls)}})
}

func TestSend(t *testing.T) {
	refuse := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"jsonrpc": "2.0", "id": "1", "error": {"code": %d, "message": "said"}}`, code)
		}
	}
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(code)
		}
	}
	for name, c := range map[string]struct {
		answer         http.HandlerFunc
		unsafe, repeat workgraph.ErrorType
		reason         string
	}{
		"Unauthorized":  {status(401), workgraph.Permanent, workgraph.Permanent, ReasonAuth},
		"Busy":          {status(503), workgraph.NotPerformed, workgraph.Retryable, ReasonDown},
		"BadGateway":    {status(502), workgraph.Unknown, workgraph.Retryable, ReasonDown},
		"InvalidParams": {refuse(-32602), workgraph.Permanent, workgraph.Permanent, ReasonProtocol},
		"Internal":      {refuse(-32603), workgraph.Unknown, workgraph.Retryable, ReasonProtocol},
		"NoJSON":        {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, workgraph.Unknown, workgraph.Retryable, ReasonProtocol},
		"NotFound":      {status(404), workgraph.Unknown, workgraph.Retryable, ReasonProtocol},
		"NoAnswer": {func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // else the end of the request is not seen
			<-r.Context().Done()
		}, workgraph.Unknown, workgraph.Retryable, workgraph.ReasonTimeout},
		"TooLong": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"jsonrpc": "2.0", "id": "1", "result": {"message": {"messageId": "`+strings.Repeat("x", 8<<10)+`"}}}`)
		}, workgraph.Unknown, workgraph.Permanent, ReasonProtocol},
	} {
		for effect, want := range map[workgraph.Effect]workgraph.ErrorType{workgraph.Unsafe: c.unsafe, workgraph.Idempotent: c.repeat} {
			t.Run(name+"/"+string(effect), func(t *testing.T) {
				_, err := served(t, c.answer).send(t.Context(), step(effect, 0))
				e, ok := errors.AsType[*workgraph.Error](err)
				require.True(t, ok, "got %v", err)
				require.Equal(t, want, e.Type, "%v", e)
				require.Equal(t, c.reason, e.Reason)
				if name == "Busy" {
					require.Equal(t, workgraph.Duration(7*time.Second), e.RetryAfter)
				}
			})
		}
	}
	t.Run("Down", func(t *testing.T) {
		_, err := of(t, Agent{URL: "http://127.0.0.1:1"}).send(t.Context(), step(workgraph.Unsafe, 0))
		e, ok := errors.AsType[*workgraph.Error](err)
		require.True(t, ok, "got %v", err)
		require.Equal(t, workgraph.NotPerformed, e.Type)
		require.Contains(t, e.Message, "the host refused the connection")
	})
}

func TestFollow(t *testing.T) {
	working := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"jsonrpc": "2.0", "id": "1", "result": {"id": "t1", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}}`)
	}
	t.Run("LongPauseIsATimer", func(t *testing.T) {
		out, err := served(t, working).follow(t.Context(), step(workgraph.Idempotent, 20))
		require.NoError(t, err)
		require.NotNil(t, out.Wait)
		require.Equal(t, workgraph.Duration(longestPoll), out.Wait.Timer.After)
		require.True(t, out.Select.Self)
		require.Contains(t, string(out.State[statePosition]), `"polls":21`)
	})
	t.Run("CanceledWhileItRests", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := served(t, working).follow(ctx, step(workgraph.Idempotent, 3))
		require.Error(t, err)
	})
	t.Run("TaskIsLost", func(t *testing.T) {
		_, err := served(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"jsonrpc": "2.0", "id": "1", "error": {"code": -32001, "message": "gone"}}`)
		}).follow(t.Context(), step(workgraph.Idempotent, 0))
		e, ok := errors.AsType[*workgraph.Error](err)
		require.True(t, ok, "got %v", err)
		require.Equal(t, ReasonLost, e.Reason)
		require.Equal(t, workgraph.Permanent, e.Type)
	})
}

func TestCall(t *testing.T) {
	asked := func(t *testing.T, a Agent, ns string, start workgraph.Start) (request, workgraph.Child, *workgraph.Children) {
		t.Helper()
		a.URL = "http://127.0.0.1:1"
		s := of(t, a)
		start.RunID, start.Ref, start.Generation = "run_1", workgraph.Ref{Node: "n", Visit: 1}, 1
		if start.Named == nil {
			start.Named = map[string]json.RawMessage{"message": json.RawMessage(`"hi"`)}
		}
		out, err := caller{s.byName["x"]}.Call(actor.WithNamespace(t.Context(), ns), workgraph.NewCall(start, workgraph.CallOptions{}))
		require.NoError(t, err)
		require.Len(t, out.Wait.Children.Runs, 1)
		child := out.Wait.Children.Runs[0]
		var r request
		require.NoError(t, json.Unmarshal(child.Input.Named["request"], &r))
		return r, child, out.Wait.Children
	}
	effectOf := func(c workgraph.Child) workgraph.Effect { return c.Graph.Nodes[0].Effect }
	t.Run("ContextIsThatOfTheThread", func(t *testing.T) {
		a, _, _ := asked(t, Agent{}, "ns", workgraph.Start{Thread: "thr_1"})
		b, _, _ := asked(t, Agent{}, "ns", workgraph.Start{Thread: "thr_2"})
		c, _, _ := asked(t, Agent{}, "other", workgraph.Start{Thread: "thr_1"})
		require.Len(t, map[string]bool{a.Context: true, b.Context: true, c.Context: true}, 3)
		require.False(t, a.Alone)
	})
	t.Run("ContextIsTheAgentsOwn", func(t *testing.T) {
		r, _, _ := asked(t, Agent{OwnContexts: true}, "ns", workgraph.Start{Thread: "thr_1"})
		require.Empty(t, r.Context)
	})
	t.Run("ContextOfACallerIsThatOfItsNamespace", func(t *testing.T) {
		given := workgraph.Start{Named: map[string]json.RawMessage{"message": json.RawMessage(`"hi"`), "context": json.RawMessage(`"support-42"`)}}
		a, _, _ := asked(t, Agent{}, "ns", given)
		again, _, _ := asked(t, Agent{}, "ns", given)
		b, _, _ := asked(t, Agent{}, "other", given)
		require.Equal(t, a.Context, again.Context)
		require.Len(t, map[string]bool{"support-42": true, a.Context: true, b.Context: true}, 3)
		require.False(t, a.Alone)
	})
	t.Run("ContextOfTheAgentGoesOn", func(t *testing.T) {
		s, ag := rpc(t, Agent{OwnContexts: true}, map[string]http.HandlerFunc{"SendMessage": says(`{"task": ` + taskOf("WORKING", "") + `}`)})
		out, err := s.send(actor.WithNamespace(t.Context(), "ns"), step(workgraph.Unsafe, 0))
		require.NoError(t, err)
		var p position
		require.NoError(t, json.Unmarshal(out.State[statePosition], &p))
		require.Equal(t, "c", p.Context)
		id, err := ag.contextOf("ns", p.Conversation)
		require.NoError(t, err)
		require.Equal(t, "c", id)
		_, err = ag.contextOf("other", p.Conversation)
		require.ErrorContains(t, err, "makes the ids of its contexts itself")
		_, err = ag.contextOf("ns", "c")
		require.Error(t, err)
	})
	t.Run("MessageIDIsThatOfTheIntent", func(t *testing.T) {
		a, _, _ := asked(t, Agent{}, "ns", workgraph.Start{Attempt: 1})
		b, _, _ := asked(t, Agent{}, "ns", workgraph.Start{Attempt: 2})
		require.Equal(t, a.MessageID, b.MessageID)
	})
	t.Run("EffectIsUnsafe", func(t *testing.T) {
		_, c, _ := asked(t, Agent{}, "ns", workgraph.Start{Effect: workgraph.Idempotent})
		require.Equal(t, workgraph.Unsafe, effectOf(c))
	})
	t.Run("EffectOfTheConfiguration", func(t *testing.T) {
		_, c, _ := asked(t, Agent{Effect: workgraph.Idempotent}, "ns", workgraph.Start{Effect: workgraph.Idempotent})
		require.Equal(t, workgraph.Idempotent, effectOf(c))
	})
	t.Run("EffectOfTheNode", func(t *testing.T) {
		_, c, _ := asked(t, Agent{Effect: workgraph.Idempotent}, "ns", workgraph.Start{Effect: workgraph.Unsafe})
		require.Equal(t, workgraph.Unsafe, effectOf(c))
	})
	t.Run("TimeoutIsBoundedByTheConfiguration", func(t *testing.T) {
		_, _, w := asked(t, Agent{TaskTimeout: time.Hour}, "ns", workgraph.Start{Named: map[string]json.RawMessage{"message": json.RawMessage(`"hi"`), "timeout": json.RawMessage(`"48h"`)}})
		require.Equal(t, workgraph.Duration(time.Hour), w.Timeout)
	})
	t.Run("GraphIsValid", func(t *testing.T) {
		s := of(t, Agent{URL: "http://127.0.0.1:1"})
		r, err := actor.NewRegistry(s.Parts()...)
		require.NoError(t, err)
		_, err = workgraph.Compile(t.Context(), graph(workgraph.Unsafe), r)
		require.NoError(t, err)
	})
}

func TestCard(t *testing.T) {
	parse := func(t *testing.T, a Agent, url string) error {
		t.Helper()
		a.URL = "https://agent.example/x"
		s := of(t, a)
		_, err := s.byName["x"].parse(t.Context(), []byte(`{"name": "x", "description": "d", "supportedInterfaces": [{"url": "`+url+`", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}], "capabilities": {}, "skills": []}`))
		return err
	}
	t.Run("OfItsOwnHost", func(t *testing.T) { require.NoError(t, parse(t, Agent{}, "https://agent.example/rpc")) })
	t.Run("OfAnotherHost", func(t *testing.T) {
		require.ErrorContains(t, parse(t, Agent{}, "https://evil.example/rpc"), "a2a.agents.x.hosts")
	})
	t.Run("OfAListedHost", func(t *testing.T) {
		require.NoError(t, parse(t, Agent{Hosts: []string{"rpc.example"}}, "https://rpc.example/rpc"))
	})
	t.Run("WithoutTLS", func(t *testing.T) {
		require.Error(t, parse(t, Agent{}, "http://agent.example/rpc"))
	})
	t.Run("WithoutAnAddress", func(t *testing.T) {
		require.ErrorContains(t, parse(t, Agent{}, ""), "no address")
	})
	t.Run("DescriptionIsBounded", func(t *testing.T) {
		c := &sdk.AgentCard{Description: "d", Skills: []sdk.AgentSkill{{Name: "s", Description: strings.Repeat("x", 1<<20)}, {Name: "t"}}}
		require.LessOrEqual(t, len(describe(c)), maxDescription+4)
	})
	for give, want := range map[string]string{
		"https://a.example":                "https://a.example/.well-known/agent-card.json",
		"https://a.example/x/":             "https://a.example/x/.well-known/agent-card.json",
		"https://a.example/card.json":      "https://a.example/card.json",
		"https://a.example/card.json?v=12": "https://a.example/card.json?v=12",
	} {
		t.Run("Address/"+give, func(t *testing.T) { require.Equal(t, want, Agent{URL: give}.cardURL()) })
	}
}

func TestConfig(t *testing.T) {
	for name, c := range map[string]struct {
		name string
		a    Agent
		says string
	}{
		"URL":      {"x", Agent{URL: "agent.example"}, "whole http or https address"},
		"Effect":   {"x", Agent{URL: "https://a.example", Effect: "NONE"}, "effect must be"},
		"Negative": {"x", Agent{URL: "https://a.example", Timeout: -1}, "timeout must not be negative"},
		"Bearer":   {"x", Agent{URL: "https://a.example", Bearer: conf.NewSecret("a"), Headers: map[string]conf.Secret{"authorization": conf.NewSecret("b")}}, "either bearer or"},
		"Host":     {"x", Agent{URL: "https://a.example", Hosts: []string{"https://b.example"}}, "must be a host"},
		"Network":  {"x", Agent{URL: "https://a.example", AllowPrivate: []string{"home"}}, "allow_private"},
		"Name":     {"A B", Agent{URL: "https://a.example"}, "a name has 1 to 63"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorContains(t, Config{Agents: map[string]Agent{c.name: c.a}}.Validate(), c.says)
		})
	}
	t.Run("Good", func(t *testing.T) {
		require.NoError(t, Config{Agents: map[string]Agent{"x": {URL: "https://a.example", Hosts: []string{"b.example:8443"}}}}.Validate())
	})
}
