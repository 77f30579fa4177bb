package accounts_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/llm"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	"github.com/epigraph-run/epigraph/services/planner/internal/rpc/accounts"
)

// executor answers calls by a script, and notes what it is told.
type executor struct {
	executorv1.UnimplementedPeerServiceServer
	answer func(context.Context, *executorv1.ModelCall) (*executorv1.GovernResponse, error)
	told   chan string
}

func (x *executor) Govern(s grpc.BidiStreamingServer[executorv1.GovernRequest, executorv1.GovernResponse]) error {
	first, err := s.Recv()
	if err != nil {
		return err
	}
	answer, err := x.answer(s.Context(), first.GetCall())
	if err != nil {
		return err
	}
	if err := s.Send(answer); err != nil {
		return err
	}
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			x.told <- "over"
			return nil
		}
		if err != nil {
			x.told <- "broken"
			return err
		}
		text, err := protojson.Marshal(m)
		if err != nil {
			return err
		}
		x.told <- string(text)
	}
}

// world is a governor and the network on which executors may come.
type world struct {
	t   *testing.T
	buf grpckit.BufNet
	*accounts.Governor
}

func inWorld(t *testing.T, name string, test func(t *testing.T, w *world)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := &world{t: t}
			conn, err := grpckit.Dial("executor", grpckit.DialOptions{Buf: &w.buf})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, conn.Close()) })
			w.Governor = accounts.New(executorv1.NewPeerServiceClient(conn))
			test(t, w)
		})
	})
}

// serve lets an executor come; the returned function ends it.
func (w *world) serve(answer func(context.Context, *executorv1.ModelCall) (*executorv1.GovernResponse, error)) (*executor, func()) {
	x := &executor{answer: answer, told: make(chan string, 10)}
	s, err := grpckit.NewServer(grpckit.Options{})
	require.NoError(w.t, err)
	executorv1.RegisterPeerServiceServer(s, x)
	l, err := w.buf.Listen("executor")
	require.NoError(w.t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	end := func() {
		s.Stop()
		<-done
	}
	w.t.Cleanup(end)
	return x, end
}

func (w *world) admit(ctx context.Context) (llm.Permit, error) {
	return w.Admit(ctx, llm.Account{Name: "acc"}, "team", llm.Usage{Input: 30, Output: 100})
}

func yes(context.Context, *executorv1.ModelCall) (*executorv1.GovernResponse, error) {
	return &executorv1.GovernResponse{}, nil
}

func TestAdmit(t *testing.T) {
	t.Parallel()
	inWorld(t, "TheExecutorHearsOfTheWholeCall", func(t *testing.T, w *world) {
		var asked *executorv1.ModelCall
		x, _ := w.serve(func(_ context.Context, c *executorv1.ModelCall) (*executorv1.GovernResponse, error) {
			asked = c
			return &executorv1.GovernResponse{}, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		p, err := w.admit(ctx)
		require.NoError(t, err)
		require.Equal(t, "team acc 30 100", asked.GetNamespace()+" "+asked.GetAccount()+" 30 100")
		require.EqualValues(t, 130, asked.GetEstimate().GetInput()+asked.GetEstimate().GetOutput())
		p.Sent()
		cancel() // the end is told all the same
		p.Done(llm.Usage{Input: 20, CachedInput: 5, Output: 7, Known: true}, nil)
		require.JSONEq(t, `{"sent": {}}`, <-x.told)
		require.JSONEq(t, `{"end": {"used": {"input": "20", "cachedInput": "5", "output": "7"}}}`, <-x.told)
		require.Equal(t, "over", <-x.told)
		p.Sent()
	})
	inWorld(t, "AFailureIsToldWithWhatItMeans", func(t *testing.T, w *world) {
		x, _ := w.serve(yes)
		p, err := w.admit(t.Context())
		require.NoError(t, err)
		p.Done(llm.Usage{}, &llm.Error{Class: llm.Retryable, Status: 429, Code: "rate_limit", RetryAfter: 7 * time.Second})
		require.JSONEq(t, `{"end": {"failure": {"retryable": true, "status": 429, "code": "rate_limit", "retryAfter": "7s"}}}`, <-x.told)
	})
	inWorld(t, "ARefusalIsNotPerformed", func(t *testing.T, w *world) {
		w.serve(func(context.Context, *executorv1.ModelCall) (*executorv1.GovernResponse, error) {
			return &executorv1.GovernResponse{Refusal: &executorv1.ModelCallRefusal{Message: "no room", RetryAfter: durationpb.New(time.Minute)}}, nil
		})
		_, err := w.admit(t.Context())
		var e *llm.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, llm.Error{Class: llm.NotPerformed, Code: "ACCOUNT_LIMIT", Message: "no room", RetryAfter: time.Minute}, *e)
	})
	inWorld(t, "AnUnknownAccountIsAFaultOfTheConfiguration", func(t *testing.T, w *world) {
		w.serve(func(_ context.Context, c *executorv1.ModelCall) (*executorv1.GovernResponse, error) {
			return nil, errs.New(errs.FailedPrecondition, "MODEL_ACCOUNT_UNKNOWN", "the executor has no model account %q", c.GetAccount())
		})
		_, err := w.admit(t.Context())
		var e *llm.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, llm.Permanent, e.Class)
		require.Contains(t, e.Message, `no model account "acc"`)
	})
	inWorld(t, "ACanceledWaitIsGivenUp", func(t *testing.T, w *world) {
		gone := make(chan struct{})
		w.serve(func(ctx context.Context, _ *executorv1.ModelCall) (*executorv1.GovernResponse, error) {
			<-ctx.Done()
			close(gone)
			return nil, ctx.Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := w.admit(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		<-gone
	})
	inWorld(t, "NoCallBeginsWhileNoExecutorAnswers", func(t *testing.T, w *world) {
		began := time.Now()
		_, err := w.admit(t.Context())
		var e *llm.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, llm.NotPerformed, e.Class, "so that a fallback may be asked")
		require.Contains(t, e.Message, "no executor answers")
		require.InDelta(t, 10*time.Second, time.Since(began), float64(5*time.Second))
	})
	inWorld(t, "AnExecutorThatComesIsAsked", func(t *testing.T, w *world) {
		time.AfterFunc(4*time.Second, func() { w.serve(yes) })
		_, err := w.admit(t.Context())
		require.NoError(t, err)
	})
	inWorld(t, "TheNextExecutorIsAskedWhenOneGoesAway", func(t *testing.T, w *world) {
		waits := make(chan struct{})
		_, end := w.serve(func(ctx context.Context, _ *executorv1.ModelCall) (*executorv1.GovernResponse, error) {
			close(waits)
			<-ctx.Done()
			return nil, ctx.Err()
		})
		go func() {
			<-waits
			end()
			w.serve(yes)
		}()
		_, err := w.admit(t.Context())
		require.NoError(t, err)
	})
}
