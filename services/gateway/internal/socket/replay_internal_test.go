package socket

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/inflight"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// family is an executor with one run, each of whose descendants has one event. After the last one
// nothing happens, but for signs of life.
type family struct {
	executorv1.ExecutorServiceClient

	children int
	ends     bool
}

func (f family) WatchRun(ctx context.Context, _ *executorv1.WatchRunRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[executorv1.RunEvent], error) {
	return &familyStream{family: f, ctx: ctx}, nil
}

type familyStream struct {
	grpc.ServerStreamingClient[executorv1.RunEvent]
	family

	ctx  context.Context
	told int
}

func (s *familyStream) Header() (metadata.MD, error) { return nil, nil }

func (s *familyStream) Recv() (*executorv1.RunEvent, error) {
	switch {
	case s.ctx.Err() != nil:
		return nil, s.ctx.Err()
	case s.told == s.children && s.ends:
		return nil, io.EOF
	case s.told == s.children:
		return &executorv1.RunEvent{RunId: "run", Event: &executorv1.RunEvent_KeepAlive{KeepAlive: &executorv1.KeepAlive{}}}, nil
	}
	s.told++
	return &executorv1.RunEvent{RunId: fmt.Sprintf("run_%d", s.told), Seq: 1, Event: &executorv1.RunEvent_RunPaused{RunPaused: &executorv1.RunPaused{}}}, nil
}

// replayOf replays a family to its end, or until on says that it is enough.
func replayOf(t *testing.T, f family, at position, on func() bool) error {
	t.Helper()
	s := New(Options{Executor: f, Budget: inflight.New(0), Encode: func(proto.Message) ([]byte, error) { return []byte("{}"), nil }, FromStatus: func(err error) error { return err }})
	ctx := grpckit.WithNamespace(t.Context(), "default")
	return runSource{s: s, run: "run"}.replay(ctx, "run:run", at, func(*event) error { return nil }, on)
}

// TestReplayMemory compares what replays of runs with few and with many descendants take. It counts
// the memory of the process, so it runs alone.
func TestReplayMemory(t *testing.T) { //nolint:paralleltest // see above
	took := func(children int) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.ErrorIs(t, replayOf(t, family{children: children, ends: true}, position{}, func() bool { return false }), io.EOF)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	took(100) // what is made once
	few, many := took(500), took(4000)
	t.Logf("500 descendants: %d bytes, 4,000: %d bytes", few, many)
	require.Less(t, many, 16*few, "eight times as many descendants take about eight times as much")
}

func TestReplayPosition(t *testing.T) {
	t.Parallel()
	t.Run("MovesWithWhatWasGiven", func(t *testing.T) {
		t.Parallel()
		at := position{}
		require.ErrorIs(t, replayOf(t, family{children: 300, ends: true}, at, func() bool { return false }), io.EOF)
		require.Len(t, at, 300)
	})
	t.Run("FewDescendants/IsAskedAfterEachEvent", func(t *testing.T) {
		t.Parallel()
		at := position{}
		require.NoError(t, replayOf(t, family{children: 300}, at, func() bool { return len(at) == 7 }))
		require.Len(t, at, 7)
	})
	t.Run("ManyDescendants/IsAskedSeldomAndInSilence", func(t *testing.T) {
		t.Parallel()
		at, asked := position{}, 0
		require.NoError(t, replayOf(t, family{children: 5000}, at, func() bool {
			asked++
			return len(at) == 5000
		}))
		require.Less(t, asked, 200)
	})
}
