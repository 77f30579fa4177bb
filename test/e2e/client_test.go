package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/testkit"
)

// request is one REST call; the zero method is GET, or POST with a body.
type request struct {
	method, path string
	body         any // a string is sent as it is
	key          string
	header       map[string]string
}

// do makes a call and returns status and body. A connection that cannot be made is status 0.
func (s *suite) do(t *testing.T, r request) (int, []byte) {
	t.Helper()
	status, _, body := s.exchange(t, r)
	return status, body
}

func (s *suite) exchange(t *testing.T, r request) (int, http.Header, []byte) {
	t.Helper()
	res := s.send(t, r)
	if res == nil {
		return 0, nil, nil
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, res.Header, body
}

func (s *suite) send(t *testing.T, r request) *http.Response {
	t.Helper()
	var body io.Reader
	switch b := r.body.(type) {
	case nil:
	case string:
		body = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		require.NoError(t, err)
		body = bytes.NewReader(text)
	}
	if r.method == "" {
		r.method = http.MethodGet
		if body != nil {
			r.method = http.MethodPost
		}
	}
	req, err := http.NewRequestWithContext(within(t), r.method, s.url+r.path, body)
	require.NoError(t, err)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.key == "" {
		r.key = keyA
	}
	req.Header.Set("Authorization", "Bearer "+r.key)
	for k, v := range r.header {
		req.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil
	}
	return res
}

// ask makes a call that must succeed and reads its answer into out.
func (s *suite) ask(t *testing.T, r request, out any) http.Header {
	t.Helper()
	status, header, body := s.exchange(t, r)
	require.Equal(t, http.StatusOK, status, "%s %s: %s", r.method, r.path, body)
	if out != nil {
		require.NoError(t, json.Unmarshal(body, out), string(body))
	}
	return header
}

// event is one server-sent event.
type event struct {
	id, name string
	data     map[string]any
}

// events reads up to limit events of a run, after the event lastID if that is given, and hangs up. Fewer come
// if the server ends the stream.
func (s *suite) events(t *testing.T, runID, query, lastID string, limit int) []event {
	t.Helper()
	return readEvents(s.watch(t, runID, query, lastID), limit)
}

// watch opens a stream of events.
func (s *suite) watch(t *testing.T, runID, query, lastID string) io.ReadCloser {
	t.Helper()
	r := request{path: "/v1/runs/" + runID + "/events" + query, header: map[string]string{"Accept": "text/event-stream"}}
	if lastID != "" {
		r.header["Last-Event-ID"] = lastID
	}
	res := s.send(t, r)
	require.NotNil(t, res)
	require.Equal(t, http.StatusOK, res.StatusCode)
	return res.Body
}

// readEvents reads up to limit events, to the end of the stream at most, and closes it. Unreadable data is
// nil.
func readEvents(stream io.ReadCloser, limit int) (out []event) {
	defer stream.Close()
	var e event
	sc := bufio.NewScanner(stream)
	sc.Buffer(nil, 1<<20)
	for len(out) < limit && sc.Scan() {
		field, value, _ := strings.Cut(sc.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case sc.Text() == "":
			if e.name != "" {
				out = append(out, e)
			}
			e = event{}
		case field == "id":
			e.id = value
		case field == "event":
			e.name = value
		case field == "data":
			if json.Unmarshal([]byte(value), &e.data) != nil {
				e.data = nil
			}
		}
	}
	return out
}

// usage is what entries add up to; JSON has 64-bit integers as strings.
type usage struct {
	InputTokens, OutputTokens, Calls, UnpricedCalls int64String
	CostNanoUsd, UnbookedAttempts                   int64String
}

// int64String reads an integer that is written as a string or as a number.
type int64String int64

// UnmarshalJSON reads both forms.
func (i *int64String) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(bytes.Trim(b, `"`), (*int64)(i))
}

// run is what the tests look at of a run.
type run struct {
	ID, State, StateReason, TraceID, Namespace, Etag, TaskID string

	LastSeq int64String
	Labels  map[string]string
	Result  json.RawMessage
	Outputs map[string]json.RawMessage
	Usage   usage
	Nodes   struct{ Total, Completed, Failed int }
	Error   *struct{ Reason, Message string }
}

func (r run) ended() bool {
	return r.State == "RUN_STATE_COMPLETED" || r.State == "RUN_STATE_FAILED" || r.State == "RUN_STATE_CANCELED"
}

// compile turns a plan into a graph.
func (s *suite) compile(t *testing.T, text string) json.RawMessage {
	t.Helper()
	var out struct{ Graph json.RawMessage }
	s.ask(t, request{path: "/v1/plans:compile", body: map[string]any{"text": text}}, &out)
	return out.Graph
}

func (s *suite) awaitEnd(t *testing.T, runID string) run {
	t.Helper()
	var r run
	testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
		s.ask(t, request{path: "/v1/runs/" + runID}, &r)
		return r.ended()
	})
	return r
}

// awaitTask polls until a task is in a state.
func (s *suite) awaitTask(t *testing.T, taskID, state string) {
	t.Helper()
	var task struct{ State string }
	testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
		s.ask(t, request{path: "/v1/tasks/" + taskID}, &task)
		return task.State == state
	}, "task %s", taskID)
}
