// Package compile turns a problem graph into a WorkGraph that can run: one node per problem without children,
// the edges between them, and requests and references as named arguments. It is pure and owns only this
// translation: it reads no text and runs nothing.
package compile

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/workgraph"
)

// DefaultActor works on problems for which no actor is named.
const DefaultActor = "llm"

// Names of the arguments that a compiled node carries.
const (
	// ArgRequest holds the request, with the details that the plan gives below it. For the actor "agent" its
	// name is ArgUserInput.
	ArgRequest   = "request"
	ArgUserInput = "user_input"
	// ArgPrevious is the name under which a node receives the results of its predecessors: the value itself
	// if there is one predecessor, else the list in declared edge order.
	ArgPrevious = "previous_agent_results"
	// ArgArguments holds the arguments of the problem, as a list of Argument, without those that the
	// actor gets by name.
	ArgArguments = "arguments"
	// ArgTool holds the tool that the plan names for the problem, if the actor is another one.
	ArgTool = "tool"
	// ArgReferences holds the uses of other problems' results, as a list of Reference, without those in
	// arguments that the actor gets by name.
	ArgReferences = "references"
)

// Options select the actors of problems.
type Options struct {
	// Name of the graph. Empty means "plan-" and the beginning of the plan's hash.
	Name string
	// DefaultActor is the actor of every problem that is not in Actors. Empty means the constant
	// DefaultActor.
	DefaultActor string
	// Actors names the actor of single problems, by problem id.
	Actors map[string]string
	// Known reports whether an actor of this name exists. A problem whose tool is a known actor is worked on
	// by it, unless Actors names another one, and the actor gets the arguments of the problem by name. The
	// actors that these options name are always known; a nil Known knows no others.
	Known func(actor string) bool
	// Named are arguments of every node.
	Named map[string]json.RawMessage
}

// Argument is one argument of a problem as its node carries it: a value, or a text that contains References.
type Argument struct {
	Name  string          `json:"name,omitempty"`
	Value json.RawMessage `json:"value"`
	// Refers is set if the value is, or contains, a use of another problem's result.
	Refers bool `json:"refers,omitempty"`
}

// Reference is a use of another problem's result as its node carries it. Node is the id in the WorkGraph.
type Reference struct {
	Argument string `json:"argument,omitempty"`
	Text     string `json:"text"`
	Node     string `json:"node"`
	Field    string `json:"field,omitempty"`
}

// Error is the error for a plan that cannot be compiled, with every reason.
type Error struct{ Diagnostics []plan.Diagnostic }

// Error lists the diagnostics, one per line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Diagnostics))
	for i, d := range e.Diagnostics {
		lines[i] = d.String()
	}
	return strings.Join(lines, "\n")
}

// MaxEdges bounds the edges that result from dependencies between groups.
const MaxEdges = workgraph.MaxEdges

// Graph compiles g. Problems with children only group others: an edge at a group means edges at its first or
// last leaves. The error is an *Error if g has faults, and the error of ctx if ctx ends first. Ids keep their
// text, except for characters that a WorkGraph reserves. The Name of a node is always the id of its problem.
func Graph(ctx context.Context, g plan.Graph, o Options) (*workgraph.Graph, error) {
	found, err := plan.Validate(ctx, g)
	if err != nil {
		return nil, err
	}
	if ds := errorsOf(found); len(ds) > 0 {
		return nil, &Error{Diagnostics: ds}
	}
	c := compiler{o: o, named: o.named(), problems: g.Problems, left: maxSteps}
	if ds := c.unknownActors(); len(ds) > 0 {
		return nil, &Error{Diagnostics: ds}
	}
	c.group()
	if err := c.roomForNamed(); err != nil {
		return nil, err
	}
	out := &workgraph.Graph{Name: o.Name}
	if out.Name == "" {
		out.Name = "plan-" + g.Hash()[:12]
	}
	c.nameNodes()
	for i, p := range g.Problems {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if len(c.children[i]) > 0 {
			continue
		}
		n, err := c.node(ctx, i, p)
		if err != nil {
			return nil, err
		}
		out.Nodes = append(out.Nodes, n)
	}
	edges, err := c.edges(ctx, g.Edges)
	if err != nil {
		return nil, err
	}
	out.Edges = edges
	return out, nil
}

func errorsOf(ds []plan.Diagnostic) []plan.Diagnostic {
	var out []plan.Diagnostic
	for _, d := range ds {
		if d.Severity == plan.Error {
			out = append(out, d)
		}
	}
	return out
}

type compiler struct {
	o        Options
	named    map[string]bool // actors that o names for single problems
	problems []plan.Problem
	index    map[string]int
	children [][]int
	parents  []int    // -1 for none
	ids      []string // node id by problem
	// left is the number of steps in the hierarchy that may still be taken.
	left int
	// first and last hold the leaves of the groups computed so far.
	first, last map[int][]int
}

// maxSteps bounds the work caused by a hierarchy: an edge between groups means edges between all their
// leaves.
const maxSteps = 4_000_000

// maxNamed bounds the total size in bytes of the named arguments in all nodes.
const maxNamed = 32 << 20

// roomForNamed refuses named arguments that are too large in all nodes together.
func (c *compiler) roomForNamed() error {
	n := 0
	for k, v := range c.o.Named {
		n += len(k) + len(v)
	}
	leaves := 0
	for i := range c.children {
		if len(c.children[i]) == 0 {
			leaves++
		}
	}
	if n*leaves <= maxNamed {
		return nil
	}
	return &Error{Diagnostics: []plan.Diagnostic{{Code: plan.LimitReached, Severity: plan.Error, Element: "named",
		Message: fmt.Sprintf("the named arguments have %d bytes, which %d nodes would all get", n, leaves), Hint: "pass them as the run's input, which every node can see"}}}
}

// tooMuch returns the error for groups that cause too much work.
func tooMuch(e plan.Edge) error {
	return &Error{Diagnostics: []plan.Diagnostic{{Code: plan.LimitReached, Severity: plan.Error, Line: e.Line, Column: e.Column, Element: e.From + " -> " + e.To,
		Message: "dependencies between groups take too long to unfold", Hint: "use fewer groups, or put a single problem between them"}}}
}

// unknownActors reports overrides for problems that do not exist, so that a misspelled id is not ignored.
func (c *compiler) unknownActors() []plan.Diagnostic {
	c.index = make(map[string]int, len(c.problems))
	for i, p := range c.problems {
		c.index[p.ID] = i
	}
	var out []plan.Diagnostic
	for _, id := range sortedKeys(c.o.Actors) {
		if _, ok := c.index[id]; !ok {
			out = append(out, plan.Diagnostic{
				Code: plan.UnknownReference, Severity: plan.Error, Element: id,
				Message: "an actor was named for " + strconv.Quote(id) + ", which is no problem of the plan",
				Hint:    "use the id of a problem as the plan shows it",
			})
		}
	}
	return out
}

func (c *compiler) group() {
	c.children, c.parents = make([][]int, len(c.problems)), make([]int, len(c.problems))
	for i, p := range c.problems {
		c.parents[i] = -1
		if p.ParentID == "" {
			continue
		}
		if parent, ok := c.index[p.ParentID]; ok && parent != i {
			c.parents[i] = parent
			c.children[parent] = append(c.children[parent], i)
		}
	}
}

// nameNodes gives every problem an id that a WorkGraph accepts. Distinct ids stay distinct.
func (c *compiler) nameNodes() {
	c.ids = make([]string, len(c.problems))
	taken := make(map[string]bool, len(c.problems))
	changed := []int{}
	next := map[string]int{} // the next suffix to try, by base
	for i, p := range c.problems {
		if clean := nodeID(p.ID); clean == p.ID {
			c.ids[i] = clean
			taken[clean] = true
		} else {
			changed = append(changed, i)
		}
	}
	for _, i := range changed {
		base := nodeID(c.problems[i].ID)
		id := base
		for n := max(next[base], 2); taken[id]; n++ {
			id = base + "-" + strconv.Itoa(n)
			next[base] = n + 1
		}
		taken[id] = true
		c.ids[i] = id
	}
}

// nodeID replaces the characters that a WorkGraph reserves or refuses in ids.
func nodeID(id string) string {
	clean := strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r == '#' || r == '/':
			return '-'
		case r < ' ' || r == 0x7f:
			return ' '
		}
		return r
	}, id), " -")
	if clean == "" {
		clean = "problem"
	}
	if len(clean) > workgraph.MaxIDLen-8 { // room for a suffix that distinguishes equal beginnings
		cut := workgraph.MaxIDLen - 8
		for cut > 0 && clean[cut]&0xC0 == 0x80 {
			cut--
		}
		clean = clean[:cut]
	}
	return clean
}

func (c *compiler) node(ctx context.Context, i int, p plan.Problem) (workgraph.Node, error) {
	actor := c.o.actor(p, c.named)
	named := maps.Clone(c.o.Named)
	if named == nil {
		named = make(map[string]json.RawMessage, 4)
	}
	request := p.Request
	if request == "" {
		request = p.ID
	}
	if p.Details != "" {
		request += "\n" + p.Details
	}
	key := ArgRequest
	if actor == "agent" {
		key = ArgUserInput
	}
	if err := set(named, key, request); err != nil {
		return workgraph.Node{}, err
	}
	args, refs := p.Args, c.references(p)
	var bind map[string]workgraph.Binding
	if c.o.byName(p, actor, c.named) {
		args, refs, bind = c.o.byNames(ctx, p, refs, named)
	}
	if len(args) > 0 {
		list := make([]Argument, len(args))
		for k, a := range args {
			list[k] = Argument{Name: a.Name, Value: a.JSON(), Refers: a.Kind == plan.Referring}
		}
		if err := set(named, ArgArguments, list); err != nil {
			return workgraph.Node{}, err
		}
	}
	if _, given := named[ArgTool]; !given && p.Tool != "" && p.Tool != actor {
		if err := set(named, ArgTool, p.Tool); err != nil {
			return workgraph.Node{}, err
		}
	}
	if len(refs) > 0 {
		if err := set(named, ArgReferences, refs); err != nil {
			return workgraph.Node{}, err
		}
	}
	return workgraph.Node{
		ID: c.ids[i], Name: p.ID, Kind: workgraph.ProblemKind, Actor: actor, Named: named, Bind: bind,
		PassDown: workgraph.Key(ArgPrevious),
	}, nil
}

func (c *compiler) references(p plan.Problem) []Reference {
	var out []Reference
	for _, r := range p.Refs {
		if to, ok := c.index[r.To]; ok {
			out = append(out, Reference{Argument: r.Arg, Text: r.Text, Node: c.ids[to], Field: r.Path})
		}
	}
	return out
}

func set(named map[string]json.RawMessage, key string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode argument %s: %w", key, err)
	}
	named[key] = b
	return nil
}

// edges replaces dependencies between groups by edges between leaves. Repeated edges are left out.
func (c *compiler) edges(ctx context.Context, in []plan.Edge) ([]workgraph.Edge, error) {
	// The first leaves of a group are those without an incoming edge from inside the group. The last ones
	// have no outgoing edge inside it.
	hasIn, hasOut := c.innerDegrees(in)
	c.first, c.last = map[int][]int{}, map[int][]int{}
	var out []workgraph.Edge
	seen := make(map[[2]int]bool, len(in))
	for _, e := range in {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if c.left < 0 {
			return nil, tooMuch(e)
		}
		from, to := c.index[e.From], c.index[e.To]
		if c.within(from, to) || c.within(to, from) {
			continue // a group and its own member: grouping, not order
		}
		for _, a := range c.leavesOf(from, hasOut, c.last) {
			for _, b := range c.leavesOf(to, hasIn, c.first) {
				if c.left--; c.left < 0 {
					return nil, tooMuch(e)
				}
				if a == b || seen[[2]int{a, b}] {
					continue
				}
				if len(out) == MaxEdges {
					return nil, &Error{Diagnostics: []plan.Diagnostic{{
						Code: plan.LimitReached, Severity: plan.Error, Line: e.Line, Column: e.Column, Element: e.From + " -> " + e.To,
						Message: fmt.Sprintf("dependencies between groups unfold into more than %d edges", MaxEdges),
						Hint:    "put a single problem between the groups",
					}}}
				}
				seen[[2]int{a, b}] = true
				out = append(out, workgraph.Edge{From: c.ids[a], To: c.ids[b]})
			}
		}
	}
	if c.left < 0 {
		return nil, tooMuch(in[len(in)-1])
	}
	if cyc := c.cycle(out); cyc != "" {
		return nil, &Error{Diagnostics: []plan.Diagnostic{{
			Code: plan.Cycle, Severity: plan.Error, Element: cyc,
			Message: "the order of groups makes " + strconv.Quote(cyc) + " wait for itself",
			Hint:    "remove one of the edges between its group and the others",
		}}}
	}
	return out, nil
}

// innerDegrees returns, for each problem, the groups within which an edge leads to it or leaves it. Such a
// group holds both ends of the edge.
func (c *compiler) innerDegrees(in []plan.Edge) (hasIn, hasOut []map[int]bool) {
	hasIn = make([]map[int]bool, len(c.problems))
	hasOut = make([]map[int]bool, len(c.problems))
	for _, e := range in {
		if c.left < 0 {
			break // edges reports it
		}
		from, to := c.index[e.From], c.index[e.To]
		if c.within(from, to) || c.within(to, from) {
			continue // not an order; see edges
		}
		if group := c.commonGroup(from, to); group >= 0 {
			mark(hasIn, to, group)
			mark(hasOut, from, group)
		}
	}
	return hasIn, hasOut
}

func mark(m []map[int]bool, n, group int) {
	if m[n] == nil {
		m[n] = make(map[int]bool, 1)
	}
	m[n][group] = true
}

func (c *compiler) parent(i int) int {
	c.left--
	return c.parents[i]
}

// commonGroup returns the innermost group that holds both problems, or -1.
func (c *compiler) commonGroup(a, b int) int {
	above := map[int]bool{}
	for n := c.parent(a); n >= 0; n = c.parent(n) {
		above[n] = true
	}
	for n := c.parent(b); n >= 0; n = c.parent(n) {
		if above[n] {
			return n
		}
	}
	return -1
}

func (c *compiler) within(i, group int) bool {
	for n := i; n >= 0; n = c.parent(n) {
		if n == group {
			return true
		}
	}
	return false
}

// leavesOf returns the result of leaves, computed once for every group.
func (c *compiler) leavesOf(i int, bounded []map[int]bool, known map[int][]int) []int {
	if len(c.children[i]) == 0 {
		return []int{i}
	}
	list, ok := known[i]
	if !ok {
		list = c.leaves(i, bounded)
		known[i] = list
	}
	return list
}

// leaves returns the leaves below i that have no bound inside i.
func (c *compiler) leaves(i int, bounded []map[int]bool) []int {
	if len(c.children[i]) == 0 {
		return []int{i}
	}
	var out []int
	var walk func(n int)
	walk = func(n int) {
		if c.left--; c.left < 0 {
			return // edges reports it
		}
		if n != i && c.boundedWithin(n, i, bounded) {
			return
		}
		if len(c.children[n]) == 0 {
			out = append(out, n)
			return
		}
		for _, k := range c.children[n] {
			walk(k)
		}
	}
	walk(i)
	return out
}

// boundedWithin reports whether n has a bound inside group, or inside a group below it that holds n.
func (c *compiler) boundedWithin(n, group int, bounded []map[int]bool) bool {
	if len(bounded[n]) == 0 {
		return false
	}
	for g := c.parent(n); g >= 0; g = c.parent(g) {
		if bounded[n][g] {
			return true
		}
		if g == group {
			break
		}
	}
	return false
}

// cycle returns a node that waits for itself, or "".
func (c *compiler) cycle(edges []workgraph.Edge) string {
	degree := make(map[string]int, len(c.ids))
	next := make(map[string][]string, len(c.ids))
	for i, id := range c.ids {
		if len(c.children[i]) == 0 {
			degree[id] += 0
		}
	}
	for _, e := range edges {
		degree[e.To]++
		next[e.From] = append(next[e.From], e.To)
	}
	var ready []string
	for id, d := range degree {
		if d == 0 {
			ready = append(ready, id)
		}
	}
	left := len(degree)
	for len(ready) > 0 {
		id := ready[len(ready)-1]
		ready = ready[:len(ready)-1]
		left--
		for _, to := range next[id] {
			if degree[to]--; degree[to] == 0 {
				ready = append(ready, to)
			}
		}
	}
	if left == 0 {
		return ""
	}
	for i, p := range c.problems {
		if len(c.children[i]) == 0 && degree[c.ids[i]] > 0 {
			return p.ID
		}
	}
	return ""
}

func sortedKeys(m map[string]string) []string {
	return slices.Sorted(maps.Keys(m))
}
