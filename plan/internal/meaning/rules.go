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

// Rule returns what a line outside of the steps says about all of them. What a sentence says of some of them
// that it names is none: "2 and 3 can be done in any order".
func (n *Names) Rule(text string) Rule {
	rule, said := NoRule, NoRule
	// "all steps are independent", "all of them can run in parallel"
	every, steps, some := false, false, false
	end := func() {
		if !some || said == Chained {
			rule = max(rule, said)
		}
		said, every, steps, some = NoRule, false, false, false
	}
	for _, a := range n.groups(-1, text, n.atoms(text)) {
		switch {
		case a.class == stop:
			end()
		case a.class == group:
			some = some || !a.place
		case a.is(lexicon.Chained):
			said = Chained
		case a.is(lexicon.Loose), steps && a.kinds&lexicon.KindsOf(lexicon.None, lexicon.Meanwhile, lexicon.Abreast) != 0:
			said = max(said, Loose)
		case a.is(lexicon.Every):
			every = true
		case a.is(lexicon.Steps) && every:
			steps = true
		case a.kinds&(lexicon.Relations|lexicon.KindsOf(lexicon.Not, lexicon.Except)) != 0:
			every, steps = false, false
		}
	}
	end()
	return rule
}
