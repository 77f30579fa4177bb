package workgraph

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Program is a validated graph with its indexes and compiled expressions. It is immutable and may be shared
// by any number of runs and goroutines.
type Program struct {
	g       *Graph
	nodes   []pnode
	edges   []pedge
	regions []region
	topo    []int32
	starts  []int32
	index   map[string]int32
	inboxes []int32
	// fineCancel says that a run may cancel some attempts and not others.
	fineCancel bool
	// outcomes is what in-memory runs reuse. It is nil if no node has a cache.
	outcomes *OutcomeCache
	// edgeIndex finds an edge by its ends and kind.
	edgeIndex map[edgeKey]int32
	// localNode and localEdge are the places of every node and edge in the frames of its region.
	localNode, localEdge []int32
	// origins say which nodes expansions have made. It is nil if there is none.
	origins []origin
	actors  ActorSet
	limits  Limits
	// evaluated lists the expressions that a call of an actor evaluates; see WithEvaluated.
	evaluated func(actor string, named map[string]json.RawMessage) []string
	// exprs and schemas are what was compiled, by text. Programs of expanded or amended graphs reuse them.
	exprs   map[string]*Expr
	schemas map[string]*Schema
	bytes   int64
	reach   *reach
	needs   []need
}

type edgeKey struct {
	from, to int32
	kind     EdgeKind
}

type pnode struct {
	*Node
	inbox  *Inbox
	edgeIn bool // an edge leads into the inbox
	// mayExpand says that an expansion may take the place of the node's outgoing edges.
	mayExpand bool
	// approves says that the node asks for an approval.
	approves bool
	level    int32 // of the inbox: how many others may stand between it and a start
	region   int32
	in, out  []int32 // in without BACK edges, out with them, in declared order
	// round is the only round of its loop in which an expanded node exists. The lists by round are those of
	// rounds that differ from the rest.
	round             int32
	roundIn, roundOut map[int32][]int32
	roundMulti        map[int32]map[string]bool
	// grouped says that for some of the incoming edges only the latest round counts.
	grouped bool
	// multi and multiBack hold the keys under which two or more of the incoming edges (or of the BACK edges)
	// pass values down.
	multi, multiBack                        map[string]bool
	when, transform, over, until, key, test *Expr
	bindings                                []pbinding
	schema                                  *Schema
	maxAttempts                             int
	maxVisits                               int
	quorum                                  int32 // live inputs needed; 0 for ALL
	window                                  int
}

type pedge struct {
	from, to int32
	kind     EdgeKind
	// message says that the edge delivers into an inbox, peer that its target may lead back to its source.
	message, peer bool

	scope int32
	when  *Expr
	mode  PassDownMode
	key   string
	merge *Expr
	// instead is the edge that this one replaces on the way out of a loop, from the expansion of visit
	// variant. variant is 0 for other edges.
	instead, variant int32
}

// Compile validates g against actors and makes it runnable. If actors is nil, actor names are not checked,
// and a node that states no effect counts as UNSAFE. The error is a Faults if g is at fault, or that of ctx
// if it ended first. g is not kept.
func Compile(ctx context.Context, g *Graph, actors ActorSet) (*Program, error) {
	return compiled(build(&checker{ctx: ctx, actors: actors}, g))
}

// Recompile is Compile for a graph that a run has expanded or that was patched. It accepts the ids of nodes
// that expansions have made.
func Recompile(ctx context.Context, g *Graph, actors ActorSet) (*Program, error) {
	return compiled(build(&checker{ctx: ctx, actors: actors, expanded: true}, g))
}

func compiled(p *Program, faults []Fault, err error) (*Program, error) {
	switch {
	case err != nil:
		return nil, err
	case len(faults) > 0:
		return nil, Faults(faults)
	}
	return p, nil
}

// Limits bound what expansions may make of a run's graph.
type Limits struct {
	// Depth is how deep expansions may be nested; 0 is DefaultDepth.
	Depth int
	// Nodes is how many nodes the graph may have; 0 is DefaultNodes.
	Nodes int
	// Edges is how many edges the graph may have; 0 leaves only MaxEdges.
	Edges int
}

func (l Limits) none() bool {
	return l.Depth == 0 && l.Nodes == 0 && l.Edges == 0
}

// The limits that apply if none are given.
const (
	DefaultDepth = 8
	DefaultNodes = 100_000
)

// WithLimits is the program with other limits on expansions. Runs that began with p keep theirs.
func (p *Program) WithLimits(l Limits) *Program {
	q := *p
	q.limits = l
	return &q
}

// WithActors is the program with the actors that expansions may call, for a program that was compiled without
// actors.
func (p *Program) WithActors(actors ActorSet) *Program {
	q := *p
	q.actors = actors
	return &q
}

// Graph is a copy of the compiled graph with every default and effect filled in. Compiled again without
// actors it gives an equal program, so a durable engine should store this form.
func (p *Program) Graph() *Graph { return p.g.Clone() }

// Evaluates reports whether runs of the program evaluate expressions or check values against schemas.
func (p *Program) Evaluates() bool { return len(p.exprs) > 0 || len(p.schemas) > 0 }

// Node is the declared node with the given id, with defaults filled in. It must not be changed.
func (p *Program) Node(id string) (*Node, bool) {
	i, ok := p.index[id]
	if !ok {
		return nil, false
	}
	return p.nodes[i].Node, true
}

// build makes the program and reports all faults. With faults the program must not be used. The error is that
// of the checker's ctx if it ended first.
func build(c *checker, g *Graph) (*Program, []Fault, error) {
	c.g, c.index = g.Clone(), make(map[string]int32, len(g.Nodes))
	if c.exprs == nil {
		c.exprs = map[string]*Expr{}
	}
	switch {
	case len(g.Nodes) == 0:
		return nil, []Fault{{Code: CodeEmptyGraph, Message: "the graph has no nodes", Hint: "declare at least one node"}}, nil
	case len(g.Nodes) > MaxNodes || len(g.Edges) > MaxEdges:
		return nil, []Fault{{Code: CodeTooLarge, Hint: "use a map for many like items",
			Message: fmt.Sprintf("%d nodes and %d edges are more than %d and %d", len(g.Nodes), len(g.Edges), MaxNodes, MaxEdges)}}, nil
	}
	c.g.fillDefaults()
	p := &Program{reach: &reach{}, g: c.g, index: c.index, actors: c.actors, exprs: c.exprs, nodes: make([]pnode, len(g.Nodes)), edgeIndex: make(map[edgeKey]int32, len(g.Edges))}
	for i := range c.g.Nodes {
		if c.ctx.Err() != nil {
			return nil, nil, context.Cause(c.ctx)
		}
		c.checkNode(int32(i))
		p.nodes[i].mayExpand, p.nodes[i].approves = c.mayExpand, c.approves
		p.compileNode(c, i)
	}
	arcs, whole := p.compileEdges(c)
	c.checkState()
	if whole {
		p.findLoops(c, arcs)
	}
	c.checkNodeRefs(p, whole)
	p.needs = c.needs
	if p.topo == nil {
		p.topo = p.ordered()
	}
	if p.origins == nil && (len(c.faults) == 0 || !c.expanded) {
		p.missing(c.ctx, c.input, c.unsure, &c.faultList)
	}
	if c.ctx.Err() != nil {
		return nil, nil, context.Cause(c.ctx)
	}
	if len(c.faults) == 0 {
		p.schemas = c.schemas
		p.weigh()
		p.number()
	}
	return p, c.all(), nil
}

func (p *Program) compileNode(c *checker, i int) {
	n := &c.g.Nodes[i]
	pn := &p.nodes[i]
	pn.Node = n
	pn.when = c.giving("bool", Fault{Node: n.ID, Field: "when"}, c.nodeExpr(n.ID, "when", n.When))
	pn.transform = c.nodeExpr(n.ID, "transform", n.Transform)
	pn.key = c.giving("string", Fault{Node: n.ID, Field: "concurrency_key"}, c.nodeExpr(n.ID, "concurrency_key", n.ConcurrencyKey))
	if n.Cache != nil {
		c.nodeExpr(n.ID, "cache.key", n.Cache.Key)
	}
	pn.bindings = c.checkBindings(n)
	if n.On != nil && n.On.Inbox != nil {
		pn.inbox = n.On.Inbox
		p.inboxes = append(p.inboxes, int32(i))
	}
	if n.Map != nil {
		pn.over = c.giving("list", Fault{Node: n.ID, Field: "map.over"}, c.nodeExpr(n.ID, "map.over", n.Map.Over))
		pn.until = c.giving("bool", Fault{Node: n.ID, Field: "map.until"}, c.nodeExpr(n.ID, "map.until", n.Map.Until))
		pn.window = n.Map.MaxParallel
	}
	if n.Check != nil {
		pn.test = c.giving("bool", Fault{Node: n.ID, Field: "check.cel"}, c.nodeExpr(n.ID, "check.cel", n.Check.CEL))
		if len(n.Check.Schema) > 0 {
			var err error
			if pn.schema, err = c.schema(n.Check.Schema); err != nil {
				c.node(CodeBadSchema, n.ID, "check.schema", "use a self-contained JSON Schema", "%s", err)
			}
		}
	}
	if n.Map != nil || n.Join.Losers == CancelLosers || n.Effect == Unsafe {
		p.fineCancel = true
	}
	if n.Cache != nil && p.outcomes == nil {
		p.outcomes = NewOutcomeCache(maxKeptOutcomes)
	}
	pn.maxAttempts = n.Retry.MaxAttempts
	if pn.maxAttempts == 0 {
		pn.maxAttempts = 3
		if n.Effect == Unsafe {
			pn.maxAttempts = 1
		}
	}
	pn.maxVisits = n.MaxVisits
	switch n.Join.Mode {
	case Any:
		pn.quorum = 1
	case Quorum:
		pn.quorum = int32(n.Join.N)
	}
}

// expr compiles one expression. Equal texts share one program.
func (c *checker) expr(use exprUse, src string) *Expr {
	if src == "" {
		return nil
	}
	e, ok := c.exprs[src]
	if !ok {
		var err error
		left := c.patternsLeft()
		if e, err = CompileExpr(c.ctx, src); err == nil && e.steps > 0 && e.steps > left {
			err = fmt.Errorf("the patterns of the graph compile to more than %d steps together: repeat less", maxGraphPatterns)
		}
		if err != nil {
			f := use.place
			f.Code, f.Message = CodeBadExpression, err.Error()
			c.add(f)
			return nil
		}
		c.exprs[src] = e
		c.patternSteps += e.steps
	}
	if len(e.nodeRefs) > 0 || len(e.unknownInput) > 0 {
		use.expr = e
		c.uses = append(c.uses, use)
	}
	return e
}

// ResultSchema is the schema that results of a node must satisfy; nil if there is none.
func (p *Program) ResultSchema(node string) *Schema {
	i, ok := p.index[node]
	if !ok {
		return nil
	}
	return p.nodes[i].schema
}

// schema compiles one JSON Schema. Equal texts share one.
func (c *checker) schema(raw json.RawMessage) (*Schema, error) {
	if s, ok := c.schemas[string(raw)]; ok {
		return s, nil
	}
	s, err := c.compileSchema(raw)
	if err != nil {
		return nil, err
	}
	if c.schemas == nil {
		c.schemas = map[string]*Schema{}
	}
	c.schemas[string(raw)] = s
	return s, nil
}

// Bounds on the different schemas of one graph together: a compiled schema takes much more memory than its
// text.
const (
	maxGraphSchemas     = 2_000
	maxGraphSubschemas  = 20_000
	maxGraphSchemaBytes = 4 << 20
	// maxGraphPatterns bounds the instructions of the patterns in all schemas and expressions of a graph.
	// Each takes patternBytes for as long as the program lives.
	maxGraphPatterns = 200_000
)

// The approximate memory of parts of a program, measured with graphs of many of them. A compiled text takes
// many times its length.
const (
	nodeBytes       = 600
	edgeBytes       = 250
	exprBytes       = 1 << 10
	exprTextBytes   = 64
	schemaTextBytes = 48
	patternBytes    = 56
)

// Bytes is the approximate memory of the program, besides the texts and values in its graph. It is computed
// when the program is made.
func (p *Program) Bytes() int64 { return p.bytes }

// weigh computes Bytes.
func (p *Program) weigh() {
	n := nodeBytes*len(p.g.Nodes) + edgeBytes*len(p.g.Edges)
	for src, e := range p.exprs {
		n += exprBytes + exprTextBytes*len(src) + patternBytes*e.steps
	}
	for raw, s := range p.schemas {
		n += exprBytes + schemaTextBytes*len(raw) + patternBytes*s.steps
	}
	for i := range p.g.Nodes {
		for _, b := range p.g.Nodes[i].Bind {
			n += nodeBytes + len(b.Value)
		}
	}
	p.bytes = int64(n)
}

// patternsLeft is how many more instructions the patterns of the graph may have.
func (c *checker) patternsLeft() int {
	if !c.counted {
		c.counted = true
		for _, e := range c.exprs {
			c.patternSteps += e.steps
		}
		for _, s := range c.schemas {
			c.patternSteps += s.steps
		}
	}
	return maxGraphPatterns - c.patternSteps
}

// compileSchema is CompileSchema within the bounds of the whole graph.
func (c *checker) compileSchema(raw json.RawMessage) (*Schema, error) {
	if c.schemaCount++; c.schemaCount > maxGraphSchemas {
		return nil, fmt.Errorf("the graph has more than %d different schemas", maxGraphSchemas)
	}
	if c.schemaBytes += len(raw); c.schemaBytes > maxGraphSchemaBytes {
		return nil, fmt.Errorf("the different schemas of the graph have more than %d bytes together", maxGraphSchemaBytes)
	}
	tooMany := func() error {
		return fmt.Errorf("the schemas of the graph hold more than %d others together", maxGraphSubschemas)
	}
	if c.subschemas > maxGraphSubschemas { // so that nothing is compiled only to be refused
		return nil, tooMany()
	}
	s, cost, err := compileSchema(c.ctx, raw, min(maxPatterns, c.patternsLeft()))
	if err != nil {
		c.subschemas += cost
		return nil, err
	}
	if c.subschemas += len(s.lists); c.subschemas > maxGraphSubschemas {
		return nil, tooMany()
	}
	c.patternSteps += s.steps
	return s, nil
}

func (p *Program) compileEdges(c *checker) (arcs []arc, whole bool) {
	whole = true
	seen := make(map[Edge]bool, len(c.g.Edges))
	p.edges = make([]pedge, len(c.g.Edges))
	arcs = make([]arc, len(c.g.Edges))
	errorOut := make([]bool, len(p.nodes))
	for i := range c.g.Edges {
		if c.ctx.Err() != nil {
			return arcs, false
		}
		e := &c.g.Edges[i]
		from, to, ok := c.checkEdge(i, seen)
		pe := &p.edges[i]
		pe.kind = e.Kind
		pe.when = c.giving("bool", Fault{From: e.From, To: e.To, Field: "when"}, c.edgeExpr(e, "when", e.When))
		if !ok {
			whole = false
			if to, declared := c.index[e.To]; declared && e.From != e.To {
				c.doubt(to)
			}
			continue
		}
		pe.from, pe.to = from, to
		pd := e.PassDown
		if pd.Mode == "" {
			pd = c.g.Nodes[from].PassDown
		}
		pe.mode, pe.key = pd.Mode, pd.Key
		if pd.Mode == MergePassDown {
			pe.merge = c.giving("map", Fault{From: e.From, To: e.To, Field: "result_pass_down_mode.expr"}, c.edgeExpr(e, "result_pass_down_mode.expr", pd.Expr))
		}
		if in := p.nodes[to].inbox; in != nil {
			pe.message = true
			p.nodes[to].edgeIn = true
			c.inboxEdge(e, to, in)
		}
		arcs[i] = arc{from: from, to: to, back: e.Kind == BackEdge, message: pe.message}
		p.edgeIndex[edgeKey{from, to, e.Kind}] = int32(i)
		p.nodes[from].out = append(p.nodes[from].out, int32(i))
		if e.Kind != BackEdge && !pe.message {
			p.nodes[to].in = append(p.nodes[to].in, int32(i))
		}
		if e.Kind == ErrorEdge {
			errorOut[from] = true
			if c.g.Nodes[from].OnError.Action != Route {
				c.edge(CodeErrorEdge, e, "kind", "set on_error.action of the source to ROUTE", "node %q does not route its errors", e.From)
			}
		}
	}
	for i := range p.nodes {
		n := &p.nodes[i]
		if n.OnError.Action == Route && !errorOut[i] {
			c.node(CodeNoRoute, n.ID, "on_error.action", "declare an edge of kind ERROR from the node", "there is no ERROR edge to route to")
		}
		if n.Join.Mode == Quorum && whole && (n.Join.N < 1 || n.Join.N > len(n.in)) {
			c.node(CodeBadQuorum, n.ID, "join.n", "use 1 up to the number of in-edges", "a quorum of %d out of %d in-edges", n.Join.N, len(n.in))
		}
		n.multi = p.multiKeys(n.in)
	}
	return arcs, whole
}

// multiKeys are the keys under which two or more of the edges carry their values.
func (p *Program) multiKeys(edges []int32) map[string]bool {
	if len(edges) < 2 {
		return nil
	}
	var once, twice map[string]bool
	for _, ei := range edges {
		e := &p.edges[ei]
		if e.mode != KeyPassDown {
			continue
		}
		if once == nil {
			once = map[string]bool{}
		}
		if once[e.key] {
			if twice == nil {
				twice = map[string]bool{}
			}
			twice[e.key] = true
		}
		once[e.key] = true
	}
	return twice
}

func (p *Program) findLoops(c *checker, arcs []arc) {
	anyJoin := make([]bool, len(p.nodes))
	for i := range p.nodes {
		anyJoin[i] = p.nodes[i].Join.Mode == Any
	}
	p.origins = c.origins()
	s, faults := findShape(c.ctx, len(p.nodes), arcs, anyJoin, p.inboxes, p.origins)
	for _, f := range faults {
		c.loopFault(f)
	}
	if s == nil {
		return
	}
	p.regions, p.topo = s.regions, s.topo
	for i := range p.nodes {
		p.nodes[i].region = s.nodeOf[i]
		if len(p.nodes[i].in) == 0 && p.nodes[i].inbox == nil {
			p.starts = append(p.starts, int32(i))
		}
	}
	for i, a := range arcs {
		if p.edges[i].scope = -1; !a.message {
			p.edges[i].scope = s.scope(a)
		}
	}
	p.confine()
	for i := range p.regions {
		if r := &p.regions[i]; r.head >= 0 {
			p.nodes[r.head].multiBack = p.multiKeys(r.backs)
		}
	}
	p.findInboxes(c, arcs)
	c.checkExits(p)
}

// maxNamed bounds how many nodes one fault names.
const maxNamed = 20

func (c *checker) loopFault(f loopFault) {
	var ids []string
	for _, v := range f.nodes[:min(len(f.nodes), maxNamed)] {
		ids = append(ids, c.g.Nodes[v].ID)
	}
	if more := len(f.nodes) - len(ids); more > 0 {
		ids = append(ids, fmt.Sprintf("(%d more)", more))
	}
	switch f.code {
	case CodeCycle:
		c.add(Fault{Code: f.code, Node: ids[0], Message: "the edges form a cycle: " + strings.Join(ids, " -> ") + " -> " + ids[0],
			Hint: "drop an edge, or declare the one that closes a loop with kind BACK and a condition"})
	case CodeNotALoop:
		e := &c.g.Edges[f.edge]
		c.edge(f.code, e, "kind", "make it a DATA edge", "%q does not lead to %q, so the edge closes no loop", e.To, e.From)
	case CodeTooLarge:
		c.edge(f.code, &c.g.Edges[f.edge], "kind", "use fewer loops", "the loops are nested more than %d deep, or too large together", maxLoopDepth)
	default:
		c.edge(f.code, &c.g.Edges[f.edge], "kind", "enter the loop through the BACK edge's target only, or give every join in it the mode ANY",
			"the loop over %s can be entered at more than one node", strings.Join(ids, ", "))
	}
}

// number gives nodes and edges their places in the frames of their regions.
func (p *Program) number() {
	p.localNode, p.localEdge = make([]int32, len(p.nodes)), make([]int32, len(p.edges))
	for i := range p.regions {
		r := &p.regions[i]
		for k, v := range r.nodes {
			p.localNode[v] = int32(k)
		}
		for k, e := range r.edges {
			p.localEdge[e] = int32(k)
		}
		for _, g := range r.expanded {
			for k, v := range g.nodes {
				p.localNode[v] = int32(len(r.nodes) + k)
			}
			for k, e := range g.edges {
				p.localEdge[e] = int32(len(r.edges) + k)
			}
		}
	}
}

// backoff is the pause before attempt next. It depends on the journal alone: on attempt numbers and a hash
// instead of random numbers.
func (n *pnode) backoff(next int, seed uint64) time.Duration {
	first, limit, factor, jitter := time.Duration(n.Retry.InitialBackoff), time.Duration(n.Retry.MaxBackoff), n.Retry.Multiplier, n.Retry.Jitter
	def(&first, time.Second)
	def(&limit, time.Minute)
	def(&factor, 2)
	def(&jitter, 0.2)
	d := float64(first)
	for i := 2; i < next && d < float64(limit); i++ {
		d *= factor
	}
	d = min(d, float64(limit))
	if jitter > 0 {
		d -= d * jitter * float64(seed>>11) / (1 << 53)
	}
	return time.Duration(d)
}

func (n *pnode) timeouts() (attempt, idle time.Duration) {
	return time.Duration(n.Timeout), time.Duration(n.IdleTimeout)
}
