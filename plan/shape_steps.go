package plan

import (
	"strconv"
	"strings"
)

// stepTools reads a list of steps without dependencies: [{"step": "1.2 text", "tool", "param"}], [{"node_id", "node_state_instruction"}],
// {"steps": [{…}]}. The text states no edges, so the steps are taken in listed order.
func stepTools(d *document, v *value) *reading {
	list := v
	wrapped := false
	if v.kind == kindObject || v.kind == kindCall {
		list = v.get("steps", "plan", "tasks", "substeps", "subtasks", "todos")
		wrapped = true
	}
	if list == nil || list.kind != kindList || len(list.items) == 0 || !allObjects(list) {
		if v.kind == kindObject && v.get("step") != nil && v.get("tool") != nil && v.get("step").kind == kindString && v.get("param", "args") != nil {
			list = &value{kind: kindList, items: []*value{v}, off: v.off, end: v.end}
		} else {
			return nil
		}
	}
	planned := wrapped
	for i, it := range list.items {
		if itemText(it) == "" && (!it.open || i == 0) {
			return nil
		}
		// What makes objects steps: they say so, or they have a number and an instruction.
		if it.get("step", "stepid", "stepnumber", "taskid", "subtask", "problemid") != nil || it.get("instruction", "nodestateinstruction") != nil {
			planned = true
		}
	}
	if !planned {
		return nil
	}
	if !wrapped && list.items[0].get("nodestateinstruction") != nil && !announced(d, list.off) {
		// A list of thoughts to choose from has the same form as a plan; only the text around it can tell.
		return &reading{noPlan: &NoPlan{Reason: NotAGraph, Message: "the text is a list of thoughts, and nothing says that they are the steps of a plan"}}
	}
	r := &reading{}
	for i, it := range list.items {
		text := itemText(it)
		id, stated := itemID(it)
		if !stated {
			if n, _ := numberPrefix(text); n != "" {
				id, stated = n, true
			}
		}
		if !stated && it.open && i > 0 {
			continue // cut off before it has an id: it names nothing
		}
		if !stated {
			id = strconv.Itoa(i + 1)
			r.diag(d, Warning, Ambiguous, it.off, id, "the step has no number; it was given its position", "number the steps")
		}
		p := d.problem(id, text, it.off)
		p.Refs = p.addArgs(d, it.get(argKeys...))
		r.graph.Problems = append(r.graph.Problems, p)
	}
	return r
}

// announced reports whether the text just before off, outside of other values, calls what follows a plan.
func announced(d *document, off int) bool {
	n := d.lineAt(off)
	for i := n; i >= 0 && i > n-5; i-- {
		l := d.lines[i]
		if l.fence || l.text == "" || l.off >= off {
			continue
		}
		return saysPlan(l.text)
	}
	return n == 0
}

// taskNames reads lists of plain texts under a key that says what they are: {"Task list": ["a.py", "b.py"]},
// Plan(steps=['…', '…']), {"plan": ["…"]}. One-word texts are ids themselves, sentences are numbered by position.
func taskNames(d *document, v *value) *reading {
	if v.kind == kindList && len(v.items) > 1 && len(d.findTrees()) == 1 && d.findTrees()[0].root == v && isNumberedTexts(v) {
		v = &value{kind: kindObject, fields: []field{{key: "steps", val: v}}, off: v.off, end: v.end}
	}
	if v.kind != kindObject && v.kind != kindCall {
		return nil
	}
	list := v.get("tasklist", "refinedtasklist", "steps", "plan", "tasks", "subtasks", "todo", "todos")
	if list == nil || list.kind != kindList || len(list.items) == 0 {
		return nil
	}
	words, numbers := true, true
	for _, it := range list.items {
		if it.kind != kindString {
			return nil
		}
		words = words && it.str != "" && !strings.ContainsAny(strings.TrimSpace(it.str), " \t\n") && len(it.str) <= 200 && !wideText(it.str)
		n, _ := numberPrefix(it.str)
		numbers = numbers && n != ""
	}
	r := &reading{}
	for i, it := range list.items {
		id, text := strconv.Itoa(i+1), it.str
		switch {
		case words:
			id = strings.TrimSpace(it.str)
		case numbers:
			id, text = numberPrefix(it.str)
		}
		r.graph.Problems = append(r.graph.Problems, d.problem(id, text, it.off))
	}
	return r
}

// isNumberedTexts reports whether v is a list of texts that count from 1: ["1. look", "2. act"].
func isNumberedTexts(v *value) bool {
	for i, it := range v.items {
		if it.kind != kindString {
			return false
		}
		if n, _ := numberPrefix(it.str); n != strconv.Itoa(i+1) {
			return false
		}
	}
	return true
}

// wideText reports whether s is written in a script that does not separate words.
func wideText(s string) bool {
	for _, c := range s {
		if c >= 0x2e80 {
			return true
		}
	}
	return false
}
