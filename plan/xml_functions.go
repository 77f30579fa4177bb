package plan

import (
	"html"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
)

// readXMLFunctions reads <plan> with <function.Skill.Name input="$VAR" setContextVariable="NAME"/>. Each
// function is a problem, named by the variable that it sets. Edges come from the use of variables.
func readXMLFunctions(d *document) *reading {
	s := d.text
	first := indexFold(s, "function.")
	if first < 0 || indexFold(s, "<function.") < 0 && indexFold(s, "setcontextvariable") < 0 {
		return nil
	}
	r := &reading{edgesStated: true, start: first}
	if i := indexFold(s, "<plan"); i >= 0 {
		r.start = i
	}
	if i := indexFold(s, "</plan"); i > r.start {
		if j := indexFold(s[i:], "<plan"); j >= 0 && indexFold(s[i+j:], "function.") >= 0 {
			r.again = i + j
		}
	}
	defined := map[string]bool{}
	for i := first; i >= 0 && i < len(s); {
		if (i == 0 || s[i-1] != '<') && !form.AtLineStart(s, i) {
			i = nextFunction(s, i+1)
			continue
		}
		f := readFunctionTag(s, i)
		r.addFunction(d, i, &f, defined)
		r.end = f.end
		i = nextFunction(s, max(f.end, i+1))
	}
	if len(r.graph.Problems) == 0 {
		return nil
	}
	r.checkPlanTag(d)
	return r
}

// addFunction adds the problem of the function whose tag is at i, and the edges to it. defined holds the
// variables that earlier functions set.
func (r *reading) addFunction(d *document, i int, f *functionTag, defined map[string]bool) {
	id := strings.TrimLeft(f.attr("setContextVariable"), "$")
	if id == "" {
		id = strings.TrimLeft(f.attr("appendToResult"), "$")
	}
	if id == "" {
		id = f.name
	}
	if i == 0 || d.text[i-1] != '<' {
		r.diag(d, Error, Unbalanced, i, id, "the tag has lost its <", "write the tag in full")
	}
	switch {
	case f.cut:
		r.diag(d, Error, Truncated, i, id, "the text ends inside this function", "ask for the rest of the plan")
	case f.broken:
		r.diag(d, Error, Unclosed, i, id, "the tag is not closed", "close it with />")
	case f.stray:
		r.diag(d, Error, Malformed, i, id, "something in this tag is no attribute", `write name="value"`)
	}
	p := d.problem(id, f.name, i)
	p.Tool = f.name
	seen := map[string]bool{}
	for _, a := range f.attrs {
		if strings.EqualFold(a[0], "setContextVariable") || strings.EqualFold(a[0], "appendToResult") {
			continue
		}
		arg := Arg{Name: a[0], Kind: Literal, Value: form.Typed(a[1])}
		for _, ref := range scanRefs(a[1]) {
			ref.Arg, ref.Line, ref.Column = a[0], p.Line, p.Column
			arg.Kind = Referring
			p.Refs = append(p.Refs, ref)
			if !defined[ref.To] {
				r.diag(d, Warning, UndefinedVariable, i, ref.To, "no function before this one sets $"+ref.To+"; taken as an input of the plan", "set it first")
			} else if !seen[ref.To] {
				seen[ref.To] = true
				r.edge(d, ref.To, id, Variable, i)
			}
		}
		p.Args = append(p.Args, arg)
	}
	defined[id] = true
	r.graph.Problems = append(r.graph.Problems, p)
}

// checkPlanTag reports a <plan> or </plan> without its partner, and elements that are not read.
func (r *reading) checkPlanTag(d *document) {
	s := d.text
	last := r.graph.Problems[len(r.graph.Problems)-1].ID
	opened, closed := indexFold(s, "<plan") >= 0, indexFold(s[r.end:], "</plan") >= 0
	if opened && !closed {
		if rest := strings.TrimSpace(s[r.end:]); strings.HasPrefix(rest, "</") || strings.HasPrefix(rest, "```") {
			r.diag(d, Warning, Unclosed, r.start, last, "<plan> is not closed", "write </plan>")
		} else {
			r.diag(d, Error, Truncated, r.end, last, "<plan> is not closed: what came after "+last+" may be lost", "ask for the rest of the plan")
		}
	}
	if closed && !opened {
		r.diag(d, Error, Unbalanced, r.end, last, "</plan> closes nothing", "write <plan>")
	}
	for _, tag := range []string{"<if", "<while", "<conditionalgroup", "<else"} {
		if i := indexFold(s[r.start:r.end], tag); i >= 0 {
			r.diag(d, Error, SkippedText, r.start+i, tag+">", "conditions and loops are not read", "write a plan without them")
		}
	}
}

func nextFunction(s string, i int) int {
	j := indexFold(s[min(i, len(s)):], "function.")
	if j < 0 {
		return -1
	}
	return i + j
}

type functionTag struct {
	name        string
	attrs       [][2]string
	end         int
	broken, cut bool
	stray       bool // it holds text that is no attribute
}

func (f *functionTag) attr(name string) string {
	for _, a := range f.attrs {
		if strings.EqualFold(a[0], name) {
			return a[1]
		}
	}
	return ""
}

// readFunctionTag reads the tag from the word "function." at i. Quotes may be escaped, as in text that was
// encoded twice.
func readFunctionTag(s string, i int) functionTag {
	var f functionTag
	j := i + len("function.")
	start := j
	for j < len(s) && (form.IsWordByte(s[j]) || s[j] == '.' || s[j] == '-') {
		j++
	}
	f.name = s[start:j]
	for j < len(s) {
		switch c := s[j]; {
		case c == '>':
			f.end = j + 1
			return f
		case c == '<':
			f.end, f.broken = j, true
			return f
		case form.IsWordByte(c):
			k := j
			for k < len(s) && (form.IsWordByte(s[k]) || s[k] == '-') {
				k++
			}
			key := s[j:k]
			for k < len(s) && (s[k] == ' ' || s[k] == '\\') {
				k++
			}
			if k >= len(s) || s[k] != '=' {
				j = k
				continue
			}
			k++
			for k < len(s) && (s[k] == ' ' || s[k] == '\\') {
				k++
			}
			if k >= len(s) || s[k] != '"' && s[k] != '\'' {
				f.stray = true
				j = k
				continue
			}
			end := strings.IndexByte(s[k+1:], s[k])
			if end < 0 {
				f.attrs = append(f.attrs, [2]string{key, html.UnescapeString(strings.TrimSpace(s[k+1:]))})
				f.end, f.cut = len(s), true
				return f
			}
			val := strings.TrimSuffix(s[k+1:k+1+end], `\`)
			f.attrs = append(f.attrs, [2]string{key, html.UnescapeString(val)})
			j = k + 1 + end + 1
		default:
			f.stray = f.stray || strings.IndexByte(" \t\r\n/\\", c) < 0
			j++
		}
	}
	f.end, f.cut = len(s), true
	return f
}
