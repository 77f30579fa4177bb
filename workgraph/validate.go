package workgraph

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Codes of faults. They are stable, because programs and models act on them.
const (
	CodeEmptyGraph     = "EMPTY_GRAPH"
	CodeTooLarge       = "TOO_LARGE"
	CodeBadID          = "BAD_ID"
	CodeReservedID     = "RESERVED_ID"
	CodeDuplicateNode  = "DUPLICATE_NODE"
	CodeUnknownNode    = "UNKNOWN_NODE"
	CodeDuplicateEdge  = "DUPLICATE_EDGE"
	CodeSelfLoop       = "SELF_LOOP"
	CodeCycle          = "CYCLE"
	CodeNotALoop       = "BACK_EDGE_NOT_A_LOOP"
	CodeIrreducible    = "IRREDUCIBLE_LOOP"
	CodeNoExit         = "LOOP_WITHOUT_EXIT"
	CodeNoActor        = "NO_ACTOR"
	CodeUnknownActor   = "UNKNOWN_ACTOR"
	CodeUnknownArg     = "UNKNOWN_ARGUMENT"
	CodeBadArg         = "BAD_ARGUMENT"
	CodeMissingArg     = "MISSING_ARGUMENT"
	CodeBadExpression  = "BAD_EXPRESSION"
	CodeBadSchema      = "BAD_SCHEMA"
	CodeUnused         = "FIELD_NOT_USED"
	CodeBadValue       = "BAD_VALUE"
	CodeBadJSON        = "BAD_JSON"
	CodeBadQuorum      = "BAD_QUORUM"
	CodeNoRoute        = "ROUTE_WITHOUT_ERROR_EDGE"
	CodeErrorEdge      = "ERROR_EDGE_WITHOUT_ROUTE"
	CodeInboxCycle     = "INBOX_CYCLE"
	CodeNoStart        = "NOTHING_STARTS"
	CodeUnreachable    = "INBOX_UNREACHABLE"
	CodeEndless        = "CYCLE_WITHOUT_END"
	CodeBeforeAnswer   = "STARTS_BEFORE_ANSWER"
	CodeCacheNotPure   = "CACHE_NOT_PURE"
	CodeCacheNotKept   = "CACHE_NOT_KEPT"
	CodeUnknownNodeRef = "UNKNOWN_NODE_REFERENCE"
	CodeNotBefore      = "NODE_NOT_BEFORE"
	CodeTooDeep        = "TOO_DEEP"
	CodeMoreFaults     = "MORE_FAULTS"
)

// MaxNodes and MaxEdges bound one graph; MaxIDLen bounds the bytes of an id.
const (
	MaxNodes = 200_000
	MaxEdges = 1_000_000
	MaxIDLen = 256
)

// Fault is one reason why a graph cannot run. Code is stable. The fields that describe the place are set as
// far as they apply.
type Fault struct {
	Code    string `json:"code"`
	Node    string `json:"node,omitempty"`
	From    string `json:"from,omitempty"`
	To      string `json:"to,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// String reads "CODE at place: message (hint)".
func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(f.Code)
	switch {
	case f.Node != "":
		fmt.Fprintf(&b, " at node %q", f.Node)
	case f.From != "" || f.To != "":
		fmt.Fprintf(&b, " at edge %q -> %q", f.From, f.To)
	}
	if f.Field != "" {
		fmt.Fprintf(&b, " field %s", f.Field)
	}
	fmt.Fprintf(&b, ": %s", f.Message)
	if f.Hint != "" {
		fmt.Fprintf(&b, " (%s)", f.Hint)
	}
	return b.String()
}

// Faults is all faults of a graph as one error.
type Faults []Fault

// Error lists the faults, one per line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].String()
	}
	return strings.Join(lines, "\n")
}

// MaxFaults bounds how many faults of one graph are listed. One more fault counts the rest.
const MaxFaults = 100

// Validate returns the faults of g, at most MaxFaults and one that counts the rest: those of nodes and edges
// in declared order, then those of the whole graph. No fault means that Compile succeeds. A nil actors skips
// the checks that need them. The error is that of ctx if it ended first.
func Validate(ctx context.Context, g *Graph, actors ActorSet) ([]Fault, error) {
	_, faults, err := build(&checker{ctx: ctx, actors: actors}, g)
	return faults, err
}

// ValidateFor is Validate for runs with this input.
func ValidateFor(ctx context.Context, g *Graph, actors ActorSet, in *Input) ([]Fault, error) {
	_, faults, err := build(&checker{ctx: ctx, actors: actors, input: in}, g)
	return faults, err
}

// ValidatePart is Validate for a graph that will be inserted into another one and may refer to its nodes. It
// returns the effects of the nodes.
func ValidatePart(ctx context.Context, g *Graph, actors ActorSet) ([]Effect, []Fault, error) {
	p, faults, err := build(&checker{ctx: ctx, actors: actors, outer: func(string) (declared, before bool) { return true, true }}, g)
	if len(faults) > 0 || err != nil {
		return nil, faults, err
	}
	effects := make([]Effect, len(p.nodes))
	for i := range p.nodes {
		effects[i] = p.nodes[i].Effect
	}
	return effects, nil, nil
}

// checker collects faults while a program is built.
type checker struct {
	ctx    context.Context //nolint:containedctx // it lives as long as the one call that it is for
	g      *Graph
	actors ActorSet
	faultList
	index map[string]int32
	// folded finds an id without its letter case and surrounding space. It is made on first use.
	folded map[string]int32
	exprs  map[string]*Expr
	// schemas are those of checks, by text. The counts are of all schemas that were compiled for this graph.
	schemas                              map[string]*Schema
	schemaCount, schemaBytes, subschemas int
	// patternSteps are the instructions of all patterns. It is valid once counted is true.
	patternSteps int
	counted      bool
	// input is the input of the run, if it is known.
	input *Input
	// uses are the places of expressions that read nodes or the input.
	uses []exprUse
	// senders are those that inboxes name, by node.
	senders map[int32]map[string]bool
	// expanded allows ids that expansions have made. outer, for a graph that will be part of another one,
	// reports whether the enclosing graph declares a node and whether the node comes before.
	expanded bool
	outer    func(id string) (declared, before bool)
	// argSchemas are the schemas of actors' arguments. needs are required arguments that nodes do not give
	// themselves. mayExpand and approves are about the last checked node.
	argSchemas map[string]*argSchema
	needs      []need
	mayExpand  bool
	approves   bool
	// unsure are the nodes whose inputs are not known, because an edge or an id is at fault.
	unsure map[int32]bool
}

// doubt marks a node as unsure.
func (c *checker) doubt(i int32) {
	if c.unsure == nil {
		c.unsure = map[int32]bool{}
	}
	c.unsure[i] = true
}

// faultList holds the first faults of one graph and the number of the others.
type faultList struct {
	faults []Fault
	more   int
}

// add records a fault, or counts it if there are enough.
func (l *faultList) add(f Fault) {
	if len(l.faults) == MaxFaults {
		l.more++
		return
	}
	f.Message, f.Hint = clipText(f.Message, 2*maxFaultText), clipText(f.Hint, maxFaultText)
	l.faults = append(l.faults, f)
}

// full reports whether there are enough faults and counts one more then, so that the caller need not word it.
func (l *faultList) full() bool {
	if len(l.faults) < MaxFaults {
		return false
	}
	l.more++
	return true
}

// all are the faults. The last one counts those that are not listed.
func (l *faultList) all() []Fault {
	if l.more == 0 {
		return l.faults
	}
	return append(l.faults, Fault{Code: CodeMoreFaults, Message: fmt.Sprintf("and %d more faults", l.more), Hint: "mend these and ask again"})
}

func (c *checker) node(code, id, field, hint, format string, args ...any) {
	if c.full() {
		return
	}
	c.add(Fault{Code: code, Node: id, Field: field, Hint: hint, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) edge(code string, e *Edge, field, hint, format string, args ...any) {
	if c.full() {
		return
	}
	c.add(Fault{Code: code, From: e.From, To: e.To, Field: field, Hint: hint, Message: fmt.Sprintf(format, args...)})
}

// idFault says what is wrong with an id. It is empty if nothing is.
func idFault(id string) (code, msg string) {
	switch {
	case id == "":
		return CodeBadID, "the id is empty"
	case len(id) > MaxIDLen:
		return CodeBadID, fmt.Sprintf("the id is longer than %d bytes", MaxIDLen)
	case !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl):
		return CodeBadID, "the id holds control characters or is not UTF-8"
	case strings.TrimSpace(id) != id:
		return CodeBadID, "the id begins or ends with space"
	case strings.ContainsAny(id, "#/"):
		return CodeReservedID, "# and / are reserved for ids that the machine makes"
	}
	return "", ""
}

// idFault also allows ids that expansions have made, if c.expanded is set.
func (c *checker) idFault(id string) (code, msg string) {
	code, msg = idFault(id)
	if code != CodeReservedID || !c.expanded {
		return code, msg
	}
	for at := id; ; {
		from, _, given, ok := expansionID(at)
		if !ok {
			return idFault(at)
		}
		if code, msg = idFault(given); code != "" {
			return code, msg
		}
		at = from
	}
}

func (c *checker) checkNode(i int32) {
	n := &c.g.Nodes[i]
	if code, msg := c.idFault(n.ID); code != "" {
		c.node(code, n.ID, "id", "use letters, digits, _ and -", "%s (node number %d)", msg, i+1)
	}
	if j, dup := c.index[n.ID]; dup {
		c.doubt(i)
		c.node(CodeDuplicateNode, n.ID, "id", "give each node an id of its own", "nodes number %d and %d share the id", j+1, i+1)
	} else {
		c.index[n.ID] = i
	}
	c.checkActor(i, n)
	for k, v := range n.Args {
		if fault := ValueFault(v); fault != "" {
			c.node(CodeBadJSON, n.ID, fmt.Sprintf("args[%d]", k), "", "the argument %s", fault)
		}
	}
	for _, k := range sortedKeys(n.Named) {
		if fault := ValueFault(n.Named[k]); fault != "" {
			c.node(CodeBadJSON, n.ID, "named."+k, "", "the argument %s", fault)
		}
	}
	c.passDown(n.PassDown, func(code, field, hint, msg string) { c.node(code, n.ID, field, hint, "%s", msg) })
	c.checkPolicies(n)
	c.checkTrigger(n)
}

// checkActor finds the node's actor and fills in the effect.
func (c *checker) checkActor(i int32, n *Node) {
	c.mayExpand, c.approves = true, false
	if n.Actor == "" {
		c.node(CodeNoActor, n.ID, "actor", "name the actor that does the work", "the node names no actor")
		return
	}
	if c.actors == nil {
		if n.Effect == "" {
			n.Effect = Unsafe
		}
		return
	}
	info, ok := c.actors.ActorInfo(n.Actor)
	if !ok {
		c.node(CodeUnknownActor, n.ID, "actor", "use one of the registered actors", "no actor is called %q", n.Actor)
		return
	}
	if n.Effect == "" && info.EffectOf != nil {
		n.Effect = info.EffectOf(n)
	}
	if n.Effect == "" {
		n.Effect = info.Effect
	}
	if n.Effect == "" {
		n.Effect = Unsafe
	}
	c.mayExpand = !info.NeverExpands
	c.approves = info.Approves != nil && info.Approves(n)
	if n.Cache != nil && info.Uncached != nil {
		if why := info.Uncached(n); why != "" {
			c.node(CodeCacheNotKept, n.ID, "cache", "leave the cache out", "outcomes of the actor %q are not kept: %s", n.Actor, why)
		}
	}
	c.checkArguments(i, n, &info)
}

// checkArg checks one of the node's own arguments against the actor's schema.
func (c *checker) checkArg(n *Node, name string, takes *argSchema) {
	s, ok := takes.schemas[name]
	if !ok {
		s, _ = c.compileSchema(takes.properties[name]) // the actor checks a part that cannot stand alone
		takes.schemas[name] = s
	}
	if s == nil || !json.Valid(n.Named[name]) {
		return
	}
	if err := s.Check(c.ctx, n.Named[name]); err != nil && c.ctx.Err() == nil {
		c.node(CodeBadArg, n.ID, "named."+name, "see the schema of "+n.Actor+" in the list of actors", "actor %q does not take this: %v", n.Actor, err)
	}
}

func (c *checker) passDown(p PassDown, fault func(code, field, hint, msg string)) {
	const field = "result_pass_down_mode"
	switch p.Mode {
	case "", NoPassDown, ResultAsFirstArg, ResultAsLeadingArgs:
		if p.Key != "" || p.Expr != "" {
			fault(CodeBadValue, field, "set the mode to KEY or MERGE, or drop them", "key and expr belong to the modes KEY and MERGE")
		}
	case KeyPassDown:
		if p.Key == "" {
			fault(CodeBadValue, field+".key", "name the argument", "KEY needs a key")
		}
	case MergePassDown:
		if p.Expr == "" {
			fault(CodeBadValue, field+".expr", "give a CEL map {args, named}", "MERGE needs an expr")
		}
	default:
		fault(CodeBadValue, field+".mode", "one of NO_PASS_DOWN, RESULT_AS_FIRST_ARG, RESULT_AS_LEADING_ARGS, KEY, MERGE",
			fmt.Sprintf("unknown mode %q", p.Mode))
	}
}

// oneOf reports a value that is not in its list. The empty value stands for the default.
func oneOf[T ~string](c *checker, id, field string, v T, list ...T) {
	if v == "" {
		return
	}
	names := make([]string, len(list))
	for i, l := range list {
		if v == l {
			return
		}
		names[i] = string(l)
	}
	c.node(CodeBadValue, id, field, "one of "+strings.Join(names, ", "), "unknown value %q", string(v))
}

func notNegative[T int | time.Duration](c *checker, id, field string, v T) {
	if v < 0 {
		c.node(CodeBadValue, id, field, "use zero for the default", "%v is negative", v)
	}
}

func (c *checker) checkPolicies(n *Node) {
	if n.Thread != "" {
		c.node(CodeUnused, n.ID, "thread", "drop it: an agent learns of earlier work from its arguments", "no actor works on a thread, so that it would do nothing")
	}
	oneOf(c, n.ID, "effect", n.Effect, Pure, Idempotent, Unsafe)
	oneOf(c, n.ID, "join.mode", n.Join.Mode, All, Any, Quorum)
	oneOf(c, n.ID, "join.losers", n.Join.Losers, CancelLosers, FinishLosers)
	oneOf(c, n.ID, "on_error.action", n.OnError.Action, Fail, Continue, Fallback, Route)
	notNegative(c, n.ID, "retry.max_attempts", n.Retry.MaxAttempts)
	notNegative(c, n.ID, "retry.initial_backoff", time.Duration(n.Retry.InitialBackoff))
	notNegative(c, n.ID, "retry.max_backoff", time.Duration(n.Retry.MaxBackoff))
	notNegative(c, n.ID, "timeout", time.Duration(n.Timeout))
	notNegative(c, n.ID, "idle_timeout", time.Duration(n.IdleTimeout))
	switch m := n.Retry.Multiplier; {
	case math.IsNaN(m) || math.IsInf(m, 0):
		c.node(CodeBadValue, n.ID, "retry.multiplier", "use 1 or more", "%v is not a number to multiply by", m)
	case m != 0 && m < 1:
		c.node(CodeBadValue, n.ID, "retry.multiplier", "use 1 or more", "%v would shrink the back-off", m)
	}
	if j := n.Retry.Jitter; !(j >= 0 && j <= 1) && j != Unlimited {
		c.node(CodeBadValue, n.ID, "retry.jitter", "use 0 to 1, or -1 for none", "%v is out of range", j)
	}
	if n.MaxVisits < Unlimited {
		c.node(CodeBadValue, n.ID, "max_visits", "use -1 for no limit", "%d is out of range", n.MaxVisits)
	}
	if n.Join.Mode != Quorum && n.Join.N != 0 {
		c.node(CodeBadQuorum, n.ID, "join.n", "set join.mode to QUORUM, or drop n", "n belongs to the mode QUORUM")
	}
	switch {
	case n.OnError.Action == Fallback && n.OnError.Value == nil: // the error is the value
	case n.OnError.Action == Fallback && !json.Valid(n.OnError.Value):
		c.node(CodeBadJSON, n.ID, "on_error.value", "give the value to go on with, or none to go on with the error", "the value of FALLBACK is no JSON")
	case n.OnError.Action == Fallback && tooDeep(n.OnError.Value):
		c.node(CodeBadJSON, n.ID, "on_error.value", "", "the value %s", ValueFault(n.OnError.Value))
	case n.OnError.Action != Fallback && len(n.OnError.Value) > 0:
		c.node(CodeBadValue, n.ID, "on_error.value", "set on_error.action to FALLBACK, or drop the value", "the value belongs to FALLBACK")
	}
	if n.Cache != nil {
		if n.Cache.TTL <= 0 {
			c.node(CodeBadValue, n.ID, "cache.ttl", "use a positive duration", "the ttl is not positive")
		}
		oneOf(c, n.ID, "cache.scope", n.Cache.Scope, CacheForChat, CacheForUser, CacheForNamespace)
		if n.Effect == Unsafe {
			c.node(CodeCacheNotPure, n.ID, "cache", "set the effect to PURE or IDEMPOTENT if that is true", "UNSAFE nodes may not be cached")
		}
	}
	if m := n.Map; m != nil {
		oneOf(c, n.ID, "map.on_item_error", m.OnItemError, FailFast, ContinueItems, QuorumItems)
		notNegative(c, n.ID, "map.max_parallel", m.MaxParallel)
		if m.MaxParallel > MaxParallelItems {
			c.node(CodeBadValue, n.ID, "map.max_parallel", "leave it empty, or write a smaller number", "max_parallel is %d, the limit is %d", m.MaxParallel, MaxParallelItems)
		}
		if (m.OnItemError == QuorumItems) != (m.Quorum > 0) || m.Quorum < 0 {
			c.node(CodeBadQuorum, n.ID, "map.quorum", "QUORUM needs a quorum of at least 1", "on_item_error and quorum do not fit")
		}
		if m.Over == "" {
			c.node(CodeBadValue, n.ID, "map.over", "give the CEL expression of the list", "the map has no list")
		}
	}
}

func (c *checker) checkEdge(i int, seen map[Edge]bool) (from, to int32, ok bool) {
	e := &c.g.Edges[i]
	from, okFrom := c.index[e.From]
	to, okTo := c.index[e.To]
	for _, end := range []struct {
		ok    bool
		id    string
		field string
	}{{okFrom, e.From, "from"}, {okTo, e.To, "to"}} {
		if !end.ok && !c.full() {
			c.edge(CodeUnknownNode, e, end.field, c.nearest(end.id), "there is no node %q", end.id)
		}
	}
	switch e.Kind {
	case DataEdge, ErrorEdge, BackEdge:
	default:
		c.edge(CodeBadValue, e, "kind", "one of DATA, ERROR, BACK", "unknown value %q", string(e.Kind))
	}
	c.passDown(e.PassDown, func(code, field, hint, msg string) { c.edge(code, e, field, hint, "%s", msg) })
	key := Edge{From: e.From, To: e.To, Kind: e.Kind}
	if seen[key] {
		c.edge(CodeDuplicateEdge, e, "", "join the conditions with || and keep one", "the edge is declared twice")
	}
	seen[key] = true
	if okFrom && from == to && okTo && e.Kind != BackEdge {
		c.edge(CodeSelfLoop, e, "kind", "set the kind to BACK for a one-node loop", "the edge leads back to its own node")
		return 0, 0, false
	}
	return from, to, okFrom && okTo
}

// nearest names the declared id that differs only in letter case or surrounding space, since models misspell
// ids like that.
func (c *checker) nearest(id string) string {
	if c.folded == nil {
		c.folded = make(map[string]int32, len(c.g.Nodes))
		for i := range c.g.Nodes {
			k := fold(c.g.Nodes[i].ID)
			if _, ok := c.folded[k]; !ok {
				c.folded[k] = int32(i)
			}
		}
	}
	if i, ok := c.folded[fold(id)]; ok {
		return fmt.Sprintf("did you mean %q?", c.g.Nodes[i].ID)
	}
	return "declare the node or drop the edge"
}

func fold(id string) string { return strings.ToLower(strings.TrimSpace(id)) }

func (c *checker) checkState() {
	for _, k := range sortedKeys(c.g.State) {
		v := c.g.State[k]
		field := "state." + k
		switch v.Reducer {
		case "", Replace, Append, AppendByID, Add:
		default:
			c.add(Fault{Code: CodeBadValue, Field: field + ".reducer", Message: fmt.Sprintf("unknown value %q", string(v.Reducer)),
				Hint: "one of REPLACE, APPEND, APPEND_BY_ID, ADD"})
			continue
		}
		if _, err := newStateVar(v); err != nil {
			c.add(Fault{Code: CodeBadValue, Field: field + ".initial", Message: err.Error(), Hint: "give a value that the reducer can work on"})
		}
	}
}

// checkExits requires a condition on every path around a declared loop.
func (c *checker) checkExits(p *Program) {
	ways := exitSearch{p: p, left: maxLoopWork}
	for i := range p.edges {
		e := &p.edges[i]
		if e.kind != BackEdge || e.when != nil || e.from == e.to {
			continue
		}
		if c.ctx.Err() != nil {
			return
		}
		if ways.unconditional(e.to, e.from) {
			c.edge(CodeNoExit, &c.g.Edges[i], "when", "give the BACK edge a condition under which the loop goes on",
				"nothing on the way around this loop can end it")
		}
		if ways.left < 0 {
			c.edge(CodeTooLarge, &c.g.Edges[i], "when", "give the BACK edges conditions, or use fewer loops", "the loops are too large together")
			return
		}
	}
}

// exitSearch finds the nodes that are reached without any condition, from one loop head after the other.
type exitSearch struct {
	p *Program
	// failing says that ERROR edges count as paths.
	failing bool
	// always says which conditions count as none. If it is nil, no condition does.
	always *constants
	// left is how many more nodes and edges may be visited. Below zero nothing is found any more.
	left int
	// found are the reached nodes by head.
	found map[int32]map[int32]bool
}

// unconditional reports whether a path without any condition leads from head to to. Only the loop itself is
// searched, because every path back to the head lies in it.
func (x *exitSearch) unconditional(head, to int32) bool {
	seen, ok := x.found[head]
	if !ok {
		seen = x.search(head)
		if x.found == nil {
			x.found = map[int32]map[int32]bool{}
		}
		x.found[head] = seen
	}
	return seen[to]
}

func (x *exitSearch) search(head int32) map[int32]bool {
	p := x.p
	if !x.always.holds(p.nodes[head].when) {
		return nil
	}
	loop := p.nodes[head].region
	seen := map[int32]bool{head: true}
	todo := []int32{head}
	for len(todo) > 0 && x.left >= 0 {
		v := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		x.left -= 1 + len(p.nodes[v].out)
		for _, ei := range p.nodes[v].out {
			e := &p.edges[ei]
			if (e.kind == DataEdge || x.failing && e.kind == ErrorEdge) && !e.message && !seen[e.to] && p.inLoop(e.to, loop) &&
				x.always.holds(e.when) && x.always.holds(p.nodes[e.to].when) {
				seen[e.to] = true
				todo = append(todo, e.to)
			}
		}
	}
	return seen
}

// inLoop reports whether the node lies in the loop, at any depth.
func (p *Program) inLoop(v, loop int32) bool {
	for r := p.nodes[v].region; r >= 0; r = p.regions[r].parent {
		if r == loop {
			return true
		}
	}
	return false
}
