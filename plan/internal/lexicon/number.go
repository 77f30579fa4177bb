package lexicon

import "strings"

// Number returns the number that a word means: digits of any script, numerals and ordinals in words of any
// language, Roman and Chinese numerals, signs such as ② and ３.
func Number(word string) (int, bool) {
	w := Fold(strings.TrimSpace(word))
	if n, ok := Digits(w); ok {
		return n, true
	}
	if n, ok := data().numbers[w]; ok {
		return n, true
	}
	if n, ok := hanNumber(w); ok {
		return n, true
	}
	return Roman(w)
}

// Counts reports whether a word states a place in an order: an ordinal, or an adverb such as "secondly".
func Counts(word string) (adverb, ok bool) {
	w := Fold(word)
	adverb = data().marks[w]
	return adverb, adverb || data().ordinals[w]
}

// Month returns the number, from 1 to 12, of the month that a word names in any language, or 0.
func Month(word string) int { return data().months[Fold(word)] }

// maxNumber bounds numbers; a larger one is no number of a step.
const maxNumber = 1_000_000

// Digits returns the number that a word consists of: digits of one script, or one sign such as ②.
func Digits(w string) (int, bool) {
	n, some := 0, false
	for _, r := range w {
		if r == '\ufe0f' || r == '\u20e3' {
			continue
		}
		if v, ok := signNumber(r); ok && !some {
			n, some = v, true
			continue
		}
		d, ok := Digit(r)
		if !ok || n > maxNumber {
			return 0, false
		}
		n, some = n*10+d, true
	}
	return n, some
}

// digitZeros are the zeros of the scripts whose digits are recognized.
var digitZeros = [...]rune{'0', '٠', '۰', '०', '০', '０', '๐'}

// Digit returns the value of a digit of any script.
func Digit(r rune) (int, bool) {
	if r >= '0' && r <= '9' {
		return int(r - '0'), true
	}
	if r < 0x600 {
		return 0, false
	}
	for _, z := range digitZeros[1:] {
		if r >= z && r <= z+9 {
			return int(r - z), true
		}
	}
	return 0, false
}

// signs are ranges of signs for numbers.
var signs = [...]struct {
	first, last rune
	value       int
}{{'①', '⑳', 1}, {'⑴', '⒇', 1}, {'⒈', '⒛', 1}, {'❶', '❿', 1}, {'➀', '➉', 1}, {'➊', '➓', 1}, {'⓵', '⓾', 1}, {'⓪', '⓪', 0}, {'Ⅰ', 'Ⅻ', 1}, {'ⅰ', 'ⅻ', 1}, {'㉑', '㉟', 21}, {'⓫', '⓴', 11}, {'🔟', '🔟', 10}}

func signNumber(r rune) (int, bool) {
	if r < 0x2160 {
		return 0, false
	}
	for _, s := range signs {
		if r >= s.first && r <= s.last {
			return int(r-s.first) + s.value, true
		}
	}
	return 0, false
}

const hanDigits = "零一二三四五六七八九"

// hanNumber reads Chinese numerals up to 99.
func hanNumber(w string) (int, bool) {
	if w == "" || len(w) > 9 {
		return 0, false
	}
	n, digit := 0, -1
	for _, r := range w {
		if r == '〇' {
			r = '零'
		}
		if r == '两' || r == '兩' {
			r = '二'
		}
		switch i := strings.IndexRune(hanDigits, r); {
		case r == '十' && n == 0:
			n = 10 * max(1, digit)
			digit = 0
		case i >= 0 && digit <= 0:
			digit = i / 3
		default:
			return 0, false
		}
	}
	return n + max(0, digit), true
}

// maxRoman bounds Roman numerals, so that words such as "mix" and "dim" are no numerals.
const maxRoman = 39

// Roman returns the value of a Roman numeral up to 39.
func Roman(w string) (int, bool) {
	n, rest := 0, Fold(w)
	for rest != "" && rest[0] == 'x' {
		n, rest = n+10, rest[1:]
	}
	for i, s := range [...]string{"", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix"} {
		if rest == s {
			n += i
			return n, n > 0 && n <= maxRoman
		}
	}
	return 0, false
}
