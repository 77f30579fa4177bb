package workgraph

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

func itoa(n int) string { return strconv.Itoa(n) }

// Clone copies the graph deeply, but shares raw JSON bytes, which must not be changed.
func (g *Graph) Clone() *Graph {
	c := *g
	c.Nodes = slices.Clone(g.Nodes)
	c.Edges = slices.Clone(g.Edges)
	c.State = maps.Clone(g.State)
	for i := range c.Nodes {
		n := &c.Nodes[i]
		n.Args = slices.Clone(n.Args)
		n.Named = maps.Clone(n.Named)
		n.Bind = maps.Clone(n.Bind)
		for arg, b := range n.Bind {
			b.Uses = slices.Clone(b.Uses)
			n.Bind[arg] = b
		}
		if n.On = clonePtr(n.On); n.On != nil && n.On.Inbox != nil {
			n.On.Inbox = clonePtr(n.On.Inbox)
			n.On.Inbox.From = slices.Clone(n.On.Inbox.From)
		}
		n.Check = clonePtr(n.Check)
		n.Map = clonePtr(n.Map)
		n.Cache = clonePtr(n.Cache)
	}
	return &c
}

func clonePtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

// fillDefaults writes out the meaning of absent fields, so that a stated default and an absent one hash
// alike.
func (g *Graph) fillDefaults() {
	for i := range g.Nodes {
		n := &g.Nodes[i]
		def(&n.Kind, ActionKind)
		def(&n.PassDown.Mode, NoPassDown)
		def(&n.Join.Mode, All)
		def(&n.Join.Losers, FinishLosers)
		def(&n.OnError.Action, Fail)
		def(&n.MaxVisits, DefaultMaxVisits)
		if n.On != nil && n.On.Inbox != nil {
			def(&n.On.Inbox.BatchSize, 1)
		}
		if n.Map != nil {
			def(&n.Map.MaxParallel, DefaultMapParallel)
			def(&n.Map.OnItemError, FailFast)
		}
	}
	for i := range g.Edges {
		def(&g.Edges[i].Kind, DataEdge)
	}
	for k, v := range g.State {
		def(&v.Reducer, Replace)
		g.State[k] = v
	}
}

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// canonicalJSON marshals v, then writes every object with sorted keys. Numbers keep their digits.
func canonicalJSON(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(tree); err != nil { // maps are written in key order
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}
