package engine

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/memory"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// releases is a journal that records which runs are handed back, while another executor lives.
type releases struct {
	journal.Journal
	released chan []string
}

func (k releases) Executors(context.Context) ([]journal.Executor, error) {
	return []journal.Executor{{Owner: journal.Owner{ID: "other"}}}, nil
}

func (k releases) Release(_ context.Context, _ journal.Owner, ids []string) error {
	k.released <- ids
	return nil
}

func TestRoomLine(t *testing.T) {
	t.Parallel()
	const runs = 1000
	line := func(t *testing.T, patience time.Duration) (*session, releases, context.CancelFunc) {
		ctx, end := context.WithCancel(t.Context())
		j := releases{released: make(chan []string, runs)}
		e := &Engine{log: slog.New(slog.DiscardHandler), journal: j, roomWait: patience}
		e.cfg.Lease = time.Minute
		x := &session{e: e, background: ctx, memory: memory.New(1 << 20), runs: map[string]*run{}, pendingLoads: map[string]bool{}}
		x.memory.Add("acme", 1<<20)
		for i := range runs {
			id := fmt.Sprint("run_", i)
			x.mu.Lock()
			require.True(t, x.markLoad(id))
			x.mu.Unlock()
			x.queueForRoom(id, &memory.FullError{Namespace: "acme", Size: 10 << 10})
		}
		return x, j, end
	}
	t.Run("AFewWaitWithTheBudget", func(t *testing.T) {
		t.Parallel()
		x, _, end := line(t, time.Hour)
		x.mu.Lock()
		acme := x.lines.byKey[lineKey{namespace: "acme"}]
		require.Equal(t, roomWaiters, acme.waiting)
		require.Len(t, acme.queue, runs-roomWaiters)
		require.Len(t, x.lines.by, runs)
		x.mu.Unlock()
		end()
		x.work.Wait()
	})
	t.Run("CommandsAreAskedForOncePerRun", func(t *testing.T) {
		t.Parallel()
		x, _, end := line(t, time.Hour)
		busy, ending := x.beingHandled()
		require.Empty(t, busy, "of most of them there is no commands")
		require.Empty(t, ending)
		require.True(t, x.noteCommandsInLine("run_7", false))
		require.False(t, x.noteCommandsInLine("elsewhere", true))
		busy, ending = x.beingHandled()
		require.Equal(t, []string{"run_7"}, busy, "a cancel is looked for all the same")
		require.Empty(t, ending)
		end()
		x.work.Wait()
	})
	t.Run("CanceledRunsHaveALineOfTheirOwn", func(t *testing.T) {
		t.Parallel()
		x, _, end := line(t, time.Hour)
		room := int64(1<<20) / memory.CanceledShare
		x.memory.Canceled.Add("acme", room) // other runs of the namespace are ending
		canceled := func(i int) bool { return i%10 == 0 }
		var want []string
		for i := range runs {
			id := fmt.Sprint("run_", i)
			require.True(t, x.noteCommandsInLine(id, canceled(i)))
			require.True(t, x.noteCommandsInLine(id, canceled(i)), "it may be told twice")
			if canceled(i) {
				want = append(want, id)
			}
		}
		testkit.Eventually(t, func() bool {
			x.mu.Lock()
			defer x.mu.Unlock()
			of := x.lines.byKey[lineKey{namespace: "acme", canceled: true}]
			return of != nil && of.waiting+len(of.queue) == len(want)
		})
		busy, ending := x.beingHandled()
		require.Len(t, busy, runs-len(want))
		require.ElementsMatch(t, want, ending, "their cancels are known")
		require.Equal(t, []string{"acme"}, x.queuedCanceled(), "no more of its runs are taken over")
		require.EqualValues(t, 1<<20, x.memory.Used(), "nobody has been read")
		end()
		x.work.Wait()
		require.EqualValues(t, room, x.memory.Canceled.Used())
	})
	t.Run("LongWaitersAreHandedBack", func(t *testing.T) {
		t.Parallel()
		x, j, end := line(t, time.Millisecond)
		got := map[string]bool{}
		for len(got) < runs {
			for _, id := range <-j.released {
				require.False(t, got[id], id)
				got[id] = true
			}
		}
		end()
		x.work.Wait()
		require.Empty(t, x.lines.by)
		require.Empty(t, x.lines.byKey)
		require.Empty(t, x.pendingLoads)
	})
}

func TestLoadQueue(t *testing.T) {
	t.Parallel()
	var l loadLine
	for i := range 3 {
		l.push(&pendingLoad{namespace: "a", id: fmt.Sprint("a", i)}, false)
	}
	l.push(&pendingLoad{namespace: "b", id: "b0"}, false)
	l.push(&pendingLoad{namespace: "c", id: "granted"}, true)
	order := func() (ids []string) {
		for b := l.pop(); b != nil; b = l.pop() {
			ids = append(ids, b.id)
		}
		return ids
	}
	require.Equal(t, []string{"granted", "a0", "b0", "a1", "a2"}, order(), "what holds something first, then namespaces in turn")
	l.push(&pendingLoad{namespace: "a", id: "a3"}, false)
	require.Equal(t, []string{"a3"}, order(), "it may fill again")
	require.Empty(t, l.byNamespace)
	require.Empty(t, l.order)
}
