package generate

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// style is a way to write a plan, or a text that is none. Its make returns false if the graph or the language
// does not fit.
type style struct {
	name   string
	weight int
	make   func(*writer) bool
}

// shares are the percentages of the languages.
var shares = []struct {
	code   string
	weight int
}{
	{"en", 35}, {"de", 8}, {"fr", 6}, {"es", 6}, {"it", 4}, {"pt", 4}, {"nl", 3}, {"pl", 3}, {"ru", 4}, {"uk", 3},
	{"sv", 3}, {"tr", 3}, {"zh", 5}, {"ja", 3}, {"ko", 3}, {"ar", 2}, {"hi", 2}, {"vi", 2}, {"id", 2},
}

// Texts returns n generated texts. The same seed gives the same texts, and a smaller n gives the first of
// them.
func Texts(seed uint64, n int) ([]Text, error) {
	langs, err := languages()
	if err != nil {
		return nil, err
	}
	var all []style
	for _, s := range slices.Concat(lists, sheets, values, codes, diagrams, proses, faults, nonplans) {
		for range s.weight {
			all = append(all, s)
		}
	}
	var codes []string
	for _, s := range shares {
		for range s.weight {
			if langs[s.code] != nil {
				codes = append(codes, s.code)
			}
		}
	}
	out := make([]Text, 0, n)
	for i := range n {
		r := rand.New(rand.NewPCG(seed, uint64(i))) //nolint:gosec // the texts are to be the same each time
		// Each round takes every style as often as its weight, in a random order.
		if i%len(all) == 0 {
			round := rand.New(rand.NewPCG(seed, uint64(i)+1<<40)) //nolint:gosec // as above
			round.Shuffle(len(all), func(a, b int) { all[a], all[b] = all[b], all[a] })
		}
		s := all[i%len(all)]
		t := &writer{Rand: r}
		for tries := 0; ; tries++ {
			code := codes[r.IntN(len(codes))]
			*t = writer{Rand: r, lang: langs[code], english: langs["en"]}
			t.out = Text{Style: s.name, Lang: code, Form: FormOf(s.name)}
			if s.make(t) {
				break
			}
			if tries == 200 {
				return nil, fmt.Errorf("the style %s fits no graph", s.name)
			}
		}
		t.out.ID = fmt.Sprintf("%s/%s-%d-%d", s.name, t.out.Lang, seed, i)
		t.damage()
		out = append(out, t.out)
	}
	return out, nil
}

// FormOf returns the form of the texts of a style: generated, written by hand, or recorded.
func FormOf(style string) string {
	switch style {
	case "notplan", "no_plan":
		return "none"
	case "prose", "email":
		return "prose"
	case "tables", "table", "csv":
		return "table"
	case "json", "yaml", "stepfunctions", "tool_calls", "transcript", "nested":
		return "value"
	case "xml":
		return "tags"
	case "diagrams", "mermaid", "dot_uml", "arrows", "ascii":
		return "diagram"
	case "code", "pseudo", "python", "makefile", "llmcompiler", "rewoo", "nested_calls":
		return "code"
	case "mixed", "faulty":
		return style
	}
	return "list"
}
