// Package program compiles graphs for runs. It validates graphs from clients, agents and schedules, caches
// compiled graphs, and compiles pinned graphs again. It knows actors by their names and schemas, and no
// runs.
package program

import (
	"bytes"
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

// Program is a compiled graph with its stored form. It is immutable.
type Program struct {
	Machine *workgraph.Program
	Name    string
	Nodes   int
	// Hash and Body pin a run to this graph, with the effects of its actors.
	Hash string
	Body []byte
}

// Set caches compiled graphs, so that many runs of one graph compile it once. It is safe for concurrent
// use.
type Set struct {
	actors Actors
	bounds Bounds
	// computing are the turns for CPU-heavy work that namespaces share.
	computing *turns.Turns
	// limits bound expanded graphs.
	limits workgraph.Limits
	// evaluated returns the expressions that a call of an actor evaluates; nil means none.
	evaluated func(actor string, named map[string]json.RawMessage) []string

	mu    sync.Mutex
	byKey *lru.Cache[string, *Program]
	// most bounds the bytes of the cache.
	most int64
}

// maxKeptBytes bounds the cache, however large the budget of live runs is.
const maxKeptBytes = 64 << 20

// Bytes estimates the memory of a program: its stored form, its values, and its compiled parts.
func (p *Program) Bytes() int64 { return Weight(p.Machine, len(p.Body)) }

// Weight estimates the memory of a compiled graph. body is the length of its stored form.
func Weight(p *workgraph.Program, body int) int64 { return 4<<10 + p.Bytes() + 3*int64(body) }

// Bounds limit one graph.
type Bounds struct{ Nodes, Edges, GraphBytes int }

// New returns a cache of up to most bytes. Programs of live runs survive their removal from it. Graphs are
// compiled in turns of computing.
func New(actors Actors, bounds Bounds, computing *turns.Turns, evaluated func(actor string, named map[string]json.RawMessage) []string, most int64) *Set {
	most = min(most, maxKeptBytes)
	return &Set{actors: actors, bounds: bounds, limits: workgraph.Limits{Nodes: bounds.Nodes, Edges: bounds.Edges}, computing: computing, evaluated: evaluated,
		most: most, byKey: lru.New[string, *Program](most)}
}

// cached compiles a graph with the actors of a namespace, or returns it from the cache. A faulty graph is
// reported as workgraph.Faults. It calls turn before it compiles, unless the graph is light.
func (s *Set) cached(ctx context.Context, namespace string, g *workgraph.Graph, k *Memo, from Source, turn func() error) (*Program, error) {
	l, noKey := k.info(g)
	known, err := s.KnownActors(ctx, namespace, l.actors, from)
	if err != nil {
		return nil, err
	}
	if noKey != nil {
		if err := turn(); err != nil {
			return nil, err
		}
		if _, fault := workgraph.Compile(ctx, g, known); fault != nil {
			return nil, fault // it names the place of the fault
		}
		return nil, fmt.Errorf("key of graph: %w", noKey)
	}
	key := l.key + known.fingerprint() + string(from)
	if p := s.find(key); p != nil {
		return p, nil
	}
	if !isLight(g, known) {
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
	// known has only the actors of this graph, so the actors of an expansion are looked up when it comes.
	p := &Program{Machine: compiled.WithLimits(s.limits).WithActors(nil).WithEvaluated(s.evaluated), Name: g.Name, Nodes: len(pinned.Nodes), Hash: record.GraphHash(body), Body: body}
	s.cache(key, p)
	s.cache("pinned/"+p.Hash, p)
	return p, nil
}

// A graph compiles in well under a millisecond if it has at most lightSize nodes and edges, schemas of at
// most lightSchemas bytes, and no expressions.
const lightSize, lightSchemas = 100, 16 << 10

// isLight reports whether a graph compiles so fast that it need not wait for a compute turn.
func isLight(g *workgraph.Graph, known ActorSet) bool {
	if len(g.Nodes)+len(g.Edges) > lightSize || len(g.State) > 0 {
		return false
	}
	schemas := 0
	for i := range g.Nodes {
		n := &g.Nodes[i]
		info := known[n.Actor]
		if schemas += len(info.Schema); schemas > lightSchemas || info.Computes ||
			n.When != "" || n.Transform != "" || n.ConcurrencyKey != "" || n.PassDown.Expr != "" || n.Check != nil || n.Map != nil || n.On != nil || len(n.Bind) > 0 {
			return false
		}
	}
	return !slices.ContainsFunc(g.Edges, func(e workgraph.Edge) bool { return e.When != "" || e.PassDown.Expr != "" })
}

// Memo keeps what was computed about a graph, for the next start with the same graph. The zero value is
// empty; nil keeps nothing. It must be used with one graph only, which must not change. It is safe for
// concurrent use.
type Memo struct {
	graph atomic.Pointer[graphInfo]
	small atomic.Bool
}

// graphInfo is what depends on the graph only.
type graphInfo struct {
	// key identifies its programs, together with the fingerprint of the actors.
	key string
	// actors are the actors that the graph names.
	actors []string
}

// info returns what is known of g. The error says why g has no key.
func (k *Memo) info(g *workgraph.Graph) (*graphInfo, error) {
	if k != nil {
		if l := k.graph.Load(); l != nil {
			return l, nil
		}
	}
	l := &graphInfo{actors: ActorsOf(g)}
	// Plain JSON is cheaper than the canonical form. Map keys are sorted, so equal graphs give equal bytes.
	asked, err := json.Marshal(g)
	if err != nil {
		return l, err
	}
	l.key = "asked/" + record.GraphHash(asked)
	if k != nil {
		k.graph.Store(l)
	}
	return l, nil
}

// ActorsOf returns the actors of a graph, each once, in the order of its nodes.
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

// Source says who made a graph.
type Source string

const (
	// FromCaller is a graph that is, or may be, of a client, a model, a schedule or a worker. It may not name
	// internal actors.
	FromCaller Source = ""
	// FromActor is the graph of a child that a MakesInternal actor asked for.
	FromActor Source = "/internal"
)

// KnownActors returns the named actors, as the namespace describes them, that a graph may name.
func (s *Set) KnownActors(ctx context.Context, namespace string, names []string, from Source) (ActorSet, error) {
	found, err := s.actors.Find(ctx, namespace, names)
	if err != nil || from == FromActor {
		return found, err
	}
	return Public(found), nil
}

// Public returns the actors that are not internal.
func Public(found map[string]ActorInfo) map[string]ActorInfo {
	out := make(map[string]ActorInfo, len(found))
	for name, info := range found {
		if !info.Internal {
			out[name] = info
		}
	}
	return out
}

// Unchanged checks a graph that takes the place of another one in a run, or in a fork of it.
// The new graph may have the internal nodes of the old one as they are. Any other internal node is a fault.
// Both graphs have defaults and effects filled in.
func (s *Set) Unchanged(ctx context.Context, namespace string, old, changed *workgraph.Graph) error {
	found, err := s.actors.Find(ctx, namespace, ActorsOf(changed))
	if err != nil {
		return err
	}
	node := func(n *workgraph.Node) ([]byte, error) {
		return (&workgraph.Graph{Nodes: []workgraph.Node{*n}}).Canonical()
	}
	var faults workgraph.Faults
	for i := range changed.Nodes {
		n := &changed.Nodes[i]
		if !found[n.Actor].Internal {
			continue
		}
		if at := slices.IndexFunc(old.Nodes, func(o workgraph.Node) bool { return o.ID == n.ID }); at >= 0 {
			before, err := node(&old.Nodes[at])
			if err != nil {
				return err
			}
			if after, err := node(n); err == nil && bytes.Equal(before, after) {
				continue
			}
		}
		faults = append(faults, workgraph.Fault{Code: workgraph.CodeUnknownActor, Node: n.ID, Field: "actor",
			Message: fmt.Sprintf("%q is internal: a graph may keep its nodes as they are, and not change or add one", n.Actor), Hint: internalHint(n.Actor)})
	}
	if len(faults) > 0 {
		return faults
	}
	return nil
}

// internalHint says what to use in place of an internal actor.
func internalHint(name string) string {
	return name + " is for graphs that the server makes: use an actor of the list of actors, such as agent"
}

// Fits reports whether every value of the graph is known to be within the size limit.
func (k *Memo) Fits() bool { return k != nil && k.small.Load() }

// SetFits records that every value of the graph is within the size limit.
func (k *Memo) SetFits() {
	if k != nil {
		k.small.Store(true)
	}
}

// ActorSet implements workgraph.ActorSet.
type ActorSet map[string]ActorInfo

// ActorInfo implements workgraph.ActorSet.
func (s ActorSet) ActorInfo(name string) (workgraph.ActorInfo, bool) {
	info, ok := s[name]
	return info.ActorInfo, ok
}

// fingerprint tells programs of one graph apart if actors may change. It is empty if they do not.
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

// Stored returns the program of a pinned graph. It needs no actors, since a pinned graph has every effect.
func (s *Set) Stored(ctx context.Context, hash string, body []byte) (*Program, error) {
	key := "pinned/" + hash
	if p := s.find(key); p != nil {
		return p, nil
	}
	g, err := workgraph.Decode(body)
	if err != nil {
		return nil, err
	}
	compiled, err := workgraph.Recompile(ctx, g, nil) // it may have been expanded
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
		return // keep the one that runs share already
	}
	s.byKey.Put(key, p, min(p.Bytes(), s.most)) // the last one is kept, however large it is
}

// StoredProgram compiles a pinned graph for a replay, from its stored form and hash.
func StoredProgram(ctx context.Context, hash string, body []byte) (*workgraph.Program, error) {
	p, err := (&Set{byKey: lru.New[string, *Program](0)}).Stored(ctx, hash, body)
	if err != nil {
		return nil, err
	}
	return p.Machine, nil
}
