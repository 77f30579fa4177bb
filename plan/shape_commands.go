package plan

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// commandTasks reads a list of commands that build a plan: [{"command_name": "Plan.append_task", "args":
// {task}}]. A list of other commands says that there is no plan.
func commandTasks(d *document, v *form.Value) *reading {
	if v.Kind != form.KindList || len(v.Items) == 0 {
		return nil
	}
	var tasks []*form.Value
	r := &reading{edgesStated: true}
	for _, it := range v.Items {
		name := it.Get("commandname", "command")
		if it.Kind != form.KindObject || name == nil {
			return nil
		}
		lower := strings.ToLower(name.Text())
		args := it.Get("args", "arguments", "parameters")
		adds := strings.Contains(lower, "task") && (strings.Contains(lower, "append") || strings.Contains(lower, "add") || strings.Contains(lower, "create"))
		switch {
		case adds && args != nil && args.Kind == form.KindObject:
			tasks = append(tasks, args)
			r.owned = append(r.owned, name.Off)
		case strings.HasPrefix(lower, "plan."):
			r.diag(d, Warning, SkippedText, it.Off, name.Text(), "a command that adds no task was skipped", "")
		}
	}
	if len(tasks) == 0 {
		return &reading{noPlan: &NoPlan{Reason: NotAGraph, Message: "the text is a list of commands, and none of them adds a task"}}
	}
	readTasks(d, r, tasks)
	r.strict = true
	return r
}

// singleAction reads {"plan": {"rationale", "function", "parameters"}}: one function call, or none.
func singleAction(d *document, v *form.Value) *reading {
	if v.Kind != form.KindObject {
		return nil
	}
	p := v.Get("plan")
	if p == nil || p.Kind != form.KindObject {
		return nil
	}
	f := p.Get("function")
	if f == nil || !f.IsScalar() || p.Get("rationale") == nil && p.Get("parameters") == nil {
		return nil
	}
	r := &reading{edgesStated: true}
	for _, x := range p.Fields {
		r.owned = append(r.owned, x.Val.Off) // every field is kept
	}
	if name := strings.TrimSpace(f.Text()); name != "" {
		x := d.problem(name, p.Get("rationale").Text(), f.Off)
		x.Tool = name
		x.Refs = x.addArgs(d, p.Get("parameters"))
		x.addFields(p, p.Get("parameters"))
		r.graph.Problems = append(r.graph.Problems, x)
	}
	return r
}
