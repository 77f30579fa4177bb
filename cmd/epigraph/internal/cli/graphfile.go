package cli

import (
	"encoding/json"
	"slices"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
)

// findGraph tells a WorkGraph from a plan: only its nodes name actors. What the REST API answers with a graph in it (a compiled plan,
// the graph of a run) counts as that graph; graph is nil for a plan.
func findGraph(text string) (graph json.RawMessage, err error) {
	var doc map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &doc) != nil {
		return nil, brokenGraph(text)
	}
	if namesActors(doc["nodes"]) {
		return json.RawMessage(text), nil
	}
	var inner map[string]json.RawMessage
	if json.Unmarshal(doc["graph"], &inner) != nil || !namesActors(inner["nodes"]) {
		return nil, nil
	}
	for k := range doc {
		if !slices.Contains([]string{"graph", "graphHash", "graph_hash", "plan"}, k) {
			return nil, errs.New(errs.InvalidArgument, graphpb.ReasonGraphInvalid, "%q beside the graph is not read", k).
				Hint("give inputs, tasks and ids as flags, or send the file to the REST API")
		}
	}
	return doc["graph"], nil
}

func namesActors(nodes json.RawMessage) bool {
	var list []struct {
		Actor *string `json:"actor"`
	}
	if json.Unmarshal(nodes, &list) != nil {
		return false
	}
	for _, n := range list {
		if n.Actor != nil {
			return true
		}
	}
	return false
}
