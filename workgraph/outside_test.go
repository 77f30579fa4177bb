package workgraph

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRunOutside(t *testing.T) {
	echo := ActorFunc(func(_ context.Context, c *Call) (Outcome, error) { return Outcome{Values: c.Args[:1]}, nil })
	first := func(out Outcome) Actor {
		return ActorFunc(func(_ context.Context, c *Call) (Outcome, error) {
			if c.Visit == 1 {
				return out, nil
			}
			return Outcome{Values: c.Args[:1]}, nil
		})
	}
	run := func(t *testing.T, a Actor, opts ...Option) Result {
		g := NewBuilder("").Node("A", "a", Pass(FirstArg())).Node("B", "echo").Edge("A", "B").Graph()
		res, err := Run(t.Context(), g, Actors{"a": a, "echo": echo}, Input{Args: one("0")}, opts...)
		require.NoError(t, err)
		return res
	}
	t.Run("Children/RunInTheSameProcess", func(t *testing.T) {
		sub := NewBuilder("").Node("x", "echo").Graph()
		kids := Outcome{Wait: &Wait{Children: &Children{Runs: []Child{{Graph: sub, Input: Input{Args: one("1")}}, {Graph: sub, Input: Input{Args: one("2")}},
			{Ref: "workflow/w", Input: Input{Args: one("3")}}, {Ref: "workflow/none"}, {Graph: &Graph{}}}}}}
		res := run(t, first(kids), WithWorkflows(func(ref string) (*Graph, error) {
			if ref != "workflow/w" {
				return nil, errors.New("unknown")
			}
			return sub, nil
		}))
		require.Equal(t, StatusCompleted, res.Status)
		var slots []ChildSlot
		require.NoError(t, json.Unmarshal(res.Result, &slots))
		for i := range 3 {
			require.Equal(t, StatusCompleted, slots[i].Status)
			require.Equal(t, fmt.Sprint(i+1), string(slots[i].Result))
		}
		require.Equal(t, ReasonBadChild, slots[3].Reason)
		require.Equal(t, ReasonBadChild, slots[4].Reason)
		require.Empty(t, kids.Wait.Children.Runs[0].ID, "the actor's own outcome is left alone")
	})
	t.Run("Self/IsBoundedInDepth", func(t *testing.T) {
		var calls atomic.Int32
		a := ActorFunc(func(context.Context, *Call) (Outcome, error) {
			calls.Add(1)
			return Outcome{Usage: []Usage{{Model: "m", InputTokens: 1}}, Wait: &Wait{Children: &Children{Runs: []Child{{Ref: "self", Input: Input{Args: one("0")}}}}}}, nil
		})
		res := run(t, a)
		require.Equal(t, StatusCompleted, res.Status)
		require.EqualValues(t, 4, calls.Load())
		require.EqualValues(t, 4, res.Usage[0].InputTokens, "usage rolls up")
		require.Contains(t, string(res.Result), ReasonTooDeep)
	})
	t.Run("Timeout/CancelsTheChild", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sub := NewBuilder("").Node("x", "hang").Graph()
			stopped := false
			actors := Actors{"hang": ActorFunc(func(ctx context.Context, _ *Call) (Outcome, error) {
				<-ctx.Done()
				stopped = true
				return Outcome{}, ctx.Err()
			}), "a": first(Outcome{Wait: &Wait{Children: &Children{Timeout: Duration(time.Minute), Runs: []Child{{Graph: sub}}}}})}
			res, err := Run(t.Context(), NewBuilder("").Node("A", "a").Graph(), actors, Input{})
			require.NoError(t, err)
			require.Contains(t, string(res.Result), `"status":"TIMED_OUT"`)
			require.True(t, stopped)
		})
	})
	t.Run("Cancel/ReachesTheChild", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			sub := NewBuilder("").Node("x", "hang").Graph()
			actors := Actors{"hang": ActorFunc(func(ctx context.Context, _ *Call) (Outcome, error) {
				<-ctx.Done()
				return Outcome{}, ctx.Err()
			}), "a": first(Outcome{Wait: &Wait{Children: &Children{Runs: []Child{{Graph: sub}}}}})}
			res, err := Run(ctx, NewBuilder("").Node("A", "a").Graph(), actors, Input{})
			require.NoError(t, err)
			require.Equal(t, StatusCanceled, res.Status)
		})
	})
	t.Run("Interrupts/AreAsked", func(t *testing.T) {
		res := run(t, first(ask("", func(q *Interrupt) { q.Approve = js(1) })), WithInterrupts(func(_ context.Context, q OpenedInterrupt) (Answer, error) {
			require.Equal(t, "A", q.Node)
			return Answer{Decision: Approved, By: "me"}, nil
		}))
		require.Contains(t, string(res.Result), `"decision":"APPROVED","by":"me"`)
	})
	t.Run("Interrupts/WithoutAnAnswerStandStill", func(t *testing.T) {
		for _, opts := range [][]Option{nil, {WithInterrupts(func(context.Context, OpenedInterrupt) (Answer, error) { return Answer{}, errors.New("no") })}} {
			res := run(t, first(ask("", nil)), opts...)
			require.Equal(t, StatusPaused, res.Status)
			require.Equal(t, ReasonWaiting, res.Reason)
		}
	})
	t.Run("Expiry/EndsTheQuestion", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			res := run(t, first(ask("", func(q *Interrupt) { q.Timeout, q.Default = Duration(time.Hour), js("late") })),
				WithInterrupts(func(ctx context.Context, _ OpenedInterrupt) (Answer, error) {
					<-ctx.Done()
					return Answer{}, ctx.Err()
				}))
			require.Equal(t, `"late"`, string(res.Result))
		})
	})
	t.Run("Commands/ComeIn", func(t *testing.T) {
		in := make(chan Command)
		var refused []error
		done := make(chan Result)
		go func() {
			done <- run(t, first(Outcome{Wait: &Wait{Signal: &SignalWait{Name: "go"}}}), WithCommands(in, func(_ Command, err error) { refused = append(refused, err) }))
		}()
		in <- Recover{}
		in <- Signaled{}
		in <- Signaled{Name: "go", Payload: js(5)}
		require.Equal(t, "5", string((<-done).Result))
		require.Len(t, refused, 2)
	})
	t.Run("Commands/WhenClosedTheRunStandsStill", func(t *testing.T) {
		in := make(chan Command)
		close(in)
		res := run(t, first(Outcome{Wait: &Wait{Completion: &CompletionWait{}}}), WithCommands(in, nil))
		require.Equal(t, ReasonWaiting, res.Reason)
	})
	t.Run("Inboxes/Chat", func(t *testing.T) {
		g := NewBuilder("").Add(
			Node{ID: "A", Actor: "talk", On: &Trigger{Inbox: &Inbox{From: []string{InputSender, "B"}}}},
			Node{ID: "B", Actor: "talk", On: &Trigger{Inbox: &Inbox{}}}).Edge("A", "B").Edge("B", "A", When("visit < 3")).Graph()
		talk := ActorFunc(func(_ context.Context, c *Call) (Outcome, error) {
			return Outcome{Values: []json.RawMessage{js(fmt.Sprint(c.Node, c.Visit, " to ", c.Messages[0].From))}}, nil
		})
		res, err := Run(t.Context(), g, Actors{"talk": talk}, Input{})
		require.NoError(t, err)
		require.JSONEq(t, `{"A":"A3 to B","B":"B3 to A"}`, string(js(res.Outputs)))
	})
}
