package workflow

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/epigraph-run/epigraph/workflow/flow"
)

// Definition is a workflow as it was written. Read makes it from a text; Compile makes a graph of it.
type Definition struct {
	// Name is what people call it. It must not be empty.
	Name string
	// Version is a label of the author's.
	Version     string
	Description string
	Tags        []string
	// Inputs is the JSON Schema of the run's named arguments; nil accepts any.
	Inputs json.RawMessage
	// Model is that of agents that name none.
	Model Model
	// State are the keys of the state, in their order.
	State []StateKey
	// Threads are those that agents share by name. Without any, names need no declaration.
	Threads []Thread
	Agents  []AgentDefinition
	Steps   []*Step
	// Outputs are the names of the results; none means that the last steps give the result.
	Outputs []string
	Budget  Budget

	triggers              []Trigger
	root, inputs, outputs *value
	unread                unread
	lines                 []string
}

// AgentDefinition is an agent of a definition.
type AgentDefinition struct {
	Name string
	// Description says what it is good for, to an agent that may call it.
	Description  string
	Instructions string
	Model        Model
	Tools        []ToolDefinition
	// Servers are MCP servers of the configuration, all of whose tools it may call.
	Servers []string
	// MaxRounds bounds how often it may reason; 0 is the default of the actor.
	MaxRounds int
	// Memory has it go on with its thread from run to run, for each user and chat.
	Memory bool
	// Thread is the name of a thread that it shares with others. Empty is one of its own.
	Thread string
	// Capabilities are what it can do, in single words; a tool of another agent asks it by them.
	Capabilities []string

	// deep is an agent with a list of what is to be done, or agents below it. own is one of these that
	// is defined there.
	deep, todos, own bool
	// shares has an agent below another one work on the thread of that one.
	shares bool
	below  []AgentDefinition
	// signals are tools that end its turn in a team, and member what else it is there.
	signals []signal
	member  *member
	at      *value
}

// ToolDefinition is something that an agent may call.
type ToolDefinition struct {
	// Name is what the model calls it.
	Name string
	// Actor does it.
	Actor       string
	Description string
	// Arguments are fixed ones.
	Arguments map[string]json.RawMessage
	// ShareThread has an agent that is called work on the thread of its caller.
	ShareThread bool

	at *value
}

// Budget are the caps of a run; nil is no cap.
type Budget struct {
	USD    *float64
	Tokens *int64
}

// NanoUSD is the cap in billionths of a dollar, nil for none.
func (b Budget) NanoUSD() *int64 {
	if b.USD == nil {
		return nil
	}
	n := int64(math.Round(*b.USD * 1e9))
	return &n
}

// maxName bounds names and ids of a definition, in bytes, and maxSteps its steps.
const maxName, maxSteps, maxAgents = 200, 10_000, 1_000

const idHint = "use letters, digits and _, 64 at most, not beginning with a digit"

// idPattern is what ids of steps look like. They are names in expressions and scripts.
var idPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// Read reads a definition from a YAML or JSON text. Every fault of its structure is told at once, in
// the order of the text; the definition is nil if there is any. What its parts mean to each other is
// for Compile.
func Read(src []byte) (*Definition, Faults) {
	t := &teller{}
	v := readSource(t, src)
	if v == nil {
		return nil, t.faults.sorted()
	}
	d := t.definition(v)
	if len(t.faults) > 0 {
		return nil, t.withCompiled(d).sorted()
	}
	return d, nil
}

// withCompiled are the faults that were told, and those of what was read.
func (t *teller) withCompiled(d *Definition) Faults {
	if t.full() {
		return t.faults
	}
	_, more := Compile(d)
	for _, f := range more {
		t.add(f)
	}
	return t.faults
}

func (t *teller) definition(v *value) *Definition {
	around, begun := t.unread, t.lost() // it may stand within another one
	t.unread = unread{}
	o := t.object(v, "a workflow")
	d := &Definition{
		root: v, inputs: v.get("inputs"), lines: t.lines, Name: o.line("name", maxName), Version: o.label("version"), Description: o.text("description"), Inputs: o.schema("inputs"),
	}
	if v.get("name") == nil {
		o.missing("name", "begin with `name: …`")
	}
	for _, tag := range o.few("tags", o.texts("tags")) {
		if s := strings.TrimSpace(tag.text); s != "" && !slices.Contains(d.Tags, s) {
			d.Tags = append(d.Tags, s)
		}
	}
	d.triggers = t.triggers(o, d.Inputs)
	d.Model = o.model()
	lost := t.lost()
	d.State = t.state(o)
	t.unread.state = t.lost() > lost
	d.Threads = t.threads(o)
	lost = t.lost()
	agents := o.entries("agents")
	if len(agents) > maxAgents {
		t.at(agents[maxAgents].value, "TOO_LARGE", "move some into workflows of their own", "a workflow may have %d agents", maxAgents)
		agents = agents[:maxAgents]
	}
	for _, e := range agents {
		d.Agents = append(d.Agents, t.agent(e))
	}
	t.unread.agents = t.lost() > lost
	if whole := t.team(o); whole != nil {
		d.Steps = []*Step{whole}
	} else {
		d.Steps = t.steps(o, o.value("steps"))
	}
	d.outputs = o.value("outputs")
	for _, e := range o.entries("outputs") {
		d.Outputs = append(d.Outputs, e.key)
	}
	d.Budget = t.budget(o.value("budget"))
	o.done()
	d.unread, t.unread = t.unread, around
	d.unread.any = t.lost() > begun
	return d
}

// agent reads one of `agents`.
func (t *teller) agent(e entry) AgentDefinition {
	o := t.object(e.value, "an agent")
	a := AgentDefinition{Name: e.key, at: e.value}
	if !idPattern.MatchString(e.key) {
		t.add(Fault{Code: "BAD_ID", Place: e.at, Path: e.value.path(), Message: fmt.Sprintf("%q is no name of an agent", clip(e.key)), Hint: idHint})
	}
	a.Instructions, a.Description = o.plain("instructions"), o.plain("description")
	t.abilities(o, &a)
	a.Capabilities = t.capabilities(o)
	t.thread(o, &a)
	t.member(o, &a)
	o.done()
	return a
}

// tools are those of `tools`: the name of an actor, or keys and values.
func (t *teller) tools(o *object) []ToolDefinition {
	var out []ToolDefinition
	for _, v := range o.few("tools", o.list("tools")) {
		tool := ToolDefinition{at: v}
		switch v.kind {
		case text:
			tool.Actor = strings.TrimSpace(v.text)
		case mapping:
			if isSignal(v) {
				continue // signals reads it
			}
			in := t.object(v, "a tool")
			if kind := in.value("type"); kind != nil { // as other platforms say it
				tool.Actor = in.line("type", maxName)
				if !t.platformTool(kind, &tool) {
					continue
				}
				t.platformConfig(in, kind.text, &tool)
				in.done()
				break
			}
			tool.Actor, tool.Name, tool.Description = in.line("actor", maxName), in.line("name", maxName), in.text("description")
			tool.Arguments = in.named("with")
			if tool.ShareThread = in.yes("share_thread"); tool.ShareThread && !strings.HasPrefix(tool.Actor, "agent/") {
				t.at(v.get("share_thread"), "FIELD_NOT_USED", "leave it out", "only an agent works on a thread")
			}
			if with := v.get("with"); with != nil {
				t.unfilled(with)
			}
			in.done()
		default:
			t.is(v, text)
			continue
		}
		if name, is := strings.CutPrefix(tool.Actor, workflowPrefix); is {
			t.versioned(v, name)
			tool.run(name)
		}
		if tool.Actor == "" {
			t.at(v, "MISSING_KEY", "such as `http`, `agent/NAME` or `mcp/SERVER/TOOL`", "a tool names an `actor`")
			continue
		}
		if v.kind == text && !t.platformTool(v, &tool) {
			continue
		}
		if tool.Name == "" {
			tool.Name = notID.ReplaceAllString(tool.Actor, "_")
		}
		if i := slices.IndexFunc(out, func(x ToolDefinition) bool { return x.Name == tool.Name }); i >= 0 {
			t.at(v, "DUPLICATE_ID", "give one of them another `name`", "there is a tool %q already, in line %d", clip(tool.Name), out[i].at.at.Line)
			continue
		}
		out = append(out, tool)
	}
	return out
}

// run makes the tool one that runs a workflow. What it is given beforehand are inputs; without any, the one
// who calls it gives them.
func (t *ToolDefinition) run(name string) {
	if t.Name == "" {
		t.Name = notID.ReplaceAllString(name, "_")
	}
	if t.Description == "" {
		t.Description = "Runs the workflow " + name + ". Give its inputs as input.named."
	}
	with := map[string]json.RawMessage{"ref": jsonText(workflowPrefix + name), "as_result": json.RawMessage("true")}
	if len(t.Arguments) > 0 {
		with["input"] = encode(map[string]json.RawMessage{"named": encode(t.Arguments)})
	}
	t.Actor, t.Arguments = "spawn", with
}

// The actors of the memory. What is shared with others is written by an actor of its own: which one a
// tool has is said by the workflow, not by a model.
const memoryRead, memoryWrite, memoryShare = "memory_read", "memory_write", "memory_share"

// memoryScopes are the words for whose memory something is.
func memoryScopes() []string { return []string{"namespace", "user", "epic", "workflow"} }

// under reports whether the type of a tool has a key beside it.
func under(v *value, key string) bool {
	return v.under != nil && v.under.kind == mapping && v.under.get(key) != nil
}

// platformTools are tools that other platforms have by name, with what is written here in their place.
var platformTools = map[string]string{
	"run_command":     "nothing runs commands here: register a worker that does it, and name its actor",
	"platform_api":    "use the actor `http`, or a tool of the configuration with its credential: tool/NAME",
	"scheduler_tools": "schedules are made by `epigraph schedules`",
	"system_health":   "use {actor: http, with: {url: …}} on what is to be looked at",
	"get_totp_code":   "credentials stay out of workflows: use a tool of the configuration, tool/NAME",
}

// catalogTools are the actors that make and find workflows, epics and tasks, by the names that other
// platforms have for them, too.
var catalogTools = map[string]string{
	"workflow_create": "workflow_create", "create_workflow": "workflow_create",
	"workflow_discover": "workflow_discover", "discover_workflows": "workflow_discover",
	"epic_create": "epic_create", "create_epic": "epic_create",
	"epic_status": "epic_status",
	"epic_update": "epic_update", "update_epic": "epic_update",
	"epic_search": "epic_search", "search_epics": "epic_search",
	"task_create": "task_create", "create_task": "task_create",
	"task_list": "task_list", "list_tasks": "task_list",
	"task_update": "task_update", "update_task": "task_update",
	"task_cancel": "task_cancel", "cancel_task": "task_cancel",
}

// spawnTool is the tool that runs workflows.
const spawnTool = "spawn_and_await"

// isPlatformTool reports whether other platforms have a tool of this name.
func isPlatformTool(name string) bool {
	name = strings.TrimSpace(name)
	_, refused := platformTools[name]
	_, catalog := catalogTools[name]
	return refused || catalog || slices.Contains([]string{memoryRead, memoryWrite, spawnTool, "whoami", toolCode, "http_request"}, name)
}

// platformTool gives a tool that other platforms have the actor that does it here. It is false for one
// that there is not, or that every agent with tools has.
func (t *teller) platformTool(v *value, tool *ToolDefinition) bool {
	name := tool.Actor
	if actor, is := catalogTools[name]; is {
		tool.Name, tool.Actor = name, actor
		return true
	}
	switch name {
	case toolCode:
		tool.Name, tool.Actor = name, "starlark"
		return true
	case "http_request":
		tool.Name, tool.Actor = name, toolHTTP
		return true
	case memoryRead:
		if tool.Name, tool.Actor = name, name; under(v, "agent") {
			tool.Description = "Tells what is known of the user."
		}
		return true
	case memoryWrite:
		if tool.Name, tool.Actor = name, name; under(v, "scope") {
			if scope := v.under.get("scope").text; scope == "workflow" || scope == "namespace" {
				tool.Actor = memoryShare
			}
		}
		return true
	case spawnTool:
		if v.under == nil || v.under.kind != mapping || v.under.get("workflow") == nil && v.under.get("workflows") == nil {
			t.at(v, "MISSING_KEY", "write {type: spawn_and_await, workflows: [NAME, \"BEGINNING-*\"]} for those that the model may choose among, or workflow: NAME@VERSION for one",
				"a model does not run whatever it likes: the tool names the workflows")
			return false
		}
		tool.Name, tool.Actor = name, spawnTool
		return true
	case "whoami":
		tool.Name, tool.Actor, tool.Description = name, flow.UserActor, "Tells for whom this is done."
		return true
	}
	hint, there := platformTools[name]
	switch {
	case there:
		t.at(v, "NOT_SUPPORTED", hint, "there is no tool `%s`", name)
	case strings.HasSuffix(name, "/*"):
		t.at(v, "NOT_SUPPORTED", "name each tool; `epigraph actors` lists them", "`%s` names no tool: only the server knows which there are", clip(name))
	case v.kind == text && v.under != nil && v.under.kind == mapping && v.key == "type":
		t.at(v, "NOT_SUPPORTED", "name an `actor`, such as `http`, `agent/NAME` or `mcp/SERVER/TOOL`", "there is no tool of the type `%s`", clip(name))
	default:
		return true
	}
	return false
}

// platformKeys are the keys that tools of other platforms have beside their type, which their actors take as
// arguments.
var platformKeys = map[string][]string{
	memoryRead: {"agent", "about", "query", "key", "fact_type", "scope", "min_confidence", "limit"}, memoryWrite: {"key", "fact_type", "scope", "tags", "confidence", "expires_in_days"},
	"workflow_discover": {"limit", "exclude"}, "discover_workflows": {"limit", "exclude"},
}

// platformConfig reads what stands beside the type of a tool: fixed arguments.
func (t *teller) platformConfig(o *object, kind string, tool *ToolDefinition) {
	for _, key := range platformKeys[kind] {
		v := o.value(key)
		if v == nil {
			continue
		}
		if t.unfilled(v); tool.Arguments == nil {
			tool.Arguments = map[string]json.RawMessage{}
		}
		if key == "scope" && !slices.Contains(memoryScopes(), v.text) {
			t.at(v, "UNKNOWN_WORD", "write "+strings.Join(memoryScopes(), ", "), "there is no scope `%s`", clip(v.text))
		}
		tool.Arguments[key] = v.json()
	}
	if kind != spawnTool {
		return
	}
	if v := o.value("timeout"); v != nil && t.is(v, text) {
		tool.Arguments = map[string]json.RawMessage{"timeout": v.json()}
	}
	if v := o.value("workflows"); v != nil {
		t.allowed(o, v, tool)
		return
	}
	if v := o.value("workflow"); v != nil && t.is(v, text) {
		name := strings.TrimPrefix(strings.TrimSpace(v.text), workflowPrefix)
		t.versioned(v, name)
		timeout := tool.Arguments["timeout"]
		*tool = ToolDefinition{Name: tool.Name, at: tool.at}
		if tool.run(name); timeout != nil {
			tool.Arguments["timeout"] = timeout
		}
	}
}

// maxAllowed is how many entries the list of workflows has among which a model may choose.
const maxAllowed = 100

// allowable is an entry of such a list: a slug, one with a version or an alias, or a beginning.
var allowable = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9_-]*(@[A-Za-z0-9][A-Za-z0-9._-]*|\*)?|\*)$`)

// allowed reads the workflows among which a model may choose.
func (t *teller) allowed(o *object, v *value, tool *ToolDefinition) {
	if other := o.value("workflow"); other != nil {
		t.at(other, "SEVERAL_FORMS", "leave one of them out", "`workflow` and `workflows` are both given")
	}
	list := o.list("workflows")
	switch {
	case len(list) == 0:
		t.at(v, "EMPTY", "name those that the model may run", "no workflow may be run")
	case len(list) > maxAllowed:
		t.at(v, "TOO_LARGE", "use beginnings, such as mail-*", "a list may have %d workflows", maxAllowed)
		return
	}
	names := make([]string, 0, len(list))
	for _, entry := range list {
		if !t.is(entry, text) {
			continue
		}
		name := strings.TrimPrefix(strings.TrimSpace(entry.text), workflowPrefix)
		if !allowable.MatchString(name) || len(name) > maxName {
			t.at(entry, "BAD_NAME", "write NAME, NAME@VERSION, a beginning such as mail-*, or self", "%q names no workflows", clip(name))
		}
		names = append(names, literal(name))
	}
	if tool.Arguments == nil {
		tool.Arguments = map[string]json.RawMessage{}
	}
	tool.Arguments["workflows"] = json.RawMessage("[" + strings.Join(names, ",") + "]")
}

var notID = regexp.MustCompile(`[^A-Za-z0-9_]+`)

// named are the entries of a key as JSON.
func (o *object) named(key string) map[string]json.RawMessage {
	var out map[string]json.RawMessage
	for _, e := range o.entries(key) {
		if out == nil {
			out = map[string]json.RawMessage{}
		}
		out[e.key] = e.value.json()
	}
	return out
}

func (t *teller) budget(v *value) Budget {
	var b Budget
	if v == nil {
		return b
	}
	o := t.object(v, "a budget")
	if usd, ok := o.amount("usd"); ok {
		if b.USD = &usd; usd > 1e9 {
			t.at(v, "OUT_OF_RANGE", "", "`usd` is beyond what a budget can be")
		}
	}
	if o.value("tokens") != nil {
		n := int64(o.whole("tokens", 0, 1<<53, 0))
		b.Tokens = &n
	}
	o.done()
	return b
}

// each calls f with every step, those within others included, until it returns false.
func each(steps []*Step, f func(*Step) bool) bool {
	for _, s := range steps {
		if s.Parallel == nil && !f(s) {
			return false
		}
		for _, in := range s.within() {
			if !each(in, f) {
				return false
			}
		}
	}
	return true
}

// Place is where the text stands that a node of the graph was made of. ok is false for other ids.
func (d *Definition) Place(step string) (p Place, ok bool) {
	step = shownID(step) // steps may have several nodes
	switch {
	case step == inputsID && d.inputs != nil:
		return d.inputs.at, true
	case step == outputsID && d.outputs != nil:
		return d.outputs.at, true
	}
	none := each(d.Steps, func(s *Step) bool {
		if s.ID == step {
			p = s.at.at
		}
		return s.ID != step
	})
	return p, !none
}

// Size is how many steps there are, those within others included.
func (d *Definition) Size() int {
	n := 0
	each(d.Steps, func(*Step) bool { n++; return true })
	return n
}
