package form

import (
	"strings"
	"unicode/utf8"

	"github.com/epigraph-run/epigraph/plan/internal/lexicon"
)

// date is a date or a time of day as written in a text. minute counts from an arbitrary origin, which is the
// same for all dates of one notation.
type date struct {
	minute int
	month  bool // a day and a month in words; the other end of a span may then be a day only
	end    int  // end offset in the text; 0 if there is no date
}

// Minutes of a day, a month and a year, in a calendar in which all months have 31 days.
const (
	day   = 24 * 60
	month = 31 * day
	year  = 12 * month
)

// dateAt reads a date or a time of day at s[at:].
func dateAt(s string, at int) date {
	end, a := digitsAt(s, at)
	if end == at {
		return monthFirst(s, at)
	}
	if end-at > 4 || end == len(s) {
		return date{}
	}
	sign, n := utf8.DecodeRuneInString(s[end:])
	next, b := digitsAt(s, end+n)
	two := next == end+n+2
	switch {
	case sign == ':' && two && end-at <= 2 && a < 25 && b < 60:
		return date{minute: a*60 + b, end: next}
	case (sign == '月' || sign == '월') && a >= 1 && a <= 12:
		from := skipSpace(s, end+n)
		if next, b = digitsAt(s, from); next > from && b <= 31 {
			if r, m := utf8.DecodeRuneInString(s[next:]); strings.ContainsRune("日号號일", r) {
				next += m
			}
			return date{minute: a*month + b*day, month: true, end: next}
		}
	case strings.ContainsRune("-./", sign) && two:
		third, c := next, 0
		if next < len(s) && s[next] == s[end] {
			third, c = digitsAt(s, next+1)
		}
		switch {
		case end-at == 4 && third == next+3:
			return date{minute: a*year + b*month + c*day, end: third}
		case sign != '-' && third == next+5:
			return date{minute: c*year + b*month + a*day, end: third}
		case sign == '.' && end-at == 2 && third == next+1 && a <= 31 && b <= 12:
			return date{minute: b*month + a*day, end: third}
		}
	case a >= 1 && a <= 31:
		return dayFirst(s, end, a)
	}
	return date{}
}

// dayFirst reads the month behind the number of a day: "2 May", "2. Mai 2026", "2 de mayo".
func dayFirst(s string, end, a int) date {
	from := end
	if k := letters(s, from); k > from && k-from <= maxOrdinal { // 2nd
		from = k
	} else if from < len(s) && s[from] == '.' {
		from++
	}
	for range 2 {
		from = skipSpace(s, from)
		word := letters(s, from)
		if m := lexicon.Month(s[from:word]); m > 0 {
			return withYear(s, date{minute: m*month + a*day, month: true, end: word})
		}
		if word-from > maxArticle || !lexicon.IsCommon("", lexicon.Fold(s[from:word])) {
			break
		}
		from = word // of
	}
	return date{}
}

// monthFirst reads "May 2" and "Sept. 2, 2026".
func monthFirst(s string, at int) date {
	word := letters(s, at)
	if word-at > maxName {
		return date{}
	}
	m := lexicon.Month(s[at:word])
	if m == 0 {
		return date{}
	}
	if word < len(s) && s[word] == '.' {
		word++
	}
	from := skipSpace(s, word)
	end, a := digitsAt(s, from)
	if end == from || a < 1 || a > 31 {
		return date{}
	}
	if k := letters(s, end); k > end && k-end <= maxOrdinal {
		end = k
	}
	return withYear(s, date{minute: m*month + a*day, month: true, end: end})
}

// withYear reads the year behind a date.
func withYear(s string, d date) date {
	from := d.end
	if from < len(s) && (s[from] == '.' || s[from] == ',') {
		from++
	}
	from = skipSpace(s, from)
	if end, y := digitsAt(s, from); end == from+4 && from > d.end {
		d.minute, d.end = d.minute+y*year, end
	}
	return d
}

// spanSigns are the signs between the two ends of a time span, with the replacement of those that are arrows.
// A replacement has the same length.
var spanSigns = [...][2]string{{"→", "–"}, {"⟶", "–"}, {"⇒", "–"}, {"➔", "–"}, {"➜", "–"}, {"-->", "–"}, {"->", ".."}, {"=>", ".."}, {"..", ""}, {"–", ""}, {"—", ""}, {"-", ""}}

// timeSpan reads two dates with an arrow or a dash between them at s[at:]. sign is the index of the sign in
// spanSigns, negative if there is no span.
func timeSpan(s string, at int) (from, to date, sign int, signAt int) {
	from = dateAt(s, at)
	if from.end == 0 {
		if end, a := digitsAt(s, at); end > at && a >= 1 && a <= 31 { // 2 → 9 May
			from.end = end
		}
	}
	if from.end == 0 {
		return from, to, -1, 0
	}
	signAt = skipSpace(s, from.end)
	for k, x := range spanSigns {
		if !strings.HasPrefix(s[signAt:], x[0]) {
			continue
		}
		next := skipSpace(s, signAt+len(x[0]))
		to = dateAt(s, next)
		switch end, a := digitsAt(s, next); {
		case to.end > 0 && from.minute == 0 && to.month:
			_, a = digitsAt(s, at)
			from.minute = to.minute - to.minute%month + a*day
		case to.end > 0 && from.minute > 0 || to.end > 0 && strings.Contains(s[at:from.end], ":"):
		case to.end == 0 && from.month && end > next && a >= 1 && a <= 31: // May 2 → 9
			to = date{minute: from.minute - from.minute%month + a*day, end: end}
		default:
			return from, to, -1, 0
		}
		return from, to, k, signAt
	}
	return from, to, -1, 0
}

// withoutSpanArrows replaces the arrows between two dates ("2 May → 9 May") by dashes, because they are no
// arrows from one step to the next. Quoted texts are not changed.
func withoutSpanArrows(text string) string {
	var out []byte
	for start := 0; start < len(text); {
		n := strings.IndexByte(text[start:], '\n')
		if n < 0 {
			n = len(text) - start
		}
		line, at, quotes := text[start:start+n], 0, 0
		if !ContainsArrow(line) {
			at = len(line)
		}
		for at < len(line) {
			k := strings.IndexFunc(line[at:], nameRune)
			if k < 0 {
				break
			}
			quotes += strings.Count(line[at:at+k], `"`)
			at += k
			_, to, sign, signAt := timeSpan(line, at)
			if sign >= 0 && spanSigns[sign][1] != "" && quotes%2 == 0 {
				if out == nil {
					out = []byte(text)
				}
				copy(out[start+signAt:], spanSigns[sign][1])
			}
			if sign >= 0 {
				at = to.end
				continue
			}
			for at < len(line) { // skip the rest of the word
				r, size := utf8.DecodeRuneInString(line[at:])
				if !nameRune(r) {
					break
				}
				at += size
			}
		}
		start += n + 1
	}
	if out == nil {
		return text
	}
	return string(out)
}

// PlannedDays reads a text that is a span of days as charts write it, alone or in brackets. It returns both
// ends in minutes. Spans of hours (an agenda) and spans of days with a year in words (a history) are refused.
func PlannedDays(s string) (from, to int, ok bool) {
	s = strings.Trim(s, " ()[]")
	a, b, sign, _ := timeSpan(s, 0)
	if sign < 0 || b.end != len(s) || a.minute < day || b.month && b.minute >= year+month {
		return 0, 0, false
	}
	return a.minute, b.minute, true
}
