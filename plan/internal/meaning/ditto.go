package meaning

import (
	"slices"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// ditto reads a remark that gives this step the needs of the step before, or of the step that it names:
// "(idem)", "same as 2", "needs the same".
func (t *relationReader) ditto(from, to int) {
	at := from
	for at < to && (t.atoms[at].class != phrase || !t.atoms[at].is(lexicon.Ditto)) {
		at++
	}
	if at == to || t.self < 0 || t.n.position[t.self] == 0 {
		return
	}
	start, end := at, at
	for start > from && t.atoms[start-1].class != comma {
		start--
	}
	for end < to && t.atoms[end].class != comma {
		end++
	}
	other, needs, words := -1, -1, false
	tok := &t.atoms[at].tok
	for i := start; i < end; i++ {
		switch a := &t.atoms[i]; {
		case i == at, a.class == closing, t.light(i):
		case a.class == group && other < 0 && t.resolved(a):
			other = i
		case a.class == group && tok.Side == lexicon.Behind && other >= 0:
			t.atoms[other].used = true // "2와 마찬가지로 1 다음" states the need itself
			return
		case a.class == phrase && a.kinds&lexicon.KindsOf(lexicon.Needs, lexicon.Uses) != 0:
			needs = i
		case a.class == word && i > at && tok.Opens:
			words = true
		default:
			return
		}
	}
	rel := Relation{Kind: Ditto, Subjects: t.about(nil), Items: t.n.steps[t.n.position[t.self]-1 : t.n.position[t.self]], Off: t.atoms[start].off, End: t.atoms[end-1].end}
	asks := tok.Opens || tok.Side != lexicon.Ahead // "like …" states nothing without a step
	switch {
	case other >= 0 && needs >= 0 && !asks, other < 0 && asks && !words, start == 0 && needs < 0:
		return
	case other >= 0:
		rel.Items, t.atoms[other].used = t.atoms[other].items, true
	case words:
		i, ok, weak := t.byTitle(at+1, end)
		if !ok || weak {
			return
		}
		rel.Items = []int{i}
	}
	if needs >= 0 {
		t.atoms[needs].kinds &^= lexicon.Relations
	}
	t.rels = append(t.rels, rel)
}

// maxDitto bounds the relations that are copied from one step.
const maxDitto = 40

// dittos returns copies of the relations of other steps for the steps with a ditto remark.
func (w *linker) dittos() (out []Relation) {
	of := map[int][]Relation{} // by subject
	note := func(rel Relation) {
		for _, s := range rel.Subjects {
			if len(of[s]) < maxDitto {
				of[s] = append(of[s], rel)
			}
		}
	}
	if !slices.ContainsFunc(w.rels, func(rel Relation) bool { return rel.Kind == Ditto }) {
		return nil
	}
	for _, rel := range w.rels {
		if rel.Kind != Ditto {
			note(rel)
		}
	}
	for _, rel := range w.rels {
		if rel.Kind != Ditto {
			continue
		}
		for _, x := range rel.Items {
			for _, said := range of[x] {
				said.Subjects, said.Off, said.End = rel.Subjects, rel.Off, rel.End
				said.Items = slices.DeleteFunc(slices.Clone(said.Items), func(i int) bool { return slices.Contains(rel.Subjects, i) })
				if said.Kind == None || said.full() {
					out = append(out, said)
					note(said)
				}
			}
		}
	}
	return out
}
