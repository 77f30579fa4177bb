package rpc

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/admission"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

// faulty is a store of threads that cannot say who is next, nor how a turn stands.
type faulty struct {
	thread.Store

	turn error
}

func (f faulty) NextTurn(context.Context, string, string) (thread.Line, error) {
	return thread.Line{}, errors.New("the disk is on fire")
}

func (f faulty) Turn(ctx context.Context, namespace, id string, number int64) (thread.Turn, error) {
	if f.turn != nil {
		return thread.Turn{}, f.turn
	}
	return f.Store.Turn(ctx, namespace, id, number)
}

// known says of every actor that it is there.
func known(context.Context, string, string) (bool, []string, error) { return false, nil, nil }

func TestAppendMessageThatIsDurableIsNoError(t *testing.T) {
	t.Parallel()
	ctx := grpckit.WithNamespace(t.Context(), "ns")
	store, err := sqlite.Open(ctx, filepath.Join(t.TempDir(), "j.db"), sqlite.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	_, err = store.Migrations().Up(ctx)
	require.NoError(t, err)
	for name, f := range map[string]faulty{"TheAgentCannotBeGivenIt": {store, nil}, "NorCanItBeReadAgain": {store, errors.New("nor this")}} {
		t.Run(name, func(t *testing.T) {
			s := NewThreadServer(f, thread.NewConductor(f, nil, nil, time.Now), thread.Bounds{Queued: 100}, known, nil, &admission.Control{})
			th, err := s.CreateThread(ctx, &executorv1.CreateThreadRequest{Thread: &executorv1.Thread{Agent: "agent/a"}})
			require.NoError(t, err)
			turn, err := s.AppendMessage(ctx, &executorv1.AppendMessageRequest{ThreadId: th.GetId(), Content: &graphv1.Payload{Json: []byte(`"hello"`)}})
			require.NoError(t, err, "without a request_id the client would send it twice")
			require.EqualValues(t, 1, turn.GetNumber())
			require.Equal(t, executorv1.TurnState_TURN_STATE_QUEUED, turn.GetState())
			kept, err := store.ListTurns(ctx, "ns", th.GetId(), 0, 10)
			require.NoError(t, err)
			require.Len(t, kept, 1)
		})
	}
}
