// Package plantest writes problem graphs in the dialects that package plan reads, and damages texts as models
// and networks do. It serves round-trip tests and measurements. It knows how plans are written, not how they
// are read.
package plantest

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/plan"
)

// ErrCannotExpress means that a dialect cannot express the graph: numbered lists have no edges, programs no
// cycles.
var ErrCannotExpress = errors.New("the dialect cannot express the graph")

// Rendered is a text and the expected graph of reading it.
type Rendered struct {
	Text string
	Want plan.Graph
	// Edges is false if the dialect states no edges; only the problems can then be compared.
	Edges bool
}

// Render writes g in the named dialect. If the dialect has numbers as ids, problems are renumbered, also in
// Want. Requests are written if the dialect has a place for them.
func Render(g plan.Graph, dialect string) (Rendered, error) {
	w, ok := writers[dialect]
	if !ok {
		return Rendered{}, fmt.Errorf("no writer for dialect %q", dialect)
	}
	if len(g.Problems) == 0 {
		return Rendered{}, ErrCannotExpress
	}
	for _, p := range g.Problems {
		if p.ID == "" || p.ID != strings.TrimSpace(p.ID) || strings.ContainsAny(p.ID, "\n\r\x00") {
			return Rendered{}, ErrCannotExpress
		}
	}
	return w(g)
}

// Notations returns the sorted names of the dialects that Render writes.
func Notations() []string { return slices.Sorted(maps.Keys(writers)) }

var writers = map[string]func(plan.Graph) (Rendered, error){
	"xml_problems":   xmlProblems,
	"xml_functions":  xmlFunctions,
	"tool_graph":     func(g plan.Graph) (Rendered, error) { return toolGraph(g, false) },
	"yaml":           func(g plan.Graph) (Rendered, error) { return toolGraph(g, true) },
	"step_relations": stepRelations,
	"command_tasks":  func(g plan.Graph) (Rendered, error) { return tasks(g, true) },
	"task_list":      func(g plan.Graph) (Rendered, error) { return tasks(g, false) },
	"single_action":  singleAction,
	"nested_calls":   nestedCalls,
	"step_tools":     func(g plan.Graph) (Rendered, error) { return steps(g, false) },
	"task_names":     func(g plan.Graph) (Rendered, error) { return steps(g, true) },
	"node_edge":      nodeEdge,
	"evidence":       evidence,
	"call_log":       callLog,
	"numbered_calls": numberedCalls,
	"assignments":    assignments,
	"arrows":         arrows,
	"numbered":       numbered,
	"table":          table,
}

func quote(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return `""`
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// renumber gives equal ids equal numbers, written with format.
func renumber(g plan.Graph, format string) (plan.Graph, map[string]string) {
	name := map[string]string{}
	get := func(id string) string {
		n, ok := name[id]
		if !ok {
			n = fmt.Sprintf(format, len(name)+1)
			name[id] = n
		}
		return n
	}
	var out plan.Graph
	for _, p := range g.Problems {
		out.Problems = append(out.Problems, plan.Problem{ID: get(p.ID), Request: p.Request})
	}
	for _, e := range g.Edges {
		out.Edges = append(out.Edges, plan.Edge{From: get(e.From), To: get(e.To)})
	}
	return out, name
}

// into groups edges by the problem they lead to. It fails if an edge leads to no problem.
func into(g plan.Graph) (map[int][]string, error) {
	first := map[string]int{}
	for i, p := range g.Problems {
		if _, ok := first[p.ID]; !ok {
			first[p.ID] = i
		}
	}
	out := map[int][]string{}
	for _, e := range g.Edges {
		i, ok := first[e.To]
		if !ok {
			return nil, ErrCannotExpress
		}
		out[i] = append(out[i], e.From)
	}
	return out, nil
}

func dedupe(g plan.Graph) plan.Graph {
	seen := map[[2]string]bool{}
	var edges []plan.Edge
	for _, e := range g.Edges {
		k := [2]string{e.From, e.To}
		if !seen[k] {
			seen[k] = true
			edges = append(edges, e)
		}
	}
	g.Edges = edges
	return g
}

// sorted orders problems so that edges lead forward. It fails on cycles, duplicate ids and unknown ids.
func sorted(g plan.Graph) (plan.Graph, error) {
	index := map[string]int{}
	for i, p := range g.Problems {
		if _, dup := index[p.ID]; dup {
			return g, ErrCannotExpress
		}
		index[p.ID] = i
	}
	g = dedupe(g)
	degree := make([]int, len(g.Problems))
	next := make([][]int, len(g.Problems))
	for _, e := range g.Edges {
		a, ok1 := index[e.From]
		b, ok2 := index[e.To]
		if !ok1 || !ok2 {
			return g, ErrCannotExpress
		}
		degree[b]++
		next[a] = append(next[a], b)
	}
	out := plan.Graph{Edges: g.Edges}
	var queue []int
	for i, n := range degree {
		if n == 0 {
			queue = append(queue, i)
		}
	}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		out.Problems = append(out.Problems, g.Problems[i])
		for _, j := range next[i] {
			if degree[j]--; degree[j] == 0 {
				queue = append(queue, j)
			}
		}
	}
	if len(out.Problems) != len(g.Problems) {
		return g, ErrCannotExpress
	}
	return out, nil
}

// plainText returns a request that cannot be mistaken for syntax.
func plainText(i int) string { return "carry out part " + strconv.Itoa(i+1) + " of the work" }

// flat returns g without its hierarchy, for dialects without hierarchies.
func flat(g plan.Graph) plan.Graph {
	out := plan.Graph{Edges: g.Edges}
	for _, p := range g.Problems {
		p.ParentID = ""
		out.Problems = append(out.Problems, p)
	}
	return out
}

func xmlProblems(g plan.Graph) (Rendered, error) {
	g = flat(g)
	var b strings.Builder
	b.WriteString("<StructuredResponse>\n  <Problems>\n")
	for i, p := range g.Problems {
		fmt.Fprintf(&b, "    <Problem>\n      <Request>%s</Request>\n      <ProblemID>%s</ProblemID>\n    </Problem>\n", plainText(i), html.EscapeString(p.ID))
	}
	b.WriteString("  </Problems>\n  <ProblemGraph>\n")
	named := map[string]bool{}
	for _, e := range g.Edges {
		named[e.From], named[e.To] = true, true
		fmt.Fprintf(&b, "    %s -> %s\n", html.EscapeString(arrowID(e.From)), html.EscapeString(arrowID(e.To)))
	}
	for _, p := range g.Problems {
		if !named[p.ID] {
			named[p.ID] = true
			fmt.Fprintf(&b, "    %s\n", html.EscapeString(arrowID(p.ID)))
		}
	}
	b.WriteString("  </ProblemGraph>\n</StructuredResponse>\n")
	return Rendered{b.String(), g, true}, nil
}

// arrowID quotes ids that contain more than words.
func arrowID(id string) string {
	for _, c := range id {
		if c != '_' && c != '.' && !('0' <= c && c <= '9') && !('a' <= c && c <= 'z') && !('A' <= c && c <= 'Z') {
			return quote(id)
		}
	}
	return id
}

func xmlFunctions(g plan.Graph) (Rendered, error) {
	g, err := sorted(g)
	if err != nil {
		return Rendered{}, err
	}
	g, _ = renumber(g, "VALUE_%d")
	in, err := into(g)
	if err != nil {
		return Rendered{}, err
	}
	var b strings.Builder
	b.WriteString("<plan>\n")
	for i, p := range g.Problems {
		fmt.Fprintf(&b, "  <function.Skill.Do%d", i+1)
		for k, from := range in[i] {
			fmt.Fprintf(&b, ` in%d="$%s"`, k, from)
		}
		fmt.Fprintf(&b, ` setContextVariable="%s"/>`+"\n", p.ID)
	}
	b.WriteString("</plan>\n")
	return Rendered{b.String(), g, true}, nil
}

func toolGraph(g plan.Graph, yaml bool) (Rendered, error) {
	g = flat(g)
	var b strings.Builder
	if yaml {
		b.WriteString("task_nodes:\n")
		for i, p := range g.Problems {
			fmt.Fprintf(&b, "  - task: %s\n    arguments:\n      text: %s\n", quote(p.ID), plainText(i))
		}
		if len(g.Edges) == 0 {
			b.WriteString("task_links: []\n")
			return Rendered{b.String(), g, true}, nil
		}
		b.WriteString("task_links:\n")
		for _, e := range g.Edges {
			fmt.Fprintf(&b, "  - source: %s\n    target: %s\n", quote(e.From), quote(e.To))
		}
		return Rendered{b.String(), g, true}, nil
	}
	b.WriteString(`{"task_steps": [`)
	for i := range g.Problems {
		comma(&b, i)
		b.WriteString(quote("Step " + strconv.Itoa(i+1) + ": " + plainText(i)))
	}
	b.WriteString(`], "task_nodes": [`)
	for i, p := range g.Problems {
		comma(&b, i)
		fmt.Fprintf(&b, `{"task": %s, "arguments": [%s]}`, quote(p.ID), quote(plainText(i)))
	}
	b.WriteString(`], "task_links": [`)
	for i, e := range g.Edges {
		comma(&b, i)
		fmt.Fprintf(&b, `{"source": %s, "target": %s}`, quote(e.From), quote(e.To))
	}
	b.WriteString("]}\n")
	return Rendered{b.String(), g, true}, nil
}

func comma(b *strings.Builder, i int) {
	if i > 0 {
		b.WriteString(", ")
	}
}

func stepRelations(g plan.Graph) (Rendered, error) {
	g = flat(g)
	text := map[string]string{}
	unique := true
	for i, p := range g.Problems {
		if _, dup := text[p.ID]; dup {
			unique = false
		}
		text[p.ID] = plainText(i)
	}
	end := func(id string) string {
		if t, ok := text[id]; ok && unique {
			return quote(t)
		}
		return quote(id)
	}
	var b strings.Builder
	b.WriteString("{\n \"substeps\": [")
	for i, p := range g.Problems {
		comma(&b, i)
		fmt.Fprintf(&b, "\n  {\"stepId\": %s, \"step\": %s}", quote(p.ID), quote(plainText(i)))
	}
	b.WriteString("\n ],\n \"dependencies\": [")
	known := map[string]bool{}
	for _, p := range g.Problems {
		known[p.ID] = true
	}
	for i, e := range g.Edges {
		for _, x := range []string{e.From, e.To} {
			// "Step 2" would be read as problem 2, which is correct but not the expected graph.
			if !known[x] && strings.ContainsAny(x, "0123456789") {
				return Rendered{}, ErrCannotExpress
			}
		}
		comma(&b, i)
		fmt.Fprintf(&b, "\n  {\"subtask1\": %s, \"relation\": \"Must be done before\", \"subtask2\": %s}", end(e.From), end(e.To))
	}
	b.WriteString("\n ]\n}\n")
	return Rendered{b.String(), g, true}, nil
}

func tasks(g plan.Graph, commands bool) (Rendered, error) {
	g, _ = renumber(g, "%d")
	in, err := into(g)
	if err != nil {
		return Rendered{}, err
	}
	var b strings.Builder
	b.WriteString("[\n")
	for i, p := range g.Problems {
		var deps []string
		for _, f := range in[i] {
			deps = append(deps, quote(f))
		}
		task := fmt.Sprintf(`{"task_id": %s, "dependent_task_ids": [%s], "instruction": %s}`, quote(p.ID), strings.Join(deps, ", "), quote(plainText(i)))
		if commands {
			task = `{"command_name": "Plan.append_task", "args": ` + task + "}"
		}
		b.WriteString("  " + task)
		if i+1 < len(g.Problems) {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
	}
	b.WriteString("]\n")
	return Rendered{b.String(), g, true}, nil
}

func singleAction(g plan.Graph) (Rendered, error) {
	if len(g.Problems) != 1 || len(g.Edges) != 0 {
		return Rendered{}, ErrCannotExpress
	}
	return Rendered{fmt.Sprintf(`{"plan": {"rationale": "it fits", "function": %s, "parameters": {}}}`, quote(g.Problems[0].ID)), g, true}, nil
}

func nestedCalls(g plan.Graph) (Rendered, error) {
	g, _ = renumber(dedupe(g), "var%d")
	in, err := into(g)
	if err != nil {
		return Rendered{}, err
	}
	var b strings.Builder
	b.WriteString("[\n")
	for i, p := range g.Problems {
		fmt.Fprintf(&b, ` {"name": "tool_%d", "arguments": {`, i+1)
		for k, from := range in[i] {
			comma(&b, k)
			fmt.Fprintf(&b, `"arg%d": "$%s.result$"`, k, from)
		}
		fmt.Fprintf(&b, `}, "label": %s}`, quote(p.ID))
		if i+1 < len(g.Problems) {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
	}
	b.WriteString("]\n")
	return Rendered{b.String(), g, true}, nil
}

func steps(g plan.Graph, names bool) (Rendered, error) {
	g, _ = renumber(g, "%d")
	g.Edges = nil
	var b strings.Builder
	if names {
		b.WriteString("Plan(steps=[")
		for i := range g.Problems {
			g.Problems[i].ID = strconv.Itoa(i + 1)
			comma(&b, i)
			b.WriteString("'" + plainText(i) + "'")
		}
		b.WriteString("])\n")
		return Rendered{b.String(), g, false}, nil
	}
	b.WriteByte('[')
	for i, p := range g.Problems {
		comma(&b, i)
		fmt.Fprintf(&b, `{"step": %s, "tool": "tool_%d", "param": {}}`, quote(p.ID+". "+plainText(i)), i+1)
	}
	b.WriteString("]\n")
	return Rendered{b.String(), g, false}, nil
}

func nodeEdge(g plan.Graph) (Rendered, error) {
	g, _ = renumber(g, "%d")
	var b strings.Builder
	b.WriteString("Node:\n")
	for i, p := range g.Problems {
		fmt.Fprintf(&b, "%s: %s\n", p.ID, plainText(i))
	}
	b.WriteString("Edge:")
	from, to := map[string]bool{}, map[string]bool{}
	for _, e := range g.Edges {
		from[e.From], to[e.To] = true, true
	}
	done := map[string]bool{}
	for _, p := range g.Problems {
		if !to[p.ID] && !done[p.ID] {
			done[p.ID] = true
			fmt.Fprintf(&b, " (START,%s)", p.ID)
		}
	}
	for _, e := range g.Edges {
		fmt.Fprintf(&b, " (%s,%s)", e.From, e.To)
	}
	done = map[string]bool{}
	ends := 0
	for _, p := range g.Problems {
		if !from[p.ID] && !done[p.ID] {
			done[p.ID] = true
			ends++
			fmt.Fprintf(&b, " (%s,END)", p.ID)
		}
	}
	if ends == 0 {
		fmt.Fprintf(&b, " (%s,END)", g.Problems[len(g.Problems)-1].ID)
	}
	b.WriteByte('\n')
	return Rendered{b.String(), g, true}, nil
}

func evidence(g plan.Graph) (Rendered, error) {
	g, _ = renumber(dedupe(g), "#E%d")
	in, err := into(g)
	if err != nil {
		return Rendered{}, err
	}
	var b strings.Builder
	for i, p := range g.Problems {
		fmt.Fprintf(&b, "Plan: %s.\n%s = LLM[use %s]\n", plainText(i), p.ID, strings.Join(in[i], ", "))
	}
	return Rendered{b.String(), g, true}, nil
}

func callLog(g plan.Graph) (Rendered, error) {
	g, _ = renumber(g, "%d")
	in, err := into(g)
	if err != nil {
		return Rendered{}, err
	}
	var b strings.Builder
	for i, p := range g.Problems {
		fmt.Fprintf(&b, "---\nidx: %s\ntool: tool_%d\nargs: {'q': 'part %d'}\ndependencies: [%s]\nthought: None\n", p.ID, i+1, i+1, strings.Join(in[i], ", "))
	}
	b.WriteString("---\n")
	return Rendered{b.String(), g, true}, nil
}

func table(g plan.Graph) (Rendered, error) {
	g, _ = renumber(g, "%d")
	in, err := into(g)
	if err != nil {
		return Rendered{}, err
	}
	var b strings.Builder
	b.WriteString("| # | Task | Depends on |\n|---|---|---|\n")
	for i, p := range g.Problems {
		deps := strings.Join(in[i], ", ")
		if deps == "" {
			deps = "-"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", p.ID, plainText(i), deps)
	}
	return Rendered{b.String(), g, true}, nil
}

func numberedCalls(g plan.Graph) (Rendered, error) {
	g, _ = renumber(dedupe(g), "%d")
	in, err := into(g)
	if err != nil {
		return Rendered{}, err
	}
	var b strings.Builder
	for i, p := range g.Problems {
		fmt.Fprintf(&b, "%s. search(\"part %d\"", p.ID, i+1)
		for _, f := range in[i] {
			fmt.Fprintf(&b, ", $%s", f)
		}
		b.WriteString(")\n")
	}
	return Rendered{b.String(), g, true}, nil
}

func assignments(g plan.Graph) (Rendered, error) {
	g, err := sorted(g)
	if err != nil {
		return Rendered{}, err
	}
	g, _ = renumber(g, "%d")
	in, err := into(g)
	if err != nil {
		return Rendered{}, err
	}
	var b strings.Builder
	for i, p := range g.Problems {
		fmt.Fprintf(&b, "%s. value_%s = FIND(CTX", p.ID, p.ID)
		for _, f := range in[i] {
			b.WriteString(", value_" + f)
		}
		fmt.Fprintf(&b, ", \"part\") : %s\n", plainText(i))
	}
	return Rendered{b.String(), g, true}, nil
}

func arrows(g plan.Graph) (Rendered, error) {
	known := map[string]bool{}
	var b strings.Builder
	for _, p := range g.Problems {
		if known[p.ID] {
			return Rendered{}, ErrCannotExpress
		}
		known[p.ID] = true
		b.WriteString(arrowID(p.ID) + "\n")
	}
	if len(g.Edges) == 0 {
		return Rendered{}, ErrCannotExpress
	}
	for _, e := range g.Edges {
		if !known[e.From] || !known[e.To] {
			return Rendered{}, ErrCannotExpress
		}
		fmt.Fprintf(&b, "%s -> %s\n", arrowID(e.From), arrowID(e.To))
	}
	return Rendered{b.String(), g, true}, nil
}

func numbered(g plan.Graph) (Rendered, error) {
	parents := false
	for _, p := range g.Problems {
		parents = parents || p.ParentID != ""
	}
	want := plan.Graph{Problems: append([]plan.Problem(nil), g.Problems...)}
	var b strings.Builder
	for i := range want.Problems {
		p := &want.Problems[i]
		if !parents {
			p.ID = strconv.Itoa(i + 1)
		} else if p.ParentID != "" && !strings.HasPrefix(p.ID, p.ParentID+".") {
			return Rendered{}, ErrCannotExpress
		}
		if strings.Trim(p.ID, "0123456789.") != "" || i == 0 && p.ID[0] != '1' {
			return Rendered{}, ErrCannotExpress
		}
		if strings.Contains(p.ID, ".") {
			fmt.Fprintf(&b, "%s %s\n", p.ID, plainText(i))
		} else {
			fmt.Fprintf(&b, "%s. %s\n", p.ID, plainText(i))
		}
	}
	return Rendered{b.String(), want, false}, nil
}
