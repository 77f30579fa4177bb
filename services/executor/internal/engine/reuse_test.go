package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor/spawn"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestReuse(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		var calls atomic.Int64
		costs := func(value string) workgraph.Actor {
			return workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
				calls.Add(1)
				return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(value)},
					Usage: []workgraph.Usage{{Provider: "p", Model: "m", InputTokens: 10, OutputTokens: 3}}}, nil
			})
		}
		a := actors{"says": costs(`{"big":12345678901234567890,"tag":"<b>"}`), "writes": costs(`"` + strings.Repeat("x", journal.MaxOutcomeBytes) + `"`)}
		one := func(actor string, ttl time.Duration, args ...string) *workgraph.Graph {
			n := workgraph.Node{ID: "n", Actor: actor, Effect: workgraph.Idempotent, Cache: &workgraph.Cache{TTL: workgraph.Duration(ttl)}}
			for _, arg := range args {
				n.Args = append(n.Args, json.RawMessage(arg))
			}
			return &workgraph.Graph{Nodes: []workgraph.Node{n}}
		}
		// again runs a graph and says whether its call was made.
		again := func(t *testing.T, l *live, g *workgraph.Graph) (made bool, row journal.Run) {
			t.Helper()
			before := calls.Load()
			started, err := l.StartRun(t.Context(), command.StartRequest{Namespace: ns, Graph: g})
			require.NoError(t, err)
			row = l.wait(t, started.ID, journal.StateCompleted)
			visits, _, err := l.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: started.ID})
			require.NoError(t, err)
			require.Len(t, visits, 1)
			made = calls.Load() > before
			require.Equal(t, !made, visits[0].Cached)
			return made, row
		}
		l := run(t, s, a)
		other := run(t, s, a, named("other"))
		g := one("says", time.Hour)
		made, first := again(t, l, g)
		require.True(t, made)
		require.EqualValues(t, 1, first.Usage.Calls)
		t.Run("Hit/OnAnotherExecutorAndForNothing", func(t *testing.T) {
			made, row := again(t, other, g)
			require.False(t, made)
			require.Zero(t, row.Usage)
			require.Equal(t, string(first.Result), string(row.Result))
		})
		t.Run("Miss/OtherArgumentsOrTooOld", func(t *testing.T) {
			made, _ := again(t, other, one("says", time.Hour, `1`))
			require.True(t, made)
			short := one("says", time.Microsecond, `2`)
			_, _ = again(t, l, short)
			made, _ = again(t, other, short)
			require.True(t, made)
		})
		t.Run("Large/StaysWhereItWasMade", func(t *testing.T) {
			large := one("writes", time.Hour)
			made, _ := again(t, l, large)
			require.True(t, made)
			made, _ = again(t, l, large)
			require.False(t, made)
			made, _ = again(t, other, large)
			require.True(t, made)
		})
		t.Run("Hit/AfterARestart", func(t *testing.T) {
			l.stop()
			other.stop()
			made, row := again(t, run(t, s, a), g)
			require.False(t, made)
			require.Equal(t, string(first.Result), string(row.Result))
		})
	})
}

// TestReuseByWhom checks that a saved outcome answers only who it was made for.
func TestReuseByWhom(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		l := run(t, s, actors{"who": pureActor{workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
			raw, err := json.Marshal(c.UserID + "/" + c.ChatID + "/" + c.Thread + "/" + c.GraphName)
			return workgraph.Outcome{Values: []json.RawMessage{raw}}, err
		})}})
		asks := func(t *testing.T, user, chat, thread string, change ...func(*command.StartRequest)) string {
			t.Helper()
			g := &workgraph.Graph{Name: "asks", Nodes: []workgraph.Node{{ID: "n", Actor: "who", Cache: &workgraph.Cache{TTL: workgraph.Duration(time.Hour)}}}}
			id := l.start(t, g, append([]func(*command.StartRequest){func(r *command.StartRequest) { r.UserID, r.ChatID, r.ThreadID = user, chat, thread }}, change...)...)
			var text string
			require.NoError(t, json.Unmarshal(l.wait(t, id, journal.StateCompleted).Result, &text))
			return text
		}
		require.Equal(t, "ann/tea//asks", asks(t, "ann", "tea", ""))
		t.Run("Miss/OtherUser", func(t *testing.T) { require.Equal(t, "bob/tea//asks", asks(t, "bob", "tea", "")) })
		t.Run("Miss/NoUser", func(t *testing.T) { require.Equal(t, "///asks", asks(t, "", "", "")) })
		t.Run("Miss/OtherGraph", func(t *testing.T) {
			require.Equal(t, "ann/tea//", asks(t, "ann", "tea", "", func(r *command.StartRequest) {
				r.Graph = r.Graph.Clone()
				r.Graph.Name, r.Graph.Nodes[0].Cache.Key = "", "'one'"
			}))
			require.Equal(t, "ann/tea//other", asks(t, "ann", "tea", "", func(r *command.StartRequest) {
				r.Graph = r.Graph.Clone()
				r.Graph.Name, r.Graph.Nodes[0].Cache.Key = "other", "'one'"
			}))
		})
		t.Run("Hit/WiderScopeOfTheAuthor", func(t *testing.T) {
			for _, c := range []struct {
				scope                  workgraph.CacheScope
				user, chat, then, want string
			}{
				{workgraph.CacheForUser, "ann", "tea", "work", "ann/tea//asks"},
				{workgraph.CacheForNamespace, "carl", "c", "d", "carl/c//asks"},
			} {
				wider := func(r *command.StartRequest) {
					r.Graph = r.Graph.Clone()
					r.Graph.Nodes[0].Cache.Scope = c.scope
				}
				require.Equal(t, c.want, asks(t, c.user, c.chat, "", wider))
				require.Equal(t, c.want, asks(t, c.user, c.then, "", wider))
				if other := asks(t, "dora", c.chat, "", wider); c.scope == workgraph.CacheForUser {
					require.Equal(t, "dora/tea//asks", other)
				} else {
					require.Equal(t, c.want, other, "the author said so")
				}
			}
		})
		t.Run("Miss/OtherChat", func(t *testing.T) { require.Equal(t, "ann/work//asks", asks(t, "ann", "work", "")) })
	})
}

// saving is the node of a graph that runs another one, and saves what it gives.
func saving(cache workgraph.Cache, input string) *workgraph.Graph {
	return &workgraph.Graph{Name: "saving", Nodes: []workgraph.Node{{ID: "n", Actor: "spawn", Cache: &cache, Named: map[string]json.RawMessage{
		"graph":     json.RawMessage(`{"name": "below", "nodes": [{"id": "deep", "actor": "says"}]}`),
		"as_result": json.RawMessage("true"), "input": json.RawMessage(`{"named": {"q": ` + input + `}}`)}}}}
}

// TestReuseOfChildren checks that what the runs below a node gave is saved with the end of the last of them.
func TestReuseOfChildren(t *testing.T) {
	t.Parallel()
	hour := workgraph.Cache{TTL: workgraph.Duration(time.Hour)}
	eachStore(t, func(t *testing.T, s store) {
		var calls atomic.Int64
		own := actors{"spawn": pureActor{spawn.Spec(nil).Actor}, "says": pureActor{workgraph.ActorFunc(func(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
			raw, err := json.Marshal(c.UserID + string(c.Named["q"]))
			cost := int64(70)
			calls.Add(1)
			return workgraph.Outcome{Values: []json.RawMessage{raw}, Usage: []workgraph.Usage{{Provider: "p", Model: "m", InputTokens: 10, OutputTokens: 3, CostNanoUSD: &cost}}}, err
		})}}
		// again runs a graph for a user, and returns its result and how many calls were made.
		again := func(t *testing.T, l *live, g *workgraph.Graph, user string, change ...func(*command.StartRequest)) (id, result string, made int64) {
			t.Helper()
			before := calls.Load()
			id = l.start(t, g, append(change, func(r *command.StartRequest) { r.UserID = user })...)
			result = string(l.wait(t, id, journal.StateCompleted).Result)
			return id, result, calls.Load() - before
		}
		l := run(t, s, own)
		l.jobs(t)
		other := run(t, s, own, named("other"))
		_, result, made := again(t, l, saving(hour, "1"), "ann")
		require.EqualValues(t, 1, made)
		require.Equal(t, `"ann1"`, result)
		t.Run("Hit/OnAnotherExecutorAndForNothing", func(t *testing.T) {
			id, result, made := again(t, other, saving(hour, "1"), "ann")
			require.Zero(t, made)
			require.Equal(t, `"ann1"`, result)
			require.Zero(t, other.row(t, id).Usage, "it is not booked again")
			visits, _, err := other.Visits(t.Context(), query.VisitsRequest{Namespace: ns, RunID: id})
			require.NoError(t, err)
			require.True(t, visits[0].Cached)
			below, err := other.j.Descendants(t.Context(), ns, id)
			require.NoError(t, err)
			require.Empty(t, below)
			for _, ev := range other.events(t, id) {
				if ev.Durable.Kind == workgraph.AttemptEnded {
					require.Equal(t, &workgraph.Used{InputTokens: 10, OutputTokens: 3, Tokens: 13, NanoUSD: 70}, ev.Durable.Outcome.Saved, "what it would have cost is told")
				}
			}
			other.sound(t, id)
		})
		t.Run("Miss/OtherInputUserContextOrGraph", func(t *testing.T) {
			for name, c := range map[string]struct {
				input, user, want string
				change            func(*command.StartRequest)
			}{
				"input":   {"2", "ann", `"ann2"`, func(*command.StartRequest) {}},
				"user":    {"1", "bob", `"bob1"`, func(*command.StartRequest) {}},
				"context": {"1", "ann", `"ann1"`, func(r *command.StartRequest) { r.Context = json.RawMessage(`{"a":1}`) }},
				"graph": {"1", "ann", `"ann1"`, func(r *command.StartRequest) {
					r.Graph = r.Graph.Clone()
					r.Graph.Nodes[0].Named["graph"] = json.RawMessage(`{"name": "newer", "nodes": [{"id": "deep", "actor": "says"}]}`)
				}},
			} {
				_, result, made := again(t, l, saving(hour, c.input), c.user, c.change)
				require.EqualValues(t, 1, made, name)
				require.Equal(t, c.want, result, name)
			}
		})
		t.Run("Miss/TooOld", func(t *testing.T) {
			short := workgraph.Cache{TTL: workgraph.Duration(time.Microsecond)}
			_, _, _ = again(t, l, saving(short, "3"), "ann")
			_, _, made := again(t, l, saving(short, "3"), "ann")
			require.EqualValues(t, 1, made)
		})
		t.Run("Key/TakesThePlaceOfTheInput", func(t *testing.T) {
			keyed := hour
			keyed.Key = "int(named.input.named.q) / 10"
			_, first, made := again(t, l, saving(keyed, "41"), "ann")
			require.EqualValues(t, 1, made)
			// The input is the node's own, so it is of another graph; a propagated one is not.
			_, second, made := again(t, l, saving(keyed, "41"), "ann")
			require.Zero(t, made)
			require.Equal(t, first, second)
		})
		t.Run("Key/ThatFailsIsToldByName", func(t *testing.T) {
			bad := hour
			bad.Key = "named.nothing"
			id := l.start(t, saving(bad, "1"))
			require.Contains(t, string(l.wait(t, id, journal.StateFailed).Error), engine.ReasonCacheKey)
		})
		t.Run("Fork/IsDoneAgain", func(t *testing.T) {
			id, _, made := again(t, l, saving(hour, "1"), "ann")
			require.Zero(t, made)
			before := calls.Load()
			forked, err := l.Fork(t.Context(), command.ForkRequest{Namespace: ns, RunID: id, From: &workgraph.Ref{Node: "n", Visit: 1}})
			require.NoError(t, err)
			l.wait(t, forked, journal.StateCompleted)
			require.EqualValues(t, 1, calls.Load()-before)
		})
		t.Run("Refused/IsNotSaved", func(t *testing.T) {
			g := saving(hour, "4")
			g.Nodes[0].Check, g.Nodes[0].Retry.MaxAttempts = &workgraph.Check{CEL: "result == 'no'"}, 1
			l.wait(t, l.start(t, g), journal.StateFailed)
			_, _, made := again(t, l, saving(hour, "4"), "")
			require.EqualValues(t, 1, made)
		})
	})
}

// keepless is a connection that is cut by the first commit that saves an outcome, before or after it.
type keepless struct {
	line
	after bool
	dead  chan struct{}
}

func (k *keepless) Commit(ctx context.Context, o journal.Owner, ws []journal.Write) ([]journal.Result, error) {
	if !k.cut.Load() && slices.ContainsFunc(ws, func(w journal.Write) bool { return w.Append != nil && len(w.Append.Kept) > 0 }) {
		if k.after {
			if _, err := k.Journal.Commit(ctx, o, ws); err != nil {
				return nil, err
			}
		}
		k.cut.Store(true)
		close(k.dead)
	}
	return k.line.Commit(ctx, o, ws)
}

// The executor dies with the commit that ends a child and saves what it gave. Whether that commit became
// durable or not: its heir ends the run, the outcome is saved once, and no call is made again.
func TestReuseKilledAtTheCommit(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("After=%t", after), func(t *testing.T) {
			t.Parallel()
			eachStore(t, func(t *testing.T, s store) {
				var calls atomic.Int64
				own := actors{"spawn": pureActor{spawn.Spec(nil).Actor}, "says": pureActor{workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
					calls.Add(1)
					return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`"said"`)}, Usage: []workgraph.Usage{{Model: "m", InputTokens: 10}}}, nil
				})}}
				wire := &keepless{after: after, dead: make(chan struct{})}
				l := run(t, s, own, named("a"), func(_ *engine.Config, d *engine.Deps) {
					wire.Journal = d.Journal
					d.Journal = wire
				})
				l.jobs(t)
				g := saving(workgraph.Cache{TTL: workgraph.Duration(time.Hour)}, "1")
				id := l.start(t, g)
				<-wire.dead
				l = run(t, s, own, named("b"), func(_ *engine.Config, d *engine.Deps) { d.Journal = heir{d.Journal} })
				l.jobs(t)
				row := l.wait(t, id, journal.StateCompleted)
				require.Equal(t, `"said"`, string(row.Result))
				require.EqualValues(t, 1, row.Usage.Calls, "the costs of the child are booked once")
				row = l.wait(t, l.start(t, g), journal.StateCompleted)
				require.Equal(t, `"said"`, string(row.Result))
				require.Zero(t, row.Usage)
				require.EqualValues(t, 1, calls.Load())
			})
		})
	}
}
