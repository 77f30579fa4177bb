package engine_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// slowPost is a journal that reads the mail of an owner, and gives it out only when it is told to; by then the run itself, which waits
// for that reading, may have taken the mail up.
type slowPost struct {
	journal.Journal
	armed, read, out, again chan struct{}
	once                    [3]sync.Once
}

func (s *slowPost) Load(ctx context.Context, runID string) (journal.Loaded, error) {
	l, err := s.Journal.Load(ctx, runID)
	if len(l.Mail) > 0 {
		s.once[0].Do(func() { close(s.armed) })
		<-s.read
	}
	return l, err
}

func (s *slowPost) PendingMail(ctx context.Context, o journal.Owner, look journal.MailLook) (ms []journal.Mail, err error) {
	select {
	case <-s.out:
		s.once[2].Do(func() { close(s.again) })
	default:
	}
	first := false
	s.once[1].Do(func() { first = true })
	if !first {
		return s.Journal.PendingMail(ctx, o, look)
	}
	// It was decided before the mail came what is passed over.
	select {
	case <-s.armed:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ms, err = s.Journal.PendingMail(ctx, o, look)
	close(s.read)
	<-s.out
	return ms, err
}

// lateMail is a journal to which mail for a run comes just before the run is given back.
type lateMail struct {
	journal.Journal
	once   sync.Once
	onPark func(runID string)
}

func (j *lateMail) Commit(ctx context.Context, o journal.Owner, ws []journal.Write) ([]journal.Result, error) {
	for _, w := range ws {
		if w.Append != nil && w.Append.Release {
			j.once.Do(func() { j.onPark(w.Append.RunID) })
		}
	}
	return j.Journal.Commit(ctx, o, ws)
}

func TestMail(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		t.Run("Signal/IsHeardOnceThoughItWasReadBeforeItWasTakenUp", func(t *testing.T) {
			slow := &slowPost{armed: make(chan struct{}), read: make(chan struct{}), out: make(chan struct{}), again: make(chan struct{})}
			g := newGate()
			l := run(t, s, actors{"gate": g, "signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}})}, func(c *engine.Config, d *engine.Deps) {
				slow.Journal, d.Journal = d.Journal, slow
				c.ParkAfter, c.MailPoll = 10*time.Millisecond, 5*time.Millisecond
			})
			waiting := chain(2, "gate")
			waiting.Nodes[0].Actor = "signal"
			id := l.start(t, waiting)
			l.parked(t, id, journal.StateWaiting)
			l.mail(t, id, journal.MailSignal, engine.Letter{Name: "go", Payload: json.RawMessage(`7`)})
			g.next(t) // the signal is durable: the node after it is called
			close(slow.out)
			<-slow.again
			close(g.open)
			l.wait(t, id, journal.StateCompleted)
			evs := l.events(t, id)
			require.Len(t, kinds(evs, workgraph.SignalReceived), 1, "%s", story(evs))
		})
		t.Run("Signal/ThatComesWhileTheRunIsGivenBackIsTakenUp", func(t *testing.T) {
			late := &lateMail{}
			l := run(t, s, actors{"signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}})}, func(_ *engine.Config, d *engine.Deps) {
				late.Journal, d.Journal = d.Journal, late
			})
			late.onPark = func(id string) { l.mail(t, id, journal.MailSignal, engine.Letter{Name: "go"}) }
			waiting := chain(1, "signal")
			l.wait(t, l.start(t, waiting), journal.StateCompleted) // nobody works on jobs here
		})
		t.Run("Signal/OfANeighborIsNotBehindWhatWaitsForATurn", func(t *testing.T) {
			g := newGate()
			l := run(t, s, actors{"gate": g, "signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}})})
			busy := chain(2, "gate")
			busy.Edges[0].When = "true" // what it hears is decided in a turn
			heard := chain(2, "gate")
			heard.Nodes[0].Actor, heard.Edges = "signal", nil
			id, other := l.start(t, busy), l.start(t, heard, func(r *engine.StartRequest) { r.Namespace = "other" })
			g.next(t)
			g.next(t)
			free := l.allTurns(t)
			for range journal.MaxLoadedMail + 1 {
				l.mail(t, id, journal.MailSignal, engine.Letter{Name: "aside"})
			}
			_, err := l.Signal(t.Context(), engine.SignalRequest{Namespace: "other", RunID: other, Signal: engine.Signal{Name: "go"}})
			require.NoError(t, err)
			testkit.Eventually(t, func() bool {
				row, err := l.j.Get(t.Context(), "other", other)
				require.NoError(t, err)
				return row.Nodes.Completed == 1
			}, 20*time.Second, time.Millisecond)
			require.Empty(t, kinds(l.events(t, id), workgraph.SignalReceived))
			free()
			testkit.Eventually(t, func() bool { return len(kinds(l.events(t, id), workgraph.SignalReceived)) == journal.MaxLoadedMail+1 }, time.Minute, 5*time.Millisecond)
			close(g.open)
			l.wait(t, id, journal.StateCompleted)
		})
		t.Run("Signal/LargeOnesAreHeardInTheirOrder", func(t *testing.T) {
			g := newGate()
			l := run(t, s, actors{"gate": g, "signal": waits(workgraph.Wait{Signal: &workgraph.SignalWait{Name: "go"}})})
			heard := chain(2, "gate")
			heard.Nodes[0].Actor, heard.Edges = "signal", nil
			id := l.start(t, heard)
			g.next(t)
			const many = 40
			for i := range many {
				l.mail(t, id, journal.MailSignal, engine.Letter{Name: "aside", Payload: json.RawMessage(`"` + strings.Repeat("x", 1<<(i%14)) + `"`)})
			}
			l.mail(t, id, journal.MailSignal, engine.Letter{Name: "go"})
			testkit.Eventually(t, func() bool { return len(kinds(l.events(t, id), workgraph.SignalReceived)) == many+1 }, time.Minute, 5*time.Millisecond)
			for i, ev := range kinds(l.events(t, id), workgraph.SignalReceived)[:many] {
				require.Len(t, ev.Payload, 2+1<<(i%14))
			}
			close(g.open)
			l.wait(t, id, journal.StateCompleted)
		})
	})
}
