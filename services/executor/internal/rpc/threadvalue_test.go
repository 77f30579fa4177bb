package rpc

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/admission"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
)

// stuck is a store in which large work does not end before its door opens.
type stuck struct {
	thread.Store

	came chan struct{}
	door chan struct{}
}

func (s stuck) work(namespace string) error {
	if namespace == "a" {
		s.came <- struct{}{}
		<-s.door
	}
	return thread.NotFound("thr_none")
}

func (s stuck) ImportThreads(_ context.Context, m thread.Import) (thread.Thread, error) {
	return thread.Thread{}, s.work(m.Namespace)
}

func (s stuck) Family(_ context.Context, namespace, _ string, _ int) ([]thread.Relative, error) {
	return nil, s.work(namespace)
}

func TestThreadsAsValuesAreLetIn(t *testing.T) {
	t.Parallel()
	// The items are small, so that the bytes of the request alone are cheap.
	large := &graphv1.Payload{Json: []byte(`{"format": "epigraph.thread/1", "threads": [{"id": "w", "items": [` +
		strings.Repeat(`{"kind": "message", "body": "hello"},`, thread.MaxValueItems-1) + `{"kind": "message", "body": "hello"}]}]}`)}
	small := &graphv1.Payload{Json: []byte(`{"format": "epigraph.thread/1", "threads": [{"id": "w", "items": []}]}`)}
	type server struct {
		*ThreadServer
		*Server
	}
	imports := func(value *graphv1.Payload) func(context.Context, server) error {
		return func(ctx context.Context, s server) error {
			_, err := s.ImportThread(ctx, &executorv1.ImportThreadRequest{Value: value})
			return err
		}
	}
	export := func(ctx context.Context, s server) error {
		_, err := s.ExportThread(ctx, &executorv1.ExportThreadRequest{ThreadId: "thr_1"})
		return err
	}
	start := func(ctx context.Context, s server) error {
		_, err := s.start(ctx, &executorv1.StartRunRequest{Graph: &graphv1.Graph{}, ThreadValue: large}, journal.Request{})
		return err
	}
	signal := func(ctx context.Context, s server) error {
		leave, err := s.enterStart(ctx, &executorv1.SignalWithStartRequest{}, &executorv1.StartRunRequest{ThreadValue: large})
		if err == nil {
			leave()
		}
		return err
	}
	for name, test := range map[string]struct {
		busy   func(context.Context, server) error
		number int
		next   func(context.Context, server) error
	}{
		"ImportAfterImport":   {imports(large), 1, imports(large)},
		"ExportAfterImport":   {imports(large), 1, export},
		"StartAfterImport":    {imports(large), 1, start},
		"SignalAfterImport":   {imports(large), 1, signal},
		"ImportAfterExports":  {export, admission.PerNamespace / standing, imports(large)},
		"ExportsAfterExports": {export, admission.PerNamespace / standing, export},
	} {
		t.Run(name, func(t *testing.T) {
			store := stuck{came: make(chan struct{}), door: make(chan struct{})}
			c := &admission.Control{}
			s := server{NewThreadServer(store, nil, thread.Bounds{}, known, nil, c), &Server{admission: c}}
			a, b := grpckit.WithNamespace(t.Context(), "a"), grpckit.WithNamespace(t.Context(), "b")
			ended := make(chan error, test.number)
			for range test.number {
				go func() { ended <- test.busy(a, s) }()
				<-store.came
			}
			soon, cancel := context.WithTimeout(a, 20*time.Millisecond)
			defer cancel()
			err := test.next(soon, s)
			require.Equal(t, admission.ReasonBusy, errs.ReasonOf(err), "got %v", err)
			require.True(t, errs.Is(err, errs.ResourceExhausted))
			require.Equal(t, "1", errs.From(err).Meta[errs.MetaRetryAfter])
			require.Equal(t, thread.ReasonNotFound, errs.ReasonOf(imports(large)(b, s)), "a neighbor has room of its own")
			go func() { ended <- imports(small)(a, s) }()
			<-store.came // what is small passes beside it
			close(store.door)
			for range test.number + 1 {
				require.Equal(t, thread.ReasonNotFound, errs.ReasonOf(<-ended))
			}
		})
	}
}
