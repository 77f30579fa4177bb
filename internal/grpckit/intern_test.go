package grpckit

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/epigraph-run/epigraph/internal/obs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

func sample(name, task string) *executorv1.StartRunRequest {
	return &executorv1.StartRunRequest{TaskId: task, Priority: 3, Labels: map[string]string{"a": "b"},
		Graph: &graphv1.Graph{Name: name, Nodes: []*graphv1.Node{{Id: "n0", Actor: "cel"}, {Id: "n1", Actor: "cel"}}, Edges: []*graphv1.Edge{{From: "n0", To: "n1"}}}}
}

func wire(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	require.NoError(t, err)
	return b
}

// read decodes and validates as a server does.
func read(t *testing.T, k *chain, b []byte) (*executorv1.StartRunRequest, *Shared, error) {
	t.Helper()
	var m executorv1.StartRunRequest
	if err := k.interned.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, &m); err != nil {
		return nil, nil, err
	}
	c := &call{}
	var got *Shared
	err := k.validate(t.Context(), c, func(ctx context.Context) error {
		ctx, err := k.checked(ctx, c, &m)
		got = SharedOf(ctx)
		return err
	})
	return &m, got, err
}

func TestInterned(t *testing.T) {
	t.Parallel()
	fresh := func(t *testing.T) *chain {
		k, err := newChain(Options{Telemetry: obs.Noop(), Logger: obs.Noop().Logger}, nil)
		require.NoError(t, err)
		k.interned.add((*executorv1.StartRunRequest)(nil), "graph")
		return k
	}
	t.Run("Unmarshal/SharesWhatComesAgainAndNothingElse", func(t *testing.T) {
		t.Parallel()
		k := fresh(t)
		var graphs []*graphv1.Graph
		for i := range 4 {
			want := sample("g", fmt.Sprintf("tk_%d", i))
			got, shared, err := read(t, k, wire(t, want))
			require.NoError(t, err)
			require.Empty(t, cmp.Diff(want, got, protocmp.Transform()))
			require.Equal(t, i >= 1, shared != nil, i)
			graphs = append(graphs, got.GetGraph())
		}
		require.NotSame(t, graphs[0], graphs[1])
		require.Same(t, graphs[1], graphs[2])
		require.Same(t, graphs[2], graphs[3])
		other, shared, err := read(t, k, wire(t, sample("h", "")))
		require.NoError(t, err)
		require.Nil(t, shared)
		require.Equal(t, "h", other.GetGraph().GetName())
	})
	t.Run("Unmarshal/FieldAmongOthersOrTwice", func(t *testing.T) {
		t.Parallel()
		k := fresh(t)
		graph := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), wire(t, sample("g", "").GetGraph()))
		more := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), wire(t, &graphv1.Graph{Nodes: []*graphv1.Node{{Id: "n2"}}}))
		rest := wire(t, &executorv1.StartRunRequest{TaskId: "tk_1", UserId: "u"})
		for _, b := range [][]byte{append(append([]byte{}, rest...), graph...), append(append([]byte{}, graph...), rest...),
			append(append(append([]byte{}, rest...), graph...), rest...), append(append([]byte{}, graph...), more...), rest, nil} {
			var want executorv1.StartRunRequest
			require.NoError(t, proto.Unmarshal(b, &want))
			for range 3 {
				var got executorv1.StartRunRequest
				require.NoError(t, k.interned.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, &got))
				require.Empty(t, cmp.Diff(&want, &got, protocmp.Transform()))
			}
		}
		for range 3 {
			require.Error(t, k.interned.Unmarshal(mem.BufferSlice{mem.SliceBuffer(append(append([]byte{}, graph...), 0xff))}, &executorv1.StartRunRequest{}))
		}
	})
	t.Run("Validate/FaultsOfSharedAndOfTheRestAreFoundEachTime", func(t *testing.T) {
		t.Parallel()
		k := fresh(t)
		bad := sample("g", "")
		bad.Graph.Nodes[0].MaxVisits = -7
		for range 4 {
			_, _, err := read(t, k, wire(t, bad))
			require.ErrorContains(t, err, "not valid")
		}
		for range 4 {
			_, _, err := read(t, k, wire(t, sample("g", "")))
			require.NoError(t, err)
		}
		rest := sample("g", "")
		rest.Priority = 9
		for range 3 {
			_, _, err := read(t, k, wire(t, rest))
			require.ErrorContains(t, err, "not valid")
		}
		_, _, err := read(t, k, wire(t, &executorv1.StartRunRequest{TaskId: "tk_1", Priority: 9}))
		require.ErrorContains(t, err, "not valid", "without a graph as well")
	})
	t.Run("Note/StaysWithTheValue", func(t *testing.T) {
		t.Parallel()
		k := fresh(t)
		for i := range 5 {
			_, shared, err := read(t, k, wire(t, sample("g", "")))
			require.NoError(t, err)
			switch {
			case i == 1:
				require.Nil(t, shared.Note())
				shared.SetNote("seen")
			case i > 1:
				require.Equal(t, "seen", shared.Note())
			}
		}
	})
	t.Run("Keep/IsBounded", func(t *testing.T) {
		t.Parallel()
		k := fresh(t)
		big := make([]*graphv1.Node, 1000)
		for i := range big {
			big[i] = &graphv1.Node{Id: fmt.Sprintf("node-with-a-name-of-some-length-%d", i), Actor: "cel"}
		}
		for i := range 100 {
			b := wire(t, &executorv1.StartRunRequest{Graph: &graphv1.Graph{Name: fmt.Sprint(i), Nodes: big}})
			for range 2 {
				_, _, err := read(t, k, b)
				require.NoError(t, err)
			}
			require.LessOrEqual(t, k.interned.byKey.Weight(), int64(maxSharedBytes))
			require.Len(t, k.interned.byValue, k.interned.byKey.Len())
		}
		require.Greater(t, k.interned.byKey.Len(), 10)
		huge := make([]*graphv1.Node, 10_000)
		for i := range huge {
			huge[i] = big[i%len(big)]
		}
		b := wire(t, &executorv1.StartRunRequest{Graph: &graphv1.Graph{Nodes: huge}})
		for range 3 {
			_, shared, err := read(t, k, b)
			require.NoError(t, err)
			require.Nil(t, shared)
		}
	})
	t.Run("Add/UnknownFieldPanics", func(t *testing.T) {
		t.Parallel()
		for _, field := range []string{"nothing", "task_id", "args"} {
			require.Panics(t, func() { newInterned().add((*executorv1.StartRunRequest)(nil), protoreflect.Name(field)) })
		}
	})
}
