package plan

import (
	"regexp"
	"strings"
)

// dependencyNote matches "(depends on 1 and 2)", "Dependencies: step 3", "依赖：1、2" and "Depends on: none".
var dependencyNote = regexp.MustCompile(`(?i)(?:depends?\s+(?:up)?on|dependenc(?:y|ies)|依赖(?:于)?)\s*[:：]?\s*((?:(?:steps?|tasks?|步骤|任务|#)\s*)?\d+(?:\.\d+)*(?:\s*(?:,|，|、|;|&|and|和|及)\s*(?:and\s+)?(?:(?:steps?|tasks?|步骤|任务|#)\s*)?\d+(?:\.\d+)*)*|none\b|nothing\b|n/a|无)`)

var noteNumber = regexp.MustCompile(`\d+(?:\.\d+)*`)

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
			if indexFold(text, "depend") < 0 && !strings.Contains(text, "依赖") {
				continue
			}
			for _, m := range dependencyNote.FindAllStringSubmatch(text, 20) {
				notes[i].said = true
				notes[i].deps = append(notes[i].deps, noteNumber.FindAllString(m[1], 200)...)
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
