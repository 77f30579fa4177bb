package main

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/compile"
)

// record is a recorded plan.
type record struct {
	ID     string   `json:"id"`
	Family string   `json:"family"`
	Raw    string   `json:"raw"`
	Flags  []string `json:"flags"`
	tools  []string
	// asks are the fields of results for which its tasks ask.
	asks []string
}

// goal is what the scripted model knows the plan by.
func (r record) goal() string { return r.ID + " (recorded)" }

const (
	// maxTokens bounds the length of a plan, in tokens of four bytes: longer ones would decide how long the
	// measurement takes.
	maxTokens = 3000
	minTasks  = 2
)

// sample draws plans from all sources in turn: those that can run as they are, with two tasks at least. The
// answer is one that all their tasks can give.
func sample(ctx context.Context, o options) (out []record, all *answer, err error) {
	f, err := os.Open(o.data)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, nil, err
	}
	by := map[string][]record{}
	for dec := json.NewDecoder(z); ; {
		var r record
		if err := dec.Decode(&r); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, nil, fmt.Errorf("read %s: %w", o.data, err)
		}
		if r.fits(ctx, o) {
			by[r.Family] = append(by[r.Family], r)
		}
	}
	rng := rand.New(rand.NewPCG(o.seed, o.seed)) //nolint:gosec // a sample that can be drawn again
	families := slices.Sorted(maps.Keys(by))
	for _, name := range families {
		rng.Shuffle(len(by[name]), func(i, j int) { by[name][i], by[name][j] = by[name][j], by[name][i] })
	}
	rng.Shuffle(len(families), func(i, j int) { families[i], families[j] = families[j], families[i] })
	all = &answer{}
	for n := 0; len(out) < o.plans; n++ {
		left := false
		for _, name := range families {
			if n >= len(by[name]) || len(out) >= o.plans {
				continue
			}
			left = true
			if !slices.ContainsFunc(by[name][n].asks, func(field string) bool { return !all.add(field) }) {
				out = append(out, by[name][n])
			}
		}
		if !left {
			break
		}
	}
	return out, all, nil
}

// fits reports whether the plan can run as it is, and finds its tools.
func (r *record) fits(ctx context.Context, o options) bool {
	if len(r.Raw) > 4*maxTokens {
		return false
	}
	read := plan.Parse(r.Raw, plan.WithComplete(), plan.WithContext(ctx))
	if read.NoPlan != nil || read.HasErrors() {
		return false
	}
	// A planner knows the tools that the request names, which are those of the plan.
	g, err := compile.Graph(ctx, read.Graph, compile.Options{Known: func(string) bool { return true }})
	if err != nil || len(g.Nodes) < minTasks || len(g.Nodes) < len(read.Graph.Problems) && o.rewritten {
		return false
	}
	for _, p := range read.Graph.Problems {
		if p.Tool != "" && !slices.Contains(r.tools, p.Tool) {
			r.tools = append(r.tools, p.Tool)
		}
	}
	for i := range g.Nodes {
		for _, b := range g.Nodes[i].Bind {
			for _, u := range b.Uses {
				r.asks = append(r.asks, u.Field)
			}
		}
	}
	if o.rewritten {
		r.Raw = rewritten(read.Graph)
	}
	return len(r.tools) <= 50
}

// rewritten is a plan in the notation that the planner asks models for. Groups are left out.
func rewritten(g plan.Graph) string {
	needs := map[string][]string{}
	for _, e := range g.Edges {
		if !slices.Contains(needs[e.To], e.From) {
			needs[e.To] = append(needs[e.To], e.From)
		}
	}
	var lines []string
	for _, p := range g.Problems {
		t := map[string]any{"id": p.ID, "request": strings.TrimSpace(cmp.Or(p.Request, p.ID) + "\n" + p.Details), "needs": append([]string{}, needs[p.ID]...)}
		if p.Tool != "" {
			args := map[string]json.RawMessage{}
			for _, a := range p.Args {
				if a.Name != "" && !strings.Contains(a.Name, " -> ") && a.Kind == plan.Literal {
					args[a.Name] = a.JSON()
				}
			}
			t["tool"], t["args"] = p.Tool, args
		}
		line, err := json.Marshal(t)
		if err != nil {
			continue // texts and JSON always marshal
		}
		lines = append(lines, string(line))
	}
	return "[\n" + strings.Join(lines, ",\n") + "\n]"
}
