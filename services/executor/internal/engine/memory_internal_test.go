package engine

import (
	"context"
	"math"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/memory"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// registered counts how often it is asked for live executors.
type registered struct {
	journal.Journal
	asked atomic.Int32
	all   []journal.Executor
}

func (j *registered) Executors(context.Context) ([]journal.Executor, error) {
	j.asked.Add(1)
	return j.all, nil
}

func TestHasPeers(t *testing.T) {
	t.Parallel()
	t.Run("RunsThatWaitShareOneAnswer", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			j := &registered{}
			tm := &session{e: &Engine{journal: j, cfg: Config{Lease: time.Minute}}, owner: journal.Owner{ID: "me"}, background: t.Context()}
			all := func(want bool) {
				var wg sync.WaitGroup
				for range 100 {
					wg.Go(func() { require.Equal(t, want, tm.hasPeers()) })
				}
				wg.Wait()
			}
			all(false)
			require.EqualValues(t, 1, j.asked.Load())
			j.all = []journal.Executor{{Owner: journal.Owner{ID: "other"}}}
			all(false)
			require.EqualValues(t, 1, j.asked.Load(), "the answer holds for a while")
			time.Sleep(peersKnown) //nolint:forbidigo // fake time
			all(true)
			require.EqualValues(t, 2, j.asked.Load())
		})
	})
}

// TestWaitsForRoom checks that a run which waits for memory is reported as such, to its namespace alone.
func TestWaitsForRoom(t *testing.T) {
	t.Parallel()
	e := &Engine{ready: make(chan struct{})}
	since := time.Now()
	e.set(&session{runs: map[string]*run{}, lines: roomLines{by: map[string]*inLine{"run_1": {lacks: &memory.FullError{Namespace: "acme"}, since: since}}}})
	for _, id := range []string{"other/run_1", "acme/run_2"} {
		namespace, run, _ := strings.Cut(id, "/")
		_, waits := e.WaitsForRoom(namespace, run)
		require.False(t, waits, id)
	}
	at, waits := e.WaitsForRoom("acme", "run_1")
	require.True(t, waits)
	require.Equal(t, since, at)
}

// TestDefaultLive sets the memory limit of the process, so it must not run in parallel.
func TestDefaultLive(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	require.EqualValues(t, 1<<30, memory.DefaultLive(), "without a limit")
	for limit, want := range map[int64]int64{1 << 30: 128 << 20, 64 << 20: 32 << 20, 64 << 30: 8 << 30} {
		debug.SetMemoryLimit(limit)
		require.Equal(t, want, memory.DefaultLive(), "with a limit of %d", limit)
		require.Equal(t, want, DefaultConfig().MaxLiveBytes, "with a limit of %d", limit)
	}
}
