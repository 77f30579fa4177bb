package workflow

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/workflow/flow"
	"github.com/epigraph-run/epigraph/workflow/internal/typing"
	"github.com/epigraph-run/epigraph/workgraph"
)

// Model says which model is asked. The zero value leaves that to the workflow, or to the server.
type Model struct {
	// Profile is one of the configuration.
	Profile string
	// Name is a model of the profile's server.
	Name        string
	Temperature *float64
	// MaxTokens bounds the answer; 0 is the bound of the profile.
	MaxTokens int
}

// elsewhere are the forms of `model` that other platforms have, with what is written here.
var elsewhere = map[string]string{
	"discover":      "name a `profile` of the configuration: nothing is chosen by price or speed",
	"preference":    "name a `profile` of the configuration: nothing is chosen by price or speed",
	"credential_id": "name the `profile` of the configuration that has the credential",
}

// model reads `model`: a profile, or {profile, model_name, temperature, max_tokens}. As others say it,
// {inherit: true} is the model of what is around, and {capability: NAME} a model by its name.
func (o *object) model() Model {
	v := o.value("model")
	if v == nil || v.kind != mapping {
		return Model{Profile: o.line("model", maxName)}
	}
	in := o.t.object(v, "a model")
	for _, e := range v.entries {
		if hint := elsewhere[e.key]; hint != "" {
			in.known = append(in.known, e.key)
			o.t.add(Fault{Code: "NOT_SUPPORTED", Place: e.at, Path: e.value.path(), Message: "a model cannot be chosen by `" + e.key + "`", Hint: hint})
		}
	}
	if inherit := in.value("inherit"); inherit != nil && o.t.is(inherit, boolean) && inherit.text == "true" {
		for i := range v.entries {
			if e := &v.entries[i]; e.key != "inherit" && elsewhere[e.key] == "" {
				in.known = append(in.known, e.key)
				o.t.at(e.value, "FIELD_NOT_USED", "leave it or `inherit` out", "a model that is inherited is the one of the workflow, or else of the server")
			}
		}
		in.done()
		return Model{}
	}
	m := Model{Profile: in.line("profile", maxName), Name: in.line("model_name", maxName), MaxTokens: in.whole("max_tokens", 1, 1<<30, 0)}
	if name, key := in.one("model_name", "capability"); key == "capability" && o.t.is(name, text) {
		m.Name = in.line("capability", maxName)
	}
	if n, ok := in.amount("temperature"); ok {
		if m.Temperature = &n; n > 2 {
			o.t.at(v.get("temperature"), "OUT_OF_RANGE", "", "`temperature` is a number from 0 to 2")
		}
	}
	in.done()
	return m
}

// arguments are those of the actor llm.
func (m Model) arguments() map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	if m.Profile != "" {
		out["profile"] = jsonText(m.Profile)
	}
	if m.Name != "" {
		out["model"] = jsonText(m.Name)
	}
	if m.Temperature != nil {
		out["temperature"] = json.RawMessage(strconv.FormatFloat(*m.Temperature, 'f', -1, 64))
	}
	if m.MaxTokens > 0 {
		out["max_output_tokens"] = wholeJSON(m.MaxTokens)
	}
	return out
}

// agentBody lets an agent work: one of the definition, or one that the step describes.
type agentBody struct {
	prompt *value
	named  *value // the name of one of `agents`
	own    AgentDefinition
	thread *value
}

func readAgent(t *teller, o *object) body {
	b := &agentBody{own: AgentDefinition{at: o.v}}
	b.read(t, o, "model", "tools", "mcp_servers", "max_rounds", "memory", "thread")
	return b
}

// read reads an agent of a step. own are keys that one of `agents` states itself.
func (b *agentBody) read(t *teller, o *object, own ...string) {
	b.prompt = o.value("prompt")
	b.own.Instructions = o.plain("system_prompt")
	if b.named = o.value("agent"); b.named != nil && !t.is(b.named, text) {
		b.named = nil
	}
	t.abilities(o, &b.own)
	t.thread(o, &b.own)
	b.thread = o.value("thread_id")
	if b.named != nil {
		for _, key := range append([]string{"system_prompt"}, own...) {
			if v := o.v.get(key); v != nil {
				t.at(v, "FIELD_NOT_USED", "state it in `agents`", "the agent %q is defined in `agents`", clip(b.named.text))
			}
		}
	}
	if b.prompt == nil && b.own.Instructions == "" && b.named == nil {
		o.missing("prompt", "what the agent is to do")
	}
}

// abilities reads what agents have, wherever they are defined.
func (t *teller) abilities(o *object, a *AgentDefinition) {
	a.Model = o.model()
	a.Tools, a.signals = t.tools(o), t.signals(o)
	a.MaxRounds = o.whole("max_rounds", 1, 100_000, 0)
	a.Memory = o.yes("memory")
	t.servers(o, a)
	if v := o.value("skills"); v != nil {
		t.at(v, "NOT_SUPPORTED", "write what the agent is to know into its instructions, or give it an agent as a tool: agent/NAME", "an agent has no `skills`")
	}
}

// servers reads `mcp_servers`: those of the configuration whose tools the agent has.
func (t *teller) servers(o *object, a *AgentDefinition) {
	for _, v := range o.few("mcp_servers", o.texts("mcp_servers")) {
		switch name := strings.TrimSpace(v.text); {
		case !serverName.MatchString(name):
			t.at(v, "BAD_NAME", "write the name that it has in the configuration, such as files", "%q is no name of an MCP server", clip(v.text))
		case slices.Contains(a.Servers, name):
			t.at(v, "DUPLICATE_ID", "name it once", "the agent has the server %q already", clip(name))
		case len(a.Servers) == maxServers:
			t.at(v, "TOO_LARGE", "", "an agent may have %d MCP servers", maxServers)
		default:
			a.Servers = append(a.Servers, name)
		}
	}
}

// maxServers bounds the MCP servers of an agent, and serverName is what their names look like.
const maxServers = 64

var serverName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// readDeepAgent reads an agent that keeps a list of what is to be done, and has agents of its own.
func readDeepAgent(t *teller, o *object) body {
	b := &agentBody{own: AgentDefinition{at: o.v, deep: true}}
	b.read(t, o, "model", "tools", "mcp_servers", "max_rounds", "memory", "thread", "enable_todos", "subagents")
	b.own.todos = o.yes("enable_todos")
	for _, key := range []string{"enable_filesystem", "filesystem_backend", "filesystem_root_dir"} {
		if v := o.value(key); v != nil && v.text != "false" {
			t.at(v, "NOT_SUPPORTED", "give it the tools of an MCP server for files: mcp/SERVER/TOOL", "an agent has no `%s`", key)
		}
	}
	for _, v := range o.few("subagents", o.list("subagents")) {
		if v.kind == text {
			b.own.below = append(b.own.below, AgentDefinition{Name: v.text, at: v})
			continue
		}
		in := t.object(v, "a subagent")
		a := AgentDefinition{Name: in.line("name", maxName), at: v, Description: in.plain("description"), Instructions: in.plain("instructions"), own: true}
		t.abilities(in, &a)
		if a.shares = in.yes("share_thread"); a.shares && a.Memory {
			t.at(v.get("share_thread"), "FIELD_NOT_USED", "leave `memory` or `share_thread` out", "it works on the thread of its caller, or remembers on its own")
		}
		if in.done(); in.bad {
			continue
		}
		switch {
		case a.Name == "":
			in.missing("name", "")
		case !idPattern.MatchString(a.Name):
			t.at(v.get("name"), "BAD_ID", idHint, "%q is no name of an agent", clip(a.Name))
		case a.Instructions == "":
			in.missing("instructions", "who the agent is to be")
		}
		b.own.below = append(b.own.below, a)
	}
	return b
}

func (b *agentBody) node(c *compiler, s *Step, n *workgraph.Node) {
	n.Actor, n.Kind, n.Named = "agent", workgraph.AgentKind, map[string]json.RawMessage{}
	a := &b.own
	if b.named != nil {
		name := strings.TrimSpace(b.named.text)
		if i := slices.IndexFunc(c.d.Agents, func(x AgentDefinition) bool { return x.Name == name }); i >= 0 {
			a = &c.d.Agents[i]
		} else if strings.HasPrefix(name, "agent/") {
			n.Actor, a = name, nil // an agent of the configuration
		} else if c.d.unread.agents {
			a = nil // it may be one of them
		} else {
			c.at(b.named, "UNKNOWN_AGENT", c.didYouMean(name, agentNames(c.d)), "there is no agent %q", clip(name))
			return
		}
	}
	if b.named != nil && a != nil && a.onlyInTeams() {
		c.at(b.named, "ONLY_IN_TEAMS", "use a step of the type `team`", "the agent %q is one of a team", a.Name)
	}
	if a != nil {
		for name, v := range c.definition(a) {
			n.Named[name] = v
		}
		if delete(n.Named, "thread"); b.thread == nil {
			c.onThread(s, n, a)
		}
	}
	if b.thread == nil && n.Named["thread"] == nil {
		n.Named["own_thread"] = json.RawMessage("true")
	}
	told := false
	if b.prompt != nil {
		told = len(c.argument(s, n, "user_input", b.prompt)) > 0
	} else {
		n.Named["user_input"] = jsonText("Go on.")
	}
	if told || a != nil && a.Thread != "" && b.thread == nil {
		// It is told what its prompt names, or what others said on the thread.
		n.Named["upstream"] = json.RawMessage("false")
	}
	if b.thread != nil {
		c.oneThread(b.thread, c.argumentFits(s, n, "thread_id", b.thread, want{typing.String, "a text", "`thread_id`"}))
	}
}

// howToKeep tells an agent how to keep its list.
const howToKeep = "Work with a list of what is to be done. Before you begin, and whenever the list changes, write all of it by the tool `learn` under the id `todos`, each entry as `[ ] open` or `[x] done`. You are done when nothing is open."

// definition are the arguments that define an agent.
func (c *compiler) definition(a *AgentDefinition) map[string]json.RawMessage {
	out := map[string]json.RawMessage{"actions": json.RawMessage("{}")}
	told := a.Instructions
	if a.todos {
		told = strings.TrimSpace(told + "\n\n" + howToKeep)
	}
	if told != "" {
		out["system"] = jsonText(told)
	}
	if asked := c.model(a.Model).arguments(); len(asked) > 0 {
		out["reasoner_args"] = encode(asked)
	}
	if a.MaxRounds > 0 {
		out["max_rounds"] = wholeJSON(a.MaxRounds)
	}
	if a.Memory {
		out["thread"] = encode(map[string]json.RawMessage{"lifetime": jsonText("CONVERSATION"), "name": jsonText(c.remembering(a.Name))})
	}
	actions := c.actions(a)
	if len(a.Servers) > 0 {
		out["mcp_servers"] = namesJSON(a.Servers)
	}
	if len(actions) > 0 || len(a.Servers) > 0 || a.deep {
		out["actions"], out["form"] = encode(actions), jsonText("tools")
	}
	return out
}

// namesJSON is a list of names as JSON.
func namesJSON(names []string) json.RawMessage {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = literal(name)
	}
	return json.RawMessage("[" + strings.Join(quoted, ",") + "]")
}

// whatIsSaid is the schema of what an agent tells one below it.
const whatIsSaid = `{"type":"object","required":["user_input"],"additionalProperties":false,"properties":{"user_input":{"type":"string","description":"What the agent is to do, with all that it must know."}}}`

// actions are what an agent may call.
func (c *compiler) actions(a *AgentDefinition) map[string]json.RawMessage {
	actions := map[string]json.RawMessage{}
	for _, tool := range a.Tools {
		parts := map[string]json.RawMessage{"actor": jsonText(tool.Actor)}
		if tool.Description != "" {
			parts["description"] = jsonText(tool.Description)
		}
		if tool.ShareThread {
			parts["share_thread"] = json.RawMessage("true")
		}
		named := tool.Arguments
		if len(named) > 0 {
			parts["named"] = encode(named)
		}
		actions[tool.Name] = encode(parts)
	}
	for i := range a.below {
		sub := &a.below[i]
		if !sub.own {
			k := slices.IndexFunc(c.d.Agents, func(x AgentDefinition) bool { return x.Name == sub.Name })
			if k < 0 && c.d.unread.agents {
				continue
			}
			if k < 0 {
				c.at(sub.at, "UNKNOWN_AGENT", c.didYouMean(sub.Name, agentNames(c.d)), "there is no agent %q", clip(sub.Name))
				continue
			}
			at := sub.at
			named := c.d.Agents[k]
			sub, named.at = &named, at
			if named.Thread != "" {
				c.at(at, "FIELD_NOT_USED", "name an agent without `thread`, or write the subagent here, with `share_thread` if it is to work on the thread of its caller", "an agent below another one does not work on the thread %q", clip(named.Thread))
				continue
			}
		}
		if sub.Memory && c.alone(sub.at, false) {
			continue
		}
		if actions[sub.Name] != nil {
			c.at(sub.at, "DUPLICATE_ID", "give one of them another name", "the agent has %q already", clip(sub.Name))
			continue
		}
		about := sub.Description
		if about == "" {
			about = "An agent: " + clip(sub.Instructions)
		}
		parts := map[string]json.RawMessage{"actor": jsonText("agent"), "description": jsonText(about), "named": encode(c.definition(sub)), "schema": json.RawMessage(whatIsSaid)}
		if sub.shares {
			parts["share_thread"] = json.RawMessage("true")
		}
		actions[sub.Name] = encode(parts)
	}
	return actions
}

// model is the model that an agent or a step asks, which may be that of the workflow.
func (c *compiler) model(own Model) Model {
	if own != (Model{}) {
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
	model  Model
	system string
	schema json.RawMessage
	// fields are those of the result, if they are known.
	fields []string
}

func (b *askBody) node(c *compiler, s *Step, n *workgraph.Node) {
	n.Actor = "llm"
	n.Named = map[string]json.RawMessage{"response_schema": b.schema, "system": jsonText(b.system)}
	maps.Copy(n.Named, c.model(b.model).arguments())
	c.stepsAre[s.ID] = typing.OfSchema(b.schema)
	if len(c.argumentFits(s, n, "request", b.prompt, want{typing.String, "a text", "`prompt`"})) > 0 {
		n.Named["upstream"] = json.RawMessage("false")
	}
}

// readCategorizer reads a step that names one of some categories: `{"category": …}`.
func readCategorizer(t *teller, o *object) body {
	b := &askBody{prompt: o.mustText("prompt"), model: o.model(), fields: []string{"category"},
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
	b := &askBody{prompt: o.mustText("prompt"), model: o.model(), schema: o.schema("schema"),
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

// userBody tells for whom the run is done.
type userBody struct{}

func readUser(*teller, *object) body { return &userBody{} }

func (*userBody) node(c *compiler, s *Step, n *workgraph.Node) {
	n.Actor = flow.UserActor
	id := typing.Of(typing.String | typing.Null)
	c.stepsAre[s.ID] = typing.Record(map[string]typing.Type{"user_id": id, "chat_id": id, "run_id": id})
}
