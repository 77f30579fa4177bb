package author

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/internal/errs"
	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/compile"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Begun is the code of a task that an answer lists although it has begun.
const Begun plan.Code = "TASK_BEGUN"

// Past is a visit of a run as the model is told it.
type Past struct {
	Node string
	// State is the state in words, such as COMPLETED.
	State  string
	Values []json.RawMessage
	// Failed is the error of a visit that failed, else empty.
	Failed string
	// Open says that the visit has not begun: it is held back by a pause.
	Open bool
}

// Remainder is a run as far as it has come, and what is to be achieved.
type Remainder struct {
	Order
	Graph *workgraph.Graph
	Past  []Past
}

// Revision is the last answer as it was read. Patch and Graph are nil unless the plan can run.
type Revision struct {
	Text  string
	Read  plan.Result
	Patch *workgraph.Patch
	// Graph is the graph that the patch leads to.
	Graph *workgraph.Graph
}

// Revise has a model write anew what is left of a run. Nodes that have begun, and those that they still wait
// for, stay as they are.
func (a *Author) Revise(ctx context.Context, r Remainder) (Revision, Report, error) {
	var v *reviser
	size, given := r.size()
	prompt, err := a.prepare(ctx, given, size, len(r.Tools)+len(r.Graph.Nodes)+len(r.Graph.Edges), func() (_ string, err error) {
		if v, err = newReviser(r); err != nil {
			return "", err
		}
		return fill(cmp.Or(a.cfg.RevisePrompt, revisePrompt), map[string]string{
			"goal": r.Goal, "context": r.Context, "tools": toolText(v.tools), "done": v.doneText(), "open": v.openText(),
		}), nil
	}, func() error { return v.equip(ctx) })
	if err != nil {
		return Revision{}, Report{}, err
	}
	var out Revision
	report, err := a.write(ctx, job{
		namespace: r.Namespace, profile: r.Profile, prompt: prompt, limits: r.Limits, elements: len(r.Graph.Nodes) + len(r.Graph.Edges),
		check: func(ctx context.Context, text string, whole bool) ([]plan.Diagnostic, error) {
			out = Revision{Text: text}
			if bare := strings.Trim(strings.TrimSpace(text), "`json \n"); bare != "[]" {
				out.Read = v.read(text, func(text string) plan.Result { return a.parse(ctx, text, whole) })
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			found, err := v.check(ctx, &out)
			out.Read.Diagnostics = found
			return found, err
		},
	})
	if n := len(report.Rounds); report.End == Busy {
		out = Revision{Text: report.Rounds[n-1].Text}
	}
	if report.End != Complete {
		out.Patch, out.Graph = nil, nil
	}
	return out, report, err
}

// reviser is a run whose rest is written anew.
type reviser struct {
	Remainder
	kit   *kit
	tools []Tool
	nodes map[string]*workgraph.Node
	// fixed are the nodes that stay as they are; begun are those of them that have begun.
	fixed, begun map[string]bool
}

// size is that of the order, and of the graph and the results.
func (r *Remainder) size() (size, given int) {
	size, given = r.Order.size()
	for i := range r.Graph.Nodes {
		for _, value := range r.Graph.Nodes[i].Named {
			size += len(value)
		}
	}
	for i := range r.Past {
		for _, value := range r.Past[i].Values {
			size += len(value)
		}
	}
	return size, given
}

// newReviser refuses visits of nodes that are not in the graph. The reviser cannot check answers yet.
func newReviser(r Remainder) (*reviser, error) {
	v := &reviser{Remainder: r, tools: slices.Clone(r.Tools), nodes: map[string]*workgraph.Node{}, fixed: map[string]bool{}, begun: map[string]bool{}}
	byName := map[string]bool{}
	for _, t := range r.Tools {
		byName[t.Name] = true
	}
	for i := range r.Graph.Nodes {
		n := &r.Graph.Nodes[i]
		v.nodes[n.ID] = n
		if !byName[n.Actor] && n.Actor != v.defaultActor() {
			byName[n.Actor] = true
			v.tools = append(v.tools, Tool{Name: n.Actor})
		}
	}
	for _, p := range r.Past {
		if v.nodes[p.Node] == nil {
			return nil, errs.New(errs.InvalidArgument, "UNKNOWN_NODE", "a visit is of node %q, which is not in the graph", errs.Clip(p.Node, 100)).
				Hint("read the graph and the visits of the run again")
		}
		if !p.Open {
			v.begun[p.Node], v.fixed[p.Node] = true, true
		}
	}
	v.ancestors()
	return v, nil
}

// equip lets the reviser check answers. It refuses tools that cannot be used.
func (v *reviser) equip(ctx context.Context) (err error) {
	if v.kit, err = newKit(ctx, v.tools); err != nil {
		return err
	}
	v.Compile.Known = v.kit.has
	return nil
}

func (v *reviser) defaultActor() string { return cmp.Or(v.Compile.DefaultActor, compile.DefaultActor) }

// ancestors fixes the nodes whose results nodes that have begun may still get: the edges into those cannot
// change.
func (v *reviser) ancestors() {
	before := map[string][]string{}
	for i := range v.Graph.Edges {
		e := &v.Graph.Edges[i]
		before[e.To] = append(before[e.To], e.From)
	}
	var next []string
	for id := range v.fixed {
		next = append(next, id)
	}
	for len(next) > 0 {
		id := next[len(next)-1]
		next = next[:len(next)-1]
		for _, from := range before[id] {
			if !v.fixed[from] {
				v.fixed[from] = true
				next = append(next, from)
			}
		}
	}
}

const (
	// maxResult bounds the result of a node that the model is shown, and maxResults those of all together, in
	// bytes; each has room for minResult.
	maxResult  = 4 << 10
	maxResults = 64 << 10
	minResult  = 80
	// maxRequest bounds the request of a node that has begun.
	maxRequest = 300
)

func (v *reviser) doneText() string {
	last := map[string]Past{}
	for _, p := range v.Past {
		last[p.Node] = p
	}
	room := min(maxResult, max(minResult, maxResults/max(len(v.fixed), 1)))
	var b strings.Builder
	for i := range v.Graph.Nodes {
		n := &v.Graph.Nodes[i]
		if !v.fixed[n.ID] {
			continue
		}
		request, _ := requestOf(n)
		fmt.Fprintf(&b, "- %q: %s\n", n.ID, oneLine(request, maxRequest))
		switch p, ok := last[n.ID]; {
		case !ok || p.Open:
			b.WriteString("  has not ended\n")
		case p.Failed != "":
			fmt.Fprintf(&b, "  %s: %s\n", p.State, oneLine(p.Failed, room))
		case len(p.Values) > 0:
			var start []byte
			for i := 0; i < len(p.Values) && len(start) <= spaced*room; i++ {
				if i > 0 {
					start = append(start, ", "...)
				}
				start = append(start, p.Values[i][:min(len(p.Values[i]), spaced*room+1)]...)
			}
			fmt.Fprintf(&b, "  %s: %s\n", p.State, oneLine(string(start), room))
		default:
			fmt.Fprintf(&b, "  %s\n", p.State)
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

// spaced is how many bytes of a text are looked at for each byte that is shown of it.
const spaced = 4

// oneLine is the beginning of a text, with its white space as single blanks.
func oneLine(s string, most int) string {
	begin := s[:min(len(s), spaced*most)]
	line := strings.Join(strings.Fields(strings.ToValidUTF8(begin, "")), " ")
	if len(begin) < len(s) && len(line) <= most {
		return line + "…"
	}
	return errs.Clip(line, most)
}

// requestOf is the request of a node and the argument that holds it. key is empty if somebody made the graph
// by hand; then the text is a name.
func requestOf(n *workgraph.Node) (text, key string) {
	for _, key := range []string{compile.ArgRequest, compile.ArgUserInput} {
		if json.Unmarshal(n.Named[key], &text) == nil && text != "" {
			return text, key
		}
	}
	return cmp.Or(n.Name, n.ID), ""
}

// openText shows the tasks that have not begun in the notation of the instructions.
func (v *reviser) openText() string {
	needs := edgesInto(v.Graph)
	var lines []string
	for i := range v.Graph.Nodes {
		n := &v.Graph.Nodes[i]
		if v.fixed[n.ID] {
			continue
		}
		if line := taskLine(n, needs[n.ID], v.defaultActor(), v.argsOf(n)); line != "" {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 {
		return "[]"
	}
	return "[\n" + strings.Join(lines, ",\n") + "\n]"
}

// argsOf are the arguments of a node as a plan states them.
func (v *reviser) argsOf(n *workgraph.Node) map[string]json.RawMessage {
	return argsOf(n, v.defaultActor(), v.Compile.Named)
}

// argsOf are the arguments of a node as a plan states them. The node of a tool has them by name, beside
// given, which every node has.
func argsOf(n *workgraph.Node, defaultActor string, given map[string]json.RawMessage) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	var list []compile.Argument
	if json.Unmarshal(n.Named[compile.ArgArguments], &list) == nil {
		for _, a := range list {
			if a.Name != "" && !compile.EdgeArg(a.Name) {
				out[a.Name] = a.Value
			}
		}
	}
	for arg, b := range n.Bind {
		if len(b.Value) > 0 {
			out[arg] = b.Value
		}
	}
	if n.Actor == defaultActor {
		return out
	}
	for name, value := range n.Named {
		if _, all := given[name]; !all && !workgraph.PlanArgument(name) {
			out[name] = value
		}
	}
	return out
}

// taskLine shows a node with the edges into it in the notation of the instructions. It is empty for a node
// that cannot be shown.
func taskLine(n *workgraph.Node, in []workgraph.Edge, defaultActor string, args map[string]json.RawMessage) string {
	t := struct {
		ID      string                     `json:"id"`
		Request string                     `json:"request"`
		Tool    string                     `json:"tool,omitempty"`
		Args    map[string]json.RawMessage `json:"args,omitempty"`
		Needs   []string                   `json:"needs"`
	}{ID: n.ID, Args: args, Needs: []string{}}
	for i := range in {
		if e := &in[i]; e.Kind == workgraph.DataEdge || e.Kind == "" {
			t.Needs = append(t.Needs, e.From)
		}
	}
	t.Request, _ = requestOf(n)
	if n.Actor != defaultActor {
		t.Tool = n.Actor
	}
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if enc.Encode(t) != nil {
		return "" // an argument of the graph is no JSON
	}
	return strings.TrimSpace(line.String())
}

// listStart is the start of a list of objects.
var listStart = regexp.MustCompile(`\[\s*\{`)

// read reads an answer with the fixed nodes at the start of its list, so that the reader knows the ids
// that tasks may need: it takes a name that it does not know for something else where it can. The result
// is that of the answer alone.
func (v *reviser) read(text string, parse func(string) plan.Result) plan.Result {
	at := listStart.FindStringIndex(text)
	if at == nil {
		return parse(text)
	}
	var added strings.Builder
	for i := range v.Graph.Nodes {
		id := v.Graph.Nodes[i].ID
		if !v.fixed[id] {
			continue
		}
		raw, err := json.Marshal(map[string]any{"id": id, "request": fixedRequest, "needs": []string{}})
		if err != nil {
			return parse(text) // texts always marshal
		}
		added.Write(raw)
		added.WriteByte(',')
	}
	before := text[:at[0]+1]
	r := parse(before + added.String() + text[at[0]+1:])
	seen := map[string]bool{}
	r.Graph.Problems = slices.DeleteFunc(r.Graph.Problems, func(p plan.Problem) bool {
		if !v.fixed[p.ID] || seen[p.ID] || p.Request != fixedRequest {
			return false
		}
		seen[p.ID] = true
		return true
	})
	places(&r, strings.Count(before, "\n")+1, utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]), utf8.RuneCountInString(added.String()))
	return r
}

// fixedRequest is the request of a fixed node in front of an answer.
const fixedRequest = "stays as it is"

// places moves the places of a result on one line behind a column, by a number of columns to the left.
func places(r *plan.Result, line, behind, by int) {
	move := func(l int, column *int) {
		if l == line && *column > behind {
			*column = max(behind, *column-by)
		}
	}
	for i := range r.Diagnostics {
		move(r.Diagnostics[i].Line, &r.Diagnostics[i].Column)
	}
	for i := range r.Graph.Problems {
		p := &r.Graph.Problems[i]
		move(p.Line, &p.Column)
		for k := range p.Refs {
			move(p.Refs[k].Line, &p.Refs[k].Column)
		}
	}
	for i := range r.Graph.Edges {
		move(r.Graph.Edges[i].Line, &r.Graph.Edges[i].Column)
	}
}

// check turns an answer into a patch, or finds its faults.
func (v *reviser) check(ctx context.Context, out *Revision) ([]plan.Diagnostic, error) {
	found := faultsOfText(out.Read)
	whole := plan.Graph{Edges: out.Read.Graph.Edges}
	for i := range v.Graph.Nodes {
		if id := v.Graph.Nodes[i].ID; v.fixed[id] {
			whole.Problems = append(whole.Problems, plan.Problem{ID: id})
		}
	}
	for _, p := range out.Read.Graph.Problems {
		if v.fixed[p.ID] {
			found = append(found, plan.Diagnostic{
				Code: Begun, Severity: plan.Error, Line: p.Line, Column: p.Column, Element: p.ID,
				Message: "this task is done or under way, and stays as it is", Hint: "leave it out of the list; \"needs\" may name it",
			})
			continue
		}
		whole.Problems = append(whole.Problems, p)
	}
	misused, err := v.kit.check(ctx, out.Read.Graph)
	if found = append(found, misused...); err != nil || (plan.Result{Diagnostics: found}).HasErrors() {
		return found, err
	}
	made := &workgraph.Graph{}
	if len(whole.Problems) > 0 {
		if made, err = compile.Graph(ctx, whole, v.Compile); err != nil {
			if ce, ok := errors.AsType[*compile.Error](err); ok {
				return append(found, ce.Diagnostics...), nil
			}
			return nil, fmt.Errorf("compile plan: %w", err)
		}
	}
	patch := v.patch(made, out.Read.Graph)
	g, faults := workgraph.ApplyPatch(v.Graph, patch)
	if len(faults) > 0 {
		return append(found, ofGraph(faults)...), nil
	}
	if len(g.Nodes) > 0 {
		_, err = workgraph.Recompile(ctx, g, nil)
		if f, ok := errors.AsType[workgraph.Faults](err); ok {
			return append(found, ofGraph(f)...), nil
		}
		if err != nil {
			return nil, err
		}
	}
	out.Patch, out.Graph = &patch, g
	return found, nil
}

// faultsOfText are the findings of a reading without those about the graph: what the list may refer to is
// known only together with the nodes that have begun.
func faultsOfText(r plan.Result) (out []plan.Diagnostic) {
	for _, d := range withNoPlan(r) {
		switch d.Code {
		case plan.UnknownReference, plan.DuplicateID, plan.IsolatedProblem:
		case plan.Cycle, plan.SelfLoop: // found again
		default:
			out = append(out, d)
		}
	}
	return out
}
