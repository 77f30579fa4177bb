package generate

import (
	"fmt"
	"strings"
)

// codes are the styles of programs and of files that drive programs.
var codes = []style{
	{"python", 6, (*writer).python},
	{"code", 6, (*writer).flows},
	{"pseudo", 5, (*writer).pseudo},
	{"makefile", 4, (*writer).makefile},
	{"nested_calls", 3, (*writer).nested},
}

// diagrams are the styles of diagrams.
var diagrams = []style{
	{"mermaid", 6, (*writer).mermaid},
	{"dot_uml", 5, (*writer).dot},
	{"arrows", 5, (*writer).arrows},
	{"ascii", 4, (*writer).ascii},
	{"gantt", 5, (*writer).gantt},
}

// python writes assignments whose right sides use earlier names.
func (t *writer) python() bool {
	t.draw(25)
	t.slugs("_")
	verb := t.one("run_", "do_", "make_", "get_", "calc_")
	var alt []string
	var b strings.Builder
	notes := t.yes(0.3)
	for i, x := range t.needs {
		args := t.refs(x)
		if len(args) == 0 || t.yes(0.2) {
			args = append(args, t.one(`"north.csv"`, "2027", `mode="fast"`, "limit=20"))
		}
		if notes {
			fmt.Fprintf(&b, "# %s\n", t.title[i])
		}
		fmt.Fprintf(&b, "%s = %s%s(%s)\n", t.id[i], verb, t.id[i], strings.Join(args, ", "))
		alt = append(alt, verb+t.id[i])
	}
	t.out.Alt = append(t.out.Alt, alt)
	t.fence(b.String(), "python")
	t.truth()
	return true
}

// flows writes programs of well-known schedulers.
func (t *writer) flows() bool {
	t.draw(20)
	t.slugs("_")
	var b strings.Builder
	switch t.IntN(4) {
	case 0:
		b.WriteString("from airflow import DAG\nfrom airflow.operators.bash import BashOperator\n\nwith DAG(\"night\", schedule=\"@daily\") as dag:\n")
		for _, id := range t.id {
			fmt.Fprintf(&b, "    %s = BashOperator(task_id=\"%s\", bash_command=\"./%s.sh\")\n", id, id, id)
		}
		b.WriteString("\n")
		for i, x := range t.needs {
			switch len(x) {
			case 0:
			case 1:
				fmt.Fprintf(&b, "    %s >> %s\n", t.id[x[0]], t.id[i])
			default:
				fmt.Fprintf(&b, "    [%s] >> %s\n", strings.Join(t.refs(x), ", "), t.id[i])
			}
		}
	case 1:
		t.slugs("")
		b.WriteString("import luigi\n")
		for i, x := range t.needs {
			fmt.Fprintf(&b, "\nclass %s(luigi.Task):\n", t.id[i])
			switch len(x) {
			case 0:
			case 1:
				fmt.Fprintf(&b, "    def requires(self):\n        return %s()\n\n", t.id[x[0]])
			default:
				fmt.Fprintf(&b, "    def requires(self):\n        return [%s()]\n\n", strings.Join(t.refs(x), "(), "))
			}
			b.WriteString("    def run(self):\n        work()\n")
		}
	case 2:
		b.WriteString("@flow(name=\"night\")\ndef night():\n")
		var alt []string
		for i, x := range t.needs {
			args := t.refs(x)
			if len(args) == 0 {
				args = []string{`"north"`}
			}
			fmt.Fprintf(&b, "    %s = do_%s.submit(%s)\n", t.id[i], t.id[i], strings.Join(args, ", "))
			alt = append(alt, "do_"+t.id[i])
		}
		t.out.Alt = append(t.out.Alt, alt)
	case 3:
		b.WriteString("async function main() {\n")
		var alt []string
		for i, x := range t.needs {
			args := t.refs(x)
			if len(args) == 0 {
				args = []string{"'north'"}
			}
			fmt.Fprintf(&b, "  const %s = await do_%s(%s);\n", t.id[i], t.id[i], strings.Join(args, ", "))
			alt = append(alt, "do_"+t.id[i])
		}
		b.WriteString("}\n")
		t.out.Alt = append(t.out.Alt, alt)
	}
	t.fence(b.String(), t.one("python", "python", ""))
	if strings.Contains(t.out.Body, "await") {
		t.out.Body = strings.Replace(t.out.Body, "```python", "```js", 1)
	}
	t.truth()
	return true
}

// pseudo writes blocks of steps, some of them in parallel.
func (t *writer) pseudo() bool {
	stages := t.stages(12, 3)
	step := func(i int) string { return t.title[i] }
	if t.yes(0.4) {
		t.slugs("_")
		end := t.one("()", "();", "")
		step = func(i int) string { return t.id[i] + end }
	} else {
		t.hide()
	}
	open, shut := t.pick("par"), t.pick("par.end")
	form := t.IntN(3)
	if form == 2 && len(stages) == len(t.needs) {
		return false
	}
	var b strings.Builder
	switch form {
	case 0:
		b.WriteString("BEGIN\n")
	case 1:
		b.WriteString("seq {\n")
	}
	for _, stage := range stages {
		if len(stage) == 1 {
			b.WriteString("  " + step(stage[0]) + "\n")
			continue
		}
		switch form {
		case 0:
			b.WriteString("  " + open + "\n")
		case 1:
			b.WriteString("  par {\n")
		default:
			b.WriteString("  " + strings.ToLower(open) + ":\n")
		}
		for _, i := range stage {
			b.WriteString("    " + step(i) + "\n")
		}
		switch form {
		case 0:
			b.WriteString("  " + shut + "\n")
		case 1:
			b.WriteString("  }\n")
		}
	}
	switch form {
	case 0:
		b.WriteString("END\n")
	case 1:
		b.WriteString("}\n")
	}
	t.fence(b.String(), "text")
	t.truth()
	return true
}

func (t *writer) makefile() bool {
	t.draw(20)
	t.shuffle()
	t.slugs(t.one("_", "-"))
	var b strings.Builder
	if t.yes(0.4) {
		b.WriteString(".PHONY: " + strings.Join(t.id, " ") + "\n\n")
	}
	for i, x := range t.needs {
		line := t.id[i] + ": " + strings.Join(t.refs(x), " ")
		b.WriteString(strings.TrimRight(line, " ") + "\n\t./scripts/" + t.id[i] + ".sh\n\n")
	}
	t.fence(b.String(), "make")
	t.truth()
	return true
}

// nested writes calls inside calls; the inner ones come first.
func (t *writer) nested() bool {
	n := 3 + t.IntN(6)
	t.needs = make([][]int, n)
	t.title = t.titles(n)
	parent := make([]int, n)
	for i := 1; i < n; i++ {
		// A parent is the node before or one of that node's ancestors, so that the text shows the nodes in
		// this order.
		p := i - 1
		for p > 0 && t.yes(0.35) {
			p = parent[p]
		}
		parent[i] = p
		t.needs[p] = append(t.needs[p], i)
	}
	t.slugs("_")
	deep := t.yes(0.5)
	var write func(i, depth int) string
	write = func(i, depth int) string {
		var in []string
		for _, k := range t.needs[i] {
			in = append(in, write(k, depth+1))
		}
		if len(in) == 0 {
			in = append(in, t.one(`"north"`, `"2027"`, `"spring", limit=20`))
			return t.id[i] + "(" + in[0] + ")"
		}
		if deep {
			pad := strings.Repeat("  ", depth+1)
			return t.id[i] + "(\n" + pad + strings.Join(in, ",\n"+pad) + "\n" + strings.Repeat("  ", depth) + ")"
		}
		return t.id[i] + "(" + strings.Join(in, ", ") + ")"
	}
	t.fence(write(0, 0), "")
	t.truth()
	return true
}

func (t *writer) mermaid() bool {
	t.draw(40)
	if len(t.needs) > 12 || t.yes(0.4) {
		t.codes()
		for i := range t.id {
			t.id[i] = strings.ReplaceAll(t.id[i], "-", "")
		}
	} else if !t.letters(false) {
		return false
	}
	alt := make([]string, len(t.id))
	for i, x := range t.title {
		alt[i] = t.cap(x)
	}
	t.out.Alt = append(t.out.Alt, alt)
	head := t.one("graph TD", "flowchart LR", "flowchart TD", "graph LR")
	shape := t.one("%s[%s]", "%s[\"%s\"]", "%s(%s)", "%s[%s]")
	arrow := t.one(" --> ", " --> ", "-->", " ==> ", " ---> ")
	var b strings.Builder
	b.WriteString(head + "\n")
	// Nodes are declared first, so that the order in which the text shows them is clear.
	for i := range t.id {
		fmt.Fprintf(&b, "    "+shape+"\n", t.id[i], alt[i])
	}
	joint := t.yes(0.3)
	for i, x := range t.needs {
		if joint && len(x) > 1 {
			fmt.Fprintf(&b, "    %s%s%s\n", strings.Join(t.refs(x), " & "), arrow, t.id[i])
			continue
		}
		for _, k := range x {
			fmt.Fprintf(&b, "    %s%s%s\n", t.id[k], arrow, t.id[i])
		}
	}
	t.fenced(b.String(), "mermaid")
	t.truth()
	return true
}

// fenced puts a diagram into a fence of its language, or leaves it without a fence.
func (t *writer) fenced(body, kind string) {
	body = strings.TrimRight(body, "\n")
	if t.yes(0.7) {
		body = "```" + kind + "\n" + body + "\n```"
	}
	if t.yes(0.4) {
		body = t.pick("intro") + "\n\n" + body
	}
	t.out.Body = body
}

func (t *writer) dot() bool {
	var b strings.Builder
	if t.yes(0.3) {
		stages := t.stages(10, 3)
		t.hide()
		b.WriteString("@startuml\nstart\n")
		for _, stage := range stages {
			for j, i := range stage {
				switch {
				case len(stage) == 1:
					fmt.Fprintf(&b, ":%s;\n", t.cap(t.title[i]))
					continue
				case j == 0:
					b.WriteString("fork\n")
				default:
					b.WriteString("fork again\n")
				}
				fmt.Fprintf(&b, "  :%s;\n", t.cap(t.title[i]))
			}
			if len(stage) > 1 {
				b.WriteString("end fork\n")
			}
		}
		b.WriteString("stop\n@enduml\n")
		t.fenced(b.String(), "plantuml")
		t.truth()
		return true
	}
	t.draw(40)
	t.slugs("_")
	labels := t.yes(0.5)
	b.WriteString("digraph " + t.one("plan", "G", "workflow") + " {\n")
	if t.yes(0.5) {
		b.WriteString("  rankdir=LR;\n  node [shape=box];\n")
	}
	for i, id := range t.id {
		if labels {
			fmt.Fprintf(&b, "  %s [label=\"%s\"];\n", id, t.cap(t.title[i]))
		} else {
			fmt.Fprintf(&b, "  %s;\n", id)
		}
	}
	if labels {
		alt := make([]string, len(t.id))
		for i, x := range t.title {
			alt[i] = t.cap(x)
		}
		t.out.Alt = append(t.out.Alt, alt)
	}
	group := t.yes(0.3)
	for i, x := range t.needs {
		if group && len(x) > 1 {
			fmt.Fprintf(&b, "  {%s} -> %s;\n", strings.Join(t.refs(x), " "), t.id[i])
			continue
		}
		for _, k := range x {
			fmt.Fprintf(&b, "  %s -> %s;\n", t.id[k], t.id[i])
		}
	}
	b.WriteString("}\n")
	t.fenced(b.String(), "dot")
	t.truth()
	return true
}

// arrows writes lines such as "a -> b", with or without a list of the steps before them.
func (t *writer) arrows() bool {
	t.draw(20)
	arrow := t.one(" -> ", " → ", " --> ", " => ", " ⟶ ")
	var b strings.Builder
	listed := t.yes(0.6)
	switch {
	case listed && t.yes(0.5):
		t.codes()
	case listed && !t.letters(false):
		return false
	case !listed:
		t.slugs("_")
	}
	if listed {
		mark := t.one("%s: %s\n", "%s – %s\n", "- %s: %s\n", "%s = %s\n")
		for i := range t.id {
			fmt.Fprintf(&b, mark, t.id[i], t.cap(t.title[i]))
		}
		b.WriteString("\n")
		if t.yes(0.5) {
			b.WriteString(t.pick("label.order") + ":\n")
		}
	} else {
		// Without a list each node must occur in an arrow. The order of the nodes is then that of the arrows.
		for i, x := range t.needs {
			if len(x) == 0 && len(t.after(i)) == 0 || i > 0 && len(x) == 0 {
				return false
			}
		}
	}
	for i, x := range t.needs {
		for _, k := range x {
			b.WriteString(t.id[k] + arrow + t.id[i] + "\n")
		}
	}
	t.wrap(b.String())
	t.truth()
	return true
}

// ascii draws chains of boxes, horizontally or vertically.
func (t *writer) ascii() bool {
	t.chain(7)
	t.byTitle()
	box := func(s string) string { return "[" + s + "]" }
	var b strings.Builder
	if t.yes(0.5) {
		var parts []string
		for _, x := range t.id {
			parts = append(parts, box(x))
		}
		b.WriteString(strings.Join(parts, t.one(" --> ", " -> ", " → ", " ──> ", "--->")))
	} else {
		bar, head := t.one("|", "│", ""), t.one("v", "▼", "↓", "V")
		for i, x := range t.id {
			if i > 0 {
				if bar != "" {
					b.WriteString("     " + bar + "\n")
				}
				b.WriteString("     " + head + "\n")
			}
			b.WriteString("  " + box(x) + "\n")
		}
	}
	t.wrap(b.String())
	t.truth()
	return true
}

func (t *writer) gantt() bool {
	t.draw(30)
	t.codes()
	for i := range t.id {
		t.id[i] = strings.ToLower(strings.ReplaceAll(t.id[i], "-", ""))
	}
	var b strings.Builder
	if t.yes(0.65) {
		b.WriteString("gantt\n    title " + t.pick("title") + "\n    dateFormat YYYY-MM-DD\n")
		half := len(t.id) / 2
		for i, x := range t.needs {
			if i == 0 || i == half {
				b.WriteString("    section " + t.lang.phrases["phasename"][min(i, 1)] + "\n")
			}
			start := fmt.Sprintf("2027-%02d-%02d", 1+t.IntN(12), 1+t.IntN(28))
			if len(x) > 0 {
				start = "after " + strings.Join(t.refs(x), " ")
			}
			fmt.Fprintf(&b, "    %s :%s, %s, %dd\n", t.cap(t.title[i]), t.one("", "", "crit, ")+t.id[i], start, 1+t.IntN(20))
		}
		t.fenced(b.String(), "mermaid")
	} else {
		t.how = manner{}
		for i := range t.id {
			t.id[i] = strings.ToUpper(t.id[i])
		}
		width := 0
		for _, x := range t.title {
			width = max(width, len([]rune(x)))
		}
		at := make([]int, len(t.id))
		for i, x := range t.needs {
			for _, k := range x {
				at[i] = max(at[i], at[k]+2)
			}
		}
		for i := range t.id {
			bar := strings.Repeat(".", at[i]) + "██"
			pad := strings.Repeat(" ", width-len([]rune(t.title[i])))
			fmt.Fprintf(&b, "%s  %s%s |%s|", t.id[i], t.cap(t.title[i]), pad, bar)
			if r := t.relation(i); r != "" {
				b.WriteString("  " + r)
			}
			b.WriteString("\n")
		}
		t.wrap(b.String())
	}
	t.truth()
	return true
}
