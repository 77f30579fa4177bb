package graphpb

import (
	"fmt"
	"strings"

	graphv1 "github.com/epigraph-run/epigraph/proto/gen/go/epigraph/graph/v1"
	"github.com/epigraph-run/epigraph/workgraph"
)

// table pairs the words of the model with those of the wire by position; position 0 is unspecified on both
// sides.
type table[S ~string, E ~int32] []S

func (t table[S, E]) to(s S) E {
	for i, v := range t {
		if v == s {
			return E(i)
		}
	}
	return 0
}

var (
	kinds       = table[workgraph.Kind, graphv1.NodeKind]{"", workgraph.ActionKind, workgraph.AgentKind, workgraph.SummarizerKind, workgraph.ProblemKind, workgraph.ToolKind}
	effects     = table[workgraph.Effect, graphv1.Effect]{"", workgraph.Pure, workgraph.Idempotent, workgraph.Unsafe}
	edgeKinds   = table[workgraph.EdgeKind, graphv1.EdgeKind]{"", workgraph.DataEdge, workgraph.ErrorEdge, workgraph.BackEdge}
	joins       = table[workgraph.JoinMode, graphv1.JoinKind]{"", workgraph.All, workgraph.Any, workgraph.Quorum}
	losers      = table[workgraph.Losers, graphv1.Losers]{"", workgraph.CancelLosers, workgraph.FinishLosers}
	onErrors    = table[workgraph.ErrorAction, graphv1.OnErrorKind]{"", workgraph.Fail, workgraph.Continue, workgraph.Fallback, workgraph.Route}
	itemErrors  = table[workgraph.ItemErrors, graphv1.OnItemErrorKind]{"", workgraph.FailFast, workgraph.ContinueItems, workgraph.QuorumItems}
	cacheScopes = table[workgraph.CacheScope, graphv1.CacheScope]{"", workgraph.CacheForChat, workgraph.CacheForUser, workgraph.CacheForNamespace}
	reducers    = table[workgraph.Reducer, graphv1.Reducer]{"", workgraph.Replace, workgraph.Append, workgraph.AppendByID, workgraph.Add}
)

func encode[S ~string, E ~int32](w *writer, field string, t table[S, E], s S) E {
	e := t.to(s)
	if e == 0 && s != "" {
		w.add(CodeEnum, field, fmt.Sprintf("%q is not known", string(s)), oneOf(t))
	}
	return e
}

func decode[S ~string, E ~int32](r *reader, field string, t table[S, E], e E) S {
	if e < 0 || int(e) >= len(t) {
		r.add(CodeEnum, field, fmt.Sprintf("%d is not known", int32(e)), oneOf(t))
		return ""
	}
	return t[e]
}

func oneOf[S ~string, E ~int32](t table[S, E]) string {
	words := make([]string, 0, len(t)-1)
	for _, s := range t[1:] {
		words = append(words, string(s))
	}
	return "use one of " + strings.Join(words, ", ")
}
