package engine_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// slowQueue is a journal that reads the commands of an owner and returns them only when it is told to. By
// then the run itself, whose load waits for that, may have applied the commands.
type slowQueue struct {
	journal.Journal
	armed, read, out, again chan struct{}
	once                    [3]sync.Once
}

func (s *slowQueue) Load(ctx context.Context, runID string) (journal.Loaded, error) {
	l, err := s.Journal.Load(ctx, runID)
	if len(l.Command) > 0 {
		s.once[0].Do(func() { close(s.armed) })
		<-s.read
	}
	return l, err
}

func (s *slowQueue) PendingCommands(ctx context.Context, o journal.Owner, look journal.CommandQuery) (ms []journal.Command, err error) {
	select {
	case <-s.out:
		s.once[2].Do(func() { close(s.again) })
	default:
	}
	first := false
	s.once[1].Do(func() { first = true })
	if !first {
		return s.Journal.PendingCommands(ctx, o, look)
	}
	// Which runs a look leaves out was decided before the commands came.
	select {
	case <-s.armed:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ms, err = s.Journal.PendingCommands(ctx, o, look)
	close(s.read)
	<-s.out
	return ms, err
}

// lateCommand is a journal that enqueues a command for a run just before the run is released.
type lateCommand struct {
	journal.Journal
	once   sync.Once
	onPark func(runID string)
}

func (j *lateCommand) Commit(ctx context.Context, o journal.Owner, ws []journal.Write) ([]journal.Result, error) {
	for _, w := range ws {
		if w.Append != nil && w.Append.Release {
			j.once.Do(func() { j.onPark(w.Append.RunID) })
		}
	}
	return j.Journal.Commit(ctx, o, ws)
}

// staleRead is a journal that, when armed, reads a run, signals that, and returns the result only when it
// may.
type staleRead struct {
	journal.Journal
	armed      atomic.Bool
	read, goOn chan struct{}
}

func (j *staleRead) Load(ctx context.Context, runID string) (journal.Loaded, error) {
	l, err := j.Journal.Load(ctx, runID)
	if j.armed.CompareAndSwap(true, false) {
		close(j.read)
		<-j.goOn
	}
	return l, err
}

// heldCommands is a journal that can block reads of a run's commands, and a write that applies commands. It
// counts the looks for commands.
type heldCommands struct {
	journal.Journal
	holds            atomic.Bool // whether such a write is held
	read, goOn, held chan struct{}
	once             sync.Once
	looks            atomic.Int64
}

func (j *heldCommands) UnappliedCommands(ctx context.Context, namespace, runID string, limit int) ([]journal.Command, error) {
	ms, err := j.Journal.UnappliedCommands(ctx, namespace, runID, limit)
	j.once.Do(func() {
		close(j.read)
		<-j.goOn
	})
	return ms, err
}

func (j *heldCommands) PendingCommands(ctx context.Context, o journal.Owner, look journal.CommandQuery) ([]journal.Command, error) {
	j.looks.Add(1)
	return j.Journal.PendingCommands(ctx, o, look)
}

func (j *heldCommands) Commit(ctx context.Context, o journal.Owner, ws []journal.Write) ([]journal.Result, error) {
	if slices.ContainsFunc(ws, func(w journal.Write) bool { return w.Append != nil && len(w.Append.Applied) > 0 }) && j.holds.CompareAndSwap(true, false) {
		<-j.held
	}
	return j.Journal.Commit(ctx, o, ws)
}

func TestCommands(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		t.Run("Signal/ReadBeforeIsAppliedOnce", func(t *testing.T) {
			slow := &slowQueue{armed: make(chan struct{}), read: make(chan struct{}), out: make(chan struct{}), again: make(chan struct{})}
			g := newGate()
			l := run(t, s, actors{"gate": g, "signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}})}, func(c *engine.Config, d *engine.Deps) {
				slow.Journal, d.Journal = d.Journal, slow
				c.EvictAfter, c.CommandPoll = 10*time.Millisecond, 5*time.Millisecond
			})
			waiting := chain(2, "gate")
			waiting.Nodes[0].Actor = "signal"
			id := l.start(t, waiting)
			l.evicted(t, id, journal.StateWaiting)
			l.commands(t, id, journal.CommandSignal, record.Payload{Name: "go", Payload: json.RawMessage(`7`)})
			g.next(t) // the signal is durable: the node after it is called
			close(slow.out)
			<-slow.again
			close(g.open)
			l.wait(t, id, journal.StateCompleted)
			evs := l.events(t, id)
			require.Len(t, kinds(evs, workgraph.SignalReceived), 1, "%s", story(evs))
		})
		t.Run("Signal/DuringTheReleaseIsApplied", func(t *testing.T) {
			late := &lateCommand{}
			l := run(t, s, actors{"signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}})}, func(_ *engine.Config, d *engine.Deps) {
				late.Journal, d.Journal = d.Journal, late
			})
			late.onPark = func(id string) { l.commands(t, id, journal.CommandSignal, record.Payload{Name: "go"}) }
			waiting := chain(1, "signal")
			l.wait(t, l.start(t, waiting), journal.StateCompleted) // no executor works jobs here
		})
		t.Run("Signal/OfANeighborDoesNotWaitForATurn", func(t *testing.T) {
			g := newGate()
			l := run(t, s, actors{"gate": g, "signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}})})
			busy := chain(2, "gate")
			busy.Edges[0].When = "true" // a signal to it needs a turn
			heard := chain(2, "gate")
			heard.Nodes[0].Actor, heard.Edges = "signal", nil
			id, other := l.start(t, busy), l.start(t, heard, func(r *command.StartRequest) { r.Namespace = "other" })
			g.next(t)
			g.next(t)
			free := l.allTurns(t)
			for range journal.MaxLoadedCommandBytes + 1 {
				l.commands(t, id, journal.CommandSignal, record.Payload{Name: "aside"})
			}
			_, err := l.Signal(t.Context(), command.SignalRequest{Namespace: "other", RunID: other, Signal: command.Signal{Name: "go"}})
			require.NoError(t, err)
			testkit.Eventually(t, func() bool {
				row, err := l.j.Get(t.Context(), "other", other)
				require.NoError(t, err)
				return row.Nodes.Completed == 1
			})
			require.Empty(t, kinds(l.events(t, id), workgraph.SignalReceived))
			free()
			testkit.Eventually(t, func() bool {
				return len(kinds(l.events(t, id), workgraph.SignalReceived)) == journal.MaxLoadedCommandBytes+1
			})
			close(g.open)
			l.wait(t, id, journal.StateCompleted)
		})
		t.Run("Task/IsCompletedOnceBehindManyCommands", func(t *testing.T) {
			tokens := make(chan string, 1)
			l := run(t, s, actors{"ok": &recorder{}, "task": outcome(func(c *workgraph.Call) workgraph.Outcome {
				tokens <- c.AttemptToken
				return workgraph.Outcome{Wait: &workgraph.Wait{Completion: &workgraph.CompletionWait{}}}
			})})
			g := chain(2, "ok")
			g.Nodes[0].Actor, g.Edges[0].When = "task", "true" // a signal to it needs a turn
			id := l.start(t, g)
			l.evicted(t, id, journal.StateWaiting)
			free := l.allTurns(t)
			for range journal.MaxWaiting {
				l.commands(t, id, journal.CommandSignal, record.Payload{Name: "aside"})
			}
			token := <-tokens
			complete := func(ctx context.Context, value string) error {
				_, err := l.CompleteAttempt(ctx, command.CompleteRequest{Namespace: ns, Token: token, Outcome: &workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(value)}}})
				return err
			}
			ctx, leave := context.WithCancel(t.Context())
			said := make(chan error, 1)
			go func() { said <- complete(ctx, "1") }()
			testkit.Eventually(t, func() bool {
				out, err := l.j.Outstanding(t.Context(), ns, id)
				return err == nil && slices.Contains(out.Unread, journal.CommandCompletion)
			})
			leave()
			<-said
			require.NoError(t, complete(t.Context(), "1"), "the same was said before")
			require.Equal(t, command.ReasonAttemptNotWaiting, errs.ReasonOf(complete(t.Context(), "2")))
			free()
			l.wait(t, id, journal.StateCompleted)
		})
		t.Run("Run/ClaimedWhileItIsReadGoesOn", func(t *testing.T) {
			stale := &staleRead{read: make(chan struct{}), goOn: make(chan struct{})}
			l := run(t, s, actors{"sleep": waits(workgraph.Wait{Timer: &workgraph.Timer{After: workgraph.Duration(50 * time.Millisecond)}})}, func(c *engine.Config, d *engine.Deps) {
				stale.Journal, d.Journal = d.Journal, stale
				c.EvictAfter = time.Millisecond
			})
			id := l.start(t, chain(1, "sleep"))
			row := l.evicted(t, id, journal.StateWaiting)
			testkit.Eventually(t, func() bool { return time.Now().After(row.WakeTime) })
			stale.armed.Store(true)
			l.LoadSoon(ns, id) // it has no owner when this is read
			<-stale.read
			args, err := json.Marshal(journal.JobArgs{Namespace: ns, RunID: id})
			require.NoError(t, err)
			require.NoError(t, l.Work(t.Context(), args))
			require.Equal(t, "exec", l.row(t, id).Owner.ID)
			close(stale.goOn)
			testkit.Eventually(t, func() bool { return l.row(t, id).State == journal.StateCompleted })
		})
		t.Run("Signal/RunContinuesWhileItsLargeCommandsAreRead", func(t *testing.T) {
			slow := &heldCommands{read: make(chan struct{}), goOn: make(chan struct{})}
			g := newGate()
			l := run(t, s, actors{"gate": g}, func(_ *engine.Config, d *engine.Deps) { slow.Journal, d.Journal = d.Journal, slow })
			release := sync.OnceFunc(func() { close(slow.goOn) })
			defer release()
			id := l.start(t, chain(1, "gate"))
			g.next(t)
			l.commands(t, id, journal.CommandSignal, record.Payload{Name: "aside", Payload: big(8 << 10)})
			<-slow.read
			close(g.open)
			testkit.Eventually(t, func() bool { return l.row(t, id).State == journal.StateCompleted })
			release()
		})
		t.Run("Signal/ReadWithALargeOneIsAppliedOnce", func(t *testing.T) {
			slow := &heldCommands{read: make(chan struct{}), goOn: make(chan struct{}), held: make(chan struct{})}
			g := newGate()
			l := run(t, s, actors{"gate": g}, func(c *engine.Config, d *engine.Deps) {
				slow.Journal, d.Journal = d.Journal, slow
				c.CommandPoll = 5 * time.Millisecond
			})
			release := sync.OnceFunc(func() { close(slow.goOn) })
			defer release()
			id := l.start(t, chain(1, "gate"))
			g.next(t)
			heard := func() int { return len(kinds(l.events(t, id), workgraph.SignalReceived)) }
			slow.holds.Store(true)
			l.commands(t, id, journal.CommandSignal, record.Payload{Name: "small"})
			testkit.Eventually(t, func() bool { return !slow.holds.Load() })
			l.commands(t, id, journal.CommandSignal, record.Payload{Name: "large", Payload: big(8 << 10)})
			<-slow.read // including the small one, whose write has no answer yet
			close(slow.held)
			testkit.Eventually(t, func() bool { return heard() == 1 })
			looks := slow.looks.Load()
			testkit.Eventually(t, func() bool { return slow.looks.Load() > looks+2 })
			release()
			testkit.Eventually(t, func() bool { return heard() >= 2 })
			close(g.open)
			l.wait(t, id, journal.StateCompleted)
			require.Equal(t, 2, heard(), "%s", story(l.events(t, id)))
		})
		t.Run("Signal/LargeOnesAreAppliedInOrder", func(t *testing.T) {
			g := newGate()
			l := run(t, s, actors{"gate": g, "signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}})})
			heard := chain(2, "gate")
			heard.Nodes[0].Actor, heard.Edges = "signal", nil
			id := l.start(t, heard)
			g.next(t)
			const many = 40
			for i := range many {
				l.commands(t, id, journal.CommandSignal, record.Payload{Name: "aside", Payload: json.RawMessage(`"` + strings.Repeat("x", 1<<(i%14)) + `"`)})
			}
			l.commands(t, id, journal.CommandSignal, record.Payload{Name: "go"})
			testkit.Eventually(t, func() bool { return len(kinds(l.events(t, id), workgraph.SignalReceived)) == many+1 })
			for i, ev := range kinds(l.events(t, id), workgraph.SignalReceived)[:many] {
				require.Len(t, ev.Payload, 2+1<<(i%14))
			}
			close(g.open)
			l.wait(t, id, journal.StateCompleted)
		})
	})
}
