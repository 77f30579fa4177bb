package main

import (
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan"
	"github.com/epigraph-run/epigraph/plan/corpus/generate"
)

// ruling is the judgment of how a text with truth was read.
type ruling string

const (
	rightlyRead ruling = "exact"
	// silently: the reading lost or changed something, and no WARNING or ERROR names it.
	silently ruling = "silent"
	// aloud: the reading lost or changed something, and diagnostics name all of it.
	aloud ruling = "said"
	// declined: the reader found no plan in a text that holds one.
	declined ruling = "refused"
	// alarmed: read exactly, but with an ERROR although nothing is wrong. It counts as exact as well.
	alarmed     ruling = "alarm"
	noPlanRight ruling = "no plan right"
	noPlanWrong ruling = "no plan wrong"
	readerCrash ruling = "crash"
)

var spaces = regexp.MustCompile(`\s+`)

// clean returns an id without the signs around it.
func clean(s string) string {
	s = strings.TrimSpace(spaces.ReplaceAllString(s, " "))
	return strings.TrimSpace(strings.Trim(s, "*`\"'"))
}

// deviation is one element in which a graph differs from the truth: an edge, or a node if to is empty.
type deviation struct {
	kind     string // lost, extra, order or unreported
	from, to string
}

func (d deviation) String() string {
	if d.to != "" {
		return d.kind + " " + d.from + " > " + d.to
	}
	return d.kind + " " + d.from
}

// judgment is a ruling with its reasons.
type judgment struct {
	ruling ruling
	why    []string
}

// judge compares the result of reading a text with its truth. A group that the text shows only as a heading
// may be an additional node. Texts without ids are compared by place and words.
func judge(t *generate.Text, res plan.Result) judgment {
	if t.NoPlan {
		if res.NoPlan != nil || len(res.Graph.Problems) == 0 {
			return judgment{ruling: noPlanRight}
		}
		return judgment{noPlanWrong, []string{fmt.Sprintf("%d problems by %s", len(res.Graph.Problems), res.Dialect)}}
	}
	if res.NoPlan != nil || len(res.Graph.Problems) == 0 {
		j := judgment{ruling: declined}
		if res.NoPlan != nil {
			j.why = []string{string(res.NoPlan.Reason)}
		}
		return j
	}
	var loud []plan.Diagnostic
	for _, d := range res.Diagnostics {
		if d.Severity == plan.Warning || d.Severity == plan.Error {
			loud = append(loud, d)
		}
	}
	best, place := deviations(t, res.Graph, loud)
	if len(best) == 0 {
		j := judgment{ruling: rightlyRead}
		for _, d := range loud {
			if d.Severity == plan.Error && len(t.Report) == 0 {
				j.ruling = alarmed
				j.why = append(j.why, fmt.Sprintf("%s %.90s", d.Code, d.Message))
			}
		}
		return j
	}
	j := judgment{ruling: aloud}
	var left, all []string
	isReported := reporter(res.Graph, loud, place)
	for _, d := range best {
		all = append(all, d.String())
		if !isReported(d) {
			left = append(left, d.String())
		}
	}
	j.why = all
	if len(left) > 0 {
		j.ruling, j.why = silently, left
	}
	return j
}

// deviations compares a graph with the truth under each accepted list of ids. It returns the smallest set of
// differences, and the id that stands in the place of each id of that list.
func deviations(t *generate.Text, g plan.Graph, loud []plan.Diagnostic) (best []deviation, place map[string]string) {
	var ids []string
	groups, parent := map[string]bool{}, map[string]string{}
	for _, p := range g.Problems {
		id := clean(p.ID)
		ids = append(ids, id)
		if p.ParentID != "" {
			groups[clean(p.ParentID)] = true
			parent[id] = clean(p.ParentID)
		}
	}
	read := map[generate.Edge]bool{}
	for _, e := range g.Edges {
		read[generate.Edge{clean(e.From), clean(e.To)}] = true
	}
	core := cleanAll(t.Nodes)
	for i, names := range append([][]string{t.Nodes}, t.Alt...) {
		want, have := cleanAll(names), ids
		wanted := setOf(want)
		if !slices.Equal(have, want) {
			have = filter(ids, func(id string) bool { return wanted[id] || !groups[id] })
		}
		if t.PartsOK {
			part := func(id string) bool { return !wanted[id] && wanted[parent[id]] }
			have = filter(have, func(id string) bool { return !part(id) })
			for e := range read {
				if part(e[0]) || part(e[1]) {
					delete(read, e)
				}
			}
		}
		rename := map[string]string{}
		for k := range min(len(core), len(want)) {
			rename[core[k]] = want[k]
		}
		if t.Hidden && sameWords(want, have, g) {
			for k := range core {
				rename[core[k]] = have[k]
			}
			want = have
		}
		diff := differ(t, want, have, rename, read)
		if len(t.Report) > 0 && !reported(t.Report, loud) {
			diff = append(diff, deviation{kind: "unreported", from: strings.Join(t.Report, "/")})
		}
		if i == 0 || len(diff) < len(best) {
			best, place = diff, map[string]string{}
			if len(want) == len(have) {
				for k := range want {
					place[want[k]] = have[k]
				}
				for k := range want {
					place[have[k]] = want[k]
				}
			}
		}
	}
	return best, place
}

// differ lists the lost and extra nodes and edges.
func differ(t *generate.Text, want, have []string, rename map[string]string, read map[generate.Edge]bool) []deviation {
	var diff []deviation
	count := map[string]int{}
	for _, x := range want {
		count[x]++
	}
	for _, x := range have {
		count[x]--
	}
	for _, x := range sortedKeys(count) {
		for range count[x] {
			diff = append(diff, deviation{"lost", x, ""})
		}
		for range -count[x] {
			diff = append(diff, deviation{"extra", x, ""})
		}
	}
	if len(diff) == 0 {
		for k := range want {
			if want[k] != have[k] {
				diff = append(diff, deviation{"order", want[k], ""})
			}
		}
	}
	if t.EdgesOpen {
		return diff
	}
	name := func(x string) string {
		x = clean(x)
		if y, ok := rename[x]; ok {
			return y
		}
		return x
	}
	// The edge of a reference to an unknown step, or of a step to itself, may be kept or left out. It must be
	// reported in both cases.
	inside := func(generate.Edge) bool { return true }
	if len(t.Report) > 0 {
		known := setOf(want)
		inside = func(e generate.Edge) bool { return known[e[0]] && known[e[1]] && e[0] != e[1] }
	}
	stated := map[generate.Edge]bool{}
	for _, e := range t.Edges {
		if e := (generate.Edge{name(e[0]), name(e[1])}); inside(e) {
			stated[e] = true
		}
	}
	var edges []deviation
	for e := range stated {
		if !read[e] {
			edges = append(edges, deviation{"lost", e[0], e[1]})
		}
	}
	for e := range read {
		if inside(e) && !stated[e] {
			edges = append(edges, deviation{"extra", e[0], e[1]})
		}
	}
	sort.Slice(edges, func(i, j int) bool { return edges[i].String() > edges[j].String() })
	return append(diff, edges...)
}

// sameWords reports whether the text of each problem holds the words that the truth expects in its place.
func sameWords(want, have []string, g plan.Graph) bool {
	if len(want) != len(have) {
		return false
	}
	text := map[string]string{}
	for _, p := range g.Problems {
		text[clean(p.ID)] = strings.ToLower(clean(p.ID) + " " + clean(p.Request))
	}
	for k := range want {
		if !strings.Contains(text[have[k]], strings.ToLower(want[k])) {
			return false
		}
	}
	return true
}

// reported reports whether a diagnostic names one of the faults.
func reported(faults []string, loud []plan.Diagnostic) bool {
	for _, f := range faults {
		f = strings.ReplaceAll(strings.ToUpper(f), "_REF", "")
		for _, d := range loud {
			if strings.Contains(string(d.Code), f) || strings.HasPrefix(f, "SELF") && d.Code == plan.Cycle {
				return true
			}
		}
	}
	return false
}

// reporter returns a function that decides whether a diagnostic names a difference. An element is named by
// its id, or by the id in its place. A lost edge is also named by a diagnostic about a reference inside its
// task.
func reporter(g plan.Graph, loud []plan.Diagnostic, place map[string]string) func(deviation) bool {
	useful := filter(loud, func(d plan.Diagnostic) bool { return d.Code != plan.AssumedOrder })
	named := func(id string) bool {
		for _, d := range useful {
			if mentions(d.Element+" | "+d.Message, id) {
				return true
			}
		}
		return false
	}
	type spot struct {
		line, column int
		id           string
	}
	var spots []spot
	for _, p := range g.Problems {
		spots = append(spots, spot{p.Line, p.Column, clean(p.ID)})
	}
	before := func(a, b spot) bool {
		return a.line < b.line || a.line == b.line && (a.column < b.column || a.column == b.column && a.id < b.id)
	}
	sort.Slice(spots, func(i, j int) bool { return before(spots[i], spots[j]) })
	return func(d deviation) bool {
		if d.kind == "unreported" {
			return false
		}
		for _, x := range []string{d.from, d.to} {
			if x == "" {
				continue
			}
			if y, ok := place[x]; named(x) || ok && named(y) {
				return true
			}
		}
		if d.kind != "lost" || d.to == "" {
			return false
		}
		for k, s := range spots {
			next := spot{line: 1 << 30}
			if k+1 < len(spots) {
				next = spots[k+1]
			}
			if s.id != d.to {
				continue
			}
			for _, x := range useful {
				switch x.Code {
				case plan.UndefinedVariable, plan.UnknownReference, plan.SkippedText, plan.Malformed:
					at := spot{x.Line, x.Column, ""}
					if !before(at, spot{s.line, s.column, ""}) && before(at, spot{next.line, next.column, ""}) {
						return true
					}
				}
			}
		}
		return false
	}
}

// mentions reports whether id occurs in text as a word of its own.
func mentions(text, id string) bool {
	word := func(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) }
	for at := 0; ; {
		i := strings.Index(text[at:], id)
		if i < 0 {
			return false
		}
		i += at
		ok := true
		if r, _ := utf8.DecodeLastRuneInString(text[:i]); i > 0 && (word(r) || strings.ContainsRune("#.-", r)) {
			ok = false
		}
		rest := text[i+len(id):]
		r, n := utf8.DecodeRuneInString(rest)
		if n > 0 && (word(r) || r == '-') {
			ok = false
		}
		if n > 0 && r == '.' {
			if d, m := utf8.DecodeRuneInString(rest[n:]); m > 0 && unicode.IsDigit(d) {
				ok = false
			}
		}
		if ok {
			return true
		}
		_, n = utf8.DecodeRuneInString(text[i:])
		if n == 0 {
			return false
		}
		at = i + n
	}
}

func cleanAll(xs []string) []string {
	out := make([]string, len(xs))
	for i, x := range xs {
		out[i] = clean(x)
	}
	return out
}

func setOf(xs []string) map[string]bool {
	m := map[string]bool{}
	for _, x := range xs {
		m[x] = true
	}
	return m
}

func filter[T any](xs []T, keep func(T) bool) []T {
	var out []T
	for _, x := range xs {
		if keep(x) {
			out = append(out, x)
		}
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
