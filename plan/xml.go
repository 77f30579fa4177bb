package plan

import (
	"html"
	"slices"
	"strconv"
	"strings"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/meaning"
)

// xmlTag is one tag in the text. Text between tags is not checked, because models do not follow the rules of
// XML.
type xmlTag struct {
	name     string // lower case
	closing  bool
	off, end int
	broken   bool // its < or > is missing
	empty    bool // <name/>
}

// tagName normalizes the name of a tag: it drops case, separators and the name space.
func tagName(s string) string {
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		s = s[i+1:]
	}
	if strings.IndexByte(s, '_') >= 0 || strings.IndexByte(s, '-') >= 0 {
		s = strings.NewReplacer("_", "", "-", "").Replace(s)
	}
	return strings.ToLower(s)
}

func isTagByte(c byte) bool { return form.IsWordByte(c) || c == ':' || c == '-' }

// maskMarkup blanks out comments and the content of CDATA sections, which are no markup of the plan.
func maskMarkup(s string) string {
	if !strings.Contains(s, "<!") {
		return s
	}
	out := []byte(s)
	for i := 0; i < len(s); {
		j := strings.Index(s[i:], "<!")
		if j < 0 {
			break
		}
		i += j
		var closing string
		switch {
		case strings.HasPrefix(s[i:], "<!--"):
			closing = "-->"
		case strings.HasPrefix(s[i:], "<![CDATA["):
			closing = "]]>"
		default:
			i += 2
			continue
		}
		end := strings.Index(s[i:], closing)
		if end < 0 {
			break // cut off or damaged: the rest is read as it is
		}
		for k := i; k < i+end+3; k++ {
			if out[k] != '\n' {
				out[k] = ' '
			}
		}
		i += end + 3
	}
	return string(out)
}

// dropComments removes the comments in the text of an element.
func dropComments(s string) string {
	for {
		i := strings.Index(s, "<!--")
		if i < 0 {
			return s
		}
		end := strings.Index(s[i:], "-->")
		if end < 0 {
			return s
		}
		s = s[:i] + strings.Repeat(" ", end+3) + s[i+end+3:]
	}
}

// scanTags finds the tags of the given names, also if one of their angle brackets is lost.
func scanTags(s string, names map[string]bool) []xmlTag {
	var tags []xmlTag
	for i := 0; i < len(s); {
		j := strings.IndexAny(s[i:], "<>")
		if j < 0 {
			break
		}
		i += j
		if s[i] == '>' {
			// name> without its <
			k := i
			for k > 0 && isTagByte(s[k-1]) && i-k < 40 {
				k--
			}
			name := tagName(s[k:i])
			if names[name] && (k == 0 || s[k-1] != '<') {
				closing := k > 0 && s[k-1] == '/'
				off := k
				if closing {
					off--
				}
				if off == 0 || s[off-1] != '<' {
					tags = append(tags, xmlTag{name: name, closing: closing, off: off, end: i + 1, broken: true})
				}
			}
			i++
			continue
		}
		k := i + 1
		closing := k < len(s) && s[k] == '/'
		if closing {
			k++
		}
		start := k
		for k < len(s) && isTagByte(s[k]) && k-start < 40 {
			k++
		}
		name := tagName(s[start:k])
		if !names[name] {
			i++
			continue
		}
		t := xmlTag{name: name, closing: closing, off: i}
		e := k
		for e < len(s) && s[e] != '>' && s[e] != '<' && s[e] != '\n' && e-k < 200 {
			e++
		}
		if e < len(s) && s[e] == '>' {
			t.end = e + 1
			t.empty = s[e-1] == '/'
		} else {
			t.end, t.broken = k, true
		}
		tags = append(tags, t)
		i = t.end
	}
	return tags
}

var problemTags = map[string]bool{"structuredresponse": true, "problems": true, "problem": true, "request": true, "problemid": true, "problemgraph": true}

// xmlProblems is the state of the reader of tags.
type xmlProblems struct {
	*reading
	d     *document
	stack []xmlTag     // the open elements
	open  []int        // the problems being read, innermost last
	hasID map[int]bool // problems whose id is stated
	lists int          // number of lists of problems that have begun
	// graph is the text of the problem graph.
	graph    string
	graphOff int
	hasGraph bool
}

// readXMLProblems reads <StructuredResponse> with <Problems> and a <ProblemGraph> of arrow lines.
func readXMLProblems(d *document) *reading {
	if indexFold(d.text, "problem") < 0 || strings.IndexByte(d.text, '<') < 0 && strings.IndexByte(d.text, '>') < 0 {
		return nil
	}
	tags := closeEmpty(scanTags(maskMarkup(d.text), problemTags))
	if !slices.ContainsFunc(tags, func(t xmlTag) bool {
		return t.name == "problemid" || t.name == "problem" || t.name == "problemgraph"
	}) {
		return nil
	}
	x := &xmlProblems{reading: &reading{edgesStated: true, start: tags[0].off, end: tags[len(tags)-1].end}, d: d, hasID: map[int]bool{}}
	for i, t := range tags {
		if t.broken {
			x.diag(d, Error, Unbalanced, t.off, x.near(t.name), "the tag "+t.name+" has lost an angle bracket", "write the tag in full")
		}
		end := len(d.text)
		if i+1 < len(tags) {
			end = max(t.end, tags[i+1].off)
		}
		if t.closing {
			x.close(t)
			x.outsideText(t.end, end)
			continue
		}
		if len(x.stack) >= d.limits.MaxDepth {
			x.diag(d, Error, LimitReached, t.off, x.near(""), "elements are nested too deeply", "")
			break
		}
		x.element(t, end, html.UnescapeString(stripCDATA(dropComments(d.text[t.end:end]))))
	}
	for _, t := range x.stack {
		el := x.near(t.name)
		x.diag(d, Error, Truncated, t.off, el, "<"+t.name+"> is not closed: what follows "+el+" may be lost", "ask for the rest of the plan")
	}
	for i := range x.reading.graph.Problems {
		p := &x.reading.graph.Problems[i]
		if p.ID == "" {
			p.ID = strconv.Itoa(i + 1)
			x.diags = append(x.diags, Diagnostic{Code: MissingField, Severity: Error, Line: p.Line, Column: p.Column, Element: p.ID, Message: "the problem has no ProblemID; its position was taken", Hint: "write a <ProblemID>"})
		}
		p.Refs = scanRefs(p.Request)
		for k := range p.Refs {
			p.Refs[k].Line, p.Refs[k].Column = p.Line, p.Column
		}
	}
	x.readGraphText(d, x.graph, x.graphOff, x.hasGraph)
	return x.reading
}

// near returns the id of the last problem, or other if there is none.
func (x *xmlProblems) near(other string) string {
	n := len(x.reading.graph.Problems)
	if n == 0 {
		return other
	}
	if id := x.reading.graph.Problems[n-1].ID; id != "" {
		return id
	}
	return "problem " + strconv.Itoa(n)
}

// begin adds a problem.
func (x *xmlProblems) begin(off int) {
	p := x.d.problem("", "", off)
	if cur := x.current(); cur != nil {
		p.ParentID = cur.ID
	}
	x.open = append(x.open, len(x.reading.graph.Problems))
	x.reading.graph.Problems = append(x.reading.graph.Problems, p)
}

// current returns the innermost problem that is being read, or nil.
func (x *xmlProblems) current() *Problem {
	if len(x.open) == 0 {
		return nil
	}
	return &x.reading.graph.Problems[x.open[len(x.open)-1]]
}

// close ends an element, and the unclosed elements within it.
func (x *xmlProblems) close(t xmlTag) {
	if !slices.ContainsFunc(x.stack, func(open xmlTag) bool { return open.name == t.name }) {
		x.diag(x.d, Error, Unbalanced, t.off, x.near(""), "</"+t.name+"> closes nothing", "write the opening tag")
		return
	}
	for {
		last := x.stack[len(x.stack)-1]
		x.stack = x.stack[:len(x.stack)-1]
		if last.name != t.name {
			x.diag(x.d, Error, Unclosed, last.off, x.near(""), "<"+last.name+"> is not closed", "write the closing tag")
		}
		if last.name == "problem" && len(x.open) > 0 {
			x.open = x.open[:len(x.open)-1]
		}
		if last.name == t.name {
			return
		}
	}
}

// element reads the start of an element and the text behind it.
func (x *xmlProblems) element(t xmlTag, end int, content string) {
	d, problems := x.d, len(x.reading.graph.Problems)
	if x.again == 0 && problems > 0 && (t.name == "problems" && x.lists > 0 || t.name == "structuredresponse") {
		x.again = t.off
	}
	x.stack = append(x.stack, t)
	text := strings.TrimSpace(content)
	switch t.name {
	case "structuredresponse":
		x.outsideText(t.end, end)
	case "problems":
		x.lists++
		x.outsideText(t.end, end)
	case "problem":
		x.begin(t.off)
		x.current().ID = idAttribute(d.text[t.off:t.end])
		_, attrs, _ := form.Tag(d.text, t.off)
		x.current().attributes("", attrs)
		x.outsideText(t.end, end)
	case "problemid":
		if len(x.open) == 0 {
			x.begin(t.off)
			x.diag(d, Error, Unbalanced, t.off, text, "<ProblemID> stands outside a <Problem>", "write it inside one")
		} else if x.hasID[x.open[len(x.open)-1]] {
			x.diag(d, Error, Contradiction, t.off, text, "the problem has two ids: "+x.current().ID+" and "+text, "close each <Problem>")
			x.open = x.open[:len(x.open)-1]
			x.begin(t.off)
		}
		x.hasID[x.open[len(x.open)-1]] = true
		x.current().ID = text
	case "request":
		if p := x.current(); p != nil {
			p.Request = text
		}
	case "problemgraph":
		if x.hasGraph {
			x.diag(d, Error, Contradiction, t.off, "ProblemGraph", "there are two problem graphs", "write one")
			return
		}
		x.graph, x.graphOff, x.hasGraph = content, t.end, true
	}
}

// closeEmpty adds a closing tag to each <name/>.
func closeEmpty(tags []xmlTag) []xmlTag {
	out := make([]xmlTag, 0, len(tags))
	for _, t := range tags {
		out = append(out, t)
		if t.empty && !t.closing {
			out = append(out, xmlTag{name: t.name, closing: true, off: t.end, end: t.end})
		}
	}
	return out
}

// idAttribute returns the id that a tag such as <Problem id="A"> states.
func idAttribute(tag string) string {
	for _, key := range [...]string{" id=", " ProblemID=", " problem_id=", " name="} {
		i := indexFold(tag, key)
		if i < 0 || i+len(key) >= len(tag) {
			continue
		}
		q := tag[i+len(key)]
		if end := strings.IndexByte(tag[i+len(key)+1:], q); (q == '"' || q == '\'') && end >= 0 {
			return html.UnescapeString(strings.TrimSpace(tag[i+len(key)+1 : i+len(key)+1+end]))
		}
	}
	return ""
}

func stripCDATA(s string) string {
	t := strings.TrimSpace(s)
	if strings.HasPrefix(t, "<![CDATA[") {
		return strings.TrimSuffix(t[len("<![CDATA["):], "]]>")
	}
	return s
}

// statesNoEdges reports whether a graph text says in words that there are no edges.
func statesNoEdges(s string) bool {
	switch strings.ToLower(strings.Trim(s, "()[]<>.*_ ")) {
	case "none", "n/a", "empty", "no dependencies", "no edges", "null", "nil", "无":
		return true
	}
	return false
}

// readGraphText adds the edges of a graph text. Without a graph text the problems form a chain. Problems that
// it does not name are independent. Both cases are reported.
func (r *reading) readGraphText(d *document, graph string, off int, has bool) {
	if !has {
		if len(r.graph.Problems) > 1 {
			r.chain(d, ListedOrder)
		}
		r.edgesStated = false
		return
	}
	ids := map[string]bool{}
	for _, p := range r.graph.Problems {
		ids[p.ID] = true
	}
	named := map[string]bool{}
	names := arrowNames{known: func(id string) bool { return ids[id] }}
	at := off
	for _, l := range strings.Split(graph, "\n") {
		text := strings.TrimSpace(l)
		lead := len(l) - len(strings.TrimLeft(l, " \t\r"))
		if text != "" && !strings.HasPrefix(text, "```") && (!isCommentLine(text) || ids[text]) && !statesNoEdges(text) {
			if meaning.IsBroken(text) && !ids[text] {
				r.diag(d, Error, Malformed, at+lead, form.Clip(text), "this looks like an edge whose arrow is broken", "write A -> B")
				at += len(l) + 1
				continue
			}
			_, back := splitArrows(text)
			single := len(back) == 0
			arrowLine(d, r, text, at+lead, names, func(id string) {
				if !ids[id] && !named[id] && single {
					r.diag(d, Error, UnknownReference, at+lead, id, "the graph names "+id+", which is no problem", "write a problem with this id or take it out of the graph")
				}
				named[id] = true
			})
		}
		at += len(l) + 1
	}
	if len(named) == 0 && len(r.graph.Problems) > 1 {
		r.diag(d, Warning, NoEdgesStated, off, "ProblemGraph", "the graph text is empty: all problems are independent", "write A -> B where A comes before B")
		return
	}
	if len(r.graph.Problems) > 1 {
		for _, p := range r.graph.Problems {
			if !named[p.ID] {
				r.diags = append(r.diags, Diagnostic{Code: IsolatedProblem, Severity: Warning, Line: p.Line, Column: p.Column, Element: p.ID, Message: "the graph text does not name this problem: it is independent", Hint: "name it on a line of its own if that is meant"})
			}
		}
	}
}
