package workflow

import (
	"slices"
	"strings"
)

// Uses are the parts that a definition is made of, by name, for those who look for workflows. Each list
// is sorted and has no name twice.
type Uses struct {
	// Triggers start it: "manual" if it names none.
	Triggers []string
	// Types are those of its steps. A team has the types of its members, too: agent, human, workflow, actor.
	Types []string
	// Tools are the actors that its agents may call and those that its steps call, as ToolName has them.
	// A step of the type `code` or `http` calls the tool of that name, and each MCP server is
	// "mcp/SERVER".
	Tools []string
	// Models are the model profiles that it names.
	Models []string
}

// The tools that are step types, too.
const toolCode, toolHTTP = "code", "http"

// ToolName is the one name under which a tool is found that definitions and those who look for workflows call
// by several.
func ToolName(name string) string {
	switch name {
	case "starlark":
		return toolCode
	case "http_request":
		return toolHTTP
	}
	if actor, is := catalogTools[name]; is {
		return actor
	}
	return name
}

// Uses says which triggers, types of steps, tools and models the definition has.
func (d *Definition) Uses() Uses {
	var u Uses
	u.Triggers = named(u.Triggers, d.root.get("triggers"), "type")
	u.Triggers = named(u.Triggers, d.root.get("trigger"), "type")
	if u.Triggers = slices.DeleteFunc(u.Triggers, func(name string) bool { return name == "none" }); len(u.Triggers) == 0 {
		u.Triggers = []string{"manual"}
	}
	u.model(d.root)
	if graph := d.root.get("graph"); graph != nil {
		if choose := graph.get("choose"); choose != nil {
			u.model(choose)
		}
	}
	for i := range d.Agents {
		u.of(d.Agents[i].at)
	}
	each(d.Steps, func(s *Step) bool {
		u.Types = append(u.Types, s.Type)
		if s.Type == "team" {
			u.members(d)
		}
		if s.Type == toolCode || s.Type == toolHTTP {
			u.Tools = append(u.Tools, s.Type)
		}
		u.of(s.at)
		return true
	})
	u.within(d)
	for i, name := range u.Tools {
		u.Tools[i] = ToolName(name)
	}
	for _, names := range []*[]string{&u.Triggers, &u.Types, &u.Tools, &u.Models} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
	return u
}

// within adds what the workflows that agents are have, but for their triggers: nothing starts these alone.
func (u *Uses) within(d *Definition) {
	for i := range d.Agents {
		if m := d.Agents[i].member; m != nil && m.inner != nil {
			inner := m.inner.Uses()
			u.Types, u.Tools, u.Models = append(u.Types, inner.Types...), append(u.Tools, inner.Tools...), append(u.Models, inner.Models...)
		}
	}
}

// members adds what the members of a team are, by the names of steps that do the same.
func (u *Uses) members(d *Definition) {
	for i := range d.Agents {
		if m := d.Agents[i].member; m != nil {
			u.Types = append(u.Types, strings.ToLower(string(m.kind)))
		}
	}
}

// of adds what an agent or a step uses.
func (u *Uses) of(v *value) {
	u.Tools = named(u.Tools, v.get("tools"), "actor")
	if tools := v.get("tools"); tools != nil {
		for _, tool := range tools.items {
			if tool.kind == mapping {
				u.Tools = named(u.Tools, tool.get("type"), "")
			}
		}
	}
	u.Tools = named(u.Tools, v.get("actor"), "")
	for _, server := range named(nil, v.get("mcp_servers"), "") {
		u.Tools = append(u.Tools, "mcp/"+server)
	}
	u.model(v)
	if judge := v.get("judge"); judge != nil {
		u.model(judge)
	}
	if below := v.get("subagents"); below != nil {
		for _, item := range below.items {
			u.of(item)
		}
	}
}

// model adds the model of an agent, a step or the whole: a profile by its name, or keys of which one
// names it.
func (u *Uses) model(v *value) {
	for _, key := range []string{"profile", "model_name", "capability"} {
		u.Models = named(u.Models, v.get("model"), key)
	}
}

// named adds the names in a value: a text, the text at a key of it, or a list of such.
func named(names []string, v *value, key string) []string {
	switch {
	case v == nil:
	case v.kind == text:
		if s := strings.TrimSpace(v.text); s != "" {
			names = append(names, s)
		}
	case v.kind == list:
		for _, item := range v.items {
			names = named(names, item, key)
		}
	case v.kind == mapping:
		if in := v.get(key); in != nil && in.kind == text {
			names = named(names, in, key)
		}
	}
	return names
}
