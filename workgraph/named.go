package workgraph

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
)

// This file finds the workflows that arguments name: a question of approval covers their graphs, not only
// their names.

// RefSelf names the graph of the run itself where a graph is named.
const RefSelf = "self"

// refPrefix begins the name of a version of a workflow: workflow/SLUG@VERSION.
const refPrefix = "workflow/"

// maxNested is how deep texts that are JSON are read within each other.
const maxNested = 8

// Workflows lists what an approval given at the node covers of workflows: those that the arguments of what
// follows from it name, and self if these name the run's own graph. It is found out once for a program; the
// error is ctx's.
func (p *Program) Workflows(ctx context.Context, node string) ([]string, error) {
	c, err := p.digested(ctx) // which the question needs as well
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

// namedIn adds the names in a JSON value, and in JSON that is written as a text in it. key is that of the
// value.
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
