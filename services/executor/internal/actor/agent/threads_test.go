package agent_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/internal/dbkit"
	"github.com/epigraph-run/epigraph/internal/ids"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent/state"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal/sqlite"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// threads are the threads of runs in memory, in a namespace of the tests' database. The runs are not in it,
// so nothing is held: package engine tests that.
type threads struct {
	*thread.Cache
	*database

	namespace string
	mu        sync.Mutex
	// rows and items are what the database holds.
	rows      map[string]thread.Thread
	items     map[string][]thread.Item
	learnings []workgraph.Learning
	// reads are how many items each reading gave.
	reads []int
}

// database is what all tests share.
type database struct {
	*sqlite.Store

	owner journal.Owner
	dir   string
}

var shared = sync.OnceValues(func() (*database, error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		return nil, err
	}
	s, err := sqlite.Open(ctx, filepath.Join(dir, "j.db"), sqlite.Options{})
	if err != nil {
		return nil, err
	}
	if _, err := s.Migrations().Up(ctx); err != nil {
		return nil, err
	}
	owner, err := s.Register(ctx, "x", "")
	return &database{s, owner, dir}, err
})

func TestMain(m *testing.M) {
	code := m.Run()
	if d, err := shared(); err != nil || d.Close() != nil || os.RemoveAll(d.dir) != nil {
		code = 1
	}
	os.Exit(code)
}

func newThreads(t *testing.T) *threads {
	t.Helper()
	d, err := shared()
	require.NoError(t, err)
	return &threads{Cache: thread.NewCache(d.Store, 0), database: d, namespace: ids.New("ns"), rows: map[string]thread.Thread{}, items: map[string][]thread.Item{}}
}

// Items implements thread.Reader.
func (m *threads) Items(ctx context.Context, namespace, id string, q thread.Query) ([]thread.Item, error) {
	out, err := m.Cache.Items(ctx, namespace, id, q)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads = append(m.reads, len(out))
	return out, err
}

// append writes what an outcome appends, in the commit of a run that begins and ends with it.
func (m *threads) append(t *testing.T, c *workgraph.Call, as []workgraph.ThreadAppend) {
	require.NoError(t, thread.Check(as))
	now := dbkit.Now()
	w := journal.Write{Start: &journal.Start{Run: journal.Run{ID: ids.New("run"), Namespace: m.namespace, GraphHash: "h", CreateTime: now, Status: journal.Status{State: journal.StateCompleted}},
		Append: journal.Append{Graph: []byte("g"), Events: []journal.Event{{Kind: 1, Time: now}}, Threads: thread.Appends(as, c.RunID, c.Node, c.Visit, now)}}}
	res, err := m.database.Commit(context.WithoutCancel(t.Context()), m.owner, []journal.Write{w})
	require.NoError(t, err)
	require.NoError(t, res[0].Err)
	for _, a := range as {
		m.look(t, a.Thread)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range as {
		m.learnings = append(m.learnings, as[i].Learnings...)
	}
}

// look reads a thread into rows and items.
func (m *threads) look(t *testing.T, id string) {
	row, err := m.database.Thread(t.Context(), m.namespace, id)
	require.NoError(t, err)
	m.mu.Lock()
	defer m.mu.Unlock()
	had := m.items[id]
	own, err := m.database.SegmentItems(t.Context(), m.namespace, thread.Segment{Thread: id, First: row.ParentSeq + int64(len(had)) + 1, Last: row.Last}, thread.Selection{Limit: thread.MaxItems, Body: true})
	require.NoError(t, err)
	for i := range own { // newest first
		had = append(had, own[len(own)-1-i])
	}
	m.rows[id], m.items[id] = row, had
}

// put makes a thread with items.
func (m *threads) put(t *testing.T, row thread.Thread, items ...workgraph.ThreadItem) {
	t.Helper()
	row.Namespace, row.Lifetime, row.CreateTime = m.namespace, workgraph.ThreadConversation, dbkit.Now()
	_, err := m.database.CreateThread(t.Context(), thread.Create{Thread: row})
	require.NoError(t, err)
	if len(items) > 0 {
		m.append(t, &workgraph.Call{}, []workgraph.ThreadAppend{{Thread: row.ID, After: row.ParentSeq, Items: items}})
	}
	m.look(t, row.ID)
}

// states are the states of the thread with the id.
func (m *threads) states(t *testing.T, id string) (out []state.Item) {
	t.Helper()
	for _, it := range m.items[id] {
		if it.Kind == workgraph.ThreadState {
			var s state.Item
			require.NoError(t, json.Unmarshal(it.Body, &s))
			out = append(out, s)
		}
	}
	return out
}

// last is the sequence of the last item of a thread.
func (m *threads) last(id string) int64 { return m.rows[id].ParentSeq + int64(len(m.items[id])) }

// root is the id of the first thread.
func (m *threads) root(t *testing.T) string {
	t.Helper()
	for id, row := range m.rows {
		if row.ParentID == "" && !strings.HasPrefix(row.Agent, "sub") {
			return id
		}
	}
	t.Fatal("no thread")
	return ""
}
