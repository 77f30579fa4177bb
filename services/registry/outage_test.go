package registry_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/registry"
)

// TestOutage stops the database of a registry that sweeps and is called. Its log says so in a few lines.
func TestOutage(t *testing.T) {
	t.Parallel()
	pg, err := pgtest.Start(t.Context(), "")
	require.NoError(t, err)
	t.Cleanup(func() { _ = pg.Stop() })
	log := &testkit.LogBuffer{}
	o := obs.DefaultConfig()
	o.ServiceName, o.LogWriter = "registry", log
	tel, err := obs.Setup(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tel.Shutdown(context.WithoutCancel(t.Context())) })
	cfg := registry.DefaultConfig()
	cfg.Store, cfg.PostgresURL, cfg.SweepInterval = "postgres", conf.NewSecret(pg.URL("")), 10*time.Millisecond
	client, s := serveAs(t, cfg, grpckit.AuthConfig{}, tel)
	c := client("")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	calls := []func() error{
		func() error { _, err := c.ListEpics(ctx, &registryv1.ListEpicsRequest{}); return err },
		func() error {
			_, err := c.CreateEpic(ctx, &registryv1.CreateEpicRequest{Epic: &registryv1.Epic{Title: "goal"}})
			return err
		},
		func() error { _, err := c.GetNamespaceUsage(ctx, &registryv1.GetNamespaceUsageRequest{}); return err },
		func() error { _, err := c.LeaseOrders(ctx, &registryv1.LeaseOrdersRequest{}); return err },
	}
	// As executors do, callers ask again and again, before, meanwhile and afterwards.
	var callers sync.WaitGroup
	var refused atomic.Int64
	for _, call := range calls {
		require.NoError(t, call())
		callers.Go(func() {
			for ctx.Err() == nil {
				if err := call(); errs.Is(err, errs.Unavailable) {
					refused.Add(1)
				}
			}
		})
	}
	require.NoError(t, pg.Crash())
	before := refused.Load()
	testkit.Eventually(t, func() bool { return refused.Load() >= before+20 })
	require.NoError(t, pg.Restart(t.Context()))
	const again = "the registry's database answers again"
	testkit.Eventually(t, func() bool { _, ok := log.Line(t, again); return ok })
	end, _ := log.Line(t, again)
	cancel()
	require.NoError(t, <-done)
	callers.Wait()

	require.Positive(t, end.Left, "the sweeps go on")
	require.Equal(t, []testkit.LogLine{{Level: "ERROR", Msg: "the registry's database does not answer"}}, log.Lines(t, "ERROR"))
	bad := log.Lines(t, "WARN")
	require.LessOrEqual(t, len(bad), 6, "the calls that were refused have a few lines together: %+v", bad)
}
