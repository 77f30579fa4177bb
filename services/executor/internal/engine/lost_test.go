package engine_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// unreachable is actors that cannot be looked up for a while.
type unreachable struct {
	actors
	away atomic.Int64
}

func (f *unreachable) ask() error {
	if f.away.Add(-1) >= 0 {
		return errs.New(errs.Unavailable, "DATABASE_UNREACHABLE", "the database restarts")
	}
	return nil
}

func (f *unreachable) Actor(ctx context.Context, namespace, name string) (workgraph.Actor, program.ActorInfo, bool, error) {
	if err := f.ask(); err != nil {
		return nil, program.ActorInfo{}, false, err
	}
	return f.actors.Actor(ctx, namespace, name)
}

func (f *unreachable) Find(ctx context.Context, namespace string, names []string) (map[string]program.ActorInfo, error) {
	if err := f.ask(); err != nil {
		return nil, err
	}
	return f.actors.Find(ctx, namespace, names)
}

func TestDatabaseAwayUsesUpNoTry(t *testing.T) {
	t.Parallel()
	rec := &recorder{}
	f := &unreachable{actors: actors{"once": unsafeActor{rec}}}
	f.actors["grows"] = unsafeActor{workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
		f.away.Store(5)
		return workgraph.Outcome{Expand: &workgraph.Graph{Nodes: []workgraph.Node{{ID: "more", Actor: "once"}}}}, nil
	})}
	f.actors["spawns"] = unsafeActor{workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
		f.away.Store(5)
		child := workgraph.Child{Graph: &workgraph.Graph{Nodes: []workgraph.Node{{ID: "below", Actor: "once"}}}}
		return workgraph.Outcome{Wait: &workgraph.Wait{Children: &workgraph.Children{Runs: []workgraph.Child{child}}}}, nil
	})}
	l := run(t, sqliteStore(t), f)
	l.jobs(t) // a job wakes the evicted parent
	for _, actor := range []string{"once", "grows", "spawns"} {
		t.Run(actor, func(t *testing.T) {
			id := l.start(t, &workgraph.Graph{Nodes: []workgraph.Node{{ID: "wait", Actor: "once"}, {ID: "a", Actor: actor}}, Edges: []workgraph.Edge{{From: "wait", To: "a"}}})
			l.wait(t, id, journal.StateCompleted)
		})
	}
}

func TestHoldTimeouts(t *testing.T) {
	t.Parallel()
	l := run(t, sqliteStore(t), actors{"far": workgraph.ActorFunc(func(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
		resume := engine.HoldTimeouts(ctx) // no worker is connected
		select {
		case <-ctx.Done():
			return workgraph.Outcome{}, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
		resume()
		if string(c.Args[0]) == `"hangs"` {
			<-ctx.Done()
			return workgraph.Outcome{}, context.Cause(ctx)
		}
		return text("made"), nil
	})})
	for arg, want := range map[string]journal.State{`"answers"`: journal.StateCompleted, `"hangs"`: journal.StateFailed} {
		id := l.start(t, &workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Actor: "far", Args: []json.RawMessage{json.RawMessage(arg)}, Effect: workgraph.Pure,
			Timeout: workgraph.Duration(100 * time.Millisecond), Retry: workgraph.Retry{MaxAttempts: 1}}}})
		require.Equal(t, want, l.wait(t, id, journal.StateCompleted, journal.StateFailed).State, arg)
	}
}
