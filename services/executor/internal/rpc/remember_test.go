package rpc_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/errs"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/outbox"
	"github.com/epigraph-run/epigraph/services/executor/internal/rpc"
)

// keptMemory notes what is written, and refuses what is about mallory.
type keptMemory struct {
	registryv1.MemoryServiceClient
	written []*registryv1.WriteMemoryRequest
	// full, if it is set, is the user for whom there is no room.
	full string
}

func (k *keptMemory) WriteMemory(_ context.Context, r *registryv1.WriteMemoryRequest, _ ...grpc.CallOption) (*registryv1.WriteMemoryResponse, error) {
	if r.GetMemory().GetScope().GetSubject() == "mallory" {
		return nil, errs.New(errs.InvalidArgument, "MEMORY_INVALID", "no")
	}
	if user := r.GetMemory().GetUserId(); k.full != "" && user == k.full {
		return nil, errs.New(errs.ResourceExhausted, "FULL", "no room")
	}
	k.written = append(k.written, r)
	return &registryv1.WriteMemoryResponse{}, nil
}

func TestLearn(t *testing.T) {
	t.Parallel()
	k := &keptMemory{}
	l := outbox.Learned{RunID: "run_1", Workflow: "digest", Learnings: []outbox.Learning{
		{ID: "0", User: "mallory", Content: "x"}, {ID: "1", Agent: "a", User: "ada", Name: "drink", Content: "tea", Time: time.UnixMicro(5)}, {ID: "2", Content: "y"},
	}}
	err := rpc.NewRegistry(nil, k, "db", nil).Learn(t.Context(), "acme", l)
	require.Equal(t, "MEMORY_INVALID", errs.ReasonOf(err), "what is refused is told")
	require.Len(t, k.written, 2, "and the others are kept")
	m := k.written[0].GetMemory()
	require.Equal(t, []string{"ada", "learned:a:drink", "tea", "run_1", "ada"}, []string{m.GetScope().GetSubject(), m.GetKey(), m.GetText(), m.GetSource(), m.GetUserId()})
	require.Equal(t, "learned/run_1/1/5", k.written[0].GetRequestId())
	require.JSONEq(t, `{"agent": "a", "name": "drink", "time": "1970-01-01T00:00:00.000005Z"}`, string(m.GetValue().GetJson()))
	require.Equal(t, "digest", k.written[1].GetMemory().GetScope().GetSubject())
}

func TestLearnWithoutRoom(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		age     time.Duration
		want    errs.Kind
		written int
	}{
		"IsTriedAgainAtFirst":         {time.Minute, errs.ResourceExhausted, 0},
		"IsGivenUpAndTheOthersAreNot": {time.Hour, errs.FailedPrecondition, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, at := &keptMemory{full: "ada"}, time.Now().Add(-c.age)
			err := rpc.NewRegistry(nil, k, "db", nil).Learn(t.Context(), "acme", outbox.Learned{RunID: "run_1", Learnings: []outbox.Learning{
				{ID: "1", Agent: "a", User: "ada", Name: "drink", Content: "tea", Time: at}, {ID: "2", Agent: "a", Name: "food", Content: "rice", Time: at},
			}})
			require.Equal(t, c.want, errs.KindOf(err), "%v", err)
			require.Len(t, k.written, c.written)
		})
	}
}
