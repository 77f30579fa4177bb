package plan

import (
	"github.com/epigraph-run/epigraph/plan/internal/form"

	"strings"
)

var refusals = [...]string{
	"i'm sorry", "i’m sorry", "i am sorry", "sorry,", "sorry.", "i cannot", "i can't", "i can’t", "i'm unable", "i am unable", "i’m unable", "unfortunately, i", "i apologize", "my apologies", "as an ai", "i won't", "i'm not able", "i am not able",
	"抱歉", "很抱歉", "对不起", "非常抱歉", "不好意思", "我无法", "我不能", "無法", "申し訳", "죄송", "lo siento", "je suis désolé", "désolé", "es tut mir leid", "tut mir leid", "mi dispiace", "desculpe", "извините", "к сожалению",
}

// isRefusal reports whether a text begins by declining.
func isRefusal(text string) bool {
	t := strings.ToLower(strings.TrimLeft(text[:min(len(text), 400)], " \t\r\n\"'“#*>-`"))
	for _, w := range refusals {
		if strings.HasPrefix(t, w) {
			return true
		}
	}
	return false
}

// explainNoPlan says what a text without a plan is.
func explainNoPlan(d *document) *NoPlan {
	text := strings.TrimSpace(d.text)
	switch {
	case text == "" && d.thinkOpen:
		return &NoPlan{Reason: Prose, Message: "the text is one thought that was never closed; the plan may be missing because the text was cut off"}
	case text == "":
		return &NoPlan{Reason: EmptyText, Message: "the text is empty"}
	case isRefusal(text):
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
