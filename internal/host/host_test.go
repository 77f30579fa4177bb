package host_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/host"
	"github.com/epigraph-run/epigraph/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// journal notes what happens in which order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(s string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, s)
}

func (j *journal) read() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.lines...)
}

func (j *journal) service(name string, stopping time.Duration, result error) host.Service {
	return host.Func(func(ctx context.Context) error {
		if result != nil {
			return result
		}
		<-ctx.Done()
		time.Sleep(stopping) //nolint:forbidigo // inside a synctest bubble
		j.add("stop " + name)
		return nil
	}, func() error { j.add("close " + name); return nil })
}

func TestRun(t *testing.T) {
	t.Parallel()
	t.Run("Stop/LastToFirstEachClosedBeforeTheNext", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var j journal
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.NoError(t, host.Run(ctx, j.service("store", 0, nil), j.service("engine", time.Second, nil), j.service("server", time.Hour, nil)))
			require.Equal(t, []string{"stop server", "close server", "stop engine", "close engine", "stop store", "close store"}, j.read())
		})
	})
	t.Run("Fail/OneStopsTheRestAndIsReported", func(t *testing.T) {
		t.Parallel()
		var j journal
		boom := errors.New("boom")
		err := host.Run(t.Context(), j.service("a", 0, nil), j.service("b", 0, boom), j.service("c", 0, nil))
		require.ErrorIs(t, err, boom)
		require.Equal(t, []string{"stop c", "close c", "close b", "stop a", "close a"}, j.read())
	})
	t.Run("Run/AServiceWithoutWorkStopsNobody", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			begin := time.Now()
			require.NoError(t, host.Run(ctx, host.Func(nil, nil)))
			require.Equal(t, time.Hour, time.Since(begin))
		})
	})
	t.Run("Drainer/FailsReadinessThenWaits", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var r host.Readiness
			var j journal
			r.OnDrain(func() { j.add("drain") })
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- host.Run(ctx, j.service("server", 0, nil), host.Drainer(&r, 5*time.Second)) }()
			synctest.Wait()
			require.NoError(t, r.Check(ctx))
			cancel()
			time.Sleep(4 * time.Second) //nolint:forbidigo // inside a synctest bubble
			require.ErrorContains(t, r.Check(ctx), "stopping")
			require.Equal(t, []string{"drain"}, j.read())
			require.NoError(t, <-done)
			require.Equal(t, []string{"drain", "stop server", "close server"}, j.read())
		})
	})
	t.Run("Flush/HasALimit", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := host.Flush(time.Second, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			require.ErrorIs(t, host.Close(s), context.DeadlineExceeded)
		})
	})
}

func TestSignals(t *testing.T) {
	ctx, stop := host.Signals(t.Context())
	defer stop()
	require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
	select {
	case <-ctx.Done():
	case <-time.After(5 * time.Second):
		t.Fatal("no end after SIGTERM")
	}
}

func TestGRPC(t *testing.T) {
	t.Parallel()
	var net grpckit.BufNet
	s, err := grpckit.NewServer(grpckit.Options{})
	require.NoError(t, err)
	lis, err := net.Listen("x")
	require.NoError(t, err)
	conn, err := grpckit.Dial("x", grpckit.DialOptions{Buf: &net})
	require.NoError(t, err)
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- host.Run(ctx, host.GRPC(s, lis, 50*time.Millisecond)) }()
	h := healthpb.NewHealthClient(conn)
	testkit.Eventually(t, func() bool {
		r, err := h.Check(t.Context(), &healthpb.HealthCheckRequest{})
		return err == nil && r.GetStatus() == healthpb.HealthCheckResponse_SERVING
	})
	require.Nil(t, grpckit.Draining(t.Context()))
	// An endless stream must not hold up the stop for longer than the grace.
	w, err := h.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = w.Recv()
	require.NoError(t, err)
	cancel()
	r, err := w.Recv()
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_NOT_SERVING, r.GetStatus())
	require.NoError(t, <-done)
	_, err = w.Recv()
	require.Error(t, err)
}

func serve(t *testing.T, h http.Handler, o host.HTTPOptions) (url string, stop func() error) {
	t.Helper()
	lis, err := host.Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- host.Run(ctx, host.HTTP(h, lis, o)) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = stop(); http.DefaultClient.CloseIdleConnections() })
	return "http://" + lis.Addr().String(), stop
}

func TestHTTP(t *testing.T) {
	t.Run("Body/IsBounded", func(t *testing.T) {
		url, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, err := io.ReadAll(r.Body)
			if _, big := errors.AsType[*http.MaxBytesError](err); big {
				w.WriteHeader(http.StatusRequestEntityTooLarge)
			}
		}), host.HTTPOptions{MaxBodyBytes: 10})
		for body, want := range map[string]int{"short": 200, strings.Repeat("x", 11): 413} {
			res, err := http.Post(url, "text/plain", strings.NewReader(body))
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, want, res.StatusCode)
		}
	})
	t.Run("Body/SlowOneIsCutButStreamsLive", func(t *testing.T) {
		url, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.ReadAll(r.Body); err != nil {
				w.WriteHeader(http.StatusRequestTimeout)
				return
			}
			select {
			case <-r.Context().Done():
				w.WriteHeader(http.StatusTeapot)
			case <-time.After(150 * time.Millisecond):
			}
		}), host.HTTPOptions{BodyTimeout: 50 * time.Millisecond})
		res, err := http.Post(url, "text/plain", strings.NewReader("quick"))
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, 200, res.StatusCode, "the deadline ends with the body")
		r, w := io.Pipe()
		defer w.Close()
		res, err = http.Post(url, "text/plain", r)
		if err == nil {
			require.NoError(t, res.Body.Close())
			require.Equal(t, http.StatusRequestTimeout, res.StatusCode)
		}
	})
	t.Run("Stop/StreamsAreToldAndEndInGoodOrder", func(t *testing.T) {
		url, stop := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "a")
			w.(http.Flusher).Flush()
			<-host.Draining(r.Context())
			_, _ = io.WriteString(w, "b")
		}), host.HTTPOptions{})
		res, err := http.Get(url)
		require.NoError(t, err)
		defer res.Body.Close()
		require.NoError(t, stop())
		b, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		require.Equal(t, "ab", string(b))
	})
	t.Run("Stop/HangingRequestsAreCutAfterTheGrace", func(t *testing.T) {
		url, stop := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}), host.HTTPOptions{Grace: 30 * time.Millisecond})
		res, err := http.Get(url)
		require.NoError(t, err)
		defer res.Body.Close()
		require.NoError(t, stop())
	})
	t.Run("Listen/FaultsSayWhatToDo", func(t *testing.T) {
		lis, err := host.Listen(t.Context(), "127.0.0.1:0")
		require.NoError(t, err)
		defer lis.Close()
		_, err = host.Listen(t.Context(), lis.Addr().String())
		require.Equal(t, "PORT_TAKEN", errs.ReasonOf(err))
		require.NotEmpty(t, errs.From(err).HintText())
		for _, addr := range []string{"nonsense", "127.0.0.1:70000", "127.0.0.1:nosuch"} {
			_, err = host.Listen(t.Context(), addr)
			require.Equal(t, "ADDRESS_INVALID", errs.ReasonOf(err), addr)
		}
	})
	t.Run("Draining/NilOutsideOfARequest", func(t *testing.T) { require.Nil(t, host.Draining(t.Context())) })
}

func TestAdmin(t *testing.T) {
	t.Parallel()
	var r host.Readiness
	down := false
	r.Add("journal", func(context.Context) error {
		if down {
			return errors.New("schema too old")
		}
		return nil
	})
	h := host.Admin(host.AdminOptions{Ready: &r, Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "m 1") })})
	get := func(path string) (int, string) {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest("GET", path, nil))
		return rec.Code, rec.Body.String()
	}
	for path, want := range map[string]int{"/livez": 200, "/readyz": 200, "/metrics": 200, "/debug/pprof/": 404, "/x": 404} {
		code, _ := get(path)
		require.Equal(t, want, code, path)
	}
	down = true
	code, text := get("/readyz")
	require.Equal(t, 503, code)
	require.Equal(t, "journal: schema too old\n", text)
	down = false
	r.Drain()
	code, _ = get("/readyz")
	require.Equal(t, 503, code)
	code, _ = get("/livez")
	require.Equal(t, 200, code, "a draining process is alive")
	h = host.Admin(host.AdminOptions{Pprof: true})
	code, _ = get("/debug/pprof/")
	require.Equal(t, 200, code)
}
