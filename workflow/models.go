package workflow

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/workgraph"
)

// agentBody lets an agent work: one of the definition, or one that the step describes.
type agentBody struct {
	prompt *value
	named  *value // the name of one of `agents`
	own    Agent
	thread *value
}

func readAgent(t *teller, o *object) body {
	b := &agentBody{own: Agent{at: o.v}}
	b.prompt = o.value("prompt")
	b.own.Instructions = o.plain("system_prompt")
	if b.named = o.value("agent"); b.named != nil && !t.is(b.named, text) {
		b.named = nil
	}
	b.own.Model = o.line("model", maxName)
	b.own.Tools = t.tools(o)
	b.own.MaxRounds = o.whole("max_rounds", 1, 100_000, 0)
	b.thread = o.value("thread_id")
	if b.named != nil {
		for _, key := range []string{"system_prompt", "model", "tools", "max_rounds"} {
			if v := o.v.get(key); v != nil {
				t.at(v, "FIELD_NOT_USED", "state it in `agents`", "the agent %q is defined in `agents`", clip(b.named.text))
			}
		}
	}
	if b.prompt == nil && b.own.Instructions == "" && b.named == nil {
		o.missing("prompt", "what the agent is to do")
	}
	return b
}

func (b *agentBody) node(c *compiler, s *Step, n *workgraph.Node) {
	n.Actor, n.Kind, n.Named = "agent", workgraph.AgentKind, map[string]json.RawMessage{}
	a := &b.own
	if b.named != nil {
		name := strings.TrimSpace(b.named.text)
		if i := slices.IndexFunc(c.d.Agents, func(x Agent) bool { return x.Name == name }); i >= 0 {
			a = &c.d.Agents[i]
		} else if strings.HasPrefix(name, "agent/") {
			n.Actor, a = name, nil // an agent of the configuration
		} else {
			c.at(b.named, "UNKNOWN_AGENT", c.didYouMean(name, agentNames(c.d)), "there is no agent %q", clip(name))
			return
		}
	}
	if a != nil {
		for name, v := range c.definition(a) {
			n.Named[name] = v
		}
	}
	told := false
	if b.prompt != nil {
		told = len(c.argument(s, n, "user_input", b.prompt)) > 0
	} else {
		n.Named["user_input"] = jsonText("Go on.")
	}
	if told {
		n.Named["upstream"] = json.RawMessage("false") // it is told what its prompt names
	}
	if b.thread != nil {
		c.argument(s, n, "thread_id", b.thread)
	}
}

// definition are the arguments that define an agent.
func (c *compiler) definition(a *Agent) map[string]json.RawMessage {
	out := map[string]json.RawMessage{"actions": json.RawMessage("{}")}
	if a.Instructions != "" {
		out["system"] = jsonText(a.Instructions)
	}
	if model := c.model(a.Model); model != "" {
		out["reasoner_args"] = encode(map[string]json.RawMessage{"profile": jsonText(model)})
	}
	if a.MaxRounds > 0 {
		out["max_rounds"] = json.RawMessage(strconv.Itoa(a.MaxRounds))
	}
	if len(a.Tools) > 0 {
		actions := map[string]json.RawMessage{}
		for _, tool := range a.Tools {
			parts := map[string]json.RawMessage{"actor": jsonText(tool.Actor)}
			if tool.Description != "" {
				parts["description"] = jsonText(tool.Description)
			}
			if len(tool.Arguments) > 0 {
				parts["named"] = encode(tool.Arguments)
			}
			actions[tool.Name] = encode(parts)
		}
		out["actions"], out["form"] = encode(actions), jsonText("tools")
	}
	return out
}

// model is the profile that an agent or a step asks, empty for the server's default.
func (c *compiler) model(own string) string {
	if own != "" {
		return own
	}
	return c.d.Model
}

func agentNames(d *Definition) []string {
	names := make([]string, len(d.Agents))
	for i := range d.Agents {
		names[i] = d.Agents[i].Name
	}
	return names
}

// encode is a value of encoded parts as JSON, keys in order.
func encode(v map[string]json.RawMessage) json.RawMessage {
	var b strings.Builder
	b.WriteByte('{')
	for i, key := range slices.Sorted(maps.Keys(v)) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(literal(key) + ":" + string(v[key]))
	}
	b.WriteByte('}')
	return json.RawMessage(b.String())
}

// askBody asks a model for a value of a schema.
type askBody struct {
	prompt *value
	model  string
	system string
	schema json.RawMessage
	// fields are those of the result, if they are known.
	fields []string
}

func (b *askBody) node(c *compiler, s *Step, n *workgraph.Node) {
	n.Actor = "llm"
	n.Named = map[string]json.RawMessage{"response_schema": b.schema, "system": jsonText(b.system)}
	if model := c.model(b.model); model != "" {
		n.Named["profile"] = jsonText(model)
	}
	if len(c.argument(s, n, "request", b.prompt)) > 0 {
		n.Named["upstream"] = json.RawMessage("false")
	}
}

// readCategorizer reads a step that names one of some categories: `{"category": …}`.
func readCategorizer(t *teller, o *object) body {
	b := &askBody{prompt: o.mustText("prompt"), model: o.line("model", maxName), fields: []string{"category"},
		system: "Say which category fits best. Answer with its name exactly as it is given."}
	var names, lines []string
	for _, v := range o.few("categories", o.list("categories")) {
		name, about := "", ""
		switch v.kind {
		case text:
			name = v.text
		case mapping:
			in := t.object(v, "a category")
			name, about = in.line("name", maxName), in.text("description")
			in.done()
		default:
			t.is(v, text)
		}
		switch {
		case name == "":
		case slices.Contains(names, name):
			t.at(v, "DUPLICATE_ID", "remove one of them", "there is a category %q already", clip(name))
		default:
			names = append(names, name)
			if about != "" {
				about = ": " + about
			}
			lines = append(lines, "- "+name+about)
		}
	}
	if len(names) < 2 {
		o.missing("categories", "list two at least")
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = literal(name)
	}
	b.system += "\n\nThe categories:\n" + strings.Join(lines, "\n")
	b.schema = json.RawMessage(`{"type":"object","required":["category"],"additionalProperties":false,"properties":{"category":{"enum":[` + strings.Join(quoted, ",") + `]}}}`)
	return b
}

// readExtractor reads a step that takes values of a schema out of a text.
func readExtractor(_ *teller, o *object) body {
	b := &askBody{prompt: o.mustText("prompt"), model: o.line("model", maxName), schema: o.schema("schema"),
		system: "Take the values that the schema names out of what you are given. Take nothing that is not there."}
	if b.schema == nil {
		o.missing("schema", "such as {city: {type: string}}")
		return b
	}
	if known, ok := closed(b.schema); ok {
		b.fields = slices.Sorted(maps.Keys(known))
	}
	return b
}
