package replay_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/replay"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

const ns, runID = "acme", "run_1"

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// reads is a journal of one run. It counts the pages of events that are read.
type reads struct {
	journal.Journal
	events []journal.Event
	graphs map[string][]byte
	pages  int
}

func (r *reads) Events(_ context.Context, _, _ string, after int64, limit int) ([]journal.Event, error) {
	r.pages++
	from := min(int(after), len(r.events))
	return r.events[from:min(from+min(limit, 2), len(r.events))], nil
}

func (r *reads) GraphBody(_ context.Context, _, hash string) ([]byte, error) {
	body, ok := r.graphs[hash]
	if !ok {
		return nil, fmt.Errorf("graph %s: %w", hash, journal.RunNotFound(runID))
	}
	return body, nil
}

// history is a run with its journal as its owner writes it.
type history struct {
	t      testing.TB
	source replay.Source
	reads  *reads
	at     replay.Position
	loaded journal.Loaded
	rows   []journal.Event
}

// line is a graph in which the nodes run one after the other.
func line(names ...string) *workgraph.Graph {
	g := &workgraph.Graph{Name: "line"}
	for i, name := range names {
		g.Nodes = append(g.Nodes, workgraph.Node{ID: name, Actor: "ok", Effect: workgraph.Pure})
		if i > 0 {
			g.Edges = append(g.Edges, workgraph.Edge{From: names[i-1], To: name})
		}
	}
	return g
}

func begun(t testing.TB, g *workgraph.Graph, in workgraph.Input) *history {
	t.Helper()
	h := &history{t: t, reads: &reads{graphs: map[string][]byte{}}}
	h.source = replay.NewSource(h.reads, program.New(nil, program.Bounds{}, nil, nil, 1<<20), slog.New(slog.DiscardHandler))
	h.loaded.Run = journal.Run{ID: runID, Namespace: ns}
	h.pin(g)
	at, err := h.source.Load(t.Context(), h.loaded)
	require.NoError(t, err)
	h.at = at
	h.advance(workgraph.Begin{Input: in, Now: now})
	return h
}

// pin makes g the graph of the run's row.
func (h *history) pin(g *workgraph.Graph) {
	h.t.Helper()
	p, err := workgraph.Recompile(h.t.Context(), g, nil)
	require.NoError(h.t, err)
	body, err := p.Graph().Canonical()
	require.NoError(h.t, err)
	h.loaded.Graph, h.loaded.Run.GraphHash = body, record.GraphHash(body)
	h.reads.graphs[h.loaded.Run.GraphHash] = body
}

// advance gives the machine a command and writes its events. change is the graph change of the first one.
func (h *history) advance(cmd workgraph.Command, change ...*record.GraphChange) {
	h.t.Helper()
	evs, _, err := h.at.State.Advance(cmd)
	require.NoError(h.t, err)
	for i, ev := range evs {
		d := &record.Durable{Event: ev}
		if i < len(change) {
			d.GraphChange = change[i]
		}
		row, err := record.EncodeEvent(d)
		require.NoError(h.t, err)
		row.RunID, row.Seq = runID, ev.Seq
		h.rows = append(h.rows, row)
		h.at.Count(d, len(row.Data))
	}
	h.at.Seq = h.at.State.Seq()
	h.loaded.Run.LastSeq = h.at.Seq
	h.loaded.Events, h.reads.events = h.rows, h.rows
}

func (h *history) end(node, value string) {
	h.t.Helper()
	h.outcome(node, workgraph.Outcome{Values: []json.RawMessage{json.RawMessage(value)}})
}

func (h *history) outcome(node string, o workgraph.Outcome) {
	h.t.Helper()
	h.advance(workgraph.Ended{Ref: workgraph.Ref{Node: node, Visit: 1}, Attempt: 1, Outcome: &o, Now: now})
}

// snapshot stores the position, and leaves the events after it to be loaded.
func (h *history) snapshot(recorded bool) {
	h.t.Helper()
	raw, err := h.at.Encode(recorded)
	require.NoError(h.t, err)
	h.loaded.Snapshot, h.loaded.SnapshotSeq = raw, h.at.Seq
}

// load loads the run as a new owner does.
func (h *history) load() replay.Position {
	h.t.Helper()
	at, err := h.source.Load(h.t.Context(), h.afterSnapshot())
	require.NoError(h.t, err)
	return at
}

func (h *history) afterSnapshot() journal.Loaded {
	l := h.loaded
	l.Events = slices.Clone(h.rows[l.SnapshotSeq:])
	return l
}

// requireSame compares the machine and the counts with the owner's.
func (h *history) requireSame(at replay.Position) {
	h.t.Helper()
	want, err := h.at.State.Snapshot()
	require.NoError(h.t, err)
	got, err := at.State.Snapshot()
	require.NoError(h.t, err)
	require.JSONEq(h.t, string(want), string(got))
	require.Equal(h.t, h.at.Seq, at.Seq)
	require.Equal(h.t, h.at.Tally, at.Tally)
	require.Equal(h.t, h.loaded.Run.GraphHash, at.Graph)
}

func TestLoad(t *testing.T) {
	t.Parallel()
	input := workgraph.Input{Args: []json.RawMessage{json.RawMessage(`"a text of the caller"`)}}
	t.Run("BeforeTheBegin", func(t *testing.T) {
		t.Parallel()
		h := begun(t, line("a", "b"), input)
		h.loaded.Run.LastSeq, h.loaded.Events = 0, nil
		at, err := h.source.Load(t.Context(), h.loaded)
		require.NoError(t, err)
		require.Zero(t, at.Seq)
		require.Equal(t, int32(2), at.Tally.Counts.Total)
		require.Equal(t, replay.Weight(2), at.Weight(), "it has no values yet")
	})
	t.Run("FromEvents", func(t *testing.T) {
		t.Parallel()
		h := begun(t, line("a", "b"), input)
		h.end("a", `{"text": "a result"}`)
		at := h.load()
		h.requireSame(at)
		require.Equal(t, journal.NodeCounts{Total: 2, Completed: 1, Running: 1}, at.Tally.Counts)
		require.GreaterOrEqual(t, at.InputBytes, int64(len(`"a text of the caller"`)))
		require.GreaterOrEqual(t, at.ResultBytes, int64(len(`{"text": "a result"}`)))
		require.Equal(t, replay.Weight(2)+at.InputBytes+at.ResultBytes, at.Weight())
		require.Zero(t, at.SnapSeq)
		require.Zero(t, h.reads.pages, "the events came with the run")
	})
	t.Run("FromASnapshotAndEvents", func(t *testing.T) {
		t.Parallel()
		h := begun(t, line("a", "b", "c"), input)
		h.end("a", `1`)
		h.snapshot(true)
		h.end("b", `2`)
		at := h.load()
		h.requireSame(at)
		require.Equal(t, h.loaded.SnapshotSeq, at.SnapSeq)
		require.True(t, at.ChildrenRecorded)
	})
	for name, spoil := range map[string]func(*journal.Loaded){
		"NotASnapshot":  func(l *journal.Loaded) { l.Snapshot = []byte("not a snapshot") },
		"CutOff":        func(l *journal.Loaded) { l.Snapshot = l.Snapshot[:len(l.Snapshot)/2] },
		"EventsMissing": func(l *journal.Loaded) { l.Events = nil },
	} {
		t.Run("FromTheBeginning/"+name, func(t *testing.T) {
			t.Parallel()
			h := begun(t, line("a", "b", "c"), input)
			h.end("a", `1`)
			h.snapshot(false)
			h.end("b", `2`)
			l := h.afterSnapshot()
			spoil(&l)
			at, err := h.source.Load(t.Context(), l)
			require.NoError(t, err)
			h.requireSame(at)
			require.Zero(t, at.SnapSeq, "the snapshot was not used")
			require.Equal(t, (len(h.rows)+1)/2, h.reads.pages)
		})
	}
	t.Run("Amended/BeginsWithTheFirstGraph", func(t *testing.T) {
		t.Parallel()
		h := begun(t, line("a", "b"), input)
		h.end("a", `1`)
		first := h.loaded.Run.GraphHash
		after := line("a", "b", "c")
		p, err := workgraph.Recompile(t.Context(), after, nil)
		require.NoError(t, err)
		h.pin(after)
		h.loaded.Run.GraphRevision = 1
		h.advance(workgraph.Amended{Program: p, Now: now}, &record.GraphChange{Was: first, Hash: h.loaded.Run.GraphHash})
		hash, _, err := h.at.ChangeGraph(p.Graph())
		require.NoError(t, err)
		require.Equal(t, h.loaded.Run.GraphHash, hash)
		at := h.load()
		h.requireSame(at)
		require.Equal(t, first, at.Program.Hash)
		require.Equal(t, int32(3), at.Tally.Counts.Total)
		require.Positive(t, at.GraphBytes)
		require.Equal(t, replay.Weight(3)+at.InputBytes+at.ResultBytes+at.GraphBytes, at.Weight())
	})
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	three := func(t *testing.T) *history {
		h := begun(t, line("a", "b"), workgraph.Input{})
		h.end("a", `1`)
		h.end("b", `2`)
		return h
	}
	t.Run("JournalShorterThanItsRow", func(t *testing.T) {
		t.Parallel()
		h := three(t)
		h.loaded.Run.LastSeq++
		_, err := h.source.Load(t.Context(), h.loaded)
		require.ErrorIs(t, err, workgraph.ErrCorrupt)
		require.ErrorContains(t, err, fmt.Sprintf("ends at %d, its row says %d", len(h.rows), len(h.rows)+1))
	})
	t.Run("Gap", func(t *testing.T) {
		t.Parallel()
		h := three(t)
		h.loaded.Events = slices.Delete(slices.Clone(h.rows), 1, 2)
		_, err := h.source.Load(t.Context(), h.loaded)
		require.ErrorContains(t, err, "apply event 3 of run run_1")
	})
	t.Run("EventThatCannotBeRead", func(t *testing.T) {
		t.Parallel()
		h := three(t)
		h.loaded.Events = slices.Clone(h.rows)
		h.loaded.Events[1].Data = []byte("{")
		_, err := h.source.Load(t.Context(), h.loaded)
		require.Error(t, err)
	})
	t.Run("UnknownFirstGraph", func(t *testing.T) {
		t.Parallel()
		h := three(t)
		h.loaded.Run.GraphRevision = 1
		_, err := h.source.Load(t.Context(), h.loaded)
		require.ErrorIs(t, err, workgraph.ErrCorrupt)
		require.ErrorContains(t, err, "does not say with which graph run run_1 began")
	})
	t.Run("GraphThatCannotBeRead", func(t *testing.T) {
		t.Parallel()
		h := three(t)
		h.loaded.Graph, h.loaded.Run.GraphHash = []byte("{"), "other"
		_, err := h.source.Load(t.Context(), h.loaded)
		require.Error(t, err)
	})
	t.Run("CanceledWithoutBlamingTheSnapshot", func(t *testing.T) {
		t.Parallel()
		h := begun(t, line("a", "b"), workgraph.Input{})
		h.end("a", `1`)
		h.snapshot(false)
		h.end("b", `2`)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := h.source.Load(ctx, h.afterSnapshot())
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, h.reads.pages, "the journal is not read in its place")
	})
}

func TestPosition(t *testing.T) {
	t.Parallel()
	t.Run("Details/SurviveTheSnapshot", func(t *testing.T) {
		t.Parallel()
		h := begun(t, line("a"), workgraph.Input{})
		d := &record.Detail{Ref: workgraph.Ref{Node: "a", Visit: 1}, Attempt: 1, Said: json.RawMessage(`{"row":7}`)}
		before := h.at.Weight()
		h.at.Details.Put(d)
		require.Equal(t, d.Size(), h.at.Weight()-before)
		h.snapshot(false)
		at := h.load()
		require.Equal(t, d, at.Details.By[d.Ref])
		require.Equal(t, d.Size(), at.Details.Bytes)
	})
	t.Run("Details/CountOncePerVisit", func(t *testing.T) {
		t.Parallel()
		h := begun(t, line("a"), workgraph.Input{})
		ref := workgraph.Ref{Node: "a", Visit: 1}
		h.at.Details.Put(&record.Detail{Ref: ref, Attempt: 1, Said: json.RawMessage(`"a long one"`)})
		last := &record.Detail{Ref: ref, Attempt: 2, Said: json.RawMessage(`1`)}
		h.at.Details.Put(last)
		require.Equal(t, last.Size(), h.at.Details.Bytes)
		h.at.Details.Drop(ref)
		h.at.Details.Drop(ref)
		require.Zero(t, h.at.Details.Bytes)
		require.Empty(t, h.at.Details.By)
	})
	t.Run("Refusal/SurvivesTheSnapshot", func(t *testing.T) {
		t.Parallel()
		h := begun(t, line("a"), workgraph.Input{})
		h.at.Refusal = &record.AmendRefused{Time: now, By: "ada", RequestID: "r1", Message: "the run moved on"}
		h.snapshot(false)
		require.Equal(t, h.at.Refusal, h.load().Refusal)
	})
	t.Run("Children/SpawnedSinceTheSnapshotAreUncertain", func(t *testing.T) {
		t.Parallel()
		spawn := func(id string) workgraph.Outcome {
			return workgraph.Outcome{Wait: &workgraph.Wait{Children: &workgraph.Children{Runs: []workgraph.Child{{ID: id, Ref: "self"}}}}}
		}
		g := &workgraph.Graph{Nodes: []workgraph.Node{{ID: "a", Actor: "ok", Effect: workgraph.Pure}, {ID: "b", Actor: "ok", Effect: workgraph.Pure}}}
		h := begun(t, g, workgraph.Input{})
		h.outcome("a", spawn("run_2"))
		require.Equal(t, map[string]bool{"run_2": true}, h.load().Uncertain)
		h.snapshot(true)
		h.outcome("b", spawn("run_3"))
		at := h.load()
		require.True(t, at.ChildrenRecorded)
		require.Equal(t, map[string]bool{"run_3": true}, at.Uncertain)
	})
	t.Run("InputBytes/CountWhatComesFromOutside", func(t *testing.T) {
		t.Parallel()
		h := begun(t, line("a"), workgraph.Input{})
		before := h.at.InputBytes
		h.advance(workgraph.Signaled{Name: "go", Payload: json.RawMessage(`"a payload"`), Now: now})
		require.Equal(t, int64(len(h.rows[len(h.rows)-1].Data)), h.at.InputBytes-before)
		require.Equal(t, h.at.InputBytes, h.load().InputBytes, "a new owner counts the same")
	})
	t.Run("Encode/CountsWhatIsLeft", func(t *testing.T) {
		t.Parallel()
		h := begun(t, line("a"), workgraph.Input{})
		h.at.InputBytes = 1 << 30
		h.snapshot(false)
		require.Less(t, h.at.InputBytes, int64(len(h.loaded.Snapshot)), "values that were consumed no longer count")
	})
}

// FuzzLoad loads a run with any snapshot. The snapshot may be of no use, but the run is loaded to its end.
func FuzzLoad(f *testing.F) {
	h := begun(f, line("a", "b", "c"), workgraph.Input{})
	h.end("a", `1`)
	h.snapshot(true)
	f.Add(h.loaded.Snapshot)
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 2, '{', '}'})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0})
	h.end("b", `2`)
	f.Fuzz(func(t *testing.T, snapshot []byte) {
		l := h.afterSnapshot()
		l.Snapshot = snapshot
		if len(snapshot) == 0 { // without a snapshot all events come with the run
			l.Events = h.rows
		}
		at, err := h.source.Load(t.Context(), l)
		require.NoError(t, err)
		require.Equal(t, int64(len(h.rows)), at.Seq)
	})
}
