package program

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Examine returns what Start would say about the graph alone, and more. A nil input is one of which nothing
// is known: what a start without input is told besides is a warning then.
func (s *Set) Examine(ctx context.Context, namespace string, g *workgraph.Graph, in *workgraph.Input) (Examination, error) {
	p, err := s.Compile(ctx, namespace, g, nil, in)
	if faults, ok := errors.AsType[workgraph.Faults](err); ok {
		out := Examination{Faults: faults}
		if in != nil || len(faults) > workgraph.MaxFaults {
			return out, nil
		}
		_, err = s.Compile(ctx, namespace, g, nil, &workgraph.Input{})
		all, ok := errors.AsType[workgraph.Faults](err)
		if !ok {
			return out, err
		}
		out.Warnings = workgraph.OnlyWithoutInput(all, faults)
		return out, nil
	}
	if err != nil {
		return Examination{}, err
	}
	leave, err := s.computing.Enter(ctx, namespace)
	if err != nil {
		return Examination{}, err
	}
	defer leave()
	warnings, err := s.warnings(ctx, namespace, p.Machine, g, in)
	if err != nil {
		return Examination{}, err
	}
	return Examination{Warnings: warnings, Hash: p.Hash}, nil
}

// Compile compiles within the limits, for a run with this input; a nil one is one of which nothing is known.
// It is the one way in which a graph that a client, an agent or a schedule gives is judged: starts, children,
// forks, schedules and ValidateGraph all come through here. What is not remembered is compiled in a turn to
// compute, which the caller must not have.
func (s *Set) Compile(ctx context.Context, namespace string, g *workgraph.Graph, k *Known, in *workgraph.Input) (*Program, error) {
	if err := s.withinLimits(g); err != nil {
		return nil, err
	}
	leave := func() {}
	defer func() { leave() }()
	p, err := s.remembered(ctx, namespace, g, k, func() error {
		give, err := s.computing.Enter(ctx, namespace)
		if err == nil {
			leave = give
		}
		return err
	})
	list, faulty := errors.AsType[workgraph.Faults](err)
	switch {
	case faulty && in != nil: // all faults at once, those that only this input has among them
		known, err := s.KnownActors(ctx, namespace, ActorsOf(g))
		if err != nil {
			return nil, err
		}
		if list, err = workgraph.ValidateFor(ctx, g, known, in); err != nil {
			return nil, err
		}
	case faulty:
	case err != nil:
		return nil, err
	default:
		if list, err = p.Machine.Missing(ctx, in); err != nil {
			return nil, err
		}
	}
	if len(list) > 0 {
		return nil, s.Hints(ctx, namespace, g, list)
	}
	return p, s.graphFits(p.Body)
}

// withinLimits counts nodes and edges.
func (s *Set) withinLimits(g *workgraph.Graph) error {
	var faults workgraph.Faults
	tooMany := func(what string, n, limit int) {
		if n > limit {
			faults = append(faults, workgraph.Fault{Code: workgraph.CodeTooLarge, Field: what,
				Message: fmt.Sprintf("the graph has %d %s, the limit is %d", n, what, limit), Hint: "split the work into several runs"})
		}
	}
	tooMany("nodes", len(g.Nodes), s.bounds.Nodes)
	tooMany("edges", len(g.Edges), s.bounds.Edges)
	if len(faults) > 0 {
		return faults
	}
	return nil
}

// graphFits weighs a graph's stored form.
func (s *Set) graphFits(body []byte) error {
	if len(body) <= s.bounds.GraphBytes {
		return nil
	}
	return workgraph.Faults{{Code: workgraph.CodeTooLarge, Message: fmt.Sprintf("the graph has %d bytes, the limit is %d", len(body), s.bounds.GraphBytes),
		Hint: "keep large arguments outside and pass a reference"}}
}

// maxHints is for how many unknown actors it is found out which ones may have been meant.
const maxHints = 10

// MaxNearSteps bounds the comparing of names for all hints of one graph: about 50 ms. Names that are left
// then are not suggested.
const MaxNearSteps = 20_000_000

// Hints tells for every unknown actor which one may have been meant.
func (s *Set) Hints(ctx context.Context, namespace string, g *workgraph.Graph, faults workgraph.Faults) workgraph.Faults {
	if !slices.ContainsFunc(faults, func(f workgraph.Fault) bool { return f.Code == workgraph.CodeUnknownActor }) {
		return faults
	}
	names, err := s.actors.Names(ctx, namespace)
	if err != nil {
		return faults // the faults stand without hints
	}
	asked := make(map[string]string, len(g.Nodes))
	for i := range g.Nodes {
		asked[g.Nodes[i].ID] = g.Nodes[i].Actor
	}
	told, steps := 0, MaxNearSteps
	for i := range faults {
		if faults[i].Code != workgraph.CodeUnknownActor {
			continue
		}
		if told++; told > maxHints {
			break
		}
		if text := hint(asked[faults[i].Node], names, &steps); text != "" {
			faults[i].Hint = text
		}
	}
	return faults
}

// UnknownActor reports whether no actor of the namespace has the name, and which ones may have been meant.
func (s *Set) UnknownActor(ctx context.Context, namespace, name string) (unknown bool, near []string, err error) {
	_, _, known, err := s.actors.Actor(ctx, namespace, name)
	if err != nil || known {
		return false, nil, err
	}
	names, err := s.actors.Names(ctx, namespace)
	steps := MaxNearSteps
	return err == nil, Nearest(name, names, &steps), err
}

// hint tells which of the actors may have been meant by a name, or what there is; it is empty when there is
// none.
func hint(name string, names []string, steps *int) string {
	if near := Nearest(name, names, steps); len(near) > 0 {
		return "did you mean " + strings.Join(near, " or ") + "?"
	}
	if len(names) > 0 {
		return "actors here: " + strings.Join(names[:min(len(names), 20)], ", ") + "; those of a worker are known once it has connected"
	}
	return ""
}

// Examination is what is found out about a graph before it runs.
type Examination struct {
	// Faults keep a run from starting, Warnings do not.
	Faults, Warnings workgraph.Faults
	// Hash is that of the graph to which a run of it is pinned; empty with faults.
	Hash string
}

// Recompile compiles a graph that a run may have grown, within the limits and with the actors of the
// namespace.
func (s *Set) Recompile(ctx context.Context, namespace string, g *workgraph.Graph) (*Program, error) {
	if err := s.withinLimits(g); err != nil {
		return nil, err
	}
	known, err := s.KnownActors(ctx, namespace, ActorsOf(g))
	if err != nil {
		return nil, err
	}
	compiled, err := workgraph.Recompile(ctx, g, known)
	if err != nil {
		if list, ok := errors.AsType[workgraph.Faults](err); ok {
			return nil, s.Hints(ctx, namespace, g, list)
		}
		return nil, err
	}
	pinned := compiled.Graph()
	body, err := pinned.Canonical()
	if err != nil {
		return nil, fmt.Errorf("canonical form: %w", err)
	}
	if err := s.graphFits(body); err != nil {
		return nil, err
	}
	p := &Program{Machine: compiled.WithLimits(s.limits).WithActors(nil).WithEvaluated(s.evaluated), Name: g.Name, Nodes: len(pinned.Nodes), Hash: record.GraphHash(body), Body: body}
	s.cache("pinned/"+p.Hash, p)
	return p, nil
}
