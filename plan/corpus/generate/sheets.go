package generate

import (
	"fmt"
	"slices"
	"strings"
)

// sheets are the styles of tables.
var sheets = []style{
	{"tables", 12, (*writer).table},
	{"csv", 8, (*writer).csv},
}

// columns holds the header and the cells of a table.
type columns struct {
	head []string
	rows [][]string
}

func (c *columns) add(head string, cell func(i int) string) {
	c.head = append(c.head, head)
	for i := range c.rows {
		c.rows[i] = append(c.rows[i], cell(i))
	}
}

// columns draws the columns of a plan. cell writes the references of a cell.
func (t *writer) columns(cell func(nodes []int) string) columns {
	c := columns{rows: make([][]string, len(t.needs))}
	if !t.out.Hidden {
		c.add(t.pick("label.id"), func(i int) string { return t.id[i] })
	}
	task := func() {
		c.add(t.pick("label.task"), func(i int) string { return t.cap(t.title[i]) })
	}
	refs := func() {
		switch {
		case t.how.before:
			c.add(t.pick("label.blocks"), func(i int) string { return cell(t.after(i)) })
		default:
			c.add(t.pick("label.needs"), func(i int) string { return cell(t.needs[i]) })
		}
	}
	early := !t.out.Hidden && t.yes(0.15)
	if early {
		refs()
	}
	task()
	for _, label := range []string{"label.owner", "label.time", "label.status"} {
		if t.yes(0.35) {
			values := map[string]string{"label.owner": "name", "label.time": "unit", "label.status": "status"}[label]
			c.add(t.pick(label), func(int) string { return t.pick(values) })
		}
	}
	if !early {
		refs()
	}
	return c
}

func (t *writer) tableIDs() {
	switch {
	case t.yes(0.45):
		t.numbers()
	case t.yes(0.15):
		t.byTitle()
	case t.yes(0.2) && t.letters(false):
	default:
		t.codes()
	}
}

func (t *writer) table() bool {
	if t.yes(0.1) {
		return t.listedTable()
	}
	t.draw(60)
	if t.yes(0.15) {
		t.shuffle()
	}
	t.tableIDs()
	t.how.before = t.yes(0.12)
	empty := t.one("–", "-", "—", "", "", "none", t.pick("nothing"), "n/a")
	if t.number && empty == "-" {
		empty = "–"
	}
	sep := t.one(", ", ", ", ", ", "; ", " and ", " + ", "<br>", ",", " ")
	if sep == " and " {
		sep = " " + t.pick("and") + " "
	}
	if t.out.Hidden {
		sep = t.one(", ", "; ", "<br>")
	}
	if len(t.needs) > 1 && t.number && t.yes(0.1) {
		sep = ", "
		t.ref = nil
		for _, x := range t.id {
			t.ref = append(t.ref, "#"+x)
		}
	}
	c := t.columns(func(nodes []int) string {
		if len(nodes) == 0 {
			return empty
		}
		return strings.Join(t.refs(nodes), sep)
	})
	t.wrap(t.pipes(c))
	t.truth()
	return true
}

// listedTable writes a table without a column of dependencies: its steps follow one another.
func (t *writer) listedTable() bool {
	t.chain(15)
	t.numbers()
	c := columns{rows: make([][]string, len(t.needs))}
	step := t.pick("step")
	c.add(step, func(i int) string { return t.id[i] })
	c.add(t.pick("label.task"), func(i int) string { return t.cap(t.title[i]) })
	if t.yes(0.5) {
		c.add(t.pick("label.owner"), func(int) string { return t.pick("name") })
	}
	t.wrap(t.pipes(c))
	t.truth()
	return true
}

// pipes writes a Markdown table.
func (t *writer) pipes(c columns) string {
	bold, padded := t.yes(0.1), t.yes(0.3)
	width := make([]int, len(c.head))
	if padded {
		for _, row := range append([][]string{c.head}, c.rows...) {
			for k, cell := range row {
				width[k] = max(width[k], len([]rune(cell)))
			}
		}
	}
	line := func(cells []string) string {
		out := slices.Clone(cells)
		for k := range out {
			out[k] += strings.Repeat(" ", max(0, width[k]-len([]rune(out[k]))))
		}
		return "| " + strings.Join(out, " | ") + " |\n"
	}
	rule := make([]string, len(c.head))
	for k := range rule {
		rule[k] = t.one("---", "---", ":---", ":---:")
	}
	s := line(c.head) + line(rule)
	for _, row := range c.rows {
		row = slices.Clone(row)
		if bold {
			row[0] = "**" + row[0] + "**"
		}
		s += line(row)
	}
	return s
}

func (t *writer) csv() bool {
	t.draw(60)
	t.tableIDs()
	comma := t.one(",", ",", ",", ";", ";", "\t", "|")
	inner := map[string][]string{",": {";", " ", "|", ", "}, ";": {",", ", ", " "}, "\t": {",", ", ", " "}, "|": {",", ", "}}[comma]
	sep := t.one(inner...)
	if t.out.Hidden && sep == " " {
		sep = inner[0]
	}
	lag := t.number && t.yes(0.2)
	c := t.columns(func(nodes []int) string {
		var out []string
		for _, x := range t.refs(nodes) {
			if lag && t.yes(0.3) {
				x += t.one("FS", "FS+2d", "FS+1 day", "SS+1d", "FS-1d")
			}
			out = append(out, x)
		}
		return strings.Join(out, sep)
	})
	var b strings.Builder
	for _, row := range append([][]string{c.head}, c.rows...) {
		for k, cell := range row {
			if k > 0 {
				b.WriteString(comma)
			}
			if strings.Contains(cell, comma) || strings.Contains(cell, `"`) {
				cell = `"` + strings.ReplaceAll(cell, `"`, `""`) + `"`
			}
			b.WriteString(cell)
		}
		b.WriteString("\n")
	}
	t.fence(b.String(), "csv")
	t.truth()
	return true
}

// fence puts a text into a code fence or leaves it without one, with or without opening and closing words.
func (t *writer) fence(body, kind string) {
	body = strings.TrimRight(body, "\n")
	switch x := t.Float64(); {
	case x < 0.35:
		t.out.Body = body
	case x < 0.85:
		t.out.Body = fmt.Sprintf("```%s\n%s\n```", t.one(kind, kind, ""), body)
	default:
		t.out.Body = t.pick("intro") + "\n\n" + body
		return
	}
	if strings.HasPrefix(t.out.Body, "```") {
		if t.yes(0.7) {
			t.out.Body = t.pick("intro") + "\n\n" + t.out.Body
		}
		if t.yes(0.3) {
			t.out.Body += "\n\n" + t.pick("outro")
		}
	}
}
