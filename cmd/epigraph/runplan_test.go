package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	plannerv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/planner/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
	"github.com/epigraph-run/epigraph/sdk/worker"
)

// author is a model that writes plans by the goal. A plan stops in front of its last task until it is let on.
type author struct {
	mu    sync.Mutex
	plans map[string]*writtenPlan
}

type writtenPlan struct {
	// answers are those of the rounds; the last one repeats.
	answers []string
	asked   int
	// at is closed when the text of the first answer in front of its last task was sent; on lets the rest
	// come.
	at, on chan struct{}
}

// plan lets the model write these answers for a goal.
func (a *author) plan(goal string, answers ...string) *writtenPlan {
	w := &writtenPlan{answers: answers, at: make(chan struct{}), on: make(chan struct{})}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.plans[goal] = w
	return w
}

func (a *author) answer(r fakellm.Request) (fakellm.Reply, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for goal, w := range a.plans {
		if len(r.Messages) < 2 || !strings.Contains(r.Messages[1].Content, goal) {
			continue
		}
		text := w.answers[min(w.asked, len(w.answers)-1)]
		first := w.asked == 0
		w.asked++
		reply := fakellm.Reply{Text: text}
		if until := strings.LastIndex(text, `{"id"`); first && r.Stream {
			var once sync.Once
			reply.Hold = func(ctx context.Context, sent string) bool {
				if len(sent) < until {
					return true
				}
				once.Do(func() { close(w.at) })
				select {
				case <-w.on:
					return true
				case <-ctx.Done():
					return false
				}
			}
		}
		return reply, true
	}
	return fakellm.Reply{}, false
}

// trip is a plan of tasks; each is an id, a tool and what it needs.
func trip(tasks ...[]string) string {
	lines := make([]string, len(tasks))
	for i, t := range tasks {
		needs, _ := json.Marshal(append([]string{}, t[2:]...))
		lines[i] = `{"id": "` + t[0] + `", "request": "do ` + t[0] + `", "tool": "` + t[1] + `", "needs": ` + string(needs) + `}`
	}
	return "[\n" + strings.Join(lines, ",\n") + "\n]"
}

// planEvents reads the events of a plan until stop says so, or to the end.
type planEvents struct {
	run    *plannerv1.PlanRunStarted
	parts  []*plannerv1.PlanPart
	result *plannerv1.CreatePlanResponse
}

func (e *planEvents) take(m *plannerv1.StreamPlanResponse) {
	switch {
	case m.GetRun() != nil:
		e.run = m.GetRun()
	case m.GetPart() != nil:
		e.parts = append(e.parts, m.GetPart())
	case m.GetResult() != nil:
		e.result = m.GetResult()
	}
}

// nodes are the nodes that were started, or that wait.
func (e *planEvents) nodes(started bool) (out []string) {
	for _, p := range e.parts {
		for _, n := range p.GetNodes() {
			if p.GetStarted() == started {
				out = append(out, n.GetId())
			}
		}
	}
	return out
}

func TestRunPlan(t *testing.T) {
	model := &author{plans: map[string]*writtenPlan{}}
	d := serve(t, fakellm.Script{Models: []string{"fake-1"}, Answer: model.answer})
	c, err := epigraph.Dial(d.GRPCAddr(), epigraph.WithPlanner(d.GRPCAddr()), epigraph.WithRegistry("passthrough:///"+d.GRPCAddr()))
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	ctx := testkit.Context(t, time.Minute)
	done := make(chan string, 1000)
	w := worker.New(c, worker.Options{})
	type task struct {
		Request string `json:"request"`
	}
	work := func(_ context.Context, in task) (string, error) {
		done <- in.Request
		if strings.Contains(in.Request, "explode") {
			return "", worker.Permanent("EXPLODED", errors.New("it did"))
		}
		return "done: " + in.Request, nil
	}
	worker.Register(w, "look", work, worker.Effect(worker.Idempotent))
	worker.Register(w, "book", work, worker.Effect(worker.Unsafe))
	working, rest := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	defer func() { rest(); <-ended }()
	require.NoError(t, w.Ready(ctx))
	tools := []epigraph.AuthorOption{epigraph.PlanTool("look", "looks", nil), epigraph.PlanTool("book", "books", nil)}

	// ask begins a plan and reads its events until stop says so. rest reads the others.
	ask := func(t *testing.T, ctx context.Context, goal string, start []epigraph.StartOption, stop func(*planEvents) bool) (e *planEvents, rest func() error) {
		t.Helper()
		e = &planEvents{}
		type pair struct {
			m   *plannerv1.StreamPlanResponse
			err error
		}
		all := make(chan pair, 10_000)
		go func() {
			defer close(all)
			for m, err := range c.RunPlan(ctx, goal, start, tools...) {
				all <- pair{m, err}
			}
		}()
		read := func(stop func(*planEvents) bool) error {
			for !stop(e) {
				p, ok := <-all
				if !ok {
					return nil
				}
				if p.err != nil {
					return p.err
				}
				e.take(p.m)
			}
			return nil
		}
		require.NoError(t, read(stop))
		return e, func() error { return read(func(*planEvents) bool { return false }) }
	}
	// asked waits until these requests are worked on.
	asked := func(t *testing.T, want ...string) {
		t.Helper()
		got := map[string]bool{}
		for range want {
			select {
			case r := <-done:
				got[r] = true
			case <-ctx.Done():
				require.Fail(t, "nothing begins", "begun are %v", got)
			}
		}
		for _, r := range want {
			require.True(t, got[r], "%q in %v", r, got)
		}
	}
	state := func(t *testing.T, id string) *executorv1.Run {
		t.Helper()
		r, err := c.Run(id).Wait(ctx)
		require.NoError(t, err)
		return r
	}

	t.Run("BeginsWhileTheModelWritesAndEndsAsTheWholePlan", func(t *testing.T) {
		text := trip([]string{"a", "look"}, []string{"pay", "book", "a"}, []string{"b", "look", "a"}, []string{"end", "look", "b", "pay"}, []string{"last", "look", "end"})
		p := model.plan("Oslo", text)
		e, rest := ask(t, ctx, "Oslo", []epigraph.StartOption{epigraph.RequestID("oslo"), epigraph.Label("trip", "oslo"), epigraph.Named("team", "north")}, func(e *planEvents) bool {
			return len(e.nodes(true)) == 2 && len(e.nodes(false)) == 2
		})
		<-p.at
		asked(t, "do a", "do b")
		require.Equal(t, []string{"a", "b"}, e.nodes(true))
		require.Equal(t, []string{"pay", "end"}, e.nodes(false), "an UNSAFE task waits, and what needs it")
		var waits []string
		for _, p := range e.parts {
			waits = append(waits, p.GetWaits())
		}
		require.Subset(t, waits, []string{"its call may be UNSAFE to repeat", `it needs "pay", which waits`})
		require.Empty(t, done, "nothing else has begun")
		run, err := c.Run(e.run.GetRunId()).Get(ctx)
		require.NoError(t, err)
		require.False(t, epigraph.Ended(run.GetState()))
		require.Equal(t, "oslo", run.GetLabels()["trip"])
		close(p.on)
		require.NoError(t, rest())
		asked(t, "do pay", "do end", "do last")
		run = state(t, e.run.GetRunId())
		require.Equal(t, executorv1.RunState_RUN_STATE_COMPLETED, run.GetState())

		again, err := c.StartGraph(ctx, e.result.GetGraph(), epigraph.Named("team", "north"))
		require.NoError(t, err)
		plain := state(t, again.ID)
		require.Equal(t, plain.GetGraphHash(), run.GetGraphHash(), "the graph is that of the plan that was written first")
		require.Equal(t, string(plain.GetResult().GetJson()), string(run.GetResult().GetJson()))
		asked(t, "do a", "do b", "do pay", "do end", "do last")

		repeated, rest := ask(t, ctx, "Oslo", []epigraph.StartOption{epigraph.RequestID("oslo"), epigraph.Label("trip", "oslo"), epigraph.Named("team", "north")}, func(e *planEvents) bool { return e.run != nil })
		require.NoError(t, rest())
		require.Equal(t, e.run.GetRunId(), repeated.run.GetRunId())
		require.True(t, repeated.run.GetExisting())
		require.Nil(t, repeated.result)
		require.Equal(t, 1, p.asked, "no model is asked again")
		for _, err := range c.RunPlan(ctx, "Bergen", []epigraph.StartOption{epigraph.RequestID("oslo"), epigraph.Label("trip", "oslo"), epigraph.Named("team", "north")}, tools...) {
			require.Equal(t, "REQUEST_ID_REUSED", epigraph.ReasonOf(err), "another plan is another request")
		}
	})
	t.Run("AMendedPlanKeepsWhatHasBegun", func(t *testing.T) {
		right := trip([]string{"a", "look"}, []string{"b", "look", "a"})
		p := model.plan("Rome", strings.Replace(right, `["a"]`, `["x"]`, 1), strings.Replace(right, "do a", "do it another way", 1), right)
		close(p.on)
		e, rest := ask(t, ctx, "Rome", nil, func(e *planEvents) bool { return e.run != nil })
		require.NoError(t, rest())
		require.Len(t, e.result.GetAuthoring().GetRounds(), 3)
		require.Equal(t, "TASK_STARTED", e.result.GetAuthoring().GetRounds()[1].GetDiagnostics()[0].GetCode())
		asked(t, "do a", "do b")
		require.Equal(t, executorv1.RunState_RUN_STATE_COMPLETED, state(t, e.run.GetRunId()).GetState())
		require.Empty(t, done, "no task has begun twice")
	})
	t.Run("WithoutAPlanTheRunIsCanceled", func(t *testing.T) {
		p := model.plan("Lima", strings.Replace(trip([]string{"a", "look"}, []string{"b", "look", "a"}), `["a"]`, `["x"]`, 1))
		close(p.on)
		e, rest := ask(t, ctx, "Lima", nil, func(e *planEvents) bool { return e.run != nil })
		require.NoError(t, rest())
		require.Nil(t, e.result.GetGraph())
		require.Equal(t, plannerv1.AuthorEnd_AUTHOR_END_NO_PROGRESS, e.result.GetAuthoring().GetEnd())
		run := state(t, e.run.GetRunId())
		require.Equal(t, executorv1.RunState_RUN_STATE_CANCELED, run.GetState())
		require.Contains(t, lastCancel(t, c, run.GetId()), "no plan came (no progress)")
		for len(done) > 0 { // the first task may have begun
			<-done
		}
	})
	t.Run("ACallerWhoGoesCancelsTheRun", func(t *testing.T) {
		p := model.plan("Cairo", trip([]string{"a", "look"}, []string{"b", "look", "a"}))
		here, leave := context.WithCancel(ctx)
		e, rest := ask(t, here, "Cairo", nil, func(e *planEvents) bool { return len(e.nodes(true)) == 1 })
		<-p.at
		leave()
		require.Error(t, rest())
		run := state(t, e.run.GetRunId())
		require.Equal(t, executorv1.RunState_RUN_STATE_CANCELED, run.GetState())
		require.Contains(t, lastCancel(t, c, run.GetId()), "the caller went away")
		asked(t, "do a")
	})
	t.Run("ATaskThatFailsEndsTheAuthoring", func(t *testing.T) {
		p := model.plan("Delhi", trip([]string{"explode", "look"}, []string{"b", "look"}, []string{"c", "look"}, []string{"d", "look"}))
		e, rest := ask(t, ctx, "Delhi", nil, func(e *planEvents) bool { return len(e.nodes(true)) > 0 })
		run := state(t, e.run.GetRunId())
		require.Equal(t, executorv1.RunState_RUN_STATE_FAILED, run.GetState())
		close(p.on)
		require.Equal(t, "PLAN_RUN_ENDED", epigraph.ReasonOf(rest()))
		for len(done) > 0 {
			<-done
		}
	})
	t.Run("WhatTheExecutorRefusesCostsNoMoney", func(t *testing.T) {
		p := model.plan("Paris", trip([]string{"a", "look"}))
		for _, err := range c.RunPlan(ctx, "Paris", []epigraph.StartOption{epigraph.Task("task_nowhere")}, tools...) {
			require.Error(t, err)
		}
		for _, err := range c.RunPlan(ctx, "Paris", []epigraph.StartOption{epigraph.BusinessKey("x", executorv1.ConflictPolicy_CONFLICT_POLICY_RETURN_EXISTING)}, tools...) {
			require.ErrorContains(t, err, "no policy")
		}
		require.Zero(t, p.asked)
	})
	t.Run("REST/EventsAndLines", func(t *testing.T) {
		p := model.plan("Quito", trip([]string{"a", "look"}, []string{"b", "look", "a"}))
		close(p.on)
		body := `{"plan": {"goal": "Quito", "tools": [{"name": "look"}]}, "run": {"labels": {"by": "rest"}}}`
		post := func(accept string) (string, []string) {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.HTTPAddr()+"/v1/plans:stream", strings.NewReader(body))
			require.NoError(t, err)
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", accept)
			res, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			defer res.Body.Close()
			var lines []string
			for in := bufio.NewScanner(res.Body); in.Scan(); {
				lines = append(lines, in.Text())
			}
			require.Equal(t, http.StatusOK, res.StatusCode, lines)
			return res.Header.Get("Content-Type"), lines
		}
		kind, lines := post("text/event-stream")
		require.Equal(t, "text/event-stream; charset=utf-8", kind)
		all := strings.Join(lines, "\n")
		for _, want := range []string{"event: run\n", "event: text\n", "event: part\n", "event: result\n", `"started":true`} {
			require.Contains(t, all, want)
		}
		kind, lines = post("application/json")
		require.Equal(t, "application/x-ndjson", kind)
		for _, l := range lines {
			require.True(t, json.Valid([]byte(l)), l)
		}
		require.Contains(t, lines[0], `"runId"`)
		require.Contains(t, lines[len(lines)-1], `"graphHash"`)
		asked(t, "do a", "do b", "do a", "do b")
		body = `{"plan": {"goal": "Quito", "profile": "nobody"}}`
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.HTTPAddr()+"/v1/plans:stream", strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		require.Equal(t, http.StatusBadRequest, res.StatusCode)
		var told bytes.Buffer
		_, err = told.ReadFrom(res.Body)
		require.NoError(t, err)
		require.Contains(t, told.String(), "UNKNOWN_PROFILE")
	})
}

// lastCancel is the reason of a canceled run, as its history has it.
func lastCancel(t *testing.T, c *epigraph.Client, id string) string {
	t.Helper()
	for ev, err := range c.Run(id).EventsAfter(t.Context(), &executorv1.WatchRunRequest{DurableOnly: true}) {
		require.NoError(t, err)
		if m := ev.String(); strings.Contains(m, "cancel") && strings.Contains(m, "plan") {
			return m
		}
	}
	return ""
}
