package form

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// Sentence is one sentence of running text.
type Sentence struct {
	// Text is the sentence as written, with its final sign and without surrounding space. Off is its place.
	Text string
	Off  int
	// Question is set if the sentence ends with a question mark.
	Question bool
	// Clauses are the parts between commas, semicolons, colons, dashes and brackets, without these signs.
	Clauses []Clause
}

// Clause is a part of a sentence. Sep is the sign in front of it: ',', ';', ':', '-' for a dash, '(' for text
// in brackets, ')' for text behind brackets, and 0 at the beginning.
type Clause struct {
	Text string
	Off  int
	Sep  rune
}

// Sentences splits running text, which begins at off in the source, into sentences. A wrapped line continues
// on the next one. Points of abbreviations, initials, numbers and ordinals do not end a sentence.
func Sentences(text string, off int) []Sentence {
	var out []Sentence
	start := 0
	small := smallLetters(text)
	add := func(end int) {
		raw := text[start:end]
		body := strings.TrimLeft(raw, space+"\n")
		at := start + len(raw) - len(body)
		if body = strings.TrimRight(body, space+"\n"); strings.IndexFunc(body, isWordRune) >= 0 {
			last, _ := utf8.DecodeLastRuneInString(strings.TrimRight(body, "\"'”’»」』)*_ "))
			out = append(out, Sentence{
				Text: body, Off: off + at, Question: strings.ContainsRune("?？؟", last), Clauses: clauses(body, off+at),
			})
		}
		start = end
	}
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		i += n
		switch {
		case strings.ContainsRune("。！？؟।!?‼…", r) && (r >= 0x2000 || r == '؟' || r == '।' || endsHere(text[i:])):
			i += closing(text[i:])
			if r != '…' || endsHere(text[i:]) && !lowerNext(text[i:]) {
				add(i)
			}
		case r == '.' && endsHere(text[i:]) && (!pointInside(text[start:i-1], text[i:]) || small && wordBefore(text[start:i-1])):
			i += closing(text[i:])
			add(i)
		case r == '\n' && lineEnds(text[:i-1], text[i:]):
			add(i)
		}
	}
	add(len(text))
	return out
}

// smallLetters reports whether no sentence of a text begins with a capital, as in a quick message.
func smallLetters(text string) bool {
	some := false
	for i := 0; i < len(text); {
		n := strings.IndexByte(text[i:], '.')
		if n < 0 {
			break
		}
		i += n + 1
		next := strings.TrimLeft(text[i:], space+"\n")
		if len(next) == len(text[i:]) || next == "" {
			continue
		}
		switch r, _ := utf8.DecodeRuneInString(next); {
		case unicode.IsUpper(r):
			return false
		case unicode.IsLower(r) && wordBefore(text[max(0, i-20):i-1]):
			some = true
		}
	}
	return some
}

// wordBefore reports whether a text ends with a whole word, rather than a number or an abbreviation.
func wordBefore(before string) bool {
	word := before[strings.LastIndexAny(before, " \n\t(\u00a0")+1:]
	return utf8.RuneCountInString(word) > 2 && strings.IndexFunc(word, func(r rune) bool { return !unicode.IsLetter(r) && r != '\'' && r != ')' }) < 0 && !lexicon.IsAbbreviation(word)
}

func isWordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) }

// closing returns the length of the quotes, brackets and further signs at the start of s that belong to the
// sentence before s.
func closing(s string) int {
	return len(s) - len(strings.TrimLeft(s, ".!?！？\"'”’»」』)）*_"))
}

// endsHere reports whether s may follow the last sign of a sentence.
func endsHere(s string) bool {
	s = s[closing(s):]
	r, _ := utf8.DecodeRuneInString(s)
	return s == "" || unicode.IsSpace(r) || r >= 0x1F000
}

// lowerNext reports whether the next word begins with a small letter.
func lowerNext(s string) bool {
	r, _ := utf8.DecodeRuneInString(strings.TrimLeft(s, space+"\n\"'“„«("))
	return unicode.IsLower(r)
}

// pointInside reports whether the point between before and after belongs to a number or an abbreviation.
func pointInside(before, after string) bool {
	word := before[strings.LastIndexAny(before, " \n\t(\u00a0")+1:]
	if i := strings.LastIndexByte(word, '.'); i >= 0 {
		if i+1 == len(word) {
			return lowerNext(after)
		}
		return utf8.RuneCountInString(word[i+1:]) <= 3 && !strings.ContainsAny(after[:min(len(after), 1)], "\n")
	}
	if strings.HasPrefix(after, "\n") && !lowerNext(after) {
		return false
	}
	letters := utf8.RuneCountInString(word)
	first, _ := utf8.DecodeRuneInString(word)
	switch {
	case word == "" || lowerNext(after):
		return word != ""
	case strings.Trim(word, "0123456789") == "":
		return lexicon.FollowsOrdinal(nextWord(after)) // "3. Schritt"
	case lexicon.IsAbbreviation(word):
		return true
	case letters == 1:
		before = strings.TrimSpace(strings.TrimSuffix(before, word))
		return unicode.IsLetter(first) && before != "" && !lettered(before[strings.LastIndexAny(before, " \n\t(")+1:])
	}
	return false
}

// lettered reports whether a word takes a letter behind it. The point in "option A. Forget the other" ends a
// sentence.
func lettered(word string) bool {
	return lexicon.Is(lexicon.Choice, word) || lexicon.Is(lexicon.Choice, word+" a") || lexicon.Is(lexicon.Steps, word)
}

func nextWord(s string) string {
	s = strings.TrimLeft(s, space)
	if i := strings.IndexFunc(s, func(r rune) bool { return !isWordRune(r) }); i >= 0 {
		s = s[:i]
	}
	return strings.ToLower(s)
}

// wrapped is the width from which on a line may have been wrapped rather than ended.
const wrapped = 50

// lineEnds reports whether the line end between before and after ends the sentence. It does at an empty line,
// before a list mark, and after a short line unless the next line begins with a small letter.
func lineEnds(before, after string) bool {
	line := strings.TrimRight(before[strings.LastIndexByte(before, '\n')+1:], space)
	next := strings.TrimLeft(after, space)
	r, _ := utf8.DecodeRuneInString(next)
	switch {
	case next == "" || r == '\n' || line == "":
		return true
	case strings.ContainsRune("-*+•·–—>#|`", r) || unicode.IsDigit(r):
		return true
	case strings.HasSuffix(line, ":"):
		return true
	case unicode.IsLower(r):
		return len(line) < 20 && !strings.HasSuffix(line, ",")
	}
	return utf8.RuneCountInString(line) < wrapped && !strings.HasSuffix(line, ",")
}

// clauses splits a sentence at its signs, except at a comma inside a number and at a hyphen inside a word.
func clauses(s string, off int) []Clause {
	var out []Clause
	start, sep := 0, rune(0)
	add := func(end int, next rune, skip int) {
		raw := s[start:end]
		body := strings.TrimLeft(raw, space+"\n\"“„«'*_")
		at := start + len(raw) - len(body)
		if body = strings.TrimRight(body, space+"\n.!?。！？؟।…\"”»'*_"); body != "" {
			out = append(out, Clause{Text: body, Off: off + at, Sep: sep})
			sep = next
		} else if sep == 0 || sep == ')' || next != ',' {
			sep = next
		}
		start = end + skip
	}
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		after := s[i+n:]
		switch r {
		case ',':
			if after == "" || after[0] < '0' || after[0] > '9' || i == 0 || s[i-1] < '0' || s[i-1] > '9' {
				add(i, ',', n)
			}
		case '，', '、', '،':
			add(i, ',', n)
		case ';', '；', '؛':
			add(i, ';', n)
		case ':', '：':
			if next, _ := utf8.DecodeRuneInString(after); r == '：' || endsHere(after) || next >= 0x2E80 && next < 0xFF00 {
				add(i, ':', n)
			}
		case '–', '—':
			if i == 0 || s[i-1] == ' ' || r == '—' {
				add(i, '-', n)
			}
		case '-':
			if i > 0 && s[i-1] == ' ' && strings.HasPrefix(after, " ") {
				add(i, '-', n)
			}
		case '(', '（':
			add(i, '(', n)
		case ')', '）':
			add(i, ')', n)
		}
		i += n
	}
	add(len(s), 0, 0)
	return out
}
