package meaning

import (
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// block reads lines that run one after the other, or in parallel if the flow is a parallel one.
func (r *pseudo) block(lines []*pseudoLine, f *form.Flow, depth int) {
	if depth > 100 {
		return
	}
	if f.Kind == "par" {
		r.parallelParts(lines, f, depth)
		return
	}
	tried, j, joined := 0, 0, false
	for k := 0; k < len(lines); k++ {
		n := lines[k]

		if len(n.kids) == 0 {
			if k >= tried {
				j, joined = spawnEnd(lines, k)
				tried = j // no run of such lines begins before j
			}
			if joined {
				joined = false
				r.par++
				side := f.Add("par", 0)
				for _, x := range lines[k:j] {
					_, x.text, _ = strings.Cut(x.text, " ")
					x.off = x.end - len(x.text)
					r.leaf(x, side)
				}
				k = j
				continue
			}

			r.leaf(n, f)
			continue
		}
		switch {
		case n.parallel():
			r.par++
			side := f.Add("par", 0)
			j := k + 1
			for j < len(lines) && len(lines[j].kids) > 0 && lines[j].is(lexicon.BlockBranch) && lines[j].alone(lexicon.BlockBranch) {
				j++ // branches: fork … and …
			}
			if j == k+1 {
				r.block(n.kids, side, depth+1)
				continue
			}
			for _, branch := range lines[k:j] {
				r.block(branch.kids, side.Add("seq", 0), depth+1)
			}
			k = j - 1
		case n.conditional() && !waitsFor(n.text):
			k = r.conditional(lines, k, f, depth)
		case waitsFor(n.text) || n.isStep():
			r.leaf(n, f)
			r.block(n.kids, f.Add("seq", 0), depth+1)
		default:
			r.block(n.kids, f.Add("seq", 0), depth+1)
		}
	}
}

// isStep reports whether a line with lines below it is a step itself: a call that begins no block.
func (n *pseudoLine) isStep() bool {
	return n.lead == 0 && strings.HasSuffix(n.text, ")") && !strings.Contains(n.text, " ") && !n.closed
}

// parallelParts reads the parts of a parallel block.
func (r *pseudo) parallelParts(lines []*pseudoLine, f *form.Flow, depth int) {
	wide := len(lines) > 1 && lines[0].line != lines[len(lines)-1].line
	for k := 0; k < len(lines); k++ {
		n := lines[k]

		j := sameLine(lines, k)
		if len(n.kids) == 0 && wide && (j > k+1 || branchHead(n.text) > 0) { // a branch on a line of its own
			n.text, n.off = n.text[branchHead(n.text):], n.off+branchHead(n.text)
			n.classify()
			r.block(lines[k:j], f.Add("seq", 0), depth+1)
			k = j - 1
			continue
		}
		if len(n.kids) == 0 {
			r.leaf(n, f)
			continue
		}
		r.block(lines[k:k+1], f.Add("seq", 0), depth+1)
	}
}

// conditional reads the block of the condition or loop at index k, together with its else branches. It
// returns the index of its last line.
func (r *pseudo) conditional(lines []*pseudoLine, k int, f *form.Flow, depth int) int {
	var parts [][]*pseudoLine
	n := lines[k]
	split := func(kids []*pseudoLine) {
		from := 0
		for j, x := range kids {
			if len(x.kids) == 0 && x.alone(lexicon.BlockElse) {
				parts = append(parts, kids[from:j])
				from = j + 1
			}
		}
		parts = append(parts, kids[from:])
	}
	split(n.kids)
	for k+1 < len(lines) && len(lines[k+1].kids) > 0 && lines[k+1].is(lexicon.BlockElse) {
		k++
		split(lines[k].kids)
	}
	r.blocks++
	r.note(false, "SKIPPED_TEXT", n.text, "the condition "+n.text+" was left out; the steps below it were read", "write only the steps to do", n.off)
	before := len(r.r.Items)
	if len(parts) == 1 {
		r.block(parts[0], f.Add("seq", 0), depth+1)
	} else {
		alt := f.Add("alt", 0)
		for _, part := range parts {
			r.block(part, alt.Add("seq", 0), depth+1)
		}
	}
	for _, it := range r.r.Items[before:] {
		r.note(false, "AMBIGUOUS", it.ID, it.ID+" is below the condition "+n.text+"; it was read as one step", "write each step to do", it.Off)
	}
	return k
}

// isCondition reports whether a line begins with a word for a condition or a loop.
func isCondition(s string) bool {
	b, _ := lexicon.LeadingBlock(lexicon.Fold(strings.Trim(s, " :")))
	return b&(lexicon.BlockIf|lexicon.BlockElse|lexicon.BlockLoop) != 0
}

// waitsFor reports whether a line begins with a word for waiting and names something.
func waitsFor(s string) bool {
	folded := lexicon.Fold(s)
	b, n := lexicon.LeadingBlock(folded)
	return b&lexicon.BlockJoin != 0 && n < len(folded)
}

// sameLine returns the index behind the last statement on the source line of statement k.
func sameLine(lines []*pseudoLine, k int) int {
	j := k + 1
	for j < len(lines) && lines[j].line == lines[k].line && len(lines[j].kids) == 0 {
		j++
	}
	return j
}

// branchHead returns the length of the branch label at the start of a line in a parallel block: "thread 1: "
// or "- ".
func branchHead(s string) int {
	if strings.HasPrefix(s, "- ") || strings.HasPrefix(s, "|| ") {
		return strings.IndexByte(s, ' ') + 1
	}
	head, rest, ok := strings.Cut(s, ":")
	word, mark, two := strings.Cut(head, " ")
	if !ok || !two || strings.ContainsAny(head, "(=") || strings.TrimSpace(rest) == "" || utf8.RuneCountInString(mark) > 2 || lexicon.Is(lexicon.Steps, strings.ToLower(word)) {
		return 0
	}
	return len(s) - len(strings.TrimLeft(rest, " "))
}

// spawnEnd returns the index behind the lines from k on that each start a step, and whether the line at that
// index joins them.
func spawnEnd(lines []*pseudoLine, k int) (int, bool) {
	j := k
	for j < len(lines) && len(lines[j].kids) == 0 {
		word, rest, _ := strings.Cut(lines[j].text, " ")
		if !wordIs(word, lexicon.BlockSpawn) || rest == "" || strings.Contains(rest, " = ") || strings.ContainsAny(rest, " ") && !strings.HasSuffix(rest, ")") && !(capitals(word) && utf8.RuneCountInString(word) > 2) {
			break
		}
		j++
	}
	return j, j > k && j < len(lines) && lines[j].is(lexicon.BlockJoin)
}

// spawned reports whether steps are started and joined somewhere.
func spawned(lines []*pseudoLine) bool {
	for k := 0; k < len(lines); k++ {
		j, joined := spawnEnd(lines, k)
		if joined && j > k+1 || spawned(lines[k].kids) {
			return true
		}
		k = max(k, j-1) // those in between have no kids
	}
	return false
}
