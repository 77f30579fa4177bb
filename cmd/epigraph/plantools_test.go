package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
)

// A plan with tools of the server runs as the model wrote it: values are arguments, and uses of results
// are the results.
func TestPlanWithTools(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []string
	both := make(chan struct{})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		got = append(got, strings.TrimSpace(r.Method+" "+r.URL.String()+" "+body.String()))
		if len(got) == 2 {
			close(both)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"city": "Oslo", "more": "http://%s/more", "n": 7}`, r.Host)
	}))
	defer site.Close()
	text := fmt.Sprintf(`[
{"id": "find", "request": "Find it", "tool": "http", "args": {"url": "%[1]s/find", "query": {"q": "a b"}}, "needs": []},
{"id": "more", "request": "Look further", "tool": "http", "args": {"url": "$find.body.more", "query": {"n": "$find.body.n"}}, "needs": ["find"]},
{"id": "keep", "request": "Keep it", "tool": "http", "args": {"url": "%[1]s/keep", "method": "PUT", "json": {"all": ["$find.body.city"], "text": "in $find.body.city: $more.status"}}, "needs": ["find", "more"]}
]`, site.URL)
	wrong := strings.Replace(text, `{"q": "a b"}`, `{"q": "a b"}, "json": 1, "body": "x"`, 1)
	model := func(texts ...string) fakellm.Script {
		s := fakellm.Script{Default: fakellm.Reply{Text: texts[len(texts)-1]}}
		for _, text := range texts {
			s.Rules = append(s.Rules, fakellm.Rule{Times: 1, Reply: fakellm.Reply{Text: text}})
		}
		return s
	}
	// The last task is written when those before it have been done.
	written := model(text)
	written.Rules[0].Reply.Hold = func(ctx context.Context, sent string) bool {
		if len(sent) < strings.Index(text, `{"id": "keep"`) {
			return true
		}
		select {
		case <-both:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for name, c := range map[string]struct {
		model fakellm.Script
		args  []string
		says  string
	}{
		"Run":    {written, []string{"--run"}, "begun: more"},
		"Create": {model(wrong, text), nil, "round 1: fake-1, 1 fault"},
	} {
		t.Run(name, func(t *testing.T) {
			d := serveWith(t, c.model, func(cfg *stack.Config) { cfg.Executor.Actors.HTTP.AllowPrivate = []string{"127.0.0.0/8"} })
			var out, said bytes.Buffer
			code := cli.Main(t.Context(), build, append([]string{"--addr", d.GRPCAddr(), "plan", "create", "Look it up", "--tool", "http"}, c.args...), cli.IO{Out: &out, Err: &said})
			require.Equal(t, 0, code, "%s\n%s", out.String(), said.String())
			require.Contains(t, said.String(), c.says)
			if name == "Create" {
				require.Equal(t, text+"\n", out.String(), "the executor's faults are told to the model")
				return
			}
			require.Equal(t, []string{"GET /find?q=a+b", "GET /more?n=7", `PUT /keep {"all":["Oslo"],"text":"in Oslo: 200"}`}, got)
		})
	}
}
