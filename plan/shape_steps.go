package plan

import (
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// stepTools reads a list of steps without dependencies: [{"step": "1.2 text", "tool", "param"}], [{"node_id",
// "node_state_instruction"}], {"steps": [{…}]}. The text states no edges, so the listed order is assumed.
func stepTools(d *document, v *form.Value) *reading {
	list := v
	wrapped := false
	if v.Kind == form.KindObject || v.Kind == form.KindCall {
		list = v.Get("steps", "plan", "tasks", "substeps", "subtasks", "todos")
		wrapped = true
	}
	if list == nil || list.Kind != form.KindList || len(list.Items) == 0 || !allObjects(list) {
		if v.Kind == form.KindObject && v.Get("step") != nil && v.Get("tool") != nil && v.Get("step").Kind == form.KindString && v.Get("param", "args") != nil {
			list = &form.Value{Kind: form.KindList, Items: []*form.Value{v}, Off: v.Off, End: v.End}
		} else {
			return nil
		}
	}
	planned := wrapped
	for i, it := range list.Items {
		if itemText(it) == "" && (!it.Open || i == 0) {
			return nil
		}
		// Objects are steps if a key says so, or if they have an instruction.
		if it.Get("step", "stepid", "stepnumber", "taskid", "subtask", "problemid") != nil || it.Get("instruction", "nodestateinstruction") != nil {
			planned = true
		}
	}
	if !planned {
		return nil
	}
	if !wrapped && list.Items[0].Get("nodestateinstruction") != nil && !announced(d, list.Off) {
		// A list of alternative thoughts has the same form as a plan. Only the text around it distinguishes
		// them.
		return &reading{noPlan: &NoPlan{Reason: NotAGraph, Message: "the text is a list of thoughts, and nothing says that they are the steps of a plan"}}
	}
	r := &reading{}
	for i, it := range list.Items {
		text := itemText(it)
		id, stated := itemID(it)
		if !stated {
			if n, _ := numberPrefix(text); n != "" {
				id, stated = n, true
			}
		}
		if !stated && it.Open && i > 0 {
			continue // cut off before it has an id: it names nothing
		}
		if !stated {
			id, r.unnamed = strconv.Itoa(i+1), true
			r.diag(d, Warning, Ambiguous, it.Off, id, "the step has no number; it was given its position", "number the steps")
		}
		p := d.problem(id, text, it.Off)
		p.Tool = itemTool(it)
		args := it.Get(argKeys...)
		p.Refs = p.addArgs(d, args)
		p.addFields(it, args)
		r.graph.Problems = append(r.graph.Problems, p)
	}
	return r
}

// announced reports whether the text just before off, outside of other values, calls the following text a
// plan.
func announced(d *document, off int) bool {
	n := d.lineAt(off)
	for i := n; i >= 0 && i > n-5; i-- {
		l := d.lines[i]
		if l.fence || l.text == "" || l.off >= off {
			continue
		}
		return lexicon.Has(lexicon.Plan, l.text) && !strings.Contains(strings.ToLower(l.text), "possible")
	}
	return n == 0
}

// taskNames reads lists of plain texts under a key that names their kind: {"Task list": ["a.py", "b.py"]},
// Plan(steps=['…', '…']), {"plan": ["…"]}. Texts of one word are ids; sentences are numbered by position.
func taskNames(d *document, v *form.Value) *reading {
	list := v.Get("tasklist", "refinedtasklist", "steps", "plan", "tasks", "subtasks", "todo", "todos")
	counted := v.Kind == form.KindList && len(v.Items) > 1 && len(d.findTrees()) == 1 && d.findTrees()[0].Root == v
	if counted { // ["1. look", "2. act"]
		list = v
	}
	if list == nil || list.Kind != form.KindList || len(list.Items) == 0 {
		return nil
	}
	words, numbers := true, true
	for i, it := range list.Items {
		if it.Kind != form.KindString {
			return nil
		}
		words = words && it.Str != "" && !strings.ContainsAny(strings.TrimSpace(it.Str), " \t\n") && len(it.Str) <= 200 && !wideText(it.Str)
		n, _ := numberPrefix(it.Str)
		if numbers = numbers && n != ""; counted && n != strconv.Itoa(i+1) {
			return nil
		}
	}
	r := &reading{unnamed: !words && !numbers}
	for i, it := range list.Items {
		id, text := strconv.Itoa(i+1), it.Str
		switch {
		case words:
			id = strings.TrimSpace(it.Str)
		case numbers:
			id, text = numberPrefix(it.Str)
		}
		r.graph.Problems = append(r.graph.Problems, d.problem(id, text, it.Off))
	}
	return r
}

// wideText reports whether s has characters of a script that does not separate words.
func wideText(s string) bool {
	for _, c := range s {
		if c >= 0x2e80 {
			return true
		}
	}
	return false
}
