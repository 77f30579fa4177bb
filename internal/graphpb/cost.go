package graphpb

import (
	"google.golang.org/protobuf/proto"

	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
)

// The number of bytes of a message, and of an expression, that cost as much as a node or an edge. An
// expression costs something by itself, too.
const (
	bytesPerCost     = 200
	exprBytesPerCost = 2
	exprCost         = 20
)

// Cost estimates the number of things that reading and checking a message with these graphs visits: nodes,
// edges and their content. computes selects the actors whose arguments are expressions; nil means none.
func Cost(m proto.Message, computes func(actor string) bool, graphs ...*graphv1.Graph) int {
	cost := proto.Size(m) / bytesPerCost
	expr := func(n int) {
		if n > 0 {
			cost += exprCost + n/exprBytesPerCost
		}
	}
	for _, g := range graphs {
		cost += len(g.GetNodes()) + len(g.GetEdges())
		for _, n := range g.GetNodes() {
			expr(len(n.GetWhen()))
			expr(len(n.GetTransform()))
			expr(len(n.GetConcurrencyKey()))
			expr(len(n.GetCheck().GetCel()))
			expr(len(n.GetMap().GetOver()))
			expr(len(n.GetResultPassDownMode().GetMerge()))
			if computes != nil && len(n.GetNamed()) > 0 && computes(n.GetActor()) {
				for _, v := range n.GetNamed() {
					expr(len(v.GetJson()))
				}
			}
		}
		for _, e := range g.GetEdges() {
			expr(len(e.GetWhen()))
			expr(len(e.GetResultPassDownMode().GetMerge()))
		}
	}
	return cost
}
