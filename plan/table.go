package plan

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// readTable reads a plan written as a Markdown table, with a column for what is to be done and one for numbers or
// dependencies: its rows are tasks, its columns their fields.
func readTable(d *document) *reading {
	var found *reading
	for i := 0; i+2 < len(d.lines); i++ {
		head := d.lines[i]
		if !strings.HasPrefix(head.text, "|") || !isTableRule(d.lines[i+1].text) {
			continue
		}
		keys := tableCells(d, head)
		list := &form.Value{Kind: form.KindList, Off: head.off}
		j := i + 2
		for ; j < len(d.lines) && strings.HasPrefix(d.lines[j].text, "|"); j++ {
			row := &form.Value{Kind: form.KindObject, Off: d.lines[j].off}
			for k, c := range tableCells(d, d.lines[j]) {
				if k < len(keys) && keys[k].Str != "" {
					row.Fields = append(row.Fields, form.Field{Key: tableKey(keys[k].Str), Off: c.Off, Val: c})
				}
			}
			row.End = d.lines[j].off + len(d.lines[j].text)
			list.Items = append(list.Items, row)
			list.End = row.End
		}
		first := i
		i = j - 1
		if len(list.Items) == 0 || !isTaskTable(d, list, first) {
			continue
		}
		t := &form.Tree{Root: list}
		r := matchTree(d, t, taskList)
		if r == nil {
			r = matchTree(d, t, stepTools)
		}
		if r == nil || r.noPlan != nil {
			continue
		}
		r.openEnded = true
		if last := d.lines[j-1]; !strings.HasSuffix(last.text, "|") || len(tableCells(d, last)) < len(keys) {
			n := len(r.graph.Problems)
			r.diag(d, Error, Truncated, last.off+len(last.text), r.graph.Problems[n-1].ID, "the last row of the table is not complete", "ask for the rest of the table")
		}
		if found == nil {
			found = r
		} else {
			found = pick(d, found, r)
		}
	}
	return found
}

func isTableRule(s string) bool {
	return len(s) > 2 && s[0] == '|' && strings.Contains(s, "-") && strings.Trim(s, "|-: ") == ""
}

// tableKey turns a heading into the key that the shapes know.
func tableKey(s string) string {
	switch k := strings.ToLower(strings.Trim(s, " *_`")); k {
	case "#", "no.", "nr.", "step #", "step no.", "step number", "序号", "编号", "步骤编号":
		return "id"
	case "依赖", "依赖项", "depends on", "dependencies", "dependency", "prerequisite(s)", "depends":
		return "depends_on"
	case "步骤", "任务", "内容", "描述":
		return "description"
	default:
		return k
	}
}

func tableCells(d *document, l line) []*form.Value {
	var out []*form.Value
	off := l.off + 1
	body := strings.TrimSuffix(l.text[1:], "|")
	for _, cell := range strings.Split(body, "|") {
		text := strings.Trim(strings.TrimSpace(cell), "*`")
		v := &form.Value{Kind: form.KindString, Str: text, Off: off, End: off + len(cell)}
		if text == "-" || text == "–" || text == "—" {
			v.Kind, v.Str = form.KindNull, ""
		}
		out = append(out, v)
		off += len(cell) + 1
	}
	return out
}

// isTaskTable reports whether the rows of a table are tasks: each has a number or an id and something to do, and there
// are dependencies, or the columns or the line before say that these are steps.
func isTaskTable(d *document, list *form.Value, first int) bool {
	steps := false
	for _, it := range list.Items {
		if _, ok := itemID(it); !ok || itemText(it) == "" {
			return false
		}
	}
	for _, f := range list.Items[0].Fields {
		steps = steps || saysPlan(f.Key) || f.Key == "action" || f.Key == "task" || f.Key == "subtask"
	}
	if list.Items[0].Get(depKeys...) != nil || steps {
		return true
	}
	for i := first - 1; i >= 0 && i > first-4; i-- {
		if t := d.lines[i].text; t != "" {
			return saysPlan(t)
		}
	}
	return false
}
