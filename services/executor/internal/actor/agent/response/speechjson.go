package response

import (
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonSpeech reads a JSON object of a decision while it is written. Quotes may be single.
type jsonSpeech struct {
	depth   int
	quote   byte // the one that ends the string; 0 outside of strings
	escaped bool
	hex     []byte // what was read of an escape with four digits
	high    rune   // the first half of a surrogate pair

	key    []byte // of the present field
	isKey  bool   // a key comes next
	inKey  bool
	inSaid bool
	said   bool
}

// spoken are the fields of a decision that are said to the user.
var spoken = [...]string{"instant_response", "result"}

// begin starts with an object whose bracket was read.
func (j *jsonSpeech) begin() {
	*j = jsonSpeech{depth: 1, isKey: true, key: j.key[:0], hex: j.hex[:0], said: j.said}
}

// next reads a byte, and adds to out what is said.
func (j *jsonSpeech) next(out []byte, c byte) []byte {
	if j.quote != 0 {
		return j.inString(out, c)
	}
	switch c {
	case '"', '\'':
		j.quote = c
		j.inKey = j.depth == 1 && j.isKey
		j.inSaid = j.depth == 1 && !j.isKey && !j.said && slices.Contains(spoken[:], string(j.key))
		if j.inKey {
			j.key = j.key[:0]
		}
	case '{', '[', '(':
		j.depth++
	case '}', ']', ')':
		j.depth--
	case ':':
		j.isKey = j.isKey && j.depth > 1
	case ',':
		if j.depth == 1 {
			j.isKey, j.key = true, j.key[:0]
		}
	}
	return out
}

// inString reads a byte of a string.
func (j *jsonSpeech) inString(out []byte, c byte) []byte {
	switch {
	case len(j.hex) > 0:
		if j.hex = append(j.hex, c); len(j.hex) == len("uXXXX") {
			out = j.unit(out, hexValue(j.hex[1:]))
			j.hex = j.hex[:0]
		}
	case j.escaped && c == 'u':
		j.escaped, j.hex = false, append(j.hex, c)
	case j.escaped:
		j.escaped = false
		if at := strings.IndexByte("ntrbf", c); at >= 0 {
			c = "\n\t\r\b\f"[at]
		}
		out = j.text(j.unpaired(out), c)
	case c == '\\':
		j.escaped = true
	case c == j.quote:
		out = j.unpaired(out)
		j.quote, j.inKey, j.inSaid = 0, false, false
	default:
		out = j.text(j.unpaired(out), c)
	}
	return out
}

// unit reads a UTF-16 code unit.
func (j *jsonSpeech) unit(out []byte, r rune) []byte {
	switch {
	case j.high != 0 && 0xDC00 <= r && r < 0xE000:
		r = utf16.DecodeRune(j.high, r)
		j.high = 0
	case utf16.IsSurrogate(r) && r < 0xDC00:
		out = j.unpaired(out)
		j.high = r
		return out
	}
	return j.text(j.unpaired(out), []byte(string(r))...)
}

// unpaired reads the end of a surrogate that stands alone.
func (j *jsonSpeech) unpaired(out []byte) []byte {
	if j.high == 0 {
		return out
	}
	j.high = 0
	return j.text(out, []byte(string(utf8.RuneError))...)
}

func hexValue(digits []byte) (r rune) {
	for _, c := range digits {
		at := strings.IndexByte("0123456789abcdef", c|0x20)
		if at < 0 {
			return utf8.RuneError
		}
		r = r<<4 | rune(at)
	}
	return r
}

// text takes decoded bytes of a string.
func (j *jsonSpeech) text(out []byte, text ...byte) []byte {
	switch {
	case j.inKey && len(j.key) < maxTagName:
		j.key = append(j.key, text...)
	case j.inSaid:
		j.said = true
		out = append(out, text...)
	}
	return out
}
