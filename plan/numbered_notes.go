package plan

import (
	"regexp"
	"strconv"
	"strings"
)

// stepList is a list of numbers of steps: "1 and 2", "steps 1, 2", "[1, 2]", "Step-1", "1-3".
const stepList = `((?:(?:steps?|tasks?|步骤|步驟|任务|第|#)[\s-]*)?\d+(?:\.\d+)*步?(?:\s*(?:,|，|、|;|&|and|和|及|与|-|–|to)\s*(?:and\s+)?(?:(?:steps?|tasks?|步骤|步驟|任务|第|#)[\s-]*)?\d+(?:\.\d+)*步?)*)`

// dependencyNote matches "(depends on 1 and 2)", "Dependencies: step 3", "依赖：1、2" and "Depends on: none".
var dependencyNote = regexp.MustCompile(`(?i)(?:depends?\s+(?:up)?on|dependenc(?:y|ies)|\bdeps|依赖(?:于)?)\s*[:：=]?\s*[\[(]?\s*(?:` + stepList + `|(none\b|nothing\b|n/a|无|\]))`)

// looseNote matches words that need not name steps: "(requires 1)", "[after steps 1 and 2]", "Prerequisites: 3", "<- 1, 2".
// They count in brackets, after a colon, or at the end of the line.
var looseNote = regexp.MustCompile(`(?i)(?:[(（\[]\s*(?:requires|needs|after|following|blocked by|waits? for|prerequisites?|前置|需要|先完成)\s*[:：]?\s*` + stepList + `\s*[)）\]]|(?:^|[\s(（\[])(?:prerequisites?|requires|needs|blocked by|after|前置步骤|前置)\s*[:：]\s*[\[(]?\s*(?:` + stepList + `\s*[)\]）]*\s*\.?$|(none\b|nothing\b|n/a|无))|(?:<-|←)\s*` + stepList + `\s*$)`)

var noteNumber = regexp.MustCompile(`(\d+(?:\.\d+)*)(?:(\s*(?:-|–|\bto\b)\s*)(\d+)(?:[^\d.]|$))?`)

// noteNumbers returns the numbers in a list of steps; "1-3" is all from 1 to 3.
func noteNumbers(s string) []string {
	var out []string
	for _, m := range noteNumber.FindAllStringSubmatch(s, 200) {
		out = append(out, m[1])
		if m[3] == "" {
			continue
		}
		from, err1 := strconv.Atoi(m[1])
		to, err2 := strconv.Atoi(m[3])
		for n := from + 1; err1 == nil && err2 == nil && n <= to && n < from+1000; n++ {
			out = append(out, strconv.Itoa(n))
		}
	}
	return out
}

// saysDependency is a quick test for what the notes begin with.
func saysDependency(s string) bool {
	if strings.Contains(s, "依赖") || strings.Contains(s, "前置") || strings.Contains(s, "需要") || strings.Contains(s, "先完成") || strings.Contains(s, "<-") || strings.Contains(s, "←") {
		return true
	}
	for _, w := range [...]string{"depend", "deps", "requires", "needs", "after", "following", "blocked by", "wait", "prerequisite"} {
		if indexFold(s, w) >= 0 {
			return true
		}
	}
	return false
}

// readNotes adds the dependencies that items state in words. Where a list has any, its numbers are no order.
func (r *reading) readNotes(d *document, items []numberedItem) {
	type note struct {
		said bool
		deps []string
	}
	notes := make([]note, len(items))
	found := false
	for i, it := range items {
		for _, text := range append([]string{it.text}, it.detail...) {
			if !saysDependency(text) {
				continue
			}
			for _, m := range dependencyNote.FindAllStringSubmatch(text, 20) {
				notes[i].said = true
				notes[i].deps = append(notes[i].deps, noteNumbers(m[1])...)
			}
			if notes[i].said {
				continue
			}
			for _, m := range looseNote.FindAllStringSubmatch(text, 20) {
				notes[i].said = true
				notes[i].deps = append(notes[i].deps, noteNumbers(m[1]+m[2]+m[4])...)
			}
		}
		found = found || len(notes[i].deps) > 0
	}
	if !found {
		return
	}
	r.edgesStated = true
	parent := map[string]bool{}
	for _, p := range r.graph.Problems {
		parent[p.ParentID] = true
	}
	for i, it := range items {
		id := r.graph.Problems[i].ID
		if !notes[i].said && !parent[id] {
			r.diag(d, Warning, MissingField, it.off, id, "step "+id+" does not say what it depends on, and other steps do; taken as nothing", "say that it depends on nothing")
		}
		for _, from := range notes[i].deps {
			r.edge(d, from, id, Stated, it.off)
		}
	}
}
