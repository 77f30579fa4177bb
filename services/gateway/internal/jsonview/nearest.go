package jsonview

import (
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/epigraph-run/epigraph/internal/near"
)

func unknownField(md protoreflect.MessageDescriptor, key string) string {
	names := make([]string, 0, md.Fields().Len())
	for i := range md.Fields().Len() {
		names = append(names, md.Fields().Get(i).JSONName())
	}
	text := string(md.Name()) + " has no field " + quote(key)
	if n := Nearest(camel(key), names); n != "" {
		return text + "; did you mean " + quote(n) + "?"
	}
	return text + "; it has " + strings.Join(names, ", ")
}

func unknownValue(ed protoreflect.EnumDescriptor, text string) string {
	names := make([]string, 0, ed.Values().Len())
	for i := range ed.Values().Len() {
		n := string(ed.Values().Get(i).Name())
		names = append(names, n)
		// "running" is what people type for RUN_STATE_RUNNING.
		if strings.HasSuffix(n, "_"+strings.ToUpper(text)) {
			return quote(text) + " is no " + string(ed.Name()) + "; did you mean " + quote(n) + "?"
		}
	}
	if n := Nearest(strings.ToUpper(text), names); n != "" {
		return quote(text) + " is no " + string(ed.Name()) + "; did you mean " + quote(n) + "?"
	}
	return quote(text) + " is no " + string(ed.Name()) + "; it is one of " + strings.Join(names, ", ")
}

// camel turns snake_case into the lowerCamelCase of JSON names.
func camel(s string) string {
	parts := strings.Split(clip(s, 64), "_")
	for i, p := range parts[1:] {
		if p != "" {
			parts[i+1] = strings.ToUpper(p[:1]) + p[1:]
		}
	}
	return strings.Join(parts, "")
}

// Nearest returns the name that is spelled most like word, or "" when none comes close.
func Nearest(word string, names []string) string {
	word = strings.ToLower(clip(word, 64))
	best, bestDistance := "", max(1, len(word)/3)+1
	for _, n := range names {
		if d, ok := near.Within(word, strings.ToLower(n), bestDistance-1); ok {
			best, bestDistance = n, d
		}
	}
	return best
}

// Distance is near.Distance of the first 64 bytes of two words.
func Distance(a, b string) int { return near.Distance(clip(a, 64), clip(b, 64)) }
