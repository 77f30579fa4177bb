package meaning

import (
	"fmt"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// section is a part of a document below a heading.
type section struct {
	level, off, end int
	title           string
}

// sections returns the sections of a Markdown document.
func sections(src *form.Source) (out []section) {
	var open []int
	closeTo := func(level, off int) {
		for len(open) > 0 && out[open[len(open)-1]].level >= level {
			out[open[len(open)-1]].end = off
			open = open[:len(open)-1]
		}
	}
	for i := range src.Lines {
		l := &src.Lines[i]
		level := len(l.Text) - len(strings.TrimLeft(l.Text, "#"))
		if l.Fence || l.InCode && !form.ProseFence(l.Lang) || level == 0 || level > 6 || len(l.Text) == level || l.Text[level] != ' ' {
			continue
		}
		closeTo(level, l.Start)
		open = append(open, len(out))
		out = append(out, section{level: level, off: l.Start, end: len(src.Text), title: squeeze(strings.Trim(l.Text, "#* "))})
	}
	closeTo(0, len(src.Text))
	return out
}

// planSection returns the section whose heading announces the plan. ok is false if there are several, or if
// there is no section outside of it.
func planSection(src *form.Source) (at section, ok bool) {
	all := sections(src)
	lang := languageOf(src)
	for i := range all {
		s := &all[i]
		if announces(lang, s.title, true) >= 0 || ok && s.off < at.end {
			continue
		}
		others := false
		for k := range all {
			others = others || all[k].off >= s.end || all[k].end <= s.off
		}
		switch {
		case !others:
		case ok:
			return at, false
		default:
			at, ok = *s, true
		}
	}
	return at, ok
}

// leastSection is the lowest weight of a section that is the plan regardless of the rest of its document.
const leastSection = 40

// readSection reads a document with a section for the plan. Other sections, such as results, constraints and
// examples, are ignored. It returns nil if there is no such section. If the whole document states more about
// the same steps, its readings are returned instead.
func readSection(src *form.Source, read func(*form.Source) []*Reading) []*Reading {
	s, ok := planSection(src)
	if !ok {
		return nil
	}
	part := read(blanked(src, Span{0, s.off}, Span{s.end, len(src.Text)}))
	if len(part) == 0 || part[0].Weight < leastSection || len(part[0].Items) < 2 {
		return nil
	}
	r, all := part[0], read(src)
	if len(all) == 0 {
		return part
	}
	whole := all[0]
	same := sharedIDs(whole, r)
	inside := whole.Start >= s.off && whole.End <= s.end
	if inside || same == len(whole.Items) && same == len(r.Items) && len(whole.Links) > len(r.Links) && whole.Weight >= 70 {
		return all
	}
	if whole.Weight >= 70 && whole.Form != "code" {
		var more []string
		for i := range whole.Items {
			more = append(more, whole.Items[i].ID)
		}
		names := clipped(strings.Join(more[:min(len(more), 20)], ", "))
		r.Notes = append(r.Notes, Note{Code: "SEVERAL_PLANS", Element: names, Off: whole.Start, Message: fmt.Sprintf("the section %s was read; another part of the text has %s", clipped(s.title), names), Hint: "ask for one plan"})
	}
	return part
}

// blanked returns the text with spans blanked out. Offsets do not change.
func blanked(src *form.Source, spans ...Span) *form.Source {
	b := []byte(src.Text)
	for _, s := range spans {
		for i := s.Off; i < s.End; i++ {
			if b[i] != '\n' {
				b[i] = ' '
			}
		}
	}
	out := form.NewSource(string(b))
	out.MaxDepth, out.MaxItems, out.MaxLinks, out.Ended = src.MaxDepth, src.MaxItems, src.MaxLinks, src.Ended
	return out
}

// withoutPrograms returns the text with fences blanked out that are no plan: code that defines classes with
// state, code that imports modules and loops, and charts that are no graphs.
func withoutPrograms(src *form.Source) *form.Source {
	var spans []Span
	from, first, program, imports := -1, false, false, false
	for i := range src.Lines {
		l := &src.Lines[i]
		switch {
		case l.Fence && from >= 0:
			if program {
				spans = append(spans, Span{from, l.Start})
			}
			from = -1
		case l.Fence:
			from, first, program, imports = l.End, l.Lang == "mermaid", false, false
		case from >= 0:
			if first && l.Text != "" {
				first = false
				program = charts[strings.ToLower(firstWord(l.Text))]
			}
			imports = imports || strings.HasPrefix(l.Text, "from ") && strings.Contains(l.Text, " import ") || strings.HasPrefix(l.Text, "import ")
			program = program || imports && strings.HasPrefix(l.Text, "while ") || strings.HasPrefix(l.Text, "def __init__(self") || strings.HasPrefix(l.Text, "self.") && strings.Contains(l.Text, " = ")
		}
	}
	if from >= 0 && program {
		spans = append(spans, Span{from, len(src.Text)})
	}
	if len(spans) == 0 {
		return src
	}
	return blanked(src, spans...)
}
