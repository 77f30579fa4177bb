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

// Examine returns the faults and warnings of a graph without starting a run. If in is nil the input is
// unknown, and faults that depend on it become warnings.
func (s *Set) Examine(ctx context.Context, namespace string, g *workgraph.Graph, in *workgraph.Input) (Examination, error) {
	p, err := s.Compile(ctx, namespace, g, nil, in, FromCaller)
	if faults, ok := errors.AsType[workgraph.Faults](err); ok {
		out := Examination{Faults: faults}
		if in != nil || len(faults) > workgraph.MaxFaults {
			return out, nil
		}
		_, err = s.Compile(ctx, namespace, g, nil, &workgraph.Input{}, FromCaller)
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
	warnings, behaviors, err := s.warnings(ctx, namespace, p.Machine, g, in)
	if err != nil {
		return Examination{}, err
	}
	return Examination{Warnings: warnings, Hash: p.Hash, Behaviors: behaviors}, nil
}

// Compile validates and compiles a graph within the limits, for a run with this input; nil means an unknown
// input. Every graph that a client, an agent or a schedule provides comes through here: starts, children,
// forks, schedules and ValidateGraph. A graph that is not cached is compiled in a compute turn of the
// namespace, which the caller must not hold.
func (s *Set) Compile(ctx context.Context, namespace string, g *workgraph.Graph, k *Memo, in *workgraph.Input, from Source) (*Program, error) {
	if err := s.withinLimits(g); err != nil {
		return nil, err
	}
	leave := func() {}
	defer func() { leave() }()
	p, err := s.cached(ctx, namespace, g, k, from, func() error {
		give, err := s.computing.Enter(ctx, namespace)
		if err == nil {
			leave = give
		}
		return err
	})
	list, faulty := errors.AsType[workgraph.Faults](err)
	switch {
	case faulty && in != nil: // collect all faults, those of the input among them
		known, err := s.KnownActors(ctx, namespace, ActorsOf(g), from)
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
	return p, s.checkBytes(p.Body)
}

// withinLimits checks the numbers of nodes and edges.
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

// checkBytes checks the size of a graph's stored form.
func (s *Set) checkBytes(body []byte) error {
	if len(body) <= s.bounds.GraphBytes {
		return nil
	}
	return workgraph.Faults{{Code: workgraph.CodeTooLarge, Message: fmt.Sprintf("the graph has %d bytes, the limit is %d", len(body), s.bounds.GraphBytes),
		Hint: "keep large arguments outside and pass a reference"}}
}

// maxHints bounds the unknown actors of one graph that get a suggestion.
const maxHints = 10

// MaxNearSteps bounds the comparisons of names for all hints of one graph, about 50 ms. Names beyond it are
// not suggested.
const MaxNearSteps = 20_000_000

// Hints adds suggestions to the faults about unknown actors.
func (s *Set) Hints(ctx context.Context, namespace string, g *workgraph.Graph, faults workgraph.Faults) workgraph.Faults {
	if !slices.ContainsFunc(faults, func(f workgraph.Fault) bool { return f.Code == workgraph.CodeUnknownActor }) {
		return faults
	}
	names, err := s.actors.Names(ctx, namespace)
	if err != nil {
		return faults // without names there are no hints
	}
	all, err := s.actors.Find(ctx, namespace, ActorsOf(g))
	if err != nil {
		return faults
	}
	asked := make(map[string]string, len(g.Nodes))
	for i := range g.Nodes {
		asked[g.Nodes[i].ID] = g.Nodes[i].Actor
	}
	hinted, steps := 0, MaxNearSteps
	for i := range faults {
		if faults[i].Code != workgraph.CodeUnknownActor {
			continue
		}
		if name := asked[faults[i].Node]; all[name].Internal {
			faults[i].Hint = internalHint(name)
			continue
		}
		if hinted++; hinted > maxHints {
			break
		}
		if text := hint(asked[faults[i].Node], names, &steps); text != "" {
			faults[i].Hint = text
		}
	}
	return faults
}

// UnknownActor reports whether no actor of the namespace has the name, and returns similar names.
func (s *Set) UnknownActor(ctx context.Context, namespace, name string) (unknown bool, near []string, err error) {
	_, info, known, err := s.actors.Actor(ctx, namespace, name)
	if err != nil || known && !info.Internal {
		return false, nil, err
	}
	names, err := s.actors.Names(ctx, namespace)
	steps := MaxNearSteps
	return err == nil, Nearest(name, names, &steps), err
}

// toldActors is how many actors a hint names.
const toldActors = 20

// hint suggests similar names, or lists the actors that there are. It is empty if there are none.
func hint(name string, names []string, steps *int) string {
	if near := Nearest(name, names, steps); len(near) > 0 {
		return "did you mean " + strings.Join(near, " or ") + "?"
	}
	// Those that the language of workflows is made of are nobody's to name.
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return strings.HasPrefix(name, "flow/") })
	if len(names) > 0 {
		more := ""
		if n := len(names) - toldActors; n > 0 {
			names, more = names[:toldActors], fmt.Sprintf(" and %d more", n)
		}
		return "actors here: " + strings.Join(names, ", ") + more + "; those of a worker are known once it has connected"
	}
	return ""
}

// Examination is the result of Examine.
type Examination struct {
	// Faults prevent a start, Warnings do not.
	Faults, Warnings workgraph.Faults
	// Hash is the hash of the graph that a run would be pinned to. It is empty if there are faults.
	Hash string
	// Behaviors are those of the nodes, in the order of the graph. There are none if there are faults.
	Behaviors []Behavior
}

// Behavior is what calls of a node may do.
type Behavior struct {
	Node string
	// Effect is the worst of the node's own calls and those that its arguments make. A call that is not known
	// counts as UNSAFE.
	Effect workgraph.Effect
	// Approves says that a call asks for an approval.
	Approves bool
}

// Recompile compiles a graph that may have been expanded and takes the place of old, within the limits and
// with the actors of the namespace. See Unchanged.
func (s *Set) Recompile(ctx context.Context, namespace string, g, old *workgraph.Graph) (*Program, error) {
	if err := s.withinLimits(g); err != nil {
		return nil, err
	}
	known, err := s.KnownActors(ctx, namespace, ActorsOf(g), FromActor)
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
	if err := s.Unchanged(ctx, namespace, old, pinned); err != nil {
		return nil, err
	}
	body, err := pinned.Canonical()
	if err != nil {
		return nil, fmt.Errorf("canonical form: %w", err)
	}
	if err := s.checkBytes(body); err != nil {
		return nil, err
	}
	p := &Program{Machine: compiled.WithLimits(s.limits).WithActors(nil).WithEvaluated(s.evaluated), Name: g.Name, Nodes: len(pinned.Nodes), Hash: record.GraphHash(body), Body: body}
	s.cache("pinned/"+p.Hash, p)
	return p, nil
}
