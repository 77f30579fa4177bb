package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/services/executor/internal/actor"
	"github.com/epigraph-run/epigraph/services/executor/internal/engine/program"
	"github.com/epigraph-run/epigraph/workgraph"
)

// This file has what calls must have in common to be answered with one outcome: besides what they are given,
// for whom they are made, and all that they really run.

// ReasonCacheKey is the reason when the expression of a cache's key cannot be evaluated.
const ReasonCacheKey = "CACHE_KEY_FAILED"

// maxPinned is how many nodes and workflows that a call brings about are looked at. The outcomes of one with
// more are not saved.
const maxPinned = 1_000

// cacheKey is the key of the saved outcomes of equal calls; empty if there are none to be.
//
//go:noinline
func (t *session) cacheKey(ctx context.Context, info *program.ActorInfo, a *attempt) (string, error) {
	r := a.run
	if info.MakesInternal && r.lineage.Thread != "" && (r.id == r.root || r.lineage.InTurn) {
		return "", nil // an agent goes on with the thread of the run, which is another one after every call
	}
	facts, _ := callScope{r: r}.Var("context") // what runs below this one are told
	others := []string{"2", r.namespace, info.Version, digest(facts)}
	if info.SeesPlace || a.start.Cache.Key != "" {
		others = append(others, a.start.Ref.String(), r.Program.Name)
	}
	pins, ok := t.pins(ctx, info, a)
	if !ok {
		return "", nil
	}
	own, err := t.ownKey(ctx, info, a)
	if err != nil {
		return "", err
	}
	if own != nil {
		others = append(others, r.graphHash())
	}
	start := a.told()
	if info.MakesInternal && actor.NamesThread(start.Named, start.Args) {
		return "", nil
	}
	if info.NamedOnly {
		start.Args, start.Upstream = nil, nil
	}
	return start.CacheKey(own, append(others, pins...)...), nil
}

func digest(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// graphHash is the hash of the run's graph as it is now, empty if it has none.
func (r *run) graphHash() string {
	if !r.graphChanged.Load() {
		return r.Program.Hash
	}
	hash, err := r.ownGraph().Hash()
	if err != nil {
		return r.id // no other run has it
	}
	return hash
}

// ownKey is the value of the expression of the node's cache, nil if it has none.
func (t *session) ownKey(ctx context.Context, info *program.ActorInfo, a *attempt) (json.RawMessage, error) {
	if a.start.Cache.Key == "" {
		return nil, nil
	}
	if !info.Computes { // else the call has a turn already
		leave, err := t.e.computing.Enter(ctx, a.run.namespace)
		if err != nil {
			return nil, notPerformed(err)
		}
		defer leave()
	}
	ctx, cancel := actor.Limited(ctx)
	defer cancel()
	raw, err := t.e.keys.Eval(ctx, a.start.Cache.Key, t.callOf(ctx, a))
	if err != nil {
		return nil, workgraph.Errorf(workgraph.Permanent, ReasonCacheKey, "cache.key: %v", err)
	}
	return raw, nil
}

// pins are the versions of all actors, and the hashes of all workflows, that a call brings about, as far as
// its arguments say. ok is false if they cannot all be told, and then no outcome is saved.
func (t *session) pins(ctx context.Context, info *program.ActorInfo, a *attempt) (pins []string, ok bool) {
	p := pinner{t: t, r: a.run, known: map[string]string{}}
	p.workflows = workgraph.WorkflowsAmong(workgraph.Input{Args: a.start.Args, Named: a.start.Named})
	if info.Inner != nil {
		p.add(info.Inner(&workgraph.Node{Actor: a.start.Actor, Named: a.start.Named}))
	}
	for len(p.nodes)+len(p.workflows) > 0 {
		if p.looked > maxPinned || !p.actors(ctx) || !p.workflow(ctx) {
			return nil, false
		}
	}
	for name, what := range p.known {
		pins = append(pins, name+"="+what)
	}
	slices.Sort(pins)
	return pins, true
}

// pinner follows what a call brings about.
type pinner struct {
	t         *session
	r         *run
	nodes     []workgraph.Node
	workflows []string
	looked    int
	// known are versions of actors and hashes of graphs by name.
	known map[string]string
}

func (p *pinner) add(inner []workgraph.InnerNode) {
	for i := range inner {
		p.nodes = append(p.nodes, *inner[i].Node)
	}
}

// actors notes the versions of the actors of all nodes so far, and adds the nodes within these.
func (p *pinner) actors(ctx context.Context) bool {
	nodes := p.nodes
	p.nodes = nil
	names := make([]string, 0, len(nodes))
	for i := range nodes {
		names = append(names, nodes[i].Actor)
	}
	if p.looked += len(nodes); len(nodes) == 0 || p.looked > maxPinned {
		return p.looked <= maxPinned
	}
	slices.Sort(names)
	found, err := p.t.e.actors.Find(ctx, p.r.namespace, slices.Compact(names))
	if err != nil {
		return false
	}
	for i := range nodes {
		info, ok := found[nodes[i].Actor]
		if !ok {
			return false
		}
		p.known["actor/"+nodes[i].Actor] = info.Version
		if info.Inner != nil {
			p.add(info.Inner(&nodes[i]))
		}
	}
	return true
}

// workflow notes the hash of the next workflow, and adds its nodes and the workflows that it names.
func (p *pinner) workflow(ctx context.Context) bool {
	if len(p.workflows) == 0 {
		return true
	}
	name := p.workflows[0]
	p.workflows = p.workflows[1:]
	if p.known[name] != "" {
		return true
	}
	p.looked++
	if name == refSelf {
		p.known[name] = p.r.graphHash()
		return true
	}
	// A text may look like the name of a workflow and be none: then nothing is run by it.
	if slug, at, is := strings.Cut(strings.TrimPrefix(name, "workflow/"), "@"); !is || slug == "" || at == "" {
		p.known[name] = "none"
		return true
	}
	_, g, fault := p.r.workflow(ctx, name)
	if fault != nil {
		return false
	}
	hash, err := g.Hash()
	if err != nil {
		return false
	}
	p.known[name] = hash
	p.nodes = append(p.nodes, g.Nodes...)
	for _, more := range workgraph.WorkflowsIn(g) {
		if more != refSelf { // the workflow itself
			p.workflows = append(p.workflows, more)
		}
	}
	return true
}
