package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// later is a journal in which a later version of the machine has written one run.
type later struct {
	journal.Journal
	id    string
	tries atomic.Int32
}

func (l *later) Load(ctx context.Context, id string) (journal.Loaded, error) {
	loaded, err := l.Journal.Load(ctx, id)
	if id == l.id {
		l.tries.Add(1)
		loaded.Snapshot, loaded.Events = nil, ofLaterMachine(loaded.Events)
	}
	return loaded, err
}

func (l *later) Events(ctx context.Context, namespace, id string, after int64, limit int) ([]journal.Event, error) {
	events, err := l.Journal.Events(ctx, namespace, id, after, limit)
	if id == l.id {
		events = ofLaterMachine(events)
	}
	return events, err
}

// ofLaterMachine gives events the next version of the machine, in both of their forms.
func ofLaterMachine(events []journal.Event) []journal.Event {
	events = slices.Clone(events)
	for i := range events {
		data := bytes.Clone(events[i].Data)
		if data[0] == '{' {
			data = bytes.Replace(data, fmt.Appendf(nil, `"v":%d`, workgraph.MachineVersion), fmt.Appendf(nil, `"v":%d`, workgraph.MachineVersion+1), 1)
		} else {
			data[1] = workgraph.MachineVersion + 1
		}
		events[i].Data = data
	}
	return events
}

func TestUnreadableRuns(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		// leave starts a run on an executor that then dies.
		leave := func(name string) string {
			g := newGate()
			l := run(t, s, actors{"work": g}, func(c *engine.Config, _ *engine.Deps) { c.ID = name })
			id := l.start(t, chain(1, "work"))
			g.next(t)
			l.stop()
			return id
		}
		dark := &later{id: leave("a")}
		work := actors{"work": &recorder{}, "ask": waits(workgraph.Wait{Interrupt: &workgraph.Interrupt{Prompt: []byte(`"?"`)}})}
		l := run(t, s, work, func(c *engine.Config, d *engine.Deps) {
			c.RecoverParallel = 1
			dark.Journal, d.Journal = d.Journal, dark
		})
		l.jobs(t)
		testkit.Eventually(t, func() bool { return dark.tries.Load() > 2 })
		t.Run("Journal/IsLeftAsItIs", func(t *testing.T) {
			row := l.row(t, dark.id)
			require.Equal(t, journal.StateRunning, row.State)
			events, err := dark.Journal.Events(t.Context(), ns, dark.id, row.LastSeq, 10)
			require.NoError(t, err)
			require.Empty(t, events)
		})
		t.Run("Others/AreTakenOver", func(t *testing.T) {
			id := leave("c")
			testkit.Eventually(t, func() bool { return l.row(t, id).State == journal.StateCompleted })
		})
		t.Run("Evicted/Continue", func(t *testing.T) {
			id := l.start(t, chain(1, "ask"))
			l.evicted(t, id, journal.StateWaiting)
			_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id})
			require.NoError(t, err)
			l.wait(t, id, journal.StateCanceled)
		})
	})
}
