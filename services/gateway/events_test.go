package gateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/epigraph-run/epigraph/internal/errs"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/services/gateway"
)

type (
	watchRequest = executorv1.WatchRunRequest
	watchStream  = grpc.ServerStreamingServer[executorv1.RunEvent]
)

// sse is one event as a client reads it; comments have only a comment.
type sse struct{ id, event, data, retry, comment string }

// reader reads server-sent events as in the standard.
type reader struct{ s *bufio.Scanner }

func newReader(r io.Reader) *reader {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	return &reader{s}
}

// next returns the next event or comment; ok is false at the end.
func (r *reader) next() (e sse, ok bool) {
	for r.s.Scan() {
		line := r.s.Text()
		if line == "" {
			if ok {
				return e, true
			}
			continue
		}
		ok = true
		name, value, _ := strings.Cut(line, ": ")
		switch name {
		case "id":
			e.id = value
		case "event":
			e.event = value
		case "data":
			e.data += value
		case "retry":
			e.retry = value
		case "":
			e.comment = value
		}
	}
	return sse{}, false
}

// all reads to the end and leaves comments out.
func (r *reader) all() []sse {
	var out []sse
	for {
		e, ok := r.next()
		if !ok {
			return out
		}
		if e.event != "" {
			out = append(out, e)
		}
	}
}

func (r *rig) events(t testing.TB, path string, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", r.url+path, nil)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := r.client.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func ended(seq int64, value string) *executorv1.RunEvent {
	return &executorv1.RunEvent{Seq: seq, RunId: "run_1", Event: &executorv1.RunEvent_AttemptEnded{AttemptEnded: &executorv1.AttemptEnded{
		Visit: &executorv1.VisitRef{NodeId: "n" + strconv.FormatInt(seq, 10)}, Values: []*graphv1.Payload{{Json: []byte(value)}},
	}}}
}

func send(s watchStream, events ...*executorv1.RunEvent) error {
	for _, e := range events {
		if err := s.Send(e); err != nil {
			return err
		}
	}
	return nil
}

func TestEvents(t *testing.T) {
	t.Parallel()
	t.Run("Stream/FromBeginningToEnd", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{})
		r.executor.watch = func(_ *watchRequest, s watchStream) error {
			child := ended(9, "0")
			child.RunId = "run_2"
			return send(s,
				&executorv1.RunEvent{Seq: 1, RunId: "run_1", Event: &executorv1.RunEvent_RunStarted{RunStarted: &executorv1.RunStarted{}}},
				&executorv1.RunEvent{RunId: "run_1", Event: &executorv1.RunEvent_TokenDelta{TokenDelta: &executorv1.TokenDelta{Text: "a\nb"}}},
				&executorv1.RunEvent{RunId: "run_1", Event: &executorv1.RunEvent_KeepAlive{KeepAlive: &executorv1.KeepAlive{LastSeq: 1}}},
				ended(2, "{\n \"a\": [1,\n 2]}"), child,
				&executorv1.RunEvent{Seq: 3, RunId: "run_1", Event: &executorv1.RunEvent_RunEnded{RunEnded: &executorv1.RunEnded{State: executorv1.RunState_RUN_STATE_COMPLETED}}},
			)
		}
		res := r.events(t, "/v1/runs/run_1/events")
		require.Equal(t, http.StatusOK, res.StatusCode)
		require.Equal(t, "text/event-stream; charset=utf-8", res.Header.Get("Content-Type"))
		require.NotEmpty(t, res.Header.Get("X-Request-Id"))
		in := newReader(res.Body)
		first, _ := in.next()
		require.Equal(t, "3000", first.retry)
		got := in.all()
		var short []string
		for _, e := range got {
			require.True(t, json.Valid([]byte(e.data)), e.data)
			short = append(short, e.id+" "+e.event)
		}
		require.Equal(t, []string{"1 run_started", " token_delta", "2 attempt_ended", " attempt_ended", "3 run_ended", "3:end end"}, short)
		require.Contains(t, got[1].data, `"text":"a\nb"`)
		require.Contains(t, got[2].data, `"values":[{"a":[1,2]}]`)
		require.Contains(t, got[4].data, `"state":"RUN_STATE_COMPLETED"`)
		require.JSONEq(t, `{"lastSeq":"3"}`, got[5].data)
	})
	t.Run("Resume/ByHeaderOrQuery", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{})
		asked := make(chan *watchRequest, 1)
		r.executor.watch = func(req *watchRequest, s watchStream) error {
			asked <- req
			for seq := req.GetAfterSeq() + 1; seq <= 5; seq++ {
				if err := s.Send(ended(seq, "1")); err != nil {
					return err
				}
			}
			return nil
		}
		for _, tc := range []struct {
			query, header string
			after         int64
			count         int
		}{{"", "", 0, 6}, {"?after_seq=2", "", 2, 4}, {"?afterSeq=2", "4", 4, 2}, {"?after_seq=5", "", 5, 1}} {
			var headers []string
			if tc.header != "" {
				headers = []string{"Last-Event-ID", tc.header}
			}
			res := r.events(t, "/v1/runs/run_1/events"+tc.query, headers...)
			require.Equal(t, tc.after, (<-asked).GetAfterSeq())
			got := newReader(res.Body).all()
			require.Len(t, got, tc.count)
			require.Equal(t, "5:end", got[len(got)-1].id)
		}
		t.Run("AfterTheEndThereIsNothing", func(t *testing.T) {
			require.Equal(t, http.StatusNoContent, r.events(t, "/v1/runs/run_1/events", "Last-Event-ID", "5:end").StatusCode)
			require.Empty(t, asked)
		})
	})
	t.Run("Switches/AreHandedOn", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{})
		asked := make(chan *watchRequest, 1)
		r.executor.watch = func(req *watchRequest, _ watchStream) error { asked <- req; return nil }
		newReader(r.events(t, "/v1/runs/run_7/events?include_descendants=true&durable_only=1").Body).all()
		req := <-asked
		require.True(t, req.GetIncludeDescendants())
		require.True(t, req.GetDurableOnly())
		require.Equal(t, "run_7", req.GetRunId())
	})
	t.Run("Error/BeforeTheFirstEventIsAnAnswer", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{})
		r.executor.watch = func(*watchRequest, watchStream) error {
			return errs.New(errs.NotFound, "RUN_NOT_FOUND", "there is no run run_1").Hint("ListRuns lists the existing ones, WatchRun shows one and PauseAll is none")
		}
		e := r.call(t, "GET", "/v1/runs/run_1/events", "").error(t)
		require.Equal(t, "RUN_NOT_FOUND", e.Reason)
		require.Equal(t, "GET /v1/runs lists the existing ones, GET /v1/runs/{run_id}/events shows one and PauseAll is none", e.Hint)
	})
	t.Run("Error/LaterIsAnEvent", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{})
		r.executor.watch = func(_ *watchRequest, s watchStream) error {
			if err := s.Send(ended(1, "1")); err != nil {
				return err
			}
			return errs.New(errs.Unavailable, "RUN_MOVED", "the run moved")
		}
		got := newReader(r.events(t, "/v1/runs/run_1/events").Body).all()
		require.Len(t, got, 2)
		require.Equal(t, "error", got[1].event)
		require.Empty(t, got[1].id)
		var e apiError
		require.NoError(t, json.Unmarshal([]byte(got[1].data), &e))
		require.Equal(t, "RUN_MOVED", e.Reason)
		require.Equal(t, 503, e.Code)
		require.Equal(t, "true", e.Metadata["fatal"])
	})
	t.Run("Error/AnEventThatJSONCannotCarryIsSteppedOver", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{})
		r.executor.watch = func(_ *watchRequest, s watchStream) error {
			return send(s, ended(1, "1"), ended(2, "{"), ended(3, "3"))
		}
		got := newReader(r.events(t, "/v1/runs/run_1/events").Body).all()
		require.Len(t, got, 4)
		require.Equal(t, "2", got[1].id)
		require.Equal(t, "error", got[1].event)
		var e apiError
		require.NoError(t, json.Unmarshal([]byte(got[1].data), &e))
		require.Equal(t, "PAYLOAD_INVALID", e.Reason)
		require.Equal(t, "false", e.Metadata["fatal"])
		require.Equal(t, "3", got[2].id)
	})
	t.Run("Silence/IsKeptAlive", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{config: func(c *gateway.Config) { c.KeepAlive = 20 * time.Millisecond }})
		release := make(chan struct{})
		r.executor.watch = func(_ *watchRequest, s watchStream) error {
			if err := s.Send(ended(1, "1")); err != nil {
				return err
			}
			<-release
			return nil
		}
		in := newReader(r.events(t, "/v1/runs/run_1/events").Body)
		for comments := 0; comments < 3; {
			e, ok := in.next()
			require.True(t, ok)
			if e.comment != "" {
				comments++
			}
		}
		close(release)
		got := in.all()
		require.Equal(t, "1:end", got[len(got)-1].id)
	})
	t.Run("Silence/BeginsWithoutAnEvent", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{})
		r.executor.watch = func(_ *watchRequest, s watchStream) error {
			<-s.Context().Done()
			return s.Context().Err()
		}
		in := newReader(r.events(t, "/v1/runs/run_1/events").Body)
		e, ok := in.next()
		require.True(t, ok)
		require.NotEmpty(t, e.retry)
	})
	t.Run("Client/GoneCancelsTheCall", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{})
		over := make(chan struct{})
		r.executor.watch = func(_ *watchRequest, s watchStream) error {
			defer close(over)
			if err := s.Send(ended(1, "1")); err != nil {
				return err
			}
			<-s.Context().Done()
			return s.Context().Err()
		}
		res := r.events(t, "/v1/runs/run_1/events")
		newReader(res.Body).next()
		require.NoError(t, res.Body.Close())
		select {
		case <-over:
		case <-time.After(10 * time.Second):
			t.Fatal("the call to the executor goes on")
		}
	})
	t.Run("Client/SlowIsCutOffAndBounded", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{config: func(c *gateway.Config) { c.WriteTimeout = 100 * time.Millisecond }})
		var sent atomic.Int64
		over := make(chan struct{})
		text := `"` + strings.Repeat("x", 64<<10) + `"`
		r.executor.watch = func(_ *watchRequest, s watchStream) error {
			defer close(over)
			for seq := int64(1); ; seq++ {
				if err := s.Send(ended(seq, text)); err != nil {
					return err
				}
				sent.Add(1)
			}
		}
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		require.NoError(t, err)
		defer conn.Close()
		_, err = fmt.Fprintf(conn, "GET /v1/runs/run_1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
		require.NoError(t, err)
		select {
		case <-over:
		case <-time.After(20 * time.Second):
			t.Fatal("the executor still sends")
		}
		require.Less(t, sent.Load(), int64(500), "socket buffers hold a few MiB at most")
	})
	t.Run("Server/StopEndsStreams", func(t *testing.T) {
		t.Parallel()
		r := start(t, options{config: func(c *gateway.Config) { c.Grace = time.Hour }})
		r.executor.watch = func(_ *watchRequest, s watchStream) error {
			if err := s.Send(ended(1, "1")); err != nil {
				return err
			}
			<-s.Context().Done()
			return s.Context().Err()
		}
		in := newReader(r.events(t, "/v1/runs/run_1/events").Body)
		in.next()
		go r.stop()
		in.all() // before the grace is over, or the test runs out of time
		r.stop()
	})
	t.Run("Many/AtOnce", func(t *testing.T) {
		t.Parallel()
		const streams, events = 200, 20
		r := start(t, options{})
		r.executor.watch = func(_ *watchRequest, s watchStream) error {
			for seq := int64(1); seq <= events; seq++ {
				if err := s.Send(ended(seq, "1")); err != nil {
					return err
				}
			}
			return nil
		}
		var wg sync.WaitGroup
		var got atomic.Int64
		for range streams {
			wg.Go(func() {
				res, err := r.client.Get(r.url + "/v1/runs/run_1/events")
				if err != nil {
					return
				}
				defer res.Body.Close()
				got.Add(int64(len(newReader(res.Body).all())))
			})
		}
		wg.Wait()
		require.EqualValues(t, streams*(events+1), got.Load())
	})
}
