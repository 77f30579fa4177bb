package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor/agent"
	"github.com/epigraph-run/epigraph/services/executor/internal/actor/team"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/feed"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/services/executor/internal/thread"
	"github.com/epigraph-run/epigraph/workgraph"
)

// BenchmarkTeamRounds lets ten members speak in turn, up to 10,000 messages, or 1,000 with -short:
// actors, and agents, each turn of which is a run of its own. Around several messages it reports the
// time of a turn, what a turn reads of the database in rows and in bytes, and what it writes. A turn
// must not depend on how many came before.
func BenchmarkTeamRounds(b *testing.B) {
	marks := []int{10, 100, 1000, 10_000}
	if testing.Short() {
		marks = marks[:3]
	}
	for kind, one := range map[string]string{
		"Actors": `{"name": "m%d", "actor": "says"}`,
		"Agents": `{"name": "m%d", "kind": "AGENT", "actor": "agent", "named": {"reasoner": "says", "history": {"messages": 10}}}`,
	} {
		b.Run(kind, func(b *testing.B) {
			eachBench(b, func(b *testing.B, s store) {
				for b.Loop() {
					benchTeam(b, s, one, marks)
				}
			})
		})
	}
}

// benchTeam lets ten members of a kind speak, as many messages as the last mark says.
func benchTeam(b *testing.B, s store, member string, marks []int) {
	b.Helper()
	messages := marks[len(marks)-1]
	m := &meter{}
	var mu sync.Mutex
	var at []reading // one before each message
	own := instant()
	own["says"] = workgraph.ActorFunc(func(context.Context, *workgraph.Call) (workgraph.Outcome, error) {
		mu.Lock()
		defer mu.Unlock()
		at = append(at, m.now())
		return workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(`{"role": "assistant", "content": "a sentence that somebody says"}`)}}, nil
	})
	threads := thread.NewCache(meteredThreads{s.open(b), m}, 0)
	for _, sp := range append(team.Specs(threads), agent.Specs(threads, nil)...) {
		own[sp.Name] = pureActor{sp.Actor}
	}
	l := run(b, s, own, quiet, func(c *engine.Config, d *engine.Deps) {
		c.ID = fmt.Sprintf("bench-%d", b.N)
		d.Journal = meteredJournal{d.Journal, m}
	})
	l.jobs(b)
	var members, transitions []string
	for i := range 10 {
		members = append(members, fmt.Sprintf(member, i))
		transitions = append(transitions, fmt.Sprintf(`{"from": "m%d", "to": "m%d"}`, i, (i+1)%10))
	}
	n := workgraph.Node{ID: "team", Actor: "team"}
	require.NoError(b, json.Unmarshal(fmt.Appendf(nil, `{"task": "talk", "team": {"members": [%s], "transitions": [%s], "start": ["m0"], "stop": {"max_messages": %d}}}`,
		strings.Join(members, ","), strings.Join(transitions, ","), messages), &n.Named))
	id := l.start(b, &workgraph.Graph{Nodes: []workgraph.Node{n}})
	require.NoError(b, l.Feed().Watch(b.Context(), feed.WatchRequest{Namespace: ns, RunID: id}, ended{}))
	for _, mark := range marks {
		near := min(20, mark-1)
		from, to := mark-near, min(mark+near, len(at))-1
		first, last, turns := at[from], at[to], float64(to-from)
		var took []time.Duration
		for i := from; i < to; i++ {
			took = append(took, at[i+1].time.Sub(at[i].time))
		}
		b.ReportMetric(medianMs(took), fmt.Sprint("ms/", mark))
		b.ReportMetric(float64(last.rows-first.rows)/turns, fmt.Sprint("rows-read/", mark))
		b.ReportMetric(float64(last.bytes-first.bytes)/turns, fmt.Sprint("B-read/", mark))
		b.ReportMetric(float64(last.written-first.written)/turns, fmt.Sprint("B-written/", mark))
	}
	l.stop()
}

// meter counts what is read of a database and written to it.
type meter struct{ rows, bytes, written atomic.Int64 }

type reading struct {
	time                 time.Time
	rows, bytes, written int64
}

func (m *meter) now() reading {
	return reading{time.Now(), m.rows.Load(), m.bytes.Load(), m.written.Load()}
}

func (m *meter) read(rows, bytes int) {
	m.rows.Add(int64(rows))
	m.bytes.Add(int64(bytes))
}

// meteredJournal is a journal whose reads of runs and whose commits are counted.
type meteredJournal struct {
	journal.Journal
	m *meter
}

func (j meteredJournal) Load(ctx context.Context, runID string) (journal.Loaded, error) {
	l, err := j.Journal.Load(ctx, runID)
	n := len(l.Graph) + len(l.Snapshot)
	for i := range l.Events {
		n += len(l.Events[i].Data)
	}
	j.m.read(2+len(l.Events), n)
	return l, err
}

func (j meteredJournal) Head(ctx context.Context, namespace, runID string) (journal.Run, error) {
	j.m.read(1, 0)
	return j.Journal.Head(ctx, namespace, runID)
}

func (j meteredJournal) Get(ctx context.Context, namespace, runID string) (journal.Run, error) {
	j.m.read(1, 0)
	return j.Journal.Get(ctx, namespace, runID)
}

func (j meteredJournal) Descendants(ctx context.Context, namespace, runID string) ([]journal.Descendant, error) {
	out, err := j.Journal.Descendants(ctx, namespace, runID)
	j.m.read(len(out), 0)
	return out, err
}

func (j meteredJournal) CountBelow(ctx context.Context, namespace, runID string, most int) (all, running int, err error) {
	all, running, err = j.Journal.CountBelow(ctx, namespace, runID, most)
	j.m.read(all, 0)
	return all, running, err
}

func (j meteredJournal) Events(ctx context.Context, namespace, runID string, afterSeq int64, limit int) ([]journal.Event, error) {
	es, err := j.Journal.Events(ctx, namespace, runID, afterSeq, limit)
	for i := range es {
		j.m.read(1, len(es[i].Data))
	}
	return es, err
}

func (j meteredJournal) Commit(ctx context.Context, owner journal.Owner, writes []journal.Write) ([]journal.Result, error) {
	n := 0
	for i := range writes {
		a := writes[i].Append
		if s := writes[i].Start; s != nil {
			a = &s.Append
		}
		if a == nil {
			continue
		}
		n += len(a.Snapshot)
		for k := range a.Events {
			n += len(a.Events[k].Data)
		}
		for k := range a.Threads {
			for i := range a.Threads[k].Items {
				n += len(a.Threads[k].Items[i].Body) + len(a.Threads[k].Items[i].Brief)
			}
		}
	}
	j.m.written.Add(int64(n))
	return j.Journal.Commit(ctx, owner, writes)
}

// meteredThreads is a store of threads whose reads are counted.
type meteredThreads struct {
	journal.Journal
	m *meter
}

func (t meteredThreads) Thread(ctx context.Context, namespace, id string) (thread.Thread, error) {
	t.m.read(1, 0)
	return t.Journal.Thread(ctx, namespace, id)
}

func (t meteredThreads) Lineage(ctx context.Context, namespace, id string) ([]thread.Segment, error) {
	out, err := t.Journal.Lineage(ctx, namespace, id)
	t.m.read(len(out), 0)
	return out, err
}

func (t meteredThreads) SegmentItems(ctx context.Context, namespace string, s thread.Segment, q thread.Selection) ([]thread.Item, error) {
	out, err := t.Journal.SegmentItems(ctx, namespace, s, q)
	for i := range out {
		t.m.read(1, len(out[i].Body)+len(out[i].Brief))
	}
	return out, err
}
