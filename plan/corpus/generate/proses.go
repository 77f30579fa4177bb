package generate

import (
	"fmt"
	"strings"
)

// proses are the styles of running text.
var proses = []style{
	{"prose", 8, (*writer).prose},
	{"email", 8, (*writer).email},
	{"mixed", 6, (*writer).mixed},
}

// prose writes stages with "first", "then", "meanwhile" and "finally". It shows no ids.
func (t *writer) prose() bool {
	stages := t.stages(10, 2)
	if len(stages) < 2 {
		return false
	}
	t.hide()
	var out []string
	used := map[string]bool{}
	for k, stage := range stages {
		section := "then"
		switch {
		case k == 0:
			section = "first"
		case len(stages[k-1]) > 1:
			section = "both"
		case k == len(stages)-1 && len(stage) == 1:
			section = "finally"
		}
		phrase := t.pick(section)
		for range 4 {
			if used[phrase] {
				phrase = t.pick(section)
			}
		}
		used[phrase] = true
		out = append(out, t.sentence(phrase, t.title[stage[0]]))
		for _, i := range stage[1:] {
			out = append(out, t.sentence(t.pick("meanwhile"), t.title[i]))
		}
	}
	sep := t.gap()
	if t.yes(0.2) {
		sep = "\n"
	}
	body := strings.Join(out, sep)
	if t.yes(0.3) {
		body = t.pick("chatter") + sep + body
	}
	if t.yes(0.3) {
		body += sep + t.pick("outro")
	}
	t.out.Body = body
	t.truth()
	return true
}

func (t *writer) sentence(phrase, title string) string {
	if strings.HasPrefix(phrase, "{t}") {
		title = t.cap(title)
	}
	s := strings.ReplaceAll(phrase, "{t}", title)
	return s + t.stop()
}

// email writes a letter or a chat around a list.
func (t *writer) email() bool {
	t.draw(12)
	t.manners()
	if t.yes(0.7) {
		t.numbers()
	} else {
		t.codes()
	}
	mark := t.one("%s) ", "%s. ", "%s – ")
	if !t.number {
		mark = t.one("%s: ", "- %s – ", "%s ")
	}
	list := strings.TrimRight(t.lines(func(i int) string { return fmt.Sprintf(mark, t.id[i]) }, plainly), "\n")
	name := t.pick("name")
	if t.yes(0.6) {
		head := ""
		if t.yes(0.6) {
			head = "From: " + name + "\nSubject: " + t.pick("subject") + "\n\n"
		}
		t.out.Body = head + t.pick("greeting") + "\n\n" + t.pick("intro") + "\n\n" + list + "\n\n" + t.pick("closing") + "\n" + name
	} else {
		other := t.pick("name")
		t.out.Body = fmt.Sprintf("[09:14] %s: %s?\n[09:15] bot: %s\n%s\n[09:16] %s: 👍", name, t.pick("subject"), t.pick("intro"), list, other)
	}
	t.truth()
	return true
}

// mixed writes a list, and then sentences that state the needs of its steps.
func (t *writer) mixed() bool {
	t.draw(12)
	if t.yes(0.6) {
		t.numbers()
	} else {
		t.codes()
	}
	mark := t.one("%s. ", "%s) ", "- %s: ")
	if !t.number {
		mark = t.one("%s: ", "- %s: ", "* %s – ")
	}
	var list string
	if t.yes(0.3) {
		c := columns{rows: make([][]string, len(t.needs))}
		c.add(t.pick("label.id"), func(i int) string { return t.id[i] })
		c.add(t.pick("label.task"), func(i int) string { return t.cap(t.title[i]) })
		list = t.pipes(c)
	} else {
		list = t.listed(func(i int) string { return fmt.Sprintf(mark, t.id[i]) }, plainly)
	}
	t.how.many = t.yes(0.5)
	var out []string
	free := t.yes(0.5)
	for i, x := range t.needs {
		switch {
		case len(x) > 0:
			out = append(out, fill(t.choose("state"), "{x}", t.id[i], "{r}", t.join(t.refs(x))))
		case free:
			out = append(out, fill(t.choose("free"), "{x}", t.id[i]))
		}
	}
	text := ""
	switch t.IntN(3) {
	case 0:
		for k, s := range out {
			if k > 0 {
				text += t.gap()
			}
			text += t.cap(s) + t.stop()
		}
	case 1:
		text = t.pick("label.needs.head") + "\n"
		for _, s := range out {
			text += "- " + s + "\n"
		}
	case 2:
		sep := "; "
		switch t.lang.code {
		case "zh", "ja":
			sep = "；"
		case "ar":
			sep = "؛ "
		}
		text = strings.Join(out, sep) + t.stop()
	}
	t.out.Body = list + "\n" + strings.TrimRight(text, "\n")
	if t.yes(0.3) {
		t.out.Body = t.pick("intro") + "\n\n" + t.out.Body
	}
	t.truth()
	return true
}
