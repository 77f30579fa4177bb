package plan

import (
	"context"
	"slices"
	"sort"
	"strconv"
	"strings"
)

var defaultLimits = Limits{MaxBytes: 1 << 20, MaxProblems: 10_000, MaxEdges: 100_000, MaxDepth: 200}

func (l Limits) withDefaults() Limits {
	def := defaultLimits
	set := func(x *int, d int) {
		if *x <= 0 {
			*x = d
		}
	}
	set(&l.MaxBytes, def.MaxBytes)
	set(&l.MaxProblems, def.MaxProblems)
	set(&l.MaxEdges, def.MaxEdges)
	set(&l.MaxDepth, def.MaxDepth)
	l.MaxDepth = min(l.MaxDepth, 1000)
	return l
}

// Parse reads the plan in text. It never panics and returns no error: every fault is a diagnostic. It is pure
// and safe for concurrent use. Its time is linear in the length of the text.
func Parse(text string, opts ...Option) Result {
	var o options
	for _, f := range opts {
		f(&o)
	}
	d := newDocument(text, o.limits.withDefaults())
	known := o.dialect == "" || slices.Contains(Dialects(), o.dialect)
	var noPlan *NoPlan
	if strings.TrimSpace(d.text) != "" {
		f := find(d, o, 0)
		if o.ended() {
			return Result{}
		}
		if f.r != nil {
			return finish(f.d, f.dialect, f.r, o)
		}
		noPlan = f.noPlan
	}
	if noPlan == nil {
		noPlan = explainNoPlan(d)
	}
	res := Result{NoPlan: noPlan, Repairs: d.placedRepairs()}
	if !known {
		res.Diagnostics = append(res.Diagnostics, Diagnostic{Code: UnknownDialect, Severity: Error, Element: o.dialect, Message: "there is no dialect of this name", Hint: "use one of " + strings.Join(Dialects(), ", ")})
	}
	for _, t := range d.findTrees() {
		if t.CutOff && t.AnyKeys {
			x := Diagnostic{Code: Truncated, Severity: Warning, Element: t.LastKey(), Message: "the text ends inside a value; a plan in it may have been cut off", Hint: "ask for the rest"}
			x.Line, x.Column = d.place(len(d.text))
			res.Diagnostics = append(res.Diagnostics, x)
		}
	}
	if d.thinkOpen {
		x := Diagnostic{Code: Unclosed, Severity: Warning, Element: "think", Message: "a thought is not closed; a plan after it may have been cut off", Hint: "ask for the rest"}
		x.Line, x.Column = d.place(len(d.text))
		res.Diagnostics = append(res.Diagnostics, x)
	}
	if d.cut {
		res.NoPlan = &NoPlan{Reason: TooLarge, Message: "no plan was found in the first " + strconv.Itoa(d.limits.MaxBytes) + " bytes of the text"}
		res.Diagnostics = append(res.Diagnostics, d.limitDiagnostic())
	}
	return res
}

func (d *document) limitDiagnostic() Diagnostic {
	x := Diagnostic{Code: LimitReached, Severity: Error, Element: "text", Message: "the text is longer than " + strconv.Itoa(d.limits.MaxBytes) + " bytes; the rest was not read", Hint: "split the plan or raise the limit"}
	x.Line, x.Column = d.place(len(d.text))
	return x
}

// finish completes the reading of a dialect: it adds the surroundings, applies the limits, checks the graph
// and offers repairs.
func finish(d *document, name string, r *reading, o options) Result {
	res := Result{Dialect: name, Graph: r.graph, Diagnostics: r.diags, Repairs: append(d.placedRepairs(), r.repairs...)}
	if n := d.limits.MaxProblems; len(res.Graph.Problems) > n {
		p := res.Graph.Problems[n]
		res.Diagnostics = append(res.Diagnostics, Diagnostic{Code: LimitReached, Severity: Error, Line: p.Line, Column: p.Column, Element: p.ID, Message: "the plan has more than " + strconv.Itoa(n) + " problems; the rest was not read", Hint: "split the plan"})
		res.Graph.Problems = res.Graph.Problems[:n:n]
	}
	if !r.edgesStated && len(res.Graph.Edges) == 0 && len(res.Graph.Problems) > 1 && !(isData(name) && r.damaged()) {
		source := ListedOrder
		if name == "outline" && !r.unnamed && numbered(res.Graph) {
			source = Numbering
		}
		r.graph = res.Graph
		r.chain(d, source)
		res.Graph = r.graph
	}
	res.Diagnostics = append(res.Diagnostics, assumed(res.Graph.Edges)...)
	before := len(r.diags)
	r.attachEdgeTexts(d, &res.Graph)
	d.uncovered(name, r, res.Graph, o)
	res.Diagnostics = append(res.Diagnostics, r.diags[before:]...)
	if n := d.limits.MaxEdges; len(res.Graph.Edges) > n {
		e := res.Graph.Edges[n]
		res.Diagnostics = append(res.Diagnostics, Diagnostic{Code: LimitReached, Severity: Error, Line: e.Line, Column: e.Column, Element: e.From + " -> " + e.To, Message: "the plan has more than " + strconv.Itoa(n) + " edges; the rest was not read", Hint: "split the plan"})
		res.Graph.Edges = res.Graph.Edges[:n:n]
	}
	ctx := o.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	faults, err := Validate(ctx, res.Graph)
	if err != nil {
		return Result{}
	}
	res.Diagnostics = append(res.Diagnostics, faults...)
	res.Diagnostics = append(res.Diagnostics, unpairedIDs(res.Graph)...)
	if d.cut {
		res.Diagnostics = append(res.Diagnostics, d.limitDiagnostic())
	}
	if !o.complete && r.openEnded && len(res.Graph.Problems) > 0 && d.mayGoOn(r.end) {
		p := res.Graph.Problems[len(res.Graph.Problems)-1]
		last := p.ID
		if r.last != "" {
			last = r.last
		}
		res.Diagnostics = append(res.Diagnostics, Diagnostic{Code: OpenEnd, Severity: Info, Line: p.Line, Column: p.Column, Element: last, Message: "the text ends with this, and its notation has no end mark: if the text was cut off, this may be incomplete and later parts are lost", Hint: "declare the text complete, or check why the model stopped"})
	}
	d.surroundings(r, &res)
	if x, ok := reusedTool(res.Graph); ok && name == "tool_graph" {
		res.Repairs = append(res.Repairs, x)
	}
	sort.SliceStable(res.Diagnostics, func(i, j int) bool {
		a, b := res.Diagnostics[i], res.Diagnostics[j]
		if a.Line != b.Line {
			return a.Line < b.Line
		}
		return a.Column < b.Column
	})
	return res
}

// maxAssumed bounds the number of assumed edges that are named one by one.
const maxAssumed = 200

// assumed returns a diagnostic for each edge that comes from the order of the text and that the text does not
// state.
func assumed(edges []Edge) []Diagnostic {
	var out []Diagnostic
	count := 0
	for _, e := range edges {
		if e.Source != ListedOrder && e.Source != Numbering {
			continue
		}
		if count++; count > maxAssumed {
			continue
		}
		x := Diagnostic{Code: AssumedOrder, Severity: Warning, Line: e.Line, Column: e.Column, Element: e.From + " -> " + e.To, Hint: "state what depends on what"}
		if x.Message = "the text does not state that " + e.From + " comes before " + e.To; e.Source == Numbering {
			x.Message += ": its numbers were taken as the order"
		} else {
			x.Message += ": the listed order was taken"
		}
		out = append(out, x)
	}
	if count > maxAssumed {
		out[maxAssumed-1].Message = strconv.Itoa(count-maxAssumed+1) + " more edges, from this one on, are not stated: the order of the text was taken"
	}
	return out
}

// damaged reports whether the text lost some of its structure. No order is assumed on what is left: the lost
// part may have held the dependencies.
func (r *reading) damaged() bool {
	for _, x := range r.diags {
		if x.Severity == Error && (x.Code == Truncated || x.Code == Unclosed || x.Code == Unbalanced || x.Code == Malformed) {
			return true
		}
	}
	return false
}

// unpairedIDs warns of ids with an unpaired bracket. The other bracket may have been lost, and part of the id
// with it.
func unpairedIDs(g Graph) []Diagnostic {
	var out []Diagnostic
	reported := map[string]bool{}
	check := func(id string, line, col int) {
		if !strings.ContainsAny(id, "()[]{}（）【】《》") || reported[id] || unpaired(id) == 0 {
			return
		}
		reported[id] = true
		out = append(out, Diagnostic{Code: Unbalanced, Severity: Warning, Line: line, Column: col, Element: id, Message: "the bracket " + string(unpaired(id)) + " in this id has no partner", Hint: "check the id"})
	}
	for _, p := range g.Problems {
		check(p.ID, p.Line, p.Column)
	}
	for _, e := range g.Edges {
		check(e.From, e.Line, e.Column)
		check(e.To, e.Line, e.Column)
	}
	return out
}

// mayGoOn reports whether a plan that ends at end may have been cut off: nothing follows it, or only the
// beginning of a line.
func (d *document) mayGoOn(end int) bool {
	for i := d.lineAt(end) + 1; i < len(d.lines); i++ {
		l := d.lines[i]
		if l.text == "" {
			continue
		}
		// The last line of the text may be the beginning of a problem if it does not end like a sentence.
		return i == len(d.lines)-1 && !l.fence && strings.IndexByte(".!?:`>", l.text[len(l.text)-1]) < 0 && !strings.HasSuffix(l.text, "。")
	}
	return true
}

// surroundings records the removed text around the plan, and the lines that are part of no problem.
func (d *document) surroundings(r *reading, res *Result) {
	if fence := slices.IndexFunc(d.lines, func(l line) bool { return l.fence }); fence >= 0 {
		line, col := d.place(d.lines[fence].off)
		res.Repairs = append(res.Repairs, Repair{Code: FenceRemoved, Message: "left out the code fence", Line: line, Column: col, Applied: true})
	}
	from, to := d.lineAt(r.start), d.lineAt(r.end)
	if isData(res.Dialect) {
		r.markBefore(d, r.start)
	}
	whole := d
	for whole.outer != nil {
		whole = whole.outer
	}
	part := make([]bool, len(whole.lines)+1)
	prose := -1
	for i, l := range d.lines {
		line, _ := d.place(l.off)
		switch {
		case l.text == "" || l.fence:
		case i < from || i > to:
			if prose < 0 {
				prose = i
			}
		case !r.around[i]:
			part[line-1] = true
		}
	}
	if prose >= 0 {
		line, col := d.place(d.lines[prose].off)
		res.Repairs = append(res.Repairs, Repair{Code: ProseRemoved, Message: "left out the text around the plan", Line: line, Column: col, Applied: true})
	}
	if isData(res.Dialect) || res.Dialect == "diagram" {
		whole.comments(part)
	}
	open := false
	for i, l := range whole.lines {
		switch {
		case isRule(l.text) || l.fence:
		case part[i]:
			open = false
		case open:
			res.Surroundings[len(res.Surroundings)-1].Last = i + 1
		default:
			res.Surroundings, open = append(res.Surroundings, LineRange{First: i + 1, Last: i + 1}), true
		}
	}
}

func (d *document) placedRepairs() []Repair {
	out := make([]Repair, 0, len(d.repairs))
	for _, r := range d.repairs {
		if r.Column < 0 {
			r.Line, r.Column = d.place(r.Line)
		}
		out = append(out, r)
	}
	return out
}

// reusedTool offers to distinguish problems that are named by the same tool: x becomes x#1, x#2 in listed
// order.
func reusedTool(g Graph) (Repair, bool) {
	count := map[string]int{}
	for _, p := range g.Problems {
		count[p.ID]++
	}
	renames := make([]string, len(g.Problems))
	nth := map[string]int{}
	at := -1
	for i, p := range g.Problems {
		renames[i] = p.ID
		if count[p.ID] > 1 {
			nth[p.ID]++
			renames[i] = p.ID + "#" + strconv.Itoa(nth[p.ID])
			if at < 0 {
				at = i
			}
		}
	}
	if at < 0 {
		return Repair{}, false
	}
	p := g.Problems[at]
	return Repair{Code: ReusedTool, Message: "tools that are used more than once can be distinguished as " + p.ID + "#1, " + p.ID + "#2 in listed order", Line: p.Line, Column: p.Column, Renames: renames}, true
}
