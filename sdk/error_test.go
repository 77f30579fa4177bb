package epigraph_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	epigraph "github.com/epigraph-run/epigraph/sdk"
)

// ended is an executor all of whose runs have the same end.
type ended struct {
	executorv1.UnimplementedExecutorServiceServer
	run *executorv1.Run
}

func (e ended) GetRun(context.Context, *executorv1.GetRunRequest) (*executorv1.Run, error) {
	return e.run, nil
}

func TestErrors(t *testing.T) {
	t.Parallel()
	runs := func(t *testing.T, r *executorv1.Run) *epigraph.Run {
		t.Helper()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		s := grpc.NewServer()
		executorv1.RegisterExecutorServiceServer(s, ended{run: r})
		go func() { _ = s.Serve(l) }()
		t.Cleanup(s.Stop)
		c, err := epigraph.Dial(l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c.Run("run_1")
	}

	t.Run("Error/TellsItsHintOnce", func(t *testing.T) {
		e := &epigraph.Error{Reason: "GRAPH_INVALID", Message: "the graph has 2 faults", Hint: "did you mean template?", Violations: []epigraph.Violation{
			{Field: "graph.nodes[a].actor", Message: `no actor is called "templat"; did you mean template?`},
			{Field: "graph.nodes[b].actor", Message: `no actor is called "tmplate"; did you mean template?`},
		}}
		require.Equal(t, `GRAPH_INVALID: the graph has 2 faults; graph.nodes[a].actor: no actor is called "templat"; did you mean template?; `+
			`graph.nodes[b].actor: no actor is called "tmplate"; did you mean template?`, e.Error())
		e.Hint = "give every node an actor"
		require.True(t, strings.HasSuffix(e.Error(), " (give every node an actor)"), "%v", e)
	})

	t.Run("Error/OneFaultIsToldOnce", func(t *testing.T) {
		e := &epigraph.Error{Reason: "GRAPH_INVALID", Message: `the graph has a fault: no actor is called "shout"`, Hint: "actors here: cel", Violations: []epigraph.Violation{
			{Field: "graph.nodes[shout].actor", Message: `no actor is called "shout"; actors here: cel`},
		}}
		require.Equal(t, `GRAPH_INVALID: graph.nodes[shout].actor: no actor is called "shout"; actors here: cel`, e.Error())
	})

	t.Run("ReasonOf/AFailedRunHasOne", func(t *testing.T) {
		_, err := epigraph.Result[string](t.Context(), runs(t, &executorv1.Run{State: executorv1.RunState_RUN_STATE_FAILED, StateReason: "NODE_FAILED",
			Error: &executorv1.RunError{Reason: "DISK_FULL", Message: "no space left", NodeId: "a"}}))
		require.Equal(t, "DISK_FULL", epigraph.ReasonOf(err))
		require.Equal(t, "DISK_FULL", epigraph.ReasonOf(fmt.Errorf("write the notes: %w", err)))
	})

	t.Run("ReasonOf/ACanceledRunHasThatOfItsEnd", func(t *testing.T) {
		_, err := epigraph.Result[string](t.Context(), runs(t, &executorv1.Run{State: executorv1.RunState_RUN_STATE_CANCELED, StateReason: "CANCELED"}))
		require.Equal(t, "CANCELED", epigraph.ReasonOf(err))
		require.Equal(t, "run run_1 was canceled: CANCELED", err.Error())
	})

	t.Run("Result/ThatDoesNotFitNamesTheRun", func(t *testing.T) {
		_, err := epigraph.Result[int](t.Context(), runs(t, &executorv1.Run{State: executorv1.RunState_RUN_STATE_COMPLETED, Result: &graphv1.Payload{Json: []byte(`"text"`)}}))
		require.EqualError(t, err, "read the result of run run_1: json: cannot unmarshal string into Go value of type int")
	})

	t.Run("Unavailable/NamesTheAddressWhereNobodyIs", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		addr := l.Addr().String()
		require.NoError(t, l.Close())
		c, err := epigraph.Dial(addr)
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Run("run_1").Get(t.Context())
		require.Equal(t, "SERVICE_UNAVAILABLE", epigraph.ReasonOf(err))
		require.ErrorContains(t, err, "SERVICE_UNAVAILABLE: nothing answers at "+addr+": dial tcp "+addr+": connect: connection refused")
		require.NotContains(t, err.Error(), "desc =")
	})
}
