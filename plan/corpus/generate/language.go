package generate

import (
	"embed"
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

//go:embed phrases/*.txt
var files embed.FS

// language holds the phrases of a language by section, and the tasks of its domains.
type language struct {
	code    string
	phrases map[string][]string
	domains [][]halves
}

// halves are first and second parts of tasks. Every first part goes with every second part.
type halves struct{ first, second []string }

var languages = sync.OnceValues(func() (map[string]*language, error) {
	entries, err := files.ReadDir("phrases")
	if err != nil {
		return nil, err
	}
	out := map[string]*language{}
	for _, e := range entries {
		b, err := files.ReadFile("phrases/" + e.Name())
		if err != nil {
			return nil, err
		}
		l := &language{code: strings.TrimSuffix(e.Name(), ".txt"), phrases: map[string][]string{}}
		if err := l.read(string(b)); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		out[l.code] = l
	}
	return out, nil
})

func (l *language) read(s string) error {
	section := ""
	for i, line := range strings.Split(s, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "# "):
		case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]"):
			section = strings.Trim(line, "[]")
			if section == "domain" {
				l.domains = append(l.domains, nil)
			}
		case section == "domain":
			a, b, ok := strings.Cut(line, " + ")
			if !ok {
				return fmt.Errorf("%d: a line of tasks has two halves", i+1)
			}
			d := &l.domains[len(l.domains)-1]
			*d = append(*d, halves{strings.Split(a, "|"), strings.Split(b, "|")})
		default:
			l.phrases[section] = append(l.phrases[section], line)
		}
	}
	return nil
}

// spaced reports whether the language has spaces between words.
func (l *language) spaced() bool { return l.code != "zh" && l.code != "ja" }

// capital returns s with a capital first letter.
func (l *language) capital(s string) string {
	r, n := utf8.DecodeRuneInString(s)
	switch {
	case n == 0:
		return s
	case l.code == "tr":
		return string(unicode.TurkishCase.ToUpper(r)) + s[n:]
	}
	return string(unicode.ToUpper(r)) + s[n:]
}
