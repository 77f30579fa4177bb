//go:build unix

package mcp_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/mcp"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestProcess(t *testing.T) {
	t.Parallel()
	t.Run("Exits/IsSaid", func(t *testing.T) {
		t.Parallel()
		s := open(t, map[string]mcp.Server{"x": faulty(t, "exits")})
		e := fails(t, s, "mcp/x/echo", attempt{named: `{}`})
		require.Equal(t, mcp.ReasonDown, e.Reason)
		require.Contains(t, e.Message, "no license found")
	})
	t.Run("NoCommand/IsSaid", func(t *testing.T) {
		t.Parallel()
		s := open(t, map[string]mcp.Server{"x": {Command: "/nowhere/server"}})
		require.Contains(t, fails(t, s, "mcp/x/echo", attempt{named: `{}`}).Message, "the command cannot be started")
	})
	t.Run("Silent/IsGivenUpAndHoldsUpNobody", func(t *testing.T) {
		t.Parallel()
		silent := faulty(t, "silent")
		silent.ConnectTimeout = time.Second
		s := open(t, map[string]mcp.Server{"silent": silent, "good": faulty(t, "noisy")})
		listed(t, s, "mcp/good/echo")
		for range 20 { // while the other one is waited for
			require.Contains(t, value(t, s, "mcp/good/echo", `{}`), "pid")
		}
		require.Contains(t, fails(t, s, "mcp/silent/echo", attempt{named: `{}`}).Message, "did not answer within 1s")
	})
	t.Run("Noise/IsLeftOut", func(t *testing.T) {
		t.Parallel()
		s := open(t, map[string]mcp.Server{"x": faulty(t, "noisy")})
		require.Equal(t, "7", listed(t, s, "mcp/x/echo").Version)
		require.Contains(t, value(t, s, "mcp/x/echo", `{}`), "pid")
	})
	t.Run("Flood/IsBounded", func(t *testing.T) {
		t.Parallel()
		cfg := faulty(t, "floods")
		cfg.MaxResponseBytes = 1 << 20
		s := open(t, map[string]mcp.Server{"x": cfg})
		listed(t, s, "mcp/x/flood")
		e := fails(t, s, "mcp/x/flood", attempt{named: `{}`})
		require.Contains(t, e.Message, "more than 1048576 bytes")
		require.Contains(t, recovered(t, s), "pid")
	})
	t.Run("Death/IsUnknownForUnsafeAndStartsAnother", func(t *testing.T) {
		t.Parallel()
		s := open(t, map[string]mcp.Server{"x": faulty(t, "dies")})
		listed(t, s, "mcp/x/die")
		before := value(t, s, "mcp/x/echo", `{}`)
		e := fails(t, s, "mcp/x/die", attempt{named: `{}`, effect: workgraph.Unsafe})
		require.Equal(t, workgraph.Unknown, e.Type)
		require.Contains(t, e.Message, "segmentation fault, sort of")
		require.NotEqual(t, before, recovered(t, s))
	})
	t.Run("Hang/IsReplaced", func(t *testing.T) {
		t.Parallel()
		cfg := faulty(t, "dies")
		cfg.Timeout = 200 * time.Millisecond
		s := open(t, map[string]mcp.Server{"x": cfg})
		listed(t, s, "mcp/x/hang")
		before := value(t, s, "mcp/x/echo", `{}`)
		require.Equal(t, workgraph.ReasonTimeout, fails(t, s, "mcp/x/hang", attempt{named: `{}`}).Reason)
		require.NotEqual(t, before, recovered(t, s))
	})
	t.Run("Close/KillsTheGroup", func(t *testing.T) {
		t.Parallel()
		pids := filepath.Join(t.TempDir(), "pids")
		cfg := mcp.Config{Servers: map[string]mcp.Server{"x": faulty(t, "clings", "PIDS", pids)}}
		s, err := mcp.New(cfg, mcp.Deps{Logger: slog.New(slog.DiscardHandler), TracerProvider: sdktrace.NewTracerProvider(), Propagator: propagation.TraceContext{}})
		require.NoError(t, err)
		require.Contains(t, value(t, s, "mcp/x/echo", `{}`), "pid")
		text, err := os.ReadFile(pids)
		require.NoError(t, err)
		begun := time.Now()
		require.NoError(t, s.Close())
		require.Less(t, time.Since(begun), 15*time.Second)
		for _, f := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(f)
			require.NoError(t, err)
			testkit.Eventually(t, func() bool { return gone(pid) })
		}
		require.Equal(t, mcp.ReasonDown, fails(t, s, "mcp/x/echo", attempt{named: `{}`}).Reason, "nothing is started any more")
	})
}

// recovered is the answer of the server once it gives one again.
func recovered(t *testing.T, s *mcp.Servers) (answer string) {
	t.Helper()
	testkit.Within(t, time.Minute, 50*time.Millisecond, func() bool {
		var err error
		answer, err = call(t, s, "mcp/x/echo", attempt{named: `{}`})
		return err == nil
	}, "no other server was started")
	return answer
}

// gone reports whether a process does not run any more. One that nobody has waited for yet is a zombie.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}
