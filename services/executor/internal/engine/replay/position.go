// Package replay restores the position of a run from its journal: the state of the machine, and what the
// run holds in memory. It reads the journal and writes nothing.
package replay

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/services/executor/internal/journal"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Position is the state of a run's machine with the counts that were made on the way. It is not safe for
// concurrent use.
type Position struct {
	// Program is the graph from which the journal can be replayed.
	Program *program.Program
	// Graph is the content hash of the run's present graph.
	Graph string
	State *workgraph.State
	Tally *record.NodeTally
	// Seq is the sequence of the last event. SnapSeq is that of the last event in the last snapshot.
	Seq, SnapSeq int64
	// These are bytes. ResultBytes counts the results in the machine. InputBytes counts the input and what
	// came from outside since the position was last written. GraphBytes counts the present graph if it
	// differs from that of Program.
	ResultBytes, InputBytes, GraphBytes int64
	// ChildrenRecorded reports that every child was recorded at the snapshot. Uncertain are the children
	// that were spawned since.
	ChildrenRecorded bool
	Uncertain        map[string]bool
	// Refusal is the last amendment if it was refused when it was applied, and nil otherwise.
	Refusal *record.AmendRefused
	// Unheard are the keys of the last LEAVEs that nobody heard.
	Unheard record.Unheard
	// Details are the last heartbeat details of visits and items that have not succeeded.
	Details details
}

// NewPosition is the position of a run that has not begun.
func NewPosition(id string, p *program.Program) Position {
	return Position{Program: p, Graph: p.Hash, State: workgraph.New(p.Machine, id), Tally: record.NewNodeTally(p.Nodes)}
}

// Source reads positions.
type Source struct {
	journal  journal.Journal
	programs *program.Set
	log      *slog.Logger
}

// NewSource returns a Source that reads a journal and compiles graphs with programs.
func NewSource(j journal.Journal, programs *program.Set, log *slog.Logger) Source {
	return Source{j, programs, log}
}

// Load restores a run from its snapshot and the events after it, or from all events if the snapshot is
// unusable.
func (s Source) Load(ctx context.Context, l journal.Loaded) (Position, error) {
	p, err := s.programs.Stored(ctx, l.Run.GraphHash, l.Graph)
	if err != nil {
		return Position{}, err
	}
	if l.Run.LastSeq == 0 {
		return NewPosition(l.Run.ID, p), nil
	}
	if len(l.Snapshot) > 0 {
		at, err := replay(ctx, l.Run.ID, p, l.Snapshot, l.Events)
		if err == nil && at.Seq == l.Run.LastSeq {
			at.Graph, at.SnapSeq = l.Run.GraphHash, l.SnapshotSeq
			return at, nil
		}
		if ctx.Err() != nil {
			return Position{}, context.Cause(ctx) // the snapshot is not to blame
		}
		s.log.WarnContext(ctx, "snapshot is of no use, the journal is read from the beginning", "err", err, "run_id", l.Run.ID)
		if l.Events, err = s.allEvents(ctx, l.Run); err != nil {
			return Position{}, err
		}
	}
	if p, err = s.firstProgram(ctx, p, l.Run, l.Events); err != nil {
		return Position{}, err
	}
	at, err := replay(ctx, l.Run.ID, p, nil, l.Events)
	if err != nil {
		return Position{}, err
	}
	if l.Run.GraphRevision > 0 {
		// The tally counts the nodes of the present graph.
		at.Tally.Total(len(at.State.Graph().Nodes))
		at.GraphBytes = program.Weight(at.State.Program(), len(l.Graph))
	}
	at.Graph = l.Run.GraphHash
	if at.Seq != l.Run.LastSeq {
		return Position{}, fmt.Errorf("journal of run %s ends at %d, its row says %d: %w", l.Run.ID, at.Seq, l.Run.LastSeq, workgraph.ErrCorrupt)
	}
	return at, nil
}

// allEvents reads the events of a run up to the last one of its row.
func (s Source) allEvents(ctx context.Context, row journal.Run) (out []journal.Event, err error) {
	for after := int64(0); after < row.LastSeq; {
		page, err := s.journal.Events(ctx, row.Namespace, row.ID, after, 1000)
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			break
		}
		out = append(out, page...)
		after = page[len(page)-1].Seq
	}
	return out, nil
}

// firstProgram is the program of the graph with which the run began. events are all its events.
func (s Source) firstProgram(ctx context.Context, p *program.Program, row journal.Run, events []journal.Event) (*program.Program, error) {
	if row.GraphRevision == 0 {
		return p, nil
	}
	hash, err := record.GraphBefore(events)
	if err != nil {
		return nil, err
	}
	if hash == "" {
		return nil, fmt.Errorf("the journal does not say with which graph run %s began: %w", row.ID, workgraph.ErrCorrupt)
	}
	body, err := s.journal.GraphBody(ctx, row.Namespace, hash)
	if err != nil {
		return nil, fmt.Errorf("graph of the beginning: %w", err)
	}
	return s.programs.Stored(ctx, hash, body)
}

// replay applies events to the machine of a snapshot, or to a new machine.
func replay(ctx context.Context, id string, p *program.Program, snapshot []byte, events []journal.Event) (Position, error) {
	at := NewPosition(id, p)
	at.Uncertain = map[string]bool{}
	if snapshot != nil {
		tally, head, machine, err := record.DecodePosition(snapshot, p.Nodes)
		if err != nil {
			return Position{}, err
		}
		at.ChildrenRecorded, at.Refusal, at.Unheard = head.Recorded, head.Refusal, head.Unheard
		for i := range head.Details {
			at.Details.Put(&head.Details[i])
		}
		if at.State, err = workgraph.Restore(ctx, p.Machine, machine); err != nil {
			return Position{}, err
		}
		at.Tally, at.ResultBytes = tally, int64(len(machine))
	}
	for _, row := range events {
		d, err := record.DecodeEvent(row)
		if err != nil {
			return Position{}, err
		}
		if _, err := at.State.Apply(ctx, d.Event); err != nil {
			return Position{}, fmt.Errorf("apply event %d of run %s: %w", d.Seq, id, err)
		}
		at.Tally.Apply(&d.Event)
		if d.Input != nil {
			at.InputBytes += record.InputSize(*d.Input, d.Context)
		}
		at.InputBytes += externalBytes(d, len(row.Data))
		if d.Outcome == nil {
			continue
		}
		at.ResultBytes += int64(record.OutcomeSize(*d.Outcome))
		if d.Outcome.Wait != nil && d.Outcome.Wait.Children != nil {
			for i := range d.Outcome.Wait.Children.Runs {
				at.Uncertain[d.Outcome.Wait.Children.Runs[i].ID] = true
			}
		}
	}
	at.Seq = at.State.Seq()
	return at, nil
}

// Count counts an event that the machine has just decided. encoded is its stored length.
func (p *Position) Count(d *record.Durable, encoded int) {
	p.Tally.Apply(&d.Event)
	p.InputBytes += externalBytes(d, encoded)
	p.ResultBytes += addedBytes(d)
}

// Encode is the stored form of the position. recorded reports that every child is known to be recorded.
func (p *Position) Encode(recorded bool) ([]byte, error) {
	machine, err := p.State.Snapshot()
	if err != nil {
		return nil, err
	}
	p.InputBytes = max(int64(len(machine))-p.ResultBytes, 0) // values that were consumed no longer count
	head := record.PositionHead{Nodes: p.Tally.Last, Recorded: recorded, Refusal: p.Refusal, Unheard: p.Unheard}
	for _, d := range p.Details.By {
		head.Details = append(head.Details, *d)
	}
	return record.EncodePosition(head, machine)
}

// ChangeGraph switches to another graph. It returns its hash and its stored form.
func (p *Position) ChangeGraph(g *workgraph.Graph) (hash string, body []byte, err error) {
	if body, err = g.Canonical(); err != nil {
		return "", nil, fmt.Errorf("canonical form: %w", err)
	}
	p.Graph = record.GraphHash(body)
	p.Tally.Total(len(g.Nodes))
	p.GraphBytes = program.Weight(p.State.Program(), len(body))
	return p.Graph, body, nil
}

// Weight estimates the memory of the run, without the graph of Program.
func (p *Position) Weight() int64 {
	return Weight(max(p.Program.Nodes, int(p.Tally.Counts.Total))) + p.ResultBytes + p.InputBytes + p.GraphBytes + p.Details.Bytes
}

// Weight estimates the memory of a run without results. The machine keeps a state for every node.
func Weight(nodes int) int64 { return 8<<10 + 512*int64(nodes) }

// externalBytes is what an event brought into the run from outside. What a call of the run returned is
// counted with the results.
func externalBytes(d *record.Durable, encoded int) int64 {
	switch d.Kind {
	case workgraph.SignalReceived, workgraph.MessageReceived, workgraph.InterruptClosed, workgraph.ChildClosed:
		return int64(encoded)
	}
	return 0
}

// addedBytes is what an event adds to the results of the run, other than by its own attempts.
func addedBytes(d *record.Durable) int64 {
	if d.Outcome == nil || d.Kind == workgraph.AttemptEnded {
		return 0
	}
	return int64(record.OutcomeSize(*d.Outcome))
}

// details are the last heartbeat details by visit or item. The zero value is empty.
type details struct {
	By    map[workgraph.Ref]*record.Detail
	Bytes int64
}

// Put stores and counts the details of a heartbeat.
func (s *details) Put(d *record.Detail) {
	s.Drop(d.Ref)
	if s.By == nil {
		s.By = map[workgraph.Ref]*record.Detail{}
	}
	s.By[d.Ref] = d
	s.Bytes += d.Size()
}

// Drop removes the details of a visit or item.
func (s *details) Drop(ref workgraph.Ref) {
	s.Bytes -= s.By[ref].Size()
	delete(s.By, ref)
}

// Nodes returns the nodes of the run's graph by id.
func (s Source) Nodes(ctx context.Context, row journal.Run) (map[string]workgraph.Node, error) {
	_, body, err := s.journal.Graph(ctx, row.Namespace, row.ID)
	if err != nil {
		return nil, err
	}
	g, err := workgraph.Decode(body)
	if err != nil {
		return nil, err
	}
	out := make(map[string]workgraph.Node, len(g.Nodes))
	for _, n := range g.Nodes {
		out[n.ID] = n
	}
	return out, nil
}
