//go:build chaos

package chaos_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/sleep"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

const (
	accountTokens = 120_000
	// accountMinutes are those that are measured, after the first one.
	accountMinutes = 2
	// accountCalls are the calls of one run of the loud namespace.
	accountCalls = 100
	// accountPause is what the provider asks for when it refuses a call.
	accountPause = 6 * time.Second
)

// modelRun is a run of so many calls of the model that do not wait for each other. Answers have 3 to 100
// tokens of the 120 that are asked for.
func modelRun(calls int, prompt func(i int) string) *executorv1.StartRunRequest {
	g := &graphv1.Graph{}
	for i := range calls {
		g.Nodes = append(g.Nodes, &graphv1.Node{Id: fmt.Sprint("n", i), Actor: "llm", Named: map[string]*graphv1.Payload{
			"request": {Json: fmt.Appendf(nil, "%q", prompt(i))}, "max_output_tokens": {Json: []byte("120")}},
			Retry: &graphv1.Retry{MaxAttempts: 5}})
	}
	return &executorv1.StartRunRequest{Graph: g}
}

// shout starts runs, as many as the executor takes of a namespace, until ctx ends.
func shout(ctx context.Context, c executorv1.ExecutorServiceClient, name string) {
	for i := 0; ctx.Err() == nil; i++ {
		_, err := c.StartRun(ctx, modelRun(accountCalls, func(k int) string { return fmt.Sprint([]string{"short", "long"}[k%2], " ", name, " ", i, " ", k) }))
		if err != nil { // it has as many as it may
			sleep.For(ctx, 200*time.Millisecond)
		}
	}
}

// TestModelAccount has a loud and a quiet namespace call one model account through three executors, and
// measures at the model's server: what it gets in any 60 seconds, how long the quiet namespace waits, and
// what a refusal of one call does to the calls of all.
func TestModelAccount(t *testing.T) {
	var mu sync.Mutex
	quiet := map[string]time.Time{} // when a prompt arrived
	var refused time.Time
	server := fakellm.New(fakellm.Script{
		Limits: &fakellm.Limits{Tokens: accountTokens, Interval: time.Minute},
		Answer: func(r fakellm.Request) (fakellm.Reply, bool) {
			last := r.Messages[len(r.Messages)-1].Content
			switch {
			case strings.Contains(last, "quiet"):
				mu.Lock()
				defer mu.Unlock()
				quiet[last] = time.Now()
				if strings.Contains(last, "refuse") && refused.IsZero() {
					refused = time.Now()
					return fakellm.Reply{Fault: fakellm.RateLimit, RetryAfter: accountPause}, true
				}
			case strings.Contains(last, "long"):
				return fakellm.Reply{Text: strings.Repeat("abc ", 100), Delay: 1200 * time.Millisecond}, true
			}
			return fakellm.Reply{Text: strings.Repeat("abc ", 3), Delay: 600 * time.Millisecond}, true
		},
	})
	url, err := server.Listen("127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Close()) }()
	c := newCluster(t, clusterOptions{store: "postgres", replicas: 3, settings: []string{
		"models.profiles.default.base_url=" + url, "models.profiles.default.account=acc", fmt.Sprintf("models.accounts.acc.tokens_per_minute=%d", accountTokens)}})
	of := func(ns string) (out []executorv1.ExecutorServiceClient) {
		for _, r := range c.replicas {
			conn, err := grpckit.Dial(c.addr(r.name), grpckit.DialOptions{Namespace: ns})
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			out = append(out, executorv1.NewExecutorServiceClient(conn))
		}
		return out
	}
	loud, still := of("loud"), of("quiet")
	begun := time.Now()
	shouting, hush := context.WithCancel(t.Context())
	defer hush()
	for i := range loud {
		go shout(shouting, loud[i], fmt.Sprint(i))
	}
	call := func(ctx context.Context, i int, prompt string) time.Duration {
		asked := time.Now()
		r, err := still[i%3].StartRun(ctx, modelRun(1, func(int) string { return prompt }))
		require.NoError(t, err)
		completes(ctx, t, still[i%3], r.GetId())
		mu.Lock()
		defer mu.Unlock()
		at, ok := quiet[prompt]
		require.True(t, ok)
		return at.Sub(asked)
	}
	var waits []time.Duration
	for i := 0; time.Since(begun) < (1+accountMinutes)*time.Minute; i++ {
		waits = append(waits, call(t.Context(), i, fmt.Sprint("quiet ", i)))
		sleep.For(t.Context(), time.Second)
	}
	end := time.Now()
	uses := server.Meter().Uses()
	_, most := fakellm.Most(uses, time.Minute)
	tokens := func(from, to time.Time) (n int64) {
		for _, u := range server.Meter().Uses() {
			if !u.At.Before(from) && u.At.Before(to) {
				n += u.Tokens
			}
		}
		return n
	}
	used := float64(tokens(begun.Add(time.Minute), end)) / (accountTokens * end.Sub(begun.Add(time.Minute)).Minutes())
	slices.Sort(waits)
	t.Logf("%d calls, %d refused; most tokens in any 60 s: %d of %d; used after the first minute: %.1f %%; %d calls of the quiet namespace waited %s (median) to %s",
		len(uses), server.Meter().Refused(), most, accountTokens, 100*used, len(waits), waits[len(waits)/2], waits[len(waits)-1])
	require.LessOrEqual(t, most, int64(accountTokens))
	require.Zero(t, server.Meter().Refused())
	require.GreaterOrEqual(t, used, 0.95)
	require.Less(t, waits[len(waits)*95/100], 2*time.Second)

	before := time.Now()
	call(t.Context(), 0, "quiet, refuse this")
	mu.Lock()
	from := refused
	mu.Unlock()
	require.False(t, from.IsZero())
	var after time.Duration // until when calls that had begun arrived
	for _, u := range server.Meter().Uses() {
		if d := u.At.Sub(from); d > 0 && d < accountPause {
			after = max(after, d)
		}
	}
	sleep.For(t.Context(), time.Until(from.Add(accountPause+20*time.Second)))
	slow := float64(tokens(from.Add(accountPause), from.Add(accountPause+20*time.Second))) / (accountTokens / 3)
	t.Logf("after a refusal %s into the run, the last call of all executors arrived %s later; in the 20 s after the pause %.0f %% of the rate was used",
		before.Sub(begun).Round(time.Second), after, 100*slow)
	require.Less(t, after, time.Second)
	require.Less(t, slow, 0.8)
	require.Greater(t, slow, 0.3)
}
