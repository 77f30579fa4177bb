package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/epigraph-run/epigraph/bench/drive"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

const (
	// quickRounds are the rounds of an agent before the one at which all of them are looked at.
	quickRounds = 2
	// watched is how many loops are watched while calls are timed.
	watched = 50
	// agentsAtOnce is how many starts and answers are in flight.
	agentsAtOnce = 16
)

// model is a scripted model server in this process, over HTTP. It answers the calls of an agent by how many
// it has answered before, and notes when each call came and when its answer was written.
type model struct {
	url    string
	server *http.Server
	fake   *fakellm.Server

	mu     sync.Mutex
	plan   func(agent, call int) say
	calls  map[int][]span // by agent
	number int
	open   map[string]place
	held   int
	free   chan struct{}
}

// say is what the model says, after a delay or once held calls are let go.
type say struct {
	text  string
	delay time.Duration
	hold  bool
}

// span is one call: when it was there, and when its answer was written.
type span struct{ came, answered time.Time }

type place struct{ agent, call int }

const callHeader = "X-Bench-Call"

func openModel() (*model, error) {
	m := &model{calls: map[int][]span{}, open: map[string]place{}, free: make(chan struct{})}
	m.fake = fakellm.New(fakellm.Script{Answer: m.answer})
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m.url, m.server = "http://"+lis.Addr().String()+"/v1", &http.Server{Handler: m}
	go func() { _ = m.server.Serve(lis) }()
	return m, nil
}

func (m *model) close() error {
	_ = m.fake.Close()
	return m.server.Close()
}

// begin sets what is said from now on.
func (m *model) begin(plan func(agent, call int) say) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.plan, m.calls, m.held, m.free = plan, map[int][]span{}, 0, make(chan struct{})
}

// release lets the held calls go.
func (m *model) release() { close(m.free) }

func (m *model) holds() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.held
}

// ServeHTTP implements http.Handler.
func (m *model) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	came := time.Now()
	m.mu.Lock()
	m.number++
	id := strconv.Itoa(m.number)
	m.mu.Unlock()
	r.Header.Set(callHeader, id)
	m.fake.ServeHTTP(w, r)
	_ = http.NewResponseController(w).Flush()
	answered := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.open[id]; ok {
		delete(m.open, id)
		if calls := m.calls[p.agent]; p.call < len(calls) {
			calls[p.call] = span{came, answered}
		}
	}
}

func (m *model) answer(req fakellm.Request) (fakellm.Reply, bool) {
	_, rest, _ := strings.Cut(req.Messages[len(req.Messages)-1].Content, "agent-")
	agent, err := strconv.Atoi(rest[:min(6, len(rest))])
	if err != nil {
		return fakellm.Reply{Fault: fakellm.BadRequest}, true
	}
	m.mu.Lock()
	call := len(m.calls[agent])
	m.calls[agent] = append(m.calls[agent], span{})
	m.open[req.Header.Get(callHeader)] = place{agent, call}
	s, free := m.plan(agent, call), m.free
	if s.hold {
		m.held++
	}
	m.mu.Unlock()
	if s.hold {
		<-free
	}
	return fakellm.Reply{Text: s.text, Delay: s.delay}, true
}

// What the model says.
const (
	sayDone  = `{"result": "done"}`
	sayAsk   = `{"task_status": "Pending", "instant_response": "Shall it go on?"}`
	sayChild = `{"actions": [{"action": "child"}]}`
)

func sayNote(call int) string {
	return fmt.Sprintf(`{"actions": [{"action": "note", "arguments": {"n": %d}}], "task_status_description": "after %d calls"}`, call, call)
}

// agentGraph is a graph of one agent. All of them have the same definition.
func agentGraph() *graphv1.Graph {
	return &graphv1.Graph{Name: "agents", Nodes: []*graphv1.Node{{Id: "agent", Actor: "agent", Named: payloads(map[string]any{
		"system":     "You are a careful assistant. " + strings.Repeat("Think before you act. ", 40),
		"max_rounds": 100_000,
		"actions": map[string]any{
			"note": map[string]any{"actor": "bench", "description": "Makes a note.",
				"schema": json.RawMessage(`{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}, "additionalProperties": false}`)},
			"child": map[string]any{"actor": "spawn", "description": "Waits for a signal, in a run of its own.", "named": map[string]any{"as_result": true,
				"graph": json.RawMessage(`{"name": "child", "nodes": [{"id": "wait", "actor": "signal", "named": {"name": "go"}}]}`)}},
		},
	})}}}
}

// begin starts agents with numbers from first on and returns their runs.
func (r *rig) beginAgents(ctx context.Context, first, n int, pause time.Duration) ([]string, error) {
	g, ids := agentGraph(), make([]string, n)
	err := drive.Each(ctx, n, agentsAtOnce, func(ctx context.Context, i int) error {
		run, err := r.hosts[0].api.StartRun(ctx, &executorv1.StartRunRequest{Graph: g, Named: payloads(map[string]any{"user_input": fmt.Sprintf("agent-%06d: find out what there is to know, and note it.", first+i)})})
		ids[i] = run.GetId()
		if err == nil && pause > 0 {
			err = drive.Rest(ctx, pause)
		}
		return err
	})
	return ids, err
}

// child is the one run below another one, once it is there.
func (h *host) child(ctx context.Context, id string) (child string, err error) {
	err = until(ctx, func() (bool, error) {
		page, err := h.api.ListRuns(ctx, &executorv1.ListRunsRequest{ParentRunId: id})
		if err != nil || len(page.GetRuns()) == 0 {
			return false, err
		}
		child = page.GetRuns()[0].GetId()
		return true, nil
	})
	return child, err
}

// agents lets agents loop at once in one executor: it looks at the memory of each while all of them ask a
// model, and while all wait for people and children, and times their calls.
func (r *rig) agents(ctx context.Context, o options, m *model, out io.Writer) error {
	h := r.hosts[0]
	fmt.Fprintf(out, "### %d agents\n\n", o.agents)
	// What a process allocates once is there before: programs, connections, caches.
	m.begin(func(_, call int) say { return quick(call, say{text: sayDone}) })
	warm, err := r.beginAgents(ctx, 0, 200, 0)
	if err != nil {
		return err
	}
	if err := r.ended(ctx, warm); err != nil {
		return err
	}
	before, err := h.look(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "- before: %s\n", before)
	m.begin(func(agent, call int) say {
		s := say{text: sayAsk, hold: true}
		if agent%2 == 0 {
			s.text = sayChild
		}
		if call > quickRounds {
			return say{text: sayDone}
		}
		return quick(call, s)
	})
	ids, err := r.beginAgents(ctx, 1, o.agents, 0)
	if err != nil {
		return err
	}
	if err := until(ctx, func() (bool, error) { return m.holds() == o.agents, nil }); err != nil {
		return err
	}
	asking, err := h.look(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "- all ask the model: %s; for each agent %s\n", asking, asking.since(before, o.agents))
	if err := h.profile(ctx, o.profiles, "heap", "goroutine"); err != nil {
		return err
	}
	m.release()
	if err := r.still(ctx, 2*o.agents+o.agents/2); err != nil {
		return err
	}
	waiting, err := h.look(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "- half wait for a person, half for a child: %s; for each agent %s\n", waiting, waiting.since(before, o.agents))
	if err := drive.Each(ctx, o.agents, agentsAtOnce, func(ctx context.Context, i int) error { return r.goOn(ctx, ids[i], (i+1)%2 == 0) }); err != nil {
		return err
	}
	if err := r.ended(ctx, ids); err != nil {
		return err
	}
	for _, delay := range o.delays {
		if err := r.timeCalls(ctx, o, m, delay, out); err != nil {
			return err
		}
	}
	return nil
}

// memoryLook is the memory of an executor.
type memoryLook struct {
	drive.Memory
	rss int64
}

func (m memoryLook) String() string {
	return fmt.Sprintf("heap %s, stacks %s, %d goroutines, RssAnon %s", mib(m.Heap), mib(m.Stacks), m.Goroutines, mib(m.rss))
}

func (m memoryLook) since(before memoryLook, agents int) string {
	n := int64(agents)
	return fmt.Sprintf("%d bytes of heap and %d of stacks (RssAnon %d)", (m.Heap-before.Heap)/n, (m.Stacks-before.Stacks)/n, (m.rss-before.rss)/n)
}

// look reads the memory when it is at rest.
func (h *host) look(ctx context.Context) (m memoryLook, err error) {
	if m.rss, err = h.memory(); err == nil {
		m.Memory, err = h.inUse(ctx)
	}
	return m, err
}

// profile writes profiles of the executor into a directory, if there is one.
func (h *host) profile(ctx context.Context, dir string, names ...string) error {
	if dir == "" {
		return nil
	}
	for _, name := range names {
		text, err := h.get(ctx, "/debug/pprof/"+name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, strings.Replace(name, "?", "-", 1)+".pprof"), text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// quick is a quick round for the first calls of an agent, and then what is given.
func quick(call int, then say) say {
	if call < quickRounds {
		return say{text: sayNote(call)}
	}
	return then
}

// goOn answers the question of an agent, or sends the signal for which its child waits.
func (r *rig) goOn(ctx context.Context, id string, byChild bool) error {
	h := r.hosts[0]
	loop, err := h.child(ctx, id)
	if err != nil {
		return err
	}
	if byChild {
		child, err := h.child(ctx, loop)
		if err == nil {
			_, err = h.api.SignalRun(ctx, &executorv1.SignalRunRequest{RunId: child, Name: "go"})
		}
		return err
	}
	page, err := h.api.ListInterrupts(ctx, &executorv1.ListInterruptsRequest{RunId: id})
	if err != nil || len(page.GetInterrupts()) != 1 {
		return fmt.Errorf("%d questions of %s: %w", len(page.GetInterrupts()), id, err)
	}
	_, err = h.api.AnswerInterrupt(ctx, &executorv1.AnswerInterruptRequest{InterruptId: page.GetInterrupts()[0].GetId(), Answer: &graphv1.Payload{Json: []byte(`"yes"`)}})
	return err
}

// ended waits until runs have completed.
func (r *rig) ended(ctx context.Context, ids []string) error {
	for _, id := range ids {
		if err := until(ctx, func() (bool, error) {
			run, err := r.hosts[0].api.GetRun(ctx, &executorv1.GetRunRequest{RunId: id})
			switch {
			case err != nil:
				return false, err
			case run.GetState() == executorv1.RunState_RUN_STATE_FAILED, run.GetState() == executorv1.RunState_RUN_STATE_PAUSED:
				return false, fmt.Errorf("%s is %s: %s", id, run.GetState(), run.GetError().GetMessage())
			}
			return run.GetState() == executorv1.RunState_RUN_STATE_COMPLETED, nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// timeCalls lets agents ask a model that takes a while for each answer, and compares the time of a call with
// that of the server: from the durable end of the visit before the call until the request is there, and from
// the answer until its end is durable.
func (r *rig) timeCalls(ctx context.Context, o options, m *model, delay time.Duration, out io.Writer) error {
	h := r.hosts[0]
	m.begin(func(_, call int) say {
		switch call {
		case 0: // so that the agents do not march in step
			return say{text: sayNote(0), delay: time.Duration(rand.Int64N(int64(delay)))}
		case o.rounds:
			return say{text: sayDone, delay: delay}
		}
		return say{text: sayNote(call), delay: delay}
	})
	began := time.Now()
	// The starts take as long as an answer, so that they do not compete with calls that are timed.
	ids, err := r.beginAgents(ctx, 1, o.agents, delay*agentsAtOnce/time.Duration(o.agents))
	if err != nil {
		return err
	}
	profiled := make(chan error, 1)
	go func() { profiled <- h.profile(ctx, o.profiles, "profile?seconds=5") }()
	var mu sync.Mutex
	ends := map[int]map[string]time.Time{} // by agent: node and visit
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var watches sync.WaitGroup
	for k := range min(watched, o.agents) {
		agent := 1 + k*o.agents/min(watched, o.agents)
		loop, err := h.child(ctx, ids[agent-1])
		if err != nil {
			return err
		}
		watch, err := h.api.WatchRun(watching, &executorv1.WatchRunRequest{RunId: loop, DurableOnly: true})
		if err != nil {
			return err
		}
		seen := map[string]time.Time{}
		ends[agent] = seen
		watches.Go(func() {
			for {
				ev, err := watch.Recv()
				if err != nil {
					return
				}
				if a := ev.GetAttemptEnded(); a != nil {
					mu.Lock()
					seen[fmt.Sprint(a.GetVisit().GetNodeId(), a.GetVisit().GetVisit())] = time.Now()
					mu.Unlock()
				}
			}
		})
	}
	if err := r.ended(ctx, ids); err != nil {
		return err
	}
	took := time.Since(began)
	if err := <-profiled; err != nil {
		return err
	}
	stop()
	watches.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	var calls, rounds []time.Duration
	for agent := range o.agents {
		spans := m.calls[agent+1]
		if len(spans) != o.rounds+1 {
			return fmt.Errorf("agent %d asked %d times, not %d", agent+1, len(spans), o.rounds+1)
		}
		for i := 3; i < len(spans); i++ { // the others began while agents were started
			rounds = append(rounds, spans[i].came.Sub(spans[i-1].answered))
			was, ok := ends[agent+1][fmt.Sprint("observe", i)]
			if end := ends[agent+1][fmt.Sprint("reason", i+1)]; ok && !end.IsZero() {
				calls = append(calls, spans[i].came.Sub(was)+end.Sub(spans[i].answered))
			}
		}
	}
	rate := float64(o.agents*(o.rounds+1)) / took.Seconds()
	fmt.Fprintf(out, "- the model takes %s, %d agents make %d calls each, %.0f calls/s:\n", delay, o.agents, o.rounds+1, rate)
	fmt.Fprintf(out, "  - a call takes longer than the server by %s (%d calls)\n", percentiles(calls), len(calls))
	fmt.Fprintf(out, "  - from an answer to the agent's next request (4 visits) %s (%d rounds)\n", percentiles(rounds), len(rounds))
	return nil
}

func percentiles(ds []time.Duration) string {
	if len(ds) == 0 {
		return "none"
	}
	ds = slices.Clone(ds)
	slices.Sort(ds)
	at := func(q float64) time.Duration {
		return ds[min(int(q*float64(len(ds))), len(ds)-1)].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("p50 %s, p95 %s, p99 %s", at(0.5), at(0.95), at(0.99))
}
