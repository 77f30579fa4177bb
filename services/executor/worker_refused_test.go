package executor_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor"
)

func TestWorkersStreamsAreBounded(t *testing.T) {
	r := openOne(t)
	var last error
	for range 50 { // on a busy machine some may be given up meanwhile
		if _, _, last = r.connect(t, keyOther, hello(1, pure("crowd"))); last != nil {
			break
		}
	}
	require.Equal(t, "TOO_MANY_WORKERS", errs.ReasonOf(last), "got %v", last)
}

func TestWorkersPrincipalIsThatOfTheKeyWhateverTheClientSays(t *testing.T) {
	r := openOne(t)
	runs := executorv1.NewExecutorServiceClient(r.dial(keyAcme))
	front := executorv1.NewExecutorServiceClient(r.dial(serviceToken)) // as a gateway calls for a client
	behalf := metadata.AppendToOutgoingContext(t.Context(), grpckit.HeaderNamespace, "acme", grpckit.HeaderPrincipal,
		access.Principal{Kind: access.Key, Name: "rest", Scopes: access.Scopes()}.Encode())
	run, err := runs.StartRun(t.Context(), &executorv1.StartRunRequest{Graph: nodes(&graphv1.Node{Id: "q", Actor: "human",
		Named: map[string]*graphv1.Payload{"prompt": value(`"May I?"`)}})})
	require.NoError(t, err)
	require.Equal(t, "key:acme", run.GetPrincipal())
	fork, err := front.ForkRun(behalf, &executorv1.ForkRunRequest{RunId: run.GetId()})
	require.NoError(t, err)
	require.Equal(t, "key:rest", fork.GetPrincipal(), "who forks starts")
	read, err := runs.GetRun(t.Context(), &executorv1.GetRunRequest{RunId: run.GetId()})
	require.NoError(t, err)
	require.Equal(t, "key:acme", read.GetPrincipal())
	_, err = runs.PauseRun(t.Context(), &executorv1.PauseRunRequest{RunId: run.GetId(), Reason: "key:somebody else"})
	require.NoError(t, err)
	_, err = front.ResumeRun(behalf, &executorv1.ResumeRunRequest{RunId: run.GetId()})
	require.NoError(t, err)
	watch, err := runs.WatchRun(t.Context(), &executorv1.WatchRunRequest{RunId: run.GetId()})
	require.NoError(t, err)
	paused, resumed := "", ""
	for resumed == "" {
		ev, err := watch.Recv()
		require.NoError(t, err)
		switch {
		case ev.GetRunPaused() != nil:
			paused = ev.GetPrincipal()
		case ev.GetRunResumed() != nil:
			resumed = ev.GetPrincipal()
		}
	}
	require.Equal(t, "key:acme", paused)
	require.Equal(t, "key:rest", resumed)
}

func TestWorkersPeersAreServicesOnly(t *testing.T) {
	r := openOne(t)
	stream, err := executorv1.NewPeerServiceClient(r.dial(keyAcme)).Invoke(t.Context())
	require.NoError(t, err)
	_, err = stream.Recv()
	require.Equal(t, access.ReasonScope, errs.ReasonOf(err), "got %v", err)
}

// A worker whose actors cannot be recorded is refused with a reason, and leaves no rows that would keep
// others out.
func TestWorkersRefused(t *testing.T) {
	t.Parallel()
	r := open(t, "one", func(c *executor.Config) { c.Workers.MaxActors, c.Workers.MaxStreams = 1, 2 })
	for range 5 {
		_, _, err := r.connect(t, keyAcme, hello(1, pure("first"), pure("second")))
		require.Equal(t, "TOO_MANY_ACTORS", errs.ReasonOf(err), "%v", err)
	}
	r.worker(t, hello(1, pure("first")))
}
