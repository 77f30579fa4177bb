package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/epigraph-run/epigraph/internal/lru"
	"github.com/epigraph-run/epigraph/internal/near"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/record"
	"github.com/epigraph-run/epigraph/workgraph"
)

// program is a compiled graph with what is stored of it. It is immutable.
type program struct {
	p     *workgraph.Program
	name  string
	nodes int
	// hash and body pin a run to exactly this graph, effects included.
	hash string
	body []byte
}

// programs remembers compiled graphs, so that many runs of one graph compile it once. It is safe for
// concurrent use.
type programs struct {
	actors Actors
	// limits bound what expansions make of the graphs.
	limits workgraph.Limits
	// evaluated are the expressions that calls evaluate; nil is none.
	evaluated func(actor string, named map[string]json.RawMessage) []string

	mu    sync.Mutex
	byKey *lru.Cache[string, *program]
	// most bounds the bytes of all.
	most int64
}

// maxKeptBytes bounds the memory of remembered programs, however much of it live runs may have.
const maxKeptBytes = 64 << 20

// bytes is about what a program takes: its stored form, the values in it, and what is made of each part.
func (p *program) bytes() int64 { return programBytes(p.p, len(p.body)) }

// programBytes is about what a graph takes that is made runnable: body is the length of its stored form.
func programBytes(p *workgraph.Program, body int) int64 { return 4<<10 + p.Bytes() + 3*int64(body) }

// newPrograms remembers programs in up to so many bytes; those of live runs stay whatever it forgets.
func newPrograms(actors Actors, limits workgraph.Limits, most int64) *programs {
	most = min(most, maxKeptBytes)
	return &programs{actors: actors, limits: limits, most: most, byKey: lru.New[string, *program](most)}
}

// compile checks a graph against the actors of a namespace and makes it runnable. The error is a
// workgraph.Faults when the graph is at fault. It calls turn before it compiles what it does not remember,
// unless that is light.
func (s *programs) compile(ctx context.Context, namespace string, g *workgraph.Graph, k *Known, turn func() error) (*program, error) {
	l, unsaid := k.look(g)
	known, err := s.knownActors(ctx, namespace, l.actors)
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
	p := &program{p: compiled.WithLimits(s.limits).WithActors(nil).WithEvaluated(s.evaluated), name: g.Name, nodes: len(pinned.Nodes), hash: record.GraphHash(body), body: body}
	s.cache(key, p)
	s.cache("pinned/"+p.hash, p)
	return p, nil
}

// A graph with at most lightSize nodes and edges, with schemas of actors of at most lightSchemas bytes and
// without expressions, is compiled in well under a millisecond.
const lightSize, lightSchemas = 100, 16 << 10

// light reports whether a graph is compiled so fast that its start need not wait for those of its namespace
// which are not.
func light(g *workgraph.Graph, known actorSet) bool {
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
	l := &look{actors: actorsOf(g)}
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

func actorsOf(g *workgraph.Graph) []string {
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

// knownActors is what a namespace knows of actors.
func (s *programs) knownActors(ctx context.Context, namespace string, names []string) (actorSet, error) {
	return s.actors.Find(ctx, namespace, names)
}

// fits reports whether every value in the graph is known to be within the limit.
func (k *Known) fits() bool { return k != nil && k.small.Load() }

func (k *Known) setFits() {
	if k != nil {
		k.small.Store(true)
	}
}

// actorSet is a workgraph.ActorSet.
type actorSet map[string]ActorInfo

// ActorInfo implements workgraph.ActorSet.
func (s actorSet) ActorInfo(name string) (workgraph.ActorInfo, bool) {
	info, ok := s[name]
	return info.ActorInfo, ok
}

// fingerprint tells apart what a graph compiles to when actors change; it is empty when they do not.
func (s actorSet) fingerprint() string {
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

// stored is the program of a graph that a run is pinned to. Actors are not asked: the graph says every
// effect.
func (s *programs) stored(ctx context.Context, hash string, body []byte) (*program, error) {
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
	p := &program{p: compiled.WithLimits(s.limits).WithEvaluated(s.evaluated), name: g.Name, nodes: len(g.Nodes), hash: hash, body: body}
	s.cache(key, p)
	return p, nil
}

func (s *programs) find(key string) *program {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, _ := s.byKey.Get(key)
	return p
}

func (s *programs) cache(key string, p *program) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.byKey.Get(key); known {
		return // runs may have that one, and would not share p
	}
	s.byKey.Put(key, p, min(p.bytes(), s.most)) // the last one is kept, however large it is
}

// Near lists up to three names that a reader may have meant.
func Near(name string, names []string) []string {
	steps := maxNearSteps
	return nearest(name, names, &steps)
}

// nearest is Near within a number of steps, each the comparing of two bytes; what it took is taken from them.
func nearest(name string, names []string, steps *int) []string {
	type scored struct {
		name string
		d    int
	}
	var found []scored
	lower := strings.ToLower(name)
	for _, n := range names {
		if most := max(2, len(n)/3); max(len(name)-len(n), len(n)-len(name)) <= most {
			*steps -= len(name) * len(n)
		}
		if *steps < 0 {
			break
		}
		d, ok := near.Within(lower, strings.ToLower(n), max(2, len(n)/3))
		if !ok {
			d = max(len(n)-len(name), 0)
		}
		if ok || strings.HasPrefix(n, name) && name != "" {
			found = append(found, scored{n, d})
		}
	}
	slices.SortStableFunc(found, func(a, b scored) int { return a.d - b.d })
	var out []string
	for _, c := range found[:min(3, len(found))] {
		out = append(out, c.name)
	}
	return out
}

// StoredProgram compiles the graph of a run for a replay, in its stored form, whose content hash is known.
func StoredProgram(ctx context.Context, hash string, body []byte) (*workgraph.Program, error) {
	p, err := newPrograms(nil, workgraph.Limits{}, 0).stored(ctx, hash, body)
	if err != nil {
		return nil, err
	}
	return p.p, nil
}
