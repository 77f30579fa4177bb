package stack_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/cmd/epigraph/internal/stack"
	"github.com/epigraph-run/epigraph/internal/inflight"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

// TestCrowd sends more large requests at once than dev has memory for. The gateway may refuse some of them.
// The admitted ones must find room at the executor: their memory at the gateway takes nothing from them.
func TestCrowd(t *testing.T) {
	t.Parallel()
	log := &testkit.LogBuffer{}
	c := quiet()
	c.MaxInFlightBytes = 96 << 20
	c.Telemetry.LogWriter, c.Telemetry.LogLevel, c.Telemetry.LogFormat = log, "info", "json"
	d := openDev(t, stack.DevOptions{DataDir: t.TempDir(), Config: c})
	run(t, d)
	require.NoError(t, d.Ready(testkit.Context(t, 20*time.Second)))
	body, err := json.Marshal(map[string]any{"context": map[string]any{"big": strings.Repeat("x", 512<<10)},
		"graph": map[string]any{"nodes": []any{map[string]any{"id": "say", "actor": "template", "named": map[string]any{"text": "a"}}}}})
	require.NoError(t, err)
	var crowd sync.WaitGroup
	var taken atomic.Int32
	for range 24 {
		crowd.Go(func() {
			res, err := http.Post("http://"+d.HTTPAddr()+"/v1/runs", "application/json", strings.NewReader(string(body)))
			if err != nil {
				t.Error(err)
				return
			}
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				taken.Add(1)
			}
		})
	}
	crowd.Wait()
	require.Positive(t, taken.Load())
	said := log.String()
	for line := range strings.Lines(said) {
		require.False(t, strings.Contains(line, "epigraph-executor") && strings.Contains(line, inflight.ReasonBusy), line)
	}
	require.Contains(t, said, "StartRun", "calls are logged")
}
