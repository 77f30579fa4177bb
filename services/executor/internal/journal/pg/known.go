package pg

import (
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
)

// maxKnown bounds the runs and the graphs that are remembered.
const maxKnown = 200_000

// knownRows is what this store has been told is durable, so that the next commit need not ask for it. Each
// entry belongs to the connection that was told: the end of a server ends the connection, and the server
// may have lost what it told. Nothing but speed depends on it: what is not known, or turns out to be wrong,
// is asked for.
type knownRows struct {
	mu     sync.Mutex
	runs   map[string]knownRun
	graphs map[journal.Key]knownGraph
	last   uint64
}

// knownRun is an open run as a commit left it, whose row counts no take-over. As long as the owner is not
// fenced, only the owner itself changes the owner of the run.
type knownRun struct {
	conn      uint64
	owner     journal.Owner
	namespace string
	lastSeq   int64
}

// knownGraph is a graph that was said to be in use.
type knownGraph struct {
	conn uint64
	at   time.Time
}

// connection tells connections of all times apart.
func (k *knownRows) connection(conn *pgx.Conn) uint64 {
	const key = "epigraph.connection"
	data := conn.PgConn().CustomData()
	if id, ok := data[key].(uint64); ok {
		return id
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last++
	data[key] = k.last
	return k.last
}

// take returns the batches whose runs are known to be as they expect them, and forgets these runs: nothing is
// known until the commit has ended.
func (k *knownRows) take(conn uint64, owner journal.Owner, units []*journal.RunBatch) map[*journal.RunBatch]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make(map[*journal.RunBatch]bool, len(units))
	for _, u := range units {
		r, ok := k.runs[u.RunID]
		if !ok {
			continue
		}
		delete(k.runs, u.RunID)
		if r.conn == conn && r.owner == owner && r.namespace == u.Namespace && r.lastSeq == u.Expected && u.Start == nil {
			out[u] = true
		}
	}
	return out
}

// keep remembers the run of a batch that was committed. was says that the run was known before.
func (k *knownRows) keep(conn uint64, owner journal.Owner, u *journal.RunBatch, was bool) {
	calm := was || u.Start != nil || u.Progress
	if !calm || u.Ends() || u.Release || u.Pending() {
		return
	}
	r := knownRun{conn: conn, owner: owner, namespace: u.Namespace, lastSeq: u.LastSeq()}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.runs) < maxKnown {
		k.runs[u.RunID] = r
	}
}

// forget drops runs; nil means all of an owner.
func (k *knownRows) forget(owner journal.Owner, runIDs []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range runIDs {
		delete(k.runs, id)
	}
	if runIDs != nil {
		return
	}
	for id, r := range k.runs {
		if r.owner == owner {
			delete(k.runs, id)
		}
	}
}

// stored reports whether a graph is in the database and stays there for now.
func (k *knownRows) stored(conn uint64, graph journal.Key) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	g, ok := k.graphs[graph]
	return ok && g.conn == conn && time.Since(g.at) < journal.GraphKnown
}

// keepGraphs remembers graphs that a commit has said to be in use, which began at a time.
func (k *knownRows) keepGraphs(conn uint64, at time.Time, graphs []journal.Key) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.graphs)+len(graphs) > maxKnown {
		clear(k.graphs)
	}
	for _, g := range graphs {
		k.graphs[g] = knownGraph{conn, at}
	}
}
