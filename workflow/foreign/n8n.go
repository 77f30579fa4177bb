package foreign

import (
	"slices"
	"strconv"
	"strings"
)

// n8nNode is a node of a workflow of n8n.
type n8nNode struct {
	*value
	name, kind string
	// next are the ways on, by the number of the output, and parts are nodes that serve this one, such
	// as its tools and its model.
	next  [][]*n8nNode
	parts []*n8nNode
	// from are the ways in.
	from []n8nEdge
	// isPart says that the node serves others.
	isPart, seen, open bool
	// ends are the ids that stand for each output.
	ends []string
}

// n8nEdge is a way from the output of a node.
type n8nEdge struct {
	node *n8nNode
	port int
}

// trigger reports whether a node starts the workflow.
func (n *n8nNode) trigger() bool {
	return strings.HasSuffix(n.kind, "trigger") || slices.Contains([]string{"start", "webhook", "cron", "interval", "emailreadimap", "rssfeedread"}, n.kind)
}

// chooses are the kinds of nodes that give to one of their outputs.
var chooses = []string{"if", "switch", "textclassifier", "sentimentanalysis", "comparedatasets"}

const maxPorts = 100

func (b *builder) n8n(v *value) {
	b.name, b.about = v.get("name").str(), v.get("meta", "description").str()
	for _, tag := range v.get("tags").list() {
		if name := tag.get("name").str(); name != "" {
			b.tags = append(b.tags, name)
		} else if tag.str() != "" {
			b.tags = append(b.tags, tag.str())
		}
	}
	nodes, order := b.n8nNodes(v)
	b.n8nEdges(v.get("connections"), nodes)
	for _, n := range b.n8nOrder(order) {
		b.n8nStep(n)
	}
}

// n8nNodes are the nodes by name, those that start the workflow first.
func (b *builder) n8nNodes(v *value) (map[string]*n8nNode, []*n8nNode) {
	nodes := map[string]*n8nNode{}
	var starts, others []*n8nNode
	for _, item := range v.get("nodes").list() {
		kind := item.get("type").str()
		n := &n8nNode{value: item, name: item.get("name").str(), kind: strings.ToLower(kind[strings.LastIndexByte(kind, '.')+1:])}
		switch {
		case n.kind == "stickynote" || !item.is(mapping):
		case nodes[n.name] != nil:
			b.report("node", n.name, "there are two nodes of the name; the second one is left out")
		case n.trigger():
			nodes[n.name] = n
			starts = append(starts, n)
		default:
			nodes[n.name] = n
			others = append(others, n)
		}
	}
	return nodes, append(starts, others...)
}

func (b *builder) n8nEdges(v *value, nodes map[string]*n8nNode) {
	if !v.is(mapping) {
		return
	}
	for _, name := range v.keys {
		from := nodes[name]
		for _, kind := range keysOf(v.values[name]) {
			for port, targets := range v.values[name].values[kind].list() {
				for _, target := range targets.list() {
					to := nodes[target.get("node").str()]
					switch {
					case from == nil || to == nil:
						b.report("connection", name+" -> "+target.get("node").str(), "one of its ends is not there")
					case kind != "main":
						from.isPart = true
						to.parts = append(to.parts, from)
					case port < maxPorts:
						for len(from.next) <= port {
							from.next = append(from.next, nil)
						}
						if len(from.next[port]) < maxSteps/10 && !slices.Contains(from.next[port], to) {
							from.next[port] = append(from.next[port], to)
						}
					}
				}
			}
		}
	}
}

func keysOf(v *value) []string {
	if v == nil {
		return nil
	}
	return v.keys
}

// n8nOrder are the nodes so that none stands before what it follows. Ways back are cut and told.
func (b *builder) n8nOrder(nodes []*n8nNode) []*n8nNode {
	var out []*n8nNode
	var visit func(n *n8nNode)
	visit = func(n *n8nNode) {
		n.seen, n.open = true, true
		for port := range n.next {
			for _, to := range n.next[port] {
				if to.open {
					b.report("loop", n.name+" -> "+to.name, "the way back is left out: what it repeats runs once")
					continue
				}
				to.from = append(to.from, n8nEdge{n, port})
				if !to.seen {
					visit(to)
				}
			}
		}
		n.open = false
		out = append(out, n)
	}
	for _, n := range nodes { // the triggers first, so that a loop is cut at its end
		if !n.seen {
			visit(n)
		}
	}
	slices.Reverse(out)
	return out
}

// follows are the ids that a node follows.
func (n *n8nNode) follows() []string {
	out := []string{}
	for _, e := range n.from {
		if e.port < len(e.node.ends) {
			out = append(out, e.node.ends[e.port])
		}
	}
	return out
}

func (b *builder) n8nStep(n *n8nNode) {
	flows := len(n.from) > 0 || slices.ContainsFunc(n.next, func(to []*n8nNode) bool { return len(to) > 0 })
	if n.isPart && !flows {
		b.report("part", n.name, "it serves an agent or another node; only tools are carried over")
		return
	}
	if n.trigger() && len(n.from) == 0 {
		b.report("trigger", n.name, "the workflow is started by a call; with several triggers, what follows each of them runs")
		return
	}
	if n.get("credentials").is(mapping) {
		b.report("credentials", n.name, "give them to the actor on the server")
	}
	needs := n.follows()
	parameters := n.get("parameters")
	if n.get("disabled").str() == "true" {
		b.report("step", n.name, "it is disabled, and does nothing")
		n.all(b.pass(n.name, n.name, needs))
		return
	}
	switch {
	case slices.Contains(chooses, n.kind):
		b.report("condition", n.name, "the actor must say which output it chooses, as `route`, from 0 on; only one is taken")
		var names []string
		for port := range max(1, len(n.next)) {
			names = append(names, strconv.Itoa(port))
		}
		n.ends = b.decide(n.name, n.name, n.kind, needs, names, "", parameters)
		return
	case len(n.next) > 1 && n.kind != "splitinbatches":
		b.report("condition", n.name, "what follows each of its outputs runs")
	}
	n.all(b.n8nPlain(n, needs, parameters))
}

// all lets an id stand for all outputs.
func (n *n8nNode) all(id string) {
	for range max(1, len(n.next)) {
		n.ends = append(n.ends, id)
	}
}

// n8nPlain adds a node with one output.
func (b *builder) n8nPlain(n *n8nNode, needs []string, parameters *value) string {
	url := parameters.get("url")
	switch n.kind {
	case "noop":
		return b.pass(n.name, n.name, needs)
	case "merge":
		return b.add(n.name, n.name, "merge", needs)
	case "httprequest":
		if url.str() != "" && !hasExpression(url) {
			method := parameters.get("method")
			if method.str() == "" || hasExpression(method) {
				method = nil
			}
			return b.add(n.name, n.name, "http", needs, field{"url", url}, field{"method", method})
		}
	case "wait":
		unit := parameters.get("unit").str()
		if amount := parameters.get("amount"); isAmount(amount) && isUnit(unit) {
			return b.add(n.name, n.name, "wait", needs, field{"delay", amount}, field{"delay_unit", str(unit)})
		}
	case "agent":
		return b.n8nAgent(n, needs, parameters)
	}
	return b.call(n.name, n.name, n.kind, needs, parameters)
}

func (b *builder) n8nAgent(n *n8nNode, needs []string, parameters *value) string {
	prompt := parameters.get("text")
	if prompt.str() == "" || hasExpression(prompt) {
		b.report("expression", n.name, "its prompt is computed there; the name of the step stands for it")
		prompt = str(strings.NewReplacer("{{", "{ {", "}}", "} }").Replace(n.name))
	}
	tools, names := &value{kind: list}, map[string]bool{}
	for _, part := range n.parts {
		if !strings.Contains(part.kind, "tool") || len(tools.items) == maxPorts {
			continue
		}
		name := strings.Trim(notID.ReplaceAllString(part.name, "_"), "_")
		if name = name[:min(len(name), 64)]; name == "" || names[name] {
			name = "tool_" + strconv.Itoa(len(tools.items)+1)
		}
		names[name] = true
		tool := newMapping()
		tool.put("actor", str(b.actor(part.kind)))
		tool.put("name", str(name))
		tools.items = append(tools.items, tool)
	}
	if len(tools.items) == 0 {
		tools = nil
	}
	return b.add(n.name, n.name, "agent", needs, field{"prompt", prompt}, field{"tools", tools})
}
