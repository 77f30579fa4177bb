package llm_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/llm"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/llm/openai"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// scripted is a provider in this process, for tests of time: the step for a model answers, n counts the
// calls.
type scripted func(ctx context.Context, n int, req llm.Request, delta func(llm.Delta) error) (llm.Response, error)

type scriptedModel struct {
	step scripted
	n    *int
}

func (m scriptedModel) Generate(ctx context.Context, req llm.Request) (llm.Response, error) {
	*m.n++
	return m.step(ctx, *m.n, req, func(llm.Delta) error { return nil })
}

func (m scriptedModel) Stream(ctx context.Context, req llm.Request, delta func(llm.Delta) error) (llm.Response, error) {
	*m.n++
	return m.step(ctx, *m.n, req, delta)
}

func says(text string) llm.Response {
	return llm.Response{Model: "m-2026", Message: llm.Message{Content: text}, FinishReason: llm.FinishStop, Usage: llm.Usage{Input: 3, Output: 2, Known: true}}
}

// chain is a set whose profiles are the steps, each the fallback of the one before.
func chain(t *testing.T, o llm.Options, change func(*llm.Config), steps ...scripted) *llm.Set {
	t.Helper()
	providers := map[string]llm.Provider{}
	c := llm.Config{Default: "p0"}
	for i, step := range steps {
		name := fmt.Sprintf("p%d", i)
		n := 0
		providers[name] = func(llm.Endpoint) (llm.Model, error) { return scriptedModel{step, &n}, nil }
		c.Change(name, func(p *llm.Profile) {
			p.Provider, p.Model = name, "m"+name
			if i == 0 {
				for k := 1; k < len(steps); k++ {
					p.Fallback = append(p.Fallback, fmt.Sprintf("p%d", k))
				}
			}
		})
	}
	if change != nil {
		change(&c)
	}
	set, err := llm.Open(c, providers, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Close()) })
	return set
}

func fails(e llm.Error) scripted {
	return func(context.Context, int, llm.Request, func(llm.Delta) error) (llm.Response, error) {
		return llm.Response{}, &e
	}
}

func answers(text string) scripted {
	return func(context.Context, int, llm.Request, func(llm.Delta) error) (llm.Response, error) {
		return says(text), nil
	}
}

func ask(text string) llm.Request {
	return llm.Request{Messages: []llm.Message{{Role: llm.User, Content: text}}}
}

func fault(t *testing.T, err error) *llm.Error {
	t.Helper()
	var e *llm.Error
	require.ErrorAs(t, err, &e)
	return e
}

var (
	busy    = llm.Error{Class: llm.Retryable, Status: 429, Code: "rate_limit", Message: "busy", RetryAfter: 9 * time.Second}
	busier  = llm.Error{Class: llm.Retryable, Status: 503, Code: "overloaded", Message: "busier", RetryAfter: 4 * time.Second}
	away    = llm.Error{Class: llm.NotPerformed, Code: "CONNECTION", Message: "away"}
	refused = llm.Error{Class: llm.Permanent, Status: 401, Code: "key", Message: "bad key"}
	lost    = llm.Error{Class: llm.Unknown, Code: "CONNECTION", Message: "lost"}
)

func TestFallback(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		steps []scripted
		from  string // the profile that answers, or
		want  llm.Error
	}{
		"FirstAnswers":              {[]scripted{answers("a"), fails(lost)}, "p0", llm.Error{}},
		"RefusedForNow":             {[]scripted{fails(busy), answers("b")}, "p1", llm.Error{}},
		"NotReached":                {[]scripted{fails(away), answers("b")}, "p1", llm.Error{}},
		"PermanentIsFinal":          {[]scripted{fails(refused), answers("b")}, "", refused},
		"UnknownIsFinal":            {[]scripted{fails(lost), answers("b")}, "", lost},
		"AFaultyFallbackIsPassed":   {[]scripted{fails(busy), fails(refused), answers("c")}, "p2", llm.Error{}},
		"AllFail/TheFirstIsTold":    {[]scripted{fails(busy), fails(busier)}, "", llm.Error{Class: llm.Retryable, Status: 429, Code: "rate_limit", Message: "busy; fallback p1: busier", RetryAfter: 4 * time.Second}},
		"AllFail/PermanentInTheEnd": {[]scripted{fails(busy), fails(refused)}, "", llm.Error{Class: llm.Retryable, Status: 429, Code: "rate_limit", Message: "busy; fallback p1: bad key", RetryAfter: 9 * time.Second}},
		"AllFail/AnAnswerIsBooked": {[]scripted{fails(busy), calling(called("a", ""))}, "", llm.Error{Class: llm.Unknown, Code: "MALFORMED", Message: "busy; fallback p1: tool call 1 of the answer has no name",
			Used: []llm.Spent{{Profile: "p1", Provider: "p1", Model: "m-2026", Usage: says("").Usage}}}},
		"AllFail/UnknownWins": {[]scripted{fails(busy), fails(lost), answers("c")}, "", llm.Error{Class: llm.Unknown, Code: "CONNECTION", Message: "busy; fallback p1: lost"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := chain(t, llm.Options{}, nil, tt.steps...).Generate(t.Context(), ask("x"))
			if tt.from != "" {
				require.NoError(t, err)
				require.Equal(t, tt.from, out.Profile)
				require.Equal(t, tt.from, out.Provider)
				require.Equal(t, "m-2026", out.Model, "the model that the server names")
				return
			}
			e := *fault(t, err)
			e.Err = nil
			require.Equal(t, tt.want, e)
		})
	}
	t.Run("AFallbackIsAskedForItsOwnModel", func(t *testing.T) {
		t.Parallel()
		var asked []string
		note := func(then scripted) scripted {
			return func(ctx context.Context, n int, req llm.Request, d func(llm.Delta) error) (llm.Response, error) {
				asked = append(asked, fmt.Sprint(req.Profile, " ", req.Model, " ", req.MaxOutputTokens))
				return then(ctx, n, req, d)
			}
		}
		set := chain(t, llm.Options{}, func(c *llm.Config) {
			c.Change("p1", func(p *llm.Profile) { p.PriceKey, p.MaxOutputTokens = "cheap/tiny", 7 })
		}, note(fails(busy)), note(answers("b")))
		req := ask("x")
		req.Model = "other"
		out, err := set.Generate(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, []string{"p0 other 4096", "p1 mp1 7"}, asked)
		require.Equal(t, "cheap", out.Provider)
		require.Equal(t, "tiny", out.Model)
	})
	t.Run("AStreamThatBeganIsNeverAskedAgain", func(t *testing.T) {
		t.Parallel()
		set := chain(t, llm.Options{}, nil, func(_ context.Context, _ int, _ llm.Request, delta func(llm.Delta) error) (llm.Response, error) {
			if err := delta(llm.Delta{Text: "I beg"}); err != nil {
				return llm.Response{}, err
			}
			return llm.Response{}, &busy
		}, answers("b"))
		_, err := set.Stream(t.Context(), ask("x"), func(llm.Delta) error { return nil })
		require.Equal(t, "rate_limit", fault(t, err).Code)
	})
	t.Run("AFirstTokenThatDoesNotCome", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			set := chain(t, llm.Options{}, func(c *llm.Config) {
				c.Change("p0", func(p *llm.Profile) { p.FirstTokenTimeout = time.Minute })
			}, hangs, answers("b"))
			start := time.Now()
			out, err := set.Stream(t.Context(), ask("x"), func(llm.Delta) error { return nil })
			require.NoError(t, err)
			require.Equal(t, "p1", out.Profile)
			require.Equal(t, time.Minute, time.Since(start))
		})
	})
}

func hangs(ctx context.Context, _ int, _ llm.Request, _ func(llm.Delta) error) (llm.Response, error) {
	<-ctx.Done()
	return llm.Response{}, ctx.Err()
}

func TestRetry(t *testing.T) {
	t.Parallel()
	until := func(good int, e llm.Error) scripted {
		return func(_ context.Context, n int, _ llm.Request, _ func(llm.Delta) error) (llm.Response, error) {
			if n < good {
				return llm.Response{}, &e
			}
			return says(fmt.Sprint("call ", n)), nil
		}
	}
	short := busy
	short.RetryAfter = 0
	for name, tt := range map[string]struct {
		attempts    int
		wait        time.Duration
		step        scripted
		text        string
		least, most time.Duration
	}{
		"AfterTheTimeThatTheServerNames": {3, 10 * time.Second, until(3, busy), "call 3", 18 * time.Second, 18 * time.Second},
		"OnceIsTheDefault":               {1, 10 * time.Second, until(2, busy), "", 0, 0},
		"ALongerWaitIsTheCallers":        {3, 8 * time.Second, until(2, busy), "", 0, 0},
		"GrowingPausesIfItNamesNone":     {4, 10 * time.Second, until(4, short), "call 4", 875 * time.Millisecond, 1750 * time.Millisecond},
		"NotPerformedToo":                {2, 10 * time.Second, until(2, away), "call 2", 125 * time.Millisecond, 250 * time.Millisecond},
		"NeverWhatMayBeDone":             {3, 10 * time.Second, until(2, lost), "", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				set := chain(t, llm.Options{}, func(c *llm.Config) {
					c.Change("p0", func(p *llm.Profile) { p.Retry = llm.Retry{Attempts: tt.attempts, MaxWait: tt.wait} })
				}, tt.step)
				start := time.Now()
				out, err := set.Generate(t.Context(), ask("x"))
				took := time.Since(start)
				require.Equal(t, tt.text == "", err != nil)
				require.Equal(t, tt.text, out.Message.Content)
				require.GreaterOrEqual(t, took, tt.least)
				require.LessOrEqual(t, took, tt.most)
			})
		})
	}
	t.Run("AnEndedCallWaitsNoLonger", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			set := chain(t, llm.Options{}, func(c *llm.Config) {
				c.Change("p0", func(p *llm.Profile) { p.Retry = llm.Retry{Attempts: 3, MaxWait: time.Hour} })
			}, fails(busy))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			start := time.Now()
			_, err := set.Generate(ctx, ask("x"))
			require.Equal(t, "rate_limit", fault(t, err).Code)
			require.Equal(t, time.Second, time.Since(start))
		})
	})
}

func TestLimitsOfTime(t *testing.T) {
	t.Parallel()
	drip := func(pause time.Duration, n int) scripted {
		return func(ctx context.Context, _ int, _ llm.Request, delta func(llm.Delta) error) (llm.Response, error) {
			for range n {
				select {
				case <-time.After(pause):
				case <-ctx.Done():
					return llm.Response{}, ctx.Err()
				}
				if err := delta(llm.Delta{Text: "."}); err != nil {
					return llm.Response{}, err
				}
			}
			return says(strings.Repeat(".", n)), nil
		}
	}
	for name, tt := range map[string]struct {
		step scripted
		code string
		took time.Duration
	}{
		"FirstToken": {drip(31*time.Second, 1), "FIRST_TOKEN_TIMEOUT", 30 * time.Second},
		"Idle": {func(ctx context.Context, n int, req llm.Request, delta func(llm.Delta) error) (llm.Response, error) {
			if _, err := drip(time.Second, 1)(ctx, n, req, delta); err != nil {
				return llm.Response{}, err
			}
			return drip(6*time.Second, 1)(ctx, n, req, delta)
		}, "IDLE_TIMEOUT", 6 * time.Second},
		"Total": {drip(4*time.Second, 100), "TIMEOUT", 60 * time.Second},
		"Reasoning": {func(ctx context.Context, n int, req llm.Request, delta func(llm.Delta) error) (llm.Response, error) {
			return drip(4*time.Second, 10)(ctx, n, req, func(llm.Delta) error { return delta(llm.Delta{}) })
		}, "", 40 * time.Second},
		"None": {drip(4*time.Second, 10), "", 40 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				set := chain(t, llm.Options{}, func(c *llm.Config) {
					c.Change("p0", func(p *llm.Profile) {
						p.Timeout, p.FirstTokenTimeout, p.IdleTimeout = time.Minute, 30*time.Second, 5*time.Second
					})
				}, tt.step)
				start := time.Now()
				_, err := set.Stream(t.Context(), ask("x"), func(llm.Delta) error { return nil })
				require.Equal(t, tt.took, time.Since(start))
				if tt.code == "" {
					require.NoError(t, err)
					return
				}
				e := fault(t, err)
				require.Equal(t, llm.Unknown, e.Class)
				require.Equal(t, tt.code, e.Code)
			})
		})
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	set := chain(t, llm.Options{}, func(c *llm.Config) {
		for name, context := range map[string]int64{"p0": 9000, "p1": 0, "p2": 8000, "alone": 0} {
			c.Change(name, func(p *llm.Profile) { p.ContextTokens, p.MaxOutputTokens = context, 100 })
		}
		c.Change("p2", func(p *llm.Profile) { p.MaxOutputTokens = 200 })
		c.Change("alone", func(p *llm.Profile) { p.Provider, p.Model = "p0", "m" })
	}, answers("a"), answers("b"), answers("c"))
	for name, tt := range map[string]struct {
		profile, model  string
		context, answer int64
	}{
		"ByDefault/TheLeastOfTheFallbacks": {"", "", 8000, 100},
		"OfAProfile":                       {"p2", "other", 8000, 200},
		"ByItsModel":                       {"", "mp2", 8000, 200},
		"NotKnown":                         {"alone", "", 0, 100},
		"NoSuchProfile":                    {"nobody", "", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			context, answer := set.Limits(tt.profile, tt.model)
			require.Equal(t, []int64{tt.context, tt.answer}, []int64{context, answer})
		})
	}
}

func TestContextTokens(t *testing.T) {
	t.Parallel()
	const prompt = 4 + 1000 // by Estimate
	for name, tt := range map[string]struct {
		context, fallback int64
		from, code        string
	}{
		"NotKnown":                       {0, 0, "p0", ""},
		"Enough":                         {prompt + 100, 0, "p0", ""},
		"EnoughIfTheEstimateIsTooHigh":   {prompt*4/5 + 100, 0, "p0", ""},
		"TooSmall":                       {prompt*4/5 + 99, prompt*4/5 + 99, "", "CONTEXT_EXCEEDED"},
		"AFallbackHasRoom":               {200, 0, "p1", ""},
		"AFallbackWithRoomRefusesForNow": {200, -1, "", "rate_limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			second := answers("b")
			if tt.fallback < 0 {
				second, tt.fallback = fails(busy), 0
			}
			g := &governor{}
			set := chain(t, llm.Options{Governor: g}, func(c *llm.Config) {
				c.Accounts = map[string]llm.AccountLimits{"acme": {}}
				c.Change("p0", func(p *llm.Profile) { p.ContextTokens, p.MaxOutputTokens, p.Account = tt.context, 100, "acme" })
				c.Change("p1", func(p *llm.Profile) { p.ContextTokens, p.MaxOutputTokens = tt.fallback, 100 })
			}, answers("a"), second)
			out, err := set.Generate(t.Context(), ask(strings.Repeat("four", 1000)))
			if tt.code == "" {
				require.NoError(t, err)
				require.Equal(t, tt.from, out.Profile)
				return
			}
			e := fault(t, err)
			require.Equal(t, tt.code, e.Code)
			require.Contains(t, e.Message, fmt.Sprintf("the request has about 1004 tokens and max_output_tokens is 100, but profile p0 takes %d", tt.context))
			require.Empty(t, g.notes, "no room of an account is taken")
			if tt.code == "rate_limit" {
				require.Equal(t, llm.Retryable, e.Class, "the fallback can answer later")
			} else {
				require.Equal(t, llm.Permanent, e.Class)
			}
		})
	}
	t.Run("AnAnswerLongerThanCallsMayAskFor", func(t *testing.T) {
		t.Parallel()
		set := chain(t, llm.Options{}, func(c *llm.Config) {
			c.Change("p0", func(p *llm.Profile) { p.OutputLimit = 5000 })
		}, answers("a"), answers("b"))
		req := ask("x")
		req.MaxOutputTokens = 5000
		out, err := set.Generate(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, "p0", out.Profile)
		req.MaxOutputTokens = 5001
		out, err = set.Generate(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, "p1", out.Profile, "the fallback gives more")
		req.MaxOutputTokens = 70_000
		_, err = set.Generate(t.Context(), req)
		require.Contains(t, fault(t, err).Message, "profile p0 gives 5000 at most")
	})
	t.Run("AnAbsurdLimitOfTheAnswer", func(t *testing.T) {
		t.Parallel()
		set := chain(t, llm.Options{}, func(c *llm.Config) { c.Change("p0", func(p *llm.Profile) { p.ContextTokens = 8000 }) }, answers("a"))
		req := ask("x")
		req.MaxOutputTokens = math.MaxInt64
		_, err := set.Generate(t.Context(), req)
		require.Equal(t, "CONTEXT_EXCEEDED", fault(t, err).Code)
	})
}

func TestAccount(t *testing.T) {
	t.Parallel()
	account := func(o llm.Options) string {
		a, _ := chain(t, o, func(c *llm.Config) {
			c.Accounts = map[string]llm.AccountLimits{"acme": {MaxConcurrent: 1}}
			c.Change("p0", func(p *llm.Profile) { p.Account = "acme" })
		}, answers("a")).Account("p0")
		return a.Name
	}
	require.Equal(t, "acme", account(llm.Options{Governor: &governor{}}))
	require.Empty(t, account(llm.Options{}), "nothing is governed, so nothing limits the calls")
}

func TestLabelsAreFew(t *testing.T) {
	t.Parallel()
	reader, spans := metric.NewManualReader(), tracetest.NewSpanRecorder()
	tel := obs.Noop()
	tel.MeterProvider = metric.NewMeterProvider(metric.WithReader(reader))
	tel.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	set := chain(t, llm.Options{Telemetry: tel}, nil, func(_ context.Context, n int, _ llm.Request, _ func(llm.Delta) error) (llm.Response, error) {
		switch n % 4 {
		case 0:
			return says("a"), nil
		case 1:
			return llm.Response{}, &llm.Error{Class: llm.Permanent, Status: 400, Code: fmt.Sprint("code ", n)}
		case 2:
			return llm.Response{}, &llm.Error{Class: llm.Permanent, Code: fmt.Sprint("code ", n)}
		default:
			return llm.Response{}, &refused
		}
	})
	for i := range 100 {
		req := ask("x")
		req.Model = fmt.Sprint("model ", i)
		_, _ = set.Generate(t.Context(), req)
	}
	_, _ = set.Generate(t.Context(), ask("x"))
	var got metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &got))
	labels := map[string]bool{}
	for _, scope := range got.ScopeMetrics {
		for _, m := range scope.Metrics {
			if d, ok := m.Data.(metricdata.Histogram[float64]); ok {
				for _, p := range d.DataPoints {
					model, _ := p.Attributes.Value("gen_ai.request.model")
					kind, _ := p.Attributes.Value("error.type")
					labels[model.AsString()+" "+kind.AsString()] = true
				}
			}
		}
	}
	require.Equal(t, map[string]bool{"other ": true, "other 400": true, "other _OTHER": true, "other 401": true, "mp0 400": true}, labels)
	for _, s := range spans.Ended() {
		require.Contains(t, []string{"chat other", "chat mp0"}, s.Name())
	}
	attributes := map[string]string{}
	for _, kv := range spans.Ended()[7].Attributes() {
		attributes[string(kv.Key)] = kv.Value.String()
	}
	require.Equal(t, "model 7", attributes["gen_ai.request.model"], "a span says what was asked for")
}

func TestCaptureIsBounded(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	tel := obs.Noop()
	tel.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	set := chain(t, llm.Options{Telemetry: tel}, func(c *llm.Config) { c.CaptureContent = true }, answers(strings.Repeat("z", 1<<20)))
	req := ask("the first one")
	for _, text := range []string{strings.Repeat("x", 100<<10), "the newest"} {
		req.Messages = append(req.Messages, llm.Message{Role: llm.User, Content: text})
	}
	_, err := set.Generate(t.Context(), req)
	require.NoError(t, err)
	attributes := map[string]string{}
	for _, kv := range spans.Ended()[0].Attributes() {
		attributes[string(kv.Key)] = kv.Value.String()
	}
	in := attributes["gen_ai.input.messages"]
	require.Less(t, len(in), 66<<10)
	require.Contains(t, in, "the newest")
	require.Contains(t, in, "xxxx…", "of one that does not fit the beginning")
	require.NotContains(t, in, "the first one")
	require.Equal(t, "1", attributes["gen_ai.input.messages.omitted"])
	require.Less(t, len(attributes["gen_ai.output.messages"]), 66<<10)
	require.Contains(t, attributes["gen_ai.output.messages"], "zzzz…")
}

func TestResolve(t *testing.T) {
	t.Parallel()
	set := chain(t, llm.Options{}, nil, answers("a"), answers("b"))
	for _, tt := range []struct{ profile, model, name, asked string }{
		{"", "", "p0", "mp0"}, {"p1", "", "p1", "mp1"}, {"p1", "x", "p1", "x"}, {"", "p1", "p1", "mp1"}, {"", "mp1", "p1", "mp1"}, {"", "mp0", "p0", "mp0"}, {"", "x", "p0", "x"},
	} {
		name, p, err := set.Resolve(tt.profile, tt.model)
		require.NoError(t, err)
		require.Equal(t, tt.name+" "+tt.asked, name+" "+p.Model, "%v", tt)
	}
	_, _, err := set.Resolve("p2", "")
	require.ErrorContains(t, err, `no model profile "p2"; did you mean p`)
	_, err = set.Generate(t.Context(), llm.Request{Profile: "something", Messages: ask("x").Messages})
	e := fault(t, err)
	require.Equal(t, "PROFILE", e.Code)
	require.ErrorContains(t, err, "the profiles are p0, p1")
}

func TestConfig(t *testing.T) {
	t.Parallel()
	c := llm.DefaultConfig()
	require.NoError(t, c.Validate([]string{"openai"}))
	c.Default = "gone"
	c.Accounts = map[string]llm.AccountLimits{"a": {TokensPerMinute: -1}}
	c.Profiles["Bad.Name"] = llm.Profile{}
	c.Change("x", func(p *llm.Profile) {
		p.Provider, p.BaseURL, p.Fallback, p.Account, p.PriceKey, p.Extra = "who", "ftp://x", []string{"x"}, "none", "/m", map[string]string{"f": "text"}
		p.Retry.Attempts, p.IdleTimeout, p.ContextTokens = 99, -1, 4096
	})
	_, err := llm.Open(c, map[string]llm.Provider{"openai": openai.Open}, llm.Options{})
	require.True(t, errs.Is(err, errs.InvalidArgument))
	for _, want := range []string{
		`default is "gone"`, "accounts.a", "profiles.Bad.Name: a name", "profiles.Bad.Name.model", "profiles.Bad.Name.timeout", "profiles.Bad.Name.max_response_bytes",
		`profiles.x.fallback: "x"`, `profiles.x.account: there is no account "none"`, `profiles.x.provider is "who": it is openai`, "profiles.x.base_url", "profiles.x.price_key",
		"profiles.x.extra.f", "profiles.x.retry.attempts", "profiles.x.idle_timeout", "profiles.x.max_output_tokens must be less",
	} {
		require.ErrorContains(t, err, want)
	}
}

func TestAround(t *testing.T) {
	t.Parallel()
	seen := 0
	set := chain(t, llm.Options{Around: func(inner llm.Model) llm.Model {
		n := 0
		return scriptedModel{func(ctx context.Context, _ int, req llm.Request, _ func(llm.Delta) error) (llm.Response, error) {
			seen++
			return inner.Generate(ctx, req)
		}, &n}
	}}, nil, answers("a"))
	_, err := set.Generate(t.Context(), ask("x"))
	require.NoError(t, err)
	_, err = set.Generate(t.Context(), llm.Request{})
	require.Error(t, err)
	require.Equal(t, 1, seen, "a faulty request reaches nobody")
}

// TestSpansOfTries looks at the spans of calls that are made again, or elsewhere.
func TestSpansOfTries(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		attempts int
		want     []string
	}{
		"Fallback": {1, []string{"p0 Error 429", "p1 Unset "}},
		"Retry":    {2, []string{"p0 Error 429", "p0 Error 429", "p1 Unset "}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				spans := tracetest.NewSpanRecorder()
				tel := obs.Noop()
				tel.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
				set := chain(t, llm.Options{Telemetry: tel}, func(cfg *llm.Config) {
					cfg.Change("p0", func(p *llm.Profile) { p.Retry.Attempts = c.attempts })
				}, fails(busy), answers("b"))
				_, err := set.Generate(t.Context(), ask("x"))
				require.NoError(t, err)
				var got []string
				for _, s := range spans.Ended() {
					of := attribute.NewSet(s.Attributes()...)
					profile, _ := of.Value("epigraph.model.profile")
					kind, _ := of.Value("error.type")
					got = append(got, profile.AsString()+" "+s.Status().Code.String()+" "+kind.AsString())
				}
				require.Equal(t, c.want, got)
			})
		})
	}
}

func TestTelemetry(t *testing.T) {
	t.Parallel()
	for _, capture := range []bool{false, true} {
		t.Run(fmt.Sprint("Capture/", capture), func(t *testing.T) {
			t.Parallel()
			fake := fakellm.New(fakellm.Script{Default: fakellm.Reply{Text: "secret answer", Usage: fakellm.Usage{CachedInput: 2, Reasoning: 1}}})
			url, err := fake.Listen("127.0.0.1:0")
			require.NoError(t, err)
			defer func() { require.NoError(t, fake.Close()) }()
			spans, reader := tracetest.NewSpanRecorder(), metric.NewManualReader()
			tel := obs.Noop()
			tel.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
			tel.MeterProvider = metric.NewMeterProvider(metric.WithReader(reader))
			c := llm.DefaultConfig()
			c.CaptureContent = capture
			c.Change("default", func(p *llm.Profile) { p.BaseURL, p.PriceKey = url, "acme" })
			set, err := llm.Open(c, map[string]llm.Provider{"openai": openai.Open}, llm.Options{Telemetry: tel})
			require.NoError(t, err)
			defer func() { require.NoError(t, set.Close()) }()
			_, err = set.Stream(t.Context(), ask("secret question"), func(llm.Delta) error { return nil })
			require.NoError(t, err)
			require.NotEmpty(t, fake.Requests()[0].Header.Get("Traceparent"))

			ended := spans.Ended()
			require.Len(t, ended, 2)
			httpSpan, chat := ended[0], ended[1]
			require.Equal(t, "chat gpt-4o-mini", chat.Name())
			require.Equal(t, chat.SpanContext().SpanID(), httpSpan.Parent().SpanID())
			attrs := map[string]string{}
			for _, kv := range chat.Attributes() {
				attrs[string(kv.Key)] = kv.Value.String()
			}
			for key, want := range map[string]string{
				"gen_ai.operation.name": "chat", "gen_ai.provider.name": "acme", "gen_ai.request.model": "gpt-4o-mini", "epigraph.model.profile": "default",
				"gen_ai.usage.output_tokens": "4", "gen_ai.usage.cache_read.input_tokens": "2", "gen_ai.usage.reasoning.output_tokens": "1", "server.address": "127.0.0.1",
			} {
				require.Equal(t, want, attrs[key], key)
			}
			require.NotEmpty(t, attrs["gen_ai.response.time_to_first_chunk"])
			if capture {
				require.Contains(t, attrs["gen_ai.input.messages"], "secret question")
				require.Contains(t, attrs["gen_ai.output.messages"], "secret answer")
			} else {
				require.NotContains(t, fmt.Sprint(attrs), "secret")
			}
			var got metricdata.ResourceMetrics
			require.NoError(t, reader.Collect(t.Context(), &got))
			counts := map[string]uint64{}
			for _, scope := range got.ScopeMetrics {
				for _, m := range scope.Metrics {
					switch d := m.Data.(type) {
					case metricdata.Histogram[float64]:
						counts[m.Name] += d.DataPoints[0].Count
					case metricdata.Histogram[int64]:
						for _, p := range d.DataPoints {
							counts[m.Name] += p.Count
						}
					}
				}
			}
			require.EqualValues(t, 1, counts["gen_ai.client.operation.duration"])
			require.EqualValues(t, 1, counts["gen_ai.client.operation.time_to_first_chunk"])
			require.EqualValues(t, 2, counts["gen_ai.client.token.usage"])
		})
	}
}
