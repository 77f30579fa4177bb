package workgraph

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCache(t *testing.T) {
	t.Run("EqualCall/IsAnsweredUntilItsTTL", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			actors := Actors{"x": ActorFunc(func(_ context.Context, c *Call) (Outcome, error) {
				calls++
				return Outcome{Values: []json.RawMessage{js(calls)}, Usage: []Usage{{Model: "m", InputTokens: 1}}}, nil
			})}
			g := NewBuilder("").Add(Node{ID: "n", Actor: "x", Effect: Pure, Cache: &Cache{TTL: Duration(time.Minute)}}).Graph()
			p, err := Compile(t.Context(), g, actors)
			require.NoError(t, err)
			run := func(arg string) Result {
				res, err := p.Run(t.Context(), actors, Input{Args: one(arg)})
				require.NoError(t, err)
				return res
			}
			result(t, 1, run(`"a"`))
			again := run(`"a"`)
			result(t, 1, again)
			require.Empty(t, again.Usage, "nothing was called")
			result(t, 2, run(`"b"`))
			<-time.After(time.Minute)
			result(t, 3, run(`"a"`))
		})
	})
	t.Run("Retry/IsNotAnswered", func(t *testing.T) {
		calls := 0
		actors := Actors{"x": ActorFunc(func(context.Context, *Call) (Outcome, error) {
			calls++
			return Outcome{Values: []json.RawMessage{js(calls)}}, nil
		})}
		g := NewBuilder("").Add(Node{ID: "n", Actor: "x", Effect: Pure, Cache: &Cache{TTL: Duration(time.Hour)},
			Check: &Check{CEL: "result > 1"}, Retry: Retry{InitialBackoff: 1}}).Graph()
		res, err := Run(t.Context(), g, actors, Input{})
		require.NoError(t, err)
		result(t, 2, res)
	})
	t.Run("Key/TellsCallsApart", func(t *testing.T) {
		base := Start{Ref: Ref{Node: "n", Visit: 1}, Actor: "x", Effect: Pure, Cache: &Cache{TTL: 1}, Attempt: 1, Args: one("1")}
		key := base.CacheKey(nil, "a")
		require.NotEmpty(t, key)
		other := base
		other.RunID, other.Generation, other.Ref = "run_2", 3, Ref{Node: "m", Visit: 2}
		require.Equal(t, key, other.CacheKey(nil, "a"), "another run and node may reuse it")
		require.NotEqual(t, key, base.CacheKey(nil, "b"), "another tenant may not")
		for name, change := range map[string]func(*Start){
			"args":     func(s *Start) { s.Args = one("2") },
			"named":    func(s *Start) { s.Named = map[string]json.RawMessage{"k": js(1)} },
			"upstream": func(s *Start) { s.Upstream = []Upstream{{Node: "u", Values: one("1")}} },
		} {
			s := base
			change(&s)
			require.NotEqual(t, key, s.CacheKey(nil, "a"), name)
		}
		other = base
		other.Effect = Idempotent
		require.Equal(t, key, other.CacheKey(nil, "a"), "calls that may be repeated may be answered")
		for name, change := range map[string]func(*Start){
			"no cache": func(s *Start) { s.Cache = nil },
			"not pure": func(s *Start) { s.Effect = Unsafe },
			"a retry":  func(s *Start) { s.Attempt = 2 },
			"no JSON":  func(s *Start) { s.Args = one("{") },
		} {
			s := base
			change(&s)
			require.Empty(t, s.CacheKey(nil, "a"), name)
		}
	})
	t.Run("Memory/IsBounded", func(t *testing.T) {
		c, now := NewOutcomeCache(1000), time.Now()
		value := func(n int) Outcome { return Outcome{Values: one(`"` + strings.Repeat("x", n) + `"`)} }
		for _, k := range []string{"a", "b", "c", "d", "e", "f"} {
			c.Put(k, value(200), now.Add(time.Hour))
			_, ok := c.Get("a", now)
			require.True(t, ok, "what is used stays")
		}
		_, ok := c.Get("b", now)
		require.False(t, ok, "what is not goes first")
		c.Put("large", value(600), now.Add(time.Hour))
		_, ok = c.Get("large", now)
		require.False(t, ok)
		c.Put("waits", Outcome{Wait: &Wait{Timer: &Timer{After: 1}}}, now.Add(time.Hour))
		_, ok = c.Get("waits", now)
		require.False(t, ok)
		require.LessOrEqual(t, c.byKey.Weight(), int64(1000))
	})
}
