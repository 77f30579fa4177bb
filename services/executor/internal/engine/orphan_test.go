package engine_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// slowStarts is a packer that stores the inputs of children for as long as its gate is shut.
type slowStarts struct {
	journal.Packer
	begun chan string
	open  chan struct{}
}

func (p slowStarts) Pack(w journal.Write) (journal.Write, func(context.Context) journal.Write) {
	if w.Start == nil || w.Start.Run.ParentID == "" {
		return w, nil
	}
	return w, func(context.Context) journal.Write {
		p.begun <- w.Start.Run.ID
		<-p.open
		return w
	}
}

func TestChildOutlivedByItsStart(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		p := slowStarts{begun: make(chan string, 1), open: make(chan struct{})}
		a := actors{"gate": newGate(), "spawn": spawns(workgraph.Child{Graph: chain(1, "gate")})}
		l := run(t, s, a, func(_ *engine.Config, d *engine.Deps) { d.Packer = p })
		l.jobs(t)
		id := l.start(t, chain(1, "spawn"))
		child := <-p.begun
		_, err := l.Cancel(t.Context(), command.CancelRequest{Namespace: ns, RunID: id, Reason: "enough"})
		require.NoError(t, err)
		close(p.open)
		l.wait(t, id, journal.StateCanceled)
		testkit.Eventually(t, func() bool {
			row, err := l.j.Get(t.Context(), ns, child)
			return err == nil && row.State == journal.StateCanceled
		}, "commands wait for the start of the run that it is for")
	})
}
