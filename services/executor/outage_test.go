package executor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/obs"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	"github.com/epigraph-run/epigraph/services/executor"
)

// TestOutage stops the database of a running executor. All its loops notice, and its log says so in a few
// lines.
func TestOutage(t *testing.T) {
	t.Parallel()
	server, err := pgtest.Start(t.Context(), "")
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Stop() })
	log := &testkit.LogBuffer{}
	o := obs.DefaultConfig()
	o.ServiceName, o.LogWriter = "executor", log
	tel, err := obs.Setup(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tel.Shutdown(context.WithoutCancel(t.Context())) })
	cfg := executor.DefaultConfig()
	cfg.Store, cfg.PostgresURL, cfg.ID, cfg.Lease = "postgres", conf.NewSecret(server.URL("")), "one", 4*time.Second
	svc, err := executor.Open(t.Context(), cfg, executor.Deps{Telemetry: tel})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- svc.Run(ctx) }()
	ready := func() bool { return svc.Ready(ctx) == nil }
	testkit.Eventually(t, ready)

	require.NoError(t, server.Crash())
	testkit.Eventually(t, func() bool { return !ready() })
	require.NoError(t, server.Restart(t.Context()))
	testkit.Eventually(t, ready)
	testkit.Eventually(t, func() bool { _, ok := log.Line(t, "the executor's database answers again"); return ok })
	cancel()
	require.NoError(t, <-done)
	require.NoError(t, svc.Close())

	end, _ := log.Line(t, "the executor's database answers again")
	bad := log.Lines(t, "WARN", "ERROR")
	t.Logf("%d lines left out; told were %+v", end.Left, bad)
	require.Positive(t, end.Left, "the loops go on")
	require.Equal(t, testkit.LogLine{Level: "ERROR", Msg: "the executor's database does not answer"}, bad[0])
	// One connection of many can be found broken when others are made anew already: that is told, too.
	require.LessOrEqual(t, len(log.Lines(t, "ERROR")), 2)
	require.LessOrEqual(t, len(bad), 4)
}
