package generate

import (
	"slices"
	"strings"
)

// harm is a change of the form of a text that does not change its truth. do returns false if the change does
// not fit.
type harm struct {
	name string
	do   func(*writer) bool
}

var harms = []harm{
	{"line ends of Windows", func(t *writer) bool {
		t.out.Body = strings.ReplaceAll(t.out.Body, "\n", "\r\n")
		return true
	}},
	{"words before and after", func(t *writer) bool {
		if t.out.NoPlan {
			return false
		}
		t.out.Body = t.pick("chatter") + "\n\n" + t.out.Body + "\n\n" + t.pick("outro")
		return true
	}},
	{"blank lines", func(t *writer) bool {
		if t.out.Form != "list" || strings.Contains(t.out.Body, "\n ") {
			return false
		}
		t.out.Body = strings.ReplaceAll(t.out.Body, "\n", "\n\n")
		return true
	}},
	{"a fence around", func(t *writer) bool {
		if t.out.Form != "list" && t.out.Form != "table" || strings.Contains(t.out.Body, "```") {
			return false
		}
		t.out.Body = t.one("```\n", "```text\n", "```markdown\n", "~~~\n") + t.out.Body
		t.out.Body += "\n" + t.out.Body[:3]
		return true
	}},
	{"a fence that is not closed", func(t *writer) bool {
		if t.out.Form != "value" && t.out.Form != "code" || strings.Contains(t.out.Body, "```") || len(t.out.Body) == 0 || strings.Contains(t.out.Body, "\n\n") {
			return false
		}
		t.out.Body = "```\n" + t.out.Body
		return true
	}},
	{"indented", func(t *writer) bool {
		if t.out.Form != "list" && t.out.Form != "value" {
			return false
		}
		pad := t.one("  ", "   ", "    ")
		// Indented by four spaces it would be code, and a fence no fence
		if strings.Contains(t.out.Body, "```") {
			pad = "  "
		}
		t.out.Body = pad + strings.ReplaceAll(t.out.Body, "\n", "\n"+pad)
		return true
	}},
	{"a quotation", func(t *writer) bool {
		if t.out.Form != "list" && t.out.Form != "table" || strings.Contains(t.out.Body, "\t") {
			return false
		}
		t.out.Body = "> " + strings.ReplaceAll(t.out.Body, "\n", "\n> ")
		return true
	}},
	{"emoji", func(t *writer) bool {
		if t.out.Form != "list" || t.out.Style == "orgmode" {
			return false
		}
		lines := strings.Split(t.out.Body, "\n")
		for i, x := range lines {
			if x != "" && t.yes(0.3) && !strings.HasPrefix(x, " ") && !strings.HasSuffix(x, "**") && !strings.HasSuffix(x, ":") {
				lines[i] += " " + t.one("🚀", "✅", "🎉", "🙂", "⚡", "🌱")
			}
		}
		t.out.Body = strings.Join(lines, "\n")
		return true
	}},
	{"spaces at the ends of lines", func(t *writer) bool {
		if t.out.Form == "code" || t.out.Form == "none" {
			return false
		}
		t.out.Body = strings.ReplaceAll(t.out.Body, "\n", "  \n")
		return true
	}},
	{"a byte order mark", func(t *writer) bool {
		t.out.Body = "\ufeff" + t.out.Body
		return true
	}},
	{"wide signs", (*writer).widen},
	{"wide signs", (*writer).widen},
}

// widen writes punctuation, and sometimes digits, in full-width forms as Chinese and Japanese do.
func (t *writer) widen() bool {
	if t.lang.spaced() || t.out.Form != "list" || strings.Contains(t.out.Body, "**") {
		return false
	}
	b := strings.NewReplacer("(", "（", ")", "）", ", ", "，", ": ", "：", "; ", "；").Replace(t.out.Body)
	if t.number && len(t.out.Alt) == 0 && len(t.out.Report) == 0 && t.out.Style == "numbered_words" && t.yes(0.4) {
		wide := strings.NewReplacer("0", "０", "1", "１", "2", "２", "3", "３", "4", "４", "5", "５", "6", "６", "7", "７", "8", "８", "9", "９")
		b = wide.Replace(b)
		t.out.Alt = [][]string{slices.Clone(t.out.Nodes)}
		for i := range t.out.Nodes {
			t.out.Nodes[i] = wide.Replace(t.out.Nodes[i])
		}
		for i, e := range t.out.Edges {
			t.out.Edges[i] = Edge{wide.Replace(e[0]), wide.Replace(e[1])}
		}
	}
	t.out.Body = b
	return true
}

// damage applies a change that does not affect the truth to a quarter of the texts. The note names the
// change.
func (t *writer) damage() {
	if !t.yes(0.28) {
		return
	}
	for range 4 {
		if h := harms[t.IntN(len(harms))]; h.do(t) {
			if t.out.Note != "" {
				t.out.Note += ", "
			}
			t.out.Note += h.name
			return
		}
	}
}
