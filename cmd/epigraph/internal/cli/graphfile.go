package cli

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/internal/graphpb"
	"github.com/epigraph-run/epigraph/internal/near"
	"github.com/epigraph-run/epigraph/plan"
)

// findGraph distinguishes a WorkGraph from a plan: only nodes of a graph have actors, and data with nodes
// that is no plan was meant to be a graph. An answer of the REST API with a graph in it (a compiled plan, the
// graph of a run) counts as that graph; graph is nil for a plan.
func findGraph(text string) (graph json.RawMessage, err error) {
	var doc map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &doc) != nil {
		return nil, brokenGraph(text)
	}
	if meansGraph(doc) {
		return json.RawMessage(text), nil
	}
	if nodes, there := doc["nodes"]; there && string(bytes.TrimSpace(nodes)) == "[]" {
		return nil, faultAt(text, locate(text, "graph.nodes").offset, "the graph has no nodes", `give it at least one, such as {"id": "a", "actor": "template", "named": {"text": "hello"}}`)
	}
	var inner map[string]json.RawMessage
	if json.Unmarshal(doc["graph"], &inner) != nil {
		inner = nil
	}
	switch {
	case meansGraph(inner) || inner["nodes"] != nil && plan.Parse(text).NoPlan != nil:
	case doc["nodes"] != nil && plan.Parse(text).NoPlan != nil:
		return json.RawMessage(text), nil
	default:
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

// meansGraph reports whether data is a graph, even a faulty one: it has nodes, perhaps misspelled, with
// actors.
func meansGraph(doc map[string]json.RawMessage) bool {
	if nodes, there := doc["nodes"]; there {
		return nodesOfGraph(nodes)
	}
	for k, v := range doc {
		if like(k, "nodes") && nodesOfGraph(v) {
			return true
		}
	}
	return false
}

// nodesOfGraph reports whether nodes, even faulty ones, are those of a graph.
func nodesOfGraph(nodes json.RawMessage) bool {
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
		if json.Unmarshal(n, &node) != nil {
			continue
		}
		for k := range node {
			if like(k, "actor") || slices.Contains(graphOnly, strings.ToLower(strings.ReplaceAll(k, "_", ""))) {
				return true
			}
		}
	}
	return false
}

// graphOnly are fields of nodes, without case and _, that a node of a plan does not have.
var graphOnly = []string{"named", "resultpassdownmode", "onerror", "maxvisits", "idletimeout", "concurrencykey"}

// like reports whether a key is a word, or that word misspelled.
func like(key, word string) bool {
	_, ok := near.Within(strings.ToLower(key), word, 1)
	return ok
}
