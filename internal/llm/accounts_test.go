package llm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/llm/openai"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

// governor notes what it is asked.
type governor struct {
	mu    sync.Mutex
	notes []string
	err   error
	// failed is how the last call ended.
	failed *llm.Error
}

func (g *governor) Admit(_ context.Context, a llm.Account, namespace string, estimate llm.Usage) (llm.Permit, error) {
	g.note(fmt.Sprint(a.Name, " ", a.TokensPerMinute, " ", namespace, " ", estimate.Input, " ", estimate.Output))
	return g, g.err
}

func (g *governor) note(s string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.notes = append(g.notes, s)
}

func (g *governor) Sent() { g.note("sent") }

func (g *governor) Done(used llm.Usage, failed *llm.Error) {
	g.failed = failed
	note := fmt.Sprint("done ", used.Input+used.Output)
	if failed != nil {
		note += " " + failed.Code + " " + failed.RetryAfter.String()
	}
	g.note(note)
}

func TestGovernor(t *testing.T) {
	t.Parallel()
	accounts := func(c *llm.Config) {
		c.Accounts = map[string]llm.AccountLimits{"acme": {RequestsPerMinute: 5, TokensPerMinute: 1000}}
		c.Change("p0", func(p *llm.Profile) { p.Account, p.MaxOutputTokens = "acme", 100 })
	}
	t.Run("IsAskedBeforeEachCallAndToldTheEnd", func(t *testing.T) {
		t.Parallel()
		g := &governor{}
		set := chain(t, llm.Options{Governor: g}, accounts, fails(busy), answers("b"))
		_, err := set.Generate(llm.WithCaller(t.Context(), "team"), ask("12345678"))
		require.NoError(t, err)
		require.Equal(t, []string{"acme 1000 team 6 100", "done 0 rate_limit 9s"}, g.notes, "a profile without an account is not governed")
		g = &governor{}
		_, err = chain(t, llm.Options{Governor: g}, accounts, answers("a")).Generate(t.Context(), ask("12345678"))
		require.NoError(t, err)
		require.Equal(t, []string{"acme 1000  6 100", "done 5"}, g.notes)
	})
	t.Run("IsToldWhenTheRequestLeaves", func(t *testing.T) {
		t.Parallel()
		fake := fakellm.New(fakellm.Script{Default: fakellm.Reply{Text: "yes", Usage: fakellm.Usage{Input: 3, Output: 2}}})
		url, err := fake.Listen("127.0.0.1:0")
		require.NoError(t, err)
		defer func() { require.NoError(t, fake.Close()) }()
		cfg := llm.DefaultConfig()
		cfg.Accounts = map[string]llm.AccountLimits{"acme": {RequestsPerMinute: 5}}
		cfg.Change(llm.DefaultProfile, func(p *llm.Profile) { p.BaseURL, p.Account, p.MaxOutputTokens = url, "acme", 100 })
		g := &governor{}
		set, err := llm.Open(cfg, map[string]llm.Provider{"openai": openai.Open}, llm.Options{Governor: g})
		require.NoError(t, err)
		defer func() { require.NoError(t, set.Close()) }()
		_, err = set.Generate(t.Context(), ask("12345678"))
		require.NoError(t, err)
		_, err = set.Stream(t.Context(), ask("12345678"), func(llm.Delta) error { return nil })
		require.NoError(t, err)
		one := []string{"acme 0  6 100", "sent", "done 5"}
		require.Equal(t, append(one, one...), g.notes)
	})
	t.Run("ARefusalOfAModelThatIsNotTheProfilesDoesNotPauseTheAccount", func(t *testing.T) {
		t.Parallel()
		for model, class := range map[string]llm.Class{"": llm.Retryable, "mp0": llm.Retryable, "elsewhere/free": llm.Permanent} {
			g := &governor{}
			req := ask("x")
			req.Model = model
			_, err := chain(t, llm.Options{Governor: g}, accounts, fails(busy)).Generate(t.Context(), req)
			require.Equal(t, llm.Retryable, fault(t, err).Class, "the caller may try again")
			require.Equal(t, class, g.failed.Class, model)
		}
	})
	t.Run("ARefusalIsNotPerformed", func(t *testing.T) {
		t.Parallel()
		g := &governor{err: errors.New("no room")}
		_, err := chain(t, llm.Options{Governor: g}, accounts, answers("a")).Generate(t.Context(), ask("x"))
		e := fault(t, err)
		require.Equal(t, llm.NotPerformed, e.Class)
		require.Contains(t, e.Message, "acme")
		require.Len(t, g.notes, 1)
	})
}

func TestAPanicGivesThePermitBack(t *testing.T) {
	t.Parallel()
	g := &governor{}
	set := chain(t, llm.Options{Governor: g}, func(c *llm.Config) {
		c.Accounts = map[string]llm.AccountLimits{"acme": {MaxConcurrent: 1}}
		c.Change("p0", func(p *llm.Profile) { p.Account = "acme" })
	}, func(context.Context, int, llm.Request, func(llm.Delta) error) (llm.Response, error) {
		panic("a strange answer")
	})
	require.Panics(t, func() { _, _ = set.Generate(t.Context(), ask("x")) })
	require.Len(t, g.notes, 2)
	require.Contains(t, g.notes[1], "done 0 PANIC")
}

// TestUsageIsBelieved has servers report what no call can have, or nothing: an estimate takes its place.
func TestUsageIsBelieved(t *testing.T) {
	t.Parallel()
	const prompt, answer = 4 + 2, 4 + 1 // by Estimate
	estimate := llm.Usage{Input: prompt, Output: answer}
	for name, tt := range map[string]struct{ reported, want llm.Usage }{
		"AsItIs":       {llm.Usage{Input: 9, CachedInput: 4, Output: 7, Reasoning: 3, Known: true}, llm.Usage{Input: 9, CachedInput: 4, Output: 7, Reasoning: 3, Known: true}},
		"Nothing":      {llm.Usage{}, estimate},
		"Negative":     {llm.Usage{Input: 9, Output: -1, Known: true}, estimate},
		"Absurd":       {llm.Usage{Input: 1 << 60, Output: 7, Known: true}, estimate},
		"PartsOfParts": {llm.Usage{Input: 9, CachedInput: 10, Output: 7, Reasoning: -1, Known: true}, llm.Usage{Input: 9, CachedInput: 9, Output: 7, Known: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := chain(t, llm.Options{}, nil, func(context.Context, int, llm.Request, func(llm.Delta) error) (llm.Response, error) {
				out := says("four")
				out.Usage = tt.reported
				return out, nil
			})
			out, err := set.Generate(t.Context(), ask("12345678"))
			require.NoError(t, err)
			require.Equal(t, tt.want, out.Usage)
		})
	}
}

// TestEarlierCallsAreTold has servers that worked for nothing before one answered.
func TestEarlierCallsAreTold(t *testing.T) {
	t.Parallel()
	cost := func(n int64) llm.Spent {
		return llm.Spent{Profile: "p", Provider: "p", Model: "m", Usage: llm.Usage{Input: n, Known: true}}
	}
	lost := func(costs ...int64) scripted { // each time it is asked, something else
		return func(_ context.Context, n int, _ llm.Request, _ func(llm.Delta) error) (llm.Response, error) {
			return llm.Response{}, &llm.Error{Class: llm.Retryable, Code: "MALFORMED", Message: "none", Used: []llm.Spent{cost(costs[n-1])}}
		}
	}
	again := func(c *llm.Config) {
		c.Change("p0", func(p *llm.Profile) { p.Retry = llm.Retry{Attempts: 2, MaxWait: time.Second} })
	}
	t.Run("Answer/AfterAnAttemptAndAFallback", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			out, err := chain(t, llm.Options{}, again, lost(1, 2), lost(4), answers("a")).Generate(t.Context(), ask("x"))
			require.NoError(t, err)
			require.Equal(t, []llm.Spent{cost(1), cost(2), cost(4)}, out.Earlier)
			require.Equal(t, append(out.Earlier, llm.Spent{Profile: "p2", Provider: "p2", Model: "m-2026", Usage: says("").Usage}), out.Spent())
		})
	})
	t.Run("NoAnswer", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			_, err := chain(t, llm.Options{}, again, lost(1, 2), lost(4)).Generate(t.Context(), ask("x"))
			require.Equal(t, []llm.Spent{cost(1), cost(2), cost(4)}, fault(t, err).Used)
		})
	})
}

// TestCutOffIsPaid has a server that was asked, and that is not heard to the end.
func TestCutOffIsPaid(t *testing.T) {
	t.Parallel()
	fake := fakellm.New(fakellm.Script{Default: fakellm.Reply{Text: strings.Repeat("four ", 100), Delay: time.Hour}})
	url, err := fake.Listen("127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, fake.Close()) }()
	cfg := llm.DefaultConfig()
	cfg.Change(llm.DefaultProfile, func(p *llm.Profile) { p.BaseURL = url })
	set, err := llm.Open(cfg, map[string]llm.Provider{"openai": openai.Open}, llm.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, set.Close()) }()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		testkit.Eventually(t, func() bool { return len(fake.Requests()) > 0 })
		cancel()
	}()
	_, err = set.Generate(ctx, ask("12345678"))
	e := fault(t, err)
	require.Equal(t, llm.Unknown, e.Class)
	require.Equal(t, llm.Usage{Input: 6}, e.Used[0].Usage)
	_, err = set.Generate(ctx, ask("12345678"))
	require.Empty(t, fault(t, err).Used, "it was not asked")
}
