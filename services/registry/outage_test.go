package registry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
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

// logBook keeps log lines.
type logBook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

type logLine struct {
	Level, Msg string
	Left       int `json:"lines_left_out"`
}

func (b *logBook) lines(t *testing.T) (out []logLine) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.text.String()) {
		var l logLine
		require.NoError(t, json.Unmarshal([]byte(line), &l), line)
		out = append(out, l)
	}
	return out
}

// TestOutage takes the database away from a registry that sweeps and is called. Its log says so in a few
// lines.
func TestOutage(t *testing.T) {
	t.Parallel()
	pg, err := pgtest.Start(t.Context(), "")
	require.NoError(t, err)
	t.Cleanup(func() { _ = pg.Stop() })
	log := &logBook{}
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
		func() error { _, err := c.LeaseCancellations(ctx, &registryv1.LeaseCancellationsRequest{}); return err },
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
	testkit.Eventually(t, func() bool { return refused.Load() >= before+20 }, time.Minute, time.Millisecond)
	require.NoError(t, pg.Restart(t.Context()))
	var end logLine
	testkit.Eventually(t, func() bool {
		lines := log.lines(t)
		i := slices.IndexFunc(lines, func(l logLine) bool { return l.Msg == "the registry's database answers again" })
		if i >= 0 {
			end = lines[i]
		}
		return i >= 0
	}, time.Minute, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
	callers.Wait()

	require.Positive(t, end.Left, "the sweeps go on")
	var grave, bad []logLine
	for _, l := range log.lines(t) {
		switch {
		case l.Level == "ERROR":
			grave = append(grave, l)
		case l.Level == "WARN" && l.Msg != "unavailable": // each call that was refused has a line of its own
			bad = append(bad, l)
		}
	}
	require.Equal(t, []logLine{{Level: "ERROR", Msg: "the registry's database does not answer"}}, grave)
	require.LessOrEqual(t, len(bad), 4, "%+v", bad)
}
