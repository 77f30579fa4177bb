package plan

import (
	"strconv"
	"strings"
)

// numbered reports whether all ids are numbers, such as 1 and 2.1.
func numbered(g Graph) bool {
	for _, p := range g.Problems {
		if !isDecimal(p.ID) {
			return false
		}
	}
	return true
}

func isDecimal(id string) bool { return strings.Trim(id, "0123456789.") == "" }

// nameParents sets the parent 2 for 2.1 even if the list has no step 2, so that the missing parent is
// reported. It does so only if other ids, such as 1 and 1.1, show that ids are nested.
func (g Graph) nameParents() {
	nested := false
	for _, p := range g.Problems {
		nested = nested || p.ParentID != "" && strings.HasPrefix(p.ID, p.ParentID+".")
	}
	for i := range g.Problems {
		p := &g.Problems[i]
		if k := strings.LastIndexByte(p.ID, '.'); nested && k > 0 && p.ParentID == "" && isDecimal(p.ID) {
			p.ParentID = p.ID[:k]
		}
	}
}

// maxGap bounds the number of consecutive missing numbers that are named.
const maxGap = 20

// checkNumbers warns of missing numbers in a list, because a step may have been lost with them.
func (r *reading) checkNumbers(g Graph) {
	last := map[string]int{}
	for _, p := range g.Problems {
		id := p.ID
		if k := len(id) - 1; k > 0 && id[k] >= 'a' && id[k] <= 'z' {
			id = id[:k] // 1a and 1b are both 1
			if p.ParentID == id {
				continue // a below 1
			}
		}
		n, err := strconv.Atoi(id[strings.LastIndexByte(id, '.')+1:])
		if err != nil || n < 0 || !isDecimal(id) {
			continue
		}
		say := func(id, message string) {
			if len(r.diags) >= maxReadDiagnostics {
				return
			}
			r.diags = append(r.diags, Diagnostic{Code: NumberingGap, Severity: Warning, Line: p.Line, Column: p.Column, Element: id, Message: message, Hint: "number the steps one by one"})
		}
		up := p.ParentID
		if k := strings.LastIndexByte(p.ID, '.'); k > 0 {
			up = p.ID[:k] // 2.1 below a heading that is no step
			if m, err := strconv.Atoi(up); err == nil && p.ParentID == "" && m == last[""]+1 {
				last[""] = m
			}
		}
		prev, ok := last[up]
		if ok && n != prev+1 && n != prev || !ok && n > 1 {
			say(p.ID, "step "+p.ID+" does not follow the number before it: a step may be missing")
			for k := prev + 1; ok && k < n && k < prev+maxGap; k++ {
				missing := strconv.Itoa(k)
				if up != "" {
					missing = up + "." + missing
				}
				say(missing, "there is no step "+missing+": it may be missing, or be part of the text before step "+p.ID)
			}
		}
		last[up] = n
	}
}
