package a2a

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/workgraph"
)

// rpc are agents of one, x, that streams and answers each method of JSON-RPC by a function.
func rpc(t *testing.T, a Agent, methods map[string]http.HandlerFunc) (*Agents, *agent) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = fmt.Fprintf(w, `{"name": "x", "description": "d", "supportedInterfaces": [{"url": "http://%s/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}], "capabilities": {"streaming": true}, "skills": []}`, r.Host)
			return
		}
		var m struct{ Method string }
		raw, _ := io.ReadAll(r.Body) // else the end of the request is not seen
		_ = json.Unmarshal(raw, &m)
		if f := methods[m.Method]; f != nil {
			f(w, r)
			return
		}
		_, _ = io.WriteString(w, `{"jsonrpc": "2.0", "id": "1", "error": {"code": -32601, "message": "no such method"}}`)
	}))
	t.Cleanup(srv.Close)
	a.URL = srv.URL
	s := of(t, a)
	return s, s.byName["x"]
}

func says(result string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { answer(w, result) }
}

func answer(w io.Writer, result string) {
	_, _ = fmt.Fprintf(w, `{"jsonrpc": "2.0", "id": "1", "result": %s}`, result)
}

// event writes an event of a stream.
func event(w http.ResponseWriter, result string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "data: ")
	answer(w, result)
	_, _ = io.WriteString(w, "\n\n")
	_ = http.NewResponseController(w).Flush()
}

// taskOf is a task in a state, with one artifact if there is a text.
func taskOf(state, text string) string {
	artifacts := "[]"
	if text != "" {
		artifacts = fmt.Sprintf(`[{"artifactId": "a", "parts": [{"text": %q}]}]`, text)
	}
	return fmt.Sprintf(`{"id": "t1", "contextId": "c", "status": {"state": "TASK_STATE_%s"}, "artifacts": %s}`, state, artifacts)
}

// heard is a reporter that keeps what it hears.
type heard struct{ text []string }

func (h *heard) Text(s string)            { h.text = append(h.text, s) }
func (h *heard) Raw(string)               {}
func (h *heard) Progress(json.RawMessage) {}
func (h *heard) Watched() bool            { return true }

func TestTurns(t *testing.T) {
	t.Run("StreamGivesItsTurnBack", func(t *testing.T) {
		open := make(chan struct{}, 100)
		s, ag := rpc(t, Agent{Parallel: 1, Timeout: 5 * time.Second}, map[string]http.HandlerFunc{
			"GetTask": says(taskOf("WORKING", "")),
			"SubscribeToTask": func(w http.ResponseWriter, r *http.Request) {
				event(w, `{"task": `+taskOf("WORKING", "")+`}`)
				open <- struct{}{}
				<-r.Context().Done()
			},
			"SendMessage": says(`{"task": ` + taskOf("COMPLETED", "done") + `}`),
		})
		ag.streamFor = 50 * time.Millisecond
		ctx, cancel := context.WithCancel(actor.WithNamespace(t.Context(), "one"))
		var followed sync.WaitGroup
		followed.Go(func() { _, _ = s.follow(ctx, step(workgraph.Idempotent, 0)) })
		defer followed.Wait()
		defer cancel()
		<-open
		out, err := s.send(actor.WithNamespace(t.Context(), "other"), step(workgraph.Unsafe, 0))
		require.NoError(t, err)
		require.Equal(t, []string{nodeResult}, out.Select.Names)
	})
	t.Run("OneNamespaceHasHalf", func(t *testing.T) {
		_, ag := rpc(t, Agent{Parallel: 4}, nil)
		for range 2 {
			leave, ok := ag.turns.Try("one")
			require.True(t, ok)
			defer leave()
		}
		_, ok := ag.turns.Try("one")
		require.False(t, ok)
		leave, ok := ag.turns.Try("other")
		require.True(t, ok)
		leave()
	})
}

func TestFollow_Resumes(t *testing.T) {
	piece := func(text string) string {
		return fmt.Sprintf(`{"artifactUpdate": {"taskId": "t1", "contextId": "c", "append": true, "artifact": {"artifactId": "a", "parts": [{"text": %q}]}}}`, text)
	}
	// The agent tells "one two " in a first stream, and "three " between that and the second.
	agent := func(t *testing.T, a Agent) (s *Agents, ag *agent, open chan struct{}) {
		var mu sync.Mutex
		streams := 0
		open = make(chan struct{}, 100)
		s, ag = rpc(t, a, map[string]http.HandlerFunc{
			"GetTask": func(w http.ResponseWriter, _ *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				answer(w, taskOf([]string{"WORKING", "WORKING", "COMPLETED"}[streams], []string{"", "one two three ", "one two three four"}[streams]))
			},
			"SubscribeToTask": func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				streams++
				n := streams
				mu.Unlock()
				if n == 1 {
					event(w, `{"task": `+taskOf("WORKING", "one ")+`}`)
					event(w, piece("two "))
				} else {
					event(w, `{"task": `+taskOf("WORKING", "one two three ")+`}`)
					event(w, piece("four"))
				}
				open <- struct{}{}
				<-r.Context().Done()
			},
		})
		ag.streamFor = 200 * time.Millisecond
		return s, ag, open
	}
	t.Run("TextIsToldOnceAndWhole", func(t *testing.T) {
		s, _, _ := agent(t, Agent{})
		var h heard
		out, err := s.follow(actor.WithReporter(t.Context(), &h), step(workgraph.Idempotent, 0))
		require.NoError(t, err)
		require.JSONEq(t, `"one two three four"`, string(out.Values[0]))
		require.Equal(t, []string{"one ", "two ", "three ", "four"}, h.text)
	})
	t.Run("ComesBackLaterWhereOthersWait", func(t *testing.T) {
		s, ag, open := agent(t, Agent{Parallel: 1})
		var h heard
		ctx := actor.WithReporter(t.Context(), &h)
		came := make(chan struct{})
		var others sync.WaitGroup
		others.Go(func() {
			<-open
			if leave, err := ag.turns.Enter(t.Context(), "other"); err == nil {
				<-came
				leave()
			}
		})
		out, err := s.follow(ctx, step(workgraph.Idempotent, 0))
		require.NoError(t, err)
		require.NotNil(t, out.Wait.Timer)
		require.True(t, out.Select.Self)
		close(came)
		others.Wait()
		var p position
		require.NoError(t, json.Unmarshal(out.State[statePosition], &p))
		require.Equal(t, len("one two "), p.Told)
		c := workgraph.NewCall(workgraph.Start{Ref: workgraph.Ref{Node: "n", Visit: 2}, RunID: "run_1", Attempt: 1, Generation: 1}, workgraph.CallOptions{Scope: scope{
			"input": `{"named": {"request": {"agent": "x", "parts": [{"text": "hi"}], "message_id": "m", "effect_key": "k"}}}`,
			"state": `{"task": ` + string(out.State[statePosition]) + `}`}})
		_, err = s.follow(ctx, c)
		require.NoError(t, err)
		require.Equal(t, "one two three four", strings.Join(h.text, ""))
	})
}
