package meaning

import "github.com/epigraph-run/epigraph/plan/internal/lexicon"

// Rule is a statement of a text about all steps.
type Rule uint8

const (
	// NoRule means that there is no such statement.
	NoRule Rule = iota
	// Loose means that steps need nothing unless they state a need.
	Loose
	// Chained means that each step needs the one before it unless it states otherwise.
	Chained
)

// Rule returns the rule in a line outside of the steps. A sentence about particular steps is no rule: "2 and
// 3 can be done in any order".
func (n *Names) Rule(text string) Rule {
	rule, said := NoRule, NoRule
	// For example "all steps are independent", "all of them can run in parallel".
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
			some = some || !a.positional
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
