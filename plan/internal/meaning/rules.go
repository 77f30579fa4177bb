package meaning

import "github.com/epigraph-run/epigraph/plan/internal/lexicon"

// Rule is what a text says about all steps at once.
type Rule uint8

const (
	// NoRule means that nothing is said.
	NoRule Rule = iota
	// Loose means that steps need nothing, unless they say so.
	Loose
	// Chained means that each step needs the one before, unless it says otherwise.
	Chained
)

// Rule returns what a line outside of the steps says about all of them.
func (n *Names) Rule(text string) Rule {
	rule := NoRule
	every, steps := false, false // "all steps are independent", "all of them can run in parallel"
	for _, t := range lexicon.ScanIn(n.lang, text) {
		switch {
		case steps && t.Kinds&lexicon.KindsOf(lexicon.None, lexicon.Meanwhile, lexicon.Abreast) != 0 && rule == NoRule:
			rule = Loose
		case t.Is(lexicon.Every):
			every = true
		case t.Is(lexicon.Steps) && every:
			steps = true
		case t.Kinds&(lexicon.Relations|lexicon.KindsOf(lexicon.Numeral, lexicon.Not, lexicon.Except)) != 0:
			every, steps = false, false
		case t.Is(lexicon.Chained):
			rule = Chained
		case t.Is(lexicon.Loose) && rule == NoRule:
			rule = Loose
		}
	}
	return rule
}
