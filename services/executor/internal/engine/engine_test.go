package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/internal/page"
	"github.com/epigraph-run/epigraph/internal/testkit"
	"github.com/epigraph-run/epigraph/internal/testkit/pgtest"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/command"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/query"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/pg"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
	"github.com/epigraph-run/epigraph/workgraph"
)

func TestMain(m *testing.M) {
	// These tests mostly wait for commits, leases and timers. Set before the flags are parsed, this is only
	// the default.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	testkit.Main(m)
}

const ns = "acme"

// shortLease is for tests that wait until a lease has run out. Busy machines lose shorter ones.
const shortLease = 8 * time.Second

// actors is an engine.Actors made of functions.
type actors map[string]workgraph.Actor

func (a actors) Find(_ context.Context, _ string, names []string) (map[string]program.ActorInfo, error) {
	out := map[string]program.ActorInfo{}
	for _, n := range names {
		if info, ok := workgraph.Actors(a).ActorInfo(n); ok {
			out[n] = program.ActorInfo{ActorInfo: info}
		}
	}
	return out, nil
}

func (a actors) Actor(_ context.Context, _, name string) (workgraph.Actor, program.ActorInfo, bool, error) {
	info, ok := workgraph.Actors(a).ActorInfo(name)
	return a[name], program.ActorInfo{ActorInfo: info}, ok, nil
}

func (a actors) Names(context.Context, string) ([]string, error) {
	var out []string
	for n := range a {
		out = append(out, n)
	}
	slices.Sort(out)
	return out, nil
}

// unsafeActor is an actor whose calls must not be repeated.
type unsafeActor struct{ workgraph.Actor }

func (unsafeActor) Info() workgraph.ActorInfo { return workgraph.ActorInfo{Effect: workgraph.Unsafe} }

func text(s string) workgraph.Outcome {
	b, _ := json.Marshal(s)
	return workgraph.Outcome{Values: []json.RawMessage{b}}
}

// recorder counts calls by node.
type recorder struct {
	mu    sync.Mutex
	calls map[string]int
}

func (r *recorder) Call(_ context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls == nil {
		r.calls = map[string]int{}
	}
	r.calls[c.Ref.String()]++
	return text("done " + c.Node), nil
}

func (r *recorder) of(ref string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[ref]
}

// store is one database, on which engines can be opened one after the other.
type store struct {
	name string
	open func(t testing.TB) journal.Journal
}

var pgTemplate = pgtest.NewTemplate(func(ctx context.Context, url string) error {
	s, err := pg.Open(ctx, url, pg.Options{})
	if err != nil {
		return err
	}
	_, err = s.Migrations().Up(ctx)
	return errors.Join(err, s.Close())
})

// sqliteTemplate is a migrated file as bytes. To migrate one for each test would take longer than most tests.
var sqliteTemplate = sync.OnceValues(func() (_ []byte, err error) {
	dir, err := os.MkdirTemp("", "epigraph-engine-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "template.db")
	s, err := sqlite.Open(context.Background(), path, sqlite.Options{})
	if err != nil {
		return nil, err
	}
	_, err = s.Migrations().Up(context.Background())
	// The last Close leaves no log beside the file.
	if err := errors.Join(err, s.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

func sqliteStore(t testing.TB) store {
	path := filepath.Join(t.TempDir(), "executor.db")
	template, err := sqliteTemplate()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, template, 0o600))
	return store{"SQLite", func(t testing.TB) journal.Journal {
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}}
}

func pgStore(t testing.TB) store {
	url := pgTemplate.New(t)
	return store{"Postgres", func(t testing.TB) journal.Journal {
		s, err := pg.Open(t.Context(), url, pg.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	}}
}

func eachStore(t *testing.T, f func(t *testing.T, s store)) {
	for name, open := range map[string]func(testing.TB) store{"SQLite": sqliteStore, "Postgres": pgStore} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, open(t))
		})
	}
}

// live is a running engine.
type live struct {
	*engine.Engine
	*query.Query
	j    journal.Journal
	stop func()
}

type option func(*engine.Config, *engine.Deps)

func run(t testing.TB, s store, a program.Actors, opts ...option) *live {
	t.Helper()
	cfg := engine.DefaultConfig()
	cfg.ID, cfg.ScanInterval, cfg.WatchPoll = "exec", 20*time.Millisecond, 20*time.Millisecond
	cfg.Drain, cfg.Grace = 100*time.Millisecond, time.Second
	// Long enough for a busy machine; tests of lost leases set their own
	cfg.Lease = 30 * time.Second
	j := s.open(t)
	d := engine.Deps{Journal: j, Actors: a, Logger: testkit.Logger(t)}
	cfg.IDWait = time.Millisecond // tests reuse each other's executor ids
	for _, o := range opts {
		o(&cfg, &d)
	}
	e, err := engine.New(cfg, d)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = e.Run(ctx)
	}()
	select {
	case <-e.Ready():
	case <-time.After(60 * time.Second):
		t.Fatal("engine not ready")
	}
	stop := sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(stop)
	return &live{Engine: e, Query: query.New(e), j: j, stop: stop}
}

func (l *live) start(t testing.TB, g *workgraph.Graph, change ...func(*command.StartRequest)) string {
	t.Helper()
	req := command.StartRequest{Namespace: ns, Graph: g}
	for _, c := range change {
		c(&req)
	}
	var id string
	testkit.Eventually(t, func() bool {
		var created bool
		var err error
		if id, created, err = l.Start(t.Context(), req); errs.Is(err, errs.Unavailable) {
			return false // it registers again; clients retry, too
		}
		require.NoError(t, err)
		require.True(t, created)
		return true
	})
	return id
}

func (l *live) row(t testing.TB, id string) journal.Run {
	t.Helper()
	r, err := l.j.Get(t.Context(), ns, id)
	require.NoError(t, err)
	return r
}

// sound checks that the journal of a run is consistent.
func (l *live) sound(t testing.TB, id string) {
	t.Helper()
	faults, err := query.Audit(t.Context(), l.j, ns, id)
	require.NoError(t, err)
	require.Empty(t, faults)
}

// wait waits until a run has one of these states, and no longer for one that has ended in another.
func (l *live) wait(t testing.TB, id string, want ...journal.State) journal.Run {
	t.Helper()
	var row journal.Run
	defer func() {
		if t.Failed() {
			l.describe(t)
		}
	}()
	testkit.Within(t, 5*time.Minute, 2*time.Millisecond, func() bool {
		row = l.row(t, id)
		return slices.Contains(want, row.State) || !row.EndTime.IsZero()
	}, "run %s", id)
	require.Contains(t, want, row.State, "run %s: %s %s", id, row.Reason, row.Error)
	return row
}

// describe logs every run and its blockers.
func (l *live) describe(t testing.TB) {
	t.Helper()
	rows, err := l.j.List(context.Background(), ns, journal.Filter{}, page.Cursor{}, 100)
	if err != nil {
		t.Log("the runs cannot be listed:", err)
	}
	for _, row := range rows {
		x, err := l.Explain(context.Background(), ns, row.ID)
		if err != nil {
			t.Logf("%s is %s and cannot be explained: %v", row.ID, row.State, err)
			continue
		}
		t.Logf("%s of %q is %s %s since %s, held up by %+v", row.ID, row.ParentID, row.State, row.Reason, row.UpdateTime, x.Blockers)
	}
}

func (l *live) events(t testing.TB, id string) []feed.Event {
	t.Helper()
	var out []feed.Event
	for {
		page, err := l.Feed().Events(t.Context(), l.row(t, id), int64(len(out)), 500)
		require.NoError(t, err)
		out = append(out, page...)
		if len(page) == 0 {
			break
		}
	}
	for i, ev := range out {
		require.Equal(t, int64(i+1), ev.Durable.Seq, "gap in the journal")
	}
	return out
}

func chain(n int, actor string) *workgraph.Graph {
	g := &workgraph.Graph{Name: fmt.Sprintf("chain of %d", n)}
	for i := range n {
		g.Nodes = append(g.Nodes, workgraph.Node{ID: fmt.Sprintf("n%d", i), Actor: actor})
		if i > 0 {
			g.Edges = append(g.Edges, workgraph.Edge{From: fmt.Sprintf("n%d", i-1), To: fmt.Sprintf("n%d", i)})
		}
	}
	return g
}

func diamond(actor string) *workgraph.Graph {
	return &workgraph.Graph{Name: "diamond",
		Nodes: []workgraph.Node{{ID: "a", Actor: actor}, {ID: "b", Actor: actor}, {ID: "c", Actor: actor}, {ID: "d", Actor: actor}},
		Edges: []workgraph.Edge{{From: "a", To: "b"}, {From: "a", To: "c"}, {From: "b", To: "d"}, {From: "c", To: "d"}}}
}

// gate is an actor that signals its calls, and returns when it may.
type gate struct {
	called chan workgraph.Start
	open   chan struct{}
	ended  atomic.Int64
	causes chan error
}

func newGate() *gate {
	return &gate{called: make(chan workgraph.Start, 1000), open: make(chan struct{}), causes: make(chan error, 1000)}
}

func (g *gate) Call(ctx context.Context, c *workgraph.Call) (workgraph.Outcome, error) {
	g.called <- c.Start
	select {
	case <-g.open:
		g.ended.Add(1)
		return text("opened"), nil
	case <-ctx.Done():
		g.causes <- context.Cause(ctx)
		return workgraph.Outcome{}, ctx.Err()
	}
}

func (g *gate) next(t testing.TB) workgraph.Start {
	t.Helper()
	select {
	case s := <-g.called:
		return s
	case <-time.After(60 * time.Second):
		t.Fatal("no call")
		return workgraph.Start{}
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, s store) {
		rec := &recorder{}
		l := run(t, s, actors{"ok": rec, "bad": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
			return workgraph.Outcome{}, workgraph.Errorf(workgraph.Permanent, "NO", "it does not work")
		}), "panics": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) { panic("ouch") }),
			"huge": workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
				return workgraph.Outcome{Values: []json.RawMessage{quoted(5 << 20)}}, nil
			})})
		t.Run("Chain/Completes", func(t *testing.T) {
			t.Parallel()
			id := l.start(t, chain(5, "ok"))
			row := l.wait(t, id, journal.StateCompleted)
			require.JSONEq(t, `"done n4"`, string(row.Result))
			require.Equal(t, journal.NodeCounts{Total: 5, Completed: 5}, row.Nodes)
			evs := l.events(t, id)
			require.Equal(t, workgraph.RunStarted, evs[0].Durable.Kind)
			require.Equal(t, workgraph.RunEnded, evs[len(evs)-1].Durable.Kind)
			require.Equal(t, row.LastSeq, int64(len(evs)))
		})
		t.Run("Diamond/Completes", func(t *testing.T) {
			t.Parallel()
			id := l.start(t, diamond("ok"))
			row := l.wait(t, id, journal.StateCompleted)
			require.JSONEq(t, `{"d":"done d"}`, string(row.Outputs))
		})
		t.Run("Failure/IsReported", func(t *testing.T) {
			t.Parallel()
			row := l.wait(t, l.start(t, chain(2, "bad")), journal.StateFailed)
			var e record.RunError
			require.NoError(t, json.Unmarshal(row.Error, &e))
			require.Equal(t, record.RunError{Type: workgraph.Permanent, Reason: "NO", Message: "it does not work", Node: "n0", Visit: 1}, e)
			require.Equal(t, journal.NodeCounts{Total: 2, Failed: 1, Skipped: 1}, row.Nodes)
		})
		t.Run("Panic/IsATypedError", func(t *testing.T) {
			t.Parallel()
			row := l.wait(t, l.start(t, chain(1, "panics")), journal.StateFailed)
			require.Contains(t, string(row.Error), workgraph.ReasonPanic)
		})
		t.Run("Result/TooLargeIsPermanent", func(t *testing.T) {
			t.Parallel()
			row := l.wait(t, l.start(t, chain(1, "huge")), journal.StateFailed)
			require.Contains(t, string(row.Error), journal.ReasonPayloadTooLarge)
			require.Len(t, attemptsOf(l.events(t, row.ID)), 1)
		})
		t.Run("Input/IsPropagatedByteForByte", func(t *testing.T) {
			t.Parallel()
			id := l.start(t, chain(1, "ok"), func(r *command.StartRequest) {
				r.Input = workgraph.Input{Args: []json.RawMessage{json.RawMessage(`9007199254740993`)}, Named: map[string]json.RawMessage{"k": json.RawMessage(`"<&>"`)}}
			})
			row := l.wait(t, id, journal.StateCompleted)
			require.Equal(t, `[9007199254740993]`, string(row.Args))
			require.Equal(t, `"<&>"`, string(l.events(t, id)[0].Durable.Input.Named["k"]))
		})
		t.Run("Map/WindowIsKept", func(t *testing.T) {
			t.Parallel()
			g := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "m", Actor: "ok", Map: &workgraph.Map{Over: "[1,2,3,4,5]", MaxParallel: 2}}}}
			row := l.wait(t, l.start(t, g), journal.StateCompleted)
			var items []json.RawMessage
			require.NoError(t, json.Unmarshal(row.Result, &items))
			require.Len(t, items, 5)
		})
		t.Run("Cache/ServesOtherRunsOfTheNamespaceOnly", func(t *testing.T) {
			t.Parallel()
			g := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "kept", Actor: "ok", Effect: workgraph.Pure,
				Cache: &workgraph.Cache{TTL: workgraph.Duration(time.Hour)}}}}
			for range 3 {
				require.JSONEq(t, `"done kept"`, string(l.wait(t, l.start(t, g), journal.StateCompleted).Result))
			}
			require.Equal(t, 1, rec.of("kept"))
			id := l.start(t, g, func(r *command.StartRequest) { r.Namespace = "elsewhere" })
			testkit.Eventually(t, func() bool { return rec.of("kept") == 2 }, id)
		})
		t.Run("Large/TenThousandNodes", func(t *testing.T) {
			t.Parallel()
			g := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "src", Actor: "ok"}, {ID: "sink", Actor: "ok"}}}
			for i := range 9998 {
				id := fmt.Sprintf("w%d", i)
				g.Nodes = append(g.Nodes, workgraph.Node{ID: id, Actor: "ok"})
				g.Edges = append(g.Edges, workgraph.Edge{From: "src", To: id}, workgraph.Edge{From: id, To: "sink"})
			}
			begin := time.Now()
			row := l.wait(t, l.start(t, g), journal.StateCompleted)
			t.Logf("10,000 nodes in %s", time.Since(begin))
			require.Equal(t, journal.NodeCounts{Total: 10000, Completed: 10000}, row.Nodes)
		})
	})
}

// quoted is a JSON text of n characters.
func quoted(n int) json.RawMessage {
	return json.RawMessage(`"` + strings.Repeat("x", n) + `"`)
}

func attemptsOf(evs []feed.Event) []*record.Durable {
	var out []*record.Durable
	for _, ev := range evs {
		if ev.Durable.Kind == workgraph.AttemptEnded {
			out = append(out, ev.Durable)
		}
	}
	return out
}

func TestStart(t *testing.T) {
	t.Parallel()
	l := run(t, sqliteStore(t), actors{"template": &recorder{}, "gate": newGate()})
	t.Run("UnknownActor/NamesTheNearOne", func(t *testing.T) {
		_, _, err := l.Start(t.Context(), command.StartRequest{Namespace: ns, Graph: chain(2, "templat")})
		faults, ok := errors.AsType[workgraph.Faults](err)
		require.True(t, ok, "got %v", err)
		require.Len(t, faults, 2)
		require.Equal(t, workgraph.CodeUnknownActor, faults[0].Code)
		require.Contains(t, faults[0].Hint, "template")
	})
	t.Run("Payload/OverTheLimitIsNamed", func(t *testing.T) {
		big := quoted(5 << 20)
		_, _, err := l.Start(t.Context(), command.StartRequest{Namespace: ns, Graph: chain(1, "template"), Input: workgraph.Input{Args: []json.RawMessage{big}}})
		require.Equal(t, journal.ReasonPayloadTooLarge, errs.ReasonOf(err))
		require.True(t, errs.Is(err, errs.InvalidArgument))
		require.Equal(t, "args[0]", errs.From(err).Violations[0].Field)
	})
	t.Run("Graph/TooManyNodes", func(t *testing.T) {
		_, _, err := l.Start(t.Context(), command.StartRequest{Namespace: ns, Graph: &workgraph.Graph{Nodes: make([]workgraph.Node, 100_001)}})
		faults, ok := errors.AsType[workgraph.Faults](err)
		require.True(t, ok)
		require.Equal(t, workgraph.CodeTooLarge, faults[0].Code)
	})
	t.Run("RequestID/ReturnsTheFirstRun", func(t *testing.T) {
		req := command.StartRequest{Namespace: ns, Graph: chain(1, "template"), Request: journal.Request{ID: "r1", BodyHash: "h"}}
		first, created, err := l.Start(t.Context(), req)
		require.NoError(t, err)
		require.True(t, created)
		again, created, err := l.Start(t.Context(), req)
		require.NoError(t, err)
		require.False(t, created)
		require.Equal(t, first, again)
		req.Request.BodyHash = "other"
		_, _, err = l.Start(t.Context(), req)
		require.Equal(t, journal.ReasonRequestIDReused, errs.ReasonOf(err))
	})
	t.Run("BusinessKey/Policies", func(t *testing.T) {
		key := func(p journal.ConflictPolicy) command.StartRequest {
			return command.StartRequest{Namespace: ns, Graph: chain(1, "gate"), BusinessKey: "k", Conflict: p}
		}
		first, _, err := l.Start(t.Context(), key(journal.ConflictFail))
		require.NoError(t, err)
		_, _, err = l.Start(t.Context(), key(journal.ConflictFail))
		require.Equal(t, journal.ReasonBusinessKeyInUse, errs.ReasonOf(err))
		same, created, err := l.Start(t.Context(), key(journal.ConflictReturnExisting))
		require.NoError(t, err)
		require.False(t, created)
		require.Equal(t, first, same)
		second, created, err := l.Start(t.Context(), key(journal.ConflictCancelExisting))
		require.NoError(t, err)
		require.True(t, created)
		require.NotEqual(t, first, second)
		l.wait(t, first, journal.StateCanceled)
	})
	t.Run("Task/NeedsARegistry", func(t *testing.T) {
		_, _, err := l.Start(t.Context(), command.StartRequest{Namespace: ns, Graph: chain(1, "template"), TaskID: ids.New("tk")})
		require.Equal(t, engine.ReasonNoRegistry, errs.ReasonOf(err))
	})
	t.Run("NotRunning/IsUnavailable", func(t *testing.T) {
		cfg := engine.DefaultConfig()
		cfg.ID = "idle"
		e, err := engine.New(cfg, engine.Deps{Journal: l.j, Actors: actors{}})
		require.NoError(t, err)
		_, _, err = e.Start(t.Context(), command.StartRequest{Namespace: ns, Graph: chain(1, "x")})
		require.True(t, errs.Is(err, errs.Unavailable))
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	t.Run("Validate/ReportsEveryField", func(t *testing.T) {
		t.Parallel()
		err := engine.Config{}.Validate()
		require.ErrorContains(t, err, "id must be set")
		require.ErrorContains(t, err, "keep_alive must be positive")
	})
	t.Run("Near/FindsSlips", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []string{"http"}, program.Near("htp", []string{"cel", "http", "llm"}))
		require.Empty(t, program.Near("zzzzzz", []string{"cel", "http"}))
	})
}
