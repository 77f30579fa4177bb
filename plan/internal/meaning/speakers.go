package meaning

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/form"
	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// withoutSpeakers returns a conversation without the names and times before what is said, or nil when the text
// is none: nearly all of its lines have a speaker, and there are half as many speakers as lines or fewer.
func withoutSpeakers(src *form.Source) *form.Source {
	var spans []Span
	said := map[string]int{}
	lines := 0
	for i := range src.Lines {
		l := &src.Lines[i]
		if l.Text == "" {
			continue
		}
		lines++
		if name, n := speaker(l.Text); n > 0 {
			said[name]++
			spans = append(spans, Span{l.Off, l.Off + n})
		}
	}
	if len(spans) < 4 || len(said) < 2 || len(said)*2 > len(spans) || len(spans)*5 < lines*4 {
		return nil
	}
	return blanked(src, spans...)
}

// speaker returns the name with which a line of a conversation begins, and where what is said begins: "[09:01]
// Ann: dig". A name is no field of a record.
func speaker(line string) (name string, length int) {
	rest := line
	if strings.HasPrefix(rest, "[") || rest[0] >= '0' && rest[0] <= '9' {
		rest = strings.TrimLeft(rest, "[]0123456789:.,/- TZ")
	}
	i := strings.IndexAny(rest, ":：")
	if i < 1 || i > 40 {
		return "", 0
	}
	name = rest[:i]
	_, size := utf8.DecodeRuneInString(rest[i:])
	letters := !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsMark(r) && r != ' ' && r != '.' })
	if _, field := lexicon.Field(name); field || !letters || strings.Count(name, " ") > 2 || utf8.RuneCountInString(name) < 2 {
		return "", 0
	}
	return name, len(line) - len(rest) + i + size
}
