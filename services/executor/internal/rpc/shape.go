package rpc

import (
	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"

	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/workgraph"
)

// shape is a graph without what its picture does not need.
func shape(g *workgraph.Graph) (*graphv1.Graph, error) {
	out := &workgraph.Graph{Name: g.Name, Nodes: make([]workgraph.Node, len(g.Nodes)), Edges: make([]workgraph.Edge, len(g.Edges))}
	for i := range g.Nodes {
		n := &g.Nodes[i]
		out.Nodes[i] = workgraph.Node{ID: n.ID, Name: n.Name, Kind: n.Kind, Actor: n.Actor}
		if n.Map != nil {
			out.Nodes[i].Map = &workgraph.Map{}
		}
	}
	for i := range g.Edges {
		out.Edges[i] = workgraph.Edge{From: g.Edges[i].From, To: g.Edges[i].To, Kind: g.Edges[i].Kind}
	}
	return graphpb.ToProto(out)
}
