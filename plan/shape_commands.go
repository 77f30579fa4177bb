package plan

import "strings"

// commandTasks reads a list of commands that build a plan: [{"command_name": "Plan.append_task", "args": {task}}].
// A list of commands that does not build one says that there is no plan.
func commandTasks(d *document, v *value) *reading {
	if v.kind != kindList || len(v.items) == 0 {
		return nil
	}
	var tasks []*value
	r := &reading{edgesStated: true}
	for _, it := range v.items {
		name := it.get("commandname", "command")
		if it.kind != kindObject || name == nil {
			return nil
		}
		lower := strings.ToLower(name.text())
		args := it.get("args", "arguments", "parameters")
		adds := strings.Contains(lower, "task") && (strings.Contains(lower, "append") || strings.Contains(lower, "add") || strings.Contains(lower, "create"))
		switch {
		case adds && args != nil && args.kind == kindObject:
			tasks = append(tasks, args)
		case strings.HasPrefix(lower, "plan."):
			r.diag(d, Warning, SkippedText, it.off, name.text(), "a command that adds no task was passed over", "")
		}
	}
	if len(tasks) == 0 {
		return &reading{noPlan: &NoPlan{Reason: NotAGraph, Message: "the text is a list of commands, and none of them adds a task"}}
	}
	readTasks(d, r, tasks)
	return r
}

// singleAction reads {"plan": {"rationale", "function", "parameters"}}: one function to call, or none.
func singleAction(d *document, v *value) *reading {
	if v.kind != kindObject {
		return nil
	}
	p := v.get("plan")
	if p == nil || p.kind != kindObject {
		return nil
	}
	f := p.get("function")
	if f == nil || !f.isScalar() || p.get("rationale") == nil && p.get("parameters") == nil {
		return nil
	}
	r := &reading{edgesStated: true}
	if name := strings.TrimSpace(f.text()); name != "" {
		x := d.problem(name, p.get("rationale").text(), f.off)
		x.Refs = x.addArgs(d, p.get("parameters"))
		r.graph.Problems = append(r.graph.Problems, x)
	}
	return r
}
