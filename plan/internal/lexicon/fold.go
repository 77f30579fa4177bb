package lexicon

import (
	"unicode"
	"unicode/utf8"
)

// Fold returns a text in the form in which phrases are compared: lower case, plain apostrophes and spaces,
// full-width ASCII as ASCII, and one form for all Turkish i's.
func Fold(s string) string {
	at := 0
	for at < len(s) && s[at] < utf8.RuneSelf && (s[at] < 'A' || s[at] > 'Z') {
		at++
	}
	if at == len(s) {
		return s
	}
	var few [128]byte
	return string(AppendFold(append(few[:0], s[:at]...), s[at:]))
}

// AppendFold appends a folded text to a buffer.
func AppendFold(b []byte, s string) []byte {
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if c >= 'A' && c <= 'Z' {
				c += 'a' - 'A'
			}
			b = append(b, c)
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r = foldRune(r); r >= 0 {
			b = utf8.AppendRune(b, r)
		}
		i += n
	}
	return b
}

// foldRune returns the folded rune, or -1 for a rune that is left out.
func foldRune(r rune) rune {
	switch {
	case r < 0x80:
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	case r >= 0xFF01 && r <= 0xFF5E:
		return foldRune(r - 0xFF01 + '!')
	}
	switch r {
	case 'İ', 'ı':
		return 'i'
	case '’', '‘', 'ʼ', '＇', '′':
		return '\''
	case '\u00a0', '\u2009', '\u202f', '\u3000', '\u2007':
		return ' '
	case '\u0640', '\u0307', '\u200b', '\u200c', '\u200d', '\u200e', '\u200f', '\ufeff', '\ufe0f', '\u20e3', '\u00ad':
		return -1
	case 'ё':
		return 'е'
	case 'Ё':
		return 'е'
	case '‐', '‑':
		return '-'
	}
	return unicode.ToLower(r)
}

// folded is a folded text with the place of each of its bytes in the original text. at is nil if the places
// are the same.
type folded struct {
	text string
	at   []int32
}

// place returns the place in the original text of a byte of the folded text.
func (f *folded) place(i int) int {
	if f.at == nil {
		return i
	}
	return int(f.at[i])
}

func foldText(s string) folded {
	plain := true
	for i := 0; i < len(s) && plain; i++ {
		plain = s[i] < utf8.RuneSelf
	}
	if plain {
		return folded{text: Fold(s)}
	}
	text, at := make([]byte, 0, len(s)), make([]int32, 0, len(s)+1)
	for i, r := range s {
		if r = foldRune(r); r >= 0 {
			n := len(text)
			text = utf8.AppendRune(text, r)
			for range len(text) - n {
				at = append(at, int32(i))
			}
		}
	}
	return folded{text: string(text), at: append(at, int32(len(s)))}
}

// FoldPlaces folds a text like Fold. place returns, for a place in the folded text, the place in the
// original.
func FoldPlaces(s string) (text string, place func(int) int) {
	f := foldText(s)
	return f.text, f.place
}
