package socket_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
)

// tree is an executor with one run, which is over, and its descendants. As the real one it tells
// the events of the run behind a sequence, and those of descendants from their beginning.
type tree struct {
	executorv1.ExecutorServiceClient

	events []*executorv1.RunEvent
}

func treeOf(texts ...string) tree {
	var t tree
	for _, text := range texts {
		ev := &executorv1.RunEvent{Event: &executorv1.RunEvent_RunPaused{RunPaused: &executorv1.RunPaused{}}}
		if _, err := fmt.Sscanf(text, "%s %d", &ev.RunId, &ev.Seq); err != nil {
			panic(err)
		}
		t.events = append(t.events, ev)
	}
	return t
}

func (x tree) WatchRun(ctx context.Context, req *executorv1.WatchRunRequest, _ ...grpc.CallOption) (grpc.ServerStreamingClient[executorv1.RunEvent], error) {
	s := &treeStream{silence: silence{ctx: ctx}}
	for _, ev := range x.events {
		if ev.GetRunId() != "run" || ev.GetSeq() > req.GetAfterSeq() {
			s.left = append(s.left, ev)
		}
	}
	return s, nil
}

type treeStream struct {
	silence

	left []*executorv1.RunEvent
}

func (s *treeStream) Recv() (*executorv1.RunEvent, error) {
	if len(s.left) == 0 {
		return nil, io.EOF
	}
	ev := s.left[0]
	s.left = s.left[1:]
	return ev, nil
}

// reader reads a channel of a run over connections.
type reader struct {
	t    *testing.T
	seen []string
	// cursor is the last one; nil at the beginning.
	cursor *string
}

// read connects, goes on from the cursor and reads so many events, or all if n is negative.
func (r *reader) read(c *websocket.Conn, n int) {
	r.t.Helper()
	raw, err := json.Marshal(map[string]any{"type": "subscribe", "channel": "run:run", "from": r.cursor})
	require.NoError(r.t, err)
	require.NoError(r.t, c.Write(r.t.Context(), websocket.MessageText, raw))
	for n != 0 {
		_, data, err := c.Read(r.t.Context())
		require.NoError(r.t, err)
		var m struct {
			Type, Cursor string
			Data         struct {
				RunID string `json:"runId"`
				Seq   int64  `json:"seq,string"`
			}
		}
		require.NoError(r.t, json.Unmarshal(data, &m))
		require.NotEqual(r.t, "error", m.Type, string(data))
		if m.Cursor != "" {
			r.cursor = &m.Cursor
		}
		if m.Type == "end" {
			return
		}
		if m.Data.Seq > 0 {
			r.seen = append(r.seen, fmt.Sprintf("%s %d", m.Data.RunID, m.Data.Seq))
			n--
		}
	}
	require.NoError(r.t, c.CloseNow())
}

func TestCursorsOfRuns(t *testing.T) {
	t.Parallel()
	events := []string{"run 1", "run_b 1", "run 2", "run_a 1", "run_b 2", "run_a 2", "run 3", "run_c 1", "run_b 3", "run 4"}
	for n := range len(events) + 1 {
		for name, fresh := range map[string]bool{"TheSameGateway": false, "AnotherGateway": true} {
			t.Run(fmt.Sprintf("Reconnect/After%dEventsTo%s", n, name), func(t *testing.T) {
				t.Parallel()
				dial := dials(t, treeOf(events...))
				r := &reader{t: t}
				r.read(dial("a"), n)
				if fresh {
					dial = dials(t, treeOf(events...))
				}
				r.read(dial("a"), -1)
				require.ElementsMatch(t, events, r.seen, "no event is missing or told twice")
			})
		}
	}
	t.Run("Reconnect/AfterEachEvent", func(t *testing.T) {
		t.Parallel()
		dial := dials(t, treeOf(events...))
		stays := dial("a") // the gateway follows the run meanwhile
		require.NoError(t, stays.Write(t.Context(), websocket.MessageText, []byte(`{"type":"subscribe","channel":"run:run","from":2}`)))
		r := &reader{t: t}
		for range events {
			r.read(dial("a"), 1)
		}
		r.read(dial("a"), -1)
		require.ElementsMatch(t, events, r.seen)
	})
	t.Run("Reconnect/WithTheSequenceAloneRepeatsDescendants", func(t *testing.T) {
		t.Parallel()
		seq := "3"
		r := &reader{t: t, cursor: &seq}
		r.read(dials(t, treeOf(events...))("a"), -1)
		require.ElementsMatch(t, slices.DeleteFunc(slices.Clone(events), func(e string) bool { return e < "run 4" && strings.HasPrefix(e, "run ") }), r.seen)
	})
	t.Run("Reconnect/BeyondTheBoundSomeComeAgain", func(t *testing.T) {
		t.Parallel()
		many := []string{"run 1"}
		for i := range 150 {
			many = append(many, fmt.Sprintf("run_%026d 1", i))
		}
		r := &reader{t: t}
		r.read(dials(t, treeOf(many...))("a"), len(many))
		require.True(t, strings.HasSuffix(*r.cursor, ";+"), "it says so")
		require.Less(t, len(*r.cursor), 4000, "it fits in a message of a client")
		r.read(dials(t, treeOf(many...))("a"), -1)
		require.ElementsMatch(t, append(slices.Clone(many), many[101:]...), r.seen)
	})
	t.Run("Subscribe/RefusesWhatIsNoCursor", func(t *testing.T) {
		t.Parallel()
		dial := dials(t, treeOf(events...))
		for _, from := range []string{"-1", "x", "1;", "1;run_b", "1;run_b:", "1;:1", "1;run_b:0", "1;run_b:-1", "1;run_b:1;run_b:2", "1;+;run_b:1", "1;run:2",
			"1;" + strings.Repeat("r", 65) + ":1"} {
			c := dial("a")
			require.NoError(t, c.Write(t.Context(), websocket.MessageText, fmt.Appendf(nil, `{"type":"subscribe","channel":"run:run","from":%q}`, from)))
			_, data, err := c.Read(t.Context())
			require.NoError(t, err)
			require.Contains(t, string(data), "CURSOR_INVALID", from)
		}
		c := dial("a")
		require.NoError(t, c.Write(t.Context(), websocket.MessageText, []byte(`{"type":"subscribe","channel":"feed","from":"1;run_b:1"}`)))
		_, data, err := c.Read(t.Context())
		require.NoError(t, err)
		require.Contains(t, string(data), "CURSOR_INVALID", "the feed has no descendants")
	})
	t.Run("Subscribe/AWrongCursorIsTheTroubleOfOne", func(t *testing.T) {
		t.Parallel()
		dial := dials(t, treeOf(events...))
		wrong := "0;run_b:999"
		bad := &reader{t: t, cursor: &wrong}
		bad.read(dial("a"), 1)
		good := &reader{t: t}
		good.read(dial("a"), -1)
		require.ElementsMatch(t, events, good.seen)
	})
}
