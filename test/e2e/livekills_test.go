package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	"github.com/epigraph-run/epigraph/internal/testkit"
	registryv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/registry/v1"
)

// follower reads one channel over broken connections, as a client does that keeps the cursor of what
// it has seen.
type follower struct {
	url *atomic.Value
	// leave is after how many events it connects again.
	leave int

	mu   sync.Mutex
	seen []string
	over bool
}

// saw adds events that a client is sure to have.
func (f *follower) saw(events ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, events...)
}

func (f *follower) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.seen...)
}

// retry calls connect until it reports the end of the channel, or ctx ends.
func (f *follower) retry(ctx context.Context, connect func() (over bool, err error)) error {
	tick := time.NewTicker(10 * time.Millisecond) // a server that is away is not asked all the time
	defer tick.Stop()
	for {
		over, err := connect()
		switch {
		case ctx.Err() != nil:
			return nil
		case over || err != nil:
			f.mu.Lock()
			f.over = true
			f.mu.Unlock()
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// socket follows a channel of the live door. Of a run it sees the sequences of the run and its
// descendants, of other channels the cursors.
func (f *follower) socket(ctx context.Context, channel string) error {
	from := "0"
	return f.retry(ctx, func() (over bool, err error) {
		conn, err := liveDial(ctx, f.url.Load().(string), keyA, channel, from)
		if err != nil {
			return false, nil // the gateway is away
		}
		defer func() { _ = conn.CloseNow() }() // it may have ended
		// pending are events of which only the first messages came: the cursor is behind the last one.
		var pending []string
		for n := 0; n < f.leave; {
			_, data, err := conn.Read(ctx)
			if err != nil {
				return false, nil
			}
			var m struct {
				Type, Cursor string
				Data         struct {
					RunID, Seq, Reason string
				}
			}
			// Other messages have numbers there.
			if err := json.Unmarshal(data, &m); err != nil && !strings.Contains(err.Error(), "seq") {
				return false, err
			}
			switch m.Type {
			case "error":
				return false, fmt.Errorf("%s has ended: %s", channel, data)
			case "subscribed", "lagged":
				continue
			case "end":
				f.saw(pending...)
				return true, nil
			}
			if run := strings.HasPrefix(channel, "run:"); !run {
				pending = append(pending, m.Cursor)
			} else if m.Data.Seq != "" && m.Data.Seq != "0" {
				pending = append(pending, m.Data.RunID+" "+m.Data.Seq)
			}
			if m.Cursor != "" && m.Cursor != from {
				f.saw(pending...)
				n += len(pending)
				from, pending = m.Cursor, nil
			}
		}
		return false, nil
	})
}

// stream follows server-sent events until ctx or the stream ends. It sees their ids.
func (f *follower) stream(ctx context.Context, path string) error {
	from := ""
	return f.retry(ctx, func() (over bool, err error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url.Load().(string)+path, nil)
		if err != nil {
			return false, err
		}
		req.Header.Set("Authorization", "Bearer "+keyA)
		if from != "" {
			req.Header.Set("Last-Event-ID", from)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, nil // the gateway is away
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return false, nil // the service behind it is
		}
		id, name := "", ""
		lines := bufio.NewScanner(res.Body)
		lines.Buffer(nil, 1<<20)
		for n := 0; n < f.leave && lines.Scan(); {
			field, value, _ := strings.Cut(lines.Text(), ": ")
			switch {
			case field == "id":
				id = value
			case field == "event":
				name = value
			case lines.Text() != "":
			case name == "error":
				return false, nil // it says that a service is away
			case name == "end":
				return true, nil
			default:
				if id != "" {
					from = id
				}
				if name != "" && id != "" { // events without an id may be lost
					f.saw(id)
					n++
				}
				id, name = "", ""
			}
		}
		return false, nil
	})
}

// feedWork is what a namespace does while its services are killed.
type feedWork struct {
	s                   *suite
	epic, thread, tree  string
	runs, threads       []string
	rounds, talks, gone int
}

// asked repeats a request until it is answered.
func (w *feedWork) asked(t *testing.T, r request) string {
	t.Helper()
	var out struct{ ID string }
	testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
		status, body := w.s.do(t, r)
		if status == http.StatusOK {
			require.NoError(t, json.Unmarshal(body, &out))
		}
		require.NotEqual(t, http.StatusBadRequest, status, string(body))
		return status == http.StatusOK || r.method == http.MethodDelete && status == http.StatusNotFound
	}, "%s", r.path)
	return out.ID
}

// branches is how many parts of the run with descendants wait for a signal each.
const branches = 4

// begin makes an epic, a workflow, a thread, and a run with descendants.
func (w *feedWork) begin(t *testing.T) {
	t.Helper()
	w.epic = w.asked(t, request{path: "/v1/epics", body: `{"title":"0"}`})
	w.asked(t, request{path: "/v1/workflows", body: `{"source":"name: greet\nsteps: [{type: transform, template: hello}]"}`})
	w.thread = w.asked(t, request{path: "/v1/threads", body: `{"thread":{"agent":"agent/guide"}}`})
	var nodes, edges []string
	for i := range branches {
		nodes = append(nodes, fmt.Sprintf(`{"id":"s%[1]d","actor":"signal","named":{"name":"go-%[1]d"}},
			{"id":"d%[1]d","actor":"spawn","named":{"graph":{"nodes":[{"id":"a","actor":"template","named":{"text":"x"}}]}}}`, i))
		edges = append(edges, fmt.Sprintf(`{"from":"s%[1]d","to":"d%[1]d"}`, i))
	}
	w.tree = w.asked(t, request{path: "/v1/runs", body: `{"requestId":"tree","graph":{"name":"tree","nodes":[` + strings.Join(nodes, ",") + `],"edges":[` + strings.Join(edges, ",") + `]}}`})
	w.runs = append(w.runs, w.tree)
}

// executor has the executor change something. The registry may be away.
func (w *feedWork) executor(t *testing.T) {
	t.Helper()
	for range 3 {
		n := len(w.threads)
		id := w.asked(t, request{path: "/v1/threads:import", body: fmt.Sprintf(`{"requestId":"thread-%d","value":{"format":"epigraph.thread/1","threads":[
			{"id":"a","items":[{"kind":"message","body":{"role":"user","content":"x"}},{"kind":"message","body":{"role":"assistant","content":"y"}}]}]}}`, n)})
		w.threads = append(w.threads, id)
		w.runs = append(w.runs, w.asked(t, request{path: "/v1/runs", body: oneNode("template", `{"text":"x"}`, fmt.Sprintf(`"requestId":"run-%d",`, n))}))
		w.asked(t, request{method: http.MethodDelete, path: "/v1/threads/" + id})
	}
	w.asked(t, request{path: "/v1/threads/" + w.thread + "/messages", body: fmt.Sprintf(`{"requestId":"say-%[1]d","content":"say %[1]d"}`, w.talks)})
	w.talks++
	if w.gone < branches {
		w.asked(t, request{path: "/v1/runs/" + w.tree + ":signal", body: fmt.Sprintf(`{"requestId":"go-%[1]d","name":"go-%[1]d"}`, w.gone)})
		w.gone++
	}
}

// all has the executor and the registry change something.
func (w *feedWork) all(t *testing.T) {
	t.Helper()
	w.rounds++
	w.asked(t, request{method: http.MethodPatch, path: "/v1/epics/" + w.epic, body: fmt.Sprintf(`{"title":"%d"}`, w.rounds)})
	w.runs = append(w.runs, w.asked(t, request{path: "/v1/runs", body: fmt.Sprintf(`{"requestId":"greet-%d","workflow":"greet@1"}`, w.rounds)}))
	w.executor(t)
}

// told is what the feed has told of runs and threads, in order: for each the kinds of its events, with
// the role of a message.
func (w *feedWork) told(t *testing.T, c registryv1.RegistryServiceClient) (of map[string][]string, ok bool) {
	t.Helper()
	of = map[string][]string{}
	events, ok := listed(t, c, &registryv1.ListEventsRequest{})
	for _, e := range events {
		m := e.ProtoReflect()
		kind := m.WhichOneof(m.Descriptor().Oneofs().ByName("event"))
		switch x := m.Get(kind).Message().Interface().(type) {
		case *registryv1.RunChanged:
			of[x.GetRunId()] = append(of[x.GetRunId()], string(kind.Name()))
		case *registryv1.ThreadChanged:
			of[x.GetThreadId()] = append(of[x.GetThreadId()], strings.TrimSpace(string(kind.Name())+" "+x.GetRole()))
		}
	}
	return of, ok
}

// listed are the events of the feed that a request asks for, from the first on.
func listed(t *testing.T, c registryv1.RegistryServiceClient, req *registryv1.ListEventsRequest) (out []*registryv1.FeedEvent, ok bool) {
	t.Helper()
	req.PageSize = 500
	for req.After = 0; ; {
		p, err := c.ListEvents(within(t), req)
		if err != nil {
			return nil, false
		}
		out = append(out, p.GetEvents()...)
		if req.After = p.GetCursor(); p.GetEnd() {
			return out, true
		}
	}
}

// messages are the sequences of the messages of the thread, in order.
func (w *feedWork) messages(t *testing.T) (out []string) {
	t.Helper()
	var page struct{ Messages []struct{ Sequence string } }
	w.s.ask(t, request{path: "/v1/threads/" + w.thread + "/messages?page_size=1000"}, &page)
	for i := range page.Messages {
		out = append(out, page.Messages[len(page.Messages)-1-i].Sequence)
	}
	return out
}

// killed changes things while the services are killed. url is that of the gateway.
func (w *feedWork) killed(t *testing.T, url *atomic.Value) {
	t.Helper()
	w.all(t)
	w.s.procs["executor"].kill()
	w.s.restart(t, "executor")
	w.all(t)
	w.s.procs["registry"].kill()
	w.executor(t)
	w.s.restart(t, "registry")
	w.all(t)
	w.s.procs["gateway"].kill()
	w.s.serve(t, "gateway", "")
	url.Store(w.s.url)
	w.all(t)
	w.s.procs["registry"].kill()
	w.s.procs["executor"].kill()
	w.s.serve(t, "registry", w.s.procs["registry"].addr)
	w.s.restart(t, "executor")
	w.all(t)
}

// requireTold waits until the feed has told of all that has happened, and requires it once and in order.
func (w *feedWork) requireTold(t *testing.T, c registryv1.RegistryServiceClient) {
	t.Helper()
	want := map[string][]string{w.thread: {"thread_created"}}
	for _, id := range w.runs {
		want[id] = []string{"run_started", "run_ended"}
	}
	for _, id := range w.threads {
		want[id] = []string{"thread_created", "thread_message user", "thread_message assistant", "thread_deleted"}
	}
	var told map[string][]string
	testkit.Within(t, timeout, 100*time.Millisecond, func() (ok bool) {
		if told, ok = w.told(t, c); !ok || len(told[w.thread]) < 1+2*w.talks {
			return false
		}
		for id, list := range want {
			if len(told[id]) < len(list) {
				return false
			}
		}
		for _, list := range told { // turns of the thread start runs, too
			if list[0] == "run_started" && list[len(list)-1] != "run_ended" {
				return false
			}
		}
		return true
	}, "the feed does not tell of all runs and threads")
	told, ok := w.told(t, c)
	require.True(t, ok)
	for id, list := range want {
		if id != w.thread {
			require.Equal(t, list, told[id], id)
		}
	}
	var spoken []string
	events, ok := listed(t, c, &registryv1.ListEventsRequest{ThreadId: w.thread, Kinds: []string{"thread_message"}})
	require.True(t, ok)
	for _, e := range events {
		spoken = append(spoken, strconv.FormatInt(e.GetThreadMessage().GetSequence(), 10))
	}
	require.Equal(t, w.messages(t), spoken, "each message of the thread is told once, in order")
}

// requireTree requires of the readers of the run with descendants that they have all of it once. Those who
// read it alone have its own events.
func (w *feedWork) requireTree(t *testing.T, ofTree, alone []*follower) {
	t.Helper()
	var all, own []string
	for _, e := range w.s.events(t, w.tree, "?include_descendants=true", "", 1<<20) {
		if seq, _ := e.data["seq"].(string); seq != "" && seq != "0" {
			id, _ := e.data["runId"].(string)
			all = append(all, id+" "+seq)
			if id == w.tree {
				own = append(own, seq)
			}
		}
	}
	require.Greater(t, len(all), len(own)+branches, "descendants are in it")
	for i, f := range append(ofTree, alone...) {
		testkit.Within(t, timeout, 20*time.Millisecond, func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.over
		}, "reader %d of the run has no end", i)
	}
	for _, f := range ofTree {
		require.ElementsMatch(t, all, f.all(), "no gap, and nothing twice, over the run and its descendants")
	}
	for _, f := range alone {
		require.Equal(t, own, f.all(), "no gap, and nothing twice")
	}
}

// TestLiveKills kills the executor, the registry and the gateway while runs and threads go on. The feed
// has each change once and in the order of its run or thread, and so has each channel for those who
// follow it over reconnects, by WebSocket and by server-sent events.
func TestLiveKills(t *testing.T) {
	t.Parallel()
	agents, err := json.Marshal(map[string]any{"guide": map[string]any{
		"definition": `{"template": "{conversation}", "actions": {"none": {"actor": "cel", "named": {"expr": "0"}}}}`}})
	require.NoError(t, err)
	for _, store := range stores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			s := start(t, options{store: store, env: []string{"EPIGRAPH_EXECUTOR_ACTORS_AGENTS=" + string(agents)},
				script: fakellm.Script{Answer: func(fakellm.Request) (fakellm.Reply, bool) { return fakellm.Reply{Text: "heard"}, true }}})
			w := &feedWork{s: s}
			w.begin(t)

			var url atomic.Value
			url.Store(s.url)
			ctx, cancel := context.WithCancel(within(t))
			defer cancel()
			var g errgroup.Group
			follow := func(leave int, read func(*follower, context.Context, string) error, what string) *follower {
				f := &follower{url: &url, leave: leave}
				g.Go(func() error { return read(f, ctx, what) })
				return f
			}
			// Each is followed by one who often connects again, and by one whom only the kills interrupt.
			var (
				channels = map[string]*registryv1.ListEventsRequest{
					"feed": {}, "epic:" + w.epic: {EpicId: w.epic}, "workflow:greet": {WorkflowSlug: "greet"}, "thread:" + w.thread: {ThreadId: w.thread},
				}
				queries = map[string]*registryv1.ListEventsRequest{
					"": {}, "&epic_id=" + w.epic: {EpicId: w.epic}, "&workflow_slug=greet": {WorkflowSlug: "greet"}, "&thread_id=" + w.thread: {ThreadId: w.thread},
				}
				readers = map[string]*follower{}
				asks    = map[string]*registryv1.ListEventsRequest{}
			)
			for _, leave := range []int{3, 1 << 20} {
				for channel, req := range channels {
					name := fmt.Sprintf("%s, leaving after %d", channel, leave)
					readers[name], asks[name] = follow(leave, (*follower).socket, channel), req
				}
				for query, req := range queries {
					name := fmt.Sprintf("/v1/events:watch%s, leaving after %d", query, leave)
					readers[name], asks[name] = follow(leave, (*follower).stream, "/v1/events:watch?after=0"+query), req
				}
			}
			ofTree := []*follower{follow(3, (*follower).socket, "run:"+w.tree), follow(1<<20, (*follower).socket, "run:"+w.tree)}
			alone := []*follower{follow(3, (*follower).stream, "/v1/runs/"+w.tree+"/events"), follow(1<<20, (*follower).stream, "/v1/runs/"+w.tree+"/events")}

			w.killed(t, &url)

			c := s.accounts(t, namespaceA)
			w.requireTold(t, c)
			// Each reader has all of it, once.
			for name, f := range readers {
				events, ok := listed(t, c, asks[name])
				require.True(t, ok)
				var cursors []string
				for _, e := range events {
					cursors = append(cursors, strconv.FormatInt(e.GetSeq(), 10))
				}
				testkit.Within(t, timeout, 20*time.Millisecond, func() bool { return len(f.all()) >= len(cursors) }, "%s misses events", name)
				require.Equal(t, cursors, f.all(), "%s: no gap, and nothing twice", name)
			}
			w.requireTree(t, ofTree, alone)
			cancel()
			require.NoError(t, g.Wait())
		})
	}
}
