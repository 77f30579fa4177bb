package workgraph

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// actor is an ActorFunc with its info.
type actor struct {
	ActorFunc
	info ActorInfo
}

func (a actor) Info() ActorInfo { return a.info }

func TestRun(t *testing.T) {
	ok := ActorFunc(func(context.Context, *Call) (Outcome, error) { return Outcome{Values: one("1")}, nil })
	hang := ActorFunc(func(ctx context.Context, _ *Call) (Outcome, error) {
		<-ctx.Done()
		return Outcome{}, ctx.Err()
	})
	once := func(n Node) *Graph { return NewBuilder("").Add(n).Graph() }

	t.Run("Timeout/IsUnknownAndRetriedWithBackoff", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			res, err := Run(t.Context(), once(Node{ID: "a", Actor: "hang", Timeout: Duration(time.Minute),
				Retry: Retry{MaxAttempts: 2, InitialBackoff: Duration(time.Hour), MaxBackoff: Duration(time.Hour), Jitter: Unlimited}}), Actors{"hang": hang}, Input{})
			require.NoError(t, err)
			require.Equal(t, StatusFailed, res.Status)
			require.Equal(t, ReasonTimeout, res.Error.Reason)
			require.Equal(t, time.Hour+2*time.Minute, time.Since(begin).Truncate(time.Second))
		})
	})
	t.Run("Timeout/IsTheReasonThatAnActorLeavesOut", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			leaves := ActorFunc(func(ctx context.Context, _ *Call) (Outcome, error) {
				<-ctx.Done()
				return Outcome{}, &Error{Type: NotPerformed}
			})
			res, err := Run(t.Context(), once(Node{ID: "a", Actor: "leaves", Timeout: Duration(time.Minute), Retry: Retry{MaxAttempts: 1}}), Actors{"leaves": leaves}, Input{})
			require.NoError(t, err)
			require.Equal(t, NotPerformed, res.Error.Type)
			require.Equal(t, ReasonTimeout, res.Error.Reason)
		})
	})
	t.Run("IdleTimeout/HeartbeatsKeepAnAttemptAlive", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			alive := ActorFunc(func(ctx context.Context, c *Call) (Outcome, error) {
				for range 5 {
					time.Sleep(time.Minute) //nolint:forbidigo // in a synctest bubble
					c.Heartbeat()
				}
				return hang(ctx, c)
			})
			begin := time.Now()
			res, err := Run(t.Context(), once(Node{ID: "a", Actor: "alive", IdleTimeout: Duration(2 * time.Minute), Retry: Retry{MaxAttempts: 1}}), Actors{"alive": alive}, Input{})
			require.NoError(t, err)
			require.Equal(t, ReasonIdleTimeout, res.Error.Reason)
			require.Equal(t, 7*time.Minute, time.Since(begin))
		})
	})
	t.Run("Sleep/IsATimer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sleep := ActorFunc(func(context.Context, *Call) (Outcome, error) {
				return Outcome{Values: one(`"rested"`), Wait: &Wait{Timer: &Timer{After: Duration(24 * time.Hour)}}}, nil
			})
			begin := time.Now()
			res, err := Run(t.Context(), nodesOf("sleep", nodes(FirstArg(), "a", "b").Chain("a", "b").Graph()), Actors{"sleep": sleep}, Input{})
			require.NoError(t, err)
			require.JSONEq(t, `"rested"`, string(res.Result))
			require.Equal(t, 48*time.Hour, time.Since(begin).Truncate(time.Second))
		})
	})
	t.Run("Context/CancelsTheRunAndItsCalls", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { stop(errors.New("enough")) })
			res, err := Run(ctx, nodesOf("hang", nodes(PassDown{}, "a", "b", "c").Edge("a", "c").Edge("b", "c").Graph()), Actors{"hang": hang}, Input{})
			require.NoError(t, err)
			require.Equal(t, StatusCanceled, res.Status)
			require.Equal(t, "enough", res.Message)
		})
	})
	t.Run("Parallel/CapsHowManyRunAtOnce", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var now, peak atomic.Int32
			busy := ActorFunc(func(context.Context, *Call) (Outcome, error) {
				peak.Store(max(peak.Load(), now.Add(1)))
				time.Sleep(time.Second) //nolint:forbidigo // in a synctest bubble
				now.Add(-1)
				return Outcome{}, nil
			})
			g := once(Node{ID: "m", Actor: "busy", Map: &Map{Over: "[1,2,3,4,5,6,7,8,9,10]", MaxParallel: 8}})
			begin := time.Now()
			res, err := Run(t.Context(), g, Actors{"busy": busy}, Input{}, WithParallel(5))
			require.NoError(t, err)
			require.Equal(t, StatusCompleted, res.Status)
			require.EqualValues(t, 5, peak.Load())
			require.Equal(t, 2*time.Second, time.Since(begin))
		})
	})
	t.Run("ConcurrencyKey/EqualKeysNeverOverlap", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			busy := ActorFunc(func(context.Context, *Call) (Outcome, error) {
				time.Sleep(time.Second) //nolint:forbidigo // in a synctest bubble
				return Outcome{}, nil
			})
			b := NewBuilder("")
			for _, id := range []string{"a", "b", "c"} {
				b.Add(Node{ID: id, Actor: "busy", ConcurrencyKey: "'one'"})
			}
			begin := time.Now()
			_, err := Run(t.Context(), b.Graph(), Actors{"busy": busy}, Input{})
			require.NoError(t, err)
			require.Equal(t, 3*time.Second, time.Since(begin))
		})
	})
	t.Run("Any/LosersAreCanceledInFlight", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := NewBuilder("").Node("slow", "hang").Node("fast", "ok").Add(Node{ID: "J", Actor: "ok", Join: Join{Mode: Any, Losers: CancelLosers}}).
				Edge("slow", "J").Edge("fast", "J").Graph()
			res, err := Run(t.Context(), g, Actors{"hang": hang, "ok": ok}, Input{})
			require.NoError(t, err)
			require.Equal(t, StatusCompleted, res.Status)
		})
	})
	t.Run("Fail/CancelsWhatIsInFlight", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			bad := ActorFunc(func(context.Context, *Call) (Outcome, error) { return Outcome{}, Errorf(Permanent, "BAD", "") })
			g := NewBuilder("").Node("slow", "hang").Node("bad", "bad").Graph()
			res, err := Run(t.Context(), g, Actors{"hang": hang, "bad": bad}, Input{})
			require.NoError(t, err)
			require.Equal(t, StatusFailed, res.Status)
			require.Equal(t, "BAD", res.Error.Reason)
		})
	})
	t.Run("Panic/IsAPermanentError", func(t *testing.T) {
		boom := ActorFunc(func(context.Context, *Call) (Outcome, error) { panic("boom") })
		res, err := Run(t.Context(), once(Node{ID: "a", Actor: "boom"}), Actors{"boom": boom}, Input{})
		require.NoError(t, err)
		require.Equal(t, ReasonPanic, res.Error.Reason)
		require.Contains(t, res.Error.Message, "boom")
	})
	t.Run("Unsafe/UnknownEndPausesTheRun", func(t *testing.T) {
		lost := actor{ActorFunc(func(context.Context, *Call) (Outcome, error) { return Outcome{}, errors.New("connection reset") }), ActorInfo{Effect: Unsafe}}
		res, err := Run(t.Context(), once(Node{ID: "a", Actor: "lost"}), Actors{"lost": lost}, Input{})
		require.NoError(t, err)
		require.Equal(t, StatusPaused, res.Status)
		require.Equal(t, ReasonReconciliation, res.Reason)
	})
	t.Run("Progress/SeesEveryEventInOrderAndItReplays", func(t *testing.T) {
		g := nodesOf("ok", diamond(FirstArg()))
		var events []Event
		res, err := Run(t.Context(), g, Actors{"ok": ok}, Input{}, WithRunID("r1"), WithContext(json.RawMessage(`{"a":1}`)),
			WithProgress(func(ev Event) { events = append(events, ev) }))
		require.NoError(t, err)
		require.Len(t, events, int(res.Events))
		p, err := Compile(t.Context(), g, nil)
		require.NoError(t, err)
		s, err := Replay(t.Context(), p, "r1", events)
		require.NoError(t, err)
		require.Equal(t, res.RunEnd, *s.End())
	})
	t.Run("Usage/IsSummedAndAnUnknownPriceStaysUnknown", func(t *testing.T) {
		cost := int64(5)
		spend := ActorFunc(func(_ context.Context, c *Call) (Outcome, error) {
			u := []Usage{{Model: "m", InputTokens: 10, CostNanoUSD: &cost}}
			if c.Node == "b" {
				u = append(u, Usage{Model: "free", OutputTokens: 1}, Usage{Model: "free", OutputTokens: 2, CostNanoUSD: &cost})
			}
			return Outcome{Usage: u}, nil
		})
		res, err := Run(t.Context(), nodesOf("spend", nodes(PassDown{}, "a", "b").Graph()), Actors{"spend": spend}, Input{})
		require.NoError(t, err)
		total := int64(10)
		require.ElementsMatch(t, []Usage{{Model: "m", InputTokens: 20, CostNanoUSD: &total}, {Model: "free", OutputTokens: 3}}, res.Usage)
	})
	t.Run("Faults/AreTheError", func(t *testing.T) {
		_, err := Run(t.Context(), &Graph{}, Actors{}, Input{})
		faults, isFaults := errors.AsType[Faults](err)
		require.True(t, isFaults)
		require.Equal(t, CodeEmptyGraph, faults[0].Code)
	})
}

func TestCallTellsOwnArgumentsFromPropagatedOnes(t *testing.T) {
	t.Parallel()
	g := &Graph{Nodes: []Node{{ID: "a", Actor: "spy", Named: map[string]json.RawMessage{"method": json.RawMessage(`"GET"`)}}}}
	var own, named string
	_, err := Run(t.Context(), g, Actors{"spy": ActorFunc(func(_ context.Context, c *Call) (Outcome, error) {
		own, named = string(c.Own["method"]), string(c.Named["method"])
		return Outcome{}, nil
	})}, Input{Named: map[string]json.RawMessage{"method": json.RawMessage(`"POST"`)}})
	require.NoError(t, err)
	require.Equal(t, `"GET"`, own)
	require.Equal(t, `"POST"`, named)
}

func TestRunWithoutThreads(t *testing.T) {
	says := ActorFunc(func(context.Context, *Call) (Outcome, error) {
		return Outcome{Threads: []ThreadAppend{{Thread: "thr_1", Items: []ThreadItem{{Kind: ThreadMessage, Body: []byte("1")}}}}}, nil
	})
	res, err := Run(t.Context(), &Graph{Nodes: []Node{{ID: "a", Actor: "says"}}}, Actors{"says": says}, Input{})
	require.NoError(t, err)
	require.Equal(t, StatusFailed, res.Status)
	require.Contains(t, res.Message, "keeps no threads", "nothing is dropped in silence")
}
