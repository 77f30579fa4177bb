package engine_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

func TestAlone(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		first := run(t, s, actors{"ok": &recorder{}}, func(c *engine.Config, _ *engine.Deps) { c.Addr = "10.0.0.1:7402" })
		owner := first.Owner()

		cfg := engine.DefaultConfig()
		cfg.ID, cfg.Lease = "exec", 30*time.Second
		second, err := engine.New(cfg, engine.Deps{Journal: s.open(t), Actors: actors{}})
		require.NoError(t, err)
		err = second.Run(t.Context())
		require.Equal(t, engine.ReasonIDTaken, errs.ReasonOf(err), "got %v", err)
		require.Contains(t, err.Error(), `"exec"`)
		require.Contains(t, err.Error(), "10.0.0.1:7402")
		require.Equal(t, owner, first.Owner(), "the first one noticed nothing")
		first.wait(t, first.start(t, chain(1, "ok")), journal.StateCompleted)

		// A dead executor leaves its row behind and sends no more heartbeats.
		first.stop()
		_, err = first.j.Register(context.Background(), "exec", "10.0.0.1:7402")
		require.NoError(t, err)
		third := run(t, s, actors{"ok": &recorder{}}, func(c *engine.Config, _ *engine.Deps) { c.IDWait = time.Second })
		third.wait(t, third.start(t, chain(1, "ok")), journal.StateCompleted)
	})
}

// TestRepeatedStartOfABusyTask repeats a start whose task has had many runs since.
func TestRepeatedStartOfABusyTask(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		registry := &holder{}
		l := run(t, s, actors{"ok": &recorder{}}, func(_ *engine.Config, d *engine.Deps) { d.Claims = registry })
		begin := func(request string) (string, bool) {
			id, created, err := l.Start(t.Context(), command.StartRequest{Namespace: ns, Graph: chain(1, "ok"), TaskID: "tk_busy", Request: journal.Request{ID: request, BodyHash: "b"}})
			require.NoError(t, err)
			return id, created
		}
		first, _ := begin("first")
		for range 101 {
			registry.mu.Lock()
			registry.run = ""
			registry.mu.Unlock()
			begin("")
		}
		again, created := begin("first")
		require.Equal(t, first, again)
		require.False(t, created)
	})
}
