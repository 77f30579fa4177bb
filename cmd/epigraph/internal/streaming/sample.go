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
}

// goal is what the scripted model knows the plan by.
func (r record) goal() string { return r.ID + " (recorded)" }

const (
	// maxTokens bounds the length of a plan, in tokens of four bytes: longer ones would decide how long the
	// measurement takes.
	maxTokens = 3000
	minTasks  = 2
)

// sample draws plans from all sources in turn: those that can run as they are, with two tasks at least.
func sample(ctx context.Context, o options) ([]record, error) {
	f, err := os.Open(o.data)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	by := map[string][]record{}
	for dec := json.NewDecoder(z); ; {
		var r record
		if err := dec.Decode(&r); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read %s: %w", o.data, err)
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
	var out []record
	for n := 0; len(out) < o.plans; n++ {
		left := false
		for _, name := range families {
			if n < len(by[name]) && len(out) < o.plans {
				out, left = append(out, by[name][n]), true
			}
		}
		if !left {
			break
		}
	}
	return out, nil
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
	g, err := compile.Graph(ctx, read.Graph, compile.Options{})
	if err != nil || len(g.Nodes) < minTasks || len(g.Nodes) < len(read.Graph.Problems) && o.rewritten {
		return false
	}
	for _, p := range read.Graph.Problems {
		if p.Tool != "" && !slices.Contains(r.tools, p.Tool) {
			r.tools = append(r.tools, p.Tool)
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
