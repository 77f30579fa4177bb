package workgraph

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
)

const (
	// maxPattern bounds the text of a regular expression in bytes. maxPatternSteps bounds the instructions
	// that it compiles to, which at worst is the number of steps for each character of the text.
	maxPattern      = 1000
	maxPatternSteps = 2000
	// maxFoldedRanges bounds ranges like [α-ω] in a pattern that ignores case. The compiler handles each of
	// them character by character.
	maxFoldedRanges = 4
	// The costs of such a range and of a Unicode class.
	foldedRangeCost = 10_000
	classCost       = 200
)

type pattern struct {
	re    *regexp.Regexp
	steps int
}

// foldsCase finds the flag that makes a pattern ignore case.
var foldsCase = regexp.MustCompile(`\(\?[a-zA-Z]*i`)

// compilePattern charges the cost of a regular expression and then compiles it.
func (m *meter) compilePattern(text string) (*pattern, error) {
	if len(text) > maxPattern {
		return nil, fmt.Errorf("the pattern is longer than %d bytes", maxPattern)
	}
	m.charge(uint64(len(text)) + classCost*uint64(strings.Count(text, `\p`)+strings.Count(text, `\P`)))
	if foldsCase.MatchString(text) && (strings.Contains(text, `\x{`) || utf8.RuneCountInString(text) < len(text)) {
		ranges := strings.Count(text, "-")
		if ranges > maxFoldedRanges {
			return nil, fmt.Errorf("a pattern that ignores case has more than %d ranges beyond ASCII", maxFoldedRanges)
		}
		m.charge(foldedRangeCost * uint64(ranges))
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	steps := patternSteps(tree, maxPatternSteps)
	if steps > maxPatternSteps {
		return nil, fmt.Errorf("the pattern compiles to more than %d steps: repeat less", maxPatternSteps)
	}
	m.charge(2 * uint64(steps))
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	return &pattern{re, steps}, nil
}

// patternSteps estimates how many instructions a pattern compiles to. Above limit it stops counting.
func patternSteps(re *syntax.Regexp, limit int) int {
	n := 2
	if re.Op == syntax.OpLiteral {
		n += len(re.Rune)
	}
	for _, sub := range re.Sub {
		if n += patternSteps(sub, limit); n > limit {
			return n
		}
	}
	if re.Op == syntax.OpRepeat {
		n *= max(1, re.Min, re.Max)
	}
	return n
}

func runMatches(m *meter, args []ref.Val) ref.Val {
	text, okText := args[0].(types.String)
	src, okSrc := args[1].(types.String)
	if !okText || !okSrc {
		m.charge(1)
		return nil
	}
	re := m.fixed[string(src)]
	if re == nil {
		re = m.patterns[string(src)]
	}
	if re == nil {
		var err error
		if re, err = m.compilePattern(string(src)); err != nil {
			return types.NewErr("%s", PatternFault(string(src), err))
		}
		if m.patterns == nil {
			m.patterns = map[string]*pattern{}
		}
		m.patterns[string(src)] = re
	}
	m.charge(1 + times(len(text), re.steps)/textUnit)
	return types.Bool(re.re.MatchString(string(text)))
}
