package workflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ForkDocument is the text of a fork: which workflow it is based on, and what is to be changed.
type ForkDocument struct {
	// BasedOn is the name of the workflow, as it was written: NAME, NAME@VERSION or NAME@ALIAS.
	BasedOn string
	// Name is that of the fork; empty for the name of the base with " (fork)" behind it.
	Name string

	root    *value
	patches []*value
	lines   []string
}

// maxPatches bounds the patches of a fork.
const maxPatches = 200

// ReadFork reads the text of a fork, in YAML or JSON. Faults of its structure are told at once; those
// of its patches by Apply, which knows what they are applied to.
func ReadFork(src []byte) (*ForkDocument, Faults) {
	t := &teller{}
	v := readSource(t, src)
	if v == nil {
		return nil, t.faults.sorted()
	}
	o := t.object(v, "a fork")
	f := &ForkDocument{root: v, BasedOn: o.line("based_on", maxName), Name: o.line("name", maxName)}
	if v.get("based_on") == nil {
		o.missing("based_on", "the name of a workflow, such as research-bot@2")
	} else if f.BasedOn == "" && len(t.faults) == 0 {
		t.at(v.get("based_on"), "BAD_NAME", "such as research-bot@2", "`based_on` is empty")
	}
	for _, key := range aboutKeys {
		o.value(key)
	}
	if v.get("patches") == nil {
		o.missing("patches", "a list of {action: …}; it may be empty")
	}
	f.patches = o.list("patches")
	if len(f.patches) > maxPatches {
		t.at(f.patches[maxPatches], "TOO_LARGE", "", "a fork may have %d patches", maxPatches)
	}
	o.done()
	if len(t.faults) > 0 {
		return nil, t.faults.sorted()
	}
	f.lines = t.lines
	return f, nil
}

// aboutKeys are keys of a workflow that a fork may give anew, besides its name.
var aboutKeys = []string{"version", "description", "tags"}

// Fork applies the text of a fork to that of the workflow that it is based on. See ForkDocument.Apply.
func Fork(base, fork []byte) ([]byte, Faults) {
	f, faults := ReadFork(fork)
	if len(faults) > 0 {
		return nil, faults
	}
	return f.Apply(base)
}

// Apply returns the text of the fork: that of the base with the patches applied, in their order, all of
// them or none. It has no fault, and is the same for the same texts. Comments of the base are not kept.
// All patches that cannot be applied are told, with their places in the text of the fork; so is what
// the fork would have for faults as a whole.
func (f *ForkDocument) Apply(base []byte) ([]byte, Faults) {
	of := &teller{}
	root := readSource(of, base)
	var d *Definition
	if root != nil {
		if d = of.definition(root); len(of.faults) == 0 {
			_, of.faults = Compile(d)
		}
	}
	if faults := of.faults; len(faults) > 0 {
		return nil, Faults{{Code: "BASE_FAULTY", Path: "based_on", Message: "the workflow that the fork is based on has a fault: " + faults.sorted()[0].String(), Hint: "mend it first"}}
	}
	p := &patcher{teller: &teller{lines: f.lines}, root: root, steps: map[string]*Step{}, agents: map[string]*value{}, removed: map[string]*value{}}
	p.about(f, d)
	p.note(d)
	unplaced(root)
	for _, patch := range f.patches {
		p.apply(patch)
	}
	if len(p.faults) == 0 {
		p.check()
	}
	if len(p.faults) > 0 {
		return nil, p.faults.sorted()
	}
	out := write(root)
	if d, faults := Read(out); d == nil { // it is beyond a bound
		for i := range faults {
			faults[i].Place = Place{}
		}
		return nil, faults
	}
	return out, nil
}

// unplaced takes the places away from the values of the base, which are none of the text of the fork.
func unplaced(v *value) {
	v.at = Place{}
	for i := range v.entries {
		v.entries[i].at = Place{}
	}
	for _, in := range v.inside() {
		unplaced(in)
	}
}

// patcher applies patches to the values of a definition.
type patcher struct {
	*teller
	root *value
	// steps are the present steps by id, as they were read, and agents the entries of `agents`.
	steps  map[string]*Step
	agents map[string]*value
	// removed are ids of steps that are not there any more, with what removed them.
	removed map[string]*value
	// explicit says that all steps have their ids written out.
	explicit bool
}

// about sets what the fork says of itself.
func (p *patcher) about(f *ForkDocument, d *Definition) {
	name := f.Name
	if name == "" {
		const mark = " (fork)"
		name = d.Name[:min(len(d.Name), maxName-len(mark))]
		name = strings.ToValidUTF8(name, "") + mark
	}
	p.root.put("name", &value{kind: text, text: name}, topKeys)
	for _, key := range aboutKeys {
		if v := f.root.get(key); v != nil {
			p.root.put(key, v, topKeys)
		}
	}
}

// note knows the steps and agents of the base.
func (p *patcher) note(d *Definition) {
	each(d.Steps, func(s *Step) bool {
		if !s.whole() {
			p.steps[s.ID] = s
		}
		return true
	})
	for _, a := range d.Agents {
		p.agents[a.Name] = a.at
	}
}

// topKeys and stepKeys are keys in the order in which they are written.
var (
	topKeys  = []string{"name", "version", "description", "tags", "inputs", "trigger", "trigger_config", "triggers", "state", "model", "threads", "agents", "task", "thread_id", "steps", "graph", "router", "stop", "max_turns", "outputs", "budget"}
	stepKeys = []string{"id", "type"}
)

// put sets a key. A new one is put where the order has it, or last.
func (v *value) put(key string, to *value, order []string) {
	to.under, to.key, to.index = v, key, 0
	for i := range v.entries {
		if v.entries[i].key == key {
			if was := v.entries[i].value; was != to {
				was.under = nil
			}
			v.entries[i].value, v.entries[i].at = to, to.at
			return
		}
	}
	at := len(v.entries)
	if rank := slices.Index(order, key); rank >= 0 {
		for i := range v.entries {
			if other := slices.Index(order, v.entries[i].key); other < 0 || other > rank {
				at = i
				break
			}
		}
	}
	v.entries = slices.Insert(v.entries, at, entry{key, to.at, to})
}

// drop removes a key.
func (v *value) drop(key string) {
	if was := v.get(key); was != nil {
		was.under = nil
	}
	v.entries = slices.DeleteFunc(v.entries, func(e entry) bool { return e.key == key })
}

// insert puts an item into a list, and cut takes one out.
func (v *value) insert(at int, item *value) {
	v.items = slices.Insert(v.items, at, item)
	v.renumber()
}

func (v *value) cut(at int) {
	v.items[at].under = nil
	v.items = slices.Delete(v.items, at, at+1)
	v.renumber()
}

func (v *value) renumber() {
	for i, item := range v.items {
		item.under, item.index, item.key = v, i, ""
	}
}

// actions are what patches do, by name.
var actions = map[string]func(p *patcher, o *object){
	"add_step": (*patcher).addStep, "add_tool": (*patcher).addTool, "remove_step": (*patcher).removeStep, "remove_tool": (*patcher).removeTool,
	"update_config": (*patcher).updateConfig, "update_model": (*patcher).updateModel, "update_prompt": (*patcher).updatePrompt, "update_trigger": (*patcher).updateTrigger,
}

func (p *patcher) apply(v *value) {
	o := p.object(v, "a patch")
	if o.bad {
		return
	}
	names := []string{"add_step", "add_tool", "remove_step", "remove_tool", "update_config", "update_model", "update_prompt", "update_trigger"}
	action := o.value("action")
	switch {
	case action == nil:
		o.missing("action", "use "+words(names, "or"))
	case !p.is(action, text):
	case actions[action.text] == nil:
		p.word(action, "the action of a patch", names)
	default:
		o.what = "a patch " + action.text
		actions[action.text](p, o)
		o.done()
	}
}

// target is the step or agent that a patch names, as its values. It is nil after a fault.
func (p *patcher) target(o *object) (v *value, id string) {
	name := o.mustText("step_id", "agent_id")
	if name == nil {
		return nil, ""
	}
	id = strings.TrimSpace(name.text)
	if s := p.steps[id]; s != nil {
		return s.at, id
	}
	if a := p.agents[id]; a != nil {
		return a, id
	}
	p.unknown(name, id)
	return nil, ""
}

// unknown tells of a name that is that of no step.
func (p *patcher) unknown(at *value, id string) {
	if by := p.removed[id]; by != nil {
		p.at(at, "UNKNOWN_STEP", "", "the step %q was removed by the patch in line %d", clip(id), by.at.Line)
		return
	}
	ids := make([]string, 0, len(p.steps)+len(p.agents))
	for id := range p.steps {
		ids = append(ids, id)
	}
	for id := range p.agents {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	hint := ""
	if best := nearest(id, ids); best != "" {
		hint = "did you mean `" + best + "`?"
	} else if len(ids) <= 10 {
		hint = "there is " + words(ids, "and")
	}
	p.at(at, "UNKNOWN_STEP", hint, "the workflow has no step %q", clip(id))
}

// prompts are the keys under which steps of a type have what they are told, the first one if there is
// none.
var prompts = map[string][]string{
	"code": {"code", "snippet"}, "human": {"message", "prompt"}, "reply_chat": {"message", "template"}, "transform": {"template", "value", "expr"},
	"agent": {"prompt"}, "deep_agent": {"prompt"}, "categorizer": {"prompt"}, "extractor": {"prompt"},
}

func (p *patcher) updatePrompt(o *object) {
	v, id := p.target(o)
	to, given := o.one("prompt", "snippet", "code")
	if to == nil {
		o.missing("prompt", "what it is told; `code` for a step that runs a script")
	}
	if v == nil || to == nil {
		return
	}
	if p.agents[id] == v {
		v.put("instructions", to, nil)
		return
	}
	kind := p.steps[id].Type
	keys := prompts[kind]
	if keys == nil {
		p.at(o.v, "NO_PROMPT", "use update_config", "the step %q is of the type %s, which is told nothing", clip(id), kind)
		return
	}
	if (kind == "code") == (given == "prompt") {
		hint := "use `prompt`"
		if kind == "code" {
			hint = "use `code`"
		}
		p.at(to, "FIELD_NOT_USED", hint, "a step of the type %s has no `%s`", kind, given)
		return
	}
	key := keys[0]
	for _, k := range keys {
		if v.get(k) != nil {
			key = k
			break
		}
	}
	v.put(key, to, stepKeys)
}

func (p *patcher) updateConfig(o *object) {
	v, id := p.target(o)
	changes := o.entries("config")
	if o.value("config") == nil {
		o.missing("config", "keys of the step with their new values, null to remove one")
	}
	if v == nil {
		return
	}
	for _, e := range changes {
		switch {
		case (e.key == "id" || e.key == "type") && p.agents[id] != v:
			p.add(Fault{Code: "NOT_CHANGEABLE", Place: e.at, Path: e.value.path(), Message: fmt.Sprintf("the %s of a step stays", e.key), Hint: "remove the step and add another one"})
		case e.value.kind == null:
			if v.get(e.key) == nil {
				p.add(Fault{Code: "UNKNOWN_KEY", Place: e.at, Path: e.value.path(), Message: fmt.Sprintf("%q has no key `%s` to be removed", clip(id), clip(e.key))})
			}
			v.drop(e.key)
		default:
			v.put(e.key, e.value, stepKeys)
		}
	}
	if p.agents[id] != v {
		p.renew(v, o.v)
	}
}

func (p *patcher) updateModel(o *object) {
	v := p.root
	if step, _ := o.one("step_id", "agent_id"); step != nil {
		v, _ = p.target(o)
	}
	to := o.v.get("model")
	o.value("model")
	if to == nil {
		o.missing("model", "a model profile, null for the default")
	}
	switch {
	case v == nil || to == nil:
	case to.kind == null:
		v.drop("model")
	case v == p.root:
		v.put("model", to, topKeys)
	default:
		v.put("model", to, stepKeys)
	}
}

func (p *patcher) updateTrigger(o *object) {
	to, key := o.one("trigger", "triggers")
	if to == nil {
		o.missing("trigger", "what starts the workflow, such as manual")
		return
	}
	p.root.drop("trigger")
	p.root.drop("triggers")
	p.root.drop("trigger_config")
	p.root.put(key, to, topKeys)
}

// toolOf is the tool that a patch gives: the name of an actor, or keys and values. The actor may be given as
// `type` with its arguments beside it, unless it is a tool that other platforms have, which Read knows.
func (p *patcher) toolOf(o *object) *value {
	v := o.must("tool", "tool_type")
	if v == nil || v.kind != mapping || v.get("type") == nil || v.get("actor") != nil || isPlatformTool(v.get("type").text) {
		return v
	}
	out := &value{kind: mapping, at: v.at}
	with := &value{kind: mapping, at: v.at}
	for _, e := range v.entries {
		switch e.key {
		case "type":
			out.put("actor", e.value, nil)
		case "name", "description", "with":
			out.put(e.key, e.value, nil)
		default:
			with.put(e.key, e.value, nil)
		}
	}
	if len(with.entries) > 0 {
		if out.get("with") != nil {
			p.at(v, "SEVERAL_FORMS", "put all of them into `with`", "arguments stand in `with` and beside it")
		}
		out.put("with", with, nil)
	}
	return out
}

// toolsOf are the tools of a step or an agent, nil if it can have none.
func (p *patcher) toolsOf(o *object, v *value, id string) *value {
	if p.agents[id] != v {
		kind := p.steps[id].Type
		if kind != "agent" && kind != "deep_agent" {
			p.at(o.v, "NO_TOOLS", "name a step of the type agent", "the step %q is of the type %s, which has no tools", clip(id), kind)
			return nil
		}
		if name := v.get("agent"); name != nil {
			p.at(o.v, "NO_TOOLS", "give its name as `step_id`", "the tools of the step %q are those of the agent %q", clip(id), clip(name.text))
			return nil
		}
	}
	if tools := v.get("tools"); tools != nil && tools.kind == list {
		return tools
	}
	return &value{kind: list}
}

func (p *patcher) addTool(o *object) {
	v, id := p.target(o)
	tool := p.toolOf(o)
	if v == nil || tool == nil {
		return
	}
	if tools := p.toolsOf(o, v, id); tools != nil {
		tools.insert(len(tools.items), tool)
		v.put("tools", tools, stepKeys)
	}
}

// removeTool removes a tool by the step's id and the tool's name, or by both in one: NAME_STEP_N.
func (p *patcher) removeTool(o *object) {
	if node := o.value("tool_node_id"); node != nil {
		if p.is(node, text) && !p.removeNode(node.text) {
			p.at(node, "UNKNOWN_TOOL", "name the step by `step_id` and the tool by `tool`", "there is no tool %q", clip(node.text))
		}
		return
	}
	v, id := p.target(o)
	name := o.mustText("tool", "tool_type")
	if v == nil || name == nil {
		return
	}
	tools := p.toolsOf(o, v, id)
	if tools == nil {
		return
	}
	var names []string
	for i, tool := range tools.items {
		actor, own := toolNames(tool)
		if name.text == actor || name.text == own {
			p.cutTool(v, tools, i)
			return
		}
		names = append(names, own)
	}
	hint := "it has none"
	if len(names) > 0 {
		hint = "it has " + words(names[:min(len(names), 10)], "and")
	}
	p.at(name, "UNKNOWN_TOOL", hint, "%q has no tool %q", clip(id), clip(name.text))
}

// toolNames are the actor of a tool, and what the model calls it.
func toolNames(v *value) (actor, name string) {
	actor = v.text
	for _, key := range []string{"actor", "type"} {
		if in := v.get(key); in != nil {
			actor = in.text
			break
		}
	}
	actor = strings.TrimSpace(actor)
	if in := v.get("name"); in != nil {
		return actor, in.text
	}
	return actor, notID.ReplaceAllString(actor, "_")
}

// cutTool takes a tool out, and the key with the last one.
func (p *patcher) cutTool(of, tools *value, at int) {
	if tools.cut(at); len(tools.items) == 0 {
		of.drop("tools")
	}
}

// removeNode removes the tool NAME_STEP_N, where N counts the tools of the step or agent.
func (p *patcher) removeNode(node string) bool {
	remove := func(id string, v *value) bool {
		tools := v.get("tools")
		if tools == nil {
			return false
		}
		for i, tool := range tools.items {
			actor, name := toolNames(tool)
			end := "_" + id + "_" + strconv.Itoa(i+1)
			if node == name+end || node == actor+end {
				p.cutTool(v, tools, i)
				return true
			}
		}
		return false
	}
	for id, s := range p.steps {
		if strings.Contains(node, id) && remove(id, s.at) {
			return true
		}
	}
	for id, a := range p.agents {
		if strings.Contains(node, id) && remove(id, a) {
			return true
		}
	}
	return false
}

// forkKey begins a line, or the whole, that gives `based_on` at the top of a text.
var forkKey = regexp.MustCompile(`(?m)^(?:\{\s*)?["']?based_on["']?\s*:`)

// IsFork reports whether a text is meant as that of a fork: whether it gives `based_on` at its top. It reads
// no more than that; ReadFork tells the faults.
func IsFork(src []byte) bool {
	if src = bytes.TrimSpace(src); len(src) > 0 && src[0] == '{' {
		var keys struct {
			BasedOn json.RawMessage `json:"based_on"`
		}
		if json.Unmarshal(src, &keys) == nil {
			return keys.BasedOn != nil
		}
	}
	return forkKey.Match(src)
}

// IsGraph reports whether a text is meant as a graph: whether it is a JSON object with `nodes` and without
// `steps`. It reads no more than that.
func IsGraph(src []byte) bool {
	if src = bytes.TrimSpace(src); len(src) == 0 || src[0] != '{' {
		return false
	}
	var keys struct {
		Nodes json.RawMessage `json:"nodes"`
		Steps json.RawMessage `json:"steps"`
	}
	return json.Unmarshal(src, &keys) == nil && keys.Nodes != nil && keys.Steps == nil
}
