package generate

import (
	"fmt"
	"strings"
)

// nonplans is the style of texts that are no plan.
var nonplans = []style{{"notplan", 34, (*writer).notPlan}}

// some returns up to n different phrases of a section, in random order.
func (t *writer) some(section string, n int) []string {
	of := t.lang.phrases[section]
	if len(of) == 0 {
		of = t.english.phrases[section]
	}
	var out []string
	for _, k := range t.Perm(len(of))[:min(n, len(of))] {
		out = append(out, of[k])
	}
	return out
}

func enumerate(of []string, mark string) string {
	var b strings.Builder
	for i, s := range of {
		if strings.Contains(mark, "%d") {
			fmt.Fprintf(&b, mark, i+1)
		} else {
			b.WriteString(mark)
		}
		b.WriteString(s + "\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

func (t *writer) notPlan() bool {
	t.out.NoPlan = true
	n := 3 + t.IntN(3)
	mark := t.one("%d. ", "%d. ", "- ", "* ", "%d) ", "• ")
	body := ""
	switch t.IntN(17) {
	case 0:
		body = t.pick("question.head") + "\n\n" + enumerate(t.some("question", n), t.one("%d. ", "%d. ", "%d) "))
	case 1:
		body = t.pick("argument.head") + "\n\n" + enumerate(t.some("argument", n), mark)
	case 2:
		body = t.pick("refusal")
	case 3:
		body = t.pick("minutes.head") + "\n\n" + enumerate(t.some("minutes", n), mark)
	case 4:
		body = t.pick("ingredient.head") + "\n\n" + enumerate(t.some("ingredient", n+1), t.one("- ", "* ", "• "))
	case 5:
		body = strings.Join(t.some("essay", 1+t.IntN(2)), "\n\n")
	case 6:
		for i, x := range t.some("faq", 4) {
			q, a, _ := strings.Cut(x, "|")
			body += fmt.Sprintf("%d. **%s**\n   %s\n", i+1, q, a)
		}
		body = "## FAQ\n\n" + strings.TrimRight(body, "\n")
	case 7:
		of := t.lang.phrases["poem"]
		if len(of) == 0 {
			of = t.english.phrases["poem"]
		}
		body = strings.Join(of, "\n")
	case 8: // prices
		body = fmt.Sprintf("| %s | € |\n|---|---|\n", t.pick("label.task.thing"))
		for _, x := range t.some("noun", 6) {
			body += fmt.Sprintf("| %s | %d,%02d |\n", x, 5+t.IntN(200), t.IntN(100))
		}
		body = strings.TrimRight(body, "\n")
	case 9: // search results
		var items []object
		for i, x := range t.some("noun", 5) {
			items = append(items, object{{"rank", i + 1}, {"title", t.cap(x)}, {"url", fmt.Sprintf("https://example.org/%d", 100+t.IntN(900))}, {"score", t.IntN(100)}})
		}
		body = render(object{{"query", t.pick("noun")}, {"results", items}}, t.one("", "  "))
	case 10: // a configuration
		body = fmt.Sprintf("server:\n  host: 0.0.0.0\n  port: %d\n  tls: true\nlogging:\n  level: %s\n  file: /var/log/app.log\ncache:\n  size: %dMB\n  ttl: 30s", 8000+t.IntN(999), t.one("info", "debug", "warn"), 16+t.IntN(500))
		if t.yes(0.5) {
			body = "```yaml\n" + body + "\n```"
		}
	case 11: // a changelog
		body = fmt.Sprintf("## [%d.%d.0] - 2026-%02d-03\n\n### Fixed\n- %s\n- Crash when the list was empty\n\n### Added\n- Dark mode\n- Export as PDF", 1+t.IntN(4), t.IntN(9), 1+t.IntN(12), t.one("Wrong color of links", "Memory leak in the cache", "Typos in the help"))
	case 12: // code that is no plan
		body = "```python\n" + t.one(
			"def mean(values):\n    total = 0\n    for v in values:\n        total += v\n    return total / len(values)",
			"class Stack:\n    def __init__(self):\n        self.items = []\n\n    def push(self, x):\n        self.items.append(x)\n\n    def pop(self):\n        return self.items.pop()",
			"import re\n\nPATTERN = re.compile(r\"[0-9]+\")\n\ndef digits(s):\n    return PATTERN.findall(s)",
		) + "\n```"
	case 13: // a record of data
		body = render(object{{"name", t.pick("name")}, {"age", 20 + t.IntN(60)}, {"address", object{{"city", "Lund"}, {"zip", fmt.Sprint(10000 + t.IntN(80000))}}}, {"tags", []any{"gold", "newsletter"}}}, t.one("", "  "))
	case 14: // a list of things with prices that nobody takes for steps
		of := t.some("noun", 5)
		for i := range of {
			of[i] = fmt.Sprintf("%s – %d,%02d €", t.cap(of[i]), 3+t.IntN(90), t.IntN(100))
		}
		body = enumerate(of, t.one("%d. ", "- ", "• "))
	case 15: // results as a table
		body = "| Model | F1 | Recall |\n|---|---|---|\n"
		for _, x := range []string{"base", "large", "tiny"}[:2+t.IntN(2)] {
			body += fmt.Sprintf("| %s | 0.%d | 0.%d |\n", x, 50+t.IntN(49), 50+t.IntN(49))
		}
		body = strings.TrimRight(body, "\n")
	case 16:
		body = t.pick("greeting") + "\n\n" + t.pick("chatter") + " " + t.pick("chatter") + "\n\n" + t.pick("closing") + "\n" + t.pick("name")
	}
	if t.yes(0.2) {
		body = t.pick("chatter") + "\n\n" + body
	}
	t.out.Body = body
	return true
}
