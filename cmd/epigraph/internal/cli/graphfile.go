package cli

import (
	"bytes"
	"encoding/json"
	"maps"
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
	if nodes, there := doc["nodes"]; there && string(bytes.TrimSpace(nodes)) == "[]" {
		return nil, faultAt(text, locate(text, "graph.nodes").offset, "the graph has no nodes", `give it at least one, such as {"id": "a", "actor": "template", "named": {"text": "hello"}}`)
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

// namesActors tells whether nodes, whatever is wrong with them, say what they call.
func namesActors(nodes json.RawMessage) bool {
	var list []json.RawMessage
	if json.Unmarshal(nodes, &list) != nil {
		var byName map[string]json.RawMessage // nodes that are an object by mistake
		if json.Unmarshal(nodes, &byName) != nil {
			return false
		}
		list = slices.Collect(maps.Values(byName))
	}
	for _, n := range list {
		var node map[string]json.RawMessage
		if json.Unmarshal(n, &node) == nil && node["actor"] != nil {
			return true
		}
	}
	return false
}
