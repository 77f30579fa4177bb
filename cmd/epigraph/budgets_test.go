package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/cli"
	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
	"github.com/epigraph-run/epigraph/workgraph"
)

// spender runs graphs of model calls under caps.
type spender struct {
	*testing.T
	d     *stack.Dev
	c     *epigraph.Client
	calls atomic.Int64 // of the model
}

// serve starts a server with a scripted model, and a client of it.
func (s *spender) serve(script fakellm.Script, change func(*stack.Config)) {
	s.Helper()
	s.d = serveWith(s.T, script, change)
	c, err := epigraph.Dial(s.d.GRPCAddr(), epigraph.WithRegistry("passthrough:///"+s.d.GRPCAddr()))
	require.NoError(s, err)
	s.Cleanup(func() { require.NoError(s, c.Close()) })
	s.c = c
}

// command runs the command line, and returns what it prints.
func (s *spender) command(args ...string) string {
	s.Helper()
	var o, e bytes.Buffer
	code := cli.Main(s.Context(), build, append([]string{"--addr", s.d.GRPCAddr()}, args...), cli.IO{In: strings.NewReader(""), Out: &o, Err: &e})
	require.Equal(s, 0, code, "%v: %s%s", args, o.String(), e.String())
	return o.String()
}

func (s *spender) task() *registryv1.Task {
	s.Helper()
	e, err := s.c.Registry.CreateEpic(s.Context(), &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "goal"}})
	require.NoError(s, err)
	v, err := s.c.Registry.CreateTask(s.Context(), &registryv1.CreateTaskRequest{Task: &registryv1.Task{EpicId: e.GetId(), Title: "work"}})
	require.NoError(s, err)
	return v
}

// start begins a run of three model calls in a row.
func (s *spender) start(opts ...epigraph.StartOption) *epigraph.Run {
	s.Helper()
	b := workgraph.NewBuilder("three")
	for i, id := range []string{"a", "b", "c"} {
		b.Node(id, "llm", workgraph.Named("request", "hello"), workgraph.Named("max_output_tokens", 50), workgraph.Named("upstream", false))
		if i > 0 {
			b.Edge([]string{"a", "b", "c"}[i-1], id)
		}
	}
	r, err := s.c.StartRun(s.Context(), b.Graph(), opts...)
	require.NoError(s, err)
	return r
}

// paused waits until the run is paused for a cap, and returns why.
func (s *spender) paused(r *epigraph.Run) string {
	s.Helper()
	s.reaches(r, executorv1.RunState_RUN_STATE_PAUSED)
	return s.command("runs", "explain", r.ID)
}

func (s *spender) reaches(r *epigraph.Run, state executorv1.RunState) {
	s.Helper()
	var last *executorv1.Run
	defer func() {
		if s.Failed() {
			s.Logf("run: %v\n%s", last, s.command("runs", "explain", r.ID))
		}
	}()
	testkit.Eventually(s, func() bool {
		m, err := s.c.Executor.GetRun(s.Context(), &executorv1.GetRunRequest{RunId: r.ID})
		require.NoError(s, err)
		last = m
		return m.GetState() == state && (state != executorv1.RunState_RUN_STATE_PAUSED || m.GetStateReason() == "CAP_REACHED")
	})
}

func (s *spender) budget(name string) *registryv1.Budget {
	s.Helper()
	b, err := s.c.Budget(s.Context(), name)
	require.NoError(s, err)
	return b
}

// TestBudgetsAbove lets caps of an epic and of a namespace stop runs of several model calls.
func TestBudgetsAbove(t *testing.T) {
	s := &spender{T: t}
	s.serve(fakellm.Script{Answer: func(fakellm.Request) (fakellm.Reply, bool) {
		s.calls.Add(1)
		return fakellm.Reply{Text: "done", Usage: fakellm.Usage{Input: 3, Output: 4}}, true
	}}, func(cfg *stack.Config) {
		cfg.Models.Change(cfg.Models.Default, func(p *llm.Profile) { p.PriceKey = "nobody/unpriced-1" })
	})

	t.Run("Epic/StopsItsRunAndLetsItGoOnOnceItIsRaised", func(t *testing.T) {
		s.T = t
		v := s.task()
		name := "epic/" + v.GetEpicId()
		s.command("budgets", "set", "--epic", v.GetEpicId(), "--hard-tokens", "1")
		r := s.start(epigraph.Task(v.GetId()))
		why := s.paused(r)
		require.Zero(t, s.calls.Load())
		asks := regexp.MustCompile(`a call of up to (\d+) tokens does not fit: epic (\S+) has spent 0 and reserved 0 of 1`).FindStringSubmatch(why)
		require.Len(t, asks, 3, why)
		require.Equal(t, v.GetEpicId(), asks[2])
		require.Contains(t, why, "`epigraph budgets set --epic "+v.GetEpicId()+" --hard-tokens N` raises the cap")
		one, err := strconv.ParseInt(asks[1], 10, 64)
		require.NoError(t, err)

		s.command("budgets", "set", "--epic", v.GetEpicId(), "--hard-tokens", asks[1])
		testkit.Eventually(t, func() bool { return s.calls.Load() == 1 }, "what fits exactly is made")
		testkit.Eventually(t, func() bool { return s.budget(name).GetSpentTokens() == 7 })
		why = s.paused(r)
		require.Contains(t, why, "does not fit")
		b := s.budget(name)
		require.EqualValues(t, 1, s.calls.Load())
		require.LessOrEqual(t, b.GetSpentTokens()+b.GetReservedTokens(), one)

		s.command("budgets", "set", "--epic", v.GetEpicId(), "--hard-tokens", strconv.FormatInt(2*one+14, 10))
		s.reaches(r, executorv1.RunState_RUN_STATE_COMPLETED)
		require.EqualValues(t, 3, s.calls.Load())
		testkit.Eventually(t, func() bool { b = s.budget(name); return b.GetSpentTokens() == 21 && b.GetReservedTokens() == 0 })
	})
	t.Run("Namespace/CapOfMoneyRefusesUnknownPricesUntilThereIsOne", func(t *testing.T) {
		s.T = t
		s.calls.Store(0)
		s.command("budgets", "set", "--hard-usd", "1", "--soft-usd", "0")
		r := s.start()
		why := s.paused(r)
		require.Contains(t, why, "the price of the call is not known")
		require.Contains(t, why, "epigraph prices set")
		require.Zero(t, s.calls.Load())
		s.command("prices", "set", "unpriced-1", "--input", "1", "--output", "1")
		s.reaches(r, executorv1.RunState_RUN_STATE_COMPLETED)
		testkit.Eventually(t, func() bool {
			b := s.budget("namespace")
			return b.GetSpentNanoUsd() == 3*7*1000 && b.GetReservedNanoUsd() == 0
		})
		require.Contains(t, s.command("budgets", "show"), "the soft cap is exceeded")
		require.Contains(t, s.command("budgets", "set", "--hard-usd", "none", "--soft-usd", "none"), "hard cap: none")
	})
	t.Run("Epic/WhoseBudgetIsTooSmallForTheNextCallSaysWhatIsLeft", func(t *testing.T) {
		s.T = t
		v := s.task()
		s.command("epics", "update", v.GetEpicId(), "--budget-usd", "0.000001")
		r := s.start(epigraph.Task(v.GetId()))
		why := s.paused(r)
		require.NotContains(t, why, "nano-USD")
		require.Regexp(t, `a call of up to \$0\.\d+ does not fit: epic \S+ has spent \$0\.00 and reserved \$0\.00 of \$0\.000001`, why)
		require.Contains(t, why, "`epigraph budgets set --epic "+v.GetEpicId()+" --hard-usd X` raises the cap")
		require.Contains(t, s.command("runs", "explain", r.ID, "--json"), "nano-USD", "programs get exact amounts")
		var shown, notes bytes.Buffer
		require.Equal(t, 4, cli.Main(t.Context(), build, []string{"--addr", s.d.GRPCAddr(), "runs", "watch", r.ID}, cli.IO{In: strings.NewReader(""), Out: &shown, Err: &notes}))
		require.Contains(t, notes.String(), "`epigraph budgets set …` raises the cap")
		require.NotContains(t, notes.String(), "runs resume")
		require.NotContains(t, shown.String(), "nano-USD")

		s.command("epics", "run", v.GetEpicId())
		testkit.Eventually(t, func() bool {
			return strings.Contains(s.command("epics", "show", v.GetEpicId()), "paused: BUDGET_EXHAUSTED: the next call may use more than what is left of the budget, $0.000001")
		})
	})
	t.Run("REST/SetsAndShowsCaps", func(t *testing.T) {
		s.T = t
		name, rest := "epic/"+s.task().GetEpicId(), &doors{Dev: s.d}
		code, b := rest.call(t, http.MethodPut, "/v1/budgets/"+name, `{"hard": {"nanoUsd": "5000000000"}}`, nil)
		require.Equal(t, http.StatusOK, code, "%v", b)
		code, b = rest.call(t, http.MethodGet, "/v1/budgets/"+name, "", nil)
		require.Equal(t, http.StatusOK, code, "%v", b)
		require.Equal(t, map[string]any{"nanoUsd": "5000000000"}, b["hard"])
		code, _ = rest.call(t, http.MethodPut, "/v1/budgets/"+name, `{"etag": "\"1/-/-/-\"", "hard": {}}`, nil)
		require.Equal(t, http.StatusConflict, code, "the caps are others")
	})
	t.Run("None/OfACapAboveLeavesRunsAlone", func(t *testing.T) {
		s.T = t
		s.calls.Store(0)
		r := s.start()
		s.reaches(r, executorv1.RunState_RUN_STATE_COMPLETED)
		require.EqualValues(t, 3, s.calls.Load())
		require.Zero(t, s.budget("namespace").GetReservedTokens())
	})
}

// TestEstimates asks for calls that state no limit of their answers. They are estimated at the limit of their
// profile, or, if that says so, at what most calls of their model put out once enough are known.
func TestEstimates(t *testing.T) {
	for name, usual := range map[string]bool{"TheLimitOfTheProfile": false, "WhatCallsOfTheModelPutOut": true} {
		t.Run(name, func(t *testing.T) {
			s := &spender{T: t}
			s.serve(fakellm.Script{Answer: func(fakellm.Request) (fakellm.Reply, bool) {
				return fakellm.Reply{Text: "done", Usage: fakellm.Usage{Input: 3, Output: 4}}, true
			}}, func(cfg *stack.Config) {
				cfg.Models.Change(cfg.Models.Default, func(p *llm.Profile) { p.ReserveUsual = usual })
			})
			begin := func(limit int, opts ...epigraph.StartOption) *epigraph.Run {
				with := []func(*workgraph.Node){workgraph.Named("request", "hello")}
				if limit > 0 {
					with = append(with, workgraph.Named("max_output_tokens", limit))
				}
				b := workgraph.NewBuilder("one")
				b.Node("a", "llm", with...)
				r, err := s.c.StartRun(t.Context(), b.Graph(), opts...)
				require.NoError(t, err)
				return r
			}
			capped := func(limit int) *epigraph.Run {
				v := s.task()
				s.command("budgets", "set", "--epic", v.GetEpicId(), "--hard-tokens", "1000")
				return begin(limit, epigraph.Task(v.GetId()))
			}
			waits := capped(0)
			require.Regexp(t, `a call of up to 4\d\d\d tokens does not fit`, s.paused(waits), "without history it is the limit of the profile")
			// Samples take places by chance: 60 calls fill far more than the 20 that are needed.
			for range 60 {
				s.reaches(begin(0), executorv1.RunState_RUN_STATE_COMPLETED)
			}
			if usual {
				s.reaches(waits, executorv1.RunState_RUN_STATE_COMPLETED)
			} else {
				require.Regexp(t, `a call of up to 4\d\d\d tokens does not fit`, s.paused(capped(0)))
			}
			require.Regexp(t, `a call of up to 40\d\d tokens does not fit`, s.paused(capped(4000)), "a limit of its own goes before history")
		})
	}
}

// TestBudgetOfChildren lets two children side by side want all that their parent has left.
func TestBudgetOfChildren(t *testing.T) {
	s := &spender{T: t}
	s.serve(fakellm.Script{Answer: func(fakellm.Request) (fakellm.Reply, bool) {
		s.calls.Add(1)
		return fakellm.Reply{Text: "done", Usage: fakellm.Usage{Input: 3, Output: 50}}, true
	}}, func(*stack.Config) {})
	const used, most = 53, 400 // tokens of a call
	ask := func(id string) string {
		return `{"id": "` + id + `", "actor": "llm", "named": {"request": "hello", "max_output_tokens": 50, "upstream": false}}`
	}
	child := `{"graph": {"nodes": [` + ask("a") + `, ` + ask("b") + `, ` + ask("c") + `, ` + ask("d") + `, ` + ask("e") + `, ` + ask("f") + `],
		"edges": [{"from": "a", "to": "b"}, {"from": "b", "to": "c"}, {"from": "c", "to": "d"}, {"from": "d", "to": "e"}, {"from": "e", "to": "f"}]}}`
	b := workgraph.NewBuilder("parent")
	b.Node("kids", "spawn", workgraph.Named("runs", json.RawMessage(`[`+child+`, `+child+`]`)))
	const limit = used + most
	r, err := s.c.StartRun(t.Context(), b.Graph(), epigraph.BudgetTokens(limit))
	require.NoError(t, err)
	var kids []*executorv1.Run
	stopped := func() bool {
		m, err := s.c.Executor.ListRuns(t.Context(), &executorv1.ListRunsRequest{ParentRunId: r.ID})
		require.NoError(t, err)
		kids = m.GetRuns()
		for _, k := range kids {
			if k.GetState() != executorv1.RunState_RUN_STATE_PAUSED || k.GetStateReason() != "CAP_REACHED" {
				return false
			}
		}
		return len(kids) == 2
	}
	sum := func() (n int64) {
		for _, k := range kids {
			n += k.GetUsage().GetInputTokens() + k.GetUsage().GetOutputTokens()
		}
		return n
	}
	testkit.Eventually(t, stopped, "%v", kids)
	require.LessOrEqual(t, sum(), int64(limit))
	require.Equal(t, used*s.calls.Load(), sum())
	require.Less(t, s.calls.Load(), int64(12))
	why := s.command("runs", "explain", kids[0].GetId())
	require.Contains(t, why, "run "+r.ID+" has spent")
	require.Contains(t, why, "`epigraph runs resume "+r.ID+" --budget-tokens N` gives it more")

	s.command("runs", "resume", r.ID, "--budget-tokens", "100000")
	s.reaches(r, executorv1.RunState_RUN_STATE_COMPLETED)
	require.EqualValues(t, 12, s.calls.Load())
}

// TestBudgetOfChildrenGivenLate gives a run a budget whose children have used much of it already.
func TestBudgetOfChildrenGivenLate(t *testing.T) {
	s := &spender{T: t}
	const used, before, limit = 53, 6, 6*53 + 150 // used is the tokens of a call
	goOn := make(chan struct{})
	s.serve(fakellm.Script{Answer: func(fakellm.Request) (fakellm.Reply, bool) {
		if s.calls.Add(1) > before {
			<-goOn
		}
		return fakellm.Reply{Text: "done", Usage: fakellm.Usage{Input: 3, Output: 50}}, true
	}}, func(*stack.Config) {})
	var nodes, edges []string
	for i := range 6 {
		nodes = append(nodes, fmt.Sprintf(`{"id": "n%d", "actor": "llm", "named": {"request": "hello", "max_output_tokens": 50, "upstream": false}}`, i))
		if i > 0 {
			edges = append(edges, fmt.Sprintf(`{"from": "n%d", "to": "n%d"}`, i-1, i))
		}
	}
	child := `{"graph": {"nodes": [` + strings.Join(nodes, ", ") + `], "edges": [` + strings.Join(edges, ", ") + `]}}`
	b := workgraph.NewBuilder("parent")
	b.Node("kids", "spawn", workgraph.Named("runs", json.RawMessage(`[`+child+`, `+child+`]`)))
	r, err := s.c.StartRun(t.Context(), b.Graph())
	require.NoError(t, err)
	booked := func() int64 {
		run, err := s.c.Executor.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: r.ID})
		require.NoError(t, err)
		return run.GetUsage().GetBookedInputTokens() + run.GetUsage().GetBookedOutputTokens()
	}
	testkit.Eventually(t, func() bool { return booked() == used*before })
	s.command("runs", "resume", r.ID, "--budget-tokens", strconv.Itoa(limit))
	both := func(is func(*executorv1.Run) bool) func() bool {
		return func() bool {
			m, err := s.c.Executor.ListRuns(t.Context(), &executorv1.ListRunsRequest{ParentRunId: r.ID})
			require.NoError(t, err)
			return len(m.GetRuns()) == 2 && !slices.ContainsFunc(m.GetRuns(), func(k *executorv1.Run) bool { return !is(k) })
		}
	}
	testkit.Eventually(t, both(func(k *executorv1.Run) bool { return k.GetBudget() != nil }), "the children have heard of it")
	close(goOn)
	testkit.Eventually(t, both(func(k *executorv1.Run) bool { // one may have come to its end
		return k.GetState() == executorv1.RunState_RUN_STATE_PAUSED || k.GetState() == executorv1.RunState_RUN_STATE_COMPLETED
	}))
	require.LessOrEqual(t, used*s.calls.Load(), int64(limit+2*used), "the calls under way when it came are beyond it")
}

// TestNamespaceCapStopsAnEpic lets a cap of the namespace stop an epic that runs by itself, and its run. A
// raise continues both.
func TestNamespaceCapStopsAnEpic(t *testing.T) {
	s := &spender{T: t}
	s.serve(fakellm.Script{Answer: func(fakellm.Request) (fakellm.Reply, bool) {
		s.calls.Add(1)
		return fakellm.Reply{Text: "done", Usage: fakellm.Usage{Input: 3, Output: 4}}, true
	}}, func(*stack.Config) {})
	rest := &doors{Dev: s.d}
	code, made := rest.call(t, http.MethodPost, "/v1/workflows", `{"slug": "letter", "source": "name: Letter\nsteps:\n  - {id: write, type: agent, prompt: Write.}\n"}`, nil)
	require.Equal(t, http.StatusOK, code, "%v", made)
	v := s.task()
	_, err := s.c.Registry.CreateTask(t.Context(), &registryv1.CreateTaskRequest{Task: &registryv1.Task{EpicId: v.GetEpicId(), Title: "more"}})
	require.NoError(t, err)
	s.command("budgets", "set", "--hard-tokens", "1")
	s.command("epics", "run", v.GetEpicId(), "--workflow", "letter", "--parallel", "1")
	shown := ""
	testkit.Eventually(t, func() bool {
		shown = s.command("epics", "show", v.GetEpicId())
		return strings.Contains(shown, "paused: NAMESPACE_CAP_REACHED: the next call does not fit under the cap of the namespace")
	}, "%s", &shown)
	var run string
	testkit.Eventually(t, func() bool {
		got, err := s.c.Registry.GetTask(t.Context(), &registryv1.GetTaskRequest{TaskId: v.GetId()})
		require.NoError(t, err)
		run = got.GetRunId()
		return run != ""
	})
	testkit.Eventually(t, func() bool {
		shown = s.command("runs", "explain", run)
		return strings.Contains(shown, "does not fit: namespace has spent 0 and reserved 0 of 1")
	}, "%s", &shown)
	require.Zero(t, s.calls.Load())

	s.command("budgets", "set", "--hard-tokens", "1000000")
	testkit.Eventually(t, func() bool {
		shown = s.command("epics", "show", v.GetEpicId())
		return strings.Contains(shown, "tasks: 2 of 2 completed") && strings.Contains(shown, "completed")
	}, "%s", &shown)
	require.EqualValues(t, 2, s.calls.Load())
}

// TestSoftCap has calls ask a cheaper model while the epic of their run is over its soft cap.
func TestSoftCap(t *testing.T) {
	s := &spender{T: t}
	s.serve(fakellm.Script{Default: fakellm.Reply{Text: "done", Usage: fakellm.Usage{Input: 3, Output: 4}}}, func(cfg *stack.Config) {
		cheap := cfg.Models.Profiles[cfg.Models.Default]
		cheap.Model = "cheap-1"
		cfg.Models.Profiles["cheap"] = cheap
		cfg.Models.Change(cfg.Models.Default, func(p *llm.Profile) { p.WhenSoftCap = "cheap" })
	})
	v := s.task()
	s.command("budgets", "set", "--epic", v.GetEpicId(), "--soft-tokens", "0")
	r := s.start(epigraph.Task(v.GetId()))
	s.reaches(r, executorv1.RunState_RUN_STATE_COMPLETED)
	list, err := s.c.Registry.ListUsage(t.Context(), &registryv1.ListUsageRequest{TaskId: v.GetId()})
	require.NoError(t, err)
	require.Len(t, list.GetEntries(), 3)
	for _, e := range list.GetEntries() {
		require.Equal(t, "cheap-1", e.GetModel())
	}
}
