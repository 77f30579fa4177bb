package meaning

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// column is one field in all records of a set.
type column struct {
	name  string
	roles []lexicon.Role
	cells []cell
	// hinted is set if only a phrase in the name suggests the role, so that the values have to confirm it.
	// whole is set if the whole name has a role.
	hinted, whole bool
}

func newColumn(name string) *column {
	c := &column{name: name, roles: rolesOf(name)}
	if _, c.whole = lexicon.Field(name); len(c.roles) == 0 || c.is(lexicon.Duration) && !c.whole {
		if role := hintOf(name); role != "" {
			c.roles, c.hinted = []lexicon.Role{role}, true
		}
	}
	return c
}

// hintOf returns the role that a phrase of relation in a name suggests, as in "Can start when…" or "Hands off
// to", or "".
func hintOf(name string) lexicon.Role {
	name = splitName(name)
	if len(name) > 60 || name == "if" || name == "unless" {
		return "" // a condition on values in most workflow languages
	}
	hint := lexicon.Role("")
	for _, t := range lexicon.Scan(name) {
		role := lexicon.Role("")
		switch {
		case t.Is(lexicon.Apart) || t.Is(lexicon.None) || t.Is(lexicon.Not):
			return ""
		case t.Is(lexicon.Before):
			role = lexicon.Next
		case t.Is(lexicon.Needs) || t.Is(lexicon.Uses):
			role = lexicon.Requires
		case t.Is(lexicon.Beside):
			role = lexicon.Parallel
		}
		if role != "" && hint != "" && role != hint {
			return ""
		}
		if role != "" {
			hint = role
		}
	}
	return hint
}

type cell struct {
	rec int
	off int
	val *form.Value
}

func (c *column) is(role lexicon.Role) bool {
	for _, r := range c.roles {
		if r == role {
			return true
		}
	}
	return false
}

// rolesOf returns the possible roles of a name: of the whole name, of the text in brackets, or of some of its
// words.
func rolesOf(name string) []lexicon.Role {
	if r := lexicon.Fields(name); len(r) > 0 {
		return r
	}
	name = splitName(name)
	if i := strings.IndexAny(name, "(["); i > 0 {
		inner := strings.Trim(name[i:], "()[] ")
		if r := lexicon.Fields(inner); len(r) > 0 {
			return r
		}
		if r := lexicon.Fields(strings.TrimSpace(name[:i])); len(r) > 0 {
			return r
		}
		if r := lexicon.Fields(strings.TrimPrefix(strings.TrimPrefix(inner, "is "), "are ")); len(r) > 0 {
			return r
		}
	}
	words := strings.Fields(strings.Map(func(r rune) rune {
		if strings.ContainsRune("()[]/?:*", r) {
			return ' '
		}
		return r
	}, name))
	if len(words) < 2 || len(words) > 6 {
		return nil
	}
	if words[0] == "data" || words[0] == "x" {
		if r := rolesOf(strings.Join(words[1:], " ")); len(r) > 0 {
			return r // a custom attribute: data-depends, x-needs
		}
	}
	for n := min(3, len(words)-1); n > 0; n-- {
		for i := 0; i+n <= len(words); i++ {
			r := lexicon.Fields(strings.Join(words[i:i+n], " "))
			if len(r) == 0 {
				r = lexicon.Fields(strings.Join(words[i:i+n], " ") + "s")
			}
			for _, x := range r {
				if x == lexicon.Requires || x == lexicon.Next || x == lexicon.Parallel || x == lexicon.Duration || n == 1 && i == len(words)-1 && (x == lexicon.ID || x == lexicon.Title) {
					return []lexicon.Role{x}
				}
			}
		}
	}
	return nil
}

// grid is a set in columns.
type grid struct {
	s    *set
	recs []record
	cols []*column
}

func newGrid(s *set, recs []record) *grid {
	g := &grid{s: s, recs: recs}
	at := map[string]*column{}
	for i := range recs {
		mine := map[*column]int{}
		for _, f := range recs[i].fields {
			key := strings.ToLower(strings.TrimSpace(f.Key))
			col := at[key]
			if col == nil {
				if len(g.cols) == 300 {
					continue
				}
				col = newColumn(f.Key)
				at[key] = col
				g.cols = append(g.cols, col)
			}
			if k, ok := mine[col]; ok {
				have := col.cells[k].val
				if have.Kind != form.KindList || have.Str != "…" {
					have = &form.Value{Kind: form.KindList, Str: "…", Off: have.Off, End: have.End, Items: []*form.Value{have}}
					col.cells[k].val = have
				}
				have.Items = append(have.Items, f.Val)
				continue
			}
			mine[col] = len(col.cells)
			col.cells = append(col.cells, cell{i, f.Off, f.Val})
		}
	}
	return g
}

// isID reports whether a text looks like an id: short and without spaces.
func isID(s string) bool {
	return s != "" && utf8.RuneCountInString(s) <= 48 && !strings.ContainsAny(s, " \t\n{}[]<>,;|\"") && !strings.Contains(s, "://")
}

// candidate is a possible source of ids for the records.
type candidate struct {
	col   *column
	keyed bool
	ids   []string
	score float64
	hits  int
	clear bool // the values look like ids, or a name says that they are ids
}

// probe is a text that may be a reference to another record.
type probe struct {
	rec    int
	text   string
	strong bool
}

// probes collects the texts that may refer to other records.
func (g *grid) probes() []probe {
	var out []probe
	add := func(rec int, s string, strong bool) {
		if s = strings.TrimSpace(s); s != "" && len(s) < 200 && len(out) < 400_000 {
			out = append(out, probe{rec, s, strong})
		}
	}
	for _, col := range g.cols {
		if col.is(lexicon.Owner) || col.is(lexicon.Duration) || col.is(lexicon.Status) || col.is(lexicon.Parallel) || col.is(lexicon.Output) {
			continue
		}
		known := col.is(lexicon.Requires) || col.is(lexicon.Next)
		for _, x := range col.cells {
			var walk func(v *form.Value, strong bool, depth int)
			walk = func(v *form.Value, strong bool, depth int) {
				switch {
				case v == nil || depth > 6:
				case v.IsScalar():
					s := v.Text()
					switch {
					case known:
						add(x.rec, s, true)
						for _, p := range splitCell(s, ",;|&、，；・\n ") {
							if p.text != s {
								add(x.rec, p.text, true)
							}
						}
					case strong || v.Kind == form.KindString && !digits(s) || depth == 1 && digits(s) && col.is(lexicon.Args):
						add(x.rec, s, strong)
					}
					if strings.ContainsAny(s, "${<%@#") {
						for _, w := range expressionNames(s) {
							for _, p := range strings.FieldsFunc(w, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
								add(x.rec, p, true)
							}
						}
					}
				case v.Kind == form.KindList:
					for _, y := range v.Items {
						walk(y, known || depth == 0 && len(col.roles) == 0 || strong, depth+1)
					}
				case isMap(v):
					for i := range v.Fields {
						if known {
							add(x.rec, v.Fields[i].Key, false)
						}
						walk(v.Fields[i].Val, strong, depth+1)
					}
				}
			}
			walk(x.val, false, 0)
		}
	}
	return out
}

// choose returns the source of the ids: the field or key whose values are used as references or which is
// named like an id. It returns nil if the records have no ids. outer returns the ends of lists of links
// around the records.
func (g *grid) choose(outer func() []probe) *candidate {
	n := len(g.recs)
	var all []*candidate
	if g.s.keyed {
		c := &candidate{keyed: true, score: 38, clear: true, ids: make([]string, n)}
		for i := range g.recs {
			c.ids[i] = g.recs[i].key
		}
		all = append(all, c)
	}
	for k, col := range g.cols {
		if len(all) > 12 {
			break
		}
		if c := g.byLabel(col); c != nil {
			all = append(all, c)
		}
		if c := g.asID(col, k == 0); c != nil {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return nil
	}
	probes := g.probes()
	if !slices.ContainsFunc(all, func(c *candidate) bool { return c.col != nil && c.col.is(lexicon.ID) && c.clear && !opaque(c.ids) }) {
		probes = append(probes, outer()...) // otherwise the records have ids in any case
	}
	strong := 0
	for _, p := range probes {
		strong += b2i(p.strong)
	}
	var best *candidate
	for _, c := range all {
		at := make(map[string]int, n)
		for i, id := range c.ids {
			at[id] = i
		}
		hits, weak := 0, 0
		for _, p := range probes {
			if i, ok := at[p.text]; ok && i != p.rec {
				if p.strong {
					hits++
				} else {
					weak++
				}
			}
		}
		c.hits = hits + weak
		if strong > 0 {
			c.score += 60 * float64(hits) / float64(strong)
			if hits > 0 {
				c.score += 25
			}
		}
		if weak > 0 {
			c.score += min(20, 4*float64(weak))
		}
		if best == nil || c.score > best.score {
			best = c
		}
	}
	if !best.clear && best.hits == 0 {
		return nil
	}
	if best.col != nil && (opaque(best.ids) || best.col.is(lexicon.Output) || isOutput(best.col.name)) {
		for _, c := range all {
			if c.col != nil && c.clear && c.col.is(lexicon.ID) && !opaque(c.ids) {
				return c // the ids for people; the other names are known, too
			}
		}
	}
	return best
}

// opaque reports whether all ids are long random numbers, which are only for programs.
func opaque(ids []string) bool {
	return !slices.ContainsFunc(ids, func(s string) bool {
		return len(s) < 8 || strings.Trim(strings.ToLower(s), "0123456789abcdef-") != "" || !strings.ContainsAny(s, "0123456789")
	})
}

// byLabel returns a candidate with the labels that all texts of a column begin with, or nil.
func (g *grid) byLabel(col *column) *candidate {
	if len(col.cells) < len(g.recs) || col.is(lexicon.Requires) || col.is(lexicon.Next) || col.is(lexicon.Output) || col.is(lexicon.Args) {
		return nil
	}
	c := &candidate{ids: make([]string, len(g.recs)), score: 30, clear: true}
	seen := map[string]bool{}
	for _, x := range col.cells {
		label := leadingLabel(x.val.Text())
		if label == "" || seen[label] || !x.val.IsScalar() {
			return nil
		}
		seen[label] = true
		c.ids[x.rec] = label
	}
	return c
}

// asID returns a candidate with the values of a column, or nil if these cannot be ids.
func (g *grid) asID(col *column, first bool) *candidate {
	n := len(g.recs)
	if len(col.cells)*5 < n*4 || col.name == "" && (g.s.form != "table" || !first) || col.is(lexicon.Parallel) {
		return nil
	}
	idRole, title := col.is(lexicon.ID), col.is(lexicon.Title)
	noun := first && len(col.roles) == 0 && lexicon.Is(lexicon.Steps, splitName(col.name)) // "stage": "build"
	for _, r := range col.roles {
		switch r {
		case lexicon.Owner, lexicon.Duration, lexicon.Status, lexicon.Requires, lexicon.Next, lexicon.Args:
			if !idRole && !title && !(r == lexicon.Owner && first && g.s.form == "table" && g.statesNeeds()) {
				return nil // agents may wait for each other
			}
		}
	}
	c := &candidate{col: col, ids: make([]string, n)}
	seen := make(map[string]bool, n)
	marks, long, numbers := 0, 0, 0
	for _, x := range col.cells {
		s := x.val.Text()
		if s == "" || !x.val.IsScalar() {
			return nil
		}
		c.ids[x.rec] = s
		seen[s] = true
		if isID(s) {
			marks++
		}
		if len(s) > 120 {
			long++
		}
		if digits(s) {
			numbers++
		}
	}
	have := len(col.cells)
	if len(seen) < have && (len(seen)*5 < have*3 || have < 3 || !idRole && !first) && !(idRole && !title && first && g.statesNeeds()) || long > 0 {
		return nil
	}
	all := marks == have
	if numbers > 0 && numbers == have && !idRole && !first {
		return nil
	}
	switch {
	case idRole && (all || !title):
		c.score, c.clear = 40, true
	case (title || noun) && all:
		c.score, c.clear = 27, true
	case title:
		c.score = 12
	case col.is(lexicon.Tool):
		c.score = 6
	case all && first:
		c.score, c.clear = 20, g.s.form == "table" || numbers == have
	case all:
		c.score = 12
	default:
		c.score = 4
	}
	if first {
		c.score += 4
	}
	if len(seen) < have {
		c.score -= 20
	}
	return c
}

// statesNeeds reports whether there is a column for needs.
func (g *grid) statesNeeds() bool {
	return slices.ContainsFunc(g.cols, func(col *column) bool { return col.is(lexicon.Requires) && !col.is(lexicon.ID) })
}

// titleOf returns the column with the requests, or nil. Before the dependencies are known, deps is nil and
// only names of columns count.
func (g *grid) titleOf(id *column, deps map[*column]bool) *column {
	var best *column
	most := 0.0
	for _, col := range g.cols {
		if col == id || len(col.cells)*2 < len(g.recs) {
			continue
		}
		title := col.is(lexicon.Title) || col.name == form.TextKey
		if !title && (deps == nil || deps[col] || len(col.roles) > 0 && !col.is(lexicon.Tool)) {
			continue
		}
		length, words := 0, 0
		ok, figures := true, true
		for _, x := range col.cells {
			if !x.val.IsScalar() {
				ok = false
				break
			}
			figures = figures && digits(x.val.Text())
			length += min(len(x.val.Text()), 120)
			if strings.ContainsAny(x.val.Text(), " \u3000") || !isASCII(x.val.Text()) {
				words++
			}
		}
		if !ok || length == 0 || figures && !title {
			continue
		}
		score := float64(length) / float64(len(col.cells))
		if title {
			score += 200
		}
		if col.is(lexicon.Tool) {
			score -= 20
		}
		if words*2 > len(col.cells) {
			score += 40
		}
		if score > most {
			best, most = col, score
		}
	}
	return best
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// countedIDs returns the ids 1 to n.
func countedIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = strconv.Itoa(i + 1)
	}
	return ids
}
