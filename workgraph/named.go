package workgraph

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
)

// This file finds the workflows that arguments name. An approval covers their graphs, not only
// their names.

// RefSelf is the name of the run's own graph.
const RefSelf = "self"

// refPrefix begins the name of a workflow version: workflow/SLUG@VERSION.
const refPrefix = "workflow/"

// maxNested bounds how deep JSON texts within JSON texts are read.
const maxNested = 8

// Workflows lists the workflows that an approval given at the node covers: those named in the arguments of
// the nodes that follow from it, including self. It is computed once for a program. The error is that of ctx.
func (p *Program) Workflows(ctx context.Context, node string) ([]string, error) {
	c, err := p.digested(ctx) // the interrupt needs the digests as well
	n, ok := p.index[node]
	if err != nil || !ok || len(c.workflows) == 0 {
		return nil, err
	}
	var out []string
	for _, m := range marked(c.out.from(ctx, n)) {
		out = append(out, c.workflows[m]...)
	}
	slices.Sort(out)
	return slices.Compact(out), ctx.Err()
}

// WorkflowsIn lists the workflows that the arguments of the graph's nodes name.
func WorkflowsIn(g *Graph) []string {
	var out []string
	for i := range g.Nodes {
		out = append(out, workflowsOf(&g.Nodes[i])...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// WorkflowsAmong lists the workflows that arguments name.
func WorkflowsAmong(in Input) []string {
	var out []string
	for _, raw := range in.Args {
		out = namedIn(out, raw, "", 0)
	}
	for _, k := range sortedKeys(in.Named) {
		out = namedIn(out, in.Named[k], k, 0)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func workflowsOf(n *Node) []string { return WorkflowsAmong(Input{Args: n.Args, Named: n.Named}) }

// namedIn adds the names in a JSON value, and in JSON texts within it. key is the key of the value.
func namedIn(out []string, raw []byte, key string, depth int) []string {
	// Most arguments name none. A letter may be written as an escape.
	if depth > maxNested || !bytes.Contains(raw, []byte(refPrefix)) && !bytes.Contains(raw, []byte(RefSelf)) && !bytes.ContainsRune(raw, '\\') {
		return out
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	type level struct {
		object, key bool
		name        string
	}
	var in []level
	for {
		t, err := dec.Token()
		if err != nil {
			return out
		}
		if d, ok := t.(json.Delim); ok && (d == '}' || d == ']') {
			in = in[:len(in)-1]
		}
		var at *level
		if len(in) > 0 {
			at = &in[len(in)-1]
		}
		name := key
		if at != nil {
			name = at.name
		}
		switch v := t.(type) {
		case json.Delim:
			if v == '{' || v == '[' {
				in = append(in, level{object: v == '{', key: v == '{', name: name})
				continue
			}
		case string:
			if at != nil && at.object && at.key {
				at.name, at.key = v, false
				continue
			}
			switch text := strings.TrimSpace(v); {
			case strings.HasPrefix(v, refPrefix), v == RefSelf && name == "ref":
				out = append(out, v)
			case strings.HasPrefix(text, "{"), strings.HasPrefix(text, "["), strings.HasPrefix(text, `"`):
				out = namedIn(out, []byte(text), name, depth+1)
			}
		}
		if at != nil && at.object {
			at.key = true
		}
	}
}
