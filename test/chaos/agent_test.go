package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/failpoint"
	"github.com/epigraph-run/epigraph/internal/grpckit"
	"github.com/epigraph-run/epigraph/internal/llm/fakellm"
	executorv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/executor/v1"
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// moment is when an executor dies, seen from a call of the agent's run.
type moment string

const (
	// inModel and inTool are the middle of a call: the other side has the request, and does not answer.
	inModel moment = "model call under way"
	inTool  moment = "tool call under way"
	// answered is after the end of a call of any actor, before the commit of its outcome.
	answered moment = "answered, not committed"
	// committed is after a commit, before anything follows from it.
	committed moment = "committed"
)

// moments are all of them, with the number of a run's calls or commits of the kind, from below. The short
// form of the test draws from so many.
func moments() map[moment]int {
	return map[moment]int{inModel: 8, inTool: 6, answered: 40, committed: 40}
}

// called is one call as the other side got it. The key begins with run/node/visit.
type called struct{ key, what string }

// city is the model and the tools of an agent. It writes down every call, and can kill the executor that
// makes it.
type city struct {
	model, tools string

	mu    sync.Mutex
	calls map[moment][]called
	// kill is called in the middle of the left-th call of the kind from now on.
	at   moment
	left int
	kill func()
}

func newCity(t *testing.T) *city {
	t.Helper()
	w := &city{calls: map[moment][]called{}}
	model := fakellm.New(fakellm.Script{Answer: func(r fakellm.Request) (fakellm.Reply, bool) {
		prompt := r.Messages[len(r.Messages)-1].Content
		if w.came(inModel, called{r.Header.Get("Idempotency-Key"), prompt}) {
			return fakellm.Reply{Fault: fakellm.Hang}, true
		}
		return fakellm.Reply{Text: decide(prompt)}, true
	}})
	var err error
	w.model, err = model.Listen("127.0.0.1:0")
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := &http.Server{Handler: w, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() {
		_ = srv.Close()
		_ = model.Close()
	})
	w.tools = "http://" + l.Addr().String()
	return w
}

// came writes a call down and reports whether the caller has been killed.
func (w *city) came(kind moment, c called) (cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[kind] = append(w.calls[kind], c)
	if w.at != kind {
		return false
	}
	if w.left--; w.left != 0 {
		return false
	}
	w.kill()
	return true
}

// arm forgets all calls, and sets when the next executor is killed.
func (w *city) arm(at moment, left int, kill func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls, w.at, w.left, w.kill = map[moment][]called{}, at, left, kill
}

// all are the calls since arm, by their keys, and what they said, once for each key.
func (w *city) all() (keys map[string]int, said []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	keys = map[string]int{}
	for _, calls := range w.calls {
		for _, c := range calls {
			if keys[c.key]++; keys[c.key] == 1 {
				said = append(said, c.what)
			}
		}
	}
	slices.Sort(said)
	return keys, said
}

// ServeHTTP is the tools.
func (w *city) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	tool := path.Base(r.URL.Path)
	if w.came(inTool, called{r.Header.Get("Idempotency-Key"), tool}) {
		<-r.Context().Done()
		return
	}
	rw.Header()["Date"] = nil // the same answer at any time
	rw.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(rw, strconv.Quote(tool+" is done"))
}

// decide is the model: two rounds with actions, one of which has two branches, a question, an action that
// must not be made twice, the result, and another task in the same conversation.
func decide(prompt string) string {
	has := func(s string) bool { return strings.Contains(prompt, s) }
	actions := func(status string, groups ...string) string {
		var b strings.Builder
		b.WriteString("<StructuredResponse><TaskStatus>Ongoing</TaskStatus><TaskStatusDescription>" + status + "</TaskStatusDescription><ImmediateNextActions>")
		for _, g := range groups {
			b.WriteString("<AlternativeActions>")
			for a := range strings.SplitSeq(g, "+") {
				b.WriteString("<Action><Type>" + a + "</Type></Action>")
			}
			b.WriteString("</AlternativeActions>")
		}
		return b.String() + "</ImmediateNextActions></StructuredResponse>"
	}
	says := func(status, text string) string {
		return "<StructuredResponse><TaskStatus>" + status + "</TaskStatus><InstantResponse>" + text + "</InstantResponse></StructuredResponse>"
	}
	switch {
	case has("User: And the train?"):
		return says("Completed", "It leaves at nine.")
	case has("book is done"):
		return says("Completed", "Booked for Friday.")
	case has("User: Friday"):
		return actions("booking", "book")
	case has("note is done"):
		return says("Pending", "Which day?")
	case has("detail is done"):
		return says("Completed", "south is full")
	case has("south is done"):
		return actions("asking again", "detail")
	case has("north is done"):
		return says("Completed", "north is fine")
	case has("look is done"):
		return actions("asking both", "north+south", "note")
	}
	return actions("looking", "look")
}

// settings of an executor whose agent/guide lives in the city. Only the action "book" is UNSAFE.
func (w *city) settings() []string {
	actions := map[string]any{}
	for _, name := range []string{"look", "north", "south", "detail", "note", "book"} {
		method := http.MethodPut
		if name == "book" {
			method = http.MethodPost
		}
		actions[name] = map[string]any{"actor": "http", "named": map[string]any{"method": method, "url": w.tools + "/" + name}}
	}
	definition, _ := json.Marshal(map[string]any{"actions": actions, // always marshals
		"template": "{conversation}\n{current_state}\n{previous_states}\n{action_result}"})
	agents, _ := json.Marshal(map[string]any{"guide": map[string]any{"definition": string(definition)}})
	profiles, _ := json.Marshal(map[string]any{"default": map[string]any{"base_url": w.model, "api_key": "x"}})
	return []string{"executor.actors.agents=" + string(agents), "models.profiles=" + string(profiles), "executor.max_takeovers=5"}
}

// conversation is a user with three messages: the first starts a run, the second answers its question, the
// third starts another run.
type conversation struct {
	w        *city
	threads  executorv1.ThreadServiceClient
	exec     executorv1.ExecutorServiceClient
	thread   string
	settled  bool
	requests string
}

func (k *conversation) say(ctx context.Context, text string) (*executorv1.Turn, error) {
	return persist(ctx, func(ctx context.Context) (*executorv1.Turn, error) {
		return k.threads.AppendMessage(ctx, &executorv1.AppendMessageRequest{ThreadId: k.thread, Content: &graphv1.Payload{Json: quoted(text)}, RequestId: k.requests + text})
	})
}

// until asks until the answer is yes, and settles meanwhile what became of calls of unknown outcome.
func (k *conversation) until(ctx context.Context, yes func(context.Context) (bool, error)) error {
	for {
		if ok, err := persist(ctx, yes); ok || err != nil {
			return err
		}
		if err := k.settle(ctx); err != nil {
			return err
		}
		still(20 * time.Millisecond)
	}
}

// settle does what an operator does when an UNSAFE call was cut off: look whether it was performed, and say
// so.
func (k *conversation) settle(ctx context.Context) error {
	paused, err := persist(ctx, func(ctx context.Context) (*executorv1.ListRunsResponse, error) {
		return k.exec.ListRuns(ctx, &executorv1.ListRunsRequest{States: []executorv1.RunState{executorv1.RunState_RUN_STATE_PAUSED}})
	})
	if err != nil {
		return err
	}
	for _, r := range paused.GetRuns() {
		visits, err := persist(ctx, func(ctx context.Context) (*executorv1.ListVisitsResponse, error) {
			return k.exec.ListVisits(ctx, &executorv1.ListVisitsRequest{RunId: r.GetId(), PageSize: 1000})
		})
		if err != nil {
			return err
		}
		for _, v := range visits.GetVisits() {
			if v.GetState() != executorv1.VisitState_VISIT_STATE_NEEDS_RECONCILIATION {
				continue
			}
			req := &executorv1.ReconcileVisitRequest{RunId: r.GetId(), Visit: &executorv1.VisitRef{NodeId: v.GetNodeId(), Visit: v.GetVisit()}, By: "chaos",
				Outcome: &executorv1.ReconcileVisitRequest_NotPerformed{NotPerformed: &executorv1.AttemptNotPerformed{}}}
			if keys, _ := k.w.all(); keys[v.GetEffectKey()] > 0 {
				req.Outcome = &executorv1.ReconcileVisitRequest_Performed{Performed: &executorv1.AttemptPerformed{Values: []*graphv1.Payload{{Json: []byte(booked)}}}}
			}
			if err := gone(persist(ctx, func(ctx context.Context) (*executorv1.Run, error) { return k.exec.ReconcileVisit(ctx, req) })); err != nil {
				return err
			}
			k.settled = true
		}
		if err := gone(persist(ctx, func(ctx context.Context) (*executorv1.Run, error) {
			return k.exec.ResumeRun(ctx, &executorv1.ResumeRunRequest{RunId: r.GetId()})
		})); err != nil {
			return err
		}
	}
	return nil
}

// booked is the result of the action "book".
const booked = `{"status":200,"headers":{"content-length":"14","content-type":"application/json"},"body":"book is done"}`

// gone is the error of a command, unless the run has moved on without it.
func gone[T any](_ T, err error) error {
	if k := errs.KindOf(err); err != nil && (k == errs.FailedPrecondition || k == errs.NotFound || k == errs.AlreadyExists) {
		return nil
	}
	return err
}

// talk has the whole conversation and returns the results of the two runs.
func (k *conversation) talk(ctx context.Context) (results []string, err error) {
	th, err := persist(ctx, func(ctx context.Context) (*executorv1.Thread, error) {
		return k.threads.CreateThread(ctx, &executorv1.CreateThreadRequest{Thread: &executorv1.Thread{Agent: "agent/guide"}, RequestId: k.requests})
	})
	if err != nil {
		return nil, err
	}
	k.thread = th.GetId()
	first, err := k.say(ctx, "Plan a weekend")
	if err != nil {
		return nil, err
	}
	if err := k.until(ctx, func(ctx context.Context) (bool, error) {
		asked, err := k.exec.ListInterrupts(ctx, &executorv1.ListInterruptsRequest{RunId: first.GetRunId()})
		return len(asked.GetInterrupts()) > 0, err
	}); err != nil {
		return nil, fmt.Errorf("the question: %w", err)
	}
	for _, text := range []string{"Friday", "And the train?"} {
		if _, err := k.say(ctx, text); err != nil {
			return nil, err
		}
	}
	for n := int64(1); n <= 3; n += 2 {
		var r *executorv1.Run
		if err := k.until(ctx, func(ctx context.Context) (bool, error) {
			turn, err := k.threads.GetTurn(ctx, &executorv1.GetTurnRequest{ThreadId: k.thread, Number: n})
			if err != nil || turn.GetState() == executorv1.TurnState_TURN_STATE_QUEUED {
				return false, err
			}
			r, err = k.exec.GetRun(ctx, &executorv1.GetRunRequest{RunId: turn.GetRunId()})
			return r.GetEndTime() != nil, err
		}); err != nil {
			return nil, fmt.Errorf("the run of turn %d: %w", n, err)
		}
		results = append(results, fmt.Sprintf("%s %s", r.GetState(), r.GetResult().GetJson()))
	}
	return results, nil
}

// kept are the items of all threads, each thread as a text.
func (k *conversation) kept(ctx context.Context) (out []string, err error) {
	threads, err := k.threads.ListThreads(ctx, &executorv1.ListThreadsRequest{PageSize: 1000})
	if err != nil {
		return nil, err
	}
	for _, th := range threads.GetThreads() {
		messages, err := k.threads.ListMessages(ctx, &executorv1.ListMessagesRequest{ThreadId: th.GetId(), PageSize: 1000})
		if err != nil {
			return nil, err
		}
		states, err := k.threads.ListStates(ctx, &executorv1.ListStatesRequest{ThreadId: th.GetId(), PageSize: 1000, Full: true})
		if err != nil {
			return nil, err
		}
		items := append(messages.GetMessages(), states.GetStates()...)
		slices.SortFunc(items, func(a, b *executorv1.ThreadItem) int { return int(a.GetSequence() - b.GetSequence()) })
		var b strings.Builder
		for _, it := range items {
			fmt.Fprintf(&b, "%d %s %s\n", it.GetSequence(), it.GetKind(), it.GetBody().GetJson())
		}
		out = append(out, b.String())
	}
	slices.Sort(out)
	return out, nil
}

// story is all that is left of a conversation.
type story struct {
	results, kept, said []string
}

// lane is a cluster in which one conversation follows another.
type lane struct {
	*cluster
	w *city
	// repeated counts calls that were cut off and made again.
	repeated, settled int
}

// trial has a conversation whose executor dies at the n-th moment of a kind; another one goes on. died is
// false if there is no such moment.
func (l *lane) trial(ctx context.Context, id string, at moment, n int) (s story, died bool) {
	t, r := l.t, l.replicas[0]
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := grpckit.Dial(l.addr(r.name), grpckit.DialOptions{Namespace: id})
	require.NoError(t, err)
	defer conn.Close()
	r.end()
	points := map[moment]map[failpoint.Point]int{answered: {failpoint.EffectAfter: n}, committed: {failpoint.CommitAfter: n}}[at]
	l.w.arm(at, n, func() { r.signal(syscall.SIGKILL) })
	require.NoError(t, r.start(points))
	k := &conversation{w: l.w, threads: executorv1.NewThreadServiceClient(conn), exec: executorv1.NewExecutorServiceClient(conn), requests: id}
	done := make(chan error, 1)
	go func() {
		var err error
		s.results, err = k.talk(ctx)
		done <- err
	}()
	durable := map[string]bool{}
	select {
	case err = <-done:
	case <-r.over():
		died = true
		l.kills.Add(1)
		totals.kill("executor of an agent: " + string(at))
		for _, visit := range l.rows(ctx, `SELECT e.run_id || '/' || e.node_id || '/' || e.visit FROM events e WHERE e.kind = 12`) {
			durable[visit] = true
		}
		require.NoError(t, r.start(nil))
		err = <-done
	}
	require.NoError(t, err, "%s", lazily(func() string { return l.open(ctx, id) }))
	s.kept, err = k.kept(ctx)
	require.NoError(t, err)
	var keys map[string]int
	keys, s.said = l.w.all()
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if keys[key] == 1 {
			continue
		}
		visit := strings.Join(strings.Split(key, "/")[:3], "/")
		require.False(t, durable[visit], "%s was finished and was made %d times", key, keys[key])
		require.Equal(t, 2, keys[key], "%s was cut off once", key)
		require.NotContains(t, key, "/do.book/", "an UNSAFE call is never made twice")
		l.repeated++
	}
	if k.settled {
		l.settled++
	}
	return s, died
}

// open reports the runs of a namespace that have not ended.
func (l *lane) open(ctx context.Context, ns string) string {
	rows := l.rows(context.WithoutCancel(ctx), `SELECT run_id || ' ' || `+stateName+` || ' ' || state_reason || ' ' || graph_name FROM runs WHERE state < 6 AND namespace = '`+ns+`'`)
	return strings.Join(rows, "\n")
}

// queue hands out moments until each kind has had all of its own.
type queue struct {
	mu   sync.Mutex
	next map[moment]int
	over map[moment]bool
	// died counts the deaths.
	died map[moment]int
	// drawn, if set, are the moments of the short form.
	drawn []struct {
		at moment
		n  int
	}
}

func (q *queue) take() (at moment, n int, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !agentWhole {
		if len(q.drawn) == 0 {
			return "", 0, false
		}
		one := q.drawn[0]
		q.drawn = q.drawn[1:]
		return one.at, one.n, true
	}
	for _, at := range slices.Sorted(maps.Keys(moments())) {
		if !q.over[at] {
			q.next[at]++
			return at, q.next[at], true
		}
	}
	return "", 0, false
}

// ended records whether the executor died.
func (q *queue) ended(at moment, died bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over[at] = q.over[at] || !died; died {
		q.died[at]++
	}
}

// TestAgent kills the executor of an agent at every visit of its runs: in the middle of each call of a model
// or a tool, after each call of any actor and before the commit, and after each commit. On SQLite the process
// is started again, on PostgreSQL another executor takes over.
func TestAgent(t *testing.T) {
	t.Parallel()
	for _, store := range stores() {
		q := &queue{next: map[moment]int{}, over: map[moment]bool{}, died: map[moment]int{}}
		for at, n := range moments() {
			for range 2 {
				q.drawn = append(q.drawn, struct {
					at moment
					n  int
				}{at, 1 + rand.IntN(n)})
			}
		}
		var mu sync.Mutex
		repeated, settled := 0, 0
		t.Run(store, func(t *testing.T) {
			t.Cleanup(func() {
				if t.Failed() {
					return
				}
				sum := 0
				for _, at := range slices.Sorted(maps.Keys(q.died)) {
					t.Logf("%s: %3d deaths: %s", store, q.died[at], at)
					sum += q.died[at]
				}
				t.Logf("%s: %3d deaths in all; %d calls that were cut off were made again, %d UNSAFE ones settled; no finished call was repeated, nothing is in a thread twice, all results are equal",
					store, sum, repeated, settled)
				require.False(t, agentWhole && sum < 100, "there are more visits than that")
			})
			t.Parallel()
			for i := range agentLanes {
				t.Run(fmt.Sprint("Lane", i), func(t *testing.T) {
					t.Parallel()
					l := newLane(t, store)
					l.work(t.Context(), q)
					mu.Lock()
					defer mu.Unlock()
					repeated += l.repeated
					settled += l.settled
				})
			}
		})
	}
}

func stores() []string { return []string{"sqlite", "postgres"} }

func newLane(t *testing.T, store string) *lane {
	t.Helper()
	w := newCity(t)
	return &lane{w: w, cluster: newCluster(t, clusterOptions{store: store, replicas: 1, settings: w.settings()})}
}

// work has a conversation in peace, and then those of the queue.
func (l *lane) work(ctx context.Context, q *queue) {
	t := l.t
	whole, died := l.trial(ctx, "peace", "", 0)
	require.False(t, died)
	require.Equal(t, []string{`RUN_STATE_COMPLETED "Booked for Friday."`, `RUN_STATE_COMPLETED "It leaves at nine."`}, whole.results)
	require.Len(t, whole.kept, 3, "the agent and its two branches have a thread each")
	require.Len(t, whole.said, 15, "nine calls of the model and six of tools")
	require.Contains(t, strings.Join(whole.kept, ""), booked[1:len(booked)-1])
	for i := 0; ; i++ {
		at, n, ok := q.take()
		if !ok {
			break
		}
		got, died := l.trial(ctx, fmt.Sprint("death-", i), at, n)
		require.Equal(t, whole, got, "%s, the %d-th", at, n)
		q.ended(at, died)
	}
	for end := time.Now().Add(timeout); len(l.rows(ctx, `SELECT run_id FROM outbox`)) > 0 && time.Now().Before(end); {
		still(50 * time.Millisecond)
	}
	for _, i := range invariants() {
		if i.what != "too many children" { // an agent has as many as it decides
			require.Empty(t, l.rows(ctx, i.sql), i.want)
		}
	}
	require.Empty(t, l.examined(ctx))
}
