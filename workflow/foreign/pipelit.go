package foreign

import (
	"slices"
	"strconv"
	"strings"
)

// Pipelit has two forms: steps in their order, and nodes with edges between them. Both become nodes, and
// edges as Pipelit makes them of steps: one follows the one before it, unless a switch names it.

const pipelitTrigger = "trigger_"

func (b *builder) pipelit(v *value) {
	b.name, b.about, b.tags = v.get("name").str(), v.get("description").str(), v.get("tags").texts()
	var nodes []*n8nNode
	if v.get("nodes").is(list) {
		nodes = b.pipelitNodes(v)
	} else {
		nodes = b.pipelitSteps(v)
	}
	for _, n := range b.n8nOrder(nodes) {
		b.pipelitStep(n)
	}
}

// isPipelit reports whether a definition is one of Pipelit, in either form.
func isPipelit(v *value) bool {
	if nodes := v.get("nodes").list(); len(nodes) > 0 {
		return v.get("edges").is(list) && nodes[0].get("component_type").str() != ""
	}
	steps := v.get("steps").list()
	return len(steps) > 0 && v.get("name") != nil && steps[0].get("type").str() != ""
}

// pipelitSteps are the nodes of steps.
func (b *builder) pipelitSteps(v *value) []*n8nNode {
	if kind := v.get("trigger"); kind.str() != "" && !slices.Contains([]string{"none", "manual", "workflow"}, kind.str()) || kind.is(mapping) {
		b.report("trigger", "trigger", "the workflow is started by a call")
	}
	if v.get("model") != nil {
		b.report("model", "model", "it is left out: the model is that of the server")
	}
	var nodes []*n8nNode
	byID := map[string]*n8nNode{}
	for i, item := range v.get("steps").list() {
		n := &n8nNode{value: item, kind: item.get("type").str(), name: item.get("id").str()}
		if n.name == "" {
			n.name = n.kind + "_" + strconv.Itoa(i+1)
		}
		if !item.is(mapping) || byID[n.name] != nil {
			b.report("step", n.name, "it is no step, or the second one of its id; it is left out")
			continue
		}
		byID[n.name] = n
		nodes = append(nodes, n)
	}
	claimed := map[*n8nNode]bool{}
	for _, n := range nodes {
		if n.kind == "switch" {
			b.pipelitRoutes(n, byID, claimed)
		}
	}
	for i, n := range nodes {
		switch {
		case i == 0 || claimed[n]:
		case nodes[i-1].kind == "switch":
			b.report("order", n.name, "nothing leads to it behind the switch; it begins with the workflow")
		default:
			nodes[i-1].next = [][]*n8nNode{{n}}
		}
	}
	return nodes
}

// pipelitRoutes are the ways on from a switch: one of each rule, and the last one for the rest.
func (b *builder) pipelitRoutes(n *n8nNode, byID map[string]*n8nNode, claimed map[*n8nNode]bool) {
	lead := func(route string) {
		var to []*n8nNode
		switch target := byID[route]; {
		case target != nil:
			claimed[target] = true
			to = []*n8nNode{target}
		case route != "":
			b.report("connection", n.name+" -> "+route, "one of its ends is not there")
		}
		n.next = append(n.next, to)
	}
	rules := n.get("rules").list()
	for _, rule := range rules[:min(len(rules), maxPorts)] {
		lead(rule.get("route").str())
	}
	lead(n.get("default").str())
}

// pipelitNodes are the nodes of an exported workflow.
func (b *builder) pipelitNodes(v *value) []*n8nNode {
	var starts, others []*n8nNode
	byID := map[string]*n8nNode{}
	for _, item := range v.get("nodes").list() {
		config := newMapping()
		for _, from := range []*value{item.get("config"), item.get("config", "extra_config")} {
			for _, key := range keysOf(from) {
				config.put(key, from.values[key])
			}
		}
		n := &n8nNode{value: config, name: item.get("node_id").str(), kind: item.get("component_type").str()}
		switch {
		case byID[n.name] != nil:
			b.report("node", n.name, "there are two nodes of the name; the second one is left out")
			continue
		case strings.HasPrefix(n.kind, pipelitTrigger):
			starts = append(starts, n)
		default:
			others = append(others, n)
		}
		if byID[n.name] = n; n.kind == "switch" {
			n.next = make([][]*n8nNode, min(len(config.get("rules").list()), maxPorts)+1)
		}
	}
	for _, e := range v.get("edges").list() {
		b.pipelitEdge(e, byID[e.get("source_node_id").str()], byID[e.get("target_node_id").str()])
	}
	return append(starts, others...)
}

func (b *builder) pipelitEdge(e *value, from, to *n8nNode) {
	label := e.get("edge_label").str()
	switch {
	case from == nil || to == nil:
		b.report("connection", e.get("source_node_id").str()+" -> "+e.get("target_node_id").str(), "one of its ends is not there")
	case label == "loop_body" || label == "loop_return":
		b.report("loop", from.name+" -> "+to.name, "the way is left out: what it repeats is not carried over")
	case label != "":
		from.isPart = true
		to.parts = append(to.parts, from)
	default:
		port := 0
		if from.kind == "switch" {
			rules := from.get("rules").list()
			port = slices.IndexFunc(rules, func(r *value) bool { return r.get("id").str() == e.get("condition_value").str() })
			if port < 0 || port >= len(from.next) {
				port = len(from.next) - 1
			}
		}
		for len(from.next) <= port {
			from.next = append(from.next, nil)
		}
		if !slices.Contains(from.next[port], to) && len(from.next[port]) < maxSteps/10 {
			from.next[port] = append(from.next[port], to)
		}
	}
}

func (b *builder) pipelitStep(n *n8nNode) {
	flows := len(n.from) > 0 || slices.ContainsFunc(n.next, func(to []*n8nNode) bool { return len(to) > 0 })
	switch {
	case n.isPart && !flows:
		b.report("part", n.name, "it serves an agent; only tools are carried over")
	case strings.HasPrefix(n.kind, pipelitTrigger):
		b.report("trigger", n.name, "the workflow is started by a call; with several triggers, what follows each of them runs")
	case n.kind == "switch":
		b.pipelitSwitch(n)
	default:
		n.all(b.pipelitPlain(n, n.follows()))
	}
}

// pipelitOperators are the comparisons that mean the same here, by their names there.
var pipelitOperators = map[string]string{
	"": "equals", "equals": "equals", "not_equals": "not_equals", "contains": "contains", "not_contains": "not_contains", "gt": "gt", "gte": "gte", "lt": "lt", "lte": "lte",
	"greater_than": "gt", "less_than": "lt", "is_empty": "is_empty", "is_not_empty": "is_not_empty", "exists": "exists", "does_not_exist": "not_exists",
}

// pipelitRule is a rule with the field that it reads here. ok is false for one that cannot be carried over.
func (b *builder) pipelitRule(r *value) (rule *value, ok bool) {
	operator, known := pipelitOperators[r.get("operator").str()]
	path := strings.Split(strings.TrimPrefix(r.get("field").str(), "node_outputs."), ".")
	ids := b.steps[path[0]]
	if b.cautious || !known || len(ids) == 0 {
		return nil, false
	}
	field := ids[0]
	for i, part := range path[1:] {
		if i == 0 && part == "output" {
			continue // all of the result
		}
		if notID.MatchString(part) || part == "" {
			return nil, false
		}
		field += "." + part
	}
	rule = newMapping()
	rule.put("field", str(field))
	rule.put("operator", str(operator))
	if alone := strings.HasPrefix(operator, "is_") || strings.HasSuffix(operator, "exists"); !alone {
		given := r.get("value")
		if given == nil || given.kind != text && given.kind != scalar || hasExpression(given) {
			return nil, false
		}
		rule.put("value", given)
	}
	return rule, true
}

// pipelitRules are the rules of a step. ok is false if one of them cannot be carried over.
func (b *builder) pipelitRules(n *n8nNode) (out []*value, ok bool) {
	rules := n.get("rules").list()
	for _, r := range rules[:min(len(rules), maxPorts)] {
		rule, ok := b.pipelitRule(r)
		if !ok {
			return nil, false
		}
		out = append(out, rule)
	}
	return out, len(out) > 0
}

// pipelitSwitch adds a switch: one of this language if all of its rules are carried over.
func (b *builder) pipelitSwitch(n *n8nNode) {
	var choices []choice
	rules, ok := b.pipelitRules(n)
	for i, rule := range rules {
		choices = append(choices, choice{name: n.name + "_rule_" + strconv.Itoa(i+1), rule: rule})
	}
	if ok {
		n.ends = b.choose(n.name, n.name, n.follows(), choices, n.name+"_rest")
		return
	}
	b.report("condition", n.name, "the actor must say which rule holds, as `route`, from 0 on")
	var names []string
	for port := range max(1, len(n.next)-1) {
		names = append(names, strconv.Itoa(port))
	}
	n.ends = b.decide(n.name, n.name, n.kind, n.follows(), names, "rest", nil)
}

// words are the text of the first key that has one without expressions. Without one the name of the step
// stands for it, which is told.
func (b *builder) words(n *n8nNode, keys ...string) *value {
	for _, key := range keys {
		if v := n.get(key); v.str() != "" && !hasExpression(v) {
			return str(v.str())
		}
	}
	b.report("text", n.name, "its text is computed there, or there is none; the name of the step stands for it")
	return str(strings.NewReplacer("{{", "{ {", "}}", "} }").Replace(n.name))
}

// pipelitPlain adds a step with one way on.
func (b *builder) pipelitPlain(n *n8nNode, needs []string) string {
	switch n.kind {
	case "agent", "deep_agent":
		return b.pipelitAgent(n, needs)
	case "categorizer":
		names := unique(n.get("categories").texts())
		if long := slices.ContainsFunc(names, func(name string) bool { return len(name) > 200 || strings.TrimSpace(name) != name }); !long && len(names) > 1 && !hasExpression(n.get("categories")) {
			return b.add(n.name, n.name, "categorizer", needs, field{"prompt", b.words(n, "prompt", "system_prompt")}, field{"categories", strs(names[:min(len(names), maxPorts)])})
		}
	case "transform", "reply_chat":
		return b.add(n.name, n.name, n.kind, needs, field{"template", b.words(n, "template", "message", "system_prompt")})
	case "human":
		return b.add(n.name, n.name, "human", needs, field{"message", b.words(n, "message", "prompt")})
	case "merge":
		return b.add(n.name, n.name, "merge", needs)
	case "identify_user":
		return b.add(n.name, n.name, "identify_user", needs)
	case "http":
		if url := n.get("url"); url.str() != "" && !hasExpression(url) {
			return b.add(n.name, n.name, "http", needs, field{"url", url})
		}
	case "wait":
		for _, key := range []string{"delay", "duration"} {
			unit := n.get("delay_unit").str()
			if amount := n.get(key); isAmount(amount) && (unit == "" || isUnit(unit)) {
				if unit == "" {
					unit = "seconds"
				}
				return b.add(n.name, n.name, "wait", needs, field{"delay", amount}, field{"delay_unit", str(unit)})
			}
		}
	case "workflow":
		if slug := n.get("workflow").str(); slug != "" && !strings.ContainsAny(slug, "@{} \t\n") {
			b.report("version", n.name, "no version is named there; the first one is taken")
			return b.add(n.name, n.name, "workflow", needs, field{"workflow", str(slug + "@1")})
		}
	case "assertion":
		if rules, ok := b.pipelitRules(n); ok {
			return b.add(n.name, n.name, "assertion", needs, field{"rules", &value{kind: list, items: rules}})
		}
		b.report("condition", n.name, "the actor must check it")
	case "code":
		b.report("script", n.name, "the actor must run it: its language is not the one of scripts here")
	case "loop":
		b.report("loop", n.name, "its body is not carried over; the actor must do it for each item")
	}
	arguments := newMapping()
	for _, key := range []string{"code", "snippet", "over", "rules", "schema", "prompt", "categories", "method"} {
		if v := n.get(key); v != nil {
			arguments.put(key, v)
		}
	}
	return b.call(n.name, n.name, n.kind, needs, arguments)
}

// pipelitHere are tools that agents have here by the same name.
var pipelitHere = []string{"memory_read", "memory_write", "whoami", "workflow_create", "workflow_discover"}

func (b *builder) pipelitAgent(n *n8nNode, needs []string) string {
	tools, seen := &value{kind: list}, map[string]bool{}
	add := func(kind string) {
		kind = strings.TrimSpace(kind)
		name := notID.ReplaceAllString(b.actor(kind), "_")
		if kind == "" || seen[kind] || seen[name] || len(tools.items) == maxPorts {
			return
		}
		seen[kind], seen[name] = true, true
		switch {
		case slices.Contains(pipelitHere, kind):
			tools.items = append(tools.items, str(kind))
		default:
			tool := newMapping()
			tool.put("actor", str(b.actor(kind)))
			tools.items = append(tools.items, tool)
		}
	}
	for _, v := range n.get("tools").list() {
		if v.is(mapping) {
			if len(v.keys) > 1 {
				b.report("tool", n.name, "what the tool "+clip(v.get("type").str())+" has besides its type is left out")
			}
			add(v.get("type").str())
			continue
		}
		add(v.str())
	}
	for _, part := range n.parts {
		if part.kind != "ai_model" {
			add(part.kind)
		}
	}
	if len(tools.items) == 0 {
		tools = nil
	}
	if n.get("model") != nil {
		b.report("model", n.name, "it is left out: the model is that of the server")
	}
	var system, memory *value
	if v := n.get("system_prompt"); v.str() != "" && !hasExpression(v) {
		system = v
	}
	if n.get("memory").str() == "true" || n.get("conversation_memory").str() == "true" {
		memory = &value{kind: scalar, text: "true"}
	}
	return b.add(n.name, n.name, "agent", needs, field{"prompt", b.words(n, "prompt", "input_template")}, field{"system_prompt", system}, field{"memory", memory}, field{"tools", tools})
}
