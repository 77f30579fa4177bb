// Package program compiles graphs for runs: it judges what a client, an agent or a schedule gives, remembers
// compiled graphs, and compiles those again to which runs are pinned. It knows actors by their names and
// schemas, and no run.
package program

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/epigraph-run/epigraph/internal/lru"
	"github.com/epigraph-run/epigraph/internal/turns"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Program is a compiled graph with what is stored of it. It is immutable.
type Program struct {
	Machine *workgraph.Program
	Name    string
	Nodes   int
	// Hash and body pin a run to exactly this graph, effects included.
	Hash string
	Body []byte
}

// Set remembers compiled graphs, so that many runs of one graph compile it once. It is safe for
// concurrent use.
type Set struct {
	actors Actors
	bounds Bounds
	// computing are the turns in which graphs are compiled.
	computing *turns.Turns
	// limits bound what expansions make of the graphs.
	limits workgraph.Limits
	// evaluated are the expressions that calls evaluate; nil is none.
	evaluated func(actor string, named map[string]json.RawMessage) []string

	mu    sync.Mutex
	byKey *lru.Cache[string, *Program]
	// most bounds the bytes of all.
	most int64
}

// maxKeptBytes bounds the memory of remembered programs, however much of it live runs may have.
const maxKeptBytes = 64 << 20

// Bytes is about what a program takes: its stored form, the values in it, and what is made of each part.
func (p *Program) Bytes() int64 { return Weight(p.Machine, len(p.Body)) }

// Weight is about what a graph takes that is made runnable: body is the length of its stored form.
func Weight(p *workgraph.Program, body int) int64 { return 4<<10 + p.Bytes() + 3*int64(body) }

// Bounds are what one graph may have.
type Bounds struct{ Nodes, Edges, GraphBytes int }

// New remembers programs in up to most bytes; those of live runs stay whatever it forgets. What is
// compiled is compiled in turns of computing.
func New(actors Actors, bounds Bounds, computing *turns.Turns, evaluated func(actor string, named map[string]json.RawMessage) []string, most int64) *Set {
	most = min(most, maxKeptBytes)
	return &Set{actors: actors, bounds: bounds, limits: workgraph.Limits{Nodes: bounds.Nodes, Edges: bounds.Edges}, computing: computing, evaluated: evaluated,
		most: most, byKey: lru.New[string, *Program](most)}
}

// remembered checks a graph against the actors of a namespace and makes it runnable. The error is a
// workgraph.Faults when the graph is at fault. It calls turn before it compiles what it does not remember,
// unless that is light.
func (s *Set) remembered(ctx context.Context, namespace string, g *workgraph.Graph, k *Known, turn func() error) (*Program, error) {
	l, unsaid := k.look(g)
	known, err := s.KnownActors(ctx, namespace, l.actors)
	if err != nil {
		return nil, err
	}
	if unsaid != nil {
		if err := turn(); err != nil {
			return nil, err
		}
		if _, fault := workgraph.Compile(ctx, g, known); fault != nil {
			return nil, fault // says where, as an infinite number has no JSON form
		}
		return nil, fmt.Errorf("key of graph: %w", unsaid)
	}
	key := l.key + known.fingerprint()
	if p := s.find(key); p != nil {
		return p, nil
	}
	if !light(g, known) {
		if err := turn(); err != nil {
			return nil, err
		}
	}
	compiled, err := workgraph.Compile(ctx, g, known)
	if err != nil {
		return nil, err
	}
	pinned := compiled.Graph()
	body, err := pinned.Canonical()
	if err != nil {
		return nil, fmt.Errorf("canonical form: %w", err)
	}
	// Which actors an expansion may call is asked when it comes, since known holds only those of this graph.
	p := &Program{Machine: compiled.WithLimits(s.limits).WithActors(nil).WithEvaluated(s.evaluated), Name: g.Name, Nodes: len(pinned.Nodes), Hash: record.GraphHash(body), Body: body}
	s.cache(key, p)
	s.cache("pinned/"+p.Hash, p)
	return p, nil
}

// A graph with at most lightSize nodes and edges, with schemas of actors of at most lightSchemas bytes and
// without expressions, is compiled in well under a millisecond.
const lightSize, lightSchemas = 100, 16 << 10

// light reports whether a graph is compiled so fast that its start need not wait for those of its namespace
// which are not.
func light(g *workgraph.Graph, known ActorSet) bool {
	if len(g.Nodes)+len(g.Edges) > lightSize || len(g.State) > 0 {
		return false
	}
	schemas := 0
	for i := range g.Nodes {
		n := &g.Nodes[i]
		info := known[n.Actor]
		if schemas += len(info.Schema); schemas > lightSchemas || info.Computes ||
			n.When != "" || n.Transform != "" || n.ConcurrencyKey != "" || n.PassDown.Expr != "" || n.Check != nil || n.Map != nil || n.On != nil {
			return false
		}
	}
	return !slices.ContainsFunc(g.Edges, func(e workgraph.Edge) bool { return e.When != "" || e.PassDown.Expr != "" })
}

// Known keeps what was found out about a graph, for the next start of the same one. Its zero value knows
// nothing, a nil one keeps nothing. It must go with no other graph, and that one must not change. It is safe
// for concurrent use.
type Known struct {
	looks atomic.Pointer[look]
	small atomic.Bool
}

// look is what the graph alone tells.
type look struct {
	// key finds its programs, together with what is known of actors.
	key string
	// actors are those that it names.
	actors []string
}

// look returns what g tells. The error says why it has no key.
func (k *Known) look(g *workgraph.Graph) (*look, error) {
	if k != nil {
		if l := k.looks.Load(); l != nil {
			return l, nil
		}
	}
	l := &look{actors: ActorsOf(g)}
	// Not the canonical form, which costs more: map keys are written in order, so equal graphs give equal
	// bytes.
	asked, err := json.Marshal(g)
	if err != nil {
		return l, err
	}
	l.key = "asked/" + record.GraphHash(asked)
	if k != nil {
		k.looks.Store(l)
	}
	return l, nil
}

// ActorsOf names the actors of a graph, each once, in the order of its nodes.
func ActorsOf(g *workgraph.Graph) []string {
	seen := map[string]bool{}
	var names []string
	for i := range g.Nodes {
		if n := g.Nodes[i].Actor; !seen[n] {
			seen[n] = true
			names = append(names, n)
		}
	}
	return names
}

// KnownActors is what a namespace knows of actors.
func (s *Set) KnownActors(ctx context.Context, namespace string, names []string) (ActorSet, error) {
	return s.actors.Find(ctx, namespace, names)
}

// Fits reports whether every value in the graph is known to be within the limit.
func (k *Known) Fits() bool { return k != nil && k.small.Load() }

// SetFits notes that every value in the graph is within the limit.
func (k *Known) SetFits() {
	if k != nil {
		k.small.Store(true)
	}
}

// ActorSet is a workgraph.ActorSet.
type ActorSet map[string]ActorInfo

// ActorInfo implements workgraph.ActorSet.
func (s ActorSet) ActorInfo(name string) (workgraph.ActorInfo, bool) {
	info, ok := s[name]
	return info.ActorInfo, ok
}

// fingerprint tells apart what a graph compiles to when actors change; it is empty when they do not.
func (s ActorSet) fingerprint() string {
	var changing []string
	for name, info := range s {
		if info.Changes {
			changing = append(changing, name)
		}
	}
	if len(changing) == 0 {
		return ""
	}
	slices.Sort(changing)
	h := sha256.New()
	for _, name := range changing {
		info := s[name]
		for _, part := range []string{name, string(info.Effect), info.Version, string(info.Schema)} {
			fmt.Fprintf(h, "%d/%s", len(part), part)
		}
	}
	return "/" + hex.EncodeToString(h.Sum(nil))
}

// Stored is the program of a graph that a run is pinned to. Actors are not asked: the graph says every
// effect.
func (s *Set) Stored(ctx context.Context, hash string, body []byte) (*Program, error) {
	key := "pinned/" + hash
	if p := s.find(key); p != nil {
		return p, nil
	}
	g, err := workgraph.Decode(body)
	if err != nil {
		return nil, err
	}
	compiled, err := workgraph.Recompile(ctx, g, nil) // it may have grown
	if err != nil {
		return nil, fmt.Errorf("compile stored graph %s: %w", hash, err)
	}
	p := &Program{Machine: compiled.WithLimits(s.limits).WithEvaluated(s.evaluated), Name: g.Name, Nodes: len(g.Nodes), Hash: hash, Body: body}
	s.cache(key, p)
	return p, nil
}

func (s *Set) find(key string) *Program {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, _ := s.byKey.Get(key)
	return p
}

func (s *Set) cache(key string, p *Program) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.byKey.Get(key); known {
		return // runs may have that one, and would not share p
	}
	s.byKey.Put(key, p, min(p.Bytes(), s.most)) // the last one is kept, however large it is
}

// StoredProgram compiles the graph of a run for a replay, in its stored form, whose content hash is known.
func StoredProgram(ctx context.Context, hash string, body []byte) (*workgraph.Program, error) {
	p, err := (&Set{byKey: lru.New[string, *Program](0)}).Stored(ctx, hash, body)
	if err != nil {
		return nil, err
	}
	return p.Machine, nil
}
