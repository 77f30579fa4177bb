package plan

import (
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/meaning"
)

// explainNoPlan says why a text holds no plan.
func explainNoPlan(d *document) *NoPlan {
	text := strings.TrimSpace(d.text)
	switch {
	case text == "" && d.thinkOpen:
		return &NoPlan{Reason: Prose, Message: "the text is one thought that was never closed; the plan may be missing because the text was cut off"}
	case text == "":
		return &NoPlan{Reason: EmptyText, Message: "the text is empty"}
	case meaning.Refuses(text):
		return &NoPlan{Reason: Refusal, Message: "the text declines to plan: " + form.Clip(firstLine(text))}
	}
	for _, t := range d.findTrees() {
		if t.Root.Kind == form.KindObject && len(t.Root.Fields) > 0 {
			names := make([]string, 0, 4)
			for _, f := range t.Root.Fields {
				if len(names) == 4 {
					names = append(names, "…")
					break
				}
				names = append(names, f.Key)
			}
			return &NoPlan{Reason: NotAGraph, Message: "the text holds data that is no plan, with the keys " + form.Clip(strings.Join(names, ", "))}
		}
	}
	for _, l := range d.lines {
		if l.fence && isCodeLang(l.lang) {
			return &NoPlan{Reason: NotAGraph, Message: "the text is code or about code"}
		}
	}
	return &NoPlan{Reason: Prose, Message: "the text holds no plan in a known dialect"}
}

func isCodeLang(lang string) bool {
	switch lang {
	case "python", "py", "code", "go", "js", "javascript", "java", "ts", "typescript", "c", "cpp", "c++", "rust", "bash", "sh", "shell", "html", "css", "sql", "mermaid", "ruby", "php":
		return true
	}
	return false
}

func firstLine(s string) string {
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		return s[:i]
	}
	return s
}
