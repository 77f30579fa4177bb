package meaning

import (
	"strings"
	"unicode"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// premises and conclusions are the labels of the parts of an argument.
var premises, conclusions = wordsOf("premises"), wordsOf("conclusions")

// argues reports whether a text is an argument rather than a plan: at least half of its lines are premises or
// conclusions.
func argues(src *form.Source) bool {
	grounds, follows, lines := 0, 0, 0
	for i := range src.Lines {
		if src.Lines[i].Text == "" {
			continue
		}
		lines++
		switch label := argumentLabel(src.Lines[i].Text); {
		case premises[label]:
			grounds++
		case conclusions[label]:
			follows++
		}
	}
	return grounds > 1 && follows > 0 && (grounds+follows)*2 >= lines
}

// argumentLabel returns the folded label before the colon of a line, without a number or list mark. It
// returns "" if the line has no label.
func argumentLabel(s string) string {
	head, _, ok := strings.Cut(strings.Replace(s[:min(len(s), maxKey)], "：", ":", 1), ":")
	if !ok {
		return ""
	}
	return lexicon.Fold(strings.TrimFunc(head, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) }))
}
