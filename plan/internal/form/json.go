package form

import (
	"encoding/json"
	"strings"
)

// JSON returns v as JSON. Numbers keep their digits as written.
func JSON(v *Value) string {
	var b strings.Builder
	writeJSON(&b, v, 0, false)
	return b.String()
}

// JSON returns a value of the tree as JSON. If the notation does not distinguish texts from numbers, a text
// that looks like a number or a truth value becomes one.
func (t *Tree) JSON(v *Value) string {
	var b strings.Builder
	writeJSON(&b, v, 0, t.Texts)
	return b.String()
}

// Typed returns a plain text as JSON: a number or a truth value if it looks like one, else a string.
func Typed(s string) string {
	switch low := strings.ToLower(s); {
	case low == "true", low == "false":
		return low
	case isNumber(s) && json.Valid([]byte(s)):
		return s
	}
	return Quote(s)
}

// Quote returns a text as a JSON string.
func Quote(s string) string {
	var b strings.Builder
	writeString(&b, s)
	return b.String()
}

func writeJSON(b *strings.Builder, v *Value, depth int, texts bool) {
	if v == nil || depth > 250 {
		b.WriteString("null")
		return
	}
	switch v.Kind {
	case KindNull:
		b.WriteString("null")
	case KindBool:
		b.WriteString(v.Str)
	case KindNumber:
		if json.Valid([]byte(v.Str)) {
			b.WriteString(v.Str)
		} else {
			writeString(b, v.Str)
		}
	case KindString, KindBare:
		if texts {
			b.WriteString(Typed(v.Str))
		} else {
			writeString(b, v.Str)
		}
	case KindList:
		b.WriteByte('[')
		for i, x := range v.Items {
			if i > 0 {
				b.WriteByte(',')
			}
			writeJSON(b, x, depth+1, texts)
		}
		b.WriteByte(']')
	default:
		b.WriteByte('{')
		n := 0
		if v.Kind == KindCall {
			b.WriteString(`"call":`)
			writeString(b, v.Str)
			n++
			if len(v.Items) > 0 {
				b.WriteString(`,"args":`)
				writeJSON(b, &Value{Kind: KindList, Items: v.Items}, depth+1, texts)
			}
		}
		for _, f := range v.Fields {
			if n > 0 {
				b.WriteByte(',')
			}
			n++
			writeString(b, f.Key)
			b.WriteByte(':')
			writeJSON(b, f.Val, depth+1, texts)
		}
		b.WriteByte('}')
	}
}

func writeString(b *strings.Builder, s string) {
	if plain(s) {
		b.WriteByte('"')
		b.WriteString(s)
		b.WriteByte('"')
		return
	}
	out, err := json.Marshal(s)
	if err != nil {
		out = []byte(`""`)
	}
	b.Write(out)
}

// plain reports whether a JSON string can hold s unchanged. Most texts can; this test saves the two copies
// that encoding/json makes.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}
