package gateway_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/epigraph-run/epigraph/internal/access"
	"github.com/epigraph-run/epigraph/internal/conf"
	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/testkit"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
	"github.com/epigraph-run/epigraph/services/gateway"
)

// journal is a feed in memory.
type journal struct {
	mu      sync.Mutex
	events  []*registryv1.FeedEvent
	gone    int64
	changed chan struct{}
	cut     chan struct{} // closed to break all watches off
	away    bool
	watches int
	lists   int
}

func newJournal() *journal {
	return &journal{changed: make(chan struct{}), cut: make(chan struct{})}
}

// add appends an update of an epic for each title.
func (j *journal) add(epic string, titles ...string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, title := range titles {
		j.events = append(j.events, &registryv1.FeedEvent{
			Seq: int64(len(j.events) + 1), Time: timestamppb.New(time.UnixMilli(1_767_323_045_500)), EpicId: epic,
			Event: &registryv1.FeedEvent_EpicUpdated{EpicUpdated: &registryv1.Epic{Id: epic, Title: title}},
		})
	}
	close(j.changed)
	j.changed = make(chan struct{})
}

// restart breaks all watches off.
func (j *journal) restart(away bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.away = away
	close(j.cut)
	j.cut = make(chan struct{})
}

func (j *journal) counts() (watches, lists int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.watches, j.lists
}

func (j *journal) behind(after int64) (events []*registryv1.FeedEvent, changed, cut chan struct{}, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.away:
		err = errs.New(errs.Unavailable, "AWAY", "the registry is away")
	case after > int64(len(j.events)):
		err = errs.New(errs.FailedPrecondition, "FEED_CURSOR_AHEAD", "the feed has not come to cursor %d", after)
	case after > 0 && after < j.gone:
		err = errs.New(errs.FailedPrecondition, "FEED_CURSOR_GONE", "the events behind cursor %d are not kept any more", after)
	default:
		events = j.events[max(after, j.gone):]
	}
	return events, j.changed, j.cut, err
}

func (j *journal) watch(req *registryv1.WatchEventsRequest, s grpc.ServerStreamingServer[registryv1.FeedEvent]) error {
	j.mu.Lock()
	j.watches++
	after := int64(len(j.events))
	away := j.away
	j.mu.Unlock()
	if away {
		return errs.New(errs.Unavailable, "AWAY", "the registry is away")
	}
	if req.After != nil {
		after = req.GetAfter()
	} else if err := s.Send(&registryv1.FeedEvent{Event: &registryv1.FeedEvent_KeepAlive{KeepAlive: &registryv1.FeedKeepAlive{Cursor: after}}}); err != nil {
		return err
	}
	for {
		events, changed, cut, err := j.behind(after)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := s.Send(e); err != nil {
				return err
			}
			after = e.GetSeq()
		}
		select {
		case <-changed:
		case <-cut:
			return errs.New(errs.Unavailable, errs.ReasonStopping, "this replica is stopping")
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
}

func (j *journal) list(_ context.Context, req *registryv1.ListEventsRequest) (*registryv1.ListEventsResponse, error) {
	events, _, _, err := j.behind(req.GetAfter())
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lists++
	out := &registryv1.ListEventsResponse{Cursor: req.GetAfter(), End: true}
	for _, e := range events {
		if len(out.Events) == int(req.GetPageSize()) {
			out.End = false
			break
		}
		out.Cursor = e.GetSeq()
		if req.GetEpicId() == "" || req.GetEpicId() == e.GetEpicId() {
			out.Events = append(out.Events, e)
		}
	}
	return out, nil
}

// told is a message of the live door.
type toldLive struct {
	Type      string          `json:"type"`
	Channel   string          `json:"channel"`
	Timestamp float64         `json:"timestamp"`
	Cursor    string          `json:"cursor"`
	Data      json.RawMessage `json:"data"`
}

func (m toldLive) field(t *testing.T, name string) string {
	t.Helper()
	var data map[string]any
	require.NoError(t, json.Unmarshal(m.Data, &data))
	return fmt.Sprint(data[name])
}

// liveClient is a client of the live door.
type liveClient struct {
	t    *testing.T
	conn *websocket.Conn
}

func liveAt(t *testing.T, url string, o *websocket.DialOptions) *liveClient {
	t.Helper()
	conn, res, err := websocket.Dial(t.Context(), strings.Replace(url, "http", "ws", 1)+"/v1/live", o)
	require.NoError(t, err)
	if res.Body != nil {
		require.NoError(t, res.Body.Close())
	}
	conn.SetReadLimit(1 << 20)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return &liveClient{t, conn}
}

func (c *liveClient) send(format string, args ...any) {
	c.t.Helper()
	require.NoError(c.t, c.conn.Write(c.t.Context(), websocket.MessageText, fmt.Appendf(nil, format, args...)))
}

func (c *liveClient) next() toldLive {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	_, data, err := c.conn.Read(ctx)
	require.NoError(c.t, err)
	var m toldLive
	require.NoError(c.t, json.Unmarshal(data, &m), string(data))
	return m
}

// subscribe subscribes and returns the cursor from which the channel goes on.
func (c *liveClient) subscribe(channel, from string) string {
	c.t.Helper()
	if from != "" {
		from = `,"from":` + from
	}
	c.send(`{"type":"subscribe","channel":%q%s}`, channel, from)
	m := c.next()
	require.Equal(c.t, []string{"subscribed", channel}, []string{m.Type, m.Channel}, "%s", m.Data)
	return m.Cursor
}

// closed is the status with which the server has closed the connection, and why.
func (c *liveClient) closed() (websocket.StatusCode, string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	for {
		if _, _, err := c.conn.Read(ctx); err != nil {
			var e websocket.CloseError
			require.ErrorAs(c.t, err, &e)
			return e.Code, e.Reason
		}
	}
}

// startLive is a gateway before a feed in memory.
func startLive(t *testing.T, o options) (*rig, *journal) {
	t.Helper()
	r, j := start(t, o), newJournal()
	r.registry.watchEvents, r.registry.listEvents = j.watch, j.list
	r.registry.getEpic = func(_ context.Context, q *registryv1.GetEpicRequest) (*registryv1.Epic, error) {
		if q.GetEpicId() == "ep_none" {
			return nil, errs.New(errs.NotFound, "EPIC_NOT_FOUND", "there is no epic %q", q.GetEpicId())
		}
		return &registryv1.Epic{Id: q.GetEpicId()}, nil
	}
	return r, j
}

func TestLive(t *testing.T) {
	t.Parallel()
	t.Run("Channel/GetsItsEventsAndNoOthers", func(t *testing.T) {
		t.Parallel()
		r, j := startLive(t, options{})
		j.add("ep_1", "before")
		c := liveAt(t, r.url, nil)
		require.Equal(t, "1", c.subscribe("epic:ep_1", ""))
		j.add("ep_2", "of another")
		j.add("ep_1", "one")
		m := c.next()
		require.Equal(t, []string{"epic_updated", "epic:ep_1", "3"}, []string{m.Type, m.Channel, m.Cursor})
		require.InDelta(t, 1_767_323_045.5, m.Timestamp, 0.001)
		require.Equal(t, "one", m.field(t, "title"))
	})
	t.Run("Channel/AllOfTheFeed", func(t *testing.T) {
		t.Parallel()
		r, j := startLive(t, options{})
		c := liveAt(t, r.url, nil)
		c.subscribe("feed", "")
		j.add("ep_1", "one")
		j.add("ep_2", "two")
		require.Equal(t, "one", c.next().field(t, "title"))
		require.Equal(t, "two", c.next().field(t, "title"))
	})
	t.Run("From/ReplaysWhatWasMissedAndGoesOn", func(t *testing.T) {
		t.Parallel()
		r, j := startLive(t, options{})
		for i := range 300 {
			j.add("ep_"+strconv.Itoa(i%2), strconv.Itoa(i+1))
		}
		c := liveAt(t, r.url, nil)
		require.Equal(t, "10", c.subscribe("epic:ep_0", `"10"`))
		j.add("ep_0", "301")
		for want := 11; want <= 301; want += 2 {
			m := c.next()
			require.Equal(t, strconv.Itoa(want), m.Cursor)
			require.Equal(t, strconv.Itoa(want), m.field(t, "title"))
		}
	})
	t.Run("From/ANumberIsTaken", func(t *testing.T) {
		t.Parallel()
		r, j := startLive(t, options{})
		j.add("ep_1", "one", "two")
		c := liveAt(t, r.url, nil)
		c.subscribe("epic:ep_1", "1")
		require.Equal(t, "two", c.next().field(t, "title"))
	})
	t.Run("From/ACursorThatIsGoneEndsTheChannel", func(t *testing.T) {
		t.Parallel()
		r, j := startLive(t, options{})
		j.add("ep_1", "one", "two", "three", "four")
		j.gone = 3
		c := liveAt(t, r.url, nil)
		c.subscribe("epic:ep_1", "1")
		m := c.next()
		require.Equal(t, []string{"error", "epic:ep_1", "FEED_CURSOR_GONE"}, []string{m.Type, m.Channel, m.field(t, "reason")})
		c.subscribe("epic:ep_1", "3") // the channel is free again
		require.Equal(t, "four", c.next().field(t, "title"))
	})
	t.Run("Shared/OneWatchForAllOfANamespace", func(t *testing.T) {
		t.Parallel()
		r, j := startLive(t, options{})
		var all []*liveClient
		for i := range 8 {
			c := liveAt(t, r.url, nil)
			c.subscribe("epic:ep_"+strconv.Itoa(i%2), "")
			all = append(all, c)
		}
		j.add("ep_0", "a")
		j.add("ep_1", "b")
		for i, c := range all {
			require.Equal(t, []string{"a", "b"}[i%2], c.next().field(t, "title"))
		}
		all[0].subscribe("feed", "1")
		require.Equal(t, "b", all[0].next().field(t, "title"))
		watches, lists := j.counts()
		require.Equal(t, []int{1, 0}, []int{watches, lists}, "who comes with a cursor close behind gets what the gateway has")
	})
	t.Run("Shared/TheRegistryComesBack", func(t *testing.T) {
		t.Parallel()
		r, j := startLive(t, options{})
		c := liveAt(t, r.url, nil)
		c.subscribe("epic:ep_1", "")
		j.add("ep_1", "one")
		require.Equal(t, "one", c.next().field(t, "title"))
		j.restart(true)
		j.add("ep_1", "two")
		j.restart(false)
		j.add("ep_1", "three")
		require.Equal(t, "two", c.next().field(t, "title"))
		require.Equal(t, "three", c.next().field(t, "title"))
	})
	t.Run("Unsubscribe/NothingComesBehindTheAnswer", func(t *testing.T) {
		t.Parallel()
		r, j := startLive(t, options{})
		c := liveAt(t, r.url, nil)
		c.subscribe("epic:ep_1", "")
		c.subscribe("epic:ep_2", "")
		c.send(`{"type":"unsubscribe","channel":"epic:ep_1"}`)
		m := c.next()
		require.Equal(t, []string{"unsubscribed", "epic:ep_1"}, []string{m.Type, m.Channel})
		j.add("ep_1", "unheard")
		j.add("ep_2", "heard")
		require.Equal(t, "heard", c.next().field(t, "title"))
	})
	t.Run("Slow/IsToldAndMissesNothing", func(t *testing.T) {
		t.Parallel()
		r, j := startLive(t, options{})
		c, other := liveAt(t, r.url, nil), liveAt(t, r.url, nil)
		for _, c := range []*liveClient{c, other} {
			c.conn.SetReadLimit(8 << 20)
			c.subscribe("feed", "")
		}
		large := strings.Repeat("x", 64<<10)
		const n = 400 // 25 MiB, more than the connection and the gateway hold
		for range n {
			j.add("ep_1", large)
		}
		for other.next().Cursor != strconv.Itoa(n) { // the gateway has had all, and c has read nothing
		}
		lagged, want := 0, 1
		for want <= n {
			m := c.next()
			if m.Type == "lagged" {
				lagged++
				require.Equal(t, strconv.Itoa(want-1), m.Cursor, "the cursor to go on from")
				continue
			}
			require.Equal(t, strconv.Itoa(want), m.Cursor)
			want++
		}
		require.Positive(t, lagged)
	})
	t.Run("Slow/IsCutOffIfItDoesNotReadAtAll", func(t *testing.T) {
		t.Parallel()
		r, j := startLive(t, options{config: func(c *gateway.Config) { c.WriteTimeout = 100 * time.Millisecond }})
		c := liveAt(t, r.url, nil)
		c.subscribe("feed", "")
		large := strings.Repeat("x", 256<<10)
		for range 100 {
			j.add("ep_1", large)
		}
		testkit.Eventually(t, func() bool { return strings.Contains(r.logs.String(), "live connection ended") })
		c.conn.SetReadLimit(1 << 20)
		var err error
		for err == nil {
			_, _, err = c.conn.Read(t.Context())
		}
		require.Error(t, err)
	})
	t.Run("Stop/ClientsAreToldToGo", func(t *testing.T) {
		t.Parallel()
		r, _ := startLive(t, options{})
		c := liveAt(t, r.url, nil)
		c.subscribe("feed", "")
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.stop()
		}()
		code, reason := c.closed()
		require.Equal(t, websocket.StatusGoingAway, code)
		require.Equal(t, errs.ReasonStopping, reason)
		<-done
	})
}

func TestLiveRefuses(t *testing.T) {
	t.Parallel()
	t.Run("Messages", func(t *testing.T) {
		t.Parallel()
		r, _ := startLive(t, options{})
		c := liveAt(t, r.url, nil)
		for message, reason := range map[string]string{
			`nonsense`:                               "MESSAGE_INVALID",
			`{"type":"publish"}`:                     "MESSAGE_INVALID",
			`{"type":"subscribe","channel":"x:1"}`:   "CHANNEL_UNKNOWN",
			`{"type":"subscribe","channel":"epic:"}`: "CHANNEL_UNKNOWN",
			`{"type":"subscribe","channel":"epic:` + strings.Repeat("e", 300) + `"}`: "CHANNEL_UNKNOWN",
			`{"type":"subscribe","channel":"epic:ep_none"}`:                          "EPIC_NOT_FOUND",
			`{"type":"subscribe","channel":"feed","from":"x"}`:                       "CURSOR_INVALID",
			`{"type":"subscribe","channel":"feed","from":-1}`:                        "CURSOR_INVALID",
			`{"type":"subscribe","channel":"feed","from":7}`:                         "FEED_CURSOR_AHEAD",
		} {
			c.send("%s", message)
			m := c.next()
			if m.Type == "subscribed" {
				m = c.next()
			}
			require.Equal(t, "error", m.Type, message)
			require.Equal(t, reason, m.field(t, "reason"), message)
		}
		c.subscribe("feed", "")
		c.send(`{"type":"subscribe","channel":"feed"}`)
		require.Equal(t, "SUBSCRIBED_ALREADY", c.next().field(t, "reason"))
		c.send(`{"type":"ping"}`)
		require.Equal(t, "pong", c.next().Type)
	})
	t.Run("TooManyChannels", func(t *testing.T) {
		t.Parallel()
		r, _ := startLive(t, options{})
		c := liveAt(t, r.url, nil)
		for i := range 100 {
			c.subscribe("epic:ep_"+strconv.Itoa(i), "")
		}
		c.send(`{"type":"subscribe","channel":"epic:ep_100"}`)
		require.Equal(t, "TOO_MANY_SUBSCRIPTIONS", c.next().field(t, "reason"))
	})
	for name, flood := range map[string]struct {
		send func(c *liveClient) error
		code websocket.StatusCode
	}{
		"TooManyMessages": {func(c *liveClient) error {
			for range 300 {
				if err := c.conn.Write(c.t.Context(), websocket.MessageText, []byte(`{"type":"pong"}`)); err != nil {
					return err
				}
			}
			return nil
		}, websocket.StatusPolicyViolation},
		"TooLarge": {func(c *liveClient) error {
			return c.conn.Write(c.t.Context(), websocket.MessageText, make([]byte, 5000))
		}, websocket.StatusMessageTooBig},
		"Binary": {func(c *liveClient) error {
			return c.conn.Write(c.t.Context(), websocket.MessageBinary, []byte(`{}`))
		}, websocket.StatusUnsupportedData},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := startLive(t, options{})
			c := liveAt(t, r.url, nil)
			_ = flood.send(c) // the server may close meanwhile
			code, _ := c.closed()
			require.Equal(t, flood.code, code)
		})
	}
	t.Run("WhatIsNoWebSocket", func(t *testing.T) {
		t.Parallel()
		r, _ := startLive(t, options{})
		p := r.call(t, http.MethodGet, "/v1/live", "")
		require.Equal(t, http.StatusBadRequest, p.status)
		require.Equal(t, "UPGRADE_REQUIRED", p.error(t).Reason)
	})
}

func TestLiveCredentials(t *testing.T) {
	t.Parallel()
	r, j := startLive(t, options{config: func(c *gateway.Config) {
		c.Keys = []grpckit.APIKey{
			{Name: "a", Namespace: "team-a", Secret: conf.NewSecret("secret-of-team-a-0123456789")},
			{Name: "w", Namespace: "team-a", Secret: conf.NewSecret("secret-of-a-worker-0123456789"), Scopes: []access.Scope{access.Worker}},
		}
		c.CORSOrigins = []string{"https://board.example"}
	}})
	var mu sync.Mutex
	var namespace string
	r.registry.watchEvents = func(q *registryv1.WatchEventsRequest, s grpc.ServerStreamingServer[registryv1.FeedEvent]) error {
		mu.Lock()
		namespace = grpckit.Namespace(s.Context())
		mu.Unlock()
		return j.watch(q, s)
	}
	key := func(secret string) string {
		return "epigraph.key." + base64.RawURLEncoding.EncodeToString([]byte(secret))
	}
	for name, o := range map[string]*websocket.DialOptions{
		"Header":      {HTTPHeader: http.Header{"Authorization": {"Bearer secret-of-team-a-0123456789"}}},
		"Subprotocol": {Subprotocols: []string{"epigraph.live.v1", key("secret-of-team-a-0123456789")}},
		"TrustedOrigin": {
			Subprotocols: []string{"epigraph.live.v1", key("secret-of-team-a-0123456789")},
			HTTPHeader:   http.Header{"Origin": {"https://board.example"}},
		},
	} {
		t.Run("Taken/"+name, func(t *testing.T) {
			c := liveAt(t, r.url, o)
			c.subscribe("feed", "")
			if len(o.Subprotocols) > 0 {
				require.Equal(t, "epigraph.live.v1", c.conn.Subprotocol())
			}
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, "team-a", namespace)
		})
	}
	for name, refused := range map[string]struct {
		o      *websocket.DialOptions
		query  string
		reason string
	}{
		"None":          {nil, "", "CREDENTIALS_MISSING"},
		"Wrong":         {&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer wrong"}}}, "", "CREDENTIALS_INVALID"},
		"WrongProtocol": {&websocket.DialOptions{Subprotocols: []string{"epigraph.live.v1", key("wrong")}}, "", "CREDENTIALS_INVALID"},
		"Unreadable":    {&websocket.DialOptions{Subprotocols: []string{"epigraph.live.v1", "epigraph.key.%"}}, "", "CREDENTIALS_UNREADABLE"},
		"InTheQuery":    {nil, "?token=secret-of-team-a-0123456789", "INVALID_QUERY"},
		"NoRight":       {&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer secret-of-a-worker-0123456789"}}}, "", "SCOPE_MISSING"},
		"OtherOrigin": {&websocket.DialOptions{
			Subprotocols: []string{key("secret-of-team-a-0123456789")}, HTTPHeader: http.Header{"Origin": {"https://evil.example"}},
		}, "", "CROSS_ORIGIN"},
		"Twice": {&websocket.DialOptions{
			Subprotocols: []string{key("secret-of-team-a-0123456789")}, HTTPHeader: http.Header{"Authorization": {"Bearer secret-of-team-a-0123456789"}},
		}, "", "CREDENTIALS_AMBIGUOUS"},
	} {
		t.Run("Refused/"+name, func(t *testing.T) {
			conn, res, err := websocket.Dial(t.Context(), strings.Replace(r.url, "http", "ws", 1)+"/v1/live"+refused.query, refused.o)
			require.NoError(t, err)
			if res.Body != nil {
				require.NoError(t, res.Body.Close())
			}
			code, reason := (&liveClient{t, conn}).closed()
			require.Equal(t, websocket.StatusPolicyViolation, code)
			require.Contains(t, reason, refused.reason)
		})
	}
}

func TestLiveRun(t *testing.T) {
	t.Parallel()
	visit := &executorv1.VisitRef{NodeId: "sum", Visit: 1}
	started := &executorv1.RunEvent{Seq: 1, RunId: "run_1", Event: &executorv1.RunEvent_RunStarted{RunStarted: &executorv1.RunStarted{}}}
	child := &executorv1.RunEvent{Seq: 1, RunId: "run_2", Event: &executorv1.RunEvent_AttemptEnded{AttemptEnded: &executorv1.AttemptEnded{Visit: visit, State: executorv1.VisitState_VISIT_STATE_FAILED}}}
	changed := &executorv1.RunEvent{RunId: "run_1", Event: &executorv1.RunEvent_VisitsChanged{VisitsChanged: &executorv1.VisitsChanged{
		Visits: []*executorv1.VisitChange{{Visit: &executorv1.VisitRef{NodeId: "else", Visit: 1}, State: executorv1.VisitState_VISIT_STATE_SKIPPED}},
	}}}
	attempt := &executorv1.RunEvent{Seq: 2, RunId: "run_1", Event: &executorv1.RunEvent_AttemptEnded{AttemptEnded: &executorv1.AttemptEnded{Visit: visit, State: executorv1.VisitState_VISIT_STATE_COMPLETED}}}
	ended := &executorv1.RunEvent{Seq: 3, RunId: "run_1", Event: &executorv1.RunEvent_RunEnded{RunEnded: &executorv1.RunEnded{State: executorv1.RunState_RUN_STATE_FAILED, Reason: "NODE_FAILED"}}}
	all := []*executorv1.RunEvent{started, child, changed, attempt, ended}
	serve := func(r *rig, end bool) {
		r.executor.watch = func(q *executorv1.WatchRunRequest, s grpc.ServerStreamingServer[executorv1.RunEvent]) error {
			if q.GetRunId() != "run_1" {
				return errs.New(errs.NotFound, "RUN_NOT_FOUND", "there is no run %q", q.GetRunId())
			}
			require.True(t, q.GetIncludeDescendants())
			for _, ev := range all {
				if ev.GetRunId() == "run_1" && (ev.GetSeq() > 0 && ev.GetSeq() <= q.GetAfterSeq() || ev == changed && attempt.GetSeq() <= q.GetAfterSeq()) {
					continue
				}
				if err := s.Send(ev); err != nil {
					return err
				}
			}
			if !end {
				<-s.Context().Done()
			}
			return nil
		}
	}
	type line struct{ kind, cursor string }
	t.Run("Events/OwnNamesAndThoseOfExecutions", func(t *testing.T) {
		t.Parallel()
		r, _ := startLive(t, options{})
		serve(r, true)
		c := liveAt(t, r.url, nil)
		require.Equal(t, "0", c.subscribe("run:run_1", ""))
		var got []line
		for len(got) == 0 || got[len(got)-1].kind != "end" {
			m := c.next()
			require.Equal(t, "run:run_1", m.Channel)
			got = append(got, line{m.Type, m.Cursor})
			switch m.Type {
			case "child_node_status":
				require.Equal(t, []string{"run_2", "sum", "failed"}, []string{m.field(t, "run_id"), m.field(t, "node_id"), m.field(t, "status")})
			case "execution_failed":
				require.Equal(t, []string{"run_1", "FAILED", "NODE_FAILED"}, []string{m.field(t, "run_id"), m.field(t, "state"), m.field(t, "reason")})
			}
		}
		require.Equal(t, []line{
			{"run_started", "0"}, {"execution_started", "1"}, {"attempt_ended", "1"}, {"child_node_status", "1;run_2:1"},
			{"visits_changed", "1;run_2:1"}, {"node_status", "1;run_2:1"}, {"attempt_ended", "1;run_2:1"}, {"node_status", "2;run_2:1"},
			{"run_ended", "2;run_2:1"}, {"execution_failed", "3;run_2:1"}, {"end", "3;run_2:1"},
		}, got, "the cursor is behind an event with its last message")
	})
	t.Run("From/WhatWasSeenIsNotRepeated", func(t *testing.T) {
		t.Parallel()
		r, _ := startLive(t, options{})
		serve(r, false)
		c := liveAt(t, r.url, nil)
		c.subscribe("run:run_1", "")
		for m := c.next(); m.Type != "execution_failed"; m = c.next() {
		}
		from := func(cursor string) (got []line) {
			later := liveAt(t, r.url, nil)
			later.subscribe("run:run_1", cursor)
			for len(got) == 0 || got[len(got)-1].kind != "execution_failed" {
				m := later.next()
				got = append(got, line{m.Type, m.Cursor})
			}
			return got
		}
		ended := []line{{"run_ended", "2;run_2:1"}, {"execution_failed", "3;run_2:1"}}
		require.Equal(t, ended, from(`"2;run_2:1"`))
		require.Equal(t, append([]line{{"attempt_ended", "2"}, {"child_node_status", "2;run_2:1"}}, ended...), from("2"),
			"with the sequence of the run alone the events of descendants come from their beginning")
	})
	t.Run("From/ReplaysWhatTheGatewayDoesNotHaveAndGoesOn", func(t *testing.T) {
		t.Parallel()
		r, _ := startLive(t, options{})
		const n = 40 // 2.5 MiB, more than the gateway keeps
		more := make(chan struct{})
		event := func(seq int64) *executorv1.RunEvent {
			return &executorv1.RunEvent{Seq: seq, RunId: "run_1", Event: &executorv1.RunEvent_RunPaused{RunPaused: &executorv1.RunPaused{Message: strings.Repeat("x", 64<<10)}}}
		}
		r.executor.watch = func(q *executorv1.WatchRunRequest, s grpc.ServerStreamingServer[executorv1.RunEvent]) error {
			for seq := q.GetAfterSeq() + 1; seq <= n; seq++ {
				if err := s.Send(event(seq)); err != nil {
					return err
				}
			}
			select {
			case <-more:
			case <-s.Context().Done():
				return nil
			}
			if err := s.Send(event(n + 1)); err != nil {
				return err
			}
			<-s.Context().Done()
			return nil
		}
		first, second := liveAt(t, r.url, nil), liveAt(t, r.url, nil)
		read := func(c *liveClient, from, to int) {
			for want := from; want <= to; {
				m := c.next()
				if m.Type == "lagged" {
					continue
				}
				require.Equal(t, []string{"run_paused", strconv.Itoa(want)}, []string{m.Type, m.Cursor})
				want++
			}
		}
		first.subscribe("run:run_1", "")
		read(first, 1, n)
		second.subscribe("run:run_1", "")
		read(second, 1, n)
		close(more)
		read(first, n+1, n+1)
		read(second, n+1, n+1)
	})
	t.Run("Refused/NoSuchRun", func(t *testing.T) {
		t.Parallel()
		r, _ := startLive(t, options{})
		serve(r, true)
		c := liveAt(t, r.url, nil)
		c.send(`{"type":"subscribe","channel":"run:run_9"}`)
		m := c.next()
		require.Equal(t, []string{"error", "RUN_NOT_FOUND"}, []string{m.Type, m.field(t, "reason")})
	})
	t.Run("Refused/TooManyWatches", func(t *testing.T) {
		t.Parallel()
		r, _ := startLive(t, options{})
		r.executor.watch = func(q *executorv1.WatchRunRequest, s grpc.ServerStreamingServer[executorv1.RunEvent]) error {
			if q.GetRunId() == "run_65" {
				return errs.New(errs.ResourceExhausted, "TOO_MANY_WATCHES", "64 watches go on").Hint("end one")
			}
			grpckit.MarkWatching(s)
			<-s.Context().Done()
			return nil
		}
		c := liveAt(t, r.url, nil)
		c.subscribe("run:run_64", "3") // nothing happens in it
		for range 2 {                  // the channel is free again
			c.send(`{"type":"subscribe","channel":"run:run_65"}`)
			m := c.next()
			require.Equal(t, []string{"error", "run:run_65", "TOO_MANY_WATCHES"}, []string{m.Type, m.Channel, m.field(t, "reason")})
			require.Contains(t, string(m.Data), "unsubscribe from a run")
		}
	})
}
