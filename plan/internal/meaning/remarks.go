package meaning

import (
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// inRemark reports whether the group at an atom is in a remark of a step, behind a dash, a bracket or the end
// of a sentence, and names only earlier steps: "(presupposing 2 and 3)", "Dafür braucht man 1 und 2".
func (t *relationReader) inRemark(from, at, to int) bool {
	a := &t.atoms[at]
	if from == 0 || t.n.made || a.positional || !t.resolved(a) || a.spelled && a.count < 2 || t.isAmount(at+1) || t.denies(from, at, to) || t.isDate(a) {
		return false
	}
	switch t.atoms[from-1].class {
	case opened, dash, stop:
	case colon: // for example "(oven and permit: 2, 3)"
		if to >= len(t.atoms) || t.atoms[to].class != closed {
			return false
		}
	default:
		return false
	}
	for _, i := range a.items {
		if i >= t.self {
			return false
		}
	}
	return a.count > 1 || at-from <= maxRemark
}

// isDate reports whether a group is, or is part of, a date or a fraction: 2027-03-04, 3/4, 1–15 May.
func (t *relationReader) isDate(a *atom) bool {
	before, _ := utf8.DecodeLastRuneInString(t.text[:a.off])
	after, _ := utf8.DecodeRuneInString(t.text[a.end:])
	return strings.ContainsRune("-–/.:", before) || strings.ContainsRune("-–/:%", after) || strings.Contains(t.text[a.off:a.end], "/")
}

// maxRemark bounds the words of a remark before a single number in it.
const maxRemark = 4

// resolved reports whether all references of a group are items.
func (t *relationReader) resolved(a *atom) bool { return len(a.unknown) == 0 && len(a.items) > 0 }

// loneGroup returns the index of the only group in a clause without other content, or -1. content is set if
// there is other content.
func (t *relationReader) loneGroup(from, to int) (at int, content bool) {
	at = -1
	for i := from; i < to; i++ {
		switch a := &t.atoms[i]; {
		case a.class == group && at < 0:
			at = i
		case a.class == word && !a.common, a.class == group, a.class == quantity, a.class == phrase && a.kinds&lexicon.Relations != 0:
			return -1, true
		}
	}
	return at, false
}
